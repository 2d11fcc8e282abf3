//! Watches: the state of a selection, and every change of it.
//!
//! A stream begins with [`WatchEvent::Synced`] when the first list is complete, never before: "not synchronised yet" is
//! silence or [`WatchEvent::Failed`], never an empty list. After an interruption that lost events the whole state comes
//! again as `Synced`. The stream has no end; dropping it ends the watch.
//!
//! Whoever keeps only a part of each object takes [`Cluster::observe`] instead: it gives the objects of a list one by
//! one, so that nobody holds all of them, and equal selections share one watch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use barbless_domain::hook::{FieldRequirement, LabelOperator, LabelSelector};
use barbless_domain::identity::Gvk;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::api::{Api, DynamicObject};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use tower::util::rng::{HasherRng, Rng as _};

use crate::Cluster;
use crate::discovery::Resource;
use crate::error::{Error, chain};
use crate::limits::{PAGE, UNSERVED_PAUSE, UNSERVED_PAUSE_MAX, WATCH_PAUSE, WATCH_PAUSE_MAX, WATCH_WELL};

mod patience;
mod shared;

pub(crate) use patience::Patience;
pub(crate) use shared::Hubs;

use patience::Unanswered;

/// A selection of objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchSpec {
    /// Kind of the objects.
    pub gvk: Gvk,
    /// Their namespace; absent selects all namespaces, and is right for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Names; empty selects all.
    pub names: Vec<String>,
    /// Labels that must hold.
    pub labels: Option<LabelSelector>,
    /// Fields that must match.
    pub fields: Vec<FieldRequirement>,
}

impl WatchSpec {
    /// All objects of a kind in a namespace.
    #[must_use]
    pub fn all(gvk: Gvk, namespace: Option<String>) -> Self {
        Self { gvk, namespace, names: Vec::new(), labels: None, fields: Vec::new() }
    }
}

/// What a watch tells. Objects are without `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// The whole selection, after the first list and after each relist. What is not in it is not there.
    Synced(Vec<Arc<Value>>),
    /// An object appeared in the selection or changed.
    Applied(Arc<Value>),
    /// An object left the selection; its last state.
    Deleted(Arc<Value>),
    /// The watch is interrupted. It goes on by itself after a pause.
    Failed {
        /// Stable reason, for example `KindNotServed`.
        reason: String,
        /// What happened.
        message: String,
    },
}

/// What is seen of a selection. Objects are without `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A list begins. One that has not ended comes to nothing.
    ListBegins,
    /// An object of the list.
    Listed(Arc<Value>),
    /// The list is complete: what was not in it is not there.
    ListEnds,
    /// An object appeared in the selection or changed.
    Applied(Arc<Value>),
    /// An object left the selection; its last state.
    Deleted(Arc<Value>),
    /// The watch is interrupted. It goes on by itself after a pause.
    Failed {
        /// Stable reason, for example `KindNotServed`.
        reason: String,
        /// What happened.
        message: String,
    },
}

type Events = BoxStream<'static, Result<watcher::Event<DynamicObject>, watcher::Error>>;

enum State {
    /// The kind is to be looked up, after this pause.
    Resolving { pause: Duration },
    /// Watching.
    Watching { resource: Resource, events: Events },
}

impl Cluster {
    /// The client of watches.
    pub(crate) fn watch_client(&self) -> &kube::Client {
        self.inner.watches.get_or_init(|| patience::patient(&self.inner.plain, self.inner.patience))
    }

    /// Watches a selection.
    pub fn watch(&self, spec: WatchSpec) -> impl Stream<Item = WatchEvent> + Send + 'static + use<> {
        let mut list = Vec::new();
        self.observe_alone(spec).filter_map(move |seen| {
            let event = match seen {
                Observation::ListBegins => {
                    list.clear();
                    None
                }
                Observation::Listed(object) => {
                    list.push(object);
                    None
                }
                Observation::ListEnds => Some(WatchEvent::Synced(std::mem::take(&mut list))),
                Observation::Applied(object) => Some(WatchEvent::Applied(object)),
                Observation::Deleted(object) => Some(WatchEvent::Deleted(object)),
                Observation::Failed { reason, message } => Some(WatchEvent::Failed { reason, message }),
            };
            std::future::ready(event)
        })
    }

    /// Watches a selection with a connection of its own, whoever else watches the same.
    pub fn observe_alone(&self, spec: WatchSpec) -> impl Stream<Item = Observation> + Send + 'static + use<> {
        let cluster = self.clone();
        let start = State::Resolving { pause: Duration::ZERO };
        futures::stream::unfold((cluster, spec, start), |(cluster, spec, mut state)| async move {
            loop {
                let (next, event) = step(&cluster, &spec, state).await;
                state = next;
                if let Some(event) = event {
                    return Some((event, (cluster, spec, state)));
                }
            }
        })
    }
}

/// Goes one step on.
async fn step(cluster: &Cluster, spec: &WatchSpec, state: State) -> (State, Option<Observation>) {
    match state {
        State::Resolving { pause } => {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            match cluster.resolve(&spec.gvk).await {
                // Whoever names a namespace does not want, and may not see, the objects of the whole cluster.
                Ok(resource)
                    if spec.namespace.is_some() && resource.scope == barbless_domain::grant::Scope::Cluster =>
                {
                    let event = Observation::Failed {
                        reason: "ScopeMismatch".to_owned(),
                        message: format!("{} is cluster-scoped, and a namespace was asked for", spec.gvk),
                    };
                    (State::Resolving { pause: UNSERVED_PAUSE_MAX }, Some(event))
                }
                Ok(resource) => {
                    let events = open(cluster, spec, &resource);
                    (State::Watching { resource, events }, None)
                }
                Err(error) => {
                    let pause = (pause * 2).clamp(UNSERVED_PAUSE, UNSERVED_PAUSE_MAX);
                    (State::Resolving { pause }, Some(failed(&error)))
                }
            }
        }
        State::Watching { resource, mut events } => match events.next().await {
            None => (State::Resolving { pause: UNSERVED_PAUSE }, None),
            Some(Err(error)) => {
                let event = watch_failed(&error);
                // A definition that was removed and came back may have another plural or scope.
                if matches!(&event, Observation::Failed { reason, .. } if reason == "NotFound") {
                    cluster.inner.discovery.forget_version(&spec.gvk.api_version());
                    return (State::Resolving { pause: UNSERVED_PAUSE }, Some(event));
                }
                (State::Watching { resource, events }, Some(event))
            }
            Some(Ok(event)) => {
                let event = match event {
                    watcher::Event::Init => Some(Observation::ListBegins),
                    watcher::Event::InitApply(object) => selected(spec, &resource, object).map(Observation::Listed),
                    watcher::Event::InitDone => Some(Observation::ListEnds),
                    watcher::Event::Apply(object) => selected(spec, &resource, object).map(Observation::Applied),
                    watcher::Event::Delete(object) => selected(spec, &resource, object).map(Observation::Deleted),
                };
                (State::Watching { resource, events }, event)
            }
        },
    }
}

fn open(cluster: &Cluster, spec: &WatchSpec, resource: &Resource) -> Events {
    let client = cluster.watch_client().clone();
    let api: Api<DynamicObject> = match &spec.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource.api),
        None => Api::all_with(client, &resource.api),
    };
    let mut config = watcher::Config::default().page_size(PAGE);
    let fields = field_selector(spec);
    if !fields.is_empty() {
        config = config.fields(&fields);
    }
    if let Some(labels) = spec.labels.as_ref().map(label_selector)
        && !labels.is_empty()
    {
        config = config.labels(&labels);
    }
    // That of the library grows with every watch that breaks off within two minutes of the one before, and those of a quiet
    // kind behind a proxy do: for half a minute each time nobody would see anything.
    watcher(api, config).backoff(ResetTimerBackoff::new(Pauses::default(), WATCH_WELL)).boxed()
}

/// Pauses before a watch is begun again: each is twice as long as the one before, and up to half as long again, so that not
/// all watches come at once to an API server that has just come back.
struct Pauses {
    next: Duration,
    dice: HasherRng,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: WATCH_PAUSE, dice: HasherRng::default() }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(WATCH_PAUSE_MAX);
        Some(pause.mul_f64(1.0 + self.dice.next_f64() / 2.0))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.next = WATCH_PAUSE;
    }
}

/// The selector of the fields; one name is the server's work, several are ours.
fn field_selector(spec: &WatchSpec) -> String {
    let mut terms: Vec<String> = Vec::new();
    if let [name] = spec.names.as_slice() {
        terms.push(format!("metadata.name={}", escaped(name)));
    }
    for FieldRequirement { field, equals, value } in &spec.fields {
        terms.push(format!("{field}{}{}", if *equals { "=" } else { "!=" }, escaped(value)));
    }
    terms.join(",")
}

/// Escapes a value of a field selector.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

/// Writes a label selector as the API reads it.
#[must_use]
pub(crate) fn label_selector(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let further = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            LabelOperator::In => format!("{key} in ({values})"),
            LabelOperator::NotIn => format!("{key} notin ({values})"),
            LabelOperator::Exists => key.clone(),
            LabelOperator::DoesNotExist => format!("!{key}"),
        }
    });
    equal.chain(further).collect::<Vec<_>>().join(",")
}

/// The object as JSON, if it is one of those asked for.
fn selected(spec: &WatchSpec, resource: &Resource, mut object: DynamicObject) -> Option<Arc<Value>> {
    if spec.names.len() > 1 {
        let names: BTreeSet<&str> = spec.names.iter().map(String::as_str).collect();
        if !object.metadata.name.as_deref().is_some_and(|name| names.contains(name)) {
            return None;
        }
    }
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(object).ok()?;
    // Items of a list do not say what they are.
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), resource.api.api_version.clone().into());
        map.insert("kind".to_owned(), resource.api.kind.clone().into());
    }
    Some(Arc::new(value))
}

fn failed(error: &Error) -> Observation {
    Observation::Failed { reason: error.reason().to_owned(), message: error.chain() }
}

fn watch_failed(error: &watcher::Error) -> Observation {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    match status {
        Some(status) => Observation::Failed {
            reason: if status.reason.is_empty() { "ApiError".to_owned() } else { status.reason.clone() },
            message: status.message.clone(),
        },
        None => {
            let reason = Unanswered::behind(error).map_or("ApiUnreachable", |_| Unanswered::REASON);
            Observation::Failed { reason: reason.to_owned(), message: chain(error) }
        }
    }
}
