//! Runs cargo, with bounds on its time and on what is kept of its output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::toolchain::TARGET;
use super::{BuildError, Toolchain};

/// What is kept of the beginning of the output, where the first error is, and of its end, where the summary is.
const HEAD_BYTES: usize = 12 << 10;
const TAIL_BYTES: usize = 4 << 10;

/// A message of cargo is one line; the longest lists the files of a crate.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;

/// A quarter of the usual stack of a guest, which is still half of what the host allows its own frames. The stack comes
/// first in memory: the smaller it is, the more of what a run touches lies in the part that the host keeps ready.
const RUSTFLAGS: &str = "-C link-arg=-zstack-size=262144";

const POLL: Duration = Duration::from_millis(20);

/// What of the surroundings would change the build.
const FOREIGN_VARIABLES: [&str; 6] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_PROFILE_RELEASE_DEBUG",
];

/// One build.
pub(super) struct Run<'a> {
    pub(super) name: &'a str,
    pub(super) dir: &'a Path,
    pub(super) target_dir: &'a Path,
    pub(super) locked: bool,
    pub(super) timeout: Duration,
}

impl Run<'_> {
    /// Builds the core module and gives its path.
    pub(super) fn build(&self, toolchain: &Toolchain) -> Result<PathBuf, BuildError> {
        let mut command = self.command(toolchain);
        let program = PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(|source| BuildError::Spawn { program: program.clone(), source })?;
        let module = child.stdout.take().map(|stdout| {
            let manifest = self.dir.join("Cargo.toml");
            thread::spawn(move || find_module(stdout, &manifest))
        });
        let output = child.stderr.take().map(|stderr| thread::spawn(move || Excerpt::read(stderr)));

        let status = wait(&mut child, self.timeout).map_err(|source| BuildError::Spawn { program, source })?;
        // A thread that panicked has found nothing.
        let module = module.and_then(|thread| thread.join().ok()).flatten();
        let output = output.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let name = self.name.to_owned();
        match status {
            None => Err(BuildError::TimedOut { name, limit: self.timeout, output }),
            Some(status) if !status.success() => Err(BuildError::Compile { name, status, output }),
            Some(_) => module.ok_or(BuildError::NoModule { name }),
        }
    }

    fn command(&self, toolchain: &Toolchain) -> Command {
        let mut command = match toolchain {
            Toolchain::Ready { cargo } => Command::new(cargo),
            Toolchain::FromSource { cargo, rustc, linker } => {
                let mut command = Command::new(cargo);
                // Debian's compiler is a stable one; building the standard library needs leave to use what is not.
                command.env("RUSTC_BOOTSTRAP", "1");
                command.env("RUSTC", rustc);
                command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
                command
            }
        };
        command.args([
            "build",
            "--release",
            "--lib",
            "--message-format",
            "json-render-diagnostics",
            "--target",
            TARGET,
        ]);
        command.arg("--target-dir").arg(self.target_dir);
        if matches!(toolchain, Toolchain::FromSource { .. }) {
            command.arg("-Zbuild-std=std,panic_abort");
        }
        if self.locked {
            command.arg("--locked");
        }
        for variable in FOREIGN_VARIABLES {
            command.env_remove(variable);
        }
        command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", RUSTFLAGS);
        command.env("CARGO_TERM_COLOR", "never");
        command.current_dir(self.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Waits for the end; `None` if the time was over and the child was killed.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Reads the messages of cargo for the module of the crate with this manifest.
fn find_module(stdout: impl Read, manifest: &Path) -> Option<PathBuf> {
    let mut reader = BufReader::new(stdout);
    let mut module = None;
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return module;
        }
        module = module_in(&line, manifest).or(module);
    }
}

pub(super) fn module_in(message: &[u8], manifest: &Path) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_slice(message).ok()?;
    let is_artifact = message["reason"] == "compiler-artifact";
    let is_ours = message["manifest_path"].as_str().is_some_and(|path| Path::new(path) == manifest);
    if !is_artifact || !is_ours {
        return None;
    }
    let files = message["filenames"].as_array()?.iter().filter_map(serde_json::Value::as_str);
    files.map(PathBuf::from).find(|path| path.extension().is_some_and(|extension| extension == "wasm"))
}

/// The beginning and the end of a text.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: usize,
}

impl Excerpt {
    fn read(mut source: impl Read) -> String {
        let mut excerpt = Self::default();
        let mut buffer = [0; 8 << 10];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            excerpt.add(buffer.get(..count).unwrap_or_default());
        }
        excerpt.into_text()
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.dropped += surplus;
    }

    pub(super) fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n… {} bytes left out …\n", self.dropped));
        }
        let tail: Vec<u8> = self.tail.into();
        text.push_str(&String::from_utf8_lossy(&tail));
        text
    }
}
