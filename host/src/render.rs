//! `barbless render`: what a package or a chart becomes, without a cluster and without hooks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use barbless_domain::package::{MANIFEST, Package};
use barbless_domain::values::{Patches, Values};
use barbless_template as template;
use serde_json::{Map, Value};

use crate::app;
use crate::bundle;
use crate::cli::Render;
use crate::driver::{self, View};
use crate::report::{Exit, Report};

/// Rendering that takes longer than this is stopped.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// A report for the user.
pub(crate) fn command(args: &Render) -> Result<Exit, Report> {
    let source = bundle::read(&args.package)?;
    let mut given = Value::Object(Map::new());
    for path in &args.values {
        merge(&mut given, app::read_document(path)?);
    }
    let rendered = if source.get(MANIFEST).is_some() {
        let package = Package::load(source).map_err(|problems| Report::from(driver::failure_of(&problems)))?;
        let name = args.name.clone().unwrap_or_else(|| package.manifest.name.clone());
        let bytes = GuestLimits::default().values_bytes;
        let values = Values::new(Arc::new(package.clone()), given, Patches::default(), None, bytes)
            .map_err(|problems| Report::from(driver::failure_of(&problems)))?;
        let view = View {
            values: Value::clone(&values.computed().values),
            settings: Value::clone(&values.computed().settings),
            namespace: args.namespace.clone(),
            name,
            revision: 1,
            kube_version: args.kube_version.clone(),
            api_versions: BTreeSet::new(),
        };
        driver::render_package(&package, view)?
    } else if source.get("Chart.yaml").is_some() {
        chart(args, &source, given)?
    } else {
        return Err(Report::new("NoPackage", "there is neither package.yaml nor Chart.yaml")
            .at(args.package.display().to_string())
            .hint("give the folder of a package or of a Helm chart")
            .exit(Exit::NotFound));
    };
    for warning in &rendered.warnings {
        tracing::warn!(warning, "rendering");
    }
    app::print(rendered.helm_output())?;
    Ok(Exit::Ok)
}

fn chart(
    args: &Render,
    source: &barbless_domain::package::PackageSource,
    values: Value,
) -> Result<template::Rendered, Report> {
    let files = template::Files(source.iter().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect());
    let begun = Instant::now();
    let late = || begun.elapsed() >= DEADLINE;
    let input = template::Input {
        files: &files,
        values,
        roots: Map::new(),
        release: template::Release {
            name: args.name.clone().unwrap_or_else(|| "release-name".to_owned()),
            namespace: args.namespace.clone(),
            revision: 1,
            is_install: true,
            is_upgrade: false,
            service: "Helm".to_owned(),
        },
        capabilities: template::Capabilities {
            kube_version: args.kube_version.clone(),
            ..template::Capabilities::default()
        },
        now_unix_ms: i64::try_from(driver::now().0).unwrap_or(i64::MAX),
        seed: [0; 32],
        whole_numbers_are_int64: false,
        skip_schema_validation: false,
        limits: template::Limits::default(),
        lookup: &template::NoLookup,
        deadline: &late,
    };
    template::render(&input).map_err(|error| {
        let mut report = Report::new(error.code(), error.to_string());
        report.hint = error.hint().map(str::to_owned);
        report
    })
}

/// Later documents win, object by object.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
