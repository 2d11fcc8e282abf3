//! Runs hook components under limits. The only crate that knows wasmtime.
//!
//! A component passes three stages, each a type: bytes are scanned, compiled (in a child process, cached on disk) and
//! described: [`Component`]; a component is linked for one grant: [`Prepared`]; and each call gets a store of its own
//! that is dropped afterwards, however the call ended.
//!
//! Nothing a guest does is an error of this crate: [`Prepared::run`] always gives a
//! [`RunOutcome`](barbless_domain::run::RunOutcome). No type of the engine is part of the public interface.
#![warn(missing_docs)]

pub mod config;
pub mod error;
pub mod jq;

mod compile;
mod component;
mod contract;
mod host;
mod inspect;
mod lane;
mod machine;
mod outcome;
mod prepared;
mod state;
mod text;
mod wasi;

pub use crate::compile::compile_main;
pub use crate::component::{Component, Sandbox, World};
pub use crate::config::{Compiler, Config};
pub use crate::error::{CallError, LoadError, PrepareError, SandboxError};
pub use crate::inspect::{Facts, facts};
pub use crate::jq::{JqError, JqFilter};
pub use crate::prepared::{AssessedStatus, CallOutcome, Health, Prepared, Verdict};
