//! The kinds that run Pods, and the Pod.

use serde_json::Value;

use super::{Readiness, failed, not_ready, ready, unobserved};
use crate::container::container_problem;
use crate::object::{Condition, Fields, Reading, first};

pub(super) fn deployment(fields: Fields<'_>) -> Reading<Readiness> {
    // First, because the conditions below may still tell of the generation before.
    if let Some(reason) = unobserved(fields)? {
        return not_ready(reason);
    }
    // A paused rollout makes no progress by intention; waiting for it would never end.
    if fields.flag("spec.paused")? {
        return ready();
    }
    let conditions = fields.conditions("status.conditions")?;
    if let Some(progress) =
        first(&conditions, "Progressing").filter(|condition| condition.reason == "ProgressDeadlineExceeded")
    {
        return failed(told(progress));
    }
    let wanted = fields.integer("spec.replicas")?.unwrap_or(1);
    let updated = fields.count("status.updatedReplicas")?;
    if updated < wanted {
        if let Some(failure) = replica_failure(&conditions) {
            return not_ready(failure);
        }
        return not_ready(format!("{updated} of {wanted} replicas are updated"));
    }
    let old = fields.count("status.replicas")?.saturating_sub(updated);
    if old > 0 {
        return not_ready(format!("old replicas that have not ended: {old}"));
    }
    let available = fields.count("status.availableReplicas")?;
    if available < wanted {
        return not_ready(format!("{available} of {wanted} replicas are available"));
    }
    ready()
}

pub(super) fn stateful_set(fields: Fields<'_>) -> Reading<Readiness> {
    if let Some(reason) = unobserved(fields)? {
        return not_ready(reason);
    }
    // Pods are replaced only when somebody deletes them.
    if fields.text("spec.updateStrategy.type")? == "OnDelete" {
        return ready();
    }
    let wanted = fields.integer("spec.replicas")?.unwrap_or(1);
    let partition = fields.count("spec.updateStrategy.rollingUpdate.partition")?;
    let due = wanted.saturating_sub(partition);
    let updated = fields.count("status.updatedReplicas")?;
    if updated < due {
        return not_ready(format!("{updated} of {due} replicas are updated"));
    }
    let ready_replicas = fields.count("status.readyReplicas")?;
    if ready_replicas < wanted {
        return not_ready(format!("{ready_replicas} of {wanted} replicas are ready"));
    }
    let surplus = fields.count("status.replicas")?.saturating_sub(wanted);
    if surplus > 0 {
        return not_ready(format!("surplus replicas that have not ended: {surplus}"));
    }
    let current_revision = fields.text("status.currentRevision")?;
    let update_revision = fields.text("status.updateRevision")?;
    if partition == 0 && current_revision != update_revision {
        return not_ready(format!("the update to revision {update_revision} has not ended"));
    }
    ready()
}

pub(super) fn daemon_set(fields: Fields<'_>) -> Reading<Readiness> {
    if let Some(reason) = unobserved(fields)? {
        return not_ready(reason);
    }
    // Pods are replaced only when somebody deletes them.
    if fields.text("spec.updateStrategy.type")? == "OnDelete" {
        return ready();
    }
    // On how many nodes it is to run is known to the controller alone: absent is unknown, and 0 is fine.
    let Some(wanted) = fields.integer("status.desiredNumberScheduled")? else {
        return not_ready("it is not known yet on how many nodes it is to run");
    };
    for (path, what) in [
        ("status.currentNumberScheduled", "scheduled"),
        ("status.updatedNumberScheduled", "updated"),
        ("status.numberAvailable", "available"),
        ("status.numberReady", "ready"),
    ] {
        let count = fields.count(path)?;
        if count < wanted {
            return not_ready(format!("{count} of {wanted} Pods are {what}"));
        }
    }
    ready()
}

pub(super) fn replica_set(fields: Fields<'_>) -> Reading<Readiness> {
    if let Some(reason) = unobserved(fields)? {
        return not_ready(reason);
    }
    let conditions = fields.conditions("status.conditions")?;
    if let Some(failure) = replica_failure(&conditions) {
        return not_ready(failure);
    }
    let wanted = fields.integer("spec.replicas")?.unwrap_or(1);
    for (path, what) in [
        ("status.fullyLabeledReplicas", "fully labelled"),
        ("status.availableReplicas", "available"),
        ("status.readyReplicas", "ready"),
    ] {
        let count = fields.count(path)?;
        if count < wanted {
            return not_ready(format!("{count} of {wanted} replicas are {what}"));
        }
    }
    let surplus = fields.count("status.replicas")?.saturating_sub(wanted);
    if surplus > 0 {
        return not_ready(format!("surplus replicas that have not ended: {surplus}"));
    }
    ready()
}

pub(super) fn job(fields: Fields<'_>) -> Reading<Readiness> {
    let conditions = fields.conditions("status.conditions")?;
    if first(&conditions, "Complete").is_some_and(Condition::is_true) {
        return ready();
    }
    if let Some(failure) = first(&conditions, "Failed").filter(|condition| condition.is_true()) {
        return failed(told(failure));
    }
    if fields.flag("spec.suspend")? {
        return not_ready("it is suspended");
    }
    let wanted = fields.integer("spec.completions")?.unwrap_or(1);
    let succeeded = fields.count("status.succeeded")?;
    let failures = fields.count("status.failed")?;
    let mut reason = format!("{succeeded} of {wanted} completions are done");
    if failures > 0 {
        reason.push_str(&format!(", failed Pods: {failures}"));
    }
    not_ready(reason)
}

pub(super) fn pod(object: &Value, fields: Fields<'_>) -> Reading<Readiness> {
    let phase = fields.text("status.phase")?;
    let conditions = fields.conditions("status.conditions")?;
    let own_words = || -> Reading<Option<String>> {
        let (reason, message) = (fields.text("status.reason")?, fields.text("status.message")?);
        Ok((!reason.is_empty() || !message.is_empty()).then(|| joined(reason, message)))
    };
    match phase {
        "Succeeded" => return ready(),
        "Failed" => {
            let reason = match (container_problem(object), own_words()?) {
                (Some(problem), _) => problem,
                (None, Some(words)) => words,
                (None, None) => "the phase is Failed".to_owned(),
            };
            return failed(reason);
        }
        _ => {}
    }
    if first(&conditions, "Ready").is_some_and(Condition::is_true) {
        return ready();
    }
    if let Some(problem) = container_problem(object) {
        return not_ready(problem);
    }
    if let Some(unscheduled) = first(&conditions, "PodScheduled").filter(|condition| condition.status == "False") {
        return not_ready(told(unscheduled));
    }
    if let Some(words) = own_words()? {
        return not_ready(words);
    }
    if let Some(unready) = first(&conditions, "Ready").filter(|condition| !condition.message.is_empty()) {
        return not_ready(told(unready));
    }
    not_ready(if phase.is_empty() { "it has no phase yet".to_owned() } else { format!("the phase is {phase}") })
}

/// Why Pods could not be made, by a quota for instance. Somebody may lift it, so it is no failure.
fn replica_failure(conditions: &[Condition<'_>]) -> Option<String> {
    first(conditions, "ReplicaFailure").filter(|condition| condition.is_true()).map(told)
}

/// What a condition says.
pub(super) fn told(condition: &Condition<'_>) -> String {
    match (condition.reason, condition.message) {
        ("", "") => format!("{} is {}", condition.kind, condition.status),
        (reason, message) => joined(reason, message),
    }
}

fn joined(reason: &str, message: &str) -> String {
    match (reason, message) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}
