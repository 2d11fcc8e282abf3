//! Objects that were applied under a version of the API that is no longer served.

use std::time::Duration;

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::history::Action;
use serde_json::{Value, json};

use super::records::{now, revision};
use super::{app, config_map, options, plan_for, reference, removal, start};
use crate::{Applied, Cluster, NewRevision};

const SOON: Duration = Duration::from_secs(20);

/// A definition of widgets whose versions are served or not.
fn definition(alpha: bool, stable: bool) -> Value {
    let version = |name: &str, served: bool, storage: bool| {
        json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1alpha1", alpha, false), version("v1", stable, true)],
        },
    })
}

/// The versions that are served become these, while the process runs. What it knows is no longer believed in when it has
/// to be sure.
async fn serve(cluster: &Cluster, alpha: bool, stable: bool) {
    let definition = definition(alpha, stable);
    let target = ObjectRef::of(&definition).expect("a reference");
    cluster.touch(&target, json!({"spec": definition["spec"]})).await;
    tokio::time::sleep(crate::limits::DISCOVERY_MISS).await;
}

fn widget(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("example.org/{version}"), "kind": "Widget", "metadata": {"name": name, "namespace": "demo"}})
}

async fn deploy(cluster: &Cluster, objects: Vec<Value>) -> Applied {
    let history = cluster.release_history(&app()).await.expect("an answer");
    let previous = cluster.inventory_of(&history).await.expect("an answer");
    let plan = plan_for(cluster, objects, &previous).await;
    let settings = json!({});
    let action = if history.is_empty() { Action::Install } else { Action::Upgrade };
    let new = NewRevision { action, ..revision(&plan, &settings, "me", now()) };
    cluster.deploy(&app(), new, &options(SOON).0).await.expect("deployed")
}

/// A cluster with a release of a widget that was applied as `v1alpha1`.
async fn with_widget() -> (barbless_devcluster::DevCluster, Cluster) {
    let (devcluster, cluster) = start(true).await;
    cluster.put(definition(true, true)).await;
    while cluster.resolve(&super::gvk("example.org/v1alpha1", "Widget")).await.is_err() {
        cluster.forget_kinds();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    deploy(&cluster, vec![config_map("c", json!({})), widget("v1alpha1", "w")]).await;
    (devcluster, cluster)
}

fn names(targets: &[ObjectRef]) -> Vec<&str> {
    targets.iter().map(|target| target.name.as_str()).collect()
}

#[tokio::test]
async fn what_is_served_under_another_version_is_the_same_object() {
    let (_devcluster, cluster) = with_widget().await;
    let (old, new) =
        (reference("example.org/v1alpha1", "Widget", "demo", "w"), reference("example.org/v1", "Widget", "demo", "w"));
    serve(&cluster, false, true).await;
    // Whether the process found that out yet or not.
    for _ in 0..2 {
        assert_eq!(cluster.missing(&app(), std::slice::from_ref(&old)).await.expect("an answer"), []);
        cluster.forget_kinds();
    }
    let history = cluster.release_history(&app()).await.expect("an answer");
    let inventory = cluster.inventory_of(&history).await.expect("an answer");
    assert!(inventory.iter().any(|item| item.target == new), "{inventory:?}");

    // The chart goes on to the new version: nothing is deleted.
    let uid = cluster.read(&new).await.expect("there")["metadata"]["uid"].clone();
    let applied = deploy(&cluster, vec![config_map("c", json!({})), widget("v1", "w")]).await;
    assert_eq!((names(&applied.pruned), applied.left), (Vec::new(), Vec::new()));
    assert_eq!(cluster.read(&new).await.expect("there")["metadata"]["uid"], uid);
}

#[tokio::test]
async fn what_is_dropped_goes_under_the_version_that_is_served() {
    // A process that knows of the change, and one that does not yet.
    for knows in [true, false] {
        let (_devcluster, cluster) = with_widget().await;
        let history = cluster.release_history(&app()).await.expect("an answer");
        let old = crate::Record::inventory_of(&history);
        serve(&cluster, false, true).await;
        if knows {
            let applied = deploy(&cluster, vec![config_map("c", json!({}))]).await;
            assert_eq!(names(&applied.pruned), ["w"]);
        } else {
            let removed = cluster.uninstall(&removal(&old, &std::collections::BTreeMap::new()), &options(SOON).0).await;
            assert_eq!(names(&removed.expect("removed").deleted), ["w", "c"]);
        }
        assert!(cluster.read(&reference("example.org/v1", "Widget", "demo", "w")).await.is_none());
    }
}

#[tokio::test]
async fn what_is_served_under_no_version_is_left_and_not_forgotten() {
    let (_devcluster, cluster) = with_widget().await;
    serve(&cluster, false, false).await;
    cluster.forget_kinds();
    for _ in 0..2 {
        let applied = deploy(&cluster, vec![config_map("c", json!({}))]).await;
        let left: Vec<String> = applied.left.iter().map(|(target, why)| format!("{target}: {why}")).collect();
        assert_eq!(left, ["Widget.example.org demo/w: the cluster no longer serves example.org Widget"]);
        let last = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
        assert_eq!(names(&last.out_of_reach), ["w"]);
    }
    // It is not waited for, and once it can be reached it goes.
    let history = cluster.release_history(&app()).await.expect("an answer");
    let inventory = cluster.inventory_of(&history).await.expect("an answer");
    let lasting: Vec<&str> =
        inventory.iter().filter(|item| !item.transient).map(|item| item.target.name.as_str()).collect();
    assert_eq!(lasting, ["c"]);
    serve(&cluster, false, true).await;
    let applied = deploy(&cluster, vec![config_map("c", json!({}))]).await;
    assert_eq!(names(&applied.pruned), ["w"]);
    let last = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    assert_eq!(last.out_of_reach, []);
}
