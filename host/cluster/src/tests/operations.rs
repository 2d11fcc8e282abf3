use barbless_domain::operation::{Action, Operation, OperationResult, Propagation, Subresource};
use serde_json::{Value, json};

use super::{SetsK, app, config_map, reference, start};
use crate::Cluster;

const MANAGER: &str = "barbless-hooks-web";

fn operation(action: Action) -> Operation {
    on("c", action)
}

fn on(name: &str, action: Action) -> Operation {
    Operation {
        // As a guest writes it: without a namespace.
        target: reference("v1", "ConfigMap", "", name),
        action,
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    }
}

async fn perform(cluster: &Cluster, operation: &Operation) -> OperationResult {
    cluster.perform(&app(), MANAGER, operation, &SetsK).await
}

fn reason(result: &OperationResult) -> &str {
    match result {
        OperationResult::Failed { reason, .. } => reason,
        OperationResult::Done => "Done",
        OperationResult::Unchanged => "Unchanged",
        OperationResult::Skipped => "Skipped",
    }
}

async fn data(cluster: &Cluster, name: &str) -> Value {
    let object = cluster.read(&reference("v1", "ConfigMap", "demo", name)).await;
    object.map_or(Value::Null, |object| object["data"].clone())
}

fn plain(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

#[tokio::test]
async fn operations_do_what_they_say() {
    let (_devcluster, cluster) = start(false).await;
    let object = |value: &str| plain(json!({"k": value}));
    let merge = |patch: Value| Action::MergePatch { patch };
    let delete = || Action::Delete { propagation: Propagation::Background };
    let steps = [
        (merge(json!({"data": {"k": "0"}})), "NotFound", Value::Null),
        (Action::Create { object: object("1") }, "Done", json!({"k": "1"})),
        (Action::Create { object: object("2") }, "AlreadyExists", json!({"k": "1"})),
        (Action::CreateIfNotExists { object: object("2") }, "Unchanged", json!({"k": "1"})),
        (Action::CreateOrUpdate { object: object("3") }, "Done", json!({"k": "3"})),
        (Action::CreateOrUpdate { object: object("3") }, "Unchanged", json!({"k": "3"})),
        (merge(json!({"data": {"more": "x"}})), "Done", json!({"k": "3", "more": "x"})),
        (merge(json!({"data": {"more": "x"}})), "Unchanged", json!({"k": "3", "more": "x"})),
        (Action::JsonPatch { patch: json!([{"op": "remove", "path": "/data/more"}]) }, "Done", json!({"k": "3"})),
        (
            Action::JsonPatch { patch: json!([{"op": "remove", "path": "/data/more"}]) },
            "PatchFailed",
            json!({"k": "3"}),
        ),
        (Action::JqPatch { program: "3".to_owned() }, "Unchanged", json!({"k": "3"})),
        (Action::JqPatch { program: "j".to_owned() }, "Done", json!({"k": "j"})),
        (Action::JqPatch { program: String::new() }, "JqFailed", json!({"k": "j"})),
        (delete(), "Done", Value::Null),
        (delete(), "Unchanged", Value::Null),
        (Action::Apply { object: object("4") }, "Done", json!({"k": "4"})),
        (Action::Apply { object: object("4") }, "Unchanged", json!({"k": "4"})),
        (Action::Apply { object: plain(json!({"other": "5"})) }, "Done", json!({"other": "5"})),
    ];
    for (index, (action, expected, left)) in steps.into_iter().enumerate() {
        let operation = operation(action);
        let result = perform(&cluster, &operation).await;
        assert_eq!(reason(&result), expected, "step {index}: {operation}: {result:?}");
        assert_eq!(data(&cluster, "c").await, left, "step {index}: {operation}");
    }
}

#[tokio::test]
async fn a_missing_object_can_be_ignored() {
    let (_devcluster, cluster) = start(false).await;
    let mut operation = operation(Action::MergePatch { patch: json!({"data": {}}) });
    operation.ignore_missing_object = true;
    assert_eq!(perform(&cluster, &operation).await, OperationResult::Unchanged);
}

#[tokio::test]
async fn objects_of_others_are_left_alone() {
    let (_devcluster, cluster) = start(false).await;
    let mut foreign = config_map("c", json!({"k": "theirs"}));
    foreign["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "db"});
    cluster.put(foreign).await;
    let mut record = config_map("r", json!({}));
    record["metadata"]["labels"] = json!({"owner": "helm"});
    cluster.put(record).await;
    let object = plain(json!({"k": "mine"}));
    let actions = [
        Action::CreateOrUpdate { object: object.clone() },
        Action::Apply { object },
        Action::MergePatch { patch: json!({"data": {"k": "mine"}}) },
        // Taking the label off in the same patch does not help.
        Action::MergePatch { patch: json!({"metadata": {"labels": null}, "data": {"k": "mine"}}) },
        Action::JsonPatch { patch: json!([{"op": "replace", "path": "/data/k", "value": "mine"}]) },
        Action::Delete { propagation: Propagation::Foreground },
    ];
    for action in actions {
        let operation = operation(action);
        let result = perform(&cluster, &operation).await;
        assert_eq!(reason(&result), "ForeignObject", "{operation}: {result:?}");
    }
    assert_eq!(data(&cluster, "c").await, json!({"k": "theirs"}));
    let result = perform(&cluster, &on("r", Action::Delete { propagation: Propagation::Background })).await;
    assert_eq!(reason(&result), "HostObject");
    assert!(cluster.read(&reference("v1", "ConfigMap", "demo", "r")).await.is_some());
}

#[tokio::test]
async fn a_patch_cannot_change_what_an_object_is() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(config_map("c", json!({"k": "v"}))).await;
    let cases = [
        (json!({"metadata": {"name": "d"}}), "BadOperation"),
        (json!({"metadata": {"namespace": "other"}}), "ForeignNamespace"),
        (json!({"metadata": {"uid": "0"}}), "BadPatch"),
        (json!({"kind": "Secret"}), "BadOperation"),
        (json!({"metadata": null}), "BadPatch"),
        (json!({"metadata": {"labels": {"packages.deckhouse.io/instance": "db"}}}), "ForeignObject"),
        (json!({"metadata": {"labels": {"owner": "helm"}}}), "HostObject"),
    ];
    for (patch, expected) in cases {
        let operation = operation(Action::MergePatch { patch: patch.clone() });
        let result = perform(&cluster, &operation).await;
        assert_eq!(reason(&result), expected, "{patch}: {result:?}");
    }
}

#[tokio::test]
async fn the_object_must_be_the_one_that_the_operation_names() {
    let (_devcluster, cluster) = start(false).await;
    let with = |pointer: &str, value: &str| {
        let mut object = plain(json!({}));
        object["metadata"]["namespace"] = json!("demo");
        *object.pointer_mut(pointer).expect("a field") = json!(value);
        Action::Create { object }
    };
    for (pointer, value) in [("/metadata/name", "d"), ("/metadata/namespace", "other"), ("/kind", "Secret")] {
        let result = perform(&cluster, &operation(with(pointer, value))).await;
        assert_eq!(reason(&result), "BadOperation", "{pointer}: {result:?}");
    }
    let mut elsewhere = operation(with("/kind", "ConfigMap"));
    elsewhere.target.namespace = "other".to_owned();
    assert_eq!(reason(&perform(&cluster, &elsewhere).await), "ForeignNamespace");
}

#[tokio::test]
async fn owners_must_exist_here_with_their_uid() {
    let (_devcluster, cluster) = start(false).await;
    let owner = cluster.put(config_map("owner", json!({}))).await;
    let mut away = config_map("away", json!({}));
    away["metadata"]["namespace"] = json!("other");
    let away = cluster.put(away).await;
    let mut theirs = config_map("theirs", json!({}));
    theirs["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "db"});
    let theirs = cluster.put(theirs).await;
    let node = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}});
    let reference_to = |object: &Value, uid: &Value| json!([{"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"], "uid": uid}]);
    let cases = [
        (reference_to(&owner, &owner["metadata"]["uid"]), "Done"),
        (reference_to(&owner, &json!("00000000-0000-4000-8000-000000000000")), "BadOwner"),
        (reference_to(&away, &away["metadata"]["uid"]), "BadOwner"),
        (reference_to(&node, &json!("x")), "BadOwner"),
        (reference_to(&theirs, &theirs["metadata"]["uid"]), "BadOwner"),
        (json!([{"kind": "Widget"}]), "BadOwner"),
        (json!("text"), "BadOperation"),
    ];
    for (owners, expected) in cases {
        let mut object = plain(json!({}));
        object["metadata"]["ownerReferences"] = owners.clone();
        let operation = operation(Action::CreateOrUpdate { object });
        let result = perform(&cluster, &operation).await;
        assert_eq!(reason(&result), expected, "{owners}: {result:?}");
    }
}

#[tokio::test]
async fn the_own_label_is_not_taken_off() {
    let (_devcluster, cluster) = start(false).await;
    let mut own = plain(json!({"k": "1"}));
    own["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "web"});
    assert_eq!(perform(&cluster, &operation(Action::Apply { object: own })).await, OperationResult::Done);
    let applied = perform(&cluster, &operation(Action::Apply { object: plain(json!({"k": "2"})) })).await;
    assert_eq!(applied, OperationResult::Done);
    let patch = json!({"metadata": {"labels": {"packages.deckhouse.io/instance": null}}});
    assert_eq!(reason(&perform(&cluster, &operation(Action::MergePatch { patch })).await), "HostMetadata");
    let live = cluster.read(&reference("v1", "ConfigMap", "demo", "c")).await.expect("there");
    assert_eq!(
        (&live["data"]["k"], &live["metadata"]["labels"]["packages.deckhouse.io/instance"]),
        (&json!("2"), &json!("web"))
    );
}

#[tokio::test]
async fn a_field_of_another_manager_is_not_taken() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(config_map("c", json!({"k": "theirs"}))).await;
    let result = perform(&cluster, &operation(Action::Apply { object: plain(json!({"k": "mine"})) })).await;
    let OperationResult::Failed { reason, message } = result else { panic!("applied: {result:?}") };
    assert_eq!(reason, "Conflict");
    assert!(message.contains(r#"field .data.k belongs to manager "somebody""#), "{message}");
}

#[tokio::test]
async fn concurrent_patches_all_arrive() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(config_map("c", json!({"start": "1"}))).await;
    let patches = (0..6).map(|index| {
        let cluster = cluster.clone();
        async move {
            let patch = json!({"data": {format!("k{index}"): "v"}});
            perform(&cluster, &operation(Action::MergePatch { patch })).await
        }
    });
    for result in futures::future::join_all(patches).await {
        assert_eq!(result, OperationResult::Done);
    }
    assert_eq!(data(&cluster, "c").await.as_object().map(serde_json::Map::len), Some(7));
}

#[tokio::test]
async fn status_and_scale_are_changed_on_their_own() {
    let (_devcluster, cluster) = start(false).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "demo"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    cluster.put(deployment).await;
    let target = reference("apps/v1", "Deployment", "demo", "d");
    let patch = |subresource, patch| Operation {
        target: target.clone(),
        action: Action::MergePatch { patch },
        subresource: Some(subresource),
        ignore_missing_object: false,
        on_failure: false,
    };
    let scaled = perform(&cluster, &patch(Subresource::Scale, json!({"spec": {"replicas": 4}}))).await;
    assert_eq!(scaled, OperationResult::Done);
    let status = json!({"status": {"observedGeneration": 7}, "spec": {"replicas": 9}});
    assert_eq!(perform(&cluster, &patch(Subresource::Status, status)).await, OperationResult::Done);
    let live = cluster.read(&target).await.expect("there");
    assert_eq!(live["spec"]["replicas"], 4);
    assert_eq!(live["status"]["observedGeneration"], 7);
    let owners =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "1"}]}});
    assert_eq!(reason(&perform(&cluster, &patch(Subresource::Status, owners)).await), "BadOwner");
    let mut none = operation(Action::MergePatch { patch: json!({}) });
    none.subresource = Some(Subresource::Scale);
    assert_eq!(reason(&perform(&cluster, &none).await), "SubresourceNotServed");
}

#[tokio::test]
async fn an_unserved_kind_is_named() {
    let (_devcluster, cluster) = start(false).await;
    let mut operation = operation(Action::Delete { propagation: Propagation::Background });
    operation.target = reference("example.org/v1", "Widget", "", "w");
    let result = perform(&cluster, &operation).await;
    let OperationResult::Failed { reason, message } = result else { panic!("done: {result:?}") };
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("KindNotServed", "the cluster does not serve example.org/v1 Widget")
    );
}
