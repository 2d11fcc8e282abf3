//! The manifest of a release: YAML documents, each under a line `# Source: <template>`.
//!
//! Helm reads them with a parser of YAML 1.1, we with one of 1.2, and people with their eyes. So text is left without
//! quotes only where nobody can take it for anything else, and is a block of lines only where no reader trims anything.
//! What we write comes back as exactly the same JSON.

use barbless_domain::release::OBJECTS_MAX;
use serde_json::{Map, Value};

use crate::limits::{MANIFEST_BYTES, MANIFEST_DEPTH, MANIFEST_NODES, MANIFEST_STACK};

mod own;

const SOURCE: &str = "# Source: ";
/// A key that is longer needs the explicit form: parsers look for its colon only so far, 1024 characters.
const SIMPLE_KEY: usize = 1000;

/// Appends a document.
pub(super) fn write(manifest: &mut String, source: &str, object: &Value) {
    let source: String = source.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect();
    manifest.push_str("---\n");
    manifest.push_str(SOURCE);
    manifest.push_str(&source);
    manifest.push('\n');
    body(manifest, object);
}

/// Appends an object as YAML.
fn body(out: &mut String, object: &Value) {
    match object {
        Value::Object(map) if !map.is_empty() => write_map(out, map, 0, true),
        Value::Array(items) if !items.is_empty() => write_list(out, items, 0, true),
        scalar => {
            scalar_text(out, scalar);
            out.push('\n');
        }
    }
}

/// An object as YAML, without the line that separates documents: the form of a hook.
pub(super) fn document(source: &str, object: &Value) -> String {
    let mut text = String::new();
    write(&mut text, source, object);
    text.split_off("---\n".len())
}

/// `last` says that nothing follows in the document. Helm trims its end, which a block of lines would not survive.
fn write_map(out: &mut String, map: &Map<String, Value>, indent: usize, last: bool) {
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            spaces(out, indent);
        }
        let start = out.len();
        text(out, key);
        if out.len() - start > SIMPLE_KEY {
            out.insert_str(start, "? ");
            out.push('\n');
            spaces(out, indent);
        }
        out.push(':');
        let last = last && index + 1 == map.len();
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                spaces(out, indent + 2);
                write_map(out, inner, indent + 2, last);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                spaces(out, indent);
                write_list(out, items, indent, last);
            }
            scalar => {
                out.push(' ');
                write_scalar(out, scalar, indent + 2, last);
            }
        }
    }
}

fn write_list(out: &mut String, items: &[Value], indent: usize, last: bool) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            spaces(out, indent);
        }
        out.push_str("- ");
        let last = last && index + 1 == items.len();
        match item {
            Value::Object(map) if !map.is_empty() => write_map(out, map, indent + 2, last),
            Value::Array(items) if !items.is_empty() => write_list(out, items, indent + 2, last),
            scalar => write_scalar(out, scalar, indent + 2, last),
        }
    }
}

fn write_scalar(out: &mut String, scalar: &Value, indent: usize, last: bool) {
    match scalar {
        Value::String(lines) if is_block(lines, last) => {
            out.push_str(if lines.ends_with('\n') { "|\n" } else { "|-\n" });
            for line in lines.lines() {
                if !line.is_empty() {
                    spaces(out, indent);
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        _ => {
            scalar_text(out, scalar);
            out.push('\n');
        }
    }
}

fn scalar_text(out: &mut String, scalar: &Value) {
    match scalar {
        Value::String(it) => text(out, it),
        // JSON of numbers, booleans, null and of empty maps and lists is YAML of either version.
        other => out.push_str(&other.to_string()),
    }
}

fn spaces(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}

fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
}

/// Whether a text needs no quotes in any version of YAML.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 14] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity", "t", "f"];
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '@');
    begins
        && text.chars().all(plain)
        && !text.ends_with(':')
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether a text of lines can be written as such.
fn is_block(text: &str, last: bool) -> bool {
    let (body, trimmed) = match text.strip_suffix('\n') {
        Some(body) => (body, last),
        None => (text, false),
    };
    let is_odd = |line: &str| line.starts_with('\t') || line.ends_with([' ', '\t']);
    let is_bare = body.is_empty() || body.starts_with(['\n', ' ']) || body.ends_with('\n');
    text.contains('\n')
        && !trimmed
        && !is_bare
        && !body.split('\n').any(is_odd)
        && body.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
}

/// What every parser takes as it stands.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// An object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    /// The template, if the document says so.
    pub(super) source: Option<String>,
    /// The object.
    pub(super) object: Value,
}

/// The objects of a manifest; those of lists one by one. Documents without an object are left out. `ours` says that
/// [`write`] most likely wrote it; then it is read faster.
///
/// # Errors
/// The first document that is no YAML.
pub(super) fn read(manifest: &str, ours: bool, left: &mut Budget) -> Result<Vec<Document>, String> {
    // The parser is recursive, and a record may have been written by anybody in the namespace.
    stacker::grow(MANIFEST_STACK, || {
        let mut documents = Vec::new();
        for text in split(manifest) {
            let source = text.lines().find_map(|line| line.strip_prefix(SOURCE)).map(str::to_owned);
            let value = parse(&text, ours, left).map_err(|why| {
                format!("the manifest of {:?} is no YAML: {why}", source.as_deref().unwrap_or("an unknown template"))
            })?;
            expand(value, source.as_ref(), &mut documents);
            if documents.len() > OBJECTS_MAX {
                return Err(format!("the manifest has more than {OBJECTS_MAX} objects"));
            }
        }
        Ok(documents)
    })
}

/// Splits where Helm does: at three dashes at the begin of a line, whatever follows them.
fn split(manifest: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in manifest.lines() {
        let body = match line.strip_prefix("---") {
            Some(rest) => {
                documents.push(String::new());
                rest.trim_start()
            }
            None => line,
        };
        if let Some(document) = documents.last_mut() {
            document.push_str(body);
            document.push('\n');
        }
    }
    documents
}

/// What the documents of a record may come to, aliases followed: a short text may repeat itself very often.
pub(super) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: MANIFEST_NODES, bytes: MANIFEST_BYTES }
    }
}

impl Budget {
    /// Takes what a value needs; false if that is too much.
    fn pay(&mut self, value: &Value) -> bool {
        let bytes = if let Value::String(text) = value { text.len() } else { 0 };
        let (Some(nodes), Some(bytes)) = (self.nodes.checked_sub(1), self.bytes.checked_sub(bytes)) else {
            return false;
        };
        *self = Self { nodes, bytes };
        match value {
            Value::Array(items) => items.iter().all(|item| self.pay(item)),
            Value::Object(map) => map.values().all(|item| self.pay(item)),
            _ => true,
        }
    }
}

fn parse(text: &str, ours: bool, left: &mut Budget) -> Result<Value, String> {
    let content = content(text);
    if content.is_empty() {
        return Ok(Value::Null);
    }
    if ours && let Some(value) = own::read(content) {
        return Ok(value);
    }
    // JSON is what some charts render, and it is read faster.
    if content.starts_with('{')
        && let Ok(value) = serde_json::from_str(content)
    {
        return Ok(value);
    }
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    if let Some(budget) = options.budget.as_mut() {
        budget.max_depth = MANIFEST_DEPTH;
        budget.max_nodes = budget.max_nodes.min(left.nodes);
        budget.max_total_scalar_bytes = left.bytes;
    }
    let value = serde_saphyr::from_str_with_options(content, options)
        .map_err(|error| error.without_snippet().to_string().lines().next().unwrap_or_default().to_owned())?;
    if left.pay(&value) { Ok(value) } else { Err("the documents repeat themselves too often".to_owned()) }
}

/// A document from its first line on that is neither blank nor a comment.
fn content(text: &str) -> &str {
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            break;
        }
        rest = after;
    }
    rest
}

/// Helm applies the items of lists, whatever the list is called.
fn expand(value: Value, source: Option<&String>, documents: &mut Vec<Document>) {
    let Value::Object(mut map) = value else { return };
    let is_list = map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
        && map.get("metadata").and_then(|metadata| metadata.get("name")).is_none();
    match map.get_mut("items") {
        Some(Value::Array(items)) if is_list => {
            for item in std::mem::take(items) {
                expand(item, source, documents);
            }
        }
        _ => documents.push(Document { source: source.cloned(), object: Value::Object(map) }),
    }
}

#[cfg(test)]
mod tests;
