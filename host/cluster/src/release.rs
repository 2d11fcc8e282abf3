//! Performs a release plan, whatever it does: ownership first, then each step as soon as those before it have ended.
//!
//! Order, contents and hooks are decided in `barbless_domain::release`, and `Execution` says what may begin and what a
//! failure means. Readiness is asked of a function that the caller gives; it is asked when an object changes, never by
//! polling.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::conflict::Rule;
use barbless_domain::release::tracking::Tracking;
use barbless_domain::release::{HookEvent, Outcome, Plan, Readiness, StepId, UnsafeDefinition};
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Cluster;
use crate::error::{ConflictingField, Error, FieldConflict};

mod apply;
mod deploy;
mod executor;
mod external;
mod hooks;
mod output;
mod ownership;
mod pods;
mod remove;
mod waiter;

pub(crate) use apply::{is_immutable, is_job};
pub use deploy::{AfterRemoval, DeployError};
pub use executor::{Applied, Removed};
pub(crate) use ownership::{claimed_by, foreign_owner};
pub use pods::PodTrouble;

use deploy::Chronicle;
use waiter::{Ask, Goal};

/// Says how far an object is.
pub type ReadyFn = Arc<dyn Fn(&Value) -> Readiness + Send + Sync>;

/// Says why a package may not wait for an object of somebody else that lives in this scope, if it may not.
pub type SeeFn = Arc<dyn Fn(&ObjectRef, Scope) -> Result<(), String> + Send + Sync>;

/// How a release is applied or removed.
#[derive(Clone)]
pub struct ReleaseOptions {
    /// Field manager.
    pub manager: String,
    /// Says how far an object is.
    pub ready: ReadyFn,
    /// Whether an object outside of the release may be waited for. Asked once its kind is known.
    pub may_see: SeeFn,
    /// What the operator decided about fields of other managers. What the authors leave to others is added.
    pub rules: Vec<Rule>,
    /// How long the whole of it may take.
    pub deadline: Duration,
    /// Ends it early.
    pub cancel: CancellationToken,
    /// Told what happens. What does not fit is dropped: the result has everything that matters.
    pub progress: mpsc::Sender<Progress>,
    /// Told how far the plan is: when it begins, from then on at most once in
    /// [`barbless_domain::limits::TRACKING_INTERVAL`], and at the end,
    /// however it ends. Nothing is made for it when nobody listens.
    pub tracking: watch::Sender<Tracking>,
}

impl fmt::Debug for ReleaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseOptions")
            .field("manager", &self.manager)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
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
    /// Fields of other managers were in the way, and rules say what to do about them.
    Settled {
        /// The object.
        target: ObjectRef,
        /// The fields, and who had them.
        fields: Vec<ConflictingField>,
        /// Some are taken; the others are left.
        taken: bool,
    },
    /// An object failed, and its author wants the release to go on.
    Tolerated {
        /// Which.
        target: ObjectRef,
        /// Why it failed.
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
            Self::Settled { target, fields, taken } => {
                let what = if *taken { "taken or left by rule" } else { "left to their managers" };
                write!(f, "{target}: fields in conflict are {what}:")?;
                for (index, ConflictingField { manager, field }) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma} {field} ({manager})")?;
                }
                Ok(())
            }
            Self::Tolerated { target, why } => write!(f, "{target} failed, which is tolerated: {why}"),
        }
    }
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
    /// Other managers have fields that the release wants.
    #[error("{}", Conflicts(conflicts))]
    FieldConflict {
        /// Each object that was found with such fields.
        conflicts: Vec<FieldConflict>,
    },
    /// Fields of an object would have to change that never do.
    #[error("{target} cannot be changed in place")]
    Immutable {
        /// The object.
        target: Box<ObjectRef>,
        /// What the API server says.
        source: Error,
    },
    /// A definition of a kind cannot take the place of the one that is there.
    #[error("{target} is not upgraded")]
    UnsafeDefinition {
        /// The definition.
        target: Box<ObjectRef>,
        /// Why.
        source: UnsafeDefinition,
    },
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
            Self::FieldConflict { .. } => "FieldConflict",
            Self::Immutable { .. } => "ImmutableField",
            Self::UnsafeDefinition { .. } => "UnsafeDefinition",
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
            Self::FieldConflict { .. } => Some(
                "let the other manager give up the fields, leave them out of the templates, or decide with the annotation \
                     packages.deckhouse.io/field-conflicts of the Application (docs/releases.md)",
            ),
            Self::Immutable { .. } => Some(
                "annotate the object with werf.io/delete-policy: before-creation-if-immutable to have it deleted and made \
                 anew, or give it another name",
            ),
            Self::UnsafeDefinition { source, .. } => Some(source.hint()),
            Self::Remaining { .. } => Some("find out why the controllers behind these finalizers do not release them"),
            Self::TimedOut { .. } | Self::ObjectFailed { .. } => Some("look at the events and logs of these objects"),
            Self::HookFailed { .. } => Some("look at the logs and events of the hook's Pods"),
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

struct Conflicts<'a>(&'a [FieldConflict]);

impl fmt::Display for Conflicts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, conflict) in self.0.iter().enumerate() {
            let semicolon = if index > 0 { "; " } else { "" };
            write!(f, "{semicolon}{conflict}")?;
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

/// An operation under way: what its steps need.
struct Run<'a> {
    cluster: &'a Cluster,
    plan: &'a Plan,
    options: &'a ReleaseOptions,
    started: Instant,
    until: Instant,
    /// The objects of the plan that were there before anything was written.
    live: BTreeMap<ObjectRef, Value>,
    asks: mpsc::Sender<Ask>,
    /// Rules of the operator, then of the authors.
    rules: Vec<Rule>,
    /// The record of the release.
    chronicle: Chronicle,
    /// Set once the record knows that objects are removed.
    removal: OnceCell<()>,
}

/// How the work of a step ended.
struct Ended {
    outcome: Outcome,
    /// The object as it is now.
    object: Option<Value>,
    /// Uid of the object that was deleted.
    deleted: Option<String>,
}

impl Ended {
    fn of(outcome: Outcome) -> Self {
        Self { outcome, object: None, deleted: None }
    }

    fn left(why: impl Into<String>) -> Self {
        Self::of(Outcome::Left(why.into()))
    }
}

/// Work on one object, boxed so that the compiler sees that it is `Send`.
type Work<'a, T> = futures::future::BoxFuture<'a, Result<T, ReleaseError>>;

impl<'a> Run<'a> {
    fn application(&self) -> &'a ApplicationId {
        &self.plan.application
    }

    fn tell(&self, progress: Progress) {
        // A full channel means a slow reader; it loses a line, not the result.
        let _ = self.options.progress.try_send(progress);
    }

    /// Waits, in the middle of a step.
    async fn wait(&self, step: StepId, target: &ObjectRef, goal: Goal) -> Result<(), ReleaseError> {
        let (done, told) = oneshot::channel();
        let ask = Ask { step, target: target.clone(), goal, done };
        // Nobody listens any more once the operation is given up.
        self.asks.send(ask).await.map_err(|_| ReleaseError::Cancelled)?;
        let failed = |why| ReleaseError::ObjectFailed { target: Box::new(target.clone()), why };
        told.await.map_err(|_| ReleaseError::Cancelled)?.map_err(failed)
    }
}
