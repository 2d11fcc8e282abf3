//! The objects that a kubernetes binding selects, projected before they are kept, and which of their changes count.
//!
//! An added or modified object whose projection is unchanged is no change; a deletion always is one. Without a filter,
//! `metadata.managedFields` and `metadata.resourceVersion` do not count. A binding whose first list has not come, or
//! whose filter fails, is *not synchronised*: that is a state of its own and never an empty snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::hook::{Change, KubernetesBinding, Projection, WatchEventType};
use crate::run::{Snapshot, SnapshotItem, SnapshotState};

#[cfg(test)]
mod tests;

type Key = (String, String);

/// An object together with what the filter of the binding made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Projected {
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What the filter made of it.
    pub projection: Value,
    /// The whole object, if the binding keeps it.
    pub object: Option<Value>,
}

/// The snapshot of one binding.
#[derive(Debug)]
pub struct SnapshotStore {
    binding: String,
    events: Vec<WatchEventType>,
    items: BTreeMap<Key, Arc<SnapshotItem>>,
    state: State,
    view: Option<Arc<Snapshot>>,
}

#[derive(Debug)]
enum State {
    Waiting,
    Synced,
    Failed(String),
}

/// Namespace and name of an object.
#[must_use]
pub fn key_of(object: &Value) -> (String, String) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

/// Projects an object without running a program; nothing for projections that need one.
#[must_use]
pub fn project(projection: &Projection, object: &Value) -> Option<Value> {
    match projection {
        Projection::Whole => Some(without_bookkeeping(object, false)),
        Projection::Fields(pointers) => {
            let field = |pointer: &String| (pointer.clone(), object.pointer(pointer).cloned().unwrap_or(Value::Null));
            Some(Value::Object(pointers.iter().map(field).collect::<Map<_, _>>()))
        }
        Projection::Jq(_) | Projection::Component => None,
    }
}

/// A copy of an object without what the API server writes about itself.
fn without_bookkeeping(object: &Value, version_too: bool) -> Value {
    let mut copy = object.clone();
    if let Some(metadata) = copy.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if version_too {
            metadata.remove("resourceVersion");
        }
    }
    copy
}

/// Whether two projections say the same.
fn same(old: &Value, new: &Value) -> bool {
    if old == new {
        return true;
    }
    // Only whole objects carry a version of their own; for any other projection a difference is a difference.
    let versioned = |value: &Value| value.pointer("/metadata/resourceVersion").is_some() && value.get("kind").is_some();
    versioned(old) && versioned(new) && without_bookkeeping(old, true) == without_bookkeeping(new, true)
}

impl SnapshotStore {
    /// The snapshot of a binding of which nothing is known yet.
    #[must_use]
    pub fn new(binding: &KubernetesBinding) -> Self {
        Self {
            binding: binding.name.clone(),
            events: binding.execute_on_events.clone(),
            items: BTreeMap::new(),
            state: State::Waiting,
            view: None,
        }
    }

    /// All objects, as of one moment: at the first list, and at each new list after the connection was lost. The
    /// changes are those since the last known state; there are none at the first list.
    pub fn replace(&mut self, objects: Vec<Projected>) -> Vec<Change> {
        let first = matches!(self.state, State::Waiting);
        self.state = State::Synced;
        self.view = None;
        let mut old = std::mem::take(&mut self.items);
        let mut changes = Vec::new();
        for object in objects {
            let key = (object.namespace.clone(), object.name.clone());
            let event = match old.remove(&key) {
                None => Some(WatchEventType::Added),
                Some(known) if same(&known.projection, &object.projection) => None,
                Some(_) => Some(WatchEventType::Modified),
            };
            changes.extend(event.and_then(|event| self.change(event, &key)));
            self.keep(key, object);
        }
        for (key, item) in old {
            changes.extend(self.gone(&key, item));
        }
        if first { Vec::new() } else { changes }
    }

    /// An object appeared or changed.
    pub fn put(&mut self, object: Projected) -> Option<Change> {
        let key = (object.namespace.clone(), object.name.clone());
        let event = match self.items.get(&key) {
            None => Some(WatchEventType::Added),
            Some(known) if same(&known.projection, &object.projection) => None,
            Some(_) => Some(WatchEventType::Modified),
        };
        let change = event.and_then(|event| self.change(event, &key));
        self.keep(key, object);
        change
    }

    /// An object is gone; filters are not asked.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Change> {
        let key = (namespace.to_owned(), name.to_owned());
        let item = self.items.remove(&key)?;
        self.view = None;
        self.gone(&key, item)
    }

    /// The filter of the binding failed: until the next complete list the snapshot cannot be trusted.
    pub fn fail(&mut self, reason: String) {
        self.state = State::Failed(reason);
    }

    /// Whether the first list has come and the filter works.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        matches!(self.state, State::Synced)
    }

    /// How many objects are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no object is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What a run is given. Shared until the next change.
    #[must_use]
    pub fn view(&mut self) -> SnapshotState {
        match &self.state {
            State::Waiting => SnapshotState::NotSynchronised("the first list has not come yet".to_owned()),
            State::Failed(reason) => SnapshotState::NotSynchronised(reason.clone()),
            State::Synced => {
                let items = &self.items;
                let view = self.view.get_or_insert_with(|| Arc::new(Snapshot::new(items.values().cloned().collect())));
                SnapshotState::Ready(Arc::clone(view))
            }
        }
    }

    fn keep(&mut self, key: Key, object: Projected) {
        let Projected { namespace, name, projection, object } = object;
        self.items.insert(key, Arc::new(SnapshotItem::new(namespace, name, projection, object)));
        self.view = None;
    }

    fn change(&self, event: WatchEventType, (namespace, name): &Key) -> Option<Change> {
        self.events.contains(&event).then(|| Change {
            binding: self.binding.clone(),
            event,
            namespace: namespace.clone(),
            name: name.clone(),
            last: None,
        })
    }

    fn gone(&self, key: &Key, item: Arc<SnapshotItem>) -> Option<Change> {
        let change = self.change(WatchEventType::Deleted, key)?;
        Some(Change { last: Some(item), ..change })
    }
}
