//! What packages cost that are loaded and idle.
//!
//! Memory is measured in a process of its own that only loads: what a compiler left behind on the heap would be reused,
//! and the result would be too small. That process has no compiler, so it fails if anything is not in the cache.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use barbless_domain::run::RunInput;
use barbless_sandbox::{Compiler, Config, Prepared, Sandbox};
use serde::{Deserialize, Serialize};

use crate::job;

/// First arguments of this program when it is one of the processes that fill the cache and load from it.
pub(crate) const FILL: &str = "--fill-cache";
pub(crate) const LOAD: &str = "--load-idle";

/// Memory of the loading process in bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Resident {
    /// Not backed by a file: heap, stacks, instances, pages of files that were written to.
    pub(crate) anonymous: u64,
    /// Resident pages of files, which the kernel can drop and read again.
    pub(crate) file: u64,
}

/// Memory at four moments.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Idle {
    pub(crate) packages: u64,
    /// One package is loaded and has run.
    before: Resident,
    half: Resident,
    loaded: Resident,
    /// Each package has run once, and its store is gone.
    ran: Resident,
    pub(crate) load_ms: f64,
}

impl Idle {
    pub(crate) fn loaded_each(&self) -> Resident {
        each(self.before, self.loaded, self.packages)
    }

    /// The second half alone: without what grows only once.
    pub(crate) fn second_half_each(&self) -> Resident {
        each(self.half, self.loaded, self.packages - self.packages / 2)
    }

    pub(crate) fn ran_each(&self) -> Resident {
        each(self.before, self.ran, self.packages)
    }
}

fn each(before: Resident, after: Resident, packages: u64) -> Resident {
    let share = |before: u64, after: u64| after.saturating_sub(before) / packages.max(1);
    Resident { anonymous: share(before.anonymous, after.anonymous), file: share(before.file, after.file) }
}

/// Measures in child processes.
pub(crate) fn measure(guest: &Path, cache: &Path, packages: u64) -> Result<Idle> {
    let child = |mode: &str| {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(mode).arg(guest).arg(cache).arg(packages.to_string()).stderr(Stdio::inherit());
        anyhow::Ok(command)
    };
    let status = child(FILL)?.status().context("fill the cache")?;
    ensure!(status.success(), "the cache cannot be filled");
    let output = child(LOAD)?.output().context("load the packages")?;
    ensure!(output.status.success(), "the packages cannot be loaded");
    serde_json::from_slice(&output.stdout).context("what the child says")
}

/// Compiles all copies that are not in the cache yet.
pub(crate) async fn fill(guest: &Path, cache: &Path, packages: u64) -> Result<()> {
    let sandbox = Sandbox::new(Config { cache: Some(cache.to_owned()), ..Config::new(Compiler::InProcess) })?;
    let wasm = std::fs::read(guest)?;
    for number in 0..=packages {
        sandbox.load(copy(&wasm, number)).await.context("the guest does not load")?;
    }
    Ok(())
}

/// Loads all copies and says what that took.
pub(crate) async fn load(guest: &Path, cache: &Path, packages: u64) -> Result<Idle> {
    let nobody = Compiler::Child { program: "/nonexistent".into(), args: Vec::new() };
    let sandbox = Sandbox::new(Config { cache: Some(cache.to_owned()), ..Config::new(nobody) })?;
    let wasm = std::fs::read(guest)?;
    let input = job::one_kilobyte().input;

    let first = job::prepare(&sandbox, copy(&wasm, 0)).await?;
    run(&first, &input).await?;
    let mut kept = Vec::with_capacity(usize::try_from(packages)?);
    let before = resident()?;
    let started = std::time::Instant::now();
    let mut half = before;
    for number in 1..=packages {
        kept.push(job::prepare(&sandbox, copy(&wasm, number)).await?);
        if number == packages / 2 {
            half = resident()?;
        }
    }
    let load_ms = started.elapsed().as_secs_f64() * 1000.0 / packages as f64;
    let loaded = resident()?;
    for prepared in &kept {
        run(prepared, &input).await?;
    }
    let ran = resident()?;
    Ok(Idle { packages, before, half, loaded, ran, load_ms })
}

async fn run(prepared: &Prepared, input: &Arc<RunInput>) -> Result<()> {
    job::check_patch(&prepared.run(input).await)
}

/// The component with a section of its own at the end, so that it has another digest.
fn copy(wasm: &[u8], number: u64) -> Vec<u8> {
    const NAME: &[u8] = b"copy";
    let mut copy = wasm.to_vec();
    // Section 0 (custom), its size, the size of its name: all below 128, so each is one byte.
    copy.extend([0, 1 + 4 + 8, 4]);
    copy.extend(NAME);
    copy.extend(number.to_le_bytes());
    copy
}

fn resident() -> Result<Resident> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").context("read /proc/self/smaps_rollup")?;
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).with_context(|| format!("/proc/self/smaps_rollup has no '{name}'"))
    };
    let (rss, anonymous) = (field("Rss:")?, field("Anonymous:")?);
    Ok(Resident { anonymous, file: rss.saturating_sub(anonymous) })
}
