//! The branches that no example object reaches, and every difference between the compatibilities.

#![expect(clippy::needless_pass_by_value, reason = "a table reads better without references in each row")]

use Compatibility::{ArgoCd, Documented};
use Verdict::{Degraded, Healthy, Progressing, Suspended, Unknown};
use serde_json::json;

use super::*;

/// Both compatibilities give this verdict.
#[track_caller]
fn check(object: &Value, status: Verdict, message: &str) {
    differ(object, (status, message), (status, message));
}

#[track_caller]
fn differ(object: &Value, documented: (Verdict, &str), argo_cd: (Verdict, &str)) {
    let expected = |(status, message)| Some(Health::new(status, message));
    assert_eq!(assess(object), expected(documented), "by the manual: {object}");
    assert_eq!(assess_as(object, Documented), expected(documented), "the manual is the default: {object}");
    assert_eq!(assess_as(object, ArgoCd), expected(argo_cd), "by the code: {object}");
}

fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "generation": 2},
        "spec": spec, "status": status,
    })
}

fn with_metadata(mut object: Value, name: &str, value: Value) -> Value {
    object["metadata"][name] = value;
    object
}

#[test]
fn an_object_that_is_being_deleted_is_progressing_before_anything_else() {
    let deleted = |object| with_metadata(object, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let config = object("v1", "ConfigMap", json!(null), json!(null));
    assert_eq!(assess(&config), None);
    check(&deleted(config), Progressing, "Pending deletion");
    let lost = deleted(object("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Lost"})));
    check(&lost, Progressing, "Pending deletion");
    let hook = with_metadata(lost, "finalizers", json!(["other", "argocd.argoproj.io/hook-finalizer"]));
    check(&hook, Degraded, "");
}

#[test]
fn a_kind_without_a_check_does_not_count() {
    for (api_version, kind) in [
        ("v1", "Secret"),
        ("v1", "Deployment"),
        ("argoproj.io/v1alpha1", "Application"),
        ("serving.knative.dev/v1", "Service"),
        ("policy/v1", "PodDisruptionBudget"),
    ] {
        assert_eq!(assess(&object(api_version, kind, json!({}), json!({}))), None, "{api_version} {kind}");
    }
    assert_eq!(assess(&json!({"apiVersion": "apps/v1"})), None);
    assert_eq!(assess(&json!(null)), None);
}

#[test]
fn a_version_that_a_check_does_not_know_is_unknown() {
    for (api_version, kind, message) in [
        ("apps/v1beta1", "Deployment", "unsupported Deployment GVK: apps/v1beta1, Kind=Deployment"),
        ("apps/v1beta2", "StatefulSet", "unsupported StatefulSet GVK: apps/v1beta2, Kind=StatefulSet"),
        ("batch/v2", "Job", "unsupported Job GVK: batch/v2, Kind=Job"),
        ("v2", "Pod", "unsupported Pod GVK: /v2, Kind=Pod"),
    ] {
        check(&object(api_version, kind, json!({}), json!({})), Unknown, message);
    }
}

#[test]
fn a_deployment_goes_through_its_rows_in_order() {
    let case = |spec, status| object("apps/v1", "Deployment", spec, status);
    let three = json!({"replicas": 3});
    check(&case(json!({"paused": true}), json!({})), Suspended, "Deployment is paused");
    check(
        &case(three.clone(), json!({"observedGeneration": 1})),
        Progressing,
        "Waiting for rollout to finish: observed deployment generation less than desired generation",
    );
    let late = json!({"observedGeneration": 2, "conditions": [
        {"type": "Available", "status": "False", "reason": "ProgressDeadlineExceeded"},
        {"type": "Progressing", "status": "True", "reason": "ProgressDeadlineExceeded"},
    ]});
    check(&case(three.clone(), late), Degraded, "Deployment \"web\" exceeded its progress deadline");
    check(
        &case(three.clone(), json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 4})),
        Progressing,
        "Waiting for rollout to finish: 1 out of 3 new replicas have been updated...",
    );
    check(
        &case(three.clone(), json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 5})),
        Progressing,
        "Waiting for rollout to finish: 2 old replicas are pending termination...",
    );
    check(
        &case(
            three.clone(),
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2}),
        ),
        Progressing,
        "Waiting for rollout to finish: 2 of 3 updated replicas are available...",
    );
    check(
        &case(three, json!({"observedGeneration": 3, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3})),
        Healthy,
        "",
    );
    // Absent replicas are not read as 1.
    check(&case(json!({}), json!({"observedGeneration": 2})), Healthy, "");
}

#[test]
fn a_stateful_set_goes_through_its_rows_in_order() {
    let case = |spec, status| object("apps/v1", "StatefulSet", spec, status);
    let unseen = "Waiting for statefulset spec update to be observed...";
    check(&case(json!({}), json!({"observedGeneration": 1})), Progressing, unseen);
    let new = with_metadata(case(json!({}), json!({})), "generation", json!(0));
    check(&new, Progressing, unseen);
    check(
        &case(json!({"replicas": 3}), json!({"observedGeneration": 2, "readyReplicas": 1})),
        Progressing,
        "Waiting for 2 pods to be ready...",
    );
    let partition = |partition: Value| json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    let two_updated = json!({"observedGeneration": 2, "readyReplicas": 3, "updatedReplicas": 2});
    check(
        &case(partition(json!(0)), two_updated.clone()),
        Progressing,
        "Waiting for partitioned roll out to finish: 2 out of 3 new pods have been updated...",
    );
    for value in [json!(1), json!(null)] {
        check(
            &case(partition(value), two_updated.clone()),
            Healthy,
            "partitioned roll out complete: 2 new pods have been updated...",
        );
    }
    let rolling = json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate"}});
    let revisions = |current: &str| {
        json!({
            "observedGeneration": 2, "readyReplicas": 3, "updatedReplicas": 2, "currentReplicas": 3,
            "currentRevision": current, "updateRevision": "web-b",
        })
    };
    check(
        &case(rolling.clone(), revisions("web-a")),
        Progressing,
        "waiting for statefulset rolling update to complete 2 pods at revision web-b...",
    );
    check(
        &case(rolling, revisions("web-b")),
        Healthy,
        "statefulset rolling update complete 3 pods at revision web-b...",
    );
    check(
        &case(json!({"updateStrategy": {"type": "OnDelete"}}), revisions("web-a")),
        Healthy,
        "statefulset has 3 ready pods",
    );
}

#[test]
fn a_replica_set_goes_through_its_rows_in_order() {
    let case = |spec, status| object("apps/v1", "ReplicaSet", spec, status);
    check(
        &case(json!({}), json!({})),
        Progressing,
        "Waiting for rollout to finish: observed replica set generation less than desired generation",
    );
    let failure = |status: &str| {
        json!({
            "observedGeneration": 2, "availableReplicas": 1,
            "conditions": [{"type": "ReplicaFailure", "status": status, "message": "quota exceeded"}],
        })
    };
    check(&case(json!({"replicas": 1}), failure("True")), Degraded, "quota exceeded");
    check(&case(json!({"replicas": 1}), failure("False")), Healthy, "");
    check(
        &case(json!({"replicas": 2}), failure("False")),
        Progressing,
        "Waiting for rollout to finish: 1 out of 2 new replicas are available...",
    );
    check(&case(json!({}), json!({"observedGeneration": 2})), Healthy, "");
}

#[test]
fn a_daemon_set_goes_through_its_rows_in_order() {
    let case = |spec, status| object("apps/v1", "DaemonSet", spec, status);
    let counts = |updated: i64, available: i64| {
        json!({
            "observedGeneration": 2, "desiredNumberScheduled": 3,
            "updatedNumberScheduled": updated, "numberAvailable": available,
        })
    };
    check(
        &case(json!({}), json!({"observedGeneration": 1})),
        Progressing,
        "Waiting for rollout to finish: observed daemon set generation less than desired generation",
    );
    check(
        &case(json!({"updateStrategy": {"type": "OnDelete"}}), counts(1, 0)),
        Healthy,
        "daemon set 1 out of 3 new pods have been updated",
    );
    check(
        &case(json!({}), counts(1, 0)),
        Progressing,
        "Waiting for daemon set \"web\" rollout to finish: 1 out of 3 new pods have been updated...",
    );
    check(
        &case(json!({}), counts(3, 2)),
        Progressing,
        "Waiting for daemon set \"web\" rollout to finish: 2 of 3 updated pods are available...",
    );
    check(&case(json!({}), counts(3, 3)), Healthy, "");
}

#[test]
fn a_pod_that_runs_for_good_is_degraded_by_what_its_containers_wait_for() {
    let waiting = |reason: &str, message: &str| json!({"state": {"waiting": {"reason": reason, "message": message}}});
    let case = |statuses: Value| {
        object(
            "v1",
            "Pod",
            json!({"restartPolicy": "Always"}),
            json!({"phase": "Pending", "containerStatuses": statuses, "initContainerStatuses": [
                {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "init containers do not count"}}},
            ]}),
        )
    };
    check(
        &case(json!([
            waiting("ErrImagePull", "no such image"),
            waiting("ContainerCreating", "not an error"),
            waiting("CreateContainerConfigError", ""),
            waiting("CrashLoopBackOff", "back-off"),
        ])),
        Degraded,
        "no such image, , back-off",
    );
    check(&case(json!([waiting("PodInitializing", "wait")])), Progressing, "");
}

#[test]
fn a_failed_pod_tells_the_first_thing_that_its_containers_say() {
    let case = |init: Value, main: Value| {
        let ended = |terminated: &Value| json!([{"name": "c", "state": {"terminated": terminated}}]);
        object(
            "v1",
            "Pod",
            json!({"restartPolicy": "Never"}),
            json!({
                "phase": "Failed", "initContainerStatuses": ended(&init), "containerStatuses": ended(&main),
            }),
        )
    };
    check(
        &case(json!({"exitCode": 3}), json!({"message": "later"})),
        Degraded,
        "container \"c\" failed with exit code 3",
    );
    check(&case(json!({"exitCode": 0}), json!({"message": "told", "exitCode": 9})), Degraded, "told");
    check(&case(json!(null), json!({"reason": "OOMKilled", "exitCode": 137})), Degraded, "OOMKilled");
    check(&case(json!({}), json!({"exitCode": 0})), Degraded, "");
    let mut evicted = case(json!({"exitCode": 3}), json!({}));
    evicted["status"]["message"] = json!("evicted");
    check(&evicted, Degraded, "evicted");
}

#[test]
fn a_pod_is_judged_by_its_phase() {
    let case = |policy: &str, status: Value| object("v1", "Pod", json!({ "restartPolicy": policy }), status);
    let running = |ready: &str, last_state: Value| {
        json!({
            "phase": "Running", "message": "m", "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"lastState": last_state}],
        })
    };
    let crashed = json!({"terminated": {"exitCode": 0}});
    check(&case("Always", running("True", crashed.clone())), Healthy, "m");
    check(&case("Always", running("False", crashed.clone())), Degraded, "m");
    check(&case("Always", running("False", json!({}))), Progressing, "m");
    check(&case("Never", running("False", crashed)), Progressing, "m");
    check(&case("", running("True", json!({}))), Unknown, "m");
    check(&case("Always", json!({"phase": "Unknown"})), Unknown, "");
    check(&case("Always", json!({"phase": "Succeeded", "message": "done"})), Healthy, "done");
    check(&case("Always", json!({})), Unknown, "");
}

#[test]
fn a_claim_is_judged_by_its_phase() {
    for (phase, status) in
        [("Bound", Healthy), ("Pending", Progressing), ("Lost", Degraded), ("Other", Unknown), ("", Unknown)]
    {
        check(&object("v1", "PersistentVolumeClaim", json!({}), json!({ "phase": phase })), status, "");
    }
}

#[test]
fn an_address_has_a_host_name_or_an_ip_only_by_the_manual() {
    let balancer = json!({"type": "LoadBalancer"});
    for (api_version, kind) in
        [("v1", "Service"), ("networking.k8s.io/v1", "Ingress"), ("extensions/v1beta1", "Ingress")]
    {
        let case =
            |entries: Value| object(api_version, kind, balancer.clone(), json!({"loadBalancer": {"ingress": entries}}));
        check(&case(json!([{"ip": "10.0.0.1"}])), Healthy, "");
        check(&case(json!([{}, {"hostname": "a.example"}])), Healthy, "");
        check(&case(json!([])), Progressing, "");
        check(&case(json!(null)), Progressing, "");
        for empty in [json!([{}]), json!([{"ip": "", "hostname": ""}]), json!([{"ports": []}])] {
            differ(&case(empty), (Progressing, ""), (Healthy, ""));
        }
    }
    check(&object("v1", "Service", json!({"type": "ExternalName"}), json!(null)), Healthy, "");
}

#[test]
fn an_api_service_waits_until_it_is_available() {
    let case = |status| object("apiregistration.k8s.io/v1", "APIService", json!({}), status);
    check(&case(json!({})), Progressing, "Waiting to be processed");
    check(&case(json!({"conditions": [{"type": "Available", "status": "True"}]})), Healthy, ": ");
}

#[test]
fn a_workflow_is_judged_by_its_phase() {
    for (phase, status) in [
        (json!("Pending"), Progressing),
        (json!(7), Progressing),
        (json!("Failed"), Degraded),
        (json!("Error"), Degraded),
        (json!("Omitted"), Unknown),
    ] {
        let workflow = object("argoproj.io/v9", "Workflow", json!({}), json!({"phase": phase, "message": "m"}));
        check(&workflow, status, "m");
    }
}

#[test]
fn a_suspended_job_is_told_by_its_spec_in_the_manual_and_by_its_condition_in_the_code() {
    let case = |suspend: bool, conditions: Value| {
        object("batch/v1", "Job", json!({ "suspend": suspend }), json!({ "conditions": conditions }))
    };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": kind});
    differ(&case(true, json!([])), (Suspended, ""), (Progressing, ""));
    check(&case(true, json!([condition("Suspended", "True")])), Suspended, "Suspended");
    // It was resumed and runs.
    differ(&case(false, json!([condition("Suspended", "False")])), (Progressing, ""), (Healthy, "Suspended"));
    check(&case(false, json!([condition("Complete", "True")])), Healthy, "Complete");
    check(&case(false, json!([condition("Complete", "True"), condition("Failed", "False")])), Degraded, "Failed");
    // What has ended is not suspended, whatever its spec says.
    check(&case(true, json!([condition("Complete", "True")])), Healthy, "Complete");
    differ(
        &case(true, json!([condition("Suspended", "True"), condition("Complete", "True")])),
        (Healthy, "Complete"),
        (Suspended, "Complete"),
    );
}

#[test]
fn a_cron_job_is_told_by_its_last_job_in_the_manual() {
    let case = |spec: Value, status: Value| object("batch/v1", "CronJob", spec, status);
    let running = "The job is running";
    let running_argo = "The job is running. Its last execution may not have been successful";
    let never = "The Cronjob never completed succesfully. It may not be healthy";
    let failed = "CronJob has not completed its last execution successfully";
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
    let active = json!([{"name": "web-1"}]);

    let suspended = "CronJob is Suspended";
    differ(&case(json!({"suspend": true}), json!({})), (Suspended, suspended), (Healthy, suspended));
    check(&case(json!({"suspend": false}), json!(null)), Progressing, "Waiting for CronJob");
    check(&case(json!({}), json!({})), Healthy, "CronJob has not been scheduled yet");
    differ(
        &case(json!({}), json!({"lastScheduleTime": late, "lastSuccessfulTime": early, "active": active})),
        (Progressing, running),
        (Healthy, running_argo),
    );
    differ(
        &case(json!({}), json!({"lastScheduleTime": late, "active": active})),
        (Progressing, running),
        (Healthy, never),
    );
    differ(&case(json!({}), json!({"lastScheduleTime": late, "active": []})), (Degraded, failed), (Healthy, never));
    check(&case(json!({}), json!({"lastScheduleTime": late, "lastSuccessfulTime": early})), Degraded, failed);
    check(
        &case(json!({}), json!({"lastScheduleTime": early, "lastSuccessfulTime": late})),
        Healthy,
        "CronJob has completed its last execution successfully",
    );
}

#[test]
fn an_autoscaler_is_read_in_every_version() {
    let conditions = json!([
        {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "limited"},
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "able"},
    ]);
    let hpa = |version: &str, status: Value| {
        object(&format!("autoscaling/{version}"), "HorizontalPodAutoscaler", json!({}), status)
    };
    check(&hpa("v2", json!({ "conditions": conditions })), Healthy, "limited");
    for version in ["v2beta1", "v2beta2"] {
        let unsupported = format!("unsupported HPA GVK: autoscaling/{version}, Kind=HorizontalPodAutoscaler");
        differ(
            &hpa(version, json!({ "conditions": conditions })),
            (Healthy, "limited"),
            (Unknown, unsupported.as_str()),
        );
    }
    for (kind, reason) in [
        ("AbleToScale", "FailedUpdateScale"),
        ("ScalingActive", "FailedGetResourceMetric"),
        ("ScalingActive", "FailedGetPodsMetric"),
        ("ScalingActive", "FailedGetExternalMetric"),
        ("ScalingActive", "FailedComputeMetricsReplicas"),
        ("ScalingActive", "InvalidSelector"),
    ] {
        let failing = json!([
            {"type": "AbleToScale", "status": "True", "message": "able"},
            {"type": kind, "status": "True", "reason": reason, "message": "broken"},
        ]);
        check(&hpa("v2", json!({ "conditions": failing })), Degraded, "broken");
    }
    let swapped = json!([{"type": "ScalingLimited", "status": "False", "reason": "FailedGetScale"}]);
    check(&hpa("v2", json!({ "conditions": swapped })), Progressing, "Waiting to Autoscale");
}

#[test]
fn the_annotation_of_an_old_autoscaler_may_be_anything() {
    let case = |text: &str| {
        let hpa = object("autoscaling/v1", "HorizontalPodAutoscaler", json!({}), json!({}));
        with_metadata(hpa, "annotations", json!({ "autoscaling.alpha.kubernetes.io/conditions": text }))
    };
    check(&case(r#"[{"TYPE":"AbleToScale","Status":"True","message":"able"}]"#), Healthy, "able");
    check(&case("[]"), Progressing, "Waiting to Autoscale");
    check(&case("null"), Progressing, "Waiting to Autoscale");
    check(&case("[null]"), Progressing, "Waiting to Autoscale");
    for broken in ["", "{", "[1]", "[] x", r#"[{"type":1}]"#] {
        let health = assess(&case(broken)).unwrap();
        assert_eq!(health.status, Unknown, "{broken:?}");
        assert!(health.message.starts_with("failed to convert conditions annotation to typed: "), "{health:?}");
    }
}

#[test]
fn a_malformed_field_is_unknown_with_its_path() {
    let pod = object(
        "v1",
        "Pod",
        json!({}),
        json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": {
            "terminated": {"exitCode": "one"},
        }}]}),
    );
    check(
        &pod,
        Unknown,
        "failed to convert unstructured Pod to typed: status.containerStatuses[].state.terminated.exitCode is a text, \
         expected a whole number",
    );
    let hpa = object("autoscaling/v2", "HorizontalPodAutoscaler", json!({}), json!({"conditions": {}}));
    check(
        &hpa,
        Unknown,
        "failed to convert unstructured HPA to typed: status.conditions is an object, expected a list",
    );
}
