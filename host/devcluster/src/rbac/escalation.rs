//! Nobody gives rights that they do not have.

use serde_json::{Value, json};

use super::{Act, MASTERS, allows, granted, rules_of};
use crate::{
    catalog::Resource,
    json::{list, text},
    registry::Registry,
    status::ApiError,
    user::User,
};

/// Lines of one refusal.
const LINES_MAX: usize = 50;

/// Refuses a role or a binding that gives more than its author has.
pub(crate) fn check(
    registry: &Registry,
    user: &User,
    resource: &Resource,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), ApiError> {
    if resource.group != "rbac.authorization.k8s.io" || resource.custom.is_some() {
        return Ok(());
    }
    if user.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    let (namespace, name) = (text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
    let may = |verb: &str, plural: &str, name: &str| {
        let act = Act {
            verb: verb.to_owned(),
            group: resource.group.clone(),
            resource: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Act::default()
        };
        allows(registry, user, &act).is_some()
    };
    let wanted = match resource.kind.as_str() {
        "Role" | "ClusterRole" => {
            if old.is_some_and(|old| old.get("rules") == object.get("rules")) || may("escalate", &resource.plural, name)
            {
                return Ok(());
            }
            list(object, &["rules"]).to_vec()
        }
        _ => {
            let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
            let (kind, role) = (text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"]));
            let plural = if kind == "Role" { "roles" } else { "clusterroles" };
            if (same("roleRef") && same("subjects")) || may("bind", plural, role) {
                return Ok(());
            }
            rules_of(registry, kind, role, namespace).ok_or_else(|| ApiError::not_found(resource.about(), role))?
        }
    };
    let held = granted(registry, user, namespace).into_iter().map(|granted| granted.rule).collect::<Vec<_>>();
    let missing = wanted.iter().filter_map(|rule| missing(rule, &held)).collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    let groups = user.groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(" ");
    let lines = missing.iter().take(LINES_MAX).map(written).collect::<Vec<_>>().join("\n");
    let why = format!(
        "user {:?} (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{lines}",
        user.name
    );
    Err(ApiError::forbidden(resource.about(), name, &why))
}

/// The part of a rule that no held rule covers.
fn missing(rule: &Value, held: &[Value]) -> Option<Value> {
    let has = |rule: &Value, field: &str, wanted: &Value| {
        list(rule, &[field]).iter().any(|item| item == "*" || item == wanted)
    };
    let verbs_held = |other: &Value| list(rule, &["verbs"]).iter().all(|verb| has(other, "verbs", verb));
    let paths = list(rule, &["nonResourceURLs"]);
    if !paths.is_empty() {
        let covered = |path: &&Value| {
            let path = path.as_str().unwrap_or_default();
            let covers = |pattern: &str| match pattern.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => pattern == path,
            };
            held.iter()
                .filter(|other| verbs_held(other))
                .any(|other| list(other, &["nonResourceURLs"]).iter().filter_map(Value::as_str).any(covers))
        };
        let left = paths.iter().filter(|path| !covered(path)).collect::<Vec<_>>();
        return (!left.is_empty()).then(|| json!({"verbs": rule["verbs"], "nonResourceURLs": left}));
    }
    let covered = |resource: &Value| {
        let plain = resource.as_str().unwrap_or_default();
        let by_sub = plain.split_once('/').map(|(_, sub)| json!(format!("*/{sub}")));
        held.iter().any(|other| {
            let names = list(other, &["resourceNames"]);
            let own = list(rule, &["resourceNames"]);
            verbs_held(other)
                && list(rule, &["apiGroups"]).iter().all(|group| has(other, "apiGroups", group))
                && (has(other, "resources", resource)
                    || by_sub.as_ref().is_some_and(|sub| has(other, "resources", sub)))
                && (names.is_empty() || (!own.is_empty() && own.iter().all(|name| names.contains(name))))
        })
    };
    let left = list(rule, &["resources"]).iter().filter(|resource| !covered(resource)).cloned().collect::<Vec<_>>();
    if left.is_empty() {
        return None;
    }
    let mut rest = rule.clone();
    if let Some(map) = rest.as_object_mut() {
        map.insert("resources".to_owned(), Value::Array(left));
    }
    Some(rest)
}

/// A rule as the API writes it into the refusal.
fn written(rule: &Value) -> String {
    let parts = [
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    ];
    let shown = parts.iter().filter_map(|(shown, field)| {
        let items = list(rule, &[field]);
        let items_text = items.iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
        (!items.is_empty()).then(|| format!("{shown}:[{items_text}]"))
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
}
