//! Sets of paths in the form of `fieldsV1`.
//!
//! A path element is kept in its canonical text (`f:name`, `k:{"a":1}`, `v:"x"`, `i:3`), so that sorting the text sorts
//! the elements and writing `fieldsV1` needs no conversion.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::{Kind, Type};

/// A set of paths. An element can be a member (owned itself), have children, or both.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Set {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Entry {
    member: bool,
    children: Set,
}

/// Deepest `fieldsV1` that is read. Objects are not deeper than JSON parsing allows (128).
const DEPTH_MAX: usize = 128;

pub(crate) fn field(name: &str) -> String {
    format!("f:{name}")
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts the path itself. The empty path (the root) is never a member.
    pub(crate) fn insert(&mut self, path: &[String]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut here = self;
        for element in parents {
            here = &mut here.entries.entry(element.clone()).or_default().children;
        }
        here.entries.entry(last.clone()).or_default().member = true;
    }

    /// Removes a top-level element with all below it.
    pub(crate) fn cut(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        if rest.is_empty() {
            self.entries.remove(*first);
        } else if let Some(entry) = self.entries.get_mut(*first) {
            entry.children.cut(rest);
            if !entry.member && entry.children.is_empty() {
                self.entries.remove(*first);
            }
        }
    }

    pub(crate) fn has(&self, element: &str) -> bool {
        self.entries.get(element).is_some_and(|entry| entry.member)
    }

    pub(crate) fn children(&self, element: &str) -> Option<&Self> {
        self.entries.get(element).map(|entry| &entry.children).filter(|children| !children.is_empty())
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.extend(other);
        out
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        for (key, entry) in &other.entries {
            let here = self.entries.entry(key.clone()).or_default();
            here.member |= entry.member;
            here.children.extend(&entry.children);
        }
    }

    /// Members of this set that are not members of the other.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && !theirs, true)
    }

    /// Members of both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs, false)
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool, keep_alone: bool) -> Self {
        let mut out = Self::default();
        for (key, entry) in &self.entries {
            let combined = match other.entries.get(key) {
                Some(theirs) => Entry {
                    member: keep(entry.member, theirs.member),
                    children: entry.children.combine(&theirs.children, keep, keep_alone),
                },
                None if keep_alone => entry.clone(),
                None => continue,
            };
            if combined.member || !combined.children.is_empty() {
                out.entries.insert(key.clone(), combined);
            }
        }
        out
    }

    /// Makes every parent that is a declared field a member, so that removing all leaves of a struct removes the struct,
    /// whereas an emptied map stays.
    pub(crate) fn ensure_named_fields_are_members(&self, ty: Type<'_>) -> Self {
        let mut out = Self::default();
        for (key, entry) in &self.entries {
            let (declared, child) = match (key.strip_prefix("f:"), ty.kind()) {
                (Some(name), _) => (ty.field(name).is_some(), ty.child(name)),
                (None, Kind::List { .. }) => (false, Some(ty.element())),
                (None, _) => (false, None),
            };
            let children = match child {
                Some(child) => entry.children.ensure_named_fields_are_members(child),
                None => entry.children.clone(),
            };
            let member = entry.member || (declared && !children.is_empty());
            out.entries.insert(key.clone(), Entry { member, children });
        }
        out
    }

    /// Every member as a path in the notation of error messages: `.spec.containers[name="a"].image`. The members of a
    /// level come before what is below them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect(&mut String::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut String, out: &mut Vec<String>) {
        let members = self.entries.iter().filter(|(_, entry)| entry.member);
        out.extend(members.map(|(key, _)| format!("{prefix}{}", shown(key))));
        for (key, entry) in &self.entries {
            let length = prefix.len();
            prefix.push_str(&shown(key));
            entry.children.collect(prefix, out);
            prefix.truncate(length);
        }
    }

    pub(crate) fn to_fields(&self) -> Value {
        let mut map = Map::new();
        for (key, entry) in &self.entries {
            let mut children = entry.children.to_fields();
            if entry.member
                && !entry.children.is_empty()
                && let Some(children) = children.as_object_mut()
            {
                children.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(key.clone(), children);
        }
        Value::Object(map)
    }

    /// Reads `fieldsV1`. Elements with an unknown prefix are dropped; something that is not an object is `None`.
    pub(crate) fn from_fields(fields: &Value) -> Option<Self> {
        Self::read(fields, 0)
    }

    fn read(fields: &Value, depth: usize) -> Option<Self> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut out = Self::default();
        for (key, value) in fields.as_object()? {
            let Some(element) = canonical(key) else { continue };
            let children = Self::read(value, depth + 1)?;
            let member = children.is_empty() || value.get(".").is_some();
            let entry = out.entries.entry(element).or_default();
            entry.member |= member;
            entry.children.extend(&children);
        }
        Some(out)
    }
}

/// The canonical text of an element that a client wrote.
fn canonical(key: &str) -> Option<String> {
    let (prefix, rest) = key.split_once(':')?;
    match prefix {
        "f" => Some(key.to_owned()),
        "k" | "v" => Some(format!("{prefix}:{}", serde_json::from_str::<Value>(rest).ok()?)),
        "i" => Some(format!("i:{}", rest.parse::<u64>().ok()?)),
        _ => None,
    }
}

pub(super) fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys = serde_json::from_str::<Map<String, Value>>(keys).unwrap_or_default();
            let pairs = keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
            format!("[{}]", pairs.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some(("i", index)) => format!("[{index}]"),
        _ => element.to_owned(),
    }
}
