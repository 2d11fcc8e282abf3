//! `status.tracking` of an `Application`: how far an operation on its release is, while it is under way and after it.

use barbless_domain::package::PackageSource;
use serde_json::{Value, json};

use super::chart::{Object, deployment};
use crate::world::{Running, World, nothing, package};

/// A package with a ConfigMap and these objects.
fn with(objects: &[Object]) -> PackageSource {
    let objects: Vec<String> = objects.iter().map(|object| object.0.to_string()).collect();
    package("plain").with("templates/objects.yaml", &objects.join("\n---\n"))
}

/// `status.tracking` as it is written in the cluster; nothing if the application is gone or has none.
async fn tracking(app: &Running) -> Option<Value> {
    let object = app.object("deckhouse.io/v1alpha1", "Application", app.id.name()).await?;
    object.pointer("/status/tracking").cloned()
}

/// Waits until the report in the cluster is as wanted.
async fn until(app: &Running, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = None;
    for _ in 0..1_000 {
        last = tracking(app).await;
        if let Some(tracking) = last.clone().filter(&holds) {
            return tracking;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("not in time: {what}; last was {last:#?}");
}

/// Type and status of what is done about an object.
fn about<'a>(tracking: &'a Value, kind: &str, name: &str) -> Vec<(&'a str, &'a str)> {
    let operations = tracking["report"]["operations"].as_array().into_iter().flatten();
    let its = operations.filter(|it| it["kind"] == kind && it["name"] == name);
    its.map(|it| (it["type"].as_str().unwrap(), it["status"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_is_reported_while_it_is_under_way_and_after_it() {
    let world = World::new().await;
    let slow = deployment("slow").note("devcluster.barbless.dev/after", "2500ms");
    let app = world.install("plain", with(&[slow]), nothing()).await;
    let under_way = until(&app, "the Deployment is waited for", |it| {
        about(it, "Deployment", "slow") == [("Create", "Completed"), ("TrackReadiness", "Progressing")]
    })
    .await;
    assert_eq!(about(&under_way, "ConfigMap", "plain-config")[0], ("Create", "Completed"));
    assert!(under_way["completed"].as_u64() > Some(0) && under_way["remaining"].as_u64() > Some(0), "{under_way:#}");
    let operations = under_way["report"]["operations"].as_array().unwrap();
    let wait = operations.iter().find(|it| it["type"] == "TrackReadiness" && it["kind"] == "Deployment").unwrap();
    let apply = operations.iter().find(|it| it["type"] == "Create" && it["kind"] == "Deployment").unwrap();
    assert_eq!(wait["dependsOn"], json!([apply["id"]]));
    assert_eq!(
        (&wait["group"], &wait["version"], &wait["namespace"]),
        (&json!("apps"), &json!("v1"), &json!(world.namespace()))
    );

    app.ready().await;
    let after = until(&app, "the last report stays", |it| it["remaining"] == 0).await;
    assert_eq!(about(&after, "Deployment", "slow"), [("Create", "Completed"), ("TrackReadiness", "Completed")]);
    assert_eq!(after["completed"].as_u64(), Some(4), "two objects are applied and waited for: {after:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_a_failed_apply_names_what_failed() {
    let world = World::new().await;
    let broken = super::chart::job("broken").run("fail");
    let app = world.install("plain", with(&[broken]), nothing()).await;
    let failure = app.failure().await;
    assert_eq!(failure.reason, "ObjectFailed", "{failure:?}");
    let last = until(&app, "the failure is reported", |it| {
        about(it, "Job", "broken") == [("Create", "Completed"), ("TrackReadiness", "Failed")]
    })
    .await;
    assert_eq!(last["remaining"], 1, "{last:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_reported_while_it_is_under_way() {
    let world = World::new().await;
    let app = world.install("plain", with(&[]), nothing()).await;
    app.ready().await;
    let client = world.api.client();
    let kind = kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = kube::Api::<kube::core::DynamicObject>::namespaced_with(client, world.namespace(), &kind);
    let finalizers = |list: Value| kube::api::Patch::Merge(json!({"metadata": {"finalizers": list}}));
    let parameters = kube::api::PatchParams::default();
    api.patch("plain-config", &parameters, &finalizers(json!(["example.com/held"]))).await.unwrap();
    world.cluster.delete_application(&app.id).await.unwrap();
    let under_way = until(&app, "the ConfigMap is on its way", |it| {
        about(it, "ConfigMap", "plain-config") == [("Delete", "Completed"), ("TrackAbsence", "Progressing")]
    })
    .await;
    assert_eq!((&under_way["completed"], &under_way["remaining"]), (&json!(1), &json!(1)));
    api.patch("plain-config", &parameters, &finalizers(Value::Null)).await.unwrap();
    app.wait("gone", barbless_domain::pipeline::App::is_finished).await;
}
