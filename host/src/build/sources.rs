//! Whether a component is newer than all that it was made of.
//!
//! The compiler notes the sources of a crate, path dependencies included, in a dependency file. If that file is gone
//! (another target folder, components that were built elsewhere) the files of the crate and of the folders that its
//! manifest names have to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manifest::Names;

/// Deeper than any source tree, so that a loop of links ends.
const DEPTH_MAX: usize = 16;

pub(super) fn is_up_to_date(component: &Path, dir: &Path, target_dir: &Path, names: &Names) -> bool {
    let Some(built) = modified(component) else { return false };
    let note = target_dir.join("wasm32-unknown-unknown/release").join(format!("{}.d", names.library));
    let mut sources = match fs::read_to_string(&note).ok().and_then(|text| dependencies(&text)) {
        Some(noted) => noted,
        None => guessed(dir),
    };
    sources.extend(
        ["Cargo.toml", "Cargo.lock", "build.rs"].map(|file| dir.join(file)).into_iter().filter(|it| it.exists()),
    );
    // A source that is gone was removed, which is a change as well.
    sources.iter().all(|source| modified(source).is_some_and(|modified| modified < built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The paths of a dependency file in the format of make: `target: source source`, with `\ ` for a blank.
pub(super) fn dependencies(note: &str) -> Option<Vec<PathBuf>> {
    let line = note.lines().find(|line| line.split_once(": ").is_some_and(|(target, _)| target.ends_with(".wasm")))?;
    let (_, sources) = line.split_once(": ")?;
    let mut paths = vec![String::new()];
    let mut characters = sources.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.next_if_eq(&' ').is_some() => push(&mut paths, ' '),
            ' ' => paths.push(String::new()),
            other => push(&mut paths, other),
        }
    }
    Some(paths.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect())
}

fn push(paths: &mut [String], character: char) {
    if let Some(last) = paths.last_mut() {
        last.push(character);
    }
}

/// The files of a crate and of its path dependencies, without a compiler to ask.
fn guessed(dir: &Path) -> Vec<PathBuf> {
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
    let mut files = below(&dir.join("src"), 0);
    for dependency in super::manifest::paths(&manifest) {
        files.extend(below(&dir.join(dependency), 0));
    }
    files
}

fn below(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    if depth > DEPTH_MAX {
        return Vec::new();
    }
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            if !path.ends_with("target") {
                files.extend(below(&path, depth + 1));
            }
        } else {
            files.push(path);
        }
    }
    files
}
