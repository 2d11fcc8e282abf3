//! The graph of steps, and how an operation goes through it.

use proptest::prelude::*;

use super::*;

fn weighted(api: &str, kind: &str, name: &str, weight: &str) -> Value {
    annotated(object(api, kind, name), json!({"werf.io/weight": weight}))
}

fn hook(name: &str, event: &str, weight: &str, policy: &str) -> Value {
    let annotations =
        json!({"helm.sh/hook": event, "helm.sh/hook-weight": weight, "helm.sh/hook-delete-policy": policy});
    annotated(object("batch/v1", "Job", name), annotations)
}

#[test]
fn weights_make_groups_that_are_ready_before_the_next() {
    let plan = plan_of(
        vec![
            weighted("apps/v1", "Deployment", "late", "10"),
            weighted("batch/v1", "Job", "early", "-5"),
            weighted("v1", "ConfigMap", "late-config", "10"),
            object("apps/v1", "Deployment", "usual"),
            object("v1", "Namespace", "space"),
        ],
        &[],
    )
    .expect("a plan");
    assert_eq!(
        shown(&plan),
        ["space", "space? early", "early?", "usual", "usual?", "late-config", "late-config? late", "late?"],
        "namespaces come with the first weight"
    );
}

#[test]
fn dependencies_beat_weights() {
    let dependent = |name: &str, on: &str| {
        let annotations = json!({"werf.io/weight": "-9", "werf.io/deploy-dependency-a": on});
        annotated(object("apps/v1", "Deployment", name), annotations)
    };
    let plan = plan_of(
        vec![
            dependent("web", "state=ready,kind=StatefulSet,name=db"),
            dependent("worker", "state=present,name=web"),
            object("apps/v1", "StatefulSet", "db"),
            object("v1", "ConfigMap", "config"),
        ],
        &[],
    )
    .expect("a plan");
    assert_eq!(shown(&plan), ["config", "config? db", "db?", "web", "web? worker", "worker?"]);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
}

#[test]
fn dependencies_that_have_no_effect_are_told() {
    let annotations = json!({
        "werf.io/deploy-dependency-a": "state=ready,name=nobody",
        "werf.io/deploy-dependency-b": "state=ready,kind=ValidatingWebhookConfiguration",
    });
    let plan = plan_of(
        vec![
            annotated(object("apps/v1", "Deployment", "web"), annotations),
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hook"),
        ],
        &[],
    )
    .expect("a plan");
    assert_eq!(shown(&plan), ["web", "web?", "hook", "hook?"]);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);
}

#[test]
fn a_circle_is_refused_with_its_objects() {
    let dependent = |name: &str, on: &str| {
        annotated(
            object("v1", "ConfigMap", name),
            json!({"werf.io/deploy-dependency-a": format!("state=present,name={on}")}),
        )
    };
    let refused = plan_of(
        vec![dependent("a", "b"), dependent("b", "c"), dependent("c", "a"), object("v1", "Secret", "free")],
        &[],
    )
    .expect_err("refused");
    assert_eq!(refused.reason(), "DependencyCycle");
    let what = &refused.problems[0].what;
    assert_eq!(what, "ConfigMap demo/a, ConfigMap demo/b, ConfigMap demo/c");
}

#[test]
fn others_are_waited_for_before_an_object_is_applied() {
    let annotations = json!({"x.external-dependency.werf.io/resource": "secret/tls"});
    let plan = plan_of(vec![annotated(object("apps/v1", "Deployment", "web"), annotations)], &[]).expect("a plan");
    assert_eq!(shown(&plan), ["await secret tls", "web", "web?"]);
}

#[test]
fn hooks_go_one_after_the_other_and_those_that_succeeded_go_last_first() {
    let plan = plan_of(
        vec![
            hook("j1", "pre-install", "1", "hook-succeeded"),
            hook("j2", "pre-install", "2", "hook-succeeded"),
            hook("j3", "pre-install,post-install", "3", "before-hook-creation"),
            hook("other", "pre-upgrade", "0", ""),
            object("v1", "ConfigMap", "c"),
        ],
        &[item("v1", "ConfigMap", "gone", false)],
    )
    .expect("a plan");
    let expected = [
        "hook j1", "hook j1?", "hook j2", "hook j2?", "hook j3", "hook j3?", "-j2", "-j1", "c", "c?", "-gone",
        "-gone?", "hook j3", "hook j3?",
    ];
    assert_eq!(shown(&plan), expected);
    let application = app();
    let objects = vec![hook("j1", "pre-install", "1", ""), object("v1", "ConfigMap", "c")];
    let without = plan_of_input(PlanInput { skip_hooks: true, ..input(&application, objects, &[]) });
    assert_eq!(shown(&without), ["c", "c?"]);
    assert_eq!(without.hooks[&HookEvent::PreInstall].len(), 1, "the record still has it");
}

fn plan_of_input(input: PlanInput<'_>) -> Plan {
    plan(input, scope_of, |_| true).expect("a plan")
}

#[test]
fn definitions_of_crds_come_before_everything_and_do_not_belong_to_the_release() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Mystery", "plural": "widgets"}},
    });
    let application = app();
    let objects = vec![object("example.org/v1", "Mystery", "w"), hook("before", "pre-install", "0", "")];
    let definitions = vec![Rendered { object: definition, source: "crds/w.yaml".to_owned() }];
    let plan = plan_of_input(PlanInput { definitions, ..input(&application, objects, &[]) });
    assert_eq!(
        shown(&plan),
        ["define widgets.example.org", "define widgets.example.org?", "hook before", "hook before?", "w", "w?"]
    );
    assert_eq!(plan.definitions[0].object["metadata"], json!({"name": "widgets.example.org"}));
    assert_eq!(plan.inventory().len(), 1);

    let definitions = vec![Rendered { object: object("v1", "ConfigMap", "x"), source: "crds/x.yaml".to_owned() }];
    let refused = super::plan(PlanInput { definitions, ..input(&application, Vec::new(), &[]) }, scope_of, |_| true);
    assert_eq!(refused.expect_err("refused").problems[0].source_file, "crds/x.yaml");
}

#[test]
fn the_definitions_of_the_host_are_not_to_be_had() {
    for name in ["applications.deckhouse.io", "x.deckhouse.io"] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "deckhouse.io", "scope": "Namespaced", "names": {"kind": "Mystery", "plural": "widgets"}},
        });
        let refused = plan_of(vec![definition], &[]).expect_err("refused");
        assert_eq!(refused.reason(), "HostObject");
    }
}

#[test]
fn an_object_is_deployed_when_its_annotation_says_so() {
    let objects = || {
        vec![
            annotated(object("v1", "ConfigMap", "once"), json!({"werf.io/deploy-on": "install"})),
            annotated(
                object("v1", "Secret", "both"),
                json!({"werf.io/deploy-on": "pre-install,upgrade", "werf.io/ownership": "anyone"}),
            ),
        ]
    };
    let install = plan_for(ReleaseAction::Install, objects(), &[]).expect("a plan");
    assert_eq!(shown(&install), ["hook both", "hook both?", "once", "once?"]);
    let upgrade = plan_for(ReleaseAction::Upgrade, objects(), &install.inventory()).expect("a plan");
    // What is deployed on installation alone goes with the first upgrade, as it does with nelm.
    assert_eq!(shown(&upgrade), ["both", "both?", "-once", "-once?"]);
    assert_eq!(install.digest, upgrade.digest, "or every reconciliation would apply again");
    let labels = &install.hooks[&HookEvent::PreInstall][0].object["metadata"];
    assert_eq!(labels.get("labels"), None, "an object of anyone is not marked");
}

#[test]
fn objects_that_are_only_wanted_until_they_succeeded_go_at_the_end_of_their_stage() {
    let job = annotated(object("batch/v1", "Job", "seed"), json!({"werf.io/delete-policy": "succeeded"}));
    let plan = plan_of(vec![job, object("v1", "ConfigMap", "c")], &[]).expect("a plan");
    assert_eq!(shown(&plan), ["c", "c? seed", "seed?", "-seed"]);
    assert!(plan.inventory().iter().any(|item| item.transient));
}

#[test]
fn removal_waits_for_what_its_annotations_name() {
    let first = item("v1", "ConfigMap", "first", false);
    let mut dependent = object("apps/v1", "Deployment", "web");
    dependent["metadata"]["annotations"] = json!({"werf.io/delete-dependency-a": "state=absent,kind=ConfigMap"});
    let dependent = InventoryItem::of(&dependent).expect("an item");
    let application = app();
    let (defined, hooks) = (BTreeSet::new(), BTreeMap::new());
    let input = |inventory| RemovalInput {
        application: &application,
        package: "site",
        inventory,
        defined: &defined,
        hooks: &hooks,
        skip_hooks: false,
    };
    let inventory = [dependent.clone(), first.clone()];
    // The configuration goes after all workloads anyway.
    let plan = plan_removal(&input(&inventory));
    assert_eq!(shown(&plan), ["-web", "-web?", "-first", "-first?"]);
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);

    let waits = |name: &str, on: &str| {
        let mut object = object("v1", "ConfigMap", name);
        let annotation = format!("state=absent,name={on}");
        object["metadata"]["annotations"] = json!({"werf.io/delete-dependency-a": annotation});
        InventoryItem::of(&object).expect("an item")
    };
    let inventory = [waits("a", "b"), item("v1", "ConfigMap", "b", false), item("v1", "Secret", "c", false)];
    assert_eq!(shown(&plan_removal(&input(&inventory))), ["-b", "-b? -c", "-c? -a", "-a?"]);
    // Those that wait for each other are no reason to keep a release for ever.
    let inventory = [waits("a", "b"), waits("b", "a")];
    let plan = plan_removal(&input(&inventory));
    assert_eq!(shown(&plan), ["-b -a", "-b? -a?"]);
    assert!(plan.notes.iter().any(|note| note.contains("wait for each other")), "{:?}", plan.notes);
}

#[test]
fn tests_are_hooks_of_their_own_operation() {
    let plan = plan_of(vec![hook("t", "test", "0", "hook-succeeded")], &[]).expect("a plan");
    assert!(plan.steps.is_empty());
    assert_eq!(shown(&plan_test(&app(), "site", &plan.hooks)), ["hook t", "hook t?", "-t"]);
}

/// Runs a plan in which one step fails and says what is deleted afterwards.
fn cleaned(plan: &Plan, fails: impl Fn(&Step) -> bool) -> (Vec<String>, bool) {
    let mut execution = Execution::new(plan);
    let mut ended = false;
    loop {
        let begun = execution.start(1);
        let Some(step) = begun.first() else { break };
        if fails(step) {
            ended = execution.fail(step.id, "boom");
        } else {
            execution.complete(step.id, Outcome::Done);
        }
    }
    let complete = execution.is_complete();
    assert_eq!(complete, !ended);
    execution.give_up();
    (execution.clean_up().into_iter().map(|it| it.target.name).collect(), complete)
}

#[test]
fn a_failed_hook_cleans_up_after_itself_and_those_before_it() {
    let plan = plan_of(
        vec![
            hook("w1", "pre-install", "1", "hook-succeeded"),
            hook("w2", "pre-install", "2", "hook-failed"),
            hook("w3", "pre-install", "3", "hook-succeeded"),
            object("v1", "ConfigMap", "c"),
        ],
        &[],
    )
    .expect("a plan");
    let fails = |step: &Step| matches!(step.work, Work::HookEnd { hook: 1, .. });
    assert_eq!(cleaned(&plan, fails), (vec!["w2".to_owned(), "w1".to_owned()], false));
    let fails = |step: &Step| matches!(step.work, Work::HookEnd { hook: 2, .. });
    assert_eq!(cleaned(&plan, fails).0, ["w1"], "what failed without the policy stays");
    let fails = |step: &Step| matches!(step.work, Work::Apply { .. });
    assert!(cleaned(&plan, fails).0.is_empty(), "the event had ended");
}

#[test]
fn a_failure_that_its_author_tolerates_is_none() {
    let annotations = json!({"werf.io/fail-mode": "IgnoreAndContinueDeployProcess"});
    let plan = plan_of(
        vec![annotated(object("apps/v1", "Deployment", "web"), annotations), object("batch/v1", "Job", "after")],
        &[],
    )
    .expect("a plan");
    assert_eq!(cleaned(&plan, |step| matches!(step.work, Work::Ready { object: 0 })), (Vec::new(), true));
    assert!(!cleaned(&plan, |step| matches!(step.work, Work::Apply { object: 0 })).1, "an apply is no readiness");
}

#[test]
fn what_nobody_waits_for_does_not_hold_up_the_end() {
    let annotations = json!({"werf.io/track-termination-mode": "NonBlocking"});
    let plan = plan_of(vec![annotated(object("apps/v1", "Deployment", "web"), annotations)], &[]).expect("a plan");
    let mut execution = Execution::new(&plan);
    for step in execution.start(9) {
        execution.complete(step.id, Outcome::Created);
    }
    assert_eq!(execution.start(9).len(), 1, "it is still looked at");
    assert!(execution.is_complete());
}

#[test]
fn an_object_that_failed_goes_if_it_wants_to() {
    let job = annotated(object("batch/v1", "Job", "seed"), json!({"werf.io/delete-policy": "failed"}));
    let plan = plan_of(vec![job], &[]).expect("a plan");
    assert_eq!(cleaned(&plan, |step| matches!(step.work, Work::Ready { .. })).0, ["seed"]);
}

const KINDS: [(&str, &str); 7] = [
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("v1", "Service"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("other.org/v1", "Alpha"),
    ("v1", "Namespace"),
];

proptest! {
    /// Whatever weights, dependencies and hooks there are: a plan is refused for a circle, or every step comes after all
    /// that it waits for, each object is applied once, and every order that the graph allows comes to its end.
    #[test]
    fn every_plan_comes_to_its_end(
        objects in prop::collection::vec((0..KINDS.len(), -2..3i32, prop::option::of(0..12usize), 0..6u8), 0..12),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let rendered: Vec<Value> = objects.iter().enumerate().map(|(index, (kind, weight, on, mark))| {
            let (api, kind) = KINDS[*kind];
            let mut annotations = json!({"werf.io/weight": weight.to_string()});
            if let Some(on) = on {
                annotations["werf.io/deploy-dependency-a"] = json!(format!("state=ready,name=o{on}"));
            }
            match mark {
                0 => annotations["helm.sh/hook"] = json!("pre-install,post-install"),
                1 => annotations["werf.io/delete-policy"] = json!("succeeded"),
                2 => annotations["werf.io/track-termination-mode"] = json!("NonBlocking"),
                _ => {}
            }
            annotated(object(api, kind, &format!("o{index}")), annotations)
        }).collect();
        match plan_of(rendered, &[item("v1", "ConfigMap", "gone", false)]) {
            Err(refused) => prop_assert_eq!(refused.reason(), "DependencyCycle"),
            Ok(plan) => {
                for (index, step) in plan.steps.iter().enumerate() {
                    prop_assert_eq!(step.id.index(), index);
                    prop_assert!(step.after.iter().all(|before| *before < step.id));
                }
                let applied = plan.steps.iter().filter(|step| matches!(step.work, Work::Apply { .. })).count();
                prop_assert_eq!(applied, plan.objects.len());
                let mut execution = Execution::new(&plan);
                let mut running: Vec<&Step> = Vec::new();
                let mut choices = choices.iter().cycle();
                loop {
                    for step in execution.start(3) {
                        for before in &step.after {
                            prop_assert!(matches!(execution.state(*before), StepState::Completed(_)));
                        }
                        running.push(step);
                    }
                    if running.is_empty() {
                        break;
                    }
                    let choice = choices.next().expect("endless").index(running.len());
                    let step = running.swap_remove(choice);
                    execution.complete(step.id, Outcome::Done);
                }
                prop_assert!(execution.is_complete());
            }
        }
    }
}
