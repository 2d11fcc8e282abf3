//! The custom resources of Barbless: group `deckhouse.io`, version `v1alpha1`, as existing manifests have them.
//!
//! The Rust types are the schema; [`crds`] makes the definitions of them.
#![allow(clippy::duplicated_attributes, reason = "each column of kube's derive has a type, and many are strings")]

use barbless_domain::identity::ApplicationId;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Group of the custom resources.
pub const GROUP: &str = "deckhouse.io";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// Finalizer on an Application whose objects are not removed yet.
pub const FINALIZER: &str = "application.deckhouse.io/barbless";

/// Any map.
fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// How an apply goes on: numbers that can be printed in columns, and a report that grows with what there is to tell.
fn tracking(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "properties": {
        "completed": {"type": "integer", "minimum": 0},
        "remaining": {"type": "integer", "minimum": 0},
        "report": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

/// What a user wants of an application.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "deckhouse.io",
    version = "v1alpha1",
    kind = "Application",
    namespaced,
    status = "ApplicationStatus",
    derive = "PartialEq",
    printcolumn(name = "Package", type_ = "string", json_path = ".spec.packageName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.packageVersion"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.summary.state"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.summary.message"),
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.packageRepositoryName", priority = "1"),
    printcolumn(
        name = "Installed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Installed')].status",
        priority = "1"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    /// Name of the package.
    pub package_name: String,
    /// Version of the package.
    pub package_version: String,
    /// Repository that has the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_repository_name: Option<String>,
    /// Channel that the version was taken from; for information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_channel: Option<String>,
    /// Settings of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub settings: Option<Value>,
    /// Leave resources alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,
    /// Replicas and resources of workloads, over those of the package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind", "name"]))]
    pub resource_requests: Vec<ResourceRequest>,
    /// How new versions are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
}

/// A kind of maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Maintenance {
    /// Objects are not reconciled; hooks keep running.
    NoResourceReconciliation,
}

/// Replicas and resources of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.replicas) || self.kind in ['Deployment', 'StatefulSet', 'ReplicaSet']",
    "message": "replicas can only be set for Deployment, StatefulSet and ReplicaSet",
}]))]
pub struct ResourceRequest {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
    /// Its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerResources>,
}

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the kinds are those of Kubernetes")]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    ReplicaSet,
    Pod,
    Job,
    CronJob,
}

/// Resources of one container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerResources {
    /// Name of the container.
    pub name: String,
    /// Requests and limits, as in a Pod.
    #[serde(default)]
    #[schemars(schema_with = "free_form")]
    pub resources: Value,
}

/// How new versions are taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// Which new versions are taken by themselves.
    #[serde(default)]
    pub mode: UpdateMode,
    /// When; at any time if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<UpdateWindow>,
    /// Alerts that stop an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_on_alerts: Option<BlockOnAlerts>,
}

/// Which new versions are taken by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateMode {
    /// Patch versions.
    #[default]
    AutoPatch,
    /// All versions.
    Auto,
    /// None.
    Manual,
}

/// Hours at which updates happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateWindow {
    /// Begin, `HH:MM` in UTC.
    #[schemars(regex(pattern = r"^(?:\d|[01]\d|2[0-3]):[0-5]\d$"))]
    pub from: String,
    /// End, `HH:MM` in UTC.
    #[schemars(regex(pattern = r"^(?:\d|[01]\d|2[0-3]):[0-5]\d$"))]
    pub to: String,
    /// Days of the week; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the days speak for themselves")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// Alerts that stop an update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockOnAlerts {
    /// Whether alerts stop it.
    #[serde(default)]
    pub enabled: bool,
    /// Alerts up to this severity do; 0 is the worst.
    #[serde(default = "BlockOnAlerts::default_severity")]
    #[schemars(range(min = 0, max = 9))]
    pub severity: i32,
}

impl BlockOnAlerts {
    fn default_severity() -> i32 {
        4
    }
}

/// What has become of an application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// Generation of the object that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// In detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<CurrentVersion>,
    /// The effective settings of what is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub last_applied_configuration: Option<Value>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// How the last apply, rollback or removal goes on, or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tracking")]
    pub tracking: Option<Value>,
    /// Where users find it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<Url>,
    /// How far a deletion has come; another process goes on there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_step: Option<String>,
}

/// One condition, as `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// Stable reason.
    #[serde(default)]
    pub reason: String,
    /// For users.
    #[serde(default)]
    pub message: String,
    /// When the status changed last, RFC 3339.
    #[serde(default)]
    pub last_transition_time: String,
    /// Generation that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentVersion {
    /// Version.
    #[serde(default)]
    pub version: String,
    /// Channel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
}

/// The state in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// One of Pending, Failed, Updating, Ready, Degraded, Suspended, Deleting.
    #[serde(default)]
    pub state: String,
    /// Why.
    #[serde(default)]
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub tip: String,
}

/// An address of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Url {
    /// The address.
    pub url: String,
    /// What is there.
    #[serde(default)]
    pub description: String,
}

/// Which version of which package of which repository.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "deckhouse.io",
    version = "v1alpha1",
    kind = "ApplicationPackageVersion",
    shortname = "apv",
    status = "ApplicationPackageVersionStatus",
    printcolumn(name = "Package", type_ = "string", json_path = ".spec.packageName"),
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.packageRepositoryName"),
    printcolumn(
        name = "MetadataLoaded",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='MetadataLoaded')].status"
    ),
    printcolumn(name = "UsedBy", type_ = "integer", json_path = ".status.usedByCount"),
    printcolumn(
        name = "TransitionTime",
        type_ = "date",
        json_path = ".status.conditions[?(@.type=='MetadataLoaded')].lastTransitionTime",
        priority = "1"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='MetadataLoaded')].message",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationPackageVersionSpec {
    /// Name of the package.
    #[schemars(length(min = 1), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the field is immutable"}]))]
    pub package_name: String,
    /// Name of the repository.
    #[schemars(length(min = 1), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the field is immutable"}]))]
    pub package_repository_name: String,
    /// Version of the package.
    #[schemars(length(min = 1), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the field is immutable"}]))]
    pub package_version: String,
}

/// What is known about a version of a package.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationPackageVersionStatus {
    /// Generation of the object that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Descriptions, requirements, licensing, changelog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub package_metadata: Option<Value>,
    /// Schemas of settings and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub package_schemas: Option<Value>,
    /// In detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Applications of this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<UsedBy>,
    /// How many they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_count: Option<i64>,
}

/// An application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedBy {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A package has nothing that a user wants of it: it is gathered from its versions.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "deckhouse.io",
    version = "v1alpha1",
    kind = "ApplicationPackage",
    shortname = "ap",
    no_spec,
    status = "ApplicationPackageStatus",
    printcolumn(name = "Instances", type_ = "integer", json_path = ".status.instancesOverall"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ApplicationPackageSpec {}

/// Where a package is and what uses it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationPackageStatus {
    /// Repositories that have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available_repositories: Vec<String>,
    /// Applications by namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub instances: Option<Value>,
    /// How many they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances_overall: Option<i64>,
}

/// Where packages come from.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "deckhouse.io",
    version = "v1alpha1",
    kind = "PackageRepository",
    plural = "packagerepositories",
    status = "PackageRepositoryStatus",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Sync", type_ = "date", json_path = ".status.syncTime"),
    printcolumn(
        name = "MSG",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='LastOperationScanFinished')].message"
    ),
    printcolumn(name = "Packages", type_ = "integer", json_path = ".status.packagesCount", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PackageRepositorySpec {
    /// The registry.
    pub registry: Registry,
    /// How often it is looked through.
    #[serde(default = "PackageRepositorySpec::default_interval")]
    #[schemars(regex(pattern = r"^(\d+h)?(\d+m)?(\d+s)?$"))]
    pub scan_interval: String,
}

impl PackageRepositorySpec {
    fn default_interval() -> String {
        "6h".to_owned()
    }
}

/// A registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Registry {
    /// Its address and path.
    pub repo: String,
    /// HTTP or HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// Credentials as in a docker configuration, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker_cfg: Option<String>,
    /// Certificate of its authority, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Name to log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Password to log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// A scheme of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scheme {
    /// In the clear.
    #[serde(rename = "HTTP")]
    Http,
    /// Over TLS.
    #[serde(rename = "HTTPS")]
    Https,
}

/// What was found in a repository.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRepositoryStatus {
    /// What is being done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// When it was looked through last, RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sync_time: String,
    /// Packages that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<RepositoryPackage>,
    /// How many they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages_count: Option<i64>,
    /// For users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// In detail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A package of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepositoryPackage {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// The definitions of the custom resources, as JSON.
#[must_use]
pub fn crds() -> Vec<Value> {
    let mut application = definition(&Application::crd());
    if let Some(Value::Object(schema)) = application.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
        // Names of objects are made of it, and it is a part of an id with dots.
        let most = ApplicationId::NAME_MAX;
        schema.insert(
            "x-kubernetes-validations".to_owned(),
            json!([
                {"rule": format!("self.metadata.name.size() <= {most}"),
                 "message": format!("the name of an Application has {most} characters at most")},
                {"rule": "!self.metadata.name.contains('.')",
                 "message": "the name of an Application has no dots"},
            ]),
        );
    }
    let others = [ApplicationPackage::crd(), ApplicationPackageVersion::crd(), PackageRepository::crd()];
    std::iter::once(application).chain(others.iter().map(definition)).collect()
}

fn definition(crd: &CustomResourceDefinition) -> Value {
    let mut value = serde_json::to_value(crd).expect("a definition has text keys and finite numbers only");
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(
            "labels".to_owned(),
            serde_json::json!({"heritage": "deckhouse", "app.kubernetes.io/name": "barbless"}),
        );
    }
    value
}
