//! Reads a package from a folder: the files that belong to a bundle, bounded, and no link followed.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use barbless_domain::declaration::v1;
use barbless_domain::event::Failure;
use barbless_domain::package::PackageSource;
use futures::future::BoxFuture;

use crate::driver::instance::Bundles;
use crate::report::Report;

/// Bytes of one file of a package; a component is bounded again by the sandbox.
const FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes of a whole package.
const PACKAGE_BYTES: u64 = 256 * 1024 * 1024;
/// Folders below each other.
const DEPTH: usize = 16;

/// Packages in a folder of this machine: one folder, one version.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The package in this folder.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl Bundles for Folder {
    fn fetch<'a>(&'a self, _version: &'a str) -> BoxFuture<'a, Result<PackageSource, Failure>> {
        let path = self.path.clone();
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || read(&path)).await {
                Ok(source) => source.map_err(Failure::from),
                Err(error) => Err(Failure::new("InternalError", format!("reading the package: {error}"))),
            }
        })
    }
}

/// Whether a path belongs to a bundle: sources of hooks, test cases, hidden files and what compilers leave do not.
fn belongs(path: &str) -> bool {
    match path.split_once('/') {
        None => path != "dev.yaml",
        // All of it: a link or a file with a wrong ending is told rather than not read.
        Some(_) if is_of_bindings(path) => true,
        Some(("hooks", rest)) => rest.ends_with(".wasm") && !rest.contains('/'),
        Some((first, _)) => first != "target" && first != crate::fixtures::FOLDER,
    }
}

/// Whether a path is that of the folder of configurations of hooks, or below it.
fn is_of_bindings(path: &str) -> bool {
    let folder = v1::FOLDER.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the files of a package.
///
/// # Errors
/// If the folder is none, a file cannot be read, or a bound is exceeded.
pub fn read(folder: &Path) -> Result<PackageSource, Report> {
    let shown = folder.display().to_string();
    if !folder.is_dir() {
        return Err(Report::new("PackageNotFound", "there is no such folder")
            .at(shown)
            .hint("give the folder that holds package.yaml")
            .exit(crate::report::Exit::NotFound));
    }
    below(folder, "")
}

/// Reads the configurations of hooks of the package that a component is in; none if it is in no package.
///
/// # Errors
/// As [`read`].
pub(crate) fn bindings_beside(component: &Path) -> Result<PackageSource, Report> {
    let none = Ok(PackageSource::new());
    // The path itself may be one such as `main.wasm`, or a link.
    let Ok(component) = component.canonicalize() else { return none };
    let inner = v1::FOLDER.trim_end_matches('/');
    let Some(hooks) = component.parent().filter(|hooks| hooks.ends_with("hooks")) else { return none };
    let Some(folder) = hooks.parent().map(|package| package.join(inner)) else { return none };
    let there = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    if there { below(&folder, inner) } else { none }
}

/// Reads what belongs to a bundle below a folder, whose own path in the package is this.
fn below(folder: &Path, path: &str) -> Result<PackageSource, Report> {
    let mut source = PackageSource::new();
    let mut bytes_left = PACKAGE_BYTES;
    let mut open: Vec<(PathBuf, String, usize)> = vec![(folder.to_owned(), path.to_owned(), 0)];
    while let Some((at, prefix, depth)) = open.pop() {
        let failed =
            |error: &std::io::Error| Report::new("PackageUnreadable", error.to_string()).at(at.display().to_string());
        for entry in fs::read_dir(&at).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let path = entry.path();
            let place = path.display().to_string();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(Report::new("BadPath", "the name is not UTF-8").at(place));
            };
            let inner = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            // `.helmignore` is part of a chart; other hidden files are somebody's own.
            if name.starts_with('.') && name != ".helmignore" {
                continue;
            }
            let kind = entry.file_type().map_err(|error| failed(&error))?;
            if kind.is_dir() {
                let left_out = inner == "target" || inner == crate::fixtures::FOLDER;
                if (inner.starts_with("hooks/") && !is_of_bindings(&inner)) || left_out {
                    continue;
                }
                if depth >= DEPTH {
                    return Err(
                        Report::new("PackageTooDeep", format!("more than {DEPTH} folders below each other")).at(place)
                    );
                }
                open.push((path, inner, depth + 1));
            } else if !belongs(&inner) {
                // Not part of the bundle.
            } else if kind.is_symlink() {
                return Err(Report::new("PackageLink", "a package must not contain links")
                    .at(place)
                    .hint("replace the link by the file that it leads to"));
            } else if kind.is_file() {
                let bytes =
                    read_bounded(&path, FILE_BYTES.min(bytes_left)).map_err(|report| report.at(place.clone()))?;
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                source.insert(&inner, bytes).map_err(|problem| Report::new(&problem.reason, problem.to_string()))?;
            } else {
                return Err(Report::new("PackageOddFile", "neither a file nor a folder").at(place));
            }
        }
    }
    Ok(source)
}

/// Reads a file of at most so many bytes.
///
/// # Errors
/// If it cannot be read, or is larger.
pub fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, Report> {
    let unreadable = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => crate::report::Exit::NotFound,
            _ => crate::report::Exit::Failed,
        };
        Report::new("FileUnreadable", error.to_string()).exit(exit)
    };
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(Report::new("FileTooLarge", format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_has_components_and_templates_but_no_sources() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for path in [
            "package.yaml",
            "dev.yaml",
            "templates/a/b.yaml",
            "hooks/h.wasm",
            "hooks/h/src/lib.rs",
            "hooks/bindings/h.yaml",
            "hooks/bindings/shop/i.yaml",
            ".git/x",
            "openapi/values.yaml",
            "tests/a.yaml",
        ] {
            write(path);
        }
        let source = read(folder.path()).unwrap();
        let paths: Vec<&str> = source.iter().map(|(path, _)| path).collect();
        let bindings = ["hooks/bindings/h.yaml", "hooks/bindings/shop/i.yaml"];
        let rest = ["hooks/h.wasm", "openapi/values.yaml", "package.yaml", "templates/a/b.yaml"];
        assert_eq!(paths, [&bindings[..], &rest[..]].concat());
        let source = bindings_beside(&folder.path().join("hooks/h.wasm")).unwrap();
        let paths: Vec<&str> = source.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, bindings);
        // A component that is in no package has none.
        write("lib/h.wasm");
        write("lib/bindings/h.yaml");
        assert_eq!(bindings_beside(&folder.path().join("lib/h.wasm")).unwrap(), PackageSource::new());
    }

    #[test]
    fn links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("package.yaml")).unwrap();
        assert_eq!(read(folder.path()).unwrap_err().code, "PackageLink");
    }

    #[test]
    fn a_missing_folder_is_not_found() {
        let report = read(Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!((report.code.as_str(), report.exit), ("PackageNotFound", crate::report::Exit::NotFound));
    }
}
