//! Times and durations. "Now" is what the host passed in; the local zone is UTC.

mod duration;
mod layout;

use std::fmt;

use jiff::tz::TimeZoneDatabase;

pub(crate) use duration::{duration_method, duration_text};
use duration::{parse_duration, rounded};
use layout::parse;

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
