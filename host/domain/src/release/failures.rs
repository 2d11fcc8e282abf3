//! How often the Pods of a workload may fail before the workload counts as failed, and how often they have.
//!
//! A failure is an end of a container that is to run on, an end with another code than 0, an attempt to make a container
//! or to get its image that went wrong, or a Pod that failed as a whole. Annotation and defaults are those of nelm.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Directives;

/// How many failures of its Pods are not yet a failure of this object: `werf.io/failures-allowed-per-replica` for each
/// replica, 1 if it does not say so. Nothing for an object that says itself when it has failed: a Job has a limit of its
/// own, unless the annotation is on it.
#[must_use]
pub fn failures_allowed(object: &Value) -> Option<u32> {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64);
    let (default, replicas) = match object.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => (Some(1), number("/spec/replicas")),
        "DaemonSet" => (Some(1), number("/status/desiredNumberScheduled")),
        "Job" => (None, number("/spec/parallelism")),
        _ => (None, None),
    };
    let each = Directives::of(object).failures_per_replica.or(default)?;
    // A DaemonSet that has no Pods yet, or a workload that is scaled down, is treated as if it had one.
    let replicas = u32::try_from(replicas.unwrap_or(1)).unwrap_or(u32::MAX).max(1);
    Some(each.saturating_mul(replicas))
}

/// The failures of one Pod, counted from one state of it to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFailures {
    containers: BTreeMap<String, Container>,
    /// It failed as a whole, and no container says why.
    failed: bool,
    forgiven: u32,
}

/// What was seen of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Container {
    ends: u32,
    refusals: u32,
    /// Why it waits, if that is a refusal.
    refused: Option<String>,
}

/// Reasons for which a container cannot be made.
const REFUSALS: [&str; 7] = [
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];
/// The pause after an image could not be had, which is no failure of its own.
const PULL_PAUSE: &str = "ImagePullBackOff";

impl PodFailures {
    /// Looks at the next state of the Pod.
    pub fn see(&mut self, pod: &Value) {
        let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        for status in list("/status/initContainerStatuses").chain(list("/status/containerStatuses")) {
            let name = status.get("name").and_then(Value::as_str).unwrap_or_default();
            self.containers.entry(name.to_owned()).or_default().see(status);
        }
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        self.failed |= phase == Some("Failed") && self.containers.values().all(|it| it.count() == 0);
    }

    /// What has happened so far does not count.
    pub fn forgive(&mut self) {
        self.forgiven = self.all();
    }

    /// Failures that count.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.all().saturating_sub(self.forgiven)
    }

    fn all(&self) -> u32 {
        let containers = self.containers.values().map(Container::count);
        containers.fold(u32::from(self.failed), u32::saturating_add)
    }
}

impl Container {
    fn see(&mut self, status: &Value) {
        let restarts = status.get("restartCount").and_then(Value::as_u64).unwrap_or_default();
        let waits = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        let code = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
        // Every run but the last was started again; the last may have ended too.
        let ended = waits == "CrashLoopBackOff" || code.is_some_and(|code| code != 0);
        let ends = u32::try_from(restarts).unwrap_or(u32::MAX).saturating_add(u32::from(ended));
        self.ends = self.ends.max(ends);
        let before = self.refused.take();
        if REFUSALS.contains(&waits) || waits == PULL_PAUSE {
            // Each attempt counts once; the first that is seen may be over already.
            let is_new = match before.as_deref() {
                None => true,
                Some(before) => waits != PULL_PAUSE && waits != before,
            };
            self.refusals = self.refusals.saturating_add(u32::from(is_new));
            self.refused = Some(waits.to_owned());
        }
    }

    fn count(&self) -> u32 {
        self.ends.saturating_add(self.refusals)
    }
}

#[cfg(test)]
mod tests;
