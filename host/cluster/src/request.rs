//! Requests on single objects, as JSON.
//!
//! Objects stay `serde_json::Value`: a typed object would drop what it does not know. Names are checked here, once,
//! because they become part of a URL.

use std::collections::BTreeSet;

use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::operation::Propagation;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use serde_json::Value;

use crate::Cluster;
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::{LISTS_ANEW, PAGE, PAGES_MAX, REQUEST_WAIT};
use crate::steady::Doubt;
use crate::trace;

/// Which collection a request goes to, and what it is called in messages.
pub(crate) struct Target<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) object: &'a ObjectRef,
}

impl Target<'_> {
    /// The request builder of the collection.
    pub(crate) fn requests(&self, action: &'static str) -> Result<kube::core::Request, Error> {
        let ObjectRef { namespace, name, .. } = self.object;
        for part in [namespace, name] {
            check_segment(part).map_err(|why| Error::BadRequest {
                action,
                object: self.object.to_string(),
                why: why.to_owned(),
            })?;
        }
        Ok(kube::core::Request::new(self.resource.path((!namespace.is_empty()).then_some(namespace))))
    }
}

/// Refuses what would lead a URL to another object.
fn check_segment(part: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '@' | '+' | '=');
    if part == "." || part == ".." || part.len() > 253 || !part.chars().all(plain) {
        return Err("the name has characters that no object has");
    }
    Ok(())
}

/// Waits for the answer to a request, and not for ever.
pub(crate) async fn answered<T>(
    action: &'static str,
    object: impl std::fmt::Display,
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST_WAIT, answer).await {
        Ok(answer) => answer.map_err(|error| Error::of(action, object, error)),
        Err(_) => Err(Error::TimedOut { action, object: object.to_string(), waited: REQUEST_WAIT }),
    }
}

impl Cluster {
    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        action: &'static str,
        object: &ObjectRef,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, Error> {
        let mut request = request.map_err(|error| Error::BadRequest {
            action,
            object: object.to_string(),
            why: crate::error::chain(&error),
        })?;
        let doubt = Doubt::default();
        request.extensions_mut().insert(doubt.clone());
        let answer = answered(action, object, self.client().request(request)).await;
        answer.map_err(|error| error.doubted(doubt.is_set()))
    }

    fn body(action: &'static str, object: &ObjectRef, value: &Value) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(value).map_err(|error| Error::BadRequest {
            action,
            object: object.to_string(),
            why: error.to_string(),
        })
    }

    /// Reads an object; nothing if there is none.
    pub(crate) async fn get_in(&self, target: &Target<'_>) -> Result<Option<Value>, Error> {
        const ACTION: &str = "get";
        let request = target.requests(ACTION)?.get(&target.object.name, &GetParams::default());
        match self.send(ACTION, target.object, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads an object; nothing if there is none.
    ///
    /// # Errors
    /// If its kind is not served, or the API server refuses or does not answer.
    pub async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, Error> {
        let resource = self.resolve(&object.gvk).await?;
        self.get_in(&Target { resource: &resource, object }).await
    }

    /// Lists objects of a kind, all pages of it, without `metadata.managedFields`.
    ///
    /// # Errors
    /// If the kind is not served, or the API server refuses or does not answer.
    pub async fn list(&self, gvk: &Gvk, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>, Error> {
        let resource = self.resolve(gvk).await?;
        self.list_in(&resource, namespace, labels, false).await
    }

    pub(crate) async fn list_in(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        labels: &str,
        metadata_only: bool,
    ) -> Result<Vec<Value>, Error> {
        let selection =
            Selection { labels, metadata_only, managed_fields: false, only: None, page: PAGE, pages: PAGES_MAX };
        let listed = self.list_some(resource, namespace, &selection).await?;
        if listed.whole {
            return Ok(listed.objects);
        }
        let object = collection(resource, namespace);
        Err(Error::Malformed { object, why: format!("the list does not end after {PAGES_MAX} pages") })
    }

    /// Lists objects of a kind, up to a number of pages.
    pub(crate) async fn list_some(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selection: &Selection<'_>,
    ) -> Result<Listed, Error> {
        const ACTION: &str = "list";
        let what = collection(resource, namespace);
        if let Err(why) = check_segment(namespace.unwrap_or_default()) {
            return Err(Error::BadRequest { action: ACTION, object: what, why: why.to_owned() });
        }
        let requests = kube::core::Request::new(resource.path(namespace));
        let mut params = ListParams::default().limit(selection.page);
        if !selection.labels.is_empty() {
            params = params.labels(selection.labels);
        }
        let first = params.clone();
        let mut listed = Listed { objects: Vec::new(), whole: false };
        let mut anew = 0;
        let mut page = 0;
        while page < selection.pages {
            page += 1;
            let request = match selection.metadata_only {
                true => requests.list_metadata(&params),
                false => requests.list(&params),
            };
            let request = request.map_err(|error| Error::BadRequest {
                action: ACTION,
                object: what.clone(),
                why: crate::error::chain(&error),
            })?;
            let answer: Result<Value, Error> = answered(ACTION, &what, self.client().request(request)).await;
            let mut answer = match answer {
                // It took so long that the API server no longer knows the state that the list was of.
                Err(error) if error.code() == Some(410) && page > 1 && anew < LISTS_ANEW => {
                    (page, anew, params) = (0, anew + 1, first.clone());
                    listed.objects.clear();
                    continue;
                }
                answer => answer?,
            };
            let token = answer.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(Value::Array(items)) = answer.get_mut("items").map(Value::take) {
                let is_kept = |item: &Value| {
                    selection.only.is_none_or(|only| metadata(item, "name").is_some_and(|name| only.contains(name)))
                };
                let kept = items.into_iter().filter(is_kept);
                listed.objects.extend(kept.map(|item| identified(item, resource, selection)));
            }
            if token.is_empty() {
                listed.whole = true;
                break;
            }
            params = params.continue_token(&token);
        }
        Ok(listed)
    }

    /// Creates an object. One that exists because an attempt that was not answered has made it is the one that was asked
    /// for.
    pub(crate) async fn create_in(&self, target: &Target<'_>, manager: &str, object: &Value) -> Result<Value, Error> {
        const ACTION: &str = "create";
        let params = PostParams { dry_run: false, field_manager: Some(manager.to_owned()) };
        let request = target.requests(ACTION)?.create(&params, Self::body(ACTION, target.object, object)?);
        match self.send(ACTION, target.object, request).await {
            Err(error) if error.is_already_exists() && error.is_in_doubt() => {
                let live = self.get_in(target).await?;
                live.filter(|live| trace::is_made_of(live, object, manager)).ok_or(error)
            }
            created => created,
        }
    }

    /// Replaces an object, or a subresource of it.
    pub(crate) async fn replace_in(
        &self,
        target: &Target<'_>,
        subresource: Option<&str>,
        manager: &str,
        object: &Value,
    ) -> Result<Value, Error> {
        const ACTION: &str = "update";
        let params = PostParams { dry_run: false, field_manager: Some(manager.to_owned()) };
        let requests = target.requests(ACTION)?;
        let body = Self::body(ACTION, target.object, object)?;
        let name = &target.object.name;
        let request = match subresource {
            None => requests.replace(name, &params, body),
            Some(subresource) => requests.replace_subresource(subresource, name, &params, body),
        };
        self.send(ACTION, target.object, request).await
    }

    /// Reads a subresource; nothing if there is none.
    pub(crate) async fn get_subresource_in(
        &self,
        target: &Target<'_>,
        subresource: &str,
    ) -> Result<Option<Value>, Error> {
        const ACTION: &str = "get";
        let request = target.requests(ACTION)?.get_subresource(subresource, &target.object.name);
        match self.send(ACTION, target.object, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object, or a subresource of it, on the server side.
    pub(crate) async fn apply_in(
        &self,
        target: &Target<'_>,
        subresource: Option<&str>,
        manager: &str,
        force: bool,
        object: &Value,
    ) -> Result<Value, Error> {
        const ACTION: &str = "apply";
        let params =
            PatchParams { dry_run: false, force, field_manager: Some(manager.to_owned()), field_validation: None };
        self.patch_with(ACTION, target, subresource, &params, &Patch::Apply(object)).await
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge_in(&self, target: &Target<'_>, manager: &str, patch: &Value) -> Result<Value, Error> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.patch_with("patch", target, None, &params, &Patch::Merge(patch)).await
    }

    /// Carries out the operations of a JSON patch on an object, all or none.
    pub(crate) async fn json_patch_in(
        &self,
        target: &Target<'_>,
        manager: &str,
        operations: &Value,
    ) -> Result<Value, Error> {
        const ACTION: &str = "patch";
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        // The client has this kind of patch for operations of a type of its own only; the header is the difference.
        let request = target.requests(ACTION)?.patch(&target.object.name, &params, &Patch::Merge(operations));
        let request = request.map(|mut request| {
            let kind = http::HeaderValue::from_static("application/json-patch+json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, kind);
            request
        });
        self.send(ACTION, target.object, request).await
    }

    async fn patch_with(
        &self,
        action: &'static str,
        target: &Target<'_>,
        subresource: Option<&str>,
        params: &PatchParams,
        patch: &Patch<&Value>,
    ) -> Result<Value, Error> {
        let requests = target.requests(action)?;
        let name = &target.object.name;
        let request = match subresource {
            None => requests.patch(name, params, patch),
            Some(subresource) => requests.patch_subresource(subresource, name, params, patch),
        };
        self.send(action, target.object, request).await
    }

    /// Deletes an object if it is still the one with this uid. Says whether there was one.
    pub(crate) async fn delete_in(
        &self,
        target: &Target<'_>,
        propagation: Propagation,
        uid: Option<&str>,
    ) -> Result<bool, Error> {
        const ACTION: &str = "delete";
        let propagation = match propagation {
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Orphan => PropagationPolicy::Orphan,
        };
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        let request = target.requests(ACTION)?.delete(&target.object.name, &params);
        match self.send::<Value>(ACTION, target.object, request).await {
            Ok(_) => Ok(true),
            // Gone by an attempt that was not answered, or by somebody else: it is what was asked for, in any case.
            Err(error) if error.is_not_found() => Ok(error.is_in_doubt()),
            Err(error) => Err(error),
        }
    }
}

/// What is listed, and how much of it.
pub(crate) struct Selection<'a> {
    /// A label selector; all objects if empty.
    pub(crate) labels: &'a str,
    /// Nothing but `metadata`.
    pub(crate) metadata_only: bool,
    /// With `metadata.managedFields`.
    pub(crate) managed_fields: bool,
    /// Names of the objects that are kept of each page; all if absent.
    pub(crate) only: Option<&'a BTreeSet<&'a str>>,
    /// Objects in one page.
    pub(crate) page: u32,
    /// Pages that are asked for.
    pub(crate) pages: usize,
}

/// What a list has shown.
pub(crate) struct Listed {
    /// The objects, in the order of the API server.
    pub(crate) objects: Vec<Value>,
    /// There are no more of them.
    pub(crate) whole: bool,
}

/// A collection, for messages.
fn collection(resource: &Resource, namespace: Option<&str>) -> String {
    format!("{} in namespace {:?}", resource.api.plural, namespace.unwrap_or("*"))
}

/// Items of a list do not say what they are; a metadata list says it is metadata.
fn identified(mut item: Value, resource: &Resource, selection: &Selection<'_>) -> Value {
    if let Some(map) = item.as_object_mut() {
        if selection.metadata_only || !map.contains_key("kind") {
            map.insert("apiVersion".to_owned(), resource.api.api_version.clone().into());
            map.insert("kind".to_owned(), resource.api.kind.clone().into());
        }
        if !selection.managed_fields
            && let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("managedFields");
        }
    }
    item
}

/// A text field of the metadata of an object.
pub(crate) fn metadata<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// A label of an object.
pub(crate) fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}
