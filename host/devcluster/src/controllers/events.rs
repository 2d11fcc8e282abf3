//! Events: what a real cluster tells people when something goes wrong. Only warnings; nobody needs to be told what went
//! well.

use serde_json::{Value, json};

use super::{Context, NODE, finish, short_hash};
use crate::{
    json::{self, int, set, text},
    registry::{Edit, Options},
    status::ApiError,
};

const EVENTS: &str = "/events";

impl Context {
    /// Warns about an object. The same warning again is counted in the Event that is there.
    pub(super) fn warn(&self, about: &Value, reporter: &str, reason: &str, message: &str) -> Result<(), ApiError> {
        let part = |field: &str| text(about, &["metadata", field]);
        let (namespace, uid) = (part("namespace"), part("uid"));
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
            finish(self.registry.update(&resource, namespace, &name, "", &edit, Options::of(reporter))?);
            return Ok(());
        }
        let host = if reporter == "kubelet" {
            json!({"component": reporter, "host": NODE})
        } else {
            json!({"component": reporter})
        };
        let event = json!({
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": text(about, &["apiVersion"]), "kind": text(about, &["kind"]), "name": part("name"),
                "namespace": namespace, "uid": uid, "resourceVersion": part("resourceVersion"),
            },
            "type": "Warning", "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": host,
            "reportingComponent": reporter, "reportingInstance": if reporter == "kubelet" { NODE } else { "" },
        });
        match self.create("v1", "Event", namespace, event) {
            Ok(_) => Ok(()),
            // The namespace may be going: nobody will read it.
            Err(error) if matches!(error.code, 403 | 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
