use std::time::Duration;

use barbless_domain::pipeline::DeletionStep;
use barbless_domain::release::tracking::{OperationStatus, OperationType, TrackedOperation, Tracking};
use barbless_domain::request::{FIELD_CONFLICTS, RETRY, ROLLBACK_TO, TAKE_OVER};
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::json;

use super::{app, reference, start};
use crate::crd::{Condition, Summary};
use crate::{ApplicationEvent, ApplicationStatus, Cluster, EventType, FINALIZER};

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

async fn with_application() -> (barbless_devcluster::DevCluster, Cluster) {
    let (devcluster, cluster) = start(false).await;
    cluster.establish_crds().await.expect("established");
    cluster.create_application(&app(), "site", "1.0.0", &json!({"replicas": 1})).await.expect("created");
    (devcluster, cluster)
}

fn status(ready: &str) -> ApplicationStatus {
    let condition = |kind: &str, status: &str| Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: kind.to_owned(),
        message: String::new(),
        last_transition_time: String::new(),
        observed_generation: Some(1),
    };
    ApplicationStatus {
        observed_generation: Some(1),
        conditions: vec![condition("Installed", "True"), condition("Ready", ready)],
        summary: Some(Summary { state: "Ready".to_owned(), ..Summary::default() }),
        ..ApplicationStatus::default()
    }
}

#[tokio::test]
async fn definitions_are_established_and_can_be_applied_again() {
    let (_devcluster, cluster) = with_application().await;
    cluster.establish_crds().await.expect("established");
    let crds = crate::crds();
    assert_eq!(crds.len(), 4);
    let names: Vec<&str> = crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "applications.deckhouse.io",
            "applicationpackages.deckhouse.io",
            "applicationpackageversions.deckhouse.io",
            "packagerepositories.deckhouse.io",
        ]
    );
    let columns = crds[0]["spec"]["versions"][0]["additionalPrinterColumns"].as_array().expect("columns");
    let columns: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(columns, ["Package", "Version", "State", "Message", "Repository", "Installed", "Ready", "Age"]);
}

#[tokio::test]
async fn the_schema_accepts_what_deckhouse_documents_and_refuses_the_rest() {
    let (_devcluster, cluster) = with_application().await;
    let good = json!({
        "releaseChannel": "Stable", "packageRepositoryName": "main", "maintenance": "NoResourceReconciliation",
        "settings": {"any": {"depth": [1, "x"]}},
        "resourceRequests": [{"kind": "Deployment", "name": "web", "replicas": 2,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]}],
        "update": {"mode": "Manual", "windows": [{"from": "10:00", "to": "12:30", "days": ["Mon"]}],
            "blockOnAlerts": {"enabled": true, "severity": 4}},
    });
    let seen = cluster.patch_application(&app(), &good).await.expect("accepted");
    assert_eq!(seen.desired.settings, json!({"replicas": 1, "any": {"depth": [1, "x"]}}));
    assert!(seen.desired.maintenance);
    for bad in [
        json!({"maintenance": "Sleep"}),
        json!({"packageVersion": null}),
        json!({"settings": "text"}),
        json!({"update": {"mode": "Sometimes"}}),
        json!({"resourceRequests": [{"kind": "Service", "name": "x"}]}),
    ] {
        let error = cluster.patch_application(&app(), &bad).await.expect_err("refused");
        assert_eq!(error.reason(), "Invalid", "{bad}: {error}");
    }
}

#[tokio::test]
async fn applications_are_watched_with_what_they_want() {
    let (_devcluster, cluster) = with_application().await;
    let mut events = Box::pin(cluster.watch_applications(None));
    let mut next =
        async || tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("in time").expect("no end");
    let ApplicationEvent::Synced { applications, malformed } = next().await else { panic!("not synchronised") };
    assert_eq!((applications.len(), malformed.len()), (1, 0));
    assert_eq!((applications[0].id.clone(), applications[0].desired.version.as_str()), (app(), "1.0.0"));

    cluster.change_settings(&app(), &json!({"replicas": 3})).await.expect("changed");
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!((seen.desired.settings.clone(), seen.desired.generation), (json!({"replicas": 3}), 2));
    cluster.annotate_application(&app(), RETRY, Some("now")).await.expect("annotated");
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!(seen.desired.retry, "now");
    cluster.annotate_application(&app(), ROLLBACK_TO, Some("0")).await.expect("annotated");
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!(seen.desired.rollback_to, Some(0));
    // The request becomes one with a number, and goes; one that is another by now stays.
    assert!(cluster.replace_annotation(&app(), ROLLBACK_TO, "0", Some("4")).await.expect("replaced"));
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!(seen.desired.rollback_to, Some(4));
    assert!(!cluster.replace_annotation(&app(), ROLLBACK_TO, "3", None).await.expect("another one"));
    assert!(cluster.replace_annotation(&app(), ROLLBACK_TO, "4", None).await.expect("removed"));
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!(seen.desired.rollback_to, None);
    assert!(!cluster.replace_annotation(&app(), ROLLBACK_TO, "4", None).await.expect("gone already"));
    cluster.annotate_application(&app(), TAKE_OVER, Some("perhaps")).await.expect("annotated");
    let ApplicationEvent::Applied(seen) = next().await else { panic!("a bad value is not fatal") };
    assert!(!seen.desired.take_over);
    assert_eq!(seen.desired.refused.iter().map(|it| it.place.as_str()).collect::<Vec<_>>(), [TAKE_OVER]);
    cluster.annotate_application(&app(), FIELD_CONFLICTS, Some("[]")).await.expect("annotated");
    let ApplicationEvent::Applied(seen) = next().await else { panic!("not applied") };
    assert_eq!(seen.desired.field_conflicts, "[]");

    // A name that is no name of an application is seen, and seen to go. It is from before the definition had a rule for it.
    let definition = reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "applications.deckhouse.io");
    let mut versions = cluster.read(&definition).await.expect("served")["spec"]["versions"].take();
    versions[0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"].take();
    cluster.touch(&definition, json!({"spec": {"versions": versions}})).await;
    let bad = json!({"apiVersion": "deckhouse.io/v1alpha1", "kind": "Application",
        "metadata": {"namespace": "demo", "name": "a-name-that-is-much-too-long"},
        "spec": {"packageName": "p", "packageVersion": "1"}});
    cluster.put(bad).await;
    let ApplicationEvent::Malformed(bad) = next().await else { panic!("not malformed") };
    assert_eq!((bad.name.as_str(), bad.reason), ("a-name-that-is-much-too-long", "BadName"));
    // It is told so where its user looks.
    let refusal = barbless_domain::status::refused(bad.generation, &bad.failure());
    let at = (bad.namespace.as_str(), bad.name.as_str());
    assert!(cluster.write_refusal(at, &refusal, Timestamp::now()).await.expect("written"));
    assert!(!cluster.write_refusal(at, &refusal, Timestamp::now()).await.expect("there already"));
    let target = reference("deckhouse.io/v1alpha1", "Application", "demo", &bad.name);
    let status = cluster.get(&target).await.expect("an answer").expect("an object")["status"].clone();
    assert_eq!(status["summary"]["state"], "Failed");
    assert!(status["summary"]["message"].as_str().is_some_and(|it| it.contains("longer than 24")), "{status}");
    assert!(status["summary"]["tip"].as_str().is_some_and(|it| it.contains("another name")), "{status}");
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["reason"]),
        (&json!("Ready"), &json!("BadName"))
    );
    let ApplicationEvent::Malformed(_) = next().await else { panic!("not malformed") };

    cluster.delete_application(&app()).await.expect("deleted");
    let gone = ApplicationEvent::Deleted { namespace: "demo".to_owned(), name: "web".to_owned() };
    assert_eq!(next().await, gone);
}

#[tokio::test]
async fn the_finalizer_holds_an_application() {
    let (_devcluster, cluster) = with_application().await;
    let target = reference("deckhouse.io/v1alpha1", "Application", "demo", "web");
    cluster.touch(&target, json!({"metadata": {"finalizers": ["example.org/other"]}})).await;
    assert!(cluster.ensure_finalizer(&app()).await.expect("added"));
    assert!(!cluster.ensure_finalizer(&app()).await.expect("there already"));
    assert!(cluster.delete_application(&app()).await.expect("asked to go"));
    let seen = cluster.application(&app()).await.expect("an answer").expect("held");
    assert!(seen.desired.deleting);
    assert_eq!(seen.application.metadata.finalizers, Some(vec!["example.org/other".to_owned(), FINALIZER.to_owned()]));
    assert!(cluster.remove_finalizer(&app()).await.expect("removed"));
    assert!(cluster.application(&app()).await.expect("an answer").is_some(), "another finalizer holds it");
    cluster.touch(&target, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(cluster.application(&app()).await.expect("an answer"), None);
    assert!(!cluster.remove_finalizer(&app()).await.expect("nothing to do"));
    assert_eq!(cluster.ensure_finalizer(&app()).await.expect_err("gone").reason(), "NotFound");
}

#[tokio::test]
async fn a_status_keeps_its_times_of_transition_and_is_written_only_when_it_changes() {
    let (_devcluster, cluster) = with_application().await;
    assert!(cluster.write_status(&app(), status("False"), time("2026-11-30T07:00:00.5Z")).await.expect("written"));
    assert!(!cluster.write_status(&app(), status("False"), time("2026-11-30T08:00:00Z")).await.expect("the same"));
    assert!(cluster.write_status(&app(), status("True"), time("2026-11-30T09:00:00Z")).await.expect("written"));
    let seen = cluster.application(&app()).await.expect("an answer").expect("there");
    let shown = seen.application.status.clone().expect("a status");
    let times: Vec<&str> = shown.conditions.iter().map(|it| it.last_transition_time.as_str()).collect();
    assert_eq!(times, ["2026-11-30T07:00:00Z", "2026-11-30T09:00:00Z"]);
    assert_eq!(seen.desired.generation, 1, "a status is no change of what is wanted");

    // A condition that is no longer said goes, and so does the step of a deletion.
    assert!(cluster.persist_deletion_step(&app(), DeletionStep::Uninstall).await.expect("written"));
    let seen = cluster.application(&app()).await.expect("an answer").expect("there");
    assert_eq!(seen.desired.deletion_step, Some(DeletionStep::Uninstall));
    let mut fewer = status("True");
    fewer.conditions.truncate(1);
    assert!(cluster.write_status(&app(), fewer, time("2026-11-30T10:00:00Z")).await.expect("written"));
    let seen = cluster.application(&app()).await.expect("an answer").expect("there");
    let shown = seen.application.status.clone().expect("a status");
    assert_eq!((shown.conditions.len(), shown.deletion_step), (1, None));
    cluster.delete_application(&app()).await.expect("deleted");
    assert!(!cluster.write_status(&app(), status("True"), time("2026-11-30T11:00:00Z")).await.expect("gone"));
}

#[tokio::test]
async fn repeated_events_are_counted() {
    let (_devcluster, cluster) = with_application().await;
    let uid = cluster.application(&app()).await.expect("an answer").expect("there").uid;
    for minute in 0..3 {
        let now = time(&format!("2026-11-30T07:0{minute}:00Z"));
        cluster.event(&app(), &uid, EventType::Warning, "HookFailed", "hook a failed", now).await;
    }
    cluster
        .event(&app(), &uid, EventType::Normal, "Installed", &"long ".repeat(1000), time("2026-11-30T07:05:00Z"))
        .await;
    let mut events = cluster.list(&super::gvk("v1", "Event"), Some("demo"), "").await.expect("listed");
    events.sort_by_key(|event| event["reason"].as_str().unwrap_or_default().to_owned());
    assert_eq!(events.len(), 2, "{events:#?}");
    assert_eq!((&events[0]["count"], &events[0]["type"]), (&json!(3), &json!("Warning")));
    assert_eq!(events[0]["lastTimestamp"], "2026-11-30T07:02:00Z");
    assert_eq!(events[0]["involvedObject"]["uid"], uid.as_str());
    assert_eq!(events[1]["message"].as_str().map(str::len), Some(1024));
}

/// What a real API server demands of a structural schema, as far as a derive can get it wrong.
#[test]
fn schemas_are_structural() {
    fn check(schema: &serde_json::Value, path: &str) {
        let Some(map) = schema.as_object() else { return };
        for word in ["$ref", "definitions", "oneOf", "anyOf", "allOf", "const", "$defs"] {
            assert!(!map.contains_key(word), "{path}: {word}");
        }
        assert!(map.contains_key("type"), "{path} has no type: {schema}");
        assert!(map.get("default") != Some(&serde_json::Value::Null), "{path}: default null");
        if map["type"] == "object" {
            assert!(!(map.contains_key("properties") && map.contains_key("additionalProperties")), "{path}");
        }
        if let Some(keys) = map.get("x-kubernetes-list-map-keys").and_then(serde_json::Value::as_array) {
            for key in keys {
                let required = map["items"]["required"].as_array();
                assert!(required.is_some_and(|required| required.contains(key)), "{path}: key {key} is not required");
            }
        }
        for (name, property) in map.get("properties").and_then(serde_json::Value::as_object).into_iter().flatten() {
            check(property, &format!("{path}.{name}"));
        }
        if let Some(items) = map.get("items") {
            check(items, &format!("{path}[]"));
        }
    }
    for crd in crate::crds() {
        let version = &crd["spec"]["versions"][0];
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        check(&version["schema"]["openAPIV3Schema"], name);
        assert!(version["subresources"].get("status").is_some(), "{name}");
    }
}

#[tokio::test]
async fn progress_is_shown_and_goes_again() {
    let (_devcluster, cluster) = with_application().await;
    let operation = TrackedOperation {
        id: "apply/v1/ConfigMap/demo/c".to_owned(),
        depends_on: vec!["stage/1".to_owned()],
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "c".to_owned(),
        namespace: "demo".to_owned(),
        r#type: OperationType::Apply,
        status: OperationStatus::Progressing,
    };
    let tracking = Tracking::of(vec![operation]);
    let shown = ApplicationStatus { tracking: serde_json::to_value(&tracking).ok(), ..status("False") };
    assert!(cluster.write_status(&app(), shown.clone(), time("2026-01-01T00:00:00Z")).await.expect("written"));
    assert!(!cluster.write_status(&app(), shown, time("2026-01-01T00:00:01Z")).await.expect("the same"));
    let target = reference("deckhouse.io/v1alpha1", "Application", "demo", "web");
    let live = cluster.read(&target).await.expect("there");
    assert_eq!(live["status"]["tracking"]["remaining"], 1);
    assert_eq!(live["status"]["tracking"]["report"]["operations"][0]["dependsOn"], json!(["stage/1"]));
    let stored: Tracking = serde_json::from_value(live["status"]["tracking"].clone()).expect("the same shape");
    assert_eq!(stored, tracking);
    cluster.write_status(&app(), status("True"), time("2026-01-01T00:00:02Z")).await.expect("written");
    let live = cluster.read(&target).await.expect("there");
    assert_eq!(live["status"].get("tracking"), None);
}

/// A process that was stopped may still be writing while its successor has come further.
#[tokio::test]
async fn the_step_of_a_deletion_is_never_taken_back() {
    let (_devcluster, cluster) = start(false).await;
    cluster.establish_crds().await.expect("established");
    cluster.create_application(&app(), "site", "1.0.0", &json!({})).await.expect("created");
    cluster.ensure_finalizer(&app()).await.expect("held");
    cluster.delete_application(&app()).await.expect("asked to go");
    let step = || async {
        let seen = cluster.application(&app()).await.expect("an answer").expect("there");
        seen.desired.deletion_step
    };
    for _ in 0..20 {
        let steps = [DeletionStep::BeforeHooks, DeletionStep::Purge, DeletionStep::Uninstall, DeletionStep::StopHooks];
        let id = app();
        let writes = steps.map(|step| cluster.persist_deletion_step(&id, step));
        for written in futures::future::join_all(writes).await {
            assert!(written.expect("written"), "there is an Application");
        }
        assert_eq!(step().await, Some(DeletionStep::Purge));
    }
    // Neither does a status that knows less.
    let status = crate::ApplicationStatus { deletion_step: Some("Uninstall".to_owned()), ..Default::default() };
    for status in [status, crate::ApplicationStatus { observed_generation: Some(7), ..Default::default() }] {
        cluster.write_status(&app(), status, jiff::Timestamp::now()).await.expect("written");
        assert_eq!(step().await, Some(DeletionStep::Purge));
    }
    assert!(cluster.persist_deletion_step(&app(), DeletionStep::Finalize).await.expect("written"));
    assert_eq!(step().await, Some(DeletionStep::Finalize));
}
