use std::time::Duration;

use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::{HelmHook, HookEvent, InventoryItem};
use serde_json::{Value, json};

use super::{app, config_map, drain, gvk, options, plan_for, reference, removal, removal_of, start};
use crate::{Change, Progress, ReleaseError};

const SOON: Duration = Duration::from_secs(20);

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "registry/app:1"}]}}},
    })
}

fn plain(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn hook(name: &str, events: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"helm.sh/hook": events, "helm.sh/hook-delete-policy": policy}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}},
    })
}

fn forged_item(target: ObjectRef) -> InventoryItem {
    InventoryItem { target, keep: false, transient: false, propagation: None, delete_dependencies: Vec::new() }
}

fn names(targets: &[barbless_domain::identity::ObjectRef]) -> Vec<&str> {
    targets.iter().map(|target| target.name.as_str()).collect()
}

#[tokio::test]
async fn a_release_is_applied_changed_pruned_and_removed() {
    let (_devcluster, cluster) = start(true).await;
    let (options, mut events) = options(SOON);
    let mut kept = plain("kept", json!({}));
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    let objects = vec![deployment("web"), plain("settings", json!({"a": "1"})), plain("goes", json!({})), kept];
    let first = plan_for(&cluster, objects.clone(), &[]).await;
    let applied = cluster.apply_release(&first, &options).await.expect("applied");
    assert!(applied.objects.iter().all(|(_, change)| *change == Change::Created), "{applied:?}");
    let told = drain(&mut events);
    let web = reference("apps/v1", "Deployment", "demo", "web");
    assert!(told.contains(&Progress::Ready { target: web.clone() }), "{told:?}");
    let live = cluster.read(&web).await.expect("there");
    assert_eq!(live["status"]["readyReplicas"], 1, "it was waited for");

    let again = plan_for(&cluster, objects, &first.inventory()).await;
    let again = cluster.apply_release(&again, &options).await.expect("applied");
    assert!(again.objects.iter().all(|(_, change)| *change == Change::Unchanged), "{again:?}");

    let objects = vec![deployment("web"), plain("settings", json!({"b": "2"}))];
    let second = plan_for(&cluster, objects, &first.inventory()).await;
    let applied = cluster.apply_release(&second, &options).await.expect("applied");
    assert_eq!(names(&applied.pruned), ["goes"]);
    assert_eq!(applied.left.iter().map(|(target, _)| target.name.as_str()).collect::<Vec<_>>(), ["kept"]);
    let settings = cluster.read(&reference("v1", "ConfigMap", "demo", "settings")).await.expect("there");
    assert_eq!(settings["data"], json!({"b": "2"}), "a field that is dropped goes");
    assert!(cluster.read(&reference("v1", "ConfigMap", "demo", "kept")).await.is_some());

    let removal = removal_of(&second);
    let removed = cluster.uninstall(&removal, &options).await.expect("removed");
    assert_eq!(names(&removed.deleted), ["web", "settings"]);
    assert!(cluster.read(&web).await.is_none());
    let again = cluster.uninstall(&removal, &options).await.expect("nothing to do");
    assert!(again.deleted.is_empty());
}

#[tokio::test]
async fn all_objects_of_others_are_listed_and_nothing_is_written() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(config_map("theirs", json!({"k": "v"}))).await;
    let mut other = config_map("others", json!({}));
    other["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "db"});
    cluster.put(other).await;
    let objects = vec![plain("mine", json!({})), plain("theirs", json!({})), plain("others", json!({}))];
    let plan = plan_for(&cluster, objects, &[]).await;
    let (options, _events) = options(SOON);
    let error = cluster.apply_release(&plan, &options).await.expect_err("refused");
    let ReleaseError::NotOurs { objects } = &error else { panic!("{error:?}") };
    assert_eq!(objects.iter().map(|it| it.target.name.as_str()).collect::<Vec<_>>(), ["theirs", "others"]);
    assert_eq!(error.reason(), "ObjectNotOwned");
    assert!(cluster.read(&reference("v1", "ConfigMap", "demo", "mine")).await.is_none());
}

#[tokio::test]
async fn an_object_of_the_last_apply_is_ours_without_its_label() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let plan = plan_for(&cluster, vec![plain("c", json!({}))], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let target = reference("v1", "ConfigMap", "demo", "c");
    cluster.touch(&target, json!({"metadata": {"labels": {"packages.deckhouse.io/instance": null}}})).await;
    let plan = plan_for(&cluster, vec![plain("c", json!({}))], &plan.inventory()).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let live = cluster.read(&target).await.expect("there");
    assert_eq!(live["metadata"]["labels"]["packages.deckhouse.io/instance"], "web");
}

#[tokio::test]
async fn a_conflict_names_object_field_and_manager() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let plan = plan_for(&cluster, vec![plain("c", json!({"k": "1"}))], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    cluster.touch(&reference("v1", "ConfigMap", "demo", "c"), json!({"data": {"k": "theirs"}})).await;
    let plan = plan_for(&cluster, vec![plain("c", json!({"k": "2"}))], &plan.inventory()).await;
    let error = cluster.apply_release(&plan, &options).await.expect_err("a conflict");
    assert_eq!(error.reason(), "FieldConflict");
    assert_eq!(error.to_string(), r#"ConfigMap demo/c: field .data.k belongs to manager "somebody""#);
}

#[tokio::test]
async fn a_time_out_names_what_it_waited_for_and_its_pods() {
    // Without controllers nothing becomes ready.
    let (_devcluster, cluster) = start(false).await;
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "w0-1", "namespace": "demo", "labels": {"app": "w0"}},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    });
    cluster.put(pod.clone()).await;
    pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "ready": false, "restartCount": 3,
        "image": "i", "imageID": "", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2}}}]});
    let at = reference("v1", "Pod", "demo", "w0-1");
    let resource = cluster.resolve(&at.gvk).await.expect("served");
    let target = crate::request::Target { resource: &resource, object: &at };
    cluster.replace_in(&target, Some("status"), "kubelet", &pod).await.expect("written");

    // It has failed often, and may.
    let patient = |object| annotated(object, "werf.io/failures-allowed-per-replica", "100");
    let objects = (0..7).map(|index| patient(deployment(&format!("w{index}")))).collect();
    let plan = plan_for(&cluster, objects, &[]).await;
    let (options, mut events) = options(Duration::from_millis(500));
    let error = cluster.apply_release(&plan, &options).await.expect_err("a time-out");
    let ReleaseError::TimedOut { pending, more, .. } = &error else { panic!("{error:?}") };
    assert_eq!((pending.len(), *more), (5, 2));
    assert_eq!(
        pending[0].1, "0 of 1 replicas are ready (Pod w0-1, container main: CrashLoopBackOff (exit code 2))",
        "{error}"
    );
    let told = drain(&mut events);
    let failing = told.iter().filter(|it| matches!(it, Progress::PodFailing(trouble) if trouble.exit_code == Some(2)));
    assert_eq!(failing.count(), 1, "{told:?}");
}

#[tokio::test]
async fn a_cancelled_apply_ends_at_once() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let plan = plan_for(&cluster, vec![deployment("web")], &[]).await;
    let cancel = options.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    });
    let begun = std::time::Instant::now();
    let error = cluster.apply_release(&plan, &options).await.expect_err("cancelled");
    assert!(matches!(error, ReleaseError::Cancelled), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn custom_resources_come_with_their_definition_and_go_before_it() {
    let (_devcluster, cluster) = start(true).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 3});
    let (options, mut events) = options(SOON);
    let plan = plan_for(&cluster, vec![widget, definition], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    assert!(cluster.read(&reference("example.org/v1", "Widget", "demo", "w")).await.is_some());
    drain(&mut events);
    let removal = removal_of(&plan);
    cluster.uninstall(&removal, &options).await.expect("removed");
    let gone: Vec<String> = drain(&mut events)
        .into_iter()
        .filter_map(|it| match it {
            Progress::Gone { target } => Some(target.name),
            _ => None,
        })
        .collect();
    assert_eq!(gone, ["w", "widgets.example.org"]);
}

#[tokio::test]
async fn a_removal_that_a_finalizer_holds_names_it() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(Duration::from_millis(500));
    let plan = plan_for(&cluster, vec![plain("held", json!({})), plain("free", json!({}))], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let held = reference("v1", "ConfigMap", "demo", "held");
    cluster.touch(&held, json!({"metadata": {"finalizers": ["example.org/hold"]}})).await;
    let removal = removal_of(&plan);
    let error = cluster.uninstall(&removal, &options).await.expect_err("held");
    let ReleaseError::Remaining { remaining, .. } = &error else { panic!("{error:?}") };
    assert_eq!(remaining.len(), 1);
    assert_eq!(
        (remaining[0].target.name.as_str(), &remaining[0].finalizers[..]),
        ("held", &["example.org/hold".to_owned()][..])
    );
    assert!(error.to_string().contains("held by finalizers example.org/hold"), "{error}");
    // Released meanwhile, the removal goes on where it stopped.
    cluster.touch(&held, json!({"metadata": {"finalizers": null}})).await;
    cluster.uninstall(&removal, &options).await.expect("removed");
    assert!(cluster.read(&held).await.is_none());
}

#[tokio::test]
async fn a_removal_leaves_what_is_not_ours_and_what_is_kept_by_hand() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let plan = plan_for(&cluster, vec![plain("taken", json!({})), plain("held", json!({}))], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let taken = reference("v1", "ConfigMap", "demo", "taken");
    cluster.touch(&taken, json!({"metadata": {"labels": {"packages.deckhouse.io/instance": "db"}}})).await;
    let held = reference("v1", "ConfigMap", "demo", "held");
    cluster.touch(&held, json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}})).await;
    let removal = removal_of(&plan);
    let removed = cluster.uninstall(&removal, &options).await.expect("done");
    assert!(removed.deleted.is_empty());
    assert_eq!(removed.left.len(), 2);
    assert!(cluster.read(&taken).await.is_some() && cluster.read(&held).await.is_some());
}

#[tokio::test]
async fn helm_hooks_run_around_the_release() {
    let (_devcluster, cluster) = start(true).await;
    let (options, mut events) = options(SOON);
    let objects = vec![
        hook("migrate", "pre-install,pre-upgrade", "before-hook-creation"),
        hook("notify", "post-install", "hook-succeeded"),
        hook("bye", "pre-delete", "hook-succeeded"),
        plain("settings", json!({})),
    ];
    let plan = plan_for(&cluster, objects.clone(), &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let order = |told: Vec<Progress>| -> Vec<String> {
        told.into_iter()
            .filter_map(|it| match it {
                Progress::HookSucceeded { target, event } => Some(format!("{} {}", event.as_str(), target.name)),
                Progress::Applied { target, .. } => Some(format!("applied {}", target.name)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(order(drain(&mut events)), ["pre-install migrate", "applied settings", "post-install notify"]);
    let migrate = reference("batch/v1", "Job", "demo", "migrate");
    let first = cluster.read(&migrate).await.expect("it stays");
    assert!(cluster.read(&reference("batch/v1", "Job", "demo", "notify")).await.is_none());

    let plan = plan_for(&cluster, objects, &plan.inventory()).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    assert_eq!(order(drain(&mut events)), ["pre-upgrade migrate", "applied settings"]);
    let second = cluster.read(&migrate).await.expect("it stays");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"], "the hook is made anew");

    let removal = removal_of(&plan);
    cluster.uninstall(&removal, &options).await.expect("removed");
    assert_eq!(order(drain(&mut events)), ["pre-delete bye"]);
}

#[tokio::test]
async fn hooks_that_succeeded_are_deleted_last_first_after_the_last_hook() {
    let (_devcluster, cluster) = start(true).await;
    let (options, mut events) = options(SOON);
    let weighted = |name: &str, weight: &str, policy: &str| {
        let mut job = hook(name, "pre-install", policy);
        job["metadata"]["annotations"]["helm.sh/hook-weight"] = json!(weight);
        job
    };
    let objects = vec![
        weighted("j3", "3", "before-hook-creation"),
        weighted("j1", "1", "hook-succeeded"),
        weighted("j2", "2", "hook-succeeded"),
    ];
    let plan = plan_for(&cluster, objects, &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    let told: Vec<String> = drain(&mut events)
        .into_iter()
        .filter_map(|it| match it {
            Progress::HookSucceeded { target, .. } => Some(format!("ran {}", target.name)),
            Progress::Deleting { target } => Some(format!("deleted {}", target.name)),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["ran j1", "ran j2", "ran j3", "deleted j2", "deleted j1"]);
}

#[tokio::test]
async fn applications_of_one_name_do_not_share_cluster_scoped_objects() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1});
    let plan = plan_for(&cluster, vec![class], &[]).await;
    cluster.apply_release(&plan, &options).await.expect("applied");
    cluster.apply_release(&plan, &options).await.expect("applied again");
    let mut theirs = plan.clone();
    theirs.application = ApplicationId::new("other", "web").expect("a valid id");
    let error = cluster.apply_release(&theirs, &options).await.expect_err("refused");
    assert!(error.to_string().contains(r#"PriorityClass.scheduling.k8s.io high (application "demo.web")"#), "{error}");
    let removed = cluster.uninstall(&removal_of(&theirs), &options).await.expect("done");
    assert!(removed.deleted.is_empty());
}

#[tokio::test]
async fn a_failed_hook_stops_the_release() {
    let (_devcluster, cluster) = start(false).await;
    let (options, mut events) = options(SOON);
    let objects = vec![hook("migrate", "pre-install", "hook-failed"), plain("settings", json!({}))];
    let plan = plan_for(&cluster, objects, &[]).await;
    let target = reference("batch/v1", "Job", "demo", "migrate");
    // The part of the Job controller, for a Job that fails.
    let failing = async {
        let resource = cluster.resolve(&gvk("batch/v1", "Job")).await.expect("served");
        let mut job = loop {
            match cluster.read(&target).await {
                Some(job) => break job,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let condition = |which: &str| json!({"type": which, "status": "True", "reason": "BackoffLimitExceeded", "message": "too many failures"});
        job["status"] = json!({"failed": 1, "startTime": "2026-01-01T00:00:00Z",
            "conditions": [condition("FailureTarget"), condition("Failed")]});
        let at = crate::request::Target { resource: &resource, object: &target };
        cluster.replace_in(&at, Some("status"), "job-controller", &job).await.expect("written");
    };
    let (outcome, ()) = tokio::join!(cluster.apply_release(&plan, &options), failing);
    let error = outcome.expect_err("the hook fails");
    assert_eq!(error.reason(), "HelmHookFailed");
    assert_eq!(
        error.to_string(),
        "helm hook Job.batch demo/migrate (pre-install) failed: BackoffLimitExceeded: too many failures"
    );
    assert!(
        cluster.read(&reference("v1", "ConfigMap", "demo", "settings")).await.is_none(),
        "nothing else was applied"
    );
    assert!(cluster.read(&target).await.is_none(), "its policy deletes it");
    assert!(drain(&mut events).iter().any(|it| matches!(it, Progress::HookFailed { .. })));
}

#[tokio::test]
async fn a_job_whose_template_changed_is_made_anew() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(SOON);
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "seed"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}}}})
    };
    let first = plan_for(&cluster, vec![job("i:1")], &[]).await;
    cluster.apply_release(&first, &options).await.expect("applied");
    let target = reference("batch/v1", "Job", "demo", "seed");
    let before = cluster.read(&target).await.expect("there");
    let second = plan_for(&cluster, vec![job("i:2")], &first.inventory()).await;
    let applied = cluster.apply_release(&second, &options).await.expect("applied");
    assert_eq!(applied.objects[0].1, Change::Recreated);
    let after = cluster.read(&target).await.expect("there");
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["spec"]["template"]["spec"]["containers"][0]["image"], "i:2");
}

#[tokio::test]
async fn a_forged_inventory_does_not_reach_other_namespaces() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let mut elsewhere = config_map("c", json!({}));
    elsewhere["metadata"]["namespace"] = json!("other");
    cluster.put(elsewhere).await;
    let target = reference("v1", "ConfigMap", "other", "c");
    let forged = [forged_item(target.clone())];
    let plan = plan_for(&cluster, vec![plain("mine", json!({}))], &forged).await;
    let applied = cluster.apply_release(&plan, &options).await.expect("applied");
    assert!(applied.pruned.is_empty());
    let removed = cluster.uninstall(&removal(&forged, &plan.hooks), &options).await;
    assert_eq!(removed.expect("done").left.len(), 1);
    assert!(cluster.read(&target).await.is_some());
}

#[tokio::test]
async fn a_forged_inventory_reaches_neither_the_cluster_nor_the_host() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "precious"}})).await;
    let record = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {"name": "sh.helm.release.v1.demo.other.v1", "namespace": "demo", "labels": {"owner": "helm"}},
    });
    cluster.put(record).await;
    let targets = [
        reference("v1", "Namespace", "", "precious"),
        reference("v1", "Secret", "demo", "sh.helm.release.v1.demo.other.v1"),
    ];
    let forged = targets.clone().map(forged_item);
    let plan = plan_for(&cluster, vec![plain("mine", json!({}))], &forged).await;
    let applied = cluster.apply_release(&plan, &options).await.expect("applied");
    assert!(applied.pruned.is_empty(), "{applied:?}");
    let removed = cluster.uninstall(&removal(&forged, &plan.hooks), &options).await;
    assert_eq!(removed.expect("done").left.len(), 2);
    for target in targets {
        assert!(cluster.read(&target).await.is_some(), "{target} is gone");
    }
}

#[tokio::test]
async fn forged_hooks_of_a_record_are_not_applied() {
    let (_devcluster, cluster) = start(true).await;
    let (options, mut events) = options(SOON);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "root"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let mut elsewhere = plain("elsewhere", json!({}));
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let mut record = plain("sh.helm.release.v1.demo.other.v1", json!({}));
    record["metadata"]["namespace"] = json!("demo");
    let mut own = hook("own", "pre-delete", "hook-succeeded");
    own["metadata"]["namespace"] = json!("demo");
    own["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": app().name()});
    let forge = |object: Value| HelmHook {
        target: ObjectRef::of(&object).expect("an object"),
        object,
        source: "templates/hook.yaml".to_owned(),
        events: [HookEvent::PreDelete, HookEvent::PostDelete].into(),
        weight: 0,
        delete_policies: [].into(),
    };
    let mut disguised = forge(binding.clone());
    disguised.target = reference("v1", "ConfigMap", "demo", "harmless");
    let mut hooks: Vec<HelmHook> = [binding, elsewhere, record].into_iter().map(forge).collect();
    hooks.push(disguised);
    let targets: Vec<ObjectRef> = hooks.iter().map(|hook| hook.target.clone()).collect();
    hooks.push(forge(own));
    let hooks = [(HookEvent::PreDelete, hooks.clone()), (HookEvent::PostDelete, hooks)].into();
    let removed = cluster.uninstall(&removal(&[], &hooks), &options).await.expect("removed");
    assert_eq!(removed.left.len(), 2 * targets.len(), "{removed:?}");
    for target in targets {
        assert!(cluster.read(&target).await.is_none(), "{target} was made");
    }
    let ran = drain(&mut events).iter().filter(|it| matches!(it, Progress::HookSucceeded { .. })).count();
    assert_eq!(ran, 2, "the hook of the package itself runs");
}

#[tokio::test]
async fn an_inventory_item_knows_whether_it_is_kept() {
    let mut kept = config_map("kept", json!({}));
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": " Keep "});
    let items = InventoryItem::of_objects([&kept, &config_map("plain", json!({})), &json!({"kind": "Bad"})]);
    assert_eq!(items.iter().map(|item| item.keep).collect::<Vec<_>>(), [true, false]);
}

fn annotated(mut object: Value, name: &str, value: &str) -> Value {
    object["metadata"]["annotations"][name] = json!(value);
    object
}

#[tokio::test]
async fn what_cannot_be_changed_is_made_anew_only_where_that_is_allowed() {
    let (_devcluster, cluster) = start(true).await;
    let (options, _events) = options(SOON);
    let fixed = |data: &str| {
        let mut object = plain("fixed", json!({"k": data}));
        object["immutable"] = json!(true);
        object
    };
    let first = plan_for(&cluster, vec![fixed("1")], &[]).await;
    cluster.apply_release(&first, &options).await.expect("applied");
    let second = plan_for(&cluster, vec![fixed("2")], &first.inventory()).await;
    let error = cluster.apply_release(&second, &options).await.expect_err("refused");
    assert_eq!(error.reason(), "ImmutableField");
    assert!(error.hint().is_some_and(|hint| hint.contains("before-creation-if-immutable")), "{error:?}");
    let asked = annotated(fixed("2"), "werf.io/delete-policy", "before-creation-if-immutable");
    let third = plan_for(&cluster, vec![asked], &first.inventory()).await;
    let applied = cluster.apply_release(&third, &options).await.expect("applied");
    assert_eq!(applied.objects[0].1, Change::Recreated);
    let live = cluster.read(&reference("v1", "ConfigMap", "demo", "fixed")).await.expect("there");
    assert_eq!(live["data"]["k"], "2");
}

#[tokio::test]
async fn resource_policies_are_heeded() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let policy = |name: &str, data: &str, policy: &str| {
        annotated(plain(name, json!({"k": data})), "werf.io/resource-policy", policy)
    };
    let objects = vec![policy("never", "1", "skip-create"), policy("once", "1", "skip-update")];
    let first = plan_for(&cluster, objects, &[]).await;
    let applied = cluster.apply_release(&first, &options).await.expect("applied");
    assert_eq!(applied.left.iter().map(|(target, _)| target.name.as_str()).collect::<Vec<_>>(), ["never"]);
    assert!(cluster.read(&reference("v1", "ConfigMap", "demo", "never")).await.is_none());
    let second = plan_for(&cluster, vec![policy("once", "2", "skip-update")], &first.inventory()).await;
    cluster.apply_release(&second, &options).await.expect("applied");
    let once = cluster.read(&reference("v1", "ConfigMap", "demo", "once")).await.expect("there");
    assert_eq!(once["data"]["k"], "1");
}

#[tokio::test]
async fn conflicts_are_settled_by_rules_field_by_field() {
    use barbless_domain::release::conflict::{Rule, Settlement};
    let (_devcluster, cluster) = start(false).await;
    let (mut options, _events) = options(SOON);
    let first = plan_for(&cluster, vec![plain("c", json!({"a": "1", "b": "1"}))], &[]).await;
    cluster.apply_release(&first, &options).await.expect("applied");
    let target = reference("v1", "ConfigMap", "demo", "c");
    cluster.touch(&target, json!({"data": {"a": "theirs", "b": "theirs"}})).await;
    let second = plan_for(&cluster, vec![plain("c", json!({"a": "2", "b": "2"}))], &first.inventory()).await;
    let rule = |field: &str, settlement| Rule { object: "ConfigMap/c".to_owned(), field: field.to_owned(), settlement };
    options.rules = vec![rule(".data.a", Settlement::Take)];
    let error = cluster.apply_release(&second, &options).await.expect_err("b is open");
    assert_eq!(error.to_string(), r#"ConfigMap demo/c: field .data.b belongs to manager "somebody""#);
    options.rules.push(rule(".data.b", Settlement::Yield));
    cluster.apply_release(&second, &options).await.expect("applied");
    let live = cluster.read(&target).await.expect("there");
    assert_eq!(live["data"], json!({"a": "2", "b": "theirs"}));
}

#[tokio::test]
async fn replicas_on_creation_are_given_once() {
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(SOON);
    let web = |image: &str| {
        let mut object = annotated(deployment("web"), "werf.io/replicas-on-creation", "3");
        object["metadata"]["annotations"]["werf.io/track-termination-mode"] = json!("NonBlocking");
        object["spec"].as_object_mut().expect("a map").remove("replicas");
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        object
    };
    let first = plan_for(&cluster, vec![web("i:1")], &[]).await;
    cluster.apply_release(&first, &options).await.expect("applied");
    let target = reference("apps/v1", "Deployment", "demo", "web");
    assert_eq!(cluster.read(&target).await.expect("there")["spec"]["replicas"], 3);
    let second = plan_for(&cluster, vec![web("i:2")], &first.inventory()).await;
    cluster.apply_release(&second, &options).await.expect("applied");
    assert_eq!(cluster.read(&target).await.expect("there")["spec"]["replicas"], 3, "a later apply leaves them");
}
