#![expect(clippy::needless_pass_by_value, reason = "a table reads better without references in each row")]

use serde_json::json;

use super::*;

#[track_caller]
fn check(status: Value, expected: Option<&str>) {
    assert_eq!(container_problem(&json!({ "status": status })).as_deref(), expected, "{status}");
}

#[test]
fn a_crash_loop_is_named_with_its_last_exit_code() {
    check(
        json!({"containerStatuses": [
            {"name": "good", "ready": true, "state": {"running": {}}},
            {
                "name": "web",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
        ]}),
        Some(
            "container \"web\" is waiting: CrashLoopBackOff (back-off 40s restarting), last exit code 137 (OOMKilled)",
        ),
    );
    // A program that ends well but should not end at all loops too.
    check(
        json!({"containerStatuses": [{
            "name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        }]}),
        Some("container \"web\" is waiting: CrashLoopBackOff, last exit code 0 (Completed)"),
    );
}

#[test]
fn an_image_that_cannot_be_had_has_no_exit_code() {
    for reason in ["ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "CreateContainerError"]
    {
        check(
            json!({"containerStatuses": [{"name": "web", "state": {"waiting": {"reason": reason}}, "lastState": {}}]}),
            Some(&format!("container \"web\" is waiting: {reason}")),
        );
    }
}

#[test]
fn a_container_that_has_failed_is_named_with_what_it_said() {
    let ended =
        |terminated: Value| json!({"containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]});
    check(
        ended(json!({"exitCode": 1, "reason": "Error", "message": "no table\n"})),
        Some("container \"main\" failed: exit code 1 (Error): no table"),
    );
    check(ended(json!({"exitCode": 2})), Some("container \"main\" failed: exit code 2"));
    check(ended(json!({"exitCode": 0, "reason": "Completed"})), None);
    check(
        ended(json!({"exitCode": 0, "reason": "OOMKilled"})),
        Some("container \"main\" failed: exit code 0 (OOMKilled)"),
    );
}

#[test]
fn a_container_that_runs_again_is_a_problem_only_until_it_is_ready() {
    let running = |ready: bool, restarts: i64, code: i64| {
        json!({"containerStatuses": [{
            "name": "web", "ready": ready, "restartCount": restarts, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }}},
        }]})
    };
    check(
        running(false, 1, 1),
        Some("container \"web\" is not ready after it restarted 1 time, last exit code 1 (Error)"),
    );
    check(
        running(false, 2, 1),
        Some("container \"web\" is not ready after it restarted 2 times, last exit code 1 (Error)"),
    );
    check(running(true, 2, 1), None);
    check(running(false, 2, 0), None);
}

#[test]
fn init_containers_come_first_and_what_cannot_start_before_what_failed() {
    let blocked = |name: &str| json!({"name": name, "state": {"waiting": {"reason": "ErrImagePull"}}});
    let failed = |name: &str| json!({"name": name, "state": {"terminated": {"exitCode": 1}}});
    let waits = json!({"name": "web", "state": {"waiting": {"reason": "PodInitializing"}}});
    check(
        json!({"initContainerStatuses": [blocked("migrate")], "containerStatuses": [blocked("web")]}),
        Some("init container \"migrate\" is waiting: ErrImagePull"),
    );
    check(
        json!({"initContainerStatuses": [failed("migrate")], "containerStatuses": [waits]}),
        Some("init container \"migrate\" failed: exit code 1"),
    );
    check(
        json!({"initContainerStatuses": [failed("migrate")], "containerStatuses": [blocked("web")]}),
        Some("container \"web\" is waiting: ErrImagePull"),
    );
}

#[test]
fn what_cannot_be_read_is_no_problem_and_hides_no_other() {
    check(json!(null), None);
    check(json!({"containerStatuses": 7}), None);
    check(json!({"containerStatuses": [{"name": 7, "state": {"waiting": {"reason": "ErrImagePull"}}}]}), None);
    check(
        json!({"initContainerStatuses": "x", "containerStatuses": [
            {"state": []}, {"name": "web", "state": {"waiting": {"reason": "ErrImagePull"}}},
        ]}),
        Some("container \"web\" is waiting: ErrImagePull"),
    );
}
