//! The time of a run: one moment, chosen by the host and recorded, so that a run can be repeated.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A moment in UTC, in milliseconds. It is written as RFC 3339.
///
/// ```
/// use barbless_sdk::clock::Timestamp;
///
/// let moment = Timestamp::from_unix_ms(1_764_486_837_250);
/// assert_eq!(moment.to_string(), "2025-11-30T07:13:57.250Z");
/// assert_eq!(Timestamp::from_unix_ms(951_782_400_000).to_string(), "2000-02-29T00:00:00Z");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    unix_ms: u64,
}

impl Timestamp {
    /// The moment so many milliseconds after 1970-01-01T00:00:00Z.
    pub fn from_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn unix_ms(self) -> u64 {
        self.unix_ms
    }

    /// The same moment in the type of the standard library.
    pub fn system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.unix_ms)
    }

    /// The time from another moment to this one; zero if that one is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.unix_ms.saturating_sub(earlier.unix_ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.unix_ms / 1000, self.unix_ms % 1000);
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if millis != 0 {
            write!(f, ".{millis:03}")?;
        }
        f.write_str("Z")
    }
}

/// Year, month and day of a day since 1970-01-01. Counts years from 1 March, so that the leap day is the last of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468; // from 0000-03-01
    const DAYS_PER_ERA: u64 = 146_097; // 400 years
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}
