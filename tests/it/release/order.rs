//! O1-O16: order, resource policies, ownership, definitions, history.

use serde_json::json;

use super::chart::{Object, account, chart, config_map, config_map_with, definition, deployment, job, object, secret};
use super::helm::recorded;
use super::site::{Site, seq};

/// One object of each kind of the recorded scenario, in the order of Helm's uninstallation.
fn one_of_each_kind() -> Vec<Object> {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let named = |api: &str, kind: &str| object(api, kind, &format!("x-{}", kind.to_lowercase()));
    let pods = deployment("x").0["spec"]["template"].clone();
    let select = json!({"matchLabels": {"app": "x"}});
    let run = json!({"template": pods, "selector": select});
    let webhook = json!([{
        "name": "w.example.com", "clientConfig": {"url": "https://w.example.com"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}],
    }]);
    let role = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "x-role"});
    let job_template = job("x").0["spec"].clone();
    vec![
        named("example.com/v1", "Widget"),
        named("example.com/v1", "Alpha"),
        named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration").set("/webhooks", webhook.clone()),
        named("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration").set("/webhooks", webhook),
        object("apiregistration.k8s.io/v1", "APIService", "v1.none.example.com").set(
            "/spec",
            json!({"group": "none.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 1,
                "service": {"name": "x", "namespace": "default"}}),
        ),
        named("networking.k8s.io/v1", "Ingress").set("/spec", json!({"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}})),
        named("v1", "Service").set("/spec", json!({"selector": {"app": "x"}, "ports": [{"port": 80}]})),
        named("batch/v1", "CronJob").set("/spec", json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job_template}})),
        named("batch/v1", "Job").set("/spec", job("x").0["spec"].clone()),
        named("apps/v1", "StatefulSet").set("/spec", run.clone()).set("/spec/serviceName", json!("x")),
        named("autoscaling/v2", "HorizontalPodAutoscaler").set(
            "/spec",
            json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}}),
        ),
        named("apps/v1", "Deployment").set("/spec", run.clone()),
        named("v1", "Pod").set("/spec", super::chart::pod("x").0["spec"].clone()),
        named("apps/v1", "DaemonSet").set("/spec", run),
        named("rbac.authorization.k8s.io/v1", "RoleBinding")
            .set("/roleRef", role("Role"))
            .set("/subjects", json!([{"kind": "ServiceAccount", "name": "x-serviceaccount", "namespace": "default"}])),
        named("rbac.authorization.k8s.io/v1", "Role").set("/rules", rules.clone()),
        named("rbac.authorization.k8s.io/v1", "ClusterRole").set("/rules", rules),
        definition("Other", "Namespaced"),
        named("v1", "PersistentVolumeClaim")
            .set("/spec", json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})),
        named("storage.k8s.io/v1", "StorageClass").set("/provisioner", json!("example.com/none")),
        named("v1", "ConfigMap"),
        named("v1", "Secret"),
        named("v1", "ServiceAccount"),
        named("policy/v1", "PodDisruptionBudget").set("/spec", json!({"minAvailable": 1, "selector": select})),
        named("v1", "LimitRange").set("/spec", json!({"limits": [{"type": "Container", "max": {"cpu": "2"}}]})),
        named("v1", "ResourceQuota").set("/spec", json!({"hard": {"configmaps": "1000"}})),
        named("networking.k8s.io/v1", "NetworkPolicy").set("/spec", json!({"podSelector": {}})),
        named("scheduling.k8s.io/v1", "PriorityClass").set("/value", json!(10)),
    ]
}

/// Only the kinds, for objects whose names had to be others than in the recording.
fn kinds(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.split_once('/').map_or(line.as_str(), |(what, _)| what).to_owned()).collect()
}

async fn site_with_foreign_kinds() -> Site {
    let site = Site::new().await;
    site.api.alone().await;
    for kind in ["Widget", "Alpha"] {
        site.define(kind).await;
    }
    site
}

/// Ours (decision 5): custom resources of other packages come before APIServices and webhooks, since what serves these
/// may need them; with Helm unknown kinds are last.
#[tokio::test]
async fn o01_kinds_are_installed_in_order() {
    let site = site_with_foreign_kinds().await.with(|options| options.all_ready = true);
    site.install(&chart().put("all.yaml", one_of_each_kind())).await.unwrap();
    let mut expected = kinds(&recorded("install/uninstall kind order", "install"));
    for kind in ["A Alpha", "A Widget"] {
        expected.retain(|line| line != kind);
        let place = expected.iter().position(|line| line == "A APIService").unwrap();
        expected.insert(place, kind.to_owned());
    }
    assert_eq!(kinds(&site.changes()), expected);
}

/// Ours (design 7): webhooks first, then custom resources while what serves them still runs; with Helm unknown kinds are
/// last, after their definition and their operator.
#[tokio::test]
async fn o02_kinds_are_removed_in_the_opposite_order() {
    let site = site_with_foreign_kinds().await.with(|options| options.all_ready = true);
    site.install(&chart().put("all.yaml", one_of_each_kind())).await.unwrap();
    site.changes();
    site.uninstall().await.unwrap();
    let mut expected = kinds(&recorded("install/uninstall kind order", "uninstall"));
    expected.retain(|line| line != "D Alpha" && line != "D Widget");
    let place = expected.iter().position(|line| line == "D APIService").unwrap() + 1;
    expected.splice(place..place, ["D Alpha".to_owned(), "D Widget".to_owned()]);
    assert_eq!(kinds(&site.changes()), expected);
}

/// Ours (decision 5): objects of one kind go together, also in an upgrade; the plan has them as the documents have.
#[tokio::test]
async fn o03_objects_of_one_kind_go_together() {
    let site = Site::new().await;
    let chart = |value: &str| {
        let data = json!({"k": value});
        chart().put("a.yaml", [config_map_with("b", data.clone()), config_map_with("a", data)])
    };
    let plan = site.plan(&chart("1")).await.unwrap();
    assert_eq!(plan.objects.iter().map(|it| it.target.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    site.install(&chart("1")).await.unwrap();
    assert_eq!(site.changes(), seq("R1 pending-install; A ConfigMap/a; A ConfigMap/b; R1 deployed"));
    site.upgrade(&chart("2")).await.unwrap();
    assert_eq!(site.changes(), seq("R2 pending-upgrade; A ConfigMap/a; A ConfigMap/b; R1 superseded; R2 deployed"));
}

#[tokio::test]
async fn o04_kind_then_path_then_document() {
    let site = Site::new().await;
    let chart = chart()
        .put("b.yaml", [config_map("b2"), secret("b1")])
        .put("a.yaml", [config_map("a1"), config_map("a2")])
        .put("sub/c.yaml", [config_map("c1")]);
    let plan = site.plan(&chart).await.unwrap();
    let names: Vec<&str> = plan.objects.iter().map(|it| it.target.name.as_str()).collect();
    assert_eq!(names, ["b1", "a1", "a2", "b2", "c1"]);
    site.install(&chart).await.unwrap();
    assert_eq!(site.changes(), recorded("O4 path+doc order", "install"));
}

/// The charts of O5 and O7.
fn life() -> (super::chart::Chart, super::chart::Chart) {
    let first = chart().put(
        "a.yaml",
        [
            config_map("gone"),
            config_map("kept").resource_policy("keep"),
            config_map_with("same", json!({"v": "1"})),
            deployment("d"),
            job("pre-rb").hook("pre-rollback"),
            job("post-rb").hook("post-rollback"),
        ],
    );
    let second = chart().put(
        "a.yaml",
        [
            config_map_with("same", json!({"v": "2"})),
            account("new"),
            deployment("d").set("/spec/replicas", json!(2)),
            job("mig").hook("pre-upgrade"),
            job("post").hook("post-upgrade"),
        ],
    );
    (first, second)
}

#[tokio::test]
async fn o05_an_upgrade_applies_and_then_deletes_what_is_dropped() {
    let site = Site::new().await;
    let (first, second) = life();
    site.install(&first).await.unwrap();
    assert_eq!(site.changes(), recorded("full lifecycle", "install"));
    site.upgrade(&second).await.unwrap();
    assert_eq!(site.changes(), recorded("full lifecycle", "upgrade"));
    assert!(site.has(&config_map("kept")).await && !site.has(&config_map("gone")).await);
}

/// O6 is what nelm does in O5: dropped objects first. Here they go after the new ones are ready, as with Helm, and are
/// waited for, as with nelm (decision 5).
#[tokio::test]
async fn o06_dropped_objects_are_gone_when_the_upgrade_ends() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [config_map("gone").note("x", "1"), config_map("same")])).await.unwrap();
    site.hold(&config_map("gone"), "example.com/hold").await;
    let chart = chart().put("a.yaml", [config_map("same")]);
    let (result, ()) = tokio::join!(site.upgrade(&chart), async {
        site.until("it is being deleted", &config_map("gone"), |it| it["metadata"].get("deletionTimestamp").is_some())
            .await;
        assert_eq!(site.history().await, [(1, "deployed"), (2, "pending-upgrade")], "the upgrade waits for it");
        site.release(&config_map("gone")).await;
    });
    result.unwrap();
    assert!(!site.has(&config_map("gone")).await);
}

#[tokio::test]
async fn o07_a_rollback_brings_back_what_was() {
    let site = Site::new().await;
    let (first, second) = life();
    site.install(&first).await.unwrap();
    site.upgrade(&second).await.unwrap();
    site.changes();
    site.rollback(1).await.unwrap();
    let mut expected = recorded("full lifecycle", "rollback to 1");
    // Ours: 'kept' is as it was, so that there is nothing to write.
    expected.retain(|line| line != "A ConfigMap/kept");
    let mut log = site.changes();
    log.retain(|line| line != "A ConfigMap/kept");
    assert_eq!(log, expected);
    assert_eq!(site.get(&config_map("same")).await.unwrap()["data"]["v"], "1");
    assert_eq!(site.get(&deployment("d")).await.unwrap()["spec"]["replicas"], 1);
    let left = site.uninstall().await.unwrap();
    assert!(left.iter().any(|line| line.contains("kept") && line.contains("resource policy")), "{left:?}");
    assert!(site.has(&config_map("kept")).await);
}

/// Ours: an unknown policy is an error before anything is written; with Helm the object is an orphan that nobody reports.
#[tokio::test]
async fn o08_a_removal_keeps_what_says_keep() {
    let site = Site::new().await;
    let keep = config_map("keep1").resource_policy("  Keep ");
    let odd = chart().put("a.yaml", [keep.clone(), config_map("weird").resource_policy("whatever")]);
    let failed = site.install(&odd).await.unwrap_err();
    assert!(failed.message.contains("weird") && failed.message.contains("whatever"), "{failed:?}");
    assert_eq!(site.tap.writes(), 0);
    site.install(&chart().put("a.yaml", [keep, config_map("norm")])).await.unwrap();
    site.changes();
    let left = site.uninstall().await.unwrap();
    assert_eq!(site.changes(), seq("R1 uninstalling; D ConfigMap/norm; D R1"));
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains("keep1"), "{left:?}");
    assert!(site.has(&config_map("keep1")).await);
}

/// Ours: one rule everywhere; with Helm an upgrade takes `keep` to the letter and deletes the object.
#[tokio::test]
async fn o09_an_upgrade_keeps_what_says_keep() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [config_map("keep1").resource_policy(" Keep "), config_map("norm")]))
        .await
        .unwrap();
    site.changes();
    site.upgrade(&chart().put("a.yaml", [config_map_with("norm", json!({"k": "2"}))])).await.unwrap();
    assert_eq!(site.changes(), seq("R2 pending-upgrade; A ConfigMap/norm; R1 superseded; R2 deployed"));
    assert!(site.has(&config_map("keep1")).await);
}

/// Ours: also a policy that somebody put on the object by hand is honoured.
#[tokio::test]
async fn o10_a_policy_on_the_live_object_counts() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [config_map("x"), config_map("y")])).await.unwrap();
    site.annotate(&config_map("x"), "helm.sh/resource-policy", "keep").await;
    let left = site.uninstall().await.unwrap();
    assert!(left.iter().any(|line| line.contains(&format!("ConfigMap {}/x", site.id.namespace()))), "{left:?}");
    assert!(site.has(&config_map("x")).await && !site.has(&config_map("y")).await);
}

/// Ours: the mark of ownership is the label of the instance, and all objects in the way are told at once.
#[tokio::test]
async fn o11_objects_of_others_stop_an_installation_before_any_write() {
    let site = Site::new().await;
    site.put(&config_map("x")).await;
    site.put(&secret("s").label("packages.deckhouse.io/instance", "other")).await;
    let failed =
        site.install(&chart().put("a.yaml", [config_map("x"), secret("s"), config_map("y")])).await.unwrap_err();
    assert_eq!(failed.reason, "ObjectNotOwned");
    let namespace = site.id.namespace();
    let (map, secret) = (format!("ConfigMap {namespace}/x"), format!("Secret {namespace}/s"));
    for part in [map.as_str(), &secret, "packages.deckhouse.io/instance", "other"] {
        assert!(failed.message.contains(part), "{failed:?}");
    }
    assert!(failed.hint.contains("label"), "{failed:?}");
    assert_eq!(site.tap.writes(), 0, "{:?}", site.log());
    assert_eq!(site.history().await, []);
}

#[tokio::test]
async fn o12_marked_objects_are_adopted() {
    let site = Site::new().await;
    site.put(&config_map("x").label("packages.deckhouse.io/instance", "r")).await;
    site.install(&chart().put("a.yaml", [config_map_with("x", json!({"k": "v"})), config_map("y")])).await.unwrap();
    assert_eq!(site.changes(), recorded("install over owned existing", "install"));
    assert_eq!(site.get(&config_map("x")).await.unwrap()["data"]["k"], "v");
}

/// Ours (and newer Helm): what carries the mark of another is left, with a note; 4.2.3 deletes it.
#[tokio::test]
async fn o13_an_object_that_changed_hands_is_left() {
    let site = Site::new().await;
    site.install(&chart().put("a.yaml", [config_map("x"), config_map("y")])).await.unwrap();
    site.relabel(&config_map("x"), "packages.deckhouse.io/instance", "other").await;
    let left = site.uninstall().await.unwrap();
    assert!(
        left.iter()
            .any(|line| line.contains(&format!("ConfigMap {}/x", site.id.namespace())) && line.contains("other")),
        "{left:?}"
    );
    assert!(site.has(&config_map("x")).await && !site.has(&config_map("y")).await);
}

/// Ours: the definition is part of the operation, so it comes after the record and is upgraded when that is safe; with
/// Helm it comes before and is never upgraded. It is never deleted.
#[tokio::test]
async fn o14_definitions_come_first_and_stay() {
    let site = Site::new().await;
    site.api.alone().await;
    let widget = |value: i32| object("example.com/v1", "Widget", "w").set("/spec", json!({"size": value}));
    let chart = |crd: &Object, value: i32| chart().define(crd).put("w.yaml", [widget(value)]);
    let crd = definition("Widget", "Namespaced");
    let name = "CustomResourceDefinition/widgets.example.com";
    site.install(&chart(&crd, 1)).await.unwrap();
    assert_eq!(site.changes(), seq(&format!("R1 pending-install; A {name}; A Widget/w; R1 deployed")));
    site.upgrade(&chart(&crd, 2)).await.unwrap();
    let unchanged: Vec<String> = site.changes().into_iter().filter(|line| !line.contains(name)).collect();
    assert_eq!(unchanged, seq("R2 pending-upgrade; A Widget/w; R1 superseded; R2 deployed"));
    let mut more = crd.clone();
    let mut second = more.0["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    more.0["spec"]["versions"].as_array_mut().unwrap().push(second);
    site.upgrade(&chart(&more, 3)).await.unwrap();
    let live = site.get(&crd).await.unwrap();
    assert_eq!(live["spec"]["versions"].as_array().unwrap().len(), 2, "a safe upgrade is made");
    site.changes();
    site.uninstall().await.unwrap();
    assert!(site.changes().contains(&"D Widget/w".to_owned()));
    assert!(site.has(&crd).await, "the definition is left");
}

/// Ours: an error that names both places; Helm applies the object twice.
#[tokio::test]
async fn o15_an_object_that_is_rendered_twice_is_an_error() {
    let site = Site::new().await;
    let failed =
        site.install(&chart().put("a.yaml", [config_map("x")]).put("b.yaml", [config_map("x")])).await.unwrap_err();
    assert_eq!(failed.reason, "DuplicateObject");
    assert!(failed.message.contains("a.yaml") && failed.message.contains("b.yaml"), "{failed:?}");
    assert_eq!(site.tap.writes(), 0);
}

#[tokio::test]
async fn o16_history_is_bounded_and_keeps_what_is_deployed() {
    let site = Site::new().await.with(|options| options.kept_revisions = 2);
    let chart = |value: &str| {
        let data = json!({"k": value});
        chart().put("a.yaml", [config_map_with("x", data.clone()), config_map_with("y", data)])
    };
    for (operation, value) in ["install", "upgrade0", "upgrade1", "upgrade2"].into_iter().zip(["1", "2", "3", "4"]) {
        if operation == "install" {
            site.install(&chart(value)).await.unwrap();
        } else {
            site.upgrade(&chart(value)).await.unwrap();
        }
        assert_eq!(site.changes(), recorded("max_history=2", operation));
    }
    assert_eq!(site.history().await, [(3, "superseded"), (4, "deployed")]);
    // Failures do not push out the deployed one.
    let bad = super::chart::chart().put("a.yaml", [config_map("x"), job("j").hook("pre-upgrade").run("fail")]);
    for _ in 0..3 {
        site.upgrade(&bad).await.unwrap_err();
    }
    assert_eq!(site.history().await, [(4, "deployed"), (7, "failed")]);
}
