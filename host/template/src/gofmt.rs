//! Go's ways of writing things down: number syntax, quoted strings, `fmt.Print` and `fmt.Printf`.

mod printf;

use std::fmt::Write as _;

pub(crate) use printf::{print, printf, println};

use crate::value::{VALUE_DEPTH_MAX, VALUE_TEXT_MAX, Value};

/// `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    quote_with(text, '"')
}

/// With escapes for everything that is not ASCII.
pub(crate) fn quote_ascii(text: &str) -> String {
    quoted(text, '"', |c| c.is_ascii() && is_printable(c))
}

pub(crate) fn quote_with(text: &str, delim: char) -> String {
    quoted(text, delim, is_printable)
}

fn quoted(text: &str, delim: char, shown: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(delim);
    for c in text.chars() {
        match c {
            c if c == delim || c == '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if shown(c) => out.push(c),
            c if (c as u32) < 0x80 => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if (c as u32) < 0x10000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push(delim);
    out
}

/// An approximation of `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{fffb}'))
}

/// `strconv.Unquote` of a double-quoted or raw string.
pub(crate) fn unquote(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('`').and_then(|t| t.strip_suffix('`')) {
        return Some(inner.replace('\r', ""));
    }
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let bytes = unescape(inner, '"')?;
    // `\xff` makes strings that are not UTF-8 in Go; ours always are.
    Some(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// The code point of a character constant such as `'a'` or `'\n'`.
pub(crate) fn unquote_char(text: &str) -> Option<u32> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    if let Some(hex) = inner.strip_prefix("\\x") {
        return (hex.len() == 2).then(|| u32::from_str_radix(hex, 16).ok()).flatten();
    }
    let text = String::from_utf8(unescape(inner, '\'')?).ok()?;
    let mut chars = text.chars();
    let c = chars.next()?;
    chars.next().is_none().then_some(c as u32)
}

fn unescape(inner: &str, delim: char) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            if c == delim || c == '\n' {
                return None;
            }
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = rest.chars().next()?;
        rest = &rest[escape.len_utf8()..];
        let digits = match escape {
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            '\\' => b'\\',
            c if c == delim => delim as u8,
            'x' | 'u' | 'U' => {
                let length = match escape {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits = rest.get(..length)?;
                let code = u32::from_str_radix(digits, 16).ok()?;
                rest = &rest[length..];
                if escape == 'x' {
                    out.push(code as u8);
                } else {
                    out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
                }
                continue;
            }
            '0'..='7' => {
                let digits = format!("{escape}{}", rest.get(..2)?);
                let code = u32::from_str_radix(&digits, 8).ok().filter(|code| *code < 256)?;
                rest = &rest[2..];
                out.push(code as u8);
                continue;
            }
            _ => return None,
        };
        out.push(digits);
    }
    Some(out)
}

/// Splits a Go integer literal into sign, radix and digits without underscores.
fn integer_parts(text: &str) -> Option<(bool, u32, String)> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = body.to_ascii_lowercase();
    let (radix, digits, prefixed) = if let Some(d) = lower.strip_prefix("0x") {
        (16, d, true)
    } else if let Some(d) = lower.strip_prefix("0o") {
        (8, d, true)
    } else if let Some(d) = lower.strip_prefix("0b") {
        (2, d, true)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..], true)
    } else {
        (10, lower.as_str(), false)
    };
    // An underscore stands between digits, or between prefix and digit.
    if digits.ends_with('_') || digits.contains("__") || (digits.starts_with('_') && !prefixed) {
        return None;
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some((negative, radix, digits))
}

/// `strconv.ParseInt(text, 0, 64)`.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (negative, radix, digits) = integer_parts(text)?;
    let magnitude = i128::from(u64::from_str_radix(&digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Whether the text is an integer, whatever its size.
pub(crate) fn is_integer_syntax(text: &str) -> bool {
    integer_parts(text).is_some()
}

/// `strconv.ParseFloat(text, 64)` for decimal syntax; out of range is `None`, as an error is in Go.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    match body.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => {
            return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') || body.contains("__") || body.ends_with('_') {
        return None;
    }
    let cleaned = text.replace('_', "");
    let float: f64 = cleaned.parse().ok()?;
    float.is_finite().then_some(float)
}

/// `strconv.FormatFloat(f, 'g', -1, 64)`, which `%v` uses too.
pub(crate) fn float(f: f64) -> String {
    if f.is_nan() {
        return "NaN".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{f:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // With the shortest precision Go decides as if the precision were 6.
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{f}")
}

/// `fmt.Sprint` of one value (`%v`). `None` if it nests too deep.
pub(crate) fn display(value: &Value) -> Option<String> {
    let mut out = String::new();
    write_value(&mut out, value, 0).then_some(out)
}

/// Writes `%v`; `false` if the value nests too deep.
pub(crate) fn write_value(out: &mut String, value: &Value, depth: usize) -> bool {
    if depth > VALUE_DEPTH_MAX || out.len() > VALUE_TEXT_MAX {
        return false;
    }
    match value {
        Value::Nil => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) | Value::Int64(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => out.push_str(&float(*f)),
        Value::Str(s) => out.push_str(s),
        Value::Bytes(bytes) => {
            out.push('[');
            for (i, byte) in bytes.iter().enumerate() {
                let _ = write!(out, "{}{byte}", if i > 0 { " " } else { "" });
            }
            out.push(']');
        }
        Value::List(list) => {
            out.push('[');
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                if !write_value(out, item, depth + 1) {
                    return false;
                }
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.pairs().iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                if !write_value(out, item, depth + 1) {
                    return false;
                }
            }
            out.push(']');
        }
        Value::Object(object) => out.push_str(&if depth == 0 { object.display() } else { object.display_inside() }),
    }
    true
}
