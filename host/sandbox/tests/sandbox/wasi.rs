//! WASI is there, and there is nothing behind it.

use std::sync::Arc;

use barbless_domain::grant::{Grant, Interface};
use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Clock, LogLevel, RunEnd, RunInput};

use crate::guest::Guest;
use crate::host::{application, input, limits, load, prepare, run, run_with, sandbox, wait};

#[test]
fn standard_output_becomes_log_lines() {
    let guest = Guest::run("(local.set $i (call $get_stdout)) local.get $i {a} i32.const 64 call $print local.get $i {b} i32.const 64 call $print")
        .wasi()
        .text("a", "first\nsec")
        .text("b", "ond\u{1b}[2J\r\n\nlast");
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    let lines: Vec<&str> = outcome.log.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(lines, ["first", "second\\u{1b}[2J", "", "last"]);
    assert_eq!(outcome.log[0].level, LogLevel::Info);
    assert_eq!(outcome.log[0].fields, [("stream".to_owned(), "stdout".to_owned())]);
}

#[test]
fn output_without_line_breaks_is_bounded() {
    let guest = Guest::run(
        "(local.set $n (call $get_stdout))
         (loop $l local.get $n {a} i32.const 64 call $print
            (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 2000))))",
    )
    .wasi()
    .text("a", &"x".repeat(1000));
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    assert_eq!(outcome.log.len(), 1);
    assert!(outcome.log[0].message.ends_with("[cut]") && outcome.log[0].message.len() < 300);
}

#[test]
fn there_is_no_environment_no_argument_and_no_folder() {
    for call in ["environment", "arguments", "directories"] {
        let guest = Guest::run("").wasi().raw(&format!(
            "i32.const 64 call ${call} (if (i32.load (i32.const 68)) (then unreachable))
             local.get $patches call $drop_patches i32.const 16"
        ));
        assert_eq!(run(&guest).end, RunEnd::Ok, "{call}");
    }
}

#[test]
fn the_clock_shows_the_moment_of_the_run() {
    let guest = Guest::run("").wasi().raw(
        "i32.const 64 call $wall_now
         (if (i64.ne (i64.load (i32.const 64)) (i64.const 1800000000)) (then unreachable))
         (if (i32.ne (i32.load (i32.const 72)) (i32.const 0)) (then unreachable))
         local.get $patches call $drop_patches i32.const 16",
    );
    assert_eq!(run(&guest).end, RunEnd::Ok);
}

#[test]
fn random_numbers_come_from_the_seed_and_are_not_those_of_the_contract() {
    // The names of the metrics do not matter; their values are the numbers.
    let guest = Guest::run(
        "{a} (f64.convert_i64_u (call $wasi_u64)) i32.const 0 i32.const 0 call $gauge
         {b} (f64.convert_i64_u (call $next_u64)) i32.const 0 i32.const 0 call $gauge",
    )
    .wasi()
    .text("a", "a")
    .text("b", "b");
    let numbers = |seed: u8| {
        let outcome = run_with(&guest, RunInput { seed: [seed; 32], ..input() });
        assert_eq!(outcome.end, RunEnd::Ok);
        outcome.metrics.iter().map(|metric| metric.value.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
    assert_ne!(numbers(1)[0], numbers(1)[1]);
    let greedy = Guest::run("i64.const 4294967296 i32.const 64 call $wasi_bytes").wasi();
    assert!(!run(&greedy).end.is_ok());
}

#[test]
fn a_sleep_cannot_outlast_the_run() {
    let guest = Guest::run("(call $block (call $after (i64.const 60000000000)))").wasi();
    let prepared = prepare(&guest).with_limits(&GuestLimits { wall_ms: 100, ..limits() });
    let outcome = wait(prepared.run(&Arc::new(input())));
    assert_eq!(outcome.end, RunEnd::TimedOut { clock: Clock::Wall, limit_ms: 100 });
    assert!(outcome.usage.cpu_us < 50_000, "{:?}", outcome.usage);
    let short = Guest::run("(call $block (call $after (i64.const 1000000)))").wasi();
    assert_eq!(run(&short).end, RunEnd::Ok);
}

#[test]
fn an_exit_is_a_trap_of_the_guest() {
    let outcome = run(&Guest::run("i32.const 1 call $wasi_exit").wasi());
    let RunEnd::Trap { message, .. } = &outcome.end else { panic!("{:?}", outcome.end) };
    assert!(message.contains("exit"), "{message}");
}

#[test]
fn wasi_must_be_granted() {
    let component = load(Guest::run("call $wasi_u64 drop").wasi().component()).expect("it loads");
    assert!(component.interfaces().contains(&Interface::Wasi));
    let mut grant = Grant::with(Vec::new());
    grant.interfaces.remove(&Interface::Wasi);
    let error = sandbox().prepare(&component, &application(), &grant).expect_err("it is not granted");
    assert!(error.to_string().contains("wasi:"), "{error}");
}
