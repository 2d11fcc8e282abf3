//! What goes wrong inside an evaluation, as a chain that can be printed as Go and as Helm print it.

use std::{fmt, rc::Rc};

use crate::{gofmt, limits::Limit, parse::ast::Tree};

/// Why a function failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Message(String),
    /// `fail` and `required`: the author's own words.
    Fail(String),
    /// `include` of a name that nobody defines.
    NoTemplate(String),
    /// A nested template failed.
    Exec(Box<ExecError>),
    /// `tpl`: what it was doing, and the cause.
    Context(String, Box<Self>),
    Limit(Limit),
}

impl Fault {
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }
}

impl From<Limit> for Fault {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(text) | Self::Fail(text) => f.write_str(text),
            Self::NoTemplate(name) => {
                write!(f, "template: no template {} associated with template \"gotpl\"", gofmt::quote(name))
            }
            Self::Exec(error) => error.fmt(f),
            Self::Context(text, source) => write!(f, "{text}: {source}"),
            Self::Limit(limit) => limit.fmt(f),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Cause {
    Text(String),
    Call { function: String, source: Fault },
    Limit(Limit),
}

/// A failure at a place in a template.
#[derive(Debug)]
pub(crate) struct ExecError {
    pub(crate) template: Rc<str>,
    pub(crate) file: Rc<str>,
    pub(crate) line: usize,
    /// From 0, in bytes.
    pub(crate) column: usize,
    /// The node, printed.
    pub(crate) context: String,
    /// The line of the template that holds the node.
    pub(crate) source_line: String,
    pub(crate) cause: Cause,
}

impl ExecError {
    pub(crate) fn new(tree: &Tree, pos: usize, context: String, cause: Cause) -> Self {
        let (line, column) = tree.position(pos);
        let source_line = tree.text.lines().nth(line - 1).unwrap_or_default().to_string();
        Self { template: tree.name.clone(), file: tree.file.clone(), line, column, context, source_line, cause }
    }

    pub(crate) fn location(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }

    fn executing(&self) -> String {
        format!("executing {} at <{}>", gofmt::quote(&self.template), self.context)
    }

    /// The failure that started it all: inside `include` and `tpl` the innermost.
    pub(crate) fn innermost(&self) -> &Self {
        let mut current = self;
        while let Cause::Call { source, .. } = &current.cause {
            let mut source = source;
            while let Fault::Context(_, inner) = source {
                source = inner;
            }
            match source {
                Fault::Exec(inner) => current = inner,
                _ => break,
            }
        }
        current
    }

    /// The failures from the outermost to the innermost.
    pub(crate) fn chain(&self) -> Vec<&Self> {
        let mut chain = vec![self];
        let mut current = self;
        while let Cause::Call { source, .. } = &current.cause {
            let mut source = source;
            while let Fault::Context(_, inner) = source {
                source = inner;
            }
            let Fault::Exec(inner) = source else { break };
            chain.push(inner);
            current = inner;
        }
        chain
    }

    /// What went wrong here, without the place.
    pub(crate) fn reason(&self) -> String {
        match &self.cause {
            Cause::Text(text) => text.clone(),
            Cause::Limit(limit) => limit.to_string(),
            Cause::Call { function, source } => format!("error calling {function}: {source}"),
        }
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        match &self.innermost().cause {
            Cause::Limit(limit) => Some(*limit),
            Cause::Call { source, .. } => {
                let mut source = source;
                while let Fault::Context(_, inner) = source {
                    source = inner;
                }
                if let Fault::Limit(limit) = source { Some(*limit) } else { None }
            }
            Cause::Text(_) => None,
        }
    }

    /// The words of `fail` or `required`, if that is what happened.
    pub(crate) fn fail(&self) -> Option<&str> {
        match &self.innermost().cause {
            Cause::Call { source, .. } => {
                let mut source = source;
                while let Fault::Context(_, inner) = source {
                    source = inner;
                }
                if let Fault::Fail(text) = source { Some(text) } else { None }
            }
            _ => None,
        }
    }

    /// As Helm 4 prints it: one block per template when the whole chain consists of template failures, Go's single line
    /// otherwise.
    pub(crate) fn helm(&self) -> String {
        if let Some(text) = self.fail() {
            return format!("execution error at ({}): {text}", self.location());
        }
        let mut out = String::new();
        let mut current = self;
        loop {
            let head = format!("{}\n  {}:\n    ", current.location(), current.executing());
            out.push_str(&head);
            match &current.cause {
                Cause::Text(text) => out.push_str(&format!("{text}\n")),
                Cause::Limit(limit) => out.push_str(&format!("{limit}\n")),
                Cause::Call { function, source } => {
                    out.push_str(&format!("error calling {function}:\n"));
                    match source {
                        Fault::Exec(inner) => {
                            current = inner;
                            continue;
                        }
                        source @ Fault::NoTemplate(_) => out.push_str(&format!("{source}\n")),
                        _ => return self.to_string(),
                    }
                }
            }
            return out.trim().to_string();
        }
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "template: {}: {}: ", self.location(), self.executing())?;
        match &self.cause {
            Cause::Text(text) => f.write_str(text),
            Cause::Limit(limit) => limit.fmt(f),
            Cause::Call { function, source } => write!(f, "error calling {function}: {source}"),
        }
    }
}
