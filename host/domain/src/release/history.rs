//! The history of a release as data: which revision a new one starts from, whether it may begin, and which ones go.
//!
//! The stored records are read and written elsewhere; here is only what follows from them.

use std::time::Duration;

use jiff::Timestamp;

use super::ReleaseStatus;

#[cfg(test)]
mod tests;

/// How long an owner without a sign of life is respected: six heartbeats of ten seconds.
pub const OWNER_STALE: Duration = Duration::from_secs(60);
/// How far ahead the clock of an owner may be. What is later still is no sign of life but nonsense, and would otherwise
/// lock a release for as long.
pub const CLOCK_AHEAD: Duration = Duration::from_secs(5 * 60);
/// Revisions that are kept, as many as Helm keeps.
pub const KEPT_REVISIONS: usize = 10;

/// What a new revision does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The first that is to be deployed.
    Install,
    /// A later one.
    Upgrade,
    /// An earlier one again.
    Rollback,
}

impl Action {
    /// Status of a revision of it that is under way.
    #[must_use]
    pub fn pending(self) -> ReleaseStatus {
        match self {
            Self::Install => ReleaseStatus::PendingInstall,
            Self::Upgrade => ReleaseStatus::PendingUpgrade,
            Self::Rollback => ReleaseStatus::PendingRollback,
        }
    }
}

/// The process that works on a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name; no two processes have the same.
    pub name: String,
    /// Its last sign of life, by its own clock.
    pub seen: Timestamp,
}

impl Owner {
    /// Whether it gave a sign of life not long ago.
    #[must_use]
    pub fn lives(&self, now: Timestamp) -> bool {
        let silence = now.duration_since(self.seen);
        if silence.is_negative() { silence.unsigned_abs() <= CLOCK_AHEAD } else { silence.unsigned_abs() < OWNER_STALE }
    }
}

/// What is known of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number; the first is 1.
    pub number: u32,
    /// Its status.
    pub status: ReleaseStatus,
    /// The process that works on it. Helm writes none.
    pub owner: Option<Owner>,
    /// When it was begun.
    pub begun: Option<Timestamp>,
}

/// Why nothing may begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A revision is under way.
    #[error("revision {revision} is {} by {}", status.as_str(), by.as_deref().unwrap_or("somebody who left no name"))]
    InProgress {
        /// Its number.
        revision: u32,
        /// What is under way.
        status: ReleaseStatus,
        /// Who does it.
        by: Option<String>,
    },
    /// There is nothing to upgrade or to go back to.
    #[error("there is no release yet")]
    NoRelease,
    /// There is one already.
    #[error("revision {revision} is deployed already")]
    AlreadyInstalled {
        /// The deployed revision.
        revision: u32,
    },
    /// It was removed and its history kept.
    #[error("the release was removed with revision {revision}, and its history was kept")]
    Uninstalled {
        /// The last revision.
        revision: u32,
    },
}

impl Refusal {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InProgress { .. } => "ReleaseInProgress",
            Self::NoRelease => "NoRelease",
            Self::AlreadyInstalled { .. } => "ReleaseExists",
            Self::Uninstalled { .. } => "ReleaseUninstalled",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InProgress { by: Some(_), .. } => {
                "wait until it ends; if its process is dead, it counts as failed soon"
            }
            Self::InProgress { by: None, .. } => "roll back to an earlier revision, or wait until it counts as failed",
            Self::NoRelease => "install it first",
            Self::AlreadyInstalled { .. } => "upgrade it",
            Self::Uninstalled { .. } => "roll back to one of its revisions, or delete its history",
        }
    }
}

/// Whether the last revision is pending and nobody works on it any more; it counts as failed then.
///
/// Helm leaves no owner. Its pending revision is believed for as long as an apply may take at most.
#[must_use]
pub fn is_abandoned(last: &Revision, me: &str, now: Timestamp) -> bool {
    if !last.status.is_pending() {
        return false;
    }
    match (&last.owner, last.begun) {
        (Some(owner), _) => owner.name == me || !owner.lives(now),
        (None, Some(begun)) => {
            let age = now.duration_since(begun);
            age.unsigned_abs() > crate::limits::APPLY_DEADLINE
        }
        // It does not even say when.
        (None, None) => true,
    }
}

/// Whether a revision may begin. `history` is oldest first, `me` the process that asks.
///
/// # Errors
/// [`Refusal`].
pub fn may_begin(history: &[Revision], action: Action, me: &str, now: Timestamp) -> Result<(), Refusal> {
    let Some(last) = history.last() else {
        return if action == Action::Install { Ok(()) } else { Err(Refusal::NoRelease) };
    };
    let in_progress = || Refusal::InProgress {
        revision: last.number,
        status: last.status,
        by: last.owner.as_ref().map(|it| it.name.clone()),
    };
    match last.status {
        status if status.is_pending() => {
            // A rollback is the way out of what nobody owns up to; what somebody is doing it does not interrupt.
            let way_out = action == Action::Rollback && last.owner.is_none();
            if !way_out && !is_abandoned(last, me, now) {
                return Err(in_progress());
            }
        }
        // A removal that stopped half-way may be repeated, and it may be thought better of.
        ReleaseStatus::Uninstalling if last.owner.as_ref().is_some_and(|it| it.name != me && it.lives(now)) => {
            return Err(in_progress());
        }
        ReleaseStatus::Uninstalled if action != Action::Rollback => {
            return Err(Refusal::Uninstalled { revision: last.number });
        }
        _ => {}
    }
    match deployed(history) {
        Some(revision) if action == Action::Install => Err(Refusal::AlreadyInstalled { revision }),
        _ => Ok(()),
    }
}

/// Whether the objects of a release may be removed, that is whether nobody else works on it.
///
/// # Errors
/// [`Refusal::InProgress`].
pub fn may_remove(history: &[Revision], me: &str, now: Timestamp) -> Result<(), Refusal> {
    let Some(last) = history.last() else { return Ok(()) };
    let busy = match last.status {
        status if status.is_pending() => !is_abandoned(last, me, now),
        _ => last.owner.as_ref().is_some_and(|owner| owner.name != me && owner.lives(now)),
    };
    let by = last.owner.as_ref().map(|it| it.name.clone());
    if busy { Err(Refusal::InProgress { revision: last.number, status: last.status, by }) } else { Ok(()) }
}

/// The deployed revision: the highest, for after a crash there may be two.
#[must_use]
pub fn deployed(history: &[Revision]) -> Option<u32> {
    history.iter().filter(|it| it.status == ReleaseStatus::Deployed).map(|it| it.number).max()
}

/// The revision that a new one is compared with: the deployed one, else the last. A first revision that failed is good
/// enough: what it wrote is what there is.
#[must_use]
pub fn base(history: &[Revision]) -> Option<u32> {
    deployed(history).or_else(|| history.iter().map(|it| it.number).max())
}

/// What a new revision is: an installation as long as nothing was ever deployed, as Helm counts.
#[must_use]
pub fn next_action(history: &[Revision]) -> Action {
    let was_deployed = |it: &Revision| matches!(it.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded);
    if history.iter().any(was_deployed) { Action::Upgrade } else { Action::Install }
}

/// Number of the next revision. The numbers of records that cannot be read count too: they are taken.
#[must_use]
pub fn next_number(taken: impl IntoIterator<Item = u32>) -> u32 {
    taken.into_iter().max().unwrap_or(0).saturating_add(1)
}

/// There is no such revision to go back to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no revision {wanted} to go back to")]
pub struct NoSuchRevision {
    /// What was asked for.
    pub wanted: u32,
    /// What there is, oldest first.
    pub kept: Vec<u32>,
}

impl NoSuchRevision {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        "NoSuchRevision"
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        let kept: Vec<String> = self.kept.iter().map(u32::to_string).collect();
        if kept.is_empty() { "there is no release".to_owned() } else { format!("there are: {}", kept.join(", ")) }
    }
}

/// The revision that a rollback goes to; 0 means the number before the last, whatever its status.
///
/// # Errors
/// [`NoSuchRevision`].
pub fn rollback_target(history: &[Revision], wanted: u32) -> Result<u32, NoSuchRevision> {
    let last = history.iter().map(|it| it.number).max().unwrap_or(0);
    let wanted = if wanted == 0 { last.saturating_sub(1) } else { wanted };
    if history.iter().any(|it| it.number == wanted) {
        return Ok(wanted);
    }
    Err(NoSuchRevision { wanted, kept: history.iter().map(|it| it.number).collect() })
}

/// The revision that a failed upgrade goes back to by itself: the newest before `failed` that was deployed.
#[must_use]
pub fn last_good(history: &[Revision], failed: u32) -> Option<u32> {
    history
        .iter()
        .filter(|it| it.number < failed)
        .filter(|it| matches!(it.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded))
        .map(|it| it.number)
        .max()
}

/// The revisions that go before a new one is created, oldest first, so that with it there are at most `kept`; 0 keeps all.
/// The deployed one never goes.
#[must_use]
pub fn surplus(history: &[Revision], kept: usize) -> Vec<u32> {
    if kept == 0 {
        return Vec::new();
    }
    let deployed = deployed(history);
    let mut numbers: Vec<u32> = history.iter().map(|it| it.number).collect();
    numbers.sort_unstable();
    let surplus = (numbers.len() + 1).saturating_sub(kept);
    numbers.into_iter().filter(|number| Some(*number) != deployed).take(surplus).collect()
}
