//! What was acknowledged is there after the process was killed.

use std::io::{BufRead, BufReader};

use super::*;

const FOLDER: &str = "DEVCLUSTER_TEST_KILL_FOLDER";

/// Not a test by itself: the process that is killed. Without the variable it does nothing.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let config = Config { data_dir: Some(folder.into()), ..Config::default() };
    let cluster = DevCluster::start(config).await.unwrap();
    let api = Api::<ConfigMap>::default_namespaced(client_of(&cluster));
    for n in 0..100_000 {
        let object = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(format!("m{n}")), ..Default::default() },
            ..Default::default()
        };
        api.create(&PostParams::default(), &object).await.unwrap();
        println!("\nacknowledged m{n}");
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let folder = std::env::temp_dir().join(format!("devcluster-kill-{}", uuid::Uuid::new_v4()));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::kill::the_process_that_is_killed", "--nocapture"])
        .env(FOLDER, &folder)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    let mut killed = false;
    while let Some(Ok(line)) = lines.next() {
        acknowledged.extend(line.strip_prefix("acknowledged ").map(str::to_owned));
        if acknowledged.len() >= 25 && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= 25 && killed);
    let config = Config { data_dir: Some(folder.clone()), ..Config::default() };
    let cluster = DevCluster::start(config).await.unwrap();
    let api = Api::<ConfigMap>::default_namespaced(client_of(&cluster));
    let found = api.list(&ListParams::default()).await.unwrap();
    for name in acknowledged {
        assert!(found.items.iter().any(|o| o.name_any() == name), "{name} is lost");
    }
    cluster.stop().await;
    let _ = std::fs::remove_dir_all(folder);
}
