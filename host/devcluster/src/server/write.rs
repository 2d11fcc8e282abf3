//! The requests that change something: reading what they ask, and answering with what became of it.

use axum::{body::Body, response::Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Call, PROTOBUF, admitted::Subject, body, journal::PatchKind, json_response, list_bytes, protobuf, request::Target,
    warned,
};
use crate::{
    admission::Gate,
    catalog::Resource,
    json::{self, text},
    rbac,
    registry::{DeleteOptions, Edit, Options, Outcome, Propagation},
    status::{self, ApiError, Cause},
};

/// What is said when Jobs are deleted without a word about their Pods.
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                         remove them or set propagationPolicy=Orphan to suppress this warning";

impl Call {
    /// Waits until the write is safe, then answers with the object.
    async fn finish(&self, resource: &Resource, outcome: Outcome) -> Result<Response, ApiError> {
        let code = if outcome.created { StatusCode::CREATED } else { StatusCode::OK };
        outcome.ticket.wait().await.map_err(ApiError::internal)?;
        self.respond(resource, code, &outcome.object, &outcome.warnings)
    }

    pub(super) async fn create(&self, resource: &Resource, target: &Target, body: Body) -> Result<Response, ApiError> {
        if resource.group.starts_with("authorization.") || resource.group.starts_with("authentication.") {
            return self.review(resource, target, body).await;
        }
        let decoded = self.object(body).await?;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        if !target.subresource.is_empty() {
            return self.create_subresource(resource, target, &decoded.value).await;
        }
        if !resource.has_verb("create") {
            return Err(ApiError::method_not_allowed());
        }
        let namespace = if resource.namespaced && namespace.is_empty() {
            return Err(ApiError::method_not_allowed());
        } else {
            namespace
        };
        let manager = self.manager();
        let options = self.options(&manager, &decoded.duplicates)?;
        self.note(|request| request.name = text(&decoded.value, &["metadata", "name"]).to_owned());
        let subject = Subject { resource, subresource: "", namespace, name: "" };
        let create = |gate: Option<&Gate>| {
            self.registry().create(resource, namespace, decoded.value.clone(), Options { gate, ..options })
        };
        let outcome = self.admitted(subject, options.dry_run, create).await?;
        self.note(|request| request.name = text(&outcome.object.value, &["metadata", "name"]).to_owned());
        self.finish(resource, outcome).await
    }

    /// Answers a question about rights or users.
    async fn review(&self, resource: &Resource, target: &Target, body: Body) -> Result<Response, ApiError> {
        let bytes = self.bytes(body).await?;
        let question = match self.media_type() == PROTOBUF {
            // kubectl asks these in protobuf. While everything is allowed the question need not be read.
            true => protobuf::decode(&bytes).or_else(|error| match self.shared.authority.enforced {
                true => Err(error),
                false => Ok(json!({})),
            })?,
            false => body::decode(&bytes)?.value,
        };
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let authority = &self.shared.authority;
        let answer = rbac::answer_review(self.registry(), authority, self.user()?, resource, namespace, question)?;
        Ok(json_response(StatusCode::CREATED, answer.to_string().into()))
    }

    async fn create_subresource(
        &self,
        resource: &Resource,
        target: &Target,
        object: &Value,
    ) -> Result<Response, ApiError> {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let outcome = match target.subresource.as_str() {
            "binding" => {
                let node = text(object, &["target", "name"]).to_owned();
                let bind = |pod: &mut Value| {
                    json::set(pod, &["spec", "nodeName"], json!(node));
                    true
                };
                let manager = self.manager();
                let options = self.options(&manager, &[])?;
                self.registry().update(resource, namespace, name, "binding", &Edit::With(&bind), options)?
            }
            "eviction" => {
                let mut options = DeleteOptions::parse(object.get("deleteOptions").unwrap_or(&Value::Null))?;
                options.dry_run |= self.dry_run()?;
                self.note(|request| request.dry_run = options.dry_run);
                self.registry().evict(resource, namespace, name, &options)?
            }
            "token" => {
                let keys = &self.shared.authority.keys;
                let answer = rbac::request_token(self.registry(), keys, namespace, name, object)?;
                return Ok(json_response(StatusCode::CREATED, answer.to_string().into()));
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        outcome.ticket.wait().await.map_err(ApiError::internal)?;
        let answer = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(json_response(StatusCode::CREATED, answer.to_string().into()))
    }

    pub(super) async fn update(&self, resource: &Resource, target: &Target, body: Body) -> Result<Response, ApiError> {
        let allowed = match target.subresource.as_str() {
            "" => resource.has_verb("update"),
            "status" | "scale" | "finalize" => true,
            _ => false,
        };
        if !allowed {
            return Err(ApiError::method_not_allowed());
        }
        let decoded = self.object(body).await?;
        self.note_preconditions(&decoded.value);
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let manager = self.manager();
        let options = self.options(&manager, &decoded.duplicates)?;
        let subject = Subject { resource, subresource: &target.subresource, namespace, name };
        if target.subresource == "scale" {
            let given = decoded.value;
            let replace = |scale: &mut Value| {
                *scale = given.clone();
                Ok(())
            };
            let update = |gate: Option<&Gate>| {
                self.registry().update_scale(resource, namespace, name, &replace, Options { gate, ..options })
            };
            let outcome = self.admitted(subject, options.dry_run, update).await?;
            return self.finish_scale(resource, outcome).await;
        }
        let edit = Edit::Put(decoded.value);
        let update = |gate: Option<&Gate>| {
            let options = Options { gate, ..options };
            self.registry().update(resource, namespace, name, &target.subresource, &edit, options)
        };
        let outcome = self.admitted(subject, options.dry_run, update).await?;
        self.finish(resource, outcome).await
    }

    async fn finish_scale(&self, resource: &Resource, outcome: Outcome) -> Result<Response, ApiError> {
        outcome.ticket.wait().await.map_err(ApiError::internal)?;
        let scale = self.registry().scale(resource, &outcome.object.value);
        Ok(json_response(StatusCode::OK, scale.to_string().into()))
    }

    pub(super) async fn patch(&self, resource: &Resource, target: &Target, body: Body) -> Result<Response, ApiError> {
        let allowed = match target.subresource.as_str() {
            "" => resource.has_verb("patch"),
            "status" | "scale" => true,
            _ => false,
        };
        if !allowed {
            return Err(ApiError::method_not_allowed());
        }
        let bytes = self.bytes(body).await?;
        let media = self.media_type();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let mut duplicates = Vec::new();
        let mut decode = || -> Result<Value, ApiError> {
            let decoded = body::decode(&bytes)?;
            duplicates = decoded.duplicates;
            Ok(decoded.value)
        };
        let force = self.query.flag("force");
        let edit = match media.as_str() {
            "application/json-patch+json" => Edit::Json(&bytes),
            "application/merge-patch+json" => Edit::Merge(decode()?),
            "application/strategic-merge-patch+json" if resource.custom.is_none() => Edit::Strategic(decode()?),
            "application/apply-patch+yaml" => Edit::Apply { config: decode()?, force },
            _ => {
                let mut accepted = "application/json-patch+json, application/merge-patch+json, ".to_owned();
                if resource.custom.is_none() {
                    accepted.push_str("application/strategic-merge-patch+json, ");
                }
                accepted.push_str("application/apply-patch+yaml");
                return Err(ApiError::unsupported_media_type(&accepted));
            }
        };
        let applying = matches!(edit, Edit::Apply { .. });
        self.note(|request| {
            request.force = force;
            request.patch = match &edit {
                Edit::Json(_) => Some(PatchKind::Json),
                Edit::Merge(_) => Some(PatchKind::Merge),
                Edit::Strategic(_) => Some(PatchKind::Strategic),
                Edit::Apply { .. } => Some(PatchKind::Apply),
                Edit::Put(_) | Edit::With(_) => None,
            };
        });
        if let Edit::Merge(object) | Edit::Strategic(object) | Edit::Apply { config: object, .. } = &edit {
            self.note_preconditions(object);
        }
        if applying && self.query.get("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_options("PatchOptions", cause));
        }
        if force && !applying {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid_options("PatchOptions", cause));
        }
        let manager = self.manager();
        let options = self.options(&manager, &duplicates)?;
        let subject = Subject { resource, subresource: &target.subresource, namespace, name };
        if let (Edit::Apply { config, force }, "scale") = (&edit, target.subresource.as_str()) {
            let apply = |gate: Option<&Gate>| {
                let options = Options { gate, ..options };
                self.registry().apply_scale(resource, namespace, name, config, *force, options)
            };
            let outcome = self.admitted(subject, options.dry_run, apply).await?;
            return self.finish_scale(resource, outcome).await;
        }
        if target.subresource == "scale" {
            let change = |scale: &mut Value| match &edit {
                Edit::Json(bytes) => crate::patch::json(scale, bytes),
                Edit::Merge(value) | Edit::Strategic(value) => {
                    crate::patch::merge(scale, value);
                    Ok(())
                }
                Edit::Put(_) | Edit::With(_) | Edit::Apply { .. } => Err(ApiError::method_not_allowed()),
            };
            let update = |gate: Option<&Gate>| {
                self.registry().update_scale(resource, namespace, name, &change, Options { gate, ..options })
            };
            let outcome = self.admitted(subject, options.dry_run, update).await?;
            return self.finish_scale(resource, outcome).await;
        }
        let update = |gate: Option<&Gate>| {
            let options = Options { gate, ..options };
            self.registry().update(resource, namespace, name, &target.subresource, &edit, options)
        };
        let outcome = self.admitted(subject, options.dry_run, update).await?;
        self.finish(resource, outcome).await
    }

    async fn delete_options(&self, resource: &Resource, body: Body) -> Result<DeleteOptions, ApiError> {
        let bytes = self.bytes(body).await?;
        let value = match () {
            () if bytes.iter().all(u8::is_ascii_whitespace) => Value::Null,
            () if self.media_type() == PROTOBUF => protobuf::decode(&bytes)?,
            () => body::decode(&bytes)?.value,
        };
        let mut options = DeleteOptions::parse(&value)?;
        // Options in the body are all the options: those of the address are not looked at then.
        if value.is_null() {
            options.set_propagation(self.query.get("propagationPolicy"))?;
            options.grace_seconds = self.query.get("gracePeriodSeconds").parse().ok();
            options.dry_run = self.dry_run()?;
        }
        // As in the first version of the kind: clients that want its Pods gone say so.
        if resource.is("batch", "Job") {
            options.fallback = Some(Propagation::Orphan);
            if options.propagation.is_none() {
                options.warning = Some(PODS_STAY);
            }
        }
        self.note(|request| {
            request.dry_run = options.dry_run;
            request.propagation = options.propagation;
            request.uid.clone_from(&options.uid);
            request.resource_version.clone_from(&options.resource_version);
        });
        Ok(options)
    }

    pub(super) async fn delete(&self, resource: &Resource, target: &Target, body: Body) -> Result<Response, ApiError> {
        if !resource.has_verb("delete") || !target.subresource.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let options = self.delete_options(resource, body).await?;
        let said = options.warning.map(str::to_owned).into_iter().collect::<Vec<_>>();
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let outcome = self.delete_admitted(resource, namespace, name, &options).await;
        let outcome = outcome.map_err(|error| error.with_warnings(&said))?.saying(said);
        if !outcome.removed {
            return self.finish(resource, outcome).await;
        }
        outcome.ticket.wait().await.map_err(ApiError::internal)?;
        // Pods and services answer with the object, as the real ones do.
        if resource.is("", "Pod") || resource.is("", "Service") {
            return self.respond(resource, StatusCode::OK, &outcome.object, &outcome.warnings);
        }
        let answer = status::deleted(resource.about(), name, outcome.object.uid());
        let response = json_response(StatusCode::OK, answer.to_string().into());
        Ok(warned(response, &outcome.warnings))
    }

    async fn delete_admitted(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Outcome, ApiError> {
        let subject = Subject { resource, subresource: "", namespace, name };
        let delete = |gate: Option<&Gate>| self.registry().delete_past(gate, resource, namespace, name, options);
        self.admitted(subject, options.dry_run, delete).await
    }

    pub(super) async fn delete_collection(
        &self,
        resource: &Resource,
        target: &Target,
        body: Body,
    ) -> Result<Response, ApiError> {
        if !resource.has_verb("deletecollection") {
            return Err(ApiError::method_not_allowed());
        }
        let selector = self.selector(resource)?;
        let options = self.delete_options(resource, body).await?;
        let (objects, _) = self.registry().store.list(&resource.table, target.namespace.as_deref());
        let mut deleted = Vec::new();
        for stored in objects {
            let object = self.registry().view(resource, &stored);
            if !selector.matches(&object.value) {
                continue;
            }
            let namespace = text(&object.value, &["metadata", "namespace"]);
            let name = text(&object.value, &["metadata", "name"]);
            match self.delete_admitted(resource, namespace, name, &options).await {
                Ok(outcome) => {
                    outcome.ticket.wait().await.map_err(ApiError::internal)?;
                    // As it was when it was found.
                    deleted.push(object);
                }
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let metadata = json!({"resourceVersion": self.registry().store.revision().to_string()});
        let bytes = list_bytes(resource, &metadata, &deleted);
        let said = options.warning.map(str::to_owned).into_iter().collect::<Vec<_>>();
        Ok(warned(json_response(StatusCode::OK, bytes), &said))
    }
}
