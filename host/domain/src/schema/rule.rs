//! `x-deckhouse-validations`: rules in CEL about `self` and `oldSelf`.
//!
//! The evaluator has no budget of its own, so a rule is bounded before it runs: its text and nesting when it is compiled,
//! its cost from its syntax tree and the document each time. The estimate is an upper bound: loops come from macros only and
//! run once for each element of their range, names and selections are followed into the document itself, and values
//! grow only by operations that are listed in [`Estimate::call`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
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
/// Open brackets at one place of a rule. The parser and the evaluator are recursive, and run on a stack made for this.
const RULE_DEPTH: usize = 24;
/// Links of one chain, such as `a.b.c` or `a + b + c`: these nest in the tree, too.
const RULE_CHAIN: usize = 200;
/// Rules of one schema.
const RULES_MAX: usize = 500;
/// Steps of one rule. A step is the copy of a quarter of a node of the document: at most 0.15 µs in a build without
/// optimisation (measured), and a fraction of that with it.
const COST_MAX: u64 = 10_000_000;
/// Steps of all rules of one check.
const COSTS_MAX: u64 = 30_000_000;

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
            self.walk(subject, value, old, &mut String::new(), &mut COSTS_MAX.clone(), problems);
        }
    }

    fn walk(
        &self,
        subject: &str,
        value: &Value,
        old: Option<&Value>,
        pointer: &mut String,
        budget: &mut u64,
        problems: &mut Vec<Problem>,
    ) {
        if value.is_null() || problems.len() >= super::PROBLEMS_MAX {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !self.rules.is_empty() {
            let this = to_cel(value);
            let past = old.map(to_cel);
            for rule in &self.rules {
                if rule.transition && old.is_none() {
                    continue;
                }
                let cost = rule.cost(value, old);
                if cost > COST_MAX.min(*budget) {
                    let message = "a rule would take too many steps to check";
                    let problem = Problem::new("RuleTooCostly", subject, pointer, message);
                    problems.push(problem.hint("nest fewer loops in the rule, or bound the lists with maxItems"));
                    continue;
                }
                *budget = budget.saturating_sub(cost);
                if let Some((reason, message)) = rule.check(&this, past.as_ref()) {
                    problems.push(Problem::new(reason, subject, pointer, message));
                }
            }
        }
        let length = pointer.len();
        match value {
            Value::Object(object) => {
                for (name, member) in object {
                    let Some(tree) = self.properties.get(name).or(self.additional.as_deref()) else { continue };
                    push(pointer, name);
                    tree.walk(subject, member, old.and_then(|old| old.get(name)), pointer, budget, problems);
                    pointer.truncate(length);
                }
            }
            Value::Array(items) => {
                if let Some(tree) = &self.items {
                    for (index, item) in items.iter().enumerate() {
                        push(pointer, &index.to_string());
                        // Elements of a list have no identity, so there is no past to compare with.
                        tree.walk(subject, item, None, pointer, budget, problems);
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

    /// Upper bound of the steps of one check.
    fn cost(&self, value: &Value, old: Option<&Value>) -> u64 {
        let mut estimate = Estimate { this: value, old, scopes: Vec::new() };
        estimate.expression(self.program.expression()).cost
    }

    /// Why the rule does not hold, if it does not.
    fn check(&self, this: &CelValue, old: Option<&CelValue>) -> Option<(&'static str, String)> {
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
            Ok(Ok(CelValue::Bool(false))) => Some(("RuleViolated", self.message.clone())),
            Ok(Ok(_)) => Some(("RuleFailed", format!("{} (the rule gives no boolean)", self.message))),
            // The evaluator's message may hold values, so only its kind is told.
            Ok(Err(error)) => Some(("RuleFailed", format!("{} (the rule fails: {})", self.message, failure(&error)))),
            Err(_) => Some(("RuleFailed", "the evaluator fails on a rule".to_owned())),
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
    let mut before = ' ';
    for character in expression.chars() {
        // The parser reads a pair of signs as none, and what follows twice: with each level of nesting its work doubles.
        if quote.is_none() && matches!(character, '!' | '-') && before == character {
            return Err(format!("has two signs '{character}' in a row; leave out both"));
        }
        if !character.is_whitespace() {
            before = character;
        }
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
#[derive(Clone)]
struct Bound<'v> {
    /// Nodes of the document of which the value is one, if it comes from there.
    nodes: Option<Vec<&'v Value>>,
    /// Weight of the value, see [`weight`].
    weight: u64,
    /// Elements of any list or object in it.
    length: u64,
    /// Steps to compute it.
    cost: u64,
}

impl<'v> Bound<'v> {
    fn new(weight: u64, length: u64, cost: u64) -> Self {
        Self { nodes: None, weight, length, cost }
    }

    /// One of these nodes.
    fn one_of(nodes: Vec<&'v Value>, cost: u64) -> Self {
        let weight = nodes.iter().map(|node| weight(node)).max().unwrap_or(1);
        let length = nodes.iter().map(|node| length(node)).max().unwrap_or(0);
        Self { nodes: Some(nodes), weight, length, cost }
    }
}

/// What a loop binds a name to.
struct Scope<'v> {
    name: String,
    value: Bound<'v>,
}

struct Estimate<'v> {
    this: &'v Value,
    old: Option<&'v Value>,
    scopes: Vec<Scope<'v>>,
}

impl<'v> Estimate<'v> {
    fn expression(&mut self, expression: &IdedExpr) -> Bound<'v> {
        match &expression.expr {
            Expr::Ident(name) => {
                let mut bound = match self.scopes.iter().rev().find(|scope| scope.name == *name) {
                    Some(scope) => scope.value.clone(),
                    None if name == "self" => Bound::one_of(vec![self.this], 0),
                    None => Bound::one_of(self.old.into_iter().collect(), 0),
                };
                bound.cost = 1;
                bound
            }
            Expr::Literal(literal) => {
                let bytes = match literal {
                    LiteralValue::String(text) => text.inner().len(),
                    LiteralValue::Bytes(bytes) => bytes.inner().len(),
                    _ => 0,
                };
                Bound::new(leaf(bytes), 0, 1)
            }
            Expr::Select(select) => {
                let operand = self.expression(&select.operand);
                let mut bound = match operand.nodes {
                    Some(nodes) => Bound::one_of(
                        nodes.into_iter().filter_map(|node| node.get(&select.field)).collect(),
                        operand.cost,
                    ),
                    None => operand,
                };
                // A member may be copied out of its object.
                bound.cost = bound.cost.saturating_add(bound.weight).saturating_add(1);
                bound
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
            other @ (Expr::List(_) | Expr::Map(_) | Expr::Struct(_)) => {
                let mut bound = Bound::new(leaf(0), 0, 1);
                let parts = children(other);
                bound.length = parts.len() as u64;
                for part in parts {
                    let part = self.expression(part);
                    bound.weight = bound.weight.saturating_add(part.weight);
                    bound.length = bound.length.max(part.length);
                    bound.cost = bound.cost.saturating_add(part.cost).saturating_add(part.weight);
                }
                bound
            }
            Expr::Unspecified => Bound::new(leaf(0), 0, 1),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Bound<'v> {
        let range = self.expression(&comprehension.iter_range);
        let initial = self.expression(&comprehension.accu_init);
        let rounds = range.length;
        let element = match &range.nodes {
            // Loops over objects are loops over their keys; the weight of the object bounds those.
            Some(nodes) if nodes.iter().all(|node| node.is_array()) => {
                Bound::one_of(nodes.iter().filter_map(|node| node.as_array()).flatten().collect(), 0)
            }
            _ => Bound::new(range.weight, range.length, 0),
        };
        let depth = self.scopes.len();
        if let Some(second) = &comprehension.iter_var2 {
            let value = Bound::new(range.weight, range.length, 0);
            self.scopes.push(Scope { name: second.clone(), value: value.clone() });
            self.scopes.push(Scope { name: comprehension.iter_var.clone(), value });
        } else {
            self.scopes.push(Scope { name: comprehension.iter_var.clone(), value: element });
        }
        // What one round adds, and what it costs without the accumulator.
        self.scopes.push(Scope { name: comprehension.accu_var.clone(), value: Bound::new(0, 0, 0) });
        let added = self.expression(&comprehension.loop_step);
        let condition = self.expression(&comprehension.loop_cond);
        self.scopes.truncate(depth);
        let weight = initial.weight.saturating_add(rounds.saturating_mul(added.weight));
        let length = initial.length.saturating_add(rounds).max(added.length);
        // The accumulator may be copied in each round; on average it has half its size.
        let copies = if matches!(comprehension.accu_init.expr, Expr::List(_) | Expr::Map(_)) { weight / 2 } else { 1 };
        let round = added.cost.saturating_add(condition.cost).saturating_add(copies).saturating_add(1);
        let cost = range
            .cost
            .saturating_add(range.weight)
            .saturating_add(initial.cost)
            .saturating_add(rounds.saturating_mul(round));
        Bound::new(weight, length, cost)
    }

    fn call(&mut self, call: &CallExpr) -> Bound<'v> {
        let arguments: Vec<Bound<'v>> =
            call.target.as_deref().into_iter().chain(&call.args).map(|argument| self.expression(argument)).collect();
        let fold = |start: u64, take: fn(&Bound<'v>) -> u64, join: fn(u64, u64) -> u64| {
            arguments.iter().map(take).fold(start, join)
        };
        let sum = fold(1, |argument| argument.weight, u64::saturating_add);
        let lengths = fold(0, |argument| argument.length, u64::saturating_add);
        let costs = fold(1, |argument| argument.cost, u64::saturating_add);
        // In bytes, of which eight weigh as much as one step.
        let product = fold(8, |argument| argument.weight.saturating_mul(8).max(1), u64::saturating_mul);
        let (weight, length, work) = match call.func_name.as_str() {
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "size" | "startsWith"
            | "endsWith" | "int" | "uint" | "double" | "bool" | "type" => (4, 0, sum),
            "contains" => (4, 0, product),
            "@in" | "_in_" | "in" => (4, 0, sum.saturating_mul(2)),
            // A pattern is compiled each time, into at most some megabytes.
            "matches" => (4, 0, product.saturating_add(10_000)),
            "_?_:_" => {
                let branches = arguments.get(1..).unwrap_or_default();
                let largest = |take: fn(&Bound<'v>) -> u64| branches.iter().map(take).max().unwrap_or(1);
                (largest(|branch| branch.weight), largest(|branch| branch.length), 1)
            }
            "_+_" | "_[_]" | "@not_strictly_false" => (sum, lengths, sum),
            "_-_" | "_*_" | "_/_" | "_%_" | "-_" => (4, 0, sum),
            // Whatever else there is, at most pairs what it is given: `join`, `replace`, `format`.
            _ => (product, product, product.saturating_add(10_000)),
        };
        Bound::new(weight, length, costs.saturating_add(work))
    }
}

/// Weight of a node without elements: what its copy costs.
fn leaf(bytes: usize) -> u64 {
    (bytes as u64 / 8).saturating_add(4)
}

/// Weight of a part of the document.
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

/// Elements of the longest list or object in a part of the document.
fn length(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => items.iter().map(length).fold(items.len() as u64, u64::max),
        Value::Object(members) => members.values().map(length).fold(members.len() as u64, u64::max),
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
