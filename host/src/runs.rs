//! The records of runs: a bounded ring for each application, in memory or on disk.
//!
//! The state of record is the cluster; losing the ring loses history and nothing else. So a record that cannot be
//! written is reported and the run it describes counts all the same.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;

use barbless_domain::limits::RUN_RECORDS;
use barbless_domain::run::RunRecord;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// Key: `<application>\0<id>` with the id in big-endian hex, so that the records of an application are in order.
const RUNS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("runs");

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
    /// A transaction failed.
    #[error("writing a run record")]
    Write(#[source] Box<redb::Error>),
    /// A record cannot be turned into text.
    #[error("encoding a run record")]
    Encode(#[source] serde_json::Error),
}

fn write_error(error: impl Into<redb::Error>) -> RunsError {
    RunsError::Write(Box::new(error.into()))
}

/// The rings.
#[derive(Debug)]
pub struct RunLog {
    state: Mutex<State>,
    disk: Option<redb::Database>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    rings: BTreeMap<String, VecDeque<RunRecord>>,
}

impl RunLog {
    /// Rings in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { state: Mutex::default(), disk: None }
    }

    /// Rings that outlive the process, in `runs.redb` of this folder. Records that this version cannot read are
    /// dropped.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(folder: &Path) -> Result<Self, RunsError> {
        let path = folder.join("runs.redb");
        let open = |source: redb::Error| RunsError::Open { path: path.display().to_string(), source: Box::new(source) };
        let disk = redb::Database::create(&path).map_err(|error| open(error.into()))?;
        let mut state = State::default();
        let read = disk.begin_read().map_err(|error| open(error.into()))?;
        match read.open_table(RUNS) {
            Ok(table) => {
                for entry in table.iter().map_err(|error| open(error.into()))? {
                    let (_, bytes) = entry.map_err(|error| open(error.into()))?;
                    if let Ok(record) = serde_json::from_slice::<RunRecord>(bytes.value()) {
                        state.last_id = state.last_id.max(record.id);
                        state.rings.entry(record.application.clone()).or_default().push_back(record);
                    }
                }
            }
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(open(error.into())),
        }
        Ok(Self { state: Mutex::new(state), disk: Some(disk) })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic between two lines of this module leaves the ring whole.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Keeps a record and gives it its id.
    ///
    /// # Errors
    /// If it cannot be written to disk; it is kept in memory then.
    pub fn add(&self, mut record: RunRecord) -> Result<RunRecord, RunsError> {
        let mut dropped = Vec::new();
        {
            let mut state = self.state();
            state.last_id += 1;
            record.id = state.last_id;
            let ring = state.rings.entry(record.application.clone()).or_default();
            ring.push_back(record.clone());
            while ring.len() > RUN_RECORDS {
                dropped.extend(ring.pop_front().map(|old| old.id));
            }
        }
        if let Some(disk) = &self.disk {
            let bytes = serde_json::to_vec(&record).map_err(RunsError::Encode)?;
            let write = disk.begin_write().map_err(write_error)?;
            {
                let mut table = write.open_table(RUNS).map_err(write_error)?;
                table.insert(key(&record.application, record.id).as_str(), bytes.as_slice()).map_err(write_error)?;
                for id in dropped {
                    table.remove(key(&record.application, id).as_str()).map_err(write_error)?;
                }
            }
            write.commit().map_err(write_error)?;
        }
        Ok(record)
    }

    /// The records of an application, oldest first.
    #[must_use]
    pub fn of(&self, application: &str) -> Vec<RunRecord> {
        self.state().rings.get(application).map(|ring| ring.iter().cloned().collect()).unwrap_or_default()
    }

    /// Number of runs that were recorded for an application and are still kept.
    #[must_use]
    pub fn count(&self, application: &str) -> usize {
        self.state().rings.get(application).map_or(0, VecDeque::len)
    }
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
            log.add(record("demo.a")).unwrap();
        }
        log.add(record("demo.b")).unwrap();
        drop(log);
        let log = RunLog::open(folder.path()).unwrap();
        assert_eq!(log.count("demo.a"), RUN_RECORDS);
        assert_eq!(log.of("demo.a")[0].id, 4);
        assert_eq!(log.add(record("demo.b")).unwrap().id, RUN_RECORDS as u64 + 5, "ids go on");
    }
}
