//! Talks to the Kubernetes API; the only crate that knows kube.
//!
//! It performs what `barbless-domain` decided: a hook's operation, a release plan, a watch, the removal of an
//! application. It decides nothing about what happens next. Objects are `serde_json::Value`; no type of kube is in a
//! signature here except the client that a [`Cluster`] is made of and the `ApiResource` of a resolved kind.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::{Arc, OnceLock};

use barbless_domain::identity::Gvk;

mod application;
pub mod crd;
mod discovery;
mod error;
mod event;
mod inventory;
mod limits;
mod perform;
mod preview;
mod record;
mod release;
mod request;
mod served;
mod steady;
mod trace;
mod watch;

#[cfg(test)]
mod tests;

pub use application::{ApplicationEvent, MalformedApplication, SeenApplication};
pub use crd::{Application, ApplicationSpec, ApplicationStatus, FINALIZER, crds};
pub use discovery::Resource;
pub use error::{ApiError, Cause, ConflictingField, Error, FieldConflict};
pub use event::EventType;
pub use inventory::{PurgeLevel, PurgeLine, PurgeReport};
pub use perform::{Jq, JqFailure};
pub use preview::{Foreseen, ForeseenOperation, Outlook, Role, SettledField, harmless};
pub use record::{
    HEARTBEAT, HelmMarks, HelmRelease, HookPhase, HookRun, NewRevision, Record, RecordError, RecordedHook,
    adopt_fields, helm_marks,
};
pub use release::{
    AfterRemoval, Applied, Change, DeployError, Foreign, PodTrouble, Progress, ReadyFn, ReleaseError, ReleaseOptions,
    Remaining, Removed, SeeFn,
};
pub use watch::{Observation, WatchEvent, WatchSpec};

/// A connection to a cluster. A clone is cheap and shares the client and what is known about kinds.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    /// Asks again what was not answered.
    client: kube::Client,
    /// Asks once: a watch goes on by itself.
    plain: kube::Client,
    /// The client of watches, from its first use on.
    watches: OnceLock<kube::Client>,
    patience: watch::Patience,
    discovery: discovery::Discovery,
    hubs: watch::Hubs,
}

impl Cluster {
    /// Makes a connection of a client.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self::with_patience(client, watch::Patience::default())
    }

    pub(crate) fn with_patience(client: kube::Client, patience: watch::Patience) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: steady::steady(&client),
                plain: client,
                watches: OnceLock::new(),
                patience,
                discovery: discovery::Discovery::default(),
                hubs: watch::Hubs::default(),
            }),
        }
    }

    /// The client. It asks again what the API server was too busy for, or did not answer.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.inner.client
    }

    /// What the cluster serves for a kind. Asks the API server only for what is not known yet.
    ///
    /// # Errors
    /// [`Error::KindNotServed`], or if the API server refuses or does not answer.
    pub async fn resolve(&self, gvk: &Gvk) -> Result<Resource, Error> {
        self.inner.discovery.resolve(&self.inner.client, gvk).await
    }

    /// What is known about kinds.
    pub(crate) fn discovery(&self) -> &discovery::Discovery {
        &self.inner.discovery
    }

    /// Forgets what is known about kinds: definitions were just applied or removed.
    pub fn forget_kinds(&self) {
        self.inner.discovery.forget();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}
