//! Runs that end well, and runs in which the guest itself says or does that they do not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_domain::hook::{Change, Trigger, WatchEventType};
use barbless_domain::run::{
    HookError, LogLevel, Panic, RunEnd, RunInput, Snapshot, SnapshotItem, SnapshotState, ValuesChange,
};
use serde_json::json;

use crate::guest::Guest;
use crate::host::{input, prepare, run, run_with, wait};
use crate::limits::with_pods;

const OK: &str = "local.get $patches call $drop_patches i32.const 16";
const OBJECT: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"marker"}}"#;
const APPLY: &str = "local.get $patches {object} i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $apply ";
const APPLY_ON_FAILURE: &str =
    "local.get $patches {object} i32.const 0 i32.const 0 i32.const 0 i32.const 1 call $apply ";

#[test]
fn a_hook_that_returns_well_has_succeeded_and_its_operations_are_in_order() {
    let target = "{version} {kind} {empty} {name}";
    let options = "i32.const 0 i32.const 0 i32.const 1 i32.const 0";
    let guest = Guest::run(&format!(
        "{APPLY} local.get $patches {{object}} i32.const 1 i32.const 1 i32.const 0 i32.const 1 call $create
         local.get $patches {target} {{merge}} {options} call $merge_patch
         local.get $patches {target} {{steps}} {options} call $json_patch
         local.get $patches {target} {{program}} {options} call $jq_patch
         local.get $patches {target} i32.const 1 {options} call $delete"
    ))
    .text("object", OBJECT)
    .text("version", "apps/v1")
    .text("kind", "Deployment")
    .text("empty", "")
    .text("name", "web")
    .text("merge", r#"{"spec":{"replicas":2}}"#)
    .text("steps", r#"[{"op":"remove","path":"/spec"}]"#)
    .text("program", ".spec.replicas = 3");
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    let operations: Vec<String> = outcome.operations.iter().map(ToString::to_string).collect();
    assert_eq!(
        operations,
        [
            "apply ConfigMap marker",
            "create ConfigMap marker/scale",
            "merge-patch Deployment.apps web",
            "json-patch Deployment.apps web",
            "jq-patch Deployment.apps web",
            "delete Deployment.apps web",
        ]
    );
    let flags: Vec<bool> = outcome.operations.iter().map(|operation| operation.on_failure).collect();
    assert_eq!(flags, [false, true, false, false, false, false]);
    assert!(outcome.operations[2].ignore_missing_object);
    // Handing back the collector is not a call that counts.
    assert_eq!(outcome.usage.host_calls, 6);
    // One page, and the table elements of the adapter that `wit-component` makes.
    assert!((65_536..66_000).contains(&outcome.usage.memory_bytes), "{}", outcome.usage.memory_bytes);
}

#[test]
fn a_hook_error_is_bounded_and_safe_to_show() {
    let guest = Guest::run("")
        .raw(
            "(i32.store8 (i32.const 64) (i32.const 1))
             (i32.store (i32.const 72) {&code}) (i32.store (i32.const 76) (i32.const 8))
             (i32.store (i32.const 80) {&message}) (i32.store (i32.const 84) (i32.const 9000))
             (i32.store8 (i32.const 88) (i32.const 1))
             (i32.store (i32.const 92) {&hint}) (i32.store (i32.const 96) (i32.const 4))
             (i32.store8 (i32.const 104) (i32.const 1)) (i64.store (i32.const 112) (i64.const 2500))
             local.get $patches call $drop_patches i32.const 64",
        )
        .text("code", "NotReady")
        .text("message", &format!("a\u{1b}[1m{}", "x".repeat(9000)))
        .text("hint", "wait");
    let RunEnd::HookError(HookError { code, message, hint, retry_after_ms }) = run(&guest).end else {
        panic!("the hook returned an error");
    };
    assert_eq!((code.as_str(), hint.as_deref(), retry_after_ms), ("NotReady", Some("wait"), Some(2500)));
    assert!(message.starts_with("a\\u{1b}[1mx") && message.ends_with("[cut]") && message.len() < 4200);
}

#[test]
fn a_trap_has_its_message_its_panic_and_a_back_trace() {
    let guest = Guest::run("")
        .raw("{message} {place} call $report_panic {place} {message} call $report_panic call $evil i32.const 0")
        .extra(r#"(func $evil (@name "_ZN4core9panicking5panic17h0123456789abcdefE") unreachable)"#)
        .text("message", "index out of\nbounds")
        .text("place", "src/lib.rs:7:9");
    let RunEnd::Trap { message, panic, backtrace } = run(&guest).end else { panic!("it traps") };
    assert!(message.contains("unreachable"), "{message}");
    let expected = Panic { message: "index out of\\nbounds".to_owned(), location: "src/lib.rs:7:9".to_owned() };
    assert_eq!(panic, Some(expected));
    assert!(backtrace[0].starts_with("core::panicking::panic"), "{backtrace:?}");
}

#[test]
fn names_of_functions_cannot_move_the_cursor() {
    let name = format!("f\\1b[2J{}", "n".repeat(5000));
    let guest =
        Guest::run("").raw("call $evil i32.const 0").extra(&format!("(func $evil (@name \"{name}\") unreachable)"));
    let RunEnd::Trap { backtrace, .. } = run(&guest).end else { panic!("it traps") };
    assert!(backtrace[0].starts_with("f\\u{1b}[2J"), "{backtrace:?}");
    assert!(backtrace.iter().all(|frame| frame.len() < 400), "{backtrace:?}");
}

#[test]
fn guests_that_break_the_rules_of_the_boundary_trap() {
    for (body, what) in [
        ("i32.const 1 i32.const -16 i32.const 100 i32.const 0 i32.const 0 call $log", "a pointer out of bounds"),
        ("i32.const 1 i32.const 0 i32.const -1 i32.const 0 i32.const 0 call $log", "a length out of bounds"),
        ("i32.const 1 {bytes} i32.const 0 i32.const 0 call $log", "text that is no UTF-8"),
        ("i32.const 9 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $log", "a level that does not exist"),
        ("i32.const 77 call $snapshot_len drop", "a handle that is not there"),
        ("local.get $patches call $drop_patches", "a handle given back twice"),
        ("i32.const 1 i32.const 0 i32.const 0 i32.const 1 i32.const 10000000 call $log", "a list out of bounds"),
    ] {
        let mut wat = Guest::run(body).text("bytes", "????");
        if what.contains("UTF-8") {
            wat = Guest::run(
                "(i32.store (i32.const 64) (i32.const -1)) i32.const 1 i32.const 64 i32.const 4 i32.const 0 i32.const 0 call $log",
            );
        }
        let end = run(&wat).end;
        assert!(matches!(end, RunEnd::Trap { .. }), "{what}: {end:?}");
    }
    let kept = Guest::run("").raw("i32.const 16").extra("(func $unused i32.const 0 call $drop_patches)");
    assert!(matches!(run(&kept).end, RunEnd::Trap { .. }), "the collector was not given back");
}

#[test]
fn a_malformed_operation_spoils_the_run_and_is_named() {
    let target = "{version} {kind} {empty} {name}";
    let patch = format!("local.get $patches {target} {{text}} i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $");
    let deep = "[".repeat(200);
    for (call, text, expected) in [
        (APPLY.replace("object", "text"), "{", "operation 1 (apply): the object is no JSON"),
        (APPLY.replace("object", "text"), deep.as_str(), "operation 1 (apply): the object is no JSON"),
        (APPLY.replace("object", "text"), "[]", "operation 1 (apply): the object is no JSON object"),
        (APPLY.replace("object", "text"), "{}", "operation 1 (apply): kind"),
        (APPLY.replace("object", "text"), r#"{"apiVersion":"v1","kind":"Pod"}"#, "operation 1 (apply): metadata.name"),
        (
            APPLY.replace("object", "text"),
            r#"{"apiVersion":"/v1","kind":"Pod","metadata":{"name":"a"}}"#,
            "operation 1 (apply): apiVersion",
        ),
        (format!("{patch}merge_patch"), "[1]", "operation 1 (merge-patch): the patch is no JSON object"),
        (format!("{patch}json_patch"), "{}", "operation 1 (json-patch): the patch is no JSON array"),
        (format!("{patch}json_patch"), "[1]", "operation 1 (json-patch): the patch is no JSON array"),
        (format!("{patch}jq_patch"), " ", "operation 1 (jq-patch): the jq program is empty"),
        (format!("{patch}merge_patch").replace("{kind}", "{empty}"), "{}", "operation 1 (merge-patch): kind"),
        (format!("{patch}merge_patch").replace("{name}", "{empty}"), "{}", "operation 1 (merge-patch): the name"),
    ] {
        let guest = Guest::run(&format!("{APPLY} {call} {call}"))
            .text("object", OBJECT)
            .text("text", text)
            .text("version", "apps/v1")
            .text("kind", "Deployment")
            .text("empty", "")
            .text("name", "web");
        let outcome = run(&guest);
        let RunEnd::BadOutput { what } = &outcome.end else { panic!("{text}: {:?}", outcome.end) };
        assert!(what.starts_with(expected), "{text}: {what}");
        assert_eq!(outcome.operations.len(), 1);
    }
}

#[test]
fn operations_for_the_case_of_failure_survive_a_trap() {
    let broken = APPLY_ON_FAILURE.replace("object", "broken");
    let guest = Guest::run("")
        .raw(&format!("{APPLY} {broken} {APPLY_ON_FAILURE} unreachable"))
        .text("object", OBJECT)
        .text("broken", "{");
    let outcome = run(&guest);
    assert!(matches!(outcome.end, RunEnd::Trap { .. }));
    let flags: Vec<bool> = outcome.operations.iter().map(|operation| operation.on_failure).collect();
    assert_eq!(flags, [false, true]);
}

#[test]
fn values_are_read_back_and_changes_are_kept_in_order() {
    let guest = Guest::run("")
        .raw(&format!(
            "{{pointer}} {{new}} i32.const 64 call $values_set
             (if (i32.load8_u (i32.const 64)) (then unreachable))
             {{pointer}} i32.const 96 call $values_get
             (if (i32.eqz (i32.load8_u (i32.const 96))) (then unreachable))
             i32.const 1 (i32.load (i32.const 100)) (i32.load (i32.const 104)) i32.const 0 i32.const 0 call $log
             {{old}} i32.const 64 call $values_remove
             {{old}} i32.const 96 call $values_get
             (if (i32.load8_u (i32.const 96)) (then unreachable))
             {{pointer}} {{big}} i32.const 64 call $values_set
             (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 3)) (then unreachable))
             {{pointer}} {{pointer}} i32.const 64 call $values_set
             (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 1)) (then unreachable))
             {OK}"
        ))
        .text("pointer", "/a~1b/c")
        .text("new", r#"{"x": 1}"#)
        .text("big", &format!("\"{}\"", "x".repeat(1100)))
        .text("old", "/replicas");
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    assert_eq!(outcome.log[0].message, r#"{"x":1}"#);
    assert_eq!(
        outcome.values,
        [
            ValuesChange { pointer: "/a~1b/c".to_owned(), value: Some(json!({"x": 1})) },
            ValuesChange { pointer: "/replicas".to_owned(), value: None },
        ]
    );
}

#[test]
fn snapshots_are_read_through_handles() {
    let guest = Guest::run("")
        .raw(&format!(
            "{{none}} i32.const 64 call $open
             (if (i32.ne (i32.load8_u (i32.const 64)) (i32.const 1)) (then unreachable))
             (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 0)) (then unreachable))
             {{broken}} i32.const 64 call $open
             (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 1)) (then unreachable))
             i32.const 1 (i32.load (i32.const 72)) (i32.load (i32.const 76)) i32.const 0 i32.const 0 call $log
             {{pods}} i32.const 64 call $open
             (local.set $n (i32.load (i32.const 68)))
             (if (i32.ne (call $snapshot_len (local.get $n)) (i32.const 3)) (then unreachable))
             local.get $n i32.const 3 i32.const 96 call $snapshot_at
             (if (i32.load8_u (i32.const 96)) (then unreachable))
             local.get $n i32.const 2 i32.const 96 call $snapshot_at
             (i32.load (i32.const 100)) {{label}} i32.const 128 call $item_get
             i32.const 1 (i32.load (i32.const 132)) (i32.load (i32.const 136)) i32.const 0 i32.const 0 call $log
             (i32.load (i32.const 100)) i32.const 128 call $item_name
             i32.const 1 (i32.load (i32.const 128)) (i32.load (i32.const 132)) i32.const 0 i32.const 0 call $log
             (i32.load (i32.const 100)) i32.const 128 call $item_object
             (if (i32.load8_u (i32.const 128)) (then unreachable))
             (i32.load (i32.const 100)) call $drop_item
             local.get $n call $drop_snapshot
             {OK}"
        ))
        .text("none", "services")
        .text("broken", "broken")
        .text("pods", "pods")
        .text("label", "/labels/a~1b");
    let outcome = run_with(&guest, with_pods(3));
    assert_eq!(outcome.end, RunEnd::Ok);
    let lines: Vec<&str> = outcome.log.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(lines, ["the filter fails", "2", "pod-2"]);
    assert_eq!(outcome.log[0].level, LogLevel::Info);
}

#[test]
fn a_handle_that_is_given_back_can_be_taken_again() {
    let body = "{pods} i32.const 64 call $open (i32.load (i32.const 68)) call $drop_snapshot
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))";
    let guest = Guest::run(&format!("(loop $l {body})")).text("pods", "pods");
    assert_eq!(run_with(&guest, with_pods(1)).end, RunEnd::Ok);
}

#[test]
fn the_same_input_has_the_same_outcome() {
    let guest = Guest::run(
        "i32.const 16 i32.const 64 call $random_bytes
         {a} (f64.convert_i64_u (call $next_u64)) i32.const 0 i32.const 0 call $gauge
         {b} (f64.convert_i64_u (call $now)) i32.const 0 i32.const 0 call $gauge
         {c} (f64.convert_i64_u (i64.load (i32.load (i32.const 64)))) i32.const 0 i32.const 0 call $gauge",
    )
    .text("a", "a")
    .text("b", "b")
    .text("c", "c");
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    assert_eq!(outcome.metrics, run(&guest).metrics);
    assert_eq!(outcome.metrics[1].value.to_bits(), 1.8e12_f64.to_bits());
    let other = run_with(&guest, RunInput { seed: [8; 32], ..input() });
    assert_ne!(outcome.metrics[0], other.metrics[0]);
    assert_ne!(outcome.metrics[2], other.metrics[2]);
}

#[test]
fn the_context_tells_why_and_how_often() {
    let guest = Guest::run("").raw(&format!(
        "(if (i32.ne (local.get $trigger) (i32.const 7)) (then unreachable))
         (if (i32.ne (local.get $t2) (i32.const 1)) (then unreachable))
         (if (i32.ne (local.get $attempt) (i32.const 3)) (then unreachable))
         (if (i32.ne (local.get $dry) (i32.const 1)) (then unreachable))
         i32.const 1 local.get $hook local.get $hook_len i32.const 0 i32.const 0 call $log
         i32.const 1 (i32.load (local.get $t1)) (i32.load (i32.add (local.get $t1) (i32.const 4)))
         i32.const 0 i32.const 0 call $log {OK}"
    ));
    let change = Change {
        binding: "pods".to_owned(),
        event: WatchEventType::Deleted,
        namespace: "demo".to_owned(),
        name: "pod-1".to_owned(),
        last: None,
    };
    let input = RunInput { trigger: Trigger::Events(vec![change]), attempt: 3, dry_run: true, ..input() };
    let outcome = run_with(&guest, input);
    assert_eq!(outcome.end, RunEnd::Ok);
    let lines: Vec<&str> = outcome.log.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(lines, ["hook", "pods"]);
}

#[test]
fn the_objects_of_the_changes_are_given_as_they_are_or_were() {
    let guest = Guest::run(
        "call $changed i32.const 96 call $snapshot_json
         i32.const 1 (i32.load (i32.const 96)) (i32.load (i32.const 100)) i32.const 0 i32.const 0 call $log",
    );
    let item = |name: &str, phase: &str| {
        Arc::new(SnapshotItem::new("demo".to_owned(), name.to_owned(), json!({ "phase": phase }), None))
    };
    let change = |event, name: &str, last| Change {
        binding: "pods".to_owned(),
        event,
        namespace: "demo".to_owned(),
        name: name.to_owned(),
        last,
    };
    let changes = vec![
        change(WatchEventType::Deleted, "gone", Some(item("gone", "Failed"))),
        change(WatchEventType::Modified, "b", None),
        // Made again after its deletion was told.
        change(WatchEventType::Deleted, "a", Some(item("a", "Failed"))),
        change(WatchEventType::Modified, "forgotten", None),
    ];
    let pods = Snapshot::new(vec![item("a", "Pending"), item("b", "Running")]);
    let snapshots = [("pods".to_owned(), SnapshotState::Ready(Arc::new(pods)))].into();
    let outcome = run_with(&guest, RunInput { trigger: Trigger::Events(changes), snapshots, ..input() });
    assert_eq!(outcome.end, RunEnd::Ok);
    let expected = r#"[{"phase":"Failed"},{"phase":"Running"},{"phase":"Pending"},null]"#;
    assert_eq!(outcome.log.first().map(|line| line.message.as_str()), Some(expected));
    let outcome = run_with(&guest, input());
    assert_eq!(outcome.log.first().map(|line| line.message.as_str()), Some("[]"));
}

#[test]
fn two_runs_share_nothing_also_after_a_trap() {
    // Traps when memory, a global or a table is not as the module says; then leaves a mark in all of them.
    let guest = Guest::run("")
        .raw(
            "(if (i32.load (i32.const 512)) (then unreachable))
             (if (i32.load8_u (i32.add (i32.mul (memory.size) (i32.const 65536)) (i32.const -1))) (then unreachable))
             (if (global.get $mark) (then unreachable))
             (if (i32.ne (memory.size) (i32.const 1)) (then unreachable))
             (i32.store (i32.const 512) (i32.const 1)) (global.set $mark (i32.const 1))
             (drop (memory.grow (i32.const 3)))
             (i32.store8 (i32.add (i32.mul (memory.size) (i32.const 65536)) (i32.const -1)) (i32.const 7))
             (if (i32.eq (local.get $attempt) (i32.const 2)) (then (loop $l br $l)))
             {message} {message} call $report_panic
             (drop (call $grown)) unreachable",
        )
        .extra(
            "(global $mark (mut i32) (i32.const 0))
             (func $grown (result i32) (i32.div_u (i32.const 1) (i32.const 0)))",
        )
        .text("message", "the end was reached");
    let prepared = prepare(&guest);
    for attempt in [1, 2, 1, 2, 1, 1] {
        let outcome = wait(prepared.run(&Arc::new(RunInput { attempt, ..input() })));
        match outcome.end {
            RunEnd::TimedOut { .. } => assert_eq!(attempt, 2),
            // A mark of an earlier run would trap before the panic is reported.
            RunEnd::Trap { panic: Some(_), .. } => assert_eq!(attempt, 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_caller_that_goes_away_ends_the_guest_and_frees_its_place() {
    let looping = prepare(&Guest::run("(loop $l br $l)"));
    let quick = prepare(&Guest::run(""));
    wait(async {
        let input = Arc::new(input());
        for _ in 0..10 {
            tokio::select! {
                biased;
                _ = looping.run(&input) => panic!("it ends after 200 ms only"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        let started = Instant::now();
        assert!(quick.run(&input).await.end.is_ok());
        assert!(started.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn many_runs_on_many_threads_all_end_well() {
    let prepared = prepare(&Guest::run(APPLY).text("object", OBJECT));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let input = Arc::new(input());
        // Also shows that the future can move between threads.
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (prepared, input) = (prepared.clone(), Arc::clone(&input));
                tokio::spawn(async move { prepared.run(&input).await })
            })
            .collect();
        for task in tasks {
            let outcome = task.await.expect("no run panics");
            assert_eq!(outcome.end, RunEnd::Ok);
            assert_eq!(outcome.operations.len(), 1);
        }
        let loaded = tokio::spawn(crate::host::sandbox().load(Guest::run("").component()));
        assert!(loaded.await.expect("no load panics").is_ok());
    });
}

#[test]
fn waiting_for_a_place_is_not_charged() {
    let prepared = prepare(&Guest::run("(loop $l br $l)"));
    wait(async {
        let input = Arc::new(input());
        let started = Instant::now();
        let outcomes = join((0..6).map(|_| prepared.run(&input)).collect()).await;
        let all = started.elapsed();
        for outcome in outcomes {
            assert_eq!(outcome.end.reason(), "HookCpuTimeExceeded");
            // Two run at a time, so that each takes about a third; one that waited would be charged for all.
            let wall = Duration::from_micros(outcome.usage.wall_us);
            assert!(wall < all.mul_f64(0.75), "{wall:?} of {all:?}");
        }
    });
}

/// Drives futures together on this task.
async fn join<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in futures.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
