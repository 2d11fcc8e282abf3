//! What an application does, as data: the tasks of its queues, with how far each has come.

use serde::{Deserialize, Serialize};

use crate::hook::{Stage, Trigger};

/// A step of a deletion. It is written down before it begins; each is safe to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeletionStep {
    /// beforeDeleteHelm hooks.
    BeforeHooks,
    /// The release is removed, until it is observed gone.
    Uninstall,
    /// afterDeleteHelm hooks.
    AfterHooks,
    /// Schedules and watches stop.
    StopHooks,
    /// Orphan resources are deleted.
    Purge,
    /// The bundle and all that is kept is forgotten.
    Undeploy,
    /// The finalizer is removed.
    Finalize,
}

impl DeletionStep {
    pub(super) fn next(self) -> Option<Self> {
        match self {
            Self::BeforeHooks => Some(Self::Uninstall),
            Self::Uninstall => Some(Self::AfterHooks),
            Self::AfterHooks => Some(Self::StopHooks),
            Self::StopHooks => Some(Self::Purge),
            Self::Purge => Some(Self::Undeploy),
            Self::Undeploy => Some(Self::Finalize),
            Self::Finalize => None,
        }
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeHooks => "BeforeHooks",
            Self::Uninstall => "Uninstall",
            Self::AfterHooks => "AfterHooks",
            Self::StopHooks => "StopHooks",
            Self::Purge => "Purge",
            Self::Undeploy => "Undeploy",
            Self::Finalize => "Finalize",
        }
    }
}

/// A task of the lifecycle queue, with how far it has come.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Fetch the bundle.
    Deploy {
        /// Version.
        version: String,
    },
    /// Read the bundle.
    Load {
        /// Version.
        version: String,
    },
    /// Put the package that was loaded last in the place of the current one.
    Switch(SwitchAt),
    /// Evaluate the requirements.
    Requirements,
    /// Make the values.
    Configure,
    /// Start bindings, synchronise, run onStartup hooks.
    Enable(EnableAt),
    /// Run hooks, render, apply, run hooks.
    Run {
        /// How far.
        at: RunAt,
        /// Applies so far.
        applies: u32,
        /// An afterHelm hook changed values.
        changed: bool,
    },
    /// Suspension: delete hooks and release, keep the `Application`.
    Disable(DisableAt),
    /// An operator wants an earlier revision back.
    Rollback(RollbackAt),
    /// Look for missing objects.
    CheckDrift,
    /// Deletion.
    Remove {
        /// Step that is under way.
        step: DeletionStep,
        /// How far.
        at: RemoveAt,
    },
}

impl Task {
    /// The stage whose hooks it runs now, and which of them is next.
    pub(super) fn stage(&self) -> Option<(Stage, usize)> {
        match *self {
            Self::Enable(EnableAt::Startup(index)) => Some((Stage::OnStartup, index)),
            Self::Run { at: RunAt::Before(index), .. } => Some((Stage::BeforeHelm, index)),
            Self::Run { at: RunAt::After(index), .. } => Some((Stage::AfterHelm, index)),
            Self::Disable(DisableAt::Before(index))
            | Self::Remove { step: DeletionStep::BeforeHooks, at: RemoveAt::Act(index) } => {
                Some((Stage::BeforeDeleteHelm, index))
            }
            Self::Disable(DisableAt::After(index))
            | Self::Remove { step: DeletionStep::AfterHooks, at: RemoveAt::Act(index) } => {
                Some((Stage::AfterDeleteHelm, index))
            }
            _ => None,
        }
    }

    /// The same task, the next hook of its stage left out.
    pub(super) fn past_hook(&self) -> Self {
        let mut task = self.clone();
        match &mut task {
            Self::Enable(EnableAt::Startup(index))
            | Self::Run { at: RunAt::Before(index) | RunAt::After(index), .. }
            | Self::Disable(DisableAt::Before(index) | DisableAt::After(index))
            | Self::Remove { at: RemoveAt::Act(index), .. } => *index = index.saturating_add(1),
            _ => {}
        }
        task
    }
}

/// How far [`Task::Switch`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchAt {
    /// Old bindings stop.
    Stop,
    /// Old hooks end.
    Idle,
    /// The new package takes over.
    Adopt,
}

/// How far [`Task::Enable`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnableAt {
    /// Bindings start.
    Bindings,
    /// Synchronization runs are waited for.
    Synchronization,
    /// onStartup hooks, by index.
    Startup(usize),
}

/// How far [`Task::Run`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt {
    /// beforeHelm hooks, by index.
    Before(usize),
    /// Rendering.
    Render,
    /// Applying.
    Apply,
    /// Making the objects of this revision again what they were, because a rollback to it holds.
    Restore(u32),
    /// afterHelm hooks, by index.
    After(usize),
}

/// How far [`Task::Disable`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisableAt {
    /// Bindings start, if an earlier process had them.
    Bindings,
    /// beforeDeleteHelm hooks, by index.
    Before(usize),
    /// The release goes.
    Uninstall,
    /// afterDeleteHelm hooks, by index.
    After(usize),
    /// Bindings stop.
    Stop,
    /// Hooks end.
    Idle,
}

/// How far [`Task::Rollback`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackAt {
    /// The number of "the revision before the last" is found out and written down.
    Pin,
    /// The objects become those of this revision.
    Apply(u32),
    /// The request for this revision is taken off the `Application`.
    Settle(u32),
}

/// How far a step of [`Task::Remove`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveAt {
    /// The step is written down.
    Persist,
    /// Bindings start, because an earlier process stopped half-way and hooks need their snapshots.
    Bindings,
    /// The step itself; hooks by index.
    Act(usize),
    /// Hooks end.
    Idle,
}

/// A task of a hook queue.
#[derive(Debug, Clone, PartialEq)]
pub struct HookTask {
    /// Hook.
    pub hook: String,
    /// Why.
    pub trigger: Trigger,
    /// Enable waits for it.
    pub awaited: bool,
}
