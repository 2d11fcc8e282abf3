//! One execution of one hook: everything that goes in, everything that comes out, and the record of both.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::hook::{Change, Trigger};
use crate::operation::{Operation, OperationResult};

/// Which application a hook runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Name of the application.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Name of the package.
    pub package_name: String,
    /// Version of the package.
    pub package_version: String,
}

/// Everything that goes into a run. Two runs of one component with the same input have the same outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct RunInput {
    /// Name of the hook.
    pub hook: String,
    /// Why it runs.
    pub trigger: Trigger,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Nothing will be applied.
    pub dry_run: bool,
    /// For whom.
    pub instance: Instance,
    /// The values document.
    pub values: Arc<Value>,
    /// The effective settings.
    pub settings: Arc<Value>,
    /// Snapshots by kubernetes binding of this hook.
    pub snapshots: BTreeMap<String, SnapshotState>,
    /// The moment that the guest's clock shows, in milliseconds since the epoch.
    pub now_unix_ms: u64,
    /// Seed of the guest's random numbers.
    pub seed: [u8; 32],
}

impl RunInput {
    /// The objects of the changes that led to the run, one for each and in their order: as they are now or, where they
    /// are gone, as they were last.
    #[must_use]
    pub fn changed(&self) -> Snapshot {
        let Trigger::Events(changes) = &self.trigger else { return Snapshot::default() };
        let of = |change: &Change| {
            let now = match self.snapshots.get(&change.binding) {
                Some(SnapshotState::Ready(snapshot)) => snapshot.find(&change.namespace, &change.name),
                _ => None,
            };
            let none = || SnapshotItem::new(change.namespace.clone(), change.name.clone(), Value::Null, None);
            now.or_else(|| change.last.clone()).unwrap_or_else(|| Arc::new(none()))
        };
        Snapshot::new(changes.iter().map(of).collect())
    }
}

/// A snapshot, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum SnapshotState {
    /// The objects.
    Ready(Arc<Snapshot>),
    /// Not synchronised, with the reason. Never shown as empty.
    NotSynchronised(String),
}

/// The objects of one kubernetes binding, ordered by namespace and name. Made once and never changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The objects.
    pub items: Vec<Arc<SnapshotItem>>,
    #[serde(skip)]
    sum: Memo,
}

impl Snapshot {
    /// A snapshot of these objects.
    #[must_use]
    pub fn new(items: Vec<Arc<SnapshotItem>>) -> Self {
        Self { items, sum: Memo::default() }
    }

    /// The object of this name.
    #[must_use]
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<SnapshotItem>> {
        let key = |item: &Arc<SnapshotItem>| (item.namespace.as_str(), item.name.as_str()).cmp(&(namespace, name));
        let index = self.items.binary_search_by(key).ok()?;
        self.items.get(index).cloned()
    }

    /// Digest and size of the whole. Worked out once; an object that other snapshots have too is not read again.
    #[must_use]
    pub fn sum(&self) -> Sum {
        *self.sum.0.get_or_init(|| {
            let mut hash = Sha256::new();
            let mut bytes = 0_usize;
            for item in &self.items {
                let sum = item.sum();
                hash.update(sum.digest);
                bytes = bytes.saturating_add(sum.bytes);
            }
            Sum { digest: hash.finalize().into(), bytes }
        })
    }
}

/// What a document amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// SHA-256 of its content; that of a collection is made of those of its members.
    pub digest: [u8; 32],
    /// Bytes as JSON text, of a collection without its punctuation.
    pub bytes: usize,
}

impl Sum {
    /// Of a document, read once and copied nowhere.
    #[must_use]
    pub fn of(document: &impl Serialize) -> Self {
        struct Meter {
            hash: Sha256,
            bytes: usize,
        }
        impl std::io::Write for Meter {
            fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
                self.hash.update(part);
                self.bytes = self.bytes.saturating_add(part.len());
                Ok(part.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut meter = Meter { hash: Sha256::new(), bytes: 0 };
        // What cannot be written as JSON has the digest of what could; our documents all can.
        let _ = serde_json::to_writer(&mut meter, document);
        Self { digest: meter.hash.finalize().into(), bytes: meter.bytes }
    }
}

/// A [`Sum`] that is worked out when it is first asked for. It says nothing that its owner does not, so it plays no part
/// in comparisons.
#[derive(Debug, Clone, Default)]
struct Memo(OnceLock<Sum>);

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One object of a snapshot. Made once and never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotItem {
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What the filter of the binding made of it.
    pub projection: Value,
    /// The whole object, if the binding keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    #[serde(skip)]
    sum: Memo,
}

impl SnapshotItem {
    /// An object with what the filter of the binding made of it, and the whole of it if the binding keeps it.
    #[must_use]
    pub fn new(namespace: String, name: String, projection: Value, object: Option<Value>) -> Self {
        Self { namespace, name, projection, object, sum: Memo::default() }
    }

    /// Digest and size. Worked out once.
    #[must_use]
    pub fn sum(&self) -> Sum {
        *self.sum.0.get_or_init(|| Sum::of(self))
    }
}

/// Everything that comes out of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// How it ended.
    pub end: RunEnd,
    /// What it asked for, in order. If the run failed, only those marked `on_failure` may be carried out.
    pub operations: Vec<Operation>,
    /// How it changed the values document, in order. To be dropped if the run failed.
    pub values: Vec<ValuesChange>,
    /// Log lines in order, output of standard streams included.
    pub log: Vec<LogLine>,
    /// Measurements. To be dropped if the run failed.
    pub metrics: Vec<Measurement>,
    /// What it cost.
    pub usage: Usage,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "end")]
pub enum RunEnd {
    /// The hook returned well.
    Ok,
    /// The hook returned an error.
    HookError(HookError),
    /// The guest trapped.
    Trap {
        /// What the engine says, for example "wasm `unreachable` instruction executed".
        message: String,
        /// The guest's own words before the trap, if it reported a panic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        panic: Option<Panic>,
        /// Frames of the guest, innermost first, demangled; bounded.
        #[serde(default)]
        backtrace: Vec<String>,
    },
    /// CPU or wall-clock time was used up.
    TimedOut {
        /// Which.
        clock: Clock,
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// Memory, tables or stack were used up.
    OutOfMemory {
        /// What: `memory`, `table`, `stack`, `handles`.
        what: String,
        /// The limit in bytes, elements or handles.
        limit: u64,
    },
    /// It called the host too often.
    TooManyCalls {
        /// Calls that it may make.
        limit: u64,
    },
    /// It called something that is not granted.
    Denied {
        /// What, and why.
        what: String,
    },
    /// What it gave back is malformed or too much.
    BadOutput {
        /// What, and why.
        what: String,
    },
    /// It was stopped before it ended, because something made it needless. Nothing of it was applied.
    Cancelled {
        /// What did.
        why: String,
    },
    /// The API server refused an operation; those after it were not tried, and the values were dropped.
    OperationRefused {
        /// Which, and why.
        what: String,
    },
    /// What it asked for was not carried out in time, or the application was removed or suspended meanwhile. The record
    /// says what became of each operation; the values were dropped.
    Unsettled {
        /// Why, and what was done and what was not.
        what: String,
    },
    /// The host could not run it: no free slot, the component is gone. Not the guest's fault; to be repeated.
    HostFault {
        /// What.
        what: String,
    },
}

/// A clock of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Time on a processor.
    Cpu,
    /// Time on the wall.
    Wall,
}

/// The error that a hook returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookError {
    /// Stable code, CamelCase.
    pub code: String,
    /// What went wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Milliseconds until the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A panic that the guest reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panic {
    /// Its message.
    pub message: String,
    /// `file:line:column`.
    pub location: String,
}

impl RunEnd {
    /// Whether the hook succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }

    /// Whether it failed. What was stopped from outside has done neither.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled { .. })
    }

    /// Stable reason in PascalCase, for conditions, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Ok => "Succeeded",
            Self::HookError(_) => "HookError",
            Self::Trap { panic: Some(_), .. } => "HookPanicked",
            Self::Trap { .. } => "HookTrapped",
            Self::TimedOut { clock: Clock::Cpu, .. } => "HookCpuTimeExceeded",
            Self::TimedOut { clock: Clock::Wall, .. } => "HookTimedOut",
            Self::OutOfMemory { .. } => "HookMemoryExceeded",
            Self::TooManyCalls { .. } => "HookCallsExceeded",
            Self::Denied { .. } => "HookDenied",
            Self::BadOutput { .. } => "HookBadOutput",
            Self::Cancelled { .. } => "HookCancelled",
            Self::OperationRefused { .. } => "HookOperationRefused",
            Self::Unsettled { .. } => "HookNotSettled",
            Self::HostFault { .. } => "HookHostFault",
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("succeeded"),
            Self::HookError(error) => write!(f, "{}: {}", error.code, error.message),
            Self::Trap { panic: Some(panic), .. } => write!(f, "panicked at {}: {}", panic.location, panic.message),
            Self::Trap { message, .. } => write!(f, "trapped: {message}"),
            Self::TimedOut { clock: Clock::Cpu, limit_ms } => write!(f, "used more than {limit_ms} ms of CPU time"),
            Self::TimedOut { clock: Clock::Wall, limit_ms } => write!(f, "did not end within {limit_ms} ms"),
            Self::OutOfMemory { what, limit } => write!(f, "used more {what} than allowed (limit {limit})"),
            Self::TooManyCalls { limit } => write!(f, "called the host more than {limit} times"),
            Self::Denied { what } => write!(f, "denied: {what}"),
            Self::BadOutput { what } => write!(f, "bad output: {what}"),
            Self::Cancelled { why } => write!(f, "stopped: {why}"),
            Self::OperationRefused { what } => write!(f, "refused by the API server: {what}"),
            Self::Unsettled { what } => write!(f, "not carried out: {what}"),
            Self::HostFault { what } => write!(f, "could not be run: {what}"),
        }
    }
}

/// One change of the values document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValuesChange {
    /// JSON pointer.
    pub pointer: String,
    /// The new value, which may be `null`; absent for a removal.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub value: Option<Value>,
}

/// A field that is there has a value, even if that is `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// What happened.
    Info,
    /// May need care.
    Warn,
    /// Went wrong.
    Error,
}

impl LogLevel {
    /// The word, in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// One log line of a guest, control characters escaped, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// The text.
    pub message: String,
    /// Fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
}

impl fmt::Display for LogLine {
    /// `info: it is done name=value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.level.as_str(), self.message)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// One measurement of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// Name of the metric.
    pub name: String,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// The value.
    pub value: f64,
    /// Labels, sorted by name.
    pub labels: Vec<(String, String)>,
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution.
    Histogram,
}

/// What a run cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Wall-clock time in microseconds, waiting for a CPU excluded.
    pub wall_us: u64,
    /// Time on a processor in microseconds, to the accuracy of the ticker.
    pub cpu_us: u64,
    /// Peak of linear memory and tables in bytes.
    pub memory_bytes: u64,
    /// Calls from guest to host.
    pub host_calls: u64,
}

/// The record of a run, as it is kept and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Unique in the host: a number that grows.
    pub id: u64,
    /// `<namespace>.<name>` of the application.
    pub application: String,
    /// Hook.
    pub hook: String,
    /// Why it ran.
    pub trigger: Trigger,
    /// Which attempt.
    pub attempt: u32,
    /// SHA-256 of the component, `sha256:…`.
    pub component: String,
    /// SHA-256 of the input, `sha256:…`.
    pub input_digest: String,
    /// What went in, the large parts by their digests.
    pub input: InputOutline,
    /// Moment of the run in milliseconds since the epoch; what the guest's clock showed.
    pub started_unix_ms: u64,
    /// How it ended.
    #[serde(flatten)]
    pub end: RunEnd,
    /// How the hook itself ended, if the host made something else of it: refused what it gave back, or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<RunEnd>,
    /// Log lines.
    #[serde(default)]
    pub log: Vec<LogLine>,
    /// Operations with what became of them.
    #[serde(default)]
    pub operations: Vec<(Operation, OperationResult)>,
    /// Values changes.
    #[serde(default)]
    pub values: Vec<ValuesChange>,
    /// Measurements.
    #[serde(default)]
    pub metrics: Vec<Measurement>,
    /// Secrets of the input that turn up in what came out of the run, in the forms in which they do: whoever shows the
    /// record masks them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
    /// What it cost.
    pub usage: Usage,
}

impl RunRecord {
    /// How the hook itself ended, whatever the host made of it.
    #[must_use]
    pub fn end_of_hook(&self) -> &RunEnd {
        self.returned.as_ref().unwrap_or(&self.end)
    }
}

/// What went into a run, as its record has it: all that is small, and the digests of all that may be large. Hook,
/// trigger, attempt and moment stand in the record itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputOutline {
    /// Nothing was to be applied.
    pub dry_run: bool,
    /// For whom.
    pub instance: Instance,
    /// SHA-256 of the values document, `sha256:…`.
    pub values: String,
    /// SHA-256 of the effective settings, `sha256:…`.
    pub settings: String,
    /// Snapshots by binding.
    pub snapshots: BTreeMap<String, SnapshotOutline>,
    /// Seed of the random numbers, in hexadecimal digits.
    pub seed: String,
}

/// What a snapshot amounts to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum SnapshotOutline {
    /// It was there.
    #[serde(rename_all = "camelCase")]
    Ready {
        /// [`Snapshot::sum`] in hexadecimal digits.
        sha256: String,
        /// How many objects it has.
        objects: usize,
        /// How many bytes they have as JSON text.
        bytes: usize,
    },
    /// It was not there, with the reason.
    #[serde(rename_all = "camelCase")]
    NotSynchronised {
        /// Why.
        not_synchronised: String,
    },
}

impl InputOutline {
    /// Of an input whose documents have these digests.
    #[must_use]
    pub fn of(input: &RunInput, values: String, settings: String) -> Self {
        let outline = |state: &SnapshotState| match state {
            SnapshotState::Ready(snapshot) => {
                let sum = snapshot.sum();
                SnapshotOutline::Ready { sha256: hex(&sum.digest), objects: snapshot.items.len(), bytes: sum.bytes }
            }
            SnapshotState::NotSynchronised(reason) => {
                SnapshotOutline::NotSynchronised { not_synchronised: reason.clone() }
            }
        };
        Self {
            dry_run: input.dry_run,
            instance: input.instance.clone(),
            values,
            settings,
            snapshots: input.snapshots.iter().map(|(name, state)| (name.clone(), outline(state))).collect(),
            seed: hex(&input.seed),
        }
    }

    /// `sha256:…` of the whole input.
    #[must_use]
    pub fn digest(&self, hook: &str, trigger: &Trigger, attempt: u32, now_unix_ms: u64) -> String {
        format!("sha256:{}", hex(&Sum::of(&(self, hook, trigger, attempt, now_unix_ms)).digest))
    }

    /// The seed, unless the text is none.
    #[must_use]
    pub fn seed(&self) -> Option<[u8; 32]> {
        let digits = self.seed.as_bytes();
        let mut seed = [0; 32];
        if digits.len() != 2 * seed.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in seed.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(seed)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, projection: Value) -> Arc<SnapshotItem> {
        Arc::new(SnapshotItem::new("demo".into(), name.into(), projection, None))
    }

    #[test]
    fn the_sum_of_a_snapshot_follows_every_object_and_is_worked_out_once() {
        let (a, b) = (item("a", json!({"x": 1, "y": 2})), item("b", json!(null)));
        let snapshot = Snapshot::new(vec![Arc::clone(&a), Arc::clone(&b)]);
        let sum = snapshot.sum();
        assert_eq!(sum.bytes, serde_json::to_string(&*a).unwrap().len() + serde_json::to_string(&*b).unwrap().len());
        assert_eq!(snapshot, Snapshot::new(snapshot.items.clone()), "what was worked out is no difference");
        assert!(a.sum.0.get().is_some(), "the next snapshot with this object does not read it again");
        let same = Snapshot::new(vec![item("a", json!({"y": 2, "x": 1})), Arc::clone(&b)]);
        assert_eq!(same.sum(), sum);
        for other in [
            vec![Arc::clone(&a)],
            vec![Arc::clone(&b), Arc::clone(&a)],
            vec![item("a", json!({"x": 1, "y": 3})), Arc::clone(&b)],
            vec![item("c", json!({"x": 1, "y": 2})), Arc::clone(&b)],
        ] {
            assert_ne!(Snapshot::new(other).sum().digest, sum.digest);
        }
    }

    #[test]
    fn setting_null_is_not_a_removal() {
        for value in [Some(Value::Null), Some(json!(1)), None] {
            let change = ValuesChange { pointer: "/a".into(), value };
            let text = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<ValuesChange>(&text).unwrap(), change, "{text}");
        }
    }
}
