//! The engine of hooks (`hooks::`), row by row of the conformance tables: bindings, snapshots, queues, operations, values.
//!
//! Rows say what shell-operator and its relatives do. Where our decision differs, the test has ours, and says so. The
//! bindings of rows N are configurations of shell-operator, as the rows have them.

mod bindings;
mod jq;
mod operate;
mod patches;
mod queues;
mod values;
