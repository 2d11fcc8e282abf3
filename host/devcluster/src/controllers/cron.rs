//! Schedules of CronJobs: five fields or a word, and when they come round next. Pure.
//!
//! As in the real controller, a time matches when minute, hour and month match and the day does: by the day of the month
//! and of the week if one of them is `*`, by either of them otherwise. (Hooks have schedules of an older kind, with other
//! rules; see the domain.)

use std::time::Duration;

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::TimeZone};

/// How far into the future a time is looked for: what never comes (the 30th of February) is `None`.
const YEARS_MAX: i16 = 5;

/// A schedule that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    Fields(Fields),
    /// Every so often, from the time before.
    Every(Duration),
}

/// Each a set of numbers, as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether days of the month or of the week are not restricted, so that the other decides alone.
    any_day: bool,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads a schedule; `None` when it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(every) = text.strip_prefix("@every ") {
            // The real one counts whole seconds, and at least one.
            return parse_go_duration(every).map(|every| Self::Every(Duration::from_secs(every.as_secs().max(1))));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields = fields.split_whitespace().collect::<Vec<_>>();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        // With a step it is a restriction.
        let is_any = |field: &str| field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"));
        Some(Self::Fields(Fields {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, &MONTHS)?,
            weekdays: bits(weekdays, 0, 6, &WEEKDAYS)?,
            any_day: is_any(days) || is_any(weekdays),
        }))
    }

    /// The first time after this one.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(*every).ok()
            }
            Self::Fields(fields) => fields.next(after, zone),
        }
    }
}

impl Fields {
    fn day_matches(&self, at: DateTime) -> bool {
        let of_month = has(self.days, at.day());
        let of_week = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        if self.any_day { of_month && of_week } else { of_month || of_week }
    }

    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let whole_minute = |at: DateTime| at.with().second(0).subsec_nanosecond(0).build().ok();
        let local = zone.to_datetime(after);
        let mut at = whole_minute(local)?.checked_add(1.minute()).ok()?;
        let last_year = local.year().saturating_add(YEARS_MAX);
        // Each turn goes to the next month, day, hour or minute that may match.
        while at.year() <= last_year {
            if !has(self.months, at.month()) {
                at = at.first_of_month().checked_add(1.month()).ok()?.with().hour(0).minute(0).build().ok()?;
            } else if !self.day_matches(at) {
                at = at.checked_add(1.day()).ok()?.with().hour(0).minute(0).build().ok()?;
            } else if !has(self.hours, at.hour()) {
                at = at.checked_add(1.hour()).ok()?.with().minute(0).build().ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(1.minute()).ok()?;
            } else {
                let found = zone.to_timestamp(at).ok()?;
                // A time that the clocks skip does not come on that day.
                if zone.to_datetime(found) == at && found > after {
                    return Some(found);
                }
                at = at.checked_add(1.minute()).ok()?;
            }
        }
        None
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

/// One field: parts with commas between, each `*`, a number, a range, or one of these with a step.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let number = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let number = match named {
            Some(place) => u32::try_from(place).ok()? + least,
            None => text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?,
        };
        (least..=most).contains(&number).then_some(number)
    };
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            // A number with a step goes on to the end.
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if from > to {
            return None;
        }
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        all |= (from..=to).step_by(step).fold(0, |all, number| all | (1_u64 << number));
    }
    Some(all)
}

/// A duration as Go writes it, of hours, minutes and seconds: `1h30m`.
fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(digits);
        let seconds = match unit.chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(seconds)?)?;
        rest = unit.get(1..)?;
    }
    // A bound, so that adding it to a time cannot overflow.
    (total > 0 && total < 10 * 365 * 24 * 3600).then(|| Duration::from_secs(total))
}

#[cfg(test)]
mod tests;
