//! The versioned store: objects by resource, namespace and name, one revision counter, and a bounded history per
//! resource from which watches are served.
//!
//! Guarantees: a write is visible to readers and watchers at once and in revision order; a write is *acknowledged* only
//! when its [`Ticket`] says so, which with a data folder means that it is on disk. No watcher can delay a writer: watchers
//! read the history at their own pace, and one that falls behind it gets [`Expired`].

mod disk;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::json;
pub(crate) use disk::{DiskError, Ticket};

/// Changes kept per resource. A client that was away for longer gets 410 and lists again.
const HISTORY_MAX: usize = 4096;
/// Changes kept for the controllers, over all resources. A controller that is further behind starts from a full list.
const LOG_MAX: usize = 4096;
/// Lists that are being read page by page; the oldest is dropped first.
const SNAPSHOTS_MAX: usize = 64;
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(300);
/// The first revision. Not 1, so that "1" is already too old, as on a real server.
const FIRST_REVISION: u64 = 1000;

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Key = (String, String);

/// One version of one object. `value` includes its `metadata.resourceVersion`.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) value: Value,
    pub(crate) revision: u64,
    bytes: OnceLock<Bytes>,
}

impl Stored {
    pub(crate) fn new(mut value: Value, revision: u64) -> Self {
        json::set(&mut value, &["metadata", "resourceVersion"], Value::String(revision.to_string()));
        Self { value, revision, bytes: OnceLock::new() }
    }

    /// An object that was never written, so that it has no version.
    pub(crate) fn unwritten(mut value: Value) -> Self {
        json::remove(&mut value, &["metadata", "resourceVersion"]);
        Self { value, revision: 0, bytes: OnceLock::new() }
    }

    /// The object as JSON text, made once however many clients read it.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| kind_first(&self.value).into()).clone()
    }

    /// The object as it stands in a list of its kind: without its kind, which the list has.
    pub(crate) fn item_bytes(&self) -> Bytes {
        let bytes = self.bytes();
        let Some(head) = kind_head(&self.value) else { return bytes };
        match bytes.get(head.len()) {
            Some(b',') => {
                let mut item = Vec::with_capacity(bytes.len() - head.len());
                item.push(b'{');
                item.extend_from_slice(bytes.get(head.len() + 1..).unwrap_or_default());
                item.into()
            }
            _ => Bytes::from_static(b"{}"),
        }
    }

    pub(crate) fn uid(&self) -> &str {
        json::text(&self.value, &["metadata", "uid"])
    }
}

/// What the text of an object begins with: its kind and version, as a real server writes it.
fn kind_head(value: &Value) -> Option<String> {
    let (kind, version) = (value.get("kind")?, value.get("apiVersion")?);
    Some(format!("{{\"kind\":{kind},\"apiVersion\":{version}"))
}

/// The text of an object with its kind first, so that a list can leave it out.
fn kind_first(value: &Value) -> Vec<u8> {
    let (Some(head), Some(map)) = (kind_head(value), value.as_object()) else {
        return serde_json::to_vec(value).unwrap_or_default();
    };
    let mut out = head.into_bytes();
    for (key, value) in map.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion")) {
        out.push(b',');
        // Writing to memory cannot fail, and the keys of JSON are text.
        let _ = serde_json::to_writer(&mut out, key);
        out.push(b':');
        let _ = serde_json::to_writer(&mut out, value);
    }
    out.push(b'}');
    out
}

/// One committed write.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) table: Arc<str>,
    pub(crate) key: Key,
    pub(crate) old: Option<Arc<Stored>>,
    /// The new version; for a deletion the last one, with the revision of the deletion.
    pub(crate) new: Arc<Stored>,
    pub(crate) deleted: bool,
}

/// The asked-for revision is no longer in the history.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) oldest: u64,
}

/// What must be true of the object for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

pub(crate) enum Write {
    Put(Value),
    /// Remove; the value is the object as it was at the end.
    Delete(Value),
}

/// The object was not as expected: read it again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Raced;

#[derive(Default)]
struct ObjectTable {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Change>>,
    /// Every change after this revision is in `history`.
    floor: u64,
    signal: Option<watch::Sender<u64>>,
}

struct Snapshot {
    table: Arc<str>,
    namespace: Option<String>,
    revision: u64,
    taken: Instant,
    objects: Arc<Vec<Arc<Stored>>>,
}

/// A place where an object lives: resource table and key.
pub(crate) type Place = (Arc<str>, Key);

struct State {
    revision: u64,
    tables: HashMap<Arc<str>, ObjectTable>,
    log: VecDeque<Arc<Change>>,
    log_floor: u64,
    by_uid: HashMap<String, Place>,
    dependents: HashMap<String, BTreeSet<Place>>,
    snapshots: VecDeque<Snapshot>,
    disk: Option<disk::Disk>,
}

/// See the module.
pub(crate) struct Store {
    state: Mutex<State>,
    boot: u64,
    /// Writes must reach the disk, also when it has been closed: then they fail.
    persistent: bool,
    signal: watch::Sender<u64>,
}

impl Store {
    /// An empty store, or what the folder holds.
    pub(crate) fn open(data_dir: Option<&Path>) -> Result<Self, DiskError> {
        let mut state = State {
            revision: FIRST_REVISION,
            tables: HashMap::new(),
            log: VecDeque::new(),
            log_floor: FIRST_REVISION,
            by_uid: HashMap::new(),
            dependents: HashMap::new(),
            snapshots: VecDeque::new(),
            disk: None,
        };
        if let Some(folder) = data_dir {
            let (disk, loaded) = disk::Disk::open(folder)?;
            // A write that was seen by a watcher but not acknowledged before a crash must not lend its revision to
            // another write: the counter jumps.
            let newest = loaded.iter().map(|(_, _, _, revision)| *revision).max().unwrap_or_default();
            state.revision = newest.max(disk.revision()).max(FIRST_REVISION) + 1000;
            state.log_floor = state.revision;
            for (table, key, value, revision) in loaded {
                let stored = Arc::new(Stored::new(value, revision));
                state.index(&table, &key, None, Some(&stored));
                let floor = state.revision;
                let place =
                    state.tables.entry(table).or_insert_with(|| ObjectTable { floor, ..ObjectTable::default() });
                place.objects.insert(key, stored);
            }
            state.disk = Some(disk);
        }
        let boot = state.revision;
        Ok(Self { state: Mutex::new(state), boot, persistent: data_dir.is_some(), signal: watch::channel(boot).0 })
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub(crate) fn get(&self, table: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.state.lock().tables.get(table)?.objects.get(&key).cloned()
    }

    /// All objects of a table, of one namespace if it is given, in key order, and the revision at which this was true.
    pub(crate) fn list(&self, table: &str, namespace: Option<&str>) -> (Vec<Arc<Stored>>, u64) {
        let state = self.state.lock();
        let objects = state.tables.get(table).map(|t| select(&t.objects, namespace)).unwrap_or_default();
        (objects, state.revision)
    }

    /// Like [`Store::list`], and keeps what it saw so that further pages read the same state.
    pub(crate) fn list_snapshot(&self, table: &Arc<str>, namespace: Option<&str>) -> (Arc<Vec<Arc<Stored>>>, u64) {
        let mut state = self.state.lock();
        let objects = state.tables.get(table).map(|t| select(&t.objects, namespace)).unwrap_or_default();
        let objects = Arc::new(objects);
        let revision = state.revision;
        state.snapshots.retain(|s| s.taken.elapsed() < SNAPSHOT_AGE_MAX);
        if state.snapshots.len() >= SNAPSHOTS_MAX {
            state.snapshots.pop_front();
        }
        state.snapshots.push_back(Snapshot {
            table: Arc::clone(table),
            namespace: namespace.map(str::to_owned),
            revision,
            taken: Instant::now(),
            objects: Arc::clone(&objects),
        });
        (objects, revision)
    }

    /// The objects as they were at a revision, if that is kept or the history reaches back so far.
    pub(crate) fn state_at(&self, table: &str, namespace: Option<&str>, revision: u64) -> Option<Vec<Arc<Stored>>> {
        let state = self.state.lock();
        let same = |s: &&Snapshot| &*s.table == table && s.revision == revision && s.namespace.as_deref() == namespace;
        if let Some(found) = state.snapshots.iter().find(same) {
            return Some(found.objects.to_vec());
        }
        if revision > state.revision {
            return None;
        }
        let Some(place) = state.tables.get(table) else { return (revision >= self.boot).then(Vec::new) };
        if revision < place.floor {
            return None;
        }
        let mut objects = place.objects.iter().collect::<BTreeMap<_, _>>();
        // From the newest change back, each is undone.
        for change in place.history.iter().rev().take_while(|change| change.revision > revision) {
            match &change.old {
                Some(old) => objects.insert(&change.key, old),
                None => objects.remove(&change.key),
            };
        }
        let wanted = objects.into_iter().filter(|(key, _)| namespace.is_none_or(|namespace| key.0 == namespace));
        Some(wanted.map(|(_, stored)| Arc::clone(stored)).collect())
    }

    /// Names of the tables that hold objects.
    pub(crate) fn tables(&self) -> Vec<Arc<str>> {
        let state = self.state.lock();
        state.tables.iter().filter(|(_, t)| !t.objects.is_empty()).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// The object with this uid, wherever it lives.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<(Place, Arc<Stored>)> {
        let state = self.state.lock();
        let place = state.by_uid.get(uid)?;
        let stored = state.tables.get(&place.0)?.objects.get(&place.1)?;
        Some((place.clone(), Arc::clone(stored)))
    }

    /// The objects whose owner references name this uid.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Place, Arc<Stored>)> {
        let state = self.state.lock();
        let places = state.dependents.get(uid).into_iter().flatten();
        places
            .filter_map(|place| {
                let stored = state.tables.get(&place.0)?.objects.get(&place.1)?;
                Some((place.clone(), Arc::clone(stored)))
            })
            .collect()
    }

    /// Writes if the object is as expected. The new revision goes into the object.
    pub(crate) fn commit(
        &self,
        table: &Arc<str>,
        key: &Key,
        expect: Expect,
        write: Write,
    ) -> Result<(Arc<Stored>, Ticket), Raced> {
        let mut state = self.state.lock();
        let boot = self.boot;
        let revision = state.revision + 1;
        let place = state
            .tables
            .entry(Arc::clone(table))
            .or_insert_with(|| ObjectTable { floor: boot, ..ObjectTable::default() });
        let old = place.objects.get(key).cloned();
        let as_expected = match (expect, &old) {
            (Expect::Absent, None) => true,
            (Expect::Revision(expected), Some(old)) => old.revision == expected,
            _ => false,
        };
        if !as_expected {
            return Err(Raced);
        }
        let (value, deleted) = match write {
            Write::Put(value) => (value, false),
            Write::Delete(value) => (value, true),
        };
        let new = Arc::new(Stored::new(value, revision));
        if deleted {
            place.objects.remove(key);
        } else {
            place.objects.insert(key.clone(), Arc::clone(&new));
        }
        let change = Arc::new(Change {
            revision,
            table: Arc::clone(table),
            key: key.clone(),
            old: old.clone(),
            new: Arc::clone(&new),
            deleted,
        });
        if place.history.len() >= HISTORY_MAX
            && let Some(dropped) = place.history.pop_front()
        {
            place.floor = dropped.revision;
        }
        place.history.push_back(Arc::clone(&change));
        if let Some(signal) = &place.signal {
            signal.send_replace(revision);
        }
        if state.log.len() >= LOG_MAX
            && let Some(dropped) = state.log.pop_front()
        {
            state.log_floor = dropped.revision;
        }
        state.log.push_back(change);
        state.revision = revision;
        state.index(table, key, old.as_deref(), (!deleted).then_some(&new));
        let ticket = match &state.disk {
            Some(disk) => disk.write(table, key, revision, (!deleted).then(|| new.bytes())),
            None if self.persistent => Ticket::lost(),
            None => Ticket::done(),
        };
        drop(state);
        self.signal.send_replace(revision);
        Ok((new, ticket))
    }

    /// Wakes when the table changes.
    pub(crate) fn subscribe(&self, table: &Arc<str>) -> watch::Receiver<u64> {
        let mut state = self.state.lock();
        let (boot, revision) = (self.boot, state.revision);
        let place = state
            .tables
            .entry(Arc::clone(table))
            .or_insert_with(|| ObjectTable { floor: boot, ..ObjectTable::default() });
        place.signal.get_or_insert_with(|| watch::channel(revision).0).subscribe()
    }

    /// Wakes when anything changes.
    pub(crate) fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.signal.subscribe()
    }

    /// Changes of a table after a revision, at most `max`, and the revision up to which the answer is complete.
    pub(crate) fn changes(&self, table: &str, after: u64, max: usize) -> Result<(Vec<Arc<Change>>, u64), Expired> {
        let state = self.state.lock();
        let Some(place) = state.tables.get(table) else {
            return if after < self.boot {
                Err(Expired { oldest: self.boot })
            } else {
                Ok((Vec::new(), state.revision))
            };
        };
        read(&place.history, place.floor, after, max, state.revision)
    }

    /// Changes of all tables after a revision.
    pub(crate) fn all_changes(&self, after: u64, max: usize) -> Result<(Vec<Arc<Change>>, u64), Expired> {
        let state = self.state.lock();
        read(&state.log, state.log_floor, after, max, state.revision)
    }

    /// Flushes and ends the writer to disk.
    pub(crate) fn close(&self) {
        let disk = self.state.lock().disk.take();
        if let Some(disk) = disk {
            disk.close();
        }
    }
}

fn select(objects: &BTreeMap<Key, Arc<Stored>>, namespace: Option<&str>) -> Vec<Arc<Stored>> {
    match namespace {
        None => objects.values().cloned().collect(),
        Some(namespace) => {
            let from = (namespace.to_owned(), String::new());
            let range = objects.range((Bound::Included(from), Bound::Unbounded));
            range.take_while(|(key, _)| key.0 == namespace).map(|(_, stored)| Arc::clone(stored)).collect()
        }
    }
}

fn read(
    history: &VecDeque<Arc<Change>>,
    floor: u64,
    after: u64,
    max: usize,
    current: u64,
) -> Result<(Vec<Arc<Change>>, u64), Expired> {
    if after < floor {
        return Err(Expired { oldest: floor });
    }
    let start = history.partition_point(|change| change.revision <= after);
    let changes = history.range(start..).take(max).cloned().collect::<Vec<_>>();
    let complete = if start + changes.len() == history.len() {
        current
    } else {
        changes.last().map_or(after, |change| change.revision)
    };
    Ok((changes, complete))
}

impl State {
    fn index(&mut self, table: &Arc<str>, key: &Key, old: Option<&Stored>, new: Option<&Arc<Stored>>) {
        let owners = |stored: &Stored| {
            let refs = json::list(&stored.value, &["metadata", "ownerReferences"]);
            refs.iter().map(|owner| json::text(owner, &["uid"]).to_owned()).collect::<BTreeSet<_>>()
        };
        let before = old.map(owners).unwrap_or_default();
        let after = new.map(|stored| owners(stored)).unwrap_or_default();
        let place = || (Arc::clone(table), key.clone());
        for gone in before.difference(&after) {
            if let Some(set) = self.dependents.get_mut(gone) {
                set.remove(&place());
                if set.is_empty() {
                    self.dependents.remove(gone);
                }
            }
        }
        for added in after.difference(&before) {
            self.dependents.entry(added.clone()).or_default().insert(place());
        }
        match (old, new) {
            (_, Some(new)) if old.is_none_or(|old| old.uid() != new.uid()) => {
                self.by_uid.insert(new.uid().to_owned(), place());
            }
            (Some(old), None) => {
                self.by_uid.remove(old.uid());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
