//! What happens, on standard error: a tree with a moving last line on a terminal, one line an event elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use barbless_domain::run::RunRecord;
use indicatif::{ProgressBar, ProgressStyle};

use crate::notice::Notice;
use crate::report::printable;
use crate::runs::shown;

/// Prints notices.
#[derive(Debug)]
pub struct Ui {
    spinner: Option<ProgressBar>,
    last_summary: String,
}

impl Ui {
    /// A tree if standard error is a terminal and nobody asked for plain output.
    #[must_use]
    pub fn new(plain: bool) -> Self {
        let live = !plain && std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        let spinner = live.then(|| {
            let spinner = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { spinner, last_summary: String::new() }
    }

    /// A heading.
    pub fn heading(&self, text: &str) {
        self.line(text);
    }

    /// Prints one line. Much of it comes from guests, packages and the cluster: nothing of it may drive the terminal or
    /// look like a line of its own.
    fn line(&self, text: &str) {
        let text = printable(text, false);
        match &self.spinner {
            Some(spinner) => spinner.println(text),
            // Standard error may be closed; nothing depends on it.
            None => {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }

    /// Prints a notice.
    pub fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Began { what } => {
                if let Some(spinner) = &self.spinner {
                    spinner.set_message(printable(&format!("{what} …"), false));
                    spinner.reset_elapsed();
                }
            }
            Notice::Ended { what, ms, outcome } => {
                let outcome = if outcome == "done" { String::new() } else { format!(": {outcome}") };
                self.line(&format!("├─ {what}{outcome} ({ms} ms)"));
            }
            Notice::Failed { what, failure } => {
                let mut lines = failure.message.lines();
                self.line(&format!("├─ ✗ {what}: [{}] {}", failure.reason, lines.next().unwrap_or_default()));
                // The mark in front keeps them from looking like lines of their own.
                lines.for_each(|line| self.line(&format!("│    {line}")));
                if let Some(hint) = &failure.hint {
                    self.line(&format!("│    help: {hint}"));
                }
            }
            Notice::Ran(record) => self.run(record),
            Notice::Progress { text } => self.line(&format!("│  · {text}")),
            Notice::Status(status) => {
                let summary = &status.summary;
                let text = if summary.message.is_empty() {
                    summary.state.clone()
                } else {
                    printable(&format!("{}: {}", summary.state, summary.message), false)
                };
                if text != self.last_summary {
                    if let Some(spinner) = &self.spinner {
                        spinner.set_message(text.clone());
                    }
                    self.last_summary = text;
                }
            }
        }
    }

    fn run(&self, record: &RunRecord) {
        let secrets = shown::secrets_of(record, false);
        let mark = if record.end.is_failure() { "✗ " } else { "" };
        let mut text = format!("├─ {mark}{} hook {}", record.trigger.as_str(), record.hook);
        if record.attempt > 1 {
            text.push_str(&format!(" (attempt {})", record.attempt));
        }
        if !record.end.is_ok() {
            text.push_str(&format!(": [{}] {}", record.end.reason(), secrets.mask_text(&record.end.to_string())));
        }
        let micros = record.usage.wall_us;
        text.push_str(&format!(" ({}.{:03} ms)", micros / 1000, micros % 1000));
        self.line(&text);
        for line in &record.log {
            self.line(&format!("│  {}", secrets.mask_text(&line.to_string())));
        }
        for (operation, result) in &record.operations {
            self.line(&format!("│  {operation}: {}", secrets.mask_text(&result.to_string())));
        }
        for change in &record.values {
            // The value may be a secret: only where, never what.
            let verb = if change.value.is_some() { "set" } else { "remove" };
            self.line(&format!("│  {verb} values {}", change.pointer));
        }
    }

    /// Takes the moving line away.
    pub fn finish(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
