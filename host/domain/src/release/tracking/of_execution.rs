//! What is shown of an operation that is under way.
//!
//! Every step of the plan is one operation of the report, and has there the number that `barbless plan` gives it. What
//! nobody waits for is left out: nobody would ever say how it ended.

use std::collections::BTreeSet;

use super::{OperationStatus, OperationType, TrackedOperation, Tracking};
use crate::identity::ObjectRef;
use crate::release::{Execution, Outcome, Plan, Step, StepId, StepState, Work};

impl Tracking {
    /// How far an operation is. `is_absent` says of an object of the plan that it is known not to be there yet: it is
    /// going to be created. What is done to the others is known once it is done.
    #[must_use]
    pub fn of_execution(execution: &Execution<'_>, is_absent: impl Fn(&ObjectRef) -> bool) -> Self {
        let plan = execution.plan();
        let waited_for: BTreeSet<StepId> = plan.steps.iter().flat_map(|step| step.after.iter().copied()).collect();
        let shown = |step: &Step| step.blocking || waited_for.contains(&step.id);
        let operations = execution.states().filter(|(step, _)| shown(step)).map(|(step, state)| {
            let target = target(plan, step);
            let r#type = r#type(&step.work, state, || target.as_ref().is_some_and(&is_absent));
            let name = match &step.work {
                Work::Stage { name } => name.clone(),
                _ => target.as_ref().map(|target| target.name.clone()).unwrap_or_default(),
            };
            let ObjectRef { gvk, namespace, .. } = target.unwrap_or_else(nothing);
            TrackedOperation {
                id: id(step.id),
                depends_on: step.after.iter().map(|before| id(*before)).collect(),
                group: gvk.group,
                version: gvk.version,
                kind: gvk.kind,
                name,
                namespace,
                r#type,
                status: status(state),
            }
        });
        Self::of(operations.collect())
    }
}

fn id(step: StepId) -> String {
    step.0.to_string()
}

/// What a step is about; an object of others as its author wrote it.
fn target(plan: &Plan, step: &Step) -> Option<ObjectRef> {
    match &step.work {
        Work::Await { external } => Some(external.reference(&plan.application)),
        _ => plan.target_of(step).cloned(),
    }
}

/// No object: the end of a stage.
fn nothing() -> ObjectRef {
    let gvk = crate::identity::Gvk { group: String::new(), version: String::new(), kind: String::new() };
    ObjectRef { gvk, namespace: String::new(), name: String::new() }
}

fn r#type(work: &Work, state: &StepState, is_absent: impl Fn() -> bool) -> OperationType {
    match (work, state) {
        (Work::Stage { .. }, _) => OperationType::StageEnd,
        (Work::Await { .. }, _) => OperationType::TrackPresence,
        (Work::Defined { .. } | Work::Ready { .. } | Work::HookEnd { .. }, _) => OperationType::TrackReadiness,
        (Work::Gone { .. }, _) => OperationType::TrackAbsence,
        (Work::Delete { .. }, StepState::Completed(Outcome::Deleted)) => OperationType::Delete,
        (Work::Delete { .. }, StepState::Completed(_)) => OperationType::NoOp,
        (Work::Delete { .. }, _) => OperationType::Delete,
        (Work::Define { .. } | Work::Apply { .. } | Work::Hook { .. }, StepState::Completed(outcome)) => {
            match outcome {
                Outcome::Created => OperationType::Create,
                Outcome::Configured => OperationType::Apply,
                Outcome::Recreated => OperationType::Recreate,
                Outcome::Unchanged | Outcome::Left(_) | Outcome::Done | Outcome::Deleted | Outcome::Tolerated(_) => {
                    OperationType::NoOp
                }
            }
        }
        (Work::Apply { .. }, _) if is_absent() => OperationType::Create,
        (Work::Define { .. } | Work::Apply { .. } | Work::Hook { .. }, _) => OperationType::Apply,
    }
}

fn status(state: &StepState) -> OperationStatus {
    match state {
        StepState::Pending => OperationStatus::Pending,
        StepState::Running(_) => OperationStatus::Progressing,
        // The release goes on, and yet it is not ready: who reads the report is to see that.
        StepState::Completed(Outcome::Tolerated(_)) | StepState::Failed(_) => OperationStatus::Failed,
        StepState::Completed(_) => OperationStatus::Completed,
        StepState::Canceled => OperationStatus::Canceled,
    }
}

#[cfg(test)]
mod tests;
