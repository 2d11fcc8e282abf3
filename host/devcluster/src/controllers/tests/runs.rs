//! Workloads that go wrong: what Pods, Jobs and Deployments show, as annotations ask.

use super::*;

/// A cluster whose seconds are short.
async fn fast(second: Duration) -> (DevCluster, Client) {
    let cluster = DevCluster::start(Config { second, ..Config::default() }).await.unwrap();
    let client = client_of(&cluster);
    (cluster, client)
}

fn pod(name: &str, policy: &str, annotations: &Value) -> Value {
    let mut pod = pod_template(&json!({"app": name}), annotations);
    pod["metadata"]["name"] = json!(name);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

fn job(name: &str, spec: &Value, annotations: &Value) -> Value {
    let mut template = pod_template(&json!({}), annotations);
    template["spec"]["restartPolicy"] = json!("Never");
    let mut job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

/// `devcluster.barbless.dev/<key>` for each.
fn knobs(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(key, value)| (format!("devcluster.barbless.dev/{key}"), json!(value))).collect()
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn kinds(object: &Value) -> Vec<&str> {
    object["status"]["conditions"].as_array().into_iter().flatten().filter_map(|c| c["type"].as_str()).collect()
}

#[tokio::test]
async fn a_pod_that_is_to_end_succeeds_fails_or_runs_for_ever() {
    let (_cluster, client) = cluster().await;
    create(&client, pod("good", "Never", &json!({}))).await;
    create(&client, pod("bad", "Never", &knobs(&[("run", "fail"), ("exit-code", "3"), ("after", "600ms")]))).await;
    create(&client, pod("stuck", "Never", &knobs(&[("run", "hang")]))).await;
    let pods = api(&client, "v1", "Pod");
    let good = eventually(&pods, "good", "good", |p| p["status"]["phase"] == "Succeeded").await;
    assert_eq!(container(&good)["state"]["terminated"]["exitCode"], 0);
    assert_eq!(condition(&good, "Ready")["reason"], "PodCompleted");
    eventually(&pods, "bad", "runs first", |p| p["status"]["phase"] == "Running").await;
    let bad = eventually(&pods, "bad", "bad", |p| p["status"]["phase"] == "Failed").await;
    assert_eq!(container(&bad)["state"]["terminated"]["exitCode"], 3);
    assert_eq!(container(&bad)["state"]["terminated"]["reason"], "Error");
    let stuck = eventually(&pods, "stuck", "stuck", |p| p["status"]["phase"] == "Running").await;
    assert!(container(&stuck)["state"]["running"]["startedAt"].is_string());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(pods.get("stuck").await.unwrap().data["status"]["phase"], "Running");
}

#[tokio::test]
async fn a_crashing_container_restarts_more_and_more_often_until_it_has_failed_enough() {
    let (_cluster, client) = fast(Duration::from_millis(6)).await;
    let annotations = knobs(&[("run", "crash"), ("exit-code", "137"), ("failures", "4")]);
    create(&client, pod("p", "Always", &annotations)).await;
    let pods = api(&client, "v1", "Pod");
    let twice = eventually(&pods, "p", "restarted", |p| {
        container(p)["restartCount"] == 2 && container(p)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    })
    .await;
    let message = container(&twice)["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 40s restarting failed container=c pod=p_default("), "{message}");
    assert_eq!(container(&twice)["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!(
        (&twice["status"]["phase"], condition(&twice, "Ready")["message"].as_str()),
        (&json!("Running"), Some("containers with unready status: [c]"))
    );
    let ready = eventually(&pods, "p", "recovered", |p| condition(p, "Ready")["status"] == "True").await;
    assert_eq!(container(&ready)["restartCount"], 4);
    assert_eq!(container(&ready)["lastState"]["terminated"]["exitCode"], 137);
}

#[tokio::test]
async fn an_image_that_is_not_there_is_tried_again_and_again() {
    // Long enough that every state is seen by one who asks again and again.
    let (ready_delay, second) = (Duration::from_millis(60), Duration::from_millis(6));
    let cluster = DevCluster::start(Config { ready_delay, second, ..Config::default() }).await.unwrap();
    let client = client_of(&cluster);
    create(&client, pod("p", "Always", &knobs(&[("run", "image-pull"), ("failures", "2")]))).await;
    create(&client, pod("q", "Always", &knobs(&[("run", "image-pull")]))).await;
    let pods = api(&client, "v1", "Pod");
    for reason in ["ErrImagePull", "ImagePullBackOff", "ErrImagePull"] {
        let seen = |p: &Value| container(p)["state"]["waiting"]["reason"] == reason;
        let shown = eventually(&pods, "q", reason, seen).await;
        assert_eq!((&shown["status"]["phase"], &container(&shown)["restartCount"]), (&json!("Pending"), &json!(0)));
    }
    eventually(&pods, "p", "fetched", |p| condition(p, "Ready")["status"] == "True").await;
}

#[tokio::test]
async fn an_init_container_that_fails_holds_back_the_others() {
    let (_cluster, client) = fast(Duration::from_millis(1)).await;
    let with_init = |name: &str, policy: &str| {
        let mut pod = pod(name, policy, &knobs(&[("run", "fail"), ("container", "second")]));
        let init = |name: &str| json!({"name": name, "image": "i"});
        pod["spec"]["initContainers"] = json!([init("first"), init("second"), init("third")]);
        pod
    };
    create(&client, with_init("loops", "Always")).await;
    create(&client, with_init("ends", "Never")).await;
    let pods = api(&client, "v1", "Pod");
    let init = |p: &Value, n: usize| p["status"]["initContainerStatuses"][n]["state"].clone();
    let loops = eventually(&pods, "loops", "loops", |p| init(p, 1)["waiting"]["reason"] == "CrashLoopBackOff").await;
    assert_eq!(init(&loops, 0)["terminated"]["exitCode"], 0);
    assert_eq!(init(&loops, 2)["waiting"]["reason"], "PodInitializing");
    assert_eq!(container(&loops)["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(loops["status"]["phase"], "Pending");
    assert_eq!(condition(&loops, "Initialized")["message"], "containers with incomplete status: [second third]");
    let ends = eventually(&pods, "ends", "ends", |p| p["status"]["phase"] == "Failed").await;
    assert_eq!(init(&ends, 1)["terminated"]["exitCode"], 1);
}

#[tokio::test]
async fn one_of_two_containers_fails_and_an_unschedulable_pod_has_no_node() {
    let (_cluster, client) = fast(Duration::from_millis(1)).await;
    let mut two = pod("two", "Always", &knobs(&[("run", "crash"), ("container", "d")]));
    two["spec"]["containers"] = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    create(&client, two).await;
    create(&client, pod("nowhere", "Always", &knobs(&[("run", "unschedulable")]))).await;
    let pods = api(&client, "v1", "Pod");
    let waiting = |p: &Value| p["status"]["containerStatuses"][1]["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    let two = eventually(&pods, "two", "crashes", waiting).await;
    assert_eq!(container(&two)["ready"], true);
    assert_eq!(condition(&two, "ContainersReady")["message"], "containers with unready status: [d]");
    let reason = |p: &Value| condition(p, "PodScheduled")["reason"] == "Unschedulable";
    let nowhere = eventually(&pods, "nowhere", "unschedulable", reason).await;
    assert!(nowhere["spec"].get("nodeName").is_none());
    assert_eq!(nowhere["status"]["phase"], "Pending");
}

#[tokio::test]
async fn the_output_of_a_pod_is_what_it_says() {
    let (_cluster, client) = cluster().await;
    create(&client, pod("p", "Never", &knobs(&[("log", "one\ntwo\n")]))).await;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
    assert_eq!(pods.logs("p", &kube::api::LogParams::default()).await.unwrap(), "one\ntwo\n");
}

#[tokio::test]
async fn a_job_announces_its_end_and_keeps_its_pods_by_label() {
    let (cluster, client) = cluster().await;
    let jobs = api(&client, "batch/v1", "Job");
    let start = jobs.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    create(&client, job("good", &json!({}), &json!({}))).await;
    create(&client, job("bad", &json!({"backoffLimit": 2}), &knobs(&[("run", "fail")]))).await;
    let good = eventually(&jobs, "good", "good", |j| condition(j, "Complete")["status"] == "True").await;
    assert_eq!(kinds(&good), ["SuccessCriteriaMet", "Complete"]);
    assert_eq!(condition(&good, "Complete")["reason"], "CompletionsReached");
    assert_eq!(condition(&good, "Complete")["message"], "Reached expected number of succeeded pods");
    assert!(good["status"]["completionTime"].is_string() && good["status"].get("failed").is_none());
    let bad = eventually(&jobs, "bad", "bad", |j| condition(j, "Failed")["status"] == "True").await;
    assert_eq!(kinds(&bad), ["FailureTarget", "Failed"]);
    assert_eq!(condition(&bad, "Failed")["message"], "Job has reached the specified backoff limit");
    assert_eq!((&bad["status"]["failed"], bad["status"].get("completionTime")), (&json!(3), None));
    for (name, pods) in [("good", 1), ("bad", 3)] {
        let by_label = ListParams::default().labels(&format!("job-name={name}"));
        let found = api(&client, "v1", "Pod").list(&by_label).await.unwrap().items;
        assert_eq!(found.len(), pods, "{name}");
    }
    // The announcement was a state of its own.
    use futures::TryStreamExt;
    let watch = kube::api::WatchParams::default().fields("metadata.name=bad").timeout(1);
    let events = jobs.watch(&watch, &start).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    let states = events.iter().filter_map(|event| match event {
        kube::api::WatchEvent::Modified(job) => Some(kinds(&job.data).len()),
        _ => None,
    });
    assert!(states.into_iter().any(|n| n == 1));
    drop(cluster);
}

#[tokio::test]
async fn a_job_fails_late_by_restarts_or_recovers() {
    let (_cluster, client) = fast(Duration::from_millis(20)).await;
    let jobs = api(&client, "batch/v1", "Job");
    create(&client, job("late", &json!({"activeDeadlineSeconds": 20}), &knobs(&[("run", "hang")]))).await;
    let mut restarts = job("restarts", &json!({"backoffLimit": 3}), &knobs(&[("run", "fail")]));
    restarts["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    create(&client, restarts).await;
    create(&client, job("recovers", &json!({"backoffLimit": 3}), &knobs(&[("run", "fail"), ("failures", "2")]))).await;
    let late = eventually(&jobs, "late", "late", |j| condition(j, "Failed")["status"] == "True").await;
    assert_eq!(condition(&late, "FailureTarget")["reason"], "DeadlineExceeded");
    assert_eq!(condition(&late, "Failed")["message"], "Job was active longer than specified deadline");
    assert_eq!((&late["status"]["failed"], late["status"].get("active")), (&json!(1), None));
    let restarts = eventually(&jobs, "restarts", "restarts", |j| condition(j, "Failed")["status"] == "True").await;
    assert_eq!(condition(&restarts, "Failed")["reason"], "BackoffLimitExceeded");
    let recovers = eventually(&jobs, "recovers", "done", |j| condition(j, "Complete")["status"] == "True").await;
    assert_eq!((&recovers["status"]["failed"], &recovers["status"]["succeeded"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn a_finished_job_is_deleted_after_its_time_and_its_pods_go_with_it() {
    let (_cluster, client) = fast(Duration::from_millis(100)).await;
    let jobs = api(&client, "batch/v1", "Job");
    let pods = api(&client, "v1", "Pod");
    create(&client, job("short", &json!({"ttlSecondsAfterFinished": 2}), &json!({}))).await;
    eventually(&jobs, "short", "done", |j| condition(j, "Complete")["status"] == "True").await;
    let start = Instant::now();
    eventually(&jobs, "short", "expired", Value::is_null).await;
    assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty(), "foreground: the Pods went first");

    create(&client, job("kept", &json!({}), &knobs(&[("run", "hang")]))).await;
    eventually(&jobs, "kept", "runs", |j| j["status"]["active"] == 1).await;
    jobs.delete("kept", &DeleteParams::background()).await.unwrap();
    assert!(jobs.get_opt("kept").await.unwrap().is_none());
    let start = Instant::now();
    while !pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

#[tokio::test]
async fn an_indexed_job_gives_each_pod_its_number() {
    let (_cluster, client) = cluster().await;
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2});
    create(&client, job("many", &spec, &json!({}))).await;
    let jobs = api(&client, "batch/v1", "Job");
    eventually(&jobs, "many", "done", |j| condition(j, "Complete")["status"] == "True").await;
    let pods = api(&client, "v1", "Pod").list(&ListParams::default().labels("job-name=many")).await.unwrap();
    let mut indexes =
        pods.items.iter().map(|p| p.labels()["batch.kubernetes.io/job-completion-index"].as_str()).collect::<Vec<_>>();
    indexes.sort_unstable();
    assert_eq!(indexes, ["0", "1", "2"]);
}

#[tokio::test]
async fn workloads_that_never_become_ready_say_so() {
    let (_cluster, client) = fast(Duration::from_millis(5)).await;
    let mut web = deployment("web", &knobs(&[("run", "image-pull")]));
    web["spec"]["progressDeadlineSeconds"] = json!(10);
    create(&client, web).await;
    let labels = json!({"app": "db"});
    let never = pod_template(&labels, &knobs(&[("run", "hang")]));
    create(
        &client,
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": labels}, "template": never}}),
    )
    .await;
    create(
        &client,
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod_template(&labels, &knobs(&[("run", "crash")]))}}),
    )
    .await;
    create(&client, json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "annotations": knobs(&[("run", "hang")])},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})).await;
    create(
        &client,
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "annotations": knobs(&[("run", "hang")])},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    )
    .await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let late = |d: &Value| condition(d, "Progressing")["reason"] == "ProgressDeadlineExceeded";
    let web = eventually(&deployments, "web", "late", late).await;
    assert_eq!(
        (&condition(&web, "Progressing")["status"], &web["status"]["unavailableReplicas"]),
        (&json!("False"), &json!(3))
    );
    let db = eventually(&api(&client, "apps/v1", "StatefulSet"), "db", "db", |s| s["status"]["replicas"] == 1).await;
    assert_eq!(db["status"]["readyReplicas"], Value::Null, "zero is left out");
    let ds = api(&client, "apps/v1", "DaemonSet");
    let ds = eventually(&ds, "ds", "ds", |s| s["status"]["numberUnavailable"] == 1).await;
    assert_eq!(ds["status"]["numberReady"], 0);
    let patch =
        json!({"spec": {"template": {"metadata": {"annotations": {"devcluster.barbless.dev/run": "succeed"}}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let progressed = |d: &Value| condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable";
    eventually(&deployments, "web", "mended", progressed).await;
    let service = api(&client, "v1", "Service").get("lb").await.unwrap();
    assert!(service.data["status"]["loadBalancer"].get("ingress").is_none());
    let claim = api(&client, "v1", "PersistentVolumeClaim").get("claim").await.unwrap();
    assert_eq!(claim.data["status"]["phase"], "Pending");
}

#[tokio::test]
async fn what_goes_wrong_is_told_in_events_that_are_counted() {
    let (_cluster, client) = fast(Duration::from_millis(1)).await;
    create(&client, pod("p", "Always", &knobs(&[("run", "crash"), ("failures", "3")]))).await;
    create(&client, pod("q", "Always", &knobs(&[("run", "image-pull"), ("failures", "1")]))).await;
    create(&client, pod("n", "Always", &knobs(&[("run", "unschedulable")]))).await;
    create(&client, job("j", &json!({"backoffLimit": 0}), &knobs(&[("run", "fail")]))).await;
    let pods = api(&client, "v1", "Pod");
    let ready = |p: &Value| condition(p, "Ready")["status"] == "True";
    eventually(&pods, "p", "ready", ready).await;
    eventually(&pods, "q", "ready", ready).await;
    let jobs = api(&client, "batch/v1", "Job");
    eventually(&jobs, "j", "failed", |j| condition(j, "Failed")["status"] == "True").await;
    let events = api(&client, "v1", "Event").list(&ListParams::default()).await.unwrap();
    let find = |name: &str, reason: &str, message: &str| {
        events.items.iter().map(|e| &e.data).find(|e| {
            e["involvedObject"]["name"] == name
                && e["reason"] == reason
                && e["message"].as_str().is_some_and(|m| m.starts_with(message))
        })
    };
    let back_off = find("p", "BackOff", "Back-off restarting failed container c in pod p_default(").unwrap();
    assert_eq!((&back_off["count"], &back_off["type"]), (&json!(3), &json!("Warning")));
    assert!(find("q", "Failed", "Failed to pull image \"i:1\"").is_some());
    assert!(find("q", "BackOff", "Back-off pulling image \"i:1\"").is_some());
    assert!(find("n", "FailedScheduling", "0/1 nodes are available").is_some());
    assert!(find("j", "BackoffLimitExceeded", "Job has reached").is_some());
}

#[tokio::test]
async fn a_volume_waits_to_be_had_and_a_claim_for_the_volume_that_it_names() {
    let (_cluster, client) = cluster().await;
    let claims = api(&client, "v1", "PersistentVolumeClaim");
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"});
    create(
        &client,
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}),
    )
    .await;
    let volume = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}})
    };
    assert_eq!(claims.get("c").await.unwrap().data["status"]["phase"], "Pending");
    create(&client, volume("v")).await;
    create(&client, volume("w")).await;
    let volumes = api(&client, "v1", "PersistentVolume");
    eventually(&volumes, "w", "available", |v| v["status"]["phase"] == "Available").await;
    eventually(&claims, "c", "bound", |c| c["status"]["phase"] == "Bound").await;
    eventually(&volumes, "v", "bound", |v| v["status"]["phase"] == "Bound").await;
}

#[tokio::test]
async fn a_paused_deployment_says_so_and_goes_on_afterwards() {
    let (_cluster, client) = fast(Duration::from_millis(1)).await;
    let mut web = deployment("web", &json!({}));
    web["spec"]["progressDeadlineSeconds"] = json!(60);
    create(&client, web).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let reason = |reason: &'static str| move |d: &Value| condition(d, "Progressing")["reason"] == reason;
    eventually(&deployments, "web", "first", reason("NewReplicaSetAvailable")).await;
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    deployments.patch("web", &PatchParams::default(), &pause(true)).await.unwrap();
    let paused = eventually(&deployments, "web", "paused", reason("DeploymentPaused")).await;
    assert_eq!(condition(&paused, "Progressing")["status"], "Unknown");
    deployments.patch("web", &PatchParams::default(), &pause(false)).await.unwrap();
    let done = eventually(&deployments, "web", "resumed", reason("NewReplicaSetAvailable")).await;
    assert_eq!(condition(&done, "Progressing")["status"], "True");
}

#[tokio::test]
async fn what_is_slow_comes_late_and_goes_late() {
    let (_cluster, client) = cluster().await;
    let late = knobs(&[("after", "200ms")]);
    let definition = |name: &str, annotations: &Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{name}s.example.com"), "annotations": annotations},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": format!("{name}s"), "kind": name.to_uppercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let definitions = Api::<DynamicObject>::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")),
    );
    let put = async |object: Value| {
        definitions.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    };
    let start = Instant::now();
    put(definition("slow", &late)).await;
    put(definition("never", &knobs(&[("run", "hang")]))).await;
    create(
        &client,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "annotations": late},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
    )
    .await;
    create(&client, pod("p", "Always", &knobs(&[("stop-after", "200ms")]))).await;
    let slow = serde_json::to_value(definitions.get("slows.example.com").await.unwrap()).unwrap();
    assert_eq!(
        (&condition(&slow, "Established")["status"], &condition(&slow, "Established")["reason"]),
        (&json!("False"), &json!("Installing"))
    );
    let instances = Api::<DynamicObject>::default_namespaced_with(
        client.clone(),
        &ApiResource {
            plural: "slows".to_owned(),
            ..ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "SLOW"))
        },
    );
    assert!(instances.list(&ListParams::default()).await.is_err(), "not served yet");
    eventually(&definitions, "slows.example.com", "established", |d| condition(d, "Established")["status"] == "True")
        .await;
    assert!(start.elapsed() >= Duration::from_millis(200));
    instances.list(&ListParams::default()).await.unwrap();
    let addressed = |s: &Value| s["status"]["loadBalancer"]["ingress"][0]["ip"].is_string();
    eventually(&api(&client, "v1", "Service"), "lb", "address", addressed).await;
    let never = serde_json::to_value(definitions.get("nevers.example.com").await.unwrap()).unwrap();
    assert_eq!(condition(&never, "Established")["status"], "False");

    let pods = api(&client, "v1", "Pod");
    eventually(&pods, "p", "ready", |p| condition(p, "Ready")["status"] == "True").await;
    let start = Instant::now();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    eventually(&pods, "p", "marked", |p| p["metadata"]["deletionTimestamp"].is_string()).await;
    eventually(&pods, "p", "gone", Value::is_null).await;
    assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
}
