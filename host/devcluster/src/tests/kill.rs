//! What was acknowledged is there after the process was killed, whenever that was, and what was taken back stays away.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use k8s_openapi::api::apps::v1::Deployment;

use super::*;

const FOLDER: &str = "DEVCLUSTER_TEST_KILL_FOLDER";
const ROUND: &str = "DEVCLUSTER_TEST_KILL_ROUND";
const SEED: &str = "DEVCLUSTER_TEST_KILL_SEED";
/// Each kills the process once.
const ROUNDS: u64 = 8;
/// Who writes at the same time. Each has objects of its own, so that it knows what comes after what.
const WRITERS: u64 = 4;
/// Objects of a writer, beside the one whose status it writes.
const OBJECTS: u64 = 5;

/// Numbers that look random (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % sides
    }
}

fn config(folder: &Path) -> Config {
    Config { data_dir: Some(folder.to_owned()), controllers: false, ..Config::default() }
}

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v": value}})).unwrap()
}

/// Not a test by itself: the process that is killed. Without the variable it does nothing.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let cluster = DevCluster::start(config(Path::new(&folder))).await.unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let (client, round) = (client_of(&cluster), number(ROUND));
        tokio::spawn(write(client, writer, round, Dice(number(SEED) ^ (round << 8) ^ writer)))
    });
    futures::future::join_all(writers).await;
}

/// Writes for ever: says what it is about to do, does it, and says that it was acknowledged, with the version. A value is
/// never written twice; `-` is a deletion.
async fn write(client: Client, writer: u64, round: u64, mut dice: Dice) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let deployments = Api::<Deployment>::default_namespaced(client);
    let post = PostParams::default();
    let (force, plain) = (PatchParams::apply("a-manager").force(), PatchParams::default());
    let stateful = format!("d{writer}");
    let labels = json!({"app": "d"});
    let made = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": stateful}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    deployments.patch(&stateful, &force, &Patch::Apply(&made)).await.unwrap();
    for count in 0.. {
        let value = (round * 1_000_000 + count).to_string();
        if dice.roll(6) == 0 {
            println!("\nbegins {stateful} {value} 0 .");
            let status = json!({"status": {"observedGeneration": round * 1_000_000 + count}});
            let written = deployments.patch_status(&stateful, &plain, &Patch::Merge(&status)).await.unwrap();
            println!("\nacknowledged {stateful} {value} {} .", written.resource_version().unwrap());
            continue;
        }
        let name = format!("m{writer}-{}", dice.roll(OBJECTS));
        let there = maps.get_opt(&name).await.unwrap();
        let what = if there.is_some() { dice.roll(5) } else { 5 + dice.roll(2) };
        let said = if what == 0 { "-" } else { value.as_str() };
        println!("\nbegins {name} {said} 0 .");
        let merge = json!({"data": {"v": value}});
        let applied =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}});
        let written = match (what, there) {
            (0, _) => {
                maps.delete(&name, &DeleteParams::default()).await.unwrap();
                None
            }
            (1 | 2, Some(mut there)) => {
                there.data = map(&name, &value).data;
                Some(maps.replace(&name, &post, &there).await.unwrap())
            }
            (3, _) => Some(maps.patch(&name, &plain, &Patch::Merge(&merge)).await.unwrap()),
            (5, _) => Some(maps.create(&post, &map(&name, &value)).await.unwrap()),
            _ => Some(maps.patch(&name, &force, &Patch::Apply(&applied)).await.unwrap()),
        };
        let version = written.and_then(|written| written.resource_version()).unwrap_or_else(|| "0".to_owned());
        println!("\nacknowledged {name} {said} {version} .");
    }
}

/// What is known of an object.
#[derive(Debug, Default)]
struct Known {
    /// Its value and version; nothing if it is not there.
    acknowledged: Option<(String, u64)>,
    /// What was begun and not acknowledged.
    begun: Option<String>,
}

/// Runs the process for a while, kills it and takes down what it said.
fn one_life(folder: &Path, seed: u64, round: u64, known: &mut BTreeMap<String, Known>) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::kill::the_process_that_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut acknowledged, mut doom) = (0, None);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        let words = line.split(' ').collect::<Vec<_>>();
        // What was cut off was not said.
        let [word, name, value, version, "."] = words.as_slice() else { continue };
        let object = known.entry((*name).to_owned()).or_default();
        match *word {
            "begins" => object.begun = Some((*value).to_owned()),
            "acknowledged" => {
                object.begun = None;
                object.acknowledged = (*value != "-").then(|| ((*value).to_owned(), version.parse().unwrap()));
                acknowledged += 1;
            }
            _ => continue,
        }
        // The clock begins with the first write, however long the process took to start.
        if doom.is_none() {
            let pid = child.id().to_string();
            let life = Duration::from_millis(Dice(seed ^ round.rotate_left(32)).roll(250));
            doom = Some(std::thread::spawn(move || {
                std::thread::sleep(life);
                Command::new("kill").args(["-KILL", &pid]).status().unwrap();
            }));
        }
    }
    doom.expect("it has written").join().unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed");
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kills() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    let folder = std::env::temp_dir().join(format!("devcluster-kill-{}", uuid::Uuid::new_v4()));
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let (mut newest, mut acknowledged) = (0, 0);
    for round in 1..=ROUNDS {
        acknowledged += one_life(&folder, seed, round, &mut known);
        let cluster = DevCluster::start(config(&folder)).await.unwrap();
        let client = client_of(&cluster);
        let maps = Api::<ConfigMap>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let deployments = Api::<Deployment>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
        let version = |version: Option<&String>| version.unwrap().parse::<u64>().unwrap();
        let mut found: BTreeMap<String, (String, u64)> = BTreeMap::new();
        for map in &maps.items {
            let value = map.data.as_ref().and_then(|data| data.get("v").cloned()).unwrap_or_default();
            found.insert(map.name_any(), (value, version(map.metadata.resource_version.as_ref())));
        }
        for deployment in &deployments.items {
            let status = deployment.status.as_ref().and_then(|status| status.observed_generation);
            if let Some(status) = status {
                let version = version(deployment.metadata.resource_version.as_ref());
                found.insert(deployment.name_any(), (status.to_string(), version));
            }
        }
        let now = version(maps.metadata.resource_version.as_ref());
        for (name, known) in &mut known {
            let found = found.get(name);
            let place = format!("seed {seed}, round {round}: {name} is {found:?} and was {known:?}");
            let value = found.map_or("-", |(value, _)| value.as_str());
            match &known.begun {
                // It was carried out, and nobody heard of it.
                Some(begun) if begun == value => {
                    let before = known.acknowledged.as_ref().map_or(0, |(_, version)| *version);
                    assert!(found.is_none_or(|(_, version)| *version > before), "{place}");
                    known.acknowledged = found.cloned();
                }
                _ => assert_eq!(found, known.acknowledged.as_ref(), "{place}"),
            }
            known.begun = None;
            newest = newest.max(known.acknowledged.as_ref().map_or(0, |(_, version)| *version));
        }
        assert!(now >= newest, "seed {seed}, round {round}: the version went from {newest} back to {now}");
        newest = now;
        cluster.stop().await;
    }
    assert!(acknowledged >= 100, "seed {seed}: {acknowledged} writes are no test");
    std::fs::remove_dir_all(folder).ok();
}
