//! Events: what a real cluster tells people of what it does, and when something goes wrong.

use serde_json::{Value, json};

use super::{Context, NODE, finish, short_hash};
use crate::{
    json::{self, int, set, text},
    registry::{Edit, Options},
    status::ApiError,
};

const EVENTS: &str = "/events";
/// Where Events about objects without a namespace are.
const NAMESPACE: &str = "default";

impl Context {
    /// Warns about an object. The same warning again is counted in the Event that is there.
    pub(super) fn warn(&self, about: &Value, reporter: &str, reason: &str, message: &str) -> Result<(), ApiError> {
        self.tell("Warning", about, reporter, reason, message)
    }

    /// Tells of something that went as it should.
    pub(super) fn note(&self, about: &Value, reporter: &str, reason: &str, message: &str) -> Result<(), ApiError> {
        self.tell("Normal", about, reporter, reason, message)
    }

    fn tell(&self, kind: &str, about: &Value, reporter: &str, reason: &str, message: &str) -> Result<(), ApiError> {
        let part = |field: &str| text(about, &["metadata", field]);
        let uid = part("uid");
        let namespace = if part("namespace").is_empty() { NAMESPACE } else { part("namespace") };
        let hash = short_hash(&json!([uid, reason, message]));
        let base = part("name").chars().take(200).collect::<String>();
        let name = format!("{base}.{hash}");
        let now = json::now();
        if self.registry.store.get(EVENTS, namespace, &name).is_some() {
            let again = |event: &mut Value| {
                let count = int(event, &["count"]).unwrap_or(1);
                set(event, &["count"], json!(count.saturating_add(1)));
                set(event, &["lastTimestamp"], json!(now));
                true
            };
            let resource = self.resource("v1", "Event")?;
            let edit = Edit::With(&again);
            return ignore_loss(
                self.registry.update(&resource, namespace, &name, "", &edit, Options::of(reporter)).map(|outcome| {
                    finish(outcome);
                }),
            );
        }
        let host = if reporter == "kubelet" {
            json!({"component": reporter, "host": NODE})
        } else {
            json!({"component": reporter})
        };
        let mut involved = json!({
            "apiVersion": text(about, &["apiVersion"]), "kind": text(about, &["kind"]), "name": part("name"),
            "uid": uid, "resourceVersion": part("resourceVersion"),
        });
        if !part("namespace").is_empty() {
            set(&mut involved, &["namespace"], json!(namespace));
        }
        let event = json!({
            "metadata": {"name": name}, "involvedObject": involved,
            "type": kind, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": host,
            "reportingComponent": reporter, "reportingInstance": if reporter == "kubelet" { NODE } else { "" },
        });
        ignore_loss(self.create("v1", "Event", namespace, event).map(|_| ()))
    }
}

/// The namespace may be going, or the Event has just expired: nobody will read it.
fn ignore_loss(told: Result<(), ApiError>) -> Result<(), ApiError> {
    match told {
        Err(error) if matches!(error.code, 403 | 404 | 409) => Ok(()),
        told => told,
    }
}
