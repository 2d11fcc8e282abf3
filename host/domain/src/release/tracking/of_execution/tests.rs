use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::grant::Scope;
use crate::identity::ApplicationId;
use crate::release::{InventoryItem, PlanInput, ReleaseAction, RemovalInput, Rendered, plan, plan_removal};

fn object(api_version: &str, kind: &str, name: &str, annotations: Value) -> Value {
    let mut metadata = json!({"name": name});
    metadata["annotations"] = annotations;
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

fn application() -> ApplicationId {
    ApplicationId::new("demo", "web").unwrap()
}

fn upgrade(objects: Vec<Value>, previous: &[Value]) -> Plan {
    let application = application();
    let rendered = objects.into_iter().map(|object| Rendered { object, source: "templates/all.yaml".to_owned() });
    let previous = InventoryItem::of_objects(previous);
    let input = PlanInput {
        application: &application,
        package: "site",
        action: ReleaseAction::Upgrade,
        rendered: rendered.collect(),
        definitions: Vec::new(),
        previous: &previous,
        maintenance: false,
        skip_hooks: false,
    };
    plan(input, |_| Some(Scope::Namespaced), |_| false).unwrap()
}

/// `3 TrackReadiness Deployment/web Pending <1,2`.
fn lines(tracking: &Tracking) -> Vec<String> {
    let line = |it: &TrackedOperation| {
        let about = if it.kind.is_empty() { it.name.clone() } else { format!("{}/{}", it.kind, it.name) };
        let after = if it.depends_on.is_empty() { String::new() } else { format!(" <{}", it.depends_on.join(",")) };
        format!("{} {:?} {about} {:?}{after}", it.id, it.r#type, it.status)
    };
    tracking.operations.iter().map(line).collect()
}

fn shown(execution: &Execution<'_>) -> Vec<String> {
    lines(&Tracking::of_execution(execution, |_| false))
}

#[test]
fn every_step_is_an_operation_of_the_number_that_the_plan_gives_it() {
    let plan = upgrade(
        vec![
            object("batch/v1", "Job", "migrate", json!({"helm.sh/hook": "pre-upgrade"})),
            object("v1", "ConfigMap", "a", json!({})),
            object("v1", "ConfigMap", "b", json!({})),
            object("apps/v1", "Deployment", "web", json!({"x.external-dependency.werf.io/resource": "secret/tls"})),
        ],
        &[object("v1", "ConfigMap", "old", json!({}))],
    );
    let mut execution = Execution::new(&plan);
    let tracking = Tracking::of_execution(&execution, |target| target.name == "web");
    let pending = [
        "0 Apply Job/migrate Pending",
        "1 TrackReadiness Job/migrate Pending <0",
        "2 Apply ConfigMap/a Pending <1",
        "3 TrackReadiness ConfigMap/a Pending <2",
        "4 Apply ConfigMap/b Pending <1",
        "5 TrackReadiness ConfigMap/b Pending <4",
        "6 StageEnd ConfigMap applied Pending <2,4",
        "7 TrackPresence secret/tls Pending",
        "8 Create Deployment/web Pending <6,7",
        "9 TrackReadiness Deployment/web Pending <8",
        "10 StageEnd workloads ready Pending <3,5,8,9",
        "11 Delete ConfigMap/old Pending <10",
        "12 TrackAbsence ConfigMap/old Pending <11",
    ];
    assert_eq!(lines(&tracking), pending);
    assert_eq!((tracking.completed, tracking.remaining), (0, 11), "parts of the plan do not count");
    for (step, operation) in plan.steps.iter().zip(&tracking.operations) {
        let Some(target) = plan.target_of(step) else { continue };
        let gvk = &target.gvk;
        let wanted = (&gvk.group, &gvk.version, &gvk.kind, &target.name, &target.namespace);
        let TrackedOperation { group, version, kind, name, namespace, .. } = operation;
        assert_eq!((group, version, kind, name, namespace), wanted);
    }
    assert_eq!(tracking.operations[7].namespace, "demo");

    // Everything that begins is under way; the rest waits.
    let begun: Vec<u32> = execution.start(10).iter().map(|step| step.id.0).collect();
    assert_eq!(begun, [0, 7]);
    let now = shown(&execution);
    assert_eq!(
        (now[0].as_str(), now[7].as_str()),
        ("0 Apply Job/migrate Progressing", "7 TrackPresence secret/tls Progressing")
    );
    assert_eq!(now[1], pending[1]);
}

#[test]
fn what_was_done_is_said_once_it_is_known() {
    let objects = vec![object("v1", "ConfigMap", "a", json!({}))];
    let plan = upgrade(objects, &[object("v1", "ConfigMap", "old", json!({}))]);
    let cases = [
        ("apply", Outcome::Created, "0 Create ConfigMap/a Completed"),
        ("apply", Outcome::Configured, "0 Apply ConfigMap/a Completed"),
        ("apply", Outcome::Unchanged, "0 NoOp ConfigMap/a Completed"),
        ("apply", Outcome::Recreated, "0 Recreate ConfigMap/a Completed"),
        ("apply", Outcome::Left("kept".to_owned()), "0 NoOp ConfigMap/a Completed"),
        ("delete", Outcome::Deleted, "3 Delete ConfigMap/old Completed <2"),
        ("delete", Outcome::Done, "3 NoOp ConfigMap/old Completed <2"),
        ("delete", Outcome::Left("kept".to_owned()), "3 NoOp ConfigMap/old Completed <2"),
    ];
    for (act, outcome, expected) in cases {
        let mut execution = Execution::new(&plan);
        let step = plan.steps.iter().find(|step| match step.work {
            Work::Apply { .. } => act == "apply",
            Work::Delete { .. } => act == "delete",
            _ => false,
        });
        let step = step.unwrap().id;
        execution.complete(step, outcome.clone());
        assert!(shown(&execution).contains(&expected.to_owned()), "{outcome:?}: {:#?}", shown(&execution));
    }
}

#[test]
fn a_failure_is_shown_with_what_it_keeps_from_happening() {
    let tolerant = json!({"werf.io/fail-mode": "IgnoreAndContinueDeployProcess"});
    let plan = upgrade(
        vec![object("apps/v1", "Deployment", "a", tolerant), object("apps/v1", "Deployment", "b", json!({}))],
        &[],
    );
    let mut execution = Execution::new(&plan);
    while let [step, ..] = execution.start(1)[..] {
        match (&step.work, plan.target_of(step).map(|it| it.name.as_str())) {
            (Work::Ready { .. }, Some("a")) => assert!(!execution.fail(step.id, "crash")),
            (Work::Ready { .. }, Some("b")) => {}
            _ => execution.complete(step.id, Outcome::Created),
        }
    }
    let at =
        |lines: &[String], word: &str| lines.iter().filter(|line| line.contains(word)).cloned().collect::<Vec<_>>();
    let now = shown(&execution);
    assert_eq!(
        at(&now, "TrackReadiness Deployment/a"),
        ["1 TrackReadiness Deployment/a Failed <0"],
        "tolerated, not hidden"
    );
    let b = plan.steps.iter().find(|step| {
        matches!(step.work, Work::Ready { .. }) && plan.target_of(step).is_some_and(|target| target.name == "b")
    });
    assert!(execution.fail(b.unwrap().id, "crash"));
    execution.give_up();
    let tracking = Tracking::of_execution(&execution, |_| false);
    assert_eq!(at(&lines(&tracking), "TrackReadiness Deployment/b"), ["3 TrackReadiness Deployment/b Failed <2"]);
    assert_eq!(at(&lines(&tracking), "StageEnd workloads ready"), ["5 StageEnd workloads ready Canceled <1,3,4"]);
    assert_eq!((tracking.completed, tracking.remaining), (2, 2));
}

#[test]
fn what_nobody_waits_for_is_not_shown_unless_something_comes_after_it() {
    let free = json!({"werf.io/track-termination-mode": "NonBlocking"});
    let alone = upgrade(vec![object("apps/v1", "Deployment", "a", free.clone())], &[]);
    assert_eq!(shown(&Execution::new(&alone)), ["0 Apply Deployment/a Pending"]);
    let dependent = json!({"werf.io/deploy-dependency-a": "state=ready,name=a"});
    let waiting =
        upgrade(vec![object("apps/v1", "Deployment", "a", free), object("v1", "ConfigMap", "b", dependent)], &[]);
    let lines = shown(&Execution::new(&waiting));
    assert!(lines.contains(&"1 TrackReadiness Deployment/a Pending <0".to_owned()), "{lines:#?}");
}

#[test]
fn a_removal_is_shown_too() {
    let inventory = InventoryItem::of_objects(&[
        object("v1", "ConfigMap", "a", json!({})),
        object("apps/v1", "Deployment", "web", json!({})),
    ]);
    let plan = plan_removal(&RemovalInput {
        application: &application(),
        package: "site",
        inventory: &inventory,
        defined: &std::collections::BTreeSet::new(),
        hooks: &BTreeMap::new(),
        skip_hooks: false,
    });
    let mut execution = Execution::new(&plan);
    let step = execution.start(1)[0].id;
    execution.complete(step, Outcome::Deleted);
    execution.start(1);
    assert_eq!(
        shown(&execution),
        [
            "0 Delete Deployment/web Completed",
            "1 TrackAbsence Deployment/web Progressing <0",
            "2 Delete ConfigMap/a Pending <1",
            "3 TrackAbsence ConfigMap/a Pending <2",
        ]
    );
}
