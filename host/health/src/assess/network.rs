//! Service, Ingress and APIService: can others reach what it stands for?

use serde_json::Value;

use super::{Subject, healthy, progressing};
use crate::assess::Compatibility;
use crate::object::{Reading, first};
use crate::verdict::Health;

pub(super) fn service(subject: &Subject<'_>) -> Reading<Health> {
    if subject.fields.text("spec.type")? != "LoadBalancer" {
        return healthy("");
    }
    // Reads the list for its types: a malformed one is a complaint and not a missing address.
    subject.fields.items("status.loadBalancer.ingress")?;
    if has_address(subject) { healthy("") } else { progressing("") }
}

/// Other than the checks of typed kinds, this one takes a malformed address list for none.
pub(super) fn ingress(subject: &Subject<'_>) -> Reading<Health> {
    if has_address(subject) { healthy("") } else { progressing("") }
}

fn has_address(subject: &Subject<'_>) -> bool {
    let entries = subject.object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    let is_address = |entry: &Value| {
        ["hostname", "ip"]
            .iter()
            .any(|name| entry.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty()))
    };
    entries.is_some_and(|entries| match subject.compatibility {
        Compatibility::Documented => entries.iter().any(is_address),
        Compatibility::ArgoCd => !entries.is_empty(),
    })
}

pub(super) fn api_service(subject: &Subject<'_>) -> Reading<Health> {
    let conditions = subject.fields.conditions("status.conditions")?;
    let Some(available) = first(&conditions, "Available") else {
        return progressing("Waiting to be processed");
    };
    let message = format!("{}: {}", available.reason, available.message);
    if available.is_true() { healthy(message) } else { progressing(message) }
}
