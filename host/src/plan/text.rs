//! A plan for people.
//!
//! Packages, guests and the cluster have a say in nearly every text: control characters are escaped, so that nothing
//! drives the terminal or looks like a line of its own.

use std::fmt::Write as _;

use super::difference::Difference;
use super::document::{Change, Document, FieldPart, HookPart, ObjectPart, OperationPart, ProblemPart, counted};
use super::steps::{Stage, short};
use crate::report::printable;

/// Names in one line of a stage; a list of hundreds is in the JSON.
const NAMES_MAX: usize = 20;
/// Conditions of one stage.
const CONDITIONS_MAX: usize = 5;

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const CYAN: &str = "\u{1b}[36m";
const BOLD: &str = "\u{1b}[1m";
const RESET: &str = "\u{1b}[0m";

/// The plan as text, with colours if the reader is a terminal.
#[must_use]
pub(super) fn print(document: &Document, colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    page.head(document);
    page.settings(document);
    page.hooks(document);
    page.steps(document);
    page.objects(document);
    page.rest(document);
    page.text
}

struct Page {
    text: String,
    colour: bool,
}

impl Page {
    /// One line, in a colour.
    fn line(&mut self, colour: &str, text: &str) {
        let text = printable(text, false);
        // Writing to a String cannot fail.
        let _ = match self.colour && !colour.is_empty() {
            true => writeln!(self.text, "{colour}{text}{RESET}"),
            false => writeln!(self.text, "{text}"),
        };
    }

    fn heading(&mut self, text: &str) {
        self.text.push('\n');
        self.line(BOLD, text);
    }

    fn head(&mut self, document: &Document) {
        let Document { application, package, version, cluster, action, revision, reason, .. } = document;
        self.line(BOLD, &format!("application {application}: package {package} {version}"));
        self.line("", &format!("cluster: {cluster}"));
        let revision = match (revision.from, revision.to) {
            (Some(from), Some(to)) => format!("revision {from} → {to}"),
            (None, Some(to)) => format!("revision {to}"),
            (Some(from), None) => format!("revision {from} stays"),
            (None, None) => "no revision".to_owned(),
        };
        match reason {
            Some(reason) => self.line("", &format!("{action}, {revision}: {reason}")),
            None if action == "none" => self.line("", &format!("nothing to apply, {revision}")),
            None => self.line("", &format!("{action}, {revision}")),
        }
    }

    fn settings(&mut self, document: &Document) {
        if !document.settings.is_empty() {
            self.heading("settings");
            self.difference("  ", &document.settings);
        }
    }

    fn hooks(&mut self, document: &Document) {
        if document.hooks.is_empty() && document.hooks_later.is_empty() {
            return;
        }
        self.heading("hooks");
        for hook in &document.hooks {
            self.hook(hook);
        }
        for later in &document.hooks_later {
            self.line("", &format!("  {} ({}): runs when the plan is carried out", later.hook, later.trigger));
        }
    }

    fn hook(&mut self, hook: &HookPart) {
        let HookPart { hook, trigger, failure, log, values, operations } = hook;
        let quiet = failure.is_none() && values.is_empty() && operations.is_empty();
        let says = if quiet { ": changes nothing" } else { "" };
        self.line("", &format!("  {hook} ({trigger}){says}"));
        for line in log {
            self.line("", &format!("    log {line}"));
        }
        if let Some(failure) = failure {
            self.problem("    ", failure);
        }
        if !values.is_empty() {
            self.line("", "    values");
            self.difference("      ", values);
        }
        for operation in operations {
            self.operation(operation);
        }
    }

    fn operation(&mut self, operation: &OperationPart) {
        let OperationPart { operation, denied, object } = operation;
        match denied {
            Some(problem) => {
                self.line(RED, &format!("    ! {operation}: denied"));
                self.problem("      ", problem);
            }
            None => {
                let says = match object.change {
                    Change::Unchanged => ": changes nothing",
                    Change::Refused => ": refused",
                    _ => "",
                };
                self.line(colour_of(object.change), &format!("    {} {operation}{says}", object.change.sign()));
            }
        }
        self.details("      ", object);
    }

    fn steps(&mut self, document: &Document) {
        if document.stages.is_empty() {
            return;
        }
        let steps = counted(document.stages.iter().flat_map(|it| &it.acts).map(|(_, it)| it.len()).sum(), "step");
        self.heading(&format!("{steps} in {}", counted(document.stages.len(), "stage")));
        for (index, Stage { acts, after }) in document.stages.iter().enumerate() {
            for (place, (act, objects)) in acts.iter().enumerate() {
                let number = if place == 0 { format!("{:>3}.", index + 1) } else { "    ".to_owned() };
                self.line("", &format!("{number} {act} {}", some(objects, NAMES_MAX)));
            }
            if !after.is_empty() {
                self.line("", &format!("     after: {}", some(after, CONDITIONS_MAX)));
            }
        }
    }

    fn objects(&mut self, document: &Document) {
        let shown = |object: &&ObjectPart| {
            !matches!(object.change, Change::Unchanged) || !object.notes.is_empty() || !object.fields.is_empty()
        };
        let objects: Vec<&ObjectPart> = document.objects.iter().filter(shown).collect();
        if objects.is_empty() {
            return;
        }
        self.heading("objects");
        for object in objects {
            let events: Vec<&str> = object.events.iter().map(|event| event.as_str()).collect();
            let events = if events.is_empty() { String::new() } else { format!(" ({} hook)", events.join(", ")) };
            let source = if object.source.is_empty() { String::new() } else { format!("  # {}", object.source) };
            let (sign, word) = (object.change.sign(), object.change.as_str());
            self.line(colour_of(object.change), &format!("  {sign} {word} {}{events}{source}", short(&object.target)));
            self.details("      ", object);
        }
    }

    fn details(&mut self, indent: &str, object: &ObjectPart) {
        for FieldPart { field, manager, settlement } in &object.fields {
            let says = match *settlement {
                "taken" => "is taken",
                "left" => "is left to it",
                _ => "nobody says whether it is taken or left",
            };
            self.line("", &format!("{indent}field {field} of manager {manager:?}: {says}"));
        }
        for note in &object.notes {
            self.line("", &format!("{indent}{note}"));
        }
        self.difference(indent, &object.difference);
    }

    fn rest(&mut self, document: &Document) {
        if !document.notes.is_empty() {
            self.heading("notes");
            for note in &document.notes {
                self.line("", &format!("  {note}"));
            }
        }
        if !document.problems.is_empty() {
            self.heading("in the way");
            for problem in &document.problems {
                self.problem("  ", problem);
            }
        }
        self.text.push('\n');
        self.line(BOLD, &document.summary.words());
    }

    fn problem(&mut self, indent: &str, problem: &ProblemPart) {
        let mut lines = problem.message.lines();
        self.line(RED, &format!("{indent}[{}] {}", problem.reason, lines.next().unwrap_or_default()));
        for line in lines {
            self.line(RED, &format!("{indent}  {line}"));
        }
        if let Some(hint) = &problem.hint {
            self.line("", &format!("{indent}  help: {hint}"));
        }
    }

    fn difference(&mut self, indent: &str, difference: &Difference) {
        for line in &difference.lines {
            let colour = match line.as_bytes().first() {
                Some(b'+') => GREEN,
                Some(b'-') => RED,
                Some(b'@') => CYAN,
                _ => "",
            };
            self.line(colour, &format!("{indent}{line}"));
        }
        if difference.lines_cut > 0 {
            self.line(CYAN, &format!("{indent}… {} more", counted(difference.lines_cut, "line")));
        }
    }
}

fn colour_of(change: Change) -> &'static str {
    match change {
        Change::Create => GREEN,
        Change::Change | Change::Recreate | Change::Unknown => YELLOW,
        Change::Delete | Change::Conflict | Change::Refused => RED,
        Change::Unchanged | Change::Left | Change::Keep => "",
    }
}

fn some(names: &[String], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(String::as_str).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
