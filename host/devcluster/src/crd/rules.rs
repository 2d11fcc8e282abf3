//! `x-kubernetes-validations`: rules in CEL of custom kinds, with the texts of the API.
//!
//! A rule is compiled when its definition is written (where errors refuse the definition) and again when the definition
//! is served. Every check has a budget; rules come with packages, and packages are hostile.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use serde_json::{Map, Value, json};

use super::structural::CAUSES_MAX;
use crate::{
    cel::{
        self, Bound, Expression, Failure, Given, Variable,
        check::{self, Type},
    },
    json::{list, same, text},
    status::Cause,
};

const RULES: &str = "x-kubernetes-validations";
/// Rules of one definition that are compiled.
const RULES_MAX: usize = 2000;
/// The bound of the API on what a `messageExpression` may give.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The rules of a schema and of everything below it.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    own: Vec<Rule>,
    properties: BTreeMap<String, Self>,
    items: Option<Box<Self>>,
    additional: Option<Box<Self>>,
    all_of: Vec<Self>,
}

#[derive(Debug)]
struct Rule {
    /// The rule, or what its compiler says.
    condition: Result<Expression, String>,
    message: String,
    message_expression: Option<Expression>,
    /// What stands for the rule in messages about it.
    label: String,
    reason: &'static str,
    /// Where the error is, below the value.
    field: String,
    optional_old: bool,
}

/// The old and the new state of one value.
#[derive(Clone, Copy)]
struct Pair<'v> {
    new: &'v Value,
    old: Option<&'v Value>,
    /// The value, or the nearest one above that has an old state, is as it was: then only transitions are errors.
    unchanged: bool,
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) causes: Vec<Cause>,
    /// What would have been refused if it were new.
    pub(crate) warnings: Vec<String>,
}

impl Rules {
    /// The rules of a schema; `None` when it has none.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        if !super::structural::has_rules(schema) {
            return None;
        }
        cel::on_deep_stack(|| Self::compile(schema, schema, &mut RULES_MAX.clone()))
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
            && self.all_of.is_empty()
    }

    /// `node` has the types when the rules stand in a branch of `allOf`.
    fn compile(schema: &Value, node: &Value, left: &mut usize) -> Self {
        let mut rules = Self::default();
        for rule in list(schema, &[RULES]) {
            if *left == 0 {
                return rules;
            }
            *left -= 1;
            rules.own.push(Rule::compile(rule, node));
        }
        let below = |key: &str| {
            let of = |schema: &Value| schema.get(key).filter(|schema| schema.is_object()).cloned();
            Some((of(schema)?, of(node)?))
        };
        for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(typed) = node.get("properties").and_then(|properties| properties.get(name)) {
                let found = Self::compile(child, typed, left);
                if !found.is_empty() {
                    rules.properties.insert(name.clone(), found);
                }
            }
        }
        for (key, place) in [("items", &mut rules.items), ("additionalProperties", &mut rules.additional)] {
            if let Some((child, typed)) = below(key) {
                let found = Self::compile(&child, &typed, left);
                *place = (!found.is_empty()).then(|| Box::new(found));
            }
        }
        let branches = list(schema, &["allOf"]).iter().map(|branch| Self::compile(branch, node, left));
        rules.all_of = branches.filter(|found| !found.is_empty()).collect();
        rules
    }

    /// Checks an object.
    pub(crate) fn check(&self, new: &Value, old: Option<&Value>, schema: &Value) -> Findings {
        let work = || {
            let mut walk = Walk { budget: cel::BUDGET, findings: Findings::default() };
            // Nothing is above the root, and it is never as it was: its version changes.
            let pair = Pair { new, old, unchanged: old.is_some_and(|old| same(old, new)) };
            walk.visit(self, schema, pair, "", true);
            walk.findings
        };
        cel::on_deep_stack(work).unwrap_or_else(|| {
            let why = "internal error: the rules could not be checked";
            Findings { causes: vec![Cause::invalid("<nil>", &Value::Null, why)], warnings: Vec::new() }
        })
    }
}

impl Rule {
    fn compile(raw: &Value, schema: &Value) -> Self {
        let (source, message) = (text(raw, &["rule"]), text(raw, &["message"]));
        let given = if message.is_empty() { source } else { message };
        let label = given.trim().to_owned();
        let message = if message.is_empty() { format!("failed rule: {label}") } else { label.clone() };
        let expression = text(raw, &["messageExpression"]);
        let reason = REASONS.into_iter().find(|known| *known == text(raw, &["reason"]));
        Self {
            condition: Expression::parse(source),
            message,
            message_expression: (!expression.is_empty()).then(|| Expression::parse(expression).ok()).flatten(),
            label,
            reason: reason.unwrap_or("FieldValueInvalid"),
            field: field_path(text(raw, &["fieldPath"]), schema).unwrap_or_default(),
            optional_old: raw.get("optionalOldSelf") == Some(&Value::Bool(true)),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// How a path is named in messages.
fn shown(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

struct Walk {
    budget: u64,
    findings: Findings,
}

impl Walk {
    /// False when the budget is used up: nothing is checked any more.
    fn visit(&mut self, rules: &Rules, schema: &Value, pair: Pair<'_>, path: &str, root: bool) -> bool {
        if pair.new.is_null() || self.findings.causes.len() >= CAUSES_MAX {
            return true;
        }
        if !self.own(rules, schema, pair, path, root) {
            return false;
        }
        for branch in &rules.all_of {
            if !self.visit(branch, schema, pair, path, root) {
                return false;
            }
        }
        match pair.new {
            Value::Object(map) => self.members(rules, schema, map, pair, path),
            Value::Array(items) => self.items(rules, schema, items, pair, path),
            _ => true,
        }
    }

    fn members(&mut self, rules: &Rules, schema: &Value, map: &Map<String, Value>, pair: Pair<'_>, path: &str) -> bool {
        for (key, child) in map {
            let (below, schema, path) = match (rules.properties.get(key), &rules.additional) {
                (Some(below), _) => (below, schema.get("properties").and_then(|p| p.get(key)), join(path, key)),
                (None, Some(below)) => (&**below, schema.get("additionalProperties"), format!("{path}[{key}]")),
                (None, None) => continue,
            };
            let old = pair.old.and_then(|old| old.get(key));
            if let Some(schema) = schema
                && !self.visit(below, schema, pair.below(child, old), &path, is_embedded(schema))
            {
                return false;
            }
        }
        true
    }

    fn items(&mut self, rules: &Rules, schema: &Value, items: &[Value], pair: Pair<'_>, path: &str) -> bool {
        let (Some(below), Some(item_schema)) = (&rules.items, schema.get("items")) else { return true };
        let keys = list(schema, &["x-kubernetes-list-map-keys"]);
        let identity = |item: &Value| {
            let values = keys.iter().filter_map(Value::as_str).map(|key| item.get(key).cloned().unwrap_or_default());
            Value::Array(values.collect()).to_string()
        };
        let old = pair.old.and_then(Value::as_array).filter(|_| text(schema, &["x-kubernetes-list-type"]) == "map");
        let known = old.into_iter().flatten().map(|item| (identity(item), item)).collect::<HashMap<_, _>>();
        for (index, item) in items.iter().enumerate() {
            let old = if known.is_empty() { None } else { known.get(&identity(item)).copied() };
            let path = format!("{path}[{index}]");
            if !self.visit(below, item_schema, pair.below(item, old), &path, is_embedded(item_schema)) {
                return false;
            }
        }
        true
    }

    fn own(&mut self, rules: &Rules, schema: &Value, pair: Pair<'_>, path: &str, root: bool) -> bool {
        for rule in &rules.own {
            let kind = text(schema, &["type"]);
            let refuse = |why: String| Cause::invalid(shown(path), &json!(kind), &why);
            let condition = match &rule.condition {
                Ok(condition) => condition,
                Err(why) => {
                    let why = format!("rule compile error: compilation failed: {why}");
                    self.findings.causes.push(refuse(why));
                    continue;
                }
            };
            let transition = condition.uses("oldSelf");
            if transition && pair.old.is_none() && !rule.optional_old {
                continue;
            }
            let mut variables = vec![Variable { name: "self", value: Bound::Typed(pair.new, schema, root) }];
            match (rule.optional_old, pair.old) {
                (true, old) => variables.push(Variable { name: "oldSelf", value: Bound::Optional(old, schema, root) }),
                (false, Some(old)) => {
                    variables.push(Variable { name: "oldSelf", value: Bound::Typed(old, schema, root) });
                }
                (false, None) => {}
            }
            match condition.evaluate(&variables, &mut self.budget) {
                Ok(Given::Bool(true)) => {}
                Ok(_) => {
                    let cause = rule.refusal(pair.new, schema, path, &variables, &mut self.budget);
                    if !transition && pair.unchanged {
                        self.findings.warnings.push(format!("{}: {}", cause.field, cause.message));
                    } else {
                        self.findings.causes.push(cause);
                    }
                }
                Err(Failure::Cost) => {
                    let why =
                        "validation failed due to running out of cost budget, no further validation rules will be run";
                    self.findings.causes.push(refuse(why.to_owned()));
                    return false;
                }
                Err(Failure::Error(why)) if why.starts_with("no such overload") => {
                    let tail =
                        "call arguments did not match a supported operator, function or macro signature for rule";
                    self.findings.causes.push(refuse(format!("'{why}': {tail}: {}", rule.label)));
                }
                Err(Failure::Error(why)) => {
                    self.findings.causes.push(refuse(format!("{why} evaluating rule: {}", rule.label)));
                }
            }
        }
        true
    }
}

fn is_embedded(schema: &Value) -> bool {
    schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true))
}

impl<'v> Pair<'v> {
    fn below(self, new: &'v Value, old: Option<&'v Value>) -> Self {
        Self { new, old, unchanged: old.map_or(self.unchanged, |old| same(old, new)) }
    }
}

impl Rule {
    /// What is said when the rule does not hold.
    fn refusal(
        &self,
        value: &Value,
        schema: &Value,
        path: &str,
        variables: &[Variable<'_>],
        budget: &mut u64,
    ) -> Cause {
        let said = self.message_expression.as_ref().and_then(|expression| {
            let Ok(Given::Text(said)) = expression.evaluate(variables, budget) else { return None };
            let said = said.trim();
            let good = !said.is_empty() && said.len() <= MESSAGE_BYTES_MAX && !said.contains('\n');
            good.then(|| said.to_owned())
        });
        let message = said.as_deref().unwrap_or(&self.message);
        let field = if self.field.is_empty() { shown(path) } else { join(path, &self.field) };
        // Whole objects and lists are not repeated.
        let whole = matches!(text(schema, &["type"]), "object" | "array");
        match self.reason {
            "FieldValueForbidden" => Cause::forbidden(field, message),
            "FieldValueRequired" => Cause::required(field, message),
            "FieldValueDuplicate" if whole => {
                Cause { reason: "FieldValueDuplicate", message: "Duplicate value".to_owned(), field }
            }
            "FieldValueDuplicate" => Cause::duplicate(field, value),
            _ if whole => Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {message}"), field },
            _ => Cause::invalid(field, value, message),
        }
    }
}

/// A `fieldPath` such as `.spec['a.b']` as messages name it; `None` when the schema has no such field.
fn field_path(path: &str, schema: &Value) -> Option<String> {
    let (mut rest, mut here, mut named) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let end = quoted_end(after)?;
            name = unquote(after.get(..end)?)?;
            rest = after.get(end + 1..)?.strip_prefix(']')?;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            name = after.get(..end).filter(|name| !name.is_empty())?.to_owned();
            rest = after.get(end..)?;
        }
        if let Some(properties) = here.get("properties") {
            here = properties.get(&name)?;
            named = join(&named, &name);
        } else {
            here = here.get("additionalProperties").filter(|additional| additional.is_object())?;
            write!(named, "[{name}]").ok()?;
        }
    }
    Some(named)
}

fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let end = c == '\'' && !escaped;
        escaped = c == '\\' && !escaped;
        end.then_some(at)
    })
}

fn unquote(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        out.push(match c {
            '\\' => match characters.next()? {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                same @ ('\'' | '\\') => same,
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

/// What is wrong with the form of the rules of one schema node.
pub(crate) fn check_form(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in list(schema, &[RULES]).iter().enumerate() {
        let at = |field: &str| format!("{path}.{RULES}[{index}].{field}");
        let given = |field: &str| text(rule, &[field]);
        let (source, message) = (given("rule").trim(), given("message"));
        if source.is_empty() {
            causes.push(Cause::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            causes.push(Cause::invalid(at("message"), &json!(message), "must be non-empty if specified"));
        } else if message.trim().contains('\n') {
            causes.push(Cause::invalid(at("message"), &json!(message), "must not contain line breaks"));
        } else if source.contains('\n') && message.trim().is_empty() {
            let why = "message must be specified if rule contains line breaks";
            causes.push(Cause::required(at("message"), why));
        }
        if !given("messageExpression").is_empty() && given("messageExpression").trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(at("messageExpression"), why));
        }
        if let Some(reason) = rule.get("reason").filter(|r| !r.is_null() && !REASONS.iter().any(|known| r == known)) {
            causes.push(Cause::not_supported(at("reason"), reason, &REASONS.map(|reason| json!(reason))));
        }
        let field = given("fieldPath");
        if !field.is_empty() {
            let mut refuse = |why: &str| causes.push(Cause::invalid(at("fieldPath"), &json!(field), why));
            if field.trim().is_empty() {
                refuse("must be non-empty if specified");
            }
            if field.contains('\n') {
                refuse("must not contain line breaks");
            }
            if field_path(field, schema).is_none() {
                refuse("must be a valid path");
            }
        }
    }
}

/// What a compiler says of the rules of a schema that is well formed.
pub(crate) fn check_types(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !super::structural::has_rules(schema) {
        return;
    }
    let found = cel::on_deep_stack(|| {
        let mut found = Vec::new();
        let mut compiler = Compiler { causes: &mut found, left: RULES_MAX };
        compiler.node(schema, schema, path, true, None);
        found
    });
    causes.extend(
        found.unwrap_or_else(|| vec![Cause::invalid(path, &Value::Null, "internal error: rules fail to compile")]),
    );
}

struct Compiler<'c> {
    causes: &'c mut Vec<Cause>,
    left: usize,
}

impl Compiler<'_> {
    /// The paths are those of the real one: children before the node, in the order of their names.
    fn node(&mut self, schema: &Value, typed: &Value, path: &str, root: bool, uncorrelated: Option<&str>) {
        if self.causes.len() >= CAUSES_MAX {
            return;
        }
        let child = |key: &str| {
            let of = |schema: &'_ Value| schema.get(key).filter(|schema| schema.is_object()).cloned();
            Some((of(schema)?, of(typed)?))
        };
        if let Some((schema, typed)) = child("additionalProperties") {
            self.node(&schema, &typed, &format!("{path}.additionalProperties"), is_embedded(&typed), uncorrelated);
        }
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(typed) = typed.get("properties").and_then(|properties| properties.get(name)) {
                let path = format!("{path}.properties[{name}]");
                self.node(schema, typed, &path, is_embedded(typed), uncorrelated);
            }
        }
        for (index, branch) in list(schema, &["allOf"]).iter().enumerate() {
            self.node(branch, typed, &format!("{path}.allOf[{index}]"), root, uncorrelated);
        }
        if let Some((items, typed_items)) = child("items") {
            let by_key = text(typed, &["x-kubernetes-list-type"]) == "map";
            let uncorrelated = uncorrelated.or((!by_key).then_some(path));
            self.node(&items, &typed_items, &format!("{path}.items"), is_embedded(&typed_items), uncorrelated);
        }
        for (index, rule) in list(schema, &[RULES]).iter().enumerate() {
            if self.left == 0 {
                self.causes.push(Cause::forbidden(format!("{path}.{RULES}"), "has too many rules"));
                return;
            }
            self.left -= 1;
            self.rule(rule, typed, &format!("{path}.{RULES}[{index}]"), root, uncorrelated);
        }
    }

    fn rule(&mut self, rule: &Value, schema: &Value, path: &str, root: bool, uncorrelated: Option<&str>) {
        let this = check::of_schema(schema, "selfType", root);
        let optional = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        let old = if optional { Type::Optional(Box::new(this.clone())) } else { this.clone() };
        let names = BTreeMap::from([("self", this), ("oldSelf", old)]);
        let mut refuse = |field: &str, why: String| {
            let message = format!("Invalid value: {}: {why}", written(rule));
            self.causes.push(Cause { reason: "FieldValueInvalid", message, field: format!("{path}.{field}") });
        };
        let source = text(rule, &["rule"]);
        let condition = match Expression::parse(source) {
            Ok(condition) => condition,
            Err(why) => return refuse("rule", format!("compilation failed: {why}")),
        };
        let (given, errors) = check::check(&condition, &names);
        if !errors.is_empty() {
            return refuse("rule", format!("compilation failed: {}", errors.join("\n")));
        }
        if !matches!(given, Type::Bool | Type::Dyn) {
            return refuse("rule", "cel expression must evaluate to a bool".to_owned());
        }
        let expression = text(rule, &["messageExpression"]);
        if !expression.is_empty() {
            match Expression::parse(expression) {
                Err(why) => refuse("messageExpression", format!("messageExpression compilation failed: {why}")),
                Ok(expression) => {
                    let (given, errors) = check::check(&expression, &names);
                    if !errors.is_empty() {
                        let why = format!("messageExpression compilation failed: {}", errors.join("\n"));
                        refuse("messageExpression", why);
                    } else if !matches!(given, Type::Text | Type::Dyn) {
                        refuse("messageExpression", "messageExpression must evaluate to a string".to_owned());
                    }
                }
            }
        }
        if condition.uses("oldSelf") {
            if let Some(within) = uncorrelated {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.causes.push(Cause::invalid(format!("{path}.rule"), &json!(source), &why));
            }
        } else if let Some(given) = rule.get("optionalOldSelf").filter(|given| given.is_boolean()) {
            let why = "may not be set if oldSelf is not used in rule";
            self.causes.push(Cause::invalid(format!("{path}.optionalOldSelf"), given, why));
        }
    }
}

/// A rule as the API writes it into messages.
fn written(rule: &Value) -> String {
    let part = |key: &str| escaped(&json!(text(rule, &[key])));
    let or_null = |key: &str| escaped(rule.get(key).unwrap_or(&Value::Null));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        part("rule"),
        part("message"),
        part("messageExpression"),
        or_null("reason"),
        part("fieldPath"),
        or_null("optionalOldSelf"),
    )
}

/// JSON that may stand in HTML.
fn escaped(value: &Value) -> String {
    value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests;
