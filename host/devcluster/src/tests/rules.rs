//! What the API refuses and keeps, as a client sees it: immutable fields, scale, dry runs, versions of definitions.

use super::http::Wire;
use super::*;

const PEN: (&str, &str) = ("content-type", "application/merge-patch+json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

fn base(api_version: &str, plural: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let scope = if matches!(plural, "storageclasses" | "priorityclasses" | "clusterrolebindings" | "persistentvolumes")
    {
        ""
    } else {
        "/namespaces/default"
    };
    format!("/{root}/{api_version}{scope}/{plural}")
}

async fn apply(wire: &Wire, path: &str, query: &str, body: Value) -> (u16, Value) {
    wire.json("PATCH", &format!("{path}?{query}"), &[APPLY], body).await
}

fn causes(status: &Value) -> Vec<(&str, &str, &str)> {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes
        .map(|c| (c["field"].as_str().unwrap(), c["reason"].as_str().unwrap(), c["message"].as_str().unwrap()))
        .collect()
}

fn pods(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[tokio::test]
async fn fields_that_are_fixed_are_refused_with_their_cause() {
    let wire = Wire::start().await;
    let labels = json!({"a": "b"});
    let selector = json!({"matchLabels": labels});
    let workload = json!({"spec": {"selector": selector, "template": pods(labels.clone())}});
    let mut set = workload.clone();
    set["spec"]["serviceName"] = json!("s");
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
    let other = json!({"matchLabels": {"a": "c"}});
    let both = json!({"spec": {"selector": other, "template": {"metadata": {"labels": {"a": "c"}}}}});
    let statefulset = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                       'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                       'minReadySeconds' are forbidden";
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claim_why = "Forbidden: spec is immutable after creation except resources.requests and \
                     volumeAttributesClassName for bound claims";
    let frozen = "Forbidden: field is immutable when `immutable` is set";
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}});
    let (invalid, forbidden) = ("FieldValueInvalid", "FieldValueForbidden");
    let immutable = "field is immutable";
    // Version, plural, object, patch, and the field, reason and end of the message that it is refused with.
    let rows = [
        ("apps/v1", "deployments", &workload, &both, "spec.selector", invalid, immutable),
        ("apps/v1", "daemonsets", &workload, &both, "spec.selector", invalid, immutable),
        ("apps/v1", "replicasets", &workload, &both, "spec.selector", invalid, immutable),
        ("apps/v1", "statefulsets", &set, &both, "spec", forbidden, statefulset),
        ("apps/v1", "statefulsets", &set, &json!({"spec": {"serviceName": "t"}}), "spec", forbidden, statefulset),
        (
            "batch/v1",
            "jobs",
            &job,
            &json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}),
            "spec.template",
            invalid,
            immutable,
        ),
        ("batch/v1", "jobs", &job, &json!({"spec": {"completions": 2}}), "spec.completions", invalid, immutable),
        ("batch/v1", "jobs", &job, &json!({"spec": {"selector": other}}), "spec.selector", invalid, immutable),
        (
            "batch/v1",
            "jobs",
            &job,
            &json!({"spec": {"completionMode": "Indexed"}}),
            "spec.completionMode",
            invalid,
            immutable,
        ),
        (
            "v1",
            "services",
            &json!({"spec": {"ports": [{"port": 80}]}}),
            &json!({"spec": {"clusterIP": "10.96.9.9"}}),
            "spec.clusterIPs[0]",
            invalid,
            "may not change once set",
        ),
        (
            "v1",
            "persistentvolumeclaims",
            &claim,
            &json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            "spec",
            forbidden,
            claim_why,
        ),
        (
            "v1",
            "persistentvolumeclaims",
            &claim,
            &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            "spec",
            forbidden,
            claim_why,
        ),
        (
            "v1",
            "configmaps",
            &json!({"data": {"a": "1"}, "immutable": true}),
            &json!({"data": {"a": "2"}}),
            "data",
            forbidden,
            frozen,
        ),
        (
            "v1",
            "configmaps",
            &json!({"data": {"a": "1"}, "immutable": true}),
            &json!({"immutable": null}),
            "immutable",
            forbidden,
            frozen,
        ),
        (
            "v1",
            "secrets",
            &json!({"data": {"a": "MQ=="}, "immutable": true}),
            &json!({"data": {"b": "MQ=="}}),
            "data",
            forbidden,
            frozen,
        ),
        ("v1", "secrets", &json!({}), &json!({"type": "x/y"}), "type", invalid, immutable),
        (
            "rbac.authorization.k8s.io/v1",
            "rolebindings",
            &binding,
            &json!({"roleRef": {"name": "s"}}),
            "roleRef",
            invalid,
            "cannot change roleRef",
        ),
        (
            "storage.k8s.io/v1",
            "storageclasses",
            &json!({"provisioner": "p"}),
            &json!({"parameters": {"a": "b"}}),
            "parameters",
            forbidden,
            "Forbidden: updates to parameters are forbidden.",
        ),
        (
            "storage.k8s.io/v1",
            "storageclasses",
            &json!({"provisioner": "p"}),
            &json!({"provisioner": "q"}),
            "provisioner",
            forbidden,
            "Forbidden: updates to provisioner are forbidden.",
        ),
        (
            "scheduling.k8s.io/v1",
            "priorityclasses",
            &json!({"value": 1}),
            &json!({"value": 2}),
            "value",
            forbidden,
            "Forbidden: may not be changed in an update.",
        ),
    ];
    for (index, (version, plural, object, patch, field, reason, message)) in rows.into_iter().enumerate() {
        let path = base(version, plural);
        let mut object = object.clone();
        object["metadata"] = json!({"name": format!("n{index}")});
        let (code, made) = wire.json("POST", &path, &[], object).await;
        assert_eq!(code, 201, "{plural}: {made}");
        let path = format!("{path}/n{index}");
        let (code, refused) = wire.json("PATCH", &path, &[PEN], patch.clone()).await;
        assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")), "{plural} {patch}: {refused}");
        let found = causes(&refused);
        assert!(
            found.iter().any(|(f, r, m)| *f == field && *r == reason && m.ends_with(message)),
            "{plural} {patch}: {found:#?}"
        );
        let (_, kept) = wire.get(&path).await;
        assert_eq!(kept["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    }
}

#[tokio::test]
async fn fields_that_may_change_do() {
    let wire = Wire::start().await;
    let labels = json!({"a": "b"});
    let set = json!({"spec": {"serviceName": "s", "selector": {"matchLabels": labels}, "template": pods(labels.clone()),
        "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    let job = |spec: Value| {
        let mut job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
        for (key, value) in spec.as_object().unwrap() {
            job["spec"][key] = value.clone();
        }
        job
    };
    let indexed = job(json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}));
    let rows = [
        (
            "apps/v1",
            "statefulsets",
            &set,
            json!({"spec": {"replicas": 2, "minReadySeconds": 3, "template": {"metadata": {"annotations": {"x": "y"}}}}}),
        ),
        (
            "batch/v1",
            "jobs",
            &job(json!({})),
            json!({"spec": {"parallelism": 2, "backoffLimit": 1, "activeDeadlineSeconds": 5, "suspend": true}}),
        ),
        (
            "batch/v1",
            "jobs",
            &job(json!({"suspend": true})),
            json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}),
        ),
        ("batch/v1", "jobs", &indexed, json!({"spec": {"completions": 3, "parallelism": 3}})),
        (
            "v1",
            "services",
            &json!({"spec": {"ports": [{"port": 80}]}}),
            json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 81}]}}),
        ),
        ("v1", "configmaps", &json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}, "immutable": true})),
        (
            "v1",
            "configmaps",
            &json!({"data": {"a": "1"}, "immutable": true}),
            json!({"metadata": {"labels": {"x": "y"}}}),
        ),
        ("storage.k8s.io/v1", "storageclasses", &json!({"provisioner": "p"}), json!({"allowVolumeExpansion": true})),
        (
            "networking.k8s.io/v1",
            "ingresses",
            &json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}}),
            json!({"spec": {"ingressClassName": "x", "defaultBackend": {"service": {"name": "t"}}}}),
        ),
    ];
    for (index, (version, plural, object, patch)) in rows.into_iter().enumerate() {
        let path = base(version, plural);
        let mut object = object.clone();
        object["metadata"] = json!({"name": format!("n{index}")});
        let (code, made) = wire.json("POST", &path, &[], object).await;
        assert_eq!(code, 201, "{plural}: {made}");
        let (code, changed) = wire.json("PATCH", &format!("{path}/n{index}"), &[PEN], patch.clone()).await;
        assert_eq!(code, 200, "{plural} {patch}: {changed}");
        assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    }
}

#[tokio::test]
async fn a_bound_claim_may_grow_but_not_shrink() {
    let (_cluster, client) = cluster().await;
    let api = Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::default_namespaced(client);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    api.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let bound = |c: Option<&k8s_openapi::api::core::v1::PersistentVolumeClaim>| {
        c.and_then(|c| c.status.as_ref()).and_then(|s| s.phase.as_deref()) == Some("Bound")
    };
    kube::runtime::wait::await_condition(api.clone(), "c", bound).await.unwrap();
    let size = |size: &str| Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    api.patch("c", &PatchParams::default(), &size("2Gi")).await.unwrap();
    let error = api.patch("c", &PatchParams::default(), &size("512Mi")).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    let causes = status.details.unwrap().causes;
    assert_eq!(
        (causes[0].field.as_str(), causes[0].message.as_str()),
        ("spec.resources.requests.storage", "Forbidden: field can not be less than status.capacity")
    );
}

fn owners(object: &Value, field: &str) -> Vec<(String, String, String)> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours = entries.filter(|e| e["fieldsV1"]["f:spec"].get(field).is_some());
    ours.map(|e| {
        let text = |key: &str| e[key].as_str().unwrap_or_default().to_owned();
        (text("manager"), text("operation"), text("subresource"))
    })
    .collect()
}

#[tokio::test]
async fn scaling_moves_the_ownership_of_replicas() {
    let wire = Wire::start().await;
    let path = format!("{}/web", base("apps/v1", "deployments"));
    let config = |replicas: Option<i64>| {
        let mut config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pods(json!({"a": "b"}))}});
        if let Some(replicas) = replicas {
            config["spec"]["replicas"] = json!(replicas);
        }
        config
    };
    let (code, _) = apply(&wire, &path, "fieldManager=helm", config(Some(2))).await;
    assert_eq!(code, 201);
    let scale = format!("{path}/scale?fieldManager=kubectl");
    let (code, scaled) = wire.json("PATCH", &scale, &[PEN], json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scaled["spec"]["replicas"], &scaled["kind"]), (200, &json!(5), &json!("Scale")));
    let (_, live) = wire.get(&path).await;
    let scale_owner = ("kubectl".to_owned(), "Update".to_owned(), "scale".to_owned());
    assert_eq!(owners(&live, "f:replicas"), [scale_owner]);
    assert_eq!(live["metadata"]["generation"], 2);
    let (code, refused) = apply(&wire, &path, "fieldManager=helm", config(Some(3))).await;
    assert_eq!(code, 409, "{refused}");
    let message = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas";
    assert_eq!(refused["message"], message);
    assert_eq!(
        causes(&refused),
        [(
            ".spec.replicas",
            "FieldManagerConflict",
            "conflict with \"kubectl\" with subresource \"scale\" using apps/v1"
        )]
    );
    let (code, left) = apply(&wire, &path, "fieldManager=helm", config(None)).await;
    assert_eq!((code, &left["spec"]["replicas"]), (200, &json!(5)));
    let (code, taken) = apply(&wire, &path, "fieldManager=helm&force=true", config(Some(3))).await;
    assert_eq!((code, &taken["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(owners(&taken, "f:replicas"), [("helm".to_owned(), "Apply".to_owned(), String::new())]);
    // A PUT of a scale honours its version.
    let (_, mut current) = wire.get(&format!("{path}/scale")).await;
    current["spec"]["replicas"] = json!(4);
    let (code, _) = wire.json("PUT", &scale, &[], current.clone()).await;
    assert_eq!(code, 200);
    let (code, _) = wire.json("PUT", &scale, &[], current).await;
    assert_eq!(code, 409);
    // A dry run changes nothing; a scale can be applied too, with conflicts of its own.
    let (code, _) = wire.json("PATCH", &format!("{scale}&dryRun=All"), &[PEN], json!({"spec": {"replicas": 9}})).await;
    assert_eq!((code, wire.get(&path).await.1["spec"]["replicas"].clone()), (200, json!(4)));
    let wanted =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 7}});
    let scale = format!("{path}/scale");
    let (code, refused) = apply(&wire, &scale, "fieldManager=hpa", wanted.clone()).await;
    assert_eq!((code, causes(&refused)[0].0), (409, ".spec.replicas"), "{refused}");
    let (code, _) = apply(&wire, &scale, "fieldManager=hpa&force=true", wanted).await;
    assert_eq!(code, 200);
    let (_, live) = wire.get(&path).await;
    assert_eq!(owners(&live, "f:replicas"), [("hpa".to_owned(), "Apply".to_owned(), "scale".to_owned())]);
}

#[tokio::test]
async fn a_dry_run_passes_all_checks_and_stores_nothing() {
    let wire = Wire::start().await;
    let path = base("apps/v1", "deployments");
    let revision = |list: &Value| list["metadata"]["resourceVersion"].clone();
    let before = revision(&wire.get(&path).await.1);
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pods(json!({"a": "b"}))}});
    let (code, made) = wire.json("POST", &format!("{path}?dryRun=All"), &[], object.clone()).await;
    assert_eq!((code, &made["spec"]["replicas"]), (201, &json!(1)), "{made}");
    assert!(made["metadata"]["uid"].is_string() && made["metadata"].get("resourceVersion").is_none(), "{made}");
    let item = format!("{path}/web");
    let (code, made) = apply(&wire, &item, "dryRun=All&fieldManager=m", object.clone()).await;
    assert_eq!((code, &made["spec"]["strategy"]["type"]), (201, &json!("RollingUpdate")));
    let mut bad = object.clone();
    bad["spec"]["template"]["metadata"]["labels"] = json!({"a": "c"});
    let (code, _) = wire.json("POST", &format!("{path}?dryRun=All"), &[], bad).await;
    assert_eq!(code, 422);
    let (code, _) = wire.json("POST", &format!("{path}?dryRun=Some"), &[], object.clone()).await;
    assert_eq!(code, 422);
    assert_eq!(wire.get(&item).await.0, 404);
    assert_eq!(revision(&wire.get(&path).await.1), before, "a dry run takes no revision");

    let (_, real) = wire.json("POST", &path, &[], object.clone()).await;
    let version = revision(&real);
    let (code, _) = wire.json("POST", &format!("{path}?dryRun=All"), &[], object).await;
    assert_eq!(code, 409);
    let (code, changed) =
        wire.json("PATCH", &format!("{item}?dryRun=All"), &[PEN], json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, &changed["spec"]["replicas"], &changed["metadata"]["generation"]), (200, &json!(4), &json!(2)));
    assert_eq!(revision(&changed), version);
    let (code, refused) = wire
        .json(
            "PATCH",
            &format!("{item}?dryRun=All"),
            &[PEN],
            json!({"spec": {"selector": {"matchLabels": {"z": "z"}}}}),
        )
        .await;
    assert_eq!(code, 422, "{refused}");
    let mut put = real.clone();
    put["metadata"]["resourceVersion"] = json!("1");
    let (code, _) = wire.json("PUT", &format!("{item}?dryRun=All"), &[], put).await;
    assert_eq!(code, 409);
    let (code, _) = wire.json("DELETE", &format!("{item}?dryRun=All"), &[], Value::Null).await;
    assert_eq!(code, 200);
    let (code, _) =
        wire.json("DELETE", &item, &[], json!({"dryRun": ["All"], "propagationPolicy": "Foreground"})).await;
    assert_eq!(code, 200);
    let (code, _) = wire.json("DELETE", &format!("{path}?dryRun=All"), &[], Value::Null).await;
    assert_eq!(code, 200);
    let (_, kept) = wire.get(&item).await;
    assert_eq!((revision(&kept), kept["metadata"].get("deletionTimestamp")), (version, None));
}

#[tokio::test]
async fn client_side_ownership_is_handed_over_by_a_json_patch() {
    let wire = Wire::start().await;
    let maps = base("v1", "configmaps");
    let object = json!({"metadata": {"name": "m", "labels": {"x": "y"}}, "data": {"a": "1"}});
    let (_, made) = wire.json("POST", &format!("{maps}?fieldManager=helm"), &[], object).await;
    let item = format!("{maps}/m");
    let mut entry = made["metadata"]["managedFields"][0].clone();
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("helm"), &json!("Update")));
    entry["operation"] = json!("Apply");
    let patch = |version: &Value| {
        json!([{"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
               {"op": "replace", "path": "/metadata/resourceVersion", "value": version}])
    };
    let kind = ("content-type", "application/json-patch+json");
    let (code, _) = wire.json("PATCH", &item, &[kind], patch(&json!("7"))).await;
    assert_eq!(code, 409, "another version");
    let (code, moved) = wire.json("PATCH", &item, &[kind], patch(&made["metadata"]["resourceVersion"])).await;
    assert_eq!(code, 200, "{moved}");
    assert_eq!(moved["metadata"]["managedFields"], json!([entry]));
    assert_ne!(moved["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let tested = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]);
    assert_eq!(wire.json("PATCH", &item, &[kind], tested).await.0, 422);
    // What the apply leaves out now goes, because the same manager owned it.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "2"}});
    let (code, applied) = apply(&wire, &item, "fieldManager=helm", config).await;
    assert_eq!((code, &applied["data"]["a"], applied["metadata"].get("labels")), (200, &json!("2"), None), "{applied}");
}

fn definition(versions: &[(&str, bool, bool)]) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}});
    let versions = versions
        .iter()
        .map(|(name, served, storage)| json!({"name": name, "served": served, "storage": storage, "schema": schema}));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": versions.collect::<Vec<_>>()}})
}

#[tokio::test]
async fn versions_of_a_definition_come_and_go() {
    let wire = Wire::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let item = format!("{definitions}/widgets.example.com");
    let change = async |versions: &[(&str, bool, bool)]| {
        let (_, live) = wire.get(&item).await;
        let mut new = live;
        new["spec"]["versions"] = definition(versions)["spec"]["versions"].clone();
        wire.json("PUT", &item, &[], new).await
    };
    let (code, made) = wire.json("POST", definitions, &[], definition(&[("v1alpha1", true, true)])).await;
    assert_eq!((code, &made["status"]["storedVersions"]), (201, &json!(["v1alpha1"])), "{made}");
    let widgets = |version: &str| format!("/apis/example.com/{version}/namespaces/default/widgets");
    let widget =
        json!({"apiVersion": "example.com/v1alpha1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}});
    assert_eq!(wire.json("POST", &widgets("v1alpha1"), &[], widget).await.0, 201);

    let (code, changed) = change(&[("v1alpha1", true, false), ("v1", true, true)]).await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v1alpha1", "v1"])), "{changed}");
    let (_, old) = wire.get(&format!("{}/w", widgets("v1alpha1"))).await;
    let (_, new) = wire.get(&format!("{}/w", widgets("v1"))).await;
    assert_eq!((&old["apiVersion"], &new["apiVersion"]), (&json!("example.com/v1alpha1"), &json!("example.com/v1")));
    assert_eq!((&old["metadata"]["uid"], &old["spec"]), (&new["metadata"]["uid"], &new["spec"]));
    let (_, list) = wire.get(&widgets("v1")).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1");

    let (code, _) = change(&[("v1alpha1", false, false), ("v1", true, true)]).await;
    assert_eq!(code, 200);
    assert_eq!(wire.get(&widgets("v1alpha1")).await.0, 404);
    assert_eq!(wire.get("/apis/example.com/v1alpha1").await.0, 404);
    let (_, group) = wire.get("/apis/example.com").await;
    assert_eq!((group["versions"].as_array().unwrap().len(), &group["preferredVersion"]["version"]), (1, &json!("v1")));
    assert_eq!(wire.get(&format!("{}/w", widgets("v1"))).await.0, 200);

    let (code, refused) = change(&[("v1", true, true)]).await;
    assert_eq!(code, 422);
    let (field, reason, message) = causes(&refused)[0];
    assert_eq!((field, reason), ("status.storedVersions[0]", "FieldValueInvalid"));
    assert!(
        message.starts_with(
            "Invalid value: \"v1alpha1\": missing from spec.versions; v1alpha1 was previously a storage version"
        ),
        "{message}"
    );
    // After a migration one says in the status that nothing is stored in it any more.
    let patch = json!({"status": {"storedVersions": ["v1"]}});
    let (code, _) = wire.json("PATCH", &format!("{item}/status"), &[PEN], patch).await;
    assert_eq!(code, 200);
    let (code, changed) = change(&[("v1", true, true)]).await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v1"])), "{changed}");
    let (code, refused) = wire.json("PATCH", &item, &[PEN], json!({"spec": {"names": {"kind": "Gadget"}}})).await;
    assert_eq!((code, causes(&refused)[0].0), (422, "spec.names.kind"), "{refused}");
}

#[tokio::test]
async fn objects_whose_stored_version_is_not_served_are_still_collected() {
    let (cluster, client) = cluster().await;
    let wire = Wire { cluster };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    wire.json("POST", definitions, &[], definition(&[("v1alpha1", true, true), ("v1", true, false)])).await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let owner = wire.make("owner", json!({})).await;
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let widget = json!({"metadata": {"name": "w", "ownerReferences": reference}, "spec": {}});
    assert_eq!(wire.json("POST", widgets, &[], widget).await.0, 201);
    let patch = definition(&[("v1alpha1", false, true), ("v1", true, false)]);
    let patch = json!({"spec": {"versions": patch["spec"]["versions"]}});
    let (code, _) = wire.json("PATCH", &format!("{definitions}/widgets.example.com"), &[PEN], patch).await;
    assert_eq!(code, 200);
    Api::<ConfigMap>::default_namespaced(client).delete("owner", &DeleteParams::background()).await.unwrap();
    let start = std::time::Instant::now();
    while wire.get(&format!("{widgets}/w")).await.0 != 404 {
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

#[tokio::test]
async fn an_apply_of_the_wrong_type_is_an_error_without_a_reason() {
    let wire = Wire::start().await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": 1}});
    let (code, refused) = apply(&wire, &format!("{}/m", base("v1", "configmaps")), "fieldManager=m", config).await;
    assert_eq!((code, refused.get("reason")), (500, None), "{refused}");
    // The namespace of the address is not yet in the object.
    let message = "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .data.a: expected string, got &{1}";
    assert_eq!(refused["message"], message);
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_the_bound_that_it_breaks() {
    let wire = Wire::start().await;
    let text = |bytes: usize| "x".repeat(bytes);
    let encoded = |bytes: usize| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![b'x'; bytes]);
    let (secrets, maps) = (base("v1", "secrets"), base("v1", "configmaps"));
    const MEBIBYTE: usize = 1024 * 1024;
    let secret = |name: &str, bytes: usize| json!({"metadata": {"name": name}, "data": {"k": encoded(bytes)}});
    let (code, _) = wire.json("POST", &secrets, &[], secret("fits", MEBIBYTE)).await;
    assert_eq!(code, 201, "the bound is on the data, not on its base64");
    let (code, refused) = wire.json("POST", &secrets, &[], secret("large", MEBIBYTE + 1)).await;
    let too_long = "Too long: may not be more than 1048576 bytes";
    assert_eq!((code, causes(&refused)), (422, vec![("data", "FieldValueTooLong", too_long)]));
    let map = |name: &str, bytes: usize| json!({"metadata": {"name": name}, "data": {"k": text(bytes)}});
    assert_eq!(wire.json("POST", &maps, &[], map("fits", MEBIBYTE)).await.0, 201);
    let (code, refused) = wire.json("POST", &maps, &[], map("large", MEBIBYTE + 1)).await;
    assert_eq!((code, causes(&refused)), (422, vec![("[]", "FieldValueTooLong", too_long)]));
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": text(MEBIBYTE * 2)});
    let (code, refused) = wire.json("POST", &base("v1", "events"), &[], event).await;
    assert_eq!((code, &refused["message"]), (500, &json!("etcdserver: request is too large")));
}
