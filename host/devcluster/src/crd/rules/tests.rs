//! Rules as a real server (1.37.2) compiles and checks them: the texts in these tables were asked of it.

use serde_json::{Value, json};

use super::{Rules, check_form, check_types};

fn schema(rule: &Value) -> Value {
    json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "a": {"type": "integer"}, "s": {"type": "string"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"x": {"type": "boolean"}, "foo-bar": {"type": "string"}}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "t": {"type": "string", "format": "date-time"}, "io": {"x-kubernetes-int-or-string": true},
        "n": {"type": "number"},
    }})
}

/// What the compiler says of one rule.
fn said(rule: &str) -> String {
    let mut causes = Vec::new();
    check_types(&schema(&json!({"rule": rule})), "p", &mut causes);
    let said = causes.iter().map(|cause| cause.message.split_once("}: ").map_or("", |(_, said)| said));
    said.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_rule_that_does_not_compile_is_refused_where_and_as_the_real_server_does() {
    let rows = [
        ("self.foo == 1", "1:5: undefined field 'foo'\n | self.foo == 1\n | ....^"),
        (
            "self.a == 'x'",
            "1:8: found no matching overload for '_==_' applied to '(int, string)'\n | self.a == 'x'\n | .......^",
        ),
        ("foo(1)", "1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^"),
        ("bar == 1", "1:1: undeclared reference to 'bar' (in container '')\n | bar == 1\n | ^"),
        (
            "self.l.all(x, x == 1)",
            "1:17: found no matching overload for '_==_' applied to '(string, int)'\n | self.l.all(x, x == 1)\n | \
             ................^",
        ),
        ("self.o.y", "1:7: undefined field 'y'\n | self.o.y\n | ......^"),
        (
            "self.s.startsWith(1)",
            "1:18: found no matching overload for 'startsWith' applied to 'string.(int)'\n | self.s.startsWith(1)\n | \
             .................^",
        ),
        ("self.s.foo()", "1:11: undeclared reference to 'foo' (in container '')\n | self.s.foo()\n | ..........^"),
        (
            "self.m['a'] == 1",
            "1:13: found no matching overload for '_==_' applied to '(string, int)'\n | self.m['a'] == 1\n | ............^",
        ),
        (
            "self.t == 'x'",
            "1:8: found no matching overload for '_==_' applied to '(timestamp, string)'\n | self.t == 'x'\n | .......^",
        ),
        (
            "self.a == 1.0",
            "1:8: found no matching overload for '_==_' applied to '(int, double)'\n | self.a == 1.0\n | .......^",
        ),
        (
            "self.a > 'x' || self.foo",
            "1:8: found no matching overload for '_>_' applied to '(int, string)'\n | self.a > 'x' || self.foo\n | \
             .......^\nERROR: <input>:1:21: undefined field 'foo'\n | self.a > 'x' || self.foo\n | ....................^",
        ),
        (
            "size(self.a) > 1",
            "1:5: found no matching overload for 'size' applied to '(int)'\n | size(self.a) > 1\n | ....^",
        ),
        ("has(self.foo)", "1:4: undefined field 'foo'\n | has(self.foo)\n | ...^"),
        (
            "'x' + 1 == 'x'",
            "1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'x' + 1 == 'x'\n | ....^",
        ),
        ("!self.s", "1:1: found no matching overload for '!_' applied to '(string)'\n | !self.s\n | ^"),
        (
            "self.a ? true : false",
            "1:8: found no matching overload for '_?_:_' applied to '(int, bool, bool)'\n | self.a ? true : false\n | \
             .......^",
        ),
        ("self.a.b", "1:7: type 'int' does not support field selection\n | self.a.b\n | ......^"),
        (
            "self.l.exists(x, x.foo)",
            "1:19: type 'string' does not support field selection\n | self.l.exists(x, x.foo)\n | ..................^",
        ),
        (
            "self.s in [1,2]",
            "1:8: found no matching overload for '@in' applied to '(string, list(int))'\n | self.s in [1,2]\n | .......^",
        ),
        (
            "self.l.map(x, x + 1) == []",
            "1:17: found no matching overload for '_+_' applied to '(string, int)'\n | self.l.map(x, x + 1) == []\n | \
             ................^",
        ),
        (
            "optional.of(self.a) == 1",
            "1:21: found no matching overload for '_==_' applied to '(optional_type(int), int)'\n | \
             optional.of(self.a) == 1\n | ....................^",
        ),
        (
            "self.l.join(',') == 1",
            "1:18: found no matching overload for '_==_' applied to '(string, int)'\n | self.l.join(',') == 1\n | \
             .................^",
        ),
        (
            "metadata.name == 'x'",
            "1:1: undeclared reference to 'metadata' (in container '')\n | metadata.name == 'x'\n | ^",
        ),
    ];
    for (rule, expected) in rows {
        assert_eq!(said(rule), format!("compilation failed: ERROR: <input>:{expected}"), "{rule}");
    }
    assert_eq!(said("self.a"), "cel expression must evaluate to a bool");
    for rule in ["self.a +", "self..a", "self.a == 'x", "a b"] {
        assert!(said(rule).starts_with("compilation failed: ERROR: <input>:1:"), "{rule}: {}", said(rule));
    }
    let good = [
        "self.m.a == 'x'",
        "self.io == 'x'",
        "oldSelf.a == self.a",
        "self == oldSelf",
        "{'a':1}.a == 1",
        "dyn(self.a) == 'x'",
        "self.t > timestamp('2020-01-01T00:00:00Z') && duration(self.s) > duration('1s')",
        "quantity(self.s).isGreaterThan(quantity('1'))",
        "self.?a.orValue(1) == 1",
        "type(self.a) == int",
        "self.o.foo__dash__bar != 'z'",
        "self.l.exists_one(x, x == self.s) && size(self.m) < 3 && self.l.filter(x, x != '').size() > 0",
        "self.l.map(x, x + 'y').all(y, y.matches('^a'))",
        "self.a in [1, 2] && 'k' in self.m && sets.contains(self.l, ['a'])",
        "self.n > 1.5 && self.n < 3",
    ];
    for rule in good {
        assert_eq!(said(rule), "", "{rule}");
    }
}

#[test]
fn the_form_of_a_rule_is_checked() {
    let rows = [
        (json!({"rule": " "}), "p.x-kubernetes-validations[0].rule: Required value: rule is not specified"),
        (
            json!({"rule": "true", "message": " "}),
            "p.x-kubernetes-validations[0].message: Invalid value: \" \": must be non-empty if specified",
        ),
        (
            json!({"rule": "true\n || false"}),
            "p.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({"rule": "true", "reason": "Bad"}),
            "p.x-kubernetes-validations[0].reason: Unsupported value: \"Bad\": supported values: \
             \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            json!({"rule": "true", "fieldPath": ".nope"}),
            "p.x-kubernetes-validations[0].fieldPath: Invalid value: \".nope\": must be a valid path",
        ),
    ];
    for (rule, expected) in rows {
        let mut causes = Vec::new();
        check_form(&schema(&rule), "p", &mut causes);
        let said = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect::<Vec<_>>();
        assert_eq!(said, [expected], "{rule}");
    }
    for path in [".a", ".o.x", ".o['foo-bar']", ".m['any']", ".m.any"] {
        let mut causes = Vec::new();
        check_form(&schema(&json!({"rule": "true", "fieldPath": path})), "p", &mut causes);
        assert!(causes.is_empty(), "{path}: {causes:?}");
    }
}

/// The kind that the real server was asked about.
fn kind() -> Value {
    let rule = |rule: &str| json!({"rule": rule});
    let number =
        |n: i64, key: &str, value: Value| json!({"rule": format!("!has(self.a) || self.a != {n}"), key: value});
    let mut fallback = number(21, "messageExpression", json!("''"));
    fallback["message"] = json!("fallback");
    let mut forbidden = number(14, "reason", json!("FieldValueForbidden"));
    forbidden["fieldPath"] = json!(".a");
    forbidden["message"] = json!("no 14");
    let mut required = number(15, "reason", json!("FieldValueRequired"));
    required["fieldPath"] = json!(".o['x']");
    json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [
        {"rule": "!has(self.a) || self.a > 0", "message": "a must be positive "},
        number(13, "messageExpression", json!("self.a == 13 ? 'thirteen ' : 'x'")),
        forbidden,
        required,
        number(16, "reason", json!("FieldValueDuplicate")),
        rule("!has(self.a) || 1/(self.a-17) < 100"),
        rule("!has(self.a) || self.a != 18 || self.l[7] == 'x'"),
        rule("!has(self.a) || self.a != 19 || self.m['zz'] == 'x'"),
        rule("!has(self.a) || self.a != 20 || int(self.s) == 1"),
        fallback,
        number(22, "messageExpression", json!("self.m['q']")),
        {"rule": "!has(oldSelf.a) || oldSelf.a == self.a || self.a > oldSelf.a", "message": "a only grows"},
        {"rule": "oldSelf.hasValue() || !has(self.a) || self.a != 23", "optionalOldSelf": true,
         "message": "not 23 at birth"},
        rule("!has(self.a) || self.a != 24 || self.s == 'é'"),
        rule("!has(self.a) || self.a != 25 || self.a + 9223372036854775807 > 0"),
        rule("!has(self.a) || self.a != 26 || self.a % 0 > 0"),
        rule("!has(self.a) || self.a != 27 || dyn(self.s) > dyn(3)"),
    ], "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [rule("self != 5")]},
        "s": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'", "message": "s is bad"}]},
        "l": {"type": "array", "items": {"type": "string",
              "x-kubernetes-validations": [{"rule": "self != 'no'", "message": "no no"}]}},
        "o": {"type": "object", "properties": {"x": {"type": "boolean"}, "foo-bar": {"type": "string"}},
              "x-kubernetes-validations": [rule("!has(self.x) || self.x"), rule("self.foo__dash__bar != 'z'")]},
        "m": {"type": "object", "additionalProperties": {"type": "string",
              "x-kubernetes-validations": [rule("self != 'no'")]}},
        "im": {"type": "string",
               "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "im is immutable"}]},
        "lm": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
               "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"},
               "v": {"type": "integer",
                     "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "v grows"}]}}}},
    }}}, "x-kubernetes-validations": [
        {"rule": "self.metadata.name != 'evil'", "message": "evil name"},
        rule("!has(self.spec.a) || self.spec.a != 99"),
    ]})
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "t.example.com/v1", "kind": "Bar", "metadata": {"name": "x"}, "spec": spec})
}

fn found(new: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = kind();
    let rules = Rules::of(&schema).expect("it has rules");
    let found = rules.check(new, old, &schema).causes;
    found.into_iter().map(|c| format!("{} {}: {}", c.reason, c.field, c.message)).collect()
}

#[test]
fn objects_are_checked_with_the_texts_of_the_real_server() {
    let mut causes = Vec::new();
    check_types(&kind(), "p", &mut causes);
    assert_eq!(causes, [], "the rules compile");
    let evaluating = "evaluating rule";
    let rows = [
        (json!({"a": -1}), "FieldValueInvalid spec: Invalid value: a must be positive".to_owned()),
        (json!({"a": 13}), "FieldValueInvalid spec: Invalid value: thirteen".to_owned()),
        (json!({"a": 14}), "FieldValueForbidden spec.a: Forbidden: no 14".to_owned()),
        (
            json!({"a": 15}),
            "FieldValueRequired spec.o.x: Required value: failed rule: !has(self.a) || self.a != 15".to_owned(),
        ),
        (json!({"a": 16}), "FieldValueDuplicate spec: Duplicate value".to_owned()),
        (
            json!({"a": 17}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": division by zero {evaluating}: !has(self.a) || \
                 1/(self.a-17) < 100"
            ),
        ),
        (
            json!({"a": 18, "l": ["a"]}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": index out of bounds: 7 {evaluating}: !has(self.a) || \
                 self.a != 18 || self.l[7] == 'x'"
            ),
        ),
        (
            json!({"a": 19, "m": {}}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": no such key: zz {evaluating}: !has(self.a) || self.a \
                 != 19 || self.m['zz'] == 'x'"
            ),
        ),
        (
            json!({"a": 20, "s": "x"}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": type conversion error from 'string' to 'int' \
                 {evaluating}: !has(self.a) || self.a != 20 || int(self.s) == 1"
            ),
        ),
        (json!({"a": 21}), "FieldValueInvalid spec: Invalid value: fallback".to_owned()),
        (
            json!({"a": 22, "m": {}}),
            "FieldValueInvalid spec: Invalid value: failed rule: !has(self.a) || self.a != 22".to_owned(),
        ),
        (json!({"a": 23}), "FieldValueInvalid spec: Invalid value: not 23 at birth".to_owned()),
        (
            json!({"a": 24, "s": "e"}),
            "FieldValueInvalid spec: Invalid value: failed rule: !has(self.a) || self.a != 24 || self.s == 'é'"
                .to_owned(),
        ),
        (
            json!({"a": 25}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": integer overflow {evaluating}: !has(self.a) || self.a \
                 != 25 || self.a + 9223372036854775807 > 0"
            ),
        ),
        (
            json!({"a": 26}),
            format!(
                "FieldValueInvalid spec: Invalid value: \"object\": modulus by zero {evaluating}: !has(self.a) || self.a \
                 != 26 || self.a % 0 > 0"
            ),
        ),
        (
            json!({"a": 27, "s": "x"}),
            "FieldValueInvalid spec: Invalid value: \"object\": 'no such overload': call arguments did not match a \
             supported operator, function or macro signature for rule: !has(self.a) || self.a != 27 || dyn(self.s) > \
             dyn(3)"
                .to_owned(),
        ),
        (json!({"a": 5}), "FieldValueInvalid spec.a: Invalid value: 5: failed rule: self != 5".to_owned()),
        (json!({"s": "bad"}), "FieldValueInvalid spec.s: Invalid value: \"bad\": s is bad".to_owned()),
        (json!({"l": ["a", "no"]}), "FieldValueInvalid spec.l[1]: Invalid value: \"no\": no no".to_owned()),
        (
            json!({"o": {"foo-bar": "z"}}),
            "FieldValueInvalid spec.o: Invalid value: failed rule: self.foo__dash__bar != 'z'".to_owned(),
        ),
        (
            json!({"m": {"k.y": "no"}}),
            "FieldValueInvalid spec.m[k.y]: Invalid value: \"no\": failed rule: self != 'no'".to_owned(),
        ),
        (
            json!({"a": 99}),
            "FieldValueInvalid <nil>: Invalid value: failed rule: !has(self.spec.a) || self.spec.a != 99".to_owned(),
        ),
    ];
    for (spec, expected) in rows {
        assert_eq!(found(&object(spec.clone()), None), [expected], "{spec}");
    }
    let missing = found(&object(json!({"o": {"x": false}})), None);
    assert_eq!(
        missing,
        [
            "FieldValueInvalid spec.o: Invalid value: failed rule: !has(self.x) || self.x",
            "FieldValueInvalid spec.o: Invalid value: \"object\": no such key: foo__dash__bar evaluating rule: \
             self.foo__dash__bar != 'z'",
        ]
    );
    let mut evil = object(json!({}));
    evil["metadata"]["name"] = json!("evil");
    assert_eq!(found(&evil, None), ["FieldValueInvalid <nil>: Invalid value: evil name"]);
}

#[test]
fn transitions_are_checked_against_what_was() {
    let old = object(json!({"a": 3, "im": "q", "lm": [{"k": "1", "v": 5}, {"k": "2", "v": 6}]}));
    let rows = [
        (json!({"a": 2}), vec!["FieldValueInvalid spec: Invalid value: a only grows"]),
        (json!({"a": 3, "im": "z"}), vec!["FieldValueInvalid spec.im: Invalid value: \"z\": im is immutable"]),
        (
            json!({"a": 3, "lm": [{"k": "2", "v": 5}, {"k": "1", "v": 5}]}),
            vec!["FieldValueInvalid spec.lm[0].v: Invalid value: 5: v grows"],
        ),
        (json!({"a": 23}), vec![]),
        (json!({"a": 4, "lm": [{"k": "9", "v": 1}]}), vec![]),
    ];
    for (spec, expected) in rows {
        assert_eq!(found(&object(spec.clone()), Some(&old)), expected, "{spec}");
    }
}

#[test]
fn what_was_wrong_before_is_a_warning_unless_it_changes() {
    let schema = kind();
    let rules = Rules::of(&schema).expect("it has rules");
    let old = object(json!({"s": "bad", "a": 40}));
    let new = object(json!({"s": "bad", "a": 41}));
    let found = rules.check(&new, Some(&old), &schema);
    assert_eq!(found.causes, []);
    assert_eq!(found.warnings, ["spec.s: Invalid value: \"bad\": s is bad"]);
}

#[test]
fn a_costly_rule_ends_the_check_and_not_the_server() {
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"},
    "x-kubernetes-validations": [
        {"rule": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"},
        {"rule": "false"},
    ]}}});
    let rules = Rules::of(&schema).expect("it has rules");
    let large = json!({"l": (0..2000).collect::<Vec<_>>()});
    let begun = std::time::Instant::now();
    let found = rules.check(&large, None, &schema);
    assert_eq!(found.causes.len(), 1, "{:?}", found.causes);
    assert_eq!(
        found.causes[0].message,
        "Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will \
         be run"
    );
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
}

#[test]
fn rules_that_nest_or_go_on_without_end_are_refused() {
    let deep = format!("{}true{}", "(".repeat(5000), ")".repeat(5000));
    let long = vec!["self.a == 1"; 5000].join(" && ");
    let unary = format!("{}true", "!".repeat(5000));
    let indexes = format!("self{}", "[0]".repeat(900));
    for rule in [deep, long, unary] {
        assert!(said(&rule).starts_with("compilation failed: ERROR: <input>:1:1: "), "{}", said(&rule));
    }
    // Whatever is said of it, something is said.
    said(&indexes);
    let chain = vec!["self.a == 1"; 240].join(" && ");
    assert_eq!(said(&chain), "", "what people write is taken");
}
