//! Names as they come in, good and bad.

use serde_json::json;

use super::*;

#[test]
fn labels_are_those_of_the_rfc() {
    for good in ["a", "a-1", "0", &"a".repeat(63)] {
        assert_eq!(dns_label("name", good), Ok(()), "{good}");
    }
    for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é", "a/b", "..", &"a".repeat(64)] {
        assert!(dns_label("name", bad).is_err(), "{bad}");
    }
}

#[test]
fn an_application_has_a_short_name() {
    assert_eq!(ApplicationId::new("demo", "web").unwrap().to_string(), "demo.web");
    assert!(ApplicationId::new("demo", &"a".repeat(ApplicationId::NAME_MAX)).is_ok());
    for length in [ApplicationId::NAME_MAX + 1, 63, 64, 70, 300] {
        let error = ApplicationId::new("demo", &"a".repeat(length)).unwrap_err();
        assert!(error.to_string().contains("longer than 24"), "{error}");
    }
    assert!(ApplicationId::new("de.mo", "web").is_err(), "a dot would make the id ambiguous");
}

#[test]
fn kinds_are_parsed_and_written_back() {
    for (api_version, kind, group) in [("v1", "Pod", ""), ("apps/v1", "Deployment", "apps")] {
        let gvk = Gvk::parse(api_version, kind).unwrap();
        assert_eq!((gvk.group.as_str(), gvk.api_version().as_str()), (group, api_version));
    }
    for (api_version, kind) in [
        ("", "Pod"),
        ("/v1", "Pod"),
        ("apps/", "Pod"),
        ("a/b/c", "Pod"),
        ("V1", "Pod"),
        ("v1", ""),
        ("v1", "a/b"),
        ("v1", "Pöd"),
    ] {
        assert!(Gvk::parse(api_version, kind).is_err(), "{api_version:?} {kind:?}");
    }
}

#[test]
fn an_object_names_itself() {
    let object =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "demo"}});
    assert_eq!(ObjectRef::of(&object).unwrap().to_string(), "Deployment.apps demo/web");
    for bad in
        [json!(null), json!([]), json!({"apiVersion": "v1", "kind": "Pod"}), json!({"apiVersion": 1, "kind": "Pod"})]
    {
        assert!(ObjectRef::of(&bad).is_err(), "{bad}");
    }
}
