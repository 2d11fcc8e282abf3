//! A package of a realistic size: 200 objects. And how much is asked of the API server for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::chart::{Chart, account, chart, config_map_with, deployment, secret, service};

/// Objects of [`package`].
pub(crate) const OBJECTS: usize = 200;
/// Kinds of [`package`].
pub(crate) const KINDS: usize = 5;

/// 40 services of one Deployment, one Service, one ConfigMap of 2 KB, one Secret and an account each.
pub(crate) fn package() -> Chart {
    let objects = (0..OBJECTS / KINDS).flat_map(|index| {
        let name = format!("service-{index}");
        let settings: Value = (0..20).map(|key| (format!("key-{key}"), json!("value ".repeat(16)))).collect();
        let token = json!({"token": "c2VjcmV0IG9mIHRoZSBzZXJ2aWNl"});
        [
            account(&name),
            secret(&name).set("/data", token),
            config_map_with(&name, settings),
            service(&name),
            deployment(&name).set("/spec/replicas", json!(2)),
        ]
    });
    chart().put("all.yaml", objects)
}

/// Requests by verb; questions about what the API server serves are `discovery`.
pub(crate) fn by_verb(requests: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut verbs = BTreeMap::new();
    for (what, count) in requests {
        let (verb, plural) = what.split_once(' ').unwrap_or((what, ""));
        let verb = if plural.is_empty() { "discovery" } else { verb };
        *verbs.entry(verb.to_owned()).or_default() += count;
    }
    verbs
}

/// What a reconciliation asks that finds nothing to do: one list for each kind and one of the records, and no write. An
/// installation makes one write for each object, and two for the record; an upgrade that changes nothing writes the
/// record, and the objects are listed once.
#[cfg(test)]
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_objects_cost_what_they_must() {
    let site = super::site::Site::new().await;
    site.install(&package()).await.unwrap();
    let requests = by_verb(&site.tap.requests());
    assert_eq!(requests["apply"], OBJECTS, "{requests:?}");
    assert_eq!(site.tap.writes(), OBJECTS + 2, "{requests:?}");
    site.tap.clear();
    assert!(!site.needs_upgrade(&package()).await);
    let requests = site.tap.requests();
    assert_eq!(site.tap.writes(), 0, "{requests:?}");
    let lists = requests.iter().filter(|(what, _)| what.starts_with("list "));
    let too_many: Vec<_> = lists.filter(|(what, count)| **count > 1 + usize::from(*what == "list secrets")).collect();
    assert!(too_many.is_empty(), "{requests:?}");
    assert!(requests.keys().all(|what| what.starts_with("list ") || what.starts_with("get ")), "{requests:?}");
    site.tap.clear();
    site.upgrade(&package()).await.unwrap();
    let requests = site.tap.requests();
    // The new revision is created and ended, and the one before is superseded.
    assert_eq!(site.tap.writes(), 3, "{requests:?}");
    for plural in ["configmaps", "deployments", "services", "serviceaccounts"] {
        assert_eq!(requests[&format!("list {plural}")], 1, "{requests:?}");
        assert_eq!(requests.get(&format!("get {plural}")), None, "{requests:?}");
    }
}
