//! Which requests a webhook wants to see.

use std::sync::Arc;

use serde_json::{Value, json};

use super::hooks::Attributes;
use crate::{
    catalog::Resource,
    cel::{self, Bound, Expression, Failure, Given, Variable},
    json::{list, text},
    registry::Registry,
    selector::label_selector_matches,
    status::ApiError,
};

/// Whether one of these rules is about this operation on this resource (a version of the one of the request).
pub(super) fn wants(rules: &[Value], attributes: &Attributes<'_>, resource: &Resource) -> bool {
    rules.iter().any(|rule| {
        let has = |key: &str, wanted: &str| list(rule, &[key]).iter().any(|item| item == "*" || item == wanted);
        let names = list(rule, &["resourceNames"]);
        has("operations", attributes.operation)
            && has("apiGroups", &resource.group)
            && has("apiVersions", &resource.version)
            && (names.is_empty() || names.iter().any(|name| *name == attributes.name))
            && in_scope(text(rule, &["scope"]), resource, attributes)
            && list(rule, &["resources"]).iter().filter_map(Value::as_str).any(|item| {
                let (plural, subresource) = item.split_once('/').unwrap_or((item, ""));
                (plural == "*" || plural == resource.plural)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    })
}

/// The version of the resource in which rules are about it: the one of the request (`None`) or, unless they are to be taken
/// to the letter, another.
pub(super) fn version_for(
    registry: &Registry,
    rules: &[Value],
    policy: &str,
    attributes: &Attributes<'_>,
) -> Option<Option<Arc<Resource>>> {
    if wants(rules, attributes, attributes.resource) {
        return Some(None);
    }
    if policy == "Exact" {
        return None;
    }
    let table = registry.catalog.table();
    let mut others = table.values().filter(|other| other.table == attributes.resource.table);
    others.find(|other| wants(rules, attributes, other)).map(|other| Some(Arc::clone(other)))
}

fn in_scope(scope: &str, resource: &Resource, attributes: &Attributes<'_>) -> bool {
    // A namespace counts as an object of the cluster, though its own name is the namespace of the request.
    let cluster = resource.is("", "Namespace") || attributes.namespace.is_empty();
    match scope {
        "Namespaced" => !cluster,
        "Cluster" => cluster,
        _ => true,
    }
}

/// Whether the selectors of a webhook take the object. `namespace` is the namespace's object, where there is one.
pub(super) fn selects(
    hook: &Value,
    resource: &Resource,
    namespace: Option<&Value>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> bool {
    let is_empty = |selector: &Value| selector.as_object().is_none_or(serde_json::Map::is_empty);
    if let Some(selector) = hook.get("namespaceSelector").filter(|selector| !is_empty(selector)) {
        // Objects of the cluster are always taken; a namespace by its own labels.
        let place = if resource.is("", "Namespace") { object.or(old) } else { namespace };
        if place.is_some_and(|place| !label_selector_matches(selector, place)) {
            return false;
        }
    }
    match hook.get("objectSelector").filter(|selector| !is_empty(selector)) {
        Some(selector) => object.into_iter().chain(old).any(|state| label_selector_matches(selector, state)),
        None => true,
    }
}

/// Whether all conditions hold. An error of one counts only when none of the others is false.
pub(super) fn conditions_hold(
    hook: &Value,
    attributes: &Attributes<'_>,
    request: &Value,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<bool, ApiError> {
    let conditions = list(hook, &["matchConditions"]);
    if conditions.is_empty() {
        return Ok(true);
    }
    // The conditions see no copies of the objects in the request.
    let mut bare = request.clone();
    if let Some(map) = bare.as_object_mut() {
        map.remove("object");
        map.remove("oldObject");
    }
    let nothing = Value::Null;
    let variables = [
        Variable { name: "object", value: Bound::Plain(object.unwrap_or(&nothing)) },
        Variable { name: "oldObject", value: Bound::Plain(old.unwrap_or(&nothing)) },
        Variable { name: "request", value: Bound::Plain(&bare) },
    ];
    let evaluate = || {
        let mut budget = cel::BUDGET;
        let mut errors = Vec::new();
        for condition in conditions {
            let source = text(condition, &["expression"]).trim();
            let given = Expression::parse(source).map_err(|why| format!("compilation error: {why}"));
            let given = given.and_then(|expression| {
                expression.evaluate(&variables, &mut budget).map_err(|failure| match failure {
                    Failure::Cost => {
                        "validation failed due to running out of cost budget, no further validation rules will be run"
                            .to_owned()
                    }
                    Failure::Error(why) => format!("expression '{source}' resulted in error: {why}"),
                })
            });
            match given {
                Ok(Given::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(why) => errors.push(why),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    };
    let outcome = cel::on_deep_stack(evaluate).unwrap_or_else(|| Err("the conditions could not be checked".to_owned()));
    match outcome {
        Err(_) if text(hook, &["failurePolicy"]) == "Ignore" => Ok(false),
        Err(why) => Err(ApiError::forbidden(attributes.resource.about(), &attributes.name, &why)),
        Ok(hold) => Ok(hold),
    }
}

/// The kind of a subresource's object.
pub(super) fn kind_of(resource: &Resource, subresource: &str) -> Value {
    let sub = resource.subresource(subresource).filter(|sub| !sub.kind.is_empty() && sub.kind != resource.kind);
    match sub {
        Some(sub) => {
            let group = if sub.version.is_empty() { &resource.group } else { &sub.group };
            let version = if sub.version.is_empty() { &resource.version } else { &sub.version };
            json!({"group": group, "version": version, "kind": sub.kind})
        }
        None => json!({"group": resource.group, "version": resource.version, "kind": resource.kind}),
    }
}
