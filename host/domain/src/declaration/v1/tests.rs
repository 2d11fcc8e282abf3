//! The rows C01 to C45 of the reference by their names, and what hostile text may do.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::declaration::Hooks;
use crate::fixtures::{at, hook};
use crate::hook::{KubernetesBinding, LabelOperator, Projection, WatchEventType};

const FILE: &str = "hooks/bindings/shop.yaml";

fn parse(text: &str) -> Result<Configuration, Vec<Problem>> {
    Configuration::parse(FILE, text)
}

/// Reason and path of each problem.
fn refused(text: &str) -> Vec<String> {
    let Err(problems) = parse(text) else { return vec!["nothing".to_owned()] };
    problems.iter().map(|problem| format!("{} {}", problem.reason, problem.path)).collect()
}

/// A configuration in the place of a declaration, and all the checks behind it.
fn in_force(configuration: Configuration) -> Result<Hooks, Vec<Problem>> {
    let mut components = [ComponentDeclarations {
        component: "hooks/a.wasm".to_owned(),
        hooks: vec![hook("shop", vec![at(Stage::AfterHelm, 99)])],
        exports_filter: false,
    }];
    let problems = replace(&mut components, &BTreeMap::from([("shop".to_owned(), configuration)]));
    assert_eq!(problems, []);
    Hooks::check(components.to_vec())
}

fn good(text: &str) -> Configuration {
    let configuration = parse(text).unwrap();
    in_force(configuration.clone()).unwrap();
    configuration
}

impl Configuration {
    fn kubernetes(&self) -> Vec<&KubernetesBinding> {
        let kubernetes = self.bindings.iter().filter_map(|binding| match binding {
            Binding::Kubernetes(kubernetes) => Some(kubernetes),
            _ => None,
        });
        kubernetes.collect()
    }

    fn only(&self) -> &KubernetesBinding {
        let [binding] = self.kubernetes()[..] else { panic!("{self:?}") };
        binding
    }
}

/// Names of the snapshots that go with a binding.
fn snapshots(text: &str, binding: &str) -> Vec<String> {
    let hooks = in_force(parse(text).unwrap()).unwrap();
    let snapshots = hooks.get("shop").unwrap().snapshots_of(binding);
    snapshots.into_iter().map(|binding| binding.name.clone()).collect()
}

/// What is to come of a text.
enum Expected {
    /// All of it is accepted, and this holds.
    Accepted(fn(&Configuration)),
    /// Reason and path of everything that is wrong, in the order of the text.
    Refused(&'static [&'static str]),
}
use Expected::{Accepted, Refused};

const ADDED: WatchEventType = WatchEventType::Added;
const MODIFIED: WatchEventType = WatchEventType::Modified;
const DELETED: WatchEventType = WatchEventType::Deleted;

/// The rows of the reference. A row that consists of several texts has several lines.
const ROWS: &[(&str, &str, Expected)] = &[
    ("C01", r#"{configVersion: "1.0.1-x", onStartup: 1}"#, Refused(&["BadVersion configVersion"])),
    ("C02", r#"{configVersion: "", onStartup: 1}"#, Refused(&["BadVersion configVersion"])),
    ("C03", "{onStartup: 1}", Refused(&["MissingKey "])),
    ("C03", "{configVersion: v0, onStartup: 1}", Refused(&["BadVersion configVersion"])),
    ("C03", "{configVersion: null, onStartup: 1}", Refused(&["MissingKey configVersion"])),
    ("C03", "{configVersion: 1, onStartup: 1}", Refused(&["BadType configVersion"])),
    (
        "C04",
        "{configVersion: v1, onStartup: 1}",
        Accepted(|c| {
            assert_eq!(c.bindings, [at(Stage::OnStartup, 1)]);
            assert_eq!((c.queue.as_str(), c.allow_failure, c.rate_limit), ("main", false, None));
        }),
    ),
    ("C05", r#"{"configVersion":"v1","onStartup": e1}"#, Refused(&["BadType onStartup"])),
    (
        "C06",
        r#"{configVersion: v1, schedule: [{name: a, crontab: "0 */1 * * * *"}, {name: b, crontab: "0 */5 * * * *"}]}"#,
        Accepted(|c| {
            let schedule = |name: &str, crontab: &str| {
                Binding::Schedule(ScheduleBinding { name: name.to_owned(), crontab: crontab.to_owned() })
            };
            assert_eq!(c.bindings, [schedule("a", "0 */1 * * * *"), schedule("b", "0 */5 * * * *")]);
        }),
    ),
    // Ours has one queue for a hook: its runs are never at the same time anyway.
    (
        "C07",
        r#"{configVersion: v1, onStartup: 212, schedule: [
            {name: a, crontab: "*/5 * * * *"}, {name: b, crontab: "*/5 * * * * *", queue: q}]}"#,
        Refused(&["QueuesDiffer schedule[1].queue"]),
    ),
    (
        "C07",
        r#"{configVersion: v1, onStartup: 212, schedule: [
            {name: a, crontab: "*/5 * * * *", queue: q}, {name: b, crontab: "*/5 * * * * *", queue: q}]}"#,
        Accepted(|c| assert_eq!(c.queue, "q")),
    ),
    // One queue for a hook again; the forward reference is no problem.
    (
        "C08",
        "{configVersion: v1, kubernetes: [{name: pods, kind: pod}, {name: deployments, kind: deployment,
            includeSnapshotsFrom: [pods, secrets]}, {name: secrets, kind: secret, queue: offload}]}",
        Refused(&["QueuesDiffer kubernetes[2].queue"]),
    ),
    (
        "C08",
        "{configVersion: v1, kubernetes: [{name: pods, kind: pod, queue: offload}, {name: deployments, kind: deployment,
            includeSnapshotsFrom: [pods, secrets], queue: offload}, {name: secrets, kind: secret, queue: offload}]}",
        Accepted(|c| {
            let kinds: Vec<_> = c.kubernetes().iter().map(|k| (k.api_version.as_str(), k.kind.as_str())).collect();
            assert_eq!(kinds, [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Secret")]);
            assert_eq!(c.kubernetes()[1].include_snapshots_from, ["pods", "secrets"]);
            assert_eq!(c.queue, "offload");
        }),
    ),
    (
        "C09",
        r#"{configVersion: v1, kubernetes: [{name: pods, kind: Pod}, {name: secrets, kind: Secret}],
            schedule: [{name: s, crontab: "@hourly", includeSnapshotsFrom: [pods, secrets]}]}"#,
        Accepted(|c| assert_eq!(c.bindings.len(), 3)),
    ),
    (
        "C10",
        "configVersion: v1\nonStartup: 10\nkubernetes:\n- name: pods\n  kind: pod\n- name: deployments\n  kind: Deployment\n  \
         includeSnapshotsFrom:\n  - pods\n  - secrets\n- name: secrets\n  kind: secrets\nschedule:\n- name: s\n  crontab: \
         '* * * * *'\n  includeSnapshotsFrom: [pods, secrets]\n",
        Accepted(|c| {
            let json = json!({
                "configVersion": "v1",
                "onStartup": 10,
                "kubernetes": [
                    {"name": "pods", "kind": "pod"},
                    {"name": "deployments", "kind": "Deployment", "includeSnapshotsFrom": ["pods", "secrets"]},
                    {"name": "secrets", "kind": "secrets"},
                ],
                "schedule": [{"name": "s", "crontab": "* * * * *", "includeSnapshotsFrom": ["pods", "secrets"]}],
            });
            assert_eq!(*c, good(&json.to_string()));
        }),
    ),
    (
        "C11",
        "{configVersion: v1, kubernetes: [{kind: Pod, nameSelector: {matchNames: []}}]}",
        Accepted(|c| {
            assert_eq!((c.only().name.as_str(), c.only().name_selector.len()), ("kubernetes", 0));
        }),
    ),
    ("C12", "{configVersion: v1, kubernetes: [{name: x, apiVersion: v1}]}", Refused(&["MissingKey kubernetes[0]"])),
    (
        "C13",
        r#"{configVersion: v1, kubernetes: [{apiVersion: "v1/12/wqe", kind: Pod}]}"#,
        Refused(&["BadKind kubernetes[0].apiVersion"]),
    ),
    (
        "C14",
        "{configVersion: v1, kubernetes: [{kind: Pod, nameSelector: {matchNames: [app]},
            fieldSelector: {matchExpressions: [{field: metadata.name, operator: Equals, value: app}]}}]}",
        Refused(&["BadFieldSelector kubernetes[0].fieldSelector.matchExpressions[0]"]),
    ),
    (
        "C15",
        r#"{configVersion: v1, kubernetes: [{kind: Node,
            labelSelector: {matchLabels: {"node-role.kubernetes.io/master": ""}}}]}"#,
        Accepted(|c| {
            let labels = &c.only().label_selector.as_ref().unwrap().match_labels;
            assert_eq!(labels, &[("node-role.kubernetes.io/master".to_owned(), String::new())]);
        }),
    ),
    // A run of a schedule of ours has all snapshots of its hook; so the group of one is checked and needs nothing else.
    (
        "C16",
        r#"{configVersion: v1, schedule: [{crontab: "@daily", group: g}],
            kubernetes: [{name: pods, kind: Pod, group: g}, {name: cms, kind: ConfigMap, group: g},
                {name: other, kind: Secret}]}"#,
        Accepted(|c| {
            let hooks = in_force(c.clone()).unwrap();
            for binding in ["pods", "cms"] {
                let names = hooks.get("shop").unwrap().snapshots_of(binding);
                let names: Vec<&str> = names.iter().map(|binding| binding.name.as_str()).collect();
                assert_eq!(names, ["pods", "cms"]);
            }
        }),
    ),
    (
        "C17",
        r#"{configVersion: v1, schedule: [{crontab: "@daily", group: g, includeSnapshotsFrom: [pods]}],
            kubernetes: [{name: pods, kind: Pod, group: g}, {name: cms, kind: ConfigMap, group: g}]}"#,
        Accepted(|c| assert_eq!(c.bindings.len(), 3)),
    ),
    (
        "C18",
        "{configVersion: v1, kubernetes: [{name: a, kind: Pod, executeHookOnSynchronization: false},
            {name: b, kind: Pod, executeHookOnSynchronization: true}, {name: c, kind: Pod}]}",
        Accepted(|c| {
            let run: Vec<bool> = c.kubernetes().iter().map(|k| k.execute_on_synchronization).collect();
            assert_eq!(run, [false, true, true]);
        }),
    ),
    (
        "C19",
        "{configVersion: v1, kubernetes: [{kind: Pod, executeHookOnSynchronization: ok}]}",
        Refused(&["BadType kubernetes[0].executeHookOnSynchronization"]),
    ),
    // Hooks of ours answer no requests of the API server, so nothing of them is looked at: rows C20 to C27.
    (
        "C20",
        r#"{configVersion: v1, kubernetesValidating: [{name: default.example.com, rules: [{apiVersions: ["v1"],
            apiGroups: [""], resources: [pods], operations: [CREATE]}]}]}"#,
        Refused(&["NotOffered kubernetesValidating"]),
    ),
    (
        "C21",
        "{configVersion: v1, kubernetes: [{name: pods, kind: Pod, group: main}],
            kubernetesValidating: [{name: default.example.com, group: main}]}",
        Refused(&["NotOffered kubernetesValidating"]),
    ),
    (
        "C22",
        "{configVersion: v1, kubernetesMutating: [{name: default.example.com, failurePolicy: Ignore,
            sideEffects: NoneOnDryRun, timeoutSeconds: 30}]}",
        Refused(&["NotOffered kubernetesMutating"]),
    ),
    ("C23", "{configVersion: v1, kubernetesValidating: [{name: snapshots}]}", Refused(&["NotOffered kubernetesValidating"])),
    (
        "C24",
        "{configVersion: v1, kubernetesValidating: [{name: a.b.c, timeoutSeconds: 32}]}",
        Refused(&["NotOffered kubernetesValidating"]),
    ),
    (
        "C25",
        "{configVersion: v1, kubernetesValidating: [{name: myCrdValidator, timeoutSeconds: 123}]}",
        Refused(&["NotOffered kubernetesValidating"]),
    ),
    (
        "C26",
        "{configVersion: v1, kubernetes: [{name: pods, kind: Pod}], kubernetesCustomResourceConversion: [
            {name: up, crdName: baskets.example.com, conversions: [{fromVersion: v1alpha1, toVersion: v1}]}]}",
        Refused(&["NotOffered kubernetesCustomResourceConversion"]),
    ),
    (
        "C27",
        "{configVersion: v1, kubernetesCustomResourceConversion: [{name: up}]}",
        Refused(&["NotOffered kubernetesCustomResourceConversion"]),
    ),
    (
        "C28",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: 30s, executionBurst: 1}}",
        Accepted(|c| assert_eq!(c.rate_limit, Some(RateLimit { min_interval_ms: 30_000, burst: 1 }))),
    ),
    (
        "C28",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: 1m30s, executionBurst: 0}}",
        Accepted(|c| assert_eq!(c.rate_limit, Some(RateLimit { min_interval_ms: 90_000, burst: 1 }))),
    ),
    (
        "C28",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: 0s, executionBurst: 5}}",
        Accepted(|c| assert_eq!(c.rate_limit, None)),
    ),
    (
        "C29",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: 30ks, executionBurst: 1}}",
        Refused(&["BadRateLimit settings.executionMinInterval"]),
    ),
    (
        "C29",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: -30s, executionBurst: -1}}",
        Refused(&["BadRateLimit settings.executionMinInterval", "BadRateLimit settings.executionBurst"]),
    ),
    (
        "C30",
        "{configVersion: v1, onStartup: 1, settings: {executionMinInterval: 500us}}",
        Accepted(|c| assert_eq!(c.rate_limit, Some(RateLimit { min_interval_ms: 1, burst: 1 }))),
    ),
    (
        "C30",
        "{configVersion: v1, onStartup: 1, settings: {executionMinPeriod: 5s, executionBurst: 1.5}}",
        Refused(&[
            "MissingKey settings",
            "UnknownKey settings.executionMinPeriod",
            "BadType settings.executionBurst",
        ]),
    ),
    (
        "C31",
        "{configVersion: v1, kubernetes: [{name: a, kind: Pod, watchEvent: [Added, Modified]},
            {name: b, kind: Pod, watchEvent: []}, {name: c, kind: Pod}]}",
        Accepted(|c| {
            let events: Vec<_> = c.kubernetes().iter().map(|k| k.execute_on_events.clone()).collect();
            assert_eq!(events, [vec![ADDED, MODIFIED], vec![], vec![ADDED, MODIFIED, DELETED]]);
        }),
    ),
    (
        "C32",
        "configVersion: v1\nkubernetes:\n- name: a\n  kind: Pod\n  executeHookOnEvent:\n  - Added\n  - Modified\n- name: b\n  \
         kind: Pod\n  executeHookOnEvent: []\n",
        Accepted(|c| {
            let events: Vec<_> = c.kubernetes().iter().map(|k| k.execute_on_events.clone()).collect();
            assert_eq!(events, [vec![ADDED, MODIFIED], vec![]]);
        }),
    ),
    (
        "C33",
        "{configVersion: v1, kubernetes: [{kind: Pod, watchEvent: [Added], executeHookOnEvent: [Deleted]}]}",
        Accepted(|c| assert_eq!(c.only().execute_on_events, [DELETED])),
    ),
    (
        "C33",
        "{configVersion: v1, kubernetes: [{kind: Pod, watchEvent: [Added], executeHookOnEvent: []}]}",
        Accepted(|c| assert_eq!(c.only().execute_on_events, [])),
    ),
    ("C34", "{configVersion: v1, kubernetes: [{kind: Pod, watchEvent: Added}]}", Refused(&["BadType kubernetes[0].watchEvent"])),
    (
        "C35",
        "{configVersion: v1, kubernetes: [{kind: Pod, nameSelector: {matchNames: [20]}}]}",
        Refused(&["BadType kubernetes[0].nameSelector.matchNames[0]"]),
    ),
    (
        "C36",
        r"
configVersion: v1
kubernetes:
- {name: a, kind: Pod, nameSelector: {matchNames: [1, ok]}, labelSelector: {matchLabels: {foo: 28}}}
- {name: b, kind: Pod, labelSelector: {matchExpressions: [{key: x, operand: In, values: [a]}]}}
- {name: c, kind: Pod, nameSelector: {matchNames: {a: b}}}
- {name: d, kind: Pod, labelSelector: {matchExpressions: [{key: x, operator: Inn}]},
   fieldSelector: {matchExpressions: [{field: status.phase, operator: In, value: 5}]}}
- {name: e, kind: Pod, executeHookOnEvent: [Added, updated]}
",
        Refused(&[
            "BadType kubernetes[0].nameSelector.matchNames[0]",
            "BadType kubernetes[0].labelSelector.matchLabels.foo",
            "MissingKey kubernetes[1].labelSelector.matchExpressions[0]",
            "UnknownKey kubernetes[1].labelSelector.matchExpressions[0].operand",
            "BadType kubernetes[2].nameSelector.matchNames",
            "BadValue kubernetes[3].labelSelector.matchExpressions[0].operator",
            "BadValue kubernetes[3].fieldSelector.matchExpressions[0].operator",
            "BadType kubernetes[3].fieldSelector.matchExpressions[0].value",
            "BadValue kubernetes[4].executeHookOnEvent[1]",
        ]),
    ),
    // There is no v0 to validate against; the rest is the same.
    (
        "C37",
        "{configVrsion: v1, schedule: {name: q}, qwdqwd: Q}",
        Refused(&["MissingKey ", "UnknownKey configVrsion", "BadType schedule", "UnknownKey qwdqwd"]),
    ),
    // Other namespaces and dead fields are refused; without them it is what C38 says.
    (
        "C38",
        r#"
configVersion: v1
settings: {executionMinInterval: 3s, executionBurst: 2}
onStartup: 10
kubernetes:
- name: monitor-pods
  apiVersion: v1
  kind: Pod
  executeHookOnEvent: [Added, Modified, Deleted]
  executeHookOnSynchronization: true
  keepFullObjectsInMemory: true
  nameSelector: {matchNames: [pod-0, pod-1]}
  labelSelector:
    matchLabels: {myLabel: myLabelValue}
    matchExpressions: [{key: tier, operator: In, values: [cache, db]}]
  fieldSelector:
    matchExpressions: [{field: status.phase, operator: NotEquals, value: Pending}]
  namespace:
    nameSelector: {matchNames: [a, b]}
    labelSelector: {matchLabels: {foo: bar}}
  includeSnapshotsFrom: [monitor-pods]
  allowFailure: true
  resynchronizationPeriod: 9s
  queue: pods
  group: pods
  mode: Snapshot
"#,
        Refused(&[
            "ForeignNamespace kubernetes[0].namespace.nameSelector.matchNames",
            "ForeignNamespace kubernetes[0].namespace.labelSelector",
            "DeadField kubernetes[0].resynchronizationPeriod",
            "DeadField kubernetes[0].mode",
        ]),
    ),
    (
        "C38",
        r#"
configVersion: v1
settings: {executionMinInterval: 3s, executionBurst: 2}
onStartup: 10
beforeHelm: 1
afterHelm: 2
beforeDeleteHelm: 3
afterDeleteHelm: 4.0
schedule:
- {name: tick, crontab: "TZ=Europe/Berlin 0 30 8 * * MON", allowFailure: true, queue: pods, group: pods}
kubernetes:
- name: monitor-pods
  apiVersion: v1
  kind: Pod
  executeHookOnEvent: [Added, Modified, Deleted]
  executeHookOnSynchronization: true
  waitForSynchronization: false
  keepFullObjectsInMemory: true
  nameSelector: {matchNames: [pod-0, pod-1]}
  labelSelector:
    matchLabels: {myLabel: myLabelValue}
    matchExpressions: [{key: tier, operator: In, values: [cache, db]}]
  fieldSelector:
    matchExpressions: [{field: status.phase, operator: NotEquals, value: Pending}]
  namespace:
    nameSelector: {matchNames: [own]}
  includeSnapshotsFrom: [monitor-pods]
  allowFailure: true
  queue: pods
  group: pods
"#,
        Accepted(|c| {
            let order = |index: usize| match &c.bindings[index] {
                Binding::Lifecycle { stage, order } => (stage.as_str(), *order),
                other => panic!("{other:?}"),
            };
            assert_eq!(order(0), ("onStartup", 10));
            assert_eq!(order(1), ("beforeHelm", 1));
            assert_eq!(order(4), ("afterDeleteHelm", 4));
            assert_eq!((c.queue.as_str(), c.allow_failure), ("pods", true));
            let binding = c.only();
            assert_eq!(binding.name_selector, ["pod-0", "pod-1"]);
            assert_eq!(binding.filter, Projection::Whole);
            assert!(!binding.wait_for_synchronization && !binding.keep_full_objects);
            let selector = binding.label_selector.as_ref().unwrap();
            assert_eq!(selector.match_expressions[0].operator, LabelOperator::In);
            assert!(!binding.field_selector[0].equals);
            assert_eq!(binding.group.as_deref(), Some("pods"));
            assert_eq!(c.outside("own"), []);
            let outside = c.outside("shop");
            assert_eq!(outside.len(), 1);
            assert_eq!(outside[0].line, Some(26));
            assert_eq!(outside[0].path, "kubernetes[0].namespace.nameSelector.matchNames");
        }),
    ),
    // Snapshots have names, so that their order means nothing; that each is there once does.
    (
        "C39",
        "{configVersion: v1, kubernetes: [
            {name: s1, kind: Pod, group: g}, {name: s2, kind: Pod}, {name: s3, kind: Pod, group: g},
            {name: s4, kind: Pod, group: g, includeSnapshotsFrom: [s3, s2, s1]}, {name: s5, kind: Pod}]}",
        Accepted(|c| {
            let hooks = in_force(c.clone()).unwrap();
            let names = |binding| -> Vec<&str> {
                let snapshots = hooks.get("shop").unwrap().snapshots_of(binding);
                snapshots.into_iter().map(|binding| binding.name.as_str()).collect()
            };
            assert_eq!(names("s4"), ["s1", "s2", "s3", "s4"]);
            assert_eq!(names("s1"), ["s1", "s3", "s4"]);
        }),
    ),
    (
        "C40",
        r#"{configVersion: v1,
            kubernetes: [{name: pods, kind: Pod, includeSnapshotsFrom: [pod]}, {name: pods, kind: Pod}],
            schedule: [{crontab: "@hourly", includeSnapshotsFrom: [pods]}]}"#,
        Refused(&["UnknownBinding kubernetes[0].includeSnapshotsFrom[0]", "DuplicateBinding kubernetes[1].name"]),
    ),
    // Duplicates are forbidden whether or not somebody refers to them.
    (
        "C40",
        r#"{configVersion: v1, kubernetes: [{kind: Pod}, {kind: Secret}], schedule: [{crontab: "@hourly"},
            {crontab: "@daily", name: schedule}]}"#,
        Refused(&["DuplicateBinding kubernetes[1]", "DuplicateBinding schedule[1].name"]),
    ),
    ("C41", "{configVersion: v1}", Refused(&["NoBindings "])),
    ("C41", "{configVersion: v1, settings: {executionMinInterval: 1s}}", Refused(&["NoBindings "])),
    (
        "C41",
        "{configVersion: v1, kubernetes: [], schedule: []}",
        Refused(&["BadValue kubernetes", "BadValue schedule"]),
    ),
    // The path is the prefix. Whether text is a program the evaluator says when the package is loaded; what is none whatever
    // it says is refused here.
    (
        "C42",
        r#"{configVersion: v1, kubernetes: [{kind: Pod, jqFilter: " "}]}"#,
        Refused(&["JqBadProgram kubernetes[0].jqFilter"]),
    ),
    (
        "C43",
        "{configVersion: v1, kubernetes: [{kind: Pod, waitForSynchronization: false}]}",
        Refused(&["BadValue kubernetes[0].waitForSynchronization"]),
    ),
    (
        "C44",
        "{configVersion: v1, kubernetes: [{kind: Pod, fieldSelector: {matchExpressions: [
            {field: status.phase, operator: Equals}, {operator: '==', value: a}, {field: a, value: b}]}}]}",
        Refused(&[
            "MissingKey kubernetes[0].fieldSelector.matchExpressions[0]",
            "MissingKey kubernetes[0].fieldSelector.matchExpressions[1]",
            "MissingKey kubernetes[0].fieldSelector.matchExpressions[2]",
        ]),
    ),
    (
        "C45",
        "{configVersion: v1, kubernetes: [{kind: Pod, labelSelector: {matchExpressions: [{key: a, operator: In}]}}]}",
        Refused(&["BadLabelSelector kubernetes[0].labelSelector.matchExpressions[0]"]),
    ),
];

#[test]
fn rows_c01_to_c45_hold() {
    let mut failed = String::new();
    for (id, text, expected) in ROWS {
        let outcome = std::panic::catch_unwind(|| match expected {
            Accepted(check) => check(&good(text)),
            Refused(expected) => assert_eq!(refused(text), *expected),
        });
        if outcome.is_err() {
            writeln!(failed, "{id}: {text}").unwrap();
        }
    }
    assert!(failed.is_empty(), "rows that fail:\n{failed}");
}

#[test]
fn no_row_is_missing() {
    for number in 1..=45 {
        let id = format!("C{number:02}");
        assert!(ROWS.iter().any(|(row, _, _)| *row == id), "{id}");
    }
}

#[test]
fn bad_crontabs_are_told_with_their_place() {
    // Section 10.6 of the reference.
    for crontab in [
        "xyz",
        "60 0 * * *",
        "0 60 * * *",
        "0 0 * * XYZ",
        "* * * *",
        "* * * * * * *",
        "5-1 * * * *",
        "* * * * 7",
        "TZ=Nowhere * * * * *",
        "TZ=UTC",
        "*/0 * * * *",
        ", * * * *",
        "0 0 0 30 Feb ?",
    ] {
        let text = format!("configVersion: v1\nschedule:\n- crontab: '@hourly'\n- name: b\n  crontab: '{crontab}'\n");
        let problems = parse(&text).unwrap_err();
        assert_eq!(problems.len(), 1, "{crontab}");
        assert_eq!(problems[0].reason, "BadSchedule", "{crontab}");
        assert_eq!(problems[0].path, "schedule[1].crontab");
        assert_eq!((problems[0].line, problems[0].column), (Some(5), Some(3)));
    }
    assert_eq!(refused("{configVersion: v1, schedule: [{name: a}]}"), ["MissingKey schedule[0]"]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_lines_and_hints() {
    let text = "\
configVersion: v1
onStartup: ten
settings: {executionMinInterval: 5}
schedule:
- crontabs: '* * * * *'
  allowFailure: 'yes'
kubernetes:
- kinds: Pod
- name: 'two words'
  kind: Widget
  keepFullObjectsInMemory: false
  namespace: {nameSelector: [default]}
  includeSnapshotsFrom: kubernetes
- name: third
  apiVersion: v1
  kind: widgets/status
  labelSelector: {matchLabels: {'a b': 'c d'}, matchExpressions: [{key: k, operator: Exists, values: [v]}]}
  fieldSelector: {matchExpressions: [{field: metadata.namespace, operator: '=', value: x}]}
  nameSelector: {matchNames: ['a*', b, b]}
  queue: a/sync
  group: 'a b'
  allowFailure: true
onKubernetesEvent: []
beforeAll: 1
";
    let problems = parse(text).unwrap_err();
    let mut shown = String::new();
    for problem in &problems {
        let hint = problem.hint.as_deref().map(|hint| format!(" [{hint}]")).unwrap_or_default();
        writeln!(shown, "{problem}{hint}").unwrap();
    }
    assert_eq!(shown, EVERYTHING);
}

/// What is said of it, hints in brackets.
const EVERYTHING: &str = r#"hooks/bindings/shop.yaml:2:1: onStartup: must be a whole number, not text
hooks/bindings/shop.yaml:3:12: settings.executionMinInterval: must be text, not a number [put it in quotes]
hooks/bindings/shop.yaml:5:3: schedule[0].crontabs: the key 'crontabs' is not known [did you mean 'crontab'?]
hooks/bindings/shop.yaml:5:3: schedule[0]: the key 'crontab' is missing
hooks/bindings/shop.yaml:6:3: schedule[0].allowFailure: must be true or false, not text
hooks/bindings/shop.yaml:8:3: kubernetes[0].kinds: the key 'kinds' is not known [did you mean 'kind'?]
hooks/bindings/shop.yaml:8:3: kubernetes[0]: the key 'kind' is missing
hooks/bindings/shop.yaml:9:3: kubernetes[1].name: the name 'two words' of the kubernetes binding may hold letters, digits, '-', '_', '.' and '/' only
hooks/bindings/shop.yaml:10:3: kubernetes[1].kind: 'Widget' is no kind of Kubernetes itself, so its apiVersion must be said [add `apiVersion: <group>/<version>`]
hooks/bindings/shop.yaml:11:3: kubernetes[1].keepFullObjectsInMemory: without a jqFilter nothing of the objects would be kept [add a jqFilter, or remove keepFullObjectsInMemory]
hooks/bindings/shop.yaml:12:15: kubernetes[1].namespace.nameSelector: must be an object, not a list
hooks/bindings/shop.yaml:13:3: kubernetes[1].includeSnapshotsFrom: must be a list, not text [a list is written [a, b]]
hooks/bindings/shop.yaml:16:3: kubernetes[2].kind: 'widgets/status' is no kind: only up to 63 letters and digits are allowed [for example Deployment]
hooks/bindings/shop.yaml:17:33: kubernetes[2].labelSelector.matchLabels["a b"]: 'a b' is no name of a label [for example app.kubernetes.io/name]
hooks/bindings/shop.yaml:17:33: kubernetes[2].labelSelector.matchLabels["a b"]: 'c d' is no value of a label [up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends]
hooks/bindings/shop.yaml:17:67: kubernetes[2].labelSelector.matchExpressions[0]: Exists takes no values [use In or NotIn]
hooks/bindings/shop.yaml:18:38: kubernetes[2].fieldSelector.matchExpressions[0]: the namespace cannot be selected [objects of the application's own namespace are selected anyway]
hooks/bindings/shop.yaml:19:31: kubernetes[2].nameSelector.matchNames[0]: 'a*' is no name of an object [names are compared as they are; use a label selector]
hooks/bindings/shop.yaml:19:40: kubernetes[2].nameSelector.matchNames[2]: 'b' is there twice
hooks/bindings/shop.yaml:20:3: kubernetes[2].queue: the name of a queue cannot end with '/sync' [every queue has one such for its first runs]
hooks/bindings/shop.yaml:20:3: kubernetes[2].queue: its queue is 'a/sync', that of schedule[0] is 'main': a hook has one queue [split the hook into one for each queue]
hooks/bindings/shop.yaml:21:3: kubernetes[2].group: the name 'a b' of the group may hold letters, digits, '-', '_', '.' and '/' only
hooks/bindings/shop.yaml:22:3: kubernetes[2].allowFailure: allowFailure is true, that of schedule[0] is false: a hook has one policy [split the hook into one that may fail and one that may not]
hooks/bindings/shop.yaml:23:1: onKubernetesEvent: is a key of the v0 form, which is not read [use `kubernetes`]
hooks/bindings/shop.yaml:24:1: beforeAll: global hooks are not offered by this host: a package is on its own [use beforeHelm]
"#;

#[test]
fn what_is_no_configuration_is_told_so() {
    for (text, expected) in [
        ("", "MalformedYaml "),
        ("# nothing\n", "MalformedYaml "),
        ("[]", "BadType "),
        ("word", "BadType "),
        ("{configVersion: v1, onStartup: 1, onStartup: 2}", "DuplicateKey onStartup"),
        ("{configVersion: v1, onStartup: 3000000000}", "BadValue onStartup"),
        ("{configVersion: v1, onStartup: 1.5}", "BadType onStartup"),
        ("{configVersion: v1, onStartup: 1}\n---\n{configVersion: v1, onStartup: 2}", "MalformedYaml "),
        ("{configVersion: v1,", "MalformedYaml "),
    ] {
        assert_eq!(refused(text), [expected], "{text}");
    }
}

#[test]
fn kinds_are_found_as_discovery_finds_them() {
    for (version, kind, expected) in [
        ("", "deploy", ("apps/v1", "Deployment")),
        ("", "NODES", ("v1", "Node")),
        ("", "event", ("v1", "Event")),
        ("", "ing", ("networking.k8s.io/v1", "Ingress")),
        ("events.k8s.io/v1", "events", ("events.k8s.io/v1", "Event")),
        ("batch/v1beta1", "cronjob", ("batch/v1beta1", "CronJob")),
        ("shop.example.com/v1", "Service", ("shop.example.com/v1", "Service")),
        ("shop.example.com/v1", "pod", ("shop.example.com/v1", "pod")),
    ] {
        let version = if version.is_empty() { String::new() } else { format!(", apiVersion: {version}") };
        let configuration = good(&format!("{{configVersion: v1, kubernetes: [{{kind: {kind}{version}}}]}}"));
        let found = configuration.only();
        assert_eq!((found.api_version.as_str(), found.kind.as_str()), expected);
    }
    assert_eq!(refused("{configVersion: v1, kubernetes: [{kind: Widget}]}"), ["MissingKey kubernetes[0].kind"]);
}

#[test]
fn policies_must_agree() {
    let text =
        r#"{configVersion: v1, schedule: [{crontab: "@hourly", allowFailure: true}], kubernetes: [{kind: Pod}]}"#;
    assert_eq!(refused(text), ["FailurePoliciesDiffer kubernetes[0]"]);
    // Stages have no policy.
    let text = r#"{configVersion: v1, onStartup: 1, schedule: [{crontab: "@hourly", allowFailure: true, queue: ""}]}"#;
    let configuration = good(text);
    assert_eq!((configuration.queue.as_str(), configuration.allow_failure), ("main", true));
}

#[test]
fn group_members_go_together_and_others_see_everything() {
    let text = "{configVersion: v1, kubernetes: [{name: a, kind: Pod, group: g, includeSnapshotsFrom: [c]},
        {name: b, kind: Pod, group: g}, {name: c, kind: Pod}, {name: d, kind: Pod}]}";
    assert_eq!(snapshots(text, "a"), ["a", "b", "c"]);
    assert_eq!(snapshots(text, "b"), ["a", "b"]);
    assert_eq!(snapshots(text, "d"), ["a", "b", "c", "d"]);
}

#[test]
fn a_configuration_takes_the_place_of_what_the_component_declares() {
    let text = r#"{configVersion: v1, settings: {executionMinInterval: 1s},
        schedule: [{crontab: "@hourly", queue: q, allowFailure: true}]}"#;
    let hooks = in_force(parse(text).unwrap()).unwrap();
    let declaration = &hooks.get("shop").unwrap().declaration;
    assert!(matches!(&declaration.bindings[..], [Binding::Schedule(_)]));
    assert_eq!((declaration.queue.as_str(), declaration.allow_failure), ("q", true));
    assert_eq!(declaration.rate_limit, Some(RateLimit { min_interval_ms: 1_000, burst: 1 }));
    assert_eq!(hooks.get("shop").unwrap().schedules.len(), 1);
}

#[test]
fn a_configuration_for_no_hook_is_told_with_the_hooks_that_there_are() {
    let configuration = parse("{configVersion: v1, onStartup: 1}").unwrap();
    let told = |names: &[&str]| {
        let hooks = names.iter().map(|name| hook(name, vec![at(Stage::OnStartup, 1)])).collect();
        let component = ComponentDeclarations { component: "hooks/a.wasm".to_owned(), hooks, exports_filter: false };
        let configurations = BTreeMap::from([("shop".to_owned(), configuration.clone())]);
        let [problem] = &replace(&mut [component], &configurations)[..] else { panic!() };
        assert_eq!((problem.reason.as_str(), problem.file.as_str()), ("UnknownHook", FILE));
        problem.hint.clone().unwrap()
    };
    assert_eq!(told(&["shops", "other"]), "did you mean 'shops'? The name of the file is that of the hook");
    assert_eq!(told(&["zebra", "ant"]), "the hooks are: ant, zebra");
    assert_eq!(told(&[]), "the package declares no hook at all");
}

#[test]
fn files_are_found_by_the_names_of_hooks() {
    let good = "{configVersion: v1, onStartup: 1}";
    let source = PackageSource::new()
        .with("hooks/bindings/a.yaml", good)
        .with("hooks/bindings/shop/b.v1.yaml", good)
        .with("hooks/bindings/c.json", good)
        .with("hooks/bindings/d.yaml", "{}")
        .with("hooks/bindings.yaml", "of no concern");
    let (found, problems) = load(&source);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "shop/b.v1"]);
    let problems: Vec<String> = problems.iter().map(|problem| format!("{} {}", problem.reason, problem.file)).collect();
    assert_eq!(problems, ["BadPath hooks/bindings/c.json", "MissingKey hooks/bindings/d.yaml"]);
}

#[test]
fn bombs_are_bounded() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        writeln!(laughs, "a{level}: &a{level} [{before}]").unwrap();
    }
    let wide = |what: &str, count: usize| what.repeat(count);
    let texts = [
        (laughs, "MalformedYaml"),
        (format!("configVersion: v1\nkubernetes: {}", wide("[", 100_000)), "MalformedYaml"),
        (wide("a", 2_000_000), "FileTooLarge"),
        (format!("configVersion: v1\nkubernetes:\n{}", wide("- {kind: Pod}\n", 5_000)), "TooManyBindings"),
        (
            format!(
                "configVersion: v1\nkubernetes:\n- kind: Pod\n  nameSelector: {{matchNames: [{}]}}",
                wide("a, ", 5_000)
            ),
            "TooManySelectors",
        ),
        (
            format!("configVersion: v1\nkubernetes:\n- kind: Pod\n  includeSnapshotsFrom: [{}]", wide("a, ", 5_000)),
            "UnknownBinding",
        ),
    ];
    for (text, reason) in texts {
        let problems = parse(&text).unwrap_err();
        assert_eq!(problems[0].reason, reason);
        assert!(problems.len() <= 100);
    }
    let keys: String = (0..5_000).fold("configVersion: v1\n".to_owned(), |mut text, index| {
        writeln!(text, "k{index}: 1").unwrap();
        text
    });
    assert_eq!(parse(&keys).unwrap_err().len(), 100);
}

/// Trees of the words that mean something here.
fn trees() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "v1",
        "Pod",
        "Added",
        "In",
        "Exists",
        "a",
        "",
        "@hourly",
        "*/0 * * * *",
        "30s",
        "pods",
        "status.phase",
        "=",
        "a b",
        "apps/v1",
        "metadata.name",
    ]);
    let keys = prop::sample::select(vec![
        "configVersion",
        "onStartup",
        "settings",
        "executionMinInterval",
        "executionBurst",
        "schedule",
        "kubernetes",
        "crontab",
        "name",
        "kind",
        "apiVersion",
        "labelSelector",
        "fieldSelector",
        "nameSelector",
        "namespace",
        "matchNames",
        "matchLabels",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "field",
        "value",
        "queue",
        "group",
        "allowFailure",
        "includeSnapshotsFrom",
        "watchEvent",
        "executeHookOnEvent",
        "jqFilter",
        "mode",
        "kinds",
        "keepFullObjectsInMemory",
        "waitForSynchronization",
        "beforeHelm",
        "kubernetesValidating",
    ]);
    let leaf = prop_oneof![
        4 => words.prop_map(|word| json!(word)),
        1 => any::<bool>().prop_map(|flag| json!(flag)),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
    ];
    let tree = leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::hash_map(keys.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    });
    // Most begin well.
    (tree, any::<bool>()).prop_map(|(mut tree, versioned)| {
        if let Some(object) = tree.as_object_mut().filter(|_| versioned) {
            object.insert("configVersion".to_owned(), json!("v1"));
        }
        tree
    })
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
        let _ = parse(&format!("configVersion: v1\nkubernetes:\n- kind: Pod\n  {text}"));
    }

    #[test]
    fn what_is_accepted_passes_all_checks_behind_it(tree in trees()) {
        match parse(&tree.to_string()) {
            Ok(configuration) => {
                prop_assert!(!configuration.bindings.is_empty());
                prop_assert_eq!(in_force(configuration).err(), None);
            }
            Err(problems) => {
                prop_assert!(!problems.is_empty() && problems.len() <= 100);
                prop_assert!(problems.iter().all(|problem| problem.line.is_some()));
            }
        }
    }

    /// One binding with some of everything, so that much of it is accepted.
    #[test]
    fn a_binding_that_is_accepted_passes_all_checks_behind_it(
        (name, queue, group) in ("[a-z /]{0,8}", "[a-z/]{0,6}", "[a-z]{0,3}"),
        names in prop::collection::vec("[a-z.*]{0,5}", 0..4),
        labels in prop::collection::btree_map("[a-z/. ]{1,8}", "[a-zA-Z. ]{0,5}", 0..4),
        (operator, field, crontab) in ("(=|==|!=|In)", "(a|metadata.name|metadata.namespace)", "[0-9*/, ]{0,12}"),
        (interval, burst, order) in ("[0-9]{1,20}(ms|s|h)", -2_i64..20_000, any::<i64>()),
    ) {
        let tree = json!({
            "configVersion": "v1",
            "beforeHelm": order % 10_000_000_000,
            "settings": {"executionMinInterval": interval, "executionBurst": burst},
            "schedule": [{"crontab": crontab, "queue": queue}],
            "kubernetes": [{
                "kind": "cm",
                "name": name,
                "queue": queue,
                "group": group,
                "nameSelector": {"matchNames": names},
                "labelSelector": {"matchLabels": labels},
                "fieldSelector": {"matchExpressions": [{"field": field, "operator": operator, "value": "x"}]},
            }],
        });
        if let Ok(configuration) = parse(&tree.to_string()) {
            prop_assert_eq!(in_force(configuration).err(), None);
        }
    }
}
