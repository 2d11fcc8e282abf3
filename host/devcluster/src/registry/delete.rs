//! Deletion: preconditions, grace, finalizers and propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Registry, convert,
    gate::Passing,
    rules::is_finished,
    write::{ATTEMPTS_MAX, Outcome},
};
use crate::{
    admission::Gate,
    catalog::Resource,
    json::{self, at, int, list, set, text},
    status::{About, ApiError, Cause},
    store::{Expect, Stored, Ticket, Write},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a deletion does with the dependents of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They go first; the object waits for those that block it.
    Foreground,
    /// The object goes at once, they follow.
    Background,
    /// They stay, without their owner.
    Orphan,
}

/// The `DeleteOptions` of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// What holds when neither the request nor the object says anything; the background when absent.
    pub(crate) fallback: Option<Propagation>,
    /// What is said of the wish, whatever becomes of it.
    pub(crate) warning: Option<&'static str>,
}

impl DeleteOptions {
    /// Reads a DeleteOptions object.
    pub(crate) fn parse(body: &Value) -> Result<Self, ApiError> {
        let mut options = Self {
            grace_seconds: int(body, &["gracePeriodSeconds"]),
            uid: at(body, &["preconditions", "uid"]).and_then(Value::as_str).map(str::to_owned),
            resource_version: at(body, &["preconditions", "resourceVersion"])
                .and_then(Value::as_str)
                .map(str::to_owned),
            dry_run: !list(body, &["dryRun"]).is_empty(),
            propagation: None,
            fallback: None,
            warning: None,
        };
        options.set_propagation(text(body, &["propagationPolicy"]))?;
        match (body.get("orphanDependents").and_then(Value::as_bool), options.propagation) {
            (Some(_), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                return Err(ApiError::new(422, "Invalid", format!("propagationPolicy: Invalid value: {why}")));
            }
            (Some(true), None) => options.propagation = Some(Propagation::Orphan),
            (Some(false), None) => options.propagation = Some(Propagation::Background),
            (None, _) => {}
        }
        Ok(options)
    }

    pub(crate) fn set_propagation(&mut self, policy: &str) -> Result<(), ApiError> {
        self.propagation = match policy {
            "" => return Ok(()),
            "Foreground" => Some(Propagation::Foreground),
            "Background" => Some(Propagation::Background),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let cause = Cause::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &[json!("Foreground"), json!("Background"), json!("Orphan"), json!("nil")],
                );
                return Err(ApiError::invalid_options("DeleteOptions", cause));
            }
        };
        Ok(())
    }
}

impl Registry {
    /// Deletes an object, or marks it when something has to happen first.
    pub(crate) fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Outcome, ApiError> {
        self.delete_past(None, resource, namespace, name, options)
    }

    /// The same, if the webhooks let it.
    pub(crate) fn delete_past(
        &self,
        gate: Option<&Gate>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Outcome, ApiError> {
        if resource.is("", "Namespace") && matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(ApiError::forbidden(resource.about(), name, "this namespace may not be deleted"));
        }
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.store.get(&resource.table, namespace, name);
            let stored = stored.ok_or_else(|| ApiError::not_found(resource.about(), name))?;
            if let Some(outcome) = self.try_delete(gate, resource, &stored, options)? {
                return Ok(outcome);
            }
        }
        Err(ApiError::modified(resource.about(), name))
    }

    fn try_delete(
        &self,
        gate: Option<&Gate>,
        resource: &Resource,
        stored: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<Option<Outcome>, ApiError> {
        let old = &stored.value;
        let name = text(old, &["metadata", "name"]);
        if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != stored.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                stored.uid()
            );
            return Err(ApiError::conflict(by_kind(resource), name, &why));
        }
        if let Some(version) = options.resource_version.as_deref().filter(|v| *v != stored.revision.to_string()) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
                 object might have been modified",
                stored.revision
            );
            return Err(ApiError::conflict(by_kind(resource), name, &why));
        }
        let marked = at(old, &["metadata", "deletionTimestamp"]).is_some();
        if gate.is_some() {
            let shown = self.view(resource, stored);
            let old = Some(&shown.value);
            self.deletable(Passing { resource, subresource: "", name, revision: stored.revision, old }, gate)?;
        }
        let mut new = old.clone();
        set_propagation_finalizers(&mut new, options);
        let grace = grace_seconds(resource, old, options);
        let current_grace = int(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
        // A second deletion may only shorten the grace.
        let grace = if marked { grace.min(current_grace) } else { grace };
        if !marked || grace < current_grace {
            let when = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(grace);
            set(&mut new, &["metadata", "deletionTimestamp"], json!(when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
            set(&mut new, &["metadata", "deletionGracePeriodSeconds"], json!(grace));
        }
        if let (Some(generation), false) = (int(old, &["metadata", "generation"]).filter(|g| *g > 0), marked) {
            set(&mut new, &["metadata", "generation"], json!(generation + 1));
        }
        if !marked && resource.is("", "Namespace") {
            set(&mut new, &["status", "phase"], json!("Terminating"));
        }
        let removed = is_finished(resource, &new);
        if !removed && json::same(old, &new) {
            return Ok(Some(Outcome::unchanged(self.view(resource, stored))));
        }
        let view = |value: Value| self.view(resource, &Arc::new(Stored::new(value, stored.revision)));
        if options.dry_run {
            let object = view(if removed { old.clone() } else { new });
            let (created, warnings) = (false, Vec::new());
            return Ok(Some(Outcome { object, created, removed, warnings, ticket: Ticket::done() }));
        }
        let key = (text(old, &["metadata", "namespace"]).to_owned(), name.to_owned());
        if removed {
            // What watchers are told is its last state in the store.
            new = old.clone();
        }
        convert::to_storage(resource, &mut new);
        let write = if removed { Write::Delete(new) } else { Write::Put(new) };
        let Ok((written, ticket)) = self.store.commit(&resource.table, &key, Expect::Revision(stored.revision), write)
        else {
            return Ok(None);
        };
        self.after_write(&resource.table, &written, removed);
        let object = self.view(resource, &written);
        Ok(Some(Outcome { object, created: false, removed, warnings: Vec::new(), ticket }))
    }
}

/// Preconditions are refused by the name of the kind.
fn by_kind(resource: &Resource) -> About<'_> {
    About { plural: &resource.kind, ..resource.about() }
}

/// Only Pods end gracefully: one that runs somewhere gets its time.
fn grace_seconds(resource: &Resource, pod: &Value, options: &DeleteOptions) -> i64 {
    if !resource.is("", "Pod") {
        return 0;
    }
    let over = matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if over || text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let wanted = options.grace_seconds.or_else(|| int(pod, &["spec", "terminationGracePeriodSeconds"]));
    // Bounded, so that adding it to the clock cannot overflow.
    wanted.unwrap_or(30).clamp(0, 7 * 24 * 3600)
}

fn set_propagation_finalizers(object: &mut Value, options: &DeleteOptions) {
    let wanted = options.propagation;
    let mut finalizers = list(object, &["metadata", "finalizers"]).to_vec();
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    let policy = match wanted {
        Some(policy) => policy,
        // Without a wish, what the object already says holds.
        None if has(ORPHAN) => Propagation::Orphan,
        None if has(FOREGROUND) => Propagation::Foreground,
        None => options.fallback.unwrap_or(Propagation::Background),
    };
    let before = finalizers.clone();
    finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    match policy {
        Propagation::Orphan => finalizers.push(json!(ORPHAN)),
        Propagation::Foreground => finalizers.push(json!(FOREGROUND)),
        Propagation::Background => {}
    }
    // The same in another order is no change.
    if before.len() == finalizers.len() && before.iter().all(|f| finalizers.contains(f)) {
        return;
    }
    if finalizers.is_empty() {
        json::remove(object, &["metadata", "finalizers"]);
    } else {
        set(object, &["metadata", "finalizers"], Value::Array(finalizers));
    }
}
