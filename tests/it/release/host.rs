//! O35, O36 and what the loop of an application makes of the rows: templates that look at the cluster, objects that are
//! missing, reconciliations that find nothing to do.

use barbless_domain::package::PackageSource;
use serde_json::json;

use crate::world::{World, nothing, package};

const SCHEMA: &str = "type: object\nproperties:\n  again:\n    type: integer\n    default: 0\n";

/// A package whose templates may look at ConfigMaps, and that a change of settings makes to be reconciled.
fn looking(template: &str) -> PackageSource {
    let manifest = String::from_utf8(package("looks").get("package.yaml").unwrap().to_vec()).unwrap();
    let permissions = "permissions:\n  - apiGroups: [\"\"]\n    kinds: [ConfigMap]\n    verbs: [watch]\n";
    PackageSource::new()
        .with("package.yaml", &format!("{manifest}{permissions}"))
        .with("openapi/settings.yaml", SCHEMA)
        .with("openapi/values.yaml", "x-extend:\n  schema: settings.yaml\ntype: object\n")
        .with("templates/a.yaml", template)
}

/// The trap of every chart that makes something only if it is not there: the next upgrade deletes it.
#[tokio::test(flavor = "multi_thread")]
async fn o35_what_is_only_rendered_when_it_is_missing_goes_with_the_next_upgrade() {
    let world = World::new().await;
    let template = "{{ if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"a\") }}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
        name: a\n{{ else }}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n{{ end }}";
    let app = world.install("looks", looking(template), nothing()).await;
    app.ready().await;
    assert!(app.object("v1", "ConfigMap", "a").await.is_some());
    app.change(json!({"again": 1})).await;
    app.wait("changed", |app| app.is_idle() && app.status().observed_generation == 2).await;
    assert!(app.object("v1", "ConfigMap", "b").await.is_some());
    assert_eq!(app.object("v1", "ConfigMap", "a").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn o36_a_lookup_of_an_unknown_kind_fails_and_applies_nothing() {
    let world = World::new().await;
    let template = "{{ $it := lookup \"nope.io/v1\" \"Zed\" .Release.Namespace \"a\" }}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
        name: a\n";
    let app = world.install("looks", looking(template), nothing()).await;
    let failure = app.failure().await;
    let expected = "unable to get apiresource from unstructured: nope.io/v1, Kind=Zed";
    assert!(failure.message.contains(expected), "{failure:?}");
    assert!(failure.message.contains("templates/a.yaml:1:"), "{failure:?}");
    assert_eq!(app.object("v1", "ConfigMap", "a").await, None);
    assert_eq!(app.names("v1", "Secret").await, Vec::<String>::new(), "there is no release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciliation_brings_back_what_somebody_deleted() {
    let world = World::new().await;
    let source = looking("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n");
    let app = world.install("looks", source, nothing()).await;
    app.ready().await;
    let before = app.object("v1", "ConfigMap", "a").await.unwrap();
    let client = world.api.client();
    let kind = kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = kube::Api::<kube::core::DynamicObject>::namespaced_with(client, world.namespace(), &kind);
    api.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    app.change(json!({"again": 1})).await;
    app.wait("reconciled", |app| app.is_idle() && app.status().observed_generation == 2).await;
    let after = app.object("v1", "ConfigMap", "a").await.expect("it is back");
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciliation_without_a_change_writes_no_object_and_no_revision() {
    let world = World::new().await;
    let source = looking("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n");
    let app = world.install("looks", source, nothing()).await;
    app.ready().await;
    world.api.clear_journal();
    app.change(json!({"again": 1})).await;
    app.wait("reconciled", |app| app.is_idle() && app.status().observed_generation == 2).await;
    let writes: Vec<String> = world
        .api
        .writes()
        .iter()
        .filter(|write| !matches!(write.resource.as_str(), "applications" | "events"))
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, Vec::<String>::new());
    let lists = world.api.journal().into_iter().filter(|it| it.verb == "list" && it.resource == "configmaps");
    assert!(lists.count() <= 1);
}

/// What a template makes up is nobody's to guess, and stays what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_a_template_differs_between_releases_and_stays_in_one() {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  \
        password: {{ randAlphaNum 20 | quote }}\n  again: {{ .Application.Settings.again | quote }}\n";
    let mut passwords = Vec::new();
    for _ in 0..2 {
        let world = World::new().await;
        let app = world.install("looks", looking(template), nothing()).await;
        app.ready().await;
        let before = app.object("v1", "ConfigMap", "a").await.unwrap();
        app.change(json!({"again": 1})).await;
        app.wait("changed", |app| app.is_idle() && app.status().observed_generation == 2).await;
        let after = app.object("v1", "ConfigMap", "a").await.unwrap();
        assert_eq!((&before["data"]["again"], &after["data"]["again"]), (&json!("0"), &json!("1")));
        assert_eq!(before["data"]["password"], after["data"]["password"]);
        passwords.push(after["data"]["password"].clone());
    }
    assert_ne!(passwords[0], passwords[1]);
}
