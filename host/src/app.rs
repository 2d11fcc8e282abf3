//! Wiring: the one place that names every crate.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use barbless_devcluster::DevCluster;
use barbless_sandbox::{Compiler, Config, Sandbox};
use tower::ServiceBuilder;

use crate::cli::{Cli, Command};
use crate::report::{Exit, Report};
use crate::{build, dev, devcluster, fixtures, history, inspect, plan, render, replay, telemetry};

/// Does what was typed.
///
/// # Errors
/// A report for the user.
pub fn run(cli: Cli) -> Result<Exit, Report> {
    telemetry::start(&cli.log_level, cli.log_format)?;
    match cli.command {
        Command::Dev(args) => runtime()?.block_on(dev::run(&args)),
        Command::Devcluster(args) => runtime()?.block_on(devcluster::command(&args)),
        Command::Build(args) => build_hooks(&args),
        Command::Render(args) => render::command(&args),
        Command::Plan(args) => runtime()?.block_on(plan::command(&args)),
        Command::Test(args) => runtime()?.block_on(fixtures::command(&args)),
        Command::Runs(args) => history::runs(&args),
        Command::Logs(args) => history::logs(&args),
        Command::Replay(args) => runtime()?.block_on(replay::command(&args)),
        Command::Inspect(args) => runtime()?.block_on(inspect::command(&args)),
        Command::Crds => crds(),
        Command::CompileComponent => Err(Report::new("InternalError", "the compiler is started before anything else")),
    }
}

/// What the child process of the sandbox does.
#[must_use]
pub fn compile_component() -> std::process::ExitCode {
    barbless_sandbox::compile_main()
}

fn runtime() -> Result<tokio::runtime::Runtime, Report> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Report::new("InternalError", format!("starting the runtime: {error}")))
}

/// A sandbox whose compiler is this program again, as a child with nothing but its standard streams.
///
/// # Errors
/// If the engine or the cache folder cannot be set up.
pub fn sandbox(cache: Option<PathBuf>) -> Result<Sandbox, Report> {
    let program = std::env::current_exe()
        .map_err(|error| Report::new("InternalError", format!("finding the path of this program: {error}")))?;
    sandbox_with(program, cache)
}

/// The same with another program that has the hidden command.
///
/// # Errors
/// If the engine or the cache folder cannot be set up.
pub fn sandbox_with(program: PathBuf, cache: Option<PathBuf>) -> Result<Sandbox, Report> {
    let mut config = Config::new(Compiler::Child { program, args: vec![OsString::from("compile-component")] });
    config.cache = cache;
    Sandbox::new(config).map_err(|error| Report::of(error.reason(), &error).hint(error.hint()))
}

/// Where compiled components are kept unless a data folder is given: the user's cache folder, if there is one.
#[must_use]
pub fn default_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("barbless").join("components"))
}

/// A client of the API in this process.
#[must_use]
pub fn client_of(devcluster: &DevCluster) -> kube::Client {
    client_by(devcluster.router(), "default")
}

/// A client that asks a router, with a namespace for what names none.
#[must_use]
pub fn client_by(router: axum::Router, namespace: &str) -> kube::Client {
    let service = ServiceBuilder::new()
        .map_request(|request: axum::http::Request<kube::client::Body>| request.map(axum::body::Body::new))
        .service(router);
    kube::Client::new(service, namespace)
}

fn build_hooks(args: &crate::cli::Build) -> Result<Exit, Report> {
    let options =
        build::Options { force: args.force, target_dir: args.target_dir.clone(), ..build::Options::default() };
    let built = if args.crates {
        build::build_crates(&args.package, &options)
    } else {
        build::build_package(&args.package, &options)
    };
    let built = built.map_err(|error| dev::build_report(&error))?;
    for one in &built {
        let how = if one.skipped { "up to date".to_owned() } else { format!("{:.1} s", one.seconds) };
        print(&format!("{}\t{} bytes\t{}\t{how}\n", one.component.display(), one.bytes, one.digest))?;
    }
    if built.is_empty() {
        tracing::warn!(folder = %args.package.display(), "there is nothing to build: no hooks/*/Cargo.toml");
    }
    Ok(Exit::Ok)
}

fn crds() -> Result<Exit, Report> {
    let mut text = String::new();
    for crd in barbless_cluster::crds() {
        text.push_str("---\n");
        text.push_str(&yaml(&crd)?);
    }
    print(&text)?;
    Ok(Exit::Ok)
}

/// A document as YAML.
///
/// # Errors
/// If it cannot be written as YAML.
pub(crate) fn yaml(document: &impl serde::Serialize) -> Result<String, Report> {
    serde_saphyr::to_string(document).map_err(|error| Report::new("InternalError", format!("writing YAML: {error}")))
}

/// Reads a YAML or JSON file of a user.
///
/// # Errors
/// If it cannot be read, or is neither.
pub(crate) fn read_document(path: &Path) -> Result<serde_json::Value, Report> {
    const BYTES: u64 = 4 * 1024 * 1024;
    let place = path.display().to_string();
    let bytes = crate::bundle::read_bounded(path, BYTES).map_err(|report| report.at(place.clone()))?;
    let text = String::from_utf8(bytes).map_err(|error| Report::new("NotUtf8", error.to_string()).at(place.clone()))?;
    serde_saphyr::from_str(&text).map_err(|error| Report::new("BadYaml", error.to_string()).at(place))
}

/// The same for a file that an argument names: what is wrong with its contents is wrong usage.
///
/// # Errors
/// As [`read_document`].
pub(crate) fn read_argument(path: &Path) -> Result<serde_json::Value, Report> {
    read_document(path).map_err(|report| match report.code.as_str() {
        "BadYaml" | "NotUtf8" => report.exit(Exit::Usage),
        _ => report,
    })
}

/// Writes data to standard output.
///
/// # Errors
/// If standard output is closed.
pub(crate) fn print(text: &str) -> Result<(), Report> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Report::new("OutputClosed", format!("writing to standard output: {error}")))
}
