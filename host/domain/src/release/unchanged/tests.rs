#![allow(clippy::needless_pass_by_value, reason = "a test that passes `json!` by value reads better")]

use serde_json::{Value, json};

use super::changes_nothing;

fn entry(manager: &str, operation: &str, api_version: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn with_entries(object: &Value, entries: Value) -> Value {
    let mut live = object.clone();
    live["metadata"]["managedFields"] = entries;
    live["metadata"]["resourceVersion"] = "7".into();
    live
}

fn with_fields(object: &Value, fields: Value) -> Value {
    let api_version = object["apiVersion"].as_str().expect("text");
    with_entries(object, json!([entry("barbless", "Apply", api_version, fields)]))
}

fn config_map() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
        "metadata": {"name": "c", "namespace": "demo", "labels": {"l": "x"}},
    })
}

fn config_map_fields() -> Value {
    json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {}}})
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"spec": {"nodeSelector": {"disk": "fast"}, "containers": [
            {"name": "main", "args": ["-v"], "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}], "securityContext": {}},
        ]}}},
    })
}

fn deployment_fields() -> Value {
    json!({"f:spec": {"f:selector": {}, "f:template": {"f:spec": {"f:nodeSelector": {}, "f:containers": {
        "k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:args": {}, "f:securityContext": {}, "f:ports": {
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
            "k:{\"containerPort\":53,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}},
        }},
    }}}}})
}

fn live_deployment() -> Value {
    let mut live = deployment();
    live["spec"]["replicas"] = 1.into();
    let container = &mut live["spec"]["template"]["spec"]["containers"][0];
    container["ports"][0]["protocol"] = "TCP".into();
    container["imagePullPolicy"] = "Always".into();
    live
}

#[test]
fn what_is_there_as_it_is_wanted_is_not_sent() {
    let mut live = with_fields(&config_map(), config_map_fields());
    assert!(changes_nothing(&config_map(), &live, "barbless"));
    // Others may have more, and may want the same.
    live["data"]["b"] = "2".into();
    live["metadata"]["labels"]["m"] = "y".into();
    let entries = live["metadata"]["managedFields"].as_array_mut().expect("a list");
    entries.push(entry("kubectl", "Update", "v1", json!({"f:data": {"f:a": {}, "f:b": {}}})));
    entries.push(json!({"manager": "barbless", "operation": "Apply", "subresource": "status", "fieldsV1": {}}));
    assert!(changes_nothing(&config_map(), &live, "barbless"));

    let live = with_fields(&live_deployment(), deployment_fields());
    assert!(changes_nothing(&deployment(), &live, "barbless"), "defaults beside what is sent are no difference");

    let set = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "c"}, "spec": {"names": ["a", "b"]}});
    let live = with_fields(&set, json!({"f:spec": {"f:names": {"v:\"a\"": {}, "v:\"b\"": {}}}}));
    assert!(changes_nothing(&set, &live, "barbless"));
    let bare = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "c", "namespace": "demo"}});
    assert!(changes_nothing(&bare, &with_fields(&bare, json!({})), "barbless"));
}

#[test]
fn a_difference_is_sent() {
    let live = with_fields(&config_map(), config_map_fields());
    let differences: [(&str, Value); 9] = [
        ("/data/a", json!("2")),
        ("/data/a", json!(1)),
        ("/data/a", json!(null)),
        ("/data", json!({"a": "1", "b": "2"})),
        ("/data", json!({})),
        ("/metadata/labels", json!({})),
        ("/metadata/labels", json!({"l": "x", "m": "y"})),
        ("/metadata/name", json!("d")),
        ("/apiVersion", json!("v2")),
    ];
    for (pointer, value) in differences {
        let mut wanted = config_map();
        *wanted.pointer_mut(pointer).expect("there") = value;
        assert!(!changes_nothing(&wanted, &live, "barbless"), "{wanted}");
    }
    for (field, value) in
        [("data", json!(null)), ("status", json!({"a": 1})), ("spec", json!({})), ("immutable", json!(true))]
    {
        let mut wanted = config_map();
        wanted[field] = value;
        assert!(!changes_nothing(&wanted, &live, "barbless"), "{wanted}");
    }
    for field in ["finalizers", "ownerReferences", "resourceVersion", "generateName", "annotations"] {
        let mut wanted = config_map();
        wanted["metadata"][field] = json!({"a": "b"});
        assert!(!changes_nothing(&wanted, &live, "barbless"), "{wanted}");
    }
    // Somebody changed it, took something off, or is deleting it.
    for (pointer, value) in [("/data/a", json!("2")), ("/data", json!({})), ("/metadata/labels", json!(null))] {
        let mut live = live.clone();
        *live.pointer_mut(pointer).expect("there") = value;
        assert!(!changes_nothing(&config_map(), &live, "barbless"), "{live}");
    }
    let mut going = live.clone();
    going["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into();
    assert!(!changes_nothing(&config_map(), &going, "barbless"));
}

#[test]
fn fields_that_are_not_exactly_those_that_would_be_sent_are_sent() {
    let sets = [
        // A field that is no longer wanted has to go; one that is not ours yet has to become it.
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {}, "f:b": {}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {}}, "f:immutable": {}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}, "f:finalizers": {}}, "f:data": {"f:a": {}}}),
        json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:data": {"f:a": {}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {"f:b": {}}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"a": {}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"i:0": {}}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": 1}}),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": []}),
        json!({}),
        json!("everything"),
        json!(null),
    ];
    for fields in sets {
        let live = with_fields(&config_map(), fields);
        assert!(!changes_nothing(&config_map(), &live, "barbless"), "{live}");
    }
}

#[test]
fn an_entry_that_is_not_ours_counts_for_nothing() {
    let fields = config_map_fields;
    let mut elsewhere = entry("barbless", "Apply", "v1", fields());
    elsewhere["subresource"] = "status".into();
    let mut unknown = entry("barbless", "Apply", "v1", fields());
    unknown["fieldsType"] = "FieldsV2".into();
    let entries = [
        json!([entry("helm", "Apply", "v1", fields())]),
        json!([entry("barbless", "Update", "v1", fields())]),
        json!([entry("barbless", "Apply", "v1beta1", fields())]),
        json!([elsewhere]),
        json!([unknown]),
        json!([entry("barbless", "Apply", "v1", fields()), entry("barbless", "Apply", "v1", fields())]),
        json!([{"manager": ["barbless"]}, 7, null]),
        json!([]),
        json!({}),
    ];
    for entries in entries {
        let live = with_entries(&config_map(), entries);
        assert!(!changes_nothing(&config_map(), &live, "barbless"), "{live}");
    }
    assert!(!changes_nothing(&config_map(), &config_map(), "barbless"), "a list may leave the fields out");
    assert!(!changes_nothing(&json!(null), &json!(7), "barbless"));
}

#[test]
fn items_of_lists_are_ours_in_our_order_or_are_sent() {
    let live = with_fields(&live_deployment(), deployment_fields());
    let ports = "/spec/template/spec/containers/0/ports";
    let of = |ports: Value| ports;
    for value in [
        of(json!([{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80}])),
        of(json!([{"containerPort": 80}])),
        of(json!([{"containerPort": 80}, {"containerPort": 80}])),
        of(json!([{"containerPort": 80}, {"containerPort": 53}])),
        of(json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}])),
        of(json!([{}, {"containerPort": 53, "protocol": "UDP"}])),
        of(json!([80, 53])),
        of(json!([])),
    ] {
        let mut wanted = deployment();
        *wanted.pointer_mut(ports).expect("there") = value;
        assert!(!changes_nothing(&wanted, &live, "barbless"), "{wanted}");
    }
    // Somebody put a container of their own in, or turned the ports around.
    let mut more = live.clone();
    more["spec"]["template"]["spec"]["containers"].as_array_mut().expect("a list").push(json!({"name": "proxy"}));
    assert!(!changes_nothing(&deployment(), &more, "barbless"));
    let mut turned = live.clone();
    turned.pointer_mut(ports).and_then(Value::as_array_mut).expect("a list").reverse();
    assert!(!changes_nothing(&deployment(), &turned, "barbless"));
    for broken in ["k:{\"containerPort\":80", "k:{}", "k:[80]", "v:{", "i:0", "x", "f:a"] {
        let mut live = live.clone();
        let list = live.pointer_mut("/metadata/managedFields/0/fieldsV1/f:spec/f:template/f:spec/f:containers");
        let list = list.and_then(Value::as_object_mut).expect("a map");
        let container = list.values_mut().next().expect("a container");
        let ports = container["f:ports"].as_object_mut().expect("ports");
        let first = ports.remove("k:{\"containerPort\":80,\"protocol\":\"TCP\"}").expect("a port");
        ports.insert(broken.to_owned(), first);
        assert!(!changes_nothing(&deployment(), &live, "barbless"), "{broken}");
    }
}

#[test]
fn a_map_that_may_have_been_sent_empty_is_sent() {
    let wanted = |api_version: &str, field: &str| json!({"apiVersion": api_version, "kind": "K", "metadata": {"name": "k"}, "spec": {field: {"a": "b"}}});
    let fields = |field: &str| json!({"f:spec": {format!("f:{field}"): {}}});
    for (api_version, field, certain) in [
        ("v1", "selector", true),
        ("apps/v1", "selector", true),
        ("apps/v1", "strategy", false),
        ("example.org/v1", "selector", false),
        ("gateway.networking.k8s.io/v1", "selector", false),
    ] {
        let wanted = wanted(api_version, field);
        let live = with_fields(&wanted, fields(field));
        assert_eq!(changes_nothing(&wanted, &live, "barbless"), certain, "{api_version} {field}");
    }
    // Somebody wants a part of it, so it is not wanted as a whole.
    for (field, value, part) in [
        ("selector", json!({"a": "b"}), json!({"f:a": {}})),
        ("names", json!([{"name": "b"}]), json!({"k:{\"name\":\"b\"}": {".": {}}})),
    ] {
        let mut wanted = wanted("v1", field);
        wanted["spec"][field] = value;
        let mut live = with_fields(&wanted, fields(field));
        assert!(changes_nothing(&wanted, &live, "barbless"));
        let parts = json!({"f:spec": {format!("f:{field}"): part}});
        live["metadata"]["managedFields"].as_array_mut().expect("a list").push(entry("o", "Update", "v1", parts));
        assert!(!changes_nothing(&wanted, &live, "barbless"));
    }
    // An empty map that others filled.
    let mut wanted = wanted("v1", "selector");
    wanted["spec"]["selector"] = json!({});
    let mut live = with_fields(&wanted, fields("selector"));
    assert!(changes_nothing(&wanted, &live, "barbless"));
    live["spec"]["selector"]["a"] = "b".into();
    assert!(!changes_nothing(&wanted, &live, "barbless"));
}
