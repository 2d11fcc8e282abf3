//! Settings and values: the document that hooks and templates see, and how it comes about.
//!
//! Layers, the lowest first: static `values.yaml` · defaults of the settings · `spec.settings` · defaults of the values ·
//! changes by hooks. The effective settings are the second and the third. Objects are merged, everything else is
//! replaced.
//!
//! The whole document is checked after every change of any layer, before anything is accepted: a bad default is found
//! when it is loaded, not when some hook happens to change something else. A hook can neither change a setting nor hide
//! one: whatever the schema of the settings has at its root belongs to the user.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

use crate::package::document::{join, segments};
use crate::package::{Package, Problem, hex, kind};
use crate::run::ValuesChange;

/// What settings are called in problems.
pub const SETTINGS: &str = "spec.settings";
/// What values are called in problems.
pub const VALUES: &str = "values";
/// Key of the values that lists kinds of objects to be purged.
pub const ORPHAN_RESOURCES: &str = "orphanResources";
/// Stored changes of one application. A hook that needs more should set one object in place of its members.
pub const CHANGES_MAX: usize = 10_000;
/// Segments of one pointer.
const POINTER_SEGMENTS: usize = 64;
/// Entries of `orphanResources`.
const ORPHAN_KINDS_MAX: usize = 100;

/// What hooks have changed, in the order in which it has to be applied.
///
/// The last change of a pointer wins, and a change of a parent drops those below it, whichever hook made them. What
/// remains belongs to the hook that made it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Patches {
    entries: Vec<Patch>,
}

/// One stored change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredPatch", into = "StoredPatch")]
pub struct Patch {
    /// The hook that made it.
    pub hook: String,
    /// What it changed.
    pub change: ValuesChange,
}

/// A change as text. The value is the only element of a list, or the list is empty: an absent value means a removal,
/// and `null` is a value.
#[derive(Serialize, Deserialize)]
struct StoredPatch {
    hook: String,
    pointer: String,
    value: Vec<Value>,
}

impl From<StoredPatch> for Patch {
    fn from(stored: StoredPatch) -> Self {
        let value = stored.value.into_iter().next();
        Self { hook: stored.hook, change: ValuesChange { pointer: stored.pointer, value } }
    }
}

impl From<Patch> for StoredPatch {
    fn from(patch: Patch) -> Self {
        let value = patch.change.value.into_iter().collect();
        Self { hook: patch.hook, pointer: patch.change.pointer, value }
    }
}

impl Patches {
    /// None.
    pub const EMPTY: Self = Self { entries: Vec::new() };

    /// All of them, in order.
    #[must_use]
    pub fn entries(&self) -> &[Patch] {
        &self.entries
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Without the changes of hooks that are not in the set: a new version of a package may have lost some.
    #[must_use]
    pub fn only_of(&self, hooks: &BTreeSet<String>) -> Self {
        Self { entries: self.entries.iter().filter(|entry| hooks.contains(&entry.hook)).cloned().collect() }
    }

    /// Without the changes of one hook.
    #[must_use]
    pub fn without(&self, hook: &str) -> Self {
        Self { entries: self.entries.iter().filter(|entry| entry.hook != hook).cloned().collect() }
    }

    fn store(&mut self, hook: &str, change: &ValuesChange) {
        let below = format!("{}/", change.pointer);
        self.entries
            .retain(|entry| entry.change.pointer != change.pointer && !entry.change.pointer.starts_with(&below));
        self.entries.push(Patch { hook: hook.to_owned(), change: change.clone() });
    }

    /// The hooks that made them, in the order of their first change.
    fn hooks(&self) -> Vec<&str> {
        let mut hooks: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if !hooks.contains(&entry.hook.as_str()) {
                hooks.push(&entry.hook);
            }
        }
        hooks
    }

    /// Applies all of them to the layers below. What cannot be applied any more, because something that is no object
    /// stands in its way, is left out.
    fn apply(&self, document: &mut Value) {
        for entry in &self.entries {
            let ValuesChange { pointer, value } = &entry.change;
            let Some((last, way)) = segments(pointer).and_then(|mut path| path.pop().map(|last| (last, path))) else {
                continue;
            };
            match value {
                Some(value) => {
                    let parent = way.iter().try_fold(&mut *document, |node, segment| {
                        let made = || Value::Object(Map::new());
                        Some(node.as_object_mut()?.entry(segment.clone()).or_insert_with(made))
                    });
                    if let Some(Value::Object(parent)) = parent {
                        parent.insert(last, value.clone());
                    }
                }
                None => {
                    let parent =
                        way.iter().try_fold(&mut *document, |node, segment| node.as_object_mut()?.get_mut(segment));
                    if let Some(Value::Object(parent)) = parent {
                        parent.remove(&last);
                    }
                }
            }
        }
    }

    /// Drops removals of what is not there without them: a hook that adds and removes a key per object would otherwise
    /// leave a trace of each for ever.
    fn compact(&mut self, base: &Value) {
        let mut document = base.clone();
        self.entries.retain(|entry| {
            let one = Self { entries: vec![entry.clone()] };
            let needed = entry.change.value.is_some() || document.pointer(&entry.change.pointer).is_some();
            if needed {
                one.apply(&mut document);
            }
            needed
        });
    }
}

/// The documents that hooks and templates see.
#[derive(Debug, Clone, PartialEq)]
pub struct Computed {
    /// The effective settings: what the user wrote, with defaults.
    pub settings: Arc<Value>,
    /// The values.
    pub values: Arc<Value>,
    /// `sha256:…` of the values.
    pub digest: String,
    /// `sha256:…` of the effective settings.
    pub settings_digest: String,
}

/// Computes and checks both documents.
///
/// `settings` is what the user wrote (`null` counts as nothing); `previous` are the documents before, for rules that
/// compare and for fields that may be set once only; leave them out if the package has changed since, because rules of
/// one version say nothing about documents of another. (Fields that were frozen stay so across versions: ask
/// [`crate::schema::Schema::check_immutable`] of the new one.) `values_bytes` bounds the values as JSON text.
///
/// # Errors
/// All violations, or those of the settings alone if there are any: everything else follows from them.
pub fn compute(
    package: &Package,
    settings: &Value,
    patches: &Patches,
    previous: Option<&Computed>,
    values_bytes: u64,
) -> Result<Computed, Vec<Problem>> {
    let settings = effective_settings(package, settings, previous.map(|previous| &*previous.settings))?;
    let mut values = base(package, &settings);
    patches.apply(&mut values);
    check(package, &values, previous.map(|previous| &*previous.values), values_bytes)?;
    Ok(computed(Arc::new(settings), values))
}

/// What the user wrote, with defaults, checked. `previous` are the effective settings before.
///
/// # Errors
/// All violations.
pub fn effective_settings(
    package: &Package,
    settings: &Value,
    previous: Option<&Value>,
) -> Result<Value, Vec<Problem>> {
    let mut settings = match settings {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => settings.clone(),
        other => {
            return Err(vec![Problem::new("BadType", SETTINGS, "", format!("must be an object, not {}", kind(other)))]);
        }
    };
    let Some(schema) = &package.settings_schema else {
        return match settings.as_object().and_then(|settings| settings.keys().next()) {
            None => Ok(settings),
            Some(_) => Err(vec![
                Problem::new("SettingsWithoutSchema", SETTINGS, "", "the package has no schema of settings")
                    .hint("remove the settings, or add openapi/settings.yaml to the package"),
            ]),
        };
    };
    schema.fill_defaults(&mut settings);
    schema.validate(SETTINGS, &settings, previous)?;
    if let Some(previous) = previous {
        schema.check_immutable(SETTINGS, previous, &settings)?;
    }
    Ok(settings)
}

/// All layers but the changes by hooks.
fn base(package: &Package, settings: &Value) -> Value {
    let mut values = Value::Object(package.static_values.clone());
    merge(&mut values, settings);
    if let Some(schema) = &package.values_schema {
        schema.fill_defaults(&mut values);
    }
    values
}

/// Merges objects, and replaces everything else.
fn merge(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                match below.get_mut(key) {
                    Some(member) => merge(member, value),
                    None => {
                        below.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (below, above) => *below = above.clone(),
    }
}

fn check(package: &Package, values: &Value, old: Option<&Value>, values_bytes: u64) -> Result<(), Vec<Problem>> {
    let bytes = values.to_string().len() as u64;
    if bytes > values_bytes {
        let message = format!("the document has {bytes} bytes, which is more than {values_bytes}");
        let problem = Problem::new("ValuesTooLarge", VALUES, "", message);
        return Err(vec![problem.hint("keep large data in objects of the cluster and their names in the values")]);
    }
    match &package.values_schema {
        Some(schema) => schema.validate(VALUES, values, old),
        None => Ok(()),
    }
}

fn computed(settings: Arc<Value>, values: Value) -> Computed {
    Computed { digest: digest(&values), settings_digest: digest(&settings), settings, values: Arc::new(values) }
}

/// `sha256:…` of a document; keys are sorted, so equal documents have equal digests.
#[must_use]
pub fn digest(document: &Value) -> String {
    hex(&Sha256::digest(document.to_string().as_bytes()))
}

/// The values of one application: package, settings and changes by hooks, and what comes of them.
///
/// It is never changed; each change gives the next one or is refused as a whole.
#[derive(Debug, Clone)]
pub struct Values {
    package: Arc<Package>,
    settings: Value,
    patches: Patches,
    computed: Computed,
    values_bytes: u64,
}

/// What a hook set before and is left out now.
#[derive(Debug, Clone, PartialEq)]
pub struct Unfit {
    /// The hook.
    pub hook: String,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

impl Values {
    /// The values of a package for settings of a user.
    ///
    /// # Errors
    /// As [`compute`].
    pub fn new(
        package: Arc<Package>,
        settings: Value,
        patches: Patches,
        previous: Option<&Computed>,
        values_bytes: u64,
    ) -> Result<Self, Vec<Problem>> {
        let computed = compute(&package, &settings, &patches, previous, values_bytes)?;
        Ok(Self { package, settings, patches, computed, values_bytes })
    }

    /// The values of a package with what hooks set before: of an earlier process, or of an earlier version. That it was
    /// valid then says nothing, so what does not fit is left out: changes of settings one by one, and otherwise all that
    /// a hook changed, because half of it may be worse than nothing. Also gives why, once for each hook that lost any.
    ///
    /// # Errors
    /// As [`compute`] without any of it.
    pub fn restored(
        package: Arc<Package>,
        settings: Value,
        patches: &Patches,
        values_bytes: u64,
    ) -> Result<(Self, Vec<Unfit>), Vec<Problem>> {
        let mut values = Self::new(package, settings, Patches::default(), None, values_bytes)?;
        let mut unfit: Vec<Unfit> = Vec::new();
        let mut kept = Patches::default();
        for entry in patches.entries.iter().take(CHANGES_MAX) {
            match values.refuse(&entry.change) {
                None => kept.entries.push(entry.clone()),
                Some(_) if unfit.iter().any(|one| one.hook == entry.hook) => {}
                Some(problem) => unfit.push(Unfit { hook: entry.hook.clone(), problems: vec![problem] }),
            }
        }
        if kept.is_empty() {
            return Ok((values, unfit));
        }
        let with = |patches: Patches| {
            Self::new(Arc::clone(&values.package), values.settings.clone(), patches, None, values_bytes)
        };
        if let Ok(all) = with(kept.clone()) {
            return Ok((all, unfit));
        }
        let mut fitting: BTreeSet<String> = BTreeSet::new();
        let mut best = None;
        for hook in kept.hooks() {
            fitting.insert(hook.to_owned());
            match with(kept.only_of(&fitting)) {
                Ok(more) => best = Some(more),
                Err(problems) => {
                    fitting.remove(hook);
                    unfit.retain(|one| one.hook != hook);
                    unfit.push(Unfit { hook: hook.to_owned(), problems });
                }
            }
        }
        values = best.unwrap_or(values);
        Ok((values, unfit))
    }

    /// The documents.
    #[must_use]
    pub fn computed(&self) -> &Computed {
        &self.computed
    }

    /// What hooks have changed.
    #[must_use]
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The same with other settings of the user. What hooks have changed stays.
    ///
    /// # Errors
    /// As [`compute`].
    pub fn with_settings(&self, settings: Value) -> Result<Self, Vec<Problem>> {
        let patches = self.patches.clone();
        Self::new(Arc::clone(&self.package), settings, patches, Some(&self.computed), self.values_bytes)
    }

    /// The same after the changes of one run of a hook, in their order.
    ///
    /// # Errors
    /// Changes that are malformed, touch a setting or lead through something that is neither object nor list; a
    /// document that is too large or violates the schema. Nothing is accepted then.
    pub fn apply_changes(&self, hook: &str, changes: &[ValuesChange]) -> Result<Self, Vec<Problem>> {
        if changes.is_empty() {
            return Ok(self.clone());
        }
        let mut problems: Vec<Problem> = changes.iter().filter_map(|change| self.refuse(change)).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut values = Value::clone(&self.computed.values);
        let mut patches = self.patches.clone();
        for change in changes {
            match apply(&mut values, change) {
                Ok(Some(stored)) => patches.store(hook, &stored),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        // The settings have been checked, and so have the layers below the changes.
        let base = base(&self.package, &self.computed.settings);
        patches.compact(&base);
        if patches.entries.len() > CHANGES_MAX {
            let message = format!("hooks have changed more than {CHANGES_MAX} places");
            let problem = Problem::new("TooManyChanges", VALUES, "", message);
            return Err(vec![problem.hint("set one object in place of its members")]);
        }
        let computed = if values == *self.computed.values {
            self.computed.clone()
        } else {
            check(&self.package, &values, Some(&self.computed.values), self.values_bytes)?;
            computed(Arc::clone(&self.computed.settings), values)
        };
        Ok(Self {
            package: Arc::clone(&self.package),
            settings: self.settings.clone(),
            patches,
            computed,
            values_bytes: self.values_bytes,
        })
    }

    /// Why a change cannot be made whatever the document is.
    fn refuse(&self, change: &ValuesChange) -> Option<Problem> {
        let at = |reason: &str, message: String| Problem::new(reason, VALUES, &change.pointer, message);
        let Some(path) = segments(&change.pointer).filter(|path| path.len() <= POINTER_SEGMENTS) else {
            let message =
                format!("{:?} is no JSON pointer of up to {POINTER_SEGMENTS} segments", shortened(&change.pointer));
            return Some(at("BadPointer", message).hint("for example /internal/password, with ~1 for / and ~0 for ~"));
        };
        let Some(root) = path.first() else {
            return Some(at("BadPointer", "the whole document cannot be changed".to_owned()));
        };
        let declared = self.package.settings_schema.as_ref().is_some_and(|schema| schema.properties().contains(root));
        if declared || self.computed.settings.get(root).is_some() {
            let message = format!("'{root}' is a setting of the user, which a hook cannot change");
            return Some(at("SettingOverridden", message).hint(format!(
                "set a value of your own, for example /internal/{root}, declare it in openapi/values.yaml, and let \
                 templates choose"
            )));
        }
        None
    }
}

/// A document after changes, which nothing but their form was checked of.
///
/// # Errors
/// The first change that cannot be made: it leads through something that is neither object nor list.
pub fn changed(document: &Value, changes: &[ValuesChange]) -> Result<Value, Problem> {
    let mut changed = document.clone();
    for change in changes {
        apply(&mut changed, change)?;
    }
    Ok(changed)
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Applies one change with the rules of the contract (objects on the way are made, removing what is not there is no
/// error), and gives what has to be stored of it; nothing if it changes nothing.
///
/// Stored changes must give the same document whenever they are put together again. So a change inside of a list is
/// stored as the whole list (indices of several runs would not compose), and one that makes objects on its way as the
/// uppermost of them.
fn apply(values: &mut Value, change: &ValuesChange) -> Result<Option<ValuesChange>, Problem> {
    let at = |message: &str| Problem::new("BadPath", VALUES, &change.pointer, message);
    let path = segments(&change.pointer).unwrap_or_default();
    let Some((last, way)) = path.split_last() else {
        return Err(at("the whole document cannot be changed"));
    };
    // How many segments lead to what is stored.
    let mut stored = path.len();
    let mut node = &*values;
    for (depth, segment) in path.iter().enumerate() {
        node = match node {
            Value::Object(members) => match members.get(segment) {
                Some(member) => member,
                None if change.value.is_none() => return Ok(None),
                None => {
                    stored = depth + 1;
                    break;
                }
            },
            Value::Array(_) => {
                stored = depth;
                break;
            }
            _ => return Err(at("what should hold it is neither object nor list")),
        };
    }
    let pointer = path.iter().take(stored).fold(String::new(), |pointer, segment| join(&pointer, segment));
    match &change.value {
        Some(value) => {
            *place(values, &path).ok_or_else(|| at("a list on its way has no such element"))? = value.clone()
        }
        None => {
            let parent = way.iter().try_fold(&mut *values, |node, segment| match node {
                Value::Object(members) => members.get_mut(segment),
                Value::Array(items) => index(segment).and_then(|index| items.get_mut(index)),
                _ => None,
            });
            let removed = match parent {
                Some(Value::Object(members)) => members.remove(last).is_some(),
                Some(Value::Array(items)) => {
                    let index = index(last).filter(|index| *index < items.len());
                    index.map(|index| items.remove(index)).is_some()
                }
                Some(_) => return Err(at("what should hold it is neither object nor list")),
                None => false,
            };
            if !removed {
                return Ok(None);
            }
        }
    }
    let value = values.pointer(&pointer).cloned();
    Ok(Some(ValuesChange { pointer, value }))
}

/// The place of a path; objects on the way are made, and `-` or the index after the last appends to a list.
fn place<'v>(values: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    let made = || Value::Object(Map::new());
    path.iter().try_fold(values, |node, segment| match node {
        Value::Object(members) => Some(members.entry(segment.clone()).or_insert_with(made)),
        Value::Array(items) => {
            let index = if segment == "-" { items.len() } else { index(segment)? };
            if index == items.len() {
                items.push(made());
            }
            items.get_mut(index)
        }
        _ => None,
    })
}

/// The index that a segment of a pointer names.
fn index(segment: &str) -> Option<usize> {
    let plain = segment == "0" || !segment.starts_with('0');
    segment.parse().ok().filter(|_| plain && segment.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A kind of objects that are purged after an application was deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrphanKind {
    /// Kind of the objects.
    pub kind: String,
    /// Their group; `None` for every group that serves the kind at that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Their version.
    pub version: String,
}

/// Reads `orphanResources` of the values; nothing if it is absent.
///
/// # Errors
/// The first entry that is malformed.
pub fn orphan_kinds(values: &Value) -> Result<Vec<OrphanKind>, Problem> {
    let pointer = format!("/{ORPHAN_RESOURCES}");
    let bad = |pointer: &str, message: String| {
        Problem::new("BadOrphanResources", VALUES, pointer, message)
            .hint("write a list of {kind: Job, version: batch/v1}")
    };
    let list = match values.get(ORPHAN_RESOURCES) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(bad(&pointer, format!("must be a list, not {}", kind(other)))),
    };
    if list.len() > ORPHAN_KINDS_MAX {
        return Err(bad(&pointer, format!("has more than {ORPHAN_KINDS_MAX} entries")));
    }
    let mut kinds = BTreeSet::new();
    for (index, entry) in list.iter().enumerate() {
        let pointer = format!("{pointer}/{index}");
        let Some(object) = entry.as_object() else {
            return Err(bad(&pointer, format!("must be an object, not {}", kind(entry))));
        };
        if let Some(key) = object.keys().find(|key| !matches!(key.as_str(), "kind" | "version")) {
            return Err(bad(&pointer, format!("the key '{}' is not known", shortened(key))));
        }
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let gvk = crate::identity::Gvk::parse(text("version"), text("kind"))
            .map_err(|error| bad(&pointer, error.to_string()))?;
        let group = text("version").contains('/').then_some(gvk.group);
        kinds.insert(OrphanKind { kind: gvk.kind, group, version: gvk.version });
    }
    Ok(kinds.into_iter().collect())
}

#[cfg(test)]
mod tests;
