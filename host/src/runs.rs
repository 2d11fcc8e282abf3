//! The records of runs: a bounded ring for each application, in memory or on disk.
//!
//! The state of record is the cluster; losing the ring loses history and nothing else. So a record that cannot be
//! written is reported and the run it describes counts all the same, and no run waits for the disk: a thread writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use barbless_domain::limits::RUN_RECORDS;
use barbless_domain::run::RunRecord;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// Key: `<application>\0<id>` with the id in big-endian hex, so that the records of an application are in order.
const RUNS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("runs");
/// Records that wait for the disk. A disk that is further behind loses records; memory still has them.
const UNWRITTEN: usize = 1024;
/// Records written at once.
const BATCH: usize = 64;
/// Bytes of the records of one application, as JSON text: a few of the largest records, or all of ordinary ones.
const RING_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of the records of all applications; beyond that the oldest of all goes.
const ALL_BYTES: usize = 256 * 1024 * 1024;
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
}

impl Writer {
    fn start(disk: redb::Database) -> Result<Self, RunsError> {
        let (jobs, inbox) = sync_channel(UNWRITTEN);
        let thread = std::thread::Builder::new()
            .name("run-records".to_owned())
            .spawn(move || write_all(&disk, &inbox))
            .map_err(RunsError::Thread)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
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

/// One record to write with its key, and the keys of those that leave the rings.
#[derive(Debug)]
struct Job {
    record: Option<(String, Vec<u8>)>,
    dropped: Vec<String>,
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
    records: VecDeque<(Arc<RunRecord>, usize)>,
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
    fn keep(&mut self, record: Arc<RunRecord>, bytes: usize) -> Vec<(String, u64)> {
        let application = record.application.clone();
        self.retired.retain(|it| *it != application);
        let ring = self.rings.entry(application.clone()).or_default();
        // Two runs that end at once may come here in another order than that of their ids.
        let at = ring.records.iter().rposition(|(other, _)| other.id < record.id).map_or(0, |before| before + 1);
        ring.records.insert(at, (record, bytes));
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
            let oldest = |ring: &Ring| ring.records.front().map_or(u64::MAX, |(record, _)| record.id);
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
        if let Some((_, bytes)) = &oldest {
            ring.bytes -= bytes;
            self.bytes -= bytes;
        }
        if ring.records.is_empty() {
            self.rings.remove(application);
            self.retired.retain(|it| it != application);
        }
        oldest.map(|(record, _)| (record.application.clone(), record.id))
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
        let path = folder.join("runs.redb");
        match Self::read(&path) {
            Err(damaged @ RunsError::Damaged { .. }) => {
                let aside = folder.join("runs.redb.damaged");
                tracing::warn!(error = %damaged, aside = %aside.display(), "the history of runs begins anew");
                let failed = |source: std::io::Error| RunsError::Open {
                    path: path.display().to_string(),
                    source: Box::new(source.into()),
                };
                std::fs::rename(&path, &aside).map_err(failed)?;
                Self::read(&path)
            }
            result => result,
        }
    }

    fn read(path: &PathBuf) -> Result<Self, RunsError> {
        let shown = path.display().to_string();
        let failed = |source: redb::Error| match source {
            redb::Error::Corrupted(why) => RunsError::Damaged { path: shown.clone(), why },
            // What is no file of the library, or ends too early.
            redb::Error::Io(error)
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                RunsError::Damaged { path: shown.clone(), why: error.to_string() }
            }
            source => RunsError::Open { path: shown.clone(), source: Box::new(source) },
        };
        guarded(&shown, || {
            // Inputs of runs hold secrets.
            owner_only(path).map_err(|error| failed(redb::Error::Io(error)))?;
            let disk = redb::Database::create(path).map_err(|error| failed(error.into()))?;
            let mut records = Vec::new();
            let read = disk.begin_read().map_err(|error| failed(error.into()))?;
            match read.open_table(RUNS) {
                Ok(table) => {
                    for entry in table.iter().map_err(|error| failed(error.into()))? {
                        let (_, bytes) = entry.map_err(|error| failed(error.into()))?;
                        if let Ok(record) = serde_json::from_slice::<RunRecord>(bytes.value()) {
                            records.push((record, bytes.value().len()));
                        }
                    }
                }
                Err(redb::TableError::TableDoesNotExist(_)) => {}
                Err(error) => return Err(failed(error.into())),
            }
            let mut state = State::default();
            records.sort_by_key(|(record, _)| record.id);
            let mut dropped = Vec::new();
            for (record, bytes) in records {
                state.last_id = state.last_id.max(record.id);
                dropped.extend(state.keep(Arc::new(record), bytes));
            }
            drop(read);
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

    /// Keeps a record and gives it its id. Does not wait for the disk. The second part says if it could not be handed to
    /// the disk; it is kept in memory then.
    pub fn add(&self, mut record: RunRecord) -> (Arc<RunRecord>, Result<(), RunsError>) {
        record.id = self.state().next_id();
        let record = Arc::new(record);
        let bytes = match serde_json::to_vec(&*record) {
            Ok(bytes) => bytes,
            Err(error) => return (record, Err(RunsError::Encode(error))),
        };
        let dropped = self.state().keep(Arc::clone(&record), bytes.len());
        let handed = self.hand_over(Some((key(&record.application, record.id), bytes)), &dropped);
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
        let last = |ring: &Ring| ring.records.back().map_or(0, |(record, _)| record.id);
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

    fn hand_over(&self, record: Option<(String, Vec<u8>)>, dropped: &[(String, u64)]) -> Result<(), RunsError> {
        let Some(jobs) = self.disk.as_ref().and_then(|disk| disk.jobs.as_ref()) else { return Ok(()) };
        let dropped = dropped.iter().map(|(application, id)| key(application, *id)).collect();
        jobs.try_send(Job { record, dropped }).map_err(|_| RunsError::Behind)
    }

    /// The records of an application, oldest first.
    #[must_use]
    pub fn of(&self, application: &str) -> Vec<Arc<RunRecord>> {
        let state = self.state();
        let ring = state.rings.get(application);
        ring.map(|ring| ring.records.iter().map(|(record, _)| Arc::clone(record)).collect()).unwrap_or_default()
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
fn write_all(disk: &redb::Database, inbox: &Receiver<Job>) {
    while let Ok(first) = inbox.recv() {
        let mut jobs = vec![first];
        jobs.extend(inbox.try_iter().take(BATCH - 1));
        if let Err(error) = guarded("runs.redb", || write(disk, &jobs)) {
            tracing::warn!(records = jobs.len(), error = crate::report::chain(&error), "run records are lost");
        }
    }
}

fn write(disk: &redb::Database, jobs: &[Job]) -> Result<(), RunsError> {
    let write = disk.begin_write().map_err(write_error)?;
    {
        let mut table = write.open_table(RUNS).map_err(write_error)?;
        for job in jobs {
            if let Some((key, bytes)) = &job.record {
                table.insert(key.as_str(), bytes.as_slice()).map_err(write_error)?;
            }
            for key in &job.dropped {
                table.remove(key.as_str()).map_err(write_error)?;
            }
        }
    }
    write.commit().map_err(write_error)
}

fn key(application: &str, id: u64) -> String {
    format!("{application}\0{id:016x}")
}

#[cfg(test)]
mod tests {
    use barbless_domain::hook::{Stage, Trigger};
    use barbless_domain::run::{RunEnd, Usage};

    use super::*;

    fn record(application: &str) -> RunRecord {
        RunRecord {
            id: 0,
            application: application.into(),
            hook: "h".into(),
            trigger: Trigger::Lifecycle(Stage::BeforeHelm),
            attempt: 1,
            component: "sha256:0".into(),
            input_digest: "sha256:1".into(),
            input: None,
            started_unix_ms: 1,
            end: RunEnd::Ok,
            log: vec![],
            operations: vec![],
            values: vec![],
            usage: Usage::default(),
        }
    }

    #[test]
    fn the_ring_is_bounded_and_survives_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let log = RunLog::open(folder.path()).unwrap();
        for _ in 0..RUN_RECORDS + 3 {
            log.add(record("demo.a")).1.unwrap();
        }
        log.add(record("demo.b")).1.unwrap();
        drop(log);
        let log = RunLog::open(folder.path()).unwrap();
        assert_eq!(log.count("demo.a"), RUN_RECORDS);
        assert_eq!(log.of("demo.a")[0].id, 4);
        assert_eq!(log.add(record("demo.b")).0.id, RUN_RECORDS as u64 + 5, "ids go on");
    }

    #[test]
    fn only_the_owner_may_read_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.redb");
        std::fs::write(&path, "").unwrap();
        drop(RunLog::open(folder.path()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn records_of_applications_that_are_gone_stay_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let log = RunLog::open(folder.path()).unwrap();
        log.add(record("demo.living")).1.unwrap();
        for number in 0..RETIRED + 3 {
            let name = format!("demo.{number}");
            log.add(record(&name)).1.unwrap();
            log.add(record(&name)).1.unwrap();
            log.retire(&name);
            if number == 5 {
                log.add(record("demo.1")).1.unwrap();
            }
        }
        log.retire("demo.unheard-of");
        let kept = |log: &RunLog| -> Vec<usize> {
            (0..RETIRED + 3).filter(|number| log.count(&format!("demo.{number}")) > 0).collect()
        };
        let expected: Vec<usize> = [1].into_iter().chain(3..RETIRED + 3).collect();
        assert_eq!(kept(&log), expected, "one came back, and of the others the oldest are gone");
        assert_eq!((log.count("demo.1"), log.count("demo.living")), (3, 1));
        drop(log);
        let log = RunLog::open(folder.path()).unwrap();
        assert_eq!(kept(&log), expected, "on disk too");
        log.retire_all_but(&BTreeSet::from(["demo.living".to_owned()]));
        assert_eq!(kept(&log).len(), RETIRED);
        assert_eq!((log.count("demo.3"), log.count("demo.1"), log.count("demo.living")), (0, 3, 1));
    }

    fn large(application: &str, bytes: usize) -> RunRecord {
        RunRecord { input: Some(serde_json::Value::String("x".repeat(bytes))), ..record(application) }
    }

    #[test]
    fn large_records_do_not_fill_the_memory() {
        let log = RunLog::in_memory();
        for _ in 0..10 {
            log.add(large("demo.a", RING_BYTES / 4)).1.unwrap();
        }
        assert_eq!(log.count("demo.a"), 3);
        log.add(large("demo.a", RING_BYTES + 1)).1.unwrap();
        assert_eq!(log.count("demo.a"), 1, "the newest is kept");
        for number in 0..12 {
            log.add(large(&format!("demo.{number}"), RING_BYTES - 1024)).1.unwrap();
        }
        assert!(log.state().bytes <= ALL_BYTES);
        assert_eq!((log.count("demo.a"), log.count("demo.0"), log.count("demo.11")), (0, 0, 1));
    }

    #[test]
    fn a_damaged_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.redb");
        let log = RunLog::open(folder.path()).unwrap();
        for _ in 0..50 {
            log.add(record("demo.a")).1.unwrap();
        }
        drop(log);
        let sound = std::fs::read(&path).unwrap();
        let mut damages = vec![b"hello world".repeat(1000), sound[..100].to_vec(), sound[..sound.len() / 2].to_vec()];
        // A little of everything: the places are spread over the file by a fixed rule.
        for seed in 1_usize..12 {
            let mut bytes = sound.clone();
            for step in 0..200 {
                let at = (step * 7919 * seed + seed * 104_729) % bytes.len();
                bytes[at] ^= 1 << (step % 8);
            }
            damages.push(bytes);
        }
        for bytes in damages {
            std::fs::write(&path, bytes).unwrap();
            let log = RunLog::open(folder.path()).unwrap();
            let _ = log.add(record("demo.b"));
            assert!(log.count("demo.b") >= 1);
        }
        assert!(folder.path().join("runs.redb.damaged").is_file());
    }

    #[test]
    fn a_file_that_another_process_has_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let _first = RunLog::open(folder.path()).unwrap();
        assert!(matches!(RunLog::open(folder.path()), Err(RunsError::Open { .. })));
    }
}
