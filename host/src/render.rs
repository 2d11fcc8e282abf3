//! `barbless render`: what a package or a chart becomes, without a cluster and without hooks.

mod chart_files;
mod given;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use barbless_domain::package::{MANIFEST, Package};
use barbless_domain::queue::Time;
use barbless_domain::values::{Patches, Values};
use barbless_template as template;
use serde_json::{Map, Value};

use crate::app;
use crate::bundle;
use crate::cli::Render;
use crate::dev;
use crate::driver::{self, Seed, View};
use crate::report::{Exit, Report};

/// Rendering that takes longer than this is stopped.
const DEADLINE: Duration = Duration::from_secs(30);
/// The name of a release that has none, as in Helm.
const RELEASE: &str = "release-name";
/// What templates of a package see unless it is said.
const KUBE_VERSION: &str = "v1.37.0";

/// Runs the command.
///
/// # Errors
/// A report for the user.
pub(crate) fn command(args: &Render) -> Result<Exit, Report> {
    let rendered = match kind(&args.package)? {
        Kind::Package => package(args)?,
        Kind::Chart => chart(args)?,
    };
    for warning in &rendered.warnings {
        tracing::warn!(warning, "rendering");
    }
    let shown = template::Shown {
        hooks: !args.no_hooks,
        tests: !args.skip_tests,
        crds: args.include_crds,
        only: &args.show_only,
    };
    let text = rendered.helm_template(&shown).map_err(|message| {
        Report::new("TemplateNotFound", message)
            .hint("give the path below the chart, such as templates/web.yaml; templates that write nothing have none")
            .exit(Exit::NotFound)
    })?;
    app::print(&text)?;
    Ok(Exit::Ok)
}

enum Kind {
    Package,
    Chart,
}

fn kind(path: &Path) -> Result<Kind, Report> {
    if path.is_file() && path.extension().is_some_and(|extension| extension == "tgz") {
        return Ok(Kind::Chart);
    }
    if path.join(MANIFEST).is_file() {
        return Ok(Kind::Package);
    }
    if path.join("Chart.yaml").is_file() {
        return Ok(Kind::Chart);
    }
    if !path.exists() {
        return Err(Report::new("NoPackage", "there is no such file or folder")
            .at(path.display().to_string())
            .exit(Exit::NotFound));
    }
    Err(Report::new("NoPackage", "there is neither package.yaml nor Chart.yaml")
        .at(path.display().to_string())
        .hint("give the folder of a package or of a Helm chart, or a packed chart (.tgz)")
        .exit(Exit::NotFound))
}

fn package(args: &Render) -> Result<template::Rendered, Report> {
    let source = bundle::read(&args.package)?;
    let package = Package::load(source).map_err(|problems| Report::from(driver::failure_of(&problems)))?;
    let given = given::settings(args)?;
    let name = args.name.clone().unwrap_or_else(|| dev::default_name(&package.manifest.name));
    dev::identity(&args.namespace, &name)?;
    let bytes = GuestLimits::default().values_bytes;
    let values = Values::new(Arc::new(package.clone()), Value::Object(given), Patches::default(), None, bytes)
        .map_err(|problems| Report::from(driver::failure_of(&problems)))?;
    let mut api_versions: BTreeSet<String> = args.api_versions.iter().cloned().collect();
    if !api_versions.is_empty() {
        api_versions.extend(template::Capabilities::default().api_versions);
    }
    let (seed, now_unix_ms) = if args.random { fresh()? } else { (seed(&args.namespace, &name), clock()?) };
    let view = View {
        values: Value::clone(&values.computed().values),
        settings: Value::clone(&values.computed().settings),
        namespace: args.namespace.clone(),
        name,
        revision: if args.is_upgrade { 2 } else { 1 },
        is_install: !args.is_upgrade,
        now: Time(u64::try_from(now_unix_ms).unwrap_or_default()),
        seed: Seed(seed),
        kube_version: args.kube_version.clone().unwrap_or_else(|| KUBE_VERSION.to_owned()),
        api_versions,
    };
    Ok(driver::render_package(&package, view, &template::NoLookup)?)
}

fn chart(args: &Render) -> Result<template::Rendered, Report> {
    let name = args.name.clone().unwrap_or_else(|| RELEASE.to_owned());
    if !template::is_release_name(&name) {
        return Err(Report::new("BadName", format!("'{name}' is no name of a release"))
            .hint("lower-case letters, digits, '-' and '.', at most 53, with a letter or digit first and last")
            .exit(Exit::Usage));
    }
    let files = chart_files::read(&args.package)?;
    let values = given::values(args)?;
    let (seed, now_unix_ms) = if args.random { fresh()? } else { (seed(&args.namespace, &name), clock()?) };
    let mut capabilities = template::Capabilities::default();
    if let Some(version) = &args.kube_version {
        capabilities.kube_version.clone_from(version);
    }
    capabilities.api_versions.extend(args.api_versions.iter().cloned());
    let begun = Instant::now();
    let late = || begun.elapsed() >= DEADLINE;
    let input = template::Input {
        files: &files,
        values: Value::Object(values),
        roots: Map::new(),
        release: template::Release {
            name,
            namespace: args.namespace.clone(),
            revision: 1,
            is_install: !args.is_upgrade,
            is_upgrade: args.is_upgrade,
            service: "Helm".to_owned(),
        },
        capabilities,
        now_unix_ms,
        seed,
        whole_numbers_are_int64: true,
        skip_schema_validation: args.skip_schema_validation,
        limits: template::Limits::default(),
        lookup: &template::NoLookup,
        deadline: &late,
    };
    template::render(&input).map_err(|error| report(&error))
}

/// A failure of a template for the user.
fn report(error: &template::Error) -> Report {
    let mut report = Report::new(error.code(), error.to_string());
    report.hint = error.hint().map(str::to_owned);
    report
}

/// The same for the same release, and for no other.
fn seed(namespace: &str, name: &str) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(format!("{namespace}/{name}")).into()
}

/// The time that `now` tells: that of `SOURCE_DATE_EPOCH`, in seconds, or the first there is.
fn clock() -> Result<i64, Report> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(0) };
    let seconds = text.to_str().and_then(|text| text.trim().parse::<i64>().ok());
    seconds.and_then(|seconds| seconds.checked_mul(1_000)).ok_or_else(|| {
        Report::new("BadTime", format!("{VARIABLE} is not a number of seconds since 1970")).exit(Exit::Usage)
    })
}

fn fresh() -> Result<([u8; 32], i64), Report> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)
        .map_err(|error| Report::new("NoRandomness", format!("the system gives no randomness: {error}")))?;
    Ok((seed, i64::try_from(driver::now().0).unwrap_or(i64::MAX)))
}
