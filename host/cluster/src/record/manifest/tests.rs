use proptest::prelude::*;
use serde_json::{Number, json};

use super::*;

fn through(object: &Value) -> Value {
    let mut manifest = String::new();
    write(&mut manifest, "templates/a.yaml", object);
    write(&mut manifest, "templates/b.yaml", &json!({"kind": "End"}));
    let documents = read(&manifest, false, &mut Budget::default()).unwrap_or_else(|why| panic!("{why}\n{manifest}"));
    let own = read(&manifest, true, &mut Budget::default()).unwrap_or_else(|why| panic!("{why}\n{manifest}"));
    assert_eq!(own, documents, "{manifest}");
    assert_eq!(documents.len(), 2, "{manifest}");
    assert_eq!(documents[0].source.as_deref(), Some("templates/a.yaml"));
    // As Helm cuts it: no document keeps the white space at its end.
    let first = manifest.strip_prefix("---\n").and_then(|rest| rest.split("\n---").next()).expect("a document");
    let trimmed = read(first.trim(), false, &mut Budget::default()).unwrap_or_else(|why| panic!("{why}\n{manifest}"));
    assert_eq!(trimmed[0].object, documents[0].object, "{manifest}");
    documents[0].object.clone()
}

#[test]
fn documents_look_like_those_of_helm() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {}, "finalizers": []},
        "data": {"port": "8080", "on": "yes", "text": "one\n  two\n", "path": "/etc/x", "url": "http://x:80/", "e": ""},
        "list": [1, 2.5, null, true, [[], ["x"]], {"a": 1, "b": ["c"]}, "a\nb"],
        "zzz": "last\n",
    });
    let mut manifest = String::new();
    write(&mut manifest, "templates/a.yaml", &object);
    assert_eq!(
        manifest,
        r#"---
# Source: templates/a.yaml
apiVersion: v1
data:
  e: ""
  "on": "yes"
  path: /etc/x
  port: "8080"
  text: |
    one
      two
  url: http://x:80/
kind: ConfigMap
list:
- 1
- 2.5
- null
- true
- - []
  - - x
- a: 1
  b:
  - c
- |-
  a
  b
metadata:
  finalizers: []
  labels: {}
  name: c
zzz: "last\n"
"#
    );
    assert_eq!(through(&object), object);
}

#[test]
fn text_that_parsers_take_for_something_else_is_quoted() {
    for text in [
        "y",
        "N",
        "yes",
        "No",
        "on",
        "OFF",
        "true",
        "False",
        "null",
        "Null",
        "~",
        "",
        " ",
        "a ",
        " a",
        "1",
        "1e3",
        "0x1",
        "0o7",
        "014",
        "1_000",
        "1:30",
        "2020-01-01",
        "2001-12-14t21:59:43.10-05:00",
        ".inf",
        "-.INF",
        ".nan",
        "nan",
        "Infinity",
        "=",
        "<<",
        "- a",
        "-",
        "?",
        ": ",
        "a:",
        "a: b",
        "a #b",
        "#",
        "@a",
        "`",
        "%a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "'",
        "\"",
        "[",
        "]",
        "{",
        "}",
        ",",
        "---",
        "--- a",
        "...",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{7f}",
        "\0",
        "\t",
        "a\tb",
        "a\rb",
        "a\r\nb",
        "\n",
        "\n\n",
        "a\n",
        "a\n\n",
        "\na",
        " a\nb",
        "a\n b\n",
        "a \nb",
        "a\n\tb",
        "a\n\n\nb",
        "a\n---\nb\n",
        "a\n# b",
        "# a\nb",
        "é",
        "😀",
        "\u{fffe}",
        "\\",
        "\\n",
        "{{ x }}",
        "a\n...\n",
        "  \n a",
        "a\n  ",
        "%YAML 1.1",
        "key: |\n  x\n",
    ] {
        let object = json!({"a": text, text: {"b": text, "z": [text, text]}, "z": [text, {text: text}]});
        assert_eq!(through(&object), object, "{text:?}");
    }
}

#[test]
fn long_keys_and_deep_objects_come_back() {
    for key in ["k".repeat(990), "k".repeat(1100), "\u{1}".repeat(300), "k y".repeat(2000)] {
        let object = json!({"a": {key.as_str(): {key.as_str(): [key]}}, "n": 1});
        assert_eq!(through(&object), object);
    }
    let deep =
        (0..120).fold(json!("x"), |inner, level| if level % 2 == 0 { json!({"a": inner}) } else { json!([inner]) });
    let object = json!({"deep": deep});
    assert_eq!(through(&object), object);
}

#[test]
fn what_helm_writes_is_read() {
    let manifest = "---\n# Source: shop/templates/cm.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  mode: 0755\n  b: |\n    ---x\n\n---\n# Source: shop/templates/none.yaml\n# only a comment\n---apiVersion: v1\nkind: Secret\nmetadata:\n  name: b\n--- # Source: x\napiVersion: v1\nkind: List\nitems:\n- &one\n  kind: A\n- <<: *one\n  more: yes\n---\n{\"kind\": \"J\"}\n";
    let documents = read(manifest, false, &mut Budget::default()).expect("documents");
    assert_eq!(read(manifest, true, &mut Budget::default()).expect("documents"), documents);
    let found: Vec<(Option<&str>, Value)> =
        documents.iter().map(|it| (it.source.as_deref(), it.object.clone())).collect();
    assert_eq!(
        found,
        [
            (
                Some("shop/templates/cm.yaml"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"mode": 493, "b": "---x\n"}})
            ),
            (None, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})),
            (Some("x"), json!({"kind": "A"})),
            (Some("x"), json!({"kind": "A", "more": true})),
            (None, json!({"kind": "J"})),
        ]
    );
}

#[test]
fn what_is_no_yaml_is_an_error_and_a_bomb_is_refused() {
    let error = read("# Source: t/a.yaml\na: [", true, &mut Budget::default()).expect_err("malformed");
    assert!(error.contains("t/a.yaml"), "{error}");
    read(&format!("a: {}", "[".repeat(100_000)), true, &mut Budget::default()).expect_err("too deep");
    let bomb: String = std::iter::once("a0: &a0 [x, x]\n".to_owned())
        .chain((1..40).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)))
        .collect();
    read(&bomb, true, &mut Budget::default()).expect_err("too large");
    // Each of them is small enough, and all together are not.
    let small = "a: &a [x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n";
    let mut left = Budget { nodes: 60, bytes: 50 };
    parse(small, false, &mut left).expect("small");
    parse(small, false, &mut left).expect_err("too many nodes");
    let mut left = Budget { nodes: 60, bytes: 20 };
    parse(small, false, &mut left).expect_err("too much text");
    let many = "---\na: b\n".repeat(6_000);
    let error = read(&many, true, &mut Budget::default()).expect_err("too many");
    assert!(error.contains("5000 objects"), "{error}");
}

#[test]
fn our_own_form_is_read_by_the_fast_reader_and_no_other_is() {
    let mut manifest = String::new();
    let object = json!({
        "kind": "A", "a b": {"on": [1, -2.5, true, null, "x: y", [["z"]], {"k": {"l": []}, "m": {}}, "a\n\n  b"]},
        "text": "a\nb\n", "\u{1}": "\u{1f600}\u{85}", "last": "c\n",
    });
    body(&mut manifest, &object);
    assert_eq!(own::read(&manifest), Some(object), "{manifest}");
    for other in [
        "a: 'b'\n",
        "a: b # c\n",
        "a: yes\n",
        "yes: a\n",
        "a:  b\n",
        "a:\n    b: c\n",
        "a: |\n    b\n",
        "a: |\n\n  b\n",
        "a: |+\n  b\n",
        "a: >\n  b\n",
        "a: 014\n",
        "a: 0x1\n",
        "a: &x b\n",
        "a: \"\\x41\"\n",
        "a: \"b\n  c\"\n",
        "? a\n: b\n",
        "{\"a\": 1}\n",
        "- a\n",
        "a:\n",
        "a: b\n c: d\n",
        "a: b\n# c\n",
        "a: |\n",
        "a: [b]\n",
        "a: b\nc\n",
        "a: -\n",
        "\ta: b\n",
        "a: \"b\" c\n",
        "",
    ] {
        assert_eq!(own::read(other), None, "{other:?}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9_./:@-]{0,12}",
        "[ \t\nab:#\"'{}\\[\\]|>&*!%,?-]{0,16}",
        "[0-9eExXoO+._:-]{0,8}",
        any::<String>(),
        prop::collection::vec("[ -~]{0,10}", 0..5).prop_map(|lines| lines.join("\n")),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        any::<f64>().prop_filter_map("finite", Number::from_f64),
        (-1e21..1e21).prop_filter_map("finite", Number::from_f64),
        Just(Number::from_f64(1.0).expect("finite")),
        Just(Number::from_f64(-0.0).expect("finite")),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number.prop_map(Value::Number),
        any_text().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(any_text(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn objects_come_back_as_exactly_the_same_json(
        fields in prop::collection::btree_map(any_text(), any_value(), 1..6),
    ) {
        // A list without a name is taken apart, so it is not a list.
        let mut object: Map<String, Value> = fields.into_iter().collect();
        object.insert("kind".to_owned(), "Thing".into());
        let object = Value::Object(object);
        prop_assert_eq!(through(&object).to_string(), object.to_string());
    }

    /// Where the fast reader takes a document for one of ours, it means what it means to the other: one of ours with a
    /// character changed.
    #[test]
    fn readers_agree(
        fields in prop::collection::btree_map("[a-c]{1,2}", any_value(), 1..4),
        at in any::<prop::sample::Index>(), with in prop::sample::select(vec!["", " ", "  ", "\n", "\"", "-", "- ", ":", ": ", "#", "|", "a", "1", "\\", "\t"]),
        replaced in any::<bool>(),
    ) {
        let mut text = String::new();
        body(&mut text, &Value::Object(fields.into_iter().collect()));
        let characters: Vec<(usize, char)> = text.char_indices().collect();
        let (start, character) = characters[at.index(characters.len())];
        let end = if replaced { start + character.len_utf8() } else { start };
        text.replace_range(start..end, with);
        if let Some(own) = own::read(&text) {
            let other = parse(&text, false, &mut Budget { nodes: 1_000_000, bytes: 1_000_000 }).unwrap_or_else(|why| panic!("{why}\n{text}"));
            prop_assert_eq!(own.to_string(), other.to_string(), "{}", text);
        }
    }

    #[test]
    fn no_text_breaks_the_reader(text in any::<String>()) {
        let _ = read(&text, true, &mut Budget::default());
    }
}
