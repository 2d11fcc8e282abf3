//! The defaults that Go code of a real server sets. A table per kind, applied only where nothing is given.

use base64::Engine;
use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    json::{at, default, list, remove, set, text},
};

/// Parts that objects of a kind always have, as those of the server's own types, and lists that are null there.
pub(crate) fn parts(
    group: &str,
    kind: &str,
) -> (&'static [&'static [&'static str]], &'static [&'static [&'static str]]) {
    const TEMPLATE: [&[&str]; 4] =
        [&["spec"], &["spec", "template"], &["spec", "template", "metadata"], &["spec", "template", "spec"]];
    const CONTAINERS: &[&[&str]] = &[&["spec", "selector"], &["spec", "template", "spec", "containers"]];
    match (group, kind) {
        ("apps", "Deployment") => {
            const PARTS: [&[&str]; 6] =
                [TEMPLATE[0], TEMPLATE[1], TEMPLATE[2], TEMPLATE[3], &["spec", "strategy"], &["status"]];
            (&PARTS, CONTAINERS)
        }
        ("apps", "ReplicaSet" | "DaemonSet" | "StatefulSet") => (&TEMPLATE, CONTAINERS),
        ("batch", "Job") => {
            const PARTS: [&[&str]; 5] = [TEMPLATE[0], TEMPLATE[1], TEMPLATE[2], TEMPLATE[3], &["status"]];
            (&PARTS, &[&["spec", "template", "spec", "containers"]])
        }
        ("", "Service") => (&[&["spec"], &["status"], &["status", "loadBalancer"]], &[]),
        ("", "Pod") => (&[], &[&["spec", "containers"]]),
        _ => (&[], &[]),
    }
}

/// Sets the defaults of a built-in object.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    for part in parts(group, kind).0 {
        default(object, part, json!({}));
    }
    match (group, kind) {
        ("", "Pod") => {
            pod_spec(object, &["spec"]);
            requests_from_limits(object);
        }
        ("", "PodTemplate") => pod_spec(object, &["template", "spec"]),
        ("", "ReplicationController") => {
            default(object, &["spec", "replicas"], json!(1));
            pod_spec(object, &["spec", "template", "spec"]);
        }
        ("apps", "Deployment") => deployment(object),
        ("apps", "ReplicaSet") => {
            default(object, &["spec", "replicas"], json!(1));
            pod_spec(object, &["spec", "template", "spec"]);
        }
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => {
            default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
            if text(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
                default(object, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"], json!(1));
                default(object, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], json!(0));
            }
            default(object, &["spec", "revisionHistoryLimit"], json!(10));
            pod_spec(object, &["spec", "template", "spec"]);
        }
        ("batch", "Job") => job(object),
        ("batch", "CronJob") => {
            default(object, &["spec", "concurrencyPolicy"], json!("Allow"));
            default(object, &["spec", "suspend"], json!(false));
            default(object, &["spec", "successfulJobsHistoryLimit"], json!(3));
            default(object, &["spec", "failedJobsHistoryLimit"], json!(1));
            pod_spec(object, &["spec", "jobTemplate", "spec", "template", "spec"]);
        }
        ("", "Service") => service(object),
        ("", "Secret") => secret(object),
        ("", "PersistentVolumeClaim") => default(object, &["spec", "volumeMode"], json!("Filesystem")),
        ("", "PersistentVolume") => {
            default(object, &["spec", "volumeMode"], json!("Filesystem"));
            default(object, &["spec", "persistentVolumeReclaimPolicy"], json!("Retain"));
            default(object, &["status", "phase"], json!("Pending"));
        }
        ("", "Namespace") => {
            let name = text(object, &["metadata", "name"]).to_owned();
            if !name.is_empty() {
                default(object, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
            }
            default(object, &["status", "phase"], json!("Active"));
        }
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("autoscaling", "HorizontalPodAutoscaler") => default(object, &["spec", "minReplicas"], json!(1)),
        ("storage.k8s.io", "StorageClass") => {
            default(object, &["reclaimPolicy"], json!("Delete"));
            default(object, &["volumeBindingMode"], json!("Immediate"));
        }
        ("scheduling.k8s.io", "PriorityClass") => default(object, &["preemptionPolicy"], json!("PreemptLowerPriority")),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crate::crd::default(object),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            webhooks(object);
        }
        _ => {}
    }
}

fn deployment(object: &mut Value) {
    default(object, &["spec", "replicas"], json!(1));
    default(object, &["spec", "strategy", "type"], json!("RollingUpdate"));
    if text(object, &["spec", "strategy", "type"]) == "RollingUpdate" {
        default(object, &["spec", "strategy", "rollingUpdate", "maxUnavailable"], json!("25%"));
        default(object, &["spec", "strategy", "rollingUpdate", "maxSurge"], json!("25%"));
    }
    default(object, &["spec", "revisionHistoryLimit"], json!(10));
    default(object, &["spec", "progressDeadlineSeconds"], json!(600));
    pod_spec(object, &["spec", "template", "spec"]);
}

fn stateful_set(object: &mut Value) {
    default(object, &["spec", "replicas"], json!(1));
    default(object, &["spec", "podManagementPolicy"], json!("OrderedReady"));
    default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
    if text(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        default(object, &["spec", "updateStrategy", "rollingUpdate", "partition"], json!(0));
    }
    default(object, &["spec", "revisionHistoryLimit"], json!(10));
    default(object, &["spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"], json!("Retain"));
    default(object, &["spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"], json!("Retain"));
    let claims = object.get_mut("spec").and_then(|spec| spec.get_mut("volumeClaimTemplates"));
    for claim in claims.and_then(Value::as_array_mut).into_iter().flatten() {
        default(claim, &["apiVersion"], json!("v1"));
        default(claim, &["kind"], json!("PersistentVolumeClaim"));
        default(claim, &["spec", "volumeMode"], json!("Filesystem"));
        default(claim, &["status", "phase"], json!("Pending"));
    }
    pod_spec(object, &["spec", "template", "spec"]);
}

fn job(object: &mut Value) {
    let given = |object: &Value, field: &str| at(object, &["spec", field]).is_some_and(|it| !it.is_null());
    if !given(object, "completions") && !given(object, "parallelism") {
        set(object, &["spec", "completions"], json!(1));
    }
    default(object, &["spec", "parallelism"], json!(1));
    let limit = if given(object, "backoffLimitPerIndex") { i32::MAX } else { 6 };
    default(object, &["spec", "backoffLimit"], json!(limit));
    let labels = at(object, &["spec", "template", "metadata", "labels"]).cloned();
    let unlabelled =
        at(object, &["metadata", "labels"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    if let (Some(labels), true) = (labels, unlabelled) {
        set(object, &["metadata", "labels"], labels);
    }
    default(object, &["spec", "completionMode"], json!("NonIndexed"));
    default(object, &["spec", "suspend"], json!(false));
    default(object, &["spec", "manualSelector"], json!(false));
    let replace = if given(object, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default(object, &["spec", "podReplacementPolicy"], json!(replace));
    pod_spec(object, &["spec", "template", "spec"]);
}

/// The selector of a new Job and the labels of its Pods, which come from its uid.
///
/// `labelled` says whether the request gave the Job labels. One without takes those of its template, and in a real server
/// both are one map from then on, so that what is added to one is in the other.
pub(crate) fn generate_selector(job: &mut Value, labelled: bool) {
    if at(job, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    let uid = text(job, &["metadata", "uid"]).to_owned();
    let name = text(job, &["metadata", "name"]).to_owned();
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        default(job, &["spec", "template", "metadata", "labels", key], json!(value));
        if !labelled && at(job, &["metadata", "labels"]).is_some() {
            default(job, &["metadata", "labels", key], json!(value));
        }
    }
    label_job(job);
    default(job, &["spec", "selector", "matchLabels", "batch.kubernetes.io/controller-uid"], json!(uid));
}

/// Takes away what an object is given and never shows.
pub(crate) fn hide(resource: &Resource, object: &mut Value) {
    if resource.is("", "Service") && text(object, &["spec", "type"]) == "ExternalName" {
        remove(object, &["spec", "internalTrafficPolicy"]);
    }
}

/// A Job without labels has those of its template as soon as it is read.
pub(crate) fn label_job(job: &mut Value) {
    let labels = at(job, &["spec", "template", "metadata", "labels"]).cloned();
    if let (true, Some(labels)) = (at(job, &["metadata", "labels"]).is_none(), labels) {
        set(job, &["metadata", "labels"], labels);
    }
}

/// Of a Pod itself, though not of a template, the limits are what it asks for when it asks for nothing.
fn requests_from_limits(pod: &mut Value) {
    for group in ["containers", "initContainers"] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(group)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let limits = at(container, &["resources", "limits"]).and_then(Value::as_object).cloned();
            for (key, value) in limits.into_iter().flatten() {
                default(container, &["resources", "requests", &key], value);
            }
        }
    }
}

/// The defaults of a Pod's specification at a path; nothing when there is none.
fn pod_spec(object: &mut Value, path: &[&str]) {
    if at(object, path).is_none_or(|spec| !spec.is_object()) {
        return;
    }
    let spec_path = |key: &'static str| [path, &[key]].concat();
    default(object, &spec_path("restartPolicy"), json!("Always"));
    default(object, &spec_path("dnsPolicy"), json!("ClusterFirst"));
    default(object, &spec_path("schedulerName"), json!("default-scheduler"));
    default(object, &spec_path("terminationGracePeriodSeconds"), json!(30));
    default(object, &spec_path("securityContext"), json!({}));
    // Two names of one field: the old one follows.
    if let Some(account) = at(object, &spec_path("serviceAccountName")).cloned() {
        set(object, &spec_path("serviceAccount"), account);
    } else if let Some(account) = at(object, &spec_path("serviceAccount")).cloned() {
        set(object, &spec_path("serviceAccountName"), account);
    }
    let Some(spec) = path.iter().try_fold(object, |value, key| value.get_mut(*key)) else { return };
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            container_defaults(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        for (kind, field) in [
            ("configMap", "defaultMode"),
            ("secret", "defaultMode"),
            ("projected", "defaultMode"),
            ("downwardAPI", "defaultMode"),
        ] {
            if volume.get(kind).is_some_and(Value::is_object) {
                default(volume, &[kind, field], json!(420));
            }
        }
        if volume.get("hostPath").is_some_and(Value::is_object) {
            default(volume, &["hostPath", "type"], json!(""));
        }
        if volume.as_object().is_some_and(|map| map.len() == 1 && map.contains_key("name")) {
            set(volume, &["emptyDir"], json!({}));
        }
    }
}

/// The defaults of one container.
fn container_defaults(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let image = text(container, &["image"]).to_owned();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (name.ends_with(":latest") || !name.contains(':'));
    default(container, &["imagePullPolicy"], json!(if latest { "Always" } else { "IfNotPresent" }));
    default(container, &["terminationMessagePath"], json!("/dev/termination-log"));
    default(container, &["terminationMessagePolicy"], json!("File"));
    default(container, &["resources"], json!({}));
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        default(port, &["protocol"], json!("TCP"));
    }
    for item in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if at(item, &["valueFrom", "fieldRef"]).is_some_and(Value::is_object) {
            default(item, &["valueFrom", "fieldRef", "apiVersion"], json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !container.get(probe).is_some_and(Value::is_object) {
            continue;
        }
        for (key, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            default(container, &[probe, key], json!(value));
        }
        if at(container, &[probe, "httpGet"]).is_some_and(Value::is_object) {
            default(container, &[probe, "httpGet", "path"], json!("/"));
            default(container, &[probe, "httpGet", "scheme"], json!("HTTP"));
        }
    }
}

fn service(object: &mut Value) {
    default(object, &["spec", "type"], json!("ClusterIP"));
    default(object, &["spec", "sessionAffinity"], json!("None"));
    match text(object, &["spec", "sessionAffinity"]) {
        "None" => {
            remove(object, &["spec", "sessionAffinityConfig"]);
        }
        "ClientIP" => {
            default(object, &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"], json!(10800));
        }
        _ => {}
    }
    let kind = text(object, &["spec", "type"]).to_owned();
    let ports = object.get_mut("spec").and_then(|spec| spec.get_mut("ports"));
    for port in ports.and_then(Value::as_array_mut).into_iter().flatten() {
        default(port, &["protocol"], json!("TCP"));
        if at(port, &["targetPort"]).is_none_or(|target| matches!(target.as_str(), Some("")) || target == 0) {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            set(port, &["targetPort"], number);
        }
    }
    default(object, &["spec", "internalTrafficPolicy"], json!("Cluster"));
    if super::validation::externally_reachable(object) {
        default(object, &["spec", "externalTrafficPolicy"], json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(object, &["spec", "allocateLoadBalancerNodePorts"], json!(true));
        let status = object.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
        let ingress = status.and_then(|balancer| balancer.get_mut("ingress")).and_then(Value::as_array_mut);
        for entry in ingress.into_iter().flatten() {
            if !text(entry, &["ip"]).is_empty() {
                default(entry, &["ipMode"], json!("VIP"));
            }
        }
    }
}

fn secret(object: &mut Value) {
    default(object, &["type"], json!("Opaque"));
    let Some(plain) = remove(object, &["stringData"]) else { return };
    for (key, value) in plain.as_object().into_iter().flatten() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        set(object, &["data", key], json!(encoded));
    }
}

fn network_policy(object: &mut Value) {
    if at(object, &["spec"]).is_none() {
        return;
    }
    let mut types = vec!["Ingress"];
    if !list(object, &["spec", "egress"]).is_empty() {
        types.push("Egress");
    }
    default(object, &["spec", "policyTypes"], json!(types));
}

fn role_binding(object: &mut Value) {
    default(object, &["roleRef", "apiGroup"], json!("rbac.authorization.k8s.io"));
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, &["kind"]), "User" | "Group") {
            default(subject, &["apiGroup"], json!("rbac.authorization.k8s.io"));
        }
    }
}

fn webhooks(object: &mut Value) {
    for hook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        default(hook, &["failurePolicy"], json!("Fail"));
        default(hook, &["matchPolicy"], json!("Equivalent"));
        default(hook, &["timeoutSeconds"], json!(10));
        default(hook, &["namespaceSelector"], json!({}));
        default(hook, &["objectSelector"], json!({}));
        if at(hook, &["clientConfig", "service"]).is_some_and(Value::is_object) {
            default(hook, &["clientConfig", "service", "port"], json!(443));
        }
        let rules = hook.get_mut("rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            default(rule, &["scope"], json!("*"));
        }
    }
}
