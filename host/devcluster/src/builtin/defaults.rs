//! The defaults that Go code of a real server sets. A table per kind, applied only where nothing is given.

use base64::Engine;
use serde_json::{Value, json};

use crate::json::{at, copy, default, int, list, object, remove, set, text};

/// Sets the defaults of a built-in object.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod_spec(object, &["spec"]),
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
        ("batch", "Job") => job(object, &["spec"]),
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

fn job(object: &mut Value, spec: &[&str]) {
    let path = |key: &'static str| [spec, &[key]].concat();
    default(object, &path("completionMode"), json!("NonIndexed"));
    default(object, &path("suspend"), json!(false));
    default(object, &path("backoffLimit"), json!(6));
    default(object, &path("parallelism"), json!(1));
    default(object, &path("podReplacementPolicy"), json!("TerminatingOrFailed"));
    if at(object, &path("completions")).is_none() && int(object, &path("parallelism")) == Some(1) {
        default(object, &path("completions"), json!(1));
    }
    pod_spec(object, &[spec, &["template", "spec"]].concat());
    // The selector and the labels of the Pods come from the uid, which is known only when the object is created.
    let uid = text(object, &["metadata", "uid"]).to_owned();
    let name = text(object, &["metadata", "name"]).to_owned();
    let manual = at(object, &path("manualSelector")) == Some(&Value::Bool(true));
    if !uid.is_empty() && !manual {
        let labels = [spec, &["template", "metadata", "labels"]].concat();
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            default(object, &[labels.as_slice(), &[key]].concat(), json!(value));
        }
        default(object, &path("selector"), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
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
    let (limits, mut requests) = (at(container, &["resources", "limits"]).cloned(), json!({}));
    for (key, value) in limits.as_ref().and_then(Value::as_object).into_iter().flatten() {
        if at(container, &["resources", "requests", key]).is_none() {
            set(&mut requests, &[key], value.clone());
        }
    }
    for (key, value) in object(&mut requests).clone() {
        set(container, &["resources", "requests", &key], value);
    }
}

fn service(object: &mut Value) {
    default(object, &["spec", "type"], json!("ClusterIP"));
    default(object, &["spec", "sessionAffinity"], json!("None"));
    let kind = text(object, &["spec", "type"]).to_owned();
    let ports = object.get_mut("spec").and_then(|spec| spec.get_mut("ports"));
    for port in ports.and_then(Value::as_array_mut).into_iter().flatten() {
        default(port, &["protocol"], json!("TCP"));
        let number = port.get("port").cloned();
        if let (Some(number), true) = (number, kind != "ExternalName") {
            default(port, &["targetPort"], number);
        }
    }
    if kind != "ExternalName" {
        default(object, &["spec", "internalTrafficPolicy"], json!("Cluster"));
        default(object, &["spec", "ipFamilies"], json!(["IPv4"]));
        default(object, &["spec", "ipFamilyPolicy"], json!("SingleStack"));
    }
    if kind == "LoadBalancer" || kind == "NodePort" {
        default(object, &["spec", "externalTrafficPolicy"], json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(object, &["spec", "allocateLoadBalancerNodePorts"], json!(true));
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

/// Fields that the server gave to a Service and that an update may leave out.
pub(super) fn keep_allocated(old: &Value, new: &mut Value) {
    let external = |service: &Value| text(service, &["spec", "type"]) == "ExternalName";
    if external(new) || external(old) {
        return;
    }
    for field in ["clusterIP", "clusterIPs"] {
        if at(new, &["spec", field]).is_none() {
            copy(old, new, &["spec", field]);
        }
    }
    let old_ports = list(old, &["spec", "ports"]).to_vec();
    if !matches!(text(new, &["spec", "type"]), "NodePort" | "LoadBalancer") {
        return;
    }
    let ports = new.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        let before = old_ports
            .iter()
            .find(|old| old.get("port") == port.get("port") && old.get("protocol") == port.get("protocol"));
        if let Some(number) = before.and_then(|old| old.get("nodePort")) {
            default(port, &["nodePort"], number.clone());
        }
    }
}
