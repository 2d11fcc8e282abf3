//! The kinds of Kubernetes itself, with the words that discovery knows them by.
//!
//! shell-operator asks the API server what `kind: deploy` without an `apiVersion` means. A package is checked before there
//! is a cluster, so what every cluster answers the same stands here; for other kinds the `apiVersion` must be said.

/// A kind with its preferred API version, its plural and its short names.
struct Known {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
}

const fn known(
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
) -> Known {
    Known { api_version, kind, plural, short }
}

/// Where a word is in two groups, the first counts, as it does there.
const KINDS: [Known; 51] = [
    known("v1", "ConfigMap", "configmaps", &["cm"]),
    known("v1", "Endpoints", "endpoints", &["ep"]),
    known("v1", "Event", "events", &["ev"]),
    known("v1", "LimitRange", "limitranges", &["limits"]),
    known("v1", "Namespace", "namespaces", &["ns"]),
    known("v1", "Node", "nodes", &["no"]),
    known("v1", "PersistentVolume", "persistentvolumes", &["pv"]),
    known("v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"]),
    known("v1", "Pod", "pods", &["po"]),
    known("v1", "PodTemplate", "podtemplates", &[]),
    known("v1", "ReplicationController", "replicationcontrollers", &["rc"]),
    known("v1", "ResourceQuota", "resourcequotas", &["quota"]),
    known("v1", "Secret", "secrets", &[]),
    known("v1", "Service", "services", &["svc"]),
    known("v1", "ServiceAccount", "serviceaccounts", &["sa"]),
    known("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[]),
    known("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[]),
    known(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        &[],
    ),
    known("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[]),
    known("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"]),
    known("apiregistration.k8s.io/v1", "APIService", "apiservices", &[]),
    known("apps/v1", "ControllerRevision", "controllerrevisions", &[]),
    known("apps/v1", "DaemonSet", "daemonsets", &["ds"]),
    known("apps/v1", "Deployment", "deployments", &["deploy"]),
    known("apps/v1", "ReplicaSet", "replicasets", &["rs"]),
    known("apps/v1", "StatefulSet", "statefulsets", &["sts"]),
    known("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"]),
    known("batch/v1", "CronJob", "cronjobs", &["cj"]),
    known("batch/v1", "Job", "jobs", &[]),
    known("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", &["csr"]),
    known("coordination.k8s.io/v1", "Lease", "leases", &[]),
    known("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", &[]),
    known("events.k8s.io/v1", "Event", "events", &["ev"]),
    known("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", &[]),
    known("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", &[]),
    known("networking.k8s.io/v1", "Ingress", "ingresses", &["ing"]),
    known("networking.k8s.io/v1", "IngressClass", "ingressclasses", &[]),
    known("networking.k8s.io/v1", "IPAddress", "ipaddresses", &["ip"]),
    known("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &["netpol"]),
    known("networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", &[]),
    known("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", &[]),
    known("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"]),
    known("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &[]),
    known("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", &[]),
    known("rbac.authorization.k8s.io/v1", "Role", "roles", &[]),
    known("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &[]),
    known("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &["pc"]),
    known("storage.k8s.io/v1", "CSIDriver", "csidrivers", &[]),
    known("storage.k8s.io/v1", "CSINode", "csinodes", &[]),
    known("storage.k8s.io/v1", "StorageClass", "storageclasses", &["sc"]),
    known("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", &[]),
];

fn named(word: &str) -> impl Iterator<Item = &'static Known> {
    let word = word.to_ascii_lowercase();
    KINDS.iter().filter(move |known| {
        known.kind.to_ascii_lowercase() == word || known.plural == word || known.short.contains(&word.as_str())
    })
}

/// API version and kind of a word.
pub(super) fn preferred(word: &str) -> Option<(&'static str, &'static str)> {
    named(word).next().map(|known| (known.api_version, known.kind))
}

/// The kind of a word in a version of a group; the word itself if that is nothing of Kubernetes.
pub(super) fn in_version<'w>(api_version: &str, word: &'w str) -> &'w str {
    let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let wanted = group(api_version);
    named(word).find(|known| group(known.api_version) == wanted).map_or(word, |known| known.kind)
}
