//! Compiling: the place where a hostile component costs most.
//!
//! The compiler runs in a child process with limits on its processor time, address space and wall-clock time, without
//! environment and files. What it makes is kept in the cache folder.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barbless_domain::limits::GuestLimits;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::config::Compiler;
use crate::error::{LoadError, SandboxError, seconds};
use crate::inspect::{self, Scan};
use crate::machine;
use crate::text::shown;

mod cache;

use cache::Cache;

/// Compilers at the same time. Each may use as much memory as its limit, and all processors.
const COMPILERS_MAX: usize = 2;
/// Threads of one compiler.
const THREADS: &str = "4";
/// Bytes of machine code for one byte of the largest component. Measured: 2 to 5 for real components, more for tiny ones
/// and for bombs; what exceeds it does not fit into memory in useful numbers.
const GROWTH: u64 = 16;
/// Bytes of machine code that even a tiny component may have.
const ARTEFACT_MIN: u64 = 16 * 1024 * 1024;
/// Bytes of an error of the compiler.
const ERROR_BYTES: u64 = 4096;
/// Exit code of a compiler that refuses the component.
const REFUSED: u8 = 3;
/// Exit code of a Rust program that panicked.
const PANICKED: i32 = 101;
/// Exit code of a compiler that could not do its work.
const BROKEN: u8 = 4;

/// Makes components.
pub(crate) struct Workshop {
    tools: Arc<Tools>,
    compiler: Compiler,
    benches: tokio::sync::Semaphore,
}

/// What work on another thread needs.
struct Tools {
    engine: Engine,
    limits: Arc<GuestLimits>,
    cache: Option<Cache>,
}

/// What a workshop makes.
pub(crate) struct Made {
    pub(crate) digest: String,
    pub(crate) scan: Scan,
    pub(crate) compiled: Component,
}

/// The order to a child, one line of JSON before the component.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    limits: GuestLimits,
}

impl Workshop {
    pub(crate) fn new(
        engine: Engine,
        limits: Arc<GuestLimits>,
        compiler: Compiler,
        cache: Option<PathBuf>,
    ) -> Result<Self, SandboxError> {
        let cache = cache.map(|path| Cache::open(path, &engine)).transpose()?;
        let tools = Arc::new(Tools { engine, limits, cache });
        Ok(Self { tools, compiler, benches: tokio::sync::Semaphore::new(COMPILERS_MAX) })
    }

    pub(crate) async fn make(&self, wasm: Vec<u8>) -> Result<Made, LoadError> {
        let wasm = Arc::new(wasm);
        let looked = {
            let (tools, wasm) = (Arc::clone(&self.tools), Arc::clone(&wasm));
            self.off_thread(move || tools.look(&wasm)).await?
        };
        let Looked { scan, digest, kept } = looked;
        let compiled = match kept {
            Some(compiled) => compiled,
            None => {
                let artefact = self.compile(&wasm).await?;
                let (tools, digest) = (Arc::clone(&self.tools), digest.clone());
                self.off_thread(move || cache::admit(&tools.engine, tools.cache.as_ref(), &digest, &artefact)).await?
            }
        };
        Ok(Made { digest: format!("sha256:{digest}"), scan, compiled })
    }

    /// Compiles a component of our own, which need not speak the contract and need not fit into the limits of those that
    /// do.
    pub(crate) async fn make_own(&self, wasm: &'static [u8]) -> Result<Component, LoadError> {
        let digest = hex(&Sha256::digest(wasm));
        let kept = {
            let (tools, digest) = (Arc::clone(&self.tools), digest.clone());
            self.off_thread(move || Ok(tools.cache.as_ref().and_then(|cache| cache.load(&tools.engine, &digest))))
                .await?
        };
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let artefact = self.compile(&Arc::new(wasm.to_vec())).await?;
        let tools = Arc::clone(&self.tools);
        self.off_thread(move || cache::admit(&tools.engine, tools.cache.as_ref(), &digest, &artefact)).await
    }

    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(LoadError::Compiler { source: std::io::Error::other(error) }),
        }
    }

    async fn compile(&self, wasm: &Arc<Vec<u8>>) -> Result<Vec<u8>, LoadError> {
        let _bench = self.benches.acquire().await;
        match &self.compiler {
            Compiler::InProcess => {
                let (tools, wasm) = (Arc::clone(&self.tools), Arc::clone(wasm));
                self.off_thread(move || {
                    tools.engine.precompile_component(&wasm).map_err(|error| LoadError::Compile { what: told(&error) })
                })
                .await
            }
            Compiler::Child { program, args } => {
                let mut command = tokio::process::Command::new(program);
                command.args(args);
                self.in_child(command, wasm).await
            }
        }
    }

    async fn in_child(&self, mut command: tokio::process::Command, wasm: &[u8]) -> Result<Vec<u8>, LoadError> {
        let broken = |source| LoadError::Compiler { source };
        let limits = &self.tools.limits;
        let component_bytes = limits.component_bytes.max(wasm.len() as u64);
        let order = Order { limits: GuestLimits { component_bytes, ..GuestLimits::clone(limits) } };
        let mut order = serde_json::to_vec(&order).map_err(|error| broken(std::io::Error::other(error)))?;
        order.push(b'\n');
        let mut child = command
            .env_clear()
            .env("RAYON_NUM_THREADS", THREADS)
            // Each arena of the allocator reserves address space, which is limited.
            .env("MALLOC_ARENA_MAX", "2")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(broken(std::io::Error::other("a pipe to the compiler is missing")));
        };
        let artefact_max = limits.component_bytes.saturating_mul(GROWTH).max(ARTEFACT_MIN);
        let talk = async {
            let feed = async {
                // A child that dies early closes the pipe; its exit status tells more than that.
                let _ = stdin.write_all(&order).await;
                let _ = stdin.write_all(wasm).await;
                drop(stdin);
            };
            let ((), artefact, complaint) =
                tokio::join!(feed, read(stdout, artefact_max.saturating_add(1)), read(stderr, ERROR_BYTES));
            Ok::<_, std::io::Error>((artefact?, complaint?, child.wait().await?))
        };
        let wall = Duration::from_millis(limits.compile_wall_ms);
        let talked = tokio::time::timeout(wall, talk).await;
        let (artefact, complaint, status) = match talked {
            Ok(result) => result.map_err(broken)?,
            Err(_elapsed) => {
                // Also when the future is dropped instead: `kill_on_drop`.
                let _ = child.kill().await;
                return Err(LoadError::CompileTime { clock: "wall-clock", limit_s: seconds(wall) });
            }
        };
        self.judge(artefact, &complaint, status, artefact_max)
    }

    fn judge(
        &self,
        artefact: Vec<u8>,
        complaint: &[u8],
        status: ExitStatus,
        artefact_max: u64,
    ) -> Result<Vec<u8>, LoadError> {
        use std::os::unix::process::ExitStatusExt as _;
        let limits = &self.tools.limits;
        if let Some(signal) = status.signal() {
            if signal == Signal::XCPU.as_raw() {
                return Err(LoadError::CompileTime { clock: "CPU", limit_s: limits.compile_cpu_s });
            }
            return Err(LoadError::CompilerDied { signal, limit_bytes: limits.compile_memory_bytes });
        }
        let what = shown(String::from_utf8_lossy(complaint).trim(), 1024);
        match status.code() {
            Some(0) if artefact.len() as u64 > artefact_max => Err(LoadError::TooLarge {
                what: "bytes of machine code",
                actual: artefact.len() as u64,
                limit: artefact_max,
            }),
            Some(0) => Ok(artefact),
            // A panic is a defect of the compiler, and this component meets it.
            Some(code) if code == i32::from(REFUSED) || code == PANICKED => Err(LoadError::Compile { what }),
            _ => Err(LoadError::Compiler { source: std::io::Error::other(format!("{status}: {what}")) }),
        }
    }
}

/// What is known of a component before it is compiled.
struct Looked {
    scan: Scan,
    digest: String,
    kept: Option<Component>,
}

impl Tools {
    fn look(&self, wasm: &[u8]) -> Result<Looked, LoadError> {
        let scan = inspect::scan(wasm, &self.limits)?;
        let digest = hex(&Sha256::digest(wasm));
        let kept = self.cache.as_ref().and_then(|cache| cache.load(&self.engine, &digest));
        if kept.is_none() {
            // What is in the cache was valid when it was put there.
            inspect::validate(wasm)?;
        }
        Ok(Looked { scan, digest, kept })
    }
}

async fn read(from: impl AsyncRead + Unpin, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn told(error: &wasmtime::Error) -> String {
    shown(&format!("{error:#}"), 1024)
}

/// `sha256:…` of bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The compiler: what the child process of [`Compiler::Child`] does and nothing else.
///
/// Limits itself, reads an order and a component from standard input, and writes machine code to standard output. Words
/// go to standard error. The caller should return the exit code at once.
#[must_use]
pub fn compile_main() -> ExitCode {
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, what)) => {
            // There is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "{what}");
            ExitCode::from(code)
        }
    }
}

fn compile() -> Result<(), (u8, String)> {
    let broken = |error: &dyn std::fmt::Display| (BROKEN, error.to_string());
    let mut stdin = std::io::stdin().lock();
    let mut order = Vec::new();
    std::io::BufRead::read_until(&mut stdin.by_ref().take(64 * 1024), b'\n', &mut order).map_err(|e| broken(&e))?;
    let Order { limits } = serde_json::from_slice(&order).map_err(|error| broken(&error))?;
    bound(&limits).map_err(|error| broken(&error))?;
    let mut wasm = Vec::new();
    stdin.take(limits.component_bytes.saturating_add(1)).read_to_end(&mut wasm).map_err(|error| broken(&error))?;
    let engine = Engine::new(&machine::settings(&limits)).map_err(|error| broken(&error))?;
    let artefact = engine.precompile_component(&wasm).map_err(|error| (REFUSED, told(&error)))?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&artefact).and_then(|()| stdout.flush()).map_err(|error| broken(&error))
}

/// Limits this process.
fn bound(limits: &GuestLimits) -> rustix::io::Result<()> {
    let both = |limit| Rlimit { current: Some(limit), maximum: Some(limit) };
    setrlimit(Resource::As, both(limits.compile_memory_bytes))?;
    // The soft limit sends a signal of its own, by which the parent knows the cause; the hard one kills.
    let cpu = limits.compile_cpu_s.max(1);
    setrlimit(Resource::Cpu, Rlimit { current: Some(cpu), maximum: Some(cpu.saturating_add(2)) })?;
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Fsize, both(0))?;
    setrlimit(Resource::Nofile, both(16))?;
    // Hooks that run come before hooks that are compiled; it is no harm if the system refuses.
    let _ = rustix::process::nice(10);
    Ok(())
}
