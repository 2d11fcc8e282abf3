//! What came of a run, as documents: for people, for comparisons, and as test cases expect it.

use barbless_domain::identity::ObjectRef;
use barbless_domain::operation::{Action, Operation};
use barbless_domain::run::{Measurement, RunEnd, RunRecord, ValuesChange};
use serde_json::{Map, Value, json};

use crate::plan::secrets::Secrets;

/// What was asked for, and where in it things stand that may be secret.
pub(crate) fn operation(operation: &Operation) -> Value {
    let mut document = Map::new();
    document.insert("operation".to_owned(), json!(operation.verb()));
    if object_of(operation).is_none() {
        document.insert("target".to_owned(), target(&operation.target));
    }
    if let Some(subresource) = operation.subresource {
        document.insert("subresource".to_owned(), json!(subresource));
    }
    match &operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => document.insert("object".to_owned(), object.clone()),
        Action::MergePatch { patch } | Action::JsonPatch { patch } => {
            document.insert("patch".to_owned(), patch.clone())
        }
        Action::JqPatch { program } => document.insert("program".to_owned(), json!(program)),
        Action::Delete { propagation } => document.insert("propagation".to_owned(), json!(propagation)),
    };
    if operation.ignore_missing_object {
        document.insert("ignoreMissingObject".to_owned(), json!(true));
    }
    if operation.on_failure {
        document.insert("onFailure".to_owned(), json!(true));
    }
    Value::Object(document)
}

fn target(target: &ObjectRef) -> Value {
    let mut document = json!({"apiVersion": target.gvk.api_version(), "kind": target.gvk.kind, "name": target.name});
    if !target.namespace.is_empty() {
        document["namespace"] = json!(target.namespace);
    }
    document
}

/// The object that an operation writes, if it writes a whole one.
pub(crate) fn object_of(operation: &Operation) -> Option<&Value> {
    match &operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => Some(object),
        Action::MergePatch { .. } | Action::JsonPatch { .. } | Action::JqPatch { .. } | Action::Delete { .. } => None,
    }
}

/// Two versions of a document of [`operation`], ready to be shown.
pub(crate) fn masked_operations(
    secrets: &Secrets,
    before: Option<&Value>,
    after: Option<&Value>,
) -> (Option<Value>, Option<Value>) {
    let (mut old, mut new) = (before.cloned(), after.cloned());
    let part = |document: Option<&Value>, field: &str| document.and_then(|document| document.get(field)).cloned();
    for field in ["object", "patch"] {
        let (was, is) = (part(before, field), part(after, field));
        let of_secret = |document: Option<&Value>| {
            document.and_then(|document| document.pointer("/target/kind")).and_then(Value::as_str) == Some("Secret")
        };
        let (was, is) = if field == "patch" && (of_secret(before) || of_secret(after)) {
            // As if the whole patch were the contents of the Secret.
            let whole = |patch: Option<Value>| patch.map(|patch| json!({"kind": "Secret", "data": {"patch": patch}}));
            let (was, is) = secrets.mask_objects(whole(was).as_ref(), whole(is).as_ref());
            let patch = |masked: Option<Value>| masked.and_then(|masked| masked.pointer("/data/patch").cloned());
            (patch(was), patch(is))
        } else if field == "patch" {
            secrets.mask_documents(was.as_ref(), is.as_ref())
        } else {
            secrets.mask_objects(was.as_ref(), is.as_ref())
        };
        for (document, masked) in [(&mut old, was), (&mut new, is)] {
            if let (Some(Value::Object(document)), Some(masked)) = (document, masked) {
                document.insert(field.to_owned(), masked);
            }
        }
    }
    (old, new)
}

/// A change of the values: its pointer with what is set there, or that it is removed.
pub(crate) fn change(change: &ValuesChange) -> Value {
    match &change.value {
        Some(value) => json!({"set": change.pointer, "value": value}),
        None => json!({"remove": change.pointer}),
    }
}

/// The document that a change makes of nothing: what the names of its fields say about secrets is said here too.
fn nested(change: &ValuesChange) -> Value {
    let value = change.value.clone().unwrap_or_default();
    change.pointer.split('/').skip(1).collect::<Vec<_>>().into_iter().rev().fold(value, |inner, segment| {
        Value::Object(Map::from_iter([(segment.replace("~1", "/").replace("~0", "~"), inner)]))
    })
}

/// Two versions of a change, ready to be shown.
pub(crate) fn masked_changes(
    secrets: &Secrets,
    before: Option<&ValuesChange>,
    after: Option<&ValuesChange>,
) -> (Option<Value>, Option<Value>) {
    let (was, is) = secrets.mask_documents(before.map(nested).as_ref(), after.map(nested).as_ref());
    let shown = |original: Option<&ValuesChange>, masked: Option<Value>| {
        original.map(|original| {
            let mut document = change(original);
            if original.value.is_some() {
                // A whole branch may be masked above the place of the change.
                let value = inner(masked.unwrap_or_default(), original.pointer.split('/').skip(1).count());
                document["value"] = value;
            }
            document
        })
    };
    (shown(before, was), shown(after, is))
}

fn inner(mut document: Value, depth: usize) -> Value {
    for _ in 0..depth {
        match document {
            Value::Object(map) if map.len() == 1 => {
                document = map.into_iter().next().map(|(_, it)| it).unwrap_or_default()
            }
            other => return other,
        }
    }
    document
}

/// Learns what is secret in what came of runs, and in the documents that went in.
pub(crate) fn secrets<'a>(
    show: bool,
    operations: impl IntoIterator<Item = &'a Operation>,
    values: impl IntoIterator<Item = &'a ValuesChange>,
    documents: &[&Value],
) -> Secrets {
    if show {
        return Secrets::shown();
    }
    let mut objects: Vec<Value> = Vec::new();
    for operation in operations {
        match object_of(operation) {
            Some(object) => objects.push(object.clone()),
            None if operation.target.gvk.kind == "Secret" => {
                if let Action::MergePatch { patch } | Action::JsonPatch { patch } = &operation.action {
                    objects.push(json!({"kind": "Secret", "data": {"patch": patch}}));
                }
            }
            None => {}
        }
    }
    let changes: Vec<Value> = values.into_iter().map(nested).collect();
    Secrets::of(&objects, changes.iter().chain(documents.iter().copied()))
}

/// Learns what is secret in a record.
pub(crate) fn secrets_of(record: &RunRecord, show: bool) -> Secrets {
    let operations = record.operations.iter().map(|(operation, _)| operation);
    secrets(show, operations, &record.values, &[]).with(&record.told)
}

/// A measurement.
pub(crate) fn measurement(measurement: &Measurement, secrets: &Secrets) -> Value {
    let Measurement { name, kind, value, labels } = measurement;
    let mut document = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("kind".to_owned(), json!(kind)),
        ("value".to_owned(), number(*value)),
    ]);
    if !labels.is_empty() {
        let labels: Map<String, Value> =
            labels.iter().map(|(name, value)| (name.clone(), Value::String(secrets.mask_text(value)))).collect();
        document.insert("labels".to_owned(), Value::Object(labels));
    }
    Value::Object(document)
}

/// Measurements of a test case, which is the author's own: nothing is masked.
pub(crate) fn measurements(measurements: &[Measurement]) -> Vec<Value> {
    let secrets = Secrets::shown();
    measurements.iter().map(|it| measurement(it, &secrets)).collect()
}

/// A number as people write it: a whole one without a point.
fn number(value: f64) -> Value {
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 53 bits")]
    if value.fract() == 0.0 && value.abs() < WHOLE { json!(value as i64) } else { json!(value) }
}

/// The error of a run, as documents show it; nothing if there is none.
pub(crate) fn error(end: &RunEnd) -> Option<Value> {
    match end {
        RunEnd::Ok => None,
        RunEnd::HookError(error) => {
            let mut document =
                Map::from_iter([("code".to_owned(), json!(error.code)), ("message".to_owned(), json!(error.message))]);
            if let Some(hint) = &error.hint {
                document.insert("hint".to_owned(), json!(hint));
            }
            if let Some(ms) = error.retry_after_ms {
                document.insert("retryAfterMs".to_owned(), json!(ms));
            }
            Some(Value::Object(document))
        }
        end => Some(json!({"code": end.reason(), "message": end.to_string()})),
    }
}
