//! Warm instances: nothing of one evaluation is left for the next, and any number of threads may ask.

use std::time::{Duration, Instant};

use barbless_domain::limits::{JQ_WARM_INSTANCES, JqLimits};
use barbless_sandbox::{Config, JqError, Sandbox};

use super::{apply, config, filter, filter_with};
use crate::host::wait;

#[test]
fn the_same_text_always_gives_the_same() {
    let program = "[to_entries[] | {(.key): (.value | tostring | @base64)}] | add | ., keys, (tojson | length)";
    let input = r#"{"zeta":1,"alpha":{"y":[1,2.5,null],"x":"ä"},"mid":[true,{"b":1,"a":2}]}"#;
    let first = apply(&filter(program), input).unwrap();
    assert_eq!(first.len(), 3);
    for _ in 0..3 {
        let filter = filter(program);
        for _ in 0..20 {
            assert_eq!(apply(&filter, input).unwrap(), first);
        }
    }
}

#[test]
fn the_order_of_fields_makes_no_difference() {
    let program = "[.[]], keys, to_entries, (. + {b: 0} | tojson)";
    let filter = filter(program);
    assert_eq!(apply(&filter, r#"{"c":1,"a":2}"#).unwrap(), apply(&filter, r#"{"a":2,"c":1}"#).unwrap());
}

#[test]
fn an_evaluation_leaves_nothing_behind() {
    let filter = filter("if .set then (.set as $x | def f: $x; f) else [., (try error catch .)] end");
    let alone = apply(&filter, "{\"a\":1}").unwrap();
    for n in 0..200 {
        assert_eq!(apply(&filter, &format!("{{\"set\":{n}}}")).unwrap(), vec![n.to_string()]);
        assert_eq!(apply(&filter, "{\"a\":1}").unwrap(), alone);
    }
}

#[test]
fn a_large_object_is_not_paid_for_later() {
    // Grows an instance far beyond what is kept; the next one is a new one, and the one after that a warm one.
    let filter = filter_with("if . == 0 then [range(1000000)] | length else . end", JqLimits::default());
    assert_eq!(apply(&filter, "0").unwrap(), ["1000000"]);
    assert_eq!(apply(&filter, "7").unwrap(), ["7"]);
    assert_eq!(apply(&filter, "8").unwrap(), ["8"]);
}

#[test]
fn many_threads_share_a_filter() {
    let (double, slow) = (filter(". * 2 | tostring | tonumber"), filter("[range(20000)] | length"));
    std::thread::scope(|scope| {
        for thread in 0..8_i64 {
            let (double, slow) = (&double, &slow);
            scope.spawn(move || {
                for n in 0..50 {
                    let n = thread * 1_000 + n;
                    assert_eq!(apply(double, &n.to_string()).unwrap(), [(n * 2).to_string()]);
                    if n % 25 == 0 {
                        assert_eq!(apply(slow, "null").unwrap(), ["20000"]);
                    }
                }
            });
        }
    });
}

#[test]
fn more_filters_than_warm_instances_work_as_well() {
    let filters: Vec<_> = (0..JQ_WARM_INSTANCES + 8).map(|n| filter(&format!(". + {n}"))).collect();
    for round in 0..2 {
        for (n, filter) in filters.iter().enumerate() {
            assert_eq!(apply(filter, &round.to_string()).unwrap(), [(n + round).to_string()]);
        }
    }
}

#[test]
fn a_filter_goes_to_any_thread() {
    fn goes<T: Send + Sync + Clone + 'static>(_: &T) {}
    goes(&filter("."));
}

#[test]
fn a_filter_can_be_used_within_a_runtime_and_outside_of_one() {
    let filter = filter("[.[] | . + 1]");
    assert_eq!(apply(&filter, "[1]").unwrap(), ["[2]"]);
    let within = wait(async { apply(&filter, "[2]") });
    assert_eq!(within.unwrap(), ["[3]"]);
    let clone = filter.clone();
    drop(filter);
    assert_eq!(apply(&clone, "[3]").unwrap(), ["[4]"]);
}

#[test]
fn whoever_waits_too_long_for_a_turn_is_told() {
    let sandbox = Sandbox::new(Config { in_flight: 1, pooling: false, ..config() }).unwrap();
    let limits = JqLimits { cpu_ms: 3_000, wall_ms: 60_000, ..JqLimits::default() };
    let busy = wait(sandbox.jq_with("last(range(infinite))", limits)).unwrap();
    let quick = wait(sandbox.jq_with(". + 1", JqLimits { wall_ms: 200, ..JqLimits::default() })).unwrap();
    std::thread::scope(|scope| {
        let hogs: Vec<_> = (0..2).map(|_| scope.spawn(|| apply(&busy, "null").unwrap_err())).collect();
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        let error = apply(&quick, "1").unwrap_err();
        assert!(matches!(error, JqError::TimedOut { limit_ms: 200, .. }), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        for hog in hogs {
            assert_eq!(hog.join().unwrap().reason(), "JqTimedOut");
        }
    });
    assert_eq!(apply(&quick, "1").unwrap(), ["2"]);
}
