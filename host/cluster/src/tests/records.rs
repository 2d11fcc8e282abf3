use barbless_domain::release::{HookEvent, ReleaseStatus};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{app, plan_for, reference, start};
use crate::{Cluster, NewRevision, Record, RecordError};

fn now() -> Timestamp {
    "2026-11-30T07:00:00Z".parse().expect("a time")
}

fn objects(data: &Value) -> Vec<Value> {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    let hook = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "annotations": {"helm.sh/hook": "pre-delete", "helm.sh/hook-weight": "3"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    vec![config, hook]
}

async fn begin(cluster: &Cluster, data: &Value, owner: &str, now: Timestamp) -> Result<Record, RecordError> {
    let plan = plan_for(cluster, objects(data), &[]).await;
    let settings = json!({"replicas": 2});
    let new = NewRevision { plan: &plan, package_version: "1.2.3", settings: &settings, owner, now };
    cluster.begin_release(&app(), new).await
}

async fn deploy(cluster: &Cluster, data: &Value) -> Record {
    let mut record = begin(cluster, data, "me", now()).await.expect("begun");
    cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", now()).await.expect("finished");
    record
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
    assert_eq!((back.revision, back.hooks[0].weight), (1, 3));
}

#[tokio::test]
async fn the_secret_is_what_helm_reads() {
    let (_devcluster, cluster) = start(false).await;
    deploy(&cluster, &json!({"k": "v"})).await;
    let secret = cluster.read(&reference("v1", "Secret", "demo", "sh.helm.release.v1.web.v1")).await.expect("a Secret");
    assert_eq!(secret["type"], "helm.sh/release.v1");
    let labels = &secret["metadata"]["labels"];
    for (label, value) in [("name", "web"), ("owner", "helm"), ("status", "deployed"), ("version", "1")] {
        assert_eq!(labels[label], value);
    }
    // Three layers: the Secret's base64, Helm's base64, gzip.
    let once = STANDARD.decode(secret["data"]["release"].as_str().expect("text")).expect("base64");
    let packed = STANDARD.decode(once).expect("base64 again");
    let release: Value = serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice())).expect("JSON");
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
    let manifest = release["manifest"].as_str().expect("text");
    assert!(manifest.starts_with("---\n# Source: templates/all.yaml\n{"), "{manifest}");
    assert!(!manifest.contains("Job"), "hooks are not in the manifest");
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
    let record = begin(&cluster, &json!({}), "one", now()).await.expect("begun");
    let later = |seconds: i64| now() + SignedDuration::from_secs(seconds);
    let refused = begin(&cluster, &json!({}), "two", later(30)).await.expect_err("in progress");
    assert_eq!(refused.reason(), "ReleaseInProgress");
    cluster.release_heartbeat(&record, later(50)).await.expect("a sign of life");
    begin(&cluster, &json!({}), "two", later(100)).await.expect_err("still in progress");
    let taken = begin(&cluster, &json!({}), "two", later(200)).await.expect("the owner is dead");
    assert_eq!(taken.revision, 2);
    let history = cluster.release_history(&app()).await.expect("an answer");
    assert_eq!(history[0].status, ReleaseStatus::Failed);
    // The same process goes on after a restart of its work.
    begin(&cluster, &json!({}), "two", later(201)).await.expect("its own");
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
async fn a_release_of_helm_itself_is_not_ours() {
    let (_devcluster, cluster) = start(false).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": {},
        "metadata": {"name": "sh.helm.release.v1.web.v3", "namespace": "demo", "labels": {"owner": "helm", "name": "web"}},
    });
    cluster.put(theirs).await;
    deploy(&cluster, &json!({})).await;
    cluster.delete_releases(&app()).await.expect("deleted");
    let read = async |name: &str| cluster.read(&reference("v1", "Secret", "demo", name)).await.is_some();
    assert!(read("sh.helm.release.v1.web.v3").await && !read("sh.helm.release.v1.web.v1").await);
}

#[tokio::test]
async fn a_record_that_does_not_fit_names_the_largest_objects() {
    let (devcluster, cluster) = start(false).await;
    // Text that does not compress: a simple generator of pseudo-random letters.
    let mut state = 1_u64;
    let noise: String = (0..1_100_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap_or(0))
        })
        .collect();
    let before = devcluster.requests().get("create").copied();
    let refused = begin(&cluster, &json!({"noise": noise}), "me", now()).await.expect_err("too large");
    assert_eq!(refused.reason(), "ReleaseTooLarge");
    assert!(refused.to_string().contains("ConfigMap demo/c ("), "{refused}");
    assert_eq!(devcluster.requests().get("create").copied(), before, "nothing was written");
}
