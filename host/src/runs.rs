//! The records of runs: a bounded ring for each application, in memory or on disk.
//!
//! The state of record is the cluster; losing the ring loses history and nothing else. So a record that cannot be
//! written is reported and the run it describes counts all the same, and no run waits for the disk: a thread writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use barbless_domain::limits::{RECORD_DOCUMENTS_BYTES, RUN_RECORDS};
use barbless_domain::package::Package;
use barbless_domain::run::{RunInput, RunRecord, SnapshotState};
use serde::Serialize;

mod archive;
mod disk;
pub(crate) mod shown;

pub use archive::Archive;
pub(crate) use archive::component_digest;
use disk::{Disk, Job, NewRecord};

/// Records that wait for the disk. A disk that is further behind loses records; memory still has them.
const UNWRITTEN: usize = 1024;
/// Inputs of runs that wait for the disk: each may keep documents alive that nothing else needs. A record beyond that is
/// written without.
const UNWRITTEN_INPUTS: usize = 64;
/// Records written at once.
const BATCH: usize = 64;
/// Bytes of the records of one application, as JSON text: a few of the largest records, or all of ordinary ones.
const RING_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of the records of all applications; beyond that the oldest of all goes.
const ALL_BYTES: usize = 256 * 1024 * 1024;
/// Bytes of the input of one run that are kept in memory, where there is no disk.
const MEMORY_INPUT_BYTES: usize = 256 * 1024;
/// Applications that are gone whose records are kept: enough to look into what went wrong today, few enough that a host
/// on which applications come and go does not gather them for ever.
const RETIRED: usize = 16;

/// Why records cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// The file cannot be opened or made.
    #[error("opening the run records at {path}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// The file is no data file, or is damaged.
    #[error("the run records at {path} are damaged ({why})")]
    Damaged {
        /// The file.
        path: String,
        /// What was found.
        why: String,
    },
    /// Nothing was ever kept in this folder.
    #[error("there are no run records at {path}")]
    Missing {
        /// The file.
        path: String,
    },
    /// What went into a run cannot be compressed.
    #[error("packing the input of a run")]
    Pack(#[source] std::io::Error),
    /// A transaction failed.
    #[error("writing a run record")]
    Write(#[source] Box<redb::Error>),
    /// A record cannot be turned into text.
    #[error("encoding a run record")]
    Encode(#[source] serde_json::Error),
    /// The thread that writes cannot be started.
    #[error("starting the thread that writes run records")]
    Thread(#[source] std::io::Error),
    /// The disk is too slow, or its thread is gone.
    #[error("{UNWRITTEN} run records wait for the disk already")]
    Behind,
}

fn write_error(error: impl Into<redb::Error>) -> RunsError {
    RunsError::Write(Box::new(error.into()))
}

fn failed(place: &str, error: redb::Error) -> RunsError {
    match error {
        redb::Error::Corrupted(why) => RunsError::Damaged { path: place.to_owned(), why },
        // Of another format, or a bit of its head is wrong: it is put aside whole.
        redb::Error::UpgradeRequired(format) => {
            RunsError::Damaged { path: place.to_owned(), why: format!("it has format {format}, which is not read") }
        }
        // What is no file of the library, or ends too early.
        redb::Error::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
        {
            RunsError::Damaged { path: place.to_owned(), why: error.to_string() }
        }
        source => RunsError::Open { path: place.to_owned(), source: Box::new(source) },
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a replay of a run needs.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// What went in.
    pub input: Arc<RunInput>,
    /// The package with its component.
    pub package: Arc<Package>,
    /// Path of the component in the package.
    pub component: String,
}

/// The rings.
#[derive(Debug)]
pub struct RunLog {
    state: Mutex<State>,
    disk: Option<Writer>,
}

/// The thread that writes. What was handed over is on disk once this is dropped.
#[derive(Debug)]
struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    inputs_waiting: Arc<AtomicUsize>,
}

impl Writer {
    fn start(mut disk: Disk) -> Result<Self, RunsError> {
        let (jobs, inbox) = sync_channel(UNWRITTEN);
        let inputs_waiting = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&inputs_waiting);
        let thread = std::thread::Builder::new()
            .name("run-records".to_owned())
            .spawn(move || write_all(&mut disk, &inbox, &waiting))
            .map_err(RunsError::Thread)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), inputs_waiting })
    }

    fn hand_over(&self, mut job: Job) -> Result<(), RunsError> {
        let Some(jobs) = &self.jobs else { return Ok(()) };
        if let Some(new) = &mut job.record
            && new.inputs.is_some()
        {
            if self.inputs_waiting.load(Ordering::Relaxed) < UNWRITTEN_INPUTS {
                self.inputs_waiting.fetch_add(1, Ordering::Relaxed);
            } else {
                new.inputs = None;
            }
        }
        let counted = usize::from(job.record.as_ref().is_some_and(|new| new.inputs.is_some()));
        jobs.try_send(job).map_err(|_| {
            self.inputs_waiting.fetch_sub(counted, Ordering::Relaxed);
            RunsError::Behind
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes run records ended in a panic: this is a bug of the host");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    bytes: usize,
    rings: BTreeMap<String, Ring>,
    /// Applications that are gone, those longest first.
    retired: VecDeque<String>,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: usize,
    records: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    record: Arc<RunRecord>,
    /// Where there is no disk, and it is small.
    input: Option<Arc<RunInput>>,
    bytes: usize,
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id = self.last_id.saturating_add(1);
        self.last_id
    }

    /// Drops what there is of an application that is gone once too many others are gone too; says what went.
    fn retire(&mut self, application: &str) -> Vec<(String, u64)> {
        self.retired.retain(|it| it != application);
        if self.rings.contains_key(application) {
            self.retired.push_back(application.to_owned());
        }
        let mut dropped = Vec::new();
        while self.retired.len() > RETIRED {
            let Some(name) = self.retired.pop_front() else { break };
            while let Some(record) = self.drop_oldest_of(&name) {
                dropped.push(record);
            }
        }
        dropped
    }

    /// Keeps a record of so many bytes; says which had to go for it.
    fn keep(&mut self, kept: Kept) -> Vec<(String, u64)> {
        let (application, id, bytes) = (kept.record.application.clone(), kept.record.id, kept.bytes);
        self.retired.retain(|it| *it != application);
        let ring = self.rings.entry(application.clone()).or_default();
        // Two runs that end at once may come here in another order than that of their ids.
        let at = ring.records.iter().rposition(|other| other.record.id < id).map_or(0, |before| before + 1);
        ring.records.insert(at, kept);
        ring.bytes += bytes;
        self.bytes += bytes;
        let mut dropped = Vec::new();
        // The newest stays, whatever its size: the output of a run is bounded.
        while self
            .rings
            .get(&application)
            .is_some_and(|it| it.records.len() > RUN_RECORDS || (it.bytes > RING_BYTES && it.records.len() > 1))
        {
            dropped.extend(self.drop_oldest_of(&application));
        }
        while self.bytes > ALL_BYTES {
            let oldest = |ring: &Ring| ring.records.front().map_or(u64::MAX, |kept| kept.record.id);
            let Some(name) = self.rings.iter().min_by_key(|(_, ring)| oldest(ring)).map(|(name, _)| name.clone())
            else {
                break;
            };
            dropped.extend(self.drop_oldest_of(&name));
        }
        dropped
    }

    fn drop_oldest_of(&mut self, application: &str) -> Option<(String, u64)> {
        let ring = self.rings.get_mut(application)?;
        let oldest = ring.records.pop_front();
        if let Some(Kept { bytes, .. }) = &oldest {
            ring.bytes -= bytes;
            self.bytes -= bytes;
        }
        if ring.records.is_empty() {
            self.rings.remove(application);
            self.retired.retain(|it| it != application);
        }
        oldest.map(|kept| (kept.record.application.clone(), kept.record.id))
    }
}

/// The library of the data file panics on some damage. Such a panic leaves nothing of ours half done.
fn guarded<T>(path: &str, work: impl FnOnce() -> Result<T, RunsError>) -> Result<T, RunsError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(RunsError::Damaged { path: path.to_owned(), why: "reading it ended in a panic".to_owned() })
    })
}

impl RunLog {
    /// Rings in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { state: Mutex::default(), disk: None }
    }

    /// Rings that outlive the process, in `runs.redb` of this folder. Records that this version cannot read are
    /// dropped; a file that is damaged is renamed to `runs.redb.damaged`, and a new one takes its place.
    ///
    /// # Errors
    /// If the file cannot be opened for another reason: another process has it, or this one may not.
    pub fn open(folder: &Path) -> Result<Self, RunsError> {
        let path = folder.join(disk::FILE);
        match Self::read(&path, RECORD_DOCUMENTS_BYTES) {
            Err(damaged @ RunsError::Damaged { .. }) => {
                let aside = folder.join("runs.redb.damaged");
                tracing::warn!(error = %damaged, aside = %aside.display(), "the history of runs begins anew");
                let failed = |source: std::io::Error| RunsError::Open {
                    path: path.display().to_string(),
                    source: Box::new(source.into()),
                };
                std::fs::rename(&path, &aside).map_err(failed)?;
                Self::read(&path, RECORD_DOCUMENTS_BYTES)
            }
            result => result,
        }
    }

    fn read(path: &Path, documents_bytes: u64) -> Result<Self, RunsError> {
        let shown = path.display().to_string();
        guarded(&shown, || {
            // Inputs of runs hold secrets.
            owner_only(path).map_err(|error| failed(&shown, redb::Error::Io(error)))?;
            let (disk, records) = Disk::open(path, documents_bytes).map_err(|error| failed(&shown, error))?;
            let mut state = State::default();
            let mut dropped = Vec::new();
            for (record, bytes) in records {
                state.last_id = state.last_id.max(record.id);
                dropped.extend(state.keep(Kept { record: Arc::new(record), input: None, bytes }));
            }
            let log = Self { state: Mutex::new(state), disk: Some(Writer::start(disk)?) };
            // An earlier process may have been too far behind to drop them.
            log.drop_on_disk(&dropped);
            Ok(log)
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic between two lines of this module leaves the ring whole.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Keeps a record and gives it its id, and keeps what a replay needs: on disk if there is one, and in memory as long
    /// as it is small. Does not wait for the disk. The second part says if it could not be handed to the disk; it is kept
    /// in memory then.
    pub fn add(&self, mut record: RunRecord, inputs: Option<Inputs>) -> (Arc<RunRecord>, Result<(), RunsError>) {
        record.id = self.state().next_id();
        let record = Arc::new(record);
        let text = match serde_json::to_vec(&*record) {
            Ok(text) => text,
            Err(error) => return (record, Err(RunsError::Encode(error))),
        };
        let small = match (&self.disk, &inputs) {
            (None, Some(inputs)) => {
                size_within(&inputs.input, MEMORY_INPUT_BYTES).map(|bytes| (Arc::clone(&inputs.input), bytes))
            }
            _ => None,
        };
        let (input, input_bytes) = small.map_or((None, 0), |(input, bytes)| (Some(input), bytes));
        let kept = Kept { record: Arc::clone(&record), input, bytes: text.len() + input_bytes };
        let dropped = self.state().keep(kept);
        let new = NewRecord {
            key: disk::key(&record.application, record.id),
            text,
            outline: record.input.clone(),
            component: record.component.clone(),
            inputs,
        };
        let handed = self.hand_over(Some(new), &dropped);
        (record, handed)
    }

    /// An application is gone. Its records stay for whoever wants to know what happened, until those of so many others
    /// that are gone came after; a new run of an application of that name makes them ordinary records again.
    pub fn retire(&self, application: &str) {
        let dropped = self.state().retire(application);
        self.drop_on_disk(&dropped);
    }

    /// Only these applications are there: all others went while nobody looked.
    pub fn retire_all_but(&self, there: &BTreeSet<String>) {
        let mut state = self.state();
        // Those whose last run is longest ago go first.
        let last = |ring: &Ring| ring.records.back().map_or(0, |kept| kept.record.id);
        let mut gone: Vec<(u64, String)> = state
            .rings
            .iter()
            .filter(|(name, _)| !there.contains(*name) && !state.retired.contains(*name))
            .map(|(name, ring)| (last(ring), name.clone()))
            .collect();
        gone.sort_unstable();
        let dropped: Vec<(String, u64)> = gone.iter().flat_map(|(_, name)| state.retire(name)).collect();
        drop(state);
        self.drop_on_disk(&dropped);
    }

    fn drop_on_disk(&self, dropped: &[(String, u64)]) {
        if !dropped.is_empty()
            && let Err(error) = self.hand_over(None, dropped)
        {
            // They are dropped again when the file is opened next.
            tracing::warn!(records = dropped.len(), %error, "run records stay on disk");
        }
    }

    fn hand_over(&self, record: Option<NewRecord>, dropped: &[(String, u64)]) -> Result<(), RunsError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let dropped = dropped.iter().map(|(application, id)| disk::key(application, *id)).collect();
        disk.hand_over(Job { record, dropped })
    }

    /// The records of an application, oldest first.
    #[must_use]
    pub fn of(&self, application: &str) -> Vec<Arc<RunRecord>> {
        let state = self.state();
        let ring = state.rings.get(application);
        ring.map(|ring| ring.records.iter().map(|kept| Arc::clone(&kept.record)).collect()).unwrap_or_default()
    }

    /// What went into a run, if it is in memory: that is where there is no disk, and while it is small.
    #[must_use]
    pub fn input(&self, record: &RunRecord) -> Option<Arc<RunInput>> {
        let state = self.state();
        let ring = state.rings.get(&record.application)?;
        ring.records.iter().find(|kept| kept.record.id == record.id)?.input.clone()
    }

    /// Number of runs that were recorded for an application and are still kept.
    #[must_use]
    pub fn count(&self, application: &str) -> usize {
        self.state().rings.get(application).map_or(0, |ring| ring.records.len())
    }
}

/// Makes the file, if there is none, and makes it the owner's alone.
fn owner_only(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // It may have been there before.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

/// Writes what comes, several at a time, until nobody can send any more.
fn write_all(disk: &mut Disk, inbox: &Receiver<Job>, inputs_waiting: &AtomicUsize) {
    while let Ok(first) = inbox.recv() {
        let mut jobs = vec![first];
        jobs.extend(inbox.try_iter().take(BATCH - 1));
        if let Err(error) = guarded(disk::FILE, || disk.write(&jobs)) {
            tracing::warn!(records = jobs.len(), error = crate::report::chain(&error), "run records are lost");
        }
        let inputs = jobs.iter().filter_map(|job| job.record.as_ref()?.inputs.as_ref()).count();
        inputs_waiting.fetch_sub(inputs, Ordering::Relaxed);
    }
}

/// How many bytes an input has as JSON text; nothing if it has more than this. No more of it is looked at.
fn size_within(input: &RunInput, max: usize) -> Option<usize> {
    let snapshots = input.snapshots.values().map(|state| match state {
        SnapshotState::Ready(snapshot) => snapshot.sum().bytes,
        SnapshotState::NotSynchronised(reason) => reason.len(),
    });
    let left = max.checked_sub(snapshots.fold(0, usize::saturating_add))?;
    let left = left.checked_sub(bytes_within(&*input.values, left)?)?;
    let left = left.checked_sub(bytes_within(&*input.settings, left)?)?;
    let left = left.checked_sub(bytes_within(&(&input.trigger, &input.instance), left)?)?;
    Some(max - left)
}

fn bytes_within(document: &impl Serialize, max: usize) -> Option<usize> {
    struct Counter {
        left: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
            self.left = self.left.checked_sub(part.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(part.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { left: max };
    serde_json::to_writer(&mut counter, document).ok().map(|()| max - counter.left)
}

#[cfg(test)]
mod tests;
