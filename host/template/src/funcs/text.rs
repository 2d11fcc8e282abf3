//! Strings.

use super::{Answer, Call, Entry, any, int, s};
use crate::{
    exec::Fault,
    gofmt,
    value::{Elem, MapKind, Value},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("upper", "s", |call, args| call.text(s(args, 0).to_uppercase())),
    ("lower", "s", |call, args| call.text(s(args, 0).to_lowercase())),
    ("title", "s", |call, args| call.text(title(s(args, 0)))),
    ("untitle", "s", |call, args| call.text(untitle(s(args, 0)))),
    ("trim", "s", |call, args| call.text(s(args, 0).trim())),
    ("trimAll", "ss", trim_all),
    ("trimall", "ss", trim_all),
    ("trimSuffix", "ss", |call, args| call.text(s(args, 1).strip_suffix(s(args, 0)).unwrap_or(s(args, 1)))),
    ("trimPrefix", "ss", |call, args| call.text(s(args, 1).strip_prefix(s(args, 0)).unwrap_or(s(args, 1)))),
    ("nospace", "s", |call, args| call.text(s(args, 0).chars().filter(|c| !c.is_whitespace()).collect::<String>())),
    ("initials", "s", |call, args| {
        call.text(s(args, 0).split_whitespace().filter_map(|word| word.chars().next()).collect::<String>())
    }),
    ("swapcase", "s", |call, args| call.text(swapcase(s(args, 0)))),
    ("snakecase", "s", |call, args| call.text(delimited(s(args, 0), '_'))),
    ("kebabcase", "s", |call, args| call.text(delimited(s(args, 0), '-'))),
    ("camelcase", "s", |call, args| call.text(camelcase(s(args, 0)))),
    ("substr", "iis", |call, args| call.text(substring(int(args, 0), int(args, 1), s(args, 2)))),
    ("trunc", "is", |call, args| call.text(truncate(int(args, 0), s(args, 1)))),
    ("abbrev", "is", |call, args| call.text(abbreviate(0, int(args, 0), s(args, 1)))),
    ("abbrevboth", "iis", |call, args| call.text(abbreviate(int(args, 0), int(args, 1), s(args, 2)))),
    ("wrap", "is", |call, args| wrap(call, s(args, 1), int(args, 0), "\n", false)),
    ("wrapWith", "iss", |call, args| wrap(call, s(args, 2), int(args, 0), s(args, 1), true)),
    ("repeat", "is", repeat),
    ("indent", "is", |call, args| indent(call, int(args, 0), s(args, 1), "")),
    ("nindent", "is", |call, args| indent(call, int(args, 0), s(args, 1), "\n")),
    ("replace", "sss", replace),
    ("plural", "ssi", |_, args| Ok(any(args, usize::from(int(args, 2) != 1)).clone())),
    ("contains", "ss", |_, args| Ok(Value::Bool(s(args, 1).contains(s(args, 0))))),
    ("hasPrefix", "ss", |_, args| Ok(Value::Bool(s(args, 1).starts_with(s(args, 0))))),
    ("hasSuffix", "ss", |_, args| Ok(Value::Bool(s(args, 1).ends_with(s(args, 0))))),
    ("quote", "*a", |call, args| quote(call, args, gofmt::quote)),
    ("squote", "*a", |call, args| quote(call, args, |text| format!("'{text}'"))),
    ("cat", "*a", |call, args| {
        let given: Vec<String> =
            args.iter().filter(|v| !v.is_nil()).map(|v| call.display(v)).collect::<Result<_, _>>()?;
        call.text(given.join(" "))
    }),
    ("join", "sa", |call, args| {
        let parts = strings(call, any(args, 1))?;
        call.run.string(parts.iter().map(|p| p.len() + s(args, 0).len()).sum())?;
        call.text(parts.join(s(args, 0)))
    }),
    ("split", "ss", |call, args| {
        numbered(call, s(args, 1).split(s(args, 0)).map(str::to_string).collect(), s(args, 0))
    }),
    ("splitn", "sis", |call, args| {
        let (sep, n, text) = (s(args, 0), int(args, 1), s(args, 2));
        let parts = match usize::try_from(n) {
            Ok(0) => Vec::new(),
            Ok(n) => text.splitn(n, sep).map(str::to_string).collect(),
            Err(_) => text.split(sep).map(str::to_string).collect(),
        };
        numbered(call, parts, sep)
    }),
    ("splitList", "ss", |call, args| {
        let parts = pieces(s(args, 1), s(args, 0));
        call.strings(parts)
    }),
    ("toStrings", "a", |call, args| {
        let parts = strings(call, any(args, 0))?;
        call.strings(parts)
    }),
    ("toString", "a", |call, args| {
        let text = call.strval(any(args, 0))?;
        call.text(text)
    }),
    ("sortAlpha", "a", |call, args| {
        let value = any(args, 0);
        if !matches!(value, Value::List(_) | Value::Bytes(_)) {
            let text = call.strval(value)?;
            return call.strings(vec![text]);
        }
        let mut parts = strings(call, value)?;
        parts.sort();
        call.strings(parts)
    }),
];

fn trim_all(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    // A set, since both texts can be long.
    let cut: std::collections::HashSet<char> = s(args, 0).chars().collect();
    call.text(s(args, 1).trim_matches(|c| cut.contains(&c)))
}

/// `strings.Split`, where an empty separator splits between characters.
fn pieces(text: &str, sep: &str) -> Vec<String> {
    if sep.is_empty() {
        return text.chars().map(String::from).collect();
    }
    text.split(sep).map(str::to_string).collect()
}

fn numbered(call: &mut Call<'_, '_>, parts: Vec<String>, sep: &str) -> Answer {
    let parts: Vec<String> = if sep.is_empty() { parts.into_iter().filter(|p| !p.is_empty()).collect() } else { parts };
    call.run.items(parts.len())?;
    let entries = parts.into_iter().enumerate().map(|(i, part)| (format!("_{i}").into(), Value::str(part)));
    Ok(Value::map_of(MapKind::Str, entries.collect()))
}

/// sprig's `strslice`: the elements as strings, nil left out.
pub(super) fn strings(call: &mut Call<'_, '_>, value: &Value) -> Result<Vec<String>, Fault> {
    Ok(match value {
        Value::List(list) if list.elem == Elem::Any => {
            let mut parts = Vec::with_capacity(list.items.len());
            for item in list.items.iter().filter(|item| !item.is_nil()) {
                parts.push(call.strval(item)?);
            }
            parts
        }
        Value::List(list) => list.items.iter().map(|item| call.strval(item)).collect::<Result<_, _>>()?,
        Value::Bytes(bytes) => bytes.iter().map(ToString::to_string).collect(),
        Value::Nil => Vec::new(),
        other => vec![call.strval(other)?],
    })
}

fn quote(call: &mut Call<'_, '_>, args: &[Value], quote: fn(&str) -> String) -> Answer {
    let mut parts = Vec::new();
    for value in args.iter().filter(|value| !value.is_nil()) {
        let text = call.strval(value)?;
        parts.push(quote(&text));
    }
    call.text(parts.join(" "))
}

/// `strings.Title`: the first letter behind a separator. In ASCII that is anything but letters, digits and the underscore,
/// beyond it only white space.
fn title(text: &str) -> String {
    let separates = |c: char| match c {
        c if c.is_ascii() => !(c.is_ascii_alphanumeric() || c == '_'),
        c => c.is_whitespace(),
    };
    let mut out = String::with_capacity(text.len());
    let mut previous = ' ';
    for c in text.chars() {
        if separates(previous) {
            out.extend(c.to_uppercase())
        } else {
            out.push(c)
        }
        previous = c;
    }
    out
}

fn untitle(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut previous = ' ';
    for c in text.chars() {
        if previous.is_whitespace() {
            out.extend(c.to_lowercase())
        } else {
            out.push(c)
        }
        previous = c;
    }
    out
}

fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else if c.is_lowercase() {
            out.extend(c.to_uppercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// `snakecase` and `kebabcase` of the xstrings library: words end before a capital, and at spaces and connectors.
fn delimited(text: &str, connector: char) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 8);
    let is_connector = |c: char| c == '-' || c == '_' || c == ' ' || c.is_whitespace();
    for (i, c) in chars.iter().copied().enumerate() {
        if is_connector(c) {
            out.push(connector);
            continue;
        }
        // A number belongs to the word behind it, if that is written small, and otherwise to the word before it.
        if c.is_numeric() && chars[..i].last().is_some_and(|p| p.is_alphabetic()) {
            let behind = chars[i..].iter().find(|c| !c.is_numeric());
            if behind.is_some_and(|c| c.is_lowercase()) {
                out.push(connector);
            }
            out.push(c);
        } else if c.is_uppercase() {
            let previous = i.checked_sub(1).and_then(|p| chars.get(p)).copied();
            let next = chars.get(i + 1).copied();
            let after_word = previous.is_some_and(|p| p.is_lowercase() || p.is_numeric());
            let before_word = previous.is_some_and(char::is_uppercase) && next.is_some_and(char::is_lowercase);
            if after_word || before_word {
                out.push(connector);
            }
            out.extend(c.to_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// `ToPascalCase` of the xstrings library: a capital behind a capital becomes small, one of several connectors stays.
fn camelcase(text: &str) -> String {
    let is_connector = |c: char| c == '_' || c == '-' || c.is_whitespace();
    let body = text.trim_start_matches(is_connector);
    let mut out = text[..text.len() - body.len()].to_string();
    let mut previous: Option<char> = None;
    for c in body.chars() {
        match previous {
            Some(p) if is_connector(c) => {
                if is_connector(p) {
                    out.push(p);
                }
            }
            None => out.extend(c.to_uppercase()),
            Some(p) if is_connector(p) => out.extend(c.to_uppercase()),
            Some(p) if p.is_uppercase() && c.is_uppercase() => out.extend(c.to_lowercase()),
            Some(_) => out.push(c),
        }
        previous = Some(c);
    }
    out
}

/// A slice by bytes that never cuts a character: the part before the cut is kept.
fn cut(text: &str, from: usize, to: usize) -> &str {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (from, to) = (floor(from), floor(to));
    if from >= to { "" } else { &text[from..to] }
}

fn substring(start: i64, end: i64, text: &str) -> &str {
    if start < 0 {
        return cut(text, 0, usize::try_from(end).unwrap_or(0));
    }
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    match usize::try_from(end) {
        Ok(end) if end <= text.len() => cut(text, start, end),
        _ => cut(text, start, text.len()),
    }
}

fn truncate(count: i64, text: &str) -> &str {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 && text.len() > size {
        return cut(text, text.len() - size, text.len());
    }
    if count >= 0 && text.len() > size { cut(text, 0, size) } else { text }
}

/// `abbrev` and `abbrevboth` of the goutils library.
fn abbreviate(offset: i64, width: i64, text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (length, mut offset) = (chars.len() as i64, offset);
    if width < 4 || (offset > 0 && width < 7) || length <= width {
        return text.to_string();
    }
    let take = |from: i64, to: i64| -> String {
        let from = usize::try_from(from).unwrap_or(0).min(chars.len());
        let to = usize::try_from(to).unwrap_or(0).clamp(from, chars.len());
        chars[from..to].iter().collect()
    };
    offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return take(0, width - 3) + "...";
    }
    if offset + width - 3 < length {
        return format!("...{}", abbreviate(0, width - 3, &take(offset, length)));
    }
    format!("...{}", take(length - (width - 3), length))
}

/// `WrapCustom` of goutils; `break_words` cuts words that are longer than a line.
fn wrap(call: &mut Call<'_, '_>, text: &str, width: i64, newline: &str, break_words: bool) -> Answer {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    let chars: Vec<char> = text.chars().collect();
    call.run.charge(chars.len() as u64 / 16)?;
    let newline = if newline.is_empty() { "\n" } else { newline };
    let mut out = String::new();
    let mut offset = 0;
    while chars.len().saturating_sub(offset) > width {
        if chars[offset] == ' ' {
            offset += 1;
            continue;
        }
        let end = offset + width + 1;
        match chars[offset..end.min(chars.len())].iter().rposition(|c| *c == ' ') {
            Some(space) => {
                out.extend(&chars[offset..offset + space]);
                out.push_str(newline);
                offset += space + 1;
            }
            None if break_words => {
                out.extend(&chars[offset..offset + width]);
                out.push_str(newline);
                offset += width;
            }
            None => match chars[offset + width..].iter().position(|c| *c == ' ') {
                Some(space) => {
                    let space = offset + width + space;
                    out.extend(&chars[offset..space]);
                    out.push_str(newline);
                    offset = space + 1;
                }
                None => {
                    out.extend(&chars[offset..]);
                    offset = chars.len();
                }
            },
        }
        call.run.charge(1)?;
    }
    out.extend(&chars[offset.min(chars.len())..]);
    call.text(out)
}

fn repeat(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Ok(count) = usize::try_from(int(args, 0)) else {
        return Err(Fault::message("strings: negative Repeat count"));
    };
    let text = s(args, 1);
    call.run.string(text.len().saturating_mul(count))?;
    Ok(Value::str(text.repeat(count)))
}

fn indent(call: &mut Call<'_, '_>, spaces: i64, text: &str, before: &str) -> Answer {
    let Ok(spaces) = usize::try_from(spaces) else {
        return Err(Fault::message("strings: negative Repeat count"));
    };
    let lines = text.bytes().filter(|b| *b == b'\n').count() + 1;
    call.run.string(lines.saturating_mul(spaces).saturating_add(text.len()))?;
    let pad = " ".repeat(spaces);
    Ok(Value::str(format!("{before}{pad}{}", text.replace('\n', &format!("\n{pad}")))))
}

fn replace(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let (old, new, text) = (s(args, 0), s(args, 1), s(args, 2));
    let places = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    call.run.string(places.saturating_mul(new.len()).saturating_add(text.len()))?;
    Ok(Value::str(text.replace(old, new)))
}
