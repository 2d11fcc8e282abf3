//! The removal of a release, and the run of its tests.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{DeleteCause, Graph, sort_for_removal};
use super::order::{self, Part};
use super::{HelmHook, HookEvent, InventoryItem, Plan, ReleaseAction};
use crate::identity::ApplicationId;

/// What a removal is made of.
#[derive(Debug, Clone)]
pub struct RemovalInput<'a> {
    /// The application.
    pub application: &'a ApplicationId,
    /// Name of its package.
    pub package: &'a str,
    /// What may be in the cluster.
    pub inventory: &'a [InventoryItem],
    /// Group and kind of the custom resources that the release defines, see [`super::defined_by`].
    pub defined: &'a BTreeSet<(String, String)>,
    /// The hooks of the release, by event.
    pub hooks: &'a BTreeMap<HookEvent, Vec<HelmHook>>,
    /// No hook runs: those of a release that cannot be removed otherwise.
    pub skip_hooks: bool,
}

/// Plans the removal of a release: hooks before; webhooks, custom resources before their definition and while their
/// operator still runs, workloads, definitions, and at last configuration and accounts; hooks after.
#[must_use]
pub fn plan_removal(input: &RemovalInput<'_>) -> Plan {
    let mut parts: BTreeMap<u8, Vec<&InventoryItem>> = BTreeMap::new();
    let mut kept = Vec::new();
    for item in input.inventory {
        if item.keep {
            kept.push(item.target.clone());
            continue;
        }
        let gvk = &item.target.gvk;
        let part = match Part::of(gvk, input.defined.contains(&(gvk.group.clone(), gvk.kind.clone()))) {
            Part::Admission => 0,
            Part::Custom => 1,
            // A custom resource whose definition is not in the release: an operator elsewhere looks after it.
            Part::Workloads if !order::is_known(&gvk.kind) => 1,
            Part::Workloads => 2,
            Part::Definitions => 3,
            Part::Foundation => 4,
        };
        parts.entry(part).or_default().push(item);
    }
    let hooks = if input.skip_hooks { BTreeMap::new() } else { input.hooks.clone() };
    let of = |event: HookEvent| hooks.get(&event).map_or(&[] as &[HelmHook], Vec::as_slice);
    let mut graph = Graph::default();
    let mut gate = graph.hooks(HookEvent::PreDelete, of(HookEvent::PreDelete), Vec::new());
    let mut prune = Vec::new();
    for mut items in parts.into_values() {
        sort_for_removal(&mut items);
        gate = graph.removals(&items, DeleteCause::Removed, gate);
        prune.extend(items.iter().map(|item| item.target.clone()));
    }
    graph.hooks(HookEvent::PostDelete, of(HookEvent::PostDelete), gate);
    let notes = std::mem::take(&mut graph.notes);
    let (steps, notes) = match graph.finish() {
        Ok(steps) => (steps, notes),
        // Dependencies that wait for each other are no reason to keep a release for ever.
        Err(_) => {
            let free: Vec<InventoryItem> = input
                .inventory
                .iter()
                .map(|item| InventoryItem { delete_dependencies: Vec::new(), ..item.clone() })
                .collect();
            let mut plan = plan_removal(&RemovalInput { inventory: &free, ..input.clone() });
            plan.notes.push("the delete dependencies of the release wait for each other and have no effect".to_owned());
            return plan;
        }
    };
    Plan {
        action: ReleaseAction::Uninstall,
        hooks,
        steps,
        previous: input.inventory.iter().map(|item| item.target.clone()).collect(),
        prune,
        kept,
        notes,
        ..Plan::empty(input.application, input.package, ReleaseAction::Uninstall)
    }
}

/// Plans a run of the tests of a release: its hooks of [`HookEvent::Test`].
#[must_use]
pub fn plan_test(application: &ApplicationId, package: &str, hooks: &BTreeMap<HookEvent, Vec<HelmHook>>) -> Plan {
    let mut graph = Graph::default();
    let tests = hooks.get(&HookEvent::Test).cloned().unwrap_or_default();
    graph.hooks(HookEvent::Test, &tests, Vec::new());
    let mut plan = Plan::empty(application, package, ReleaseAction::Test);
    // Hooks alone never wait for each other in a circle.
    plan.steps = graph.finish().unwrap_or_default();
    plan.hooks = BTreeMap::from([(HookEvent::Test, tests)]);
    plan
}
