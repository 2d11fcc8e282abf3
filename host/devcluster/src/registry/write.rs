//! Create and update.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    CRD_TABLE, Registry,
    admit::quality_class,
    convert,
    rules::{
        bump_generation, check_size, creates_on_update, has_generation, is_finished, keep_what_the_server_owns,
        reset_fields, restrict_to_endpoint,
    },
};
use crate::{
    apply::managed::{ApplyError, By, Managers, conflict_status},
    builtin,
    catalog::Resource,
    json::{self, at, copy, remove, same, set, text},
    patch,
    status::{ApiError, Cause},
    store::{Expect, Stored, Ticket, Write},
};

/// How often a write is tried again because another write came between. Each loss means that somebody else won, so a
/// writer that loses this often is in a crowd and gets a conflict.
pub(super) const ATTEMPTS_MAX: usize = 256;

/// What to do about fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// What a request says beside its object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options<'a> {
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
    pub(crate) validation: Validation,
    /// Fields that the reader of the body already found twice.
    pub(crate) duplicates: &'a [String],
}

impl<'a> Options<'a> {
    pub(crate) fn of(manager: &'a str) -> Self {
        Self { manager, dry_run: false, validation: Validation::Ignore, duplicates: &[] }
    }
}

/// How an object is to change.
pub(crate) enum Edit<'a> {
    Put(Value),
    Json(&'a [u8]),
    Merge(Value),
    Strategic(Value),
    Apply {
        config: Value,
        force: bool,
    },
    /// A change made by a controller; `false` means that there is nothing to do.
    With(&'a (dyn Fn(&mut Value) -> bool + Sync)),
}

/// A write that happened (or, in a dry run, would have).
pub(crate) struct Outcome {
    /// The object in the version of the request.
    pub(crate) object: Arc<Stored>,
    pub(crate) created: bool,
    /// The write removed the object, because it was the last thing that deletion waited for.
    pub(crate) removed: bool,
    pub(crate) warnings: Vec<String>,
    pub(crate) ticket: Ticket,
}

impl Outcome {
    pub(super) fn unchanged(object: Arc<Stored>) -> Self {
        Self { object, created: false, removed: false, warnings: Vec::new(), ticket: Ticket::done() }
    }
}

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five characters for a generated name.
pub(crate) fn random_suffix() -> String {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    bytes
        .iter()
        .take(5)
        .filter_map(|b| ALPHABET.get(usize::from(*b) % ALPHABET.len()))
        .map(|b| char::from(*b))
        .collect()
}

impl Registry {
    /// Creates an object. Its namespace is the one of the request.
    pub(crate) fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        self.identify(resource, namespace, None, &mut object)?;
        let base = text(&object, &["metadata", "generateName"]);
        if text(&object, &["metadata", "name"]).is_empty() && !base.is_empty() {
            let base = base.chars().take(58).collect::<String>();
            let free = |name: &String| self.store.get(&resource.table, namespace, name).is_none();
            let mut names = (0..8).map(|_| format!("{base}{}", random_suffix()));
            let name = names.find(free).unwrap_or_else(|| format!("{base}{}", random_suffix()));
            set(&mut object, &["metadata", "name"], json!(name));
        }
        self.insert(resource, namespace, object, None, options)
    }

    /// Puts a new object into the store. `applied` are the managers that an apply has worked out.
    fn insert(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        applied: Option<Managers>,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        let name = text(&object, &["metadata", "name"]).to_owned();
        self.admit_creation(resource, namespace, &name)?;
        let by_apply = applied.is_some();
        let mut managers = applied.unwrap_or_else(|| Managers::of(&object));
        let versioned = !text(&object, &["metadata", "resourceVersion"]).is_empty();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "generation"] {
            remove(&mut object, &["metadata", field]);
        }
        set(&mut object, &["metadata", "uid"], json!(uuid::Uuid::new_v4().to_string()));
        set(&mut object, &["metadata", "creationTimestamp"], json!(json::now()));
        if has_generation(resource) {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        if resource.has_status() {
            remove(&mut object, &["status"]);
        }
        let mut warnings = self.decode(resource, &mut object, options)?;
        warnings.extend(builtin::metadata_warnings(resource, None, &object));
        // What the server adds from here on is nobody's.
        let mut shown = object.clone();
        if resource.is("", "Service") {
            let causes = self.allocate_service(None, &mut object);
            if !causes.is_empty() {
                return Err(ApiError::invalid(resource.about(), &name, causes));
            }
        }
        if resource.is("batch", "Job") {
            builtin::generate_selector(&mut object);
        }
        if resource.is("", "PersistentVolumeClaim") && at(&object, &["spec", "storageClassName"]).is_none() {
            self.choose_storage_class(&mut object);
        }
        if resource.is("", "PersistentVolumeClaim") {
            set(&mut object, &["status", "phase"], json!("Pending"));
        }
        if resource.is("", "Namespace") {
            // Only here: a namespace that is going has none, and must not get it back.
            set(&mut object, &["spec", "finalizers"], json!(["kubernetes"]));
        }
        if resource.is("", "Pod") {
            set(&mut object, &["status", "phase"], json!("Pending"));
            let class = quality_class(&object);
            set(&mut object, &["status", "qosClass"], json!(class));
        }
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.prepare_definition(&mut object);
        }
        self.validate(resource, "", &name, None, &object)?;
        if !by_apply {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource: "", now: &now };
            let mut nothing = json!({"metadata": {}});
            if resource.custom.is_none() {
                // The typed zero object of a built-in kind has these; they are not "added".
                for field in ["spec", "status"] {
                    if shown.get(field).is_some() {
                        set(&mut nothing, &[field], json!({}));
                    }
                }
                let (parts, nulls) = builtin::parts(&resource.group, &resource.kind);
                parts.iter().for_each(|part| json::default(&mut nothing, part, json!({})));
                nulls.iter().for_each(|null| set(&mut nothing, null, Value::Null));
            }
            let reset: &[&[&str]] = if resource.has_status() { &[&["f:status"]] } else { &[] };
            if resource.has_status() {
                remove(&mut shown, &["status"]);
            }
            managers.update(&nothing, &shown, resource.root(), by, reset);
        }
        if !managers.is_empty() {
            set(&mut object, &["metadata", "managedFields"], managers.to_value());
        }
        let key = (namespace.to_owned(), name.clone());
        if let Some(existing) = self.store.get(&resource.table, namespace, &name) {
            let terminating = at(&existing.value, &["metadata", "deletionTimestamp"]).is_some();
            return Err(ApiError::already_exists(resource.about(), &name, terminating));
        }
        if versioned {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", message));
        }
        if options.dry_run {
            let object = Arc::new(Stored::unwritten(object));
            return Ok(Outcome { object, created: true, removed: false, warnings, ticket: Ticket::done() });
        }
        check_size(resource, &object)?;
        convert::to_storage(resource, &mut object);
        let written = self.store.commit(&resource.table, &key, Expect::Absent, Write::Put(object));
        let (stored, ticket) = written.map_err(|_| ApiError::already_exists(resource.about(), &name, false))?;
        self.after_write(&resource.table, &stored, false);
        Ok(Outcome { object: self.view(resource, &stored), created: true, removed: false, warnings, ticket })
    }

    pub(super) fn after_write(&self, table: &str, stored: &Stored, removed: bool) {
        if table == CRD_TABLE {
            self.serve_definition(&stored.value, removed);
        }
    }

    /// Changes an object; an apply creates it when it is not there.
    pub(crate) fn update(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        subresource: &str,
        edit: &Edit<'_>,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(stored) = self.store.get(&resource.table, namespace, name) else {
                return match edit {
                    Edit::Apply { config, force } if subresource.is_empty() => {
                        self.create_by_apply(resource, namespace, name, config, *force, options)
                    }
                    Edit::Put(object) if subresource.is_empty() && creates_on_update(resource) => {
                        let mut object = object.clone();
                        self.identify(resource, namespace, Some(name), &mut object)?;
                        remove(&mut object, &["metadata", "resourceVersion"]);
                        self.create(resource, namespace, object, options)
                    }
                    _ => Err(ApiError::not_found(resource.about(), name)),
                };
            };
            if let Some(outcome) = self.try_update(resource, &stored, subresource, edit, options)? {
                return Ok(outcome);
            }
        }
        Err(ApiError::modified(resource.about(), name))
    }

    fn create_by_apply(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        config: &Value,
        force: bool,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        let mut config = self.checked_config(resource, namespace, name, config)?;
        if !text(&config, &["metadata", "uid"]).is_empty() {
            let why = "uid mismatch: the provided object specified a uid, but no object with that name exists";
            return Err(ApiError::conflict(resource.about(), name, why));
        }
        remove(&mut config, &["metadata", "resourceVersion"]);
        let mut managers = Managers::default();
        let mut object = self.applied(resource, &json!({}), &config, &mut managers, "", force, options)?;
        self.identify(resource, namespace, Some(name), &mut object)?;
        self.insert(resource, namespace, object, Some(managers), options)
    }

    fn checked_config(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let mut config = config.clone();
        let placed = at(&config, &["metadata", "namespace"]).is_some();
        self.identify(resource, namespace, Some(name), &mut config)?;
        if !placed {
            // What the address says is no part of what is applied.
            remove(&mut config, &["metadata", "namespace"]);
        }
        if at(&config, &["metadata", "managedFields"]).is_some_and(|m| !m.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        remove(&mut config, &["metadata", "managedFields"]);
        Ok(config)
    }

    #[expect(clippy::too_many_arguments, reason = "one call of the engine with everything that it needs")]
    fn applied(
        &self,
        resource: &Resource,
        live: &Value,
        config: &Value,
        managers: &mut Managers,
        subresource: &str,
        force: bool,
        options: Options<'_>,
    ) -> Result<Value, ApiError> {
        let now = json::now();
        let api_version = resource.api_version();
        let by = By { manager: options.manager, api_version: &api_version, subresource, now: &now };
        let reset = reset_fields(resource, subresource);
        managers.apply(live, config, resource.root(), by, force, reset).map_err(|error| match error {
            ApplyError::Conflicts(conflicts) => conflict_status(&conflicts),
            // A real server has no reason for it, and so answers 500.
            ApplyError::Typed(error) => {
                let part = |field: &str| text(config, &["metadata", field]);
                let group_version =
                    if resource.group.is_empty() { format!("/{api_version}") } else { api_version.clone() };
                let why = format!(
                    "failed to create typed patch object ({}/{}; {group_version}, Kind={}): {error}",
                    part("namespace"),
                    part("name"),
                    resource.kind,
                );
                ApiError::new(500, "", why)
            }
        })
    }

    /// One try. `None` means that somebody else wrote meanwhile.
    pub(super) fn try_update(
        &self,
        resource: &Resource,
        stored: &Arc<Stored>,
        subresource: &str,
        edit: &Edit<'_>,
        options: Options<'_>,
    ) -> Result<Option<Outcome>, ApiError> {
        let live = self.view(resource, stored);
        let (namespace, name) = (
            text(&live.value, &["metadata", "namespace"]).to_owned(),
            text(&live.value, &["metadata", "name"]).to_owned(),
        );
        let mut old = live.value.clone();
        remove(&mut old, &["metadata", "managedFields"]);
        let mut managers = Managers::of(&live.value);
        let before = managers.clone();

        let mut new = match edit {
            Edit::Put(object) => {
                let versioned =
                    resource.custom.is_some() || resource.is("apiextensions.k8s.io", "CustomResourceDefinition");
                if versioned && text(object, &["metadata", "resourceVersion"]).is_empty() {
                    let cause =
                        Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
                    return Err(ApiError::invalid(resource.about(), &name, vec![cause]));
                }
                object.clone()
            }
            Edit::Json(body) => {
                let mut new = live.value.clone();
                patch::json(&mut new, body)?;
                new
            }
            Edit::Merge(body) => {
                let mut new = live.value.clone();
                patch::merge(&mut new, body);
                new
            }
            Edit::Strategic(body) => {
                let mut new = live.value.clone();
                patch::strategic(&mut new, body, resource.root())?;
                new
            }
            Edit::With(change) => {
                let mut new = live.value.clone();
                if !change(&mut new) {
                    return Ok(Some(Outcome::unchanged(live)));
                }
                new
            }
            Edit::Apply { config, force } => {
                let config = self.checked_config(resource, &namespace, &name, config)?;
                if managers.is_empty() {
                    managers.before_first_apply(&old, resource.root(), &resource.api_version());
                }
                self.applied(resource, &old, &config, &mut managers, subresource, *force, options)?
            }
        };
        let applied = matches!(edit, Edit::Apply { .. });
        self.identify(resource, &namespace, Some(&name), &mut new)?;
        self.check_preconditions(resource, &name, &live, &new)?;

        // Ownership that a request states replaces what is known, on the main endpoint.
        let given = remove(&mut new, &["metadata", "managedFields"]);
        if !applied
            && subresource.is_empty()
            && matches!(edit, Edit::Put(_) | Edit::Merge(_) | Edit::Json(_) | Edit::Strategic(_))
        {
            match given.as_ref().and_then(Value::as_array) {
                Some(list) if list.is_empty() || list.iter().all(|e| e == &json!({})) => managers = Managers::default(),
                Some(_) => {
                    let stated = Managers::of(&json!({"metadata": {"managedFields": given}}));
                    if !stated.is_empty() {
                        managers = stated;
                    }
                }
                None => {}
            }
        }
        let mut warnings = self.decode(resource, &mut new, options)?;
        // Who owns what is settled by what the client asks for, before the server adds to it and takes from it.
        if !applied {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource, now: &now };
            managers.update(&old, &new, resource.root(), by, reset_fields(resource, subresource));
        }
        keep_what_the_server_owns(&old, &mut new);
        if resource.is("", "Service") && subresource.is_empty() {
            let causes = self.allocate_service(Some(&old), &mut new);
            if !causes.is_empty() {
                return Err(ApiError::invalid(resource.about(), &name, causes));
            }
        }
        restrict_to_endpoint(resource, subresource, &old, &mut new);
        if resource.is("", "Service") && subresource.is_empty() {
            builtin::drop_dependent(&old, &mut new);
        }
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.prepare_definition(&mut new);
        }
        self.validate(resource, subresource, &name, Some(&old), &new)?;
        warnings.extend(builtin::metadata_warnings(resource, Some(&old), &new));
        bump_generation(resource, &old, &mut new);
        let same_owners = managers.same_sets(&before);
        // The version that the client sent is no change.
        copy(&old, &mut new, &["metadata", "resourceVersion"]);
        if same_owners && same(&old, &new) {
            return Ok(Some(Outcome { warnings, ..Outcome::unchanged(live) }));
        }
        if !managers.is_empty() {
            set(&mut new, &["metadata", "managedFields"], managers.to_value());
        }
        let removed = is_finished(resource, &new);
        if options.dry_run {
            let object = Arc::new(Stored::new(new, stored.revision));
            return Ok(Some(Outcome { object, created: false, removed, warnings, ticket: Ticket::done() }));
        }
        check_size(resource, &new)?;
        convert::to_storage(resource, &mut new);
        let key = (namespace, name);
        let write = if removed { Write::Delete(new) } else { Write::Put(new) };
        let Ok((stored, ticket)) = self.store.commit(&resource.table, &key, Expect::Revision(stored.revision), write)
        else {
            return Ok(None);
        };
        self.after_write(&resource.table, &stored, removed);
        Ok(Some(Outcome { object: self.view(resource, &stored), created: false, removed, warnings, ticket }))
    }

    pub(super) fn check_preconditions(
        &self,
        resource: &Resource,
        name: &str,
        live: &Stored,
        new: &Value,
    ) -> Result<(), ApiError> {
        let uid = text(new, &["metadata", "uid"]);
        if !uid.is_empty() && uid != live.uid() {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid());
            return Err(ApiError::conflict(resource.about(), name, &why));
        }
        let version = text(new, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version != live.revision.to_string() {
            return Err(ApiError::modified(resource.about(), name));
        }
        Ok(())
    }
}
