//! Reviews: kinds that only answer what somebody may do or who they are.

use serde_json::{Value, json};

use super::{Act, Authority, MASTERS, allows, granted, user_of};
use crate::{
    catalog::Resource,
    json::{self, at, list, text},
    registry::Registry,
    status::{About, ApiError, Cause},
    user::User,
};

/// Fills the status of a review; a review that is not an object becomes an empty one.
pub(crate) fn answer(
    registry: &Registry,
    authority: &Authority,
    user: &User,
    resource: &Resource,
    namespace: &str,
    mut review: Value,
) -> Result<Value, ApiError> {
    json::default(&mut review, &["apiVersion"], json!(resource.api_version()));
    json::default(&mut review, &["kind"], json!(resource.kind));
    json::default(&mut review, &["metadata"], json!({"creationTimestamp": null}));
    let status = match resource.kind.as_str() {
        "SelfSubjectReview" => json!({"userInfo": user.info()}),
        "TokenReview" => token(registry, authority, user, text(&review, &["spec", "token"])),
        "SelfSubjectRulesReview" => rules(registry, authority, user, text(&review, &["spec", "namespace"])),
        kind => {
            let spec = at(&review, &["spec"]).unwrap_or(&Value::Null);
            let own = kind == "SelfSubjectAccessReview";
            // Nothing is looked at while everything is allowed: kubectl asks in a form that is not read then.
            if authority.enforced {
                let causes = check(spec, own, (kind == "LocalSubjectAccessReview").then_some(namespace));
                if !causes.is_empty() {
                    let about = About { group: &resource.group, plural: "", kind };
                    return Err(ApiError::invalid(about, "", causes));
                }
            }
            let asked = if own { user.clone() } else { user_of(spec) };
            access(registry, authority, &asked, spec)
        }
    };
    json::set(&mut review, &["status"], status);
    Ok(review)
}

/// What is wrong with the question.
fn check(spec: &Value, own: bool, namespace: Option<&str>) -> Vec<Cause> {
    let given = |field: &str| spec.get(field).is_some_and(Value::is_object);
    let mut causes = Vec::new();
    if given("resourceAttributes") == given("nonResourceAttributes") {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid("spec", &Value::Null, why));
    }
    if !own && text(spec, &["user"]).is_empty() && list(spec, &["groups"]).is_empty() {
        causes.push(Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    let inside = text(spec, &["resourceAttributes", "namespace"]);
    if namespace.is_some_and(|namespace| namespace != inside) {
        let why = "must match metadata.namespace";
        causes.push(Cause::invalid("spec.resourceAttributes.namespace", &json!(inside), why));
    }
    causes
}

fn access(registry: &Registry, authority: &Authority, user: &User, spec: &Value) -> Value {
    if !authority.enforced {
        return json!({"allowed": true, "reason": "this server allows everything"});
    }
    let resource = |field: &str| text(spec, &["resourceAttributes", field]).to_owned();
    let act = match spec.get("nonResourceAttributes").filter(|attributes| attributes.is_object()) {
        Some(attributes) => Act {
            verb: text(attributes, &["verb"]).to_owned(),
            path: Some(text(attributes, &["path"]).to_owned()),
            ..Act::default()
        },
        None => Act {
            verb: resource("verb"),
            group: resource("group"),
            resource: resource("resource"),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            path: None,
        },
    };
    match allows(registry, user, &act) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}

fn token(registry: &Registry, authority: &Authority, user: &User, token: &str) -> Value {
    if !authority.enforced && authority.of_token(registry, token).is_none() {
        return json!({"authenticated": true, "user": user.info()});
    }
    match authority.keys.verify(registry, token) {
        Some((user, audiences)) => json!({"authenticated": true, "user": user.info(), "audiences": audiences}),
        None => match authority.of_token(registry, token) {
            Some(user) => json!({"authenticated": true, "user": user.info()}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        },
    }
}

fn rules(registry: &Registry, authority: &Authority, user: &User, namespace: &str) -> Value {
    let all = !authority.enforced || user.groups.iter().any(|group| group == MASTERS);
    let found = if all {
        vec![
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ]
    } else {
        granted(registry, user, namespace).into_iter().map(|granted| granted.rule).collect()
    };
    let (paths, resources): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|rule| !list(rule, &["nonResourceURLs"]).is_empty());
    json!({"incomplete": false, "resourceRules": resources, "nonResourceRules": paths})
}
