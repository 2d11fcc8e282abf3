use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::operation::{Action, Operation, OperationResult, Propagation};
use barbless_domain::release::InventoryItem;
use barbless_domain::release::conflict::{self, Settlement};
use serde_json::{Value, json};

use super::{SetsK, app, config_map, plan_for, reference, start};
use crate::{Cluster, Foreseen, Outlook, Role, SettledField, harmless};

fn owned(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({INSTANCE_LABEL: "web"});
    object
}

async fn foresee(cluster: &Cluster, objects: Vec<Value>, previous: &[Value], rules: &Value) -> Vec<Foreseen> {
    let plan = plan_for(cluster, objects, &InventoryItem::of_objects(previous)).await;
    let rules = conflict::rules(rules).expect("rules");
    let dry = Cluster::new(harmless(cluster.client().clone()));
    dry.foresee_release(&plan, &rules, false).await.expect("foreseen")
}

fn outlooks(foreseen: &[Foreseen]) -> Vec<(&str, &Outlook)> {
    foreseen.iter().map(|it| (it.target.name.as_str(), &it.outlook)).collect()
}

#[tokio::test]
async fn through_a_harmless_client_nothing_is_written() {
    let (devcluster, cluster) = start(false).await;
    let target = reference("v1", "ConfigMap", "demo", "c");
    cluster.put(owned(config_map("c", json!({"a": "1"})))).await;
    let before = cluster.read(&target).await;
    devcluster.clear_journal();
    let dry = Cluster::new(harmless(cluster.client().clone()));
    // Everything that writes, by the code that knows of no dry run.
    dry.put(config_map("new", json!({}))).await;
    dry.touch(&target, json!({"data": {"a": "2"}})).await;
    dry.apply_object("somebody", "demo", &config_map("applied", json!({}))).await.expect("an answer");
    let operation = |action| Operation {
        target: target.clone(),
        action,
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    let replaced = owned(config_map("c", json!({"a": "3"})));
    for action in [
        Action::CreateOrUpdate { object: replaced.clone() },
        Action::Apply { object: config_map("c", json!({"b": "3"})) },
        Action::JsonPatch { patch: json!([{"op": "remove", "path": "/data/a"}]) },
        Action::JqPatch { program: "4".to_owned() },
        Action::Delete { propagation: Propagation::Foreground },
    ] {
        let result = dry.perform(&app(), "hooks", &operation(action), &SetsK).await;
        assert!(!matches!(result, OperationResult::Failed { .. }), "{result:?}");
    }
    assert_eq!(devcluster.writes(), [], "only dry runs were asked for");
    assert!(devcluster.journal().iter().filter(|request| request.dry_run).count() >= 7);
    assert_eq!(cluster.read(&target).await, before);
    for name in ["new", "applied"] {
        assert_eq!(cluster.read(&reference("v1", "ConfigMap", "demo", name)).await, None);
    }
}

#[tokio::test]
async fn what_comes_changes_stays_and_goes_is_foreseen() {
    let (_devcluster, cluster) = start(false).await;
    let old = owned(config_map("old", json!({})));
    let kept = {
        let mut kept = owned(config_map("kept", json!({})));
        kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        kept
    };
    for object in [
        owned(config_map("changed", json!({"a": "1"}))),
        owned(config_map("same", json!({"a": "1"}))),
        old.clone(),
        kept.clone(),
    ] {
        cluster.apply_object("barbless", "demo", &object).await.expect("applied");
    }
    let objects = vec![
        config_map("changed", json!({"a": "2"})),
        config_map("same", json!({"a": "1"})),
        config_map("new", json!({"a": "1"})),
    ];
    // The labels of the release are on the live objects too.
    let seen = foresee(&cluster, objects, &[old, kept, config_map("gone", json!({}))], &Value::Null).await;
    let by_name = |name: &str| seen.iter().find(|it| it.target.name == name).expect("foreseen");
    assert_eq!(by_name("new").outlook, Outlook::Created);
    assert_eq!(by_name("new").before, None);
    assert_eq!(by_name("changed").outlook, Outlook::Applied);
    let data = |object: &Option<Value>| object.as_ref().map(|object| object["data"].clone());
    assert_eq!(
        (data(&by_name("changed").before), data(&by_name("changed").after)),
        (Some(json!({"a": "1"})), Some(json!({"a": "2"})))
    );
    assert_eq!(data(&by_name("same").before), data(&by_name("same").after));
    assert_eq!((&by_name("old").role, &by_name("old").outlook), (&Role::Dropped, &Outlook::Deleted));
    assert!(matches!(by_name("kept").outlook, Outlook::Left(_)));
    assert_eq!(by_name("kept").role, Role::Kept);
    assert!(matches!(&by_name("gone").outlook, Outlook::Left(why) if why.contains("gone")), "{:?}", by_name("gone"));
}

#[tokio::test]
async fn fields_of_other_managers_are_named_and_settled() {
    let (_devcluster, cluster) = start(false).await;
    cluster
        .apply_object("barbless", "demo", &owned(config_map("c", json!({"a": "1", "b": "1"}))))
        .await
        .expect("applied");
    cluster.touch(&reference("v1", "ConfigMap", "demo", "c"), json!({"data": {"a": "x", "b": "x"}})).await;
    let wanted = || vec![config_map("c", json!({"a": "2", "b": "2"}))];
    let field =
        |field: &str, settlement| SettledField { field: field.to_owned(), manager: "somebody".to_owned(), settlement };

    let seen = foresee(&cluster, wanted(), &[], &Value::Null).await;
    assert_eq!(outlooks(&seen), [("c", &Outlook::Conflict)]);
    assert_eq!(seen[0].fields, [field(".data.a", None), field(".data.b", None)]);

    let rules = json!([
        {"object": "ConfigMap/c", "field": ".data.a", "do": "take"},
        {"object": "ConfigMap/c", "field": ".data.b", "do": "yield"},
    ]);
    let seen = foresee(&cluster, wanted(), &[], &rules).await;
    assert_eq!(outlooks(&seen), [("c", &Outlook::Applied)]);
    assert_eq!(seen[0].fields, [field(".data.a", Some(Settlement::Take)), field(".data.b", Some(Settlement::Yield))]);
    assert_eq!(seen[0].after.as_ref().map(|after| after["data"].clone()), Some(json!({"a": "2", "b": "x"})));
}

#[tokio::test]
async fn what_would_be_refused_is_told_and_what_is_not_there_yet_is_no_refusal() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(config_map("theirs", json!({}))).await;
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "demo"},
               "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "j", "image": image}]}}}})
    };
    cluster.apply_object("barbless", "demo", &owned(job("old"))).await.expect("applied");
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let widget =
        json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "demo"}});
    let bad = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bad", "namespace": "demo"},
                     "spec": {"ports": [{"port": 0}]}});
    let seen = foresee(
        &cluster,
        vec![config_map("theirs", json!({"a": "1"})), job("new"), crd, widget, bad],
        &[],
        &Value::Null,
    )
    .await;
    let by_name = |name: &str| &seen.iter().find(|it| it.target.name == name).expect("foreseen").outlook;
    assert!(matches!(by_name("theirs"), Outlook::Refused { reason, .. } if reason == "ObjectNotOwned"), "{seen:?}");
    assert!(matches!(by_name("j"), Outlook::Recreated(_)), "{:?}", by_name("j"));
    assert_eq!(by_name("widgets.example.org"), &Outlook::Created);
    assert_eq!(by_name("w"), &Outlook::Created, "its kind comes with the release");
    assert!(matches!(by_name("bad"), Outlook::Refused { reason, .. } if reason == "Invalid"), "{:?}", by_name("bad"));
}

#[tokio::test]
async fn operations_of_hooks_are_foreseen_with_what_they_change() {
    let (_devcluster, cluster) = start(false).await;
    let target = reference("v1", "ConfigMap", "", "c");
    cluster.put(config_map("c", json!({"a": "1"}))).await;
    let dry = Cluster::new(harmless(cluster.client().clone()));
    let foresee = async |target: &barbless_domain::identity::ObjectRef, action| {
        let operation = Operation {
            target: target.clone(),
            action,
            subresource: None,
            ignore_missing_object: false,
            on_failure: false,
        };
        let seen = dry.foresee_operation(&app(), "hooks", &operation, &SetsK).await;
        let data = |object: Option<Value>| object.map(|object| object["data"].clone());
        (data(seen.before), data(seen.after), seen.result)
    };
    let (before, after, _) = foresee(&target, Action::MergePatch { patch: json!({"data": {"a": "2"}}) }).await;
    assert_eq!((before, after), (Some(json!({"a": "1"})), Some(json!({"a": "2"}))));
    let (before, after, _) = foresee(&target, Action::JqPatch { program: "2".to_owned() }).await;
    assert_eq!((before, after), (Some(json!({"a": "1"})), Some(json!({"a": "1", "k": "2"}))));
    let (before, after, _) = foresee(&target, Action::Delete { propagation: Propagation::Background }).await;
    assert_eq!((before, after), (Some(json!({"a": "1"})), None));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}});
    let (before, after, result) = foresee(&target, Action::CreateIfNotExists { object: object.clone() }).await;
    assert_eq!((before, after, result), (None, None, OperationResult::Unchanged));
    let (_, _, result) = foresee(&target, Action::Create { object }).await;
    assert!(matches!(result, OperationResult::Failed { reason, .. } if reason == "AlreadyExists"));
    let new = reference("v1", "ConfigMap", "", "new");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "2"}});
    let (before, after, _) = foresee(&new, Action::Apply { object }).await;
    assert_eq!((before, after), (None, Some(json!({"a": "2"}))));
}
