//! Reading a document by hand: all problems at once, each with its place, and an unknown key with the known one that it
//! resembles. Files are those of hostile packages, so the number of problems is bounded.

use serde_json::{Map, Value};

use super::Problem;
use super::document::{Document, join};

/// Problems that are reported at once. More than that nobody reads.
pub const PROBLEMS_MAX: usize = 100;

/// Collects what is wrong while a document is read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The document.
    pub document: &'a Document,
    /// What was found so far, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// A node of the document with its pointer.
#[derive(Debug, Clone)]
pub struct At<'a> {
    /// JSON pointer.
    pub pointer: String,
    /// The node.
    pub value: &'a Value,
}

impl<'a> Reader<'a> {
    /// A reader of a document that has found nothing yet.
    #[must_use]
    pub fn new(document: &'a Document) -> Self {
        Self { document, problems: Vec::new() }
    }

    /// Reports a problem at a pointer; beyond [`PROBLEMS_MAX`] it is dropped.
    pub fn report(&mut self, reason: &str, pointer: &str, message: impl Into<String>, hint: Option<String>) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let mut problem = self.document.problem(reason, pointer, message);
        problem.hint = hint;
        self.problems.push(problem);
    }

    /// Reports that a node is not what is `wanted`, in words: `an object`, `text`.
    pub fn bad_type(&mut self, node: &At<'_>, wanted: &str) {
        let hint = match node.value {
            Value::Number(_) | Value::Bool(_) if wanted == "text" => Some("put it in quotes".to_owned()),
            Value::String(_) if wanted == "a list" => Some("a list is written [a, b]".to_owned()),
            _ => None,
        };
        self.report("BadType", &node.pointer, format!("must be {wanted}, not {}", kind(node.value)), hint);
    }

    /// Checks that a node is an object with known keys.
    pub fn object(&mut self, node: &At<'a>, known: &[&str]) -> bool {
        self.object_besides(node, known, &[])
    }

    /// The same; about some keys more is to be said than that they are not known.
    pub fn object_besides(&mut self, node: &At<'a>, known: &[&str], besides: &[&str]) -> bool {
        let Some(object) = node.value.as_object() else {
            self.bad_type(node, "an object");
            return false;
        };
        for key in object.keys().filter(|key| !known.contains(&key.as_str()) && !besides.contains(&key.as_str())) {
            let hint = nearest(key, known).map_or_else(
                || format!("known keys: {}", known.join(", ")),
                |nearest| format!("did you mean '{nearest}'?"),
            );
            self.report("UnknownKey", &join(&node.pointer, key), format!("the key '{key}' is not known"), Some(hint));
        }
        true
    }

    /// A member; `null` counts as absent.
    #[must_use]
    pub fn member(&self, node: &At<'a>, key: &str) -> Option<At<'a>> {
        let value = node.value.get(key).filter(|value| !value.is_null())?;
        Some(At { pointer: join(&node.pointer, key), value })
    }

    /// A member that has to be there.
    pub fn required(&mut self, node: &At<'a>, key: &str) -> Option<At<'a>> {
        let member = self.member(node, key);
        if member.is_none() {
            self.report("MissingKey", &node.pointer, format!("the key '{key}' is missing"), None);
        }
        member
    }

    /// The items of a list.
    pub fn items(&mut self, node: &At<'a>) -> Vec<At<'a>> {
        let Some(items) = node.value.as_array() else {
            self.bad_type(node, "a list");
            return Vec::new();
        };
        let item = |(index, value)| At { pointer: format!("{}/{index}", node.pointer), value };
        items.iter().enumerate().map(item).collect()
    }

    /// A text that is not empty.
    pub fn text(&mut self, node: &At<'a>) -> Option<String> {
        match node.value.as_str() {
            Some(text) if !text.trim().is_empty() => Some(text.to_owned()),
            Some(_) => {
                self.report("BadValue", &node.pointer, "must not be empty", None);
                None
            }
            None => {
                self.bad_type(node, "text");
                None
            }
        }
    }

    /// A boolean.
    pub fn flag(&mut self, node: &At<'a>) -> Option<bool> {
        if node.value.as_bool().is_none() {
            self.bad_type(node, "true or false");
        }
        node.value.as_bool()
    }

    /// A list of texts.
    pub fn texts(&mut self, node: &At<'a>) -> Vec<String> {
        self.items(node).iter().filter_map(|item| self.text(item)).collect()
    }

    /// Checks that a node is an object, whatever its keys are.
    pub fn map(&mut self, node: &At<'a>) -> Option<&'a Map<String, Value>> {
        let members = node.value.as_object();
        if members.is_none() {
            self.bad_type(node, "an object");
        }
        members
    }

    /// One of several words, by its place among them.
    pub fn word(&mut self, node: &At<'a>, known: &[&str]) -> Option<usize> {
        let text = self.text(node)?;
        let found = known.iter().position(|known| *known == text);
        if found.is_none() {
            let hint = nearest(&text, known).map_or_else(
                || format!("one of: {}", known.join(", ")),
                |nearest| format!("did you mean '{nearest}'?"),
            );
            self.report("BadValue", &node.pointer, format!("'{text}' is not known here"), Some(hint));
        }
        found
    }
}

/// What a value is, in words.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The known word that an unknown one resembles.
#[must_use]
pub fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 5)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (j, y) in b.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let cell = (diagonal + usize::from(x != *y)).min(above + 1).min(left + 1);
            next.push(cell);
            diagonal = above;
            left = cell;
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
