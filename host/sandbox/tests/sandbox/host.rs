//! A sandbox with small limits, and short ways to run a guest in it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use barbless_domain::grant::Grant;
use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::identity::ApplicationId;
use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Instance, RunInput, RunOutcome};
use barbless_sandbox::{Compiler, Component, Config, LoadError, Prepared, Sandbox};
use serde_json::json;

use crate::guest::Guest;

pub(crate) const MIB: u64 = 1024 * 1024;

/// Limits that make tests fast.
pub(crate) fn limits() -> GuestLimits {
    GuestLimits {
        cpu_ms: 200,
        wall_ms: 5_000,
        memory_bytes: 4 * MIB,
        table_elements: 1_000,
        call_bytes: MIB,
        host_calls: 10_000,
        handles: 100,
        log_bytes: 8 * 1024,
        log_line_bytes: 256,
        operations: 10,
        operation_bytes: 1024,
        operations_bytes: 4096,
        values_bytes: 1024,
        metric_series: 5,
        component_bytes: MIB,
        component_functions: 1_000,
        compile_wall_ms: 30_000,
        compile_cpu_s: 20,
        ..GuestLimits::default()
    }
}

pub(crate) fn config(compiler: Compiler) -> Config {
    Config { limits: limits(), in_flight: 2, tick: Duration::from_millis(5), ..Config::new(compiler) }
}

/// One sandbox for all tests that need no other: its pool reserves much address space.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(config(Compiler::InProcess)).expect("the sandbox can be made"))
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().enable_io().build().expect("a runtime").block_on(future)
}

pub(crate) fn application() -> ApplicationId {
    ApplicationId::new("demo", "shop").expect("a valid name")
}

pub(crate) fn load(wasm: Vec<u8>) -> Result<Component, LoadError> {
    wait(sandbox().load(wasm))
}

pub(crate) fn prepare(guest: &Guest) -> Prepared {
    let component = load(guest.component()).unwrap_or_else(|error| panic!("{error:?}\n{}", guest.wat()));
    sandbox().prepare(&component, &application(), &Grant::with(Vec::new())).expect("it can be linked")
}

pub(crate) fn instance() -> Instance {
    Instance {
        name: "shop".to_owned(),
        namespace: "demo".to_owned(),
        package_name: "webshop".to_owned(),
        package_version: "1.2.3".to_owned(),
    }
}

pub(crate) fn input() -> RunInput {
    RunInput {
        hook: "hook".to_owned(),
        trigger: Trigger::Lifecycle(Stage::BeforeHelm),
        attempt: 1,
        dry_run: false,
        instance: instance(),
        values: Arc::new(json!({"replicas": 1})),
        settings: Arc::new(json!({"size": "small"})),
        snapshots: BTreeMap::new(),
        now_unix_ms: 1_800_000_000_000,
        seed: [7; 32],
    }
}

pub(crate) fn run(guest: &Guest) -> RunOutcome {
    run_with(guest, input())
}

pub(crate) fn run_with(guest: &Guest, input: RunInput) -> RunOutcome {
    let prepared = prepare(guest);
    wait(prepared.run(&Arc::new(input)))
}
