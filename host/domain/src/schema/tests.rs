use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<SchemaDocument, Vec<Problem>> {
    SchemaDocument::parse("openapi/values.yaml", text)
}

fn compile(text: &str) -> Result<Schema, Vec<Problem>> {
    Schema::compile(&parse(text)?)
}

fn schema(text: &str) -> Schema {
    compile(text).unwrap()
}

fn shown(problems: Vec<Problem>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{}: {problem}", problem.reason)).collect()
}

fn refused(text: &str) -> Vec<String> {
    shown(compile(text).unwrap_err())
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn violations(schema: &Schema, value: Value) -> Vec<String> {
    schema.validate("values", &value, None).map_or_else(shown, |()| Vec::new())
}

#[test]
fn a_schema_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}

#[test]
fn references_are_replaced() {
    let schema = schema(
        "type: object
properties:
  a: {$ref: '#/definitions/port'}
  b: {$ref: '#/properties/a', description: other}
  list: {type: array, items: {$ref: '#/definitions/pair'}}
  $ref: {type: string}
definitions:
  port: {type: integer, minimum: 1}
  pair: {type: object, properties: {port: {$ref: '#/definitions/port'}}}
",
    );
    assert_eq!(schema.document()["properties"]["b"], json!({"type": "integer", "minimum": 1, "description": "other"}));
    assert_eq!(schema.document().get("definitions"), None);
    assert_eq!(violations(&schema, json!({"a": 1, "b": 2, "list": [{"port": 3}], "$ref": "x"})), Vec::<String>::new());
    assert_eq!(
        violations(&schema, json!({"a": 0, "list": [{"port": 3, "x": 1}]})),
        [
            "SchemaViolated: values: a: the value is less than the minimum of 1",
            "UnknownKey: values: list[0].x: the key 'x' is not known to openapi/values.yaml"
        ]
    );
}

#[test]
fn references_stay_in_the_file_and_end() {
    let table = [
        (
            "properties: {a: {$ref: 'file:///etc/passwd'}}",
            "BadReference: openapi/values.yaml:1:14: properties.a: the reference leads out of the file",
        ),
        (
            "properties: {a: {$ref: 'http://x/y'}}",
            "BadReference: openapi/values.yaml:1:14: properties.a: the reference leads out of the file",
        ),
        (
            "properties: {a: {$ref: 'other.yaml#/x'}}",
            "BadReference: openapi/values.yaml:1:14: properties.a: the reference leads out of the file",
        ),
        (
            "properties: {a: {$ref: 5}}",
            "BadReference: openapi/values.yaml:1:14: properties.a: the reference leads out of the file",
        ),
        (
            "properties: {a: {$ref: '#/definitions/x'}}",
            "BadReference: openapi/values.yaml:1:14: properties.a: the reference '#/definitions/x' leads nowhere",
        ),
        (
            "properties: {a: {$ref: '#/properties/a'}}",
            "CircularReference: openapi/values.yaml:1:14: properties.a: the reference '#/properties/a' leads back to itself",
        ),
        ("properties: {a: {properties: {b: {$ref: '#'}}}}", "CircularReference"),
        (
            "properties: {a: {$ref: '#/definitions/x'}}\ndefinitions: {x: {items: {$ref: '#/definitions/y'}}, y: {items: {$ref: '#/definitions/x'}}}",
            "CircularReference",
        ),
    ];
    for (text, expected) in table {
        let shown = refused(text);
        assert!(shown[0].starts_with(expected), "{text}: {shown:?}");
    }
}

#[test]
fn a_schema_cannot_explode() {
    // Each level refers to the next ten times.
    let mut text = String::from("properties: {a: {$ref: '#/definitions/d0'}}\ndefinitions:\n");
    for level in 0..9 {
        let members: Vec<String> =
            (0..10).map(|index| format!("p{index}: {{$ref: '#/definitions/d{}'}}", level + 1)).collect();
        text.push_str(&format!("  d{level}: {{properties: {{{}}}}}\n", members.join(", ")));
    }
    text.push_str("  d9: {type: string}\n");
    assert_eq!(compile(&text).unwrap_err()[0].reason, "SchemaTooLarge");
    let many: String =
        (0..300).map(|index| format!("  p{index}: {{type: string, pattern: '^a{{1,50}}$'}}\n")).collect();
    assert_eq!(compile(&format!("properties:\n{many}")).unwrap_err()[0].reason, "TooManyPatterns");
    let deep = "{properties: {a: ".repeat(60) + "{}" + &"}}".repeat(60);
    assert!(!compile(&deep).unwrap_err().is_empty());
    assert_eq!(refused("properties: {a: {pattern: '(a{1000}){1000}'}}").len(), 1);
}

#[test]
fn patterns_are_matched_in_linear_time() {
    let schema = schema("properties: {a: {type: string, pattern: '^(a+)+$'}}");
    let evil = "a".repeat(50_000) + "!";
    assert_eq!(violations(&schema, json!({"a": evil})).len(), 1);
    assert_eq!(refused("properties: {a: {pattern: '(?<=a)b'}}").len(), 1, "look-behind is not linear");
}

#[test]
fn bad_schemas_are_refused_with_their_places() {
    let table = [
        ("[]", "BadSchema: openapi/values.yaml:1:1: must be a schema, not a list"),
        ("type: string", "BadSchema: openapi/values.yaml:1:1: type: the root must be of type object"),
        ("propertis: {}", "UnknownKey: openapi/values.yaml:1:1: propertis: the keyword 'propertis' is not known"),
        (
            "properties: {a: {requird: []}}",
            "UnknownKey: openapi/values.yaml:1:18: properties.a.requird: the keyword 'requird' is not known",
        ),
        ("properties: {a: 5}", "BadSchema: openapi/values.yaml:1:14: properties.a: must be a schema, not a number"),
        ("properties: []", "BadSchema: openapi/values.yaml:1:1: properties: must be an object of schemas, not a list"),
        ("allOf: {}", "BadSchema: openapi/values.yaml:1:1: allOf: must be a list of at least one schema"),
        ("properties: {a: {type: strin}}", "BadSchema: openapi/values.yaml:1:18: properties.a.type: "),
        ("properties: {a: {required: true}}", "BadSchema: openapi/values.yaml:1:18: properties.a.required: "),
        ("properties: {a: {minLength: -1}}", "BadSchema: openapi/values.yaml:1:18: properties.a.minLength: "),
        (
            "properties: {a: {items: [{}, {}]}}",
            "BadSchema: openapi/values.yaml:1:18: properties.a.items: must be a schema, not a list",
        ),
        ("$schema: http://json-schema.org/draft-07/schema#", "UnknownKey"),
        ("$id: http://x/y", "UnknownKey"),
        ("properties: {a: {type: string}, a: {}}", "DuplicateKey"),
    ];
    for (text, expected) in table {
        let shown = refused(text);
        assert!(shown[0].starts_with(expected), "{text}: {shown:?}");
        assert!(!shown[0].contains('\n'), "{shown:?}");
    }
}

#[test]
fn objects_are_closed_unless_they_say_otherwise() {
    let schema = schema(
        "properties:
  closed: {type: object}
  open: {type: object, additionalProperties: true}
  free: {type: object, x-kubernetes-preserve-unknown-fields: true}
  map: {type: object, additionalProperties: {type: object, properties: {x: {type: integer}}}}
  any: {}
  patterned: {type: object, patternProperties: {'^x-': {type: string}}}
  branch:
    type: object
    properties: {kind: {type: string}}
    oneOf:
      - {properties: {kind: {enum: [a]}}, required: [kind]}
      - {properties: {kind: {enum: [b]}, hidden: {type: string}}, required: [kind]}
",
    );
    let good = json!({
        "closed": {}, "open": {"a": 1}, "free": {"a": 1}, "map": {"k": {"x": 1}}, "any": {"a": 1},
        "patterned": {"x-a": "b"}, "branch": {"kind": "b"}
    });
    assert_eq!(violations(&schema, good), Vec::<String>::new());
    let bad = json!({
        "closed": {"a": 1, "b": 1}, "map": {"k": {"y": 1}}, "patterned": {"y": 1}, "branch": {"kind": "b", "hidden": "x"}, "x": 1
    });
    let keys: Vec<String> = schema
        .validate("values", &bad, None)
        .unwrap_err()
        .into_iter()
        .map(|problem| format!("{} {}", problem.reason, problem.path))
        .collect();
    assert_eq!(
        keys,
        [
            "UnknownKey branch.hidden",
            "UnknownKey closed",
            "UnknownKey map.k.y",
            "UnknownKey patterned.y",
            "UnknownKey x"
        ],
        "a field of a branch has to be declared in properties, too"
    );
}

#[test]
fn the_dialect_is_that_of_openapi() {
    let schema = schema(
        "properties:
  nothing: {type: string, nullable: true}
  choice: {type: string, enum: [a, b], nullable: true}
  either: {nullable: true, oneOf: [{type: string}, {type: integer}]}
  above: {type: number, minimum: 1, exclusiveMinimum: true}
  atleast: {type: number, minimum: 1, exclusiveMinimum: false}
  port: {x-kubernetes-int-or-string: true}
  mail: {type: string, format: email}
  odd: {type: string, format: some-format-nobody-knows}
  example: {type: string, example: 5, title: x, readOnly: true, x-anything: [1]}
",
    );
    let good = json!({
        "nothing": null, "choice": null, "either": null, "above": 1.5, "atleast": 1, "port": "http", "mail": "a@example.com",
        "odd": "x", "example": "x"
    });
    assert_eq!(violations(&schema, good), Vec::<String>::new());
    for bad in [
        json!({"nothing": 5}),
        json!({"choice": "c"}),
        json!({"either": true}),
        json!({"above": 1}),
        json!({"atleast": 0.9}),
        json!({"port": true}),
        json!({"mail": "x"}),
        json!({"example": null}),
    ] {
        assert_eq!(violations(&schema, bad.clone()).len(), 1, "{bad}");
    }
}

#[test]
fn messages_hold_no_values() {
    let schema = schema(
        "required: [missing]
properties:
  a: {type: integer}
  b: {type: string, pattern: '^x$', maxLength: 3}
  c: {enum: [one, two]}
  d: {oneOf: [{type: integer}, {type: boolean}]}
  e: {type: array, uniqueItems: true}
  f: {type: string, format: email}
  g: {const: y}
  h: {not: {type: string}}
  i: {type: object, additionalProperties: {type: integer}}
  j: {type: string, x-deckhouse-validations: [{expression: 'int(self) > 0', message: must be a number}]}
",
    );
    let secret = "hunter2";
    for key in ["a", "b", "c", "d", "f", "g", "h", "j"] {
        let mut value = json!({"missing": 1});
        value[key] = json!(secret);
        let shown = schema.validate("values", &value, None).unwrap_err();
        assert!(!format!("{shown:?}").contains(secret), "{key}: {shown:?}");
    }
    let lists =
        [json!({"e": [secret, secret]}), json!({"i": {"x": secret}}), json!({"c": [secret], "d": {"x": secret}})];
    for value in lists {
        let shown = schema.validate("values", &value, None).unwrap_err();
        assert!(!format!("{shown:?}").contains(secret), "{shown:?}");
    }
}

#[test]
fn problems_have_hints() {
    let schema =
        schema("properties: {replicas: {type: integer}, ingress: {type: object, properties: {host: {type: string}}}}");
    let problems = schema.validate("values", &json!({"replica": 1, "ingress": {"zzz": 1}}), None).unwrap_err();
    let hints: Vec<&str> = problems.iter().filter_map(|problem| problem.hint.as_deref()).collect();
    assert_eq!(hints, ["known keys: host", "did you mean 'replicas'?"]);
    let many: serde_json::Map<String, Value> = (0..5000).map(|index| (format!("k{index}"), json!(1))).collect();
    assert_eq!(schema.validate("values", &Value::Object(many), None).unwrap_err().len(), PROBLEMS_MAX);
}

#[test]
fn defaults_are_filled_into_what_exists() {
    let schema = schema(
        "properties:
  a: {type: integer, default: 1}
  absent: {type: object, properties: {x: {type: integer, default: 2}}}
  made: {type: object, default: {}, properties: {x: {type: integer, default: 3}}}
  list: {type: array, items: {type: object, properties: {x: {type: integer, default: 4}}}}
  map: {type: object, additionalProperties: {type: object, properties: {x: {type: integer, default: 5}}}}
  parts: {type: object, properties: {y: {}}, allOf: [{properties: {y: {default: 6}}}]}
  nothing: {type: integer, nullable: true, default: 7}
",
    );
    let mut value = json!({"list": [{}, {"x": 0}], "map": {"k": {}}, "parts": {}, "nothing": null});
    schema.fill_defaults(&mut value);
    assert_eq!(
        value,
        json!({
            "a": 1, "made": {"x": 3}, "list": [{"x": 4}, {"x": 0}], "map": {"k": {"x": 5}}, "parts": {"y": 6}, "nothing": null
        })
    );
    let mut again = value.clone();
    schema.fill_defaults(&mut again);
    assert_eq!(again, value);
}

#[test]
fn values_include_the_settings() {
    let settings = SchemaDocument::parse(
        "openapi/settings.yaml",
        "additionalProperties: true
required: [a]
properties: {a: {type: integer}, both: {type: integer}}
x-deckhouse-validations: [{expression: 'self.a > 0', message: a must be positive}]
",
    )
    .unwrap();
    let own = "x-extend: {schema: settings.yaml}
required: [b]
properties: {b: {type: integer}, both: {type: string}}
x-deckhouse-validations: [{expression: 'self.b > 0', message: b must be positive}]
";
    for text in [own, &own.replace("x-extend: {schema: settings.yaml}\n", "")] {
        let schema = Schema::compile(&parse(text).unwrap().extended(Some(&settings)).unwrap()).unwrap();
        assert_eq!(violations(&schema, json!({"a": 1, "b": 1, "both": "x"})), Vec::<String>::new());
        assert_eq!(
            violations(&schema, json!({"a": 0, "b": 0})),
            ["RuleViolated: values: b must be positive", "RuleViolated: values: a must be positive"]
        );
        assert_eq!(violations(&schema, json!({"c": 1})).len(), 3, "both are required, and the values stay closed");
    }
    for bad in ["other.yaml", "../x"] {
        let text = format!("x-extend: {{schema: {bad}}}");
        assert_eq!(parse(&text).unwrap().extended(None).unwrap_err()[0].reason, "BadExtend");
    }
}

#[test]
fn rules_are_checked() {
    let schema = schema(
        "properties:
  min: {type: integer}
  max: {type: integer}
  ratio: {type: number}
  name: {type: string, x-deckhouse-validations: [{expression: \"self.startsWith('a')\", message: must begin with a}]}
  hosts:
    type: array
    items: {type: object, properties: {port: {type: integer}}, x-deckhouse-validations: [{expression: 'self.port > 0'}]}
  limits: {type: object, additionalProperties: {type: integer, x-deckhouse-validations: [{expression: 'self < 10', message: too many}]}}
x-deckhouse-validations:
  - {expression: '!has(self.min) || !has(self.max) || self.min <= self.max', message: min must not be above max}
  - {expression: '!has(self.ratio) || self.ratio <= 0.5', message: ratio is at most one half}
  - {expression: \"!has(self.hosts) || self.hosts.all(h, self.hosts.filter(o, o.port == h.port).size() == 1)\", message: ports differ}
",
    );
    assert_eq!(
        violations(
            &schema,
            json!({"min": 1, "max": 2, "ratio": 0.5, "name": "ab", "hosts": [{"port": 1}, {"port": 2}], "limits": {"a": 1}})
        ),
        Vec::<String>::new()
    );
    assert_eq!(
        violations(
            &schema,
            json!({"min": 3, "max": 2, "ratio": 1, "name": "b", "hosts": [{"port": 0}, {"port": 0}], "limits": {"a": 10}})
        ),
        [
            "RuleViolated: values: min must not be above max",
            "RuleViolated: values: ratio is at most one half",
            "RuleViolated: values: ports differ",
            "RuleViolated: values: hosts[0]: the rule does not hold: self.port > 0",
            "RuleViolated: values: hosts[1]: the rule does not hold: self.port > 0",
            "RuleViolated: values: limits.a: too many",
            "RuleViolated: values: name: must begin with a",
        ]
    );
    let shown = violations(&schema, json!({"hosts": [{}]}));
    assert_eq!(
        shown,
        [
            "RuleFailed: values: ports differ (the rule fails: no such key 'port'; ask has() first)",
            "RuleFailed: values: hosts[0]: the rule does not hold: self.port > 0 (the rule fails: no such key 'port'; ask has() first)"
        ]
    );
}

#[test]
fn rules_about_the_past_need_a_past() {
    let schema = schema(
        "properties:
  size: {type: integer, x-deckhouse-validations: [{expression: 'self >= oldSelf', message: cannot shrink}]}
  list: {type: array, items: {type: integer, x-deckhouse-validations: [{expression: 'self == oldSelf', message: never}]}}
x-deckhouse-validations: [{expression: '!has(oldSelf.size) || has(self.size)', message: size cannot be removed}]
",
    );
    let check = |value: Value, old: Option<Value>| {
        schema.validate("values", &value, old.as_ref()).map_or_else(shown, |()| Vec::new())
    };
    assert_eq!(check(json!({"size": 1}), None), Vec::<String>::new());
    assert_eq!(check(json!({"size": 1}), Some(json!({}))), Vec::<String>::new());
    assert_eq!(check(json!({"size": 2}), Some(json!({"size": 1}))), Vec::<String>::new());
    assert_eq!(check(json!({"size": 1}), Some(json!({"size": 2}))), ["RuleViolated: values: size: cannot shrink"]);
    assert_eq!(check(json!({}), Some(json!({"size": 2}))), ["RuleViolated: values: size cannot be removed"]);
    assert_eq!(
        check(json!({"list": [2]}), Some(json!({"list": [1]}))),
        Vec::<String>::new(),
        "elements have no identity"
    );
}

#[test]
fn bad_rules_are_refused() {
    let table = [
        ("[{message: x}]", "the key 'expression' is missing"),
        ("[{expression: ''}]", "the key 'expression' is missing"),
        ("{expression: 'true'}", "must be a list of rules"),
        ("[true]", "must be an object with expression and message"),
        ("[{rule: 'true', expression: 'true'}]", "the key 'rule' is not known"),
        ("[{expression: 'self.a >'}]", ""),
        ("[{expression: 'sefl.a > 1'}]", "'sefl' is not known; a rule sees 'self' and 'oldSelf'"),
        // Each level would double the work of the parser.
        ("[{expression: '! !(! !(self.a))'}]", "has two signs '!' in a row; leave out both"),
        ("[{expression: '1 - -(--(self.a)) > 0'}]", "has two signs '-' in a row; leave out both"),
    ];
    for (rules, message) in table {
        let problems = compile(&format!("properties: {{a: {{}}}}\nx-deckhouse-validations: {rules}\n")).unwrap_err();
        assert_eq!(problems[0].reason, "BadRule", "{rules}");
        assert_eq!(problems[0].line, Some(2), "{rules}");
        assert!(problems[0].message.ends_with(message), "{problems:?}");
        assert!(!problems[0].message.contains('\n'), "{problems:?}");
    }
    let branch = "properties: {a: {anyOf: [{x-deckhouse-validations: [{expression: 'true'}]}]}}";
    assert_eq!(
        refused(branch),
        ["BadRule: openapi/values.yaml:1:18: properties.a.anyOf: rules cannot stand below 'anyOf'"]
    );
    let many: String = (0..600).map(|_| "  - {expression: 'true'}\n").collect();
    assert_eq!(compile(&format!("x-deckhouse-validations:\n{many}")).unwrap_err().len(), 1);
    let unboolean = schema("x-deckhouse-validations: [{expression: '5', message: m}]");
    assert_eq!(violations(&unboolean, json!({})), ["RuleFailed: values: m (the rule gives no boolean)"]);
}

/// What a hostile rule can do to the parser: nest and chain.
#[test]
fn the_parser_of_rules_is_not_exhausted() {
    let compile = |expression: &str| {
        let document = json!({"x-deckhouse-validations": [{"expression": expression}]}).to_string();
        compile(&document).map(|_| ())
    };
    for expression in [
        "(".repeat(1000),
        "[".repeat(2000),
        "(".repeat(500) + "true" + &")".repeat(500),
        "!".repeat(2000) + "true",
        "-".repeat(2000) + "1",
        "self".to_owned() + &".a".repeat(1000),
        "1".to_owned() + &"+1".repeat(1000),
        "true?true:".repeat(200) + "true",
        "true".to_owned() + &"&&true".repeat(300),
        "'".repeat(2001),
        "self.all(a, ".repeat(30) + "true" + &")".repeat(30),
        "x".repeat(3000),
    ] {
        assert!(compile(&expression).is_err(), "{expression}");
    }
    // What is just allowed must not overflow the stack either.
    for expression in [
        "(".repeat(24) + "true" + &")".repeat(24),
        "true".to_owned() + &"&&true".repeat(90),
        "self".to_owned() + &".a".repeat(190),
        "1".to_owned() + &"+1".repeat(190) + " == 1",
        "!".repeat(90) + "true",
        "[".repeat(24) + &"]".repeat(24) + " == []",
        "[1].all(a, ".repeat(20) + "true" + &")".repeat(20),
    ] {
        if let Ok(()) = compile(&expression) {
            let document = json!({"x-deckhouse-validations": [{"expression": expression}]}).to_string();
            let _ = violations(&schema(&document), json!({}));
        }
    }
}

/// What a hostile rule can do to the evaluator: loop over loops, and double a text again and again.
#[test]
fn costly_rules_are_not_run() {
    let doubling = "[self.s]".to_owned() + &".map(a, a + a)".repeat(60) + ".size() == 1";
    let nested = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d > 0))))".to_owned();
    let joined = "[self.s].map(a, self.l.map(b, a).join(a)).map(a, self.l.map(b, a).join(a)).size() == 1".to_owned();
    let pattern = "self.l.all(a, self.l.all(b, self.s.matches('(x{100}){100}')))".to_owned();
    for expression in [doubling, nested, joined, pattern] {
        let document = json!({
            "properties": {"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}},
            "x-deckhouse-validations": [{"expression": expression}]
        });
        let value = json!({"s": "x".repeat(100), "l": (0..200).collect::<Vec<_>>()});
        let shown = violations(&schema(&document.to_string()), value);
        assert_eq!(shown, ["RuleTooCostly: values: a rule would take too many steps to check"], "{expression}");
    }
}

#[test]
fn ordinary_rules_on_large_documents_are_run() {
    let document = json!({
        "properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}},
        "x-deckhouse-validations": [
            {"expression": "self.l.all(a, a.name.startsWith('n'))"},
            {"expression": "self.l.filter(a, a.name == 'n5').size() == 1"},
            {"expression": "self.l.map(a, a.name).exists(n, n == 'n7')"},
        ]
    });
    let items: Vec<Value> = (0..800).map(|index| json!({"name": format!("n{index}")})).collect();
    assert_eq!(violations(&schema(&document.to_string()), json!({"l": items})), Vec::<String>::new());
}

#[test]
fn immutable_fields_can_be_set_once() {
    let schema = schema(
        "properties:
  once: {type: string, x-deckhouse-immutable: true}
  tree: {type: object, x-deckhouse-immutable: true, additionalProperties: true}
  free: {type: string, x-deckhouse-immutable: 'yes'}
  nested: {type: object, properties: {once: {type: integer, x-deckhouse-immutable: true}}}
  list: {type: array, items: {type: object, properties: {once: {type: integer, x-deckhouse-immutable: true}}}}
  map: {type: object, additionalProperties: {type: object, properties: {once: {type: integer, x-deckhouse-immutable: true}}}}
",
    );
    let check = |old: Value, new: Value| {
        let problems = schema.check_immutable("spec.settings", &old, &new).err().unwrap_or_default();
        problems.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(check(json!({}), json!({"once": "a", "tree": {"a": 1}})), none, "it may still be chosen");
    assert_eq!(check(json!({"once": "a"}), json!({"once": "a"})), none);
    assert_eq!(check(json!({"once": "a"}), json!({"once": "b"})), ["once"]);
    assert_eq!(check(json!({"once": "a"}), json!({})), ["once"]);
    assert_eq!(check(json!({"tree": {"a": {"b": 1}}}), json!({"tree": {"a": {"b": 2}}})), ["tree"]);
    assert_eq!(check(json!({"free": "a"}), json!({"free": "b"})), none);
    assert_eq!(check(json!({"nested": {"once": 1}}), json!({"nested": {"once": 2}})), ["nested.once"]);
    assert_eq!(check(json!({"nested": {"once": 1}}), json!({})), ["nested.once"]);
    assert_eq!(check(json!({"list": [{"once": 1}]}), json!({"list": [{"once": 2}, {"once": 3}]})), ["list[0].once"]);
    assert_eq!(check(json!({"list": [{"once": 1}]}), json!({"list": []})), none);
    assert_eq!(
        check(json!({"map": {"a": {"once": 1}, "b": {"once": 1}}}), json!({"map": {"a": {"once": 2}}})),
        ["map.a.once"]
    );
    let problem = schema.check_immutable("spec.settings", &json!({"once": "a"}), &json!({})).unwrap_err();
    assert_eq!(
        problem[0].to_string(),
        "spec.settings: once: field \"once\" is immutable: it can only be set when the application is created"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever a rule says, it is refused, too costly, or checked.
    #[test]
    fn any_rule_is_compiled_and_checked_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "self", "oldSelf", ".a", ".l", ".s", "[0]", "['a']", "(", ")", "[", "]", "{", "}", "has(self.a)", "1", "-1", "0",
                "9223372036854775807", "18446744073709551615u", "1.5", "'x'", "b'x'", "true", "null", "+", "-", "*", "/", "%",
                "==", "!=", "<", "in", "&&", "||", "!", "?", ":", ",", ".all(x, ", ".exists(x, ", ".map(x, ", ".filter(x, ", "x",
                ".size()", ".split('')", ".join('x')", ".matches('x')", ".replace('x', 'yy')", "quantity('1Gi')", "duration('1h')",
                "timestamp('2024-01-01T00:00:00Z')", "int(", "string(", "type(", "self.l", "self.s", "?.", "a{b: 1}", "\"",
            ]),
            1..25,
        ),
    ) {
        let document = json!({
            "properties": {"a": {}, "l": {"type": "array"}, "s": {"type": "string"}},
            "x-deckhouse-validations": [{"expression": words.join(" ")}, {"expression": words.concat()}]
        });
        if let Ok(schema) = compile(&document.to_string()) {
            let value = json!({"a": {"a": 1}, "l": (0..50).collect::<Vec<_>>(), "s": "x".repeat(200)});
            let _ = schema.validate("values", &value, Some(&value));
        }
    }

    #[test]
    fn any_schema_is_compiled_or_refused(
        lines in prop::collection::vec(
            prop::sample::select(vec![
                "type: object", "properties:", "  a:", "    type: integer", "    $ref: '#/definitions/a'", "definitions:",
                "  a: {type: [string], nullable: true}", "    minimum: x", "    exclusiveMinimum: true", "    enum: []",
                "    default: {}", "additionalProperties: 5", "allOf: [{}]", "    oneOf: [{type: 'null'}]", "    nullable: 3",
                "    pattern: '['", "    format: 5", "required: [a, a]", "    x-deckhouse-validations: 5", "    x-extend: 5",
            ]),
            1..12,
        ),
    ) {
        if let Ok(schema) = compile(&lines.join("\n")) {
            let mut value = json!({"a": null});
            schema.fill_defaults(&mut value);
            let _ = schema.validate("values", &value, None);
            let _ = schema.check_immutable("values", &value, &json!({}));
        }
    }
}
