//! Walks over objects along their schema: the fields of an object, merge, comparison and removal.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use super::set::{Set, field, shown};
use crate::{
    json::same,
    schema::{Kind, ListRelation, Scalar, Type},
};

/// The applied object does not fit the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TypedError {
    #[error("{path}: field not declared in schema")]
    Undeclared { path: String },
    #[error(
        "{path}: element {index}: associative list with keys has an element that omits all key fields {keys} (and doesn't \
         have default values for any key fields)"
    )]
    NoKeys { path: String, index: usize, keys: GoList },
    #[error("{path}: duplicate entries for key {key}")]
    Duplicate { path: String, key: String },
    #[error("{path}: expected {expected}, got {found}")]
    Mismatch { path: String, expected: &'static str, found: String },
}

/// Names as Go prints a list of them: `["a" "b"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoList(Vec<String>);

impl std::fmt::Display for GoList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>();
        write!(f, "[{}]", names.join(" "))
    }
}

/// The path element of an item of an associative list; `None` when it has none of the keys.
fn element(relation: &ListRelation, item_type: Type<'_>, item: &Value) -> Option<String> {
    match relation {
        ListRelation::Atomic => None,
        ListRelation::Set => Some(format!("v:{item}")),
        ListRelation::Map(keys) => {
            let map = item.as_object()?;
            let mut present = Map::new();
            for key in keys {
                let default = || item_type.field(key).and_then(|ty| ty.node().default.as_ref());
                if let Some(value) = map.get(key).or_else(default) {
                    present.insert(key.clone(), value.clone());
                }
            }
            (!present.is_empty()).then(|| format!("k:{}", Value::Object(present)))
        }
    }
}

fn empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

/// How a value of a type is walked.
enum Shape<'a> {
    Leaf,
    Map,
    List(&'a ListRelation),
}

fn shape<'a>(ty: Type<'a>, value: &Value) -> Shape<'a> {
    match (ty.kind(), value) {
        (Kind::Any, Value::Object(_)) | (Kind::Map { atomic: false, .. }, Value::Object(_)) => Shape::Map,
        (Kind::List { relation, .. }, Value::Array(_)) if *relation != ListRelation::Atomic => Shape::List(relation),
        _ => Shape::Leaf,
    }
}

/// Finds undeclared fields, items without keys and duplicates: what an apply configuration must not have.
pub(crate) fn check(value: &Value, ty: Type<'_>) -> Vec<TypedError> {
    let mut errors = Vec::new();
    check_at(value, ty, &mut String::new(), &mut errors);
    errors
}

fn check_at(value: &Value, ty: Type<'_>, path: &mut String, errors: &mut Vec<TypedError>) {
    let mut mismatch = |expected: &'static str, path: &str| {
        let found = match expected {
            "numeric (int or float)" => go_type(value).to_owned(),
            _ => format!("&{{{}}}", go_text(value)),
        };
        errors.push(TypedError::Mismatch { path: path.to_owned(), expected, found });
    };
    match (ty.kind(), value) {
        (Kind::Any, _) | (_, Value::Null) => {}
        (Kind::Scalar(scalar), _) => match (scalar, value) {
            (_, Value::Object(_) | Value::Array(_)) => mismatch("scalar", path),
            (Scalar::Text, Value::String(_))
            | (Scalar::Integer | Scalar::Number, Value::Number(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::IntOrString | Scalar::Quantity, _) => {}
            (Scalar::Text, _) => mismatch("string", path),
            (Scalar::Integer | Scalar::Number, _) => mismatch("numeric (int or float)", path),
            (Scalar::Boolean, _) => mismatch("boolean", path),
        },
        (Kind::Map { .. }, Value::Object(map)) => {
            for (key, child) in map {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match ty.child(key) {
                    Some(child_type) => check_at(child, child_type, path, errors),
                    None => errors.push(TypedError::Undeclared { path: path.clone() }),
                }
                path.truncate(length);
            }
        }
        (Kind::Map { .. }, _) => mismatch("map", path),
        (Kind::List { relation, .. }, Value::Array(items)) => {
            let item_type = ty.element();
            let mut seen = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                if *relation != ListRelation::Atomic {
                    let Some(key) = element(relation, item_type, item) else {
                        path.truncate(length);
                        let keys = match relation {
                            ListRelation::Map(keys) => keys.clone(),
                            _ => Vec::new(),
                        };
                        errors.push(TypedError::NoKeys { path: path.clone(), index, keys: GoList(keys) });
                        return;
                    };
                    if !seen.insert(key.clone()) {
                        let path = path.get(..length).unwrap_or_default().to_owned();
                        errors.push(TypedError::Duplicate { path, key: shown(&key) });
                    }
                }
                check_at(item, item_type, path, errors);
                path.truncate(length);
            }
        }
        (Kind::List { .. }, _) => mismatch("list", path),
    }
}

/// What Go calls the type of a value that could have any.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs = map.iter().map(|(key, value)| format!("{key}:{}", go_text(value)));
            format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Every path that the object sets.
pub(crate) fn field_set(value: &Value, ty: Type<'_>) -> Set {
    let mut set = Set::default();
    fields_at(value, ty, &mut Vec::new(), &mut set);
    set
}

fn fields_at(value: &Value, ty: Type<'_>, path: &mut Vec<String>, set: &mut Set) {
    match shape(ty, value) {
        Shape::Leaf => {
            // A null map or list that would be walked owns nothing itself; its parent map inserts it.
            let walked = match ty.kind() {
                Kind::Map { atomic: false, .. } => true,
                Kind::List { relation, .. } => *relation != ListRelation::Atomic,
                _ => false,
            };
            if !(value.is_null() && walked) {
                set.insert(path);
            }
        }
        Shape::Map => {
            for (key, child) in value.as_object().into_iter().flatten() {
                path.push(field(key));
                if let Some(child_type) = ty.child(key) {
                    fields_at(child, child_type, path, set);
                }
                let empty_map = child.as_object().is_some_and(Map::is_empty);
                if child.is_null() || empty_map || ty.field(key).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::List(relation) => {
            let item_type = ty.element();
            for item in value.as_array().into_iter().flatten() {
                let Some(key) = element(relation, item_type, item) else { continue };
                path.push(key);
                fields_at(item, item_type, path, set);
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// The live object with the configuration laid over it. Nothing is removed.
pub(crate) fn merge(live: &Value, config: &Value, ty: Type<'_>) -> Value {
    match (shape(ty, config), shape(ty, live)) {
        (Shape::Map, Shape::Map) => {
            let mut out = live.as_object().cloned().unwrap_or_default();
            for (key, new) in config.as_object().into_iter().flatten() {
                let merged = match (out.get(key), ty.child(key)) {
                    (Some(old), Some(child_type)) => merge(old, new, child_type),
                    _ => new.clone(),
                };
                out.insert(key.clone(), merged);
            }
            Value::Object(out)
        }
        (Shape::List(relation), Shape::List(_)) => merge_lists(live, config, relation, ty.element()),
        // Null where something would be merged asks for nothing.
        (_, Shape::Map | Shape::List(_)) if config.is_null() && !empty(Some(live)) => live.clone(),
        _ => config.clone(),
    }
}

/// Items in the order of the configuration, with the items that only the live object has kept where they were.
fn merge_lists(live: &Value, config: &Value, relation: &ListRelation, item_type: Type<'_>) -> Value {
    let index = |value: &Value| {
        let items = value.as_array().cloned().unwrap_or_default();
        // An item without keys can only be live; it gets a name of its own and is kept.
        items
            .into_iter()
            .enumerate()
            .map(|(i, item)| (element(relation, item_type, &item).unwrap_or_else(|| format!("i:{i}")), item))
            .collect::<Vec<_>>()
    };
    let (left, right) = (index(live), index(config));
    let left_first = left.iter().rev().map(|(key, item)| (key.as_str(), item)).collect::<HashMap<_, _>>();
    let in_right = right.iter().map(|(key, _)| key.as_str()).collect::<HashSet<_>>();
    let mut shared =
        right.iter().map(|(key, _)| key.as_str()).filter(|key| left_first.contains_key(key)).collect::<VecDeque<_>>();
    let mut merged = HashSet::new();
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    loop {
        match (left.get(l), right.get(r)) {
            (None, None) => break,
            (Some((left_key, left_item)), Some((right_key, right_item))) if left_key == right_key => {
                merged.insert(right_key.as_str());
                out.push(merge(left_item, right_item, item_type));
                (l, r) = (l + 1, r + 1);
                shared.pop_front();
                continue;
            }
            (Some((left_key, _)), Some(_))
                if in_right.contains(left_key.as_str()) && shared.front().is_some_and(|next| *next != left_key) =>
            {
                // Shared, but its turn comes later in the order of the configuration.
                l += 1;
                continue;
            }
            (Some((left_key, left_item)), _) => {
                if !in_right.contains(left_key.as_str()) {
                    out.push(left_item.clone());
                    l += 1;
                    continue;
                }
                if merged.contains(left_key.as_str()) {
                    l += 1;
                }
            }
            (None, Some(_)) => {}
        }
        if let Some((right_key, right_item)) = right.get(r) {
            merged.insert(right_key.as_str());
            out.push(match left_first.get(right_key.as_str()) {
                Some(left_item) => merge(left_item, right_item, item_type),
                None => right_item.clone(),
            });
            r += 1;
            if shared.front().is_some_and(|next| *next == right_key) {
                shared.pop_front();
            }
        }
    }
    Value::Array(out)
}

/// What differs between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

pub(crate) fn compare(old: &Value, new: &Value, ty: Type<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(Some(old), Some(new), ty, &mut Vec::new(), &mut comparison);
    comparison
}

fn compare_at(old: Option<&Value>, new: Option<&Value>, ty: Type<'_>, path: &mut Vec<String>, out: &mut Comparison) {
    let is_leaf = |value: Option<&Value>| value.is_some_and(|v| !v.is_null() && matches!(shape(ty, v), Shape::Leaf));
    if is_leaf(old) || is_leaf(new) || (empty(old) && empty(new)) {
        match (old, new) {
            (None, Some(_)) => out.added.insert(path),
            (Some(_), None) => out.removed.insert(path),
            (Some(old), Some(new)) if !same(old, new) => out.modified.insert(path),
            _ => {}
        }
        return;
    }
    match old.filter(|v| !v.is_null()).or(new).map(|value| shape(ty, value)) {
        Some(Shape::Map) => {
            let fields = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
            let (before, after) = (fields(old), fields(new));
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                let Some(child_type) = ty.child(key) else { continue };
                path.push(field(key));
                compare_at(before.get(key), after.get(key), child_type, path, out);
                path.pop();
            }
        }
        Some(Shape::List(relation)) => {
            let item_type = ty.element();
            let index = |value: Option<&Value>| {
                let items = value.and_then(Value::as_array).cloned().unwrap_or_default();
                let keyed = items.into_iter().filter_map(|item| Some((element(relation, item_type, &item)?, item)));
                keyed.collect::<std::collections::BTreeMap<_, _>>()
            };
            let (before, after) = (index(old), index(new));
            let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                path.push(key.clone());
                compare_at(before.get(key), after.get(key), item_type, path, out);
                path.pop();
            }
        }
        _ => {}
    }
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        _ => {}
    }
}

/// The object without the members of the set.
pub(crate) fn remove(value: &Value, set: &Set, ty: Type<'_>) -> Value {
    if set.is_empty() {
        return value.clone();
    }
    match shape(ty, value) {
        Shape::Leaf => value.clone(),
        Shape::Map => {
            let mut out = Map::new();
            for (key, child) in value.as_object().into_iter().flatten() {
                let name = field(key);
                if set.has(&name) {
                    continue;
                }
                let kept = match (set.children(&name), ty.child(key)) {
                    (Some(below), Some(child_type)) => remove(child, below, child_type),
                    _ => child.clone(),
                };
                out.insert(key.clone(), kept);
            }
            Value::Object(out)
        }
        Shape::List(relation) => {
            let item_type = ty.element();
            let mut out = Vec::new();
            for item in value.as_array().into_iter().flatten() {
                let kept = match element(relation, item_type, item) {
                    Some(name) if set.has(&name) => continue,
                    Some(name) => match set.children(&name) {
                        Some(below) => remove(item, below, item_type),
                        None => item.clone(),
                    },
                    None => item.clone(),
                };
                out.push(kept);
            }
            Value::Array(out)
        }
    }
}
