//! Moves fields from one manager to another.
//!
//! Helm owns the fields that it applied. Were we to apply over them, a field that our manifest drops would stay, because
//! Helm still wants it. So its entries of `metadata.managedFields` become ours before the first apply, as client-go does
//! when an object goes from client-side to server-side apply.

use barbless_domain::identity::ObjectRef;
use serde_json::{Map, Value, json};

use crate::Cluster;
use crate::error::Error;
use crate::limits::CONFLICT_RETRIES;
use crate::request::{Target, metadata};

#[cfg(test)]
mod tests;

/// The JSON patch that gives `to` what the managers `from` have of an object: those that applied it, and those that
/// wrote it in the way of Helm 3 and `kubectl apply` without server-side apply. Entries of subresources stay. Nothing if
/// they have none.
///
/// The patch is refused if the object changed since it was read.
#[must_use]
pub fn adopt_fields(object: &Value, from: &[&str], to: &str) -> Option<Value> {
    let version = metadata(object, "resourceVersion")?;
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_of = |entry: &Value, managers: &[&str], operations: &[&str]| {
        text(entry, "subresource").is_empty()
            && managers.contains(&text(entry, "manager").as_str())
            && operations.contains(&text(entry, "operation").as_str())
    };
    if !entries.iter().any(|entry| is_of(entry, from, &["Apply", "Update"])) {
        return None;
    }
    // What we wrote otherwise than by applying, if anything, would keep its fields too.
    let moves = |entry: &Value| is_of(entry, from, &["Apply", "Update"]) || is_of(entry, &[to], &["Apply"]);
    let mut fields = Map::new();
    let mut adopted = Value::Null;
    for entry in entries.iter().filter(|entry| moves(entry)) {
        if let Some(more) = entry.get("fieldsV1").and_then(Value::as_object) {
            unite(&mut fields, more);
        }
        // Paths are of a version of the API. The newest entry has the one that objects are written in now.
        if adopted.is_null() || text(entry, "time") >= text(&adopted, "time") {
            adopted = entry.clone();
        }
    }
    let mut left: Vec<Value> = entries.iter().filter(|entry| !moves(entry)).cloned().collect();
    adopted["manager"] = to.into();
    adopted["operation"] = "Apply".into();
    adopted["fieldsType"] = "FieldsV1".into();
    adopted["fieldsV1"] = fields.into();
    left.insert(0, adopted);
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": left},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

/// Adds a set of fields to another.
fn unite(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (field, inner) in more {
        let here = fields.entry(field.clone()).or_insert_with(|| json!({}));
        if let (Some(here), Some(inner)) = (here.as_object_mut(), inner.as_object()) {
            unite(here, inner);
        }
    }
}

impl Cluster {
    /// Gives `to` the fields that the managers `from` have of an object, see [`adopt_fields`]. Returns the object as it
    /// is then; nothing if there is none.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or other writers win each of several races.
    pub async fn adopt_fields(&self, object: &ObjectRef, from: &[&str], to: &str) -> Result<Option<Value>, Error> {
        let resource = self.resolve(&object.gvk).await?;
        let at = Target { resource: &resource, object };
        for _ in 0..CONFLICT_RETRIES {
            let Some(live) = self.get_in(&at).await? else { return Ok(None) };
            let Some(patch) = adopt_fields(&live, from, to) else { return Ok(Some(live)) };
            match self.json_patch_in(&at, to, &patch).await {
                Ok(changed) => return Ok(Some(changed)),
                Err(error) if error.is_lost_race() => {}
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended { action: "patch", object: object.to_string(), attempts: CONFLICT_RETRIES })
    }
}
