//! Performs a release plan: ownership first, then wave by wave, then what goes; and removes a release again.
//!
//! Order, contents and hooks are decided in `barbless_domain::release`. Readiness is asked of a function that the
//! caller gives; it is asked when an object changes, never by polling.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::limits::TIMEOUT_NAMES;
use barbless_domain::release::{HookEvent, Readiness};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Cluster;
use crate::error::{Error, FieldConflict};

mod apply;
mod helm_hooks;
mod ownership;
mod pods;
mod remove;
mod wait;

pub use pods::PodTrouble;
pub use remove::Removed;

pub(crate) use ownership::foreign_owner;

/// Says how far an object is.
pub type ReadyFn = Arc<dyn Fn(&Value) -> Readiness + Send + Sync>;

/// How a release is applied or removed.
#[derive(Clone)]
pub struct ReleaseOptions {
    /// Field manager.
    pub manager: String,
    /// Says how far an object is.
    pub ready: ReadyFn,
    /// How long the whole of it may take.
    pub deadline: Duration,
    /// Ends it early.
    pub cancel: CancellationToken,
    /// Told what happens. What does not fit is dropped: the result has everything that matters.
    pub progress: mpsc::Sender<Progress>,
}

impl fmt::Debug for ReleaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseOptions")
            .field("manager", &self.manager)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Which Helm hooks run around an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOperation {
    /// The first apply.
    Install,
    /// A later one.
    Upgrade,
    /// Return to an earlier revision.
    Rollback,
}

impl ReleaseOperation {
    fn events(self) -> (HookEvent, HookEvent) {
        match self {
            Self::Install => (HookEvent::PreInstall, HookEvent::PostInstall),
            Self::Upgrade => (HookEvent::PreUpgrade, HookEvent::PostUpgrade),
            Self::Rollback => (HookEvent::PreRollback, HookEvent::PostRollback),
        }
    }
}

/// What an apply did to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was there and is different now.
    Configured,
    /// It was there and is the same.
    Unchanged,
    /// It could not be changed and was made anew.
    Recreated,
}

/// What happens during an apply or a removal.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// An object was applied.
    Applied {
        /// Which.
        target: ObjectRef,
        /// What was done to it.
        change: Change,
    },
    /// An object is not ready yet, or no longer for the same reason.
    Waiting {
        /// Which.
        target: ObjectRef,
        /// Why.
        why: String,
    },
    /// An object is ready.
    Ready {
        /// Which.
        target: ObjectRef,
    },
    /// A Pod of a workload that is waited for is in trouble.
    PodFailing(PodTrouble),
    /// A Helm hook begins.
    HookStarted {
        /// Its object.
        target: ObjectRef,
        /// Its event.
        event: HookEvent,
    },
    /// A Helm hook succeeded.
    HookSucceeded {
        /// Its object.
        target: ObjectRef,
        /// Its event.
        event: HookEvent,
    },
    /// A Helm hook failed.
    HookFailed {
        /// Its object.
        target: ObjectRef,
        /// Its event.
        event: HookEvent,
        /// Why.
        why: String,
    },
    /// An object was asked to go.
    Deleting {
        /// Which.
        target: ObjectRef,
    },
    /// An object was observed gone.
    Gone {
        /// Which.
        target: ObjectRef,
    },
    /// An object was left alone.
    Left {
        /// Which.
        target: ObjectRef,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Recreated => "recreated",
        })
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied { target, change } => write!(f, "{target} {change}"),
            Self::Waiting { target, why } => write!(f, "{target} is not ready: {why}"),
            Self::Ready { target } => write!(f, "{target} is ready"),
            Self::PodFailing(trouble) => write!(f, "{} has trouble: {trouble}", trouble.workload),
            Self::HookStarted { target, event } => write!(f, "{} hook {target} begins", event.as_str()),
            Self::HookSucceeded { target, event } => write!(f, "{} hook {target} succeeded", event.as_str()),
            Self::HookFailed { target, event, why } => write!(f, "{} hook {target} failed: {why}", event.as_str()),
            Self::Deleting { target } => write!(f, "{target} is being deleted"),
            Self::Gone { target } => write!(f, "{target} is gone"),
            Self::Left { target, why } => write!(f, "{target} is left: {why}"),
        }
    }
}

/// What an apply did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Every object of the release, in order, with what was done to it.
    pub objects: Vec<(ObjectRef, Change)>,
    /// What was asked to go because the release dropped it.
    pub pruned: Vec<ObjectRef>,
    /// What the release dropped and stays, with the reason.
    pub left: Vec<(ObjectRef, String)>,
}

/// An object that is somebody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The object.
    pub target: ObjectRef,
    /// Whose it is, as far as it says so.
    pub owner: String,
}

/// An object that does not go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remaining {
    /// The object.
    pub target: ObjectRef,
    /// The finalizers that hold it.
    pub finalizers: Vec<String>,
}

/// Why a release could not be applied or removed.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Objects exist that the release does not own; nothing was written.
    #[error("{}", NotOurs(objects))]
    NotOurs {
        /// All of them.
        objects: Vec<Foreign>,
    },
    /// Another manager has fields that the release wants.
    #[error("{0}")]
    FieldConflict(Box<FieldConflict>),
    /// A request failed.
    #[error("the release could not be carried out")]
    Request(#[from] Error),
    /// An object will not become ready by itself.
    #[error("{target} failed: {why}")]
    ObjectFailed {
        /// Which.
        target: Box<ObjectRef>,
        /// Why.
        why: String,
    },
    /// A Helm hook failed.
    #[error("helm hook {target} ({}) failed: {why}", event.as_str())]
    HookFailed {
        /// Its object.
        target: Box<ObjectRef>,
        /// Its event.
        event: HookEvent,
        /// Why.
        why: String,
    },
    /// The time was up.
    #[error("{}", TimedOut { after: *after, pending, more: *more })]
    TimedOut {
        /// How long was waited.
        after: Duration,
        /// What was waited for, and why it is not ready; bounded.
        pending: Vec<(ObjectRef, String)>,
        /// How many more.
        more: usize,
    },
    /// The time was up and objects are still there.
    #[error("{}", StillThere { after: *after, remaining, more: *more })]
    Remaining {
        /// How long was waited.
        after: Duration,
        /// What remains; bounded.
        remaining: Vec<Remaining>,
        /// How many more.
        more: usize,
    },
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl ReleaseError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::NotOurs { .. } => "ObjectNotOwned",
            Self::FieldConflict(_) => "FieldConflict",
            Self::Request(error) => error.reason(),
            Self::ObjectFailed { .. } => "ObjectFailed",
            Self::HookFailed { .. } => "HelmHookFailed",
            Self::TimedOut { .. } => "ApplyTimedOut",
            Self::Remaining { .. } => "UninstallTimedOut",
            Self::Cancelled => "Cancelled",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotOurs { .. } => {
                Some("remove or rename these objects, or label them as this application's to adopt them")
            }
            Self::FieldConflict(_) => {
                Some("let the other manager give up the fields, or leave them out of the templates")
            }
            Self::Remaining { .. } => Some("find out why the controllers behind these finalizers do not release them"),
            Self::TimedOut { .. } | Self::ObjectFailed { .. } => Some("look at the events and logs of these objects"),
            Self::HookFailed { .. } => Some("look at the logs of the hook's Pods"),
            Self::Request(_) | Self::Cancelled => None,
        }
    }

    /// The message with those of its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::error::chain(self)
    }
}

struct NotOurs<'a>(&'a [Foreign]);

impl fmt::Display for NotOurs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects exist that do not belong to this application: ")?;
        for (index, Foreign { target, owner }) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{target} ({owner})")?;
        }
        Ok(())
    }
}

struct TimedOut<'a> {
    after: Duration,
    pending: &'a [(ObjectRef, String)],
    more: usize,
}

impl fmt::Display for TimedOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pending.is_empty() {
            return write!(f, "the API server did not answer in time: {:?} have passed", self.after);
        }
        write!(f, "not ready after {:?}: ", self.after)?;
        for (index, (target, why)) in self.pending.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{target}: {why}")?;
        }
        if self.more > 0 { write!(f, "; and {} more", self.more) } else { Ok(()) }
    }
}

struct StillThere<'a> {
    after: Duration,
    remaining: &'a [Remaining],
    more: usize,
}

impl fmt::Display for StillThere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "still there after {:?}: ", self.after)?;
        for (index, Remaining { target, finalizers }) in self.remaining.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{target}")?;
            if !finalizers.is_empty() {
                write!(f, " (held by finalizers {})", finalizers.join(", "))?;
            }
        }
        if self.more > 0 { write!(f, "; and {} more", self.more) } else { Ok(()) }
    }
}

/// An apply or a removal under way.
struct Run<'a> {
    cluster: &'a Cluster,
    application: &'a ApplicationId,
    options: &'a ReleaseOptions,
    started: Instant,
    until: Instant,
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster, application: &'a ApplicationId, options: &'a ReleaseOptions) -> Self {
        let started = Instant::now();
        Self { cluster, application, options, started, until: started + options.deadline }
    }

    fn tell(&self, progress: Progress) {
        // A full channel means a slow reader; it loses a line, not the result.
        let _ = self.options.progress.try_send(progress);
    }

    fn check_cancelled(&self) -> Result<(), ReleaseError> {
        if self.options.cancel.is_cancelled() { Err(ReleaseError::Cancelled) } else { Ok(()) }
    }

    /// Runs something until it ends, the time is up or the run is cancelled.
    async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, ReleaseError>>,
    ) -> Result<Result<T, ReleaseError>, Interrupted> {
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => Err(Interrupted::Cancelled),
            outcome = tokio::time::timeout_at(self.until, work) => outcome.map_err(|_| Interrupted::TimeUp),
        }
    }

    /// The error of a time that is up, naming the first few of those waited for.
    fn timed_out(&self, pending: impl IntoIterator<Item = (ObjectRef, String)>) -> ReleaseError {
        let mut pending: Vec<_> = pending.into_iter().collect();
        let more = pending.len().saturating_sub(TIMEOUT_NAMES);
        pending.truncate(TIMEOUT_NAMES);
        ReleaseError::TimedOut { after: self.started.elapsed(), pending, more }
    }
}

/// Work on one object, boxed so that the compiler sees that it is `Send`.
type Work<'a, T> = futures::future::BoxFuture<'a, Result<T, ReleaseError>>;

/// Why waiting ended early.
enum Interrupted {
    Cancelled,
    TimeUp,
}
