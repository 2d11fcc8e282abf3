use super::*;

#[test]
fn verdicts_are_ordered_from_best_to_worst() {
    assert!(Verdict::ALL.is_sorted_by(|better, worse| better < worse));
    assert_eq!(Verdict::ALL.into_iter().max(), Some(Verdict::Unknown));
    assert!(Verdict::Missing < Verdict::Degraded, "an application with both is Degraded");
}

#[test]
fn every_word_is_the_same_in_display_serde_and_parsing() {
    for verdict in Verdict::ALL {
        assert_eq!(verdict.to_string().parse(), Ok(verdict));
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.to_string());
    }
    let error = "healthy".parse::<Verdict>().unwrap_err();
    assert_eq!(error.word, "healthy");
    assert!(error.to_string().contains("\"healthy\" is not a verdict"));
}

#[test]
fn health_is_written_as_an_object_and_the_message_may_be_left_out() {
    let health: Health = serde_json::from_str(r#"{"status":"Degraded"}"#).unwrap();
    assert_eq!(health, Health::new(Verdict::Degraded, ""));
    assert_eq!(serde_json::to_string(&health).unwrap(), r#"{"status":"Degraded","message":""}"#);
}
