//! Rules as tables.

use serde_json::json;

use super::{Act, rule_allows};
use crate::user::User;

fn act(verb: &str, group: &str, resource: &str, name: &str) -> Act {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Act {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: "n".to_owned(),
        name: name.to_owned(),
        path: None,
    }
}

#[test]
fn a_rule_allows_what_it_names() {
    let rule = |verbs: &str, groups: &str, resources: &str, names: &[&str]| json!({"verbs": [verbs], "apiGroups": [groups], "resources": [resources], "resourceNames": names});
    for (rule, act, allowed) in [
        (rule("get", "", "pods", &[]), act("get", "", "pods", "a"), true),
        (rule("get", "", "pods", &[]), act("list", "", "pods", ""), false),
        (rule("get", "", "pods", &[]), act("get", "apps", "pods", "a"), false),
        (rule("get", "", "pods", &[]), act("get", "", "pods/log", "a"), false),
        (rule("get", "", "pods/log", &[]), act("get", "", "pods/log", "a"), true),
        (rule("get", "", "*/log", &[]), act("get", "", "pods/log", "a"), true),
        (rule("get", "", "*/log", &[]), act("get", "", "pods", "a"), false),
        (rule("*", "*", "*", &[]), act("delete", "x", "y/z", "a"), true),
        (rule("get", "", "pods", &["a"]), act("get", "", "pods", "a"), true),
        (rule("get", "", "pods", &["a"]), act("get", "", "pods", "b"), false),
        (rule("list", "", "pods", &["a"]), act("list", "", "pods", ""), false),
    ] {
        assert_eq!(rule_allows(&rule, &act), allowed, "{rule} {act:?}");
    }
    for (pattern, path, allowed) in
        [("/api", "/api", true), ("/api", "/api/v1", false), ("/api/*", "/api/v1", true), ("*", "/x", true)]
    {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": [pattern]});
        let act = Act { verb: "get".to_owned(), path: Some(path.to_owned()), ..Act::default() };
        assert_eq!(rule_allows(&rule, &act), allowed, "{pattern} {path}");
    }
}

#[test]
fn refusals_have_the_words_of_the_real_server() {
    let bob = User { name: "bob".to_owned(), ..User::default() };
    let cluster = Act { namespace: String::new(), ..act("list", "", "configmaps", "") };
    for (act, message) in [
        (
            act("list", "", "configmaps", ""),
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \
             \"n\"",
        ),
        (
            act("get", "", "pods/log", "p"),
            "pods \"p\" is forbidden: User \"bob\" cannot get resource \"pods/log\" in API group \"\" in the namespace \
             \"n\"",
        ),
        (
            act("delete", "apps", "deployments", "d"),
            "deployments.apps \"d\" is forbidden: User \"bob\" cannot delete resource \"deployments\" in API group \
             \"apps\" in the namespace \"n\"",
        ),
        (
            cluster,
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" at the cluster \
             scope",
        ),
        (
            Act { verb: "get".to_owned(), path: Some("/metrics".to_owned()), ..Act::default() },
            "forbidden: User \"bob\" cannot get path \"/metrics\"",
        ),
    ] {
        assert_eq!(act.refusal(&bob).message, message);
    }
}
