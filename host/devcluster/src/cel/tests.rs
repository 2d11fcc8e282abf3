//! What expressions give, and how they are bounded.

use serde_json::{Value, json};

use super::{BUDGET, Bound, Expression, Failure, Given, Variable, escape, on_deep_stack};

fn given(source: &str, schema: &Value, value: &Value) -> Result<Given, Failure> {
    on_deep_stack(|| {
        let expression = Expression::parse(source).map_err(Failure::Error)?;
        let this = Variable { name: "self", value: Bound::Typed(value, schema, false) };
        expression.evaluate(&[this], &mut BUDGET.clone())
    })
    .expect("nothing panics")
}

#[test]
fn values_are_what_their_schema_says() {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "number"}, "i": {"type": "integer"}, "t": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"}, "d": {"type": "string", "format": "duration"},
        "b": {"type": "string", "format": "byte"}, "s": text, "foo-bar": text, "a_b": text, "a__b": text,
        "namespace": text, "m": {"type": "object", "additionalProperties": text},
        "l": {"type": "array", "items": text}, "io": {"x-kubernetes-int-or-string": true},
    }});
    let value = json!({"n": 1, "i": 2, "t": "2026-01-02T03:04:05Z", "day": "2026-01-02", "d": "90s", "b": "YWJj",
        "s": "x", "foo-bar": "f", "a_b": "u", "a__b": "w", "namespace": "ns", "m": {"a.b": "v"}, "l": ["p", "q"],
        "io": "50%", "unknown": 1});
    for source in [
        "self.n == 1.0 && self.n < 1.5",
        "self.i + 1 == 3",
        "self.t > timestamp('2026-01-01T00:00:00Z') && self.t.getFullYear() == 2026",
        "self.day == timestamp('2026-01-02T00:00:00Z')",
        "self.d == duration('1m30s')",
        "size(self.b) == 3 && self.b == b'abc'",
        "self.foo__dash__bar == 'f' && self.a_b == 'u' && self.a__underscores__b == 'w' && self.__namespace__ == 'ns'",
        "self.m['a.b'] == 'v' && 'a.b' in self.m",
        "self.l.all(x, x in ['p', 'q']) && self.l.exists_one(x, x == 'p') && self.l[1] == 'q'",
        "self.io == '50%' && type(self.io) == string && type(self.i) == int && type(self.l) == list",
        "self.?nope.orValue('z') == 'z' && self.?s.orValue('z') == 'x' && !self.?nope.hasValue()",
        "self.m[?'none'].orValue('y') == 'y'",
        "!has(self.nope) && has(self.s)",
        "quantity('1Gi').isGreaterThan(quantity('1M')) && url('https://a.b/c').getHost() == 'a.b'",
        "self.l.map(x, x + '!').join(',') == 'p!,q!' && self.l.filter(x, x > 'p').size() == 1",
        "self.s.matches('^[a-z]$') && 'abc'.find('[bc]+') == 'bc' && ' a '.trim() == 'a'",
        "isIP('10.0.0.1') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "false && self.l[9] == 'x' || true",
        "(self.l[9] == 'x') || true",
    ] {
        assert_eq!(given(source, &schema, &value), Ok(Given::Bool(true)), "{source}");
    }
    assert_eq!(given("self.unknown == 1", &schema, &value), Err(Failure::Error("no such key: unknown".to_owned())));
    assert_eq!(given("'a' + self.s", &schema, &value), Ok(Given::Text("ax".to_owned())));
    assert_eq!(given("self.l", &schema, &value), Ok(Given::Other));
}

#[test]
fn names_are_escaped_as_the_api_does() {
    for (name, escaped) in [
        ("a", Some("a")),
        ("a_b", Some("a_b")),
        ("a__b", Some("a__underscores__b")),
        ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
        ("namespace", Some("__namespace__")),
        ("1a", None),
        ("ä", None),
        ("", None),
    ] {
        assert_eq!(escape(name).as_deref(), escaped, "{name}");
    }
}

#[test]
fn an_expression_that_would_take_too_long_is_not_run() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let long = json!((0..3000).map(|n| format!("{n:-<200}")).collect::<Vec<_>>());
    let begun = std::time::Instant::now();
    for source in [
        "self.all(a, self.all(b, a != b || a == b))",
        "self.map(a, self.map(b, a + b)).size() > 0",
        "self.all(a, self.exists(b, a.contains(b)))",
        "self.all(a, self.join(',').matches('(a+)+$'))",
    ] {
        assert_eq!(given(source, &schema, &long), Err(Failure::Cost), "{source}");
    }
    assert_eq!(given("self.all(a, size(a) == 200)", &schema, &long), Ok(Given::Bool(true)));
    assert!(begun.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn the_largest_expressions_that_are_taken_fit_the_stack_and_the_clock() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let value = json!({"a": 1});
    let begun = std::time::Instant::now();
    let deep = format!("{}true{}", "(".repeat(47), ")".repeat(47));
    let lists = format!("size({}1{}) == 1", "[".repeat(46), "]".repeat(46));
    let sum = format!("{} > 0", vec!["1"; 990].join(" + "));
    let ands = vec!["true"; 480].join(" && ");
    let not = format!("{}true", "!".repeat(990));
    let turns = format!("{} true", "true ? true : ".repeat(400));
    for source in [&deep, &lists, &sum, &ands, &not] {
        assert_eq!(given(source, &schema, &value), Ok(Given::Bool(true)), "{source:.60}");
    }
    // Whether these are taken or not, there is an answer.
    let fields = format!("self{} == 1", ".a".repeat(990));
    for source in [&turns, &fields] {
        assert_ne!(given(source, &schema, &value), Err(Failure::Cost), "{source:.60}");
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn signs_that_take_each_other_back_are_gone_before_the_parser_sees_them() {
    let (schema, value) = (json!({"type": "object", "properties": {"a": {"type": "integer"}}}), json!({"a": 2}));
    for (source, expected) in [
        ("!!true", true),
        ("!!!true", false),
        ("! !true", true),
        ("--1 == 1", true),
        ("1 - -1 == 2", true),
        ("1 --1 == 2", true),
        ("1---1 == 0", true),
        ("self.a - - - 1 == 1", true),
        ("-self.a == -2 && !(!!false) == !!true", true),
        ("'a--b!!c' == 'a--' + 'b!!c'", true),
    ] {
        assert_eq!(given(source, &schema, &value), Ok(Given::Bool(expected)), "{source}");
    }
    let begun = std::time::Instant::now();
    let nested = format!("{}true{}", "!!(".repeat(45), ")".repeat(45));
    assert_eq!(given(&nested, &schema, &value), Ok(Given::Bool(true)));
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}
