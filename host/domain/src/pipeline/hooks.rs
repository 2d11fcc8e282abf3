//! The hook queues: what comes into them, and what the runs of their hooks lead to.

use std::collections::{BTreeMap, BTreeSet};

use super::App;
use super::answers::failure_of;
use super::task::{HookTask, Task};
use crate::effect::{Cause, Effect};
use crate::event::Answer;
use crate::hook::{Change, HookDeclaration, RateLimit, Trigger};
use crate::limits;
use crate::queue::{Backoff, Entry, Queue, Time};

/// Reason of a failure for want of a snapshot.
pub const NOT_SYNCHRONISED: &str = "BindingNotSynchronised";

/// What is told of a binding whose snapshot cannot be trusted.
pub(crate) fn not_synchronised(hook: &str, binding: &str, why: &str) -> String {
    format!("hook '{hook}': binding '{binding}' is not synchronised: {why}")
}

/// What keeps tasks of hooks from starting.
struct Busy {
    /// Hooks that run: never one twice at once.
    running: BTreeSet<String>,
    /// Hooks with a synchronization run that has not succeeded: events come after it.
    synchronising: BTreeSet<String>,
}

#[cfg(test)]
thread_local! {
    /// How often a task was looked at to find out what may start.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A task is looked at; tests count it.
fn looked() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

impl App {
    pub(super) fn hook_due(&mut self, hook: &str, trigger: Trigger, now: Time) {
        if !self.bindings {
            return;
        }
        if self.is_skipped(hook) {
            self.missed.insert(hook.to_owned());
            return;
        }
        let Some(declaration) = self.declaration(hook) else { return };
        let queue = declaration.queue.clone();
        let Some(trigger) = self.without_awaited(hook, trigger) else { return };
        let collects = matches!(trigger, Trigger::Events(_));
        let start = if collects { now.after(limits::EVENT_DEBOUNCE) } else { now };
        self.enqueue_hook(queue, HookTask { hook: hook.to_owned(), trigger, awaited: false }, start);
    }

    /// Leaves out what a synchronization run that has not begun will see; nothing if that is all.
    fn without_awaited(&self, hook: &str, trigger: Trigger) -> Option<Trigger> {
        let Trigger::Events(mut changes) = trigger else { return Some(trigger) };
        let waiting: Vec<&Vec<String>> = self
            .synchronizations(hook)
            .filter(|(entry, _)| entry.running.is_none())
            .map(|(_, bindings)| bindings)
            .collect();
        changes.retain(|change| !waiting.iter().any(|bindings| bindings.contains(&change.binding)));
        (!changes.is_empty()).then_some(Trigger::Events(changes))
    }

    /// The synchronization runs of a hook that have not succeeded, with their bindings.
    fn synchronizations(&self, hook: &str) -> impl Iterator<Item = (&Entry<HookTask>, &Vec<String>)> {
        let entries = self.hooks.values().flat_map(Queue::iter).filter(move |entry| entry.task.hook == hook);
        entries.filter_map(|entry| match &entry.task.trigger {
            Trigger::Synchronization(bindings) => Some((entry, bindings)),
            _ => None,
        })
    }

    /// A synchronization run failed: its repetition sees what has changed meanwhile.
    fn forget_changes(&mut self, hook: &str, bindings: &[String]) {
        for queue in self.hooks.values_mut() {
            for entry in queue.iter_mut().filter(|entry| entry.running.is_none() && entry.task.hook == hook) {
                if let Trigger::Events(changes) = &mut entry.task.trigger {
                    changes.retain(|change| !bindings.contains(&change.binding));
                }
            }
            queue.retain_waiting(|task| !matches!(&task.trigger, Trigger::Events(changes) if changes.is_empty()));
        }
    }

    /// One dirty flag for each hook and kind of trigger: what waits already takes the new changes along.
    fn enqueue_hook(&mut self, queue: String, task: HookTask, start: Time) {
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
        if let Err(full) = queue.push(task, start) {
            self.facts.dropped = Some(full.to_string());
        }
    }

    pub(super) fn pump_hooks(&mut self, now: Time, out: &mut Vec<Effect>) {
        let idle = self.hooks.iter().filter(|(_, queue)| queue.is_idle());
        let names: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return;
        }
        let mut busy = self.busy();
        for name in names {
            while let Some(task) = self.pick_hook(&name, &busy, now) {
                // A repetition has waited for its pause already.
                let repeats = self.hooks.get(&name).and_then(Queue::head).is_some_and(|head| head.failures > 0);
                if let Some(limit) = self.limit_of(&task).filter(|_| !repeats) {
                    let next = self.paces.get(&task.hook).copied().unwrap_or_default().next(limit, now);
                    if next > now {
                        // It waits beside the queue, so to say: others pass.
                        if let Some(head) = self.hooks.get_mut(&name).and_then(Queue::head_mut) {
                            head.not_before = next;
                        }
                        continue;
                    }
                }
                busy.running.insert(task.hook.clone());
                self.start_hook(&name, task, now, out);
                break;
            }
        }
    }

    /// The task of a queue that may start now; it is the head then.
    fn pick_hook(&mut self, queue: &str, busy: &Busy, now: Time) -> Option<HookTask> {
        let place = self.hooks.get(queue)?.find(now, |task| self.is_free(task, busy))?;
        self.hooks.get_mut(queue)?.bring(place).map(|head| head.task.clone())
    }

    /// What keeps tasks from starting, found in one pass over all of them.
    fn busy(&self) -> Busy {
        let heads = self.hooks.values().filter_map(Queue::head).filter(|head| head.running.is_some());
        let running = heads.map(|head| head.task.hook.clone()).chain(self.running_in_lifecycle.clone());
        let entries = self.hooks.values().flat_map(Queue::iter).inspect(|_| looked());
        let synchronising = entries.filter(|entry| matches!(entry.task.trigger, Trigger::Synchronization(_)));
        Busy { running: running.collect(), synchronising: synchronising.map(|entry| entry.task.hook.clone()).collect() }
    }

    fn start_hook(&mut self, queue: &str, task: HookTask, now: Time, out: &mut Vec<Effect>) {
        let ticket = self.ticket();
        let Some(head) = self.hooks.get_mut(queue).and_then(Queue::head_mut) else { return };
        head.running = Some(ticket);
        let attempt = head.failures.saturating_add(1);
        let limit = self.declaration(&task.hook).and_then(|declaration| declaration.rate_limit);
        if let Some(limit) = limit {
            self.paces.entry(task.hook.clone()).or_default().begun(limit, now);
        }
        out.push(Effect::RunHook { ticket, hook: task.hook, trigger: task.trigger, attempt });
    }

    /// The limit that a task waits for: synchronization runs are as many as there are bindings, whatever happens.
    fn limit_of(&self, task: &HookTask) -> Option<RateLimit> {
        let limited = matches!(task.trigger, Trigger::Schedule(_) | Trigger::Events(_));
        self.declaration(&task.hook).and_then(|declaration| declaration.rate_limit).filter(|_| limited)
    }

    /// Whether a task could start: its hook does not run already, all its snapshots can be trusted, and events come
    /// after the synchronization.
    fn is_free(&self, task: &HookTask, busy: &Busy) -> bool {
        looked();
        let early = matches!(task.trigger, Trigger::Events(_)) && busy.synchronising.contains(&task.hook);
        !early && !busy.running.contains(&task.hook) && self.degraded(&task.hook).is_none()
    }

    pub(super) fn is_running_in_queue(&self, hook: &str) -> bool {
        let heads = self.hooks.values().filter_map(Queue::head);
        heads.into_iter().any(|head| head.running.is_some() && head.task.hook == hook)
    }

    /// When a hook queue has something to start, if nothing else happens.
    pub(super) fn hooks_wake(&self) -> Option<Time> {
        let mut idle = self.hooks.values().filter(|queue| queue.is_idle()).peekable();
        idle.peek()?;
        let busy = self.busy();
        idle.filter_map(|queue| queue.picks_at(|task| self.is_free(task, &busy))).min()
    }

    /// Whether an operator wants a hook not to run.
    pub(super) fn is_skipped(&self, hook: &str) -> bool {
        self.desired.as_ref().is_some_and(|desired| desired.skip_hooks.iter().any(|name| name == hook))
    }

    /// The hooks that an operator skips are others: what waits for those that are skipped now is dropped; those that run
    /// again see everything once.
    pub(super) fn skips_changed(&mut self, now: Time) {
        let skipped = self.desired.as_ref().map(|desired| desired.skip_hooks.clone()).unwrap_or_default();
        for queue in self.hooks.values_mut() {
            queue.retain_waiting(|task| {
                let stays = !skipped.contains(&task.hook);
                if !stays {
                    self.missed.insert(task.hook.clone());
                }
                stays
            });
        }
        self.hooks.retain(|_, queue| !queue.is_empty());
        self.facts.failing_hooks.retain(|hook, _| !skipped.contains(hook));
        let again: Vec<String> = self.missed.iter().filter(|hook| !skipped.contains(hook)).cloned().collect();
        for hook in again {
            self.missed.remove(&hook);
            let Some(declaration) = self.declaration(&hook) else { continue };
            let bindings: Vec<String> = declaration.kubernetes().map(|binding| binding.name.clone()).collect();
            if self.bindings && !bindings.is_empty() {
                self.hook_due(&hook, Trigger::Synchronization(bindings), now);
            }
        }
    }

    /// A binding of a hook whose snapshot cannot be trusted, with the reason.
    pub(super) fn degraded(&self, hook: &str) -> Option<(&str, &str)> {
        if self.facts.degraded.is_empty() {
            return None;
        }
        let first = (hook.to_owned(), String::new());
        let ((known, binding), why) = self.facts.degraded.range(first..).next()?;
        (known == hook).then_some((binding.as_str(), why.as_str()))
    }

    pub(super) fn binding_state(&mut self, hook: String, binding: String, problem: Option<String>) {
        let key = (hook, binding);
        match problem {
            Some(why) => {
                self.facts.degraded.insert(key, why);
            }
            None if self.facts.degraded.remove(&key).is_some() => {
                // A reconciliation that failed for want of this snapshot need not wait any longer.
                let waits = self.lifecycle.head().and_then(|head| head.failure.as_ref());
                if waits.is_some_and(|failure| failure.reason == NOT_SYNCHRONISED) {
                    self.lifecycle.hurry();
                }
            }
            None => {}
        }
    }

    pub(super) fn cancel_hook_runs(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        for queue in self.hooks.values_mut() {
            if let Some(ticket) = queue.cancel_all(cause.stops_operations()) {
                out.push(Effect::Cancel { ticket, cause });
            }
        }
        self.hooks.retain(|_, queue| !queue.is_empty());
        self.facts.failing_hooks.clear();
    }

    pub(super) fn enqueue_synchronization(&mut self, now: Time) {
        self.synchronised = true;
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
            if self.is_skipped(&hook.name) {
                self.missed.insert(hook.name.clone());
                continue;
            }
            let queue = if awaited { format!("{}/sync", hook.queue) } else { hook.queue.clone() };
            let task = HookTask { hook: hook.name.clone(), trigger: Trigger::Synchronization(bindings), awaited };
            self.enqueue_hook(queue, task, now);
        }
    }

    pub(super) fn hook_answered(&mut self, queue_name: &str, answer: &Answer, now: Time, out: &mut Vec<Effect>) {
        let Some(queue) = self.hooks.get_mut(queue_name) else { return };
        let Some(head) = queue.head_mut() else { return };
        head.running = None;
        let hook = head.task.hook.clone();
        let awaited = head.task.awaited;
        let trigger = head.task.trigger.clone();
        let dropped = head.cancelled;
        let skipped = self.is_skipped(&hook);
        let Some(queue) = self.hooks.get_mut(queue_name) else { return };
        let mut values_changed = false;
        match failure_of(answer) {
            _ if dropped => {
                queue.pop();
            }
            Some(_) if skipped => {
                queue.pop();
                self.missed.insert(hook);
            }
            Some(failure) => {
                let allowed = self.declaration(&hook).is_some_and(|declaration| declaration.allow_failure);
                // A failure that is allowed is in the record of the run, and nothing waits for anything.
                if !allowed {
                    let failing = self.facts.failing_hooks.entry(hook.clone()).or_default();
                    failing.times = failing.times.saturating_add(1);
                    failing.failure = failure.clone();
                }
                if let Some(queue) = self.hooks.get_mut(queue_name) {
                    if allowed {
                        queue.pop();
                    } else {
                        queue.fail(failure, now);
                    }
                }
                if let (false, Trigger::Synchronization(bindings)) = (allowed, &trigger) {
                    self.forget_changes(&hook, bindings);
                }
            }
            None => {
                queue.pop();
                if self.facts.failing_hooks.contains_key(&hook) {
                    self.facts.failing_hooks.remove(&hook);
                }
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

/// Adds changes to those that wait: the last one of an object wins, unless it would turn an appearance into a mere
/// change. Beyond the bound the oldest go: the snapshot has the truth.
fn merge_changes(waiting: &mut Vec<Change>, new: &[Change]) {
    use crate::hook::WatchEventType::{Added, Modified};
    let key = |change: &Change| (change.binding.clone(), change.namespace.clone(), change.name.clone());
    let mut at: BTreeMap<_, usize> = waiting.iter().enumerate().map(|(index, change)| (key(change), index)).collect();
    for change in new {
        match at.get(&key(change)).and_then(|index| waiting.get_mut(*index)) {
            Some(known) if known.event == Added && change.event == Modified => {}
            Some(known) => *known = change.clone(),
            None => {
                at.insert(key(change), waiting.len());
                waiting.push(change.clone());
            }
        }
    }
    let over = waiting.len().saturating_sub(limits::CHANGES_PER_RUN);
    waiting.drain(..over);
    let mut left = limits::LAST_KNOWN_BYTES;
    for change in waiting.iter_mut().rev() {
        let bytes = change.last.as_ref().map_or(0, |item| item.sum().bytes);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => change.last = None,
        }
    }
}
