//! Numbers, and sprig's conversions to them.

use super::{Answer, Call, Entry, any, s};
use crate::{exec::Fault, gofmt, value::Value};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("int", "a", |_, args| Ok(Value::Int(to_int(any(args, 0))))),
    ("int64", "a", |_, args| Ok(Value::Int64(to_int(any(args, 0))))),
    ("float64", "a", |_, args| Ok(Value::Float(to_float(any(args, 0))))),
    ("atoi", "s", |_, args| Ok(Value::Int(s(args, 0).parse().unwrap_or(0)))),
    ("toDecimal", "a", |_, args| {
        let text = gofmt::display(any(args, 0)).unwrap_or_default();
        Ok(Value::Int64(i64::from_str_radix(&text, 8).unwrap_or(0)))
    }),
    ("add", "*a", |_, args| Ok(Value::Int64(args.iter().fold(0, |sum: i64, v| sum.wrapping_add(to_int(v)))))),
    ("add1", "a", |_, args| Ok(Value::Int64(to_int(any(args, 0)).wrapping_add(1)))),
    ("sub", "aa", |_, args| Ok(Value::Int64(to_int(any(args, 0)).wrapping_sub(to_int(any(args, 1)))))),
    ("mul", "a*a", |_, args| Ok(Value::Int64(args.iter().fold(1, |product: i64, v| product.wrapping_mul(to_int(v)))))),
    ("div", "aa", |_, args| divide(args, i64::wrapping_div)),
    ("mod", "aa", |_, args| divide(args, i64::wrapping_rem)),
    ("max", "a*a", |_, args| Ok(Value::Int64(args.iter().map(to_int).max().unwrap_or(0)))),
    ("biggest", "a*a", |_, args| Ok(Value::Int64(args.iter().map(to_int).max().unwrap_or(0)))),
    ("min", "a*a", |_, args| Ok(Value::Int64(args.iter().map(to_int).min().unwrap_or(0)))),
    ("maxf", "a*a", |_, args| Ok(Value::Float(args.iter().map(to_float).fold(f64::NEG_INFINITY, f64::max)))),
    ("minf", "a*a", |_, args| Ok(Value::Float(args.iter().map(to_float).fold(f64::INFINITY, f64::min)))),
    ("addf", "*a", |_, args| Ok(Value::Float(decimal(args, Some(0.0), Decimal::add, |a, b| a + b)))),
    ("add1f", "a", |_, args| Ok(Value::Float(decimal(args, Some(1.0), Decimal::add, |a, b| a + b)))),
    ("subf", "a*a", |_, args| Ok(Value::Float(decimal(args, None, Decimal::sub, |a, b| a - b)))),
    ("mulf", "a*a", |_, args| Ok(Value::Float(decimal(args, None, Decimal::mul, |a, b| a * b)))),
    ("divf", "a*a", |_, args| {
        if args.iter().skip(1).any(|v| to_float(v) == 0.0) {
            return Err(Fault::message("decimal division by 0"));
        }
        Ok(Value::Float(args.iter().skip(1).fold(to_float(any(args, 0)), |q, v| q / to_float(v))))
    }),
    ("floor", "a", |_, args| Ok(Value::Float(to_float(any(args, 0)).floor()))),
    ("ceil", "a", |_, args| Ok(Value::Float(to_float(any(args, 0)).ceil()))),
    ("round", "ai*f", round),
    ("seq", "*i", seq),
];

/// Go's conversion, as amd64 does it: the fraction is dropped, and what does not fit is the smallest number.
fn truncated(f: f64) -> i64 {
    // 2^63 itself does not fit, -2^63 does; NaN is in no range.
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range has been checked; the fraction is dropped on purpose"
    )]
    if (-END..END).contains(&f) { f as i64 } else { i64::MIN }
}

/// `cast.ToInt64`: whatever cannot be a number is 0; strings are read with their radix prefix.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(i) | Value::Int64(i) => *i,
        Value::Float(f) => truncated(*f),
        Value::Bool(b) => i64::from(*b),
        Value::Str(text) => {
            let text = match text.split_once('.') {
                Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
                _ => text,
            };
            gofmt::parse_int(text).unwrap_or(0)
        }
        Value::Object(object) => object.as_int().unwrap_or(0),
        _ => 0,
    }
}

pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Float(f) => *f,
        Value::Str(text) => gofmt::parse_float(text).unwrap_or(0.0),
        other => to_int(other) as f64,
    }
}

fn divide(args: &[Value], op: fn(i64, i64) -> i64) -> Answer {
    match to_int(any(args, 1)) {
        0 => Err(Fault::message("runtime error: integer divide by zero")),
        divisor => Ok(Value::Int64(op(to_int(any(args, 0)), divisor))),
    }
}

fn round(_: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let places = super::int(args, 1).clamp(-400, 400);
    let on = args.get(2).map_or(0.5, to_float);
    let power = 10_f64.powi(i32::try_from(places).unwrap_or(0));
    let digit = power * to_float(any(args, 0));
    let rounded = if digit.fract() >= on { digit.ceil() } else { digit.floor() };
    Ok(Value::Float(rounded / power))
}

fn seq(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let (start, step, end) = match args {
        [end] => {
            let end = to_int(end);
            (1, if end < 1 { -1 } else { 1 }, end)
        }
        [start, end] => {
            let (start, end) = (to_int(start), to_int(end));
            (start, if end < start { -1 } else { 1 }, end)
        }
        [start, step, end] => (to_int(start), to_int(step), to_int(end)),
        _ => return Ok(Value::str("")),
    };
    let stop = end.saturating_add(if step < 0 { -1 } else { 1 });
    if (step < 0) != (end < start) && end != start {
        return Ok(Value::str(""));
    }
    let Value::List(numbers) = super::list::steps(call, start, stop, step)? else { return Ok(Value::str("")) };
    let texts: Vec<String> = numbers.items.iter().map(|n| to_int(n).to_string()).collect();
    call.text(texts.join(" "))
}

/// A decimal number, so that 0.1 + 0.2 is 0.3 as with the decimal library that sprig uses.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    scale: u32,
}

impl Decimal {
    fn of(f: f64) -> Option<Self> {
        let text = format!("{f}");
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let digits = format!("{whole}{fraction}");
        if digits.len() > 25 {
            return None;
        }
        Some(Self { digits: digits.parse().ok()?, scale: u32::try_from(fraction.len()).ok()? })
    }

    fn align(self, other: Self) -> Option<(i128, i128, u32)> {
        let scale = self.scale.max(other.scale);
        let a = self.digits.checked_mul(10_i128.checked_pow(scale - self.scale)?)?;
        let b = other.digits.checked_mul(10_i128.checked_pow(scale - other.scale)?)?;
        Some((a, b, scale))
    }

    fn add(self, other: Self) -> Option<Self> {
        let (a, b, scale) = self.align(other)?;
        Some(Self { digits: a.checked_add(b)?, scale })
    }

    fn sub(self, other: Self) -> Option<Self> {
        let (a, b, scale) = self.align(other)?;
        Some(Self { digits: a.checked_sub(b)?, scale })
    }

    fn mul(self, other: Self) -> Option<Self> {
        Some(Self { digits: self.digits.checked_mul(other.digits)?, scale: self.scale.checked_add(other.scale)? })
    }

    fn float(self) -> Option<f64> {
        format!("{}e-{}", self.digits, self.scale).parse().ok()
    }
}

/// Folds in decimal, and in binary where the numbers do not fit.
fn decimal(
    args: &[Value],
    start: Option<f64>,
    exact: fn(Decimal, Decimal) -> Option<Decimal>,
    rough: fn(f64, f64) -> f64,
) -> f64 {
    let numbers: Vec<f64> = start.into_iter().chain(args.iter().map(to_float)).collect();
    let Some((first, rest)) = numbers.split_first() else { return 0.0 };
    let folded = rest.iter().try_fold(Decimal::of(*first), |sum, n| Some(Some(exact(sum?, Decimal::of(*n)?)?)));
    match folded.flatten().and_then(Decimal::float) {
        Some(f) => f,
        None => rest.iter().fold(*first, |sum, n| rough(sum, *n)),
    }
}
