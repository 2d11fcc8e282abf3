use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::package::PackageSource;

const MANIFEST: &str = "type: Application\nname: shop\nversion: 1.2.3\nstage: Preview\ndescriptions: {en: A shop}\n";
const LIMIT: u64 = 1024 * 1024;

fn package(files: &[(&str, &str)]) -> Arc<Package> {
    let source = files
        .iter()
        .fold(PackageSource::new().with("package.yaml", MANIFEST), |source, (path, text)| source.with(path, text));
    Arc::new(Package::load(source).unwrap())
}

const SETTINGS_YAML: &str = "
type: object
properties:
  replicas: {type: integer, default: 2, minimum: 1}
  ingress:
    type: object
    default: {}
    properties:
      host: {type: string, default: shop.local}
      tls: {type: boolean}
";
const VALUES_YAML: &str = "
x-extend: {schema: settings.yaml}
type: object
properties:
  internal:
    type: object
    default: {}
    additionalProperties: true
    properties:
      ready: {type: boolean, default: false}
      list: {type: array, items: {type: string}}
";

fn shop() -> Arc<Package> {
    package(&[("openapi/settings.yaml", SETTINGS_YAML), ("openapi/values.yaml", VALUES_YAML)])
}

fn values(settings: Value) -> Values {
    Values::new(shop(), settings, Patches::default(), None, LIMIT).unwrap()
}

fn set(pointer: &str, value: Value) -> ValuesChange {
    ValuesChange { pointer: pointer.to_owned(), value: Some(value) }
}

fn remove(pointer: &str) -> ValuesChange {
    ValuesChange { pointer: pointer.to_owned(), value: None }
}

fn refused(result: Result<Values, Vec<Problem>>) -> Vec<String> {
    result
        .map(|values| values.computed)
        .unwrap_err()
        .into_iter()
        .map(|problem| format!("{}: {problem}", problem.reason))
        .collect()
}

#[test]
fn layers_come_in_their_order() {
    let package = package(&[
        ("values.yaml", "replicas: 1\nstatic: {a: 1, b: 1}\n"),
        ("openapi/settings.yaml", SETTINGS_YAML),
        (
            "openapi/values.yaml",
            "type: object\nproperties:\n  static: {type: object, additionalProperties: true, properties: {b: {default: 2}, \
             c: {default: 3}}}\n  internal: {type: object, default: {x: 1}, properties: {x: {type: integer}, y: {default: 9}}}\n",
        ),
    ]);
    let values = Values::new(package, json!({"ingress": {"tls": true}}), Patches::default(), None, LIMIT).unwrap();
    let settings = json!({"replicas": 2, "ingress": {"host": "shop.local", "tls": true}});
    assert_eq!(*values.computed().settings, settings);
    let expected = json!({
        "replicas": 2, "ingress": {"host": "shop.local", "tls": true},
        "static": {"a": 1, "b": 1, "c": 3}, "internal": {"x": 1, "y": 9}
    });
    assert_eq!(*values.computed().values, expected);
    let changed = values.apply_changes("a", &[set("/internal/x", json!(5))]).unwrap();
    assert_eq!(changed.computed().values["internal"], json!({"x": 5, "y": 9}));
    assert_eq!(*changed.computed().settings, settings);
    assert_ne!(changed.computed().digest, values.computed().digest);
    assert_eq!(changed.computed().settings_digest, values.computed().settings_digest);
}

#[test]
fn defaults_go_only_into_objects_that_exist() {
    let package = package(&[(
        "openapi/values.yaml",
        "type: object\nproperties: {a: {type: object, properties: {b: {type: integer, default: 1}}}}\n",
    )]);
    let values = Values::new(package, Value::Null, Patches::default(), None, LIMIT).unwrap();
    assert_eq!(*values.computed().values, json!({}));
}

#[test]
fn bad_settings_are_refused_with_all_their_problems() {
    let settings = json!({"replica": 3, "ingress": {"host": 7}, "replicas": 0});
    let shown = refused(Values::new(shop(), settings, Patches::default(), None, LIMIT));
    assert_eq!(
        shown,
        [
            "BadType: spec.settings: ingress.host: must be of type string, not a number",
            "UnknownKey: spec.settings: replica: the key 'replica' is not known to openapi/settings.yaml",
            "SchemaViolated: spec.settings: replicas: the value is less than the minimum of 1",
        ]
    );
    let shown = refused(Values::new(shop(), json!([]), Patches::default(), None, LIMIT));
    assert_eq!(shown, ["BadType: spec.settings: must be an object, not a list"]);
    let shown = refused(Values::new(package(&[]), json!({"a": 1}), Patches::default(), None, LIMIT));
    assert_eq!(shown, ["SettingsWithoutSchema: spec.settings: the package has no schema of settings"]);
}

#[test]
fn a_bad_default_is_found_without_any_hook() {
    let package =
        package(&[("openapi/values.yaml", "type: object\nproperties: {a: {type: integer, default: text}}\n")]);
    let shown = refused(Values::new(package, Value::Null, Patches::default(), None, LIMIT));
    assert_eq!(shown, ["BadType: values: a: must be of type integer, not text"]);
}

#[test]
fn a_hook_cannot_change_a_setting() {
    let values = values(json!({}));
    for pointer in ["/replicas", "/ingress", "/ingress/host", "/ingress/new"] {
        let shown = refused(values.apply_changes("a", &[set("/internal/ok", json!(1)), set(pointer, json!(5))]));
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("SettingOverridden: values: "), "{shown:?}");
        assert!(shown[0].contains("is a setting of the user"), "{shown:?}");
    }
    assert!(refused(values.apply_changes("a", &[remove("/replicas")]))[0].starts_with("SettingOverridden"));
}

#[test]
fn a_setting_without_declaration_is_the_users_too() {
    let package = package(&[("openapi/settings.yaml", "type: object\nadditionalProperties: true\n")]);
    let values = Values::new(package, json!({"mine": 1}), Patches::default(), None, LIMIT).unwrap();
    assert!(refused(values.apply_changes("a", &[set("/mine", json!(2))]))[0].starts_with("SettingOverridden"));
    assert_eq!(values.apply_changes("a", &[set("/its", json!(2))]).unwrap().computed().values["its"], 2);
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let values = values(json!({}));
    let values = values.apply_changes("a", &[set("/internal/list", json!(["x"]))]).unwrap();
    for (change, reason) in [
        (set("", json!({})), "BadPointer"),
        (set("internal", json!({})), "BadPointer"),
        (set("/internal/~2", json!({})), "BadPointer"),
        (set("/internal/ready/b", json!(1)), "BadPath"),
        (remove("/internal/ready/b"), "BadPath"),
        (set("/internal/list/5", json!("y")), "BadPath"),
        (set("/internal/list/01", json!("y")), "BadPath"),
        (set("/internal/list/x/y", json!("y")), "BadPath"),
        (set("/internal/ready", json!("no")), "BadType"),
        (set("/other", json!(1)), "UnknownKey"),
        (set("/internal/big", json!("x".repeat(2_000_000))), "ValuesTooLarge"),
    ] {
        let shown = refused(values.apply_changes("a", std::slice::from_ref(&change)));
        assert!(shown[0].starts_with(reason), "{change:?}: {shown:?}");
    }
    let long = "/internal".repeat(100);
    assert!(refused(values.apply_changes("a", &[set(&long, json!(1))]))[0].starts_with("BadPointer"));
}

#[test]
fn changes_follow_the_contract() {
    let start = values(json!({}));
    let stored = |values: &Values| {
        let entries = values.patches().entries().iter();
        entries.map(|entry| (entry.change.pointer.clone(), entry.change.value.clone())).collect::<Vec<_>>()
    };
    let made = start.apply_changes("a", &[set("/internal/x/y/z", json!(1))]).unwrap();
    assert_eq!(made.computed().values["internal"]["x"], json!({"y": {"z": 1}}), "objects on the way are made");
    assert_eq!(stored(&made), [("/internal/x".to_owned(), Some(json!({"y": {"z": 1}})))]);
    let gone = made.apply_changes("a", &[remove("/internal/x/y/z")]).unwrap();
    assert_eq!(gone.computed().values["internal"]["x"], json!({"y": {}}), "they stay");
    let nothing = start.apply_changes("a", &[remove("/internal/none"), remove("/internal/none/at/all")]).unwrap();
    assert_eq!(nothing.computed(), start.computed(), "removing nothing is no error");
    assert_eq!(stored(&nothing), []);
}

#[test]
fn elements_of_lists_add_up_over_runs() {
    let list = |values: &Values| values.computed().values["internal"]["list"].clone();
    let start = values(json!({})).apply_changes("a", &[set("/internal/list", json!(["uno"]))]).unwrap();
    let two = start.apply_changes("b", &[set("/internal/list/-", json!("deux"))]).unwrap();
    let three = two
        .apply_changes("b", &[set("/internal/list/2", json!("tres")), set("/internal/list/0", json!("one"))])
        .unwrap();
    assert_eq!(list(&three), json!(["one", "deux", "tres"]), "two additions at the end are kept both");
    assert_eq!(three.patches().entries().len(), 1, "the list is stored as a whole");
    let less = three
        .apply_changes("b", &[remove("/internal/list/1"), remove("/internal/list/1"), remove("/internal/list/9")])
        .unwrap();
    assert_eq!(list(&less), json!(["one"]), "one index after the other");
    let again = compute(&shop(), &json!({}), less.patches(), None, LIMIT).unwrap();
    assert_eq!(again, *less.computed());
}

#[test]
fn nothing_of_a_refused_run_stays() {
    let before = values(json!({}));
    let changes = [set("/internal/a", json!(1)), set("/internal/ready", json!("no"))];
    assert!(before.apply_changes("a", &changes).is_err());
    assert_eq!(before.computed().values["internal"], json!({"ready": false}));
    assert!(before.patches().is_empty());
}

/// Rows of the compaction table, with pointers below `/internal`.
#[test]
fn stored_changes_are_compacted() {
    let apply = |changes: &[ValuesChange]| {
        let values = values(json!({})).apply_changes("a", changes).unwrap();
        let entries: Vec<(String, Option<Value>)> = values
            .patches()
            .entries()
            .iter()
            .map(|entry| (entry.change.pointer.clone(), entry.change.value.clone()))
            .collect();
        entries
    };
    let at = |pointer: &str, value: Value| (pointer.to_owned(), Some(value));
    let (k1, k2) = ("/internal/k1", "/internal/k2");
    assert_eq!(apply(&[set(k1, json!(1)), set(k1, json!(2))]), [at(k1, json!(2))]);
    assert_eq!(apply(&[set(k1, json!(1)), remove(k1)]), [], "nothing is there below, so nothing has to be removed");
    assert_eq!(apply(&[set(k1, json!(1)), remove(k1), set(k1, json!(3))]), [at(k1, json!(3))]);
    assert_eq!(apply(&[set(k1, json!(1)), set(k2, json!(2))]), [at(k1, json!(1)), at(k2, json!(2))]);
    assert_eq!(apply(&[set(k1, json!(1)), set(k2, json!(2)), remove(k1)]), [at(k2, json!(2))]);
    let child = "/internal/k1/c";
    let sibling = "/internal/k1x";
    assert_eq!(
        apply(&[set(k1, json!({})), set(child, json!(1)), set(sibling, json!(5)), set(k1, json!({}))]),
        [at(sibling, json!(5)), at(k1, json!({}))]
    );
    assert_eq!(
        apply(&[set(k1, json!({})), set(child, json!(1)), remove(k1), set(k1, json!({})), set(child, json!(2))]),
        [at(k1, json!({})), at(child, json!(2))]
    );
    let ready = "/internal/ready";
    assert_eq!(apply(&[remove(ready)]), [(ready.to_owned(), None)], "what a layer below has must be removed each time");
}

#[test]
fn changes_belong_to_hooks() {
    let values = values(json!({}));
    let values = values.apply_changes("a", &[set("/internal/a", json!(1)), set("/internal/both", json!("a"))]).unwrap();
    let values = values.apply_changes("b", &[set("/internal/b", json!(2)), set("/internal/both", json!("b"))]).unwrap();
    assert_eq!(values.computed().values["internal"], json!({"ready": false, "a": 1, "b": 2, "both": "b"}));
    let left = values.patches().without("b");
    let again = compute(&shop(), &json!({}), &left, None, LIMIT).unwrap();
    assert_eq!(again.values["internal"], json!({"ready": false, "a": 1}));
    assert_eq!(values.patches().only_of(&BTreeSet::from(["a".to_owned()])), left);
}

#[test]
fn changes_survive_new_settings() {
    let before = values(json!({})).apply_changes("a", &[set("/internal/a", json!({"b": 1}))]).unwrap();
    let after = before.with_settings(json!({"replicas": 5})).unwrap();
    assert_eq!(after.computed().values["internal"]["a"]["b"], 1);
    assert_eq!(after.computed().values["replicas"], 5);
    assert!(before.with_settings(json!({"replicas": "x"})).is_err());
}

#[test]
fn setting_what_is_already_so_changes_nothing() {
    let before = values(json!({}));
    let after = before.apply_changes("a", &[set("/internal/ready", json!(false))]).unwrap();
    assert_eq!(after.computed(), before.computed());
    assert_eq!(after.patches().entries().len(), 1, "it is kept, though: the default may change");
}

#[test]
fn patches_are_stored_as_json() {
    let values =
        values(json!({})).apply_changes("a", &[set("/internal/a", json!(1)), remove("/internal/ready")]).unwrap();
    let text = serde_json::to_string(values.patches()).unwrap();
    let back: Patches = serde_json::from_str(&text).unwrap();
    assert_eq!(&back, values.patches(), "{text}");
    let null = values.apply_changes("a", &[set("/internal/a", json!(null))]).unwrap();
    assert_eq!(null.computed().values["internal"]["a"], Value::Null);
    let text = serde_json::to_string(null.patches()).unwrap();
    let back: Patches = serde_json::from_str(&text).unwrap();
    assert_eq!(&back, null.patches(), "setting null is no removal: {text}");
}

#[test]
fn what_hooks_set_before_is_restored_as_far_as_it_fits() {
    let color = format!("{VALUES_YAML}  color: {{type: string}}\n");
    let first = package(&[("openapi/settings.yaml", SETTINGS_YAML), ("openapi/values.yaml", &color)]);
    let before = Values::new(Arc::clone(&first), json!({}), Patches::default(), None, LIMIT)
        .and_then(|it| it.apply_changes("a", &[set("/internal/list", json!(["x"])), set("/internal/a", json!(1))]))
        .and_then(|it| it.apply_changes("b", &[set("/internal/b", json!(2)), set("/color", json!("red"))]))
        .and_then(|it| it.apply_changes("c", &[set("/internal/c", json!(3))]))
        .unwrap();
    let (same, unfit) = Values::restored(Arc::clone(&first), json!({}), before.patches(), LIMIT).unwrap();
    assert_eq!((same.computed(), same.patches()), (before.computed(), before.patches()));
    assert!(unfit.is_empty(), "{unfit:?}");

    // Another version: the list is of numbers, and the color is a setting of the user.
    let settings = format!("{SETTINGS_YAML}  color: {{type: string, default: blue}}\n");
    let schema = VALUES_YAML.replace("items: {type: string}", "items: {type: integer}");
    let next = package(&[("openapi/settings.yaml", &settings), ("openapi/values.yaml", &schema)]);
    let (next, unfit) = Values::restored(next, json!({}), before.patches(), LIMIT).unwrap();
    assert_eq!(next.computed().values["internal"], json!({"ready": false, "b": 2, "c": 3}));
    assert_eq!(next.computed().values["color"], json!("blue"));
    let told: Vec<&str> = unfit.iter().map(|one| one.hook.as_str()).collect();
    assert_eq!(told, ["b", "a"], "{unfit:?}");
    assert_eq!(unfit[0].problems[0].reason, "SettingOverridden");

    let bad = Values::restored(Arc::clone(&first), json!({"replicas": 0}), before.patches(), LIMIT);
    assert!(bad.is_err(), "settings that are bad stay bad");
    let (small, unfit) = Values::restored(first, json!({}), before.patches(), 100).unwrap();
    assert!(!unfit.is_empty() && small.computed().values.to_string().len() <= 100, "{unfit:?}");
}

#[test]
fn kinds_of_orphans_are_read() {
    let values = json!({"orphanResources": [{"kind": "Job", "version": "batch/v1"}, {"kind": "Pod", "version": "v1"}]});
    let job = OrphanKind { kind: "Job".to_owned(), group: Some("batch".to_owned()), version: "v1".to_owned() };
    let pod = OrphanKind { kind: "Pod".to_owned(), group: None, version: "v1".to_owned() };
    assert_eq!(orphan_kinds(&values).unwrap(), [job, pod]);
    assert_eq!(orphan_kinds(&json!({})).unwrap(), []);
    for (bad, path) in [
        (json!("Job"), "orphanResources"),
        (json!(["Job"]), "orphanResources[0]"),
        (json!([{"kind": "Job"}]), "orphanResources[0]"),
        (json!([{"kind": "", "version": "v1"}]), "orphanResources[0]"),
        (json!([{"kind": "Job", "version": "/v1"}]), "orphanResources[0]"),
        (json!([{"kind": "Job", "version": "v1", "group": "x"}]), "orphanResources[0]"),
        (json!(vec![json!({"kind": "Job", "version": "v1"}); 101]), "orphanResources"),
    ] {
        let problem = orphan_kinds(&json!({"orphanResources": bad})).unwrap_err();
        assert_eq!((problem.reason.as_str(), problem.path.as_str()), ("BadOrphanResources", path));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]|a/b|~", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_change() -> impl Strategy<Value = ValuesChange> {
    let pointer =
        prop::collection::vec("[a-c]|a~1b|~0|[01-]", 1..4).prop_map(|path| format!("/internal/{}", path.join("/")));
    (pointer, prop::option::of(any_value())).prop_map(|(pointer, value)| ValuesChange { pointer, value })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_was_set_is_read_back(change in any_change()) {
        let before = values(json!({}));
        if let Ok(after) = before.apply_changes("a", std::slice::from_ref(&change)) {
            prop_assert_eq!(after.computed().values.pointer(&change.pointer), change.value.as_ref());
            let again = after.apply_changes("b", std::slice::from_ref(&change)).unwrap();
            prop_assert_eq!(again.computed(), after.computed(), "doing it again changes nothing");
        }
    }

    /// The stored changes give the same document as the changes one after the other.
    #[test]
    fn stored_changes_are_worth_the_sequence(runs in prop::collection::vec((0..3_u8, prop::collection::vec(any_change(), 0..4)), 0..8)) {
        let package = shop();
        let mut now = values(json!({}));
        for (hook, changes) in runs {
            if let Ok(next) = now.apply_changes(&hook.to_string(), &changes) {
                now = next;
            }
            let again = compute(&package, &json!({}), now.patches(), None, LIMIT).unwrap();
            prop_assert_eq!(&*again.values, &*now.computed().values);
        }
    }
}
