//! The managers of one object: reading and writing `metadata.managedFields`, and what an apply or an update does to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Set,
    set::field,
    typed::{self, Comparison, TypedError},
};
use crate::{
    json,
    schema::Type,
    status::{ApiError, Cause},
};

/// Update entries beyond this many are folded into one, oldest first.
const UPDATE_MANAGERS_MAX: usize = 10;

/// Who did one kind of write. Two operations of one name are two managers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) applied: bool,
    pub(crate) name: String,
    /// Part of the identity of updates only; applies of one name share an entry whatever the version.
    api_version: String,
    pub(crate) subresource: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    api_version: String,
    time: Option<String>,
    set: Set,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Managers {
    entries: BTreeMap<Id, Owned>,
}

/// What a request says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
}

/// What other managers own with other values, so that an apply was refused.
#[derive(Debug, thiserror::Error)]
#[error("apply conflicts with other managers")]
pub(crate) struct Conflicts(pub(crate) Vec<Conflict>);

/// All that does not fit the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct TypedErrors(pub(crate) Vec<TypedError>);

impl std::fmt::Display for TypedErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

/// One field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: String,
    pub(crate) applied: bool,
    pub(crate) subresource: String,
    pub(crate) api_version: String,
    pub(crate) path: String,
}

impl Conflict {
    /// What the real server sorts managers by: their JSON.
    fn key(&self) -> String {
        let operation = if self.applied { "Apply" } else { "Update" };
        let mut key = format!("{{\"manager\":{},\"operation\":{operation:?}", json!(self.manager));
        for (field, text) in [("apiVersion", &self.api_version), ("subresource", &self.subresource)] {
            // Applies of one name are one manager whatever their version.
            let part = field != "apiVersion" || !self.applied;
            if part && !text.is_empty() {
                key.push_str(&format!(",{field:?}:{}", json!(text)));
            }
        }
        key + "}"
    }

    fn with(&self) -> String {
        let mut text = format!("with {:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if !self.applied {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// The 409 of an apply.
pub(crate) fn conflict_status(conflicts: &[Conflict]) -> ApiError {
    let mut groups = BTreeMap::<String, (String, Vec<&str>)>::new();
    for conflict in conflicts {
        groups.entry(conflict.key()).or_insert_with(|| (conflict.with(), Vec::new())).1.push(&conflict.path);
    }
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict {}: {}", one.with(), one.path),
        many => {
            let lines = groups.values().map(|(with, paths)| format!("conflicts {with}:\n- {}", paths.join("\n- ")));
            format!("Apply failed with {} conflicts: {}", many.len(), lines.collect::<Vec<_>>().join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.details.causes = conflicts
        .iter()
        .map(|c| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict {}", c.with()),
            field: c.path.clone(),
        })
        .collect();
    error
}

/// Fields of metadata that nobody owns.
const UNOWNED: [&[&str]; 12] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
    &["f:metadata", "f:deletionTimestamp"],
    &["f:metadata", "f:deletionGracePeriodSeconds"],
];

fn strip(set: &mut Set, reset: &[&[&str]]) {
    for path in UNOWNED {
        set.cut(path);
    }
    strip_reset(set, reset);
}

impl Managers {
    /// Reads `metadata.managedFields`; entries that cannot be decoded are dropped.
    pub(crate) fn of(object: &Value) -> Self {
        let mut managers = Self::default();
        for entry in json::list(object, &["metadata", "managedFields"]) {
            let Some(set) = entry.get("fieldsV1").and_then(Set::from_fields) else { continue };
            let text = |key: &str| json::text(entry, &[key]).to_owned();
            let id = Id::new(text("operation") == "Apply", &text("manager"), &text("apiVersion"), &text("subresource"));
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            let owned = managers.entries.entry(id).or_insert_with(|| Owned {
                api_version: text("apiVersion"),
                time: time.clone(),
                set: Set::default(),
            });
            owned.set.extend(&set);
        }
        managers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `metadata.managedFields`.
    pub(crate) fn to_value(&self) -> Value {
        let mut entries = self.entries.iter().collect::<Vec<_>>();
        entries.sort_by_key(|(id, owned)| {
            (!id.applied, owned.time.clone(), id.name.clone(), owned.api_version.clone(), id.subresource.clone())
        });
        let list = entries
            .into_iter()
            .map(|(id, owned)| {
                let mut entry = json!({
                    "manager": id.name,
                    "operation": if id.applied { "Apply" } else { "Update" },
                    "apiVersion": owned.api_version,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": owned.set.to_fields(),
                });
                if let Some(time) = &owned.time {
                    json::set(&mut entry, &["time"], json!(time));
                }
                if !id.subresource.is_empty() {
                    json::set(&mut entry, &["subresource"], json!(id.subresource));
                }
                entry
            })
            .collect();
        Value::Array(list)
    }

    /// The same ownership, whatever the times.
    pub(crate) fn same_sets(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().all(|(id, owned)| {
                other.entries.get(id).is_some_and(|o| o.set == owned.set && o.api_version == owned.api_version)
            })
    }

    fn drop_empty(&mut self) {
        self.entries.retain(|_, owned| !owned.set.is_empty());
    }

    /// Records a write that was not an apply: what changed now belongs to its manager and to nobody else.
    pub(crate) fn update(&mut self, live: &Value, new: &Value, ty: Type<'_>, by: By<'_>, reset: &[&[&str]]) {
        let mut comparison = compare(live, new, ty);
        strip_reset(&mut comparison.added, reset);
        strip_reset(&mut comparison.modified, reset);
        strip_reset(&mut comparison.removed, reset);
        if !comparison.is_empty() {
            let mut taken = comparison.modified.union(&comparison.added);
            strip(&mut taken, reset);
            let me = Id::new(false, by.manager, by.api_version, by.subresource);
            for (id, owned) in &mut self.entries {
                if *id != me {
                    owned.set = owned.set.difference(&taken);
                }
                owned.set = owned.set.difference(&comparison.removed);
            }
            if !taken.is_empty() {
                let owned = self.entries.entry(me).or_insert_with(|| Owned {
                    api_version: by.api_version.to_owned(),
                    time: None,
                    set: Set::default(),
                });
                owned.set.extend(&taken);
                // A scale keeps no times.
                owned.time = (by.subresource != "scale").then(|| by.now.to_owned());
            }
        }
        self.drop_empty();
        self.cap(by.api_version);
    }

    fn cap(&mut self, api_version: &str) {
        let mut updates = self
            .entries
            .iter()
            .filter(|(id, _)| !id.applied)
            .map(|(id, o)| (o.time.clone(), id.clone()))
            .collect::<Vec<_>>();
        if updates.len() <= UPDATE_MANAGERS_MAX {
            return;
        }
        updates.sort();
        let surplus = updates.len() - UPDATE_MANAGERS_MAX + 1;
        let mut folded = Owned { api_version: api_version.to_owned(), time: None, set: Set::default() };
        for (_, id) in updates.into_iter().take(surplus) {
            if let Some(owned) = self.entries.remove(&id) {
                folded.set.extend(&owned.set);
                folded.time = owned.time.or(folded.time);
            }
        }
        self.entries.insert(Id::new(false, "ancient-changes", api_version, ""), folded);
    }

    /// Applies a configuration: the new object, with the managers changed accordingly.
    ///
    /// `live` and `config` have no `managedFields`, and `config` has passed [`typed::check`]. `reset` are top-level fields that this endpoint does not write.
    pub(crate) fn apply(
        &mut self,
        live: &Value,
        config: &Value,
        ty: Type<'_>,
        by: By<'_>,
        force: bool,
        reset: &[&[&str]],
    ) -> Result<Value, Conflicts> {
        let merged = typed::merge(live, config, ty);
        let mut set = typed::field_set(config, ty);
        strip_reset(&mut set, reset);
        let me = Id::new(true, by.manager, by.api_version, by.subresource);
        let last = self.entries.get(&me).map(|owned| owned.set.clone()).unwrap_or_default();
        let mine = Owned { api_version: by.api_version.to_owned(), time: Some(by.now.to_owned()), set };
        let old_time = self.entries.insert(me.clone(), mine).and_then(|owned| owned.time);
        let new = if last.is_empty() { merged } else { self.prune(&merged, &last, ty) };

        let mut comparison = compare(live, &new, ty);
        strip_reset(&mut comparison.added, reset);
        strip_reset(&mut comparison.modified, reset);
        strip_reset(&mut comparison.removed, reset);
        let changed = comparison.modified.union(&comparison.added);
        let mut conflicts = Vec::new();
        for (id, owned) in self.entries.iter_mut().filter(|(id, _)| **id != me) {
            let overlap = owned.set.intersection(&changed);
            if !overlap.is_empty() && !force {
                conflicts.extend(overlap.paths().into_iter().map(|path| Conflict {
                    manager: id.name.clone(),
                    applied: id.applied,
                    subresource: id.subresource.clone(),
                    api_version: owned.api_version.clone(),
                    path,
                }));
            }
            owned.set = owned.set.difference(&overlap).difference(&comparison.removed);
        }
        if !conflicts.is_empty() {
            return Err(Conflicts(conflicts));
        }
        if let Some(owned) = self.entries.get_mut(&me) {
            strip(&mut owned.set, reset);
            // Whoever only says what is so already has no time, or keeps the one it has.
            if json::same(live, &new) {
                owned.time = old_time;
            }
        }
        self.drop_empty();
        Ok(new)
    }

    /// Removes what the manager applied last time, does not apply now, and nobody else owns.
    fn prune(&self, merged: &Value, last: &Set, ty: Type<'_>) -> Value {
        let ensure = |set: &Set| set.ensure_named_fields_are_members(ty);
        let last = ensure(last);
        let pruned = typed::remove(merged, &last, ty);
        // Put back what anybody owns, then what only hung below something removed but was not applied by this manager.
        let all = self.entries.values().fold(Set::default(), |mut all, owned| {
            all.extend(&owned.set);
            all
        });
        let everything = ensure(&typed::field_set(merged, ty));
        let kept = ensure(&typed::field_set(&pruned, ty)).union(&ensure(&all));
        let pruned = typed::remove(merged, &everything.difference(&kept), ty);
        let still = ensure(&typed::field_set(&pruned, ty));
        typed::remove(merged, &everything.difference(&still).intersection(&last), ty)
    }

    /// An object that was written before ownership was tracked: all of it belongs to one manager. `nothing` is the object
    /// as it is before anybody sets a field.
    pub(crate) fn before_first_apply(
        &mut self,
        nothing: &Value,
        live: &Value,
        ty: Type<'_>,
        api_version: &str,
        now: &str,
        reset: &[&[&str]],
    ) {
        let by = By { manager: "before-first-apply", api_version, subresource: "", now };
        self.update(nothing, live, ty, by, reset);
    }

    /// Whether anybody owns the field at this path of names.
    pub(crate) fn owned(&self, path: &[String]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        self.entries.values().any(|owned| {
            let parent = parents.iter().try_fold(&owned.set, |set, name| set.children(&field(name)));
            parent.is_some_and(|set| set.has(&field(last)))
        })
    }
}

fn strip_reset(set: &mut Set, reset: &[&[&str]]) {
    for path in reset {
        set.cut(path);
    }
}

impl Id {
    fn new(applied: bool, name: &str, api_version: &str, subresource: &str) -> Self {
        let api_version = if applied { String::new() } else { api_version.to_owned() };
        Self { applied, name: name.to_owned(), api_version, subresource: subresource.to_owned() }
    }
}

fn compare(live: &Value, new: &Value, ty: Type<'_>) -> Comparison {
    let mut comparison = typed::compare(live, new, ty);
    // Set by the server on every write; nobody can own them and they are no conflict.
    for path in UNOWNED {
        comparison.added.cut(path);
        comparison.modified.cut(path);
        comparison.removed.cut(path);
    }
    comparison
}
