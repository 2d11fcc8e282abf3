//! Calls: fields and methods of values, functions, and what their arguments must be.

use std::rc::Rc;

use super::{At, Call, Cause, Exec, Fault, Function, Operand, State, funcs, gofmt};
use crate::{
    object::Member,
    parse::ast::Expr,
    value::{Elem, MapKind, Value},
};

/// A function, or a method with its receiver inside.
type Invocable<'f> = dyn Fn(&mut Call<'_, '_>, &[Value]) -> Result<Value, Fault> + 'f;

impl<'t> State<'_, 't, '_> {
    pub(super) fn chain(
        &mut self,
        dot: &Operand,
        expr: &'t Expr,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Exec<Operand> {
        self.at = Some(At::Expr(expr));
        let Expr::Chain { node, field, .. } = expr else { return self.error("internal: not a chain") };
        if matches!(**node, Expr::Nil { .. }) {
            return self.error(format!("indirection through explicit nil in {expr}"));
        }
        let receiver = self.argument(dot, Param::Any, node)?;
        self.fields(dot, receiver, At::Expr(expr), field, args, last)
    }

    pub(super) fn variable(
        &mut self,
        dot: &Operand,
        expr: &'t Expr,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Exec<Operand> {
        self.at = Some(At::Expr(expr));
        let Expr::Variable { ident, .. } = expr else { return self.error("internal: not a variable") };
        let Some((name, fields)) = ident.split_first() else { return self.error("internal: no name") };
        let Some((_, value)) = self.vars.iter().rev().find(|(n, _)| **n == **name) else {
            return self.error(format!("undefined variable: {name}"));
        };
        let value = value.clone();
        if fields.is_empty() {
            self.not_a_function(args, last.as_ref())?;
            return Ok(value);
        }
        self.fields(dot, value, At::Expr(expr), fields, args, last)
    }

    pub(super) fn fields(
        &mut self,
        dot: &Operand,
        mut receiver: Operand,
        at: At<'t>,
        ident: &'t [Rc<str>],
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Exec<Operand> {
        let Some((final_name, path)) = ident.split_last() else { return Ok(receiver) };
        for name in path {
            receiver = self.field(dot, name, at, &[], None, &receiver)?;
        }
        self.field(dot, final_name, at, args, last, &receiver)
    }

    fn field(
        &mut self,
        dot: &Operand,
        name: &'t str,
        at: At<'t>,
        args: &'t [Expr],
        last: Option<Operand>,
        receiver: &Operand,
    ) -> Exec<Operand> {
        self.step()?;
        let has_args = args.len() > 1 || last.is_some();
        match &receiver.value {
            Value::Nil if receiver.is_interface => self.error(format!("nil pointer evaluating interface {{}}.{name}")),
            Value::Nil => Ok(Operand::of(Value::Nil)),
            Value::Map(map) => {
                if has_args {
                    return self.error(format!("{name} is not a method but has arguments"));
                }
                Ok(match map.get(name) {
                    Some(value) => Operand::boxed(value),
                    None if map.kind == MapKind::Str => Operand::of(Value::str("")),
                    None => Operand::boxed(Value::Nil),
                })
            }
            Value::Object(object) => match object.member(name) {
                Some(Member::Field(value)) if !has_args => Ok(Operand::of(value)),
                Some(Member::Field(_)) => self.error(format!("{name} has arguments but cannot be invoked as function")),
                Some(Member::Method { sig }) => {
                    let object = object.clone();
                    let call = move |call: &mut Call<'_, '_>, args: &[Value]| object.call(name, call, args);
                    self.invoke(dot, name, sig, &call, at, args, last)
                }
                None => self.error(format!("can't evaluate field {name} in type {}", receiver.type_name())),
            },
            _ => self.error(format!("can't evaluate field {name} in type {}", receiver.type_name())),
        }
    }

    pub(super) fn function(
        &mut self,
        dot: &Operand,
        name: &'t str,
        at: At<'t>,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Exec<Operand> {
        let Some(function) = funcs::find(name) else {
            return self.error(format!("{} is not a defined function", gofmt::quote(name)));
        };
        if name == "and" || name == "or" {
            return self.and_or(dot, function, args, last);
        }
        self.invoke(dot, name, function.sig, &function.call, at, args, last)
    }

    /// `and` and `or` stop at the first argument that decides.
    fn and_or(&mut self, dot: &Operand, function: &Function, args: &'t [Expr], last: Option<Operand>) -> Exec<Operand> {
        let rest = args.get(1..).unwrap_or_default();
        if rest.is_empty() && last.is_none() {
            return self.error(format!("wrong number of args for {}: want at least 1 got 0", function.name));
        }
        let mut value = Operand::of(Value::Nil);
        for arg in rest {
            value = self.argument(dot, Param::Any, arg)?;
            if value.value.truth() == (function.name == "or") {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    #[expect(clippy::too_many_arguments, reason = "mirrors evalCall of Go, of which each is a part")]
    fn invoke(
        &mut self,
        dot: &Operand,
        name: &str,
        sig: &'static str,
        function: &Invocable<'_>,
        at: At<'t>,
        args: &'t [Expr],
        last: Option<Operand>,
    ) -> Exec<Operand> {
        let args = args.get(1..).unwrap_or_default();
        let (fixed, variadic) = match sig.split_once('*') {
            Some((fixed, variadic)) => (fixed.as_bytes(), variadic.bytes().next()),
            None => (sig.as_bytes(), None),
        };
        let given = args.len() + usize::from(last.is_some());
        if variadic.is_some() {
            if given < fixed.len() {
                let want = fixed.len();
                return self.error(format!("wrong number of args for {name}: want at least {want} got {}", args.len()));
            }
        } else if given != fixed.len() {
            return self.error(format!("wrong number of args for {name}: want {} got {given}", fixed.len()));
        }
        let param = |i: usize| Param::of(fixed.get(i).copied().or(variadic).unwrap_or(b'a'));
        let mut values = Vec::with_capacity(given);
        let mut untyped_nil = false;
        let mut take = |operand: Operand| {
            untyped_nil |= operand.value.is_nil() && !operand.is_interface;
            values.push(operand.value);
        };
        for (i, arg) in args.iter().enumerate() {
            take(self.argument(dot, param(i), arg)?);
        }
        if let Some(last) = last {
            take(self.validate(last, param(args.len()))?);
        }
        if untyped_nil && name == "len" {
            self.at = Some(at);
            let source = Fault::message("reflect: call of reflect.Value.Type on zero Value");
            return self.fail(Cause::Call { function: name.to_string(), source });
        }
        let mut call = Call { run: &mut *self.run, set: self.set };
        match function(&mut call, &values) {
            Ok(value) => Ok(Operand::boxed(value)),
            Err(Fault::Limit(limit)) => {
                self.at = Some(at);
                self.fail(Cause::Limit(limit))
            }
            Err(source) => {
                self.at = Some(at);
                self.fail(Cause::Call { function: name.to_string(), source })
            }
        }
    }

    fn argument(&mut self, dot: &Operand, param: Param, expr: &'t Expr) -> Exec<Operand> {
        self.step()?;
        self.at = Some(At::Expr(expr));
        let value = match expr {
            Expr::Dot { .. } => dot.clone(),
            Expr::Nil { .. } => {
                if param.can_be_nil() {
                    return Ok(Operand::of(Value::Nil));
                }
                return self.error(format!("cannot assign nil to {}", param.name()));
            }
            Expr::Field { ident, .. } => {
                self.fields(dot, dot.clone(), At::Expr(expr), ident, std::slice::from_ref(expr), None)?
            }
            Expr::Variable { .. } => self.variable(dot, expr, &[], None)?,
            Expr::Pipe(pipe) => Operand::of(self.deeper(|state| state.pipeline(dot, pipe))?),
            Expr::Function { name, .. } => {
                self.function(dot, name, At::Expr(expr), std::slice::from_ref(expr), None)?
            }
            Expr::Chain { .. } => self.chain(dot, expr, &[], None)?,
            literal => return self.literal(param, literal),
        };
        self.validate(value, param)
    }

    fn literal(&self, param: Param, expr: &Expr) -> Exec<Operand> {
        let value = match (param, expr) {
            (Param::Any, _) => return self.constant(expr),
            (Param::Str, Expr::Str { text, .. }) => Value::Str(text.clone()),
            (Param::Bool, Expr::Bool { value, .. }) => Value::Bool(*value),
            (Param::Int, Expr::Number(n)) if n.int.is_some() => Value::Int(n.int.unwrap_or(0)),
            (Param::Int64, Expr::Number(n)) if n.int.is_some() => Value::Int64(n.int.unwrap_or(0)),
            (Param::Float, Expr::Number(n)) => Value::Float(n.float),
            (Param::Str, _) => return self.error(format!("expected string; found {expr}")),
            (Param::Bool, _) => return self.error(format!("expected bool; found {expr}")),
            (Param::Int | Param::Int64, _) => return self.error(format!("expected integer; found {expr}")),
            (Param::Float, _) => return self.error(format!("expected float; found {expr}")),
            (Param::Map | Param::List | Param::Time, _) => {
                return self.error(format!("can't handle {expr} for arg of type {}", param.name()));
            }
        };
        Ok(Operand::of(value))
    }

    fn validate(&self, operand: Operand, param: Param) -> Exec<Operand> {
        if operand.value.is_nil() && !operand.is_interface {
            if param.can_be_nil() {
                return Ok(operand);
            }
            return self.error(format!("invalid value; expected {}", param.name()));
        }
        if param.accepts(&operand.value) {
            return Ok(operand);
        }
        let got = if operand.value.is_nil() { "interface {}" } else { operand.value.type_name() };
        self.error(format!("wrong type for value; expected {}; got {got}", param.name()))
    }
}

/// The static type of a parameter; its letter stands in the signatures of the function table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Param {
    Any,
    Str,
    Int,
    Int64,
    Bool,
    Float,
    Map,
    List,
    Time,
}

impl Param {
    fn of(letter: u8) -> Self {
        match letter {
            b's' => Self::Str,
            b'i' => Self::Int,
            b'I' => Self::Int64,
            b'b' => Self::Bool,
            b'f' => Self::Float,
            b'm' => Self::Map,
            b'l' => Self::List,
            b't' => Self::Time,
            _ => Self::Any,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Str => "string",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Bool => "bool",
            Self::Float => "float64",
            Self::Map => "map[string]interface {}",
            Self::List => "[]interface {}",
            Self::Time => "time.Time",
        }
    }

    fn can_be_nil(self) -> bool {
        matches!(self, Self::Any | Self::Map | Self::List)
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Str => matches!(value, Value::Str(_)),
            Self::Int => matches!(value, Value::Int(_)),
            Self::Int64 => matches!(value, Value::Int64(_)),
            Self::Bool => matches!(value, Value::Bool(_)),
            Self::Float => matches!(value, Value::Float(_)),
            Self::Map => matches!(value, Value::Map(map) if map.kind != MapKind::Str),
            Self::List => {
                matches!(value, Value::List(list) if matches!(list.elem, Elem::Any | Elem::NilAny))
            }
            Self::Time => matches!(value, Value::Object(object) if object.type_name() == "time.Time"),
        }
    }
}
