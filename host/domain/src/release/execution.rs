//! How far an operation is: which steps may begin, what a failure means, and what is to be tidied up after it.
//!
//! The one who performs an operation asks [`Execution::start`] what to begin, tells how each step ended, and asks again.
//! It decides nothing by itself.

use std::collections::BTreeSet;

use super::Plan;
use super::directives::Directives;
use super::graph::{DeleteCause, Step, StepId, Work};
use super::helm::DeletePolicy;
use crate::identity::ObjectRef;
use crate::operation::Propagation;

/// How a step ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The object was not there.
    Created,
    /// It was there and is different now.
    Configured,
    /// It was there and is the same.
    Unchanged,
    /// It could not be changed, or was to be made anew, and was.
    Recreated,
    /// It was asked to go.
    Deleted,
    /// What was waited for has come about, or there was nothing to do.
    Done,
    /// It was left alone; why.
    Left(String),
    /// It failed, and its author wants the release to go on; why.
    Tolerated(String),
}

/// How far a step is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    /// It waits for others.
    Pending,
    /// It is under way; why it is not done yet, once that is known.
    Running(Option<String>),
    /// It has ended well.
    Completed(Outcome),
    /// It failed; why.
    Failed(String),
    /// It never began, or was given up, because another failed.
    Canceled,
}

/// An object to delete after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanUp {
    /// Which.
    pub target: ObjectRef,
    /// What becomes of its dependants.
    pub propagation: Propagation,
}

/// An operation under way.
#[derive(Debug, Clone)]
pub struct Execution<'a> {
    plan: &'a Plan,
    states: Vec<StepState>,
    /// How many steps each still waits for.
    missing: Vec<usize>,
    next: Vec<Vec<StepId>>,
    free: BTreeSet<StepId>,
    failed: Option<StepId>,
    given_up: bool,
}

impl<'a> Execution<'a> {
    /// An operation that has not begun.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        let mut next = vec![Vec::new(); plan.steps.len()];
        for step in &plan.steps {
            for before in &step.after {
                if let Some(list) = next.get_mut(before.index()) {
                    list.push(step.id);
                }
            }
        }
        let free = plan.steps.iter().filter(|step| step.after.is_empty()).map(|step| step.id).collect();
        Self {
            plan,
            states: vec![StepState::Pending; plan.steps.len()],
            missing: plan.steps.iter().map(|step| step.after.len()).collect(),
            next,
            free,
            failed: None,
            given_up: false,
        }
    }

    /// The plan that is carried out.
    #[must_use]
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The next steps to begin, at most `most` of them; they count as begun. None after a failure.
    pub fn start(&mut self, most: usize) -> Vec<&'a Step> {
        let mut begun = Vec::new();
        while begun.len() < most && self.failed.is_none() && !self.given_up {
            let Some(id) = self.free.pop_first() else { break };
            let Some(step) = self.plan.steps.get(id.index()) else { continue };
            if let Work::Stage { .. } = step.work {
                self.complete(id, Outcome::Done);
                continue;
            }
            self.set(id, StepState::Running(None));
            begun.push(step);
        }
        begun
    }

    /// A step ended well.
    pub fn complete(&mut self, id: StepId, outcome: Outcome) {
        if self.is_over(id) {
            return;
        }
        self.set(id, StepState::Completed(outcome));
        for next in self.next.get(id.index()).cloned().unwrap_or_default() {
            if let Some(count) = self.missing.get_mut(next.index()) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.free.insert(next);
                }
            }
        }
    }

    /// A step failed. Says whether that ends the operation; it does not if the author of the object wants to go on.
    pub fn fail(&mut self, id: StepId, why: &str) -> bool {
        if self.is_over(id) {
            return false;
        }
        if self.is_tolerated(id) {
            self.complete(id, Outcome::Tolerated(why.to_owned()));
            return false;
        }
        self.set(id, StepState::Failed(why.to_owned()));
        self.failed.get_or_insert(id);
        true
    }

    /// Why a step that is under way is not done yet. Says whether that is news.
    pub fn waiting(&mut self, id: StepId, why: &str) -> bool {
        match self.states.get_mut(id.index()) {
            Some(StepState::Running(known)) if known.as_deref() != Some(why) => {
                *known = Some(why.to_owned());
                true
            }
            _ => false,
        }
    }

    /// Nothing more begins, and what has not ended has not come about.
    pub fn give_up(&mut self) {
        self.given_up = true;
        for state in &mut self.states {
            if matches!(state, StepState::Pending | StepState::Running(_)) {
                *state = StepState::Canceled;
            }
        }
    }

    /// Whether everything that the operation waits for has ended well. What nobody waits for may still be under way.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let ended = |step: &Step| matches!(self.state(step.id), StepState::Completed(_));
        self.failed.is_none() && self.plan.steps.iter().all(|step| !step.blocking || ended(step))
    }

    /// The step that failed first, and why.
    #[must_use]
    pub fn failure(&self) -> Option<(&'a Step, &str)> {
        let id = self.failed?;
        match (self.plan.steps.get(id.index()), self.states.get(id.index())) {
            (Some(step), Some(StepState::Failed(why))) => Some((step, why)),
            _ => None,
        }
    }

    /// How far a step is.
    #[must_use]
    pub fn state(&self, id: StepId) -> &StepState {
        self.states.get(id.index()).unwrap_or(&StepState::Canceled)
    }

    /// All steps with how far they are.
    pub fn states(&self) -> impl Iterator<Item = (&'a Step, &StepState)> {
        self.plan.steps.iter().zip(&self.states)
    }

    /// What is under way and why it is not done, for a time-out.
    pub fn unfinished(&self) -> impl Iterator<Item = (&'a Step, &str)> {
        self.states().filter_map(|(step, state)| match state {
            StepState::Running(why) => Some((step, why.as_deref().unwrap_or("it has not ended"))),
            _ => None,
        })
    }

    /// What to delete after a failure or when the operation is given up, in this order: the hook that failed and
    /// objects that failed, if they ask for it; then, last first, the hooks of the same event that had succeeded and
    /// wanted to go once all of them had.
    #[must_use]
    pub fn clean_up(&self) -> Vec<CleanUp> {
        let mut list: Vec<CleanUp> = Vec::new();
        let add = |list: &mut Vec<CleanUp>, target: &ObjectRef, directives: &Directives| {
            let propagation = directives.propagation.unwrap_or(Propagation::Background);
            if !list.iter().any(|known| known.target == *target) {
                list.push(CleanUp { target: target.clone(), propagation });
            }
        };
        for (step, state) in self.states() {
            let failed = matches!(state, StepState::Failed(_));
            match &step.work {
                Work::Hook { event, hook } | Work::HookEnd { event, hook } => {
                    if let Some(hook) = self.plan.hook(*event, *hook)
                        && failed
                        && hook.is_deleted_by(DeletePolicy::HookFailed)
                    {
                        add(&mut list, &hook.target, &Directives::of(&hook.object));
                    }
                }
                Work::Apply { object } | Work::Ready { object } if failed => {
                    if let Some(object) = self.plan.objects.get(*object) {
                        let directives = Directives::of(&object.object);
                        if directives.delete_policies.contains(&DeletePolicy::HookFailed) {
                            add(&mut list, &object.target, &directives);
                        }
                    }
                }
                // The deletions that a complete event ends with, and that were not reached.
                Work::Delete { target, propagation, cause: DeleteCause::Succeeded }
                    if !matches!(state, StepState::Completed(_))
                        && self.has_succeeded(target)
                        && !list.iter().any(|known| known.target == *target) =>
                {
                    list.push(CleanUp { target: target.clone(), propagation: *propagation });
                }
                _ => {}
            }
        }
        list
    }

    /// Whether a hook or an object was applied and came to a good end in this operation.
    fn has_succeeded(&self, target: &ObjectRef) -> bool {
        self.states().any(|(step, state)| {
            let about = match &step.work {
                Work::HookEnd { event, hook } => self.plan.hook(*event, *hook).map(|hook| &hook.target),
                Work::Ready { object } => self.plan.objects.get(*object).map(|object| &object.target),
                _ => None,
            };
            about == Some(target) && matches!(state, StepState::Completed(_))
        })
    }

    fn is_tolerated(&self, id: StepId) -> bool {
        let Some(step) = self.plan.steps.get(id.index()) else { return false };
        match step.work {
            Work::Ready { object } => {
                let directives = self.plan.objects.get(object).map(|object| Directives::of(&object.object));
                // What nobody waits for cannot fail the release either.
                directives.is_some_and(|it| it.tolerate_failure || it.non_blocking)
            }
            _ => false,
        }
    }

    fn is_over(&self, id: StepId) -> bool {
        matches!(self.state(id), StepState::Completed(_) | StepState::Failed(_) | StepState::Canceled)
    }

    fn set(&mut self, id: StepId, state: StepState) {
        if let Some(known) = self.states.get_mut(id.index()) {
            *known = state;
        }
    }
}
