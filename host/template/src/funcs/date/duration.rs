//! Durations: reading, printing, rounding, and their methods.

use crate::value::Value;

/// `time.ParseDuration`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_f64;
    let mut exact = 0_i128;
    while !rest.is_empty() {
        let length = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, after) = rest.split_at(length);
        let unit_length = after.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count();
        let (unit, after) = after.split_at(unit_length);
        rest = after;
        let scale: i64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        match number.parse::<i64>() {
            Ok(whole) => exact += i128::from(whole) * i128::from(scale),
            Err(_) => total += number.parse::<f64>().ok()? * scale as f64,
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "the fraction of a nanosecond is dropped, as in Go")]
    let sum = exact + total as i128;
    i64::try_from(if negative { -sum } else { sum }).ok()
}

/// `time.Duration.String`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let (whole, part) = (value / unit, value % unit);
        let width = unit.to_string().len() - 1;
        let fraction = format!("{part:0width$}");
        let fraction = fraction.trim_end_matches('0');
        if part == 0 { whole.to_string() } else { format!("{whole}.{fraction}") }
    };
    if total == 0 {
        return "0s".into();
    }
    if total < 1_000 {
        return format!("{sign}{total}ns");
    }
    if total < 1_000_000 {
        return format!("{sign}{}µs", decimal(total, 1_000));
    }
    if total < 1_000_000_000 {
        return format!("{sign}{}ms", decimal(total, 1_000_000));
    }
    let minutes = total / 60_000_000_000;
    let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, m) => format!("{sign}{m}m{seconds}s"),
        (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
    }
}

pub(crate) fn duration_method(nanos: i64, name: &str) -> Option<Value> {
    let per = |unit: i64| Some(Value::Float(nanos as f64 / unit as f64));
    match name {
        "Hours" => per(3_600_000_000_000),
        "Minutes" => per(60_000_000_000),
        "Seconds" => per(1_000_000_000),
        "Milliseconds" => Some(Value::Int64(nanos / 1_000_000)),
        "Microseconds" => Some(Value::Int64(nanos / 1_000)),
        "Nanoseconds" => Some(Value::Int64(nanos)),
        "String" => Some(Value::str(duration_text(nanos))),
        _ => None,
    }
}

/// sprig's `durationRound`: the largest unit only.
pub(super) fn rounded(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let seconds = nanos.unsigned_abs() / 1_000_000_000;
    const UNITS: &[(u64, &str)] =
        &[(31_536_000, "y"), (2_592_000, "mo"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    for (length, unit) in UNITS {
        if seconds > *length {
            return format!("{sign}{}{unit}", seconds / length);
        }
    }
    "0s".into()
}
