//! CRUD, lists, watches and discovery as kube does them.

use futures::{StreamExt, TryStreamExt};
use kube::{
    api::{ApiResource, DynamicObject},
    discovery::Discovery,
    runtime::{WatchStreamExt, watcher},
};

use super::*;

fn config_map(name: &str, data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": name}}, "data": data})).expect("valid")
}

#[tokio::test]
async fn objects_are_created_read_patched_and_deleted() {
    let (_cluster, client) = cluster().await;
    let api = Api::<ConfigMap>::default_namespaced(client);
    let made = api.create(&PostParams::default(), &config_map("one", json!({"a": "1"}))).await.unwrap();
    assert!(made.uid().is_some() && made.resource_version().is_some() && made.creation_timestamp().is_some());
    let again = api.create(&PostParams::default(), &config_map("one", json!({}))).await.unwrap_err();
    assert!(matches!(again, kube::Error::Api(ref s) if s.code == 409 && s.reason == "AlreadyExists"), "{again}");
    let patched =
        api.patch("one", &PatchParams::default(), &Patch::Merge(json!({"data": {"b": "2", "a": null}}))).await.unwrap();
    assert_eq!(patched.data.unwrap().into_iter().collect::<Vec<_>>(), [("b".to_owned(), "2".to_owned())]);
    let mut stale = made;
    stale.data = None;
    let error = api.replace("one", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(ref s) if s.code == 409 && s.reason == "Conflict"), "{error}");
    assert_eq!(api.list(&ListParams::default().labels("app in (one,two)")).await.unwrap().items.len(), 1);
    assert_eq!(api.list(&ListParams::default().fields("metadata.name=two")).await.unwrap().items.len(), 0);
    api.delete("one", &DeleteParams::default()).await.unwrap();
    let error = api.get("one").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(ref s) if s.code == 404), "{error}");
}

#[tokio::test]
async fn a_watch_continues_from_a_version() {
    let (_cluster, client) = cluster().await;
    let api = Api::<ConfigMap>::default_namespaced(client);
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &config_map("w", json!({"a": "1"}))).await.unwrap();
    api.patch("w", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "2"}}))).await.unwrap();
    api.delete("w", &DeleteParams::default()).await.unwrap();
    let stream = api.watch(&WatchParams::default().fields("metadata.name=w").timeout(1), &start).await.unwrap();
    let kinds = stream
        .map_ok(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    assert_eq!(kinds.into_iter().filter(|k| *k != "bookmark").collect::<Vec<_>>(), ["added", "modified", "deleted"]);
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_gone() {
    let (_cluster, client) = cluster().await;
    let api = Api::<ConfigMap>::default_namespaced(client);
    let mut stream = api.watch(&WatchParams::default().timeout(1), "1").await.unwrap().boxed();
    let event = stream.try_next().await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Error(ref status)) if status.code == 410), "{event:?}");
    assert!(stream.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn the_watcher_of_kube_sees_the_state_and_then_changes() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (_cluster, client) = cluster().await;
        let api = Api::<ConfigMap>::default_namespaced(client);
        api.create(&PostParams::default(), &config_map("before", json!({}))).await.unwrap();
        let mut stream = watcher(api.clone(), config.labels("app")).applied_objects().boxed();
        assert_eq!(stream.try_next().await.unwrap().unwrap().name_any(), "before");
        api.create(&PostParams::default(), &config_map("after", json!({}))).await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(5), stream.try_next()).await.unwrap();
        assert_eq!(next.unwrap().unwrap().name_any(), "after");
    }
}

#[tokio::test]
async fn discovery_finds_every_kind_in_both_forms() {
    let (_cluster, client) = cluster().await;
    for aggregated in [false, true] {
        let discovery = Discovery::new(client.clone());
        let discovery =
            if aggregated { discovery.run_aggregated().await.unwrap() } else { discovery.run().await.unwrap() };
        for (group, kind) in [
            ("", "Pod"),
            ("apps", "Deployment"),
            ("batch", "Job"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ] {
            let group = discovery.get(group).unwrap_or_else(|| panic!("group {group:?}"));
            assert!(group.recommended_kind(kind).is_some(), "{kind}");
        }
    }
}

#[tokio::test]
async fn an_apply_creates_and_later_conflicts_with_another_manager() {
    let (_cluster, client) = cluster().await;
    let api = Api::<ConfigMap>::default_namespaced(client);
    let object =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": value}});
    api.patch("x", &PatchParams::apply("one"), &Patch::Apply(object("1"))).await.unwrap();
    let error = api.patch("x", &PatchParams::apply("two"), &Patch::Apply(object("2"))).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let causes = status.details.clone().unwrap().causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldManagerConflict", ".data.k"));
    let forced = api.patch("x", &PatchParams::apply("two").force(), &Patch::Apply(object("2"))).await.unwrap();
    assert_eq!(forced.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn dynamic_objects_and_namespaces_work() {
    let (_cluster, client) = cluster().await;
    let namespaces = Api::<Namespace>::all(client.clone());
    assert!(namespaces.get("kube-system").await.unwrap().status.unwrap().phase.unwrap() == "Active");
    let resource = ApiResource::erase::<ConfigMap>(&());
    let api = Api::<DynamicObject>::namespaced_with(client, "nowhere", &resource);
    let object = DynamicObject::new("x", &resource);
    let error = api.create(&PostParams::default(), &object).await.unwrap_err();
    assert!(
        matches!(error, kube::Error::Api(ref s) if s.code == 404 && s.message == "namespaces \"nowhere\" not found")
    );
}
