//! Helm's hooks, and objects that nelm deploys at the same moments.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::directives::{Directives, Phase};
use super::{ReleaseAction, install_rank};
use crate::identity::ObjectRef;

/// Annotation that makes an object a hook.
pub const HOOK_ANNOTATION: &str = "helm.sh/hook";
const WEIGHT_ANNOTATION: &str = "helm.sh/hook-weight";
const DELETE_POLICY_ANNOTATION: &str = "helm.sh/hook-delete-policy";

/// A moment at which Helm hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookEvent {
    /// Before the first apply.
    PreInstall,
    /// After the first apply.
    PostInstall,
    /// Before a later apply.
    PreUpgrade,
    /// After a later apply.
    PostUpgrade,
    /// Before a return to an earlier revision.
    PreRollback,
    /// After a return to an earlier revision.
    PostRollback,
    /// Before the removal.
    PreDelete,
    /// After the removal.
    PostDelete,
    /// On request.
    Test,
}

impl HookEvent {
    /// The event of a part of an operation; nothing for what hooks have no part in.
    #[must_use]
    pub fn of(action: ReleaseAction, phase: Phase) -> Option<Self> {
        Some(match (action, phase) {
            (ReleaseAction::Install, Phase::Before) => Self::PreInstall,
            (ReleaseAction::Install, Phase::After) => Self::PostInstall,
            (ReleaseAction::Upgrade, Phase::Before) => Self::PreUpgrade,
            (ReleaseAction::Upgrade, Phase::After) => Self::PostUpgrade,
            (ReleaseAction::Rollback, Phase::Before) => Self::PreRollback,
            (ReleaseAction::Rollback, Phase::After) => Self::PostRollback,
            (ReleaseAction::Uninstall, Phase::Before) => Self::PreDelete,
            (ReleaseAction::Uninstall, Phase::After) => Self::PostDelete,
            (ReleaseAction::Test, Phase::Main) => Self::Test,
            _ => return None,
        })
    }

    /// The event of a word; the words are Helm's.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pre-install" => Self::PreInstall,
            "post-install" => Self::PostInstall,
            "pre-upgrade" => Self::PreUpgrade,
            "post-upgrade" => Self::PostUpgrade,
            "pre-rollback" => Self::PreRollback,
            "post-rollback" => Self::PostRollback,
            "pre-delete" => Self::PreDelete,
            "post-delete" => Self::PostDelete,
            "test" | "test-success" => Self::Test,
            _ => return None,
        })
    }

    /// The word of the event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::Test => "test",
        }
    }
}

/// When the object of a hook is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletePolicy {
    /// Before a new one is made. The default.
    BeforeHookCreation,
    /// After all hooks of the event succeeded.
    HookSucceeded,
    /// After it failed.
    HookFailed,
    /// When it cannot be changed into what it should be. Nelm's; the default for Jobs.
    BeforeCreationIfImmutable,
}

impl DeletePolicy {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "before-hook-creation" => Self::BeforeHookCreation,
            "hook-succeeded" => Self::HookSucceeded,
            "hook-failed" => Self::HookFailed,
            _ => return None,
        })
    }

    /// The word of the policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeHookCreation => "before-hook-creation",
            Self::HookSucceeded => "hook-succeeded",
            Self::HookFailed => "hook-failed",
            Self::BeforeCreationIfImmutable => "before-creation-if-immutable",
        }
    }
}

/// A Helm hook of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelmHook {
    /// The object.
    pub target: ObjectRef,
    /// What to apply.
    pub object: Value,
    /// Template that rendered it.
    pub source: String,
    /// When it runs.
    pub events: BTreeSet<HookEvent>,
    /// Lower runs first.
    pub weight: i32,
    /// When its object is deleted.
    pub delete_policies: BTreeSet<DeletePolicy>,
}

/// Order inside one event: weight, then kind in install order, then name; then as rendered.
pub fn sort_hooks(hooks: &mut [HelmHook]) {
    hooks.sort_by(|a, b| {
        let rank = |hook: &HelmHook| (hook.weight, install_rank(&hook.target.gvk.kind));
        rank(a)
            .cmp(&rank(b))
            .then_with(|| a.target.gvk.kind.cmp(&b.target.gvk.kind))
            .then_with(|| a.target.name.cmp(&b.target.name))
    });
}

impl HelmHook {
    /// Whether the hook ends only when what it runs has ended: a Job or a Pod. Everything else is done once it is applied.
    #[must_use]
    pub fn runs_once(&self) -> bool {
        matches!((self.target.gvk.group.as_str(), self.target.gvk.kind.as_str()), ("batch", "Job") | ("", "Pod"))
    }

    /// Whether an object that an earlier run left is deleted first. A Job or Pod always is, unless its author only wants
    /// that when it cannot be changed: its status is that of the earlier run. The definition of a kind never is: all
    /// objects of the kind would go too.
    #[must_use]
    pub fn is_made_anew(&self) -> bool {
        let asked = self.delete_policies.contains(&DeletePolicy::BeforeHookCreation);
        let changed_only = self.delete_policies.contains(&DeletePolicy::BeforeCreationIfImmutable);
        (asked || (self.runs_once() && !changed_only)) && !self.is_definition()
    }

    /// Whether it defines a kind; such a hook is never deleted by a policy.
    #[must_use]
    pub fn is_definition(&self) -> bool {
        self.target.gvk.kind == "CustomResourceDefinition"
    }

    /// Whether its object is deleted by a policy.
    #[must_use]
    pub fn is_deleted_by(&self, policy: DeletePolicy) -> bool {
        self.delete_policies.contains(&policy) && !self.is_definition()
    }
}

/// What the hook annotation of an object says.
pub(super) enum HookMark {
    /// There is none: the object belongs to the release.
    None,
    /// It is a hook.
    Hook {
        events: BTreeSet<HookEvent>,
        weight: i32,
        delete_policies: BTreeSet<DeletePolicy>,
        /// Words that nobody knows.
        unknown: Vec<String>,
    },
    /// A word that is no event: the object is neither hook nor part of the release.
    Unknown(String),
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(',').map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty())
}

/// The moments before and after that `werf.io/deploy-on` names, as events of hooks.
fn occasions(directives: &Directives) -> BTreeSet<HookEvent> {
    directives.deploy_on.iter().filter_map(|(action, phase)| HookEvent::of(*action, *phase)).collect()
}

/// Reads the hook annotations of an object. `werf.io/deploy-on` beats `helm.sh/hook`.
pub(super) fn hook_mark(object: &Value, directives: &Directives) -> HookMark {
    let occasions = occasions(directives);
    if !directives.deploy_on.is_empty() {
        if occasions.is_empty() {
            return HookMark::None;
        }
        let mut delete_policies = directives.delete_policies.clone();
        if delete_policies.is_empty() {
            delete_policies.insert(DeletePolicy::BeforeCreationIfImmutable);
        }
        let weight = directives.weight.unwrap_or(0);
        return HookMark::Hook { events: occasions, weight, delete_policies, unknown: Vec::new() };
    }
    let Some(text) = annotation(object, HOOK_ANNOTATION) else { return HookMark::None };
    let mut events = BTreeSet::new();
    for word in words(text) {
        match HookEvent::parse(&word) {
            Some(event) => events.insert(event),
            None => return HookMark::Unknown(word),
        };
    }
    if events.is_empty() {
        return HookMark::Unknown(text.to_owned());
    }
    let helm = || annotation(object, WEIGHT_ANNOTATION).and_then(|text| text.trim().parse().ok());
    let weight = directives.weight.or_else(helm).unwrap_or(0);
    let mut delete_policies = directives.delete_policies.clone();
    let mut unknown = Vec::new();
    for word in annotation(object, DELETE_POLICY_ANNOTATION).into_iter().flat_map(words) {
        match DeletePolicy::parse(&word) {
            Some(policy) => {
                delete_policies.insert(policy);
            }
            None => unknown.push(word),
        }
    }
    if delete_policies.is_empty() {
        delete_policies.insert(DeletePolicy::BeforeHookCreation);
    }
    HookMark::Hook { events, weight, delete_policies, unknown }
}

/// Whether an object asks to stay when its release drops it or goes: `helm.sh/resource-policy: keep` in any spelling that
/// Helm reads anywhere, nelm's `skip-delete`, or `werf.io/ownership: anyone`.
#[must_use]
pub fn is_kept(object: &Value) -> bool {
    Directives::of(object).is_kept()
}
