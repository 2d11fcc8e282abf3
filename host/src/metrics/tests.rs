use std::collections::BTreeMap;

use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::operation::{Action, Operation, OperationResult, Propagation};
use barbless_domain::pipeline::App;
use barbless_domain::run::{Clock, InputOutline, Instance, Measurement, RunEnd, Usage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A process in which the application is registered.
fn registered() -> (Metrics, Registration) {
    let metrics = Metrics::default();
    let (state, _changes) = State::new(App::new(ApplicationId::new("demo", "shop").unwrap()));
    let registration = metrics.begin("demo.shop", state);
    (metrics, registration)
}

fn record(hook: &str, end: RunEnd, metrics: Vec<Measurement>) -> RunRecord {
    let instance = Instance {
        name: "shop".into(),
        namespace: "demo".into(),
        package_name: "web-shop".into(),
        package_version: "1.0.0".into(),
    };
    RunRecord {
        id: 1,
        application: "demo.shop".into(),
        hook: hook.into(),
        trigger: Trigger::Lifecycle(Stage::BeforeHelm),
        attempt: 1,
        component: String::new(),
        input_digest: String::new(),
        input: InputOutline {
            dry_run: false,
            instance,
            values: String::new(),
            settings: String::new(),
            snapshots: BTreeMap::new(),
            seed: String::new(),
        },
        started_unix_ms: 0,
        end,
        returned: None,
        log: Vec::new(),
        operations: Vec::new(),
        values: Vec::new(),
        metrics,
        told: Vec::new(),
        usage: Usage { wall_us: 20_000, cpu_us: 1_500, memory_bytes: 65_536, ..Usage::default() },
    }
}

fn measured(name: &str, kind: MetricKind, value: f64, labels: &[(&str, &str)]) -> Measurement {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Measurement { name: name.to_owned(), kind, value, labels }
}

#[test]
fn what_hooks_measure_is_in_the_format_of_prometheus() {
    let (metrics, registration) = registered();
    metrics.ran(&record(
        "sync",
        RunEnd::Ok,
        vec![
            measured("seen_total", MetricKind::Counter, 3.0, &[("node", "a\"b\n")]),
            measured("pods", MetricKind::Gauge, 2.5, &[]),
            measured("wait_seconds", MetricKind::Histogram, 0.3, &[]),
        ],
    ));
    // A run that failed measured nothing.
    let failed = RunEnd::TimedOut { clock: Clock::Cpu, limit_ms: 10 };
    metrics.ran(&record("sync", failed, vec![measured("seen_total", MetricKind::Counter, 9.0, &[])]));
    let text = metrics.hooks_text().unwrap();
    for line in [
        "# TYPE hook_web_shop_pods gauge",
        "hook_web_shop_pods{application=\"demo.shop\",hook=\"sync\"} 2.5",
        "# TYPE hook_web_shop_seen_total counter",
        "hook_web_shop_seen_total{application=\"demo.shop\",hook=\"sync\",node=\"a\\\"b\\n\"} 3.0",
        "# TYPE hook_web_shop_wait_seconds histogram",
        "hook_web_shop_wait_seconds_bucket{application=\"demo.shop\",hook=\"sync\",le=\"0.25\"} 0",
        "hook_web_shop_wait_seconds_bucket{application=\"demo.shop\",hook=\"sync\",le=\"0.5\"} 1",
        "hook_web_shop_wait_seconds_bucket{application=\"demo.shop\",hook=\"sync\",le=\"+Inf\"} 1",
        "hook_web_shop_wait_seconds_sum{application=\"demo.shop\",hook=\"sync\"} 0.3",
        "hook_web_shop_wait_seconds_count{application=\"demo.shop\",hook=\"sync\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    drop(registration);
    assert_eq!(metrics.hooks_text().unwrap().trim(), "");
}

#[test]
fn the_host_tells_of_runs_and_of_queues() {
    let (metrics, registration) = registered();
    metrics.ran(&record("sync", RunEnd::Ok, Vec::new()));
    metrics.ran(&record("sync", RunEnd::Ok, Vec::new()));
    metrics.ran(&record(
        "old",
        RunEnd::Trap { message: String::new(), panic: None, backtrace: Vec::new() },
        Vec::new(),
    ));
    let text = metrics.host_text().unwrap();
    let sync = "application=\"demo.shop\",hook=\"sync\"";
    for line in [
        format!("barbless_hook_runs_total{{{sync},trigger=\"beforeHelm\",result=\"success\"}} 2.0"),
        "barbless_hook_runs_total{application=\"demo.shop\",hook=\"old\",trigger=\"beforeHelm\",result=\"trap\"} 1.0"
            .into(),
        format!("barbless_hook_run_seconds_bucket{{{sync},le=\"0.01\"}} 0"),
        format!("barbless_hook_run_seconds_bucket{{{sync},le=\"0.05\"}} 2"),
        format!("barbless_hook_cpu_seconds_total{{{sync}}} 0.003"),
        format!("barbless_hook_memory_peak_bytes{{{sync}}} 65536.0"),
        "barbless_queue_length{application=\"demo.shop\",queue=\"demo.shop\"} 0.0".into(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains("barbless_application_info{application=\"demo.shop\""), "{text}");
    // A package without that hook came into force.
    metrics.keep_hooks("demo.shop", &BTreeSet::from(["sync".to_owned()]));
    let text = metrics.host_text().unwrap();
    assert!(!text.contains("hook=\"old\"") && text.contains(sync), "{text}");
    // Another loop of the same application took its place: its end is the end of nothing.
    let (state, _changes) = State::new(App::new(ApplicationId::new("demo", "shop").unwrap()));
    let successor = metrics.begin("demo.shop", state);
    drop(registration);
    assert!(metrics.host_text().unwrap().contains(sync));
    drop(successor);
    assert!(!metrics.host_text().unwrap().contains("demo.shop"));
}

#[test]
fn operations_are_counted_by_what_became_of_them() {
    let (metrics, _registration) = registered();
    let mut record = record("sync", RunEnd::Ok, Vec::new());
    let operation = Operation {
        target: ObjectRef {
            gvk: Gvk::parse("v1", "ConfigMap").unwrap(),
            namespace: "demo".to_owned(),
            name: "a".to_owned(),
        },
        action: Action::Delete { propagation: Propagation::Background },
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    record.operations = vec![(operation.clone(), OperationResult::Done), (operation, OperationResult::Skipped)];
    metrics.ran(&record);
    let text = metrics.host_text().unwrap();
    for result in ["done", "skipped"] {
        let line = format!(
            "barbless_hook_operations_total{{application=\"demo.shop\",operation=\"delete\",result=\"{result}\"}} 1"
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn both_pages_are_served() {
    let (metrics, _registration) = registered();
    metrics.ran(&record("sync", RunEnd::Ok, vec![measured("pods", MetricKind::Gauge, 1.0, &[])]));
    let (address, _serving) = metrics.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    for (path, expected) in
        [("/metrics", "barbless_hook_runs_total"), ("/metrics/hooks", "hook_web_shop_pods"), ("/", "404 Not Found")]
    {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(expected), "{path}: {answer}");
        assert!(path == "/" || answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    }
}

#[test]
fn a_run_that_ends_after_its_application_leaves_nothing() {
    let (metrics, registration) = registered();
    drop(registration);
    metrics.ran(&record("sync", RunEnd::Ok, vec![measured("pods", MetricKind::Gauge, 1.0, &[])]));
    assert_eq!((metrics.host_text().unwrap().trim(), metrics.hooks_text().unwrap().trim()), ("", ""));
}
