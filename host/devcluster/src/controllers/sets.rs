//! StatefulSets, DaemonSets and Jobs.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, NODE, Next, condition, is_terminating, is_true, make_condition,
    pods::PODS,
    replicas::{Census, count, generation, pod_of},
    short_hash,
    work::Item,
};
use crate::{
    json::{self, at, copy, int, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::Stored,
};

const REVISION_LABEL: &str = "controller-revision-hash";

fn revision_of(pod: &Value) -> &str {
    text(pod, &["metadata", "labels", REVISION_LABEL])
}

pub(super) fn stateful_set(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    if is_terminating(object) {
        return Ok(Next::Done);
    }
    let (namespace, name) = (&item.key.0, &item.key.1);
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    let revision = format!("{name}-{}", short_hash(&template));
    let wanted = int(object, &["spec", "replicas"]).unwrap_or(1);
    let parallel = text(object, &["spec", "podManagementPolicy"]) == "Parallel";
    let pods = context.controlled(&stored, PODS);
    let find = |ordinal: i64| {
        let pod_name = format!("{name}-{ordinal}");
        pods.iter().find(|pod| text(&pod.value, &["metadata", "name"]) == pod_name)
    };
    let mut progressed = false;
    for ordinal in 0..wanted {
        match find(ordinal) {
            None => {
                create_claims(context, object, ordinal)?;
                let mut pod = pod_of(object, &template);
                let pod_name = format!("{name}-{ordinal}");
                set(&mut pod, &["metadata", "name"], json!(pod_name));
                set(&mut pod, &["metadata", "labels", REVISION_LABEL], json!(revision));
                set(&mut pod, &["metadata", "labels", "statefulset.kubernetes.io/pod-name"], json!(pod_name));
                set(&mut pod, &["metadata", "labels", "apps.kubernetes.io/pod-index"], json!(ordinal.to_string()));
                set(&mut pod, &["spec", "hostname"], json!(pod_name));
                copy(object, &mut pod, &["spec", "serviceName"]);
                let subdomain = json::remove(&mut pod, &["spec", "serviceName"]);
                if let Some(subdomain) = subdomain.filter(|s| s.as_str().is_some_and(|s| !s.is_empty())) {
                    set(&mut pod, &["spec", "subdomain"], subdomain);
                }
                mount_claims(object, &mut pod);
                context.create("v1", "Pod", namespace, pod)?;
                progressed = true;
            }
            Some(pod) if matches!(text(&pod.value, &["status", "phase"]), "Failed" | "Succeeded") => {
                context.delete(pod, DeleteOptions::default())?;
                progressed = true;
            }
            Some(_) => {}
        }
        let ready = find(ordinal).is_some_and(|pod| is_true(&pod.value, "Ready") && !is_terminating(&pod.value));
        if !parallel && !ready {
            // The next one starts when this one is ready, which brings the item back.
            break;
        }
    }
    let ordinal_of =
        |pod: &Stored| text(&pod.value, &["metadata", "name"]).rsplit('-').next().and_then(|n| n.parse::<i64>().ok());
    let mut surplus = pods
        .iter()
        .filter(|pod| ordinal_of(pod).is_none_or(|n| n >= wanted) && !is_terminating(&pod.value))
        .collect::<Vec<_>>();
    surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
    for pod in surplus.iter().take(if parallel { usize::MAX } else { 1 }) {
        context.delete(pod, DeleteOptions::default())?;
        progressed = true;
    }
    let rolling = text(object, &["spec", "updateStrategy", "type"]) != "OnDelete";
    if rolling && !progressed && surplus.is_empty() {
        replace_one(context, object, &pods, &revision, wanted)?;
    }
    show_stateful_set(context, &stored, &revision, wanted)
}

/// Deletes the highest Pod of an old revision, when all newer ones are ready.
fn replace_one(
    context: &Context,
    object: &Value,
    pods: &[Arc<Stored>],
    revision: &str,
    wanted: i64,
) -> Result<(), ApiError> {
    let partition = int(object, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or_default();
    let name = text(object, &["metadata", "name"]);
    for ordinal in (partition.max(0)..wanted).rev() {
        let pod_name = format!("{name}-{ordinal}");
        let Some(pod) = pods.iter().find(|pod| text(&pod.value, &["metadata", "name"]) == pod_name) else {
            return Ok(());
        };
        if is_terminating(&pod.value) {
            return Ok(());
        }
        if revision_of(&pod.value) != revision {
            return context.delete(pod, DeleteOptions::default());
        }
        if !is_true(&pod.value, "Ready") {
            return Ok(());
        }
    }
    Ok(())
}

fn claim_name(template: &Value, set_name: &str, ordinal: i64) -> String {
    format!("{}-{set_name}-{ordinal}", text(template, &["metadata", "name"]))
}

fn create_claims(context: &Context, object: &Value, ordinal: i64) -> Result<(), ApiError> {
    let (namespace, name) = (text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
    for template in list(object, &["spec", "volumeClaimTemplates"]) {
        let mut claim = json!({"spec": at(template, &["spec"])});
        copy(template, &mut claim, &["metadata", "annotations"]);
        copy(template, &mut claim, &["metadata", "labels"]);
        set(&mut claim, &["metadata", "name"], json!(claim_name(template, name, ordinal)));
        for (key, value) in
            at(object, &["spec", "selector", "matchLabels"]).and_then(Value::as_object).into_iter().flatten()
        {
            set(&mut claim, &["metadata", "labels", key], value.clone());
        }
        super::ensure(&context.registry, "v1", "PersistentVolumeClaim", namespace, claim)?;
    }
    Ok(())
}

fn mount_claims(object: &Value, pod: &mut Value) {
    let templates = list(object, &["spec", "volumeClaimTemplates"]);
    if templates.is_empty() {
        return;
    }
    let name = text(object, &["metadata", "name"]);
    let pod_name = text(pod, &["metadata", "name"]).to_owned();
    let ordinal = pod_name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or_default();
    let names = templates.iter().map(|t| text(t, &["metadata", "name"])).collect::<Vec<_>>();
    let mut volumes = list(pod, &["spec", "volumes"])
        .iter()
        .filter(|v| !names.contains(&text(v, &["name"])))
        .cloned()
        .collect::<Vec<_>>();
    for template in templates {
        volumes.push(json!({"name": text(template, &["metadata", "name"]),
            "persistentVolumeClaim": {"claimName": claim_name(template, name, ordinal)}}));
    }
    set(pod, &["spec", "volumes"], Value::Array(volumes));
}

fn show_stateful_set(context: &Context, stored: &Stored, revision: &str, wanted: i64) -> Result<Next, ApiError> {
    let object = &stored.value;
    let census = Census::take(context, stored);
    let alive = count(census.active.len()) + census.terminating;
    let updated = count(census.active.iter().filter(|pod| revision_of(&pod.value) == revision).count());
    let ready = census.ready();
    let old = text(object, &["status", "currentRevision"]).to_owned();
    let complete = updated == wanted && ready == wanted && alive == wanted;
    let current = if complete || old.is_empty() { revision.to_owned() } else { old };
    let of_current = count(census.active.iter().filter(|pod| revision_of(&pod.value) == current).count());
    let status = json!({
        "observedGeneration": generation(object), "replicas": alive, "readyReplicas": ready, "availableReplicas": ready,
        "updatedReplicas": updated, "currentReplicas": of_current, "collisionCount": 0,
        "currentRevision": current, "updateRevision": revision,
    });
    context.set_status(stored, &status)?;
    Ok(Next::Done)
}

pub(super) fn daemon_set(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    if is_terminating(object) {
        return Ok(Next::Done);
    }
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    let revision = short_hash(&template);
    let pods = context.controlled(&stored, PODS);
    // There is one node, and nothing that would keep a Pod off it.
    for pod in &pods {
        let over = matches!(text(&pod.value, &["status", "phase"]), "Failed" | "Succeeded");
        let old =
            revision_of(&pod.value) != revision && text(object, &["spec", "updateStrategy", "type"]) != "OnDelete";
        if (over || old) && !is_terminating(&pod.value) {
            context.delete(pod, DeleteOptions::default())?;
        }
    }
    if pods.is_empty() {
        let mut pod = pod_of(object, &template);
        set(&mut pod, &["metadata", "generateName"], json!(format!("{}-", item.key.1)));
        set(&mut pod, &["metadata", "labels", REVISION_LABEL], json!(revision));
        set(&mut pod, &["spec", "nodeName"], json!(NODE));
        context.create("v1", "Pod", &item.key.0, pod)?;
    }
    let census = Census::take(context, &stored);
    let scheduled = count(census.active.len()).min(1);
    let updated = count(census.active.iter().filter(|pod| revision_of(&pod.value) == revision).count()).min(1);
    let ready = census.ready().min(1);
    let mut status = json!({
        "observedGeneration": generation(object), "desiredNumberScheduled": 1, "currentNumberScheduled": scheduled,
        "numberMisscheduled": 0, "numberReady": ready,
    });
    for (field, number) in
        [("updatedNumberScheduled", updated), ("numberAvailable", ready), ("numberUnavailable", 1 - ready)]
    {
        if number > 0 {
            set(&mut status, &[field], json!(number));
        }
    }
    context.set_status(&stored, &status)?;
    Ok(Next::Done)
}

pub(super) fn job(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    if is_terminating(object) {
        return Ok(Next::Done);
    }
    if is_true(object, "Complete") || is_true(object, "Failed") {
        return expire_job(context, &stored);
    }
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    let census = Census::take(context, &stored);
    let suspended = at(object, &["spec", "suspend"]) == Some(&Value::Bool(true));
    if suspended {
        for pod in &census.active {
            context.delete(pod, DeleteOptions::default())?;
        }
        json::remove(&mut status, &["startTime"]);
        set(
            &mut status,
            &["conditions"],
            json!([make_condition(object, "Suspended", true, "JobSuspended", "Job suspended")]),
        );
        context.set_status(&stored, &status)?;
        return Ok(Next::Done);
    }
    json::default(&mut status, &["startTime"], json!(json::now()));
    let parallelism = int(object, &["spec", "parallelism"]).unwrap_or(1);
    // Without a number of completions one success ends the Job.
    let completions = int(object, &["spec", "completions"]).unwrap_or(1);
    let limit = int(object, &["spec", "backoffLimit"]).unwrap_or(6);
    let now = json::now();
    for (field, number) in
        [("succeeded", census.succeeded), ("failed", census.failed), ("active", count(census.active.len()))]
    {
        set(&mut status, &[field], json!(number));
    }
    set(&mut status, &["ready"], json!(census.ready()));
    set(&mut status, &["terminating"], json!(census.terminating));
    set(&mut status, &["uncountedTerminatedPods"], json!({}));
    let (deadline, elapsed) = (int(object, &["spec", "activeDeadlineSeconds"]), elapsed(&status, &["startTime"]));
    let late = deadline.is_some_and(|deadline| elapsed >= deadline);
    let failure = if census.failed > limit {
        Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    } else if late {
        Some(("DeadlineExceeded", "Job was active longer than specified deadline"))
    } else {
        None
    };
    if let Some((reason, message)) = failure {
        for pod in &census.active {
            context.delete(pod, DeleteOptions::default())?;
        }
        set(&mut status, &["active"], json!(0));
        set(&mut status, &["ready"], json!(0));
        set(
            &mut status,
            &["conditions"],
            json!([
                make_condition(object, "FailureTarget", true, reason, message),
                make_condition(object, "Failed", true, reason, message),
            ]),
        );
        context.set_status(&stored, &status)?;
        return Ok(Next::Done);
    }
    if census.succeeded >= completions {
        set(&mut status, &["active"], json!(0));
        set(&mut status, &["completionTime"], json!(now));
        let message = "Reached expected number of succeeded pods";
        set(
            &mut status,
            &["conditions"],
            json!([
                make_condition(object, "SuccessCriteriaMet", true, "CompletionsReached", message),
                make_condition(object, "Complete", true, "CompletionsReached", message),
            ]),
        );
        context.set_status(&stored, &status)?;
        return Ok(Next::Done);
    }
    let wanted = parallelism.min(completions - census.succeeded).max(0);
    let template = at(object, &["spec", "template"]).cloned().unwrap_or_default();
    let indexed = text(object, &["spec", "completionMode"]) == "Indexed";
    for n in count(census.active.len())..wanted {
        let mut pod = pod_of(object, &template);
        set(&mut pod, &["metadata", "generateName"], json!(format!("{}-", item.key.1)));
        if indexed {
            let index = (census.succeeded + n).to_string();
            set(&mut pod, &["metadata", "annotations", "batch.kubernetes.io/job-completion-index"], json!(index));
        }
        context.create("v1", "Pod", &item.key.0, pod)?;
    }
    if condition(object, "Suspended").is_some() {
        set(
            &mut status,
            &["conditions"],
            json!([make_condition(object, "Suspended", false, "JobResumed", "Job resumed")]),
        );
    }
    set(&mut status, &["active"], json!(wanted.max(count(census.active.len()))));
    context.set_status(&stored, &status)?;
    match deadline {
        Some(deadline) => Ok(Next::At(Instant::now() + seconds(deadline - elapsed))),
        None => Ok(Next::Done),
    }
}

fn elapsed(status: &Value, path: &[&str]) -> i64 {
    let since = text(status, path).parse::<jiff::Timestamp>();
    since.map_or(0, |time| jiff::Timestamp::now().duration_since(time).as_secs())
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number.clamp(1, 24 * 3600)).unwrap_or(1))
}

/// A finished Job goes after its time to live.
fn expire_job(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    let object = &stored.value;
    let Some(ttl) = int(object, &["spec", "ttlSecondsAfterFinished"]) else { return Ok(Next::Done) };
    let finished = ["Complete", "Failed"].iter().find_map(|kind| condition(object, kind));
    let Some(finished) = finished else { return Ok(Next::Done) };
    let age = elapsed(finished, &["lastTransitionTime"]);
    if age < ttl {
        return Ok(Next::At(Instant::now() + seconds(ttl - age)));
    }
    let propagation = Some(crate::registry::Propagation::Foreground);
    context.delete(stored, DeleteOptions { propagation, ..DeleteOptions::default() })?;
    Ok(Next::Done)
}
