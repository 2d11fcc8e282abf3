//! Everything that an application can ask the world to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::hook::Trigger;
use crate::pipeline::DeletionStep;
use crate::queue::Ticket;
use crate::status::Status;

/// One thing to do. Each variant with a ticket is answered by one [`crate::event::Event::Answered`] with that ticket.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Fetch the bundle of this version.
    Deploy {
        /// To be given back.
        ticket: Ticket,
        /// Version of the package.
        version: String,
    },
    /// Read the bundle of this version and its components; the loaded package is replaced only when that succeeds.
    Load {
        /// To be given back.
        ticket: Ticket,
        /// Version of the package.
        version: String,
    },
    /// The package that was loaded last takes the place of the current one; values that hooks of the old one set are
    /// forgotten.
    Adopt {
        /// To be given back.
        ticket: Ticket,
    },
    /// Evaluate the requirements of the loaded package.
    CheckRequirements {
        /// To be given back.
        ticket: Ticket,
    },
    /// Validate the settings and make the values.
    Configure {
        /// To be given back.
        ticket: Ticket,
        /// `spec.settings`.
        settings: Value,
    },
    /// Start schedules and watches of the loaded package; answered when every snapshot is synchronised. Changes that
    /// happen meanwhile are reported after the answer.
    StartBindings {
        /// To be given back.
        ticket: Ticket,
    },
    /// Stop schedules and watches; answered when none is active.
    StopBindings {
        /// To be given back.
        ticket: Ticket,
    },
    /// Run a hook, validate all that it asked for, carry it out, keep its values.
    RunHook {
        /// To be given back.
        ticket: Ticket,
        /// Hook.
        hook: String,
        /// Why.
        trigger: Trigger,
        /// 1 for the first attempt.
        attempt: u32,
    },
    /// Render the templates with the current values.
    Render {
        /// To be given back.
        ticket: Ticket,
        /// Put the maintenance label on.
        maintenance: bool,
        /// Objects that somebody else owns may be part of the plan.
        take_over: bool,
    },
    /// Apply what was rendered last, and wait until it is ready.
    Apply {
        /// To be given back.
        ticket: Ticket,
        /// It carries the maintenance label.
        maintenance: bool,
        /// Objects that somebody else owns are taken over.
        take_over: bool,
        /// What is to be done about fields that other managers have, as [`crate::event::Desired::field_conflicts`].
        field_conflicts: String,
    },
    /// Find out which revision "the one before the last" is, and write that number into the request, so that a process
    /// that goes on with it later goes back to the same one. Answered with [`crate::event::Answer::Revision`].
    PinRollback {
        /// To be given back.
        ticket: Ticket,
    },
    /// Make the objects those of an earlier revision again, as a new revision, and wait until they are ready. Nothing is
    /// rendered. The new revision remembers the digest that it puts aside: that of the last revision, or what that one
    /// had put aside itself. The last revision may be named too: its objects are made again what they were.
    /// [`crate::event::Answer::Refused`] if there is no such revision.
    Rollback {
        /// To be given back.
        ticket: Ticket,
        /// The revision to go back to, never 0.
        revision: u32,
        /// What is to be done about fields that other managers have.
        field_conflicts: String,
    },
    /// The request to go back to this revision is done with: take it off the `Application`, unless it is another one by
    /// now.
    SettleRollback {
        /// To be given back.
        ticket: Ticket,
        /// The revision of the request.
        revision: u32,
    },
    /// Look which objects of the release are missing.
    CheckDrift {
        /// To be given back.
        ticket: Ticket,
    },
    /// Delete the objects of the release and wait until they are observed gone.
    Uninstall {
        /// To be given back.
        ticket: Ticket,
        /// Run no pre-delete and post-delete hooks of the chart.
        skip_hooks: bool,
    },
    /// Delete orphan resources.
    Purge {
        /// To be given back.
        ticket: Ticket,
    },
    /// Forget the bundle and everything that is kept for the application.
    Undeploy {
        /// To be given back.
        ticket: Ticket,
    },
    /// Write down how far the deletion has come, so that another process goes on there.
    PersistDeletion {
        /// To be given back.
        ticket: Ticket,
        /// The step that is about to begin.
        step: DeletionStep,
    },
    /// Remove the finalizer: nothing of the application is left.
    RemoveFinalizer {
        /// To be given back.
        ticket: Ticket,
    },
    /// Stop the effect with this ticket. It is still answered.
    Cancel {
        /// Ticket of the other effect.
        ticket: Ticket,
        /// Why.
        cause: Cause,
    },
    /// Show this status. Not answered: the latest wins.
    WriteStatus(Box<Status>),
}

impl Effect {
    /// The ticket that its answer must carry.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Deploy { ticket, .. }
            | Self::Load { ticket, .. }
            | Self::Adopt { ticket }
            | Self::CheckRequirements { ticket }
            | Self::Configure { ticket, .. }
            | Self::StartBindings { ticket }
            | Self::StopBindings { ticket }
            | Self::RunHook { ticket, .. }
            | Self::Render { ticket, .. }
            | Self::Apply { ticket, .. }
            | Self::CheckDrift { ticket }
            | Self::PinRollback { ticket }
            | Self::Rollback { ticket, .. }
            | Self::SettleRollback { ticket, .. }
            | Self::Uninstall { ticket, .. }
            | Self::Purge { ticket }
            | Self::Undeploy { ticket }
            | Self::PersistDeletion { ticket, .. }
            | Self::RemoveFinalizer { ticket } => Some(*ticket),
            Self::Cancel { .. } | Self::WriteStatus(_) => None,
        }
    }
}

/// Why a reconciliation begins, or a running one is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The application is new to this process.
    Scheduled,
    /// `spec.settings` changed.
    SettingsChanged,
    /// `spec.maintenance` changed.
    MaintenanceChanged,
    /// `spec.packageVersion` changed.
    UpdateStarted,
    /// The application is being deleted.
    RemovalStarted,
    /// An object of the release is missing.
    DriftDetected,
    /// A schedule or event hook changed values.
    HookValuesChanged,
    /// A requirement is no longer met.
    RequirementsLost,
    /// The requirements are met again.
    RequirementsMet,
    /// Somebody asked for it.
    RetryRequested,
    /// Somebody wants an earlier revision back.
    RollbackRequested,
    /// Nobody wants the earlier revision back any more.
    RollbackWithdrawn,
}

impl Cause {
    /// Whether a person changed something: what waits for its next attempt makes it now.
    #[must_use]
    pub fn is_wish(self) -> bool {
        match self {
            Self::SettingsChanged
            | Self::MaintenanceChanged
            | Self::UpdateStarted
            | Self::RemovalStarted
            | Self::RetryRequested
            | Self::RollbackRequested
            | Self::RollbackWithdrawn => true,
            Self::Scheduled
            | Self::DriftDetected
            | Self::HookValuesChanged
            | Self::RequirementsLost
            | Self::RequirementsMet => false,
        }
    }

    /// Whether it also stops what a hook that has ended asked for. A newer wish does not: operations are not left half-way
    /// for it. What is removed or suspended has no use for the rest.
    #[must_use]
    pub fn stops_operations(self) -> bool {
        matches!(self, Self::RemovalStarted | Self::RequirementsLost)
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::SettingsChanged => "SettingsChanged",
            Self::MaintenanceChanged => "MaintenanceChanged",
            Self::UpdateStarted => "UpdateStarted",
            Self::RemovalStarted => "RemovalStarted",
            Self::DriftDetected => "DriftDetected",
            Self::HookValuesChanged => "HookValuesChanged",
            Self::RequirementsLost => "RequirementsLost",
            Self::RequirementsMet => "RequirementsMet",
            Self::RetryRequested => "RetryRequested",
            Self::RollbackRequested => "RollbackRequested",
            Self::RollbackWithdrawn => "RollbackWithdrawn",
        }
    }
}
