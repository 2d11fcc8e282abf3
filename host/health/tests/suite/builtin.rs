//! Every example has the verdict that Argo CD's code gives it, and by the words of its manual all but two have the same.

use std::collections::BTreeMap;
use std::fs;

use barbless_health::{Compatibility, Health, Verdict, assess_as};
use serde::Deserialize;

use crate::{data, examples};

#[derive(Deserialize)]
struct Expected {
    status: Verdict,
    /// None: any message will do.
    message: Option<String>,
}

/// The expectations of a file: example to verdict, None where the kind has no check.
fn table(file: &str) -> BTreeMap<String, Option<Expected>> {
    serde_json::from_str(&fs::read_to_string(data().join(file)).unwrap()).unwrap()
}

/// Compares every example with the table and returns all differences at once.
fn differences(file: &str, compatibility: Compatibility) -> Vec<String> {
    let mut table = table(file);
    let mut differences = Vec::new();
    for (name, object) in examples() {
        let Some(mut expected) = table.remove(&name) else {
            differences.push(format!("{name}: not in {file}"));
            continue;
        };
        // The manual asks for a host name or an IP. These two list an address without either, and the code is content.
        if compatibility == Compatibility::Documented
            && matches!(name.as_str(), "ingress-nonemptylist.yaml" | "svc-loadbalancer-nonemptylist.yaml")
        {
            expected = Some(Expected { status: Verdict::Progressing, message: Some(String::new()) });
        }
        let found = assess_as(&object, compatibility);
        let is_same = match (&expected, &found) {
            (None, None) => true,
            (Some(expected), Some(Health { status, message })) => {
                expected.status == *status && expected.message.as_ref().is_none_or(|expected| expected == message)
            }
            _ => false,
        };
        if !is_same {
            let expected = expected.map(|expected| (expected.status, expected.message));
            differences.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    }
    differences.extend(table.into_keys().map(|name| format!("{name}: only in {file}")));
    differences
}

#[test]
fn every_example_has_the_status_that_argo_cd_asserts() {
    assert_eq!(differences("expected.json", Compatibility::ArgoCd), [""; 0]);
    assert_eq!(differences("expected.json", Compatibility::Documented), [""; 0]);
}

#[test]
fn every_example_has_the_status_and_message_of_the_specification() {
    assert_eq!(differences("derived.json", Compatibility::ArgoCd), [""; 0]);
    assert_eq!(differences("derived.json", Compatibility::Documented), [""; 0]);
}

#[test]
fn the_tables_are_whole() {
    assert_eq!(examples().len(), 53);
    let derived = table("derived.json");
    assert_eq!(derived.len(), 53);
    assert!(
        derived.values().flatten().all(|expected| expected.message.is_some()),
        "derived.json asserts every message"
    );
}
