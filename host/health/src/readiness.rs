//! Whether an apply may stop waiting for an object, as the waiters of Helm and kstatus decide it.
//!
//! Other than [`assess`](crate::assess) this answers for every kind, and it tells a failure that no waiting mends from a
//! state that may still change. It looks at the object alone, so a Deployment is judged by its counts and not by its
//! ReplicaSets.

mod api;
mod workload;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::{Fields, Kind, Reading, is_being_deleted};

/// Whether to go on waiting for an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Readiness {
    /// What was applied is there and works, as far as the object tells.
    Ready,
    /// It may become ready.
    NotReady {
        /// What it waits for, for a person.
        reason: String,
    },
    /// Waiting longer does not help.
    Failed {
        /// What went wrong, for a person.
        reason: String,
    },
}

impl Readiness {
    /// Whether it is [`Readiness::Ready`].
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// Why it is not ready; None if it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::NotReady { reason } | Self::Failed { reason } => Some(reason),
        }
    }
}

/// Whether an apply may stop waiting for this object, which is in the cluster.
///
/// A kind without a rule of its own is ready on sight, unless it has conditions in the way of kstatus that say otherwise.
pub fn readiness(object: &Value) -> Readiness {
    let Some(kind) = Kind::of(object) else {
        return Readiness::NotReady { reason: "the object does not say of what kind it is".to_owned() };
    };
    if is_being_deleted(object) {
        return Readiness::NotReady { reason: "it is being deleted".to_owned() };
    }
    let fields = Fields::of(object);
    let answer = match (kind.group, kind.kind) {
        ("apps" | "extensions", "Deployment") => workload::deployment(fields),
        ("apps", "StatefulSet") => workload::stateful_set(fields),
        ("apps" | "extensions", "DaemonSet") => workload::daemon_set(fields),
        ("apps" | "extensions", "ReplicaSet") | ("", "ReplicationController") => workload::replica_set(fields),
        ("batch", "Job") => workload::job(fields),
        ("", "Pod") => workload::pod(object, fields),
        ("", "PersistentVolumeClaim") => api::persistent_volume_claim(fields),
        ("", "Service") => api::service(fields),
        ("", "Namespace") => api::namespace(fields),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => api::custom_resource_definition(fields),
        ("apiregistration.k8s.io", "APIService") => api::api_service(fields),
        // Their conditions tell of what they act upon, which is waited for by itself.
        ("extensions" | "networking.k8s.io", "Ingress") | ("policy", "PodDisruptionBudget") => Ok(Readiness::Ready),
        _ => api::any_other(kind, fields),
    };
    said(answer.unwrap_or_else(|malformed| Readiness::NotReady { reason: format!("malformed object: {malformed}") }))
}

/// Reasons that an object gives may be blank; whoever waits for it is told so.
fn said(readiness: Readiness) -> Readiness {
    const NONE: &str = "the object gives no reason";
    let or_none = |reason: String| if reason.trim().is_empty() { NONE.to_owned() } else { reason };
    match readiness {
        Readiness::Ready => Readiness::Ready,
        Readiness::NotReady { reason } => Readiness::NotReady { reason: or_none(reason) },
        Readiness::Failed { reason } => Readiness::Failed { reason: or_none(reason) },
    }
}

fn ready() -> Reading<Readiness> {
    Ok(Readiness::Ready)
}

fn not_ready(reason: impl Into<String>) -> Reading<Readiness> {
    Ok(Readiness::NotReady { reason: reason.into() })
}

fn failed(reason: impl Into<String>) -> Reading<Readiness> {
    Ok(Readiness::Failed { reason: reason.into() })
}

/// Why the controller has not judged the newest generation yet; None if it has.
fn unobserved(fields: Fields<'_>) -> Reading<Option<String>> {
    let wanted = fields.count("metadata.generation")?;
    let observed = fields.count("status.observedGeneration")?;
    Ok((wanted > observed)
        .then(|| format!("generation {wanted} is not yet observed by its controller (last observed: {observed})")))
}

#[cfg(test)]
mod tests;
