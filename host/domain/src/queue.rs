//! A FIFO queue whose head is repeated until it succeeds. Time is an argument; nothing here waits.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Failure;
use crate::limits;

mod moments;
#[cfg(test)]
mod tests;

pub use moments::Moments;

/// A moment, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

impl Time {
    /// The moment that much later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Ties an answer to its effect. Unique within an application and a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// How long to wait before the next attempt: doubles from `first` to `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub cap: Duration,
}

impl Backoff {
    /// Of lifecycle queues.
    pub const LIFECYCLE: Self = Self { first: limits::RETRY_FIRST, cap: limits::RETRY_CAP_LIFECYCLE };
    /// Of hook queues.
    pub const HOOK: Self = Self { first: limits::RETRY_FIRST, cap: limits::RETRY_CAP_HOOK };

    /// The wait after so many failures (1 for the first). One who failed may ask for another wait; it is kept between a
    /// second and the cap.
    #[must_use]
    pub fn wait(self, failures: u32, asked_ms: Option<u64>) -> Duration {
        if let Some(asked) = asked_ms {
            return Duration::from_millis(asked).clamp(Duration::from_secs(1).min(self.cap), self.cap);
        }
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// A task in a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<T> {
    /// What to do.
    pub task: T,
    /// Failures so far.
    pub failures: u32,
    /// Not before this moment.
    pub not_before: Time,
    /// Effect that is under way for it.
    pub running: Option<Ticket>,
    /// It is to be dropped when that effect is answered.
    pub cancelled: bool,
    /// Why it failed last.
    pub failure: Option<Failure>,
}

impl<T> Entry<T> {
    /// Whether it failed, and not yet so often that the others go on without it.
    #[must_use]
    pub fn holds_its_queue(&self) -> bool {
        (1..limits::BREAKER_FAILURES).contains(&self.failures)
    }
}

/// The queue. One effect at a time, for the head.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue<T> {
    entries: VecDeque<Entry<T>>,
    backoff: Backoff,
}

/// A queue takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue already holds {max} tasks", max = limits::QUEUE_TASKS)]
pub struct Full;

impl<T> Queue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self { entries: VecDeque::new(), backoff }
    }

    /// Adds a task at the end.
    ///
    /// # Errors
    /// [`Full`] if the queue holds [`limits::QUEUE_TASKS`].
    pub fn push(&mut self, task: T, not_before: Time) -> Result<(), Full> {
        if self.entries.len() >= limits::QUEUE_TASKS {
            return Err(Full);
        }
        self.entries.push_back(Entry { task, failures: 0, not_before, running: None, cancelled: false, failure: None });
        Ok(())
    }

    /// The task that is next or under way.
    #[must_use]
    pub fn head(&self) -> Option<&Entry<T>> {
        self.entries.front()
    }

    /// The same, to be changed.
    pub fn head_mut(&mut self) -> Option<&mut Entry<T>> {
        self.entries.front_mut()
    }

    /// The head, if it may start now.
    #[must_use]
    pub fn due(&self, now: Time) -> Option<&Entry<T>> {
        self.entries.front().filter(|head| head.running.is_none() && head.not_before <= now)
    }

    /// The head is done.
    pub fn pop(&mut self) -> Option<T> {
        self.entries.pop_front().map(|entry| entry.task)
    }

    /// The head failed: it waits.
    pub fn fail(&mut self, failure: Failure, now: Time) {
        let backoff = self.backoff;
        if let Some(head) = self.entries.front_mut() {
            head.running = None;
            head.failures = head.failures.saturating_add(1);
            head.not_before = now.after(backoff.wait(head.failures, failure.retry_after_ms));
            head.failure = Some(failure);
        }
    }

    /// Drops everything; what is under way is marked and its ticket given back, to be cancelled. The ticket of one that is
    /// cancelled already is given `again` only if the new cause stops more than the old one.
    pub fn cancel_all(&mut self, again: bool) -> Option<Ticket> {
        self.entries.truncate(1);
        match self.entries.front_mut() {
            Some(Entry { running: Some(ticket), cancelled, .. }) => {
                let first = !std::mem::replace(cancelled, true);
                (first || again).then_some(*ticket)
            }
            _ => {
                self.entries.clear();
                None
            }
        }
    }

    /// Drops the tasks that wait, keeping what is under way.
    pub fn retain_waiting(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|entry| entry.running.is_some() || keep(&entry.task));
    }

    /// Lets everything that waits for a moment start now, in order.
    pub fn hurry(&mut self) {
        for entry in &mut self.entries {
            entry.not_before = Time::default();
        }
    }

    /// The place of the first task that may start now. One that waits for its moment, or that is not `free` to start, lets
    /// those behind it pass; one that failed holds them, until it has failed so often that nobody can say when it will
    /// succeed.
    pub fn find(&self, now: Time, free: impl Fn(&T) -> bool) -> Option<usize> {
        self.candidates().position(|entry| entry.not_before <= now && free(&entry.task))
    }

    /// Brings a task that was found to the front.
    pub fn bring(&mut self, place: usize) -> Option<&mut Entry<T>> {
        let entry = self.entries.remove(place)?;
        self.entries.push_front(entry);
        self.entries.front_mut()
    }

    /// Whether a task is not kept from starting by one that is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.entries.front().is_some_and(|head| head.running.is_none())
    }

    /// When [`Self::find`] finds something, if nothing else changes.
    #[must_use]
    pub fn picks_at(&self, free: impl Fn(&T) -> bool) -> Option<Time> {
        self.candidates().filter(|entry| free(&entry.task)).map(|entry| entry.not_before).min()
    }

    /// The tasks that may be next: none while one is under way, and none behind one that holds the queue.
    fn candidates(&self) -> impl Iterator<Item = &Entry<T>> {
        let mut open = self.is_idle();
        self.entries.iter().take_while(move |entry| {
            let reached = open;
            open &= !entry.holds_its_queue();
            reached
        })
    }

    /// When the head wants to start, if it waits.
    #[must_use]
    pub fn wake(&self) -> Option<Time> {
        self.entries.front().filter(|head| head.running.is_none()).map(|head| head.not_before)
    }

    /// The tasks, head first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter()
    }

    /// The tasks, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.entries.iter_mut()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
