//! Workloads as kubectl handles them: rollouts, scaling, descriptions with Events, nodes, Jobs, and the three ways of
//! deletion.

use super::*;

const STATEFUL: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "db:1"}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
"#;

fn image(kind: &str) -> [&str; 4] {
    ["get", kind, "-o", "jsonpath={.spec.template.spec.containers[0].image}"]
}

/// A cluster with this in it, rolled out.
async fn with(test: &str, manifest: &str, workloads: &[&str]) -> Option<Kubectl> {
    let kubectl = Kubectl::start(test).await?;
    kubectl.ok(&["apply", "-f", "-"], manifest).await;
    for workload in workloads {
        kubectl.ok(&["rollout", "status", workload, "--timeout=30s"], "").await;
    }
    Some(kubectl)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_rolled_out_back_and_again() {
    let Some(kubectl) = with("rollout", MANIFEST, &["deployment/web"]).await else { return };
    let status = ["rollout", "status", "deployment/web", "--timeout=30s"];
    kubectl.ok(&["annotate", "deployment/web", "kubernetes.io/change-cause=the first"], "").await;
    kubectl.ok(&["set", "image", "deployment/web", "web=nginx:2"], "").await;
    kubectl.ok(&["annotate", "deployment/web", "kubernetes.io/change-cause=the second", "--overwrite"], "").await;
    let out = kubectl.ok(&status, "").await;
    assert!(out.ends_with("deployment \"web\" successfully rolled out\n"), "{out}");
    let out = kubectl.ok(&["rollout", "history", "deployment/web"], "").await;
    assert_eq!(out, "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         the first\n2         the second\n\n");
    let out = kubectl.ok(&["rollout", "history", "deployment/web", "--revision=1"], "").await;
    assert!(out.contains("deployment.apps/web with revision #1") && out.contains("nginx:1"), "{out}");
    assert_eq!(kubectl.ok(&["rollout", "undo", "deployment/web"], "").await, "deployment.apps/web rolled back\n");
    kubectl.ok(&status, "").await;
    assert_eq!(kubectl.ok(&image("deployment/web"), "").await, "nginx:1");
    let out = kubectl.ok(&["rollout", "history", "deployment/web"], "").await;
    assert!(out.contains("2         the second\n3         the first\n"), "{out}");
    assert_eq!(kubectl.ok(&["rollout", "restart", "deployment/web"], "").await, "deployment.apps/web restarted\n");
    kubectl.ok(&status, "").await;
    assert_eq!(kubectl.ok(&["rollout", "pause", "deployment/web"], "").await, "deployment.apps/web paused\n");
    kubectl.ok(&["set", "image", "deployment/web", "web=nginx:3"], "").await;
    let out = kubectl.refused(&["rollout", "undo", "deployment/web"], "").await;
    assert!(out.contains("cannot rollback a paused deployment"), "{out}");
    let out = kubectl
        .ok(&["get", "rs", "-l", "app=web", "-o", "jsonpath={.items[*].spec.template.spec.containers[0].image}"], "");
    assert!(!out.await.contains("nginx:3"));
    assert_eq!(kubectl.ok(&["rollout", "resume", "deployment/web"], "").await, "deployment.apps/web resumed\n");
    kubectl.ok(&status, "").await;
    let out = kubectl.ok(&["describe", "deployment", "web"], "").await;
    for part in [
        "NewReplicaSetAvailable",
        "MinimumReplicasAvailable",
        "ScalingReplicaSet",
        "deployment-controller  Scaled up replica set web-",
        " from 0 to 2",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let stuck = ["patch", "deployment", "web", "--type=merge", "-p"];
    let crash = r#"{"spec":{"template":{"metadata":{"annotations":{"devcluster.barbless.dev/run":"crash"}}}}}"#;
    kubectl.ok(&[&stuck[..], &[crash]].concat(), "").await;
    let err = kubectl.refused(&["rollout", "status", "deployment/web", "--timeout=1s"], "").await;
    assert_eq!(err, "error: timed out waiting for the condition\n");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_and_daemon_sets_have_a_history() {
    let Some(kubectl) = with("history", STATEFUL, &["sts/db", "ds/agent"]).await else { return };
    for (kind, name, container) in [("statefulset", "sts/db", "db"), ("daemonset", "ds/agent", "agent")] {
        let status = ["rollout", "status", name, "--timeout=30s"];
        kubectl.ok(&["set", "image", name, &format!("{container}={container}:2")], "").await;
        let out = kubectl.ok(&status, "").await;
        assert!(out.contains("roll"), "{out}");
        let out = kubectl.ok(&["rollout", "history", name], "").await;
        assert!(
            out.starts_with(&format!("{kind}.apps/")) && out.contains("1         <none>\n2         <none>\n"),
            "{out}"
        );
        let out = kubectl.ok(&["rollout", "history", name, "--revision=1"], "").await;
        assert!(out.contains(&format!("{container}:1")), "{out}");
        let out = kubectl.ok(&["rollout", "undo", name, "--to-revision=1"], "").await;
        assert_eq!(out, format!("{kind}.apps/{} rolled back\n", name.split_once('/').unwrap().1));
        kubectl.ok(&status, "").await;
        assert_eq!(kubectl.ok(&image(name), "").await, format!("{container}:1"));
        let out = kubectl.ok(&["rollout", "history", name], "").await;
        assert!(out.contains("2         <none>\n3         <none>\n") && !out.contains("\n1 "), "{out}");
        kubectl.ok(&["rollout", "restart", name], "").await;
        kubectl.ok(&status, "").await;
    }
    let out = kubectl.ok(&["describe", "sts", "db"], "").await;
    for part in [
        "Pods Status:        2 Running / 0 Waiting / 0 Succeeded / 0 Failed",
        "Create Claim data-db-0 Pod db-0 in StatefulSet db success",
        "Create Pod db-0 in StatefulSet db successful",
        "Delete Pod db-1 in StatefulSet db successful",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let out = kubectl.ok(&["describe", "ds", "agent"], "").await;
    assert!(out.contains("Desired Number of Nodes Scheduled: 1") && out.contains("Created pod: agent-"), "{out}");
    let out = kubectl.ok(&["get", "controllerrevisions", "--no-headers"], "").await;
    assert!(out.contains("statefulset.apps/db") && out.contains("daemonset.apps/agent"), "{out}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_scaled_by_hand_and_by_a_scaler() {
    let Some(kubectl) = with("scale", MANIFEST, &["deployment/web"]).await else { return };
    let out = kubectl.ok(&["scale", "deployment/web", "--replicas=3", "--current-replicas=2"], "").await;
    assert_eq!(out, "deployment.apps/web scaled\n");
    let err = kubectl.refused(&["scale", "deployment/web", "--replicas=1", "--current-replicas=2"], "").await;
    assert!(err.contains("Expected replicas to be 2, was 3"), "{err}");
    kubectl.ok(&["wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web", "--timeout=20s"], "").await;
    let out = kubectl.ok(&["autoscale", "deployment/web", "--min=4", "--max=6", "--cpu-percent=80"], "").await;
    assert_eq!(out, "horizontalpodautoscaler.autoscaling/web autoscaled\n");
    kubectl.ok(&["wait", "--for=jsonpath={.status.readyReplicas}=4", "deployment/web", "--timeout=20s"], "").await;
    kubectl.ok(&["wait", "--for=condition=AbleToScale", "hpa/web", "--timeout=20s"], "").await;
    kubectl.ok(&["scale", "deployment/web", "--replicas=9"], "").await;
    kubectl.ok(&["wait", "--for=jsonpath={.status.readyReplicas}=6", "deployment/web", "--timeout=20s"], "").await;
    let out = kubectl.ok(&["describe", "hpa", "web"], "").await;
    for part in [
        "Min replicas:",
        "AbleToScale",
        "New size: 4; reason: Current number of replicas below Spec.MinReplicas",
        "New size: 6; reason: Current number of replicas above Spec.MaxReplicas",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happened() {
    let pod = r#"
apiVersion: v1
kind: Pod
metadata: {name: lone}
spec: {containers: [{name: c, image: "x:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: broken, annotations: {devcluster.barbless.dev/run: image-pull}}
spec: {containers: [{name: c, image: "x:none"}]}
"#;
    let Some(kubectl) = with("events", pod, &[]).await else { return };
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/lone", "--timeout=20s"], "").await;
    kubectl
        .ok(
            &[
                "wait",
                "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ImagePullBackOff",
                "pod/broken",
                "--timeout=20s",
            ],
            "",
        )
        .await;
    let out = kubectl.ok(&["describe", "pod", "lone"], "").await;
    for part in [
        " dev-node-0/10.0.0.1\n",
        " Running\n",
        "default-scheduler  Successfully assigned default/lone to dev-node-0",
        "Pulled",
        "Container created",
        "Container started",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let out = kubectl.ok(&["events", "--for=pod/broken", "--types=Warning"], "").await;
    assert!(out.contains("Failed to pull image \"x:none\"") && out.contains("Pod/broken"), "{out}");
    let out = kubectl
        .ok(&["get", "events", "--field-selector=involvedObject.name=lone,reason=Scheduled", "--no-headers"], "")
        .await;
    assert!(out.contains("pod/lone") && out.lines().count() == 1, "{out}");
    kubectl.ok(&["delete", "pod", "lone"], "").await;
    let out = kubectl.ok(&["events", "--for=pod/lone"], "").await;
    assert!(out.contains("Stopping container c"), "{out}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_built_in_kind_is_described() {
    let more = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{host: a.b, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, default: {cpu: "1"}}]}
"#;
    let manifest = format!("{MANIFEST}---{STATEFUL}---{more}");
    let Some(kubectl) = with("describe", &manifest, &["deployment/web", "sts/db", "ds/agent"]).await else { return };
    kubectl.ok(&["create", "job", "once", "--from=cronjob/nightly"], "").await;
    kubectl.ok(&["wait", "--for=condition=Complete", "job/once", "--timeout=20s"], "").await;
    kubectl
        .ok(
            &["wait", "--for=jsonpath={.status.loadBalancer.ingress}", "service/web", "ingress/web", "--timeout=20s"],
            "",
        )
        .await;
    kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/disk", "--timeout=20s"], "").await;
    kubectl.ok(&["wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/web", "--timeout=20s"], "").await;
    for (kind, name, parts) in [
        ("namespace", "default", &["Status:       Active"][..]),
        (
            "node",
            "dev-node-0",
            &["Unschedulable:      false", "Non-terminated Pods:          (5 in total)", "Allocatable:"],
        ),
        ("replicaset", "", &["Controlled By:  Deployment/web", "Created pod: web-"]),
        ("service", "web", &["Endpoints:                10.244.", "LoadBalancer Ingress:     198.51.100."]),
        ("endpoints", "web", &["http"]),
        ("endpointslice", "", &["AddressType:  IPv4"]),
        ("ingress", "web", &["Address:          198.51.100.", "a.b"]),
        ("networkpolicy", "web", &["Allowing ingress traffic"]),
        ("pvc", "disk", &["Status:        Bound", "Capacity:      1Gi", "Successfully provisioned volume pvc-"]),
        ("pv", "", &["Claim:           default/", "Status:          Bound"]),
        ("storageclass", "standard", &["IsDefaultClass:"]),
        ("pdb", "web", &["Allowed disruptions:  1", "Current:              2"]),
        (
            "job",
            "once",
            &["Pods Statuses:    0 Active (0 Ready) / 1 Succeeded / 0 Failed", "Completed", "Job completed"],
        ),
        ("cronjob", "nightly", &["Schedule:                      0 3 * * *", "Last Schedule Time:  <unset>"]),
        ("serviceaccount", "default", &["Namespace:           default"]),
        ("limitrange", "limits", &["Container"]),
        ("priorityclass", "system-node-critical", &["2000001000"]),
        ("configmap", "settings", &["a:"]),
    ] {
        let out = kubectl
            .ok(
                &["describe", kind, name].map(str::trim).into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>(),
                "",
            )
            .await;
        for part in parts {
            assert!(out.contains(part), "{kind}: {part}: {out}");
        }
    }
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_follow_stay_or_go_first() {
    let Some(kubectl) = with("cascade", MANIFEST, &["deployment/web"]).await else { return };
    let pods = ["get", "pods", "-l", "app=web", "-o", "name"];
    let before = kubectl.ok(&pods, "").await;
    kubectl.ok(&["delete", "deployment", "web", "--cascade=orphan"], "").await;
    let owners = "jsonpath={.items[*].metadata.ownerReferences}";
    assert_eq!(kubectl.ok(&["get", "rs", "-l", "app=web", "-o", owners], "").await, "");
    assert_eq!(kubectl.ok(&pods, "").await, before);
    kubectl.ok(&["apply", "-f", "-"], MANIFEST).await;
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=30s"], "").await;
    assert_eq!(kubectl.ok(&pods, "").await, before, "they were adopted");
    let out = kubectl.ok(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=30s"], "").await;
    assert_eq!(out, "deployment.apps \"web\" deleted\n");
    assert_eq!(kubectl.ok(&["get", "rs,pods", "-l", "app=web", "-o", "name"], "").await, "", "it was the last to go");
    kubectl.ok(&["apply", "-f", "-"], MANIFEST).await;
    kubectl.ok(&["delete", "deployment", "web", "--cascade=background", "--wait=false"], "").await;
    kubectl.ok(&["wait", "--for=delete", "pods", "-l", "app=web", "--timeout=30s"], "").await;
    assert_eq!(kubectl.ok(&["delete", "cm", "nothing", "--ignore-not-found"], "").await, "");
    let err = kubectl.refused(&["delete", "cm", "nothing"], "").await;
    assert_eq!(err, "Error from server (NotFound): configmaps \"nothing\" not found\n");
    let err = kubectl.refused(&["delete", "ns", "default"], "").await;
    assert!(err.contains("namespaces \"default\" is forbidden: this namespace may not be deleted"), "{err}");
    kubectl.ok(&["apply", "-f", "-"], MANIFEST).await;
    kubectl.ok(&["delete", "cm,deploy", "--all", "--timeout=30s"], "").await;
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_emptied_within_the_budget() {
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}\n";
    let manifest = format!("{MANIFEST}---\n{budget}---{STATEFUL}");
    let Some(kubectl) = with("drain", &manifest, &["deployment/web", "ds/agent"]).await else { return };
    let node = "dev-node-0";
    let counted = ["wait", "--for=jsonpath={.status.expectedPods}=2", "pdb/web", "--timeout=20s"];
    kubectl.ok(&counted, "").await;
    let err =
        kubectl.refused(&["drain", node, "--ignore-daemonsets", "--pod-selector=app=web", "--timeout=1s"], "").await;
    assert!(err.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{err}");
    assert!(kubectl.ok(&["get", "nodes"], "").await.contains("Ready,SchedulingDisabled"));
    kubectl.ok(&["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"maxUnavailable":2}}"#], "").await;
    kubectl.ok(&["wait", "--for=jsonpath={.status.disruptionsAllowed}=2", "pdb/web", "--timeout=20s"], "").await;
    let out = kubectl.ok(&["drain", node, "--ignore-daemonsets", "--pod-selector=app=web", "--timeout=20s"], "").await;
    assert!(out.contains("evicted") && out.contains("node/dev-node-0 drained"), "{out}");
    let waiting = ["get", "pods", "-l", "app=web", "--no-headers"];
    let out = kubectl.ok(&waiting, "").await;
    assert!(out.lines().count() == 2 && out.lines().all(|line| line.contains("Pending")), "{out}");
    let out = kubectl.ok(&["describe", "pods", "-l", "app=web"], "").await;
    assert!(out.contains("0/1 nodes are available: 1 node(s) were unschedulable."), "{out}");
    assert_eq!(kubectl.ok(&["uncordon", node], "").await, "node/dev-node-0 uncordoned\n");
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=30s"], "").await;
    assert_eq!(kubectl.ok(&["taint", "node", node, "a=b:NoSchedule"], "").await, "node/dev-node-0 tainted\n");
    kubectl.ok(&["run", "kept-off", "--image=x"], "").await;
    kubectl.ok(&["wait", "--for=condition=PodScheduled=false", "pod/kept-off", "--timeout=20s"], "").await;
    assert_eq!(kubectl.ok(&["taint", "node", node, "a-"], "").await, "node/dev-node-0 untainted\n");
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/kept-off", "--timeout=20s"], "").await;
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_answered_for_properly() {
    let pod = r#"
apiVersion: v1
kind: Pod
metadata: {name: talks, annotations: {devcluster.barbless.dev/log: "one\ntwo\n"}}
spec: {containers: [{name: c, image: x}]}
"#;
    let Some(kubectl) = with("processes", pod, &[]).await else { return };
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/talks", "--timeout=20s"], "").await;
    assert_eq!(kubectl.ok(&["logs", "talks"], "").await, "one\ntwo\n");
    assert_eq!(kubectl.ok(&["logs", "talks", "--tail=1"], "").await, "two\n");
    let err = kubectl.refused(&["logs", "nothing"], "").await;
    assert!(err.contains("pods \"nothing\" not found"), "{err}");
    let err = kubectl.refused(&["logs", "talks", "-c", "d"], "").await;
    assert!(err.contains("container d is not valid for pod talks"), "{err}");
    let err = kubectl.refused(&["exec", "talks", "--", "ls"], "").await;
    assert!(err.contains("nothing runs in a development cluster"), "{err}");
    let err = kubectl.refused(&["attach", "talks"], "").await;
    assert!(err.contains("nothing runs in a development cluster"), "{err}");
    let err = kubectl.refused(&["port-forward", "pod/talks", "0:80"], "").await;
    assert!(err.contains("nothing runs in a development cluster"), "{err}");
    kubectl.stop().await;
}
