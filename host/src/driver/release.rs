//! Rendering, applying, removing; and looking whether everything is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_cluster::{AfterRemoval, Change, DeployError, NewRevision, Progress, Record, RecordError, ReleaseOptions};
use barbless_domain::event::{Answer, Event, Failure, Released, Rendered};
use barbless_domain::grant::{self, Grant, Request, Scope};
use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::limits;
use barbless_domain::queue::Time;
use barbless_domain::release::tracking::Tracking;
use barbless_domain::release::{
    self, Plan, PlanInput, Readiness, ReleaseAction, ReleaseStatus, RemovalInput, conflict, history,
};
use barbless_domain::values::{self, Patches};
use barbless_health::readiness;
use barbless_template as template;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::instance::{Instance, LoadedPackage};
use super::lookup::ClusterLookup;
use super::seed::Seed;
use super::{Context, health};
use crate::notice::Notice;

/// Field manager of everything that is rendered.
pub(super) const MANAGER: &str = "barbless";
/// Rendering that takes longer than this is stopped: a template is as untrusted as a hook.
const RENDER_DEADLINE: Duration = Duration::from_secs(30);
/// Progress that nobody has read yet; what does not fit is dropped, the result has everything.
const PROGRESS: usize = 256;

/// A plan and what it starts from.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan.
    pub(crate) plan: Arc<Plan>,
    /// The last revision.
    pub(crate) last: Option<Record>,
    /// Objects of it that are gone.
    pub(crate) missing: Vec<ObjectRef>,
    /// What the package says to its user.
    notes: String,
    /// Seed of random functions of the templates.
    seed: Seed,
}

impl Planned {
    /// What the domain has to know.
    pub(super) fn facts(&self) -> Rendered {
        Rendered {
            digest: self.plan.digest.clone(),
            released: self.last.as_ref().map(|last| Released {
                revision: last.revision,
                version: last.package.1.clone(),
                set_aside: last.set_aside.clone(),
                digest: last.digest.clone(),
                deployed: last.status == ReleaseStatus::Deployed,
                maintenance: last.maintenance,
            }),
            missing: u32::try_from(self.missing.len()).unwrap_or(u32::MAX),
        }
    }
}

/// What an apply with the current values would do. `take_over` makes what Helm installed under the same name part of the
/// release.
pub(super) async fn planned(context: &Arc<Context>, maintenance: bool, take_over: bool) -> Result<Planned, Failure> {
    let package = context.instance.current()?;
    let cluster = &context.services.cluster;
    let mut history = cluster.release_history(&context.instance.id).await.map_err(cluster_failure)?;
    if (take_over || history.is_empty())
        && let Some(theirs) = cluster.helm_release(&context.instance.id).await.map_err(cluster_failure)?
    {
        if !take_over {
            let revision = theirs.records.last().map_or(0, |record| record.revision);
            let refusal = RecordError::BelongsToHelm { application: context.instance.id.clone(), revision };
            let failure = Failure::new(refusal.reason(), refusal.to_string());
            return Err(refusal.hint().map_or(failure.clone(), |hint| failure.hint(hint)));
        }
        history.extend(theirs.records);
        history.sort_by_key(|record| record.revision);
    }
    let record = history.last();
    let action = action(&history);
    let seed = context.instance.seed(record.and_then(|record| Seed::parse(record.seed.as_deref()?)))?;
    let made = match package.package.has_chart {
        true => rendered_objects(context, &package, record, action, seed).await?,
        false => Made::default(),
    };
    let previous = cluster.inventory_of(&history).await.map_err(cluster_failure)?;
    let input = PlanInput {
        application: &context.instance.id,
        package: &package.package.manifest.name,
        action,
        rendered: made.objects,
        definitions: made.definitions,
        previous: &previous,
        maintenance,
        skip_hooks: context.instance.skip_helm_hooks,
    };
    let plan = plan(context, &package.grant, input).await?;
    let missing = match record {
        Some(record) if record.status == ReleaseStatus::Deployed => {
            let lasting = previous.into_iter().filter(|item| !item.transient);
            let targets: Vec<ObjectRef> = lasting.map(|item| item.target).collect();
            cluster.missing(&context.instance.id, &targets).await.map_err(cluster_failure)?
        }
        _ => Vec::new(),
    };
    Ok(Planned { plan: Arc::new(plan), last: history.pop(), missing, notes: made.notes, seed })
}

/// Renders with the current values and makes the plan.
pub(super) async fn render(context: &Arc<Context>, maintenance: bool, take_over: bool) -> Result<Rendered, Failure> {
    let mut planned = planned(context, maintenance, take_over).await?;
    let rendered = planned.facts();
    let unchanged = rendered.missing == 0
        && rendered.released.as_ref().is_some_and(|last| last.deployed && last.digest == rendered.digest);
    if unchanged {
        // Another process may have applied it.
        health::watch(context, &planned.plan);
    }
    let held = rendered.released.as_ref().is_some_and(|last| last.holds_against(&rendered.digest));
    if (unchanged || held || maintenance)
        && let Some(last) = planned.last.as_mut()
    {
        keep_patches(context, last).await;
    }
    let mut data = context.instance.data();
    if unchanged {
        // These documents make just the objects that are there: they count as applied.
        data.applied = data.values.as_ref().map(|values| values.computed().clone());
    }
    data.planned = Some(Arc::new(planned));
    Ok(rendered)
}

/// Brings what the last release record says about the values up to date. Where nothing is applied there will be no newer
/// record, and what hooks have set since would be lost with this process.
async fn keep_patches(context: &Context, last: &mut Record) {
    let patches = patches(context);
    if let Err(error) = context.services.cluster.keep_patches(last, &patches, Timestamp::now()).await {
        // It is tried again with the next rendering.
        let error = error.chain();
        tracing::warn!(application = %context.instance.id, error, "what hooks set is not written to the release record");
    }
}

/// What hooks have set in the values.
fn patches(context: &Context) -> Patches {
    let data = context.instance.data();
    data.values.as_ref().map(|values| values.patches().clone()).unwrap_or_default()
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

/// What templates made.
#[derive(Default)]
struct Made {
    objects: Vec<release::Rendered>,
    definitions: Vec<release::Rendered>,
    notes: String,
}

/// What templates see, and what they make of it.
async fn rendered_objects(
    context: &Arc<Context>,
    package: &Arc<LoadedPackage>,
    record: Option<&Record>,
    action: ReleaseAction,
    seed: Seed,
) -> Result<Made, Failure> {
    let (document, settings) = context.instance.documents();
    let cluster = &context.services.cluster;
    let versions = cluster.served_versions().await.map_err(cluster_failure)?;
    let kube_version = cluster.version().await.map_err(cluster_failure)?;
    let id = &context.instance.id;
    let view = View {
        values: Value::clone(&document),
        settings: Value::clone(&settings),
        namespace: id.namespace().to_owned(),
        name: id.name().to_owned(),
        revision: record.map_or(1, |record| i64::from(record.revision) + 1),
        is_install: action == ReleaseAction::Install,
        kube_version,
        api_versions: versions.into_iter().collect(),
        now: context.instance.now(),
        seed,
    };
    let lookup = ClusterLookup::new(cluster.clone(), id.clone(), package.grant.clone(), RENDER_DEADLINE);
    let package = Arc::clone(package);
    let rendered = tokio::task::spawn_blocking(move || render_package(&package.package, view, &lookup))
        .await
        .map_err(|error| Failure::new("InternalError", format!("rendering: {error}")))??;
    for warning in &rendered.warnings {
        context.notice(Notice::Progress { text: format!("templates: {warning}") });
    }
    let one = |manifest: template::Manifest| release::Rendered { object: manifest.object, source: manifest.source };
    Ok(Made {
        objects: rendered.manifests.into_iter().map(one).collect(),
        definitions: rendered.crds.into_iter().map(one).collect(),
        notes: rendered.notes.unwrap_or_default(),
    })
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
    /// Whether nothing was deployed before.
    pub(crate) is_install: bool,
    /// Version of Kubernetes.
    pub(crate) kube_version: String,
    /// What the cluster serves: `v1`, `apps/v1`, `apps/v1/Deployment`; empty without a cluster.
    pub(crate) api_versions: BTreeSet<String>,
    /// The moment that templates see.
    pub(crate) now: Time,
    /// Seed of random functions: a second rendering does not differ from the first.
    pub(crate) seed: Seed,
}

/// Renders a package: pure apart from the deadline and what `lookup` reads.
pub(crate) fn render_package(
    package: &barbless_domain::package::Package,
    view: View,
    lookup: &dyn template::Lookup,
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
    let first = template::Input::first(&files, &format!("{}.{}", view.namespace, view.name), &view.namespace);
    let input = template::Input {
        values: view.values,
        roots,
        release: template::Release {
            revision: view.revision,
            is_install: view.is_install,
            is_upgrade: !view.is_install,
            ..first.release
        },
        capabilities: template::Capabilities {
            kube_version: view.kube_version,
            api_versions: match view.api_versions {
                versions if versions.is_empty() => first.capabilities.api_versions,
                versions => versions,
            },
            ..first.capabilities
        },
        now_unix_ms: i64::try_from(view.now.0).unwrap_or(i64::MAX),
        seed: view.seed.0,
        lookup,
        deadline: &late,
        ..first
    };
    template::render(&input).map_err(|error| Failure {
        reason: error.code().to_owned(),
        message: format!("package '{}': {error}", manifest.name),
        hint: error.hint().map(str::to_owned),
        retry_after_ms: None,
    })
}

async fn plan(context: &Context, grant: &Grant, input: PlanInput<'_>) -> Result<Plan, Failure> {
    // The scope of each kind is looked up before, because a plan is made without waiting.
    let all = input.rendered.iter().chain(&input.definitions);
    let kinds: BTreeSet<Gvk> = all.filter_map(|one| ObjectRef::of(&one.object).ok()).map(|it| it.gvk).collect();
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
    // Templates of an application are about its namespace, unless the operator grants more.
    let in_cluster = |target: &ObjectRef| grant::allows_in_cluster(grant, target);
    let plan = release::plan(input, |gvk| scopes.get(gvk).copied(), in_cluster).map_err(|refused| Failure {
        reason: refused.reason().to_owned(),
        message: refused.to_string(),
        hint: refused.problems.first().map(|problem| problem.hint.clone()),
        retry_after_ms: None,
    })?;
    let objects = plan.objects().chain(&plan.definitions).map(|one| (&one.target, &one.object));
    let hooks = plan.all_hooks();
    for (target, object) in objects.chain(hooks.iter().map(|hook| (&hook.target, &hook.object))) {
        grant::allows_rendered(grant, target, object).into_result().map_err(|denial| {
            Failure::new(&denial.reason, format!("{}: {}", denial.what, denial.why)).hint(denial.hint)
        })?;
    }
    Ok(plan)
}

/// What an operator decided about an apply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decisions<'a> {
    /// What Helm installed under the same name becomes ours.
    pub(super) take_over: bool,
    /// What is done about fields of other managers: a YAML document, empty for nothing.
    pub(super) field_conflicts: &'a str,
}

/// Applies the plan that was made last.
pub(super) async fn apply(context: &Arc<Context>, decisions: Decisions<'_>, token: &CancellationToken) -> Answer {
    answer(apply_planned(context, decisions, token).await)
}

fn answer(result: Result<(), Stopped>) -> Answer {
    match result {
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

impl From<DeployError> for Stopped {
    fn from(error: DeployError) -> Self {
        if error.is_cancelled() {
            return Self::Cancelled;
        }
        Self::Failed(Failure {
            reason: error.reason().to_owned(),
            message: error.chain(),
            hint: error.hint().map(str::to_owned),
            retry_after_ms: None,
        })
    }
}

async fn apply_planned(
    context: &Arc<Context>,
    decisions: Decisions<'_>,
    token: &CancellationToken,
) -> Result<(), Stopped> {
    let package = context.instance.current()?;
    let Some(planned) = context.instance.data().planned.clone() else {
        return Err(Failure::new("InternalError", "nothing was rendered").into());
    };
    let computed = context.instance.data().values.as_ref().map(|values| values.computed().clone());
    let (_, settings) = context.instance.documents();
    let patches = patches(context);
    let revision = NewRevision {
        plan: &planned.plan,
        action: match planned.plan.action {
            ReleaseAction::Install => history::Action::Install,
            _ => history::Action::Upgrade,
        },
        package_version: &package.package.manifest.version.to_string(),
        settings: &settings,
        notes: &planned.notes,
        owner: &context.services.owner,
        now: Timestamp::now(),
        rollback_of: None,
        set_aside: None,
        seed: Some(&planned.seed.to_string()),
        patches: &patches,
        take_over: decisions.take_over,
        kept_revisions: history::KEPT_REVISIONS,
    };
    deploy(context, &planned.plan, revision, decisions, token).await?;
    context.instance.data().applied = computed;
    Ok(())
}

/// Makes the objects those of an earlier revision again. Nothing is rendered.
pub(super) async fn roll_back(
    context: &Arc<Context>,
    history: &[Record],
    revision: u32,
    decisions: Decisions<'_>,
    token: &CancellationToken,
) -> Answer {
    answer(roll_back_to(context, history, revision, decisions, token).await)
}

async fn roll_back_to(
    context: &Arc<Context>,
    history: &[Record],
    revision: u32,
    decisions: Decisions<'_>,
    token: &CancellationToken,
) -> Result<(), Stopped> {
    let package = context.instance.current()?;
    let (Some(target), Some(last)) = (history.iter().find(|record| record.revision == revision), history.last()) else {
        return Err(Failure::new("NoSuchRevision", format!("there is no revision {revision} any more")).into());
    };
    let previous = context.services.cluster.inventory_of(history).await.map_err(cluster_failure)?;
    let input = PlanInput {
        application: &context.instance.id,
        package: &target.package.0,
        action: ReleaseAction::Rollback,
        rendered: target.rendered(),
        definitions: Vec::new(),
        previous: &previous,
        maintenance: false,
        skip_hooks: false,
    };
    // The record is a Secret that others may have written: what it asks for is granted, or it is not applied.
    let plan = Arc::new(plan(context, &package.grant, input).await?);
    let revision = NewRevision {
        plan: &plan,
        action: history::Action::Rollback,
        package_version: &target.package.1,
        settings: &target.settings,
        notes: &target.notes,
        owner: &context.services.owner,
        now: Timestamp::now(),
        rollback_of: Some(revision),
        // As long as just that is rendered, the rollback holds.
        set_aside: Some(last.set_aside.as_deref().unwrap_or(&last.digest)),
        seed: last.seed.as_deref(),
        // They are those of now, as the plan is that was set aside.
        patches: &patches(context),
        take_over: decisions.take_over,
        kept_revisions: history::KEPT_REVISIONS,
    };
    deploy(context, &plan, revision, decisions, token).await
}

/// Applies a plan as a new revision.
async fn deploy(
    context: &Arc<Context>,
    plan: &Arc<Plan>,
    revision: NewRevision<'_>,
    decisions: Decisions<'_>,
    token: &CancellationToken,
) -> Result<(), Stopped> {
    let rules = conflict::read(decisions.field_conflicts)?;
    let (options, told) = listened_to(context, limits::APPLY_DEADLINE, token);
    let options = ReleaseOptions { rules, ..options };
    let result = context.services.cluster.deploy(&context.instance.id, revision, &options).await;
    drop(options);
    told.await;
    result?;
    health::watch(context, plan);
    context.objects.store(plan.objects.len(), std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// How an operation is carried out, and what ends when all that it told has been passed on: once nobody has the options
/// any more.
fn listened_to(
    context: &Arc<Context>,
    deadline: Duration,
    token: &CancellationToken,
) -> (ReleaseOptions, impl Future<Output = ()> + use<>) {
    let (progress, happens) = mpsc::channel(PROGRESS);
    let (tracking, how_far) = watch::channel(Tracking::default());
    let told = tokio::spawn(tell(Arc::clone(context), happens));
    let tracked = tokio::spawn(track(Arc::clone(context), how_far));
    let options = ReleaseOptions {
        manager: MANAGER.to_owned(),
        ready: Arc::new(readiness_of),
        may_see: Arc::new(may_see(&context.instance)),
        rules: Vec::new(),
        deadline,
        cancel: token.clone(),
        progress,
        tracking,
    };
    let passed_on = async move {
        // A panic in one of them loses lines, and no result.
        let _ = tokio::join!(told, tracked);
    };
    (options, passed_on)
}

/// Passes on how far an operation is. What is not read in time gives way to what is newer; the last is always read.
async fn track(context: Arc<Context>, mut how_far: watch::Receiver<Tracking>) {
    while how_far.changed().await.is_ok() {
        let tracking = how_far.borrow_and_update().clone();
        let _ = context.events.send(Event::Tracking(tracking)).await;
    }
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

/// A package may wait for what its grant lets it see; it would learn what is elsewhere.
fn may_see(instance: &Instance) -> impl Fn(&ObjectRef, Scope) -> Result<(), String> + Send + Sync + use<> {
    let id = instance.id.clone();
    let grant = instance.current().map(|package| package.grant.clone()).unwrap_or_else(|_| Grant::none());
    move |target, scope| {
        let (namespace, name) = (target.namespace.as_str(), Some(target.name.as_str()));
        let request = Request::Read { gvk: &target.gvk, namespace, name, scope };
        let allowed = grant::allows(&id, &grant, request).into_result();
        allowed.map_err(|denial| format!("{denial}; {}", denial.hint))
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
    answer(uninstall_release(context, skip_hooks, token).await)
}

async fn uninstall_release(context: &Arc<Context>, skip_hooks: bool, token: &CancellationToken) -> Result<(), Stopped> {
    let cluster = &context.services.cluster;
    let history = cluster.release_history(&context.instance.id).await.map_err(cluster_failure)?;
    let Some(mut record) = history.last().cloned() else { return Ok(()) };
    let inventory = cluster.inventory_of(&history).await.map_err(cluster_failure)?;
    let (options, told) = listened_to(context, limits::UNINSTALL_DEADLINE, token);
    health::stop(context);
    let removal = release::plan_removal(&RemovalInput {
        application: &context.instance.id,
        package: &record.package.0,
        inventory: &inventory,
        defined: &record.defined(),
        hooks: &record.hooks(),
        skip_hooks,
    });
    let owner = &context.services.owner;
    let result = cluster.remove_release(&removal, &mut record, owner, AfterRemoval::Forget, &options).await;
    drop(options);
    told.await;
    result?;
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
pub(super) fn cluster_failure(error: barbless_cluster::Error) -> Failure {
    Failure::new(error.reason(), error.chain())
}
