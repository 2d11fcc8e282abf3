//! What kubectl shows of Pods in each state, and of times.

use super::*;

fn pod(spec: Value, status: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec, "status": status})
}

fn running(name: &str, ready: bool) -> Value {
    json!({"name": name, "ready": ready, "started": true, "restartCount": 0, "state": {"running": {}}})
}

fn waiting(name: &str, reason: &str) -> Value {
    json!({"name": name, "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

fn ended(name: &str, code: i64, reason: &str) -> Value {
    let state = json!({"terminated": {"exitCode": code, "reason": reason}});
    json!({"name": name, "ready": false, "restartCount": 0, "state": state})
}

#[test]
fn a_pod_is_shown_as_kubectl_shows_it() {
    let one = json!({"containers": [{"name": "a"}]});
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let init = json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]});
    let sidecar = json!({"initContainers": [{"name": "i", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (spec, status, expected) in [
        (&one, json!({"phase": "Pending"}), ("0/1", "Pending")),
        (&one, json!({"phase": "Running", "containerStatuses": [running("a", true)]}), ("1/1", "Running")),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [waiting("a", "CrashLoopBackOff")]}),
            ("0/1", "CrashLoopBackOff"),
        ),
        (&one, json!({"phase": "Succeeded", "containerStatuses": [ended("a", 0, "Completed")]}), ("0/1", "Completed")),
        (&one, json!({"phase": "Failed", "containerStatuses": [ended("a", 3, "")]}), ("0/1", "ExitCode:3")),
        (&one, json!({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted")),
        (
            &one,
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            ("0/1", "SchedulingGated"),
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [ended("a", 0, "Completed"), running("b", true)]}),
            ("1/2", "NotReady"),
        ),
        (
            &two,
            json!({"phase": "Running", "conditions": ready, "containerStatuses": [ended("a", 0, "Completed"), running("b", true)]}),
            ("1/2", "Running"),
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [ended("i", 0, "Completed"), running("j", false)]}),
            ("0/1", "Init:1/2"),
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [waiting("i", "ErrImagePull"), waiting("j", "PodInitializing")]}),
            ("0/1", "Init:ErrImagePull"),
        ),
        (&init, json!({"phase": "Failed", "initContainerStatuses": [ended("i", 1, "Error")]}), ("0/1", "Init:Error")),
        (
            &sidecar,
            json!({"phase": "Running", "initContainerStatuses": [running("i", true)], "containerStatuses": [running("a", true)]}),
            ("2/2", "Running"),
        ),
    ] {
        let shown = pod(spec.clone(), status.clone());
        assert_eq!((pods::ready(&shown), pods::status(&shown)), (json!(expected.0), json!(expected.1)), "{status}");
    }
    let mut going = pod(one.clone(), json!({"phase": "Running", "containerStatuses": [running("a", true)]}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(pods::status(&going), json!("Terminating"));
    let hour_ago = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(3600);
    let mut again = running("a", true);
    again["restartCount"] = json!(3);
    again["lastState"] = json!({"terminated": {"finishedAt": hour_ago.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}});
    let again = pod(one, json!({"phase": "Running", "containerStatuses": [again]}));
    assert_eq!(pods::restarts(&again), json!("3 (60m ago)"));
}

#[test]
fn times_are_shown_as_kubectl_shows_them() {
    for (seconds, expected) in [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (3600, "60m"),
        (3 * 3600, "3h"),
        (7 * 3600 + 60, "7h1m"),
        (47 * 3600, "47h"),
        (3 * 86400 + 7200, "3d2h"),
        (100 * 86400, "100d"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ] {
        assert_eq!(human(seconds), expected);
    }
}
