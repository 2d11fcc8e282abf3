//! Validation across fields: what users run into, not all that a real server checks.

mod job_status;
mod pods;
mod service;
mod workloads;

use serde_json::{Value, json};

pub(crate) use service::externally_reachable;

use super::{check_required, immutable::immutable, metadata, names};
use crate::{
    catalog::Resource,
    json::{at, text},
    status::Cause,
};

/// The data of one ConfigMap or Secret.
const DATA_BYTES_MAX: usize = 1024 * 1024;

/// What is wrong with a new object of a built-in kind.
pub(crate) fn created(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::created(resource, object);
    content(resource, object, true, &mut causes);
    causes
}

/// What is wrong with an object of a built-in kind that is changed, in the order in which a real server says it.
pub(crate) fn updated(resource: &Resource, subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = metadata::updated(resource, old, new);
    if subresource == "status" {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("apps", "Deployment") => workloads::deployment_status(new, &mut causes),
            ("batch", "Job") => job_status::check(old, new, &mut causes),
            ("", "Service") => service::status(new, &mut causes),
            _ => {}
        }
        return causes;
    }
    let fixed = match subresource {
        "" | "scale" => immutable(&resource.group, &resource.kind, old, new),
        _ => Vec::new(),
    };
    if matches!(resource.group.as_str(), "apps" | "batch") && resource.kind != "ControllerRevision" {
        content(resource, new, false, &mut causes);
        causes.extend(fixed);
    } else {
        causes.extend(fixed);
        content(resource, new, false, &mut causes);
    }
    causes
}

/// Checks all but metadata.
fn content(resource: &Resource, object: &Value, creation: bool, causes: &mut Vec<Cause>) {
    let kind = resource.kind.as_str();
    match (resource.group.as_str(), kind) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::workload(kind, object, causes);
        }
        ("batch", "Job") => {
            workloads::job(object, creation, causes);
            if creation {
                workloads::name_for_indexes(object, causes);
            }
        }
        ("", "Pod") => pods::pod_spec(object.get("spec").unwrap_or(&Value::Null), Vec::new(), "spec", causes),
        ("", "Service") => service::service(object, causes),
        ("", "ConfigMap" | "Secret") => data(kind, object, causes),
        ("apiextensions.k8s.io", _) => causes.extend(crate::crd::validate(object)),
        _ => {}
    }
    // What the schema says, where nothing better is known.
    for cause in check_required(object, resource.root()) {
        if !causes.iter().any(|known| known.field == cause.field) {
            causes.push(cause);
        }
    }
}

/// How many bytes the data of a ConfigMap or a Secret has, without its keys and without their encoding.
pub(crate) fn data_bytes(kind: &str, object: &Value) -> usize {
    let sum = |field: &str, length: &dyn Fn(&str) -> usize| {
        let values = object.get(field).and_then(Value::as_object).into_iter().flatten();
        values.filter_map(|(_, value)| value.as_str()).map(length).sum::<usize>()
    };
    // Three bytes in four characters; what is no base64 is refused elsewhere.
    let decoded =
        |text: &str| (text.len() / 4 * 3).saturating_sub(text.bytes().rev().take_while(|b| *b == b'=').count());
    let plain = |text: &str| text.len();
    let data = if kind == "Secret" { sum("data", &decoded) } else { sum("data", &plain) };
    data + sum("binaryData", &decoded)
}

fn data(kind: &str, object: &Value, causes: &mut Vec<Cause>) {
    let binary = at(object, &["binaryData"]).and_then(Value::as_object);
    for field in ["data", "binaryData"] {
        for (key, _) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
            let at_key = format!("{field}[{key}]");
            pods::problems(&at_key, &json!(key), &names::data_key(key), causes);
            if field == "data" && binary.is_some_and(|binary| binary.contains_key(key)) {
                causes.push(Cause::invalid(at_key, &json!(key), "duplicate of key present in binaryData"));
            }
        }
    }
    if data_bytes(kind, object) > DATA_BYTES_MAX {
        let message = format!("Too long: may not be more than {DATA_BYTES_MAX} bytes");
        // A real server names no field of a ConfigMap.
        let field = if kind == "Secret" { "data" } else { "[]" };
        causes.push(Cause { reason: "FieldValueTooLong", message, field: field.to_owned() });
    }
    if kind == "Secret" {
        secret_type(object, causes);
    }
}

/// Keys that a Secret of a well-known type must have.
fn secret_type(object: &Value, causes: &mut Vec<Cause>) {
    let keys: &[&str] = match text(object, &["type"]) {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in keys {
        if at(object, &["data", key]).is_none() {
            causes.push(Cause::required(format!("data[{key}]"), ""));
        }
    }
}
