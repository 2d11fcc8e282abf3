//! What has become of a write that was not answered.
//!
//! A request that is sent again after its answer was lost may be refused because it is done: the object exists, or has
//! another version than the one that was to be replaced. Whether that is our doing is read off the object. A replacement
//! names the version that it replaces, so if it was carried out, it made the first state after that version: the history of
//! the object tells, whatever others did since.

use barbless_domain::operation::Subresource;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use serde_json::{Map, Value};

use crate::Cluster;
use crate::error::Error;
use crate::limits::{CONFLICT_PAUSE, HISTORY_WAIT};
use crate::request::{Target, metadata};

/// Whether an object is what was made of this one, by this manager: it has all that was sent.
pub(crate) fn is_made_of(live: &Value, sent: &Value, manager: &str) -> bool {
    let mut sent = sent.clone();
    // A Secret takes text, and gives none.
    if let Some(Value::Object(text)) = sent.as_object_mut().and_then(|sent| sent.remove("stringData"))
        && let Some(sent) = sent.as_object_mut()
        && let Some(data) = sent.entry("data").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
    {
        data.extend(
            text.iter().map(|(key, text)| (key.clone(), STANDARD.encode(text.as_str().unwrap_or_default()).into())),
        );
    }
    is_written_by(live, manager) && has(live, &sent)
}

/// Whether a manager has written an object (not by apply).
fn is_written_by(live: &Value, manager: &str) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries.into_iter().flatten().any(|entry| text(entry, "manager") == manager && text(entry, "operation") == "Update")
}

/// Whether a document has all of another; it may have more in its maps.
fn has(live: &Value, sent: &Value) -> bool {
    match (live, sent) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(sent)) => {
            sent.iter().all(|(key, sent)| has(live.get(key).unwrap_or(&Value::Null), sent))
        }
        (Value::Array(live), Value::Array(sent)) => {
            live.len() == sent.len() && live.iter().zip(sent).all(|(live, sent)| has(live, sent))
        }
        // What the API server leaves out because it is empty.
        (Value::Null, Value::Object(sent)) => sent.values().all(|sent| has(&Value::Null, sent)),
        (Value::Null, Value::Array(sent)) => sent.is_empty(),
        (live, sent) => live == sent,
    }
}

/// A replacement, or one of a subresource.
pub(crate) struct Written<'a> {
    /// What was read.
    pub(crate) before: &'a Value,
    /// What was sent.
    pub(crate) after: &'a Value,
    /// The part that it is of.
    pub(crate) subresource: Option<Subresource>,
}

impl Written<'_> {
    /// Whether a state of the object is the one that this has made.
    pub(crate) fn is_in(&self, found: &Value, manager: &str) -> bool {
        let part = |object: &Value, pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
        let is_same = match self.subresource {
            None => is_changed(found, self.before, self.after),
            Some(Subresource::Status) => {
                is_changed(&part(found, "/status"), &part(self.before, "/status"), &part(self.after, "/status"))
            }
            Some(Subresource::Scale) => part(found, "/spec/replicas") == part(self.after, "/spec/replicas"),
        };
        is_same && is_written_by(found, manager)
    }
}

/// What a state of an object says about a change.
#[derive(Default)]
struct Evidence {
    /// Parts of the change that are there.
    found: usize,
    /// Something is as the change did not make it.
    against: bool,
}

impl Evidence {
    /// Looks for the changes that lead from `before` to `after`. What was taken out may be there all the same: a replacement
    /// seldom has what the API server fills in.
    fn look(&mut self, found: &Value, before: &Value, after: &Value, is_metadata: bool) {
        let (Value::Object(old), Value::Object(new)) = (before, after) else {
            let is_there = has(found, after);
            self.found += usize::from(is_there);
            self.against |= !is_there;
            return;
        };
        // The API server's own.
        let own = |key: &str| is_metadata && matches!(key, "resourceVersion" | "managedFields" | "generation" | "uid");
        for (key, new) in new.iter().filter(|(key, new)| !own(key) && old.get(*key) != Some(*new)) {
            let here = found.get(key).unwrap_or(&Value::Null);
            self.look(here, old.get(key).unwrap_or(&Value::Null), new, key == "metadata");
        }
        let taken_out = old.keys().filter(|key| !own(key) && !new.contains_key(*key));
        self.found += taken_out.filter(|key| found.get(*key).is_none_or(Value::is_null)).count();
    }
}

/// Whether a document has every change that leads from `before` to `after`.
fn is_changed(found: &Value, before: &Value, after: &Value) -> bool {
    let mut evidence = Evidence::default();
    evidence.look(found, before, after, false);
    evidence.found > 0 && !evidence.against
}

impl Cluster {
    /// The first state of an object after this one; nothing if the API server no longer knows, or says nothing for long.
    pub(crate) async fn first_after(&self, target: &Target<'_>, live: &Value) -> Result<Option<Value>, Error> {
        let Some(version) = metadata(live, "resourceVersion") else { return Ok(None) };
        let looking = async {
            loop {
                match self.history(target, version).await {
                    Ok(Some(found)) => return Ok(found),
                    // The watch was cut off before it said anything.
                    Ok(None) => tokio::time::sleep(CONFLICT_PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        };
        tokio::time::timeout(HISTORY_WAIT, looking).await.unwrap_or(Ok(None))
    }

    /// One look at the history of an object: its first state after a version, or that the API server no longer knows it.
    async fn history(&self, target: &Target<'_>, version: &str) -> Result<Option<Option<Value>>, Error> {
        const ACTION: &str = "watch";
        let object = target.object;
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", object.name)).disable_bookmarks();
        let request = target.requests(ACTION)?.watch(&parameters, version);
        let request = request.map_err(|error| Error::of(ACTION, object, kube::Error::BuildRequest(error)))?;
        let mut events = match self.watch_client().request_events::<DynamicObject>(request).await {
            Ok(events) => Box::pin(events),
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Some(None)),
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(Error::of(ACTION, object, kube::Error::Api(status)));
            }
            // It is asked again.
            Err(_) => return Ok(None),
        };
        Ok(match events.next().await {
            Some(Ok(WatchEvent::Added(found) | WatchEvent::Modified(found) | WatchEvent::Deleted(found))) => {
                Some(serde_json::to_value(found).ok())
            }
            Some(Ok(WatchEvent::Error(_))) => Some(None),
            Some(Ok(WatchEvent::Bookmark(_)) | Err(_)) | None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_ours_if_it_has_all_our_changes_and_our_name() {
        let state = |data: Value, manager: &str| {
            let fields = json!([{"manager": manager, "operation": "Update"}]);
            json!({"metadata": {"name": "c", "resourceVersion": "7", "managedFields": fields}, "data": data})
        };
        let (before, after) = (state(json!({"n": "1", "gone": "x"}), "other"), state(json!({"n": "2"}), "other"));
        let written = Written { before: &before, after: &after, subresource: None };
        for (data, manager, ours) in [
            (json!({"n": "2"}), "we", true),
            (json!({"n": "2", "more": "of a webhook"}), "we", true),
            (json!({"n": "2"}), "other", false),
            (json!({"n": "3"}), "we", false),
            (json!({"n": "2", "gone": "filled in"}), "we", true),
        ] {
            assert_eq!(written.is_in(&state(data.clone(), manager), "we"), ours, "{data} {manager}");
        }
        // Nothing but something taken out.
        let after = state(json!({"n": "1"}), "other");
        let written = Written { before: &before, after: &after, subresource: None };
        assert!(written.is_in(&after, "other") && !written.is_in(&before, "other"));
    }

    #[test]
    fn a_status_is_compared_alone_and_a_scale_by_its_replicas() {
        let object = |replicas: u32, ready: u32| {
            let fields = json!([{"manager": "we", "operation": "Update", "subresource": "status"}]);
            json!({"metadata": {"managedFields": fields}, "spec": {"replicas": replicas}, "status": {"ready": ready}})
        };
        let (before, after) = (object(1, 1), object(2, 2));
        let status = Written { before: &before, after: &after, subresource: Some(Subresource::Status) };
        assert!(status.is_in(&object(1, 2), "we") && !status.is_in(&object(2, 1), "we"));
        let scale = Written { before: &before, after: &after, subresource: Some(Subresource::Scale) };
        assert!(scale.is_in(&object(2, 1), "we") && !scale.is_in(&object(1, 2), "we"));
    }

    #[test]
    fn what_is_empty_is_left_out_of_an_object() {
        let live =
            json!({"metadata": {"managedFields": [{"manager": "we", "operation": "Update"}]}, "a": [{"b": 1, "c": 2}]});
        for (sent, made) in [
            (json!({"a": [{"b": 1}], "d": {}, "e": [], "f": null, "g": {"h": {}}}), true),
            (json!({"a": [{"b": 1}, {"b": 2}]}), false),
            (json!({"a": [{"b": 2}]}), false),
            (json!({"d": {"e": 1}}), false),
        ] {
            assert_eq!(is_made_of(&live, &sent, "we"), made, "{sent}");
        }
        assert!(!is_made_of(&live, &json!({}), "they"));
    }
}
