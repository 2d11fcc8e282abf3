//! `snapshots`: handles to shared objects. A handle is a number; nothing is copied until a guest asks for it.

use std::sync::Arc;

use barbless_domain::run::{Snapshot, SnapshotItem, SnapshotState};
use serde::Serialize;
use wasmtime::Result;
use wasmtime::component::Resource;

use crate::contract::barbless::hooks::snapshots;
use crate::contract::handles::{ItemHandle, SnapshotHandle};
use crate::outcome::Stop;
use crate::state::State;

/// Bits of an item's number that are its place in the snapshot: 4 million objects; the rest, 1 024 snapshots.
const INDEX_BITS: u32 = 22;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const OPENED_MAX: usize = 1 << (32 - INDEX_BITS);

impl State {
    fn snapshot(&self, handle: u32) -> Result<&Arc<Snapshot>> {
        let index = usize::try_from(handle)?;
        // The engine has checked that the guest owns the handle; this is for the case that it is wrong.
        Ok(self.opened.get(index).ok_or_else(|| Stop::Denied("unknown snapshot".to_owned()))?)
    }

    fn item(&mut self, function: &'static str, handle: &Resource<ItemHandle>) -> Result<&SnapshotItem> {
        self.run(function)?;
        let snapshot = self.snapshot(handle.rep() >> INDEX_BITS)?;
        let index = usize::try_from(handle.rep() & INDEX_MASK)?;
        Ok(snapshot.items.get(index).ok_or_else(|| Stop::Denied("unknown item".to_owned()))?)
    }
}

/// JSON text that is no longer than a call may carry.
fn text(function: &'static str, value: &impl Serialize, max: u64) -> Result<String> {
    let mut bounded = Bounded { bytes: Vec::new(), max: usize::try_from(max).unwrap_or(usize::MAX), full: false };
    let written = serde_json::to_writer(&mut bounded, value);
    if bounded.full {
        let what = format!("'{function}' would give more than {max} bytes; ask for items or fields");
        return Err(Stop::Denied(what).into());
    }
    written?;
    Ok(String::from_utf8(bounded.bytes)?)
}

struct Bounded {
    bytes: Vec<u8>,
    max: usize,
    full: bool,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.max {
            self.full = true;
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl snapshots::Host for State {
    fn open(&mut self, binding: String) -> Result<Result<Resource<SnapshotHandle>, snapshots::SnapshotError>> {
        let input = self.run("snapshots.open")?;
        let snapshot = match input.snapshots.get(&binding) {
            None => return Ok(Err(snapshots::SnapshotError::NoSuchBinding)),
            Some(SnapshotState::NotSynchronised(why)) => {
                return Ok(Err(snapshots::SnapshotError::NotSynchronised(why.clone())));
            }
            Some(SnapshotState::Ready(snapshot)) => Arc::clone(snapshot),
        };
        if snapshot.items.len() > INDEX_MASK as usize {
            return Err(Stop::Denied(format!("snapshot '{binding}' has too many objects for a guest")).into());
        }
        self.open_snapshot(snapshot).map(Ok)
    }

    fn changed(&mut self) -> Result<Resource<SnapshotHandle>> {
        let input = Arc::clone(self.run("snapshots.changed")?);
        // Made once: every call would otherwise take the place of another snapshot.
        let snapshot = Arc::clone(self.changed.get_or_insert_with(|| Arc::new(input.changed())));
        self.open_snapshot(snapshot)
    }
}

impl State {
    fn open_snapshot(&mut self, snapshot: Arc<Snapshot>) -> Result<Resource<SnapshotHandle>> {
        let index = match self.opened.iter().position(|opened| Arc::ptr_eq(opened, &snapshot)) {
            Some(index) => index,
            None if self.opened.len() >= OPENED_MAX => {
                return Err(Stop::Denied(format!("more than {OPENED_MAX} snapshots opened")).into());
            }
            None => {
                self.opened.push(snapshot);
                self.opened.len() - 1
            }
        };
        self.take_handle()?;
        Ok(Resource::new_own(u32::try_from(index)?))
    }
}

impl snapshots::HostSnapshot for State {
    fn len(&mut self, this: Resource<SnapshotHandle>) -> Result<u32> {
        self.run("snapshot.len")?;
        Ok(u32::try_from(self.snapshot(this.rep())?.items.len())?)
    }

    fn at(&mut self, this: Resource<SnapshotHandle>, index: u32) -> Result<Option<Resource<ItemHandle>>> {
        self.run("snapshot.at")?;
        if usize::try_from(index)? >= self.snapshot(this.rep())?.items.len() {
            return Ok(None);
        }
        self.take_handle()?;
        Ok(Some(Resource::new_own((this.rep() << INDEX_BITS) | (index & INDEX_MASK))))
    }

    fn json(&mut self, this: Resource<SnapshotHandle>) -> Result<String> {
        self.run("snapshot.json")?;
        let max = self.limits.call_bytes;
        text("snapshot.json", &Projections(self.snapshot(this.rep())?), max)
    }

    fn drop(&mut self, _this: Resource<SnapshotHandle>) -> Result<()> {
        self.give_handle();
        Ok(())
    }
}

impl snapshots::HostItem for State {
    fn name(&mut self, this: Resource<ItemHandle>) -> Result<String> {
        Ok(self.item("item.name", &this)?.name.clone())
    }

    fn namespace(&mut self, this: Resource<ItemHandle>) -> Result<String> {
        Ok(self.item("item.namespace", &this)?.namespace.clone())
    }

    fn get(&mut self, this: Resource<ItemHandle>, pointer: String) -> Result<Option<String>> {
        let max = self.limits.call_bytes;
        let item = self.item("item.get", &this)?;
        item.projection.pointer(&pointer).map(|value| text("item.get", value, max)).transpose()
    }

    fn json(&mut self, this: Resource<ItemHandle>) -> Result<String> {
        let max = self.limits.call_bytes;
        text("item.json", &self.item("item.json", &this)?.projection, max)
    }

    fn object(&mut self, this: Resource<ItemHandle>) -> Result<Option<String>> {
        let max = self.limits.call_bytes;
        let item = self.item("item.object", &this)?;
        item.object.as_ref().map(|object| text("item.object", object, max)).transpose()
    }

    fn drop(&mut self, _this: Resource<ItemHandle>) -> Result<()> {
        self.give_handle();
        Ok(())
    }
}

/// All projections as one array.
struct Projections<'a>(&'a Snapshot);

impl Serialize for Projections<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.items.iter().map(|item| &item.projection))
    }
}
