//! What is looked at before a release is applied, and what is not sent.

use std::collections::BTreeMap;
use std::time::Duration;

use barbless_devcluster::DevCluster;
use barbless_domain::release::changes_nothing;
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{config_map, options, plan_for, reference, start};
use crate::request::Target;
use crate::{Applied, Change, Cluster, ReleaseError};

const SOON: Duration = Duration::from_secs(20);

fn maps(count: usize) -> Vec<Value> {
    (0..count).map(|index| config_map(&format!("c-{index:04}"), json!({"k": index.to_string()}))).collect()
}

/// Applies objects, with what each verb was asked for.
async fn apply(
    devcluster: &DevCluster,
    cluster: &Cluster,
    objects: Vec<Value>,
    previous: Vec<Value>,
) -> (Result<Applied, ReleaseError>, BTreeMap<String, u64>) {
    let previous = barbless_domain::release::InventoryItem::of_objects(&previous);
    let plan = plan_for(cluster, objects, &previous).await;
    let before = devcluster.requests();
    let applied = cluster.apply_release(&plan, &options(SOON).0).await;
    let mut asked = devcluster.requests();
    asked.iter_mut().for_each(|(verb, count)| *count -= before.get(verb).copied().unwrap_or_default());
    asked.retain(|verb, count| *count > 0 && verb != "watch");
    (applied, asked)
}

fn changes(applied: &Applied) -> BTreeMap<String, usize> {
    let mut changes = BTreeMap::new();
    for (_, change) in &applied.objects {
        *changes.entry(change.to_string()).or_default() += 1;
    }
    changes
}

fn asked(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(verb, count)| ((*verb).to_owned(), *count)).collect()
}

#[tokio::test]
async fn an_upgrade_that_changes_nothing_asks_for_one_list_and_writes_nothing() {
    let (devcluster, cluster) = start(false).await;
    let (applied, requests) = apply(&devcluster, &cluster, maps(30), Vec::new()).await;
    assert_eq!(changes(&applied.expect("applied")), BTreeMap::from([("created".to_owned(), 30)]));
    assert_eq!(requests, asked(&[("list", 1), ("patch", 30)]), "an installation learns that nothing is there");

    let (applied, requests) = apply(&devcluster, &cluster, maps(30), maps(30)).await;
    assert_eq!(changes(&applied.expect("applied")), BTreeMap::from([("unchanged".to_owned(), 30)]));
    assert_eq!(requests, asked(&[("list", 1)]));

    let mut objects = maps(30);
    objects[3]["data"]["k"] = "other".into();
    let (applied, requests) = apply(&devcluster, &cluster, objects, maps(30)).await;
    let applied = applied.expect("applied");
    let configured: Vec<_> = applied.objects.iter().filter(|(_, change)| *change == Change::Configured).collect();
    assert_eq!(configured.len(), 1, "{configured:?}");
    assert_eq!(requests, asked(&[("list", 1), ("patch", 1)]));
}

#[tokio::test]
async fn what_is_rare_or_lacks_our_label_is_read_one_by_one() {
    let (devcluster, cluster) = start(false).await;
    let (applied, requests) = apply(&devcluster, &cluster, maps(3), Vec::new()).await;
    applied.expect("applied");
    assert_eq!(requests, asked(&[("get", 3), ("patch", 3)]), "of three nobody knows: three questions");

    // Somebody took the label off one, deleted another and changed a third.
    let label = json!({"metadata": {"labels": {"packages.deckhouse.io/instance": null}}});
    cluster.touch(&reference("v1", "ConfigMap", "demo", "c-0001"), label).await;
    cluster.touch(&reference("v1", "ConfigMap", "demo", "c-0002"), json!({"data": {"k": "theirs"}})).await;
    let mut objects = maps(3);
    let (applied, requests) = apply(&devcluster, &cluster, objects.clone(), maps(3)).await;
    assert!(matches!(applied, Err(ReleaseError::FieldConflict { .. })), "{applied:?}");
    assert_eq!(requests["list"], 1);
    assert_eq!(requests["get"], 1, "the one without the label: {requests:?}");
    objects.truncate(2);
    let (applied, requests) = apply(&devcluster, &cluster, objects, maps(2)).await;
    assert_eq!(changes(&applied.expect("applied")), BTreeMap::from([("unchanged".to_owned(), 2)]));
    assert_eq!(requests, asked(&[("list", 1)]), "the label is there again");
}

#[tokio::test]
async fn objects_of_others_are_found_among_very_many() {
    let (devcluster, cluster) = start(false).await;
    for index in 0..6 {
        cluster.put(config_map(&format!("theirs-{index}"), json!({}))).await;
    }
    for index in 3..5 {
        cluster.put(config_map(&format!("c-000{index}"), json!({}))).await;
    }
    let (refused, requests) = apply(&devcluster, &cluster, maps(10), Vec::new()).await;
    let Err(ReleaseError::NotOurs { objects }) = refused else { panic!("{refused:?}") };
    let names: Vec<&str> = objects.iter().map(|it| it.target.name.as_str()).collect();
    assert_eq!(names, ["c-0003", "c-0004"]);
    assert_eq!(requests, asked(&[("list", 1), ("get", 2)]));

    // More than a page: what is not on it may still be there.
    let (devcluster, cluster) = start(false).await;
    for index in 0..505 {
        cluster.put(config_map(&format!("a-{index}"), json!({}))).await;
    }
    cluster.put(config_map("c-0003", json!({}))).await;
    let (refused, requests) = apply(&devcluster, &cluster, maps(10), Vec::new()).await;
    let Err(ReleaseError::NotOurs { objects }) = refused else { panic!("{refused:?}") };
    assert_eq!(objects.len(), 1);
    assert_eq!(requests, asked(&[("list", 1), ("get", 10)]));
}

#[tokio::test]
async fn where_nothing_may_be_listed_everything_is_read() {
    let (devcluster, cluster) = start(false).await;
    let (applied, _) = apply(&devcluster, &cluster, maps(5), Vec::new()).await;
    applied.expect("applied");
    let router = devcluster.router();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let router = router.clone();
        async move {
            let is_list = request.method() == http::Method::GET && request.uri().path().ends_with("/configmaps");
            if !is_list {
                return router.oneshot(request.map(axum::body::Body::new)).await;
            }
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden", "message": "no"});
            let answer = http::Response::builder().status(403).body(axum::body::Body::from(status.to_string()));
            Ok(answer.expect("a response"))
        }
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    for previous in [Vec::new(), maps(5)] {
        let (applied, requests) = apply(&devcluster, &cluster, maps(5), previous).await;
        assert_eq!(changes(&applied.expect("applied")), BTreeMap::from([("unchanged".to_owned(), 5)]));
        assert_eq!(requests, asked(&[("get", 5)]));
    }
}

#[tokio::test]
async fn what_a_hook_changed_before_is_put_right() {
    let (devcluster, cluster) = start(true).await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "job", "annotations": {"helm.sh/hook": "pre-install,pre-upgrade"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}},
    });
    let mut objects = maps(2);
    let plain = objects.clone();
    objects.push(job);
    let (applied, _) = apply(&devcluster, &cluster, objects.clone(), Vec::new()).await;
    applied.expect("applied");
    // Somebody changes an object as soon as the hook is made anew.
    let target = reference("v1", "ConfigMap", "demo", "c-0001");
    let hook = reference("batch/v1", "Job", "demo", "job");
    let first = cluster.read(&hook).await.expect("there")["metadata"]["uid"].clone();
    let meddling = async {
        while cluster.read(&hook).await.is_none_or(|job| job["metadata"]["uid"] == first) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cluster.touch(&target, json!({"data": {"k": null}})).await;
    };
    let ((applied, requests), ()) = tokio::join!(apply(&devcluster, &cluster, objects, plain), meddling);
    applied.expect("applied");
    assert_eq!(cluster.read(&target).await.expect("there")["data"], json!({"k": "1"}));
    assert!(requests["get"] >= 2, "both were looked at again: {requests:?}");
}

fn container() -> impl Strategy<Value = Value> {
    let ports = prop::sample::select(vec![
        json!([{"containerPort": 80}]),
        json!([{"containerPort": 80, "protocol": "TCP"}]),
        json!([{"containerPort": 80}, {"containerPort": 81, "name": "b"}]),
        json!([{"containerPort": 81, "name": "b"}, {"containerPort": 80}]),
        json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]),
        json!([]),
    ]);
    let env = prop::sample::select(vec![
        json!([{"name": "A", "value": "1"}]),
        json!([{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        json!([{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "A"}]),
        json!([]),
    ]);
    let resources = prop::sample::select(vec![
        json!({}),
        json!({"limits": {"cpu": "1000m"}}),
        json!({"limits": {"cpu": "1"}}),
        json!({"limits": {"cpu": 1}, "requests": {"memory": "1024Mi"}}),
        json!({"limits": {}}),
    ]);
    let more = prop::sample::select(vec![
        json!({}),
        json!({"args": ["a", "b"]}),
        json!({"args": ["b"], "securityContext": {}}),
        json!({"securityContext": {"runAsUser": 5}, "imagePullPolicy": "IfNotPresent"}),
    ]);
    (ports, env, resources, more).prop_map(|(ports, env, resources, more)| {
        let mut container = json!({"name": "main", "image": "i:1", "ports": ports, "env": env, "resources": resources});
        if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
            container.extend(more);
        }
        container
    })
}

fn wanted() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["", "1", "2"]);
    let map = prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), text(), 0..3);
    let labels = prop::option::of(prop::collection::btree_map(prop::sample::select(vec!["l", "m"]), text(), 0..3));
    let of_map = (map.clone(), labels.clone()).prop_map(
        |(data, labels)| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels}, "data": data}),
    );
    let service = prop::sample::select(vec![
        json!({"selector": {"app": "a"}, "ports": [{"port": 80}]}),
        json!({"selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}),
        json!({"selector": {}, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "x"}]}),
        json!({"type": "ClusterIP", "ports": [{"name": "b", "port": 81}, {"name": "a", "port": 80}]}),
    ]);
    let of_service = (service, labels.clone()).prop_map(|(spec, labels)| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"annotations": labels}, "spec": spec})
    });
    let strategy = prop::sample::select(vec![
        json!({}),
        json!({"strategy": {}}),
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
        json!({"replicas": 1}),
        json!({"replicas": 2, "strategy": {"type": "Recreate"}}),
    ]);
    let pod = prop::sample::select(vec![
        json!({}),
        json!({"nodeSelector": {"a": "b"}}),
        json!({"nodeSelector": {}, "securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}], "imagePullSecrets": [{"name": "s"}]}),
    ]);
    let of_deployment = (container(), strategy, pod).prop_map(|(container, spec, pod)| {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
            "spec": {"selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}},
        });
        let extend = |at: &mut Value, more: Value| {
            if let (Some(at), Value::Object(more)) = (at.as_object_mut(), more) {
                at.extend(more);
            }
        };
        extend(&mut object["spec"], spec);
        extend(&mut object["spec"]["template"]["spec"], pod);
        object
    });
    prop_oneof![of_map, of_service, of_deployment]
}

/// What others do to an object between two applies.
fn meddling() -> impl Strategy<Value = Option<Value>> {
    prop::sample::select(vec![
        None,
        Some(json!({"data": {"a": "1"}})),
        Some(json!({"data": {"a": null, "z": "9"}})),
        Some(json!({"metadata": {"labels": {"l": "1", "other": "x"}}})),
        Some(json!({"metadata": {"labels": null, "annotations": null}})),
        Some(json!({"spec": {"replicas": 2}})),
        Some(json!({"spec": {"selector": {"app": "a"}}})),
        Some(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}})),
        Some(
            json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}, "securityContext": {"runAsUser": 5}}}}}),
        ),
        Some(json!({"metadata": {"managedFields": [{}]}})),
    ])
}

/// However an object was applied before and whatever others did to it: what is not sent would have changed nothing, and
/// nobody would have been in the way.
#[test]
fn what_is_not_sent_would_have_changed_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_devcluster, cluster) = runtime.block_on(start(false));
    let count = std::cell::Cell::new((0_u32, 0_u32, 0_u32));
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let again = prop::option::weighted(0.4, wanted());
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let checked = runner.run(&(wanted(), meddling(), again), |(first, meddling, second)| {
        let number = count.get().0;
        count.set((number + 1, count.get().1, count.get().2));
        let named = |mut object: Value| {
            object["metadata"]["name"] = format!("o-{number}").into();
            object["metadata"]["namespace"] = "demo".into();
            // A release has no null in it.
            for field in ["labels", "annotations"] {
                if object["metadata"][field].is_null()
                    && let Some(metadata) = object["metadata"].as_object_mut()
                {
                    metadata.remove(field);
                }
            }
            object
        };
        let second = named(second.filter(|second| second["kind"] == first["kind"]).unwrap_or_else(|| first.clone()));
        let first = named(first);
        let target = barbless_domain::identity::ObjectRef::of(&first).expect("a reference");
        runtime.block_on(async {
            let resource = cluster.resolve(&target.gvk).await.expect("served");
            let at = Target { resource: &resource, object: &target };
            cluster.apply_in(&at, None, "barbless", false, &first).await.expect("applied");
            if let Some(patch) = &meddling {
                // Not every kind has what is meddled with.
                let _ = cluster.merge_in(&at, "somebody", patch).await;
            }
            let live = cluster.read(&target).await.expect("there");
            let skipped = changes_nothing(&second, &live, "barbless");
            let applied = cluster.apply_in(&at, None, "barbless", false, &second).await;
            let same = applied.as_ref().is_ok_and(|after| *after == live);
            let (number, skips, sames) = count.get();
            count.set((number, skips + u32::from(skipped), sames + u32::from(same)));
            prop_assert!(same || !skipped, "{second}\nover {live}\nbecomes {applied:?}");
            Ok(())
        })
    });
    checked.expect("nothing is left out that would have changed something");
    let (cases, skips, sames) = count.get();
    assert!(cases >= 600 && skips * 3 > sames, "{skips} of {sames} that change nothing are not sent");
}
