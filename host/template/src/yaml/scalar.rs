//! What a plain scalar means in YAML 1.1, as go-yaml v2 resolves it.

/// The meaning of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    /// Looks like a date: stays a string when read, is quoted when written.
    Timestamp,
    Merge,
    Str,
}

/// Resolves an untagged plain scalar.
pub(crate) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        "<<" => return Scalar::Merge,
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'+' | b'-') => {}
        Some(b'.') => {
            return match crate::gofmt::parse_float(text) {
                Some(f) if is_float_syntax(text) => Scalar::Float(f),
                _ => Scalar::Str,
            };
        }
        _ => return Scalar::Str,
    }
    if is_timestamp(text) {
        return Scalar::Timestamp;
    }
    let plain = text.replace('_', "");
    if let Some(i) = crate::gofmt::parse_int(&plain) {
        return Scalar::Int(i);
    }
    if let Some(u) = unsigned(&plain) {
        return Scalar::Uint(u);
    }
    if is_float_syntax(&plain)
        && let Some(f) = crate::gofmt::parse_float(&plain)
    {
        return Scalar::Float(f);
    }
    Scalar::Str
}

fn unsigned(text: &str) -> Option<u64> {
    let (radix, digits) = if let Some(hex) = text.strip_prefix("0x") {
        (16, hex)
    } else if text.len() > 1 && text.starts_with('0') {
        (8, &text[1..])
    } else {
        (10, text)
    };
    digits.bytes().all(|b| char::from(b).is_digit(radix)).then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`
fn is_float_syntax(text: &str) -> bool {
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = digits(rest);
    rest = &rest[whole..];
    if let Some(after) = rest.strip_prefix('.') {
        let fraction = digits(after);
        if whole == 0 && fraction == 0 {
            return false;
        }
        rest = &after[fraction..];
    } else if whole == 0 {
        return false;
    }
    if let Some(after) = rest.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        let exponent = digits(after);
        if exponent == 0 {
            return false;
        }
        rest = &after[exponent..];
    }
    rest.is_empty()
}

/// `1:30`, which YAML 1.1 reads as a number in base 60; go-yaml reads a string but writes quotes.
pub(crate) fn is_base60(text: &str) -> bool {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = body.split(':');
    let first = parts.next().unwrap_or_default();
    if first.is_empty() || !first.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    if !first.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    if rest.is_empty() {
        return false;
    }
    rest.iter().enumerate().all(|(i, part)| {
        let part = if i + 1 == rest.len() { part.split_once('.').map_or(*part, |(whole, _)| whole) } else { part };
        let digits = part.as_bytes();
        match digits {
            [d] => d.is_ascii_digit(),
            [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
            _ => false,
        }
    })
}

/// The four date layouts of go-yaml: `2006-1-2`, and with a time behind `T`, `t` or a space.
fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return false;
    }
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = &text[5..];
    let month = digits(rest);
    if !(1..=2).contains(&month) || !in_range(&rest[..month], 1, 12) {
        return false;
    }
    let Some(after) = rest[month..].strip_prefix('-') else { return false };
    rest = after;
    let day = digits(rest);
    if !(1..=2).contains(&day) || !in_range(&rest[..day], 1, 31) {
        return false;
    }
    rest = &rest[day..];
    if rest.is_empty() {
        return true;
    }
    let spaced = rest.starts_with(' ');
    let Some(after) = rest.strip_prefix(['T', 't', ' ']) else { return false };
    rest = after;
    let hour = digits(rest);
    if !(1..=2).contains(&hour) || !in_range(&rest[..hour], 0, 23) {
        return false;
    }
    rest = &rest[hour..];
    for _ in 0..2 {
        let Some(after) = rest.strip_prefix(':') else { return false };
        let length = digits(after);
        if !(1..=2).contains(&length) || !in_range(&after[..length], 0, 59) {
            return false;
        }
        rest = &after[length..];
    }
    if let Some(after) = rest.strip_prefix('.') {
        let fraction = digits(after);
        if fraction == 0 {
            return false;
        }
        rest = &after[fraction..];
    }
    if spaced {
        return rest.is_empty();
    }
    if rest == "Z" {
        return true;
    }
    let Some(zone) = rest.strip_prefix(['+', '-']) else { return false };
    zone.len() == 5 && zone.as_bytes()[2] == b':' && digits(zone) == 2 && digits(&zone[3..]) == 2
}

fn in_range(digits: &str, low: u32, high: u32) -> bool {
    digits.parse::<u32>().is_ok_and(|n| (low..=high).contains(&n))
}
