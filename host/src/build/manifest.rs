//! The two names that a manifest gives: of the package and of the library.
//!
//! Cargo is the one that understands manifests; but a component that is up to date must need no cargo, so these two
//! names are looked up by hand. Only `name = "…"` below `[package]` and `[lib]` is understood.

use std::fs;
use std::path::Path;

use super::BuildError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// Name of the package, and of the component.
    pub(super) package: String,
    /// Name of the library, and of the files of the compiler.
    pub(super) library: String,
}

pub(super) fn read(manifest: &Path) -> Result<Names, BuildError> {
    let text = fs::read_to_string(manifest).map_err(|source| BuildError::Read { path: manifest.to_owned(), source })?;
    names(&text).ok_or_else(|| BuildError::NoPackageName { manifest: manifest.to_owned() })
}

/// The names in the text of a manifest. A package name is part of a path, so only what cargo allows is taken.
pub(super) fn names(text: &str) -> Option<Names> {
    let mut section = "";
    let (mut package, mut library) = (None, None);
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default().trim();
        } else if let Some(name) = name_in(line) {
            match section {
                "package" => package = Some(name),
                "lib" => library = Some(name),
                _ => {}
            }
        }
    }
    let package = package.filter(|name| is_plain(name))?;
    let library = library.map_or_else(|| package.replace('-', "_"), str::to_owned);
    Some(Names { package: package.to_owned(), library })
}

/// The folders that dependencies name with `path = "…"` on one line.
pub(super) fn paths<'a>(text: &'a str) -> Vec<&'a str> {
    let path_in = |line: &'a str| line.split_once("path").and_then(|(_, rest)| quoted(rest));
    text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(path_in).collect()
}

fn name_in(line: &str) -> Option<&str> {
    quoted(line.strip_prefix("name")?)
}

/// The text of `= "…"`.
fn quoted(rest: &str) -> Option<&str> {
    let value = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    value.get(1..)?.split(quote).next()
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
}
