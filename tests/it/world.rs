//! An application in one process: the real loop, the real sandbox, a Kubernetes API behind a real client. Which API it is
//! says [`crate::target`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barbless::driver::instance::{Bundles, Grants};
use barbless::driver::{self, Handle, Instance, Services};
use barbless::notice::Notices;
use barbless::runs::RunLog;
use barbless_cluster::{ApplicationEvent, Cluster};
use barbless_devcluster::Config;
use barbless_domain::event::{Event, Failure};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::package::PackageSource;
use barbless_domain::pipeline::App;
use barbless_domain::requirement::{Platform, parse_version};
use barbless_domain::run::RunRecord;
use barbless_sandbox::Sandbox;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::target::Target;

/// Long enough for a busy machine; nothing waits for it unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A component that `tests/run` has built.
pub(crate) fn component(path: &str) -> Vec<u8> {
    let path = root().join(path);
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}\nbuild the components first: tests/run does, and so does `barbless build`", path.display())
    })
}

/// A small package with one ConfigMap, and whatever else is added to it.
pub(crate) fn package(name: &str) -> PackageSource {
    let manifest = format!(
        "apiVersion: v1\ntype: Application\nname: {name}\nversion: 1.0.0\nstage: Experimental\n\
         descriptions:\n  en: A package of the tests.\n"
    );
    PackageSource::new().with("package.yaml", &manifest).with(
        "templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Application.Instance.Name }}-config\ndata:\n  \
         replicas: {{ .Values.replicas | default 1 | quote }}\n",
    )
}

/// Bundles that a test can exchange.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<PackageSource>);

impl Bundles for Shelf {
    fn fetch<'a>(&'a self, _version: &'a str) -> BoxFuture<'a, Result<PackageSource, Failure>> {
        let source = self.0.lock().unwrap().clone();
        Box::pin(async move { Ok(source) })
    }
}

/// A cluster and a sandbox that applications share.
#[derive(Clone)]
pub(crate) struct World {
    /// The cluster as a user sees it. The program has `services.cluster`.
    pub(crate) cluster: Cluster,
    pub(crate) services: Arc<Services>,
    /// The API behind the cluster.
    pub(crate) api: Target,
    platform: Arc<watch::Sender<Platform>>,
}

/// The sandbox of all tests: the cache of compiled components is shared, as between applications.
pub(crate) fn sandbox() -> Sandbox {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("components");
    barbless::app::sandbox_with(PathBuf::from(env!("CARGO_BIN_EXE_barbless")), Some(cache)).unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_runs(RunLog::in_memory()).await
    }

    /// With records that are kept in a folder, or wherever else.
    pub(crate) async fn with_runs(runs: RunLog) -> Self {
        let api = Target::start(Config::default()).await;
        let cluster = Cluster::new(api.client());
        cluster.establish_crds().await.unwrap();
        let of_the_program = match api.has_faults() {
            true => {
                let router = api.seen_by_the_program(api.router());
                Cluster::new(barbless::app::client_by(router, api.namespace()))
            }
            false => cluster.clone(),
        };
        let (platform, facts) = watch::channel(Platform::default());
        let services = Arc::new(Services {
            cluster: of_the_program,
            sandbox: sandbox(),
            runs,
            notices: Notices::default(),
            metrics: barbless::metrics::Metrics::default(),
            owner: "tests".to_owned(),
            platform: facts,
        });
        Self { cluster, services, api, platform: Arc::new(platform) }
    }

    /// The namespace of all applications.
    pub(crate) fn namespace(&self) -> &str {
        self.api.namespace()
    }

    /// Waits until nobody asks the API for anything any more: an application that is at rest, or was told to stop, may
    /// still be writing its status.
    pub(crate) async fn quiet(&self) {
        // Whoever was sent away comes again after a second.
        let pause = Duration::from_millis(if self.api.has_faults() { 2_000 } else { 300 });
        let mut requests = u64::MAX;
        while requests != self.api.request_count() {
            requests = self.api.request_count();
            tokio::time::sleep(pause).await;
        }
    }

    /// The cluster is of this version from now on.
    pub(crate) fn kubernetes(&self, version: &str) {
        let kubernetes_version = Some(parse_version(version).unwrap());
        self.platform.send_modify(|platform| platform.kubernetes_version = kubernetes_version);
    }

    /// Installs a package as an application.
    pub(crate) async fn install(&self, name: &str, source: PackageSource, settings: Value) -> Running {
        self.install_with(name, source, settings, Grants::AsAsked).await
    }

    pub(crate) async fn install_with(
        &self,
        name: &str,
        source: PackageSource,
        settings: Value,
        grants: Grants,
    ) -> Running {
        let id = ApplicationId::new(self.namespace(), name).unwrap();
        let shelf = Arc::new(Shelf(Mutex::new(source)));
        let running = self.begin(&id, &shelf, grants);
        self.cluster.create_application(&id, "a-package", "1.0.0", &settings).await.unwrap();
        running
    }

    /// Begins the loop of an application, as a process that starts does.
    pub(crate) fn begin(&self, id: &ApplicationId, shelf: &Arc<Shelf>, grants: Grants) -> Running {
        let bundles: Arc<dyn Bundles> = Arc::clone(shelf) as Arc<dyn Bundles>;
        let instance = Instance::new(id.clone(), bundles, grants);
        let handle = driver::start(Arc::clone(&self.services), instance);
        let (cluster, seen, id) = (self.services.cluster.clone(), handle.clone(), id.clone());
        let own = id.clone();
        let observer = tokio::spawn(async move {
            let events = cluster.watch_applications(Some(own.namespace().to_owned()));
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                let applications = match event {
                    ApplicationEvent::Applied(seen) => vec![*seen],
                    ApplicationEvent::Synced { applications, .. } => applications,
                    _ => continue,
                };
                for one in applications.into_iter().filter(|one| one.id == own) {
                    if !one.desired.deleting {
                        cluster.ensure_finalizer(&own).await.unwrap();
                    }
                    seen.send(Event::Observed(one.desired)).await;
                }
            }
        });
        Running { world: self.clone(), id, handle, shelf: Arc::clone(shelf), observer }
    }
}

/// An application that runs.
pub(crate) struct Running {
    pub(crate) world: World,
    pub(crate) id: ApplicationId,
    pub(crate) handle: Handle,
    pub(crate) shelf: Arc<Shelf>,
    observer: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

impl Running {
    /// Waits until its state is as wanted.
    pub(crate) async fn wait(&self, what: &str, holds: impl FnMut(&App) -> bool) -> Arc<App> {
        match tokio::time::timeout(PATIENCE, self.handle.wait_for(holds)).await {
            Ok(Some(app)) => app,
            Ok(None) => panic!("{} is gone before: {what}", self.id),
            Err(_) => panic!("{} is not {what}: {:#?}", self.id, self.handle.state().status()),
        }
    }

    /// Waits until it is installed and at rest.
    pub(crate) async fn ready(&self) -> Arc<App> {
        self.wait("ready", |app| app.is_idle() && app.status().summary.state == "Ready").await
    }

    /// Waits for a failure and says its reason and message.
    pub(crate) async fn failure(&self) -> Failure {
        let failed = |app: &App| {
            let lifecycle = app.lifecycle().head().and_then(|head| head.failure.clone());
            let hook = app.hook_queues().values().find_map(|queue| queue.head()?.failure.clone());
            lifecycle.or(hook)
        };
        let app = self.wait("failed", |app| failed(app).is_some()).await;
        failed(&app).unwrap()
    }

    /// Runs a hook of a schedule now and gives its record.
    pub(crate) async fn run(&self, hook: &str) -> Arc<RunRecord> {
        let before = self.records().len();
        self.handle.send(Event::ScheduleDue { hook: hook.to_owned(), schedule: "schedule".to_owned() }).await;
        for _ in 0..6_000 {
            if let Some(record) = self.records().into_iter().skip(before).find(|record| record.hook == hook) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("hook '{hook}' has not run");
    }

    pub(crate) fn records(&self) -> Vec<Arc<RunRecord>> {
        self.world.services.runs.of(&self.id.to_string())
    }

    pub(crate) async fn object(&self, api_version: &str, kind: &str, name: &str) -> Option<Value> {
        let gvk = Gvk::parse(api_version, kind).unwrap();
        let target = ObjectRef { gvk, namespace: self.id.namespace().to_owned(), name: name.to_owned() };
        self.world.cluster.get(&target).await.unwrap()
    }

    pub(crate) async fn change(&self, settings: Value) {
        self.world.cluster.change_settings(&self.id, &settings).await.unwrap();
    }

    pub(crate) async fn delete(&self) {
        self.world.cluster.delete_application(&self.id).await.unwrap();
        self.wait("gone", App::is_finished).await;
    }

    /// Another bundle lies on the shelf from now on.
    pub(crate) fn put_on_shelf(&self, source: PackageSource) {
        *self.shelf.0.lock().unwrap() = source;
    }

    pub(crate) async fn names(&self, api_version: &str, kind: &str) -> Vec<String> {
        let gvk = Gvk::parse(api_version, kind).unwrap();
        let objects = self.world.cluster.list(&gvk, Some(self.id.namespace()), "").await.unwrap();
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// No settings.
pub(crate) fn nothing() -> Value {
    json!({})
}
