//! `barbless dev`: one package and a Kubernetes API in this process. Everything else is as on a cluster: the same loop,
//! the same sandbox, the same objects over the same API.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_cluster::Cluster;
use barbless_domain::event::Event;
use barbless_domain::grant::{Grant, Interface, Permission};
use barbless_domain::hook::Trigger;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::operation::OperationResult;
use barbless_domain::package::{MANIFEST, Manifest};
use barbless_domain::pipeline::App;
use barbless_domain::requirement::{Platform, parse_version};
use barbless_domain::run::{RunEnd, RunRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::app;
use crate::build;
use crate::bundle::{self, Folder};
use crate::cli::{Dev, Output};
use crate::devcluster;
use crate::driver::instance::Grants;
use crate::driver::{self, Handle, Instance, Services};
use crate::metrics::Metrics;
use crate::notice::{Notice, Notices};
use crate::report::{Exit, Report};
use crate::runs::RunLog;
use crate::ui::Ui;

mod observe;

/// Version of Kubernetes that the API in this process is like.
const KUBERNETES_VERSION: &str = "v1.37.0";
/// How long the last status of the application may take to be written.
const LAST_WORD: Duration = Duration::from_secs(2);
/// How long the garbage of a deleted application may take to be collected.
const COLLECTION: Duration = Duration::from_secs(15);

/// `dev.yaml` beside `package.yaml`: what a user of the package would do. Not part of the bundle.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Script {
    /// Settings of the application.
    pub(crate) settings: Map<String, Value>,
    /// Objects that are there before it.
    objects: Vec<Value>,
    /// What `--once` does once it is installed.
    change: Change,
}

/// The change of `--once`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Change {
    /// Merged into the settings.
    settings: Map<String, Value>,
    /// Objects that are made then.
    objects: Vec<Value>,
}

/// The summary of `--once`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    ok: bool,
    application: String,
    package: String,
    version: String,
    runs: usize,
    failed_runs: usize,
    operations: usize,
    objects: usize,
    /// Unknown if the life ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_setting: Option<bool>,
    /// Not looked up if the life ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    leftovers: Option<Vec<String>>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// What is running.
struct Session {
    id: ApplicationId,
    manifest: Manifest,
    cluster: Cluster,
    services: Arc<Services>,
    handle: Handle,
    notices: mpsc::Receiver<Notice>,
    timeout: Duration,
    /// The last run of earlier sessions with the same folder; 0 if there was none.
    earlier: u64,
    _observer: AbortOnDropHandle<()>,
    /// Without a sender the facts of the platform would count as gone.
    _platform: watch::Sender<Platform>,
}

impl Session {
    /// The runs of this session.
    fn runs(&self) -> Vec<Arc<RunRecord>> {
        runs_after(&self.services, &self.id, self.earlier)
    }
}

/// The runs of an application after one of them.
fn runs_after(services: &Services, id: &ApplicationId, earlier: u64) -> Vec<Arc<RunRecord>> {
    let mut records = services.runs.of(&id.to_string());
    records.retain(|record| record.id > earlier);
    records
}

/// Runs the command.
///
/// # Errors
/// A report for the user.
pub async fn run(args: &Dev) -> Result<Exit, Report> {
    let begun = Instant::now();
    let mut ui = Ui::new(args.output != Output::Table);
    // What costs nothing is checked before hooks are built.
    let script = script(&args.package, args.settings.as_deref())?;
    let manifest = manifest(&args.package)?;
    grants(args.grants.as_deref())?;
    let name = args.name.clone().unwrap_or_else(|| default_name(&manifest.name));
    let id = identity(&args.namespace, &name)?;

    let devcluster = devcluster::start(args.data_dir.as_deref(), true).await?;
    let server = devcluster
        .serve(args.listen)
        .await
        .map_err(|error| Report::of("ListenFailed", &error).hint("give another --listen address, or port 0"))?;
    ui.heading(&format!("{id}: package {} {}", manifest.name, manifest.version));
    ui.heading(&format!("│  kubectl --server=http://{} -n {} get all", server.local_addr(), id.namespace()));

    build_hooks(&args.package, &ui)?;

    let cluster = Cluster::new(app::client_of(&devcluster));
    prepare_cluster(&cluster, &id, &script).await?;
    let mut before = everything(&cluster).await?;
    // What the user makes later is the user's, too.
    before.extend(script.change.objects.iter().filter_map(|object| user_object(object, &id)));
    let mut session = start(args, cluster, id, manifest, &script).await?;
    let _metrics = match args.metrics_listen {
        Some(listen) => {
            let serving = session.services.metrics.serve(listen).await;
            let (address, serving) = serving.map_err(|error| {
                Report::of("ListenFailed", &error).hint("give another --metrics-listen address, or port 0")
            })?;
            ui.heading(&format!("│  measurements: http://{address}/metrics and /metrics/hooks"));
            Some(serving)
        }
        None => None,
    };

    let exit = if args.once {
        let cluster = session.cluster.clone();
        let life = async {
            let changed = once(&mut session, &script, &mut ui).await?;
            Ok((changed, leftovers(&cluster, &before).await?))
        };
        let result = tokio::select! {
            result = life => result,
            () = interrupted() => {
                Err(Report::new("Interrupted", "stopped by the user").exit(Exit::Interrupted))
            }
        };
        ui.finish();
        summarise(args, &session, &result, begun)
    } else {
        let result = stay(&mut session, &mut ui).await;
        ui.finish();
        result
    };
    session.handle.stop();
    // Nothing depends on its last word.
    let _ = tokio::time::timeout(LAST_WORD, session.handle.ended()).await;
    drop(session);
    server.shutdown().await;
    devcluster.stop().await;
    exit
}

/// Waits until the user, or whoever started this, wants it to end.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

pub(crate) fn build_hooks(package: &Path, ui: &Ui) -> Result<(), Report> {
    if !build::has_sources(package) {
        return Ok(());
    }
    ui.heading("building hooks");
    let target = std::env::var_os("BARBLESS_GUEST_TARGET_DIR").map(std::path::PathBuf::from);
    for built in build::build_package(package, &build::Options { target_dir: target, ..build::Options::default() })
        .map_err(|error| build_report(&error))?
    {
        let how = if built.skipped { "up to date".to_owned() } else { format!("{:.1} s", built.seconds) };
        ui.heading(&format!("├─ {} ({} bytes, {how})", built.component.display(), built.bytes));
    }
    Ok(())
}

pub(crate) fn build_report(error: &build::BuildError) -> Report {
    let mut report = Report::of(error.reason(), error);
    if let Some(detail) = error.detail() {
        report.message.push('\n');
        report.message.push_str(detail.trim_end());
    }
    report.hint = error.hint();
    report
}

pub(crate) fn script(package: &Path, settings: Option<&Path>) -> Result<Script, Report> {
    let path = package.join("dev.yaml");
    let mut script = if path.is_file() {
        let document = app::read_document(&path)?;
        // An empty file says nothing, as one that is not there.
        let document = if document.is_null() { json!({}) } else { document };
        serde_json::from_value(document).map_err(|error| {
            Report::new("BadDevFile", error.to_string())
                .at(path.display().to_string())
                .hint("dev.yaml has settings, objects, and change with settings and objects")
        })?
    } else {
        Script::default()
    };
    if let Some(path) = settings {
        script.settings = match app::read_argument(path)? {
            Value::Object(settings) => settings,
            Value::Null => Map::new(),
            _ => {
                let report = Report::new("BadSettings", "settings are an object");
                return Err(report.at(path.display().to_string()).exit(Exit::Usage));
            }
        };
    }
    Ok(script)
}

pub(crate) fn manifest(package: &Path) -> Result<Manifest, Report> {
    let source = bundle::read(package)?;
    let Some(bytes) = source.get(MANIFEST) else {
        return Err(Report::new("ManifestMissing", "there is no package.yaml")
            .at(package.display().to_string())
            .hint("give the folder of a package; a package begins with a package.yaml")
            .exit(Exit::NotFound));
    };
    let text = String::from_utf8_lossy(bytes);
    Manifest::parse(MANIFEST, &text).map_err(|problems| Report::from(driver::failure_of(&problems)))
}

/// The name of a package as the name of an application: it may be too long for one.
pub(crate) fn default_name(package: &str) -> String {
    package.chars().take(ApplicationId::NAME_MAX).collect::<String>().trim_end_matches('-').to_owned()
}

/// The identity that a user gives with `--name` and `--namespace`.
///
/// # Errors
/// `BadName`, which is wrong usage.
pub(crate) fn identity(namespace: &str, name: &str) -> Result<ApplicationId, Report> {
    ApplicationId::new(namespace, name).map_err(|error| {
        Report::new("BadName", error.to_string()).hint("give another --name or --namespace").exit(Exit::Usage)
    })
}

pub(crate) async fn prepare_cluster(cluster: &Cluster, id: &ApplicationId, script: &Script) -> Result<(), Report> {
    let failed = |error: barbless_cluster::Error| Report::new(error.reason(), error.chain());
    cluster.establish_crds().await.map_err(failed)?;
    cluster.ensure_namespace(id.namespace()).await.map_err(failed)?;
    make_objects(cluster, id, &script.objects).await
}

async fn make_objects(cluster: &Cluster, id: &ApplicationId, objects: &[Value]) -> Result<(), Report> {
    for object in objects {
        cluster
            .apply_object("barbless-dev", id.namespace(), object)
            .await
            .map_err(|error| Report::new(error.reason(), error.chain()).at("dev.yaml"))?;
    }
    Ok(())
}

/// An object of the script, in the words of [`everything`].
fn user_object(object: &Value, id: &ApplicationId) -> Option<String> {
    let mut target = ObjectRef::of(object).ok()?;
    if target.namespace.is_empty() {
        id.namespace().clone_into(&mut target.namespace);
    }
    Some(target.to_string())
}

/// The grant file: `permissions` and optionally `interfaces`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantFile {
    permissions: Vec<Permission>,
    #[serde(default)]
    interfaces: Option<BTreeSet<Interface>>,
}

pub(crate) fn grants(path: Option<&Path>) -> Result<Grants, Report> {
    let Some(path) = path else { return Ok(Grants::AsAsked) };
    let document = app::read_argument(path)?;
    let file: GrantFile = serde_json::from_value(document).map_err(|error| {
        Report::new("BadGrants", error.to_string())
            .at(path.display().to_string())
            .hint("a grant has permissions (as in package.yaml) and optionally interfaces")
            .exit(Exit::Usage)
    })?;
    let mut grant = Grant::with(file.permissions);
    if let Some(mut interfaces) = file.interfaces {
        interfaces.insert(Interface::PatchCollector);
        grant.interfaces = interfaces;
    }
    Ok(Grants::Fixed(grant))
}

async fn start(
    args: &Dev,
    cluster: Cluster,
    id: ApplicationId,
    manifest: Manifest,
    script: &Script,
) -> Result<Session, Report> {
    let grants = grants(args.grants.as_deref())?;
    let cache = args.data_dir.as_ref().map(|dir| dir.join("components")).or_else(app::default_cache);
    let sandbox = app::sandbox(cache)?;
    let runs = match &args.data_dir {
        Some(dir) => RunLog::open(dir).map_err(|error| Report::of("DataDirUnusable", &error))?,
        None => RunLog::in_memory(),
    };
    // The cluster begins empty.
    runs.retire_all_but(&BTreeSet::from([id.to_string()]));
    let earlier = runs.of(&id.to_string()).iter().map(|record| record.id).max().unwrap_or(0);
    let platform = Platform { kubernetes_version: parse_version(KUBERNETES_VERSION).ok(), ..Platform::default() };
    let (platform, facts) = watch::channel(platform);
    let notices = Notices::default();
    let shown = forward(&notices);
    // A folder of data is open in one process at a time, so the one that has it goes on at once with what the one before
    // it had begun.
    let owner = match &args.data_dir {
        Some(dir) => format!("dev in {}", dir.canonicalize().unwrap_or_else(|_| dir.clone()).display()),
        None => format!("dev-{}-{}", std::process::id(), driver::now().0),
    };
    let metrics = Metrics::default();
    let services =
        Arc::new(Services { cluster: cluster.clone(), sandbox, runs, notices, metrics, owner, platform: facts });
    let instance = Instance::new(id.clone(), Arc::new(Folder::new(&args.package)), grants);
    let handle = driver::start(Arc::clone(&services), instance);
    let observer = tokio::spawn(observe::observe(cluster.clone(), id.clone(), manifest.name.clone(), handle.clone()));
    cluster
        .create_application(&id, &manifest.name, &manifest.version.to_string(), &Value::Object(script.settings.clone()))
        .await
        .map_err(|error| Report::new(error.reason(), error.chain()))?;
    Ok(Session {
        id,
        manifest,
        cluster,
        services,
        handle,
        notices: shown,
        timeout: args.timeout,
        earlier,
        _observer: AbortOnDropHandle::new(observer),
        _platform: platform,
    })
}

/// Notices of the one application, in a channel that says when it is behind.
fn forward(notices: &Notices) -> mpsc::Receiver<Notice> {
    let mut all = notices.subscribe();
    let (sender, receiver) = mpsc::channel(1024);
    tokio::spawn(async move {
        loop {
            let notice = match all.recv().await {
                Ok((_, notice)) => notice,
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    Notice::Progress { text: format!("{lost} lines are not shown: the terminal is too slow") }
                }
                Err(broadcast::error::RecvError::Closed) => return,
            };
            if sender.send(notice).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Install, change, delete.
async fn once(session: &mut Session, script: &Script, ui: &mut Ui) -> Result<bool, Report> {
    let installed = |app: &App| app.is_idle() && app.status().summary.state == "Ready";
    wait(session, ui, "installing", installed).await?;
    let changes = !script.change.settings.is_empty() || !script.change.objects.is_empty();
    if changes {
        // Of a kept cluster the settings may be so already: then there is no newer generation to wait for.
        let mut generation = session.handle.state().status().observed_generation;
        ui.heading("changing");
        make_objects(&session.cluster, &session.id, &script.change.objects).await?;
        if !script.change.settings.is_empty() {
            let wanted = Value::Object(script.change.settings.clone());
            let seen = session.cluster.change_settings(&session.id, &wanted).await;
            let seen = seen.map_err(|error| Report::new(error.reason(), error.chain()))?;
            generation = generation.max(seen.desired.generation);
        }
        wait(session, ui, "changing", move |app| installed(app) && app.status().observed_generation >= generation)
            .await?;
    }
    run_schedules(session, ui).await?;
    ui.heading("deleting");
    session
        .cluster
        .delete_application(&session.id)
        .await
        .map_err(|error| Report::new(error.reason(), error.chain()))?;
    wait(session, ui, "deleting", App::is_finished).await?;
    Ok(!script.change.settings.is_empty())
}

/// A short life sees few schedules: those that were not due yet are made due now, so that each hook has run.
async fn run_schedules(session: &mut Session, ui: &mut Ui) -> Result<(), Report> {
    let (id, earlier) = (session.id.clone(), session.earlier);
    let ran = |services: &Services, hook: &str, schedule: &str| {
        let due = Trigger::Schedule(schedule.to_owned());
        let records = runs_after(services, &id, earlier);
        records.iter().any(|it| it.hook == hook && it.trigger == due && !matches!(it.end, RunEnd::Cancelled { .. }))
    };
    let app = session.handle.state();
    let hooks = app.loaded().map(|loaded| loaded.hooks.as_slice()).unwrap_or_default();
    let all = hooks.iter().flat_map(|hook| hook.schedules().map(|schedule| (hook.name.clone(), schedule.name.clone())));
    for (hook, schedule) in all {
        if ran(&session.services, &hook, &schedule) {
            continue;
        }
        ui.heading(&format!("running schedule '{schedule}' of hook '{hook}' now"));
        let event = Event::ScheduleDue { hook: hook.clone(), schedule: schedule.clone() };
        session.handle.send(event).await;
        let services = Arc::clone(&session.services);
        wait(session, ui, "running a schedule", |app| app.is_idle() && ran(&services, &hook, &schedule)).await?;
    }
    Ok(())
}

/// Shows what happens until the application is as wanted. A failure that nobody means to repeat ends it.
async fn wait(session: &mut Session, ui: &mut Ui, what: &str, holds: impl Fn(&App) -> bool) -> Result<(), Report> {
    let deadline = tokio::time::Instant::now() + session.timeout;
    let handle = session.handle.clone();
    let reached = handle.wait_for(holds);
    let mut reached = std::pin::pin!(reached);
    loop {
        tokio::select! {
            biased;
            Some(notice) = session.notices.recv() => {
                ui.notice(&notice);
                if let Notice::Failed { failure, .. } = &notice
                    && failure.retry_after_ms.is_none()
                {
                    return Err(Report::from(failure.clone()));
                }
            }
            _ = &mut reached => {
                // What was said before this moment is shown too.
                while let Ok(notice) = session.notices.try_recv() {
                    ui.notice(&notice);
                }
                return Ok(());
            }
            () = tokio::time::sleep_until(deadline) => {
                return Err(timed_out(what, session.timeout, session.handle.state().status().summary));
            }
        }
    }
}

/// What a user is told who waited for too long.
fn timed_out(what: &str, timeout: Duration, summary: barbless_domain::status::Summary) -> Report {
    let mut message = format!("{what} did not end within {timeout:?}");
    // There need be nothing to say about a state that is fine by itself.
    for part in [&summary.state, &summary.message] {
        if !part.is_empty() {
            message.push_str(": ");
            message.push_str(part);
        }
    }
    Report::new("TimedOut", message)
        .hint(if summary.tip.is_empty() { "give more time with --timeout".to_owned() } else { summary.tip })
        .exit(Exit::TimedOut)
}

/// Shows what happens until the user has enough.
async fn stay(session: &mut Session, ui: &mut Ui) -> Result<Exit, Report> {
    let handle = session.handle.clone();
    let gone = handle.wait_for(App::is_finished);
    let mut gone = std::pin::pin!(gone);
    loop {
        tokio::select! {
            Some(notice) = session.notices.recv() => ui.notice(&notice),
            _ = &mut gone => return Ok(Exit::Ok),
            () = interrupted() => return Ok(Exit::Ok),
        }
    }
}

/// All objects of the cluster that somebody made, as words.
async fn everything(cluster: &Cluster) -> Result<BTreeSet<String>, Report> {
    Ok(listed(cluster).await?.iter().map(ToString::to_string).collect())
}

async fn listed(cluster: &Cluster) -> Result<Vec<ObjectRef>, Report> {
    let all = cluster.list_everything().await.map_err(|error| Report::new(error.reason(), error.chain()))?;
    // Events tell of the past, and endpoints follow services by themselves.
    Ok(all.into_iter().filter(|object| object.gvk.kind != "Event").collect())
}

/// What is there now and was not before, apart from what its resource policy keeps; the garbage collector gets its time.
async fn leftovers(cluster: &Cluster, before: &BTreeSet<String>) -> Result<Vec<String>, Report> {
    let deadline = Instant::now() + COLLECTION;
    loop {
        let mut left = Vec::new();
        for object in listed(cluster).await?.into_iter().filter(|object| !before.contains(&object.to_string())) {
            let live = cluster.get(&object).await.map_err(|error| Report::new(error.reason(), error.chain()))?;
            if live.is_some_and(|live| !barbless_domain::release::is_kept(&live)) {
                left.push(object.to_string());
            }
        }
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn summarise(
    args: &Dev,
    session: &Session,
    result: &Result<(bool, Vec<String>), Report>,
    begun: Instant,
) -> Result<Exit, Report> {
    let records = session.runs();
    let carried_out = |result: &OperationResult| matches!(result, OperationResult::Done | OperationResult::Unchanged);
    let error = result
        .as_ref()
        .err()
        .map(|report| json!({"code": report.code, "message": report.message, "hint": report.hint}));
    let leftovers = result.as_ref().ok().map(|(_, leftovers)| leftovers.clone());
    let ok = leftovers.as_ref().is_some_and(Vec::is_empty);
    let summary = Summary {
        ok,
        application: session.id.to_string(),
        package: session.manifest.name.clone(),
        version: session.manifest.version.to_string(),
        runs: records.len(),
        failed_runs: records.iter().filter(|record| record.end.is_failure()).count(),
        operations: records
            .iter()
            .flat_map(|record| &record.operations)
            .filter(|(_, result)| carried_out(result))
            .count(),
        objects: session.handle.objects(),
        changed_setting: result.as_ref().ok().map(|(changed, _)| *changed),
        leftovers,
        seconds: (begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        error,
    };
    match args.output {
        Output::Json => app::print(&format!("{}\n", serde_json::to_string(&summary).unwrap_or_default()))?,
        Output::Yaml => app::print(&app::yaml(&summary)?)?,
        Output::Table => app::print(&table(&summary))?,
    }
    match result {
        Err(report) => Err(report.clone()),
        Ok((_, leftovers)) if leftovers.is_empty() => Ok(Exit::Ok),
        Ok((_, leftovers)) => Err(Report::new("LeftOver", format!("still in the cluster: {}", leftovers.join(", ")))
            .hint("delete it in an afterDeleteHelm hook, or list its kind in orphanResources of openapi/values.yaml")),
    }
}

fn table(summary: &Summary) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let mut row = |name: &str, value: String| {
        table.add_row(vec![name.to_owned(), value]);
    };
    row("result", if summary.ok { "ok".to_owned() } else { "failed".to_owned() });
    row("application", format!("{} ({} {})", summary.application, summary.package, summary.version));
    row("hook runs", format!("{} ({} failed)", summary.runs, summary.failed_runs));
    row("operations of hooks", summary.operations.to_string());
    row("objects of the release", summary.objects.to_string());
    row(
        "changed a setting",
        match summary.changed_setting {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        }
        .to_owned(),
    );
    row(
        "left in the cluster",
        match &summary.leftovers {
            None => "not looked up".to_owned(),
            Some(left) if left.is_empty() => "nothing".to_owned(),
            Some(left) => left.join(", "),
        },
    );
    row("seconds", format!("{:.2}", summary.seconds));
    format!("{table}\n")
}

#[cfg(test)]
mod tests;
