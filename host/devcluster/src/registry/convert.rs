//! Conversion between the versions of one kind.
//!
//! Custom kinds convert by name only (strategy None). Two built-in kinds are served in two shapes: HorizontalPodAutoscaler
//! (stored as v2) and Event (stored as core/v1).

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    crd::structural,
    json::{at, list, remove, set, text},
};

/// Turns an object of any version into the version of this resource.
pub(super) fn to(resource: &Resource, value: &mut Value) {
    to_version(resource, &resource.api_version(), value);
}

/// Turns an object of this resource into the version that is stored.
pub(super) fn to_storage(resource: &Resource, value: &mut Value) {
    to_version(resource, &resource.storage_api_version, value);
}

fn to_version(resource: &Resource, api_version: &str, value: &mut Value) {
    if text(value, &["apiVersion"]) == api_version {
        return;
    }
    match (resource.kind.as_str(), api_version) {
        ("Event", "v1") if resource.custom.is_none() => rename(value, false),
        ("Event", "events.k8s.io/v1") if resource.custom.is_none() => rename(value, true),
        ("HorizontalPodAutoscaler", "autoscaling/v2") if resource.custom.is_none() => scaler_to_v2(value),
        ("HorizontalPodAutoscaler", "autoscaling/v1") if resource.custom.is_none() => scaler_to_v1(value),
        _ => {}
    }
    set(value, &["apiVersion"], json!(api_version));
    if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schema.as_ref())
        && api_version == resource.api_version()
    {
        structural::prune(value, schema, true, "", &mut Vec::new());
        structural::default(value, schema);
    }
}

const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("reportingComponent", "reportingController"),
];

fn rename(value: &mut Value, to_new: bool) {
    for (old, new) in EVENT_NAMES {
        let (from, into) = if to_new { (old, new) } else { (new, old) };
        if let Some(found) = remove(value, &[from]) {
            set(value, &[into], found);
        }
    }
}

fn scaler_to_v2(value: &mut Value) {
    if let Some(percent) = remove(value, &["spec", "targetCPUUtilizationPercentage"]) {
        let metric = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}});
        set(value, &["spec", "metrics"], json!([metric]));
    }
    remove(value, &["status", "currentCPUUtilizationPercentage"]);
}

fn scaler_to_v1(value: &mut Value) {
    let percent = list(value, &["spec", "metrics"])
        .iter()
        .find(|metric| text(metric, &["resource", "name"]) == "cpu")
        .and_then(|metric| at(metric, &["resource", "target", "averageUtilization"]))
        .cloned();
    remove(value, &["spec", "metrics"]);
    remove(value, &["spec", "behavior"]);
    remove(value, &["status", "currentMetrics"]);
    remove(value, &["status", "conditions"]);
    if let Some(percent) = percent {
        set(value, &["spec", "targetCPUUtilizationPercentage"], percent);
    }
}
