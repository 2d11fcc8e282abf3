//! The data file of run records: the records, and what went into the runs as documents that many runs share.
//!
//! Values, settings, snapshots and components change far less often than hooks run, so each is kept once, by its digest
//! and compressed, as long as a record needs it. One process writes; others may read meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write};
use std::path::Path;

use barbless_domain::limits::{GuestLimits, RECORD_INPUT_BYTES};
use barbless_domain::run::{InputOutline, RunRecord, SnapshotOutline, SnapshotState};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use redb::{ConcurrencyMode, ReadTransaction, ReadableTable, Table, TableDefinition, TableError};
use serde::Serialize;

use super::{Inputs, RunsError, write_error};

/// Name of the file.
pub(super) const FILE: &str = "runs.redb";
/// Key: `<application>\0<id>` with the id in hexadecimal digits, so that the records of an application are in order.
const RUNS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("runs");
/// The same key; the value is a JSON list of names of documents. Runs whose input is not kept have none.
const INPUTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("inputs");
/// Key: what kind of document, and its digest. The value is the document, compressed.
const DOCUMENTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("documents");
/// Memory for pages of the file; the library takes 1 GiB unless told.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// The key of a record.
pub(super) fn key(application: &str, id: u64) -> String {
    format!("{application}\0{id:016x}")
}

fn id_of(key: &str) -> u64 {
    key.rsplit_once('\0').and_then(|(_, id)| u64::from_str_radix(id, 16).ok()).unwrap_or(0)
}

/// Name of a document of JSON text: values or settings.
pub(super) fn json_name(digest: &str) -> String {
    format!("json {digest}")
}

/// Name of a snapshot.
pub(super) fn snapshot_name(sha256: &str) -> String {
    format!("snapshot {sha256}")
}

/// Name of a component.
pub(super) fn component_name(digest: &str) -> String {
    format!("component {digest}")
}

/// How this file is opened.
pub(super) fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_concurrency_mode(ConcurrencyMode::SingleWriter).set_cache_size(CACHE_BYTES);
    builder
}

/// One record to write, and the keys of those that leave the rings.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) record: Option<NewRecord>,
    pub(super) dropped: Vec<String>,
}

/// A record to write.
#[derive(Debug)]
pub(super) struct NewRecord {
    pub(super) key: String,
    /// The record as JSON text.
    pub(super) text: Vec<u8>,
    pub(super) outline: InputOutline,
    pub(super) component: String,
    pub(super) inputs: Option<Inputs>,
}

/// The file, as its one writer has it.
pub(super) struct Disk {
    database: redb::Database,
    uses: Uses,
    /// Bytes that all documents may have.
    most: u64,
}

/// Which documents are needed, and by how many inputs.
#[derive(Debug, Default)]
struct Uses {
    documents: BTreeMap<String, Use>,
    /// Bytes of all documents, compressed.
    bytes: u64,
    /// Keys of the records whose input is kept, by their ids.
    inputs: BTreeSet<(u64, String)>,
}

#[derive(Debug, Default)]
struct Use {
    inputs: usize,
    bytes: u64,
}

struct Tables<'txn> {
    runs: Table<'txn, &'static str, &'static [u8]>,
    inputs: Table<'txn, &'static str, &'static [u8]>,
    documents: Table<'txn, &'static str, &'static [u8]>,
}

impl Disk {
    /// Opens or makes the file, and reads all records with their size.
    pub(super) fn open(path: &Path, most: u64) -> Result<(Self, Vec<(RunRecord, usize)>), redb::Error> {
        let database = builder().create(path)?;
        let read = redb::ReadableDatabase::begin_read(&database)?;
        let records = records(&read)?;
        let uses = Uses::read(&read)?;
        drop(read);
        Ok((Self { database, uses, most }, records))
    }

    /// Writes several records at once.
    pub(super) fn write(&mut self, jobs: &[Job]) -> Result<(), RunsError> {
        let written = self.try_write(jobs);
        if written.is_err() {
            // What was counted is not what is there.
            let read = redb::ReadableDatabase::begin_read(&self.database).map_err(write_error)?;
            self.uses = Uses::read(&read).map_err(write_error)?;
        }
        written
    }

    fn try_write(&mut self, jobs: &[Job]) -> Result<(), RunsError> {
        let write = self.database.begin_write().map_err(write_error)?;
        {
            let mut tables = Tables {
                runs: write.open_table(RUNS).map_err(write_error)?,
                inputs: write.open_table(INPUTS).map_err(write_error)?,
                documents: write.open_table(DOCUMENTS).map_err(write_error)?,
            };
            for job in jobs {
                if let Some(new) = &job.record {
                    tables.runs.insert(new.key.as_str(), new.text.as_slice()).map_err(write_error)?;
                    self.uses.keep(&mut tables, new)?;
                }
                for key in &job.dropped {
                    tables.runs.remove(key.as_str()).map_err(write_error)?;
                    self.uses.forget(&mut tables, key)?;
                }
            }
            self.uses.make_room(&mut tables, self.most)?;
        }
        write.commit().map_err(write_error)
    }
}

impl Uses {
    fn read(read: &ReadTransaction) -> Result<Self, redb::Error> {
        let mut uses = Self::default();
        let Some(inputs) = table(read, INPUTS)? else { return Ok(uses) };
        for entry in inputs.iter()? {
            let (key, names) = entry?;
            for name in names_in(names.value()) {
                uses.documents.entry(name).or_default().inputs += 1;
            }
            uses.inputs.insert((id_of(key.value()), key.value().to_owned()));
        }
        if let Some(documents) = table(read, DOCUMENTS)? {
            for entry in documents.iter()? {
                let (name, document) = entry?;
                let bytes = document.value().len() as u64;
                uses.bytes += bytes;
                uses.documents.entry(name.value().to_owned()).or_default().bytes = bytes;
            }
        }
        Ok(uses)
    }

    /// Keeps what went into a run, unless it is too large.
    fn keep(&mut self, tables: &mut Tables<'_>, new: &NewRecord) -> Result<(), RunsError> {
        let Some(inputs) = &new.inputs else { return Ok(()) };
        let sizes = new.outline.snapshots.values().map(|snapshot| match snapshot {
            SnapshotOutline::Ready { bytes, .. } => *bytes,
            SnapshotOutline::NotSynchronised { .. } => 0,
        });
        let Some(mut left) = RECORD_INPUT_BYTES.checked_sub(sizes.fold(0, usize::saturating_add)) else {
            return Ok(());
        };
        let mut names = BTreeSet::new();
        let mut packed: Vec<(String, Vec<u8>)> = Vec::new();
        let mut add = |name: String, pack: &mut dyn FnMut() -> std::io::Result<Option<Vec<u8>>>| {
            let is_new = !self.documents.contains_key(&name) && !names.contains(&name);
            names.insert(name.clone());
            if is_new {
                match pack().map_err(RunsError::Pack)? {
                    Some(bytes) => packed.push((name, bytes)),
                    None => return Ok(false),
                }
            }
            Ok::<bool, RunsError>(true)
        };
        let input = &inputs.input;
        for (digest, document) in [(&new.outline.values, &input.values), (&new.outline.settings, &input.settings)] {
            if !add(json_name(digest), &mut || pack_json(&**document, &mut left))? {
                return Ok(());
            }
        }
        for (binding, outline) in &new.outline.snapshots {
            let (SnapshotOutline::Ready { sha256, .. }, Some(SnapshotState::Ready(snapshot))) =
                (outline, input.snapshots.get(binding))
            else {
                continue;
            };
            // Its bytes are counted already, apart from the punctuation.
            add(snapshot_name(sha256), &mut || pack(|into| Ok(serde_json::to_writer(into, &**snapshot)?)).map(Some))?;
        }
        if let Some(component) = inputs.package.component(&inputs.component) {
            add(component_name(&new.component), &mut || pack(|into| into.write_all(component)).map(Some))?;
        }
        for (name, bytes) in packed {
            tables.documents.insert(name.as_str(), bytes.as_slice()).map_err(write_error)?;
            self.bytes += bytes.len() as u64;
            self.documents.insert(name, Use { inputs: 0, bytes: bytes.len() as u64 });
        }
        let list = serde_json::to_vec(&names).map_err(RunsError::Encode)?;
        tables.inputs.insert(new.key.as_str(), list.as_slice()).map_err(write_error)?;
        for name in names {
            self.documents.entry(name).or_default().inputs += 1;
        }
        self.inputs.insert((id_of(&new.key), new.key.clone()));
        Ok(())
    }

    /// Forgets what went into a run, and the documents that nothing else needs.
    fn forget(&mut self, tables: &mut Tables<'_>, key: &str) -> Result<(), RunsError> {
        self.inputs.remove(&(id_of(key), key.to_owned()));
        let Some(names) = tables.inputs.remove(key).map_err(write_error)?.map(|names| names_in(names.value())) else {
            return Ok(());
        };
        for name in names {
            let Some(one) = self.documents.get_mut(&name) else { continue };
            one.inputs = one.inputs.saturating_sub(1);
            if one.inputs == 0 {
                self.bytes = self.bytes.saturating_sub(one.bytes);
                self.documents.remove(&name);
                tables.documents.remove(name.as_str()).map_err(write_error)?;
            }
        }
        Ok(())
    }

    /// Forgets the inputs of the oldest runs while there is too much; that of the newest stays.
    fn make_room(&mut self, tables: &mut Tables<'_>, most: u64) -> Result<(), RunsError> {
        while self.bytes > most && self.inputs.len() > 1 {
            let Some((_, key)) = self.inputs.first().cloned() else { break };
            self.forget(tables, &key)?;
        }
        Ok(())
    }
}

/// All records that this version can read, with their size.
pub(super) fn records(read: &ReadTransaction) -> Result<Vec<(RunRecord, usize)>, redb::Error> {
    let mut records = Vec::new();
    let Some(table) = table(read, RUNS)? else { return Ok(records) };
    for entry in table.iter()? {
        let (_, bytes) = entry?;
        if let Ok(record) = serde_json::from_slice::<RunRecord>(bytes.value()) {
            records.push((record, bytes.value().len()));
        }
    }
    records.sort_by_key(|(record, _)| record.id);
    Ok(records)
}

/// Whether the input of a run is kept.
pub(super) fn has_input(read: &ReadTransaction, key: &str) -> Result<bool, redb::Error> {
    match table(read, INPUTS)? {
        Some(inputs) => Ok(inputs.get(key)?.is_some()),
        None => Ok(false),
    }
}

/// A document, unpacked.
pub(super) fn document(read: &ReadTransaction, name: &str) -> Result<Option<Vec<u8>>, redb::Error> {
    let Some(documents) = table(read, DOCUMENTS)? else { return Ok(None) };
    let Some(packed) = documents.get(name)? else { return Ok(None) };
    // The punctuation of a snapshot is not counted when it is kept: an object is never without bytes of its own.
    let most = (2 * RECORD_INPUT_BYTES as u64).max(GuestLimits::default().component_bytes);
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed.value()).take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

type Opened = redb::ReadOnlyTable<&'static str, &'static [u8]>;

fn table(
    read: &ReadTransaction,
    definition: TableDefinition<'static, &'static str, &'static [u8]>,
) -> Result<Option<Opened>, redb::Error> {
    match read.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        // Nothing was written yet.
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names_in(list: &[u8]) -> BTreeSet<String> {
    serde_json::from_slice(list).unwrap_or_default()
}

fn pack(fill: impl FnOnce(&mut ZlibEncoder<Vec<u8>>) -> std::io::Result<()>) -> std::io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    fill(&mut encoder)?;
    encoder.finish()
}

/// A document as JSON text, compressed; nothing if it has more bytes than are left.
fn pack_json(document: &impl Serialize, left: &mut usize) -> std::io::Result<Option<Vec<u8>>> {
    struct Meter<'a, W> {
        into: &'a mut W,
        left: &'a mut usize,
    }
    impl<W: Write> Write for Meter<'_, W> {
        fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
            *self.left = self.left.checked_sub(part.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            self.into.write_all(part)?;
            Ok(part.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            self.into.flush()
        }
    }
    let packed = pack(|into| serde_json::to_writer(Meter { into, left }, document).map_err(std::io::Error::from));
    match packed {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}
