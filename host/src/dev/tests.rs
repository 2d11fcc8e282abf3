//! What a user of `dev` is told.

use barbless_domain::status::Summary;

use super::*;

#[test]
fn who_waited_for_too_long_is_told_for_how_long_and_no_empty_reason() {
    let summary =
        |message: &str| Summary { state: "Ready".to_owned(), message: message.to_owned(), tip: String::new() };
    let cases = [
        (Duration::from_millis(1), "", "changing did not end within 1ms: Ready"),
        (Duration::from_secs(20), "", "changing did not end within 20s: Ready"),
        (Duration::from_millis(1500), "so", "changing did not end within 1.5s: Ready: so"),
    ];
    for (timeout, message, said) in cases {
        let report = timed_out("changing", timeout, summary(message));
        assert_eq!(report.message, said);
        assert_eq!(report.hint.as_deref(), Some("give more time with --timeout"));
    }
}
