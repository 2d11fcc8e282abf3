//! In-process tests against the development cluster: real requests, real watches, no sockets.
#![allow(clippy::needless_pass_by_value, reason = "a test that passes `json!` by value reads better")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barbless_devcluster::{Config, DevCluster};
use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::operation::{Action, Operation, Propagation};
use barbless_domain::release::{
    HelmHook, HookEvent, InventoryItem, Plan, PlanInput, Readiness, ReleaseAction, RemovalInput, Rendered, defined_by,
    plan, plan_removal,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::request::Target;
use crate::{Cluster, Progress, ReleaseOptions};

mod applications;
mod directives;
mod failures;
mod faults;
mod inventories;
mod lost;
mod operations;
mod preview;
mod reads;
mod records;
mod releases;
mod takeovers;
mod versions;
mod watches;

/// A cluster with namespace `demo`, and the controllers that make workloads ready or not.
pub(crate) async fn start(controllers: bool) -> (DevCluster, Cluster) {
    start_with(Config { controllers, ready_delay: Duration::from_millis(2), ..Config::default() }).await
}

/// A cluster whose seconds last ten milliseconds, so that what fails fails again soon.
pub(crate) async fn start_fast() -> (DevCluster, Cluster) {
    start_with(Config { second: Duration::from_millis(10), ..Config::default() }).await
}

async fn start_with(config: Config) -> (DevCluster, Cluster) {
    let devcluster = DevCluster::start(config).await.expect("the cluster starts");
    let service = tower::ServiceBuilder::new()
        .map_request(|request: http::Request<kube::client::Body>| request.map(axum::body::Body::new))
        .service(devcluster.router());
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    for namespace in ["demo", "other"] {
        cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    }
    (devcluster, cluster)
}

pub(crate) fn app() -> ApplicationId {
    ApplicationId::new("demo", "web").expect("a valid id")
}

pub(crate) fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::parse(api_version, kind).expect("a valid kind")
}

pub(crate) fn reference(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { gvk: gvk(api_version, kind), namespace: namespace.to_owned(), name: name.to_owned() }
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "demo"}, "data": data})
}

impl Cluster {
    /// Creates an object as somebody else.
    pub(crate) async fn put(&self, object: Value) -> Value {
        let target = ObjectRef::of(&object).expect("an object");
        let resource = self.resolve(&target.gvk).await.expect("a served kind");
        let at = Target { resource: &resource, object: &target };
        self.create_in(&at, "somebody", &object).await.expect("created")
    }

    /// Merges a patch as somebody else.
    pub(crate) async fn touch(&self, target: &ObjectRef, patch: Value) -> Value {
        let resource = self.resolve(&target.gvk).await.expect("a served kind");
        self.merge_in(&Target { resource: &resource, object: target }, "somebody", &patch).await.expect("patched")
    }

    pub(crate) async fn read(&self, target: &ObjectRef) -> Option<Value> {
        self.get(target).await.expect("an answer")
    }
}

/// Ready as far as these tests need it: workloads by their counters, everything else at once.
pub(crate) fn ready(object: &Value) -> Readiness {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" | "StatefulSet" => {
            let wanted = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
            let seen = number("/status/observedGeneration") >= number("/metadata/generation");
            match number("/status/readyReplicas") {
                ready if seen && ready >= wanted => Readiness::Ready,
                ready => Readiness::Waiting(format!("{ready} of {wanted} replicas are ready")),
            }
        }
        "CustomResourceDefinition" => {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let established = conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
            if established { Readiness::Ready } else { Readiness::Waiting("not established".to_owned()) }
        }
        _ => Readiness::Ready,
    }
}

pub(crate) fn options(deadline: Duration) -> (ReleaseOptions, mpsc::Receiver<Progress>) {
    let (progress, events) = mpsc::channel(1000);
    let options = ReleaseOptions {
        manager: "barbless".to_owned(),
        ready: Arc::new(ready),
        may_see: Arc::new(|_, _| Ok(())),
        rules: Vec::new(),
        deadline,
        cancel: CancellationToken::new(),
        progress,
        tracking: tokio::sync::watch::Sender::default(),
    };
    (options, events)
}

pub(crate) fn drain(events: &mut mpsc::Receiver<Progress>) -> Vec<Progress> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

/// The plan of an install, or of an upgrade if something is there.
pub(crate) async fn plan_for(cluster: &Cluster, objects: Vec<Value>, previous: &[InventoryItem]) -> Plan {
    let action = if previous.is_empty() { ReleaseAction::Install } else { ReleaseAction::Upgrade };
    plan_of(cluster, action, objects, previous).await
}

/// A plan for an action.
pub(crate) async fn plan_of(
    cluster: &Cluster,
    action: ReleaseAction,
    objects: Vec<Value>,
    previous: &[InventoryItem],
) -> Plan {
    plan_with(cluster, action, objects, Vec::new(), previous).await
}

/// A plan with definitions of `crds/`.
pub(crate) async fn plan_with(
    cluster: &Cluster,
    action: ReleaseAction,
    objects: Vec<Value>,
    definitions: Vec<Value>,
    previous: &[InventoryItem],
) -> Plan {
    let application = app();
    let mut scopes = std::collections::BTreeMap::new();
    for object in objects.iter().chain(&definitions) {
        let kind = ObjectRef::of(object).expect("an object").gvk;
        if let Ok(resource) = cluster.resolve(&kind).await {
            scopes.insert(kind, resource.scope);
        }
    }
    let from = |source: &'static str| move |object| Rendered { object, source: source.to_owned() };
    let input = PlanInput {
        application: &application,
        package: "site",
        action,
        rendered: objects.into_iter().map(from("templates/all.yaml")).collect(),
        definitions: definitions.into_iter().map(from("crds/all.yaml")).collect(),
        previous,
        maintenance: false,
        skip_hooks: false,
    };
    plan(input, |kind| scopes.get(kind).copied(), |_| true).expect("a plan")
}

/// The plan of a removal.
pub(crate) fn removal(inventory: &[InventoryItem], hooks: &BTreeMap<HookEvent, Vec<HelmHook>>) -> Plan {
    let (application, defined) = (app(), defined_by([]));
    plan_removal(&RemovalInput {
        application: &application,
        package: "site",
        inventory,
        defined: &defined,
        hooks,
        skip_hooks: false,
    })
}

/// The plan of the removal of what a plan deployed.
pub(crate) fn removal_of(plan: &Plan) -> Plan {
    plan_removal(&RemovalInput {
        application: &plan.application,
        package: &plan.package,
        inventory: &plan.inventory(),
        defined: &defined_by(plan.objects().map(|it| &it.object)),
        hooks: &plan.hooks,
        skip_hooks: false,
    })
}

#[tokio::test]
async fn kinds_are_resolved_with_scope_and_subresources() {
    let (devcluster, cluster) = start(false).await;
    let deployment = cluster.resolve(&gvk("apps/v1", "Deployment")).await.expect("served");
    assert_eq!((deployment.api.plural.as_str(), deployment.scope), ("deployments", Scope::Namespaced));
    assert!(deployment.serves("list") && deployment.subresources.contains(&"scale".to_owned()));
    assert_eq!(cluster.resolve(&gvk("v1", "Namespace")).await.expect("served").scope, Scope::Cluster);
    let before = devcluster.request_count();
    cluster.resolve(&gvk("apps/v1", "StatefulSet")).await.expect("served");
    assert_eq!(devcluster.request_count(), before, "the same group version is not asked for again");
    for _ in 0..10 {
        let error = cluster.resolve(&gvk("example.org/v1", "Widget")).await.expect_err("not served");
        assert_eq!(error.reason(), "KindNotServed");
    }
    assert_eq!(devcluster.request_count(), before + 1, "a miss is remembered for a while");
}

/// Stands for an evaluator: a program is what `.data.k` becomes, and an empty one an error.
struct SetsK;

impl crate::Jq for SetsK {
    fn evaluate<'a>(
        &'a self,
        program: &'a str,
        object: &'a Value,
    ) -> futures::future::BoxFuture<'a, Result<Vec<Value>, crate::JqFailure>> {
        let mut output = object.clone();
        output["data"]["k"] = program.into();
        let failure = crate::JqFailure { reason: "JqFailed", message: "as the test wants".to_owned() };
        Box::pin(async move { if program.is_empty() { Err(failure) } else { Ok(vec![output]) } })
    }
}

/// The driver spawns its work. Nothing is polled here: the compiler is asked.
#[tokio::test]
async fn all_work_can_be_spawned() {
    fn is_send<T: Send>(_: T) {}
    let (_devcluster, cluster) = start(false).await;
    let (options, _events) = options(Duration::from_secs(1));
    let (id, target) = (app(), reference("v1", "ConfigMap", "demo", "c"));
    let plan = plan_for(&cluster, Vec::new(), &[]).await;
    let delete = Operation {
        target: target.clone(),
        action: Action::Delete { propagation: Propagation::Background },
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    is_send(cluster.apply_release(&plan, &options));
    is_send(cluster.uninstall(&plan, &options));
    is_send(cluster.perform(&id, "m", &delete, &SetsK));
    is_send(cluster.missing(&id, std::slice::from_ref(&target)));
    is_send(cluster.purge_orphans(&id, &[]));
    is_send(cluster.release_history(&id));
    is_send(cluster.latest_release(&id));
    is_send(cluster.delete_releases(&id));
    is_send(cluster.establish_crds());
    is_send(cluster.served_versions());
    is_send(cluster.list_everything());
    is_send(cluster.ensure_finalizer(&id));
    is_send(cluster.remove_finalizer(&id));
    is_send(cluster.write_status(&id, crate::ApplicationStatus::default(), jiff::Timestamp::UNIX_EPOCH));
    is_send(cluster.watch_applications(None));
}

#[tokio::test]
async fn names_cannot_lead_a_request_elsewhere() {
    let (_devcluster, cluster) = start(false).await;
    for name in ["../secrets/x", "a/b", "a?b", "a%2fb", "..", "a b"] {
        let error = cluster.get(&reference("v1", "ConfigMap", "demo", name)).await.expect_err("refused");
        assert_eq!(error.reason(), "BadRequest", "{name}");
    }
    let error = cluster.list(&gvk("v1", "ConfigMap"), Some("demo/secrets?"), "").await.expect_err("refused");
    assert_eq!(error.reason(), "BadRequest");
}
