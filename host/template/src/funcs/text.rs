//! Strings.

use std::sync::LazyLock;

use super::{Answer, Call, Entry, any, int, s};
use crate::{
    exec::Fault,
    gofmt,
    value::{Elem, MapKind, Value},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("upper", "s", |call, args| call.text(s(args, 0).chars().map(upper).collect::<String>())),
    ("lower", "s", |call, args| call.text(s(args, 0).chars().map(lower).collect::<String>())),
    ("title", "s", |call, args| call.text(title(s(args, 0)))),
    ("untitle", "s", |call, args| call.text(untitle(s(args, 0)))),
    ("trim", "s", |call, args| call.text(s(args, 0).trim())),
    ("trimAll", "ss", trim_all),
    ("trimall", "ss", trim_all),
    ("trimSuffix", "ss", |call, args| call.text(s(args, 1).strip_suffix(s(args, 0)).unwrap_or(s(args, 1)))),
    ("trimPrefix", "ss", |call, args| call.text(s(args, 1).strip_prefix(s(args, 0)).unwrap_or(s(args, 1)))),
    // The goutils library takes bytes for characters.
    ("nospace", "s", |call, args| {
        // Byte by byte, as in sprig; a text without spaces is left alone.
        let text = s(args, 0);
        let kept: String = text.bytes().map(char::from).filter(|c| !c.is_whitespace()).collect();
        call.text(if kept.chars().count() == text.len() { text.to_owned() } else { kept })
    }),
    ("initials", "s", |call, args| {
        call.text(
            s(args, 0).split_whitespace().filter_map(|word| word.bytes().next()).map(char::from).collect::<String>(),
        )
    }),
    ("swapcase", "s", |call, args| call.text(swapcase(s(args, 0)))),
    ("snakecase", "s", |call, args| call.text(delimited(s(args, 0), '_'))),
    ("kebabcase", "s", |call, args| call.text(delimited(s(args, 0), '-'))),
    ("camelcase", "s", |call, args| call.text(camelcase(s(args, 0)))),
    ("substr", "iis", |call, args| call.text(substring(int(args, 0), int(args, 1), s(args, 2))?)),
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
        Value::List(list) if matches!(list.elem, Elem::Any | Elem::NilAny) => {
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
            out.push(upper(c))
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
            out.push(lower(c))
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
            out.push(lower(c));
        } else if c.is_lowercase() {
            out.push(upper(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// `snakecase` and `kebabcase` of the xstrings library.
fn delimited(text: &str, connector: char) -> String {
    use Piece::{Connector, Number, Punctuation, Small};
    let mut out = String::with_capacity(text.len() + 8);
    let write = |out: &mut String, (kind, piece): (Piece, &str)| match kind {
        Connector => out.extend(piece.chars().map(|_| connector)),
        Piece::Capital => piece.chars().for_each(|c| out.push(lower(c))),
        _ => out.push_str(piece),
    };
    // Between two pieces, unless one of them separates by itself.
    let join = |out: &mut String, next: Option<(Piece, &str)>| {
        if next.is_some_and(|(kind, _)| !matches!(kind, Connector | Punctuation)) {
            out.push(connector);
        }
    };
    let all = runs(text);
    let mut rest = all.iter().copied().peekable();
    let mut current = rest.next();
    while let Some(piece) = current {
        let is_last = rest.peek().is_none();
        write(&mut out, piece);
        current = rest.next();
        if is_last {
            break;
        }
        match (piece.0, current) {
            (Connector | Punctuation, _) => {}
            // A number takes the small letters behind it along.
            (Number, _) => {
                while let Some(next) = current.filter(|(kind, _)| matches!(kind, Small | Number)) {
                    write(&mut out, next);
                    current = rest.next();
                }
                join(&mut out, current);
            }
            // It belongs to the word before it, unless small letters follow. The last piece stands as it is.
            (_, Some(number @ (Number, _))) if rest.peek().is_some() => {
                current = rest.next();
                let small = current.is_some_and(|(kind, _)| kind == Small);
                if small {
                    out.push(connector);
                }
                write(&mut out, number);
                while let Some(next) = current.filter(|(kind, _)| small && matches!(kind, Small | Number)) {
                    write(&mut out, next);
                    current = rest.next();
                }
                join(&mut out, current);
            }
            (_, Some((Number, _))) => {}
            (_, next) => join(&mut out, next),
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Connector,
    Punctuation,
    /// Begins with a capital: capitals only, or one and small letters.
    Capital,
    Small,
    Number,
    Other,
}

static PUNCTUATION: LazyLock<Option<regex::Regex>> = LazyLock::new(|| regex::Regex::new(r"\A\p{P}").ok());

fn piece_of(c: char) -> Piece {
    let mut bytes = [0; 4];
    if c == '-' || c == '_' || c.is_whitespace() {
        Piece::Connector
    } else if PUNCTUATION.as_ref().is_some_and(|p| p.is_match(c.encode_utf8(&mut bytes))) {
        Piece::Punctuation
    } else if c.is_uppercase() {
        Piece::Capital
    } else if c.is_alphabetic() && !('\u{4e00}'..='\u{9fcc}').contains(&c) && !('\u{3400}'..='\u{4d85}').contains(&c) {
        Piece::Small
    } else if c.is_numeric() {
        Piece::Number
    } else {
        Piece::Other
    }
}

fn runs(text: &str) -> Vec<(Piece, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let kind = piece_of(first);
        let end_of = |from: usize, kind: Piece| {
            let tail = rest.get(from..).unwrap_or_default();
            from + tail.find(|c| piece_of(c) != kind).unwrap_or(tail.len())
        };
        let mut end = end_of(0, kind);
        if kind == Piece::Capital {
            let small = end_of(end, Piece::Small);
            let last = rest.get(..end).and_then(|run| run.chars().next_back()).map_or(0, char::len_utf8);
            // Of several capitals, the last one begins the word that follows: HTTP, Status.
            if small > end {
                end = if end > last { end - last } else { small };
            }
        }
        let (piece, behind) = rest.split_at(end);
        found.push((kind, piece));
        rest = behind;
    }
    found
}

/// `ToPascalCase` of the xstrings library: a word of capitals keeps the first, connectors at both ends stay.
fn camelcase(text: &str) -> String {
    let is_connector = |c: char| c == '_' || c == '-' || c.is_whitespace();
    let body = text.trim_start_matches(is_connector);
    let mut out = text[..text.len() - body.len()].to_string();
    let mut chars = body.chars();
    let Some(first) = chars.next() else { return out };
    let (mut previous, mut capitals) = (upper(first), first.is_uppercase());
    for mut c in chars {
        if is_connector(previous) {
            if is_connector(c) {
                out.push(previous);
                previous = c;
                continue;
            }
            capitals = c.is_uppercase();
            c = upper(c);
        } else {
            if capitals && c.is_uppercase() {
                c = lower(c);
            } else {
                capitals = false;
            }
            out.push(previous);
        }
        previous = c;
    }
    out.push(previous);
    out
}

/// One character for one, as in Go: `ß` has no capital.
fn upper(c: char) -> char {
    let mut all = c.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

fn lower(c: char) -> char {
    // The only capital whose small form is two characters begins with the one that Go takes.
    c.to_lowercase().next().unwrap_or(c)
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

fn substring(start: i64, end: i64, text: &str) -> Result<&str, Fault> {
    let length = text.len();
    let out_of_range =
        |range: String| Err(Fault::message(format!("runtime error: slice bounds out of range [{range}")));
    let (from, to) = (usize::try_from(start), usize::try_from(end));
    match (from, to) {
        (Err(_), Err(_)) => out_of_range(format!(":{end}]")),
        (Err(_), Ok(to)) if to > length => out_of_range(format!(":{to}] with length {length}")),
        (Err(_), Ok(to)) => Ok(cut(text, 0, to)),
        (Ok(from), Ok(to)) if to <= length && from > to => out_of_range(format!("{from}:{to}]")),
        (Ok(from), Ok(to)) if to <= length => Ok(cut(text, from, to)),
        (Ok(from), _) if from > length => out_of_range(format!("{from}:{length}]")),
        (Ok(from), _) => Ok(cut(text, from, length)),
    }
}

fn truncate(count: i64, text: &str) -> &str {
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 && text.len() > size {
        return cut(text, text.len() - size, text.len());
    }
    if count >= 0 && text.len() > size { cut(text, 0, size) } else { text }
}

/// `abbrev` and `abbrevboth` of the goutils library, which counts bytes.
fn abbreviate(offset: i64, width: i64, text: &str) -> String {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if width < 4 || (offset > 0 && width < 7) || length <= width {
        return text.to_string();
    }
    let at = |position: i64| usize::try_from(position).unwrap_or(0);
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return format!("{}...", cut(text, 0, at(width - 3)));
    }
    if offset + width - 3 < length {
        return format!("...{}", abbreviate(0, width - 3, cut(text, at(offset), text.len())));
    }
    format!("...{}", cut(text, at(length - (width - 3)), text.len()))
}

/// `WrapCustom` of goutils, which counts bytes; `break_words` cuts words that are longer than a line.
fn wrap(call: &mut Call<'_, '_>, text: &str, width: i64, newline: &str, break_words: bool) -> Answer {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    let bytes = text.as_bytes();
    call.run.charge(bytes.len() as u64 / 16)?;
    let newline = if newline.is_empty() { "\n" } else { newline };
    let mut out = String::new();
    let mut offset = 0;
    while bytes.len().saturating_sub(offset) > width {
        let rest = &bytes[offset..];
        if rest.first() == Some(&b' ') {
            offset += 1;
            continue;
        }
        let (end, skipped) = match rest[..rest.len().min(width + 1)].iter().rposition(|b| *b == b' ') {
            Some(space) => (offset + space, 1),
            None if break_words => (offset + width, 0),
            None => match rest[width..].iter().position(|b| *b == b' ') {
                Some(space) => (offset + width + space, 1),
                None => break,
            },
        };
        out.push_str(cut(text, offset, end));
        out.push_str(newline);
        // A space at the end of a line is gone.
        offset = end + skipped;
        call.run.charge(1)?;
    }
    out.push_str(cut(text, offset, text.len()));
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
