//! Selectors as tables.

use serde_json::{Value, json};

use super::*;

fn pod(labels: &Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "n", "labels": labels}, "spec": {"nodeName": "a"}})
}

#[test]
fn labels_select_as_the_api_says() {
    let labelled = pod(&json!({"app": "web", "tier": "front", "n": "5", "x.io/y": "z"}));
    for (selector, expected) in [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app=db", false),
        ("app!=db", true),
        ("app!=web", false),
        ("none!=web", true),
        ("app", true),
        ("none", false),
        ("!none", true),
        ("!app", false),
        ("app in (web,db)", true),
        ("app in (db)", false),
        ("app notin (db, cache)", true),
        ("none notin (db)", true),
        ("app notin (web)", false),
        ("app=web,tier=front", true),
        ("app in (web, db),tier notin (back),!none", true),
        ("app=web,tier=back", false),
        ("x.io/y=z", true),
        ("n>4", true),
        ("n<5", false),
        ("app=", false),
        ("none=", false),
    ] {
        let parsed =
            Selector::parse(selector, "", |_| true, str::to_owned).unwrap_or_else(|e| panic!("{selector}: {e}"));
        assert_eq!(parsed.matches(&labelled), expected, "{selector}");
    }
}

#[test]
fn malformed_label_selectors_are_refused() {
    for selector in [
        "app=web,",
        ",",
        "app in web",
        "app in (web",
        "app)",
        "((a))",
        "=x",
        "a b",
        "app=we b",
        "a>x",
        "-a=b",
        "app like (x)",
    ] {
        let error = Selector::parse(selector, "", |_| true, str::to_owned).expect_err(selector);
        assert_eq!(error.code, 400, "{selector}");
    }
}

#[test]
fn fields_select_and_unknown_fields_are_refused() {
    let object = pod(&json!({}));
    let unknown = |field: &str| format!("field label not supported: {field}");
    let known = |field: &str| matches!(field, "metadata.name" | "spec.nodeName" | "spec.hostNetwork");
    for (selector, expected) in [
        ("metadata.name=p", true),
        ("metadata.name==q", false),
        ("metadata.name!=q,spec.nodeName=a", true),
        ("spec.nodeName=", false),
        ("spec.hostNetwork=false", true),
    ] {
        assert_eq!(Selector::parse("", selector, known, unknown).unwrap().matches(&object), expected, "{selector}");
    }
    let error = Selector::parse("", "spec.replicas=1", known, unknown).unwrap_err();
    assert_eq!(error.message, "field label not supported: spec.replicas");
    assert_eq!(Selector::parse("", "metadata.name", known, unknown).unwrap_err().code, 400);
}

#[test]
fn label_selector_objects_match_like_their_text() {
    let object = pod(&json!({"app": "web"}));
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web"]}, {"key": "x", "operator": "DoesNotExist"}]});
    assert!(label_selector_matches(&selector, &object));
    assert_eq!(label_selector_text(&selector), "app=web,app in (web),!x");
    assert!(label_selector_matches(&json!({}), &object));
    assert!(!label_selector_matches(&json!({"matchExpressions": [{"key": "app", "operator": "Nope"}]}), &object));
}
