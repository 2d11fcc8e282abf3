//! From a change in the cluster to the start of a hook: 10,000 objects under one filtered binding, 1,000 changes a second,
//! beside the same work done by processes that are started for it.
//!
//! `cargo bench -p barbless --bench events [-- --objects N] [-- --rate N] [-- --seconds N]`; `docs/benchmarks.md` says what
//! each column means. The cluster is the development cluster in this process, so the CPU time of the whole is mostly its
//! own; what the hooks took is shown apart. Without jq or python3 on this machine their rows are missing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that meets something unexpected ends")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to people")]
#![allow(dead_code, reason = "the module is that of the tests, and not all of it is needed here")]

#[path = "../../tests/it/target.rs"]
mod target;
#[path = "../../tests/it/world.rs"]
mod world;

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barbless::notice::Notice;
use barbless_cluster::{Observation, WatchSpec};
use barbless_domain::event::Event;
use barbless_domain::hook::{Change, HookDeclaration, KubernetesBinding, Projection, Trigger, WatchEventType};
use barbless_domain::identity::Gvk;
use barbless_domain::run::SnapshotState;
use barbless_domain::snapshot::{self, Projected, SnapshotStore};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use world::{World, component, nothing, package};

const BINDING: &str = "configVersion: v1\nkubernetes:\n- name: numbers\n  apiVersion: v1\n  kind: ConfigMap\n  \
                       labelSelector: {matchLabels: {bench: events}}\n  keepFullObjectsInMemory: false\n  \
                       jqFilter: '{n: .data.n}'\nschedule:\n- {name: schedule, crontab: '0 0 29 2 *'}\n";
const BASH: [&str; 3] = ["bash", "-c", r#"jq '[.[].filterResult.n | tonumber] | add' "$BINDING_CONTEXT_PATH""#];
const PYTHON: [&str; 3] = [
    "python3",
    "-c",
    "import json, os; print(sum(int(c['filterResult']['n']) for c in json.load(open(os.environ['BINDING_CONTEXT_PATH']))))",
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, otherwise: usize| {
        let given = arguments.iter().position(|it| it == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
        given.unwrap_or(otherwise).max(1)
    };
    let (objects, rate, seconds) = (number("--objects", 10_000), number("--rate", 1_000), number("--seconds", 30));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("{objects} objects, {rate} changes a second wanted, {seconds} s\n");
    println!(
        "| hook | changes a second | runs | start after a change, p50 | p99 | CPU of the hooks | for a run | resident memory | projected data | last state |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for contender in [None, Some(&BASH), Some(&PYTHON)] {
        if contender.is_some_and(|command| !is_there(command[0]) || (command[0] == "bash" && !is_there("jq"))) {
            continue;
        }
        let row = runtime.block_on(async {
            let load = Load::new(objects).await;
            match contender {
                None => component_row(&load, rate, seconds).await,
                Some(command) => process_row(&load, command, rate, seconds).await,
            }
        });
        println!("{row}");
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// CPU time of children that have ended, in milliseconds.
fn children_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = text.rsplit_once(')').unwrap().1;
    let ticks = |index: usize| after.split_whitespace().nth(index).unwrap().parse::<u64>().unwrap();
    // Linux has 100 ticks a second for programs; fields 16 and 17 of the line, counted from 1.
    (ticks(13) + ticks(14)) * 10
}

/// Objects, and the moments at which each was changed and nobody has noticed yet.
struct Load {
    world: World,
    objects: usize,
    changed: Mutex<HashMap<String, Vec<u64>>>,
    last: Mutex<HashMap<usize, u64>>,
}

impl Load {
    async fn new(objects: usize) -> Arc<Self> {
        let load = Self { world: World::new().await, objects, changed: Mutex::default(), last: Mutex::default() };
        let load = Arc::new(load);
        let api = load.api();
        futures::stream::iter(0..objects)
            .for_each_concurrent(16, |index| {
                let api = &api;
                async move {
                    let object = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": name(index), "labels": {"bench": "events"}},
                        "data": {"n": "0", "text": "x".repeat(1_000)},
                    });
                    let object: DynamicObject = serde_json::from_value(object).unwrap();
                    api.create(&PostParams::default(), &object).await.unwrap();
                }
            })
            .await;
        load
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        Api::namespaced_with(self.world.cluster.client().clone(), "default", &kind)
    }

    /// Changes objects at a rate; says how many a second it managed.
    async fn run(self: &Arc<Self>, rate: usize, seconds: usize) -> f64 {
        const WRITERS: usize = 8;
        let begun = Instant::now();
        let total = rate * seconds;
        let writers = (0..WRITERS).map(|writer| {
            let load = Arc::clone(self);
            tokio::spawn(async move {
                let api = load.api();
                for number in (writer..total).step_by(WRITERS) {
                    let at = begun + Duration::from_secs_f64(number as f64 / rate as f64);
                    tokio::time::sleep_until(at.into()).await;
                    // Spread over the objects: 7,919 is prime.
                    let (index, value) = (number * 7_919 % load.objects, number as u64 + 1);
                    let patch = Patch::Merge(json!({"data": {"n": value.to_string()}}));
                    api.patch(&name(index), &PatchParams::default(), &patch).await.unwrap();
                    load.changed.lock().unwrap().entry(name(index)).or_default().push(unix_ms());
                    load.last.lock().unwrap().insert(index, value);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        total as f64 / begun.elapsed().as_secs_f64()
    }

    /// A run began at this moment and was told of these changes: how long the first change of each had waited.
    fn noticed(&self, changes: &[Change], at: u64, waits: &mut Vec<u64>) {
        let mut changed = self.changed.lock().unwrap();
        for change in changes {
            let Some(moments) = changed.get_mut(&change.name) else { continue };
            let seen = moments.iter().take_while(|moment| **moment <= at).count();
            waits.extend(moments.drain(..seen).next().map(|first| at - first));
        }
    }

    /// The sum of the last values that were written.
    fn sum(&self) -> u64 {
        self.last.lock().unwrap().values().sum()
    }
}

fn name(index: usize) -> String {
    format!("object-{index:05}")
}

struct Measured {
    name: &'static str,
    rate: f64,
    runs: usize,
    waits: Vec<u64>,
    cpu_ms: f64,
    resident_kib: u64,
    projected: usize,
    whole: bool,
}

fn row(mut measured: Measured) -> String {
    measured.waits.sort_unstable();
    let at = |share: usize| measured.waits.get(measured.waits.len() * share / 100).copied().unwrap_or_default();
    let Measured { name, rate, runs, cpu_ms, resident_kib, projected, whole, .. } = measured;
    let each = cpu_ms / runs.max(1) as f64;
    let state = if whole { "seen" } else { "LOST" };
    let (resident, projected) = (resident_kib as f64 / 1024.0, projected as f64 / (1024.0 * 1024.0));
    format!(
        "| {name} | {rate:.0} | {runs} | {} ms | {} ms | {cpu_ms:.0} ms | {each:.2} ms | {resident:.1} MiB | {projected:.1} MiB | {state} |",
        at(50),
        at(99)
    )
}

async fn component_row(load: &Arc<Load>, rate: usize, seconds: usize) -> String {
    let mut source = package("events");
    let manifest = String::from_utf8(source.get("package.yaml").unwrap().to_vec()).unwrap();
    let permissions = "permissions:\n  - {apiGroups: [''], kinds: [ConfigMap], verbs: [watch]}\n";
    source = source.with("package.yaml", &(manifest + permissions)).with("hooks/bindings/sums.yaml", BINDING);
    source.insert("hooks/scripted.wasm", component("tests/guests/scripted.wasm")).unwrap();
    // Compiling is no part of what is kept.
    let warm = load.world.install("warm", source.clone(), nothing()).await;
    warm.ready().await;
    warm.delete().await;
    drop(warm);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = resident_kib();
    let app = load.world.install("events", source, nothing()).await;
    app.ready().await;
    let resident = resident_kib().saturating_sub(before);
    let mut notices = load.world.services.notices.subscribe();
    let reader = tokio::spawn({
        let load = Arc::clone(load);
        async move {
            let (mut waits, mut runs, mut cpu_us) = (Vec::new(), 0, 0);
            loop {
                match notices.recv().await {
                    Ok((_, Notice::Ran(record))) => match &record.trigger {
                        Trigger::Events(changes) => {
                            runs += 1;
                            cpu_us += record.usage.wall_us;
                            load.noticed(changes, record.started_unix_ms, &mut waits);
                        }
                        _ => return (waits, runs, cpu_us, record.log[0].message.clone()),
                    },
                    Ok(_) => {}
                    Err(RecvError::Lagged(lost)) => panic!("{lost} notices are lost"),
                    Err(RecvError::Closed) => panic!("no more notices"),
                }
            }
        }
    });
    let rate = load.run(rate, seconds).await;
    // What was changed last is on its way.
    tokio::time::sleep(Duration::from_secs(2)).await;
    app.handle.send(Event::ScheduleDue { hook: "sums".to_owned(), schedule: "schedule".to_owned() }).await;
    let (waits, runs, cpu_us, last) = reader.await.unwrap();
    let projected = load.objects * (json!({"n": "30000"}).to_string().len() + name(0).len() + "default".len());
    row(Measured {
        name: "component",
        rate,
        runs,
        waits,
        cpu_ms: cpu_us as f64 / 1000.0,
        resident_kib: resident,
        projected,
        whole: last == load.sum().to_string(),
    })
}

/// The binding of the same selection, for those who start processes.
fn binding() -> KubernetesBinding {
    let declaration: HookDeclaration = serde_json::from_value(json!({
        "name": "sums", "queue": "main", "bindings": [{"kubernetes": {
            "name": "numbers", "apiVersion": "v1", "kind": "ConfigMap",
            "labelSelector": {"matchLabels": [["bench", "events"]]},
            "filter": {"fields": ["/data/n"]},
            "executeOnEvents": ["Added", "Modified", "Deleted"],
            "executeOnSynchronization": true, "waitForSynchronization": true,
        }}],
    }))
    .unwrap();
    declaration.kubernetes().next().unwrap().clone()
}

/// Watches as the host does, and starts a process for what has changed since the last one ended.
async fn process_row(load: &Arc<Load>, command: &'static [&'static str; 3], rate: usize, seconds: usize) -> String {
    let binding = binding();
    let spec = WatchSpec {
        labels: binding.label_selector.clone(),
        ..WatchSpec::all(Gvk::parse("v1", "ConfigMap").unwrap(), Some("default".to_owned()))
    };
    let folder = tempfile::tempdir().unwrap();
    let before = resident_kib();
    let mut store = SnapshotStore::new(&binding);
    let mut events = load.world.cluster.observe(spec).boxed();
    let mut list = Vec::new();
    loop {
        match events.next().await.unwrap() {
            Observation::Listed(object) => list.push(projected(&binding, &object)),
            Observation::ListEnds => break,
            _ => {}
        }
    }
    store.replace(list);
    let resident = resident_kib().saturating_sub(before);
    let cpu = children_ms();
    let writers = tokio::spawn({
        let load = Arc::clone(load);
        async move { load.run(rate, seconds).await }
    });
    let (mut waits, mut runs) = (Vec::new(), 0);
    let mut waiting: HashMap<String, Change> = HashMap::new();
    let mut running: Option<tokio::process::Child> = None;
    let quiet = loop {
        if running.is_none() && !waiting.is_empty() {
            let changes: Vec<Change> = waiting.drain().map(|(_, change)| change).collect();
            running = Some(start(command, folder.path(), &mut store, &changes));
            runs += 1;
            load.noticed(&changes, unix_ms(), &mut waits);
        }
        tokio::select! {
            seen = events.next() => if let Some(Observation::Applied(object)) = seen
                && let Some(change) = store.put(projected(&binding, &object))
            {
                waiting.insert(change.name.clone(), change);
            },
            ended = async { running.as_mut().unwrap().wait().await }, if running.is_some() => {
                assert!(ended.unwrap().success(), "{} failed", command[0]);
                running = None;
            }
            // Everything was written, nothing comes any more.
            () = tokio::time::sleep(Duration::from_secs(2)), if writers.is_finished() && running.is_none() => break true,
        }
    };
    let SnapshotState::Ready(snapshot) = store.view() else { panic!("not synchronised") };
    let number = |item: &Arc<barbless_domain::run::SnapshotItem>| {
        item.projection["/data/n"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
    };
    row(Measured {
        name: if command[0] == "bash" { "bash and jq" } else { "python3" },
        rate: writers.await.unwrap(),
        runs,
        waits,
        cpu_ms: (children_ms() - cpu) as f64,
        resident_kib: resident,
        projected: snapshot.sum().bytes,
        whole: quiet && snapshot.items.iter().map(number).sum::<u64>() == load.sum(),
    })
}

fn projected(binding: &KubernetesBinding, object: &Value) -> Projected {
    let (namespace, name) = snapshot::key_of(object);
    let projection = snapshot::project(&Projection::Fields(vec!["/data/n".to_owned()]), object).unwrap();
    assert!(!binding.keep_full_objects);
    Projected { namespace, name, projection, object: None }
}

/// Writes the contexts as shell-operator does, and starts the hook.
fn start(command: &[&str; 3], folder: &Path, store: &mut SnapshotStore, changes: &[Change]) -> tokio::process::Child {
    let SnapshotState::Ready(snapshot) = store.view() else { panic!("not synchronised") };
    let context = changes.iter().map(|change| {
        let item = snapshot.find(&change.namespace, &change.name);
        let n = item.map(|item| item.projection["/data/n"].clone());
        json!({"binding": "numbers", "type": "Event", "watchEvent": word(change.event), "filterResult": {"n": n}})
    });
    let path = folder.join("context.json");
    std::fs::write(&path, Value::Array(context.collect()).to_string()).unwrap();
    tokio::process::Command::new(command[0])
        .args(&command[1..])
        .env("BINDING_CONTEXT_PATH", &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn word(event: WatchEventType) -> &'static str {
    match event {
        WatchEventType::Added => "Added",
        WatchEventType::Modified => "Modified",
        WatchEventType::Deleted => "Deleted",
    }
}
