//! One suite, two targets: what ran on development clusters runs again on a real control plane.
//!
//! The second pass is the same binary in another process. It runs the tests that have had a [`Target`](crate::target) in
//! this one, so nobody keeps a list; [`DEVCLUSTER_ONLY`] says which do not, and why. The tests of a binary begin in the
//! order of their names, and this module has the last name: all others have begun when it does.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::target::{SECOND_PASS, TARGET, envtest, scenarios};

/// Tests that run on the development cluster only: a test or the beginning of its name, and why.
const DEVCLUSTER_ONLY: &[(&str, &str)] = &[
    ("fixtures::a_run_becomes_a_case_that_passes", "is about what is kept of runs, not about the API"),
    (
        "release::hooks::h32_a_failed_hook_says_how_its_pod_ended_and_what_it_said",
        "reads what a Pod has written, which only a kubelet has",
    ),
    (
        "release::load::two_hundred_objects_cost_what_they_must",
        "counts every write; where a server is slow there are signs of life of the operation beside",
    ),
    ("runs::", "are about what is kept of runs, not about the API"),
];

fn is_devcluster_only(name: &str) -> bool {
    DEVCLUSTER_ONLY.iter().any(|(which, _)| name == *which || (which.ends_with("::") && name.starts_with(which)))
}

/// What libtest says of a test binary: `test result: ok. 3 passed; 0 failed; …`.
fn counts(output: &str) -> (usize, usize) {
    let line = output.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or_default();
    let count = |word: &str| {
        let before = line.split(word).next().unwrap_or_default();
        before.trim_end().rsplit([' ', '.']).next().and_then(|number| number.parse().ok()).unwrap_or_default()
    };
    (count("passed"), count("failed"))
}

/// Goes past the capture of output: this is what people look for at the end.
fn say(text: &str) {
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

#[test]
fn the_table_of_exceptions_has_no_test_that_is_not_there() {
    let listed = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format=terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    for (which, why) in DEVCLUSTER_ONLY {
        assert!(
            names.iter().any(|name| name == which || (which.ends_with("::") && name.starts_with(which))),
            "{which}"
        );
        assert!(!why.is_empty());
    }
}

/// Runs what ran on development clusters on a real control plane. Where there is none it says so and is content; with
/// `CI=true` it is not.
#[test]
fn the_scenarios_pass_on_a_real_control_plane_too() {
    if std::env::var_os(TARGET).is_some() {
        return;
    }
    let scenarios = scenarios();
    let passed = scenarios.values().filter(|panicked| !**panicked).count();
    let again: Vec<&String> = scenarios.keys().filter(|name| !is_devcluster_only(name)).collect();
    if let Err(why) = envtest::source() {
        say(&format!("targets: devcluster {passed} passed, real none: {why}\n"));
        assert!(std::env::var("CI").is_err(), "CI needs a real control plane: {why}");
        return;
    }
    if again.is_empty() {
        say(&format!("targets: devcluster {passed} passed, real 0 passed\n"));
        return;
    }
    let (output, well) = pass(again.iter().map(|name| name.as_str()), &[]);
    let (mut real, mut failed) = counts(&output);
    if !well {
        say(&output);
    }
    for line in output.lines().filter(|line| line.contains("control plane: ")) {
        say(&format!("{line}\n"));
    }
    // On a busy machine the real servers starve beside two tests at a time, and what waits for them gives up. So what has
    // failed has one more try, alone; what fails then, fails.
    let suspects: Vec<&str> = failures(&output).collect();
    let mut second_try = String::new();
    if !suspects.is_empty() && suspects.len() == failed {
        let (output, _) = pass(suspects, &["--test-threads=1"]);
        let (saved, still) = counts(&output);
        (real, failed, second_try) = (real + saved, still, format!(" ({saved} of them when tried again, alone)"));
        say(&output);
    }
    let missing = again.len().saturating_sub(real + failed);
    say(&format!("targets: devcluster {passed} passed, real {real} passed{second_try}, {failed} failed\n"));
    assert_eq!((failed, missing), (0, 0), "tests that failed, and tests of which nothing is known");
}

/// Runs tests on the real control plane, in another process: its output, and whether all is well.
fn pass<'a>(tests: impl IntoIterator<Item = &'a str>, arguments: &[&str]) -> (String, bool) {
    let mut second = Command::new(std::env::current_exe().unwrap());
    second.arg("--exact").args(tests).args(arguments).env(TARGET, "real").env(SECOND_PASS, "1");
    let mut child = second.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let ended = child.wait().unwrap();
    drop(input);
    (output, ended.success())
}

/// The tests that failed, by the list that libtest ends with.
fn failures(output: &str) -> impl Iterator<Item = &str> {
    let list = output.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    list.lines().map_while(|line| line.strip_prefix("    "))
}

#[test]
fn the_counts_of_a_pass_are_read() {
    let line = "test a ... ok\n\ntest result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out\n";
    assert_eq!((counts(line), counts("")), ((12, 3), (0, 0)));
    let output = "failures:\n\n---- a::b stdout ----\nx\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. …\n";
    assert_eq!(failures(output).collect::<Vec<_>>(), ["a::b", "c"]);
    assert_eq!(failures("test result: ok. 3 passed").count(), 0);
}
