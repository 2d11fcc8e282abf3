use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

/// `2012-07-09 14:45:00` in UTC, or with an offset.
fn at(text: &str) -> i64 {
    let text = if text.contains('T') { text.to_owned() } else { format!("{}Z", text.replace(' ', "T")) };
    text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_millisecond()
}

fn shown(unix_ms: Option<i64>) -> String {
    unix_ms.map_or("never".to_owned(), |ms| {
        Timestamp::from_millisecond(ms).unwrap().to_string().replace('T', " ").replace('Z', "")
    })
}

fn next(spec: &str, from: &str) -> String {
    shown(Schedule::parse(spec).unwrap().next(at(from), &Zone::utc()))
}

/// Whether a minute is one at which it fires.
fn fires(spec: &str, minute: &str) -> bool {
    let moment = at(minute);
    Schedule::parse(spec).unwrap().next(moment - 1000, &Zone::utc()) == Some(moment)
}

fn fields(spec: &str) -> Fields {
    match Schedule::parse(spec).unwrap().times {
        Times::Fields(fields) => fields,
        Times::Every { .. } => panic!("{spec} has no fields"),
    }
}

#[test]
fn fields_are_sets() {
    let set = |numbers: &[u32]| numbers.iter().fold(0_u64, |set, number| set | 1 << number);
    assert_eq!(fields("5 * * * *").minute, set(&[5]));
    assert_eq!(fields("5-6 * * * *").minute, set(&[5, 6]));
    assert_eq!(fields("5-7/2 * * * *").minute, set(&[5, 7]));
    assert_eq!(fields("* * * * *").minute, span(0, 59, 1));
    assert_eq!(fields("*/2 * * * *").minute, span(0, 58, 2));
    assert_eq!(fields("1,5-7/2,3 * * * *").minute, set(&[1, 3, 5, 7]));
    assert_eq!(fields("1,,3, * * * *").minute, set(&[1, 3]), "as in robfig");
    assert_eq!(fields("TZ=UTC  5 * * * *"), fields("TZ=UTC 0 5 * * * *"));
    assert_eq!(fields("@midnight"), fields("0 0 0 * * *"));
    assert_eq!(fields("@weekly"), fields("0 0 0 * * 0"));
    assert_eq!(fields("@annually"), fields("0 0 0 1 1 *"));
    assert_eq!(fields("* * ? JAN-mar Sun,MON"), fields("* * * 1-3 0-1"));
    assert!(fields("* * 1,*/10 * 1").star && !fields("* * 1 * 1").star);
}

#[test]
fn minutes_match() {
    let table = [
        ("0/15 * * * *", "2012-07-09 15:00:00", true),
        ("0/15 * * * *", "2012-07-09 15:45:00", true),
        ("0/15 * * * *", "2012-07-09 15:40:00", false),
        ("5/15 * * * *", "2012-07-09 15:05:00", true),
        ("5/15 * * * *", "2012-07-09 15:20:00", true),
        ("5/15 * * * *", "2012-07-09 15:50:00", true),
        ("0/15 * * Jul *", "2012-07-15 15:00:00", true),
        ("0/15 * * Jun *", "2012-07-15 15:00:00", false),
        ("0 30 08 ? Jul Sun", "2012-07-15 08:30:00", true),
        ("0 30 08 15 Jul ?", "2012-07-15 08:30:00", true),
        ("0 30 08 ? Jul Sun", "2012-07-16 08:30:00", false),
        ("0 30 08 15 Jul ?", "2012-07-16 08:30:00", false),
        ("@hourly", "2012-07-09 15:00:00", true),
        ("@hourly", "2012-07-09 15:04:00", false),
        ("@daily", "2012-07-09 00:00:00", true),
        ("@daily", "2012-07-09 15:00:00", false),
        ("@weekly", "2012-07-08 00:00:00", true),
        ("@weekly", "2012-07-09 00:00:00", false),
        ("@weekly", "2012-07-08 01:00:00", false),
        ("@monthly", "2012-07-01 00:00:00", true),
        ("@monthly", "2012-07-08 00:00:00", false),
        ("0 * * 1,15 * Sun", "2012-07-15 00:00:00", true),
        ("0 * * 1,15 * Sun", "2012-06-15 00:00:00", true),
        ("0 * * 1,15 * Sun", "2012-08-01 00:00:00", true),
        ("0 * * 1,15 * Sun", "2012-07-08 00:00:00", true),
        ("0 * * * * Mon", "2012-07-15 00:00:00", false),
        ("0 * * */10 * Sun", "2012-07-15 00:00:00", false),
        ("0 * * 1,15 * *", "2012-07-15 00:00:00", true),
        ("0 * * 1,15 * *", "2012-07-09 00:00:00", false),
        ("0 * * */2 * Sun", "2012-07-15 00:00:00", true),
    ];
    for (spec, minute, expected) in table {
        assert_eq!(fires(spec, minute), expected, "{spec} at {minute}");
    }
}

#[test]
fn the_next_moment() {
    let table = [
        ("2012-07-09 14:45:00", "0/15 * * * *", "2012-07-09 15:00:00"),
        ("2012-07-09 14:59:00", "0/15 * * * *", "2012-07-09 15:00:00"),
        ("2012-07-09 14:59:59", "0/15 * * * *", "2012-07-09 15:00:00"),
        ("2012-07-09 14:59:59.999", "0/15 * * * *", "2012-07-09 15:00:00"),
        ("2012-07-09 15:00:00", "0/15 * * * *", "2012-07-09 15:15:00"),
        ("2012-07-09 15:45:00", "20-35/15 * * * *", "2012-07-09 16:20:00"),
        ("2012-07-09 23:45:00", "20-35/15 * * * *", "2012-07-10 00:20:00"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 * * * *", "2012-07-10 00:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 * * *", "2012-07-10 01:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 10-12 * * *", "2012-07-10 10:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 */2 * *", "2012-07-11 01:20:15"),
        ("2012-07-09 23:35:00", "0 0 0 9 Apr-Oct ?", "2012-08-09 00:00:00"),
        ("2012-07-09 23:35:00", "0 0 0 */5 Apr,Aug,Oct Mon", "2012-08-06 00:00:00"),
        ("2012-07-09 23:35:00", "0 0 0 */5 Oct Mon", "2012-10-01 00:00:00"),
        ("2012-07-09 23:35:00", "0 0 0 * Feb Mon", "2013-02-04 00:00:00"),
        ("2012-07-09 23:35:00", "0 0 0 * Feb Mon/2", "2013-02-01 00:00:00"),
        ("2012-07-09 23:35:00", "0 0 0 29 Feb ?", "2016-02-29 00:00:00"),
        ("2012-12-31 23:59:45", "0 * * * * *", "2013-01-01 00:00:00"),
        ("2012-07-09 14:59:59", "* * * * * *", "2012-07-09 15:00:00"),
        ("2012-07-09 14:30:30", "30 30 14 * * *", "2012-07-10 14:30:30"),
        ("2012-07-09 14:30:31", "30 29,31 14 * * *", "2012-07-09 14:31:30"),
        // Beyond robfig, which gives up after five years.
        ("2097-01-01 00:00:00", "0 0 29 2 ?", "2104-02-29 00:00:00"),
        ("2100-03-01 00:00:00", "0 0 */31 2 Mon", "2106-02-01 00:00:00"),
        ("1969-12-31 23:59:59.500", "* * * * * *", "1970-01-01 00:00:00"),
    ];
    for (from, spec, expected) in table {
        assert_eq!(next(spec, from), expected, "{spec} after {from}");
    }
}

#[test]
fn clock_changes() {
    let table = [
        ("2012-03-11T00:00:00-05:00", "0 30 2 11 Mar ?", "2013-03-11T02:30:00-04:00"),
        ("2012-03-11T01:00:00-05:00", "0 0 * * * ?", "2012-03-11T03:00:00-04:00"),
        ("2012-03-11T00:00:00-05:00", "0 0 2 * * ?", "2012-03-12T02:00:00-04:00"),
        ("2012-11-04T00:00:00-04:00", "0 30 2 04 Nov ?", "2012-11-04T02:30:00-05:00"),
        ("2012-11-04T01:45:00-04:00", "0 30 1 04 Nov ?", "2012-11-04T01:30:00-05:00"),
        ("2012-11-04T01:00:00-04:00", "0 0 * * * ?", "2012-11-04T01:00:00-05:00"),
        ("2012-11-04T01:00:00-04:00", "0 0 1 * * ?", "2012-11-04T01:00:00-05:00"),
        ("2012-11-04T00:00:00-04:00", "0 0 2 * * ?", "2012-11-04T02:00:00-05:00"),
        ("2012-11-04T00:00:00-04:00", "0 0 3 * * ?", "2012-11-04T03:00:00-05:00"),
        ("2012-11-04T00:00:00-04:00", "0 0 0 * * ?", "2012-11-05T00:00:00-05:00"),
    ];
    for (from, spec, expected) in table {
        let zoned = Schedule::parse(&format!("TZ=America/New_York {spec}")).unwrap();
        assert_eq!(shown(zoned.next(at(from), &Zone::utc())), shown(Some(at(expected))), "{spec} after {from}");
        let plain = Schedule::parse(spec).unwrap();
        assert_eq!(plain.next(at(from), &zone("America/New_York")), Some(at(expected)), "the default zone");
    }
    // A gap of half an hour, and one at midnight.
    let howe = Schedule::parse("TZ=Australia/Lord_Howe 15 2 * * *").unwrap();
    assert_eq!(
        shown(howe.next(at("2023-09-30T00:00:00+10:30"), &Zone::utc())),
        shown(Some(at("2023-09-30T02:15:00+10:30")))
    );
    assert_eq!(
        shown(howe.next(at("2023-09-30T12:00:00+10:30"), &Zone::utc())),
        shown(Some(at("2023-10-02T02:15:00+11:00")))
    );
    let beirut = Schedule::parse("TZ=Asia/Beirut 30 0 * * *").unwrap();
    assert_eq!(
        shown(beirut.next(at("2022-03-26T12:00:00+02:00"), &Zone::utc())),
        shown(Some(at("2022-03-28T00:30:00+03:00")))
    );
}

#[test]
fn every_counts_from_the_given_time() {
    let from = at("2012-07-09 14:45:00.700");
    for (spec, expected) in [
        ("@every 5m", "2012-07-09 14:50:00"),
        ("@every 1h30m10s", "2012-07-09 16:15:10"),
        ("@every 1.5h", "2012-07-09 16:15:00"),
        ("@every 90s", "2012-07-09 14:46:30"),
        ("@every 1500ms", "2012-07-09 14:45:01"),
        ("@every 1ns", "2012-07-09 14:45:01"),
        ("TZ=UTC @every 1m", "2012-07-09 14:46:00"),
    ] {
        assert_eq!(shown(Schedule::parse(spec).unwrap().next(from, &Zone::utc())), expected, "{spec}");
    }
}

#[test]
fn bad_schedules_are_refused_with_place_and_hint() {
    let table = [
        ("", 1, "0 fields", "seconds first"),
        ("xyz", 1, "1 fields", "seconds first"),
        ("* * * *", 1, "4 fields", ""),
        ("* * * * * * *", 13, "7 fields", ""),
        ("60 0 * * *", 1, "minute 60", ""),
        ("0 60 * * *", 3, "hour 60", ""),
        ("0 0 * * XYZ", 9, "'XYZ' is no day of the week", "number from 0 to 6"),
        ("0 0 * * MOM", 9, "'MOM'", "did you mean 'mon'?"),
        ("5-1 * * * *", 1, "backwards", "5-59,0-1"),
        ("* * * * 7", 9, "7 is not between 0 and 6", "Sunday is 0"),
        ("0 0 L * *", 5, "'L'", "L, W and #"),
        ("0 0 15W * *", 5, "'15W'", "L, W and #"),
        ("0 0 * * 5#3", 9, "'5#3'", "L, W and #"),
        ("TZ=Nowhere * * * * *", 4, "no time zone", "Europe/Berlin"),
        ("TZ=Local * * * * *", 4, "no time zone", ""),
        ("TZ=../../etc/passwd * * * * *", 4, "no time zone", ""),
        ("CRON_TZ=UTC * * * * *", 1, "CRON_TZ", "TZ="),
        ("TZ=UTC", 1, "0 fields", ""),
        ("*/0 * * * *", 3, "step of 0", ""),
        ("5-9/x * * * *", 5, "'x' is no step", ""),
        ("1/2/3 * * * *", 3, "'2/3' is no step", ""),
        ("1-2-3 * * * *", 3, "'2-3'", ""),
        ("*-5 * * * *", 1, "'*'", ""),
        (", * * * *", 1, "empty list", "*"),
        ("0 0 0 30 Feb ?", 1, "never fires", "no month"),
        ("0 0 0 31 Apr ?", 1, "never fires", ""),
        ("@dayly", 1, "'@dayly'", "@daily"),
        ("@every", 1, "one duration", "5m"),
        ("@every 5", 8, "no duration", ""),
        ("@every -5m", 8, "no duration", ""),
        ("@every 0s", 8, "more than nothing", ""),
        ("@every 999999999h", 8, "ten years", ""),
        ("@hourly 5", 9, "too much", ""),
        ("ü ü ü ü ü", 1, "'ü' is no minute", ""),
        ("* * ü * *", 5, "'ü' is no day of the month", ""),
    ];
    for (text, position, reason, hint) in table {
        let error = Schedule::parse(text).expect_err(text);
        assert_eq!(error.position, position, "{error}");
        assert!(error.reason.contains(reason), "{error}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{error}: {:?}", error.hint);
    }
    assert!(Schedule::parse(&"*".repeat(1000)).is_err());
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "(TZ=[A-Z/a-z]{0,12} )?(@[a-z]{0,8} ?|[0-9*?,/\\-a-zL#ü]{1,6} ){0,7}", from in any::<i64>()) {
        if let Ok(schedule) = Schedule::parse(&text) {
            let next = schedule.next(from, &Zone::utc());
            prop_assert!(next.is_none_or(|next| next > from));
        }
    }

    /// No moment is left out and none is made up: compared with trying every minute.
    #[test]
    fn next_is_the_first_of_all_minutes_that_match(
        minute in prop::sample::select(vec!["*", "0", "*/20", "30,45", "7-9"]),
        hour in prop::sample::select(vec!["*", "1", "2", "*/5", "0-3"]),
        day in prop::sample::select(vec!["*", "1", "*/2", "10-12"]),
        weekday in prop::sample::select(vec!["*", "Sun", "1-5", "*/2"]),
        zone in prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe"]),
        from in at("2012-10-28 00:00:00")..at("2012-11-20 00:00:00"),
    ) {
        let schedule = Schedule::parse(&format!("TZ={zone} {minute} {hour} {day} * {weekday}")).unwrap();
        let Times::Fields(fields) = &schedule.times else { unreachable!() };
        let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
        let slow = (from.div_euclid(60_000) + 1..).take(60 * 24 * 4).map(|minute| minute * 60_000).find(|moment| {
            let civil = zone.to_datetime(Timestamp::from_millisecond(*moment).unwrap());
            has(fields.minute, civil.minute()) && has(fields.hour, civil.hour()) && has(fields.month, civil.month())
                && fields.day_matches(civil.date())
        });
        let fast = schedule.next(from, &Zone::utc()).unwrap();
        match slow {
            Some(slow) => prop_assert_eq!(fast, slow),
            None => prop_assert!(fast > from + 4 * 24 * 3_600_000 - 60_000),
        }
    }
}
