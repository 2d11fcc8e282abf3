//! The reader: events to one JSON value, with anchors, merge keys and go-yaml's errors.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value as Json};

use super::scalar::{Scalar, resolve};
use crate::value::VALUE_DEPTH_MAX;

/// Why a text is not a YAML document.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// From 1, in the text that was read.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// In go-yaml's words where they are known, with its `yaml: ` or `json: ` in front.
    pub(crate) message: String,
    /// The document has more nodes than allowed.
    pub(crate) too_large: bool,
}

enum Frame {
    List { items: Vec<Json>, anchor: usize, start: usize },
    Map { entries: Map<String, Json>, key: Option<Key>, anchor: usize, start: usize },
}

enum Key {
    Text(String),
    Merge,
}

/// Reads the first document of a text; an empty text is `Null`.
///
/// `nodes` bounds the nodes of the value, counting those of an alias each time that it is used.
pub(crate) fn read(text: &str, nodes: usize) -> Result<Json, ReadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start_matches(['\n', '\r', ' ']).starts_with('\t') {
        let message = "yaml: found character that cannot start any token".to_string();
        return Err(ReadError { line: 1, column: 0, message, too_large: false });
    }
    let is_control = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}');
    if let Some(at) = text.find(is_control) {
        let line = text[..at].matches('\n').count() + 1;
        let message = "yaml: control characters are not allowed".to_string();
        return Err(ReadError { line, column: 0, message, too_large: false });
    }
    if let Some((line, problem)) = directive(text) {
        let message = positioned(line, problem);
        return Err(ReadError { line, column: 0, message, too_large: false });
    }
    if text.starts_with(['&', '*']) {
        // The parser underneath is content with more characters in a name.
        let name = text[1..].trim_start_matches(is_name);
        if name.starts_with(|c: char| !c.is_whitespace() && !"?:,]}%@`".contains(c)) {
            let message = "yaml: did not find expected alphabetic or numeric character".to_string();
            return Err(ReadError { line: 1, column: 0, message, too_large: false });
        }
    }
    // libyaml gives a block scalar its final line break only if the text has it; the parser underneath always does.
    let cut_off = (!text.ends_with('\n')).then(|| text.chars().count());
    let mut reader = Reader { frames: Vec::new(), anchors: HashMap::new(), used: 0, nodes, root: None, key_at: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            // What follows a document that is complete is not read.
            Err(_) if reader.root.is_some() => break,
            Err(error) => {
                let marker = error.marker();
                let rest = || text.char_indices().nth(marker.index()).map_or("", |(at, _)| &text[at..]);
                if error.info().contains("trailing content after") && reader.frames.is_empty() {
                    let end = text.len() - rest().len();
                    return match &text[..end] {
                        shorter if shorter.len() < text.len() => read(shorter, nodes),
                        _ => Err(plain(format!("yaml: {}", error.info()))),
                    };
                }
                let message = if error.info().contains("unknown anchor") {
                    let after = rest().trim_start_matches(['*', ' ']);
                    let name = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
                    format!("yaml: unknown anchor '{name}' referenced")
                } else {
                    message(error.info(), marker.line())
                };
                return Err(ReadError {
                    line: marker.line(),
                    column: marker.col(),
                    message,
                    too_large: error.info().contains("recursion limit"),
                });
            }
        };
        let place = (span.start.line(), span.start.col());
        match event {
            Event::StreamEnd => break,
            Event::DocumentEnd => {
                // Only the first document counts, but go-yaml has read up to the start of the second.
                break;
            }
            Event::Scalar(value, style @ (ScalarStyle::Literal | ScalarStyle::Folded), anchor, tag)
                if cut_off.is_some_and(|end| span.end.index() >= end) && value.ends_with('\n') =>
            {
                let value = value[..value.len() - 1].to_string().into();
                reader.event(Event::Scalar(value, style, anchor, tag)).map_err(|mut error| {
                    (error.line, error.column) = place;
                    error
                })?;
            }
            event => reader.event(event).map_err(|mut error| {
                (error.line, error.column) = place;
                error
            })?,
        }
    }
    Ok(reader.root.unwrap_or(Json::Null))
}

/// go-yaml's words for the common mistakes.
fn message(info: &str, line: usize) -> String {
    let lower = info.to_ascii_lowercase();
    let known = if lower.contains("mapping values are not allowed") {
        "mapping values are not allowed in this context"
    } else if lower.starts_with("unexpected character") {
        "found character that cannot start any token"
    } else if lower.contains("simple key expect") || lower.contains("simple key expected") {
        "could not find expected ':'"
    } else if lower.contains("did not find expected key")
        || lower.contains("trailing content after")
        || lower.contains("<block end>")
    {
        "did not find expected key"
    } else {
        // The context in front is not in go-yaml's messages.
        let known = info.rsplit_once(", ").filter(|(context, _)| context.starts_with("while "));
        match known.map_or(info, |(_, problem)| problem) {
            "expected ',' or ']'" => "did not find expected ',' or ']'",
            "expected ',' or '}'" => "did not find expected ',' or '}'",
            problem => problem,
        }
    };
    if known.starts_with("did not find expected") {
        // Errors of go-yaml's parser carry the line before the one that its scanner would name.
        let line = line.saturating_sub(1);
        return if line > 0 { format!("yaml: line {line}: {known}") } else { format!("yaml: {known}") };
    }
    positioned(line, known)
}

fn positioned(line: usize, problem: &str) -> String {
    if line > 1 { format!("yaml: line {line}: {problem}") } else { format!("yaml: {problem}") }
}

/// Whether a character can be part of the name of an anchor or a directive.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// The first directive in front of the document that libyaml refuses, with its line. The parser underneath knows more.
fn directive(text: &str) -> Option<(usize, &'static str)> {
    let head = text.lines().enumerate().take_while(|(_, line)| line.starts_with(['%', '#']) || line.trim().is_empty());
    head.filter(|(_, line)| line.starts_with('%')).find_map(|(number, line)| {
        let rest = line[1..].trim_start_matches(is_name);
        let name = &line[1..line.len() - rest.len()];
        let problem = match name {
            "" => "could not find expected directive name",
            _ if rest.starts_with(|c: char| !c.is_whitespace()) => "found unexpected non-alphabetical character",
            "YAML" if rest.trim() != "1.1" => "found incompatible YAML document",
            "YAML" | "TAG" => return None,
            _ => "found unknown directive name",
        };
        Some((number + 1, problem))
    })
}

struct Reader {
    frames: Vec<Frame>,
    anchors: HashMap<usize, (Json, usize)>,
    used: usize,
    nodes: usize,
    root: Option<Json>,
    /// How many frames were open where a map or a list stands in the place of a key.
    key_at: Option<usize>,
}

fn plain(message: impl Into<String>) -> ReadError {
    ReadError { line: 0, column: 0, message: message.into(), too_large: false }
}

impl Reader {
    fn count(&mut self, nodes: usize) -> Result<(), ReadError> {
        self.used = self.used.saturating_add(nodes);
        if self.used > self.nodes || self.frames.len() > VALUE_DEPTH_MAX {
            let message = "yaml: document is too large or nested too deep".to_string();
            return Err(ReadError { line: 0, column: 0, message, too_large: true });
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) -> Result<(), ReadError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1)?;
                let is_plain = style == ScalarStyle::Plain;
                if self.wants_key() {
                    let key = key(&text, is_plain, tag.as_deref())?;
                    if anchor != 0
                        && let Key::Text(text) = &key
                    {
                        self.anchors.insert(anchor, (Json::String(text.clone()), 1));
                    }
                    self.set_key(key);
                } else {
                    let value = scalar(&text, is_plain, tag.as_deref())?;
                    self.value(value, anchor, 1)?;
                }
            }
            Event::Alias(id) => {
                let Some((value, size)) = self.anchors.get(&id).cloned() else {
                    return Err(plain("yaml: an alias stands inside of what it names"));
                };
                self.count(size)?;
                if self.wants_key() {
                    match value {
                        Json::String(text) => self.set_key(Key::Text(text)),
                        value => {
                            let key = key(&value.to_string(), true, None)?;
                            self.set_key(key);
                        }
                    }
                } else {
                    self.value(value, 0, size)?;
                }
            }
            Event::SequenceStart(anchor, _) => {
                self.open()?;
                self.frames.push(Frame::List { items: Vec::new(), anchor, start: self.used });
            }
            Event::MappingStart(anchor, _) => {
                self.open()?;
                self.frames.push(Frame::Map { entries: Map::new(), key: None, anchor, start: self.used });
            }
            Event::SequenceEnd | Event::MappingEnd => match self.frames.pop() {
                Some(Frame::List { items, anchor, start }) => {
                    self.value(Json::Array(items), anchor, self.used - start + 1)?;
                }
                Some(Frame::Map { entries, anchor, start, .. }) => {
                    self.value(Json::Object(entries), anchor, self.used - start + 1)?;
                }
                None => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), ReadError> {
        self.count(1)?;
        if self.wants_key() && self.key_at.is_none() {
            self.key_at = Some(self.frames.len());
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Map { key: None, .. }))
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame::Map { key, .. }) = self.frames.last_mut() {
            *key = Some(new);
        }
    }

    fn value(&mut self, value: Json, anchor: usize, size: usize) -> Result<(), ReadError> {
        if anchor != 0 {
            self.count(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        if self.key_at == Some(self.frames.len()) {
            let mut shown = String::new();
            go_syntax(&value, &mut shown);
            return Err(plain(format!("yaml: invalid map key: {shown}")));
        }
        match self.frames.last_mut() {
            None => self.root = Some(value),
            Some(Frame::List { items, .. }) => items.push(value),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                Some(Key::Text(key)) => {
                    entries.insert(key, value);
                }
                Some(Key::Merge) => merge(entries, value)?,
                None => {}
            },
        }
        Ok(())
    }
}

/// A value as Go source, cut off where it is long.
fn go_syntax(value: &Json, out: &mut String) {
    const SHOWN_MAX: usize = 1_000;
    if out.len() > SHOWN_MAX {
        return;
    }
    match value {
        Json::Null => out.push_str("interface {}(nil)"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::String(text) => out.push_str(&crate::gofmt::quote(text)),
        Json::Number(number) => match number.as_i64() {
            Some(int) => out.push_str(&int.to_string()),
            None => out.push_str(&crate::gofmt::float(number.as_f64().unwrap_or(0.0))),
        },
        Json::Array(items) => {
            out.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                go_syntax(item, out);
            }
            out.push('}');
        }
        Json::Object(entries) => {
            out.push_str("map[interface {}]interface {}{");
            for (i, (key, item)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                out.push_str(&crate::gofmt::quote(key));
                out.push(':');
                go_syntax(item, out);
            }
            out.push('}');
        }
    }
}

fn merge(entries: &mut Map<String, Json>, value: Json) -> Result<(), ReadError> {
    let wrong = || plain("yaml: map merge requires map or sequence of maps as the value");
    match value {
        Json::Object(map) => entries.extend(map),
        Json::Array(items) => {
            // Earlier maps win, so they are written last.
            for item in items.into_iter().rev() {
                let Json::Object(map) = item else { return Err(wrong()) };
                entries.extend(map);
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn core_tag(tag: &Tag) -> Option<&str> {
    (tag.handle == "tag:yaml.org,2002:" || tag.handle == "!!").then_some(tag.suffix.as_str())
}

fn number(scalar: &Scalar) -> Result<Option<Json>, ReadError> {
    Ok(Some(match scalar {
        Scalar::Int(i) => Json::from(*i),
        Scalar::Uint(u) => Json::from(*u),
        Scalar::Float(f) => match serde_json::Number::from_f64(*f) {
            Some(n) => Json::Number(n),
            None => {
                return Err(plain(format!("json: unsupported value: {}", crate::gofmt::float(*f))));
            }
        },
        _ => return Ok(None),
    }))
}

fn scalar(text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<Json, ReadError> {
    let string = || Json::String(text.to_string());
    let Some(tag) = tag else {
        if !is_plain {
            return Ok(string());
        }
        let resolved = resolve(text);
        return Ok(match &resolved {
            Scalar::Null => Json::Null,
            Scalar::Bool(b) => Json::Bool(*b),
            Scalar::Timestamp | Scalar::Merge | Scalar::Str => string(),
            other => number(other)?.unwrap_or_else(string),
        });
    };
    let resolved = resolve(text);
    let cannot = |tag: &str| {
        plain(format!("yaml: cannot decode !!str `{}` as a !!{tag}", text.chars().take(20).collect::<String>()))
    };
    match core_tag(tag) {
        Some("null") => Ok(Json::Null),
        Some("bool") => match resolved {
            Scalar::Bool(b) => Ok(Json::Bool(b)),
            _ => Err(cannot("bool")),
        },
        Some("int") => match resolved {
            Scalar::Int(_) | Scalar::Uint(_) => Ok(number(&resolved)?.unwrap_or_else(string)),
            _ => Err(cannot("int")),
        },
        Some("float") => match resolved {
            Scalar::Int(_) | Scalar::Uint(_) | Scalar::Float(_) => Ok(number(&resolved)?.unwrap_or_else(string)),
            _ => Err(cannot("float")),
        },
        Some("binary") => {
            use base64::Engine as _;
            let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(compact)
                .map_err(|_| plain("yaml: !!binary value contains invalid base64 data"))?;
            Ok(Json::String(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => Ok(string()),
    }
}

fn key(text: &str, is_plain: bool, tag: Option<&Tag>) -> Result<Key, ReadError> {
    if tag.is_none() && is_plain && text == "<<" {
        return Ok(Key::Merge);
    }
    Ok(Key::Text(match scalar(text, is_plain, tag)? {
        Json::Null => {
            return Err(plain("a map key is null; it must be a string, a number or a boolean"));
        }
        Json::Bool(b) => b.to_string(),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), ..) => i.to_string(),
            (_, Some(u), _) => u.to_string(),
            // Keys are formatted as 32-bit floats, a quirk of the library that Kubernetes uses.
            (.., Some(f)) => short_float(f),
            _ => n.to_string(),
        },
        Json::String(text) => text,
        other => other.to_string(),
    }))
}

fn short_float(f: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the narrowing is what is imitated")]
    let narrow = f as f32;
    narrow.to_string().parse::<f64>().map_or_else(|_| narrow.to_string(), crate::gofmt::float)
}
