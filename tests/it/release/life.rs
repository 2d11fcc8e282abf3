//! O17-O33: revisions, names, documents, fields, records.

use barbless_devcluster::{Fault, Scope};
use barbless_domain::identity::ApplicationId;
use barbless_domain::release::conflict;
use barbless_domain::release::{UpgradeReason, upgrade_needed};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::chart::{chart, config_map, config_map_with, deployment, job, object, service};
use super::helm::recorded;
use super::site::{Site, seq, unpack};

fn two(value: &str) -> super::chart::Chart {
    let data = json!({"k": value});
    chart().put("a.yaml", [config_map_with("x", data.clone()), config_map_with("y", data)])
}

/// Ours adds to it: a pending revision whose process is dead counts as failed by itself; see `recovery`.
#[tokio::test]
async fn o17_a_pending_revision_refuses_upgrades_and_can_be_rolled_back() {
    let site = Site::new().await;
    site.install(&two("1")).await.unwrap();
    assert_eq!(site.changes(), recorded("pending-upgrade last revision", "install"));
    // As Helm leaves it when it is killed: without an owner.
    site.leave_pending(1, "pending-upgrade").await;
    let refused = site.upgrade(&two("2")).await.unwrap_err();
    assert_eq!(refused.reason, "ReleaseInProgress");
    assert!(refused.hint.contains("roll back"), "{refused:?}");
    assert_eq!(site.tap.writes(), 0);
    site.rollback(1).await.unwrap();
    assert_eq!(site.history().await, [(1, "failed"), (2, "deployed")]);
    site.upgrade(&two("3")).await.unwrap();
    assert_eq!(site.history().await, [(1, "failed"), (2, "superseded"), (3, "deployed")]);
}

#[tokio::test]
async fn o18_a_removal_may_keep_the_history() {
    let site = Site::new().await;
    site.install(&two("1")).await.unwrap();
    site.changes();
    site.with(|options| options.keep_history = true).uninstall().await.unwrap();
    assert_eq!(site.changes(), recorded("keep_history", "uninstall keep"));
    for refused in [site.install(&two("1")).await, site.upgrade(&two("1")).await] {
        assert_eq!(refused.unwrap_err().reason, "ReleaseUninstalled");
    }
    assert_eq!(site.tap.writes(), 0);
    site.rollback(1).await.unwrap();
    assert_eq!(site.changes(), recorded("keep_history", "rollback 1"));
    assert_eq!(site.history().await, [(1, "uninstalled"), (2, "deployed")]);
}

/// Taking back an installation by itself is the policy of whoever asks.
#[tokio::test]
async fn o19_a_failed_installation_can_be_taken_back() {
    let site = Site::new().await;
    let hasty = site.with(|options| options.deadline = std::time::Duration::from_millis(400));
    let failed = hasty.install(&chart().put("d.yaml", [deployment("d").run("hang")])).await.unwrap_err();
    assert_eq!(failed.reason, "ApplyTimedOut");
    site.uninstall().await.unwrap();
    let expected = "R1 pending-install; A Deployment/d; R1 failed; R1 uninstalling; D Deployment/d; D R1";
    assert_eq!(site.log_without_repeats(), seq(expected));
    assert_eq!(site.history().await, []);
}

/// Ours: 24 characters, since objects of packages are called `d8a-<name>-…`.
#[test]
fn o20_bad_names_are_refused_before_any_call() {
    for name in ["a".repeat(54).as_str(), "Abc", "", "a.b", "-a"] {
        ApplicationId::new("default", name).unwrap_err();
    }
    ApplicationId::new("default", &"a".repeat(24)).unwrap();
}

#[tokio::test]
async fn o21_a_separator_needs_no_line_of_its_own() {
    let site = Site::new().await;
    let text = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    site.install(&chart().file("templates/a.yaml", text)).await.unwrap();
    assert_eq!(site.changes(), recorded("O21/O22", "install"));
}

#[tokio::test]
async fn o22_partials_notes_and_empty_documents_are_no_objects() {
    let site = Site::new().await;
    let chart = chart()
        .file("templates/a.yaml", "---\n# nothing\n---\n\n---\n{}\n")
        .file("templates/_helpers.yaml", &config_map("helper").0.to_string())
        .file("templates/NOTES.txt", "hi {{ .Release.Name }}")
        .file("charts/s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 0.1.0\n")
        .file("charts/s/templates/NOTES.txt", "kind: ConfigMap");
    let chart = chart.put("b.yaml", [config_map("b"), config_map("a")]);
    let chart = chart.file("templates/a.yaml", "---\n# nothing\n---\n\n---\n");
    site.install(&chart).await.unwrap();
    assert_eq!(site.changes(), recorded("O21/O22", "install"));
    assert_eq!(site.last().await.notes, "hi r");
}

#[tokio::test]
async fn o23_a_field_of_somebody_else_is_a_conflict_unless_it_is_taken() {
    let site = Site::new().await;
    let chart = |replicas: u32| chart().put("a.yaml", [deployment("d").set("/spec/replicas", json!(replicas))]);
    site.install(&chart(1)).await.unwrap();
    site.scale(&deployment("d"), 3).await;
    site.changes();
    let failed = site.upgrade(&chart(2)).await.unwrap_err();
    assert_eq!(failed.reason, "FieldConflict");
    for part in [".spec.replicas", "kubectl", "d"] {
        assert!(failed.message.contains(part), "{failed:?}");
    }
    assert_eq!(site.get(&deployment("d")).await.unwrap()["spec"]["replicas"], 3, "nothing is taken");
    let rule = json!([{"object": "Deployment/d", "field": ".spec.replicas", "do": "take"}]);
    let taking = site.with(|options| options.rules = conflict::rules(&rule).unwrap());
    taking.upgrade(&chart(2)).await.unwrap();
    assert_eq!(site.get(&deployment("d")).await.unwrap()["spec"]["replicas"], 2);
    site.scale(&deployment("d"), 3).await;
    let rule = json!([{"object": "Deployment/d", "field": ".spec.replicas", "do": "yield"}]);
    let yielding = site.with(|options| options.rules = conflict::rules(&rule).unwrap());
    yielding.upgrade(&chart(1)).await.unwrap();
    assert_eq!(site.get(&deployment("d")).await.unwrap()["spec"]["replicas"], 3, "it is left to whoever scaled");
}

/// An object that Helm wrote with client-side apply: its fields become ours, and one that the chart drops goes.
#[tokio::test]
async fn o24_fields_of_client_side_apply_are_taken_over() {
    let site = Site::new().await;
    let old = config_map_with("x", json!({"stays": "1", "goes": "1"}));
    let old = old.label("app.kubernetes.io/managed-by", "Helm").note("meta.helm.sh/release-name", "r");
    let old = old.note("meta.helm.sh/release-namespace", site.id.namespace());
    site.put_as(&old, "helm").await;
    site.helm_record(1, "deployed", &[&old]).await;
    let refused = site.upgrade(&two("2")).await.unwrap_err();
    assert_eq!(refused.reason, "ReleaseOfHelm", "{refused:?}");
    let taking = site.with(|options| options.take_over = true);
    taking.upgrade(&chart().put("a.yaml", [config_map_with("x", json!({"stays": "2"}))])).await.unwrap();
    let live = site.get(&config_map("x")).await.unwrap();
    assert_eq!(live["data"], json!({"stays": "2"}), "no conflict with ourselves, and what was dropped is gone");
    assert_eq!(site.history().await, [(1, "superseded"), (2, "deployed")]);
}

/// A take-over that fails after its record was begun leaves a failed revision, and none that is pending.
#[tokio::test]
async fn a_take_over_that_is_refused_half_way_is_a_failed_revision() {
    let site = Site::new().await;
    let old = config_map("x").label("app.kubernetes.io/managed-by", "Helm").note("meta.helm.sh/release-name", "r");
    let old = old.note("meta.helm.sh/release-namespace", site.id.namespace());
    site.put_as(&old, "helm").await;
    site.helm_record(1, "deployed", &[&old]).await;
    let taking = site.with(|options| options.take_over = true);
    // The record of Helm becomes ours and a new one begins; the fields of the object are refused.
    site.api.inject(Fault { passed: 2, ..Fault::refuse(Scope::Writes, 403, 1) });
    let refused = taking.upgrade(&chart().put("a.yaml", [config_map("x")])).await.unwrap_err();
    assert_eq!(refused.reason, "Forbidden", "{refused:?}");
    assert_eq!(site.history().await, [(1, "deployed"), (2, "failed")]);
}

#[tokio::test]
async fn o25_a_field_that_somebody_else_has_too_stays() {
    let site = Site::new().await;
    let both = config_map_with("x", json!({"shared": "1", "ours": "1"}));
    site.install(&chart().put("a.yaml", [both])).await.unwrap();
    site.apply_as(&config_map_with("x", json!({"shared": "1"})), "somebody").await;
    site.upgrade(&chart().put("a.yaml", [config_map("x")])).await.unwrap();
    assert_eq!(site.get(&config_map("x")).await.unwrap()["data"], json!({"shared": "1"}));
}

/// Ours: what is null is not set, as nelm has it; Helm sends the null.
#[tokio::test]
async fn o26_null_is_not_set() {
    let site = Site::new().await;
    let chart = chart().put("a.yaml", [config_map_with("a", json!({"x": null, "y": "1"}))]);
    site.install(&chart).await.unwrap();
    let live = site.get(&config_map("a")).await.unwrap();
    assert_eq!(live["data"], json!({"y": "1"}));
    assert!(!live["metadata"]["managedFields"].to_string().contains("f:x"), "nobody claims it");
}

/// Ours (as nelm): a Job that cannot be changed is made anew; other objects say what cannot be changed.
#[tokio::test]
async fn o27_a_job_that_cannot_be_changed_is_made_anew() {
    let site = Site::new().await;
    let chart = |image: &str| {
        let containers = json!([{"name": "main", "image": image}]);
        chart().put("a.yaml", [job("j").set("/spec/template/spec/containers", containers)])
    };
    site.install(&chart("one")).await.unwrap();
    let before = site.get(&job("j")).await.unwrap();
    site.changes();
    site.upgrade(&chart("two")).await.unwrap();
    assert_eq!(site.changes(), seq("R2 pending-upgrade; D Job/j; A Job/j; R1 superseded; R2 deployed"));
    let after = site.get(&job("j")).await.unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);

    let select = |app: &str| {
        let labels = json!({"app": app});
        let changed = deployment("d").set("/spec/selector/matchLabels", labels.clone());
        super::chart::chart().put("a.yaml", [changed.set("/spec/template/metadata/labels", labels)])
    };
    let site = Site::new().await;
    site.install(&select("a")).await.unwrap();
    let uid = site.get(&deployment("d")).await.unwrap()["metadata"]["uid"].clone();
    let failed = site.upgrade(&select("b")).await.unwrap_err();
    assert!(failed.message.contains("spec.selector") && failed.message.contains("immutable"), "{failed:?}");
    assert_eq!(site.get(&deployment("d")).await.unwrap()["metadata"]["uid"], uid, "it is not deleted unasked");
}

/// Ours: objects are the same whatever version their manifest is written in, and a version that is gone is passed over.
#[tokio::test]
async fn o28_a_version_that_is_gone_does_not_stop_an_upgrade() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [deployment("d"), config_map("c")])).await.unwrap();
    let before = site.get(&deployment("d")).await.unwrap();
    site.rewrite_record(1, "apiVersion: apps/v1\n", "apiVersion: apps/v1beta1\n").await;
    let previous = site.last().await.inventory();
    assert!(previous.iter().any(|item| item.target.gvk.version == "v1beta1"), "{previous:?}");
    site.changes();
    site.upgrade(&chart().put("a.yaml", [deployment("d").set("/spec/replicas", json!(2))])).await.unwrap();
    let log = site.changes();
    assert_eq!(log, seq("R2 pending-upgrade; A Deployment/d; D ConfigMap/c; R1 superseded; R2 deployed"));
    let after = site.get(&deployment("d")).await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

/// Ours (as nelm): there is nothing to upgrade, and if it is asked for all the same, nothing is written to the objects.
#[tokio::test]
async fn o29_without_a_change_there_is_nothing_to_do() {
    let site = Site::new().await;
    let chart = chart().put("a.yaml", [config_map("a"), service("s"), deployment("d")]);
    site.install(&chart).await.unwrap();
    site.changes();
    let (last, plan) = (site.last().await, site.plan(&chart).await.unwrap());
    assert_eq!(upgrade_needed(Some((last.status, &last.digest)), &plan.digest, &[]), None);
    let missing = site.missing().await;
    assert_eq!(missing, []);
    // Nobody asks for it then; who does gets a revision, and nothing else is written.
    let version = |object: Value| object["metadata"]["resourceVersion"].clone();
    let before = version(site.get(&config_map("a")).await.unwrap());
    site.upgrade(&chart).await.unwrap();
    assert_eq!(site.changes(), seq("R2 pending-upgrade; R1 superseded; R2 deployed"));
    assert_eq!(version(site.get(&config_map("a")).await.unwrap()), before);
    let gone = [plan.objects[0].target.clone()];
    let reason = upgrade_needed(Some((last.status, &last.digest)), &plan.digest, &gone);
    assert_eq!(reason, Some(UpgradeReason::ObjectsMissing(gone.to_vec())));
}

/// As with Helm the namespace exists and is not the release's; for an application it is not even its own to have.
#[tokio::test]
async fn o30_the_namespace_of_the_release_is_not_part_of_it() {
    let site = Site::new().await;
    let chart = chart().put("a.yaml", [object("v1", "Namespace", site.id.namespace()), config_map("c")]);
    assert_eq!(site.install(&chart).await.unwrap_err().reason, "ObjectNotOwned");
    let strict = site.with(|options| options.cluster_allowed = false);
    assert_eq!(strict.install(&chart).await.unwrap_err().reason, "ClusterScopeNotGranted");
    assert_eq!(site.tap.writes(), 0);
}

#[tokio::test]
async fn o31_webhooks_come_last_and_go_first() {
    let site = Site::new().await;
    site.api.alone().await;
    let webhook = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "w").set(
        "/webhooks",
        json!([{
            "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"service": {"name": "d", "namespace": "default"}},
            "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}],
        }]),
    );
    let slow = deployment("d").note("devcluster.barbless.dev/after", "200ms");
    let chart = chart().put("a.yaml", [webhook.clone(), slow, service("d")]);
    let (result, ()) = tokio::join!(site.install(&chart), async {
        site.until("the webhook is there", &webhook, |_| true).await;
        let deployment = site.get(&deployment("d")).await.unwrap();
        assert_eq!(deployment["status"]["readyReplicas"], 1, "what serves it is ready before it is there");
    });
    result.unwrap();
    assert_eq!(
        site.changes(),
        seq("R1 pending-install; A Service/d; A Deployment/d; A ValidatingWebhookConfiguration/w; R1 deployed")
    );
    site.uninstall().await.unwrap();
    assert_eq!(
        site.changes(),
        seq("R1 uninstalling; D ValidatingWebhookConfiguration/w; D Service/d; D Deployment/d; D R1")
    );
}

/// The three layers of Helm's record. That real Helm reads it is shown where records are written (`host/cluster`).
#[tokio::test]
async fn o32_records_are_in_the_format_of_helm() {
    let site = Site::new().await;
    let chart = two("1").put("h.yaml", [job("j").hook("pre-install").weight("3").policy("hook-succeeded")]);
    site.install(&chart.file("templates/NOTES.txt", "hi")).await.unwrap();
    let secret = site.get(&object("v1", "Secret", "sh.helm.release.v1.r.v1")).await.unwrap();
    assert_eq!(secret["type"], "helm.sh/release.v1");
    let labels = &secret["metadata"]["labels"];
    for (label, value) in [("name", "r"), ("owner", "helm"), ("status", "deployed"), ("version", "1")] {
        assert_eq!(labels[label], value);
    }
    let release = unpack(&secret);
    assert_eq!((&release["name"], &release["version"]), (&json!("r"), &json!(1)));
    assert_eq!((&release["info"]["status"], &release["info"]["notes"]), (&json!("deployed"), &json!("hi")));
    let manifest = release["manifest"].as_str().unwrap();
    assert!(manifest.starts_with("---\n# Source: t/templates/a.yaml\n"), "{manifest}");
    assert!(!manifest.contains("kind: Job"));
    let hook = &release["hooks"][0];
    assert_eq!((&hook["name"], &hook["kind"], &hook["weight"]), (&json!("j"), &json!("Job"), &json!(3)));
    assert_eq!((&hook["events"], &hook["delete_policies"]), (&json!(["pre-install"]), &json!(["hook-succeeded"])));
    assert_eq!(hook["last_run"]["phase"], "Succeeded");
    assert_eq!(release["chart"].get("templates").and_then(Value::as_array).map_or(0, Vec::len), 0, "no files");
}

#[tokio::test]
async fn o33_a_record_that_is_too_large_stops_everything_beforehand() {
    let site = Site::new().await;
    // Text that does not get smaller: a generator of numbers in base 64.
    let mut state = 1_u64;
    let mut noise = |bytes: usize| {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(bytes)
        .collect();
        STANDARD.encode(bytes)
    };
    let large =
        [config_map_with("huge", json!({"k": noise(700_000)})), config_map_with("big", json!({"k": noise(500_000)}))];
    let failed = site.install(&chart().put("a.yaml", large).put("b.yaml", [config_map("small")])).await.unwrap_err();
    assert_eq!(failed.reason, "ReleaseTooLarge", "{failed:?}");
    let (huge, big) = (failed.message.find("huge").unwrap(), failed.message.find("big").unwrap());
    assert!(huge < big, "the largest are named: {failed:?}");
    assert_eq!(site.tap.writes(), 0);
}
