//! What the hooks get: Pods as snapshots for components, and the same as a binding context for processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use barbless_domain::grant::Grant;
use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::identity::ApplicationId;
use barbless_domain::operation::Action;
use barbless_domain::run::{Instance, RunInput, RunOutcome, Snapshot, SnapshotItem, SnapshotState};
use barbless_sandbox::{Prepared, Sandbox};
use serde_json::{Value, json};

/// Pods of the small job; the second has no owner.
const FEW: usize = 2;
/// Pods of the large job: about 5 MB of JSON.
const MANY: usize = 1342;
/// Where the Pods are.
const NAMESPACE: &str = "demo";
/// The Pod of the small job that has no owner.
const UNOWNED: &str = "web-6d4cf56db6-00001";
/// Environment variables that make a Pod about as large as real ones are, 3.7 KB.
const VARIABLES: usize = 38;

/// The small job.
pub(crate) struct OneKilobyte {
    pub(crate) input: Arc<RunInput>,
    /// The same as text, as shell-operator writes it.
    pub(crate) context: String,
}

pub(crate) fn one_kilobyte() -> OneKilobyte {
    let pods: Vec<Value> = (0..FEW).map(|index| pod(index, 0)).collect();
    let objects: Vec<Value> = pods.iter().map(|pod| json!({"object": pod})).collect();
    let context = json!([{"binding": "pods", "type": "Synchronization", "objects": objects}]).to_string();
    OneKilobyte { input: Arc::new(input("one-kilobyte", synchronization(), pods)), context }
}

/// The large job, and its size as JSON text.
pub(crate) fn five_megabytes() -> (Arc<RunInput>, usize) {
    let pods: Vec<Value> = (0..MANY).map(|index| pod(index, VARIABLES)).collect();
    let bytes = pods.iter().map(|pod| pod.to_string().len() + 1).sum();
    (Arc::new(input("five-megabytes", synchronization(), pods)), bytes)
}

/// The run that does nothing.
pub(crate) fn empty() -> Arc<RunInput> {
    Arc::new(input("empty", Trigger::Lifecycle(Stage::OnStartup), Vec::new()))
}

fn synchronization() -> Trigger {
    Trigger::Synchronization(vec!["pods".to_owned()])
}

fn pod(index: usize, variables: usize) -> Value {
    let name = format!("web-6d4cf56db6-{index:05}");
    let mut labels = json!({"app": format!("web-{}", index % 7), "pod-template-hash": "6d4cf56db6"});
    if index.is_multiple_of(2)
        && let Some(labels) = labels.as_object_mut()
    {
        labels.insert("owner".to_owned(), json!("team-a"));
    }
    let env: Vec<Value> = (0..variables)
        .map(|n| json!({"name": format!("SETTING_{n:02}"), "value": format!("a value of some length, number {n:06}")}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": format!("0d5b31b4-7f0c-4b6e-9f63-{index:012}"),
            "labels": labels,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "web", "image": "registry.example.com/web:1.27.3", "env": env}],
        },
        "status": {"phase": "Running", "podIP": "10.111.0.17", "qosClass": "Burstable"},
    })
}

fn input(hook: &str, trigger: Trigger, pods: Vec<Value>) -> RunInput {
    let text = |pod: &Value, pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let items = pods.into_iter().map(|pod| {
        let (namespace, name) = (text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
        Arc::new(SnapshotItem::new(namespace, name, pod, None))
    });
    let snapshot = Snapshot::new(items.collect());
    RunInput {
        hook: hook.to_owned(),
        trigger,
        attempt: 1,
        dry_run: false,
        instance: Instance {
            name: "web".to_owned(),
            namespace: NAMESPACE.to_owned(),
            package_name: "bench".to_owned(),
            package_version: "1.0.0".to_owned(),
        },
        values: Arc::new(json!({"replicas": 1})),
        settings: Arc::new(json!({})),
        snapshots: BTreeMap::from([("pods".to_owned(), SnapshotState::Ready(Arc::new(snapshot)))]),
        now_unix_ms: 1_800_000_000_000,
        seed: [7; 32],
    }
}

/// Loads a component and links it with everything granted.
pub(crate) async fn prepare(sandbox: &Sandbox, wasm: Vec<u8>) -> Result<Prepared> {
    let component = sandbox.load(wasm).await.context("the guest does not load")?;
    let application = ApplicationId::new(NAMESPACE, "web").context("the name of the application")?;
    sandbox.prepare(&component, &application, &Grant::with(Vec::new())).context("the guest cannot be linked")
}

/// The small job was done: the one patch that is right.
pub(crate) fn check_patch(outcome: &RunOutcome) -> Result<()> {
    ensure!(outcome.end.is_ok(), "the run {}", outcome.end);
    let [operation] = outcome.operations.as_slice() else {
        anyhow::bail!("{} operations in place of one", outcome.operations.len());
    };
    // Cheap, because the processor time of a round includes it.
    let Action::MergePatch { patch } = &operation.action else {
        anyhow::bail!("another operation than expected: {operation:?}");
    };
    ensure!(
        operation.target.name == UNOWNED
            && operation.target.namespace == NAMESPACE
            && patch.pointer("/metadata/labels/owner").and_then(Value::as_str) == Some("unknown"),
        "another operation than expected: {operation:?}"
    );
    Ok(())
}

/// The large job was done: all Pods were seen.
pub(crate) fn check_seen(outcome: &RunOutcome) -> Result<()> {
    ensure!(outcome.end.is_ok(), "the run {}", outcome.end);
    let seen = outcome.values.first().and_then(|change| change.value.as_ref()).and_then(|value| value.get("pods"));
    ensure!(seen == Some(&json!(MANY)), "Pods seen: {seen:?}");
    Ok(())
}

/// The empty job was done.
pub(crate) fn check_nothing(outcome: &RunOutcome) -> Result<()> {
    ensure!(outcome.end.is_ok(), "the run {}", outcome.end);
    Ok(())
}

/// The line that each process writes into its patch file.
pub(crate) fn expected() -> Value {
    json!({
        "operation": "MergePatch",
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": NAMESPACE,
        "name": UNOWNED,
        "mergePatch": {"metadata": {"labels": {"owner": "unknown"}}},
    })
}
