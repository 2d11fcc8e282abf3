//! Rendering, applying, removing; and looking whether everything is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_cluster::{Change, HEARTBEAT, NewRevision, Progress, Record, RecordError, ReleaseError, ReleaseOptions};
use barbless_domain::event::{Answer, Failure, Released, Rendered};
use barbless_domain::grant::{self, Scope};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::limits;
use barbless_domain::release::{
    self, InventoryItem, Plan, PlanInput, Readiness, ReleaseAction, ReleaseStatus, RemovalInput, history,
};
use barbless_domain::values;
use barbless_health::readiness;
use barbless_template as template;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::instance::LoadedPackage;
use super::{Context, health};
use crate::notice::Notice;

/// Field manager of everything that is rendered.
pub(super) const MANAGER: &str = "barbless";
/// Rendering that takes longer than this is stopped: a template is as untrusted as a hook.
const RENDER_DEADLINE: Duration = Duration::from_secs(30);
/// Progress that nobody has read yet; what does not fit is dropped, the result has everything.
const PROGRESS: usize = 256;

/// Renders with the current values and makes the plan.
pub(super) async fn render(context: &Arc<Context>, maintenance: bool) -> Result<Rendered, Failure> {
    let package = context.instance.current()?;
    let history = context.services.cluster.release_history(&context.instance.id).await.map_err(cluster_failure)?;
    let record = history.last();
    let objects =
        if package.package.has_chart { rendered_objects(context, &package, record).await? } else { Vec::new() };
    let previous = inventory(&history);
    let plan = plan(context, &package, action(&history), objects, &previous, maintenance).await?;
    let missing = match record {
        Some(record) if record.status == ReleaseStatus::Deployed => {
            let lasting = previous.into_iter().filter(|item| !item.transient);
            let targets: Vec<ObjectRef> = lasting.map(|item| item.target).collect();
            context.services.cluster.missing(&context.instance.id, &targets).await.map_err(cluster_failure)?.len()
        }
        _ => 0,
    };
    let rendered = Rendered {
        digest: plan.digest.clone(),
        released: record.map(|record| Released {
            revision: record.revision,
            version: record.package.1.clone(),
            digest: record.digest.clone(),
            set_aside: record.set_aside.clone(),
            deployed: record.status == ReleaseStatus::Deployed,
            maintenance: record.maintenance,
        }),
        missing: u32::try_from(missing).unwrap_or(u32::MAX),
    };
    let plan = Arc::new(plan);
    let unchanged = rendered.missing == 0
        && rendered.released.as_ref().is_some_and(|last| last.deployed && last.digest == rendered.digest);
    if unchanged {
        // Another process may have applied it.
        health::watch(context, &plan);
    }
    let mut data = context.instance.data();
    if unchanged {
        // These documents make just the objects that are there: they count as applied.
        data.applied = data.values.as_ref().map(|values| values.computed().clone());
    }
    data.planned = Some(plan);
    Ok(rendered)
}

/// What an apply is.
fn action(history: &[Record]) -> ReleaseAction {
    let known: Vec<history::Revision> = history.iter().map(Record::revision).collect();
    match history::next_action(&known) {
        history::Action::Install => ReleaseAction::Install,
        history::Action::Upgrade => ReleaseAction::Upgrade,
        history::Action::Rollback => ReleaseAction::Rollback,
    }
}

/// What may be in the cluster: the objects of the last revision that ended well and of all that came after it, since
/// one that failed may have written some of its own.
fn inventory(history: &[Record]) -> Vec<InventoryItem> {
    let from = history.iter().rposition(|record| record.status == ReleaseStatus::Deployed).unwrap_or(0);
    let mut items: BTreeMap<ObjectRef, InventoryItem> = BTreeMap::new();
    for record in history.get(from..).unwrap_or_default() {
        items.extend(record.inventory().into_iter().map(|item| (item.target.clone(), item)));
    }
    items.into_values().collect()
}

/// What templates see, and the objects that they make of it.
async fn rendered_objects(
    context: &Arc<Context>,
    package: &Arc<LoadedPackage>,
    record: Option<&Record>,
) -> Result<Vec<release::Rendered>, Failure> {
    let (document, settings) = context.instance.documents();
    let versions = context.services.cluster.served_versions().await.map_err(cluster_failure)?;
    let kube_version = context.services.cluster.version().await.map_err(cluster_failure)?;
    let view = View {
        values: Value::clone(&document),
        settings: Value::clone(&settings),
        namespace: context.instance.id.namespace().to_owned(),
        name: context.instance.id.name().to_owned(),
        revision: record.map_or(1, |record| i64::from(record.revision) + 1),
        kube_version,
        api_versions: versions.into_iter().collect(),
    };
    let package = Arc::clone(package);
    let rendered = tokio::task::spawn_blocking(move || render_package(&package.package, view))
        .await
        .map_err(|error| Failure::new("InternalError", format!("rendering: {error}")))??;
    Ok(rendered
        .manifests
        .into_iter()
        .map(|manifest| release::Rendered { object: manifest.object, source: manifest.source })
        .collect())
}

/// What a rendering is made of, beside the package.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The values document.
    pub(crate) values: Value,
    /// The effective settings.
    pub(crate) settings: Value,
    /// Namespace of the application.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Revision that the release will have.
    pub(crate) revision: i64,
    /// Version of Kubernetes.
    pub(crate) kube_version: String,
    /// What the cluster serves: `v1`, `apps/v1`, `apps/v1/Deployment`; empty without a cluster.
    pub(crate) api_versions: BTreeSet<String>,
}

/// Renders a package: pure apart from the deadline.
pub(crate) fn render_package(
    package: &barbless_domain::package::Package,
    view: View,
) -> Result<template::Rendered, Failure> {
    let files = template::Files(package.source.iter().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect());
    let manifest = &package.manifest;
    let images: Map<String, Value> =
        package.images.iter().map(|(name, digest)| (name.clone(), json!(digest))).collect();
    let mut roots = Map::new();
    roots.insert(
        "Application".to_owned(),
        json!({
            "Instance": {"Name": view.name, "Namespace": view.namespace},
            "Package": {"Name": manifest.name, "Version": manifest.version.to_string(), "Images": images},
            "Settings": view.settings,
        }),
    );
    roots.insert("Platform".to_owned(), json!({"discovery": {"kubernetesVersion": view.kube_version}}));
    let begun = Instant::now();
    let late = || begun.elapsed() >= RENDER_DEADLINE;
    // Random functions are seeded by the application: a second rendering does not differ from the first.
    let seed = seed(&view.namespace, &view.name);
    let input = template::Input {
        files: &files,
        values: view.values,
        roots,
        release: template::Release {
            name: format!("{}.{}", view.namespace, view.name),
            namespace: view.namespace,
            revision: view.revision,
            is_install: view.revision == 1,
            is_upgrade: view.revision != 1,
            service: "Helm".to_owned(),
        },
        capabilities: template::Capabilities {
            kube_version: view.kube_version,
            api_versions: match view.api_versions {
                versions if versions.is_empty() => template::Capabilities::default().api_versions,
                versions => versions,
            },
            ..template::Capabilities::default()
        },
        now_unix_ms: i64::try_from(super::now().0).unwrap_or(i64::MAX),
        seed,
        whole_numbers_are_int64: false,
        skip_schema_validation: false,
        limits: template::Limits::default(),
        lookup: &template::NoLookup,
        deadline: &late,
    };
    template::render(&input).map_err(|error| Failure {
        reason: error.code().to_owned(),
        message: format!("package '{}': {error}", manifest.name),
        hint: error.hint().map(str::to_owned),
        retry_after_ms: None,
    })
}

fn seed(namespace: &str, name: &str) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(format!("{namespace}.{name}")).into()
}

async fn plan(
    context: &Context,
    package: &LoadedPackage,
    action: ReleaseAction,
    rendered: Vec<release::Rendered>,
    previous: &[InventoryItem],
    maintenance: bool,
) -> Result<Plan, Failure> {
    // The scope of each kind is looked up before, because a plan is made without waiting.
    let kinds: BTreeSet<Gvk> =
        rendered.iter().filter_map(|one| ObjectRef::of(&one.object).ok()).map(|it| it.gvk).collect();
    let mut scopes: BTreeMap<Gvk, Scope> = BTreeMap::new();
    for gvk in kinds {
        match context.services.cluster.resolve(&gvk).await {
            Ok(resource) => {
                scopes.insert(gvk, resource.scope);
            }
            Err(barbless_cluster::Error::KindNotServed { .. }) => {}
            Err(error) => return Err(cluster_failure(error)),
        }
    }
    let input = PlanInput {
        application: &context.instance.id,
        package: &package.package.manifest.name,
        action,
        rendered,
        definitions: Vec::new(),
        previous,
        maintenance,
        skip_hooks: false,
    };
    // Templates of an application are about its namespace; objects of the cluster come with modules.
    let plan = release::plan(input, |gvk| scopes.get(gvk).copied(), |_| false).map_err(|refused| Failure {
        reason: refused.reason().to_owned(),
        message: refused.to_string(),
        hint: refused.problems.first().map(|problem| problem.hint.clone()),
        retry_after_ms: None,
    })?;
    let objects = plan.objects().map(|one| (&one.target, &one.object));
    let hooks = plan.all_hooks();
    for (target, object) in objects.chain(hooks.iter().map(|hook| (&hook.target, &hook.object))) {
        grant::allows_rendered(&package.grant, target, object).into_result().map_err(|denial| {
            Failure::new(&denial.reason, format!("{}: {}", denial.what, denial.why)).hint(denial.hint)
        })?;
    }
    Ok(plan)
}

/// Applies the plan that was made last.
pub(super) async fn apply(context: &Arc<Context>, token: &CancellationToken) -> Answer {
    match apply_planned(context, token).await {
        Ok(()) => Answer::Done,
        Err(Stopped::Cancelled) => Answer::Cancelled,
        Err(Stopped::Failed(failure)) => Answer::Failed(failure),
    }
}

enum Stopped {
    Cancelled,
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<ReleaseError> for Stopped {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Cancelled => Self::Cancelled,
            error => Self::Failed(Failure {
                reason: error.reason().to_owned(),
                message: error.chain(),
                hint: error.hint().map(str::to_owned),
                retry_after_ms: None,
            }),
        }
    }
}

async fn apply_planned(context: &Arc<Context>, token: &CancellationToken) -> Result<(), Stopped> {
    let package = context.instance.current()?;
    let Some(plan) = context.instance.data().planned.clone() else {
        return Err(Failure::new("InternalError", "nothing was rendered").into());
    };
    let cluster = &context.services.cluster;
    let action = match plan.action {
        ReleaseAction::Install => history::Action::Install,
        ReleaseAction::Rollback => history::Action::Rollback,
        ReleaseAction::Upgrade | ReleaseAction::Uninstall | ReleaseAction::Test => history::Action::Upgrade,
    };
    let computed = context.instance.data().values.as_ref().map(|values| values.computed().clone());
    let (_, settings) = context.instance.documents();
    let new = NewRevision {
        plan: &plan,
        action,
        package_version: &package.package.manifest.version.to_string(),
        settings: &settings,
        notes: "",
        owner: &context.services.owner,
        now: Timestamp::now(),
        rollback_of: None,
        set_aside: None,
        take_over: false,
        kept_revisions: history::KEPT_REVISIONS,
    };
    let mut record = cluster.begin_release(&context.instance.id, new).await.map_err(record_failure)?;
    let (progress, reader) = mpsc::channel(PROGRESS);
    let told = tokio::spawn(tell(Arc::clone(context), reader));
    let options = ReleaseOptions {
        manager: MANAGER.to_owned(),
        ready: Arc::new(readiness_of),
        may_see: Arc::new(may_see(&context.instance.id)),
        rules: Vec::new(),
        deadline: limits::APPLY_DEADLINE,
        cancel: token.clone(),
        progress,
    };
    let result = {
        let work = cluster.apply_release(&plan, &options);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => break result,
                // A missed sign of life is made up for by the next.
                () = tokio::time::sleep(HEARTBEAT) => {
                    if let Err(error) = cluster.release_heartbeat(&record, Timestamp::now()).await {
                        tracing::warn!(application = %context.instance.id, error = error.chain(), "no sign of life");
                    }
                }
            }
        }
    };
    drop(options);
    let _ = told.await;
    let (status, description) = match &result {
        Ok(_) => (ReleaseStatus::Deployed, "applied".to_owned()),
        Err(error) => (ReleaseStatus::Failed, error.chain()),
    };
    cluster.finish_release(&mut record, status, &description, Timestamp::now()).await.map_err(record_failure)?;
    result?;
    context.instance.data().applied = computed;
    health::watch(context, &plan);
    context.objects.store(plan.objects().count(), std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

async fn tell(context: Arc<Context>, mut progress: mpsc::Receiver<Progress>) {
    // What is as it was, and what became ready without anybody waiting for it, is no news.
    let mut waiting = BTreeSet::new();
    while let Some(step) = progress.recv().await {
        let news = match &step {
            Progress::Applied { change, .. } => *change != Change::Unchanged,
            Progress::Waiting { target, .. } => {
                waiting.insert(target.clone());
                true
            }
            Progress::Ready { target } => waiting.remove(target),
            _ => true,
        };
        if news {
            context.notice(Notice::Progress { text: step.to_string() });
        }
    }
}

/// A package may wait for what is in its own namespace; it would learn what is elsewhere.
fn may_see(id: &ApplicationId) -> impl Fn(&ObjectRef, Scope) -> Result<(), String> + Send + Sync + use<> {
    let namespace = id.namespace().to_owned();
    move |target, _| match target.namespace == namespace {
        true => Ok(()),
        false => Err(format!("a package may only wait for objects in its namespace '{namespace}'")),
    }
}

fn readiness_of(object: &Value) -> Readiness {
    match readiness(object) {
        barbless_health::Readiness::Ready => Readiness::Ready,
        barbless_health::Readiness::NotReady { reason } => Readiness::Waiting(reason),
        barbless_health::Readiness::Failed { reason } => Readiness::Failed(reason),
    }
}

/// How many objects of the release are not in the cluster.
pub(super) async fn missing(context: &Arc<Context>) -> Result<u32, Failure> {
    let cluster = &context.services.cluster;
    let Some(record) = cluster.latest_release(&context.instance.id).await.map_err(cluster_failure)? else {
        return Ok(0);
    };
    let lasting = record.inventory().into_iter().filter(|item| !item.transient);
    let targets: Vec<ObjectRef> = lasting.map(|item| item.target).collect();
    let missing = cluster.missing(&context.instance.id, &targets).await.map_err(cluster_failure)?;
    Ok(u32::try_from(missing.len()).unwrap_or(u32::MAX))
}

/// Deletes the objects of the release and waits until they are observed gone.
pub(super) async fn uninstall(context: &Arc<Context>, skip_hooks: bool, token: &CancellationToken) -> Answer {
    match uninstall_release(context, skip_hooks, token).await {
        Ok(()) => Answer::Done,
        Err(Stopped::Cancelled) => Answer::Cancelled,
        Err(Stopped::Failed(failure)) => Answer::Failed(failure),
    }
}

async fn uninstall_release(context: &Arc<Context>, skip_hooks: bool, token: &CancellationToken) -> Result<(), Stopped> {
    let cluster = &context.services.cluster;
    let history = cluster.release_history(&context.instance.id).await.map_err(cluster_failure)?;
    let Some(record) = history.last() else { return Ok(()) };
    let (progress, reader) = mpsc::channel(PROGRESS);
    let told = tokio::spawn(tell(Arc::clone(context), reader));
    let options = ReleaseOptions {
        manager: MANAGER.to_owned(),
        ready: Arc::new(readiness_of),
        may_see: Arc::new(may_see(&context.instance.id)),
        rules: Vec::new(),
        deadline: limits::UNINSTALL_DEADLINE,
        cancel: token.clone(),
        progress,
    };
    health::stop(context);
    let removal = release::plan_removal(&RemovalInput {
        application: &context.instance.id,
        package: &record.package.0,
        inventory: &inventory(&history),
        defined: &record.defined(),
        hooks: &record.hooks(),
        skip_hooks,
    });
    let result = cluster.uninstall(&removal, &options).await;
    drop(options);
    let _ = told.await;
    result?;
    cluster.delete_releases(&context.instance.id).await.map_err(cluster_failure)?;
    Ok(())
}

/// Deletes the orphans that the values of the package list.
pub(super) async fn purge(context: &Arc<Context>) -> Result<(), Failure> {
    let (document, _) = context.instance.documents();
    let kinds = match values::orphan_kinds(&document) {
        Ok(kinds) => kinds,
        Err(problem) => {
            // A list that cannot be read keeps no application alive.
            tracing::error!(application = %context.instance.id, %problem, "orphan resources are not deleted");
            context.notice(Notice::Progress { text: format!("orphan resources are not deleted: {problem}") });
            return Ok(());
        }
    };
    if kinds.is_empty() {
        return Ok(());
    }
    // A version without a group means every group that serves the kind at that version.
    let kinds: Vec<(String, String)> = kinds
        .into_iter()
        .map(|orphan| match orphan.group {
            Some(group) => (orphan.kind, format!("{group}/{}", orphan.version)),
            None => (orphan.kind, orphan.version),
        })
        .collect();
    let report = context.services.cluster.purge_orphans(&context.instance.id, &kinds).await;
    for line in report.lines() {
        context.notice(Notice::Progress { text: line });
    }
    match report.failure() {
        None => Ok(()),
        Some(failure) => Err(failure),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn record_failure(error: RecordError) -> Failure {
    let failure = Failure::new(error.reason(), error.chain());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
pub(super) fn cluster_failure(error: barbless_cluster::Error) -> Failure {
    Failure::new(error.reason(), error.chain())
}
