//! Deployment, StatefulSet, ReplicaSet and DaemonSet: has the controller seen the newest generation, and are the Pods of
//! it there? An absent `spec.replicas` skips its rule, it is not read as 1: the API server always fills it in.

use super::{Subject, degraded, healthy, progressing, suspended};
use crate::object::{Reading, first};
use crate::verdict::Health;

pub(super) fn deployment(subject: &Subject<'_>) -> Reading<Health> {
    let fields = subject.fields;
    if fields.flag("spec.paused")? {
        return suspended("Deployment is paused");
    }
    if subject.is_unobserved()? {
        return progressing(
            "Waiting for rollout to finish: observed deployment generation less than desired generation",
        );
    }
    let conditions = fields.conditions("status.conditions")?;
    if first(&conditions, "Progressing").is_some_and(|condition| condition.reason == "ProgressDeadlineExceeded") {
        return degraded(format!("Deployment \"{}\" exceeded its progress deadline", subject.name()?));
    }
    let updated = fields.count("status.updatedReplicas")?;
    if let Some(wanted) = fields.integer("spec.replicas")?
        && updated < wanted
    {
        return progressing(format!(
            "Waiting for rollout to finish: {updated} out of {wanted} new replicas have been updated..."
        ));
    }
    let old = fields.count("status.replicas")?.saturating_sub(updated);
    if old > 0 {
        return progressing(format!("Waiting for rollout to finish: {old} old replicas are pending termination..."));
    }
    let available = fields.count("status.availableReplicas")?;
    if available < updated {
        return progressing(format!(
            "Waiting for rollout to finish: {available} of {updated} updated replicas are available..."
        ));
    }
    healthy("")
}

pub(super) fn stateful_set(subject: &Subject<'_>) -> Reading<Health> {
    let fields = subject.fields;
    if fields.count("status.observedGeneration")? == 0 || subject.is_unobserved()? {
        return progressing("Waiting for statefulset spec update to be observed...");
    }
    let wanted = fields.integer("spec.replicas")?;
    let ready = fields.count("status.readyReplicas")?;
    if let Some(wanted) = wanted
        && ready < wanted
    {
        return progressing(format!("Waiting for {} pods to be ready...", wanted.saturating_sub(ready)));
    }
    let updated = fields.count("status.updatedReplicas")?;
    let strategy = fields.text("spec.updateStrategy.type")?;
    // The API server fills in a partition of 0, so nearly every StatefulSet in a cluster ends here.
    if strategy == "RollingUpdate" && fields.has_object("spec.updateStrategy.rollingUpdate")? {
        let partition = fields.integer("spec.updateStrategy.rollingUpdate.partition")?;
        if let (Some(wanted), Some(partition)) = (wanted, partition) {
            let due = wanted.saturating_sub(partition);
            if updated < due {
                return progressing(format!(
                    "Waiting for partitioned roll out to finish: {updated} out of {due} new pods have been updated..."
                ));
            }
        }
        return healthy(format!("partitioned roll out complete: {updated} new pods have been updated..."));
    }
    if strategy == "OnDelete" {
        return healthy(format!("statefulset has {ready} ready pods"));
    }
    let update_revision = fields.text("status.updateRevision")?;
    let current_revision = fields.text("status.currentRevision")?;
    if update_revision != current_revision {
        return progressing(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {update_revision}..."
        ));
    }
    let current = fields.count("status.currentReplicas")?;
    healthy(format!("statefulset rolling update complete {current} pods at revision {current_revision}..."))
}

pub(super) fn replica_set(subject: &Subject<'_>) -> Reading<Health> {
    let fields = subject.fields;
    if subject.is_unobserved()? {
        return progressing(
            "Waiting for rollout to finish: observed replica set generation less than desired generation",
        );
    }
    let conditions = fields.conditions("status.conditions")?;
    if let Some(failure) = first(&conditions, "ReplicaFailure").filter(|condition| condition.is_true()) {
        return degraded(failure.message);
    }
    let available = fields.count("status.availableReplicas")?;
    if let Some(wanted) = fields.integer("spec.replicas")?
        && available < wanted
    {
        return progressing(format!(
            "Waiting for rollout to finish: {available} out of {wanted} new replicas are available..."
        ));
    }
    healthy("")
}

pub(super) fn daemon_set(subject: &Subject<'_>) -> Reading<Health> {
    let fields = subject.fields;
    if subject.is_unobserved()? {
        return progressing(
            "Waiting for rollout to finish: observed daemon set generation less than desired generation",
        );
    }
    let updated = fields.count("status.updatedNumberScheduled")?;
    let wanted = fields.count("status.desiredNumberScheduled")?;
    if fields.text("spec.updateStrategy.type")? == "OnDelete" {
        return healthy(format!("daemon set {updated} out of {wanted} new pods have been updated"));
    }
    let name = subject.name()?;
    if updated < wanted {
        return progressing(format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {updated} out of {wanted} new pods have been updated..."
        ));
    }
    let available = fields.count("status.numberAvailable")?;
    if available < wanted {
        return progressing(format!(
            "Waiting for daemon set \"{name}\" rollout to finish: {available} of {wanted} updated pods are available..."
        ));
    }
    healthy("")
}
