//! Kubernetes Events about applications: what `kubectl describe` shows.
//!
//! One Event per application, reason and message; a repetition raises its count. Writing an Event never fails the work
//! that it is about: a failure is only logged.

use barbless_domain::identity::{ApplicationId, ObjectRef};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Cluster;
use crate::crd::{GROUP, VERSION};
use crate::error::Error;
use crate::limits::EVENT_MESSAGE;
use crate::request::Target;

const COMPONENT: &str = "barbless";

/// Whether an Event is about something that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// What happened.
    Normal,
    /// What went wrong.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Cluster {
    /// Tells of an application. `uid` is that of the Application object, so that the Event is found with it; `reason`
    /// is a stable word in PascalCase. The message must not hold a secret.
    pub async fn event(
        &self,
        application: &ApplicationId,
        uid: &str,
        kind: EventType,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        if let Err(error) = self.write_event(application, uid, kind, reason, message, now).await {
            tracing::warn!(%application, reason, error = error.chain(), "an Event could not be written");
        }
    }

    async fn write_event(
        &self,
        application: &ApplicationId,
        uid: &str,
        kind: EventType,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let message: String = message.chars().take(EVENT_MESSAGE).collect();
        let mut hasher = Sha256::new();
        for part in [uid, reason, kind.as_str(), &message] {
            hasher.update(part.as_bytes());
            hasher.update([0]);
        }
        let hash: String = hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let target = ObjectRef {
            gvk: barbless_domain::identity::Gvk {
                group: String::new(),
                version: "v1".to_owned(),
                kind: "Event".to_owned(),
            },
            namespace: application.namespace().to_owned(),
            name: format!("{}.{hash}", application.name()),
        };
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        let time = seconds(now);
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "involvedObject": {
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Application",
                "namespace": application.namespace(), "name": application.name(), "uid": uid,
            },
            "type": kind.as_str(), "reason": reason, "message": message,
            "source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "reportingInstance": COMPONENT,
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        });
        match self.create_in(&at, COMPONENT, &event).await {
            Err(error) if error.is_already_exists() => {
                let Some(live) = self.get_in(&at).await? else { return Ok(()) };
                let count = live.get("count").and_then(Value::as_i64).unwrap_or(1).saturating_add(1);
                let patch = json!({"count": count, "lastTimestamp": time});
                self.merge_in(&at, COMPONENT, &patch).await?;
                Ok(())
            }
            created => created.map(drop),
        }
    }
}

/// RFC 3339 with whole seconds, as `metav1.Time` has it.
pub(crate) fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}
