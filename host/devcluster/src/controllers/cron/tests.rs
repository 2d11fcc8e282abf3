//! Schedules against times that were worked out by hand.

use super::*;

fn next(schedule: &str, after: &str, zone: &str) -> Option<String> {
    let schedule = Schedule::parse(schedule).unwrap_or_else(|| panic!("{schedule}"));
    let zone = TimeZone::get(zone).unwrap();
    schedule.next(after.parse().unwrap(), &zone).map(|found| found.to_string())
}

#[test]
fn the_next_time_of_a_schedule_is_found() {
    for (schedule, after, expected) in [
        ("* * * * *", "2026-03-04T05:06:07Z", "2026-03-04T05:07:00Z"),
        ("* * * * *", "2026-03-04T05:07:00Z", "2026-03-04T05:08:00Z"),
        ("*/15 * * * *", "2026-03-04T05:46:00Z", "2026-03-04T06:00:00Z"),
        ("5/20 * * * *", "2026-03-04T05:06:00Z", "2026-03-04T05:25:00Z"),
        ("30 2 * * *", "2026-12-31T02:30:00Z", "2027-01-01T02:30:00Z"),
        ("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 9-17/4 * * MON-FRI", "2026-03-06T17:00:00Z", "2026-03-09T09:00:00Z"),
        // Both days are restricted: either will do (the 4th is a Wednesday).
        ("0 0 10 * wed", "2026-03-04T00:00:00Z", "2026-03-10T00:00:00Z"),
        ("0 0 10 * wed", "2026-03-10T00:00:00Z", "2026-03-11T00:00:00Z"),
        ("0 0 */2 * wed", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"),
        ("0 0 1 jan,JUL ?", "2026-03-04T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("@hourly", "2026-03-04T05:06:07Z", "2026-03-04T06:00:00Z"),
        ("@weekly", "2026-03-04T05:06:07Z", "2026-03-08T00:00:00Z"),
        ("@every 1h30m", "2026-03-04T05:06:07Z", "2026-03-04T06:36:07Z"),
    ] {
        assert_eq!(next(schedule, after, "UTC").as_deref(), Some(expected), "{schedule} after {after}");
    }
    assert_eq!(next("0 0 30 2 *", "2026-03-04T00:00:00Z", "UTC"), None);
}

#[test]
fn clocks_that_are_put_forward_skip_a_time() {
    let zone = "Europe/Berlin";
    assert_eq!(next("30 2 * * *", "2026-03-28T12:00:00Z", zone).as_deref(), Some("2026-03-30T00:30:00Z"));
    assert_eq!(next("0 9 * * *", "2026-07-01T12:00:00Z", zone).as_deref(), Some("2026-07-02T07:00:00Z"));
}

#[test]
fn what_is_no_schedule_is_refused() {
    for text in [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "+1 * * * *",
        "-1 * * * *",
        "1- * * * *",
        "@never",
        "@every",
        "@every x",
        "@every 99999999999999999999s",
        "*/99999999999 * * * *",
    ] {
        assert_eq!(Schedule::parse(text), None, "{text:?}");
    }
}
