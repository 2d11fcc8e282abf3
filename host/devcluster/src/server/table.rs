//! Tables for people: the columns of `kubectl get`.

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    json::{int, text},
};

mod cells;
mod columns;
mod pods;

use cells::age;
use columns::columns;

const NAME: &str = "Name";

/// A Table object. `include` is the parameter `includeObject`: Metadata (default), None or Object.
pub(super) fn render<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Option<&Value>,
    include: &str,
) -> Value {
    let columns = columns(resource);
    let custom = resource.custom.as_ref().map(|custom| custom.columns.as_slice()).unwrap_or_default();
    let name = json!({"name": NAME, "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace."});
    let mut definitions = Vec::new();
    // A few kinds show their name elsewhere, or not as it is.
    let own_name = columns.iter().any(|column| column.name == NAME);
    if !own_name {
        definitions.push(name);
    }
    for column in columns {
        let format = if column.name == NAME { "name" } else { "" };
        definitions.push(json!({"name": column.name, "type": column.kind, "format": format,
            "priority": i32::from(column.wide), "description": column.name}));
    }
    for column in custom {
        definitions.push(json!({
            "name": text(column, &["name"]), "type": text(column, &["type"]), "format": text(column, &["format"]),
            "priority": int(column, &["priority"]).unwrap_or_default(), "description": text(column, &["description"]),
        }));
    }
    let plain = columns.is_empty() && custom.is_empty();
    if plain {
        definitions.push(json!({"name": "Age", "type": "string", "format": "", "priority": 0, "description": "Age"}));
    }
    let rows = objects
        .map(|object| {
            let name = (!own_name).then(|| json!(text(object, &["metadata", "name"])));
            let mut cells = name.into_iter().collect::<Vec<_>>();
            cells.extend(columns.iter().map(|column| (column.cell)(object)));
            cells.extend(custom.iter().map(|column| custom_cell(column, object)));
            if plain {
                cells.push(age(object));
            }
            let shown = match include {
                "None" => Value::Null,
                "Object" => object.clone(),
                _ => super::accept::partial(object),
            };
            json!({"cells": cells, "object": shown})
        })
        .collect::<Vec<_>>();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata.cloned().unwrap_or_else(|| json!({})),
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn custom_cell(column: &Value, object: &Value) -> Value {
    let found = json_path(object, text(column, &["jsonPath"]));
    match (text(column, &["type"]), found) {
        ("date", Some(Value::String(time))) => json!(since(&time)),
        ("string", Some(value @ (Value::Object(_) | Value::Array(_)))) => json!(value.to_string()),
        ("string", Some(value)) if !value.is_string() => json!(value.to_string()),
        (_, Some(value)) => value,
        (_, None) => Value::Null,
    }
}

/// The simple JSON paths of printer columns: `.a.b[0].c`, `.a["x.y"]`, `.c[?(@.type=="Ready")].status`.
fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut here = object;
    let mut rest = path.trim_start_matches(['{', '$']).trim_end_matches('}');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let (inside, after) = tail.split_once(']')?;
            here = step(here, inside)?;
            rest = after;
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = tail.len();
            let mut escaped = false;
            for (index, character) in tail.char_indices() {
                match character {
                    '\\' => escaped = true,
                    '.' | '[' if !escaped => {
                        end = index;
                        break;
                    }
                    _ => escaped = false,
                }
            }
            let (name, after) = tail.split_at(end);
            here = here.get(name.replace('\\', ""))?;
            rest = after;
        }
    }
    Some(here.clone())
}

fn step<'a>(value: &'a Value, inside: &str) -> Option<&'a Value> {
    if let Some(filter) = inside.strip_prefix("?(@.").and_then(|f| f.strip_suffix(')')) {
        let (field, wanted) = filter.split_once("==")?;
        let wanted = wanted.trim().trim_matches(['"', '\'']);
        return value.as_array()?.iter().find(|item| item.get(field.trim()).and_then(Value::as_str) == Some(wanted));
    }
    match inside.parse::<usize>() {
        Ok(index) => value.get(index),
        Err(_) => value.get(inside.trim_matches(['"', '\''])),
    }
}

/// How long ago a time was, as kubectl says it.
fn since(time: &str) -> String {
    let Ok(then) = time.parse::<jiff::Timestamp>() else { return "<unknown>".to_owned() };
    human(jiff::Timestamp::now().duration_since(then).as_secs())
}

/// Seconds as kubectl says them.
fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => format!("{minutes}m{}", some(seconds % 60, "s")),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => format!("{hours}h{}", some(minutes % 60, "m")),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => format!("{days}d{}", some(hours % 24, "h")),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => format!("{}y{}", days / 365, some(days % 365, "d")),
        () => format!("{}y", days / 365),
    }
}

fn some(amount: i64, unit: &str) -> String {
    if amount == 0 { String::new() } else { format!("{amount}{unit}") }
}

#[cfg(test)]
mod tests;
