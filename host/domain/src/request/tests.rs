use super::*;

fn read(annotations: &[(&str, &str)]) -> Requests {
    Requests::of(&annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

fn told(requests: &Requests) -> Vec<String> {
    requests.refused.iter().map(|it| format!("{}: {}", it.place, it.failure.message)).collect()
}

#[test]
fn each_annotation_is_read() {
    let requests = read(&[
        (SKIP_DELETE_HOOKS, "true"),
        (SKIP_HOOKS, " web, db,,web"),
        (RETRY, "now"),
        (ROLLBACK_TO, "12"),
        (TAKE_OVER, "true"),
        (FIELD_CONFLICTS, "- {object: Deployment/web, field: .spec.replicas, do: take}"),
        ("example.org/rollback-to", "x"),
    ]);
    let expected = Requests {
        skip_delete_hooks: true,
        skip_hooks: vec!["db".into(), "web".into()],
        retry: "now".into(),
        rollback_to: Some(12),
        take_over: true,
        field_conflicts: "- {object: Deployment/web, field: .spec.replicas, do: take}".into(),
        refused: vec![],
    };
    assert_eq!(requests, expected);
    assert_eq!(read(&[]), Requests::default());
    assert_eq!(read(&[(TAKE_OVER, "false"), (SKIP_DELETE_HOOKS, "")]), Requests::default());
    assert_eq!(read(&[(ROLLBACK_TO, "0")]).rollback_to, Some(0));
}

#[test]
fn what_cannot_be_read_is_told_and_counts_as_not_given() {
    for value in ["", " 1", "+1", "-1", "1.0", "one", "4294967296", "٣"] {
        let requests = read(&[(ROLLBACK_TO, value), (RETRY, "x")]);
        assert_eq!(requests.rollback_to, None);
        assert_eq!(requests.retry, "x", "the rest is read");
        assert_eq!(told(&requests), [format!("{ROLLBACK_TO}: {value:?} is no number of a revision")]);
    }
    let requests = read(&[(TAKE_OVER, "yes"), (SKIP_DELETE_HOOKS, "True")]);
    assert!(!requests.take_over && !requests.skip_delete_hooks);
    assert_eq!(requests.refused.len(), 2);
    let long = "x".repeat(FIELD_CONFLICTS_BYTES + 1);
    let requests = read(&[(FIELD_CONFLICTS, &long), (TAKE_OVER, &long)]);
    assert_eq!(requests.field_conflicts, "");
    assert!(told(&requests).iter().all(|line| line.len() < 200), "what is told is short");
    assert!(requests.refused.iter().all(|it| it.failure.hint.is_some()));
}

#[test]
fn decisions_about_fields_that_make_no_sense_are_told_at_once() {
    for text in ["nonsense: [", "- {object: web}", "yes"] {
        let requests = read(&[(FIELD_CONFLICTS, text)]);
        assert_eq!(requests.field_conflicts, "", "{text}");
        assert_eq!(requests.refused.first().map(|it| it.failure.reason.as_str()), Some("BadFieldConflicts"), "{text}");
    }
}
