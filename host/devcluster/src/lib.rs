//! A Kubernetes API in the process, for `barbless dev` and for tests.
//!
//! [`DevCluster`] holds an in-memory (or persisted) store, serves it as an [`axum::Router`] that a client in the same
//! process can call without a socket, and on request on an address of the machine for kubectl. Small controllers make
//! workloads become ready. Every request is allowed unless [`Config::rbac`] says otherwise. It is no cluster: nothing runs.
//!
//! # How workloads behave
//!
//! Since nothing runs, annotations say what would have happened. They are read from the Pod (so they may stand in the
//! template of a workload) and then from the controllers above it; a change takes effect at once.
//!
//! | annotation | meaning |
//! |---|---|
//! | `devcluster.barbless.dev/run` | `succeed` (default): a Pod becomes ready, or its containers end with 0 when its restart policy is not `Always`. `fail` or `crash`: the container ends with a code; with the policy `Never` the Pod is `Failed`, otherwise the container is started again and again (`CrashLoopBackOff`, `restartCount` grows). `hang`: the container runs, and neither ends nor becomes ready. `image-pull`: `ErrImagePull` and `ImagePullBackOff` in turn. `pending`: the containers are never made. `unschedulable`: the Pod gets no node |
//! | `devcluster.barbless.dev/exit-code` | the code that `fail` ends with; 1 if it is absent |
//! | `devcluster.barbless.dev/after` | how long the containers run before it happens: `300ms`, `5s`, `2m` |
//! | `devcluster.barbless.dev/container` | the one container that `run` is about; it may be an init container. Without it all of `containers` |
//! | `devcluster.barbless.dev/failures` | how often it goes wrong before it goes well: ends of the container, failed Pods of the Job, or attempts to fetch the image |
//! | `devcluster.barbless.dev/stop-after` | how long the Pod takes to end when it is deleted (with a grace period) |
//! | `devcluster.barbless.dev/log` | what `log` of the Pod answers (on the Pod or its template) |
//!
//! `fail: "true"` (or a code), `hang: "true"` (that is `pending`) and `delay` (that is `after`) are older words for the
//! same. A PersistentVolumeClaim, a Service of type `LoadBalancer` or an Ingress with `run: hang` never gets a volume or an
//! address, and with `after` late; so does a CustomResourceDefinition become established and served.
//!
//! What happens is also told in Events, as controllers, a kubelet and a scheduler would.
//!
//! A CronJob makes a Job when its schedule comes round; [`Config::second`] makes that sooner, too. A node that is cordoned or
//! tainted takes no new Pods, and evictions keep to PodDisruptionBudgets, so that `kubectl drain` works. A
//! HorizontalPodAutoscaler keeps the number of replicas between its bounds and measures nothing.
//!
//! A Job makes its next Pod at once after a failure, and restarts in its Pods do not wait longer and longer. Failure and
//! success policies of Jobs are not known.
//!
//! # What is not there
//!
//! Quotas mean nothing, and roles only with [`Config::rbac`]; MutatingAdmissionPolicies are not served; `exec`,
//! `attach`, `port-forward` and proxies are not offered; definitions convert with strategy `None` only.
//!
//! # Webhooks
//!
//! Admission webhooks are called as a real server calls them: over HTTPS when their `clientConfig` has a URL, and in the
//! process when it names a Service that [`DevCluster::register_service`] knows. What controllers write by themselves is not
//! shown to them, and `authorizer` is not offered in conditions.
//!
//! # Tests
//!
//! [`DevCluster::journal`] tells what clients asked, in order; [`DevCluster::inject`] makes requests fail or hang, for
//! example as if the client had been killed at the nth write ([`Fault::killed_after`]); [`DevCluster::gate`] does so for one
//! client among several. [`Weather`] does by chance, from a seed, what faults do by script. [`Config::second`] shortens
//! deadlines.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tables of literals read better by value"))]

mod admission;
mod apply;
mod builtin;
mod catalog;
mod cel;
mod controllers;
mod crd;
mod json;
mod patch;
mod rbac;
mod registry;
mod schema;
mod selector;
mod server;
mod status;
mod store;
mod user;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use controllers::{Kubelet, Pace, Step, Surroundings, Written};
pub use registry::Propagation;
pub use server::{
    fault::{Effect, Fault, Gate, Scope},
    journal::{PatchKind, Request},
    relay::Relay,
    weather::{AnswerLost, Blow, IN_A_ROW, Odds, Struck, Weather},
};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How a [`DevCluster`] behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where objects are kept across restarts; `None` keeps them in memory only. A write that was answered survives the
    /// process being killed.
    pub data_dir: Option<PathBuf>,
    /// Whether workloads become ready (Deployments, StatefulSets, Jobs, Pods, …). Garbage collection, namespaces and
    /// custom resource clean-up always work.
    pub controllers: bool,
    /// How long a Pod takes from being created to being ready, and a container to end.
    pub ready_delay: Duration,
    /// How long a second lasts where a controller counts them: `progressDeadlineSeconds`, `activeDeadlineSeconds`,
    /// `ttlSecondsAfterFinished`, the schedules of CronJobs, and the wait before a container is started again. Tests make it short. Grace periods and
    /// the times in objects stay real.
    pub second: Duration,
    /// Whether roles and bindings say who may do what. Then clients over the network show a token ([`DevCluster::add_token`],
    /// or one of a ServiceAccount) or are `system:anonymous`; clients in the process that show none may do everything.
    /// Without it every request is an administrator's.
    pub rbac: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: None,
            controllers: true,
            ready_delay: Duration::from_millis(2),
            second: Duration::from_secs(1),
            rbac: false,
        }
    }
}

/// Why a cluster could not start or serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data folder could not be used.
    #[error("cannot open the data of the development cluster")]
    Data(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The address could not be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate for the development cluster")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The cluster could not make its own first objects.
    #[error("cannot create the first objects of the development cluster: {message}")]
    Bootstrap {
        /// What the API answered.
        message: String,
    },
}

/// What is wrong with a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataTrouble {
    /// Another cluster has it open.
    InUse,
    /// This user may not read or write it.
    Denied,
    /// What is in it cannot be read.
    Damaged,
    /// The machine failed in another way.
    Other,
}

impl Error {
    /// What is wrong with the data folder, if it is to blame.
    #[must_use]
    pub fn data_trouble(&self) -> Option<DataTrouble> {
        match self {
            Self::Data(source) => {
                Some(source.downcast_ref::<store::DiskError>().map_or(DataTrouble::Other, store::DiskError::trouble))
            }
            Self::Listen { .. } | Self::Certificate(_) | Self::Bootstrap { .. } => None,
        }
    }
}

/// A running Kubernetes API. Cheap to clone; the last clone that goes stops controllers, servers and watches, also when a
/// router of it is still around.
#[derive(Clone)]
pub struct DevCluster {
    shared: Arc<server::Shared>,
    _stop_on_drop: Arc<DropGuard>,
}

impl std::fmt::Debug for DevCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevCluster").field("requests", &self.request_count()).finish_non_exhaustive()
    }
}

impl DevCluster {
    /// Opens the store, makes the namespaces and the node that every cluster has, and starts the controllers. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// When the data folder cannot be opened or read.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let Config { data_dir, controllers, ready_delay, second, rbac } = config;
        let opening = tokio::task::spawn_blocking(move || registry::Registry::open(data_dir.as_deref()));
        let registry = opening.await.map_err(|error| Error::Data(Box::new(error)))?;
        let registry = Arc::new(registry.map_err(|error| Error::Data(Box::new(error)))?);
        let stopping = CancellationToken::new();
        let bootstrap = |error: status::ApiError| Error::Bootstrap { message: error.to_string() };
        controllers::bootstrap(&registry).map_err(bootstrap)?;
        if rbac {
            rbac::roles::bootstrap(&registry).map_err(bootstrap)?;
        }
        controllers::start(&registry, controllers, controllers::Pace { ready_delay, second }, &stopping);
        let guard = stopping.clone().drop_guard();
        let shared = Arc::new(server::Shared::new(registry, rbac::Authority::new(rbac), stopping));
        Ok(Self { shared, _stop_on_drop: Arc::new(guard) })
    }

    /// The API as a tower service. For a kube client: map the request body with `axum::body::Body::new`.
    pub fn router(&self) -> axum::Router {
        server::router(Arc::clone(&self.shared))
    }

    /// Serves the API over HTTP/1.1 on this address (port 0 chooses a free one). Without [`Config::rbac`] whoever reaches it
    /// may do everything, so bind to a loopback address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> Result<Server, Error> {
        let listener = bind(address).await?;
        let local = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
        Ok(self.serve_on(listener, local, None))
    }

    /// The same over TLS, with a certificate of its own: clients such as kubectl show tokens only there.
    ///
    /// # Errors
    /// When the address cannot be bound, or no certificate can be made.
    pub async fn serve_tls(&self, address: SocketAddr) -> Result<Server, Error> {
        let listener = bind(address).await?;
        let local = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
        let (listener, certificate) = server::tls::Listener::new(listener, local).map_err(Error::Certificate)?;
        Ok(self.serve_on(listener, local, Some(certificate)))
    }

    fn serve_on<L>(&self, listener: L, local: SocketAddr, certificate: Option<String>) -> Server
    where
        L: axum::serve::Listener<Addr = SocketAddr>,
    {
        // A child: stopping the cluster stops the server, not the other way round.
        let stopping = self.shared.stopping.child_token();
        let router = self.router().layer(axum::Extension(server::Stopping(stopping.clone())));
        let until = stopping.clone();
        let task = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(async move { until.cancelled().await });
            if let Err(error) = serving.await {
                tracing::error!(%error, "the development API server ended");
            }
        });
        Server { local, certificate, stopping, task }
    }

    /// Makes a token known: whoever shows it is this user in these groups (and in `system:authenticated`). The group
    /// `system:masters` may do everything. It means something only with [`Config::rbac`].
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
        self.shared.authority.add(token, user, &groups);
    }

    /// A new token of an administrator.
    #[must_use]
    pub fn admin_token(&self) -> String {
        let token = uuid::Uuid::new_v4().simple().to_string();
        self.add_token(&token, "devcluster-admin", &[rbac::MASTERS]);
        token
    }

    /// A kubeconfig, as YAML, whose only context is the server at this URL.
    pub fn kubeconfig(server_url: &str) -> String {
        kubeconfig(server_url, None, None)
    }

    /// Ends controllers, servers and watches, and closes the data file.
    pub async fn stop(self) {
        self.shared.stopping.cancel();
        let shared = Arc::clone(&self.shared);
        if let Err(error) = tokio::task::spawn_blocking(move || shared.registry.store.close()).await {
            tracing::error!(%error, "closing the data file failed");
        }
    }

    /// API requests served since the start.
    pub fn request_count(&self) -> u64 {
        self.shared.request_count()
    }

    /// API requests served since the start, by verb (get, list, watch, create, update, patch, delete, deletecollection).
    pub fn requests(&self) -> BTreeMap<String, u64> {
        self.shared.requests()
    }

    /// What clients asked, oldest first: the newest 16 384 requests. What controllers do by themselves is not in it.
    pub fn journal(&self) -> Vec<Request> {
        self.shared.journal.requests()
    }

    /// The requests of the journal that meant to change something ([`Request::is_write`]), oldest first.
    pub fn writes(&self) -> Vec<Request> {
        self.journal().into_iter().filter(Request::is_write).collect()
    }

    /// Forgets the journal, so that a test sees only what comes now. Numbers and counts go on.
    pub fn clear_journal(&self) {
        self.shared.journal.clear();
    }

    /// Makes something go wrong with the requests of all clients from now on. Several faults may be in force; each counts
    /// the requests of its scope, and the oldest that hits a request decides. A fault that has hit its `times` is over.
    pub fn inject(&self, fault: Fault) {
        self.shared.faults.inject(fault);
    }

    /// A way to the API of its own, with faults of its own; the name stands in the journal. A test that kills a program and
    /// starts it again gives each run its gate, so that what is left of the killed one can do no more harm.
    pub fn gate(&self, name: &str) -> Gate {
        let place = server::fault::Place { name: name.to_owned(), ..Default::default() };
        Gate { shared: Arc::clone(&self.shared), place: Arc::new(place) }
    }

    /// Lets a Service of this name answer in the process: webhooks whose `clientConfig` names it are posted to the router,
    /// without TLS. A Service object is not needed.
    pub fn register_service(&self, namespace: &str, name: &str, router: axum::Router) {
        self.shared.services.register(namespace, name, router);
    }

    /// Takes such a Service away again.
    pub fn remove_service(&self, namespace: &str, name: &str) {
        self.shared.services.remove(namespace, name);
    }

    /// Ends all faults that were injected here (those of gates stay). Requests that already hang are not answered any more: their client is taken for dead.
    pub fn heal(&self) {
        self.shared.faults.heal();
    }
}

async fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener, Error> {
    tokio::net::TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

fn kubeconfig(server_url: &str, certificate: Option<&str>, token: Option<&str>) -> String {
    use base64::Engine;
    let mut cluster = serde_json::json!({"server": server_url});
    if let Some(certificate) = certificate {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        json::set(&mut cluster, &["certificate-authority-data"], serde_json::json!(encoded));
    }
    let user = token.map_or_else(|| serde_json::json!({}), |token| serde_json::json!({"token": token}));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: devcluster\n  cluster: {cluster}\nusers:\n- name: devcluster\n  \
         user: {user}\ncontexts:\n- name: devcluster\n  context:\n    cluster: devcluster\n    user: devcluster\n    \
         namespace: default\ncurrent-context: devcluster\n"
    )
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    /// Of a server over TLS, in PEM.
    certificate: Option<String>,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// The address that is listened on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Where clients find it.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.local)
    }

    /// A kubeconfig, as YAML, whose only context is this server, with a token to show.
    #[must_use]
    pub fn kubeconfig(&self, token: Option<&str>) -> String {
        kubeconfig(&self.url(), self.certificate.as_deref(), token)
    }

    /// Stops accepting, and returns when open requests have ended or five seconds have passed.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        if tokio::time::timeout(Duration::from_secs(5), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
