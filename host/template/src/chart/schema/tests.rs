//! Schemas: the recorded words of Helm 4.2.3, charts below charts, hostile schemas.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::{Error, Kind, Limit, tests::package};

const RECORDED: &str = include_str!("../../../tests/data/schema_oracle.json");
const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");

/// Rows that are told in other words, and why. Whether the values are accepted must always agree.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("\"contains\"", "the items that contains did not find are not told"),
    ("\"format\"", "why a text is not of a format is told by no two libraries alike"),
    ("http://127.0.0.1", "references to other addresses are refused and not fetched"),
    ("other.json", "references to other files are refused and not opened"),
    ("\"pattern\": \"(", "what is wrong with a pattern is told by another library"),
    ("#/properties/a\"}}", "a circle of references is told without the two places that close it"),
    (
        "\"prefixItems\": [{\"type\": \"integer\"}], \"items\"",
        "Helm counts items from the first that has no schema of its own",
    ),
    ("\"unevaluatedProperties\": {", "what is wrong with a property that nothing has looked at is not told"),
];
/// A `$schema` that nobody knows is read as the newest draft; Helm dials its host.
const UNKNOWN_DRAFT: &str = "http://example.com/none";

fn check(schema: &str, values: &Json) -> Result<(), Error> {
    let files = [CHART, ("values.schema.json", schema), ("templates/a.txt", "ok")];
    package(&files).values(values.clone()).texts().map(|_| ())
}

/// The order of properties is random in Helm.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn schemas_are_told_in_the_words_of_helm() {
    let rows: Vec<Json> = serde_json::from_str(RECORDED).unwrap();
    let mut problems = String::new();
    for row in &rows {
        let schema = row["schema"].as_str().unwrap();
        let got = check(schema, &row["values"]);
        let listed = OTHER_WORDS.iter().find(|(part, _)| schema.contains(part)).map(|(_, reason)| *reason);
        let same = match (&got, row.get("err").and_then(Json::as_str)) {
            (Ok(()), None) => true,
            (Err(error), Some(expected)) => listed.is_some() != (sorted(error.helm()) == sorted(expected)),
            _ => false,
        } || schema.contains(UNKNOWN_DRAFT);
        if !same {
            let got = got.as_ref().map_err(Error::helm);
            writeln!(problems, "{schema}\n  helm: {}\n  ours: {got:?}", row["err"]).unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(rows.len() > 90);
}

#[test]
fn every_chart_checks_its_own_values_and_all_are_told_at_once() {
    let files = [
        CHART,
        ("values.schema.json", r#"{"properties": {"port": {"type": "integer"}}}"#),
        ("values.yaml", "port: 80\n"),
        ("templates/a.txt", "{{ .Values.port }}"),
        ("charts/s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 0.1.0\n"),
        ("charts/s/values.schema.json", r#"{"required": ["key"], "properties": {"key": {"pattern": "^[a-z]+$"}}}"#),
        ("charts/s/values.yaml", "key: abc\n"),
    ];
    assert_eq!(package(&files).text().unwrap(), "80");
    let error = package(&files).values(json!({"port": "x", "s": {"key": "S3CRET"}})).text().unwrap_err();
    assert_eq!((error.kind, error.code()), (Kind::Schema, "ValuesInvalid"));
    let head = "values don't meet the specifications of the schema(s) in the following chart(s):\n";
    assert_eq!(
        error.helm(),
        format!(
            "{head}p:\n- at '/port': got string, want integer\ns:\n- at '/key': 'S3CRET' does not match pattern \
             '^[a-z]+$'\n"
        )
    );
    assert_eq!(
        error.to_string(),
        format!(
            "{head}p:\n- at '/port': got string, want integer\ns:\n- at '/key': the value does not match pattern \
             '^[a-z]+$'"
        ),
        "what is logged holds no value"
    );
    assert!(error.hint().is_some());
    // A default that the user takes away is missing for the subchart, too.
    let error = package(&files).values(json!({"s": {"key": null}})).text().unwrap_err();
    assert!(error.helm().contains("s:\n- at '': missing property 'key'"), "{}", error.helm());
}

#[test]
fn schemas_can_be_skipped() {
    let files = [CHART, ("values.schema.json", r#"{"required": ["a"]}"#), ("templates/a.txt", "ok")];
    assert!(package(&files).text().is_err());
    assert_eq!(package(&files).skip_schemas().text().unwrap(), "ok");
}

/// A chain of definitions, each of which refers to the next one twice.
fn doubling(levels: usize, last: &Json, link: impl Fn(&Json) -> Json) -> String {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        definitions.insert(format!("d{level}"), link(&json!({"$ref": format!("#/$defs/d{}", level + 1)})));
    }
    definitions.insert(format!("d{levels}"), last.clone());
    json!({"$defs": definitions, "$ref": "#/$defs/d0"}).to_string()
}

#[test]
fn a_schema_that_would_keep_the_host_busy_is_refused() {
    let nested = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
    let bombs = [
        (doubling(40, &json!({"type": "object"}), |next| json!({"allOf": [next, next]})), json!({})),
        (doubling(40, &json!({"type": "string"}), |next| json!({"anyOf": [next, next]})), json!({})),
        (doubling(40, &json!({}), |next| json!({"not": next, "if": next})), json!({})),
        (
            json!({"additionalProperties": {"$ref": "#"}, "allOf": [{"properties": {"a": {"$ref": "#"}}}]}).to_string(),
            nested,
        ),
        (doubling(3_000, &json!({}), |next| json!({"not": next})), json!({})),
    ];
    for (schema, values) in bombs {
        let begun = std::time::Instant::now();
        let error = check(&schema, &values).unwrap_err();
        assert_eq!(error.kind, Kind::Limit(Limit::Schema), "{error}");
        assert!(begun.elapsed().as_secs() < 10);
    }
}

#[test]
fn a_schema_reads_nothing_but_itself() {
    for target in ["/etc/passwd", "file:///etc/passwd", "https://example.com/x.json#/a", "other.json"] {
        let schema = json!({"properties": {"a": {"$ref": target}}}).to_string();
        let error = check(&schema, &json!({"a": 1})).unwrap_err();
        assert!(error.helm().contains("not followed"), "{}", error.helm());
    }
    let inner = json!({"properties": {"a": {"$id": "https://example.com/b", "$ref": "#/x"}}}).to_string();
    assert!(check(&inner, &json!({"a": 1})).unwrap_err().helm().contains("not supported"));
    for circle in [r##"{"$ref": "#"}"##, r##"{"allOf": [{"anyOf": [{"$ref": "#"}]}]}"##] {
        assert!(check(circle, &json!({})).unwrap_err().helm().contains("circle"), "{circle}");
    }
}

#[test]
fn patterns_are_bounded() {
    let schema = json!({"properties": {"a": {"pattern": "(((a{1,1000}){1,1000}){1,1000}){1,1000}"}}}).to_string();
    assert_eq!(check(&schema, &json!({"a": "a"})).unwrap_err().kind, Kind::Schema);
    let slow = json!({"properties": {"a": {"pattern": "^(a|aa)+$"}}}).to_string();
    assert!(check(&slow, &json!({"a": "a".repeat(100_000) + "b"})).is_err());
}
