//! Structural schemas: pruning, defaulting and validation of custom objects, with the messages of the API.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::{
    json::{self, same},
    status::Cause,
};

/// Compiled patterns kept; more only means that some are compiled again.
const PATTERNS_MAX: usize = 1024;
/// Deepest schema and object that are walked; JSON text cannot be deeper either.
const DEPTH_MAX: usize = 128;
/// Causes of one refusal; more would only fill the answer.
pub(super) const CAUSES_MAX: usize = 100;

type Patterns = HashMap<String, Option<Arc<Regex>>>;

static PATTERNS: LazyLock<Mutex<Patterns>> = LazyLock::new(Mutex::default);

fn pattern(text: &str) -> Option<Arc<Regex>> {
    let mut known = PATTERNS.lock();
    if known.len() >= PATTERNS_MAX {
        known.clear();
    }
    // The engine is linear in time; the size limit bounds its memory.
    let compile = || regex::RegexBuilder::new(text).size_limit(1 << 20).build().ok().map(Arc::new);
    known.entry(text.to_owned()).or_insert_with(compile).clone()
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Whether a schema is structural: a type at every level and none of the forbidden words.
pub(crate) fn check_schema(schema: &Value, path: &str, root: bool, causes: &mut Vec<Cause>) {
    let Some(map) = schema.as_object() else {
        causes.push(Cause::invalid(path, schema, "must be an object"));
        return;
    };
    if causes.len() >= CAUSES_MAX || path.matches(['.', '[']).count() > 2 * DEPTH_MAX {
        return;
    }
    for word in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"] {
        if map.get(word).is_some_and(|value| !value.is_null()) {
            causes.push(Cause::forbidden(format!("{path}.{word}"), "is not allowed"));
        }
    }
    let kind = json::text(schema, &["type"]);
    let open = flag(schema, "x-kubernetes-preserve-unknown-fields") || flag(schema, "x-kubernetes-int-or-string");
    if kind.is_empty() && !open {
        causes.push(Cause::required(format!("{path}.type"), "must not be empty for specified object fields"));
    }
    if root && kind != "object" {
        causes.push(Cause::invalid(format!("{path}.type"), &json!(kind), "must be object at the root"));
    }
    if map.contains_key("properties") && map.contains_key("additionalProperties") {
        let why = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), why));
    }
    if let Some(text) = map.get("pattern").and_then(Value::as_str)
        && pattern(text).is_none()
    {
        causes.push(Cause::invalid(format!("{path}.pattern"), &json!(text), "must be a valid regular expression"));
    }
    if json::text(schema, &["x-kubernetes-list-type"]) == "map"
        && json::list(schema, &["x-kubernetes-list-map-keys"]).is_empty()
    {
        causes
            .push(Cause::required(format!("{path}.x-kubernetes-list-map-keys"), "must not be empty for list type map"));
    }
    for (name, child) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_schema(child, &format!("{path}.properties[{name}]"), false, causes);
    }
    if let Some(items) = map.get("items") {
        check_schema(items, &format!("{path}.items"), false, causes);
    } else if kind == "array" {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(additional @ Value::Object(_)) = map.get("additionalProperties") {
        check_schema(additional, &format!("{path}.additionalProperties"), false, causes);
    }
    super::rules::check_form(schema, path, causes);
    if let Some(default) = map.get("default") {
        let mut problems = Vec::new();
        validate(default, None, schema, &format!("{path}.default"), &mut problems);
        causes.extend(problems);
    }
}

/// Removes fields that the schema does not know; their paths are collected.
pub(crate) fn prune(value: &mut Value, schema: &Value, root: bool, path: &str, dropped: &mut Vec<String>) {
    let keep_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields");
    let embedded = root || flag(schema, "x-kubernetes-embedded-resource");
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let additional = schema.get("additionalProperties");
            let own = |key: &str| embedded && matches!(key, "apiVersion" | "kind" | "metadata");
            let known = |key: &str| {
                own(key)
                    || properties.is_some_and(|p| p.contains_key(key))
                    || additional.is_some_and(|a| a.is_object() || a == &Value::Bool(true))
                    || keep_unknown
            };
            map.retain(|key, _| {
                let keep = known(key);
                if !keep {
                    dropped.push(format!("{path}{key}"));
                }
                keep
            });
            for (key, child) in map.iter_mut().filter(|(key, _)| !own(key)) {
                if let Some(schema) = properties.and_then(|p| p.get(key)).or(additional.filter(|a| a.is_object())) {
                    prune(child, schema, false, &format!("{path}{key}."), dropped);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                let path = path.trim_end_matches('.');
                for (index, item) in items.iter_mut().enumerate() {
                    prune(item, schema, false, &format!("{path}[{index}]."), dropped);
                }
            }
        }
        _ => {}
    }
}

/// Puts defaults where nothing is given, from the top down.
pub(crate) fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let Some(default) = property.get("default") else { continue };
                // A null that the schema does not allow counts as absent.
                let absent = map.get(name).is_none_or(|v| v.is_null() && !flag(property, "nullable"));
                if absent {
                    map.insert(name.clone(), default.clone());
                }
            }
            let properties = schema.get("properties").and_then(Value::as_object);
            let additional = schema.get("additionalProperties").filter(|a| a.is_object());
            for (key, child) in map.iter_mut() {
                if let Some(schema) = properties.and_then(|p| p.get(key)).or(additional) {
                    self::default(child, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| self::default(item, schema));
            }
        }
        _ => {}
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|f| f.fract() == 0.0)
}

/// Collects what is wrong with the value. What is as it was in `old` is not wrong any more: a schema that became narrower
/// does not hold up changes of something else.
pub(crate) fn validate(value: &Value, old: Option<&Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= CAUSES_MAX || old.is_some_and(|old| same(old, value)) {
        return;
    }
    // The type stands where the value would.
    let mistyped = |expected: &str, found: &str| Cause {
        reason: "FieldValueTypeInvalid",
        ..Cause::invalid(path, &json!(found), &format!("{path} in body must be of type {expected}: \"{found}\""))
    };
    if value.is_null() {
        if !flag(schema, "nullable") && !json::text(schema, &["type"]).is_empty() {
            causes.push(mistyped(json::text(schema, &["type"]), "null"));
        }
        return;
    }
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    let expected = json::text(schema, &["type"]);
    let found = type_name(value);
    if int_or_string {
        if !matches!(found, "integer" | "string") {
            causes.push(mistyped("integer,string", found));
            return;
        }
    } else if !(expected.is_empty() || expected == found || (expected == "number" && found == "integer")) {
        causes.push(mistyped(expected, found));
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
            causes.push(Cause::not_supported(path, value, allowed));
        }
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(|a| same(a, value))
    {
        causes.push(Cause::not_supported(path, value, allowed));
    }
    match value {
        Value::Object(map) => validate_map(map, old, schema, path, causes),
        Value::Array(items) => validate_list(value, items, old, schema, path, causes),
        Value::String(text) => validate_text(value, text, schema, path, causes),
        Value::Number(number) => validate_number(value, number, schema, path, causes),
        _ => {}
    }
    combinations(value, schema, path, causes);
}

fn too_many(path: &str, count: u64, max: u64) -> Cause {
    let unit = if max == 1 { "item" } else { "items" };
    let message = format!("Too many: {count}: must have at most {max} {unit}");
    Cause { reason: "FieldValueTooMany", message, field: path.to_owned() }
}

/// Whether the schema, or a part of it, has rules in CEL.
pub(crate) fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.get("x-kubernetes-validations").is_some_and(Value::is_array) || map.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

fn validate_map(map: &Map<String, Value>, old: Option<&Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let count = map.len() as u64;
    if bound("maxProperties").is_some_and(|max| count > max) {
        causes.push(too_many(path, count, bound("maxProperties").unwrap_or_default()));
    }
    if bound("minProperties").is_some_and(|min| count < min) {
        let why =
            format!("{path} in body should have at least {} properties", bound("minProperties").unwrap_or_default());
        causes.push(Cause::invalid(path, &json!(count), &why));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    for (key, child) in map {
        match properties.and_then(|p| p.get(key)).or(additional.filter(|a| a.is_object())) {
            Some(schema) => validate(child, old.and_then(|old| old.get(key)), schema, &join(key), causes),
            None if additional == Some(&Value::Bool(false)) => {
                causes.push(Cause::forbidden(join(key), "additional properties are not allowed"));
            }
            None => {}
        }
    }
    for name in json::list(schema, &["required"]).iter().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            causes.push(Cause::required(join(name), ""));
        }
    }
}

fn validate_list(
    value: &Value,
    items: &[Value],
    old: Option<&Value>,
    schema: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let invalid = |why: String| Cause::invalid(path, value, &format!("{path} in body {why}"));
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let count = items.len() as u64;
    if let Some(max) = bound("maxItems").filter(|max| count > *max) {
        causes.push(too_many(path, count, max));
    }
    if let Some(min) = bound("minItems").filter(|min| count < *min) {
        causes.push(invalid(format!("should have at least {min} items")));
    }
    let keys = json::list(schema, &["x-kubernetes-list-map-keys"]);
    let by_key = json::text(schema, &["x-kubernetes-list-type"]) == "map";
    let identity = |item: &Value| match json::text(schema, &["x-kubernetes-list-type"]) {
        "map" => {
            let pairs = keys
                .iter()
                .filter_map(Value::as_str)
                .map(|key| (key.to_owned(), item.get(key).cloned().unwrap_or_default()));
            Some(Value::Object(pairs.collect()).to_string())
        }
        "set" => Some(item.to_string()),
        _ if flag(schema, "uniqueItems") => Some(item.to_string()),
        _ => None,
    };
    if let Some(schema) = schema.get("items") {
        // Only items with keys have a past.
        let old = old.and_then(Value::as_array).filter(|_| by_key).into_iter().flatten();
        let old = old.filter_map(|item| Some((identity(item)?, item))).collect::<HashMap<_, _>>();
        for (index, item) in items.iter().enumerate() {
            let old = if old.is_empty() { None } else { identity(item).and_then(|key| old.get(&key).copied()) };
            validate(item, old, schema, &format!("{path}[{index}]"), causes);
        }
    }
    if json::text(schema, &["x-kubernetes-list-type"]) == "map" {
        for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.is_object()) {
            let why = "must be an object for an array of list-type map";
            causes.push(Cause::invalid(format!("{path}[{index}]"), item, why));
        }
    }
    let mut seen = std::collections::HashSet::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(identity) = identity(item)
            && !seen.insert(identity.clone())
        {
            let shown = serde_json::from_str(&identity).unwrap_or(Value::String(identity));
            causes.push(Cause::duplicate(format!("{path}[{index}]"), &shown));
        }
    }
}

fn validate_text(value: &Value, text: &str, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let invalid = |why: String| Cause::invalid(path, value, &format!("{path} in body {why}"));
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let count = text.chars().count() as u64;
    if let Some(max) = bound("maxLength").filter(|max| count > *max) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        causes.push(Cause { reason: "FieldValueTooLong", message, field: path.to_owned() });
    }
    if let Some(min) = bound("minLength").filter(|min| count < *min) {
        causes.push(invalid(format!("should be at least {min} chars long")));
    }
    if let Some(wanted) = schema.get("pattern").and_then(Value::as_str)
        && !pattern(wanted).is_some_and(|regex| regex.is_match(text))
    {
        causes.push(invalid(format!("should match '{wanted}'")));
    }
    let format = json::text(schema, &["format"]);
    let good = match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "byte" => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_ok(),
        _ => true,
    };
    if !good {
        causes.push(invalid(format!("must be of type {format}: \"{text}\"")));
    }
}

fn validate_number(value: &Value, number: &serde_json::Number, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let invalid = |why: String| Cause::invalid(path, value, &format!("{path} in body {why}"));
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let Some(n) = number.as_f64() else { return };
    if let Some(max) = bound("maximum") {
        if flag(schema, "exclusiveMaximum") && n >= max {
            causes.push(invalid(format!("should be less than {max}")));
        } else if n > max {
            causes.push(invalid(format!("should be less than or equal to {max}")));
        }
    }
    if let Some(min) = bound("minimum") {
        if flag(schema, "exclusiveMinimum") && n <= min {
            causes.push(invalid(format!("should be greater than {min}")));
        } else if n < min {
            causes.push(invalid(format!("should be greater than or equal to {min}")));
        }
    }
    if let Some(step) = bound("multipleOf").filter(|step| *step != 0.0)
        && (n / step).fract().abs() > 1e-9
    {
        causes.push(invalid(format!("should be a multiple of {step}")));
    }
    if json::text(schema, &["format"]) == "int32" && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n) {
        causes.push(invalid("must be of type int32".to_owned()));
    }
}

fn combinations(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let fits = |schema: &Value| {
        let mut problems = Vec::new();
        validate(value, None, schema, path, &mut problems);
        problems.is_empty()
    };
    let invalid = |why: &str| Cause::invalid(path, value, &format!("{path} in body {why}"));
    for part in json::list(schema, &["allOf"]) {
        validate(value, None, part, path, causes);
    }
    let any = json::list(schema, &["anyOf"]);
    if !any.is_empty() && !any.iter().any(fits) {
        causes.push(invalid("must validate at least one schema (anyOf)"));
    }
    let one = json::list(schema, &["oneOf"]);
    if !one.is_empty() && one.iter().filter(|part| fits(part)).count() != 1 {
        causes.push(invalid("must validate one and only one schema (oneOf)"));
    }
    if schema.get("not").is_some_and(fits) {
        causes.push(invalid("must not validate the schema (not)"));
    }
}
