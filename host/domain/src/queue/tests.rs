//! Order, back-off and cancellation.

use super::*;

fn queue() -> Queue<&'static str> {
    let mut queue = Queue::new(Backoff::HOOK);
    for task in ["a", "b", "c"] {
        queue.push(task, Time(0)).unwrap();
    }
    queue
}

#[test]
fn waits_double_up_to_the_cap() {
    let waits: Vec<u64> = (1..=5).map(|failures| Backoff::HOOK.wait(failures, None).as_secs()).collect();
    assert_eq!(waits, [15, 30, 60, 60, 60]);
    assert_eq!(Backoff::LIFECYCLE.wait(u32::MAX, None), limits::RETRY_CAP_LIFECYCLE, "and never overflow");
}

#[test]
fn a_wait_that_was_asked_for_is_kept_within_bounds() {
    assert_eq!(Backoff::HOOK.wait(9, Some(5_000)).as_secs(), 5);
    assert_eq!(Backoff::HOOK.wait(1, Some(0)).as_secs(), 1);
    assert_eq!(Backoff::HOOK.wait(1, Some(u64::MAX)), limits::RETRY_CAP_HOOK);
}

#[test]
fn a_failed_head_keeps_its_place_and_waits() {
    let mut queue = queue();
    queue.fail(Failure::new("Broken", "it broke"), Time(1_000));
    assert!(queue.due(Time(15_999)).is_none(), "the next task does not overtake");
    assert_eq!(queue.due(Time(16_000)).map(|head| head.task), Some("a"));
    assert_eq!(queue.wake(), Some(Time(16_000)));
    queue.hurry();
    assert!(queue.due(Time(1_000)).is_some());
}

#[test]
fn what_is_under_way_is_cancelled_once_and_answered() {
    let mut queue = queue();
    queue.head_mut().unwrap().running = Some(Ticket(7));
    assert_eq!(queue.cancel_all(false), Some(Ticket(7)));
    assert_eq!(queue.cancel_all(false), None);
    assert_eq!(queue.cancel_all(true), Some(Ticket(7)), "for a cause that stops more");
    assert_eq!(queue.len(), 1, "it stays until its answer comes");
    assert!(queue.due(Time(u64::MAX)).is_none());
    assert_eq!(queue.wake(), None);
}

#[test]
fn a_queue_is_bounded() {
    let mut queue = Queue::new(Backoff::LIFECYCLE);
    for task in 0..limits::QUEUE_TASKS {
        queue.push(task, Time(0)).unwrap();
    }
    assert_eq!(queue.push(0, Time(0)), Err(Full));
    assert_eq!(queue.pop(), Some(0), "first in, first out");
    assert_eq!(queue.push(0, Time(0)), Ok(()));
}

#[test]
fn time_does_not_wrap() {
    assert_eq!(Time(u64::MAX).after(Duration::from_secs(1)), Time(u64::MAX));
    assert_eq!(Time(0).after(Duration::MAX), Time(u64::MAX));
}

#[test]
fn a_retry_hurries_all_that_waits_in_order() {
    let mut queue = Queue::new(Backoff::LIFECYCLE);
    for task in ["a", "b"] {
        queue.push(task, Time(1_000)).unwrap();
    }
    queue.hurry();
    assert_eq!(queue.due(Time(0)).map(|head| head.task), Some("a"));
    queue.pop();
    assert_eq!(queue.due(Time(0)).map(|head| head.task), Some("b"));
}
