//! A release as data: what will be applied, in which order, what goes, and whether anything has to be done at all.
//!
//! [`plan`] takes the rendered objects of a package and makes of them a [`Plan`] that can be printed, compared and
//! performed. It refuses what must not reach a cluster, all problems at once, before anything is written. Nothing here
//! talks to a cluster: where a kind lives is asked of a function.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::grant::{INSTANCE_LABEL, PACKAGE_LABEL, Scope};
use crate::identity::{ApplicationId, Gvk, ObjectRef};

mod helm;
pub mod history;
mod order;
#[cfg(test)]
mod tests;
pub mod tracking;

pub use helm::{DeletePolicy, HOOK_ANNOTATION, HelmHook, HookEvent, is_kept};
pub use order::{install_rank, remove_rank};

use helm::{HookMark, hook_mark, unknown_resource_policy};
use order::Part;

/// Label of everything that a package brings.
pub const HERITAGE_LABEL: &str = "heritage";
/// Value of [`HERITAGE_LABEL`].
pub const HERITAGE: &str = "deckhouse";
/// Label of the objects of an application whose resources are left alone.
pub const MAINTENANCE_LABEL: &str = "maintenance.deckhouse.io/no-resource-reconciliation";
/// Annotation with `<namespace>.<name>` on cluster-scoped objects, where the name in [`INSTANCE_LABEL`] does not tell
/// two applications of different namespaces apart. A label would be too short for it.
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
}

impl InventoryItem {
    /// The inventory of objects; one that has no name is left out.
    #[must_use]
    pub fn of_objects<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Vec<Self> {
        objects
            .into_iter()
            .filter_map(|object| {
                let target = ObjectRef::of(object).ok()?;
                Some(Self { target, keep: is_kept(object) })
            })
            .collect()
    }
}

/// What a plan is made of.
#[derive(Debug, Clone)]
pub struct PlanInput<'a> {
    /// The application.
    pub application: &'a ApplicationId,
    /// Name of its package.
    pub package: &'a str,
    /// The rendered objects, in the order of rendering.
    pub rendered: Vec<Rendered>,
    /// What the last apply left in the cluster.
    pub previous: &'a [InventoryItem],
    /// Mark the objects as left alone.
    pub maintenance: bool,
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

/// Objects that are applied one kind after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// In order of installation.
    pub objects: Vec<ReleaseObject>,
    /// The next wave begins when all objects so far are ready. Configuration and volumes are not waited for: a volume
    /// may be bound only once a workload asks for it.
    pub wait: bool,
}

/// What an apply will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The application.
    pub application: ApplicationId,
    /// Name of its package.
    pub package: String,
    /// What is applied, in order.
    pub waves: Vec<Wave>,
    /// The Helm hooks of each event, in order.
    pub hooks: BTreeMap<HookEvent, Vec<HelmHook>>,
    /// What the last apply left.
    pub previous: Vec<ObjectRef>,
    /// Of that, what goes, in order of removal.
    pub prune: Vec<ObjectRef>,
    /// Of that, what the release drops but the resource policy keeps.
    pub kept: Vec<ObjectRef>,
    /// Digest of all manifests, `sha256:…`.
    pub digest: String,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// All objects of the release, in order.
    pub fn objects(&self) -> impl Iterator<Item = &ReleaseObject> {
        self.waves.iter().flat_map(|wave| &wave.objects)
    }

    /// The inventory that the plan leaves in the cluster.
    #[must_use]
    pub fn inventory(&self) -> Vec<InventoryItem> {
        self.objects().map(|it| InventoryItem { target: it.target.clone(), keep: is_kept(&it.object) }).collect()
    }

    /// Every Helm hook once, in the order of the first event that it has.
    #[must_use]
    pub fn all_hooks(&self) -> Vec<&HelmHook> {
        let mut seen = BTreeSet::new();
        self.hooks.values().flatten().filter(|hook| seen.insert(&hook.target)).collect()
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
/// foreign namespaces, duplicates, unknown kinds, cluster-scoped objects that are not allowed, and too many objects.
pub fn plan(
    input: PlanInput<'_>,
    scope_of: impl Fn(&Gvk) -> Option<Scope>,
    cluster_allowed: impl Fn(&ObjectRef) -> bool,
) -> Result<Plan, Refused> {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    let rendered = expand_lists(input.rendered, &mut problems);
    if rendered.len() > OBJECTS_MAX {
        problems.push(Problem {
            reason: "TooManyObjects".to_owned(),
            source_file: "templates".to_owned(),
            what: format!("{} objects", rendered.len()),
            why: format!("a release may have at most {OBJECTS_MAX}"),
            hint: "split the package".to_owned(),
        });
        return Err(Refused { problems });
    }
    let defined = defined_kinds(&rendered);

    let mut objects = Vec::new();
    let mut hooks: BTreeMap<HookEvent, Vec<HelmHook>> = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for Rendered { mut object, source } in rendered {
        drop_nulls(&mut object);
        let problem = |reason: &str, what: String, why: String, hint: String| Problem {
            reason: reason.to_owned(),
            source_file: source.clone(),
            what,
            why,
            hint,
        };
        let mut target = match ObjectRef::of(&object) {
            Ok(target) => target,
            Err(bad) => {
                problems.push(problem(
                    "BadManifest",
                    describe(&object),
                    bad.to_string(),
                    "every object needs apiVersion, kind and metadata.name".to_owned(),
                ));
                continue;
            }
        };
        if let Some(why) = bad_path_name(&target.name) {
            let hint = "use a name that the API server accepts".to_owned();
            problems.push(problem("BadManifest", target.to_string(), why.to_owned(), hint));
            continue;
        }
        if let Some(why) = belongs_to_host(&target, &object) {
            let hint = "leave the object out of the templates".to_owned();
            problems.push(problem("HostObject", target.to_string(), why.to_owned(), hint));
            continue;
        }
        let definition = defined.get(&(target.gvk.group.clone(), target.gvk.kind.clone())).copied();
        let Some(scope) = definition.or_else(|| scope_of(&target.gvk)) else {
            problems.push(problem(
                "KindNotServed",
                target.to_string(),
                format!("the cluster does not serve {}", target.gvk),
                "install what defines the kind first, or add its CustomResourceDefinition to the package".to_owned(),
            ));
            continue;
        };
        match scope {
            Scope::Namespaced => {
                if target.namespace.is_empty() {
                    input.application.namespace().clone_into(&mut target.namespace);
                } else if target.namespace != input.application.namespace() {
                    problems.push(problem(
                        "ForeignNamespace",
                        target.to_string(),
                        format!(
                            "an application may only have objects in its namespace '{}'",
                            input.application.namespace()
                        ),
                        "leave metadata.namespace out".to_owned(),
                    ));
                    continue;
                }
            }
            Scope::Cluster => {
                // Charts often write the namespace everywhere; the API server would refuse it here.
                target.namespace.clear();
                if !cluster_allowed(&target) {
                    problems.push(problem(
                        "ClusterScopeNotGranted",
                        target.to_string(),
                        "the kind is cluster-scoped".to_owned(),
                        format!(
                            "grant the package '{}' in the whole cluster, or leave the object out",
                            target.gvk.kind
                        ),
                    ));
                    continue;
                }
            }
        }
        // The version does not tell objects apart: the API server has one object under all its versions.
        let key = (target.gvk.group.clone(), target.gvk.kind.clone(), target.namespace.clone(), target.name.clone());
        if let Some(first) = seen.insert(key, source.clone()) {
            problems.push(problem(
                "DuplicateObject",
                target.to_string(),
                format!("the object is also in {first}"),
                "render each object once".to_owned(),
            ));
            continue;
        }
        if let Err(why) = stamp(&mut object, &target, input.application, input.package, input.maintenance) {
            let hint = "labels and annotations are maps of text".to_owned();
            problems.push(problem("BadManifest", target.to_string(), why, hint));
            continue;
        }
        if let Some(policy) = unknown_resource_policy(&object) {
            problems.push(problem(
                "BadManifest",
                target.to_string(),
                format!("helm.sh/resource-policy {policy:?} is not known"),
                "the only policy is 'keep'".to_owned(),
            ));
            continue;
        }
        match hook_mark(&object) {
            HookMark::None => objects.push(ReleaseObject { target, object, source }),
            HookMark::Unknown(word) => {
                notes.push(format!("{target} in {source} is left out: {word:?} is no event of {HOOK_ANNOTATION}"));
            }
            HookMark::Hook { events, weight, delete_policies, unknown } => {
                for word in unknown {
                    notes.push(format!("{target} in {source}: delete policy {word:?} is not known and has no effect"));
                }
                let hook = HelmHook { target, object, source, events: events.clone(), weight, delete_policies };
                for event in events {
                    hooks.entry(event).or_default().push(hook.clone());
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(Refused { problems });
    }
    for list in hooks.values_mut() {
        sort_hooks(list);
    }

    // Hooks count as present: an object that became a hook is no longer the release's to delete.
    let present: BTreeSet<_> = objects
        .iter()
        .map(|object| identity_of(&object.target))
        .chain(hooks.values().flatten().map(|hook| identity_of(&hook.target)))
        .collect();
    let (mut prune, mut kept) = (Vec::new(), Vec::new());
    for item in input.previous {
        if !present.contains(&identity_of(&item.target)) {
            if item.keep { &mut kept } else { &mut prune }.push(item.target.clone());
        }
    }
    prune.sort_by_key(|target| remove_rank(&target.gvk.kind));

    let mut plan = Plan {
        application: input.application.clone(),
        package: input.package.to_owned(),
        digest: String::new(),
        waves: waves(objects, &defined),
        hooks,
        previous: input.previous.iter().map(|item| item.target.clone()).collect(),
        prune,
        kept,
        notes,
    };
    plan.digest = digest(plan.objects().map(|it| &it.object).chain(plan.all_hooks().iter().map(|it| &it.object)));
    Ok(plan)
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

/// What makes an object the same in two inventories: everything but the version.
fn identity_of(target: &ObjectRef) -> (&str, &str, &str, &str) {
    (&target.gvk.group, &target.gvk.kind, &target.namespace, &target.name)
}

/// Says what an object is that may have no name.
fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("/kind"), text("/metadata/name")) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (Some(kind), None) => format!("{kind} without a name"),
        (None, Some(name)) => format!("object {name} without a kind"),
        (None, None) => "object without kind and name".to_owned(),
    }
}

/// What an API server refuses in any name, and what would lead a URL astray.
fn bad_path_name(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        Some("the name is longer than 253 characters")
    } else if name == "." || name == ".." || name.contains(['/', '%']) || name.chars().any(char::is_control) {
        Some("the name has characters that no object has")
    } else {
        None
    }
}

/// What no package may bring, and no release may remove: a forged release record would make the host believe that objects
/// of others are its own to delete, and the host's own kinds decide about packages. Says why.
#[must_use]
pub fn belongs_to_host(target: &ObjectRef, object: &Value) -> Option<&'static str> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    if target.gvk.group == "deckhouse.io" {
        Some("the kind belongs to the host")
    } else if target.name.starts_with("sh.helm.release.v1.")
        || text("/type") == Some("helm.sh/release.v1")
        || text("/metadata/labels/owner") == Some("helm")
    {
        Some("release records belong to the host")
    } else {
        None
    }
}

/// Puts the items of `List` objects in place of them.
fn expand_lists(rendered: Vec<Rendered>, problems: &mut Vec<Problem>) -> Vec<Rendered> {
    let mut expanded = Vec::with_capacity(rendered.len());
    for Rendered { mut object, source } in rendered {
        // A custom resource may be called "AccessList", but then it has a name.
        let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
            && object.pointer("/metadata/name").is_none();
        match object.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if is_list => {
                expanded.extend(items.into_iter().map(|object| Rendered { object, source: source.clone() }));
            }
            // An empty list may be rendered as null.
            None | Some(Value::Null) if object.get("kind").and_then(Value::as_str) == Some("List") => {}
            Some(_) if is_list => problems.push(Problem {
                reason: "BadManifest".to_owned(),
                source_file: source,
                what: describe(&object),
                why: "items is no list".to_owned(),
                hint: "put the objects into a list".to_owned(),
            }),
            other => {
                if let (Some(items), Some(map)) = (other, object.as_object_mut()) {
                    map.insert("items".to_owned(), items);
                }
                expanded.push(Rendered { object, source });
            }
        }
    }
    expanded
}

/// The kinds that the release defines, by group and kind, and where their objects live.
fn defined_kinds(rendered: &[Rendered]) -> BTreeMap<(String, String), Scope> {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    rendered
        .iter()
        .filter(|it| text(&it.object, "/kind").as_deref() == Some("CustomResourceDefinition"))
        .filter_map(|it| {
            let scope = match text(&it.object, "/spec/scope")?.as_str() {
                "Cluster" => Scope::Cluster,
                _ => Scope::Namespaced,
            };
            Some(((text(&it.object, "/spec/group")?, text(&it.object, "/spec/names/kind")?), scope))
        })
        .collect()
}

/// Removes map entries that are null: a chart writes them for "not set", while server-side apply would own them.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, entry| !entry.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Puts namespace and labels on the metadata of the object itself, never on templates inside it.
fn stamp(
    object: &mut Value,
    target: &ObjectRef,
    application: &ApplicationId,
    package: &str,
    maintenance: bool,
) -> Result<(), String> {
    fn text_map<'a>(metadata: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>, String> {
        let entry = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(map) = entry else { return Err(format!("metadata.{field} is no map")) };
        if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!("metadata.{field}[{key:?}] is no text"));
        }
        Ok(map)
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("metadata is no map".to_owned());
    };
    for set_by_server in
        ["managedFields", "resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "selfLink", "generation"]
    {
        metadata.remove(set_by_server);
    }
    if target.namespace.is_empty() {
        metadata.remove("namespace");
        text_map(metadata, "annotations")?.insert(APPLICATION_ANNOTATION.to_owned(), application.to_string().into());
    } else {
        metadata.insert("namespace".to_owned(), target.namespace.clone().into());
        if metadata.contains_key("annotations") {
            text_map(metadata, "annotations")?;
        }
    }
    let labels = text_map(metadata, "labels")?;
    labels.insert(INSTANCE_LABEL.to_owned(), application.name().into());
    labels.insert(PACKAGE_LABEL.to_owned(), package.into());
    labels.insert(HERITAGE_LABEL.to_owned(), HERITAGE.into());
    if maintenance {
        labels.insert(MAINTENANCE_LABEL.to_owned(), "".into());
    }
    Ok(())
}

/// Sorts objects into waves.
fn waves(objects: Vec<ReleaseObject>, defined: &BTreeMap<(String, String), Scope>) -> Vec<Wave> {
    let mut parts: BTreeMap<Part, Vec<ReleaseObject>> = BTreeMap::new();
    for object in objects {
        let gvk = &object.target.gvk;
        let defined_here = defined.contains_key(&(gvk.group.clone(), gvk.kind.clone()));
        parts.entry(Part::of(gvk, defined_here)).or_default().push(object);
    }
    let mut waves: Vec<Wave> = Vec::new();
    for (part, mut objects) in parts {
        // Stable: inside a kind the order of rendering remains.
        objects.sort_by(|a, b| {
            let rank = |it: &ReleaseObject| install_rank(&it.target.gvk.kind);
            rank(a).cmp(&rank(b)).then_with(|| a.target.gvk.kind.cmp(&b.target.gvk.kind))
        });
        waves.push(Wave { objects, wait: part != Part::Foundation });
    }
    if let Some(last) = waves.last_mut() {
        last.wait = true;
    }
    waves
}

/// Digest of a set of manifests, `sha256:…`. The order does not matter, and neither does that of keys.
#[must_use]
pub fn digest<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let mut texts: Vec<String> = objects
        .into_iter()
        .map(|object| {
            let mut text = String::new();
            canonical(object, &mut text);
            text
        })
        .collect();
    texts.sort_unstable();
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.as_bytes());
        hasher.update(b"\n");
    }
    let mut digest = String::from("sha256:");
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// Writes JSON with sorted keys and no blanks.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

/// Status of a revision, in Helm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseStatus {
    /// Nobody knows.
    Unknown,
    /// It is what the cluster has.
    Deployed,
    /// It was removed, its history stays.
    Uninstalled,
    /// A later revision was deployed.
    Superseded,
    /// Its apply failed.
    Failed,
    /// It is being removed.
    Uninstalling,
    /// It is being applied for the first time.
    PendingInstall,
    /// It is being applied.
    PendingUpgrade,
    /// An earlier revision is being applied again.
    PendingRollback,
}

impl ReleaseStatus {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Whether an apply of the revision has begun and not ended.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

/// Why a release has to be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradeReason {
    /// There is none yet.
    NoRelease,
    /// The last apply did not end well.
    NotDeployed(ReleaseStatus),
    /// The rendered manifests are others.
    ManifestsChanged,
    /// Objects of it are gone from the cluster.
    ObjectsMissing(Vec<ObjectRef>),
}

impl fmt::Display for UpgradeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRelease => f.write_str("there is no release yet"),
            Self::NotDeployed(status) => write!(f, "the last revision is {}", status.as_str()),
            Self::ManifestsChanged => f.write_str("the rendered manifests changed"),
            Self::ObjectsMissing(missing) => {
                f.write_str("missing: ")?;
                for (index, target) in missing.iter().take(crate::limits::TIMEOUT_NAMES).enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{target}")?;
                }
                match missing.len().saturating_sub(crate::limits::TIMEOUT_NAMES) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

/// Whether rendered manifests have to be applied: `last` is the status and the manifest digest of the last revision,
/// `digest` that of the plan, `missing` what an existence check found gone.
#[must_use]
pub fn upgrade_needed(
    last: Option<(ReleaseStatus, &str)>,
    digest: &str,
    missing: &[ObjectRef],
) -> Option<UpgradeReason> {
    match last {
        None => Some(UpgradeReason::NoRelease),
        Some((status, _)) if status != ReleaseStatus::Deployed => Some(UpgradeReason::NotDeployed(status)),
        Some((_, deployed)) if deployed != digest => Some(UpgradeReason::ManifestsChanged),
        Some(_) if !missing.is_empty() => Some(UpgradeReason::ObjectsMissing(missing.to_vec())),
        Some(_) => None,
    }
}

/// What a removal will do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Objects to delete; those of one step must be gone before the next begins.
    pub steps: Vec<Vec<ObjectRef>>,
    /// Objects that the resource policy keeps.
    pub kept: Vec<ObjectRef>,
}

/// Orders the removal of an inventory: webhooks, custom resources before their definition and while their operator
/// still runs, workloads, definitions, and at last configuration and accounts. `custom` names the kinds that the
/// release defines, see [`defined_by`].
#[must_use]
pub fn removal(inventory: &[InventoryItem], custom: &BTreeSet<(String, String)>) -> Removal {
    let mut parts: BTreeMap<u8, Vec<ObjectRef>> = BTreeMap::new();
    let mut kept = Vec::new();
    for item in inventory {
        if item.keep {
            kept.push(item.target.clone());
            continue;
        }
        let gvk = &item.target.gvk;
        let part = match Part::of(gvk, custom.contains(&(gvk.group.clone(), gvk.kind.clone()))) {
            Part::Admission => 0,
            Part::Custom => 1,
            // A custom resource whose definition is not in the release: an operator elsewhere looks after it.
            Part::Workloads if !order::is_known(&gvk.kind) => 1,
            Part::Workloads => 2,
            Part::Definitions => 3,
            Part::Foundation => 4,
        };
        parts.entry(part).or_default().push(item.target.clone());
    }
    let steps = parts.into_values().map(|mut step| {
        step.reverse();
        step.sort_by_key(|target| remove_rank(&target.gvk.kind));
        step
    });
    Removal { steps: steps.collect(), kept }
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
