//! What it costs to project an object: jq programs and the projection `fields` here, beside the jq program.
//!
//! `cargo bench -p barbless --bench filters [-- --objects N] [-- --rounds N]`; `docs/benchmarks.md` says what each column
//! means. Everything is measured in turns, round after round, so that ratios are of one time and one machine; the median of
//! the rounds is shown. Without a jq on this machine its columns are empty.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that meets something unexpected ends")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to people")]

use std::fs::File;
use std::hint::black_box;
use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use barbless_domain::hook::Projection;
use barbless_domain::snapshot;
use barbless_sandbox::{Compiler, Config, JqFilter, Sandbox};
use serde_json::{Value, json};

/// Programs, and the fields that say the same where there are such.
const FILTERS: [(&str, &[&str]); 4] = [
    (".metadata.labels", &["/metadata/labels"]),
    ("{name: .metadata.name, phase: .status.phase}", &["/metadata/name", "/status/phase"]),
    (".spec.containers | map({name, image, limits: .resources.limits})", &[]),
    ("del(.metadata.managedFields, .metadata.resourceVersion, .status)", &[]),
];
/// How often the program is started in one round.
const STARTED: usize = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, otherwise: usize| {
        let given = arguments.iter().position(|it| it == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
        given.unwrap_or(otherwise).max(1)
    };
    let (objects, rounds) = (number("--objects", 5_000), number("--rounds", 5));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox = Sandbox::new(Config::new(Compiler::InProcess)).unwrap();
    let begun = Instant::now();
    runtime.block_on(sandbox.jq(".")).unwrap();
    let compiled = begun.elapsed();
    let pods: Vec<Value> = (0..objects).map(pod).collect();
    let stream = file(&pods);
    let alone = file(&pods[..1]);
    let jq = version();
    let bytes = pods[0].to_string().len();
    println!("{objects} Pods of {bytes} bytes, {rounds} rounds, beside {}", jq.as_deref().unwrap_or("no jq"));
    println!("the evaluator was compiled in {} ms\n", compiled.as_millis());
    println!(
        "| microseconds for one object | filter | in the evaluator | `fields` | jq, one stream | jq, one process each | ratios |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (program, pointers) in FILTERS {
        let begun = Instant::now();
        let filter = runtime.block_on(sandbox.jq(program)).unwrap();
        let prepared = begun.elapsed();
        let fields = Projection::Fields(pointers.iter().map(|&pointer| pointer.to_owned()).collect());
        let mut times: [Vec<Duration>; 5] = Default::default();
        for _ in 0..rounds {
            times[0].push(each(&pods, |pod| outputs(&filter.apply(&serde_json::to_vec(pod).unwrap()).unwrap())));
            times[1].push(each(&pods, |pod| outputs(&filter.apply_in_evaluator(&pod.to_string()).unwrap())));
            if !pointers.is_empty() {
                times[2].push(each(&pods, |pod| snapshot::project(&fields, pod).unwrap()));
            }
            if jq.is_some() {
                times[3].push(run(program, &stream) / u32::try_from(objects).unwrap());
                let started: Duration = (0..STARTED).map(|_| run(program, &alone)).sum();
                times[4].push(started / u32::try_from(STARTED).unwrap());
            }
        }
        let [here, evaluator, fields, many, one] = times.map(median);
        if jq.is_some() {
            same(&filter, program, &pods[0]);
        }
        let ratio = |what: &str, other: Option<Duration>| {
            let (here, other) = (here?.as_secs_f64(), other?.as_secs_f64());
            Some(if other < here {
                format!("{what} {:.1} times faster", here / other)
            } else {
                format!("{what} {:.1} times slower", other / here)
            })
        };
        let ratios = [ratio("`fields`", fields), ratio("stream", many), ratio("process", one)];
        let cells = [here, evaluator, fields, many, one].map(micros).join(" | ");
        println!(
            "| `{}` | {cells} | {} |",
            program.replace('|', "\\|"),
            ratios.into_iter().flatten().collect::<Vec<_>>().join(", ")
        );
        eprintln!(
            "  {program}: prepared in {} us, {}",
            prepared.as_micros(),
            if filter.is_plain() { "plain" } else { "not plain" }
        );
    }
}

fn micros(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |duration| format!("{:.1}", duration.as_secs_f64() * 1e6))
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// What the host makes of the outputs.
fn outputs(texts: &[Vec<u8>]) -> Vec<Value> {
    texts.iter().map(|text| serde_json::from_slice(text).unwrap()).collect()
}

/// The mean time for one object, from the object as the host has it to the projection as the host keeps it.
fn each<T>(pods: &[Value], mut project: impl FnMut(&Value) -> T) -> Duration {
    let begun = Instant::now();
    for pod in pods {
        black_box(project(black_box(pod)));
    }
    begun.elapsed() / u32::try_from(pods.len()).unwrap()
}

fn version() -> Option<String> {
    let output = Command::new("jq").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn file(pods: &[Value]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    for pod in pods {
        writeln!(file, "{pod}").unwrap();
    }
    file
}

/// Runs the jq program on a file of objects.
fn run(program: &str, mut objects: &File) -> Duration {
    objects.rewind().unwrap();
    let input = objects.try_clone().unwrap();
    let begun = Instant::now();
    let status = Command::new("jq").args(["-c", program]).stdin(input).stdout(Stdio::null()).status().unwrap();
    let took = begun.elapsed();
    assert!(status.success(), "jq: {status}");
    took
}

/// Both give the same, but for the order of fields.
fn same(filter: &JqFilter, program: &str, pod: &Value) {
    let mut child =
        Command::new("jq").args(["-cS", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(pod.to_string().as_bytes()).unwrap();
    let theirs = child.wait_with_output().unwrap().stdout;
    let ours = filter.apply(pod.to_string().as_bytes()).unwrap().join(&b'\n');
    if ours != theirs.trim_ascii_end() {
        panic!("{program} gives something else than jq");
    }
}

/// A Pod as a cluster has it.
fn pod(number: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/{name}:1.{number}"),
            "args": ["--listen=:8080", "--metrics=:9090", "--verbose"],
            "env": (0..6).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value-{n}")})).collect::<Vec<_>>(),
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "token", "mountPath": "/var/run/token", "readOnly": true}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2025-01-02T03:04:05Z"});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let statuses = ["web", "proxy"].map(|name| {
        json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2025-01-02T03:04:05Z"}}})
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("shop-{number}"), "namespace": "demo", "uid": format!("2f1d2c4e-0000-0000-0000-{number:012}"),
            "resourceVersion": number.to_string(), "labels": {"app": "shop", "tier": "web", "release": "stable"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:phase": {}, "f:podIP": {}}}}],
        },
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "shop", "containers": [container("web"), container("proxy")],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "token", "secret": {"secretName": "token", "defaultMode": 420}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.168.0.1",
            "conditions": conditions,
            "containerStatuses": statuses,
        },
    })
}
