//! When carrying out what a hook asked for has to end. Time is that of the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use barbless_domain::effect::Cause;
use barbless_domain::identity::Gvk;
use barbless_domain::operation::Propagation;

use super::*;

fn operations(names: &[&str]) -> Vec<Operation> {
    let delete = |name: &&str| Operation {
        target: ObjectRef {
            gvk: Gvk::parse("v1", "ConfigMap").expect("a valid kind"),
            namespace: "demo".to_owned(),
            name: (*name).to_owned(),
        },
        action: Action::Delete { propagation: Propagation::Background },
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    names.iter().map(delete).collect()
}

/// A cluster whose answers take a while.
struct Slow<'a> {
    each: &'a [(&'a str, Duration)],
    begun: AtomicUsize,
}

impl Perform for Slow<'_> {
    fn perform<'a>(&'a self, operation: &'a Operation) -> BoxFuture<'a, OperationResult> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let name = operation.target.name.as_str();
        let wait = self.each.iter().find(|(known, _)| *known == name).map(|(_, wait)| *wait).unwrap_or_default();
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            match name {
                "refused" => OperationResult::Failed { reason: "Forbidden".to_owned(), message: String::new() },
                _ => OperationResult::Done,
            }
        })
    }
}

/// What becomes of operations that take so long each; `stops` comes after so long.
async fn outcome(each: &[(&str, Duration)], stops: Option<(Duration, Cause)>) -> (Vec<String>, Option<Interruption>) {
    let stop = Stop::default();
    if let Some((after, cause)) = stops {
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            stop.now(Some(cause));
        });
    }
    let names: Vec<&str> = each.iter().map(|(name, _)| *name).collect();
    let slow = Slow { each, begun: AtomicUsize::new(0) };
    let (results, why) = carry_out(operations(&names), &Until::from_now(&stop), &slow).await;
    let not_begun = results.iter().filter(|(_, result)| *result == OperationResult::Skipped).count();
    let begun = slow.begun.load(Ordering::Relaxed);
    assert_eq!(begun + not_begun, results.len(), "what is skipped was never begun");
    let words = |(operation, result): &(Operation, OperationResult)| match result {
        OperationResult::Failed { reason, .. } => format!("{} {reason}", operation.target.name),
        result => format!("{} {result}", operation.target.name),
    };
    (results.iter().map(words).collect(), why)
}

const NEVER: Duration = Duration::from_secs(1_000_000);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn operations_that_are_never_answered_end_at_the_deadline() {
    let begun = Instant::now();
    let (results, why) = outcome(&[("a", SECOND), ("b", NEVER), ("c", SECOND)], None).await;
    assert_eq!(results, ["a done", "b OutcomeUnknown", "c skipped"]);
    assert_eq!(why, Some(Interruption::Late));
    assert_eq!(begun.elapsed(), SETTLING + SETTLING_GRACE);
}

#[tokio::test(start_paused = true)]
async fn many_slow_operations_have_one_deadline() {
    let (results, why) = outcome(&[("a", SETTLING / 2), ("b", SETTLING / 2 + SECOND), ("c", SECOND)], None).await;
    // The second ends in its moment of grace, so its outcome is known.
    assert_eq!(results, ["a done", "b done", "c skipped"]);
    assert_eq!(why, Some(Interruption::Late));
}

#[tokio::test(start_paused = true)]
async fn a_removal_stops_them_and_a_newer_wish_does_not() {
    let each = [("a", SECOND), ("b", 2 * SECOND), ("c", SECOND)];
    let stops = |cause| Some((2 * SECOND, cause));
    let (results, why) = outcome(&each, stops(Cause::RemovalStarted)).await;
    assert_eq!(
        (results, why),
        (
            vec!["a done".to_owned(), "b done".to_owned(), "c skipped".to_owned()],
            Some(Interruption::Stopped("RemovalStarted"))
        )
    );
    let (results, why) = outcome(&each, stops(Cause::SettingsChanged)).await;
    assert_eq!((results.join(", ").as_str(), why), ("a done, b done, c done", None));
}

#[tokio::test(start_paused = true)]
async fn what_was_all_done_is_not_interrupted_and_a_refusal_stands() {
    let (results, why) = outcome(&[("a", 2 * SECOND)], Some((SECOND, Cause::RequirementsLost))).await;
    assert_eq!((results.join(", ").as_str(), why), ("a done", None));
    let each = [("refused", 2 * SECOND), ("b", SECOND)];
    let (results, why) = outcome(&each, Some((SECOND, Cause::RequirementsLost))).await;
    assert_eq!((results.join(", ").as_str(), why), ("refused Forbidden, b skipped", None));
}

#[test]
fn what_to_do_about_an_exhausted_stack_is_told_apart_from_other_traps() {
    let trap = |message: &str| RunEnd::Trap { message: message.to_owned(), panic: None, backtrace: Vec::new() };
    let hint = |end: &RunEnd| hint_of(end).unwrap_or_default();
    assert!(hint(&trap("wasm trap: out of bounds memory access")).contains("stack"));
    assert!(!hint(&trap("wasm trap: wasm `unreachable` instruction executed")).contains("stack"));
    assert!(hint(&RunEnd::TooManyCalls { limit: 3 }).contains("at once"));
    assert_eq!(hint_of(&RunEnd::Ok), None);
}
