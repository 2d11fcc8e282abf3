//! The hook queues: what runs, when, how often, and what a failure means.

use super::*;
use crate::hook::RateLimit;
use crate::queue::Backoff;

/// A world whose package has these hooks, installed and at rest.
fn installed_with(hooks: Vec<HookDeclaration>) -> World {
    let mut world = World::new();
    world.hooks = hooks;
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world
}

fn due(hook: &str) -> Event {
    Event::ScheduleDue { hook: hook.into(), schedule: "s".into() }
}

fn changed(hook: &str, name: &str) -> Event {
    let change = Change {
        binding: "objects".into(),
        event: WatchEventType::Modified,
        namespace: "demo".into(),
        name: name.into(),
        last: None,
    };
    Event::ObjectsChanged { hook: hook.into(), changes: vec![change] }
}

fn state_of(problem: Option<&str>) -> Event {
    let problem = problem.map(str::to_owned);
    Event::BindingState { hook: "a".into(), binding: "objects".into(), problem }
}

/// Until the next moment at which something wants to happen.
fn wait(world: &mut World) {
    world.now = world.app.wake().expect("something waits");
    world.send(Event::Tick);
}

fn summary(world: &World) -> (String, String) {
    let summary = &world.status.as_ref().expect("a status").summary;
    (summary.message.clone(), summary.tip.clone())
}

#[test]
fn a_failing_hook_blocks_only_its_own_queue_and_is_repeated() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world.send(Event::ScheduleDue { hook: "b".into(), schedule: "s".into() });
    world.fail("HookPanicked");
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Degraded");
    assert_eq!(world.app.wake(), Some(world.now.after(limits::RETRY_FIRST)));
    let settings = json!({"a": 1});
    world.send(Event::Observed(Desired { settings, generation: 2, ..desired("1.0.0") }));
    assert_eq!(world.take_log(), ["schedule b", "Configure"]);
    world.settle();
    assert_eq!(world.status.as_ref().unwrap().conditions[0].status, "True");
    assert!(world.take_log().iter().any(|word| word == "schedule b"));
}

#[test]
fn a_burst_of_events_is_one_run_and_at_most_one_more() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    for number in 0..100 {
        let change = Change {
            binding: "objects".into(),
            event: WatchEventType::Modified,
            namespace: "demo".into(),
            name: format!("o{}", number % 7),
            last: None,
        };
        world.send(Event::ObjectsChanged { hook: "a".into(), changes: vec![change] });
    }
    world.settle();
    assert_eq!(world.take_log(), ["event a"]);
}

#[test]
fn a_hook_that_always_changes_values_is_paced() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    for _ in 0..=limits::VALUES_LOOP {
        world.send(Event::ScheduleDue { hook: "b".into(), schedule: "s".into() });
        let ticket = *world.flying.keys().next_back().unwrap();
        world.flying.remove(&ticket);
        world.send(Event::Answered(ticket, Answer::HookRan { values_changed: true }));
        if world.app.wake().is_some_and(|at| at > world.now) {
            break;
        }
        world.settle();
    }
    let wait = world.app.wake().unwrap();
    assert_eq!(wait, world.now.after(limits::RETRY_FIRST));
}

#[test]
fn what_changes_during_a_run_is_one_more_run_that_knows_all_of_it() {
    let mut world = installed();
    world.send(changed("a", "first"));
    assert!(world.flying.is_empty(), "changes are collected for a moment");
    wait(&mut world);
    for number in 0..50 {
        world.send(changed("a", &format!("o{}", number % 5)));
    }
    assert_eq!(world.take_log(), ["event a"]);
    world.answer();
    wait(&mut world);
    let Some((_, Effect::RunHook { trigger: Trigger::Events(changes), .. })) = world.flying.first_key_value() else {
        panic!("a run: {:?}", world.flying)
    };
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["o0", "o1", "o2", "o3", "o4"]);
    world.settle();
    assert_eq!(world.take_log(), ["event a"]);
}

#[test]
fn a_limited_hook_waits_beside_its_queue() {
    let mut limited = hook("limited", vec![Binding::Kubernetes(objects("objects"))]);
    limited.rate_limit = Some(RateLimit { min_interval_ms: 10_000, burst: 2 });
    let mut world = installed_with(vec![limited, hook("other", vec![])]);
    let begun = world.now;
    let mut runs = Vec::new();
    for number in 0..6 {
        world.send(changed("limited", &number.to_string()));
        world.now = world.now.after(limits::EVENT_DEBOUNCE);
        world.send(Event::Tick);
        while world.answer() {}
        runs.extend(world.take_log());
    }
    // The synchronization run was one of the two that may follow each other.
    assert_eq!(runs, ["event limited"], "the rest waits and is one run");
    world.send(due("other"));
    assert_eq!(world.take_log(), ["schedule other"], "others pass");
    while world.answer() {}
    wait(&mut world);
    assert_eq!(world.take_log(), ["event limited"]);
    assert!(world.now >= begun.after(std::time::Duration::from_secs(10)), "{:?}", world.now);
    world.settle();
}

#[test]
fn a_hook_runs_once_at_a_time_whatever_asks_for_it() {
    let mut world = installed();
    // `a` runs before and after the apply, and because of its objects.
    world.send(changed("a", "o"));
    wait(&mut world);
    assert_eq!(world.take_log(), ["event a"]);
    let event = *world.flying.first_key_value().expect("the run").0;
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    while world.answer_but(Some(event)) {}
    assert_eq!(world.take_log(), ["Configure", "beforeHelm c"], "the reconciliation waits for the run of the event");
    assert_eq!(world.app.wake(), None, "and for no moment");
    world.send(changed("a", "p"));
    world.answer();
    assert_eq!(world.take_log(), ["beforeHelm a"]);
    world.now = world.now.after(limits::EVENT_DEBOUNCE);
    world.send(Event::Tick);
    assert_eq!(world.take_log(), Vec::<String>::new(), "and the other way round");
    world.answer();
    assert!(world.take_log().contains(&"event a".to_owned()));
    world.settle();
}

#[test]
fn a_hook_that_fails_again_and_again_lets_the_others_pass_and_says_what_can_be_done() {
    let mut world = installed();
    world.send(due("b"));
    world.send(due("c"));
    // The check for missing objects comes in between, and is not what this is about.
    let again = |world: &mut World| {
        wait(world);
        while !matches!(world.flying.first_key_value(), Some((_, Effect::RunHook { .. }))) {
            if !world.answer() {
                wait(world);
            }
        }
        world.log.retain(|word| word != "CheckDrift");
    };
    for failure in 1..limits::BREAKER_FAILURES {
        world.fail("HookPanicked");
        assert_eq!(world.take_log(), ["schedule b"], "failure {failure} holds the queue");
        assert_eq!(summary(&world).1, "");
        again(&mut world);
    }
    world.fail("HookPanicked");
    assert_eq!(world.take_log(), ["schedule b", "schedule c"], "nobody waits for a broken hook");
    while world.answer() {}
    let (message, tip) = summary(&world);
    assert_eq!(message, "hook 'b': HookPanicked: it broke (10 failures in a row)");
    assert!(tip.contains("packages.deckhouse.io/retry") && tip.contains("packages.deckhouse.io/skip-hooks=b"), "{tip}");
    assert_eq!(world.app.wake(), Some(world.now.after(Backoff::HOOK.cap)), "it is repeated for ever");
    world.send(Event::Observed(Desired { retry: "now".into(), ..desired("1.0.0") }));
    assert!(world.take_log().contains(&"schedule b".to_owned()), "and at once if somebody asks for it");
    world.settle();
    assert_eq!(summary(&world).0, "");
}

#[test]
fn a_lifecycle_hook_that_fails_again_and_again_can_be_skipped() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    for failure in 1..=limits::BREAKER_FAILURES {
        while !world.log.iter().any(|word| word == "beforeHelm a") {
            assert!(world.answer(), "{:?}", world.log);
        }
        world.fail("HookPanicked");
        world.take_log();
        assert_eq!(summary(&world).1.contains("skip-hooks=a"), failure == limits::BREAKER_FAILURES);
        if failure < limits::BREAKER_FAILURES {
            wait(&mut world);
        }
    }
    let skip = Desired { skip_hooks: vec!["a".into(), "zz".into()], ..desired("1.0.0") };
    world.send(Event::Observed(skip));
    world.settle();
    let log = world.take_log();
    assert_eq!(log, ["beforeHelm c", "beforeHelm b", "Render", "Apply"]);
    assert_eq!(condition(&world, "Installed").as_deref(), Some("True Installed"));
    assert_eq!(condition(&world, "HooksSkipped").as_deref(), Some("True SkippedByOperator"));
    assert_eq!(condition(&world, "RequestsAccepted").as_deref(), Some("False NoSuchHook"), "`zz` is told");
    world.send(changed("a", "o"));
    world.settle();
    assert_eq!(world.take_log(), Vec::<String>::new());
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    let log = world.take_log();
    assert!(log.contains(&"synchronization a".to_owned()), "what it missed it sees at once: {log:?}");
    assert!(log.contains(&"beforeHelm a".to_owned()), "{log:?}");
    assert_eq!(condition(&world, "HooksSkipped"), None);
}

#[test]
fn skipping_drops_what_waits_and_lets_a_synchronization_go_on() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    while !world.log.iter().any(|word| word == "synchronization a") {
        world.answer();
    }
    world.fail("HookPanicked");
    world.take_log();
    world.send(Event::Observed(Desired { skip_hooks: vec!["a".into()], ..desired("1.0.0") }));
    world.settle();
    assert_eq!(world.take_log(), ["onStartup d", "beforeHelm c", "beforeHelm b", "Render", "Apply"]);
}

#[test]
fn a_hook_does_not_run_on_a_snapshot_that_cannot_be_trusted() {
    let mut world = installed();
    world.send(state_of(Some("the filter failed for demo/o: no")));
    let expected = "hook 'a': binding 'objects' is not synchronised: the filter failed for demo/o: no";
    assert_eq!(summary(&world).0, expected);
    world.send(changed("a", "o"));
    world.now = world.now.after(limits::EVENT_DEBOUNCE);
    world.send(Event::Tick);
    world.send(due("b"));
    assert_eq!(world.take_log(), ["schedule b"], "its queue goes on without it");
    while world.answer() {}
    // A reconciliation that needs it fails and says so.
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    while world.answer() {}
    assert_eq!(world.take_log(), ["Configure", "beforeHelm c"]);
    world.send(state_of(None));
    assert!(world.take_log().contains(&"event a".to_owned()), "at once");
    world.settle();
    let log = world.take_log();
    assert!(log.contains(&"afterHelm a".to_owned()), "the reconciliation does not wait for its back-off: {log:?}");
    assert_eq!(summary(&world).0, "");
    // What is to be removed is not held up.
    world.send(state_of(Some("no")));
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    world.settle();
    assert!(world.app.is_finished());
}

#[test]
fn what_an_earlier_process_has_installed_is_installed_whatever_goes_wrong_now() {
    let mut world = World::new();
    world.released = Some(released("d0", false));
    world.send(Event::Observed(desired("1.0.0")));
    until(&mut world, "Apply");
    world.fail("ImmutableField");
    assert_eq!(condition(&world, "Installed").as_deref(), Some("True Installed"));
    assert_eq!(world.status.as_ref().map(|it| it.summary.state.as_str()), Some("Degraded"));
}

#[test]
fn n10_n11_n12_a_synchronization_sees_the_newest_state_and_events_come_after_it() {
    let mut world = World::new();
    world.hooks = vec![hook("a", vec![Binding::Kubernetes(objects("objects"))])];
    world.send(Event::Observed(desired("1.0.0")));
    while !world.log.iter().any(|word| word == "synchronization a") {
        assert!(world.answer());
    }
    for attempt in 1..=3 {
        // While it runs (N11), and while it waits to be repeated (N10): the repetition sees both.
        world.send(changed("a", &format!("during-{attempt}")));
        world.fail("HookPanicked");
        world.send(changed("a", &format!("before-{attempt}")));
        assert_eq!(world.app.hook_queues().values().map(Queue::len).sum::<usize>(), 1);
        wait(&mut world);
    }
    // It has read its snapshots and is under way: this one it has not seen.
    world.send(changed("a", "last"));
    world.settle();
    let log = world.take_log();
    assert_eq!(log.iter().filter(|word| *word == "synchronization a").count(), 4, "{log:?}");
    assert_eq!(log.iter().filter(|word| *word == "event a").count(), 1, "{log:?}");
}

/// Until an effect of this word is under way; everything before it ends well.
fn until(world: &mut World, wanted: &str) {
    for _ in 0..1_000 {
        if world.flying.values().any(|effect| word(effect) == wanted) {
            return;
        }
        if !world.answer() {
            wait(world);
        }
    }
    panic!("{wanted} does not come: {:?}", world.log);
}

#[test]
fn what_was_wrong_with_bindings_that_could_not_start_is_forgotten_with_them() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    until(&mut world, "StartBindings");
    world.send(state_of(Some("KindNotServed")));
    world.fail(NOT_SYNCHRONISED);
    world.settle();
    assert!(world.take_log().contains(&"afterHelm a".to_owned()));
}

#[test]
fn a_removal_does_not_wait_for_snapshots_that_cannot_be_had() {
    let mut world = World::new();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    until(&mut world, "StartBindings");
    world.fail(NOT_SYNCHRONISED);
    world.settle();
    assert!(world.take_log().contains(&"beforeDeleteHelm c".to_owned()));
    assert!(world.app.is_finished());
    // Without delete hooks nothing has to be looked at.
    let mut world = World::new();
    world.hooks = vec![hook("a", vec![Binding::Kubernetes(objects("objects"))])];
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    world.settle();
    assert!(world.app.is_finished() && !world.take_log().contains(&"StartBindings".to_owned()));
}

#[test]
fn a_hook_that_always_has_something_to_do_does_not_keep_the_lifecycle_waiting() {
    let mut world = installed();
    world.send(due("a"));
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    for round in 0..10 {
        // Another time is due before the run of the last one has ended.
        world.send(Event::ScheduleDue { hook: "a".into(), schedule: format!("s{round}") });
        world.answer();
    }
    let log = world.take_log();
    assert!(log.contains(&"beforeHelm a".to_owned()), "{log:?}");
    world.settle();
}

#[test]
fn a_synchronization_is_not_lost_when_a_reconciliation_is_stopped_just_then() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    until(&mut world, "StartBindings");
    // Other settings, and then the answer: the bindings are there, and their task is not.
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    world.settle();
    let log = world.take_log();
    assert!(log.contains(&"synchronization a".to_owned()), "{log:?}");
}

#[test]
fn a_repetition_does_not_wait_for_a_rate_limit_too() {
    let mut limited = hook("limited", vec![]);
    limited.rate_limit = Some(RateLimit { min_interval_ms: 3_600_000, burst: 1 });
    let mut world = installed_with(vec![limited, hook("other", vec![])]);
    world.send(due("limited"));
    world.fail("HookPanicked");
    world.now = world.now.after(limits::RETRY_FIRST);
    world.send(Event::Tick);
    assert_eq!(world.take_log(), ["schedule limited", "schedule limited"]);
    world.settle();
}

#[test]
fn a_process_that_begins_with_a_suspension_gives_delete_hooks_their_snapshots() {
    let mut world = World::new();
    world.released = Some(released("d1", false));
    world.send(Event::Observed(desired("1.0.0")));
    until(&mut world, "CheckRequirements");
    let (ticket, _) = world.flying.pop_first().expect("the check");
    world.send(Event::Answered(ticket, Answer::Requirements(vec!["module 'x' is not enabled".into()])));
    world.settle();
    let log = world.take_log();
    let place =
        |wanted: &str| log.iter().position(|word| word == wanted).unwrap_or_else(|| panic!("{wanted}: {log:?}"));
    assert!(place("StartBindings") < place("beforeDeleteHelm c"));
}

#[test]
fn a_failure_that_is_allowed_is_no_failure_of_the_application() {
    let mut may = hook("may", vec![]);
    may.allow_failure = true;
    let mut world = installed_with(vec![may]);
    world.send(due("may"));
    world.fail("HookPanicked");
    assert_eq!(summary(&world).0, "");
    assert!(world.app.is_idle());
}

#[test]
fn startup_hooks_that_have_succeeded_are_not_repeated_with_one_that_fails() {
    let mut world = World::new();
    world.hooks = vec![hook("a", vec![at(Stage::OnStartup, 1)]), hook("b", vec![at(Stage::OnStartup, 2)])];
    world.send(Event::Observed(desired("1.0.0")));
    until(&mut world, "onStartup b");
    world.fail("HookPanicked");
    world.settle();
    let log = world.take_log();
    let started: Vec<&String> = log.iter().filter(|word| word.starts_with("onStartup")).collect();
    assert_eq!(started, ["onStartup a", "onStartup b", "onStartup b"]);
}

#[test]
fn values_that_change_now_and_then_are_no_loop() {
    let mut world = installed();
    for _ in 0..2 * limits::VALUES_LOOP {
        world.now = world.now.after(limits::VALUES_QUIET);
        world.send(due("b"));
        while !world.flying.values().any(|effect| word(effect) == "schedule b") {
            assert!(world.answer());
        }
        let ticket = *world.flying.iter().find(|(_, effect)| word(effect) == "schedule b").expect("the run").0;
        world.flying.remove(&ticket);
        world.send(Event::Answered(ticket, Answer::HookRan { values_changed: true }));
        assert_eq!(world.log.last().map(String::as_str), Some("Configure"), "at once");
        world.settle();
        world.take_log();
    }
}

#[test]
fn an_event_costs_as_much_as_there_are_tasks_and_not_its_square() {
    const HOOKS: usize = 300;
    let hook = |number: usize| HookDeclaration { name: format!("h{number:03}"), ..HookDeclaration::clone(&hooks()[0]) };
    let mut world = installed_with((0..HOOKS).map(hook).collect());
    let looks = |world: &mut World, event: Event| {
        super::super::hooks::LOOKS.with(|looks| looks.set(0));
        world.send(event);
        let _ = world.app.wake();
        super::super::hooks::LOOKS.with(std::cell::Cell::get)
    };
    for number in 0..HOOKS {
        looks(&mut world, changed(&format!("h{number:03}"), "o"));
    }
    // All of them wait for their moment, in one queue.
    let waiting = looks(&mut world, changed("h000", "another"));
    assert!((1..=6 * HOOKS).contains(&waiting), "{waiting} looks at {HOOKS} waiting tasks");
    // Behind one that runs nobody asks.
    world.now = world.app.wake().expect("they start");
    world.send(Event::Tick);
    let running = looks(&mut world, changed("h001", "another"));
    assert_eq!(running, 0);
}

#[test]
fn what_users_see_is_not_made_anew_for_events_that_change_nothing_of_it() {
    let mut world = installed_with(hooks());
    super::super::MADE.with(|made| made.set(0));
    for number in 0..100 {
        world.send(changed("a", &format!("o{number}")));
        world.send(Event::Tick);
    }
    wait(&mut world);
    world.settle();
    assert_eq!(super::super::MADE.with(std::cell::Cell::get), 0);
}

#[test]
fn a_removal_is_told_to_a_run_that_was_cancelled_for_less() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    let lifecycle = |effect: &Effect| matches!(effect, Effect::RunHook { trigger: Trigger::Lifecycle(_), .. });
    while !world.flying.values().any(lifecycle) {
        assert!(world.answer(), "a hook of the lifecycle runs");
    }
    world.take_log();
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    world.send(Event::Observed(Desired { deleting: true, settings: json!({"a": 1}), ..desired("1.0.0") }));
    let cancels: Vec<String> = world.take_log().into_iter().filter(|word| word.starts_with("cancel")).collect();
    assert_eq!(cancels, ["cancel SettingsChanged", "cancel RemovalStarted"]);
}
