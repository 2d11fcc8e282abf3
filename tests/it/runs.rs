//! What is kept of runs, and what a replay makes of it: the program itself, over a folder that an application filled.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use barbless::runs::{Archive, RunLog};
use barbless_domain::event::Event;
use barbless_domain::run::RunRecord;
use serde_json::{Value, json};

use crate::cli::{barbless, text};
use crate::world::{Running, World, component, package, root};

/// Runs the program over a data folder.
fn over(data: &Path, arguments: &[&str]) -> Output {
    let folder = data.to_str().unwrap();
    let mut all = arguments.to_vec();
    all.extend(["--data-dir", folder]);
    barbless(&all)
}

fn documents(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until these records are on disk.
pub(crate) fn written(data: &Path, records: &[Arc<RunRecord>]) {
    let last = records.last().map_or(0, |record| record.id);
    for _ in 0..2_000 {
        let there = Archive::open(data).and_then(|archive| archive.records());
        if there.is_ok_and(|there| there.last().is_some_and(|record| record.id >= last)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("run {last} is not written");
}

/// Installs a package of the examples under its own name.
pub(crate) async fn example(world: &World, name: &str, settings: Value) -> Running {
    world.kubernetes("1.37.0");
    let source = barbless::bundle::read(&root().join("examples").join(name)).unwrap();
    let app = world.install(name, source, settings).await;
    world.cluster.patch_application(&app.id, &json!({"packageVersion": "0.1.0"})).await.unwrap();
    app.ready().await;
    app
}

/// The demonstration lives its life, with a user whose list of feeds is large and whose log line is nasty.
async fn filled(data: &Path) {
    let world = World::with_runs(RunLog::open(data).unwrap()).await;
    for number in 0..6 {
        // Not http, so it is left out of the values; the snapshot has it all the same.
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("large-{number}"), "labels": {"miniflux.example.com/feeds": "true"}},
            "data": {"large": "x".repeat(800_000), "feed": format!("https://feeds.example.com/{number}.xml")},
        });
        world.cluster.apply_object("a-user", world.namespace(), &map).await.unwrap();
    }
    let app = example(&world, "miniflux", json!({})).await;
    beat(&app).await;
    app.delete().await;
    // A hook that fails holds up its queue, so each has an application of its own.
    for (name, hook) in [("hostile", "panics"), ("refused", "asks-for-another-namespace")] {
        let mut hostile = package(name);
        hostile.insert("hooks/hostile.wasm", component("tests/guests/hostile.wasm")).unwrap();
        let app = world.install(name, hostile, json!({})).await;
        app.ready().await;
        let record = app.run(hook).await;
        written(data, &[record]);
    }
}

/// The heartbeat of the demonstration is due.
pub(crate) async fn beat(app: &Running) {
    app.handle.send(Event::ScheduleDue { hook: "heartbeat".to_owned(), schedule: "beat".to_owned() }).await;
    for _ in 0..6_000 {
        if app.records().iter().any(|record| record.hook == "heartbeat") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the heartbeat has not run");
}

fn runs_of(list: &Value, hook: &str) -> Vec<u64> {
    let items = list["items"].as_array().unwrap();
    items.iter().filter(|item| item["hook"] == hook).map(|item| item["run"].as_u64().unwrap()).collect()
}

/// The component of a package with one text in it changed: a new version of the hook.
fn changed(path: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = component(path);
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from:?} is not in {path}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_described_and_replayed_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    filled(data).await;

    let list = documents(&over(data, &["runs", "-o", "json"]));
    let ids: Vec<u64> = list["items"].as_array().unwrap().iter().map(|item| item["run"].as_u64().unwrap()).collect();
    assert!(ids.len() >= 10 && ids.is_sorted(), "{ids:?}");
    for (application, reason) in [("hostile", "HookPanicked"), ("default.refused", "HookDenied")] {
        let failed = documents(&over(data, &["runs", application, "--failed", "-o", "json"]));
        assert_eq!(failed["items"][0]["result"], reason, "{failed:#}");
    }
    let failed = documents(&over(data, &["runs", "miniflux", "--hook", "feeds", "--failed", "-o", "json"]));
    assert_eq!(failed["items"], json!([]));
    let wide = text(&over(data, &["runs", "default.miniflux", "--hook", "credentials", "-o", "wide"]).stdout);
    let mut lines = wide.lines();
    assert!(lines.next().unwrap().starts_with("RUN") && wide.contains(" yes "), "{wide}");
    assert!(lines.all(|line| line.contains("credentials")), "{wide}");

    // Everything that can go into a run: random passwords, the clock, a snapshot of 5 MB, a trap, a refusal.
    for hook in ["credentials", "heartbeat", "feeds", "panics", "asks-for-another-namespace", "backup", "endpoint"] {
        let runs = runs_of(&list, hook);
        assert!(!runs.is_empty(), "{hook} has not run");
        for run in runs {
            let output = over(data, &["replay", &run.to_string(), "--diff"]);
            let stdout = text(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "{hook}: {stdout}{}", text(&output.stderr));
            assert!(stdout.contains("identical: "), "{hook}: {stdout}");
        }
    }

    // No secret is shown that nobody asked for.
    let made = |run: &u64| text(&over(data, &["logs", &run.to_string()]).stdout).contains("generating passwords");
    let run = runs_of(&list, "credentials").into_iter().find(made).unwrap().to_string();
    let described = text(&over(data, &["runs", &run, "-o", "yaml"]).stdout);
    assert!(described.contains("(redacted)") && described.contains("create-if-not-exists"), "{described}");
    let shown = documents(&over(data, &["runs", &run, "-o", "json", "--show-secrets"]));
    let password = shown.pointer("/values/0/value/admin").and_then(Value::as_str).unwrap();
    assert!(password.len() == 24 && !described.contains(password), "{shown:#}");
    let page = text(&over(data, &["runs", &run]).stdout);
    assert!(
        page.contains("operation     create-if-not-exists Secret default/d8a-miniflux-credentials: done"),
        "{page}"
    );

    let logs = text(&over(data, &["logs", "miniflux", "--hook", "feeds", "--tail", "2"]).stdout);
    assert_eq!(logs.lines().count(), 2, "{logs}");
    let line: Value =
        serde_json::from_str(text(&over(data, &["logs", &run, "-o", "json"]).stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&line["message"], &line["level"]), (&json!("generating passwords"), &json!("info")));
    let logs = text(&over(data, &["logs", "hostile", "--hook", "panics"]).stdout);
    assert!(logs.lines().last().unwrap().contains("[HookPanicked]"), "{logs}");

    // A changed component is told apart, operation by operation.
    let new = folder.path().join("new.wasm");
    let miniflux = "examples/miniflux/hooks/miniflux-hooks.wasm";
    std::fs::write(&new, changed(miniflux, "generating passwords", "generating passworts")).unwrap();
    let new = new.to_str().unwrap();
    let output = over(data, &["replay", &run, "--component", new, "--diff"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("different: log (1 each)"), "{stdout}");
    assert!(stdout.contains("generating passwords") && stdout.contains("generating passworts"), "{stdout}");
    assert!(!stdout.contains(password), "{stdout}");
    let output = over(data, &["replay", &run, "--component", new, "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["identical"], false);
    assert_ne!(document["component"], document["replayedComponent"]);

    // What is not there is said, with what to do.
    let cases: [(&[&str], i32, &str); 4] = [
        (&["replay", "999999"], 5, "error[RunNotFound]"),
        (&["runs", "999999"], 5, "error[RunNotFound]"),
        (&["replay", &run, "--component", "tests/guests/hostile.wasm"], 5, "error[HookNotFound]"),
        (&["replay", &run, "--component", "README.md"], 1, "error[ComponentNotWasm]"),
    ];
    for (arguments, code, says) in cases {
        let output = over(data, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("help: "), "{arguments:?}: {}", text(&output.stderr));
    }
    let output = over(&root().join("examples"), &["runs"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("error[RunsNotFound]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_can_be_read_while_they_are_being_kept() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let world = World::with_runs(RunLog::open(data).unwrap()).await;
    let mut source = package("hostile");
    source.insert("hooks/hostile.wasm", component("tests/guests/hostile.wasm")).unwrap();
    let app = world.install("hostile", source, json!({})).await;
    app.ready().await;
    for round in 1..=3 {
        app.run("well-behaved").await;
        let mut seen = 0;
        for _ in 0..100 {
            seen = runs_of(&documents(&over(data, &["runs", "-o", "json"])), "well-behaved").len();
            if seen == round {
                break;
            }
        }
        assert_eq!(seen, round);
    }
    let run = app.run("well-behaved").await;
    written(data, &[Arc::clone(&run)]);
    let replay = over(data, &["replay", &run.id.to_string()]);
    assert_eq!(replay.status.code(), Some(0), "{}", text(&replay.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_a_changed_hook_shows_its_values_and_operations() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    {
        let world = World::with_runs(RunLog::open(data).unwrap()).await;
        let minimal = example(&world, "minimal", json!({"name": "Ada"})).await;
        let app = example(&world, "miniflux", json!({})).await;
        app.delete().await;
        drop(minimal);
        written(data, &app.records());
    }
    let list = documents(&over(data, &["runs", "-o", "json"]));
    let greet = runs_of(&list, "greet")[0].to_string();
    let new = folder.path().join("new.wasm");
    let path = new.to_str().unwrap();
    std::fs::write(&new, changed("examples/minimal/hooks/minimal-hooks.wasm", "Hello, ", "Howdy, ")).unwrap();
    let output = over(data, &["replay", &greet, "--component", path, "--diff"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("different: values (1 each)"), "{stdout}");
    assert!(stdout.contains("-  value: Hello, Ada!") && stdout.contains("+  value: Howdy, Ada!"), "{stdout}");
    let brief = text(&over(data, &["replay", &greet, "--component", path]).stdout);
    assert!(brief.contains("different: values") && !brief.contains("Howdy"), "{brief}");

    let backup = runs_of(&list, "backup")[0].to_string();
    let miniflux = "examples/miniflux/hooks/miniflux-hooks.wasm";
    std::fs::write(&new, changed(miniflux, "backup-marker", "backup-merker")).unwrap();
    let output = over(data, &["replay", &backup, "--component", path, "--diff"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("different: operations (1 each)"), "{stdout}");
    assert!(stdout.contains("-- apply ConfigMap default/d8a-miniflux-backup-marker"), "{stdout}");
}

/// What a hook logs of the Secrets that it watches, and of the settings, is kept for the replay and shown to nobody.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_snapshots_are_not_shown_in_logs() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let encoded = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5";
    let record = {
        let world = World::with_runs(RunLog::open(data).unwrap()).await;
        let source = package("watcher");
        let manifest = String::from_utf8(source.get("package.yaml").unwrap().to_vec()).unwrap();
        let permissions = "permissions:\n- {apiGroups: [''], kinds: [Secret], verbs: [watch]}\n";
        let mut source = source.with("package.yaml", &(manifest + permissions));
        source.insert("hooks/scripted.wasm", component("tests/guests/scripted.wasm")).unwrap();
        let binding = "configVersion: v1\nkubernetes:\n- {name: own, apiVersion: v1, kind: Secret}\n";
        source.insert("hooks/bindings/told.yaml", binding.as_bytes().to_vec()).unwrap();
        let app = world.install("watcher", source, json!({})).await;
        app.ready().await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
            "data": {"key": encoded, "short": "YWJj"},
        });
        world.cluster.apply_object("somebody", "default", &secret).await.unwrap();
        let logged = || app.records().into_iter().find(|it| it.log.iter().any(|line| line.message.contains("db ")));
        let mut tries = 0;
        let record = loop {
            if let Some(record) = logged() {
                break record;
            }
            tries += 1;
            assert!(tries < 6_000, "the hook has logged nothing");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        };
        written(data, &[Arc::clone(&record)]);
        record
    };
    let run = record.id.to_string();
    let shows: [&[&str]; 4] =
        [&["logs", &run], &["logs", &run, "-o", "json"], &["runs", &run], &["runs", &run, "-o", "yaml"]];
    for show in shows {
        let shown = text(&over(data, show).stdout);
        assert!(shown.contains("(redacted)") && shown.contains("YWJj"), "{show:?}: {shown}");
        assert!(!shown.contains(encoded), "{show:?}: {shown}");
        let asked = text(&over(data, &[show, &["--show-secrets"]].concat()).stdout);
        assert!(asked.contains(encoded), "{show:?}: {asked}");
    }
    let replayed = over(data, &["replay", &run, "--diff"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stdout));

    // What is not there is not the same as what has not run.
    for command in ["runs", "logs"] {
        let output = over(data, &[command, "nosuch"]);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("there are runs of default.watcher"), "{}", text(&output.stderr));
        assert_eq!(over(data, &[command, "watcher", "--hook", "nosuch"]).status.code(), Some(0));
    }
}
