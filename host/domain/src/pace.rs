//! How often a hook may run: a bucket of `burst` runs that refills by one each interval.
//!
//! The bucket is kept as one moment, at which it will be full again (the generic cell rate algorithm), so nothing has to
//! be refilled and nothing drifts.

use std::time::Duration;

use crate::hook::RateLimit;
use crate::queue::Time;

#[cfg(test)]
mod tests;

/// What is left of the allowance of one hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    full_at: Time,
}

impl Pace {
    /// When the next run may begin: `now`, or later. A clock that was set back makes nobody wait longer than for one
    /// interval.
    #[must_use]
    pub fn next(self, limit: RateLimit, now: Time) -> Time {
        let interval = Duration::from_millis(limit.min_interval_ms);
        let credit = limit.min_interval_ms.saturating_mul(u64::from(limit.burst.saturating_sub(1)));
        Time(self.full_at.0.saturating_sub(credit)).clamp(now, now.after(interval))
    }

    /// A run begins.
    pub fn begun(&mut self, limit: RateLimit, now: Time) {
        let whole = limit.min_interval_ms.saturating_mul(u64::from(limit.burst.max(1)));
        let full_at = self.full_at.max(now).after(Duration::from_millis(limit.min_interval_ms));
        self.full_at = full_at.min(now.after(Duration::from_millis(whole)));
    }
}
