//! Records in the cluster: what Helm reads, the lock, the limits of history and size.

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::history::Action;
use barbless_domain::release::{HookEvent, Plan, PlanInput, ReleaseAction, ReleaseStatus, Rendered, plan};
use barbless_domain::values::Patches;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{app, plan_for, reference, start};
use crate::{Cluster, HookPhase, NewRevision, Record, RecordError};

pub(super) fn now() -> Timestamp {
    "2026-11-30T07:00:00Z".parse().expect("a time")
}

pub(super) fn later(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn objects(data: &Value) -> Vec<Value> {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    let hook = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "annotations": {
            "helm.sh/hook": "pre-delete", "helm.sh/hook-weight": "3", "helm.sh/hook-output-log-policy": "hook-failed"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    vec![config, hook]
}

/// An upgrade with the defaults that most tests want.
pub(super) fn revision<'a>(plan: &'a Plan, settings: &'a Value, owner: &'a str, now: Timestamp) -> NewRevision<'a> {
    NewRevision {
        plan,
        action: Action::Upgrade,
        package_version: "1.2.3",
        settings,
        notes: "look at it\n",
        owner,
        now,
        rollback_of: None,
        set_aside: None,
        seed: Some("5eed"),
        patches: const { &Patches::EMPTY },
        take_over: false,
        kept_revisions: 10,
    }
}

async fn begin(cluster: &Cluster, data: &Value, owner: &str, now: Timestamp) -> Result<Record, RecordError> {
    let plan = plan_for(cluster, objects(data), &[]).await;
    let settings = json!({"replicas": 2});
    let action = match cluster.latest_release(&app()).await.expect("an answer") {
        None => Action::Install,
        Some(_) => Action::Upgrade,
    };
    cluster.begin_release(&app(), NewRevision { action, ..revision(&plan, &settings, owner, now) }).await
}

async fn deploy(cluster: &Cluster, data: &Value) -> Record {
    let mut record = begin(cluster, data, "me", now()).await.expect("begun");
    cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", now()).await.expect("finished");
    record
}

fn secret_of(revision: u32) -> ObjectRef {
    reference("v1", "Secret", "demo", &format!("sh.helm.release.v1.web.v{revision}"))
}

/// The JSON in the Secret of a revision.
async fn stored(cluster: &Cluster, revision: u32) -> Value {
    let secret = cluster.read(&secret_of(revision)).await.expect("a Secret");
    // Three layers: the Secret's base64, Helm's base64, gzip.
    let once = STANDARD.decode(secret["data"]["release"].as_str().expect("text")).expect("base64");
    let packed = STANDARD.decode(once).expect("base64 again");
    serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice())).expect("JSON")
}

#[tokio::test]
async fn a_record_comes_back_as_it_was() {
    let (_devcluster, cluster) = start(false).await;
    assert_eq!(cluster.latest_release(&app()).await.expect("an answer"), None);
    let tricky = json!({"text": "line\n---\nmore: \"quoted\"", "yes": "yes", "number": "1e3"});
    let record = deploy(&cluster, &tricky).await;
    let back = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    assert_eq!(back, record);
    let plan = plan_for(&cluster, objects(&tricky), &[]).await;
    assert_eq!(back.digest, plan.digest, "an unchanged package needs no upgrade");
    assert_eq!(back.hooks().keys().copied().collect::<Vec<_>>(), [HookEvent::PreDelete]);
    assert_eq!((back.revision, back.hooks[0].hook.weight), (1, 3));
}

#[tokio::test]
async fn the_secret_is_what_helm_reads() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({"k": "v"})).await;
    let secret = cluster.read(&secret_of(1)).await.expect("a Secret");
    assert_eq!(secret["type"], "helm.sh/release.v1");
    let labels = &secret["metadata"]["labels"];
    for (label, value) in [("name", "web"), ("owner", "helm"), ("status", "deployed"), ("version", "1")] {
        assert_eq!(labels[label], value);
    }
    let release = stored(&cluster, 1).await;
    assert_eq!(
        (&release["name"], &release["namespace"], &release["version"]),
        (&json!("web"), &json!("demo"), &json!(1))
    );
    assert_eq!(release["info"]["status"], "deployed");
    assert_eq!(
        release["chart"]["metadata"],
        json!({"apiVersion": "v2", "appVersion": "1.2.3", "name": "site", "version": "1.2.3"})
    );
    assert_eq!(release["config"], json!({"replicas": 2}));
    assert_eq!(release["hooks"][0]["events"], json!(["pre-delete"]));
    assert_eq!(release["info"]["notes"], "look at it\n");
    assert_eq!(release["info"]["first_deployed"], "2026-11-30T07:00:00Z");
    assert_eq!(release["apply_method"], "ssa");
    let hook = &release["hooks"][0];
    assert_eq!((&hook["name"], &hook["kind"], &hook["weight"]), (&json!("j"), &json!("Job"), &json!(3)));
    assert_eq!(hook["delete_policies"], json!(["before-hook-creation"]));
    assert_eq!(hook["output_log_policies"], json!(["hook-failed"]));
    let manifest = release["manifest"].as_str().expect("text");
    assert_eq!(
        manifest,
        "---\n# Source: templates/all.yaml\napiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\nmetadata:\n  labels:\n    heritage: \
         deckhouse\n    packages.deckhouse.io/instance: web\n    packages.deckhouse.io/package: site\n  name: c\n  namespace: \
         demo\n"
    );
}

#[tokio::test]
async fn revisions_follow_each_other_and_history_is_bounded() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({"n": "1"})).await;
    for index in 2..=13 {
        let mut record = begin(&cluster, &json!({"n": index.to_string()}), "me", now()).await.expect("begun");
        assert_eq!(record.status, ReleaseStatus::PendingUpgrade);
        cluster.finish_release(&mut record, ReleaseStatus::Failed, "broken", now()).await.expect("finished");
    }
    let history = cluster.release_history(&app()).await.expect("an answer");
    let revisions: Vec<u32> = history.iter().map(|record| record.revision).collect();
    // The newest deployed revision is never the one to go.
    assert_eq!(revisions, [1, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    let last = deploy(&cluster, &json!({"n": "14"})).await;
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(history[0].status, ReleaseStatus::Superseded);
    assert_eq!(history.iter().filter(|it| it.status == ReleaseStatus::Deployed).count(), 1);
    assert_eq!(history.last().map(|it| it.revision), Some(last.revision));
    cluster.delete_releases(&app()).await.expect("deleted");
    assert!(cluster.release_history(&app()).await.expect("an answer").is_empty());
}

#[tokio::test]
async fn a_pending_revision_locks_while_its_owner_lives() {
    let (_devcluster, cluster) = start(false).await;
    let mut record = begin(&cluster, &json!({}), "one", now()).await.expect("begun");
    let refused = begin(&cluster, &json!({}), "two", later(30)).await.expect_err("in progress");
    assert_eq!(refused.reason(), "ReleaseInProgress");
    cluster.release_heartbeat(&record, later(50)).await.expect("a sign of life");
    begin(&cluster, &json!({}), "two", later(100)).await.expect_err("still in progress");
    let taken = begin(&cluster, &json!({}), "two", later(200)).await.expect("the owner is dead");
    assert_eq!(taken.revision, 2);
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(history[0].status, ReleaseStatus::Failed);
    // It was only slow. Nothing of what it writes goes over what the other wrote.
    let slow = cluster.release_heartbeat(&record, later(201)).await.expect_err("taken over");
    assert_eq!(slow.reason(), "ReleaseTakenOver");
    let slow = cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", later(202)).await;
    assert_eq!(slow.expect_err("taken over").reason(), "ReleaseTakenOver");
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(
        history.iter().map(|it| it.status).collect::<Vec<_>>(),
        [ReleaseStatus::Failed, ReleaseStatus::PendingUpgrade]
    );
    // The same process goes on after a restart of its work.
    begin(&cluster, &json!({}), "two", later(203)).await.expect("its own");
}

#[tokio::test]
async fn a_bad_record_does_not_hide_the_others() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({})).await;
    for (name, data) in
        [("v7", json!({"release": "!!!"})), ("v8", json!({})), ("v9", json!({"release": STANDARD.encode("x")}))]
    {
        // The API server refuses what is no base64 at all.
        let data =
            if name == "v7" { json!({"release": STANDARD.encode(STANDARD.encode([0x1f, 0x8b, 0]))}) } else { data };
        cluster
            .put(json!({
                "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": data,
                "metadata": {"name": format!("sh.helm.release.v1.web.{name}"), "namespace": "demo",
                    "labels": {"owner": "helm", "name": "web", "packages.deckhouse.io/instance": "web",
                        "version": name.trim_start_matches('v')}},
            }))
            .await;
    }
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(history.iter().map(|it| it.revision).collect::<Vec<_>>(), [1]);
    let latest = cluster.latest_release(&app()).await.expect("an answer");
    assert_eq!(latest.map(|it| it.revision), Some(1));
}

#[tokio::test]
async fn a_record_that_does_not_fit_names_the_largest_objects() {
    let (devcluster, cluster) = start(false).await;
    let noise = noise(1_100_000);
    let before = devcluster.requests().get("create").copied();
    let refused = begin(&cluster, &json!({"noise": noise}), "me", now()).await.expect_err("too large");
    assert_eq!(refused.reason(), "ReleaseTooLarge");
    assert!(refused.to_string().contains("ConfigMap demo/c ("), "{refused}");
    assert_eq!(devcluster.requests().get("create").copied(), before, "nothing was written");
}

/// Text that does not compress: a simple generator of pseudo-random letters.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap_or(0))
        })
        .collect()
}

fn patches(value: &Value) -> Patches {
    serde_json::from_value(json!({"entries": [{"hook": "h", "pointer": "/internal/a", "value": [value]}]}))
        .expect("patches")
}

#[tokio::test]
async fn what_hooks_set_is_kept_in_the_record_and_brought_up_to_date_if_it_fits() {
    let (devcluster, cluster) = start(false).await;
    let plan = plan_for(&cluster, objects(&json!({})), &[]).await;
    let (settings, one, two) = (json!({}), patches(&json!(1)), patches(&json!(null)));
    let new = NewRevision { action: Action::Install, patches: &one, ..revision(&plan, &settings, "me", now()) };
    let mut record = cluster.begin_release(&app(), new).await.expect("begun");
    let latest = || async { cluster.latest_release(&app()).await.expect("an answer").expect("a record") };
    assert_eq!(latest().await.patches, one);
    cluster.keep_patches(&mut latest().await, &two, now()).await.expect("nothing is done");
    assert_eq!(latest().await.patches, one, "somebody works on it");
    cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", now()).await.expect("finished");
    assert_eq!(latest().await.patches, one);

    cluster.keep_patches(&mut latest().await, &two, now()).await.expect("written");
    let written = latest().await;
    assert_eq!((&written.patches, written.status, written.revision), (&two, ReleaseStatus::Deployed, 1));
    let requests = devcluster.request_count();
    cluster.keep_patches(&mut written.clone(), &two, now()).await.expect("nothing is done");
    assert_eq!(devcluster.request_count(), requests, "what is so already is not written");

    let large = patches(&json!(noise(1_100_000)));
    cluster.keep_patches(&mut latest().await, &large, now()).await.expect("written without");
    assert!(latest().await.patches.is_empty(), "what is out of date is worse than nothing");
    let new = NewRevision { patches: &large, ..revision(&plan, &settings, "me", now()) };
    let record = cluster.begin_release(&app(), new).await.expect("a release does not fail for it");
    assert!(record.patches.is_empty());
    assert!(latest().await.patches.is_empty());
}

#[tokio::test]
async fn of_two_at_once_one_begins() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({})).await;
    let (one, two) = (json!({"n": "1"}), json!({"n": "2"}));
    let (one, two) = tokio::join!(begin(&cluster, &one, "one", now()), begin(&cluster, &two, "two", now()));
    let ((Ok(_), Err(refused)) | (Err(refused), Ok(_))) = (one, two) else { panic!("exactly one begins") };
    assert_eq!(refused.reason(), "ReleaseInProgress");
    assert!(refused.to_string().contains("revision 2 is pending-upgrade by "), "{refused}");
    assert_eq!(cluster.release_history(&app()).await.expect("an answer").len(), 2);
}

#[tokio::test]
async fn what_is_no_record_is_not_overwritten() {
    let (_devcluster, cluster) = start(false).await;
    cluster
        .put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sh.helm.release.v1.web.v1", "namespace": "demo"}}))
        .await;
    let refused = begin(&cluster, &json!({}), "me", now()).await.expect_err("occupied");
    assert_eq!(refused.reason(), "ReleaseNameOccupied");
}

#[tokio::test]
async fn hooks_are_recorded_with_one_write_before_each() {
    let (devcluster, cluster) = start(false).await;
    let writes = || {
        ["create", "update", "patch"].iter().filter_map(|verb| devcluster.requests().get(*verb).copied()).sum::<u64>()
    };
    let before = writes();
    let mut record = begin(&cluster, &json!({}), "me", now()).await.expect("begun");
    let job = record.hooks[0].hook.target.clone();
    for run in [10, 20] {
        cluster.hook_started(&mut record, &job, later(run)).await.expect("written");
        let running = json!({"started_at": later(run).to_string(), "completed_at": "", "phase": "Running"});
        assert_eq!(stored(&cluster, 1).await["hooks"][0]["last_run"], running);
        record.hook_ended(&job, HookPhase::Succeeded, later(run + 1));
    }
    cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", later(30)).await.expect("finished");
    assert_eq!(writes() - before, 4, "one for each hook, the first and the last");
    let ended =
        json!({"started_at": later(20).to_string(), "completed_at": later(21).to_string(), "phase": "Succeeded"});
    assert_eq!(stored(&cluster, 1).await["hooks"][0]["last_run"], ended);
    let back = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    assert_eq!(back, record);
    // A hook that is not of the record is not written.
    let other = reference("batch/v1", "Job", "demo", "other");
    cluster.hook_started(&mut record, &other, later(40)).await.expect("nothing to do");
    assert_eq!(writes() - before, 4);
}

#[tokio::test]
async fn a_removal_is_on_record_and_its_history_may_stay() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({"n": "1"})).await;
    let mut record = deploy(&cluster, &json!({"n": "2"})).await;
    cluster.mark_uninstalling(&mut record, "me", later(5)).await.expect("written");
    let back = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    assert_eq!((back.status, back.deleted), (ReleaseStatus::Uninstalling, Some(later(5))));
    let busy = begin(&cluster, &json!({}), "other", later(6)).await.expect_err("being removed");
    assert_eq!(busy.reason(), "ReleaseInProgress");
    cluster.mark_uninstalled(&mut record, "gone", later(7)).await.expect("written");
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(
        history.iter().map(|it| it.status).collect::<Vec<_>>(),
        [ReleaseStatus::Superseded, ReleaseStatus::Uninstalled]
    );
    assert_eq!(history[1].owner, None);
    let refused = begin(&cluster, &json!({}), "me", later(8)).await.expect_err("uninstalled");
    assert_eq!(refused.reason(), "ReleaseUninstalled");
    // Back to 1, from its record alone.
    let plan = rolled_back(&history[0]);
    let settings = json!({});
    let new =
        NewRevision { action: Action::Rollback, rollback_of: Some(1), ..revision(&plan, &settings, "me", later(9)) };
    let mut record = cluster.begin_release(&app(), new).await.expect("begun");
    assert_eq!((record.revision, record.status), (3, ReleaseStatus::PendingRollback));
    cluster.finish_release(&mut record, ReleaseStatus::Deployed, "back", later(10)).await.expect("finished");
    assert_eq!(stored(&cluster, 3).await["info"]["rollback_revision"], 1);
}

#[tokio::test]
async fn a_removal_that_was_cut_off_may_be_thought_better_of() {
    let (_devcluster, cluster) = start(false).await;
    let mut record = deploy(&cluster, &json!({})).await;
    cluster.mark_uninstalling(&mut record, "dead", now()).await.expect("written");
    begin(&cluster, &json!({}), "me", later(100)).await.expect("begun");
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!((history[0].status, &history[0].owner), (ReleaseStatus::Failed, &None));
}

fn rolled_back(record: &Record) -> Plan {
    let application = app();
    let input = PlanInput {
        application: &application,
        package: "site",
        action: ReleaseAction::Rollback,
        rendered: record.rendered(),
        definitions: Vec::new(),
        previous: &record.inventory(),
        maintenance: false,
        skip_hooks: false,
    };
    plan(input, |_| Some(barbless_domain::grant::Scope::Namespaced), |_| false).expect("a plan")
}

#[tokio::test]
async fn a_plan_of_a_record_is_the_plan_that_it_was_made_of() {
    let (_devcluster, cluster) = start(false).await;
    let data = json!({"text": "a\n---\nb\n", "on": "yes"});
    deploy(&cluster, &data).await;
    let record = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    let planned = plan_for(&cluster, objects(&data), &[]).await;
    let again = rolled_back(&record);
    assert_eq!((&again.digest, &again.objects, &again.hooks), (&planned.digest, &planned.objects, &planned.hooks));
    let sources: Vec<String> = record.rendered().into_iter().map(|it: Rendered| it.source).collect();
    assert_eq!(sources, ["templates/all.yaml", "templates/all.yaml"]);
}

#[tokio::test]
async fn the_digest_is_that_of_the_plan_and_what_was_set_aside_is_kept() {
    let (_devcluster, cluster) = start(false).await;
    let mut planned = plan_for(&cluster, objects(&json!({})), &[]).await;
    // As if the plan had objects that this operation does not deploy.
    "sha256:of-more-objects".clone_into(&mut planned.digest);
    let settings = json!({});
    let new = NewRevision {
        action: Action::Install,
        set_aside: Some("sha256:new"),
        ..revision(&planned, &settings, "me", now())
    };
    cluster.begin_release(&app(), new).await.expect("begun");
    let back = cluster.latest_release(&app()).await.expect("an answer").expect("a record");
    assert_eq!((back.digest.as_str(), back.set_aside.as_deref()), ("sha256:of-more-objects", Some("sha256:new")));
    assert_eq!(back.seed.as_deref(), Some("5eed"));
}

#[tokio::test]
async fn the_limit_of_history_holds_before_the_new_revision_is_there() {
    let (_devcluster, cluster) = start(false).await;
    for n in 1..=4 {
        let plan = plan_for(&cluster, objects(&json!({"n": n.to_string()})), &[]).await;
        let (settings, action) = (json!({}), if n == 1 { Action::Install } else { Action::Upgrade });
        let new = NewRevision { kept_revisions: 2, action, ..revision(&plan, &settings, "me", now()) };
        let mut record = cluster.begin_release(&app(), new).await.expect("begun");
        assert!(cluster.release_history(&app()).await.expect("an answer").len() <= 2);
        cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", now()).await.expect("finished");
    }
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(history.iter().map(|it| it.revision).collect::<Vec<_>>(), [3, 4]);
}

/// A connection to a cluster that dies with the request of this number that writes: it is not carried out, and neither is
/// any after it.
fn dying(devcluster: &barbless_devcluster::DevCluster, writes: usize) -> Cluster {
    let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(writes));
    let router = devcluster.router();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (router, left) = (router.clone(), std::sync::Arc::clone(&left));
        async move {
            use std::sync::atomic::Ordering::Relaxed;
            let reads = request.method() == http::Method::GET;
            if !reads && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
                return Err("the process was killed");
            }
            let answer = tower::ServiceExt::oneshot(router, request.map(axum::body::Body::new)).await;
            answer.map_err(|never| match never {})
        }
    });
    Cluster::new(kube::Client::new(service, "default"))
}

#[tokio::test]
async fn a_process_that_dies_at_any_write_leaves_a_history_that_goes_on() {
    for writes in 0..12 {
        let (devcluster, cluster) = start(false).await;
        deploy(&cluster, &json!({"n": "1"})).await;
        let mut failed = begin(&cluster, &json!({"n": "2"}), "me", now()).await.expect("begun");
        cluster.finish_release(&mut failed, ReleaseStatus::Failed, "broken", now()).await.expect("finished");

        let doomed = dying(&devcluster, writes);
        let whole = async {
            let plan = plan_for(&doomed, objects(&json!({"n": "3"})), &[]).await;
            let settings = json!({});
            let new = NewRevision { kept_revisions: 2, ..revision(&plan, &settings, "doomed", later(10)) };
            let mut record = doomed.begin_release(&app(), new).await?;
            doomed.release_heartbeat(&record, later(11)).await?;
            let job = record.hooks[0].hook.target.clone();
            doomed.hook_started(&mut record, &job, later(12)).await?;
            record.hook_ended(&job, HookPhase::Succeeded, later(13));
            doomed.finish_release(&mut record, ReleaseStatus::Deployed, "done", later(14)).await
        };
        let ended = whole.await;
        // An old revision goes, then the new one: creation, sign of life, hook, end; and the older one is superseded.
        assert_eq!(ended.is_ok(), writes >= 6, "after {writes} writes: {ended:?}");

        let history = cluster.release_history(&app()).await.expect("an answer");
        let deployed: Vec<u32> =
            history.iter().filter(|it| it.status == ReleaseStatus::Deployed).map(|it| it.revision).collect();
        assert!(!deployed.is_empty(), "after {writes} writes something is deployed");
        // The next process waits for a dead one to count as dead, and no longer.
        let pending = history.last().is_some_and(|it| it.status.is_pending());
        if pending {
            let busy = begin(&cluster, &json!({"n": "4"}), "next", later(20)).await.expect_err("it may live");
            assert_eq!(busy.reason(), "ReleaseInProgress");
        }
        let mut record = begin(&cluster, &json!({"n": "4"}), "next", later(100)).await.expect("begun");
        cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", later(101)).await.expect("finished");
        let history = cluster.release_history(&app()).await.expect("an answer");
        let deployed: Vec<u32> =
            history.iter().filter(|it| it.status == ReleaseStatus::Deployed).map(|it| it.revision).collect();
        assert_eq!(deployed, [record.revision], "after {writes} writes");
        assert!(history.iter().all(|it| !it.status.is_pending() && it.owner.is_none()), "after {writes} writes");
    }
}
