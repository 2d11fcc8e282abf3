//! Expressions in CEL: of CustomResourceDefinitions, and conditions of admission.
//!
//! The evaluator has no budget of its own and is recursive, so an expression is bounded before it runs: its text and
//! nesting when it is parsed, its steps from its syntax tree and the variables each time ([`cost`]). Both happen on a
//! stack made for it, and a panic of the library is an error of the expression. [`check`] finds what a compiler with types
//! finds: fields that a schema does not have, operators on values of other types.

pub(crate) mod check;
mod cost;
mod place;

use std::{
    collections::{BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, IdedExpr, Value as CelValue,
        common::ast::{CallExpr, EntryExpr, Expr, operators},
        objects::{Key, Map as CelMap, OptionalValue},
        parser::Parser,
    },
};
use serde_json::Value;

/// Bytes of one expression. Longer ones are met in no published definition.
const EXPRESSION_BYTES_MAX: usize = 16 * 1024;
/// Open brackets at one place: each is about ten calls of the parser.
const DEPTH_MAX: usize = 48;
/// Operators and dots in a row of one expression: these nest in the tree, too.
const OPERATORS_MAX: usize = 1000;
/// For the parser and the evaluator, whose depth the bounds above limit. Only what is touched becomes memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Steps of one evaluation. A step is at most the copy of a quarter of a node, a fraction of a microsecond.
const STEPS_MAX: u64 = 5_000_000;
/// Nodes of an expression whose variables stand in it.
const NODES_MAX: usize = 20_000;
/// Steps of all expressions of one request.
pub(crate) const BUDGET: u64 = 20_000_000;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Expression {
    tree: IdedExpr,
    source: String,
    free: BTreeSet<String>,
}

/// Why an expression gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It would take too many steps, or the request has used up its budget.
    Cost,
    /// What a real server says of it.
    Error(String),
}

/// What an expression gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    Bool(bool),
    Text(String),
    /// Something else.
    Other,
}

/// A variable of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Bound<'a>,
}

/// What a variable is.
#[derive(Clone, Copy)]
pub(crate) enum Bound<'a> {
    /// A document with the schema that says how its fields are called and typed.
    Typed(&'a Value, &'a Value, bool),
    /// An optional of such a document.
    Optional(Option<&'a Value>, &'a Value, bool),
    /// A document as it is.
    Plain(&'a Value),
}

impl<'a> Bound<'a> {
    fn document(&self) -> Option<&'a Value> {
        match self {
            Bound::Typed(value, ..) | Bound::Plain(value) => Some(value),
            Bound::Optional(value, ..) => *value,
        }
    }
}

/// Runs something on a stack that deep expressions fit on. `None` when it panicked or no thread could be had.
pub(crate) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(STACK_BYTES);
        builder.spawn_scoped(scope, || catch_unwind(AssertUnwindSafe(work)).ok()).ok()?.join().ok().flatten()
    })
}

impl Expression {
    /// Parses an expression; the error is a compiler's. To be called on a deep stack.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        bounded(source)?;
        let read = place::without_double_signs(source);
        let parser = Parser::new().enable_optional_syntax(true);
        let mut tree = catch_unwind(AssertUnwindSafe(|| parser.parse(&read)))
            .map_err(|_| "ERROR: <input>:1:1: the parser fails on this expression".to_owned())?
            .map_err(|errors| syntax(source, &errors))?;
        index_optionally(&mut tree);
        let mut names = Names { bound: Vec::new(), free: BTreeSet::new() };
        names.walk(&tree);
        Ok(Self { tree, source: source.to_owned(), free: names.free })
    }

    /// The expression with what stands for each `variables.name` in its place. `None` when it would grow beyond measure.
    pub(crate) fn with_variables(&self, variables: &HashMap<String, Self>) -> Option<Self> {
        let trees = variables.iter().map(|(name, expression)| (name.as_str(), &expression.tree)).collect();
        let mut left = NODES_MAX;
        let tree = inline(&self.tree, &trees, &mut left)?;
        let mut names = Names { bound: Vec::new(), free: BTreeSet::new() };
        names.walk(&tree);
        Some(Self { tree, source: self.source.clone(), free: names.free })
    }

    pub(crate) fn uses(&self, name: &str) -> bool {
        self.free.contains(name)
    }

    /// Evaluates the expression, if the budget allows it. To be called on a deep stack.
    pub(crate) fn evaluate(&self, variables: &[Variable<'_>], budget: &mut u64) -> Result<Given, Failure> {
        let documents = variables.iter().filter_map(|v| Some((v.name, v.value.document()?))).collect::<Vec<_>>();
        let steps = cost::steps(&self.tree, &documents);
        if steps > STEPS_MAX.min(*budget) {
            return Err(Failure::Cost);
        }
        *budget = budget.saturating_sub(steps);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::default().with_all();
            context.add_function("dyn", |value: CelValue| Ok::<_, ExecutionError>(value));
            // A type is its name.
            context.add_function("type", |value: CelValue| type_name(&value).to_owned());
            for name in check::TYPES {
                context.add_variable_from_value(name, name.to_owned());
            }
            for variable in variables.iter().filter(|variable| self.uses(variable.name)) {
                context.add_variable_from_value(variable.name, bind(variable.value));
            }
            CelValue::resolve(&self.tree, &context)
        }));
        match outcome {
            Ok(Ok(CelValue::Bool(flag))) => Ok(Given::Bool(flag)),
            Ok(Ok(CelValue::String(text))) => Ok(Given::Text(text.to_string())),
            Ok(Ok(_)) => Ok(Given::Other),
            Ok(Err(error)) => Err(Failure::Error(describe(&error))),
            Err(_) => Err(Failure::Error("internal error: the evaluator fails on this expression".to_owned())),
        }
    }
}

fn type_name(value: &CelValue) -> &'static str {
    match value {
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Int(_) => "int",
        CelValue::UInt(_) => "uint",
        CelValue::Float(_) => "double",
        CelValue::String(_) => "string",
        CelValue::Bytes(_) => "bytes",
        CelValue::Bool(_) => "bool",
        CelValue::Null => "null_type",
        CelValue::Timestamp(_) => "google.protobuf.Timestamp",
        CelValue::Duration(_) => "google.protobuf.Duration",
        CelValue::Function(..) | CelValue::Opaque(_) => "dyn",
    }
}

/// Refuses what would exhaust a recursive parser.
fn bounded(source: &str) -> Result<(), String> {
    let refuse = |why: String| Err(format!("ERROR: <input>:1:1: {why}"));
    if source.len() > EXPRESSION_BYTES_MAX {
        return refuse(format!("expression code point size exceeds limit: {EXPRESSION_BYTES_MAX}"));
    }
    let (mut depth, mut operators) = (0_usize, 0_usize);
    for token in place::tokens(source) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ if token.is_operator() => operators += 1,
            _ => {}
        }
        if depth > DEPTH_MAX || operators > OPERATORS_MAX {
            return refuse(format!("max recursion depth exceeded: {DEPTH_MAX}"));
        }
    }
    Ok(())
}

/// A copy of a tree in which `variables.name` is replaced; `left` is how many nodes it may have.
fn inline(node: &IdedExpr, variables: &HashMap<&str, &IdedExpr>, left: &mut usize) -> Option<IdedExpr> {
    *left = left.checked_sub(1)?;
    let mut each = |child: &IdedExpr| inline(child, variables, left);
    let expr = match &node.expr {
        Expr::Select(select) => {
            let known = match &select.operand.expr {
                Expr::Ident(name) if name == "variables" && !select.test => variables.get(select.field.as_str()),
                _ => None,
            };
            if let Some(known) = known {
                // Its own variables are in it already.
                return each(known);
            }
            let mut copy = select.clone();
            copy.operand = Box::new(each(&select.operand)?);
            Expr::Select(copy)
        }
        Expr::Call(call) => {
            let target = match &call.target {
                Some(target) => Some(Box::new(each(target)?)),
                None => None,
            };
            let args = call.args.iter().map(each).collect::<Option<Vec<_>>>()?;
            Expr::Call(CallExpr { func_name: call.func_name.clone(), target, args })
        }
        Expr::List(items) => {
            let mut copy = items.clone();
            copy.elements = items.elements.iter().map(each).collect::<Option<Vec<_>>>()?;
            Expr::List(copy)
        }
        Expr::Map(map) => {
            let mut copy = map.clone();
            for part in copy.entries.iter_mut().flat_map(|entry| parts_mut(&mut entry.expr)) {
                *part = each(part)?;
            }
            Expr::Map(copy)
        }
        Expr::Comprehension(loops) => {
            let mut copy = loops.clone();
            for part in
                [&mut copy.iter_range, &mut copy.accu_init, &mut copy.loop_cond, &mut copy.loop_step, &mut copy.result]
            {
                *part = each(part)?;
            }
            Expr::Comprehension(copy)
        }
        other @ (Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified) => other.clone(),
    };
    Some(IdedExpr { id: node.id, expr })
}

/// Makes `a.?b` the same as `a[?'b']`, which the evaluator also does right when there is no `b`.
fn index_optionally(expression: &mut IdedExpr) {
    let below: Vec<&mut IdedExpr> = match &mut expression.expr {
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).collect()
        }
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Select(select) => vec![&mut *select.operand],
        Expr::Map(map) => map.entries.iter_mut().flat_map(|entry| parts_mut(&mut entry.expr)).collect(),
        Expr::Struct(object) => object.entries.iter_mut().flat_map(|entry| parts_mut(&mut entry.expr)).collect(),
        Expr::Comprehension(loops) => {
            let loops = &mut **loops;
            vec![
                &mut loops.iter_range,
                &mut loops.accu_init,
                &mut loops.loop_cond,
                &mut loops.loop_step,
                &mut loops.result,
            ]
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    };
    below.into_iter().for_each(index_optionally);
}

fn parts_mut(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}

/// What a parser says, as the real one words it.
fn syntax(source: &str, errors: &kube_cel::cel::ParseErrors) -> String {
    let said = errors.errors.iter().map(|error| {
        let (line, column) = error.pos;
        let prefix = if error.msg.starts_with("Syntax error") { "" } else { "Syntax error: " };
        let line = usize::try_from(line).unwrap_or(1).max(1);
        place::error(source, line, usize::try_from(column).unwrap_or(1).max(1), &format!("{prefix}{}", error.msg))
    });
    said.collect::<Vec<_>>().join("\n")
}

fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::FunctionError { function, message } => match function.as_str() {
            "int" | "uint" | "double" => format!("type conversion error from 'string' to '{function}'"),
            _ => message.clone(),
        },
        _ => "no such overload".to_owned(),
    }
}

/// Children of a node that are evaluated in the scope of the node.
fn children(expression: &Expr) -> Vec<&IdedExpr> {
    fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
        match entry {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        }
    }
    match expression {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(object) => object.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Comprehension(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
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

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// How a field is called in an expression; `None` when it cannot be.
pub(crate) fn escape(name: &str) -> Option<String> {
    let mut characters = name.chars();
    let first = characters.next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if !(first.is_ascii_alphabetic() || matches!(first, '_' | '.' | '-' | '/')) || !characters.all(plain) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    Some(
        name.replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}

fn bind(bound: Bound<'_>) -> CelValue {
    match bound {
        Bound::Plain(value) => plain(value),
        Bound::Typed(value, schema, root) => typed(value, schema, root),
        Bound::Optional(value, schema, root) => {
            let inner = value.map(|value| typed(value, schema, root));
            CelValue::Opaque(Arc::new(inner.map_or_else(OptionalValue::none, OptionalValue::of)))
        }
    }
}

fn text_key(key: &str) -> Key {
    Key::String(Arc::new(key.to_owned()))
}

fn map_of(entries: HashMap<Key, CelValue>) -> CelValue {
    CelValue::Map(CelMap { map: Arc::new(entries) })
}

/// JSON as CEL sees it. Whole numbers are `int`.
fn plain(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => number.as_f64().map_or(CelValue::Null, CelValue::Float),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(map) => map_of(map.iter().map(|(key, child)| (text_key(key), plain(child))).collect()),
    }
}

/// JSON as its schema says: declared fields under their escaped names, numbers and formats as their types.
fn typed(value: &Value, schema: &Value, root: bool) -> CelValue {
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    match value {
        Value::Number(number) if schema.get("type").is_some_and(|t| t == "number") => {
            number.as_f64().map_or(CelValue::Null, CelValue::Float)
        }
        Value::String(text) => formatted(text, schema),
        Value::Array(items) => match schema.get("items") {
            Some(schema) => {
                let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
                CelValue::List(Arc::new(items.iter().map(|item| typed(item, schema, embedded)).collect()))
            }
            None => plain(value),
        },
        Value::Object(map) => {
            if let Some(additional) = schema.get("additionalProperties").filter(|a| a.is_object()) {
                let entries = map.iter().map(|(key, child)| (text_key(key), typed(child, additional, false)));
                return map_of(entries.collect());
            }
            let properties = schema.get("properties").and_then(Value::as_object);
            let whole = root || flag("x-kubernetes-embedded-resource");
            if properties.is_none() && !whole {
                return plain(value);
            }
            let mut entries = HashMap::new();
            for (key, child) in map {
                let declared = properties.and_then(|properties| properties.get(key));
                let bound = match (key.as_str(), whole) {
                    ("apiVersion" | "kind", true) => plain(child),
                    ("metadata", true) => {
                        let seen = ["name", "generateName"].into_iter();
                        let seen = seen.filter_map(|key| Some((text_key(key), plain(child.get(key)?))));
                        map_of(seen.collect())
                    }
                    _ => match declared {
                        Some(schema) => typed(child, schema, false),
                        None => continue,
                    },
                };
                if let Some(name) = escape(key) {
                    entries.insert(text_key(&name), bound);
                }
            }
            map_of(entries)
        }
        _ => plain(value),
    }
}

fn formatted(text: &str, schema: &Value) -> CelValue {
    let as_text = || CelValue::String(Arc::new(text.to_owned()));
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return as_text();
    }
    let call = |function: &str, argument: String| {
        let mut context = Context::default();
        context.add_variable_from_value("text", argument);
        Expression::parse(&format!("{function}(text)"))
            .ok()
            .and_then(|parsed| CelValue::resolve(&parsed.tree, &context).ok())
    };
    let special = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => call("timestamp", text.to_owned()),
        Some("date") => call("timestamp", format!("{text}T00:00:00Z")),
        Some("duration") => call("duration", text.to_owned()),
        Some("byte") => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text)
            .ok()
            .map(|b| CelValue::Bytes(b.into())),
        _ => None,
    };
    special.unwrap_or_else(as_text)
}

#[cfg(test)]
mod tests;
