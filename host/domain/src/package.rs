//! A package as an author publishes it: the manifest, the schemas, the list of components and charts.
//!
//! Files come in as bytes with their paths inside the package; where they are from is nobody's business here.
//! [`Package::load`] decides everything about a package apart from the contents of its components and templates, and
//! reports all problems of all files at once.

pub mod document;
mod manifest;
pub mod reader;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::document::Document;
pub use self::manifest::{Disable, Edition, Manifest, PackageType};
pub use self::reader::{kind, nearest};
use crate::declaration::v1;
use crate::schema::{Schema, SchemaDocument};

/// Manifest of a package.
pub const MANIFEST: &str = "package.yaml";
/// Schema of the settings.
pub const SETTINGS_SCHEMA: &str = "openapi/settings.yaml";
/// Older name of the schema of the settings, read only if there is no other.
pub const SETTINGS_SCHEMA_LEGACY: &str = "openapi/config-values.yaml";
/// Schema of the values.
pub const VALUES_SCHEMA: &str = "openapi/values.yaml";
/// Static values, the lowest layer.
pub const STATIC_VALUES: &str = "values.yaml";
/// Digests of the package's images.
pub const IMAGES_DIGESTS: &str = "images_digests.json";
/// Files of one package. A chart with dashboards and subcharts has a few hundred.
pub const FILES_MAX: usize = 10_000;
/// Components of one package; a component may hold many hooks.
pub const COMPONENTS_MAX: usize = 100;

/// One thing that is wrong with a file, a settings document or a values document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Stable reason in PascalCase, for conditions and tests.
    pub reason: String,
    /// File inside the package, or the name of a document such as `spec.settings`.
    pub file: String,
    /// Line, from 1, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Column, from 1, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// Where in the document, for example `requirements.modules.anyOf[0].name`; empty for the whole of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at a JSON pointer of a file.
    pub(crate) fn new(reason: &str, file: &str, pointer: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            file: file.to_owned(),
            line: None,
            column: None,
            path: dotted(pointer),
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    /// `package.yaml:3:1: requirements.kubernetes: …`, without the hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A JSON pointer as people write paths: `/a/0/b.c` is `a[0].["b.c"]`.
pub(crate) fn dotted(pointer: &str) -> String {
    use fmt::Write as _;
    let mut path = String::new();
    for segment in document::segments(pointer).unwrap_or_default() {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let outcome = if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            write!(path, "[{segment}]")
        } else if !segment.is_empty() && segment.chars().all(plain) {
            write!(path, "{}{segment}", if path.is_empty() { "" } else { "." })
        } else {
            write!(path, "[{segment:?}]")
        };
        debug_assert!(outcome.is_ok(), "writing to a string cannot fail");
    }
    path
}

/// The files of a package by path.
///
/// Paths are relative, with `/` and without `.` and `..`; [`PackageSource::insert`] refuses others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageSource {
    files: BTreeMap<String, Vec<u8>>,
}

impl PackageSource {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// A path that is absolute, empty or leads out of the package, or comes twice; too many files.
    pub fn insert(&mut self, path: &str, bytes: Vec<u8>) -> Result<(), Problem> {
        let odd = |segment: &str| segment.is_empty() || segment == "." || segment == "..";
        if path.len() > 1024 || path.split('/').any(odd) || path.contains(['\\', '\0']) {
            return Err(Problem::new("BadPath", path, "", "is no plain relative path"));
        }
        if self.files.len() >= FILES_MAX {
            return Err(Problem::new("TooManyFiles", path, "", format!("is one more than {FILES_MAX} files")));
        }
        match self.files.insert(path.to_owned(), bytes) {
            None => Ok(()),
            Some(_) => Err(Problem::new("DuplicateFile", path, "", "is there twice")),
        }
    }

    /// Adds a file; for tests and generated packages whose paths are known to be good.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.as_bytes().to_vec());
        self
    }

    /// Content of a file.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// All files, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Paths that begin with a folder.
    pub(crate) fn below(&self, folder: &str) -> impl Iterator<Item = &str> {
        self.files.range(folder.to_owned()..).map(|(path, _)| path.as_str()).take_while({
            let folder = folder.to_owned();
            move |path| path.starts_with(&folder)
        })
    }

    pub(crate) fn text(&self, path: &str) -> Option<Result<&str, Problem>> {
        let bytes = self.get(path)?;
        Some(std::str::from_utf8(bytes).map_err(|error| {
            let message = format!("is not UTF-8 text: the first bad byte is at {}", error.valid_up_to());
            Problem::new("NotUtf8", path, "", message)
        }))
    }

    /// `sha256:…` over all paths and contents.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for (path, bytes) in &self.files {
            for part in [path.as_bytes(), bytes.as_slice()] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        hex(&hasher.finalize())
    }
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn hex(digest: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(7 + digest.len() * 2);
    text.push_str("sha256:");
    for byte in digest {
        let outcome = write!(text, "{byte:02x}");
        debug_assert!(outcome.is_ok(), "writing to a string cannot fail");
    }
    text
}

/// A package of which everything but its components and templates has been checked.
#[derive(Debug, Clone)]
pub struct Package {
    /// `package.yaml`.
    pub manifest: Manifest,
    /// Schema of the settings; without one there can be no settings.
    pub settings_schema: Option<Schema>,
    /// Schema of the values, the settings included; without one all values are allowed.
    pub values_schema: Option<Schema>,
    /// `values.yaml`; an object.
    pub static_values: Map<String, Value>,
    /// Image name to `sha256:…`.
    pub images: BTreeMap<String, String>,
    /// Paths `hooks/*.wasm`, sorted.
    pub components: Vec<String>,
    /// Configurations of shell-operator in `hooks/bindings/`, by name of the hook that they are for.
    pub bindings: BTreeMap<String, v1::Configuration>,
    /// Whether there is something to render: `Chart.yaml` or `templates/`.
    pub has_chart: bool,
    /// All files.
    pub source: Arc<PackageSource>,
    /// `sha256:…` over all files.
    pub digest: String,
}

impl Package {
    /// Reads and checks a package.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn load(source: PackageSource) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let manifest = match source.text(MANIFEST) {
            Some(text) => text.map_err(|problem| vec![problem]).and_then(|text| Manifest::parse(MANIFEST, text)),
            None => Err(vec![
                Problem::new("ManifestMissing", MANIFEST, "", "is missing")
                    .hint("a package begins with a package.yaml that has type, name, version, stage and descriptions"),
            ]),
        };
        let manifest = keep(manifest, &mut problems);
        if manifest.as_ref().is_some_and(|manifest| manifest.package_type == PackageType::Module) {
            problems.push(
                Problem::new(
                    "PackageTypeUnsupported",
                    MANIFEST,
                    "/type",
                    "packages of type Module cannot be installed",
                )
                .hint("set `type: Application`"),
            );
        }
        let settings_file =
            if source.get(SETTINGS_SCHEMA).is_some() { SETTINGS_SCHEMA } else { SETTINGS_SCHEMA_LEGACY };
        let settings_document = schema_document(&source, settings_file, &mut problems);
        let values_document = schema_document(&source, VALUES_SCHEMA, &mut problems);
        let settings_schema =
            settings_document.as_ref().and_then(|document| keep(Schema::compile(document), &mut problems));
        let values_schema = values_document.and_then(|document| {
            let extended = keep(document.extended(settings_document.as_ref()), &mut problems)?;
            keep(Schema::compile(&extended), &mut problems)
        });
        let static_values = static_values(&source, &mut problems);
        let images = images(&source, &mut problems);
        let components: Vec<String> = source
            .below("hooks/")
            .filter(|path| path.ends_with(".wasm") && path.matches('/').count() == 1)
            .map(str::to_owned)
            .collect();
        if components.len() > COMPONENTS_MAX {
            let message = format!("{} components are more than {COMPONENTS_MAX}", components.len());
            problems.push(
                Problem::new("TooManyComponents", "hooks", "", message).hint("put several hooks into a component"),
            );
        }
        let (bindings, more) = v1::load(&source);
        problems.extend(more);
        let has_chart = source.get("Chart.yaml").is_some() || source.below("templates/").next().is_some();
        match manifest {
            Some(manifest) if problems.is_empty() => Ok(Self {
                manifest,
                settings_schema,
                values_schema,
                static_values,
                images,
                components,
                bindings,
                has_chart,
                digest: source.digest(),
                source: Arc::new(source),
            }),
            _ => Err(problems),
        }
    }

    /// Files of the chart, by path: `Chart.yaml`, `values.yaml`, `templates/`, `charts/` and `crds/`.
    pub fn chart_files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.source.iter().filter(|(path, _)| {
            matches!(*path, "Chart.yaml" | STATIC_VALUES)
                || ["templates/", "charts/", "crds/"].iter().any(|folder| path.starts_with(folder))
        })
    }

    /// Bytes of a component.
    #[must_use]
    pub fn component(&self, path: &str) -> Option<&[u8]> {
        self.source.get(path).filter(|_| self.components.iter().any(|component| component == path))
    }
}

fn keep<T>(result: Result<T, Vec<Problem>>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|more| problems.extend(more)).ok()
}

fn schema_document(source: &PackageSource, path: &str, problems: &mut Vec<Problem>) -> Option<SchemaDocument> {
    let text = source.text(path)?.map_err(|problem| vec![problem]);
    keep(text.and_then(|text| SchemaDocument::parse(path, text)), problems)
}

fn static_values(source: &PackageSource, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let Some(text) = source.text(STATIC_VALUES) else { return Map::new() };
    let document = text.map_err(|problem| vec![problem]).and_then(|text| Document::parse(STATIC_VALUES, text));
    match keep(document, problems) {
        Some(Document { value: Value::Object(values), .. }) => values,
        Some(Document { value: Value::Null, .. }) | None => Map::new(),
        Some(_) => {
            problems.push(Problem::new("BadType", STATIC_VALUES, "", "must be an object"));
            Map::new()
        }
    }
}

fn images(source: &PackageSource, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let Some(text) = source.text(IMAGES_DIGESTS) else { return BTreeMap::new() };
    // JSON is YAML, and so duplicate keys and places come for free.
    let document = text.map_err(|problem| vec![problem]).and_then(|text| Document::parse(IMAGES_DIGESTS, text));
    let Some(document) = keep(document, problems) else { return BTreeMap::new() };
    let Some(entries) = document.value.as_object() else {
        problems.push(document.problem("BadType", "", "must be an object from image name to digest"));
        return BTreeMap::new();
    };
    let mut images = BTreeMap::new();
    for (name, digest) in entries {
        let good = digest.as_str().filter(|digest| {
            let digits = digest.strip_prefix("sha256:").unwrap_or_default();
            digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        match good {
            Some(digest) => {
                images.insert(name.clone(), digest.to_owned());
            }
            None => problems.push(
                document
                    .problem("BadDigest", &document::join("", name), "must be 'sha256:' and 64 hexadecimal digits")
                    .hint("this file is written by the build; do not edit it"),
            ),
        }
    }
    images
}

#[cfg(test)]
mod tests;
