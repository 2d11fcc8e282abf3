//! Reads and changes a JSON document by pointers, with the rules of the `values` interface of the contract.

use serde_json::{Map, Value};

use crate::bindings::hooks::barbless::hooks::values::ValuesError;
use crate::pointer::unescape;

/// Sets a value; objects on the way are made.
pub(super) fn set(document: &mut Value, pointer: &str, value: Value) -> Result<(), ValuesError> {
    let segments = segments(pointer)?;
    let Some((last, way)) = segments.split_last() else { return Err(whole_document()) };
    let mut current = document;
    for segment in way {
        current = step(current, segment, pointer)?;
    }
    match current {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) => *element(list, last, pointer)? = value,
        _ => return Err(not_a_container(pointer)),
    }
    Ok(())
}

/// Removes a value; one that is not there is no error.
pub(super) fn remove(document: &mut Value, pointer: &str) -> Result<(), ValuesError> {
    let segments = segments(pointer)?;
    let Some((last, way)) = segments.split_last() else { return Err(whole_document()) };
    let mut current = document;
    for segment in way {
        let next = match current {
            Value::Object(map) => map.get_mut(segment),
            Value::Array(list) => index(segment).and_then(|index| list.get_mut(index)),
            _ => return Err(not_a_container(pointer)),
        };
        let Some(next) = next else { return Ok(()) };
        current = next;
    }
    match current {
        Value::Object(map) => {
            map.remove(last);
        }
        Value::Array(list) => {
            if let Some(index) = index(last).filter(|index| *index < list.len()) {
                list.remove(index);
            }
        }
        _ => return Err(not_a_container(pointer)),
    }
    Ok(())
}

/// The unescaped segments of a pointer.
pub(super) fn segments(pointer: &str) -> Result<Vec<String>, ValuesError> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(ValuesError::BadPointer(format!("`{pointer}` does not begin with `/`")));
    };
    rest.split('/').map(|segment| escapes_are_complete(segment, pointer).map(|()| unescape(segment))).collect()
}

fn escapes_are_complete(segment: &str, pointer: &str) -> Result<(), ValuesError> {
    let mut after_tilde = segment.split('~').skip(1);
    if after_tilde.all(|rest| rest.starts_with('0') || rest.starts_with('1')) {
        return Ok(());
    }
    Err(ValuesError::BadPointer(format!("`{pointer}` has a `~` that is followed by neither `0` nor `1`")))
}

fn step<'a>(current: &'a mut Value, segment: &str, pointer: &str) -> Result<&'a mut Value, ValuesError> {
    match current {
        Value::Object(map) => Ok(map.entry(segment).or_insert_with(|| Value::Object(Map::new()))),
        Value::Array(list) => element(list, segment, pointer),
        _ => Err(not_a_container(pointer)),
    }
}

/// An element of a list; `-` and the index after the last one append.
fn element<'a>(list: &'a mut Vec<Value>, segment: &str, pointer: &str) -> Result<&'a mut Value, ValuesError> {
    let len = list.len();
    let index = if segment == "-" { Some(len) } else { index(segment) };
    if index == Some(len) {
        list.push(Value::Object(Map::new()));
    }
    index
        .and_then(|index| list.get_mut(index))
        .ok_or_else(|| ValuesError::BadPath(format!("`{pointer}`: no index `{segment}` in an array of {len}")))
}

/// An index as RFC 6901 has it: no sign, no leading zero.
fn index(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || !segment.starts_with(['0', '+']);
    segment.parse().ok().filter(|_| canonical)
}

/// The settings of the user are part of it.
fn whole_document() -> ValuesError {
    ValuesError::ReadOnly(String::new())
}

fn not_a_container(pointer: &str) -> ValuesError {
    ValuesError::BadPath(format!("`{pointer}`: something on the way is neither object nor array"))
}
