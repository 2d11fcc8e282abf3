//! Templates of Pods.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{
    builtin::{
        metadata::{annotations, labels},
        names, quantity,
    },
    json::{at, int, list, text},
    status::Cause,
};

/// Resources of which a node may promise more than it has.
const OVERCOMMITTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Where a volume can come from, in the order in which a real server looks.
const VOLUME_SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Adds a cause for each problem.
pub(super) fn problems(field: &str, value: &Value, problems: &[String], causes: &mut Vec<Cause>) {
    causes.extend(problems.iter().map(|problem| Cause::invalid(field, value, problem)));
}

/// Refuses a number below zero; absent ones are fine.
pub(super) fn not_negative(object: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    if let Some(number) = int(object, path).filter(|number| *number < 0) {
        causes.push(Cause::invalid(path.join("."), &json!(number), "must be greater than or equal to 0"));
    }
}

/// A template, whose field is given.
pub(super) fn template(object: &Value, template: &Value, field: &str, causes: &mut Vec<Cause>) {
    labels(at(template, &["metadata", "labels"]), &format!("{field}.labels"), causes);
    annotations(at(template, &["metadata", "annotations"]), &format!("{field}.annotations"), causes);
    let claims = list(object, &["spec", "volumeClaimTemplates"]).iter().map(|v| text(v, &["metadata", "name"]));
    pod_spec(template.get("spec").unwrap_or(&Value::Null), claims.collect(), &format!("{field}.spec"), causes);
}

/// A specification of Pods. `claims` are volumes that something else brings.
pub(super) fn pod_spec(spec: &Value, claims: Vec<&str>, field: &str, causes: &mut Vec<Cause>) {
    let mut volumes = HashSet::new();
    for (index, volume) in list(spec, &["volumes"]).iter().enumerate() {
        let at_volume = format!("{field}.volumes[{index}]");
        let right = causes.len();
        let given = VOLUME_SOURCES.iter().filter(|source| volume.get(**source).is_some());
        causes.extend(given.skip(1).map(|source| {
            Cause::forbidden(format!("{at_volume}.{source}"), "may not specify more than 1 volume type")
        }));
        for (kind, name) in [("configMap", "name"), ("secret", "secretName"), ("persistentVolumeClaim", "claimName")] {
            if volume.get(kind).is_some_and(|source| text(source, &[name]).is_empty()) {
                causes.push(Cause::required(format!("{at_volume}.{kind}.{name}"), ""));
            }
        }
        let name = text(volume, &["name"]);
        label_name(name, &format!("{at_volume}.name"), causes);
        if volumes.contains(name) {
            causes.push(Cause::duplicate(format!("{at_volume}.name"), &json!(name)));
        }
        // One that is not right is not there to be mounted.
        if causes.len() == right {
            volumes.insert(name);
        }
    }
    volumes.extend(claims);
    if list(spec, &["containers"]).is_empty() {
        causes.push(Cause::required(format!("{field}.containers"), ""));
    }
    let mut used = HashSet::new();
    for group in ["containers", "initContainers"] {
        for (index, item) in list(spec, &[group]).iter().enumerate() {
            let at_container = format!("{field}.{group}[{index}]");
            container(item, &volumes, &at_container, causes);
            let name = text(item, &["name"]);
            if !used.insert(name) {
                causes.push(Cause::duplicate(format!("{at_container}.name"), &json!(name)));
            }
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                for handler in ["httpGet", "tcpSocket"] {
                    if let Some(action) = at(item, &[probe, handler]).filter(|it| it.is_object()) {
                        port(action.get("port"), &format!("{at_container}.{probe}.{handler}.port"), causes);
                    }
                }
            }
        }
    }
    let policy = text(spec, &["restartPolicy"]);
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let allowed = [json!("Always"), json!("OnFailure"), json!("Never")];
        let at_policy = format!("{field}.restartPolicy");
        causes.push(match policy {
            "" => Cause::required(at_policy, ""),
            other => Cause::not_supported(at_policy, &json!(other), &allowed),
        });
    }
    labels(spec.get("nodeSelector"), &format!("{field}.nodeSelector"), causes);
    let account = text(spec, &["serviceAccountName"]);
    if !account.is_empty() {
        problems(&format!("{field}.serviceAccountName"), &json!(account), &names::dns_name(account), causes);
    }
}

fn label_name(name: &str, field: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
    } else {
        problems(field, &json!(name), &names::dns_label(name), causes);
    }
}

fn container(container: &Value, volumes: &HashSet<&str>, field: &str, causes: &mut Vec<Cause>) {
    label_name(text(container, &["name"]), &format!("{field}.name"), causes);
    if text(container, &["image"]).is_empty() {
        causes.push(Cause::required(format!("{field}.image"), ""));
    }
    let mut port_names = HashSet::new();
    for (index, port) in list(container, &["ports"]).iter().enumerate() {
        let at_port = format!("{field}.ports[{index}]");
        let name = text(port, &["name"]);
        if !name.is_empty() {
            let bad = names::port_name(name);
            if bad.is_empty() && !port_names.insert(name) {
                causes.push(Cause::duplicate(format!("{at_port}.name"), &json!(name)));
            }
            problems(&format!("{at_port}.name"), &json!(name), &bad, causes);
        }
        match int(port, &["containerPort"]).unwrap_or_default() {
            0 => causes.push(Cause::required(format!("{at_port}.containerPort"), "")),
            number => {
                let at_number = format!("{at_port}.containerPort");
                problems(&at_number, &json!(number), &names::port_number(number), causes);
            }
        }
        protocol(port, &at_port, causes);
    }
    for (index, variable) in list(container, &["env"]).iter().enumerate() {
        let at_variable = format!("{field}.env[{index}]");
        let name = text(variable, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at_variable}.name"), ""));
        } else if !name.bytes().all(|b| (b == b' ' || b.is_ascii_graphic()) && b != b'=') {
            let why =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            causes.push(Cause::invalid(format!("{at_variable}.name"), &json!(name), why));
        }
        let sources = variable.get("valueFrom").and_then(Value::as_object);
        if sources.is_some_and(|sources| !sources.is_empty()) && !text(variable, &["value"]).is_empty() {
            let why = "may not be specified when `value` is not empty";
            causes.push(Cause::invalid(format!("{at_variable}.valueFrom"), &json!(""), why));
        }
    }
    let mut places = HashSet::new();
    for (index, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
        let at_mount = format!("{field}.volumeMounts[{index}]");
        let (volume, place) = (text(mount, &["name"]), text(mount, &["mountPath"]));
        if volume.is_empty() {
            causes.push(Cause::required(format!("{at_mount}.name"), ""));
        }
        if !volumes.contains(volume) {
            let message = format!("Not found: {volume:?}");
            let field = format!("{at_mount}.name");
            causes.push(Cause { reason: "FieldValueNotFound", message, field });
        }
        if place.is_empty() {
            causes.push(Cause::required(format!("{at_mount}.mountPath"), ""));
        }
        if !places.insert(place) {
            causes.push(Cause::invalid(format!("{at_mount}.mountPath"), &json!(place), "must be unique"));
        }
    }
    let policy = text(container, &["imagePullPolicy"]);
    if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
        let allowed = [json!("Always"), json!("IfNotPresent"), json!("Never")];
        causes.push(Cause::not_supported(format!("{field}.imagePullPolicy"), &json!(policy), &allowed));
    }
    resources(container, &format!("{field}.resources"), causes);
}

fn resources(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    let amounts = |kind: &str| {
        let map = at(container, &["resources", kind]).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(name, amount)| Some((name, amount.as_str()?)))
    };
    for kind in ["limits", "requests"] {
        for (name, amount) in amounts(kind) {
            if quantity::nanos(amount).is_some_and(|size| size < 0) {
                let why = "must be greater than or equal to 0";
                causes.push(Cause::invalid(format!("{field}.{kind}[{name}]"), &json!(amount), why));
            }
            let limit = at(container, &["resources", "limits", name]).and_then(Value::as_str);
            if kind == "limits" {
                continue;
            }
            let free = OVERCOMMITTED.contains(&name.as_str());
            match (limit, quantity::nanos(amount), limit.and_then(quantity::nanos)) {
                (None, ..) if !free => {
                    let why = "Limit must be set for non overcommitable resources";
                    causes.push(Cause::required(format!("{field}.limits"), why));
                }
                (Some(limit), Some(wanted), Some(most)) if wanted > most || (!free && wanted != most) => {
                    let bound = if free { "less than or equal to" } else { "equal to" };
                    let why = format!("must be {bound} {name} limit of {limit}");
                    causes.push(Cause::invalid(format!("{field}.requests"), &json!(amount), &why));
                }
                _ => {}
            }
        }
    }
}

/// The protocol of a port.
pub(super) fn protocol(port: &Value, field: &str, causes: &mut Vec<Cause>) {
    let protocol = text(port, &["protocol"]);
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        let allowed = [json!("SCTP"), json!("TCP"), json!("UDP")];
        causes.push(Cause::not_supported(format!("{field}.protocol"), &json!(protocol), &allowed));
    }
}

/// A port by its number or its name.
pub(super) fn port(port: Option<&Value>, field: &str, causes: &mut Vec<Cause>) {
    match port {
        Some(Value::String(name)) => problems(field, &json!(name), &names::port_name(name), causes),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or_default();
            problems(field, &json!(number), &names::port_number(number), causes);
        }
    }
}
