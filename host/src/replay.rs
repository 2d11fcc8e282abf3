//! `barbless replay`: a recorded run again, in the sandbox, with the same component or another.
//!
//! Everything that goes into a run is in its record, so the same component does the same to the bit. What comes of the
//! replay is compared with what came of the run before the host judged it: grants and schemas are not asked again, and
//! nothing is carried out.

use std::path::Path;
use std::sync::Arc;

use barbless_domain::grant::Grant;
use barbless_domain::hook::{HookDeclaration, KubernetesBinding};
use barbless_domain::identity::ApplicationId;
use barbless_domain::limits::RECORD_INPUT_BYTES;
use barbless_domain::run::{RunEnd, RunInput, RunOutcome, RunRecord};
use barbless_sandbox::{Component, Sandbox};
use serde_json::json;

use crate::app;
use crate::bundle;
use crate::cli::{Output, Replay};
use crate::fixtures;
use crate::history;
use crate::plan::secrets::told::{Said, told};
use crate::report::{Exit, Report};
use crate::runs::{Archive, component_digest};

mod compared;
mod text;

use compared::{Comparison, Trace};
pub(crate) use text::difference;

/// Bytes of a component that is read from a file; the sandbox has its own bound.
const COMPONENT_BYTES: u64 = 64 * 1024 * 1024;

/// Runs the command.
///
/// # Errors
/// A report for the user.
pub(crate) async fn command(args: &Replay) -> Result<Exit, Report> {
    let archive = history::open(&args.data_dir)?;
    let record = history::find(&archive, args.run)?;
    let input = input(&archive, &record)?;
    let (bytes, words) = component(args, &archive, &record)?;
    let sandbox = app::sandbox(Some(args.data_dir.join("components")))?;
    let (outcome, told) = run(&sandbox, bytes.clone(), &words, &input).await?;
    let mut notes = Vec::new();
    if args.component.is_some() {
        notes = changed_bindings(&sandbox, &archive, &record, bytes.clone()).await;
    }
    if let Some(path) = &args.save_fixture {
        fixtures::save(path, &record, &input, &outcome)?;
        notes.push(format!("the case is in {}", path.display()));
    }
    let recorded = Trace::of_record(&record);
    let replayed = Trace::of_outcome(&outcome, &record);
    let told: Vec<String> = record.told.iter().cloned().chain(told).collect();
    let comparison = Comparison::new(&recorded, &replayed, &input, &told, args.show_secrets);
    for note in &notes {
        tell(note);
    }
    if let Some(why) = nothing_to_compare(&record.end) {
        return match args.save_fixture {
            Some(_) => Ok(Exit::Ok),
            None => Err(Report::new("NothingToCompare", format!("run {} {why}", record.id))
                .hint("replay another run of the hook, or make a test case of what it does: --save-fixture FILE")),
        };
    }
    let component = component_digest(&bytes);
    match args.output {
        Output::Table => app::print(&text::print(&record, &component, &comparison, args.diff))?,
        output => {
            let document = json!({
                "run": record.id,
                "application": record.application,
                "hook": record.hook,
                "component": record.component,
                "replayedComponent": component,
                "identical": comparison.is_identical(),
                "parts": comparison.parts,
            });
            match output {
                Output::Yaml => app::print(&app::yaml(&document)?)?,
                _ => app::print(&format!("{document:#}\n"))?,
            }
        }
    }
    Ok(if comparison.is_identical() { Exit::Ok } else { Exit::Difference })
}

/// One line for people, on standard error.
fn tell(text: &str) {
    let text = crate::report::printable(text, false);
    // Standard error may be closed; nothing depends on it.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
}

/// Why a run has nothing that a replay could be compared with.
fn nothing_to_compare(end: &RunEnd) -> Option<&'static str> {
    match end {
        RunEnd::Cancelled { .. } => Some("was stopped before it ended, so nothing came of it"),
        RunEnd::HostFault { .. } => Some("was never begun, so nothing came of it"),
        _ => None,
    }
}

fn input(archive: &Archive, record: &RunRecord) -> Result<Arc<RunInput>, Report> {
    let input = archive.input(record).map_err(|error| history::report(&error))?;
    input.map(Arc::new).ok_or_else(|| {
        Report::new("InputNotKept", format!("what went into run {} is not kept", record.id))
            .hint(format!(
                "inputs of more than {} MiB are not kept, and those of the oldest runs make room for newer ones: barbless \
                 runs -o wide says which runs can be replayed; a filter on the bindings makes snapshots smaller",
                RECORD_INPUT_BYTES / 1024 / 1024
            ))
            .exit(Exit::NotFound)
    })
}

/// The bytes of the component that is to run, and where they come from.
fn component(args: &Replay, archive: &Archive, record: &RunRecord) -> Result<(Vec<u8>, String), Report> {
    if let Some(path) = &args.component {
        let place = path.display().to_string();
        let bytes = bundle::read_bounded(path, COMPONENT_BYTES).map_err(|report| report.at(place.clone()))?;
        return Ok((bytes, place));
    }
    let kept = archive.component(&record.component).map_err(|error| history::report(&error))?;
    let words = format!("the component of run {}", record.id);
    if let Some(bytes) = kept {
        return Ok((bytes, words));
    }
    if let Some(package) = &args.package
        && let Some(bytes) = component_in(package, &record.component)?
    {
        return Ok((bytes, words));
    }
    let hint = match &args.package {
        Some(_) => "the components of the package have changed since; compare with one of them: --component NEW.wasm",
        None => "give the folder of the package with --package, or another component with --component",
    };
    Err(Report::new("ComponentNotKept", format!("the component {} is not kept", record.component))
        .hint(hint)
        .exit(Exit::NotFound))
}

fn component_in(package: &Path, digest: &str) -> Result<Option<Vec<u8>>, Report> {
    let source = bundle::read(package)?;
    let found = source
        .iter()
        .filter(|(path, _)| path.starts_with("hooks/"))
        .find(|(_, bytes)| component_digest(bytes) == digest)
        .map(|(_, bytes)| bytes.to_vec());
    Ok(found)
}

async fn load(sandbox: &Sandbox, bytes: Vec<u8>, words: &str) -> Result<Component, Report> {
    sandbox.load(bytes).await.map_err(|error| Report::of(error.reason(), &error).at(words).hint(error.hint()))
}

/// Runs the hook again; the secrets of the input that turn up in what came of it go with the outcome.
async fn run(
    sandbox: &Sandbox,
    bytes: Vec<u8>,
    words: &str,
    input: &Arc<RunInput>,
) -> Result<(RunOutcome, Vec<String>), Report> {
    let component = load(sandbox, bytes, words).await?;
    let Some(declaration) = component.hooks().iter().find(|hook| hook.name == input.hook) else {
        let names: Vec<&str> = component.hooks().iter().map(|hook| hook.name.as_str()).collect();
        return Err(Report::new("HookNotFound", format!("there is no hook '{}'", input.hook))
            .at(words)
            .hint(format!("its hooks are: {}", names.join(", ")))
            .exit(Exit::NotFound));
    };
    let instance = &input.instance;
    let id = ApplicationId::new(&instance.namespace, &instance.name)
        .map_err(|error| Report::new("BadName", error.to_string()))?;
    // A component that lacks an interface does not run at all, so a recorded run had what it imports. Nothing is carried
    // out, so nothing is to be allowed.
    let prepared = sandbox
        .prepare(&component, &id, &Grant::with(Vec::new()))
        .map_err(|error| Report::of(error.reason(), &error).at(words).hint(error.hint()))?;
    let outcome = prepared.run(input).await;
    let told = told(input, Some(declaration), &Said::of(&outcome));
    Ok((outcome, told))
}

/// What a changed component watches otherwise than the recorded one: its snapshots would have been others.
async fn changed_bindings(sandbox: &Sandbox, archive: &Archive, record: &RunRecord, bytes: Vec<u8>) -> Vec<String> {
    // Only a remark depends on it.
    let Ok(Some(recorded)) = archive.component(&record.component) else { return Vec::new() };
    let (Ok(old), Ok(new)) = (load(sandbox, recorded, "").await, load(sandbox, bytes, "").await) else {
        return Vec::new();
    };
    let bindings = |component: &Component| -> Vec<KubernetesBinding> {
        let hook = component.hooks().iter().find(|hook| hook.name == record.hook);
        hook.into_iter().flat_map(HookDeclaration::kubernetes).cloned().collect()
    };
    let old = bindings(&old);
    let said = bindings(&new).into_iter().filter_map(|new| {
        let name = &new.name;
        match old.iter().find(|old| old.name == *name) {
            None => Some(format!("binding '{name}' is new: there was no snapshot of it, and the replay has none")),
            Some(old) if old.filter != new.filter => {
                Some(format!("binding '{name}' has another filter: its snapshot is that of the old one"))
            }
            Some(old) if *old != new => {
                Some(format!("binding '{name}' has changed: its snapshot is that of the old one"))
            }
            Some(_) => None,
        }
    });
    said.collect()
}
