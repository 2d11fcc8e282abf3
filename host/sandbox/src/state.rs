//! What belongs to one store: what the call may see, what it has used, and what it has asked for.

use std::collections::HashMap;
use std::sync::Arc;

use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Instance, LogLevel, LogLine, Measurement, MetricKind, Panic, RunInput, Snapshot, Usage};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use wasmtime::ResourceLimiter;

use crate::host::patches::Patches;
use crate::host::values::Document;
use crate::machine::CallClock;
use crate::outcome::Stop;
use crate::text::{CUT, safe};
use crate::wasi::Wasi;

/// Bytes that a log line counts for beside its text, so that empty lines are bounded too.
const LINE_OVERHEAD: u64 = 32;
/// Fields of a log line.
const FIELDS_MAX: usize = 64;

/// What a call may see.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Everything of a run.
    Run(Arc<RunInput>),
    /// Log, and for whom (`check-settings`).
    Instance(Arc<Instance>),
    /// Log alone (`describe`, `filter`, `assess-health`).
    Log,
}

/// Everything behind the imports of one call.
pub(crate) struct State {
    pub(crate) access: Access,
    pub(crate) limits: Arc<GuestLimits>,
    pub(crate) clock: Arc<CallClock>,
    pub(crate) memory: MemoryMeter,
    pub(crate) patches: Patches,
    pub(crate) values: Document,
    /// The objects of the changes that led to the run, once the guest has asked for them.
    pub(crate) changed: Option<Arc<Snapshot>>,
    /// Snapshots that were opened, by the number of their handles.
    pub(crate) opened: Vec<Arc<Snapshot>>,
    pub(crate) log: Log,
    pub(crate) panic: Option<Panic>,
    pub(crate) metrics: Metrics,
    pub(crate) wasi: Option<Box<Wasi>>,
    random: Option<Box<ChaCha20Rng>>,
    host_calls: u64,
    handles: u32,
}

impl State {
    pub(crate) fn new(access: Access, limits: Arc<GuestLimits>) -> Self {
        let clock = Arc::new(CallClock::start(&limits));
        let values = match &access {
            Access::Run(input) => Document::new(Arc::clone(&input.values)),
            Access::Instance(_) | Access::Log => Document::default(),
        };
        let log = Log::new(&limits);
        Self {
            access,
            memory: MemoryMeter::new(&limits),
            limits,
            clock,
            patches: Patches::default(),
            values,
            changed: None,
            opened: Vec::new(),
            log,
            panic: None,
            metrics: Metrics::default(),
            wasi: None,
            random: None,
            host_calls: 0,
            handles: 0,
        }
    }

    /// Counts a call from guest to host.
    pub(crate) fn count(&mut self) -> Result<(), Stop> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls {
            return Err(Stop::Calls);
        }
        Ok(())
    }

    /// Counts a call, and gives the input of the run if this call is one.
    pub(crate) fn run(&mut self, function: &'static str) -> Result<&Arc<RunInput>, Stop> {
        self.count()?;
        match &self.access {
            Access::Run(input) => Ok(input),
            Access::Instance(_) | Access::Log => {
                Err(Stop::Denied(format!("'{function}' can only be called during a run")))
            }
        }
    }

    /// Counts a handle that the guest gets.
    pub(crate) fn take_handle(&mut self) -> Result<(), Stop> {
        if self.handles >= self.limits.handles {
            return Err(Stop::Handles);
        }
        self.handles += 1;
        Ok(())
    }

    /// Counts a handle that the guest gives back.
    pub(crate) fn give_handle(&mut self) {
        self.handles = self.handles.saturating_sub(1);
    }

    /// The generator of this run.
    pub(crate) fn random(&mut self) -> &mut ChaCha20Rng {
        let seed = match &self.access {
            Access::Run(input) => input.seed,
            Access::Instance(_) | Access::Log => [0; 32],
        };
        self.random.get_or_insert_with(|| Box::new(ChaCha20Rng::from_seed(seed)))
    }

    /// Takes all log lines, those that standard streams began included.
    pub(crate) fn take_log(&self) -> Vec<LogLine> {
        if let Some(wasi) = &self.wasi {
            wasi.flush();
        }
        self.log.take()
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            wall_us: self.clock.wall_us(),
            cpu_us: self.clock.cpu_us(),
            memory_bytes: self.memory.peak,
            host_calls: self.host_calls,
        }
    }
}

/// Sums all memories and tables of a store. The limiter that comes with the engine looks at each alone.
#[derive(Debug)]
pub(crate) struct MemoryMeter {
    bytes: u64,
    bytes_max: u64,
    elements: u64,
    elements_max: u64,
    /// Bytes and elements of the growth that was allowed last, in case that it fails.
    pending: (u64, u64),
    peak: u64,
}

impl MemoryMeter {
    /// Bytes of a table element.
    const ELEMENT: u64 = 8;

    fn new(limits: &GuestLimits) -> Self {
        Self {
            bytes: 0,
            bytes_max: limits.memory_bytes,
            elements: 0,
            elements_max: limits.table_elements,
            pending: (0, 0),
            peak: 0,
        }
    }

    /// Bytes that are in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn grow(&mut self, bytes: u64, elements: u64) -> Result<(), Stop> {
        let sum = self.bytes.saturating_add(bytes);
        let count = self.elements.saturating_add(elements);
        if count > self.elements_max {
            return Err(Stop::Tables);
        }
        if sum > self.bytes_max {
            return Err(Stop::Memory);
        }
        self.bytes = sum;
        self.elements = count;
        self.pending = (bytes, elements);
        Ok(())
    }

    /// Beyond a maximum that the guest itself has set, nothing grows, and the guest is told so. Asked last: the maximum
    /// of a pool slot looks the same, and the limit of the run is what should be named then.
    fn within(&mut self, desired: usize, maximum: Option<usize>) -> bool {
        let within = maximum.is_none_or(|maximum| desired <= maximum);
        if within {
            self.peak = self.peak.max(self.bytes);
        } else {
            self.undo();
        }
        within
    }

    fn undo(&mut self) {
        let (bytes, elements) = std::mem::take(&mut self.pending);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.elements = self.elements.saturating_sub(elements);
    }
}

fn difference(current: usize, desired: usize) -> u64 {
    u64::try_from(desired.saturating_sub(current)).unwrap_or(u64::MAX)
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.grow(difference(current, desired), 0)?;
        Ok(self.within(desired, maximum))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let elements = difference(current, desired);
        self.grow(elements.saturating_mul(Self::ELEMENT), elements)?;
        Ok(self.within(desired, maximum))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }
}

/// Log lines of a call. Shared with the standard streams of WASI.
#[derive(Debug, Clone)]
pub(crate) struct Log(Arc<std::sync::Mutex<Lines>>);

#[derive(Debug)]
struct Lines {
    lines: Vec<LogLine>,
    left: u64,
    line_max: usize,
    /// Lines that found no room.
    dropped: u64,
}

impl Log {
    fn new(limits: &GuestLimits) -> Self {
        Self(Arc::new(std::sync::Mutex::new(Lines {
            lines: Vec::new(),
            left: limits.log_bytes,
            line_max: usize::try_from(limits.log_line_bytes).unwrap_or(usize::MAX),
            dropped: 0,
        })))
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        // Nothing in here panics while it holds the lock; and lines are only lines.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a line; what exceeds the limits is cut, and the cut is noted.
    pub(crate) fn write(&self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let mut lines = self.lines();
        if lines.left < LINE_OVERHEAD {
            lines.dropped += 1;
            return;
        }
        lines.left -= LINE_OVERHEAD;
        let room = |lines: &Lines, used: usize| {
            lines.line_max.saturating_sub(used).min(usize::try_from(lines.left).unwrap_or(usize::MAX))
        };
        let (message, mut cut) = safe(message, room(&lines, 0));
        let mut used = message.len();
        lines.left = lines.left.saturating_sub(message.len() as u64);
        let mut kept = Vec::new();
        for (key, value) in fields.iter().take(FIELDS_MAX) {
            if cut {
                break;
            }
            let (key, key_cut) = safe(key, room(&lines, used).min(256));
            let (value, value_cut) = safe(value, room(&lines, used + key.len()));
            used += key.len() + value.len();
            lines.left = lines.left.saturating_sub((key.len() + value.len()) as u64 + LINE_OVERHEAD);
            cut = key_cut || value_cut;
            kept.push((key, value));
        }
        if kept.len() < fields.len() {
            kept.push((CUT.to_owned(), format!("{} fields", fields.len() - kept.len())));
        }
        lines.lines.push(LogLine { level, message, fields: kept });
    }

    /// Takes all lines.
    pub(crate) fn take(&self) -> Vec<LogLine> {
        let mut lines = self.lines();
        let dropped = std::mem::take(&mut lines.dropped);
        let mut all = std::mem::take(&mut lines.lines);
        if dropped > 0 {
            let message = format!("the log of this run is full: {dropped} more lines were dropped");
            all.push(LogLine { level: LogLevel::Warn, message, fields: Vec::new() });
        }
        all
    }

    /// Bytes of one line.
    pub(crate) fn line_max(&self) -> usize {
        self.lines().line_max
    }
}

/// Measurements of a call.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Place in `all` by series; histograms have their first observation there.
    series: HashMap<(String, Vec<(String, String)>), usize>,
    all: Vec<Measurement>,
}

impl Metrics {
    /// Observations of histograms that one run may make; counters and gauges of one series are one measurement.
    const OBSERVATIONS_MAX: usize = 10_000;
    const NAME_BYTES: usize = 200;
    const LABELS_MAX: usize = 16;
    const VALUE_BYTES: usize = 256;

    pub(crate) fn add(
        &mut self,
        kind: MetricKind,
        name: String,
        value: f64,
        mut labels: Vec<(String, String)>,
        series_max: u32,
    ) -> Result<(), Stop> {
        let bad = |what: String| Err(Stop::BadOutput(what));
        if !metric_name(&name) {
            return bad(format!("metric name {:?} must match [a-zA-Z_:][a-zA-Z0-9_:]*", short(&name)));
        }
        if !value.is_finite() || (kind == MetricKind::Counter && value < 0.0) {
            return bad(format!("metric '{name}' has the value {value}"));
        }
        if labels.len() > Self::LABELS_MAX {
            return bad(format!("metric '{name}' has more than {} labels", Self::LABELS_MAX));
        }
        for (label, value) in &labels {
            if !metric_name(label) || label.contains(':') || label.starts_with("__") {
                return bad(format!("metric '{name}' has a label {:?}", short(label)));
            }
            if value.len() > Self::VALUE_BYTES {
                return bad(format!("label '{label}' of metric '{name}' is longer than {} bytes", Self::VALUE_BYTES));
            }
        }
        labels.sort_unstable();
        if labels.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            return bad(format!("metric '{name}' has a label twice"));
        }
        let key = (name, labels);
        let known = self.series.get(&key).and_then(|&at| self.all.get_mut(at));
        match known {
            Some(known) if known.kind != kind => return bad(format!("metric '{}' is used as two kinds", key.0)),
            Some(known) if kind == MetricKind::Counter => {
                let sum = known.value + value;
                if !sum.is_finite() {
                    return bad(format!("metric '{}' is no longer finite", key.0));
                }
                known.value = sum;
                return Ok(());
            }
            Some(known) if kind == MetricKind::Gauge => {
                known.value = value;
                return Ok(());
            }
            Some(_) => {}
            None if self.series.len() >= usize::try_from(series_max).unwrap_or(usize::MAX) => {
                return bad(format!("more than {series_max} metric series"));
            }
            None => {
                self.series.insert(key.clone(), self.all.len());
            }
        }
        if self.all.len() >= Self::OBSERVATIONS_MAX {
            return bad(format!("more than {} measurements", Self::OBSERVATIONS_MAX));
        }
        let (name, labels) = key;
        self.all.push(Measurement { name, kind, value, labels });
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Vec<Measurement> {
        self.series.clear();
        std::mem::take(&mut self.all)
    }
}

fn metric_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= Metrics::NAME_BYTES
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b':')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

fn short(text: &str) -> String {
    crate::text::shown(text, 64)
}
