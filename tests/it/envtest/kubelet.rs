//! The kubelet and the scheduler of the real control plane: Pods do what their annotations say, by the same decisions as
//! in the development cluster ([`barbless_devcluster::Kubelet`]).
//!
//! One task has all Pods and all workloads above them in memory, from watches. What is to be written is written by tasks
//! of their own, one at a time for each Pod; a write that lost a race is dropped, because the change that won it comes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use barbless_devcluster::{Kubelet, Pace, Step, Surroundings, Written};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::send;

/// The node of all Pods; the decisions of the development cluster name it, too.
pub(super) const NODE: &str = "dev-node-0";
/// Before something is tried again that failed for no known reason.
const AGAIN: Duration = Duration::from_millis(200);

const KINDS: [(&str, &str); 6] = [
    ("", "Pod"),
    ("apps", "ReplicaSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
];

/// Plays until the process ends.
pub(super) async fn play(client: kube::Client) {
    let mut changes = stream::select_all(KINDS.map(|(group, kind)| watch(&client, group, kind)));
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut player =
        Player { client, kubelet: kubelet(), known: Known::default(), due: HashMap::new(), busy: HashSet::new(), tell };
    loop {
        player.perform();
        let wake = player.next_due();
        tokio::select! {
            Some(change) = changes.next() => player.take(change),
            Some(done) = told.recv() => player.finish(done),
            () = sleep_until(wake) => {}
        }
    }
}

fn kubelet() -> Kubelet {
    Kubelet::new(Pace { ready_delay: Duration::from_millis(2), second: Duration::from_secs(1) }, 0)
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

enum Change {
    Seen(Value),
    Gone(Value),
}

fn watch(client: &kube::Client, group: &str, kind: &str) -> BoxStream<'static, Change> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let pod = kind == "Pod";
    let events = watcher(api, watcher::Config::default()).filter_map(move |event| async move {
        let value = |object: DynamicObject| {
            let mut value = serde_json::to_value(object).unwrap();
            // Lists do not say it of each object.
            value["kind"] = json!(if pod { "Pod" } else { "" });
            value
        };
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => Some(Change::Seen(value(object))),
            Ok(watcher::Event::Delete(object)) => Some(Change::Gone(value(object))),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                None
            }
        }
    });
    events.boxed()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// Pods and workloads by uid.
#[derive(Default)]
struct Known {
    pods: HashMap<String, Value>,
    workloads: HashMap<String, Value>,
}

impl Surroundings for Known {
    fn object(&self, uid: &str) -> Option<Value> {
        self.workloads.get(uid).cloned()
    }

    fn failed_pods_of(&self, uid: &str) -> u64 {
        let owned = |pod: &&Value| {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let failed = self.pods.values().filter(|pod| pod["status"]["phase"] == "Failed").filter(owned);
        failed.count().try_into().unwrap_or(u64::MAX)
    }
}

/// A write that has ended: of which Pod, what the Pod is after it, and what the kubelet is told.
struct Done {
    uid: String,
    outcome: Result<Option<Value>, kube::Error>,
    written: Option<Written>,
}

struct Player {
    client: kube::Client,
    kubelet: Kubelet,
    known: Known,
    /// When to look at a Pod next.
    due: HashMap<String, Instant>,
    /// Pods that are being written.
    busy: HashSet<String>,
    tell: mpsc::UnboundedSender<Done>,
}

impl Player {
    fn take(&mut self, change: Change) {
        match change {
            Change::Seen(object) if object["kind"] == "Pod" => self.see(object),
            Change::Seen(object) => {
                let (uid, annotations) = (uid(&object), object["metadata"]["annotations"].clone());
                let old = self.known.workloads.insert(uid, object);
                // Its Pods may be meant to do something else now.
                if old.is_some_and(|old| old["metadata"]["annotations"] != annotations) {
                    let now = Instant::now();
                    self.due.extend(self.known.pods.keys().map(|uid| (uid.clone(), now)));
                }
            }
            Change::Gone(object) => {
                let uid = uid(&object);
                self.known.workloads.remove(&uid);
                if self.known.pods.remove(&uid).is_some() {
                    self.due.remove(&uid);
                    self.kubelet.forget(&uid);
                }
            }
        }
    }

    fn see(&mut self, pod: Value) {
        let uid = uid(&pod);
        let older = self.known.pods.get(&uid).is_some_and(|known| revision(known) > revision(&pod));
        if !older {
            self.due.insert(uid.clone(), Instant::now());
            self.known.pods.insert(uid, pod);
        }
    }

    fn finish(&mut self, done: Done) {
        match done.outcome {
            Ok(after) => {
                if let Some(written) = done.written {
                    self.kubelet.wrote(&done.uid, written);
                }
                if let Some(pod) = after.filter(|_| self.known.pods.contains_key(&done.uid)) {
                    self.see(pod);
                }
            }
            // Somebody was faster: what they did comes by itself.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(_) => {
                self.due.insert(done.uid.clone(), Instant::now() + AGAIN);
            }
        }
        self.busy.remove(&done.uid);
    }

    /// When a Pod is due that is not being written.
    fn next_due(&self) -> Option<Instant> {
        let due = self.due.iter().filter(|(uid, _)| !self.busy.contains(*uid));
        due.map(|(_, when)| *when).min()
    }

    /// Does what is due now.
    fn perform(&mut self) {
        let now = Instant::now();
        let ready = self.due.iter().filter(|(uid, when)| **when <= now && !self.busy.contains(*uid));
        for uid in ready.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.due.remove(&uid);
            let Some(pod) = self.known.pods.get(&uid) else { continue };
            match self.kubelet.step(pod, &self.known) {
                Step::Rest => {}
                Step::Wait(when) => {
                    self.due.insert(uid, when);
                }
                step => {
                    let (client, tell, pod) = (self.client.clone(), self.tell.clone(), pod.clone());
                    self.busy.insert(uid.clone());
                    tokio::spawn(async move {
                        let (outcome, written) = write(&client, &pod, step).await;
                        tell.send(Done { uid, outcome, written }).ok();
                    });
                }
            }
        }
    }
}

type Wrote = (Result<Option<Value>, kube::Error>, Option<Written>);

async fn write(client: &kube::Client, pod: &Value, step: Step) -> Wrote {
    let part = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/pods/{}", part("namespace"), part("name"));
    let put = async |status: Value| {
        let mut object = pod.clone();
        object["status"] = status;
        object["apiVersion"] = json!("v1");
        send(client, "PUT", &format!("{path}/status"), &object).await
    };
    match step {
        Step::Rest | Step::Wait(_) => (Ok(None), None),
        Step::Bind { node, .. } => {
            // The server notes by itself in the status that there is a node now.
            let binding = json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": part("name"), "namespace": part("namespace"), "uid": part("uid")},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            (send(client, "POST", &format!("{path}/binding"), &binding).await.map(|_| None), None)
        }
        Step::Refuse { status, warnings } => {
            let outcome = put(status).await;
            warn(client, pod, "default-scheduler", warnings, outcome.is_ok()).await;
            (outcome.map(Some), None)
        }
        Step::Show { status, warnings, written } => {
            let outcome = put(status).await;
            warn(client, pod, "kubelet", warnings, outcome.is_ok()).await;
            (outcome.map(Some), Some(written))
        }
        Step::Remove => {
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "preconditions": {"uid": part("uid")}});
            (send(client, "DELETE", &path, &options).await.map(|_| None), None)
        }
    }
}

/// Tells of what went wrong, once it is in the status.
async fn warn(
    client: &kube::Client,
    pod: &Value,
    reporter: &str,
    warnings: Vec<(&'static str, String)>,
    written: bool,
) {
    let part = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/events", part("namespace"));
    for (reason, message) in warnings.into_iter().filter(|_| written) {
        let now = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
        let mut source = json!({"component": reporter});
        if reporter == "kubelet" {
            source["host"] = json!(NODE);
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{}.", part("name")), "namespace": part("namespace")},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": part("name"), "namespace": part("namespace"),
                "uid": part("uid"), "resourceVersion": part("resourceVersion")},
            "type": "Warning", "reason": reason, "message": message, "count": 1, "firstTimestamp": now,
            "lastTimestamp": now, "source": source, "reportingComponent": reporter, "reportingInstance": "",
        });
        // Nobody waits for a warning.
        send(client, "POST", &path, &event).await.ok();
    }
}
