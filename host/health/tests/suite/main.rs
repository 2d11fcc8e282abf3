//! The functions of this crate on the example objects of Argo CD, as they are and mutated.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends with a panic, also in what its functions share")]

mod builtin;
mod malformed;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Every example object with its file name, in the order of the names.
fn examples() -> Vec<(String, Value)> {
    // One of the examples says the same twice.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let mut examples: Vec<_> = fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let object = serde_saphyr::from_str_with_options(&fs::read_to_string(&path).unwrap(), options.clone())
                .unwrap_or_else(|error| panic!("{name} is not YAML: {error}"));
            (name, object)
        })
        .collect();
    examples.sort_by(|(one, _), (other, _)| one.cmp(other));
    examples
}
