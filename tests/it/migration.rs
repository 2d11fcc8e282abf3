//! Configurations of shell-operator in a package: they say why a hook runs, and what is wrong with them is told.

use std::process::Command;

use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::package::PackageSource;
use serde_json::Value;

use crate::world::{World, component, nothing, package, root};

/// The component declares the hook `greet`, which runs before the templates are rendered.
const COMPONENT: &str = "examples/minimal/hooks/minimal-hooks.wasm";

fn with(file: &str, text: &str) -> PackageSource {
    let mut source = package("moved").with(file, text);
    source.insert("hooks/h.wasm", component(COMPONENT)).unwrap();
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_runs_when_its_configuration_says_and_not_when_its_component_does() {
    let world = World::new().await;
    let text = "configVersion: v1\nonStartup: 5\nafterHelm: 1\nkubernetes:\n- {name: own, kind: cm, queue: slow}\n";
    let permissions = "permissions:\n  - {apiGroups: [''], kinds: [ConfigMap], verbs: [watch]}\n";
    let source = with("hooks/bindings/greet.yaml", text);
    let manifest = String::from_utf8(source.get("package.yaml").unwrap().to_vec()).unwrap();
    let app = world.install("moved", source.with("package.yaml", &(manifest + permissions)), nothing()).await;
    app.ready().await;
    let records = app.records();
    let ran = |wanted: &Trigger| records.iter().any(|record| record.trigger == *wanted);
    assert!(ran(&Trigger::Synchronization(vec!["own".to_owned()])));
    assert!(ran(&Trigger::Lifecycle(Stage::OnStartup)));
    assert!(ran(&Trigger::Lifecycle(Stage::AfterHelm)));
    assert!(!ran(&Trigger::Lifecycle(Stage::BeforeHelm)));
    app.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_configuration_is_told_with_its_place() {
    let world = World::new().await;
    let foreign =
        "configVersion: v1\nkubernetes:\n- kind: Pod\n  namespace: {nameSelector: {matchNames: [kube-system]}}\n";
    let cases = [
        ("greet", "{configVersion: v1}", "NoBindings", "hooks/bindings/greet.yaml:1:1"),
        ("great", "{configVersion: v1, onStartup: 1}", "UnknownHook", "hooks/bindings/great.yaml: no component"),
        (
            "greet",
            foreign,
            "ForeignNamespace",
            "hooks/bindings/greet.yaml:4:30: kubernetes[0].namespace.nameSelector.matchNames",
        ),
    ];
    for (index, (hook, text, reason, says)) in cases.into_iter().enumerate() {
        let app =
            world.install(&format!("bad-{index}"), with(&format!("hooks/bindings/{hook}.yaml"), text), nothing()).await;
        let failure = app.failure().await;
        assert_eq!(failure.reason, reason, "{}", failure.message);
        assert!(failure.message.contains(says), "{}", failure.message);
    }
}

#[test]
fn inspect_shows_the_bindings_that_are_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let hooks = folder.path().join("hooks");
    std::fs::create_dir_all(hooks.join("bindings")).unwrap();
    std::fs::write(hooks.join("h.wasm"), component(COMPONENT)).unwrap();
    let inspect = |text: &str, output: &str| {
        std::fs::write(hooks.join("bindings/greet.yaml"), text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_barbless"))
            .args(["inspect", "h.wasm", "-o", output])
            .current_dir(&hooks)
            .env("XDG_CACHE_HOME", root().join(env!("CARGO_TARGET_TMPDIR")))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = inspect("{configVersion: v1, schedule: [{crontab: '@hourly', queue: slow}]}", "json");
    let facts: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(facts["hooks"][0]["queue"], "slow");
    assert_eq!(facts["hooks"][0]["bindings"][0]["schedule"]["crontab"], "@hourly");
    assert_eq!(facts["bindings"]["greet"], "hooks/bindings/greet.yaml");
    let (code, text) = inspect("configVersion: v1\nschedule:\n- crontab: '* * * *'\n", "table");
    assert_eq!(code, Some(7), "{text}");
    assert!(text.contains("problem: hooks/bindings/greet.yaml:3:3: schedule[0].crontab: "), "{text}");
    // Each problem has its own hint below it.
    let two = "configVersion: v1\nschedule:\n- {crontabs: '@hourly'}\nkubernetes:\n- {apiVersion: v1, kinds: Pod}\n";
    let (code, text) = inspect(two, "table");
    assert_eq!(code, Some(7), "{text}");
    for (what, hint) in [("crontabs", "crontab"), ("kinds", "kind")] {
        let mut lines = text.lines().skip_while(|line| !line.contains(&format!("the key '{what}' is not known")));
        assert_eq!(
            (lines.next().is_some(), lines.next()),
            (true, Some(&*format!("  help: did you mean '{hint}'?"))),
            "{text}"
        );
    }
}
