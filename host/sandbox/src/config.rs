//! What the sandbox is told when it is made.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use barbless_domain::limits::GuestLimits;

/// How the sandbox is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bounds of every guest. [`crate::Prepared::with_limits`] can only lower them.
    pub limits: GuestLimits,
    /// Calls that run guest code at the same time; others wait for a permit. More than there are processors only makes
    /// the slowest calls slower.
    pub in_flight: usize,
    /// Folder of compiled components, made with mode 0700 if it is not there. Several processes may share it. Without
    /// one, every load compiles.
    pub cache: Option<PathBuf>,
    /// Who compiles.
    pub compiler: Compiler,
    /// Accuracy of time limits, and the longest time for which a guest keeps an executor thread to itself.
    pub tick: Duration,
    /// Reserve address space for instances at the start (about 4 GiB for each memory of the pool) in place of asking
    /// the kernel at each call. Off only where address space is limited.
    pub pooling: bool,
}

impl Config {
    /// The settings of the design, with one call in flight for each processor, no cache, and the given compiler.
    #[must_use]
    pub fn new(compiler: Compiler) -> Self {
        Self {
            limits: GuestLimits::default(),
            in_flight: std::thread::available_parallelism().map_or(1, usize::from),
            cache: None,
            compiler,
            tick: Duration::from_millis(10),
            pooling: true,
        }
    }
}

/// Who compiles components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// A child process that calls [`crate::compile_main`]: bounded in time, CPU and memory, without environment.
    Child {
        /// The program; the host passes its own executable.
        program: PathBuf,
        /// Its arguments, such as a hidden subcommand.
        args: Vec<OsString>,
    },
    /// This process, without any bound on time or memory. For trusted components only, that is for tests and
    /// benchmarks: a hostile component of 300 KB keeps the compiler busy for minutes.
    InProcess,
}
