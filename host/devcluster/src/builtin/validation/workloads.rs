//! Kinds that make Pods: Deployments and the like, and Jobs.

use serde_json::{Value, json};

use super::pods::{not_negative, template};
use crate::{
    builtin::metadata::labels,
    json::{at, int, list, text},
    selector::label_selector_matches,
    status::Cause,
};

const MISMATCH: &str = "`selector` does not match template `labels`";

/// Deployments, ReplicaSets, StatefulSets and DaemonSets.
pub(super) fn workload(kind: &str, object: &Value, causes: &mut Vec<Cause>) {
    not_negative(object, &["spec", "replicas"], causes);
    let pods = at(object, &["spec", "template"]).unwrap_or(&Value::Null);
    let selector = at(object, &["spec", "selector"]);
    match selector {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(selector) => {
            labels(selector.get("matchLabels"), "spec.selector.matchLabels", causes);
            if is_empty(selector) {
                let why = format!("empty selector is invalid for {}", kind.to_lowercase());
                causes.push(Cause::invalid("spec.selector", selector, &why));
            }
        }
    }
    // No selector selects nothing.
    if selector.is_none_or(|selector| !is_empty(selector) && !label_selector_matches(selector, pods)) {
        causes.push(mismatch(pods));
    }
    template(object, pods, "spec.template", causes);
    let policy = text(pods, &["spec", "restartPolicy"]);
    if policy != "Always" {
        let field = "spec.template.spec.restartPolicy";
        causes.push(Cause::not_supported(field, &json!(policy), &[json!("Always")]));
    }
    if int(pods, &["spec", "activeDeadlineSeconds"]).is_some() {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        causes.push(Cause::forbidden("spec.template.spec.activeDeadlineSeconds", why));
    }
    if kind == "Deployment" {
        strategy(object, causes);
    }
    not_negative(object, &["spec", "minReadySeconds"], causes);
    not_negative(object, &["spec", "revisionHistoryLimit"], causes);
    if kind == "Deployment" {
        not_negative(object, &["spec", "progressDeadlineSeconds"], causes);
        let number = |field: &str| int(object, &["spec", field]).unwrap_or_default();
        if number("progressDeadlineSeconds") <= number("minReadySeconds") {
            let given = json!(number("progressDeadlineSeconds"));
            causes.push(Cause::invalid("spec.progressDeadlineSeconds", &given, "must be greater than minReadySeconds"));
        }
    }
}

fn is_empty(selector: &Value) -> bool {
    list(selector, &["matchExpressions"]).is_empty()
        && selector.get("matchLabels").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
}

fn mismatch(pods: &Value) -> Cause {
    let labels = at(pods, &["metadata", "labels"]).unwrap_or(&Value::Null);
    Cause::invalid("spec.template.metadata.labels", labels, MISMATCH)
}

fn strategy(object: &Value, causes: &mut Vec<Cause>) {
    let path = ["spec", "strategy", "rollingUpdate"];
    let field = path.join(".");
    match text(object, &["spec", "strategy", "type"]) {
        "Recreate" => {
            if at(object, &path).is_some() {
                causes.push(Cause::forbidden(field, "may not be specified when strategy `type` is 'Recreate'"));
            }
        }
        "RollingUpdate" => {
            let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|name| {
                let value = at(object, &[&path[..], &[name]].concat()).cloned().unwrap_or_default();
                let at_name = format!("{field}.{name}");
                match &value {
                    Value::String(share) if percent(share).is_none() => {
                        let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', \
                                   or '93%', regex used for validation is '[0-9]+%')";
                        causes.push(Cause::invalid(at_name, &value, why));
                    }
                    Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
                        causes.push(Cause::invalid(at_name, &value, "must be greater than or equal to 0"));
                    }
                    _ => {}
                }
                value
            });
            let amount = |value: &Value| value.as_str().map_or_else(|| value.as_i64(), percent).unwrap_or_default();
            if amount(&unavailable) == 0 && amount(&surge) == 0 {
                let why = "may not be 0 when `maxSurge` is 0";
                causes.push(Cause::invalid(format!("{field}.maxUnavailable"), &unavailable, why));
            }
            if unavailable.as_str().and_then(percent).is_some_and(|share| share > 100) {
                let why = "must not be greater than 100%";
                causes.push(Cause::invalid(format!("{field}.maxUnavailable"), &unavailable, why));
            }
        }
        other => {
            let allowed = [json!("Recreate"), json!("RollingUpdate")];
            let given = json!({"Type": other, "RollingUpdate": at(object, &path)});
            causes.push(Cause::not_supported("spec.strategy", &given, &allowed));
        }
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// A Job as a whole.
/// The Pods of an Indexed Job are called by its name with their index, so that name must leave room for it.
pub(super) fn name_for_indexes(object: &Value, causes: &mut Vec<Cause>) {
    let indexes = int(object, &["spec", "completions"]).filter(|indexes| *indexes > 0);
    let (Some(indexes), "Indexed") = (indexes, text(object, &["spec", "completionMode"])) else { return };
    let name = text(object, &["metadata", "name"]);
    let longest = format!("{name}-{}", indexes - 1);
    if !crate::builtin::names::dns_label(&longest).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {longest}");
        causes.push(Cause::invalid("metadata.name", &json!(name), &why));
    }
}

pub(super) fn job(object: &Value, creation: bool, causes: &mut Vec<Cause>) {
    if creation {
        generated_selector(object, causes);
    }
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        not_negative(object, &["spec", field], causes);
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        not_negative(object, &["spec", field], causes);
    }
    let mode = text(object, &["spec", "completionMode"]);
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        let allowed = [json!("NonIndexed"), json!("Indexed")];
        causes.push(Cause::not_supported("spec.completionMode", &json!(mode), &allowed));
    }
    if mode == "Indexed" {
        if int(object, &["spec", "completions"]).is_none() {
            causes.push(Cause::required("spec.completions", "when completion mode is Indexed"));
        }
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(given) = at(object, &["spec", field]) {
                causes.push(Cause::invalid(format!("spec.{field}"), given, "requires indexed completion mode"));
            }
        }
    }
    let pods = at(object, &["spec", "template"]).unwrap_or(&Value::Null);
    template(object, pods, "spec.template", causes);
    let policy = text(pods, &["spec", "restartPolicy"]);
    let field = "spec.template.spec.restartPolicy";
    match policy {
        "" | "Always" => causes.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" | "Never" => {}
        other => {
            causes.push(Cause::not_supported(field, &json!(other), &[json!("OnFailure"), json!("Never")]));
        }
    }
    match at(object, &["spec", "selector"]) {
        None => {
            causes.push(Cause::required("spec.selector", ""));
            causes.push(mismatch(pods));
        }
        Some(selector) => {
            labels(selector.get("matchLabels"), "spec.selector.matchLabels", causes);
            if !label_selector_matches(selector, pods) {
                causes.push(mismatch(pods));
            }
        }
    }
}

/// The labels that the server puts on the Pods of a Job whose selector it draws.
fn generated_selector(object: &Value, causes: &mut Vec<Cause>) {
    let Some(selector) = at(object, &["spec", "selector"]) else { return };
    if at(object, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return;
    }
    let (uid, name) = (text(object, &["metadata", "uid"]), text(object, &["metadata", "name"]));
    let given = at(object, &["spec", "template", "metadata", "labels"]).cloned().unwrap_or_default();
    let mut expected = serde_json::Map::new();
    for (key, wanted) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        expected.insert(key.to_owned(), json!(wanted));
        let field = format!("spec.template.metadata.labels[{key}]");
        let why = format!("must be '{wanted}'");
        match given.get(key) {
            None => causes.push(Cause::required(field, &why)),
            Some(found) if found != wanted => causes.push(Cause::invalid(field, &given, &why)),
            Some(_) => {}
        }
    }
    if !label_selector_matches(selector, &json!({"metadata": {"labels": expected}})) {
        causes.push(Cause::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
}

/// What the status of a Deployment may say.
pub(super) fn deployment_status(object: &Value, causes: &mut Vec<Cause>) {
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    for field in fields {
        not_negative(object, &["status", field], causes);
    }
    let number = |field: &str| int(object, &["status", field]).unwrap_or_default();
    let mut most = |field: &str, bound: &str, why: &str| {
        if number(field) > number(bound) {
            causes.push(Cause::invalid(format!("status.{field}"), &json!(number(field)), why));
        }
    };
    let of_all = "cannot be greater than status.replicas";
    most("updatedReplicas", "replicas", of_all);
    most("readyReplicas", "replicas", of_all);
    most("availableReplicas", "replicas", of_all);
    most("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas");
}
