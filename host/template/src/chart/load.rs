//! Files to charts.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::{Map, Value as Json};

use super::{Chart, Dependency, Metadata, archive, ignore::IgnoreRules};
use crate::{
    error::{Error, Kind},
    funcs::semver::Version,
    limits::{Limit, Limits},
    manifest, set, yaml,
};

/// Charts inside charts. Real ones go three levels deep.
const NESTING_MAX: usize = 10;

/// Files that are neither templates nor shown in `.Files`.
const NOT_FILES: &[&str] =
    &["Chart.yaml", "Chart.lock", "values.yaml", "values.schema.json", "requirements.yaml", "requirements.lock"];

pub(crate) fn is_crd(path: &str) -> bool {
    path.starts_with("crds/") && (path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json"))
}

/// A scalar of `Chart.yaml` as text: versions that someone forgot to quote.
pub(super) fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        Json::Number(number) => match number.as_i64() {
            Some(int) => int.to_string(),
            None => crate::gofmt::float(number.as_f64().unwrap_or(0.0)),
        },
        other => other.to_string(),
    }
}

pub(super) fn load(files: &BTreeMap<String, Vec<u8>>, limits: &Limits) -> Result<Chart, Error> {
    let rules = match files.get(".helmignore") {
        Some(text) => IgnoreRules::parse(&String::from_utf8_lossy(text)).map_err(|e| Error::chart(".helmignore", e))?,
        None => IgnoreRules::default(),
    };
    let kept = files.iter().filter(|(path, _)| !rules.ignores(path));
    let kept: BTreeMap<String, Vec<u8>> = kept.map(|(path, content)| (path.clone(), content.clone())).collect();
    load_at(&kept, "", limits, 0)
}

/// `prefix` is where the chart lies in the whole, for messages.
fn load_at(files: &BTreeMap<String, Vec<u8>>, prefix: &str, limits: &Limits, depth: usize) -> Result<Chart, Error> {
    let at = |path: &str| format!("{prefix}{path}");
    if depth > NESTING_MAX {
        return Err(Error::chart(prefix, format!("charts are nested deeper than {NESTING_MAX}")));
    }
    let Some(text) = text(files, "Chart.yaml") else {
        return Err(Error::chart(&at("Chart.yaml"), "Chart.yaml file is missing"));
    };
    let mut metadata = metadata(&read_map(&at("Chart.yaml"), &text, limits)?, &at("Chart.yaml"))?;
    if let Some(text) = self::text(files, "requirements.yaml")
        && !metadata.declares_dependencies
    {
        let required = read_map(&at("requirements.yaml"), &text, limits)?;
        declare(&mut metadata, required.get("dependencies"), &at("requirements.yaml"))?;
    }
    let values = match self::text(files, "values.yaml") {
        Some(text) => read_values(&at("values.yaml"), &text, limits)?,
        None => Map::new(),
    };
    let mut chart = Chart {
        metadata,
        values,
        schema: self::text(files, "values.schema.json"),
        templates: Vec::new(),
        files: BTreeMap::new(),
        crds: Vec::new(),
        children: Vec::new(),
    };
    let mut below: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for (path, content) in files {
        if path.starts_with("templates/") {
            chart.templates.push((path.clone(), self::text(files, path).unwrap_or_default()));
        } else if let Some(rest) = path.strip_prefix("charts/") {
            match rest.split_once('/') {
                Some((folder, inner)) if !folder.starts_with(['_', '.']) => {
                    below.entry(folder.to_string()).or_default().insert(inner.to_string(), content.clone());
                }
                None if rest.ends_with(".tgz") && !rest.starts_with(['_', '.']) => {
                    let unpacked = archive::unpack(content, limits).map_err(|e| Error::chart(&at(path), e))?;
                    below.insert(rest.to_string(), unpacked);
                }
                _ => {}
            }
        } else if !NOT_FILES.contains(&path.as_str()) {
            if is_crd(path) {
                chart.crds.push((path.clone(), self::text(files, path).unwrap_or_default()));
            }
            chart.files.insert(path.as_str().into(), Rc::from(content.as_slice()));
        }
    }
    for (folder, files) in below {
        chart.children.push(load_at(&files, &format!("{prefix}charts/{folder}/"), limits, depth + 1)?);
    }
    Ok(chart)
}

fn text(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Option<String> {
    let text = String::from_utf8_lossy(files.get(path)?);
    Some(text.strip_prefix('\u{feff}').unwrap_or(&text).to_string())
}

fn read_map(path: &str, text: &str, limits: &Limits) -> Result<Map<String, Json>, Error> {
    read_map_at(path, text, 1, limits)
}

fn read_map_at(path: &str, text: &str, first_line: usize, limits: &Limits) -> Result<Map<String, Json>, Error> {
    match yaml::read(text, limits.document_nodes) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(Json::Null) => Ok(Map::new()),
        Ok(other) => Err(Error::chart(
            path,
            format!("cannot load {path}: it is of type {}, not a map", crate::json::kind(&other)),
        )),
        Err(error) if error.too_large => Err(Error::limit(path, Limit::Document)),
        Err(error) => {
            let message = format!("cannot load {path}: error converting YAML to JSON: {}", error.message);
            let line = first_line + error.line.max(1) - 1;
            let snippet = text.lines().nth(error.line.max(1) - 1).map(str::to_string);
            Err(Error { kind: Kind::Chart, line, column: error.column + 1, snippet, ..Error::chart(path, message) })
        }
    }
}

/// Values out of a file as Helm reads it: YAML 1.1, all numbers `float64`, of several documents later ones win.
///
/// # Errors
/// The file is not YAML, not a map, or larger than allowed.
pub fn read_values(path: &str, text: &str, limits: &Limits) -> Result<Map<String, Json>, Error> {
    let mut values = Map::new();
    for document in manifest::documents(text) {
        // All but the last have lost the line break that ends them.
        let whole = if text.ends_with(document.text) { "" } else { "\n" };
        let own = format!("{}{whole}", document.text);
        set::merge(&mut values, set::floats_of(read_map_at(path, &own, document.line, limits)?));
    }
    Ok(values)
}

fn metadata(raw: &Map<String, Json>, path: &str) -> Result<Metadata, Error> {
    let field = |key: &str| raw.get(key).map(text_of).unwrap_or_default();
    let mut metadata = Metadata {
        api_version: field("apiVersion"),
        name: field("name"),
        version: field("version"),
        app_version: field("appVersion"),
        kind: field("type"),
        kube_version: field("kubeVersion"),
        raw: raw.clone(),
        dependencies: Vec::new(),
        declares_dependencies: false,
    };
    let required = |name: &str, value: &str| match value.is_empty() {
        true => Err(Error::chart(path, format!("validation: chart.metadata.{name} is required"))),
        false => Ok(()),
    };
    required("apiVersion", &metadata.api_version)?;
    required("name", &metadata.name)?;
    if metadata.name.contains('/') || metadata.name == "." || metadata.name == ".." {
        let name = crate::gofmt::quote(&metadata.name);
        return Err(Error::chart(path, format!("validation: chart.metadata.name {name} is invalid")));
    }
    required("version", &metadata.version)?;
    if Version::parse(&metadata.version).is_none() {
        let version = crate::gofmt::quote(&metadata.version);
        return Err(Error::chart(path, format!("validation: chart.metadata.version {version} is invalid"))
            .with_hint("a version is up to three numbers, such as 1.2.3 or 1.2.3-beta.1+build.5"));
    }
    if !matches!(metadata.kind.as_str(), "" | "application" | "library") {
        return Err(Error::chart(path, "validation: chart.metadata.type must be application or library"));
    }
    declare(&mut metadata, raw.get("dependencies"), path)?;
    Ok(metadata)
}

fn declare(metadata: &mut Metadata, list: Option<&Json>, path: &str) -> Result<(), Error> {
    let Some(Json::Array(items)) = list else { return Ok(()) };
    metadata.declares_dependencies = true;
    for item in items {
        let field = |key: &str| item.get(key).map(text_of).unwrap_or_default();
        let list = |key: &str| item.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
        if field("name").is_empty() {
            return Err(Error::chart(path, "validation: a dependency has no name"));
        }
        metadata.dependencies.push(Dependency {
            name: field("name"),
            version: field("version"),
            repository: field("repository"),
            condition: field("condition"),
            tags: list("tags").iter().map(text_of).collect(),
            alias: field("alias"),
            import_values: list("import-values"),
            enabled: false,
        });
    }
    Ok(())
}
