//! Crontabs, with the meaning that they have in shell-operator: that of Go's robfig/cron v2.
//!
//! Five or six fields (seconds first), `TZ=Area/City ` in front, `@hourly` and its like, `@every 1h30m`. The parser is our
//! own because no crate has these rules: croner, the nearest, refuses `N/step`, `TZ=` and `@every`, accepts day 7, `L`, `W`
//! and `#`, takes `*/2` in a day field for a restriction rather than for a star, runs what falls into the gap of a
//! clock change an hour later, and what falls into the repeated hour only once.
//!
//! Where robfig hangs or lies we refuse: a step of 0, an empty list, a date that never comes. It also gives up after
//! five years, we after forty: the first of February is a Monday only every five to twelve years.
//!
//! A schedule is the set of instants whose civil time in its zone matches. So what falls into a gap is skipped, and what
//! falls into a repeated hour runs twice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

use crate::package::nearest;

mod agenda;

pub use agenda::Agenda;

/// Characters of one schedule.
const CHARACTERS: usize = 256;
/// Years after which a search ends. The calendar repeats after 28, or 40 if a year such as 2100 lies between.
const YEARS: i16 = 40;
/// Longest delay of `@every`.
const EVERY_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Why a schedule is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("schedule {text:?} is not valid at character {position}: {reason}")]
pub struct BadSchedule {
    /// The schedule.
    pub text: String,
    /// Where, in characters from 1.
    pub position: usize,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub hint: Option<String>,
}

/// A time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of a name such as `Europe/Berlin`.
    ///
    /// # Errors
    /// The name, if there is no such zone.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        let unknown = || UnknownZone(name.chars().take(64).collect());
        match name {
            "UTC" => Ok(Self::utc()),
            // Names of zones are plain, and no path.
            _ if name.len() > 64 || name == "Local" || name.contains("..") => Err(unknown()),
            _ => TimeZoneDatabase::bundled().get(name).map(Self).map_err(|_| unknown()),
        }
    }
}

/// There is no such zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}")]
pub struct UnknownZone(pub String);

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    zone: Option<Zone>,
    times: Times,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    Every { seconds: i64 },
    Fields(Fields),
}

/// Sets of allowed numbers, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    second: u64,
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// The day field or the weekday field comes of a star: then both must match, otherwise one suffices.
    star: bool,
}

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    /// [`BadSchedule`] with the place, the reason and mostly a hint.
    pub fn parse(text: &str) -> Result<Self, BadSchedule> {
        let mut parser = Parser { text, zone: None };
        let times = parser.times()?;
        let schedule = Self { text: text.to_owned(), zone: parser.zone.clone(), times };
        if let Times::Fields(fields) = &schedule.times {
            let start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
            if fields.next(start, start.year() + YEARS).is_none() {
                let hint = "no month that it allows has such a day";
                return Err(parser.bad(0, "it never fires".to_owned(), Some(hint.to_owned())));
            }
        }
        Ok(schedule)
    }

    /// The first moment after another one, both in milliseconds since the epoch; nothing if there is none within
    /// forty years or within the calendar.
    #[must_use]
    pub fn next(&self, after_unix_ms: i64, default_zone: &Zone) -> Option<i64> {
        let second = after_unix_ms.div_euclid(1000);
        match &self.times {
            Times::Every { seconds } => second.checked_add(*seconds)?.checked_mul(1000),
            Times::Fields(fields) => {
                let start = Timestamp::from_second(second.checked_add(1)?).ok()?;
                let Zone(zone) = self.zone.as_ref().unwrap_or(default_zone);
                next_in_zone(fields, start, zone)?.as_second().checked_mul(1000)
            }
        }
    }

    /// The schedule as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Schedule {
    type Err = BadSchedule;

    fn from_str(text: &str) -> Result<Self, BadSchedule> {
        Self::parse(text)
    }
}

/// Walks through the periods between two clock changes: in each of them civil time runs like a clock.
fn next_in_zone(fields: &Fields, mut start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let last_year = zone.to_datetime(start).year().checked_add(YEARS)?;
    loop {
        let offset = zone.to_offset(start);
        let change = zone.following(start).next().map(|change| change.timestamp());
        let civil = offset.to_datetime(start);
        if civil.year() > last_year {
            return None;
        }
        let until = change.map_or(last_year, |change| offset.to_datetime(change).year().min(last_year));
        let found = fields.next(civil, until).and_then(|civil| offset.to_timestamp(civil).ok());
        match (found, change) {
            (Some(found), Some(change)) if found >= change => start = change,
            (Some(found), _) => return Some(found),
            (None, Some(change)) => start = change,
            (None, None) => return None,
        }
    }
}

impl Fields {
    /// The first matching civil time, not before `from` and not after `last_year`.
    fn next(&self, from: DateTime, last_year: i16) -> Option<DateTime> {
        let mut date = from.date();
        let mut time = from.time();
        loop {
            if date.year() > last_year {
                return None;
            }
            if !has(self.month, date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
                time = Time::midnight();
                continue;
            }
            if self.day_matches(date)
                && let Some(time) = self.time(time)
            {
                return Some(date.to_datetime(time));
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
    }

    fn day_matches(&self, date: Date) -> bool {
        let day = has(self.day, date.day());
        let weekday = has(self.weekday, date.weekday().to_sunday_zero_offset());
        if self.star { day && weekday } else { day || weekday }
    }

    /// The first matching time of a day, not before `from`.
    fn time(&self, from: Time) -> Option<Time> {
        let mut hour = first(self.hour, from.hour())?;
        let (mut minute, mut second) = if hour == from.hour() { (from.minute(), from.second()) } else { (0, 0) };
        loop {
            if let Some(found) = first(self.minute, minute) {
                let from = if found == minute { second } else { 0 };
                if let Some(second) = first(self.second, from) {
                    return Time::new(hour, found, second, 0).ok();
                }
                if let Some(found) = first(self.minute, found + 1) {
                    return Time::new(hour, found, first(self.second, 0)?, 0).ok();
                }
            }
            hour = first(self.hour, hour + 1)?;
            (minute, second) = (0, 0);
        }
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set.checked_shr(number).unwrap_or(0) & 1 == 1)
}

/// The smallest member that is not below a number.
fn first(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok()?;
    let rest = set.checked_shr(from).filter(|rest| *rest != 0)?;
    i8::try_from(from + rest.trailing_zeros()).ok()
}

/// What a field may hold.
struct Domain {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
}

const SECOND: Domain = Domain { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Domain = Domain { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Domain = Domain { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Domain = Domain { name: "day of the month", min: 1, max: 31, names: &[] };
const MONTH: Domain = Domain {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Domain =
    Domain { name: "day of the week", min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

struct Parser<'t> {
    text: &'t str,
    zone: Option<Zone>,
}

/// A word and the byte at which it begins.
type Word<'t> = (usize, &'t str);

impl<'t> Parser<'t> {
    fn bad(&self, byte: usize, reason: String, hint: Option<String>) -> BadSchedule {
        let position = self.text.get(..byte).map_or(0, |before| before.chars().count()) + 1;
        BadSchedule { text: self.text.chars().take(CHARACTERS).collect(), position, reason, hint }
    }

    fn words(&self) -> Vec<Word<'t>> {
        let text = self.text;
        let start = text.as_ptr() as usize;
        // Words are parts of the text, so the difference of their beginnings is the place.
        text.split_ascii_whitespace().map(|word| (word.as_ptr() as usize - start, word)).collect()
    }

    fn times(&mut self) -> Result<Times, BadSchedule> {
        if self.text.len() > CHARACTERS {
            return Err(self.bad(0, format!("it is longer than {CHARACTERS} characters"), None));
        }
        let mut words = self.words();
        if let Some((at, word)) = words.first().copied()
            && let Some(name) = word.strip_prefix("TZ=")
        {
            let hint = || Some("write a name such as TZ=Europe/Berlin or TZ=UTC".to_owned());
            let zone = Zone::parse(name).map_err(|error| self.bad(at + 3, error.to_string(), hint()))?;
            self.zone = Some(zone);
            words.remove(0);
        } else if let Some((at, _)) = words.first().filter(|(_, word)| word.starts_with("CRON_TZ=")) {
            return Err(self.bad(*at, "CRON_TZ= is not known".to_owned(), Some("write TZ= in its place".to_owned())));
        }
        match words.as_slice() {
            [(at, word), rest @ ..] if word.starts_with('@') => self.descriptor(*at, word, rest),
            [minute, hour, day, month, weekday] => self.fields(None, [*minute, *hour, *day, *month, *weekday]),
            [second, minute, hour, day, month, weekday] => {
                self.fields(Some(*second), [*minute, *hour, *day, *month, *weekday])
            }
            others => {
                let hint =
                    "write minute, hour, day of the month, month and day of the week, with seconds first if needed";
                let reason = format!("it has {} fields, not 5 or 6", others.len());
                Err(self.bad(others.get(6).map_or(0, |(at, _)| *at), reason, Some(hint.to_owned())))
            }
        }
    }

    fn descriptor(&self, at: usize, word: &str, rest: &[Word<'t>]) -> Result<Times, BadSchedule> {
        const KNOWN: [&str; 8] =
            ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@every"];
        if word == "@every" {
            let [(at, duration)] = rest else {
                let hint = Some("for example @every 5m or @every 1h30m".to_owned());
                return Err(self.bad(at, "@every needs one duration".to_owned(), hint));
            };
            return self.every(*at, duration);
        }
        if let Some((at, extra)) = rest.first() {
            return Err(self.bad(*at, format!("'{extra}' is too much after {word}"), None));
        }
        let one = |number: u32| 1_u64 << number;
        let all = |domain: &Domain| span(domain.min, domain.max, 1);
        let base = Fields {
            second: one(0),
            minute: one(0),
            hour: one(0),
            day: all(&DAY),
            month: all(&MONTH),
            weekday: all(&WEEKDAY),
            star: true,
        };
        let fields = match word {
            "@yearly" | "@annually" => Fields { day: one(1), month: one(1), ..base },
            "@monthly" => Fields { day: one(1), ..base },
            "@weekly" => Fields { weekday: one(0), ..base },
            "@daily" | "@midnight" => base,
            "@hourly" => Fields { hour: all(&HOUR), ..base },
            other => {
                let hint = match nearest(other, &KNOWN) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => format!("known: {}", KNOWN.join(", ")),
                };
                return Err(self.bad(at, format!("'{other}' is not known"), Some(hint)));
            }
        };
        Ok(Times::Fields(fields))
    }

    fn every(&self, at: usize, text: &str) -> Result<Times, BadSchedule> {
        let hint = || Some("write hours, minutes and seconds, for example 1h30m or 90s".to_owned());
        let Some(duration) = go_duration(text) else {
            return Err(self.bad(at, format!("'{text}' is no duration"), hint()));
        };
        if duration.is_zero() {
            return Err(self.bad(at, "the delay must be more than nothing".to_owned(), hint()));
        }
        if duration > EVERY_MAX {
            return Err(self.bad(at, "the delay is longer than ten years".to_owned(), hint()));
        }
        // As in robfig: whole seconds, at least one.
        let seconds = i64::try_from(duration.as_secs().max(1)).unwrap_or(i64::MAX);
        Ok(Times::Every { seconds })
    }

    fn fields(&self, second: Option<Word<'t>>, rest: [Word<'t>; 5]) -> Result<Times, BadSchedule> {
        let [minute, hour, day, month, weekday] = rest;
        let second = match second {
            Some(second) => self.field(second, &SECOND)?.0,
            None => 1,
        };
        let minute = self.field(minute, &MINUTE)?.0;
        let hour = self.field(hour, &HOUR)?.0;
        let (day, day_star) = self.field(day, &DAY)?;
        let month = self.field(month, &MONTH)?.0;
        let (weekday, weekday_star) = self.field(weekday, &WEEKDAY)?;
        Ok(Times::Fields(Fields { second, minute, hour, day, month, weekday, star: day_star || weekday_star }))
    }

    /// The numbers of a field, and whether a star is among its ranges.
    fn field(&self, (at, word): Word<'t>, domain: &Domain) -> Result<(u64, bool), BadSchedule> {
        let (mut set, mut star) = (0, false);
        let mut place = at;
        for part in word.split(',') {
            if !part.is_empty() {
                let (numbers, is_star) = self.range((place, part), domain)?;
                set |= numbers;
                star |= is_star;
            }
            place += part.len() + 1;
        }
        if set == 0 {
            let reason = format!("the {} is an empty list", domain.name);
            return Err(self.bad(at, reason, Some("write * for every one".to_owned())));
        }
        Ok((set, star))
    }

    fn range(&self, (at, part): Word<'t>, domain: &Domain) -> Result<(u64, bool), BadSchedule> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let star = matches!(range, "*" | "?");
        let (low, high) = match range.split_once('-') {
            _ if star => (domain.min, domain.max),
            Some((low, high)) => {
                let after = at + low.len() + 1;
                (self.number((at, low), domain)?, self.number((after, high), domain)?)
            }
            None => {
                let low = self.number((at, range), domain)?;
                // `5/15` begins at 5 and has no end.
                (low, if step.is_some() { domain.max } else { low })
            }
        };
        if low > high {
            let hint = format!("write {low}-{},{}-{high}", domain.max, domain.min);
            return Err(self.bad(at, format!("the range {range} runs backwards"), Some(hint)));
        }
        let step = match step {
            None => 1,
            Some(step) => {
                let place = at + range.len() + 1;
                let number = step.parse::<u8>().ok().filter(|_| step.bytes().all(|byte| byte.is_ascii_digit()));
                match number {
                    Some(0) => return Err(self.bad(place, "a step of 0 never ends".to_owned(), None)),
                    Some(number) => number,
                    None => return Err(self.bad(place, format!("'{step}' is no step"), None)),
                }
            }
        };
        Ok((span(low, high, step), star))
    }

    fn number(&self, (at, word): Word<'t>, domain: &Domain) -> Result<u8, BadSchedule> {
        let Domain { name, min, max, names } = domain;
        if let Some(index) = names.iter().position(|known| known.eq_ignore_ascii_case(word)) {
            return Ok(min.saturating_add(u8::try_from(index).unwrap_or(u8::MAX)));
        }
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if digits && let Some(number) = word.parse::<u8>().ok().filter(|number| (min..=max).contains(&number)) {
            return Ok(number);
        }
        let hint = if digits && domain.max == 6 && word == "7" {
            Some("Sunday is 0".to_owned())
        } else if word.contains(['L', 'W', '#']) && names.iter().all(|known| !known.eq_ignore_ascii_case(word)) {
            Some("L, W and # are not known; check the day in the hook".to_owned())
        } else if digits {
            None
        } else if let Some(nearest) = nearest(word, names) {
            Some(format!("did you mean '{nearest}'?"))
        } else {
            Some(format!("write a number from {min} to {max}, a range, a list or *"))
        };
        let reason = if digits {
            format!("the {name} {word} is not between {min} and {max}")
        } else {
            format!("'{word}' is no {name}")
        };
        Err(self.bad(at, reason, hint))
    }
}

fn span(low: u8, high: u8, step: u8) -> u64 {
    (low..=high)
        .step_by(usize::from(step.max(1)))
        .fold(0, |set, number| set | 1_u64.checked_shl(number.into()).unwrap_or(0))
}

/// A duration as Go writes it: `1h30m`, `1.5h`, `300ms`. Nothing for what is malformed, negative or too large.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    // Longest first.
    const UNITS: [(&str, u128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60 * 1_000_000_000),
        ("h", 3_600 * 1_000_000_000),
    ];
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let (unit, factor) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(*factor)?)?;
        let mut weight = *factor;
        for digit in fraction.bytes() {
            weight /= 10;
            nanos = nanos.checked_add(weight.checked_mul(u128::from(digit - b'0'))?)?;
        }
        rest = tail.get(unit.len()..)?;
    }
    if text.is_empty() || text == "+" {
        return None;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
}

#[cfg(test)]
mod tests;
