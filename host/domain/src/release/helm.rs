//! Helm's annotations: hooks and the resource policy.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::ObjectRef;

/// Annotation that makes an object a hook.
pub const HOOK_ANNOTATION: &str = "helm.sh/hook";
const WEIGHT_ANNOTATION: &str = "helm.sh/hook-weight";
const DELETE_POLICY_ANNOTATION: &str = "helm.sh/hook-delete-policy";
const RESOURCE_POLICY_ANNOTATION: &str = "helm.sh/resource-policy";

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

/// Reads the hook annotations of an object.
pub(super) fn hook_mark(object: &Value) -> HookMark {
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
    let weight = annotation(object, WEIGHT_ANNOTATION).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let mut delete_policies = BTreeSet::new();
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

/// Whether an object asks to stay when its release drops it: `helm.sh/resource-policy: keep`, in any spelling that Helm
/// reads anywhere.
#[must_use]
pub fn is_kept(object: &Value) -> bool {
    annotation(object, RESOURCE_POLICY_ANNOTATION).is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// The resource policy of an object if it is one that nobody knows.
pub(super) fn unknown_resource_policy(object: &Value) -> Option<&str> {
    annotation(object, RESOURCE_POLICY_ANNOTATION)
        .filter(|policy| !policy.trim().is_empty() && !policy.trim().eq_ignore_ascii_case("keep"))
}
