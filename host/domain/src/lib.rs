//! Every decision of Barbless.
//!
//! This crate knows no cluster, no sandbox, no clock, no environment and no async runtime: time, randomness and limits
//! are arguments. What can happen is an [`event::Event`], what can be done about it an [`effect::Effect`], and
//! [`pipeline::step`] leads from one to the other. The crates beside this one perform effects and report events; none
//! of them decides what happens next.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod declaration;
pub mod effect;
pub mod error;
pub mod event;
#[cfg(test)]
mod fixtures;
pub mod grant;
pub mod hook;
pub mod identity;
pub mod limits;
pub mod metrics;
pub mod operation;
pub mod pace;
pub mod package;
pub mod pipeline;
pub mod queue;
pub mod release;
pub mod request;
pub mod requirement;
pub mod run;
pub mod schedule;
pub mod schema;
pub mod snapshot;
pub mod status;
pub mod values;
