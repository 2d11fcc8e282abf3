//! No object makes a function panic: examples in which anything may stand anywhere, and plain noise.

use std::sync::LazyLock;

use barbless_health::{
    Compatibility, Member, Readiness, Verdict, aggregate_as, assess_as, container_problem, readiness,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::examples;

static EXAMPLES: LazyLock<Vec<(String, Value)>> = LazyLock::new(examples);

/// Any JSON, with a liking for the words and numbers that checks look for.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "",
        "True",
        "False",
        "Pending",
        "Running",
        "Failed",
        "Always",
        "Never",
        "RollingUpdate",
        "LoadBalancer",
        "v1",
        "apps/v1",
        "/",
        "autoscaling/v1",
        "[{}]",
        "[null]",
        "CrashLoopBackOff",
        "true",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![i64::MIN, i64::MAX, -1, 0, 1]).prop_map(Value::from),
        word.prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "type",
        "status",
        "reason",
        "message",
        "name",
        "state",
        "lastState",
        "terminated",
        "waiting",
        "exitCode",
        "ip",
        "annotations",
        "conditions",
        "replicas",
    ]);
    leaf.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// The JSON pointers of all values of an object, the root included.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{number}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

/// An example with some of its values replaced.
fn mutant() -> impl Strategy<Value = Value> {
    let mutations = prop::collection::vec((any::<Index>(), any_json()), 1..4);
    (prop::sample::select(examples()), mutations).prop_map(|((_, mut object), mutations)| {
        for (index, replacement) in mutations {
            let mut found = Vec::new();
            places(&object, "", &mut found);
            let place: &String = index.get(found.as_slice());
            *object.pointer_mut(place).unwrap() = replacement;
        }
        object
    })
}

/// Calls everything and checks what must hold for every object.
fn judge(object: &Value) -> Result<(), TestCaseError> {
    for compatibility in [Compatibility::Documented, Compatibility::ArgoCd] {
        let alone = assess_as(object, compatibility).map_or(Verdict::Healthy, |health| health.status);
        let members = || [Member::Live(object), Member::Absent(object), Member::Judged(object, None)];
        let all = aggregate_as(members(), compatibility).status;
        let one = aggregate_as([object], compatibility).status;
        prop_assert!(one == alone || one == Verdict::Healthy, "{one} of one object that is {alone}");
        prop_assert!(all >= one, "{all} with the object, {one} with it alone");
    }
    if let Some(reason) = readiness(object).reason() {
        prop_assert!(!reason.trim().is_empty(), "a reason says something");
    }
    container_problem(object);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mutant_of_an_example_makes_a_function_panic(object in mutant()) {
        judge(&object)?;
    }

    #[test]
    fn no_noise_makes_a_function_panic(noise in any_json(), status in any_json(), kind in any::<Index>()) {
        judge(&noise)?;
        let (_, example) = kind.get(EXAMPLES.as_slice());
        judge(&json!({"apiVersion": example["apiVersion"], "kind": example["kind"], "status": status, "spec": noise}))?;
    }
}

#[test]
fn no_single_replacement_in_any_example_makes_a_function_panic() {
    let replacements =
        [Value::Null, json!(true), json!(i64::MIN), json!(1.5), json!("x"), json!([]), json!([null, 1]), json!({})];
    let mut judged = 0;
    for (_, object) in examples() {
        let mut found = Vec::new();
        places(&object, "", &mut found);
        for place in found.iter().filter(|place| !place.contains("/template/")) {
            for replacement in &replacements {
                let mut mutant = object.clone();
                *mutant.pointer_mut(place).unwrap() = replacement.clone();
                judge(&mutant).unwrap();
                judged += 1;
            }
        }
    }
    assert!(judged > 10_000, "{judged}");
}

#[test]
fn a_field_of_the_wrong_type_is_unknown_and_not_ready_with_its_path() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "three"}, "status": {"updatedReplicas": 1},
    });
    let complaint = "spec.replicas is a text, expected a whole number";
    let health = assess_as(&object, Compatibility::Documented).unwrap();
    assert_eq!(health.status, Verdict::Unknown);
    assert_eq!(health.message, format!("failed to convert unstructured Deployment to typed: {complaint}"));
    assert_eq!(readiness(&object), Readiness::NotReady { reason: format!("malformed object: {complaint}") });
}
