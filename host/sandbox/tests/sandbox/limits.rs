//! Every limit, each by a guest that exceeds it. A table: the guest, and how its run ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Clock, RunEnd, RunInput, Snapshot, SnapshotItem, SnapshotState};
use serde_json::json;

use crate::guest::Guest;
use crate::host::{MIB, input, limits, prepare, run, run_with, wait};

const OPERATION: &str = "local.get $patches {object} i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $apply";

fn endless(body: &str) -> String {
    format!("(loop $l {body} br $l)")
}

/// Runs a guest and compares how it ended with a word for it.
#[track_caller]
fn ends(guest: &Guest, expected: &str) {
    let end = run(guest).end;
    let word = match &end {
        RunEnd::TimedOut { clock: Clock::Cpu, .. } => "cpu".to_owned(),
        RunEnd::TimedOut { clock: Clock::Wall, .. } => "wall".to_owned(),
        RunEnd::OutOfMemory { what, .. } => what.clone(),
        other => format!("{}: {other}", other.reason()),
    };
    assert!(word.starts_with(expected), "expected {expected:?}, got {word:?} ({end:?})");
}

#[test]
fn processor_time_ends_loops_of_every_kind() {
    let text = "x".repeat(200);
    for body in [
        endless(""),
        endless("(drop (i32.mul (local.get $hook) (local.get $hook)))"),
        endless("(memory.fill (i32.const 32768) (i32.const 0) (i32.const 30000))"),
    ] {
        ends(&Guest::run(&body), "cpu");
    }
    let prepared = prepare(&Guest::run(&endless("call $now drop")).text("text", &text));
    let prepared = prepared.with_limits(&GuestLimits { host_calls: u64::MAX, ..limits() });
    let outcome = wait(prepared.run(&Arc::new(input())));
    assert_eq!(outcome.end, RunEnd::TimedOut { clock: Clock::Cpu, limit_ms: 200 });
    assert!(outcome.usage.cpu_us >= 200_000 && outcome.usage.cpu_us < 1_000_000, "{:?}", outcome.usage);
    assert!(outcome.usage.host_calls > 1000);
}

#[test]
fn a_loop_in_the_start_function_is_ended_too() {
    let guest = Guest::run("").extra("(func $s (loop $l br $l)) (start $s)");
    let error = crate::host::load(guest.component()).expect_err("it never describes itself");
    assert_eq!(error.reason(), "ComponentDescribeFailed", "{error:?}");
}

#[test]
fn wall_clock_time_ends_a_guest_that_has_processor_time_left() {
    let prepared = prepare(&Guest::run(&endless("")));
    let prepared = prepared.with_limits(&GuestLimits { cpu_ms: 60_000, wall_ms: 100, ..limits() });
    let started = Instant::now();
    let outcome = wait(prepared.run(&Arc::new(input())));
    assert_eq!(outcome.end, RunEnd::TimedOut { clock: Clock::Wall, limit_ms: 100 });
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn other_tasks_get_their_turn_while_a_guest_loops() {
    let prepared = prepare(&Guest::run(&endless("")));
    wait(async {
        let started = Instant::now();
        let looping = prepared.run(&Arc::new(input())).await.end;
        assert!(!looping.is_ok());
        // Both on one thread: the timer fires long before the guest is ended.
        let input = Arc::new(input());
        let sleeper = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            started.elapsed()
        };
        let (end, _) = tokio::join!(prepared.run(&input), sleeper);
        assert!(!end.end.is_ok());
        let begun = Instant::now();
        tokio::select! {
            biased;
            _ = prepared.run(&input) => panic!("the guest ends after 200 ms"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        assert!(begun.elapsed() < Duration::from_millis(150), "{:?}", begun.elapsed());
    });
}

#[test]
fn memory_tables_stack_and_handles_are_bounded() {
    let grow = "(memory.grow (i32.const 1)) drop";
    ends(&Guest::run(&endless(grow)), "memory");
    // In one step, far beyond any slot of the pool.
    ends(&Guest::run("(memory.grow (i32.const 60000)) drop"), "memory");
    let table =
        Guest::run(&endless("(table.grow $t (ref.null func) (i32.const 10)) drop")).extra("(table $t 1 funcref)");
    ends(&table, "table");
    let deep = Guest::run("call $f").extra("(func $f call $f i32.const 0 drop)");
    ends(&deep, "stack");
    let open = "{name} i32.const 64 call $open";
    let leak = Guest::run(&endless(open)).text("name", "pods");
    let end = run_with(&leak, with_pods(1)).end;
    assert_eq!(end, RunEnd::OutOfMemory { what: "handles".to_owned(), limit: 100 });
}

#[test]
fn a_maximum_that_the_guest_set_itself_is_no_fault() {
    let guest = Guest::run("").raw(
        "(if (i32.ne (table.grow $t (ref.null func) (i32.const 5)) (i32.const -1)) (then unreachable))
         local.get $patches call $drop_patches i32.const 16",
    );
    assert_eq!(run(&guest.extra("(table $t 1 3 funcref)")).end, RunEnd::Ok);
}

#[test]
fn the_memory_of_a_run_is_the_sum_of_all_memories() {
    // Two memories of 40 pages are 5 MiB, more than 4; each alone is less.
    let grow = "(drop (memory.grow $second (i32.const 39))) (drop (memory.grow (i32.const 39)))";
    let guest = Guest::run(grow).extra("(memory $second 1)");
    let end = run(&guest).end;
    assert_eq!(end, RunEnd::OutOfMemory { what: "memory".to_owned(), limit: 4 * MIB });
    let less = Guest::run("(drop (memory.grow $second (i32.const 20)))").extra("(memory $second 1)");
    let outcome = run(&less);
    assert_eq!(outcome.end, RunEnd::Ok);
    assert!(outcome.usage.memory_bytes >= 22 * 65536, "{:?}", outcome.usage);
}

#[test]
fn memory_that_is_there_at_the_start_counts() {
    let prepared = prepare(&Guest::run("").pages(20));
    let prepared = prepared.with_limits(&GuestLimits { memory_bytes: MIB, ..limits() });
    let end = wait(prepared.run(&Arc::new(input()))).end;
    assert_eq!(end, RunEnd::OutOfMemory { what: "memory".to_owned(), limit: MIB });
}

#[test]
fn calls_and_their_bytes_are_bounded() {
    ends(&Guest::run(&endless("call $next_u64 drop")), "HookCallsExceeded: called the host more than 10000 times");
    let giant = Guest::run("i32.const 1 i32.const 0 i32.const 2097152 i32.const 0 i32.const 0 call $log").pages(40);
    ends(&giant, "HookBadOutput");
    let giant = Guest::run("i32.const 1 i32.const 0 i32.const 2097152 i32.const 0 i32.const 0 call $log").pages(2);
    ends(&giant, "HookTrapped");
    ends(&Guest::run("i32.const 4097 i32.const 64 call $random_bytes"), "HookDenied: denied: 'random.bytes' of 4097");
    ends(&Guest::run("i32.const -1 i32.const 64 call $random_bytes"), "HookDenied");
    let result = Guest::run("").raw(
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store (i32.const 72) (i32.const 0))
         (i32.store (i32.const 76) (i32.const 2097152)) local.get $patches call $drop_patches i32.const 64",
    );
    ends(&result.pages(40), "HookBadOutput");
}

#[test]
fn operations_are_bounded_in_number_and_bytes() {
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    ends(&Guest::run(&endless(OPERATION)).text("object", object), "HookBadOutput: bad output: more than 10 operations");
    let large = format!("{object}{}", " ".repeat(1024));
    let large = Guest::run(OPERATION).text("object", &large);
    ends(&large, "HookBadOutput: bad output: operation 0 (apply) has 1086 bytes");
    let medium = format!("{object}{}", " ".repeat(900));
    let medium = Guest::run(&format!("{OPERATION} ").repeat(5)).text("object", &medium);
    ends(&medium, "HookBadOutput: bad output: all operations together");
}

#[test]
fn logs_are_cut_and_say_so() {
    let line = "i32.const 1 {text} i32.const 0 i32.const 0 call $log";
    let long = Guest::run(line).text("text", &"x".repeat(300));
    let outcome = run(&long);
    assert_eq!(outcome.end, RunEnd::Ok);
    assert_eq!(outcome.log[0].message, format!("{}… [cut]", "x".repeat(256)));
    let flood = format!(
        "(loop $l {line} (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 5000))))"
    );
    let outcome = run(&Guest::run(&flood).text("text", &"y".repeat(100)));
    assert_eq!(outcome.end, RunEnd::Ok);
    let bytes: usize = outcome.log.iter().map(|line| line.message.len()).sum();
    assert!(bytes < 9 * 1024, "{bytes}");
    let last = &outcome.log.last().expect("there are lines").message;
    assert!(last.contains("more lines were dropped"), "{last}");
    let empty = run(&Guest::run(&flood).text("text", ""));
    assert!(empty.log.len() < 300, "{}", empty.log.len());
    let ansi = run(&Guest::run(line).text("text", "a\u{1b}[2J\nfake"));
    assert_eq!(ansi.log[0].message, "a\\u{1b}[2J\\nfake");
}

#[test]
fn metrics_are_checked_and_bounded() {
    for (value, name, expected) in [
        ("f64.const 1", "ok_total", "Succeeded"),
        ("f64.const -1", "ok_total", "HookBadOutput"),
        ("f64.const nan", "ok_total", "HookBadOutput"),
        ("f64.const inf", "ok_total", "HookBadOutput"),
        ("f64.const 1", "", "HookBadOutput"),
        ("f64.const 1", "1x", "HookBadOutput"),
        ("f64.const 1", "a-b", "HookBadOutput"),
        ("f64.const 1", "a\n", "HookBadOutput"),
    ] {
        let guest = Guest::run(&format!("{{name}} {value} i32.const 0 i32.const 0 call $counter")).text("name", name);
        assert_eq!(run(&guest).end.reason(), expected, "{value} {name:?}");
    }
    // Each name one letter longer than the one before: a series each.
    let series = "(loop $l {&name} (local.tee $i (i32.add (local.get $i) (i32.const 1))) f64.const 1 i32.const 0 \
                  i32.const 0 call $gauge (br_if $l (i32.lt_u (local.get $i) (i32.const 6))))";
    let guest = Guest::run(series).text("name", "abcdefghij");
    ends(&guest, "HookBadOutput: bad output: more than 5 metric series");
    let twice = "{name} f64.const 2 i32.const 0 i32.const 0 call $counter ".repeat(3);
    let outcome = run(&Guest::run(&twice).text("name", "n"));
    assert_eq!(outcome.metrics.len(), 1);
    assert!((outcome.metrics[0].value - 6.0).abs() < f64::EPSILON);
}

#[test]
fn a_snapshot_that_is_larger_than_a_call_can_carry_is_refused() {
    let guest = Guest::run("{name} i32.const 64 call $open (i32.load (i32.const 68)) i32.const 96 call $snapshot_json")
        .text("name", "pods");
    assert_eq!(run_with(&guest, with_pods(3)).end, RunEnd::Ok);
    let end = run_with(&guest, with_pods(20_000)).end;
    let RunEnd::Denied { what } = &end else { panic!("{end:?}") };
    assert!(what.contains("snapshot.json"), "{what}");
}

/// An input with a snapshot `pods`.
pub(crate) fn with_pods(count: usize) -> RunInput {
    let items = (0..count)
        .map(|number| {
            let name = format!("pod-{number}");
            let projection = json!({"name": name, "labels": {"app": "shop", "a/b": number, "t~": true}});
            Arc::new(SnapshotItem::new("demo".to_owned(), name, projection, None))
        })
        .collect();
    let snapshots = BTreeMap::from([
        ("pods".to_owned(), SnapshotState::Ready(Arc::new(Snapshot::new(items)))),
        ("broken".to_owned(), SnapshotState::NotSynchronised("the filter fails".to_owned())),
    ]);
    RunInput { snapshots, ..input() }
}
