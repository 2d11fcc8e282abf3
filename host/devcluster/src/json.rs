//! Small readers and writers for objects that are kept as JSON documents.

use serde_json::{Map, Value};

/// Text at a path of keys; empty when it is absent or not text.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a path of keys.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// The list at a path of keys; empty when it is absent.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A whole number at a path of keys.
pub(crate) fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The object of this value; a value of another type is replaced by an empty object first.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The line above made it an object; another empty map would be lost, so there is nothing else to return.
        _ => unreachable!("the value was made an object"),
    }
}

/// Sets the value at a path, making the objects on the way.
pub(crate) fn set(value: &mut Value, path: &[&str], new: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut here = value;
    for key in parents {
        here = object(here).entry((*key).to_owned()).or_insert_with(|| Value::Object(Map::new()));
    }
    object(here).insert((*last).to_owned(), new);
}

/// Sets the value at a path only when nothing (or null) is there.
pub(crate) fn default(value: &mut Value, path: &[&str], new: Value) {
    if at(value, path).is_none_or(Value::is_null) {
        set(value, path, new);
    }
}

/// A number that was read as a float, as Go writes it: without a point when it is whole.
pub(crate) fn number(float: f64) -> Value {
    let whole =
        (float.fract() == 0.0 && float.abs() < 1e15).then(|| format!("{float:.0}").parse::<i64>().ok()).flatten();
    match whole {
        Some(whole) => Value::from(whole),
        None => serde_json::Number::from_f64(float).map_or(Value::Null, Value::Number),
    }
}

/// All whole numbers without a point, as [`number`].
pub(crate) fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(given) if given.is_f64() => given.as_f64().map_or(Value::Null, number),
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect(),
        other => other,
    }
}

/// Removes the value at a path and returns it.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut here = value;
    for key in parents {
        here = here.get_mut(key)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// Puts what `from` has at the path into `to`, or removes it there when `from` has nothing.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match at(from, path) {
        Some(found) => set(to, path, found.clone()),
        None => {
            remove(to, path);
        }
    }
}

/// Equality that does not tell `1` from `1.0`.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => left == right,
    }
}

/// Deepest object that is stored: what a JSON reader accepts too. Walks over objects are recursive, so a deeper one could
/// exhaust the stack.
pub(crate) const DEPTH_MAX: usize = 128;

/// Whether a document is nested deeper than this. Does not recurse.
pub(crate) fn is_deeper(value: &Value, depth_max: usize) -> bool {
    let mut waiting = vec![(value, 0)];
    while let Some((value, depth)) = waiting.pop() {
        if depth > depth_max {
            return true;
        }
        match value {
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => waiting.extend(map.values().map(|child| (child, depth + 1))),
            _ => {}
        }
    }
    false
}

/// The time now in the form of `metav1.Time`: whole seconds, UTC.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
