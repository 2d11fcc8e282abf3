//! Which rendered objects a release may have, and what becomes of each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::directives::{Directives, Ownership, Phase};
use super::helm::{HOOK_ANNOTATION, HookMark, hook_mark, sort_hooks};
use super::{
    APPLICATION_ANNOTATION, HERITAGE, HERITAGE_LABEL, HelmHook, HookEvent, MAINTENANCE_LABEL, OBJECTS_MAX, PlanInput,
    Problem, Refused, ReleaseObject, Rendered,
};
use crate::grant::{INSTANCE_LABEL, PACKAGE_LABEL, Scope};
use crate::identity::{Gvk, ObjectRef};

/// Rendered objects, sorted by what becomes of them.
pub(super) struct Accepted {
    /// Definitions of kinds that come before everything and stay for ever.
    pub(super) definitions: Vec<ReleaseObject>,
    /// What belongs to the release.
    pub(super) objects: Vec<(ReleaseObject, Directives)>,
    /// Hooks by event, in order.
    pub(super) hooks: BTreeMap<HookEvent, Vec<HelmHook>>,
    /// Group and kind of what the release defines.
    pub(super) defined: BTreeSet<(String, String)>,
    /// What a reader should know.
    pub(super) notes: Vec<String>,
}

/// Sorts rendered objects, or says everything that is wrong with them.
pub(super) fn accept(
    input: &mut PlanInput<'_>,
    scope_of: &dyn Fn(&Gvk) -> Option<Scope>,
    cluster_allowed: &dyn Fn(&ObjectRef) -> bool,
) -> Result<Accepted, Refused> {
    let mut problems = Vec::new();
    let rendered = expand_lists(std::mem::take(&mut input.rendered), &mut problems);
    let definitions = expand_lists(std::mem::take(&mut input.definitions), &mut problems);
    if rendered.len() + definitions.len() > OBJECTS_MAX {
        problems.push(Problem {
            reason: "TooManyObjects".to_owned(),
            source_file: "templates".to_owned(),
            what: format!("{} objects", rendered.len() + definitions.len()),
            why: format!("a release may have at most {OBJECTS_MAX}"),
            hint: "split the package".to_owned(),
        });
        return Err(Refused { problems });
    }
    let defined = defined_kinds(rendered.iter().chain(&definitions));
    let mut judge =
        Judge { input, scope_of, cluster_allowed, defined: &defined, seen: BTreeMap::new(), notes: Vec::new() };
    let mut accepted = Accepted {
        definitions: Vec::new(),
        objects: Vec::new(),
        hooks: BTreeMap::new(),
        defined: defined.keys().cloned().collect(),
        notes: Vec::new(),
    };
    for one in definitions {
        match judge.definition(one) {
            Ok(object) => accepted.definitions.push(object),
            Err(problem) => problems.push(problem),
        }
    }
    for one in rendered {
        match judge.object(one, &mut problems) {
            Some(Judged::Object(object, directives)) => accepted.objects.push((object, directives)),
            Some(Judged::Hook(hook, directives)) => {
                for event in &hook.events {
                    accepted.hooks.entry(*event).or_default().push(hook.clone());
                }
                // It may be both: deployed before an installation and with the objects of an upgrade.
                if directives.deploy_on.iter().any(|(_, phase)| *phase == Phase::Main) {
                    let HelmHook { target, object, source, .. } = hook;
                    accepted.objects.push((ReleaseObject { target, object, source }, directives));
                }
            }
            Some(Judged::LeftOut(note)) => accepted.notes.push(note),
            None => {}
        }
    }
    accepted.notes.append(&mut judge.notes);
    if !problems.is_empty() {
        return Err(Refused { problems });
    }
    accepted.hooks.values_mut().for_each(|list| sort_hooks(list));
    Ok(accepted)
}

enum Judged {
    Object(ReleaseObject, Directives),
    Hook(HelmHook, Directives),
    LeftOut(String),
}

struct Judge<'a> {
    input: &'a PlanInput<'a>,
    scope_of: &'a dyn Fn(&Gvk) -> Option<Scope>,
    cluster_allowed: &'a dyn Fn(&ObjectRef) -> bool,
    defined: &'a BTreeMap<(String, String), Scope>,
    /// Template of every object so far, by what makes it the same object.
    seen: BTreeMap<(String, String, String, String), String>,
    notes: Vec<String>,
}

impl Judge<'_> {
    /// A definition of `crds/`: it is not the release's, gets no labels and never goes.
    fn definition(&mut self, Rendered { mut object, source }: Rendered) -> Result<ReleaseObject, Problem> {
        drop_nulls(&mut object);
        let target = self.target(&mut object, &source)?;
        if target.gvk.kind != "CustomResourceDefinition" || target.gvk.group != "apiextensions.k8s.io" {
            return Err(Problem {
                reason: "BadManifest".to_owned(),
                source_file: source,
                what: target.to_string(),
                why: "only a CustomResourceDefinition may be in crds/".to_owned(),
                hint: "move the object to templates/".to_owned(),
            });
        }
        place(&mut object, &target).map_err(|why| Problem {
            reason: "BadManifest".to_owned(),
            source_file: source.clone(),
            what: target.to_string(),
            why,
            hint: "labels and annotations are maps of text".to_owned(),
        })?;
        Ok(ReleaseObject { target, object, source })
    }

    /// An object of a template; nothing if it has problems, which are then told.
    fn object(&mut self, Rendered { mut object, source }: Rendered, problems: &mut Vec<Problem>) -> Option<Judged> {
        drop_nulls(&mut object);
        let target = match self.target(&mut object, &source) {
            Ok(target) => target,
            Err(problem) => {
                problems.push(problem);
                return None;
            }
        };
        let problem = |why: String, hint: &str| Problem {
            reason: "BadManifest".to_owned(),
            source_file: source.clone(),
            what: target.to_string(),
            why,
            hint: hint.to_owned(),
        };
        let directives = match Directives::read(&object) {
            Ok(directives) => directives,
            Err(bad) => {
                let told =
                    bad.into_iter().map(|bad| problem(format!("annotation {}: {}", bad.name, bad.why), &bad.hint));
                problems.extend(told);
                return None;
            }
        };
        let mark = hook_mark(&object, &directives);
        // Helm does not mark hooks either; here they are, so that nothing of a package is without an owner.
        let placed = place(&mut object, &target).and_then(|()| match directives.ownership {
            Ownership::Release => stamp(&mut object, &target, self.input),
            Ownership::Anyone => Ok(()),
        });
        if let Err(why) = placed {
            problems.push(problem(why, "labels and annotations are maps of text"));
            return None;
        }
        match mark {
            HookMark::None => Some(Judged::Object(ReleaseObject { target, object, source }, directives)),
            HookMark::Unknown(word) => Some(Judged::LeftOut(format!(
                "{target} in {source} is left out: {word:?} is no event of {HOOK_ANNOTATION}"
            ))),
            HookMark::Hook { events, weight, delete_policies, unknown } => {
                let told = unknown
                    .iter()
                    .map(|word| format!("{target} in {source}: delete policy {word:?} is not known and has no effect"));
                self.notes.extend(told);
                let hook = HelmHook { target, object, source, events, weight, delete_policies };
                Some(Judged::Hook(hook, directives))
            }
        }
    }

    /// The reference of an object, if the release may have it. Sets the namespace of the reference.
    fn target(&mut self, object: &mut Value, source: &str) -> Result<ObjectRef, Problem> {
        let problem = |reason: &str, what: String, why: String, hint: &str| Problem {
            reason: reason.to_owned(),
            source_file: source.to_owned(),
            what,
            why,
            hint: hint.to_owned(),
        };
        let mut target = ObjectRef::of(object).map_err(|bad| {
            let hint = "every object needs apiVersion, kind and metadata.name";
            problem("BadManifest", describe(object), bad.to_string(), hint)
        })?;
        if let Some(why) = bad_object_name(&target) {
            let hint = "use a name that the API server accepts, such as 'web-2' or 'web.config'";
            return Err(problem("BadManifest", target.to_string(), why.to_owned(), hint));
        }
        if let Some(why) = belongs_to_host(&target, object) {
            let hint = "leave the object out of the templates";
            return Err(problem("HostObject", target.to_string(), why.to_owned(), hint));
        }
        let kind = (target.gvk.group.clone(), target.gvk.kind.clone());
        let Some(scope) = self.defined.get(&kind).copied().or_else(|| (self.scope_of)(&target.gvk)) else {
            let why = format!("the cluster does not serve {}", target.gvk);
            let hint = "install what defines the kind first, or add its CustomResourceDefinition to the package";
            return Err(problem("KindNotServed", target.to_string(), why, hint));
        };
        let application = self.input.application;
        match scope {
            Scope::Namespaced => {
                if target.namespace.is_empty() {
                    application.namespace().clone_into(&mut target.namespace);
                } else if target.namespace != application.namespace() {
                    let own = application.namespace();
                    let why = format!("an application may only have objects in its namespace '{own}'");
                    return Err(problem("ForeignNamespace", target.to_string(), why, "leave metadata.namespace out"));
                }
            }
            Scope::Cluster => {
                // Charts often write the namespace everywhere; the API server would refuse it here.
                target.namespace.clear();
                if !(self.cluster_allowed)(&target) {
                    let kind = &target.gvk.kind;
                    let hint = format!("grant the package '{kind}' in the whole cluster, or leave the object out");
                    let why = "the kind is cluster-scoped".to_owned();
                    return Err(problem("ClusterScopeNotGranted", target.to_string(), why, &hint));
                }
            }
        }
        // The version does not tell objects apart: the API server has one object under all its versions.
        if let Some(first) = self.seen.insert(key_of(&target), source.to_owned()) {
            let why = format!("the object is also in {first}");
            return Err(problem("DuplicateObject", target.to_string(), why, "render each object once"));
        }
        Ok(target)
    }
}

/// API group of the host's own kinds.
const HOST_GROUP: &str = "deckhouse.io";

fn key_of(target: &ObjectRef) -> (String, String, String, String) {
    let ObjectRef { gvk, namespace, name } = target;
    (gvk.group.clone(), gvk.kind.clone(), namespace.clone(), name.clone())
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

/// What an API server refuses in a name, and what would lead a URL astray. Who serves a group decides about its names;
/// those of Kubernetes itself are DNS names, apart from those of roles, which may be anything that fits into a path.
fn bad_object_name(target: &ObjectRef) -> Option<&'static str> {
    let (name, group) = (target.name.as_str(), target.gvk.group.as_str());
    let own = !group.contains('.') || group.ends_with(".k8s.io");
    let free = group == "rbac.authorization.k8s.io" || target.gvk.kind == "ClusterTrustBundle";
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.len() > 253 {
        Some("the name is longer than 253 characters")
    } else if name == "." || name == ".." || name.contains(['/', '%']) || name.chars().any(char::is_control) {
        Some("the name has characters that no object has")
    } else if !own || free {
        None
    } else if !name.chars().all(|c| edge(c) || matches!(c, '-' | '.')) {
        Some("only lower-case letters, digits, '-' and '.' are allowed in the name")
    } else if !name.split('.').all(|part| part.starts_with(edge) && part.ends_with(edge)) {
        Some("the name, and what stands between dots in it, must begin and end with a letter or digit")
    } else {
        None
    }
}

/// What no package may bring, and no release may remove: a forged release record would make the host believe that objects
/// of others are its own to delete, and the host's own kinds decide about packages. Says why.
#[must_use]
pub fn belongs_to_host(target: &ObjectRef, object: &Value) -> Option<&'static str> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let defines = target.gvk.group == "apiextensions.k8s.io" && target.name.ends_with(".deckhouse.io");
    if target.gvk.group == HOST_GROUP || (defines && text("/spec/group").is_none_or(|group| group == HOST_GROUP)) {
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
fn defined_kinds<'a>(rendered: impl IntoIterator<Item = &'a Rendered>) -> BTreeMap<(String, String), Scope> {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    rendered
        .into_iter()
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

/// The labels or annotations of an object, which must be text.
fn text_map<'a>(metadata: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>, String> {
    let entry = metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(map) = entry else { return Err(format!("metadata.{field} is no map")) };
    if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
        return Err(format!("metadata.{field}[{key:?}] is no text"));
    }
    Ok(map)
}

fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, String> {
    object.get_mut("metadata").and_then(Value::as_object_mut).ok_or_else(|| "metadata is no map".to_owned())
}

/// Puts the namespace on the object, and takes off what only the API server writes.
fn place(object: &mut Value, target: &ObjectRef) -> Result<(), String> {
    let metadata = metadata_of(object)?;
    for set_by_server in
        ["managedFields", "resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "selfLink", "generation"]
    {
        metadata.remove(set_by_server);
    }
    if target.namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), target.namespace.clone().into());
    }
    for field in ["labels", "annotations"] {
        if metadata.contains_key(field) {
            text_map(metadata, field)?;
        }
    }
    Ok(())
}

/// Puts our labels on the metadata of the object itself, never on templates inside it.
fn stamp(object: &mut Value, target: &ObjectRef, input: &PlanInput<'_>) -> Result<(), String> {
    let metadata = metadata_of(object)?;
    if target.namespace.is_empty() {
        let annotations = text_map(metadata, "annotations")?;
        annotations.insert(APPLICATION_ANNOTATION.to_owned(), input.application.to_string().into());
    }
    let labels = text_map(metadata, "labels")?;
    labels.insert(INSTANCE_LABEL.to_owned(), input.application.name().into());
    labels.insert(PACKAGE_LABEL.to_owned(), input.package.into());
    labels.insert(HERITAGE_LABEL.to_owned(), HERITAGE.into());
    if input.maintenance {
        labels.insert(MAINTENANCE_LABEL.to_owned(), "".into());
    }
    Ok(())
}
