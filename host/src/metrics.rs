//! Measurements for Prometheus: `/metrics` has what the host measures, `/metrics/hooks` what hooks measure.
//!
//! What is counted, and how long a series lives, is decided in [`barbless_domain::metrics`]. What can be read off the
//! state of an application (lengths of queues, its state) is read when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use barbless_domain::metrics::{Metrics as Measured, Shown, Value};
use barbless_domain::run::{MetricKind, RunRecord};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio_util::task::AbortOnDropHandle;

use crate::driver::State;

#[cfg(test)]
mod tests;

/// The text format of Prometheus, by its media type.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All measurements of a process. A clone is cheap and shares them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    measured: Mutex<Measured>,
    /// States, each with the number of its registration.
    applications: Mutex<BTreeMap<String, (u64, State)>>,
    registrations: AtomicU64,
}

/// Whole whatever happens while a lock is held: the maps are changed by calls that do not panic half-way.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Takes what a run says of itself, and what its hook measured. A run that ends after its application leaves nothing.
    pub(crate) fn ran(&self, record: &RunRecord) {
        let applications = locked(&self.0.applications);
        if applications.contains_key(&record.application) {
            locked(&self.0.measured).ran(record);
        }
    }

    /// A package with these hooks came into force.
    pub(crate) fn keep_hooks(&self, application: &str, hooks: &BTreeSet<String>) {
        locked(&self.0.measured).keep_hooks(application, hooks);
    }

    /// An application begins. It is there until the registration is dropped, or another one has taken its place.
    pub(crate) fn begin(&self, application: &str, state: State) -> Registration {
        let number = self.0.registrations.fetch_add(1, Ordering::Relaxed);
        locked(&self.0.applications).insert(application.to_owned(), (number, state));
        Registration { metrics: self.clone(), application: application.to_owned(), number }
    }

    /// What the host measures, in the text format of Prometheus.
    ///
    /// # Errors
    /// If a number cannot be written, which is a bug of the host.
    pub fn host_text(&self) -> Result<String, fmt::Error> {
        text(HostPage(self.clone()))
    }

    /// What hooks measure, in the text format of Prometheus.
    ///
    /// # Errors
    /// If a number cannot be written, which is a bug of the host.
    pub fn hooks_text(&self) -> Result<String, fmt::Error> {
        text(HooksPage(self.clone()))
    }

    /// Serves both pages until the handle is dropped; gives the address, for port 0 stands for a free one.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub async fn serve(&self, listen: SocketAddr) -> std::io::Result<(SocketAddr, AbortOnDropHandle<()>)> {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let (host, hooks) = (self.clone(), self.clone());
        let router = Router::new()
            .route("/metrics", get(move || async move { page(host.host_text()) }))
            .route("/metrics/hooks", get(move || async move { page(hooks.hooks_text()) }));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "measurements are no longer served");
            }
        });
        Ok((address, AbortOnDropHandle::new(serving)))
    }
}

/// An application whose measurements are exported. With it go its series.
#[derive(Debug)]
pub(crate) struct Registration {
    metrics: Metrics,
    application: String,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut applications = locked(&self.metrics.0.applications);
        if applications.get(&self.application).is_some_and(|(number, _)| *number == self.number) {
            applications.remove(&self.application);
            locked(&self.metrics.0.measured).forget(&self.application);
        }
    }
}

fn page(text: Result<String, fmt::Error>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn text(page: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    prometheus_client::encoding::prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Labels of a series.
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }
}

fn kind(kind: MetricKind) -> MetricType {
    match kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Histogram => MetricType::Histogram,
    }
}

fn write(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: &Value) -> fmt::Result {
    let labels = Labels(labels);
    let mut series = metric.encode_family(&labels)?;
    match value {
        Value::Counter(value) => series.encode_counter::<NoLabelSet, _, f64>(value, None),
        Value::Gauge(value) => series.encode_gauge(value),
        Value::Histogram(values) => {
            series.encode_histogram::<NoLabelSet>(values.sum, values.count, &values.buckets, None)
        }
    }
}

#[derive(Debug)]
struct HostPage(Metrics);

impl Collector for HostPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        {
            let measured = locked(&self.0.0.measured);
            for (metric, series) in measured.host() {
                let mut series = series.peekable();
                let Some(first) = series.peek() else { continue };
                let kind = kind(first.value.kind());
                let mut written = encoder.encode_descriptor(metric.name(), metric.help(), None, kind)?;
                for Shown { labels, value } in series {
                    let labels: Vec<(&str, &str)> =
                        labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    write(&mut written, &labels, value)?;
                }
            }
        }
        let applications: Vec<(String, State)> =
            locked(&self.0.0.applications).iter().map(|(name, (_, state))| (name.clone(), state.clone())).collect();
        if applications.is_empty() {
            return Ok(());
        }
        let help =
            "Tasks that wait or are under way in a queue: that of the life of an application, and those of its hooks";
        let mut lengths = encoder.encode_descriptor("barbless_queue_length", help, None, MetricType::Gauge)?;
        for (name, state) in &applications {
            let queues = state.read(|app| {
                let hooks = app.hook_queues().iter().map(|(queue, tasks)| (format!("{name}/{queue}"), tasks.len()));
                std::iter::once((name.clone(), app.lifecycle().len())).chain(hooks).collect::<Vec<_>>()
            });
            for (queue, length) in queues {
                write(&mut lengths, &[("application", name), ("queue", &queue)], &gauge(length))?;
            }
        }
        let help = "Applications by version of the package in force and state";
        let mut infos = encoder.encode_descriptor("barbless_application_info", help, None, MetricType::Gauge)?;
        for (name, state) in &applications {
            let (version, state) = state.read(|app| {
                let version = app.loaded().map(|loaded| loaded.version.clone()).unwrap_or_default();
                (version, app.status().summary.state)
            });
            write(&mut infos, &[("application", name), ("version", &version), ("state", &state)], &gauge(1))?;
        }
        Ok(())
    }
}

fn gauge(count: usize) -> Value {
    Value::Gauge(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
}

#[derive(Debug)]
struct HooksPage(Metrics);

impl Collector for HooksPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let measured = locked(&self.0.0.measured);
        for (name, of, series) in measured.hooks() {
            let mut written = encoder.encode_descriptor(name, "Measured by a hook", None, kind(of))?;
            for Shown { labels, value } in series {
                write(&mut written, &labels, value)?;
            }
        }
        Ok(())
    }
}
