//! What an answer to an effect of the lifecycle leads to.

use super::App;
use super::hooks::NOT_SYNCHRONISED;
use super::task::{DeletionStep, DisableAt, EnableAt, RemoveAt, RollbackAt, RunAt, SwitchAt, Task};
use crate::effect::{Cause, Effect};
use crate::event::{Answer, Failure, Rendered};
use crate::hook::Stage;
use crate::limits;
use crate::queue::Time;
use crate::request::{RETRY, SKIP_HOOKS};
use crate::status::Condition;

impl App {
    pub(super) fn lifecycle_answered(&mut self, answer: Answer, now: Time, out: &mut Vec<Effect>) {
        let Some(head) = self.lifecycle.head_mut() else { return };
        head.running = None;
        let cancelled = head.cancelled;
        let task = head.task.clone();
        self.running_in_lifecycle = None;
        self.learn(&task, &answer, now);
        if cancelled {
            self.lifecycle.pop();
            return;
        }
        if let Answer::Refused(failure) = answer {
            self.refused(&task, failure, now);
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
                *self.unmet = Some(unmet);
                if met {
                    self.begin_reconciliation(now);
                } else if self.release {
                    self.cause = Cause::RequirementsLost;
                    self.push(Task::Disable(DisableAt::Bindings), now);
                }
            }
            (Task::Configure | Task::CheckDrift, answer) => {
                if matches!(self.lifecycle.pop(), Some(Task::Configure)) {
                    self.facts.settings_are_valid();
                }
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
            (Task::Rollback(RollbackAt::Pin), Answer::Revision(revision)) => {
                self.rollback = Some(revision);
                self.become_task(Task::Rollback(RollbackAt::Apply(revision)));
            }
            (Task::Rollback(RollbackAt::Apply(revision)), _) => {
                self.release = true;
                self.become_task(Task::Rollback(RollbackAt::Settle(revision)));
            }
            (Task::Rollback(RollbackAt::Settle(_)), _) => {
                self.facts.manifests = Condition::True;
                self.lifecycle.pop();
            }
            (Task::Disable(at), _) => self.become_task(Task::Disable(match at {
                DisableAt::Bindings => DisableAt::Before(0),
                DisableAt::Before(index) => DisableAt::Before(index + 1),
                DisableAt::Uninstall => DisableAt::After(0),
                DisableAt::After(index) => DisableAt::After(index + 1),
                DisableAt::Stop | DisableAt::Idle => DisableAt::Stop,
            })),
            (Task::Remove { step, at }, _) => self.remove_answered(step, at),
            // An answer that does not belong to the task; the driver is wrong. The task goes on from where it was, and
            // its next attempt is paced, so that a wrong thought about one application does not spin.
            (
                Task::Load { .. }
                | Task::Requirements
                | Task::Enable(EnableAt::Synchronization)
                | Task::Rollback(RollbackAt::Pin),
                answer,
            ) => {
                let message = format!("unexpected answer {answer:?}");
                self.lifecycle.fail(Failure::new("InternalError", message), now);
            }
        }
    }

    fn run_answered(&mut self, at: RunAt, applies: u32, changed: bool, answer: &Answer) {
        let next = match (at, answer) {
            (RunAt::Before(index), _) => Task::Run { at: RunAt::Before(index + 1), applies, changed },
            (RunAt::Render, Answer::Rendered(rendered)) => match self.needed(rendered) {
                Needed::Apply => {
                    self.facts.applying();
                    Task::Run { at: RunAt::Apply, applies, changed }
                }
                Needed::Restore(revision) => {
                    self.facts.applying();
                    Task::Run { at: RunAt::Restore(revision), applies, changed }
                }
                Needed::Nothing => {
                    let held = rendered.released.as_ref().filter(|last| last.set_aside.is_some());
                    let held = held.filter(|last| self.maintenance() || last.holds_against(&rendered.digest));
                    self.facts.held = held.map(|last| last.version.clone());
                    self.after_apply(applies, changed)
                }
            },
            (RunAt::Render | RunAt::Restore(_), _) => self.after_apply(applies, changed),
            (RunAt::Apply, _) => {
                self.facts.held = None;
                // In maintenance, too: what was applied with the label are these settings.
                self.facts.configured = Condition::True;
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
    fn after_apply(&mut self, applies: u32, changed: bool) -> Task {
        self.facts.manifests = Condition::True;
        let applies = applies + 1;
        if applies == 1 {
            Task::Run { at: RunAt::After(0), applies, changed }
        } else {
            Task::Run { at: RunAt::After(usize::MAX), applies, changed }
        }
    }

    /// What has to be done about the release now that it is known what is rendered.
    fn needed(&self, rendered: &Rendered) -> Needed {
        let Some(last) = &rendered.released else { return Needed::Apply };
        // Objects that are left alone are left alone after a rollback too; leaving maintenance does not undo it.
        if self.maintenance() {
            let done = last.deployed && (last.maintenance || last.set_aside.is_some());
            return if done { Needed::Nothing } else { Needed::Apply };
        }
        if last.holds_against(&rendered.digest) {
            // What is missing is brought back as it was, not as it would be rendered.
            return if rendered.missing > 0 { Needed::Restore(last.revision) } else { Needed::Nothing };
        }
        if !last.deployed || last.maintenance || last.digest != rendered.digest || rendered.missing > 0 {
            Needed::Apply
        } else {
            Needed::Nothing
        }
    }

    /// What an operator asked for cannot be done; everything else goes on.
    fn refused(&mut self, task: &Task, failure: Failure, now: Time) {
        if matches!(task, Task::Rollback(_)) {
            self.facts.refused_rollback = Some(failure);
            // Nobody knows whether something was done before it was refused; the reconciliation that follows finds out.
            self.facts.manifests = Condition::Unknown;
            self.lifecycle.pop();
        } else {
            self.task_failed(task, failure, now);
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
        let ended_well = !matches!(answer, Answer::Failed(_) | Answer::Refused(_) | Answer::Cancelled);
        match task {
            Task::Enable(EnableAt::Bindings)
            | Task::Disable(DisableAt::Bindings)
            | Task::Remove { at: RemoveAt::Bindings, .. } => {
                // Whatever was known of their snapshots was about others; what is wrong with these is told after this.
                if !ended_well {
                    self.no_bindings();
                }
                self.bindings = ended_well;
                self.synchronised = false;
            }
            Task::Enable(EnableAt::Startup(index)) if ended_well => {
                self.started_hooks.extend(self.hooks_at(Stage::OnStartup).into_iter().nth(*index));
            }
            Task::Switch(SwitchAt::Adopt) if ended_well => self.adopt(),
            Task::Switch(SwitchAt::Stop)
            | Task::Disable(DisableAt::Stop)
            | Task::Remove { step: DeletionStep::StopHooks, at: RemoveAt::Act(_) }
                if ended_well =>
            {
                self.no_bindings();
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
        *self.loaded = Some(loaded);
        self.started = false;
        self.no_bindings();
        self.paces.clear();
        self.missed.clear();
        self.started_hooks.clear();
    }

    fn no_bindings(&mut self) {
        self.bindings = false;
        self.synchronised = false;
        self.facts.degraded.clear();
    }

    pub(super) fn task_failed(&mut self, task: &Task, mut failure: Failure, now: Time) {
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
        // What is to be removed does not wait for snapshots: its hooks are told that they cannot be had.
        let without_snapshots = match task {
            Task::Remove { step, at: RemoveAt::Bindings } => Some(Task::Remove { step: *step, at: RemoveAt::Act(0) }),
            Task::Disable(DisableAt::Bindings) => Some(Task::Disable(DisableAt::Before(0))),
            _ => None,
        };
        if let Some(next) = without_snapshots.filter(|_| failure.reason == NOT_SYNCHRONISED) {
            self.become_task(next);
            return;
        }
        if matches!(task, Task::CheckDrift) {
            self.lifecycle.pop();
            self.plan_drift_check(now);
            return;
        }
        if let Some(hook) = self.next_lifecycle_hook() {
            failure = again_and_again(failure, &hook, attempts);
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

    pub(super) fn finish_task(&mut self, task: &Task, now: Time) {
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
}

/// What has to be done about a release.
enum Needed {
    /// It is as it should be.
    Nothing,
    /// What was rendered is applied.
    Apply,
    /// The objects of this revision become again what they were.
    Restore(u32),
}

/// A failure of a hook that failed so often in a row, with what an operator can do once that is too often.
pub(crate) fn again_and_again(failure: Failure, hook: &str, times: u32) -> Failure {
    if times < limits::BREAKER_FAILURES {
        return failure;
    }
    let known = failure.hint.as_ref().map(|hint| format!("{hint}; ")).unwrap_or_default();
    let hint = format!(
        "{known}it is tried again at once when the annotation {RETRY} changes; to go on without it, set the annotation \
         {SKIP_HOOKS}={hook}"
    );
    Failure { message: format!("{} ({times} failures in a row)", failure.message), hint: Some(hint), ..failure }
}

/// The failure that an answer stands for. Something that stopped although nobody asked it to has failed.
pub(super) fn failure_of(answer: &Answer) -> Option<Failure> {
    match answer {
        Answer::Failed(failure) | Answer::Refused(failure) => Some(failure.clone()),
        Answer::Cancelled => Some(Failure::new("Interrupted", "it was stopped from outside")),
        _ => None,
    }
}
