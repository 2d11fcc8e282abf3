//! What every written object passes: identity, namespace, types, defaults, validation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    NAMESPACES, Registry,
    scale::custom_replicas,
    write::{Options, Validation},
};
use crate::{
    admission, builtin,
    catalog::Resource,
    crd::{self, structural},
    json::{self, at, list, remove, set, text},
    rbac,
    status::{About, ApiError, Cause},
    store::Stored,
};

/// With one of these, rules in CEL are not looked at.
const BLOCKING: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];
const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Registry {
    /// A claim without a class gets the default one, if there is one.
    pub(super) fn choose_storage_class(&self, claim: &mut Value) {
        const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
        let classes = self.store.list("storage.k8s.io/storageclasses", None).0;
        let is_default = |class: &&Arc<Stored>| text(&class.value, &["metadata", "annotations", DEFAULT]) == "true";
        if let Some(class) = classes.iter().find(is_default) {
            set(claim, &["spec", "storageClassName"], json!(text(&class.value, &["metadata", "name"])));
        }
    }

    pub(super) fn admit_creation(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !resource.namespaced {
            return Ok(());
        }
        let Some(found) = self.store.get(NAMESPACES, "", namespace) else {
            let about = About { group: "", plural: "namespaces", kind: "Namespace" };
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
    pub(super) fn identify(
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
        let (given_version, given_kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
        if given_kind != kind && given_version == api_version && resource.custom.is_some() {
            let cause = Cause::invalid("kind", &json!(given_kind), &format!("must be {kind}"));
            let about = About { kind: given_kind, ..resource.about() };
            return Err(ApiError::invalid(about, text(object, &["metadata", "name"]), vec![cause]));
        }
        if given_kind != kind || given_version != api_version {
            let known = self.catalog.by_kind(given_version, given_kind);
            if resource.custom.is_none() && known.is_none_or(|known| known.custom.is_some()) {
                return Err(ApiError::bad_request(format!(
                    "{given_kind} in version {:?} cannot be handled as a {kind}: no kind {given_kind:?} is registered for \
                     version {given_version:?} in scheme \"pkg/runtime/scheme.go:111\"",
                    resource.version,
                )));
            }
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
            if text(object, &["metadata", "namespace"]).is_empty() {
                set(object, &["metadata", "namespace"], json!(namespace));
            }
            if text(object, &["metadata", "namespace"]) != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        } else {
            remove(object, &["metadata", "namespace"]);
        }
        if let Some(name) = name {
            let given = text(object, &["metadata", "name"]);
            if given.is_empty() {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name} based on URL) was undeterminable: name must be provided"
                )));
            }
            if given != name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
        }
        Ok(())
    }

    /// Types, unknown fields, pruning and defaults. Returns warnings.
    pub(super) fn decode(
        &self,
        resource: &Resource,
        object: &mut Value,
        options: Options<'_>,
    ) -> Result<Vec<String>, ApiError> {
        let mut unknown = Vec::new();
        match &resource.custom {
            None => {
                unknown = builtin::normalise(object, resource.root(), &resource.kind)?;
                check_bytes(resource, object)?;
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

    pub(super) fn validate(
        &self,
        resource: &Resource,
        subresource: &str,
        name: &str,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        let mut special = admission::validation::check(resource, object);
        special.extend(rbac::roles::check(resource, object));
        if !special.is_empty() {
            return Err(ApiError::invalid(resource.about(), name, special));
        }
        let causes = match (&resource.custom, old) {
            (None, None) => builtin::created(resource, object),
            (None, Some(old)) => builtin::updated(resource, subresource, old, object),
            (Some(custom), old) => {
                let mut causes = match old {
                    Some(old) => builtin::updated_metadata(resource, old, object),
                    None => builtin::created_metadata(resource, object),
                };
                if subresource == "scale" {
                    causes.extend(custom_replicas(resource, object));
                }
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
                    structural::validate(&bare, old, schema, "", &mut causes);
                    let blocks = |cause: &Cause| BLOCKING.contains(&cause.reason);
                    if let Some(rules) = &custom.rules {
                        if causes.iter().any(blocks) {
                            let why = "some validation rules were not checked because the object was invalid; correct the \
                                       existing errors to complete validation";
                            causes.push(Cause::invalid("<nil>", &Value::Null, why));
                        } else {
                            let found = rules.check(object, old, schema);
                            causes.extend(found.causes);
                            warnings = found.warnings;
                        }
                    }
                }
                causes
            }
        };
        if causes.is_empty() { Ok(warnings) } else { Err(ApiError::invalid(resource.about(), name, causes)) }
    }

    pub(super) fn prepare_definition(&self, definition: &mut Value) {
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
}

/// Data that is written in base64 must be base64.
fn check_bytes(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let field = match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Secret") => "data",
        ("", "ConfigMap") => "binaryData",
        _ => return Ok(()),
    };
    for (_, value) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_err() {
            let good = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
            // Where nothing is wrong but the length, it is the last group of four.
            let place = text.bytes().position(|b| !good(&b)).unwrap_or(text.len() / 4 * 4);
            let (kind, version) = (&resource.kind, &resource.version);
            return Err(ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: illegal base64 data at input byte {place}"
            )));
        }
    }
    Ok(())
}

/// The quality-of-service class of a Pod.
pub(super) fn quality_class(pod: &Value) -> &'static str {
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
