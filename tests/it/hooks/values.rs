//! Rows V01-V16: what hooks do to the values. Changes are typed (`set`, `remove`), so rows about the text of a JSON patch
//! show the nearest change; there is one mode, in which removing what is not there is no error.

use std::sync::Arc;

use barbless_domain::package::{Package, PackageSource, Problem};
use barbless_domain::run::ValuesChange;
use barbless_domain::values::{Patches, Values, compute};
use serde_json::{Value, json};

const BYTES: u64 = 1 << 20;

fn package() -> Arc<Package> {
    let source = PackageSource::new()
        .with(
            "package.yaml",
            "type: Application\nname: rows\nversion: 1.0.0\nstage: Preview\ndescriptions: {en: Rows}\n",
        )
        .with("values.yaml", "static: s\n")
        .with(
            "openapi/settings.yaml",
            "type: object\nproperties:\n  xxx: {type: string}\n  replicas:\n    type: integer\n    default: 1\n    \
             x-deckhouse-validations:\n    - {expression: 'self >= oldSelf', message: replicas cannot shrink}\n    \
             - {expression: 'self < 10', message: too many}\n",
        )
        .with(
            "openapi/values.yaml",
            "x-extend: {schema: settings.yaml}\ntype: object\nproperties:\n  static: {type: string}\n  internal:\n    \
             type: object\n    default: {}\n    additionalProperties: true\n    properties:\n      \
             fooBar: {type: string, default: baz}\n      number: {type: integer}\n",
        );
    Arc::new(Package::load(source).unwrap())
}

fn values(settings: Value) -> Values {
    Values::new(package(), settings, Patches::default(), None, BYTES).unwrap()
}

fn set(pointer: &str, value: impl Into<Value>) -> ValuesChange {
    ValuesChange { pointer: format!("/internal{pointer}"), value: Some(value.into()) }
}

fn remove(pointer: &str) -> ValuesChange {
    ValuesChange { pointer: format!("/internal{pointer}"), value: None }
}

fn after(changes: &[ValuesChange]) -> Values {
    values(json!({})).apply_changes("a", changes).unwrap()
}

/// What hooks have made of the values, without what was there before.
fn made(changes: &[ValuesChange]) -> Value {
    let mut internal = after(changes).computed().values["internal"].clone();
    internal.as_object_mut().unwrap().remove("fooBar");
    internal
}

/// The changes that are kept, as `pointer=value` or `-pointer`.
fn kept(changes: &[ValuesChange]) -> Vec<String> {
    let values = after(changes);
    let shown = values.patches().entries().iter().map(|entry| {
        let pointer = entry.change.pointer.trim_start_matches("/internal");
        entry.change.value.as_ref().map_or_else(|| format!("-{pointer}"), |value| format!("{pointer}={value}"))
    });
    shown.collect()
}

fn reason(result: Result<Values, Vec<Problem>>) -> String {
    result.map(|_| ()).unwrap_err().first().unwrap().reason.clone()
}

#[test]
fn v01_all_changes_of_a_run_are_applied_in_order() {
    let changes = [set("/a", 1), set("/b", 2), remove("/a"), set("/c", 3)];
    assert_eq!(made(&changes), json!({"b": 2, "c": 3}));
}

#[test]
fn v02_v03_v07_removing_what_is_not_there_is_no_error() {
    assert_eq!(made(&[set("/k", "v")]), json!({"k": "v"}));
    assert_eq!(after(&[remove("/none"), remove("/none/at/all")]).computed(), values(json!({})).computed());
    let changes = [set("/k", 1), remove("/k"), set("/k", 2), remove("/none/k"), set("/k", 3)];
    assert_eq!(made(&changes), json!({"k": 3}));
    let nowhere = ValuesChange { pointer: String::new(), value: Some(json!(1)) };
    assert_eq!(reason(values(json!({})).apply_changes("a", &[nowhere])), "BadPointer");
}

#[test]
fn v04_v06_changes_are_compacted() {
    let rows: [(&[ValuesChange], &[&str]); 8] = [
        (&[remove("/k"), set("/k", 1)], &["/k=1"]),
        // There: remove. Here nothing: no layer below has it, so nothing has to be removed.
        (&[set("/k", 1), remove("/k")], &[]),
        (&[set("/k", 1), remove("/k"), set("/k", 2)], &["/k=2"]),
        (&[set("/k1", 1), set("/k2", 2)], &["/k1=1", "/k2=2"]),
        (&[set("/k1", 1), set("/k2", 2), remove("/k1")], &["/k2=2"]),
        (&[set("/o", json!({})), set("/o/c", 1), remove("/o")], &[]),
        (&[set("/o/c", 1), remove("/o"), set("/o", json!({})), set("/o/c", 2)], &["/o={}", "/o/c=2"]),
        (&[set("/o/a", 1), set("/o/b/c", 2), set("/o", json!({}))], &["/o={}"]),
    ];
    for (changes, expected) in rows {
        assert_eq!(kept(changes), expected, "{changes:?}");
    }
    assert_eq!(kept(&[remove("/fooBar")]), ["-/fooBar"], "what a default puts there is removed each time");
}

#[test]
fn v05_what_is_kept_gives_the_same_document() {
    let rows: [&[ValuesChange]; 4] = [
        &[set("/test_object", 1), set("/test_ob", 2), remove("/test_ob")],
        &[set("/test_ob", json!({"a": 1})), set("/test_object", json!({"a": 2})), set("/test_ob", json!({}))],
        &[set("/o/p/q", 1), remove("/o/p"), set("/o/r", 2)],
        &[remove("/fooBar"), set("/fooBar", "again"), set("/o", json!({"x": {"y": 1}})), remove("/o/x/y")],
    ];
    for changes in rows {
        let values = after(changes);
        let again = compute(&package(), &json!({}), values.patches(), None, BYTES).unwrap();
        assert_eq!(&again, values.computed(), "{changes:?}");
    }
}

#[test]
fn v08_v11_elements_of_lists_are_counted_one_change_after_the_other() {
    let start = set("/list", json!(["uno", "deux", "tres", "four"]));
    let changes = [start, remove("/list/1"), remove("/list/2"), set("/list/-", "five")];
    assert_eq!(made(&changes), json!({"list": ["uno", "tres", "five"]}));
}

#[test]
fn v09_v10_setting_replaces_and_makes_the_way() {
    assert_eq!(made(&[set("/new", 1), set("/new", 2)]), json!({"new": 2}));
    // There: an error for want of parents.
    assert_eq!(made(&[set("/a/b/c", 1)]), json!({"a": {"b": {"c": 1}}}));
}

#[test]
fn v12_only_what_the_schema_has_can_be_set() {
    for pointer in ["/other", "/rowsEnabled"] {
        let change = ValuesChange { pointer: pointer.to_owned(), value: Some(json!(true)) };
        assert_eq!(reason(values(json!({})).apply_changes("a", &[change])), "UnknownKey", "{pointer}");
    }
}

#[test]
fn v13_additions_of_several_runs_add_up() {
    let list = |values: &Values| values.computed().values["internal"]["m"]["list"].clone();
    let first = values(json!({})).apply_changes("a", &[set("/m/list", json!([]))]).unwrap();
    let second = first.apply_changes("a", &[set("/m/list/-", 1)]).unwrap();
    assert_eq!(list(&second.apply_changes("b", &[set("/m/list/-", 2)]).unwrap()), json!([1, 2]));
}

#[test]
fn v14_v16_the_whole_document_is_checked_and_rules_compare_with_what_was() {
    assert_eq!(reason(values(json!({})).apply_changes("a", &[set("/number", "one")])), "BadType");
    // The first time there is nothing to compare with.
    let three = values(json!({"replicas": 3}));
    assert!(three.with_settings(json!({"replicas": 4})).is_ok());
    let message = |settings: Value| three.with_settings(settings).map(|_| ()).unwrap_err()[0].to_string();
    assert!(message(json!({"replicas": 2})).contains("replicas cannot shrink"));
    assert!(message(json!({"replicas": 12})).contains("too many"));
    let without = "type: object\nproperties:\n  a: {type: integer, x-deckhouse-validations: [{message: none}]}\n";
    let source = PackageSource::new()
        .with("package.yaml", "type: Application\nname: r\nversion: 1.0.0\nstage: Preview\ndescriptions: {en: R}\n")
        .with("openapi/settings.yaml", without);
    assert!(Package::load(source).is_err(), "a rule without an expression");
}

#[test]
fn v15_layers_and_defaults() {
    let values = values(json!({"xxx": "yyy"})).apply_changes("a", &[set("/high", true)]).unwrap();
    let expected = json!({"static": "s", "xxx": "yyy", "replicas": 1, "internal": {"fooBar": "baz", "high": true}});
    assert_eq!(*values.computed().values, expected);
}
