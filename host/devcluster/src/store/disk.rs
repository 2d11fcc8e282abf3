//! Persistence: one redb file, written by one thread that commits whatever has gathered since its last commit.
//!
//! A write is put into the queue under the lock of the store, so the file sees writes in revision order. The queue is
//! bounded; when the disk is slower than the writers, they wait.

use std::{
    fs::Permissions,
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Key;
use crate::DataTrouble;

/// Writes that may wait for the disk. At 3 MiB each at most, in practice a few KiB.
const QUEUE_MAX: usize = 1024;

/// `table \0 namespace \0 name` to (revision, JSON text).
const OBJECTS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("objects");
/// `revision` to the newest revision that was written (a deletion leaves no object that would tell).
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The data folder could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("cannot create the data folder {path}")]
    Folder { path: String, source: std::io::Error },
    #[error("cannot read or write the data file {path}")]
    Database { path: String, source: Box<redb::Error> },
    #[error("the data file {path} holds an entry that is not an object: {key}")]
    Entry { path: String, key: String, source: serde_json::Error },
    #[error("cannot start the thread that writes {path}")]
    Thread { path: String, source: std::io::Error },
}

impl DiskError {
    pub(crate) fn trouble(&self) -> DataTrouble {
        match self {
            Self::Folder { source, .. } => of_io(source),
            Self::Thread { .. } => DataTrouble::Other,
            Self::Database { source, .. } => match &**source {
                redb::Error::DatabaseAlreadyOpen => DataTrouble::InUse,
                // redb tells a file that is none of its own like this.
                redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => DataTrouble::Damaged,
                redb::Error::Io(error) => of_io(error),
                _ => DataTrouble::Damaged,
            },
            Self::Entry { .. } => DataTrouble::Damaged,
        }
    }
}

fn of_io(error: &std::io::Error) -> DataTrouble {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => DataTrouble::Denied,
        _ => DataTrouble::Other,
    }
}

struct Record {
    key: String,
    revision: u64,
    /// `None` deletes.
    bytes: Option<Bytes>,
    done: oneshot::Sender<Result<(), String>>,
}

pub(crate) struct Disk {
    queue: mpsc::SyncSender<Record>,
    thread: JoinHandle<()>,
    revision: u64,
}

/// Says when a write is safe.
#[must_use]
pub(crate) struct Ticket(Option<oneshot::Receiver<Result<(), String>>>);

impl Ticket {
    pub(crate) fn done() -> Self {
        Self(None)
    }

    /// A write that will never be on disk, because the store is closed.
    pub(super) fn lost() -> Self {
        Self(Some(oneshot::channel().1))
    }

    /// Waits until the write is on disk.
    pub(crate) async fn wait(self) -> Result<(), String> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.await.unwrap_or_else(|_| Err("the store is closed".to_owned())),
        }
    }

    /// For writers that nobody waits for; a failure is logged by the writer thread.
    pub(crate) fn ignore(self) {}
}

/// Makes a folder, if there is none, and makes it the owner's alone: the file in it holds the contents of Secrets.
fn own_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // It may have been there before.
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// The same for a file. Whoever had it open before can still read it; nobody else can from here on.
fn own_file(file: &Path) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

/// What a data file held: table, key, object, revision.
pub(crate) type Loaded = Vec<(Arc<str>, Key, Value, u64)>;

impl Disk {
    pub(crate) fn open(folder: &Path) -> Result<(Self, Loaded), DiskError> {
        let path = folder.display().to_string();
        own_folder(folder).map_err(|source| DiskError::Folder { path: path.clone(), source })?;
        let file = folder.join("devcluster.redb");
        let path = file.display().to_string();
        let wrap = |source: redb::Error| DiskError::Database { path: path.clone(), source: Box::new(source) };
        own_file(&file).map_err(|error| wrap(redb::Error::Io(error)))?;
        let database = Database::create(&file).map_err(|e| wrap(e.into()))?;
        let (entries, revision) = read(&database).map_err(wrap)?;
        let mut loaded = Loaded::with_capacity(entries.len());
        let mut names = std::collections::HashMap::<String, Arc<str>>::new();
        for (key, revision, bytes) in entries {
            let value = serde_json::from_slice(&bytes).map_err(|source| DiskError::Entry {
                path: path.clone(),
                key: key.clone(),
                source,
            })?;
            let mut parts = key.splitn(3, '\0');
            let (Some(table), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let table = names.entry(table.to_owned()).or_insert_with(|| table.into());
            loaded.push((Arc::clone(table), (namespace.to_owned(), name.to_owned()), value, revision));
        }
        let (queue, records) = mpsc::sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("devcluster-disk".to_owned())
            .spawn(move || run(&database, &records))
            .map_err(|source| DiskError::Thread { path: path.clone(), source })?;
        Ok((Self { queue, thread, revision }, loaded))
    }

    /// The newest revision that the file knows.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn write(&self, table: &str, key: &Key, revision: u64, bytes: Option<Bytes>) -> Ticket {
        let (done, ticket) = oneshot::channel();
        let key = format!("{table}\0{}\0{}", key.0, key.1);
        // A closed queue drops `done`, which the ticket reports.
        let _ = self.queue.send(Record { key, revision, bytes, done });
        Ticket(Some(ticket))
    }

    pub(crate) fn close(self) {
        drop(self.queue);
        if self.thread.join().is_err() {
            tracing::error!("the writer of the data file ended by a panic");
        }
    }
}

/// Key, revision and text of an object as the file has them.
type Entry = (String, u64, Vec<u8>);

fn read(database: &Database) -> Result<(Vec<Entry>, u64), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(META)?;
    transaction.commit()?;
    let transaction = database.begin_read()?;
    let mut entries = Vec::new();
    for entry in transaction.open_table(OBJECTS)?.iter()? {
        let (key, value) = entry?;
        let (revision, bytes) = value.value();
        entries.push((key.value().to_owned(), revision, bytes.to_vec()));
    }
    let revision = transaction.open_table(META)?.get("revision")?.map(|value| value.value()).unwrap_or_default();
    Ok((entries, revision))
}

fn run(database: &Database, records: &mpsc::Receiver<Record>) {
    while let Ok(first) = records.recv() {
        let mut batch = vec![first];
        batch.extend(records.try_iter().take(QUEUE_MAX));
        let outcome = commit(database, &batch).map_err(|error| {
            tracing::error!(%error, writes = batch.len(), "cannot write the data file");
            error.to_string()
        });
        for record in batch {
            // The writer may have gone away; its write stays.
            let _ = record.done.send(outcome.clone());
        }
    }
}

fn commit(database: &Database, batch: &[Record]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut meta = transaction.open_table(META)?;
        for record in batch {
            match &record.bytes {
                Some(bytes) => objects.insert(record.key.as_str(), (record.revision, bytes.as_ref()))?,
                None => objects.remove(record.key.as_str())?,
            };
            meta.insert("revision", record.revision)?;
        }
    }
    transaction.commit()?;
    Ok(())
}
