//! Measures jq filters beside the jq program, which does the same to the same objects.
//!
//! `cargo bench -p barbless-sandbox --bench jq [-- --objects N]`. For each filter: time for one object with a warm
//! instance, and without its plain form where it has one; and of the program, the time for one object when it is given
//! many at once, and when it is started for each, as a shell hook does.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to people")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use barbless_sandbox::{Compiler, Config, JqFilter, Sandbox};
use serde_json::json;

const FILTERS: [&str; 4] = [
    ".metadata.labels",
    "{name: .metadata.name, phase: .status.phase}",
    ".spec.containers | map({name, image, limits: .resources.limits})",
    "del(.metadata.managedFields, .metadata.resourceVersion, .status)",
];

/// Objects for the program when it is started for each.
const STARTED: usize = 20;

fn main() -> Result<()> {
    let mut objects = 20_000;
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--objects" => objects = args.next().context("--objects needs a number")?.parse()?,
            other => bail!("unknown argument '{other}'"),
        }
    }
    ensure!(objects > 0, "there must be an object");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sandbox = Sandbox::new(Config::new(Compiler::InProcess))?;
    let begun = Instant::now();
    runtime.block_on(sandbox.jq("."))?;
    println!("evaluator compiled in {} ms; {objects} Pods of {} bytes", begun.elapsed().as_millis(), pod(0).len());

    println!("{:<66} {:>9} {:>9} {:>9} {:>9}", "us for one object", "here", "in wasm", "jq", "jq alone");
    for program in FILTERS {
        let begun = Instant::now();
        let filter = runtime.block_on(sandbox.jq(program))?;
        let prepared = begun.elapsed();
        let here = each(objects, |text| filter.apply(text.as_bytes()))?;
        let wasm = each(objects, |text| filter.apply_in_evaluator(text))?;
        let (many, alone) = match (of_program(program, objects), of_program(program, 1)) {
            (Ok(many), Ok(_)) => (micros(many / u32::try_from(objects)?), micros(started(program)?)),
            (Err(error), _) | (_, Err(error)) => {
                eprintln!("no jq to compare with: {error:#}");
                ("-".to_owned(), "-".to_owned())
            }
        };
        same(&filter, program)?;
        println!("{program:<66} {:>9} {:>9} {many:>9} {alone:>9}", micros(here), micros(wasm));
        println!("  prepared in {} us", micros(prepared));
    }
    Ok(())
}

fn micros(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e6)
}

/// The median of the time for one object.
fn each<T, E: std::error::Error + Send + Sync + 'static>(
    objects: usize,
    mut apply: impl FnMut(&str) -> Result<T, E>,
) -> Result<Duration> {
    let texts: Vec<String> = (0..objects.min(100)).map(pod).collect();
    let mut times = Vec::with_capacity(objects);
    for text in texts.iter().cycle().take(objects) {
        let begun = Instant::now();
        apply(text)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("nothing was measured")
}

fn started(program: &str) -> Result<Duration> {
    let mut times = (0..STARTED).map(|_| of_program(program, 1)).collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    times.get(STARTED / 2).copied().context("nothing was measured")
}

fn of_program(program: &str, objects: usize) -> Result<Duration> {
    let mut file = tempfile::tempfile()?;
    for number in 0..objects {
        writeln!(file, "{}", pod(number))?;
    }
    std::io::Seek::rewind(&mut file)?;
    let begun = Instant::now();
    let status = Command::new("jq").args(["-c", program]).stdin(file).stdout(Stdio::null()).status().context("jq")?;
    ensure!(status.success(), "jq: {status}");
    Ok(begun.elapsed())
}

/// Both give the same, but for the order of fields.
fn same(filter: &JqFilter, program: &str) -> Result<()> {
    let mut child = match Command::new("jq").args(["-cS", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    {
        Ok(child) => child,
        Err(_) => return Ok(()),
    };
    child.stdin.take().context("no pipe")?.write_all(pod(7).as_bytes())?;
    let theirs = child.wait_with_output()?.stdout;
    let ours = filter.apply(pod(7).as_bytes())?.join(&b'\n');
    ensure!(ours == theirs.trim_ascii_end(), "{program} gives something else than jq");
    Ok(())
}

/// A Pod as a cluster has it.
fn pod(number: usize) -> String {
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
            "conditions": ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition),
            "containerStatuses": ["web", "proxy"].map(|name| json!({"name": name, "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2025-01-02T03:04:05Z"}}})),
        },
    })
    .to_string()
}
