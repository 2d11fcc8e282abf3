//! JSON in and out. Strict when it reads: nothing but what the standard allows. Objects are always sorted by key.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::number::Number;
use crate::value::Value;

/// Levels that an input may have. The host itself reads no JSON with more than 128.
const DEPTH_MAX: u32 = 512;

/// Why a text is no JSON.
#[derive(Debug)]
pub(crate) enum Fault {
    Syntax { what: &'static str, offset: usize },
    Depth(u32),
}

/// Reads one value and nothing after it.
pub(crate) fn read(text: &str) -> Result<Value, Fault> {
    let mut reader = Reader::new(text);
    let value = reader.value()?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.fault("something after the end of the value")),
    }
}

/// Reads the values that stand in a text one after the other.
pub(crate) fn read_all(text: &str) -> impl Iterator<Item = Result<Value, Fault>> {
    let mut reader = Some(Reader::new(text));
    std::iter::from_fn(move || {
        let current = reader.as_mut()?;
        current.space();
        current.peek()?;
        let value = current.value();
        if value.is_err() {
            reader = None;
        }
        Some(value)
    })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    fn fault(&self, what: &'static str) -> Fault {
        Fault::Syntax { what, offset: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.fault("a value is expected"))
        }
    }

    fn value(&mut self) -> Result<Value, Fault> {
        self.space();
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => Ok(Value::String(Rc::new(self.string()?))),
            Some(b'[') => self.nested(Self::array),
            Some(b'{') => self.nested(Self::object),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.fault("a value is expected")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::Depth(DEPTH_MAX));
        }
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Result<Value, Fault> {
        let mut items = Vec::new();
        self.space();
        if !self.eat(b']') {
            loop {
                items.push(self.value()?);
                self.space();
                if self.eat(b']') {
                    break;
                }
                if !self.eat(b',') {
                    return Err(self.fault("`,` or `]` is expected"));
                }
            }
        }
        Ok(Value::Array(Rc::new(items)))
    }

    fn object(&mut self) -> Result<Value, Fault> {
        let mut entries = BTreeMap::new();
        self.space();
        if !self.eat(b'}') {
            loop {
                self.space();
                if self.peek() != Some(b'"') {
                    return Err(self.fault("a key is expected"));
                }
                let key = self.string()?;
                self.space();
                if !self.eat(b':') {
                    return Err(self.fault("`:` is expected"));
                }
                let value = self.value()?;
                entries.insert(Rc::from(key), value);
                self.space();
                if self.eat(b'}') {
                    break;
                }
                if !self.eat(b',') {
                    return Err(self.fault("`,` or `}` is expected"));
                }
            }
        }
        Ok(Value::Object(Rc::new(entries)))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        Number::parse(text).map(Value::Number).ok_or_else(|| self.fault("a number is expected"))
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a digit is expected")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            out.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("the string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let escaped = self.peek();
        self.at += 1;
        Ok(match escaped {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.unit()?;
                // Half of a pair stands for a character that is not there; Go puts the replacement in its place.
                if !(0xd800..0xdc00).contains(&first) {
                    return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
                if !rest.starts_with(b"\\u") {
                    return Ok(char::REPLACEMENT_CHARACTER);
                }
                let before = self.at;
                self.at += 2;
                let second = self.unit()?;
                if (0xdc00..0xe000).contains(&second) {
                    let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
                } else {
                    self.at = before;
                    char::REPLACEMENT_CHARACTER
                }
            }
            _ => return Err(self.fault("an unknown escape in a string")),
        })
    }

    fn unit(&mut self) -> Result<u32, Fault> {
        let digits = self.text.get(self.at..self.at.saturating_add(4)).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.fault("four hexadecimal digits are expected"));
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.fault("four hexadecimal digits are expected"))
    }
}

/// Writes a value if it does not take more bytes than that.
pub(crate) fn write(value: &Value, bytes_max: usize) -> Option<String> {
    let mut out = String::new();
    put(value, bytes_max, &mut out).then_some(out)
}

/// Writes a value of any size.
pub(crate) fn write_all(value: &Value) -> String {
    let mut out = String::new();
    put(value, usize::MAX, &mut out);
    out
}

fn put(value: &Value, max: usize, out: &mut String) -> bool {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => number.write(out),
        Value::String(text) => put_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                if !put(item, max, out) {
                    return false;
                }
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (place, (key, value)) in entries.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                put_string(key, out);
                out.push(':');
                if !put(value, max, out) {
                    return false;
                }
            }
            out.push('}');
        }
    }
    out.len() <= max
}

fn put_string(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(plain..at).unwrap_or_default());
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x8 => out.push_str("\\b"),
            0xc => out.push_str("\\f"),
            byte => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(text.get(plain..).unwrap_or_default());
    out.push('"');
}
