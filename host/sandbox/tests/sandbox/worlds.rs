//! The optional worlds: settings, projections, health.

use std::sync::Arc;

use barbless_domain::run::RunEnd;
use barbless_sandbox::{AssessedStatus, CallError, Health, Verdict, World};
use serde_json::json;

use crate::guest::Guest;
use crate::host::{instance, prepare, wait};

pub(crate) fn checker(body: &str) -> Guest {
    let extra = format!(
        r#"(func (export "barbless:hooks/check-settings@0.1.0#check") (param $settings i32) (param $len i32) (result i32)
            {body} i32.const 64)"#
    );
    Guest::of("settings-checker", &extra)
}

pub(crate) fn filter(body: &str) -> Guest {
    let extra = format!(
        r#"(func (export "barbless:hooks/filter@0.1.0#project")
            (param $hook i32) (param $hook_len i32) (param $binding i32) (param $binding_len i32)
            (param $object i32) (param $len i32) (result i32) {body} i32.const 64)"#
    );
    Guest::of("object-filter", &extra)
}

fn assessor(body: &str) -> Guest {
    let extra = format!(
        r#"(func (export "barbless:hooks/assess-health@0.1.0#assess") (param $object i32) (param $len i32) (result i32)
            {body} i32.const 64)"#
    );
    Guest::of("health-assessor", &extra)
}

#[test]
fn settings_are_judged() {
    let check = |guest: &Guest| {
        let prepared = prepare(guest);
        assert!(prepared.component().has(World::CheckSettings) && !prepared.component().has(World::Hooks));
        wait(prepared.check_settings(&Arc::new(instance()), &json!({"size": "small"}))).answer
    };
    assert_eq!(check(&checker("")), Ok(Verdict::Allow { warnings: Vec::new() }));
    let reject = checker(
        "(i32.store (i32.const 64) (i32.const 1)) (i32.store (i32.const 68) (local.get $settings))
         (i32.store (i32.const 72) (local.get $len))",
    );
    assert_eq!(check(&reject), Ok(Verdict::Reject { reason: r#"{"size":"small"}"#.to_owned() }));
    let looping = check(&checker("(loop $l br $l)"));
    assert!(matches!(looping, Err(CallError::Ended { end: RunEnd::TimedOut { .. }, .. })), "{looping:?}");
    assert_eq!(check(&checker("i32.const 128 call $current")), Ok(Verdict::Allow { warnings: Vec::new() }));
}

#[test]
fn objects_are_projected() {
    let object = json!({"kind": "Pod"});
    let project = |guest: &Guest| wait(prepare(guest).project("hook", "pods", &object)).answer;
    let store = |result: u32, address: &str, len: &str| {
        format!(
            "(i32.store (i32.const 64) (i32.const {result})) (i32.store (i32.const 68) ({address}))
             (i32.store (i32.const 72) ({len}))"
        )
    };
    assert_eq!(project(&filter(&store(0, "local.get $object", "local.get $len"))), Ok(object.clone()));
    let refused = project(&filter(&store(1, "local.get $binding", "local.get $binding_len")));
    assert_eq!(refused, Err(CallError::Refused { export: "filter", message: "pods".to_owned() }));
    let no_json = project(&filter(&store(0, "local.get $binding", "local.get $binding_len")));
    assert!(matches!(no_json, Err(CallError::Ended { end: RunEnd::BadOutput { .. }, .. })), "{no_json:?}");
    let trapped = project(&filter("unreachable"));
    assert!(matches!(trapped, Err(CallError::Ended { end: RunEnd::Trap { .. }, .. })), "{trapped:?}");
}

#[test]
fn health_is_assessed() {
    let assess = |guest: &Guest| wait(prepare(guest).assess_health(&json!({"kind": "Pod"}))).answer;
    assert_eq!(assess(&assessor("")), Ok(None));
    let degraded = assessor(
        "(i32.store8 (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 68) (i32.const 4))
         (i32.store (i32.const 72) {&why}) (i32.store (i32.const 76) (i32.const 3))",
    )
    .text("why", "bad");
    let expected = Health { status: AssessedStatus::Degraded, message: "bad".to_owned() };
    assert_eq!(assess(&degraded), Ok(Some(expected)));
    let unknown = assessor("(i32.store8 (i32.const 64) (i32.const 1)) (i32.store8 (i32.const 68) (i32.const 9))");
    assert!(assess(&unknown).is_err());
}

#[test]
fn what_a_component_does_not_export_cannot_be_called() {
    let prepared = prepare(&assessor(""));
    let answer = wait(prepared.project("hook", "pods", &json!({}))).answer;
    assert_eq!(answer, Err(CallError::NotExported { export: "filter" }));
    let outcome = wait(prepared.run(&Arc::new(crate::host::input())));
    assert_eq!(outcome.end.reason(), "HookHostFault");
}
