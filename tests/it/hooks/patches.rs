//! Rows A01 to A17 and P01 to P09: what a hook asks for, and what becomes of it in the cluster.
//!
//! In shell-operator operations are text in a file; here they are calls with typed arguments, so what the rows say about
//! files, documents and text in text cannot happen. Each such row says so and tests what is nearest.
//!
//! Upstream carries on after an operation that failed; here it stops the rest ([`a13_what_comes_after_a_failure_is_not_tried`]).

use barbless_devcluster::{Effect, Fault, Scope};
use barbless_domain::run::RunEnd;
use serde_json::{Value, json};

use super::operate::{config_map, data, give, if_there, made, on, perform, put, ready, site, write};
use crate::world::World;

/// Each case in an application of its own: name, operations, what becomes of them, and the data that a ConfigMap named
/// like the case has in the end. Those that `exist` have `{foo: bar}` before.
async fn check(cases: Vec<(&str, bool, Value, &[&str], Value)>) {
    let world = site().await;
    for (name, exists, operations, expected, left) in cases {
        if exists {
            made(&world, name, json!({"foo": "bar"})).await;
        }
        let performed = perform(&world, &format!("app-{name}"), operations).await;
        let mut results = performed.results();
        if let Some(failed) = results.iter_mut().find(|result| **result == "Failed") {
            *failed = performed.reason();
        }
        assert_eq!(results, expected, "{name}: {}", performed.record.end);
        assert_eq!(performed.record.end.is_ok(), performed.reason().is_empty(), "{name}: {}", performed.record.end);
        // A deletion in the foreground ends when the garbage collector has looked.
        for _ in 0..200 {
            if !left.is_null() || performed.data(name).await.is_null() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        assert_eq!(performed.data(name).await, left, "{name}");
    }
}

fn both() -> Value {
    json!({"foo": "bar", "baz": "quux"})
}

/// Upstream takes the patch as a map, as YAML and as JSON text. Here it is JSON by type.
#[tokio::test(flavor = "multi_thread")]
async fn a01_and_a02_merge_patches() {
    let patch = |name: &str| on("merge-patch", name, json!({"data": {"baz": "quux"}}));
    check(vec![
        ("a01", true, json!([patch("a01")]), &["Done"], both()),
        ("a01-again", true, json!([patch("a01-again"), patch("a01-again")]), &["Done", "Unchanged"], both()),
        ("a02-missing", false, json!([patch("a02-missing")]), &["NotFound"], Value::Null),
        ("a02-ignored", false, json!([if_there(patch("a02-ignored"))]), &["Unchanged"], Value::Null),
    ])
    .await;
}

/// As A01, upstream also takes text.
#[tokio::test(flavor = "multi_thread")]
async fn a03_and_a04_json_patches() {
    let patch = |name: &str| on("json-patch", name, json!([{"op": "add", "path": "/data/baz", "value": "quux"}]));
    check(vec![
        ("a03", true, json!([patch("a03")]), &["Done"], both()),
        ("a04-missing", false, json!([patch("a04-missing")]), &["NotFound"], Value::Null),
        ("a04-ignored", false, json!([if_there(patch("a04-ignored"))]), &["Unchanged"], Value::Null),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a05_jq_patches() {
    let patch = |name: &str| on("jq-patch", name, json!(".data.baz = \"quux\""));
    let with = |name: &str, program: &str| json!([on("jq-patch", name, json!(program))]);
    let untouched = || json!({"foo": "bar"});
    check(vec![
        ("a05", true, json!([patch("a05")]), &["Done"], both()),
        ("a05-missing", false, json!([patch("a05-missing")]), &["NotFound"], Value::Null),
        ("a05-ignored", false, json!([if_there(patch("a05-ignored"))]), &["Unchanged"], Value::Null),
        // Whatever else a program gives is refused, and nothing is written.
        ("a05-none", true, with("a05-none", "empty"), &["BadPatch"], untouched()),
        ("a05-two", true, with("a05-two", "., ."), &["BadPatch"], untouched()),
        ("a05-text", true, with("a05-text", ".metadata.name"), &["BadPatch"], untouched()),
        ("a05-no-program", true, with("a05-no-program", ".data |"), &["JqBadProgram"], untouched()),
        ("a05-fails", true, with("a05-fails", ".data.foo + 1"), &["JqFailed"], untouched()),
        ("a05-endless", true, with("a05-endless", "last(range(infinite))"), &["JqTimedOut"], untouched()),
        ("a05-grows", true, with("a05-grows", ".data.foo = \"x\" * 3500000"), &["PatchTooLarge"], untouched()),
        // The grant is asked again with what comes out.
        ("a05-renames", true, with("a05-renames", ".metadata.name = \"b\""), &["BadOperation"], untouched()),
        ("a05-becomes", true, with("a05-becomes", ".kind = \"Secret\""), &["BadOperation"], untouched()),
        (
            "a05-claims",
            true,
            with("a05-claims", ".metadata.labels[\"packages.deckhouse.io/instance\"] = \"other\""),
            &["ForeignObject"],
            untouched(),
        ),
        // What people write to be rid of noise.
        (
            "a05-tidies",
            true,
            with("a05-tidies", "del(.metadata.managedFields) | .data.baz = \"quux\""),
            &["Done"],
            both(),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a06_to_a11_creations() {
    let all = |verb: &str, name: &str, data: Value| json!([give(verb, config_map(name, data))]);
    let baz = || json!({"baz": "quux"});
    check(vec![
        ("a06", true, all("create-or-update", "a06", both()), &["Done"], both()),
        // The object is replaced, not merged.
        ("a07", true, all("create-or-update", "a07", baz()), &["Done"], baz()),
        ("a08-new", false, all("create", "a08-new", baz()), &["Done"], baz()),
        ("a08-there", true, all("create", "a08-there", baz()), &["AlreadyExists"], json!({"foo": "bar"})),
        ("a09-new", false, all("create-if-not-exists", "a09-new", baz()), &["Done"], baz()),
        ("a09-there", true, all("create-if-not-exists", "a09-there", baz()), &["Unchanged"], json!({"foo": "bar"})),
        ("a10", false, all("create-or-update", "a10", baz()), &["Done"], baz()),
        // Upstream decodes text that holds an object, and text in text. Here an object is JSON by type, and text stays
        // what it is: the value of a field.
        ("a11", false, all("create", "a11", json!({"a": "{\"b\": 1}"})), &["Done"], json!({"a": "{\"b\": 1}"})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_deletions() {
    let delete = |name: &str, how: &str| json!([on("delete", name, json!(how))]);
    check(vec![
        ("a12-foreground", true, delete("a12-foreground", "foreground"), &["Done"], Value::Null),
        ("a12-background", true, delete("a12-background", "background"), &["Done"], Value::Null),
        ("a12-orphan", true, delete("a12-orphan", "orphan"), &["Done"], Value::Null),
        ("a12-missing", false, delete("a12-missing", "foreground"), &["Unchanged"], Value::Null),
    ])
    .await;
}

/// Upstream goes on after a failure and tells of all of them. Here an operation that fails stops those after it: a hook
/// may rely on the order it asked for, and the retry does all of it again.
#[tokio::test(flavor = "multi_thread")]
async fn a13_what_comes_after_a_failure_is_not_tried() {
    let operations =
        json!([on("merge-patch", "nothing", json!({"data": {}})), give("create", config_map("a13", json!({}))),]);
    check(vec![("a13", false, operations, &["NotFound", "Skipped"], Value::Null)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_a_jq_patch_that_changes_nothing_writes_nothing() {
    let world = site().await;
    made(&world, "a14", json!({"foo": "bar"})).await;
    let same = [".", ".data.foo = \"bar\"", "del(.metadata.managedFields)", ".data |= with_entries(.)"];
    let operations: Vec<Value> = same.iter().map(|program| on("jq-patch", "a14", json!(program))).collect();
    let app = ready(&world, "app-a14", &json!(operations)).await;
    world.api.clear_journal();
    let record = app.run("perform").await;
    assert!(record.end.is_ok(), "{}", record.end);
    let journal = world.api.journal();
    let asked: Vec<_> = journal.iter().filter(|request| request.name == "a14").map(|request| request.verb).collect();
    assert_eq!(asked, ["get"; 4], "it is read each time and never written");
}

/// Upstream makes 4 attempts; here it is 8, for all operations that replace an object.
#[tokio::test(flavor = "multi_thread")]
async fn a15_conflicts_are_repeated_and_not_for_ever() {
    for (name, verb) in [("a15-update", "create-or-update"), ("a15-jq", "jq-patch")] {
        let world = site().await;
        made(&world, name, json!({"foo": "bar"})).await;
        let operation = match verb {
            "jq-patch" => on(verb, name, json!(".data = {baz: \"quux\"}")),
            _ => give(verb, config_map(name, json!({"baz": "quux"}))),
        };
        let app = ready(&world, &format!("app-{name}"), &json!([operation])).await;
        let updates = |status: u16| {
            let journal = world.api.journal();
            journal.iter().filter(|it| it.name == name && it.verb == "update" && it.status == Some(status)).count()
        };
        // The faults are for the hook, and not for the status of its application.
        world.quiet().await;
        world.api.clear_journal();
        world.api.inject(Fault::refuse(Scope::Writes, 409, 3));
        let record = app.run("perform").await;
        assert!(record.end.is_ok(), "{name}: {}", record.end);
        assert_eq!(data(&app, name).await, json!({"baz": "quux"}));
        assert!(updates(409) >= 1 && updates(200) == 1, "{name}: it was tried again");

        write(
            &world,
            "PATCH",
            &format!("/api/v1/namespaces/{}/configmaps/{name}", world.namespace()),
            json!({"data": {"baz": "old"}}),
        )
        .await;
        world.quiet().await;
        world.api.clear_journal();
        let always =
            Fault { scope: Scope::Writes, passed: 0, times: None, effect: Effect::Refuse(409), performed: false };
        world.api.inject(always);
        let record = app.run("perform").await;
        world.api.heal();
        assert!(matches!(&record.end, RunEnd::OperationRefused { what } if what.contains("8 times")), "{}", record.end);
        assert_eq!((updates(409), updates(200)), (8, 0), "{name}");
        assert_eq!(data(&app, name).await, json!({"baz": "old"}));
    }
}

/// Upstream waits 20 s for the object to go and then fails. Here a deletion is asked for and not waited for, so that a slow
/// finalizer holds nobody up; a hook that needs to know watches the object.
#[tokio::test(flavor = "multi_thread")]
async fn a16_a_deletion_does_not_wait_for_finalizers() {
    let world = site().await;
    let mut object = config_map("a16", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/slow"]);
    put(&world, "configmaps", object).await;
    let performed = perform(&world, "app-a16", json!([on("delete", "a16", json!("foreground"))])).await;
    assert_eq!(performed.results(), ["Done"]);
    assert!(performed.record.usage.wall_us < 10_000_000);
    let left = performed.app.object("v1", "ConfigMap", "a16").await.unwrap();
    assert!(left["metadata"]["deletionTimestamp"].is_string(), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_a_jq_patch_of_a_status_reads_the_object_and_writes_its_status() {
    let world = site().await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a17"}, "spec": {"hard": {"pods": "5"}}});
    put(&world, "resourcequotas", quota).await;
    let program = ".status.used = .spec.hard | .spec.hard.pods = \"99\"";
    let mut operation = on("jq-patch", "a17", json!(program));
    operation["target"]["kind"] = json!("ResourceQuota");
    operation["subresource"] = json!("status");
    let app = ready(&world, "app-a17", &json!([operation])).await;
    world.api.clear_journal();
    let record = app.run("perform").await;
    assert!(record.end.is_ok(), "{}", record.end);
    let journal = world.api.journal();
    let asked = journal.iter().filter(|it| it.name == "a17").map(|it| (it.verb, it.subresource.as_str()));
    assert_eq!(asked.collect::<Vec<_>>(), [("get", ""), ("update", "status")]);
    let quota = app.object("v1", "ResourceQuota", "a17").await.unwrap();
    assert_eq!((&quota["status"]["used"]["pods"], &quota["spec"]["hard"]["pods"]), (&json!("5"), &json!("5")));
}

/// How a run with these operations ends (the sandbox counts operations from 0), with nothing done if it is refused.
async fn ends(name: &str, operations: Value) -> (String, Vec<String>) {
    ends_in(&site().await, name, operations).await
}

async fn ends_in(world: &World, name: &str, operations: Value) -> (String, Vec<String>) {
    made(world, "there", json!({"foo": "bar"})).await;
    let app = ready(world, name, &operations).await;
    world.api.clear_journal();
    let record = app.run("perform").await;
    let journal = world.api.journal();
    let own = |name: &&str| *name != format!("{}-config", app.id.name());
    let writes = journal.iter().filter(|it| it.is_write() && it.resource == "configmaps");
    let names = writes.map(|it| it.name.as_str()).filter(own).map(str::to_owned).collect();
    (record.end.to_string(), names)
}

/// Upstream ignores the namespace key of the operation and takes that of the object. Here the object may name its
/// namespace if it is that of the application, and may leave it out.
#[tokio::test(flavor = "multi_thread")]
async fn p01_objects_may_name_the_namespace() {
    let world = site().await;
    let mut with = config_map("p01-a", json!({}));
    with["metadata"]["namespace"] = json!(world.namespace());
    let mut other = config_map("p01-b", json!({}));
    other["metadata"]["namespace"] = json!(world.namespace());
    let (end, made) = ends_in(&world, "p01", json!([give("create", with), give("create-or-update", other)])).await;
    assert_eq!((end.as_str(), made.len()), ("succeeded", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn p02_an_operation_without_an_object_is_refused() {
    for verb in ["create", "create-or-update"] {
        let operations = json!([give("apply", config_map("p02", json!({}))), give(verb, Value::Null)]);
        let (end, made) = ends("p02", operations).await;
        assert!(end.contains(&format!("operation 1 ({verb}): the object is no JSON object")), "{end}");
        assert_eq!(made, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p03_deletions_of_each_kind_may_name_the_namespace() {
    let world = site().await;
    let delete = |how: &str| {
        let mut operation = on("delete", &format!("p03-{how}"), json!(how));
        operation["target"]["namespace"] = json!(world.namespace());
        operation
    };
    let operations = json!([delete("foreground"), delete("background"), delete("orphan")]);
    assert_eq!(ends_in(&world, "p03", operations).await.0, "succeeded");
}

/// Upstream finds the version of a kind without `apiVersion` by discovery. Here it is an error, like a missing kind or name.
#[tokio::test(flavor = "multi_thread")]
async fn p04_one_bad_target_refuses_all_operations() {
    for field in ["apiVersion", "kind", "name"] {
        let mut bad = on("delete", "there", json!("background"));
        bad["target"][field] = json!("");
        let (end, written) = ends("p04", json!([on("delete", "there", json!("background")), bad])).await;
        assert!(end.contains("operation 1 (delete)"), "{field}: {end}");
        assert_eq!(written, Vec::<String>::new(), "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p05_the_three_kinds_of_patches() {
    let operations = json!([
        on("jq-patch", "there", json!(".data.a = \"1\"")),
        on("merge-patch", "there", json!({"data": {"b": "2"}})),
        on("json-patch", "there", json!([{"op": "add", "path": "/data/c", "value": "3"}])),
    ]);
    let (end, written) = ends("p05", operations).await;
    assert_eq!((end.as_str(), written.len()), ("succeeded", 3));
}

/// The word of an operation is a function of the contract here, so a wrong one does not compile.
#[tokio::test(flavor = "multi_thread")]
async fn p06_patches_without_a_body_are_refused() {
    for (verb, with, message) in [
        ("jq-patch", json!(""), "the jq program is empty"),
        ("merge-patch", json!(null), "the patch is no JSON object"),
        ("json-patch", json!(null), "the patch is no JSON array of objects"),
    ] {
        let operations = json!([on("delete", "there", json!("background")), on(verb, "there", with)]);
        let (end, written) = ends("p06", operations).await;
        assert!(end.contains(message), "{verb}: {end}");
        assert_eq!(written, Vec::<String>::new(), "{verb}");
    }
}

/// Upstream wants a value in the first step, whatever it is.
#[tokio::test(flavor = "multi_thread")]
async fn p07_a_removal_needs_no_value() {
    let (end, written) =
        ends("p07", json!([on("json-patch", "there", json!([{"op": "remove", "path": "/data/foo"}]))])).await;
    assert_eq!((end.as_str(), written), ("succeeded", vec!["there".to_owned()]));
}

/// Options are fields of a record here, so an unknown one does not compile, and the one that upstream's SDK misspells has
/// its effect. What is text to the contract is the patch; an unknown word in it is an error.
#[tokio::test(flavor = "multi_thread")]
async fn p08_unknown_words_are_errors_and_known_ones_have_effect() {
    let missing = if_there(on("merge-patch", "missing", json!({"data": {}})));
    assert_eq!(ends("p08", json!([missing])).await.0, "succeeded");
    let (end, written) =
        ends("p08", json!([on("json-patch", "there", json!([{"op": "Remove", "path": "/data/foo"}]))])).await;
    assert!(end.contains("'op' is none of"), "{end}");
    assert_eq!(written, Vec::<String>::new());
}

/// There is no stream of documents here: operations are calls, in the order in which they are made. What is read as text is
/// one value, and what is left over after it cannot be (`host/sandbox` tests the reading of each text).
#[tokio::test(flavor = "multi_thread")]
async fn p09_operations_are_performed_in_the_order_of_the_calls() {
    let operations = json!([
        give("create", config_map("p09", json!({"step": "1"}))),
        on("jq-patch", "p09", json!(".data.step = (.data.step | tonumber + 1 | tostring)")),
        on("merge-patch", "p09", json!({"data": {"more": "3"}})),
        on("jq-patch", "p09", json!(".data.seen = (.data | keys | join(\",\"))")),
    ]);
    let left = json!({"step": "2", "more": "3", "seen": "more,step"});
    check(vec![("p09", false, operations, &["Done", "Done", "Done", "Done"], left)]).await;
}
