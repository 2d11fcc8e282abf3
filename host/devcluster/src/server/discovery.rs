//! Discovery: groups, versions and resources, in the old form and aggregated.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::catalog::{Resource, Table, group_version};

pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": super::GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Versions of a group in the order of preference: stable before beta before alpha, higher numbers first.
fn versions<'a>(table: &'a Table, group: &str) -> Vec<&'a str> {
    let mut versions = table.keys().filter(|(g, _, _)| g == group).map(|(_, v, _)| v.as_str()).collect::<Vec<_>>();
    versions.dedup();
    versions.sort_by_key(|version| priority(version));
    versions.dedup();
    versions
}

/// Sorts `v2 < v1 < v1beta1 < v1alpha1 < foo`.
fn priority(version: &str) -> (u8, i64, i64, String) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, tail) = rest.split_at(digits);
        let major = major.parse::<i64>().ok()?;
        let (stage, minor) = if tail.is_empty() {
            (0, "0")
        } else if let Some(minor) = tail.strip_prefix("beta") {
            (1, minor)
        } else {
            (2, tail.strip_prefix("alpha")?)
        };
        Some((stage, -major, -minor.parse::<i64>().ok()?, String::new()))
    };
    parse().unwrap_or_else(|| (3, 0, 0, version.to_owned()))
}

fn group_names(table: &Table) -> Vec<&str> {
    let mut names = table.keys().map(|(group, _, _)| group.as_str()).filter(|g| !g.is_empty()).collect::<Vec<_>>();
    names.dedup();
    names
}

pub(super) fn root(table: &Table) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in group_names(table) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions(table, group).iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    json!({"paths": paths})
}

pub(super) fn groups(table: &Table) -> Value {
    let groups = group_names(table).into_iter().filter_map(|name| group_value(table, name)).collect::<Vec<_>>();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_value(table: &Table, group: &str) -> Option<Value> {
    let versions = versions(table, group)
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect::<Vec<_>>();
    let preferred = versions.first()?.clone();
    Some(json!({"name": group, "versions": versions, "preferredVersion": preferred}))
}

pub(super) fn group(table: &Table, group: &str) -> Option<Value> {
    let mut value = group_value(table, group)?;
    crate::json::set(&mut value, &["kind"], json!("APIGroup"));
    crate::json::set(&mut value, &["apiVersion"], json!("v1"));
    Some(value)
}

fn of<'a>(table: &'a Table, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    table.iter().filter(move |((g, v, _), _)| g == group && v == version).map(|(_, resource)| &**resource)
}

pub(super) fn resources(table: &Table, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in of(table, group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        if !resource.short.is_empty() {
            crate::json::set(&mut entry, &["shortNames"], json!(resource.short));
        }
        if !resource.categories.is_empty() {
            crate::json::set(&mut entry, &["categories"], json!(resource.categories));
        }
        list.push(entry);
        for sub in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if (sub.group.as_str(), sub.version.as_str()) != (group, version) {
                crate::json::set(&mut entry, &["group"], json!(sub.group));
                crate::json::set(&mut entry, &["version"], json!(sub.version));
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return None;
    }
    let group_version = group_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}))
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// All of it in one answer: the core group, or all others.
pub(super) fn aggregated(table: &Table, core: bool) -> Response {
    let names = if core { vec![""] } else { group_names(table) };
    let items = names.into_iter().map(|group| aggregated_group(table, group)).collect::<Vec<_>>();
    let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    let text = body.to_string();
    let tag = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    ([(header::CONTENT_TYPE, AGGREGATED.to_owned()), (header::ETAG, format!("\"{tag}\""))], text).into_response()
}

fn aggregated_group(table: &Table, group: &str) -> Value {
    let versions = versions(table, group)
        .into_iter()
        .map(|version| {
            let resources = of(table, group, version).map(aggregated_resource).collect::<Vec<_>>();
            json!({"version": version, "freshness": "Current", "resources": resources})
        })
        .collect::<Vec<_>>();
    let mut metadata = json!({"creationTimestamp": null});
    if !group.is_empty() {
        crate::json::set(&mut metadata, &["name"], json!(group));
    }
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let subresources = resource
        .subresources
        .iter()
        .map(|sub| {
            json!({"subresource": sub.name, "verbs": sub.verbs,
                   "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind}})
        })
        .collect::<Vec<_>>();
    let mut fields = BTreeMap::from([
        ("resource", json!(resource.plural)),
        ("responseKind", json!({"group": resource.group, "version": resource.version, "kind": resource.kind})),
        ("scope", json!(if resource.namespaced { "Namespaced" } else { "Cluster" })),
        ("singularResource", json!(resource.singular)),
        ("verbs", json!(resource.verbs)),
    ]);
    if !resource.short.is_empty() {
        fields.insert("shortNames", json!(resource.short));
    }
    if !resource.categories.is_empty() {
        fields.insert("categories", json!(resource.categories));
    }
    if !subresources.is_empty() {
        fields.insert("subresources", Value::Array(subresources));
    }
    json!(fields)
}
