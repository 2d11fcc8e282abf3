use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

fn now() -> Timestamp {
    "2026-11-30T07:00:00Z".parse().expect("a time")
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn revision(number: u32, status: ReleaseStatus) -> Revision {
    Revision { number, status, owner: None, begun: Some(ago(10)) }
}

fn history(statuses: &[ReleaseStatus]) -> Vec<Revision> {
    (1..).zip(statuses).map(|(number, status)| revision(number, *status)).collect()
}

fn owned(status: ReleaseStatus, name: &str, seen: Timestamp) -> Vec<Revision> {
    let owner = Some(Owner { name: name.to_owned(), seen });
    vec![revision(1, ReleaseStatus::Deployed), Revision { owner, ..revision(2, status) }]
}

use ReleaseStatus::{
    Deployed, Failed, PendingInstall, PendingRollback, PendingUpgrade, Superseded, Uninstalled, Uninstalling, Unknown,
};

/// What each action gets as an answer: install, upgrade, rollback; `-` means that it may begin.
fn answers(history: &[Revision]) -> String {
    let answer = |action| match may_begin(history, action, "me", now()) {
        Ok(()) => "-",
        Err(refusal) => refusal.reason(),
    };
    [Action::Install, Action::Upgrade, Action::Rollback].map(answer).join(" ")
}

#[test]
fn what_may_begin_follows_from_the_last_revision() {
    for (statuses, expected) in [
        (&[][..], "- NoRelease NoRelease"),
        (&[Failed], "- - -"),
        (&[Deployed], "ReleaseExists - -"),
        (&[Deployed, Failed], "ReleaseExists - -"),
        (&[Superseded, Uninstalling], "- - -"),
        (&[Superseded, Uninstalled], "ReleaseUninstalled ReleaseUninstalled -"),
        (&[Unknown], "- - -"),
        // Helm's, without an owner and of a moment ago.
        (&[PendingInstall], "ReleaseInProgress ReleaseInProgress -"),
        (&[Deployed, PendingUpgrade], "ReleaseInProgress ReleaseInProgress -"),
        (&[Deployed, PendingRollback], "ReleaseInProgress ReleaseInProgress -"),
    ] {
        assert_eq!(answers(&history(statuses)), expected, "{statuses:?}");
    }
}

#[test]
fn a_pending_revision_locks_while_its_owner_lives() {
    let locked = "ReleaseInProgress ReleaseInProgress ReleaseInProgress";
    let free = "ReleaseExists - -";
    for (name, seen, expected) in [
        ("other", ago(0), locked),
        ("other", ago(59), locked),
        ("other", ago(60), free),
        ("other", ago(-300), locked),
        ("other", ago(-301), free),
        ("other", Timestamp::MAX, free),
        ("other", Timestamp::MIN, free),
        ("me", ago(0), free),
    ] {
        for status in [PendingInstall, PendingUpgrade, PendingRollback] {
            assert_eq!(answers(&owned(status, name, seen)), expected, "{name} {seen}");
        }
        assert_eq!(answers(&owned(Uninstalling, name, seen)), expected, "{name} {seen}");
        for status in [PendingUpgrade, Uninstalling] {
            let removal = may_remove(&owned(status, name, seen), "me", now());
            assert_eq!(removal.is_err(), expected == locked, "{name} {seen}");
        }
    }
}

#[test]
fn what_nobody_owns_is_believed_as_long_as_an_apply_may_take() {
    let deadline = i64::try_from(crate::limits::APPLY_DEADLINE.as_secs()).expect("a small number");
    let of = |begun| Revision { begun, ..revision(1, PendingUpgrade) };
    assert!(!is_abandoned(&of(Some(ago(deadline))), "me", now()));
    assert!(is_abandoned(&of(Some(ago(deadline + 1))), "me", now()));
    assert!(is_abandoned(&of(Some(ago(-deadline - 1))), "me", now()));
    assert!(is_abandoned(&of(None), "me", now()));
    assert!(!is_abandoned(&Revision { begun: None, ..revision(1, Deployed) }, "me", now()));
}

#[test]
fn a_refusal_says_who_and_what_to_do() {
    let refusal =
        may_begin(&owned(PendingUpgrade, "host-1", ago(1)), Action::Upgrade, "me", now()).expect_err("locked");
    assert_eq!(refusal.to_string(), "revision 2 is pending-upgrade by host-1");
    let refusal = may_begin(&history(&[PendingInstall]), Action::Upgrade, "me", now()).expect_err("locked");
    assert_eq!(refusal.to_string(), "revision 1 is pending-install by somebody who left no name");
    assert!(refusal.hint().contains("roll back"), "{}", refusal.hint());
}

#[test]
fn the_base_is_the_deployed_revision_or_the_last() {
    assert_eq!(base(&[]), None);
    assert_eq!(base(&history(&[Failed])), Some(1));
    assert_eq!(base(&history(&[Superseded, Deployed, Failed])), Some(2));
    assert_eq!(base(&history(&[Deployed, Deployed])), Some(2), "the higher after a crash");
    assert_eq!(base(&history(&[Superseded, Uninstalled])), Some(2));
    assert_eq!(next_action(&history(&[Failed, Failed])), Action::Install);
    assert_eq!(next_action(&history(&[Superseded, Failed])), Action::Upgrade);
}

#[test]
fn a_rollback_goes_to_the_number_before_unless_told() {
    let three = history(&[Superseded, Failed, Deployed]);
    assert_eq!(rollback_target(&three, 0), Ok(2), "whatever its status");
    assert_eq!(rollback_target(&three, 1), Ok(1));
    assert_eq!(rollback_target(&three, 3), Ok(3));
    let missing = rollback_target(&three, 7).expect_err("none");
    assert_eq!((missing.wanted, missing.hint().as_str()), (7, "there are: 1, 2, 3"));
    assert_eq!(rollback_target(&history(&[Deployed]), 0).expect_err("none").wanted, 0);
    assert_eq!(rollback_target(&[], 0).expect_err("none").kept, Vec::<u32>::new());
    assert_eq!(last_good(&history(&[Superseded, Failed, Failed]), 3), Some(1));
    assert_eq!(last_good(&history(&[Failed, Failed]), 2), None);
}

#[test]
fn the_oldest_go_but_never_the_deployed_one() {
    let four = history(&[Superseded, Superseded, Deployed]);
    assert_eq!(surplus(&four, 2), [1, 2]);
    assert_eq!(surplus(&four, 0), Vec::<u32>::new());
    assert_eq!(surplus(&history(&[Deployed, Failed, Failed]), 2), [2, 3]);
    assert_eq!(surplus(&history(&[Deployed, Failed]), 1), [2], "the deployed one stays above the limit");
    assert_eq!(next_number([4, 9, 2]), 10);
    assert_eq!(next_number([]), 1);
}

fn any_status() -> impl Strategy<Value = ReleaseStatus> {
    prop::sample::select(vec![
        Unknown,
        Deployed,
        Uninstalled,
        Superseded,
        Failed,
        Uninstalling,
        PendingInstall,
        PendingUpgrade,
        PendingRollback,
    ])
}

proptest! {
    #[test]
    fn no_history_is_stuck_for_ever(
        statuses in prop::collection::vec(any_status(), 1..6), owned in any::<bool>(), seconds in any::<i32>(),
    ) {
        let mut history = history(&statuses);
        if owned && let Some(last) = history.last_mut() {
            last.owner = Some(Owner { name: "other".to_owned(), seen: ago(i64::from(seconds)) });
        }
        // A day after anything that was ever written, one of the three verbs goes, whoever died.
        let later = now() + SignedDuration::from_hours(24 * 365 * 100);
        prop_assert!(
            [Action::Install, Action::Upgrade, Action::Rollback]
                .iter()
                .any(|action| may_begin(&history, *action, "me", later).is_ok())
        );
    }

    #[test]
    fn pruning_leaves_the_limit_and_what_is_deployed(statuses in prop::collection::vec(any_status(), 0..30), kept in 1_usize..12) {
        let history = history(&statuses);
        let gone = surplus(&history, kept);
        let left: Vec<&Revision> = history.iter().filter(|it| !gone.contains(&it.number)).collect();
        prop_assert_eq!(left.iter().filter(|it| Some(it.number) == deployed(&history)).count(), usize::from(deployed(&history).is_some()));
        prop_assert!(left.len() < kept || (kept == 1 && left.len() == 1));
        if history.len() < kept { prop_assert!(gone.is_empty()); }
    }
}
