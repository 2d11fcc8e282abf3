//! What the component of the evaluator was built from. Used by the tool that makes it and by the test that compares.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The folder of the evaluator.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../jq");

/// What is written down beside the component.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Artefact {
    /// Digest of the component.
    pub(crate) component: String,
    /// Its size.
    pub(crate) bytes: usize,
    /// Digest of its sources.
    pub(crate) sources: String,
    /// The compiler.
    pub(crate) compiler: String,
}

impl Artefact {
    pub(crate) fn read() -> Result<Self> {
        let path = Path::new(FOLDER).join("artefact.json");
        let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// `sha256:…` of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The digest of all files that the component is built from, with their names.
pub(crate) fn sources() -> Result<String> {
    let folder = Path::new(FOLDER);
    let mut files: Vec<PathBuf> = ["Cargo.toml", "Cargo.lock", "build"].map(PathBuf::from).to_vec();
    for part in ["src", "wit"] {
        for entry in std::fs::read_dir(folder.join(part))? {
            files.push(Path::new(part).join(entry?.file_name()));
        }
    }
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let content =
            std::fs::read(folder.join(&file)).with_context(|| format!("{} cannot be read", file.display()))?;
        all.extend(format!("{} {}\n", file.display(), content.len()).into_bytes());
        all.extend(content);
    }
    Ok(digest(&all))
}
