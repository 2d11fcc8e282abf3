//! The operations of the lifecycle: what begins them, and what they stop.

use super::App;
use super::task::{DeletionStep, DisableAt, EnableAt, RemoveAt, RollbackAt, RunAt, SwitchAt, Task};
use crate::effect::{Cause, Effect};
use crate::event::Failure;
use crate::limits;
use crate::queue::{Backoff, Time};
use crate::status::Condition;

impl App {
    pub(super) fn begin_update(&mut self, cause: Cause, now: Time, out: &mut Vec<Effect>) {
        self.interrupt(cause, out);
        self.push_update(now);
    }

    fn push_update(&mut self, now: Time) {
        let Some(desired) = self.desired.as_ref() else { return };
        let version = desired.version.clone();
        self.values_loop = 0;
        self.candidate = None;
        self.facts.target = Some(version.clone());
        self.push(Task::Deploy { version: version.clone() }, now);
        self.push(Task::Load { version }, now);
        self.push(Task::Switch(SwitchAt::Stop), now);
        self.push(Task::Requirements, now);
    }

    pub(super) fn reschedule(&mut self, cause: Cause, now: Time, out: &mut Vec<Effect>) {
        // An update ends in a reconciliation of its own, which reads the newest settings.
        if self.loaded.is_none() || self.updating() || self.removing || !self.unmet().is_empty() {
            if cause.is_wish() {
                self.lifecycle.hurry();
            }
            return;
        }
        let mut start = now;
        if cause == Cause::HookValuesChanged {
            if self.values_changed.after(limits::VALUES_QUIET) <= now {
                self.values_loop = 0;
            }
            self.values_changed = now;
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

    pub(super) fn begin_reconciliation(&mut self, start: Time) {
        self.push(Task::Configure, start);
        self.push(Task::Enable(EnableAt::Bindings), start);
        self.push(Task::Run { at: RunAt::Before(0), applies: 0, changed: false }, start);
    }

    /// Puts everything else aside for a rollback. What was under way begins anew after it; if nothing was, a
    /// reconciliation brings the hooks in line with what there is now.
    pub(super) fn begin_rollback(&mut self, revision: u32, now: Time, out: &mut Vec<Effect>) {
        self.rollback = Some(revision);
        self.facts.refused_rollback = self.no_rollback();
        if self.facts.refused_rollback.is_some() {
            return;
        }
        let update = self.loaded.is_none() || self.updating();
        self.stop_lifecycle(Cause::RollbackRequested, |_| false, out);
        self.push(Task::Rollback(if revision == 0 { RollbackAt::Pin } else { RollbackAt::Apply(revision) }), now);
        self.begin_again(update, now);
    }

    fn begin_again(&mut self, update: bool, now: Time) {
        if update {
            self.push_update(now);
        } else {
            self.begin_reconciliation(now);
        }
    }

    /// Why there can be no rollback now. Whoever wants one all the same asks again later.
    fn no_rollback(&self) -> Option<Failure> {
        let again = "when that has changed, remove the annotation and set it again";
        if self.maintenance() {
            let why = "the application is in maintenance: its objects are left as they are";
            return Some(Failure::new("InMaintenance", why).hint(again));
        }
        let suspending = self.lifecycle.iter().any(|entry| matches!(entry.task, Task::Disable(_)));
        if suspending || !self.unmet().is_empty() {
            return Some(Failure::new("Suspended", "the requirements of the package are not met").hint(again));
        }
        if self.loaded.is_some() && !self.release {
            return Some(Failure::new("NoRelease", "nothing was installed yet").hint(again));
        }
        None
    }

    /// The request for a rollback is gone before it was done: the release becomes again what the package renders.
    pub(super) fn withdraw_rollback(&mut self, now: Time, out: &mut Vec<Effect>) {
        let update = self.loaded.is_none() || self.updating();
        self.stop_lifecycle(Cause::RollbackWithdrawn, |_| false, out);
        self.begin_again(update, now);
    }

    pub(super) fn suspend(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.rollback_under_way() {
            self.facts.refused_rollback = self.no_rollback();
            self.lifecycle.retain_waiting(|task| !matches!(task, Task::Rollback(_)));
        }
        self.stop_lifecycle(Cause::RequirementsLost, |task| matches!(task, Task::Disable(_)), out);
        let under_way = self.lifecycle.iter().any(|entry| matches!(entry.task, Task::Disable(_)));
        if !under_way && (self.release || self.bindings) {
            self.push(Task::Disable(DisableAt::Bindings), now);
        }
    }

    pub(super) fn begin_removal(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(desired) = self.desired.as_ref() else { return };
        let version = desired.version.clone();
        let step = desired.deletion_step.unwrap_or(DeletionStep::BeforeHooks);
        self.removing = true;
        self.facts.refused_rollback = None;
        self.cause = Cause::RemovalStarted;
        self.next_drift = None;
        if let Some(ticket) = self.lifecycle.cancel_all(true) {
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

    pub(super) fn retry(&mut self, now: Time, out: &mut Vec<Effect>) {
        for queue in self.hooks.values_mut() {
            queue.hurry();
        }
        if self.lifecycle.is_empty() {
            self.reschedule(Cause::RetryRequested, now, out);
        } else {
            self.lifecycle.hurry();
        }
    }

    /// Stops what the lifecycle queue is doing, apart from a suspension and a rollback: half a removal is no state to
    /// build on, and an operator who wants another revision wants it whatever else changes.
    pub(super) fn interrupt(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        self.stop_lifecycle(cause, |task| matches!(task, Task::Disable(_) | Task::Rollback(_)), out);
    }

    fn stop_lifecycle(&mut self, cause: Cause, stays: fn(&Task) -> bool, out: &mut Vec<Effect>) {
        self.cause = cause;
        self.next_drift = None;
        if self.lifecycle.iter().any(|entry| stays(&entry.task) && !entry.cancelled) {
            self.lifecycle.retain_waiting(stays);
            if cause.is_wish() {
                self.lifecycle.hurry();
            }
        } else if let Some(ticket) = self.lifecycle.cancel_all(cause.stops_operations()) {
            out.push(Effect::Cancel { ticket, cause });
        }
    }

    pub(super) fn push(&mut self, task: Task, now: Time) {
        // The lifecycle queue never holds more than one operation of seven tasks and one that is being cancelled.
        if let Err(full) = self.lifecycle.push(task, now) {
            self.facts.dropped = Some(full.to_string());
        }
    }

    /// The next look for missing objects: four to five minutes from now, spread by the name of the application.
    pub(super) fn plan_drift_check(&mut self, now: Time) {
        if self.maintenance() || !self.release {
            return;
        }
        let spread = self.id.to_string().bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let wait = limits::RESTORATION_MIN + std::time::Duration::from_millis(spread % 60_000);
        self.next_drift = Some(now.after(wait));
    }
}
