//! What a user sees when something fails: what, where, why, what to do, and a code that never changes.

use std::fmt;
use std::process::ExitCode;

pub use barbless_domain::error::chain;
use barbless_domain::event::Failure;

/// How the program ends. The numbers are documented in the README and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// Failed.
    Failed,
    /// The arguments make no sense.
    Usage,
    /// A difference was found.
    Difference,
    /// Time ran out.
    TimedOut,
    /// Something was not found.
    NotFound,
    /// Denied by a grant.
    Denied,
    /// Tests or checks failed.
    ChecksFailed,
    /// Stopped by the user.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Difference => 3,
            Exit::TimedOut => 4,
            Exit::NotFound => 5,
            Exit::Denied => 6,
            Exit::ChecksFailed => 7,
            Exit::Interrupted => 130,
        })
    }
}

/// An error for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Stable code in PascalCase.
    pub code: String,
    /// What failed, with names, and why.
    pub message: String,
    /// File, line and column, or an object.
    pub place: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// How the program ends.
    pub exit: Exit,
}

impl Report {
    /// A failure with a code and a message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), place: None, hint: None, exit: Exit::Failed }
    }

    /// At this place.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Ending the program like this.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// From an error with sources, each told once.
    pub fn of(code: &str, error: &dyn std::error::Error) -> Self {
        Self::new(code, chain(error))
    }
}

impl From<Failure> for Report {
    fn from(failure: Failure) -> Self {
        let denied = [
            "NotGranted",
            "ClusterScopeNotGranted",
            "InterfaceNotGranted",
            "ForeignNamespace",
            "ForeignObject",
            "HostObject",
        ];
        let exit = if denied.contains(&failure.reason.as_str()) { Exit::Denied } else { Exit::Failed };
        Self { code: failure.reason, message: failure.message, place: None, hint: failure.hint, exit }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        let message = match report.place {
            Some(place) => format!("{place}: {}", report.message),
            None => report.message,
        };
        Self { reason: report.code, message, hint: report.hint, retry_after_ms: None }
    }
}

/// For a terminal. Packages, guests and clusters have a say in the texts, so control characters are escaped.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: ", printable(&self.code, false))?;
        if let Some(place) = &self.place {
            write!(f, "{}: ", printable(place, false))?;
        }
        f.write_str(&printable(&self.message, true))?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  help: {}", printable(hint, true))?;
        }
        Ok(())
    }
}

/// Text that may come from anywhere, for a terminal: control characters, and those that change the direction of text, are
/// escaped; line breaks and tabs stay where lines are expected.
pub(crate) fn printable(text: &str, lines: bool) -> String {
    let moves = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && !(lines && matches!(c, '\n' | '\t'))) || moves(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_where_why_and_what_to_do() {
        let report =
            Report::new("BadManifest", "unknown key 'nmae'").at("package.yaml:3:1").hint("did you mean 'name'?");
        assert_eq!(
            report.to_string(),
            "error[BadManifest]: package.yaml:3:1: unknown key 'nmae'\n  help: did you mean 'name'?"
        );
    }

    #[test]
    fn nobody_drives_the_terminal_through_an_error() {
        let mut report = Report::new("Bad\u{1b}[31m", "a\u{1b}]52;c;ZXZpbA==\u{7}\nb\r\u{202e}").hint("\u{9b}2J");
        report = report.at("x\ny");
        let text = report.to_string();
        assert_eq!(
            text,
            "error[Bad\\u{1b}[31m]: x\\ny: a\\u{1b}]52;c;ZXZpbA==\\u{7}\nb\\r\\u{202e}\n  help: \\u{9b}2J"
        );
        assert_eq!(printable("a\u{1b}[31mb\nc", false), "a\\u{1b}[31mb\\nc");
    }
}
