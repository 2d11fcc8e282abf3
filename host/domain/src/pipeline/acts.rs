//! What the head of the lifecycle queue does next: an effect, another state of its task, or nothing more.

use super::App;
use super::hooks::{NOT_SYNCHRONISED, not_synchronised};
use super::task::{DeletionStep, DisableAt, EnableAt, RemoveAt, RollbackAt, RunAt, SwitchAt, Task};
use crate::effect::{Cause, Effect};
use crate::event::Failure;
use crate::hook::{Stage, Trigger};
use crate::limits;
use crate::queue::{Ticket, Time};

/// What a task does next.
enum Act {
    Do(Box<Effect>),
    Become(Task),
    StopHookRuns(Task),
    Fail(Failure),
    Finish,
}

impl Act {
    fn effect(effect: Effect) -> Self {
        Self::Do(Box::new(effect))
    }
}

impl App {
    pub(super) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Starts whatever may start now.
    pub(super) fn pump(&mut self, now: Time, out: &mut Vec<Effect>) {
        // The lifecycle first: a hook that it waits for may have a run of its own waiting already, and would never be free.
        while self.pump_lifecycle(now, out) {}
        self.pump_hooks(now, out);
        while self.pump_lifecycle(now, out) {
            self.pump_hooks(now, out);
        }
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
                if let Effect::RunHook { hook, .. } = effect.as_ref() {
                    self.running_in_lifecycle = Some(hook.clone());
                }
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
                // What began the task, whatever has been wished for since.
                let cause = match &next {
                    Task::Remove { .. } => Cause::RemovalStarted,
                    Task::Disable(_) => Cause::RequirementsLost,
                    _ => self.cause,
                };
                self.cancel_hook_runs(cause, out);
                if let Some(head) = self.lifecycle.head_mut() {
                    head.task = next;
                }
                true
            }
            Act::Fail(failure) => {
                self.task_failed(&task, failure, now);
                false
            }
            Act::Finish => {
                self.finish_task(&task, now);
                true
            }
        }
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
            Task::Rollback(at) => self.rollback_act(*at),
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
            EnableAt::Bindings if self.bindings => {
                // An earlier reconciliation may have been stopped between the two.
                if !self.synchronised {
                    self.enqueue_synchronization(Time::default());
                }
                Act::Become(Task::Enable(EnableAt::Synchronization))
            }
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
            RunAt::Render => {
                let take_over = self.desired.as_ref().is_some_and(|desired| desired.take_over);
                Act::effect(Effect::Render { ticket: self.ticket(), maintenance, take_over })
            }
            RunAt::Apply => {
                self.release = true;
                self.facts.tracking = None;
                let take_over = self.desired.as_ref().is_some_and(|desired| desired.take_over);
                let field_conflicts = self.field_conflicts();
                Act::effect(Effect::Apply { ticket: self.ticket(), maintenance, take_over, field_conflicts })
            }
            RunAt::Restore(revision) => self.roll_back(revision),
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

    fn rollback_act(&mut self, at: RollbackAt) -> Act {
        match at {
            RollbackAt::Pin => Act::effect(Effect::PinRollback { ticket: self.ticket() }),
            RollbackAt::Apply(revision) => {
                self.facts.applying();
                self.roll_back(revision)
            }
            RollbackAt::Settle(revision) => Act::effect(Effect::SettleRollback { ticket: self.ticket(), revision }),
        }
    }

    fn roll_back(&mut self, revision: u32) -> Act {
        self.facts.tracking = None;
        let field_conflicts = self.field_conflicts();
        Act::effect(Effect::Rollback { ticket: self.ticket(), revision, field_conflicts })
    }

    fn field_conflicts(&self) -> String {
        self.desired.as_ref().map(|desired| desired.field_conflicts.clone()).unwrap_or_default()
    }

    fn uninstall(&mut self, skip_hooks: bool) -> Act {
        self.facts.tracking = None;
        Act::effect(Effect::Uninstall { ticket: self.ticket(), skip_hooks })
    }

    fn disable_act(&mut self, at: DisableAt, attempt: u32) -> Act {
        match at {
            // A process that begins with a suspension has none, and hooks need their snapshots.
            DisableAt::Bindings if self.bindings || !self.has_delete_hooks() => {
                Act::Become(Task::Disable(DisableAt::Before(0)))
            }
            DisableAt::Bindings => Act::effect(Effect::StartBindings { ticket: self.ticket() }),
            DisableAt::Before(index) => self
                .stage_act(Stage::BeforeDeleteHelm, index, attempt)
                .unwrap_or(Act::Become(Task::Disable(DisableAt::Uninstall))),
            DisableAt::Uninstall => self.uninstall(false),
            DisableAt::After(index) => self
                .stage_act(Stage::AfterDeleteHelm, index, attempt)
                .unwrap_or(Act::Become(Task::Disable(DisableAt::Stop))),
            DisableAt::Stop if self.bindings => Act::effect(Effect::StopBindings { ticket: self.ticket() }),
            DisableAt::Stop => Act::StopHookRuns(Task::Disable(DisableAt::Idle)),
            DisableAt::Idle => Act::Finish,
        }
    }

    fn remove_act(&mut self, step: DeletionStep, at: RemoveAt, attempt: u32) -> Act {
        // Whatever is loaded has its say, whether it was ever configured or not: an earlier process may have run its hooks,
        // and what they made they alone know. Before there are settings that are valid, hooks see the defaults.
        let skipped = self.desired.as_ref().is_some_and(|desired| desired.skip_delete_hooks);
        let skip_hooks = self.loaded.is_none() || skipped;
        let hook_step = matches!(step, DeletionStep::BeforeHooks | DeletionStep::AfterHooks);
        let next = |step: DeletionStep| match step.next() {
            Some(step) => Act::Become(Task::Remove { step, at: RemoveAt::Persist }),
            None => Act::Finish,
        };
        match (at, step) {
            (RemoveAt::Persist, _) => Act::effect(Effect::PersistDeletion { ticket: self.ticket(), step }),
            (RemoveAt::Bindings, _) if !hook_step || skip_hooks || self.bindings || !self.has_delete_hooks() => {
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
            (RemoveAt::Act(_), DeletionStep::Uninstall) => self.uninstall(skipped),
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

    /// Whether there are hooks that run when the release is removed.
    fn has_delete_hooks(&self) -> bool {
        let stages = [Stage::BeforeDeleteHelm, Stage::AfterDeleteHelm];
        stages.into_iter().flat_map(|stage| self.hooks_at(stage)).any(|hook| !self.is_skipped(&hook))
    }

    fn stage_act(&mut self, stage: Stage, index: usize, attempt: u32) -> Option<Act> {
        let hook = self.hooks_at(stage).into_iter().nth(index)?;
        let done = stage == Stage::OnStartup && self.started_hooks.contains(&hook);
        if (done || self.is_skipped(&hook))
            && let Some(head) = self.lifecycle.head()
        {
            return Some(Act::Become(head.task.past_hook()));
        }
        // What is to be removed does not wait for a snapshot: a delete hook is told that it cannot be had.
        let removes = matches!(stage, Stage::BeforeDeleteHelm | Stage::AfterDeleteHelm);
        if let Some((binding, why)) = self.degraded(&hook).filter(|_| !removes) {
            let message = not_synchronised(&hook, binding, why);
            let hint = "the run takes place as soon as the snapshot can be trusted again";
            return Some(Act::Fail(Failure::new(NOT_SYNCHRONISED, message).hint(hint)));
        }
        let ticket = self.ticket();
        Some(Act::effect(Effect::RunHook { ticket, hook, trigger: Trigger::Lifecycle(stage), attempt }))
    }
}
