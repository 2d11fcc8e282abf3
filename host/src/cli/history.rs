//! Commands over what has run, and over what should come of a run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    /// For people.
    Table,
    /// The same with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Which of the recorded runs.
#[derive(Debug, Args)]
pub struct Selection {
    /// Folder in which `barbless dev --data-dir` keeps its records.
    #[arg(long, env = "BARBLESS_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Only applications of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only runs of this hook.
    #[arg(long, value_name = "HOOK")]
    pub hook: Option<String>,
}

/// `barbless runs`
#[derive(Debug, Args)]
#[command(
    after_help = "Without a run, the runs that are kept are listed, the oldest first. Reading disturbs no `barbless dev` \
                        that keeps its records in the same folder."
)]
pub struct Runs {
    /// The number of a run, to describe it; or an application, as `NAME` or `NAMESPACE.NAME`, to list its runs.
    #[arg(value_name = "RUN|APPLICATION")]
    pub what: Option<String>,
    /// Which runs.
    #[command(flatten)]
    pub selection: Selection,
    /// Only runs that failed.
    #[arg(long)]
    pub failed: bool,
    /// Leave the headings of the table out.
    #[arg(long)]
    pub no_headers: bool,
    /// Show the contents of Secrets, and everything else that is masked otherwise.
    #[arg(long)]
    pub show_secrets: bool,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Listing,
}

/// `barbless logs`
#[derive(Debug, Args)]
#[command(
    after_help = "With -o json each line of the log is one JSON document on a line of its own; with -o yaml, one YAML \
                        document."
)]
pub struct Logs {
    /// The number of a run, or an application, as `NAME` or `NAMESPACE.NAME`; everything unless given.
    #[arg(value_name = "RUN|APPLICATION")]
    pub what: Option<String>,
    /// Which runs.
    #[command(flatten)]
    pub selection: Selection,
    /// Only the last lines, so many of them.
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Show what is masked otherwise.
    #[arg(long)]
    pub show_secrets: bool,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Listing,
}

/// `barbless replay`
#[derive(Debug, Args)]
#[command(
    after_help = "The hook runs again with everything that went into the recorded run: trigger, attempt, values, \
                        settings, snapshots, time, seed. Nothing of what it asks for is carried out.\nExit code 0 if \
                        what came of it is the same, bit for bit, and 3 if not."
)]
pub struct Replay {
    /// The number of the run, as `barbless runs` shows it.
    pub run: u64,
    /// Folder in which `barbless dev --data-dir` keeps its records.
    #[arg(long, env = "BARBLESS_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Run this component in place of the recorded one.
    #[arg(long, value_name = "NEW.wasm")]
    pub component: Option<PathBuf>,
    /// Folder of the package, where the component is looked for if the records do not have it.
    #[arg(long, value_name = "DIR")]
    pub package: Option<PathBuf>,
    /// Show differences line by line.
    #[arg(long)]
    pub diff: bool,
    /// Write a test case for `barbless test` to this file, or add it to the cases that are there: the recorded input,
    /// with what came of it now. Secrets are written as they are.
    #[arg(long, value_name = "FILE")]
    pub save_fixture: Option<PathBuf>,
    /// Show the contents of Secrets, and everything else that is masked otherwise.
    #[arg(long)]
    pub show_secrets: bool,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: super::Output,
}

/// `barbless test`
#[derive(Debug, Args)]
#[command(
    after_help = "The cases are in PACKAGE/tests/*.yaml; docs/testing-hooks.md says how they are written.\nExit code 0 \
                        if all pass, 7 if one fails, 2 if a file of cases is bad, 5 if there are none."
)]
pub struct Test {
    /// Folder of the package.
    #[arg(default_value = ".")]
    pub package: PathBuf,
    /// Only cases whose name contains one of these.
    pub names: Vec<String>,
    /// Write a report in JUnit's XML to this file.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Rewrite what cases expect so that they pass.
    #[arg(long)]
    pub update: bool,
    /// Grant just this (YAML file: `permissions`, optionally `interfaces`), not all that the package asks for.
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: super::Output,
}
