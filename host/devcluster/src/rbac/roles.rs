//! The roles that every cluster has, and what a role must be.

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    json::{list, text},
    registry::{Options, Registry},
    status::{ApiError, Cause},
};

pub(crate) const ROLES: &str = "rbac.authorization.k8s.io/roles";
pub(crate) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
pub(crate) const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
pub(crate) const CLUSTER_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
const GROUP: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Makes the roles for people and for discovery, unless they are there.
pub(crate) fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    let everything =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let own = json!([
        {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
         "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    ]);
    let (everyone, nobody) = ("system:authenticated", "system:unauthenticated");
    let rows = [
        ("cluster-admin", everything, vec!["system:masters"]),
        ("system:basic-user", own, vec![everyone]),
        ("system:discovery", json!([{"verbs": ["get"], "nonResourceURLs": paths}]), vec![everyone]),
        ("system:public-info-viewer", json!([{"verbs": ["get"], "nonResourceURLs": public}]), vec![everyone, nobody]),
    ];
    for (name, rules, groups) in rows {
        make(registry, "clusterroles", json!({"metadata": metadata(name, &[]), "rules": rules}))?;
        let subjects = groups.iter().map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group}));
        let binding = json!({
            "metadata": metadata(name, &[]),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": subjects.collect::<Vec<_>>(),
        });
        make(registry, "clusterrolebindings", binding)?;
    }
    // What people may do in a namespace, each role a part of the next.
    let all = [&READ[..], &WRITE[..]].concat();
    let rights = json!([{"verbs": all, "apiGroups": [GROUP], "resources": ["rolebindings", "roles"]}]);
    let rows = [
        ("view", "view", Some("edit"), namespaced(registry, false)),
        ("edit", "edit", Some("admin"), namespaced(registry, true)),
        ("admin", "admin", None, rights),
    ];
    for (name, aggregate, next, rules) in rows {
        let label = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        let labels = next.map(label).into_iter().collect::<Vec<_>>();
        let labels = labels.iter().map(String::as_str).collect::<Vec<_>>();
        let selector = json!({"matchLabels": {label(aggregate): "true"}});
        let role = json!({
            "metadata": metadata(name, &labels),
            "aggregationRule": {"clusterRoleSelectors": [selector]},
            "rules": rules,
        });
        make(registry, "clusterroles", role)?;
    }
    Ok(())
}

fn metadata(name: &str, labels: &[&str]) -> Value {
    let mut metadata = json!({
        "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    for label in labels {
        crate::json::set(&mut metadata, &["labels", label], json!("true"));
    }
    metadata
}

/// Rules about all built-in kinds of a namespace but those about rights; secrets only for those who may write.
fn namespaced(registry: &Registry, writes: bool) -> Value {
    let mut groups = std::collections::BTreeMap::<&str, Vec<String>>::new();
    let table = registry.catalog.table();
    for resource in table.values().filter(|r| r.namespaced && r.custom.is_none() && r.has_verb("list")) {
        let secret = resource.is("", "Secret");
        if resource.group == GROUP || (secret && !writes) {
            continue;
        }
        let known = groups.entry(&resource.group).or_default();
        if !known.contains(&resource.plural) {
            known.push(resource.plural.clone());
            let shown = |name: &str| if writes { name == "scale" } else { matches!(name, "status" | "scale" | "log") };
            let subresources = resource.subresources.iter().filter(|sub| shown(&sub.name));
            known.extend(subresources.map(|sub| format!("{}/{}", resource.plural, sub.name)));
        }
    }
    let verbs = if writes { [&READ[..], &WRITE[..]].concat() } else { READ.to_vec() };
    let mut rules = groups
        .into_iter()
        .map(|(group, resources)| json!({"verbs": verbs, "apiGroups": [group], "resources": resources}))
        .collect::<Vec<_>>();
    if writes {
        rules.push(json!({"verbs": ["create"], "apiGroups": [""],
                          "resources": ["pods/eviction", "serviceaccounts/token"]}));
        rules.push(json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"]}));
    } else {
        rules.push(json!({"verbs": READ, "apiGroups": [""], "resources": ["namespaces"]}));
    }
    Value::Array(rules)
}

fn make(registry: &Registry, plural: &str, object: Value) -> Result<(), ApiError> {
    let resource = registry.catalog.find(GROUP, "v1", plural).ok_or_else(ApiError::no_such_resource)?;
    match registry.create(&resource, "", object, Options::of("kube-apiserver")) {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

/// What is wrong with a role or a binding; nothing for other kinds.
pub(crate) fn check(resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.group != GROUP || resource.custom.is_some() {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let namespaced = resource.namespaced;
    for (index, rule) in list(object, &["rules"]).iter().enumerate() {
        let at = |field: &str| format!("rules[{index}].{field}");
        let paths = list(rule, &["nonResourceURLs"]);
        let (groups, resources) = (list(rule, &["apiGroups"]), list(rule, &["resources"]));
        if !paths.is_empty() {
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(at("nonResourceURLs"), &json!(paths), why));
            }
            if !groups.is_empty() || !resources.is_empty() || !list(rule, &["resourceNames"]).is_empty() {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(at("nonResourceURLs"), &json!(paths), why));
            }
            continue;
        }
        if groups.is_empty() {
            causes.push(Cause::required(at("apiGroups"), "resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            causes.push(Cause::required(at("resources"), "resource rules must supply at least one resource"));
        }
    }
    for (index, rule) in list(object, &["rules"]).iter().enumerate() {
        if list(rule, &["verbs"]).is_empty() {
            causes.push(Cause::required(format!("rules[{index}].verbs"), ""));
        }
    }
    if resource.kind.ends_with("Binding") {
        let reference = |field: &str| text(object, &["roleRef", field]);
        if reference("apiGroup") != GROUP {
            let given = json!(reference("apiGroup"));
            causes.push(Cause::not_supported("roleRef.apiGroup", &given, &[json!(GROUP)]));
        }
        let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.contains(&reference("kind")) {
            let allowed = kinds.iter().map(|kind| json!(kind)).collect::<Vec<_>>();
            causes.push(Cause::not_supported("roleRef.kind", &json!(reference("kind")), &allowed));
        }
        if reference("name").is_empty() {
            causes.push(Cause::required("roleRef.name", ""));
        }
        for (index, subject) in list(object, &["subjects"]).iter().enumerate() {
            let at = |field: &str| format!("subjects[{index}].{field}");
            if text(subject, &["name"]).is_empty() {
                causes.push(Cause::required(at("name"), ""));
            }
            match text(subject, &["kind"]) {
                "User" | "Group" => {}
                "ServiceAccount" if text(subject, &["namespace"]).is_empty() && !namespaced => {
                    causes.push(Cause::required(at("namespace"), ""));
                }
                "ServiceAccount" => {}
                other => {
                    let kinds = [json!("ServiceAccount"), json!("User"), json!("Group")];
                    causes.push(Cause::not_supported(at("kind"), &json!(other), &kinds));
                }
            }
        }
    }
    causes
}
