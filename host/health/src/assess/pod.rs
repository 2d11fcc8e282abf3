//! Pods. A Pod that is to run for good is judged by whether its containers stay up, any other one by its phase.

use super::{Subject, degraded, healthy, progressing};
use crate::object::{Fields, Reading, annotation, first, is_hook};
use crate::verdict::{Health, Verdict};

/// `"true"` on a Pod that does not restart its containers makes it be judged as one that does.
const IGNORE_RESTART_POLICY_ANNOTATION: &str = "argocd.argoproj.io/ignore-restart-policy";

pub(super) fn pod(subject: &Subject<'_>) -> Reading<Health> {
    let fields = subject.fields;
    let restart_policy = fields.text("spec.restartPolicy")?;
    let message = fields.text("status.message")?;
    let containers = fields.items("status.containerStatuses")?;
    let long_running = restart_policy == "Always"
        || (annotation(subject.object, IGNORE_RESTART_POLICY_ANNOTATION) == Some("true") && !is_hook(subject.object));
    if long_running && let Some(complaints) = waiting_complaints(&containers)? {
        return degraded(complaints);
    }
    match fields.text("status.phase")? {
        "Pending" => progressing(message),
        "Succeeded" => healthy(message),
        "Failed" if message.is_empty() => {
            let init = fields.items("status.initContainerStatuses")?;
            degraded(failure_of(init.into_iter().chain(containers))?)
        }
        "Failed" => degraded(message),
        "Running" if long_running => {
            let conditions = fields.conditions("status.conditions")?;
            if first(&conditions, "Ready").is_some_and(|condition| condition.is_true()) {
                return healthy(message);
            }
            for container in &containers {
                if container.has_object("lastState.terminated")? {
                    return degraded(message);
                }
            }
            progressing(message)
        }
        "Running" if matches!(restart_policy, "OnFailure" | "Never") => progressing(message),
        _ => Ok(Health::new(Verdict::Unknown, message)),
    }
}

/// What the containers say that wait after an error, or None if none does.
fn waiting_complaints(containers: &[Fields<'_>]) -> Reading<Option<String>> {
    let mut complaints = Vec::new();
    for container in containers {
        let reason = container.text("state.waiting.reason")?;
        if reason.starts_with("Err") || reason.ends_with("Error") || reason.ends_with("BackOff") {
            complaints.push(container.text("state.waiting.message")?);
        }
    }
    Ok((!complaints.is_empty()).then(|| complaints.join(", ")))
}

/// Why the first container that has anything to say failed; empty if none has.
fn failure_of<'a>(containers: impl Iterator<Item = Fields<'a>>) -> Reading<String> {
    for container in containers {
        let message = container.text("state.terminated.message")?;
        if !message.is_empty() {
            return Ok(message.to_owned());
        }
        if container.text("state.terminated.reason")? == "OOMKilled" {
            return Ok("OOMKilled".to_owned());
        }
        let code = container.count("state.terminated.exitCode")?;
        if code != 0 {
            return Ok(format!("container \"{}\" failed with exit code {code}", container.text("name")?));
        }
    }
    Ok(String::new())
}
