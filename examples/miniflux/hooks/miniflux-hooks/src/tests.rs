//! Each hook, with what it may meet.

use super::*;
use barbless_sdk::declaration::Binding;
use barbless_sdk::testing::{Operation, Outcome};
use barbless_sdk::{WatchEventType, log::Level};

fn blog() -> TestContext {
    TestContext::builder().instance("production", "blog")
}

fn secret(name: &str, database: &str, admin: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {ROLE_LABEL: "credentials"}},
        "data": {"database": object::base64_encode(database), "admin": object::base64_encode(admin)},
    })
}

fn feed_list(name: &str, data: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": {FEEDS_LABEL: "true"}}, "data": data})
}

#[test]
fn startup_reads_nothing_and_records_the_version() {
    let outcome = blog().trigger(Trigger::OnStartup).run_hook::<startup>().expect_ok();
    assert_eq!(outcome.values(), &json!({"internal": {"hooksVersion": env!("CARGO_PKG_VERSION")}}));
    assert!(outcome.operations().is_empty());
}

#[test]
fn passwords_are_generated_once_and_kept_in_a_labelled_secret() {
    let outcome = blog().run_hook::<credentials>().expect_ok();
    let [Operation::CreateIfNotExists { object: secret, .. }] = outcome.operations() else { panic!("one creation") };
    assert_eq!(secret["metadata"]["name"], "d8a-blog-credentials");
    assert_eq!(secret["metadata"]["labels"][object::INSTANCE_LABEL], "blog");
    assert_eq!(secret["metadata"]["labels"][ROLE_LABEL], "credentials", "the binding must select it");
    let kept = &outcome.values()["internal"]["credentials"];
    for which in ["database", "admin"] {
        let password = kept[which].as_str().expect("a password");
        assert_eq!(password.len(), PASSWORD_CHARS);
        assert_eq!(secret["data"][which], object::base64_encode(password));
    }
    assert_ne!(kept["database"], kept["admin"]);
    assert!(outcome.logs().iter().all(|line| !line.message.contains(kept["admin"].as_str().expect("a password"))));
}

#[test]
fn an_existing_secret_wins_over_new_passwords() {
    let outcome = blog()
        .objects("credentials", vec![secret("d8a-blog-credentials", "old-database-pw", "old-admin-pw")])
        .values(json!({"internal": {"credentials": {"database": "from-a-race", "admin": "from-a-race"}}}))
        .run_hook::<credentials>()
        .expect_ok();
    let expected = json!({"database": "old-database-pw", "admin": "old-admin-pw"});
    assert_eq!(outcome.values()["internal"]["credentials"], expected);
    assert!(outcome.operations().is_empty());
}

#[test]
fn the_secret_of_another_application_is_not_taken() {
    let outcome = blog().objects("credentials", vec![secret("d8a-shop-credentials", "theirs", "theirs")]);
    let outcome = outcome.run_hook::<credentials>().expect_ok();
    assert_eq!(outcome.operations().len(), 1);
    assert_ne!(outcome.values()["internal"]["credentials"]["database"], "theirs");
}

#[test]
fn passwords_stay_the_same_while_the_snapshot_is_behind() {
    let first = blog().run_hook::<credentials>().expect_ok();
    let second = blog().seed(2).values(first.values().clone()).run_hook::<credentials>().expect_ok();
    assert_eq!(first.values(), second.values());
    assert_eq!(first.operations(), second.operations());
}

#[test]
fn a_secret_without_data_is_an_error_with_a_hint() {
    let empty = json!({"metadata": {"name": "d8a-blog-credentials", "labels": {ROLE_LABEL: "credentials"}}});
    let outcome = blog().objects("credentials", vec![empty]).run_hook::<credentials>();
    assert_eq!(outcome.expect_error().code(), "CredentialsIncomplete");
    assert!(outcome.expect_error().hint_text().is_some());
    assert!(outcome.carried_out().is_empty());
}

#[test]
fn feeds_of_all_lists_are_sorted_and_odd_ones_left_out() {
    let lists = vec![
        feed_list("news", &json!({"z": "https://z.example/feed", "a": " http://a.example/feed\n", "bad": "ftp://x"})),
        feed_list("comics", &json!({"again": "https://z.example/feed-2"})),
        json!({"metadata": {"name": "other"}, "data": {"x": "https://not.selected/"}}),
    ];
    let outcome = blog().objects("feeds", lists).change("feeds", WatchEventType::Added, "news");
    let outcome = outcome.run_hook::<feeds>().expect_ok();
    let titles: Vec<&Value> = list(&outcome).iter().map(|feed| &feed["title"]).collect();
    assert_eq!(titles, ["again", "a", "z"]);
    assert_eq!(list(&outcome)[1]["url"], "http://a.example/feed");
    let warning = outcome.logs().iter().find(|line| line.level == Level::Warn).expect("a warning");
    assert!(warning.fields.contains(&("key".to_owned(), "bad".to_owned())));
    assert_eq!(outcome.metrics()[0].value, 3.0);
}

fn list(outcome: &Outcome) -> &Vec<Value> {
    outcome.values()["internal"]["feeds"].as_array().expect("a list")
}

#[test]
fn without_feed_lists_the_list_is_empty_and_stays_quiet() {
    let outcome = blog().values(json!({"internal": {"feeds": []}})).run_hook::<feeds>().expect_ok();
    assert!(list(&outcome).is_empty());
    assert!(outcome.logs().is_empty());
    let none = feed_list("news", &Value::Null);
    assert!(list(&blog().objects("feeds", vec![none]).run_hook::<feeds>().expect_ok()).is_empty());
}

#[test]
fn the_heartbeat_has_the_time_of_the_run() {
    let outcome = blog().now(1_700_000_000_000).trigger(Trigger::Schedule("beat".to_owned()));
    let outcome = outcome.run_hook::<heartbeat>().expect_ok();
    let [Operation::Apply { object: beat, .. }] = outcome.operations() else { panic!("one apply") };
    assert_eq!(beat["metadata"]["name"], "d8a-blog-heartbeat");
    assert_eq!(beat["metadata"]["labels"][object::INSTANCE_LABEL], "blog");
    assert_eq!(beat["data"]["time"], "2023-11-14T22:13:20Z");
}

fn service(cluster_ip: Option<&str>) -> Value {
    json!({
        "metadata": {
            "name": "d8a-blog-web",
            "labels": {"app.kubernetes.io/name": "miniflux", "app.kubernetes.io/component": "web"},
        },
        "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80}]},
    })
}

#[test]
fn the_endpoint_is_waited_for() {
    for objects in [vec![], vec![service(None)], vec![service(Some(""))]] {
        let outcome = blog().trigger(Trigger::AfterHelm).objects("services", objects).run_hook::<endpoint>();
        let error = outcome.expect_error();
        assert_eq!(error.code(), "ServiceNotReady");
        assert_eq!(error.retry_after_duration(), Some(Duration::from_secs(1)));
        assert_eq!(outcome.values(), &json!({}));
    }
}

#[test]
fn the_endpoint_is_recorded_once() {
    let run = |values: Value, ip| {
        blog().values(values).objects("services", vec![service(Some(ip))]).run_hook::<endpoint>().expect_ok()
    };
    let first = run(json!({}), "10.96.0.7");
    assert_eq!(first.values()["internal"]["endpoint"], "http://10.96.0.7:80");
    assert_eq!(first.logs().len(), 1);
    let second = run(first.values().clone(), "10.96.0.7");
    assert_eq!(first.values(), second.values());
    assert!(second.logs().is_empty(), "nothing changed");
    assert_eq!(run(json!({}), "fd00::7").values()["internal"]["endpoint"], "http://[fd00::7]:80");
}

#[test]
fn a_snapshot_that_is_not_synchronised_is_no_empty_one() {
    let outcome = blog().snapshot_not_synchronised("services", "the watch is not open").run_hook::<endpoint>();
    assert_eq!(outcome.expect_error().code(), "SnapshotNotSynchronised");
}

#[test]
fn the_backup_marker_names_the_volume() {
    let outcome = blog()
        .trigger(Trigger::BeforeDeleteHelm)
        .values(json!({"internal": {"feeds": [{"title": "a"}]}}))
        .run_hook::<backup>()
        .expect_ok();
    let [Operation::Apply { object: marker, .. }] = outcome.operations() else { panic!("one apply") };
    assert_eq!(marker["metadata"]["labels"][object::INSTANCE_LABEL], "blog");
    assert_eq!(marker["data"]["claim"], "data-d8a-blog-database-0");
    assert_eq!(marker["data"]["feeds"], "1");
}

#[test]
fn cleanup_removes_what_the_other_hooks_made_but_not_the_passwords() {
    let outcome = blog().trigger(Trigger::AfterDeleteHelm).run_hook::<cleanup>().expect_ok();
    let targets: Vec<String> = outcome.operations().iter().map(|operation| operation.target().to_string()).collect();
    assert_eq!(targets, ["v1 ConfigMap d8a-blog-heartbeat", "v1 ConfigMap d8a-blog-backup-marker"]);
}

#[test]
fn settings_that_are_hardly_meant_are_warned_of() {
    let warnings = |settings: Value| match check_settings(settings) {
        Verdict::Allow(warnings) => warnings.len(),
        Verdict::Reject(reason) => panic!("{reason}"),
    };
    assert_eq!(warnings(json!({"publicUrl": "https://reader.example.com", "pollingMinutes": 60})), 0);
    assert_eq!(warnings(json!({"publicUrl": "http://reader.example.com", "pollingMinutes": 1})), 2);
}

#[test]
fn labels_in_attributes_are_those_of_the_constants() {
    let selector = |declaration: barbless_sdk::declaration::HookDeclaration| {
        declaration.bindings.into_iter().find_map(|binding| match binding {
            Binding::Kubernetes(binding) => binding.label_selector.map(|labels| labels.match_labels),
            _ => None,
        })
    };
    assert_eq!(selector(feeds::declaration()), Some(vec![(FEEDS_LABEL.to_owned(), "true".to_owned())]));
    assert_eq!(selector(credentials::declaration()), Some(vec![(ROLE_LABEL.to_owned(), "credentials".to_owned())]));
}
