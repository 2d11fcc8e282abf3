//! The kubelet that is none: Pods get a node, become ready after a delay, succeed, fail or hang as their annotations say,
//! and end when they are deleted.
//!
//! What a Pod does next follows from what its status shows and from how long it has shown it ([`next`]); how a state
//! looks in the status is the business of [`super::kubelet`]. [`Kubelet`] decides and writes nothing, so that the Pods of
//! another API server can be played in the same way.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Clocks, Context, NODE, Next, Pace,
    behaviour::{self, Behaviour, Run, Surroundings},
    controller_of, is_terminating,
    kubelet::{self, Shown},
    make_condition, seconds_of,
    work::{Item, Queue, Role},
};
use crate::{
    json::{self, int, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::Change,
};

pub(super) const PODS: &str = "/pods";
pub(super) const NODES: &str = "/nodes";

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    if &*change.table == PODS {
        if change.deleted {
            context.kubelet.forget(change.new.uid());
        } else {
            queue.push(Item::of(Role::Pod, change));
        }
        return;
    }
    if &*change.table == NODES {
        // It may take Pods now that it did not take before.
        for pod in context.registry.store.list(PODS, None).0 {
            let part = |field: &str| text(&pod.value, &["metadata", field]).to_owned();
            if text(&pod.value, &["spec", "nodeName"]).is_empty() {
                queue.push(Item { role: Role::Pod, table: PODS.into(), key: (part("namespace"), part("name")) });
            }
        }
        return;
    }
    // A workload whose knobs changed: its Pods look again.
    let Some(old) = &change.old else { return };
    if behaviour::knobs(&old.value) == behaviour::knobs(&change.new.value) {
        return;
    }
    let store = &context.registry.store;
    for ((table, key), dependent) in store.dependents(change.new.uid()) {
        for ((table, key), _) in store.dependents(dependent.uid()) {
            if &*table == PODS {
                queue.push(Item { role: Role::Pod, table, key });
            }
        }
        if &*table == PODS {
            queue.push(Item { role: Role::Pod, table, key });
        }
    }
}

/// Whether the containers of a Pod are meant to end.
fn is_to_end(pod: &Value) -> bool {
    !matches!(text(pod, &["spec", "restartPolicy"]), "" | "Always")
}

fn is_of_job(pod: &Value) -> bool {
    controller_of(pod).is_some_and(|owner| text(owner, &["kind"]) == "Job")
}

pub(super) fn pod(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let pod = &stored.value;
    let warn = |reporter: &str, warnings: Vec<(&'static str, String)>| {
        warnings.into_iter().try_for_each(|(reason, message)| context.warn(pod, reporter, reason, &message))
    };
    match context.kubelet.step(pod, context) {
        Step::Rest => {}
        Step::Wait(due) => return Ok(Next::At(due)),
        Step::Bind { node, status } => {
            context.change(&stored, "binding", &|pod| {
                set(pod, &["spec", "nodeName"], json!(node));
                set(pod, &["status"], status.clone());
                true
            })?;
            let part = |field: &str| text(pod, &["metadata", field]);
            let message = format!("Successfully assigned {}/{} to {node}", part("namespace"), part("name"));
            context.note(pod, "default-scheduler", "Scheduled", &message)?;
        }
        Step::Refuse { status, warnings } => {
            context.set_status(&stored, &status)?;
            warn("default-scheduler", warnings)?;
        }
        Step::Show { status, warnings, written } => {
            context.set_status(&stored, &status)?;
            for (reason, message) in kubelet::starts(pod, &status) {
                context.note(pod, "kubelet", reason, &message)?;
            }
            warn("kubelet", warnings)?;
            context.kubelet.wrote(stored.uid(), written);
        }
        Step::Remove => {
            for container in list(pod, &["spec", "containers"]) {
                let message = format!("Stopping container {}", text(container, &["name"]));
                context.note(pod, "kubelet", "Killing", &message)?;
            }
            context.delete(&stored, DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() })?
        }
    }
    // A write brings the item back.
    Ok(Next::Done)
}

/// What is to be done about a Pod.
#[derive(Debug)]
pub enum Step {
    /// Nothing, until it changes.
    Rest,
    /// Nothing before this time.
    Wait(Instant),
    /// It gets a node, and its status becomes this.
    Bind {
        /// The name of the node.
        node: &'static str,
        /// The whole status.
        status: Value,
    },
    /// No node has room for it: its status becomes this, and a scheduler warns.
    Refuse {
        /// The whole status.
        status: Value,
        /// Reasons and messages of Events.
        warnings: Vec<(&'static str, String)>,
    },
    /// Its status becomes this; [`Kubelet::wrote`] is to be told when it has.
    Show {
        /// The whole status.
        status: Value,
        /// Reasons and messages of Events.
        warnings: Vec<(&'static str, String)>,
        /// What [`Kubelet::wrote`] is told.
        written: Written,
    },
    /// Its containers have stopped: it is deleted without grace.
    Remove,
}

/// What a Pod shows once its status is written.
#[derive(Debug, Clone, Copy)]
pub struct Written(Shown);

/// Says what Pods do, as their annotations have it. It remembers how far each has come, and writes nothing.
#[derive(Debug)]
pub struct Kubelet {
    pace: Pace,
    /// Where Pods (by uid) stand. An entry goes with its Pod.
    pods: Mutex<HashMap<String, Progress>>,
    /// When Pods began to stop.
    clocks: Clocks,
    next_address: AtomicU32,
}

impl Kubelet {
    /// A kubelet of this pace, which gives addresses from the `first` on.
    pub fn new(pace: Pace, first: u32) -> Self {
        Self { pace, pods: Mutex::default(), clocks: Clocks::default(), next_address: AtomicU32::new(first) }
    }

    /// What is to be done about a Pod now.
    pub fn step(&self, pod: &Value, around: &dyn Surroundings) -> Step {
        let uid = text(pod, &["metadata", "uid"]);
        if is_terminating(pod) {
            return self.end(pod, uid, around);
        }
        let behaviour = behaviour::behaviour(around, pod);
        if text(pod, &["spec", "nodeName"]).is_empty() {
            return schedule(pod, &behaviour, || around.refusal(pod));
        }
        if matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
            return Step::Rest;
        }
        let run = self.run_now(pod, &behaviour, around);
        let times = Times::of(self, pod, &behaviour);
        let Some((wait, next)) = next(pod, &behaviour, run, kubelet::shown(pod), &times) else { return Step::Rest };
        let due = self.since(uid) + wait;
        if Instant::now() < due {
            return Step::Wait(due);
        }
        let status = kubelet::status(pod, &behaviour, next, || self.address());
        Step::Show { status, warnings: kubelet::warnings(pod, &behaviour, next), written: Written(next) }
    }

    /// Notes that the status of a Pod is written.
    pub fn wrote(&self, uid: &str, Written(shown): Written) {
        if matches!(shown, Shown::Succeeded | Shown::Failed) {
            self.forget(uid);
            return;
        }
        let mut pods = self.pods.lock();
        let progress = pods.entry(uid.to_owned()).or_default();
        progress.since = Instant::now();
        progress.pulls = progress.pulls.saturating_add(u32::from(shown == Shown::PullError));
    }

    /// Forgets a Pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.pods.lock().remove(uid);
        self.clocks.drop(uid);
    }

    fn end(&self, pod: &Value, uid: &str, around: &dyn Surroundings) -> Step {
        self.pods.lock().remove(uid);
        let wait = behaviour::stop_after(around, pod);
        if !wait.is_zero() {
            let stopped = self.clocks.began(uid, "stop", "") + wait;
            if Instant::now() < stopped {
                return Step::Wait(stopped);
            }
        }
        let grace = int(pod, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
        if grace > 0 { Step::Remove } else { Step::Rest }
    }

    fn since(&self, uid: &str) -> Instant {
        self.pods.lock().entry(uid.to_owned()).or_default().since
    }

    /// How often the Pod has tried and failed.
    fn tries(&self, pod: &Value, run: Run) -> u32 {
        if run == Run::ImagePull {
            return self.pods.lock().get(text(pod, &["metadata", "uid"])).map_or(0, |progress| progress.pulls);
        }
        kubelet::exits(pod)
    }

    /// What the Pod does now: it does well once it has failed as often as it was to.
    fn run_now(&self, pod: &Value, behaviour: &Behaviour, around: &dyn Surroundings) -> Run {
        let Some(failures) = behaviour.failures else { return behaviour.run };
        // Pods of the same Job that have failed count, too.
        let owner = controller_of(pod).filter(|_| is_of_job(pod));
        let before = owner.map_or(0, |owner| around.failed_pods_of(text(owner, &["uid"])));
        let so_far = u64::from(self.tries(pod, behaviour.run)).saturating_add(before);
        if so_far >= failures { Run::Succeed } else { behaviour.run }
    }

    /// An address for a Pod. They come round after 65 000, which nothing here minds.
    fn address(&self) -> String {
        let n = self.next_address.fetch_add(1, Ordering::Relaxed) % 65_000;
        std::net::Ipv4Addr::from(0x0af4_0002 + n).to_string()
    }
}

fn schedule(pod: &Value, behaviour: &Behaviour, refusal: impl FnOnce() -> Option<String>) -> Step {
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        return Step::Rest;
    }
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let refusal = if behaviour.run == Run::Unschedulable {
        Some(("1 Insufficient cpu".to_owned(), "No preemption victims found for incoming pod"))
    } else {
        refusal().map(|why| (why, "Preemption is not helpful for scheduling"))
    };
    if let Some((why, preemption)) = refusal {
        let why = format!("0/1 nodes are available: {why}. preemption: 0/1 nodes are available: 1 {preemption}.");
        let scheduled = make_condition(pod, "PodScheduled", false, "Unschedulable", &why);
        set(&mut status, &["conditions"], json!([scheduled]));
        if pod.get("status").is_some_and(|old| json::same(old, &status)) {
            return Step::Rest;
        }
        return Step::Refuse { status, warnings: vec![("FailedScheduling", why)] };
    }
    set(&mut status, &["conditions"], json!([make_condition(pod, "PodScheduled", true, "", "")]));
    set(&mut status, &["startTime"], json!(json::now()));
    Step::Bind { node: NODE, status }
}

/// The waits that matter to one Pod.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// From being created to running, and between the small steps of a container that fails.
    start: Duration,
    /// From running to what is to happen.
    work: Duration,
    /// Before the container is started again, or the image fetched again.
    back_off: Duration,
}

impl Times {
    fn of(kubelet: &Kubelet, pod: &Value, behaviour: &Behaviour) -> Self {
        let start = kubelet.pace.ready_delay;
        let tries = kubelet.tries(pod, behaviour.run).saturating_sub(1);
        // A Job counts failures; how long it takes for them teaches nothing here.
        let wait = || seconds_of(kubelet.pace.second, kubelet::back_off_seconds(tries));
        let back_off = if is_of_job(pod) { start } else { wait().max(start) };
        Self { start, work: behaviour.after.saturating_sub(start), back_off }
    }
}

/// What a Pod shows next, and how long after it began to show what it shows now.
fn next(
    pod: &Value,
    behaviour: &Behaviour,
    run: Run,
    shown: Option<Shown>,
    times: &Times,
) -> Option<(Duration, Shown)> {
    let to_end = is_to_end(pod);
    let of_init = kubelet::is_init(pod, behaviour.container.as_deref());
    // While the containers run and nothing has happened yet.
    let working = if to_end && !of_init { Shown::Working } else { Shown::Unready };
    let outcome = match run {
        Run::Pending | Run::Unschedulable => Shown::Creating,
        Run::ImagePull => Shown::PullError,
        Run::Hang => working,
        Run::Succeed if to_end => Shown::Succeeded,
        Run::Succeed => Shown::Working,
        Run::Fail if text(pod, &["spec", "restartPolicy"]) == "Never" => Shown::Failed,
        Run::Fail => Shown::Exited,
    };
    // What takes no time is not seen on the way: a real kubelet passes through the same states faster than one looks.
    let at_once = times.work.is_zero() || matches!(outcome, Shown::Creating | Shown::PullError);
    let on_the_way = if at_once { outcome } else { working };
    match shown {
        Some(Shown::Exited) => Some((times.start, Shown::BackOff)),
        // Nobody waits for a container whose annotation has just been taken away.
        Some(Shown::BackOff | Shown::PullBackOff) if behaviour.run == Run::Succeed => Some((times.start, on_the_way)),
        Some(Shown::BackOff | Shown::PullBackOff) => Some((times.back_off, on_the_way)),
        Some(Shown::PullError) => Some((times.start, Shown::PullBackOff)),
        Some(shown) if shown == outcome => None,
        Some(Shown::Working | Shown::Unready) => Some((times.work, outcome)),
        _ if outcome == Shown::Creating => Some((Duration::ZERO, outcome)),
        _ => Some((times.start, on_the_way)),
    }
}

/// Where a Pod stands in its course.
#[derive(Debug)]
pub(super) struct Progress {
    /// When it began to show what it shows.
    since: Instant,
    /// How often its image could not be fetched.
    pulls: u32,
}

impl Default for Progress {
    fn default() -> Self {
        Self { since: Instant::now(), pulls: 0 }
    }
}
