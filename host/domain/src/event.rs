//! Everything that can happen to an application.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hook::{Change, HookDeclaration};
use crate::pipeline::DeletionStep;
use crate::queue::Ticket;
use crate::release::tracking::Tracking;

/// What the `Application` object says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// `metadata.generation`, echoed in the status.
    pub generation: i64,
    /// Version of the package.
    pub version: String,
    /// `spec.settings`; an empty object if absent.
    pub settings: Value,
    /// `spec.maintenance: NoResourceReconciliation`.
    pub maintenance: bool,
    /// The object is being deleted.
    pub deleting: bool,
    /// Delete hooks are skipped, as the annotation of the operator demands.
    pub skip_delete_hooks: bool,
    /// Hooks that do not run, as an operator wants it; in order.
    pub skip_hooks: Vec<String>,
    /// A value that changes when somebody asks for a retry at once.
    pub retry: String,
    /// Step at which an earlier process left the deletion.
    pub deletion_step: Option<DeletionStep>,
    /// Revision of the release that an operator wants back; 0 is the one before the last.
    pub rollback_to: Option<u32>,
    /// Objects that another release or nobody owns may be taken over.
    pub take_over: bool,
    /// What is to be done about fields that other managers have, as the operator wrote it; empty if they wrote nothing.
    pub field_conflicts: String,
    /// Requests of the operator that cannot be read. They count as not made, and are shown.
    pub refused: Vec<RefusedRequest>,
}

/// A request of an operator that comes to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedRequest {
    /// Where it was made: the name of an annotation.
    pub place: String,
    /// Why: stable reason, message, hint.
    pub failure: Failure,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The `Application` appeared or changed.
    Observed(Desired),
    /// An effect came to its end. Each effect that carries a ticket is answered exactly once.
    Answered(Ticket, Answer),
    /// The requirements were evaluated again; one line for each that is not met.
    Requirements(Vec<String>),
    /// A schedule is due.
    ScheduleDue {
        /// Hook.
        hook: String,
        /// Schedule of the hook.
        schedule: String,
    },
    /// Objects of a kubernetes binding changed, and their projections too.
    ObjectsChanged {
        /// Hook.
        hook: String,
        /// What changed.
        changes: Vec<Change>,
    },
    /// The snapshot of a kubernetes binding cannot be trusted any more, or can again.
    BindingState {
        /// Hook.
        hook: String,
        /// Kubernetes binding of the hook.
        binding: String,
        /// Why it cannot be trusted; nothing if it can.
        problem: Option<String>,
    },
    /// The health of the rendered workloads changed.
    Health(Workloads),
    /// How far the apply, the rollback or the removal is that is under way. The last of these comes before the answer.
    Tracking(Tracking),
    /// Time has passed.
    Tick,
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The package was loaded.
    Loaded(Loaded),
    /// The requirements were evaluated; one line for each that is not met.
    Requirements(Vec<String>),
    /// A hook ran to its end and what it asked for was carried out.
    HookRan {
        /// The values document is another one.
        values_changed: bool,
    },
    /// The templates were rendered.
    Rendered(Rendered),
    /// The objects were looked up; how many are missing.
    Missing(u32),
    /// The revision that [`crate::effect::Effect::PinRollback`] found.
    Revision(u32),
    /// What an operator asked for cannot be done, now or later.
    Refused(Failure),
    /// It was stopped because of [`crate::effect::Effect::Cancel`]; or it was so stopped that nothing came of it.
    Cancelled,
    /// It failed.
    Failed(Failure),
}

/// What is known of a loaded package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    /// Version of the package.
    pub version: String,
    /// Its hooks, all valid.
    pub hooks: Vec<HookDeclaration>,
    /// A release of this application is in the cluster, from an earlier process or version.
    pub release: bool,
    /// Version of the package whose objects were deployed last, if the release has a revision that is deployed.
    pub installed: Option<String>,
}

/// What is known after rendering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rendered {
    /// Digest of the rendered objects.
    pub digest: String,
    /// The last release, if there is one.
    pub released: Option<Released>,
    /// Objects of that release that are not in the cluster.
    pub missing: u32,
}

/// The last revision of the release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// Its number.
    pub revision: u32,
    /// Version of the package that its objects are of.
    pub version: String,
    /// Digest of its objects.
    pub digest: String,
    /// It ended well.
    pub deployed: bool,
    /// It was applied for maintenance.
    pub maintenance: bool,
    /// Digest of the objects that a rollback put aside for these. As long as just those are rendered, the rollback holds.
    pub set_aside: Option<String>,
}

impl Released {
    /// Whether a rollback led here that still holds: what is rendered is what it put aside.
    #[must_use]
    pub fn holds_against(&self, digest: &str) -> bool {
        self.deployed && self.set_aside.as_deref() == Some(digest)
    }
}

/// Why something failed, for users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Stable reason in PascalCase.
    pub reason: String,
    /// What went wrong, with names.
    pub message: String,
    /// What a user can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Milliseconds until the next attempt, if the one who failed knows better than the back-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
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

/// Health of the rendered workloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workloads {
    /// Nothing was observed yet.
    Unknown,
    /// The package renders none.
    None,
    /// All are well.
    Healthy,
    /// On the way; with the reason.
    Progressing(String),
    /// Broken; with the reason.
    Degraded(String),
}
