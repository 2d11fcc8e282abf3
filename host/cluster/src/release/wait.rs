//! Waiting for objects, by watching them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barbless_domain::hook::LabelSelector;
use barbless_domain::identity::{Gvk, ObjectRef};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use serde_json::Value;

use super::pods::{PodTrouble, Selector, runs_pods, troubles};
use super::{Interrupted, Progress, ReleaseError, Run};
use crate::request::metadata;
use crate::watch::{WatchEvent, WatchSpec};

/// What an observation of an object means for the one who waits.
pub(super) enum Verdict {
    /// The wait for it is over.
    Done,
    /// Not yet, and why.
    Pending(String),
    /// It never will be, and why.
    Failed(String),
}

/// Which watch an event comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Objects(Gvk, String),
    Pods,
}

/// What is waited for.
pub(super) struct Wanted {
    pub(super) target: ObjectRef,
    /// The last known state.
    pub(super) seen: Option<Value>,
    /// Why it is not done.
    pub(super) why: String,
}

impl Run<'_> {
    /// Waits until every object is done.
    ///
    /// `assess` is asked with each observed state, or with nothing for an object that is not there. `labels` narrows
    /// the watches; it must hold for all of the objects.
    ///
    /// # Errors
    /// [`ReleaseError::ObjectFailed`], [`ReleaseError::TimedOut`] or [`ReleaseError::Cancelled`].
    pub(super) async fn wait_for(
        &self,
        wanted: Vec<Wanted>,
        labels: Option<&LabelSelector>,
        assess: impl Fn(&ObjectRef, Option<&Value>) -> Verdict,
        done: impl Fn(&ObjectRef) -> Progress,
    ) -> Result<(), ReleaseError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut waiter = Waiter::new(self, wanted, labels);
        let work = async {
            while !waiter.pending.is_empty() {
                let Some((source, event)) = waiter.events.next().await else { break };
                waiter.take(&source, event, &assess, &done)?;
            }
            Ok(())
        };
        match Box::pin(self.bounded(work)).await {
            Ok(outcome) => outcome,
            Err(Interrupted::Cancelled) => Err(ReleaseError::Cancelled),
            Err(Interrupted::TimeUp) => Err(self.timed_out(waiter.reasons())),
        }
    }
}

struct Waiter<'a> {
    run: &'a Run<'a>,
    events: SelectAll<BoxStream<'static, (Source, WatchEvent)>>,
    /// What is not done, and why.
    pending: BTreeMap<ObjectRef, String>,
    /// Selectors of the Pods of workloads that are waited for.
    selectors: BTreeMap<ObjectRef, Selector>,
    /// The last trouble of each workload.
    pod_troubles: BTreeMap<ObjectRef, PodTrouble>,
    /// Troubles that were told.
    told: BTreeSet<PodTrouble>,
    pods: BTreeMap<String, Arc<Value>>,
}

impl<'a> Waiter<'a> {
    fn new(run: &'a Run<'a>, wanted: Vec<Wanted>, labels: Option<&LabelSelector>) -> Self {
        let mut groups: BTreeMap<(Gvk, String), Vec<String>> = BTreeMap::new();
        let mut selectors = BTreeMap::new();
        let mut pending = BTreeMap::new();
        let mut with_pods = false;
        for Wanted { target, seen, why } in wanted {
            groups.entry((target.gvk.clone(), target.namespace.clone())).or_default().push(target.name.clone());
            if runs_pods(&target.gvk.kind) {
                with_pods = true;
                if let Some(selector) = seen.as_ref().and_then(Selector::of) {
                    selectors.insert(target.clone(), selector);
                }
            }
            pending.insert(target, why);
        }
        let mut events = SelectAll::new();
        for ((gvk, namespace), names) in groups {
            let source = Source::Objects(gvk.clone(), namespace.clone());
            let namespace = (!namespace.is_empty()).then_some(namespace);
            let spec = WatchSpec { gvk, namespace, names, labels: labels.cloned(), fields: Vec::new() };
            events.push(run.cluster.watch(spec).map(move |event| (source.clone(), event)).boxed());
        }
        if with_pods && let Ok(gvk) = Gvk::parse("v1", "Pod") {
            let spec = WatchSpec::all(gvk, Some(run.application.namespace().to_owned()));
            events.push(run.cluster.watch(spec).map(|event| (Source::Pods, event)).boxed());
        }
        Self {
            run,
            events,
            pending,
            selectors,
            pod_troubles: BTreeMap::new(),
            told: BTreeSet::new(),
            pods: BTreeMap::new(),
        }
    }

    fn take(
        &mut self,
        source: &Source,
        event: WatchEvent,
        assess: &impl Fn(&ObjectRef, Option<&Value>) -> Verdict,
        done: &impl Fn(&ObjectRef) -> Progress,
    ) -> Result<(), ReleaseError> {
        let Source::Objects(gvk, namespace) = source else {
            self.take_pods(event);
            return Ok(());
        };
        let reference = |object: &Value| ObjectRef {
            gvk: gvk.clone(),
            namespace: namespace.clone(),
            name: metadata(object, "name").unwrap_or_default().to_owned(),
        };
        match event {
            WatchEvent::Synced(objects) => {
                let by_name: BTreeMap<ObjectRef, Arc<Value>> =
                    objects.into_iter().map(|object| (reference(&object), object)).collect();
                let mine = |target: &&ObjectRef| target.gvk == *gvk && target.namespace == *namespace;
                let targets: Vec<ObjectRef> = self.pending.keys().filter(mine).cloned().collect();
                for target in targets {
                    self.assess(&target, by_name.get(&target).map(AsRef::as_ref), assess, done)?;
                }
            }
            WatchEvent::Applied(object) => {
                let target = reference(&object);
                if self.pending.contains_key(&target) {
                    self.assess(&target, Some(&object), assess, done)?;
                }
            }
            WatchEvent::Deleted(object) => {
                let target = reference(&object);
                if self.pending.contains_key(&target) {
                    self.assess(&target, None, assess, done)?;
                }
            }
            WatchEvent::Failed { reason, message } => {
                tracing::warn!(%gvk, reason, message, "the watch of objects that are waited for is interrupted");
                // Until the next observation, this is why it is not known to be done.
                for (target, why) in &mut self.pending {
                    if target.gvk == *gvk && target.namespace == *namespace {
                        *why = format!("it cannot be observed: {message} ({reason})");
                    }
                }
            }
        }
        Ok(())
    }

    fn assess(
        &mut self,
        target: &ObjectRef,
        object: Option<&Value>,
        assess: &impl Fn(&ObjectRef, Option<&Value>) -> Verdict,
        done: &impl Fn(&ObjectRef) -> Progress,
    ) -> Result<(), ReleaseError> {
        match assess(target, object) {
            Verdict::Done => {
                self.pending.remove(target);
                self.selectors.remove(target);
                self.run.tell(done(target));
            }
            Verdict::Pending(why) => {
                let known = self.pending.insert(target.clone(), why.clone());
                if known.as_ref() != Some(&why) {
                    self.run.tell(Progress::Waiting { target: target.clone(), why });
                }
                if runs_pods(&target.gvk.kind)
                    && let Some(selector) = object.and_then(Selector::of)
                {
                    self.selectors.insert(target.clone(), selector);
                    // Pods that came before the selector.
                    let pods: Vec<_> = self.pods.values().cloned().collect();
                    pods.iter().for_each(|pod| self.look_at(pod));
                }
            }
            Verdict::Failed(why) => {
                let why = match self.pod_troubles.get(target) {
                    Some(trouble) => format!("{why} ({trouble})"),
                    None => why,
                };
                return Err(ReleaseError::ObjectFailed { target: Box::new(target.clone()), why });
            }
        }
        Ok(())
    }

    fn take_pods(&mut self, event: WatchEvent) {
        let name = |pod: &Value| metadata(pod, "name").unwrap_or_default().to_owned();
        match event {
            WatchEvent::Synced(pods) => {
                self.pods = pods.iter().map(|pod| (name(pod), Arc::clone(pod))).collect();
                pods.iter().for_each(|pod| self.look_at(pod));
            }
            WatchEvent::Applied(pod) => {
                self.pods.insert(name(&pod), Arc::clone(&pod));
                self.look_at(&pod);
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

    fn look_at(&mut self, pod: &Value) {
        let owners = self.selectors.iter().filter(|(_, selector)| selector.matches(pod));
        let owners: Vec<ObjectRef> = owners.map(|(target, _)| target.clone()).collect();
        for workload in owners {
            for trouble in troubles(&workload, pod) {
                self.pod_troubles.insert(workload.clone(), trouble.clone());
                if self.told.insert(trouble.clone()) {
                    self.run.tell(Progress::PodFailing(trouble));
                }
            }
        }
    }

    /// What is not done, with the trouble of its Pods.
    fn reasons(&self) -> Vec<(ObjectRef, String)> {
        let reason = |(target, why): (&ObjectRef, &String)| match self.pod_troubles.get(target) {
            Some(trouble) => (target.clone(), format!("{why} ({trouble})")),
            None => (target.clone(), why.clone()),
        };
        self.pending.iter().map(reason).collect()
    }
}
