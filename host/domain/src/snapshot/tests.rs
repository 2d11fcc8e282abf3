use serde_json::json;

use super::*;
use crate::fixtures::objects;

fn binding(filter: Projection) -> KubernetesBinding {
    KubernetesBinding { kind: "Pod".into(), filter, ..objects("pods") }
}

fn pod(name: &str, version: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "demo", "name": name, "resourceVersion": version, "managedFields": [{"manager": version}]},
        "status": {"phase": phase},
    })
}

fn projected(filter: &Projection, object: &Value) -> Projected {
    let (namespace, name) = key_of(object);
    Projected { namespace, name, projection: project(filter, object).unwrap(), object: None }
}

fn events(changes: &[Change]) -> Vec<(WatchEventType, &str)> {
    changes.iter().map(|change| (change.event, change.name.as_str())).collect()
}

#[test]
fn before_the_first_list_there_is_no_snapshot_rather_than_an_empty_one() {
    let mut store = SnapshotStore::new(&binding(Projection::Whole));
    assert!(matches!(store.view(), SnapshotState::NotSynchronised(_)));
    assert!(store.replace(vec![]).is_empty());
    assert!(matches!(store.view(), SnapshotState::Ready(snapshot) if snapshot.items.is_empty()));
}

#[test]
fn a_new_version_with_the_same_content_is_no_change_but_is_kept() {
    let filter = Projection::Whole;
    let mut store = SnapshotStore::new(&binding(filter.clone()));
    store.replace(vec![projected(&filter, &pod("a", "1", "Pending"))]);
    assert_eq!(store.put(projected(&filter, &pod("a", "2", "Pending"))), None);
    let SnapshotState::Ready(snapshot) = store.view() else { panic!("synchronised") };
    assert_eq!(snapshot.items[0].projection["metadata"]["resourceVersion"], "2");
    let change = store.put(projected(&filter, &pod("a", "3", "Running"))).unwrap();
    assert_eq!(change.event, WatchEventType::Modified);
}

#[test]
fn only_projected_fields_count() {
    let filter = Projection::Fields(vec!["/metadata/name".into(), "/spec/nothing".into()]);
    let mut store = SnapshotStore::new(&binding(filter.clone()));
    store.replace(vec![projected(&filter, &pod("a", "1", "Pending"))]);
    assert_eq!(store.put(projected(&filter, &pod("a", "2", "Running"))), None);
    let SnapshotState::Ready(snapshot) = store.view() else { panic!("synchronised") };
    assert_eq!(snapshot.items[0].projection, json!({"/metadata/name": "a", "/spec/nothing": null}));
}

#[test]
fn a_projection_that_holds_a_resource_version_is_compared_as_it_is() {
    let filter = Projection::Fields(vec!["/metadata/resourceVersion".into()]);
    let mut store = SnapshotStore::new(&binding(filter.clone()));
    store.replace(vec![projected(&filter, &pod("a", "1", "Pending"))]);
    assert!(store.put(projected(&filter, &pod("a", "2", "Pending"))).is_some());
}

#[test]
fn a_new_list_tells_what_happened_while_the_connection_was_lost() {
    let filter = Projection::Whole;
    let mut store = SnapshotStore::new(&binding(filter.clone()));
    let list = |pods: &[(&str, &str, &str)]| -> Vec<Projected> {
        pods.iter().map(|(name, version, phase)| projected(&filter, &pod(name, version, phase))).collect()
    };
    store.replace(list(&[("a", "1", "Pending"), ("b", "1", "Pending"), ("c", "1", "Pending")]));
    let changes = store.replace(list(&[("a", "9", "Pending"), ("b", "9", "Running"), ("d", "9", "Pending")]));
    use WatchEventType::{Added, Deleted, Modified};
    assert_eq!(events(&changes), [(Modified, "b"), (Added, "d"), (Deleted, "c")]);
}

#[test]
fn a_deletion_always_counts_once() {
    let filter = Projection::Fields(vec![]);
    let mut store = SnapshotStore::new(&binding(filter.clone()));
    store.replace(vec![projected(&filter, &pod("a", "1", "Pending"))]);
    assert!(store.remove("demo", "a").is_some());
    assert!(store.remove("demo", "a").is_none());
}

#[test]
fn a_failing_filter_makes_the_snapshot_unusable_until_the_next_list() {
    let mut store = SnapshotStore::new(&binding(Projection::Whole));
    store.replace(vec![]);
    store.fail("filter: boom".into());
    assert_eq!(store.view(), SnapshotState::NotSynchronised("filter: boom".into()));
    store.replace(vec![]);
    assert!(store.is_synced());
}

#[test]
fn changes_that_the_binding_does_not_ask_for_run_nothing() {
    let mut store = SnapshotStore::new(&KubernetesBinding { execute_on_events: vec![], ..binding(Projection::Whole) });
    store.replace(vec![]);
    assert_eq!(store.put(projected(&Projection::Whole, &pod("a", "1", "Pending"))), None);
    assert_eq!(store.len(), 1);
}
