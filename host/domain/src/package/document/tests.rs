use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Document {
    Document::parse("a.yaml", text).unwrap()
}

#[test]
fn scalars_mean_what_kubernetes_takes_them_for() {
    let document = parse("a: yes\nb: 0755\nc: '0755'\nd: ~\ne: 1.10\nf: text\ng: [1, -2]\n8080: port\n");
    let expected =
        json!({"a": true, "b": 493, "c": "0755", "d": null, "e": 1.1, "f": "text", "g": [1, -2], "8080": "port"});
    assert_eq!(document.value, expected);
}

#[test]
fn everything_has_its_place() {
    let document = parse("a:\n  b: 1\n  c:\n    - x\n    - {y: z}\n");
    let at = |pointer: &str| document.place(pointer).map(|place| (place.line, place.column));
    assert_eq!(at("/a"), Some((1, 1)));
    assert_eq!(at("/a/b"), Some((2, 3)));
    assert_eq!(at("/a/c/1/y"), Some((5, 8)));
    assert_eq!(at("/a/c/0"), Some((4, 7)));
    assert_eq!(at("/a/missing/deep"), Some((1, 1)), "the nearest node above");
}

#[test]
fn all_duplicate_keys_are_reported_with_both_places() {
    let problems = Document::parse("a.yaml", "a: 1\nb: {c: 1, c: 2}\na: 3\n").unwrap_err();
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "a.yaml:2:11: b.c: the key 'c' is already set on line 2",
            "a.yaml:3:1: a: the key 'a' is already set on line 1"
        ]
    );
    assert!(problems.iter().all(|problem| problem.reason == "DuplicateKey"));
}

#[test]
fn malformed_text_is_refused_with_its_place() {
    for text in ["a: [1,", "a: b: c", "a: 1\n---\nb: 2\n", "a: .inf", "a: &x [*x]", "{", "a: *nobody"] {
        let problems = Document::parse("a.yaml", text).unwrap_err();
        assert_eq!(problems.len(), 1, "{text}");
        assert_eq!(problems[0].reason, "MalformedYaml", "{text}");
        assert!(!problems[0].message.contains('\n'), "{problems:?}");
    }
}

#[test]
fn nothing_is_null() {
    assert_eq!(parse("").value, Value::Null);
    assert_eq!(parse("# only a comment\n---\n").value, Value::Null);
}

#[test]
fn bombs_are_refused() {
    let mut aliases = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let previous = format!("*a{}, ", level - 1).repeat(10);
        aliases.push_str(&format!("a{level}: &a{level} [{}]\n", previous.trim_end_matches(", ")));
    }
    assert!(Document::parse("a.yaml", &aliases).is_err());
    assert!(Document::parse("a.yaml", &"[".repeat(50_000)).is_err());
    assert!(Document::parse("a.yaml", &format!("{}x{}", "[".repeat(500), "]".repeat(500))).is_err());
    assert_eq!(Document::parse("a.yaml", &"a".repeat(TEXT_BYTES + 1)).unwrap_err()[0].reason, "FileTooLarge");
}

#[test]
fn pointers_are_split_and_joined() {
    assert_eq!(segments("").unwrap(), Vec::<String>::new());
    assert_eq!(segments("/a~1b/c~0d/").unwrap(), ["a/b", "c~d", ""]);
    assert_eq!(segments("a"), None);
    assert_eq!(segments("/a~2"), None);
    assert_eq!(segments("/a~"), None);
    assert_eq!(join("/x", "a/b~c"), "/x/a~1b~0c");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[a-c:\\[\\]{}&*!|>'\"#,\\- \n\t0-9~%@<]{0,60}") {
        let _ = Document::parse("a.yaml", &text);
    }
}

/// The parser is recursive, and threads may have little stack left.
#[test]
fn the_deepest_document_fits_on_any_stack() {
    for (open, close) in [("{a: ", "}"), ("[", "]"), ("[{a: ", "}]")] {
        let levels = (DEPTH - 2) / open.matches(['{', '[']).count();
        let text = open.repeat(levels) + "1" + &close.repeat(levels);
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        let parsed =
            thread.spawn(move || Document::parse("a.yaml", &text).map(|document| document.value.to_string().len()));
        assert!(parsed.unwrap().join().unwrap().is_ok(), "{open}");
    }
    let deeper = "[".repeat(DEPTH + 2) + &"]".repeat(DEPTH + 2);
    assert!(Document::parse("a.yaml", &deeper).is_err());
}
