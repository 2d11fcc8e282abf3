//! The order in which kinds are installed and removed.
//!
//! Helm's two lists, compared by the name of the kind alone, as Helm does. Where Helm puts every unknown kind last in
//! both directions, custom resources go before their definition here on removal: their operator must still run to
//! release their finalizers.

use crate::identity::Gvk;

/// Kinds in the order of installation; kinds that are not listed follow, by name.
const INSTALL: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Kinds in the order of removal; kinds that are not listed have a place of their own, see [`Part::Custom`].
const REMOVE: [&str; 38] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];

/// Place of a kind in the order of installation.
#[must_use]
pub fn install_rank(kind: &str) -> usize {
    INSTALL.iter().position(|known| *known == kind).unwrap_or(INSTALL.len())
}

/// Place of a kind in the order of removal.
#[must_use]
pub fn remove_rank(kind: &str) -> usize {
    REMOVE.iter().position(|known| *known == kind).unwrap_or(REMOVE.len())
}

/// Whether the orders know a kind; all others are taken for custom resources.
pub(super) fn is_known(kind: &str) -> bool {
    INSTALL.contains(&kind)
}

/// A part of a release that must be there, or gone, before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Namespaces, accounts, configuration, volumes.
    Foundation,
    /// Definitions of kinds.
    Definitions,
    /// Everything that runs, and what leads to it. A custom resource of somebody else's kind is here too: a workload
    /// may wait for what it brings.
    Workloads,
    /// Webhooks and aggregated APIs: they must not exist before what serves them is ready.
    Admission,
    /// Custom resources of a kind that the release itself defines.
    Custom,
}

impl Part {
    /// The part of a kind; `defined_here` says whether the release has its definition.
    pub(super) fn of(gvk: &Gvk, defined_here: bool) -> Self {
        match gvk.kind.as_str() {
            _ if defined_here => Self::Custom,
            "CustomResourceDefinition" => Self::Definitions,
            "APIService" | "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Self::Admission,
            kind if install_rank(kind) < install_rank("CustomResourceDefinition") => Self::Foundation,
            _ => Self::Workloads,
        }
    }
}
