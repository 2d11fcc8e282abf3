#![allow(clippy::needless_pass_by_value, reason = "a test that passes `json!` by value reads better")]

use serde_json::{Value, json};

use super::adopt_fields;

fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn object(entries: Vec<Value>) -> Value {
    json!({"metadata": {"name": "c", "resourceVersion": "7", "managedFields": entries}})
}

#[test]
fn entries_of_the_managers_become_one_of_ours() {
    let status =
        json!({"manager": "helm", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}});
    let live = object(vec![
        entry("helm", "Apply", "2026-01-01T00:00:00Z", json!({"f:data": {"f:a": {}, "f:b": {}}})),
        entry("helm", "Update", "2025-01-01T00:00:00Z", json!({"f:data": {".": {}, "f:c": {}}})),
        entry("barbless", "Apply", "2026-02-01T00:00:00Z", json!({"f:data": {"f:d": {}}})),
        entry("kubectl-edit", "Update", "2026-03-01T00:00:00Z", json!({"f:data": {"f:e": {}}})),
        status.clone(),
    ]);
    let patch = adopt_fields(&live, &["helm"], "barbless").expect("a patch");
    let united = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}, "f:d": {}}});
    assert_eq!(
        patch,
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": [
                entry("barbless", "Apply", "2026-02-01T00:00:00Z", united),
                entry("kubectl-edit", "Update", "2026-03-01T00:00:00Z", json!({"f:data": {"f:e": {}}})),
                status,
            ]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        ])
    );
    assert_eq!(adopt_fields(&live, &["kubectl-client-side-apply"], "barbless"), None);
}

#[test]
fn nothing_is_made_of_nonsense() {
    for live in [
        json!(null),
        json!({"metadata": {"resourceVersion": "7"}}),
        json!({"metadata": {"managedFields": [entry("helm", "Apply", "", json!({}))]}}),
        object(vec![json!(1), json!({"manager": 3})]),
        object(vec![entry("helm", "Steal", "", json!({}))]),
        object(vec![json!({"manager": "helm", "operation": "Update", "subresource": "status"})]),
    ] {
        assert_eq!(adopt_fields(&live, &["helm"], "barbless"), None, "{live}");
    }
    let odd = object(vec![
        entry("helm", "Apply", "", json!({"f:a": 1, "f:b": {"f:c": []}})),
        json!({"manager": "helm", "operation": "Apply"}),
    ]);
    let patch = adopt_fields(&odd, &["helm"], "barbless").expect("a patch");
    assert_eq!(patch[0]["value"][0]["fieldsV1"], json!({"f:a": {}, "f:b": {"f:c": {}}}));
}
