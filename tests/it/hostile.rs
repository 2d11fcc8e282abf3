//! Hooks that misbehave: each ends in one clear error, nothing is half applied, and the rest goes on.

use barbless_domain::event::Event;
use barbless_domain::package::PackageSource;
use barbless_domain::pipeline::App;
use barbless_domain::run::{RunEnd, RunRecord};
use serde_json::json;

use crate::world::{Running, World, component, nothing, package};

fn hostile() -> PackageSource {
    let mut source = package("hostile");
    let manifest = String::from_utf8(source.get("package.yaml").unwrap().to_vec()).unwrap();
    let manifest = format!(
        "{manifest}permissions:\n  - apiGroups: [\"\"]\n    kinds: [ConfigMap]\n    verbs: [create, apply, patch, delete]\n"
    );
    let mut with = PackageSource::new().with("package.yaml", &manifest).with(
        "openapi/settings.yaml",
        "type: object\nproperties:\n  failBeforeHelm:\n    type: boolean\n    default: false\n",
    );
    with = with.with(
        "openapi/values.yaml",
        "x-extend:\n  schema: settings.yaml\ntype: object\nproperties:\n  internal:\n    type: object\n    default: {}\n    \
         properties:\n      wellBehaved: {type: boolean}\n      text: {type: string}\n      secrets: {type: integer}\n",
    );
    let template = String::from_utf8(source.get("templates/config.yaml").unwrap().to_vec()).unwrap();
    with = with.with("templates/config.yaml", &template);
    with.insert("hooks/hostile.wasm", component("tests/guests/hostile.wasm")).unwrap();
    source = with;
    source
}

async fn installed() -> (World, Running) {
    let world = World::new().await;
    let app = world.install("hostile", hostile(), nothing()).await;
    app.ready().await;
    (world, app)
}

/// Names of objects that a run must not have made.
async fn made(app: &Running) -> Vec<String> {
    let mut names = app.names("v1", "ConfigMap").await;
    names.retain(|name| name != "hostile-config" && name != "kube-root-ca.crt");
    names
}

fn kind(record: &RunRecord) -> &'static str {
    record.end.reason()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_misbehaviour_has_its_own_reason_and_applies_nothing() {
    let cases = [
        ("panics-on-an-index", "HookPanicked"),
        ("loops", "HookCpuTimeExceeded"),
        ("loops-in-the-host", "HookCallsExceeded"),
        ("eats-memory", "HookMemoryExceeded"),
        ("recurses", "HookMemoryExceeded"),
        ("asks-for-another-namespace", "HookDenied"),
        ("deletes-in-another-namespace", "HookDenied"),
        ("asks-for-an-ungranted-kind", "HookDenied"),
        ("claims-another-instance", "HookDenied"),
        ("asks-for-nonsense", "HookBadOutput"),
        ("asks-too-often", "HookBadOutput"),
        ("asks-for-too-much", "HookBadOutput"),
        ("sets-invalid-values", "HookBadOutput"),
        ("sets-unknown-values", "HookBadOutput"),
        ("reads-an-unknown-snapshot", "HookError"),
    ];
    for (hook, reason) in cases {
        // Each in a world of its own: a failing hook keeps its queue.
        let (_world, app) = installed().await;
        let record = app.run(hook).await;
        assert_eq!(kind(&record), reason, "{hook}: {}", record.end);
        assert_eq!(made(&app).await, Vec::<String>::new(), "{hook} left something behind");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_told_with_its_message_and_place() {
    let (_world, app) = installed().await;
    let record = app.run("panics").await;
    let RunEnd::Trap { panic: Some(panic), .. } = &record.end else { panic!("{:?}", record.end) };
    assert!(panic.location.contains("lib.rs:"), "{panic:?}");
    assert!(!panic.message.is_empty());
    let names = made(&app).await;
    assert!(!names.contains(&"before-the-panic".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_marked_for_failure_is_carried_out_and_nothing_else() {
    let (_world, app) = installed().await;
    let record = app.run("fails").await;
    let RunEnd::HookError(error) = &record.end else { panic!("{:?}", record.end) };
    assert!(!error.code.is_empty() && error.hint.is_some(), "{error:?}");
    assert_eq!(made(&app).await, ["despite-the-failure"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_log_lines_are_cut_and_cannot_drive_a_terminal() {
    let (_world, app) = installed().await;
    let record = app.run("floods-the-log").await;
    let bytes: usize = record.log.iter().map(|line| line.message.len()).sum();
    assert!(bytes <= (1 << 20) + 1024, "{bytes} bytes of log");
    let (_world, app) = installed().await;
    let record = app.run("writes-a-huge-line").await;
    assert!(record.log.iter().all(|line| !line.message.contains('\u{1b}') && line.message.len() <= 70_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_application_does_not_hold_up_its_neighbour() {
    let (world, app) = installed().await;
    app.handle.send(Event::ScheduleDue { hook: "loops".into(), schedule: "schedule".into() }).await;
    let neighbour = world.install("neighbour", package("neighbour"), nothing()).await;
    neighbour.ready().await;
    assert!(neighbour.object("v1", "ConfigMap", "neighbour-config").await.is_some());
    neighbour.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stopped_leaves_a_record_that_says_why() {
    let (world, app) = installed().await;
    let before = app.records().len();
    app.handle.send(Event::ScheduleDue { hook: "loops".into(), schedule: "schedule".into() }).await;
    let running =
        |app: &App| app.hook_queues().values().any(|queue| queue.head().is_some_and(|it| it.running.is_some()));
    app.wait("running the hook", running).await;
    app.delete().await;
    let records = app.records();
    assert_eq!(records.len(), before + 1);
    let record = records.last().unwrap();
    assert_eq!(record.end, RunEnd::Cancelled { why: "RemovalStarted".to_owned() });
    assert!(!record.end.is_failure() && record.operations.is_empty() && record.usage.wall_us > 0, "{record:?}");
    assert!(app.handle.wait_for(|_| false).await.is_none(), "its loop ends");
    // The records of an application that is gone stay until those of enough others came after.
    for number in 0..17 {
        let (_, kept) = world.services.runs.add(
            RunRecord { application: format!("{}.a{number}", world.namespace()), ..RunRecord::clone(record) },
            None,
        );
        kept.unwrap();
        world.services.runs.retire(&format!("{}.a{number}", world.namespace()));
    }
    assert_eq!(app.records().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_before_helm_hook_keeps_the_objects_as_they_are_and_settings_mend_it() {
    let (_world, app) = installed().await;
    app.change(json!({"failBeforeHelm": true})).await;
    let failure = app.failure().await;
    assert!(failure.message.contains("fails-on-before-helm"), "{failure:?}");
    app.change(json!({"failBeforeHelm": false})).await;
    app.ready().await;
}
