//! The error of a render, with the place that it happened at as fields.

use std::fmt;

use crate::{exec::ExecError, limits::Limit, parse::ParseError};

/// What kind of failure an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A template is not written correctly.
    Parse,
    /// A template failed while it was evaluated.
    Execution,
    /// A template called `fail`, or `required` without a value.
    Refused,
    /// Rendered text is not YAML, or not a Kubernetes object.
    Manifest,
    /// `Chart.yaml`, `values.yaml` or the layout of the chart is wrong.
    Chart,
    /// The values do not fit the `values.schema.json` of a chart.
    Schema,
    /// A budget was exceeded.
    Limit(Limit),
}

/// Why nothing was rendered.
///
/// `Display` is one sentence in Helm's shape; [`Error::helm`] is what Helm itself prints, over several lines.
#[derive(Clone, Debug)]
pub struct Error {
    /// What kind of failure it is; decide by this, not by the text.
    pub kind: Kind,
    /// The file, with the chart's name in front; empty if the failure has no place.
    pub template: String,
    /// From 1; 0 if unknown. For [`Kind::Manifest`] a line of the rendered text.
    pub line: usize,
    /// In bytes, from 1; 0 if unknown.
    pub column: usize,
    /// What went wrong, without the place.
    pub message: String,
    /// The line of text that `line` names.
    pub snippet: Option<String>,
    /// Templates that led here, outermost first, when the failure is inside `include` or `tpl`.
    pub trace: Box<[Frame]>,
    pub(crate) detail: Box<Detail>,
}

/// Kept apart so that results stay small.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) hint: Option<String>,
    pub(crate) helm: String,
}

/// One template on the way to a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The file, with the chart's name in front.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In bytes, from 1.
    pub column: usize,
    /// The name of the template that was executing.
    pub template: String,
    /// The expression.
    pub expression: String,
}

impl Error {
    /// A stable name of the failure, for events, metrics and scripts.
    pub fn code(&self) -> &'static str {
        match self.kind {
            Kind::Parse => "TemplateParseFailed",
            Kind::Execution => "TemplateExecutionFailed",
            Kind::Refused => "TemplateRefused",
            Kind::Manifest => "ManifestInvalid",
            Kind::Chart => "ChartInvalid",
            Kind::Schema => "ValuesInvalid",
            Kind::Limit(limit) => limit.code(),
        }
    }

    /// What the author or operator can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.detail.hint.as_deref()
    }

    /// The text that Helm 4 prints.
    pub fn helm(&self) -> &str {
        &self.detail.helm
    }

    pub(crate) fn chart(file: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind: Kind::Chart,
            template: file.to_string(),
            line: 0,
            column: 0,
            detail: Box::new(Detail { hint: None, helm: message.clone() }),
            message,
            snippet: None,
            trace: Box::default(),
        }
    }

    pub(crate) fn limit(file: &str, limit: Limit) -> Self {
        let mut error = Self::chart(file, limit.to_string());
        error.kind = Kind::Limit(limit);
        error
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }

    pub(crate) fn parse(file: &str, text: &str, error: &ParseError) -> Self {
        let kind = if error.too_deep { Kind::Limit(Limit::Nesting) } else { Kind::Parse };
        // Helm keeps what stands behind the last colon.
        let short = error.message.rsplit(": ").next().unwrap_or_default();
        Self {
            kind,
            template: file.to_string(),
            line: error.line,
            column: error.column + 1,
            message: error.message.clone(),
            snippet: text.lines().nth(error.line.saturating_sub(1)).map(clip),
            trace: Box::default(),
            detail: Box::new(Detail {
                hint: parse_hint(&error.message),
                helm: format!("parse error at ({file}:{}): {short}", error.line),
            }),
        }
    }

    pub(crate) fn execution(error: &ExecError) -> Self {
        let inner = error.innermost();
        let (kind, message) = match (error.fail(), error.limit()) {
            (Some(text), _) => (Kind::Refused, text.to_string()),
            (None, Some(limit)) => (Kind::Limit(limit), limit.to_string()),
            (None, None) => (Kind::Execution, inner.reason()),
        };
        let message = bounded(message);
        let frames = ends(error.chain());
        Self {
            kind,
            template: inner.file.to_string(),
            line: inner.line,
            column: inner.column + 1,
            detail: Box::new(Detail { hint: exec_hint(&message, &inner.context), helm: bounded(error.helm()) }),
            message,
            snippet: Some(clip(&inner.source_line)),
            trace: frames
                .iter()
                .map(|frame| Frame {
                    file: frame.file.to_string(),
                    line: frame.line,
                    column: frame.column + 1,
                    template: frame.template.to_string(),
                    expression: clip(&frame.context),
                })
                .collect(),
        }
    }
}

/// The beginning and the end of a long way: recursion repeats what is between.
fn ends(mut chain: Vec<&ExecError>) -> Vec<&ExecError> {
    const KEPT: usize = 20;
    if chain.len() > 2 * KEPT {
        chain.drain(KEPT..chain.len() - KEPT);
    }
    chain
}

/// Messages quote what templates made, which can be megabytes.
fn bounded(mut text: String) -> String {
    const MAX: usize = 64 << 10;
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Snippets are for people: a minified line of a megabyte is not.
fn clip(text: &str) -> String {
    const MAX: usize = 200;
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(MAX).collect();
    if chars.next().is_some() { start + "…" } else { start }
}

fn parse_hint(message: &str) -> Option<String> {
    if message == "unexpected EOF" {
        return Some("an if, range, with, define or block has no matching {{ end }}".into());
    }
    if message.starts_with("unexpected {{end}}") || message.starts_with("unexpected {{else}}") {
        return Some("there is no open if, range or with at this point: an {{ end }} before it closes too much".into());
    }
    if message.contains("\"env\" not defined") || message.contains("\"expandenv\" not defined") {
        return Some("templates cannot read the environment; pass the value in through values".into());
    }
    if message.ends_with("not defined") && message.starts_with("function") {
        return Some("check the spelling; only the functions of Go templates, sprig and Helm exist".into());
    }
    None
}

fn exec_hint(message: &str, context: &str) -> Option<String> {
    if message.contains("nil pointer evaluating") {
        return Some(format!(
            "a parent of {} is not set; give it a default, or guard it with `with` or `dig`",
            clip(context)
        ));
    }
    if message.contains("incompatible types for comparison") {
        return Some("numbers from values are float64: compare with `eq (int …) 1` or `eq … 1.0`".into());
    }
    if message.contains("no template") && message.contains("associated") {
        return Some("define it in a file of templates/ (usually _helpers.tpl), or check the name".into());
    }
    if message.contains("got interface {}") {
        return Some(format!("{} is not set; use `default`, or `required` to say so", clip(context)));
    }
    None
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, line, column, message, .. } = self;
        let place = match (template.is_empty(), *line) {
            (true, _) => String::new(),
            (false, 0) => template.clone(),
            (false, _) if self.kind == Kind::Parse => format!("{template}:{line}"),
            (false, _) => format!("{template}:{line}:{column}"),
        };
        match (self.kind, place.is_empty()) {
            (_, true) => f.write_str(message),
            (Kind::Parse, _) => write!(f, "parse error at ({place}): {message}"),
            (Kind::Execution, _) => match self.trace.last() {
                Some(frame) => write!(
                    f,
                    "{place}: executing {} at <{}>: {message}",
                    crate::gofmt::quote(&frame.template),
                    frame.expression
                ),
                None => write!(f, "{place}: {message}"),
            },
            (Kind::Refused, _) => write!(f, "execution error at ({place}): {message}"),
            (Kind::Manifest | Kind::Chart | Kind::Schema | Kind::Limit(_), _) => write!(f, "{place}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
