//! The scale subresource.

use serde_json::{Value, json};

use super::{
    Registry,
    write::{ATTEMPTS_MAX, Edit, Options, Outcome},
};
use crate::{
    catalog::Resource,
    json::{at, copy, int, set, text},
    status::{About, ApiError, Cause},
};

/// Where an object says how many replicas it wants.
pub(super) fn replicas_path(resource: &Resource) -> Vec<String> {
    match resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(paths) => paths.spec_replicas.clone(),
        None => vec!["spec".to_owned(), "replicas".to_owned()],
    }
}

/// What is wrong with the number of replicas that a scale gives a custom object.
pub(super) fn custom_replicas(resource: &Resource, object: &Value) -> Option<Cause> {
    let path = replicas_path(resource);
    let replicas = int(object, &path.iter().map(String::as_str).collect::<Vec<_>>())?;
    (replicas < 0).then(|| Cause::invalid(".spec.replicas", &json!(replicas), "should be a non-negative integer"))
}

fn negative(resource: &Resource, name: &str, replicas: &Value) -> ApiError {
    let cause = match resource.custom.is_some() {
        true => Cause::invalid(".spec.replicas", replicas, "should be a non-negative integer"),
        false => Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0"),
    };
    let about = match resource.custom.is_some() {
        true => resource.about(),
        false => About { group: "autoscaling", plural: "scales", kind: "Scale" },
    };
    ApiError::invalid(about, name, vec![cause])
}

impl Registry {
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
            "spec": {},
            "status": {"replicas": status},
        });
        if spec != 0 {
            set(&mut scale, &["spec", "replicas"], json!(spec));
        }
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            copy(object, &mut scale, &["metadata", field]);
        }
        if !selector.is_empty() {
            set(&mut scale, &["status", "selector"], json!(selector));
        }
        scale
    }

    /// The scale of an object as a client may read it.
    ///
    /// # Errors
    ///
    /// A custom object need not have the field that says how many replicas it wants.
    pub(crate) fn read_scale(&self, resource: &Resource, object: &Value) -> Result<Value, ApiError> {
        let path = replicas_path(resource);
        if resource.custom.is_some() && at(object, &path.iter().map(String::as_str).collect::<Vec<_>>()).is_none() {
            let why = format!("the spec replicas field \".{}\" does not exist", path.join("."));
            let cause = Cause { reason: "", message: why.clone(), field: String::new() };
            return Err(ApiError::internal(why).with_cause(cause));
        }
        Ok(self.scale(resource, object))
    }

    /// Applies a Scale: the manager owns the number of replicas of the object, through the scale.
    pub(crate) fn apply_scale(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        scale: &Value,
        force: bool,
        options: Options<'_>,
    ) -> Result<Outcome, ApiError> {
        let (api_version, kind) = (text(scale, &["apiVersion"]), text(scale, &["kind"]));
        if (api_version, kind) != ("autoscaling/v1", "Scale") {
            return Err(ApiError::bad_request(format!(
                "invalid object type: {api_version}, Kind={kind}: a scale is applied as autoscaling/v1, Kind=Scale"
            )));
        }
        let mut config =
            json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": name}});
        for field in ["name", "namespace", "uid", "resourceVersion"] {
            if let Some(given) = at(scale, &["metadata", field]) {
                set(&mut config, &["metadata", field], given.clone());
            }
        }
        if let Some(replicas) = at(scale, &["spec", "replicas"]) {
            if replicas.as_i64().is_none_or(|n| n < 0) {
                return Err(negative(resource, name, replicas));
            }
            let path = replicas_path(resource);
            set(&mut config, &path.iter().map(String::as_str).collect::<Vec<_>>(), replicas.clone());
        }
        self.update(resource, namespace, name, "scale", &Edit::Apply { config, force }, options)
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
            let replicas = int(&scale, &["spec", "replicas"]).unwrap_or_default();
            // That of a custom object is checked with the object.
            if replicas < 0 && resource.custom.is_none() {
                return Err(negative(resource, name, &json!(replicas)));
            }
            self.check_preconditions(resource, name, &live, &scale, options.dry_run)?;
            let path = replicas_path(resource);
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
