//! What authors ask for with annotations, and definitions of kinds: as it is in the cluster afterwards.

use std::sync::Arc;
use std::time::Duration;

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::ReleaseAction;
use serde_json::{Value, json};

use super::{config_map, options, plan_for, plan_with, reference, removal_of, start, start_fast};
use crate::request::metadata;
use crate::{Change, Cluster, ReleaseError};

const SOON: Duration = Duration::from_secs(20);

fn noted(mut object: Value, notes: Value) -> Value {
    object["metadata"]["annotations"] = notes;
    object
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}},
    })
}

fn map_ref(name: &str) -> ObjectRef {
    reference("v1", "ConfigMap", "demo", name)
}

async fn uid(cluster: &Cluster, target: &ObjectRef) -> String {
    let live = cluster.read(target).await.expect("there");
    metadata(&live, "uid").expect("a uid").to_owned()
}

#[tokio::test]
async fn an_object_is_made_anew_with_each_apply_unless_that_is_forbidden_too() {
    let cases = [
        (json!({"werf.io/delete-policy": "before-creation"}), Change::Recreated),
        (
            json!({"werf.io/delete-policy": "before-creation", "werf.io/resource-policy": "skip-recreate"}),
            Change::Configured,
        ),
    ];
    for (notes, expected) in cases {
        let (_devcluster, cluster) = start(true).await;
        let (options, _events) = options(SOON);
        let object = |data: &str| noted(config_map("c", json!({"k": data})), notes.clone());
        let first = plan_for(&cluster, vec![object("1")], &[]).await;
        cluster.apply_release(&first, &options).await.expect("applied");
        let before = uid(&cluster, &map_ref("c")).await;
        let second = plan_for(&cluster, vec![object("2")], &first.inventory()).await;
        let applied = cluster.apply_release(&second, &options).await.expect("applied");
        assert_eq!(applied.objects[0].1, expected, "{notes}");
        assert_eq!(uid(&cluster, &map_ref("c")).await != before, expected == Change::Recreated, "{notes}");
        assert_eq!(cluster.read(&map_ref("c")).await.expect("there")["data"]["k"], "2");
    }
}

#[tokio::test]
async fn what_is_not_to_be_made_anew_is_an_error_when_it_cannot_be_changed() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(SOON);
    let fixed = |data: &str| {
        let notes = json!({
            "werf.io/delete-policy": "before-creation-if-immutable", "werf.io/resource-policy": "skip-recreate"});
        let mut object = noted(config_map("c", json!({"k": data})), notes);
        object["immutable"] = json!(true);
        object
    };
    let first = plan_for(&cluster, vec![fixed("1")], &[]).await;
    cluster.apply_release(&first, &options).await.expect("applied");
    let before = uid(&cluster, &map_ref("c")).await;
    let second = plan_for(&cluster, vec![fixed("2")], &first.inventory()).await;
    let error = cluster.apply_release(&second, &options).await.expect_err("refused");
    assert_eq!(error.reason(), "ImmutableField");
    assert_eq!(uid(&cluster, &map_ref("c")).await, before);
}

#[tokio::test]
async fn an_object_of_anyone_is_applied_over_what_is_there_and_never_deleted() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(SOON);
    cluster.put(config_map("shared", json!({"theirs": "1"}))).await;
    let shared = noted(config_map("shared", json!({"ours": "1"})), json!({"werf.io/ownership": "anyone"}));
    let first = plan_for(&cluster, vec![shared, config_map("own", json!({}))], &[]).await;
    cluster.apply_release(&first, &options).await.expect("it need not be ours");
    let live = cluster.read(&map_ref("shared")).await.expect("there");
    assert_eq!(live["data"], json!({"theirs": "1", "ours": "1"}));
    // Neither when the release drops it,
    let second = plan_for(&cluster, vec![config_map("own", json!({}))], &first.inventory()).await;
    cluster.apply_release(&second, &options).await.expect("applied");
    assert!(cluster.read(&map_ref("shared")).await.is_some());
    // nor when the release goes.
    cluster.uninstall(&removal_of(&first), &options).await.expect("removed");
    assert!(cluster.read(&map_ref("shared")).await.is_some());
    assert!(cluster.read(&map_ref("own")).await.is_none());
}

#[tokio::test]
async fn dependants_go_or_stay_as_the_author_says() {
    for (propagation, stay) in [("Orphan", true), ("Background", false), ("Foreground", false)] {
        let (_devcluster, cluster) = start_fast().await;
        let (options, _events) = options(SOON);
        let web = noted(deployment("web"), json!({"werf.io/delete-propagation": propagation}));
        let first = plan_for(&cluster, vec![web], &[]).await;
        cluster.apply_release(&first, &options).await.expect("applied");
        let sets = super::gvk("apps/v1", "ReplicaSet");
        assert_eq!(cluster.list(&sets, Some("demo"), "app=web").await.expect("a list").len(), 1);
        let second = plan_for(&cluster, vec![config_map("c", json!({}))], &first.inventory()).await;
        let applied = cluster.apply_release(&second, &options).await.expect("applied");
        assert_eq!(applied.pruned.len(), 1, "{propagation}");
        let left = async || cluster.list(&sets, Some("demo"), "app=web").await.expect("a list").len();
        if propagation == "Foreground" {
            assert_eq!(left().await, 0, "they go before it does");
        }
        // The garbage collector takes its time.
        for _ in 0..100 {
            if left().await == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(left().await, usize::from(stay), "{propagation}");
    }
}

fn definition(notes: Value) -> Value {
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org", "annotations": notes},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": versions},
    })
}

#[tokio::test]
async fn objects_wait_until_the_definitions_of_crds_are_served() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(SOON);
    let slow = definition(json!({"devcluster.barbless.dev/after": "400ms"}));
    let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 3});
    let plan = plan_with(&cluster, ReleaseAction::Install, vec![widget], vec![slow], &[]).await;
    let begun = std::time::Instant::now();
    let applied = cluster.apply_release(&plan, &options).await.expect("applied");
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!(applied.objects.len(), 1, "a definition of crds/ is no object of the release");
    let at = reference("example.org/v1", "Widget", "demo", "w");
    assert!(cluster.read(&at).await.is_some());
    // It stays, with the custom resources of others.
    cluster.uninstall(&removal_of(&plan), &options).await.expect("removed");
    assert!(cluster.read(&at).await.is_none());
    let defined = reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.org");
    assert!(cluster.read(&defined).await.is_some());
}

#[tokio::test]
async fn a_definition_that_is_never_served_is_named_when_the_time_is_up() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(Duration::from_millis(600));
    let hangs = definition(json!({"devcluster.barbless.dev/run": "hang"}));
    let objects = vec![config_map("after", json!({}))];
    let plan = plan_with(&cluster, ReleaseAction::Install, objects, vec![hangs], &[]).await;
    let error = cluster.apply_release(&plan, &options).await.expect_err("the time is up");
    let ReleaseError::TimedOut { pending, .. } = &error else { panic!("{error:?}") };
    assert_eq!((pending[0].0.name.as_str(), pending[0].1.as_str()), ("widgets.example.org", "it is not established"));
    assert!(cluster.read(&map_ref("after")).await.is_none());
}

#[tokio::test]
async fn an_object_of_others_is_waited_for_if_it_may_be_seen() {
    let (_devcluster, cluster) = start(true).await;
    let (mut options, _events) = options(SOON);
    let waits = noted(
        config_map("waits", json!({})),
        json!({"a.external-dependency.werf.io/resource": "configmaps/theirs", "a.external-dependency.werf.io/namespace": "other"}),
    );
    let plan = plan_for(&cluster, vec![waits], &[]).await;
    let theirs = reference("v1", "ConfigMap", "other", "theirs");
    let asked = theirs.clone();
    options.may_see = Arc::new(move |target, _| match *target == asked {
        true => Err("it is not granted".to_owned()),
        false => Ok(()),
    });
    let error = cluster.apply_release(&plan, &options).await.expect_err("it may not be seen");
    assert!(error.to_string().contains("it is not granted"), "{error}");
    assert!(cluster.read(&map_ref("waits")).await.is_none());

    options.may_see = Arc::new(|_, _| Ok(()));
    let (watcher, other) = (cluster.clone(), cluster.clone());
    let put = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(watcher.read(&map_ref("waits")).await.is_none(), "it waits");
        other
            .put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "other"}}))
            .await;
    });
    cluster.apply_release(&plan, &options).await.expect("applied");
    put.await.expect("it was waited for");
    assert!(cluster.read(&theirs).await.is_some() && cluster.read(&map_ref("waits")).await.is_some());
}

#[tokio::test]
async fn nothing_happening_for_too_long_is_a_failure() {
    // Without controllers nothing happens at all.
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let web = noted(deployment("web"), json!({"werf.io/no-activity-timeout": "300ms"}));
    let plan = plan_for(&cluster, vec![web], &[]).await;
    let begun = std::time::Instant::now();
    let error = cluster.apply_release(&plan, &options).await.expect_err("it fails");
    assert_eq!(error.reason(), "ObjectFailed");
    let why = "nothing has changed for 300ms: 0 of 1 replicas are ready";
    assert!(error.to_string().contains(why), "{error}");
    assert!(begun.elapsed() < SOON / 2);
}
