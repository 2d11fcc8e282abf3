//! Workloads whose Pods fail, and what is told of an operation while it is carried out.

use std::time::Duration;

use barbless_domain::release::tracking::{OperationStatus, OperationType, Tracking};
use serde_json::{Value, json};

use super::{drain, options, plan_for, reference, start, start_fast};
use crate::{Progress, ReleaseError};

const SOON: Duration = Duration::from_secs(20);

fn deployment(name: &str, notes: Value) -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "i"}]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "annotations": notes},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": pod}},
    })
}

fn crashing(name: &str, notes: Value) -> Value {
    let mut object = deployment(name, notes);
    object["spec"]["template"]["metadata"]["annotations"] =
        json!({"devcluster.barbless.dev/run": "crash", "devcluster.barbless.dev/exit-code": "137"});
    object
}

#[tokio::test]
async fn pods_that_fail_too_often_fail_the_release_at_once() {
    for allowed in [None, Some("0"), Some("3")] {
        let (_devcluster, cluster) = start_fast().await;
        let notes = allowed.map_or(json!({}), |text| json!({"werf.io/failures-allowed-per-replica": text}));
        let plan = plan_for(&cluster, vec![crashing("web", notes)], &[]).await;
        let (options, mut events) = options(SOON);
        let error = cluster.apply_release(&plan, &options).await.expect_err("it fails");
        let ReleaseError::ObjectFailed { target, why } = &error else { panic!("{error:?}") };
        assert_eq!(target.name, "web");
        let count = allowed.unwrap_or("1");
        for part in [&format!("more than the {count} that it may"), "Pod web-", "container main", "exit code 137"] {
            assert!(why.contains(part), "{part}: {why}");
        }
        assert!(drain(&mut events).iter().any(|it| matches!(it, Progress::PodFailing(_))), "it was named before");
    }
}

#[tokio::test]
async fn pods_that_fail_no_more_often_than_they_may_become_ready() {
    let (_devcluster, cluster) = start_fast().await;
    let mut object = crashing("web", json!({"werf.io/failures-allowed-per-replica": "2"}));
    object["spec"]["template"]["metadata"]["annotations"]["devcluster.barbless.dev/failures"] = json!("2");
    let plan = plan_for(&cluster, vec![object], &[]).await;
    cluster.apply_release(&plan, &options(SOON).0).await.expect("it becomes ready at the third attempt");
}

#[tokio::test]
async fn an_image_that_cannot_be_had_fails_the_release_at_the_second_attempt() {
    let (_devcluster, cluster) = start_fast().await;
    let mut object = deployment("web", json!({}));
    object["spec"]["template"]["metadata"]["annotations"] = json!({"devcluster.barbless.dev/run": "image-pull"});
    let plan = plan_for(&cluster, vec![object], &[]).await;
    let error = cluster.apply_release(&plan, &options(SOON).0).await.expect_err("it fails");
    assert_eq!(error.reason(), "ObjectFailed");
    assert!(error.to_string().contains("its Pods failed 2 times"), "{error}");
}

#[tokio::test]
async fn what_the_author_tolerates_does_not_fail_the_release() {
    let (_devcluster, cluster) = start_fast().await;
    let notes = json!({"werf.io/fail-mode": "IgnoreAndContinueDeployProcess"});
    let plan = plan_for(&cluster, vec![crashing("web", notes), deployment("other", json!({}))], &[]).await;
    let applied = cluster.apply_release(&plan, &options(SOON).0).await.expect("it goes on");
    assert_eq!(applied.tolerated.len(), 1, "{applied:?}");
    assert!(applied.tolerated[0].1.contains("exit code 137"), "{applied:?}");
}

/// The Pods of the version before go on failing until the new ones are there; that is what the upgrade is for.
#[tokio::test]
async fn an_upgrade_mends_what_fails() {
    let (_devcluster, cluster) = start_fast().await;
    let plan = plan_for(&cluster, vec![crashing("web", json!({}))], &[]).await;
    cluster.apply_release(&plan, &options(SOON).0).await.expect_err("it fails");
    // Times of the API are in seconds, and Pods of one second are all new.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let mut mended = deployment("web", json!({}));
    // Long enough for the old Pod to fail again and again.
    mended["spec"]["template"]["metadata"]["annotations"] = json!({"devcluster.barbless.dev/after": "1s"});
    let plan = plan_for(&cluster, vec![mended], &plan.inventory()).await;
    cluster.apply_release(&plan, &options(SOON).0).await.expect("it is mended");
}

#[tokio::test]
async fn how_far_an_operation_is_is_told_until_its_end() {
    let (_devcluster, cluster) = start(false).await;
    let plan = plan_for(&cluster, vec![deployment("web", json!({}))], &[]).await;
    let (mut options, _events) = options(Duration::from_millis(2_500));
    let (told, mut how_far) = tokio::sync::watch::channel(Tracking::default());
    options.tracking = told;
    let listener = tokio::spawn(async move {
        let mut reports = Vec::new();
        while how_far.changed().await.is_ok() {
            let tracking = how_far.borrow_and_update().clone();
            reports.push(tracking.operations.iter().map(|it| (it.r#type, it.status)).collect::<Vec<_>>());
        }
        reports
    });
    // Without controllers it never becomes ready.
    cluster.apply_release(&plan, &options).await.expect_err("the time is up");
    drop(options);
    let reports = listener.await.expect("no panic");
    use OperationStatus::{Canceled, Completed, Failed, Pending, Progressing};
    use OperationType::{Create, StageEnd, TrackReadiness};
    let expected = [
        vec![(Create, Progressing), (TrackReadiness, Pending), (StageEnd, Pending)],
        vec![(Create, Completed), (TrackReadiness, Progressing), (StageEnd, Pending)],
        vec![(Create, Completed), (TrackReadiness, Failed), (StageEnd, Canceled)],
    ];
    assert_eq!(reports, expected);
    assert!(cluster.read(&reference("apps/v1", "Deployment", "demo", "web")).await.is_some());
}

/// A hook that fails, whose container says this.
fn failing_hook(said: &str, notes: Value) -> Value {
    let mut annotations = json!({"helm.sh/hook": "pre-install", "helm.sh/hook-delete-policy": "hook-failed"});
    for (name, value) in notes.as_object().into_iter().flatten() {
        annotations[name] = value.clone();
    }
    let knobs = json!({"devcluster.barbless.dev/run": "fail", "devcluster.barbless.dev/log": said});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mig", "annotations": annotations},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"annotations": knobs},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}},
    })
}

#[tokio::test]
async fn a_failed_hook_says_what_its_containers_said_last() {
    let cases = [
        (json!({}), true),
        (json!({"helm.sh/hook-output-log-policy": "hook-succeeded,hook-failed"}), true),
        (json!({"helm.sh/hook-output-log-policy": "hook-succeeded"}), false),
    ];
    for (notes, shown) in cases {
        let (_devcluster, cluster) = start_fast().await;
        let hook = failing_hook("connecting\n\u{1b}[31mno such table: users\n", notes);
        let plan = plan_for(&cluster, vec![hook], &[]).await;
        let error = cluster.apply_release(&plan, &options(SOON).0).await.expect_err("it fails");
        assert_eq!(error.reason(), "HelmHookFailed");
        let text = error.to_string();
        let said = "container main said: connecting | \\u{1b}[31mno such table: users";
        assert_eq!(text.contains(said), shown, "{text}");
        assert!(
            cluster.read(&reference("batch/v1", "Job", "demo", "mig")).await.is_none(),
            "it was asked before it went"
        );
    }
}

#[tokio::test]
async fn a_pod_of_others_that_wears_the_label_of_a_hook_is_not_asked() {
    let (_devcluster, cluster) = start_fast().await;
    cluster
        .put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "other", "namespace": "demo", "labels": {"job-name": "mig"}, "annotations":
                {"devcluster.barbless.dev/run": "fail", "devcluster.barbless.dev/log": "password"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
        }))
        .await;
    let plan = plan_for(&cluster, vec![failing_hook("bad", json!({}))], &[]).await;
    let error = cluster.apply_release(&plan, &options(SOON).0).await.expect_err("it fails").to_string();
    assert!(error.contains("said: bad") && !error.contains("password"), "{error}");
}
