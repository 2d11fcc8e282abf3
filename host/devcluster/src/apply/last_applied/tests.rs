//! What the real server does in the same cases (kubectl 1.32, Kubernetes 1.37).

use super::*;
use crate::catalog::Catalog;

fn live(annotation: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": {LAST_APPLIED[2]: annotation}},
        "data": {"a": "1", "b": "2"}})
}

fn config(a: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "labels": {"l": "<&>"}}, "data": {"a": a}})
}

/// An object that a client-side apply has made, and what the manager then applies to it.
fn apply(annotation: &str, manager: &str) -> Result<Value, Conflicts> {
    let catalog = Catalog::default();
    let resource = catalog.by_kind("v1", "ConfigMap").unwrap();
    let by = |manager| By { manager, api_version: "v1", subresource: "", now: "2026-01-01T00:00:00Z" };
    let mut managers = Managers::default();
    managers.update(&json!({}), &live(annotation), resource.root(), by("kubectl-client-side-apply"), &[]);
    managers.apply_as_kubectl(&live(annotation), &config("9"), resource.root(), by(manager), false, &[])
}

#[test]
fn kubectl_takes_over_what_it_applied_in_the_older_way() {
    let last =
        r#"{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"c"}}"#;
    let new = apply(last, "kubectl").unwrap();
    assert_eq!(new["data"], json!({"a": "9", "b": "2"}));
    let expected = "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"9\"},\"kind\":\"ConfigMap\",\"metadata\":{\"labels\":{\"l\":\
                    \"\\u003c\\u0026\\u003e\"},\"name\":\"c\"}}\n";
    assert_eq!(json::text(&new, LAST_APPLIED), expected);
}

#[test]
fn others_and_fields_that_somebody_changed_conflict() {
    let last = r#"{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"c"}}"#;
    let changed = last.replace("\"1\"", "\"0\"");
    for (annotation, manager) in [
        (last, "helm"),
        (changed.as_str(), "kubectl"),
        (r#"{"apiVersion":"v2","data":{"a":"1"}}"#, "kubectl"),
        (r#"{"apiVersion":"v1","data":{}}"#, "kubectl"),
        ("{", "kubectl"),
        ("", "kubectl"),
    ] {
        let Err(Conflicts(conflicts)) = apply(annotation, manager) else { panic!("{annotation} for {manager}") };
        assert_eq!(conflicts.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), [".data.a"], "{annotation}");
    }
}
