//! Validation across fields: what users run into, not all that a real server checks.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    json::{at, int, list, text},
    selector::{is_label_key, is_label_value, label_selector_matches},
    status::Cause,
};

/// Bytes of a DNS label.
const LABEL_MAX: usize = 63;
/// Bytes of a DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;

/// All annotations of one object together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// The data of one ConfigMap or Secret.
const DATA_BYTES_MAX: usize = 1024 * 1024;

fn is_dns_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() <= LABEL_MAX && is_part(name)
}

/// A part of a subdomain: the API server bounds the whole, and not its parts.
fn is_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && edge(bytes.first())
        && edge(bytes.last())
}

/// Checks `metadata`: name, labels, annotations, owner references, finalizers.
pub(crate) fn metadata(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(object, &["metadata", "name"]);
    let bad = |why: &str| Cause::invalid("metadata.name", &json!(name), why);
    let label = resource.is("", "Namespace") || resource.is("", "Service");
    if resource.group == "rbac.authorization.k8s.io" {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '%']) {
            causes.push(bad("may not be empty, '.', '..' or contain '/' or '%'"));
        }
    } else if label {
        let letter_first = !resource.is("", "Service") || name.starts_with(|c: char| c.is_ascii_lowercase());
        if name.len() > LABEL_MAX {
            causes.push(bad(&format!("must be no more than {LABEL_MAX} bytes")));
        }
        if !is_part(name) || !letter_first {
            let rule = if resource.is("", "Service") { "a DNS-1035 label" } else { "a lowercase RFC 1123 label" };
            causes.push(bad(&format!(
                "{rule} must consist of lower case alphanumeric characters or '-', and must start and end with an \
                 alphanumeric character"
            )));
        }
    } else if name.len() > SUBDOMAIN_MAX {
        causes.push(bad(&format!("must be no more than {SUBDOMAIN_MAX} bytes")));
    } else if !name.split('.').all(is_part) {
        causes.push(bad(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
        ));
    }
    for (key, value) in at(object, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten() {
        if !is_label_key(key) {
            causes.push(Cause::invalid("metadata.labels", &json!(key), "name part must be a valid label name"));
        }
        if !value.as_str().is_some_and(is_label_value) {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                       and must start and end with an alphanumeric character";
            causes.push(Cause::invalid("metadata.labels", value, why));
        }
    }
    let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
    let bytes = annotations.into_iter().flatten().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum::<usize>();
    if bytes > ANNOTATIONS_BYTES_MAX {
        let message = format!("Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes");
        causes.push(Cause { reason: "FieldValueTooLong", message, field: "metadata.annotations".to_owned() });
    }
    let owners = list(object, &["metadata", "ownerReferences"]);
    for (index, owner) in owners.iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[field]).is_empty() {
                causes.push(Cause::required(format!("metadata.ownerReferences[{index}].{field}"), "must not be empty"));
            }
        }
    }
    if owners.iter().filter(|owner| owner.get("controller") == Some(&Value::Bool(true))).count() > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &json!(owners.len()), why));
    }
    for (index, finalizer) in list(object, &["metadata", "finalizers"]).iter().enumerate() {
        if !finalizer.as_str().is_some_and(is_label_key) {
            let field = format!("metadata.finalizers[{index}]");
            causes.push(Cause::invalid(field, finalizer, "name part must be a valid label name"));
        }
    }
    causes
}

/// Checks a built-in object as a whole.
pub(crate) fn spec(group: &str, kind: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            selector_of_template(object, &mut causes);
            pod_spec(object, &["spec", "template", "spec"], &mut causes);
            if int(object, &["spec", "replicas"]).is_some_and(|n| n < 0) {
                let value = at(object, &["spec", "replicas"]).cloned().unwrap_or_default();
                causes.push(Cause::invalid("spec.replicas", &value, "must be greater than or equal to 0"));
            }
            let policy = text(object, &["spec", "template", "spec", "restartPolicy"]);
            if !policy.is_empty() && policy != "Always" {
                let field = "spec.template.spec.restartPolicy";
                causes.push(Cause::not_supported(field, &json!(policy), &[json!("Always")]));
            }
        }
        ("batch", "Job") => {
            pod_spec(object, &["spec", "template", "spec"], &mut causes);
            let policy = text(object, &["spec", "template", "spec", "restartPolicy"]);
            if !matches!(policy, "Never" | "OnFailure") {
                let allowed = [json!("OnFailure"), json!("Never")];
                let cause = Cause::not_supported("spec.template.spec.restartPolicy", &json!(policy), &allowed);
                causes.push(Cause {
                    reason: "FieldValueRequired",
                    message: format!("Required value: valid values: {}", "\"OnFailure\", \"Never\""),
                    ..cause
                });
            }
        }
        ("", "Pod") => pod_spec(object, &["spec"], &mut causes),
        ("", "Service") => service(object, &mut causes),
        ("", "ConfigMap" | "Secret") => {
            if data_bytes(kind, object) > DATA_BYTES_MAX {
                let message = format!("Too long: may not be more than {DATA_BYTES_MAX} bytes");
                // A real server names no field of a ConfigMap.
                let field = if kind == "Secret" { "data" } else { "[]" };
                causes.push(Cause { reason: "FieldValueTooLong", message, field: field.to_owned() });
            }
            secret_data(kind, object, &mut causes);
        }
        ("apiextensions.k8s.io", _) => causes.extend(crate::crd::validate(object)),
        _ => {}
    }
    causes
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

fn secret_data(kind: &str, object: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
        let good_key = !key.is_empty()
            && key.len() <= 253
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !good_key {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            causes.push(Cause::invalid(format!("data[{key}]"), &json!(key), why));
        }
        let decoded =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value.as_str().unwrap_or_default());
        if kind == "Secret" && decoded.is_err() {
            // The value itself stays out of the message: it is a secret, if a badly written one.
            causes.push(Cause::invalid(format!("data[{key}]"), &json!("<redacted>"), "must be base64"));
        }
    }
}

fn selector_of_template(object: &Value, causes: &mut Vec<Cause>) {
    let Some(selector) = at(object, &["spec", "selector"]) else { return };
    let empty = list(selector, &["matchExpressions"]).is_empty()
        && selector.get("matchLabels").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    if empty {
        let why = "empty selector is invalid for deployment";
        causes.push(Cause::invalid("spec.selector", selector, why));
        return;
    }
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    if !label_selector_matches(selector, &template) {
        let labels = at(&template, &["metadata", "labels"]).cloned().unwrap_or_default();
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", &labels, why));
    }
}

fn pod_spec(object: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    let Some(spec) = at(object, path) else { return };
    let at_path = path.join(".");
    if list(spec, &["containers"]).is_empty() {
        causes.push(Cause::required(format!("{at_path}.containers"), ""));
    }
    // A StatefulSet brings volumes of its own: one for each of its claim templates.
    let claims = list(object, &["spec", "volumeClaimTemplates"]).iter().map(|v| text(v, &["metadata", "name"]));
    let volumes = list(spec, &["volumes"]).iter().map(|v| text(v, &["name"])).chain(claims).collect::<HashSet<_>>();
    let mut names = HashSet::new();
    for field in ["initContainers", "containers"] {
        for (index, container) in list(spec, &[field]).iter().enumerate() {
            let name = text(container, &["name"]);
            let at_container = format!("{at_path}.{field}[{index}]");
            if !name.is_empty() && !names.insert(name) {
                causes.push(Cause::duplicate(format!("{at_container}.name"), &json!(name)));
            }
            if !name.is_empty() && !is_dns_label(name) {
                let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'";
                causes.push(Cause::invalid(format!("{at_container}.name"), &json!(name), why));
            }
            if text(container, &["image"]).is_empty() {
                causes.push(Cause::required(format!("{at_container}.image"), ""));
            }
            for (place, mount) in list(container, &["volumeMounts"]).iter().enumerate() {
                let volume = text(mount, &["name"]);
                if !volumes.contains(volume) {
                    let field = format!("{at_container}.volumeMounts[{place}].name");
                    let message = format!("Not found: {volume:?}");
                    causes.push(Cause { reason: "FieldValueNotFound", message, field });
                }
            }
        }
    }
}

fn service(object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(object, &["spec", "type"]);
    let headless = text(object, &["spec", "clusterIP"]) == "None";
    let ports = list(object, &["spec", "ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(object, &["spec", "externalName"]).is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let number = int(port, &["port"]).unwrap_or_default();
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(format!("spec.ports[{index}].port"), &json!(number), why));
        }
        let name = text(port, &["name"]);
        if ports.len() > 1 && name.is_empty() {
            causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
        } else if !name.is_empty() && !seen.insert(name) {
            causes.push(Cause::duplicate(format!("spec.ports[{index}].name"), &json!(name)));
        }
    }
}
