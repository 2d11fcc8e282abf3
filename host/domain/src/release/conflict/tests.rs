use serde_json::json;

use super::*;

fn deployment() -> (ObjectRef, Value) {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "demo", "labels": {"app.kubernetes.io/name": "web", "app": "w"}},
        "spec": {"replicas": 2, "template": {"spec": {
            "containers": [
                {"name": "main", "image": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "odd], \"x", "image": "b"},
            ],
        }}},
    });
    (ObjectRef::of(&object).expect("a reference"), object)
}

fn rule(object: &str, field: &str, settlement: Settlement) -> Rule {
    Rule { object: object.to_owned(), field: field.to_owned(), settlement }
}

#[test]
fn fields_are_taken_or_left_and_the_rest_stays_open() {
    let (target, object) = deployment();
    let rules = [
        rule("Deployment/web", ".spec.replicas", Settlement::Yield),
        rule("Deployment.apps/web", ".spec.template", Settlement::Take),
        rule("Deployment/other", ".metadata", Settlement::Take),
    ];
    let image = r#".spec.template.spec.containers[name="main"].image"#;
    let Settled::Retry { object: changed, force } = settle(&target, &object, &[".spec.replicas", image], &rules) else {
        panic!("settled")
    };
    assert!(force);
    assert_eq!(changed["spec"].get("replicas"), None);
    assert_eq!(changed["spec"]["template"], object["spec"]["template"]);

    let label = ".metadata.labels.app";
    assert_eq!(settle(&target, &object, &[".spec.replicas", label], &rules), Settled::Open(vec![1]));
    let Settled::Retry { force, .. } = settle(&target, &object, &[".spec.replicas"], &rules) else { panic!("settled") };
    assert!(!force, "what is left to others is not taken");
}

#[test]
fn a_prefix_is_a_whole_part_of_a_path() {
    let (target, object) = deployment();
    let rules = [rule("Deployment/web", ".spec.rep", Settlement::Take)];
    assert_eq!(settle(&target, &object, &[".spec.replicas"], &rules), Settled::Open(vec![0]));
}

#[test]
fn fields_are_found_by_every_kind_of_path() {
    let (_, object) = deployment();
    for (path, gone) in [
        (".metadata.labels.app.kubernetes.io/name", "/metadata/labels/app.kubernetes.io~1name"),
        (".metadata.labels.app", "/metadata/labels/app"),
        (r#".spec.template.spec.containers[name="main"].image"#, "/spec/template/spec/containers/0/image"),
        (r#".spec.template.spec.containers[name="odd], \"x"].image"#, "/spec/template/spec/containers/1/image"),
        (
            r#".spec.template.spec.containers[name="main"].ports[containerPort=80,protocol="TCP"]"#,
            "/spec/template/spec/containers/0/ports/0",
        ),
        (".spec.template.spec.containers[1].name", "/spec/template/spec/containers/1/name"),
    ] {
        let mut changed = object.clone();
        assert!(object.pointer(gone).is_some(), "{gone}");
        assert!(remove(&mut changed, path), "{path}");
        assert_eq!(changed.pointer(gone), None, "{path}");
    }
    let mut list = json!({"finalizers": ["a", "b"]});
    assert!(remove(&mut list, r#".finalizers[="b"]"#));
    assert_eq!(list, json!({"finalizers": ["a"]}));
    for path in ["", ".", ".spec.nothing", ".spec.replicas.more", "[", ".spec[name", r#".spec.template[name="x"]"#, "x"]
    {
        let mut same = object.clone();
        assert!(!remove(&mut same, path), "{path}");
        assert_eq!(same, object);
    }
}

#[test]
fn a_field_that_cannot_be_left_stays_open() {
    let (target, object) = deployment();
    let rules = [rule("Deployment/web", ".spec", Settlement::Yield)];
    assert_eq!(settle(&target, &object, &[".spec.paused"], &rules), Settled::Open(vec![0]));
}

#[test]
fn rules_are_read_strictly() {
    let good = json!([{"object": "Deployment/web", "field": ".spec.replicas", "do": "take"}]);
    assert_eq!(rules(&good).expect("rules").len(), 1);
    assert_eq!(rules(&Value::Null), Ok(Vec::new()));
    for bad in [
        json!({"object": "Deployment/web"}),
        json!([{"object": "Deployment/web", "field": ".spec", "do": "steal"}]),
        json!([{"object": "Deployment", "field": ".spec", "do": "take"}]),
        json!([{"object": "Deployment/web", "field": "spec", "do": "take"}]),
        json!([{"object": "Deployment/web", "field": ".", "do": "take"}]),
        json!([{"object": "Deployment/web", "field": ".spec", "do": "take", "why": ""}]),
    ] {
        assert!(rules(&bad).is_err(), "{bad}");
    }
}

#[test]
fn authors_may_leave_fields_and_autoscalers_have_their_replicas() {
    let (target, mut object) = deployment();
    object["metadata"]["annotations"] = json!({"packages.deckhouse.io/yield-fields": ".spec.paused, .spec.template"});
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let scaler_target = ObjectRef::of(&scaler).expect("a reference");
    let objects = [
        ReleaseObject { target, object, source: String::new() },
        ReleaseObject { target: scaler_target, object: scaler, source: String::new() },
    ];
    assert_eq!(
        own_rules(&objects),
        [
            rule("Deployment.apps/web", ".spec.paused", Settlement::Yield),
            rule("Deployment.apps/web", ".spec.template", Settlement::Yield),
            rule("Deployment/web", ".spec.replicas", Settlement::Yield),
        ]
    );
}
