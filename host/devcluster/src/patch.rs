//! The three patch forms that are not server-side apply: JSON patch, merge patch and strategic merge patch.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::{
    json::{DEPTH_MAX, is_deeper, same},
    schema::{Kind, Strategy, Type},
    status::ApiError,
};

/// Operations of one JSON patch; the bound of a real server.
const OPERATIONS_MAX: usize = 10_000;
/// Size of a document while a JSON patch is applied to it: `copy` can double it with every operation.
const GROWTH_BYTES_MAX: usize = 3 * 1024 * 1024;

/// RFC 7396.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}

/// RFC 6902. A failing `test`, or a path that does not exist, is 422.
pub(crate) fn json(target: &mut Value, body: &[u8]) -> Result<(), ApiError> {
    let patch = serde_json::from_slice::<json_patch::Patch>(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    if patch.0.len() > OPERATIONS_MAX {
        let message =
            format!("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}", patch.0.len());
        return Err(ApiError::new(413, "RequestEntityTooLarge", message));
    }
    for operation in patch.0 {
        let copies = matches!(operation, json_patch::PatchOperation::Copy(_) | json_patch::PatchOperation::Move(_));
        // An operation adds at most what its body or a copy holds to the depth of its path, so that checking both after
        // each operation keeps the document shallow enough to be walked.
        if operation.path().as_str().matches('/').count() > DEPTH_MAX {
            return Err(too_deep());
        }
        if tests_for_nothing(target, &operation) {
            continue;
        }
        let operation = leniently(target, operation);
        json_patch::patch(target, &[operation]).map_err(|_| ApiError::unprocessable())?;
        if copies && is_deeper(target, 3 * DEPTH_MAX) {
            return Err(too_deep());
        }
        if copies && serde_json::to_vec(target).map_or(0, |text| text.len()) > GROWTH_BYTES_MAX {
            return Err(ApiError::too_large(GROWTH_BYTES_MAX));
        }
    }
    if is_deeper(target, DEPTH_MAX) { Err(too_deep()) } else { Ok(()) }
}

/// As the library of the real server reads operations: replacing what is not in a map adds it, and copying what is not
/// in a map copies nothing.
fn leniently(target: &Value, operation: json_patch::PatchOperation) -> json_patch::PatchOperation {
    use json_patch::{AddOperation, PatchOperation};
    let absent = |path: &str| {
        let parent = path.rsplit_once('/').and_then(|(parent, _)| target.pointer(parent));
        parent.is_some_and(Value::is_object) && target.pointer(path).is_none()
    };
    match operation {
        PatchOperation::Replace(replace) if absent(replace.path.as_str()) => {
            PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
        }
        PatchOperation::Copy(copy) if absent(copy.from.as_str()) => {
            PatchOperation::Add(AddOperation { path: copy.path, value: Value::Null })
        }
        other => other,
    }
}

/// Whether an operation tests that something is null which is not there, below something that is. The real server takes
/// the one for the other; clients rely on it when they add the first finalizer.
fn tests_for_nothing(target: &Value, operation: &json_patch::PatchOperation) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else { return false };
    let path = test.path.as_str();
    let Some((parent, _)) = path.rsplit_once('/') else { return false };
    test.value.is_null() && target.pointer(path).is_none() && target.pointer(parent).is_some_and(Value::is_object)
}

fn too_deep() -> ApiError {
    ApiError::bad_request(format!("the patched object would be nested deeper than {DEPTH_MAX} levels"))
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Strategic merge along the schema: lists with a merge key are merged item by item.
pub(crate) fn strategic(target: &mut Value, patch: &Value, ty: Type<'_>) -> Result<(), ApiError> {
    let Some(patch) = patch.as_object() else {
        return Err(ApiError::bad_request("a strategic merge patch must be an object"));
    };
    let old = target.as_object().cloned().unwrap_or_default();
    *target = merge_map(old, patch, Some(ty))?.map_or(Value::Object(Map::new()), Value::Object);
    Ok(())
}

/// `None` when the patch says that the map goes.
fn merge_map(
    mut old: Map<String, Value>,
    patch: &Map<String, Value>,
    ty: Option<Type<'_>>,
) -> Result<Option<Map<String, Value>>, ApiError> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            let mut new = patch.clone();
            new.remove(DIRECTIVE);
            return Ok(Some(new));
        }
        Some("delete") => return Ok(None),
        Some("merge") | None => {}
        Some(other) => return Err(ApiError::bad_request(format!("unknown patch type: {other}"))),
    }
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        let keep = retained.iter().filter_map(Value::as_str).collect::<HashSet<_>>();
        old.retain(|key, _| keep.contains(key.as_str()));
    }
    let child_type = |name: &str| ty.and_then(|ty| ty.child(name));
    for (key, value) in patch {
        if key == DIRECTIVE || key == RETAIN || key.starts_with(DELETE_FROM) || key.starts_with(ORDER) {
            continue;
        }
        let ty = child_type(key);
        let strategy = ty.map(|ty| &ty.node().strategy);
        match value {
            Value::Null => {
                old.remove(key);
            }
            Value::Object(_) if strategy.is_some_and(|s| s.replace) => {
                old.insert(key.clone(), without_directives(value));
            }
            Value::Object(patch) => {
                let below = match old.remove(key) {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                if let Some(merged) = merge_map(below, patch, ty)? {
                    old.insert(key.clone(), Value::Object(merged));
                }
            }
            Value::Array(items) => {
                let below = match old.remove(key) {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                old.insert(key.clone(), Value::Array(merge_list(below, items, strategy, ty)?));
            }
            _ => {
                old.insert(key.clone(), value.clone());
            }
        }
    }
    for (key, value) in patch {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(list) = old.get_mut(name).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.iter().any(|g| same(g, item)));
            }
        }
    }
    for (key, value) in patch {
        if let (Some(name), Some(order)) = (key.strip_prefix(ORDER), value.as_array()) {
            let merge_key = child_type(name).and_then(|ty| ty.node().strategy.merge_key.clone());
            if let Some(list) = old.get_mut(name).and_then(Value::as_array_mut) {
                *list = reorder(std::mem::take(list), order, merge_key.as_deref());
            }
        }
    }
    Ok(Some(old))
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, _)| !key.starts_with('$'))
                .map(|(key, value)| (key.clone(), without_directives(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn merge_list(
    mut old: Vec<Value>,
    patch: &[Value],
    strategy: Option<&Strategy>,
    ty: Option<Type<'_>>,
) -> Result<Vec<Value>, ApiError> {
    let Some(strategy) = strategy.filter(|s| s.merge) else { return Ok(patch.to_vec()) };
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let Some(merge_key) = &strategy.merge_key else {
        // A list of scalars: the union.
        let live = old.clone();
        for item in patch {
            if !old.iter().any(|o| same(o, item)) {
                old.push(item.clone());
            }
        }
        return Ok(in_order_of_patch(old, patch, &live, same));
    };
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let rest = patch.iter().filter(|item| directive(item).is_none());
        return Ok(rest.map(without_directives).collect());
    }
    let item_type = ty.filter(|ty| matches!(ty.kind(), Kind::List { .. })).map(Type::element);
    let live = old.clone();
    for item in patch {
        let Some(fields) = item.as_object() else {
            return Err(ApiError::bad_request(format!("an item of a list merged by {merge_key:?} must be an object")));
        };
        let Some(key) = fields.get(merge_key) else {
            return Err(ApiError::bad_request(format!("map: {item} does not contain declared merge key: {merge_key}")));
        };
        let place = old.iter().position(|o| o.get(merge_key).is_some_and(|found| same(found, key)));
        if directive(item).as_deref() == Some("delete") {
            old.retain(|o| !o.get(merge_key).is_some_and(|found| same(found, key)));
            continue;
        }
        match place.and_then(|place| old.get_mut(place)) {
            Some(found) => {
                let below = found.as_object().cloned().unwrap_or_default();
                *found = merge_map(below, fields, item_type)?.map_or(Value::Null, Value::Object);
            }
            None => {
                if let Some(new) = merge_map(Map::new(), fields, item_type)? {
                    old.push(Value::Object(new));
                }
            }
        }
    }
    let is_one = |a: &Value, b: &Value| a.get(merge_key).zip(b.get(merge_key)).is_some_and(|(a, b)| same(a, b));
    Ok(in_order_of_patch(old, patch, &live, is_one))
}

/// Items of the patch in its order; what only the live list has stands before the first item of the patch that the live
/// list has after it, and else at the end.
fn in_order_of_patch(
    list: Vec<Value>,
    patch: &[Value],
    live: &[Value],
    is_one: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| is_one(other, item));
    let (mut named, others): (Vec<_>, Vec<_>) = list.into_iter().partition(|item| place(patch, item).is_some());
    named.sort_by_key(|item| place(patch, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut out = Vec::new();
    while let (Some(new), Some(kept)) = (named.peek(), others.peek()) {
        let before = place(live, kept).zip(place(live, new)).is_some_and(|(kept, new)| kept < new);
        out.extend(if before { others.next() } else { named.next() });
    }
    out.extend(named);
    out.extend(others);
    out
}

/// Puts the items of `order` into that order; items that it does not name stay where the live list had them.
fn reorder(list: Vec<Value>, order: &[Value], merge_key: Option<&str>) -> Vec<Value> {
    let wanted = |item: &Value| {
        order.iter().position(|o| match merge_key {
            Some(key) => o.get(key).zip(item.get(key)).is_some_and(|(a, b)| same(a, b)),
            None => same(o, item),
        })
    };
    let (mut named, mut others) = (Vec::new(), std::collections::VecDeque::new());
    for (live, item) in list.into_iter().enumerate() {
        match wanted(&item) {
            Some(place) => named.push((place, live, item)),
            None => others.push_back((live, item)),
        }
    }
    named.sort_by_key(|(place, _, _)| *place);
    let mut out = Vec::with_capacity(named.len() + others.len());
    for (_, live, item) in named {
        while others.front().is_some_and(|(other, _)| *other < live) {
            out.extend(others.pop_front().map(|(_, item)| item));
        }
        out.push(item);
    }
    out.extend(others.into_iter().map(|(_, item)| item));
    out
}

#[cfg(test)]
mod tests;
