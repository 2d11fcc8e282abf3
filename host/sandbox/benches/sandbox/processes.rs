//! The small job as a process, as shell-operator runs hooks: the context is a file, and so is what comes out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::job;
use crate::timing::{Round, Stopwatch};

const BENCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");

/// A hook that is a process.
pub(crate) struct Process {
    program: PathBuf,
    args: Vec<OsString>,
    context: PathBuf,
    patch: PathBuf,
}

impl Process {
    /// The native program. Cargo builds examples only when asked by name, so it is built here, by the same profile.
    pub(crate) fn native(files: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // This program is `<target>/release/deps/sandbox-…`.
        let executable = std::env::current_exe().context("find this program")?;
        let profile = executable.ancestors().nth(2).context("this program is not in a target folder")?;
        let target = profile.parent().context("this program is not in a target folder")?;
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--release", "--example", "process-hook", "--manifest-path"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .status()
            .context("run cargo to build the native hook")?;
        ensure!(status.success(), "the native hook does not build");
        Ok(Self::new(target.join("release/examples/process-hook"), Vec::new(), files))
    }

    /// A script with one call of jq, if there are bash and jq.
    pub(crate) fn bash(files: &Path) -> Option<Self> {
        find("jq")?;
        Some(Self::new(find("bash")?, vec![format!("{BENCHES}/process/hook.sh").into()], files))
    }

    /// A script in Python, if there is one.
    pub(crate) fn python(files: &Path) -> Option<Self> {
        // What is first in the path may be a script that starts the interpreter, which would not be fair.
        let asked = Command::new(find("python3")?).args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
        let interpreter = String::from_utf8(asked.stdout).ok().filter(|_| asked.status.success())?;
        Some(Self::new(interpreter.trim().into(), vec![format!("{BENCHES}/process/hook.py").into()], files))
    }

    fn new(program: PathBuf, args: Vec<OsString>, files: &Path) -> Self {
        Self { program, args, context: files.join("context.json"), patch: files.join("patch.json") }
    }

    /// Starts it and waits for its end, many times. Writing the context and reading the patch, which the parent would
    /// also do, are not counted.
    pub(crate) fn measure(&self, runs: usize, context: &str) -> Result<Round> {
        std::fs::write(&self.context, context).context("write the context")?;
        let mut watch = Stopwatch::start(runs)?;
        for _ in 0..runs {
            let started = Instant::now();
            let status = Command::new(&self.program)
                .args(&self.args)
                .env("BINDING_CONTEXT_PATH", &self.context)
                .env("KUBERNETES_PATCH_PATH", &self.patch)
                .status()
                .with_context(|| format!("run {}", self.program.display()))?;
            watch.add(started.elapsed());
            ensure!(status.success(), "{} failed: {status}", self.program.display());
        }
        let round = watch.stop()?;
        self.check()?;
        Ok(round)
    }

    fn check(&self) -> Result<()> {
        let text = std::fs::read_to_string(&self.patch).context("read the patch")?;
        std::fs::remove_file(&self.patch).context("remove the patch")?;
        let patch: Value = serde_json::from_str(&text).context("the patch is not one JSON document")?;
        if patch != job::expected() {
            bail!("{} wrote another patch than expected: {patch}", self.program.display());
        }
        Ok(())
    }
}

/// A program in the search path.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
