//! A Kubernetes API in the process, for `barbless dev` and for tests.
//!
//! [`DevCluster`] holds an in-memory (or persisted) store, serves it as an [`axum::Router`] that a client in the same
//! process can call without a socket, and on request on an address of the machine for kubectl. Small controllers make
//! workloads become ready. There are no users: every request is allowed. It is no cluster: nothing runs.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tables of literals read better by value"))]

mod apply;
mod builtin;
mod catalog;
mod controllers;
mod crd;
mod json;
mod patch;
mod registry;
mod schema;
mod selector;
mod server;
mod status;
mod store;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

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
}

impl Default for Config {
    fn default() -> Self {
        Self { data_dir: None, controllers: true, ready_delay: Duration::from_millis(2) }
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
    /// The cluster could not make its own first objects.
    #[error("cannot create the first objects of the development cluster: {message}")]
    Bootstrap {
        /// What the API answered.
        message: String,
    },
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
        let Config { data_dir, controllers, ready_delay } = config;
        let opening = tokio::task::spawn_blocking(move || registry::Registry::open(data_dir.as_deref()));
        let registry = opening.await.map_err(|error| Error::Data(Box::new(error)))?;
        let registry = Arc::new(registry.map_err(|error| Error::Data(Box::new(error)))?);
        let stopping = CancellationToken::new();
        controllers::bootstrap(&registry).map_err(|error| Error::Bootstrap { message: error.to_string() })?;
        controllers::start(&registry, controllers, ready_delay, &stopping);
        let guard = stopping.clone().drop_guard();
        let shared = Arc::new(server::Shared::new(registry, stopping));
        Ok(Self { shared, _stop_on_drop: Arc::new(guard) })
    }

    /// The API as a tower service. For a kube client: map the request body with `axum::body::Body::new`.
    pub fn router(&self) -> axum::Router {
        server::router(Arc::clone(&self.shared))
    }

    /// Serves the API over HTTP/1.1 on this address (port 0 chooses a free one). There is no authentication, so bind to
    /// a loopback address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> Result<Server, Error> {
        let listen = |source| Error::Listen { address, source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(listen)?;
        let local = listener.local_addr().map_err(listen)?;
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
        Ok(Server { local, stopping, task })
    }

    /// A kubeconfig, as YAML, whose only context is the server at this URL.
    pub fn kubeconfig(server_url: &str) -> String {
        let server = serde_json::Value::String(server_url.to_owned());
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: devcluster\n  cluster:\n    server: {server}\nusers:\n- \
             name: devcluster\n  user: {{}}\ncontexts:\n- name: devcluster\n  context:\n    cluster: devcluster\n    user: \
             devcluster\n    namespace: default\ncurrent-context: devcluster\n"
        )
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
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// The address that is listened on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
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
