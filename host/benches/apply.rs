//! What a release of 200 objects costs on the development cluster: requests by verb, and wall time.
//!
//! `cargo bench -p barbless --bench apply`; `docs/benchmarks.md` says what each row means. `-- --rounds N` sets how often
//! everything is repeated; the fastest round is shown. `-- --rows` prints rows of a Markdown table.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that meets something unexpected ends")]
#![allow(clippy::print_stdout, reason = "a benchmark talks to people")]
#![allow(dead_code, reason = "the modules are those of the tests, and not all of them is needed here")]

#[path = "../../tests/it/release/chart.rs"]
mod chart;
#[path = "../../tests/it/release/helm.rs"]
mod helm;
#[path = "../../tests/it/release/load.rs"]
mod load;
#[path = "../../tests/it/release/site.rs"]
mod site;
#[path = "../../tests/it/release/tap.rs"]
mod tap;
#[path = "../../tests/it/target.rs"]
mod target;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use site::Site;

const VERBS: [&str; 8] = ["discovery", "get", "list", "watch", "create", "apply", "patch", "delete"];

/// One operation: how long it took, and what it asked.
struct Row {
    name: &'static str,
    took: Duration,
    requests: BTreeMap<String, usize>,
}

async fn measure(site: &Site, name: &'static str, work: impl Future<Output = ()>) -> Row {
    site.tap.clear();
    let begun = Instant::now();
    work.await;
    let took = begun.elapsed();
    Row { name, took, requests: load::by_verb(&site.tap.requests()) }
}

/// Everything once, on a cluster of its own.
async fn round() -> Vec<Row> {
    let site = Site::new().await;
    let package = load::package();
    let install = measure(&site, "install", async { Box::pin(site.install(&package)).await.unwrap() }).await;
    let look = measure(&site, "reconcile, nothing changed", async {
        assert!(!site.needs_upgrade(&package).await, "nothing changed");
    })
    .await;
    let again = measure(&site, "upgrade all the same", async { Box::pin(site.upgrade(&package)).await.unwrap() }).await;
    let remove = measure(&site, "uninstall", async { drop(Box::pin(site.uninstall()).await.unwrap()) }).await;
    vec![install, look, again, remove]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds = arguments.iter().position(|it| it == "--rounds").and_then(|at| arguments.get(at + 1)?.parse().ok());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut best: Vec<Row> = Vec::new();
    for _ in 0..rounds.unwrap_or(5_usize).max(1) {
        for (at, row) in runtime.block_on(round()).into_iter().enumerate() {
            match best.get_mut(at) {
                Some(known) if known.took <= row.took => {}
                Some(known) => *known = row,
                None => best.push(row),
            }
        }
    }
    println!("| {} objects of {} kinds | wall time | {} |", load::OBJECTS, load::KINDS, VERBS.join(" | "));
    println!("|---|{}", "---|".repeat(VERBS.len() + 1));
    for Row { name, took, requests } in best {
        let counts: Vec<String> =
            VERBS.iter().map(|verb| requests.get(*verb).copied().unwrap_or_default().to_string()).collect();
        println!("| {name} | {:.0} ms | {} |", took.as_secs_f64() * 1000.0, counts.join(" | "));
    }
}
