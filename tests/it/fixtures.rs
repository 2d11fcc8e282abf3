//! Test cases of packages, and cases that runs become.

use std::path::Path;

use barbless::runs::RunLog;
use serde_json::{Value, json};

use crate::cli::{barbless, text};
use crate::runs::{beat, example, written};
use crate::world::{World, component, root};

/// A copy of the minimal package without the sources of its hook, with these cases.
fn package(folder: &Path, cases: &str) -> String {
    let from = root().join("examples/minimal");
    for file in ["package.yaml", "openapi/settings.yaml", "openapi/values.yaml"] {
        let to = folder.join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from.join(file), to).unwrap();
    }
    std::fs::create_dir_all(folder.join("hooks")).unwrap();
    std::fs::create_dir_all(folder.join("tests")).unwrap();
    std::fs::write(folder.join("hooks/minimal-hooks.wasm"), component("examples/minimal/hooks/minimal-hooks.wasm"))
        .unwrap();
    std::fs::write(folder.join("tests/greet.yaml"), cases).unwrap();
    folder.to_str().unwrap().to_owned()
}

const WRONG: &str = "\
cases:
  # Nobody is greeted so.
  - name: a <wrong> greeting
    hook: greet
    settings: {name: Ada}
    expect:
      values:
        internal:
          greeting: Good bye, Ada!
  - name: a right one
    hook: greet
    expect:
      values: {internal: {greeting: 'Hello, world!'}}
";

#[test]
fn the_cases_of_the_examples_pass() {
    for (example, count) in [("examples/minimal", 2), ("examples/miniflux", 10)] {
        let output = barbless(&["test", example, "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&document["passed"], &document["failed"]), (&json!(count), &json!(0)));
    }
}

#[test]
fn a_wrong_expectation_fails_shows_why_and_can_be_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let package = package(folder.path(), WRONG);
    let junit = folder.path().join("report.xml");
    let output = barbless(&["test", &package, "--junit", junit.to_str().unwrap()]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{stdout}{}", text(&output.stderr));
    assert!(
        stdout.contains("FAIL greet: a <wrong> greeting") && stdout.contains("ok   greet: a right one"),
        "{stdout}"
    );
    assert!(stdout.contains("tests/greet.yaml:3"), "{stdout}");
    assert!(stdout.contains("greeting: Good bye, Ada!") && stdout.contains("greeting: Hello, Ada!"), "{stdout}");
    assert!(stdout.ends_with("1 passed, 1 failed\n"), "{stdout}");
    let report = std::fs::read_to_string(&junit).unwrap();
    assert!(report.contains("tests=\"2\" failures=\"1\""), "{report}");
    assert!(report.contains("name=\"a &lt;wrong&gt; greeting\"") && report.contains("<failure"), "{report}");

    let output = barbless(&["test", &package, "a right one"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(barbless(&["test", &package, "no such case"]).status.code(), Some(5));

    let output = barbless(&["test", &package, "--update"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let cases = std::fs::read_to_string(folder.path().join("tests/greet.yaml")).unwrap();
    assert_eq!(cases, WRONG.replace("Good bye, Ada!", "Hello, Ada!"), "nothing else has changed");
    assert_eq!(barbless(&["test", &package]).status.code(), Some(0));
}

#[test]
fn what_a_package_may_not_do_is_an_error_of_the_case() {
    let folder = tempfile::tempdir().unwrap();
    let cases = "cases:\n  - {name: a, hook: heartbeat, expect: {error: {code: NotGranted}}}\n";
    let package = package(folder.path(), cases);
    let hooks = folder.path().join("hooks");
    std::fs::remove_file(hooks.join("minimal-hooks.wasm")).unwrap();
    std::fs::write(hooks.join("m.wasm"), component("examples/miniflux/hooks/miniflux-hooks.wasm")).unwrap();
    let manifest = folder.path().join("package.yaml");
    let permissions = "permissions:\n  - {apiGroups: [''], kinds: [ConfigMap, Secret, Service], verbs: [watch]}\n";
    let text_of = std::fs::read_to_string(&manifest).unwrap();
    let text_of = text_of.split("permissions:").next().unwrap_or_default().to_owned();
    std::fs::write(&manifest, text_of + permissions).unwrap();
    let output = barbless(&["test", &package]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    // And what its schema refuses is one, too: the values of this package have no such field.
    let cases = "cases:\n  - {name: a, hook: startup}\n";
    std::fs::write(folder.path().join("tests/greet.yaml"), cases).unwrap();
    let output = barbless(&["test", &package]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("hooksVersion"), "{}", text(&output.stdout));
}

#[test]
fn a_bad_case_is_told_with_its_place_and_what_to_do() {
    let cases: [(&str, &str, &str); 7] = [
        ("cases:\n  - nam: a\n    hook: greet\n", "tests/greet.yaml:2:5: cases[0].nam", "did you mean 'name'?"),
        ("cases:\n  - name: a\n    hook: great\n", "tests/greet.yaml:3:5: cases[0].hook", "did you mean 'greet'?"),
        ("cases:\n  - name: a\n    hook: greet\n    settings: {nmae: x}\n", ":4:5: cases[0].settings", "help: "),
        (
            "cases:\n  - name: a\n    hook: greet\n    values: {name: x}\n",
            ":4:5: cases[0].values",
            "which a hook cannot change",
        ),
        ("cases:\n  - name: a\n    hook: greet\n    trigger: afterHelm\n", ":4:5: cases[0].trigger", "help: "),
        (
            "cases:\n  - name: a\n    hook: greet\n    snapshots:\n      pods: {objects: []}\n",
            ":5:7: cases[0].snapshots.pods",
            "there are none",
        ),
        ("cases:\n  - name: a\n   hook: b\n", "tests/greet.yaml:", "error[MalformedYaml]"),
    ];
    for (yaml, place, says) in cases {
        let folder = tempfile::tempdir().unwrap();
        let output = barbless(&["test", &package(folder.path(), yaml)]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{yaml}: {stderr}");
        assert!(stderr.contains(place) && stderr.contains(says), "{yaml}: {stderr}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = barbless(&["test", &package(folder.path(), "")]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("error[NoTests]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_becomes_a_case_that_passes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let hooks = ["credentials", "feeds", "endpoint", "heartbeat", "startup"];
    let runs = {
        let world = World::with_runs(RunLog::open(&data).unwrap()).await;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "news", "labels": {"miniflux.example.com/feeds": "true"}},
            "data": {"one": "https://feeds.example.com/1.xml", "other": "no \"address\": \n# x\n"},
        });
        world.cluster.apply_object("a-user", world.namespace(), &map).await.unwrap();
        let app = example(&world, "miniflux", json!({})).await;
        beat(&app).await;
        let records = app.records();
        written(&data, &records);
        hooks.map(|hook| records.iter().find(|record| record.hook == hook).unwrap().id.to_string())
    };
    let package = folder.path().join("package");
    copy(&root().join("examples/miniflux"), &package);
    let file = package.join("tests/recorded.yaml");
    for run in &runs {
        let output =
            barbless(&["replay", run, "--data-dir", data.to_str().unwrap(), "--save-fixture", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    }
    let output = barbless(&["test", package.to_str().unwrap()]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.ends_with("5 passed, 0 failed\n"), "{stdout}");
    // The cases look at everything that came of the runs.
    let cases = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, cases.replace("operation: apply", "operation: create")).unwrap();
    let output = barbless(&["test", package.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stdout));
}

/// The files of a bundle in another folder.
fn copy(from: &Path, to: &Path) {
    let source = barbless::bundle::read(from).unwrap();
    for (path, bytes) in source.iter() {
        let path = to.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
