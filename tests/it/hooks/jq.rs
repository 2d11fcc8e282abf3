//! Rows J01 to J12: what jq programs give, as filters of bindings; and how a filter that fails is told.

use std::time::Duration;

use barbless::plan::foresee;
use barbless_domain::hook::{KubernetesBinding, WatchEventType};
use barbless_domain::pipeline::App;
use barbless_domain::snapshot::{Projected, SnapshotStore};
use barbless_sandbox::{JqError, JqFilter};
use serde_json::{Value, json};

use super::operate::{evaluators, hooks, put, site, with_hooks, write};
use crate::plan::wish;
use crate::world::{Running, nothing};

async fn filter(program: &str) -> JqFilter {
    evaluators().await.jq(program).await.unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// All outputs of a program, by the evaluator and by the shortcut for programs that only pick fields.
async fn outputs(program: &str, input: &str) -> Result<Vec<Value>, JqError> {
    let filter = filter(program).await;
    let texts = filter.apply(input.as_bytes())?;
    assert_eq!(filter.apply_in_evaluator(input)?, texts, "{program}: both ways give the same bytes");
    Ok(texts.iter().map(|text| serde_json::from_slice(text).unwrap()).collect())
}

async fn one(program: &str, input: &Value) -> Value {
    let mut outputs = outputs(program, &input.to_string()).await.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert_eq!(outputs.len(), 1, "{program}");
    outputs.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn j01_objects_are_merged() {
    let found = one(r#". + {"status": "active"}"#, &json!({"name": "John", "age": 30})).await;
    assert_eq!(found, json!({"name": "John", "age": 30, "status": "active"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn j02_a_part_of_an_object() {
    let found = one(".user.details", &json!({"user": {"name": "John", "details": {"age": 30}}})).await;
    assert_eq!(found, json!({"age": 30}));
}

/// Two outputs; that a snapshot has them as a list is [`a_snapshot_has_what_the_filter_gives`].
#[tokio::test(flavor = "multi_thread")]
async fn j03_a_program_may_give_several_outputs() {
    let input = json!({"users": [{"name": "John"}, {"name": "Jane"}]});
    let found = outputs(r#".users[] | . + {"status": "active"}"#, &input.to_string()).await;
    assert_eq!(
        found,
        Ok(vec![json!({"name": "John", "status": "active"}), json!({"name": "Jane", "status": "active"})])
    );
}

/// In a package: [`a_program_that_is_none_is_told_with_its_place_when_the_package_is_loaded`].
#[tokio::test(flavor = "multi_thread")]
async fn j04_what_is_no_program_is_an_error() {
    for program in ["invalid syntax", ". | invalid_function", ""] {
        let error = evaluators().await.jq(program).await.err().unwrap_or_else(|| panic!("{program:?} is taken"));
        assert_eq!(error.reason(), "JqBadProgram", "{program}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn j05_what_is_not_there_is_null() {
    assert_eq!(one(".nonexistent", &json!({"name": "John"})).await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn j06_null_is_an_input() {
    assert_eq!(one(".", &Value::Null).await, Value::Null);
}

/// Upstream has values that cannot be written as JSON. Here an input is text, so it is text that is no JSON.
#[tokio::test(flavor = "multi_thread")]
async fn j07_an_input_that_is_no_json_is_an_error() {
    for (program, input) in [(".a", "{\"a\": }"), (".a", "{\"a\": 1} x"), (". + 1", "NaN?"), (".", "")] {
        let error = filter(program).await.apply(input.as_bytes()).unwrap_err();
        assert_eq!(error.reason(), "JqBadInput", "{input}: {error}");
    }
    assert_eq!(filter(".a").await.apply(b"\"\xff\"").unwrap_err().reason(), "JqBadInput");
}

/// An input is text and each evaluation reads it anew: there is nothing that a program could change for the next.
#[tokio::test(flavor = "multi_thread")]
async fn j08_a_program_does_not_change_its_input() {
    let filter = filter(".a.b = 1 | .a").await;
    let input = json!({"a": {"c": 2}});
    for _ in 0..2 {
        assert_eq!(filter.apply(input.to_string().as_bytes()).unwrap(), [br#"{"b":1,"c":2}"#]);
    }
    assert_eq!(input, json!({"a": {"c": 2}}));
}

/// What a filter gives is compared; an object of which nothing else changed is no change.
#[tokio::test(flavor = "multi_thread")]
async fn j09_only_another_result_is_a_change() {
    let program = ".metadata.name";
    let pod = |name: &str, ip: &str| json!({"metadata": {"name": name}, "status": {"podIP": ip}});
    let binding: KubernetesBinding = serde_json::from_value(json!({
        "name": "pods", "apiVersion": "v1", "kind": "Pod", "filter": {"jq": program},
        "executeOnEvents": ["Added", "Modified", "Deleted"], "executeOnSynchronization": true,
        "waitForSynchronization": true,
    }))
    .unwrap();
    let mut store = SnapshotStore::new(&binding);
    let mut event = async |key: &str, object: Value| {
        let projected = Projected {
            namespace: "default".to_owned(),
            name: key.to_owned(),
            projection: one(program, &object).await,
            object: None,
        };
        store.put(projected).map(|change| change.event)
    };
    assert_eq!(event("pod", pod("pod-a", "10.0.0.1")).await, Some(WatchEventType::Added));
    assert_eq!(event("pod", pod("pod-a", "10.0.0.2")).await, None, "the same result");
    assert_eq!(event("pod", pod("pod-b", "10.0.0.2")).await, Some(WatchEventType::Modified), "another one");
}

/// Upstream compiles a program or interprets it anew; here there is the evaluator and the shortcut for plain programs.
#[tokio::test(flavor = "multi_thread")]
async fn j10_both_ways_of_evaluation_give_the_same_bytes() {
    let input = r#"{"metadata":{"name":"a","labels":{"z":"1","b":"é\u0000"}},"spec":{"n":[1,-0,2e3,9007199254740993],"none":null}}"#;
    for program in [".metadata", "{a: .metadata.labels, b: [.spec.n, .spec.none.deep]}", ".metadata.labels[\"z\"]", "."]
    {
        assert!(filter(program).await.is_plain(), "{program}");
        outputs(program, input).await.unwrap();
    }
}

/// Upstream, `halt` gives what came before it. Here it does not exist: no program ends the process, or an evaluation in
/// the middle. What came before an error is given up.
#[tokio::test(flavor = "multi_thread")]
async fn j11_none_several_and_errors() {
    assert_eq!(outputs("empty", "{}").await, Ok(vec![]));
    assert_eq!(outputs(".a, .b", r#"{"a": 1, "b": 2}"#).await, Ok(vec![json!(1), json!(2)]));
    let error = evaluators().await.jq("1, halt").await.unwrap_err();
    assert!(matches!(&error, JqError::BadProgram { column: 4, .. }), "{error:?}");
    let error = outputs("1, error(\"x\")", "{}").await.unwrap_err();
    assert_eq!(error, JqError::Failed { message: "x".to_owned() });
}

/// The bytes stay as they are, so that what was kept before an update of the host is not taken for a change.
#[tokio::test(flavor = "multi_thread")]
async fn j12_the_bytes_of_a_result_are_fixed() {
    for (input, expected) in [
        // Upstream has no bound on integers, jq loses what is beyond 2^53; here it is 64 bits.
        ("9007199254740993", "9007199254740993"),
        ("-9223372036854775808", "-9223372036854775808"),
        (r#"{"b": 1, "a": {"d": 2, "c": 3}}"#, r#"{"a":{"c":3,"d":2},"b":1}"#),
        (
            r#"{"é": "\u00e9\u2028\u0001/\"\\", "e": "\ud83d\ude00"}"#,
            "{\"e\":\"😀\",\"é\":\"é\u{2028}\\u0001/\\\"\\\\\"}",
        ),
        ("[1.0, 1e3, 0.1, -0]", "[1,1000,0.1,0]"),
    ] {
        let found = filter("[.][0]").await.apply(input.as_bytes()).unwrap();
        let found: Vec<&str> = found.iter().map(|text| std::str::from_utf8(text).unwrap()).collect();
        assert_eq!(found, [expected]);
    }
}

/// A ConfigMap that the bindings of the component see.
fn question(name: &str, question: &str, parts: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": "jq"}},
        "data": {"question": question}});
    if let Some(parts) = parts {
        object["data"]["parts"] = json!(parts);
    }
    object
}

/// What the hook set last, once it is as expected.
async fn settles(app: &Running, pointer: &str, expected: &Value) {
    let mut found = None;
    for _ in 0..2_000 {
        let records = app.records();
        let last = records.iter().rfind(|record| record.hook == "filtered" && record.end.is_ok());
        let set = last.and_then(|record| record.values.iter().find(|change| change.pointer == pointer));
        found = set.and_then(|change| change.value.clone());
        if found.as_ref() == Some(expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{pointer} is {found:?} and not {expected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_what_the_filter_gives() {
    let world = site().await;
    for object in [question("one", "41", Some("a,b")), question("two", "1", None), question("three", "2", Some("c"))] {
        put(&world, "configmaps", object).await;
    }
    let app = world.install("filters", with_hooks(hooks()), nothing()).await;
    app.ready().await;
    let answer = |name: &str, answer: i32| json!({"name": name, "answer": answer});
    settles(&app, "/internal/answers", &json!([answer("one", 42), answer("three", 3), answer("two", 2)])).await;
    // Several outputs are a list, one is itself, none is null.
    settles(&app, "/internal/parts", &json!([["a", "b"], "c", null])).await;
    settles(&app, "/internal/names", &json!(["one", "three", "two"])).await;
    // A change that no filter shows runs nothing; one that a filter shows does.
    let runs = || app.records().iter().filter(|record| record.hook == "filtered").count();
    let before = runs();
    let path = format!("/api/v1/namespaces/{}/configmaps/two", world.namespace());
    write(&world, "PATCH", &path, json!({"data": {"other": "x"}})).await;
    write(&world, "PATCH", &path, json!({"data": {"question": "5"}})).await;
    settles(&app, "/internal/answers", &json!([answer("one", 42), answer("three", 3), answer("two", 6)])).await;
    assert_eq!(runs(), before + 1);
    app.delete().await;
}

/// Upstream keeps the old entry [Q18]. Here the binding is not synchronised, with the reason, until it is whole again; a
/// deletion takes the object out without asking the filter.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_the_filter_cannot_take_is_told_and_holds_up_no_deletion() {
    let world = site().await;
    put(&world, "configmaps", question("one", "41", None)).await;
    let app = world.install("filters", with_hooks(hooks()), nothing()).await;
    app.ready().await;
    put(&world, "configmaps", question("bad", "no number", None)).await;
    let namespace = world.namespace();
    let expected = format!(
        "the filter failed for {namespace}/bad: the jq program failed: string (\"no number\") cannot be parsed as a number"
    );
    let told = |app: &App| {
        let summary = app.status().summary;
        summary.state == "Degraded" && summary.message.contains("answers") && summary.message.contains(&expected)
    };
    app.wait("told of the filter", told).await;
    // Nothing runs on a snapshot that cannot be trusted, whichever binding has changed.
    put(&world, "configmaps", question("more", "1", None)).await;
    let before = app.records().len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(app.records().len(), before);
    write(&world, "DELETE", &format!("/api/v1/namespaces/{namespace}/configmaps/bad"), json!({})).await;
    // It is whole again after a pause, and then the hook runs by itself.
    app.ready().await;
    settles(&app, "/internal/names", &json!(["more", "one"])).await;
    let answers = json!([{"name": "more", "answer": 2}, {"name": "one", "answer": 42}]);
    settles(&app, "/internal/answers", &answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_names_the_object_that_the_filter_cannot_take() {
    let world = site().await;
    put(&world, "configmaps", question("bad", "no number", None)).await;
    let wish = wish(&world, "filters", &with_hooks(hooks()), nothing());
    let client = world.cluster.client().clone();
    let report = foresee(client, world.services.sandbox.clone(), &wish).await.unwrap_err();
    assert_eq!(report.code, "BindingNotSynchronised");
    let expected =
        "the filter failed for default/bad: the jq program failed: string (\"no number\") cannot be parsed as a number";
    let expected = expected.replace("default", world.namespace());
    assert!(report.message.contains(&expected), "{report:?}");
    assert!(report.hint.as_ref().is_some_and(|hint| hint.contains("let the filter take this object")), "{report:?}");
}

/// The programs of the component, made wrong without building another one.
fn with_program(program: &str, other: &str) -> Vec<u8> {
    assert_eq!(program.len(), other.len());
    let mut hooks = hooks();
    let mut replaced = 0;
    while let Some(at) = hooks.windows(program.len()).position(|window| window == program.as_bytes()) {
        hooks[at..at + other.len()].copy_from_slice(other.as_bytes());
        replaced += 1;
    }
    assert!(replaced > 0, "{program} is not in the component");
    hooks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_none_is_told_with_its_place_when_the_package_is_loaded() {
    for (program, other, message) in [
        (
            "tonumber + 1",
            "nosuchfn + 1",
            "hooks/operations.wasm: filtered.bindings[0].filter: binding 'answers': the jq program is wrong at line 1, \
             column 50",
        ),
        ("tonumber + 1", "env | length", "binding 'answers': the jq program is wrong at line 1, column 50"),
        ("split(\",\")[]", "split(\",\")[|", "filtered.bindings[1].filter: binding 'parts': the jq program is wrong"),
    ] {
        let world = site().await;
        let app = world.install("broken", with_hooks(with_program(program, other)), nothing()).await;
        let failure = app.failure().await;
        assert_eq!(failure.reason, "JqBadProgram", "{failure:?}");
        assert!(failure.message.contains(message), "{failure:?}");
        assert!(failure.hint.is_some(), "{failure:?}");
    }
}

/// The same where the program stands in a configuration of shell-operator.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_none_is_told_with_its_line_in_the_configuration() {
    let world = site().await;
    let binding = |name: &str, program: &str| {
        format!("- {{name: {name}, apiVersion: v1, kind: ConfigMap, jqFilter: {program}}}\n")
    };
    let bindings = [binding("answers", "\".x\""), binding("parts", "\".a |\""), binding("names", "\".y\"")].concat();
    let source = with_hooks(hooks())
        .with("hooks/bindings/filtered.yaml", &format!("configVersion: v1\nkubernetes:\n{bindings}"));
    let app = world.install("broken", source, nothing()).await;
    let failure = app.failure().await;
    assert_eq!(failure.reason, "JqBadProgram", "{failure:?}");
    let expected = "hooks/bindings/filtered.yaml:4";
    assert!(failure.message.starts_with(expected) && failure.message.contains("binding 'parts'"), "{failure:?}");
}

/// An endless filter costs one second of one processor for each object, and nobody else anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_filter_is_ended_and_does_not_hold_up_its_neighbour() {
    let world = site().await;
    put(&world, "configmaps", question("one", "41", None)).await;
    let program = "{name: .metadata.name, answer: (.data.question | tonumber + 1)}";
    let endless = with_program(program, &format!("{:<1$}", "def f: f; f", program.len()));
    let app = world.install("endless", with_hooks(endless), nothing()).await;
    let good = world.install("good", with_hooks(hooks()), nothing()).await;
    good.ready().await;
    settles(&good, "/internal/answers", &json!([{"name": "one", "answer": 42}])).await;
    let state = app.handle.state();
    assert!(!state.is_idle(), "its bindings are not synchronised, so it waits");
}
