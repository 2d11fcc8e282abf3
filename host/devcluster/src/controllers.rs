//! The controllers: what makes objects change by themselves.
//!
//! One task reads every change of the store and turns it into work items; an item names an object and a role, is kept
//! once however often it is asked for, and may wait for a time. Each item looks at the state and brings it one step on,
//! so a lost or repeated item does no harm. Nothing polls. The controllers write through the registry like clients.

mod behaviour;
mod cron;
mod cronjobs;
mod events;
mod garbage;
mod history;
mod jobs;
mod kubelet;
mod namespaces;
mod network;
mod pods;
mod replicas;
mod sets;
mod storage;
mod work;

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::Resource,
    json::{self, at, list, text},
    registry::{DeleteOptions, Edit, Options, Outcome, Registry},
    status::ApiError,
    store::{Change, Stored},
};
pub use behaviour::Surroundings;
pub use pods::{Kubelet, Step, Written};
use work::{Item, Queue, Role};

/// The name under which controllers own fields.
const MANAGER: &str = "kube-controller-manager";
const NODE: &str = "dev-node-0";
/// Changes read at once, and items done before changes are read again.
const BATCH_MAX: usize = 256;

/// Makes what every cluster has from its first moment. What exists is left alone.
pub(crate) fn bootstrap(registry: &Registry) -> Result<(), ApiError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        ensure(registry, "v1", "Namespace", "", json!({"metadata": {"name": name}}))?;
        namespaces::furnish(registry, name)?;
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    });
    ensure(registry, "v1", "Service", "default", service)?;
    let class = json!({
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "devcluster.barbless.dev/none",
    });
    ensure(registry, "storage.k8s.io/v1", "StorageClass", "", class)?;
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        ensure(registry, "scheduling.k8s.io/v1", "PriorityClass", "", class)?;
    }
    Ok(())
}

fn ensure(registry: &Registry, api_version: &str, kind: &str, namespace: &str, object: Value) -> Result<(), ApiError> {
    let resource = registry.catalog.by_kind(api_version, kind).ok_or_else(ApiError::no_such_resource)?;
    let name = text(&object, &["metadata", "name"]);
    if registry.store.get(&resource.table, namespace, name).is_some() {
        return Ok(());
    }
    match registry.create(&resource, namespace, object, Options::of(MANAGER)) {
        Err(error) if error.reason != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}

/// How fast things happen.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long a Pod takes from being created to being ready, and between the small steps of a container that fails.
    pub ready_delay: Duration,
    /// How long a second lasts where one is counted.
    pub second: Duration,
}

/// Starts the controllers; they end with the token.
pub(crate) fn start(registry: &Arc<Registry>, workloads: bool, pace: Pace, stopping: &CancellationToken) {
    let context = Context {
        registry: Arc::clone(registry),
        second: pace.second,
        schedules: cronjobs::Clock::new(pace.second),
        clocks: Clocks::default(),
        losses: Mutex::new(jobs::Losses::since(registry.store.revision())),
        // Revisions jump at a restart, so addresses given before are not given again soon.
        kubelet: Kubelet::new(pace, u32::try_from(registry.store.revision() % 60_000).unwrap_or_default()),
    };
    let controllers = Controllers { context, workloads, queue: Queue::default(), cursor: registry.store.revision() };
    let stopping = stopping.clone();
    if workloads {
        controllers.context.register_node();
    }
    tokio::spawn(async move { controllers.run(stopping).await });
}

/// What every controller needs.
struct Context {
    registry: Arc<Registry>,
    /// How long a second of a deadline is.
    second: Duration,
    schedules: cronjobs::Clock,
    clocks: Clocks,
    losses: Mutex<jobs::Losses>,
    kubelet: Kubelet,
}

/// What an item wants next.
enum Next {
    Done,
    /// Look again then.
    At(Instant),
}

struct Controllers {
    context: Context,
    workloads: bool,
    queue: Queue,
    /// Changes up to this revision have been turned into items.
    cursor: u64,
}

impl Controllers {
    async fn run(mut self, stopping: CancellationToken) {
        let mut signal = self.context.registry.store.subscribe_all();
        self.look_at_everything();
        loop {
            signal.borrow_and_update();
            let behind = self.observe();
            let mut done = 0;
            while done < BATCH_MAX
                && let Some(item) = self.queue.pop(Instant::now())
            {
                self.perform(item);
                done += 1;
            }
            if stopping.is_cancelled() {
                return;
            }
            if behind || done > 0 {
                // What was done has changed something; others get their turn first.
                tokio::task::yield_now().await;
                continue;
            }
            let wake = self.queue.next_due();
            let sleep = async {
                match wake {
                    Some(when) => tokio::time::sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = signal.changed() => if changed.is_err() { return },
                () = sleep => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    /// Reads changes; true when there are more.
    fn observe(&mut self) -> bool {
        let read = self.context.registry.store.all_changes(self.cursor, BATCH_MAX);
        match read {
            Ok((changes, complete)) => {
                for change in &changes {
                    self.enqueue(change);
                }
                self.cursor = complete;
                changes.len() == BATCH_MAX
            }
            Err(_) => {
                self.cursor = self.context.registry.store.revision();
                self.look_at_everything();
                false
            }
        }
    }

    /// As if every object had just changed.
    fn look_at_everything(&mut self) {
        let registry = Arc::clone(&self.context.registry);
        for table in registry.store.tables() {
            for stored in registry.store.list(&table, None).0 {
                let part = |field: &str| text(&stored.value, &["metadata", field]).to_owned();
                let key = (part("namespace"), part("name"));
                let change = Change {
                    revision: stored.revision,
                    table: Arc::clone(&table),
                    key,
                    old: None,
                    new: stored,
                    deleted: false,
                };
                self.enqueue(&change);
            }
        }
    }

    fn enqueue(&mut self, change: &Change) {
        if change.deleted {
            self.context.clocks.drop(change.new.uid());
        }
        garbage::enqueue(&self.context, change, &mut self.queue);
        garbage::enqueue_expiry(change, &mut self.queue);
        namespaces::enqueue(&self.context, change, &mut self.queue);
        if self.workloads {
            pods::enqueue(&self.context, change, &mut self.queue);
            replicas::enqueue(&self.context, change, &mut self.queue);
            network::enqueue(&self.context, change, &mut self.queue);
            storage::enqueue(change, &mut self.queue);
            cronjobs::enqueue(&self.context, change, &mut self.queue);
        }
    }

    fn perform(&mut self, item: Item) {
        let context = &self.context;
        let outcome = match item.role {
            Role::Collect => garbage::collect(context, &item),
            Role::Expire => garbage::expire_event(context, &item),
            Role::Namespace => namespaces::namespace(context, &item),
            Role::Definition => namespaces::definition(context, &item),
            Role::Adopt => replicas::adopt(context, &item),
            Role::Deployment => replicas::deployment(context, &item),
            Role::ReplicaSet => replicas::replica_set(context, &item),
            Role::StatefulSet => sets::stateful_set(context, &item),
            Role::DaemonSet => sets::daemon_set(context, &item),
            Role::Job => jobs::job(context, &item),
            Role::CronJob => cronjobs::cron_job(context, &item),
            Role::Pod => pods::pod(context, &item),
            Role::Claim => storage::claim(context, &item),
            Role::Volume => storage::volume(context, &item, &mut self.queue),
            Role::Service => network::service(context, &item),
            Role::Endpoints => network::endpoints(context, &item),
            Role::Ingress => network::ingress(context, &item),
            Role::Scaler => network::scaler(context, &item),
            Role::Budget => network::budget(context, &item),
        };
        match outcome {
            Ok(Next::Done) => {}
            Ok(Next::At(when)) => self.queue.push_at(item, when),
            // Somebody was faster, or the namespace is going: the change that caused it brings the item back if needed.
            Err(error) if matches!(error.code, 403 | 404 | 409) => {
                tracing::debug!(?item, %error, "controller lost a race");
                if error.code == 409 {
                    self.queue.push_at(item, Instant::now() + Duration::from_millis(20));
                }
            }
            Err(error) => {
                tracing::warn!(?item, %error, "controller failed");
                self.queue.push_at(item, Instant::now() + Duration::from_secs(1));
            }
        }
    }
}

impl Context {
    fn resource(&self, api_version: &str, kind: &str) -> Result<Arc<Resource>, ApiError> {
        self.registry.catalog.any_version(api_version, kind).ok_or_else(ApiError::no_such_resource)
    }

    fn get(&self, item: &Item) -> Option<Arc<Stored>> {
        self.registry.store.get(&item.table, &item.key.0, &item.key.1)
    }

    fn create(&self, api_version: &str, kind: &str, namespace: &str, object: Value) -> Result<Arc<Stored>, ApiError> {
        let resource = self.resource(api_version, kind)?;
        let outcome = self.registry.create(&resource, namespace, object, Options::of(MANAGER))?;
        Ok(finish(outcome))
    }

    /// Changes a stored object through an endpoint of its resource. The change says whether there is anything to do.
    fn change(
        &self,
        stored: &Stored,
        subresource: &str,
        change: &(dyn Fn(&mut Value) -> bool + Sync),
    ) -> Result<Arc<Stored>, ApiError> {
        let value = &stored.value;
        let resource = self.resource(text(value, &["apiVersion"]), text(value, &["kind"]))?;
        let (namespace, name) = (text(value, &["metadata", "namespace"]), text(value, &["metadata", "name"]));
        let edit = Edit::With(change);
        let outcome = self.registry.update(&resource, namespace, name, subresource, &edit, Options::of(MANAGER))?;
        Ok(finish(outcome))
    }

    /// Sets the whole status, if it differs.
    fn set_status(&self, stored: &Stored, status: &Value) -> Result<(), ApiError> {
        if stored.value.get("status").is_some_and(|old| json::same(old, status)) {
            return Ok(());
        }
        self.change(stored, "status", &|object| {
            json::set(object, &["status"], status.clone());
            true
        })?;
        Ok(())
    }

    fn delete(&self, stored: &Stored, mut options: DeleteOptions) -> Result<(), ApiError> {
        let value = &stored.value;
        let resource = self.resource(text(value, &["apiVersion"]), text(value, &["kind"]))?;
        options.uid = Some(stored.uid().to_owned());
        let (namespace, name) = (text(value, &["metadata", "namespace"]), text(value, &["metadata", "name"]));
        match self.registry.delete(&resource, namespace, name, &options) {
            Ok(outcome) => {
                finish(outcome);
                Ok(())
            }
            Err(error) if error.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The objects of a kind whose controller is this object.
    fn controlled(&self, owner: &Stored, table: &str) -> Vec<Arc<Stored>> {
        let dependents = self.registry.store.dependents(owner.uid());
        let ours = |stored: &Stored| controller_of(&stored.value).is_some_and(|c| text(c, &["uid"]) == owner.uid());
        dependents.into_iter().filter(|((t, _), s)| &**t == table && ours(s)).map(|(_, stored)| stored).collect()
    }

    /// Seconds of a deadline, as long as they are in this cluster.
    fn seconds(&self, number: impl TryInto<u32>) -> Duration {
        seconds_of(self.second, number)
    }

    fn register_node(&self) {
        let object = json!({"metadata": {"name": NODE, "labels": {
            "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}});
        let result = ensure(&self.registry, "v1", "Node", "", object).and_then(|()| {
            let resource = self.resource("v1", "Node")?;
            let node = self.registry.get(&resource, "", NODE)?;
            let now = json::now();
            let capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
            let status = json!({
                "capacity": capacity, "allocatable": capacity,
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": NODE}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "nothing runs here", "lastHeartbeatTime": now, "lastTransitionTime": now}],
                "nodeInfo": {"kubeletVersion": crate::server::GIT_VERSION, "kubeProxyVersion": "", "osImage": "none",
                    "operatingSystem": "linux", "architecture": "amd64", "kernelVersion": "0",
                    "containerRuntimeVersion": "none://0", "machineID": "", "systemUUID": "", "bootID": ""},
            });
            if list(&node.value, &["status", "conditions"]).is_empty() {
                self.set_status(&node, &status)
            } else {
                Ok(())
            }
        });
        if let Err(error) = result {
            tracing::warn!(%error, "cannot register the node");
        }
    }
}

/// So many seconds of a deadline, when one lasts so long.
fn seconds_of(second: Duration, number: impl TryInto<u32>) -> Duration {
    // A bound, so that adding it to the clock cannot overflow.
    second.saturating_mul(number.try_into().unwrap_or(u32::MAX)).min(Duration::from_secs(10 * 365 * 24 * 3600))
}

/// When something began that a deadline counts from, by uid and by what it is. An entry goes with its object.
#[derive(Debug, Default)]
struct Clocks(Mutex<HashMap<String, HashMap<&'static str, Instant>>>);

impl Clocks {
    /// When something about an object began. The status says it in whole seconds only, so the first look is remembered;
    /// what began before this process is taken from the status.
    fn began(&self, uid: &str, what: &'static str, status_says: &str) -> Instant {
        let age = || {
            let since = status_says.parse::<jiff::Timestamp>().ok()?;
            let age = Duration::try_from(jiff::Timestamp::now().duration_since(since)).ok()?;
            (age >= Duration::from_secs(2)).then_some(age)
        };
        let first_look = || {
            let now = Instant::now();
            age().and_then(|age| now.checked_sub(age)).unwrap_or(now)
        };
        *self.0.lock().entry(uid.to_owned()).or_default().entry(what).or_insert_with(first_look)
    }

    fn begin_again(&self, uid: &str, what: &'static str) {
        self.0.lock().entry(uid.to_owned()).or_default().insert(what, Instant::now());
    }

    /// Drops what is remembered of an object that is gone.
    fn drop(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// Nobody waits for a controller's write to reach the disk; the writer logs its failures.
fn finish(outcome: Outcome) -> Arc<Stored> {
    outcome.ticket.ignore();
    outcome.object
}

/// The owner reference of the controller of an object.
fn controller_of(object: &Value) -> Option<&Value> {
    let owners = list(object, &["metadata", "ownerReferences"]);
    owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

/// An owner reference that makes this object the controller.
fn reference_to(owner: &Value) -> Value {
    json!({
        "apiVersion": text(owner, &["apiVersion"]), "kind": text(owner, &["kind"]),
        "name": text(owner, &["metadata", "name"]), "uid": text(owner, &["metadata", "uid"]),
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn is_terminating(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// A condition of an object's status.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|condition| text(condition, &["type"]) == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

/// A condition, with the time of the old one if its status is the same.
fn make_condition(object: &Value, kind: &str, status: bool, reason: &str, message: &str) -> Value {
    make_condition_as(object, kind, if status { "True" } else { "False" }, reason, message)
}

/// As [`make_condition`], with a status that may be `Unknown`.
fn make_condition_as(object: &Value, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let old = condition(object, kind).filter(|old| text(old, &["status"]) == status);
    let since = old.map(|old| text(old, &["lastTransitionTime"]).to_owned()).filter(|time| !time.is_empty());
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since.unwrap_or_else(json::now)});
    for (field, words) in [("reason", reason), ("message", message)] {
        if !words.is_empty() {
            json::set(&mut condition, &[field], json!(words));
        }
    }
    condition
}

/// Ten characters that stand for a document.
fn short_hash(value: &Value) -> String {
    use sha2::{Digest, Sha256};
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(value.to_string().as_bytes());
    let letter = |byte: &u8| ALPHABET.get(usize::from(*byte) % ALPHABET.len()).map(|b| char::from(*b));
    digest.iter().take(10).filter_map(letter).collect()
}

#[cfg(test)]
mod tests;
