//! What is known of kinds without asking a cluster: whose they are, what they give, where they live.

use crate::identity::Gvk;

/// Why the reference to a kind is none that the API server would have written. Such a reference could slip past rules
/// that compare groups, for example a version `coordination.k8s.io/v1` in the core group.
pub(super) fn malformed(gvk: &Gvk) -> Option<&'static str> {
    match Gvk::parse(&gvk.api_version(), &gvk.kind) {
        Ok(parsed) if parsed == *gvk => None,
        Ok(_) => Some("the API version is not <version> or <group>/<version>"),
        Err(error) => Some(error.reason),
    }
}

/// Kinds that no grant reaches; with the reason.
pub(super) fn forbidden(gvk: &Gvk) -> Option<&'static str> {
    let is = |kind: &str| gvk.kind.eq_ignore_ascii_case(kind);
    match gvk.group.as_str() {
        "deckhouse.io" => Some("the kind belongs to the host"),
        group if is_host_domain(group) => Some("the kind belongs to the host"),
        "coordination.k8s.io" => Some("leases decide who leads"),
        "apiextensions.k8s.io" => Some("definitions of kinds belong to the host"),
        "authentication.k8s.io" => Some("the kind gives out or examines credentials"),
        "authorization.k8s.io" => Some("the kind examines the rights of the host"),
        _ if is("List") => Some("a list is no object: each object is one operation"),
        "" if is("Binding") => Some("the kind is a way around a subresource"),
        "policy" if is("Eviction") => Some("the kind is a way around a subresource"),
        _ => None,
    }
}

/// A domain of labels, annotations, finalizers or groups in which only the host writes.
pub(super) fn is_host_domain(domain: &str) -> bool {
    let within =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|prefix| prefix.ends_with('.'));
    within("packages.deckhouse.io")
        || within("maintenance.deckhouse.io")
        || within("health.deckhouse.io")
        || domain.split('.').any(|part| part == "barbless")
}

/// Groups whose objects give rights to others, or intercept what others do.
pub(super) fn gives_rights(gvk: &Gvk) -> bool {
    matches!(
        gvk.group.as_str(),
        "rbac.authorization.k8s.io" | "certificates.k8s.io" | "admissionregistration.k8s.io" | "apiregistration.k8s.io"
    )
}

/// Built-in kinds that live in the cluster. Discovery says the same; this holds also while it cannot be asked, or when
/// a caller guesses.
pub(super) fn is_cluster_scoped(gvk: &Gvk) -> bool {
    let kind = gvk.kind.as_str();
    match gvk.group.as_str() {
        "" => matches!(kind, "Node" | "Namespace" | "PersistentVolume" | "ComponentStatus"),
        "rbac.authorization.k8s.io" => matches!(kind, "ClusterRole" | "ClusterRoleBinding"),
        "storage.k8s.io" => kind != "CSIStorageCapacity",
        "scheduling.k8s.io" => kind == "PriorityClass",
        "networking.k8s.io" => matches!(kind, "IngressClass" | "IPAddress" | "ServiceCIDR"),
        "node.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "certificates.k8s.io"
        | "admissionregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io" => kind != "PodCertificateRequest",
        _ => false,
    }
}
