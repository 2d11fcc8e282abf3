//! Rights: who a request comes from, and what roles let them do. Off unless [`Config::rbac`](crate::Config::rbac) says
//! otherwise; then the real server's rules and texts hold for everyone but the process itself.

mod authority;
mod escalation;
mod review;
pub(crate) mod roles;
mod token;

use serde_json::Value;

pub(crate) use authority::{Authority, Origin};
pub(crate) use escalation::check as check_escalation;
pub(crate) use review::answer as answer_review;
pub(crate) use token::request as request_token;

use crate::{
    json::{at, list, text},
    registry::Registry,
    selector::label_selector_matches,
    status::{About, ApiError},
    user::User,
};

/// The group whose members may do everything.
pub(crate) const MASTERS: &str = "system:masters";
/// Roles that one role may be made of.
const AGGREGATED_MAX: usize = 1000;

/// Something that somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What is asked for when it is no resource.
    pub(crate) path: Option<String>,
}

impl Act {
    fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// That this user may not do it.
    pub(crate) fn refusal(&self, user: &User) -> ApiError {
        let name = &user.name;
        if let Some(path) = &self.path {
            let message = format!("forbidden: User {name:?} cannot {} path {path:?}", self.verb);
            return ApiError::new(403, "Forbidden", message);
        }
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        let why = format!(
            "User {name:?} cannot {} resource {:?} in API group {:?} {scope}",
            self.verb,
            self.full_resource(),
            self.group,
        );
        let about = About { group: &self.group, plural: &self.resource, kind: "" };
        ApiError::forbidden(about, &self.name, &why)
    }
}

/// A role's rule with the binding that gives it.
pub(crate) struct Granted {
    pub(crate) rule: Value,
    /// For the reason of a review.
    pub(crate) because: String,
}

/// Whether a user may do something: the reason, or nothing.
pub(crate) fn allows(registry: &Registry, user: &User, act: &Act) -> Option<String> {
    if user.groups.iter().any(|group| group == MASTERS) {
        return Some(String::new());
    }
    granted(registry, user, &act.namespace)
        .into_iter()
        .find(|granted| rule_allows(&granted.rule, act))
        .map(|granted| granted.because)
}

/// All rules that hold for a user in a namespace, or for the cluster when it is empty.
pub(crate) fn granted(registry: &Registry, user: &User, namespace: &str) -> Vec<Granted> {
    let mut found = Vec::new();
    let mut add = |binding: &Value, place: &str| {
        let subjects = list(binding, &["subjects"]);
        let Some(subject) = subjects.iter().find(|subject| is_subject(subject, place, user)) else { return };
        let reference = |field: &str| text(binding, &["roleRef", field]);
        let kind = if place.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        let name = text(binding, &["metadata", "name"]);
        let named = if place.is_empty() { name.to_owned() } else { format!("{name}/{place}") };
        let who = match text(subject, &["kind"]) {
            "ServiceAccount" => format!("{}/{}", text(subject, &["name"]), text(subject, &["namespace"])),
            _ => text(subject, &["name"]).to_owned(),
        };
        let because = format!(
            "RBAC: allowed by {kind} {named:?} of {} {:?} to {} {who:?}",
            reference("kind"),
            reference("name"),
            text(subject, &["kind"]),
        );
        let rules = rules_of(registry, reference("kind"), reference("name"), place).unwrap_or_default();
        found.extend(rules.into_iter().map(|rule| Granted { rule, because: because.clone() }));
    };
    for binding in registry.store.list(roles::CLUSTER_BINDINGS, None).0 {
        add(&binding.value, "");
    }
    if !namespace.is_empty() {
        for binding in registry.store.list(roles::BINDINGS, Some(namespace)).0 {
            add(&binding.value, namespace);
        }
    }
    found
}

fn is_subject(subject: &Value, namespace: &str, user: &User) -> bool {
    let name = text(subject, &["name"]);
    match text(subject, &["kind"]) {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let place = text(subject, &["namespace"]);
            let place = if place.is_empty() { namespace } else { place };
            user.name == format!("system:serviceaccount:{place}:{name}")
        }
        _ => false,
    }
}

/// The rules of a role; `None` when there is none of this name.
pub(crate) fn rules_of(registry: &Registry, kind: &str, name: &str, namespace: &str) -> Option<Vec<Value>> {
    if kind == "Role" {
        let role = registry.store.get(roles::ROLES, namespace, name)?;
        return Some(list(&role.value, &["rules"]).to_vec());
    }
    let role = registry.store.get(roles::CLUSTER_ROLES, "", name)?;
    let selectors = list(&role.value, &["aggregationRule", "clusterRoleSelectors"]);
    let own = list(&role.value, &["rules"]).iter().cloned();
    if selectors.is_empty() {
        return Some(own.collect());
    }
    // Roles that are made of others may be made of each other, so each is looked at once.
    let all = registry.store.list(roles::CLUSTER_ROLES, None).0;
    let (mut seen, mut waiting) = (vec![name.to_owned()], selectors.to_vec());
    let mut rules = own.collect::<Vec<_>>();
    while let Some(selector) = waiting.pop() {
        for other in all.iter().filter(|other| label_selector_matches(&selector, &other.value)) {
            let other_name = text(&other.value, &["metadata", "name"]);
            if seen.len() > AGGREGATED_MAX || seen.iter().any(|known| known == other_name) {
                continue;
            }
            seen.push(other_name.to_owned());
            rules.extend(list(&other.value, &["rules"]).iter().cloned());
            waiting.extend(list(&other.value, &["aggregationRule", "clusterRoleSelectors"]).iter().cloned());
        }
    }
    Some(rules)
}

/// Whether one rule is about an act.
pub(crate) fn rule_allows(rule: &Value, act: &Act) -> bool {
    let has = |field: &str, wanted: &str| list(rule, &[field]).iter().any(|item| item == "*" || item == wanted);
    if !has("verbs", &act.verb) {
        return false;
    }
    if let Some(path) = &act.path {
        let patterns = list(rule, &["nonResourceURLs"]).iter().filter_map(Value::as_str);
        return patterns.into_iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => pattern == path,
        });
    }
    let full = act.full_resource();
    let any_of = |item: &Value| {
        let item = item.as_str().unwrap_or_default();
        let by_sub = item.strip_prefix("*/").is_some_and(|sub| !act.subresource.is_empty() && sub == act.subresource);
        item == "*" || item == full || by_sub
    };
    let names = list(rule, &["resourceNames"]);
    has("apiGroups", &act.group)
        && list(rule, &["resources"]).iter().any(any_of)
        && (names.is_empty() || names.iter().any(|name| *name == act.name))
}

/// The namespace of a request for authorization: a namespace is in itself.
pub(crate) fn namespace_of(namespace: Option<&str>, group: &str, plural: &str, name: &str) -> String {
    match namespace {
        Some(namespace) => namespace.to_owned(),
        None if group.is_empty() && plural == "namespaces" => name.to_owned(),
        None => String::new(),
    }
}

/// The one whom a `spec` of a review is about.
fn user_of(spec: &Value) -> User {
    let strings = |value: Option<&Value>| {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let extra = at(spec, &["extra"]).and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(spec, &["user"]).to_owned(),
        uid: text(spec, &["uid"]).to_owned(),
        groups: strings(spec.get("groups")),
        extra: extra.map(|(key, values)| (key.clone(), strings(Some(values)))).collect(),
    }
}

#[cfg(test)]
mod tests;
