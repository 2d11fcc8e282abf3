//! The columns of each kind, as the real server has them.

use serde_json::{Value, json};

use super::{cells::*, pods};
use crate::{
    catalog::Resource,
    json::{at, int, list, text},
};

type Cell = fn(&Value) -> Value;

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// Whether it is shown with `-o wide` only.
    pub(super) wide: bool,
    pub(super) cell: Cell,
}

const fn of(kind: &'static str, name: &'static str, cell: Cell) -> Column {
    Column { name, kind, wide: false, cell }
}

const fn column(name: &'static str, cell: Cell) -> Column {
    of("string", name, cell)
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", wide: true, cell }
}

fn default_class(object: &Value) -> String {
    let name = text(object, &["metadata", "name"]);
    let marked = text(object, &["metadata", "annotations", "storageclass.kubernetes.io/is-default-class"]) == "true";
    if marked { format!("{name} (default)") } else { name.to_owned() }
}

fn tokens(object: &Value) -> Value {
    let audiences = list(object, &["spec", "tokenRequests"]).iter().map(|it| text(it, &["audience"]));
    unset_if_empty(&audiences.collect::<Vec<_>>().join(","))
}

/// None for a kind that shows its name and its age only.
#[expect(clippy::too_many_lines, reason = "a table of tables")]
pub(super) fn columns(resource: &Resource) -> &'static [Column] {
    if resource.custom.is_some() {
        return &[];
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            const COLUMNS: &[Column] = &[
                column("Ready", pods::ready),
                column("Status", pods::status),
                column("Restarts", pods::restarts),
                column("Age", age),
                wide("IP", |o| none_if_empty(text(o, &["status", "podIP"]))),
                wide("Node", |o| none_if_empty(text(o, &["spec", "nodeName"]))),
                wide("Nominated Node", |o| none_if_empty(text(o, &["status", "nominatedNodeName"]))),
                wide("Readiness Gates", pods::gates),
            ];
            COLUMNS
        }
        ("", "PodTemplate") => {
            const COLUMNS: &[Column] = &[
                column("Containers", template_containers),
                column("Images", template_images),
                column("Pod Labels", template_labels),
            ];
            COLUMNS
        }
        ("", "Namespace") => {
            const COLUMNS: &[Column] =
                &[column("Status", |o| json!(text(o, &["status", "phase"]))), column("Age", age)];
            COLUMNS
        }
        ("", "ConfigMap") => {
            const COLUMNS: &[Column] = &[column("Data", data), column("Age", age)];
            COLUMNS
        }
        ("", "Secret") => {
            const COLUMNS: &[Column] =
                &[column("Type", |o| json!(text(o, &["type"]))), column("Data", data), column("Age", age)];
            COLUMNS
        }
        ("", "ServiceAccount") => {
            const COLUMNS: &[Column] = &[column("Age", age)];
            COLUMNS
        }
        ("", "Service") => {
            const COLUMNS: &[Column] = &[
                column("Type", |o| json!(text(o, &["spec", "type"]))),
                column("Cluster-IP", |o| none_if_empty(text(o, &["spec", "clusterIP"]))),
                column("External-IP", external_address),
                column("Port(s)", service_ports),
                column("Age", age),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("", "Node") => {
            const COLUMNS: &[Column] = &[
                column("Status", node_status),
                column("Roles", node_roles),
                column("Age", age),
                column("Version", |o| json!(text(o, &["status", "nodeInfo", "kubeletVersion"]))),
                wide("Internal-IP", |o| node_address(o, "InternalIP")),
                wide("External-IP", |o| node_address(o, "ExternalIP")),
                wide("OS-Image", |o| node_info(o, "osImage")),
                wide("Kernel-Version", |o| node_info(o, "kernelVersion")),
                wide("Container-Runtime", |o| node_info(o, "containerRuntimeVersion")),
            ];
            COLUMNS
        }
        ("", "Endpoints") => {
            const COLUMNS: &[Column] = &[column("Endpoints", endpoints), column("Age", age)];
            COLUMNS
        }
        ("" | "events.k8s.io", "Event") => {
            const COLUMNS: &[Column] = &[
                column("Last Seen", last_seen),
                column("Type", |o| json!(text(o, &["type"]))),
                column("Reason", |o| json!(text(o, &["reason"]))),
                column("Object", involved),
                wide("Subobject", subobject),
                wide("Source", event_source),
                column("Message", message),
                wide("First Seen", first_seen),
                wide("Count", event_count),
                wide("Name", |o| json!(text(o, &["metadata", "name"]))),
            ];
            COLUMNS
        }
        ("", "LimitRange") => {
            const COLUMNS: &[Column] = &[of("date", "Created At", created)];
            COLUMNS
        }
        ("", "ResourceQuota") => {
            const COLUMNS: &[Column] =
                &[column("Request", |o| quota(o, false)), column("Limit", |o| quota(o, true)), column("Age", age)];
            COLUMNS
        }
        ("", "PersistentVolumeClaim") => {
            const COLUMNS: &[Column] = &[
                column("Status", claim_status),
                column("Volume", |o| json!(text(o, &["spec", "volumeName"]))),
                column("Capacity", |o| json!(text(o, &["status", "capacity", "storage"]))),
                column("Access Modes", |o| access_modes(list(o, &["status", "accessModes"]))),
                column("StorageClass", |o| json!(text(o, &["spec", "storageClassName"]))),
                column("VolumeAttributesClass", |o| {
                    unset_if_empty(text(o, &["status", "currentVolumeAttributesClassName"]))
                }),
                column("Age", age),
                wide("VolumeMode", |o| unset_if_empty(text(o, &["spec", "volumeMode"]))),
            ];
            COLUMNS
        }
        ("", "PersistentVolume") => {
            const COLUMNS: &[Column] = &[
                column("Capacity", |o| json!(text(o, &["spec", "capacity", "storage"]))),
                column("Access Modes", |o| access_modes(list(o, &["spec", "accessModes"]))),
                column("Reclaim Policy", |o| json!(text(o, &["spec", "persistentVolumeReclaimPolicy"]))),
                column("Status", claim_status),
                column("Claim", claim_of),
                column("StorageClass", |o| json!(text(o, &["spec", "storageClassName"]))),
                column("VolumeAttributesClass", |o| unset_if_empty(text(o, &["spec", "volumeAttributesClassName"]))),
                column("Reason", |o| json!(text(o, &["status", "reason"]))),
                column("Age", age),
                wide("VolumeMode", |o| unset_if_empty(text(o, &["spec", "volumeMode"]))),
            ];
            COLUMNS
        }
        ("apps", "Deployment") => {
            const COLUMNS: &[Column] = &[
                column("Ready", ready_of),
                column("Up-to-date", |o| json!(count(o, &["status", "updatedReplicas"]).to_string())),
                column("Available", |o| json!(count(o, &["status", "availableReplicas"]).to_string())),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            const COLUMNS: &[Column] = &[
                of("integer", "Desired", |o| json!(count(o, &["spec", "replicas"]))),
                of("integer", "Current", |o| json!(count(o, &["status", "replicas"]))),
                of("integer", "Ready", |o| json!(count(o, &["status", "readyReplicas"]))),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("apps", "StatefulSet") => {
            const COLUMNS: &[Column] = &[
                column("Ready", ready_of),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
            ];
            COLUMNS
        }
        ("apps", "DaemonSet") => {
            const COLUMNS: &[Column] = &[
                of("integer", "Desired", |o| json!(count(o, &["status", "desiredNumberScheduled"]))),
                of("integer", "Current", |o| json!(count(o, &["status", "currentNumberScheduled"]))),
                of("integer", "Ready", |o| json!(count(o, &["status", "numberReady"]))),
                of("integer", "Up-to-date", |o| json!(count(o, &["status", "updatedNumberScheduled"]))),
                of("integer", "Available", |o| json!(count(o, &["status", "numberAvailable"]))),
                column("Node Selector", node_selector),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("apps", "ControllerRevision") => {
            const COLUMNS: &[Column] = &[
                column("Controller", controller),
                column("Revision", |o| json!(count(o, &["revision"]).to_string())),
                column("Age", age),
            ];
            COLUMNS
        }
        ("batch", "Job") => {
            const COLUMNS: &[Column] = &[
                column("Status", job_status),
                column("Completions", completions),
                column("Duration", duration),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("batch", "CronJob") => {
            const COLUMNS: &[Column] = &[
                column("Schedule", |o| json!(text(o, &["spec", "schedule"]))),
                column("Timezone", |o| none_if_empty(text(o, &["spec", "timeZone"]))),
                of("boolean", "Suspend", |o| truth(o, &["spec", "suspend"])),
                of("integer", "Active", |o| length(o, &["status", "active"])),
                column("Last Schedule", last_schedule),
                column("Age", age),
                wide("Containers", cron_containers),
                wide("Images", cron_images),
                wide("Selector", |_| json!("<none>")),
            ];
            COLUMNS
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            const COLUMNS: &[Column] = &[
                column("Reference", |o| {
                    json!(format!(
                        "{}/{}",
                        text(o, &["spec", "scaleTargetRef", "kind"]),
                        text(o, &["spec", "scaleTargetRef", "name"])
                    ))
                }),
                column("Targets", targets),
                column("MinPods", |o| match int(o, &["spec", "minReplicas"]) {
                    Some(least) => json!(least.to_string()),
                    None => json!("<unset>"),
                }),
                column("MaxPods", |o| json!(count(o, &["spec", "maxReplicas"]).to_string())),
                column("Replicas", |o| json!(count(o, &["status", "currentReplicas"]).to_string())),
                column("Age", age),
            ];
            COLUMNS
        }
        ("policy", "PodDisruptionBudget") => {
            const COLUMNS: &[Column] = &[
                column("Min Available", |o| amount(o, &["spec", "minAvailable"])),
                column("Max Unavailable", |o| amount(o, &["spec", "maxUnavailable"])),
                of("integer", "Allowed Disruptions", |o| json!(count(o, &["status", "disruptionsAllowed"]))),
                column("Age", age),
            ];
            COLUMNS
        }
        ("networking.k8s.io", "Ingress") => {
            const COLUMNS: &[Column] = &[
                column("Class", |o| none_if_empty(text(o, &["spec", "ingressClassName"]))),
                column("Hosts", hosts),
                column("Address", ingress_address),
                column("Ports", |o| json!(if list(o, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" })),
                column("Age", age),
            ];
            COLUMNS
        }
        ("networking.k8s.io", "IngressClass") => {
            const COLUMNS: &[Column] = &[
                column("Controller", |o| json!(text(o, &["spec", "controller"]))),
                column("Parameters", parameters),
                column("Age", age),
            ];
            COLUMNS
        }
        ("networking.k8s.io", "NetworkPolicy") => {
            const COLUMNS: &[Column] = &[column("Pod-Selector", pod_selector), column("Age", age)];
            COLUMNS
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            const COLUMNS: &[Column] = &[of("date", "Created At", created)];
            COLUMNS
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            const COLUMNS: &[Column] = &[
                column("Role", role_ref),
                column("Age", age),
                wide("Users", |o| subjects(o, "User")),
                wide("Groups", |o| subjects(o, "Group")),
                wide("ServiceAccounts", |o| subjects(o, "ServiceAccount")),
            ];
            COLUMNS
        }
        ("coordination.k8s.io", "Lease") => {
            const COLUMNS: &[Column] =
                &[column("Holder", |o| json!(text(o, &["spec", "holderIdentity"]))), column("Age", age)];
            COLUMNS
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            const COLUMNS: &[Column] = &[
                column("AddressType", |o| json!(text(o, &["addressType"]))),
                column("Ports", slice_ports),
                column("Endpoints", slice_endpoints),
                column("Age", age),
            ];
            COLUMNS
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            const COLUMNS: &[Column] = &[
                column("Scope", |o| json!(text(o, &["spec", "scope"]))),
                column("Versions", versions),
                of("date", "Created At", created),
                wide("Group", |o| json!(text(o, &["spec", "group"]))),
                wide("Kind", |o| json!(text(o, &["spec", "names", "kind"]))),
                wide("ShortNames", |o| words(o, &["spec", "names", "shortNames"])),
                Column { wide: true, ..of("boolean", "Established", |o| json!(is_true(o, "Established"))) },
            ];
            COLUMNS
        }
        ("apiregistration.k8s.io", "APIService") => {
            const COLUMNS: &[Column] =
                &[column("Service", api_service), column("Available", available), column("Age", age)];
            COLUMNS
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            const COLUMNS: &[Column] = &[of("integer", "Webhooks", |o| length(o, &["webhooks"])), column("Age", age)];
            COLUMNS
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            const COLUMNS: &[Column] = &[
                of("integer", "Validations", |o| length(o, &["spec", "validations"])),
                column("ParamKind", param_kind),
                column("Age", age),
            ];
            COLUMNS
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            const COLUMNS: &[Column] = &[
                column("PolicyName", |o| json!(text(o, &["spec", "policyName"]))),
                column("ParamRef", param_ref),
                column("Age", age),
            ];
            COLUMNS
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            const COLUMNS: &[Column] = &[
                of("integer", "Value", |o| json!(count(o, &["value"]))),
                of("boolean", "Global-Default", |o| json!(is_set(o, &["globalDefault"]))),
                column("Age", age),
                column("PreemptionPolicy", |o| json!(text(o, &["preemptionPolicy"]))),
            ];
            COLUMNS
        }
        ("node.k8s.io", "RuntimeClass") => {
            const COLUMNS: &[Column] = &[column("Handler", |o| json!(text(o, &["handler"]))), column("Age", age)];
            COLUMNS
        }
        ("storage.k8s.io", "StorageClass") => {
            const COLUMNS: &[Column] = &[
                column("Name", |o| json!(default_class(o))),
                column("Provisioner", |o| json!(text(o, &["provisioner"]))),
                column("ReclaimPolicy", |o| json!(text(o, &["reclaimPolicy"]))),
                column("VolumeBindingMode", |o| json!(text(o, &["volumeBindingMode"]))),
                column("AllowVolumeExpansion", |o| json!(is_set(o, &["allowVolumeExpansion"]).to_string())),
                column("Age", age),
            ];
            COLUMNS
        }
        ("storage.k8s.io", "CSIDriver") => {
            const COLUMNS: &[Column] = &[
                of("boolean", "AttachRequired", |o| {
                    json!(at(o, &["spec", "attachRequired"]) != Some(&Value::Bool(false)))
                }),
                of("boolean", "PodInfoOnMount", |o| json!(is_set(o, &["spec", "podInfoOnMount"]))),
                of("boolean", "StorageCapacity", |o| json!(is_set(o, &["spec", "storageCapacity"]))),
                column("TokenRequests", tokens),
                of("boolean", "RequiresRepublish", |o| json!(is_set(o, &["spec", "requiresRepublish"]))),
                column("Modes", |o| words(o, &["spec", "volumeLifecycleModes"])),
                column("Age", age),
            ];
            COLUMNS
        }
        _ => &[],
    }
}
