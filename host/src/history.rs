//! `barbless runs` and `barbless logs`: what has run, from the records of a data folder.
//!
//! Guests, packages and the cluster have a say in nearly every text, so control characters are escaped; what is secret is
//! masked unless it is asked for.

use std::collections::BTreeSet;
use std::path::Path;

use barbless_domain::hook::{Change, Trigger};
use barbless_domain::run::{RunEnd, RunRecord, SnapshotOutline};
use serde_json::{Value, json};

use crate::app;
use crate::cli::{Listing, Logs, Runs};
use crate::driver;
use crate::plan::secrets::Secrets;
use crate::report::{Exit, Report, printable};
use crate::runs::{Archive, RunsError, shown};

/// Applications that a hint names.
const NAMES_MAX: usize = 20;

/// Which records are wanted.
struct Wanted<'a> {
    namespace: Option<&'a str>,
    application: Option<&'a str>,
    hook: Option<&'a str>,
}

impl Wanted<'_> {
    /// An application that was named has records, whatever else is wanted of them.
    fn is_there(&self, records: &[RunRecord]) -> Result<(), Report> {
        let Some(application) = self.application else { return Ok(()) };
        let of_it = Wanted { hook: None, ..*self };
        if records.iter().any(|record| of_it.has(record)) {
            return Ok(());
        }
        let names: BTreeSet<&str> = records.iter().map(|record| record.application.as_str()).collect();
        let hint = match names.is_empty() {
            true => "no run is kept yet".to_owned(),
            false => format!("there are runs of {}", names.into_iter().take(NAMES_MAX).collect::<Vec<_>>().join(", ")),
        };
        Err(Report::new("RunsNotFound", format!("there is no record of a run of '{application}'"))
            .hint(hint)
            .exit(Exit::NotFound))
    }

    fn has(&self, record: &RunRecord) -> bool {
        let (namespace, name) = record.application.split_once('.').unwrap_or(("", &record.application));
        self.namespace.is_none_or(|wanted| wanted == namespace)
            && self.application.is_none_or(|wanted| wanted == record.application || wanted == name)
            && self.hook.is_none_or(|wanted| wanted == record.hook)
    }
}

/// The number of a run, if that is what was typed: names of applications never are whole numbers in our words, because
/// the number is what the other commands take.
fn number(what: Option<&str>) -> Option<u64> {
    what.and_then(|what| what.parse().ok())
}

/// Opens the records of a data folder.
///
/// # Errors
/// A report that says what to do.
pub(crate) fn open(data_dir: &Path) -> Result<Archive, Report> {
    Archive::open(data_dir).map_err(|error| report(&error))
}

/// An error of the records, for the user.
pub(crate) fn report(error: &RunsError) -> Report {
    match error {
        RunsError::Missing { .. } => Report::of("RunsNotFound", error)
            .hint("give the folder that barbless dev keeps its records in: barbless dev PACKAGE --data-dir DIR")
            .exit(Exit::NotFound),
        RunsError::Damaged { .. } => Report::of("RunsDamaged", error)
            .hint("barbless dev puts a damaged file aside and begins a new one; copies of it may still be read"),
        RunsError::Open { .. } => Report::of("DataDirUnusable", error)
            .hint("may this user read the folder, and is no other program than barbless using the file?"),
        _ => Report::of("DataDirUnusable", error),
    }
}

/// A run by its number.
///
/// # Errors
/// If it is not kept, or the records cannot be read.
pub(crate) fn find(archive: &Archive, run: u64) -> Result<RunRecord, Report> {
    let records = archive.records().map_err(|error| report(&error))?;
    let range = match (records.first(), records.last()) {
        (Some(first), Some(last)) => format!("the records that are kept are those of runs {} to {}", first.id, last.id),
        _ => "no run is kept yet".to_owned(),
    };
    records.into_iter().find(|record| record.id == run).ok_or_else(|| {
        Report::new("RunNotFound", format!("there is no record of run {run}"))
            .hint(format!("{range}; barbless runs lists them"))
            .exit(Exit::NotFound)
    })
}

/// `barbless runs`
///
/// # Errors
/// A report for the user.
pub(crate) fn runs(args: &Runs) -> Result<Exit, Report> {
    let archive = open(&args.selection.data_dir)?;
    if let Some(run) = number(args.what.as_deref()) {
        return describe(args, &archive, &find(&archive, run)?);
    }
    let wanted = Wanted {
        namespace: args.selection.namespace.as_deref(),
        application: args.what.as_deref(),
        hook: args.selection.hook.as_deref(),
    };
    let mut records = archive.records().map_err(|error| report(&error))?;
    wanted.is_there(&records)?;
    records.retain(|record| wanted.has(record) && (!args.failed || record.end.is_failure()));
    let mut rows = Vec::with_capacity(records.len());
    for record in &records {
        rows.push(summary(record, archive.has_input(record).map_err(|error| report(&error))?, args.show_secrets));
    }
    match args.output {
        Listing::Json => print_json(&json!({ "items": rows }))?,
        Listing::Yaml => app::print(&app::yaml(&json!({ "items": rows }))?)?,
        Listing::Table | Listing::Wide if records.is_empty() => {
            tell("no runs found");
        }
        Listing::Table => app::print(&table(&records, &rows, false, !args.no_headers))?,
        Listing::Wide => app::print(&table(&records, &rows, true, !args.no_headers))?,
    }
    Ok(Exit::Ok)
}

/// One line for people, on standard error.
fn tell(text: &str) {
    // Standard error may be closed; nothing depends on it.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
}

fn print_json(document: &Value) -> Result<(), Report> {
    app::print(&format!("{document:#}\n"))
}

/// `2026-01-31T12:00:00Z`
pub(crate) fn moment(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| unix_ms.to_string(), |moment| moment.to_string())
}

/// A record without its contents.
fn summary(record: &RunRecord, has_input: bool, show_secrets: bool) -> Value {
    let secrets = shown::secrets_of(record, show_secrets);
    let mut document = json!({
        "run": record.id,
        "application": record.application,
        "hook": record.hook,
        "trigger": trigger_of(&record.trigger),
        "attempt": record.attempt,
        "started": moment(record.started_unix_ms),
        "result": record.end.reason(),
        "operations": record.operations.len(),
        "valuesChanges": record.values.len(),
        "logLines": record.log.len(),
        "component": record.component,
        "inputDigest": record.input_digest,
        "replayable": has_input,
        "usage": record.usage,
    });
    if !record.end.is_ok() {
        document["message"] = json!(secrets.mask_text(&record.end.to_string()));
    }
    document
}

/// Why a run took place. What was known of objects that are gone is left out: it may be secret.
fn trigger_of(trigger: &Trigger) -> Value {
    match trigger {
        Trigger::Events(changes) => {
            let bare = changes.iter().map(|change| Change { last: None, ..change.clone() });
            json!(Trigger::Events(bare.collect()))
        }
        trigger => json!(trigger),
    }
}

fn table(records: &[RunRecord], rows: &[Value], wide: bool, headers: bool) -> String {
    let mut table = plain_table();
    if headers {
        let mut names = vec!["RUN", "STARTED", "APPLICATION", "HOOK", "TRIGGER", "RESULT", "DURATION"];
        if wide {
            names.extend(["ATTEMPT", "OPERATIONS", "VALUES", "CPU", "MEMORY", "REPLAY", "COMPONENT"]);
        }
        table.set_header(names);
    }
    for (record, row) in records.iter().zip(rows) {
        let mut cells = vec![
            record.id.to_string(),
            moment(record.started_unix_ms),
            record.application.clone(),
            record.hook.clone(),
            record.trigger.as_str().to_owned(),
            record.end.reason().to_owned(),
            milliseconds(record.usage.wall_us),
        ];
        if wide {
            let yes = row["replayable"] == true;
            cells.extend([
                record.attempt.to_string(),
                record.operations.len().to_string(),
                record.values.len().to_string(),
                milliseconds(record.usage.cpu_us),
                format!("{} KiB", record.usage.memory_bytes / 1024),
                if yes { "yes" } else { "no" }.to_owned(),
                record.component.chars().take(19).collect(),
            ]);
        }
        table.add_row(cells.iter().map(|cell| printable(cell, false)));
    }
    lines(&table)
}

fn plain_table() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table
}

/// A table without the spaces around its lines.
fn lines(table: &comfy_table::Table) -> String {
    table.to_string().lines().map(|line| format!("{}\n", line.trim())).collect()
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

fn describe(args: &Runs, archive: &Archive, record: &RunRecord) -> Result<Exit, Report> {
    let has_input = archive.has_input(record).map_err(|error| report(&error))?;
    let secrets = shown::secrets_of(record, args.show_secrets);
    let mut document = summary(record, has_input, args.show_secrets);
    document["instance"] = json!(record.input.instance);
    document["snapshots"] = json!(record.input.snapshots);
    if let Some(error) = shown::error(&record.end) {
        let (_, error) = secrets.mask_documents(None, Some(&error));
        document["error"] = error.unwrap_or_default();
    }
    if let RunEnd::Trap { backtrace, .. } = &record.end {
        document["backtrace"] = backtrace.iter().map(|frame| json!(secrets.mask_text(frame))).collect();
    }
    let operations = record.operations.iter().map(|(operation, result)| {
        let (_, operation) = shown::masked_operations(&secrets, None, Some(&shown::operation(operation)));
        let mut operation = operation.unwrap_or_default();
        if let (Value::Object(operation), Ok(Value::Object(result))) = (&mut operation, serde_json::to_value(result)) {
            operation.extend(result.into_iter().map(|(key, value)| match value {
                Value::String(text) => (key, Value::String(secrets.mask_text(&text))),
                value => (key, value),
            }));
        }
        operation
    });
    document["operations"] = operations.collect();
    let changes = record.values.iter().filter_map(|change| shown::masked_changes(&secrets, None, Some(change)).1);
    document["values"] = changes.collect();
    document["metrics"] = record.metrics.iter().map(|one| shown::measurement(one, &secrets)).collect();
    document["log"] = record.log.iter().map(|line| json!(secrets.mask_text(&line.to_string()))).collect();
    match args.output {
        Listing::Json => print_json(&document)?,
        Listing::Yaml => app::print(&app::yaml(&document)?)?,
        Listing::Table | Listing::Wide => app::print(&description(record, has_input, &secrets))?,
    }
    Ok(Exit::Ok)
}

fn description(record: &RunRecord, has_input: bool, secrets: &Secrets) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&printable(format!("{name:<14}{}", secrets.mask_text(value)).trim_end(), false));
        text.push('\n');
    };
    line("run", &record.id.to_string());
    line("application", &record.application);
    let instance = &record.input.instance;
    line("package", &format!("{} {}", instance.package_name, instance.package_version));
    line("hook", &record.hook);
    let trigger = match &record.trigger {
        Trigger::Events(changes) => format!("event ({} changes)", changes.len()),
        trigger => trigger.as_str().to_owned(),
    };
    line("trigger", &format!("{trigger}, attempt {}", record.attempt));
    line("started", &moment(record.started_unix_ms));
    let message = if record.end.is_ok() { String::new() } else { format!(": {}", record.end) };
    line("result", &format!("{}{message}", record.end.reason()));
    if let Some(hint) = driver::hint_of(&record.end) {
        line("help", &hint);
    }
    if let RunEnd::Trap { backtrace, .. } = &record.end {
        for frame in backtrace {
            line("", frame);
        }
    }
    let usage = &record.usage;
    line("took", &format!("{}, {} of CPU time", milliseconds(usage.wall_us), milliseconds(usage.cpu_us)));
    line("memory", &format!("{} KiB, {} host calls", usage.memory_bytes / 1024, usage.host_calls));
    line("component", &record.component);
    let replay = if has_input { "kept: barbless replay can run it again" } else { "not kept: too large, or made room" };
    line("input", &format!("{} ({replay})", record.input_digest));
    for (binding, snapshot) in &record.input.snapshots {
        let what = match snapshot {
            SnapshotOutline::Ready { objects, bytes, .. } => format!("{objects} objects, {bytes} bytes"),
            SnapshotOutline::NotSynchronised { not_synchronised } => format!("not synchronised: {not_synchronised}"),
        };
        line("snapshot", &format!("{binding}: {what}"));
    }
    for (operation, result) in &record.operations {
        line("operation", &format!("{operation}: {result}"));
    }
    for change in &record.values {
        // The value is in -o yaml, masked unless it is asked for.
        line("values", &format!("{} {}", if change.value.is_some() { "set" } else { "remove" }, change.pointer));
    }
    for one in &record.metrics {
        line("metric", &format!("{} = {}", one.name, one.value));
    }
    for one in &record.log {
        line("log", &one.to_string());
    }
    text
}

/// `barbless logs`
///
/// # Errors
/// A report for the user.
pub(crate) fn logs(args: &Logs) -> Result<Exit, Report> {
    let archive = open(&args.selection.data_dir)?;
    let wanted = Wanted {
        namespace: args.selection.namespace.as_deref(),
        application: args.what.as_deref(),
        hook: args.selection.hook.as_deref(),
    };
    let records = match number(args.what.as_deref()) {
        Some(run) => vec![find(&archive, run)?],
        None => {
            let mut records = archive.records().map_err(|error| report(&error))?;
            wanted.is_there(&records)?;
            records.retain(|record| wanted.has(record));
            records
        }
    };
    let mut entries: Vec<Value> = Vec::new();
    for record in &records {
        let secrets = shown::secrets_of(record, args.show_secrets);
        let entry = |level: &str, message: &str, fields: Value, source: &str| {
            json!({
                "run": record.id, "application": record.application, "hook": record.hook,
                "started": moment(record.started_unix_ms), "source": source, "level": level,
                "message": secrets.mask_text(message), "fields": fields,
            })
        };
        for line in &record.log {
            let fields: serde_json::Map<String, Value> = line
                .fields
                .iter()
                .map(|(name, value)| (secrets.mask_text(name), json!(secrets.mask_text(value))))
                .collect();
            entries.push(entry(line.level.as_str(), &line.message, Value::Object(fields), "hook"));
        }
        if record.end.is_failure() {
            // What the hook could not log any more.
            let message = format!("[{}] {}", record.end.reason(), record.end);
            entries.push(entry("error", &message, json!({}), "host"));
        }
    }
    let skipped = args.tail.map_or(0, |tail| entries.len().saturating_sub(tail));
    let entries = entries.split_off(skipped);
    let mut text = String::new();
    for entry in &entries {
        match args.output {
            Listing::Json => text.push_str(&format!("{entry}\n")),
            Listing::Yaml => text.push_str(&format!("---\n{}", app::yaml(entry)?)),
            Listing::Table | Listing::Wide => {
                text.push_str(&log_line(entry, args.output == Listing::Wide));
                text.push('\n');
            }
        }
    }
    app::print(&text)?;
    Ok(Exit::Ok)
}

/// `12 feeds info: the list of feeds changed count=2`, with the time and the application first if there is room.
fn log_line(entry: &Value, wide: bool) -> String {
    let part = |name: &str| entry[name].as_str().unwrap_or_default();
    let mut line = String::new();
    if wide {
        line.push_str(&format!("{} {} ", part("started"), part("application")));
    }
    line.push_str(&format!("{} {} {}: {}", entry["run"], part("hook"), part("level"), part("message")));
    for (name, value) in entry["fields"].as_object().into_iter().flatten() {
        line.push_str(&format!(" {name}={}", value.as_str().unwrap_or_default()));
    }
    printable(&line, false)
}
