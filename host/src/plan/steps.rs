//! The steps of a plan, for people: which begin together, and what they wait for.

use std::collections::BTreeMap;

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::{DeleteCause, HookEvent, Plan, Step, StepId, Work};
use serde::Serialize;

/// A step, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepPart {
    /// Its number.
    pub id: u32,
    /// Numbers of the steps that must have ended before.
    pub after: Vec<u32>,
    /// What it does: `apply`, `ready`, `hook`, `delete`…
    #[serde(rename = "do")]
    pub act: &'static str,
    /// The same in words, such as `apply ConfigMap default/a`.
    pub words: String,
    /// The object that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectRef>,
    /// Moment of a Helm hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<HookEvent>,
    /// The operation is not over before it has ended.
    pub blocking: bool,
}

/// Steps that begin together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What is done, by act: `apply` and the objects.
    pub acts: Vec<(String, Vec<String>)>,
    /// What has to be so before.
    pub after: Vec<String>,
}

/// All steps of a plan.
#[must_use]
pub(super) fn steps(plan: &Plan) -> Vec<StepPart> {
    plan.steps
        .iter()
        .map(|step| StepPart {
            id: step.id.0,
            after: step.after.iter().map(|id| id.0).collect(),
            act: act(&step.work),
            words: words(plan, step),
            target: plan.target_of(step).cloned(),
            event: event(&step.work),
            blocking: step.blocking,
        })
        .collect()
}

/// Steps that change the cluster, those together that begin together.
#[must_use]
pub(super) fn stages(plan: &Plan) -> Vec<Stage> {
    let mut levels: Vec<usize> = Vec::with_capacity(plan.steps.len());
    let mut stages: BTreeMap<usize, Stage> = BTreeMap::new();
    for step in &plan.steps {
        let level = |id: &StepId| levels.get(id.index()).copied().unwrap_or(0);
        let before = step.after.iter().map(level).max().unwrap_or(0);
        let acts =
            matches!(step.work, Work::Define { .. } | Work::Apply { .. } | Work::Hook { .. } | Work::Delete { .. });
        let own = before + usize::from(acts);
        levels.push(own);
        if !acts {
            continue;
        }
        let stage = stages.entry(own).or_insert_with(|| Stage { acts: Vec::new(), after: Vec::new() });
        let (verb, object) = verb_and_object(plan, step);
        match stage.acts.iter_mut().find(|(known, _)| *known == verb) {
            Some((_, objects)) => objects.push(object),
            None => stage.acts.push((verb, vec![object])),
        }
        for before in step.after.iter().filter_map(|id| plan.steps.get(id.index())) {
            let condition = condition(plan, before);
            if !stage.after.contains(&condition) {
                stage.after.push(condition);
            }
        }
    }
    stages.into_values().collect()
}

fn act(work: &Work) -> &'static str {
    match work {
        Work::Stage { .. } => "stage",
        Work::Define { .. } => "define",
        Work::Defined { .. } => "defined",
        Work::Apply { .. } => "apply",
        Work::Ready { .. } => "ready",
        Work::Await { .. } => "await",
        Work::Hook { .. } => "hook",
        Work::HookEnd { .. } => "hookEnd",
        Work::Delete { .. } => "delete",
        Work::Gone { .. } => "gone",
    }
}

fn event(work: &Work) -> Option<HookEvent> {
    match work {
        Work::Hook { event, .. } | Work::HookEnd { event, .. } => Some(*event),
        _ => None,
    }
}

fn name(plan: &Plan, step: &Step) -> String {
    plan.target_of(step).map(short).unwrap_or_default()
}

/// `ConfigMap/a`, `Deployment.apps/web`: the namespace is that of the application.
#[must_use]
pub(super) fn short(target: &ObjectRef) -> String {
    match target.gvk.group.as_str() {
        "" => format!("{}/{}", target.gvk.kind, target.name),
        group => format!("{}.{group}/{}", target.gvk.kind, target.name),
    }
}

fn verb_and_object(plan: &Plan, step: &Step) -> (String, String) {
    let verb = match &step.work {
        Work::Define { .. } => "define".to_owned(),
        Work::Hook { event, .. } => format!("{} hook", event.as_str()),
        Work::Delete { cause: DeleteCause::Succeeded, .. } => "delete after success".to_owned(),
        Work::Delete { .. } => "delete".to_owned(),
        _ => "apply".to_owned(),
    };
    (verb, name(plan, step))
}

fn words(plan: &Plan, step: &Step) -> String {
    match &step.work {
        Work::Stage { name } => name.clone(),
        Work::Define { .. } | Work::Apply { .. } | Work::Hook { .. } | Work::Delete { .. } => {
            let (verb, object) = verb_and_object(plan, step);
            format!("{verb} {object}")
        }
        Work::Defined { .. } | Work::Ready { .. } | Work::Await { .. } | Work::HookEnd { .. } | Work::Gone { .. } => {
            format!("wait until {}", condition(plan, step))
        }
    }
}

/// What is so when a step has ended.
fn condition(plan: &Plan, step: &Step) -> String {
    match &step.work {
        Work::Stage { name } => name.clone(),
        Work::Define { .. } | Work::Apply { .. } => format!("{} is applied", name(plan, step)),
        Work::Defined { .. } => format!("{} is served", name(plan, step)),
        Work::Ready { .. } => format!("{} is ready", name(plan, step)),
        Work::Await { external } => format!("{external} is ready"),
        Work::Hook { .. } => format!("hook {} has begun", name(plan, step)),
        Work::HookEnd { .. } => format!("hook {} has ended", name(plan, step)),
        Work::Delete { .. } => format!("{} is deleted", name(plan, step)),
        Work::Gone { .. } => format!("{} is gone", name(plan, step)),
    }
}

#[cfg(test)]
mod tests;
