//! Job, CronJob and Argo's Workflow: work that ends.

use serde_json::Value;

use super::{Subject, degraded, healthy, progressing, suspended};
use crate::assess::Compatibility;
use crate::object::Reading;
use crate::verdict::{Health, Verdict};

pub(super) fn job(subject: &Subject<'_>) -> Reading<Health> {
    let mut failure = None;
    let mut message = "";
    let mut is_complete = false;
    let mut is_suspended = false;
    let mut has_suspended_condition = false;
    for condition in subject.fields.conditions("status.conditions")? {
        // The type alone says that a Job has ended: its controller never sets such a condition to False.
        match condition.kind {
            "Failed" => failure = Some(condition.message),
            "Complete" => {
                is_complete = true;
                message = condition.message;
            }
            "Suspended" => {
                has_suspended_condition = true;
                is_suspended |= condition.is_true();
                if condition.is_true() || subject.compatibility == Compatibility::ArgoCd {
                    message = condition.message;
                }
            }
            _ => {}
        }
    }
    match subject.compatibility {
        Compatibility::Documented => {
            // What has ended is not waiting for anybody, so its end comes first.
            if let Some(failure) = failure {
                degraded(failure)
            } else if is_complete {
                healthy(message)
            } else if is_suspended || subject.fields.flag("spec.suspend")? {
                suspended(message)
            } else {
                progressing(message)
            }
        }
        Compatibility::ArgoCd => {
            if let Some(failure) = failure {
                degraded(failure)
            } else if is_suspended {
                suspended(message)
            } else if is_complete || has_suspended_condition {
                healthy(message)
            } else {
                progressing(message)
            }
        }
    }
}

pub(super) fn cron_job(subject: &Subject<'_>) -> Reading<Health> {
    const FAILED: &str = "CronJob has not completed its last execution successfully";
    const SUCCEEDED: &str = "CronJob has completed its last execution successfully";

    let fields = subject.fields;
    let documented = subject.compatibility == Compatibility::Documented;
    if fields.flag("spec.suspend")? {
        let message = "CronJob is Suspended";
        return if documented { suspended(message) } else { healthy(message) };
    }
    if !fields.has_object("status")? {
        return progressing("Waiting for CronJob");
    }
    let scheduled = fields.text("status.lastScheduleTime")?;
    let succeeded = fields.text("status.lastSuccessfulTime")?;
    let is_active = fields.has_entries("status.active")?;
    if documented {
        if is_active {
            return progressing("The job is running");
        }
        if scheduled.is_empty() {
            return healthy("CronJob has not been scheduled yet");
        }
        // Both are times in the one form that the API server writes, so the order of the texts is that of the times. A
        // job that ended well has set the second time, even if it is the first that ever did.
        return if succeeded < scheduled { degraded(FAILED) } else { healthy(SUCCEEDED) };
    }
    if scheduled.is_empty() {
        return healthy("CronJob has not been scheduled yet");
    }
    if succeeded.is_empty() {
        // The spelling is part of what others compare with.
        return healthy("The Cronjob never completed succesfully. It may not be healthy");
    }
    if is_active {
        return healthy("The job is running. Its last execution may not have been successful");
    }
    if succeeded < scheduled { degraded(FAILED) } else { healthy(SUCCEEDED) }
}

/// Takes a phase or message that is not a text for an empty one.
pub(super) fn workflow(subject: &Subject<'_>) -> Reading<Health> {
    let text = |pointer| subject.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let verdict = match text("/status/phase") {
        "" | "Pending" | "Running" => Verdict::Progressing,
        "Succeeded" => Verdict::Healthy,
        "Failed" | "Error" => Verdict::Degraded,
        _ => Verdict::Unknown,
    };
    Ok(Health::new(verdict, text("/status/message")))
}
