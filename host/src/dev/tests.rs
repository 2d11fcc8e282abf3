//! What a user of `dev` is told.

use barbless_domain::status::Summary;

use super::*;

#[tokio::test]
async fn applications_that_are_not_served_are_told_why() {
    let devcluster = DevCluster::start(barbless_devcluster::Config::default()).await.unwrap();
    let cluster = Cluster::new(app::client_of(&devcluster));
    cluster.establish_crds().await.unwrap();
    let id = |name: &str| ApplicationId::new("default", name).unwrap();
    for (name, package) in [("web", "shop"), ("second", "shop"), ("third", "other")] {
        cluster.create_application(&id(name), package, "1.0.0", &json!({})).await.unwrap();
    }
    let long = "a".repeat(70);
    for name in ["a.b", long.as_str()] {
        let object = json!({
            "apiVersion": "deckhouse.io/v1alpha1", "kind": "Application", "metadata": {"name": name},
            "spec": {"packageName": "shop", "packageVersion": "1.0.0"},
        });
        cluster.apply_object("a-user", "default", &object).await.unwrap();
    }
    let mut events = std::pin::pin!(cluster.watch_applications(None));
    let mut told = unserved(&events.next().await.unwrap(), &id("web"), "shop");
    told.sort_by(|a, b| a.name.cmp(&b.name));
    let said: Vec<_> = told.iter().map(|it| (it.name.as_str(), it.why.reason.as_str())).collect();
    let expected =
        [("a.b", "BadName"), (long.as_str(), "BadName"), ("second", "NotServed"), ("third", "PackageUnknown")];
    assert_eq!(said, expected);
    assert!(told[1].why.message.contains("longer than 24 characters"), "{told:?}");
    assert!(told.iter().all(|it| it.generation == 1 && it.why.hint.is_some()), "{told:?}");
}

#[tokio::test]
async fn only_of_a_folder_that_is_damaged_it_is_said_so() {
    let begin = |dir: &Path| {
        let dir = dir.to_owned();
        async move {
            let config = barbless_devcluster::Config { data_dir: Some(dir.clone()), ..Default::default() };
            DevCluster::start(config).await.map_err(|error| unusable(Some(&dir), &error))
        }
    };
    let advice = |report: &Report| report.hint.as_deref().is_some_and(|hint| hint.contains("remove the folder"));
    let dir = tempfile::tempdir().unwrap();
    let first = begin(dir.path()).await.unwrap();
    let report = begin(dir.path()).await.unwrap_err();
    assert_eq!((report.code.as_str(), advice(&report)), ("DataDirInUse", false), "{report}");
    first.stop().await;

    // A folder cannot be made where a file is, whoever the user is.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let report = begin(&file.join("below")).await.unwrap_err();
    assert_eq!((report.code.as_str(), advice(&report)), ("DataDirUnusable", false), "{report}");

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("devcluster.redb"), "this is no database").unwrap();
    let report = begin(other.path()).await.unwrap_err();
    assert_eq!((report.code.as_str(), advice(&report)), ("DevClusterFailed", true), "{report}");
}

#[test]
fn who_waited_for_too_long_is_told_for_how_long_and_no_empty_reason() {
    let summary =
        |message: &str| Summary { state: "Ready".to_owned(), message: message.to_owned(), tip: String::new() };
    let cases = [
        (Duration::from_millis(1), "", "changing did not end within 1ms: Ready"),
        (Duration::from_secs(20), "", "changing did not end within 20s: Ready"),
        (Duration::from_millis(1500), "so", "changing did not end within 1.5s: Ready: so"),
    ];
    for (timeout, message, said) in cases {
        let report = timed_out("changing", timeout, summary(message));
        assert_eq!(report.message, said);
        assert_eq!(report.hint.as_deref(), Some("give more time with --timeout"));
    }
}
