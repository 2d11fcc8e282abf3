//! StatefulSets and DaemonSets.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Context, NODE, Next, is_terminating, is_true,
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
