//! Measures the sandbox beside processes that do the same, in one run and on one core.
//!
//! `docs/benchmarks.md` says what each figure means. Arguments after `--`: `--rounds N`, `--packages N` (0 leaves out
//! the memory of idle packages).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to people")]

mod job;
mod memory;
mod processes;
mod report;
mod timing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use barbless_domain::run::{RunInput, RunOutcome};
use barbless_sandbox::{Compiler, Config, Prepared, Sandbox};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::processes::Process;
use crate::report::Report;
use crate::timing::{Round, Stopwatch};

/// Runs in a round. A round of a process is long enough that the kernel's count of processor time is exact to 2 %.
const RUNS_SMALL: usize = 10_000;
const RUNS_LARGE: usize = 200;
const RUNS_NATIVE: usize = 500;
const RUNS_SCRIPT: usize = 100;
/// Runs before the first round.
const WARM_UP: usize = 1_000;

struct Options {
    rounds: usize,
    packages: u64,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [memory::FILL, guest, cache, packages] => {
            runtime.block_on(memory::fill(Path::new(guest), Path::new(cache), packages.parse()?))
        }
        [memory::LOAD, guest, cache, packages] => {
            let idle = runtime.block_on(memory::load(Path::new(guest), Path::new(cache), packages.parse()?))?;
            println!("{}", serde_json::to_string(&idle)?);
            Ok(())
        }
        args => bench(&runtime, &options(args)?),
    }
}

fn options(args: &[&str]) -> Result<Options> {
    let mut options = Options { rounds: 5, packages: 1_000 };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut number = || args.next().with_context(|| format!("{arg} needs a number"));
        match arg {
            "--rounds" => options.rounds = number()?.parse::<usize>()?.max(1),
            "--packages" => options.packages = number()?.parse()?,
            // Cargo says so to every benchmark.
            "--bench" => {}
            other => bail!("unknown argument {other:?}: there are --rounds N and --packages N"),
        }
    }
    Ok(options)
}

fn bench(runtime: &tokio::runtime::Runtime, options: &Options) -> Result<()> {
    let guest = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/guest.wasm"));
    build_guest(&guest)?;
    let files = tempfile::tempdir().context("make a folder for the files of the processes")?;
    eprintln!("building the native hook");
    let native = Process::native(files.path())?;
    let bash = Process::bash(files.path());
    let python = Process::python(files.path());
    let cache = cache()?;

    let idle = match options.packages {
        0 => None,
        packages => {
            eprintln!(
                "loading {packages} packages; those that are not in the cache yet are compiled, which takes minutes"
            );
            Some(memory::measure(&guest, &cache, packages)?)
        }
    };

    // The ticker and all children inherit it.
    pin()?;
    let sandbox = Sandbox::new(Config { cache: Some(cache), ..Config::new(Compiler::InProcess) })?;
    let prepared = runtime.block_on(job::prepare(&sandbox, std::fs::read(&guest)?))?;
    let (small, empty) = (job::one_kilobyte(), job::empty());
    let (large, large_bytes) = job::five_megabytes();
    runtime.block_on(runs(&prepared, &small.input, WARM_UP, job::check_patch))?;
    runtime.block_on(runs(&prepared, &large, 10, job::check_seen))?;

    let mut report = Report::new(small.context.len(), large_bytes, idle);
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        report.small.push(runtime.block_on(runs(&prepared, &small.input, RUNS_SMALL, job::check_patch))?);
        report.empty.push(runtime.block_on(runs(&prepared, &empty, RUNS_SMALL, job::check_nothing))?);
        report.large.push(runtime.block_on(runs(&prepared, &large, RUNS_LARGE, job::check_seen))?);
        report.native.push(native.measure(RUNS_NATIVE, &small.context)?);
        for (process, rounds) in [(&bash, &mut report.bash), (&python, &mut report.python)] {
            if let Some(process) = process {
                rounds.push(process.measure(RUNS_SCRIPT, &small.context)?);
            }
        }
    }
    print!("{report}");
    Ok(())
}

/// Runs a hook many times, each time in a store of its own.
async fn runs(
    prepared: &Prepared,
    input: &Arc<RunInput>,
    runs: usize,
    check: fn(&RunOutcome) -> Result<()>,
) -> Result<Round> {
    let mut watch = Stopwatch::start(runs)?;
    for _ in 0..runs {
        let started = Instant::now();
        let outcome = prepared.run(input).await;
        let wall = started.elapsed();
        check(&outcome)?;
        let started = Instant::now();
        drop(outcome);
        watch.add(wall + started.elapsed());
    }
    watch.stop()
}

/// The component of the hooks is built by the program `barbless`: the one that the environment names, or else the one
/// of this workspace if the component is not there yet.
fn build_guest(guest: &Path) -> Result<()> {
    const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");
    let mut command = match std::env::var_os("BARBLESS") {
        Some(barbless) => std::process::Command::new(barbless),
        None if guest.is_file() => return Ok(()),
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = std::process::Command::new(cargo);
            command.args(["run", "--quiet", "-p", "barbless", "--"]);
            command
        }
    };
    command.args(["build", CRATES, "--crates"]);
    let status = command.status().with_context(|| format!("run {}", command.get_program().display()))?;
    ensure!(status.success() && guest.is_file(), "the guest does not build");
    Ok(())
}

/// Beside this program in the target folder, so that copies are compiled once.
fn cache() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("find this program")?;
    let profile = executable.ancestors().nth(2).context("this program is not in a target folder")?;
    Ok(profile.join("sandbox-bench-cache"))
}

/// Keeps this process on the last of the cores that it may use: interrupts are mostly taken by the first.
fn pin() -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).rev().find(|&core| allowed.is_set(core)).context("no processor is allowed")?;
    let mut one = CpuSet::new();
    one.set(core);
    Ok(sched_setaffinity(None, &one)?)
}
