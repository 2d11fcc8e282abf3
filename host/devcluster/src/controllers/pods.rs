//! The kubelet that is none: Pods get a node, become ready after a delay, succeed, fail or hang as their annotations say,
//! and end when they are deleted.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, NODE, Next, controller_of, is_terminating, knob, make_condition,
    work::{Item, Queue, Role},
};
use crate::{
    json::{self, at, int, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::{Change, Stored},
};

pub(super) const PODS: &str = "/pods";

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    if &*change.table == PODS {
        if change.deleted {
            context.forget(change.new.uid());
        } else {
            queue.push(Item::of(Role::Pod, change));
        }
        return;
    }
    // A workload whose knobs changed: its Pods look again.
    let knobs = |object: &Value| {
        let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
        annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(knob::PREFIX))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    let Some(old) = &change.old else { return };
    if knobs(&old.value) == knobs(&change.new.value) {
        return;
    }
    let store = &context.registry.store;
    for ((table, key), dependent) in store.dependents(change.new.uid()) {
        for ((table, key), _) in store.dependents(dependent.uid()) {
            if &*table == PODS {
                queue.push(Item { role: Role::Pod, table, key });
            }
        }
        if &*table == PODS {
            queue.push(Item { role: Role::Pod, table, key });
        }
    }
}

pub(super) fn pod(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let pod = &stored.value;
    if is_terminating(pod) {
        return end(context, &stored);
    }
    if text(pod, &["spec", "nodeName"]).is_empty() {
        if !list(pod, &["spec", "schedulingGates"]).is_empty() {
            return Ok(Next::Done);
        }
        context.change(&stored, "binding", &|pod| {
            set(pod, &["spec", "nodeName"], json!(NODE));
            let scheduled = make_condition(pod, "PodScheduled", true, "", "");
            set(pod, &["status", "conditions"], json!([scheduled]));
            set(pod, &["status", "startTime"], json!(json::now()));
            true
        })?;
        // The write brings the item back.
        return Ok(Next::Done);
    }
    if matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        return Ok(Next::Done);
    }
    let wanted = wanted_state(context, pod);
    if wanted == State::Hanging {
        return show(context, &stored, State::Hanging);
    }
    let due = context.started(stored.uid()) + context.delay(pod);
    if Instant::now() < due {
        return Ok(Next::At(due));
    }
    show(context, &stored, wanted)
}

/// What becomes of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Succeeded,
    /// It ended with this exit code and stays so.
    Failed(i64),
    /// It ends with this exit code again and again.
    Crashing(i64),
    Hanging,
}

fn wanted_state(context: &Context, pod: &Value) -> State {
    let stays = matches!(text(pod, &["spec", "restartPolicy"]), "" | "Always");
    let of_job = controller_of(pod).is_some_and(|owner| text(owner, &["kind"]) == "Job");
    if context.is_set(pod, knob::FAIL) {
        // A number is the exit code.
        let code = context.knob(pod, knob::FAIL).and_then(|value| value.parse().ok()).unwrap_or(1);
        let never = text(pod, &["spec", "restartPolicy"]) == "Never";
        return if never || of_job { State::Failed(code) } else { State::Crashing(code) };
    }
    if context.is_set(pod, knob::HANG) {
        return State::Hanging;
    }
    if stays { State::Running } else { State::Succeeded }
}

fn end(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    context.forget(stored.uid());
    let grace = int(&stored.value, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
    if grace > 0 {
        context.delete(stored, DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() })?;
    }
    Ok(Next::Done)
}

/// Writes the status of a state, if the Pod does not show it yet.
fn show(context: &Context, stored: &Stored, state: State) -> Result<Next, ApiError> {
    let pod = &stored.value;
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let now = json::now();
    let (phase, ready) = match state {
        State::Running => ("Running", true),
        State::Succeeded => ("Succeeded", false),
        State::Failed(_) => ("Failed", false),
        State::Crashing(_) => ("Running", false),
        State::Hanging => ("Pending", false),
    };
    let init_done = state != State::Hanging;
    let reason = match state {
        State::Succeeded => "PodCompleted",
        State::Running => "",
        State::Failed(_) => "PodFailed",
        State::Crashing(_) | State::Hanging => "ContainersNotReady",
    };
    let mut conditions = vec![
        make_condition(pod, "PodReadyToStartContainers", init_done, "", ""),
        make_condition(pod, "Initialized", init_done, "", ""),
        make_condition(pod, "Ready", ready, reason, ""),
        make_condition(pod, "ContainersReady", ready, reason, ""),
        make_condition(pod, "PodScheduled", true, "", ""),
    ];
    for gate in list(pod, &["spec", "readinessGates"]) {
        conditions.push(make_condition(pod, text(gate, &["conditionType"]), ready, "", ""));
    }
    set(&mut status, &["conditions"], Value::Array(conditions));
    set(&mut status, &["phase"], json!(phase));
    json::default(&mut status, &["startTime"], json!(now));
    set(&mut status, &["hostIP"], json!("10.0.0.1"));
    set(&mut status, &["hostIPs"], json!([{"ip": "10.0.0.1"}]));
    if init_done && text(&status, &["podIP"]).is_empty() {
        let address = context.pod_address();
        set(&mut status, &["podIPs"], json!([{"ip": address}]));
        set(&mut status, &["podIP"], json!(address));
    }
    let statuses = |field: &str, known: &str, init: bool| {
        let containers = list(pod, &["spec", field]).iter();
        let old = |name: &str| list(pod, &["status", known]).iter().find(|c| text(c, &["name"]) == name);
        containers.map(|c| container(c, old(text(c, &["name"])), state, init, &now)).collect::<Vec<_>>()
    };
    set(&mut status, &["containerStatuses"], json!(statuses("containers", "containerStatuses", false)));
    if !list(pod, &["spec", "initContainers"]).is_empty() {
        set(&mut status, &["initContainerStatuses"], json!(statuses("initContainers", "initContainerStatuses", true)));
    }
    context.set_status(stored, &status)?;
    if matches!(state, State::Succeeded | State::Failed(_)) {
        context.forget(stored.uid());
    }
    Ok(Next::Done)
}

/// The status of one container. What an earlier status says of times and restarts is kept.
fn container(container: &Value, old: Option<&Value>, state: State, init: bool, now: &str) -> Value {
    let sidecar = init && text(container, &["restartPolicy"]) == "Always";
    let image = text(container, &["image"]);
    let since = |path: &[&str]| old.and_then(|old| at(old, path)).cloned().unwrap_or_else(|| json!(now));
    let id = old
        .map(|old| text(old, &["containerID"]))
        .filter(|id| !id.is_empty())
        .map_or_else(|| format!("none://{}", uuid::Uuid::new_v4().simple()), str::to_owned);
    let terminated = |code: i64| {
        json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
            "startedAt": since(&["state", "terminated", "startedAt"]),
            "finishedAt": since(&["state", "terminated", "finishedAt"]), "containerID": id}})
    };
    let running = || json!({"running": {"startedAt": since(&["state", "running", "startedAt"])}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let mut restarts = old.and_then(|old| int(old, &["restartCount"])).unwrap_or_default();
    let mut last = json!({});
    let (shown, ready) = match state {
        State::Hanging => (waiting(if init { "PodInitializing" } else { "ContainerCreating" }), false),
        _ if init && !sidecar => (terminated(0), true),
        State::Running => (running(), true),
        State::Succeeded => (terminated(0), false),
        State::Failed(code) => (terminated(code), false),
        State::Crashing(_) if sidecar => (running(), true),
        State::Crashing(code) => {
            restarts = restarts.max(1);
            last = json!({"terminated": {"exitCode": code, "reason": "Error",
                "startedAt": since(&["lastState", "terminated", "startedAt"]),
                "finishedAt": since(&["lastState", "terminated", "finishedAt"]), "containerID": id}});
            (
                json!({"waiting": {"reason": "CrashLoopBackOff",
                "message": format!("back-off 10s restarting failed container={}", text(container, &["name"]))}}),
                false,
            )
        }
    };
    let started = shown.get("running").is_some();
    let mut status = json!({
        "name": text(container, &["name"]), "image": image, "imageID": "", "ready": ready,
        "started": started, "restartCount": restarts, "state": shown, "lastState": last,
    });
    if state != State::Hanging {
        set(&mut status, &["imageID"], json!(format!("none://{image}")));
        set(&mut status, &["containerID"], json!(id));
    }
    status
}
