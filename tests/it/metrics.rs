//! Measurements of a package that lives its life: what is exported, and how long.

use std::time::Duration;

use barbless::bundle;
use serde_json::json;

use crate::world::{World, root};

#[tokio::test(flavor = "multi_thread")]
async fn what_hooks_measure_is_exported_as_long_as_the_application_is_there() {
    let world = World::new().await;
    world.kubernetes("1.37.0");
    let app = world.install("miniflux", bundle::read(&root().join("examples/miniflux")).unwrap(), json!({})).await;
    world.cluster.patch_application(&app.id, &json!({"packageVersion": "0.1.0"})).await.unwrap();
    app.ready().await;
    let name = app.id.to_string();
    let metrics = &world.services.metrics;
    let hooks = metrics.hooks_text().unwrap();
    let feeds =
        hooks.lines().find(|line| line.starts_with("hook_miniflux_feeds{")).unwrap_or_else(|| panic!("{hooks}"));
    assert!(feeds.contains(&format!("application=\"{name}\"")) && feeds.contains("hook=\""), "{feeds}");
    // A schedule may add one between the two.
    let kinds = runs_of(&app.records());
    let host = metrics.host_text().unwrap();
    let runs = host.lines().filter(|line| line.starts_with("barbless_hook_runs_total{"));
    assert!(runs.filter(|line| line.contains("result=\"success\"")).count() >= kinds, "{kinds} kinds\n{host}");
    let queue = format!("barbless_queue_length{{application=\"{name}\",queue=\"{name}\"}} 0");
    assert!(host.contains(&queue), "{host}");
    assert!(host.contains("state=\"Ready\"} 1"), "{host}");

    app.delete().await;
    for _ in 0..500 {
        if !metrics.host_text().unwrap().contains(&name) {
            assert_eq!(metrics.hooks_text().unwrap().trim(), "");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("series are left: {}", metrics.host_text().unwrap());
}

/// How many kinds of runs there were: a hook, and why it ran.
fn runs_of(records: &[std::sync::Arc<barbless_domain::run::RunRecord>]) -> usize {
    let kinds: std::collections::BTreeSet<_> =
        records.iter().map(|record| (record.hook.clone(), record.trigger.as_str())).collect();
    kinds.len()
}
