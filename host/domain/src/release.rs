//! A release as data: what will be applied, in which order, what goes, and whether anything has to be done at all.
//!
//! [`plan`] takes the rendered objects of a package and makes of them a [`Plan`] that can be printed, compared and
//! performed. It refuses what must not reach a cluster, all problems at once, before anything is written. Nothing here
//! talks to a cluster: where a kind lives is asked of a function. [`Execution`] says, while a plan is performed, what may
//! begin and what a failure means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grant::Scope;
use crate::identity::{ApplicationId, Gvk, ObjectRef};
use crate::operation::Propagation;

mod accept;
pub mod conflict;
mod definition;
mod digest;
mod directives;
mod execution;
mod failures;
mod graph;
mod helm;
pub mod history;
mod order;
mod output;
mod removal;
mod status;
#[cfg(test)]
mod tests;
pub mod tracking;
mod unchanged;

pub use accept::belongs_to_host;
pub use definition::{UnsafeDefinition, check_definition};
pub use digest::digest;
pub use directives::{
    BadAnnotation, Dependency, DependencyState, Directives, External, Ownership, Phase, ResourcePolicy,
    YIELD_ANNOTATION,
};
pub use execution::{CleanUp, Execution, Outcome, StepState};
pub use failures::{PodFailures, failures_allowed};
pub use graph::{DeleteCause, Step, StepId, Work};
pub use helm::{DeletePolicy, HOOK_ANNOTATION, HelmHook, HookEvent, is_kept, sort_hooks};
pub use order::{install_rank, remove_rank};
pub use output::{OUTPUT_LINES, Speaker, last_words, shows_output_of_failure, speakers};
pub use removal::{RemovalInput, plan_removal, plan_test};
pub use status::{ReleaseStatus, UpgradeReason, upgrade_needed};
pub use unchanged::changes_nothing;

use graph::{Graph, sort_for_install, sort_for_removal};

/// Label of everything that a package brings.
pub const HERITAGE_LABEL: &str = "heritage";
/// Value of [`HERITAGE_LABEL`].
pub const HERITAGE: &str = "deckhouse";
/// Label of the objects of an application whose resources are left alone.
pub const MAINTENANCE_LABEL: &str = "maintenance.deckhouse.io/no-resource-reconciliation";
/// Annotation with `<namespace>.<name>` on cluster-scoped objects, where the name in the instance label
/// ([`crate::grant::INSTANCE_LABEL`]) does not tell two applications of different namespaces apart. A label would be too
/// short for it.
pub const APPLICATION_ANNOTATION: &str = "packages.deckhouse.io/application";
/// Objects in one release: etcd holds the release record, and a package of more objects than this is a mistake.
pub const OBJECTS_MAX: usize = 5_000;

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does what it is for.
    Ready,
    /// It is on its way; why it is not ready.
    Waiting(String),
    /// It will not become ready by itself; why.
    Failed(String),
}

/// One rendered object.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The object.
    pub object: Value,
    /// Template that rendered it, for messages.
    pub source: String,
}

/// What is done to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReleaseAction {
    /// The first apply.
    Install,
    /// A later one.
    Upgrade,
    /// An earlier revision is applied again.
    Rollback,
    /// It is removed.
    Uninstall,
    /// Its tests are run.
    Test,
}

impl ReleaseAction {
    /// Whether it applies the objects of the release.
    #[must_use]
    pub fn applies(self) -> bool {
        matches!(self, Self::Install | Self::Upgrade | Self::Rollback)
    }

    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Uninstall => "uninstall",
            Self::Test => "test",
        }
    }
}

/// An object of the inventory of an earlier apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InventoryItem {
    /// The object.
    #[serde(flatten)]
    pub target: ObjectRef,
    /// It stays when the release drops it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// It may be missing although nobody deleted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
    /// What becomes of its dependants when it is deleted, if its author says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Propagation>,
    /// What must be gone before it is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete_dependencies: Vec<Dependency>,
}

impl InventoryItem {
    /// The item of an object; nothing for one that has no name.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let directives = Directives::of(object);
        Some(Self {
            target: ObjectRef::of(object).ok()?,
            keep: directives.is_kept(),
            transient: directives.may_be_absent(object),
            propagation: directives.propagation,
            delete_dependencies: directives.delete_dependencies,
        })
    }

    /// The inventory of objects; one that has no name is left out.
    #[must_use]
    pub fn of_objects<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<Self> {
        objects.into_iter().filter_map(Self::of).collect()
    }
}

/// What a plan is made of.
#[derive(Debug, Clone)]
pub struct PlanInput<'a> {
    /// The application.
    pub application: &'a ApplicationId,
    /// Name of its package.
    pub package: &'a str,
    /// What is done: install, upgrade or rollback.
    pub action: ReleaseAction,
    /// The rendered objects, in the order of rendering.
    pub rendered: Vec<Rendered>,
    /// The definitions of kinds in `crds/`.
    pub definitions: Vec<Rendered>,
    /// What the last apply left in the cluster.
    pub previous: &'a [InventoryItem],
    /// Mark the objects as left alone.
    pub maintenance: bool,
    /// No Helm hook runs.
    pub skip_hooks: bool,
}

/// An object of a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseObject {
    /// The object.
    pub target: ObjectRef,
    /// What to apply.
    pub object: Value,
    /// Template that rendered it.
    pub source: String,
}

/// What an operation will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The application.
    pub application: ApplicationId,
    /// Name of its package.
    pub package: String,
    /// What is done to the release.
    pub action: ReleaseAction,
    /// Definitions of kinds that come first, are upgraded when that is safe, and are never deleted.
    pub definitions: Vec<ReleaseObject>,
    /// The objects of the release that this operation deploys, in order of installation.
    pub objects: Vec<ReleaseObject>,
    /// The Helm hooks of each event, in order.
    pub hooks: BTreeMap<HookEvent, Vec<HelmHook>>,
    /// Everything that is done, each step after those that it waits for.
    pub steps: Vec<Step>,
    /// What the last apply left.
    pub previous: Vec<ObjectRef>,
    /// Of that, what goes, in order of removal.
    pub prune: Vec<ObjectRef>,
    /// Of that, what the release drops but the resource policy keeps.
    pub kept: Vec<ObjectRef>,
    /// Digest of all manifests, those included that another operation deploys: `sha256:…`.
    pub digest: String,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// A plan that does nothing.
    fn empty(application: &ApplicationId, package: &str, action: ReleaseAction) -> Self {
        Self {
            application: application.clone(),
            package: package.to_owned(),
            action,
            definitions: Vec::new(),
            objects: Vec::new(),
            hooks: BTreeMap::new(),
            steps: Vec::new(),
            previous: Vec::new(),
            prune: Vec::new(),
            kept: Vec::new(),
            digest: digest([]),
            notes: Vec::new(),
        }
    }

    /// All objects of the release, in order.
    pub fn objects(&self) -> impl Iterator<Item = &ReleaseObject> {
        self.objects.iter()
    }

    /// The inventory that the plan leaves in the cluster.
    #[must_use]
    pub fn inventory(&self) -> Vec<InventoryItem> {
        InventoryItem::of_objects(self.objects.iter().map(|it| &it.object))
    }

    /// A hook by its place in a step.
    #[must_use]
    pub fn hook(&self, event: HookEvent, index: usize) -> Option<&HelmHook> {
        self.hooks.get(&event)?.get(index)
    }

    /// Every Helm hook once, in the order of the first event that it has.
    #[must_use]
    pub fn all_hooks(&self) -> Vec<&HelmHook> {
        let mut seen = BTreeSet::new();
        self.hooks.values().flatten().filter(|hook| seen.insert(&hook.target)).collect()
    }

    /// The hooks that this operation runs, in order.
    pub fn running_hooks(&self) -> impl Iterator<Item = (HookEvent, &HelmHook)> {
        self.steps.iter().filter_map(|step| match step.work {
            Work::Hook { event, hook } => Some((event, self.hook(event, hook)?)),
            _ => None,
        })
    }

    /// The object that a step is about, if it is about one of this plan.
    #[must_use]
    pub fn target_of<'a>(&'a self, step: &'a Step) -> Option<&'a ObjectRef> {
        match &step.work {
            Work::Stage { .. } | Work::Await { .. } => None,
            Work::Define { definition } | Work::Defined { definition } => {
                self.definitions.get(*definition).map(|it| &it.target)
            }
            Work::Apply { object } | Work::Ready { object } => self.objects.get(*object).map(|it| &it.target),
            Work::Hook { event, hook } | Work::HookEnd { event, hook } => {
                self.hook(*event, *hook).map(|hook| &hook.target)
            }
            Work::Delete { target, .. } | Work::Gone { target } => Some(target),
        }
    }
}

/// One thing that is wrong with rendered objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{source_file}: {what}: {why}")]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Stable reason in PascalCase.
    pub reason: String,
    /// Template.
    pub source_file: String,
    /// The object.
    pub what: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: String,
}

/// Rendered objects that cannot become a release; everything that is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The problems, in the order of rendering; at least one.
    pub problems: Vec<Problem>,
}

impl Refused {
    /// Stable reason of the first problem.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.problems.first().map_or("BadManifest", |problem| &problem.reason)
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// Makes a plan of rendered objects.
///
/// `scope_of` says where objects of a kind live, and nothing for a kind that is not served; a kind that the release
/// itself defines need not be served yet. `cluster_allowed` says whether the release may have this cluster-scoped
/// object.
///
/// # Errors
/// [`Refused`] with all problems: objects without apiVersion, kind or a proper name, objects that belong to the host,
/// foreign namespaces, duplicates, unknown kinds, cluster-scoped objects that are not allowed, annotations that cannot be
/// read, dependencies in a circle, and too many objects.
pub fn plan(
    mut input: PlanInput<'_>,
    scope_of: impl Fn(&Gvk) -> Option<Scope>,
    cluster_allowed: impl Fn(&ObjectRef) -> bool,
) -> Result<Plan, Refused> {
    let action = input.action;
    let accepted = accept::accept(&mut input, &scope_of, &cluster_allowed)?;
    let (mut objects, defined, hooks) = (accepted.objects, accepted.defined, accepted.hooks);
    let manifests =
        objects.iter().map(|(object, _)| &object.object).chain(accepted.definitions.iter().map(|it| &it.object));
    let mut seen = BTreeSet::new();
    let every_hook = hooks.values().flatten().filter(|hook| seen.insert(&hook.target)).map(|hook| &hook.object);
    let digest = digest(manifests.chain(every_hook));

    objects.retain(|(_, directives)| directives.is_deployed(action, Phase::Main));
    sort_for_install(&mut objects, &defined);

    // Hooks count as present: an object that became a hook is no longer the release's to delete.
    let present: BTreeSet<_> = objects
        .iter()
        .map(|(object, _)| identity_of(&object.target))
        .chain(hooks.values().flatten().map(|hook| identity_of(&hook.target)))
        .chain(accepted.definitions.iter().map(|definition| identity_of(&definition.target)))
        .collect();
    let dropped = input.previous.iter().filter(|item| !present.contains(&identity_of(&item.target)));
    let (kept, mut dropped): (Vec<&InventoryItem>, Vec<&InventoryItem>) = dropped.partition(|item| item.keep);
    sort_for_removal(&mut dropped);

    let mut graph = Graph::default();
    let events = if input.skip_hooks {
        (None, None)
    } else {
        (HookEvent::of(action, Phase::Before), HookEvent::of(action, Phase::After))
    };
    let of = |event: Option<HookEvent>| event.and_then(|event| Some((event, hooks.get(&event)?)));
    let mut gate = graph.definitions(accepted.definitions.len(), Vec::new());
    if let Some((event, hooks)) = of(events.0) {
        gate = graph.hooks(event, hooks, gate);
    }
    gate = graph.objects(&objects, &defined, gate);
    gate = graph.removals(&dropped, DeleteCause::Dropped, gate);
    if let Some((event, hooks)) = of(events.1) {
        graph.hooks(event, hooks, gate);
    }
    let mut notes = accepted.notes;
    notes.append(&mut graph.notes);
    let prune = dropped.iter().map(|item| item.target.clone()).collect();
    let objects: Vec<ReleaseObject> = objects.into_iter().map(|(object, _)| object).collect();
    let steps = graph.finish().map_err(|cycle| Refused { problems: vec![circle(&cycle.0, &objects)] })?;
    Ok(Plan {
        application: input.application.clone(),
        package: input.package.to_owned(),
        action,
        definitions: accepted.definitions,
        objects,
        steps,
        previous: input.previous.iter().map(|item| item.target.clone()).collect(),
        prune,
        kept: kept.into_iter().map(|item| item.target.clone()).collect(),
        hooks,
        digest,
        notes,
    })
}

/// Objects that wait for each other. Only objects with dependencies of their own can be in a circle.
fn circle(stuck: &[Work], objects: &[ReleaseObject]) -> Problem {
    let stuck: Vec<&ReleaseObject> = stuck
        .iter()
        .filter_map(|work| match work {
            Work::Apply { object } => objects.get(*object),
            _ => None,
        })
        .filter(|object| !Directives::of(&object.object).dependencies.is_empty())
        .collect();
    let names: Vec<String> = stuck.iter().map(|object| object.target.to_string()).collect();
    Problem {
        reason: "DependencyCycle".to_owned(),
        source_file: stuck.first().map(|object| object.source.clone()).unwrap_or_default(),
        what: names.join(", "),
        why: "these objects wait for each other, or for what waits for them".to_owned(),
        hint: "take one of the werf.io/deploy-dependency annotations away".to_owned(),
    }
}

/// What makes an object the same in two inventories: everything but the version.
fn identity_of(target: &ObjectRef) -> (&str, &str, &str, &str) {
    (&target.gvk.group, &target.gvk.kind, &target.namespace, &target.name)
}

/// Group and kind of the custom resources that objects of a release define.
#[must_use]
pub fn defined_by<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeSet<(String, String)> {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    objects
        .into_iter()
        .filter(|object| text(object, "/kind").as_deref() == Some("CustomResourceDefinition"))
        .filter_map(|object| Some((text(object, "/spec/group")?, text(object, "/spec/names/kind")?)))
        .collect()
}
