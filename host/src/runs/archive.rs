//! The run records of a data folder, for reading; a process that keeps records there may go on meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use barbless_domain::run::{RunInput, RunRecord, Snapshot, SnapshotOutline, SnapshotState};
use barbless_domain::values;
use redb::{ReadTransaction, ReadableDatabase as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{RunsError, disk, failed, guarded};

/// The records as of the moment at which it was opened.
pub struct Archive {
    place: String,
    read: ReadTransaction,
    /// The transaction reads from it.
    _database: Box<dyn std::any::Any>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Archive {
    /// Opens the records of a data folder.
    ///
    /// # Errors
    /// [`RunsError::Missing`] if there are none; otherwise the file cannot be read or is damaged.
    pub fn open(folder: &Path) -> Result<Self, RunsError> {
        let path = folder.join(disk::FILE);
        let place = path.display().to_string();
        if !path.is_file() {
            return Err(RunsError::Missing { path: place });
        }
        guarded(&place, || {
            let failed = |error: redb::Error| failed(&place, error);
            let (read, database): (_, Box<dyn std::any::Any>) = match disk::builder().open_read_only(&path) {
                Ok(database) => (database.begin_read().map_err(|error| failed(error.into()))?, Box::new(database)),
                // Its writer was killed, and only a writer can mend it.
                Err(redb::DatabaseError::RepairAborted) => {
                    let database = disk::builder().open(&path).map_err(|error| failed(error.into()))?;
                    (database.begin_read().map_err(|error| failed(error.into()))?, Box::new(database))
                }
                Err(error) => return Err(failed(error.into())),
            };
            Ok(Self { place: place.clone(), read, _database: database })
        })
    }

    fn reading<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, RunsError> {
        guarded(&self.place, || read(&self.read).map_err(|error| failed(&self.place, error)))
    }

    /// All records, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn records(&self) -> Result<Vec<RunRecord>, RunsError> {
        Ok(self.reading(disk::records)?.into_iter().map(|(record, _)| record).collect())
    }

    /// Whether what went into a run is kept.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn has_input(&self, record: &RunRecord) -> Result<bool, RunsError> {
        self.reading(|read| disk::has_input(read, &disk::key(&record.application, record.id)))
    }

    /// What went into a run; nothing if it is not kept.
    ///
    /// # Errors
    /// If the file cannot be read, or what is there is not what went in.
    pub fn input(&self, record: &RunRecord) -> Result<Option<RunInput>, RunsError> {
        if !self.has_input(record)? {
            return Ok(None);
        }
        let outline = &record.input;
        let mut snapshots = BTreeMap::new();
        for (binding, snapshot) in &outline.snapshots {
            let state = match snapshot {
                SnapshotOutline::NotSynchronised { not_synchronised } => {
                    SnapshotState::NotSynchronised(not_synchronised.clone())
                }
                SnapshotOutline::Ready { sha256, .. } => SnapshotState::Ready(self.snapshot(sha256)?),
            };
            snapshots.insert(binding.clone(), state);
        }
        let seed = outline.seed().ok_or_else(|| self.damaged("the seed is none"))?;
        Ok(Some(RunInput {
            hook: record.hook.clone(),
            trigger: record.trigger.clone(),
            attempt: record.attempt,
            dry_run: outline.dry_run,
            instance: outline.instance.clone(),
            values: self.json(&outline.values)?,
            settings: self.json(&outline.settings)?,
            snapshots,
            now_unix_ms: record.started_unix_ms,
            seed,
        }))
    }

    /// A component by its digest; nothing if it is not kept.
    ///
    /// # Errors
    /// If the file cannot be read, or what is there has another digest.
    pub fn component(&self, digest: &str) -> Result<Option<Vec<u8>>, RunsError> {
        let Some(bytes) = self.reading(|read| disk::document(read, &disk::component_name(digest)))? else {
            return Ok(None);
        };
        if component_digest(&bytes) == digest { Ok(Some(bytes)) } else { Err(self.damaged("a component")) }
    }

    fn json(&self, digest: &str) -> Result<Arc<Value>, RunsError> {
        let document: Value = self.parsed(&disk::json_name(digest))?;
        if values::digest(&document) == digest { Ok(Arc::new(document)) } else { Err(self.damaged(digest)) }
    }

    fn snapshot(&self, sha256: &str) -> Result<Arc<Snapshot>, RunsError> {
        let snapshot: Snapshot = self.parsed(&disk::snapshot_name(sha256))?;
        if super::hex(&snapshot.sum().digest) == sha256 { Ok(Arc::new(snapshot)) } else { Err(self.damaged(sha256)) }
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, RunsError> {
        let bytes = self.reading(|read| disk::document(read, name))?;
        let bytes = bytes.ok_or_else(|| self.damaged(&format!("{name} is missing")))?;
        serde_json::from_slice(&bytes).map_err(|error| self.damaged(&format!("{name}: {error}")))
    }

    fn damaged(&self, what: &str) -> RunsError {
        RunsError::Damaged { path: self.place.clone(), why: format!("an input is not what it was: {what}") }
    }
}

/// The digest of a component, as records have it.
pub(crate) fn component_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", super::hex(&Sha256::digest(bytes)))
}
