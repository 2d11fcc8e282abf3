//! The steps of an operation and what each of them waits for.
//!
//! Everything that an operation does to the cluster is a step; a step begins when all steps that it comes after have
//! ended. So a plan can be printed, carried out as fast as it may be, and reported while it is carried out. The order is
//! Helm's, parts of it made stricter: definitions, hooks before, foundations, definitions, workloads, webhooks, custom
//! resources, removals, hooks after. Inside of a part one kind follows the other, and objects of one kind go together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use serde::{Deserialize, Serialize};

use super::directives::{Dependency, DependencyState, Directives, External};
use super::helm::{DeletePolicy, HelmHook, HookEvent};
use super::order::{Part, install_rank, remove_rank};
use super::{InventoryItem, ReleaseObject};
use crate::identity::ObjectRef;
use crate::operation::Propagation;

/// A step of a plan: its place in [`super::Plan::steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub u32);

impl StepId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Work {
    /// Nothing: what comes after waits for all that came before.
    Stage {
        /// What has ended here, for people.
        name: String,
    },
    /// Create or upgrade a definition of `crds/`.
    Define {
        /// Index in [`super::Plan::definitions`].
        definition: usize,
    },
    /// Wait until the API server serves what a definition of `crds/` defines.
    Defined {
        /// Index in [`super::Plan::definitions`].
        definition: usize,
    },
    /// Apply an object of the release.
    Apply {
        /// Index in [`super::Plan::objects`].
        object: usize,
    },
    /// Wait until an object of the release is ready.
    Ready {
        /// Index in [`super::Plan::objects`].
        object: usize,
    },
    /// Wait for an object of somebody else.
    Await {
        /// Which; its kind is as its author wrote it.
        external: External,
    },
    /// Apply the object of a hook, after what an earlier run left of it is gone.
    Hook {
        /// When.
        event: HookEvent,
        /// Index in the list of the event in [`super::Plan::hooks`].
        hook: usize,
    },
    /// Wait until a hook has ended: a Job or Pod until it succeeded or failed, everything else not at all.
    HookEnd {
        /// When.
        event: HookEvent,
        /// Index in the list of the event in [`super::Plan::hooks`].
        hook: usize,
    },
    /// Delete an object.
    Delete {
        /// Which.
        target: ObjectRef,
        /// What becomes of its dependants.
        propagation: Propagation,
        /// Why.
        cause: DeleteCause,
    },
    /// Wait until an object that was deleted is gone.
    Gone {
        /// Which.
        target: ObjectRef,
    },
}

/// Why a step deletes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeleteCause {
    /// The release dropped it.
    Dropped,
    /// The release goes.
    Removed,
    /// Its delete policy says so, now that it succeeded.
    Succeeded,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its place.
    pub id: StepId,
    /// What it does.
    #[serde(flatten)]
    pub work: Work,
    /// What must have ended before. All of these have lower numbers.
    pub after: Vec<StepId>,
    /// The operation is not over before it is.
    pub blocking: bool,
}

/// Steps wait for each other in a circle; the steps of it.
pub(super) struct Cycle(pub(super) Vec<Work>);

/// Steps in the making.
#[derive(Default)]
pub(super) struct Graph {
    steps: Vec<Step>,
    /// What a reader should know.
    pub(super) notes: Vec<String>,
}

/// The steps about one object of the release.
#[derive(Clone, Copy)]
struct OfObject {
    stage: usize,
    apply: StepId,
    ready: StepId,
}

impl Graph {
    fn push(&mut self, work: Work, after: &[StepId]) -> StepId {
        let id = StepId(u32::try_from(self.steps.len()).unwrap_or(u32::MAX));
        self.steps.push(Step { id, work, after: after.to_vec(), blocking: true });
        id
    }

    fn add_edge(&mut self, step: StepId, after: StepId) {
        if let Some(step) = self.steps.get_mut(step.index())
            && !step.after.contains(&after)
        {
            step.after.push(after);
        }
    }

    /// One gate in place of many steps.
    fn join(&mut self, name: &str, after: Vec<StepId>) -> Vec<StepId> {
        if after.len() <= 1 {
            return after;
        }
        vec![self.push(Work::Stage { name: name.to_owned() }, &after)]
    }

    /// Definitions of `crds/`, all at once.
    pub(super) fn definitions(&mut self, count: usize, gate: Vec<StepId>) -> Vec<StepId> {
        let served: Vec<StepId> = (0..count)
            .map(|definition| {
                let define = self.push(Work::Define { definition }, &gate);
                self.push(Work::Defined { definition }, &[define])
            })
            .collect();
        if served.is_empty() { gate } else { self.join("definitions", served) }
    }

    /// The hooks of an event: strictly one after the other; when all have succeeded, those that want to go then are
    /// deleted, last first.
    pub(super) fn hooks(&mut self, event: HookEvent, hooks: &[HelmHook], gate: Vec<StepId>) -> Vec<StepId> {
        let mut gate = gate;
        for hook in 0..hooks.len() {
            let begun = self.push(Work::Hook { event, hook }, &gate);
            gate = vec![self.push(Work::HookEnd { event, hook }, &[begun])];
        }
        for hook in hooks.iter().rev().filter(|hook| hook.is_deleted_by(DeletePolicy::HookSucceeded)) {
            let propagation = Directives::of(&hook.object).propagation.unwrap_or(Propagation::Background);
            let work = Work::Delete { target: hook.target.clone(), propagation, cause: DeleteCause::Succeeded };
            gate = vec![self.push(work, &gate)];
        }
        gate
    }

    /// The objects of a release, which are in order of installation.
    pub(super) fn objects(
        &mut self,
        objects: &[(ReleaseObject, Directives)],
        defined: &BTreeSet<(String, String)>,
        gate: Vec<StepId>,
    ) -> Vec<StepId> {
        let lowest = objects.iter().filter_map(|(_, directives)| directives.weight).min().unwrap_or(0).min(0);
        let groups: Vec<Group> = objects.iter().map(|(object, it)| Group::of(object, it, defined, lowest)).collect();
        let mut of_object: BTreeMap<usize, OfObject> = BTreeMap::new();
        let mut gate = gate;
        let mut stages: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, group) in groups.iter().enumerate() {
            stages.entry(group.stage).or_default().push(index);
        }
        for (stage, members) in stages {
            gate = self.stage(stage, &members, objects, &groups, &mut of_object, gate);
        }
        for (index, (object, directives)) in objects.iter().enumerate() {
            self.connect(index, object, &directives.dependencies, objects, &of_object);
        }
        gate
    }

    /// One stage: groups of equal weight and part, one after the other, each ready before the next; objects with
    /// dependencies of their own wait for these alone.
    fn stage(
        &mut self,
        stage: usize,
        members: &[usize],
        objects: &[(ReleaseObject, Directives)],
        groups: &[Group],
        of_object: &mut BTreeMap<usize, OfObject>,
        gate: Vec<StepId>,
    ) -> Vec<StepId> {
        let begin = gate.clone();
        let mut gate = gate;
        let mut pending: Vec<StepId> = Vec::new();
        let (free, ordered): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|index| objects.get(**index).is_some_and(|(_, it)| !it.dependencies.is_empty()));
        let group_of = |index: &usize| groups.get(*index);
        let mut ordered = ordered;
        ordered.sort_by_key(|index| group_of(index).map(|group| (group.weight, group.part)));
        for group in ordered
            .chunk_by(|a, b| group_of(a).map(|it| (it.weight, it.part)) == group_of(b).map(|it| (it.weight, it.part)))
        {
            let kind_of = |index: &usize| objects.get(*index).map(|(object, _)| object.target.gvk.kind.as_str());
            for kind in group.chunk_by(|a, b| kind_of(a) == kind_of(b)) {
                let mut applied = Vec::new();
                for index in kind {
                    let steps = self.object(*index, stage, objects, &gate, &mut pending);
                    applied.push(steps.apply);
                    of_object.insert(*index, steps);
                }
                let name = kind.first().and_then(kind_of).unwrap_or_default();
                gate = self.join(&format!("{name} applied"), applied);
            }
            let waits = group.first().and_then(group_of).is_some_and(|group| group.part != Part::Foundation);
            if waits {
                let name = group.first().and_then(group_of).map(Group::name).unwrap_or_default();
                let mut before = std::mem::take(&mut pending);
                before.extend(&gate);
                gate = self.join(&format!("{name} ready"), before);
            }
        }
        for index in free {
            let steps = self.object(index, stage, objects, &begin, &mut pending);
            of_object.insert(index, steps);
        }
        if !pending.is_empty() {
            pending.extend(&gate);
            gate = self.join("objects ready", pending);
        }
        for index in members {
            let Some((object, directives)) = objects.get(*index) else { continue };
            if directives.delete_policies.contains(&DeletePolicy::HookSucceeded) {
                let propagation = directives.propagation.unwrap_or(Propagation::Background);
                let target = object.target.clone();
                self.push(Work::Delete { target, propagation, cause: DeleteCause::Succeeded }, &gate);
            }
        }
        gate
    }

    fn object(
        &mut self,
        index: usize,
        stage: usize,
        objects: &[(ReleaseObject, Directives)],
        gate: &[StepId],
        pending: &mut Vec<StepId>,
    ) -> OfObject {
        let mut after = gate.to_vec();
        let directives = objects.get(index).map(|(_, directives)| directives);
        for external in directives.into_iter().flat_map(|it| &it.external) {
            after.push(self.push(Work::Await { external: external.clone() }, &[]));
        }
        let apply = self.push(Work::Apply { object: index }, &after);
        let ready = self.push(Work::Ready { object: index }, &[apply]);
        let blocking = !directives.is_some_and(|it| it.non_blocking);
        if let Some(step) = self.steps.last_mut() {
            step.blocking = blocking;
        }
        if blocking {
            pending.push(ready);
        }
        OfObject { stage, apply, ready }
    }

    fn connect(
        &mut self,
        index: usize,
        object: &ReleaseObject,
        dependencies: &[Dependency],
        objects: &[(ReleaseObject, Directives)],
        of_object: &BTreeMap<usize, OfObject>,
    ) {
        let Some(own) = of_object.get(&index).copied() else { return };
        for dependency in dependencies {
            let mut found = false;
            for (other, (candidate, _)) in objects.iter().enumerate() {
                let Some(steps) = of_object.get(&other).filter(|_| dependency.matches(&candidate.target)) else {
                    continue;
                };
                found = true;
                if steps.stage > own.stage {
                    let (target, other) = (&object.target, &candidate.target);
                    self.notes.push(format!(
                        "{target} cannot wait for {other}, which is deployed in a later stage: {} has no effect",
                        dependency.annotation
                    ));
                } else {
                    let ready = dependency.state == DependencyState::Ready;
                    self.add_edge(own.apply, if ready { steps.ready } else { steps.apply });
                }
            }
            if !found {
                let (target, annotation) = (&object.target, &dependency.annotation);
                self.notes.push(format!("{target}: nothing in the release matches {annotation}"));
            }
        }
    }

    /// Objects that go, one kind after the other, each waited for; those with dependencies of their own wait for these
    /// alone.
    pub(super) fn removals(&mut self, items: &[&InventoryItem], cause: DeleteCause, gate: Vec<StepId>) -> Vec<StepId> {
        let begin = gate.clone();
        let mut gate = gate;
        let mut going: BTreeMap<&ObjectRef, (StepId, StepId)> = BTreeMap::new();
        let (ordered, free): (Vec<&InventoryItem>, Vec<&InventoryItem>) =
            items.iter().partition(|item| item.delete_dependencies.is_empty());
        for kind in ordered.chunk_by(|a, b| a.target.gvk.kind == b.target.gvk.kind) {
            let mut asked = Vec::new();
            for item in kind {
                let steps = self.removal(item, cause, &gate);
                going.insert(&item.target, steps);
                asked.push(steps.0);
            }
            let name = kind.first().map_or("", |item| item.target.gvk.kind.as_str());
            gate = self.join(&format!("{name} deleted"), asked);
        }
        for item in &free {
            let steps = self.removal(item, cause, &begin);
            going.insert(&item.target, steps);
        }
        for item in free {
            let Some((delete, _)) = going.get(&item.target).copied() else { continue };
            for dependency in &item.delete_dependencies {
                let others = going.iter().filter(|(target, _)| dependency.matches(target) && **target != &item.target);
                let gone: Vec<StepId> = others.map(|(_, (_, gone))| *gone).collect();
                if gone.is_empty() {
                    let (target, annotation) = (&item.target, &dependency.annotation);
                    self.notes.push(format!("{target}: nothing that goes with it matches {annotation}"));
                }
                gone.into_iter().for_each(|gone| self.add_edge(delete, gone));
            }
        }
        let mut all_gone: Vec<StepId> = going.into_values().map(|(_, gone)| gone).collect();
        all_gone.sort_unstable();
        if all_gone.is_empty() { gate } else { self.join("objects gone", all_gone) }
    }

    fn removal(&mut self, item: &InventoryItem, cause: DeleteCause, gate: &[StepId]) -> (StepId, StepId) {
        let target = item.target.clone();
        let propagation = item.propagation.unwrap_or(Propagation::Background);
        let delete = self.push(Work::Delete { target: target.clone(), propagation, cause }, gate);
        (delete, self.push(Work::Gone { target }, &[delete]))
    }

    /// The steps in an order in which each comes after all that it waits for.
    pub(super) fn finish(self) -> Result<Vec<Step>, Cycle> {
        let mut missing: Vec<usize> = self.steps.iter().map(|step| step.after.len()).collect();
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for step in &self.steps {
            for before in &step.after {
                if let Some(list) = next.get_mut(before.index()) {
                    list.push(step.id.index());
                }
            }
        }
        // The lowest number first: steps stay in the order in which they were made, as far as that is possible.
        let mut free: BinaryHeap<Reverse<usize>> =
            missing.iter().enumerate().filter(|(_, missing)| **missing == 0).map(|(index, _)| Reverse(index)).collect();
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some(Reverse(index)) = free.pop() {
            order.push(index);
            for after in next.get(index).into_iter().flatten() {
                if let Some(count) = missing.get_mut(*after) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(Reverse(*after));
                    }
                }
            }
        }
        if order.len() < self.steps.len() {
            let done: BTreeSet<usize> = order.into_iter().collect();
            let stuck = self.steps.into_iter().enumerate().filter(|(index, _)| !done.contains(index));
            return Err(Cycle(stuck.map(|(_, step)| step.work).collect()));
        }
        let mut place = vec![StepId(0); self.steps.len()];
        for (new, old) in order.iter().enumerate() {
            if let Some(place) = place.get_mut(*old) {
                *place = StepId(u32::try_from(new).unwrap_or(u32::MAX));
            }
        }
        let at = |id: StepId| place.get(id.index()).copied().unwrap_or(id);
        let mut steps = self.steps;
        for step in &mut steps {
            step.id = at(step.id);
            step.after.iter_mut().for_each(|id| *id = at(*id));
            step.after.sort_unstable();
        }
        steps.sort_by_key(|step| step.id);
        Ok(steps)
    }
}

/// Where in the order of installation an object stands.
struct Group {
    stage: usize,
    weight: i32,
    part: Part,
}

impl Group {
    fn of(object: &ReleaseObject, directives: &Directives, defined: &BTreeSet<(String, String)>, lowest: i32) -> Self {
        let gvk = &object.target.gvk;
        let part = Part::of(gvk, defined.contains(&(gvk.group.clone(), gvk.kind.clone())));
        // Namespaces and definitions come with the first weight: everything else may need them.
        let first = part == Part::Definitions || gvk.kind == "Namespace";
        let weight = if first { lowest } else { directives.weight.unwrap_or(0) };
        let stage = match part {
            Part::Foundation | Part::Definitions | Part::Workloads => 0,
            Part::Admission => 1,
            Part::Custom => 2,
        };
        Self { stage, weight, part }
    }

    fn name(&self) -> String {
        let part = match self.part {
            Part::Foundation => "foundations",
            Part::Definitions => "definitions",
            Part::Workloads => "workloads",
            Part::Admission => "webhooks and APIs",
            Part::Custom => "custom resources",
        };
        if self.weight == 0 { part.to_owned() } else { format!("{part} of weight {}", self.weight) }
    }
}

/// Puts objects into the order of installation: stage, weight, part, kind; inside a kind as rendered.
pub(super) fn sort_for_install(objects: &mut [(ReleaseObject, Directives)], defined: &BTreeSet<(String, String)>) {
    let lowest = objects.iter().filter_map(|(_, directives)| directives.weight).min().unwrap_or(0).min(0);
    objects.sort_by_cached_key(|(object, directives)| {
        let group = Group::of(object, directives, defined, lowest);
        let kind = &object.target.gvk.kind;
        (group.stage, group.weight, group.part, install_rank(kind), kind.clone())
    });
}

/// Puts objects into the order of removal; inside a kind, those that were installed last go first.
pub(super) fn sort_for_removal(items: &mut [&InventoryItem]) {
    items.reverse();
    items.sort_by_key(|item| (remove_rank(&item.target.gvk.kind), item.target.gvk.kind.clone()));
}
