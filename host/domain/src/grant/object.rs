//! What may stand in an object: whose it is, and which of its metadata a hook may write.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::kinds::is_host_domain;
use super::{Decision, Denial, INSTANCE_LABEL, PACKAGE_LABEL};
use crate::identity::ApplicationId;
use crate::limits;
use crate::operation::{Action, Operation, Subresource};

/// Name and value of the label that the objects of the host itself carry.
const HOST_LABEL: (&str, &str) = ("app.kubernetes.io/name", "barbless");
/// Secrets that are credentials as soon as they exist: the cluster fills them, or believes them.
const CREDENTIAL_TYPES: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
/// Metadata that the API server sets.
const SERVER_FIELDS: [&str; 7] = [
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "creationTimestamp",
    "uid",
    "resourceVersion",
];

type Checked = Result<(), Denial>;

fn refuse<T>(
    reason: &str,
    operation: &Operation,
    why: impl Into<String>,
    hint: impl Into<String>,
) -> Result<T, Denial> {
    Err(Denial { reason: reason.to_owned(), what: operation.to_string(), why: why.into(), hint: hint.into() })
}

impl From<Checked> for Decision {
    fn from(checked: Checked) -> Self {
        match checked {
            Ok(()) => Self::Allow,
            Err(denial) => Self::Deny(denial),
        }
    }
}

/// May an operation touch this object? Asked with the object that the guest gave, and with the live object before a
/// change. Looks at what says whose the object is, and at whether it is the object of the operation at all; fields that
/// are absent are not asked for, so a caller may show a part of an object.
#[must_use]
pub fn allows_object(application: &ApplicationId, operation: &Operation, object: &Value) -> Decision {
    touch(application, operation, object).into()
}

fn touch(application: &ApplicationId, operation: &Operation, object: &Value) -> Checked {
    if !object.is_object() {
        return refuse("BadOperation", operation, "the object is no JSON object", "give an object");
    }
    let metadata = object.get("metadata");
    is_target(application, operation, object)?;
    let label = |name: &str| metadata?.get("labels")?.get(name);
    match label(INSTANCE_LABEL) {
        None | Some(Value::Null) => {}
        Some(Value::String(owner)) if owner == application.name() => {}
        Some(other) => {
            let other = other.as_str().unwrap_or("?");
            return refuse(
                "ForeignObject",
                operation,
                format!("the object belongs to application '{other}'"),
                format!("set the label {INSTANCE_LABEL} to '{}', or leave it out", application.name()),
            );
        }
    }
    let text = |name: &str| label(name).and_then(Value::as_str);
    // Helm keeps its releases in Secrets and ConfigMaps of this owner label.
    if text("owner") == Some("helm")
        || operation.target.name.starts_with("sh.helm.release.v1.")
        || object.get("type").and_then(Value::as_str) == Some("helm.sh/release.v1")
    {
        return refuse(
            "HostObject",
            operation,
            "the object is a release record",
            "hooks cannot change release records",
        );
    }
    if text(HOST_LABEL.0) == Some(HOST_LABEL.1) {
        return refuse("HostObject", operation, "the object belongs to the host", "use another label or object");
    }
    Ok(())
}

/// Do the fields that name an object, as far as they are there, name the target?
fn is_target(application: &ApplicationId, operation: &Operation, object: &Value) -> Checked {
    let target = &operation.target;
    let metadata = object.get("metadata");
    if metadata.is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return refuse("BadOperation", operation, "metadata is no object", "write metadata as an object");
    }
    let gvk = &target.gvk;
    let api_version = gvk.api_version();
    // The body of a scale operation is a Scale, whatever it scales.
    let scale = operation.subresource == Some(Subresource::Scale)
        && object.get("kind").and_then(Value::as_str) == Some("Scale")
        && object.get("apiVersion").and_then(Value::as_str) == Some("autoscaling/v1");
    let namespace = if target.namespace.is_empty() { application.namespace() } else { target.namespace.as_str() };
    let named = |field: &str| metadata.and_then(|metadata| metadata.get(field));
    let expected = [
        ("apiVersion", object.get("apiVersion").filter(|_| !scale), api_version.as_str()),
        ("kind", object.get("kind").filter(|_| !scale), gvk.kind.as_str()),
        ("metadata.name", named("name"), target.name.as_str()),
        ("metadata.namespace", named("namespace").filter(|value| *value != ""), namespace),
    ];
    for (field, value, expected) in expected {
        match value {
            None | Some(Value::Null) => {}
            Some(Value::String(value)) if value == expected => {}
            Some(_) if field == "metadata.namespace" => {
                return refuse(
                    "ForeignNamespace",
                    operation,
                    format!("metadata.namespace of the object is not '{expected}'"),
                    "leave the namespace out",
                );
            }
            Some(_) => {
                return refuse(
                    "BadOperation",
                    operation,
                    format!("{field} of the object is not '{expected}'"),
                    "the object and the target of an operation are the same",
                );
            }
        }
    }
    if gvk.kind.ends_with("List") && object.get("items").is_some_and(Value::is_array) {
        return refuse("BadOperation", operation, "the object is a list", "each object is one operation");
    }
    Ok(())
}

/// The rules for an object that a guest gives to be created, applied or put in the place of another.
pub(super) fn check_given(
    application: &ApplicationId,
    operation: &Operation,
    object: &Value,
    cluster: bool,
) -> Decision {
    given(application, operation, object, cluster).into()
}

fn given(application: &ApplicationId, operation: &Operation, object: &Value, cluster: bool) -> Checked {
    touch(application, operation, object)?;
    credentials(operation, None, object)?;
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else { return Ok(()) };
    let set = |field: &str| metadata.get(field).is_some_and(|value| !value.is_null() && *value != "");
    if cluster && set("namespace") {
        return refuse("BadOperation", operation, "the kind is cluster-scoped and has no namespace", "leave it out");
    }
    if set("generateName") {
        return refuse(
            "BadOperation",
            operation,
            "metadata.generateName leaves the name to the API server",
            "give a name: a grant is for names",
        );
    }
    // An object that replaces another may be a snapshot of it, with all that the API server wrote.
    if !matches!(operation.action, Action::CreateOrUpdate { .. })
        && let Some(field) = SERVER_FIELDS.into_iter().find(|field| metadata.contains_key(*field))
    {
        return refuse("BadOperation", operation, format!("metadata.{field} is set by the API server"), "leave it out");
    }
    marks(application, operation, None, metadata)?;
    owners(operation, None, metadata)?;
    finalizers(operation, None, metadata)
}

/// What a merge patch says by itself, before the object is known. Lists of a merge patch replace those of the object, so
/// owner references and finalizers, which may be old ones, are left to [`check_result`].
pub(super) fn check_merge(application: &ApplicationId, operation: &Operation, patch: &Value) -> Decision {
    let check = || {
        touch(application, operation, patch)?;
        let Some(metadata) = patch.get("metadata").and_then(Value::as_object) else { return Ok(()) };
        for field in ["managedFields", "generateName", "uid", "creationTimestamp", "deletionTimestamp", "selfLink"] {
            if metadata.contains_key(field) {
                return refuse("BadPatch", operation, format!("metadata.{field} cannot be changed"), "leave it out");
            }
        }
        for field in ["labels", "annotations"] {
            let Some(map) = metadata.get(field).and_then(Value::as_object) else { continue };
            if let Some(key) = map.iter().find_map(|(key, value)| {
                let own = value.as_str().is_some_and(|text| is_own_mark(application, field, key, text));
                (is_host_mark(key) && !own).then_some(key)
            }) {
                let why = format!("metadata.{field}: '{key}' is set by the host");
                return refuse("HostMetadata", operation, why, "leave it out");
            }
        }
        for field in ["name", "namespace"] {
            if metadata.get(field).is_some_and(Value::is_null) {
                return refuse("BadPatch", operation, format!("metadata.{field} cannot be removed"), "leave it out");
            }
        }
        Ok(())
    };
    check().into()
}

/// May this live object become that one? `before` is the live object, `after` what a patch or a replacement makes of it.
///
/// Name, namespace, uid, kind and what the API server writes stay as they are (a replacement may leave them out); the
/// instance label is not taken off nor changed to another; labels and annotations of the host stay; owner references and
/// finalizers that are added are well-formed and not the host's, and a finalizer of the host is not removed. Whether an
/// owner exists in the namespace is asked elsewhere. Linear in the size of both objects.
#[must_use]
pub fn check_result(application: &ApplicationId, operation: &Operation, before: &Value, after: &Value) -> Decision {
    result(application, operation, before, after).into()
}

fn result(application: &ApplicationId, operation: &Operation, before: &Value, after: &Value) -> Checked {
    touch(application, operation, before)?;
    touch(application, operation, after)?;
    let replaces = matches!(operation.action, Action::CreateOrUpdate { .. });
    let fixed = |field: &str, before: Option<&Value>, after: Option<&Value>| {
        let absent = after.is_none_or(Value::is_null);
        if before == after || (absent && (replaces || before.is_none_or(Value::is_null))) {
            Ok(())
        } else {
            refuse("BadPatch", operation, format!("{field} cannot be changed"), "leave it as it is")
        }
    };
    for field in ["apiVersion", "kind"] {
        fixed(field, before.get(field), after.get(field))?;
    }
    let empty = Map::new();
    let old = before.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let new = after.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for field in ["name", "namespace", "generateName"].into_iter().chain(SERVER_FIELDS) {
        // A replacement is made from what the hook saw; the caller puts the version in that it looked at.
        if replaces && matches!(field, "resourceVersion" | "managedFields") {
            continue;
        }
        fixed(&format!("metadata.{field}"), old.get(field), new.get(field))?;
    }
    credentials(operation, Some(before), after)?;
    marks(application, operation, Some(old), new)?;
    owners(operation, Some(old), new)?;
    finalizers(operation, Some(old), new)
}

/// No operation makes a Secret that gives out or grants credentials.
fn credentials(operation: &Operation, before: Option<&Value>, after: &Value) -> Checked {
    let kind = |object: &Value| object.get("type").and_then(Value::as_str).map(str::to_owned);
    let new = kind(after);
    let is_secret = operation.target.gvk.group.is_empty() && operation.target.gvk.kind == "Secret";
    if is_secret
        && new.as_deref().is_some_and(|new| CREDENTIAL_TYPES.contains(&new))
        && before.is_none_or(|before| kind(before) != new)
    {
        return refuse(
            "Credentials",
            operation,
            format!("a Secret of type {} is a credential of the cluster", new.unwrap_or_default()),
            "hooks cannot make credentials; put a ServiceAccount into the templates",
        );
    }
    Ok(())
}

/// Labels and annotations: text, and those of the host as they were.
fn marks(
    application: &ApplicationId,
    operation: &Operation,
    before: Option<&Map<String, Value>>,
    after: &Map<String, Value>,
) -> Checked {
    let empty = Map::new();
    for field in ["labels", "annotations"] {
        let old = before.and_then(|before| before.get(field)).and_then(Value::as_object).unwrap_or(&empty);
        let new = match after.get(field) {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(map)) => map,
            Some(_) => {
                return refuse(
                    "BadOperation",
                    operation,
                    format!("metadata.{field} is no object"),
                    "use texts by name",
                );
            }
        };
        for (key, value) in new {
            if old.get(key) == Some(value) {
                continue;
            }
            let Some(text) = value.as_str() else {
                return refuse(
                    "BadOperation",
                    operation,
                    format!("metadata.{field}: the value of '{key}' is no text"),
                    "put the value into quotes",
                );
            };
            if is_host_mark(key) && !is_own_mark(application, field, key, text) {
                return refuse(
                    "HostMetadata",
                    operation,
                    format!("metadata.{field}: '{key}' is set by the host"),
                    "leave it out",
                );
            }
        }
        if let Some(key) = old.keys().find(|key| is_host_mark(key) && !new.contains_key(*key)) {
            return refuse(
                "HostMetadata",
                operation,
                format!("metadata.{field}: '{key}' is set by the host and cannot be removed"),
                "keep it; an apply or a patch changes only what it names",
            );
        }
    }
    Ok(())
}

/// Labels and annotations by which the host, Helm or the cluster decides something.
fn is_host_mark(key: &str) -> bool {
    match key.split_once('/') {
        Some(("kubernetes.io", name)) => name.starts_with("service-account."),
        Some((domain, _)) => domain == "meta.helm.sh" || is_host_domain(domain),
        None => false,
    }
}

/// What a hook may say of an object of its own.
fn is_own_mark(application: &ApplicationId, field: &str, key: &str, value: &str) -> bool {
    field == "labels"
        && match key {
            INSTANCE_LABEL => value == application.name(),
            PACKAGE_LABEL => true,
            "health.deckhouse.io/package" => value == application.to_string(),
            _ => false,
        }
}

fn list<'a>(operation: &Operation, field: &str, metadata: &'a Map<String, Value>) -> Result<&'a [Value], Denial> {
    match metadata.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => refuse("BadOperation", operation, format!("metadata.{field} is no list"), "write a list"),
    }
}

/// The entries of a list that were not there before, of a list that is short enough to look at.
fn added<'a>(
    operation: &Operation,
    field: &str,
    before: Option<&Map<String, Value>>,
    after: &'a Map<String, Value>,
) -> Result<Vec<&'a Value>, Denial> {
    let old = match before.and_then(|before| before.get(field)) {
        Some(Value::Array(old)) => old.as_slice(),
        _ => &[],
    };
    let new = list(operation, field, after)?;
    if new == old {
        return Ok(Vec::new());
    }
    if new.len() > limits::OWNERS_PER_OBJECT {
        let why = format!("metadata.{field} has {} entries; {} are allowed", new.len(), limits::OWNERS_PER_OBJECT);
        return refuse("BadOperation", operation, why, "leave some out");
    }
    Ok(new.iter().filter(|entry| !old.contains(entry)).collect())
}

fn owners(operation: &Operation, before: Option<&Map<String, Value>>, after: &Map<String, Value>) -> Checked {
    for owner in added(operation, "ownerReferences", before, after)? {
        if let Some(why) = bad_owner(owner) {
            return refuse(
                "BadOwner",
                operation,
                format!("metadata.ownerReferences: {why}"),
                "an owner has apiVersion, kind, name and uid, and is in the namespace of the object",
            );
        }
    }
    Ok(())
}

fn bad_owner(owner: &Value) -> Option<String> {
    let Some(owner) = owner.as_object() else { return Some("an owner is no object".to_owned()) };
    for field in ["apiVersion", "kind", "name", "uid"] {
        if owner.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Some(format!("'{field}' is missing"));
        }
    }
    for (field, value) in owner {
        match field.as_str() {
            "apiVersion" | "kind" | "name" | "uid" => {}
            "controller" | "blockOwnerDeletion" if value.is_boolean() || value.is_null() => {}
            _ => return Some(format!("'{field}' does not belong here")),
        }
    }
    None
}

fn finalizers(operation: &Operation, before: Option<&Map<String, Value>>, after: &Map<String, Value>) -> Checked {
    for finalizer in added(operation, "finalizers", before, after)? {
        let why = match finalizer.as_str().map(|name| (name, name.split_once('/'))) {
            None => "a finalizer is no text".to_owned(),
            Some((name, None)) => format!("finalizer '{name}' has no domain"),
            Some((name, Some((domain, rest)))) if domain.is_empty() || rest.is_empty() || rest.contains('/') => {
                format!("finalizer '{name}' is not <domain>/<name>")
            }
            Some((name, Some((domain, _)))) if is_host_finalizer(domain) => {
                format!("finalizer '{name}' belongs to the host")
            }
            Some(_) => continue,
        };
        return refuse("BadFinalizer", operation, why, "use a finalizer of your own domain, and remove it yourself");
    }
    let names = |list: Option<&Map<String, Value>>| -> BTreeSet<String> {
        let list = list.and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let kept = names(Some(after));
    let lost = names(before)
        .into_iter()
        .find(|name| name.split_once('/').is_some_and(|(domain, _)| is_host_finalizer(domain)) && !kept.contains(name));
    match lost {
        None => Ok(()),
        Some(name) => refuse(
            "BadFinalizer",
            operation,
            format!("finalizer '{name}' belongs to the host and cannot be removed"),
            "keep it",
        ),
    }
}

fn is_host_finalizer(domain: &str) -> bool {
    let domain = domain.to_ascii_lowercase();
    domain == "deckhouse.io" || domain.ends_with(".deckhouse.io") || domain.contains("barbless")
}
