//! What is said of a folder in which no cluster can be kept.

use super::*;

#[tokio::test]
async fn only_of_a_folder_that_is_damaged_it_is_said_so() {
    let begin = |dir: &Path| {
        let dir = dir.to_owned();
        async move {
            let config = Config { data_dir: Some(dir.clone()), ..Default::default() };
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
