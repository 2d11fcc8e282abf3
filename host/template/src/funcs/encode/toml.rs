//! TOML: written in the layout of the BurntSushi encoder, read with the `toml` crate.

use std::fmt::Write as _;

use super::{Answer, Call, error_map};
use crate::{
    limits::Limit,
    value::{VALUE_DEPTH_MAX, VALUE_TEXT_MAX, Value},
};

pub(super) fn to_toml(call: &mut Call<'_, '_>, value: &Value) -> Answer {
    let mut out = String::new();
    match value {
        Value::Map(_) => {}
        _ => return call.text("toml: cannot encode a value that is not a table"),
    }
    match table(&mut out, &[], value, 0) {
        Ok(()) => call.text(out),
        Err(Problem::TooLarge) => Err(Limit::StringSize.into()),
        // Helm's `toToml` answers with the text of the error.
        Err(Problem::Unsupported(message)) => call.text(message),
    }
}

enum Problem {
    TooLarge,
    Unsupported(String),
}

fn is_table(value: &Value) -> bool {
    matches!(value, Value::Map(_))
}

fn is_table_list(value: &Value) -> bool {
    matches!(value, Value::List(list) if !list.items.is_empty() && list.items.iter().all(is_table))
}

fn key(text: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { text.to_string() } else { string(text) }
}

fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Entries first, then sub-tables, each under its dotted header and indented by its depth.
fn table(out: &mut String, path: &[String], value: &Value, depth: usize) -> Result<(), Problem> {
    if depth > VALUE_DEPTH_MAX || out.len() > VALUE_TEXT_MAX {
        return Err(Problem::TooLarge);
    }
    let Value::Map(map) = value else { return Ok(()) };
    let pairs = map.pairs();
    let indent = "  ".repeat(path.len());
    for (name, item) in pairs.iter().filter(|(_, item)| !is_table(item) && !is_table_list(item) && !item.is_nil()) {
        let _ = write!(out, "{indent}{} = ", key(name));
        inline(out, item, depth + 1)?;
        out.push('\n');
    }
    for (name, item) in &pairs {
        let mut inner = path.to_vec();
        inner.push(key(name));
        if is_table(item) {
            header(out, &inner, "[", "]");
            table(out, &inner, item, depth + 1)?;
        } else if is_table_list(item)
            && let Value::List(list) = item
        {
            for item in &list.items {
                header(out, &inner, "[[", "]]");
                table(out, &inner, item, depth + 1)?;
            }
        }
    }
    Ok(())
}

fn header(out: &mut String, path: &[String], open: &str, close: &str) {
    if !out.is_empty() && path.len() == 1 {
        out.push('\n');
    }
    let _ = writeln!(out, "{}{open}{}{close}", "  ".repeat(path.len() - 1), path.join("."));
}

fn inline(out: &mut String, value: &Value, depth: usize) -> Result<(), Problem> {
    if depth > VALUE_DEPTH_MAX || out.len() > VALUE_TEXT_MAX {
        return Err(Problem::TooLarge);
    }
    match value {
        Value::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Value::Int(i) | Value::Int64(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => {
            let text = crate::gofmt::float(*f).to_lowercase();
            let is_plain = !text.contains(['.', 'e', 'n']);
            let _ = write!(out, "{text}{}", if is_plain { ".0" } else { "" });
        }
        Value::Str(text) => out.push_str(&string(text)),
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                inline(out, item, depth + 1)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (i, (name, item)) in map.pairs().iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                let _ = write!(out, "{} = ", key(name));
                inline(out, item, depth + 1)?;
            }
            out.push('}');
        }
        Value::Bytes(_) | Value::Object(_) => {
            inline(out, &Value::str(crate::gofmt::display(value).unwrap_or_default()), depth + 1)?
        }
        Value::Nil => return Err(Problem::Unsupported("toml: cannot encode array with nil element".into())),
    }
    Ok(())
}

pub(super) fn from_toml(call: &mut Call<'_, '_>, text: &str) -> Answer {
    call.run.charge(text.len() as u64 / 64)?;
    call.run.allocate(text.len().saturating_mul(8))?;
    match text.parse::<toml::Table>() {
        Ok(table) => {
            let entries = table.iter().map(|(k, v)| (k.as_str().into(), value(v)));
            Ok(Value::map(entries.collect()))
        }
        Err(error) => Ok(error_map(error.message())),
    }
}

fn value(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::str(text.as_str()),
        toml::Value::Integer(i) => Value::Int64(*i),
        toml::Value::Float(f) => Value::Float(*f),
        toml::Value::Boolean(b) => Value::Bool(*b),
        toml::Value::Datetime(time) => Value::str(time.to_string()),
        toml::Value::Array(items) => Value::list(items.iter().map(self::value).collect()),
        toml::Value::Table(table) => {
            Value::map(table.iter().map(|(k, v)| (k.as_str().into(), self::value(v))).collect())
        }
    }
}
