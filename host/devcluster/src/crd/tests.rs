//! Structural schemas as tables, and custom kinds through the registry.

use serde_json::{Value, json};

use super::structural;
use crate::{
    registry::{Edit, Options, Registry, Validation},
    status::Cause,
};

fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut causes = Vec::<Cause>::new();
    structural::validate(value, None, schema, "spec.x", &mut causes);
    causes.into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
}

#[test]
fn values_are_validated_with_the_messages_of_the_api() {
    for (schema, value, expected) in [
        (
            json!({"type": "integer", "maximum": 10}),
            json!(99),
            "spec.x: Invalid value: 99: spec.x in body should be less than or equal to 10",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer"}),
            json!("a"),
            "spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'",
        ),
        (json!({"type": "string", "maxLength": 1}), json!("bb"), "spec.x: Too long: may not be more than 1 byte"),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("x"),
            "spec.x: Invalid value: \"x\": spec.x in body must be of type date-time: \"x\"",
        ),
        (json!({"type": "object", "required": ["a"]}), json!({}), "spec.x.a: Required value"),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "a"]),
            "spec.x[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "string"}),
            json!(null),
            "spec.x: Invalid value: \"null\": spec.x in body must be of type string: \"null\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "integer", "not": {"enum": [3]}}),
            json!(3),
            "spec.x: Invalid value: 3: spec.x in body must not validate the schema (not)",
        ),
    ] {
        assert_eq!(problems(&schema, &value), [expected]);
    }
    for (schema, value) in [
        (json!({"type": "number"}), json!(3)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"x-kubernetes-int-or-string": true}), json!("25%")),
        (json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"b": 1})),
    ] {
        assert_eq!(problems(&schema, &value), Vec::<String>::new(), "{schema} {value}");
    }
}

#[test]
fn unknown_fields_are_pruned_and_defaults_put_in() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
        "size": {"type": "integer", "default": 3},
        "nul": {"type": "string", "default": "d"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"k": {"type": "object", "properties": {}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "default": "A"}}}},
    }}}});
    let mut value = json!({"apiVersion": "v1", "metadata": {"anything": 1}, "top": 1, "spec": {"nul": null, "no": 1,
        "free": {"any": {"thing": 1}, "k": {"gone": 1}}, "list": [{"b": 1}]}});
    let mut dropped = Vec::new();
    structural::prune(&mut value, &schema, true, "", &mut dropped);
    structural::default(&mut value, &schema);
    dropped.sort();
    assert_eq!(dropped, ["spec.free.k.gone", "spec.list[0].b", "spec.no", "top"]);
    assert_eq!(
        value["spec"],
        json!({"size": 3, "nul": "d", "free": {"any": {"thing": 1}, "k": {}}, "list": [{"a": "A"}]})
    );
    let mut empty = json!({});
    structural::default(&mut empty, &schema);
    assert_eq!(empty["spec"]["size"], 3);
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    for (schema, field) in [
        (json!({"type": "object", "properties": {"a": {}}}), "s.properties[a].type"),
        (json!({"type": "object", "properties": {"a": {"$ref": "#/x", "type": "object"}}}), "s.properties[a].$ref"),
        (json!({"type": "string"}), "s.type"),
        (json!({"type": "object", "properties": {"a": {"type": "array"}}}), "s.properties[a].items"),
        (json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}), "s.properties[a].pattern"),
        (json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}), "s.properties[a].default"),
    ] {
        let mut causes = Vec::new();
        structural::check_schema(&schema, "s", true, &mut causes);
        assert_eq!(causes.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), [field]);
    }
}

fn definition() -> Value {
    let schema = |extra: Value| {
        let mut spec = json!({"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "v": {"type": "string"}}}}}});
        for (key, value) in extra.as_object().unwrap() {
            spec["properties"][key] = value.clone();
        }
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": schema(json!({})),
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
        {"name": "v2", "served": true, "storage": false, "schema": schema(json!({"color": {"type": "string", "default": "red"}})),
            "subresources": {"status": {}}},
    ]}})
}

fn registry() -> Registry {
    let registry = Registry::open(None).unwrap();
    crate::controllers::bootstrap(&registry).unwrap();
    let resource = registry.catalog.by_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let made = registry.create(&resource, "", definition(), Options::of("test")).map_err(|e| e.message).unwrap();
    let conditions = &made.object.value["status"]["conditions"];
    assert_eq!((&conditions[0]["type"], &conditions[0]["status"]), (&json!("NamesAccepted"), &json!("True")));
    assert_eq!((&conditions[1]["type"], &conditions[1]["status"]), (&json!("Established"), &json!("True")));
    registry
}

#[test]
fn versions_share_one_storage_and_get_their_own_defaults() {
    let registry = registry();
    let v1 = registry.catalog.by_kind("example.com/v1", "Widget").unwrap();
    let v2 = registry.catalog.by_kind("example.com/v2", "Widget").unwrap();
    let object = json!({"metadata": {"name": "w"}, "spec": {"replicas": 1, "unknown": true}});
    registry.create(&v1, "default", object, Options::of("test")).map_err(|e| e.message).unwrap();
    let seen = registry.get(&v2, "default", "w").unwrap();
    assert_eq!(
        (&seen.value["apiVersion"], &seen.value["spec"]),
        (&json!("example.com/v2"), &json!({"replicas": 1, "color": "red"}))
    );
    let strict = Options { validation: Validation::Strict, ..Options::of("test") };
    let error = registry
        .create(&v1, "default", json!({"metadata": {"name": "x"}, "spec": {"unknown": 1}}), strict)
        .err()
        .unwrap();
    assert!(error.message.contains("strict decoding error: unknown field \"spec.unknown\""), "{}", error.message);
}

#[test]
fn status_and_scale_are_written_apart() {
    let registry = registry();
    let resource = registry.catalog.by_kind("example.com/v1", "Widget").unwrap();
    let object = json!({"metadata": {"name": "w"}, "spec": {"replicas": 1}, "status": {"replicas": 9}});
    let made = registry.create(&resource, "default", object, Options::of("test")).map_err(|e| e.message).unwrap();
    assert!(made.object.value.get("status").is_none(), "create ignores the status");
    let merge = |sub: &str, patch: Value| {
        registry
            .update(&resource, "default", "w", sub, &Edit::Merge(patch), Options::of("test"))
            .map_err(|e| e.message)
            .unwrap()
    };
    let both = json!({"spec": {"replicas": 2}, "status": {"replicas": 2}});
    let main = merge("", both.clone());
    assert_eq!((&main.object.value["spec"]["replicas"], main.object.value.get("status")), (&json!(2), None));
    assert_eq!(main.object.value["metadata"]["generation"], 2);
    let status = merge("status", json!({"spec": {"replicas": 7}, "status": {"replicas": 2}}));
    assert_eq!(
        (&status.object.value["spec"]["replicas"], &status.object.value["status"]["replicas"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(status.object.value["metadata"]["generation"], 2);
    let change = |scale: &mut Value| {
        assert_eq!(scale["status"]["replicas"], 2);
        scale["spec"]["replicas"] = json!(5);
        Ok(())
    };
    let scaled = registry
        .update_scale(&resource, "default", "w", &change, Options::of("scaler"))
        .map_err(|e| e.message)
        .unwrap();
    assert_eq!(scaled.object.value["spec"]["replicas"], 5);
    let revision = scaled.object.revision;
    assert_eq!(merge("", json!({"spec": {"replicas": 5}})).object.revision, revision, "no change, no new version");
}

#[test]
fn apply_knows_the_list_keys_of_the_manifest() {
    let registry = registry();
    let resource = registry.catalog.by_kind("example.com/v1", "Widget").unwrap();
    let apply = |manager: &'static str, items: Value| {
        let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"items": items}});
        registry.update(&resource, "default", "w", "", &Edit::Apply { config, force: false }, Options::of(manager))
    };
    apply("a", json!([{"name": "one", "v": "1"}])).map_err(|e| e.message).unwrap();
    let both = apply("b", json!([{"name": "two", "v": "2"}])).map_err(|e| e.message).unwrap();
    assert_eq!(both.object.value["spec"]["items"], json!([{"name": "one", "v": "1"}, {"name": "two", "v": "2"}]));
    let conflict = apply("b", json!([{"name": "one", "v": "9"}])).err().unwrap();
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.items[name=\"one\"].v");
}

#[test]
fn a_put_of_a_custom_object_needs_its_version() {
    let registry = registry();
    let resource = registry.catalog.by_kind("example.com/v1", "Widget").unwrap();
    let object = json!({"metadata": {"name": "w"}});
    registry.create(&resource, "default", object.clone(), Options::of("test")).map_err(|e| e.message).unwrap();
    let error = registry.update(&resource, "default", "w", "", &Edit::Put(object), Options::of("test")).err().unwrap();
    assert_eq!((error.code, error.details.causes[0].field.as_str()), (422, "metadata.resourceVersion"));
}

#[test]
fn bad_definitions_are_refused() {
    let registry = Registry::open(None).unwrap();
    let resource = registry.catalog.by_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let mut wrong_name = definition();
    wrong_name["metadata"]["name"] = json!("other.example.com");
    let mut two_storages = definition();
    two_storages["spec"]["versions"][1]["storage"] = json!(true);
    let mut no_schema = definition();
    no_schema["spec"]["versions"][0]["schema"] = Value::Null;
    for (definition, field) in [
        (wrong_name, "metadata.name"),
        (two_storages, "spec.versions"),
        (no_schema, "spec.versions[0].schema.openAPIV3Schema"),
    ] {
        let error = registry.create(&resource, "", definition, Options::of("test")).err().unwrap();
        assert_eq!(error.code, 422);
        assert!(error.details.causes.iter().any(|c| c.field == field), "{}", error.message);
    }
}
