//! What a webhook configuration must be, with the texts of the API.

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    cel::{
        self, Expression,
        check::{self, Type},
    },
    json::{list, text},
    status::Cause,
};

const CONDITIONS_MAX: usize = 64;
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What is wrong with a configuration of webhooks, a policy or a binding of one; nothing for other kinds.
pub(crate) fn check(resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.is("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") {
        return policy(object);
    }
    if resource.is("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") {
        return binding(object);
    }
    let mutating = resource.is("admissionregistration.k8s.io", "MutatingWebhookConfiguration");
    if !mutating && !resource.is("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (index, hook) in list(object, &["webhooks"]).iter().enumerate() {
        let path = format!("webhooks[{index}]");
        webhook(hook, &path, mutating, &mut causes);
        let name = text(hook, &["name"]);
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &json!(name)));
        }
    }
    causes
}

fn one_of(object: &Value, field: &str, path: &str, allowed: &[&str], causes: &mut Vec<Cause>) {
    if let Some(given) = object.get(field).filter(|given| !given.is_null() && !allowed.iter().any(|one| given == one)) {
        let allowed = allowed.iter().map(|one| json!(one)).collect::<Vec<_>>();
        causes.push(Cause::not_supported(format!("{path}.{field}"), given, &allowed));
    }
}

fn webhook(hook: &Value, path: &str, mutating: bool, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let name = text(hook, &["name"]);
    if name.is_empty() {
        causes.push(Cause::required(at("name"), ""));
    } else if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        causes.push(Cause::invalid(at("name"), &json!(name), why));
    }
    for (index, rule) in list(hook, &["rules"]).iter().enumerate() {
        operations(rule, &format!("{path}.rules[{index}]"), causes);
    }
    one_of(hook, "failurePolicy", path, &["Fail", "Ignore"], causes);
    one_of(hook, "matchPolicy", path, &["Equivalent", "Exact"], causes);
    if hook.get("sideEffects").is_none_or(Value::is_null) {
        causes.push(Cause::required(at("sideEffects"), "must specify one of None, NoneOnDryRun"));
    }
    one_of(hook, "sideEffects", path, &["None", "NoneOnDryRun"], causes);
    if let Some(seconds) = hook.get("timeoutSeconds").filter(|s| s.as_i64().is_some_and(|s| !(1..=30).contains(&s))) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(at("timeoutSeconds"), seconds, why));
    }
    if mutating {
        one_of(hook, "reinvocationPolicy", path, &["IfNeeded", "Never"], causes);
    }
    client(hook.get("clientConfig").unwrap_or(&Value::Null), &at("clientConfig"), causes);
    conditions(list(hook, &["matchConditions"]), &at("matchConditions"), causes);
    versions(list(hook, &["admissionReviewVersions"]), &at("admissionReviewVersions"), causes);
}

fn operations(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut wildcards = |field: &str, what: &str| {
        let (given, at) = (list(rule, &[field]), format!("{path}.{field}"));
        if given.is_empty() {
            causes.push(Cause::required(at, ""));
        } else if given.len() > 1 && given.iter().any(|item| item == "*") {
            let why = format!("if '*' is present, must not specify other {what}");
            causes.push(Cause::invalid(at, &json!(given), &why));
        }
    };
    wildcards("operations", "operations");
    wildcards("apiGroups", "API groups");
    wildcards("apiVersions", "API versions");
    for (index, operation) in list(rule, &["operations"]).iter().enumerate() {
        const KNOWN: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        if !KNOWN.iter().any(|known| operation == known) {
            let allowed = KNOWN.map(|known| json!(known));
            causes.push(Cause::not_supported(format!("{path}.operations[{index}]"), operation, &allowed));
        }
    }
    let (resources, at) = (list(rule, &["resources"]), format!("{path}.resources"));
    let is = |wanted: &str| resources.iter().any(|item| item == wanted);
    let plain = resources.iter().filter_map(Value::as_str).any(|item| item != "*" && !item.contains('/'));
    if resources.is_empty() {
        causes.push(Cause::required(at, ""));
    } else if resources.len() > 1 && is("*/*") {
        causes.push(Cause::invalid(at, &json!(resources), "if '*/*' is present, must not specify other resources"));
    } else if is("*") && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(at, &json!(resources), why));
    }
    one_of(rule, "scope", path, &["*", "Cluster", "Namespaced"], causes);
}

fn client(config: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = |field: &str| config.get(field).filter(|value| !value.is_null());
    let (url, service) = (given("url"), given("service"));
    match (url, service) {
        (None, None) | (Some(_), Some(_)) => {
            causes.push(Cause::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => address(url.as_str().unwrap_or_default(), &format!("{path}.url"), causes),
        (None, Some(service)) => {
            for field in ["name", "namespace"] {
                if text(service, &[field]).is_empty() {
                    causes.push(Cause::required(format!("{path}.service.{field}"), ""));
                }
            }
            if let Some(port) = service.get("port").filter(|p| p.as_i64().is_some_and(|p| !(1..=65535).contains(&p))) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("{path}.service.port"), port, why));
            }
            let place = text(service, &["path"]);
            if !place.is_empty() && !place.starts_with('/') {
                let why = "must start with a '/'";
                causes.push(Cause::invalid(format!("{path}.service.path"), &json!(place), why));
            }
        }
    }
}

fn address(url: &str, path: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse = |value: &str, why: String| causes.push(Cause::invalid(path, &json!(value), &why));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        refuse(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() || scheme.is_empty() {
        refuse("", format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        refuse(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn conditions(conditions: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if conditions.len() > CONDITIONS_MAX {
        let message = format!("Too many: {}: must have at most {CONDITIONS_MAX} items", conditions.len());
        causes.push(Cause { reason: "FieldValueTooMany", message, field: path.to_owned() });
        return;
    }
    if conditions.is_empty() {
        return;
    }
    let said = cel::on_deep_stack(|| {
        let sources = conditions.iter().map(|condition| text(condition, &["expression"]).trim());
        sources.map(|source| compile(source, &Type::Bool, &[])).collect::<Vec<_>>()
    });
    let mut said = said.unwrap_or_default().into_iter();
    let mut names = std::collections::HashSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        let (name, source) = (text(condition, &["name"]), text(condition, &["expression"]).trim());
        let why = said.next().flatten();
        if source.is_empty() {
            causes.push(Cause::required(at("expression"), ""));
        } else if let Some(why) = why {
            causes.push(Cause::invalid(at("expression"), &json!(source), &why));
        }
        if name.is_empty() {
            causes.push(Cause::required(at("name"), ""));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(at("name"), &json!(name)));
        }
    }
}

/// The `AdmissionRequest` as conditions see it, and the users in it.
static REQUEST: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
    let words = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"})));
        json!({"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()})
    };
    let (kind, resource) = (words(&["group", "version", "kind"]), words(&["group", "version", "resource"]));
    let mut user = words(&["username", "uid"]);
    let many = json!({"type": "array", "items": {"type": "string"}});
    user["properties"]["groups"] = many.clone();
    user["properties"]["extra"] = json!({"type": "object", "additionalProperties": many});
    let mut request = words(&["uid", "subResource", "requestSubResource", "name", "namespace", "operation"]);
    for (field, schema) in [
        ("kind", &kind),
        ("requestKind", &kind),
        ("resource", &resource),
        ("requestResource", &resource),
        ("userInfo", &user),
    ] {
        request["properties"][field] = schema.clone();
    }
    request["properties"]["dryRun"] = json!({"type": "boolean"});
    request["properties"]["options"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    request
});

/// What a compiler says of an expression that should give this type; `more` are names that it may use beside the usual ones.
fn compile(source: &str, wanted: &Type<'_>, more: &[&str]) -> Option<String> {
    let expression = match Expression::parse(source) {
        Ok(expression) => expression,
        Err(why) => return Some(format!("compilation failed: {why}")),
    };
    let request = check::of_schema(&REQUEST, "kubernetes.AdmissionRequest", false);
    let names = [("object", Type::Dyn), ("oldObject", Type::Dyn), ("request", request), ("authorizer", Type::Dyn)];
    let names = names.into_iter().chain(more.iter().map(|name| (*name, Type::Dyn)));
    let (given, errors) = check::check(&expression, &names.collect());
    match given {
        _ if !errors.is_empty() => Some(format!("compilation failed: {}", errors.join("\n"))),
        Type::Dyn => None,
        given if given == *wanted => None,
        other => Some(format!("must evaluate to {} but got {}", wanted.show(), other.show())),
    }
}

/// Expressions of one policy that are compiled.
const EXPRESSIONS_MAX: usize = 500;

fn policy(object: &Value) -> Vec<Cause> {
    const NAMES: [&str; 3] = ["params", "namespaceObject", "variables"];
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    one_of(spec, "failurePolicy", "spec", &["Fail", "Ignore"], &mut causes);
    let constraints = "spec.matchConstraints";
    if spec.get("matchConstraints").is_none_or(|given| !given.is_object()) {
        causes.push(Cause::required(constraints, ""));
    }
    let rules = list(spec, &["matchConstraints", "resourceRules"]);
    if rules.is_empty() && spec.get("matchConstraints").is_some_and(Value::is_object) {
        causes.push(Cause::required(format!("{constraints}.resourceRules"), ""));
    }
    for (index, rule) in rules.iter().enumerate() {
        operations(rule, &format!("{constraints}.resourceRules[{index}]"), &mut causes);
    }
    conditions(list(spec, &["matchConditions"]), "spec.matchConditions", &mut causes);
    let (variables, validations) = (list(spec, &["variables"]), list(spec, &["validations"]));
    if variables.len() + validations.len() > EXPRESSIONS_MAX {
        causes.push(Cause::forbidden("spec.validations", "has too many expressions"));
        return causes;
    }
    let found = cel::on_deep_stack(|| {
        let mut causes = Vec::new();
        for (index, variable) in variables.iter().enumerate() {
            let at = |field: &str| format!("spec.variables[{index}].{field}");
            let source = text(variable, &["expression"]).trim();
            if text(variable, &["name"]).is_empty() {
                causes.push(Cause::required(at("name"), "name is not specified"));
            }
            if source.is_empty() {
                causes.push(Cause::required(at("expression"), "expression is not specified"));
            } else if let Some(why) = compile(source, &Type::Dyn, &NAMES).filter(|why| why.starts_with("comp")) {
                causes.push(Cause::invalid(at("expression"), &json!(source), &why));
            }
        }
        for (index, validation) in validations.iter().enumerate() {
            let at = |field: &str| format!("spec.validations[{index}].{field}");
            let (source, message) =
                (text(validation, &["expression"]).trim(), text(validation, &["messageExpression"]).trim());
            if source.is_empty() {
                causes.push(Cause::required(at("expression"), "expression is not specified"));
            } else if let Some(why) = compile(source, &Type::Bool, &NAMES) {
                causes.push(Cause::invalid(at("expression"), &json!(source), &why));
            }
            if let Some(why) = (!message.is_empty()).then(|| compile(message, &Type::Text, &NAMES)).flatten() {
                causes.push(Cause::invalid(at("messageExpression"), &json!(message), &why));
            }
            let path = format!("spec.validations[{index}]");
            one_of(validation, "reason", &path, &["Forbidden", "Invalid", "RequestEntityTooLarge"], &mut causes);
        }
        causes
    });
    causes.extend(found.unwrap_or_default());
    if validations.is_empty() && list(spec, &["auditAnnotations"]).is_empty() {
        let why = "validations or auditAnnotations must be non-empty";
        causes.push(Cause::required("spec.validations", why));
    }
    causes
}

fn binding(object: &Value) -> Vec<Cause> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    if let Some(reference) = spec.get("paramRef").filter(|reference| reference.is_object()) {
        let (name, selector) = (!text(reference, &["name"]).is_empty(), reference.get("selector").is_some());
        match (name, selector) {
            (false, false) => {
                causes.push(Cause::required("spec.paramRef", "one of name or selector must be specified"));
            }
            (true, true) => {
                let why = "name and selector are mutually exclusive";
                causes.push(Cause::forbidden("spec.paramRef.name", why));
            }
            _ => {}
        }
        if text(reference, &["parameterNotFoundAction"]).is_empty() {
            causes.push(Cause::required("spec.paramRef.parameterNotFoundAction", ""));
        }
        one_of(reference, "parameterNotFoundAction", "spec.paramRef", &["Allow", "Deny"], &mut causes);
    }
    let actions = list(spec, &["validationActions"]);
    if actions.is_empty() {
        causes.push(Cause::required("spec.validationActions", ""));
    }
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.iter().any(|known| action == known) {
            let allowed = ACTIONS.map(|known| json!(known));
            causes.push(Cause::not_supported(format!("spec.validationActions[{index}]"), action, &allowed));
        }
    }
    if ["Deny", "Warn"].iter().all(|wanted| actions.iter().any(|action| action == wanted)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        causes.push(Cause::invalid("spec.validationActions", &json!(actions), why));
    }
    if text(spec, &["policyName"]).is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    }
    causes
}

fn versions(given: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if given.is_empty() {
        causes.push(Cause::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = std::collections::HashSet::new();
    for (index, version) in given.iter().enumerate() {
        if !seen.insert(version.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(format!("{path}[{index}]"), version, "duplicate version"));
        }
    }
    if !VERSIONS.iter().any(|known| seen.contains(known)) {
        causes.push(Cause::invalid(path, &json!(given), "must include at least one of v1, v1beta1"));
    }
}
