//! JSON as Go's `encoding/json` writes it, and reading with its messages.

use std::fmt::Write as _;

use crate::value::{Elem, VALUE_DEPTH_MAX, VALUE_TEXT_MAX, Value};

#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// `<`, `>` and `&` become `\u003c` and so on.
    pub(crate) escape_html: bool,
    pub(crate) pretty: bool,
}

/// Why a value cannot be encoded.
pub(crate) enum EncodeError {
    Unsupported(String),
    TooLarge,
}

pub(crate) fn encode(value: &Value, style: Style) -> Result<String, EncodeError> {
    let mut out = String::new();
    write(&mut out, value, style, 0)?;
    Ok(out)
}

fn newline(out: &mut String, style: Style, depth: usize) {
    if style.pretty {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
}

fn write(out: &mut String, value: &Value, style: Style, depth: usize) -> Result<(), EncodeError> {
    if depth > VALUE_DEPTH_MAX || out.len() > VALUE_TEXT_MAX {
        return Err(EncodeError::TooLarge);
    }
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) | Value::Int64(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => out.push_str(&number(*f)?),
        Value::Str(s) => string(out, s, style.escape_html),
        Value::Bytes(bytes) => {
            use base64::Engine as _;
            out.push('"');
            base64::engine::general_purpose::STANDARD.encode_string(bytes, out);
            out.push('"');
        }
        Value::List(list) if matches!(list.elem, Elem::NilStr | Elem::NilAny) => out.push_str("null"),
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                newline(out, style, depth + 1);
                write(out, item, style, depth + 1)?;
            }
            if !list.items.is_empty() {
                newline(out, style, depth);
            }
            out.push(']');
        }
        Value::Map(map) => {
            let pairs = map.pairs();
            out.push('{');
            for (i, (key, item)) in pairs.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                newline(out, style, depth + 1);
                string(out, key, style.escape_html);
                out.push(':');
                if style.pretty {
                    out.push(' ');
                }
                write(out, item, style, depth + 1)?;
            }
            if !pairs.is_empty() {
                newline(out, style, depth);
            }
            out.push('}');
        }
        Value::Object(object) => write(out, &object.plain(), style, depth + 1)?,
    }
    Ok(())
}

/// A float64 as JSON: plain notation from 1e-6 up to 1e21.
pub(crate) fn number(f: f64) -> Result<String, EncodeError> {
    if !f.is_finite() {
        return Err(EncodeError::Unsupported(format!("json: unsupported value: {}", crate::gofmt::float(f))));
    }
    let magnitude = f.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{f:e}");
        return Ok(match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
            _ => text,
        });
    }
    Ok(format!("{f}"))
}

pub(crate) fn string(out: &mut String, text: &str, escape_html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' if escape_html => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Reads one JSON text; the error is in the words of Go where they are common.
pub(crate) fn decode(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| {
        if error.is_eof() {
            return "unexpected end of JSON input".to_string();
        }
        let c = text
            .lines()
            .nth(error.line().saturating_sub(1))
            .and_then(|line| line.as_bytes().get(error.column().saturating_sub(1)).map(|b| char::from(*b)));
        match c {
            Some(c) if error.to_string().starts_with("trailing characters") => {
                let c = crate::gofmt::quote_with(&c.to_string(), '\'');
                format!("invalid character {c} after top-level value")
            }
            Some(c) if text.trim_start().starts_with(c) => {
                format!(
                    "invalid character {} looking for beginning of value",
                    crate::gofmt::quote_with(&c.to_string(), '\'')
                )
            }
            Some(c) => {
                let c = crate::gofmt::quote_with(&c.to_string(), '\'');
                let problem = error.to_string();
                let before = |start: &str| problem.starts_with(start);
                if before("key must be a string") || (before("trailing comma") && c == "'}'") {
                    format!("invalid character {c} looking for beginning of object key string")
                } else if before("expected value") || before("trailing comma") {
                    format!("invalid character {c} looking for beginning of value")
                } else if before("expected `,` or `}`") {
                    format!("invalid character {c} after object key:value pair")
                } else if before("expected `,` or `]`") {
                    format!("invalid character {c} after array element")
                } else if before("expected `:`") {
                    format!("invalid character {c} after object key")
                } else {
                    problem
                }
            }
            None => error.to_string(),
        }
    })
}

/// The name that Go's messages give to the kind of a JSON value.
pub(crate) fn kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}

/// The type that JSON Schema gives to a value.
pub(crate) fn kind_of_schema(value: &serde_json::Value) -> &'static str {
    match kind(value) {
        "bool" => "boolean",
        other => other,
    }
}
