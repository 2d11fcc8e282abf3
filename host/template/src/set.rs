//! Values from a command line: `--set a.b[0]=1,c=x` and its relatives, as Helm's `strvals` reads them.
//!
//! Whole numbers become `int64`, everything else that is not `true`, `false` or `null` a text: `1.5` is a text. Whoever
//! gives the result to a render sets [`crate::Input::whole_numbers_are_int64`].

#[cfg(test)]
mod tests;

use serde_json::{Map, Value as Json};

/// The largest index of a list: a list of so many nulls is what it makes.
const INDEX_MAX: usize = 65_536;
/// Names inside names.
const NESTING_MAX: usize = 30;

/// How the right-hand side of an assignment is read.
#[derive(Clone, Copy)]
pub enum Assigned<'f> {
    /// `--set`: a number, a boolean, a null, a list in braces, or a text.
    Typed,
    /// `--set-string`: a text, or a list of texts.
    Text,
    /// `--set-json`: JSON; of the whole line, if that begins with `{`.
    Json,
    /// `--set-file`: the name of a file, whose content it becomes. The function reads it.
    File(&'f dyn Fn(&str) -> Result<String, String>),
    /// `--set-literal`: the whole rest of the line as it stands.
    Literal,
}

/// Assigns the values of a line, such as `a=1,b.c={x,y},d[0].e=z`, over those that are there.
///
/// # Errors
/// Helm's words for what is wrong with the line.
pub fn assign(values: &mut Map<String, Json>, line: &str, how: Assigned<'_>) -> Result<(), String> {
    if let (Assigned::Json, '{') = (how, line.trim_start().chars().next().unwrap_or(' ')) {
        let whole = crate::json::decode(line)?;
        if let Json::Object(whole) = floats(whole) {
            merge(values, whole);
        }
        return Ok(());
    }
    let mut parser = Parser { chars: line.chars().collect(), at: 0, how };
    loop {
        match parser.key(values, 0) {
            Ok(()) => {}
            Err(Stop::End) => return Ok(()),
            Err(Stop::Failed(message)) => return Err(message),
        }
    }
}

/// Later values win, map by map; a null is a value like others. This is how several files of values become one.
pub fn merge(into: &mut Map<String, Json>, from: Map<String, Json>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// [`floats`] of a map.
pub(crate) fn floats_of(entries: Map<String, Json>) -> Map<String, Json> {
    entries.into_iter().map(|(key, item)| (key, floats(item))).collect()
}

/// The same value with all numbers as floating point ones, as YAML and JSON give them to Helm.
pub(crate) fn floats(value: Json) -> Json {
    match value {
        Json::Number(number) => number.as_f64().and_then(serde_json::Number::from_f64).map_or(Json::Null, Json::Number),
        Json::Array(items) => Json::Array(items.into_iter().map(floats).collect()),
        Json::Object(entries) => Json::Object(floats_of(entries)),
        other => other,
    }
}

enum Stop {
    /// The line is at its end, and what was read is good.
    End,
    Failed(String),
}

fn failed<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(message.into()))
}

struct Parser<'f> {
    chars: Vec<char>,
    at: usize,
    how: Assigned<'f>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.get(self.at).copied();
        self.at += usize::from(c.is_some());
        c
    }

    /// The text up to one of the characters, and which it was; none at the end of the line. A backslash takes the next
    /// character as it is.
    fn until(&mut self, stop: &[char]) -> (String, Option<char>) {
        let mut text = String::new();
        while let Some(c) = self.next() {
            match c {
                c if stop.contains(&c) => return (text, Some(c)),
                '\\' if !matches!(self.how, Assigned::Literal) => match self.next() {
                    Some(escaped) => text.push(escaped),
                    None => return (text, None),
                },
                c => text.push(c),
            }
        }
        (text, None)
    }

    fn key(&mut self, values: &mut Map<String, Json>, nesting: usize) -> Result<(), Stop> {
        let literal = matches!(self.how, Assigned::Literal);
        let stop: &[char] = if literal { &['=', '[', '.'] } else { &['=', '[', ',', '.'] };
        let (name, last) = self.until(stop);
        let Some(last) = last else {
            return if name.is_empty() {
                Err(Stop::End)
            } else {
                failed(format!("key {} has no value", quoted(&name)))
            };
        };
        match last {
            '[' => {
                let index = self.index()?;
                let list = match values.get_mut(&name) {
                    None => Vec::new(),
                    Some(Json::Array(list)) => std::mem::take(list),
                    Some(other) => return failed(format!("unable to parse key: {}", no_list(other))),
                };
                let (list, result) = self.item(list, index, nesting);
                set(values, name, Json::Array(list));
                result
            }
            '=' => {
                let (value, result) = self.value();
                match value {
                    Some(value) => set(values, name, value),
                    None => return result,
                }
                result
            }
            ',' => {
                set(values, name.clone(), Json::String(String::new()));
                failed(format!("key {} has no value (cannot end with ,)", quoted(&name)))
            }
            _ => {
                if nesting + 1 > NESTING_MAX {
                    return failed(format!(
                        "value name nested level is greater than maximum supported nested level of {NESTING_MAX}"
                    ));
                }
                let mut inner = match values.get(&name) {
                    None => Map::new(),
                    Some(Json::Object(inner)) => inner.clone(),
                    Some(other) => {
                        let other = go_type(other);
                        return failed(format!(
                            "unable to parse key: interface conversion: interface {{}} is {other}, not map[string]interface {{}}"
                        ));
                    }
                };
                let result = self.key(&mut inner, nesting + 1);
                if inner.is_empty() {
                    return match result {
                        Ok(()) => failed(format!("key map {} has no value", quoted(&name))),
                        stop => stop,
                    };
                }
                set(values, name, Json::Object(inner));
                result
            }
        }
    }

    /// What stands behind an equals sign. Without a value, the result says why.
    fn value(&mut self) -> (Option<Json>, Result<(), Stop>) {
        match self.how {
            Assigned::Json => return self.json(),
            Assigned::Literal => {
                let text: String = self.chars.get(self.at..).unwrap_or_default().iter().collect();
                self.at = self.chars.len();
                return (Some(Json::String(text)), Err(Stop::End));
            }
            _ => {}
        }
        match self.chars.get(self.at) {
            None => (Some(Json::String(String::new())), Err(Stop::End)),
            Some('{') => {
                self.at += 1;
                self.list()
            }
            Some(_) => {
                let (text, _) = self.until(&[',']);
                match self.typed(text) {
                    Ok(value) => (Some(value), Ok(())),
                    Err(message) => (None, failed(message)),
                }
            }
        }
    }

    fn list(&mut self) -> (Option<Json>, Result<(), Stop>) {
        let mut items = Vec::new();
        loop {
            let (text, last) = self.until(&[',', '}']);
            let Some(last) = last else { return (None, failed("list must terminate with '}'")) };
            match self.typed(text) {
                Ok(value) => items.push(value),
                Err(message) => return (None, failed(message)),
            }
            if last == '}' {
                self.at += usize::from(self.chars.get(self.at) == Some(&','));
                return (Some(Json::Array(items)), Ok(()));
            }
        }
    }

    fn json(&mut self) -> (Option<Json>, Result<(), Stop>) {
        if self.is_empty_value() {
            return (Some(Json::Null), Ok(()));
        }
        let rest: String = self.chars.get(self.at..).unwrap_or_default().iter().collect();
        let mut documents = serde_json::Deserializer::from_str(&rest).into_iter::<Json>();
        match documents.next() {
            Some(Ok(value)) => {
                self.at += rest.get(..documents.byte_offset()).map_or(0, |read| read.chars().count());
                self.is_empty_value();
                (Some(floats(value)), Ok(()))
            }
            Some(Err(error)) if error.is_eof() => (None, failed("unexpected EOF")),
            Some(Err(error)) => {
                let message = crate::json::decode(&rest).err().unwrap_or_else(|| error.to_string());
                (None, failed(message))
            }
            None => (Some(Json::Null), Ok(())),
        }
    }

    /// Takes white space and one comma, and says whether there was nothing else.
    fn is_empty_value(&mut self) -> bool {
        while let Some(c) = self.next() {
            if c == ',' {
                return true;
            }
            if !c.is_whitespace() {
                self.at -= 1;
                return false;
            }
        }
        true
    }

    fn typed(&self, text: String) -> Result<Json, String> {
        Ok(match self.how {
            Assigned::File(read) => Json::String(read(&text)?),
            Assigned::Typed => match text.to_lowercase().as_str() {
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                "null" => Json::Null,
                "0" => Json::from(0_i64),
                _ => match text.parse::<i64>() {
                    Ok(number) if !text.starts_with('0') => Json::from(number),
                    _ => Json::String(text),
                },
            },
            _ => Json::String(text),
        })
    }

    fn index(&mut self) -> Result<i64, Stop> {
        let (text, last) = self.until(&[']']);
        if last.is_none() {
            return Err(Stop::End);
        }
        text.parse().or_else(|_| {
            failed(format!("error parsing index: strconv.Atoi: parsing {}: invalid syntax", quoted(&text)))
        })
    }

    /// What stands behind the brackets. The list comes back in any case.
    fn item(&mut self, mut list: Vec<Json>, index: i64, nesting: usize) -> (Vec<Json>, Result<(), Stop>) {
        let Ok(index) = usize::try_from(index) else {
            return (list, failed(format!("negative {index} index not allowed")));
        };
        let (text, last) = self.until(&['[', '.', '=']);
        if !text.is_empty() {
            let shown: Vec<String> = text.chars().map(|c| crate::gofmt::quote_with(&c.to_string(), '\'')).collect();
            return (list, failed(format!("unexpected data at end of array index: [{}]", shown.join(" "))));
        }
        match last {
            None => (list, Err(Stop::End)),
            Some('=') => match self.value() {
                (Some(value), result) => match put(&mut list, index, value) {
                    Ok(()) => (list, result),
                    Err(message) => (list, failed(message)),
                },
                (None, result) => (list, result),
            },
            Some('[') => {
                let next = match self.index() {
                    Ok(next) => next,
                    Err(stop) => return (list, Err(stop)),
                };
                let inner = match list.get(index) {
                    None | Some(Json::Null) => Vec::new(),
                    Some(Json::Array(inner)) => inner.clone(),
                    Some(other) => {
                        let message = format!("unable to parse key: {}", no_list(other));
                        return (list, failed(message));
                    }
                };
                let (inner, result) = self.item(inner, next, nesting);
                if let Err(Stop::Failed(message)) = result {
                    return (list, failed(message));
                }
                match put(&mut list, index, Json::Array(inner)) {
                    Ok(()) => (list, result),
                    Err(message) => (list, failed(message)),
                }
            }
            Some(_) => {
                let mut inner = match list.get(index) {
                    Some(Json::Object(inner)) => inner.clone(),
                    _ => Map::new(),
                };
                let result = self.key(&mut inner, nesting);
                if let Err(Stop::Failed(message)) = result {
                    return (list, failed(message));
                }
                match put(&mut list, index, Json::Object(inner)) {
                    Ok(()) => (list, result),
                    Err(message) => (list, failed(message)),
                }
            }
        }
    }
}

fn set(values: &mut Map<String, Json>, name: String, value: Json) {
    if !name.is_empty() {
        values.insert(name, value);
    }
}

fn put(list: &mut Vec<Json>, index: usize, value: Json) -> Result<(), String> {
    if index > INDEX_MAX {
        return Err(format!("index of {index} is greater than maximum supported index of {INDEX_MAX}"));
    }
    if list.len() <= index {
        list.resize(index + 1, Json::Null);
    }
    if let Some(slot) = list.get_mut(index) {
        *slot = value;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    crate::gofmt::quote(text)
}

fn no_list(value: &Json) -> String {
    format!("interface conversion: interface {{}} is {}, not []interface {{}}", go_type(value))
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "nil",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
