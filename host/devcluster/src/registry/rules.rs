//! Rules of updates, as pure functions: what an endpoint may change, when the generation counts, when deletion is done.

use serde_json::{Value, json};

use crate::{
    builtin,
    catalog::Resource,
    json::{at, copy, int, list, remove, same, set},
    status::ApiError,
};

/// The bound of etcd on one request (`--max-request-bytes`).
const STORED_BYTES_MAX: usize = 3 * 512 * 1024;

/// Refuses what a real store would not take. Secrets are stored without their base64.
pub(super) fn check_size(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let mut counter = Counter(0);
    // A document always can be written, and counting cannot fail.
    if serde_json::to_writer(&mut counter, object).is_err() {
        return Ok(());
    }
    let mut bytes = counter.0;
    if resource.is("", "Secret") {
        let encoded = object.get("data").and_then(Value::as_object).into_iter().flatten();
        bytes = bytes.saturating_sub(encoded.filter_map(|(_, value)| value.as_str()).map(str::len).sum());
        bytes += builtin::data_bytes("Secret", object);
    }
    if bytes > STORED_BYTES_MAX {
        return Err(ApiError::new(500, "", "etcdserver: request is too large"));
    }
    Ok(())
}

/// Counts what is written to it.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Kinds that a PUT may create.
pub(super) fn creates_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("coordination.k8s.io", "Lease")
            | ("", "Endpoints" | "Event" | "LimitRange" | "Service")
            | ("events.k8s.io", "Event")
            | ("coordination.k8s.io", "LeaseCandidate")
            | ("rbac.authorization.k8s.io", _)
            | ("node.k8s.io", _)
    ) && resource.custom.is_none()
}

pub(super) fn has_generation(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(resource.group.as_str(), "apps" | "batch" | "policy" | "networking.k8s.io" | "autoscaling")
        || matches!(
            resource.group.as_str(),
            "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "discovery.k8s.io"
        )
        || resource.is("", "Pod")
        || resource.is("", "ReplicationController")
}

/// Fields that an endpoint does not write.
pub(super) fn reset_fields(resource: &Resource, subresource: &str) -> &'static [&'static [&'static str]] {
    match subresource {
        "status" if resource.custom.is_some() => &[&["f:spec"], &["f:metadata"]],
        "status" if keeps_labels(resource) => &[&["f:spec"], &["f:metadata", "f:labels"]],
        "status" => &[&["f:spec"]],
        "" if resource.has_status() => &[&["f:status"]],
        _ => &[],
    }
}

/// Kinds whose labels cannot be changed through their status.
fn keeps_labels(resource: &Resource) -> bool {
    resource.is("apps", "Deployment")
}

pub(super) fn keep_what_the_server_owns(old: &Value, new: &mut Value) {
    for field in ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        copy(old, new, &["metadata", field]);
    }
    remove(new, &["metadata", "selfLink"]);
}

/// Undoes what this endpoint may not change.
pub(super) fn restrict_to_endpoint(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    match subresource {
        "status" if resource.custom.is_none() && built_in_status(resource) => {
            copy(old, new, &["spec"]);
            if keeps_labels(resource) {
                copy(old, new, &["metadata", "labels"]);
            }
        }
        "status" => {
            let status = new.get("status").cloned();
            let version = at(new, &["metadata", "resourceVersion"]).cloned();
            *new = old.clone();
            match status {
                Some(status) => set(new, &["status"], status),
                None => {
                    remove(new, &["status"]);
                }
            }
            if let Some(version) = version {
                set(new, &["metadata", "resourceVersion"], version);
            }
        }
        "finalize" => {
            let finalizers = at(new, &["spec", "finalizers"]).cloned().unwrap_or_else(|| json!([]));
            *new = old.clone();
            set(new, &["spec", "finalizers"], finalizers);
        }
        "" if resource.has_status() => copy(old, new, &["status"]),
        _ => {}
    }
    if subresource.is_empty() && resource.is("", "Namespace") {
        copy(old, new, &["spec"]);
    }
}

/// Kinds whose metadata can be changed through their status.
fn built_in_status(resource: &Resource) -> bool {
    resource.is("apps", "Deployment") || resource.is("batch", "Job") || resource.is("", "Service")
}

pub(super) fn bump_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if !has_generation(resource) {
        return;
    }
    let essence = |object: &Value| {
        let mut object = object.clone();
        remove(&mut object, &["metadata"]);
        if resource.has_status() || resource.custom.is_none() {
            remove(&mut object, &["status"]);
        }
        object
    };
    // Deployments count their annotations, too.
    let annotations = |object: &Value| at(object, &["metadata", "annotations"]).cloned();
    let annotated = resource.is("apps", "Deployment") && annotations(old) != annotations(new);
    if annotated || !same(&essence(old), &essence(new)) {
        let generation = int(old, &["metadata", "generation"]).unwrap_or_default() + 1;
        set(new, &["metadata", "generation"], json!(generation));
    }
}

/// Whether deletion has nothing left to wait for.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let content = resource.is("", "Namespace") && !list(object, &["spec", "finalizers"]).is_empty();
    at(object, &["metadata", "deletionTimestamp"]).is_some()
        && list(object, &["metadata", "finalizers"]).is_empty()
        && int(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
        && !content
}
