//! What compiles for wasm on this machine.
//!
//! Two kinds are known: a compiler with a ready standard library for `wasm32-unknown-unknown` (what rustup installs),
//! and Debian's packages, whose standard library is built along from its source. The second needs a linker for wasm,
//! which may be the one of rustup.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{BuildError, Tried};

pub(super) const TARGET: &str = "wasm32-unknown-unknown";

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";

/// A way to compile for wasm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolchain {
    /// The compiler has a standard library for the target.
    Ready {
        /// `cargo`
        cargo: PathBuf,
    },
    /// The standard library is built along.
    FromSource {
        /// `cargo`
        cargo: PathBuf,
        /// `rustc`
        rustc: PathBuf,
        /// A linker for wasm.
        linker: PathBuf,
    },
}

/// Finds the first that can be used. `dir` matters because rustup chooses by folder.
pub(super) fn find(dir: &Path, search_path: &OsStr) -> Result<Toolchain, BuildError> {
    let mut tried = Vec::new();
    let mut attempt = |toolchain: &str, result: Result<Toolchain, String>| match result {
        Ok(found) => Some(found),
        Err(problem) => {
            tried.push(Tried { toolchain: toolchain.to_owned(), problem });
            None
        }
    };
    let found = attempt("rustc and cargo on the search path", ready(dir, search_path))
        .or_else(|| attempt("/usr/bin/rustc with the source of the standard library", from_source(dir, search_path)));
    found.ok_or(BuildError::NoToolchain { tried })
}

fn ready(dir: &Path, search_path: &OsStr) -> Result<Toolchain, String> {
    let rustc = on_path("rustc", search_path).ok_or("no rustc")?;
    let cargo = on_path("cargo", search_path).ok_or("no cargo")?;
    let libraries = print(&rustc, dir, &["--print", "target-libdir", "--target", TARGET])?;
    if has_core(Path::new(&libraries)) {
        Ok(Toolchain::Ready { cargo })
    } else {
        Err(format!("{} has no standard library for {TARGET}", rustc.display()))
    }
}

fn has_core(libraries: &Path) -> bool {
    let is_core = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("libcore-"));
    std::fs::read_dir(libraries).is_ok_and(|entries| entries.flatten().any(|entry| is_core(&entry.file_name())))
}

fn from_source(dir: &Path, search_path: &OsStr) -> Result<Toolchain, String> {
    let (rustc, cargo) = (PathBuf::from(DEBIAN_RUSTC), PathBuf::from(DEBIAN_CARGO));
    for program in [&rustc, &cargo] {
        if !program.is_file() {
            return Err(format!("no {}", program.display()));
        }
    }
    let sysroot = PathBuf::from(print(&rustc, dir, &["--print", "sysroot"])?);
    let source = sysroot.join("lib/rustlib/src/rust/library/std/Cargo.toml");
    if !source.is_file() {
        return Err(format!("no source of the standard library ({} is missing)", source.display()));
    }
    let linker = linker(dir, search_path, &sysroot).ok_or("no linker for wasm (rust-lld, wasm-ld or lld)")?;
    Ok(Toolchain::FromSource { cargo, rustc, linker })
}

/// `rust-lld` of either compiler, or what the system has.
fn linker(dir: &Path, search_path: &OsStr, sysroot: &Path) -> Option<PathBuf> {
    let other_sysroot =
        on_path("rustc", search_path).and_then(|rustc| print(&rustc, dir, &["--print", "sysroot"]).ok());
    let sysroots = [other_sysroot.map(PathBuf::from), Some(sysroot.to_owned())];
    let own = sysroots.into_iter().flatten().flat_map(|sysroot| {
        let targets = std::fs::read_dir(sysroot.join("lib/rustlib")).into_iter().flatten().flatten();
        targets.map(|target| target.path().join("bin/rust-lld")).collect::<Vec<_>>()
    });
    let of_system = ["rust-lld", "wasm-ld", "lld"].into_iter().filter_map(|name| on_path(name, search_path));
    // `is_file` follows links: Debian ships one that leads nowhere unless another package is there.
    own.chain(of_system).find(|path| path.is_file()).or_else(|| versioned(search_path))
}

/// `wasm-ld-19` and the like, the newest.
fn versioned(search_path: &OsStr) -> Option<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.strip_prefix("wasm-ld-")?.parse::<u32>().ok();
    std::env::split_paths(search_path)
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.is_file())
        .filter_map(|path| version(&path).map(|version| (version, path)))
        .max()
        .map(|(_, path)| path)
}

fn on_path(program: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Asks a compiler for one line.
fn print(rustc: &Path, dir: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(rustc)
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} could not be run: {error}", rustc.display()))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        return Err(format!("{}: {complaint}", rustc.display()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
