//! A replay for people.

use barbless_domain::run::RunRecord;

use super::compared::{Comparison, Part};
use crate::history::moment;
use crate::plan::{coloured, difference::Difference};
use crate::report::printable;

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const CYAN: &str = "\u{1b}[36m";
const RESET: &str = "\u{1b}[0m";

/// The comparison as text: what differs, and with `lines`, how.
pub(super) fn print(record: &RunRecord, component: &str, comparison: &Comparison, lines: bool) -> String {
    let mut text = String::new();
    let mut line = |part: &str| {
        text.push_str(&printable(part, false));
        text.push('\n');
    };
    line(&format!(
        "run {}: {}, hook {} ({}), {}",
        record.id,
        record.application,
        record.hook,
        record.trigger.as_str(),
        moment(record.started_unix_ms)
    ));
    if component != record.component {
        line(&format!("recorded with {}", record.component));
        line(&format!("replayed with {component}"));
    }
    if comparison.is_identical() {
        let counts: Vec<String> = comparison.parts.iter().skip(1).map(|it| counted(it.part, it.recorded)).collect();
        line(&format!("identical: {}, {}", record.end_of_hook().reason(), counts.join(", ")));
        return text;
    }
    for part in comparison.parts.iter().filter(|part| !part.identical) {
        line(&headline(part));
    }
    if !lines {
        line("--diff shows how");
        return text;
    }
    text.push_str("--- recorded\n+++ replayed\n");
    for titled in comparison.parts.iter().flat_map(|part| &part.differences) {
        text.push_str(&format!("\n{}\n", printable(&titled.title, false)));
        difference(&mut text, &titled.difference, coloured());
    }
    text
}

fn headline(part: &Part) -> String {
    match part.part {
        "result" => "different: result".to_owned(),
        name if part.recorded == part.replayed => format!("different: {name} ({} each)", part.recorded),
        name => format!("different: {name} ({} recorded, {} replayed)", part.recorded, part.replayed),
    }
}

fn counted(part: &str, count: usize) -> String {
    let (one, many) = match part {
        "operations" => ("operation", "operations"),
        "values" => ("change of values", "changes of values"),
        "metrics" => ("metric", "metrics"),
        _ => ("line of log", "lines of log"),
    };
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Lines of a difference, indented.
pub(crate) fn difference(text: &mut String, difference: &Difference, colour: bool) {
    for line in &difference.lines {
        let line = printable(line, false);
        let shade = match line.as_bytes().first() {
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            Some(b'@') => CYAN,
            _ => "",
        };
        match colour && !shade.is_empty() {
            true => text.push_str(&format!("  {shade}{line}{RESET}\n")),
            false => text.push_str(&format!("  {line}\n")),
        }
    }
    if difference.lines_cut > 0 {
        text.push_str(&format!("  … {} more lines\n", difference.lines_cut));
    }
}
