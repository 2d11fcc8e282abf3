//! A release on a cluster: what `helm install`, `upgrade`, `rollback`, `uninstall` and `test` do, done with the
//! release engine of the host.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use barbless_cluster::{AfterRemoval, Cluster, Record};
use barbless_devcluster::Config;
use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::release::conflict::Rule;
use barbless_domain::release::history::{self, Action};
use barbless_domain::release::{self, Plan, PlanInput, Readiness, Refused, ReleaseAction, Rendered};
use barbless_template::NoLookup;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::chart::{Chart, Object};
use super::helm;
use super::tap::Tap;
use crate::target::Target;

/// Nothing waits for so long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster, and a process that has one release on it.
#[derive(Clone)]
pub(crate) struct Site {
    /// The API, whoever asks.
    pub(crate) api: Target,
    pub(crate) id: ApplicationId,
    /// The cluster as the process sees it; everything that it does is in `tap`.
    pub(crate) cluster: Cluster,
    pub(crate) tap: Arc<Tap>,
    pub(crate) options: Options,
    /// Somebody else, whose requests are not written down.
    other: kube::Client,
}

/// How the process works.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Name of the process.
    pub(crate) owner: String,
    /// How long an operation may take.
    pub(crate) deadline: Duration,
    /// Whether Helm hooks run.
    pub(crate) hooks: bool,
    /// Revisions that are kept.
    pub(crate) kept_revisions: usize,
    /// Whether a removal keeps the history.
    pub(crate) keep_history: bool,
    /// Whether a release of Helm is taken over.
    pub(crate) take_over: bool,
    /// Whether objects of the cluster are allowed.
    pub(crate) cluster_allowed: bool,
    /// Every object counts as ready.
    pub(crate) all_ready: bool,
    /// What is done about fields of others.
    pub(crate) rules: Vec<Rule>,
    /// Ends an operation.
    pub(crate) cancel: CancellationToken,
}

/// Why an operation failed.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        let hint = refused.problems.first().map(|it| it.hint.clone()).unwrap_or_default();
        Self { reason: refused.reason().to_owned(), message: refused.to_string(), hint }
    }
}

/// Lines of a log, written with semicolons between them.
pub(crate) fn seq(text: &str) -> Vec<String> {
    text.split(';').map(|line| line.trim().to_owned()).collect()
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::on(Target::start(Config::default()).await, "first")
    }

    /// A cluster whose seconds last a millisecond.
    pub(crate) async fn fast() -> Self {
        let config = Config { second: Duration::from_millis(1), ..Config::default() };
        Self::on(Target::start(config).await, "first")
    }

    /// A process on a cluster.
    pub(crate) fn on(api: Target, owner: &str) -> Self {
        let (client, tap) = Tap::on(&api);
        let options = Options {
            owner: owner.to_owned(),
            deadline: PATIENCE,
            hooks: true,
            kept_revisions: 10,
            keep_history: false,
            take_over: false,
            cluster_allowed: true,
            all_ready: false,
            rules: Vec::new(),
            cancel: CancellationToken::new(),
        };
        let (id, other) = (ApplicationId::new(api.namespace(), "r").unwrap(), api.client());
        Self { api, id, cluster: Cluster::new(client), tap, options, other }
    }

    /// The same process, working in another way.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Options)) -> Self {
        let mut site = self.clone();
        change(&mut site.options);
        site
    }

    /// The same process, no longer cancelled.
    pub(crate) fn again(&self) -> Self {
        self.with(|options| options.cancel = CancellationToken::new())
    }

    /// Another process on the same cluster.
    pub(crate) fn another(&self, owner: &str) -> Self {
        Self::on(self.api.clone(), owner)
    }

    // What was done.

    /// What was changed since the last look, in the form in which it can be compared.
    pub(crate) fn changes(&self) -> Vec<String> {
        helm::normal(self.log())
    }

    /// What was changed since the last look, in the order in which it was.
    pub(crate) fn log(&self) -> Vec<String> {
        let lines = self.tap.lines();
        self.tap.clear();
        lines
    }

    /// The same; a record is shown when its status changes.
    pub(crate) fn log_without_repeats(&self) -> Vec<String> {
        helm::without_repeats(self.log())
    }

    /// Revisions with their status.
    pub(crate) async fn history(&self) -> Vec<(u32, &'static str)> {
        let records = self.another("reader").cluster.release_history(&self.id).await.unwrap();
        records.iter().map(|record| (record.revision, record.status.as_str())).collect()
    }

    /// The last revision.
    pub(crate) async fn last(&self) -> Record {
        self.another("reader").cluster.latest_release(&self.id).await.unwrap().expect("a release")
    }

    // What somebody else does.

    async fn api(&self, object: &Object) -> Api<DynamicObject> {
        let target = ObjectRef::of(&object.0).unwrap();
        let Gvk { group, version, kind } = &target.gvk;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, facts) = kube::discovery::pinned_kind(&self.other, &gvk).await.unwrap();
        match facts.scope {
            kube::discovery::Scope::Cluster => Api::all_with(self.other.clone(), &resource),
            kube::discovery::Scope::Namespaced => {
                Api::namespaced_with(self.other.clone(), self.id.namespace(), &resource)
            }
        }
    }

    /// The object as it is in the cluster.
    pub(crate) async fn get(&self, object: &Object) -> Option<Value> {
        let found = self.api(object).await.get_opt(&name_of(object)).await.unwrap();
        found.map(|it| serde_json::to_value(it).unwrap())
    }

    /// Whether the object is in the cluster.
    pub(crate) async fn has(&self, object: &Object) -> bool {
        self.get(object).await.is_some()
    }

    /// Somebody creates it.
    pub(crate) async fn put(&self, object: &Object) {
        self.put_as(object, "somebody").await;
    }

    /// Somebody creates it with this field manager.
    pub(crate) async fn put_as(&self, object: &Object, manager: &str) {
        let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let document: DynamicObject = serde_json::from_value(object.0.clone()).unwrap();
        self.api(object).await.create(&parameters, &document).await.unwrap();
    }

    /// Somebody defines a kind, and waits until it is served.
    pub(crate) async fn define(&self, kind: &str) {
        let definition = super::chart::definition(kind, "Namespaced");
        self.put(&definition).await;
        self.until("the kind is served", &definition, |it| {
            let conditions = it["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Established" && it["status"] == "True"))
        })
        .await;
    }

    /// Somebody applies it with this field manager.
    pub(crate) async fn apply_as(&self, object: &Object, manager: &str) {
        let parameters = PatchParams::apply(manager);
        self.api(object).await.patch(&name_of(object), &parameters, &Patch::Apply(&object.0)).await.unwrap();
    }

    /// Somebody deletes it.
    pub(crate) async fn remove(&self, object: &Object) {
        self.api(object).await.delete(&name_of(object), &DeleteParams::background()).await.unwrap();
    }

    async fn merge(&self, object: &Object, patch: Value) {
        let parameters = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        self.api(object).await.patch(&name_of(object), &parameters, &Patch::Merge(&patch)).await.unwrap();
    }

    /// Somebody annotates it.
    pub(crate) async fn annotate(&self, object: &Object, name: &str, value: &str) {
        self.merge(object, json!({"metadata": {"annotations": {name: value}}})).await;
    }

    /// Somebody labels it.
    pub(crate) async fn relabel(&self, object: &Object, name: &str, value: &str) {
        self.merge(object, json!({"metadata": {"labels": {name: value}}})).await;
    }

    /// Somebody puts a finalizer on it.
    pub(crate) async fn hold(&self, object: &Object, finalizer: &str) {
        self.merge(object, json!({"metadata": {"finalizers": [finalizer]}})).await;
    }

    /// Somebody takes the finalizers off.
    pub(crate) async fn release(&self, object: &Object) {
        self.merge(object, json!({"metadata": {"finalizers": null}})).await;
    }

    /// Somebody scales it with kubectl.
    pub(crate) async fn scale(&self, object: &Object, replicas: u32) {
        let parameters = PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.api(object).await.patch_scale(&name_of(object), &parameters, &patch).await.unwrap();
    }

    /// Waits until the object is there and as wanted.
    pub(crate) async fn until(&self, what: &str, object: &Object, holds: impl Fn(&Value) -> bool) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.get(object).await.is_some_and(|object| holds(&object)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("not in time: {what}");
    }

    // Release records, as another tool writes them.

    fn record(revision: u32) -> Object {
        super::chart::object("v1", "Secret", &format!("sh.helm.release.v1.r.v{revision}"))
    }

    async fn change_record(&self, revision: u32, change: impl FnOnce(&mut Value)) {
        let secret = self.get(&Self::record(revision)).await.unwrap();
        let mut release = unpack(&secret);
        change(&mut release);
        let status = release["info"]["status"].clone();
        self.merge(
            &Self::record(revision),
            json!({"metadata": {"labels": {"status": status}}, "data": {"release": pack(&release)}}),
        )
        .await;
    }

    /// A tool died and left a revision like this, without an owner.
    pub(crate) async fn leave_pending(&self, revision: u32, status: &str) {
        self.change_record(revision, |release| release["info"]["status"] = json!(status)).await;
    }

    /// Replaces text in the manifest of a record.
    pub(crate) async fn rewrite_record(&self, revision: u32, from: &str, to: &str) {
        self.change_record(revision, |release| {
            let manifest = release["manifest"].as_str().unwrap();
            assert!(manifest.contains(from), "{manifest}");
            release["manifest"] = json!(manifest.replace(from, to));
        })
        .await;
    }

    /// Helm installed a release of this name.
    pub(crate) async fn helm_record(&self, revision: u32, status: &str, objects: &[&Object]) {
        self.put_as(&helm_secret(self.id.namespace(), revision, status, objects), "helm").await;
    }

    /// The process that works on the last revision gave its last sign of life long ago.
    pub(crate) async fn owner_dies(&self) {
        let Some((revision, _)) = self.history().await.last().copied() else { return };
        let secret = self.get(&Self::record(revision)).await.unwrap();
        let beat = "packages.deckhouse.io/release-heartbeat";
        if secret["metadata"]["annotations"].get(beat).is_some() {
            self.annotate(&Self::record(revision), beat, "1").await;
        }
    }
}

/// The record that Helm keeps of a release `r`.
pub(crate) fn helm_secret(namespace: &str, revision: u32, status: &str, objects: &[&Object]) -> Object {
    let documents = objects.iter().map(|it| format!("---\n# Source: t/templates/a.yaml\n{}\n", it.0));
    let now = jiff::Timestamp::now().to_string();
    let release = json!({
        "name": "r", "namespace": namespace, "version": revision, "manifest": documents.collect::<String>(),
        "info": {"first_deployed": now, "last_deployed": now, "deleted": "", "description": "", "status": status},
        "chart": {"metadata": {"name": "t", "version": "0.1.0", "apiVersion": "v2"}}, "config": {},
    });
    Site::record(revision)
        .set("/type", json!("helm.sh/release.v1"))
        .set("/data", json!({"release": pack(&release)}))
        .label("name", "r")
        .label("owner", "helm")
        .label("status", status)
        .label("version", &revision.to_string())
}

fn name_of(object: &Object) -> String {
    object.0["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The JSON in a Secret of Helm.
pub(crate) fn unpack(secret: &Value) -> Value {
    let outer = STANDARD.decode(secret["data"]["release"].as_str().unwrap()).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(STANDARD.decode(outer).unwrap().as_slice()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn pack(release: &Value) -> String {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(release.to_string().as_bytes()).unwrap();
    STANDARD.encode(STANDARD.encode(packer.finish().unwrap()))
}

/// Readiness as the host sees it.
fn readiness(object: &Value) -> Readiness {
    match barbless_health::readiness(object) {
        barbless_health::Readiness::Ready => Readiness::Ready,
        barbless_health::Readiness::NotReady { reason } => Readiness::Waiting(reason),
        barbless_health::Readiness::Failed { reason } => Readiness::Failed(reason),
    }
}

/// The operations.
impl Site {
    /// The plan of an upgrade to a chart, or of its installation.
    pub(crate) async fn plan(&self, chart: &Chart) -> Result<Plan, Failed> {
        let history = self.records().await?;
        self.plan_for(chart, action_of(&history), &history).await
    }

    async fn plan_for(&self, chart: &Chart, action: ReleaseAction, history: &[Record]) -> Result<Plan, Failed> {
        let revision = history.last().map_or(1, |last| last.revision + 1);
        let rendered = chart.render(self.id.namespace(), revision, &NoLookup).map_err(|message| Failed {
            reason: "RenderFailed".to_owned(),
            message,
            hint: String::new(),
        })?;
        let all = |manifests: Vec<barbless_template::Manifest>| -> Vec<Rendered> {
            manifests.into_iter().map(|it| Rendered { object: it.object, source: it.source }).collect()
        };
        self.make_plan(action, all(rendered.manifests), all(rendered.crds), history).await
    }

    async fn make_plan(
        &self,
        action: ReleaseAction,
        rendered: Vec<Rendered>,
        definitions: Vec<Rendered>,
        history: &[Record],
    ) -> Result<Plan, Failed> {
        let kinds: BTreeSet<Gvk> =
            rendered.iter().chain(&definitions).filter_map(|it| Some(ObjectRef::of(&it.object).ok()?.gvk)).collect();
        let mut scopes: BTreeMap<Gvk, Scope> = BTreeMap::new();
        for kind in kinds {
            if let Ok(resource) = self.cluster.resolve(&kind).await {
                scopes.insert(kind, resource.scope);
            }
        }
        let previous = self.cluster.inventory_of(history).await.unwrap();
        let input = PlanInput {
            application: &self.id,
            package: "t",
            action,
            rendered,
            definitions,
            previous: &previous,
            maintenance: false,
            skip_hooks: !self.options.hooks,
        };
        let allowed = self.options.cluster_allowed;
        Ok(release::plan(input, |kind| scopes.get(kind).copied(), |_| allowed)?)
    }

    async fn records(&self) -> Result<Vec<Record>, Failed> {
        self.cluster.release_history(&self.id).await.map_err(|error| Failed {
            reason: error.reason().to_owned(),
            message: error.chain(),
            hint: String::new(),
        })
    }

    /// `helm install`.
    pub(crate) async fn install(&self, chart: &Chart) -> Result<(), Failed> {
        let history = self.records().await?;
        let plan = self.plan_for(chart, ReleaseAction::Install, &history).await?;
        self.deploy(&plan, Action::Install, chart.notes(), None).await
    }

    /// `helm upgrade`; what was never deployed is still being installed.
    pub(crate) async fn upgrade(&self, chart: &Chart) -> Result<(), Failed> {
        let history = self.records().await?;
        let plan = self.plan_for(chart, ReleaseAction::Upgrade, &history).await?;
        self.deploy(&plan, Action::Upgrade, chart.notes(), None).await
    }

    /// Whichever of the two it is, as the host decides it.
    pub(crate) async fn apply(&self, chart: &Chart) -> Result<(), Failed> {
        let known: Vec<_> = self.records().await?.iter().map(Record::revision).collect();
        match history::next_action(&known) {
            Action::Install => self.install(chart).await,
            Action::Upgrade | Action::Rollback => self.upgrade(chart).await,
        }
    }

    /// `helm rollback`.
    pub(crate) async fn rollback(&self, revision: u32) -> Result<(), Failed> {
        let history = self.records().await?;
        let known: Vec<_> = history.iter().map(Record::revision).collect();
        let target = history::rollback_target(&known, revision).map_err(|missing| Failed {
            reason: missing.reason().to_owned(),
            message: missing.to_string(),
            hint: missing.hint(),
        })?;
        let record = history.iter().find(|it| it.revision == target).expect("a revision of the history");
        let plan = self.make_plan(ReleaseAction::Rollback, record.rendered(), Vec::new(), &history).await?;
        self.deploy(&plan, Action::Rollback, Some(record.notes.clone()), Some(target)).await
    }

    /// `helm upgrade --rollback-on-failure`.
    pub(crate) async fn upgrade_or_go_back(&self, chart: &Chart) -> Result<(), Failed> {
        let Err(failed) = self.upgrade(chart).await else { return Ok(()) };
        let known: Vec<_> = self.records().await?.iter().map(Record::revision).collect();
        let last = known.last().map_or(0, |it| it.number);
        if let Some(good) = history::last_good(&known, last) {
            self.rollback(good).await?;
        }
        Err(failed)
    }

    /// Whether the host would upgrade to this chart: what a reconciliation asks before it does anything.
    pub(crate) async fn needs_upgrade(&self, chart: &Chart) -> bool {
        let history = self.records().await.unwrap();
        let plan = self.plan_for(chart, action_of(&history), &history).await.unwrap();
        let missing = self.missing_of(&history).await;
        let last = history.last().map(|last| (last.status, last.digest.as_str()));
        release::upgrade_needed(last, &plan.digest, &missing).is_some()
    }

    /// What is missing in the cluster, as a reconciliation finds it.
    pub(crate) async fn missing(&self) -> Vec<ObjectRef> {
        let history = self.records().await.unwrap();
        self.missing_of(&history).await
    }

    async fn missing_of(&self, history: &[Record]) -> Vec<ObjectRef> {
        let lasting = self.cluster.inventory_of(history).await.unwrap().into_iter().filter(|item| !item.transient);
        let targets: Vec<ObjectRef> = lasting.map(|item| item.target).collect();
        self.cluster.missing(&self.id, &targets).await.unwrap()
    }

    /// All objects of the kind of this one in the namespace.
    pub(crate) async fn list(&self, kind: &Object) -> Vec<Value> {
        let (api_version, name) = (kind.0["apiVersion"].clone(), kind.0["kind"].clone());
        let listed = self.api(kind).await.list(&kube::api::ListParams::default()).await.unwrap();
        let items = listed.items.into_iter().map(|it| {
            let mut object = serde_json::to_value(it).unwrap();
            (object["apiVersion"], object["kind"]) = (api_version.clone(), name.clone());
            object
        });
        items.collect()
    }
}

// What the loop of an application does around the work: begins a revision, applies, ends it.

fn action_of(history: &[Record]) -> ReleaseAction {
    let known: Vec<_> = history.iter().map(Record::revision).collect();
    match history::next_action(&known) {
        Action::Install => ReleaseAction::Install,
        Action::Upgrade | Action::Rollback => ReleaseAction::Upgrade,
    }
}

impl From<barbless_cluster::DeployError> for Failed {
    fn from(error: barbless_cluster::DeployError) -> Self {
        let hint = error.hint().unwrap_or_default().to_owned();
        Self { reason: error.reason().to_owned(), message: error.chain(), hint }
    }
}

impl Site {
    fn release_options(&self) -> barbless_cluster::ReleaseOptions {
        let all = self.options.all_ready;
        barbless_cluster::ReleaseOptions {
            manager: "barbless".to_owned(),
            ready: Arc::new(move |object| if all { Readiness::Ready } else { readiness(object) }),
            may_see: Arc::new(|_, _| Ok(())),
            rules: self.options.rules.clone(),
            deadline: self.options.deadline,
            cancel: self.options.cancel.clone(),
            progress: tokio::sync::mpsc::channel(1).0,
            tracking: tokio::sync::watch::Sender::default(),
        }
    }

    async fn deploy(
        &self,
        plan: &Plan,
        action: Action,
        notes: Option<String>,
        rollback_of: Option<u32>,
    ) -> Result<(), Failed> {
        let now = jiff::Timestamp::now;
        let new = barbless_cluster::NewRevision {
            plan,
            action,
            package_version: "0.1.0",
            settings: &json!({}),
            notes: notes.as_deref().unwrap_or_default(),
            owner: &self.options.owner,
            now: now(),
            rollback_of,
            set_aside: None,
            seed: None,
            patches: &barbless_domain::values::Patches::default(),
            take_over: self.options.take_over,
            kept_revisions: self.options.kept_revisions,
        };
        Ok(self.cluster.deploy(&self.id, new, &self.release_options()).await.map(drop)?)
    }

    pub(crate) async fn uninstall(&self) -> Result<Vec<String>, Failed> {
        let history = self.records().await?;
        let Some(mut record) = history.last().cloned() else { return Ok(Vec::new()) };
        let plan = release::plan_removal(&release::RemovalInput {
            application: &self.id,
            package: "t",
            inventory: &self.cluster.inventory_of(&history).await.unwrap(),
            defined: &record.defined(),
            hooks: &record.hooks(),
            skip_hooks: !self.options.hooks,
        });
        let after = if self.options.keep_history { AfterRemoval::KeepHistory } else { AfterRemoval::Forget };
        let (owner, options) = (&self.options.owner, self.release_options());
        let removed = self.cluster.remove_release(&plan, &mut record, owner, after, &options).await?;
        Ok(removed.left.into_iter().map(|(target, why)| format!("{target}: {why}")).collect())
    }

    pub(crate) async fn test(&self) -> Result<(), Failed> {
        let history = self.records().await?;
        let mut record = history.last().cloned().expect("a release");
        let plan = release::plan_test(&self.id, "t", &record.hooks());
        Ok(self.cluster.test_release(&plan, &mut record, &self.release_options()).await.map(drop)?)
    }
}
