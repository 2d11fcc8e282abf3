use std::time::Duration;

use barbless_domain::hook::{FieldRequirement, LabelOperator, LabelRequirement, LabelSelector};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::{config_map, gvk, reference, start};
use crate::{WatchEvent, WatchSpec};

async fn next(events: &mut (impl Stream<Item = WatchEvent> + Unpin)) -> WatchEvent {
    tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("an event in time").expect("no end")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn shown(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Synced(objects) => {
            let mut names: Vec<&str> = objects.iter().map(|object| name(object)).collect();
            names.sort_unstable();
            format!("synced {}", names.join(" "))
        }
        WatchEvent::Applied(object) => format!("applied {}", name(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(object)),
        WatchEvent::Failed { reason, .. } => format!("failed {reason}"),
    }
}

fn labelled(name: &str, tier: &str) -> Value {
    let mut object = config_map(name, json!({}));
    object["metadata"]["labels"] = json!({"tier": tier});
    object
}

#[tokio::test]
async fn a_watch_begins_with_the_whole_state_and_tells_changes() {
    let (_devcluster, cluster) = start(false).await;
    cluster.put(labelled("a", "front")).await;
    cluster.put(labelled("b", "back")).await;
    let mut spec = WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()));
    spec.labels = Some(LabelSelector {
        match_labels: Vec::new(),
        match_expressions: vec![LabelRequirement {
            key: "tier".to_owned(),
            operator: LabelOperator::In,
            values: vec!["front".to_owned(), "middle".to_owned()],
        }],
    });
    let mut events = Box::pin(cluster.watch(spec));
    let first = next(&mut events).await;
    assert_eq!(shown(&first), "synced a");
    let WatchEvent::Synced(objects) = &first else { panic!("{first:?}") };
    assert_eq!((objects[0]["kind"].as_str(), objects[0]["apiVersion"].as_str()), (Some("ConfigMap"), Some("v1")));
    assert_eq!(objects[0]["metadata"].get("managedFields"), None);

    cluster.put(labelled("c", "middle")).await;
    assert_eq!(shown(&next(&mut events).await), "applied c");
    // Leaving the selection is a deletion.
    cluster.touch(&reference("v1", "ConfigMap", "demo", "a"), json!({"metadata": {"labels": {"tier": "back"}}})).await;
    assert_eq!(shown(&next(&mut events).await), "deleted a");
}

#[tokio::test]
async fn names_and_fields_narrow_a_watch() {
    let (_devcluster, cluster) = start(false).await;
    for name in ["a", "b", "c", "d"] {
        cluster.put(config_map(name, json!({}))).await;
    }
    let base = WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let one = WatchSpec { names: names(&["b"]), ..base.clone() };
    let two = WatchSpec { names: names(&["b", "d"]), ..base.clone() };
    let fields = vec![FieldRequirement { field: "metadata.name".to_owned(), equals: true, value: "c".to_owned() }];
    let field = WatchSpec { fields, ..base };
    for (spec, expected) in [(one, "synced b"), (two, "synced b d"), (field, "synced c")] {
        let mut events = Box::pin(cluster.watch(spec));
        assert_eq!(shown(&next(&mut events).await), expected);
    }
}

#[tokio::test]
async fn an_empty_selection_is_synchronised_and_an_unserved_kind_is_not() {
    let (_devcluster, cluster) = start(false).await;
    let mut events = Box::pin(cluster.watch(WatchSpec::all(gvk("v1", "Secret"), Some("other".to_owned()))));
    assert_eq!(next(&mut events).await, WatchEvent::Synced(Vec::new()));

    let mut events = Box::pin(cluster.watch(WatchSpec::all(gvk("example.org/v1", "Widget"), Some("demo".to_owned()))));
    assert_eq!(shown(&next(&mut events).await), "failed KindNotServed");
    cluster
        .put(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.org"},
            "spec": {
                "group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        }))
        .await;
    // Once the kind is served, the same watch begins by itself.
    loop {
        match shown(&next(&mut events).await).as_str() {
            "failed KindNotServed" => {}
            other => {
                assert_eq!(other, "synced ");
                break;
            }
        }
    }
}
