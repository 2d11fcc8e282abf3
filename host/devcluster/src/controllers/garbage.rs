//! Garbage collection by owner references.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, is_terminating,
    work::{Item, Queue, Role},
};
use crate::{
    catalog::split_group_version,
    json::{list, remove, set, text},
    registry::{DeleteOptions, Propagation},
    status::ApiError,
    store::{Change, Stored},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn has_finalizer(object: &Value, name: &str) -> bool {
    list(object, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == name)
}

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    let store = &context.registry.store;
    let object = &change.new.value;
    let owners = list(object, &["metadata", "ownerReferences"]);
    let waits = has_finalizer(object, ORPHAN) || has_finalizer(object, FOREGROUND);
    if !change.deleted && (!owners.is_empty() || (is_terminating(object) && waits)) {
        queue.push(Item::of(Role::Collect, change));
    }
    if change.deleted || (is_terminating(object) && waits) {
        for ((table, key), _) in store.dependents(change.new.uid()) {
            queue.push(Item { role: Role::Collect, table, key });
        }
    }
    // An owner may wait for this object; one that a reference left may too.
    let before = change.old.as_ref().map(|old| list(&old.value, &["metadata", "ownerReferences"])).unwrap_or_default();
    for owner in owners.iter().chain(before) {
        if let Some(((table, key), stored)) = store.by_uid(text(owner, &["uid"]))
            && is_terminating(&stored.value)
        {
            queue.push(Item { role: Role::Collect, table, key });
        }
    }
}

/// How long an Event is kept, as on a real server.
const EVENT_AGE_MAX: Duration = Duration::from_secs(3600);

pub(super) fn enqueue_expiry(change: &Change, queue: &mut Queue) {
    // Only the first sight starts the clock: later changes of the Event are judged when it rings.
    if &*change.table == "/events" && !change.deleted && change.old.is_none() {
        queue.push_at(Item::of(Role::Expire, change), Instant::now() + EVENT_AGE_MAX);
    }
}

pub(super) fn expire_event(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let event = &stored.value;
    let times = [
        text(event, &["series", "lastObservedTime"]),
        text(event, &["lastTimestamp"]),
        text(event, &["metadata", "creationTimestamp"]),
    ];
    let newest = times.iter().filter_map(|time| time.parse::<jiff::Timestamp>().ok()).max();
    let age = newest.map_or(0, |time| jiff::Timestamp::now().duration_since(time).as_secs());
    let left = EVENT_AGE_MAX.saturating_sub(Duration::from_secs(u64::try_from(age).unwrap_or_default()));
    if !left.is_zero() {
        return Ok(Next::At(Instant::now() + left));
    }
    context.delete(&stored, DeleteOptions::default())?;
    Ok(Next::Done)
}

/// What a reference means for the object that carries it.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Solid,
    Dangling,
    /// The owner waits until its dependents are gone.
    Waiting,
}

fn classify(context: &Context, object: &Value, reference: &Value) -> Owner {
    let Some((_, owner)) = context.registry.store.by_uid(text(reference, &["uid"])) else { return Owner::Dangling };
    let owner = &owner.value;
    let group = |api_version: &str| split_group_version(api_version).0.to_owned();
    let matches = group(text(owner, &["apiVersion"])) == group(text(reference, &["apiVersion"]))
        && text(owner, &["kind"]) == text(reference, &["kind"])
        && text(owner, &["metadata", "name"]) == text(reference, &["name"]);
    let (owner_namespace, namespace) =
        (text(owner, &["metadata", "namespace"]), text(object, &["metadata", "namespace"]));
    if namespace.is_empty() && !owner_namespace.is_empty() {
        // A cluster-wide object cannot be owned by a namespaced one: the reference cannot be resolved, so it holds.
        return Owner::Solid;
    }
    if !matches || !(owner_namespace.is_empty() || owner_namespace == namespace) {
        return Owner::Dangling;
    }
    if is_terminating(owner) && has_finalizer(owner, FOREGROUND) { Owner::Waiting } else { Owner::Solid }
}

pub(super) fn collect(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    let references = list(object, &["metadata", "ownerReferences"]);
    let already_waiting = is_terminating(object) && has_finalizer(object, FOREGROUND);
    if !references.is_empty() && !is_terminating(object) {
        judge(context, &stored, references)?;
    }
    if is_terminating(object) && has_finalizer(object, ORPHAN) {
        return release_dependents(context, &stored);
    }
    if already_waiting {
        return await_dependents(context, &stored);
    }
    Ok(Next::Done)
}

fn judge(context: &Context, stored: &Arc<Stored>, references: &[Value]) -> Result<(), ApiError> {
    let object = &stored.value;
    let classes = references.iter().map(|r| (r, classify(context, object, r))).collect::<Vec<_>>();
    let gone = classes.iter().filter(|(_, class)| *class != Owner::Solid).map(|(r, _)| text(r, &["uid"]).to_owned());
    let gone = gone.collect::<Vec<_>>();
    if gone.is_empty() {
        return Ok(());
    }
    if gone.len() < classes.len() {
        // Somebody still owns it: only the other references go.
        context.change(stored, "", &|object| drop_references(object, |uid| gone.iter().any(|g| g == uid)))?;
        return Ok(());
    }
    let waiting = classes.iter().any(|(_, class)| *class == Owner::Waiting);
    let has_dependents = !context.registry.store.dependents(stored.uid()).is_empty();
    let propagation = if waiting && has_dependents {
        Propagation::Foreground
    } else if has_finalizer(object, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(object, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    context.delete(stored, DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() })
}

fn drop_references(object: &mut Value, gone: impl Fn(&str) -> bool) -> bool {
    let before = list(object, &["metadata", "ownerReferences"]).to_vec();
    let kept = before.iter().filter(|r| !gone(text(r, &["uid"]))).cloned().collect::<Vec<_>>();
    if kept.len() == before.len() {
        return false;
    }
    if kept.is_empty() {
        remove(object, &["metadata", "ownerReferences"]);
    } else {
        set(object, &["metadata", "ownerReferences"], json!(kept));
    }
    true
}

fn drop_finalizer(context: &Context, stored: &Stored, name: &str) -> Result<Next, ApiError> {
    context.change(stored, "", &|object| {
        let kept = list(object, &["metadata", "finalizers"]).iter().filter(|f| *f != name).cloned().collect::<Vec<_>>();
        set(object, &["metadata", "finalizers"], json!(kept));
        true
    })?;
    Ok(Next::Done)
}

fn release_dependents(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    for (_, dependent) in context.registry.store.dependents(stored.uid()) {
        context.change(&dependent, "", &|object| drop_references(object, |uid| uid == stored.uid()))?;
    }
    drop_finalizer(context, stored, ORPHAN)
}

fn await_dependents(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    let dependents = context.registry.store.dependents(stored.uid());
    let blocks = |dependent: &Stored| {
        list(&dependent.value, &["metadata", "ownerReferences"])
            .iter()
            .any(|r| text(r, &["uid"]) == stored.uid() && r.get("blockOwnerDeletion") == Some(&Value::Bool(true)))
    };
    if dependents.iter().any(|(_, dependent)| blocks(dependent)) {
        // The dependents have items of their own, and each that goes brings this item back.
        return Ok(Next::Done);
    }
    drop_finalizer(context, stored, FOREGROUND)
}
