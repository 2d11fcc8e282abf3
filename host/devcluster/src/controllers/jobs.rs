//! Jobs: Pods that are to end, and what becomes of the Job when they do.
//!
//! As the real controller, it first says what will be (`SuccessCriteriaMet`, `FailureTarget`), ends the Pods that are left,
//! and calls the Job `Complete` or `Failed` when none is left.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, condition, controller_of, is_terminating, is_true, kubelet, make_condition,
    pods::PODS,
    replicas::{Census, JOBS, count, create_pod, delete_pod, pod_of},
    work::Item,
};
use crate::{
    json::{self, at, int, list, remove, set, text},
    registry::{DeleteOptions, Propagation, Registry},
    status::ApiError,
    store::{Change, Stored},
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Changes read at once.
const CHANGES_MAX: usize = 256;
const REPORTER: &str = "job-controller";
const START: &str = "start";
const FINISH: &str = "finish";

/// Pods of Jobs that are gone, so that nobody can count them any more. (A real cluster holds them back with a finalizer
/// until they are counted.)
#[derive(Debug)]
pub(super) struct Losses {
    /// Changes up to this revision have been looked at.
    cursor: u64,
    /// By the uid of the Job; an entry goes with its Job.
    of: HashMap<String, Lost>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Lost {
    succeeded: i64,
    failed: i64,
}

impl Losses {
    pub(super) fn since(revision: u64) -> Self {
        Self { cursor: revision, of: HashMap::new() }
    }

    /// Looks at every change up to now: a Pod that cannot be listed any more is either seen here or was never there.
    fn catch_up(&mut self, registry: &Registry) {
        loop {
            let Ok((changes, complete)) = registry.store.all_changes(self.cursor, CHANGES_MAX) else {
                // The history has moved on; what the status says already is kept.
                self.cursor = registry.store.revision();
                return;
            };
            for change in &changes {
                self.observe(registry, change);
            }
            self.cursor = complete;
            if changes.len() < CHANGES_MAX {
                return;
            }
        }
    }

    fn observe(&mut self, registry: &Registry, change: &Change) {
        if change.deleted && &*change.table == JOBS {
            self.of.remove(change.new.uid());
        }
        let pod = &change.new.value;
        if !change.deleted || &*change.table != PODS {
            return;
        }
        let Some(owner) = controller_of(pod).map(|owner| text(owner, &["uid"])) else { return };
        let Some(((table, _), job)) = registry.store.by_uid(owner) else { return };
        // What is ended because the Job is suspended is no failure.
        if &*table != JOBS || is_suspended(&job.value) {
            return;
        }
        let lost = self.of.entry(owner.to_owned()).or_default();
        if text(pod, &["status", "phase"]) == "Succeeded" { lost.succeeded += 1 } else { lost.failed += 1 }
    }
}

fn is_suspended(job: &Value) -> bool {
    at(job, &["spec", "suspend"]) == Some(&Value::Bool(true))
}

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    good: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn new(good: bool, reason: &str, message: &str) -> Self {
        Self { good, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// What an earlier look has already announced.
    fn announced(job: &Value) -> Option<Self> {
        let of = |kind: &str, good: bool| {
            let found = condition(job, kind).filter(|c| text(c, &["status"]) == "True")?;
            Some(Self::new(good, text(found, &["reason"]), text(found, &["message"])))
        };
        of("FailureTarget", false).or_else(|| of("SuccessCriteriaMet", true))
    }

    fn conditions(&self, job: &Value, last: bool) -> Vec<Value> {
        let (first, second) = if self.good { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        let kinds = if last { &[first, second][..] } else { &[first][..] };
        let resumed = condition(job, "Suspended").cloned();
        resumed
            .into_iter()
            .chain(kinds.iter().map(|kind| make_condition(job, kind, true, &self.reason, &self.message)))
            .collect()
    }
}

/// What a look at a Job has counted.
struct Tally {
    census: Census,
    succeeded: i64,
    failed: i64,
}

impl Tally {
    fn take(context: &Context, stored: &Stored) -> Self {
        // Losses first: a Pod that goes between the two counts is in neither, and its going brings the item back. The
        // other way round it would be in both.
        let mut losses = context.losses.lock();
        losses.catch_up(&context.registry);
        let census = Census::take(context, stored);
        // What a process before this one counted and nobody can count again.
        let known = |field: &str, now: i64| (int(&stored.value, &["status", field]).unwrap_or_default() - now).max(0);
        let first = Lost { succeeded: known("succeeded", census.succeeded), failed: known("failed", census.failed) };
        let lost = *losses.of.entry(stored.uid().to_owned()).or_insert(first);
        drop(losses);
        Self { succeeded: census.succeeded + lost.succeeded, failed: census.failed + lost.failed, census }
    }

    fn write(&self, status: &mut Value, active: i64) {
        for (field, number) in [("succeeded", self.succeeded), ("failed", self.failed), ("active", active)] {
            if number > 0 {
                set(status, &[field], json!(number));
            } else {
                remove(status, &[field]);
            }
        }
        set(status, &["ready"], json!(if active > 0 { self.census.ready() } else { 0 }));
        set(status, &["terminating"], json!(self.census.terminating));
        set(status, &["uncountedTerminatedPods"], json!({}));
    }

    /// Starts of containers after their first, in Pods that still run.
    fn restarts(&self) -> i64 {
        self.census.active.iter().map(|pod| kubelet::restarts(&pod.value)).fold(0, i64::saturating_add)
    }
}

pub(super) fn job(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    if is_terminating(object) {
        return Ok(Next::Done);
    }
    if is_true(object, "Complete") || is_true(object, "Failed") {
        return expire(context, &stored);
    }
    let tally = Tally::take(context, &stored);
    let announced = Verdict::announced(object);
    if is_suspended(object) && announced.is_none() {
        return suspend(context, &stored, &tally);
    }
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    if text(&status, &["startTime"]).is_empty() {
        set(&mut status, &["startTime"], json!(json::now()));
        context.clocks.begin_again(stored.uid(), START);
    }
    let deadline = int(object, &["spec", "activeDeadlineSeconds"]).map(|seconds| {
        context.clocks.began(stored.uid(), START, text(&status, &["startTime"])) + context.seconds(seconds)
    });
    let verdict = announced.clone().or_else(|| judge(object, &tally, deadline));
    if let Some(verdict) = verdict {
        return finish(context, &stored, status, &tally, &verdict, announced.is_some());
    }
    let active = work(context, object, &tally)?;
    tally.write(&mut status, active);
    if condition(object, "Suspended").is_some() {
        let resumed = make_condition(object, "Suspended", false, "JobResumed", "Job resumed");
        set(&mut status, &["conditions"], json!([resumed]));
        if is_true(object, "Suspended") {
            context.note(object, REPORTER, "Resumed", "Job resumed")?;
        }
    }
    context.set_status(&stored, &status)?;
    Ok(deadline.map_or(Next::Done, Next::At))
}

/// Whether the Job is over.
fn judge(object: &Value, tally: &Tally, deadline: Option<Instant>) -> Option<Verdict> {
    let limit = int(object, &["spec", "backoffLimit"]).unwrap_or(6);
    let restarts = tally.restarts();
    let on_failure = text(object, &["spec", "template", "spec", "restartPolicy"]) == "OnFailure";
    // A limit of nothing allows no restart; any other limit is reached by as many.
    let restarted = on_failure && restarts > 0 && restarts >= limit;
    if tally.failed > limit || restarted {
        return Some(Verdict::new(false, "BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return Some(Verdict::new(false, "DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    let done = match int(object, &["spec", "completions"]) {
        Some(completions) => tally.succeeded >= completions,
        // Without a number of completions one success ends the Job when the other Pods have ended too.
        None => tally.succeeded > 0 && tally.census.active.is_empty(),
    };
    done.then(|| Verdict::new(true, "CompletionsReached", "Reached expected number of succeeded pods"))
}

/// One step to the end: the announcement, the end of what still runs, the last word.
fn finish(
    context: &Context,
    stored: &Stored,
    mut status: Value,
    tally: &Tally,
    verdict: &Verdict,
    announced: bool,
) -> Result<Next, ApiError> {
    let active = count(tally.census.active.len());
    if !announced {
        tally.write(&mut status, active);
        set(&mut status, &["conditions"], json!(verdict.conditions(&stored.value, false)));
        context.set_status(stored, &status)?;
        if !verdict.good {
            context.warn(&stored.value, REPORTER, &verdict.reason, &verdict.message)?;
        }
        // The write brings the item back.
        return Ok(Next::Done);
    }
    for pod in &tally.census.active {
        delete_pod(context, &stored.value, REPORTER, pod)?;
    }
    let last = active == 0 && tally.census.terminating == 0;
    tally.write(&mut status, 0);
    set(&mut status, &["conditions"], json!(verdict.conditions(&stored.value, last)));
    if last {
        if verdict.good {
            set(&mut status, &["completionTime"], json!(json::now()));
            context.note(&stored.value, REPORTER, "Completed", "Job completed")?;
        }
        context.clocks.begin_again(stored.uid(), FINISH);
    }
    context.set_status(stored, &status)?;
    // Each Pod that goes brings the item back.
    Ok(Next::Done)
}

fn suspend(context: &Context, stored: &Stored, tally: &Tally) -> Result<Next, ApiError> {
    for pod in &tally.census.active {
        delete_pod(context, &stored.value, REPORTER, pod)?;
    }
    let mut status = stored.value.get("status").cloned().unwrap_or_else(|| json!({}));
    remove(&mut status, &["startTime"]);
    tally.write(&mut status, 0);
    let suspended = make_condition(&stored.value, "Suspended", true, "JobSuspended", "Job suspended");
    set(&mut status, &["conditions"], json!([suspended]));
    if !is_true(&stored.value, "Suspended") {
        context.note(&stored.value, REPORTER, "Suspended", "Job suspended")?;
    }
    context.set_status(stored, &status)?;
    Ok(Next::Done)
}

fn index_of(pod: &Value) -> Option<i64> {
    text(pod, &["metadata", "annotations", INDEX]).parse().ok()
}

/// Makes the Pods that are missing and ends those that are too many; returns how many there are then.
fn work(context: &Context, object: &Value, tally: &Tally) -> Result<i64, ApiError> {
    let parallelism = int(object, &["spec", "parallelism"]).unwrap_or(1).max(0);
    let wanted = match int(object, &["spec", "completions"]) {
        Some(completions) => parallelism.min(completions - tally.succeeded).max(0),
        None if tally.succeeded > 0 => count(tally.census.active.len()).min(parallelism),
        None => parallelism,
    };
    let active = count(tally.census.active.len());
    let surplus = usize::try_from(active - wanted).unwrap_or_default();
    for pod in tally.census.active.iter().take(surplus) {
        delete_pod(context, object, REPORTER, pod)?;
    }
    let name = text(object, &["metadata", "name"]);
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    let indexed = text(object, &["spec", "completionMode"]) == "Indexed";
    let mut taken = if indexed { taken_indexes(context, object) } else { BTreeSet::new() };
    for _ in active..wanted {
        let mut pod = pod_of(object, &template);
        set(&mut pod, &["metadata", "generateName"], json!(format!("{name}-")));
        if indexed {
            // One of the first n + 1 numbers is free when n are taken.
            let index = (0..).find(|n| !taken.contains(n)).unwrap_or_default();
            taken.insert(index);
            set(&mut pod, &["metadata", "generateName"], json!(format!("{name}-{index}-")));
            for place in ["annotations", "labels"] {
                set(&mut pod, &["metadata", place, INDEX], json!(index.to_string()));
            }
        }
        create_pod(context, object, REPORTER, pod)?;
    }
    Ok(wanted)
}

/// The indexes that are done or being done.
fn taken_indexes(context: &Context, object: &Value) -> BTreeSet<i64> {
    let pods = context.registry.store.dependents(text(object, &["metadata", "uid"]));
    let counts = pods.iter().filter(|((table, _), pod)| {
        &**table == PODS && text(&pod.value, &["status", "phase"]) != "Failed" && !is_terminating(&pod.value)
    });
    counts.filter_map(|(_, pod)| index_of(&pod.value)).collect()
}

/// A finished Job goes after its time to live.
fn expire(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    let object = &stored.value;
    let Some(ttl) = int(object, &["spec", "ttlSecondsAfterFinished"]) else { return Ok(Next::Done) };
    let finished = list(object, &["status", "conditions"])
        .iter()
        .find(|c| matches!(text(c, &["type"]), "Complete" | "Failed") && text(c, &["status"]) == "True");
    let Some(finished) = finished else { return Ok(Next::Done) };
    let since = context.clocks.began(stored.uid(), FINISH, text(finished, &["lastTransitionTime"]));
    let due = since + context.seconds(ttl);
    if Instant::now() < due {
        return Ok(Next::At(due));
    }
    let propagation = Some(Propagation::Foreground);
    context.delete(stored, DeleteOptions { propagation, ..DeleteOptions::default() })?;
    Ok(Next::Done)
}
