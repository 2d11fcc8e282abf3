//! How many checks a schema makes on a document, before any is made.
//!
//! A validator cannot be stopped, and a few hundred bytes of schema can keep it busy for ever: `allOf` of twice the same
//! reference, thirty times in a row, is a thousand million checks. Counting them is cheap, since each pair of a part of
//! the schema and a part of the document has to be counted only once. The number is an upper bound.

use std::collections::{HashMap, HashSet};

use jsonschema::Draft;
use serde_json::Value as Json;

use super::FILE;

/// Schemas inside schemas and references after references on one way: the validator recurses as deep.
const DEPTH_MAX: usize = 2_000;

pub(super) enum Problem {
    TooMuch,
    /// The schema cannot be used, and why.
    Schema(String),
}

/// Makes references to the schema's own address references inside the file, and forgets the address.
pub(super) fn localize(schema: &mut Json) {
    let Some(root) = schema.as_object_mut() else { return };
    let id = ["$id", "id"].into_iter().filter_map(|key| match root.get(key) {
        Some(Json::String(_)) => root.remove(key),
        _ => None,
    });
    let ids: Vec<String> = id.filter_map(|id| id.as_str().map(|id| id.trim_end_matches('#').to_owned())).collect();
    if !ids.is_empty() {
        rewrite(schema, &ids);
    }
}

fn rewrite(value: &mut Json, ids: &[String]) {
    match value {
        Json::Object(map) => {
            if let Some(Json::String(target)) = map.get_mut("$ref")
                && let Some(rest) = ids.iter().find_map(|id| target.strip_prefix(id.as_str()))
                && (rest.is_empty() || rest.starts_with('#'))
            {
                *target = if rest.is_empty() { "#".to_owned() } else { rest.to_owned() };
            }
            map.values_mut().for_each(|inner| rewrite(inner, ids));
        }
        Json::Array(items) => items.iter_mut().for_each(|inner| rewrite(inner, ids)),
        _ => {}
    }
}

/// The number of checks, if it is at most `most`.
///
/// # Errors
/// There are more, a reference leads out of the file, nowhere or in a circle.
pub(super) fn count(schema: &Json, draft: Draft, document: &Json, most: u64) -> Result<u64, Problem> {
    let mut anchors: HashMap<&str, Vec<&Json>> = HashMap::new();
    find_anchors(schema, &mut anchors);
    let mut count = Count { root: schema, draft, anchors, most, known: HashMap::new(), open: HashSet::new() };
    let checks = count.pair(schema, document, 0)?;
    if checks > most { Err(Problem::TooMuch) } else { Ok(checks) }
}

fn find_anchors<'s>(value: &'s Json, anchors: &mut HashMap<&'s str, Vec<&'s Json>>) {
    match value {
        Json::Object(map) => {
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = map.get(key).and_then(Json::as_str) {
                    anchors.entry(name).or_default().push(value);
                }
            }
            map.values().for_each(|inner| find_anchors(inner, anchors));
        }
        Json::Array(items) => items.iter().for_each(|inner| find_anchors(inner, anchors)),
        _ => {}
    }
}

type Pair = (*const Json, *const Json);

struct Count<'s> {
    root: &'s Json,
    draft: Draft,
    anchors: HashMap<&'s str, Vec<&'s Json>>,
    most: u64,
    known: HashMap<Pair, u64>,
    /// Pairs that are being counted: meeting one again is a circle.
    open: HashSet<Pair>,
}

impl<'s> Count<'s> {
    fn pair(&mut self, schema: &'s Json, document: &Json, depth: usize) -> Result<u64, Problem> {
        let Json::Object(keywords) = schema else { return Ok(1) };
        let key = (std::ptr::from_ref(schema), std::ptr::from_ref(document));
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        if depth > DEPTH_MAX || self.known.len() as u64 > self.most {
            return Err(Problem::TooMuch);
        }
        if !self.open.insert(key) {
            return Err(Problem::Schema("references of the schema lead in a circle".into()));
        }
        let is_root = std::ptr::eq(schema, self.root);
        let identified = keywords.get("$id").or_else(|| keywords.get("id").filter(|_| self.draft == Draft::Draft4));
        if !is_root && identified.is_some_and(|id| id.as_str().is_some_and(|id| !id.starts_with('#'))) {
            return Err(Problem::Schema("a schema with an $id of its own inside another is not supported".into()));
        }
        let mut checks = keywords.len() as u64 + 1;
        let mut doubled = 1;
        for (keyword, value) in keywords {
            let more = match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Json::String(target)) => {
                    let mut sum = 0_u64;
                    for target in self.resolve(target)? {
                        sum = sum.saturating_add(self.pair(target, document, depth + 1)?);
                    }
                    sum
                }
                ("allOf", Json::Array(parts)) => self.all(parts.iter(), document, depth)?,
                // Whether a part holds is asked before what is wrong with it.
                ("anyOf" | "oneOf", Json::Array(parts)) => self.all(parts.iter(), document, depth)?.saturating_mul(2),
                ("not" | "if" | "then" | "else", part) => self.pair(part, document, depth + 1)?,
                ("dependentSchemas" | "dependencies", Json::Object(parts)) => {
                    self.all(parts.values(), document, depth)?
                }
                ("enum", Json::Array(options)) => options.len() as u64,
                ("unevaluatedProperties" | "unevaluatedItems", part) => {
                    // What other keywords have looked at is found out for each child.
                    doubled += children(document) as u64 + 1;
                    self.each(part, document, depth)?
                }
                _ => self.below(keyword, value, document, depth)?,
            };
            checks = checks.saturating_add(more);
        }
        let checks = checks.saturating_mul(doubled);
        if checks > self.most {
            return Err(Problem::TooMuch);
        }
        self.open.remove(&key);
        self.known.insert(key, checks);
        Ok(checks)
    }

    /// Keywords that look at what is inside the document.
    fn below(&mut self, keyword: &str, value: &'s Json, document: &Json, depth: usize) -> Result<u64, Problem> {
        let mut sum = 0_u64;
        match (keyword, value, document) {
            ("properties", Json::Object(parts), Json::Object(fields)) => {
                for (name, field) in fields {
                    if let Some(part) = parts.get(name) {
                        sum = sum.saturating_add(self.pair(part, field, depth + 1)?);
                    }
                }
            }
            ("patternProperties", Json::Object(parts), Json::Object(_)) => {
                for part in parts.values() {
                    sum = sum.saturating_add(self.each(part, document, depth)?);
                }
            }
            ("propertyNames", part, Json::Object(fields)) => {
                // A name is a text and has nothing inside.
                sum = self.pair(part, &Json::Null, depth + 1)?.saturating_mul(fields.len() as u64);
            }
            ("items" | "prefixItems", Json::Array(parts), Json::Array(items)) => {
                for (part, item) in parts.iter().zip(items) {
                    sum = sum.saturating_add(self.pair(part, item, depth + 1)?);
                }
            }
            ("additionalProperties", part, Json::Object(_))
            | ("items" | "additionalItems" | "contains", part, Json::Array(_)) => {
                sum = self.each(part, document, depth)?;
            }
            ("uniqueItems", _, Json::Array(items)) => sum = items.len() as u64,
            _ => {}
        }
        Ok(sum)
    }

    fn all(&mut self, parts: impl Iterator<Item = &'s Json>, document: &Json, depth: usize) -> Result<u64, Problem> {
        let mut sum = 0_u64;
        for part in parts {
            sum = sum.saturating_add(self.pair(part, document, depth + 1)?);
        }
        Ok(sum)
    }

    fn each(&mut self, part: &'s Json, document: &Json, depth: usize) -> Result<u64, Problem> {
        let mut sum = 0_u64;
        match document {
            Json::Object(fields) => {
                for field in fields.values() {
                    sum = sum.saturating_add(self.pair(part, field, depth + 1)?);
                }
            }
            Json::Array(items) => {
                for item in items {
                    sum = sum.saturating_add(self.pair(part, item, depth + 1)?);
                }
            }
            _ => {}
        }
        Ok(sum)
    }

    /// What a reference means. A dynamic one can mean several, and all of them count.
    fn resolve(&self, target: &str) -> Result<Vec<&'s Json>, Problem> {
        let Some(fragment) = target.strip_prefix('#') else {
            return Err(Problem::Schema(format!(
                "failing loading {}: references to other files and addresses are not followed",
                crate::gofmt::quote(target)
            )));
        };
        if fragment.is_empty() {
            return Ok(vec![self.root]);
        }
        let Some(fragment) = percent_decoded(fragment) else {
            return Err(Problem::Schema(format!("invalid reference {}", crate::gofmt::quote(target))));
        };
        if fragment.starts_with('/') {
            return match self.root.pointer(&fragment) {
                Some(found) => Ok(vec![found]),
                None => Err(Problem::Schema(format!("json-pointer in \"{FILE}#{fragment}\" not found"))),
            };
        }
        match self.anchors.get(fragment.as_str()) {
            Some(found) => Ok(found.clone()),
            None => Err(Problem::Schema(format!("anchor in \"{FILE}#{fragment}\" not found"))),
        }
    }
}

fn children(document: &Json) -> usize {
    match document {
        Json::Object(fields) => fields.len(),
        Json::Array(items) => items.len(),
        _ => 0,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}
