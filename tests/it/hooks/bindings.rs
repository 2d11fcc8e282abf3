//! Rows N01-N12: from what happens in the cluster to the runs of a hook and what they are shown.
//!
//! The rows speak of Pods; here they are ConfigMaps with a label, because nobody else changes those.

use std::sync::Arc;
use std::time::Duration;

use barbless_domain::event::Event;
use barbless_domain::hook::Trigger;
use barbless_domain::package::PackageSource;
use barbless_domain::run::{RunRecord, SnapshotOutline, SnapshotState};
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::{Running, World, component, nothing, package};

/// A package whose hooks have these configurations.
fn scripted(bindings: &[(&str, &str)]) -> PackageSource {
    let mut source = package("scripted");
    let manifest = String::from_utf8(source.get("package.yaml").unwrap().to_vec()).unwrap();
    let permissions = "permissions:\n  - {apiGroups: ['', example.org], kinds: [ConfigMap, Secret, Widget], \
                       verbs: [watch]}\n";
    source = source.with("package.yaml", &(manifest + permissions));
    source.insert("hooks/scripted.wasm", component("tests/guests/scripted.wasm")).unwrap();
    for (hook, text) in bindings {
        source = source.with(&format!("hooks/bindings/{hook}.yaml"), &format!("configVersion: v1\n{text}"));
    }
    source
}

fn object(kind: &str, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": name, "labels": {"row": "some"}}, "data": data,
    })
}

/// Somebody else makes or changes an object.
async fn put(world: &World, object: Value) {
    world.cluster.apply_object("somebody", world.namespace(), &object).await.unwrap();
}

/// Somebody else deletes an object of the core group.
async fn remove(world: &World, kind: &str, name: &str) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(world.cluster.client().clone(), world.namespace(), &kind);
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Runs of a hook as one line each: why, and how many objects each snapshot had.
fn told(record: &RunRecord) -> String {
    let why = match &record.trigger {
        Trigger::Events(changes) => {
            let one = |change: &barbless_domain::hook::Change| format!("{:?} {}", change.event, change.name);
            changes.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Trigger::Synchronization(bindings) => format!("Synchronization of {}", bindings.join(" ")),
        other => other.as_str().to_owned(),
    };
    let counts = record.input.snapshots.iter().map(|(name, it)| match it {
        SnapshotOutline::Ready { objects, .. } => format!("{name} {objects}"),
        SnapshotOutline::NotSynchronised { .. } => format!("{name} 0"),
    });
    format!("{why}: {}", counts.collect::<Vec<_>>().join(", "))
}

/// Waits until a hook has run so often, and gives its records.
async fn runs(app: &Running, hook: &str, count: usize) -> Vec<Arc<RunRecord>> {
    for _ in 0..6_000 {
        let records: Vec<_> = app.records().into_iter().filter(|record| record.hook == hook).collect();
        if records.len() >= count {
            return records;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("'{hook}' has run {:?}", app.records().iter().map(|it| told(it)).collect::<Vec<_>>());
}

/// What a hook runs for after this, and nothing else: a schedule that comes after it is the end.
async fn then(app: &Running, hook: &str, known: &mut usize) -> Vec<String> {
    // Whatever is on its way has come by then: a change takes milliseconds, and a watch that broke a few times seconds.
    let on_its_way = if app.world.api.has_faults() { 4_000 } else { 300 };
    tokio::time::sleep(Duration::from_millis(on_its_way)).await;
    app.handle.send(Event::ScheduleDue { hook: hook.to_owned(), schedule: "schedule".to_owned() }).await;
    let mut count = *known + 1;
    loop {
        let records = runs(app, hook, count).await;
        if records.last().is_some_and(|record| matches!(record.trigger, Trigger::Schedule(_))) {
            let new = records.iter().skip(*known).map(|record| told(record)).collect();
            *known = records.len();
            return new;
        }
        count = records.len() + 1;
    }
}

const OWN: &str =
    "kubernetes:\n- name: own\n  apiVersion: v1\n  kind: ConfigMap\n  labelSelector: {matchLabels: {row: some}}\n";
const TICK: &str = "schedule:\n- {name: schedule, crontab: '0 0 29 2 *'}\n";

#[tokio::test(flavor = "multi_thread")]
async fn n01_every_change_is_a_run_that_sees_the_newest_state() {
    let world = World::new().await;
    put(&world, object("ConfigMap", "o1", &json!({}))).await;
    put(&world, object("ConfigMap", "o2", &json!({}))).await;
    let app = world.install("n", scripted(&[("quiet", &format!("{OWN}{TICK}"))]), nothing()).await;
    app.ready().await;
    let mut known = 0;
    let first = then(&app, "quiet", &mut known).await;
    assert_eq!(first, ["Synchronization of own: own 2", "schedule: own 2"]);
    put(&world, object("ConfigMap", "o3", &json!({}))).await;
    assert_eq!(then(&app, "quiet", &mut known).await, ["Added o3: own 3", "schedule: own 3"]);
    put(&world, object("ConfigMap", "o3", &json!({"a": "1"}))).await;
    assert_eq!(then(&app, "quiet", &mut known).await, ["Modified o3: own 3", "schedule: own 3"]);
    remove(&world, "ConfigMap", "o3").await;
    assert_eq!(then(&app, "quiet", &mut known).await, ["Deleted o3: own 2", "schedule: own 2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn n02_a_kind_may_be_served_later() {
    let world = World::new().await;
    world.api.alone().await;
    let widgets = "kubernetes:\n- {name: widgets, apiVersion: example.org/v1, kind: Widget}\n";
    let app = world.install("n", scripted(&[("quiet", &format!("{widgets}{TICK}"))]), nothing()).await;
    // There is no empty snapshot of what is not served: nothing runs before it is.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(app.records().is_empty());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    world.cluster.apply_object("somebody", "", &definition).await.unwrap();
    app.ready().await;
    let mut known = 0;
    let first = then(&app, "quiet", &mut known).await;
    assert_eq!(first, ["Synchronization of widgets: widgets 0", "schedule: widgets 0"]);
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}});
        world.cluster.apply_object("somebody", world.namespace(), &widget).await.unwrap();
        let expected = if name == "a" { "Added a: widgets 1" } else { "Added b: widgets 2" };
        assert_eq!(then(&app, "quiet", &mut known).await[0], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n03_n04_n05_the_bindings_of_a_hook_are_synchronised_in_one_run_that_sees_them_all() {
    // There: a run for each binding, and one for each group. Here: one run of the hook, whose trigger names the bindings
    // that asked for it and which is shown all of them.
    let world = World::new().await;
    put(&world, object("ConfigMap", "o1", &json!({}))).await;
    put(&world, object("Secret", "s1", &json!({}))).await;
    let binding = |name: &str, kind: &str, more: &str| {
        format!(
            "- {{name: {name}, apiVersion: v1, kind: {kind}, labelSelector: {{matchLabels: {{row: some}}}}{more}}}\n"
        )
    };
    let n03 = [
        binding("maps", "ConfigMap", ", includeSnapshotsFrom: [maps]"),
        binding("silent", "ConfigMap", ", executeHookOnSynchronization: false"),
        binding("secrets", "Secret", ", includeSnapshotsFrom: [maps, silent]"),
        binding("grouped", "ConfigMap", ", group: g"),
    ]
    .concat();
    let n04 = [binding("maps", "ConfigMap", ", group: main"), binding("secrets", "Secret", ", group: main")].concat();
    let configurations =
        [("quiet", format!("kubernetes:\n{n03}{TICK}")), ("second", format!("kubernetes:\n{n04}{TICK}"))];
    let [quiet, second] = configurations.each_ref().map(|(hook, text)| (*hook, text.as_str()));
    let app = world.install("n", scripted(&[quiet, second]), nothing()).await;
    app.ready().await;
    let shown = "grouped 1, maps 1, secrets 1, silent 1";
    let first = then(&app, "quiet", &mut 0).await;
    assert_eq!(first, [format!("Synchronization of maps secrets grouped: {shown}"), format!("schedule: {shown}")]);
    let mut known = 0;
    let first = then(&app, "second", &mut known).await;
    assert_eq!(first, ["Synchronization of maps secrets: maps 1, secrets 1", "schedule: maps 1, secrets 1"]);
    // Changes in several bindings of a group are one run.
    put(&world, object("ConfigMap", "o2", &json!({}))).await;
    put(&world, object("Secret", "s1", &json!({"a": "YQ=="}))).await;
    let runs = then(&app, "second", &mut known).await;
    assert!((2..=3).contains(&runs.len()), "one run, or two if the second change came late: {runs:?}");
    assert_eq!(runs.last().map(String::as_str), Some("schedule: maps 2, secrets 1"));
    // Equal selections of both hooks are watched once: ConfigMaps, Secrets.
    assert_eq!(world.services.cluster.shared_watches(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn n07_only_what_the_filter_gives_is_a_change() {
    let world = World::new().await;
    put(&world, object("ConfigMap", "o1", &json!({"a": "1"}))).await;
    let labels = OWN.replace("name: own", "name: own\n  jqFilter: '.metadata.labels'");
    let app = world.install("n", scripted(&[("quiet", &format!("{labels}{TICK}"))]), nothing()).await;
    app.ready().await;
    let mut known = 0;
    then(&app, "quiet", &mut known).await;
    put(&world, object("ConfigMap", "o1", &json!({"a": "2"}))).await;
    assert_eq!(then(&app, "quiet", &mut known).await, ["schedule: own 1"]);
    let mut labelled = object("ConfigMap", "o1", &json!({"a": "2"}));
    labelled["metadata"]["labels"]["more"] = json!("yes");
    put(&world, labelled).await;
    assert_eq!(then(&app, "quiet", &mut known).await, ["Modified o1: own 1", "schedule: own 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn n08_n09_bookkeeping_is_no_change_and_unwanted_events_only_change_the_snapshot() {
    let world = World::new().await;
    let silent = OWN.replace("name: own", "name: own\n  executeHookOnEvent: []");
    let source = scripted(&[("quiet", &format!("{OWN}{TICK}")), ("second", &format!("{silent}{TICK}"))]);
    let app = world.install("n", source, nothing()).await;
    app.ready().await;
    let (mut of_quiet, mut of_second) = (0, 0);
    then(&app, "quiet", &mut of_quiet).await;
    then(&app, "second", &mut of_second).await;
    put(&world, object("ConfigMap", "o1", &json!({"a": "1"}))).await;
    assert_eq!(then(&app, "quiet", &mut of_quiet).await, ["Added o1: own 1", "schedule: own 1"]);
    assert_eq!(then(&app, "second", &mut of_second).await, ["schedule: own 1"]);
    // Another manager applies the same: `managedFields` and `resourceVersion` change, and that is all.
    world
        .cluster
        .apply_object("somebody-else", world.namespace(), &object("ConfigMap", "o1", &json!({"a": "1"})))
        .await
        .unwrap();
    assert_eq!(then(&app, "quiet", &mut of_quiet).await, ["schedule: own 1"]);
    let mut noted = object("ConfigMap", "o1", &json!({"a": "1"}));
    noted["metadata"]["annotations"] = json!({"example.org/note": "x"});
    put(&world, noted).await;
    assert_eq!(then(&app, "quiet", &mut of_quiet).await, ["Modified o1: own 1", "schedule: own 1"]);
    remove(&world, "ConfigMap", "o1").await;
    assert_eq!(then(&app, "quiet", &mut of_quiet).await, ["Deleted o1: own 0", "schedule: own 0"]);
    assert_eq!(then(&app, "second", &mut of_second).await, ["schedule: own 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_a_synchronization_that_fails_three_times_sees_the_final_state() {
    let world = World::new().await;
    let app = world.install("n", scripted(&[("stubborn", &format!("{OWN}{TICK}"))]), nothing()).await;
    runs(&app, "stubborn", 1).await;
    for number in 0..5 {
        put(&world, object("ConfigMap", "o1", &json!({"number": number.to_string()}))).await;
        put(&world, object("ConfigMap", &format!("extra-{number}"), &json!({}))).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    app.ready().await;
    let records = runs(&app, "stubborn", 4).await;
    let last = records.last().unwrap();
    assert_eq!(told(last), "Synchronization of own: own 6");
    let input = app.world.services.runs.input(last).unwrap();
    let SnapshotState::Ready(own) = &input.snapshots["own"] else { panic!("it is there") };
    assert_eq!(own.items[5].projection["data"]["number"], "4");
    assert_eq!(records.len(), 4, "nothing of it is told a second time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_given_with_the_trigger_also_when_it_is_gone() {
    let world = World::new().await;
    put(&world, object("ConfigMap", "o1", &json!({"a": "1"}))).await;
    let app = world.install("n", scripted(&[("told", &format!("{OWN}{TICK}"))]), nothing()).await;
    app.ready().await;
    put(&world, object("ConfigMap", "o2", &json!({"b": "2"}))).await;
    runs(&app, "told", 2).await;
    remove(&world, "ConfigMap", "o1").await;
    let records = runs(&app, "told", 3).await;
    let lines: Vec<&str> = records.iter().flat_map(|it| &it.log).map(|line| line.message.as_str()).collect();
    assert_eq!(lines, ["o2 {\"b\":\"2\"}", "o1 {\"a\":\"1\"}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_collects_what_happens_meanwhile() {
    let world = World::new().await;
    let limit = "settings: {executionMinInterval: 2s, executionBurst: 1}\n";
    let app = world.install("n", scripted(&[("quiet", &format!("{limit}{OWN}{TICK}"))]), nothing()).await;
    app.ready().await;
    // The synchronization has used up the allowance.
    for number in 0..20 {
        put(&world, object("ConfigMap", &format!("o{number:02}"), &json!({}))).await;
    }
    let records = runs(&app, "quiet", 2).await;
    let at = |index: usize| records[index].started_unix_ms;
    // The interval counts from the decision to run; the record has the moment at which the run began.
    assert!(at(1) + 100 >= at(0) + 2_000, "{} and {}", at(0), at(1));
    let Trigger::Events(changes) = &records[1].trigger else { panic!("{:?}", records[1].trigger) };
    assert_eq!(changes.len(), 20);
    assert_eq!(runs(&app, "quiet", 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_skips_a_hook_that_keeps_the_package_from_being_installed() {
    let world = World::new().await;
    let app = world.install("n", scripted(&[("broken", "beforeHelm: 1\n")]), nothing()).await;
    let failure = app.failure().await;
    assert!(failure.message.contains("it always fails"), "{failure:?}");
    let annotation = barbless_domain::request::SKIP_HOOKS;
    world.cluster.annotate_application(&app.id, annotation, Some("broken")).await.unwrap();
    let state = app.ready().await;
    assert!(
        state.status().conditions.iter().any(|one| one.kind == "HooksSkipped" && one.message.ends_with(": broken"))
    );
}
