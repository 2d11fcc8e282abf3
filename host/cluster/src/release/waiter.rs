//! Waits for objects by watching them: one watch for each kind and namespace, however many objects are waited for.
//!
//! What is waited for may be added while the watches run. A watch may be behind: a state that is older than what the one
//! who waits has seen itself does not count, and that an object is missing from a list is not believed where it matters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::hook::LabelSelector;
use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::release::{Readiness, StepId};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::pods::{Failures, PodTrouble, Selector, runs_pods, troubles};
use super::{Progress, Run};
use crate::request::{label, metadata};
use crate::watch::{WatchEvent, WatchSpec};

/// What an observation of an object means for the one who waits.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The wait for it is over.
    Done,
    /// Not yet, and why.
    Pending(String),
    /// It never will be, and why.
    Failed(String),
    /// A list does not have it; that is to be asked for again.
    Doubtful,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// It is ready.
    Ready,
    /// A Job or Pod with this uid has ended.
    Ended {
        /// Uid of the object that was applied.
        uid: String,
    },
    /// The object with this uid is gone.
    Gone {
        /// Uid of the object that was deleted.
        uid: String,
    },
    /// The API server serves what it defines.
    Established,
    /// It is there and ready; it is somebody else's.
    Present,
}

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiting {
    /// A step.
    Step(StepId),
    /// Somebody in the middle of a step; a number.
    Asked(u64),
}

/// What somebody in the middle of a step waits for.
pub(super) struct Ask {
    /// The step.
    pub(super) step: StepId,
    pub(super) target: ObjectRef,
    pub(super) goal: Goal,
    /// Told when it has come about, or why it never will.
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

/// What is added to the wait.
pub(super) struct Wanted {
    pub(super) target: ObjectRef,
    pub(super) goal: Goal,
    /// The last known state.
    pub(super) seen: Option<Value>,
    /// Why it is not done.
    pub(super) why: String,
    /// How long nothing may happen to it.
    pub(super) no_activity: Option<Duration>,
    /// It was not there before this operation.
    pub(super) is_created: bool,
}

/// One that is waited for.
struct Target {
    wanted: Wanted,
    /// When something about it happened last.
    active: Instant,
}

/// Which objects a watch sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watched {
    gvk: Gvk,
    namespace: String,
    selection: Selection,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Selection {
    /// Those with the label of the application.
    Own,
    /// All of the kind.
    All,
    /// One.
    Named(String),
}

/// Which watch an event comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Objects(Arc<Watched>),
    Pods,
}

/// What one watch has told.
#[derive(Default)]
struct Known {
    synced: bool,
    objects: BTreeMap<String, Arc<Value>>,
}

pub(super) struct Waiter<'a> {
    run: &'a Run<'a>,
    events: SelectAll<BoxStream<'static, (Source, WatchEvent)>>,
    watches: BTreeMap<Watched, Known>,
    targets: BTreeMap<Waiting, Target>,
    /// Names that may ever be waited for: no others are remembered.
    names: BTreeSet<(String, String)>,
    /// Selectors of the Pods of workloads that are waited for.
    selectors: BTreeMap<ObjectRef, Selector>,
    /// How often their Pods have failed.
    failures: BTreeMap<ObjectRef, Failures>,
    /// The last trouble of each workload.
    pod_troubles: BTreeMap<ObjectRef, PodTrouble>,
    /// Troubles that were told.
    told: BTreeSet<PodTrouble>,
    pods: BTreeMap<String, Arc<Value>>,
    watches_pods: bool,
}

impl<'a> Waiter<'a> {
    pub(super) fn new(run: &'a Run<'a>) -> Self {
        let targets = run.plan.steps.iter().filter_map(|step| run.plan.target_of(step));
        Self {
            run,
            events: SelectAll::new(),
            watches: BTreeMap::new(),
            targets: BTreeMap::new(),
            names: targets.map(|target| (target.gvk.kind.clone(), target.name.clone())).collect(),
            selectors: BTreeMap::new(),
            failures: BTreeMap::new(),
            pod_troubles: BTreeMap::new(),
            told: BTreeSet::new(),
            pods: BTreeMap::new(),
            watches_pods: false,
        }
    }

    /// The next event; never ready without a watch.
    pub(super) async fn next(&mut self) -> (Source, WatchEvent) {
        match self.events.next().await {
            Some(event) => event,
            // A watch has no end, and the next target brings one.
            None => std::future::pending().await,
        }
    }

    /// Waits for one more object. The verdict on what is known about it already, if that is something.
    pub(super) fn add(&mut self, who: Waiting, wanted: Wanted) -> Option<Verdict> {
        let watched = self.watch_of(&wanted);
        if hangs_on_pods(&wanted) {
            self.watch_pods();
            let seen = wanted.seen.as_ref().unwrap_or(&Value::Null);
            self.failures.entry(wanted.target.clone()).or_insert_with(|| Failures::new(seen, wanted.is_created));
            if let Some(selector) = wanted.seen.as_ref().and_then(Selector::of) {
                self.selectors.insert(wanted.target.clone(), selector);
                self.look_at_all();
            }
        }
        let known = self.watches.get(&watched).filter(|known| known.synced);
        let known = known.map(|known| known.objects.get(&wanted.target.name).cloned());
        let is_going = matches!(wanted.goal, Goal::Gone { .. });
        self.targets.insert(who, Target { wanted, active: Instant::now() });
        match known {
            None => None,
            // The watch may not have told yet that it is there.
            Some(None) if is_going => Some(Verdict::Doubtful),
            Some(object) => self.observe(who, object.as_deref(), false),
        }
    }

    /// What the answer to a [`Verdict::Doubtful`] means.
    pub(super) fn confirmed(&mut self, who: Waiting, found: Option<&Value>) -> Option<Verdict> {
        match (found, &self.targets.get(&who)?.wanted.goal) {
            (None, Goal::Ended { .. }) => Some(Verdict::Failed("it was deleted while running".to_owned())),
            _ => self.observe(who, found, false),
        }
    }

    /// The watch that sees an object; opens it if there is none.
    fn watch_of(&mut self, wanted: &Wanted) -> Watched {
        let ObjectRef { gvk, namespace, name } = &wanted.target;
        let own = || {
            let labelled = wanted.seen.as_ref().and_then(|seen| label(seen, INSTANCE_LABEL));
            labelled == Some(self.run.application().name())
        };
        let selection = match wanted.goal {
            // Nothing else of somebody else is looked at.
            Goal::Present => Selection::Named(name.clone()),
            // Whoever takes the label off does not make it be gone.
            Goal::Gone { .. } | Goal::Established => Selection::All,
            Goal::Ready | Goal::Ended { .. } if own() => Selection::Own,
            Goal::Ready | Goal::Ended { .. } => Selection::All,
        };
        self.names.insert((gvk.kind.clone(), name.clone()));
        let watched = Watched { gvk: gvk.clone(), namespace: namespace.clone(), selection };
        let all = Watched { selection: Selection::All, ..watched.clone() };
        if self.watches.contains_key(&all) {
            return all;
        }
        if self.watches.contains_key(&watched) {
            return watched;
        }
        let labels = (watched.selection == Selection::Own).then(|| LabelSelector {
            match_labels: vec![(INSTANCE_LABEL.to_owned(), self.run.application().name().to_owned())],
            match_expressions: Vec::new(),
        });
        let names = match &watched.selection {
            Selection::Named(name) => vec![name.clone()],
            _ => Vec::new(),
        };
        let namespace = (!namespace.is_empty()).then(|| namespace.clone());
        let spec = WatchSpec { gvk: gvk.clone(), namespace, names, labels, fields: Vec::new() };
        let source = Source::Objects(Arc::new(watched.clone()));
        self.events.push(self.run.cluster.watch(spec).map(move |event| (source.clone(), event)).boxed());
        self.watches.insert(watched.clone(), Known::default());
        watched
    }

    fn watch_pods(&mut self) {
        if std::mem::replace(&mut self.watches_pods, true) {
            return;
        }
        let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        let spec = WatchSpec::all(gvk, Some(self.run.application().namespace().to_owned()));
        self.events.push(self.run.cluster.watch(spec).map(|event| (Source::Pods, event)).boxed());
    }

    /// No longer waits for one.
    pub(super) fn remove(&mut self, who: Waiting) {
        let Some(target) = self.targets.remove(&who) else { return };
        let reference = &target.wanted.target;
        if !self.targets.values().any(|other| other.wanted.target == *reference) {
            self.selectors.remove(reference);
            self.failures.remove(reference);
        }
    }

    /// What is waited for by one.
    pub(super) fn target(&self, who: Waiting) -> Option<&ObjectRef> {
        self.targets.get(&who).map(|target| &target.wanted.target)
    }

    /// Takes an event in: the verdicts on what is waited for.
    pub(super) fn take(&mut self, source: &Source, event: WatchEvent) -> Vec<(Waiting, Verdict)> {
        let Source::Objects(watched) = source else {
            self.take_pods(event);
            return self.failed_by_pods();
        };
        let name_of = |object: &Value| metadata(object, "name").unwrap_or_default().to_owned();
        let is_named = |object: &Arc<Value>| self.names.contains(&(watched.gvk.kind.clone(), name_of(object)));
        match event {
            WatchEvent::Synced(objects) => {
                let objects: BTreeMap<String, Arc<Value>> =
                    objects.into_iter().filter(is_named).map(|object| (name_of(&object), object)).collect();
                let waiting: Vec<(Waiting, String)> =
                    self.waiting_in(watched).map(|(who, target)| (who, target.wanted.target.name.clone())).collect();
                let found: Vec<(Waiting, Option<Arc<Value>>)> =
                    waiting.into_iter().map(|(who, name)| (who, objects.get(&name).cloned())).collect();
                if let Some(known) = self.watches.get_mut(watched) {
                    *known = Known { synced: true, objects };
                }
                found
                    .into_iter()
                    .filter_map(|(who, seen)| Some((who, self.observe(who, seen.as_deref(), false)?)))
                    .collect()
            }
            WatchEvent::Applied(object) => {
                let name = name_of(&object);
                if is_named(&object)
                    && let Some(known) = self.watches.get_mut(watched)
                {
                    known.objects.insert(name.clone(), Arc::clone(&object));
                }
                self.waiting_for(watched, &name)
                    .into_iter()
                    .filter_map(|who| Some((who, self.observe(who, Some(&object), false)?)))
                    .collect()
            }
            WatchEvent::Deleted(object) => {
                let name = name_of(&object);
                if let Some(known) = self.watches.get_mut(watched) {
                    known.objects.remove(&name);
                }
                self.waiting_for(watched, &name)
                    .into_iter()
                    .filter_map(|who| Some((who, self.observe(who, Some(&object), true)?)))
                    .collect()
            }
            WatchEvent::Failed { reason, message } => {
                tracing::warn!(gvk = %watched.gvk, reason, message, "the watch of objects that are waited for is interrupted");
                let unserved = reason == "KindNotServed";
                let why = format!("it cannot be observed: {message} ({reason})");
                self.waiting_in(watched)
                    .map(|(who, target)| match target.wanted.goal {
                        // With its definition all objects of a kind are gone.
                        Goal::Gone { .. } if unserved => (who, Verdict::Doubtful),
                        // Until the next observation, this is why it is not known to be done.
                        _ => (who, Verdict::Pending(why.clone())),
                    })
                    .collect()
            }
        }
    }

    fn waiting_in<'s>(&'s self, watched: &'s Watched) -> impl Iterator<Item = (Waiting, &'s Target)> {
        self.targets.iter().map(|(who, target)| (*who, target)).filter(|(_, target)| {
            let wanted = &target.wanted.target;
            wanted.gvk == watched.gvk
                && wanted.namespace == watched.namespace
                && match &watched.selection {
                    Selection::Named(name) => *name == wanted.name,
                    Selection::Own | Selection::All => true,
                }
        })
    }

    fn waiting_for(&self, watched: &Watched, name: &str) -> Vec<Waiting> {
        self.waiting_in(watched).filter(|(_, target)| target.wanted.target.name == name).map(|(who, _)| who).collect()
    }

    /// What a state means for one who waits; nothing if the state does not count. `deleted`: it is the last.
    pub(super) fn observe(&mut self, who: Waiting, object: Option<&Value>, deleted: bool) -> Option<Verdict> {
        let target = self.targets.get_mut(&who)?;
        let wanted = &target.wanted;
        let uid = object.and_then(|object| metadata(object, "uid"));
        if let (Some(object), Some(seen)) = (object, &wanted.seen)
            && is_older(object, seen)
        {
            return None;
        }
        if object.is_some() {
            target.active = Instant::now();
        }
        let verdict = match (&wanted.goal, object) {
            (Goal::Gone { uid: wanted }, Some(object)) if uid == Some(wanted) && !deleted => {
                Verdict::Pending(match finalizers(object) {
                    held if held.is_empty() => "it is still there".to_owned(),
                    held => format!("it is held by finalizers {}", held.join(", ")),
                })
            }
            // An object of the same name that came later is not ours to wait for.
            (Goal::Gone { uid: wanted }, Some(_)) if deleted && uid != Some(wanted) => return None,
            (Goal::Gone { .. }, _) => Verdict::Done,
            (Goal::Ended { uid: wanted }, Some(object)) => match outcome(object) {
                _ if uid != Some(wanted) && deleted => return None,
                _ if uid != Some(wanted) => Verdict::Failed("it was deleted while running".to_owned()),
                Verdict::Pending(_) if deleted => Verdict::Failed("it was deleted while running".to_owned()),
                ended => ended,
            },
            (Goal::Ended { .. }, None) => Verdict::Doubtful,
            (Goal::Established, Some(object)) if !deleted => established(object),
            (Goal::Established | Goal::Present, None) => Verdict::Pending("it is not there".to_owned()),
            (Goal::Ready, None) => Verdict::Pending("it is gone, or its labels are".to_owned()),
            (Goal::Ready, Some(_)) if deleted => Verdict::Pending("it is gone, or its labels are".to_owned()),
            (Goal::Established | Goal::Present, Some(_)) if deleted => Verdict::Pending("it is gone".to_owned()),
            (Goal::Ready | Goal::Present, Some(object)) => match (self.run.options.ready)(object) {
                Readiness::Ready => Verdict::Done,
                Readiness::Waiting(why) => Verdict::Pending(why),
                // The object of somebody else may yet be mended.
                Readiness::Failed(why) if wanted.goal == Goal::Present => Verdict::Pending(why),
                Readiness::Failed(why) => Verdict::Failed(why),
            },
            (Goal::Established, Some(_)) => Verdict::Pending("it is gone".to_owned()),
        };
        let reference = wanted.target.clone();
        let mut verdict = verdict;
        if let Verdict::Pending(_) = verdict
            && hangs_on_pods(wanted)
            && let Some(object) = object.filter(|_| !deleted)
            && let Some(selector) = Selector::of(object)
        {
            self.selectors.insert(reference.clone(), selector);
            if let Some(failures) = self.failures.get_mut(&reference) {
                failures.of(object);
            }
            // Pods that came before the selector.
            self.look_at_all();
            if let Some(why) = self.failures.get(&reference).and_then(Failures::exceeded) {
                verdict = Verdict::Failed(why);
            }
        }
        Some(match verdict {
            Verdict::Failed(why) => Verdict::Failed(self.explained(&reference, why)),
            other => other,
        })
    }

    /// The reason with the trouble of the Pods, if there is one.
    fn explained(&self, target: &ObjectRef, why: String) -> String {
        match self.pod_troubles.get(target) {
            Some(trouble) => format!("{why} ({trouble})"),
            None => why,
        }
    }

    /// Whether the watch has shown what is wrong with the Pods of a workload.
    pub(super) fn knows_trouble(&self, target: &ObjectRef) -> bool {
        self.pod_troubles.contains_key(target)
    }

    /// Remembers why one is not done.
    pub(super) fn pending(&mut self, who: Waiting, why: &str) {
        if let Some(target) = self.targets.get_mut(&who) {
            why.clone_into(&mut target.wanted.why);
        }
    }

    /// Why one is not done, with the trouble of its Pods.
    pub(super) fn reason(&self, who: Waiting) -> Option<String> {
        let target = self.targets.get(&who)?;
        Some(self.explained(&target.wanted.target, target.wanted.why.clone()))
    }

    /// When the first of those is due that may not be idle for long.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        self.targets.values().filter_map(Target::idle_at).min()
    }

    /// Those about which nothing has happened for too long, with the time.
    pub(super) fn idle(&self, now: Instant) -> Vec<(Waiting, String)> {
        let idle = self.targets.iter().filter(|(_, target)| target.idle_at().is_some_and(|at| at <= now));
        idle.map(|(who, target)| {
            let after = target.wanted.no_activity.unwrap_or_default();
            let why = self.explained(&target.wanted.target, target.wanted.why.clone());
            (*who, format!("nothing has changed for {after:?}: {why}"))
        })
        .collect()
    }

    /// Those whose Pods have failed too often.
    fn failed_by_pods(&self) -> Vec<(Waiting, Verdict)> {
        let waiting = self.targets.iter().filter(|(_, target)| hangs_on_pods(&target.wanted));
        let failed = waiting.filter_map(|(who, target)| {
            let target = &target.wanted.target;
            let why = self.failures.get(target)?.exceeded()?;
            Some((*who, Verdict::Failed(self.explained(target, why))))
        });
        failed.collect()
    }

    fn take_pods(&mut self, event: WatchEvent) {
        let name = |pod: &Value| metadata(pod, "name").unwrap_or_default().to_owned();
        match event {
            WatchEvent::Synced(pods) => {
                self.pods = pods.iter().map(|pod| (name(pod), Arc::clone(pod))).collect();
                pods.iter().for_each(|pod| self.look_at(pod, false));
            }
            WatchEvent::Applied(pod) => {
                let uid = |pod: &Value| metadata(pod, "uid").map(str::to_owned);
                let before = self.pods.insert(name(&pod), Arc::clone(&pod));
                let is_new = before.is_none_or(|before| uid(&before) != uid(&pod));
                self.look_at(&pod, is_new);
            }
            WatchEvent::Deleted(pod) => {
                let name = name(&pod);
                self.pods.remove(&name);
                self.pod_troubles.retain(|_, trouble| trouble.pod != name);
            }
            // Pods only explain; the wait does not hang on them.
            WatchEvent::Failed { .. } => {}
        }
    }

    fn look_at_all(&mut self) {
        let pods: Vec<_> = self.pods.values().cloned().collect();
        pods.iter().for_each(|pod| self.look_at(pod, false));
    }

    /// `is_new`: it came while the watch was running.
    fn look_at(&mut self, pod: &Value, is_new: bool) {
        let owners = self.selectors.iter().filter(|(_, selector)| selector.matches(pod));
        let owners: Vec<ObjectRef> = owners.map(|(target, _)| target.clone()).collect();
        for workload in owners {
            let now = Instant::now();
            self.targets.values_mut().filter(|it| it.wanted.target == workload).for_each(|it| it.active = now);
            if let Some(failures) = self.failures.get_mut(&workload) {
                failures.look_at(pod, is_new);
            }
            for trouble in troubles(&workload, pod) {
                self.pod_troubles.insert(workload.clone(), trouble.clone());
                if self.told.insert(trouble.clone()) {
                    self.run.tell(Progress::PodFailing(trouble));
                }
            }
        }
    }
}

/// Whether the Pods of what is waited for say how it fares.
fn hangs_on_pods(wanted: &Wanted) -> bool {
    runs_pods(&wanted.target.gvk.kind) && matches!(wanted.goal, Goal::Ready | Goal::Ended { .. })
}

impl Target {
    fn idle_at(&self) -> Option<Instant> {
        Some(self.active + self.wanted.no_activity?)
    }
}

/// Whether a watch told a state that is behind what was seen.
fn is_older(object: &Value, seen: &Value) -> bool {
    let version = |object: &Value| metadata(object, "resourceVersion").and_then(|text| text.parse::<u64>().ok());
    match (version(object), version(seen)) {
        (Some(object), Some(seen)) => object < seen,
        _ => {
            let generation = |object: &Value| object.pointer("/metadata/generation").and_then(Value::as_i64);
            metadata(object, "uid") == metadata(seen, "uid") && generation(object) < generation(seen)
        }
    }
}

/// What holds an object that is to go.
pub(super) fn finalizers(object: &Value) -> Vec<String> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a Job or Pod has ended.
pub(super) fn outcome(object: &Value) -> Verdict {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = object.get("status").unwrap_or(&Value::Null);
    for condition in status.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        if text(condition, "status") == "True" {
            match text(condition, "type").as_str() {
                "Complete" => return Verdict::Done,
                "Failed" => {
                    return Verdict::Failed(format!("{}: {}", text(condition, "reason"), text(condition, "message")));
                }
                _ => {}
            }
        }
    }
    match text(status, "phase").as_str() {
        "Succeeded" => Verdict::Done,
        "Failed" => Verdict::Failed(format!("the Pod failed: {} {}", text(status, "reason"), text(status, "message"))),
        _ => Verdict::Pending("it has not ended".to_owned()),
    }
}

/// Whether a definition of a kind is served.
fn established(definition: &Value) -> Verdict {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    for condition in conditions.into_iter().flatten() {
        match (text(condition, "type").as_str(), text(condition, "status").as_str()) {
            ("Established", "True") => return Verdict::Done,
            ("NamesAccepted", "False") => {
                return Verdict::Failed(format!("its names are not accepted: {}", text(condition, "message")));
            }
            _ => {}
        }
    }
    Verdict::Pending("it is not established".to_owned())
}
