#![expect(clippy::needless_pass_by_value, reason = "a table reads better without references in each row")]

use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "generation": 2},
        "spec": spec, "status": status,
    })
}

#[track_caller]
fn is_ready(object: &Value) {
    assert_eq!(readiness(object), Readiness::Ready, "{object}");
}

#[track_caller]
fn waits(object: &Value, reason: &str) {
    assert_eq!(readiness(object), Readiness::NotReady { reason: reason.to_owned() }, "{object}");
}

#[track_caller]
fn fails(object: &Value, reason: &str) {
    assert_eq!(readiness(object), Readiness::Failed { reason: reason.to_owned() }, "{object}");
}

/// The status with one field set to another value; null takes it away.
fn but(status: &Value, name: &str, value: Value) -> Value {
    let mut status = status.clone();
    status[name] = value;
    status
}

const UNSEEN: &str = "generation 2 is not yet observed by its controller (last observed: 1)";

#[test]
fn a_deployment_is_ready_when_all_its_replicas_are_new_and_available() {
    let case = |spec: &Value, status: Value| object("apps/v1", "Deployment", spec.clone(), status);
    let three = json!({"replicas": 3});
    let good = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
    is_ready(&case(&three, good.clone()));
    waits(&case(&three, but(&good, "observedGeneration", json!(1))), UNSEEN);
    waits(&case(&three, json!(null)), "generation 2 is not yet observed by its controller (last observed: 0)");
    waits(&case(&three, but(&good, "updatedReplicas", json!(1))), "1 of 3 replicas are updated");
    waits(&case(&three, but(&good, "replicas", json!(5))), "old replicas that have not ended: 2");
    waits(&case(&three, but(&good, "availableReplicas", json!(2))), "2 of 3 replicas are available");
    // Absent replicas are one, and none are wanted only if the spec says so.
    waits(&case(&json!({}), json!({"observedGeneration": 2})), "0 of 1 replicas are updated");
    is_ready(&case(&json!({"replicas": 0}), json!({"observedGeneration": 2})));
    // A paused rollout ends only when somebody resumes it.
    is_ready(&case(&json!({"replicas": 3, "paused": true}), json!({"observedGeneration": 2})));
}

#[test]
fn a_deployment_fails_at_its_deadline_but_not_at_that_of_the_generation_before() {
    let late = json!({"observedGeneration": 2, "conditions": [{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out",
    }]});
    let case = |status| object("apps/v1", "Deployment", json!({"replicas": 1}), status);
    fails(&case(late.clone()), "ProgressDeadlineExceeded: timed out");
    waits(&case(but(&late, "observedGeneration", json!(1))), UNSEEN);
    let quota = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]);
    waits(&case(but(&late, "conditions", quota)), "FailedCreate: quota");
}

#[test]
fn a_stateful_set_is_ready_when_its_replicas_are_ready_and_of_the_new_revision() {
    let case = |spec: Value, status: Value| object("apps/v1", "StatefulSet", spec, status);
    let three = || json!({"replicas": 3});
    let good = json!({
        "observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "web-b", "updateRevision": "web-b",
    });
    is_ready(&case(three(), good.clone()));
    waits(&case(three(), but(&good, "observedGeneration", json!(1))), UNSEEN);
    waits(&case(three(), but(&good, "updatedReplicas", json!(2))), "2 of 3 replicas are updated");
    waits(&case(three(), but(&good, "readyReplicas", json!(null))), "0 of 3 replicas are ready");
    waits(&case(three(), but(&good, "replicas", json!(4))), "surplus replicas that have not ended: 1");
    let half = but(&good, "currentRevision", json!("web-a"));
    waits(&case(three(), half.clone()), "the update to revision web-b has not ended");

    let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    is_ready(&case(partition.clone(), but(&half, "updatedReplicas", json!(1))));
    waits(&case(partition, but(&half, "updatedReplicas", json!(0))), "0 of 1 replicas are updated");
    is_ready(&case(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}), json!({"observedGeneration": 2})));
}

#[test]
fn a_daemon_set_is_ready_when_it_runs_on_all_nodes_it_is_meant_for() {
    let case = |status: Value| object("apps/v1", "DaemonSet", json!({}), status);
    let good = json!({
        "observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2,
    });
    is_ready(&case(good.clone()));
    is_ready(&case(json!({"observedGeneration": 2, "desiredNumberScheduled": 0})));
    waits(&case(but(&good, "observedGeneration", json!(1))), UNSEEN);
    waits(&case(json!({"observedGeneration": 2})), "it is not known yet on how many nodes it is to run");
    waits(&case(but(&good, "currentNumberScheduled", json!(1))), "1 of 2 Pods are scheduled");
    waits(&case(but(&good, "updatedNumberScheduled", json!(1))), "1 of 2 Pods are updated");
    waits(&case(but(&good, "numberAvailable", json!(1))), "1 of 2 Pods are available");
    waits(&case(but(&good, "numberReady", json!(1))), "1 of 2 Pods are ready");
    is_ready(&object(
        "apps/v1",
        "DaemonSet",
        json!({"updateStrategy": {"type": "OnDelete"}}),
        json!({"observedGeneration": 2}),
    ));
}

#[test]
fn a_replica_set_is_ready_when_all_its_replicas_are() {
    let good = json!({
        "observedGeneration": 2, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
    });
    for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("v1", "ReplicationController")] {
        let case = |status: Value| object(api_version, kind, json!({"replicas": 2}), status);
        is_ready(&case(good.clone()));
        waits(&case(but(&good, "observedGeneration", json!(1))), UNSEEN);
        waits(&case(but(&good, "fullyLabeledReplicas", json!(1))), "1 of 2 replicas are fully labelled");
        waits(&case(but(&good, "availableReplicas", json!(1))), "1 of 2 replicas are available");
        waits(&case(but(&good, "readyReplicas", json!(1))), "1 of 2 replicas are ready");
        waits(&case(but(&good, "replicas", json!(3))), "surplus replicas that have not ended: 1");
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]);
        waits(&case(but(&good, "conditions", failure)), "FailedCreate");
    }
}

#[test]
fn a_job_is_ready_when_it_is_complete_and_fails_when_it_has_failed() {
    let case = |spec: Value, status: Value| object("batch/v1", "Job", spec, status);
    let condition = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status, "reason": "BackoffLimitExceeded", "message": "enough"}]});
    is_ready(&case(json!({}), condition("Complete", "True")));
    fails(&case(json!({}), condition("Failed", "True")), "BackoffLimitExceeded: enough");
    waits(&case(json!({}), condition("Failed", "False")), "0 of 1 completions are done");
    waits(&case(json!({}), condition("SuccessCriteriaMet", "True")), "0 of 1 completions are done");
    waits(
        &case(json!({"completions": 5}), json!({"succeeded": 2, "failed": 1})),
        "2 of 5 completions are done, failed Pods: 1",
    );
    waits(&case(json!({"suspend": true}), json!({})), "it is suspended");
    let bare = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    fails(&case(json!({}), bare), "Failed is True");
}

#[test]
fn a_pod_is_ready_when_its_condition_says_so_or_it_has_succeeded() {
    let case = |status: Value| object("v1", "Pod", json!({}), status);
    let ready =
        |status: &str| json!([{"type": "Ready", "status": status, "message": "containers with unready status"}]);
    is_ready(&case(json!({"phase": "Running", "conditions": ready("True")})));
    is_ready(&case(json!({"phase": "Succeeded", "conditions": ready("False")})));
    waits(&case(json!({"phase": "Running", "conditions": ready("False")})), "containers with unready status");
    waits(&case(json!({"phase": "Pending"})), "the phase is Pending");
    waits(&case(json!(null)), "it has no phase yet");
    let unscheduled = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]);
    waits(&case(json!({"phase": "Pending", "conditions": unscheduled})), "Unschedulable: 0/1 nodes are available");
}

#[test]
fn a_pod_that_cannot_start_names_its_container_and_one_that_has_failed_says_why() {
    let case = |status: Value| object("v1", "Pod", json!({}), status);
    let looping = json!([{
        "name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}},
    }]);
    waits(
        &case(json!({"phase": "Running", "containerStatuses": looping})),
        "container \"web\" is waiting: CrashLoopBackOff, last exit code 2 (Error)",
    );
    let pulling = json!([{"name": "web", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]);
    waits(
        &case(json!({"phase": "Pending", "containerStatuses": pulling})),
        "container \"web\" is waiting: ImagePullBackOff (no image)",
    );
    let ended = json!([{"name": "web", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]);
    fails(
        &case(json!({"phase": "Failed", "containerStatuses": ended})),
        "container \"web\" failed: exit code 1 (Error)",
    );
    fails(&case(json!({"phase": "Failed", "reason": "Evicted", "message": "no disk"})), "Evicted: no disk");
    fails(&case(json!({"phase": "Failed"})), "the phase is Failed");
}

#[test]
fn claims_and_namespaces_are_ready_in_their_phase() {
    for (kind, good) in [("PersistentVolumeClaim", "Bound"), ("Namespace", "Active")] {
        let case = |status: Value| object("v1", kind, json!({}), status);
        is_ready(&case(json!({ "phase": good })));
        waits(&case(json!({})), &format!("it has no phase yet, expected {good}"));
        for other in ["Pending", "Lost", "Terminating"] {
            waits(&case(json!({ "phase": other })), &format!("the phase is {other}, expected {good}"));
        }
    }
}

#[test]
fn a_service_waits_only_for_the_address_of_a_load_balancer() {
    let case = |spec: Value, status: Value| object("v1", "Service", spec, status);
    is_ready(&case(json!({}), json!(null)));
    is_ready(&case(json!({"type": "ExternalName"}), json!(null)));
    let balancer = json!({"type": "LoadBalancer"});
    waits(&case(balancer.clone(), json!({"loadBalancer": {}})), "the load balancer has no address yet");
    waits(&case(balancer.clone(), json!({"loadBalancer": {"ingress": []}})), "the load balancer has no address yet");
    is_ready(&case(balancer, json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}})));
    is_ready(&case(json!({"type": "LoadBalancer", "externalIPs": ["10.0.0.2"]}), json!({})));
}

#[test]
fn a_definition_is_ready_when_established_and_fails_when_its_names_are_taken() {
    let case = |conditions: Value| {
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({}), json!({ "conditions": conditions }))
    };
    let accepted = |status: &str| json!({"type": "NamesAccepted", "status": status, "reason": "ListKindConflict"});
    let established = |status: &str| json!({"type": "Established", "status": status});
    is_ready(&case(json!([accepted("True"), established("True")])));
    fails(&case(json!([accepted("False"), established("False")])), "ListKindConflict");
    waits(&case(json!([accepted("True"), established("False")])), "it is not established yet");
    waits(&case(json!(null)), "it is not established yet");
}

#[test]
fn an_api_service_is_ready_when_available() {
    let case = |conditions: Value| {
        object("apiregistration.k8s.io/v1", "APIService", json!({}), json!({ "conditions": conditions }))
    };
    is_ready(&case(json!([{"type": "Available", "status": "True"}])));
    waits(&case(json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints"}])), "MissingEndpoints");
    waits(&case(json!([])), "it is not known yet whether it is available");
}

#[test]
fn these_are_ready_on_sight() {
    let stalled = json!({"conditions": [{"type": "Stalled", "status": "True"}]});
    for (api_version, kind) in
        [("networking.k8s.io/v1", "Ingress"), ("extensions/v1beta1", "Ingress"), ("policy/v1", "PodDisruptionBudget")]
    {
        is_ready(&object(api_version, kind, json!({}), stalled.clone()));
    }
    for (api_version, kind) in [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("batch/v1", "CronJob"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("shop.example/v1", "Order"),
    ] {
        is_ready(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 2}}));
    }
}

#[test]
fn conditions_in_the_way_of_kstatus_hold_up_any_other_kind() {
    let case = |api_version: &str, conditions: Value| {
        object(api_version, "Thing", json!({}), json!({ "conditions": conditions }))
    };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Because"});
    for api_version in ["v1", "autoscaling/v2", "gateway.networking.k8s.io/v1", "shop.example/v1"] {
        fails(&case(api_version, json!([condition("Stalled", "True")])), "Because");
        waits(&case(api_version, json!([condition("Reconciling", "True")])), "Because");
        is_ready(&case(api_version, json!([condition("Stalled", "False"), condition("Reconciling", "False")])));
        is_ready(&case(api_version, json!([condition("Ready", "True")])));
    }
    for status in ["False", "Unknown"] {
        let conditions = json!([condition("Ready", status)]);
        waits(&case("shop.example/v1", conditions.clone()), "Because");
        waits(&case("gateway.networking.k8s.io/v1", conditions.clone()), "Because");
        is_ready(&case("v1", conditions.clone()));
        is_ready(&case("networking.k8s.io/v1", conditions));
    }
}

#[test]
fn a_custom_resource_whose_controller_reports_generations_waits_for_its_own() {
    let status =
        |observed: Value| json!({"observedGeneration": observed, "conditions": [{"type": "Ready", "status": "True"}]});
    let case = |api_version: &str, observed| object(api_version, "Thing", json!({}), status(observed));
    waits(&case("shop.example/v1", json!(1)), UNSEEN);
    is_ready(&case("shop.example/v1", json!(2)));
    is_ready(&case("shop.example/v1", json!(null)));
    is_ready(&case("autoscaling/v2", json!(1)));
    // Whatever a custom resource calls by these names, it is its own affair.
    is_ready(&case("shop.example/v1", json!("two")));
    is_ready(&object("shop.example/v1", "Thing", json!({}), json!("fine")));
    is_ready(&object("shop.example/v1", "Thing", json!({}), json!({"conditions": "fine"})));
}

#[test]
fn an_object_that_is_being_deleted_is_never_ready() {
    let mut object = object("v1", "ConfigMap", json!(null), json!(null));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    waits(&object, "it is being deleted");
}

#[test]
fn what_does_not_say_its_kind_is_not_ready() {
    for object in [json!(null), json!([]), json!({"apiVersion": "v1"}), json!({"kind": 7})] {
        waits(&object, "the object does not say of what kind it is");
    }
}

#[test]
fn the_state_is_written_with_its_reason() {
    let failed = Readiness::Failed { reason: "late".to_owned() };
    assert_eq!(serde_json::to_value(&failed).unwrap(), json!({"state": "failed", "reason": "late"}));
    assert_eq!(serde_json::to_value(Readiness::Ready).unwrap(), json!({"state": "ready"}));
    assert_eq!(failed.reason(), Some("late"));
    assert!(Readiness::Ready.is_ready() && !failed.is_ready());
}

#[test]
fn a_blank_reason_of_an_object_is_told_as_none() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Failed", "reason": "\u{b}"},
    });
    assert_eq!(readiness(&pod).reason(), Some("the object gives no reason"));
    let volume = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"reason": " "}});
    assert!(readiness(&volume).reason().is_some_and(|reason| !reason.trim().is_empty()));
}
