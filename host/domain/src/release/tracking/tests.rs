use proptest::prelude::*;
use serde_json::json;

use super::*;

fn operation(number: usize, status: OperationStatus, depends_on: &[usize]) -> TrackedOperation {
    TrackedOperation {
        id: format!("apply/apps/v1/Deployment/demo/o{number}"),
        depends_on: depends_on.iter().map(|it| format!("apply/apps/v1/Deployment/demo/o{it}")).collect(),
        group: "apps".into(),
        version: "v1".into(),
        kind: "Deployment".into(),
        name: format!("o{number}"),
        namespace: "demo".into(),
        r#type: OperationType::Apply,
        status,
    }
}

#[test]
fn the_shape_is_that_of_nelm() {
    let begin = TrackedOperation {
        r#type: OperationType::StageStart,
        status: OperationStatus::Completed,
        id: "stage/1/start".into(),
        group: String::new(),
        version: String::new(),
        kind: String::new(),
        name: String::new(),
        namespace: String::new(),
        depends_on: vec![],
    };
    let wait =
        TrackedOperation { r#type: OperationType::TrackReadiness, ..operation(1, OperationStatus::Pending, &[0]) };
    let tracking = Tracking::of(vec![begin, operation(0, OperationStatus::Completed, &[]), wait]);
    let shown = serde_json::to_value(&tracking).unwrap();
    assert_eq!(
        shown,
        json!({
            "completed": 1, "remaining": 1,
            "report": {"operations": [
                {"id": "stage/1/start", "type": "StageStart", "status": "Completed"},
                {"id": "apply/apps/v1/Deployment/demo/o0", "group": "apps", "version": "v1", "kind": "Deployment",
                 "name": "o0", "namespace": "demo", "type": "Apply", "status": "Completed"},
                {"id": "apply/apps/v1/Deployment/demo/o1", "dependsOn": ["apply/apps/v1/Deployment/demo/o0"],
                 "group": "apps", "version": "v1", "kind": "Deployment", "name": "o1", "namespace": "demo",
                 "type": "TrackReadiness", "status": "Pending"},
            ]},
        })
    );
    assert_eq!(serde_json::from_value::<Tracking>(shown).unwrap(), tracking);
    assert!(Tracking::of(vec![]).is_empty() && !tracking.is_empty());
}

#[test]
fn a_small_report_is_shown_whole() {
    let operations = (0..TRACKED_OPERATIONS).map(|number| operation(number, OperationStatus::Completed, &[]));
    let tracking = Tracking::of(operations.take(100).collect());
    assert_eq!(tracking.clone().bounded(), tracking);
}

#[test]
fn a_large_report_names_what_is_not_done_and_first_what_failed() {
    use OperationStatus::{Completed, Failed, Pending, Progressing};
    let mut operations: Vec<_> = (0..5_000).map(|number| operation(number, Completed, &[])).collect();
    operations.push(operation(5_000, Pending, &[0, 5_001]));
    operations.push(operation(5_001, Failed, &[4]));
    operations.push(operation(5_002, Progressing, &[]));
    let tracking = Tracking::of(operations).bounded();
    assert_eq!((tracking.completed, tracking.remaining), (5_000, 3));
    let names: Vec<&str> = tracking.operations.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["o5000", "o5001", "o5002"], "in the order of the plan");
    assert_eq!(tracking.operations[0].depends_on, ["apply/apps/v1/Deployment/demo/o5001"]);

    let mut operations: Vec<_> = (0..5_000).map(|number| operation(number, Pending, &[])).collect();
    operations[4_998].status = Progressing;
    operations[4_999].status = Failed;
    // Nobody's report is kept out by one that is too large by itself.
    operations[0].status = Failed;
    operations[0].name = "x".repeat(TRACKING_BYTES);
    let tracking = Tracking::of(operations).bounded();
    let last: Vec<&str> = tracking.operations.iter().rev().take(2).map(|it| it.name.as_str()).collect();
    assert_eq!(last, ["o4999", "o4998"]);
    assert_eq!(tracking.remaining, 5_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_shown_is_always_small(statuses in proptest::collection::vec(0usize..5, 0..1_500), long in 0usize..300) {
        use OperationStatus::{Canceled, Completed, Failed, Pending, Progressing};
        let all = [Failed, Progressing, Pending, Canceled, Completed];
        let operations = statuses.iter().enumerate().map(|(number, status)| {
            let mut one = operation(number, all[*status], &[number.saturating_sub(1)]);
            one.namespace = "n".repeat(long);
            one
        });
        let whole = Tracking::of(operations.collect());
        let shown = whole.clone().bounded();
        prop_assert!(serde_json::to_vec(&shown).unwrap().len() <= TRACKING_BYTES + 100);
        prop_assert!(shown.operations.len() <= TRACKED_OPERATIONS);
        prop_assert_eq!((shown.completed, shown.remaining), (whole.completed, whole.remaining));
        let failed = |it: &Tracking| -> Vec<TrackedOperation> {
            it.operations.iter().filter(|it| it.status == Failed).cloned().collect()
        };
        let bytes = serde_json::to_vec(&failed(&whole)).unwrap().len();
        let fit = failed(&whole).len() <= TRACKED_OPERATIONS && bytes <= TRACKING_BYTES;
        prop_assert!(!fit || failed(&shown).len() == failed(&whole).len(), "what failed comes first");
    }
}
