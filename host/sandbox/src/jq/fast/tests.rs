use super::*;

fn form(program: &str) -> Option<Form> {
    Shape::of(program).map(|shape| shape.form)
}

fn at(path: &[&str]) -> Form {
    Form::At(path.iter().map(|&key| key.to_owned()).collect())
}

#[test]
fn paths_and_objects_and_arrays_of_them_are_plain() {
    for (program, expected) in [
        (".", at(&[])),
        (" .a.b\n", at(&["a", "b"])),
        (".a[\"x-y\"]", at(&["a", "x-y"])),
        (".[\"a\"].b", at(&["a", "b"])),
        (".\"a b\".c", at(&["a b", "c"])),
        (".a.[\"b\"]", at(&["a", "b"])),
        (".a | .b | .c", at(&["a", "b", "c"])),
        ("[.a, .b.c]", Form::Array(vec![at(&["a"]), at(&["b", "c"])])),
        (
            "{a, \"b\": .x.y}",
            Form::Object(BTreeMap::from([("a".to_owned(), at(&["a"])), ("b".to_owned(), at(&["x", "y"]))])),
        ),
        (".m | {a: .b}", Form::Object(BTreeMap::from([("a".to_owned(), at(&["m", "b"]))]))),
    ] {
        assert_eq!(form(program), Some(expected), "{program}");
    }
}

#[test]
fn everything_else_is_left_to_the_evaluator() {
    for program in [
        "",
        ".a[]",
        ".a?",
        ".a[0]",
        ".a[1:]",
        "..",
        ".a, .b",
        ".a // 1",
        "a",
        ".a.",
        ".a b",
        "{(.a): 1}",
        "{a: 1}",
        "{a: .b | .c}",
        "{$x}",
        "{a: .b, a: .c}",
        "{a::b: .c}",
        ".\"a\\n\"",
        ".\"\\(.x)\"",
        "[.a",
        "{a",
        "{} | .a",
        ".a | {}",
        ".a | [.b] | .c",
        ".1",
        ". # comment",
        "@base64",
        "[[[[[[[[[[[[[[[[[[.a]]]]]]]]]]]]]]]]]]",
    ] {
        assert_eq!(form(program), None, "{program}");
    }
}

#[test]
fn what_is_not_plain_in_an_input_is_left_to_the_evaluator() {
    let shape = Shape::of(".a.b").unwrap();
    let apply = |text| shape.apply(text).map(|output| String::from_utf8(output).unwrap());
    assert_eq!(
        apply(r#"{"a":{"b":{"z":1,"y":[true,null,"é\n"]}}}"#).as_deref(),
        Some("{\"y\":[true,null,\"é\\n\"],\"z\":1}")
    );
    assert_eq!(apply(r#"{"a":{}}"#).as_deref(), Some("null"));
    assert_eq!(apply(r#"{"x":1.5}"#).as_deref(), Some("null"));
    assert_eq!(apply("null").as_deref(), Some("null"));
    // The last of two fields of a name counts.
    assert_eq!(apply(r#"{"a":{"b":1},"a":{}}"#).as_deref(), Some("null"));
    for text in [
        r#"{"a":5}"#,
        r#"{"a":[]}"#,
        r#"{"a":{"b":1.0}}"#,
        r#"{"a":{"b":9223372036854775808}}"#,
        "[]",
        "{",
        "{} {}",
        "",
    ] {
        assert_eq!(apply(text), None, "{text}");
    }
}
