//! The queue of the controllers: each item once, some of them later.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use crate::store::{Change, Key};

/// What is to be done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Collect,
    /// An Event that is forgotten after its time.
    Expire,
    Namespace,
    Definition,
    /// Something without a controller that may have found one.
    Adopt,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    Pod,
    Claim,
    Volume,
    Service,
    Endpoints,
    Ingress,
    Scaler,
    Budget,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) role: Role,
    pub(super) table: Arc<str>,
    pub(super) key: Key,
}

impl Item {
    pub(super) fn of(role: Role, change: &Change) -> Self {
        Self { role, table: Arc::clone(&change.table), key: change.key.clone() }
    }
}

/// Bounded by the number of objects times the number of roles, since every item is held once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Item>,
    queued: BTreeSet<Item>,
    waiting: BTreeMap<Item, Instant>,
    by_time: BTreeSet<(Instant, Item)>,
}

impl Queue {
    pub(super) fn push(&mut self, item: Item) {
        if self.queued.insert(item.clone()) {
            self.ready.push_back(item);
        }
    }

    /// Puts an item that is looked at again at a time; the earlier time wins.
    pub(super) fn push_at(&mut self, item: Item, when: Instant) {
        match self.waiting.get(&item) {
            Some(known) if *known <= when => return,
            Some(known) => {
                self.by_time.remove(&(*known, item.clone()));
            }
            None => {}
        }
        self.waiting.insert(item.clone(), when);
        self.by_time.insert((when, item));
    }

    pub(super) fn pop(&mut self, now: Instant) -> Option<Item> {
        while let Some((when, _)) = self.by_time.first()
            && *when <= now
        {
            let Some((_, item)) = self.by_time.pop_first() else { break };
            self.waiting.remove(&item);
            self.push(item);
        }
        let item = self.ready.pop_front()?;
        self.queued.remove(&item);
        Some(item)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(when, _)| *when)
    }
}
