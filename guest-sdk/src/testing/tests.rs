//! Hooks meet the rules of the contract in a test as they do in the host.

use std::time::Duration;

use serde_json::{Value, json};

use super::document;
use super::*;
use crate::bindings::hooks::barbless::hooks::{types, values::ValuesError};
use crate::prelude::{Deserialize, Error};
use crate::{hook, object};

fn set(document: &Value, pointer: &str, value: Value) -> Result<Value, ValuesError> {
    let mut changed = document.clone();
    document::set(&mut changed, pointer, value).map(|()| changed)
}

fn removed(document: &Value, pointer: &str) -> Result<Value, ValuesError> {
    let mut changed = document.clone();
    document::remove(&mut changed, pointer).map(|()| changed)
}

#[test]
fn values_are_set_by_the_rules_of_the_contract() {
    let start = json!({"a": {"b": [1, 2]}, "t~/": 1, "s": "text"});
    for (pointer, expected) in [
        ("/a", json!({"a": 9, "t~/": 1, "s": "text"})),
        ("/a/b/0", json!({"a": {"b": [9, 2]}, "t~/": 1, "s": "text"})),
        ("/a/b/-", json!({"a": {"b": [1, 2, 9]}, "t~/": 1, "s": "text"})),
        ("/a/b/2", json!({"a": {"b": [1, 2, 9]}, "t~/": 1, "s": "text"})),
        ("/a/b/-/k", json!({"a": {"b": [1, 2, {"k": 9}]}, "t~/": 1, "s": "text"})),
        ("/t~0~1", json!({"a": {"b": [1, 2]}, "t~/": 9, "s": "text"})),
        ("/n/e/w", json!({"a": {"b": [1, 2]}, "t~/": 1, "s": "text", "n": {"e": {"w": 9}}})),
    ] {
        assert_eq!(set(&start, pointer, json!(9)), Ok(expected), "{pointer}");
    }
    for pointer in ["a", "/~", "/~2"] {
        assert!(matches!(set(&start, pointer, json!(9)), Err(ValuesError::BadPointer(_))), "{pointer}");
    }
    for pointer in ["/s/x", "/a/b/3", "/a/b/01", "/a/b/+1", "/a/b/x"] {
        assert!(matches!(set(&start, pointer, json!(9)), Err(ValuesError::BadPath(_))), "{pointer}");
    }
    assert!(matches!(set(&start, "", json!({})), Err(ValuesError::ReadOnly(_))));
}

#[test]
fn removing_what_is_not_there_is_no_error() {
    let start = json!({"a": {"b": [1, 2]}, "s": "text"});
    assert_eq!(removed(&start, "/a/b/0"), Ok(json!({"a": {"b": [2]}, "s": "text"})));
    assert_eq!(removed(&start, "/a"), Ok(json!({"s": "text"})));
    for pointer in ["/x", "/x/y", "/a/b/2", "/a/b/-"] {
        assert_eq!(removed(&start, pointer), Ok(start.clone()), "{pointer}");
    }
    assert!(matches!(removed(&start, "/s/x"), Err(ValuesError::BadPath(_))));
    assert!(matches!(removed(&start, ""), Err(ValuesError::ReadOnly(_))));
}

#[test]
fn a_run_reads_what_it_wrote() {
    let outcome = TestContext::builder().values(json!({"internal": {"gone": 1}})).run(|ctx| {
        let values = ctx.values();
        values.set("/internal/new", &[1, 2])?;
        values.remove("/internal/gone")?;
        assert_eq!(values.get::<Vec<u8>>("/internal/new")?, Some(vec![1, 2]));
        assert_eq!(values.get_or("/internal/gone", 7)?, 7);
        assert!(!values.contains("/internal/gone"));
        assert!(!values.set_if_changed("/internal/new", &[1, 2])?);
        assert!(values.set_if_changed("/internal/new", &[1, 2, 3])?);
        Ok(())
    });
    assert_eq!(outcome.expect_ok().values(), &json!({"internal": {"new": [1, 2, 3]}}));
}

#[test]
fn settings_stand_in_the_values_and_cannot_be_changed_there() {
    let outcome = TestContext::builder().settings(json!({"replicas": 2})).run(|ctx| {
        assert_eq!(ctx.settings().get::<u8>("/replicas")?, Some(2));
        assert_eq!(ctx.values().get::<u8>("/replicas")?, Some(2));
        ctx.values().set("/replicas", &3)
    });
    assert_eq!(outcome.expect_error().code(), "ValuesReadOnly");
    assert_eq!(outcome.values(), &json!({"replicas": 2}));

    #[derive(Deserialize)]
    struct Settings {
        replicas: u8,
    }
    let outcome = TestContext::builder().settings(json!({"replicas": 2})).run(|ctx| {
        assert_eq!(ctx.settings().all::<Settings>()?.replicas, 2);
        Ok(())
    });
    outcome.expect_ok();
}

#[test]
fn values_cannot_outgrow_their_limit() {
    let outcome = TestContext::builder().run(|ctx| ctx.values().set("/text", &"x".repeat(2 << 20)));
    assert_eq!(outcome.expect_error().code(), "ValuesTooLarge");
}

#[test]
fn a_value_of_another_shape_says_where_it_stands() {
    let outcome = TestContext::builder()
        .values(json!({"internal": {"count": "many"}}))
        .run(|ctx| ctx.values().get::<u32>("/internal/count").map(drop));
    let error = outcome.expect_error();
    assert_eq!(error.code(), "JsonInvalid");
    assert!(error.message().starts_with("values at `/internal/count`: "), "{error}");
}

#[test]
fn null_counts_as_nothing() {
    let outcome = TestContext::builder().values(json!({"a": null})).run(|ctx| {
        assert_eq!(ctx.values().get::<u32>("/a")?, None);
        assert!(ctx.values().contains("/a"));
        Ok(())
    });
    outcome.expect_ok();
}

#[hook(
    before_helm,
    kubernetes(name = "pods", api_version = "v1", kind = "Pod", labels("app" = "x", "zone" in ("a", "b"), "old" absent)),
    kubernetes(name = "maps", api_version = "v1", kind = "ConfigMap", names("one"), fields("/data/k"), keep_full_objects),
    kubernetes(name = "jobs", api_version = "batch/v1", kind = "Job", jq = ".metadata.name"),
)]
fn look(ctx: &mut Context) -> Result<()> {
    let names: Vec<String> = ctx.snapshot("pods")?.iter().map(|pod| pod.name()).collect();
    ctx.values().set("/pods", &names)?;
    let maps = ctx.snapshot("maps")?;
    let first = maps.first();
    ctx.values().set("/field", &first.as_ref().map(|map| map.field::<String>("/data/k")).transpose()?)?;
    ctx.values().set("/object", &first.map(|map| map.object::<Value>()).transpose()?)?;
    ctx.values().set("/jobs", &ctx.snapshots::<String>("jobs")?)
}

fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "labels": labels}})
}

#[test]
fn objects_are_selected_projected_and_sorted_as_the_hook_declares() {
    let good = json!({"app": "x", "zone": "b"});
    let map = json!({"metadata": {"name": "one"}, "data": {"k": "v"}});
    let outcome = TestContext::builder()
        .objects(
            "pods",
            vec![
                pod("n", "z", &good),
                pod("n", "a", &good),
                pod("m", "z", &good),
                pod("n", "no-zone", &json!({"app": "x"})),
                pod("n", "other-app", &json!({"app": "y", "zone": "a"})),
                pod("n", "old", &json!({"app": "x", "zone": "a", "old": ""})),
            ],
        )
        .objects("maps", vec![map.clone(), json!({"metadata": {"name": "two"}})])
        .snapshot("jobs", vec![json!("job-1")])
        .run_hook::<look>()
        .expect_ok();
    assert_eq!(outcome.values(), &json!({"pods": ["z", "a", "z"], "field": "v", "object": map, "jobs": ["job-1"]}));
}

#[test]
fn bindings_that_a_test_leaves_out_are_empty() {
    let outcome = TestContext::builder().run_hook::<look>().expect_ok();
    assert_eq!(outcome.values(), &json!({"pods": [], "field": null, "object": null, "jobs": []}));
}

#[test]
#[should_panic(expected = "has no such kubernetes binding")]
fn a_snapshot_that_the_hook_does_not_declare_is_a_wrong_test() {
    let _ = TestContext::builder().snapshot("pod", vec![]).run_hook::<look>();
}

#[test]
#[should_panic(expected = "is projected by a program")]
fn objects_for_a_program_are_a_wrong_test() {
    let _ = TestContext::builder().objects("jobs", vec![json!({})]).run_hook::<look>();
}

#[test]
fn snapshots_that_cannot_be_had_are_errors() {
    let outcome = TestContext::builder().run(|ctx| ctx.snapshot("none").map(drop));
    assert_eq!(outcome.expect_error().code(), "SnapshotUnknown");
    assert!(outcome.expect_error().message().contains("`none`"));
    let outcome = TestContext::builder()
        .snapshot_not_synchronised("a", "filter failed")
        .run(|ctx| ctx.snapshots::<Value>("a").map(drop));
    assert_eq!(outcome.expect_error().code(), "SnapshotNotSynchronised");
    assert!(outcome.expect_error().message().contains("filter failed"));
}

#[test]
fn an_item_is_read_by_pointer() {
    let pods = vec![json!({"metadata": {"name": "a"}, "status": {"phase": "Running", "ip": null}})];
    let outcome = TestContext::builder().snapshot("pods", pods).run(|ctx| {
        let pods = ctx.snapshot("pods")?;
        assert_eq!((pods.len(), pods.is_empty()), (1, false));
        assert!(pods.at(1).is_none() && pods.find("b").is_none());
        let pod = pods.find("a").ok_or_else(|| Error::new("Missing", "a"))?;
        assert_eq!(pod.get::<String>("/status/phase")?.as_deref(), Some("Running"));
        assert_eq!(pod.get::<String>("/status/ip")?, None);
        assert_eq!(pod.get::<String>("/status/none")?, None);
        assert!(pod.object::<Value>()?.is_none(), "whole objects are not kept");
        pod.get::<u8>("/status/phase").map(drop)
    });
    assert!(outcome.expect_error().message().starts_with("object `a` at `/status/phase`: "));
}

#[test]
fn each_operation_is_collected_with_its_options() {
    let outcome = TestContext::builder().run(|ctx| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let target = ObjectRef::new("v1", "Pod", "p").namespace("n");
        ctx.patches().create(&object)?;
        ctx.patches().create_if_not_exists(&object)?;
        ctx.patches().create_or_update(&object)?;
        ctx.patches().on_failure().apply(&object)?;
        ctx.patches().subresource(Subresource::Status).merge_patch(&target, &json!({"status": {}}))?;
        ctx.patches().ignore_missing_object().json_patch(&target, &json!([]))?;
        ctx.patches().subresource(Subresource::Scale).jq_patch(&target, ".spec.replicas = 2");
        ctx.patches().delete(&target, Propagation::Orphan);
        Ok(())
    });
    let plain = Options::default();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let target = ObjectRef::new("v1", "Pod", "p").namespace("n");
    let expected = [
        Operation::Create { object: object.clone(), options: plain },
        Operation::CreateIfNotExists { object: object.clone(), options: plain },
        Operation::CreateOrUpdate { object: object.clone(), options: plain },
        Operation::Apply { object, options: Options { on_failure: true, ..plain } },
        Operation::MergePatch {
            target: target.clone(),
            patch: json!({"status": {}}),
            options: Options { subresource: Some(Subresource::Status), ..plain },
        },
        Operation::JsonPatch {
            target: target.clone(),
            patch: json!([]),
            options: Options { ignore_missing_object: true, ..plain },
        },
        Operation::JqPatch {
            target: target.clone(),
            program: ".spec.replicas = 2".to_owned(),
            options: Options { subresource: Some(Subresource::Scale), ..plain },
        },
        Operation::Delete { target, propagation: Propagation::Orphan, options: plain },
    ];
    assert_eq!(outcome.operations(), expected);
    assert_eq!(outcome.operations()[3].target().to_string(), "v1 ConfigMap a");
    assert_eq!(outcome.operations()[7].target().to_string(), "v1 Pod n/p");
}

#[test]
fn after_a_failure_only_what_is_marked_is_carried_out() {
    let outcome = TestContext::builder().run(|ctx| {
        ctx.patches().apply(&json!({"a": 1}))?;
        ctx.patches().on_failure().apply(&json!({"b": 1}))?;
        Err(Error::new("Broken", "it is").retry_after(Duration::from_millis(1500)))
    });
    assert_eq!(outcome.operations().len(), 2);
    let [carried_out] = outcome.carried_out()[..] else { panic!("one operation") };
    assert_eq!(carried_out.object(), &json!({"b": 1}));
    let error: types::HookError = outcome.expect_error().clone().into();
    assert_eq!((error.code.as_str(), error.retry_after_ms, error.hint), ("Broken", Some(1500), None));
}

#[test]
fn a_label_is_set_without_touching_others() {
    let outcome = TestContext::builder().instance("ns", "blog").run(|ctx| {
        let mut object = json!({"metadata": {"labels": {"a": "b"}}});
        ctx.label(&mut object)?;
        assert_eq!(object["metadata"]["labels"], json!({"a": "b", object::INSTANCE_LABEL: "blog"}));
        assert_eq!(ctx.labelled(json!({}))?["metadata"]["labels"][object::INSTANCE_LABEL], "blog");
        ctx.label(&mut json!({"metadata": []}))
    });
    assert_eq!(outcome.expect_error().code(), "ObjectInvalid");
}

#[test]
fn what_the_host_tells_of_a_run_arrives() {
    let outcome = TestContext::builder()
        .attempt(3)
        .dry_run()
        .instance("ns", "blog")
        .package("miniflux", "1.2.3")
        .change("pods", WatchEventType::Added, "a")
        .change("pods", WatchEventType::Deleted, "b")
        .run(|ctx| {
            assert_eq!((ctx.attempt(), ctx.is_dry_run()), (3, true));
            let Identity { name, namespace, package_name, package_version } = ctx.instance().clone();
            let identity = [name.as_str(), &namespace, &package_name, &package_version];
            assert_eq!(identity, ["blog", "ns", "miniflux", "1.2.3"]);
            let Trigger::Events(changes) = ctx.trigger() else { panic!("events") };
            let names: Vec<_> = changes.iter().map(|change| (change.event, change.name.as_str())).collect();
            assert_eq!(names, [(WatchEventType::Added, "a"), (WatchEventType::Deleted, "b")]);
            assert!(changes.iter().all(|change| change.namespace == "ns"));
            Ok(())
        });
    outcome.expect_ok();
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let draw = |seed| {
        let outcome = TestContext::builder().seed(seed).run(|ctx| {
            ctx.values().set("/password", &ctx.random().password(40))?;
            ctx.values().set("/bytes", &ctx.random().bytes(10_000))?;
            ctx.values().set("/number", &ctx.random().next_u64())
        });
        outcome.expect_ok().values().clone()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let values = draw(3);
    assert_eq!(values["password"].as_str().map(str::len), Some(40));
    assert_eq!(values["bytes"].as_array().map(Vec::len), Some(10_000));
}

#[test]
fn every_character_of_a_password_is_as_likely() {
    let outcome = TestContext::builder().run(|ctx| ctx.values().set("/p", &ctx.random().password(56_000)));
    let text = outcome.values()["p"].as_str().expect("a password").to_owned();
    let mut counts = std::collections::BTreeMap::new();
    for character in text.chars() {
        *counts.entry(character).or_insert(0_u32) += 1;
    }
    assert_eq!(counts.len(), 56);
    // 1 000 each are expected, with a deviation of 32.
    assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
}

#[test]
#[should_panic(expected = "the host ends such a run")]
fn a_counter_cannot_be_lowered() {
    let _ = TestContext::builder().run(|ctx| {
        ctx.metrics().counter_add("a", -1.0, &[]);
        Ok(())
    });
}

#[test]
fn log_lines_have_fields() {
    let outcome = TestContext::builder().run(|_| {
        log::debug!("plain");
        log::error!(a = 1, b = "two", "three {} {x}", 3, x = 4);
        Ok(())
    });
    let [first, second] = outcome.logs() else { panic!("two lines") };
    assert_eq!((first.level, first.message.as_str(), first.fields.len()), (log::Level::Debug, "plain", 0));
    assert_eq!((second.level, second.message.as_str()), (log::Level::Error, "three 3 4"));
    assert_eq!(second.fields, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "two".to_owned())]);
}

#[test]
fn a_hook_can_be_tested_inside_another_run() {
    let outcome = TestContext::builder().values(json!({"a": 1})).run(|ctx| {
        TestContext::builder().run(|inner| inner.values().set("/a", &2)).expect_ok();
        assert_eq!(ctx.values().get::<u8>("/a")?, Some(1));
        Ok(())
    });
    outcome.expect_ok();
}

#[test]
fn optional_exports_answer_for_what_does_not_fit() {
    use crate::__private::{assess, check_settings, project};
    use crate::optional::{Health, Status, Verdict};

    let check = |settings: &str| check_settings(settings, |replicas: u8| Verdict::allow().warn(replicas.to_string()));
    assert_eq!(check("3"), Verdict::Allow(vec!["3".to_owned()]));
    assert!(matches!(check("\"x\""), Verdict::Reject(reason) if reason.contains("invalid type")));
    assert_eq!(Verdict::reject("no").warn("more"), Verdict::Reject("no".to_owned()));

    let name = |object: &str| {
        project("h", "b", object, |selection, object: Value| {
            assert_eq!((selection.hook, selection.binding), ("h", "b"));
            object["name"].as_str().map(str::to_owned).ok_or_else(|| Error::new("NoName", "the object has no name"))
        })
    };
    assert_eq!(name(r#"{"name": "a"}"#), Ok("\"a\"".to_owned()));
    assert_eq!(name("{}"), Err("NoName: the object has no name".to_owned()));
    assert!(name("{").is_err_and(|error| error.starts_with("JsonInvalid: ")));

    let health = |object: &str| assess(object, |ok: bool| ok.then(|| Health::new(Status::Healthy, "ok")));
    assert_eq!(health("true"), Some(Health::new(Status::Healthy, "ok")));
    assert_eq!(health("false"), None);
    assert_eq!(health("7").map(|health| health.status), Some(Status::Unknown));
}
