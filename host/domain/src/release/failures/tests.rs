use serde_json::{Value, json};

use super::*;

#[test]
fn what_is_allowed_is_so_many_for_each_replica() {
    let cases = [
        ("Deployment", json!({"spec": {}}), None, Some(1)),
        ("Deployment", json!({"spec": {"replicas": 3}}), None, Some(3)),
        ("Deployment", json!({"spec": {"replicas": 0}}), None, Some(1)),
        ("StatefulSet", json!({"spec": {"replicas": 3}}), Some("2"), Some(6)),
        ("Deployment", json!({"spec": {"replicas": 3}}), Some("0"), Some(0)),
        ("DaemonSet", json!({"status": {"desiredNumberScheduled": 4}}), None, Some(4)),
        ("DaemonSet", json!({}), None, Some(1)),
        // Its own limit decides, unless the author wants another.
        ("Job", json!({"spec": {"backoffLimit": 6}}), None, None),
        ("Job", json!({"spec": {"backoffLimit": 6, "parallelism": 2}}), Some("1"), Some(2)),
        ("ConfigMap", json!({}), None, None),
        ("Deployment", json!({"spec": {"replicas": 4_000_000_000_u64}}), Some("4000000000"), Some(u32::MAX)),
        ("Deployment", json!({"spec": {"replicas": -1}}), Some("no"), Some(1)),
    ];
    for (kind, mut object, annotation, expected) in cases {
        object["kind"] = json!(kind);
        if let Some(text) = annotation {
            object["metadata"]["annotations"] = json!({"werf.io/failures-allowed-per-replica": text});
        }
        assert_eq!(failures_allowed(&object), expected, "{object}");
    }
}

fn pod(state: Value, restarts: u32) -> Value {
    let mut container = json!({"name": "main", "restartCount": restarts});
    container["state"] = state;
    json!({"status": {"containerStatuses": [container]}})
}

#[test]
fn failures_are_counted_from_one_state_to_the_next() {
    let running = || json!({"running": {}});
    let ended = |code: i64| json!({"terminated": {"exitCode": code}});
    let waits = |reason: &str| json!({"waiting": {"reason": reason}});
    let cases: [(&str, Vec<Value>, u32); 11] = [
        ("runs", vec![pod(waits("ContainerCreating"), 0), pod(running(), 0)], 0),
        ("ended well", vec![pod(running(), 0), pod(ended(0), 0)], 0),
        ("ended once", vec![pod(running(), 0), pod(ended(1), 0)], 1),
        ("the same end is seen again and again", vec![pod(ended(1), 0), pod(waits("CrashLoopBackOff"), 0)], 1),
        ("started again", vec![pod(ended(1), 0), pod(running(), 1)], 1),
        ("ended again", vec![pod(ended(1), 0), pod(running(), 1), pod(waits("CrashLoopBackOff"), 1)], 2),
        ("states in between were not seen", vec![pod(running(), 0), pod(running(), 4)], 4),
        ("one attempt", vec![pod(waits("ErrImagePull"), 0), pod(waits("ImagePullBackOff"), 0)], 1),
        (
            "two attempts",
            vec![pod(waits("ErrImagePull"), 0), pod(waits("ImagePullBackOff"), 0), pod(waits("ErrImagePull"), 0)],
            2,
        ),
        ("the pause is seen first", vec![pod(waits("ImagePullBackOff"), 0), pod(waits("ImagePullBackOff"), 0)], 1),
        ("two reasons", vec![pod(waits("CreateContainerConfigError"), 0), pod(waits("CreateContainerError"), 0)], 2),
    ];
    for (what, states, expected) in cases {
        let mut failures = PodFailures::default();
        states.iter().for_each(|state| failures.see(state));
        assert_eq!(failures.count(), expected, "{what}");
    }
}

#[test]
fn a_pod_that_fails_as_a_whole_counts_once() {
    let mut failures = PodFailures::default();
    for _ in 0..2 {
        failures.see(&json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
    }
    assert_eq!(failures.count(), 1);
    let mut failures = PodFailures::default();
    let mut state = pod(json!({"terminated": {"exitCode": 3}}), 0);
    state["status"]["phase"] = json!("Failed");
    failures.see(&state);
    assert_eq!(failures.count(), 1, "its container says why");
}

#[test]
fn what_was_before_does_not_count() {
    let mut failures = PodFailures::default();
    failures.see(&pod(json!({"waiting": {"reason": "CrashLoopBackOff"}}), 37));
    failures.forgive();
    assert_eq!(failures.count(), 0);
    failures.see(&pod(json!({"running": {}}), 38));
    assert_eq!(failures.count(), 0, "it is started again after the end that was seen");
    failures.see(&pod(json!({"terminated": {"exitCode": 1}}), 38));
    assert_eq!(failures.count(), 1);
}
