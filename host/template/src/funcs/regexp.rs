//! Regular expressions: Go's syntax translated to that of the `regex` crate, which is as linear as RE2.

use regex::{Regex, RegexBuilder};

use super::{Answer, Call, Entry, int, s};
use crate::{exec::Fault, limits::Limit, value::Value};

/// Longest pattern; Go has no bound, public charts stay below 300 bytes.
const PATTERN_MAX: usize = 16 << 10;
/// Compiled patterns kept; each may take twice the size limit.
const CACHED_MAX: usize = 32;

pub(super) const FUNCTIONS: &[Entry] = &[
    ("regexMatch", "ss", |call, args| match compile(call, s(args, 0)) {
        Ok(regex) => is_match(call, &regex, s(args, 1)),
        Err(Fault::Message(_)) => Ok(Value::Bool(false)),
        Err(fault) => Err(fault),
    }),
    ("mustRegexMatch", "ss", |call, args| {
        let regex = compile(call, s(args, 0))?;
        is_match(call, &regex, s(args, 1))
    }),
    ("regexFind", "ss", |call, args| compiled(find(call, args), args)),
    ("mustRegexFind", "ss", find),
    ("regexFindAll", "ssi", |call, args| compiled(find_all(call, args), args)),
    ("mustRegexFindAll", "ssi", find_all),
    ("regexReplaceAll", "sss", |call, args| compiled(replace(call, args, true), args)),
    ("mustRegexReplaceAll", "sss", |call, args| replace(call, args, true)),
    ("regexReplaceAllLiteral", "sss", |call, args| compiled(replace(call, args, false), args)),
    ("mustRegexReplaceAllLiteral", "sss", |call, args| replace(call, args, false)),
    ("regexSplit", "ssi", |call, args| compiled(split(call, args), args)),
    ("mustRegexSplit", "ssi", split),
    ("regexQuoteMeta", "s", |call, args| {
        let mut out = String::new();
        for c in s(args, 0).chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                out.push('\\');
            }
            out.push(c);
        }
        call.text(out)
    }),
];

/// The functions without `must` panic in Go on a pattern that does not compile; the message says so.
fn compiled(answer: Answer, args: &[Value]) -> Answer {
    answer.map_err(|fault| match fault {
        Fault::Message(text) => Fault::Message(format!("regexp: Compile(`{}`): {text}", s(args, 0))),
        fault => fault,
    })
}

fn compile(call: &mut Call<'_, '_>, pattern: &str) -> Result<Regex, Fault> {
    if let Some(regex) = call.run.regexes.get(pattern) {
        return Ok(regex.clone());
    }
    if pattern.len() > PATTERN_MAX {
        return Err(Limit::Regex.into());
    }
    // Starting over is as good as evicting: a chart has a handful of patterns.
    if call.run.regexes.len() >= CACHED_MAX {
        call.run.regexes.clear();
    }
    // Compiling costs far more than matching.
    call.run.charge(500 + pattern.len() as u64 * 10)?;
    let size = call.run.limits.regex_bytes;
    let built = RegexBuilder::new(&translate(pattern)).size_limit(size).dfa_size_limit(size).nest_limit(100).build();
    let regex = built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Fault::Limit(Limit::Regex),
        _ => Fault::message(format!("error parsing regexp: {}", problem(pattern))),
    })?;
    call.run.regexes.insert(pattern.to_string(), regex.clone());
    Ok(regex)
}

impl Call<'_, '_> {
    /// Compiles a path pattern of `.Files.Glob`; `None` if it is malformed.
    pub(crate) fn glob(&mut self, pattern: &str) -> Result<Option<Regex>, Fault> {
        let Some(pattern) = glob(pattern) else { return Ok(None) };
        match compile(self, &pattern) {
            Ok(regex) => Ok(Some(regex)),
            Err(Fault::Message(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// A glob with `/` as separator as a regular expression.
pub(crate) fn glob(pattern: &str) -> Option<String> {
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars().peekable();
    let mut braces = 0;
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                while chars.peek() == Some(&'*') {
                    chars.next();
                }
                out.push_str("(?s:.*)");
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '{' => {
                braces += 1;
                out.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if braces > 0 => out.push('|'),
            '[' => {
                out.push('[');
                if matches!(chars.peek(), Some('!' | '^')) {
                    chars.next();
                    out.push('^');
                }
                loop {
                    match chars.next()? {
                        ']' => break,
                        c @ ('\\' | '[' | '&' | '~') => {
                            out.push('\\');
                            out.push(c);
                        }
                        c => out.push(c),
                    }
                }
                out.push(']');
            }
            '\\' => out.push_str(&regex::escape(&chars.next()?.to_string())),
            c => out.push_str(&regex::escape(&c.to_string())),
        }
    }
    (braces == 0).then(|| out + ")$")
}

/// What Go says about a malformed pattern, for the mistakes that people make.
fn problem(pattern: &str) -> String {
    let (mut open, mut class, mut escaped) = (0_i32, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => class = false,
            _ if class => {}
            '[' => class = true,
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open < 0 {
            return format!("unexpected ): `{pattern}`");
        }
    }
    if escaped {
        return "trailing backslash at end of expression: ``".into();
    }
    if class {
        return format!("missing closing ]: `{}`", &pattern[pattern.rfind('[').unwrap_or(0)..]);
    }
    if open > 0 {
        return format!("missing closing ): `{pattern}`");
    }
    if pattern.starts_with(['*', '+', '?']) {
        return format!("missing argument to repetition operator: `{}`", &pattern[..1]);
    }
    if let Some(group) = ["(?=", "(?!", "(?<"].iter().find(|group| pattern.contains(**group)) {
        return format!("invalid or unsupported Perl syntax: `{group}`");
    }
    format!("invalid expression: `{pattern}`")
}

/// Go's syntax in that of the crate: Perl classes are ASCII, `\Q..\E` quotes, a brace that repeats nothing is a brace.
fn translate(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 16);
    let (mut i, mut class) = (0, false);
    while let Some(c) = chars.get(i).copied() {
        i += 1;
        match c {
            '\\' => {
                let Some(next) = chars.get(i).copied() else {
                    out.push('\\');
                    break;
                };
                i += 1;
                match next {
                    'Q' => {
                        let rest: String = chars[i..].iter().collect();
                        let (quoted, length) = match rest.find("\\E") {
                            Some(end) => (&rest[..end], rest[..end].chars().count() + 2),
                            None => (rest.as_str(), rest.chars().count()),
                        };
                        out.push_str(&regex::escape(quoted));
                        i += length;
                    }
                    'd' => out.push_str(if class { "0-9" } else { "[0-9]" }),
                    'D' => out.push_str("[^0-9]"),
                    'w' => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                    'W' => out.push_str("[^0-9A-Za-z_]"),
                    's' => out.push_str(if class { r"\t\n\x0c\r " } else { r"[\t\n\x0c\r ]" }),
                    'S' => out.push_str(r"[^\t\n\x0c\r ]"),
                    'b' => out.push_str(r"(?-u:\b)"),
                    'B' if !class => out.push_str(r"(?-u:\B)"),
                    c => {
                        out.push('\\');
                        out.push(c);
                    }
                }
            }
            '[' if class => {
                // `[:alpha:]` stays; any other bracket inside a class is itself.
                if chars.get(i) == Some(&':') {
                    out.push('[');
                    while let Some(c) = chars.get(i).copied() {
                        out.push(c);
                        i += 1;
                        if c == ']' {
                            break;
                        }
                    }
                } else {
                    out.push_str("\\[");
                }
            }
            '[' => {
                class = true;
                out.push('[');
                if chars.get(i) == Some(&'^') {
                    out.push('^');
                    i += 1;
                }
                // A bracket that comes first is itself.
                if chars.get(i) == Some(&']') {
                    out.push_str("\\]");
                    i += 1;
                }
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '-' if class && chars.get(i) == Some(&'-') => out.push_str("\\-"),
            '{' if !class => {
                let rest: String = chars[i..].iter().take_while(|c| **c != '}').collect();
                let closed = chars.get(i + rest.chars().count()) == Some(&'}');
                let is_repeat = closed
                    && rest.starts_with(|c: char| c.is_ascii_digit())
                    && rest.split(',').count() <= 2
                    && rest.chars().all(|c| c.is_ascii_digit() || c == ',');
                out.push_str(if is_repeat { "{" } else { "\\{" });
            }
            c => out.push(c),
        }
    }
    out
}

/// The cost of a search is linear in the text.
fn search(call: &mut Call<'_, '_>, text: &str) -> Result<(), Fault> {
    call.run.charge(1 + text.len() as u64 / 32).map_err(Fault::Limit)
}

fn is_match(call: &mut Call<'_, '_>, regex: &Regex, text: &str) -> Answer {
    search(call, text)?;
    Ok(Value::Bool(regex.is_match(text)))
}

fn find(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let regex = compile(call, s(args, 0))?;
    search(call, s(args, 1))?;
    let found = regex.find(s(args, 1)).map_or("", |m| m.as_str()).to_string();
    call.text(found)
}

fn find_all(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let regex = compile(call, s(args, 0))?;
    search(call, s(args, 1))?;
    let most = usize::try_from(int(args, 2)).unwrap_or(call.run.limits.collection_items + 1);
    let most = most.min(call.run.limits.collection_items + 1);
    let found: Vec<String> = regex.find_iter(s(args, 1)).take(most).map(|m| m.as_str().to_string()).collect();
    if found.is_empty() {
        return Ok(Value::no_strings());
    }
    call.strings(found)
}

fn replace(call: &mut Call<'_, '_>, args: &[Value], expand: bool) -> Answer {
    let regex = compile(call, s(args, 0))?;
    let (text, by) = (s(args, 1), s(args, 2));
    search(call, text)?;
    let mut out = String::new();
    let mut at = 0;
    for found in regex.captures_iter(text) {
        let Some(whole) = found.get(0) else { continue };
        out.push_str(&text[at..whole.start()]);
        if expand {
            expand_template(&mut out, by, &found, &regex);
        } else {
            out.push_str(by);
        }
        at = whole.end();
        if out.len() > call.run.limits.string_bytes {
            return Err(Limit::StringSize.into());
        }
    }
    out.push_str(&text[at..]);
    call.text(out)
}

/// `$1`, `${1}`, `$name`, `${name}` and `$$`; a name is as long as it can be.
fn expand_template(out: &mut String, template: &str, found: &regex::Captures<'_>, regex: &Regex) {
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let (name, after) = match rest.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, after)) => (name, after),
                None => {
                    out.push('$');
                    continue;
                }
            },
            None => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            out.push('$');
            continue;
        }
        rest = after;
        let group = match name.parse::<usize>() {
            Ok(n) => found.get(n),
            Err(_) if regex.capture_names().flatten().any(|n| n == name) => found.name(name),
            Err(_) => None,
        };
        out.push_str(group.map_or("", |m| m.as_str()));
    }
    out.push_str(rest);
}

/// `regexp.Split`.
fn split(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let regex = compile(call, s(args, 0))?;
    let (text, n) = (s(args, 1), int(args, 2));
    search(call, text)?;
    if n == 0 {
        return Ok(Value::no_strings());
    }
    let mut parts = Vec::new();
    let most = usize::try_from(n).unwrap_or(usize::MAX);
    if !s(args, 0).is_empty() && text.is_empty() {
        return call.strings(vec![String::new()]);
    }
    let (mut begin, mut end) = (0, 0);
    for found in regex.find_iter(text) {
        if parts.len() + 1 >= most || parts.len() > call.run.limits.collection_items {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(text[begin..end].to_string());
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(text[begin..].to_string());
    }
    call.strings(parts)
}
