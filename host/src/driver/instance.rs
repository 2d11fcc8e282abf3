//! What is kept for one application beside its state: the package, the values, the snapshots, the plan.
//!
//! The locks here are held for moments, never over input or output, and never by two applications.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barbless_cluster::Cluster;
use barbless_domain::declaration::Hook;
use barbless_domain::event::Failure;
use barbless_domain::grant::Grant;
use barbless_domain::hook::HookDeclaration;
use barbless_domain::identity::ApplicationId;
use barbless_domain::package::{Package, PackageSource};
use barbless_domain::pipeline::DeletionStep;
use barbless_domain::queue::Time;
use barbless_domain::requirement::Platform;
use barbless_domain::run;
use barbless_domain::run::SnapshotState;
use barbless_domain::snapshot::SnapshotStore;
use barbless_domain::values::{self, Computed, Patches, Values};
use barbless_sandbox::{Prepared, Sandbox};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::bindings::Bindings;
use super::health::Monitor;
use super::jq::Filters;
use super::release::Planned;
use super::seed::Seed;
use crate::metrics::Metrics;
use crate::notice::Notices;
use crate::runs::RunLog;

/// What all applications of a process share.
pub struct Services {
    /// The cluster.
    pub cluster: Cluster,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The records of runs.
    pub runs: RunLog,
    /// What happens, for people.
    pub notices: Notices,
    /// What is measured.
    pub metrics: Metrics,
    /// Name of this process, unique: it owns the releases that it applies.
    pub owner: String,
    /// Versions and modules of the platform.
    pub platform: watch::Receiver<Platform>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

/// Where bundles come from.
pub trait Bundles: Send + Sync {
    /// Fetches the bundle of a version.
    fn fetch<'a>(&'a self, version: &'a str) -> BoxFuture<'a, Result<PackageSource, Failure>>;
}

/// What the operator grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grants {
    /// All that the package asks for: the choice of an author who runs a package of their own.
    AsAsked,
    /// Just this.
    Fixed(Grant),
}

impl Grants {
    /// The grant for a package.
    #[must_use]
    pub fn of(&self, package: &Package) -> Grant {
        match self {
            Self::AsAsked => Grant::with(package.manifest.permissions.clone()),
            Self::Fixed(grant) => grant.clone(),
        }
    }
}

/// One application.
pub struct Instance {
    /// Which.
    pub id: ApplicationId,
    /// Its bundles.
    pub bundles: Arc<dyn Bundles>,
    /// What its hooks may do.
    pub grants: Grants,
    /// Helm hooks are left out.
    pub skip_helm_hooks: bool,
    /// Seed of random functions of the templates of a release that has none yet; a new one unless given.
    pub(crate) known_seed: Option<Seed>,
    /// A moment in place of the clock of the machine.
    pub moment: Option<Time>,
    data: Mutex<Data>,
    pub(super) bindings: tokio::sync::Mutex<Option<Bindings>>,
    /// Held from the check of the values of a run until they are committed, operations included: what was found valid
    /// is what is kept, and nothing of a run is carried out whose values another hook has made invalid meanwhile.
    pub(super) committing: tokio::sync::Mutex<()>,
    /// Step of the deletion that was written down last; held while the status is written.
    pub(super) deletion_step: tokio::sync::Mutex<Option<DeletionStep>>,
    /// The right to evaluate a jq program: one at a time, so that a slow one does not take the turns of others.
    pub(super) jq: Arc<Semaphore>,
    monitor: Mutex<Option<Monitor>>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Data {
    pub(super) fetched: Option<PackageSource>,
    /// `spec.settings` as they were seen last; not checked.
    pub(super) wanted: Value,
    pub(super) candidate: Option<Arc<LoadedPackage>>,
    pub(super) current: Option<Arc<LoadedPackage>>,
    pub(super) values: Option<Values>,
    /// What hooks of an earlier process set: as the release record has it.
    pub(super) recorded: Patches,
    /// What hooks have set and the values do not have yet, because they wait for settings that are valid.
    pub(super) unrestored: Option<Patches>,
    /// The documents of the last apply that ended well.
    pub(super) applied: Option<Computed>,
    pub(super) snapshots: BTreeMap<String, BTreeMap<String, SnapshotStore>>,
    pub(super) planned: Option<Arc<Planned>>,
    /// Seed of random functions until the release has it.
    pub(super) seed: Option<Seed>,
}

/// A package whose components are compiled, linked and described.
pub(super) struct LoadedPackage {
    pub(super) package: Arc<Package>,
    pub(super) grant: Grant,
    /// By name.
    pub(super) hooks: Vec<Hook>,
    /// Component of each hook.
    pub(super) components: BTreeMap<String, Arc<LinkedComponent>>,
    /// Components that judge settings.
    pub(super) checkers: Vec<Arc<LinkedComponent>>,
    /// jq programs of its bindings.
    pub(super) filters: Filters,
}

impl LoadedPackage {
    /// The hook of this name.
    pub(super) fn declaration(&self, hook: &str) -> Option<&HookDeclaration> {
        self.hooks.iter().map(|it| &it.declaration).find(|it| it.name == hook)
    }
}

/// A component that can run.
pub(super) struct LinkedComponent {
    pub(super) path: String,
    pub(super) digest: String,
    pub(super) prepared: Prepared,
}

impl Instance {
    /// An application of which nothing is loaded yet.
    #[must_use]
    pub fn new(id: ApplicationId, bundles: Arc<dyn Bundles>, grants: Grants) -> Self {
        Self {
            id,
            bundles,
            grants,
            skip_helm_hooks: false,
            known_seed: None,
            moment: None,
            data: Mutex::default(),
            bindings: tokio::sync::Mutex::default(),
            committing: tokio::sync::Mutex::default(),
            deletion_step: tokio::sync::Mutex::default(),
            jq: Arc::new(Semaphore::new(1)),
            monitor: Mutex::default(),
        }
    }

    pub(super) fn data(&self) -> MutexGuard<'_, Data> {
        // Each change is one assignment, so a panic elsewhere leaves the data whole.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn monitor(&self) -> MutexGuard<'_, Option<Monitor>> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed of random functions of the templates: that of the release, or else one that stays the same until there
    /// is a release.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub(super) fn seed(&self, released: Option<Seed>) -> Result<Seed, Failure> {
        if let Some(seed) = released.or(self.known_seed) {
            return Ok(seed);
        }
        let mut data = self.data();
        if let Some(seed) = data.seed {
            return Ok(seed);
        }
        let seed = Seed::fresh().map_err(|error| Failure::new("NoRandomness", error.to_string()))?;
        data.seed = Some(seed);
        Ok(seed)
    }

    /// The package in force.
    ///
    /// # Errors
    /// If there is none: the domain asked for something that needs one, which is a bug of the host.
    pub(super) fn current(&self) -> Result<Arc<LoadedPackage>, Failure> {
        self.data().current.clone().ok_or_else(|| Failure::new("InternalError", "no package is in force"))
    }

    /// What a run of a hook is given: both documents with their digests, and its snapshots.
    pub(super) fn inputs_of(&self, hook: &str) -> (Computed, BTreeMap<String, SnapshotState>) {
        let mut data = self.data();
        let computed = data.values.as_ref().map_or_else(nothing, |values| values.computed().clone());
        let stores = data.snapshots.get_mut(hook);
        let views = stores.map(|stores| stores.iter_mut().map(|(binding, store)| (binding.clone(), store.view())));
        (computed, views.into_iter().flatten().collect())
    }

    /// The values document and the effective settings.
    pub(super) fn documents(&self) -> (Arc<Value>, Arc<Value>) {
        let computed = self.data().values.as_ref().map_or_else(nothing, |values| values.computed().clone());
        (computed.values, computed.settings)
    }

    /// The moment that hooks and templates see.
    pub(super) fn now(&self) -> Time {
        self.moment.unwrap_or_else(super::now)
    }

    pub(super) fn identity(&self, package: &Package) -> run::Instance {
        run::Instance {
            name: self.id.name().to_owned(),
            namespace: self.id.namespace().to_owned(),
            package_name: package.manifest.name.clone(),
            package_version: package.manifest.version.to_string(),
        }
    }

    /// The loop has ended: whatever still runs ends. Watches that start in this very moment end by themselves, since
    /// nobody receives what they tell.
    pub(super) fn stop(&self) {
        if let Ok(mut bindings) = self.bindings.try_lock() {
            *bindings = None;
        }
        *self.monitor() = None;
    }
}

/// The documents before there are any.
fn nothing() -> Computed {
    let empty = Arc::new(Value::Object(serde_json::Map::new()));
    let digest = values::digest(&empty);
    Computed { settings: Arc::clone(&empty), values: empty, digest: digest.clone(), settings_digest: digest }
}
