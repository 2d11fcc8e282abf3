//! One suite, two targets: what ran on development clusters runs again on a real control plane, and once more on development
//! clusters under faults.
//!
//! Each further pass is the same binary in another process. It runs the tests that have had a [`Target`](crate::target) in
//! this one, so nobody keeps a list; [`DEVCLUSTER_ONLY`] and [`NOT_UNDER_FAULTS`] say which do
//! not, and why. The tests of a binary begin in the order of their names, and this module has the last name: all others have
//! begun when it does.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::target::{FAULTS, SECOND_PASS, TARGET, envtest, made_twice, scenarios, seed};

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

/// Tests that do not run under faults: a test or the beginning of its name, and why.
const NOT_UNDER_FAULTS: &[(&str, &str)] = &[
    (
        "hooks::bindings::a_rate_limit_collects_what_happens_meanwhile",
        "wants all that happened within two seconds; a watch that broke shows the rest later",
    ),
    ("hooks::patches::a15_conflicts_are_repeated_and_not_for_ever", "counts the attempts at a conflict that it makes"),
    ("hostile::", "spends its minute in the sandbox; what it asks of the API others ask, too"),
    (
        "release::hooks::h17_a_job_that_expires_after_it_succeeded_has_succeeded",
        "its Job is gone a millisecond after it ended: a watch that breaks in between never shows how",
    ),
    ("release::load::two_hundred_objects_cost_what_they_must", "counts every request"),
    (
        "release::recovery::o34_of_two_upgrades_at_once_one_proceeds",
        "wants two at the same moment; a delay lets one begin after the other has ended",
    ),
];

/// The seed of the faults, unless the environment has one.
const SEED: u64 = 1;
/// The test that looks at all writes.
const MADE_ONCE: &str = "targets::what_was_not_heard_of_was_done_once";

fn is_in(table: &[(&str, &str)], name: &str) -> bool {
    table.iter().any(|(which, _)| name == *which || (which.ends_with("::") && name.starts_with(which)))
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
    for (which, why) in DEVCLUSTER_ONLY.iter().chain(NOT_UNDER_FAULTS) {
        assert!(
            names.iter().any(|name| name == which || (which.ends_with("::") && name.starts_with(which))),
            "{which}"
        );
        assert!(!why.is_empty());
    }
}

/// Runs what ran on development clusters again: on a real control plane, and on development clusters under faults. Where
/// there is no control plane it says so and is content; with `CI=true` it is not.
#[test]
fn the_scenarios_pass_on_a_real_control_plane_and_under_faults_too() {
    if std::env::var_os(SECOND_PASS).is_some() || std::env::var_os(TARGET).is_some() {
        return;
    }
    let scenarios = scenarios();
    let passed = scenarios.values().filter(|panicked| !**panicked).count();
    let real =
        on_a_real_control_plane(&scenarios.keys().filter(|name| !is_in(DEVCLUSTER_ONLY, name)).collect::<Vec<_>>());
    let seed = seed().unwrap_or(SEED);
    let faults =
        under_faults(&scenarios.keys().filter(|name| !is_in(NOT_UNDER_FAULTS, name)).collect::<Vec<_>>(), seed);
    say(&format!("targets: devcluster {passed} passed, real {real}, under faults {faults} (seed {seed})\n"));
    assert!(!real.is_bad && !faults.is_bad, "tests that failed, and tests of which nothing is known");
}

/// What came of a pass.
struct Came {
    words: String,
    is_bad: bool,
}

impl std::fmt::Display for Came {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

fn on_a_real_control_plane(tests: &[&String]) -> Came {
    if let Err(why) = envtest::source() {
        let is_bad = std::env::var("CI").is_ok();
        return Came { words: format!("none: {why}"), is_bad };
    }
    let variables = [(TARGET, "real".to_owned())];
    let (output, well) = pass(tests.iter().map(|name| name.as_str()), &[], &variables);
    let (mut passed, mut failed) = counts(&output);
    if !well {
        say(&output);
    }
    for line in output.lines().filter(|line| line.contains("control plane: ")) {
        say(&format!("{line}\n"));
    }
    // On a busy machine the real servers starve beside two tests at a time, and what waits for them gives up.
    let second_try = again(&output, &variables, &mut passed, &mut failed);
    let is_bad = failed > 0 || passed + failed < tests.len();
    Came { words: format!("{passed} passed{second_try}, {failed} failed"), is_bad }
}

fn under_faults(tests: &[&String], seed: u64) -> Came {
    let variables = [(TARGET, "devcluster".to_owned()), (FAULTS, seed.to_string())];
    let all = tests.iter().map(|name| name.as_str()).chain([MADE_ONCE]);
    // Most of the time is waiting.
    let (output, well) = pass(all, &["--test-threads=8"], &variables);
    if !well {
        say(&output);
    }
    let (passed, mut failed) = counts(&output);
    let mut passed = passed.saturating_sub(usize::from(output.contains(&format!("test {MADE_ONCE} ... ok"))));
    // Which request a fault hits depends on what runs beside, and some tests count milliseconds.
    let second_try = again(&output, &variables, &mut passed, &mut failed);
    let is_bad = failed > 0 || passed < tests.len();
    Came { words: format!("{passed} passed{second_try}, {failed} failed"), is_bad }
}

/// Gives what has failed one more try, alone; what fails then, fails. What is said of it.
fn again(output: &str, variables: &[(&str, String)], passed: &mut usize, failed: &mut usize) -> String {
    let suspects: Vec<&str> = failures(output).collect();
    // What was done twice is not undone by another try.
    if suspects.is_empty() || suspects.len() != *failed || suspects.contains(&MADE_ONCE) {
        return String::new();
    }
    let (output, _) = pass(suspects, &["--test-threads=1"], variables);
    let (saved, still) = counts(&output);
    (*passed, *failed) = (*passed + saved, still);
    say(&output);
    format!(" ({saved} of them when tried again, alone)")
}

/// At the end of a pass under faults: what nobody heard of and was asked for again has been done once.
#[test]
fn what_was_not_heard_of_was_done_once() {
    if std::env::var_os(TARGET).is_some() && seed().is_some() {
        let twice = made_twice();
        assert!(twice.is_empty(), "writes that were made twice:\n{}", twice.join("\n"));
    }
}

/// Runs tests in another process, with these variables: its output, and whether all is well.
fn pass<'a>(
    tests: impl IntoIterator<Item = &'a str>,
    arguments: &[&str],
    variables: &[(&str, String)],
) -> (String, bool) {
    let mut tests = tests.into_iter().peekable();
    if tests.peek().is_none() {
        return (String::new(), true);
    }
    let mut second = Command::new(std::env::current_exe().unwrap());
    second.arg("--exact").args(tests).args(arguments).env(SECOND_PASS, "1");
    for (name, value) in variables {
        second.env(name, value);
    }
    if !variables.iter().any(|(name, _)| *name == FAULTS) {
        second.env_remove(FAULTS);
    }
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
