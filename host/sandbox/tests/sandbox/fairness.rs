//! One application cannot take the permits of another, however many calls it makes at once. Counted in calls, not in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use barbless_domain::grant::Grant;
use barbless_domain::identity::ApplicationId;
use barbless_domain::limits::GuestLimits;
use barbless_sandbox::{Compiler, Component, Config, Prepared, Sandbox};
use serde_json::json;

use crate::guest::Guest;
use crate::host::{config, input, instance, limits, wait};
use crate::worlds::{checker, filter};

/// Calls that the hog makes at once.
const CALLS: usize = 40;

fn small(in_flight: usize) -> Sandbox {
    Sandbox::new(Config { in_flight, pooling: false, ..config(Compiler::InProcess) }).expect("the sandbox can be made")
}

fn prepared(sandbox: &Sandbox, component: &Component, application: &str) -> Prepared {
    let application = ApplicationId::new("demo", application).expect("a valid name");
    let prepared = sandbox.prepare(component, &application, &Grant::with(Vec::new())).expect("it can be linked");
    prepared.with_limits(&GuestLimits { cpu_ms: 20, ..limits() })
}

/// How many calls of the hogs end while `call` waits and runs, which is made after all of them were.
async fn over_before(hogs: &[Prepared], call: impl Future<Output = ()>) -> usize {
    let over = Arc::new(AtomicUsize::new(0));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        for hog in hogs {
            let (hog, over) = (hog.clone(), Arc::clone(&over));
            calls.spawn(async move {
                assert!(!hog.run(&Arc::new(input())).await.end.is_ok());
                over.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    // One thread: each of them runs until it waits for something, most of them for a permit.
    tokio::task::yield_now().await;
    // On a busy machine some are over by now.
    let before = over.load(Ordering::Relaxed);
    call.await;
    over.load(Ordering::Relaxed) - before
}

#[test]
fn a_run_waits_for_few_runs_of_another_application() {
    // Permits, applications that are never content, and runs of theirs that the run of another may wait for: those that
    // are under way, one round of all lanes, and what ends while its answer is on the way: as many as there are permits.
    // A lane that is not fair has all of them before it.
    for (permits, hogs, bound) in [(1, 1, 3), (2, 1, 3), (1, 3, 6), (3, 2, 10)] {
        wait(async {
            let sandbox = small(permits);
            let endless = sandbox.load(Guest::run("(loop $l br $l)").component()).await.unwrap();
            let quick = sandbox.load(Guest::run("").component()).await.unwrap();
            let hogs: Vec<_> = (0..hogs).map(|hog| prepared(&sandbox, &endless, &format!("hog-{hog}"))).collect();
            let other = prepared(&sandbox, &quick, "other");
            let over = over_before(&hogs, async {
                let outcome = other.run(&Arc::new(input())).await;
                assert!(outcome.end.is_ok(), "{:?}", outcome.end);
            })
            .await;
            assert!(over <= bound, "{over} runs of {} with {permits} permits", hogs.len() * CALLS);
        });
    }
}

#[test]
fn one_application_alone_never_has_all_permits() {
    wait(async {
        let sandbox = small(4);
        let endless = sandbox.load(Guest::run("(loop $l br $l)").component()).await.unwrap();
        let quick = sandbox.load(Guest::run("").component()).await.unwrap();
        // Long runs: were there no permit left, at least one of them would be over.
        let hog = prepared(&sandbox, &endless, "hog").with_limits(&limits());
        let other = prepared(&sandbox, &quick, "other");
        let over = over_before(&[hog], async { assert!(other.run(&Arc::new(input())).await.end.is_ok()) }).await;
        assert_eq!(over, 0);
    });
}

#[test]
fn checks_of_settings_and_filters_pass_the_same_lane() {
    wait(async {
        let sandbox = small(1);
        let filter = sandbox.load(filter("(loop $l br $l)").component()).await.unwrap();
        let check = sandbox.load(checker("").component()).await.unwrap();
        let (hog, other) = (prepared(&sandbox, &filter, "hog"), prepared(&sandbox, &check, "other"));
        let over = Arc::new(AtomicUsize::new(0));
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..CALLS {
            let (hog, over) = (hog.clone(), Arc::clone(&over));
            calls.spawn(async move {
                assert!(hog.project("hook", "pods", &json!({})).await.answer.is_err());
                over.fetch_add(1, Ordering::Relaxed);
            });
        }
        tokio::task::yield_now().await;
        let before = over.load(Ordering::Relaxed);
        let outcome = other.check_settings(&Arc::new(instance()), &json!({})).await;
        assert!(outcome.answer.is_ok(), "{:?}", outcome.answer);
        let over = over.load(Ordering::Relaxed) - before;
        assert!(over <= 2, "{over} calls");
    });
}
