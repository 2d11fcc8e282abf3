//! The functions that Go itself defines: comparison, logic, printing, indexing and escaping.

use super::{Answer, Call, Entry, any, s};
use crate::{
    exec::Fault,
    gofmt,
    limits::Limit,
    value::{MapKind, Value},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    // These two are evaluated by the evaluator itself, since they stop early.
    ("and", "a*a", |_, args| Ok(args.last().cloned().unwrap_or(Value::Nil))),
    ("or", "a*a", |_, args| Ok(args.last().cloned().unwrap_or(Value::Nil))),
    ("not", "a", |_, args| Ok(Value::Bool(!any(args, 0).truth()))),
    ("call", "a*a", |_, _| Err(Fault::message("call of a value that is not a function"))),
    ("eq", "a*a", eq),
    ("ne", "aa", |_, args| Ok(Value::Bool(!equal(any(args, 0), any(args, 1))?))),
    ("lt", "aa", |_, args| Ok(Value::Bool(less(any(args, 0), any(args, 1))?))),
    ("le", "aa", |_, args| Ok(Value::Bool(less_or_equal(args)?))),
    ("gt", "aa", |_, args| Ok(Value::Bool(!less_or_equal(args)?))),
    ("ge", "aa", |_, args| Ok(Value::Bool(!less(any(args, 0), any(args, 1))?))),
    ("index", "a*a", index),
    ("len", "a", len),
    ("print", "*a", |call, args| print(call, gofmt::print(args))),
    ("println", "*a", |call, args| print(call, gofmt::println(args))),
    ("printf", "s*a", |call, args| print(call, gofmt::printf(s(args, 0), args.get(1..).unwrap_or_default()))),
    ("html", "*a", |call, args| escape(call, args, html)),
    ("js", "*a", |call, args| escape(call, args, js)),
    ("urlquery", "*a", |call, args| escape(call, args, urlquery)),
];

fn print(call: &mut Call<'_, '_>, text: Option<String>) -> Answer {
    match text {
        Some(text) => call.text(text),
        None => Err(Limit::StringSize.into()),
    }
}

fn escape(call: &mut Call<'_, '_>, args: &[Value], escape: fn(&str) -> String) -> Answer {
    let text = match args {
        [Value::Str(text)] => text.to_string(),
        [Value::Nil] => crate::exec::NO_VALUE.to_string(),
        args => gofmt::print(args).ok_or(Limit::StringSize)?,
    };
    call.text(escape(&text))
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str("\\u003C"),
            '>' => out.push_str("\\u003E"),
            '&' => out.push_str("\\u0026"),
            '=' => out.push_str("\\u003D"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn urlquery(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[derive(PartialEq)]
enum Kind {
    Bool,
    Int,
    Float,
    Str,
    Other,
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) | Value::Int64(_) => Kind::Int,
        Value::Float(_) => Kind::Float,
        Value::Str(_) => Kind::Str,
        Value::Object(object) if object.as_int().is_some() => Kind::Int,
        _ => Kind::Other,
    }
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Int(i) | Value::Int64(i) => *i,
        Value::Object(object) => object.as_int().unwrap_or(0),
        _ => 0,
    }
}

/// `%s` of a value, as messages print it.
fn shown(value: &Value) -> String {
    gofmt::printf("%s", std::slice::from_ref(value)).unwrap_or_default().chars().take(4_000).collect()
}

fn eq(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Some((first, rest)) = args.split_first() else { return Err(Fault::message("missing argument for comparison")) };
    if rest.is_empty() {
        return Err(Fault::message("missing argument for comparison"));
    }
    for other in rest {
        if equal(first, other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn equal(a: &Value, b: &Value) -> Result<bool, Fault> {
    let (ka, kb) = (kind(a), kind(b));
    if ka != kb {
        if !a.is_nil() && !b.is_nil() {
            return Err(Fault::message(format!(
                "incompatible types for comparison: {} and {}",
                a.type_name(),
                b.type_name()
            )));
        }
        return Ok(false);
    }
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => a == b,
        _ if ka == Kind::Int => integer(a) == integer(b),
        (Value::Nil, b) => b.is_nil(),
        (_, Value::Nil) => false,
        (a, b) => {
            if a.kind_name() != b.kind_name() {
                return Err(Fault::message(format!(
                    "non-comparable types {}: {}, {}: {}",
                    shown(a),
                    a.type_name(),
                    b.type_name(),
                    gofmt::printf("%v", std::slice::from_ref(b))
                        .unwrap_or_default()
                        .chars()
                        .take(4_000)
                        .collect::<String>()
                )));
            }
            match (a, b) {
                (Value::Object(x), Value::Object(y)) if x.kind_name() != "map" && x.kind_name() != "slice" => {
                    std::rc::Rc::ptr_eq(x, y) || x.same(y)
                }
                _ => {
                    return Err(Fault::message(format!("non-comparable type {}: {}", shown(b), b.type_name())));
                }
            }
        }
    })
}

fn less(a: &Value, b: &Value) -> Result<bool, Fault> {
    let (ka, kb) = (kind(a), kind(b));
    if ka == Kind::Other || kb == Kind::Other {
        return Err(Fault::message("invalid type for comparison"));
    }
    if ka != kb {
        return Err(Fault::message(format!(
            "incompatible types for comparison: {} and {}",
            a.type_name(),
            b.type_name()
        )));
    }
    Ok(match (a, b) {
        (Value::Float(a), Value::Float(b)) => a < b,
        (Value::Str(a), Value::Str(b)) => a < b,
        _ if ka == Kind::Int => integer(a) < integer(b),
        _ => return Err(Fault::message("invalid type for comparison")),
    })
}

fn less_or_equal(args: &[Value]) -> Result<bool, Fault> {
    let (a, b) = (any(args, 0), any(args, 1));
    Ok(less(a, b)? || equal(a, b)?)
}

fn len(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let length = match any(args, 0) {
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.len(),
        Value::Nil => return Err(Fault::message("len of nil pointer")),
        Value::Object(object) if object.pairs().is_some() => object.pairs().map_or(0, |pairs| pairs.len()),
        other => return Err(Fault::message(format!("len of type {}", other.type_name()))),
    };
    Ok(Value::Int(length as i64))
}

fn index(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let mut item = any(args, 0).clone();
    if item.is_nil() {
        return Err(Fault::message("index of untyped nil"));
    }
    let position = |index: &Value, length: usize| match index {
        Value::Int(i) | Value::Int64(i) => match usize::try_from(*i) {
            Ok(at) if at < length => Ok(at),
            // Go checks with the wrong comparison first, and by reflection then.
            Ok(at) if at == length => Err(Fault::message("reflect: slice index out of range")),
            _ => Err(Fault::message(format!("index out of range: {i}"))),
        },
        Value::Nil => Err(Fault::message("cannot index slice/array with nil")),
        other => Err(Fault::message(format!("cannot index slice/array with type {}", other.type_name()))),
    };
    for index in args.get(1..).unwrap_or_default() {
        item = match &item {
            Value::List(list) => list.items[position(index, list.items.len())?].clone(),
            Value::Str(text) => Value::Int(text.as_bytes()[position(index, text.len())?].into()),
            Value::Bytes(bytes) => Value::Int(bytes[position(index, bytes.len())?].into()),
            Value::Map(map) => match index {
                Value::Str(key) if map.kind == MapKind::Str => map.get(key).unwrap_or_else(|| Value::str("")),
                Value::Str(key) => map.get(key).unwrap_or(Value::Nil),
                Value::Nil => return Err(Fault::message("value is nil; should be of type string")),
                other => {
                    return Err(Fault::message(format!("value has type {}; should be string", other.type_name())));
                }
            },
            Value::Object(object) => match (object.pairs(), index) {
                (Some(pairs), Value::Str(key)) => pairs
                    .iter()
                    .find(|(name, _)| matches!(name, Value::Str(name) if name == key))
                    .map_or(Value::Nil, |(_, value)| value.clone()),
                (Some(pairs), index) => pairs[position(index, pairs.len())?].1.clone(),
                _ => return Err(Fault::message(format!("can't index item of type {}", object.type_name()))),
            },
            Value::Nil => return Err(Fault::message("index of nil pointer")),
            other => return Err(Fault::message(format!("can't index item of type {}", other.type_name()))),
        };
    }
    Ok(item)
}
