//! The development cluster beside a real kube-apiserver with etcd: the same requests over sockets, one after the other.
//!
//! `cargo bench -p barbless --bench devcluster [-- --objects N] [-- --requests N] [-- --watchers N]`; `docs/benchmarks.md`
//! says what each row means. Needs what `tests/envtest/build` builds.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that meets something unexpected ends")]
#![allow(clippy::print_stdout, reason = "a benchmark talks to people")]
#![allow(dead_code, reason = "the module is that of the tests, and not all of it is needed here")]

#[path = "../../tests/it/envtest/bare.rs"]
mod bare;
#[path = "../../tests/it/envtest.rs"]
mod envtest;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

/// Requests that are under way at a time.
const AT_ONCE: usize = 16;
const NAMESPACE: &str = "/api/v1/namespaces/bench";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, otherwise: usize| {
        let given = arguments.iter().position(|it| it == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
        given.unwrap_or(otherwise).max(1)
    };
    let sizes = Sizes {
        objects: number("--objects", 10_000),
        requests: number("--requests", 2_000),
        watchers: number("--watchers", 100),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (ours, theirs) = runtime.block_on(async {
        // One after the other: two servers on two cores would measure each other.
        let ours = {
            let begun = Instant::now();
            let mut child = Command::new(env!("CARGO_BIN_EXE_barbless"))
                .args(["devcluster", "--port", "0"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut url = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
            let client = Client::try_from(kube::Config::new(url.trim().parse().unwrap())).unwrap();
            let version = axum::http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(version).await.unwrap();
            let started = begun.elapsed();
            let measured = measure(&client, &[child.id().to_string()], started, &sizes).await;
            child.kill().unwrap();
            child.wait().unwrap();
            measured
        };
        let theirs = {
            let begun = Instant::now();
            let plane = bare::start().await.unwrap_or_else(|why| panic!("no real control plane: {why}"));
            let started = begun.elapsed();
            // The controllers are no part of what serves.
            let ids = plane.serving();
            measure(&plane.client(), &ids, started, &sizes).await
        };
        (ours, theirs)
    });
    println!("| | devcluster | kube-apiserver and etcd | ratio |\n|---|---|---|---|");
    for ((name, ours, more_is_better), (_, theirs, _)) in ours.iter().zip(&theirs) {
        let ratio = if *more_is_better { ours / theirs } else { theirs / ours };
        println!(
            "| {} | {ours:.1} | {theirs:.1} | {ratio:.1} × |",
            name.replace("{objects}", &sizes.objects.to_string())
        );
    }
}

struct Sizes {
    objects: usize,
    requests: usize,
    watchers: usize,
}

/// Name, figure, and whether a larger one is the better.
type Row = (&'static str, f64, bool);

async fn measure(client: &Client, processes: &[String], started: Duration, sizes: &Sizes) -> Vec<Row> {
    let mut rows = vec![("start until ready, ms", started.as_secs_f64() * 1000.0, false)];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    ask(client, "POST", "/api/v1/namespaces", &namespace).await;
    let idle = resident_mib(processes);
    rows.push(("memory when idle, MiB", idle, false));

    let collection = format!("{NAMESPACE}/configmaps");
    let rate = |count: usize, begun: Instant| count as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    many(sizes.objects, |index| ask_owned(client, "POST", collection.clone(), config_map(index, "first"))).await;
    rows.push(("creates a second", rate(sizes.objects, begun), true));
    let grown = resident_mib(processes) - idle;
    rows.push(("memory of {objects} objects of 1 KB, MiB", grown, false));

    let applies = [
        ("applies that create, a second", json!({"a": "1", "b": "2"})),
        ("applies that change, a second", json!({"a": "2"})),
    ];
    for (what, data) in applies {
        let begun = Instant::now();
        many(sizes.requests, |index| {
            let name = format!("applied-{index:05}");
            let path = format!("{collection}/{name}?fieldManager=bench");
            let object =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data.clone()});
            ask_owned(client, "PATCH", path, object)
        })
        .await;
        rows.push((what, rate(sizes.requests, begun), true));
    }
    let begun = Instant::now();
    many(sizes.requests, |index| ask_owned(client, "GET", format!("{collection}/{}", name(index)), Value::Null)).await;
    rows.push(("gets a second", rate(sizes.requests, begun), true));

    const LISTS: usize = 5;
    let begun = Instant::now();
    for _ in 0..LISTS {
        ask(client, "GET", &collection, &Value::Null).await;
    }
    rows.push(("list of all objects, ms", begun.elapsed().as_secs_f64() * 1000.0 / LISTS as f64, false));
    let (events, took) = fan_out(client, sizes).await;
    rows.push(("events to watchers a second", events as f64 / took.as_secs_f64(), true));
    rows
}

/// Changes one object again and again until each watcher has seen all of it: events that were sent, and how long it took.
async fn fan_out(client: &Client, sizes: &Sizes) -> (usize, Duration) {
    const CHANGES: usize = 200;
    let path = format!("{NAMESPACE}/configmaps/{}", name(0));
    let object = ask(client, "GET", &path, &Value::Null).await;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{NAMESPACE}/configmaps?watch=true&resourceVersion={version}&timeoutSeconds=120");
    let begun = Instant::now();
    let watchers = (0..sizes.watchers).map(|_| {
        let (client, watch) = (client.clone(), watch.clone());
        async move {
            let request = axum::http::Request::get(watch).body(Vec::new()).unwrap();
            let mut lines = client.request_stream(request).await.unwrap().lines();
            let (mut seen, last) = (0, format!("change-{}", CHANGES - 1));
            while let Some(line) = lines.try_next().await.unwrap() {
                // What was written before the object was read last does not count.
                seen += usize::from(line.contains("\"change-"));
                if line.contains(&last) {
                    return seen;
                }
            }
            panic!("a watch has ended")
        }
    });
    let watchers = watchers.map(tokio::spawn).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let paused = Duration::from_millis(500);
    for change in 0..CHANGES {
        ask(client, "PATCH-MERGE", &path, &json!({"data": {"mark": format!("change-{change}")}})).await;
    }
    let mut events = 0;
    for watcher in watchers {
        events += watcher.await.unwrap();
    }
    (events, begun.elapsed().saturating_sub(paused))
}

fn name(index: usize) -> String {
    format!("object-{index:05}")
}

fn config_map(index: usize, mark: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)},
        "data": {"mark": mark, "text": "x".repeat(1_000)}})
}

async fn many<F: Future<Output = ()>>(count: usize, work: impl Fn(usize) -> F) {
    futures::stream::iter(0..count).for_each_concurrent(AT_ONCE, work).await;
}

async fn ask_owned(client: &Client, method: &'static str, path: String, body: Value) {
    ask(client, method, &path, &body).await;
}

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let (method, kind) = match method {
        "PATCH" => ("PATCH", "application/apply-patch+yaml"),
        "PATCH-MERGE" => ("PATCH", "application/merge-patch+json"),
        other => (other, "application/json"),
    };
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = axum::http::Request::builder().method(method).uri(path).header("content-type", kind);
    let text = client.request_text(request.body(bytes).unwrap()).await.unwrap();
    // Large answers are not read: that would measure this program.
    if text.len() > 64 * 1024 { Value::Null } else { serde_json::from_str(&text).unwrap() }
}

/// Memory that processes have of their own.
fn resident_mib(processes: &[String]) -> f64 {
    let kib = processes.iter().map(|id| {
        let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap()
    });
    kib.sum::<f64>() / 1024.0
}
