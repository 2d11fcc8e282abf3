//! `barbless test`: what goes into a hook, and what should come of it, as files beside the package.
//!
//! The package is built and loaded as for an application; each case is one run in the sandbox. What the hook gives back
//! passes the checks of a real run, grants and schemas included, and nothing is carried out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use barbless_cluster::Cluster;
use barbless_devcluster::{Config, DevCluster};
use barbless_domain::identity::ApplicationId;
use barbless_domain::package::document::Document;
use barbless_domain::package::{Manifest, Problem};
use barbless_domain::requirement::Platform;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::app;
use crate::bundle::{self, Folder};
use crate::cli::{Output, Test};
use crate::dev;
use crate::driver::instance::Grants;
use crate::driver::trial::{Trial, Tried};
use crate::driver::{self, Instance, Services};
use crate::metrics::Metrics;
use crate::notice::Notices;
use crate::plan::coloured;
use crate::report::{Exit, Report, printable};
use crate::runs::{RunLog, shown};
use crate::ui::Ui;

mod case;
mod expect;
mod inputs;
mod junit;
mod rewrite;
mod save;

pub(crate) use save::save;

use case::Case;
use expect::{Actual, Mismatch};
use inputs::Prepared;

/// Folder of the cases in a package. It is no part of the bundle.
pub(crate) const FOLDER: &str = "tests";
/// Bytes of one file of cases, as of other files of a package.
const FILE_BYTES: u64 = 1024 * 1024;
/// Problems that are told at once.
const PROBLEMS_MAX: usize = 100;

/// A file of cases.
struct File {
    path: PathBuf,
    text: String,
    document: Document,
    cases: Vec<Case>,
}

/// A case that has run.
#[derive(Debug)]
struct Ran {
    file: String,
    line: u64,
    name: String,
    hook: String,
    seconds: f64,
    mismatches: Vec<Mismatch>,
    log: Vec<String>,
    actual: Actual,
}

/// Runs the command.
///
/// # Errors
/// A report for the user, if cases cannot be run. A case that fails is no error.
pub(crate) async fn command(args: &Test) -> Result<Exit, Report> {
    // What costs nothing is checked before hooks are built.
    let files = files(&args.package)?;
    let wanted = |case: &Case| args.names.is_empty() || args.names.iter().any(|name| case.name.contains(name));
    let count = files.iter().flat_map(|file| &file.cases).filter(|case| wanted(case)).count();
    if count == 0 {
        let folder = args.package.join(FOLDER).display().to_string();
        let (message, hint) = match files.iter().any(|file| !file.cases.is_empty()) {
            true => ("no case has such a name", "names are compared with those of the cases: a part of one is enough"),
            false => {
                ("there are no test cases", "write some, or make one of a run: barbless replay RUN --save-fixture FILE")
            }
        };
        return Err(Report::new("NoTests", message).at(folder).hint(hint).exit(Exit::NotFound));
    }
    let manifest = dev::manifest(&args.package)?;
    let grants = dev::grants(args.grants.as_deref())?;
    dev::build_hooks(&args.package, &Ui::new(true))?;
    let mut bench = Bench::open(&args.package, manifest, grants).await?;
    let result = run_all(&mut bench, &files, wanted).await;
    bench.devcluster.stop().await;
    let mut ran = result?;
    if args.update {
        update(&files, &mut ran)?;
    }
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::report(&bench.manifest.name, &ran))
            .map_err(|error| Report::new("FileUnwritable", error.to_string()).at(path.display().to_string()))?;
    }
    app::print(&printed(&ran, args.output)?)?;
    Ok(if ran.iter().all(|one| one.mismatches.is_empty()) { Exit::Ok } else { Exit::ChecksFailed })
}

fn read_text(path: &Path) -> Result<String, Report> {
    let place = path.display().to_string();
    let bytes = bundle::read_bounded(path, FILE_BYTES).map_err(|report| report.at(place.clone()).exit(Exit::Usage))?;
    String::from_utf8(bytes).map_err(|error| Report::new("NotUtf8", error.to_string()).at(place).exit(Exit::Usage))
}

/// Reads all files of cases, in the order of their names.
fn files(package: &Path) -> Result<Vec<File>, Report> {
    let folder = package.join(FOLDER);
    if !folder.is_dir() {
        // Whether it is the package that is missing is said where packages are read.
        dev::manifest(package)?;
        return Ok(Vec::new());
    }
    let failed =
        |error: std::io::Error| Report::new("FileUnreadable", error.to_string()).at(folder.display().to_string());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let text = read_text(&path)?;
        let parsed = Document::parse(&path.display().to_string(), &text)
            .and_then(|document| case::parse(&document).map(|cases| (document, cases)));
        match parsed {
            Ok((document, cases)) => files.push(File { path, text, document, cases }),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(bad(problems)) }
}

/// Bad cases, as one report.
fn bad(mut problems: Vec<Problem>) -> Report {
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    let mut report = Report::from(driver::failure_of(&problems)).exit(Exit::Usage);
    if more > 0 {
        report.message.push_str(&format!("\nand {more} more problems"));
    }
    report
}

/// Where cases run.
struct Bench {
    package: PathBuf,
    manifest: Manifest,
    grants: Grants,
    services: Arc<Services>,
    devcluster: DevCluster,
    /// By namespace and name of the application.
    trials: BTreeMap<(String, String), Arc<Trial>>,
    _platform: watch::Sender<Platform>,
}

impl Bench {
    async fn open(package: &Path, manifest: Manifest, grants: Grants) -> Result<Self, Report> {
        // Only kinds and their scopes are asked of it.
        let config = Config { controllers: false, ..Config::default() };
        let devcluster = DevCluster::start(config).await.map_err(|error| Report::of("DevClusterFailed", &error))?;
        let cluster = Cluster::new(app::client_of(&devcluster));
        let (platform, facts) = watch::channel(Platform::default());
        let services = Arc::new(Services {
            cluster,
            sandbox: app::sandbox(app::default_cache())?,
            runs: RunLog::in_memory(),
            notices: Notices::default(),
            metrics: Metrics::default(),
            owner: format!("test-{}", std::process::id()),
            platform: facts,
        });
        let trials = BTreeMap::new();
        Ok(Self { package: package.to_owned(), manifest, grants, services, devcluster, trials, _platform: platform })
    }

    async fn trial(&mut self, case: &Case) -> Result<Arc<Trial>, Report> {
        let (namespace, name) = &case.application;
        let namespace = namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = name.clone().unwrap_or_else(|| dev::default_name(&self.manifest.name));
        if let Some(trial) = self.trials.get(&(namespace.clone(), name.clone())) {
            return Ok(Arc::clone(trial));
        }
        let id = ApplicationId::new(&namespace, &name)
            .map_err(|error| Report::new("BadName", error.to_string()).exit(Exit::Usage))?;
        let instance = Instance::new(id, Arc::new(Folder::new(&self.package)), self.grants.clone());
        let version = self.manifest.version.to_string();
        let trial = Arc::new(Trial::load(Arc::clone(&self.services), instance, &version).await?);
        self.trials.insert((namespace, name), Arc::clone(&trial));
        Ok(trial)
    }
}

/// A case that can run.
struct Ready<'a> {
    file: &'a File,
    case: &'a Case,
    trial: Arc<Trial>,
    prepared: Prepared,
}

async fn run_all(bench: &mut Bench, files: &[File], wanted: impl Fn(&Case) -> bool) -> Result<Vec<Ran>, Report> {
    let (mut ready, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        for case in file.cases.iter().filter(|case| wanted(case)) {
            let place = file.document.place(&case.pointer).map_or(0, |place| place.line);
            let trial = bench.trial(case).await.map_err(|report| match (report.exit, &report.place) {
                (Exit::Usage, None) => report.at(format!("{}:{place}", file.document.file)),
                _ => report,
            })?;
            match inputs::prepare(case, &file.document, &trial).await {
                Ok(prepared) => ready.push(Ready { file, case, trial, prepared }),
                Err(found) => problems.extend(found),
            }
        }
    }
    if !problems.is_empty() {
        return Err(bad(problems));
    }
    let mut ran = Vec::new();
    for Ready { file, case, trial, prepared } in ready {
        let begun = Instant::now();
        let tried = trial.run(&prepared.input, &prepared.values).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let actual = actual_of(tried);
        ran.push(Ran {
            file: file.document.file.clone(),
            line: file.document.place(&case.pointer).map_or(0, |place| place.line),
            name: case.name.clone(),
            hook: case.hook.clone(),
            seconds,
            mismatches: expect::compare(&case.expect, &actual),
            log: actual.logs.clone(),
            actual,
        });
    }
    Ok(ran)
}

/// What came of a run as the host sees it.
fn actual_of(tried: Tried) -> Actual {
    let Tried { outcome, operations, refused, values } = tried;
    let refused = refused.map(|failure| {
        let mut error = json!({"code": failure.reason, "message": failure.message});
        if let Some(hint) = failure.hint {
            error["hint"] = json!(hint);
        }
        error
    });
    let error = shown::error(&outcome.end).or(refused);
    let changes: &[_] = if error.is_none() { &outcome.values } else { &[] };
    Actual {
        changed: save::excerpt(&values, changes),
        metrics: if error.is_none() { shown::measurements(&outcome.metrics) } else { Vec::new() },
        error,
        operations: operations.iter().map(shown::operation).collect(),
        values: (*values).clone(),
        logs: outcome.log.iter().map(ToString::to_string).collect(),
    }
}

/// Rewrites the expectations of cases that fail, and compares again.
fn update(files: &[File], ran: &mut [Ran]) -> Result<(), Report> {
    for file in files {
        let mut changes = Vec::new();
        for one in ran.iter().filter(|one| one.file == file.document.file) {
            let Some(case) = file.cases.iter().find(|case| case.name == one.name) else { continue };
            let written = file.document.value.pointer(&case.pointer).and_then(|case| case.get("expect")).is_some();
            if !one.mismatches.is_empty() || !written {
                changes.push((case, expect::updated(&case.expect, written, &one.actual)));
            }
        }
        if changes.is_empty() {
            continue;
        }
        let text = rewrite::expectations(&file.document, &file.text, &changes)?;
        rewrite::write(&file.path, &text)?;
        let document = Document::parse(&file.document.file, &text).map_err(bad)?;
        let cases = case::parse(&document).map_err(bad)?;
        for one in ran.iter_mut().filter(|one| one.file == file.document.file) {
            if let Some(case) = cases.iter().find(|case| case.name == one.name) {
                one.mismatches = expect::compare(&case.expect, &one.actual);
            }
        }
        let count = changes.len();
        let cases = if count == 1 { "case" } else { "cases" };
        // Standard error may be closed; nothing depends on it.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}: {count} {cases} rewritten\n", printable(&file.document.file, false)),
        );
    }
    Ok(())
}

fn printed(ran: &[Ran], output: Output) -> Result<String, Report> {
    let failed = ran.iter().filter(|one| !one.mismatches.is_empty()).count();
    if output == Output::Table {
        return Ok(text(ran, failed));
    }
    let cases: Vec<Value> = ran
        .iter()
        .map(|one| {
            let mismatches = one
                .mismatches
                .iter()
                .map(|it| json!({"part": it.part, "message": it.message, "difference": it.difference}));
            json!({
                "file": one.file, "line": one.line, "name": one.name, "hook": one.hook,
                "ok": one.mismatches.is_empty(), "seconds": one.seconds,
                "mismatches": mismatches.collect::<Vec<_>>(), "log": one.log,
            })
        })
        .collect();
    let document = json!({"passed": ran.len() - failed, "failed": failed, "cases": cases});
    match output {
        Output::Yaml => app::yaml(&document),
        _ => Ok(format!("{document:#}\n")),
    }
}

fn text(ran: &[Ran], failed: usize) -> String {
    let mut text = String::new();
    for one in ran {
        let mark = if one.mismatches.is_empty() { "ok  " } else { "FAIL" };
        let line = format!("{mark} {}: {} ({:.1} ms)", one.hook, one.name, one.seconds * 1000.0);
        text.push_str(&printable(&line, false));
        text.push('\n');
        if one.mismatches.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "     {}:{}", printable(&one.file, false), one.line);
        for mismatch in &one.mismatches {
            let _ = writeln!(text, "     {}: {}", mismatch.part, printable(&mismatch.message, false));
            if !mismatch.difference.is_empty() {
                text.push_str("     --- expected\n     +++ found\n");
                let mut lines = String::new();
                crate::replay::difference(&mut lines, &mismatch.difference, coloured());
                lines.lines().for_each(|line| text.push_str(&format!("   {line}\n")));
            }
        }
        for line in &one.log {
            let _ = writeln!(text, "     log: {}", printable(line, false));
        }
    }
    let _ = writeln!(text, "{} passed, {failed} failed", ran.len() - failed);
    text
}
