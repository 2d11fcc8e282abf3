//! The life of an application, from installation to the last object.

use std::time::Duration;

use barbless::bundle;
use barbless_domain::event::Event;
use barbless_domain::pipeline::App;
use barbless_domain::request::{ROLLBACK_TO, TAKE_OVER};
use serde_json::json;

use crate::world::{World, nothing, package, root};

const SCHEMA: &str = "type: object\nproperties:\n  replicas:\n    type: integer\n    minimum: 1\n    default: 1\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_package_without_hooks_is_installed_changed_and_removed() {
    let world = World::new().await;
    let source = package("plain")
        .with("openapi/settings.yaml", SCHEMA)
        .with("openapi/values.yaml", "x-extend:\n  schema: settings.yaml\ntype: object\n");
    let app = world.install("plain", source, nothing()).await;
    app.ready().await;
    let object = app.object("v1", "ConfigMap", "plain-config").await.unwrap();
    assert_eq!(object["data"]["replicas"], "1");
    assert_eq!(object["metadata"]["labels"]["packages.deckhouse.io/instance"], "plain");
    app.change(json!({"replicas": 3})).await;
    app.wait("changed", |app| app.is_idle() && app.status().observed_generation == 2).await;
    let object = app.object("v1", "ConfigMap", "plain-config").await.unwrap();
    assert_eq!(object["data"]["replicas"], "3");
    app.delete().await;
    assert_eq!(app.object("v1", "ConfigMap", "plain-config").await, None);
    assert_eq!(app.object("deckhouse.io/v1alpha1", "Application", "plain").await, None);
    assert_eq!(app.names("v1", "Secret").await, Vec::<String>::new(), "no release record stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hooks_of_the_minimal_package_run_for_real() {
    let world = World::new().await;
    let source = bundle::read(&root().join("examples/minimal")).unwrap();
    assert!(source.get("hooks/minimal-hooks.wasm").is_some(), "tests/run builds the hooks first");
    let version = "0.1.0";
    let app = world.install("minimal", source, json!({"name": "Ada"})).await;
    world.cluster.patch_application(&app.id, &json!({"packageVersion": version})).await.unwrap();
    app.ready().await;
    let names = app.names("v1", "ConfigMap").await;
    let mut found = false;
    for name in names {
        let object = app.object("v1", "ConfigMap", &name).await.unwrap();
        found |= object["data"].to_string().contains("Hello, Ada!");
    }
    assert!(found, "what the hook set is in an object");
    let records = app.records();
    assert!(records.iter().all(|record| record.end.is_ok()));
    assert!(records.iter().any(|record| !record.log.is_empty()), "log lines are kept with the run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_upgrades_in_place() {
    let world = World::new().await;
    let app = world.install("moves", package("moves"), nothing()).await;
    app.ready().await;
    let before = app.object("v1", "ConfigMap", "moves-config").await.unwrap();
    let second = package("moves").get("package.yaml").unwrap().to_vec();
    let manifest = String::from_utf8(second).unwrap().replace("1.0.0", "2.0.0");
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: moves-config\ndata:\n  version: {{ .Application.Package.Version | quote }}\n";
    app.put_on_shelf(
        barbless_domain::package::PackageSource::new()
            .with("package.yaml", &manifest)
            .with("templates/config.yaml", template),
    );
    world.cluster.patch_application(&app.id, &json!({"packageVersion": "2.0.0"})).await.unwrap();
    app.wait("on the new version", |app| app.is_idle() && app.status().current_version.as_deref() == Some("2.0.0"))
        .await;
    let after = app.object("v1", "ConfigMap", "moves-config").await.unwrap();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "the object was changed, not made anew");
    assert_eq!(after["data"]["version"], "2.0.0");
    assert_eq!(after["data"].get("replicas"), None, "what is not rendered any more is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_stop_an_apply_that_hangs() {
    let world = World::new().await;
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  annotations: {}\nspec:\n  replicas: 1\n  \
        selector: {matchLabels: {app: web}}\n  template:\n    metadata:\n      labels: {app: web}\n      annotations:\n        \
        devcluster.barbless.dev/hang: {{ .Values.hang | quote }}\n    spec:\n      containers: [{name: web, image: web}]\n";
    let schema = "type: object\nproperties:\n  hang:\n    type: string\n    default: \"true\"\n";
    let source = package("hangs")
        .with("openapi/settings.yaml", schema)
        .with("openapi/values.yaml", "x-extend:\n  schema: settings.yaml\ntype: object\n")
        .with("templates/web.yaml", deployment);
    let app = world.install("hangs", source, nothing()).await;
    app.wait("applying", |app| app.status().summary.message.contains("applying")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    app.change(json!({"hang": "false"})).await;
    app.ready().await;
    app.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_requirements_remove_the_objects_and_keep_the_application() {
    let world = World::new().await;
    let app = world.install("pauses", package("pauses"), nothing()).await;
    app.ready().await;
    app.handle.send(Event::Requirements(vec!["module 'x' is not enabled".into()])).await;
    app.wait("suspended", |app| app.is_idle() && app.status().summary.state == "Suspended").await;
    assert_eq!(app.object("v1", "ConfigMap", "pauses-config").await, None);
    assert!(app.object("deckhouse.io/v1alpha1", "Application", "pauses").await.is_some());
    app.handle.send(Event::Requirements(vec![])).await;
    app.ready().await;
    assert!(app.object("v1", "ConfigMap", "pauses-config").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_owns_is_not_taken() {
    let world = World::new().await;
    let mine =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "takes-config"}, "data": {"mine": "yes"}});
    world.cluster.apply_object("a-user", world.namespace(), &mine).await.unwrap();
    let app = world.install("takes", package("takes"), nothing()).await;
    let failure = app.failure().await;
    assert!(failure.message.contains("takes-config"), "{failure:?}");
    let object = app.object("v1", "ConfigMap", "takes-config").await.unwrap();
    assert_eq!(object["data"], json!({"mine": "yes"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_come_to_nothing_are_told_and_stop_nothing() {
    let world = World::new().await;
    let app = world.install("asks", package("asks"), nothing()).await;
    app.ready().await;
    let told = |app: &App| {
        let status = app.status();
        status.conditions.iter().find(|one| one.kind == "RequestsAccepted").map(|one| one.message.clone())
    };
    world.cluster.annotate_application(&app.id, TAKE_OVER, Some("perhaps")).await.unwrap();
    world.cluster.annotate_application(&app.id, ROLLBACK_TO, Some("0")).await.unwrap();
    let both = |app: &App| told(app).is_some_and(|it| it.contains(TAKE_OVER) && it.contains("there is no revision 0"));
    let state = app.wait("told of both", |app| both(app) && app.is_idle()).await;
    assert_eq!(state.status().summary.state, "Ready");
    world.cluster.annotate_application(&app.id, TAKE_OVER, None).await.unwrap();
    world.cluster.annotate_application(&app.id, ROLLBACK_TO, None).await.unwrap();
    app.wait("rid of both", |app| told(app).is_none()).await;
    app.delete().await;
}
