//! What stands behind the imports of the contract: one file for each concern. Every function counts as a call, and
//! none of them reaches beyond the state of its store.

pub(crate) mod patches;
pub(crate) mod values;

mod simple;
mod snapshots;
