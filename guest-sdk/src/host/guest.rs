//! In a component: thin names for the imports.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::bindings::hooks::barbless::hooks as wit;

pub(crate) use wit::clock::now_unix_ms;
pub(crate) use wit::instance::current as instance;
pub(crate) use wit::log::write as log;
pub(crate) use wit::metrics::{counter_add, gauge_set, histogram_observe};
pub(crate) use wit::random::{bytes as random_bytes, next_u64};
pub(crate) use wit::settings::get as settings_get;
pub(crate) use wit::snapshots::{Item as ItemHandle, Snapshot as SnapshotHandle, changed, open as snapshot_open};
pub(crate) use wit::values::{get as values_get, remove as values_remove, set as values_set};

/// The collector that `run` was lent.
#[derive(Debug)]
pub(crate) struct Collector {
    borrowed: ManuallyDrop<wit::patch_collector::PatchCollector>,
}

impl Collector {
    /// Keeps a second name of the borrowed handle, so that [`crate::Context`] needs no lifetime.
    ///
    /// The caller keeps `lent` until the collector is gone: `run` does, since the context lives on its stack and a hook
    /// gets only a reference to it.
    pub(crate) fn new(lent: &wit::patch_collector::PatchCollector) -> Self {
        #[expect(unsafe_code, reason = "the handle is valid until `run` returns, and `ManuallyDrop` never drops it")]
        let collector = unsafe { wit::patch_collector::PatchCollector::from_handle(lent.handle()) };
        Self { borrowed: ManuallyDrop::new(collector) }
    }
}

impl Deref for Collector {
    type Target = wit::patch_collector::PatchCollector;

    fn deref(&self) -> &Self::Target {
        &self.borrowed
    }
}
