//! Releases that Helm installed.

use std::io::Write as _;

use barbless_domain::release::ReleaseStatus;
use barbless_domain::release::history::Action;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::records::{later, now, revision};
use super::{app, config_map, plan_for, reference, start};
use crate::request::Target;
use crate::{Cluster, HookPhase, NewRevision, helm_marks};

/// A revision in the form that Helm 4 writes, with what only Helm needs.
fn of_helm(revision: u32, status: &str) -> Value {
    json!({
        "name": "web", "namespace": "demo", "version": revision, "apply_method": "ssa", "future": {"of": ["helm"]},
        "info": {
            "first_deployed": "2026-11-30T06:00:00.005016334Z", "last_deployed": "2026-11-30T06:30:00.005016334+01:00",
            "deleted": "", "description": "Upgrade complete", "status": status, "notes": "hello\n", "future": 1,
        },
        "chart": {
            "metadata": {"name": "shop", "version": "0.3.1", "apiVersion": "v2"}, "lock": null,
            "templates": [{"name": "templates/cm.yaml", "data": "YQ=="}], "values": {"replicas": 2}, "schema": null, "files": null,
        },
        "config": {"x": 1},
        "manifest": "---\n# Source: shop/templates/cm.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n# Source: shop/templates/list.yaml\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ServiceAccount, metadata: {name: s, annotations: {helm.sh/resource-policy: keep}}}\n- {apiVersion: v1, kind: Namespace, metadata: {name: ns}}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {generateName: once-}\n",
        "hooks": [
            {"name": "h", "kind": "Job", "path": "shop/templates/h.yaml", "manifest": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: h}\n",
                "events": ["crd-install", "pre-install"], "last_run": {"started_at": "2026-11-30T06:00:01Z", "completed_at": "", "phase": "Failed"}},
            {"name": "empty", "manifest": "# nothing"},
        ],
    })
}

fn holder(kind: &str, release: &Value, packed: bool) -> Value {
    let json = release.to_string();
    let bytes = if packed {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(json.as_bytes()).expect("memory");
        packer.finish().expect("memory")
    } else {
        json.into_bytes()
    };
    let payload = STANDARD.encode(bytes);
    let data = if kind == "Secret" { STANDARD.encode(payload) } else { payload };
    let (number, status) = (&release["version"], &release["info"]["status"]);
    let mut holder = json!({
        "apiVersion": "v1", "kind": kind, "data": {"release": data},
        "metadata": {
            "name": format!("sh.helm.release.v1.web.v{number}"), "namespace": "demo",
            "labels": {"name": "web", "owner": "helm", "status": status, "version": number.to_string(), "team": "a"},
        },
    });
    if kind == "Secret" {
        holder["type"] = "helm.sh/release.v1".into();
    }
    holder
}

async fn begin(cluster: &Cluster, take_over: bool) -> Result<crate::Record, crate::RecordError> {
    let plan = plan_for(cluster, vec![config_map("c", json!({}))], &[]).await;
    let settings = json!({});
    let new = NewRevision { take_over, action: Action::Upgrade, ..revision(&plan, &settings, "me", now()) };
    cluster.begin_release(&app(), new).await
}

#[tokio::test]
async fn a_release_of_helm_is_left_alone_unless_asked_for() {
    let (devcluster, cluster) = start(false).await;
    for kind in ["Secret", "ConfigMap"] {
        cluster.put(holder(kind, &of_helm(3, "deployed"), true)).await;
        let before = devcluster.requests();
        let refused = begin(&cluster, false).await.expect_err("it is of Helm");
        assert_eq!(refused.reason(), "ReleaseOfHelm");
        assert_eq!(refused.to_string(), "release demo.web belongs to Helm, which has revision 3 of it");
        assert!(refused.hint().is_some_and(|hint| hint.contains(barbless_domain::request::TAKE_OVER)));
        let writes = |requests: &std::collections::BTreeMap<String, u64>| {
            ["create", "update", "patch", "delete"].map(|verb| requests.get(verb).copied())
        };
        assert_eq!(writes(&devcluster.requests()), writes(&before), "nothing was written");
        assert!(cluster.release_history(&app()).await.expect("an answer").is_empty());
        cluster.delete_releases(&app()).await.expect("nothing of ours");
        let name = reference("v1", kind, "demo", "sh.helm.release.v1.web.v3");
        assert!(cluster.read(&name).await.is_some());
        cluster.delete_secret_for_test(&name).await;
    }
}

impl Cluster {
    async fn delete_secret_for_test(&self, target: &barbless_domain::identity::ObjectRef) {
        let resource = self.resolve(&target.gvk).await.expect("a served kind");
        let at = Target { resource: &resource, object: target };
        self.delete_in(&at, barbless_domain::operation::Propagation::Background, None).await.expect("deleted");
    }
}

#[tokio::test]
async fn records_of_helm_are_read_with_all_that_we_need() {
    for (kind, packed) in [("Secret", true), ("Secret", false), ("ConfigMap", true), ("ConfigMap", false)] {
        let (_devcluster, cluster) = start(false).await;
        cluster.put(holder(kind, &of_helm(3, "deployed"), packed)).await;
        let release = cluster.helm_release(&app()).await.expect("an answer").expect("a release");
        let record = &release.records[0];
        assert!(record.written_by_helm);
        assert_eq!((record.revision, record.status), (3, ReleaseStatus::Deployed));
        assert_eq!(record.package, ("shop".to_owned(), "0.3.1".to_owned()));
        assert_eq!((record.notes.as_str(), &record.settings), ("hello\n", &json!({"x": 1})));
        assert_eq!(record.first_deployed.map(|it| it.to_string()).as_deref(), Some("2026-11-30T06:00:00.005016334Z"));
        assert_eq!(record.last_deployed.map(|it| it.to_string()).as_deref(), Some("2026-11-30T05:30:00.005016334Z"));
        assert_eq!((record.deleted, record.owner.clone()), (None, None));
        // The namespace is that of the release, where the kind has one.
        let inventory = release.inventory();
        let found: Vec<(String, bool)> = inventory.iter().map(|it| (it.target.to_string(), it.keep)).collect();
        assert_eq!(
            found,
            [
                ("ConfigMap demo/c".to_owned(), false),
                ("ServiceAccount demo/s".to_owned(), true),
                ("Namespace ns".to_owned(), false)
            ]
        );
        assert_eq!(record.hooks.len(), 1);
        let hook = &record.hooks[0];
        assert_eq!(
            (hook.hook.target.to_string().as_str(), hook.hook.source.as_str()),
            ("Job.batch demo/h", "shop/templates/h.yaml")
        );
        assert_eq!(hook.last_run.map(|run| (run.phase, run.completed_at)), Some((HookPhase::Failed, None)));
        assert_eq!(serde_json::to_value(&hook.hook.events).expect("words"), json!(["pre-install"]));
        let sources: Vec<String> = record.rendered().into_iter().map(|it| it.source).collect();
        assert_eq!(
            sources,
            ["shop/templates/cm.yaml", "shop/templates/list.yaml", "shop/templates/list.yaml", "shop/templates/h.yaml"]
        );
    }
}

#[tokio::test]
async fn a_taken_over_record_loses_nothing_but_its_status() {
    for kind in ["Secret", "ConfigMap"] {
        let (_devcluster, cluster) = start(false).await;
        cluster.put(holder(kind, &of_helm(2, "superseded"), true)).await;
        cluster.put(holder(kind, &of_helm(3, "deployed"), true)).await;
        let mut record = begin(&cluster, true).await.expect("begun");
        assert_eq!((record.revision, record.status), (4, ReleaseStatus::PendingUpgrade));
        assert_eq!(record.first_deployed.map(|it| it.to_string()).as_deref(), Some("2026-11-30T06:00:00.005016334Z"));
        assert_eq!(cluster.helm_release(&app()).await.expect("an answer"), None, "all of it is ours");
        cluster.finish_release(&mut record, ReleaseStatus::Deployed, "done", later(1)).await.expect("finished");
        let history = cluster.release_history(&app()).await.expect("an answer");
        let seen: Vec<(u32, &str, bool)> =
            history.iter().map(|it| (it.revision, it.status.as_str(), it.written_by_helm)).collect();
        assert_eq!(seen, [(2, "superseded", true), (3, "superseded", true), (4, "deployed", false)]);
        let secret =
            cluster.read(&reference("v1", "Secret", "demo", "sh.helm.release.v1.web.v3")).await.expect("a Secret");
        assert_eq!(secret["type"], "helm.sh/release.v1");
        let labels = &secret["metadata"]["labels"];
        for (label, value) in [
            ("status", "superseded"),
            ("team", "a"),
            ("owner", "helm"),
            ("name", "web"),
            ("version", "3"),
            ("packages.deckhouse.io/instance", "web"),
            ("packages.deckhouse.io/package", "site"),
        ] {
            assert_eq!(labels[label], value, "{label}");
        }
        let once = STANDARD.decode(secret["data"]["release"].as_str().expect("text")).expect("base64");
        let packed = STANDARD.decode(once).expect("base64 again");
        let stored: Value = serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice())).expect("JSON");
        let mut expected = of_helm(3, "superseded");
        // What was never run stays so; what was is written in full.
        expected["hooks"][0]["last_run"] =
            json!({"started_at": "2026-11-30T06:00:01Z", "completed_at": "", "phase": "Failed"});
        assert_eq!(stored, expected);
        assert!(cluster.read(&reference("v1", "ConfigMap", "demo", "sh.helm.release.v1.web.v3")).await.is_none());
    }
}

#[tokio::test]
async fn a_take_over_that_was_cut_off_goes_on() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(holder("Secret", &of_helm(2, "superseded"), true)).await;
    let first = cluster.put(holder("Secret", &of_helm(3, "deployed"), true)).await;
    let target = reference("v1", "Secret", "demo", first["metadata"]["name"].as_str().expect("a name"));
    cluster.touch(&target, json!({"metadata": {"labels": {"packages.deckhouse.io/instance": "web"}}})).await;
    assert_eq!(begin(&cluster, false).await.expect_err("half is of Helm").reason(), "ReleaseOfHelm");
    assert_eq!(begin(&cluster, true).await.expect("begun").revision, 4);
    assert_eq!(cluster.release_history(&app()).await.expect("an answer").len(), 3);
}

#[tokio::test]
async fn the_way_out_of_what_helm_left_behind_is_a_rollback() {
    for kind in ["Secret", "ConfigMap"] {
        let (_devcluster, cluster) = start(false).await;
        cluster.put(holder(kind, &of_helm(3, "pending-upgrade"), true)).await;
        let plan = plan_for(&cluster, vec![config_map("c", json!({}))], &[]).await;
        let settings = json!({});
        // Helm began it half an hour before.
        let soon = "2026-11-30T05:45:00Z".parse().expect("a time");
        let new = NewRevision { take_over: true, ..revision(&plan, &settings, "me", soon) };
        let refused = cluster.begin_release(&app(), new).await.expect_err("in progress");
        assert_eq!(refused.reason(), "ReleaseInProgress");
        let new = NewRevision { action: Action::Rollback, ..new };
        cluster.begin_release(&app(), new).await.expect("begun");
        let history = cluster.release_history(&app()).await.expect("an answer");
        let seen: Vec<&str> = history.iter().map(|it| it.status.as_str()).collect();
        assert_eq!(seen, ["failed", "pending-rollback"]);
    }
}

#[test]
fn marks_of_helm_are_three() {
    let object =
        |labels: Value, annotations: Value| json!({"metadata": {"labels": labels, "annotations": annotations}});
    let managed = json!({"app.kubernetes.io/managed-by": "Helm"});
    let named = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "demo"});
    assert!(helm_marks(&object(managed.clone(), named.clone())).is_some_and(|marks| marks.are_of(&app())));
    let other = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "other"});
    assert!(helm_marks(&object(managed.clone(), other)).is_some_and(|marks| !marks.are_of(&app())));
    assert_eq!(helm_marks(&object(json!({}), named.clone())), None);
    assert_eq!(helm_marks(&object(json!({"app.kubernetes.io/managed-by": "helm"}), named)), None);
    assert_eq!(helm_marks(&object(managed, json!({"meta.helm.sh/release-name": "web"}))), None);
}

#[tokio::test]
async fn fields_that_helm_had_go_when_our_manifest_drops_them() {
    let (_devcluster, cluster) = start(false).await;
    let target = reference("v1", "ConfigMap", "demo", "c");
    let resource = cluster.resolve(&target.gvk).await.expect("a served kind");
    let at = Target { resource: &resource, object: &target };
    // Helm 3 created it, Helm 4 applied to it, and somebody edited it.
    cluster.create_in(&at, "helm", &config_map("c", json!({"three": "3", "kept": "k"}))).await.expect("created");
    let four = config_map("c", json!({"four": "4", "kept": "k"}));
    cluster.apply_in(&at, None, "helm", false, &four).await.expect("applied");
    cluster.touch(&target, json!({"data": {"edited": "e"}})).await;
    let ours = config_map("c", json!({"kept": "k"}));
    let keys = |object: &Value| object["data"].as_object().map(|data| data.keys().cloned().collect::<Vec<_>>());

    let adopted = cluster.adopt_fields(&target, &["helm"], "barbless").await.expect("an answer").expect("an object");
    assert_eq!(keys(&adopted).expect("data").len(), 4, "the object itself stays");
    let applied = cluster.apply_in(&at, None, "barbless", false, &ours).await.expect("applied");
    assert_eq!(keys(&applied).expect("data"), ["edited", "kept"]);
    let managers: Vec<&str> = applied["metadata"]["managedFields"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    assert_eq!(managers, ["barbless", "somebody"]);
    // Again there is nothing to do, and a missing object is no error.
    let version = applied["metadata"]["resourceVersion"].clone();
    let again = cluster.adopt_fields(&target, &["helm"], "barbless").await.expect("an answer").expect("an object");
    assert_eq!(again["metadata"]["resourceVersion"], version);
    let missing = reference("v1", "ConfigMap", "demo", "none");
    assert_eq!(cluster.adopt_fields(&missing, &["helm"], "barbless").await.expect("an answer"), None);
    // An object that changed since it was read is not patched.
    cluster.apply_in(&at, None, "helm", true, &four).await.expect("applied");
    let live = cluster.read(&target).await.expect("an object");
    let patch = crate::adopt_fields(&live, &["helm"], "barbless").expect("a patch");
    cluster.touch(&target, json!({"data": {"edited": "f"}})).await;
    let refused = cluster.json_patch_in(&at, "barbless", &patch).await.expect_err("stale");
    assert_eq!(refused.code(), Some(409));
}

fn hook(kind: &str, name: &str, event: &str, policy: &str, more: Value) -> Value {
    let annotations = json!({"helm.sh/hook": event, "helm.sh/hook-delete-policy": policy});
    let mut object = json!({
        "apiVersion": if kind == "Job" { "batch/v1" } else { "v1" }, "kind": kind,
        "metadata": {"name": name, "namespace": "demo", "annotations": annotations},
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn hooks(text: &str) -> Vec<Value> {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": text}]});
    vec![
        hook(
            "Job",
            "h",
            "pre-upgrade,pre-install",
            "before-hook-creation",
            json!({"spec": {"template": {"spec": pod}}}),
        ),
        hook("ConfigMap", "settings", "pre-upgrade,pre-install", "hook-failed", json!({"data": {"text": text}})),
        hook("ConfigMap", "later", "post-rollback", "hook-failed", json!({"data": {"text": text}})),
    ]
}

#[tokio::test]
async fn what_hooks_of_helm_left_becomes_ours() {
    let soon = std::time::Duration::from_secs(20);
    let mut theirs = of_helm(3, "deployed");
    theirs["hooks"] = hooks("old")
        .iter()
        .map(|hook| json!({"name": hook["metadata"]["name"], "kind": hook["kind"], "manifest": hook.to_string(), "events": ["pre-install"]}))
        .collect();
    for known in [true, false] {
        let (_devcluster, cluster) = start(true).await;
        let mut uids = Vec::new();
        for object in hooks("old") {
            let target = barbless_domain::identity::ObjectRef::of(&object).expect("a reference");
            let resource = cluster.resolve(&target.gvk).await.expect("served");
            let at = Target { resource: &resource, object: &target };
            let made = match target.name.as_str() {
                "settings" => cluster.apply_in(&at, None, "helm", false, &object).await,
                _ => cluster.create_in(&at, "helm", &object).await,
            };
            uids.push(made.expect("made")["metadata"]["uid"].clone());
        }
        let record = if known { theirs.clone() } else { of_helm(3, "deployed") };
        cluster.put(holder("Secret", &record, true)).await;
        let mut objects = hooks("new");
        objects.push(config_map("c", json!({})));
        let previous = cluster.helm_release(&app()).await.expect("an answer").expect("a release").inventory();
        let plan = plan_for(&cluster, objects, &previous).await;
        let settings = json!({});
        let (options, _events) = super::options(soon);
        let new = NewRevision { take_over: true, action: Action::Upgrade, ..revision(&plan, &settings, "me", now()) };
        let deployed = cluster.deploy(&app(), new, &options).await;
        if !known {
            // Of the objects of hooks, Helm's record in this place names the Job alone.
            let refused = deployed.expect_err("nobody knows whose they are").to_string();
            assert!(
                refused.contains("ConfigMap demo/settings") && refused.contains("ConfigMap demo/later"),
                "{refused}"
            );
            assert!(!refused.contains("Job"), "{refused}");
            continue;
        }
        deployed.expect("deployed");
        let mut live = Vec::new();
        for hook in hooks("new") {
            let target = barbless_domain::identity::ObjectRef::of(&hook).expect("a reference");
            live.push(cluster.read(&target).await.expect("there"));
        }
        let [job, settings, later] = live.as_slice() else { panic!("three hooks") };
        assert_ne!(job["metadata"]["uid"], uids[0], "it was made anew");
        assert_eq!((&settings["metadata"]["uid"], &settings["data"]["text"]), (&uids[1], &json!("new")));
        assert_eq!(later["data"]["text"], "old", "its turn has not come");
        for object in &live {
            assert_eq!(object["metadata"]["labels"]["packages.deckhouse.io/instance"], "web", "{object}");
            let entries = object["metadata"]["managedFields"].as_array().expect("a list");
            assert!(entries.iter().all(|entry| entry["manager"] != "helm"), "{object}");
        }
    }
}

#[tokio::test]
async fn what_others_claim_is_no_hook_of_helm_whatever_a_record_says() {
    let (_devcluster, cluster) = start(true).await;
    let mut object = hooks("old").remove(1);
    object["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "other"});
    cluster.put(object.clone()).await;
    let mut theirs = of_helm(3, "deployed");
    theirs["hooks"] =
        json!([{"name": "settings", "kind": "ConfigMap", "manifest": object.to_string(), "events": ["pre-install"]}]);
    cluster.put(holder("Secret", &theirs, true)).await;
    let plan = plan_for(&cluster, vec![hooks("new").remove(1)], &[]).await;
    let settings = json!({});
    let (options, _events) = super::options(std::time::Duration::from_secs(20));
    let new = NewRevision { take_over: true, action: Action::Upgrade, ..revision(&plan, &settings, "me", now()) };
    let refused = cluster.deploy(&app(), new, &options).await.expect_err("it is another's");
    assert_eq!(refused.reason(), "ObjectNotOwned");
}
