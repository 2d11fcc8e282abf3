//! Which subcharts take part, under which name, and what they lend to their parent's values.

use serde_json::{Map, Value as Json};

use super::{Chart, Dependency, coalesce};
use crate::{
    error::Error,
    funcs::semver::{Constraints, Version},
};

type Table = Map<String, Json>;

/// Removes disabled subcharts, applies aliases and imports values, from the leaves up.
pub(super) fn process(root: &mut Chart, values: &Table, warnings: &mut Vec<String>) -> Result<(), Error> {
    enable(root, values, "", warnings)?;
    import(root, warnings)
}

fn fits(wanted: &str, version: &str) -> bool {
    if wanted.trim().is_empty() {
        return true;
    }
    Constraints::parse(wanted).zip(Version::parse(version)).is_some_and(|(c, v)| c.allow(&v))
}

/// The value at a dotted path that is not a table.
fn at_path<'v>(values: &'v Table, path: &str) -> Option<&'v Json> {
    let (folders, last) = path.rsplit_once('.').map_or((None, path), |(folders, last)| (Some(folders), last));
    let table = folders.map_or(Some(values), |folders| table_at(values, folders))?;
    table.get(last).filter(|value| !value.is_object())
}

fn table_at<'v>(values: &'v Table, path: &str) -> Option<&'v Table> {
    path.split('.').try_fold(values, |table, key| table.get(key)?.as_object())
}

fn enable(chart: &mut Chart, values: &Table, path: &str, warnings: &mut Vec<String>) -> Result<(), Error> {
    if !chart.metadata.declares_dependencies {
        return Ok(());
    }
    let declared = |child: &Chart, wanted: &[Dependency]| {
        wanted.iter().any(|d| d.name == child.name() && fits(&d.version, &child.metadata.version))
    };
    let mut children: Vec<Chart> =
        chart.children.iter().filter(|child| !declared(child, &chart.metadata.dependencies)).cloned().collect();
    let mut missing = Vec::new();
    for dependency in &mut chart.metadata.dependencies {
        let found = chart
            .children
            .iter()
            .find(|child| child.name() == dependency.name && fits(&dependency.version, &child.metadata.version));
        if !dependency.alias.is_empty() {
            dependency.name.clone_from(&dependency.alias);
        }
        match found {
            Some(child) => {
                let mut child = child.clone();
                child.metadata.name.clone_from(&dependency.name);
                children.push(child);
            }
            None => missing.push(dependency.name.clone()),
        }
        dependency.enabled = true;
    }
    chart.children = children;
    let merged = coalesce::coalesce_values(chart, values.clone(), warnings)?;
    for dependency in &mut chart.metadata.dependencies {
        by_tags(dependency, &merged, warnings);
        by_condition(dependency, &merged, path, warnings);
    }
    let dependencies = std::mem::take(&mut chart.metadata.dependencies);
    let (on, off): (Vec<_>, Vec<_>) = dependencies.into_iter().partition(|dependency| dependency.enabled);
    if let Some(lost) = on.iter().find(|dependency| missing.contains(&dependency.name)) {
        let message = format!("found in Chart.yaml, but missing in charts/ directory: {}", lost.name);
        return Err(Error::chart("Chart.yaml", message)
            .with_hint("run `helm dependency build`, or turn the dependency off by its condition"));
    }
    chart.children.retain(|child| !off.iter().any(|dependency| dependency.name == child.name()));
    chart.metadata.dependencies = on;
    for child in &mut chart.children {
        let path = format!("{path}{}.", child.name());
        enable(child, &merged, &path, warnings)?;
    }
    Ok(())
}

/// Any true tag enables; otherwise any false one disables.
fn by_tags(dependency: &mut Dependency, values: &Table, warnings: &mut Vec<String>) {
    let Some(tags) = values.get("tags").and_then(Json::as_object) else { return };
    let mut said = (false, false);
    for tag in &dependency.tags {
        match tags.get(tag) {
            Some(Json::Bool(true)) => said.0 = true,
            Some(Json::Bool(false)) => said.1 = true,
            Some(_) => warnings.push(format!("tag {tag} of {} is not a boolean and is ignored", dependency.name)),
            None => {}
        }
    }
    dependency.enabled = said.0 || !said.1;
}

/// The first path that leads to a boolean decides, over all tags.
fn by_condition(dependency: &mut Dependency, values: &Table, prefix: &str, warnings: &mut Vec<String>) {
    for path in dependency.condition.trim().split(',').filter(|path| !path.is_empty()) {
        match at_path(values, &format!("{prefix}{path}")) {
            Some(Json::Bool(on)) => {
                dependency.enabled = *on;
                return;
            }
            Some(_) => {
                warnings.push(format!("condition {path} of {} is not a boolean and is ignored", dependency.name));
            }
            None => {}
        }
    }
}

fn import(chart: &mut Chart, warnings: &mut Vec<String>) -> Result<(), Error> {
    for child in &mut chart.children {
        import(child, warnings)?;
    }
    if !chart.metadata.declares_dependencies {
        return Ok(());
    }
    let mut quiet = Vec::new();
    let values = coalesce::merge_values(chart, Table::new(), &mut quiet)?;
    let mut imported = Table::new();
    for dependency in &chart.metadata.dependencies {
        for import in &dependency.import_values {
            let (child, parent) = match import {
                Json::String(name) => (format!("exports.{name}"), ".".to_string()),
                Json::Object(pair) => {
                    let field = |key: &str| pair.get(key).map(super::load::text_of).unwrap_or_default();
                    (field("child"), field("parent"))
                }
                _ => continue,
            };
            let Some(table) = table_at(&values, &format!("{}.{child}", dependency.name)) else {
                warnings.push(format!("import-values: {} has no table {child}", dependency.name));
                continue;
            };
            let mut wrapped = table.clone();
            if parent != "." {
                for key in parent.rsplit('.') {
                    wrapped = Table::from_iter([(key.to_string(), Json::Object(wrapped))]);
                }
            }
            coalesce::tables(&mut imported, wrapped, chart.name(), true, &mut quiet);
        }
    }
    let mut merged = values;
    coalesce::tables(&mut merged, imported, chart.name(), true, &mut quiet);
    chart.values = merged;
    Ok(())
}
