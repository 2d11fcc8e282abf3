//! What controllers make, keep and tell: CronJobs, revisions, disruption budgets, scalers, Events.

use super::*;

async fn fast(second: Duration) -> (DevCluster, Client) {
    let cluster = DevCluster::start(Config { second, ..Config::default() }).await.unwrap();
    let client = client_of(&cluster);
    (cluster, client)
}

fn cron_job(name: &str, spec: Value, annotations: &Value) -> Value {
    let template = json!({"metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": {
        "schedule": "* * * * *",
        "jobTemplate": {"metadata": {"labels": {"of": name}}, "spec": {"backoffLimit": 0, "template": template}}}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

async fn jobs_of(client: &Client, name: &str) -> Vec<Value> {
    let list = ListParams::default().labels(&format!("of={name}"));
    let jobs = api(client, "batch/v1", "Job").list(&list).await.unwrap().items;
    jobs.into_iter().map(|job| serde_json::to_value(job).unwrap()).collect()
}

async fn events_of(client: &Client, name: &str) -> Vec<(String, String)> {
    let list = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let events = api(client, "v1", "Event").list(&list).await.unwrap().items;
    let part = |event: &DynamicObject, field: &str| event.data[field].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| (part(event, "reason"), part(event, "message"))).collect()
}

#[tokio::test]
async fn a_cron_job_makes_jobs_and_keeps_the_last_few() {
    // A minute is 0.9 s: long enough for a Job to end in it, also on a machine that is busy.
    let (_cluster, client) = fast(Duration::from_millis(15)).await;
    let zoned = json!({"successfulJobsHistoryLimit": 1, "timeZone": "Europe/Berlin"});
    create(&client, cron_job("good", zoned, &json!({}))).await;
    create(&client, cron_job("bad", json!({}), &json!({"devcluster.barbless.dev/run": "fail"}))).await;
    create(&client, cron_job("off", json!({"suspend": true}), &json!({}))).await;
    let deleted = |events: &[(String, String)]| events.iter().any(|(reason, _)| reason == "SuccessfulDelete");
    let ended = |jobs: &[Value], kind: &str| jobs.iter().filter(|job| condition(job, kind)["status"] == "True").count();
    let start = Instant::now();
    for (name, end) in [("good", "Complete"), ("bad", "Failed")] {
        while !deleted(&events_of(&client, name).await) || ended(&jobs_of(&client, name).await, end) > 1 {
            assert!(start.elapsed() < Duration::from_secs(30), "old Jobs stay: {:?}", events_of(&client, name).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let cron = api(&client, "batch/v1", "CronJob").get("good").await.unwrap();
    assert!(
        cron.data["status"]["lastScheduleTime"].is_string() && cron.data["status"]["lastSuccessfulTime"].is_string()
    );
    let jobs = jobs_of(&client, "good").await;
    let job = &jobs[0];
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&json!("CronJob"), &json!("good"), &json!(true))
    );
    let at = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str().unwrap();
    let minute = at.parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    assert_eq!(job["metadata"]["name"], format!("good-{minute}"), "{at}");
    assert!(at.ends_with("+01:00") || at.ends_with("+02:00"), "{at}");
    let reasons = events_of(&client, "good").await;
    for reason in ["SuccessfulCreate", "SawCompletedJob"] {
        assert!(reasons.iter().any(|(known, _)| known == reason), "{reasons:?}");
    }
    assert!(jobs_of(&client, "off").await.is_empty());
}

#[tokio::test]
async fn jobs_of_a_cron_job_wait_for_each_other_or_take_their_place() {
    let (_cluster, client) = fast(Duration::from_millis(2)).await;
    let hang = json!({"devcluster.barbless.dev/run": "hang"});
    for policy in ["Forbid", "Replace", "Allow"] {
        create(&client, cron_job(&policy.to_lowercase(), json!({"concurrencyPolicy": policy}), &hang)).await;
    }
    let crons = api(&client, "batch/v1", "CronJob");
    let many = |c: &Value| c["status"]["active"].as_array().is_some_and(|active| active.len() >= 3);
    eventually(&crons, "allow", "many at once", many).await;
    let start = Instant::now();
    while !events_of(&client, "replace").await.iter().any(|(reason, _)| reason == "SuccessfulDelete")
        || !events_of(&client, "forbid").await.iter().any(|(reason, _)| reason == "JobAlreadyActive")
    {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", events_of(&client, "replace").await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(jobs_of(&client, "forbid").await.len(), 1);
    let replaced = jobs_of(&client, "replace").await;
    assert!(replaced.iter().filter(|job| job["metadata"]["deletionTimestamp"].is_null()).count() <= 1, "{replaced:#?}");
    crons.delete("allow", &DeleteParams::background()).await.unwrap();
    let start = Instant::now();
    while !jobs_of(&client, "allow").await.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "Jobs outlive their CronJob");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_stateful_set_keeps_what_is_below_its_partition() {
    let (_cluster, client) = cluster().await;
    let labels = json!({"app": "db"});
    create(
        &client,
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "replicas": 3, "serviceName": "db", "ordinals": {"start": 5}, "selector": {"matchLabels": labels},
            "template": pod_template(&labels, &json!({}))}}),
    )
    .await;
    let sets = api(&client, "apps/v1", "StatefulSet");
    let pods = api(&client, "v1", "Pod");
    let ready = |s: &Value| {
        s["status"]["readyReplicas"] == 3 && s["status"]["observedGeneration"] == s["metadata"]["generation"]
    };
    let before = eventually(&sets, "db", "ready", ready).await;
    let revision = before["status"]["currentRevision"].clone();
    let patch = json!({"spec": {
        "updateStrategy": {"rollingUpdate": {"partition": 2}},
        "template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    sets.patch("db", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    eventually(&pods, "db-7", "new", |p| {
        p["spec"]["containers"][0]["image"] == "i:2" && condition(p, "Ready")["status"] == "True"
    })
    .await;
    // What is made anew below the partition is of the old revision.
    let old = pods.get("db-6").await.unwrap().uid();
    pods.delete("db-6", &DeleteParams::default().grace_period(0)).await.unwrap();
    let again =
        eventually(&pods, "db-6", "made again", |p| !p.is_null() && p["metadata"]["uid"].as_str() != old.as_deref())
            .await;
    assert_eq!(again["spec"]["containers"][0]["image"], "i:1");
    assert_eq!(again["metadata"]["labels"]["controller-revision-hash"], revision);
    let whole = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    sets.patch("db", &PatchParams::default(), &Patch::Merge(whole)).await.unwrap();
    let done = |s: &Value| ready(s) && s["status"]["currentRevision"] == s["status"]["updateRevision"];
    let after = eventually(&sets, "db", "all new", |s| done(s) && s["status"]["updatedReplicas"] == 3).await;
    assert_ne!(after["status"]["currentRevision"], revision);
    let revisions = api(&client, "apps/v1", "ControllerRevision").list(&ListParams::default()).await.unwrap().items;
    let mut numbers = revisions.iter().map(|it| it.data["revision"].as_i64().unwrap()).collect::<Vec<_>>();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    let names = pods.list(&ListParams::default().labels("app=db")).await.unwrap().items;
    assert_eq!(names.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["db-5", "db-6", "db-7"]);
}

#[tokio::test]
async fn evictions_keep_to_the_budget() {
    let (_cluster, client) = cluster().await;
    create(&client, deployment("web", &json!({}))).await;
    create(
        &client,
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}),
    )
    .await;
    let budgets = api(&client, "policy/v1", "PodDisruptionBudget");
    let counted = |b: &Value| b["status"]["disruptionsAllowed"] == 1 && b["status"]["expectedPods"] == 3;
    eventually(&budgets, "b", "counted", counted).await;
    // A Pod that is evicted takes its time, so that the budget stays spent.
    let slow = json!({"metadata": {"annotations": {"devcluster.barbless.dev/stop-after": "300ms"}}});
    let deployments = api(&client, "apps/v1", "Deployment");
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(slow)).await.unwrap();
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client.clone());
    let names = pods.list(&ListParams::default()).await.unwrap().items;
    let names = names.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let evict = async |name: &str| pods.evict(name, &kube::api::EvictParams::default()).await;
    let dry = kube::api::EvictParams {
        post_options: PostParams { dry_run: true, ..PostParams::default() },
        ..Default::default()
    };
    pods.evict(&names[0], &dry).await.unwrap();
    evict(&names[0]).await.unwrap();
    let refused = evict(&names[1]).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
    assert_eq!(status.message, "Cannot evict pod as it would violate the pod's disruption budget.");
    let cause = &status.details.as_ref().unwrap().causes[0];
    assert_eq!(cause.reason, "DisruptionBudget");
    assert!(cause.message.starts_with("The disruption budget b needs 2 healthy pods and has "), "{}", cause.message);
    let gone = pods.get(&names[0]).await.unwrap();
    let gone = serde_json::to_value(gone).unwrap();
    assert_eq!(condition(&gone, "DisruptionTarget")["reason"], "EvictionByEvictionAPI");
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    eventually(&budgets, "b", "recovered", |b| counted(b) && b["status"].get("disruptedPods").is_none()).await;
    evict(&names[1]).await.unwrap();
}

#[tokio::test]
async fn a_scaler_keeps_to_its_bounds_and_sees_its_target_come() {
    let (_cluster, client) = cluster().await;
    create(
        &client,
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"minReplicas": 4, "maxReplicas": 6, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
    )
    .await;
    let scalers = api(&client, "autoscaling/v2", "HorizontalPodAutoscaler");
    let missing = eventually(&scalers, "h", "missing", |h| condition(h, "AbleToScale")["status"] == "False").await;
    assert_eq!(
        condition(&missing, "AbleToScale")["message"],
        "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found"
    );
    create(&client, deployment("web", &json!({}))).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    eventually(&deployments, "web", "more", |d| d["status"]["readyReplicas"] == 4).await;
    let settled =
        |h: &Value| condition(h, "AbleToScale")["reason"] == "ReadyForNewScale" && h["status"]["currentReplicas"] == 4;
    let h = eventually(&scalers, "h", "settled", settled).await;
    assert_eq!(condition(&h, "ScalingLimited")["reason"], "DesiredWithinRange");
    let patch = json!({"spec": {"replicas": 0}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    eventually(&scalers, "h", "off", |h| condition(h, "ScalingActive")["reason"] == "ScalingDisabled").await;
    assert_eq!(deployments.get("web").await.unwrap().data["spec"]["replicas"], 0);
}

#[tokio::test]
async fn controllers_tell_what_they_do() {
    let (_cluster, client) = cluster().await;
    create(&client, deployment("web", &json!({}))).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    eventually(&deployments, "web", "ready", |d| d["status"]["readyReplicas"] == 3).await;
    let set = api(&client, "apps/v1", "ReplicaSet").list(&ListParams::default()).await.unwrap().items[0].name_any();
    let told = events_of(&client, "web").await;
    let expected = ("ScalingReplicaSet".to_owned(), format!("Scaled up replica set {set} from 0 to 3"));
    assert_eq!(told, [expected]);
    let told = events_of(&client, &set).await;
    assert_eq!(told.iter().filter(|(reason, _)| reason == "SuccessfulCreate").count(), 3, "{told:?}");
    let pod = api(&client, "v1", "Pod").list(&ListParams::default()).await.unwrap().items[0].name_any();
    let mut told = events_of(&client, &pod).await.into_iter().map(|(reason, _)| reason).collect::<Vec<_>>();
    told.sort_unstable();
    assert_eq!(told, ["Created", "Pulled", "Scheduled", "Started"]);
    // Nothing is told of what did not happen.
    let revision = api(&client, "v1", "Event").list(&ListParams::default()).await.unwrap().items.len();
    let patch = json!({"metadata": {"annotations": {"example.com/note": "1"}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api(&client, "v1", "Event").list(&ListParams::default()).await.unwrap().items.len(), revision);
    let set = api(&client, "apps/v1", "ReplicaSet").get(&set).await.unwrap();
    assert_eq!(set.annotations()["example.com/note"], "1");
    assert_eq!(set.annotations()["deployment.kubernetes.io/max-replicas"], "4");
}

#[tokio::test]
async fn claims_are_protected_while_they_are_used_and_wait_for_their_first_pod() {
    let (_cluster, client) = cluster().await;
    create(
        &client,
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
            "provisioner": "example.com/x", "volumeBindingMode": "WaitForFirstConsumer"}),
    )
    .await;
    let claim = |name: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}})
    };
    create(&client, claim("late", "late")).await;
    let claims = api(&client, "v1", "PersistentVolumeClaim");
    let volumes = api(&client, "v1", "PersistentVolume");
    let start = Instant::now();
    while events_of(&client, "late").await.iter().all(|(reason, _)| reason != "WaitForFirstConsumer") {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert_eq!(claims.get("late").await.unwrap().data["status"]["phase"], "Pending");
    let mut pod = pod_template(&json!({}), &json!({}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("user");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "late"}}]);
    create(&client, pod).await;
    let bound = eventually(&claims, "late", "bound", |c| c["status"]["phase"] == "Bound").await;
    let volume = bound["spec"]["volumeName"].as_str().unwrap().to_owned();
    claims.delete("late", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let held = claims.get("late").await.unwrap();
    assert_eq!(held.finalizers(), ["kubernetes.io/pvc-protection"]);
    assert!(held.metadata.deletion_timestamp.is_some());
    assert!(volumes.get_opt(&volume).await.unwrap().is_some());
    api(&client, "v1", "Pod").delete("user", &DeleteParams::default()).await.unwrap();
    eventually(&claims, "late", "gone", Value::is_null).await;
    eventually(&volumes, &volume, "gone, too", Value::is_null).await;
}

#[tokio::test]
async fn a_claim_takes_the_smallest_volume_that_is_there_and_leaves_it() {
    let (_cluster, client) = cluster().await;
    let volume = |name: &str, size: &str, class: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": class,
            "hostPath": {"path": "/x"}}})
    };
    for (name, size, class) in
        [("large", "20Gi", "manual"), ("small", "1Gi", "manual"), ("right", "6Gi", "manual"), ("other", "5Gi", "x")]
    {
        create(&client, volume(name, size, class)).await;
    }
    let claims = api(&client, "v1", "PersistentVolumeClaim");
    let volumes = api(&client, "v1", "PersistentVolume");
    for name in ["large", "small", "right", "other"] {
        eventually(&volumes, name, "available", |v| v["status"]["phase"] == "Available").await;
    }
    create(
        &client,
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "manual"}}),
    )
    .await;
    let bound = eventually(&claims, "c", "bound", |c| c["status"]["phase"] == "Bound").await;
    assert_eq!(
        (&bound["spec"]["volumeName"], &bound["status"]["capacity"]["storage"]),
        (&json!("right"), &json!("6Gi"))
    );
    let taken = eventually(&volumes, "right", "bound", |v| v["status"]["phase"] == "Bound").await;
    assert_eq!(taken["spec"]["claimRef"]["name"], "c");
    claims.delete("c", &DeleteParams::default()).await.unwrap();
    eventually(&claims, "c", "gone", Value::is_null).await;
    // A volume that somebody made is kept for somebody to look at.
    eventually(&volumes, "right", "released", |v| v["status"]["phase"] == "Released").await;
}

#[tokio::test]
async fn what_has_to_be_ready_for_a_while_is_available_later() {
    let (_cluster, client) = cluster().await;
    let mut web = deployment("web", &json!({}));
    web["spec"]["minReadySeconds"] = json!(2);
    create(&client, web).await;
    let deployments = api(&client, "apps/v1", "Deployment");
    let waiting = eventually(&deployments, "web", "ready", |d| d["status"]["readyReplicas"] == 3).await;
    assert_eq!(condition(&waiting, "Available")["status"], "False");
    assert!(waiting["status"].get("availableReplicas").is_none());
    let done = |d: &Value| {
        d["status"]["availableReplicas"] == 3 && condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
    };
    eventually(&deployments, "web", "available", done).await;
}
