//! `values`: a run reads what it wrote. The document of the input is shared until the first change.

use std::sync::Arc;

use barbless_domain::run::ValuesChange;
use serde_json::{Map, Value};
use wasmtime::Result;

use crate::contract::barbless::hooks::values as wit;
use crate::outcome::Stop;
use crate::state::State;

/// Levels of a document: what is deeper cannot be read back by a JSON parser.
const DEPTH_MAX: usize = 127;
/// Changes of one run.
const CHANGES_MAX: usize = 10_000;
/// Bytes of all changes of one run, as a multiple of the limit of the document: a run may rewrite it a few times.
const CHANGES_FACTOR: u64 = 8;

/// The values document of a run.
#[derive(Debug, Default)]
pub(crate) struct Document {
    value: Arc<Value>,
    /// Bytes of its JSON text; counted at the first change.
    bytes: Option<u64>,
    changes: Vec<ValuesChange>,
    changes_bytes: u64,
}

/// Why a change is refused; becomes the error of the contract.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Pointer(String),
    Json(String),
    Path(String),
    TooLarge,
    /// The run is over.
    Stop(Stop),
}

impl wit::Host for State {
    fn get(&mut self, pointer: String) -> Result<Option<String>> {
        self.run("values.get")?;
        Ok(self.values.value.pointer(&pointer).map(serde_json::to_string).transpose()?)
    }

    fn set(&mut self, pointer: String, json: String) -> Result<std::result::Result<(), wit::ValuesError>> {
        self.run("values.set")?;
        let max = self.limits.values_bytes;
        answer(self.values.set(pointer, &json, max))
    }

    fn remove(&mut self, pointer: String) -> Result<std::result::Result<(), wit::ValuesError>> {
        self.run("values.remove")?;
        let max = self.limits.values_bytes;
        answer(self.values.remove(pointer, max))
    }
}

fn answer(result: std::result::Result<(), Refusal>) -> Result<std::result::Result<(), wit::ValuesError>> {
    Ok(Err(match result {
        Ok(()) => return Ok(Ok(())),
        Err(Refusal::Pointer(why)) => wit::ValuesError::BadPointer(why),
        Err(Refusal::Json(why)) => wit::ValuesError::BadJson(why),
        Err(Refusal::Path(why)) => wit::ValuesError::BadPath(why),
        Err(Refusal::TooLarge) => wit::ValuesError::TooLarge,
        Err(Refusal::Stop(stop)) => return Err(stop.into()),
    }))
}

impl Document {
    pub(crate) fn new(value: Arc<Value>) -> Self {
        Self { value, ..Self::default() }
    }

    pub(crate) fn take_changes(&mut self) -> Vec<ValuesChange> {
        std::mem::take(&mut self.changes)
    }

    fn set(&mut self, pointer: String, json: &str, max: u64) -> std::result::Result<(), Refusal> {
        let tokens = tokens(&pointer)?;
        if json.len() as u64 > max {
            return Err(Refusal::TooLarge);
        }
        let new: Value = serde_json::from_str(json).map_err(|error| Refusal::Json(error.to_string()))?;
        if tokens.len() + depth(&new) > DEPTH_MAX {
            return Err(Refusal::Path(format!("the document would be deeper than {DEPTH_MAX} levels")));
        }
        if tokens.is_empty() && !new.is_object() {
            return Err(Refusal::Path("the root must be an object".to_owned()));
        }
        let before = self.bytes();
        let (added, removed) = plan(&self.value, &tokens, &new)?;
        let after = before.saturating_sub(removed).saturating_add(added);
        // What shrinks a document that is too large already is welcome.
        if after > max && added > removed {
            return Err(Refusal::TooLarge);
        }
        self.record(pointer, Some(&new), json.len() as u64, max)?;
        put(Arc::make_mut(&mut self.value), &tokens, new);
        self.bytes = Some(after);
        Ok(())
    }

    fn remove(&mut self, pointer: String, max: u64) -> std::result::Result<(), Refusal> {
        let tokens = tokens(&pointer)?;
        let before = self.bytes();
        let Some((last, parents)) = tokens.split_last() else {
            self.record(pointer, None, 0, max)?;
            self.value = Arc::new(Value::Object(Map::new()));
            self.bytes = Some(2);
            return Ok(());
        };
        let Some(removed) = removal(&self.value, parents, last)? else { return Ok(()) };
        self.record(pointer, None, 0, max)?;
        if let Some(parent) = find_mut(Arc::make_mut(&mut self.value), parents) {
            match parent {
                Value::Object(map) => {
                    map.remove(last);
                }
                Value::Array(list) => {
                    if let Some(at) = index(last).filter(|&at| at < list.len()) {
                        list.remove(at);
                    }
                }
                _ => {}
            }
        }
        self.bytes = Some(before.saturating_sub(removed));
        Ok(())
    }

    fn bytes(&mut self) -> u64 {
        *self.bytes.get_or_insert_with(|| length(&self.value))
    }

    fn record(
        &mut self,
        pointer: String,
        value: Option<&Value>,
        bytes: u64,
        max: u64,
    ) -> std::result::Result<(), Refusal> {
        let stop = |what: String| Err(Refusal::Stop(Stop::BadOutput(what)));
        if self.changes.len() >= CHANGES_MAX {
            return stop(format!("more than {CHANGES_MAX} changes of values"));
        }
        let bytes = self.changes_bytes.saturating_add(bytes).saturating_add(pointer.len() as u64);
        let limit = max.saturating_mul(CHANGES_FACTOR);
        if bytes > limit {
            return stop(format!("all changes of values together have more than {limit} bytes"));
        }
        self.changes_bytes = bytes;
        self.changes.push(ValuesChange { pointer, value: value.cloned() });
        Ok(())
    }
}

/// Reads a JSON pointer (RFC 6901).
fn tokens(pointer: &str) -> std::result::Result<Vec<String>, Refusal> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = pointer.strip_prefix('/') else {
        return Err(Refusal::Pointer("it must be empty or begin with '/'".to_owned()));
    };
    let mut tokens = Vec::new();
    for part in rest.split('/') {
        if tokens.len() >= DEPTH_MAX {
            return Err(Refusal::Pointer(format!("it has more than {DEPTH_MAX} parts")));
        }
        let mut token = String::with_capacity(part.len());
        let mut chars = part.chars();
        while let Some(c) = chars.next() {
            match c {
                '~' => match chars.next() {
                    Some('0') => token.push('~'),
                    Some('1') => token.push('/'),
                    _ => return Err(Refusal::Pointer("'~' must be followed by 0 or 1".to_owned())),
                },
                c => token.push(c),
            }
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// The place of an array that a token names.
fn index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    if plain { token.parse().ok() } else { None }
}

/// Bytes that a change adds and removes; nothing is changed yet.
fn plan(root: &Value, tokens: &[String], new: &Value) -> std::result::Result<(u64, u64), Refusal> {
    let mut at = root;
    for (depth, token) in tokens.iter().enumerate() {
        let rest = tokens.get(depth + 1..).unwrap_or_default();
        match at {
            Value::Object(map) => match map.get(token) {
                Some(next) => at = next,
                None => {
                    let comma = u64::from(!map.is_empty());
                    return Ok((comma + key_length(token) + 1 + nested_length(rest, new), 0));
                }
            },
            Value::Array(list) if token == "-" || index(token) == Some(list.len()) => {
                return Ok((u64::from(!list.is_empty()) + nested_length(rest, new), 0));
            }
            Value::Array(list) => match index(token).and_then(|at| list.get(at)) {
                Some(next) => at = next,
                None => {
                    let token = crate::text::shown(token, 64);
                    return Err(Refusal::Path(format!("'{token}' is no place in an array of {}", list.len())));
                }
            },
            _ => {
                let token = crate::text::shown(token, 64);
                return Err(Refusal::Path(format!("what should hold '{token}' is neither object nor array")));
            }
        }
    }
    Ok((length(new), length(at)))
}

/// Carries out what [`plan`] has found possible.
fn put(root: &mut Value, tokens: &[String], new: Value) {
    let mut at = root;
    for token in tokens {
        at = match at {
            Value::Object(map) => map.entry(token.clone()).or_insert_with(|| Value::Object(Map::new())),
            Value::Array(list) => {
                let place = if token == "-" { list.len() } else { index(token).unwrap_or(list.len()) };
                if place >= list.len() {
                    list.push(Value::Object(Map::new()));
                }
                let place = place.min(list.len().saturating_sub(1));
                match list.get_mut(place) {
                    Some(next) => next,
                    None => return,
                }
            }
            _ => return,
        };
    }
    *at = new;
}

/// Bytes that a removal takes away; nothing if there is nothing to remove.
fn removal(root: &Value, parents: &[String], last: &str) -> std::result::Result<Option<u64>, Refusal> {
    let mut at = root;
    for token in parents {
        let next = match at {
            Value::Object(map) => map.get(token),
            Value::Array(list) => index(token).and_then(|at| list.get(at)),
            _ => return Err(Refusal::Path("something on the way is neither object nor array".to_owned())),
        };
        match next {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    match at {
        Value::Object(map) => {
            let comma = u64::from(map.len() > 1);
            Ok(map.get(last).map(|value| comma + key_length(last) + 1 + length(value)))
        }
        Value::Array(list) => {
            let comma = u64::from(list.len() > 1);
            Ok(index(last).and_then(|at| list.get(at)).map(|value| comma + length(value)))
        }
        _ => Err(Refusal::Path("something on the way is neither object nor array".to_owned())),
    }
}

fn find_mut<'a>(root: &'a mut Value, tokens: &[String]) -> Option<&'a mut Value> {
    tokens.iter().try_fold(root, |at, token| match at {
        Value::Object(map) => map.get_mut(token),
        Value::Array(list) => index(token).and_then(|at| list.get_mut(at)),
        _ => None,
    })
}

/// Bytes of the JSON text.
fn length(value: &Value) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value has text keys only, and counting does not fail; a text that could not be written would count too little.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn key_length(key: &str) -> u64 {
    length(&Value::String(key.to_owned()))
}

/// Bytes of a value inside of the objects that are made on the way to it.
fn nested_length(tokens: &[String], value: &Value) -> u64 {
    tokens.iter().map(|token| key_length(token) + 3).sum::<u64>() + length(value)
}

/// Levels of a value; a text or number has one.
fn depth(value: &Value) -> usize {
    // The parser has bounded the depth of what is measured here.
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
