//! Fields that another manager has: taken or left, one by one, by whoever may decide.
//!
//! An author may leave fields of an object to others (`packages.deckhouse.io/yield-fields` on the object); only the
//! operator, in `packages.deckhouse.io/field-conflicts` on the `Application`, may take them. A replica count that a
//! HorizontalPodAutoscaler of the release looks after is left to it. Everything else is a conflict that is told.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Directives, ReleaseObject};
use crate::event::Failure;
use crate::identity::ObjectRef;

/// Rules in one annotation.
const RULES_MAX: usize = 200;

/// What is done about a field that another manager has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settlement {
    /// The release sets it, and owns it from then on.
    Take,
    /// The release no longer sets it.
    Yield,
}

/// What is done about a field of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `Kind/name`, or `Kind.group/name`.
    pub object: String,
    /// Path of the field as the conflict names it, `.spec.replicas`; everything below it is meant too.
    pub field: String,
    /// What is done.
    #[serde(rename = "do")]
    pub settlement: Settlement,
}

/// Rules that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field conflicts: {why}")]
pub struct BadRules {
    why: String,
}

impl BadRules {
    /// What would be right.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        r#"write a list such as [{object: Deployment/web, field: .spec.replicas, do: yield}]; do is take or yield"#
    }
}

/// Reads rules from the text of an annotation; an empty one has none.
///
/// # Errors
/// What is wrong with it.
pub fn read(text: &str) -> Result<Vec<Rule>, Failure> {
    let bad = |message: String, hint: &str| Failure::new("BadFieldConflicts", message).hint(hint.to_owned());
    let document: Value = match text.trim() {
        "" => Value::Null,
        text => serde_saphyr::from_str(text).map_err(|error| bad(error.to_string(), "write a YAML list"))?,
    };
    rules(&document).map_err(|error| bad(error.to_string(), error.hint()))
}

/// Reads rules from the document of the operator.
///
/// # Errors
/// What is wrong with it.
pub fn rules(document: &Value) -> Result<Vec<Rule>, BadRules> {
    if document.is_null() {
        return Ok(Vec::new());
    }
    let rules: Vec<Rule> =
        serde_json::from_value(document.clone()).map_err(|error| BadRules { why: error.to_string() })?;
    if rules.len() > RULES_MAX {
        return Err(BadRules { why: format!("there are {}, and {RULES_MAX} are possible", rules.len()) });
    }
    for (index, rule) in rules.iter().enumerate() {
        let bad = |why: &str| Err(BadRules { why: format!("rule {}: {why}", index + 1) });
        if rule.object.split_once('/').is_none_or(|(kind, name)| kind.is_empty() || name.is_empty()) {
            return bad(&format!("object {:?} is not Kind/name", rule.object));
        }
        if !rule.field.starts_with('.') || rule.field.len() < 2 {
            return bad(&format!("field {:?} does not begin with a dot and a name", rule.field));
        }
    }
    Ok(rules)
}

/// The rules that the objects of a release bring themselves.
#[must_use]
pub fn own_rules(objects: &[ReleaseObject]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for ReleaseObject { target, object, .. } in objects {
        for field in Directives::of(object).yields {
            let object = format!("{}/{}", qualified_kind(target), target.name);
            rules.push(Rule { object, field, settlement: Settlement::Yield });
        }
        if target.gvk.kind == "HorizontalPodAutoscaler" {
            let text = |field: &str| object.pointer(&format!("/spec/scaleTargetRef/{field}")).and_then(Value::as_str);
            if let (Some(kind), Some(name)) = (text("kind"), text("name")) {
                let (object, field) = (format!("{kind}/{name}"), ".spec.replicas".to_owned());
                rules.push(Rule { object, field, settlement: Settlement::Yield });
            }
        }
    }
    rules
}

fn qualified_kind(target: &ObjectRef) -> String {
    match target.gvk.group.as_str() {
        "" => target.gvk.kind.clone(),
        group => format!("{}.{group}", target.gvk.kind),
    }
}

impl Rule {
    fn is_about(&self, target: &ObjectRef, field: &str) -> bool {
        let Some((kind, name)) = self.object.split_once('/') else { return false };
        let same = name == target.name && (kind == target.gvk.kind || kind == qualified_kind(target));
        let rest = field.strip_prefix(self.field.trim_end_matches('.'));
        same && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// How the conflicts of an object are settled.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// Apply this instead.
    Retry {
        /// The object without what is left to others.
        object: Value,
        /// Take the fields that still conflict. What is left to others is not among them.
        force: bool,
    },
    /// These fields, by their place in the list that was given, have no rule, or cannot be found in the object.
    Open(Vec<usize>),
}

/// Settles the conflicts of an object: `fields` are the paths that the API server named. The first rule that is about a
/// field counts; `rules` of the operator come before [`own_rules`].
#[must_use]
pub fn settle(target: &ObjectRef, object: &Value, fields: &[&str], rules: &[Rule]) -> Settled {
    let mut object = object.clone();
    let mut force = false;
    let mut open = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        match rules.iter().find(|rule| rule.is_about(target, field)).map(|rule| rule.settlement) {
            Some(Settlement::Take) => force = true,
            Some(Settlement::Yield) if remove(&mut object, field) => {}
            _ => open.push(index),
        }
    }
    if open.is_empty() { Settled::Retry { object, force } } else { Settled::Open(open) }
}

/// Removes the field of a path such as `.spec.containers[name="main"].image` or `.metadata.labels.app.kubernetes.io/name`.
fn remove(value: &mut Value, path: &str) -> bool {
    if let Some(rest) = path.strip_prefix('[') {
        let Some((key, rest)) = split_key(rest) else { return false };
        let Value::Array(items) = value else { return false };
        let found = match &key {
            Key::Fields(fields) => items
                .iter()
                .position(|item| fields.iter().all(|(name, wanted)| item.get(name).is_some_and(|got| got == wanted))),
            Key::Value(wanted) => items.iter().position(|item| item == wanted),
            Key::Index(index) => (*index < items.len()).then_some(*index),
        };
        let Some(index) = found else { return false };
        if rest.is_empty() {
            items.remove(index);
            return true;
        }
        return items.get_mut(index).is_some_and(|item| remove(item, rest));
    }
    let (Some(rest), Value::Object(map)) = (path.strip_prefix('.'), value) else { return false };
    // A key may have dots in it: the longest that the object has is meant.
    let starts = |key: &str| rest.strip_prefix(key).is_some_and(|tail| tail.is_empty() || tail.starts_with(['.', '[']));
    let Some(key) = map.keys().filter(|key| starts(key)).max_by_key(|key| key.len()).cloned() else { return false };
    let tail = rest.strip_prefix(key.as_str()).unwrap_or_default();
    if tail.is_empty() {
        return map.remove(&key).is_some();
    }
    map.get_mut(&key).is_some_and(|inner| remove(inner, tail))
}

enum Key {
    Fields(Vec<(String, Value)>),
    Value(Value),
    Index(usize),
}

/// Splits `name="main",port=80].image` into the key and `.image`.
fn split_key(text: &str) -> Option<(Key, &str)> {
    let end = closing(text)?;
    let (inside, rest) = (text.get(..end)?, text.get(end + 1..)?);
    if let Some(value) = inside.strip_prefix('=') {
        return Some((Key::Value(serde_json::from_str(value).ok()?), rest));
    }
    if let Ok(index) = inside.parse() {
        return Some((Key::Index(index), rest));
    }
    let mut fields = Vec::new();
    for part in parts(inside) {
        let (name, value) = part.split_once('=')?;
        fields.push((name.trim().to_owned(), serde_json::from_str(value).ok()?));
    }
    (!fields.is_empty()).then_some((Key::Fields(fields), rest))
}

/// Place of the bracket that closes a key; brackets in quoted text do not count.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The parts between commas that are not quoted.
fn parts(text: &str) -> Vec<&str> {
    let (mut quoted, mut escaped, mut begin) = (false, false, 0);
    let mut parts = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                parts.extend(text.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(begin..));
    parts
}

#[cfg(test)]
mod tests;
