//! What built-in kinds need beyond their schema: type checks of a decoded object, defaults, and the few validations
//! that users meet.

mod allocation;
mod defaults;
mod immutable;
mod metadata;
mod names;
mod quantity;
mod validation;
mod warnings;

use serde_json::Value;

pub(crate) use allocation::{agree_on_addresses, drop_dependent, families, keep_allocated, wants_node_ports};
pub(crate) use defaults::{apply as default, generate_selector, hide, label_job, parts};
pub(crate) use metadata::{created as created_metadata, updated as updated_metadata, warnings as metadata_warnings};
pub(crate) use quantity::nanos;
pub(crate) use validation::{created, data_bytes, updated};
pub(crate) use warnings::warnings;

use crate::{
    json,
    schema::{Kind, Scalar, Type},
    status::{ApiError, Cause},
};

/// Field paths that the schema does not know.
pub(crate) type Unknown = Vec<String>;

/// Brings a decoded object into the form that the typed decoder of a real server would give it: nulls and empty lists and
/// maps are dropped, unknown fields too (they are collected). A value of the wrong type is refused.
pub(crate) fn normalise(value: &mut Value, ty: Type<'_>, kind: &str) -> Result<Unknown, ApiError> {
    let mut unknown = Unknown::new();
    walk(value, ty, &mut String::new(), kind, &mut unknown)?;
    Ok(unknown)
}

fn walk(value: &mut Value, ty: Type<'_>, path: &mut String, kind: &str, unknown: &mut Unknown) -> Result<(), ApiError> {
    let found = match &*value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wrong = |expected: &str, path: &str| {
        Err(ApiError::bad_request(format!(
            "{kind} cannot be handled as a {kind}: json: cannot unmarshal {found} into Go struct field {kind}{path} of \
             type {expected}"
        )))
    };
    match (ty.kind(), &mut *value) {
        (Kind::Any, _) | (_, Value::Null) => Ok(()),
        (Kind::Map { fields, element, .. }, Value::Object(map)) => {
            let mut dropped = Vec::new();
            for (key, child) in map.iter_mut() {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match ty.child(key) {
                    Some(child_type) => walk(child, child_type, path, kind, unknown)?,
                    None => {
                        unknown.push(path.trim_start_matches('.').to_owned());
                        dropped.push(key.clone());
                    }
                }
                let empty_map_type = ty.child(key).is_some_and(
                    |ty| matches!(ty.kind(), Kind::Map { fields, element: Some(_), .. } if fields.is_empty()),
                );
                let declared = fields.contains_key(key);
                // In a map of texts nothing is the empty text.
                if child.is_null()
                    && !declared
                    && ty.child(key).is_some_and(|ty| matches!(ty.kind(), Kind::Scalar(Scalar::Text)))
                {
                    *child = Value::String(String::new());
                }
                let droppable = match child {
                    Value::Null => declared || element.is_some(),
                    Value::Array(list) => declared && list.is_empty() && !ty.node().required.contains(key),
                    Value::Object(map) => declared && map.is_empty() && empty_map_type,
                    zero => is_zero(zero) && ty.node().omit.contains(key),
                };
                if droppable {
                    dropped.push(key.clone());
                }
                path.truncate(length);
            }
            for key in dropped {
                map.remove(&key);
            }
            Ok(())
        }
        (Kind::Map { .. }, _) => wrong("struct", path),
        (Kind::List { .. }, Value::Array(items)) => {
            let element = ty.element();
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                walk(item, element, path, kind, unknown)?;
                path.truncate(length);
            }
            Ok(())
        }
        (Kind::List { .. }, _) => wrong("slice", path),
        (Kind::Scalar(scalar), value) => match (scalar, value) {
            (Scalar::Text, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Number, Value::Number(_))
            | (Scalar::IntOrString, Value::Number(_) | Value::String(_)) => Ok(()),
            (Scalar::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(()),
            (Scalar::Integer, value @ Value::Number(_)) => match value.as_f64() {
                Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => {
                    *value = Value::from(whole(float));
                    Ok(())
                }
                _ => wrong("int32", path),
            },
            // Quantities may be written as numbers and are kept as text.
            (Scalar::Quantity, value @ (Value::Number(_) | Value::String(_))) => {
                let given = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                *value = Value::String(quantity::canonical(&given).unwrap_or(given));
                Ok(())
            }
            (Scalar::Text, _) => wrong("string", path),
            (Scalar::Boolean, _) => wrong("bool", path),
            (Scalar::Integer, _) => wrong("int32", path),
            (Scalar::Number, _) => wrong("float64", path),
            (Scalar::IntOrString, _) => wrong("intstr.IntOrString", path),
            (Scalar::Quantity, _) => wrong("resource.Quantity", path),
        },
    }
}

/// Whether a scalar is what Go gives a field that nobody sets.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// A float that is known to be whole and small, as an integer.
fn whole(float: f64) -> i64 {
    format!("{float:.0}").parse().unwrap_or_default()
}

/// Required fields that the schema names but real servers do not insist on.
const LENIENT: [&str; 4] = ["endpoints", "revision", "value", "eventTime"];

/// Missing required fields and values outside an enumeration, everywhere but in metadata and status.
pub(crate) fn check_required(object: &Value, ty: Type<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, child) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind")
            && let Some(child_type) = ty.child(key)
        {
            required(child, child_type, key, &mut causes);
        }
    }
    for name in &ty.node().required {
        if name != "metadata" && !LENIENT.contains(&name.as_str()) && json::at(object, &[name]).is_none() {
            causes.push(Cause::required(name.clone(), ""));
        }
    }
    causes
}

fn required(value: &Value, ty: Type<'_>, path: &str, causes: &mut Vec<Cause>) {
    let node = ty.node();
    if !node.allowed.is_empty() && !node.allowed.contains(value) {
        causes.push(Cause::not_supported(path, value, &node.allowed));
    }
    match (ty.kind(), value) {
        (Kind::Map { .. }, Value::Object(map)) => {
            for name in &node.required {
                if !map.contains_key(name) && !LENIENT.contains(&name.as_str()) {
                    causes.push(Cause::required(format!("{path}.{name}"), ""));
                }
            }
            for (key, child) in map {
                if let Some(child_type) = ty.child(key) {
                    required(child, child_type, &format!("{path}.{key}"), causes);
                }
            }
        }
        (Kind::List { .. }, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                required(item, ty.element(), &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
