use std::collections::BTreeMap;
use std::sync::Arc;

use barbless_domain::hook::{Binding, Change, KubernetesBinding, Projection, Stage, WatchEventType};
use barbless_domain::run::{Instance, LogLevel, LogLine, RunEnd, Snapshot, Usage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::super::Secrets;
use super::*;

fn binding(name: &str, kind: &str) -> KubernetesBinding {
    KubernetesBinding {
        name: name.into(),
        api_version: "v1".into(),
        kind: kind.into(),
        name_selector: vec![],
        label_selector: None,
        field_selector: vec![],
        filter: Projection::Whole,
        execute_on_events: vec![WatchEventType::Added],
        execute_on_synchronization: true,
        wait_for_synchronization: true,
        keep_full_objects: false,
        group: None,
        include_snapshots_from: vec![],
    }
}

fn hook() -> HookDeclaration {
    let bindings = [binding("secrets", "Secret"), binding("maps", "ConfigMap")];
    HookDeclaration {
        name: "h".into(),
        bindings: bindings.into_iter().map(Binding::Kubernetes).collect(),
        queue: "main".into(),
        allow_failure: false,
        rate_limit: None,
    }
}

fn item(name: &str, projection: Value) -> Arc<SnapshotItem> {
    Arc::new(SnapshotItem::new("demo".into(), name.into(), projection, None))
}

fn ready(items: Vec<Arc<SnapshotItem>>) -> SnapshotState {
    SnapshotState::Ready(Arc::new(Snapshot::new(items)))
}

fn input(trigger: Trigger, snapshots: BTreeMap<String, SnapshotState>) -> RunInput {
    RunInput {
        hook: "h".into(),
        trigger,
        attempt: 1,
        dry_run: false,
        instance: Instance {
            name: "web".into(),
            namespace: "demo".into(),
            package_name: "p".into(),
            package_version: "1.0.0".into(),
        },
        values: Arc::new(json!({"internal": {"apiToken": "token of the values"}})),
        settings: Arc::new(json!({"password": "correct horse", "title": "nothing secret"})),
        snapshots,
        now_unix_ms: 1,
        seed: [0; 32],
    }
}

fn outcome(messages: &[&str], end: RunEnd) -> RunOutcome {
    let line = |text: &&str| LogLine { level: LogLevel::Info, message: (*text).into(), fields: vec![] };
    RunOutcome {
        end,
        operations: vec![],
        values: vec![],
        log: messages.iter().map(line).collect(),
        metrics: vec![],
        usage: Usage::default(),
    }
}

/// What is shown of these log lines.
fn shown(input: &RunInput, messages: &[&str]) -> Vec<String> {
    let told = told(input, Some(&hook()), &Said::of(&outcome(messages, RunEnd::Ok)));
    let secrets = Secrets::default().with(&told);
    messages.iter().map(|text| secrets.mask_text(text)).collect()
}

fn lifecycle() -> Trigger {
    Trigger::Lifecycle(Stage::BeforeHelm)
}

#[test]
fn contents_of_watched_secrets_are_masked_as_they_stand_and_decoded() {
    let encoded = STANDARD.encode("battery \"staple\"\nsecond line");
    let whole = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "labels": {"tier": "database-tier"}},
                       "data": {"password": encoded, "port": STANDARD.encode("5432")}});
    let filtered = json!({"name": "filtered", "type": "kubernetes.io/basic-auth", "decoded": ["a very secret text"]});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "text of a map"}});
    let snapshots = BTreeMap::from([
        ("secrets".to_owned(), ready(vec![item("db", whole), item("filtered", filtered)])),
        ("maps".to_owned(), ready(vec![item("m", map)])),
    ]);
    let input = input(lifecycle(), snapshots);
    let lines = shown(
        &input,
        &[
            &format!("{{\"data\":{{\"password\":\"{encoded}\"}}}}"),
            r#"got {"password":"battery \"staple\"\nsecond line"} of database-tier"#,
            "a very secret text of kubernetes.io/basic-auth, text of a map, filtered, 5432",
        ],
    );
    assert_eq!(
        lines,
        [
            r#"{"data":{"password":"(redacted)"}}"#,
            r#"got {"password":"(redacted)"} of database-tier"#,
            "(redacted) of kubernetes.io/basic-auth, text of a map, filtered, 5432",
        ]
    );
}

#[test]
fn secret_settings_and_values_and_objects_that_are_gone_are_masked() {
    let last = item("gone", json!({"data": {"key": STANDARD.encode("what once was secret")}}));
    let change = Change {
        binding: "secrets".into(),
        event: WatchEventType::Deleted,
        namespace: "demo".into(),
        name: "gone".into(),
        last: Some(last),
    };
    let input = input(Trigger::Events(vec![change]), BTreeMap::new());
    assert_eq!(
        shown(&input, &["correct horse, nothing secret", "token of the values", "what once was secret"]),
        ["(redacted), nothing secret", "(redacted)", "(redacted)"]
    );
    // A message of a panic counts as well.
    let end = RunEnd::BadOutput { what: "panic: correct horse".into() };
    assert_eq!(told(&input, Some(&hook()), &Said::of(&outcome(&[], end))), ["correct horse"]);
}

#[test]
fn a_secret_in_which_a_line_was_cut_is_masked() {
    let input = input(lifecycle(), BTreeMap::new());
    assert_eq!(
        shown(&input, &["of correct h… [cut]", "of correct… [cut]", "correct h is fine without a cut"]),
        ["of (redacted)… [cut]", "of correct… [cut]", "correct h is fine without a cut"]
    );
}

#[test]
fn objects_that_say_so_are_secret_whatever_their_kind() {
    let of = |annotations: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "annotations": annotations},
               "data": {"a": "a text of the map"}})
    };
    let masked = |annotations: Value| {
        let snapshots = BTreeMap::from([("maps".to_owned(), ready(vec![item("m", of(annotations))]))]);
        shown(&input(lifecycle(), snapshots), &["a text of the map"]).remove(0)
    };
    assert_eq!(masked(json!({"werf.io/sensitive": "true"})), "(redacted)");
    assert_eq!(masked(json!({"other": "true"})), "a text of the map");
}

#[test]
fn a_run_that_says_nothing_costs_nothing() {
    let snapshots = BTreeMap::from([("secrets".to_owned(), ready(vec![item("a", json!("a secret text"))]))]);
    let input = input(lifecycle(), snapshots);
    assert!(told(&input, Some(&hook()), &Said::of(&outcome(&[], RunEnd::Ok))).is_empty());
    assert!(told(&input, Some(&hook()), &Said::of(&outcome(&["something else"], RunEnd::Ok))).is_empty());
}
