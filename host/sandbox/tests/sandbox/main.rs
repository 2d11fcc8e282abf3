//! The sandbox against real components: what guests can do, and what is done about those that do too much.
//!
//! Guests are written in the text format of WebAssembly, against the canonical ABI of the contract.

mod guest;
mod host;

mod compiling;
mod limits;
mod loading;
mod runs;
mod wasi;
mod worlds;
