//! ValidatingAdmissionPolicies: expressions in CEL that refuse, or warn of, what clients write.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    hooks::{Attributes, Seen},
    rules,
};
use crate::{
    cel::{self, Bound, Expression, Failure, Given, Variable},
    json::{at, list, text},
    registry::{NAMESPACES, Registry},
    selector::label_selector_matches,
    status::{ApiError, Cause},
    store::Stored,
};

const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings";
/// Objects that one binding takes parameters from.
const PARAMETERS_MAX: usize = 100;

/// Whether any policy is bound.
pub(crate) fn configured(registry: &Registry) -> bool {
    !registry.store.list(BINDINGS, None).0.is_empty()
}

/// What one expression found.
struct Violation {
    message: String,
    reason: String,
}

impl Violation {
    fn new(message: String) -> Self {
        Self { message, reason: String::new() }
    }
}

/// Asks all policies that are bound. What they only warn of is added to `warnings`.
pub(crate) fn check(
    registry: &Registry,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    if attributes.resource.group == "admissionregistration.k8s.io" {
        return Ok(());
    }
    let bindings = registry.store.list(BINDINGS, None).0;
    let mut denied = Vec::<(String, String)>::new();
    for binding in &bindings {
        let Some(policy) = registry.store.get(POLICIES, "", text(&binding.value, &["spec", "policyName"])) else {
            continue;
        };
        let case = Case { registry, attributes, policy: &policy.value, binding: &binding.value };
        let violations = case.violations(object, old)?;
        let (policy, binding) = (name_of(&policy), name_of(binding));
        let actions = list(case.binding, &["spec", "validationActions"]);
        for violation in violations {
            let said = &violation.message;
            if actions.iter().any(|action| action == "Warn") {
                warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {said}"
                ));
            }
            if actions.iter().any(|action| action == "Deny") {
                let message =
                    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {said}");
                denied.push((message, violation.reason));
            }
        }
    }
    let Some((first, reason)) = denied.first() else { return Ok(()) };
    let mut error = ApiError::forbidden(attributes.resource.about(), &attributes.name, first);
    (error.code, error.reason) = match reason.as_str() {
        "Forbidden" => (403, "Forbidden".into()),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge".into()),
        "Unauthorized" => (401, "Unauthorized".into()),
        _ => (422, "Invalid".into()),
    };
    let causes = denied.iter().map(|(message, _)| Cause { reason: "", message: message.clone(), field: String::new() });
    error.details.causes = causes.collect();
    Err(error)
}

fn name_of(stored: &Arc<Stored>) -> String {
    text(&stored.value, &["metadata", "name"]).to_owned()
}

/// One binding of one policy, for one request.
struct Case<'a> {
    registry: &'a Registry,
    attributes: &'a Attributes<'a>,
    policy: &'a Value,
    binding: &'a Value,
}

impl Case<'_> {
    fn violations(&self, object: Option<&Value>, old: Option<&Value>) -> Result<Vec<Violation>, ApiError> {
        let spec = self.policy.get("spec").unwrap_or(&Value::Null);
        let nothing = json!({});
        let constraints = spec.get("matchConstraints").unwrap_or(&nothing);
        let Some(version) = self.matches(constraints, object, old) else { return Ok(Vec::new()) };
        let narrower = at(self.binding, &["spec", "matchResources"]).unwrap_or(&nothing);
        let all = list(narrower, &["resourceRules"]).is_empty();
        if !(all && self.is_selected(narrower, object, old) || self.matches(narrower, object, old).is_some()) {
            return Ok(Vec::new());
        }
        let seen = Seen::new(self.registry, self.attributes, version.as_deref(), object, old);
        let (_, request) = seen.request(self.attributes);
        let (object, old) = (seen.object.as_ref(), seen.old.as_ref());
        if !rules::conditions_hold(spec, self.attributes, &request, object, old)? {
            return Ok(Vec::new());
        }
        let parameters = match self.parameters(spec) {
            Ok(Some(parameters)) => parameters,
            Ok(None) => return Ok(Vec::new()),
            Err(why) if text(spec, &["failurePolicy"]) == "Ignore" => {
                tracing::debug!(why, "a policy has no parameters and is ignored");
                return Ok(Vec::new());
            }
            Err(why) => return Ok(vec![Violation::new(format!("failed to configure binding: {why}"))]),
        };
        let namespace = self.registry.store.get(NAMESPACES, "", self.attributes.namespace);
        let mut request = request;
        if let Some(map) = request.as_object_mut() {
            map.remove("object");
            map.remove("oldObject");
        }
        let evaluate = || {
            let mut budget = cel::BUDGET;
            let mut found = Vec::new();
            let known = variables(spec);
            for parameter in &parameters {
                let plain = |name, value: Option<&'_ Value>| (name, value.cloned().unwrap_or(Value::Null));
                let documents = [
                    plain("object", object),
                    plain("oldObject", old),
                    plain("request", Some(&request)),
                    plain("params", parameter.as_ref().map(|stored| &stored.value)),
                    plain("namespaceObject", namespace.as_ref().map(|stored| &stored.value)),
                ];
                let bound = documents.each_ref().map(|(name, value)| Variable { name, value: Bound::Plain(value) });
                for validation in list(spec, &["validations"]) {
                    found.extend(violation(validation, spec, &known, &bound, &mut budget));
                }
            }
            found
        };
        let failed = || vec![Violation::new("the expressions could not be checked".to_owned())];
        Ok(cel::on_deep_stack(evaluate).unwrap_or_else(failed))
    }

    /// Whether the request is of the kind that is wanted; the version in which it is.
    fn matches(
        &self,
        wanted: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Option<Option<Arc<crate::catalog::Resource>>> {
        if !self.is_selected(wanted, object, old) {
            return None;
        }
        let policy = text(wanted, &["matchPolicy"]);
        rules::version_for(self.registry, list(wanted, &["resourceRules"]), policy, self.attributes)
    }

    fn is_selected(&self, wanted: &Value, object: Option<&Value>, old: Option<&Value>) -> bool {
        let namespace = self.registry.store.get(NAMESPACES, "", self.attributes.namespace);
        let namespace = namespace.as_ref().map(|stored| &stored.value);
        let excluded = rules::wants(list(wanted, &["excludeResourceRules"]), self.attributes, self.attributes.resource);
        !excluded && rules::selects(wanted, self.attributes.resource, namespace, object, old)
    }

    /// The objects that a binding gives to its policy, one by one; `None` when the policy is then not asked.
    fn parameters(&self, spec: &Value) -> Result<Option<Vec<Option<Arc<Stored>>>>, String> {
        let (kind, reference) = (spec.get("paramKind"), at(self.binding, &["spec", "paramRef"]));
        let (Some(kind), Some(reference)) = (kind.filter(|k| k.is_object()), reference.filter(|r| r.is_object()))
        else {
            return Ok(Some(vec![None]));
        };
        let (api_version, kind) = (text(kind, &["apiVersion"]), text(kind, &["kind"]));
        let resource = self.registry.catalog.by_kind(api_version, kind);
        let resource =
            resource.ok_or_else(|| format!("failed to find resource referenced by paramKind: \'{kind}\'"))?;
        let namespace = match (resource.namespaced, text(reference, &["namespace"])) {
            (false, _) => "",
            (true, "") => self.attributes.namespace,
            (true, given) => given,
        };
        let found = match text(reference, &["name"]) {
            "" => {
                let selector = reference.get("selector").unwrap_or(&Value::Null);
                let all = self.registry.store.list(&resource.table, Some(namespace)).0;
                all.into_iter().filter(|stored| label_selector_matches(selector, &stored.value)).collect()
            }
            name => self.registry.store.get(&resource.table, namespace, name).into_iter().collect::<Vec<_>>(),
        };
        let found = found.iter().take(PARAMETERS_MAX).map(|stored| Some(self.registry.view(&resource, stored)));
        let found = found.collect::<Vec<_>>();
        match text(reference, &["parameterNotFoundAction"]) {
            _ if !found.is_empty() => Ok(Some(found)),
            "Deny" => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
            _ => Ok(None),
        }
    }
}

/// The variables of a policy, each with those before it in their places. One that cannot be read is left out, and is then
/// not known where it is used.
fn variables(spec: &Value) -> HashMap<String, Expression> {
    let mut known = HashMap::new();
    for variable in list(spec, &["variables"]) {
        let parsed = Expression::parse(text(variable, &["expression"])).ok();
        if let Some(expression) = parsed.and_then(|expression| expression.with_variables(&known)) {
            known.insert(text(variable, &["name"]).to_owned(), expression);
        }
    }
    known
}

fn violation(
    validation: &Value,
    spec: &Value,
    known: &HashMap<String, Expression>,
    bound: &[Variable<'_>],
    budget: &mut u64,
) -> Option<Violation> {
    let mut evaluate = |source: &str| {
        let expression = Expression::parse(source).map_err(Failure::Error)?;
        expression.with_variables(known).ok_or(Failure::Cost)?.evaluate(bound, budget)
    };
    let source = text(validation, &["expression"]).trim();
    let why = match evaluate(source) {
        Ok(Given::Bool(true)) => return None,
        Ok(_) => {
            let message = text(validation, &["message"]).trim();
            let given = match text(validation, &["messageExpression"]).trim() {
                "" => None,
                expression => match evaluate(expression) {
                    Ok(Given::Text(said)) if !said.trim().is_empty() => Some(said.trim().to_owned()),
                    _ => None,
                },
            };
            let plain = if message.is_empty() { format!("failed expression: {source}") } else { message.to_owned() };
            let reason = text(validation, &["reason"]).to_owned();
            return Some(Violation { message: given.unwrap_or(plain), reason });
        }
        Err(Failure::Cost) => {
            "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
        }
        Err(Failure::Error(why)) => format!("expression \'{source}\' resulted in error: {why}"),
    };
    (text(spec, &["failurePolicy"]) != "Ignore").then(|| Violation::new(why))
}
