//! `/openapi/v3`: one document per group version, made from the schemas that the server itself uses.
//!
//! Descriptions are left out. Paths say just enough for kubectl: which kinds exist and that writes know field validation.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    catalog::{Resource, Table, group_version},
    schema,
};

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub(super) fn index(table: &Table) -> Value {
    let versions = table.keys().map(|(group, version, _)| (group, version)).collect::<BTreeSet<_>>();
    let mut paths = Map::new();
    for (group, version) in versions {
        let path = path_of(group, version);
        // Built-in documents are fixed for this build; those of custom kinds change with their schema.
        let mut hash = Sha256::new();
        hash.update(super::GIT_VERSION);
        for resource in of(table, group, version) {
            hash.update(&resource.plural);
            if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schema.as_ref()) {
                hash.update(schema.to_string());
            }
        }
        let tag = hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={tag}")}));
    }
    json!({"paths": paths})
}

fn of<'a>(table: &'a Table, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    table.iter().filter(move |((g, v, _), _)| g == group && v == version).map(|(_, resource)| &**resource)
}

/// The document of one group version.
pub(super) fn document(table: &Table, path: &str) -> Option<Value> {
    let parts = path.split('/').collect::<Vec<_>>();
    let (group, version) = match parts.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in of(table, group, version) {
        let name = add_type(resource, &mut schemas);
        add_paths(resource, &name, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": super::GIT_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn add_type(resource: &Resource, schemas: &mut Map<String, Value>) -> String {
    let Some(custom) = &resource.custom else {
        close(&resource.type_name, schemas);
        return resource.type_name.clone();
    };
    let mut reversed = resource.group.split('.').rev().collect::<Vec<_>>();
    reversed.extend([resource.version.as_str(), resource.kind.as_str()]);
    let name = reversed.join(".");
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut schema = custom.schema.as_ref().map_or_else(open, |schema| Value::clone(schema));
    for (field, value) in [
        ("apiVersion", json!({"type": "string"})),
        ("kind", json!({"type": "string"})),
        ("metadata", json!({"$ref": format!("#/components/schemas/{}", schema::OBJECT_META)})),
    ] {
        crate::json::set(&mut schema, &["properties", field], value);
    }
    crate::json::set(&mut schema, &["x-kubernetes-group-version-kind"], json!([gvk(resource)]));
    schemas.insert(name.clone(), schema);
    close(schema::OBJECT_META, schemas);
    name
}

/// Adds a built-in type and all that it refers to.
fn close(name: &str, schemas: &mut Map<String, Value>) {
    let mut queue = vec![name.to_owned()];
    while let Some(name) = queue.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(raw) = schema::types().get(&name) else { continue };
        references(raw, &mut queue);
        schemas.insert(name, raw.clone());
    }
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                found.extend(target.rsplit('/').next().map(str::to_owned));
            }
            map.values().for_each(|child| references(child, found));
        }
        Value::Array(items) => items.iter().for_each(|child| references(child, found)),
        _ => {}
    }
}

fn add_paths(resource: &Resource, type_name: &str, paths: &mut Map<String, Value>) {
    let root = if resource.group.is_empty() { "api".to_owned() } else { "apis".to_owned() };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let base = format!("/{root}/{}{scope}/{}", group_version(&resource.group, &resource.version), resource.plural);
    let reference = json!({"$ref": format!("#/components/schemas/{type_name}")});
    let content = json!({"application/json": {"schema": reference}});
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let writing = json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")]);
    let operation = |action: &str, parameters: &Value| {
        json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(resource),
            "parameters": parameters, "responses": {"200": {"description": "OK", "content": content}},
        })
    };
    let none = json!([]);
    let (mut collection, mut item) = (Map::new(), Map::new());
    for verb in &resource.verbs {
        match verb.as_str() {
            "list" => collection.insert("get".to_owned(), operation("list", &none)),
            "create" => collection.insert("post".to_owned(), operation("post", &writing)),
            "deletecollection" => collection.insert("delete".to_owned(), operation("deletecollection", &none)),
            "get" => item.insert("get".to_owned(), operation("get", &none)),
            "update" => item.insert("put".to_owned(), operation("put", &writing)),
            "patch" => item.insert("patch".to_owned(), operation("patch", &writing)),
            "delete" => item.insert("delete".to_owned(), operation("delete", &none)),
            _ => None,
        };
    }
    if !collection.is_empty() {
        paths.insert(base.clone(), Value::Object(collection));
    }
    if !item.is_empty() {
        paths.insert(format!("{base}/{{name}}"), Value::Object(item));
    }
}
