//! Create and update.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CRD_TABLE, NAMESPACES, Registry, convert};
use crate::{
    apply::managed::{ApplyError, By, Managers, conflict_status},
    builtin,
    catalog::Resource,
    crd::{self, structural},
    json::{self, at, copy, int, list, remove, same, set, text},
    patch,
    status::{ApiError, Cause},
    store::{Expect, Stored, Ticket, Write},
};

/// How often a write is tried again because another write came between. Each loss means that somebody else won, so a
/// writer that loses this often is in a crowd and gets a conflict.
const ATTEMPTS_MAX: usize = 256;

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

/// Kinds that a PUT may create.
fn creates_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("coordination.k8s.io", "Lease")
            | ("", "Endpoints" | "Event" | "LimitRange" | "Service")
            | ("events.k8s.io", "Event")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("rbac.authorization.k8s.io", _)
            | ("scheduling.k8s.io" | "node.k8s.io", _)
    ) && resource.custom.is_none()
        && resource.kind != "Service"
}

fn has_generation(resource: &Resource) -> bool {
    resource.custom.is_some()
        || matches!(resource.group.as_str(), "apps" | "batch" | "policy" | "networking.k8s.io" | "autoscaling")
        || matches!(
            resource.group.as_str(),
            "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "discovery.k8s.io"
        )
        || resource.is("", "Pod")
        || resource.is("", "ReplicationController")
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
        if !text(&object, &["metadata", "resourceVersion"]).is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "InternalError", message));
        }
        if text(&object, &["metadata", "name"]).is_empty() {
            let base = text(&object, &["metadata", "generateName"]);
            if base.is_empty() {
                let cause = Cause::required("metadata.name", "name or generateName is required");
                return Err(ApiError::invalid(resource.about(), "", vec![cause]));
            }
            let base = base.chars().take(58).collect::<String>();
            let free = |name: &String| self.store.get(&resource.table, namespace, name).is_none();
            let mut names = (0..8).map(|_| format!("{base}{}", random_suffix()));
            let name = names.find(free).unwrap_or_else(|| format!("{base}{}", random_suffix()));
            set(&mut object, &["metadata", "name"], json!(name));
        }
        let managers = Managers::of(&object);
        self.insert(resource, namespace, object, managers, None, options)
    }

    /// Puts a new object into the store. With `applied` the managers already know who owns what.
    fn insert(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        mut managers: Managers,
        applied: Option<()>,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        let name = text(&object, &["metadata", "name"]).to_owned();
        self.admit_creation(resource, namespace, &name)?;
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
        let warnings = self.decode(resource, &mut object, options)?;
        if resource.is("", "Service") {
            self.allocate_service(&mut object);
        }
        if resource.is("", "PersistentVolumeClaim") && at(&object, &["spec", "storageClassName"]).is_none() {
            self.choose_storage_class(&mut object);
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
        self.validate(resource, &name, &object)?;
        if applied.is_none() {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource: "", now: &now };
            let mut nothing = json!({"metadata": {}});
            if resource.custom.is_none() {
                // The typed zero object of a built-in kind has these; they are not "added".
                for field in ["spec", "status"] {
                    if object.get(field).is_some() {
                        set(&mut nothing, &[field], json!({}));
                    }
                }
            }
            let mut shown = object.clone();
            let reset: &[&str] = if resource.has_status() { &["f:status"] } else { &[] };
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
        if options.dry_run {
            let object = Arc::new(Stored::new(object, 0));
            return Ok(Outcome { object, created: true, removed: false, warnings, ticket: Ticket::done() });
        }
        convert::to_storage(resource, &mut object);
        let written = self.store.commit(&resource.table, &key, Expect::Absent, Write::Put(object));
        let (stored, ticket) = written.map_err(|_| ApiError::already_exists(resource.about(), &name, false))?;
        self.after_write(&resource.table, &stored, false);
        Ok(Outcome { object: self.view(resource, &stored), created: true, removed: false, warnings, ticket })
    }

    /// A claim without a class gets the default one, if there is one.
    fn choose_storage_class(&self, claim: &mut Value) {
        const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
        let classes = self.store.list("storage.k8s.io/storageclasses", None).0;
        let is_default = |class: &&Arc<Stored>| text(&class.value, &["metadata", "annotations", DEFAULT]) == "true";
        if let Some(class) = classes.iter().find(is_default) {
            set(claim, &["spec", "storageClassName"], json!(text(&class.value, &["metadata", "name"])));
        }
    }

    fn admit_creation(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !resource.namespaced {
            return Ok(());
        }
        let Some(found) = self.store.get(NAMESPACES, "", namespace) else {
            let about = crate::status::About { group: "", plural: "namespaces", kind: "Namespace" };
            return Err(ApiError::not_found(about, namespace));
        };
        if at(&found.value, &["metadata", "deletionTimestamp"]).is_some() {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let cause = Cause {
                reason: "NamespaceTerminating",
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            return Err(ApiError::forbidden(resource.about(), name, &why).with_cause(cause));
        }
        Ok(())
    }

    /// Checks that the object is what the address says, and fills in what the address knows.
    fn identify(
        &self,
        resource: &Resource,
        namespace: &str,
        name: Option<&str>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        if !object.is_object() {
            return Err(ApiError::bad_request("the body is not an object"));
        }
        let (api_version, kind) = (resource.api_version(), &resource.kind);
        json::default(object, &["apiVersion"], json!(api_version));
        json::default(object, &["kind"], json!(kind));
        if text(object, &["kind"]) != kind || text(object, &["apiVersion"]) != api_version {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({}, Kind={}) does not match the expected API version ({api_version}, \
                 Kind={kind})",
                text(object, &["apiVersion"]),
                text(object, &["kind"]),
            )));
        }
        if !at(object, &["metadata"]).is_none_or(|m| m.is_object() || m.is_null()) {
            return Err(ApiError::bad_request("metadata is not an object"));
        }
        json::default(object, &["metadata"], json!({}));
        for field in ["name", "namespace", "generateName", "uid", "resourceVersion"] {
            if at(object, &["metadata", field]).is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(ApiError::bad_request(format!(
                    "json: cannot unmarshal into Go struct field ObjectMeta.metadata.{field} of type string"
                )));
            }
        }
        if resource.namespaced {
            json::default(object, &["metadata", "namespace"], json!(namespace));
            let given = text(object, &["metadata", "namespace"]);
            if given != namespace {
                return Err(ApiError::bad_request(format!(
                    "the namespace of the provided object does not match the namespace sent on the request ({given} != \
                     {namespace})"
                )));
            }
        } else {
            remove(object, &["metadata", "namespace"]);
        }
        if let Some(name) = name {
            json::default(object, &["metadata", "name"], json!(name));
            let given = text(object, &["metadata", "name"]);
            if given != name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
        }
        Ok(())
    }

    /// Types, unknown fields, pruning and defaults. Returns warnings.
    fn decode(&self, resource: &Resource, object: &mut Value, options: Options<'_>) -> Result<Vec<String>, ApiError> {
        let mut unknown = Vec::new();
        match &resource.custom {
            None => {
                unknown = builtin::normalise(object, resource.root(), &resource.kind)?;
                builtin::default(&resource.group, &resource.kind, object);
            }
            Some(custom) => {
                if let (Some(metadata), Some(ty)) = (object.get_mut("metadata"), resource.root().field("metadata")) {
                    unknown = builtin::normalise(metadata, ty, "ObjectMeta")?;
                }
                if let Some(schema) = &custom.schema {
                    structural::prune(object, schema, true, "", &mut unknown);
                    structural::default(object, schema);
                }
            }
        }
        let mut problems = unknown.iter().map(|path| format!("unknown field {path:?}")).collect::<Vec<_>>();
        problems.extend(options.duplicates.iter().map(|path| format!("duplicate field {path:?}")));
        let deprecation = resource.custom.as_ref().and_then(|custom| custom.deprecation.clone());
        match options.validation {
            Validation::Strict if !problems.is_empty() => {
                let (kind, version) = (&resource.kind, &resource.version);
                Err(ApiError::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                    problems.join(", ")
                )))
            }
            Validation::Warn => Ok(problems.into_iter().chain(deprecation).collect()),
            _ => Ok(deprecation.into_iter().collect()),
        }
    }

    fn validate(&self, resource: &Resource, name: &str, object: &Value) -> Result<(), ApiError> {
        let mut causes = builtin::metadata(resource, object);
        match &resource.custom {
            None => {
                causes.extend(builtin::check_required(object, resource.root()));
                causes.extend(builtin::validate(&resource.group, &resource.kind, object));
            }
            Some(custom) => {
                if let Some(schema) = &custom.schema {
                    // Metadata is checked by its own rules, whatever the schema says of it.
                    let mut bare = object.clone();
                    if let Some(map) = bare.as_object_mut() {
                        let declared = schema.get("properties").and_then(|p| p.get("metadata")).is_some();
                        let required = list(schema, &["required"]).iter().any(|r| r == "metadata");
                        if !declared && !required {
                            map.remove("metadata");
                        }
                    }
                    structural::validate(&bare, schema, "", &mut causes);
                }
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource.about(), name, causes)) }
    }

    fn prepare_definition(&self, definition: &mut Value) {
        let path = |key: &'static str| ["spec", "names", key];
        let conflict = self.catalog.name_taken(
            text(definition, &["spec", "group"]),
            text(definition, &path("plural")),
            text(definition, &path("kind")),
        );
        crd::establish(definition, conflict);
        let finalizers = list(definition, &["metadata", "finalizers"]);
        let terminating = at(definition, &["metadata", "deletionTimestamp"]).is_some();
        if !terminating && !finalizers.iter().any(|f| f == CRD_FINALIZER) {
            let mut finalizers = finalizers.to_vec();
            finalizers.push(json!(CRD_FINALIZER));
            set(definition, &["metadata", "finalizers"], Value::Array(finalizers));
        }
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
        let object = self.applied(resource, &json!({}), &config, &mut managers, "", force, options)?;
        self.insert(resource, namespace, object, managers, Some(()), options)
    }

    fn checked_config(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        config: &Value,
    ) -> Result<Value, ApiError> {
        let mut config = config.clone();
        self.identify(resource, namespace, Some(name), &mut config)?;
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
            ApplyError::Typed(error) => ApiError::bad_request(format!(
                "failed to create typed patch object ({}/{}; {api_version}, Kind={}): {error}",
                text(config, &["metadata", "namespace"]),
                text(config, &["metadata", "name"]),
                resource.kind,
            )),
        })
    }

    /// One try. `None` means that somebody else wrote meanwhile.
    fn try_update(
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
        keep_what_the_server_owns(&old, &mut new);
        restrict_to_endpoint(resource, subresource, &old, &mut new);
        let warnings = self.decode(resource, &mut new, options)?;
        let mut causes = Vec::new();
        if resource.custom.is_none() && subresource.is_empty() {
            causes = builtin::immutable(&resource.group, &resource.kind, &old, &mut new);
            if resource.is("", "Service") {
                self.allocate_service(&mut new);
            }
        }
        if resource.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.prepare_definition(&mut new);
        }
        causes.extend(new_finalizers(&old, &new));
        if !causes.is_empty() {
            return Err(ApiError::invalid(resource.about(), &name, causes));
        }
        self.validate(resource, &name, &new)?;
        bump_generation(resource, &old, &mut new);

        if !applied {
            let now = json::now();
            let api_version = resource.api_version();
            let by = By { manager: options.manager, api_version: &api_version, subresource, now: &now };
            managers.update(&old, &new, resource.root(), by, reset_fields(resource, subresource));
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

    fn check_preconditions(&self, resource: &Resource, name: &str, live: &Stored, new: &Value) -> Result<(), ApiError> {
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

    /// The scale of an object.
    pub(crate) fn scale(&self, resource: &Resource, object: &Value) -> Value {
        let number = |path: &[&str]| int(object, path).unwrap_or_default();
        let (spec, status, selector) = match resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
            Some(paths) => {
                let at_path =
                    |path: &[String]| at(object, &path.iter().map(String::as_str).collect::<Vec<_>>()).cloned();
                let selector = paths.selector.as_deref().and_then(at_path);
                (
                    at_path(&paths.spec_replicas).and_then(|v| v.as_i64()).unwrap_or_default(),
                    at_path(&paths.status_replicas).and_then(|v| v.as_i64()).unwrap_or_default(),
                    selector.and_then(|s| s.as_str().map(str::to_owned)).unwrap_or_default(),
                )
            }
            None => {
                let selector = at(object, &["spec", "selector"]);
                let text = selector.map(|selector| {
                    if resource.kind == "ReplicationController" {
                        crate::selector::label_selector_text(&json!({"matchLabels": selector}))
                    } else {
                        crate::selector::label_selector_text(selector)
                    }
                });
                (number(&["spec", "replicas"]), number(&["status", "replicas"]), text.unwrap_or_default())
            }
        };
        let mut scale = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {},
            "spec": {"replicas": spec},
            "status": {"replicas": status},
        });
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            copy(object, &mut scale, &["metadata", field]);
        }
        if !selector.is_empty() {
            set(&mut scale, &["status", "selector"], json!(selector));
        }
        scale
    }

    /// Changes the number of replicas through the scale of an object.
    pub(crate) fn update_scale(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        edit: &dyn Fn(&mut Value) -> Result<(), ApiError>,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        for _ in 0..ATTEMPTS_MAX {
            let live = self.get(resource, namespace, name)?;
            let mut scale = self.scale(resource, &live.value);
            edit(&mut scale)?;
            self.check_preconditions(resource, name, &live, &scale)?;
            let replicas = int(&scale, &["spec", "replicas"]).unwrap_or_default();
            if replicas < 0 {
                let why = "must be greater than or equal to 0";
                let cause = Cause::invalid("spec.replicas", &json!(replicas), why);
                return Err(ApiError::invalid(resource.about(), name, vec![cause]));
            }
            let path = match resource.custom.as_ref().and_then(|custom| custom.scale.clone()) {
                Some(paths) => paths.spec_replicas,
                None => vec!["spec".to_owned(), "replicas".to_owned()],
            };
            let change = |object: &mut Value| {
                let path = path.iter().map(String::as_str).collect::<Vec<_>>();
                set(object, &path, json!(replicas));
                true
            };
            let Some(stored) = self.store.get(&resource.table, namespace, name) else { continue };
            if let Some(outcome) = self.try_update(resource, &stored, "scale", &Edit::With(&change), options)? {
                return Ok(outcome);
            }
        }
        Err(ApiError::modified(resource.about(), name))
    }
}

const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Top-level fields that an endpoint does not write.
fn reset_fields(resource: &Resource, subresource: &str) -> &'static [&'static str] {
    match subresource {
        "status" => &["f:spec", "f:metadata"],
        "" if resource.has_status() => &["f:status"],
        _ => &[],
    }
}

fn keep_what_the_server_owns(old: &Value, new: &mut Value) {
    for field in
        ["uid", "creationTimestamp", "generation", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        copy(old, new, &["metadata", field]);
    }
    remove(new, &["metadata", "selfLink"]);
}

/// Undoes what this endpoint may not change.
fn restrict_to_endpoint(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    match subresource {
        "status" => {
            let status = new.get("status").cloned();
            let version = at(new, &["metadata", "resourceVersion"]).cloned();
            *new = old.clone();
            match status {
                Some(status) => set(new, &["status"], status),
                None => {
                    remove(new, &["status"]);
                }
            }
            if let Some(version) = version {
                set(new, &["metadata", "resourceVersion"], version);
            }
        }
        "finalize" => {
            let finalizers = at(new, &["spec", "finalizers"]).cloned().unwrap_or_else(|| json!([]));
            *new = old.clone();
            set(new, &["spec", "finalizers"], finalizers);
        }
        "" if resource.has_status() => copy(old, new, &["status"]),
        _ => {}
    }
    if subresource.is_empty() && resource.is("", "Namespace") {
        copy(old, new, &["spec"]);
    }
}

fn new_finalizers(old: &Value, new: &Value) -> Vec<Cause> {
    if at(old, &["metadata", "deletionTimestamp"]).is_none() {
        return Vec::new();
    }
    let before = list(old, &["metadata", "finalizers"]);
    let added = list(new, &["metadata", "finalizers"]).iter().filter(|f| !before.contains(f)).collect::<Vec<_>>();
    if added.is_empty() {
        return Vec::new();
    }
    let names = added.iter().map(|f| f.to_string()).collect::<Vec<_>>().join(", ");
    let why = format!("no new finalizers can be added if the object is being deleted, found new finalizers [{names}]");
    vec![Cause::forbidden("metadata.finalizers", &why)]
}

fn bump_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if !has_generation(resource) {
        return;
    }
    let essence = |object: &Value| {
        let mut object = object.clone();
        remove(&mut object, &["metadata"]);
        if resource.has_status() || resource.custom.is_none() {
            remove(&mut object, &["status"]);
        }
        object
    };
    if !same(&essence(old), &essence(new)) {
        let generation = int(old, &["metadata", "generation"]).unwrap_or_default() + 1;
        set(new, &["metadata", "generation"], json!(generation));
    }
}

/// Whether deletion has nothing left to wait for.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let content = resource.is("", "Namespace") && !list(object, &["spec", "finalizers"]).is_empty();
    at(object, &["metadata", "deletionTimestamp"]).is_some()
        && list(object, &["metadata", "finalizers"]).is_empty()
        && int(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default() == 0
        && !content
}

/// The quality-of-service class of a Pod.
fn quality_class(pod: &Value) -> &'static str {
    let containers = list(pod, &["spec", "containers"]).iter().chain(list(pod, &["spec", "initContainers"]));
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let limit = at(container, &["resources", "limits", resource]);
            let request = at(container, &["resources", "requests", resource]);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}
