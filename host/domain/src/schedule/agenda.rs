//! Which of several schedules are due. The clock of the machine is an argument, and may be set while they are waited for.

use super::{Schedule, Zone};
use crate::limits::CLOCK_SET_BACK;

/// Schedules with what each is for, and when each is due next.
#[derive(Debug, Clone)]
pub struct Agenda<T> {
    entries: Vec<(T, Schedule, Option<i64>)>,
    zone: Zone,
    /// The latest moment that was seen, in milliseconds since the epoch.
    seen: i64,
}

impl<T> Agenda<T> {
    /// An agenda that begins at this moment (milliseconds since the epoch). Schedules without a zone mean this one.
    pub fn new(entries: impl IntoIterator<Item = (T, Schedule)>, now_unix_ms: i64, zone: Zone) -> Self {
        let first = |(what, schedule): (T, Schedule)| {
            let next = schedule.next(now_unix_ms, &zone);
            (what, schedule, next)
        };
        let entries = entries.into_iter().map(first).collect();
        Self { entries, zone, seen: now_unix_ms }
    }

    /// When the first is due; nothing if none ever is.
    #[must_use]
    pub fn next(&self) -> Option<i64> {
        self.entries.iter().filter_map(|(.., next)| *next).min()
    }

    /// What is due at this moment; times that were missed are made up for by one.
    ///
    /// Schedules follow the clock: if it was set back by more than [`CLOCK_SET_BACK`], the times after the new moment
    /// count, those that come again included. By less, each time counts once.
    pub fn due(&mut self, now_unix_ms: i64) -> Vec<&T> {
        let back = i64::try_from(CLOCK_SET_BACK.as_millis()).unwrap_or(i64::MAX);
        let set_back = self.seen.saturating_sub(now_unix_ms) > back;
        self.seen = if set_back { now_unix_ms } else { self.seen.max(now_unix_ms) };
        let mut due = Vec::new();
        for (what, schedule, next) in &mut self.entries {
            if set_back {
                *next = schedule.next(now_unix_ms, &self.zone);
            } else if next.is_some_and(|at| at <= now_unix_ms) {
                *next = schedule.next(now_unix_ms, &self.zone);
                due.push(&*what);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    fn agenda(specs: &[&'static str], now: i64) -> Agenda<&'static str> {
        Agenda::new(specs.iter().map(|spec| (*spec, Schedule::parse(spec).expect("a schedule"))), now, Zone::utc())
    }

    #[test]
    fn what_is_due_is_told_once_and_missed_times_are_one() {
        let mut agenda = agenda(&["*/5 * * * *", "0 * * * *"], 0);
        assert_eq!(agenda.next(), Some(5 * MINUTE));
        assert_eq!(agenda.due(5 * MINUTE - 1), Vec::<&&str>::new());
        assert_eq!(agenda.due(5 * MINUTE), [&"*/5 * * * *"]);
        assert_eq!(agenda.due(5 * MINUTE), Vec::<&&str>::new());
        // A clock that was set forward, or a host that slept.
        assert_eq!(agenda.due(3 * HOUR + MINUTE), [&"*/5 * * * *", &"0 * * * *"]);
        assert_eq!(agenda.next(), Some(3 * HOUR + 5 * MINUTE));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing_by_the_hours_that_it_lost() {
        let mut agenda = agenda(&["* * * * *", "@every 10m"], 5 * HOUR);
        assert_eq!(agenda.due(5 * HOUR + MINUTE), [&"* * * * *"]);
        assert_eq!(agenda.due(2 * HOUR), Vec::<&&str>::new());
        assert_eq!(agenda.next(), Some(2 * HOUR + MINUTE));
        assert_eq!(agenda.due(2 * HOUR + MINUTE), [&"* * * * *"]);
        assert_eq!(agenda.due(2 * HOUR + 10 * MINUTE), [&"* * * * *", &"@every 10m"]);
    }

    #[test]
    fn a_clock_that_is_put_right_by_a_little_makes_nothing_run_twice() {
        let mut agenda = agenda(&["* * * * *"], 0);
        assert_eq!(agenda.due(MINUTE), [&"* * * * *"]);
        assert_eq!(agenda.due(MINUTE - 5), Vec::<&&str>::new());
        assert_eq!(agenda.due(MINUTE), Vec::<&&str>::new());
        assert_eq!(agenda.due(2 * MINUTE), [&"* * * * *"]);
    }
}
