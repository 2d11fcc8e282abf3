//! Create and update.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    CRD_TABLE, Registry,
    admit::quality_class,
    convert,
    gate::Passing,
    rules::{
        bump_generation, check_size, creates_on_update, has_generation, is_finished, keep_what_the_server_owns,
        reset_fields, restrict_to_endpoint,
    },
    scale::replicas_path,
};
use crate::{
    admission::Gate,
    apply::{
        managed::{By, Conflicts, Managers, TypedErrors, conflict_status},
        typed::{self, TypedError},
    },
    builtin,
    catalog::Resource,
    json::{self, at, copy, remove, same, set, text},
    patch,
    status::{About, ApiError, Cause},
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
    /// Where webhooks are asked; controllers pass by.
    pub(crate) gate: Option<&'a Gate>,
}

impl<'a> Options<'a> {
    pub(crate) fn of(manager: &'a str) -> Self {
        Self { manager, dry_run: false, validation: Validation::Ignore, duplicates: &[], gate: None }
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

/// A new object whose request has been read.
struct Decoded {
    object: Value,
    warnings: Vec<String>,
    /// The request gave it labels.
    labelled: bool,
    /// The request gave it a version, which no new object may have.
    versioned: bool,
    managers: Managers,
    by_apply: bool,
}

/// An object that is to change, after the change has been read.
struct Changed {
    live: Arc<Stored>,
    /// The live object without its managers.
    old: Value,
    new: Value,
    before: Managers,
    managers: Managers,
    applied: bool,
    warnings: Vec<String>,
}

/// An applied object that does not fit the schema. A real server has no reason for it, and so answers 500.
fn untyped(resource: &Resource, config: &Value, errors: &TypedErrors) -> ApiError {
    let part = |field: &str| text(config, &["metadata", field]);
    let api_version = resource.api_version();
    let group_version = if resource.group.is_empty() { format!("/{api_version}") } else { api_version };
    let why = format!(
        "failed to create typed patch object ({}/{}; {group_version}, Kind={}): {errors}",
        part("namespace"),
        part("name"),
        resource.kind,
    );
    ApiError::new(500, "", why)
}

/// The object without the number of its replicas, when that is zero.
fn without_zero_scale(resource: &Resource, object: &Value) -> Option<Value> {
    let path = replicas_path(resource);
    let path = path.iter().map(String::as_str).collect::<Vec<_>>();
    (at(object, &path).and_then(Value::as_i64) == Some(0)).then(|| {
        let mut object = object.clone();
        remove(&mut object, &path);
        object
    })
}

/// An object that nobody has set a field of, beside one that has fields.
fn nothing(resource: &Resource, shown: &Value) -> Value {
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
    nothing
}

/// What is said of a change that leaves no object that the kind can be. Patches are told with their result.
fn unreadable(live: &Value, edit: &Edit<'_>, error: ApiError) -> ApiError {
    let mut patched = live.clone();
    let again = match edit {
        Edit::Json(body) => patch::json(&mut patched, body),
        Edit::Merge(body) => {
            patch::merge(&mut patched, body);
            Ok(())
        }
        Edit::Strategic(body) => {
            patched = body.clone();
            Ok(())
        }
        _ => return error,
    };
    if again.is_err() {
        return error;
    }
    // Without what a request that has the whole object is told first.
    let why = error.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
    ApiError::bad_patch(&patched.to_string(), why.map_or(error.message.as_str(), |(_, why)| why))
}

/// What is said of an object that was written for another one of its name.
fn wrong_uid(resource: &Resource, object: &Value, live: &str, dry_run: bool) -> String {
    let part = |field: &str| text(object, &["metadata", field]);
    format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID \
         in precondition: {}, UID in object meta: {live}",
        storage_key(resource, part("namespace"), part("name"), dry_run),
        part("uid"),
    )
}

/// Where a real server keeps an object; a dry run does not get as far as the prefix of all keys.
fn storage_key(resource: &Resource, namespace: &str, name: &str, dry_run: bool) -> String {
    let kind = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group, plural) if resource.custom.is_some() || group.ends_with(".k8s.io") => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    let prefix = if dry_run { "" } else { "/registry" };
    format!("{prefix}/{kind}/{namespace}{name}")
}

impl Outcome {
    /// With more to say, before what it says already.
    pub(crate) fn saying(mut self, mut warnings: Vec<String>) -> Self {
        warnings.append(&mut self.warnings);
        Self { warnings, ..self }
    }

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
            let kept = options.gate.map(|gate| format!("{base}{}", gate.suffix()));
            let free = |name: &String| self.store.get(&resource.table, namespace, name).is_none();
            let mut names = (0..8).map(|_| format!("{base}{}", random_suffix()));
            let name = kept.or_else(|| names.find(free)).unwrap_or_else(|| format!("{base}{}", random_suffix()));
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
        let managers = applied.unwrap_or_else(|| Managers::of(&object));
        let versioned = !text(&object, &["metadata", "resourceVersion"]).is_empty();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "generation"] {
            remove(&mut object, &["metadata", field]);
        }
        let uid = options.gate.map_or_else(|| uuid::Uuid::new_v4().to_string(), Gate::uid);
        set(&mut object, &["metadata", "uid"], json!(uid));
        set(&mut object, &["metadata", "creationTimestamp"], json!(json::now()));
        if has_generation(resource) {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        if resource.has_status() {
            remove(&mut object, &["status"]);
        }
        // An object with a drawn name is copied before it is looked at, which ends what it shares.
        let labelled = at(&object, &["metadata", "labels"]).and_then(Value::as_object).is_some_and(|l| !l.is_empty())
            || !text(&object, &["metadata", "generateName"]).is_empty();
        let mut warnings = self.decode(resource, &mut object, options)?;
        warnings.extend(builtin::metadata_warnings(resource, None, &object));
        let decoded = Decoded { object, warnings, labelled, versioned, managers, by_apply };
        let warnings = decoded.warnings.clone();
        self.insert_decoded(resource, namespace, &name, decoded, options)
            .map_err(|error| error.with_warnings(&warnings))
    }

    fn insert_decoded(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        decoded: Decoded,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        let Decoded { mut object, mut warnings, labelled, versioned, mut managers, by_apply } = decoded;
        // What the server adds from here on is nobody's.
        let mut shown = object.clone();
        builtin::hide(resource, &mut object);
        let passing = Passing { resource, subresource: "", name, revision: 0, old: None };
        self.mutated(passing, &mut object, options)?;
        if resource.is("", "Service") {
            let causes = self.allocate_service(None, &mut object, options.dry_run);
            if !causes.is_empty() {
                return Err(ApiError::invalid(resource.about(), name, causes));
            }
        }
        if resource.is("batch", "Job") {
            builtin::generate_selector(&mut object, labelled);
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
        warnings.extend(builtin::warnings(resource, &object));
        warnings.extend(self.validate(resource, "", name, None, &object)?);
        self.validated(passing, &object, options)?;
        if !by_apply {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource: "", now: &now };
            let nothing = nothing(resource, &shown);
            let reset: &[&[&str]] = if resource.has_status() { &[&["f:status"]] } else { &[] };
            if resource.has_status() {
                remove(&mut shown, &["status"]);
            }
            managers.update(&nothing, &shown, resource.root(), by, reset);
        }
        if !managers.is_empty() {
            set(&mut object, &["metadata", "managedFields"], managers.to_value());
        }
        let key = (namespace.to_owned(), name.to_owned());
        if versioned && !options.dry_run {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", message));
        }
        if let Some(existing) = self.store.get(&resource.table, namespace, name) {
            let terminating = at(&existing.value, &["metadata", "deletionTimestamp"]).is_some();
            return Err(ApiError::already_exists(resource.about(), name, terminating));
        }
        if options.dry_run {
            let given = at(&object, &["metadata", "resourceVersion"]).cloned();
            let mut unwritten = Stored::unwritten(object);
            if let Some(given) = given.filter(|_| versioned) {
                set(&mut unwritten.value, &["metadata", "resourceVersion"], given);
            }
            let object = Arc::new(unwritten);
            return Ok(Outcome { object, created: true, removed: false, warnings, ticket: Ticket::done() });
        }
        check_size(resource, &object)?;
        convert::to_storage(resource, &mut object);
        let written = self.store.commit(&resource.table, &key, Expect::Absent, Write::Put(object));
        let (stored, ticket) = written.map_err(|_| ApiError::already_exists(resource.about(), name, false))?;
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
        // What a PUT says is read before anything is looked for.
        let read;
        let (edit, said) = match edit {
            Edit::Put(object) => {
                let mut object = object.clone();
                let said = self.decode(resource, &mut object, options)?;
                self.identify(resource, namespace, Some(name), &mut object)?;
                read = Edit::Put(object);
                (&read, said)
            }
            other => (other, Vec::new()),
        };
        // Subresources of kinds that a PUT may create make them, too.
        let creates = creates_on_update(resource);
        for _ in 0..ATTEMPTS_MAX {
            let Some(stored) = self.store.get(&resource.table, namespace, name) else {
                return match edit {
                    Edit::Apply { config, force } if subresource.is_empty() || (creates && subresource == "status") => {
                        self.create_by_apply(resource, namespace, name, config, *force, options)
                    }
                    Edit::Put(object) if creates && matches!(subresource, "" | "status") => {
                        let mut object = object.clone();
                        remove(&mut object, &["metadata", "resourceVersion"]);
                        // There is nothing that could have this uid.
                        if !text(&object, &["metadata", "uid"]).is_empty() {
                            let why = wrong_uid(resource, &object, "", options.dry_run);
                            return Err(ApiError::conflict(resource.about(), name, &why).with_warnings(&said));
                        }
                        self.create(resource, namespace, object, options).map(|outcome| outcome.saying(said.clone()))
                    }
                    _ => Err(ApiError::not_found(resource.about(), name)),
                }
                .map_err(|error| error.with_warnings(&said));
            };
            let outcome = self.try_update(resource, &stored, subresource, edit, options);
            if let Some(outcome) = outcome.map_err(|error| error.with_warnings(&said))? {
                return Ok(outcome.saying(said));
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
        let mut config = self.checked_config(resource, namespace, config)?;
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

    fn checked_config(&self, resource: &Resource, namespace: &str, config: &Value) -> Result<Value, ApiError> {
        if at(config, &["metadata", "managedFields"]).is_some_and(|m| !m.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        // What the metadata is not, is told by what reads it.
        let readable = at(config, &["metadata"]).is_none_or(|it| it.is_object() || it.is_null());
        let errors = if readable { typed::check(config, resource.root()) } else { Vec::new() };
        if !errors.is_empty() {
            return Err(untyped(resource, config, &TypedErrors(errors)));
        }
        let mut config = config.clone();
        let placed = at(&config, &["metadata", "namespace"]).is_some();
        self.identify(resource, namespace, None, &mut config)?;
        if !placed {
            // What the address says is no part of what is applied.
            remove(&mut config, &["metadata", "namespace"]);
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
        managers
            .apply_as_kubectl(live, config, resource.root(), by, force, reset)
            .map_err(|Conflicts(conflicts)| conflict_status(&conflicts))
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
            Edit::Put(object) => object.clone(),
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
                let config = self.checked_config(resource, &namespace, config)?;
                if managers.is_empty() {
                    let (nothing, version) = (nothing(resource, &old), resource.api_version());
                    let reset = reset_fields(resource, subresource);
                    managers.before_first_apply(&nothing, &old, resource.root(), &version, &json::now(), reset);
                }
                self.applied(resource, &old, &config, &mut managers, subresource, *force, options)?
            }
        };
        let applied = matches!(edit, Edit::Apply { .. });
        // Patches are read before it is asked what they are of, and what a PUT says has been read already.
        let early = match edit {
            Edit::Put(_) => Some(Vec::new()),
            Edit::Json(_) | Edit::Merge(_) | Edit::Strategic(_) => {
                let read = self.decode(resource, &mut new, options);
                Some(read.map_err(|error| unreadable(&live.value, edit, error))?)
            }
            _ => None,
        };
        self.identify(resource, &namespace, Some(&name), &mut new)?;
        self.check_preconditions(resource, &name, &live, &new, options.dry_run)?;
        let conditional = resource.custom.is_some() || resource.is("apiextensions.k8s.io", "CustomResourceDefinition");
        let version = text(&new, &["metadata", "resourceVersion"]);
        let by_client = !matches!(edit, Edit::Apply { .. } | Edit::With(_));
        if conditional && by_client && version.is_empty() {
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            // The server calls the kind here by its plural.
            let about = About { kind: &resource.plural, ..resource.about() };
            return Err(ApiError::invalid(about, &name, vec![cause]));
        }

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
        let warnings = match early {
            Some(warnings) => warnings,
            None => self.decode(resource, &mut new, options)?,
        };
        let said = warnings.clone();
        let changed = Changed { live, old, new, before, managers, applied, warnings };
        let outcome = self.update_decoded(resource, stored, subresource, changed, options);
        outcome.map_err(|error| error.with_warnings(&said))
    }

    fn update_decoded(
        &self,
        resource: &Resource,
        stored: &Stored,
        subresource: &str,
        changed: Changed,
        options: Options<'_>,
    ) -> Result<Option<Outcome>, ApiError> {
        let Changed { live, old, mut new, before, mut managers, applied, mut warnings } = changed;
        let part = |field: &str| text(&old, &["metadata", field]).to_owned();
        let (namespace, name) = (part("namespace"), part("name"));
        // Who owns what is settled by what the client asks for, before the server adds to it and takes from it.
        // Of an object that nobody owns a part of, nobody gets one by an update. A scale is such an object, too.
        let tracked = match subresource {
            "scale" => managers.owned(&replicas_path(resource)),
            _ => !managers.is_empty(),
        };
        // What does not fit the schema cannot be told apart, so its owners stay as they are.
        let fits = |object: &Value| {
            let errors = typed::check(object, resource.root());
            !errors.iter().any(|error| matches!(error, TypedError::NoKeys { .. } | TypedError::Mismatch { .. }))
        };
        if !applied && tracked && (resource.custom.is_none() || fits(&new)) {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource, now: &now };
            // No replicas is what a scale says by saying nothing, and nothing is nobody's.
            let nothing = (subresource == "scale").then(|| without_zero_scale(resource, &new)).flatten();
            let reset = reset_fields(resource, subresource);
            managers.update(&old, nothing.as_ref().unwrap_or(&new), resource.root(), by, reset);
        }
        keep_what_the_server_owns(&old, &mut new);
        let passing = Passing { resource, subresource, name: &name, revision: stored.revision, old: Some(&live.value) };
        self.mutated(passing, &mut new, options)?;
        if resource.is("", "Service") && subresource.is_empty() {
            let causes = self.allocate_service(Some(&old), &mut new, options.dry_run);
            if !causes.is_empty() {
                return Err(ApiError::invalid(resource.about(), &name, causes));
            }
        }
        restrict_to_endpoint(resource, subresource, &old, &mut new);
        builtin::hide(resource, &mut new);
        if resource.is("batch", "Job") {
            builtin::label_job(&mut new);
        }
        if resource.is("", "Service") && subresource.is_empty() {
            builtin::drop_dependent(&old, &mut new);
        }
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.prepare_definition(&mut new);
        }
        warnings.extend(self.validate(resource, subresource, &name, Some(&old), &new)?);
        self.validated(passing, &new, options)?;
        warnings.extend(builtin::metadata_warnings(resource, Some(&old), &new));
        if subresource.is_empty() {
            warnings.extend(builtin::warnings(resource, &new));
        }
        // Being given a node is no change of what a Pod is to be.
        if !matches!(subresource, "status" | "binding") {
            bump_generation(resource, &old, &mut new);
        }
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
        let key = (namespace, name);
        let shown = removed.then(|| new.clone());
        // What watchers are told of an object that goes is its last state in the store.
        if removed {
            new = stored.value.clone();
        }
        convert::to_storage(resource, &mut new);
        let write = if removed { Write::Delete(new) } else { Write::Put(new) };
        let Ok((stored, ticket)) = self.store.commit(&resource.table, &key, Expect::Revision(stored.revision), write)
        else {
            return Ok(None);
        };
        self.after_write(&resource.table, &stored, removed);
        let mut object = self.view(resource, &stored);
        if let Some(shown) = shown {
            // The client sees what it wrote; the version of the deletion is for watchers.
            object = Arc::new(Stored::new(shown, live.revision));
        }
        Ok(Some(Outcome { object, created: false, removed, warnings, ticket }))
    }

    pub(super) fn check_preconditions(
        &self,
        resource: &Resource,
        name: &str,
        live: &Stored,
        new: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let uid = text(new, &["metadata", "uid"]);
        if !uid.is_empty() && uid != live.uid() {
            let why = wrong_uid(resource, new, live.uid(), dry_run);
            return Err(ApiError::conflict(resource.about(), name, &why));
        }
        let version = text(new, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version != live.revision.to_string() {
            return Err(ApiError::modified(resource.about(), name));
        }
        Ok(())
    }
}
