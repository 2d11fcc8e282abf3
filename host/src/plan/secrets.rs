//! What must not be shown: the contents of Secrets, what annotations call sensitive, and wherever else these texts turn up.
//!
//! A secret is replaced by a word that is the same for every secret, and by two words where it changes. A digest would
//! tell more than that: whoever reads a plan could try out passwords against it.
//!
//! Secrets travel: a hook makes a password, puts it into the values, and a template puts it into a Secret. So the texts
//! of everything sensitive are learnt first, and then masked in all other documents, messages and log lines too.

use std::collections::BTreeSet;

use barbless_domain::release::Directives;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub(crate) mod told;

/// In place of a secret.
const REDACTED: &str = "(redacted)";
/// In place of a secret that changes.
const BEFORE: &str = "(redacted: before)";
/// In place of what it changes to.
const AFTER: &str = "(redacted: after)";
/// Shorter texts are not looked for elsewhere: `true` or `5432` in a Secret would mask half of a plan.
const LEARNT_BYTES_MIN: usize = 8;
/// What stands where the sandbox cut a text of a guest: a secret may begin before it.
const CUT: &str = "… [cut]";
/// Secrets that are looked for elsewhere.
const LEARNT_MAX: usize = 5_000;
/// Fields of documents that are no objects whose names say that they are secret.
const SECRET_NAMES: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "secretkey",
    "apikey",
    "privatekey",
    "accesskey",
    "credentials",
];

/// Masks what is secret.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    shown: bool,
    /// Longest first, so that a secret inside of another does not leave its rest behind.
    learnt: Vec<String>,
}

impl Secrets {
    /// Masks nothing: somebody asked for it by name.
    #[must_use]
    pub(crate) fn shown() -> Self {
        Self { shown: true, learnt: Vec::new() }
    }

    /// Learns the secret texts of objects, and of settings and values.
    #[must_use]
    pub(crate) fn of<'a>(
        objects: impl IntoIterator<Item = &'a Value>,
        documents: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut texts = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut learn = |text: &str| {
            forms(text, &mut |form| {
                texts.insert(form.to_owned());
            });
        };
        for object in objects {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            names.extend(name.map(str::to_owned));
            places(object).iter().for_each(|place| place.read(object, &mut learn));
        }
        documents.into_iter().for_each(|document| Place::SecretNames.read(document, &mut learn));
        // A user or a database is often called as the application is: masked, no name would be left in the plan.
        texts.retain(|text| !names.iter().any(|name| name.contains(text.as_str())));
        Self { shown: false, learnt: longest_first(texts) }
    }

    /// Learns further texts, see [`told`].
    #[must_use]
    pub(crate) fn with<'a>(mut self, texts: impl IntoIterator<Item = &'a String>) -> Self {
        if !self.shown {
            let mut learnt: BTreeSet<String> = self.learnt.drain(..).collect();
            learnt.extend(texts.into_iter().cloned());
            self.learnt = longest_first(learnt);
        }
        self
    }

    /// Two versions of an object, ready to be shown.
    #[must_use]
    pub(crate) fn mask_objects(&self, before: Option<&Value>, after: Option<&Value>) -> (Option<Value>, Option<Value>) {
        let places: Vec<Place> = [before, after].into_iter().flatten().flat_map(places).collect();
        self.mask(before, after, &places)
    }

    /// Two versions of settings or values, ready to be shown.
    #[must_use]
    pub(crate) fn mask_documents(
        &self,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> (Option<Value>, Option<Value>) {
        self.mask(before, after, &[Place::SecretNames])
    }

    /// A message or a log line, ready to be shown.
    #[must_use]
    pub(crate) fn mask_text(&self, text: &str) -> String {
        if self.shown {
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for secret in &self.learnt {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        if text.contains(CUT) { self.mask_beginnings(&text) } else { text }
    }

    /// Masks what is left of secrets in which a text was cut.
    fn mask_beginnings(&self, text: &str) -> String {
        let parts: Vec<&str> = text.split(CUT).collect();
        let last = parts.len().saturating_sub(1);
        let masked = parts.iter().enumerate().map(|(index, part)| {
            let at = self.learnt.iter().filter_map(|secret| told::beginning(part, secret)).min();
            match at.and_then(|at| part.get(..at)) {
                Some(rest) if index < last => format!("{rest}{REDACTED}"),
                _ => (*part).to_owned(),
            }
        });
        masked.collect::<Vec<_>>().join(CUT)
    }

    fn mask(&self, before: Option<&Value>, after: Option<&Value>, places: &[Place]) -> (Option<Value>, Option<Value>) {
        let (old, new) = (before.cloned(), after.cloned());
        if self.shown {
            return (old, new);
        }
        let masked = |document: Option<Value>| {
            document.map(|mut document| {
                for place in places {
                    place.visit(&mut document, &mut |leaf| *leaf = Value::String(REDACTED.to_owned()));
                }
                self.mask_elsewhere(&mut document);
                document
            })
        };
        let (mut masked_old, mut masked_new) = (masked(old), masked(new));
        if let (Some(before), Some(after), Some(old), Some(new)) = (before, after, &mut masked_old, &mut masked_new) {
            tell_apart(before, after, old, new);
        }
        (masked_old, masked_new)
    }

    fn mask_elsewhere(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                let named = map.keys().any(|key| self.learnt.iter().any(|secret| key.contains(secret.as_str())));
                if named {
                    let entries = std::mem::take(map);
                    map.extend(entries.into_iter().map(|(key, value)| (self.mask_text(&key), value)));
                }
                map.values_mut().for_each(|value| self.mask_elsewhere(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_elsewhere(item)),
            Value::String(text) if text != REDACTED => *text = self.mask_text(text),
            _ => {}
        }
    }
}

/// Secrets that differ must not look the same.
fn tell_apart(before: &Value, after: &Value, old: &mut Value, new: &mut Value) {
    if before == after {
        return;
    }
    match (before, after, &mut *old, &mut *new) {
        (Value::Object(before), Value::Object(after), Value::Object(old), Value::Object(new)) => {
            for (key, before) in before {
                if let (Some(after), Some(old), Some(new)) = (after.get(key), old.get_mut(key), new.get_mut(key)) {
                    tell_apart(before, after, old, new);
                }
            }
        }
        (Value::Array(before), Value::Array(after), Value::Array(old), Value::Array(new)) => {
            for (((before, after), old), new) in before.iter().zip(after).zip(old).zip(new) {
                tell_apart(before, after, old, new);
            }
        }
        (_, _, Value::String(old), Value::String(new)) if old == new => {
            *old = old.replace(REDACTED, BEFORE);
            *new = new.replace(REDACTED, AFTER);
        }
        _ => {}
    }
}

/// The longest first, and not too many.
fn longest_first(texts: BTreeSet<String>) -> Vec<String> {
    let mut learnt: Vec<String> = texts.into_iter().collect();
    learnt.sort_by_key(|text| std::cmp::Reverse(text.len()));
    learnt.truncate(LEARNT_MAX);
    learnt
}

/// The forms in which a secret turns up elsewhere: as it stands, line by line, inside of a JSON text, and all of this
/// for what it is the base64 of.
fn forms(text: &str, act: &mut dyn FnMut(&str)) {
    let mut plain = |text: &str| {
        // Text of many lines is shown line by line in other documents.
        for part in text.lines().map(str::trim).chain([text]) {
            if part.len() < LEARNT_BYTES_MIN {
                continue;
            }
            act(part);
            if part.bytes().any(|byte| matches!(byte, b'"' | b'\\') || byte.is_ascii_control()) {
                let quoted = Value::String(part.to_owned()).to_string();
                act(quoted.get(1..quoted.len() - 1).unwrap_or(part));
            }
        }
    };
    plain(text);
    if let Some(decoded) = STANDARD.decode(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        plain(&decoded);
    }
}

/// Where in a document secrets are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Everything but what says which object it is.
    Contents,
    /// At the end of a path.
    Path(Vec<Segment>),
    /// In fields whose names say so.
    SecretNames,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Key(String),
    Index(usize),
    All,
}

/// The secret places of an object.
fn places(object: &Value) -> Vec<Place> {
    let directives = Directives::of(object);
    let is_secret = object.get("kind").and_then(Value::as_str) == Some("Secret");
    let mut places: Vec<Place> = directives.sensitive_paths.iter().map(|path| parse(path)).collect();
    if directives.is_sensitive(object) {
        match is_secret {
            true => {
                places.extend(["data", "stringData"].map(|field| Place::Path(vec![Segment::Key(field.to_owned())])))
            }
            false => places.push(Place::Contents),
        }
    }
    places
}

/// A JSONPath of the plain kind: `$.spec.list[*].field`, `$['data']['a.b']`. Of what is not understood, everything is
/// secret.
fn parse(path: &str) -> Place {
    fn segments(mut rest: &str) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let quote = tail.chars().next().filter(|c| matches!(c, '\'' | '"'));
                let (inside, tail) = match quote {
                    Some(quote) => {
                        let (inside, tail) = tail.get(1..)?.split_once(quote)?;
                        segments.push(Segment::Key(inside.to_owned()));
                        (None, tail.strip_prefix(']')?)
                    }
                    None => tail.split_once(']').map(|(inside, tail)| (Some(inside), tail))?,
                };
                match inside {
                    Some("*") => segments.push(Segment::All),
                    Some(index) => segments.push(Segment::Index(index.trim().parse().ok()?)),
                    None => {}
                }
                rest = tail;
                continue;
            }
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            let (name, tail) = (tail.get(..end)?, tail.get(end..)?);
            match name {
                "" => return None,
                "*" => segments.push(Segment::All),
                name => segments.push(Segment::Key(name.to_owned())),
            }
            rest = tail;
        }
        Some(segments)
    }
    match path.strip_prefix('$').and_then(segments) {
        Some(segments) if !segments.is_empty() => Place::Path(segments),
        _ => Place::Contents,
    }
}

impl Place {
    /// Looks at every text that is there.
    fn read(&self, document: &Value, act: &mut dyn FnMut(&str)) {
        match self {
            Self::Contents => {
                let contents = document.as_object().into_iter().flatten();
                contents.filter(|(key, _)| !is_identity(key)).for_each(|(_, value)| texts(value, act));
            }
            Self::Path(segments) => texts_along(document, segments, act),
            Self::SecretNames => named_texts(document, act),
        }
    }

    fn visit(&self, document: &mut Value, act: &mut dyn FnMut(&mut Value)) {
        match self {
            Self::Contents => {
                let Some(map) = document.as_object_mut() else { return };
                let contents = map.iter_mut().filter(|(key, _)| !is_identity(key));
                contents.for_each(|(_, value)| leaves(value, act));
            }
            Self::Path(segments) => along(document, segments, act),
            Self::SecretNames => named(document, act),
        }
    }
}

/// Whether a field says which object it is.
fn is_identity(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn texts(value: &Value, act: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => map.values().for_each(|value| texts(value, act)),
        Value::Array(items) => items.iter().for_each(|value| texts(value, act)),
        Value::String(text) => act(text),
        _ => {}
    }
}

fn texts_along(value: &Value, path: &[Segment], act: &mut dyn FnMut(&str)) {
    let Some((first, rest)) = path.split_first() else { return texts(value, act) };
    match (first, value) {
        (Segment::Key(key), Value::Object(map)) => {
            map.get(key).into_iter().for_each(|value| texts_along(value, rest, act));
        }
        (Segment::Index(index), Value::Array(items)) => {
            items.get(*index).into_iter().for_each(|value| texts_along(value, rest, act));
        }
        (Segment::All, Value::Object(map)) => map.values().for_each(|value| texts_along(value, rest, act)),
        (Segment::All, Value::Array(items)) => items.iter().for_each(|value| texts_along(value, rest, act)),
        _ => {}
    }
}

fn named_texts(value: &Value, act: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| match value {
            Value::String(text) if is_secret_name(key) => act(text),
            value => named_texts(value, act),
        }),
        Value::Array(items) => items.iter().for_each(|item| named_texts(item, act)),
        _ => {}
    }
}

fn along(value: &mut Value, path: &[Segment], act: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return leaves(value, act) };
    match (first, value) {
        (Segment::Key(key), Value::Object(map)) => {
            if let Some(value) = map.get_mut(key) {
                along(value, rest, act);
            }
        }
        (Segment::Index(index), Value::Array(items)) => {
            if let Some(value) = items.get_mut(*index) {
                along(value, rest, act);
            }
        }
        (Segment::All, Value::Object(map)) => map.values_mut().for_each(|value| along(value, rest, act)),
        (Segment::All, Value::Array(items)) => items.iter_mut().for_each(|value| along(value, rest, act)),
        _ => {}
    }
}

fn leaves(value: &mut Value, act: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| leaves(value, act)),
        Value::Array(items) => items.iter_mut().for_each(|value| leaves(value, act)),
        Value::Null => {}
        leaf => act(leaf),
    }
}

fn named(value: &mut Value, act: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Object(map) => named_in(map, act),
        Value::Array(items) => items.iter_mut().for_each(|value| named(value, act)),
        _ => {}
    }
}

fn named_in(map: &mut Map<String, Value>, act: &mut dyn FnMut(&mut Value)) {
    for (key, value) in map {
        match value {
            Value::String(_) | Value::Number(_) if is_secret_name(key) => act(value),
            value => named(value, act),
        }
    }
}

/// Whether the name of a field says that it is secret.
fn is_secret_name(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    SECRET_NAMES.iter().any(|name| plain.ends_with(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(password: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
               "data": {"password": STANDARD.encode(password), "port": STANDARD.encode("5432")}})
    }

    #[test]
    fn a_secret_shows_only_whether_it_changes() {
        let (old, new) = (secret("correct horse"), secret("battery staple"));
        let secrets = Secrets::of([&old, &new], []);
        let (before, after) = secrets.mask_objects(Some(&old), Some(&new));
        assert_eq!(before.unwrap()["data"], json!({"password": BEFORE, "port": REDACTED}));
        assert_eq!(after.unwrap()["data"], json!({"password": AFTER, "port": REDACTED}));
        let (_, created) = secrets.mask_objects(None, Some(&new));
        assert_eq!(created.unwrap()["data"], json!({"password": REDACTED, "port": REDACTED}));
    }

    #[test]
    fn a_secret_that_travels_is_masked_everywhere() {
        let secrets = Secrets::of([&secret("correct horse")], []);
        let url = json!({"kind": "ConfigMap", "data": {"url": "db://app:correct horse@db:5432"}});
        let (_, shown) = secrets.mask_objects(None, Some(&url));
        assert_eq!(shown.unwrap()["data"]["url"], "db://app:(redacted)@db:5432");
        let (_, shown) = secrets.mask_documents(None, Some(&json!({"internal": {"made": "correct horse"}})));
        assert_eq!(shown.unwrap(), json!({"internal": {"made": REDACTED}}));
        assert_eq!(secrets.mask_text("made correct horse"), "made (redacted)");
        let encoded = STANDARD.encode("correct horse");
        assert_eq!(secrets.mask_text(&format!("data {encoded}")), "data (redacted)");
    }

    #[test]
    fn a_change_of_a_secret_that_travels_is_seen() {
        let secrets = Secrets::of([&secret("correct horse"), &secret("battery staple")], []);
        let of = |text: &str| json!({"kind": "ConfigMap", "data": {"url": format!("app:{text}@db")}});
        let (before, after) = secrets.mask_objects(Some(&of("correct horse")), Some(&of("battery staple")));
        assert_eq!(before.unwrap()["data"]["url"], "app:(redacted: before)@db");
        assert_eq!(after.unwrap()["data"]["url"], "app:(redacted: after)@db");
    }

    #[test]
    fn values_with_secret_names_are_masked_although_no_object_has_them() {
        let values = json!({"adminPassword": "hunter2", "token": 5, "secretName": "db", "nested": [{"api-key": "k"}],
                            "secret": {"name": "db", "passphrase": "p"}});
        let (_, shown) = Secrets::default().mask_documents(None, Some(&values));
        let expected = json!({"adminPassword": REDACTED, "token": REDACTED, "secretName": "db",
                              "nested": [{"api-key": REDACTED}], "secret": {"name": "db", "passphrase": REDACTED}});
        assert_eq!(shown.unwrap(), expected);
    }

    #[test]
    fn annotations_say_what_is_sensitive() {
        let object = |annotations: Value| {
            json!({"kind": "ConfigMap", "metadata": {"name": "a", "annotations": annotations},
                   "data": {"a": "secret number one", "b.c": "two"}, "list": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})
        };
        let masked = |annotations: Value| {
            let object = object(annotations);
            Secrets::of([&object], []).mask_objects(None, Some(&object)).1.unwrap()
        };
        let all = masked(json!({"werf.io/sensitive": "true"}));
        assert_eq!(all["data"], json!({"a": REDACTED, "b.c": REDACTED}));
        assert_eq!(all["metadata"]["name"], "a");
        let some = masked(json!({"werf.io/sensitive-paths": "$.list[*].x, $.data['b.c']"}));
        assert_eq!(some["data"], json!({"a": "secret number one", "b.c": REDACTED}));
        assert_eq!(some["list"], json!([{"x": REDACTED, "y": 2}, {"x": REDACTED, "y": 4}]));
        // What is not understood hides too much rather than too little.
        assert_eq!(masked(json!({"werf.io/sensitive-paths": "$..x"}))["data"]["a"], REDACTED);
        let plain = json!({"kind": "Secret", "metadata": {"annotations": {"werf.io/sensitive": "false"}}, "data": {"a": "eA=="}});
        assert_eq!(Secrets::of([&plain], []).mask_objects(None, Some(&plain)).1.unwrap()["data"]["a"], "eA==");
    }

    #[test]
    fn a_secret_of_the_values_is_masked_everywhere_and_names_of_objects_are_not() {
        let object = json!({"kind": "Secret", "metadata": {"name": "miniflux-db"}, "stringData": {"user": "miniflux"}});
        let secrets = Secrets::of([&object], [&json!({"password": "correct horse"})]);
        assert_eq!(secrets.mask_text("miniflux has correct horse"), "miniflux has (redacted)");
    }

    #[test]
    fn whoever_asks_by_name_sees_everything() {
        let secret = secret("correct horse");
        let (_, shown) = Secrets::shown().mask_objects(None, Some(&secret));
        assert_eq!(shown, Some(secret));
    }
}
