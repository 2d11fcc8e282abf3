//! The kubelet that is none: Pods get a node, become ready after a delay, succeed, fail or hang as their annotations say,
//! and end when they are deleted.
//!
//! What a Pod does next follows from what its status shows and from how long it has shown it ([`next`]); how a state
//! looks in the status is the business of [`super::kubelet`].

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, NODE, Next,
    behaviour::{Behaviour, Run, knob},
    controller_of, is_terminating,
    kubelet::{self, Shown},
    make_condition,
    work::{Item, Queue, Role},
};
use crate::{
    json::{self, at, int, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::{Change, Stored},
};

pub(super) const PODS: &str = "/pods";

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    if &*change.table == PODS {
        if change.deleted {
            context.forget(change.new.uid());
        } else {
            queue.push(Item::of(Role::Pod, change));
        }
        return;
    }
    // A workload whose knobs changed: its Pods look again.
    let knobs = |object: &Value| {
        let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
        annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(knob::PREFIX))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    let Some(old) = &change.old else { return };
    if knobs(&old.value) == knobs(&change.new.value) {
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
    if is_terminating(pod) {
        return end(context, &stored);
    }
    let behaviour = context.behaviour(pod);
    if text(pod, &["spec", "nodeName"]).is_empty() {
        return schedule(context, &stored, &behaviour);
    }
    if matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        return Ok(Next::Done);
    }
    let run = context.run_now(pod, &behaviour);
    let times = Times::of(context, pod, &behaviour);
    let Some((wait, next)) = next(pod, &behaviour, run, kubelet::shown(pod), &times) else { return Ok(Next::Done) };
    let due = context.since(stored.uid()) + wait;
    if Instant::now() < due {
        return Ok(Next::At(due));
    }
    let status = kubelet::status(pod, &behaviour, next, || context.pod_address());
    context.set_status(&stored, &status)?;
    for (reason, message) in kubelet::warnings(pod, &behaviour, next) {
        context.warn(pod, "kubelet", reason, &message)?;
    }
    if matches!(next, Shown::Succeeded | Shown::Failed) {
        context.forget(stored.uid());
    } else {
        context.begin(stored.uid(), next);
    }
    // The write brings the item back.
    Ok(Next::Done)
}

fn schedule(context: &Context, stored: &Stored, behaviour: &Behaviour) -> Result<Next, ApiError> {
    if !list(&stored.value, &["spec", "schedulingGates"]).is_empty() {
        return Ok(Next::Done);
    }
    if behaviour.run == Run::Unschedulable {
        let mut status = stored.value.get("status").cloned().unwrap_or_else(|| json!({}));
        let why = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
                   victims found for incoming pod.";
        let scheduled = make_condition(&stored.value, "PodScheduled", false, "Unschedulable", why);
        set(&mut status, &["conditions"], json!([scheduled]));
        if stored.value.get("status").is_none_or(|old| !json::same(old, &status)) {
            context.set_status(stored, &status)?;
            context.warn(&stored.value, "default-scheduler", "FailedScheduling", why)?;
        }
        return Ok(Next::Done);
    }
    context.change(stored, "binding", &|pod| {
        set(pod, &["spec", "nodeName"], json!(NODE));
        let scheduled = make_condition(pod, "PodScheduled", true, "", "");
        set(pod, &["status", "conditions"], json!([scheduled]));
        set(pod, &["status", "startTime"], json!(json::now()));
        true
    })?;
    // The write brings the item back.
    Ok(Next::Done)
}

fn end(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    context.forget(stored.uid());
    let stopped = context.stopped_at(&stored.value);
    if Instant::now() < stopped {
        return Ok(Next::At(stopped));
    }
    let grace = int(&stored.value, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or_default();
    if grace > 0 {
        context.delete(stored, DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() })?;
    }
    Ok(Next::Done)
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
    fn of(context: &Context, pod: &Value, behaviour: &Behaviour) -> Self {
        let start = context.ready_delay;
        let tries = context.tries(pod, behaviour.run).saturating_sub(1);
        // A Job counts failures; how long it takes for them teaches nothing here.
        let back_off =
            if is_of_job(pod) { start } else { context.seconds(kubelet::back_off_seconds(tries)).max(start) };
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

impl Context {
    fn since(&self, uid: &str) -> Instant {
        self.pods.lock().entry(uid.to_owned()).or_default().since
    }

    /// Notes that a Pod now shows this.
    fn begin(&self, uid: &str, shown: Shown) {
        let mut pods = self.pods.lock();
        let progress = pods.entry(uid.to_owned()).or_default();
        progress.since = Instant::now();
        progress.pulls = progress.pulls.saturating_add(u32::from(shown == Shown::PullError));
    }

    fn forget(&self, uid: &str) {
        self.pods.lock().remove(uid);
    }

    /// How often the Pod has tried and failed.
    fn tries(&self, pod: &Value, run: Run) -> u32 {
        if run == Run::ImagePull {
            return self.pods.lock().get(text(pod, &["metadata", "uid"])).map_or(0, |progress| progress.pulls);
        }
        kubelet::exits(pod)
    }

    /// What the Pod does now: it does well once it has failed as often as it was to.
    fn run_now(&self, pod: &Value, behaviour: &Behaviour) -> Run {
        let Some(failures) = behaviour.failures else { return behaviour.run };
        let so_far = u64::from(self.tries(pod, behaviour.run)) + self.failed_before(pod);
        if so_far >= failures { Run::Succeed } else { behaviour.run }
    }

    /// How many Pods of the same Job have failed.
    fn failed_before(&self, pod: &Value) -> u64 {
        let Some(owner) = controller_of(pod).filter(|_| is_of_job(pod)) else { return 0 };
        let siblings = self.registry.store.dependents(text(owner, &["uid"]));
        let failed = siblings
            .iter()
            .filter(|((table, _), sibling)| &**table == PODS && text(&sibling.value, &["status", "phase"]) == "Failed");
        u64::try_from(failed.count()).unwrap_or(u64::MAX)
    }
}
