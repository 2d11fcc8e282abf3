//! Builds the hooks of a package: each crate in `hooks/` becomes a component `hooks/<crate>.wasm`.
//!
//! Cargo makes a core module, `wit-component` makes a component of it, and the result is put in place by a rename, so
//! that nobody ever reads half a file. What compiles for wasm differs between machines, so several toolchains are tried,
//! and the error says what was tried and what to install.
//!
//! This module reads no environment: the caller hands it the search path and the target folder.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

mod cargo;
mod component;
mod error;
mod manifest;
mod sources;
#[cfg(test)]
mod tests;
mod toolchain;

pub use error::{BuildError, Tried};
pub use toolchain::Toolchain;

/// How hooks are built.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Build even if no source is newer than the component.
    pub force: bool,
    /// Folder for what the compiler leaves behind, shared by all crates; `target` in each crate without it.
    pub target_dir: Option<PathBuf>,
    /// Where programs are looked for; the search path of this process without it.
    pub search_path: Option<OsString>,
    /// Fail if the lock file of a crate would have to change.
    pub locked: bool,
    /// Time for one crate; 20 minutes without it, since a cold build of the standard library on a small machine takes
    /// several.
    pub timeout: Option<Duration>,
}

const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// A component that was built, or found up to date.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// Name of the crate.
    pub name: String,
    /// Path of the component.
    pub component: PathBuf,
    /// Size of the component.
    pub bytes: u64,
    /// `sha256:` and the hexadecimal digest of the component.
    pub digest: String,
    /// What it took.
    pub seconds: f64,
    /// No source was newer, so nothing was done.
    pub skipped: bool,
}

/// Whether a package has crates to build.
pub fn has_sources(package: &Path) -> bool {
    crates_in(&package.join("hooks")).is_ok_and(|crates| !crates.is_empty())
}

/// Builds every crate in the `hooks/` folder of a package, in the order of their folders. A package without that folder
/// has nothing to build.
///
/// # Errors
/// The first that a crate meets; components of crates before it stay built.
pub fn build_package(package: &Path, options: &Options) -> Result<Vec<Built>, BuildError> {
    let hooks = package.join("hooks");
    if package.is_dir() && !hooks.exists() {
        return Ok(Vec::new());
    }
    build_crates(&hooks, options)
}

/// Builds every crate in a folder, with the components beside the folders of the crates.
///
/// # Errors
/// As [`build_package`].
pub fn build_crates(dir: &Path, options: &Options) -> Result<Vec<Built>, BuildError> {
    let mut toolchain = None;
    let mut built = Vec::new();
    for dir_of_crate in crates_in(dir)? {
        let name = manifest::read(&dir_of_crate.join("Cargo.toml"))?.package;
        built.push(build(&dir_of_crate, &dir.join(format!("{name}.wasm")), options, &mut toolchain)?);
    }
    Ok(built)
}

/// Builds one crate into a component at `out`.
///
/// # Errors
/// No toolchain, a crate that does not compile, or one that is no hook component.
pub fn build_crate(dir: &Path, out: &Path, options: &Options) -> Result<Built, BuildError> {
    build(dir, out, options, &mut None)
}

/// The toolchain that a build in this folder would use.
///
/// # Errors
/// If there is none.
pub fn find_toolchain(dir: &Path, options: &Options) -> Result<Toolchain, BuildError> {
    toolchain::find(dir, &search_path(options))
}

/// The folders with a manifest, sorted.
fn crates_in(dir: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let read = |source| BuildError::Read { path: dir.to_owned(), source };
    let mut crates = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.join("Cargo.toml").is_file() {
            crates.push(path);
        }
    }
    crates.sort();
    Ok(crates)
}

fn build(dir: &Path, out: &Path, options: &Options, toolchain: &mut Option<Toolchain>) -> Result<Built, BuildError> {
    // Absolute, because cargo runs in the folder of the crate.
    let dir = &std::path::absolute(dir).map_err(|source| BuildError::Read { path: dir.to_owned(), source })?;
    let target_dir = match &options.target_dir {
        Some(shared) => {
            std::path::absolute(shared).map_err(|source| BuildError::Read { path: shared.clone(), source })?
        }
        None => dir.join("target"),
    };
    let names = manifest::read(&dir.join("Cargo.toml"))?;
    if !options.force && sources::is_up_to_date(out, dir, &target_dir, &names) {
        let bytes = read_bounded(out)?;
        return Ok(finished(names.package, out, &bytes, Duration::ZERO, true));
    }

    // A source that changes while the compiler runs must be newer than the component.
    let (begun, begun_at) = (Instant::now(), SystemTime::now());
    let toolchain = match toolchain {
        Some(found) => found,
        None => toolchain.insert(toolchain::find(dir, &search_path(options))?),
    };
    let run = cargo::Run {
        name: &names.package,
        dir,
        target_dir: &target_dir,
        locked: options.locked,
        timeout: options.timeout.unwrap_or(TIMEOUT),
    };
    let module = read_bounded(&run.build(toolchain)?)?;
    let component = component::encode(&names.package, &module)?;
    component::put(out, &component, begun_at)?;
    Ok(finished(names.package, out, &component, begun.elapsed(), false))
}

fn search_path(options: &Options) -> OsString {
    options.search_path.clone().or_else(|| std::env::var_os("PATH")).unwrap_or_default()
}

fn finished(name: String, out: &Path, component: &[u8], took: Duration, skipped: bool) -> Built {
    use std::fmt::Write as _;
    let mut digest = "sha256:".to_owned();
    for byte in Sha256::digest(component) {
        write!(digest, "{byte:02x}").expect("writing to a string cannot fail");
    }
    let bytes = component.len() as u64;
    Built { name, component: out.to_owned(), bytes, digest, seconds: took.as_secs_f64(), skipped }
}

/// Reads a module or component, which the host would not load if it were larger.
fn read_bounded(path: &Path) -> Result<Vec<u8>, BuildError> {
    let read = |source| BuildError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(read)?;
    file.take(component::BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > component::BYTES_MAX {
        return Err(BuildError::TooLarge { path: path.to_owned(), bytes_max: component::BYTES_MAX });
    }
    Ok(bytes)
}
