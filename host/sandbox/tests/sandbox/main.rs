//! The sandbox against real components: what guests can do, and what is done about those that do too much.
//!
//! Guests are written in the text format of WebAssembly, against the canonical ABI of the contract.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exemption of tests in clippy.toml does not reach the functions that tests share"
)]

mod guest;
mod host;

mod compiling;
mod fairness;
mod jq;
mod limits;
mod loading;
mod runs;
mod wasi;
mod worlds;
