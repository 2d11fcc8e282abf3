//! Paths and URLs.

use super::{Answer, Call, Entry, any, s};
use crate::{exec::Fault, value::Value};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("base", "s", |call, args| call.text(base(s(args, 0)))),
    ("dir", "s", |call, args| call.text(dir(s(args, 0)))),
    ("clean", "s", |call, args| call.text(clean(s(args, 0)))),
    ("ext", "s", |call, args| call.text(ext(s(args, 0)))),
    ("isAbs", "s", |_, args| Ok(Value::Bool(s(args, 0).starts_with('/')))),
    ("osBase", "s", |call, args| call.text(base(s(args, 0)))),
    ("osDir", "s", |call, args| call.text(dir(s(args, 0)))),
    ("osClean", "s", |call, args| call.text(clean(s(args, 0)))),
    ("osExt", "s", |call, args| call.text(ext(s(args, 0)))),
    ("osIsAbs", "s", |_, args| Ok(Value::Bool(s(args, 0).starts_with('/')))),
    ("urlParse", "s", url_parse),
    ("urlJoin", "m", url_join),
];

fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".into();
    }
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        None | Some("") => "/".into(),
        Some(last) => last.to_string(),
    }
}

fn dir(path: &str) -> String {
    clean(path.rfind('/').map_or("", |at| &path[..=at]))
}

fn ext(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.rfind('.').map_or_else(String::new, |at| last[at..].to_string())
}

pub(crate) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&"..") | None if !rooted => parts.push(".."),
                _ => {
                    parts.pop();
                }
            },
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".into(),
        (false, false) => joined,
    }
}

/// Percent-decoding; `None` for a malformed escape.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*byte);
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Percent-encoding of what may not stand in a path.
fn escape_path(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'$'
            | b'&'
            | b'+'
            | b','
            | b'/'
            | b':'
            | b';'
            | b'='
            | b'@'
            | b'!'
            | b'*'
            | b'\''
            | b'('
            | b')'
            | b'['
            | b']' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn url_parse(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let url = s(args, 0);
    let bad = |why: &str| Fault::message(format!("unable to parse url: parse {}: {why}", crate::gofmt::quote(url)));
    if url.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err(bad("invalid control character in URL"));
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some((scheme, after))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')) =>
        {
            (scheme.to_lowercase(), after)
        }
        Some(("", _)) => return Err(bad("missing protocol scheme")),
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (mut host, mut userinfo, mut opaque, mut path) = ("", "", "", rest);
    if let Some(after) = rest.strip_prefix("//") {
        let (authority, tail) = after.find('/').map_or((after, ""), |at| after.split_at(at));
        (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        path = tail;
    } else if !scheme.is_empty() && !rest.starts_with('/') {
        (opaque, path) = (rest, "");
    }
    let hostname = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let path = unescape(path).ok_or_else(|| bad("invalid URL escape"))?;
    call.run.allocate(url.len() * 2)?;
    Ok(Value::dict([
        ("fragment", Value::str(unescape(fragment).unwrap_or_default())),
        ("host", Value::str(host)),
        ("hostname", Value::str(hostname)),
        ("opaque", Value::str(opaque)),
        ("path", Value::str(path)),
        ("query", Value::str(query)),
        ("scheme", Value::str(scheme)),
        ("userinfo", Value::str(userinfo)),
    ]))
}

fn url_join(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let Value::Map(map) = any(args, 0) else { return Ok(Value::str("")) };
    let part = |name: &str| match map.get(name) {
        Some(Value::Str(text)) => Ok(text.to_string()),
        None => Ok(String::new()),
        Some(other) => Err(Fault::message(format!(
            "unable to parse {name} key, must be of type string, but {} found",
            other.type_name()
        ))),
    };
    let (scheme, host, path, query) = (part("scheme")?, part("host")?, part("path")?, part("query")?);
    let (opaque, fragment, userinfo) = (part("opaque")?, part("fragment")?, part("userinfo")?);
    let mut url = String::new();
    if !scheme.is_empty() {
        url.push_str(&scheme);
        url.push(':');
    }
    if opaque.is_empty() {
        if !scheme.is_empty() || !host.is_empty() || !userinfo.is_empty() {
            if !host.is_empty() || !path.is_empty() || !userinfo.is_empty() {
                url.push_str("//");
            }
            if !userinfo.is_empty() {
                url.push_str(&userinfo);
                url.push('@');
            }
            url.push_str(&host);
        }
        let path = escape_path(&path);
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            url.push('/');
        }
        url.push_str(&path);
    } else {
        url.push_str(&opaque);
    }
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query);
    }
    if !fragment.is_empty() {
        url.push('#');
        url.push_str(&escape_path(&fragment));
    }
    call.text(url)
}
