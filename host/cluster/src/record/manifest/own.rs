//! Reads the YAML that we write, and nothing else.
//!
//! A history is read at every reconciliation, and a parser of all of YAML takes some forty times as long as one of JSON.
//! What deviates from our form in anything is left to that parser.

use serde_json::{Map, Value};

use super::{MANIFEST_DEPTH, is_plain};

/// The object of a document; nothing if it is not in our form.
pub(super) fn read(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text, depth: 0 };
    let value = reader.map(0)?;
    reader.rest.trim().is_empty().then_some(value)
}

/// Stands at the begin of a token, and after a value at the begin of a line.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    /// Whether the next line stands at this column and begins with an item of a list, or with something else.
    fn next_is(&self, indent: usize, item: bool) -> bool {
        let line = self.rest.trim_start_matches(' ');
        !line.is_empty() && self.rest.len() - line.len() == indent && line.starts_with("- ") == item
    }

    fn skip(&mut self, columns: usize) -> Option<()> {
        self.rest = self.rest.get(columns..)?;
        Some(())
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let value = if self.depth > MANIFEST_DEPTH { None } else { read(self) };
        self.depth -= 1;
        value
    }

    /// A map whose first key is next.
    fn map(&mut self, indent: usize) -> Option<Value> {
        self.deeper(|reader| {
            let mut map = Map::new();
            loop {
                let key = reader.text(':')?;
                reader.take(":")?;
                let value = if reader.take("\n").is_none() {
                    reader.take(" ")?;
                    reader.scalar(indent + 2)?
                } else if reader.next_is(indent, true) {
                    reader.skip(indent)?;
                    reader.list(indent)?
                } else if reader.next_is(indent + 2, false) {
                    reader.skip(indent + 2)?;
                    reader.map(indent + 2)?
                } else {
                    return None;
                };
                map.insert(key, value);
                if !reader.next_is(indent, false) {
                    return Some(Value::Object(map));
                }
                reader.skip(indent)?;
            }
        })
    }

    /// A list whose first item is next.
    fn list(&mut self, indent: usize) -> Option<Value> {
        self.deeper(|reader| {
            let mut items = Vec::new();
            loop {
                reader.take("- ")?;
                items.push(if reader.rest.starts_with("- ") {
                    reader.list(indent + 2)?
                } else if reader.is_key() {
                    reader.map(indent + 2)?
                } else {
                    reader.scalar(indent + 2)?
                });
                if !reader.next_is(indent, true) {
                    return Some(Value::Array(items));
                }
                reader.skip(indent)?;
            }
        })
    }

    /// Whether a key is next, and not a value.
    fn is_key(&self) -> bool {
        let line = self.line();
        match line.strip_prefix('"') {
            Some(quoted) => {
                end_of_quoted(quoted).and_then(|end| quoted.get(end + 1..)).is_some_and(|it| it.starts_with(':'))
            }
            None => line.contains(": ") || line.ends_with(':'),
        }
    }

    fn line(&self) -> &'a str {
        self.rest.split_once('\n').map_or(self.rest, |(line, _)| line)
    }

    /// A text up to a delimiter, which a text without quotes may have inside: the last one in front of a blank or the
    /// end of the line counts.
    fn text(&mut self, delimiter: char) -> Option<String> {
        if let Some(quoted) = self.rest.strip_prefix('"') {
            let end = end_of_quoted(quoted)?;
            self.rest = quoted.get(end + 1..)?;
            return unquoted(quoted.get(..end)?);
        }
        let line = self.line();
        let end = match delimiter {
            ':' => line.find(": ").or_else(|| line.strip_suffix(':').map(str::len))?,
            _ => line.len(),
        };
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        is_plain(text).then(|| text.to_owned())
    }

    /// A value that ends with its line, or a block of lines that begins at a column.
    fn scalar(&mut self, indent: usize) -> Option<Value> {
        let line = self.line();
        let value = match line {
            "|" | "|-" => {
                self.rest = self.rest.get(line.len()..)?;
                self.take("\n")?;
                return self.block(indent, line == "|");
            }
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "{}" => Value::Object(Map::new()),
            "[]" => Value::Array(Vec::new()),
            number if number.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Value::Number(serde_json::from_str(number).ok()?)
            }
            _ => {
                let text = self.text('\n')?;
                self.take("\n").or_else(|| self.rest.is_empty().then_some(()))?;
                return Some(Value::String(text));
            }
        };
        self.rest = self.rest.get(line.len()..)?;
        self.take("\n").or_else(|| self.rest.is_empty().then_some(()))?;
        Some(value)
    }

    fn block(&mut self, indent: usize, ends: bool) -> Option<Value> {
        let mut text = String::new();
        while !self.rest.is_empty() {
            let line = self.line();
            let content = match line.split_at_checked(indent) {
                _ if line.is_empty() => "",
                Some((blank, content)) if blank.bytes().all(|byte| byte == b' ') => content,
                _ => break,
            };
            // Another parser would take the column of the first line for that of all.
            if text.is_empty() && content.starts_with([' ', '\t', '\n']) || text.is_empty() && content.is_empty() {
                return None;
            }
            text.push_str(content);
            text.push('\n');
            self.rest = self.rest.get(line.len()..)?;
            let _ = self.take("\n");
        }
        text.truncate(text.trim_end_matches('\n').len());
        if text.is_empty() {
            return None;
        }
        if ends {
            text.push('\n');
        }
        Some(Value::String(text))
    }
}

/// Where the closing quotation mark is, counted from after the opening one.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\n' => return None,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unquoted(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = after.chars();
        out.push(match chars.next()? {
            '"' => '"',
            '\\' => '\\',
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'U' => {
                let code = chars.as_str().get(..8)?;
                chars = chars.as_str().get(8..)?.chars();
                char::from_u32(u32::from_str_radix(code, 16).ok()?)?
            }
            _ => return None,
        });
        rest = chars.as_str();
    }
    out.push_str(rest);
    Some(out)
}
