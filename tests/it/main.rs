//! One binary for all integration tests: each links wasmtime and kube once.
//!
//! `tests/run` builds the components that these tests run; without them a test says what to do.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that meets something unexpected ends")]

mod architecture;
mod bad_packages;
mod cli;
mod fixtures;
mod hooks;
mod hostile;
mod life;
mod metrics;
mod migration;
mod plan;
mod release;
mod restart;
mod runs;
mod target;
mod targets;
mod world;
