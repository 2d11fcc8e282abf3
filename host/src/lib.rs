//! Barbless: runs the hooks of Kubernetes packages in a WebAssembly sandbox and drives the life of each package.
//!
//! The modules in reading order: what was typed ([`cli`]), what is done with it ([`app`]), the loop of an application
//! ([`driver`]), what it leaves behind ([`runs`], [`notice`]), and what people see ([`ui`], [`report`]).
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod dev;
pub mod driver;

pub mod build;
pub mod bundle;
mod devcluster;
mod fixtures;
mod history;
mod inspect;
pub mod metrics;
pub mod notice;
pub mod plan;
mod render;
mod replay;
pub mod report;
pub mod runs;
pub mod telemetry;
pub mod ui;
