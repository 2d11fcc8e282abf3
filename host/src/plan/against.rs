//! The cluster that a plan is made against.

use std::fs::{File, TryLockError};
use std::path::Path;

use barbless_cluster::Cluster;
use barbless_devcluster::{Config, DevCluster};
use barbless_domain::event::Desired;
use barbless_domain::identity::ApplicationId;
use barbless_domain::release::conflict::Rule;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::app;
use crate::cli::Plan;
use crate::dev::{self, Script};
use crate::report::{Exit, Report};

/// File of a kept cluster.
const DATA_FILE: &str = "devcluster.redb";

/// A cluster, and what it says about the application.
pub(super) struct Ground {
    /// Talks to it.
    pub(super) client: kube::Client,
    /// The cluster, in words.
    pub(super) words: String,
    /// `spec.settings` to plan with.
    pub(super) settings: Value,
    /// `spec.maintenance`.
    pub(super) maintenance: bool,
    /// What Helm installed is taken over.
    pub(super) take_over: bool,
    /// Rules of the operator.
    pub(super) rules: Vec<Rule>,
    devcluster: Option<DevCluster>,
    /// The copy goes with it.
    _copy: Option<tempfile::TempDir>,
}

impl Ground {
    /// Ends what was started for the plan.
    pub(super) async fn close(self) {
        if let Some(devcluster) = self.devcluster {
            devcluster.stop().await;
        }
    }
}

/// Opens the cluster that was asked for: a real one, a copy of a kept one, or an empty one.
pub(super) async fn open(
    args: &Plan,
    id: &ApplicationId,
    package: (&str, &str),
    script: Script,
) -> Result<Ground, Report> {
    let from_environment = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    if args.kubeconfig.is_some() || args.context.is_some() {
        return real(args, id, script).await;
    }
    match &args.data_dir {
        Some(dir) => {
            let copy = copy_of(dir)?;
            let words = format!("a copy of the development cluster in {}", dir.display());
            development(Some(copy), words, id, package, script).await
        }
        None if from_environment => real(args, id, script).await,
        None => development(None, "an empty development cluster".to_owned(), id, package, script).await,
    }
}

async fn real(args: &Plan, id: &ApplicationId, script: Script) -> Result<Ground, Report> {
    let bad =
        |error: &dyn std::error::Error| Report::of("BadKubeconfig", error).hint("give a kubeconfig with --kubeconfig");
    let kubeconfig = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map_err(|error| {
            let report = bad(&error).at(path.display().to_string());
            if path.exists() { report } else { report.exit(Exit::NotFound) }
        })?,
        None => Kubeconfig::read().map_err(|error| bad(&error))?,
    };
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let context = args.context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| bad(&error))?;
    let words = format!("{context:?} at {}", config.cluster_url);
    // A cluster asks again by itself, and knows when it did.
    config.default_retry = false;
    let client = kube::Client::try_from(config).map_err(|error| bad(&error))?;
    let cluster = Cluster::new(barbless_cluster::harmless(client.clone()));
    let said = said(&cluster, id).await?;
    // The settings of dev.yaml are those of an author; here the operator has the word.
    let settings = match &args.settings {
        Some(_) => Value::Object(script.settings),
        None => said.settings,
    };
    let Said { maintenance, take_over, rules, .. } = said;
    Ok(Ground { client, words, settings, maintenance, take_over, rules, devcluster: None, _copy: None })
}

/// What the `Application` of a cluster says.
struct Said {
    settings: Value,
    maintenance: bool,
    take_over: bool,
    rules: Vec<Rule>,
}

async fn said(cluster: &Cluster, id: &ApplicationId) -> Result<Said, Report> {
    let nothing = Said { settings: Value::Null, maintenance: false, take_over: false, rules: Vec::new() };
    let application = match cluster.application(id).await {
        Ok(Some(application)) => application,
        // The host was never installed there.
        Ok(None) | Err(barbless_cluster::Error::KindNotServed { .. }) => return Ok(nothing),
        Err(error) => return Err(Report::new(error.reason(), error.chain())),
    };
    let Desired { settings, maintenance, take_over, field_conflicts, .. } = application.desired;
    let rules = barbless_domain::release::conflict::read(&field_conflicts)
        .map_err(|failure| Report::from(failure).at(format!("Application {id}")))?;
    Ok(Said { settings, maintenance, take_over, rules })
}

/// A development cluster for this plan alone, with what `barbless dev` would put into it.
async fn development(
    copy: Option<tempfile::TempDir>,
    words: String,
    id: &ApplicationId,
    (package, version): (&str, &str),
    script: Script,
) -> Result<Ground, Report> {
    let config = Config {
        data_dir: copy.as_ref().map(|copy| copy.path().to_owned()),
        // Nothing changes while the plan is made.
        controllers: false,
        ..Config::default()
    };
    let devcluster = DevCluster::start(config).await.map_err(|error| Report::of("DevClusterFailed", &error))?;
    let client = app::client_of(&devcluster);
    let cluster = Cluster::new(client.clone());
    dev::prepare_cluster(&cluster, id, &script).await?;
    let Said { maintenance, take_over, rules, .. } = said(&cluster, id).await?;
    // The cluster is a copy, so this is done for real: what users have set by other means stays, as in `barbless dev`.
    let applied = cluster.create_application(id, package, version, &Value::Object(script.settings)).await;
    let settings = applied.map_err(|error| Report::new(error.reason(), error.chain()))?.desired.settings;
    Ok(Ground { client, words, settings, maintenance, take_over, rules, devcluster: Some(devcluster), _copy: copy })
}

/// Copies the data of a kept cluster, which must not be in use.
fn copy_of(dir: &Path) -> Result<tempfile::TempDir, Report> {
    let path = dir.join("cluster").join(DATA_FILE);
    let place = path.display().to_string();
    let unusable = |error: &std::io::Error| Report::new("DataDirUnusable", error.to_string()).at(place.clone());
    let file = File::open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Report::new("ClusterNotFound", "there is no development cluster")
            .at(place.clone())
            .hint("make one with barbless dev PACKAGE --data-dir DIR")
            .exit(Exit::NotFound),
        _ => unusable(&error),
    })?;
    // As long as this lock is held, nobody can open the cluster and write to it.
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Report::new("DataDirInUse", "another process has the development cluster open")
                .at(place)
                .hint("end barbless dev first, or plan against its API with --kubeconfig"));
        }
        Err(TryLockError::Error(error)) => return Err(unusable(&error)),
    }
    let copy = tempfile::tempdir().map_err(|error| unusable(&error))?;
    let mut into = File::create(copy.path().join(DATA_FILE)).map_err(|error| unusable(&error))?;
    std::io::copy(&mut &file, &mut into).map_err(|error| unusable(&error))?;
    Ok(copy)
}
