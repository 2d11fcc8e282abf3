//! How far an apply, a rollback or a removal of a release is, as data: what `status.tracking` of an `Application` shows.
//!
//! The shape is nelm's since 1.31: `{completed, remaining, report: {operations: […]}}`. A report of a large release is
//! cut before it is shown, because it is written into an object: see [`Tracking::bounded`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::{TRACKED_OPERATIONS, TRACKING_BYTES};
use crate::run::Sum;

mod of_execution;
#[cfg(test)]
mod tests;

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Tracking {
    /// Operations on objects, and waits for them, that are done.
    pub completed: u32,
    /// Those that are not.
    pub remaining: u32,
    /// All of them, or those that matter if there are too many; in the order of the plan.
    pub operations: Vec<TrackedOperation>,
}

/// One operation, or one wait, of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrackedOperation {
    /// What it is called in the plan: the number of the step, as `barbless plan` shows it. Unique in a report.
    pub id: String,
    /// The operations that come before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Group of the object; empty for the core group, and for operations that are about no object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Version of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its name. Of a part of the plan, what has ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// What is done.
    pub r#type: OperationType,
    /// How far it is.
    pub status: OperationStatus,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OperationType {
    /// An object is created.
    Create,
    /// An object is changed by a replacement.
    Update,
    /// An object is changed by a server-side apply.
    Apply,
    /// An object is deleted and created again.
    Recreate,
    /// An object is deleted.
    Delete,
    /// An object is as it should be.
    NoOp,
    /// It is waited until an object is ready.
    TrackReadiness,
    /// It is waited until an object is there.
    TrackPresence,
    /// It is waited until an object is gone.
    TrackAbsence,
    /// A part of the plan begins.
    StageStart,
    /// A part of the plan ends.
    StageEnd,
}

impl OperationType {
    /// Whether it counts in [`Tracking::completed`] and [`Tracking::remaining`]: parts of the plan do not.
    #[must_use]
    pub fn counts(self) -> bool {
        !matches!(self, Self::StageStart | Self::StageEnd)
    }
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OperationStatus {
    /// It failed.
    Failed,
    /// It is under way.
    Progressing,
    /// It has not begun.
    Pending,
    /// It was given up because something else failed, or because somebody stopped the whole.
    Canceled,
    /// It is done.
    Completed,
}

impl Tracking {
    /// A report of these operations, with its numbers.
    #[must_use]
    pub fn of(operations: Vec<TrackedOperation>) -> Self {
        let count = |done: bool| {
            let counted = operations.iter().filter(|it| it.r#type.counts());
            let those = counted.filter(|it| (it.status == OperationStatus::Completed) == done).count();
            u32::try_from(those).unwrap_or(u32::MAX)
        };
        Self { completed: count(true), remaining: count(false), operations }
    }

    /// Whether it says nothing. Such a report is not shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.completed == 0 && self.remaining == 0 && self.operations.is_empty()
    }

    /// The same report, small enough to be shown: one that is too large names only what is not done, and of that first
    /// what failed, then what is under way. The numbers stay those of the whole.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let weights: Vec<usize> = self.operations.iter().map(|it| Sum::of(it).bytes + 1).collect();
        if self.operations.len() <= TRACKED_OPERATIONS && weights.iter().sum::<usize>() <= TRACKING_BYTES {
            return self;
        }
        let mut order: Vec<usize> = (0..self.operations.len()).collect();
        let status = |index: &usize| self.operations.get(*index).map(|it| it.status);
        order.retain(|index| status(index) != Some(OperationStatus::Completed));
        order.sort_by_key(status);
        let mut left = TRACKING_BYTES;
        let mut kept = BTreeSet::new();
        for index in order.into_iter().take(TRACKED_OPERATIONS) {
            // One that is too large by itself does not keep the others out.
            if let Some(rest) = weights.get(index).and_then(|weight| left.checked_sub(*weight)) {
                left = rest;
                kept.insert(index);
            }
        }
        let mut index = 0;
        self.operations.retain(|_| {
            index += 1;
            kept.contains(&(index - 1))
        });
        // What is not listed is depended on by nobody who reads this.
        let listed: BTreeSet<String> = self.operations.iter().map(|it| it.id.clone()).collect();
        for operation in &mut self.operations {
            operation.depends_on.retain(|id| listed.contains(id));
        }
        self
    }
}

/// The shape in the `Application`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    completed: u32,
    #[serde(default)]
    remaining: u32,
    #[serde(default)]
    report: Report,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Report {
    #[serde(default)]
    operations: Vec<TrackedOperation>,
}

impl From<Wire> for Tracking {
    fn from(Wire { completed, remaining, report: Report { operations } }: Wire) -> Self {
        Self { completed, remaining, operations }
    }
}

impl From<Tracking> for Wire {
    fn from(Tracking { completed, remaining, operations }: Tracking) -> Self {
        Self { completed, remaining, report: Report { operations } }
    }
}
