//! What the weather does, how often, and what it takes for a write that was made twice.

use std::collections::{BTreeMap, BTreeSet};

use http_body_util::BodyExt as _;

use super::*;
use crate::{Config, DevCluster};

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

async fn cluster() -> DevCluster {
    DevCluster::start(Config { controllers: false, ..Config::default() }).await.unwrap()
}

fn request(method: &str, address: &str, body: &Value) -> HttpRequest {
    let content = if method == "PATCH" { "application/json-patch+json" } else { "application/json" };
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    HttpRequest::builder().method(method).uri(address).header(header::CONTENT_TYPE, content).body(body).unwrap()
}

/// Status and body; no body if it broke off.
async fn answer(router: &Router, method: &str, address: &str, body: Value) -> (u16, Option<Value>) {
    let response = ask(router.clone(), request(method, address, &body)).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok();
    (status, body.and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()))
}

fn named(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "1"}})
}

#[tokio::test]
async fn the_seed_and_the_number_decide() {
    let run = async |seed: u64| {
        let cluster = cluster().await;
        let weather = Weather::new(seed, Odds { delay: 0, ..Odds::default() });
        let router = weather.over(cluster.router());
        for n in 0..300 {
            answer(&router, "POST", COLLECTION, named(&format!("m{n}"))).await;
        }
        weather.struck()
    };
    let (first, again, other) = (run(7).await, run(7).await, run(8).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    let kinds: BTreeSet<Blow> = first.iter().map(|struck| struck.blow).collect();
    let wanted = [Blow::Internal, Blow::Cut, Blow::Lost];
    assert!(wanted.iter().all(|kind| kinds.contains(kind)) && !kinds.contains(&Blow::Conflict), "{kinds:?}");
}

#[tokio::test]
async fn nothing_is_hit_too_often_in_a_row() {
    let cluster = cluster().await;
    let weather = Weather::new(1, Odds { internal: 10_000, ..Odds::CALM });
    let router = weather.over(cluster.router());
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(answer(&router, "GET", COLLECTION, Value::Null).await.0);
    }
    assert_eq!(seen, [500, 500, 500, 200, 500, 500, 500, 200]);
}

#[tokio::test]
async fn a_lost_answer_leaves_its_write_and_a_cut_connection_does_not() {
    let cluster = cluster().await;
    let calm = cluster.router();
    let lossy = Weather::new(3, Odds { lost: 10_000, ..Odds::CALM });
    let (status, _) = answer(&lossy.over(cluster.router()), "POST", COLLECTION, named("lost")).await;
    assert!(matches!(status, 200 | 504));
    assert_eq!(answer(&calm, "GET", &format!("{COLLECTION}/lost"), Value::Null).await.0, 200);
    let written = cluster.writes();
    assert_eq!((written[0].lost, written[0].status), (true, Some(201)));
    let cutting = Weather::new(3, Odds { cut: 10_000, ..Odds::CALM });
    assert_eq!(answer(&cutting.over(cluster.router()), "POST", COLLECTION, named("cut")).await.1, None);
    assert_eq!(answer(&calm, "GET", &format!("{COLLECTION}/cut"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn only_writes_over_a_version_meet_conflicts_and_only_reads_of_the_cache_are_stale() {
    let cluster = cluster().await;
    let router = Weather::new(5, Odds { conflict: 10_000, stale: 10_000, ..Odds::CALM }).over(cluster.router());
    let (status, made) = answer(&router, "POST", COLLECTION, named("a")).await;
    assert_eq!(status, 201);
    let address = format!("{COLLECTION}/a");
    let cached = format!("{address}?resourceVersion=0");
    let read = async |address: &str| answer(&router, "GET", address, Value::Null).await.1.unwrap()["data"]["n"].clone();
    assert_eq!(read(&cached).await, "1");
    let mut changed = made.unwrap();
    changed["data"]["n"] = json!("2");
    assert_eq!(answer(&router, "PUT", &address, changed.clone()).await.0, 409);
    changed["metadata"]["resourceVersion"] = json!("");
    assert_eq!(answer(&router, "PUT", &address, changed).await.0, 200);
    assert_eq!((read(&address).await, read(&cached).await), (json!("2"), json!("1")), "the newest state, the cache");
}

#[tokio::test]
async fn watches_end_break_off_and_are_too_old() {
    let cluster = cluster().await;
    let calm = cluster.router();
    answer(&calm, "POST", COLLECTION, named("a")).await;
    let watch = |from: &str| format!("{COLLECTION}?watch=1&resourceVersion={from}");
    let seen = async |odds: Odds, from: &str, seed: u64| {
        let response =
            ask(Weather::new(seed, odds).over(cluster.router()), request("GET", &watch(from), &Value::Null)).await;
        let (status, mut body) = (response.status().as_u16(), response.into_body());
        let mut text = String::new();
        let whole = loop {
            match body.frame().await {
                Some(Ok(frame)) => text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap(),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        (status, text, whole)
    };
    let (_, text, whole) = seen(Odds { watch_ended: 10_000, ..Odds::CALM }, "0", 1).await;
    assert!(text.contains("ADDED") && whole);
    let writer = async {
        for n in 0..40 {
            answer(&calm, "POST", COLLECTION, named(&format!("b{n}"))).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let broken = seen(Odds { watch_broken: 10_000, ..Odds::CALM }, "0", 2);
    let (_, (_, text, whole)) = tokio::join!(writer, broken);
    assert!(!whole && !text.ends_with('\n'), "in the middle of an event: {text}");
    let expired = Odds { expired: 10_000, ..Odds::CALM };
    let mut ways = BTreeMap::new();
    for seed in 0..20 {
        let (status, text, _) = seen(expired, "1", seed).await;
        assert!(text.contains("\"reason\":\"Expired\""), "{text}");
        *ways.entry((status, text.contains("\"type\":\"ERROR\""))).or_insert(0) += 1;
    }
    assert_eq!(ways.into_keys().collect::<Vec<_>>(), [(200, true), (410, false)], "as an event and as an answer");
}

/// A client that asks again, whatever it was that it asked.
#[tokio::test]
async fn writes_that_were_made_twice_are_found() {
    let cluster = cluster().await;
    let calm = cluster.router();
    let append = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/x"}]);
    let mut made =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/a"]}});
    answer(&calm, "POST", COLLECTION, made.clone()).await;
    made["metadata"] = json!({"generateName": "g-"});
    let set = json!([{"op": "add", "path": "/data", "value": {"n": "5"}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                     "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}});
    let pods = "/api/v1/namespaces/default/pods";
    for (what, method, address, body, wanted) in [
        ("a made-up name", "POST", COLLECTION.to_owned(), made, Some("made two objects")),
        ("adding to a list", "PATCH", format!("{COLLECTION}/a"), append, Some("changed the object twice")),
        ("setting a field", "PATCH", format!("{COLLECTION}/a"), set, None),
        ("a given name", "POST", COLLECTION.to_owned(), named("n"), None),
        ("what runs once", "POST", pods.to_owned(), pod, Some("made what runs once a second time")),
    ] {
        // Every first try is lost and no second one.
        let weather = Weather::new(9, Odds { lost: 10_000, ..Odds::CALM });
        let router = weather.over(cluster.router());
        answer(&router, method, &address, body.clone()).await;
        assert_eq!(weather.made_twice(), [""; 0], "{what}: so far it was made once");
        if wanted.is_some_and(|why| why.contains("runs once")) {
            answer(&calm, "DELETE", &format!("{pods}/p?gracePeriodSeconds=0"), Value::Null).await;
        }
        answer(&router, method, &address, body).await;
        let found = weather.made_twice();
        match wanted {
            Some(why) => assert!(found.len() == 1 && found[0].ends_with(why), "{what}: {found:?}"),
            None => assert_eq!(found, [""; 0], "{what}"),
        }
    }
}
