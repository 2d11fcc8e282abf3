//! `x-deckhouse-validations`: rules in CEL about `self` and `oldSelf`.
//!
//! The evaluator has no budget of its own, so a rule is bounded before it runs: its text and nesting when it is compiled,
//! its cost from its syntax tree and the size of the document each time. The estimate is an upper bound: loops come
//! from macros only, run once for each element of their range, and values grow only by operations that are listed in
//! [`Estimate::call`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use kube_cel::cel::objects::{Key, Map as CelMap};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use super::one_line;
use crate::package::Problem;
use crate::package::document::{Document, join, push};

/// Vendor extension with the rules.
pub(super) const RULES: &str = "x-deckhouse-validations";
/// Characters of one rule. The longest known has some 600.
const RULE_CHARACTERS: usize = 2048;
/// Open brackets at one place of a rule; the parser and the evaluator are recursive.
const RULE_DEPTH: usize = 24;
/// Links of one chain, such as `a.b.c` or `a + b + c`: these nest in the tree, too.
const RULE_CHAIN: usize = 200;
/// Rules of one schema.
const RULES_MAX: usize = 500;
/// Steps of one rule: about half a second in a build without optimisation.
const COST_MAX: u64 = 20_000_000;

/// The rules of a schema and of everything below it.
#[derive(Default)]
pub(super) struct RuleTree {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Self>,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
}

struct Rule {
    program: Program,
    message: String,
    /// It speaks of `oldSelf`.
    transition: bool,
}

impl RuleTree {
    /// Compiles all rules of a schema.
    pub(super) fn compile(document: &Document, schema: &Value, problems: &mut Vec<Problem>) -> Self {
        let mut left = RULES_MAX;
        let mut compiler = Compiler { document, problems, left: &mut left };
        compiler.tree(schema, &mut String::new())
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.properties.is_empty() && self.items.is_none() && self.additional.is_none()
    }

    /// Checks all rules.
    pub(super) fn check(&self, subject: &str, value: &Value, old: Option<&Value>, problems: &mut Vec<Problem>) {
        if !self.is_empty() {
            self.walk(subject, value, old, &mut String::new(), problems);
        }
    }

    fn walk(
        &self,
        subject: &str,
        value: &Value,
        old: Option<&Value>,
        pointer: &mut String,
        problems: &mut Vec<Problem>,
    ) {
        if value.is_null() || problems.len() >= super::PROBLEMS_MAX {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !self.rules.is_empty() {
            let this = to_cel(value);
            let past = old.map(to_cel);
            let size = size(value).saturating_add(old.map_or(0, size));
            for rule in &self.rules {
                if let Some(problem) = rule.check(subject, pointer, size, &this, past.as_ref()) {
                    problems.push(problem);
                }
            }
        }
        let length = pointer.len();
        match value {
            Value::Object(object) => {
                for (name, member) in object {
                    let Some(tree) = self.properties.get(name).or(self.additional.as_deref()) else { continue };
                    push(pointer, name);
                    tree.walk(subject, member, old.and_then(|old| old.get(name)), pointer, problems);
                    pointer.truncate(length);
                }
            }
            Value::Array(items) => {
                if let Some(tree) = &self.items {
                    for (index, item) in items.iter().enumerate() {
                        push(pointer, &index.to_string());
                        // Elements of a list have no identity, so there is no past to compare with.
                        tree.walk(subject, item, None, pointer, problems);
                        pointer.truncate(length);
                    }
                }
            }
            _ => {}
        }
    }
}

struct Compiler<'a> {
    document: &'a Document,
    problems: &'a mut Vec<Problem>,
    left: &'a mut usize,
}

impl Compiler<'_> {
    fn report(&mut self, pointer: &str, message: impl Into<String>) {
        self.problems.push(self.document.problem("BadRule", pointer, message));
    }

    fn tree(&mut self, schema: &Value, pointer: &mut String) -> RuleTree {
        let mut tree = RuleTree::default();
        let Some(object) = schema.as_object() else { return tree };
        let length = pointer.len();
        if let Some(rules) = object.get(RULES) {
            push(pointer, RULES);
            self.rules(rules, pointer, &mut tree.rules);
            pointer.truncate(length);
        }
        for (name, schema) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            push(pointer, "properties");
            push(pointer, name);
            let below = self.tree(schema, pointer);
            if !below.is_empty() {
                tree.properties.insert(name.clone(), below);
            }
            pointer.truncate(length);
        }
        for (keyword, slot) in [("items", &mut tree.items), ("additionalProperties", &mut tree.additional)] {
            if let Some(schema) = object.get(keyword) {
                push(pointer, keyword);
                let below = self.tree(schema, pointer);
                if !below.is_empty() {
                    *slot = Some(Box::new(below));
                }
                pointer.truncate(length);
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf", "not", "patternProperties"] {
            if let Some(branches) = object.get(keyword)
                && mentions(branches)
            {
                let message = format!("rules cannot stand below '{keyword}'");
                let problem = self.document.problem("BadRule", &join(pointer, keyword), message);
                self.problems.push(problem.hint("put them beside it"));
            }
        }
        tree
    }

    fn rules(&mut self, rules: &Value, pointer: &str, into: &mut Vec<Rule>) {
        let Some(rules) = rules.as_array() else { return self.report(pointer, "must be a list of rules") };
        for (index, rule) in rules.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            if *self.left == 0 {
                return self.report(&pointer, format!("has more than {RULES_MAX} rules"));
            }
            *self.left -= 1;
            let Some(object) = rule.as_object() else {
                self.report(&pointer, "must be an object with expression and message");
                continue;
            };
            if let Some(key) = object.keys().find(|key| !matches!(key.as_str(), "expression" | "message")) {
                self.report(&join(&pointer, key), format!("the key '{key}' is not known"));
            }
            let Some(expression) = object.get("expression").and_then(Value::as_str).filter(|text| !text.is_empty())
            else {
                self.report(&pointer, "the key 'expression' is missing");
                continue;
            };
            let message = object.get("message").and_then(Value::as_str);
            match Rule::compile(expression, message) {
                Ok(rule) => into.push(rule),
                Err(why) => self.report(&join(&pointer, "expression"), why),
            }
        }
    }
}

/// Whether there is a rule anywhere in a part of a schema.
fn mentions(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => object.contains_key(RULES) || object.values().any(mentions),
        Value::Array(items) => items.iter().any(mentions),
        _ => false,
    }
}

impl Rule {
    fn compile(expression: &str, message: Option<&str>) -> Result<Self, String> {
        bounded(expression)?;
        let program = catch_unwind(|| Program::compile(expression))
            .map_err(|_| "the parser fails on this rule".to_owned())?
            .map_err(|errors| one_line(&errors.to_string().replace('\n', " ")))?;
        let mut scope = Names { bound: Vec::new(), free: BTreeSet::new() };
        scope.walk(program.expression());
        let known = |name: &String| matches!(name.as_str(), "self" | "oldSelf") || TYPES.contains(&name.as_str());
        if let Some(name) = scope.free.iter().find(|name| !known(name)) {
            return Err(format!("'{name}' is not known; a rule sees 'self' and 'oldSelf'"));
        }
        let message = match message.map(str::trim) {
            Some(message) if !message.is_empty() => message.to_owned(),
            _ => format!("the rule does not hold: {expression}"),
        };
        Ok(Self { transition: scope.free.contains("oldSelf"), program, message })
    }

    fn check(
        &self,
        subject: &str,
        pointer: &str,
        size: u64,
        this: &CelValue,
        old: Option<&CelValue>,
    ) -> Option<Problem> {
        if self.transition && old.is_none() {
            return None;
        }
        let mut estimate = Estimate { document: size, scopes: Vec::new() };
        if estimate.expression(self.program.expression()).cost > COST_MAX {
            let problem = Problem::new("RuleTooCostly", subject, pointer, "a rule would take too many steps to check");
            return Some(problem.hint("nest fewer loops in the rule, or bound the lists with maxItems"));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::default().with_all();
            context.add_variable_from_value("self", this.clone());
            if let Some(old) = old {
                context.add_variable_from_value("oldSelf", old.clone());
            }
            self.program.execute(&context)
        }));
        match outcome {
            Ok(Ok(CelValue::Bool(true))) => None,
            Ok(Ok(CelValue::Bool(false))) => Some(Problem::new("RuleViolated", subject, pointer, self.message.clone())),
            Ok(Ok(_)) => Some(Problem::new(
                "RuleFailed",
                subject,
                pointer,
                format!("{} (the rule gives no boolean)", self.message),
            )),
            // The evaluator's message may hold values, so only its kind is told.
            Ok(Err(error)) => {
                let message = format!("{} (the rule fails: {})", self.message, failure(&error));
                Some(Problem::new("RuleFailed", subject, pointer, message))
            }
            Err(_) => Some(Problem::new("RuleFailed", subject, pointer, "the evaluator fails on a rule")),
        }
    }
}

fn failure(error: &kube_cel::cel::ExecutionError) -> String {
    use kube_cel::cel::ExecutionError as E;
    match error {
        E::NoSuchKey(key) => format!("no such key '{key}'; ask has() first"),
        E::UndeclaredReference(name) => format!("'{name}' is not known"),
        E::InvalidArgumentCount { expected, actual } => format!("{actual} arguments in place of {expected}"),
        E::FunctionError { function, .. } => format!("error in function '{function}'"),
        _ => "types do not fit".to_owned(),
    }
}

/// Names of types, which may stand as values.
const TYPES: [&str; 10] = ["int", "uint", "double", "string", "bool", "bytes", "list", "map", "null_type", "type"];

/// Refuses what would exhaust the recursive parser.
fn bounded(expression: &str) -> Result<(), String> {
    if expression.len() > RULE_CHARACTERS {
        return Err(format!("is longer than {RULE_CHARACTERS} characters"));
    }
    let (mut depth, mut chain) = (0_usize, 0_usize);
    let mut quote = None;
    let mut escaped = false;
    for character in expression.chars() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '.' | '+' | '-' | '*' | '/' | '%' | '!' | '&' | '|' | '?' | '<' | '>' | '=') => chain += 1,
            (None, _) => {}
        }
        if depth > RULE_DEPTH || chain > RULE_CHAIN {
            return Err(format!("nests more than {RULE_DEPTH} levels or has more than {RULE_CHAIN} operators"));
        }
    }
    Ok(())
}

/// Children of a node that are evaluated in the scope of the node.
fn children(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(object) => object.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Free names of an expression.
struct Names {
    bound: Vec<String>,
    free: BTreeSet<String>,
}

impl Names {
    fn walk(&mut self, expression: &IdedExpr) {
        match &expression.expr {
            Expr::Ident(name) if !self.bound.contains(name) => {
                self.free.insert(name.clone());
            }
            Expr::Comprehension(comprehension) => {
                self.walk(&comprehension.iter_range);
                self.walk(&comprehension.accu_init);
                let depth = self.bound.len();
                self.bound.push(comprehension.iter_var.clone());
                self.bound.extend(comprehension.iter_var2.clone());
                self.bound.push(comprehension.accu_var.clone());
                self.walk(&comprehension.loop_cond);
                self.walk(&comprehension.loop_step);
                self.walk(&comprehension.result);
                self.bound.truncate(depth);
            }
            other => children(other).into_iter().for_each(|child| self.walk(child)),
        }
    }
}

/// Upper bounds of what an expression gives and takes.
#[derive(Clone, Copy)]
struct Bound {
    /// Bytes and elements of its value.
    size: u64,
    /// Steps to compute it.
    cost: u64,
}

struct Estimate {
    /// Size of `self` and `oldSelf` together.
    document: u64,
    /// Names bound by loops, and the sizes of their values.
    scopes: Vec<(String, u64)>,
}

impl Estimate {
    fn expression(&mut self, expression: &IdedExpr) -> Bound {
        match &expression.expr {
            Expr::Ident(name) => {
                let bound = self.scopes.iter().rev().find(|(bound, _)| bound == name);
                Bound { size: bound.map_or(self.document, |(_, size)| *size), cost: 1 }
            }
            Expr::Literal(literal) => {
                let size = match literal {
                    LiteralValue::String(text) => text.inner().len() as u64,
                    LiteralValue::Bytes(bytes) => bytes.inner().len() as u64,
                    _ => 0,
                };
                Bound { size: size.saturating_add(1), cost: 1 }
            }
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                // A member may be copied out of its object.
                Bound { size: operand.size, cost: operand.cost.saturating_add(operand.size) }
            }
            Expr::Comprehension(comprehension) => {
                let range = self.expression(&comprehension.iter_range);
                let initial = self.expression(&comprehension.accu_init);
                let rounds = range.size;
                let depth = self.scopes.len();
                self.scopes.push((comprehension.iter_var.clone(), range.size));
                if let Some(second) = &comprehension.iter_var2 {
                    self.scopes.push((second.clone(), range.size));
                }
                // What one round adds, and what it costs without the accumulator.
                self.scopes.push((comprehension.accu_var.clone(), 0));
                let added = self.expression(&comprehension.loop_step);
                let condition = self.expression(&comprehension.loop_cond);
                self.scopes.truncate(depth);
                let size = initial.size.saturating_add(rounds.saturating_mul(added.size));
                // The accumulator may be copied in each round.
                let round = added.cost.saturating_add(condition.cost).saturating_add(size).saturating_add(1);
                let cost = range.cost.saturating_add(initial.cost).saturating_add(rounds.saturating_mul(round));
                Bound { size, cost }
            }
            Expr::Call(call) => self.call(call),
            other @ (Expr::List(_) | Expr::Map(_) | Expr::Struct(_)) => {
                let mut bound = Bound { size: 1, cost: 1 };
                for child in children(other) {
                    let child = self.expression(child);
                    bound.size = bound.size.saturating_add(child.size).saturating_add(1);
                    bound.cost = bound.cost.saturating_add(child.cost).saturating_add(child.size);
                }
                bound
            }
            Expr::Unspecified => Bound { size: 1, cost: 1 },
        }
    }

    fn call(&mut self, call: &CallExpr) -> Bound {
        let arguments: Vec<Bound> =
            call.target.as_deref().into_iter().chain(&call.args).map(|argument| self.expression(argument)).collect();
        let sum = arguments.iter().fold(1_u64, |sum, argument| sum.saturating_add(argument.size));
        let product = arguments.iter().fold(1_u64, |product, argument| product.saturating_mul(argument.size.max(1)));
        let costs = arguments.iter().fold(1_u64, |sum, argument| sum.saturating_add(argument.cost));
        let (size, work) = match call.func_name.as_str() {
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "size" | "startsWith"
            | "endsWith" | "int" | "uint" | "double" | "bool" | "type" => (1, sum),
            "contains" | "@in" | "_in_" | "in" => (1, product),
            // A pattern is compiled each time, into at most some megabytes.
            "matches" => (1, product.saturating_add(100_000)),
            "find" | "findAll" => (sum, product.saturating_add(100_000)),
            "_+_" | "_[_]" | "_?_:_" | "@not_strictly_false" => (sum, sum),
            "_-_" | "_*_" | "_/_" | "_%_" | "-_" => (1, sum),
            // Whatever else there is, at most pairs what it is given: `join`, `replace`, `format`.
            _ => (product, product),
        };
        Bound { size, cost: costs.saturating_add(work) }
    }
}

/// Nodes and bytes of a document.
fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => (text.len() as u64).saturating_add(1),
        Value::Array(items) => items.iter().fold(1, |sum, item| sum.saturating_add(size(item))),
        Value::Object(members) => members
            .iter()
            .fold(1, |sum, (key, member)| sum.saturating_add(key.len() as u64).saturating_add(size(member))),
    }
}

/// JSON as CEL sees it. Whole numbers are `int`, as in Kubernetes.
fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => CelValue::Int(whole),
            (None, Some(whole)) => CelValue::UInt(whole),
            (None, None) => number.as_f64().map_or(CelValue::Null, CelValue::Float),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(members) => {
            let map: HashMap<Key, CelValue> =
                members.iter().map(|(key, member)| (Key::String(Arc::new(key.clone())), to_cel(member))).collect();
            CelValue::Map(CelMap { map: Arc::new(map) })
        }
    }
}
