//! Two tables recorded from Helm 4.2.3: functions, and syntax, printing and YAML. Every row must give the same text or
//! the same error, except for those listed with the reason.

use serde_json::json;

use super::package;

const FUNCTIONS: &str = include_str!("../../tests/data/fn_oracle.json");
const FUNCTION_CASES: &str = include_str!("../../tests/data/fn_cases.txt");
const SYNTAX: &str = include_str!("../../tests/data/syn_oracle.json");
const SYNTAX_CASES: &str = include_str!("../../tests/data/syn_cases.txt");

fn answer(expression: &str) -> Result<String, String> {
    package(&[("templates/a.txt", &format!("{{{{ {expression} }}}}")), ("conf/a", "x: 1\ny\n"), ("conf/b", "z")])
        .values(json!({"f": 8080, "l": [1, 2], "m": {"a": 1}, "s": "hello"}))
        .root("Chart", json!({"Name": "p1", "Version": "0.1.0"}))
        .text()
        .map_err(|error| error.helm().to_string())
}

fn check(cases: &str, recorded: &str, listed: &[(&str, &str)]) {
    let rows: Vec<(String, String)> = serde_json::from_str(recorded).unwrap();
    assert!(rows.iter().all(|(expression, _)| cases.contains(expression.as_str())), "an answer without its case");
    let mut problems = Vec::new();
    for (expression, expected) in &rows {
        let expected = expected.strip_prefix("ERR HelmRenderError: ").map_or(Ok(expected.as_str()), Err);
        let got = answer(expression);
        let same = match (&got, expected) {
            (Ok(got), Ok(expected)) => got == expected,
            (Err(got), Err(expected)) => got == expected,
            _ => false,
        };
        let reason = listed.iter().find(|(e, _)| e == expression);
        match (same, reason) {
            (false, None) => problems.push(format!("{expression}\n  helm: {expected:?}\n  ours: {got:?}")),
            (true, Some(_)) => problems.push(format!("{expression}\n  is listed, but passes")),
            _ => {}
        }
    }
    assert!(problems.is_empty(), "{} rows:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn t01_functions_answer_as_helm() {
    let listed =
        &[("$", "prints the address of a Go pointer; our packages also have no fields of Chart.yaml that nobody set")];
    check(FUNCTION_CASES, FUNCTIONS, listed);
}

#[test]
fn t02_syntax_printing_and_yaml_are_as_in_helm() {
    let null_key = "fromYaml \"1: a\\ntrue: b\\nnull: c\\n1.5: d\" | toJson";
    check(SYNTAX_CASES, SYNTAX, &[(null_key, "an error in both; Go's text shows its own formatting gone wrong")]);
}

/// What generated charts have brought to light, recorded from Helm, one template a row.
const FOUND: &str = include_str!("../../tests/data/found_oracle.json");

#[test]
fn what_generated_charts_found_stays_found() {
    let recorded: serde_json::Value = serde_json::from_str(FOUND).unwrap();
    let rows = recorded["rows"].as_array().unwrap();
    let mut problems = Vec::new();
    for row in rows {
        let (text, expected) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let chart = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");
        let got = package(&[chart, ("templates/a.txt", text)]).values(recorded["values"].clone()).text();
        let got = got.map_or_else(|error| format!("ERR {}", error.helm()), |text| format!("OK {text}"));
        if got != expected {
            problems.push(format!("{text}\n  helm: {expected}\n  ours: {got}"));
        }
    }
    assert!(problems.is_empty() && rows.len() > 50, "{} rows:\n{}", problems.len(), problems.join("\n"));
}
