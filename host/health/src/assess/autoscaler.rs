//! HorizontalPodAutoscaler. Version 1 of its API has no conditions; it keeps them in an annotation.

use serde::Deserialize;
use serde_json::Value;

use super::{Subject, degraded, healthy, progressing};
use crate::object::{Reading, annotation};
use crate::verdict::{Health, Verdict};

const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// A condition of either version.
#[derive(Default)]
struct Condition {
    kind: String,
    status: String,
    reason: String,
    message: String,
}

pub(super) fn horizontal_pod_autoscaler(subject: &Subject<'_>) -> Reading<Health> {
    if subject.version == "v1" {
        return match conditions_of_annotation(subject.object) {
            Ok(conditions) => judge(conditions),
            Err(what) => {
                Ok(Health::new(Verdict::Unknown, format!("failed to convert conditions annotation to typed: {what}")))
            }
        };
    }
    let conditions = subject.fields.conditions("status.conditions")?.into_iter().map(|condition| Condition {
        kind: condition.kind.to_owned(),
        status: condition.status.to_owned(),
        reason: condition.reason.to_owned(),
        message: condition.message.to_owned(),
    });
    judge(conditions.collect())
}

fn judge(conditions: Vec<Condition>) -> Reading<Health> {
    if let Some(failed) = conditions.iter().find(|condition| is_failure(condition)) {
        return degraded(failed.message.clone());
    }
    let works = |condition: &Condition| {
        matches!(condition.kind.as_str(), "AbleToScale" | "ScalingLimited") && condition.status == "True"
    };
    match conditions.into_iter().find(works) {
        Some(condition) => healthy(condition.message),
        None => progressing("Waiting to Autoscale"),
    }
}

/// The reason decides, whatever the status: the controller leaves `AbleToScale` at True after some failures.
fn is_failure(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        "AbleToScale" => matches!(condition.reason.as_str(), "FailedGetScale" | "FailedUpdateScale"),
        "ScalingActive" => matches!(
            condition.reason.as_str(),
            "FailedGetResourceMetric"
                | "FailedGetObjectMetric"
                | "FailedGetPodsMetric"
                | "FailedGetExternalMetric"
                | "FailedComputeMetricsReplicas"
                | "InvalidSelector"
        ),
        _ => false,
    }
}

/// The conditions of the annotation, whose keys may be written in any case; none without the annotation.
fn conditions_of_annotation(object: &Value) -> Result<Vec<Condition>, String> {
    let Some(text) = annotation(object, CONDITIONS_ANNOTATION) else {
        return Ok(Vec::new());
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let entries = Option::<Vec<Option<serde_json::Map<String, Value>>>>::deserialize(&mut deserializer)
        .and_then(|entries| deserializer.end().map(|()| entries))
        .map_err(|error| error.to_string())?;
    entries.unwrap_or_default().into_iter().map(|entry| condition_of_entry(entry.unwrap_or_default())).collect()
}

fn condition_of_entry(entry: serde_json::Map<String, Value>) -> Result<Condition, String> {
    let mut condition = Condition::default();
    for (key, value) in entry {
        let slot = match key.to_ascii_lowercase().as_str() {
            "type" => &mut condition.kind,
            "status" => &mut condition.status,
            "reason" => &mut condition.reason,
            "message" => &mut condition.message,
            _ => continue,
        };
        match value {
            Value::String(text) => *slot = text,
            Value::Null => {}
            other => return Err(format!("{key} of a condition is {other}, expected a text")),
        }
    }
    Ok(condition)
}
