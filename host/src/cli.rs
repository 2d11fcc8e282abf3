//! What was typed. Nothing is done here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use barbless_domain::queue::Time;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::telemetry::LogFormat;

mod history;

pub use history::{Listing, Logs, Replay, Runs, Test};

/// Run the hooks of Kubernetes packages in a WebAssembly sandbox.
#[derive(Debug, Parser)]
#[command(name = "barbless", version, about, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a difference was found, 4 timed out, 5 not found, \
                        6 denied, 7 checks failed, 130 interrupted.\nData goes to standard output, everything else to \
                        standard error."
)]
pub struct Cli {
    /// What is logged: a level, or levels by module such as `barbless=debug,warn`.
    #[arg(long, global = true, env = "BARBLESS_LOG_LEVEL", default_value = "warn", value_name = "FILTER")]
    pub log_level: String,
    /// How log lines look.
    #[arg(long, global = true, env = "BARBLESS_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a package with a Kubernetes API in this process; no cluster is needed.
    Dev(Dev),
    /// Build the hooks of a package: each crate in `hooks/` becomes a component `hooks/<name>.wasm`.
    Build(Build),
    /// Render the templates of a package or a Helm chart.
    Render(Render),
    /// Show what installing or upgrading a package would do, without doing it; exit code 3 if it would do anything.
    Plan(Plan),
    /// Run the test cases of a package: what goes into a hook, and what should come of it.
    Test(Test),
    /// List the runs of hooks that are kept, or describe one.
    Runs(Runs),
    /// Print what hooks logged.
    Logs(Logs),
    /// Run a recorded run again, with its component or another, and compare what comes of it.
    Replay(Replay),
    /// Say what a component is: imports, hooks, what it asks for, digest and size.
    Inspect(Inspect),
    /// Serve a Kubernetes API from this process, for kubectl and other clients, until it is interrupted; the URL is
    /// printed.
    Devcluster(Devcluster),
    /// Print the custom resource definitions of the host as YAML.
    Crds,
    /// Compiles a component from standard input to standard output: the child process of the sandbox.
    #[command(hide = true)]
    CompileComponent,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// `barbless dev`
#[derive(Debug, Args)]
pub struct Dev {
    /// Folder of the package.
    pub package: PathBuf,
    /// Install, change a setting, delete, report, and end.
    #[arg(long)]
    pub once: bool,
    /// Namespace of the application.
    #[arg(short, long, env = "BARBLESS_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of the application, 24 characters at most; the name of the package unless given.
    #[arg(long)]
    pub name: Option<String>,
    /// Settings of the application (YAML or JSON file); those of `dev.yaml` unless given.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Grant just this (YAML file: `permissions`, optionally `interfaces`), not all that the package asks for.
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Address of the Kubernetes API for kubectl; port 0 takes a free one.
    #[arg(long, env = "BARBLESS_DEV_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Address for measurements in the text format of Prometheus: `/metrics` of the host, `/metrics/hooks` of hooks.
    #[arg(long, env = "BARBLESS_METRICS_LISTEN", value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Keep the cluster and the run records in this folder.
    #[arg(long, env = "BARBLESS_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How long installing, changing and deleting may take, each.
    #[arg(long, default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// How the summary of --once is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
}

/// `barbless devcluster`
#[derive(Debug, Args)]
pub struct Devcluster {
    /// Address to listen on. Without --rbac, whoever reaches it may do everything: there are no passwords.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, env = "BARBLESS_DEVCLUSTER_PORT", default_value_t = 8001)]
    pub port: u16,
    /// Keep the cluster in this folder.
    #[arg(long, env = "BARBLESS_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Write a kubeconfig of the cluster to this file.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Let Deployments, Jobs, Pods and other workloads be as they are written: nothing becomes ready.
    #[arg(long)]
    pub no_controllers: bool,
    /// Let roles and bindings say who may do what. The kubeconfig has the token of an administrator.
    #[arg(long, requires = "kubeconfig")]
    pub rbac: bool,
}

impl Devcluster {
    /// Where to listen.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// `barbless build`
#[derive(Debug, Args)]
pub struct Build {
    /// Folder of the package.
    pub package: PathBuf,
    /// Build even if nothing changed.
    #[arg(long)]
    pub force: bool,
    /// The folder is no package: build each crate in it, with the components beside the crates.
    #[arg(long)]
    pub crates: bool,
    /// Folder for what the compiler leaves behind, shared by all hooks.
    #[arg(long, env = "BARBLESS_GUEST_TARGET_DIR", value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
}

/// `barbless render`
#[derive(Debug, Args)]
#[command(
    after_help = "A chart is rendered as `helm template` renders it: the same bytes in the same order. Of the ways to \
                        give values, later ones win: --values, --set-json, --set, --set-string, --set-file, \
                        --set-literal.\nRandom functions (randAlphaNum, uuidv4, genCA, htpasswd, …) take their \
                        randomness from the namespace and the name, and `now` is 1970, or SOURCE_DATE_EPOCH if that is \
                        set: the same chart gives the same text again. --random does it as Helm does."
)]
pub struct Render {
    /// Folder of the package or chart, or a packed chart (.tgz).
    pub package: PathBuf,
    /// Settings of a package, or values of a chart (YAML or JSON files, `-` for standard input; later ones win).
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// Values on the command line: `a.b=1,c[0]=x,d={y,z}`; numbers, booleans and null are read as such.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The same, but every value is a text.
    #[arg(long, value_name = "KEY=TEXT")]
    pub set_string: Vec<String>,
    /// The same, but every value is JSON; or one JSON object.
    #[arg(long, value_name = "KEY=JSON")]
    pub set_json: Vec<String>,
    /// The same, but every value is the name of a file, whose content it becomes.
    #[arg(long, value_name = "KEY=FILE")]
    pub set_file: Vec<String>,
    /// One value, the text behind the equals sign as it stands.
    #[arg(long, value_name = "KEY=TEXT")]
    pub set_literal: Vec<String>,
    /// Namespace of the application or release.
    #[arg(short, long, env = "BARBLESS_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of the application or release; the name of the package, or `release-name`, unless given.
    #[arg(long)]
    pub name: Option<String>,
    /// Version of Kubernetes that templates see; by default v1.37.0 for a package, and what Helm assumes for a chart.
    #[arg(long, value_name = "VERSION", value_parser = barbless_template::kube_version)]
    pub kube_version: Option<String>,
    /// More versions of APIs that templates see, such as `monitoring.coreos.com/v1` or `apps/v1/Deployment`.
    #[arg(short, long, value_name = "VERSION", value_delimiter = ',')]
    pub api_versions: Vec<String>,
    /// Show what stands in `crds/`, too.
    #[arg(long)]
    pub include_crds: bool,
    /// Show only what these templates of a chart write, such as `templates/web.yaml`.
    #[arg(short, long, value_name = "TEMPLATE")]
    pub show_only: Vec<String>,
    /// Leave out Helm hooks.
    #[arg(long)]
    pub no_hooks: bool,
    /// Leave out Helm hooks that are tests.
    #[arg(long)]
    pub skip_tests: bool,
    /// Templates see an upgrade and not an installation.
    #[arg(long)]
    pub is_upgrade: bool,
    /// Render a chart although the values do not fit its `values.schema.json`.
    #[arg(long)]
    pub skip_schema_validation: bool,
    /// Fresh randomness and the time of day, as in Helm.
    #[arg(long)]
    pub random: bool,
}

/// `barbless plan`
#[derive(Debug, Args)]
#[command(
    after_help = "Hooks run for real, but nothing that they ask for is carried out, and nothing is written to the \
                        cluster.\nThe cluster is that of --kubeconfig or --context, else a copy of the one that \
                        `barbless dev --data-dir` keeps, else that of KUBECONFIG, else an empty one."
)]
pub struct Plan {
    /// Folder of the package.
    pub package: PathBuf,
    /// Namespace of the application.
    #[arg(short, long, env = "BARBLESS_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Name of the application; the name of the package unless given.
    #[arg(long)]
    pub name: Option<String>,
    /// Settings of the application (YAML or JSON file); unless given, those of the Application in the cluster, or of
    /// `dev.yaml` for a development cluster.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Grant just this (YAML file: `permissions`, optionally `interfaces`), not all that the package asks for.
    #[arg(long, value_name = "FILE")]
    pub grants: Option<PathBuf>,
    /// Plan against the cluster of this kubeconfig.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", conflicts_with = "data_dir")]
    pub context: Option<String>,
    /// Plan against a copy of the cluster that `barbless dev --data-dir` keeps in this folder.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Leave Helm hooks out. Hooks of the package run: the values depend on them.
    #[arg(long)]
    pub no_hooks: bool,
    /// Show the contents of Secrets, and everything else that is masked otherwise.
    #[arg(long)]
    pub show_secrets: bool,
    /// The moment that hooks and templates see, such as 2026-01-31T12:00:00Z; now unless given.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub now: Option<Time>,
    /// How long making the plan may take.
    #[arg(long, default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
    /// How the plan is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
}

/// `barbless inspect`
#[derive(Debug, Args)]
pub struct Inspect {
    /// The component.
    pub component: PathBuf,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Output,
    /// Do not run the component, not even to ask for its hooks: show what the file says of itself.
    #[arg(long)]
    pub no_run: bool,
}

/// A moment in RFC 3339.
fn moment(text: &str) -> Result<Time, String> {
    let moment: jiff::Timestamp = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    u64::try_from(moment.as_millisecond()).map(Time).map_err(|_| "it is before 1970".to_owned())
}

/// `90`, `90s`, `2m`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| "it must begin with a number".to_owned())?;
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("unknown unit '{unit}'; use ms, s, m or h")),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(|| "it is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("ten").is_err());
        assert!(duration("1d").is_err());
    }

    #[test]
    fn moments_are_those_of_rfc_3339() {
        assert_eq!(moment("1970-01-01T00:00:01.5Z"), Ok(Time(1500)));
        assert!(moment("1969-12-31T23:59:59Z").is_err());
        assert!(moment("tomorrow").is_err());
    }
}
