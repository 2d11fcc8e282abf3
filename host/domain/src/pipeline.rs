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

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::effect::{Cause, Effect};
use crate::event::{Answer, Desired, Event, Failure, Loaded, Rendered, Workloads};
use crate::hook::{Change, HookDeclaration, Stage, Trigger};
use crate::identity::ApplicationId;
use crate::limits;
use crate::queue::{Backoff, Queue, Ticket, Time};
use crate::status::{Condition, Facts};

#[cfg(test)]
mod tests;

/// A step of a deletion. It is written down before it begins; each is safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionStep {
    /// beforeDeleteHelm hooks.
    BeforeHooks,
    /// The release is removed, until it is observed gone.
    Uninstall,
    /// afterDeleteHelm hooks.
    AfterHooks,
    /// Schedules and watches stop.
    StopHooks,
    /// Orphan resources are deleted.
    Purge,
    /// The bundle and all that is kept is forgotten.
    Undeploy,
    /// The finalizer is removed.
    Finalize,
}

impl DeletionStep {
    fn next(self) -> Option<Self> {
        match self {
            Self::BeforeHooks => Some(Self::Uninstall),
            Self::Uninstall => Some(Self::AfterHooks),
            Self::AfterHooks => Some(Self::StopHooks),
            Self::StopHooks => Some(Self::Purge),
            Self::Purge => Some(Self::Undeploy),
            Self::Undeploy => Some(Self::Finalize),
            Self::Finalize => None,
        }
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeHooks => "BeforeHooks",
            Self::Uninstall => "Uninstall",
            Self::AfterHooks => "AfterHooks",
            Self::StopHooks => "StopHooks",
            Self::Purge => "Purge",
            Self::Undeploy => "Undeploy",
            Self::Finalize => "Finalize",
        }
    }
}

/// A task of the lifecycle queue, with how far it has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Fetch the bundle.
    Deploy {
        /// Version.
        version: String,
    },
    /// Read the bundle.
    Load {
        /// Version.
        version: String,
    },
    /// Put the package that was loaded last in the place of the current one.
    Switch(SwitchAt),
    /// Evaluate the requirements.
    Requirements,
    /// Make the values.
    Configure,
    /// Start bindings, synchronise, run onStartup hooks.
    Enable(EnableAt),
    /// Run hooks, render, apply, run hooks.
    Run {
        /// How far.
        at: RunAt,
        /// Applies so far.
        applies: u32,
        /// An afterHelm hook changed values.
        changed: bool,
    },
    /// Suspension: delete hooks and release, keep the `Application`.
    Disable(DisableAt),
    /// Look for missing objects.
    CheckDrift,
    /// Deletion.
    Remove {
        /// Step that is under way.
        step: DeletionStep,
        /// How far.
        at: RemoveAt,
    },
}

/// How far [`Task::Switch`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchAt {
    /// Old bindings stop.
    Stop,
    /// Old hooks end.
    Idle,
    /// The new package takes over.
    Adopt,
}

/// How far [`Task::Enable`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnableAt {
    /// Bindings start.
    Bindings,
    /// Synchronization runs are waited for.
    Synchronization,
    /// onStartup hooks, by index.
    Startup(usize),
}

/// How far [`Task::Run`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt {
    /// beforeHelm hooks, by index.
    Before(usize),
    /// Rendering.
    Render,
    /// Applying.
    Apply,
    /// afterHelm hooks, by index.
    After(usize),
}

/// How far [`Task::Disable`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisableAt {
    /// beforeDeleteHelm hooks, by index.
    Before(usize),
    /// The release goes.
    Uninstall,
    /// afterDeleteHelm hooks, by index.
    After(usize),
    /// Bindings stop.
    Stop,
    /// Hooks end.
    Idle,
}

/// How far a step of [`Task::Remove`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveAt {
    /// The step is written down.
    Persist,
    /// Bindings start, because an earlier process stopped half-way and hooks need their snapshots.
    Bindings,
    /// The step itself; hooks by index.
    Act(usize),
    /// Hooks end.
    Idle,
}

/// A task of a hook queue.
#[derive(Debug, Clone, PartialEq)]
pub struct HookTask {
    /// Hook.
    pub hook: String,
    /// Why.
    pub trigger: Trigger,
    /// Enable waits for it.
    pub awaited: bool,
}

/// One application.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    id: ApplicationId,
    desired: Option<Desired>,
    loaded: Option<Loaded>,
    candidate: Option<Loaded>,
    unmet: Option<Vec<String>>,
    bindings: bool,
    started: bool,
    release: bool,
    removing: bool,
    lifecycle: Queue<Task>,
    hooks: BTreeMap<String, Queue<HookTask>>,
    next_ticket: u64,
    values_loop: u32,
    next_drift: Option<Time>,
    finished: bool,
    facts: Facts,
    cause: Cause,
}

/// Takes one event and says what to do about it.
#[must_use]
pub fn step(mut app: App, event: Event, now: Time) -> (App, Vec<Effect>) {
    let mut out = Vec::new();
    let before = app.status();
    match event {
        Event::Observed(desired) => app.observed(desired, now, &mut out),
        Event::Answered(ticket, answer) => app.answered(ticket, answer, now, &mut out),
        Event::Requirements(unmet) => app.requirements(unmet, now, &mut out),
        Event::ScheduleDue { hook, schedule } => app.hook_due(&hook, Trigger::Schedule(schedule), now),
        Event::ObjectsChanged { hook, changes } => app.hook_due(&hook, Trigger::Events(changes), now),
        Event::Health(workloads) => app.facts.workloads = workloads,
        Event::Tick => app.tick(now),
    }
    app.pump(now, &mut out);
    let after = app.status();
    // Once the finalizer is gone there is no object to write to.
    if after != before && !app.finished {
        out.push(Effect::WriteStatus(Box::new(after)));
    }
    (app, out)
}

impl App {
    /// An application of which nothing is known yet.
    #[must_use]
    pub fn new(id: ApplicationId) -> Self {
        Self {
            id,
            desired: None,
            loaded: None,
            candidate: None,
            unmet: None,
            bindings: false,
            started: false,
            release: false,
            removing: false,
            lifecycle: Queue::new(Backoff::LIFECYCLE),
            hooks: BTreeMap::new(),
            next_ticket: 0,
            values_loop: 0,
            next_drift: None,
            finished: false,
            facts: Facts::default(),
            cause: Cause::Scheduled,
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
    pub fn status(&self) -> crate::status::Status {
        crate::status::of(self)
    }

    /// When [`Event::Tick`] is wanted, if nothing happens before.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        let queues = self.hooks.values().filter_map(Queue::wake);
        let lifecycle = self.lifecycle.wake().filter(|_| !self.lifecycle_waits());
        let drift = self.next_drift.filter(|_| self.lifecycle.is_empty());
        queues.chain(lifecycle).chain(drift).min()
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

    // ---- events ----

    fn observed(&mut self, desired: Desired, now: Time, out: &mut Vec<Effect>) {
        let old = self.desired.replace(desired);
        let Some(new) = &self.desired else { return };
        self.facts.generation = new.generation;
        if self.removing {
            let retried =
                old.is_some_and(|old| old.retry != new.retry || old.skip_delete_hooks != new.skip_delete_hooks);
            if retried {
                self.lifecycle.hurry();
            }
            return;
        }
        if new.deleting {
            self.begin_removal(now, out);
            return;
        }
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
        } else if old.retry != new.retry {
            self.retry(now, out);
        }
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

    fn hook_due(&mut self, hook: &str, trigger: Trigger, now: Time) {
        if !self.bindings {
            return;
        }
        let Some(declaration) = self.declaration(hook) else { return };
        let queue = declaration.queue.clone();
        self.enqueue_hook(queue, HookTask { hook: hook.to_owned(), trigger, awaited: false }, now);
    }

    /// One dirty flag for each hook and kind of trigger: what waits already takes the new changes along.
    fn enqueue_hook(&mut self, queue: String, task: HookTask, now: Time) {
        let queue = self.hooks.entry(queue).or_insert_with(|| Queue::new(Backoff::HOOK));
        for entry in queue.iter_mut().filter(|entry| entry.running.is_none() && entry.task.hook == task.hook) {
            match (&mut entry.task.trigger, &task.trigger) {
                (Trigger::Events(waiting), Trigger::Events(new)) => {
                    merge_changes(waiting, new);
                    return;
                }
                (waiting, new) if *waiting == *new => return,
                _ => {}
            }
        }
        if let Err(full) = queue.push(task, now) {
            self.facts.dropped = Some(full.to_string());
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

    // ---- operations ----

    fn begin_update(&mut self, cause: Cause, now: Time, out: &mut Vec<Effect>) {
        let Some(desired) = &self.desired else { return };
        let version = desired.version.clone();
        self.interrupt(cause, out);
        self.values_loop = 0;
        self.candidate = None;
        self.facts.target = Some(version.clone());
        self.push(Task::Deploy { version: version.clone() }, now);
        self.push(Task::Load { version }, now);
        self.push(Task::Switch(SwitchAt::Stop), now);
        self.push(Task::Requirements, now);
    }

    fn reschedule(&mut self, cause: Cause, now: Time, out: &mut Vec<Effect>) {
        // An update ends in a reconciliation of its own, which reads the newest settings.
        if self.loaded.is_none() || self.updating() || self.removing || !self.unmet().is_empty() {
            return;
        }
        let mut start = now;
        if cause == Cause::HookValuesChanged {
            self.values_loop = self.values_loop.saturating_add(1);
            if let Some(over) = self.values_loop.checked_sub(limits::VALUES_LOOP).filter(|over| *over > 0) {
                start = now.after(Backoff::LIFECYCLE.wait(over, None));
            }
        } else if cause != Cause::DriftDetected {
            self.values_loop = 0;
        }
        if cause == Cause::SettingsChanged && self.facts.configured == Condition::True {
            self.facts.configured = Condition::no("SettingsChanged", "the settings are not applied yet");
        }
        self.interrupt(cause, out);
        self.begin_reconciliation(start);
    }

    fn begin_reconciliation(&mut self, start: Time) {
        self.push(Task::Configure, start);
        self.push(Task::Enable(EnableAt::Bindings), start);
        self.push(Task::Run { at: RunAt::Before(0), applies: 0, changed: false }, start);
    }

    fn suspend(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.interrupt(Cause::RequirementsLost, out);
        let under_way = self.lifecycle.iter().any(|entry| matches!(entry.task, Task::Disable(_)));
        if !under_way && (self.release || self.bindings) {
            self.push(Task::Disable(DisableAt::Before(0)), now);
        }
    }

    fn begin_removal(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(desired) = &self.desired else { return };
        let version = desired.version.clone();
        let step = desired.deletion_step.unwrap_or(DeletionStep::BeforeHooks);
        self.removing = true;
        self.cause = Cause::RemovalStarted;
        self.next_drift = None;
        if let Some(ticket) = self.lifecycle.cancel_all() {
            out.push(Effect::Cancel { ticket, cause: Cause::RemovalStarted });
        }
        // Hooks and the list of orphans are in the package; a process that begins here has to load it first.
        if self.loaded.is_none() && step <= DeletionStep::Purge {
            self.push(Task::Deploy { version: version.clone() }, now);
            self.push(Task::Load { version }, now);
            self.push(Task::Switch(SwitchAt::Adopt), now);
        }
        self.push(Task::Remove { step, at: RemoveAt::Persist }, now);
    }

    fn retry(&mut self, now: Time, out: &mut Vec<Effect>) {
        for queue in self.hooks.values_mut() {
            queue.hurry();
        }
        if self.lifecycle.is_empty() {
            self.reschedule(Cause::RetryRequested, now, out);
        } else {
            self.lifecycle.hurry();
        }
    }

    /// Stops what the lifecycle queue is doing, apart from a suspension: half a removal is no state to build on.
    fn interrupt(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        self.cause = cause;
        self.next_drift = None;
        if self.lifecycle.iter().any(|entry| matches!(entry.task, Task::Disable(_)) && !entry.cancelled) {
            self.lifecycle.retain_waiting(|task| matches!(task, Task::Disable(_)));
        } else if let Some(ticket) = self.lifecycle.cancel_all() {
            out.push(Effect::Cancel { ticket, cause });
        }
    }

    fn push(&mut self, task: Task, now: Time) {
        // The lifecycle queue never holds more than one operation of seven tasks and one that is being cancelled.
        if let Err(full) = self.lifecycle.push(task, now) {
            self.facts.dropped = Some(full.to_string());
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

    fn hooks_running(&self) -> bool {
        self.hooks.values().any(|queue| queue.head().is_some_and(|head| head.running.is_some()))
    }

    fn synchronising(&self) -> bool {
        self.hooks.values().any(|queue| queue.iter().any(|entry| entry.task.awaited && !entry.cancelled))
    }

    /// The head of the lifecycle queue waits for the hook queues, not for a moment.
    fn lifecycle_waits(&self) -> bool {
        match self.lifecycle.head().map(|head| &head.task) {
            Some(Task::Enable(EnableAt::Synchronization)) => self.synchronising(),
            Some(
                Task::Switch(SwitchAt::Idle) | Task::Disable(DisableAt::Idle) | Task::Remove { at: RemoveAt::Idle, .. },
            ) => self.hooks_running(),
            _ => false,
        }
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

    // ---- doing ----

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Starts whatever may start now.
    fn pump(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.pump_hooks(now, out);
        while self.pump_lifecycle(now, out) {
            self.pump_hooks(now, out);
        }
    }

    fn pump_hooks(&mut self, now: Time, out: &mut Vec<Effect>) {
        let mut next_ticket = self.next_ticket;
        for queue in self.hooks.values_mut() {
            let Some(head) = queue.due(now) else { continue };
            next_ticket += 1;
            let ticket = Ticket(next_ticket);
            head.running = Some(ticket);
            out.push(Effect::RunHook {
                ticket,
                hook: head.task.hook.clone(),
                trigger: head.task.trigger.clone(),
                attempt: head.failures.saturating_add(1),
            });
        }
        self.next_ticket = next_ticket;
    }

    /// Looks at the head of the lifecycle queue; true if it moved on and the next look may do more.
    fn pump_lifecycle(&mut self, now: Time, out: &mut Vec<Effect>) -> bool {
        if self.lifecycle_waits() {
            return false;
        }
        let Some(head) = self.lifecycle.due(now) else { return false };
        let attempt = head.failures.saturating_add(1);
        let task = head.task.clone();
        match self.next_act(&task, attempt) {
            Act::Do(effect) => {
                if let (Some(head), Some(ticket)) = (self.lifecycle.head_mut(), effect.ticket()) {
                    head.running = Some(ticket);
                }
                out.push(*effect);
                false
            }
            Act::Become(next) => {
                if let Some(head) = self.lifecycle.head_mut() {
                    head.task = next;
                }
                true
            }
            Act::StopHookRuns(next) => {
                self.cancel_hook_runs(out);
                if let Some(head) = self.lifecycle.head_mut() {
                    head.task = next;
                }
                true
            }
            Act::Finish => {
                self.finish_task(&task, now);
                true
            }
        }
    }

    fn cancel_hook_runs(&mut self, out: &mut Vec<Effect>) {
        let cause = self.cause;
        for queue in self.hooks.values_mut() {
            if let Some(ticket) = queue.cancel_all() {
                out.push(Effect::Cancel { ticket, cause });
            }
        }
        self.hooks.retain(|_, queue| !queue.is_empty());
        self.facts.failing_hooks.clear();
    }

    /// What the head of the lifecycle queue has to do next.
    fn next_act(&mut self, task: &Task, attempt: u32) -> Act {
        match task {
            Task::Deploy { version } => Act::effect(Effect::Deploy { ticket: self.ticket(), version: version.clone() }),
            Task::Load { version } => Act::effect(Effect::Load { ticket: self.ticket(), version: version.clone() }),
            Task::Switch(at) => self.switch_act(*at),
            Task::Requirements => Act::effect(Effect::CheckRequirements { ticket: self.ticket() }),
            Task::Configure => {
                let settings = self.desired.as_ref().map(|desired| desired.settings.clone()).unwrap_or_default();
                Act::effect(Effect::Configure { ticket: self.ticket(), settings })
            }
            Task::Enable(at) => self.enable_act(*at, attempt),
            Task::Run { at, applies, changed } => self.run_act(*at, *applies, *changed, attempt),
            Task::Disable(at) => self.disable_act(*at, attempt),
            Task::CheckDrift => Act::effect(Effect::CheckDrift { ticket: self.ticket() }),
            Task::Remove { step, at } => self.remove_act(*step, *at, attempt),
        }
    }

    fn switch_act(&mut self, at: SwitchAt) -> Act {
        match at {
            SwitchAt::Stop if self.bindings => Act::effect(Effect::StopBindings { ticket: self.ticket() }),
            SwitchAt::Stop => Act::StopHookRuns(Task::Switch(SwitchAt::Idle)),
            SwitchAt::Idle => Act::Become(Task::Switch(SwitchAt::Adopt)),
            // Nothing was loaded: a removal goes on without the package.
            SwitchAt::Adopt if self.candidate.is_none() => Act::Finish,
            SwitchAt::Adopt => Act::effect(Effect::Adopt { ticket: self.ticket() }),
        }
    }

    fn enable_act(&mut self, at: EnableAt, attempt: u32) -> Act {
        match at {
            EnableAt::Bindings if self.bindings => Act::Become(Task::Enable(EnableAt::Synchronization)),
            EnableAt::Bindings => Act::effect(Effect::StartBindings { ticket: self.ticket() }),
            EnableAt::Synchronization if self.started => Act::Finish,
            EnableAt::Synchronization => Act::Become(Task::Enable(EnableAt::Startup(0))),
            EnableAt::Startup(index) => self.stage_act(Stage::OnStartup, index, attempt).unwrap_or(Act::Finish),
        }
    }

    fn run_act(&mut self, at: RunAt, applies: u32, changed: bool, attempt: u32) -> Act {
        let maintenance = self.maintenance();
        match at {
            RunAt::Before(index) => self
                .stage_act(Stage::BeforeHelm, index, attempt)
                .unwrap_or(Act::Become(Task::Run { at: RunAt::Render, applies, changed })),
            RunAt::Render => Act::effect(Effect::Render { ticket: self.ticket(), maintenance }),
            RunAt::Apply => {
                self.release = true;
                Act::effect(Effect::Apply { ticket: self.ticket(), maintenance })
            }
            RunAt::After(index) => {
                if let Some(act) = self.stage_act(Stage::AfterHelm, index, attempt) {
                    act
                } else if changed && applies < limits::APPLIES_PER_RUN {
                    // afterHelm hooks are not run again: what they changed is applied once more, and that is all.
                    Act::Become(Task::Run { at: RunAt::Render, applies, changed: false })
                } else {
                    Act::Finish
                }
            }
        }
    }

    fn disable_act(&mut self, at: DisableAt, attempt: u32) -> Act {
        match at {
            DisableAt::Before(index) => self
                .stage_act(Stage::BeforeDeleteHelm, index, attempt)
                .unwrap_or(Act::Become(Task::Disable(DisableAt::Uninstall))),
            DisableAt::Uninstall => Act::effect(Effect::Uninstall { ticket: self.ticket() }),
            DisableAt::After(index) => self
                .stage_act(Stage::AfterDeleteHelm, index, attempt)
                .unwrap_or(Act::Become(Task::Disable(DisableAt::Stop))),
            DisableAt::Stop if self.bindings => Act::effect(Effect::StopBindings { ticket: self.ticket() }),
            DisableAt::Stop => Act::StopHookRuns(Task::Disable(DisableAt::Idle)),
            DisableAt::Idle => Act::Finish,
        }
    }

    fn remove_act(&mut self, step: DeletionStep, at: RemoveAt, attempt: u32) -> Act {
        let skip_hooks =
            self.loaded.is_none() || self.desired.as_ref().is_some_and(|desired| desired.skip_delete_hooks);
        let hook_step = matches!(step, DeletionStep::BeforeHooks | DeletionStep::AfterHooks);
        let next = |step: DeletionStep| match step.next() {
            Some(step) => Act::Become(Task::Remove { step, at: RemoveAt::Persist }),
            None => Act::Finish,
        };
        match (at, step) {
            (RemoveAt::Persist, _) => Act::effect(Effect::PersistDeletion { ticket: self.ticket(), step }),
            (RemoveAt::Bindings, _) if !hook_step || skip_hooks || self.bindings => {
                Act::Become(Task::Remove { step, at: RemoveAt::Act(0) })
            }
            (RemoveAt::Bindings, _) => Act::effect(Effect::StartBindings { ticket: self.ticket() }),
            (RemoveAt::Act(_), DeletionStep::BeforeHooks | DeletionStep::AfterHooks) if skip_hooks => next(step),
            (RemoveAt::Act(index), DeletionStep::BeforeHooks) => {
                self.stage_act(Stage::BeforeDeleteHelm, index, attempt).unwrap_or_else(|| next(step))
            }
            (RemoveAt::Act(index), DeletionStep::AfterHooks) => {
                self.stage_act(Stage::AfterDeleteHelm, index, attempt).unwrap_or_else(|| next(step))
            }
            (RemoveAt::Act(_), DeletionStep::Uninstall) => Act::effect(Effect::Uninstall { ticket: self.ticket() }),
            (RemoveAt::Act(_), DeletionStep::StopHooks) if self.bindings => {
                Act::effect(Effect::StopBindings { ticket: self.ticket() })
            }
            (RemoveAt::Act(_), DeletionStep::StopHooks) => Act::StopHookRuns(Task::Remove { step, at: RemoveAt::Idle }),
            // The list of orphans is in the package; without it nothing is purged.
            (RemoveAt::Act(_), DeletionStep::Purge) if self.loaded.is_none() => next(step),
            (RemoveAt::Act(_), DeletionStep::Purge) => Act::effect(Effect::Purge { ticket: self.ticket() }),
            (RemoveAt::Act(_), DeletionStep::Undeploy) => Act::effect(Effect::Undeploy { ticket: self.ticket() }),
            (RemoveAt::Act(_), DeletionStep::Finalize) => {
                Act::effect(Effect::RemoveFinalizer { ticket: self.ticket() })
            }
            (RemoveAt::Idle, _) => next(step),
        }
    }

    fn stage_act(&mut self, stage: Stage, index: usize, attempt: u32) -> Option<Act> {
        let hook = self.hooks_at(stage).into_iter().nth(index)?;
        let ticket = self.ticket();
        Some(Act::effect(Effect::RunHook { ticket, hook, trigger: Trigger::Lifecycle(stage), attempt }))
    }

    // ---- answers ----

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

    fn lifecycle_answered(&mut self, answer: Answer, now: Time, out: &mut Vec<Effect>) {
        let Some(head) = self.lifecycle.head_mut() else { return };
        head.running = None;
        let cancelled = head.cancelled;
        let task = head.task.clone();
        self.learn(&task, &answer, now);
        if cancelled {
            self.lifecycle.pop();
            return;
        }
        if let Some(failure) = failure_of(&answer) {
            self.task_failed(&task, failure, now);
            return;
        }
        match (task, answer) {
            (Task::Deploy { .. }, _) => {
                self.lifecycle.pop();
            }
            (Task::Load { .. }, Answer::Loaded(loaded)) => {
                self.candidate = Some(loaded);
                self.lifecycle.pop();
            }
            (Task::Switch(SwitchAt::Stop), _) => self.become_task(Task::Switch(SwitchAt::Stop)),
            (Task::Switch(_), _) => {
                self.adopt();
                self.lifecycle.pop();
            }
            (Task::Requirements, Answer::Requirements(unmet)) => {
                self.lifecycle.pop();
                let met = unmet.is_empty();
                self.unmet = Some(unmet);
                if met {
                    self.begin_reconciliation(now);
                } else if self.release {
                    self.cause = Cause::RequirementsLost;
                    self.push(Task::Disable(DisableAt::Before(0)), now);
                }
            }
            (Task::Configure | Task::CheckDrift, answer) => {
                self.lifecycle.pop();
                if let Answer::Missing(count) = answer {
                    if count > 0 {
                        self.reschedule(Cause::DriftDetected, now, out);
                    } else {
                        self.plan_drift_check(now);
                    }
                }
            }
            (Task::Enable(EnableAt::Bindings), _) => {
                self.enqueue_synchronization(now);
                self.become_task(Task::Enable(EnableAt::Synchronization));
            }
            (Task::Enable(EnableAt::Startup(index)), _) => self.become_task(Task::Enable(EnableAt::Startup(index + 1))),
            (Task::Run { at, applies, changed }, answer) => self.run_answered(at, applies, changed, &answer),
            (Task::Disable(at), _) => self.become_task(Task::Disable(match at {
                DisableAt::Before(index) => DisableAt::Before(index + 1),
                DisableAt::Uninstall => DisableAt::After(0),
                DisableAt::After(index) => DisableAt::After(index + 1),
                DisableAt::Stop | DisableAt::Idle => DisableAt::Stop,
            })),
            (Task::Remove { step, at }, _) => self.remove_answered(step, at),
            // An answer that does not belong to the task; the driver is wrong. The task goes on from where it was, and
            // its next attempt is paced, so that a wrong thought about one application does not spin.
            (Task::Load { .. } | Task::Requirements | Task::Enable(EnableAt::Synchronization), answer) => {
                let message = format!("unexpected answer {answer:?}");
                self.lifecycle.fail(Failure::new("InternalError", message), now);
            }
        }
    }

    fn run_answered(&mut self, at: RunAt, applies: u32, changed: bool, answer: &Answer) {
        let next = match (at, answer) {
            (RunAt::Before(index), _) => Task::Run { at: RunAt::Before(index + 1), applies, changed },
            (RunAt::Render, Answer::Rendered(rendered)) if self.apply_needed(rendered) => {
                self.facts.manifests =
                    Condition::no("ApplyingManifests", "the objects of the package are being applied");
                Task::Run { at: RunAt::Apply, applies, changed }
            }
            (RunAt::Render, _) => {
                self.facts.manifests = Condition::True;
                self.after_apply(applies, changed)
            }
            (RunAt::Apply, _) => {
                self.facts.manifests = Condition::True;
                self.after_apply(applies, changed)
            }
            (RunAt::After(index), answer) => {
                let changed = changed || matches!(answer, Answer::HookRan { values_changed: true });
                Task::Run { at: RunAt::After(index + 1), applies, changed }
            }
        };
        self.become_task(next);
    }

    /// afterHelm hooks run after the first apply of a run; after the second there is nothing left to do.
    fn after_apply(&self, applies: u32, changed: bool) -> Task {
        let applies = applies + 1;
        if applies == 1 {
            Task::Run { at: RunAt::After(0), applies, changed }
        } else {
            Task::Run { at: RunAt::After(usize::MAX), applies, changed }
        }
    }

    fn apply_needed(&self, rendered: &Rendered) -> bool {
        match &rendered.released {
            None => true,
            Some(last) if self.maintenance() => !(last.deployed && last.maintenance),
            Some(last) => !last.deployed || last.maintenance || last.digest != rendered.digest || rendered.missing > 0,
        }
    }

    fn remove_answered(&mut self, step: DeletionStep, at: RemoveAt) {
        let next = match (at, step) {
            (RemoveAt::Persist, _) => {
                self.facts.deletion = Some(step);
                Task::Remove { step, at: RemoveAt::Bindings }
            }
            (RemoveAt::Bindings, _) => Task::Remove { step, at: RemoveAt::Act(0) },
            (RemoveAt::Act(index), DeletionStep::BeforeHooks | DeletionStep::AfterHooks) => {
                Task::Remove { step, at: RemoveAt::Act(index + 1) }
            }
            // Bindings have stopped; now the runs that are under way have to end.
            (RemoveAt::Act(_) | RemoveAt::Idle, DeletionStep::StopHooks) => Task::Remove { step, at: RemoveAt::Act(0) },
            (RemoveAt::Act(_) | RemoveAt::Idle, DeletionStep::Finalize) => {
                self.finished = true;
                self.lifecycle.pop();
                return;
            }
            (RemoveAt::Act(_) | RemoveAt::Idle, step) => match step.next() {
                Some(step) => Task::Remove { step, at: RemoveAt::Persist },
                None => return,
            },
        };
        self.become_task(next);
    }

    /// What an answer tells of the world, whether or not anybody still waits for it.
    fn learn(&mut self, task: &Task, answer: &Answer, _now: Time) {
        let ended_well = !matches!(answer, Answer::Failed(_) | Answer::Cancelled);
        match task {
            Task::Enable(EnableAt::Bindings) | Task::Remove { at: RemoveAt::Bindings, .. } => {
                self.bindings = ended_well
            }
            Task::Switch(SwitchAt::Stop)
            | Task::Disable(DisableAt::Stop)
            | Task::Remove { step: DeletionStep::StopHooks, at: RemoveAt::Act(_) }
                if ended_well =>
            {
                self.bindings = false;
            }
            Task::Disable(DisableAt::Uninstall)
            | Task::Remove { step: DeletionStep::Uninstall, at: RemoveAt::Act(_) }
                if ended_well =>
            {
                self.release = false;
            }
            Task::Deploy { .. } if ended_well => self.facts.filesystem = Condition::True,
            Task::Load { .. } if ended_well => self.facts.loaded = Condition::True,
            _ => {}
        }
    }

    fn adopt(&mut self) {
        let Some(loaded) = self.candidate.take() else { return };
        self.release |= loaded.release;
        self.facts.adopted(&loaded);
        self.loaded = Some(loaded);
        self.started = false;
        self.bindings = false;
    }

    fn task_failed(&mut self, task: &Task, failure: Failure, now: Time) {
        // A package that cannot be had does not keep its application from being removed. A registry may come back, so
        // fetching is tried some times; what is wrong with a bundle stays wrong, unless it says itself when to try again.
        let attempts = self.lifecycle.head().map_or(0, |head| head.failures).saturating_add(1);
        let tried_enough = attempts >= limits::REMOVAL_LOAD_ATTEMPTS;
        let gives_up = match task {
            Task::Deploy { .. } => tried_enough,
            Task::Load { .. } | Task::Switch(_) => tried_enough || failure.retry_after_ms.is_none(),
            _ => false,
        };
        if self.removing && gives_up {
            self.facts.removed_without_package = Some(failure);
            self.lifecycle.retain_waiting(|task| matches!(task, Task::Remove { .. }));
            return;
        }
        if matches!(task, Task::CheckDrift) {
            self.lifecycle.pop();
            self.plan_drift_check(now);
            return;
        }
        self.facts.failed(task, &failure);
        // A stage is repeated from its first hook; a run from its beginning, because afterHelm hooks may have changed
        // what was rendered.
        let restart = match task {
            Task::Enable(EnableAt::Startup(_)) => Task::Enable(EnableAt::Startup(0)),
            Task::Run { .. } => Task::Run { at: RunAt::Before(0), applies: 0, changed: false },
            Task::Disable(DisableAt::Before(_)) => Task::Disable(DisableAt::Before(0)),
            Task::Disable(DisableAt::After(_)) => Task::Disable(DisableAt::After(0)),
            Task::Remove { step, at: RemoveAt::Act(_) } => Task::Remove { step: *step, at: RemoveAt::Act(0) },
            other => other.clone(),
        };
        self.become_task(restart);
        self.lifecycle.fail(failure, now);
    }

    fn become_task(&mut self, task: Task) {
        if let Some(head) = self.lifecycle.head_mut() {
            head.task = task;
        }
    }

    fn finish_task(&mut self, task: &Task, now: Time) {
        self.lifecycle.pop();
        match task {
            Task::Enable(_) => {
                self.started = true;
                self.facts.enabled();
            }
            Task::Run { .. } => {
                let version = self.loaded.as_ref().map(|loaded| loaded.version.clone()).unwrap_or_default();
                let maintenance = self.maintenance();
                self.facts.ran(version, maintenance);
                self.plan_drift_check(now);
            }
            Task::Disable(_) => self.facts.suspended(),
            _ => {}
        }
    }

    /// The next look for missing objects: four to five minutes from now, spread by the name of the application.
    fn plan_drift_check(&mut self, now: Time) {
        if self.maintenance() || !self.release {
            return;
        }
        let spread = self.id.to_string().bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let wait = limits::RESTORATION_MIN + std::time::Duration::from_millis(spread % 60_000);
        self.next_drift = Some(now.after(wait));
    }

    fn enqueue_synchronization(&mut self, now: Time) {
        let hooks = self.loaded.as_ref().map(|loaded| loaded.hooks.clone()).unwrap_or_default();
        let mut ordered: Vec<&HookDeclaration> = hooks.iter().collect();
        ordered.sort_by(|a, b| a.name.cmp(&b.name));
        for hook in ordered {
            let names = |wait: bool| -> Vec<String> {
                hook.kubernetes()
                    .filter(|binding| binding.execute_on_synchronization && binding.wait_for_synchronization == wait)
                    .map(|binding| binding.name.clone())
                    .collect()
            };
            let (waited, later) = (names(true), names(false));
            // One run for each hook; if one of its bindings is waited for, all are.
            let awaited = !waited.is_empty();
            let bindings: Vec<String> = waited.into_iter().chain(later).collect();
            if bindings.is_empty() {
                continue;
            }
            let queue = if awaited { format!("{}/sync", hook.queue) } else { hook.queue.clone() };
            let task = HookTask { hook: hook.name.clone(), trigger: Trigger::Synchronization(bindings), awaited };
            self.enqueue_hook(queue, task, now);
        }
    }

    fn hook_answered(&mut self, queue_name: &str, answer: &Answer, now: Time, out: &mut Vec<Effect>) {
        let Some(queue) = self.hooks.get_mut(queue_name) else { return };
        let Some(head) = queue.head_mut() else { return };
        head.running = None;
        let hook = head.task.hook.clone();
        let awaited = head.task.awaited;
        let dropped = head.cancelled;
        let mut values_changed = false;
        match failure_of(answer) {
            _ if dropped => {
                queue.pop();
            }
            Some(failure) => {
                self.facts.failing_hooks.insert(hook.clone(), failure.clone());
                let allowed = self
                    .loaded
                    .as_ref()
                    .and_then(|loaded| loaded.hooks.iter().find(|declaration| declaration.name == hook))
                    .is_some_and(|declaration| declaration.allow_failure);
                if let Some(queue) = self.hooks.get_mut(queue_name) {
                    if allowed {
                        queue.pop();
                    } else {
                        queue.fail(failure, now);
                    }
                }
            }
            None => {
                queue.pop();
                self.facts.failing_hooks.remove(&hook);
                values_changed = matches!(answer, Answer::HookRan { values_changed: true });
            }
        }
        if self.hooks.get(queue_name).is_some_and(Queue::is_empty) {
            self.hooks.remove(queue_name);
        }
        // A run of the lifecycle that has not begun reads these values anyway.
        let read_later = awaited || self.lifecycle.iter().skip(1).any(|entry| matches!(entry.task, Task::Run { .. }));
        if values_changed && !read_later {
            self.reschedule(Cause::HookValuesChanged, now, out);
        }
    }
}

/// The failure that an answer stands for. Something that stopped although nobody asked it to has failed.
fn failure_of(answer: &Answer) -> Option<Failure> {
    match answer {
        Answer::Failed(failure) => Some(failure.clone()),
        Answer::Cancelled => Some(Failure::new("Interrupted", "it was stopped from outside")),
        _ => None,
    }
}

/// What a task does next.
enum Act {
    Do(Box<Effect>),
    Become(Task),
    StopHookRuns(Task),
    Finish,
}

impl Act {
    fn effect(effect: Effect) -> Self {
        Self::Do(Box::new(effect))
    }
}

/// Adds changes to those that wait: the last one of an object wins, unless it would turn an appearance into a mere
/// change. Beyond the bound the oldest go: the snapshot has the truth.
fn merge_changes(waiting: &mut Vec<Change>, new: &[Change]) {
    use crate::hook::WatchEventType::{Added, Modified};
    let key = |change: &Change| (change.binding.clone(), change.namespace.clone(), change.name.clone());
    let mut at: BTreeMap<_, usize> = waiting.iter().enumerate().map(|(index, change)| (key(change), index)).collect();
    for change in new {
        match at.get(&key(change)).and_then(|index| waiting.get_mut(*index)) {
            Some(known) if known.event == Added && change.event == Modified => {}
            Some(known) => known.event = change.event,
            None => {
                at.insert(key(change), waiting.len());
                waiting.push(change.clone());
            }
        }
    }
    let over = waiting.len().saturating_sub(limits::CHANGES_PER_RUN);
    waiting.drain(..over);
}

impl Failure {
    /// A failure with a reason and a message.
    #[must_use]
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), hint: None, retry_after_ms: None }
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Names of the workload states that count as up.
#[must_use]
pub fn scaled(workloads: &Workloads) -> bool {
    matches!(workloads, Workloads::None | Workloads::Healthy)
}
