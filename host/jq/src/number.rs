//! Numbers: integers of 64 bits, and floating-point numbers for what is none of these, as Kubernetes has them.

use std::cmp::Ordering;

/// A number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

use Number::{Float, Int};

/// 2^63, the first floating-point number that is no `i64`.
const LIMIT: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// An integer where the number is one.
    pub(crate) fn from_f64(number: f64) -> Self {
        match Float(number).as_i64() {
            Some(int) => Int(int),
            None => Float(number),
        }
    }

    /// Reads what JSON and jq programs call a number; the form was checked before.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(int) = text.parse::<i64>() {
            return Some(Int(int));
        }
        text.parse::<f64>().ok().map(Self::from_f64)
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Int(int) => int as f64,
            Float(float) => float,
        }
    }

    /// The integer that it is, if it is one.
    pub(crate) fn as_i64(self) -> Option<i64> {
        match self {
            Int(int) => Some(int),
            Float(float) if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) => {
                if float == 0.0 && float.is_sign_negative() { None } else { Some(float as i64) }
            }
            Float(_) => None,
        }
    }

    /// The integer that is left when the fraction is cut off; the nearest possible one beyond their range.
    pub(crate) fn truncated(self) -> i64 {
        match self {
            Int(int) => int,
            Float(float) => float as i64,
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        matches!(self, Float(float) if float.is_nan())
    }

    pub(crate) fn abs(self) -> Self {
        match self {
            Int(int) => int.checked_abs().map_or_else(|| Float((int as f64).abs()), Int),
            Float(float) => Float(float.abs()),
        }
    }

    pub(crate) fn negate(self) -> Self {
        match self {
            Int(0) => Int(0),
            Int(int) => int.checked_neg().map_or_else(|| Float(-(int as f64)), Int),
            Float(float) => Float(-float),
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        self.both(other, i64::checked_add, |left, right| left + right)
    }

    pub(crate) fn subtract(self, other: Self) -> Self {
        self.both(other, i64::checked_sub, |left, right| left - right)
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        self.both(other, i64::checked_mul, |left, right| left * right)
    }

    /// `None` if the divisor is zero.
    pub(crate) fn divide(self, other: Self) -> Option<Self> {
        if other.as_f64() == 0.0 {
            return None;
        }
        if let (Int(left), Int(right)) = (self, other)
            && left.checked_rem(right) == Some(0)
            && let Some(quotient) = left.checked_div(right)
        {
            return Some(Int(quotient));
        }
        Some(Float(self.as_f64() / other.as_f64()))
    }

    /// The remainder of the truncated numbers, as in jq; `None` if the divisor is zero.
    pub(crate) fn remainder(self, other: Self) -> Option<Self> {
        if self.is_nan() || other.is_nan() {
            return Some(Float(f64::NAN));
        }
        let (left, right) = (self.truncated(), other.truncated());
        if right == 0 {
            return None;
        }
        // The one that overflows is a remainder by -1.
        Some(Int(left.checked_rem(right).unwrap_or(0)))
    }

    fn both(self, other: Self, ints: fn(i64, i64) -> Option<i64>, floats: fn(f64, f64) -> f64) -> Self {
        if let (Int(left), Int(right)) = (self, other)
            && let Some(result) = ints(left, right)
        {
            return Int(result);
        }
        Float(floats(self.as_f64(), other.as_f64()))
    }

    /// The order for sorting, in which what is not a number comes first and equals itself.
    pub(crate) fn order(self, other: Self) -> Ordering {
        match (self.as_i64(), other.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => self.as_f64().partial_cmp(&other.as_f64()).unwrap_or_else(|| other.is_nan().cmp(&self.is_nan())),
        }
    }

    /// Writes it as JavaScript and Go do. What JSON cannot express becomes `null` or the nearest number that it can.
    pub(crate) fn write(self, out: &mut String) {
        use std::fmt::Write as _;
        let float = match self {
            Int(int) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{int}");
                return;
            }
            Float(float) if float.is_nan() => return out.push_str("null"),
            Float(float) => float.clamp(f64::MIN, f64::MAX),
        };
        let size = float.abs();
        let _ = if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{float:e}");
            match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => write!(out, "{digits}e+{power}"),
                _ => write!(out, "{text}"),
            }
        } else {
            write!(out, "{float}")
        };
    }
}
