//! Watches and schedules of the hooks in force.
//!
//! A watch projects each object before it is kept and tells the application only of changes that count. What changes
//! before the application knows that all bindings are synchronised is held back and told right after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barbless_cluster::{Observation, WatchSpec};
use barbless_domain::event::{Answer, Event, Failure};
use barbless_domain::grant::Scope;
use barbless_domain::hook::{Change, HookDeclaration, KubernetesBinding, Projection};
use barbless_domain::identity::Gvk;
use barbless_domain::limits::{
    CHANGES_PER_RUN, FILTER_PAUSE_FIRST, FILTER_PAUSE_MAX, SYNCHRONISATION_WAIT, WATCH_INTERRUPTED, WATCH_QUIET,
};
use barbless_domain::pipeline::NOT_SYNCHRONISED;
use barbless_domain::schedule::{Agenda, Schedule, Zone};
use barbless_domain::snapshot::{self, Projected, SnapshotStore};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::instance::LoadedPackage;

/// The tasks of all bindings. They end when this is dropped.
pub(super) struct Bindings {
    tasks: JoinSet<()>,
    gate: Gate,
}

/// Holds back what bindings have to tell.
#[derive(Clone)]
pub(super) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// The application knows that the bindings are there: from now on it is told of changes.
    pub(super) fn open(&self) {
        self.0.send_replace(true);
    }
}

struct Waiting {
    name: String,
    synced: oneshot::Receiver<()>,
    problem: watch::Receiver<Trouble>,
}

/// Starts everything and waits until every snapshot is there.
pub(super) async fn start(context: &Arc<Context>, token: &CancellationToken) -> Answer {
    stop(context).await;
    let mut tasks = JoinSet::new();
    match begin(context, token, &mut tasks).await {
        Ok(gate) => {
            *context.instance.bindings.lock().await = Some(Bindings { tasks, gate });
            Answer::Done
        }
        Err(answer) => {
            // None of them has a word to say any more, and nobody takes what they had for the state of the cluster.
            tasks.shutdown().await;
            for store in context.instance.data().snapshots.values_mut().flat_map(BTreeMap::values_mut) {
                store.fail("its watch could not be started".to_owned());
            }
            answer
        }
    }
}

async fn begin(context: &Arc<Context>, token: &CancellationToken, tasks: &mut JoinSet<()>) -> Result<Gate, Answer> {
    let package = match context.instance.current() {
        Ok(package) => package,
        Err(failure) => return Err(Answer::Failed(failure)),
    };
    let (gate, opened) = watch::channel(false);
    let mut waiting = Vec::new();
    let mut stores: BTreeMap<String, BTreeMap<String, SnapshotStore>> = BTreeMap::new();
    for hook in package.hooks.iter().map(|hook| &hook.declaration) {
        for binding in hook.kubernetes() {
            let store = SnapshotStore::new(binding);
            stores.entry(hook.name.clone()).or_default().insert(binding.name.clone(), store);
        }
    }
    context.instance.data().snapshots = stores;
    for hook in package.hooks.iter().map(|hook| &hook.declaration) {
        for binding in hook.kubernetes() {
            let spec = match watch_spec(context, &package, hook, binding).await {
                Ok(spec) => spec,
                Err(failure) => return Err(Answer::Failed(failure)),
            };
            let (tell, synced) = oneshot::channel();
            let (problem, problems) = watch::channel(Trouble::Silence);
            waiting.push(Waiting { name: format!("{}/{}", hook.name, binding.name), synced, problem: problems });
            let watched = Watched {
                context: Arc::clone(context),
                package: Arc::clone(&package),
                hook: hook.name.clone(),
                binding: binding.clone(),
                problem,
            };
            tasks.spawn(watched.run(spec, tell, opened.clone()));
        }
    }
    tasks.spawn(schedules(Arc::clone(context), Arc::clone(&package), opened));
    let deadline = Instant::now() + SYNCHRONISATION_WAIT;
    for Waiting { name, synced, problem } in waiting {
        tokio::select! {
            result = synced => if result.is_err() {
                let message = format!("the watch of binding '{name}' ended");
                return Err(Answer::Failed(Failure::new("InternalError", message)));
            },
            () = token.cancelled() => return Err(Answer::Cancelled),
            () = tokio::time::sleep_until(deadline) => {
                let trouble = problem.borrow().clone();
                return Err(Answer::Failed(not_synchronised(&name, &trouble)));
            }
        }
    }
    Ok(Gate(Arc::new(gate)))
}

/// The failure of a binding whose snapshot is not there.
pub(super) fn not_synchronised(binding: &str, trouble: &Trouble) -> Failure {
    let (why, hint) = match trouble {
        Trouble::Silence => ("the API server has not answered", WATCH_HINT),
        Trouble::Watch(why) => (why.as_str(), WATCH_HINT),
        Trouble::Filter(why) => {
            (why.as_str(), "let the filter take this object, too, or let the binding select other objects only")
        }
    };
    Failure::new(NOT_SYNCHRONISED, format!("binding '{binding}' is not synchronised: {why}")).hint(hint)
}

const WATCH_HINT: &str = "is the kind served by this cluster, and may the host list it?";

/// What keeps a binding from being synchronised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing has been heard yet.
    #[default]
    Silence,
    /// The objects cannot be watched.
    Watch(String),
    /// The filter failed for one of them.
    Filter(String),
}

impl Trouble {
    /// The filter failed for this object.
    pub(super) fn of_filter(object: &Value, why: &str) -> Self {
        let (namespace, name) = snapshot::key_of(object);
        Self::Filter(format!("the filter failed for {namespace}/{name}: {why}"))
    }

    fn text(&self) -> &str {
        match self {
            Self::Silence => "",
            Self::Watch(why) | Self::Filter(why) => why,
        }
    }
}

/// The gate of the bindings that are there.
pub(super) async fn gate(context: &Context) -> Option<Gate> {
    context.instance.bindings.lock().await.as_ref().map(|bindings| bindings.gate.clone())
}

/// Stops everything; returns when no task is left.
pub(super) async fn stop(context: &Context) {
    let bindings = context.instance.bindings.lock().await.take();
    if let Some(Bindings { mut tasks, .. }) = bindings {
        tasks.shutdown().await;
    }
    context.instance.data().snapshots.clear();
}

pub(super) async fn watch_spec(
    context: &Context,
    package: &LoadedPackage,
    hook: &HookDeclaration,
    binding: &KubernetesBinding,
) -> Result<WatchSpec, Failure> {
    let gvk = Gvk::parse(&binding.api_version, &binding.kind)
        .map_err(|error| Failure::new("BadBinding", error.to_string()))?;
    // A kind that is not served yet is looked up again by the watch; until then it counts as namespaced, which only
    // narrows what is seen.
    let scope = context.services.cluster.resolve(&gvk).await.map_or(Scope::Namespaced, |resource| resource.scope);
    // When the package was loaded the kind may not have been served yet, so the grant is asked again.
    super::package::allows_watch(context, package, &hook.name, binding, &gvk, scope)?;
    Ok(WatchSpec {
        gvk,
        namespace: (scope == Scope::Namespaced).then(|| context.instance.id.namespace().to_owned()),
        names: binding.name_selector.clone(),
        labels: binding.label_selector.clone(),
        fields: binding.field_selector.clone(),
    })
}

/// An object could not be projected.
struct FilterFailed;

struct Watched {
    context: Arc<Context>,
    package: Arc<LoadedPackage>,
    hook: String,
    binding: KubernetesBinding,
    problem: watch::Sender<Trouble>,
}

/// Since when a watch is interrupted. It goes on by itself without a word, so silence is a good sign.
#[derive(Default)]
struct Interruption {
    since: Option<Instant>,
    last: Option<Instant>,
    told: bool,
}

impl Interruption {
    /// It failed once more; whether the snapshot has been without news for too long by now.
    fn failed(&mut self) -> bool {
        let now = Instant::now();
        self.last = Some(now);
        now - *self.since.get_or_insert(now) >= WATCH_INTERRUPTED && !self.told
    }

    /// It works again, or there was no interruption; whether the application was told of one.
    fn over(&mut self) -> bool {
        std::mem::take(self).told
    }

    /// When silence means that it is over.
    fn quiet_at(&self) -> Option<Instant> {
        self.last.map(|last| last + WATCH_QUIET)
    }
}

impl Watched {
    async fn run(self, spec: WatchSpec, tell: oneshot::Sender<()>, mut opened: watch::Receiver<bool>) {
        let mut tell = Some(tell);
        let mut held: Vec<Change> = Vec::new();
        let mut list: Vec<Projected> = Vec::new();
        let mut pause = FILTER_PAUSE_FIRST;
        let mut interruption = Interruption::default();
        let mut broken = false;
        let mut events = self.context.services.cluster.observe(spec.clone()).boxed();
        loop {
            let is_open = *opened.borrow_and_update();
            if is_open && !held.is_empty() {
                self.tell(std::mem::take(&mut held)).await;
            }
            let quiet = interruption.quiet_at();
            let event = tokio::select! {
                event = events.next() => event,
                changed = opened.changed(), if !is_open => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(quiet.unwrap_or_else(Instant::now)), if quiet.is_some() => {
                    if interruption.over() && !broken {
                        self.tell_state(None).await;
                    }
                    continue;
                }
                // The loop of the application has ended.
                () = self.context.events.closed() => return,
            };
            // The stream never ends by itself.
            let Some(event) = event else { return };
            if let Observation::Failed { reason, message } = &event {
                let problem = format!("{reason}: {message}");
                tracing::warn!(application = %self.context.instance.id, hook = self.hook, binding = self.binding.name,
                    reason, message, "a watch is interrupted");
                self.problem.send_replace(Trouble::Watch(problem.clone()));
                if interruption.failed() {
                    interruption.told = true;
                    self.tell_state(Some(format!("no news for {} seconds: {problem}", WATCH_INTERRUPTED.as_secs())))
                        .await;
                }
                continue;
            }
            let synced = matches!(event, Observation::ListEnds);
            // The beginning of a list is no news: an attempt at one fails after it.
            let news = !matches!(event, Observation::ListBegins | Observation::Listed(_));
            match self.take(event, &mut list).await {
                Ok(changes) => held.extend(changes),
                Err(FilterFailed) => {
                    broken = true;
                    let why = self.problem.borrow().text().to_owned();
                    self.tell_state(Some(why)).await;
                    // Only a complete list makes the snapshot whole again, and nobody knows when the next would come. Those
                    // who share the watch neither wait for this one nor list with it.
                    drop(std::mem::replace(&mut events, futures::stream::pending().boxed()));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FILTER_PAUSE_MAX);
                    events = self.context.services.cluster.observe_alone(spec.clone()).boxed();
                    continue;
                }
            }
            if news && interruption.over() && !broken {
                self.tell_state(None).await;
            }
            if synced && let Some(tell) = tell.take() {
                // Whatever was told of the watch before this one is over.
                self.tell_state(None).await;
                // The synchronization run sees all of this; after a list whose filter failed it would count as new.
                held.clear();
                // Nobody waits any more if the step was cancelled.
                let _ = tell.send(());
            }
            if synced {
                pause = FILTER_PAUSE_FIRST;
                if std::mem::take(&mut broken) {
                    self.tell_state(None).await;
                }
            }
            let over = held.len().saturating_sub(CHANGES_PER_RUN);
            held.drain(..over);
        }
    }

    async fn tell(&self, changes: Vec<Change>) {
        let event = Event::ObjectsChanged { hook: self.hook.clone(), changes };
        let _ = self.context.events.send(event).await;
    }

    /// Whether the snapshot can be trusted. It is told at once, whatever else is held back.
    async fn tell_state(&self, problem: Option<String>) {
        let event = Event::BindingState { hook: self.hook.clone(), binding: self.binding.name.clone(), problem };
        let _ = self.context.events.send(event).await;
    }

    fn with_store<T>(&self, act: impl FnOnce(&mut SnapshotStore) -> T) -> Option<T> {
        let mut data = self.context.instance.data();
        data.snapshots.get_mut(&self.hook)?.get_mut(&self.binding.name).map(act)
    }

    async fn take(&self, event: Observation, list: &mut Vec<Projected>) -> Result<Vec<Change>, FilterFailed> {
        Ok(match event {
            Observation::ListBegins => {
                list.clear();
                Vec::new()
            }
            Observation::Listed(object) => match self.project(&object).await {
                Ok(one) => {
                    list.push(one);
                    Vec::new()
                }
                Err(reason) => return Err(self.filter_failed(&object, &reason)),
            },
            Observation::ListEnds => {
                let list = std::mem::take(list);
                self.with_store(|store| store.replace(list)).unwrap_or_default()
            }
            Observation::Applied(object) => match self.project(&object).await {
                Ok(one) => self.with_store(|store| store.put(one)).flatten().into_iter().collect(),
                Err(reason) => return Err(self.filter_failed(&object, &reason)),
            },
            Observation::Deleted(object) => {
                let (namespace, name) = snapshot::key_of(&object);
                self.with_store(|store| store.remove(&namespace, &name)).flatten().into_iter().collect()
            }
            Observation::Failed { .. } => Vec::new(),
        })
    }

    /// The snapshot cannot be trusted until the next complete list.
    fn filter_failed(&self, object: &Value, reason: &str) -> FilterFailed {
        let trouble = Trouble::of_filter(object, reason);
        let reason = trouble.text().to_owned();
        tracing::warn!(application = %self.context.instance.id, hook = self.hook, binding = self.binding.name, reason,
            "a binding is not synchronised");
        self.problem.send_replace(trouble);
        self.with_store(|store| store.fail(reason));
        FilterFailed
    }

    async fn project(&self, object: &Value) -> Result<Projected, String> {
        project(&self.context, &self.package, &self.hook, &self.binding, object).await
    }
}

/// What the snapshot of a binding keeps of an object.
pub(super) async fn project(
    context: &Context,
    package: &LoadedPackage,
    hook: &str,
    binding: &KubernetesBinding,
    object: &Value,
) -> Result<Projected, String> {
    let projection = match (&binding.filter, snapshot::project(&binding.filter, object)) {
        (_, Some(projection)) => projection,
        (Projection::Jq(program), None) => {
            let projected = package.filters.project(&context.instance.jq, program, object).await;
            projected.map_err(|error| format!("{} ({})", crate::report::chain(&error), error.hint()))?
        }
        (Projection::Component | Projection::Whole | Projection::Fields(_), None) => {
            let component = package.components.get(hook).ok_or("the component is gone")?;
            component
                .prepared
                .project(hook, &binding.name, object)
                .await
                .answer
                .map_err(|error| crate::report::chain(&error))?
        }
    };
    let (namespace, name) = snapshot::key_of(object);
    let object = binding.keep_full_objects.then(|| object.clone());
    Ok(Projected { namespace, name, projection, object })
}

/// Tells the application of each schedule that is due.
async fn schedules(context: Arc<Context>, package: Arc<LoadedPackage>, mut opened: watch::Receiver<bool>) {
    let mut entries: Vec<((String, String), Schedule)> = Vec::new();
    for hook in &package.hooks {
        for (name, schedule) in &hook.schedules {
            entries.push(((hook.name().to_owned(), name.clone()), schedule.clone()));
        }
    }
    if entries.is_empty() || opened.wait_for(|open| *open).await.is_err() {
        return;
    }
    // Schedules follow the clock of the machine; those without a zone of their own mean UTC, wherever the host runs.
    let moment = || i64::try_from(super::now().0).unwrap_or(i64::MAX);
    let mut agenda = Agenda::new(entries, moment(), Zone::utc());
    while let Some(first) = agenda.next() {
        let wait = u64::try_from(first.saturating_sub(moment())).unwrap_or(0);
        // The clock may be set: a long wait looks at it again.
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait).min(super::SLEEP_MAX)) => {}
            // The loop of the application has ended.
            () = context.events.closed() => return,
        }
        for (hook, schedule) in agenda.due(moment()) {
            let event = Event::ScheduleDue { hook: hook.clone(), schedule: schedule.clone() };
            if context.events.send(event).await.is_err() {
                return;
            }
        }
    }
}
