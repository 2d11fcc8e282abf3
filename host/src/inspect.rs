//! `barbless inspect`: what a component is and what it asks for.

use std::collections::BTreeMap;

use barbless_domain::declaration::{ComponentDeclarations, Hook, Hooks, v1};
use barbless_domain::event::Failure;
use barbless_domain::grant::Interface;
use barbless_domain::hook::{Binding, HookDeclaration};
use barbless_domain::limits::GuestLimits;
use barbless_domain::package::PackageSource;
use barbless_sandbox::World;
use serde::Serialize;
use serde_json::Value;

use crate::app;
use crate::bundle;
use crate::cli::{Inspect, Output};
use crate::driver::jq::Filters;
use crate::driver::with_hint;
use crate::report::{Exit, Report, printable};

/// Bytes of a component that is looked at.
const BYTES: u64 = 64 * 1024 * 1024;

/// What a component is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    digest: String,
    bytes: u64,
    imports: Vec<String>,
    exports: Vec<String>,
    /// Interfaces that must be granted.
    interfaces: Vec<Interface>,
    worlds: Vec<&'static str>,
    hooks: Vec<HookDeclaration>,
    /// Hooks whose bindings are those of a file of the package and not of the component, and the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bindings: BTreeMap<String, String>,
    /// With --no-run: the hooks that were written down when the component was built.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    declared: Vec<Value>,
    /// What is wrong with the hooks; a package with such a component is not loaded.
    problems: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// A report for the user.
pub(crate) async fn command(args: &Inspect) -> Result<Exit, Report> {
    let place = args.component.display().to_string();
    let bytes = bundle::read_bounded(&args.component, BYTES).map_err(|report| report.at(place.clone()))?;
    let package = bundle::bindings_beside(&args.component)?;
    let facts = if args.no_run { scanned(&bytes, &package) } else { loaded(&bytes, &package).await };
    let facts = facts.map_err(|report| report.at(place))?;
    match args.output {
        Output::Json => {
            let text = serde_json::to_string_pretty(&facts)
                .map_err(|error| Report::new("InternalError", error.to_string()))?;
            app::print(&format!("{text}\n"))?;
        }
        Output::Yaml => app::print(&app::yaml(&facts)?)?,
        Output::Table => app::print(&table(&facts))?,
    }
    Ok(if facts.problems.is_empty() { Exit::Ok } else { Exit::ChecksFailed })
}

async fn loaded(bytes: &[u8], package: &PackageSource) -> Result<Facts, Report> {
    let sandbox = app::sandbox(app::default_cache())?;
    let component =
        sandbox.load(bytes.to_vec()).await.map_err(|error| Report::of(error.reason(), &error).hint(error.hint()))?;
    let mut declared = [ComponentDeclarations {
        component: "the component".to_owned(),
        hooks: component.hooks().to_vec(),
        exports_filter: component.has(World::Filter),
    }];
    let (mut configurations, mut problems) = v1::load(package);
    // The others are for hooks of other components.
    configurations.retain(|name, _| component.hooks().iter().any(|hook| hook.name == *name));
    problems.extend(v1::replace(&mut declared, &configurations));
    let hooks = declared.iter().flat_map(|component| component.hooks.clone()).collect();
    let mut problems: Vec<String> = problems.iter().map(with_hint).collect();
    match Hooks::check(declared.to_vec()) {
        Ok(checked) => {
            let checked: Vec<Hook> = checked.iter().cloned().collect();
            let turns = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
            let refused = Filters::read(&sandbox, &turns, &checked, &configurations).await.err();
            problems.extend(refused.iter().flat_map(each));
        }
        Err(more) => problems.extend(more.iter().map(with_hint)),
    }
    Ok(Facts {
        digest: component.digest().to_owned(),
        bytes: component.size(),
        imports: component.imports().to_vec(),
        exports: component.exports().to_vec(),
        interfaces: component.interfaces().iter().copied().collect(),
        worlds: World::ALL.into_iter().filter(|world| component.has(*world)).map(World::as_str).collect(),
        hooks,
        bindings: files(configurations),
        declared: Vec::new(),
        problems,
    })
}

/// The problems of a failure of several, each with its hint.
fn each(failure: &Failure) -> Vec<String> {
    let mut problems: Vec<String> = Vec::new();
    for line in failure.message.lines() {
        match problems.last_mut() {
            Some(last) if line.starts_with("  help: ") => last.push_str(&format!("\n{line}")),
            _ => problems.push(line.to_owned()),
        }
    }
    if let (Some(last), Some(hint)) = (problems.last_mut(), &failure.hint) {
        last.push_str(&format!("\n  help: {hint}"));
    }
    problems
}

/// File of each hook that has one.
fn files(configurations: BTreeMap<String, v1::Configuration>) -> BTreeMap<String, String> {
    configurations.into_iter().map(|(hook, configuration)| (hook, configuration.file)).collect()
}

/// The same without running guest code: which hooks there are is not known, so all configurations are shown.
fn scanned(bytes: &[u8], package: &PackageSource) -> Result<Facts, Report> {
    let (configurations, problems) = v1::load(package);
    let facts = barbless_sandbox::facts(bytes, &GuestLimits::default())
        .map_err(|error| Report::of(error.reason(), &error).hint(error.hint()))?;
    Ok(Facts {
        digest: facts.digest,
        bytes: bytes.len() as u64,
        imports: facts.imports,
        exports: facts.exports,
        interfaces: facts.interfaces.into_iter().collect(),
        worlds: facts.worlds.into_iter().map(World::as_str).collect(),
        hooks: Vec::new(),
        bindings: files(configurations),
        declared: facts.declared,
        problems: problems.iter().map(with_hint).collect(),
    })
}

fn table(facts: &Facts) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:<12}{value}\n"));
    };
    line("digest", &facts.digest);
    line("size", &format!("{} bytes", facts.bytes));
    line("worlds", &facts.worlds.join(", "));
    let interfaces: Vec<&str> = facts.interfaces.iter().map(|interface| interface.as_str()).collect();
    line("asks for", &interfaces.join(", "));
    for (index, import) in facts.imports.iter().enumerate() {
        line(if index == 0 { "imports" } else { "" }, import);
    }
    for (index, export) in facts.exports.iter().enumerate() {
        line(if index == 0 { "exports" } else { "" }, export);
    }
    text.push('\n');
    if !facts.declared.is_empty() {
        text.push_str("written down when it was built, not asked for now:\n");
        for hook in &facts.declared {
            text.push_str(&format!("{hook}\n"));
        }
    } else if facts.hooks.is_empty() {
        text.push_str("no hooks\n");
    } else {
        text.push_str(&format!("{}\n", hooks(&facts.hooks)));
    }
    for (hook, file) in &facts.bindings {
        text.push_str(&format!("bindings of {hook}: {file}\n"));
    }
    for problem in &facts.problems {
        text.push_str(&format!("problem: {}\n", printable(problem, true)));
    }
    text
}

fn hooks(hooks: &[HookDeclaration]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["HOOK", "QUEUE", "BINDING", "WHAT"]);
    for hook in hooks {
        for (index, binding) in hook.bindings.iter().enumerate() {
            let (kind, what) = describe(binding);
            let first = index == 0;
            table.add_row([
                if first { hook.name.clone() } else { String::new() },
                if first { hook.queue.clone() } else { String::new() },
                kind,
                what,
            ]);
        }
    }
    table
}

fn describe(binding: &Binding) -> (String, String) {
    match binding {
        Binding::Lifecycle { stage, order } => (stage.as_str().to_owned(), format!("order {order}")),
        Binding::Schedule(schedule) => ("schedule".to_owned(), format!("{}: {}", schedule.name, schedule.crontab)),
        Binding::Kubernetes(kubernetes) => {
            let mut what = format!("{}: {} {}", kubernetes.name, kubernetes.api_version, kubernetes.kind);
            if !kubernetes.name_selector.is_empty() {
                what.push_str(&format!(", names {}", kubernetes.name_selector.join(", ")));
            }
            if let Some(selector) = &kubernetes.label_selector {
                what.push_str(&format!(", labels {}", serde_json::to_value(selector).unwrap_or(Value::Null)));
            }
            ("kubernetes".to_owned(), what)
        }
    }
}
