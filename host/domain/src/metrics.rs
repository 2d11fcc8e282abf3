//! What is measured: what runs of hooks say of themselves, and what hooks measure.
//!
//! Pure numbers. The life of a series is written out: counters and histograms of a hook grow from run to run, a gauge is
//! there as long as the last run of its hook set it, and everything of an application goes with it. Names, labels and
//! numbers of series are bounded, whatever packages do: what is too much is left out and counted. No two metrics of one
//! page are written under one name.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{METRIC_SERIES_PER_APPLICATION, METRIC_SERIES_PER_HOOK};
use crate::operation::OperationResult;
use crate::run::{Measurement, MetricKind, RunEnd, RunRecord};

#[cfg(test)]
mod tests;

/// Labels of a series, in order.
pub type Labels = Vec<(&'static str, String)>;

/// Upper bounds of how long runs take, in seconds: from one that does nothing to the longest that may be.
const RUN_SECONDS: &[f64] =
    &[0.000_01, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Upper bounds of what hooks observe: those that Prometheus has if nobody says anything else.
const OBSERVED: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Sum of all observations.
    pub sum: f64,
    /// Their number.
    pub count: u64,
    /// Upper bounds, and how many observations are at most as large and larger than the bound before.
    pub buckets: Vec<(f64, u64)>,
}

impl Distribution {
    fn new(bounds: &[f64]) -> Self {
        Self { sum: 0.0, count: 0, buckets: bounds.iter().map(|bound| (*bound, 0)).collect() }
    }

    fn observe(&mut self, value: f64) {
        self.sum = add(self.sum, value);
        self.count = self.count.saturating_add(1);
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            *count = count.saturating_add(1);
        }
    }
}

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Only grows.
    Counter(f64),
    /// Goes up and down.
    Gauge(f64),
    /// A distribution.
    Histogram(Distribution),
}

impl Value {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> MetricKind {
        match self {
            Self::Counter(_) => MetricKind::Counter,
            Self::Gauge(_) => MetricKind::Gauge,
            Self::Histogram(_) => MetricKind::Histogram,
        }
    }
}

/// A sum that stays a number.
fn add(sum: f64, value: f64) -> f64 {
    let grown = sum + value;
    if grown.is_finite() { grown } else { sum }
}

/// One measurement that is shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown<'a, L> {
    /// Its labels.
    pub labels: L,
    /// Its value.
    pub value: &'a Value,
}

// ---- what runs say of themselves ----

/// A metric of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostMetric {
    /// Runs by how they ended.
    Runs,
    /// How long runs took.
    RunSeconds,
    /// Processor time of runs.
    CpuSeconds,
    /// The largest memory of a run.
    MemoryPeak,
    /// Calls from guests to the host.
    HostCalls,
    /// Operations that hooks asked for, by what became of them.
    Operations,
    /// Measurements of hooks that were left out.
    Dropped,
}

impl HostMetric {
    /// Its name, without the ending of counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "barbless_hook_runs",
            Self::RunSeconds => "barbless_hook_run_seconds",
            Self::CpuSeconds => "barbless_hook_cpu_seconds",
            Self::MemoryPeak => "barbless_hook_memory_peak_bytes",
            Self::HostCalls => "barbless_hook_host_calls",
            Self::Operations => "barbless_hook_operations",
            Self::Dropped => "barbless_hook_measurements_dropped",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Self::Runs => "Runs of hooks, by why they ran and how they ended",
            Self::RunSeconds => "Wall-clock time of runs of hooks, waiting for a processor excluded",
            Self::CpuSeconds => "Processor time of runs of hooks",
            Self::MemoryPeak => "Largest memory of a run of the hook since the host began",
            Self::HostCalls => "Calls from hooks to the host",
            Self::Operations => "Operations that hooks asked for, by what became of them",
            Self::Dropped => {
                "Measurements of hooks that were left out, because there are too many series or a name is taken"
            }
        }
    }
}

/// How a run ended, as a label.
#[must_use]
pub fn result_of(end: &RunEnd) -> &'static str {
    match end {
        RunEnd::Ok => "success",
        RunEnd::HookError(_) => "error",
        RunEnd::Trap { .. } => "trap",
        RunEnd::TimedOut { .. } => "timeout",
        RunEnd::OutOfMemory { .. } | RunEnd::TooManyCalls { .. } => "limit",
        RunEnd::Denied { .. } => "denied",
        RunEnd::BadOutput { .. } => "bad-output",
        RunEnd::OperationRefused { .. } => "refused",
        RunEnd::Unsettled { .. } => "unsettled",
        RunEnd::Cancelled { .. } => "cancelled",
        RunEnd::HostFault { .. } => "host-fault",
    }
}

/// All measurements of a process.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    host: BTreeMap<HostMetric, BTreeMap<Labels, Value>>,
    hooks: HookMetrics,
}

impl Metrics {
    /// Takes what a run says of itself, and what its hook measured if it succeeded.
    pub fn ran(&mut self, record: &RunRecord) {
        let application = ("application", record.application.clone());
        let hook = ("hook", record.hook.clone());
        let of_hook = vec![application.clone(), hook.clone()];
        let runs = vec![
            application.clone(),
            hook,
            ("trigger", record.trigger.as_str().to_owned()),
            ("result", result_of(&record.end).to_owned()),
        ];
        self.count(HostMetric::Runs, runs, 1.0);
        let seconds = micros(record.usage.wall_us);
        let times = self.host.entry(HostMetric::RunSeconds).or_default().entry(of_hook.clone());
        if let Value::Histogram(times) = times.or_insert_with(|| Value::Histogram(Distribution::new(RUN_SECONDS))) {
            times.observe(seconds);
        }
        self.count(HostMetric::CpuSeconds, of_hook.clone(), micros(record.usage.cpu_us));
        self.count(HostMetric::HostCalls, of_hook.clone(), number(record.usage.host_calls));
        let bytes = number(record.usage.memory_bytes);
        let peak = self.host.entry(HostMetric::MemoryPeak).or_default().entry(of_hook).or_insert(Value::Gauge(bytes));
        if let Value::Gauge(peak) = peak {
            *peak = peak.max(bytes);
        }
        for (operation, result) in &record.operations {
            let result = match result {
                OperationResult::Done => "done",
                OperationResult::Unchanged => "unchanged",
                OperationResult::Failed { .. } => "failed",
                OperationResult::Skipped => "skipped",
            };
            let labels =
                vec![application.clone(), ("operation", operation.verb().to_owned()), ("result", result.to_owned())];
            self.count(HostMetric::Operations, labels, 1.0);
        }
        if record.end.is_ok() {
            let package = &record.input.instance.package_name;
            let dropped = self.hooks.take(&record.application, package, &record.hook, &record.metrics);
            if dropped > 0 {
                self.count(HostMetric::Dropped, vec![application], number(dropped));
            }
        }
    }

    fn count(&mut self, metric: HostMetric, labels: Labels, by: f64) {
        let series = self.host.entry(metric).or_default().entry(labels).or_insert(Value::Counter(0.0));
        if let Value::Counter(sum) = series {
            *sum = add(*sum, by);
        }
    }

    /// A package came into force that has these hooks: what others measured is over.
    pub fn keep_hooks(&mut self, application: &str, hooks: &BTreeSet<String>) {
        self.hooks.retain(|key| key.application != application || hooks.contains(&key.hook));
        for series in self.host.values_mut() {
            series.retain(|labels, _| {
                label(labels, "application") != Some(application)
                    || label(labels, "hook").is_none_or(|hook| hooks.contains(hook))
            });
        }
    }

    /// The application is gone.
    pub fn forget(&mut self, application: &str) {
        self.hooks.retain(|key| key.application != application);
        for series in self.host.values_mut() {
            series.retain(|labels, _| label(labels, "application") != Some(application));
        }
    }

    /// What runs say of themselves.
    pub fn host(&self) -> impl Iterator<Item = (HostMetric, impl Iterator<Item = Shown<'_, &Labels>>)> {
        self.host
            .iter()
            .filter(|(_, series)| !series.is_empty())
            .map(|(metric, series)| (*metric, series.iter().map(|(labels, value)| Shown { labels, value })))
    }

    /// What hooks measure: name (without the ending of counters), kind, series.
    pub fn hooks(
        &self,
    ) -> impl Iterator<Item = (&str, MetricKind, impl Iterator<Item = Shown<'_, Vec<(&str, &str)>>>)> {
        self.hooks.families.iter().map(|(name, family)| {
            let series = family.series.iter().map(|(key, value)| Shown { labels: key.labels(), value });
            (name.as_str(), family.kind, series)
        })
    }
}

fn label<'a>(labels: &'a Labels, name: &str) -> Option<&'a str> {
    labels.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

#[expect(clippy::cast_precision_loss, reason = "measurements are as exact as a float is")]
fn number(count: u64) -> f64 {
    count as f64
}

fn micros(count: u64) -> f64 {
    number(count) / 1e6
}

// ---- what hooks measure ----

/// Series of hooks.
#[derive(Debug, Clone, Default)]
struct HookMetrics {
    families: BTreeMap<String, Family>,
    /// Names that lines of the page begin with, with the family that writes them.
    names: BTreeMap<String, String>,
    /// Series by application and hook.
    counts: BTreeMap<String, BTreeMap<String, usize>>,
}

/// A metric: all of its series are of one kind.
#[derive(Debug, Clone)]
struct Family {
    kind: MetricKind,
    series: BTreeMap<Key, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    application: String,
    hook: String,
    own: Vec<(String, String)>,
}

impl Key {
    fn labels(&self) -> Vec<(&str, &str)> {
        let first = [("application", self.application.as_str()), ("hook", self.hook.as_str())];
        let own = self.own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        first.into_iter().chain(own).collect()
    }
}

/// Labels that mean something to the host or to Prometheus; those of hooks are renamed, as Prometheus does it.
const RESERVED: [&str; 6] = ["application", "hook", "le", "quantile", "job", "instance"];

impl HookMetrics {
    /// Takes what one run measured; how many measurements were left out.
    fn take(&mut self, application: &str, package: &str, hook: &str, measured: &[Measurement]) -> u64 {
        let mut dropped = 0_u64;
        let mut set = BTreeSet::new();
        for measurement in measured {
            let name = name_of(package, measurement);
            let mut own: Vec<(String, String)> = measurement
                .labels
                .iter()
                .map(|(label, value)| {
                    let reserved = RESERVED.contains(&label.as_str());
                    (if reserved { format!("exported_{label}") } else { label.clone() }, value.clone())
                })
                .collect();
            own.sort_unstable();
            let twice = own.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
            let key = Key { application: application.to_owned(), hook: hook.to_owned(), own };
            if measurement.kind == MetricKind::Gauge {
                set.insert((name.clone(), key.clone()));
            }
            let series = if twice { None } else { self.series(&name, measurement.kind, key) };
            match series {
                Some(Value::Counter(sum)) => *sum = add(*sum, measurement.value),
                Some(Value::Gauge(value)) => *value = measurement.value,
                Some(Value::Histogram(values)) => values.observe(measurement.value),
                None => dropped = dropped.saturating_add(1),
            }
        }
        // A gauge says how things are; what the last run did not say is not known to be so any more.
        let over: Vec<(String, Key)> = self
            .families
            .iter()
            .filter(|(_, family)| family.kind == MetricKind::Gauge)
            .flat_map(|(name, family)| family.series.keys().map(move |key| (name, key)))
            .filter(|(_, key)| key.application == application && key.hook == hook)
            .map(|(name, key)| (name.clone(), key.clone()))
            .filter(|known| !set.contains(known))
            .collect();
        if !over.is_empty() {
            let over: BTreeSet<(String, Key)> = over.into_iter().collect();
            self.retain_named(|name, key| !over.contains(&(name.to_owned(), key.clone())));
        }
        dropped
    }

    /// The series, made if there is room for it.
    fn series(&mut self, name: &str, kind: MetricKind, key: Key) -> Option<&mut Value> {
        let family = self.families.get(name);
        if family.is_some_and(|family| family.kind != kind) {
            return None;
        }
        let is_new = family.is_none_or(|family| !family.series.contains_key(&key));
        if is_new {
            let hooks = self.counts.get(&key.application);
            let of_hook = hooks.and_then(|hooks| hooks.get(&key.hook)).copied().unwrap_or_default();
            let of_all: usize = hooks.map(|hooks| hooks.values().sum::<usize>()).unwrap_or_default();
            if of_hook >= METRIC_SERIES_PER_HOOK || of_all >= METRIC_SERIES_PER_APPLICATION {
                return None;
            }
            if family.is_none() {
                let lines = lines_of(name, kind);
                if lines.iter().any(|line| self.names.contains_key(line)) {
                    return None;
                }
                self.names.extend(lines.into_iter().map(|line| (line, name.to_owned())));
            }
            let hooks = self.counts.entry(key.application.clone()).or_default();
            let count = hooks.entry(key.hook.clone()).or_default();
            *count = count.saturating_add(1);
        }
        let family = self.families.entry(name.to_owned()).or_insert_with(|| Family { kind, series: BTreeMap::new() });
        Some(family.series.entry(key).or_insert_with(|| match kind {
            MetricKind::Counter => Value::Counter(0.0),
            MetricKind::Gauge => Value::Gauge(0.0),
            MetricKind::Histogram => Value::Histogram(Distribution::new(OBSERVED)),
        }))
    }

    fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.retain_named(|_, key| keep(key));
    }

    fn retain_named(&mut self, keep: impl Fn(&str, &Key) -> bool) {
        let counts = &mut self.counts;
        self.families.retain(|name, family| {
            family.series.retain(|key, _| {
                let stays = keep(name, key);
                let hooks = counts.get_mut(&key.application).filter(|_| !stays);
                if let Some(count) = hooks.and_then(|hooks| hooks.get_mut(&key.hook)) {
                    *count = count.saturating_sub(1);
                }
                stays
            });
            !family.series.is_empty()
        });
        counts.retain(|_, hooks| {
            hooks.retain(|_, count| *count > 0);
            !hooks.is_empty()
        });
        let families = &self.families;
        self.names.retain(|_, family| families.contains_key(family));
    }
}

/// The name of a metric of a hook: that of its package in front, so that packages do not get in each other's way, and
/// without the ending of counters, which is put on when it is written.
fn name_of(package: &str, measurement: &Measurement) -> String {
    let package: String = package.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let name = match measurement.kind {
        MetricKind::Counter => measurement.name.strip_suffix("_total").filter(|rest| !rest.is_empty()),
        MetricKind::Gauge | MetricKind::Histogram => None,
    };
    format!("hook_{package}_{}", name.unwrap_or(&measurement.name))
}

/// What the lines of a metric begin with.
fn lines_of(name: &str, kind: MetricKind) -> Vec<String> {
    let with = |ending: &str| format!("{name}{ending}");
    match kind {
        MetricKind::Counter => vec![with("_total")],
        MetricKind::Gauge => vec![name.to_owned()],
        MetricKind::Histogram => vec![name.to_owned(), with("_bucket"), with("_sum"), with("_count")],
    }
}
