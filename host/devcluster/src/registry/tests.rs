//! Creation, update and deletion of built-in objects.

use serde_json::{Value, json};

use super::*;
use crate::registry::Propagation;

fn registry() -> Registry {
    let registry = Registry::open(None).unwrap();
    crate::controllers::bootstrap(&registry).unwrap();
    registry
}

fn try_create(registry: &Registry, kind: &str, object: Value) -> Result<Outcome, ApiError> {
    let version = json::text(&object, &["apiVersion"]).to_owned();
    let resource = registry.catalog.by_kind(if version.is_empty() { "v1" } else { &version }, kind).unwrap();
    registry.create(&resource, if resource.namespaced { "default" } else { "" }, object, Options::of("test"))
}

fn create(registry: &Registry, kind: &str, object: Value) -> Value {
    try_create(registry, kind, object).map_err(|e| e.to_value().to_string()).unwrap().object.value.clone()
}

fn edit(registry: &Registry, kind: &str, name: &str, edit: &Edit<'_>) -> Result<Outcome, ApiError> {
    let version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    let resource = registry.catalog.by_kind(version, kind).unwrap();
    registry.update(&resource, "default", name, "", edit, Options::of("test"))
}

fn merge(registry: &Registry, kind: &str, name: &str, patch: Value) -> Result<Outcome, ApiError> {
    edit(registry, kind, name, &Edit::Merge(patch))
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn generated_names_are_short_enough() {
    let registry = registry();
    let made = create(&registry, "ConfigMap", json!({"metadata": {"generateName": format!("{}-", "x".repeat(80))}}));
    let name = json::text(&made, &["metadata", "name"]);
    assert_eq!(name.len(), 63);
    assert_eq!(try_create(&registry, "ConfigMap", json!({"metadata": {}})).err().unwrap().code, 422);
}

#[test]
fn what_does_not_fit_the_address_is_refused() {
    let registry = registry();
    for (object, code) in [
        (json!({"metadata": {"name": "x", "namespace": "other"}}), 400),
        (json!({"kind": "Secret", "metadata": {"name": "x"}}), 400),
        (json!({"metadata": {"name": "X_y"}}), 422),
        (json!({"metadata": {"name": "x", "labels": {"-bad": "v"}}}), 422),
        (json!({"metadata": {"name": "x", "labels": {"a": "not ok"}}}), 422),
        (json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(300_000)}}}), 422),
        (json!({"metadata": {"name": "x", "resourceVersion": "5"}}), 500),
        (json!({"metadata": "x"}), 400),
        (json!({"metadata": {"name": 5}}), 400),
        (json!({"metadata": {"name": "x"}, "data": {"a": 1}}), 400),
        (json!({"metadata": {"name": "x"}, "data": {"a": "x".repeat(1_100_000)}}), 422),
        (json!([1]), 400),
    ] {
        let error = try_create(&registry, "ConfigMap", object.clone()).err().map(|e| e.code);
        assert_eq!(error, Some(code), "{}", object.to_string().chars().take(100).collect::<String>());
    }
}

#[test]
fn defaults_are_put_in_and_generation_counts_changes_of_the_spec() {
    let registry = registry();
    let made = create(&registry, "Deployment", deployment());
    assert_eq!(made["spec"]["replicas"], 1);
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["imagePullPolicy"], &container["terminationMessagePolicy"]),
        (&json!("Always"), &json!("File"))
    );
    assert_eq!(made["metadata"]["generation"], 1);
    let labelled = merge(&registry, "Deployment", "d", json!({"metadata": {"labels": {"x": "y"}}})).ok().unwrap();
    assert_eq!(labelled.object.value["metadata"]["generation"], 1);
    let scaled = merge(&registry, "Deployment", "d", json!({"spec": {"replicas": 3}})).ok().unwrap();
    assert_eq!(scaled.object.value["metadata"]["generation"], 2);
    let again = merge(&registry, "Deployment", "d", json!({"spec": {"replicas": 3}})).ok().unwrap();
    assert_eq!(again.object.revision, scaled.object.revision);
    let error =
        merge(&registry, "Deployment", "d", json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}})).err().unwrap();
    assert!(
        error.details.causes.iter().any(|c| c.field == "spec.selector" && c.message.ends_with("field is immutable")),
        "{}",
        error.message
    );
}

#[test]
fn a_repeated_apply_is_no_write() {
    let registry = registry();
    let config = || {
        let mut config = deployment();
        config["kind"] = json!("Deployment");
        Edit::Apply { config, force: false }
    };
    let first = edit(&registry, "Deployment", "d", &config()).ok().unwrap();
    assert!(first.created);
    let fields = first.object.value["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!((fields.len(), &fields[0]["operation"]), (1, &json!("Apply")));
    let second = edit(&registry, "Deployment", "d", &config()).ok().unwrap();
    assert_eq!(second.object.revision, first.object.revision);
    let invalid = Edit::Apply {
        config: json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "managedFields": []}}),
        force: false,
    };
    assert_eq!(
        edit(&registry, "Deployment", "d", &invalid).err().unwrap().message,
        "metadata.managedFields must be nil"
    );
}

#[test]
fn stale_versions_and_foreign_uids_conflict() {
    let registry = registry();
    let made = create(&registry, "ConfigMap", map("x"));
    merge(&registry, "ConfigMap", "x", json!({"data": {"a": "2"}})).ok().unwrap();
    let version = &made["metadata"]["resourceVersion"];
    let error =
        merge(&registry, "ConfigMap", "x", json!({"metadata": {"resourceVersion": version}, "data": {"a": "3"}}))
            .err()
            .unwrap();
    assert_eq!((error.code, error.reason.as_ref()), (409, "Conflict"));
    let error = merge(&registry, "ConfigMap", "x", json!({"metadata": {"uid": "other"}})).err().unwrap();
    assert_eq!(error.code, 409);
    let error = merge(&registry, "ConfigMap", "x", json!({"metadata": {"name": "y"}})).err().unwrap();
    assert_eq!(error.code, 400);
}

#[test]
fn finalizers_hold_an_object_and_no_new_ones_come() {
    let registry = registry();
    let resource = registry.catalog.by_kind("v1", "ConfigMap").unwrap();
    let mut object = map("x");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    create(&registry, "ConfigMap", object);
    let deleted = registry.delete(&resource, "default", "x", &DeleteOptions::default()).ok().unwrap();
    assert!(!deleted.removed && deleted.object.value["metadata"]["deletionTimestamp"].is_string());
    let revision = deleted.object.revision;
    let again = registry.delete(&resource, "default", "x", &DeleteOptions::default()).ok().unwrap();
    assert_eq!(again.object.revision, revision, "a second deletion changes nothing");
    let error =
        merge(&registry, "ConfigMap", "x", json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}}))
            .err()
            .unwrap();
    assert!(
        error.message.contains("no new finalizers can be added if the object is being deleted"),
        "{}",
        error.message
    );
    let error = try_create(&registry, "ConfigMap", map("x")).err().unwrap();
    assert!(error.code == 409 && error.message.starts_with("object is being deleted"), "{}", error.message);
    let kept =
        merge(&registry, "ConfigMap", "x", json!({"metadata": {"finalizers": ["example.com/b"]}, "data": {"a": "9"}}))
            .ok()
            .unwrap();
    assert!(!kept.removed);
    let gone = merge(&registry, "ConfigMap", "x", json!({"metadata": {"finalizers": null}})).ok().unwrap();
    assert!(gone.removed);
    assert_eq!(registry.get(&resource, "default", "x").err().unwrap().code, 404);
    // One DELETED, not a MODIFIED and a DELETED.
    let (changes, _) = registry.store.changes(&resource.table, gone.object.revision, 10).unwrap();
    assert_eq!(changes.iter().map(|c| c.deleted).collect::<Vec<_>>(), [true]);
}

#[test]
fn deletion_honours_preconditions_and_propagation() {
    let registry = registry();
    let resource = registry.catalog.by_kind("v1", "ConfigMap").unwrap();
    create(&registry, "ConfigMap", map("x"));
    for options in [
        DeleteOptions { uid: Some("other".to_owned()), ..DeleteOptions::default() },
        DeleteOptions { resource_version: Some("1".to_owned()), ..DeleteOptions::default() },
    ] {
        assert_eq!(registry.delete(&resource, "default", "x", &options).err().unwrap().code, 409);
    }
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    assert!(registry.delete(&resource, "default", "x", &dry).ok().unwrap().removed);
    let foreground = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    let marked = registry.delete(&resource, "default", "x", &foreground).ok().unwrap();
    assert_eq!(marked.object.value["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    assert_eq!(DeleteOptions::parse(&both).unwrap_err().code, 422);
    assert_eq!(DeleteOptions::parse(&json!({"propagationPolicy": "Sideways"})).unwrap_err().code, 422);
}

#[test]
fn a_dry_run_writes_nothing() {
    let registry = registry();
    let before = registry.store.revision();
    let resource = registry.catalog.by_kind("v1", "ConfigMap").unwrap();
    let options = Options { dry_run: true, ..Options::of("test") };
    let made = registry.create(&resource, "default", map("x"), options).ok().unwrap();
    assert!(made.object.value["metadata"]["uid"].is_string());
    assert_eq!(registry.store.revision(), before);
}

#[test]
fn the_data_of_secrets_and_services_is_completed() {
    let registry = registry();
    let secret = create(&registry, "Secret", json!({"metadata": {"name": "s"}, "stringData": {"p": "hello"}}));
    assert_eq!(
        (&secret["data"]["p"], &secret["type"], secret.get("stringData")),
        (&json!("aGVsbG8="), &json!("Opaque"), None)
    );
    let error = try_create(&registry, "Secret", json!({"metadata": {"name": "t"}, "data": {"p": "not base64!"}}))
        .err()
        .unwrap();
    assert!(error.code == 400 && !error.message.contains("not base64!"), "{}", error.message);
    let service = create(&registry, "Service", json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}));
    assert_eq!(
        (&service["spec"]["ports"][0]["targetPort"], &service["spec"]["type"]),
        (&json!(80), &json!("ClusterIP"))
    );
    let address = service["spec"]["clusterIP"].clone();
    let put = Edit::Put(json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}}));
    assert_eq!(edit(&registry, "Service", "s", &put).ok().unwrap().object.value["spec"]["clusterIP"], address);
    let error = merge(&registry, "Service", "s", json!({"spec": {"clusterIP": "10.1.1.1"}})).err().unwrap();
    assert_eq!(error.code, 422);
    let node_port = |name: &str| {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        create(&registry, "Service", json!({"metadata": {"name": name}, "spec": spec}))["spec"]["ports"][0]["nodePort"]
            .as_i64()
    };
    let ports = [node_port("n1"), node_port("n2")];
    assert!(ports[0] != ports[1] && ports.iter().all(|p| p.is_some_and(|p| (30000..32768).contains(&p))), "{ports:?}");
    let headless = create(&registry, "Service", json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}));
    assert_eq!(headless["spec"]["clusterIP"], "None");
}

#[test]
fn two_shapes_of_one_kind_share_a_storage() {
    let registry = registry();
    let event = json!({"apiVersion": "events.k8s.io/v1", "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"},
        "note": "hello", "reason": "R", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reportingController": "c", "reportingInstance": "i"});
    create(&registry, "Event", event);
    let core = registry.catalog.by_kind("v1", "Event").unwrap();
    let seen = registry.get(&core, "default", "e").unwrap();
    assert_eq!((&seen.value["message"], &seen.value["involvedObject"]["name"]), (&json!("hello"), &json!("p")));
    let scaler = json!({"apiVersion": "autoscaling/v1", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}});
    create(&registry, "HorizontalPodAutoscaler", scaler);
    let v2 = registry.catalog.by_kind("autoscaling/v2", "HorizontalPodAutoscaler").unwrap();
    let seen = registry.get(&v2, "default", "h").unwrap();
    assert_eq!(seen.value["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let v1 = registry.catalog.by_kind("autoscaling/v1", "HorizontalPodAutoscaler").unwrap();
    assert_eq!(registry.get(&v1, "default", "h").unwrap().value["spec"]["targetCPUUtilizationPercentage"], 50);
}

#[test]
fn writers_that_race_both_succeed_when_they_name_no_version() {
    let registry = std::sync::Arc::new(registry());
    create(&registry, "ConfigMap", json!({"metadata": {"name": "x"}}));
    let threads = (0..4).map(|thread| {
        let registry = std::sync::Arc::clone(&registry);
        std::thread::spawn(move || {
            for n in 0..25 {
                merge(&registry, "ConfigMap", "x", json!({"data": {format!("k{thread}-{n}"): "v"}}))
                    .map_err(|e| e.message)
                    .unwrap();
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|t| t.join().unwrap());
    let resource = registry.catalog.by_kind("v1", "ConfigMap").unwrap();
    let data = registry.get(&resource, "default", "x").unwrap().value["data"].as_object().unwrap().len();
    assert_eq!(data, 100);
}
