//! The tree of a template. Every node prints itself as Go prints it, since error messages quote nodes.

use std::{fmt, rc::Rc};

/// One named template: a file, or a `define`/`block` in it.
pub(crate) struct Tree {
    pub(crate) name: Rc<str>,
    /// The file it was written in.
    pub(crate) file: Rc<str>,
    /// The whole text of that file.
    pub(crate) text: Rc<str>,
    pub(crate) root: Vec<Node>,
}

impl Tree {
    /// Whether it holds nothing but white space: such a definition does not replace another.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.iter().all(|node| matches!(node, Node::Text { text, .. } if text.trim().is_empty()))
    }

    /// Line from 1 and column from 0, in bytes, as Go counts them.
    pub(crate) fn position(&self, pos: usize) -> (usize, usize) {
        position(&self.text, pos)
    }
}

pub(crate) fn position(text: &str, pos: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..pos.min(text.len())];
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    let column = match before.iter().rposition(|b| *b == b'\n') {
        Some(newline) => before.len() - newline - 1,
        None => before.len(),
    };
    (line, column)
}

pub(crate) enum Node {
    Text { pos: usize, text: Rc<str> },
    Action { pos: usize, pipe: Pipe },
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { pos: usize, name: Rc<str>, pipe: Option<Pipe> },
    Break { pos: usize },
    Continue { pos: usize },
}

pub(crate) struct Branch {
    pub(crate) pos: usize,
    pub(crate) pipe: Pipe,
    pub(crate) list: Vec<Node>,
    pub(crate) otherwise: Option<Vec<Node>>,
}

pub(crate) struct Pipe {
    pub(crate) pos: usize,
    pub(crate) is_assign: bool,
    /// Names with their `$`.
    pub(crate) decl: Vec<Rc<str>>,
    pub(crate) cmds: Vec<Command>,
}

pub(crate) struct Command {
    pub(crate) pos: usize,
    /// Never empty.
    pub(crate) args: Vec<Expr>,
}

pub(crate) enum Expr {
    Dot {
        pos: usize,
    },
    Nil {
        pos: usize,
    },
    Bool {
        pos: usize,
        value: bool,
    },
    Number(Number),
    Str {
        pos: usize,
        quoted: String,
        text: Rc<str>,
    },
    Field {
        pos: usize,
        ident: Vec<Rc<str>>,
    },
    /// The first name has its `$`.
    Variable {
        pos: usize,
        ident: Vec<Rc<str>>,
    },
    Function {
        pos: usize,
        name: Rc<str>,
    },
    Chain {
        pos: usize,
        node: Box<Self>,
        field: Vec<Rc<str>>,
    },
    Pipe(Pipe),
}

pub(crate) struct Number {
    pub(crate) pos: usize,
    pub(crate) text: String,
    pub(crate) int: Option<i64>,
    pub(crate) float: f64,
    /// Written as a float (`1.0`, `1e3`), so that its natural type is float64.
    pub(crate) is_float: bool,
}

impl Node {
    pub(crate) fn pos(&self) -> usize {
        match self {
            Self::Text { pos, .. }
            | Self::Action { pos, .. }
            | Self::Template { pos, .. }
            | Self::Break { pos }
            | Self::Continue { pos } => *pos,
            Self::If(branch) | Self::With(branch) | Self::Range(branch) => branch.pos,
        }
    }
}

impl Expr {
    pub(crate) fn pos(&self) -> usize {
        match self {
            Self::Dot { pos }
            | Self::Nil { pos }
            | Self::Bool { pos, .. }
            | Self::Str { pos, .. }
            | Self::Field { pos, .. }
            | Self::Variable { pos, .. }
            | Self::Function { pos, .. }
            | Self::Chain { pos, .. } => *pos,
            Self::Number(number) => number.pos,
            Self::Pipe(pipe) => pipe.pos,
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dot { .. } => f.write_str("."),
            Self::Nil { .. } => f.write_str("nil"),
            Self::Bool { value, .. } => write!(f, "{value}"),
            Self::Number(number) => f.write_str(&number.text),
            Self::Str { quoted, .. } => f.write_str(quoted),
            Self::Field { ident, .. } => ident.iter().try_for_each(|name| write!(f, ".{name}")),
            Self::Variable { ident, .. } => f.write_str(&ident.join(".")),
            Self::Function { name, .. } => f.write_str(name),
            Self::Chain { node, field, .. } => {
                match &**node {
                    Self::Pipe(pipe) => write!(f, "({pipe})")?,
                    node => write!(f, "{node}")?,
                }
                field.iter().try_for_each(|name| write!(f, ".{name}"))
            }
            Self::Pipe(pipe) => write!(f, "{pipe}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, arg) in self.args.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            match arg {
                Expr::Pipe(pipe) => write!(f, "({pipe})")?,
                arg => write!(f, "{arg}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.decl.is_empty() {
            f.write_str(&self.decl.join(", "))?;
            f.write_str(if self.is_assign { " = " } else { " := " })?;
        }
        for (i, cmd) in self.cmds.iter().enumerate() {
            if i > 0 {
                f.write_str(" | ")?;
            }
            write!(f, "{cmd}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, nodes: &[Self]| nodes.iter().try_for_each(|node| write!(f, "{node}"));
        let branch = |f: &mut fmt::Formatter<'_>, word: &str, branch: &Branch| {
            write!(f, "{{{{{word} {}}}}}", branch.pipe)?;
            list(f, &branch.list)?;
            if let Some(otherwise) = &branch.otherwise {
                f.write_str("{{else}}")?;
                list(f, otherwise)?;
            }
            f.write_str("{{end}}")
        };
        match self {
            Self::Text { text, .. } => f.write_str(text),
            Self::Action { pipe, .. } => write!(f, "{{{{{pipe}}}}}"),
            Self::If(b) => branch(f, "if", b),
            Self::With(b) => branch(f, "with", b),
            Self::Range(b) => branch(f, "range", b),
            Self::Template { name, pipe, .. } => {
                write!(f, "{{{{template {}", crate::gofmt::quote(name))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Self::Break { .. } => f.write_str("{{break}}"),
            Self::Continue { .. } => f.write_str("{{continue}}"),
        }
    }
}
