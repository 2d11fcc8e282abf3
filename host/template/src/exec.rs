//! Evaluates trees, step by step as Go's `text/template/exec.go` does, under the budget of a run.
//!
//! Go distinguishes an untyped nil from a nil stored in an `interface{}`: a field of the first is nothing, a field of the
//! second is an error. [`Operand::is_interface`] carries that difference.

mod call;
pub(crate) mod fault;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt, rc::Rc};

pub(crate) use fault::{Cause, ExecError, Fault};
pub(crate) use run::{DEPTH_MAX, Run};

use crate::{
    funcs::{self, Call, Function},
    gofmt,
    limits::Limit,
    parse::ast::{Branch, Command, Expr, Node, Pipe, Tree},
    value::Value,
};

/// What an undefined value prints as; Helm removes it from its output.
pub(crate) const NO_VALUE: &str = "<no value>";

/// The named templates that can call each other.
#[derive(Clone, Default)]
pub(crate) struct Templates {
    by_name: HashMap<Rc<str>, Rc<Tree>>,
}

impl Templates {
    /// Adds or replaces, but an empty definition replaces nothing.
    pub(crate) fn add(&mut self, tree: Rc<Tree>) {
        if tree.is_empty() && self.by_name.contains_key(&tree.name) {
            return;
        }
        self.by_name.insert(tree.name.clone(), tree);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tree> {
        self.by_name.get(name).map(|tree| &**tree)
    }
}

#[derive(Clone)]
pub(crate) struct Operand {
    value: Value,
    /// Its static type is `interface {}`: it came out of a map or a list.
    is_interface: bool,
}

impl Operand {
    fn of(value: Value) -> Self {
        Self { value, is_interface: false }
    }

    fn boxed(value: Value) -> Self {
        Self { value, is_interface: true }
    }

    fn type_name(&self) -> &'static str {
        if self.is_interface { "interface {}" } else { self.value.type_name() }
    }
}

#[derive(Clone, Copy)]
enum At<'t> {
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Expr(&'t Expr),
}

impl At<'_> {
    fn pos(&self) -> usize {
        match self {
            Self::Node(node) => node.pos(),
            Self::Pipe(pipe) => pipe.pos,
            Self::Command(command) => command.pos,
            Self::Expr(expr) => expr.pos(),
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Expr(expr) => expr.fmt(f),
        }
    }
}

enum Flow {
    Next,
    Break,
    Continue,
}

type Exec<T> = Result<T, Box<ExecError>>;

/// Evaluates a tree with a dot and appends its text to `out`.
pub(crate) fn execute(
    run: &mut Run<'_>,
    set: &Templates,
    tree: &Tree,
    dot: Value,
    out: &mut String,
) -> Result<(), Box<ExecError>> {
    let dot = Operand::of(dot);
    State { run, set, tree, vars: vec![("$", dot.clone())], at: None, out }.template(&dot)
}

struct State<'s, 't, 'r> {
    run: &'s mut Run<'r>,
    set: &'t Templates,
    tree: &'t Tree,
    vars: Vec<(&'t str, Operand)>,
    at: Option<At<'t>>,
    out: &'s mut String,
}

impl<'t> State<'_, 't, '_> {
    fn fail<T>(&self, cause: Cause) -> Exec<T> {
        let (pos, context) = match &self.at {
            Some(at) => (at.pos(), at.to_string()),
            None => (0, String::new()),
        };
        Err(Box::new(ExecError::new(self.tree, pos, context, cause)))
    }

    fn error<T>(&self, message: impl Into<String>) -> Exec<T> {
        self.fail(Cause::Text(message.into()))
    }

    fn check(&self, result: Result<(), Limit>) -> Exec<()> {
        match result {
            Ok(()) => Ok(()),
            Err(limit) => self.fail(Cause::Limit(limit)),
        }
    }

    fn step(&mut self) -> Exec<()> {
        let result = self.run.step();
        self.check(result)
    }

    /// Runs `inside` one level deeper. The level is given back only on success: an error ends the render.
    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Exec<T>) -> Exec<T> {
        let result = self.run.enter();
        self.check(result)?;
        let value = inside(self)?;
        self.run.leave();
        Ok(value)
    }

    fn template(&mut self, dot: &Operand) -> Exec<()> {
        let tree = self.tree;
        self.deeper(|state| state.list(dot, &tree.root)).map(|_| ())
    }

    fn write(&mut self, text: &str) -> Exec<()> {
        let result = self.run.output(text.len());
        self.check(result)?;
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, dot: &Operand, nodes: &'t [Node]) -> Exec<Flow> {
        for node in nodes {
            match self.node(dot, node)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Operand, node: &'t Node) -> Exec<Flow> {
        self.step()?;
        self.at = Some(At::Node(node));
        match node {
            Node::Text { text, .. } => self.write(text)?,
            Node::Action { pipe, .. } => {
                let value = self.pipeline(dot, pipe)?;
                if pipe.decl.is_empty() {
                    self.at = Some(At::Node(node));
                    self.print(&value)?;
                }
            }
            Node::If(branch) => return self.deeper(|state| state.branch(dot, branch, false)),
            Node::With(branch) => return self.deeper(|state| state.branch(dot, branch, true)),
            Node::Range(branch) => return self.deeper(|state| state.range(dot, branch)),
            Node::Template { name, pipe, .. } => {
                let Some(tree) = self.set.get(name) else {
                    return self.error(format!("template {} not defined", gofmt::quote(name)));
                };
                let dot = match pipe {
                    Some(pipe) => self.pipeline(dot, pipe)?,
                    None => Value::Nil,
                };
                let dot = Operand::of(dot);
                let mut inner = State {
                    run: &mut *self.run,
                    set: self.set,
                    tree,
                    vars: vec![("$", dot.clone())],
                    at: self.at,
                    out: &mut *self.out,
                };
                inner.template(&dot)?;
            }
            Node::Break { .. } => return Ok(Flow::Break),
            Node::Continue { .. } => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&mut self, value: &Value) -> Exec<()> {
        match value {
            Value::Nil => self.write(NO_VALUE),
            Value::Str(text) => {
                let text = text.clone();
                self.write(&text)
            }
            value => match gofmt::display(value) {
                Some(text) => self.write(&text),
                None => self.fail(Cause::Limit(Limit::StringSize)),
            },
        }
    }

    fn branch(&mut self, dot: &Operand, branch: &'t Branch, with: bool) -> Exec<Flow> {
        let mark = self.vars.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let flow = if value.truth() {
            if with { self.list(&Operand::of(value), &branch.list)? } else { self.list(dot, &branch.list)? }
        } else if let Some(otherwise) = &branch.otherwise {
            self.list(dot, otherwise)?
        } else {
            Flow::Next
        };
        self.vars.truncate(mark);
        Ok(flow)
    }

    fn range(&mut self, dot: &Operand, branch: &'t Branch) -> Exec<Flow> {
        let outer = self.vars.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let mark = self.vars.len();
        let mut turned = false;
        // Collected first: the body may change the map that it ranges over.
        match &value {
            Value::List(list) => {
                for (i, item) in list.items.iter().enumerate() {
                    turned = true;
                    if self.turn(branch, mark, Value::Int(i as i64), &Operand::boxed(item.clone()))? {
                        break;
                    }
                }
            }
            Value::Bytes(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    turned = true;
                    if self.turn(branch, mark, Value::Int(i as i64), &Operand::of(Value::Int((*byte).into())))? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, item) in map.pairs() {
                    turned = true;
                    if self.turn(branch, mark, Value::Str(key), &Operand::boxed(item))? {
                        break;
                    }
                }
            }
            Value::Object(object) if object.pairs().is_some() => {
                for (key, item) in object.pairs().unwrap_or_default() {
                    turned = true;
                    if self.turn(branch, mark, key, &Operand::of(item))? {
                        break;
                    }
                }
            }
            Value::Int(n) | Value::Int64(n) => {
                if branch.pipe.decl.len() > 1 {
                    return self.error(format!("can't use {n} to iterate over more than one variable"));
                }
                for i in 0..*n {
                    turned = true;
                    let item = if matches!(value, Value::Int(_)) { Value::Int(i) } else { Value::Int64(i) };
                    if self.turn(branch, mark, Value::Nil, &Operand::of(item))? {
                        break;
                    }
                }
            }
            Value::Nil => {}
            other => {
                let text = gofmt::display(other).unwrap_or_default();
                return self.error(format!("range can't iterate over {text}"));
            }
        }
        let flow = match &branch.otherwise {
            Some(otherwise) if !turned => self.list(dot, otherwise)?,
            _ => Flow::Next,
        };
        self.vars.truncate(outer);
        Ok(flow)
    }

    /// One turn of a loop; `true` ends it.
    fn turn(&mut self, branch: &'t Branch, mark: usize, index: Value, item: &Operand) -> Exec<bool> {
        self.step()?;
        let decl = &branch.pipe.decl;
        if branch.pipe.is_assign {
            match &decl[..] {
                [one] => self.assign(one, item.clone())?,
                [first, second, ..] => {
                    self.assign(first, Operand::of(index))?;
                    self.assign(second, item.clone())?;
                }
                [] => {}
            }
        } else {
            // The pipeline pushed its variables last: the item is on top, the index below it.
            let top = self.vars.len();
            if !decl.is_empty() {
                self.vars[top - 1].1 = item.clone();
            }
            if decl.len() > 1 {
                self.vars[top - 2].1 = Operand::of(index);
            }
        }
        let flow = self.list(item, &branch.list)?;
        self.vars.truncate(mark);
        Ok(matches!(flow, Flow::Break))
    }

    fn assign(&mut self, name: &str, value: Operand) -> Exec<()> {
        let Some(slot) = self.vars.iter_mut().rev().find(|(n, _)| *n == name) else {
            return self.error(format!("undefined variable: {name}"));
        };
        slot.1 = value;
        Ok(())
    }

    fn pipeline(&mut self, dot: &Operand, pipe: &'t Pipe) -> Exec<Value> {
        self.at = Some(At::Pipe(pipe));
        let mut last: Option<Operand> = None;
        for cmd in &pipe.cmds {
            let value = self.command(dot, cmd, last.take())?;
            // Taking the value out of its interface: from here a nil is untyped.
            last = Some(Operand::of(value.value));
        }
        let value = last.map_or(Value::Nil, |operand| operand.value);
        for name in &pipe.decl {
            if pipe.is_assign {
                self.assign(name, Operand::of(value.clone()))?;
            } else {
                self.vars.push((name, Operand::of(value.clone())));
            }
        }
        Ok(value)
    }

    fn command(&mut self, dot: &Operand, cmd: &'t Command, last: Option<Operand>) -> Exec<Operand> {
        self.step()?;
        let Some(first) = cmd.args.first() else { return self.error("empty command") };
        match first {
            Expr::Field { ident, .. } => {
                self.at = Some(At::Expr(first));
                return self.fields(dot, dot.clone(), At::Expr(first), ident, &cmd.args, last);
            }
            Expr::Chain { .. } => return self.chain(dot, first, &cmd.args, last),
            Expr::Function { name, .. } => {
                self.at = Some(At::Expr(first));
                return self.function(dot, name, At::Command(cmd), &cmd.args, last);
            }
            Expr::Pipe(pipe) => {
                self.not_a_function(&cmd.args, last.as_ref())?;
                return self.deeper(|state| state.pipeline(dot, pipe)).map(Operand::of);
            }
            Expr::Variable { .. } => return self.variable(dot, first, &cmd.args, last),
            _ => {}
        }
        self.at = Some(At::Expr(first));
        self.not_a_function(&cmd.args, last.as_ref())?;
        match first {
            Expr::Dot { .. } => Ok(dot.clone()),
            Expr::Nil { .. } => self.error("nil is not a command"),
            other => self.constant(other),
        }
    }

    fn not_a_function(&self, args: &[Expr], last: Option<&Operand>) -> Exec<()> {
        if args.len() > 1 || last.is_some() {
            let first = args.first().map(ToString::to_string).unwrap_or_default();
            return self.error(format!("can't give argument to non-function {first}"));
        }
        Ok(())
    }

    /// A literal as the value of its natural type.
    fn constant(&self, expr: &Expr) -> Exec<Operand> {
        Ok(Operand::of(match expr {
            Expr::Bool { value, .. } => Value::Bool(*value),
            Expr::Str { text, .. } => Value::Str(text.clone()),
            Expr::Number(number) if number.is_float => Value::Float(number.float),
            Expr::Number(number) => match number.int {
                Some(int) => Value::Int(int),
                None => return self.error(format!("{} overflows int", number.text)),
            },
            other => return self.error(format!("can't evaluate command {}", gofmt::quote(&other.to_string()))),
        }))
    }
}
