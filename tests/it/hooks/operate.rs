//! An application whose hook asks for what a test writes down, and what became of it.

use barbless_domain::operation::OperationResult;
use barbless_domain::package::PackageSource;
use barbless_domain::run::RunRecord;
use barbless_sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::world::{Running, World, component, package, sandbox};

/// A sandbox whose evaluator is there. Compiling it takes longer than these tests wait for anything else: once for all of
/// them, and the cache of compiled components, which all sandboxes share, has it from then on.
pub(super) async fn evaluators() -> &'static Sandbox {
    static SANDBOX: OnceCell<Sandbox> = OnceCell::const_new();
    let made = SANDBOX.get_or_init(|| async {
        let sandbox = sandbox();
        sandbox.jq(".").await.unwrap();
        sandbox
    });
    made.await
}

/// A cluster and a sandbox of a test.
pub(super) async fn site() -> World {
    evaluators().await;
    World::new().await
}

/// The component of the tests of operations and filters.
pub(super) fn hooks() -> Vec<u8> {
    component("tests/guests/operations.wasm")
}

/// A package with a component of hooks.
pub(super) fn with_hooks(hooks: Vec<u8>) -> PackageSource {
    let plain = package("operations");
    let manifest = String::from_utf8(plain.get("package.yaml").unwrap().to_vec()).unwrap();
    let manifest = format!(
        "{manifest}permissions:\n  \
         - {{apiGroups: [\"\"], kinds: [ConfigMap], verbs: [watch, create, apply, patch, delete]}}\n  \
         - {{apiGroups: [\"\"], kinds: [ResourceQuota], verbs: [patch]}}\n"
    );
    let settings = "type: object\nproperties:\n  operations: {type: string, default: '[]'}\n  round: {type: integer}\n";
    let values = "x-extend:\n  schema: settings.yaml\ntype: object\nproperties:\n  internal:\n    type: object\n    \
                  default: {}\n    properties:\n      answers: {type: array, items: {type: object, \
                  additionalProperties: true}}\n      parts: {type: array, items: {}}\n      names: {type: array, items: \
                  {type: string}}\n";
    let template = String::from_utf8(plain.get("templates/config.yaml").unwrap().to_vec()).unwrap();
    let template = template.replace("{{ .Values.replicas | default 1 | quote }}", "\"1\"");
    let mut source = PackageSource::new()
        .with("package.yaml", &manifest)
        .with("openapi/settings.yaml", settings)
        .with("openapi/values.yaml", values)
        .with("templates/config.yaml", &template);
    source.insert("hooks/operations.wasm", hooks).unwrap();
    source
}

/// How a run with these operations ended.
pub(super) struct Performed {
    pub(super) app: Running,
    pub(super) record: std::sync::Arc<RunRecord>,
}

impl Performed {
    /// What became of each operation: `Done`, `Unchanged`, `Skipped`, or the reason of a failure.
    pub(super) fn results(&self) -> Vec<&str> {
        let word = |(_, result): &(_, OperationResult)| match result {
            OperationResult::Done => "Done",
            OperationResult::Unchanged => "Unchanged",
            OperationResult::Skipped => "Skipped",
            OperationResult::Failed { .. } => "Failed",
        };
        self.record.operations.iter().map(word).collect()
    }

    /// The reason of the first failure of the API server.
    pub(super) fn reason(&self) -> &str {
        let failed = self.record.operations.iter().find_map(|(_, result)| match result {
            OperationResult::Failed { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        failed.unwrap_or_default()
    }

    /// Data of a ConfigMap; null if there is none.
    pub(super) async fn data(&self, name: &str) -> Value {
        data(&self.app, name).await
    }
}

/// Data of a ConfigMap; null if there is none.
pub(super) async fn data(app: &Running, name: &str) -> Value {
    app.object("v1", "ConfigMap", name).await.map_or(Value::Null, |object| object["data"].clone())
}

/// Installs an application that does nothing yet.
pub(super) async fn ready(world: &World, name: &str, operations: &Value) -> Running {
    let settings = json!({"operations": operations.to_string()});
    let app = world.install(name, with_hooks(hooks()), settings).await;
    app.ready().await;
    app
}

/// Runs a hook that asks for these operations, as an application of this name.
pub(super) async fn perform(world: &World, name: &str, operations: Value) -> Performed {
    let app = ready(world, name, &operations).await;
    let record = app.run("perform").await;
    Performed { app, record }
}

/// A ConfigMap that somebody has made.
pub(super) async fn made(world: &World, name: &str, data: Value) {
    put(world, "configmaps", config_map(name, data)).await;
}

/// Makes an object of the core group in the namespace of all applications.
pub(super) async fn put(world: &World, plural: &str, object: Value) {
    write(world, "POST", &format!("/api/v1/namespaces/{}/{plural}", world.namespace()), object).await;
}

/// Sends a request to the API.
pub(super) async fn write(world: &World, method: &str, path: &str, body: Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = axum::http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(serde_json::to_vec(&body).unwrap())
        .unwrap();
    world.cluster.client().request::<Value>(request).await.unwrap();
}

/// A ConfigMap as operations write it.
pub(super) fn config_map(name: &str, data: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    object["data"] = data;
    object
}

/// An operation that gives an object.
pub(super) fn give(verb: &str, object: Value) -> Value {
    let mut operation = json!({"verb": verb});
    operation["object"] = object;
    operation
}

/// An operation on a ConfigMap.
pub(super) fn on(verb: &str, name: &str, with: Value) -> Value {
    let mut operation = json!({"verb": verb, "target": {"apiVersion": "v1", "kind": "ConfigMap", "name": name}});
    operation["with"] = with;
    operation
}

/// The same, and a missing object is no error.
pub(super) fn if_there(mut operation: Value) -> Value {
    operation["ignoreMissing"] = json!(true);
    operation
}
