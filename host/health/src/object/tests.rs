use serde_json::json;

use super::*;

#[test]
fn absent_and_null_are_the_same() {
    let object = json!({"spec": {"replicas": null}, "status": null});
    let fields = Fields::of(&object);
    assert_eq!(fields.integer("spec.replicas"), Ok(None));
    assert_eq!(fields.count("status.replicas"), Ok(0));
    assert_eq!(fields.text("status.phase"), Ok(""));
    assert_eq!(fields.flag("spec.paused"), Ok(false));
    assert_eq!(fields.has_object("spec.template"), Ok(false));
    assert!(fields.items("status.conditions").unwrap().is_empty());
}

#[test]
fn a_complaint_names_the_place_and_both_types() {
    let object = json!({"spec": {"replicas": "3"}, "status": [], "list": [{"type": 1}], "numbers": [1]});
    let fields = Fields::of(&object);
    let text = |error: Malformed| error.to_string();
    assert_eq!(
        fields.integer("spec.replicas").map_err(text),
        Err("spec.replicas is a text, expected a whole number".into())
    );
    assert_eq!(fields.text("status.phase").map_err(text), Err("status is a list, expected an object".into()));
    assert_eq!(
        fields.text("spec.replicas.deep").map_err(text),
        Err("spec.replicas is a text, expected an object".into())
    );
    assert_eq!(
        fields.conditions("list").map(|_| ()).map_err(text),
        Err("list[].type is a number, expected a text".into())
    );
    assert_eq!(
        fields.items("numbers").map(|_| ()).map_err(text),
        Err("numbers is a number, expected a list of objects".into())
    );
    let number = json!(7);
    assert_eq!(
        Fields::of(&number).text("kind").map_err(text),
        Err("the object is a number, expected an object".into())
    );
}

#[test]
fn a_float_counts_only_if_it_is_whole_and_small_enough() {
    let read = |value: Value| Fields::of(&json!({ "n": value })).integer("n");
    assert_eq!(read(json!(3.0)), Ok(Some(3)));
    assert_eq!(read(json!(-1)), Ok(Some(-1)));
    assert!(read(json!(3.5)).is_err());
    assert!(read(json!(1e300)).is_err());
    assert!(read(json!(u64::MAX)).is_err());
}

#[test]
fn the_kind_is_split_from_the_group() {
    let kind = |object: Value| Kind::of(&object).map(|kind| format!("{}|{}|{}", kind.group, kind.version, kind.kind));
    assert_eq!(kind(json!({"apiVersion": "apps/v1", "kind": "Deployment"})), Some("apps|v1|Deployment".into()));
    assert_eq!(kind(json!({"apiVersion": "v1", "kind": "Pod"})), Some("|v1|Pod".into()));
    assert_eq!(kind(json!({"kind": "Pod"})), Some("||Pod".into()));
    assert_eq!(kind(json!({"apiVersion": "v1"})), None);
    assert_eq!(kind(json!({"kind": ""})), None);
    assert_eq!(kind(json!("Pod")), None);
}

#[test]
fn a_hook_is_told_by_argo_first_and_by_helm_second() {
    let hook = |annotations: Value| is_hook(&json!({"metadata": {"annotations": annotations}}));
    let argo = |value: &str| hook(json!({ HOOK_ANNOTATION: value }));
    let helm = |value: &str| hook(json!({ HELM_HOOK_ANNOTATION: value }));
    assert!(argo("PostSync"));
    assert!(argo("PreSync, Skip"));
    assert!(argo("nonsense"));
    assert!(argo(""));
    assert!(!argo(" Skip ,Skip"));
    assert!(helm("pre-install,post-install"));
    assert!(!helm("crd-install"));
    assert!(!hook(json!({ HOOK_ANNOTATION: "Skip", HELM_HOOK_ANNOTATION: "pre-install" })));
    assert!(!hook(json!({})));
}
