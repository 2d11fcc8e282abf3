//! An upper bound of the steps that an expression takes on given documents.
//!
//! Loops come from macros only and run once for each element of their range; names and selections are followed into the
//! documents themselves; values grow only by the operations that [`Estimate::call`] lists.

use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue},
};
use serde_json::Value;

use super::children;

/// Steps of an expression whose variables are these documents.
pub(super) fn steps(expression: &IdedExpr, documents: &[(&str, &Value)]) -> u64 {
    let scopes = documents.iter().map(|(name, value)| ((*name).to_owned(), Size::of(vec![*value]))).collect::<Vec<_>>();
    // Each is copied once, to be a variable.
    let copies = scopes.iter().fold(0, |sum: u64, (_, size)| sum.saturating_add(size.weight));
    Estimate { scopes }.expression(expression).steps.saturating_add(copies)
}

/// Upper bounds of what an expression gives and takes.
#[derive(Clone, Default)]
struct Size<'v> {
    /// Nodes of the documents of which the value is one, if it comes from there.
    nodes: Option<Vec<&'v Value>>,
    /// What a copy of the value costs.
    weight: u64,
    /// Elements of any list or object in it.
    length: u64,
    /// Steps to compute it.
    steps: u64,
}

impl<'v> Size<'v> {
    fn new(weight: u64, length: u64, steps: u64) -> Self {
        Self { nodes: None, weight, length, steps }
    }

    fn of(nodes: Vec<&'v Value>) -> Self {
        let weight = nodes.iter().map(|node| weight(node)).max().unwrap_or(1);
        let length = nodes.iter().map(|node| length(node)).max().unwrap_or(0);
        Self { nodes: Some(nodes), weight, length, steps: 0 }
    }
}

struct Estimate<'v> {
    scopes: Vec<(String, Size<'v>)>,
}

impl<'v> Estimate<'v> {
    fn expression(&mut self, expression: &IdedExpr) -> Size<'v> {
        match &expression.expr {
            Expr::Ident(name) => {
                let known = self.scopes.iter().rev().find(|(scope, _)| scope == name);
                let mut size = known.map(|(_, size)| size.clone()).unwrap_or_default();
                size.steps = 1;
                size
            }
            Expr::Literal(literal) => {
                let bytes = match literal {
                    LiteralValue::String(text) => text.inner().len(),
                    LiteralValue::Bytes(bytes) => bytes.inner().len(),
                    _ => 0,
                };
                Size::new(leaf(bytes), 0, 1)
            }
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                let mut size = match operand.nodes {
                    Some(nodes) => {
                        // Declared fields are called by their escaped names, so those are followed by their shape.
                        let field = |node: &&'v Value| node.get(&select.field);
                        let found = nodes.iter().filter_map(field).collect::<Vec<_>>();
                        if found.is_empty() && select.field.contains("__") { Size::of(nodes) } else { Size::of(found) }
                    }
                    None => Size::new(operand.weight, operand.length, 0),
                };
                size.steps = operand.steps.saturating_add(size.weight).saturating_add(1);
                size
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
            other @ (Expr::List(_) | Expr::Map(_) | Expr::Struct(_)) => {
                let parts = children(other);
                let mut size = Size::new(leaf(0), parts.len() as u64, 1);
                for part in parts {
                    let part = self.expression(part);
                    size.weight = size.weight.saturating_add(part.weight);
                    size.length = size.length.max(part.length);
                    size.steps = size.steps.saturating_add(part.steps).saturating_add(part.weight);
                }
                size
            }
            Expr::Unspecified => Size::new(leaf(0), 0, 1),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Size<'v> {
        let range = self.expression(&comprehension.iter_range);
        let initial = self.expression(&comprehension.accu_init);
        let rounds = range.length;
        let element = match &range.nodes {
            // Loops over objects are loops over their keys; the weight of the object bounds those.
            Some(nodes) if nodes.iter().all(|node| node.is_array()) => {
                Size::of(nodes.iter().filter_map(|node| node.as_array()).flatten().collect())
            }
            _ => Size::new(range.weight, range.length, 0),
        };
        let depth = self.scopes.len();
        if let Some(second) = &comprehension.iter_var2 {
            let any = Size::new(range.weight, range.length, 0);
            self.scopes.push((second.clone(), any.clone()));
            self.scopes.push((comprehension.iter_var.clone(), any));
        } else {
            self.scopes.push((comprehension.iter_var.clone(), element));
        }
        // What one round adds, and what it costs without the accumulator.
        self.scopes.push((comprehension.accu_var.clone(), Size::default()));
        let added = self.expression(&comprehension.loop_step);
        let condition = self.expression(&comprehension.loop_cond);
        self.scopes.truncate(depth);
        let weight = initial.weight.saturating_add(rounds.saturating_mul(added.weight));
        let length = initial.length.saturating_add(rounds).max(added.length);
        // The accumulator may be copied in each round.
        let copied = if matches!(comprehension.accu_init.expr, Expr::List(_) | Expr::Map(_)) { weight } else { 1 };
        let round = added.steps.saturating_add(condition.steps).saturating_add(copied).saturating_add(1);
        let steps = range.steps.saturating_add(range.weight).saturating_add(initial.steps);
        Size::new(weight, length, steps.saturating_add(rounds.saturating_mul(round)))
    }

    fn call(&mut self, call: &CallExpr) -> Size<'v> {
        let arguments = call.target.as_deref().into_iter().chain(&call.args);
        let arguments = arguments.map(|argument| self.expression(argument)).collect::<Vec<_>>();
        let total = |take: fn(&Size<'v>) -> u64| arguments.iter().map(take).fold(1, u64::saturating_add);
        let (sum, lengths, steps) = (total(|a| a.weight), total(|a| a.length), total(|a| a.steps));
        // In bytes, of which eight weigh as much as one step.
        let product = arguments.iter().fold(8_u64, |all, a| all.saturating_mul(a.weight.saturating_mul(8).max(1)));
        let (weight, length, work) = match call.func_name.as_str() {
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "size" | "startsWith"
            | "endsWith" | "int" | "uint" | "double" | "bool" | "type" | "quantity" | "isQuantity" | "timestamp"
            | "duration" | "hasValue" => (8, 0, sum),
            "contains" => (4, 0, product),
            "@in" | "_in_" | "in" => (4, 0, sum.saturating_mul(2)),
            // A pattern is compiled each time.
            "matches" | "find" => (sum, 0, product.saturating_add(10_000)),
            "_?_:_" => {
                let branches = arguments.get(1..).unwrap_or_default();
                let largest = |take: fn(&Size<'v>) -> u64| branches.iter().map(take).max().unwrap_or(1);
                (largest(|branch| branch.weight), largest(|branch| branch.length), 1)
            }
            "_+_"
            | "_[_]"
            | "_[?_]"
            | "_?._"
            | "orValue"
            | "or"
            | "value"
            | "optional.of"
            | "string"
            | "dyn"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "substring"
            | "charAt"
            | "@not_strictly_false" => (sum, lengths, sum),
            "_-_" | "_*_" | "_/_" | "_%_" | "-_" => (4, 0, sum),
            // Whatever else there is, at most pairs what it is given: `join`, `replace`, `format`.
            _ => (product, product, product.saturating_add(10_000)),
        };
        Size::new(weight, length, steps.saturating_add(work))
    }
}

/// Weight of a node without elements.
fn leaf(bytes: usize) -> u64 {
    (bytes as u64 / 8).saturating_add(4)
}

fn weight(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => leaf(0),
        Value::String(text) => leaf(text.len()),
        Value::Array(items) => items.iter().fold(leaf(0), |sum, item| sum.saturating_add(weight(item))),
        Value::Object(members) => members
            .iter()
            .fold(leaf(0), |sum, (key, member)| sum.saturating_add(leaf(key.len())).saturating_add(weight(member))),
    }
}

/// Elements of the longest list or object.
fn length(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => items.iter().map(length).fold(items.len() as u64, u64::max),
        Value::Object(members) => members.values().map(length).fold(members.len() as u64, u64::max),
    }
}
