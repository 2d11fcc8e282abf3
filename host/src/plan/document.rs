//! What `barbless plan` found out, as one document: printed for people by [`super::text`], and as JSON or YAML as it is.
//!
//! Everything in it may be shown: secrets are masked before it is made.

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::HookEvent;
use serde::Serialize;

use super::difference::Difference;
use super::steps::{Stage, StepPart};
use crate::report::Exit;

/// A plan, ready to be shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// `<namespace>.<name>` of the application.
    pub application: String,
    /// Name of its package.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// The cluster, in words.
    pub cluster: String,
    /// `install`, `upgrade`, or `none` if there is nothing to apply.
    pub action: String,
    /// Revisions.
    pub revision: Revision,
    /// Why the release has to be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Settings of the last release and of this plan.
    #[serde(skip_serializing_if = "Difference::is_empty")]
    pub settings: Difference,
    /// Hooks that were run, in order.
    pub hooks: Vec<HookPart>,
    /// Hooks that run when the plan is carried out and cannot be run before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks_later: Vec<HookLater>,
    /// Everything that is done to the cluster, each step after those that it waits for.
    pub steps: Vec<StepPart>,
    /// The same by what begins together, for people.
    #[serde(skip)]
    pub stages: Vec<Stage>,
    /// The objects.
    pub objects: Vec<ObjectPart>,
    /// What a reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What stands in the way of carrying it out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemPart>,
    /// Counts.
    pub summary: Summary,
}

/// The revisions of a release.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Revision {
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The one that the plan makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
}

/// A hook that was run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookPart {
    /// Its name.
    pub hook: String,
    /// Why it runs: `onStartup`, `beforeHelm`, `synchronization`.
    pub trigger: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProblemPart>,
    /// What it logged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// How it changes the values.
    #[serde(skip_serializing_if = "Difference::is_empty")]
    pub values: Difference,
    /// What it asks for, in order.
    pub operations: Vec<OperationPart>,
}

/// A hook that was not run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookLater {
    /// Its name.
    pub hook: String,
    /// When it runs.
    pub trigger: String,
}

/// One operation that a hook asks for.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationPart {
    /// The operation in words, such as `merge-patch ConfigMap default/a`.
    pub operation: String,
    /// Why it is not allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<ProblemPart>,
    /// What it does to the object.
    #[serde(flatten)]
    pub object: ObjectPart,
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is made.
    Create,
    /// It is changed.
    Change,
    /// It cannot be changed: it is deleted and made anew.
    Recreate,
    /// It is deleted.
    Delete,
    /// It stays as it is.
    Unchanged,
    /// It differs from what was rendered, and nothing is done about it.
    Left,
    /// It belongs to the release no more and stays.
    Keep,
    /// Another manager has some of its fields.
    Conflict,
    /// The API server, or the host, refuses it.
    Refused,
    /// It could not be tried.
    Unknown,
}

impl Change {
    /// The sign in front of an object.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Create => "+",
            Self::Change => "~",
            Self::Recreate => "-/+",
            Self::Delete => "-",
            Self::Unchanged | Self::Left | Self::Keep => "=",
            Self::Conflict | Self::Refused => "!",
            Self::Unknown => "?",
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Recreate => "recreate",
            Self::Delete => "delete",
            Self::Unchanged => "unchanged",
            Self::Left => "left alone",
            Self::Keep => "kept",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// What becomes of one object.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPart {
    /// Which.
    pub target: ObjectRef,
    /// What becomes of it.
    pub change: Change,
    /// Template that it comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Moments at which it runs, if it is a Helm hook.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HookEvent>,
    /// Stable reason in PascalCase why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// More about it, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Fields that other managers have, and what is done about each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldPart>,
    /// The live object and what it becomes.
    #[serde(skip_serializing_if = "Difference::is_empty")]
    pub difference: Difference,
}

/// A field that another manager has.
#[derive(Debug, Clone, Serialize)]
pub struct FieldPart {
    /// Its path.
    pub field: String,
    /// Who has it.
    pub manager: String,
    /// `taken`, `left` or `open`.
    pub settlement: &'static str,
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemPart {
    /// Stable reason in PascalCase.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// It is a matter of rights.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
}

/// Counts of objects and hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Objects to create.
    pub create: usize,
    /// Objects to change.
    pub change: usize,
    /// Objects to delete and make anew.
    pub recreate: usize,
    /// Objects to delete.
    pub delete: usize,
    /// Objects that stay as they are.
    pub unchanged: usize,
    /// Objects with conflicts, and objects that are refused.
    pub in_the_way: usize,
    /// Objects of which nobody knows.
    pub unknown: usize,
    /// Operations of hooks that change something.
    pub operations: usize,
    /// Hooks that ran.
    pub hooks: usize,
    /// Helm hooks that run.
    pub helm_hooks: usize,
}

impl Document {
    /// Counts.
    #[must_use]
    pub fn count(&self) -> Summary {
        let (hooks, objects): (Vec<&ObjectPart>, Vec<&ObjectPart>) =
            self.objects.iter().partition(|object| !object.events.is_empty());
        let count = |changes: &[Change]| objects.iter().filter(|object| changes.contains(&object.change)).count();
        let does = |operation: &&OperationPart| {
            operation.denied.is_none() && !matches!(operation.object.change, Change::Unchanged)
        };
        Summary {
            create: count(&[Change::Create]),
            change: count(&[Change::Change]),
            recreate: count(&[Change::Recreate]),
            delete: count(&[Change::Delete]),
            unchanged: count(&[Change::Unchanged, Change::Left, Change::Keep]),
            in_the_way: count(&[Change::Conflict, Change::Refused]),
            unknown: count(&[Change::Unknown]),
            operations: self.hooks.iter().flat_map(|hook| &hook.operations).filter(does).count(),
            hooks: self.hooks.len(),
            helm_hooks: hooks.iter().filter(|hook| hook.change != Change::Unchanged).count(),
        }
    }

    /// How the program ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.problems.iter().any(|problem| problem.denied) {
            return Exit::Denied;
        }
        if !self.problems.is_empty() {
            return Exit::Failed;
        }
        let Summary {
            create,
            change,
            recreate,
            delete,
            unchanged: _,
            in_the_way,
            unknown,
            operations,
            hooks: _,
            helm_hooks,
        } = self.summary;
        let applies = self.reason.is_some();
        match applies || create + change + recreate + delete + in_the_way + unknown + operations + helm_hooks > 0 {
            true => Exit::Difference,
            false => Exit::Ok,
        }
    }
}

impl Summary {
    /// `plan: 3 to create, 1 to change, 12 unchanged; 2 hooks ran`.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { create, change, recreate, delete, unchanged, in_the_way, unknown, operations, hooks, helm_hooks } =
            *self;
        let mut parts = vec![format!("{create} to create"), format!("{change} to change")];
        for (count, what) in
            [(recreate, "to make anew"), (delete, "to delete"), (in_the_way, "in the way"), (unknown, "unknown")]
        {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.push(format!("{unchanged} unchanged"));
        let mut words = format!("plan: {}; {}", parts.join(", "), counted(hooks, "hook"));
        if operations > 0 {
            words.push_str(&format!(" with {}", counted(operations, "change")));
        }
        if helm_hooks > 0 {
            words.push_str(&format!("; {}", counted(helm_hooks, "Helm hook")));
        }
        words
    }
}

/// `1 hook`, `2 hooks`.
pub(super) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
