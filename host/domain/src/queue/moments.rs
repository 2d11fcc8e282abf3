//! Moments for waiting: they pass as time does, whatever becomes of the clock of the machine.

use std::time::Duration;

use super::Time;

/// Makes moments of what two clocks show: that of the machine, which may be set, and one that only counts.
///
/// A moment is never before an earlier one. If the clock of the machine is set forward, moments follow; if it is set back,
/// they go on at the pace of the other, so that what waits for a minute waits for a minute.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// A moment, and what the clock that only counts showed then.
    known: (Time, Duration),
}

impl Moments {
    /// Begins with what both clocks show.
    #[must_use]
    pub fn new(wall: Time, uptime: Duration) -> Self {
        Self { known: (wall, uptime) }
    }

    /// The moment at which both clocks show this.
    pub fn at(&mut self, wall: Time, uptime: Duration) -> Time {
        let (known, since) = self.known;
        let counted = known.after(uptime.saturating_sub(since));
        if wall > counted {
            self.known = (wall, uptime);
            return wall;
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_clock_that_is_set_back_stops_no_time() {
        let mut moments = Moments::new(Time(10_000_000), ms(0));
        assert_eq!(moments.at(Time(10_001_000), ms(1_000)), Time(10_001_000));
        // Set back by an hour and more; a second passes in thousands of looks.
        for look in 1..=5_000_u64 {
            let moment = moments.at(Time(6_000_000), ms(1_000) + Duration::from_micros(200 * look));
            assert_eq!(moment, Time(10_001_000 + look / 5));
        }
        assert_eq!(moments.at(Time(6_060_000), ms(61_000)), Time(10_061_000));
    }

    #[test]
    fn a_clock_that_is_set_forward_is_followed() {
        let mut moments = Moments::new(Time(1_000), ms(500));
        assert_eq!(moments.at(Time(3_601_000), ms(501)), Time(3_601_000));
        assert_eq!(moments.at(Time(3_601_000), ms(503)), Time(3_601_002));
    }

    proptest! {
        #[test]
        fn moments_never_go_back_and_never_take_longer_than_time_does(
            steps in prop::collection::vec((0..20_000_000_u64, 0..5_000_u64), 1..50)
        ) {
            let mut moments = Moments::new(Time(10_000_000), ms(0));
            let (mut uptime, mut last) = (0, Time(10_000_000));
            for (wall, passed) in steps {
                uptime += passed;
                let moment = moments.at(Time(wall), ms(uptime));
                prop_assert!(moment >= last.after(ms(passed)));
                last = moment;
            }
        }
    }
}
