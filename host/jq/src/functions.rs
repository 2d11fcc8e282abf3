//! Functions in Rust: those of the standard library without the ones that reach out of an evaluation, and before them
//! our own, which replace what jaq does otherwise than jq.

use std::rc::Rc;

use jaq_core::data::JustLut;
use jaq_core::native::{Fun, bome, run, unary, v};
use jaq_core::{Cv, RunPtr, ValT as _, ValXs};

use crate::json::{self, Fault};
use crate::number::Number;
use crate::value::{Error, Result, Value, fault, positions};

type Data = JustLut<Value>;

/// What must not exist: it would tell of the surroundings, end the process, speak to it, or give another answer at
/// another time.
const ABSENT: [&str; 5] = ["debug_empty", "env", "halt", "now", "stderr_empty"];

/// All functions. The first of a name counts.
pub(crate) fn all() -> impl Iterator<Item = Fun<Data>> {
    let standard = jaq_std::funs::<Data>().filter(|(name, ..)| !ABSENT.contains(name));
    jaq_core::funs::<Data>().chain(own()).chain(standard)
}

fn own() -> impl Iterator<Item = Fun<Data>> {
    let alone: [(&'static str, RunPtr<Data>); 22] = [
        ("@base32", |cv| text(cv, base32)),
        ("@base32d", |cv| text_or(cv, base32_decoded)),
        ("@csv", |cv| bome(row(&cv.1, ",", csv))),
        ("@json", |cv| bome(Ok(Value::string(json::write_all(&cv.1))))),
        ("@tsv", |cv| bome(row(&cv.1, "\t", tsv))),
        ("ascii", |cv| bome(ascii(&cv.1))),
        ("fromjson", |cv| from_json(&cv.1)),
        ("infinite", |_| bome(Ok(Value::from(f64::INFINITY)))),
        ("isarray", |cv| bome(Ok(Value::Bool(matches!(cv.1, Value::Array(_)))))),
        ("isboolean", |cv| bome(Ok(Value::Bool(matches!(cv.1, Value::Bool(_)))))),
        ("isinfinite", |cv| bome(number(&cv.1).map(|number| Value::Bool(number.as_f64().is_infinite())))),
        ("isnan", |cv| bome(number(&cv.1).map(|number| Value::Bool(number.is_nan())))),
        ("isnumber", |cv| bome(Ok(Value::Bool(matches!(cv.1, Value::Number(_)))))),
        ("isobject", |cv| bome(Ok(Value::Bool(cv.1.is_object())))),
        ("isstring", |cv| bome(Ok(Value::Bool(cv.1.as_str().is_some())))),
        ("keys", |cv| bome(keys(&cv.1))),
        ("length", |cv| bome(length(&cv.1))),
        ("nan", |_| bome(Ok(Value::from(f64::NAN)))),
        ("tojson", |cv| bome(Ok(Value::string(json::write_all(&cv.1))))),
        ("tonumber", |cv| bome(to_number(&cv.1))),
        ("type", |cv| bome(Ok(Value::string(cv.1.type_name())))),
        ("utf8bytelength", |cv| bome(utf8_length(&cv.1))),
    ];
    let with_one: [(&'static str, RunPtr<Data>); 8] = [
        ("bsearch", |cv| unary(cv, |items, item| search(&items, &item))),
        ("contains", |cv| unary(cv, |whole, part| contains(&whole, &part).map(Value::Bool))),
        ("delpaths", |cv| unary(cv, |value, paths| delete(value, &paths))),
        ("endswith", |cv| unary(cv, |text, end| affix(&text, &end, "endswith", |text, end| text.ends_with(end)))),
        ("has", |cv| unary(cv, |value, key| has(&value, &key).map(Value::Bool))),
        ("indices", |cv| unary(cv, |value, part| indices(&value, &part))),
        ("ltrimstr", |cv| unary(cv, |text, prefix| Ok(trimmed(text, &prefix, |text, it| text.strip_prefix(it))))),
        ("rtrimstr", |cv| unary(cv, |text, suffix| Ok(trimmed(text, &suffix, |text, it| text.strip_suffix(it))))),
    ];
    let startswith: RunPtr<Data> =
        |cv| unary(cv, |text, start| affix(&text, &start, "startswith", |text, start| text.starts_with(start)));
    let alone = alone.into_iter().map(|(name, function)| run::<Data>((name, v(0), function)));
    let with_one = with_one.into_iter().chain([("startswith", startswith)]);
    alone.chain(with_one.map(|(name, function)| run::<Data>((name, v(1), function))))
}

/// Applies a function to what `tostring` makes of the value.
fn text<'a>(cv: Cv<'a, Data>, apply: fn(&str) -> String) -> ValXs<'a, Value> {
    let text = cv.1.into_string();
    bome(Ok(Value::string(apply(text.as_str().unwrap_or_default()))))
}

fn text_or<'a>(cv: Cv<'a, Data>, apply: fn(&str) -> Result<String>) -> ValXs<'a, Value> {
    let text = cv.1.into_string();
    bome(apply(text.as_str().unwrap_or_default()).map(Value::string))
}

fn number(value: &Value) -> Result<Number> {
    match value {
        Value::Number(number) => Ok(*number),
        other => Err(fault(format!("{} number required", other.shown()))),
    }
}

fn length(value: &Value) -> Result {
    Ok(match value {
        Value::Null => Value::int(0),
        Value::Bool(_) => return Err(fault(format!("{} has no length", value.shown()))),
        Value::Number(number) => Value::Number(number.abs()),
        Value::String(text) => Value::count(text.chars().count()),
        Value::Array(items) => Value::count(items.len()),
        Value::Object(entries) => Value::count(entries.len()),
    })
}

fn utf8_length(value: &Value) -> Result {
    match value {
        Value::String(text) => Ok(Value::count(text.len())),
        other => Err(fault(format!("{} only strings have UTF-8 byte length", other.shown()))),
    }
}

fn keys(value: &Value) -> Result {
    match value {
        Value::Array(items) => Ok((0..items.len()).map(Value::count).collect()),
        Value::Object(entries) => Ok(entries.keys().map(|key| Value::string(&**key)).collect()),
        other => Err(fault(format!("{} has no keys", other.shown()))),
    }
}

fn to_number(value: &Value) -> Result {
    match value {
        Value::Number(number) => Ok(Value::Number(*number)),
        Value::String(text) => match json::read(text) {
            Ok(value @ Value::Number(_)) if text.trim() == text.as_str() => Ok(value),
            _ => Err(fault(format!("{} cannot be parsed as a number", value.shown()))),
        },
        other => Err(fault(format!("{} cannot be parsed as a number", other.shown()))),
    }
}

/// Parses all values of a text, as jaq does; jq allows one.
fn from_json<'a>(value: &Value) -> ValXs<'a, Value> {
    let Some(text) = value.as_str() else {
        return bome(Err(fault(format!("{} only strings can be parsed", value.shown()))));
    };
    let describe = |fault_of_text| -> Error {
        match fault_of_text {
            Fault::Syntax { what, offset } => {
                fault(format!("{} cannot be parsed as JSON: {what} at byte {offset}", value.shown()))
            }
            Fault::Depth(levels) => fault(format!("JSON is nested more deeply than {levels} levels")),
        }
    };
    let values: Vec<_> = json::read_all(text).map(|value| Ok(value.map_err(describe)?)).collect();
    Box::new(values.into_iter())
}

fn has(value: &Value, key: &Value) -> Result<bool> {
    match (value, key) {
        (Value::Object(entries), Value::String(key)) => Ok(entries.contains_key(key.as_str())),
        (Value::Array(items), Value::Number(number)) => {
            let at = number.as_f64();
            Ok(at >= 0.0 && at < items.len() as f64)
        }
        (value, key) => Err(fault(format!("Cannot check whether {} has a {} key", value.type_name(), key.type_name()))),
    }
}

fn contains(whole: &Value, part: &Value) -> Result<bool> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, part) in part.iter() {
                match whole.get(key) {
                    Some(whole) if contains(whole, part)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Array(whole), Value::Array(part)) => {
            for part in part.iter() {
                let mut is_in = false;
                for whole in whole.iter() {
                    // Within arrays, what cannot be compared is only not contained.
                    is_in = is_in || contains(whole, part).unwrap_or(false);
                }
                if !is_in {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::String(whole), Value::String(part)) => Ok(whole.contains(part.as_str())),
        (whole, part) if whole.type_name() == part.type_name() => Ok(whole == part),
        (whole, part) => {
            Err(fault(format!("{} and {} cannot have their containment checked", whole.shown(), part.shown())))
        }
    }
}

fn indices(value: &Value, part: &Value) -> Result {
    match (value, part) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::String(_), Value::String(part)) if part.is_empty() => Ok(Value::Null),
        (Value::String(text), Value::String(part)) => {
            let places = text.char_indices().enumerate();
            let found =
                places.filter(|(_, (at, _))| text.get(*at..).is_some_and(|rest| rest.starts_with(part.as_str())));
            Ok(found.map(|(place, _)| Value::count(place)).collect())
        }
        (Value::Array(_), Value::Array(part)) if part.is_empty() => Ok(Value::Null),
        (Value::Array(items), Value::Array(part)) => Ok(Value::array(positions(items, part))),
        (Value::Array(items), item) => {
            let found = items.iter().enumerate().filter(|(_, candidate)| *candidate == item);
            Ok(found.map(|(place, _)| Value::count(place)).collect())
        }
        (value, part) => value.clone().index(part),
    }
}

fn search(items: &Value, item: &Value) -> Result {
    match items {
        Value::Array(items) => Ok(match items.binary_search(item) {
            Ok(place) => Value::count(place),
            Err(place) => Value::int(-1 - i64::try_from(place).unwrap_or(i64::MAX - 1)),
        }),
        other => Err(fault(format!("{} cannot be searched from", other.shown()))),
    }
}

fn affix(text: &Value, part: &Value, name: &str, test: fn(&str, &str) -> bool) -> Result {
    match (text, part) {
        (Value::String(text), Value::String(part)) => Ok(Value::Bool(test(text, part))),
        _ => Err(fault(format!("{name}() requires string inputs"))),
    }
}

fn trimmed(text: Value, part: &Value, strip: for<'a> fn(&'a str, &str) -> Option<&'a str>) -> Value {
    match (&text, part) {
        (Value::String(whole), Value::String(part)) => match strip(whole, part) {
            Some(rest) => Value::string(rest),
            None => text,
        },
        _ => text,
    }
}

/// Deletes paths, the last first, so that places in arrays stay what they were.
fn delete(value: Value, paths: &Value) -> Result {
    let Value::Array(paths) = paths else {
        return Err(fault("Paths must be specified as an array".to_owned()));
    };
    let mut sorted: Vec<&Value> = paths.iter().collect();
    sorted.sort();
    sorted.into_iter().rev().try_fold(value, |value, path| match path {
        Value::Array(path) => delete_path(value, path),
        _ => Err(fault("Path must be specified as an array".to_owned())),
    })
}

fn delete_path(value: Value, path: &[Value]) -> Result {
    let Some((key, rest)) = path.split_first() else { return Ok(Value::Null) };
    match (value, key) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Object(mut entries), Value::String(key)) => {
            if entries.contains_key(key.as_str()) {
                let map = Rc::make_mut(&mut entries);
                if rest.is_empty() {
                    map.remove(key.as_str());
                } else if let Some(child) = map.get_mut(key.as_str()) {
                    *child = delete_path(std::mem::replace(child, Value::Null), rest)?;
                }
            }
            Ok(Value::Object(entries))
        }
        (Value::Array(mut items), Value::Number(number)) => {
            let at = number.as_f64().floor();
            let at = if at < 0.0 { at + items.len() as f64 } else { at };
            if at >= 0.0 && at < items.len() as f64 {
                let places = Rc::make_mut(&mut items);
                if rest.is_empty() {
                    places.remove(at as usize);
                } else if let Some(child) = places.get_mut(at as usize) {
                    *child = delete_path(std::mem::replace(child, Value::Null), rest)?;
                }
            }
            Ok(Value::Array(items))
        }
        (value @ Value::Array(_), range @ Value::Object(_)) => {
            let part = value.clone().index(range)?;
            let new = if rest.is_empty() { Value::array(Vec::new()) } else { delete_path(part, rest)? };
            let set = |_| std::iter::once(Ok(new.clone()));
            value.map_index(range, jaq_core::path::Opt::Essential, set).map_err(|exception| {
                exception.get_err().unwrap_or_else(|_| fault("a slice cannot be deleted".to_owned()))
            })
        }
        (value, key) => {
            Err(fault(format!("Cannot delete field at {} index of {}", key.type_name(), value.type_name())))
        }
    }
}

fn ascii(value: &Value) -> Result {
    let code = number(value)?.as_i64().and_then(|int| u32::try_from(int).ok()).and_then(char::from_u32);
    code.map(Value::string).ok_or_else(|| fault(format!("{} is no character", value.shown())))
}

fn row(value: &Value, separator: &str, cell: fn(&Value) -> Result<String>) -> Result {
    match value {
        Value::Array(items) => {
            let cells: Vec<String> = items.iter().map(cell).collect::<Result<_>>()?;
            Ok(Value::string(cells.join(separator)))
        }
        other => Err(fault(format!("{} cannot be formatted as a row, only an array can", other.shown()))),
    }
}

fn csv(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(format!("\"{}\"", text.replace('"', "\"\""))),
        value => plain(value, "csv"),
    }
}

fn tsv(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => {
            Ok(text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
        }
        value => plain(value, "tsv"),
    }
}

fn plain(value: &Value, format: &str) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        value => Err(fault(format!("{} is not valid in a {format} row", value.shown()))),
    }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(text: &str) -> String {
    let mut out = String::with_capacity(text.len().div_ceil(5) * 8);
    for chunk in text.as_bytes().chunks(5) {
        let bits = (0..5).fold(0_u64, |bits, at| bits << 8 | u64::from(chunk.get(at).copied().unwrap_or(0)));
        let digits = (chunk.len() * 8).div_ceil(5);
        for digit in 0..8 {
            let value = (bits >> (35 - 5 * digit)) & 31;
            let letter = BASE32.get(value as usize).copied().map_or('=', char::from);
            out.push(if digit < digits { letter } else { '=' });
        }
    }
    out
}

fn base32_decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len() / 8 * 5);
    let (mut bits, mut count) = (0_u64, 0_u32);
    for letter in text.trim_end_matches('=').bytes() {
        let value = BASE32.iter().position(|known| *known == letter);
        let Some(value) = value else {
            return Err(fault(format!("{} is not valid base32 data", Value::string(text).shown())));
        };
        bits = (bits << 5 | value as u64) & 0xffff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
