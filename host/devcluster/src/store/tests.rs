//! Revisions, history and persistence.

use serde_json::json;

use super::*;

fn put(store: &Store, name: &str, expect: Expect, value: u64) -> Result<u64, Raced> {
    let object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "value": value});
    let key = (String::new(), name.to_owned());
    store.commit(&"t".into(), &key, expect, Write::Put(object)).map(|(stored, ticket)| {
        ticket.ignore();
        stored.revision
    })
}

#[test]
fn a_write_with_another_version_in_mind_is_refused() {
    let store = Store::open(None).unwrap();
    let first = put(&store, "a", Expect::Absent, 1).unwrap();
    assert_eq!(put(&store, "a", Expect::Absent, 2), Err(Raced));
    let second = put(&store, "a", Expect::Revision(first), 2).unwrap();
    assert!(second > first);
    assert_eq!(put(&store, "a", Expect::Revision(first), 3), Err(Raced));
    assert_eq!(store.get("t", "", "a").unwrap().value["metadata"]["resourceVersion"], second.to_string());
}

#[test]
fn the_history_is_bounded_and_says_so() {
    let store = Store::open(None).unwrap();
    let mut revision = put(&store, "a", Expect::Absent, 0).unwrap();
    let first = revision;
    for n in 0..HISTORY_MAX as u64 {
        revision = put(&store, "a", Expect::Revision(revision), n).unwrap();
    }
    assert_eq!(store.changes("t", first - 1, 10).unwrap_err(), Expired { oldest: first });
    let (changes, complete) = store.changes("t", first, 10).unwrap();
    assert_eq!((changes.len(), complete), (10, first + 10));
    let (changes, complete) = store.changes("t", revision, 10).unwrap();
    assert_eq!((changes.len(), complete), (0, revision));
    assert!(store.changes("never-written", FIRST_REVISION - 1, 1).is_err());
}

#[test]
fn owners_and_uids_are_indexed() {
    let store = Store::open(None).unwrap();
    put(&store, "owner", Expect::Absent, 0).unwrap();
    let child = json!({"metadata": {"name": "child", "uid": "c", "ownerReferences": [{"uid": "uid-owner"}]}});
    let key = (String::new(), "child".to_owned());
    let (stored, ticket) = store.commit(&"t".into(), &key, Expect::Absent, Write::Put(child.clone())).unwrap();
    ticket.ignore();
    assert_eq!(store.dependents("uid-owner").len(), 1);
    assert_eq!(store.by_uid("c").unwrap().1.revision, stored.revision);
    store.commit(&"t".into(), &key, Expect::Revision(stored.revision), Write::Delete(child)).unwrap().1.ignore();
    assert!(store.dependents("uid-owner").is_empty() && store.by_uid("c").is_none());
}

#[tokio::test]
async fn acknowledged_writes_are_there_after_reopening() {
    let folder = std::env::temp_dir().join(format!("devcluster-store-{}", uuid::Uuid::new_v4()));
    let revision = {
        let store = Store::open(Some(&folder)).unwrap();
        let key = |name: &str| ("n".to_owned(), name.to_owned());
        let object = |name: &str| json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
        for name in ["a", "b"] {
            let (_, ticket) = store.commit(&"t".into(), &key(name), Expect::Absent, Write::Put(object(name))).unwrap();
            ticket.wait().await.unwrap();
        }
        let b = store.get("t", "n", "b").unwrap();
        let (gone, ticket) =
            store.commit(&"t".into(), &key("b"), Expect::Revision(b.revision), Write::Delete(object("b"))).unwrap();
        ticket.wait().await.unwrap();
        store.close();
        gone.revision
    };
    let store = Store::open(Some(&folder)).unwrap();
    let (objects, now) = store.list("t", Some("n"));
    assert_eq!(objects.iter().map(|o| o.uid().to_owned()).collect::<Vec<_>>(), ["a"]);
    assert!(now > revision, "the counter never goes back: {now} after {revision}");
    // A version from before the restart is too old to watch from.
    assert!(store.changes("t", revision, 1).is_err());
    store.close();
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn what_is_kept_is_the_owners_alone_also_if_it_was_made_otherwise() {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let outer = std::env::temp_dir().join(format!("devcluster-store-{}", uuid::Uuid::new_v4()));
    let inner = outer.join("cluster");
    let file = inner.join("devcluster.redb");
    let mode = |path: &Path| metadata(path).unwrap().permissions().mode() & 0o777;
    Store::open(Some(&inner)).unwrap().close();
    assert_eq!((mode(&outer), mode(&inner), mode(&file)), (0o700, 0o700, 0o600));
    set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
    set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    Store::open(Some(&inner)).unwrap().close();
    assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
    std::fs::remove_dir_all(&outer).unwrap();
}
