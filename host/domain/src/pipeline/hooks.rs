//! The hook queues: what comes into them, and what the runs of their hooks lead to.

use std::collections::BTreeMap;

use super::App;
use super::answers::failure_of;
use super::task::{HookTask, Task};
use crate::effect::{Cause, Effect};
use crate::event::Answer;
use crate::hook::{Change, HookDeclaration, Trigger};
use crate::limits;
use crate::queue::{Backoff, Queue, Ticket, Time};

impl App {
    pub(super) fn hook_due(&mut self, hook: &str, trigger: Trigger, now: Time) {
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

    pub(super) fn pump_hooks(&mut self, now: Time, out: &mut Vec<Effect>) {
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

    pub(super) fn cancel_hook_runs(&mut self, out: &mut Vec<Effect>) {
        let cause = self.cause;
        for queue in self.hooks.values_mut() {
            if let Some(ticket) = queue.cancel_all() {
                out.push(Effect::Cancel { ticket, cause });
            }
        }
        self.hooks.retain(|_, queue| !queue.is_empty());
        self.facts.failing_hooks.clear();
    }

    pub(super) fn enqueue_synchronization(&mut self, now: Time) {
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

    pub(super) fn hook_answered(&mut self, queue_name: &str, answer: &Answer, now: Time, out: &mut Vec<Effect>) {
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
