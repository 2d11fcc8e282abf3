//! YAML text with the place of everything in it.
//!
//! Files of a package are read strictly: a duplicate key is an error with its line, and every later check can say where
//! the value stands that it does not like. Scalars mean what they mean to Kubernetes (YAML 1.1: `yes` is a boolean,
//! `0755` is octal). All bounds on aliases, nesting and size are those of the parser's budget and `TEXT_BYTES`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

use crate::package::Problem;

/// Bytes of one YAML or JSON file of a package. The largest settings schema of the catalogue that we are compatible
/// with is a tenth of this; a larger one could not be published in an object of the cluster.
pub(crate) const TEXT_BYTES: usize = 1024 * 1024;

/// Nesting of one file. The parser is recursive and takes some 45 KB of stack for a level in a build without optimisation.
const DEPTH: usize = 100;

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Document {
    /// Name of the file, for problems.
    pub file: String,
    /// What it says; `null` for an empty file.
    pub value: Value,
    /// Place by JSON pointer: of the key for members of objects, of the value otherwise.
    places: BTreeMap<String, Place>,
}

impl Document {
    /// Parses one YAML document.
    ///
    /// # Errors
    /// Malformed text ends parsing at the first error; otherwise every duplicate key.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        if text.len() > TEXT_BYTES {
            return Err(vec![
                Problem::new("FileTooLarge", file, "", format!("is larger than {TEXT_BYTES} bytes"))
                    .hint("move data that is no schema or manifest into another file"),
            ]);
        }
        let blank = text.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        });
        if blank {
            return Ok(Self { file: file.to_owned(), value: Value::Null, places: BTreeMap::new() });
        }
        let mut options = Options::default();
        options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
        options.legacy_octal_numbers = true;
        options.with_snippet = false;
        if let Some(budget) = options.budget.as_mut() {
            budget.max_depth = DEPTH;
        }
        let parsed = on_deep_stack(|| serde_saphyr::from_str_with_options(text, options));
        let node: Spanned<Node> = parsed.map_err(|error: serde_saphyr::Error| {
            let place = error.location();
            let mut problem = Problem::new("MalformedYaml", file, "", plain(&error.without_snippet().to_string()));
            problem.line = place.map(|place| place.line());
            problem.column = place.map(|place| place.column());
            vec![problem]
        })?;
        let mut document = Self { file: file.to_owned(), value: Value::Null, places: BTreeMap::new() };
        let mut problems = Vec::new();
        document.value = document.take(node, &mut String::new(), &mut problems);
        if problems.is_empty() { Ok(document) } else { Err(problems) }
    }

    fn take(&mut self, node: Spanned<Node>, pointer: &mut String, problems: &mut Vec<Problem>) -> Value {
        self.places.entry(pointer.clone()).or_insert_with(|| place(node.referenced));
        let length = pointer.len();
        match node.value {
            Node::Scalar(value) => value,
            Node::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    push(pointer, &index.to_string());
                    list.push(self.take(item, pointer, problems));
                    pointer.truncate(length);
                }
                Value::Array(list)
            }
            Node::Object(members) => {
                let mut object = Map::new();
                for (key, member) in members {
                    push(pointer, &key.value);
                    let here = place(key.referenced);
                    if let Some(first) = self.places.get(pointer.as_str()).filter(|_| object.contains_key(&key.value)) {
                        let mut problem = Problem::new(
                            "DuplicateKey",
                            &self.file,
                            pointer,
                            format!("the key '{}' is already set on line {}", key.value, first.line),
                        )
                        .hint("remove one of the two");
                        problem.line = Some(here.line);
                        problem.column = Some(here.column);
                        problems.push(problem);
                    } else {
                        self.places.insert(pointer.clone(), here);
                        let value = self.take(member, pointer, problems);
                        object.insert(key.value, value);
                    }
                    pointer.truncate(length);
                }
                Value::Object(object)
            }
        }
    }

    /// Place of a JSON pointer, or of the nearest node above it.
    #[must_use]
    pub fn place(&self, pointer: &str) -> Option<Place> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.places.get(pointer) {
                return Some(*place);
            }
            pointer = pointer.rsplit_once('/')?.0;
        }
    }

    /// A problem at a JSON pointer.
    #[must_use]
    pub fn problem(&self, reason: &str, pointer: &str, message: impl Into<String>) -> Problem {
        let mut problem = Problem::new(reason, &self.file, pointer, message);
        if let Some(place) = self.place(pointer) {
            problem.line = Some(place.line);
            problem.column = Some(place.column);
        }
        problem
    }
}

/// Bytes of stack for recursive parsers and evaluators. The hungriest is that of CEL, with some 200 KB for an open bracket
/// and 40 KB for a link of a chain in a build without optimisation: with the bounds that rules have, 13 MB. Only what is
/// touched is ever used.
const STACK: usize = 64 * 1024 * 1024;

/// Runs something on a stack that it cannot exhaust, whatever is left of the one of the thread.
pub(crate) fn on_deep_stack<R>(run: impl FnOnce() -> R) -> R {
    stacker::grow(STACK, run)
}

fn place(location: serde_saphyr::Location) -> Place {
    Place { line: location.line(), column: location.column() }
}

/// The first line of a parser's message: it may continue with a picture, and with the place, which a problem has anyway.
fn plain(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").trim_end_matches('.').to_owned()
}

/// Appends an escaped segment to a JSON pointer.
pub(crate) fn push(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for character in segment.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// A JSON pointer with one more segment.
#[must_use]
pub fn join(pointer: &str, segment: &str) -> String {
    let mut joined = pointer.to_owned();
    push(&mut joined, segment);
    joined
}

/// Splits a JSON pointer into unescaped segments; nothing if it is malformed.
#[must_use]
pub fn segments(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer.strip_prefix('/')?.split('/').map(unescape).collect()
}

fn unescape(segment: &str) -> Option<String> {
    let mut plain = String::with_capacity(segment.len());
    let mut characters = segment.chars();
    while let Some(character) = characters.next() {
        if character == '~' {
            match characters.next()? {
                '0' => plain.push('~'),
                '1' => plain.push('/'),
                _ => return None,
            }
        } else {
            plain.push(character);
        }
    }
    Some(plain)
}

enum Node {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Object(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Number(value.into())))
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Node, E> {
        let number = Number::from_i128(value).ok_or_else(|| E::custom("a number has more than 64 bits"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Node, E> {
        let number = Number::from_u128(value).ok_or_else(|| E::custom("a number has more than 64 bits"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Scalar(Value::String(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<Spanned<String>>()? {
            if key.value.len() > 1024 {
                return Err(A::Error::custom("a key is longer than 1024 bytes"));
            }
            object.push((key, members.next_value()?));
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests;
