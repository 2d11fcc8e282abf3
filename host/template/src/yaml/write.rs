//! The emitter: `toYaml` is JSON read as YAML and written by go-yaml v2; `toYamlPretty` is go-yaml v3 with two spaces.

use super::scalar::{Scalar, is_base60, resolve};
use crate::{
    json::EncodeError,
    value::{Elem, VALUE_DEPTH_MAX, VALUE_TEXT_MAX, Value},
};

/// Column behind which a space becomes a line break.
const BEST_WIDTH: usize = 80;
/// Longest key that is written as `key: value`; a longer one needs `? key`.
const SIMPLE_KEY_MAX: usize = 128;

/// `toYaml`, with its final line break.
pub(crate) fn write(value: &Value) -> Result<String, EncodeError> {
    emit(value, false)
}

/// `toYamlPretty`, with its final line break.
pub(crate) fn pretty(value: &Value) -> Result<String, EncodeError> {
    emit(value, true)
}

fn emit(value: &Value, v3: bool) -> Result<String, EncodeError> {
    let mut emitter = Emitter { out: String::new(), column: 0, v3, open: false };
    emitter.node(value, Place::Root, 0, 0)?;
    // A literal block ends with its own last line break still to be written.
    if emitter.open || !emitter.out.ends_with('\n') {
        emitter.out.push('\n');
    }
    Ok(emitter.out)
}

/// Where a node stands; it decides how its first line begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// Behind `key:`.
    MapValue,
    /// Behind `-`.
    Item,
}

struct Emitter {
    out: String,
    /// In characters, of the line being written.
    column: usize,
    v3: bool,
    /// The last thing written was a literal block.
    open: bool,
}

impl Emitter {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
        match text.rfind('\n') {
            Some(at) => self.column = text[at + 1..].chars().count(),
            None => self.column += text.chars().count(),
        }
    }

    fn push_char(&mut self, c: char) {
        self.out.push(c);
        self.column = if c == '\n' { 0 } else { self.column + 1 };
    }

    fn line(&mut self, indent: usize) {
        self.push_char('\n');
        for _ in 0..indent {
            self.push_char(' ');
        }
    }

    /// `indent` is the column of the collection that the node is part of.
    fn node(&mut self, value: &Value, place: Place, indent: usize, depth: usize) -> Result<(), EncodeError> {
        if depth > VALUE_DEPTH_MAX || self.out.len() > VALUE_TEXT_MAX {
            return Err(EncodeError::TooLarge);
        }
        match value {
            Value::List(list) if matches!(list.elem, Elem::NilStr | Elem::NilAny) && !self.v3 => {
                self.inline(place, "null")
            }
            Value::List(list) if list.items.is_empty() => self.inline(place, "[]"),
            Value::Map(map) if map.len() == 0 => self.inline(place, "{}"),
            Value::List(list) => {
                // Under a key, version 2 does not indent a sequence.
                let own = match place {
                    Place::Root => 0,
                    Place::MapValue if !self.v3 => indent,
                    Place::MapValue | Place::Item => indent + 2,
                };
                for (i, item) in list.items.iter().enumerate() {
                    match (i, place) {
                        (0, Place::Item) => self.push_char(' '),
                        (0, Place::Root) => {}
                        _ => self.line(own),
                    }
                    self.push_char('-');
                    self.node(item, Place::Item, own, depth + 1)?;
                }
            }
            Value::Map(map) => {
                let own = if place == Place::Root { 0 } else { indent + 2 };
                let mut pairs = map.pairs();
                pairs.sort_by(|(a, _), (b, _)| natural(a, b));
                for (i, (key, item)) in pairs.iter().enumerate() {
                    match (i, place) {
                        (0, Place::Item) => self.push_char(' '),
                        (0, Place::Root) => {}
                        _ => self.line(own),
                    }
                    if !simple_key(key) {
                        self.push("? ");
                        self.string(key, own + 2, false);
                        self.line(own);
                        self.push_char(':');
                        // Behind an explicit key a collection begins on the line of the colon.
                        self.node(item, Place::Item, own, depth + 1)?;
                        continue;
                    }
                    self.string(key, own, true);
                    self.push_char(':');
                    self.node(item, Place::MapValue, own, depth + 1)?;
                }
            }
            Value::Str(text) => {
                if place != Place::Root {
                    self.push_char(' ');
                }
                // A scalar's own lines are indented below its collection.
                let own = if place == Place::Root { 2 } else { indent + 2 };
                self.string(text, own, false);
            }
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                let text = base64::engine::general_purpose::STANDARD.encode(bytes);
                self.node(&Value::str(text), place, indent, depth + 1)?;
            }
            Value::Object(object) => self.node(&object.plain(), place, indent, depth + 1)?,
            Value::Nil => self.inline(place, "null"),
            Value::Bool(b) => self.inline(place, if *b { "true" } else { "false" }),
            Value::Int(i) | Value::Int64(i) => self.inline(place, &i.to_string()),
            Value::Float(f) if self.v3 => self.inline(place, &float(*f)),
            Value::Float(f) => {
                let json = crate::json::number(*f)?;
                let text = match resolve(&json) {
                    Scalar::Float(f) => float(f),
                    _ => json,
                };
                self.inline(place, &text);
            }
        }
        Ok(())
    }

    fn inline(&mut self, place: Place, text: &str) {
        self.open = false;
        if place != Place::Root {
            self.push_char(' ');
        }
        self.push(text);
    }

    fn string(&mut self, text: &str, indent: usize, is_key: bool) {
        self.open = false;
        let analysis = Analysis::of(text, self.v3);
        // Version 2 does not quote the sign of a merge, although it would not read it back as a string.
        let is_text = match resolve(text) {
            Scalar::Str => true,
            Scalar::Merge => !self.v3,
            _ => false,
        };
        let plain = is_text && !is_base60(text);
        let plain = plain && !(self.v3 && is_v3_quoted(text));
        let mut style = if text.contains('\n') {
            Style::Literal
        } else if plain {
            Style::Plain
        } else {
            Style::Double
        };
        if is_key && analysis.multiline {
            style = Style::Double;
        }
        if style == Style::Plain && (!analysis.plain || (text.is_empty() && is_key)) {
            style = Style::Single;
        }
        if style == Style::Single && !analysis.single {
            style = Style::Double;
        }
        if style == Style::Literal && (!analysis.block || is_key) {
            style = Style::Double;
        }
        match style {
            Style::Plain => self.plain(text, indent, !is_key),
            Style::Single => self.single(text, indent, !is_key),
            Style::Double => self.double(text, indent, !is_key),
            Style::Literal => self.literal(text, indent),
        }
    }

    fn folds(&self, allowed: bool, spaces: bool) -> bool {
        allowed && !self.v3 && !spaces && self.column > BEST_WIDTH
    }

    fn plain(&mut self, text: &str, indent: usize, breaks: bool) {
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                if self.folds(breaks, spaces) && chars.peek() != Some(&' ') {
                    self.line(indent);
                } else {
                    self.push_char(c);
                }
                spaces = true;
            } else {
                self.push_char(c);
                spaces = false;
            }
        }
    }

    fn single(&mut self, text: &str, indent: usize, breaks: bool) {
        self.push_char('\'');
        let mut spaces = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((i, c)) = chars.next() {
            let next = chars.peek().map(|(_, c)| *c);
            if c == ' ' {
                if self.folds(breaks, spaces) && i > 0 && next.is_some_and(|c| c != ' ') {
                    self.line(indent);
                } else {
                    self.push_char(c);
                }
                spaces = true;
            } else {
                if c == '\'' {
                    self.push_char('\'');
                }
                self.push_char(c);
                spaces = false;
            }
        }
        self.push_char('\'');
    }

    fn double(&mut self, text: &str, indent: usize, breaks: bool) {
        self.push_char('"');
        let mut spaces = false;
        let mut chars = text.chars().enumerate().peekable();
        while let Some((i, c)) = chars.next() {
            if c == ' ' {
                let next = chars.peek().map(|(_, c)| *c);
                if self.folds(breaks, spaces) && i > 0 && next.is_some() {
                    self.line(indent);
                    if next == Some(' ') {
                        self.push_char('\\');
                    }
                } else {
                    self.push_char(c);
                }
                spaces = true;
                continue;
            }
            spaces = false;
            let short = match c {
                '\0' => "\\0",
                '\x07' => "\\a",
                '\x08' => "\\b",
                '\t' => "\\t",
                '\n' => "\\n",
                '\x0b' => "\\v",
                '\x0c' => "\\f",
                '\r' => "\\r",
                '\x1b' => "\\e",
                '"' => "\\\"",
                '\\' => "\\\\",
                '\u{85}' => "\\N",
                '\u{2028}' => "\\L",
                '\u{2029}' => "\\P",
                c if is_printable(c) => {
                    self.push_char(c);
                    continue;
                }
                c => {
                    let code = c as u32;
                    let escape = if code <= 0xff {
                        format!("\\x{code:02X}")
                    } else if code <= 0xffff {
                        format!("\\u{code:04X}")
                    } else {
                        format!("\\U{code:08X}")
                    };
                    self.push(&escape);
                    continue;
                }
            };
            self.push(short);
        }
        self.push_char('"');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.open = true;
        self.push_char('|');
        if text.starts_with([' ', '\n', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.push_char('2');
        }
        if !text.ends_with('\n') {
            self.push_char('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.push_char('+');
        }
        let body = text.strip_suffix('\n').unwrap_or(text);
        for line in body.split('\n') {
            if line.is_empty() {
                self.push_char('\n');
            } else {
                self.line(indent);
                self.push(line);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

fn simple_key(key: &str) -> bool {
    key.len() <= SIMPLE_KEY_MAX && !key.contains(is_break)
}

fn float(f: f64) -> String {
    if f.is_nan() {
        return ".nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { ".inf".into() } else { "-.inf".into() };
    }
    crate::gofmt::float(f)
}

/// Strings that only YAML 1.1 takes for booleans: version 3 reads them as strings but still quotes them.
fn is_v3_quoted(text: &str) -> bool {
    matches!(resolve(text), Scalar::Bool(_))
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..) && c != '\u{feff}'
}

/// What the text of a scalar allows, after libyaml's `yaml_emitter_analyze_scalar`.
struct Analysis {
    multiline: bool,
    plain: bool,
    single: bool,
    block: bool,
}

impl Analysis {
    fn of(text: &str, v3: bool) -> Self {
        if text.is_empty() {
            return Self { multiline: false, plain: true, single: true, block: false };
        }
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut line_breaks, mut special, mut tabs) = (false, false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut preceded_by_white = true;
        let chars: Vec<char> = text.chars().collect();
        for (i, c) in chars.iter().copied().enumerate() {
            let followed = chars.get(i + 1).is_none_or(|c| matches!(c, ' ' | '\t') || is_break(*c));
            if i == 0 {
                indicators |= matches!(
                    c,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                );
                indicators |= matches!(c, '?' | ':' | '-') && followed;
            } else {
                indicators |= c == ':' && followed;
                indicators |= c == '#' && preceded_by_white;
            }
            special |= !(is_printable(c) || (v3 && c == '\t'));
            tabs |= c == '\t';
            line_breaks |= is_break(c);
            if c == ' ' {
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(c) {
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            preceded_by_white = matches!(c, ' ' | '\t') || is_break(c);
        }
        let first = chars.first().copied().unwrap_or_default();
        let last = chars.last().copied().unwrap_or_default();
        let edge = |c: char| c == ' ' || is_break(c);
        let bad = space_break || special;
        Self {
            multiline: line_breaks,
            plain: !(edge(first) || edge(last) || break_space || bad || tabs || line_breaks || indicators),
            single: !(break_space || bad || tabs),
            block: !(last == ' ' || bad),
        }
    }
}

/// go-yaml's order of keys: numbers inside them compare as numbers, and letters come after other characters.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let number = |chars: &[char], from: usize| {
        let mut end = from;
        let mut value = 0_i64;
        while let Some(digit) = chars.get(end).and_then(|c| c.to_digit(10)) {
            value = value.wrapping_mul(10).wrapping_add(digit.into());
            end += 1;
        }
        (end, value)
    };
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            continue;
        }
        let (al, bl) = (a[i].is_alphabetic(), b[i].is_alphabetic());
        if al && bl {
            return a[i].cmp(&b[i]);
        }
        if al || bl {
            return if bl { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        }
        let (ai, mut an) = number(&a, i);
        let (bi, mut bn) = number(&b, i);
        if a[i] == '0' || b[i] == '0' {
            for c in a[..i].iter().rev() {
                if !c.is_ascii_digit() {
                    break;
                }
                if *c != '0' {
                    an = an.wrapping_add(1_i64.wrapping_mul(10_i64.wrapping_pow((ai - i) as u32)));
                    bn = bn.wrapping_add(1_i64.wrapping_mul(10_i64.wrapping_pow((bi - i) as u32)));
                    break;
                }
            }
        }
        return an.cmp(&bn).then(ai.cmp(&bi)).then(a[i].cmp(&b[i]));
    }
    a.len().cmp(&b.len())
}
