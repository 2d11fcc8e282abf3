//! Go's layouts: a time as text, and text as a time, in the shape of an example of 2006.

use super::{DAYS, MONTHS, Time, days_of};

impl Time {
    /// `time.Format` with a Go layout.
    pub(super) fn format(&self, layout: &str) -> String {
        let c = self.civil();
        let name = |names: &[&str], i: u32| names.get(i as usize).copied().unwrap_or_default().to_string();
        let hour12 = (c.hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut rest = layout;
        let mut previous_second = false;
        while !rest.is_empty() {
            let (piece, length) = piece(rest, previous_second);
            let text = match piece {
                Piece::Literal => rest[..length].to_string(),
                Piece::Year4 => format!("{:04}", c.year),
                Piece::Year2 => format!("{:02}", c.year.rem_euclid(100)),
                Piece::MonthLong => name(&MONTHS, c.month - 1),
                Piece::MonthShort => name(&MONTHS, c.month - 1).chars().take(3).collect(),
                Piece::Month2 => format!("{:02}", c.month),
                Piece::Month1 => c.month.to_string(),
                Piece::DayLong => name(&DAYS, c.weekday),
                Piece::DayShort => name(&DAYS, c.weekday).chars().take(3).collect(),
                Piece::Day2 => format!("{:02}", c.day),
                Piece::DaySpace => format!("{:2}", c.day),
                Piece::Day1 => c.day.to_string(),
                Piece::YearDay => format!("{:03}", c.yearday),
                Piece::Hour24 => format!("{:02}", c.hour),
                Piece::Hour12Two => format!("{hour12:02}"),
                Piece::Hour12 => hour12.to_string(),
                Piece::Minute2 => format!("{:02}", c.minute),
                Piece::Minute1 => c.minute.to_string(),
                Piece::Second2 => format!("{:02}", c.second),
                Piece::Second1 => c.second.to_string(),
                Piece::Noon => if c.hour >= 12 { "PM" } else { "AM" }.to_string(),
                Piece::NoonLow => if c.hour >= 12 { "pm" } else { "am" }.to_string(),
                Piece::ZoneName => self.zone.clone(),
                Piece::Offset { z, colon, minutes, seconds } => self.offset_text(z, colon, minutes, seconds),
                Piece::Fraction { digits, trims } => {
                    let all = format!("{:09}", self.nanos);
                    let mut text = all[..digits.min(9)].to_string();
                    if trims {
                        text = text.trim_end_matches('0').to_string();
                    }
                    if text.is_empty() { text } else { format!("{}{text}", &rest[..1]) }
                }
            };
            previous_second = matches!(piece, Piece::Second2 | Piece::Second1);
            out.push_str(&text);
            rest = &rest[length..];
        }
        out
    }

    fn offset_text(&self, z: bool, colon: bool, minutes: bool, seconds: bool) -> String {
        if z && self.offset == 0 {
            return "Z".into();
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let total = self.offset.unsigned_abs();
        let sep = if colon { ":" } else { "" };
        let mut text = format!("{sign}{:02}", total / 3600);
        if minutes {
            text.push_str(&format!("{sep}{:02}", total % 3600 / 60));
        }
        if seconds {
            text.push_str(&format!("{sep}{:02}", total % 60));
        }
        text
    }
}

#[derive(Clone, Copy)]
enum Piece {
    Literal,
    Year4,
    Year2,
    MonthLong,
    MonthShort,
    Month2,
    Month1,
    DayLong,
    DayShort,
    Day2,
    DaySpace,
    Day1,
    YearDay,
    Hour24,
    Hour12Two,
    Hour12,
    Minute2,
    Minute1,
    Second2,
    Second1,
    Noon,
    NoonLow,
    ZoneName,
    Offset { z: bool, colon: bool, minutes: bool, seconds: bool },
    Fraction { digits: usize, trims: bool },
}

/// The element that a layout begins with, and its length in bytes.
fn piece(layout: &str, after_second: bool) -> (Piece, usize) {
    const OFFSETS: &[(&str, bool, bool, bool)] = &[
        ("07:00:00", true, true, true),
        ("070000", false, true, true),
        ("07:00", true, true, false),
        ("0700", false, true, false),
        ("07", false, false, false),
    ];
    const FIXED: &[(&str, Piece)] = &[
        ("January", Piece::MonthLong),
        ("Monday", Piece::DayLong),
        ("Jan", Piece::MonthShort),
        ("Mon", Piece::DayShort),
        ("MST", Piece::ZoneName),
        ("2006", Piece::Year4),
        ("002", Piece::YearDay),
        ("01", Piece::Month2),
        ("02", Piece::Day2),
        ("03", Piece::Hour12Two),
        ("04", Piece::Minute2),
        ("05", Piece::Second2),
        ("06", Piece::Year2),
        ("_2006", Piece::Literal),
        ("_2", Piece::DaySpace),
        ("15", Piece::Hour24),
        ("PM", Piece::Noon),
        ("pm", Piece::NoonLow),
        ("1", Piece::Month1),
        ("2", Piece::Day1),
        ("3", Piece::Hour12),
        ("4", Piece::Minute1),
        ("5", Piece::Second1),
    ];
    if let Some(rest) = layout.strip_prefix(['-', 'Z']) {
        for (text, colon, minutes, seconds) in OFFSETS {
            if rest.starts_with(text) {
                let z = layout.starts_with('Z');
                return (Piece::Offset { z, colon: *colon, minutes: *minutes, seconds: *seconds }, 1 + text.len());
            }
        }
    }
    if let Some(rest) = layout.strip_prefix(['.', ',']) {
        for digit in ['0', '9'] {
            let digits = rest.chars().take_while(|c| *c == digit).count();
            let ends = !rest[digits..].starts_with(|c: char| c.is_ascii_digit());
            if digits > 0 && ends && (digit == '9' || after_second) {
                return (Piece::Fraction { digits, trims: digit == '9' }, 1 + digits);
            }
        }
    }
    for (text, piece) in FIXED {
        if layout.starts_with(text) {
            if *text == "_2006" {
                return (Piece::Literal, 1);
            }
            // `Jan` is not the beginning of a longer word such as `Janet`.
            if (*text == "Jan" || *text == "Mon") && layout[3..].starts_with(|c: char| c.is_ascii_lowercase()) {
                continue;
            }
            return (*piece, text.len());
        }
    }
    (Piece::Literal, layout.chars().next().map_or(1, char::len_utf8))
}

/// `time.Parse` with a Go layout.
pub(super) fn parse(layout: &str, text: &str) -> Result<Time, String> {
    let fail = |rest: &str, element: &str| {
        let q = crate::gofmt::quote;
        format!("parsing time {} as {}: cannot parse {} as {}", q(text), q(layout), q(rest), q(element))
    };
    let (mut year, mut month, mut day) = (0_i64, 1_u32, 1_u32);
    let (mut hour, mut minute, mut second, mut nanos) = (0_u32, 0_u32, 0_u32, 0_u32);
    let (mut afternoon, mut offset, mut zone) = (None, 0_i32, String::from("UTC"));
    let mut rest = text;
    let mut pattern = layout;
    let mut previous_second = false;
    while !pattern.is_empty() {
        let (piece, length) = piece(pattern, previous_second);
        let element = &pattern[..length];
        pattern = &pattern[length..];
        let before = rest;
        let mut digits = |min: usize, max: usize| -> Result<u32, String> {
            let count = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
            if count < min {
                return Err(fail(before, element));
            }
            let (number, after) = rest.split_at(count);
            rest = after;
            number.parse().map_err(|_| fail(before, element))
        };
        match piece {
            Piece::Literal => rest = rest.strip_prefix(element).ok_or_else(|| fail(before, element))?,
            Piece::Year4 => year = digits(4, 4)?.into(),
            Piece::Year2 => {
                let short = i64::from(digits(2, 2)?);
                year = if short >= 69 { 1900 + short } else { 2000 + short };
            }
            Piece::Month2 => month = digits(2, 2)?,
            Piece::Month1 => month = digits(1, 2)?,
            Piece::MonthLong | Piece::MonthShort => {
                let long = matches!(piece, Piece::MonthLong);
                let found = MONTHS.iter().enumerate().find_map(|(i, name)| {
                    let name = if long { name } else { &name[..3] };
                    let head = rest.get(..name.len())?;
                    head.eq_ignore_ascii_case(name).then_some((i, name.len()))
                });
                let (i, length) = found.ok_or_else(|| fail(before, element))?;
                month = u32::try_from(i).unwrap_or(0) + 1;
                rest = &rest[length..];
            }
            Piece::DayLong | Piece::DayShort => {
                let long = matches!(piece, Piece::DayLong);
                let found = DAYS.iter().find_map(|name| {
                    let name = if long { name } else { &name[..3] };
                    rest.get(..name.len())?.eq_ignore_ascii_case(name).then_some(name.len())
                });
                rest = &rest[found.ok_or_else(|| fail(before, element))?..];
            }
            Piece::Day2 => day = digits(2, 2)?,
            Piece::Day1 => day = digits(1, 2)?,
            Piece::DaySpace => {
                rest = rest.strip_prefix(' ').unwrap_or(rest);
                let count = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
                let (number, after) = rest.split_at(count);
                day = number.parse().map_err(|_| fail(before, element))?;
                rest = after;
            }
            Piece::YearDay => {
                day = digits(3, 3)?;
                month = 1;
            }
            Piece::Hour24 => hour = digits(1, 2)?,
            Piece::Hour12Two => hour = digits(2, 2)?,
            Piece::Hour12 => hour = digits(1, 2)?,
            Piece::Minute2 => minute = digits(2, 2)?,
            Piece::Minute1 => minute = digits(1, 2)?,
            Piece::Second2 | Piece::Second1 => {
                second = digits(if matches!(piece, Piece::Second2) { 2 } else { 1 }, 2)?;
                // A fraction may follow although the layout has none.
                let follows = rest.strip_prefix('.').filter(|r| r.starts_with(|c: char| c.is_ascii_digit()));
                if let Some(after) = follows.filter(|_| !pattern.starts_with(['.', ','])) {
                    let count = after.bytes().take_while(u8::is_ascii_digit).count();
                    nanos = fraction(&after[..count]);
                    rest = &after[count..];
                }
            }
            Piece::Noon | Piece::NoonLow => {
                let head = rest.get(..2).ok_or_else(|| fail(before, element))?;
                afternoon = match head.to_ascii_uppercase().as_str() {
                    "PM" => Some(true),
                    "AM" => Some(false),
                    _ => return Err(fail(before, element)),
                };
                rest = &rest[2..];
            }
            Piece::ZoneName => {
                let count = rest.bytes().take_while(u8::is_ascii_uppercase).count();
                if count < 3 {
                    return Err(fail(before, element));
                }
                zone = rest[..count].to_string();
                rest = &rest[count..];
            }
            Piece::Offset { z, colon, minutes, .. } => {
                if let Some(after) = rest.strip_prefix('Z').filter(|_| z) {
                    rest = after;
                } else {
                    let sign = match rest.as_bytes().first() {
                        Some(b'+') => 1,
                        Some(b'-') => -1,
                        _ => return Err(fail(before, element)),
                    };
                    let two = |t: &str| t.get(..2).and_then(|d| d.parse::<i32>().ok());
                    rest = &rest[1..];
                    let hours = two(rest).ok_or_else(|| fail(before, element))?;
                    rest = &rest[2..];
                    let mut total = hours * 3600;
                    if minutes {
                        if colon {
                            rest = rest.strip_prefix(':').ok_or_else(|| fail(before, element))?;
                        }
                        total += two(rest).ok_or_else(|| fail(before, element))? * 60;
                        rest = &rest[2..];
                    }
                    offset = sign * total;
                    zone = String::new();
                }
            }
            Piece::Fraction { .. } => {
                if let Some(after) = rest.strip_prefix(['.', ',']) {
                    let count = after.bytes().take_while(u8::is_ascii_digit).count();
                    nanos = fraction(&after[..count]);
                    rest = &after[count..];
                }
            }
        }
        previous_second = matches!(piece, Piece::Second2 | Piece::Second1);
    }
    if !rest.is_empty() {
        let q = crate::gofmt::quote;
        return Err(format!("parsing time {}: extra text: {}", q(text), q(rest)));
    }
    let out_of_range = |what: &str| Err(format!("parsing time {}: {what} out of range", crate::gofmt::quote(text)));
    if !(1..=12).contains(&month) {
        return out_of_range("month");
    }
    let length = days_of(if month == 12 { year + 1 } else { year }, month % 12 + 1, 1) - days_of(year, month, 1);
    let is_year_day = day > 31;
    if day < 1 || (!is_year_day && i64::from(day) > length) || day > 366 {
        return out_of_range("day");
    }
    if hour > 23 || minute > 59 || second > 59 {
        return out_of_range(if hour > 23 {
            "hour"
        } else if minute > 59 {
            "minute"
        } else {
            "second"
        });
    }
    match afternoon {
        Some(true) if hour < 12 => hour += 12,
        Some(false) if hour == 12 => hour = 0,
        _ => {}
    }
    let days = days_of(year, month, 1) + i64::from(day) - 1;
    let local = days * 86_400 + i64::from(hour * 3600 + minute * 60 + second);
    Ok(Time { seconds: local - i64::from(offset), nanos, offset, zone })
}

fn fraction(digits: &str) -> u32 {
    let nine: String = digits.chars().chain("000000000".chars()).take(9).collect();
    nine.parse().unwrap_or(0)
}
