//! What annotations of an object say about how it is released: Helm's resource policy and nelm's `werf.io/*`.
//!
//! [`Directives::read`] is strict and is asked when a plan is made: a word that nobody knows is a mistake of the author
//! and is said at once. [`Directives::of`] is lenient and is asked of objects that are in the cluster or in a record
//! already. Names and defaults are those of nelm 1.30 (`NELM-ANNOTATIONS`), except where a decision says otherwise
//! (`docs/decisions/0005-release-plan.md`).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ReleaseAction;
use super::helm::DeletePolicy;
use crate::identity::{ApplicationId, Gvk, ObjectRef};
use crate::operation::Propagation;

/// Annotation of an author who leaves fields to whoever changed them: paths, separated by commas.
pub const YIELD_ANNOTATION: &str = "packages.deckhouse.io/yield-fields";

const RESOURCE_POLICY: [&str; 2] = ["helm.sh/resource-policy", "werf.io/resource-policy"];
const WEIGHT: &str = "werf.io/weight";
const DEPLOY_DEPENDENCY: &str = "werf.io/deploy-dependency-";
const DELETE_DEPENDENCY: &str = "werf.io/delete-dependency-";
const EXTERNAL_RESOURCE: &str = ".external-dependency.werf.io/resource";
const EXTERNAL_NAMESPACE: [&str; 2] = [".external-dependency.werf.io/namespace", ".external-dependency.werf.io/name"];
const OWNERSHIP: &str = "werf.io/ownership";
const DEPLOY_ON: &str = "werf.io/deploy-on";
const DELETE_POLICY: &str = "werf.io/delete-policy";
const PROPAGATION: &str = "werf.io/delete-propagation";
const TERMINATION_MODE: &str = "werf.io/track-termination-mode";
const FAIL_MODE: &str = "werf.io/fail-mode";
const FAILURES: &str = "werf.io/failures-allowed-per-replica";
const NO_ACTIVITY: &str = "werf.io/no-activity-timeout";
const REPLICAS: &str = "werf.io/replicas-on-creation";
const SENSITIVE: &str = "werf.io/sensitive";
const SENSITIVE_PATHS: &str = "werf.io/sensitive-paths";
/// Replicas that an annotation may ask for; what is larger is a slip of the finger.
const REPLICAS_MAX: u32 = 10_000;
/// Dependencies of one object.
const DEPENDENCIES_MAX: usize = 100;

/// Whose an object is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ownership {
    /// The release's: it goes when the release drops it.
    #[default]
    Release,
    /// Nobody's: it is applied and never deleted.
    Anyone,
}

/// What is not done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourcePolicy {
    /// It is not created.
    SkipCreate,
    /// It is not changed.
    SkipUpdate,
    /// It is not deleted to be made anew.
    SkipRecreate,
    /// It is not deleted when the release drops it or goes. Helm's `keep`.
    SkipDelete,
}

/// When in an operation an object is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// With the hooks before.
    Before,
    /// With the objects of the release.
    Main,
    /// With the hooks after.
    After,
}

/// Which state of another object is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DependencyState {
    /// It exists.
    Present,
    /// It is ready.
    Ready,
    /// It is gone.
    Absent,
}

/// Objects of the same release that come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Annotation that says so, for messages.
    pub annotation: String,
    /// State that is waited for.
    pub state: DependencyState,
    name: Option<String>,
    namespace: Option<String>,
    group: Option<String>,
    version: Option<String>,
    kind: Option<String>,
}

impl Dependency {
    /// Whether an object is meant.
    #[must_use]
    pub fn matches(&self, target: &ObjectRef) -> bool {
        let is = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| wanted == got);
        is(&self.name, &target.name)
            && is(&self.namespace, &target.namespace)
            && is(&self.group, &target.gvk.group)
            && is(&self.version, &target.gvk.version)
            && self.kind.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case(&target.gvk.kind))
    }
}

/// An object outside of the release that must be there first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Kind, as it was written: a kind or a plural name, whatever the API server knows.
    pub kind: String,
    /// Group, if it was written.
    pub group: Option<String>,
    /// Version, if it was written.
    pub version: Option<String>,
    /// Namespace; that of the application if absent.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// What annotations say about how an object is released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directives {
    /// Objects of a lower weight are applied, and ready, before. 0 if absent.
    pub weight: Option<i32>,
    /// Objects that come first when it is applied. Beats the weight.
    pub dependencies: Vec<Dependency>,
    /// Objects that must be gone before it is deleted.
    pub delete_dependencies: Vec<Dependency>,
    /// Objects of others that must be there first.
    pub external: Vec<External>,
    /// Whose it is.
    pub ownership: Ownership,
    /// When it is deployed; install, upgrade and rollback if empty.
    pub deploy_on: BTreeSet<(ReleaseAction, Phase)>,
    /// When it is deleted, beside being dropped.
    pub delete_policies: BTreeSet<DeletePolicy>,
    /// What is not done to it.
    pub resource_policies: BTreeSet<ResourcePolicy>,
    /// How its dependants are treated when it is deleted; [`Propagation::Background`] if absent, as Helm does.
    pub propagation: Option<Propagation>,
    /// Nothing waits for it to become ready.
    pub non_blocking: bool,
    /// The release goes on when it fails.
    pub tolerate_failure: bool,
    /// Failures of its containers that are not yet a failure of the release, for each replica.
    pub failures_per_replica: Option<u32>,
    /// It fails when nothing about it changes for so long.
    pub no_activity: Option<Duration>,
    /// Replicas that it gets when it is created, and that nobody sets again later.
    pub replicas_on_creation: Option<u32>,
    /// Its contents are not shown. `None`: by kind, see [`Directives::is_sensitive`].
    pub sensitive: Option<bool>,
    /// Parts of it that are not shown.
    pub sensitive_paths: Vec<String>,
    /// Fields that are left to whoever changed them.
    pub yields: Vec<String>,
}

impl std::fmt::Display for External {
    /// `Deployment.v1.apps kube-system/dns`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        for part in [&self.version, &self.group].into_iter().flatten() {
            write!(f, ".{part}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

/// An annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAnnotation {
    /// Its name.
    pub name: String,
    /// What is wrong with its value.
    pub why: String,
    /// What would be right.
    pub hint: String,
}

impl Directives {
    /// Reads what can be read and passes over the rest.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::parse(object).0
    }

    /// Reads the annotations of an object.
    ///
    /// # Errors
    /// Every annotation whose value is wrong.
    pub fn read(object: &Value) -> Result<Self, Vec<BadAnnotation>> {
        let (directives, bad) = Self::parse(object);
        if bad.is_empty() { Ok(directives) } else { Err(bad) }
    }

    /// Whether it stays when the release drops it or goes.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.ownership == Ownership::Anyone || self.resource_policies.contains(&ResourcePolicy::SkipDelete)
    }

    /// Whether the object of a release may be missing from the cluster although nobody deleted it.
    #[must_use]
    pub fn may_be_absent(&self, object: &Value) -> bool {
        let expires = object.get("kind").and_then(Value::as_str) == Some("Job")
            && object.pointer("/spec/ttlSecondsAfterFinished").is_some_and(|seconds| !seconds.is_null());
        expires
            || self.resource_policies.contains(&ResourcePolicy::SkipCreate)
            || self.delete_policies.contains(&DeletePolicy::HookSucceeded)
    }

    /// Whether it is deployed in a part of an operation.
    #[must_use]
    pub fn is_deployed(&self, action: ReleaseAction, phase: Phase) -> bool {
        if self.deploy_on.is_empty() {
            return phase == Phase::Main && action.applies();
        }
        self.deploy_on.contains(&(action, phase))
    }

    /// Whether the contents of the object are secret: a Secret, unless the annotation says otherwise.
    #[must_use]
    pub fn is_sensitive(&self, object: &Value) -> bool {
        self.sensitive.unwrap_or_else(|| object.get("kind").and_then(Value::as_str) == Some("Secret"))
    }

    fn parse(object: &Value) -> (Self, Vec<BadAnnotation>) {
        let mut directives = Self::default();
        let mut bad = Vec::new();
        let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
        for (name, value) in annotations.into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            if let Err((why, hint)) = directives.take(name, text.trim()) {
                bad.push(BadAnnotation { name: name.clone(), why, hint: hint.to_owned() });
            }
        }
        let namespaces = annotations.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_str()?)));
        for (name, value) in namespaces {
            let id = EXTERNAL_NAMESPACE.iter().find_map(|suffix| name.strip_suffix(suffix));
            let Some(id) = id.filter(|id| !id.is_empty()) else { continue };
            let resource = format!("{id}{EXTERNAL_RESOURCE}");
            let of = annotations.and_then(|all| all.get(&resource)).and_then(Value::as_str);
            match of.and_then(|text| external(text.trim()).ok()) {
                Some(wanted) => {
                    for one in directives.external.iter_mut().filter(|one| one.is(&wanted)) {
                        one.namespace = Some(value.trim().to_owned());
                    }
                }
                None => bad.push(BadAnnotation {
                    name: name.clone(),
                    why: format!("there is no annotation {resource} that it belongs to"),
                    hint: "add it, or remove this one".to_owned(),
                }),
            }
        }
        (directives, bad)
    }

    fn take(&mut self, name: &str, text: &str) -> Result<(), (String, &'static str)> {
        if RESOURCE_POLICY.contains(&name) {
            return words(text, &mut self.resource_policies, |word| match word {
                "keep" | "skip-delete" => Some(ResourcePolicy::SkipDelete),
                "skip-create" if name == RESOURCE_POLICY[1] => Some(ResourcePolicy::SkipCreate),
                "skip-update" if name == RESOURCE_POLICY[1] => Some(ResourcePolicy::SkipUpdate),
                "skip-recreate" if name == RESOURCE_POLICY[1] => Some(ResourcePolicy::SkipRecreate),
                _ => None,
            })
            .map_err(|why| match name == RESOURCE_POLICY[1] {
                true => (why, "the policies are skip-create, skip-update, skip-recreate, skip-delete and keep"),
                false => (why, "the only policy is 'keep'"),
            });
        }
        if name.starts_with(DEPLOY_DEPENDENCY) {
            let states = &[("ready", DependencyState::Ready), ("present", DependencyState::Present)];
            return add_dependency(&mut self.dependencies, name, text, states).map_err(|why| {
                (why, "write state=ready or state=present, then name=, namespace=, kind=, group=, version=")
            });
        }
        if name.starts_with(DELETE_DEPENDENCY) {
            return add_dependency(&mut self.delete_dependencies, name, text, &[("absent", DependencyState::Absent)])
                .map_err(|why| (why, "write state=absent, then name=, namespace=, kind=, group=, version="));
        }
        if name.ends_with(EXTERNAL_RESOURCE) {
            let wanted = external(text)
                .map_err(|why| (why, "write kind/name or kind.version.group/name, such as deployments.v1.apps/web"))?;
            if self.external.len() < DEPENDENCIES_MAX {
                self.external.push(wanted);
            }
            return Ok(());
        }
        match name {
            WEIGHT => {
                self.weight = Some(text.parse().map_err(|_| (not(text), "write a whole number"))?);
            }
            OWNERSHIP => {
                self.ownership = one_of(text, &[("release", Ownership::Release), ("anyone", Ownership::Anyone)])
                    .map_err(|why| (why, "write release or anyone"))?;
            }
            DEPLOY_ON => {
                words(text, &mut self.deploy_on, occasion).map_err(|why| {
                    (why, "write install, upgrade, rollback, uninstall, or one of them after pre- or post-")
                })?;
            }
            DELETE_POLICY => {
                words(text, &mut self.delete_policies, |word| match word {
                    "before-creation" => Some(DeletePolicy::BeforeHookCreation),
                    "before-creation-if-immutable" => Some(DeletePolicy::BeforeCreationIfImmutable),
                    "succeeded" => Some(DeletePolicy::HookSucceeded),
                    "failed" => Some(DeletePolicy::HookFailed),
                    _ => None,
                })
                .map_err(|why| (why, "write before-creation, before-creation-if-immutable, succeeded or failed"))?;
            }
            PROPAGATION => {
                let values = [
                    ("foreground", Propagation::Foreground),
                    ("background", Propagation::Background),
                    ("orphan", Propagation::Orphan),
                ];
                let propagation = one_of(text, &values);
                self.propagation = Some(propagation.map_err(|why| (why, "write Foreground, Background or Orphan"))?);
            }
            TERMINATION_MODE => {
                self.non_blocking = one_of(text, &[("waituntilresourceready", false), ("nonblocking", true)])
                    .map_err(|why| (why, "write WaitUntilResourceReady or NonBlocking"))?;
            }
            FAIL_MODE => {
                let values = [
                    ("failwholedeployprocessimmediately", false),
                    ("ignoreandcontinuedeployprocess", true),
                    // Of werf before nelm; it failed at the end of the process.
                    ("hopeuntilendofdeployprocess", false),
                ];
                self.tolerate_failure = one_of(text, &values).map_err(|why| {
                    (why, "write FailWholeDeployProcessImmediately or IgnoreAndContinueDeployProcess")
                })?;
            }
            FAILURES => {
                self.failures_per_replica =
                    Some(text.parse().map_err(|_| (not(text), "write a whole number that is not negative"))?);
            }
            NO_ACTIVITY => {
                let wait = crate::schedule::go_duration(text).filter(|wait| !wait.is_zero());
                self.no_activity = Some(wait.ok_or_else(|| (not(text), "write a duration such as 4m or 90s"))?);
            }
            REPLICAS => {
                let replicas = text.parse().ok().filter(|replicas| *replicas <= REPLICAS_MAX);
                self.replicas_on_creation =
                    Some(replicas.ok_or_else(|| (not(text), "write a whole number from 0 to 10000"))?);
            }
            SENSITIVE => {
                self.sensitive = Some(
                    one_of(text, &[("true", true), ("false", false)]).map_err(|why| (why, "write true or false"))?,
                );
            }
            SENSITIVE_PATHS => self.sensitive_paths = list(text),
            YIELD_ANNOTATION => self.yields = list(text),
            _ => {}
        }
        Ok(())
    }
}

impl External {
    /// The object, as far as it is known before its kind is looked up: the kind is as its author wrote it, and the
    /// namespace that of the application unless the author wrote another.
    #[must_use]
    pub fn reference(&self, application: &ApplicationId) -> ObjectRef {
        ObjectRef {
            gvk: Gvk {
                group: self.group.clone().unwrap_or_default(),
                version: self.version.clone().unwrap_or_default(),
                kind: self.kind.clone(),
            },
            namespace: self.namespace.clone().unwrap_or_else(|| application.namespace().to_owned()),
            name: self.name.clone(),
        }
    }

    /// Whether two mean the same object, the namespace aside.
    fn is(&self, other: &Self) -> bool {
        (&self.kind, &self.group, &self.version, &self.name) == (&other.kind, &other.group, &other.version, &other.name)
    }
}

fn not(text: &str) -> String {
    format!("{text:?} is not a value of it")
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> Result<T, String> {
    let found = values.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| not(text))
}

fn words<T: Ord>(text: &str, into: &mut BTreeSet<T>, parse: impl Fn(&str) -> Option<T>) -> Result<(), String> {
    for word in list(text) {
        into.insert(parse(&word.to_lowercase()).ok_or_else(|| not(&word))?);
    }
    Ok(())
}

/// `pre-install`, `upgrade`, `post-rollback`…
fn occasion(word: &str) -> Option<(ReleaseAction, Phase)> {
    let (phase, action) = match (word.strip_prefix("pre-"), word.strip_prefix("post-")) {
        (Some(rest), _) => (Phase::Before, rest),
        (_, Some(rest)) => (Phase::After, rest),
        _ => (Phase::Main, word),
    };
    let action = match action {
        "install" => ReleaseAction::Install,
        "upgrade" => ReleaseAction::Upgrade,
        "rollback" => ReleaseAction::Rollback,
        // Nelm's name of the moment is uninstall, Helm's is delete.
        "uninstall" | "delete" if phase != Phase::Main => ReleaseAction::Uninstall,
        _ => return None,
    };
    Some((action, phase))
}

fn add_dependency(
    list: &mut Vec<Dependency>,
    annotation: &str,
    text: &str,
    states: &[(&str, DependencyState)],
) -> Result<(), String> {
    let mut state = None;
    let mut dependency = Dependency {
        annotation: annotation.to_owned(),
        state: DependencyState::Ready,
        name: None,
        namespace: None,
        group: None,
        version: None,
        kind: None,
    };
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not key=value"))?;
        let value = value.trim();
        let field = match key.trim() {
            "state" => {
                state = Some(one_of(value, states)?);
                continue;
            }
            "name" => &mut dependency.name,
            "namespace" => &mut dependency.namespace,
            "group" => &mut dependency.group,
            "version" => &mut dependency.version,
            "kind" => &mut dependency.kind,
            other => return Err(format!("{other:?} is no part of a dependency")),
        };
        *field = Some(value.to_owned());
    }
    dependency.state = state.ok_or("it has no state")?;
    let chosen = [&dependency.name, &dependency.namespace, &dependency.group, &dependency.version, &dependency.kind];
    if chosen.iter().all(|part| part.is_none()) {
        return Err("it chooses no object".to_owned());
    }
    if list.len() >= DEPENDENCIES_MAX {
        return Err(format!("an object may have {DEPENDENCIES_MAX} dependencies"));
    }
    list.push(dependency);
    Ok(())
}

/// `kind/name` or `kind.version.group/name`.
fn external(text: &str) -> Result<External, String> {
    let (kind, name) = text.split_once('/').ok_or_else(|| not(text))?;
    let mut parts = kind.splitn(3, '.');
    let kind = parts.next().unwrap_or_default();
    if kind.is_empty() || name.is_empty() || name.contains('/') {
        return Err(not(text));
    }
    let version = parts.next().filter(|version| !version.is_empty()).map(str::to_owned);
    let group = parts.next().filter(|group| !group.is_empty()).map(str::to_owned);
    Ok(External { kind: kind.to_owned(), group, version, namespace: None, name: name.to_owned() })
}

#[cfg(test)]
mod tests;
