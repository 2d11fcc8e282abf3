//! Runs that end well, and runs in which the guest itself says or does that they do not.

use barbless_domain::run::RunEnd;

use crate::guest::Guest;
use crate::host::run;

#[test]
fn a_hook_that_returns_well_has_succeeded_and_its_operations_are_in_order() {
    let guest = Guest::run(
        "local.get $patches {object} i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $apply
         local.get $patches {object} i32.const 1 i32.const 1 i32.const 0 i32.const 1 call $create",
    )
    .text("object", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"marker"}}"#);
    let outcome = run(&guest);
    assert_eq!(outcome.end, RunEnd::Ok);
    let operations: Vec<String> = outcome.operations.iter().map(ToString::to_string).collect();
    assert_eq!(operations, ["apply ConfigMap marker", "create ConfigMap marker/scale"]);
    assert!(!outcome.operations[0].on_failure);
    assert!(outcome.operations[1].on_failure);
    assert_eq!(outcome.usage.host_calls, 2);
    // One page, and the two table elements of the adapter that `wit-component` makes.
    assert!((65_536..66_000).contains(&outcome.usage.memory_bytes), "{}", outcome.usage.memory_bytes);
}

#[test]
fn a_trap_has_its_message_and_a_back_trace() {
    let outcome = run(&Guest::run("").raw("unreachable"));
    let RunEnd::Trap { message, panic: None, backtrace } = outcome.end else { panic!("{:?}", outcome.end) };
    assert!(message.contains("unreachable"), "{message}");
    assert!(!backtrace.is_empty());
}
