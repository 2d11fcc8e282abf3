use serde_json::{Value, json};

use super::{app, config_map, reference, start};
use crate::PurgeLevel;

fn ours(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "web"});
    object
}

#[tokio::test]
async fn missing_objects_are_found_with_one_list_per_kind() {
    let (devcluster, cluster) = start(false).await;
    cluster.put(ours(config_map("there", json!({})))).await;
    cluster.put(config_map("unlabelled", json!({}))).await;
    let wanted = [
        reference("v1", "ConfigMap", "demo", "gone"),
        reference("v1", "ConfigMap", "demo", "there"),
        reference("v1", "ConfigMap", "demo", "unlabelled"),
        reference("v1", "Secret", "demo", "gone"),
        reference("example.org/v1", "Widget", "demo", "unserved"),
    ];
    let before = devcluster.requests().get("list").copied().unwrap_or_default();
    let missing = cluster.missing(&app(), &wanted).await.expect("an answer");
    let names: Vec<&str> = missing.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["gone", "unlabelled", "gone", "unserved"]);
    assert_eq!(devcluster.requests().get("list").copied().unwrap_or_default(), before + 2);
    assert!(cluster.missing(&app(), &[]).await.expect("an answer").is_empty());
}

#[tokio::test]
async fn orphans_of_the_application_go_and_nothing_else() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(ours(config_map("orphan", json!({})))).await;
    let mut kept = ours(config_map("kept", json!({})));
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep", "werf.io/resource-policy": "delete"});
    cluster.put(kept).await;
    let mut werf = ours(config_map("werf", json!({})));
    werf["metadata"]["annotations"] = json!({"werf.io/resource-policy": "keep"});
    cluster.put(werf).await;
    let mut elsewhere = ours(config_map("elsewhere", json!({})));
    elsewhere["metadata"]["namespace"] = json!("other");
    cluster.put(elsewhere).await;
    let mut theirs = config_map("theirs", json!({}));
    theirs["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "db"});
    cluster.put(theirs).await;
    // A bare version means every group that serves the kind at it.
    cluster
        .put(ours(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "old", "namespace": "demo"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})))
        .await;
    let kinds =
        [("ConfigMap", "v1"), ("ConfigMap", "v1"), ("Job", "v1"), ("Namespace", "v1"), ("Widget", "example.org/v1")];
    let kinds = kinds.map(|(kind, version)| (kind.to_owned(), version.to_owned()));
    let report = cluster.purge_orphans(&app(), &kinds).await;
    assert_eq!(report.failure(), None);
    let mut deleted: Vec<&str> = report.deleted.iter().map(|it| it.name.as_str()).collect();
    deleted.sort_unstable();
    assert_eq!(deleted, ["old", "orphan", "werf"]);
    for (namespace, name) in [("demo", "kept"), ("other", "elsewhere"), ("demo", "theirs")] {
        assert!(cluster.read(&reference("v1", "ConfigMap", namespace, name)).await.is_some(), "{name}");
    }
    assert!(report.lines().all(|line| line.contains("orphan")), "{report:?}");
    let warnings: Vec<&str> =
        report.entries.iter().filter(|it| it.level == PurgeLevel::Warn).map(|it| it.text.as_str()).collect();
    assert_eq!(
        warnings,
        [
            "orphan kind Namespace is skipped: it is cluster-scoped",
            "orphan kind Widget (example.org/v1) is skipped: the cluster does not serve it",
        ]
    );
}

#[tokio::test]
async fn orphans_that_already_go_are_left_alone() {
    let (devcluster, cluster) = start(false).await;
    let mut going = ours(config_map("going", json!({})));
    going["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.put(going).await;
    let kinds = [("ConfigMap".to_owned(), "v1".to_owned())];
    assert_eq!(cluster.purge_orphans(&app(), &kinds).await.deleted.len(), 1);
    let before = devcluster.requests().get("delete").copied();
    let report = cluster.purge_orphans(&app(), &kinds).await;
    assert!(report.deleted.is_empty() && report.failure().is_none());
    assert_eq!(devcluster.requests().get("delete").copied(), before);
}

#[tokio::test]
async fn the_whole_api_can_be_looked_over() {
    let (_devcluster, cluster) = start(false).await;
    cluster.ensure_namespace("fresh").await.expect("made");
    cluster.ensure_namespace("fresh").await.expect("still there");
    assert!(cluster.version().await.expect("an answer").starts_with("v1."));
    let served = cluster.served_versions().await.expect("an answer");
    for version in ["v1", "v1/ConfigMap", "apps/v1", "apps/v1/Deployment"] {
        assert!(served.iter().any(|it| it == version), "{version}");
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    cluster.apply_object("somebody", "fresh", &object).await.expect("applied");
    let all = cluster.list_everything().await.expect("an answer");
    let of = |name: &str| all.iter().filter(|it| it.name == name).count();
    assert_eq!((of("c"), of("fresh")), (1, 1));
}
