//! The kinds that run nothing themselves, and every kind that has no rule of its own.

use super::workload::told;
use super::{Readiness, failed, not_ready, ready, unobserved};
use crate::object::{Condition, Fields, Kind, Reading, first};

/// The API groups of Kubernetes itself. Not by their ending: `gateway.networking.k8s.io` is a custom resource.
const BUILT_IN_GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// A class that binds when the first Pod comes is not known from the claim, so Pending is not ready.
pub(super) fn persistent_volume_claim(fields: Fields<'_>) -> Reading<Readiness> {
    in_phase(fields, "Bound")
}

pub(super) fn namespace(fields: Fields<'_>) -> Reading<Readiness> {
    in_phase(fields, "Active")
}

fn in_phase(fields: Fields<'_>, wanted: &str) -> Reading<Readiness> {
    match fields.text("status.phase")? {
        phase if phase == wanted => ready(),
        "" => not_ready(format!("it has no phase yet, expected {wanted}")),
        phase => not_ready(format!("the phase is {phase}, expected {wanted}")),
    }
}

pub(super) fn service(fields: Fields<'_>) -> Reading<Readiness> {
    if fields.text("spec.type")? != "LoadBalancer" {
        return ready();
    }
    // Addresses that the user has set are his own affair; nobody may ever assign another one.
    if fields.has_entries("spec.externalIPs")? || fields.has_entries("status.loadBalancer.ingress")? {
        return ready();
    }
    not_ready("the load balancer has no address yet")
}

pub(super) fn custom_resource_definition(fields: Fields<'_>) -> Reading<Readiness> {
    let conditions = fields.conditions("status.conditions")?;
    if first(&conditions, "Established").is_some_and(Condition::is_true) {
        return ready();
    }
    match first(&conditions, "NamesAccepted") {
        Some(names) if names.status == "False" => failed(told(names)),
        _ => not_ready("it is not established yet"),
    }
}

pub(super) fn api_service(fields: Fields<'_>) -> Reading<Readiness> {
    let conditions = fields.conditions("status.conditions")?;
    match first(&conditions, "Available") {
        Some(available) if available.is_true() => ready(),
        Some(available) => not_ready(told(available)),
        None => not_ready("it is not known yet whether it is available"),
    }
}

pub(super) fn any_other(kind: Kind<'_>, fields: Fields<'_>) -> Reading<Readiness> {
    let is_built_in = BUILT_IN_GROUPS.contains(&kind.group);
    // A custom resource may have a status of any form. What is not in the way of kstatus says nothing here.
    let Ok(conditions) = fields.conditions("status.conditions") else { return ready() };
    // A controller that reports generations has not judged this one yet; its conditions are of the one before.
    if !is_built_in
        && let Ok(Some(_)) = fields.integer("status.observedGeneration")
        && let Ok(Some(reason)) = unobserved(fields)
    {
        return not_ready(reason);
    }
    for condition in &conditions {
        match condition.kind {
            "Stalled" if condition.is_true() => return failed(told(condition)),
            "Reconciling" if condition.is_true() => return not_ready(told(condition)),
            _ => {}
        }
    }
    match first(&conditions, "Ready") {
        Some(condition) if !is_built_in && matches!(condition.status, "False" | "Unknown") => {
            not_ready(told(condition))
        }
        _ => ready(),
    }
}
