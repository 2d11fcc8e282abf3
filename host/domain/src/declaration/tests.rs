use proptest::prelude::*;

use super::*;
use crate::fixtures::{at, hook, objects, schedule};
use crate::hook::{LabelRequirement, WatchEventType};

fn component(path: &str, hooks: Vec<HookDeclaration>) -> ComponentDeclarations {
    ComponentDeclarations { component: path.to_owned(), hooks, exports_filter: false }
}

fn check(hooks: Vec<HookDeclaration>) -> Result<Hooks, Vec<Problem>> {
    Hooks::check(vec![component("hooks/a.wasm", hooks)])
}

fn refused(hooks: Vec<HookDeclaration>) -> Vec<String> {
    check(hooks).unwrap_err().into_iter().map(|problem| format!("{}: {problem}", problem.reason)).collect()
}

#[test]
fn a_good_declaration_is_kept() {
    let mut pods = objects("pods");
    pods.label_selector = Some(LabelSelector {
        match_labels: vec![("app.kubernetes.io/name".to_owned(), "shop".to_owned()), ("x".to_owned(), String::new())],
        match_expressions: vec![
            LabelRequirement { key: "tier".to_owned(), operator: LabelOperator::In, values: vec!["a".to_owned()] },
            LabelRequirement { key: "old".to_owned(), operator: LabelOperator::DoesNotExist, values: Vec::new() },
        ],
    });
    pods.field_selector =
        vec![FieldRequirement { field: "status.phase".to_owned(), equals: false, value: "Failed".to_owned() }];
    pods.filter = Projection::Fields(vec!["/metadata/labels".to_owned(), "/data/a~1b".to_owned()]);
    pods.include_snapshots_from = vec!["config".to_owned(), "pods".to_owned()];
    let mut all = hook(
        "shop/password.v1",
        vec![
            at(Stage::OnStartup, 1),
            at(Stage::BeforeHelm, -5),
            schedule("hourly", "@hourly"),
            Binding::Kubernetes(pods),
            Binding::Kubernetes(objects("config")),
        ],
    );
    all.rate_limit = Some(RateLimit { min_interval_ms: 1000, burst: 3 });
    all.queue = "/modules/shop".to_owned();
    let hooks = check(vec![all.clone()]).unwrap();
    let kept = hooks.get("shop/password.v1").unwrap();
    assert_eq!(kept.declaration, all);
    assert_eq!(kept.component, "hooks/a.wasm");
    assert_eq!(kept.schedules, [("hourly".to_owned(), Schedule::parse("@hourly").unwrap())]);
    assert_eq!(hooks.queues(), BTreeSet::from(["/modules/shop"]));
}

#[test]
fn all_problems_are_reported_with_hook_and_binding() {
    let mut bad = objects("bad name");
    bad.api_version = "apps/v1/x".to_owned();
    bad.kind = "config-map".to_owned();
    bad.name_selector = vec!["a".to_owned(), "a".to_owned(), "b*".to_owned(), String::new()];
    bad.label_selector = Some(LabelSelector {
        match_labels: vec![
            ("-x".to_owned(), "ok".to_owned()),
            ("UPPER.io/x".to_owned(), "not ok".to_owned()),
            ("a".to_owned(), "1".to_owned()),
            ("a".to_owned(), "2".to_owned()),
        ],
        match_expressions: vec![
            LabelRequirement { key: "k".to_owned(), operator: LabelOperator::In, values: Vec::new() },
            LabelRequirement { key: "k".to_owned(), operator: LabelOperator::Exists, values: vec!["v".to_owned()] },
        ],
    });
    bad.field_selector = vec![
        FieldRequirement { field: "metadata.name".to_owned(), equals: true, value: "x".to_owned() },
        FieldRequirement { field: "a b".to_owned(), equals: true, value: "x\n".to_owned() },
        FieldRequirement { field: "metadata.namespace".to_owned(), equals: true, value: "x".to_owned() },
    ];
    bad.filter = Projection::Fields(vec!["metadata".to_owned(), "/a".to_owned(), "/a".to_owned(), "/~3".to_owned()]);
    bad.execute_on_events = vec![WatchEventType::Added, WatchEventType::Added];
    bad.group = Some(String::new());
    bad.include_snapshots_from = vec!["others".to_owned(), "other".to_owned(), "other".to_owned()];
    let mut other = objects("other");
    other.filter = Projection::Jq(" ".to_owned());
    let mut third = objects("third");
    third.kind = "config-map".to_owned();
    third.filter = Projection::Component;
    let mut wrong = hook(
        "wrong",
        vec![
            schedule("s", "* * * * 7"),
            Binding::Kubernetes(bad),
            Binding::Kubernetes(other),
            at(Stage::AfterHelm, 0),
            at(Stage::AfterHelm, 1),
            schedule("s", "@hourly"),
            Binding::Kubernetes(third),
        ],
    );
    wrong.queue = "x/sync".to_owned();
    wrong.rate_limit = Some(RateLimit { min_interval_ms: u64::MAX, burst: 0 });
    let empty = hook("em pty", Vec::new());
    let shown = refused(vec![wrong, empty, hook("wrong", vec![at(Stage::OnStartup, 0)])]);
    let expected = [
        "BadName: hooks/a.wasm: wrong.queue: the name of a queue cannot end with '/sync'",
        "BadRateLimit: hooks/a.wasm: wrong.rateLimit.burst: the burst must be between 1 and 10000, not 0",
        "BadRateLimit: hooks/a.wasm: wrong.rateLimit.minIntervalMs: 18446744073709551615 ms between two runs are more than a day",
        "BadSchedule: hooks/a.wasm: wrong.bindings[0].crontab: schedule \"* * * * 7\" is not valid at character 9: the day of \
         the week 7 is not between 0 and 6",
        "BadName: hooks/a.wasm: wrong.bindings[1].name: the name 'bad name' of the kubernetes binding may hold letters, \
         digits, '-', '_', '.' and '/' only",
        "BadKind: hooks/a.wasm: wrong.bindings[1].kind: 'config-map' is no kind: only up to 63 letters and digits are allowed",
        "BadNameSelector: hooks/a.wasm: wrong.bindings[1].nameSelector: 'a' is there twice",
        "BadNameSelector: hooks/a.wasm: wrong.bindings[1].nameSelector: 'b*' is no name of an object",
        "BadNameSelector: hooks/a.wasm: wrong.bindings[1].nameSelector: '' is no name of an object",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchLabels[0]: '-x' is no name of a label",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchLabels[1]: 'UPPER.io/x' is no name of a label",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchLabels[1]: 'not ok' is no value of a label",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchLabels[3]: the label 'a' is there twice",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchExpressions[0]: In needs at least one value",
        "BadLabelSelector: hooks/a.wasm: wrong.bindings[1].labelSelector.matchExpressions[1]: Exists takes no values",
        "BadFieldSelector: hooks/a.wasm: wrong.bindings[1].fieldSelector[0]: metadata.name and a name selector exclude each \
         other",
        "BadFieldSelector: hooks/a.wasm: wrong.bindings[1].fieldSelector[1]: 'a b' is no path of a field",
        "BadFieldSelector: hooks/a.wasm: wrong.bindings[1].fieldSelector[1]: the value is too long or has control characters",
        "BadFieldSelector: hooks/a.wasm: wrong.bindings[1].fieldSelector[2]: the namespace cannot be selected",
        "BadPointer: hooks/a.wasm: wrong.bindings[1].filter: 'metadata' is no JSON pointer",
        "BadPointer: hooks/a.wasm: wrong.bindings[1].filter: '/a' is there twice",
        "BadPointer: hooks/a.wasm: wrong.bindings[1].filter: '/~3' is no JSON pointer",
        "BadEvents: hooks/a.wasm: wrong.bindings[1].executeOnEvents: Added is there twice",
        "BadName: hooks/a.wasm: wrong.bindings[1].group: the name '' of the group is empty",
        "UnknownBinding: hooks/a.wasm: wrong.bindings[1].includeSnapshotsFrom: the hook has no kubernetes binding 'others'",
        "DuplicateBinding: hooks/a.wasm: wrong.bindings[1].includeSnapshotsFrom: 'other' is there twice",
        "JqBadProgram: hooks/a.wasm: wrong.bindings[2].filter: the jq program is empty",
        "DuplicateBinding: hooks/a.wasm: wrong.bindings[4]: the stage 'afterHelm' is there twice",
        "DuplicateBinding: hooks/a.wasm: wrong.bindings[5]: the schedule 's' is there twice",
        "BadKind: hooks/a.wasm: wrong.bindings[6].kind: 'config-map' is no kind: only up to 63 letters and digits are allowed",
        "FilterMissing: hooks/a.wasm: wrong.bindings[6].filter: the component exports no filter",
        "BadName: hooks/a.wasm: em pty.name: the name 'em pty' of the hook may hold letters, digits, '-', '_', '.' and '/' only",
        "NoBindings: hooks/a.wasm: em pty.bindings: it would never run: it has no binding",
        "DuplicateHook: hooks/a.wasm: wrong: the name 'wrong' is taken by another hook of this component",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_bad_api_version_is_told_apart_from_a_bad_kind() {
    let mut binding = objects("a");
    binding.api_version = "/v1".to_owned();
    assert!(refused(vec![hook("a", vec![Binding::Kubernetes(binding)])])[0].contains("bindings[0].apiVersion"));
}

#[test]
fn names_are_unique_in_the_package() {
    let one = |path: &str| component(path, vec![hook("same", vec![at(Stage::OnStartup, 0)])]);
    let problems = Hooks::check(vec![one("hooks/a.wasm"), one("hooks/b.wasm")]).unwrap_err();
    assert_eq!(problems[0].reason, "DuplicateHook");
    assert_eq!(problems[0].file, "hooks/b.wasm");
    assert!(problems[0].message.contains("hooks/a.wasm"));
    assert_eq!(Hooks::check(vec![component("hooks/a.wasm", Vec::new())]).unwrap_err()[0].reason, "NoHooks");
}

#[test]
fn there_are_bounds() {
    let many: Vec<HookDeclaration> =
        (0..=HOOKS_PER_PACKAGE).map(|index| hook(&format!("h{index}"), vec![at(Stage::OnStartup, 0)])).collect();
    assert_eq!(check(many).unwrap_err()[0].reason, "TooManyHooks");
    let bindings = (0..=BINDINGS_PER_HOOK).map(|index| schedule(&format!("s{index}"), "@hourly")).collect();
    assert_eq!(check(vec![hook("a", bindings)]).unwrap_err()[0].reason, "TooManyBindings");
    let mut wide = objects("a");
    wide.name_selector = (0..=SELECTORS_MAX).map(|index| format!("n{index}")).collect();
    assert_eq!(check(vec![hook("a", vec![Binding::Kubernetes(wide)])]).unwrap_err()[0].reason, "TooManySelectors");
    let bad = (0..500).map(|_| hook("", Vec::new())).collect();
    assert_eq!(check(bad).unwrap_err().len(), PROBLEMS_MAX);
    let long = check(vec![hook(&"x\u{7}".repeat(100_000), Vec::new())]).unwrap_err();
    assert!(long.iter().all(|problem| problem.to_string().len() < 1000), "a guest cannot flood the log");
    assert!(long.iter().all(|problem| !problem.to_string().contains('\u{7}')));
}

#[test]
fn hooks_run_by_order_then_name() {
    let hooks = Hooks::check(vec![
        component(
            "hooks/b.wasm",
            vec![hook("b", vec![at(Stage::BeforeHelm, 10)]), hook("a", vec![at(Stage::BeforeHelm, 10)])],
        ),
        component(
            "hooks/a.wasm",
            vec![
                hook("z", vec![at(Stage::AfterHelm, 0), at(Stage::BeforeHelm, -1)]),
                hook("c", vec![at(Stage::BeforeHelm, 9), at(Stage::OnStartup, 1)]),
            ],
        ),
    ])
    .unwrap();
    let names = |stage| hooks.hooks_at(stage).into_iter().map(Hook::name).collect::<Vec<_>>();
    assert_eq!(names(Stage::BeforeHelm), ["z", "c", "a", "b"]);
    assert_eq!(names(Stage::AfterHelm), ["z"]);
    assert_eq!(names(Stage::AfterDeleteHelm), Vec::<&str>::new());
    assert_eq!(hooks.queues(), BTreeSet::new(), "stages run in the lifecycle queue");
}

#[test]
fn the_permissions_of_watches_are_put_together() {
    let mut secret = objects("secret");
    secret.kind = "Secret".to_owned();
    let mut named = objects("named");
    named.name_selector = vec!["b".to_owned(), "a".to_owned()];
    let mut deployment = objects("deployment");
    (deployment.api_version, deployment.kind) = ("apps/v1".to_owned(), "Deployment".to_owned());
    let bindings = [objects("config"), secret, named, deployment].map(Binding::Kubernetes);
    let needed = check(vec![hook("a", bindings.to_vec())]).unwrap().permissions_needed();
    let permission = |group: &str, kinds: &[&str], names: Option<&[&str]>| Permission {
        api_groups: vec![group.to_owned()],
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        verbs: vec![Verb::Watch],
        names: names.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        cluster: false,
    };
    assert_eq!(
        needed,
        [
            permission("", &["ConfigMap", "Secret"], None),
            permission("", &["ConfigMap"], Some(&["a", "b"])),
            permission("apps", &["Deployment"], None),
        ]
    );
}

#[test]
fn snapshots_follow_includes_and_groups() {
    let mut a = objects("a");
    a.include_snapshots_from = vec!["d".to_owned()];
    a.group = Some("g".to_owned());
    let mut b = objects("b");
    b.group = Some("g".to_owned());
    let hooks = check(vec![hook("h", [a, b, objects("c"), objects("d")].map(Binding::Kubernetes).to_vec())]).unwrap();
    let names = |binding: &str| {
        let snapshots = hooks.get("h").unwrap().snapshots_of(binding);
        snapshots.into_iter().map(|snapshot| snapshot.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("a"), ["a", "b", "d"]);
    assert_eq!(names("b"), ["a", "b"]);
    assert_eq!(names("c"), ["a", "b", "c", "d"]);
    assert_eq!(names("none"), Vec::<String>::new());
}

proptest! {
    #[test]
    fn any_declaration_is_checked(
        names in prop::collection::vec("\\PC{0,8}", 8),
        orders in prop::collection::vec(any::<i32>(), 3),
    ) {
        let mut binding = objects(&names[0]);
        binding.api_version.clone_from(&names[1]);
        binding.kind.clone_from(&names[2]);
        binding.filter = Projection::Fields(vec![names[3].clone()]);
        binding.name_selector = vec![names[4].clone()];
        binding.label_selector = Some(LabelSelector {
            match_labels: vec![(names[5].clone(), names[6].clone())],
            match_expressions: Vec::new(),
        });
        let mut bindings: Vec<Binding> = orders.into_iter().map(|order| at(Stage::BeforeHelm, order)).collect();
        bindings.push(schedule(&names[6], &names[7]));
        bindings.push(Binding::Kubernetes(binding));
        prop_assert!(check(vec![hook(&names[0], bindings)]).is_err(), "three bindings are to one stage");
    }
}
