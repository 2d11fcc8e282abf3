//! A write with its webhooks: tries and questions in turn.

use serde_json::{Value, json};

use super::Call;
use crate::{
    admission::{Attributes, Gate, Hooks, Phase, ROUNDS_MAX, policies},
    catalog::Resource,
    rbac,
    registry::{Outcome, random_suffix},
    status::ApiError,
};

/// What is written.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) resource: &'a Resource,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Call {
    /// Does a write, and asks the webhooks when it comes to their turn.
    pub(super) async fn admitted(
        &self,
        subject: Subject<'_>,
        dry_run: bool,
        run: impl Fn(Option<&Gate>) -> Result<Outcome, ApiError>,
    ) -> Result<Outcome, ApiError> {
        let registry = self.registry();
        let user = self.user()?;
        // Rights are given like objects are admitted: with the object in sight.
        let rights = self.shared.authority.enforced && subject.resource.group == "rbac.authorization.k8s.io";
        if !rights && !Hooks::configured(registry) && !policies::configured(registry) {
            return run(None);
        }
        let gate = Gate::new(random_suffix());
        let mut warnings = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let outcome = run(Some(&gate));
            let Some(question) = gate.question() else {
                return outcome.map(|mut outcome| {
                    outcome.warnings.append(&mut warnings);
                    outcome
                });
            };
            if let (true, Phase::Mutate, Some(object)) = (rights, question.phase, &question.object) {
                rbac::check_escalation(registry, user, subject.resource, question.old.as_ref(), object)?;
            }
            let operation = match (&question.object, question.revision) {
                (None, _) => "DELETE",
                (Some(_), 0) => "CREATE",
                (Some(_), _) => "UPDATE",
            };
            let attributes = Attributes {
                operation,
                resource: subject.resource,
                subresource: subject.subresource,
                namespace: subject.namespace,
                name: question.name.clone(),
                user,
                dry_run,
                options: self.options_object(),
            };
            if question.phase == Phase::Validate {
                let (object, old) = (question.object.as_ref(), question.old.as_ref());
                policies::check(registry, &attributes, object, old, &mut warnings)?;
            }
            let answer = match Hooks::of(registry, &attributes) {
                Some(hooks) => {
                    hooks.ask(registry, &self.shared.services, &attributes, &question, &mut warnings).await?
                }
                None => question.object.clone(),
            };
            gate.answer(&question, answer);
        }
        Err(ApiError::modified(subject.resource.about(), subject.name))
    }

    /// The `…Options` that the parameters of the request are.
    fn options_object(&self) -> Value {
        let kind = match self.method {
            http::Method::POST => "CreateOptions",
            http::Method::PUT => "UpdateOptions",
            http::Method::PATCH => "PatchOptions",
            _ => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        for field in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if !self.query.get(field).is_empty() {
                crate::json::set(&mut options, &[field], json!(self.query.get(field)));
            }
        }
        if self.query.has("dryRun") {
            crate::json::set(&mut options, &["dryRun"], json!([self.query.get("dryRun")]));
        }
        if self.query.flag("force") {
            crate::json::set(&mut options, &["force"], json!(true));
        }
        options
    }
}
