//! Carries out what a hook asked for, one operation at a time.
//!
//! The caller has passed the operation through `grant::allows`; here the same choke point sees what only the cluster
//! knows: the live object before a change, and the object that a patch would make of it. A change is computed here,
//! checked, and sent as a replacement with the resourceVersion that it was computed from, so that what is stored is
//! exactly what was checked. Another writer in between means: read again, decide again.

use std::fmt;

use barbless_domain::grant::{self, Denial, INSTANCE_LABEL, Scope};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::limits::OWNERS_PER_OBJECT;
use barbless_domain::operation::{Action, Operation, OperationResult, Subresource};
use serde_json::{Map, Value};

use crate::Cluster;
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::{CONFLICT_PAUSE, CONFLICT_RETRIES};
use crate::request::{Target, label, metadata};
use crate::trace::Written;

mod jq;
mod patch;

pub use jq::{Jq, JqFailure};

/// Why an operation was not done.
#[derive(Debug)]
enum Refusal {
    /// It may not.
    Denied(Denial),
    /// It makes no sense.
    Bad { reason: &'static str, message: String },
    /// The API server said no, or nothing.
    Request(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl Refusal {
    fn bad(reason: &'static str, message: impl fmt::Display) -> Self {
        Self::Bad { reason, message: message.to_string() }
    }

    fn is_lost_race(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_lost_race())
    }

    fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_in_doubt())
    }

    fn into_result(self, operation: &Operation) -> OperationResult {
        match self {
            Self::Denied(denial) => {
                let message = format!("{denial} ({})", denial.hint);
                OperationResult::Failed { reason: denial.reason, message }
            }
            Self::Bad { reason, message } => {
                OperationResult::Failed { reason: reason.to_owned(), message: format!("{operation}: {message}") }
            }
            Self::Request(error) => {
                let message = match error.field_conflict(&operation.target) {
                    Some(conflict) => format!("{operation}: {conflict}"),
                    None => error.chain(),
                };
                OperationResult::Failed { reason: error.reason().to_owned(), message }
            }
        }
    }
}

impl Cluster {
    /// Carries out an operation of a hook of `application`, as field manager `manager`; `jq` evaluates the program of a
    /// jq patch.
    ///
    /// # Guarantees
    /// An object of another application, a release record or an object outside the application's namespace is not
    /// changed, whatever the operation says. A patch cannot change name, namespace or uid. Owner references lead to
    /// existing owners in the same namespace.
    ///
    /// # Assumptions
    /// The operation has passed `grant::allows` with the scope that [`Cluster::resolve`] gives.
    pub async fn perform(
        &self,
        application: &ApplicationId,
        manager: &str,
        operation: &Operation,
        jq: &dyn Jq,
    ) -> OperationResult {
        self.perform_seen(application, manager, operation, jq).await.result
    }

    /// The same, with what was seen of the object.
    pub(crate) async fn perform_seen(
        &self,
        application: &ApplicationId,
        manager: &str,
        operation: &Operation,
        jq: &dyn Jq,
    ) -> Performed {
        let result = match self.resolve(&operation.target.gvk).await {
            Ok(resource) => {
                let mut operation = operation.clone();
                match settle(application, &mut operation, resource.scope) {
                    Ok(()) => {
                        let work = Work { cluster: self, application, manager, operation: &operation, resource, jq };
                        Box::pin(work.perform()).await
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Err(error) => Err(error.into()),
        };
        result.unwrap_or_else(|refusal| Performed::of(refusal.into_result(operation)))
    }
}

/// How an operation ended, and what was seen of its object.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) result: OperationResult,
    /// The object, or the part of it that is meant, as it was.
    pub(crate) before: Option<Value>,
    /// As it is now, if it was written.
    pub(crate) after: Option<Value>,
}

impl Performed {
    fn of(result: OperationResult) -> Self {
        Self { result, before: None, after: None }
    }

    fn made(after: Value) -> Self {
        Self { result: OperationResult::Done, before: None, after: Some(after) }
    }
}

/// Puts the namespace of the application where the guest left it out, and compares what is said twice.
fn settle(application: &ApplicationId, operation: &mut Operation, scope: Scope) -> Result<(), Refusal> {
    let expected = match scope {
        Scope::Namespaced => application.namespace(),
        Scope::Cluster => "",
    };
    let target = &mut operation.target;
    if target.namespace.is_empty() {
        expected.clone_into(&mut target.namespace);
    }
    if target.namespace != expected {
        let message = format!("the hooks of this application may only name namespace {expected:?}");
        return Err(Refusal::bad("ForeignNamespace", message));
    }
    match &mut operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => settle_object(object, target, operation.subresource),
        Action::MergePatch { .. } | Action::JsonPatch { .. } | Action::JqPatch { .. } | Action::Delete { .. } => Ok(()),
    }
}

/// The object must be the one that the operation names.
fn settle_object(object: &mut Value, target: &ObjectRef, part: Option<Subresource>) -> Result<(), Refusal> {
    let bad = |what: &str, is: &str, expected: &str| {
        Refusal::bad("BadOperation", format_args!("{what} is {is:?} in the object and {expected:?} in the operation"))
    };
    let Some(map) = object.as_object_mut() else {
        return Err(Refusal::bad("BadOperation", "the object is no map"));
    };
    let api_version = target.gvk.api_version();
    let (api_version, kind) = match part {
        // Every kind has the same scale.
        Some(Subresource::Scale) => ("autoscaling/v1", "Scale"),
        Some(Subresource::Status) | None => (api_version.as_str(), target.gvk.kind.as_str()),
    };
    for (field, expected) in [("apiVersion", api_version), ("kind", kind)] {
        match map.get(field).and_then(Value::as_str) {
            Some(is) if is != expected => return Err(bad(field, is, expected)),
            Some(_) => {}
            None => {
                map.insert(field.to_owned(), expected.into());
            }
        }
    }
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Refusal::bad("BadOperation", "metadata is no map"));
    };
    for (field, expected) in [("name", target.name.as_str()), ("namespace", target.namespace.as_str())] {
        match metadata.get(field).and_then(Value::as_str) {
            Some(is) if is != expected && !is.is_empty() => {
                return Err(bad(&format!("metadata.{field}"), is, expected));
            }
            _ if expected.is_empty() => {
                metadata.remove(field);
            }
            _ => {
                metadata.insert(field.to_owned(), expected.into());
            }
        }
    }
    Ok(())
}

/// One operation under way.
struct Work<'a> {
    cluster: &'a Cluster,
    application: &'a ApplicationId,
    manager: &'a str,
    operation: &'a Operation,
    resource: Resource,
    jq: &'a dyn Jq,
}

/// What makes another object of the live one.
enum Patch<'a> {
    Merge(&'a Value),
    Json(&'a Value),
    Jq(&'a str),
}

type Outcome = Result<Performed, Refusal>;

impl Work<'_> {
    fn target(&self) -> Target<'_> {
        Target { resource: &self.resource, object: &self.operation.target }
    }

    async fn perform(&self) -> Outcome {
        if let Some(subresource) = self.operation.subresource
            && !self.resource.subresources.iter().any(|served| served == subresource.as_str())
        {
            let message = format!("{} has no subresource {:?}", self.operation.target.gvk, subresource.as_str());
            return Err(Refusal::bad("SubresourceNotServed", message));
        }
        let mut pause = CONFLICT_PAUSE;
        let mut in_doubt = false;
        for _ in 0..CONFLICT_RETRIES {
            match self.attempt().await {
                Err(refusal) if refusal.is_lost_race() => {
                    in_doubt |= refusal.is_in_doubt();
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                // All is as it should be, since the attempt that was not answered.
                Ok(performed) if in_doubt && performed.result == OperationResult::Unchanged => {
                    return Ok(Performed { result: OperationResult::Done, ..performed });
                }
                outcome => return outcome,
            }
        }
        Err(Refusal::Request(Error::Contended {
            action: self.operation.verb(),
            object: self.operation.target.to_string(),
            attempts: CONFLICT_RETRIES,
        }))
    }

    async fn attempt(&self) -> Outcome {
        match &self.operation.action {
            Action::Create { object } => self.create(object, false).await,
            Action::CreateIfNotExists { object } => self.create(object, true).await,
            Action::CreateOrUpdate { object } => self.create_or_update(object).await,
            Action::Apply { object } => self.apply(object).await,
            Action::MergePatch { patch } => self.change(Patch::Merge(patch)).await,
            Action::JsonPatch { patch } => self.change(Patch::Json(patch)).await,
            Action::JqPatch { program } => self.change(Patch::Jq(program)).await,
            Action::Delete { propagation } => self.delete(*propagation).await,
        }
    }

    /// The live object, if there is one and it may be touched.
    async fn live(&self) -> Result<Option<Value>, Refusal> {
        let live = self.cluster.get_in(&self.target()).await?;
        if let Some(live) = &live {
            grant::allows_object(self.application, self.operation, live).into_result()?;
        }
        Ok(live)
    }

    async fn create(&self, object: &Value, exists_is_fine: bool) -> Outcome {
        self.check_owners(object, None).await?;
        match self.cluster.create_in(&self.target(), self.manager, object).await {
            Ok(made) => Ok(Performed::made(made)),
            Err(error) if exists_is_fine && error.is_already_exists() => Ok(Performed::of(OperationResult::Unchanged)),
            Err(error) => Err(error.into()),
        }
    }

    async fn create_or_update(&self, object: &Value) -> Outcome {
        let Some(live) = self.live().await? else {
            if self.operation.subresource.is_some() {
                return self.missing();
            }
            self.check_owners(object, None).await?;
            return match self.cluster.create_in(&self.target(), self.manager, object).await {
                Ok(made) => Ok(Performed::made(made)),
                // It appeared meanwhile: once more, as an update.
                Err(error) if error.is_already_exists() => Err(lost_race(&self.operation.target)),
                Err(error) => Err(error.into()),
            };
        };
        self.replace(&live, &live, object.clone()).await
    }

    async fn apply(&self, object: &Value) -> Outcome {
        let live = self.live().await?;
        self.check_owners(object, live.as_ref()).await?;
        let mut object = object.clone();
        if let Some(live) = &live
            && label(live, INSTANCE_LABEL).is_some()
            && label(&object, INSTANCE_LABEL).is_none()
        {
            // An apply that no longer names the label would take it off, and the object would be nobody's.
            set_label(&mut object, INSTANCE_LABEL, self.application.name());
        }
        match &live {
            // With the version that was looked at, a foreign object that took its place meanwhile is not touched.
            Some(live) => set_version(&mut object, live),
            None if self.operation.subresource.is_some() => return self.missing(),
            None => {}
        }
        let subresource = self.operation.subresource.map(Subresource::as_str);
        let applied = self.cluster.apply_in(&self.target(), subresource, self.manager, false, &object).await.map_err(
            |error| {
                // It went away between look and apply: once more, as a creation.
                if live.is_some() && error.is_not_found() { lost_race(&self.operation.target) } else { error.into() }
            },
        )?;
        Ok(compared(live, applied))
    }

    /// Changes the live object by a patch.
    async fn change(&self, patch: Patch<'_>) -> Outcome {
        let Some(live) = self.live().await? else { return self.missing() };
        let before = match self.operation.subresource {
            Some(Subresource::Scale) => {
                let scale = self.cluster.get_subresource_in(&self.target(), "scale").await?;
                let Some(scale) = scale else { return self.missing() };
                scale
            }
            Some(Subresource::Status) | None => live.clone(),
        };
        let after = match patch {
            Patch::Merge(patch) => patch::merge(before.clone(), patch),
            Patch::Json(patch) => patch::json(before.clone(), patch),
            Patch::Jq(program) => jq::patch(self.jq, program, &before).await,
        };
        let after = after.map_err(|unfit| Refusal::bad(unfit.reason, unfit.why))?;
        if after == before {
            return Ok(Performed::of(OperationResult::Unchanged));
        }
        self.replace(&live, &before, after).await
    }

    /// Replaces the live object, or a subresource of it, after a last look at the result. `before` is what the result
    /// takes the place of: the live object, or its scale.
    async fn replace(&self, live: &Value, before: &Value, mut after: Value) -> Outcome {
        grant::check_result(self.application, self.operation, before, &after).into_result()?;
        // Also for `status`: the API server takes metadata of built-in kinds from there too.
        if self.operation.subresource != Some(Subresource::Scale) {
            self.check_owners(&after, Some(live)).await?;
        }
        set_version(&mut after, live);
        if let Some(after) = after.get_mut("metadata").and_then(Value::as_object_mut) {
            // Who owns which field is the API server's to say.
            match live.pointer("/metadata/managedFields") {
                Some(fields) if self.operation.subresource != Some(Subresource::Scale) => {
                    after.insert("managedFields".to_owned(), fields.clone());
                }
                _ => {
                    after.remove("managedFields");
                }
            }
        }
        let subresource = self.operation.subresource.map(Subresource::as_str);
        let stored = self.cluster.replace_in(&self.target(), subresource, self.manager, &after).await;
        let stored = match stored {
            // It went away after it was read.
            Err(error) if error.is_not_found() => return Err(lost_race(&self.operation.target)),
            // The version was replaced, perhaps by this: what a patch makes of the result would have it twice.
            Err(error) if error.is_lost_race() && error.is_in_doubt() => {
                let written = Written { before, after: &after, subresource: self.operation.subresource };
                match self.cluster.first_after(&self.target(), live).await?.filter(|it| written.is_in(it, self.manager))
                {
                    Some(stored) => stored,
                    None => return Err(error.doubted(false).into()),
                }
            }
            stored => stored?,
        };
        Ok(Performed { before: Some(before.clone()), ..compared(Some(live.clone()), stored) })
    }

    async fn delete(&self, propagation: barbless_domain::operation::Propagation) -> Outcome {
        let Some(live) = self.live().await? else { return Ok(Performed::of(OperationResult::Unchanged)) };
        let uid = metadata(&live, "uid");
        let deleted = self.cluster.delete_in(&self.target(), propagation, uid).await?;
        let result = if deleted { OperationResult::Done } else { OperationResult::Unchanged };
        Ok(Performed { result, before: Some(live), after: None })
    }

    fn missing(&self) -> Outcome {
        if self.operation.ignore_missing_object {
            Ok(Performed::of(OperationResult::Unchanged))
        } else {
            Err(Refusal::bad("NotFound", "there is no such object"))
        }
    }

    /// Every owner must exist, in the same namespace, with this uid, and be no other application's; or have been an
    /// owner before.
    async fn check_owners(&self, object: &Value, live: Option<&Value>) -> Result<(), Refusal> {
        const POINTER: &str = "/metadata/ownerReferences";
        let owners = match object.pointer(POINTER) {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(owners)) => owners,
            Some(_) => return Err(Refusal::bad("BadOperation", "metadata.ownerReferences is no list")),
        };
        if owners.len() > OWNERS_PER_OBJECT {
            return Err(Refusal::bad("BadOperation", format_args!("more than {OWNERS_PER_OBJECT} owner references")));
        }
        let old = live.and_then(|live| live.pointer(POINTER)).and_then(Value::as_array);
        for owner in owners {
            if !old.is_some_and(|old| old.contains(owner)) {
                self.check_owner(owner).await?;
            }
        }
        Ok(())
    }

    async fn check_owner(&self, owner: &Value) -> Result<(), Refusal> {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let bad =
            |why: String| Refusal::bad("BadOwner", format_args!("owner {} {:?}: {why}", text("kind"), text("name")));
        let gvk = Gvk::parse(text("apiVersion"), text("kind")).map_err(|error| bad(error.to_string()))?;
        let resource = self.cluster.resolve(&gvk).await.map_err(|error| match error {
            Error::KindNotServed { .. } => bad("its kind is not served".to_owned()),
            error => error.into(),
        })?;
        if resource.scope != self.resource.scope {
            return Err(bad("an owner must be in the same namespace".to_owned()));
        }
        let namespace = self.operation.target.namespace.clone();
        let reference = ObjectRef { gvk, namespace, name: text("name").to_owned() };
        let found = self.cluster.get_in(&Target { resource: &resource, object: &reference }).await?;
        let Some(found) = found else { return Err(bad("it does not exist in this namespace".to_owned())) };
        if metadata(&found, "uid") != Some(text("uid")) {
            return Err(bad("it has another uid".to_owned()));
        }
        match label(&found, INSTANCE_LABEL) {
            Some(other) if other != self.application.name() => Err(bad(format!("it belongs to application {other:?}"))),
            _ => Ok(()),
        }
    }
}

/// The API server writes nothing if nothing changes, and then the version stays.
fn compared(before: Option<Value>, after: Value) -> Performed {
    let version = |object| metadata(object, "resourceVersion");
    let result = match &before {
        Some(before) if version(before).is_some() && version(before) == version(&after) => OperationResult::Unchanged,
        _ => OperationResult::Done,
    };
    Performed { result, before, after: Some(after) }
}

fn lost_race(target: &ObjectRef) -> Refusal {
    Refusal::Request(Error::Api(Box::new(crate::error::ApiError {
        action: "change",
        object: target.to_string(),
        code: 409,
        reason: "Conflict".to_owned(),
        message: "the object came or went meanwhile".to_owned(),
        causes: Vec::new(),
        in_doubt: false,
    })))
}

fn set_label(object: &mut Value, name: &str, value: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if labels.is_null() {
        *labels = Value::Object(Map::new());
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(name.to_owned(), value.into());
    }
}

/// Makes a request depend on the version and identity of the live object.
fn set_version(object: &mut Value, live: &Value) {
    if let Some(into) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "uid"] {
            if let Some(value) = metadata(live, field) {
                into.insert(field.to_owned(), value.into());
            }
        }
    }
}
