//! Decoding of built-in objects.

use serde_json::{Value, json};

use super::*;
use crate::schema;

fn decode(kind: &str, value: Value) -> Result<(Value, Unknown), String> {
    let ty = schema::builtin().named(kind).unwrap();
    let mut value = value;
    let unknown = normalise(&mut value, ty, kind.rsplit('.').next().unwrap()).map_err(|e| e.message)?;
    Ok((value, unknown))
}

const POD: &str = "io.k8s.api.core.v1.Pod";

#[test]
fn empty_parts_are_dropped_as_typed_decoding_would() {
    let (value, unknown) = decode(
        POD,
        json!({"metadata": {"labels": {}, "annotations": null, "finalizers": []},
        "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {}, "bogus": {"a": 1}}}),
    )
    .unwrap();
    assert_eq!(value, json!({"metadata": {}, "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}}));
    assert_eq!(unknown, ["spec.bogus"]);
}

#[test]
fn values_of_the_wrong_type_are_refused_with_their_place() {
    for (value, field) in [
        (json!({"spec": {"hostNetwork": "yes"}}), ".spec.hostNetwork of type bool"),
        (json!({"spec": {"priority": "1"}}), ".spec.priority of type int32"),
        (json!({"spec": {"priority": 1.5}}), ".spec.priority of type int32"),
        (json!({"spec": {"containers": {}}}), ".spec.containers of type slice"),
        (json!({"spec": {"containers": [{"name": 1}]}}), ".spec.containers[0].name of type string"),
        (json!({"spec": []}), ".spec of type struct"),
    ] {
        let error = decode(POD, value).unwrap_err();
        assert!(error.ends_with(field), "{error}");
    }
}

#[test]
fn numbers_become_what_the_field_is() {
    let (value, _) =
        decode(POD, json!({"spec": {"priority": 3.0, "containers": [{"resources": {"limits": {"cpu": 1}}}]}})).unwrap();
    assert_eq!(value["spec"], json!({"priority": 3, "containers": [{"resources": {"limits": {"cpu": "1"}}}]}));
}

#[test]
fn missing_fields_and_unknown_choices_are_found() {
    let ty = schema::builtin().named(POD).unwrap();
    let value = json!({"spec": {"restartPolicy": "Sometimes", "containers": [{"volumeMounts": [{"name": "x"}]}]}});
    let mut fields = check_required(&value, ty).into_iter().map(|c| c.field).collect::<Vec<_>>();
    fields.sort();
    fields.retain(|f| f != "spec.restartPolicy");
    assert_eq!(fields, ["spec.containers[0].name", "spec.containers[0].volumeMounts[0].mountPath"]);
}

fn causes_of(kind: &str, mut object: Value) -> Vec<String> {
    let catalog = crate::catalog::Catalog::default();
    let version = match kind {
        "Deployment" => "apps/v1",
        "Job" => "batch/v1",
        _ => "v1",
    };
    let resource = catalog.by_kind(version, kind).unwrap();
    default(&resource.group, kind, &mut object);
    json::default(&mut object, &["metadata", "name"], json!("x"));
    created(&resource, &object).into_iter().map(|c| format!("{} {}: {}", c.field, c.reason, c.message)).collect()
}

#[test]
fn what_users_get_wrong_is_told_in_the_words_of_the_real_server() {
    let pod = |container: Value| json!({"spec": {"containers": [container]}});
    let workload = |spec: Value| {
        let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        json_patch::merge(&mut object, &json!({"spec": spec}));
        object
    };
    let rows = [
        (
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/"}]},
                {"name": "a", "image": ""}]}}),
            vec![
                "spec.containers[0].volumeMounts[0].name FieldValueNotFound: Not found: \"v\"",
                "spec.containers[1].image FieldValueRequired: Required value",
                "spec.containers[1].name FieldValueDuplicate: Duplicate value: \"a\"",
            ],
        ),
        (
            "Pod",
            pod(
                json!({"name": "a", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1000m"}}}),
            ),
            vec![
                "spec.containers[0].resources.requests FieldValueInvalid: Invalid value: \"2\": must be less than or equal \
                 to cpu limit of 1000m",
            ],
        ),
        (
            "ConfigMap",
            json!({"metadata": {"labels": {"a/b/c": "x"}}}),
            vec![
                "metadata.labels FieldValueInvalid: Invalid value: \"a/b/c\": a valid label key must consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
            ],
        ),
        (
            "ConfigMap",
            json!({"metadata": {"finalizers": ["unqualified"]}}),
            vec![
                "metadata.finalizers[0] FieldValueInvalid: Invalid value: \"unqualified\": name is neither a standard \
                 finalizer name nor is it fully qualified",
            ],
        ),
        (
            "Secret",
            json!({"type": "kubernetes.io/tls"}),
            vec![
                "data[tls.crt] FieldValueRequired: Required value",
                "data[tls.key] FieldValueRequired: Required value",
            ],
        ),
        (
            "Service",
            json!({"metadata": {"name": "a.b"}, "spec": {"type": "NodePort", "ports": [{"port": 80}, {"port": 80}]}}),
            vec![
                "metadata.name FieldValueInvalid: Invalid value: \"a.b\": must not contain dots",
                "spec.ports[0].name FieldValueRequired: Required value",
                "spec.ports[1].name FieldValueRequired: Required value",
                "spec.ports[1] FieldValueDuplicate: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\
                 \"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
        (
            "Deployment",
            workload(json!({"selector": null, "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}})),
            vec![
                "spec.selector FieldValueRequired: Required value",
                "spec.template.metadata.labels FieldValueInvalid: Invalid value: {\"a\":\"b\"}: `selector` does not match \
                 template `labels`",
                "spec.strategy.rollingUpdate FieldValueForbidden: Forbidden: may not be specified when strategy `type` is \
                 'Recreate'",
            ],
        ),
        (
            "Job",
            workload(json!({"manualSelector": true, "completionMode": "Indexed", "parallelism": -1})),
            vec![
                "spec.parallelism FieldValueInvalid: Invalid value: -1: must be greater than or equal to 0",
                "spec.completions FieldValueRequired: Required value: when completion mode is Indexed",
                "spec.template.spec.restartPolicy FieldValueRequired: Required value: valid values: \"OnFailure\", \
                 \"Never\"",
            ],
        ),
    ];
    for (kind, object, expected) in rows {
        assert_eq!(causes_of(kind, object.clone()), expected, "{kind} {object}");
    }
}

#[test]
fn a_service_loses_what_belongs_to_the_type_that_it_had() {
    let old = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster",
        "allocateLoadBalancerNodePorts": true, "ports": [{"port": 80, "nodePort": 30000}]}});
    for (kind, rest) in [
        (
            "ClusterIP",
            json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack"}),
        ),
        ("ExternalName", json!({})),
    ] {
        let mut new = old.clone();
        new["spec"]["type"] = json!(kind);
        drop_dependent(&old, &mut new);
        let mut expected = json!({"type": kind, "ports": [{"port": 80}]});
        json_patch::merge(&mut expected, &rest);
        assert_eq!(new["spec"], expected);
    }
}
