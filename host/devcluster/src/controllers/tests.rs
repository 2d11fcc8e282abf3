//! What becomes of workloads, owners and namespaces, seen through a client.

use std::time::{Duration, Instant};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    Config, DevCluster,
    tests::{client_of, cluster},
};

fn api(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match kind {
        "Namespace" | "PersistentVolume" | "StorageClass" => Api::all_with(client.clone(), &resource),
        _ => Api::default_namespaced_with(client.clone(), &resource),
    }
}

async fn create(client: &Client, object: Value) -> DynamicObject {
    let (api_version, kind) =
        (object["apiVersion"].as_str().unwrap().to_owned(), object["kind"].as_str().unwrap().to_owned());
    let object = serde_json::from_value(object).unwrap();
    api(client, &api_version, &kind).create(&PostParams::default(), &object).await.unwrap()
}

/// Waits until the object (null when it is absent) is as wanted.
async fn eventually(api: &Api<DynamicObject>, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let object = api.get_opt(name).await.unwrap().map_or(Value::Null, |o| serde_json::to_value(o).unwrap());
        if wanted(&object) {
            return object;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: {object:#}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

fn pod_template(labels: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn deployment(name: &str, annotations: &Value) -> Value {
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": pod_template(&labels, annotations)}})
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_deployment_becomes_available_and_rolls_to_a_new_template() {
    let (_cluster, client) = cluster().await;
    create(&client, deployment("web", &json!({}))).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let done = |generation: i64| {
        move |d: &Value| {
            let s = &d["status"];
            s["observedGeneration"] == generation
                && s["readyReplicas"] == 3
                && s["updatedReplicas"] == 3
                && s["replicas"] == 3
                && condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
        }
    };
    let first = eventually(&deployments, "web", "first", done(1)).await;
    assert_eq!(condition(&first, "Available")["status"], "True");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let second = eventually(&deployments, "web", "second", done(2)).await;
    assert_eq!(second["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    let pods = api(&client, "v1", "Pod").list(&ListParams::default().labels("app=web")).await.unwrap();
    assert!(pods.items.iter().all(|p| p.data["spec"]["containers"][0]["image"] == "i:2"), "{}", pods.items.len());
    deployments.delete("web", &DeleteParams::foreground()).await.unwrap();
    eventually(&deployments, "web", "gone", Value::is_null).await;
    assert!(api(&client, "v1", "Pod").list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_failing_deployment_crashes_until_its_annotation_goes() {
    let (_cluster, client) = cluster().await;
    let mut object = deployment("bad", &json!({}));
    object["metadata"]["annotations"] = json!({"devcluster.barbless.dev/fail": "137"});
    create(&client, object).await;
    let pods = api(&client, "v1", "Pod");
    let start = Instant::now();
    let pod = loop {
        let found = pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .find(|p| !p.data["status"]["containerStatuses"][0]["lastState"]["terminated"].is_null());
        if let Some(pod) = found {
            break pod;
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(3)).await;
    };
    let status = &pod.data["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 137);
    let deployments = api(&client, "apps/v1", "Deployment");
    let patch = json!({"metadata": {"annotations": {"devcluster.barbless.dev/fail": null}}});
    deployments.patch("bad", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually(&deployments, "bad", "recovers", |d| d["status"]["readyReplicas"] == 3).await;
}

#[tokio::test]
async fn a_hanging_pod_stays_pending_and_a_delayed_one_comes_late() {
    let (_cluster, client) = cluster().await;
    let pod = |name: &str, annotations: Value| {
        let mut pod = pod_template(&json!({}), &annotations);
        pod["metadata"]["name"] = json!(name);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod
    };
    let start = Instant::now();
    create(&client, pod("hang", json!({"devcluster.barbless.dev/hang": "true"}))).await;
    create(&client, pod("late", json!({"devcluster.barbless.dev/delay": "300ms"}))).await;
    create(&client, pod("quick", json!({}))).await;
    let pods = api(&client, "v1", "Pod");
    let ready = |p: &Value| condition(p, "Ready")["status"] == "True";
    let quick = eventually(&pods, "quick", "quick", ready).await;
    assert_eq!(quick["status"]["phase"], "Running");
    eventually(&pods, "late", "late", ready).await;
    assert!(start.elapsed() >= Duration::from_millis(300));
    let hang = pods.get("hang").await.unwrap();
    assert_eq!(hang.data["status"]["phase"], "Pending");
    assert_eq!(hang.data["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
}

#[tokio::test]
async fn a_stateful_set_makes_pods_in_order_with_bound_claims() {
    let (_cluster, client) = cluster().await;
    let labels = json!({"app": "db"});
    create(&client, json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": labels}, "template": pod_template(&labels, &json!({})),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}})).await;
    let sets = api(&client, "apps/v1", "StatefulSet");
    let set =
        eventually(&sets, "db", "ready", |s| s["status"]["readyReplicas"] == 2 && s["status"]["currentReplicas"] == 2)
            .await;
    assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
    let claims = api(&client, "v1", "PersistentVolumeClaim");
    let claim = eventually(&claims, "data-db-1", "bound", |c| c["status"]["phase"] == "Bound").await;
    let volume =
        api(&client, "v1", "PersistentVolume").get(claim["spec"]["volumeName"].as_str().unwrap()).await.unwrap();
    assert_eq!(volume.data["status"]["phase"], "Bound");
    sets.patch("db", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 1}}))).await.unwrap();
    eventually(&api(&client, "v1", "Pod"), "db-1", "scaled down", Value::is_null).await;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"x": "y"}}}}});
    sets.patch("db", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let rolled = |p: &Value| p["metadata"]["annotations"]["x"] == "y" && condition(p, "Ready")["status"] == "True";
    eventually(&api(&client, "v1", "Pod"), "db-0", "rolled", rolled).await;
}

#[tokio::test]
async fn a_job_completes_and_a_failing_one_exceeds_its_limit() {
    let (_cluster, client) = cluster().await;
    let job = |name: &str, annotations: Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations},
            "spec": {"backoffLimit": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    create(&client, job("good", json!({}))).await;
    create(&client, job("bad", json!({"devcluster.barbless.dev/fail": "true"}))).await;
    let jobs = api(&client, "batch/v1", "Job");
    let good = eventually(&jobs, "good", "good", |j| condition(j, "Complete")["status"] == "True").await;
    assert_eq!(
        (&good["status"]["succeeded"], condition(&good, "SuccessCriteriaMet")["status"].as_str()),
        (&json!(1), Some("True"))
    );
    assert!(good["status"]["completionTime"].is_string());
    let bad = eventually(&jobs, "bad", "bad", |j| condition(j, "Failed")["status"] == "True").await;
    assert_eq!(
        (condition(&bad, "Failed")["reason"].as_str(), &bad["status"]["failed"]),
        (Some("BackoffLimitExceeded"), &json!(2))
    );
}

#[tokio::test]
async fn a_service_gets_an_address_and_the_endpoints_of_ready_pods() {
    let (_cluster, client) = cluster().await;
    create(
        &client,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
    )
    .await;
    create(&client, deployment("web", &json!({}))).await;
    let service = eventually(&api(&client, "v1", "Service"), "web", "balanced", |s| {
        s["status"]["loadBalancer"]["ingress"][0]["ip"].is_string()
    })
    .await;
    assert!(service["spec"]["clusterIP"].as_str().unwrap().starts_with("10."));
    let three = |e: &Value| e["subsets"][0]["addresses"].as_array().is_some_and(|a| a.len() == 3);
    let endpoints = Api::default_namespaced_with(
        client.clone(),
        &ApiResource {
            plural: "endpoints".to_owned(),
            ..ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Endpoints"))
        },
    );
    let found = eventually(&endpoints, "web", "endpoints", three).await;
    assert_eq!(found["subsets"][0]["ports"][0]["port"], 8080);
    let slices = api(&client, "discovery.k8s.io/v1", "EndpointSlice")
        .list(&ListParams::default().labels("kubernetes.io/service-name=web"))
        .await
        .unwrap();
    assert_eq!(slices.items[0].data["endpoints"].as_array().unwrap().len(), 3);
}

fn owned(name: &str, owner: &DynamicObject, block: bool) -> Value {
    let mut reference = serde_json::to_value(
        owner.owner_ref(&ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"))).unwrap(),
    )
    .unwrap();
    reference["blockOwnerDeletion"] = json!(block);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [reference]}})
}

#[tokio::test]
async fn dependents_go_with_their_owner_in_each_way_of_deletion() {
    let cluster = DevCluster::start(Config { controllers: false, ..Config::default() }).await.unwrap();
    let client = client_of(&cluster);
    let maps = api(&client, "v1", "ConfigMap");
    let plain = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});

    let owner = create(&client, plain("background")).await;
    create(&client, owned("background-child", &owner, true)).await;
    maps.delete("background", &DeleteParams::background()).await.unwrap();
    eventually(&maps, "background-child", "collected", Value::is_null).await;

    let owner = create(&client, plain("orphan")).await;
    create(&client, owned("orphan-child", &owner, true)).await;
    maps.delete("orphan", &DeleteParams::orphan()).await.unwrap();
    eventually(&maps, "orphan", "owner gone", Value::is_null).await;
    let child = maps.get("orphan-child").await.unwrap();
    assert!(child.owner_references().is_empty());

    let owner = create(&client, plain("foreground")).await;
    let mut held = owned("foreground-child", &owner, true);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&client, held).await;
    let answer = maps.delete("foreground", &DeleteParams::foreground()).await.unwrap();
    assert!(answer.left().unwrap().finalizers().contains(&"foregroundDeletion".to_owned()));
    eventually(&maps, "foreground-child", "marked", |c| c["metadata"]["deletionTimestamp"].is_string()).await;
    assert!(maps.get_opt("foreground").await.unwrap().is_some(), "the owner waits for its child");
    let patch = json!([{"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/hold"}, {"op": "remove", "path": "/metadata/finalizers/0"}]);
    let patch = serde_json::from_value(patch).unwrap();
    maps.patch("foreground-child", &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
    eventually(&maps, "foreground", "owner gone", Value::is_null).await;

    let mut lost = plain("absent-owner-child");
    lost["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "no-such-uid"}]);
    create(&client, lost).await;
    eventually(&maps, "absent-owner-child", "collected", Value::is_null).await;
}

#[tokio::test]
async fn a_namespace_goes_with_its_content() {
    let (_cluster, client) = cluster().await;
    let namespaces = api(&client, "v1", "Namespace");
    create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})).await;
    let resource = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let accounts = Api::<DynamicObject>::namespaced_with(client.clone(), "gone", &resource("ServiceAccount"));
    eventually(&accounts, "default", "account", |a| !a.is_null()).await;
    let maps = Api::<DynamicObject>::namespaced_with(client.clone(), "gone", &resource("ConfigMap"));
    eventually(&maps, "kube-root-ca.crt", "bundle", |a| !a.is_null()).await;
    let mut held = DynamicObject::new("held", &resource("ConfigMap"));
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    namespaces.delete("gone", &DeleteParams::default()).await.unwrap();
    let waiting =
        eventually(&namespaces, "gone", "waits", |n| condition(n, "NamespaceFinalizersRemaining")["status"] == "True")
            .await;
    assert_eq!(waiting["status"]["phase"], "Terminating");
    let refused =
        maps.create(&PostParams::default(), &DynamicObject::new("late", &resource("ConfigMap"))).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(ref s) if s.code == 403), "{refused}");
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    eventually(&namespaces, "gone", "gone", Value::is_null).await;
}

#[tokio::test]
async fn an_orphaned_replica_set_is_adopted_by_the_next_deployment() {
    let (_cluster, client) = cluster().await;
    create(&client, deployment("web", &json!({}))).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let ready = |d: &Value| d["status"]["readyReplicas"] == 3;
    eventually(&deployments, "web", "ready", ready).await;
    let sets = api(&client, "apps/v1", "ReplicaSet");
    let before = sets.list(&ListParams::default()).await.unwrap().items[0].uid();
    deployments.delete("web", &DeleteParams::orphan()).await.unwrap();
    eventually(&deployments, "web", "gone", Value::is_null).await;
    create(&client, deployment("web", &json!({}))).await;
    eventually(&deployments, "web", "ready again", ready).await;
    let after = sets.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(after.iter().map(ResourceExt::uid).collect::<Vec<_>>(), [before]);
    assert_eq!(api(&client, "v1", "Pod").list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn daemon_sets_ingresses_budgets_and_scalers_report() {
    let (_cluster, client) = cluster().await;
    let labels = json!({"app": "ds"});
    create(
        &client,
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"},
            "spec": {"selector": {"matchLabels": labels}, "template": pod_template(&labels, &json!({}))}}),
    )
    .await;
    let sets = api(&client, "apps/v1", "DaemonSet");
    let ready = |d: &Value| d["status"]["numberReady"] == 1 && d["status"]["updatedNumberScheduled"] == 1;
    eventually(&sets, "ds", "ready", ready).await;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}});
    sets.patch("ds", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually(&sets, "ds", "rolled", |d| ready(d) && d["status"]["observedGeneration"] == 2).await;
    let pods = api(&client, "v1", "Pod").list(&ListParams::default().labels("app=ds")).await.unwrap();
    assert!(pods.items.iter().any(|p| p.annotations().contains_key("v")));

    create(
        &client,
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": labels}}}),
    )
    .await;
    let budget = |b: &Value| b["status"]["currentHealthy"] == 1 && b["status"]["desiredHealthy"] == 1;
    eventually(&api(&client, "policy/v1", "PodDisruptionBudget"), "b", "budget", budget).await;
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {
            "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
    )
    .await;
    let addressed = |i: &Value| i["status"]["loadBalancer"]["ingress"][0]["ip"].is_string();
    eventually(&api(&client, "networking.k8s.io/v1", "Ingress"), "i", "address", addressed).await;
    create(&client, deployment("web", &json!({}))).await;
    create(
        &client,
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    )
    .await;
    let scaler = api(&client, "autoscaling/v2", "HorizontalPodAutoscaler");
    eventually(&scaler, "h", "scaler", |h| condition(h, "AbleToScale")["status"] == "True").await;
}

#[tokio::test]
async fn jobs_can_be_suspended_time_out_and_expire() {
    let (_cluster, client) = cluster().await;
    let job = |name: &str, spec: Value| {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        for (key, value) in spec.as_object().unwrap() {
            job["spec"][key] = value.clone();
        }
        job
    };
    create(&client, job("suspended", json!({"suspend": true}))).await;
    let mut slow = job("slow", json!({"activeDeadlineSeconds": 1}));
    slow["metadata"]["annotations"] = json!({"devcluster.barbless.dev/hang": "true"});
    create(&client, slow).await;
    create(&client, job("short", json!({"ttlSecondsAfterFinished": 0, "completions": 3, "parallelism": 2}))).await;
    let jobs = api(&client, "batch/v1", "Job");
    eventually(&jobs, "suspended", "suspended", |j| condition(j, "Suspended")["status"] == "True").await;
    jobs.patch("suspended", &PatchParams::default(), &Patch::Merge(json!({"spec": {"suspend": false}}))).await.unwrap();
    eventually(&jobs, "suspended", "resumed", |j| condition(j, "Complete")["status"] == "True").await;
    eventually(&jobs, "slow", "late", |j| condition(j, "Failed")["reason"] == "DeadlineExceeded").await;
    eventually(&jobs, "short", "expired", Value::is_null).await;
}

#[tokio::test]
async fn a_deployment_that_does_not_progress_says_so_and_recreate_stops_first() {
    let (_cluster, client) = cluster().await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let mut stuck = deployment("stuck", &json!({"devcluster.barbless.dev/hang": "true"}));
    stuck["spec"]["progressDeadlineSeconds"] = json!(1);
    create(&client, stuck).await;
    let mut recreated = deployment("again", &json!({}));
    recreated["spec"]["strategy"] = json!({"type": "Recreate"});
    create(&client, recreated).await;
    let done = |n: i64| {
        move |d: &Value| {
            d["status"]["observedGeneration"] == n && condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
        }
    };
    eventually(&deployments, "again", "first", done(1)).await;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}});
    deployments.patch("again", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually(&deployments, "again", "second", done(2)).await;
    let late = |d: &Value| condition(d, "Progressing")["reason"] == "ProgressDeadlineExceeded";
    let stuck = eventually(&deployments, "stuck", "late", late).await;
    assert_eq!(
        (&condition(&stuck, "Progressing")["status"], &condition(&stuck, "Available")["status"]),
        (&json!("False"), &json!("False"))
    );
    assert!(stuck["status"].get("readyReplicas").is_none());
}

mod controlled;
mod runs;
