//! Amounts of resources, such as `500m` and `1.5Gi`: their size and the form in which the API shows them.

const NANO: i128 = 1_000_000_000;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `Ki`, `Mi`, …
    Binary,
    /// `m`, `k`, `M`, …
    Decimal,
    /// `e3`
    Exponent,
}

/// The size in billionths; `None` for what is no quantity or is larger than anything that exists.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    parse(text).map(|(size, _)| size)
}

/// The form in which the API shows an amount: the largest unit that needs no fraction.
pub(super) fn canonical(text: &str) -> Option<String> {
    let (size, form) = parse(text)?;
    let whole = size / NANO;
    if form == Form::Binary && size % NANO == 0 && whole.abs() >= 1024 {
        let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let (mut amount, mut unit) = (whole, 0);
        while amount % 1024 == 0 && unit + 1 < units.len() {
            (amount, unit) = (amount / 1024, unit + 1);
        }
        return Some(format!("{amount}{}", units.get(unit)?));
    }
    let units =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    let (mut amount, mut unit) = (size, if size == 0 { 3 } else { 0 });
    while amount != 0 && amount % 1000 == 0 && unit + 1 < units.len() {
        (amount, unit) = (amount / 1000, unit + 1);
    }
    let (suffix, exponent) = units.get(unit)?;
    Some(match form {
        Form::Exponent if *exponent != 0 => format!("{amount}e{exponent}"),
        _ => format!("{amount}{suffix}"),
    })
}

fn parse(text: &str) -> Option<(i128, Form)> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (multiplier, divisor, form): (i128, i128, Form) = match unit {
        "" => (1, 1, Form::Decimal),
        "n" => (1, NANO, Form::Decimal),
        "u" => (1, 1_000_000, Form::Decimal),
        "m" => (1, 1000, Form::Decimal),
        "k" => (1000, 1, Form::Decimal),
        "M" => (1_000_000, 1, Form::Decimal),
        "G" => (NANO, 1, Form::Decimal),
        "T" => (1_000_000_000_000, 1, Form::Decimal),
        "P" => (1_000_000_000_000_000, 1, Form::Decimal),
        "E" => (1_000_000_000_000_000_000, 1, Form::Decimal),
        "Ki" => (1 << 10, 1, Form::Binary),
        "Mi" => (1 << 20, 1, Form::Binary),
        "Gi" => (1 << 30, 1, Form::Binary),
        "Ti" => (1 << 40, 1, Form::Binary),
        "Pi" => (1 << 50, 1, Form::Binary),
        "Ei" => (1 << 60, 1, Form::Binary),
        _ => {
            let exponent: i32 = unit.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = |n: i32| 10_i128.checked_pow(u32::try_from(n).ok()?);
            match exponent {
                0..=18 => (power(exponent)?, 1, Form::Exponent),
                -9..=-1 => (1, power(-exponent)?, Form::Exponent),
                _ => return None,
            }
        }
    };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
    let size = digits.checked_mul(multiplier)?.checked_mul(NANO)?;
    // What is smaller than a billionth counts as one.
    let size = size / scale + i128::from(size % scale != 0);
    Some((if negative { -size } else { size }, form))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_in_the_largest_unit_without_a_fraction() {
        for (given, shown) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("64Mi", "64Mi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("-2000m", "-2"),
            ("1.0000000001", "1000000001n"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(shown), "{given}");
        }
        for bad in ["", "1.2.3", "Gi", "1 Gi", "1e99", "99999999999999999999999999999999999999999"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }
}
