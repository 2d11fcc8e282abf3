//! What the operator allows the hooks of a package to do. Unset means deny.
//!
//! [`allows`] is the one choke point: every import that is linked, every operation and every watch passes it. Nothing
//! here knows the cluster; where a decision needs the live object, [`allows_object`] is asked with it, and
//! [`check_result`] with what a patch makes of it.
//!
//! **Whose objects.** What was granted is granted for objects of the application, for objects without an instance label
//! (users make ConfigMaps and Secrets that hooks read and mark) and for objects that do not exist yet. An object whose
//! label names another instance is never touched, nor is an object of the host or a release record, whatever is granted.
//! A hook may put its own instance label on an object without one: the object then belongs to the application, and goes
//! with it if the package lists its kind among its orphan resources. The label is never taken off again.
//!
//! **What `*` does not cover.** A permission for rbac.authorization.k8s.io, certificates.k8s.io,
//! admissionregistration.k8s.io and apiregistration.k8s.io has to name the group and the kind: who may write these may
//! give rights to others. Workload kinds are ordinary kinds, but a Pod runs with the rights of any ServiceAccount of its
//! namespace; only admission in the cluster bounds what it may be.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::{ApplicationId, Gvk, ObjectRef};
use crate::limits;
use crate::operation::{Action, Operation};

mod kinds;
mod object;
mod patch;
#[cfg(test)]
mod tests;

pub use object::{allows_object, check_result};
pub use patch::check_patch;

/// Label that says to which application an object belongs.
pub const INSTANCE_LABEL: &str = "packages.deckhouse.io/instance";
/// Label that says to which package an object belongs.
pub const PACKAGE_LABEL: &str = "packages.deckhouse.io/package";

/// A host interface of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// Asking for operations. Always linked: asking is free.
    PatchCollector,
    /// Reading snapshots of the hook's own bindings.
    Snapshots,
    /// Reading and changing values.
    Values,
    /// Reading settings.
    Settings,
    /// The identity of the application.
    Instance,
    /// Log lines.
    Log,
    /// Measurements.
    Metrics,
    /// The time of the run.
    Clock,
    /// Seeded random numbers.
    Random,
    /// `wasi:*`, with nothing behind it.
    Wasi,
}

impl Interface {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::PatchCollector,
        Self::Snapshots,
        Self::Values,
        Self::Settings,
        Self::Instance,
        Self::Log,
        Self::Metrics,
        Self::Clock,
        Self::Random,
        Self::Wasi,
    ];

    /// Name in the contract, for example `patch-collector`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PatchCollector => "patch-collector",
            Self::Snapshots => "snapshots",
            Self::Values => "values",
            Self::Settings => "settings",
            Self::Instance => "instance",
            Self::Log => "log",
            Self::Metrics => "metrics",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Wasi => "wasi",
        }
    }

    /// The interface of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|interface| interface.as_str() == name)
    }
}

/// What may be done to a kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Select objects by a kubernetes binding.
    Watch,
    /// `create`, `create-if-not-exists`; half of `create-or-update`.
    Create,
    /// `apply`.
    Apply,
    /// The patches; half of `create-or-update`.
    Patch,
    /// `delete`.
    Delete,
}

impl Verb {
    /// The word of the manifest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One line of `permissions` in `package.yaml`, and one line of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permission {
    /// Groups; `""` is the core group, `*` any but those that give rights to others (see the module).
    pub api_groups: Vec<String>,
    /// Kinds; `*` any, but none of a group that gives rights to others.
    pub kinds: Vec<String>,
    /// What may be done.
    pub verbs: Vec<Verb>,
    /// Names, with `*` for any text; absent allows all names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Cluster-scoped kinds too. Without it only objects in the namespace of the application are meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster: bool,
}

impl Permission {
    fn covers(&self, verb: Verb, gvk: &Gvk, name: Option<&str>, cluster: bool) -> bool {
        let wildcard = !kinds::gives_rights(gvk);
        let listed =
            |list: &[String], value: &str| list.iter().any(|entry| (wildcard && entry == "*") || entry == value);
        self.verbs.contains(&verb)
            && (self.cluster || !cluster)
            && listed(&self.api_groups, &gvk.group)
            && listed(&self.kinds, &gvk.kind)
            && match (&self.names, name) {
                (None, _) => true,
                (Some(patterns), Some(name)) => patterns.iter().any(|pattern| matches_glob(pattern, name)),
                // A watch of all names needs a permission for all names.
                (Some(patterns), None) => patterns.iter().any(|pattern| pattern == "*"),
            }
    }
}

/// Matches a name against a pattern in which `*` stands for any text.
fn matches_glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What an application's hooks may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Host interfaces that are linked.
    pub interfaces: BTreeSet<Interface>,
    /// What may be done to which objects.
    pub permissions: Vec<Permission>,
}

impl Grant {
    /// Nothing at all, apart from asking.
    #[must_use]
    pub fn none() -> Self {
        Self { interfaces: BTreeSet::from([Interface::PatchCollector]), permissions: Vec::new() }
    }

    /// All interfaces, none of which reaches the cluster, and the given permissions.
    #[must_use]
    pub fn with(permissions: Vec<Permission>) -> Self {
        Self { interfaces: Interface::ALL.into_iter().collect(), permissions }
    }
}

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// Something that a hook or its component wants.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// An import of its component.
    Link(Interface),
    /// A kubernetes binding.
    Watch {
        /// Kind of the objects.
        gvk: &'a Gvk,
        /// The names it selects; empty for all.
        names: &'a [String],
        /// Where they live.
        scope: Scope,
    },
    /// A read by a template: the function `lookup`, or an object of somebody else that is waited for. It needs the
    /// permission that a hook needs to see the object.
    Read {
        /// Kind of the objects.
        gvk: &'a Gvk,
        /// The namespace; empty for all, and for cluster-scoped kinds.
        namespace: &'a str,
        /// The name; nothing for all.
        name: Option<&'a str>,
        /// Where they live.
        scope: Scope,
    },
    /// An operation.
    Operate {
        /// The operation, as the guest wrote it.
        operation: &'a Operation,
        /// Where objects of its kind live.
        scope: Scope,
    },
}

/// Yes, or no with a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny(Denial),
}

/// Why something may not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Denial {
    /// Stable reason in PascalCase.
    pub reason: String,
    /// What was asked for.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What a user can do.
    pub hint: String,
}

impl Decision {
    /// The denial, if it is one.
    ///
    /// # Errors
    /// The denial.
    pub fn into_result(self) -> Result<(), Denial> {
        match self {
            Self::Allow => Ok(()),
            Self::Deny(denial) => Err(denial),
        }
    }
}

fn deny(reason: &str, what: &impl fmt::Display, why: impl Into<String>, hint: impl Into<String>) -> Decision {
    Decision::Deny(Denial { reason: reason.to_owned(), what: what.to_string(), why: why.into(), hint: hint.into() })
}

/// The one choke point: may the hooks of this application have what they ask for?
#[must_use]
pub fn allows(application: &ApplicationId, grant: &Grant, request: Request<'_>) -> Decision {
    match request {
        Request::Link(interface) => {
            if grant.interfaces.contains(&interface) {
                Decision::Allow
            } else {
                deny(
                    "InterfaceNotGranted",
                    &format_args!("import of interface '{}'", interface.as_str()),
                    "the interface is not granted",
                    format!("grant the interface '{}', or use a component that does not need it", interface.as_str()),
                )
            }
        }
        Request::Watch { gvk, names, scope } => {
            let cluster = scope == Scope::Cluster || kinds::is_cluster_scoped(gvk);
            let covered = |name| grant.permissions.iter().any(|line| line.covers(Verb::Watch, gvk, name, cluster));
            let what = format!("watch of {gvk}");
            if let Some(why) = kinds::malformed(gvk) {
                return deny("BadBinding", &what, why, "write apiVersion and kind as the API server does");
            }
            if let Some(own) = kinds::forbidden(gvk) {
                return deny("HostObject", &what, own, "hooks cannot see the objects of the host itself");
            }
            if names.len() > limits::NAMES_PER_BINDING {
                let why = format!("it selects {} names; {} are allowed", names.len(), limits::NAMES_PER_BINDING);
                return deny("BadBinding", &what, why, "select by label");
            }
            // A name becomes part of a field selector, where `,` and `=` would select something else.
            if let Some(why) = names.iter().find_map(|name| bad_name(name)) {
                return deny("BadBinding", &what, why, "use the names of objects");
            }
            let missing = if names.is_empty() {
                (!covered(None)).then_some("*")
            } else {
                names.iter().map(String::as_str).find(|name| !covered(Some(name)))
            };
            match missing {
                None => Decision::Allow,
                Some(name) => not_granted(&what, Verb::Watch, gvk, name, cluster),
            }
        }
        Request::Read { gvk, namespace, name, scope } => {
            let what = match name {
                Some(name) => format!("read of {gvk} {name:?}"),
                None => format!("list of {gvk}"),
            };
            let names: Vec<String> = name.map(str::to_owned).into_iter().collect();
            let request = Request::Watch { gvk, names: &names, scope };
            let outside = scope == Scope::Namespaced && namespace != application.namespace();
            if outside {
                let own = application.namespace();
                let why = format!("templates see only their namespace '{own}'");
                return deny("ForeignNamespace", &what, why, "look up objects of the namespace of the application");
            }
            match allows(application, grant, request) {
                Decision::Deny(denial) => Decision::Deny(Denial { what, ..denial }),
                Decision::Allow => Decision::Allow,
            }
        }
        Request::Operate { operation, scope } => allows_operation(application, grant, operation, scope),
    }
}

/// May the templates of a package have this object? The host applies what they render with its own rights, so they may
/// not hand these on: kinds that give rights need a permission with `apply` that names them, as for hooks; credentials
/// and the objects of the host are refused.
#[must_use]
pub fn allows_rendered(grant: &Grant, target: &ObjectRef, object: &serde_json::Value) -> Decision {
    let gvk = &target.gvk;
    let what = format!("rendered {target}");
    if let Some(why) = kinds::forbidden(gvk).filter(|_| gvk.group != "apiextensions.k8s.io") {
        return deny("HostObject", &what, why, "take the object out of the templates");
    }
    if gvk.group.is_empty()
        && gvk.kind == "Secret"
        && object.get("type").and_then(serde_json::Value::as_str) == Some("kubernetes.io/service-account-token")
    {
        return deny("Credentials", &what, "the Secret asks for a token of a ServiceAccount", "use a projected volume");
    }
    let cluster = target.namespace.is_empty();
    if kinds::gives_rights(gvk)
        && !grant.permissions.iter().any(|line| line.covers(Verb::Apply, gvk, Some(&target.name), cluster))
    {
        return not_granted(&what, Verb::Apply, gvk, &target.name, cluster);
    }
    Decision::Allow
}

/// May the templates of a package have this object of the cluster? Only with a permission for the whole cluster with the
/// verb `apply`.
#[must_use]
pub fn allows_in_cluster(grant: &Grant, target: &ObjectRef) -> bool {
    grant.permissions.iter().any(|line| line.covers(Verb::Apply, &target.gvk, Some(&target.name), true))
}

fn not_granted(what: &str, verb: Verb, gvk: &Gvk, name: &str, cluster: bool) -> Decision {
    let group = if gvk.group.is_empty() { "\"\"" } else { &gvk.group };
    let cluster = if cluster { ", cluster: true" } else { "" };
    deny(
        "NotGranted",
        &what,
        format!("'{}' on {} {name:?} is not granted", verb.as_str(), gvk.kind),
        format!(
            "add to permissions and grant: {{apiGroups: [{group}], kinds: [{}], verbs: [{}]{cluster}}}",
            gvk.kind,
            verb.as_str()
        ),
    )
}

fn allows_operation(application: &ApplicationId, grant: &Grant, operation: &Operation, scope: Scope) -> Decision {
    let target = &operation.target;
    if let Some(why) = kinds::malformed(&target.gvk) {
        return deny("BadOperation", operation, why, "write apiVersion and kind as the API server does");
    }
    if let Some(own) = kinds::forbidden(&target.gvk) {
        return deny("HostObject", operation, own, "hooks cannot change the objects of the host itself");
    }
    let cluster = scope == Scope::Cluster || kinds::is_cluster_scoped(&target.gvk);
    if cluster && !target.namespace.is_empty() {
        return deny(
            "BadOperation",
            operation,
            "the kind is cluster-scoped and has no namespace",
            "leave the namespace empty",
        );
    }
    if !cluster && !target.namespace.is_empty() && target.namespace != application.namespace() {
        return deny(
            "ForeignNamespace",
            operation,
            format!("the hooks of this application may only name namespace '{}'", application.namespace()),
            "leave the namespace empty",
        );
    }
    if let Some(why) = bad_name(&target.name) {
        return deny("BadOperation", operation, why, "use the name of an object");
    }
    if operation.subresource.is_some()
        && matches!(operation.action, Action::Create { .. } | Action::CreateIfNotExists { .. } | Action::Delete { .. })
    {
        return deny(
            "BadOperation",
            operation,
            "a subresource can only be patched or applied",
            "leave the subresource out",
        );
    }
    let verbs: &[Verb] = match operation.action {
        Action::Create { .. } | Action::CreateIfNotExists { .. } => &[Verb::Create],
        Action::CreateOrUpdate { .. } => &[Verb::Create, Verb::Patch],
        Action::Apply { .. } => &[Verb::Apply],
        Action::MergePatch { .. } | Action::JsonPatch { .. } | Action::JqPatch { .. } => &[Verb::Patch],
        Action::Delete { .. } => &[Verb::Delete],
    };
    for &verb in verbs {
        let name = target.name.as_str();
        if !grant.permissions.iter().any(|line| line.covers(verb, &target.gvk, Some(name), cluster)) {
            return not_granted(&operation.to_string(), verb, &target.gvk, name, cluster);
        }
    }
    match &operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => object::check_given(application, operation, object, cluster),
        Action::MergePatch { patch } => match check_patch(operation) {
            Decision::Allow => object::check_merge(application, operation, patch),
            denied @ Decision::Deny(_) => denied,
        },
        Action::JsonPatch { .. } | Action::JqPatch { .. } => check_patch(operation),
        Action::Delete { .. } => Decision::Allow,
    }
}

fn bad_name(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    if name.is_empty() {
        Some("the name is empty")
    } else if name.len() > 253 {
        Some("the name is longer than 253 characters")
    } else if name == "." || name == ".." || !name.chars().all(plain) {
        Some("the name has characters that no object has")
    } else {
        None
    }
}
