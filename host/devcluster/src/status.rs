//! `metav1.Status`: what every refused request answers.
//!
//! One constructor per reason of the API, so that a handler cannot invent a code that clients do not know.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// A refusal, ready to be sent as a `Status` object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) details: Box<Details>,
}

/// The `details` of a Status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after_seconds: u64,
    /// The refusal has details, though there is nothing in them.
    pub(crate) bare: bool,
    /// What is said beside the refusal, in headers.
    pub(crate) warnings: Vec<String>,
    /// A token with which a list can go on; it stands in the metadata of the Status.
    pub(crate) go_on: Option<String>,
}

/// One line of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut cause = Map::new();
        for (key, text) in [("reason", self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(cause)
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let field = field.into();
        Self { reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {why}"), field }
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let tail = if why.is_empty() { String::new() } else { format!(": {why}") };
        Self { reason: "FieldValueRequired", message: format!("Required value{tail}"), field: field.into() }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.into() }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}"), field: field.into() }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, allowed: &[Value]) -> Self {
        let list = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {value}: supported values: {list}");
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }
}

/// Names of the resource a refusal is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) kind: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: Box::default() }
    }

    fn about(mut self, about: About<'_>, name: &str) -> Self {
        self.details.group = about.group.to_owned();
        self.details.kind = about.plural.to_owned();
        self.details.name = name.to_owned();
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(about: About<'_>, name: &str, why: &str) -> Self {
        let name_shown = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!("{}{name_shown} is forbidden: {why}", about.qualified());
        Self::new(403, "Forbidden", message).about(about, name)
    }

    /// The token is not known.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn not_found(about: About<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", about.qualified())).about(about, name)
    }

    /// A path under the API roots that no resource answers.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml";
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn already_exists(about: About<'_>, name: &str, terminating: bool) -> Self {
        let message = if terminating {
            format!("object is being deleted: {} \"{name}\" already exists", about.qualified())
        } else {
            format!("{} \"{name}\" already exists", about.qualified())
        };
        Self::new(409, "AlreadyExists", message).about(about, name)
    }

    pub(crate) fn conflict(about: About<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", about.qualified());
        Self::new(409, "Conflict", message).about(about, name)
    }

    pub(crate) fn modified(about: About<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(about, name, why)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit_bytes}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn invalid(about: About<'_>, name: &str, causes: Vec<Cause>) -> Self {
        let mut lines = Vec::new();
        for line in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            // What is found twice is said once here, though it is listed twice below.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let text = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind =
            if about.group.is_empty() { about.kind.to_owned() } else { format!("{}.{}", about.kind, about.group) };
        let mut error = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {text}")).about(about, name);
        error.details.kind = about.kind.to_owned();
        error.details.causes = causes;
        error
    }

    /// The parameters of a request are not right.
    pub(crate) fn invalid_options(kind: &str, cause: Cause) -> Self {
        let about = About { group: "meta.k8s.io", plural: "", kind };
        Self::invalid(about, "", vec![cause])
    }

    /// A change of an object that leaves no object that its kind can be.
    pub(crate) fn bad_patch(patched: &str, why: &str) -> Self {
        let about = About { group: "", plural: "", kind: "" };
        Self::invalid(about, "", vec![Cause::invalid("patch", &json!(patched), why)])
    }

    /// A patch that cannot be carried out on the object. The real server says no more, either.
    pub(crate) fn unprocessable() -> Self {
        let mut error = Self::new(422, "Invalid", "the server rejected our request due to an error in our request");
        error.details.bare = true;
        error
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// The asked-for version is newer than anything this server wrote.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message);
        error.details.retry_after_seconds = 1;
        error.details.causes.push(Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        });
        error
    }

    /// Adds what is said beside the refusal.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.details.warnings.extend_from_slice(warnings);
        self
    }

    pub(crate) fn with_cause(mut self, cause: Cause) -> Self {
        self.details.causes.push(cause);
        self
    }

    /// The Status object.
    pub(crate) fn to_value(&self) -> Value {
        let mut details = Map::new();
        let d = &self.details;
        for (key, text) in [("name", &d.name), ("group", &d.group), ("kind", &d.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        if !d.causes.is_empty() {
            let causes = d.causes.iter().map(Cause::to_value).collect();
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        if d.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(d.retry_after_seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let (Some(map), Some(token)) = (status.as_object_mut(), &d.go_on) {
            map.insert("metadata".to_owned(), json!({"continue": token}));
        }
        if let (Some(map), false) = (status.as_object_mut(), self.reason.is_empty()) {
            map.insert("reason".to_owned(), json!(self.reason));
        }
        if let (Some(map), true) = (status.as_object_mut(), d.bare || !details.is_empty()) {
            map.insert("details".to_owned(), Value::Object(details));
        }
        status
    }
}

/// The answer to a deletion that left nothing behind.
pub(crate) fn deleted(about: About<'_>, name: &str, uid: &str) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "kind": about.plural, "uid": uid},
    });
    if !about.group.is_empty() {
        crate::json::set(&mut status, &["details", "group"], json!(about.group));
    }
    status
}
