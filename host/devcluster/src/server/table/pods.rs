//! What a Pod is doing, in a word, as `kubectl get pods` shows it.

use serde_json::{Value, json};

use super::{
    cells::{count, is_true},
    since,
};
use crate::json::{at, int, list, text};

/// The cells of a Pod that follow from its containers.
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: String,
}

fn is_sidecar(pod: &Value, name: &str) -> bool {
    let inits = list(pod, &["spec", "initContainers"]);
    inits.iter().any(|it| text(it, &["name"]) == name && text(it, &["restartPolicy"]) == "Always")
}

/// How a container ended, in a word.
fn ended(terminated: &Value) -> String {
    match (text(terminated, &["reason"]), int(terminated, &["signal"]).unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", count(terminated, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn summary(pod: &Value) -> Summary {
    let spec = |field: &str| list(pod, &["spec", field]);
    let inits = spec("initContainers");
    let sidecars = inits.iter().filter(|it| is_sidecar(pod, text(it, &["name"]))).count();
    let first = |paths: [&[&str]; 2]| paths.into_iter().map(|path| text(pod, path)).find(|it| !it.is_empty());
    let mut all = Summary {
        ready: 0,
        total: spec("containers").len() + sidecars,
        reason: first([&["status", "reason"], &["status", "phase"]]).unwrap_or_default().to_owned(),
        restarts: 0,
        last_restart: String::new(),
    };
    let gated = list(pod, &["status", "conditions"]).iter().any(|it| text(it, &["reason"]) == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut all.reason);
    }
    let mut sidecar_restarts = 0;
    let mut initialising = false;
    for (index, status) in list(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
        let sidecar = is_sidecar(pod, text(status, &["name"]));
        all.count_restarts(status);
        if sidecar {
            sidecar_restarts += count(status, &["restartCount"]);
        }
        let waiting = text(status, &["state", "waiting", "reason"]);
        match at(status, &["state", "terminated"]) {
            Some(terminated) if count(terminated, &["exitCode"]) == 0 => continue,
            _ if sidecar && status.get("started") == Some(&Value::Bool(true)) => {
                all.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            Some(terminated) => all.reason = format!("Init:{}", ended(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => all.reason = format!("Init:{waiting}"),
            None => all.reason = format!("Init:{index}/{}", inits.len()),
        }
        initialising = true;
        break;
    }
    if !initialising || is_true(pod, "Initialized") {
        all.restarts = sidecar_restarts;
        all.count_containers(pod);
    }
    let over = matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() && !over {
        "Terminating".clone_into(&mut all.reason);
    }
    all
}

impl Summary {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += count(status, &["restartCount"]);
        let last = text(status, &["lastState", "terminated", "finishedAt"]);
        if last > self.last_restart.as_str() {
            last.clone_into(&mut self.last_restart);
        }
    }

    fn count_containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in list(pod, &["status", "containerStatuses"]).iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = at(status, &["state", "terminated"]) {
                self.reason = ended(terminated);
            } else if status.get("ready") == Some(&Value::Bool(true)) && at(status, &["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            if is_true(pod, "Ready") { "Running" } else { "NotReady" }.clone_into(&mut self.reason);
        }
    }
}

pub(super) fn ready(pod: &Value) -> Value {
    let all = summary(pod);
    json!(format!("{}/{}", all.ready, all.total))
}

pub(super) fn status(pod: &Value) -> Value {
    json!(summary(pod).reason)
}

pub(super) fn restarts(pod: &Value) -> Value {
    let all = summary(pod);
    if all.restarts == 0 || all.last_restart.is_empty() {
        return json!(all.restarts.to_string());
    }
    json!(format!("{} ({} ago)", all.restarts, since(&all.last_restart)))
}

pub(super) fn gates(pod: &Value) -> Value {
    let gates = list(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return json!("<none>");
    }
    let passed = gates.iter().filter(|gate| is_true(pod, text(gate, &["conditionType"]))).count();
    json!(format!("{passed}/{}", gates.len()))
}
