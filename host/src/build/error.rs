//! Why hooks could not be built.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a package could not be built. What is long (the output of the compiler) is in [`BuildError::detail`].
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or folder cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A manifest names no package.
    #[error("{} has no name in its [package] section", manifest.display())]
    NoPackageName {
        /// The manifest.
        manifest: PathBuf,
    },
    /// Nothing on this machine compiles for wasm.
    #[error("no Rust toolchain for wasm32-unknown-unknown was found")]
    NoToolchain {
        /// What was tried, in order.
        tried: Vec<Tried>,
    },
    /// A program of the toolchain could not be started.
    #[error("{} could not be run", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The crate does not compile.
    #[error("hook crate {name} does not compile ({status})")]
    Compile {
        /// The crate.
        name: String,
        /// How cargo ended.
        status: std::process::ExitStatus,
        /// What cargo said, bounded.
        output: String,
    },
    /// The compiler took too long and was stopped.
    #[error("building hook crate {name} took longer than {} s and was stopped", limit.as_secs())]
    TimedOut {
        /// The crate.
        name: String,
        /// Its time.
        limit: Duration,
        /// What cargo had said, bounded.
        output: String,
    },
    /// The crate makes no wasm module.
    #[error("hook crate {name} makes no wasm module")]
    NoModule {
        /// The crate.
        name: String,
    },
    /// A module or component is too large to be loaded.
    #[error("{} is larger than {} MiB", path.display(), bytes_max >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// The module cannot become a component.
    #[error("the module of hook crate {name} cannot become a component")]
    Encode {
        /// The crate.
        name: String,
        /// What `wit-component` says.
        detail: String,
    },
    /// The component exports nothing that the host knows.
    #[error("hook crate {name} exports no hooks")]
    NoHooks {
        /// The crate.
        name: String,
    },
    /// The component cannot be put in place.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The component.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl BuildError {
    /// A stable name in PascalCase.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "BuildInputUnreadable",
            Self::NoPackageName { .. } => "HookManifestInvalid",
            Self::NoToolchain { .. } => "GuestToolchainMissing",
            Self::Spawn { .. } => "GuestToolchainBroken",
            Self::Compile { .. } => "HookDoesNotCompile",
            Self::TimedOut { .. } => "HookBuildTimedOut",
            Self::NoModule { .. } => "HookModuleMissing",
            Self::TooLarge { .. } => "ComponentTooLarge",
            Self::Encode { .. } => "ComponentEncodingFailed",
            Self::NoHooks { .. } => "HooksMissing",
            Self::Write { .. } => "BuildOutputUnwritable",
        }
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoToolchain { .. } => INSTALL,
            Self::NoModule { .. } => "add `[lib] crate-type = [\"cdylib\", \"rlib\"]` to its Cargo.toml",
            Self::NoHooks { .. } => "write `barbless_sdk::component!();` once at the top level of the crate",
            Self::TooLarge { .. } => "set `opt-level = \"s\"`, `lto = true` and `strip = true` in `[profile.release]`",
            Self::Encode { .. } => {
                "the module may import only what the contract has: no other crate may call into the environment"
            }
            Self::TimedOut { .. } => "build it once by hand, or give more time",
            Self::NoPackageName { .. } => "each folder in hooks/ with a Cargo.toml is built: give it `[package] name`",
            Self::Compile { .. } => "the first error of the compiler is the one to look at",
            Self::Spawn { .. } | Self::Read { .. } | Self::Write { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// What belongs to it and has several lines: the output of the compiler, or what was tried.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NoToolchain { tried } => {
                let lines: Vec<String> = tried.iter().map(ToString::to_string).collect();
                Some(lines.join("\n"))
            }
            Self::Compile { output, .. } | Self::TimedOut { output, .. } => Some(output.clone()),
            Self::Encode { detail, .. } => Some(detail.clone()),
            _ => None,
        }
    }
}

const INSTALL: &str = "install one of these:\n\
    - with rustup: `rustup target add wasm32-unknown-unknown`\n\
    - on Debian: `apt-get install rustc-web cargo-web rust-web-src lld` (the standard library is then built along)";

/// A toolchain that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What it was.
    pub toolchain: String,
    /// Why it cannot be used.
    pub problem: String,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.toolchain, self.problem)
    }
}
