//! Asks the development cluster and a real API server the same random questions, and compares every answer.
//!
//! `tests/api-differential/run [--requests N] [--seed N] [--episode N] [--trace]`. An episode is a namespace of its own in which some
//! sixty requests follow each other: what they do is drawn from the seed; then watches from before the first of them tell
//! what happened, and are compared, too. It ends at the first difference that leaves the two
//! servers with different objects, since what comes after one says nothing. What a server draws by itself (uids, versions, times, addresses) is replaced by what it
//! is the first, second, … of, so that two answers are equal if they mean the same.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a check that meets something unexpected ends")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a check talks to people")]
#![allow(dead_code, reason = "the control plane is that of the tests, and not all of it is needed here")]

#[path = "../it/envtest/bare.rs"]
mod bare;
#[path = "../it/envtest.rs"]
mod envtest;
mod generate;
mod objects;
mod side;

use std::process::ExitCode;

use barbless_devcluster::{Config, DevCluster};
use generate::Episode;
use serde_json::Value;
use side::{Answer, Side};

/// Requests of one episode.
const LENGTH: usize = 60;
/// Every so many-th episode ends with what watches tell of it.
const WATCHED: u64 = 3;
/// After so many differences the rest would say little.
const DIFFERENCES: u64 = 150;

/// Bytes of a text that are shown before and after what differs.
const AROUND: usize = 40;

/// Whether a difference is one that is meant.
type Meant = fn(&side::Request, &Answer, &Answer) -> bool;

/// Differences that are meant, and why.
const EXPLAINED: &[(&str, Meant)] = &[
    (
        "the real server stops at the first undeclared field that it meets, and meets fields in no order",
        |_, ours, theirs| {
            [ours, theirs].iter().all(|it| message(it).starts_with("failed to create typed patch object"))
        },
    ),
    ("what Go's decoder says of a value of the wrong type names types of Go", |_, ours, theirs| {
        ours.code == theirs.code
            && [ours, theirs].iter().all(|it| {
                let text = it.body.to_string();
                ["cannot unmarshal", "unable to decode", "cannot convert", "illegal base64"]
                    .iter()
                    .any(|word| text.contains(word))
            })
    }),
    ("a Service is made through its status, and so never gets what a Service gets", |request, ours, theirs| {
        request.path.contains("/services/")
            && request.path.contains("/status")
            && (ours.code == 201 || theirs.code == 201)
    }),
    ("the real server looks for an address before it misses the name", |_, _, theirs| {
        message(theirs).contains("failed to allocate IP")
    }),
    ("the real server now and then writes a scale that changes nothing; when is not known", |request, ours, theirs| {
        let version = |it: &Answer| {
            let mut body = it.body.clone();
            body["metadata"]["resourceVersion"].take();
            body
        };
        request.path.contains("/scale") && ours.code == theirs.code && version(ours) == version(theirs)
    }),
    (
        "a Service without addresses is given a traffic policy that it never shows, whose owner depends on what was read",
        |request, ours, theirs| {
            let without = |it: &Answer| {
                let mut body = it.body.clone();
                body["metadata"]["resourceVersion"].take();
                for entry in body["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
                    if let Some(spec) = entry["fieldsV1"]["f:spec"].as_object_mut() {
                        spec.remove("f:internalTrafficPolicy");
                    }
                }
                body
            };
            request.path.contains("/services/") && ours.code == theirs.code && without(ours) == without(theirs)
        },
    ),
    ("an empty map and none are one", |_, ours, theirs| {
        let without = |it: &Answer| it.body.to_string().replace("Invalid value: {}", "Invalid value: null");
        ours.code == theirs.code && without(ours) == without(theirs)
    }),
];

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|it| it == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let (requests, seed) = (number("--requests").unwrap_or(5_000), number("--seed").unwrap_or(1));
    let trace = arguments.iter().any(|it| it == "--trace");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(compare(requests, seed, number("--episode"), trace))
}

async fn compare(requests: u64, seed: u64, only: Option<u64>, trace: bool) -> ExitCode {
    let devcluster = DevCluster::start(Config { controllers: false, ..Config::default() }).await.unwrap();
    let plane = match bare::start().await {
        Ok(plane) => plane,
        Err(why) => {
            eprintln!("no real control plane: {why}");
            return ExitCode::FAILURE;
        }
    };
    let clients = (barbless::app::client_of(&devcluster), plane.client());
    for (name, client) in [("the development cluster", &clients.0), ("the real server", &clients.1)] {
        if let Err(why) = objects::define(client).await {
            eprintln!("{name} does not take the definition of the test: {why}");
            return ExitCode::FAILURE;
        }
    }
    let (mut asked, mut explained, mut unexplained, mut episode) = (0, 0, 0, only.unwrap_or(0));
    while asked < requests && unexplained < DIFFERENCES {
        let mut scene = Episode::new(seed, episode);
        let mut sides = (Side::new(clients.0.clone()), Side::new(clients.1.clone()));
        let collections = scene.collections();
        let from = (sides.0.versions(&collections).await, sides.1.versions(&collections).await);
        let mut agreed = true;
        for _ in 0..LENGTH {
            let request = scene.next(&sides.1);
            let (ours, theirs) = futures::join!(sides.0.ask(&request), sides.1.ask(&request));
            asked += 1;
            if trace {
                println!("{} {} {}\n  ours {} {}", request.method, request.path, request.body, ours.code, ours.body);
                println!("  theirs {} {}", theirs.code, theirs.body);
            }
            if ours == theirs {
                continue;
            }
            if let Some((why, _)) = EXPLAINED.iter().find(|(_, is)| is(&request, &ours, &theirs)) {
                explained += 1;
                println!("episode {episode}: explained: {why}");
            } else {
                unexplained += 1;
                report(episode, &request, &ours, &theirs);
            }
            // Reads and refusals change nothing.
            if request.method != "GET" && (ours.code < 400 || theirs.code < 400) {
                agreed = false;
                if !trace {
                    break;
                }
            }
        }
        // A watch lasts a second, so that not every episode has one.
        if agreed && (only.is_some() || episode.is_multiple_of(WATCHED)) {
            let (ours, theirs) =
                futures::join!(sides.0.watch(&collections, &from.0), sides.1.watch(&collections, &from.1));
            for ((collection, ours), theirs) in collections.iter().zip(&ours).zip(&theirs) {
                asked += 1;
                if ours != theirs {
                    unexplained += 1;
                    report(episode, &side::Request::get(format!("{collection}?watch=true")), ours, theirs);
                }
            }
        }
        futures::join!(sides.0.leave(&scene.namespace), sides.1.leave(&scene.namespace));
        episode += 1;
        if only.is_some() {
            break;
        }
    }
    let same = asked - explained - unexplained;
    println!("seed {seed}: {episode} episodes");
    println!("compared {asked} requests, {same} identical, {explained} explained, {unexplained} unexplained");
    if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(episode: u64, request: &side::Request, ours: &Answer, theirs: &Answer) {
    println!("episode {episode}: {} {}\n  {} {}", request.method, request.path, request.kind, request.body);
    if ours.code != theirs.code {
        println!("  code: ours {}, theirs {}", ours.code, theirs.code);
    }
    for (text, ours, theirs) in [("warnings", &ours.warnings, &theirs.warnings), ("body", &ours.body, &theirs.body)] {
        let mut lines = Vec::new();
        differences(text, ours, theirs, &mut lines);
        lines.truncate(12);
        lines.iter().for_each(|line| println!("  {line}"));
    }
}

/// Where two texts part, with a little of what is before and after.
fn apart<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a.as_bytes()[same..], &b.as_bytes()[same..]);
    let after = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(a, b)| a == b).count();
    let from = a.floor_char_boundary(same.saturating_sub(AROUND));
    let to = |text: &str| text.floor_char_boundary((text.len() - after + AROUND).min(text.len()));
    (&a[from..to(a)], &b[from..to(b)])
}

/// A line for each place at which two values differ.
fn differences(place: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let get = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                differences(&format!("{place}.{key}"), &get(a), &get(b), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{place}[{index}]"), a, b, lines);
            }
        }
        _ if ours == theirs => {}
        (Value::String(a), Value::String(b)) if a.len().min(b.len()) > 3 * AROUND => {
            let (a, b) = apart(a, b);
            lines.push(format!("{place}: ours …{a}…, theirs …{b}…"));
        }
        _ => lines.push(format!("{place}: ours {ours}, theirs {theirs}")),
    }
}
