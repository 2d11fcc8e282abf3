//! The rows of hooks (`hooks::`): what shell-operator and its relatives do, as tests by the number of their row. Where our
//! decision differs, the test has ours, and says so.

mod jq;
mod operate;
mod patches;
