//! Why a sandbox cannot be made, or a component not be loaded, linked or asked. What a guest does is never one of these.

use std::time::Duration;

use barbless_domain::grant::Denial;
use barbless_domain::run::{LogLine, RunEnd};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The engine refuses its settings.
    #[error("the engine cannot be set up")]
    Engine {
        /// What it says.
        source: Source,
    },
    /// There is no thread for the clock of guests.
    #[error("the thread that limits the time of guests cannot be started")]
    Ticker {
        /// What the system says.
        source: std::io::Error,
    },
    /// The folder of compiled components cannot be used.
    #[error("the cache folder {path} cannot be used: {what}")]
    Cache {
        /// The folder.
        path: String,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

impl SandboxError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Engine { .. } => "SandboxEngine",
            Self::Ticker { .. } => "SandboxTicker",
            Self::Cache { .. } => "SandboxCache",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Engine { .. } => {
                "check the limits of guests: memory, tables and stack must be possible sizes".to_owned()
            }
            Self::Ticker { .. } => "raise the limit of threads of this process".to_owned(),
            Self::Cache { .. } => "give a folder on a disk with free space that only this user can write to".to_owned(),
        }
    }
}

/// Why a component cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There are no bytes.
    #[error("the component is empty")]
    Empty,
    /// It is something else.
    #[error("the file is not WebAssembly: it begins with {begins}")]
    NotWasm {
        /// The first bytes in hexadecimal.
        begins: String,
    },
    /// It is a core module.
    #[error("the file is a core module, not a component")]
    CoreModule,
    /// It ends in the middle.
    #[error("the component is truncated: more was expected after byte {offset}")]
    Truncated {
        /// Where.
        offset: u64,
    },
    /// It is damaged, or uses something that is switched off.
    #[error("the component is not valid at byte {offset}: {what}")]
    Malformed {
        /// Where.
        offset: u64,
        /// What.
        what: String,
    },
    /// It exceeds a bound.
    #[error("the component has {actual} {what}, more than {limit}")]
    TooLarge {
        /// What is too large or too many: `bytes`, `functions`, …
        what: &'static str,
        /// How many it has.
        actual: u64,
        /// How many it may have.
        limit: u64,
    },
    /// It imports something that no host of this contract has.
    #[error("the component imports '{import}', which is not part of the contract")]
    UnknownImport {
        /// The import.
        import: String,
    },
    /// It was built for a newer contract.
    #[error("the component uses '{name}' of a newer contract; this host speaks {host}")]
    NewerContract {
        /// Import or export.
        name: String,
        /// Version of the contract of this host.
        host: String,
    },
    /// It exports nothing that the host could call.
    #[error("the component exports none of the interfaces of the contract")]
    NoWorld {
        /// What it exports instead, shortened.
        exports: Vec<String>,
    },
    /// An interface of the contract is there, but with other functions or types.
    #[error("the component does not fit the contract: {what}")]
    WrongContract {
        /// What does not fit.
        what: String,
    },
    /// The compiler took too long.
    #[error("compiling the component took more than {limit_s} s of {clock} time")]
    CompileTime {
        /// `CPU` or `wall-clock`.
        clock: &'static str,
        /// The limit in seconds.
        limit_s: u64,
    },
    /// The compiler died, most likely for want of memory.
    #[error(
        "the compiler died of signal {signal}, most likely because it used more than {limit_bytes} bytes of memory"
    )]
    CompilerDied {
        /// Signal.
        signal: i32,
        /// Limit of its memory in bytes.
        limit_bytes: u64,
    },
    /// The compiler refused the component.
    #[error("the component cannot be compiled: {what}")]
    Compile {
        /// What the compiler says.
        what: String,
    },
    /// The compiler could not be started or talked to.
    #[error("the compiler cannot be run")]
    Compiler {
        /// What the system says.
        source: std::io::Error,
    },
    /// `describe` did not end well.
    #[error("the component does not describe its hooks: {end}")]
    Describe {
        /// How it ended.
        end: RunEnd,
        /// What it logged before.
        log: Vec<LogLine>,
    },
    /// `describe` gave something that cannot be used.
    #[error("the component declares its hooks wrongly: {what}")]
    BadDeclaration {
        /// What.
        what: String,
    },
    /// The engine refuses what was compiled.
    #[error("the engine cannot load the compiled component")]
    Engine {
        /// What it says.
        source: Source,
    },
}

impl LoadError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "ComponentEmpty",
            Self::NotWasm { .. } => "ComponentNotWasm",
            Self::CoreModule => "ComponentIsCoreModule",
            Self::Truncated { .. } => "ComponentTruncated",
            Self::Malformed { .. } => "ComponentMalformed",
            Self::TooLarge { .. } => "ComponentTooLarge",
            Self::UnknownImport { .. } => "ComponentUnknownImport",
            Self::NewerContract { .. } => "ComponentNewerContract",
            Self::NoWorld { .. } => "ComponentMissingExport",
            Self::WrongContract { .. } => "ComponentWrongContract",
            Self::CompileTime { .. } => "ComponentCompileTime",
            Self::CompilerDied { .. } => "ComponentCompilerDied",
            Self::Compile { .. } => "ComponentNotCompiled",
            Self::Compiler { .. } => "CompilerUnavailable",
            Self::Describe { .. } => "ComponentDescribeFailed",
            Self::BadDeclaration { .. } => "ComponentBadDeclaration",
            Self::Engine { .. } => "ComponentNotLoaded",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Empty | Self::Truncated { .. } => "build or copy the file again".to_owned(),
            Self::NotWasm { .. } => "a hook is a WebAssembly component (*.wasm)".to_owned(),
            Self::CoreModule => {
                "turn the module into a component, for example with `wasm-tools component new`, or build it with the SDK"
                    .to_owned()
            }
            Self::Malformed { .. } => {
                "build it again; threads, shared memory, 64-bit memory, garbage collection, exceptions and tail calls \
                 are switched off"
                    .to_owned()
            }
            Self::TooLarge { what, .. } => {
                format!("make the component smaller (optimise for size, strip it), or raise the limit of {what}")
            }
            Self::UnknownImport { .. } => {
                "a hook can import the interfaces of the contract and the basic ones of WASI 0.2; build it without what \
                 needs more"
                    .to_owned()
            }
            Self::NewerContract { .. } => "update the host, or build the component with an older SDK".to_owned(),
            Self::NoWorld { .. } => "build it with the SDK, or export `barbless:hooks/hooks`".to_owned(),
            Self::WrongContract { .. } => "build it against the files of the contract of this host".to_owned(),
            Self::CompileTime { .. } | Self::CompilerDied { .. } => {
                "split very large functions, or raise the limits of the compiler".to_owned()
            }
            Self::Compile { .. } | Self::Engine { .. } => "build it again with a current toolchain".to_owned(),
            Self::Compiler { .. } => "check that this host can start its own executable".to_owned(),
            Self::Describe { .. } => {
                "`describe` must return quickly and use nothing but `log`; the log lines of the hook may tell more"
                    .to_owned()
            }
            Self::BadDeclaration { .. } => "correct the declaration in the source of the hook".to_owned(),
        }
    }
}

/// Why a component cannot be linked for an application.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// It imports an interface that is not granted.
    #[error("the component imports '{import}', which is not granted")]
    NotGranted {
        /// The import.
        import: String,
        /// The decision.
        #[source]
        denial: Denial,
    },
    /// The engine cannot link it, although everything it imports is granted.
    #[error("the component cannot be linked")]
    Link {
        /// What the engine says.
        source: Source,
    },
}

impl PrepareError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotGranted { .. } => "InterfaceNotGranted",
            Self::Link { .. } => "ComponentNotLinked",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotGranted { denial, .. } => denial.hint.clone(),
            Self::Link { .. } => "build the component against the files of the contract of this host".to_owned(),
        }
    }
}

/// Why a call other than `run` gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The component does not export it.
    #[error("the component does not export '{export}'")]
    NotExported {
        /// The interface.
        export: &'static str,
    },
    /// It did not end well.
    #[error("'{export}' failed: {end}")]
    Ended {
        /// The interface.
        export: &'static str,
        /// How it ended.
        end: RunEnd,
    },
    /// The guest gave an error as its answer.
    #[error("'{export}' refused: {message}")]
    Refused {
        /// The interface.
        export: &'static str,
        /// The guest's words.
        message: String,
    },
}

impl CallError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotExported { .. } => "ComponentMissingExport",
            Self::Ended { end, .. } => end.reason(),
            Self::Refused { .. } => "GuestRefused",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotExported { export } => format!("build the component with a world that exports '{export}'"),
            Self::Ended { .. } => "the log lines of the call may tell more".to_owned(),
            Self::Refused { .. } => "correct what the component was asked about".to_owned(),
        }
    }
}

pub(crate) fn seconds(limit: Duration) -> u64 {
    limit.as_secs()
}
