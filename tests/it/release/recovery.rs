//! A process is killed at every request with which it changes something, and another goes on: what is left must be what
//! an undisturbed run leaves. And two processes at once.
//!
//! Killed means that from the nth write on no request is answered, and that the work is dropped. Each place is tried
//! twice: the write is lost, or it is carried out and only its answer is lost.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::chart::{Chart, Object, account, chart, config_map, config_map_with, deployment, job, secret, service};
use super::site::{Failed, Site};

/// What a process is killed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
}

fn first() -> Chart {
    chart()
        .put(
            "a.yaml",
            [
                account("r"),
                secret("dropped"),
                config_map_with("changed", json!({"v": "1"})),
                config_map("same"),
                config_map("kept").resource_policy("keep"),
                service("d"),
                deployment("d"),
            ],
        )
        .put("h.yaml", hooks())
}

fn second() -> Chart {
    chart()
        .put(
            "a.yaml",
            [
                account("r"),
                config_map_with("changed", json!({"v": "2"})),
                config_map("same"),
                config_map("added"),
                service("d"),
                deployment("d").set("/spec/replicas", json!(2)),
            ],
        )
        .put("h.yaml", hooks())
}

/// Hooks that go when they have succeeded, and one of each event that stays.
fn hooks() -> Vec<Object> {
    let all = |phase: &str| ["install", "upgrade", "rollback", "delete"].map(|it| format!("{phase}-{it}")).join(",");
    vec![
        job("before-goes").hook(&all("pre")).policy("before-hook-creation,hook-succeeded"),
        job("before-stays").hook(&all("pre")).weight("1"),
        job("after-goes").hook(&all("post")).policy("before-hook-creation,hook-succeeded"),
    ]
}

/// Objects of others, which nobody may touch.
fn strangers() -> [Object; 2] {
    [config_map("stranger"), config_map("neighbour").label("packages.deckhouse.io/instance", "neighbour")]
}

/// A cluster on which the operation can begin.
async fn prepared(operation: Operation) -> Site {
    let site = Site::new().await;
    for stranger in strangers() {
        site.put(&stranger).await;
    }
    if operation != Operation::Install {
        site.install(&first()).await.unwrap();
    }
    if operation == Operation::Rollback {
        site.upgrade(&second()).await.unwrap();
    }
    site
}

async fn perform(site: &Site, operation: Operation) -> Result<(), Failed> {
    match operation {
        Operation::Install => site.apply(&first()).await,
        Operation::Upgrade => site.apply(&second()).await,
        Operation::Rollback => site.rollback(1).await,
        Operation::Uninstall => site.uninstall().await.map(drop),
    }
}

/// What is in the namespace, as far as it is of a release or of strangers: what it says, and its uid.
async fn objects(site: &Site) -> BTreeMap<String, (Value, String)> {
    let mut found = BTreeMap::new();
    let kinds = [account("any"), secret("any"), config_map("any"), service("any"), deployment("any"), job("any")];
    for kind in kinds {
        for mut object in site.list(&kind).await {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if matches!(name.as_str(), "default" | "kubernetes" | "kube-root-ca.crt") || name.starts_with("sh.helm.") {
                continue;
            }
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            object.as_object_mut().unwrap().remove("status");
            let metadata = object["metadata"].as_object_mut().unwrap();
            for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "namespace"] {
                metadata.remove(field);
            }
            if let Some(spec) = object["spec"].as_object_mut().filter(|_| kind == "Service") {
                // The server chooses them.
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            if kind == "Job" {
                // The uid of the Job is in it.
                object["spec"] = Value::Null;
            }
            found.insert(format!("{kind}/{name}"), (object, uid));
        }
    }
    found
}

async fn kill_at_every_request(operation: Operation) {
    let site = prepared(operation).await;
    perform(&site, operation).await.unwrap();
    let expected = objects(&site).await;
    let mut places = 0;
    // A real control plane takes seconds for each place, and so do faults: some of them are enough there.
    let step = if site.api.is_real() || site.api.has_faults() { 6 } else { 1 };
    'places: for write in (0..).step_by(step) {
        for performed in [false, true] {
            let site = prepared(operation).await;
            let before = objects(&site).await;
            let doomed = site.another("doomed");
            doomed.tap.kill_at(write, performed);
            let died = tokio::select! {
                biased;
                () = doomed.tap.death() => true,
                result = perform(&doomed, operation) => { result.unwrap(); false }
            };
            if !died {
                break 'places;
            }
            places += 1;
            let place = format!("{operation:?} killed at write {write}, performed: {performed}");
            site.owner_dies().await;
            let next = site.another("next");
            // What was over already is not begun again, as in the host.
            if operation != Operation::Uninstall || !site.history().await.is_empty() {
                perform(&next, operation).await.unwrap_or_else(|failed| panic!("{place}: {failed:?}"));
            }
            let after = objects(&site).await;
            compare(&place, &expected, &after);
            for (name, (_, uid)) in &before {
                let stays = !name.starts_with("Job/") && expected.contains_key(name);
                if let Some((_, now)) = after.get(name).filter(|_| stays) {
                    assert_eq!(now, uid, "{place}: {name} was deleted and made anew");
                }
            }
            let history = site.history().await;
            let deployed = history.iter().filter(|(_, status)| *status == "deployed").count();
            let pending = history.iter().filter(|(_, status)| status.contains("ing")).count();
            let wanted = usize::from(operation != Operation::Uninstall);
            assert_eq!((deployed, pending), (wanted, 0), "{place}: {history:?}");
        }
    }
    assert!(places * step > 10, "{operation:?} has only {places} places to die");
}

/// The same objects with the same contents. A hook that stays may have run although the undisturbed run had no such
/// event: an installation that had ended already is followed by an upgrade.
fn compare(place: &str, expected: &BTreeMap<String, (Value, String)>, found: &BTreeMap<String, (Value, String)>) {
    for (name, (object, _)) in expected {
        let Some((now, _)) = found.get(name) else { panic!("{place}: {name} is missing") };
        assert_eq!(now, object, "{place}: {name}");
    }
    for name in found.keys() {
        assert!(expected.contains_key(name), "{place}: {name} is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_killed_at_every_request_is_completed_by_the_next_process() {
    kill_at_every_request(Operation::Install).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_killed_at_every_request_is_completed_by_the_next_process() {
    kill_at_every_request(Operation::Upgrade).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_killed_at_every_request_is_completed_by_the_next_process() {
    kill_at_every_request(Operation::Rollback).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_killed_at_every_request_is_completed_by_the_next_process() {
    kill_at_every_request(Operation::Uninstall).await;
}

/// A process that only seemed dead wakes up after another went on: its next word about the release is refused, and it
/// stops.
#[tokio::test]
async fn a_process_that_was_taken_for_dead_stops() {
    let site = Site::new().await;
    let slow = chart().put(
        "a.yaml",
        [
            config_map("late"),
            job("one").hook("pre-install").weight("1").run("hang"),
            job("two").hook("pre-install").weight("2"),
        ],
    );
    let (asleep, next) = (site.another("asleep"), site.another("next"));
    let (result, ()) = tokio::join!(asleep.install(&slow), async {
        site.until("the hook runs", &job("one"), |job| job["status"]["active"] == 1).await;
        site.owner_dies().await;
        next.install(&chart().put("a.yaml", [config_map("x")])).await.unwrap();
        site.annotate(&job("one"), "devcluster.barbless.dev/run", "succeed").await;
    });
    assert_eq!(result.unwrap_err().reason, "ReleaseTakenOver");
    assert_eq!(site.history().await, [(1, "failed"), (2, "deployed")]);
    assert!(!site.has(&job("two")).await && !site.has(&config_map("late")).await, "it applied nothing more");
}

/// O34.
#[tokio::test(flavor = "multi_thread")]
async fn o34_of_two_upgrades_at_once_one_proceeds() {
    for round in 0..10 {
        let site = Site::new().await;
        site.install(&first()).await.unwrap();
        let (one, two) = (site.another("one"), site.another("two"));
        let (second, other) = (second(), second().put("b.yaml", [config_map("other")]));
        let (a, b) = tokio::join!(one.upgrade(&second), two.upgrade(&other));
        let (won, lost) = match (&a, &b) {
            (Ok(()), Err(lost)) => ("one", lost),
            (Err(lost), Ok(())) => ("two", lost),
            _ => panic!("round {round}: {a:?} {b:?}"),
        };
        assert_eq!(lost.reason, "ReleaseInProgress", "{lost:?}");
        assert_eq!(site.history().await, [(1, "superseded"), (2, "deployed")]);
        assert_eq!(site.has(&config_map("other")).await, won == "two");
    }
}

/// An object that somebody deleted is found missing, and the next apply brings it back and touches nothing else.
#[tokio::test]
async fn a_deleted_object_is_found_missing_and_brought_back() {
    let site = Site::new().await;
    site.install(&first()).await.unwrap();
    assert_eq!(site.missing().await, []);
    site.remove(&config_map("same")).await;
    site.remove(&service("d")).await;
    let missing = site.missing().await;
    assert_eq!(missing.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["same", "d"]);
    let before = objects(&site).await;
    site.upgrade(&first()).await.unwrap();
    assert_eq!(site.missing().await, []);
    let after = objects(&site).await;
    for (name, (object, uid)) in before.iter().filter(|(name, _)| !name.starts_with("Job/")) {
        assert_eq!(after.get(name), Some(&(object.clone(), uid.clone())), "{name}");
    }
    assert!(site.has(&config_map("same")).await && site.has(&service("d")).await);
}
