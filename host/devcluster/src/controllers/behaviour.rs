//! What the annotations of an object say of its workload, since nothing runs here that could say it.
//!
//! The words are documented at the crate; an annotation is looked for on the Pod and on the controllers above it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Context, NODE, controller_of, pods::NODES};
use crate::json::{at, list, text};

/// Annotations by which an object says how its workload behaves.
pub(super) mod knob {
    pub(crate) const PREFIX: &str = "devcluster.barbless.dev/";
    pub(super) const RUN: &str = "devcluster.barbless.dev/run";
    pub(super) const EXIT_CODE: &str = "devcluster.barbless.dev/exit-code";
    pub(super) const AFTER: &str = "devcluster.barbless.dev/after";
    pub(super) const CONTAINER: &str = "devcluster.barbless.dev/container";
    pub(super) const FAILURES: &str = "devcluster.barbless.dev/failures";
    pub(super) const STOP_AFTER: &str = "devcluster.barbless.dev/stop-after";
    // Older, shorter words.
    pub(super) const FAIL: &str = "devcluster.barbless.dev/fail";
    pub(crate) const HANG: &str = "devcluster.barbless.dev/hang";
    pub(super) const DELAY: &str = "devcluster.barbless.dev/delay";
}

/// How a Pod ends, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// It becomes ready, or ends well when it is meant to end.
    Succeed,
    /// Its container ends with an exit code; the restart policy decides what follows.
    Fail,
    /// It runs and does nothing: it neither ends nor becomes ready.
    Hang,
    /// Its image cannot be fetched.
    ImagePull,
    /// Its containers are never made.
    Pending,
    /// No node has room for it.
    Unschedulable,
}

/// All that is asked of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) run: Run,
    pub(super) exit_code: i64,
    /// How long the containers run before it happens, beyond what every Pod needs.
    pub(super) after: Duration,
    /// The container it is about; `None` is all that are not for initialisation.
    pub(super) container: Option<String>,
    /// How often it goes wrong before it goes well; `None` is always.
    pub(super) failures: Option<u64>,
}

/// What stands around a Pod, as far as it matters to what the Pod does.
pub trait Surroundings {
    /// The object with this uid, if there is one.
    fn object(&self, uid: &str) -> Option<Value>;
    /// How many Pods that this object owns have failed.
    fn failed_pods_of(&self, uid: &str) -> u64;

    /// Why the node takes no such Pod, as a scheduler says it; `None` when it does.
    fn refusal(&self, _pod: &Value) -> Option<String> {
        None
    }
}

/// The value of an annotation of an object or of the controllers above it.
pub(super) fn knob(around: &dyn Surroundings, object: &Value, name: &str) -> Option<String> {
    let value_of =
        |object: &Value| at(object, &["metadata", "annotations", name]).and_then(Value::as_str).map(str::to_owned);
    if let Some(value) = value_of(object) {
        return Some(value);
    }
    let mut uid = text(controller_of(object)?, &["uid"]).to_owned();
    // A Pod has at most two controllers above it (ReplicaSet, Deployment).
    for _ in 0..3 {
        let above = around.object(&uid)?;
        if let Some(value) = value_of(&above) {
            return Some(value);
        }
        text(controller_of(&above)?, &["uid"]).clone_into(&mut uid);
    }
    None
}

fn is_set(around: &dyn Surroundings, object: &Value, name: &str) -> bool {
    knob(around, object, name).is_some_and(|value| !matches!(value.as_str(), "" | "false" | "0"))
}

fn duration(around: &dyn Surroundings, object: &Value, name: &str) -> Option<Duration> {
    knob(around, object, name).and_then(|text| parse_duration(&text))
}

/// How long a Pod that is deleted takes to end.
pub(super) fn stop_after(around: &dyn Surroundings, pod: &Value) -> Duration {
    duration(around, pod, knob::STOP_AFTER).unwrap_or_default()
}

pub(super) fn behaviour(around: &dyn Surroundings, pod: &Value) -> Behaviour {
    let number = |name: &str| knob(around, pod, name).and_then(|value| value.trim().parse::<i64>().ok());
    let run = match knob(around, pod, knob::RUN).as_deref() {
        Some("fail" | "crash") => Run::Fail,
        Some("hang") => Run::Hang,
        Some("image-pull") => Run::ImagePull,
        Some("pending") => Run::Pending,
        Some("unschedulable") => Run::Unschedulable,
        Some("succeed") => Run::Succeed,
        _ if is_set(around, pod, knob::FAIL) => Run::Fail,
        _ if is_set(around, pod, knob::HANG) => Run::Pending,
        _ => Run::Succeed,
    };
    let after = duration(around, pod, knob::AFTER).or_else(|| duration(around, pod, knob::DELAY));
    Behaviour {
        run,
        // The older word has the code as its value.
        exit_code: number(knob::EXIT_CODE).or_else(|| number(knob::FAIL)).filter(|code| *code != 0).unwrap_or(1),
        after: after.unwrap_or_default(),
        container: knob(around, pod, knob::CONTAINER).filter(|name| !name.is_empty()),
        failures: number(knob::FAILURES).and_then(|n| u64::try_from(n).ok()),
    }
}

/// The knobs of an object itself, to see whether they changed.
pub(super) fn knobs(object: &Value) -> Vec<(&str, &Value)> {
    let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
    let all = annotations.into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    all.filter(|(key, _)| key.starts_with(knob::PREFIX)).collect()
}

impl Surroundings for Context {
    fn object(&self, uid: &str) -> Option<Value> {
        Some(self.registry.store.by_uid(uid)?.1.value.clone())
    }

    fn failed_pods_of(&self, uid: &str) -> u64 {
        let siblings = self.registry.store.dependents(uid);
        let failed = siblings.iter().filter(|((table, _), sibling)| {
            &**table == super::pods::PODS && text(&sibling.value, &["status", "phase"]) == "Failed"
        });
        u64::try_from(failed.count()).unwrap_or(u64::MAX)
    }

    fn refusal(&self, pod: &Value) -> Option<String> {
        let node = self.registry.store.get(NODES, "", NODE)?;
        let unschedulable = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        let cordoned = at(&node.value, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
        if cordoned && !tolerates(pod, &unschedulable) {
            return Some("1 node(s) were unschedulable".to_owned());
        }
        let refusing = |taint: &&Value| matches!(text(taint, &["effect"]), "NoSchedule" | "NoExecute");
        let taint = list(&node.value, &["spec", "taints"]).iter().filter(refusing).find(|it| !tolerates(pod, it))?;
        let (key, value) = (text(taint, &["key"]), text(taint, &["value"]));
        Some(format!("1 node(s) had untolerated taint {{{key}: {value}}}"))
    }
}

/// Whether a Pod tolerates a taint of a node.
fn tolerates(pod: &Value, taint: &Value) -> bool {
    list(pod, &["spec", "tolerations"]).iter().any(|toleration| {
        let part = |field: &str| text(toleration, &[field]);
        let effect = part("effect").is_empty() || part("effect") == text(taint, &["effect"]);
        let exists = part("operator") == "Exists";
        let key = part("key") == text(taint, &["key"]) || (part("key").is_empty() && exists);
        effect && key && (exists || part("value") == text(taint, &["value"]))
    })
}

impl Context {
    /// Whether something that is no Pod (a claim, a Service, an Ingress) shall never get what it waits for.
    fn never(&self, object: &Value) -> bool {
        is_set(self, object, knob::HANG)
            || knob(self, object, knob::RUN).is_some_and(|run| matches!(run.as_str(), "hang" | "pending"))
    }

    /// When something that is no Pod gets what it waits for; `None` is never. What is not slow gets it at once.
    pub(super) fn due(&self, object: &Value) -> Option<Instant> {
        if self.never(object) {
            return None;
        }
        let after = duration(self, object, knob::AFTER).unwrap_or_default();
        if after.is_zero() {
            return Some(Instant::now());
        }
        let created = text(object, &["metadata", "creationTimestamp"]);
        Some(self.clocks.began(text(object, &["metadata", "uid"]), "due", created) + after)
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
    // A bound, so that adding it to the clock cannot overflow.
    .map(|delay| delay.min(Duration::from_secs(24 * 3600)))
}
