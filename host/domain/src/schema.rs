//! Schemas of settings and values: OpenAPI v3 with the extensions that packages use.
//!
//! A [`SchemaDocument`] is a parsed file in which local references are replaced by what they refer to; a [`Schema`] is
//! compiled once and used many times. Everything here is package text and as untrusted as a hook: references cannot
//! leave the file, patterns are matched in linear time, rules are bounded in cost (see `schema/rule.rs`), and size,
//! depth and number of everything are bounded.
//!
//! Messages never contain values of the document that is checked: settings hold passwords.

mod expand;
mod rule;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, Retrieve, Uri};
use serde_json::{Map, Value};

use self::rule::RuleTree;
use crate::package::document::{Document, join, on_deep_stack, push};
use crate::package::{Problem, nearest};

/// Problems of one document that are reported; whoever has more has the same one many times.
const PROBLEMS_MAX: usize = 100;
/// Compiled bytes of one pattern, and as much again for its lazy automaton.
const PATTERN_BYTES: usize = 256 * 1024;
/// Vendor extension with which values include the settings.
const EXTEND: &str = "x-extend";
/// Vendor extension that freezes a node.
const IMMUTABLE: &str = "x-deckhouse-immutable";

/// A schema file, references expanded.
#[derive(Debug, Clone)]
pub struct SchemaDocument {
    document: Document,
    root: Map<String, Value>,
}

impl SchemaDocument {
    /// Reads a schema file.
    ///
    /// # Errors
    /// Malformed YAML, duplicate or unknown keys, references that lead out of the file, nowhere or in a circle, and
    /// schemas that grow too large: all of them, as far as they can be told.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let document = Document::parse(file, text)?;
        let root = expand::expand(&document)?;
        Ok(Self { document, root })
    }

    /// The schema of values with that of the settings included, whether `x-extend` says so or not: settings stand at
    /// the root of the values, so a schema that knows nothing of them could never hold. Where both say something, the
    /// values say it; rules of both apply.
    ///
    /// # Errors
    /// An `x-extend` that names another file.
    pub fn extended(mut self, settings: Option<&Self>) -> Result<Self, Vec<Problem>> {
        if let Some(extend) = self.root.remove(EXTEND) {
            let named = extend.get("schema").and_then(Value::as_str);
            if !named.is_some_and(|name| matches!(name, "settings.yaml" | "config-values.yaml")) {
                let pointer = join("", EXTEND);
                let problem = self.document.problem("BadExtend", &pointer, "must be {schema: settings.yaml}");
                return Err(vec![problem.hint("the values can include the settings of their own package only")]);
            }
        }
        let Some(settings) = settings else { return Ok(self) };
        for (key, theirs) in &settings.root {
            match (self.root.get_mut(key), theirs) {
                (None, theirs) => {
                    // Whether unknown settings are allowed says nothing about unknown values, and the other way round.
                    if key != "additionalProperties" && key != "default" {
                        self.root.insert(key.clone(), theirs.clone());
                    }
                }
                (Some(Value::Object(ours)), Value::Object(theirs))
                    if matches!(key.as_str(), "properties" | "patternProperties") =>
                {
                    for (name, schema) in theirs {
                        ours.entry(name.clone()).or_insert_with(|| schema.clone());
                    }
                }
                (Some(Value::Array(ours)), Value::Array(theirs))
                    if matches!(key.as_str(), "required" | "allOf" | rule::RULES) =>
                {
                    for entry in theirs {
                        if !ours.contains(entry) {
                            ours.push(entry.clone());
                        }
                    }
                }
                (Some(_), _) => {}
            }
        }
        Ok(self)
    }

    /// Top-level properties.
    fn properties(&self) -> BTreeSet<String> {
        let properties = self.root.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }
}

/// A compiled schema.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    file: String,
    /// Expanded and closed, as published.
    document: Value,
    properties: BTreeSet<String>,
    validator: jsonschema::Validator,
    rules: RuleTree,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.0.file).finish()
    }
}

/// No reference is ever fetched.
struct Refuse;

impl Retrieve for Refuse {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("'{uri}' is outside of the file").into())
    }
}

impl Schema {
    /// Closes and compiles a schema.
    ///
    /// # Errors
    /// Keywords with values that they cannot have, bad patterns, bad rules.
    pub fn compile(schema: &SchemaDocument) -> Result<Self, Vec<Problem>> {
        on_deep_stack(|| Self::compile_here(schema))
    }

    fn compile_here(schema: &SchemaDocument) -> Result<Self, Vec<Problem>> {
        let mut closed = Value::Object(schema.root.clone());
        expand::close(&mut closed);
        let mut problems = Vec::new();
        let rules = RuleTree::compile(&schema.document, &closed, &mut problems);
        let options = jsonschema::options()
            .with_draft(Draft::Draft7)
            .with_retriever(Refuse)
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES));
        let plain = expand::json_schema(&closed);
        match options.build(&plain) {
            Ok(validator) if problems.is_empty() => Ok(Self(Arc::new(Compiled {
                file: schema.document.file.clone(),
                properties: schema.properties(),
                document: closed,
                validator,
                rules,
            }))),
            Ok(_) => Err(problems),
            Err(error) => {
                // A bad keyword is an error of the schema as an instance of the schema of schemas.
                let pointer = error.instance_path().as_str().to_owned();
                problems.push(schema.document.problem("BadSchema", &pointer, one_line(&error.to_string())));
                Err(problems)
            }
        }
    }

    /// Names of the top-level properties.
    #[must_use]
    pub fn properties(&self) -> &BTreeSet<String> {
        &self.0.properties
    }

    /// The schema as it can be published: references expanded, objects closed.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.0.document
    }

    /// Fills in defaults, but only into objects that exist.
    pub fn fill_defaults(&self, value: &mut Value) {
        fill(&self.0.document, value);
    }

    /// Checks a document. `subject` is what it is called in problems, for example `spec.settings`; rules that compare
    /// with the past are skipped where `old` has nothing.
    ///
    /// # Errors
    /// All violations, up to a bound, with paths and without values.
    pub fn validate(&self, subject: &str, value: &Value, old: Option<&Value>) -> Result<(), Vec<Problem>> {
        on_deep_stack(|| self.validate_here(subject, value, old))
    }

    fn validate_here(&self, subject: &str, value: &Value, old: Option<&Value>) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        for error in self.0.validator.iter_errors(value) {
            self.explain(subject, &error, &mut problems);
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
        }
        // Rules may rely on the types that the schema promises.
        if problems.is_empty() {
            self.0.rules.check(subject, value, old, &mut problems);
        }
        problems.truncate(PROBLEMS_MAX);
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Fields that may only be set once and differ, both documents with their defaults.
    ///
    /// # Errors
    /// A problem for each of them.
    pub fn check_immutable(&self, subject: &str, old: &Value, new: &Value) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        immutable(&self.0.document, subject, old, Some(new), &mut String::new(), &mut problems);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn explain(&self, subject: &str, error: &jsonschema::ValidationError<'_>, problems: &mut Vec<Problem>) {
        let pointer = error.instance_path().as_str();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = self.known(pointer);
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                for key in unexpected {
                    let message = format!("the key '{key}' is not known to {}", self.0.file);
                    let problem = Problem::new("UnknownKey", subject, &join(pointer, key), message);
                    problems.push(match nearest(key, &known) {
                        Some(nearest) => problem.hint(format!("did you mean '{nearest}'?")),
                        None if known.is_empty() => problem,
                        None => problem.hint(format!("known keys: {}", known.join(", "))),
                    });
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let message = format!("the key '{name}' is missing");
                problems.push(Problem::new("MissingKey", subject, pointer, message));
            }
            ValidationErrorKind::Type { kind } => {
                let wanted = match kind {
                    TypeKind::Single(wanted) => wanted.to_string(),
                    TypeKind::Multiple(wanted) => {
                        wanted.iter().map(|wanted| wanted.to_string()).collect::<Vec<_>>().join(" or ")
                    }
                };
                let found = crate::package::kind(error.instance());
                let message = format!("must be of type {wanted}, not {found}");
                problems.push(Problem::new("BadType", subject, pointer, message));
            }
            // An object without properties that is closed; which of its keys, the error does not say.
            ValidationErrorKind::FalseSchema => {
                let message = format!("has keys, and {} knows of none here", self.0.file);
                let problem = Problem::new("UnknownKey", subject, pointer, message);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
            _ => {
                let message = one_line(&error.masked_with("the value").to_string());
                problems.push(Problem::new("SchemaViolated", subject, pointer, message));
            }
        }
    }

    /// Properties that the schema knows of at a place of the document.
    fn known(&self, pointer: &str) -> Vec<String> {
        let mut schema = &self.0.document;
        for segment in crate::package::document::segments(pointer).unwrap_or_default() {
            let next = match schema.get("properties").and_then(|properties| properties.get(&segment)) {
                Some(next) => Some(next),
                None if segment.bytes().all(|byte| byte.is_ascii_digit()) && schema.get("items").is_some() => {
                    schema.get("items")
                }
                None => schema.get("additionalProperties"),
            };
            let Some(next) = next else { return Vec::new() };
            schema = next;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }
}

fn one_line(message: &str) -> String {
    let mut line: String = message.lines().next().unwrap_or_default().chars().take(500).collect();
    while line.ends_with('.') {
        line.pop();
    }
    line
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                if let (None, Some(default)) = (object.get(name), schema.get("default")) {
                    object.insert(name.clone(), default.clone());
                }
                if let Some(member) = object.get_mut(name) {
                    fill(schema, member);
                }
            }
            if let Some(additional) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                let others =
                    object.iter_mut().filter(|(name, _)| !properties.is_some_and(|known| known.contains_key(*name)));
                for (_, member) in others {
                    fill(additional, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    fill(schema, item);
                }
            }
        }
        _ => {}
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        fill(part, value);
    }
}

fn immutable(
    schema: &Value,
    subject: &str,
    old: &Value,
    new: Option<&Value>,
    pointer: &mut String,
    problems: &mut Vec<Problem>,
) {
    if schema.get(IMMUTABLE).and_then(Value::as_bool) == Some(true) {
        if Some(old) != new {
            let path = crate::package::dotted(pointer);
            let message = format!("field \"{path}\" is immutable: it can only be set when the application is created");
            let hint = "set it back, or create another application";
            problems.push(Problem::new("FieldImmutable", subject, pointer, message).hint(hint));
        }
        return;
    }
    let length = pointer.len();
    match old {
        Value::Object(object) => {
            let properties = schema.get("properties");
            let additional = schema.get("additionalProperties");
            for (name, old) in object {
                let own = properties.and_then(|properties| properties.get(name));
                let new = new.and_then(|new| new.get(name));
                // What has left a free map was removed as a whole, which its parent may forbid.
                let Some(schema) = own.or_else(|| additional.filter(|_| new.is_some())) else { continue };
                push(pointer, name);
                immutable(schema, subject, old, new, pointer, problems);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, old) in items.iter().enumerate() {
                    let Some(new) = new.and_then(|new| new.get(index)) else { break };
                    push(pointer, &index.to_string());
                    immutable(schema, subject, old, Some(new), pointer, problems);
                    pointer.truncate(length);
                }
            }
        }
        _ => {}
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for branch in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
            immutable(branch, subject, old, new, pointer, problems);
        }
    }
}

#[cfg(test)]
mod tests;
