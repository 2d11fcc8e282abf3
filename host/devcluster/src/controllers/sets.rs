//! StatefulSets and DaemonSets.

use std::{ops::Range, sync::Arc};

use serde_json::{Value, json};

use super::{
    Context, NODE, Next,
    history::{self, labels_in_use},
    is_terminating, is_true,
    pods::PODS,
    replicas::{Census, count, create_pod, delete_pod, generation, pod_of},
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
/// The label of the revisions of a StatefulSet.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";
const STATEFUL_REPORTER: &str = "statefulset-controller";
const DAEMON_REPORTER: &str = "daemonset-controller";

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
    let first = int(object, &["spec", "ordinals", "start"]).unwrap_or_default().max(0);
    let ordinals = first..first.saturating_add(wanted);
    let current = text(object, &["status", "currentRevision"]).to_owned();
    let mut in_use = labels_in_use(pods.iter().map(|pod| &pod.value), REVISION_LABEL);
    in_use.insert(&current);
    let hash = short_hash(&template);
    history::record(context, &stored, &revision, (REVISION_HASH, &hash), &in_use)?;
    let find = |ordinal: i64| {
        let pod_name = format!("{name}-{ordinal}");
        pods.iter().find(|pod| text(&pod.value, &["metadata", "name"]) == pod_name)
    };
    let mut progressed = false;
    for ordinal in ordinals.clone() {
        match find(ordinal) {
            None => {
                create_claims(context, object, ordinal)?;
                // Below the partition, Pods stay what they were.
                let kept = if ordinal - first < partition_of(object) && !current.is_empty() && current != revision {
                    history::template_of(context, namespace, &current)
                } else {
                    None
                };
                let its_revision = if kept.is_some() { &current } else { &revision };
                let mut pod = pod_of(object, kept.as_ref().unwrap_or(&template));
                let pod_name = format!("{name}-{ordinal}");
                set(&mut pod, &["metadata", "name"], json!(pod_name));
                set(&mut pod, &["metadata", "generateName"], json!(format!("{name}-")));
                set(&mut pod, &["metadata", "labels", REVISION_LABEL], json!(its_revision));
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
                tell(context, object, "Create", &pod_name)?;
                progressed = true;
            }
            Some(pod)
                if matches!(text(&pod.value, &["status", "phase"]), "Failed" | "Succeeded")
                    && !is_terminating(&pod.value) =>
            {
                delete(context, object, pod)?;
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
        .filter(|pod| ordinal_of(pod).is_none_or(|n| !ordinals.contains(&n)) && !is_terminating(&pod.value))
        .collect::<Vec<_>>();
    surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
    for pod in surplus.iter().take(if parallel { usize::MAX } else { 1 }) {
        delete(context, object, pod)?;
        progressed = true;
    }
    let rolling = text(object, &["spec", "updateStrategy", "type"]) != "OnDelete";
    if rolling && !progressed && surplus.is_empty() {
        replace_one(context, object, &pods, &revision, ordinals)?;
    }
    show_stateful_set(context, &stored, &revision, wanted)
}

fn partition_of(object: &Value) -> i64 {
    int(object, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or_default().max(0)
}

fn tell(context: &Context, object: &Value, verb: &str, pod: &str) -> Result<(), ApiError> {
    let reason = if verb == "Create" { "SuccessfulCreate" } else { "SuccessfulDelete" };
    let message = format!("{verb} Pod {pod} in StatefulSet {} successful", text(object, &["metadata", "name"]));
    context.note(object, STATEFUL_REPORTER, reason, &message)
}

fn delete(context: &Context, object: &Value, pod: &Stored) -> Result<(), ApiError> {
    context.delete(pod, DeleteOptions::default())?;
    tell(context, object, "Delete", text(&pod.value, &["metadata", "name"]))
}

/// Deletes the highest Pod of an old revision, when all newer ones are ready.
fn replace_one(
    context: &Context,
    object: &Value,
    pods: &[Arc<Stored>],
    revision: &str,
    ordinals: Range<i64>,
) -> Result<(), ApiError> {
    let name = text(object, &["metadata", "name"]);
    let lowest = ordinals.start.saturating_add(partition_of(object));
    for ordinal in (lowest..ordinals.end).rev() {
        let pod_name = format!("{name}-{ordinal}");
        let Some(pod) = pods.iter().find(|pod| text(&pod.value, &["metadata", "name"]) == pod_name) else {
            return Ok(());
        };
        if is_terminating(&pod.value) {
            return Ok(());
        }
        if revision_of(&pod.value) != revision {
            return delete(context, object, pod);
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
        let claim_name = claim_name(template, name, ordinal);
        if context.registry.store.get("/persistentvolumeclaims", namespace, &claim_name).is_none() {
            super::ensure(&context.registry, "v1", "PersistentVolumeClaim", namespace, claim)?;
            let message = format!("Create Claim {claim_name} Pod {name}-{ordinal} in StatefulSet {name} success");
            context.note(object, STATEFUL_REPORTER, "SuccessfulCreate", &message)?;
        }
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
    let (available, later) = census.available(context, object);
    let complete = updated == wanted && ready == wanted && alive == wanted;
    let current = if complete || old.is_empty() { revision.to_owned() } else { old };
    let of_current = count(census.active.iter().filter(|pod| revision_of(&pod.value) == current).count());
    let status = json!({
        "observedGeneration": generation(object), "replicas": alive, "readyReplicas": ready, "availableReplicas": available,
        "updatedReplicas": updated, "currentReplicas": of_current, "collisionCount": 0,
        "currentRevision": current, "updateRevision": revision,
    });
    context.set_status(stored, &status)?;
    Ok(later.map_or(Next::Done, Next::At))
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
    let in_use = labels_in_use(pods.iter().map(|pod| &pod.value), REVISION_LABEL);
    let name = format!("{}-{revision}", item.key.1);
    history::record(context, &stored, &name, (REVISION_LABEL, &revision), &in_use)?;
    // There is one node, and nothing that would keep a Pod off it.
    for pod in &pods {
        let over = matches!(text(&pod.value, &["status", "phase"]), "Failed" | "Succeeded");
        let old =
            revision_of(&pod.value) != revision && text(object, &["spec", "updateStrategy", "type"]) != "OnDelete";
        if (over || old) && !is_terminating(&pod.value) {
            delete_pod(context, object, DAEMON_REPORTER, pod)?;
        }
    }
    if pods.is_empty() {
        let mut pod = pod_of(object, &template);
        set(&mut pod, &["metadata", "generateName"], json!(format!("{}-", item.key.1)));
        set(&mut pod, &["metadata", "labels", REVISION_LABEL], json!(revision));
        set(&mut pod, &["spec", "nodeName"], json!(NODE));
        create_pod(context, object, DAEMON_REPORTER, pod)?;
    }
    let census = Census::take(context, &stored);
    let scheduled = count(census.active.len()).min(1);
    let updated = count(census.active.iter().filter(|pod| revision_of(&pod.value) == revision).count()).min(1);
    let ready = census.ready().min(1);
    let (available, later) = census.available(context, object);
    let available = available.min(1);
    let mut status = json!({
        "observedGeneration": generation(object), "desiredNumberScheduled": 1, "currentNumberScheduled": scheduled,
        "numberMisscheduled": 0, "numberReady": ready,
    });
    for (field, number) in
        [("updatedNumberScheduled", updated), ("numberAvailable", available), ("numberUnavailable", 1 - available)]
    {
        if number > 0 {
            set(&mut status, &[field], json!(number));
        }
    }
    context.set_status(&stored, &status)?;
    Ok(later.map_or(Next::Done, Next::At))
}
