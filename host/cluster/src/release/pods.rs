//! Pods in trouble: why a workload does not become ready, named as soon as it is seen, and how often its Pods have failed.

use std::collections::BTreeMap;
use std::fmt;

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::{PodFailures, failures_allowed};
use serde_json::{Map, Value};

use crate::request::{label, metadata};

/// A Pod of a workload that cannot do its work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTrouble {
    /// The workload.
    pub workload: ObjectRef,
    /// Name of the Pod.
    pub pod: String,
    /// Name of the container; absent if it is about the Pod itself.
    pub container: Option<String>,
    /// Reason, for example `CrashLoopBackOff`.
    pub reason: String,
    /// Message, if there is one.
    pub message: String,
    /// Exit code of the last run of the container, if it ended.
    pub exit_code: Option<i64>,
}

impl fmt::Display for PodTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod {}", self.pod)?;
        if let Some(container) = &self.container {
            write!(f, ", container {container}")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(code) = self.exit_code {
            write!(f, " (exit code {code})")?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// Whether objects of a kind run Pods that a selector finds.
pub(super) fn runs_pods(kind: &str) -> bool {
    matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job")
}

/// Which Pods belong to a workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    labels: Map<String, Value>,
    expressions: Vec<Value>,
}

impl Selector {
    /// The selector of a live workload; nothing if it has none, or one that selects everything.
    pub(super) fn of(workload: &Value) -> Option<Self> {
        let selector = workload.pointer("/spec/selector")?.as_object()?;
        let labels = match selector.get("matchLabels") {
            Some(labels) => labels.as_object()?.clone(),
            None if selector.contains_key("matchExpressions") => Map::new(),
            // A ReplicationController has the labels themselves.
            None => selector.clone(),
        };
        let expressions = selector.get("matchExpressions").and_then(Value::as_array).cloned().unwrap_or_default();
        (!labels.is_empty() || !expressions.is_empty()).then_some(Self { labels, expressions })
    }

    /// Whether a Pod is selected.
    pub(super) fn matches(&self, pod: &Value) -> bool {
        let label = |key: &str| pod.get("metadata")?.get("labels")?.get(key)?.as_str();
        let listed = |expression: &Value, value: &str| {
            let values = expression.get("values").and_then(Value::as_array);
            values.is_some_and(|values| values.iter().any(|entry| entry.as_str() == Some(value)))
        };
        self.labels.iter().all(|(key, value)| label(key) == value.as_str())
            && self.expressions.iter().all(|expression| {
                let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
                let value = label(text("key"));
                match text("operator") {
                    "In" => value.is_some_and(|value| listed(expression, value)),
                    "NotIn" => !value.is_some_and(|value| listed(expression, value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// Pods of one workload whose failures are remembered, the gone ones too. Beyond that the oldest are forgotten.
const PODS: usize = 1_000;
/// Labels that tell Pods of one version of a workload from those of another.
const VERSIONS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// How often the Pods of a workload have failed in this operation.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// When the workload was created, if this operation created it: its Pods are new too.
    born: Option<String>,
    allowed: Option<u32>,
    /// By time of creation and by what was seen first, so that the newest is the last.
    pods: BTreeMap<(String, u64), Counted>,
    seen: u64,
}

/// A Pod of a workload.
#[derive(Debug)]
struct Counted {
    uid: String,
    version: Option<String>,
    failures: PodFailures,
}

impl Failures {
    pub(super) fn new(workload: &Value, is_created: bool) -> Self {
        let born = metadata(workload, "creationTimestamp").filter(|_| is_created).map(str::to_owned);
        Self { born, allowed: failures_allowed(workload), ..Self::default() }
    }

    /// The workload has changed.
    pub(super) fn of(&mut self, workload: &Value) {
        self.allowed = failures_allowed(workload);
    }

    /// Looks at a Pod of the workload. What happened to it before this operation does not count: `is_new` says that it
    /// came while somebody was looking.
    pub(super) fn look_at(&mut self, pod: &Value, is_new: bool) {
        let text = |field: &str| metadata(pod, field).unwrap_or_default().to_owned();
        let (created, uid) = (text("creationTimestamp"), text("uid"));
        let of_then = (created.clone(), 0)..=(created.clone(), u64::MAX);
        if let Some((_, known)) = self.pods.range_mut(of_then).find(|(_, known)| known.uid == uid) {
            known.failures.see(pod);
            return;
        }
        let mut failures = PodFailures::default();
        failures.see(pod);
        if !is_new && self.born.as_ref().is_none_or(|born| created < *born) {
            failures.forgive();
        }
        let version = VERSIONS.iter().find_map(|name| label(pod, name)).map(str::to_owned);
        self.seen += 1;
        self.pods.insert((created, self.seen), Counted { uid, version, failures });
        if self.pods.len() > PODS {
            self.pods.pop_first();
        }
    }

    /// Why the workload has failed, if its Pods have failed too often. Pods of an older version, which the newest takes
    /// the place of, do not count.
    pub(super) fn exceeded(&self) -> Option<String> {
        let allowed = self.allowed?;
        let newest = &self.pods.last_key_value()?.1.version;
        let counted = self.pods.values().filter(|pod| pod.version == *newest);
        let failures = counted.map(|pod| pod.failures.count()).fold(0, u32::saturating_add);
        (failures > allowed).then(|| {
            let times = if failures == 1 { "once".to_owned() } else { format!("{failures} times") };
            format!("its Pods failed {times}, more than the {allowed} that it may")
        })
    }
}

/// Reasons for which a container waits that do not pass by themselves.
const WAITING: [&str; 8] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "ErrImageNeverPull",
];

/// What is wrong with a Pod.
pub(super) fn troubles(workload: &ObjectRef, pod: &Value) -> Vec<PodTrouble> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = metadata(pod, "name").unwrap_or_default().to_owned();
    let trouble = |container: Option<String>, reason: String, message: String, exit_code: Option<i64>| PodTrouble {
        workload: workload.clone(),
        pod: name.clone(),
        container,
        reason,
        message,
        exit_code,
    };
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let exit_code = |state: Option<&Value>| state?.get("terminated")?.get("exitCode")?.as_i64();
    let mut found = Vec::new();
    for status in list("/status/initContainerStatuses").chain(list("/status/containerStatuses")) {
        let container = Some(text(status, "name"));
        let (state, last) = (status.get("state"), status.get("lastState"));
        if let Some(waiting) = state.and_then(|state| state.get("waiting")) {
            let reason = text(waiting, "reason");
            if WAITING.contains(&reason.as_str()) {
                found.push(trouble(container, reason, text(waiting, "message"), exit_code(last)));
            }
        } else if let Some(terminated) = state.and_then(|state| state.get("terminated"))
            && exit_code(state).is_some_and(|code| code != 0)
        {
            let reason = Some(text(terminated, "reason")).filter(|reason| !reason.is_empty());
            let reason = reason.unwrap_or_else(|| "Error".to_owned());
            found.push(trouble(container, reason, text(terminated, "message"), exit_code(state)));
        }
    }
    for condition in list("/status/conditions") {
        if text(condition, "type") == "PodScheduled" && text(condition, "status") == "False" {
            found.push(trouble(None, text(condition, "reason"), text(condition, "message"), None));
        }
    }
    if found.is_empty() && pod.pointer("/status/phase").and_then(Value::as_str) == Some("Failed") {
        let status = pod.get("status").unwrap_or(&Value::Null);
        let reason = Some(text(status, "reason")).filter(|reason| !reason.is_empty());
        found.push(trouble(None, reason.unwrap_or_else(|| "Failed".to_owned()), text(status, "message"), None));
    }
    found
}

#[cfg(test)]
mod tests {
    use barbless_domain::identity::Gvk;
    use serde_json::json;

    use super::*;

    fn workload() -> ObjectRef {
        ObjectRef {
            gvk: Gvk::parse("apps/v1", "Deployment").expect("a valid kind"),
            namespace: "demo".to_owned(),
            name: "web".to_owned(),
        }
    }

    #[test]
    fn troubles_name_container_reason_and_exit_code() {
        let cases = [
            (
                json!({"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}),
                vec!["Pod web-1, container app: CrashLoopBackOff (exit code 137): back-off 10s"],
            ),
            (
                json!({"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 2}}}],
                    "containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "PodInitializing"}}}]}),
                vec!["Pod web-1, container init: Error (exit code 2)"],
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}),
                vec!["Pod web-1: Unschedulable: 0/1 nodes"],
            ),
            (json!({"phase": "Failed", "reason": "Evicted"}), vec!["Pod web-1: Evicted"]),
            (json!({"phase": "Running", "containerStatuses": [{"name": "app", "state": {"running": {}}}]}), vec![]),
            (json!({"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 0}}}]}), vec![]),
        ];
        for (status, expected) in cases {
            let pod = json!({"metadata": {"name": "web-1"}, "status": status});
            let found: Vec<String> = troubles(&workload(), &pod).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{pod}");
        }
    }

    #[test]
    fn selectors_select_as_the_api_does() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let cases = [
            (json!({"matchLabels": {"app": "web"}}), Some(true)),
            (json!({"matchLabels": {"app": "db"}}), Some(false)),
            (json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "back"]}]}), Some(true)),
            (json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}), Some(false)),
            (json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), Some(true)),
            (json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]}), Some(false)),
            (json!({"app": "web"}), Some(true)),
            (json!({}), None),
        ];
        for (selector, expected) in cases {
            let found = Selector::of(&json!({"spec": {"selector": selector}})).map(|it| it.matches(&pod));
            assert_eq!(found, expected, "{selector}");
        }
    }
}
