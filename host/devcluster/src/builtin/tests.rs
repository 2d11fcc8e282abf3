//! Decoding of built-in objects.

use serde_json::{Value, json};

use super::*;
use crate::schema;

fn decode(kind: &str, value: Value) -> Result<(Value, Unknown), String> {
    let ty = schema::builtin().named(kind).unwrap();
    let mut value = value;
    let unknown = normalise(&mut value, ty, kind.rsplit('.').next().unwrap()).map_err(|e| e.message)?;
    Ok((value, unknown))
}

const POD: &str = "io.k8s.api.core.v1.Pod";

#[test]
fn empty_parts_are_dropped_as_typed_decoding_would() {
    let (value, unknown) = decode(
        POD,
        json!({"metadata": {"labels": {}, "annotations": null, "finalizers": []},
        "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {}, "bogus": {"a": 1}}}),
    )
    .unwrap();
    assert_eq!(value, json!({"metadata": {}, "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}}));
    assert_eq!(unknown, ["spec.bogus"]);
}

#[test]
fn values_of_the_wrong_type_are_refused_with_their_place() {
    for (value, field) in [
        (json!({"spec": {"hostNetwork": "yes"}}), ".spec.hostNetwork of type bool"),
        (json!({"spec": {"priority": "1"}}), ".spec.priority of type int32"),
        (json!({"spec": {"priority": 1.5}}), ".spec.priority of type int32"),
        (json!({"spec": {"containers": {}}}), ".spec.containers of type slice"),
        (json!({"spec": {"containers": [{"name": 1}]}}), ".spec.containers[0].name of type string"),
        (json!({"spec": []}), ".spec of type struct"),
    ] {
        let error = decode(POD, value).unwrap_err();
        assert!(error.ends_with(field), "{error}");
    }
}

#[test]
fn numbers_become_what_the_field_is() {
    let (value, _) =
        decode(POD, json!({"spec": {"priority": 3.0, "containers": [{"resources": {"limits": {"cpu": 1}}}]}})).unwrap();
    assert_eq!(value["spec"], json!({"priority": 3, "containers": [{"resources": {"limits": {"cpu": "1"}}}]}));
}

#[test]
fn missing_fields_and_unknown_choices_are_found() {
    let ty = schema::builtin().named(POD).unwrap();
    let value = json!({"spec": {"restartPolicy": "Sometimes", "containers": [{"volumeMounts": [{"name": "x"}]}]}});
    let mut fields = check_required(&value, ty).into_iter().map(|c| c.field).collect::<Vec<_>>();
    fields.sort();
    fields.retain(|f| f != "spec.restartPolicy");
    assert_eq!(fields, ["spec.containers[0].name", "spec.containers[0].volumeMounts[0].mountPath"]);
}

#[test]
fn volumes_that_are_not_there_are_found() {
    let pod = json!({"spec": {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/"}]}, {"name": "a", "image": ""}]}});
    let fields = validate("", "Pod", &pod).into_iter().map(|c| format!("{} {}", c.field, c.reason)).collect::<Vec<_>>();
    assert_eq!(
        fields,
        [
            "spec.containers[0].volumeMounts[0].name FieldValueNotFound",
            "spec.containers[1].name FieldValueDuplicate",
            "spec.containers[1].image FieldValueRequired",
        ]
    );
}
