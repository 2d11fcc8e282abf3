//! Patches as tables.

use serde_json::{Value, json};

use crate::schema;

fn deployment(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn check(old: &Value, patch: &Value, expected: &Value) {
    let ty = schema::builtin().named("io.k8s.api.apps.v1.Deployment").unwrap();
    let mut target = deployment(old);
    super::strategic(&mut target, &deployment(patch), ty).unwrap();
    assert_eq!(target, deployment(expected), "{patch}");
}

#[test]
fn strategic_merge_follows_the_merge_keys() {
    let two = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
    check(
        &two,
        &json!({"containers": [{"name": "b", "image": "2"}]}),
        &json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
    );
    check(
        &two,
        &json!({"containers": [{"name": "c"}]}),
        &json!({"containers": [{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
    );
    check(
        &two,
        &json!({"containers": [{"name": "a", "$patch": "delete"}]}),
        &json!({"containers": [{"name": "b", "image": "1"}]}),
    );
    check(
        &two,
        &json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
        &json!({"containers": [{"name": "z"}]}),
    );
    check(&two, &json!({"containers": null}), &json!({}));
    check(
        &json!({"containers": [{"name": "a", "args": ["1", "2"]}]}),
        &json!({"containers": [{"name": "a", "args": ["3"]}]}),
        &json!({"containers": [{"name": "a", "args": ["3"]}]}),
    );
    check(
        &json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}], "env": [{"name": "X", "value": "1"}]}]}),
        &json!({"containers": [{"name": "a", "ports": [{"containerPort": 81}], "env": [{"name": "X", "value": "2"}]}]}),
        &json!({"containers": [{"name": "a", "ports": [{"containerPort": 81}, {"containerPort": 80}], "env": [{"name": "X", "value": "2"}]}]}),
    );
}

#[test]
fn strategic_merge_knows_its_directives() {
    check(
        &json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
        &json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "a", "image": "x"}]}),
        &json!({"containers": [{"name": "b"}, {"name": "c"}, {"name": "a", "image": "x"}]}),
    );
    check(
        &json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        &json!({"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}),
        &json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
    );
    check(
        &json!({"nodeSelector": {"a": "1", "b": "2"}}),
        &json!({"nodeSelector": {"$patch": "replace", "c": "3"}}),
        &json!({"nodeSelector": {"c": "3"}}),
    );
    check(&json!({"securityContext": {"runAsUser": 1}}), &json!({"securityContext": {"$patch": "delete"}}), &json!({}));
}

#[test]
fn strategic_merge_of_scalars_is_a_union() {
    let ty = schema::builtin().named("io.k8s.api.core.v1.ConfigMap").unwrap();
    let mut target = json!({"metadata": {"finalizers": ["a/1", "b/2"]}});
    super::strategic(&mut target, &json!({"metadata": {"finalizers": ["b/2", "c/3"]}}), ty).unwrap();
    assert_eq!(target["metadata"]["finalizers"], json!(["a/1", "b/2", "c/3"]));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/1"]}});
    super::strategic(&mut target, &patch, ty).unwrap();
    assert_eq!(target["metadata"]["finalizers"], json!(["b/2", "c/3"]));
}

#[test]
fn bad_strategic_patches_are_refused() {
    let ty = schema::builtin().named("io.k8s.api.core.v1.Pod").unwrap();
    for patch in [
        json!(1),
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"spec": {"containers": ["x"]}}),
        json!({"spec": {"$patch": "boom"}}),
    ] {
        let error = super::strategic(&mut json!({}), &patch, ty).unwrap_err();
        assert_eq!(error.code, 400, "{patch}");
    }
}

#[test]
fn json_patches_test_and_are_bounded() {
    let mut target = json!({"a": {"b": 1}});
    super::json(&mut target, br#"[{"op":"test","path":"/a/b","value":1},{"op":"add","path":"/a/c","value":[1]},{"op":"add","path":"/a/c/-","value":2}]"#).unwrap();
    assert_eq!(target, json!({"a": {"b": 1, "c": [1, 2]}}));
    for (patch, code) in [
        (&br#"[{"op":"test","path":"/a/b","value":2}]"#[..], 422),
        (br#"[{"op":"remove","path":"/nope"}]"#, 422),
        (br#"{"op":"remove"}"#, 400),
        (b"not json", 400),
    ] {
        assert_eq!(super::json(&mut target.clone(), patch).unwrap_err().code, code);
    }
    let many = format!("[{}]", vec![r#"{"op":"test","path":"","value":0}"#; super::OPERATIONS_MAX + 1].join(","));
    assert_eq!(super::json(&mut json!(0), many.as_bytes()).unwrap_err().code, 413);
    let deepening =
        (0..100).map(|n| format!(r#"{{"op":"copy","from":"/a","path":"/a{}/a"}}"#, "/a".repeat((1 << n.min(12)) - 1)));
    let deepening = format!("[{}]", deepening.collect::<Vec<_>>().join(","));
    assert!(super::json(&mut json!({"a": {}}), deepening.as_bytes()).is_err());
    let nested = format!(r#"[{{"op":"add","path":"/a","value":{}{}}}]"#, "[".repeat(100), "]".repeat(100));
    let again =
        format!(r#"[{{"op":"add","path":"/a{}/-","value":{}{}}}]"#, "/0".repeat(99), "[".repeat(100), "]".repeat(100));
    let mut target = json!({});
    super::json(&mut target, nested.as_bytes()).unwrap();
    assert_eq!(super::json(&mut target, again.as_bytes()).unwrap_err().code, 400);
    let doubling = format!("[{}]", vec![r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 64].join(","));
    assert_eq!(super::json(&mut json!({"a": ["0123456789"]}), doubling.as_bytes()).unwrap_err().code, 413);
}
