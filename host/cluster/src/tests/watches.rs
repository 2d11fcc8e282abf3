use std::time::Duration;

use barbless_devcluster::{Effect, Fault, Scope};
use barbless_domain::hook::{FieldRequirement, LabelOperator, LabelRequirement, LabelSelector};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::{config_map, gvk, reference, start};
use crate::watch::Patience;
use crate::{Cluster, Observation, WatchEvent, WatchSpec};

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

/// What is seen up to the end of the next list.
async fn list(events: &mut (impl Stream<Item = Observation> + Unpin)) -> String {
    let mut seen = Vec::new();
    loop {
        match observed(events).await.as_str() {
            "ends" => return seen.join(" "),
            "begins" => seen.clear(),
            other => seen.push(other.to_owned()),
        }
    }
}

async fn observed(events: &mut (impl Stream<Item = Observation> + Unpin)) -> String {
    let next = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
    match next.expect("something in time").expect("no end") {
        Observation::ListBegins => "begins".to_owned(),
        Observation::Listed(object) => name(&object).to_owned(),
        Observation::ListEnds => "ends".to_owned(),
        Observation::Applied(object) => format!("applied {}", name(&object)),
        Observation::Deleted(object) => format!("deleted {}", name(&object)),
        Observation::Failed { reason, .. } => format!("failed {reason}"),
    }
}

/// Leaves out the ConfigMap that every namespace has.
fn not_the_root() -> FieldRequirement {
    FieldRequirement { field: "metadata.name".to_owned(), equals: false, value: "kube-root-ca.crt".to_owned() }
}

fn lists(devcluster: &barbless_devcluster::DevCluster) -> usize {
    let journal = devcluster.journal();
    journal.iter().filter(|it| it.verb == "list" && it.path.ends_with("/configmaps")).count()
}

#[tokio::test]
async fn equal_selections_share_one_list_and_one_watch() {
    let (devcluster, cluster) = start(false).await;
    cluster.put(config_map("a", json!({}))).await;
    cluster.put(config_map("b", json!({}))).await;
    let expression =
        |key: &str| LabelRequirement { key: key.to_owned(), operator: LabelOperator::DoesNotExist, values: Vec::new() };
    let spec = |keys: [&str; 2]| WatchSpec {
        fields: vec![not_the_root()],
        labels: Some(LabelSelector { match_labels: Vec::new(), match_expressions: keys.map(expression).to_vec() }),
        ..WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()))
    };
    let before = lists(&devcluster);
    let mut streams: Vec<_> = (0..20)
        .map(|index| Box::pin(cluster.observe(spec(if index % 2 == 0 { ["x", "y"] } else { ["y", "x"] }))))
        .collect();
    for stream in &mut streams {
        assert_eq!(list(stream).await, "a b");
    }
    assert_eq!(lists(&devcluster) - before, 1, "one list for all");
    assert_eq!(cluster.shared_watches(), 1);
    cluster.put(config_map("c", json!({}))).await;
    for stream in &mut streams {
        assert_eq!(observed(stream).await, "applied c");
    }
    // Whoever comes late sees everything; the others see it again.
    let mut late = Box::pin(cluster.observe(spec(["x", "y"])));
    assert_eq!(list(&mut late).await, "a b c");
    assert_eq!(list(&mut streams[3]).await, "a b c");
    assert_eq!(lists(&devcluster) - before, 2);
    // The end of the first one is not the end of the others.
    drop(streams.remove(0));
    cluster.put(config_map("d", json!({}))).await;
    assert_eq!(observed(&mut late).await, "applied d");
    drop((streams, late));
    for _ in 0..100 {
        if cluster.shared_watches() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the watch goes on although nobody wants it");
}

#[tokio::test]
async fn who_is_slow_delays_nobody_for_long_and_misses_nothing() {
    let (_devcluster, cluster) = start(false).await;
    let all = WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()));
    let spec = WatchSpec { fields: vec![not_the_root()], ..all };
    let mut slow = Box::pin(cluster.observe(spec.clone()));
    let mut quick = Box::pin(cluster.observe(spec));
    assert_eq!(list(&mut quick).await, "");
    for number in 0..crate::limits::SHARED_WATCH_BACKLOG + 20 {
        cluster.put(config_map(&format!("o{number:04}"), json!({}))).await;
        assert_eq!(observed(&mut quick).await, format!("applied o{number:04}"));
    }
    // It sees what had been handed to it, and then the whole state.
    assert_eq!(list(&mut slow).await, "");
    let whole = list(&mut slow).await;
    assert_eq!(whole.split(' ').count(), crate::limits::SHARED_WATCH_BACKLOG + 20);
}

#[tokio::test]
async fn who_joins_while_a_kind_is_not_served_is_told() {
    let (_devcluster, cluster) = start(false).await;
    let spec = WatchSpec::all(gvk("example.org/v1", "Widget"), Some("demo".to_owned()));
    let mut first = Box::pin(cluster.observe(spec.clone()));
    assert_eq!(observed(&mut first).await, "failed KindNotServed");
    let mut second = Box::pin(cluster.observe(spec));
    assert_eq!(observed(&mut second).await, "failed KindNotServed");
}

/// All requests from now on are accepted and never answered, after so many.
fn hang(devcluster: &barbless_devcluster::DevCluster, passed: u64) {
    devcluster.inject(Fault { scope: Scope::All, passed, times: None, effect: Effect::Hang, performed: false });
}

#[tokio::test]
async fn a_list_or_a_watch_that_is_never_answered_is_told_and_tried_again() {
    // Discovery is answered; then the list is not, or the list is and the watch is not.
    for answered in [0, 1] {
        let (devcluster, known) = start(false).await;
        let patience = Patience { list: Duration::from_millis(100), watch: Duration::from_millis(100) };
        let cluster = Cluster::with_patience(known.client().clone(), patience);
        known.put(config_map("a", json!({}))).await;
        let mut spec = WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()));
        spec.fields = vec![not_the_root()];
        cluster.resolve(&spec.gvk).await.unwrap();
        hang(&devcluster, answered);
        let mut events = Box::pin(cluster.watch(spec));
        if answered == 1 {
            assert_eq!(shown(&next(&mut events).await), "synced a");
        }
        for _ in 0..2 {
            let failed = next(&mut events).await;
            assert_eq!(shown(&failed), "failed ApiTimedOut");
            let WatchEvent::Failed { message, .. } = failed else { panic!("{failed:?}") };
            let what = if answered == 1 { "watch" } else { "list" };
            assert!(message.contains(&format!("the API server has not answered a {what} for")), "{message}");
        }
        devcluster.heal();
        known.put(config_map("b", json!({}))).await;
        loop {
            match shown(&next(&mut events).await).as_str() {
                // An attempt that was under way.
                "failed ApiTimedOut" => {}
                other => {
                    assert_eq!(other, if answered == 1 { "applied b" } else { "synced a b" });
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_watch_with_nothing_to_tell_is_no_failure() {
    let (_devcluster, known) = start(false).await;
    let patience = Patience { list: Duration::from_secs(10), watch: Duration::from_millis(50) };
    let cluster = Cluster::with_patience(known.client().clone(), patience);
    let mut spec = WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()));
    spec.fields = vec![not_the_root()];
    let mut events = Box::pin(cluster.watch(spec));
    assert_eq!(shown(&next(&mut events).await), "synced ");
    let quiet = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}
