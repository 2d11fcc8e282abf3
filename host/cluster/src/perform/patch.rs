//! Patches, computed here so that the result can be judged before it is sent. Bounded: a guest wrote them.

use std::fmt;

use barbless_domain::limits::JSON_PATCH_STEPS;
use json_patch::PatchOperation;
use serde_json::Value;

use crate::limits::{JSON_PATCH_COPY_BYTES, OBJECT_BYTES, OBJECT_DEPTH};

/// Why a patch cannot be carried out.
#[derive(Debug)]
pub(super) struct Unfit {
    /// Stable reason.
    pub(super) reason: &'static str,
    /// What is wrong.
    pub(super) why: String,
}

pub(super) fn unfit(reason: &'static str, why: impl fmt::Display) -> Unfit {
    Unfit { reason, why: why.to_string() }
}

/// Merges a merge patch (RFC 7396) into an object.
pub(super) fn merge(mut object: Value, patch: &Value) -> Result<Value, Unfit> {
    if !patch.is_object() {
        return Err(unfit("BadPatch", "a merge patch must be a map"));
    }
    check_depth(patch)?;
    json_patch::merge(&mut object, patch);
    check_size(&object)?;
    Ok(object)
}

/// Applies a JSON patch (RFC 6902) to an object.
pub(super) fn json(mut object: Value, patch: &Value) -> Result<Value, Unfit> {
    let json_patch::Patch(operations) = serde_json::from_value(patch.clone())
        .map_err(|error| unfit("BadPatch", format_args!("no JSON patch: {error}")))?;
    if operations.len() > JSON_PATCH_STEPS {
        return Err(unfit("PatchTooLarge", format_args!("more than {JSON_PATCH_STEPS} operations in one JSON patch")));
    }
    let mut copied = 0_usize;
    for (index, operation) in operations.iter().enumerate() {
        // What comes to be at the path, and how deep the path is: a patch must not build a tower that later recursion
        // falls from.
        let (path, arriving) = match operation {
            PatchOperation::Add(it) => (Some(&it.path), Some(&it.value)),
            PatchOperation::Replace(it) => (Some(&it.path), Some(&it.value)),
            PatchOperation::Move(it) => (Some(&it.path), it.from.resolve(&object).ok()),
            PatchOperation::Copy(it) => {
                let value = it.from.resolve(&object).ok();
                copied = copied.saturating_add(value.map_or(0, |value| bytes_of(value, JSON_PATCH_COPY_BYTES)));
                if copied > JSON_PATCH_COPY_BYTES {
                    let why = format!("its copies add more than {JSON_PATCH_COPY_BYTES} bytes");
                    return Err(unfit("PatchTooLarge", why));
                }
                (Some(&it.path), value)
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, None),
        };
        if let (Some(path), Some(value)) = (path, arriving)
            && path.tokens().count().saturating_add(depth_of(value)) > OBJECT_DEPTH
        {
            return Err(unfit("PatchTooLarge", format_args!("the result is deeper than {OBJECT_DEPTH}")));
        }
        json_patch::patch(&mut object, std::slice::from_ref(operation)).map_err(|error| {
            let is_test = matches!(operation, PatchOperation::Test(_));
            let reason = if is_test { "PatchTestFailed" } else { "PatchFailed" };
            unfit(reason, format_args!("operation {index} of the JSON patch: {}", error.kind))
        })?;
    }
    if !object.is_object() {
        return Err(unfit("BadPatch", "the result is no object"));
    }
    check_size(&object)?;
    Ok(object)
}

pub(super) fn check_depth(value: &Value) -> Result<(), Unfit> {
    if depth_of(value) > OBJECT_DEPTH {
        return Err(unfit("PatchTooLarge", format_args!("the patch or its result is deeper than {OBJECT_DEPTH}")));
    }
    Ok(())
}

pub(super) fn check_size(object: &Value) -> Result<(), Unfit> {
    if bytes_of(object, OBJECT_BYTES) > OBJECT_BYTES {
        return Err(unfit("PatchTooLarge", format_args!("the result has more than {OBJECT_BYTES} bytes")));
    }
    Ok(())
}

/// Levels of maps and lists, counted without recursion.
fn depth_of(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1_usize)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Object(map) => open.extend(map.values().map(|value| (value, depth + 1))),
            Value::Array(items) => open.extend(items.iter().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Bytes of the JSON text, roughly and at least; stops counting beyond a bound.
fn bytes_of(value: &Value, bound: usize) -> usize {
    let mut bytes = 0_usize;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        bytes += match value {
            Value::Object(map) => {
                open.extend(map.values());
                2 + map.keys().map(|key| key.len() + 4).sum::<usize>()
            }
            Value::Array(items) => {
                open.extend(items);
                2 + items.len()
            }
            Value::String(text) => text.len() + 2,
            Value::Null | Value::Bool(_) => 4,
            Value::Number(_) => 1,
        };
        if bytes > bound {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_do_what_the_rfcs_say() {
        let object = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
        let merged = merge(object.clone(), &json!({"a": {"b": null, "d": 3}})).expect("a result");
        assert_eq!(merged, json!({"a": {"c": 2, "d": 3}, "list": [1, 2]}));
        let patch = json!([
            {"op": "test", "path": "/a/b", "value": 1},
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "move", "from": "/a/b", "path": "/moved"},
            {"op": "copy", "from": "/list", "path": "/copy"},
            {"op": "remove", "path": "/a"},
        ]);
        let patched = json(object, &patch).expect("a result");
        assert_eq!(patched, json!({"list": [1, 2, 3], "moved": 1, "copy": [1, 2, 3]}));
    }

    #[test]
    fn bad_patches_have_reasons() {
        let object = json!({"a": 1});
        let cases = [
            (json!({"op": "add"}), "BadPatch"),
            (json!([{"op": "nonsense", "path": "/a"}]), "BadPatch"),
            (json!([{"op": "test", "path": "/a", "value": 2}]), "PatchTestFailed"),
            (json!([{"op": "remove", "path": "/missing"}]), "PatchFailed"),
            (json!([{"op": "replace", "path": "", "value": 5}]), "BadPatch"),
        ];
        for (patch, expected) in cases {
            assert_eq!(json(object.clone(), &patch).expect_err("refused").reason, expected, "{patch}");
        }
        assert_eq!(merge(object, &json!("text")).expect_err("refused").reason, "BadPatch");
    }

    #[test]
    fn a_doubling_patch_is_refused_before_it_grows() {
        let object = json!({"a": ["x".repeat(1000)]});
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let patch = Value::Array(vec![double; 40]);
        assert_eq!(json(object, &patch).expect_err("refused").reason, "PatchTooLarge");
    }

    #[test]
    fn a_tower_is_refused() {
        // Each move puts the whole so far one level deeper.
        let mut operations = Vec::new();
        for _ in 0..400 {
            operations.push(json!({"op": "add", "path": "/next", "value": {}}));
            operations.push(json!({"op": "move", "from": "/tower", "path": "/next/inner"}));
            operations.push(json!({"op": "move", "from": "/next", "path": "/tower"}));
        }
        operations.truncate(900);
        let refused = json(json!({"tower": {}}), &Value::Array(operations)).expect_err("refused");
        assert_eq!(refused.reason, "PatchTooLarge");
    }

    #[test]
    fn too_many_operations_are_refused() {
        let patch = Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); JSON_PATCH_STEPS + 1]);
        assert_eq!(json(json!({"a": 1}), &patch).expect_err("refused").reason, "PatchTooLarge");
    }
}
