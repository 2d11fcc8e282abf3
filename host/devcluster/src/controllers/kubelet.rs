//! How the states of a Pod look in its status, as the kubelet writes them. Pure.

use serde_json::{Value, json};

use super::{behaviour::Behaviour, condition, is_true, make_condition};
use crate::json::{self, at, int, list, set, text};

/// The first wait of a kubelet before a container is started again, and the longest.
const BACK_OFF_FIRST_SECONDS: u32 = 10;
const BACK_OFF_MAX_SECONDS: u32 = 300;

/// What a Pod that is on a node shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its containers are being made.
    Creating,
    /// All containers run and are ready.
    Working,
    /// The container in question runs and is not ready.
    Unready,
    /// The container in question has ended badly and will be started again.
    Exited,
    /// The container in question waits for its next start.
    BackOff,
    PullError,
    PullBackOff,
    Succeeded,
    Failed,
}

/// Whether this is the name of an init container that has to end before the others start.
pub(super) fn is_init(pod: &Value, name: Option<&str>) -> bool {
    let init = |container: &Value| Some(text(container, &["name"])) == name && !is_sidecar(container);
    list(pod, &["spec", "initContainers"]).iter().any(init)
}

fn is_sidecar(init_container: &Value) -> bool {
    text(init_container, &["restartPolicy"]) == "Always"
}

/// Ten seconds, doubled for each earlier try, at most five minutes.
pub(super) fn back_off_seconds(earlier_tries: u32) -> u32 {
    let factor = 1_u32.checked_shl(earlier_tries).unwrap_or(u32::MAX);
    BACK_OFF_FIRST_SECONDS.saturating_mul(factor).min(BACK_OFF_MAX_SECONDS)
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, &["status", "initContainerStatuses"]).iter().chain(list(pod, &["status", "containerStatuses"]))
}

fn waits_for(status: &Value, reason: &str) -> bool {
    text(status, &["state", "waiting", "reason"]) == reason
}

fn failed(status: &Value) -> bool {
    int(status, &["state", "terminated", "exitCode"]).is_some_and(|code| code != 0)
}

/// How often a container of the Pod has ended badly.
pub(super) fn exits(pod: &Value) -> u32 {
    let of = |status: &Value| {
        let restarts = int(status, &["restartCount"]).and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
        restarts.saturating_add(u32::from(failed(status) || waits_for(status, "CrashLoopBackOff")))
    };
    statuses(pod).map(of).max().unwrap_or_default()
}

/// How often the containers of the Pod were started again.
pub(super) fn restarts(pod: &Value) -> i64 {
    statuses(pod).filter_map(|status| int(status, &["restartCount"])).fold(0, i64::saturating_add)
}

/// What the status of a Pod says; `None` before it says anything.
pub(super) fn shown(pod: &Value) -> Option<Shown> {
    let any = |test: &dyn Fn(&Value) -> bool| statuses(pod).any(test);
    let waiting = |reason: &'static str| any(&|status| waits_for(status, reason));
    statuses(pod).next()?;
    Some(match text(pod, &["status", "phase"]) {
        "Succeeded" => Shown::Succeeded,
        "Failed" => Shown::Failed,
        _ if waiting("ErrImagePull") => Shown::PullError,
        _ if waiting("ImagePullBackOff") => Shown::PullBackOff,
        _ if waiting("CrashLoopBackOff") => Shown::BackOff,
        _ if any(&failed) => Shown::Exited,
        _ if waiting("ContainerCreating") => Shown::Creating,
        _ if is_true(pod, "Ready") => Shown::Working,
        _ if any(&|status| at(status, &["state", "running"]).is_some()) => Shown::Unready,
        _ => Shown::Creating,
    })
}

/// The part of a container in what a Pod shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is the one in question.
    Subject,
    /// It does what a good container does at this time.
    Bystander,
    /// An init container before it is not done.
    Blocked,
}

/// The whole status of a Pod that shows this. `address` gives it an address when it needs one.
pub(super) fn status(pod: &Value, behaviour: &Behaviour, shown: Shown, address: impl FnOnce() -> String) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let now = json::now();
    let subject = behaviour.container.as_deref();
    let blocking = is_init(pod, subject) && !matches!(shown, Shown::Working | Shown::Succeeded);
    let name_of = |container: &Value| text(container, &["name"]).to_owned();
    let mut passed = false;
    let mut render = |field: &str, known: &str, init: bool| {
        let mut out = Vec::new();
        for container in list(pod, &["spec", field]) {
            let name = name_of(container);
            let named = subject == Some(name.as_str());
            let part = match () {
                () if named || (subject.is_none() && !init) => Part::Subject,
                () if blocking && (!init || passed) => Part::Blocked,
                () => Part::Bystander,
            };
            passed |= named;
            let old = list(pod, &["status", known]).iter().find(|c| text(c, &["name"]) == name);
            let view = View { pod, container, old, shown, part, init, code: behaviour.exit_code, now: &now };
            out.push(view.status());
        }
        out
    };
    let inits = render("initContainers", "initContainerStatuses", true);
    let mains = render("containers", "containerStatuses", false);
    let running = mains.iter().any(|c| at(c, &["state", "waiting"]).is_none() || !text(c, &["containerID"]).is_empty());
    let phase = match shown {
        Shown::Succeeded => "Succeeded",
        Shown::Failed => "Failed",
        Shown::Creating | Shown::PullError | Shown::PullBackOff => "Pending",
        _ if blocking || !running => "Pending",
        _ => "Running",
    };
    set(&mut status, &["phase"], json!(phase));
    let conditions = conditions(pod, shown, blocking, &inits, &mains);
    set(&mut status, &["conditions"], Value::Array(conditions));
    json::default(&mut status, &["startTime"], json!(now));
    set(&mut status, &["hostIP"], json!("10.0.0.1"));
    set(&mut status, &["hostIPs"], json!([{"ip": "10.0.0.1"}]));
    if shown != Shown::Creating && text(&status, &["podIP"]).is_empty() {
        let address = address();
        set(&mut status, &["podIPs"], json!([{"ip": address}]));
        set(&mut status, &["podIP"], json!(address));
    }
    set(&mut status, &["containerStatuses"], json!(mains));
    if !inits.is_empty() {
        set(&mut status, &["initContainerStatuses"], json!(inits));
    }
    status
}

/// What the kubelet tells of containers that this status shows to have been started since the Pod was last written.
pub(super) fn starts(pod: &Value, status: &Value) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for (field, known) in [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")] {
        for container in list(pod, &["spec", field]) {
            let name = text(container, &["name"]);
            let find = |statuses: &'_ [Value]| {
                let found = statuses.iter().find(|it| text(it, &["name"]) == name);
                found.map(|it| text(it, &["containerID"]).to_owned()).unwrap_or_default()
            };
            let (before, now) = (find(list(pod, &["status", known])), find(list(status, &[known])));
            if now.is_empty() || now == before {
                continue;
            }
            let image = text(container, &["image"]);
            let present =
                format!("Container image {image:?} already present on machine and can be accessed by the pod");
            out.push(("Pulled", present));
            out.push(("Created", "Container created".to_owned()));
            out.push(("Started", "Container started".to_owned()));
        }
    }
    out
}

/// What the kubelet warns of when a Pod begins to show this: reasons and messages.
pub(super) fn warnings(pod: &Value, behaviour: &Behaviour, shown: Shown) -> Vec<(&'static str, String)> {
    let subject = behaviour.container.as_deref();
    let named = |container: &&Value| subject.is_none_or(|name| text(container, &["name"]) == name);
    let containers = list(pod, &["spec", "containers"]).iter();
    // Without a name it is about the containers that are not for initialisation.
    let inits = list(pod, &["spec", "initContainers"]).iter().filter(|_| subject.is_some());
    let mut out = Vec::new();
    for container in containers.chain(inits).filter(named) {
        let (name, image) = (text(container, &["name"]), text(container, &["image"]));
        match shown {
            Shown::PullError => {
                let why = format!("failed to pull and unpack image {image:?}: not found");
                out.push(("Failed", format!("Failed to pull image {image:?}: {why}")));
                out.push(("Failed", "Error: ErrImagePull".to_owned()));
            }
            Shown::PullBackOff => out.push(("BackOff", format!("Back-off pulling image {image:?}"))),
            Shown::BackOff => {
                let part = |field: &str| text(pod, &["metadata", field]);
                let of = format!("{name} in pod {}_{}({})", part("name"), part("namespace"), part("uid"));
                out.push(("BackOff", format!("Back-off restarting failed container {of}")));
            }
            _ => {}
        }
    }
    out
}

fn conditions(pod: &Value, shown: Shown, blocking: bool, inits: &[Value], mains: &[Value]) -> Vec<Value> {
    let not_ready = |statuses: &[Value]| {
        let names = statuses.iter().filter(|c| c.get("ready") != Some(&Value::Bool(true)));
        names.map(|c| text(c, &["name"]).to_owned()).collect::<Vec<_>>().join(" ")
    };
    let (initialising, unready) = (not_ready(inits), not_ready(mains));
    let initialised = initialising.is_empty() && !blocking;
    let (ready, reason, message) = match shown {
        Shown::Succeeded => (false, "PodCompleted", String::new()),
        Shown::Failed => (false, "PodFailed", String::new()),
        _ if unready.is_empty() => (true, "", String::new()),
        _ => (false, "ContainersNotReady", format!("containers with unready status: [{unready}]")),
    };
    let initialised = if initialised {
        make_condition(pod, "Initialized", true, if shown == Shown::Succeeded { "PodCompleted" } else { "" }, "")
    } else {
        let message = format!("containers with incomplete status: [{initialising}]");
        make_condition(pod, "Initialized", false, "ContainersNotInitialized", &message)
    };
    let sandbox = !matches!(shown, Shown::Creating | Shown::Succeeded | Shown::Failed);
    let mut conditions = vec![
        make_condition(pod, "PodReadyToStartContainers", sandbox, "", ""),
        initialised,
        make_condition(pod, "Ready", ready, reason, &message),
        make_condition(pod, "ContainersReady", ready, reason, &message),
        make_condition(pod, "PodScheduled", true, "", ""),
    ];
    for gate in list(pod, &["spec", "readinessGates"]) {
        conditions.push(make_condition(pod, text(gate, &["conditionType"]), ready, "", ""));
    }
    // What others wrote (a disruption, for example) stays.
    let ours = conditions.iter().map(|c| text(c, &["type"]).to_owned()).collect::<Vec<_>>();
    for other in list(pod, &["status", "conditions"]) {
        let kind = text(other, &["type"]);
        if !ours.iter().any(|known| known == kind) {
            conditions.extend(condition(pod, kind).cloned());
        }
    }
    conditions
}

/// One container at one time.
struct View<'a> {
    pod: &'a Value,
    container: &'a Value,
    old: Option<&'a Value>,
    shown: Shown,
    part: Part,
    init: bool,
    code: i64,
    now: &'a str,
}

impl View<'_> {
    fn name(&self) -> &str {
        text(self.container, &["name"])
    }

    fn was(&self, path: &[&str]) -> Option<&Value> {
        self.old.and_then(|old| at(old, path))
    }

    /// The container starts anew after having waited for it.
    fn restarts_now(&self, state: &Value) -> bool {
        self.old.is_some_and(|old| waits_for(old, "CrashLoopBackOff")) && state.get("waiting").is_none()
    }

    fn waiting(reason: &str, message: &str) -> Value {
        let mut waiting = json!({"reason": reason});
        if !message.is_empty() {
            set(&mut waiting, &["message"], json!(message));
        }
        json!({"waiting": waiting})
    }

    fn running(&self) -> Value {
        let since = self.was(&["state", "running", "startedAt"]).cloned().unwrap_or_else(|| json!(self.now));
        json!({"running": {"startedAt": since}})
    }

    fn terminated(&self, code: i64, id: &str) -> Value {
        if let Some(same) = self.was(&["state", "terminated"]).filter(|t| int(t, &["exitCode"]) == Some(code)) {
            return json!({"terminated": same});
        }
        let started = self.was(&["state", "running", "startedAt"]).cloned().unwrap_or_else(|| json!(self.now));
        json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
            "startedAt": started, "finishedAt": self.now, "containerID": id}})
    }

    /// The state, and whether the container counts as ready.
    fn state(&self, id: &str) -> (Value, bool) {
        let image = text(self.container, &["image"]);
        let sidecar = self.init && is_sidecar(self.container);
        let ends = self.init && !sidecar;
        let not_made = || (Self::waiting(if self.init { "PodInitializing" } else { "ContainerCreating" }, ""), false);
        match (self.part, self.shown) {
            (Part::Blocked, _) => (Self::waiting("PodInitializing", ""), false),
            (_, Shown::Creating) => not_made(),
            // Init containers have ended well when the others run.
            (_, Shown::Working | Shown::Succeeded) | (Part::Bystander, _) if ends => (self.terminated(0, id), true),
            (_, Shown::Working) => (self.running(), true),
            (_, Shown::Succeeded) | (Part::Bystander, Shown::Failed) => (self.terminated(0, id), false),
            (Part::Bystander, _) => (self.running(), true),
            (Part::Subject, Shown::Unready) => (self.running(), false),
            (Part::Subject, Shown::Failed | Shown::Exited) => (self.terminated(self.code, id), false),
            (Part::Subject, Shown::BackOff) => {
                let earlier = self.was(&["restartCount"]).and_then(Value::as_u64).unwrap_or_default();
                let seconds = back_off_seconds(u32::try_from(earlier).unwrap_or(u32::MAX));
                let wait = if seconds == BACK_OFF_MAX_SECONDS { "5m0s".to_owned() } else { format_seconds(seconds) };
                let part = |field: &str| text(self.pod, &["metadata", field]);
                let message = format!(
                    "back-off {wait} restarting failed container={} pod={}_{}({})",
                    self.name(),
                    part("name"),
                    part("namespace"),
                    part("uid")
                );
                (Self::waiting("CrashLoopBackOff", &message), false)
            }
            (Part::Subject, Shown::PullError) => {
                let message = format!("failed to pull and unpack image {image:?}: not found");
                (Self::waiting("ErrImagePull", &message), false)
            }
            (Part::Subject, Shown::PullBackOff) => {
                let message = format!(
                    "Back-off pulling image {image:?}: ErrImagePull: failed to pull and unpack image {image:?}: not found"
                );
                (Self::waiting("ImagePullBackOff", &message), false)
            }
        }
    }

    /// What was shown before, if it was an end.
    fn last_state(&self, state: &Value) -> Value {
        match self.was(&["state", "terminated"]) {
            Some(ended) if state.get("terminated") != Some(ended) => json!({"terminated": ended}),
            _ => self.was(&["lastState"]).cloned().unwrap_or_else(|| json!({})),
        }
    }

    fn status(&self) -> Value {
        let image = text(self.container, &["image"]);
        let fresh = || format!("none://{}", uuid::Uuid::new_v4().simple());
        let known = self.was(&["containerID"]).and_then(Value::as_str).filter(|id| !id.is_empty());
        let mut id = known.map_or_else(fresh, str::to_owned);
        let (mut state, ready) = self.state(&id);
        let mut restarts = self.was(&["restartCount"]).and_then(Value::as_i64).unwrap_or_default();
        if self.restarts_now(&state) {
            restarts = restarts.saturating_add(1);
            id = fresh();
            (state, _) = self.state(&id);
        }
        let last = self.last_state(&state);
        let started = state.get("running").is_some();
        let made = state.get("waiting").is_none() || last.get("terminated").is_some();
        let mut status = json!({
            "name": self.name(), "image": image, "imageID": "", "ready": ready,
            "started": started, "restartCount": restarts, "state": state, "lastState": last,
        });
        if made {
            set(&mut status, &["imageID"], json!(format!("none://{image}")));
            set(&mut status, &["containerID"], json!(id));
        }
        status
    }
}

/// Seconds as Go writes a duration.
fn format_seconds(seconds: u32) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
