use serde_json::json;

use super::*;

const MAX: u64 = 1 << 20;

fn document(value: Value) -> Document {
    Document::new(Arc::new(value))
}

#[test]
fn a_change_is_read_back_and_its_size_is_exact() {
    let start = json!({"a": {"b": [1, 2]}, "t~/": 1, "": 5});
    for (pointer, new, expected) in [
        ("", r#"{"x":1}"#, json!({"x": 1})),
        ("/a", "7", json!({"a": 7, "t~/": 1, "": 5})),
        ("/a/b/0", r#""x""#, json!({"a": {"b": ["x", 2]}, "t~/": 1, "": 5})),
        ("/a/b/-", "3", json!({"a": {"b": [1, 2, 3]}, "t~/": 1, "": 5})),
        ("/a/b/2", "3", json!({"a": {"b": [1, 2, 3]}, "t~/": 1, "": 5})),
        ("/a/b/-/k", "3", json!({"a": {"b": [1, 2, {"k": 3}]}, "t~/": 1, "": 5})),
        ("/t~0~1", "2", json!({"a": {"b": [1, 2]}, "t~/": 2, "": 5})),
        ("/", "6", json!({"a": {"b": [1, 2]}, "t~/": 1, "": 6})),
        ("/n/e/w\"", "null", json!({"a": {"b": [1, 2]}, "t~/": 1, "": 5, "n": {"e": {"w\"": null}}})),
        ("/a/-", "1", json!({"a": {"b": [1, 2], "-": 1}, "t~/": 1, "": 5})),
    ] {
        let mut document = document(start.clone());
        assert_eq!(document.set(pointer.to_owned(), new, MAX), Ok(()), "{pointer}");
        assert_eq!(*document.value, expected, "{pointer}");
        assert_eq!(document.bytes, Some(expected.to_string().len() as u64), "{pointer}");
        assert_eq!(document.changes.len(), 1);
    }
}

#[test]
fn a_removal_is_exact_and_what_is_not_there_is_no_error() {
    let start = json!({"a": {"b": [1, 2]}, "c": {"d": 1}});
    for (pointer, expected, changes) in [
        ("/a", json!({"c": {"d": 1}}), 1),
        ("/a/b/0", json!({"a": {"b": [2]}, "c": {"d": 1}}), 1),
        ("/c/d", json!({"a": {"b": [1, 2]}, "c": {}}), 1),
        ("", json!({}), 1),
        ("/x", start.clone(), 0),
        ("/x/y/z", start.clone(), 0),
        ("/a/b/2", start.clone(), 0),
        ("/a/b/-", start.clone(), 0),
    ] {
        let mut document = document(start.clone());
        assert_eq!(document.remove(pointer.to_owned(), MAX), Ok(()), "{pointer}");
        assert_eq!(*document.value, expected, "{pointer}");
        assert_eq!(document.bytes, Some(expected.to_string().len() as u64), "{pointer}");
        assert_eq!(document.changes.len(), changes, "{pointer}");
    }
}

#[test]
fn a_bad_change_changes_nothing() {
    let start = json!({"a": [1], "s": "text"});
    let deep = "/x".repeat(127);
    let deeper = "/x".repeat(128);
    for (pointer, new) in [
        ("a", "1"),
        ("/~", "1"),
        ("/~2", "1"),
        ("/a", "{"),
        ("/a", ""),
        ("/a/5", "1"),
        ("/a/01", "1"),
        ("/a/x", "1"),
        ("/s/x", "1"),
        ("", "[]"),
        ("", "1"),
        (deep.as_str(), "{}"),
        (deeper.as_str(), "1"),
    ] {
        let mut document = document(start.clone());
        assert!(document.set(pointer.to_owned(), new, MAX).is_err(), "{pointer}");
        assert_eq!(*document.value, start);
        assert!(document.changes.is_empty());
    }
    assert!(matches!(document(start.clone()).remove("/s/x".to_owned(), MAX), Err(Refusal::Path(_))));
}

#[test]
fn the_document_cannot_outgrow_its_limit_but_can_always_shrink() {
    let mut document = document(json!({"a": "0123456789"}));
    assert_eq!(document.set("/b".to_owned(), "1", 20), Err(Refusal::TooLarge));
    assert_eq!(document.set("/a".to_owned(), "\"012345678901234567\"", 20), Err(Refusal::TooLarge));
    assert_eq!(document.set("/a".to_owned(), "1", 5), Ok(()));
    assert_eq!(document.set("/b".to_owned(), "\"\"", 14), Ok(()));
    assert_eq!(document.bytes, Some(14));
}

#[test]
fn endless_changes_end_the_run() {
    let mut document = document(json!({}));
    let text = format!("\"{}\"", "x".repeat(98));
    let stopped = (0..100).find_map(|_| document.set("/a".to_owned(), &text, 200).err());
    assert!(matches!(stopped, Some(Refusal::Stop(Stop::BadOutput(_)))), "{stopped:?}");
    assert!(document.changes.len() < 20);
}

#[test]
fn the_input_is_shared_until_the_first_change() {
    let input = Arc::new(json!({"a": 1}));
    let mut document = Document::new(Arc::clone(&input));
    assert!(Arc::ptr_eq(&document.value, &input));
    assert_eq!(document.set("/a".to_owned(), "2", MAX), Ok(()));
    assert_eq!(*input, json!({"a": 1}));
}
