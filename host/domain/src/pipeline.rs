//! The life of one application as a function: `step(state, event, now) -> (state, effects)`.
//!
//! An application has one lifecycle queue (Deploy → Load → Switch → requirements → Configure → Enable → Run, or
//! Disable, or Remove) and one queue for each hook queue. In each queue the head is repeated until it succeeds or is
//! cancelled; queues do not wait for each other, with two exceptions that are written out below: Enable waits for the
//! synchronization runs that ask for it, and Switch, Disable and Remove wait until no hook runs any more.
//!
//! Guarantees, held by property tests: each effect with a ticket has exactly one queue entry that waits for it; an
//! answer of a cancelled effect changes nothing but what is known of the world; if every effect ends well, a deletion
//! ends with the finalizer removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::effect::{Cause, Effect};
use crate::event::{Answer, Desired, Event, Loaded};
use crate::hook::{HookDeclaration, Stage, Trigger};
use crate::identity::ApplicationId;
use crate::pace::Pace;
use crate::queue::{Backoff, Queue, Ticket, Time};
use crate::release::tracking::Tracking;
use crate::status::{Facts, Status};

mod acts;
mod answers;
mod hooks;
mod operations;
mod task;
#[cfg(test)]
mod tests;
mod tracked;

use tracked::Tracked;

pub(crate) use answers::again_and_again;
pub use hooks::NOT_SYNCHRONISED;
pub(crate) use hooks::not_synchronised;
pub use task::{DeletionStep, DisableAt, EnableAt, HookTask, RemoveAt, RollbackAt, RunAt, SwitchAt, Task};

#[cfg(test)]
thread_local! {
    /// How often a status was made.
    static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One application.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    id: ApplicationId,
    desired: Tracked<Option<Desired>>,
    loaded: Tracked<Option<Loaded>>,
    candidate: Option<Loaded>,
    unmet: Tracked<Option<Vec<String>>>,
    bindings: bool,
    started: bool,
    release: bool,
    removing: bool,
    /// Revision of the request for a rollback that was begun last, until the request is gone from the object.
    rollback: Option<u32>,
    lifecycle: Tracked<Queue<Task>>,
    hooks: BTreeMap<String, Queue<HookTask>>,
    /// What is left of the rate limits of hooks.
    paces: BTreeMap<String, Pace>,
    /// The hook that the head of the lifecycle queue runs.
    running_in_lifecycle: Option<String>,
    /// The synchronization runs of the bindings that are there were asked for.
    synchronised: bool,
    /// onStartup hooks of the package in force that have succeeded.
    started_hooks: BTreeSet<String>,
    /// When hooks changed the values last.
    values_changed: Time,
    /// Hooks that had something to do while they were skipped.
    missed: BTreeSet<String>,
    next_ticket: u64,
    values_loop: u32,
    next_drift: Option<Time>,
    finished: bool,
    facts: Tracked<Facts>,
    cause: Cause,
    /// The status as it was made last.
    shown: Option<Box<Status>>,
}

/// Takes one event and says what to do about it.
#[must_use]
pub fn step(mut app: App, event: Event, now: Time) -> (App, Vec<Effect>) {
    let mut out = Vec::new();
    match event {
        Event::Observed(desired) => app.observed(desired, now, &mut out),
        Event::Answered(ticket, answer) => app.answered(ticket, answer, now, &mut out),
        Event::Requirements(unmet) => app.requirements(unmet, now, &mut out),
        Event::ScheduleDue { hook, schedule } => app.hook_due(&hook, Trigger::Schedule(schedule), now),
        Event::ObjectsChanged { hook, changes } => app.hook_due(&hook, Trigger::Events(changes), now),
        Event::BindingState { hook, binding, problem } => app.binding_state(hook, binding, problem),
        Event::Health(workloads) => app.facts.workloads = workloads,
        Event::Tracking(tracking) => app.tracked(tracking),
        Event::Tick => app.tick(now),
    }
    app.pump(now, &mut out);
    app.show(&mut out);
    (app, out)
}

impl App {
    /// An application of which nothing is known yet.
    #[must_use]
    pub fn new(id: ApplicationId) -> Self {
        Self {
            id,
            desired: Tracked::default(),
            loaded: Tracked::default(),
            candidate: None,
            unmet: Tracked::default(),
            bindings: false,
            started: false,
            release: false,
            removing: false,
            rollback: None,
            lifecycle: Tracked::new(Queue::new(Backoff::LIFECYCLE)),
            hooks: BTreeMap::new(),
            paces: BTreeMap::new(),
            running_in_lifecycle: None,
            synchronised: false,
            started_hooks: BTreeSet::new(),
            values_changed: Time::default(),
            missed: BTreeSet::new(),
            next_ticket: 0,
            values_loop: 0,
            next_drift: None,
            finished: false,
            facts: Tracked::default(),
            cause: Cause::Scheduled,
            shown: None,
        }
    }

    /// Which application this is.
    #[must_use]
    pub fn id(&self) -> &ApplicationId {
        &self.id
    }

    /// The package in force.
    #[must_use]
    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_ref()
    }

    /// The lifecycle queue.
    #[must_use]
    pub fn lifecycle(&self) -> &Queue<Task> {
        &self.lifecycle
    }

    /// The hook queues, by name.
    #[must_use]
    pub fn hook_queues(&self) -> &BTreeMap<String, Queue<HookTask>> {
        &self.hooks
    }

    /// Whether nothing of the application is left: it can be forgotten.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether nothing is under way or waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lifecycle.is_empty() && self.hooks.values().all(Queue::is_empty)
    }

    /// What users see.
    #[must_use]
    pub fn status(&self) -> Status {
        crate::status::of(self)
    }

    /// When [`Event::Tick`] is wanted, if nothing happens before.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        let lifecycle = self.lifecycle.wake().filter(|_| !self.lifecycle_waits());
        let drift = self.next_drift.filter(|_| self.lifecycle.is_empty());
        self.hooks_wake().into_iter().chain(lifecycle).chain(drift).min()
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What the `Application` said last.
    #[must_use]
    pub fn desired(&self) -> Option<&Desired> {
        self.desired.as_ref()
    }

    pub(crate) fn unmet(&self) -> &[String] {
        self.unmet.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.removing
    }

    /// Why the last operation of the lifecycle began.
    #[must_use]
    pub fn last_cause(&self) -> Cause {
        self.cause
    }

    /// Asks for the status to be written if it is another one. It is made anew only if something that it is made of was
    /// touched: most events are about hooks, and most runs of hooks change nothing that users see.
    fn show(&mut self, out: &mut Vec<Effect>) {
        let touched = [
            self.facts.take_touched(),
            self.lifecycle.take_touched(),
            self.desired.take_touched(),
            self.loaded.take_touched(),
            self.unmet.take_touched(),
        ];
        if !touched.contains(&true) {
            return;
        }
        #[cfg(test)]
        MADE.with(|made| made.set(made.get() + 1));
        let status = self.status();
        let known = match self.shown.take() {
            Some(known) => *known == status,
            None => status == Self::new(self.id.clone()).status(),
        };
        // Once the finalizer is gone there is no object to write to.
        if !known && !self.finished {
            out.push(Effect::WriteStatus(Box::new(status.clone())));
        }
        self.shown = Some(Box::new(status));
    }

    // ---- events ----

    fn observed(&mut self, desired: Desired, now: Time, out: &mut Vec<Effect>) {
        let old = self.desired.replace(desired);
        let Some(new) = self.desired.as_ref().cloned() else { return };
        self.facts.generation = new.generation;
        let skips_changed = old.as_ref().is_some_and(|old| old.skip_hooks != new.skip_hooks);
        if skips_changed {
            self.skips_changed(now);
        }
        // What is being removed follows no new wishes: neither settings nor a version make a difference to it. Its
        // operator can ask for another attempt, and for one without the delete hooks.
        if self.removing {
            let retried =
                old.is_some_and(|old| old.retry != new.retry || old.skip_delete_hooks != new.skip_delete_hooks);
            if retried || skips_changed {
                self.lifecycle.hurry();
            }
            return;
        }
        if new.deleting {
            self.begin_removal(now, out);
            return;
        }
        let wanted = self.rollback_wanted(old.as_ref().and_then(|old| old.rollback_to), new.rollback_to);
        if let Some(revision) = wanted {
            self.begin_rollback(revision, now, out);
        }
        // What else is new follows the rollback.
        let Some(old) = old else {
            self.begin_update(Cause::Scheduled, now, out);
            return;
        };
        if old.version != new.version {
            self.begin_update(Cause::UpdateStarted, now, out);
        } else if old.settings != new.settings {
            self.reschedule(Cause::SettingsChanged, now, out);
        } else if old.maintenance != new.maintenance {
            self.reschedule(Cause::MaintenanceChanged, now, out);
        } else if skips_changed
            || old.retry != new.retry
            || old.take_over != new.take_over
            || old.field_conflicts != new.field_conflicts
        {
            self.retry(now, out);
        }
        if new.rollback_to.is_none() && self.rollback_under_way() {
            self.withdraw_rollback(now, out);
        }
    }

    /// The revision of a request for a rollback that is new. A request is known by its number: the one that was begun
    /// last may still be on the object, and 0 becomes the number that it was found to mean.
    fn rollback_wanted(&mut self, old: Option<u32>, new: Option<u32>) -> Option<u32> {
        if new.is_none() {
            self.rollback = None;
            self.facts.refused_rollback = None;
        }
        new.filter(|_| new != old && new != self.rollback)
    }

    fn tracked(&mut self, tracking: Tracking) {
        let Some(head) = self.lifecycle.head().filter(|head| head.running.is_some() && !head.cancelled) else { return };
        let applies = matches!(
            head.task,
            Task::Run { at: RunAt::Apply | RunAt::Restore(_), .. } | Task::Rollback(RollbackAt::Apply(_))
        );
        let removes = matches!(
            head.task,
            Task::Disable(DisableAt::Uninstall) | Task::Remove { step: DeletionStep::Uninstall, at: RemoveAt::Act(_) }
        );
        if tracking.is_empty() || !(applies || removes) {
            return;
        }
        if applies {
            self.facts.applying();
        }
        self.facts.tracking = Some(Arc::new(tracking.bounded()));
    }

    fn requirements(&mut self, unmet: Vec<String>, now: Time, out: &mut Vec<Effect>) {
        let before = self.unmet.replace(unmet);
        // Until the first answer of its own task the update is not there yet.
        if self.loaded.is_none() || self.removing || self.updating() {
            return;
        }
        let was_met = before.is_some_and(|before| before.is_empty());
        match (was_met, self.unmet().is_empty()) {
            (true, false) => self.suspend(now, out),
            (false, true) => self.reschedule(Cause::RequirementsMet, now, out),
            _ => {}
        }
    }

    fn tick(&mut self, now: Time) {
        if self.next_drift.is_none_or(|at| at > now) || !self.lifecycle.is_empty() {
            return;
        }
        if self.removing || self.maintenance() || !self.unmet().is_empty() {
            self.next_drift = None;
        } else if self.hooks_running() {
            self.next_drift = Some(now.after(std::time::Duration::from_secs(1)));
        } else {
            self.next_drift = None;
            self.push(Task::CheckDrift, now);
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, now: Time, out: &mut Vec<Effect>) {
        if self.lifecycle.head().is_some_and(|head| head.running == Some(ticket)) {
            self.lifecycle_answered(answer, now, out);
            return;
        }
        let owner = self
            .hooks
            .iter()
            .find(|(_, queue)| queue.head().is_some_and(|head| head.running == Some(ticket)))
            .map(|(name, _)| name.clone());
        if let Some(name) = owner {
            self.hook_answered(&name, &answer, now, out);
        }
    }

    // ---- questions ----

    fn updating(&self) -> bool {
        self.lifecycle.iter().any(|entry| {
            !entry.cancelled
                && matches!(entry.task, Task::Deploy { .. } | Task::Load { .. } | Task::Switch(_) | Task::Requirements)
        })
    }

    fn maintenance(&self) -> bool {
        self.desired.as_ref().is_some_and(|desired| desired.maintenance)
    }

    fn rollback_under_way(&self) -> bool {
        self.lifecycle.iter().any(|entry| {
            !entry.cancelled && matches!(entry.task, Task::Rollback(RollbackAt::Pin | RollbackAt::Apply(_)))
        })
    }

    fn hooks_running(&self) -> bool {
        self.hooks.values().any(|queue| queue.head().is_some_and(|head| head.running.is_some()))
    }

    fn synchronising(&self) -> bool {
        self.hooks.values().any(|queue| queue.iter().any(|entry| entry.task.awaited && !entry.cancelled))
    }

    /// The head of the lifecycle queue waits for the hook queues, not for a moment.
    fn lifecycle_waits(&self) -> bool {
        // The hook that is next runs already, because of a schedule or an event.
        if self.next_lifecycle_hook().is_some_and(|hook| self.is_running_in_queue(&hook)) {
            return true;
        }
        match self.lifecycle.head().map(|head| &head.task) {
            Some(Task::Enable(EnableAt::Synchronization)) => self.synchronising(),
            Some(
                Task::Switch(SwitchAt::Idle) | Task::Disable(DisableAt::Idle) | Task::Remove { at: RemoveAt::Idle, .. },
            ) => self.hooks_running(),
            _ => false,
        }
    }

    /// The hook that the head of the lifecycle queue runs next.
    fn next_lifecycle_hook(&self) -> Option<String> {
        let (stage, index) = self.lifecycle.head()?.task.stage()?;
        let skips = self.desired.as_ref().is_some_and(|desired| desired.skip_delete_hooks);
        if skips && matches!(self.lifecycle.head()?.task, Task::Remove { .. }) {
            return None;
        }
        let hook = self.hooks_at(stage).into_iter().nth(index)?;
        (!self.is_skipped(&hook)).then_some(hook)
    }

    fn declaration(&self, hook: &str) -> Option<&HookDeclaration> {
        self.loaded.as_ref()?.hooks.iter().find(|declaration| declaration.name == hook)
    }

    /// The hooks of a stage: by order, then by name.
    fn hooks_at(&self, stage: Stage) -> Vec<String> {
        let hooks = self.loaded.as_ref().map(|loaded| loaded.hooks.as_slice()).unwrap_or_default();
        let mut found: Vec<(i32, &str)> =
            hooks.iter().filter_map(|hook| Some((hook.order_at(stage)?, hook.name.as_str()))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, name)| name.to_owned()).collect()
    }
}
