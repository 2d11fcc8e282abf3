//! Rows Q-a to Q-i, and B of the contexts: what waits becomes how many runs, and what a run is told.
//!
//! There, tasks that wait are combined into lists of contexts. Here a hook has at most one waiting run for each reason, so
//! there is nothing to compact, and one hook never takes what another waits for.

use std::time::Duration;

use barbless_domain::effect::Effect;
use barbless_domain::event::{Answer, Desired, Event, Failure, Loaded, Rendered};
use barbless_domain::hook::{Binding, Change, HookDeclaration, KubernetesBinding, Projection, Trigger, WatchEventType};
use barbless_domain::identity::ApplicationId;
use barbless_domain::pipeline::{App, step};
use barbless_domain::queue::{Backoff, Ticket, Time};
use barbless_domain::run::SnapshotState;
use barbless_domain::snapshot::{Projected, SnapshotStore};
use serde_json::{Value, json};

fn binding() -> KubernetesBinding {
    serde_json::from_value(json!({
        "name": "objects", "apiVersion": "v1", "kind": "ConfigMap", "filter": "whole",
        "executeOnEvents": ["Added", "Modified", "Deleted"],
        "executeOnSynchronization": false, "waitForSynchronization": false,
    }))
    .unwrap()
}

fn hook(name: &str, queue: &str, allow_failure: bool) -> HookDeclaration {
    let bindings = vec![Binding::Kubernetes(binding())];
    HookDeclaration { name: name.to_owned(), bindings, queue: queue.to_owned(), allow_failure, rate_limit: None }
}

/// An application at rest, and the runs that were asked for.
struct Line {
    app: App,
    now: Time,
    running: Vec<(Ticket, String)>,
    runs: Vec<String>,
}

impl Line {
    fn new(hooks: &[HookDeclaration]) -> Self {
        let app = App::new(ApplicationId::new("demo", "rows").unwrap());
        let mut line = Self { app, now: Time(1_000_000), running: Vec::new(), runs: Vec::new() };
        let desired = Desired { version: "1.0.0".to_owned(), settings: json!({}), ..Desired::default() };
        let mut events = vec![Event::Observed(desired)];
        while let Some(event) = events.pop() {
            for effect in line.take(event) {
                let Some(ticket) = effect.ticket() else { continue };
                let answer = match effect {
                    Effect::Load { version, .. } => {
                        Answer::Loaded(Loaded { version, hooks: hooks.to_vec(), release: false, installed: None })
                    }
                    Effect::CheckRequirements { .. } => Answer::Requirements(vec![]),
                    Effect::Render { .. } => {
                        Answer::Rendered(Rendered { digest: "d".to_owned(), released: None, missing: 0 })
                    }
                    _ => Answer::Done,
                };
                events.push(Event::Answered(ticket, answer));
            }
        }
        line
    }

    fn take(&mut self, event: Event) -> Vec<Effect> {
        let (app, effects) = step(self.app.clone(), event, self.now);
        self.app = app;
        for effect in &effects {
            if let Effect::RunHook { ticket, hook, trigger, .. } = effect {
                let many = if let Trigger::Events(changes) = trigger { changes.len() } else { 1 };
                self.runs.push(format!("{hook} {} {many}", trigger.as_str()));
                self.running.push((*ticket, hook.clone()));
            }
        }
        effects
    }

    /// `E` is an event of an object of its own, `S` a schedule.
    fn due(&mut self, hook: &str, why: &str) {
        let number = self.runs.len() + self.app.hook_queues().values().map(|queue| queue.len()).sum::<usize>();
        self.now = self.now.after(Duration::from_micros(1_000));
        let event = if why == "S" {
            Event::ScheduleDue { hook: hook.to_owned(), schedule: "s".to_owned() }
        } else {
            let name = format!("{number}-{}", self.now.0);
            let change = Change {
                binding: "objects".to_owned(),
                event: WatchEventType::Added,
                namespace: "demo".to_owned(),
                name,
                last: None,
            };
            Event::ObjectsChanged { hook: hook.to_owned(), changes: vec![change] }
        };
        self.take(event);
    }

    fn answer(&mut self, answer: Answer) {
        let (ticket, _) = self.running.remove(0);
        self.take(Event::Answered(ticket, answer));
    }

    /// Until nothing runs and nothing waits; what ran.
    fn end(&mut self) -> Vec<String> {
        self.now = self.now.after(Duration::from_secs(1));
        self.take(Event::Tick);
        while !self.running.is_empty() {
            self.answer(Answer::HookRan { values_changed: false });
        }
        std::mem::take(&mut self.runs)
    }
}

#[test]
fn q_a_c_d_what_waits_for_a_reason_is_one_run() {
    let mut line = Line::new(&[hook("h1", "main", false), hook("h2", "main", false)]);
    line.due("h1", "E");
    line.now = line.now.after(Duration::from_secs(1));
    line.take(Event::Tick);
    for (hook, why) in [("h1", "E"), ("h1", "S"), ("h1", "E"), ("h2", "E"), ("h1", "E"), ("h1", "S")] {
        line.due(hook, why);
    }
    assert_eq!(line.end(), ["h1 event 1", "h1 event 3", "h1 schedule 1", "h2 event 1"]);
}

#[test]
fn q_b_hooks_are_not_combined() {
    let mut line = Line::new(&["h1", "h2", "h3"].map(|name| hook(name, "main", false)));
    for name in ["h1", "h2", "h3"] {
        line.due(name, "E");
    }
    assert_eq!(line.end(), ["h1 event 1", "h2 event 1", "h3 event 1"]);
}

#[test]
fn q_e_a_long_queue_needs_no_compaction() {
    let mut line = Line::new(&[hook("h1", "main", false), hook("h2", "main", false)]);
    for _ in 0..500 {
        line.due("h1", "E");
        line.due("h2", "E");
    }
    let waiting: usize = line.app.hook_queues().values().map(|queue| queue.len()).sum();
    assert!(waiting <= 4, "one under way and one waiting for each: {waiting}");
    let runs = line.end();
    assert!(runs.len() <= 4, "{runs:?}");
}

#[test]
fn q_f_g_runs_of_a_queue_follow_each_other_and_queues_do_not() {
    let mut line = Line::new(&[hook("h1", "main", false), hook("h2", "main", false), hook("h3", "side", false)]);
    line.due("h1", "S");
    line.due("h2", "S");
    line.due("h3", "S");
    assert_eq!(line.runs, ["h1 schedule 1", "h3 schedule 1"]);
    // What asks for another run of itself comes after those who wait.
    line.due("h1", "S");
    assert_eq!(line.end(), ["h1 schedule 1", "h3 schedule 1", "h2 schedule 1", "h1 schedule 1"]);
}

#[test]
fn q_h_the_pause_after_failures() {
    let waits = (1..=5).map(|failures| Backoff::HOOK.wait(failures, None).as_secs()).collect::<Vec<_>>();
    // There: 5 s to 32 s, at random.
    assert_eq!(waits, [15, 30, 60, 60, 60]);
}

#[test]
fn q_i_a_hook_that_may_fail_is_dropped_alone() {
    let mut line = Line::new(&[hook("may", "main", true), hook("must", "main", false)]);
    line.due("may", "S");
    line.due("may", "E");
    line.due("must", "S");
    let failed = || Answer::Failed(Failure::new("Broken", "it broke"));
    line.answer(failed());
    assert_eq!(line.runs, ["may schedule 1", "must schedule 1"], "the event is not dropped with the schedule");
    line.answer(failed());
    line.now = line.now.after(Duration::from_secs(15));
    assert_eq!(line.end(), ["may schedule 1", "must schedule 1", "must schedule 1", "may event 1"]);
}

fn shown(trigger: &Trigger) -> Value {
    serde_json::to_value(trigger).unwrap()
}

#[test]
fn b01_to_b05_a_run_is_told_why_in_one_of_four_ways() {
    use barbless_domain::hook::Stage;
    assert_eq!(shown(&Trigger::Lifecycle(Stage::OnStartup)), json!({"lifecycle": "onStartup"}));
    assert_eq!(shown(&Trigger::Schedule("every-5m".to_owned())), json!({"schedule": "every-5m"}));
    let names = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(shown(&Trigger::Synchronization(names)), json!({"synchronization": ["a", "b"]}));
    let change = Change {
        binding: "objects".to_owned(),
        event: WatchEventType::Added,
        namespace: "demo".to_owned(),
        name: "o".to_owned(),
        last: None,
    };
    let expected = json!({"events": [{"binding": "objects", "event": "Added", "namespace": "demo", "name": "o"}]});
    assert_eq!(shown(&Trigger::Events(vec![change])), expected);
}

#[test]
fn b06_b09_b13_snapshots_are_ordered_by_namespace_and_name_and_may_be_empty() {
    let mut store = SnapshotStore::new(&binding());
    assert!(matches!(store.view(), SnapshotState::NotSynchronised(_)), "there is no empty list before the first one");
    store.replace(Vec::new());
    let SnapshotState::Ready(empty) = store.view() else { panic!("synchronised") };
    assert_eq!(serde_json::to_value(&*empty).unwrap(), json!({"items": []}));
    let objects = [
        ("default", "pod-qwe"),
        ("kube-system", "kube-proxy-lh65x"),
        ("kube-system", "kube-proxy-rkrr7"),
        ("kube-system", "kindnet-bcpzg"),
        ("default", "registry-proxy"),
        ("kube-system", "coredns"),
        ("kube-system", "kube-apiserver"),
    ];
    let projected = |(namespace, name): &(&str, &str)| Projected {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
        projection: Value::Null,
        object: None,
    };
    store.replace(objects.iter().map(projected).collect());
    let SnapshotState::Ready(view) = store.view() else { panic!("synchronised") };
    let names: Vec<&str> = view.items.iter().map(|item| item.name.as_str()).collect();
    let expected = [
        "pod-qwe",
        "registry-proxy",
        "coredns",
        "kindnet-bcpzg",
        "kube-apiserver",
        "kube-proxy-lh65x",
        "kube-proxy-rkrr7",
    ];
    assert_eq!(names, expected);
}

#[test]
fn b07_b10_b12_an_item_has_its_projection_and_the_object_if_it_is_kept() {
    let object = json!({"metadata": {"name": "o", "managedFields": [1]}, "spec": "asd"});
    let project = |projection: &Projection| barbless_domain::snapshot::project(projection, &object);
    assert_eq!(project(&Projection::Whole), Some(json!({"metadata": {"name": "o"}, "spec": "asd"})));
    let fields = Projection::Fields(vec!["/spec".to_owned(), "/status".to_owned()]);
    assert_eq!(project(&fields), Some(json!({"/spec": "asd", "/status": null})), "the key is there");
    let item = |object: Option<Value>| {
        let mut store = SnapshotStore::new(&binding());
        let projection = json!("asd");
        store.replace(vec![Projected { namespace: String::new(), name: "o".to_owned(), projection, object }]);
        let SnapshotState::Ready(view) = store.view() else { panic!("synchronised") };
        serde_json::to_value(&view.items[0]).unwrap()
    };
    assert_eq!(item(None), json!({"namespace": "", "name": "o", "projection": "asd"}));
    assert_eq!(item(Some(json!({"a": 1})))["object"], json!({"a": 1}));
}
