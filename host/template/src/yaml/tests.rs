//! Layout of what is written, where Helm's answers are known, and that reading gives it back.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{read, write};
use crate::value::Value;

fn written(value: &Json) -> String {
    write(&Value::from_json(value)).ok().expect("writable")
}

#[test]
fn long_texts_fold_behind_column_80() {
    let text = "word ".repeat(30).trim().to_string();
    let out = written(&json!({ "a": text }));
    assert!(out.lines().count() > 1 && out.lines().all(|line| line.len() <= 86), "{out}");
    assert_eq!(read(&out, 1000).unwrap(), json!({ "a": text }));
}

#[test]
fn keys_sort_by_the_numbers_in_them() {
    let out = written(&json!({"a10": 1, "a2": 2, "B": 3, "_": 4}));
    assert_eq!(out, "_: 4\nB: 3\na2: 2\na10: 1\n");
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(text in "[ -~\n\té:#'\"]{0,120}", key in "[a-z0-9:# -]{1,20}") {
        let value = json!({ key: [text, {"nested": text}] });
        let out = written(&value);
        prop_assert_eq!(read(&out, 10_000).map_err(|e| TestCaseError::fail(format!("{e:?}\n{out}")))?, value, "{}", out);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ \n\ta-c0-9:\\-\\[\\]{}&*!|>'\"#,?%]{0,200}") {
        let _ = read(&text, 1000);
    }
}
