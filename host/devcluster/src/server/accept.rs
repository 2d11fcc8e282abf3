//! Representations: plain JSON, a Table for people, or only the metadata.

use http::{HeaderMap, header};
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Table,
    Metadata,
}

fn accepted(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|item| item.trim().to_ascii_lowercase()).collect()
}

/// The first representation that the client accepts and the server has; `None` is 406.
pub(super) fn format(headers: &HeaderMap) -> Option<Format> {
    let items = accepted(headers);
    if items.iter().all(String::is_empty) {
        return Some(Format::Json);
    }
    items.iter().find_map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*" | "application/yaml" | "text/*" | "text/plain")
        {
            return None;
        }
        let parameter = |name: &str| item.split(';').map(str::trim).find_map(|p| p.strip_prefix(name));
        match parameter("as=") {
            None => Some(Format::Json),
            Some("table") if parameter("v=") == Some("v1") => Some(Format::Table),
            Some("partialobjectmetadata" | "partialobjectmetadatalist") => Some(Format::Metadata),
            Some(_) => None,
        }
    })
}

/// Whether the client prefers aggregated discovery.
pub(super) fn wants_aggregated(headers: &HeaderMap) -> bool {
    accepted(headers).first().is_some_and(|item| {
        item.contains("as=apigroupdiscoverylist") && item.contains("v=v2") && !item.contains("v=v2beta1")
    })
}

/// The metadata of an object.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}
