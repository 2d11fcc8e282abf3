use proptest::prelude::*;

use super::*;

fn limit(min_interval_ms: u64, burst: u32) -> RateLimit {
    RateLimit { min_interval_ms, burst }
}

/// When runs begin that are all wanted at the beginning.
fn starts(limit: RateLimit, count: usize) -> Vec<u64> {
    let mut pace = Pace::default();
    let mut now = Time(1_000_000);
    let begin = |_| {
        now = pace.next(limit, now);
        pace.begun(limit, now);
        now.0 - 1_000_000
    };
    (0..count).map(begin).collect()
}

#[test]
fn a_burst_goes_through_and_the_rest_is_spread() {
    for (limit, expected) in [
        (limit(100, 1), vec![0, 100, 200, 300]),
        (limit(100, 3), vec![0, 0, 0, 100, 200]),
        (limit(0, 1), vec![0, 0, 0]),
        // A bucket of nothing would never let anything through.
        (limit(100, 0), vec![0, 100, 200]),
    ] {
        assert_eq!(starts(limit, expected.len()), expected, "{limit:?}");
    }
}

#[test]
fn a_pause_fills_the_bucket_and_never_more() {
    let limit = limit(100, 2);
    let mut pace = Pace::default();
    let mut begin = |wanted: u64| {
        let at = pace.next(limit, Time(wanted));
        pace.begun(limit, at);
        at.0
    };
    assert_eq!([begin(1_000), begin(1_000), begin(1_000)], [1_000, 1_000, 1_100]);
    assert_eq!([begin(9_000), begin(9_000), begin(9_000)], [9_000, 9_000, 9_100]);
}

#[test]
fn a_clock_that_is_set_back_costs_one_interval() {
    let limit = limit(100, 1);
    let mut pace = Pace::default();
    pace.begun(limit, Time(1_000_000));
    assert_eq!(pace.next(limit, Time(5_000)), Time(5_100));
    pace.begun(limit, Time(5_100));
    assert_eq!(pace.next(limit, Time(5_100)), Time(5_200));
}

proptest! {
    #[test]
    fn no_window_holds_more_runs_than_the_limit_says(
        interval in 1u64..500, burst in 1u32..6, gaps in proptest::collection::vec(0u64..400, 1..40)
    ) {
        let limit = limit(interval, burst);
        let mut pace = Pace::default();
        let mut wanted = Time(10_000);
        let mut begun = Vec::new();
        for gap in gaps {
            wanted = Time(wanted.0 + gap);
            let at = pace.next(limit, wanted);
            prop_assert!(at >= wanted);
            pace.begun(limit, at);
            wanted = at;
            begun.push(at.0);
        }
        for (index, first) in begun.iter().enumerate() {
            for (count, last) in begun.iter().skip(index).enumerate() {
                let allowed = u64::from(burst) + (last - first) / interval;
                prop_assert!((count as u64) < allowed, "{} runs from {first} to {last}", count + 1);
            }
        }
    }
}
