//! Programs that only pick fields: `.a.b`, `.a["x"]`, and objects and arrays of these.
//!
//! They are most of all filters, cannot loop, and need no evaluator: one pass over the text keeps what is asked for and
//! skips the rest. Whatever is not plain sailing (a number with a fraction, a field of something that is no object, text
//! that is no JSON) is left to the evaluator, so that there is one place that knows what jq means.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Nested objects and arrays of a program. More than anybody writes, and little enough for the stack.
const DEPTH_MAX: usize = 16;

/// What a program makes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    form: Form,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    /// The value at a path.
    At(Vec<String>),
    Object(BTreeMap<String, Self>),
    Array(Vec<Self>),
}

/// Which parts of a text are needed.
#[derive(Debug, Clone, Default, PartialEq)]
struct Wanted {
    /// All of it.
    whole: bool,
    fields: BTreeMap<String, Self>,
}

impl Shape {
    /// The shape of a program, if it is one of these. Says nothing about programs that are wrong.
    pub(super) fn of(program: &str) -> Option<Self> {
        let mut parser = Parser { rest: program };
        let form = parser.pipe()?;
        parser.space();
        if !parser.rest.is_empty() {
            return None;
        }
        let mut wanted = Wanted::default();
        form.want(&mut wanted);
        Some(Self { form, wanted })
    }

    /// What the program gives; `None` if the evaluator must be asked.
    pub(super) fn apply(&self, text: &str) -> Option<Vec<u8>> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let kept = self.wanted.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        let made = self.form.make(&kept)?;
        serde_json::to_vec(&made).ok()
    }
}

impl Form {
    fn want(&self, wanted: &mut Wanted) {
        match self {
            Self::At(path) => {
                path.iter().fold(wanted, |at, key| at.fields.entry(key.clone()).or_default()).whole = true
            }
            Self::Object(entries) => entries.values().for_each(|form| form.want(wanted)),
            Self::Array(items) => items.iter().for_each(|form| form.want(wanted)),
        }
    }

    fn has_path(&self) -> bool {
        match self {
            Self::At(_) => true,
            Self::Object(entries) => entries.values().any(Self::has_path),
            Self::Array(items) => items.iter().any(Self::has_path),
        }
    }

    /// The same of what is at a path.
    fn below(self, path: &[String]) -> Self {
        match self {
            Self::At(rest) => Self::At(path.iter().cloned().chain(rest).collect()),
            Self::Object(entries) => {
                Self::Object(entries.into_iter().map(|(key, form)| (key, form.below(path))).collect())
            }
            Self::Array(items) => Self::Array(items.into_iter().map(|form| form.below(path)).collect()),
        }
    }

    fn make<'a>(&self, kept: &'a Kept) -> Option<Made<'a>> {
        Some(match self {
            Self::At(path) => Made::Value(path.iter().try_fold(kept, |at, key| match at {
                Kept::Null => Some(at),
                Kept::Object(entries) => Some(entries.get(key).unwrap_or(&Kept::Null)),
                _ => None,
            })?),
            Self::Object(entries) => Made::Object(
                entries.iter().map(|(key, form)| Some((key.clone(), form.make(kept)?))).collect::<Option<_>>()?,
            ),
            Self::Array(items) => Made::Array(items.iter().map(|form| form.make(kept)).collect::<Option<_>>()?),
        })
    }
}

/// What is kept of a text.
#[derive(Debug)]
enum Kept {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

enum Made<'a> {
    Value(&'a Kept),
    Object(BTreeMap<String, Self>),
    Array(Vec<Self>),
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Int(int) => serializer.serialize_i64(*int),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(entries) => serializer.collect_map(entries),
        }
    }
}

impl Serialize for Made<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(kept) => kept.serialize(serializer),
            Self::Object(entries) => serializer.collect_map(entries),
            Self::Array(items) => serializer.collect_seq(items),
        }
    }
}

/// Everything below a wanted value is wanted.
static WHOLE: Wanted = Wanted { whole: true, fields: BTreeMap::new() };

impl<'de> DeserializeSeed<'de> for &Wanted {
    type Value = Kept;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Kept, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Wanted {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what the evaluator need not be asked about")
    }

    fn visit_unit<E>(self) -> Result<Kept, E> {
        Ok(Kept::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Kept, E> {
        Ok(Kept::Bool(bool))
    }

    fn visit_i64<E>(self, int: i64) -> Result<Kept, E> {
        Ok(Kept::Int(int))
    }

    fn visit_u64<E: serde::de::Error>(self, int: u64) -> Result<Kept, E> {
        i64::try_from(int).map(Kept::Int).map_err(|_| E::custom("a large number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Kept, E> {
        Ok(Kept::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Kept, E> {
        Ok(Kept::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kept, A::Error> {
        if !self.whole {
            return Err(A::Error::custom("an array where an object was asked for"));
        }
        let mut kept = Vec::new();
        while let Some(item) = items.next_element_seed(&WHOLE)? {
            kept.push(item);
        }
        Ok(Kept::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Kept, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some(key) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            let wanted = if self.whole { Some(&WHOLE) } else { self.fields.get(&*key) };
            match wanted {
                Some(wanted) => {
                    let value = entries.next_value_seed(wanted)?;
                    kept.insert(key.into_owned(), value);
                }
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Kept::Object(kept))
    }
}

/// Reads the little of jq that is known here.
struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn eat(&mut self, sign: char) -> bool {
        self.space();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Paths one after the other; the last may be an object or array.
    fn pipe(&mut self) -> Option<Form> {
        let mut form = self.form(0)?;
        while self.eat('|') {
            let next = self.form(0)?;
            match form {
                // Without a path in what follows, nothing would try this one.
                Form::At(path) if next.has_path() => form = next.below(&path),
                _ => return None,
            }
        }
        Some(form)
    }

    fn form(&mut self, depth: usize) -> Option<Form> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.eat('{') {
            return self.object(depth);
        }
        if self.eat('[') {
            let mut items = Vec::new();
            if self.eat(']') {
                return Some(Form::Array(items));
            }
            loop {
                items.push(self.form(depth + 1)?);
                if self.eat(']') {
                    return Some(Form::Array(items));
                }
                if !self.eat(',') {
                    return None;
                }
            }
        }
        self.path().map(Form::At)
    }

    fn object(&mut self, depth: usize) -> Option<Form> {
        let mut entries = BTreeMap::new();
        if self.eat('}') {
            return Some(Form::Object(entries));
        }
        loop {
            let key = self.key()?;
            let form = if self.eat(':') { self.form(depth + 1)? } else { Form::At(vec![key.clone()]) };
            // A key that is written twice is not plain: what the first gives would still have to be tried.
            if entries.insert(key, form).is_some() {
                return None;
            }
            if self.eat('}') {
                return Some(Form::Object(entries));
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    fn path(&mut self) -> Option<Vec<String>> {
        let mut path = Vec::new();
        self.space();
        self.rest = self.rest.strip_prefix('.')?;
        // What follows the first dot may be nothing, a name, a string or a bracket.
        if let Some(key) = self.name().or_else(|| self.string()) {
            path.push(key);
        }
        loop {
            if let Some(rest) = self.rest.strip_prefix('[') {
                self.rest = rest;
                self.space();
                path.push(self.string()?);
                if !self.eat(']') {
                    return None;
                }
            } else if let Some(rest) = self.rest.strip_prefix('.') {
                if path.is_empty() {
                    return None;
                }
                self.rest = rest;
                if self.rest.starts_with('[') {
                    continue;
                }
                path.push(self.name().or_else(|| self.string())?);
            } else {
                return Some(path);
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        self.space();
        self.name().or_else(|| self.string())
    }

    fn name(&mut self) -> Option<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        // `a::b` is a name of a module.
        if name.is_empty() || rest.starts_with("::") {
            return None;
        }
        self.rest = rest;
        Some(name.to_owned())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<String> {
        let inside = self.rest.strip_prefix('"')?;
        let end = inside.find(['"', '\\'])?;
        let (text, rest) = inside.split_at(end);
        self.rest = rest.strip_prefix('"')?;
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests;
