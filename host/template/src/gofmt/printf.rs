//! `fmt.Sprintf`, `fmt.Sprint` and `fmt.Sprintln` on template values.

use std::fmt::Write as _;

use super::{float, quote, quote_ascii, quote_with, write_value};
use crate::value::{VALUE_DEPTH_MAX, VALUE_TEXT_MAX, Value};

/// Widest padding and precision that an argument of the format may ask for, as in Go. One that is written in the format
/// may have another digit behind a number that is not larger than this, as in Go.
const WIDTH_MAX: usize = 1_000_000;
/// No number has more digits than this behind its point: what follows are zeros. (Rust's formatting has a limit of 65,535.)
const FRACTION_MAX: usize = 1_100;

#[derive(Default, Clone)]
struct Spec {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// `fmt.Sprint`: spaces only between operands of which neither is a string.
pub(crate) fn print(args: &[Value]) -> Option<String> {
    let mut out = String::new();
    for (i, arg) in args.iter().enumerate() {
        let is_string = matches!(arg, Value::Str(_));
        if i > 0 && !is_string && !matches!(args[i - 1], Value::Str(_)) {
            out.push(' ');
        }
        write_value(&mut out, arg, 0).then_some(())?;
    }
    Some(out)
}

/// `fmt.Sprintln`.
pub(crate) fn println(args: &[Value]) -> Option<String> {
    let mut out = String::new();
    for (i, arg) in args.iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        write_value(&mut out, arg, 0).then_some(())?;
    }
    out.push('\n');
    Some(out)
}

/// `fmt.Sprintf`. `None` if a value nests too deep.
pub(crate) fn printf(format: &str, args: &[Value]) -> Option<String> {
    let mut out = String::new();
    let chars: Vec<char> = format.chars().collect();
    let mut i = 0;
    let mut arg = 0;
    let mut reordered = false;
    // Looked up once: a format may be megabytes of brackets that nothing closes.
    let last_bracket = chars.iter().rposition(|c| *c == ']');
    while i < chars.len() {
        if chars[i] != '%' {
            out.push(chars[i]);
            i += 1;
            continue;
        }
        i += 1;
        let mut spec = Spec::default();
        let mut good_index = true;
        let mut after_index = false;
        while let Some(c) = chars.get(i) {
            match c {
                '#' => spec.sharp = true,
                '0' => spec.zero = true,
                '+' => spec.plus = true,
                '-' => spec.minus = true,
                ' ' => spec.space = true,
                _ => break,
            }
            i += 1;
        }
        let index = |i: &mut usize, arg: &mut usize, reordered: &mut bool, good: &mut bool| -> bool {
            if chars.get(*i) != Some(&'[') {
                return false;
            }
            *reordered = true;
            match last_bracket.filter(|at| at >= i).and_then(|_| chars[*i..].iter().position(|c| *c == ']')) {
                Some(end) => {
                    let digits: String = chars[*i + 1..*i + end].iter().collect();
                    *i += end + 1;
                    match digits.parse::<usize>() {
                        Ok(n) if n >= 1 && n <= args.len() => {
                            *arg = n - 1;
                            true
                        }
                        _ => {
                            *good = false;
                            true
                        }
                    }
                }
                None => {
                    *good = false;
                    *i += 1;
                    false
                }
            }
        };
        after_index |= index(&mut i, &mut arg, &mut reordered, &mut good_index);
        if chars.get(i) == Some(&'*') {
            i += 1;
            match args.get(arg) {
                Some(Value::Int(n) | Value::Int64(n)) if n.unsigned_abs() <= WIDTH_MAX as u64 => {
                    spec.minus |= *n < 0;
                    spec.width = usize::try_from(n.unsigned_abs()).ok();
                }
                _ => out.push_str("%!(BADWIDTH)"),
            }
            arg += 1;
            after_index = false;
        } else if let Some(width) = digits(&chars, &mut i) {
            if after_index {
                good_index = false;
            }
            spec.width = Some(width);
        }
        if chars.get(i) == Some(&'.') {
            i += 1;
            if after_index {
                good_index = false;
            }
            after_index = index(&mut i, &mut arg, &mut reordered, &mut good_index);
            if chars.get(i) == Some(&'*') {
                i += 1;
                match args.get(arg) {
                    Some(Value::Int(n) | Value::Int64(n)) if (0..=WIDTH_MAX as i64).contains(n) => {
                        spec.precision = usize::try_from(*n).ok();
                    }
                    Some(Value::Int(n) | Value::Int64(n)) if *n < 0 => {}
                    _ => out.push_str("%!(BADPREC)"),
                }
                arg += 1;
                after_index = false;
            } else {
                spec.precision = Some(digits(&chars, &mut i).unwrap_or(0));
            }
        }
        if !after_index {
            index(&mut i, &mut arg, &mut reordered, &mut good_index);
        }
        let Some(&verb) = chars.get(i) else {
            out.push_str("%!(NOVERB)");
            break;
        };
        i += 1;
        match verb {
            '%' => out.push('%'),
            _ if !good_index => {
                let _ = write!(out, "%!{verb}(BADINDEX)");
            }
            _ => match args.get(arg) {
                None => {
                    let _ = write!(out, "%!{verb}(MISSING)");
                }
                Some(value) => {
                    arg += 1;
                    format_value(&mut out, &spec, verb, value, 0)?;
                }
            },
        }
    }
    if !reordered && arg < args.len() {
        out.push_str("%!(EXTRA ");
        for (n, value) in args[arg..].iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            if value.is_nil() {
                out.push_str("<nil>");
            } else {
                out.push_str(value.type_name());
                out.push('=');
                write_value(&mut out, value, 0).then_some(())?;
            }
        }
        out.push(')');
    }
    Some(out)
}

/// The number at `i`, which moves behind it. As in Go, one that is too large is none and takes the rest of the format along.
fn digits(chars: &[char], i: &mut usize) -> Option<usize> {
    let start = *i;
    let mut value = 0_usize;
    while let Some(digit) = chars.get(*i).and_then(|c| c.to_digit(10)) {
        if value > WIDTH_MAX {
            *i = chars.len();
            return None;
        }
        value = value * 10 + digit as usize;
        *i += 1;
    }
    (*i > start).then_some(value)
}

fn pad(out: &mut String, spec: &Spec, text: &str, zero_allowed: bool) {
    let width = spec.width.unwrap_or(0);
    let length = text.chars().count();
    let fill = width.saturating_sub(length);
    if spec.minus {
        out.push_str(text);
        out.extend(std::iter::repeat_n(' ', fill));
    } else if spec.zero && zero_allowed {
        let (sign, digits) = match text.chars().next() {
            Some('+' | '-' | ' ') => text.split_at(1),
            _ => ("", text),
        };
        out.push_str(sign);
        out.extend(std::iter::repeat_n('0', fill));
        out.push_str(digits);
    } else {
        out.extend(std::iter::repeat_n(' ', fill));
        out.push_str(text);
    }
}

/// The value is shown as by `%v`, with the width and precision that the verb had.
fn bad_verb(out: &mut String, spec: &Spec, verb: char, value: &Value) -> Option<()> {
    if value.is_nil() {
        let _ = write!(out, "%!{verb}(<nil>)");
        return Some(());
    }
    let _ = write!(out, "%!{verb}({}=", value.type_name());
    format_value(out, &Spec { sharp: false, ..spec.clone() }, 'v', value, 0)?;
    out.push(')');
    Some(())
}

fn format_value(out: &mut String, spec: &Spec, verb: char, value: &Value, depth: usize) -> Option<()> {
    if depth > VALUE_DEPTH_MAX || out.len() > VALUE_TEXT_MAX {
        return None;
    }
    if verb == 'T' {
        pad(out, spec, value.type_name(), false);
        return Some(());
    }
    // `%+v` adds the names of fields, of which our values have none; it does not add signs.
    let plain;
    let spec = if verb == 'v' && spec.plus {
        plain = Spec { plus: false, ..spec.clone() };
        &plain
    } else {
        spec
    };
    match value {
        Value::Nil if verb == 'v' || depth > 0 => pad(out, spec, "<nil>", true),
        Value::Nil => return bad_verb(out, spec, verb, value),
        Value::Bool(b) => match verb {
            't' | 'v' => pad(out, spec, if *b { "true" } else { "false" }, true),
            _ => return bad_verb(out, spec, verb, value),
        },
        Value::Int(i) | Value::Int64(i) => return format_int(out, spec, verb, *i, value),
        Value::Float(f) => return format_float(out, spec, verb, *f, value),
        Value::Str(s) => return format_str(out, spec, verb, s, value),
        Value::Bytes(bytes) => match verb {
            'v' | 'd' => {
                let mut text = String::new();
                write_value(&mut text, value, 0).then_some(())?;
                pad(out, spec, &text, false);
            }
            _ => return format_str(out, spec, verb, &String::from_utf8_lossy(bytes), value),
        },
        Value::List(list) => {
            if spec.sharp && verb == 'v' {
                out.push_str(value.type_name());
                out.push('{');
            } else {
                out.push('[');
            }
            for (i, item) in list.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(if spec.sharp && verb == 'v' { ", " } else { " " });
                }
                format_value(out, spec, verb, item, depth + 1)?;
            }
            out.push(if spec.sharp && verb == 'v' { '}' } else { ']' });
        }
        Value::Map(map) => {
            let go_syntax = spec.sharp && verb == 'v';
            out.push_str(if go_syntax { value.type_name() } else { "map" });
            out.push(if go_syntax { '{' } else { '[' });
            for (i, (key, item)) in map.pairs().iter().enumerate() {
                if i > 0 {
                    out.push_str(if go_syntax { ", " } else { " " });
                }
                format_value(out, spec, verb, &Value::Str(key.clone()), depth + 1)?;
                out.push(':');
                format_value(out, spec, verb, item, depth + 1)?;
            }
            out.push(if go_syntax { '}' } else { ']' });
        }
        Value::Object(object) => match (object.as_int(), verb) {
            (Some(i), 'd' | 'x' | 'X' | 'o' | 'b') => return format_int(out, spec, verb, i, value),
            _ => return format_str(out, spec, verb, &object.display(), value),
        },
    }
    Some(())
}

fn format_int(out: &mut String, spec: &Spec, verb: char, i: i64, value: &Value) -> Option<()> {
    let magnitude = i.unsigned_abs();
    let (mut digits, prefix) = match verb {
        'd' | 'v' => (magnitude.to_string(), ""),
        'b' => (format!("{magnitude:b}"), if spec.sharp { "0b" } else { "" }),
        'o' => (format!("{magnitude:o}"), if spec.sharp { "0" } else { "" }),
        'O' => (format!("{magnitude:o}"), "0o"),
        'x' => (format!("{magnitude:x}"), if spec.sharp { "0x" } else { "" }),
        'X' => (format!("{magnitude:X}"), if spec.sharp { "0X" } else { "" }),
        'c' | 'q' | 'U' => {
            let c = u32::try_from(i).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let text = match verb {
                'c' => c.to_string(),
                'q' => quote_with(&c.to_string(), '\''),
                _ => format!("U+{i:04X}"),
            };
            pad(out, spec, &text, false);
            return Some(());
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 's' | 't' => return bad_verb(out, spec, verb, value),
        _ => return bad_verb(out, spec, verb, value),
    };
    if let Some(precision) = spec.precision {
        if precision == 0 && i == 0 {
            digits.clear();
        }
        digits.insert_str(0, &"0".repeat(precision.saturating_sub(digits.len())));
    }
    let sign = match (i < 0, spec.plus, spec.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    if spec.zero && !spec.minus && spec.precision.is_none() {
        let used = sign.len() + prefix.len() + digits.len();
        let fill = spec.width.unwrap_or(0).saturating_sub(used);
        digits.insert_str(0, &"0".repeat(fill));
    }
    pad(out, spec, &format!("{sign}{prefix}{digits}"), false);
    Some(())
}

fn format_float(out: &mut String, spec: &Spec, verb: char, f: f64, value: &Value) -> Option<()> {
    let magnitude = f.abs();
    let precision = spec.precision.unwrap_or(6);
    let (fraction, zeros) = (precision.min(FRACTION_MAX), "0".repeat(precision.saturating_sub(FRACTION_MAX)));
    let mut text = if !f.is_finite() {
        if f.is_nan() { "NaN".to_string() } else { "Inf".to_string() }
    } else {
        match verb {
            'f' | 'F' => format!("{magnitude:.fraction$}{zeros}"),
            'x' | 'X' => hexadecimal(magnitude, spec.precision),
            'e' | 'E' => exponent(&format!("{magnitude:.fraction$e}"), &zeros),
            'g' | 'G' | 'v' => match spec.precision {
                None => float(magnitude),
                Some(precision) => general(magnitude, precision.clamp(1, FRACTION_MAX)),
            },
            _ => return bad_verb(out, spec, verb, value),
        }
    };
    if matches!(verb, 'E' | 'G' | 'X') {
        text = text.to_uppercase();
    }
    let sign = match (f.is_sign_negative() && !f.is_nan(), spec.plus || f.is_infinite(), spec.space) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    };
    pad(out, spec, &format!("{sign}{text}"), f.is_finite());
    Some(())
}

/// Rust's `1.5e2` as Go's `1.5e+02`, with `zeros` behind the digits.
fn exponent(text: &str, zeros: &str) -> String {
    let Some((mantissa, exponent)) = text.split_once('e') else { return text.to_string() };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}{zeros}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `%x` of a number that is not negative: the mantissa in hexadecimal, the power of two in decimal.
fn hexadecimal(f: f64, precision: Option<usize>) -> String {
    const FRACTION_BITS: u32 = 52;
    if f == 0.0 {
        let zeros = "0".repeat(precision.unwrap_or(0));
        return if zeros.is_empty() { "0x0p+00".into() } else { format!("0x0.{zeros}p+00") };
    }
    let bits = f.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let biased = i32::try_from(bits >> FRACTION_BITS).unwrap_or(0);
    // Numbers too small for an own power have no hidden one: they are moved until they have.
    let (mut mantissa, mut power) = match biased {
        0 => {
            let shift = fraction.leading_zeros().saturating_sub(63 - FRACTION_BITS);
            (fraction << shift, -1022 - i32::try_from(shift).unwrap_or(0))
        }
        _ => (fraction | 1 << FRACTION_BITS, biased - 1023),
    };
    if let Some(digits) = precision.filter(|digits| *digits < 13) {
        let dropped = FRACTION_BITS - 4 * u32::try_from(digits).unwrap_or(0);
        let (kept, rest, half) = (mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1 << (dropped - 1));
        let up = rest > half || (rest == half && kept & 1 == 1);
        mantissa = (kept + u64::from(up)) << dropped;
        if mantissa >> (FRACTION_BITS + 1) != 0 {
            mantissa >>= 1;
            power += 1;
        }
    }
    let mut digits = format!("{:013x}", mantissa & ((1 << FRACTION_BITS) - 1));
    match precision {
        Some(wanted) if wanted < digits.len() => digits.truncate(wanted),
        Some(wanted) => digits.push_str(&"0".repeat(wanted - digits.len())),
        None => digits.truncate(digits.trim_end_matches('0').len()),
    }
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x1{point}{digits}p{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

/// `%.Ng`.
fn general(f: f64, precision: usize) -> String {
    let scientific = format!("{f:.*e}", precision - 1);
    let Some((mantissa, power)) = scientific.split_once('e') else { return scientific };
    let power: i32 = power.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if power < -4 || i64::from(power) >= precision as i64 {
        return exponent(&format!("{}e{power}", trimmed(mantissa)), "");
    }
    let decimals = usize::try_from(precision as i64 - 1 - i64::from(power)).unwrap_or(0);
    trimmed(&format!("{f:.decimals$}"))
}

fn format_str(out: &mut String, spec: &Spec, verb: char, text: &str, value: &Value) -> Option<()> {
    let cut: String;
    let text = match spec.precision {
        Some(precision) if matches!(verb, 's' | 'v' | 'q') => {
            cut = text.chars().take(precision).collect();
            cut.as_str()
        }
        _ => text,
    };
    match verb {
        'v' if spec.sharp => pad(out, spec, &quote(text), false),
        's' | 'v' => pad(out, spec, text, true),
        'q' if spec.sharp && !text.contains(['`', '\n']) => pad(out, spec, &format!("`{text}`"), true),
        'q' if spec.plus => pad(out, spec, &quote_ascii(text), true),
        'q' => pad(out, spec, &quote(text), true),
        'x' | 'X' => {
            let mut hex = String::new();
            for (i, byte) in text.bytes().take(spec.precision.unwrap_or(usize::MAX)).enumerate() {
                if spec.space && i > 0 {
                    hex.push(' ');
                }
                let _ = if verb == 'x' { write!(hex, "{byte:02x}") } else { write!(hex, "{byte:02X}") };
            }
            pad(out, spec, &hex, false);
        }
        _ => return bad_verb(out, spec, verb, value),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_width_or_precision_panics() {
        for verb in ["d", "x", "f", "e", "g", "v", "s", "q", "t", "c", "U"] {
            for format in [format!("%.999999999{verb}"), format!("%999999999{verb}"), format!("%0+#99999.99999{verb}")]
            {
                for value in [Value::Int(1), Value::Float(1e-4), Value::Float(-1e300), Value::Str("a".into())] {
                    let _ = printf(&format, &[value]);
                }
            }
            let _ = printf(&format!("%.*{verb}"), &[Value::Int(65_536), Value::Float(0.000_1)]);
            let _ = printf(&format!("%*{verb}"), &[Value::Int(i64::MIN), Value::Float(0.000_1)]);
        }
    }
}
