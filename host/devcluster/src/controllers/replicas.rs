//! Deployments and ReplicaSets: the right number of Pods of the right template.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, condition, controller_of, is_terminating, is_true, make_condition, make_condition_as,
    pods::PODS,
    reference_to, short_hash,
    work::{Item, Queue, Role},
};
use crate::{
    json::{self, at, int, list, remove, same, set, text},
    registry::DeleteOptions,
    selector::label_selector_matches,
    status::ApiError,
    store::{Change, Stored},
};

pub(super) const DEPLOYMENTS: &str = "apps/deployments";
pub(super) const REPLICA_SETS: &str = "apps/replicasets";
pub(super) const STATEFUL_SETS: &str = "apps/statefulsets";
pub(super) const DAEMON_SETS: &str = "apps/daemonsets";
pub(super) const JOBS: &str = "batch/jobs";
const REPLICATION_CONTROLLERS: &str = "/replicationcontrollers";
const HASH_LABEL: &str = "pod-template-hash";
/// The clock of a Deployment's progress.
const PROGRESS: &str = "progress";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Who tells of what happens to a ReplicaSet, and to a Deployment.
const REPORTER: &str = "replicaset-controller";
const DEPLOYER: &str = "deployment-controller";

fn role_of(table: &str) -> Option<Role> {
    match table {
        DEPLOYMENTS => Some(Role::Deployment),
        REPLICA_SETS | REPLICATION_CONTROLLERS => Some(Role::ReplicaSet),
        STATEFUL_SETS => Some(Role::StatefulSet),
        DAEMON_SETS => Some(Role::DaemonSet),
        JOBS => Some(Role::Job),
        _ => None,
    }
}

/// The tables whose objects may control those of a table.
fn controllers_of(table: &str) -> &'static [&'static str] {
    match table {
        PODS => &[REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS],
        REPLICA_SETS => &[DEPLOYMENTS],
        _ => &[],
    }
}

fn is_orphan(object: &Value) -> bool {
    controller_of(object).is_none() && !is_terminating(object)
}

fn enqueue_adoption(context: &Context, change: &Change, queue: &mut Queue) {
    if change.deleted {
        return;
    }
    if !controllers_of(&change.table).is_empty() && is_orphan(&change.new.value) {
        queue.push(Item::of(Role::Adopt, change));
    }
    if change.old.is_some() {
        return;
    }
    // A new controller: orphans of its namespace are looked at before it counts what it has.
    for table in [PODS, REPLICA_SETS].into_iter().filter(|table| controllers_of(table).contains(&&*change.table)) {
        for stored in context.registry.store.list(table, Some(&change.key.0)).0 {
            if is_orphan(&stored.value) {
                let key = (change.key.0.clone(), text(&stored.value, &["metadata", "name"]).to_owned());
                queue.push(Item { role: Role::Adopt, table: table.into(), key });
            }
        }
    }
}

/// Gives an orphan to the controller whose selector selects it.
pub(super) fn adopt(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item).filter(|stored| is_orphan(&stored.value)) else { return Ok(Next::Done) };
    for table in controllers_of(&item.table) {
        let candidates = context.registry.store.list(table, Some(&item.key.0)).0;
        let selects = |owner: &&Arc<Stored>| {
            let selector = at(&owner.value, &["spec", "selector"]);
            !is_terminating(&owner.value) && selector.is_some_and(|s| label_selector_matches(s, &stored.value))
        };
        if let Some(owner) = candidates.iter().find(selects) {
            context.change(&stored, "", &|object| {
                let mut owners = list(object, &["metadata", "ownerReferences"]).to_vec();
                owners.push(reference_to(&owner.value));
                set(object, &["metadata", "ownerReferences"], Value::Array(owners));
                true
            })?;
            return Ok(Next::Done);
        }
    }
    Ok(Next::Done)
}

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    enqueue_adoption(context, change, queue);
    if let Some(role) = role_of(&change.table).filter(|_| !change.deleted) {
        queue.push(Item::of(role, change));
    }
    // The controller of what changed counts again.
    if matches!(&*change.table, PODS | REPLICA_SETS | "/persistentvolumeclaims")
        && let Some(owner) = controller_of(&change.new.value)
        && let Some(((table, key), _)) = context.registry.store.by_uid(text(owner, &["uid"]))
        && let Some(role) = role_of(&table)
    {
        queue.push(Item { role, table, key });
    }
}

/// What a controller sees of its Pods.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Neither ended nor being deleted.
    pub(super) active: Vec<Arc<Stored>>,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    pub(super) terminating: i64,
}

impl Census {
    pub(super) fn take(context: &Context, owner: &Stored) -> Self {
        let mut census = Self::default();
        for pod in context.controlled(owner, PODS) {
            match text(&pod.value, &["status", "phase"]) {
                "Succeeded" => census.succeeded += 1,
                "Failed" => census.failed += 1,
                _ if is_terminating(&pod.value) => census.terminating += 1,
                _ => census.active.push(pod),
            }
        }
        census
    }

    pub(super) fn ready(&self) -> i64 {
        count(self.active.iter().filter(|pod| is_true(&pod.value, "Ready")).count())
    }
}

impl Census {
    /// How many Pods have been ready for `minReadySeconds`, and when there may be more. Times in conditions are whole
    /// seconds, so that it may be up to a second early.
    pub(super) fn available(&self, context: &Context, owner: &Value) -> (i64, Option<Instant>) {
        let seconds = int(owner, &["spec", "minReadySeconds"]).unwrap_or_default();
        if seconds <= 0 {
            return (self.ready(), None);
        }
        let wait = context.seconds(seconds);
        let (mut available, mut next) = (0, None::<Instant>);
        for pod in self.active.iter().filter(|pod| is_true(&pod.value, "Ready")) {
            let since = condition(&pod.value, "Ready").map(|it| text(it, &["lastTransitionTime"])).unwrap_or_default();
            let since = since.parse::<jiff::Timestamp>().unwrap_or(jiff::Timestamp::UNIX_EPOCH);
            let age = Duration::try_from(jiff::Timestamp::now().duration_since(since)).unwrap_or_default();
            match wait.checked_sub(age).filter(|left| !left.is_zero()) {
                None => available += 1,
                Some(left) => {
                    let due = Instant::now() + left;
                    next = Some(next.map_or(due, |known| known.min(due)));
                }
            }
        }
        (available, next)
    }
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A Pod of a controller's template.
pub(super) fn pod_of(owner: &Value, template: &Value) -> Value {
    let mut pod = json!({"metadata": template.get("metadata").cloned().unwrap_or_else(|| json!({}))});
    for field in ["name", "namespace", "creationTimestamp", "uid", "resourceVersion"] {
        remove(&mut pod, &["metadata", field]);
    }
    set(&mut pod, &["spec"], template.get("spec").cloned().unwrap_or_default());
    set(&mut pod, &["metadata", "ownerReferences"], json!([reference_to(owner)]));
    pod
}

/// Makes a Pod for a controller, which tells of it.
pub(super) fn create_pod(context: &Context, owner: &Value, reporter: &str, pod: Value) -> Result<(), ApiError> {
    let made = match context.create("v1", "Pod", text(owner, &["metadata", "namespace"]), pod) {
        Ok(made) => made,
        Err(error) => {
            context.warn(owner, reporter, "FailedCreate", &format!("Error creating: {error}"))?;
            return Err(error);
        }
    };
    let message = format!("Created pod: {}", text(&made.value, &["metadata", "name"]));
    context.note(owner, reporter, "SuccessfulCreate", &message)
}

/// Deletes a Pod of a controller, which tells of it.
pub(super) fn delete_pod(context: &Context, owner: &Value, reporter: &str, pod: &Stored) -> Result<(), ApiError> {
    context.delete(pod, DeleteOptions::default())?;
    let message = format!("Deleted pod: {}", text(&pod.value, &["metadata", "name"]));
    context.note(owner, reporter, "SuccessfulDelete", &message)
}

pub(super) fn replica_set(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let set_object = &stored.value;
    let census = Census::take(context, &stored);
    let wanted = int(set_object, &["spec", "replicas"]).unwrap_or(1);
    let have = count(census.active.len());
    if !is_terminating(set_object) {
        if have < wanted {
            let template = at(set_object, &["spec", "template"]).cloned().unwrap_or_default();
            for _ in have..wanted {
                let mut pod = pod_of(set_object, &template);
                let base = text(set_object, &["metadata", "name"]);
                set(&mut pod, &["metadata", "generateName"], json!(format!("{base}-")));
                create_pod(context, set_object, REPORTER, pod)?;
            }
            // The new Pods bring the item back.
            return Ok(Next::Done);
        }
        if have > wanted {
            // Those that are not ready go first.
            let mut victims = census.active.clone();
            victims.sort_by_key(|pod| is_true(&pod.value, "Ready"));
            let surplus = usize::try_from(have - wanted).unwrap_or_default();
            for pod in victims.iter().take(surplus) {
                delete_pod(context, set_object, REPORTER, pod)?;
            }
        }
    }
    let alive = have.min(wanted);
    let ready = census.ready().min(alive);
    let (available, later) = census.available(context, set_object);
    let mut status = json!({
        "replicas": alive, "observedGeneration": generation(set_object), "terminatingReplicas": census.terminating,
    });
    let counts =
        [("fullyLabeledReplicas", alive), ("readyReplicas", ready), ("availableReplicas", available.min(alive))];
    for (field, number) in counts {
        if number > 0 {
            set(&mut status, &[field], json!(number));
        }
    }
    context.set_status(&stored, &status)?;
    Ok(later.map_or(Next::Done, Next::At))
}

pub(super) fn generation(object: &Value) -> i64 {
    int(object, &["metadata", "generation"]).unwrap_or_default()
}

fn same_template(set_object: &Value, template: &Value) -> bool {
    let mut ours = at(set_object, &["spec", "template"]).cloned().unwrap_or_default();
    let mut theirs = template.clone();
    for side in [&mut ours, &mut theirs] {
        remove(side, &["metadata", "labels", HASH_LABEL]);
        remove(side, &["metadata", "creationTimestamp"]);
    }
    same(&ours, &theirs)
}

fn replicas(object: &Value, path: &[&str]) -> i64 {
    int(object, path).unwrap_or_default()
}

pub(super) fn deployment(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    if is_terminating(object) {
        return Ok(Next::Done);
    }
    let wanted = int(object, &["spec", "replicas"]).unwrap_or(1);
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    let sets = context.controlled(&stored, REPLICA_SETS);
    let revision = |set_object: &Value| {
        let text = at(set_object, &["metadata", "annotations", REVISION]).and_then(Value::as_str);
        text.and_then(|text| text.parse::<i64>().ok()).unwrap_or_default()
    };
    let newest = sets.iter().map(|s| revision(&s.value)).max().unwrap_or_default();
    let paused = at(object, &["spec", "paused"]) == Some(&Value::Bool(true));
    let Some(current) = sets.iter().find(|s| same_template(&s.value, &template)) else {
        if !paused {
            create_replica_set(context, object, &template, wanted, newest + 1)?;
        }
        return Ok(Next::Done);
    };
    let others = sets.iter().filter(|s| s.uid() != current.uid()).collect::<Vec<_>>();
    let mut number = revision(&current.value);
    let notes = notes_of(object, wanted);
    if notes.iter().any(|(key, value)| at(&current.value, &["metadata", "annotations", key]) != Some(value)) {
        context.change(current, "", &|set_object| {
            for (key, value) in &notes {
                set(set_object, &["metadata", "annotations", key], value.clone());
            }
            true
        })?;
        // The write brings the item back.
        return Ok(Next::Done);
    }
    if number < newest {
        // Rolled back to a template that was there before: it becomes the newest revision.
        number = newest + 1;
        context.change(current, "", &|set_object| {
            set(set_object, &["metadata", "annotations", REVISION], json!(number.to_string()));
            true
        })?;
    }
    if text(object, &["metadata", "annotations", REVISION]) != number.to_string() {
        // Through the status, so that it is no new generation.
        context.change(&stored, "status", &|object| {
            set(object, &["metadata", "annotations", REVISION], json!(number.to_string()));
            true
        })?;
        return Ok(Next::Done);
    }
    roll(context, object, current, &others, wanted, paused)?;
    show_deployment(context, &stored, current, &sets, wanted, paused)
}

/// The annotations that a ReplicaSet gets from its Deployment, the cause of a change among them. What says how workloads
/// behave is not copied: it is read at the Deployment, where it can be taken away.
fn notes_of(deployment: &Value, wanted: i64) -> Map<String, Value> {
    let own = ["kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MAX];
    let annotations = at(deployment, &["metadata", "annotations"]).and_then(Value::as_object);
    let copied = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| !own.contains(&key.as_str()) && !key.starts_with(super::behaviour::knob::PREFIX));
    let mut notes = copied.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>();
    let surge = match text(deployment, &["spec", "strategy", "type"]) {
        "Recreate" => 0,
        _ => share_of(deployment, "maxSurge", wanted, true),
    };
    notes.insert(DESIRED.to_owned(), json!(wanted.to_string()));
    notes.insert(MAX.to_owned(), json!(wanted.saturating_add(surge).to_string()));
    notes
}

fn create_replica_set(
    context: &Context,
    deployment: &Value,
    template: &Value,
    wanted: i64,
    revision: i64,
) -> Result<(), ApiError> {
    let hash = short_hash(template);
    let name = text(deployment, &["metadata", "name"]);
    let mut template = template.clone();
    set(&mut template, &["metadata", "labels", HASH_LABEL], json!(hash));
    let mut selector = at(deployment, &["spec", "selector"]).cloned().unwrap_or_default();
    set(&mut selector, &["matchLabels", HASH_LABEL], json!(hash));
    let old_pods = text(deployment, &["spec", "strategy", "type"]) == "Recreate"
        && context
            .registry
            .store
            .dependents(text(deployment, &["metadata", "uid"]))
            .iter()
            .any(|(_, s)| replicas(&s.value, &["status", "replicas"]) > 0);
    let mut notes = notes_of(deployment, wanted);
    notes.insert(REVISION.to_owned(), json!(revision.to_string()));
    let first = if old_pods { 0 } else { wanted };
    let object = json!({
        "metadata": {
            "name": format!("{name}-{hash}"),
            "labels": at(&template, &["metadata", "labels"]),
            "annotations": notes,
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": {
            "replicas": first,
            "selector": selector, "template": template,
            "minReadySeconds": at(deployment, &["spec", "minReadySeconds"]),
        },
    });
    let made = context.create("apps/v1", "ReplicaSet", text(deployment, &["metadata", "namespace"]), object)?;
    if first > 0 {
        tell_scaled(context, deployment, &made, 0, first)?;
    }
    Ok(())
}

fn tell_scaled(context: &Context, deployment: &Value, set: &Stored, from: i64, to: i64) -> Result<(), ApiError> {
    let (name, way) = (text(&set.value, &["metadata", "name"]), if to > from { "up" } else { "down" });
    let message = format!("Scaled {way} replica set {name} from {from} to {to}");
    context.note(deployment, DEPLOYER, "ScalingReplicaSet", &message)
}

fn scale(context: &Context, deployment: &Value, set_object: &Stored, wanted: i64) -> Result<(), ApiError> {
    let had = replicas(&set_object.value, &["spec", "replicas"]);
    if had != wanted {
        context.change(set_object, "", &|object| {
            set(object, &["spec", "replicas"], json!(wanted));
            true
        })?;
        tell_scaled(context, deployment, set_object, had, wanted)?;
    }
    Ok(())
}

/// The new set to full size at once, the old ones to nothing when the new one is ready (or first, for Recreate).
fn roll(
    context: &Context,
    deployment: &Value,
    current: &Stored,
    others: &[&Arc<Stored>],
    wanted: i64,
    paused: bool,
) -> Result<(), ApiError> {
    let recreate = text(deployment, &["spec", "strategy", "type"]) == "Recreate";
    let old_pods = others.iter().map(|s| replicas(&s.value, &["status", "replicas"])).sum::<i64>();
    let waits_for_old_pods = recreate && old_pods > 0;
    if !waits_for_old_pods && !paused {
        scale(context, deployment, current, wanted)?;
    }
    let ready = replicas(&current.value, &["status", "availableReplicas"]) >= wanted;
    if (recreate || ready) && !paused {
        for old in others {
            scale(context, deployment, old, 0)?;
        }
    }
    let kept = int(deployment, &["spec", "revisionHistoryLimit"]).and_then(|n| usize::try_from(n).ok()).unwrap_or(10);
    let mut finished = others
        .iter()
        .filter(|s| replicas(&s.value, &["status", "replicas"]) == 0 && replicas(&s.value, &["spec", "replicas"]) == 0)
        .collect::<Vec<_>>();
    finished.sort_by_key(|s| std::cmp::Reverse(s.revision));
    for old in finished.into_iter().skip(kept) {
        context.delete(old, DeleteOptions::default())?;
    }
    Ok(())
}

fn show_deployment(
    context: &Context,
    stored: &Stored,
    current: &Stored,
    sets: &[Arc<Stored>],
    wanted: i64,
    paused: bool,
) -> Result<Next, ApiError> {
    let object = &stored.value;
    let sum = |field: &str| sets.iter().map(|s| replicas(&s.value, &["status", field])).sum::<i64>();
    let (total, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = replicas(&current.value, &["status", "replicas"]);
    let observed = replicas(&current.value, &["status", "observedGeneration"]) == generation(&current.value);
    let complete = observed && updated == wanted && total == wanted && available == wanted;
    let terminating = sum("terminatingReplicas");
    let mut status = json!({"observedGeneration": generation(object), "terminatingReplicas": terminating});
    for (field, number) in [
        ("replicas", total),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (total.max(wanted) - available).max(0)),
    ] {
        if number != 0 {
            set(&mut status, &[field], json!(number));
        }
    }
    // Real controllers call a Deployment available while at most maxUnavailable Pods are missing.
    let tolerated = tolerated_missing(object, wanted);
    let mut availability = if available >= wanted - tolerated {
        make_condition(object, "Available", true, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        let message = "Deployment does not have minimum availability.";
        make_condition(object, "Available", false, "MinimumReplicasUnavailable", message)
    };
    let now = json::now();
    let name = text(&current.value, &["metadata", "name"]);
    let moved = ["updatedReplicas", "readyReplicas", "availableReplicas", "replicas"]
        .iter()
        .any(|f| replicas(object, &["status", f]) != replicas(&status, &[f]))
        || at(object, &["status", "observedGeneration"]) != at(&status, &["observedGeneration"]);
    let old = condition(object, "Progressing");
    let was_paused = old.is_some_and(|c| text(c, &["reason"]) == "DeploymentPaused");
    let moved = moved || was_paused != paused;
    let last = old.map(|c| text(c, &["lastUpdateTime"]).to_owned()).filter(|t| !t.is_empty());
    let deadline = context.seconds(int(object, &["spec", "progressDeadlineSeconds"]).unwrap_or(600));
    if moved {
        context.clocks.begin_again(stored.uid(), PROGRESS);
    }
    let since = context.clocks.began(stored.uid(), PROGRESS, last.as_deref().unwrap_or_default());
    let late = !complete
        && !paused
        && !moved
        && (since.elapsed() >= deadline || old.is_some_and(|c| text(c, &["reason"]) == "ProgressDeadlineExceeded"));
    let mut progress = if paused {
        make_condition_as(object, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
    } else if complete {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        make_condition(object, "Progressing", true, "NewReplicaSetAvailable", &message)
    } else if late {
        let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
        make_condition(object, "Progressing", false, "ProgressDeadlineExceeded", &message)
    } else {
        make_condition(
            object,
            "Progressing",
            true,
            "ReplicaSetUpdated",
            &format!("ReplicaSet \"{name}\" is progressing."),
        )
    };
    let updated_at = if moved || last.is_none() { now.clone() } else { last.unwrap_or(now) };
    set(&mut progress, &["lastUpdateTime"], json!(updated_at));
    let turned = at(&availability, &["lastTransitionTime"]).cloned().unwrap_or_default();
    set(&mut availability, &["lastUpdateTime"], turned);
    set(&mut status, &["conditions"], json!([availability, progress]));
    context.set_status(stored, &status)?;
    if complete || late || paused {
        return Ok(Next::Done);
    }
    Ok(Next::At(since + deadline))
}

fn tolerated_missing(deployment: &Value, wanted: i64) -> i64 {
    share_of(deployment, "maxUnavailable", wanted, false).min(wanted)
}

/// How many of the wanted Pods a bound of a rolling update allows.
fn share_of(deployment: &Value, bound: &str, wanted: i64, round_up: bool) -> i64 {
    match at(deployment, &["spec", "strategy", "rollingUpdate", bound]) {
        Some(Value::Number(number)) => number.as_i64().unwrap_or_default().max(0),
        Some(Value::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<i64>().unwrap_or_default().clamp(0, 1000);
            let hundredths = wanted.saturating_mul(percent);
            if round_up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 }
        }
        _ => 0,
    }
}
