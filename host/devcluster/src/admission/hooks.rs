//! The configured webhooks: finding those that a request concerns, calling them, and making one answer of theirs.

use std::{sync::Arc, time::Duration};

use base64::Engine;
use serde_json::{Value, json};

use super::{Phase, Question, client::Services, rules};
use crate::{
    catalog::Resource,
    json::{at, int, list, set, text},
    registry::{NAMESPACES, Registry},
    status::{ApiError, Cause},
    user::User,
};

const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";
/// What the API takes when a webhook does not say.
const TIMEOUT_SECONDS: i64 = 10;

/// What a request is about, for its webhooks.
pub(crate) struct Attributes<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    pub(crate) resource: &'a Resource,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: String,
    pub(crate) user: &'a User,
    pub(crate) dry_run: bool,
    /// The `…Options` object of the request.
    pub(crate) options: Value,
}

/// The webhooks of one request.
pub(crate) struct Hooks {
    mutating: Vec<Value>,
    validating: Vec<Value>,
}

/// Why a call gave no opinion.
enum Failure {
    /// The webhook could not be asked, or answered nonsense: its policy decides.
    Call(String),
    /// The request is refused.
    Refused(ApiError),
}

/// An opinion that lets the request through.
struct Opinion {
    patch: Option<Vec<u8>>,
    warnings: Vec<String>,
}

impl Hooks {
    /// Whether there are any webhooks.
    pub(crate) fn configured(registry: &Registry) -> bool {
        [MUTATING, VALIDATING].iter().any(|table| !registry.store.list(table, None).0.is_empty())
    }

    /// The webhooks whose rules are about this request; `None` when there are none.
    pub(crate) fn of(registry: &Registry, attributes: &Attributes<'_>) -> Option<Self> {
        let resource = attributes.resource;
        // Nobody decides about those who decide, and what is only asked is not admitted.
        let exempt = resource.group == "admissionregistration.k8s.io"
            || resource.group == "authorization.k8s.io"
            || resource.group == "authentication.k8s.io";
        if exempt && resource.custom.is_none() {
            return None;
        }
        let of = |table: &str| {
            let configurations = registry.store.list(table, None).0;
            let hooks = configurations.iter().flat_map(|stored| list(&stored.value, &["webhooks"]).to_vec());
            hooks.filter(|hook| version_for(registry, hook, attributes).is_some()).collect::<Vec<_>>()
        };
        let hooks = Self { mutating: of(MUTATING), validating: of(VALIDATING) };
        (!hooks.mutating.is_empty() || !hooks.validating.is_empty()).then_some(hooks)
    }

    /// Puts a question to the webhooks. What they warn of is added to `warnings`.
    pub(crate) async fn ask(
        &self,
        registry: &Registry,
        services: &Services,
        attributes: &Attributes<'_>,
        question: &Question,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, ApiError> {
        match question.phase {
            Phase::Mutate => self.mutate(registry, services, attributes, question, warnings).await,
            Phase::Validate => {
                self.validate(registry, services, attributes, question, warnings).await?;
                Ok(question.object.clone())
            }
        }
    }

    async fn mutate(
        &self,
        registry: &Registry,
        services: &Services,
        attributes: &Attributes<'_>,
        question: &Question,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, ApiError> {
        let mut object = question.object.clone();
        // Those that want to see what others changed after them.
        let (mut seen, mut again) = (Vec::new(), Vec::new());
        for round in 0..2 {
            for (index, hook) in self.mutating.iter().enumerate() {
                if round == 1 && !again.contains(&index) {
                    continue;
                }
                let state = (object.as_ref(), question.old.as_ref());
                let Some(call) = Call::prepare(registry, attributes, hook, state)? else { continue };
                let changed = match call.run(registry, services, attributes, true).await {
                    Ok(opinion) => {
                        warnings.extend(opinion.warnings);
                        let patched = patched(registry, &call, object.as_ref(), opinion.patch.as_deref())?;
                        patched.is_some_and(|patched| {
                            let changed = object.as_ref() != Some(&patched);
                            object = Some(patched);
                            changed
                        })
                    }
                    Err(failure) => {
                        call.judge(failure)?;
                        false
                    }
                };
                if changed && round == 0 {
                    again.append(&mut seen);
                }
                if text(hook, &["reinvocationPolicy"]) == "IfNeeded" {
                    seen.push(index);
                }
            }
            if again.is_empty() {
                break;
            }
        }
        Ok(object)
    }

    async fn validate(
        &self,
        registry: &Registry,
        services: &Services,
        attributes: &Attributes<'_>,
        question: &Question,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let state = (question.object.as_ref(), question.old.as_ref());
        let mut calls = Vec::new();
        for hook in &self.validating {
            calls.extend(Call::prepare(registry, attributes, hook, state)?);
        }
        let running = calls.iter().map(|call| call.run(registry, services, attributes, false));
        let outcomes = futures::future::join_all(running).await;
        for (call, outcome) in calls.iter().zip(outcomes) {
            match outcome {
                Ok(opinion) => warnings.extend(opinion.warnings),
                Err(failure) => call.judge(failure)?,
            }
        }
        Ok(())
    }
}

/// The version of the resource in which a webhook wants to see the object.
fn version_for(registry: &Registry, hook: &Value, attributes: &Attributes<'_>) -> Option<Option<Arc<Resource>>> {
    rules::version_for(registry, list(hook, &["rules"]), text(hook, &["matchPolicy"]), attributes)
}

/// A state as somebody sees it who wants another version of the resource.
pub(super) struct Seen<'a> {
    resource: &'a Resource,
    pub(super) object: Option<Value>,
    pub(super) old: Option<Value>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(
        registry: &Registry,
        attributes: &Attributes<'a>,
        version: Option<&'a Resource>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Self {
        let shown = |state: Option<&Value>| {
            state.map(|state| match version {
                Some(version) if attributes.subresource != "scale" => registry.converted(version, state),
                _ => state.clone(),
            })
        };
        Self { resource: version.unwrap_or(attributes.resource), object: shown(object), old: shown(old) }
    }

    /// The `AdmissionRequest`, and its uid.
    pub(super) fn request(&self, attributes: &Attributes<'_>) -> (String, Value) {
        let place = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = json!({
            "uid": uid,
            "kind": rules::kind_of(self.resource, attributes.subresource),
            "resource": place(self.resource),
            "requestKind": rules::kind_of(attributes.resource, attributes.subresource),
            "requestResource": place(attributes.resource),
            "operation": attributes.operation,
            "userInfo": attributes.user.info(),
            "object": self.object,
            "oldObject": self.old,
            "dryRun": attributes.dry_run,
            "options": attributes.options,
        });
        // A namespace is in itself.
        let namespace =
            if attributes.resource.is("", "Namespace") { attributes.name.as_str() } else { attributes.namespace };
        for (field, value) in [
            ("name", attributes.name.as_str()),
            ("namespace", namespace),
            ("subResource", attributes.subresource),
            ("requestSubResource", attributes.subresource),
        ] {
            if !value.is_empty() {
                set(&mut request, &[field], json!(value));
            }
        }
        (uid, request)
    }
}

/// One call of one webhook.
struct Call<'a> {
    hook: &'a Value,
    uid: String,
    review: Value,
    /// The resource in the version that the webhook sees, when it is another than the request's.
    version: Option<Arc<Resource>>,
}

impl<'a> Call<'a> {
    /// `None` when the webhook does not want to see this state.
    fn prepare(
        registry: &Registry,
        attributes: &Attributes<'_>,
        hook: &'a Value,
        (object, old): (Option<&Value>, Option<&Value>),
    ) -> Result<Option<Self>, ApiError> {
        let Some(version) = version_for(registry, hook, attributes) else { return Ok(None) };
        let namespace = registry.store.get(NAMESPACES, "", attributes.namespace);
        let namespace = namespace.as_ref().map(|stored| &stored.value);
        if !rules::selects(hook, attributes.resource, namespace, object, old) {
            return Ok(None);
        }
        let seen = Seen::new(registry, attributes, version.as_deref(), object, old);
        let (uid, request) = seen.request(attributes);
        if !rules::conditions_hold(hook, attributes, &request, seen.object.as_ref(), seen.old.as_ref())? {
            return Ok(None);
        }
        let version_wanted = list(hook, &["admissionReviewVersions"]).iter().filter_map(Value::as_str);
        let spoken = version_wanted.into_iter().find(|version| matches!(*version, "v1" | "v1beta1")).unwrap_or("v1");
        let api_version = format!("admission.k8s.io/{spoken}");
        let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request});
        Ok(Some(Self { hook, uid, review, version }))
    }

    fn name(&self) -> &'a str {
        text(self.hook, &["name"])
    }

    async fn run(
        &self,
        registry: &Registry,
        services: &Services,
        attributes: &Attributes<'_>,
        mutating: bool,
    ) -> Result<Opinion, Failure> {
        let name = self.name();
        if attributes.dry_run && !matches!(text(self.hook, &["sideEffects"]), "None" | "NoneOnDryRun") {
            let why = format!("admission webhook {name:?} does not support dry run");
            return Err(Failure::Refused(ApiError::bad_request(why)));
        }
        let seconds = int(self.hook, &["timeoutSeconds"]).unwrap_or(TIMEOUT_SECONDS).clamp(1, 30).unsigned_abs();
        let config = self.hook.get("clientConfig").unwrap_or(&Value::Null);
        let calling = services.call(registry, config, &self.review, Duration::from_secs(seconds));
        let answer = calling.await.map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        let answer = self.verify(&answer, mutating).map_err(Failure::Call)?;
        let warnings = list(answer, &["warnings"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if answer.get("allowed") != Some(&Value::Bool(true)) {
            return Err(Failure::Refused(refusal(name, answer.get("status"))));
        }
        let patch = at(answer, &["patch"]).and_then(Value::as_str).filter(|patch| mutating && !patch.is_empty());
        let patch = patch.map(|patch| base64::engine::general_purpose::STANDARD.decode(patch)).transpose();
        let patch = patch.map_err(|error| {
            Failure::Call(format!("failed to call webhook: illegal base64 data in response.patch: {error}"))
        })?;
        Ok(Opinion { patch, warnings })
    }

    /// The `response` of a review that is one.
    fn verify<'r>(&self, answer: &'r Value, mutating: bool) -> Result<&'r Value, String> {
        let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
        let asked = text(&self.review, &["apiVersion"]);
        let (api_version, kind) = (text(answer, &["apiVersion"]), text(answer, &["kind"]));
        if kind != "AdmissionReview" || api_version != asked {
            let short = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
            return Err(format!(
                "failed to call webhook: converting ({}.{kind}) to ({}.AdmissionReview): unknown conversion",
                short(api_version),
                short(asked),
            ));
        }
        let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
            return invalid("webhook response was absent".to_owned());
        };
        let old_form = asked == "admission.k8s.io/v1beta1";
        let uid = text(response, &["uid"]);
        if uid != self.uid && !old_form {
            return invalid(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let patch = !text(response, &["patch"]).is_empty();
        let patch_type = response.get("patchType").filter(|given| !given.is_null());
        let why = match (mutating, patch, patch_type) {
            _ if old_form => None,
            (false, true, _) => Some("validating webhook may not return response.patch"),
            (false, _, Some(_)) => Some("validating webhook may not return response.patchType"),
            (true, true, None) => Some("webhook returned response.patch but not response.patchType"),
            (true, false, Some(_)) => Some("webhook returned response.patchType but not response.patch"),
            _ => None,
        };
        if let Some(why) = why {
            return invalid(why.to_owned());
        }
        if let Some(given) = patch_type.filter(|given| *given != "JSONPatch") {
            return Err(format!("unsupported patch type {given}"));
        }
        Ok(response)
    }

    /// What a failed call means for the request.
    fn judge(&self, failure: Failure) -> Result<(), ApiError> {
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::Call(why) if text(self.hook, &["failurePolicy"]) == "Ignore" => {
                tracing::warn!(webhook = self.name(), why, "a webhook could not be asked and is ignored");
                Ok(())
            }
            Failure::Call(why) => Err(internal(format!("failed calling webhook {:?}: {why}", self.name()))),
        }
    }
}

/// An internal error that names its cause, as errors around webhooks do.
fn internal(why: String) -> ApiError {
    ApiError::internal(why.clone()).with_cause(Cause { reason: "", message: why, field: String::new() })
}

/// The object as a webhook changed it; `None` when it has no patch.
fn patched(
    registry: &Registry,
    call: &Call<'_>,
    object: Option<&Value>,
    patch: Option<&[u8]>,
) -> Result<Option<Value>, ApiError> {
    let Some(patch) = patch else { return Ok(None) };
    let operations = serde_json::from_slice::<Value>(patch).ok().filter(Value::is_array);
    let Some(operations) = operations else {
        call.judge(Failure::Call("received undecodable patch in webhook response: invalid JSON Patch".to_owned()))?;
        return Ok(None);
    };
    if operations.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let Some(object) = object else {
        return Err(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            call.name()
        )));
    };
    let mut changed = match &call.version {
        Some(version) => registry.converted(version, object),
        None => object.clone(),
    };
    crate::patch::json(&mut changed, patch).map_err(|error| internal(error.message))?;
    if call.version.is_some()
        && let Some(version) = registry.catalog.by_kind(text(object, &["apiVersion"]), text(object, &["kind"]))
    {
        changed = registry.converted(&version, &changed);
    }
    Ok(Some(changed))
}

/// A refusal as the API passes it on: its Status, with who refused.
fn refusal(name: &str, status: Option<&Value>) -> ApiError {
    let nothing = Value::Null;
    let status = status.unwrap_or(&nothing);
    let code = int(status, &["code"]).and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
    let (message, reason) = (text(status, &["message"]), text(status, &["reason"]));
    let said = format!("admission webhook {name:?} denied the request");
    let message = match (message, reason) {
        ("", "") => format!("{said} without explanation"),
        ("", reason) => format!("{said}: {reason}"),
        (message, _) => format!("{said}: {message}"),
    };
    let code = if (400..600).contains(&code) { code } else { 400 };
    let mut error = ApiError::new(code, reason.to_owned(), message);
    let part = |field: &str| text(status, &["details", field]).to_owned();
    error.details.name = part("name");
    error.details.group = part("group");
    error.details.kind = part("kind");
    error.details.retry_after_seconds =
        int(status, &["details", "retryAfterSeconds"]).and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
    error.details.causes = list(status, &["details", "causes"])
        .iter()
        .take(100)
        .map(|cause| Cause {
            reason: known_reason(text(cause, &["reason"])),
            message: text(cause, &["message"]).to_owned(),
            field: text(cause, &["field"]).to_owned(),
        })
        .collect();
    error
}

/// The reasons of causes that the API has; others are left out.
fn known_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 12] = [
        "FieldValueNotFound",
        "FieldValueRequired",
        "FieldValueDuplicate",
        "FieldValueInvalid",
        "FieldValueNotSupported",
        "FieldValueForbidden",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
        "InternalError",
        "UnexpectedServerResponse",
        "FieldManagerConflict",
    ];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or_default()
}
