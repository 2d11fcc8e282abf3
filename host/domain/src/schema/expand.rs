//! From a schema file to a schema: references, closure, and the dialect of JSON Schema.

use serde_json::{Map, Value, json};

use crate::package::document::{Document, push, segments};
use crate::package::{Problem, kind, nearest};

/// Nodes of an expanded schema. The largest known is below 5 000; references can multiply.
const NODES_MAX: usize = 20_000;
/// Nesting of an expanded schema.
const DEPTH_MAX: usize = 64;
/// Patterns of one schema; each may take some hundred kilobytes when compiled.
const PATTERNS_MAX: usize = 200;

/// Keywords with a schema.
const ONE: [&str; 3] = ["items", "additionalProperties", "not"];
/// Keywords with an object of schemas.
const NAMED: [&str; 2] = ["properties", "patternProperties"];
/// Keywords with a list of schemas.
const MANY: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords without schemas.
const PLAIN: [&str; 31] = [
    "type",
    "format",
    "enum",
    "const",
    "default",
    "nullable",
    "required",
    "title",
    "description",
    "example",
    "examples",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "readOnly",
    "writeOnly",
    "deprecated",
    "externalDocs",
    "xml",
    "discriminator",
    "$ref",
];
/// Places for definitions, allowed at the root only and dropped after expansion.
const DEFINITIONS: [&str; 3] = ["definitions", "$defs", "components"];

/// Replaces local references and checks that all keywords are known.
pub(super) fn expand(document: &Document) -> Result<Map<String, Value>, Vec<Problem>> {
    let mut expander = Expander { document, problems: Vec::new(), nodes: 0, patterns: 0, references: Vec::new() };
    let root = match &document.value {
        Value::Null => json!({"type": "object"}),
        value => expander.schema(value, &mut String::new(), 0),
    };
    match root {
        Value::Object(root) if expander.problems.is_empty() => {
            let described = root.get("type").is_none_or(|kind| kind == "object");
            if described {
                Ok(root)
            } else {
                Err(vec![document.problem("BadSchema", "/type", "the root must be of type object")])
            }
        }
        _ => Err(expander.problems),
    }
}

struct Expander<'a> {
    document: &'a Document,
    problems: Vec<Problem>,
    nodes: usize,
    patterns: usize,
    /// References that are being expanded.
    references: Vec<String>,
}

impl Expander<'_> {
    fn report(&mut self, reason: &str, pointer: &str, message: impl Into<String>, hint: Option<String>) -> Value {
        if self.problems.len() < super::PROBLEMS_MAX {
            let mut problem = self.document.problem(reason, pointer, message);
            problem.hint = hint;
            self.problems.push(problem);
        }
        Value::Object(Map::new())
    }

    /// A schema with its references replaced. `pointer` is where it stands for the reader.
    fn schema(&mut self, value: &Value, pointer: &mut String, depth: usize) -> Value {
        self.nodes += 1;
        if self.nodes > NODES_MAX || depth > DEPTH_MAX {
            if self.problems.iter().any(|problem| problem.reason == "SchemaTooLarge") {
                return Value::Null;
            }
            let message =
                format!("with its references replaced it has more than {NODES_MAX} nodes or {DEPTH_MAX} levels");
            return self.report("SchemaTooLarge", pointer, message, None);
        }
        let Some(object) = value.as_object() else {
            return self.report("BadSchema", pointer, format!("must be a schema, not {}", kind(value)), None);
        };
        let referred = match object.get("$ref") {
            Some(reference) => self.reference(reference, pointer, depth),
            None => None,
        };
        let mut expanded = referred.unwrap_or_default();
        let length = pointer.len();
        for (key, value) in object {
            push(pointer, key);
            let name = key.as_str();
            if name == "$ref" || (depth == 0 && DEFINITIONS.contains(&name)) {
                // Done above, or only there to be referred to.
            } else if name == "additionalProperties" && value.is_boolean() {
                expanded.insert(key.clone(), value.clone());
            } else if ONE.contains(&name) {
                let value = self.schema(value, pointer, depth + 1);
                expanded.insert(key.clone(), value);
            } else if NAMED.contains(&name) {
                if name == "patternProperties" {
                    self.patterns += value.as_object().map_or(0, Map::len);
                }
                let value = self.named(value, pointer, depth);
                expanded.insert(key.clone(), value);
            } else if MANY.contains(&name) {
                let value = self.many(value, pointer, depth);
                expanded.insert(key.clone(), value);
            } else if name.starts_with("x-") || PLAIN.contains(&name) {
                self.patterns += usize::from(name == "pattern");
                expanded.insert(key.clone(), value.clone());
            } else {
                let known: Vec<&str> = PLAIN.into_iter().chain(ONE).chain(NAMED).chain(MANY).collect();
                let hint = nearest(key, &known).map(|nearest| format!("did you mean '{nearest}'?"));
                self.report("UnknownKey", pointer, format!("the keyword '{key}' is not known"), hint);
            }
            pointer.truncate(length);
        }
        if self.patterns > PATTERNS_MAX && !self.problems.iter().any(|problem| problem.reason == "TooManyPatterns") {
            return self.report("TooManyPatterns", pointer, format!("has more than {PATTERNS_MAX} patterns"), None);
        }
        Value::Object(expanded)
    }

    fn named(&mut self, value: &Value, pointer: &mut String, depth: usize) -> Value {
        let Some(object) = value.as_object() else {
            return self.report(
                "BadSchema",
                pointer,
                format!("must be an object of schemas, not {}", kind(value)),
                None,
            );
        };
        let length = pointer.len();
        let mut expanded = Map::new();
        for (name, schema) in object {
            push(pointer, name);
            expanded.insert(name.clone(), self.schema(schema, pointer, depth + 1));
            pointer.truncate(length);
        }
        Value::Object(expanded)
    }

    fn many(&mut self, value: &Value, pointer: &mut String, depth: usize) -> Value {
        let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
            return self.report("BadSchema", pointer, "must be a list of at least one schema", None);
        };
        let length = pointer.len();
        let mut expanded = Vec::new();
        for (index, schema) in items.iter().enumerate() {
            push(pointer, &index.to_string());
            expanded.push(self.schema(schema, pointer, depth + 1));
            pointer.truncate(length);
        }
        Value::Array(expanded)
    }

    fn reference(&mut self, reference: &Value, pointer: &mut String, depth: usize) -> Option<Map<String, Value>> {
        let hint = "only references inside the file are possible, for example '#/definitions/name'";
        let path = reference.as_str().and_then(|text| text.strip_prefix('#')).filter(|path| segments(path).is_some());
        let Some(path) = path else {
            self.report("BadReference", pointer, "the reference leads out of the file", Some(hint.to_owned()));
            return None;
        };
        if self.references.iter().any(|open| open == path) {
            let message = format!("the reference '#{path}' leads back to itself");
            self.report("CircularReference", pointer, message, Some("write the levels out".to_owned()));
            return None;
        }
        let Some(target) = self.document.value.pointer(path) else {
            let message = format!("the reference '#{path}' leads nowhere");
            self.report("BadReference", pointer, message, None);
            return None;
        };
        self.references.push(path.to_owned());
        let expanded = self.schema(target, pointer, depth + 1);
        self.references.pop();
        match expanded {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// Forbids unknown keys in every object that says nothing about them. Branches of `allOf`, `anyOf` and `oneOf` are left
/// alone: they see the keys of the object around them.
pub(super) fn close(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    let is_object = match object.get("type") {
        Some(kind) => kind == "object",
        None => object.contains_key("properties"),
    };
    let open = object.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(true);
    if is_object && !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), Value::Bool(open));
    }
    for keyword in NAMED {
        if let Some(Value::Object(schemas)) = object.get_mut(keyword) {
            schemas.values_mut().for_each(close);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(schema) = object.get_mut(keyword) {
            close(schema);
        }
    }
}

/// The schema in the dialect of draft 7: `nullable` and boolean exclusive bounds are OpenAPI's own.
pub(super) fn json_schema(schema: &Value) -> Value {
    let Some(object) = schema.as_object() else { return schema.clone() };
    let mut plain = Map::new();
    for (key, value) in object {
        let value = match (key.as_str(), value) {
            ("nullable" | "default" | "example" | "examples" | "title" | "description", _) => continue,
            (key, _) if key.starts_with("x-") => continue,
            (key, Value::Object(schemas)) if NAMED.contains(&key) => {
                Value::Object(schemas.iter().map(|(name, schema)| (name.clone(), json_schema(schema))).collect())
            }
            (key, Value::Array(schemas)) if MANY.contains(&key) => schemas.iter().map(json_schema).collect(),
            (key, value) if ONE.contains(&key) => json_schema(value),
            (_, value) => value.clone(),
        };
        plain.insert(key.clone(), value);
    }
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match plain.get(exclusive) {
            Some(Value::Bool(true)) => {
                plain.remove(exclusive);
                if let Some(limit) = plain.remove(bound) {
                    plain.insert(exclusive.to_owned(), limit);
                }
            }
            Some(Value::Bool(false)) => {
                plain.remove(exclusive);
            }
            _ => {}
        }
    }
    if object.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        plain.insert("type".to_owned(), json!(["integer", "string"]));
    }
    if object.get("nullable").and_then(Value::as_bool) == Some(true) {
        return nullable(plain);
    }
    Value::Object(plain)
}

/// Lets a schema hold for `null` too.
fn nullable(mut plain: Map<String, Value>) -> Value {
    if MANY.iter().any(|keyword| plain.contains_key(*keyword)) || plain.contains_key("not") {
        return json!({"anyOf": [{"type": "null"}, plain]});
    }
    match plain.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push(json!("null")),
        Some(kind) => {
            let both = json!([kind.clone(), "null"]);
            *kind = both;
        }
        None => {}
    }
    if let Some(Value::Array(options)) = plain.get_mut("enum")
        && !options.contains(&Value::Null)
    {
        options.push(Value::Null);
    }
    Value::Object(plain)
}
