use std::sync::Arc;

use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::operation::{Action, Propagation};
use barbless_domain::run::Instance;

use super::*;

fn delete(name: &str) -> Operation {
    Operation {
        target: ObjectRef { gvk: Gvk::parse("v1", "Pod").unwrap(), namespace: "demo".into(), name: name.into() },
        action: Action::Delete { propagation: Propagation::Background },
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    }
}

fn apply(password: &str) -> Operation {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "demo"},
        "stringData": {"password": password},
    });
    Operation { target: ObjectRef::of(&object).unwrap(), action: Action::Apply { object }, ..delete("s") }
}

fn set(pointer: &str, value: Value) -> ValuesChange {
    ValuesChange { pointer: pointer.into(), value: Some(value) }
}

fn trace(operations: Vec<Operation>, values: Vec<ValuesChange>) -> Trace {
    Trace { end: RunEnd::Ok, operations, values, metrics: vec![], log: vec![] }
}

fn compared(recorded: &Trace, replayed: &Trace, show: bool) -> Vec<String> {
    let input = RunInput {
        hook: "h".into(),
        trigger: Trigger::Lifecycle(Stage::BeforeHelm),
        attempt: 1,
        dry_run: false,
        instance: Instance {
            name: "web".into(),
            namespace: "demo".into(),
            package_name: "p".into(),
            package_version: "1.0.0".into(),
        },
        values: Arc::new(json!({})),
        settings: Arc::new(json!({})),
        snapshots: BTreeMap::new(),
        now_unix_ms: 1,
        seed: [0; 32],
    };
    let comparison = Comparison::new(recorded, replayed, &input, &[], show);
    assert_eq!(comparison.is_identical(), recorded == replayed);
    for part in &comparison.parts {
        assert_eq!(part.identical, part.differences.is_empty(), "a difference is always shown: {part:?}");
    }
    let lines = |titled: &Titled| {
        std::iter::once(format!("# {}", titled.title))
            .chain(titled.difference.lines.iter().cloned())
            .collect::<Vec<_>>()
    };
    comparison.parts.iter().flat_map(|part| &part.differences).flat_map(lines).collect()
}

#[test]
fn the_same_is_identical() {
    let one = || trace(vec![delete("a"), apply("pass-word-1")], vec![set("/internal/a", json!(1))]);
    assert_eq!(compared(&one(), &one(), false), Vec::<String>::new());
}

#[test]
fn an_operation_is_compared_with_the_one_of_its_name() {
    let recorded = trace(vec![delete("a"), delete("b"), delete("b")], vec![]);
    let orphan = Operation { action: Action::Delete { propagation: Propagation::Orphan }, ..delete("b") };
    let replayed = trace(vec![delete("a"), delete("b"), orphan], vec![]);
    let lines = compared(&recorded, &replayed, false);
    assert_eq!(lines[0], "# delete Pod demo/b");
    assert!(lines.iter().any(|line| line == "-propagation: Background"), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "+propagation: Orphan"), "{lines:#?}");
    let lines = compared(&recorded, &trace(vec![delete("b"), delete("a"), delete("b")], vec![]), false);
    assert_eq!(lines[0], "# in order", "{lines:#?}");
    let lines = compared(&trace(vec![], vec![]), &trace(vec![delete("a")], vec![]), false);
    assert!(lines.contains(&"# delete Pod demo/a".to_owned()), "{lines:#?}");
}

#[test]
fn changes_of_values_differ_by_value_number_and_order() {
    let (a, b) = (set("/internal/a", json!(1)), set("/internal/b", json!(null)));
    let removal = ValuesChange { pointer: "/internal/b".into(), value: None };
    let recorded = trace(vec![], vec![a.clone(), b.clone()]);
    for other in [vec![a.clone()], vec![b.clone(), a.clone()], vec![a.clone(), removal], vec![a.clone(), b, a], vec![]]
    {
        assert!(!compared(&recorded, &trace(vec![], other), false).is_empty());
    }
}

#[test]
fn secrets_that_differ_are_told_apart_and_not_shown() {
    let of = |password: &str| {
        let changes =
            vec![set("/internal/credentials", json!({"admin": password})), set("/internal/copy", json!(password))];
        trace(vec![apply(password)], changes)
    };
    let (recorded, replayed) = (of("first-password"), of("other-password"));
    let text = compared(&recorded, &replayed, false).join("\n");
    assert!(!text.contains("password-") && !text.contains("first-") && !text.contains("other-"), "{text}");
    assert!(text.contains("(redacted: before)") && text.contains("(redacted: after)"), "{text}");
    let text = compared(&recorded, &replayed, true).join("\n");
    assert!(text.contains("first-password") && text.contains("other-password"), "{text}");
}
