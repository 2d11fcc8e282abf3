//! Times and durations. "Now" is what the host passed in; the local zone is UTC.

use std::fmt;

use jiff::tz::TimeZoneDatabase;

use super::{Answer, Call, Entry, any, s};
use crate::{exec::Fault, object::Object, value::Value};

pub(super) const FUNCTIONS: &[Entry] = &[
    ("now", "", |call, _| Ok(wrap(now(call)))),
    ("date", "sa", |call, args| formatted(call, s(args, 0), any(args, 1), "Local")),
    ("dateInZone", "sas", |call, args| formatted(call, s(args, 0), any(args, 1), s(args, 2))),
    ("date_in_zone", "sas", |call, args| formatted(call, s(args, 0), any(args, 1), s(args, 2))),
    ("htmlDate", "a", |call, args| formatted(call, "2006-01-02", any(args, 0), "Local")),
    ("htmlDateInZone", "as", |call, args| formatted(call, "2006-01-02", any(args, 0), s(args, 1))),
    ("dateModify", "st", |_, args| modify(args).or_else(|_| Ok(any(args, 1).clone()))),
    ("date_modify", "st", |_, args| modify(args).or_else(|_| Ok(any(args, 1).clone()))),
    ("mustDateModify", "st", |_, args| modify(args)),
    ("must_date_modify", "st", |_, args| modify(args)),
    ("toDate", "ss", |_, args| Ok(wrap(parse(s(args, 0), s(args, 1)).unwrap_or_else(|_| Time::zero())))),
    ("mustToDate", "ss", |_, args| parse(s(args, 0), s(args, 1)).map(wrap).map_err(Fault::Message)),
    ("unixEpoch", "t", |_, args| {
        let seconds = time_of(any(args, 0)).map_or(0, |time| time.seconds);
        Ok(Value::str(seconds.to_string()))
    }),
    ("ago", "a", |call, args| {
        let then = moment(call, any(args, 0));
        let seconds = now(call).seconds.saturating_sub(then.seconds);
        call.text(duration_text(seconds.saturating_mul(1_000_000_000)))
    }),
    ("duration", "a", |call, args| {
        let seconds = match any(args, 0) {
            Value::Str(text) => text.parse().unwrap_or(0),
            Value::Int64(n) => *n,
            _ => 0_i64,
        };
        call.text(duration_text(seconds.saturating_mul(1_000_000_000)))
    }),
    ("durationRound", "a", |call, args| {
        let nanos = match any(args, 0) {
            Value::Str(text) => parse_duration(text).unwrap_or(0),
            Value::Int64(n) => *n,
            Value::Object(object) => match &**object {
                Object::Duration(nanos) => *nanos,
                Object::Time(time) => now(call).seconds.saturating_sub(time.seconds).saturating_mul(1_000_000_000),
                _ => 0,
            },
            _ => 0,
        };
        call.text(rounded(nanos))
    }),
];

/// A moment with the zone that it is shown in.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    /// Since 1970, in UTC.
    seconds: i64,
    nanos: u32,
    /// Seconds east of UTC.
    offset: i32,
    zone: String,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

struct Civil {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    weekday: u32,
    yearday: u32,
}

fn wrap(time: Time) -> Value {
    Value::object(Object::Time(time))
}

fn now(call: &Call<'_, '_>) -> Time {
    let ms = call.run.now_unix_ms;
    let nanos = u32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
    Time { seconds: ms.div_euclid(1000), nanos, offset: 0, zone: "UTC".into() }
}

fn time_of(value: &Value) -> Option<Time> {
    match value {
        Value::Object(object) => match &**object {
            Object::Time(time) => Some(time.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// sprig's reading of a date argument: a time, seconds since 1970, or else now.
fn moment(call: &Call<'_, '_>, value: &Value) -> Time {
    match value {
        Value::Int(seconds) | Value::Int64(seconds) => Time { seconds: *seconds, ..Time::epoch() },
        value => time_of(value).unwrap_or_else(|| now(call)),
    }
}

fn formatted(call: &mut Call<'_, '_>, layout: &str, value: &Value, zone: &str) -> Answer {
    let mut time = moment(call, value);
    if zone != "Local" || time_of(value).is_none() {
        time = time.at_zone(zone);
    } else {
        time = time.at_zone("UTC");
    }
    call.text(time.format(layout))
}

fn modify(args: &[Value]) -> Answer {
    let time = time_of(any(args, 1)).ok_or_else(|| Fault::message("not a time"))?;
    let text = s(args, 0);
    let nanos = parse_duration(text)
        .ok_or_else(|| Fault::message(format!("time: invalid duration {}", crate::gofmt::quote(text))))?;
    Ok(wrap(time.plus(nanos)))
}

/// Seconds since 1970 as `YYYYMMDDhhmmssZ`.
pub(crate) fn utc_stamp(seconds: i64) -> String {
    Time { seconds, ..Time::epoch() }.format("20060102150405Z")
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Days since 1970 of a date, by the proleptic Gregorian calendar.
fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let month = i64::from(month);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

impl Time {
    fn epoch() -> Self {
        Self { seconds: 0, nanos: 0, offset: 0, zone: "UTC".into() }
    }

    /// Go's zero time: the first of January of the year 1.
    fn zero() -> Self {
        Self { seconds: days_of(1, 1, 1) * 86_400, ..Self::epoch() }
    }

    fn plus(&self, nanos: i64) -> Self {
        let total = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
        let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).unwrap_or(0);
        Self { seconds, nanos, ..self.clone() }
    }

    /// The same moment elsewhere; an unknown zone is UTC, as in sprig.
    fn at_zone(&self, zone: &str) -> Self {
        let utc = Self { offset: 0, zone: "UTC".into(), ..self.clone() };
        if matches!(zone, "" | "UTC" | "Local") {
            return utc;
        }
        let Ok(found) = TimeZoneDatabase::bundled().get(zone) else { return utc };
        let Ok(stamp) = jiff::Timestamp::from_second(self.seconds) else { return utc };
        let info = found.to_offset_info(stamp);
        Self { offset: info.offset().seconds(), zone: info.abbreviation().to_string(), ..utc }
    }

    fn civil(&self) -> Civil {
        let local = self.seconds.saturating_add(i64::from(self.offset));
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let of_era = z.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * of_year + 2) / 153;
        let small = |n: i64| u32::try_from(n).unwrap_or(0);
        let day = small(of_year - (153 * month_index + 2) / 5 + 1);
        let month = small(if month_index < 10 { month_index + 3 } else { month_index - 9 });
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day,
            hour: small(second / 3600),
            minute: small(second % 3600 / 60),
            second: small(second % 60),
            weekday: small((days + 4).rem_euclid(7)),
            yearday: small(days - days_of(year, 1, 1) + 1),
        }
    }

    pub(crate) fn rfc3339(&self) -> String {
        self.format("2006-01-02T15:04:05.999999999Z07:00")
    }

    /// `time.Format` with a Go layout.
    fn format(&self, layout: &str) -> String {
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

    pub(crate) fn call(&self, name: &str, args: &[Value]) -> Option<Value> {
        let c = self.civil();
        let number = |n: u32| Some(Value::Int(n.into()));
        let other = || time_of(any(args, 0));
        match name {
            "Format" => Some(Value::str(self.format(s(args, 0)))),
            "Unix" => Some(Value::Int64(self.seconds)),
            "UnixMilli" => Some(Value::Int64(self.seconds.wrapping_mul(1000) + i64::from(self.nanos / 1_000_000))),
            "UnixNano" => Some(Value::Int64(self.seconds.wrapping_mul(1_000_000_000).wrapping_add(self.nanos.into()))),
            "Year" => Some(Value::Int(c.year)),
            "Month" => Some(Value::str(MONTHS.get(c.month as usize - 1).copied().unwrap_or_default())),
            "Weekday" => Some(Value::str(DAYS.get(c.weekday as usize).copied().unwrap_or_default())),
            "Day" => number(c.day),
            "Hour" => number(c.hour),
            "Minute" => number(c.minute),
            "Second" => number(c.second),
            "Nanosecond" => number(self.nanos),
            "YearDay" => number(c.yearday),
            "UTC" | "Local" => Some(wrap(self.at_zone("UTC"))),
            "String" => Some(Value::str(self.to_string())),
            "IsZero" => Some(Value::Bool(*self == Self::zero())),
            "AddDate" => {
                let (years, months, days) = (super::int(args, 0), super::int(args, 1), super::int(args, 2));
                let month = i64::from(c.month) - 1 + months.clamp(-100_000, 100_000);
                let year = c.year + years.clamp(-10_000, 10_000) + month.div_euclid(12);
                let month = u32::try_from(month.rem_euclid(12) + 1).unwrap_or(1);
                let day = days_of(year, month, 1) + i64::from(c.day) - 1 + days.clamp(-10_000_000, 10_000_000);
                let of_day = (self.seconds + i64::from(self.offset)).rem_euclid(86_400);
                Some(wrap(Self { seconds: day * 86_400 + of_day - i64::from(self.offset), ..self.clone() }))
            }
            "Add" => {
                let nanos = match any(args, 0) {
                    Value::Int(n) | Value::Int64(n) => *n,
                    Value::Object(object) => object.as_int()?,
                    _ => return None,
                };
                Some(wrap(self.plus(nanos)))
            }
            "Before" => Some(Value::Bool((self.seconds, self.nanos) < other().map(|t| (t.seconds, t.nanos))?)),
            "After" => Some(Value::Bool((self.seconds, self.nanos) > other().map(|t| (t.seconds, t.nanos))?)),
            "Equal" => Some(Value::Bool(*self == other()?)),
            "Sub" => {
                let other = other()?;
                let nanos = (i128::from(self.seconds) - i128::from(other.seconds)) * 1_000_000_000
                    + i128::from(self.nanos)
                    - i128::from(other.nanos);
                let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
                Some(Value::object(Object::Duration(nanos)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
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
fn parse(layout: &str, text: &str) -> Result<Time, String> {
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
fn rounded(nanos: i64) -> String {
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
