//! Answers that were lost, and servers that are busy: what was asked for is done, and done once.

use barbless_devcluster::{Effect, Fault, Scope};
use barbless_domain::operation::OperationResult;

use super::*;

/// The next write is carried out, and nobody hears of it.
fn lost_answer(passed: u64) -> Fault {
    Fault { scope: Scope::Writes, passed, times: Some(1), effect: Effect::Drop, performed: true }
}

/// The next write is answered with 500 or the like, this many times, and not carried out.
fn refused(status: u16, times: u64) -> Fault {
    Fault::refuse(Scope::Writes, status, times)
}

fn operation(action: Action, kind: &str, name: &str) -> Operation {
    let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    Operation {
        target: reference(api_version, kind, "", name),
        action,
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    }
}

async fn perform(cluster: &Cluster, action: Action, name: &str) -> OperationResult {
    cluster.perform(&app(), "hooks", &operation(action, "ConfigMap", name), &SetsK).await
}

fn at(name: &str) -> ObjectRef {
    reference("v1", "ConfigMap", "demo", name)
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let (devcluster, cluster) = start(false).await;
    for status in [429, 500, 503, 504] {
        let name = format!("c{status}");
        devcluster.inject(refused(status, 1));
        let action = Action::Create { object: json!({"data": {"a": "1"}}) };
        assert_eq!(perform(&cluster, action, &name).await, OperationResult::Done, "{status}");
        devcluster.inject(Fault::refuse(Scope::All, status, 1));
        assert!(cluster.get(&at(&name)).await.expect("an answer").is_some(), "{status}");
    }
    devcluster.inject(Fault { scope: Scope::All, passed: 0, times: Some(1), effect: Effect::Drop, performed: false });
    assert!(cluster.get(&at("c500")).await.expect("an answer").is_some());
    // For ever is too long.
    devcluster.inject(Fault::refuse(Scope::All, 500, u64::MAX));
    assert_eq!(cluster.get(&at("c500")).await.expect_err("a refusal").code(), Some(500));
}

#[tokio::test]
async fn an_operation_whose_answer_is_lost_is_done_once() {
    let (devcluster, cluster) = start(false).await;
    let object = json!({"data": {"n": "1", "list": "a"}});
    let set = |n: &str| json!({"data": {"n": n}});
    for (index, action) in [
        Action::Create { object: object.clone() },
        Action::CreateOrUpdate { object: set("2") },
        Action::Apply { object: json!({"data": {"applied": "1"}}) },
        Action::Apply { object: json!({"data": {"applied": "2"}}) },
        Action::MergePatch { patch: set("3") },
        Action::JsonPatch { patch: json!([{"op": "replace", "path": "/data/n", "value": "4"}]) },
        Action::JqPatch { program: "sets k".to_owned() },
        Action::Delete { propagation: Propagation::Background },
        Action::CreateIfNotExists { object },
    ]
    .into_iter()
    .enumerate()
    {
        devcluster.inject(lost_answer(0));
        let what = format!("{index}: {action:?}");
        assert_eq!(perform(&cluster, action, "c").await, OperationResult::Done, "{what}");
        devcluster.heal();
        let done = devcluster.journal().into_iter().filter(|it| it.is_write() && it.name == "c" && it.succeeded());
        devcluster.clear_journal();
        // An apply says how things are to be, and may say so twice.
        assert!(done.count() <= usize::from(what.contains("Apply")), "{what}");
    }
}

/// What `add` of a JSON patch does twice shows.
#[tokio::test]
async fn a_json_patch_goes_in_once_though_others_write_meanwhile() {
    let (devcluster, cluster) = start(false).await;
    for others in [false, true] {
        let name = format!("c-{others}");
        let object = json!({"metadata": {"finalizers": ["example.com/a"]}, "data": {"n": "1"}});
        assert_eq!(perform(&cluster, Action::Create { object }, &name).await, OperationResult::Done);
        devcluster.inject(lost_answer(0));
        let other = async {
            if others {
                // Between the write and the second try, 50 ms later: it even takes back what was written.
                while !devcluster.journal().iter().any(|it| it.verb == "update" && it.name == name) {
                    tokio::task::yield_now().await;
                }
                cluster.touch(&at(&name), json!({"metadata": {"finalizers": ["example.com/a"]}})).await;
            }
        };
        let patch = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"}]);
        let (result, ()) = tokio::join!(perform(&cluster, Action::JsonPatch { patch }, &name), other);
        assert_eq!(result, OperationResult::Done);
        let live = cluster.read(&at(&name)).await.expect("an object");
        let wanted = if others { json!(["example.com/a"]) } else { json!(["example.com/a", "example.com/b"]) };
        assert_eq!(live["metadata"]["finalizers"], wanted, "what others did since stands");
    }
}

/// Somebody else's object is not taken for ours because an answer was lost.
#[tokio::test]
async fn what_others_made_stays_theirs() {
    let (devcluster, cluster) = start(false).await;
    cluster.put(config_map("c", json!({"n": "1"}))).await;
    devcluster.inject(lost_answer(0));
    let result = perform(&cluster, Action::Create { object: json!({"data": {"n": "1"}}) }, "c").await;
    assert!(matches!(&result, OperationResult::Failed { reason, .. } if reason == "AlreadyExists"), "{result:?}");
}

/// A Secret says in `data` what was sent as `stringData`.
#[tokio::test]
async fn a_secret_that_was_sent_as_text_is_known_again() {
    let (devcluster, cluster) = start(false).await;
    devcluster.inject(lost_answer(0));
    let object = json!({"stringData": {"password": "p"}, "data": {"user": "dQ=="}});
    let operation = operation(Action::Create { object }, "Secret", "s");
    assert_eq!(cluster.perform(&app(), "hooks", &operation, &SetsK).await, OperationResult::Done);
}

/// The state of which a page was is forgotten: the list is begun anew, and has each object once.
#[tokio::test]
async fn a_list_whose_next_page_expired_is_begun_anew() {
    use crate::request::Selection;
    let (devcluster, cluster) = start(false).await;
    for n in 0..5 {
        let mut object = config_map(&format!("c{n}"), json!({}));
        object["metadata"]["labels"] = json!({"of": "us"});
        cluster.put(object).await;
    }
    let resource = cluster.resolve(&gvk("v1", "ConfigMap")).await.expect("a served kind");
    let selection =
        Selection { labels: "of=us", metadata_only: false, managed_fields: false, only: None, page: 2, pages: 10 };
    devcluster.inject(Fault {
        scope: Scope::All,
        passed: 1,
        times: Some(1),
        effect: Effect::Refuse(410),
        performed: false,
    });
    let listed = cluster.list_some(&resource, Some("demo"), &selection).await.expect("a list");
    let names: Vec<&str> = listed.objects.iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4"]);
    assert!(listed.whole);
}

/// Whose record it is changes with the write; the second try finds that and knows its own doing.
#[tokio::test]
async fn a_record_is_begun_and_ended_though_answers_are_lost() {
    let (devcluster, cluster) = start(false).await;
    let plan = plan_for(&cluster, vec![config_map("c", json!({}))], &[]).await;
    let now = jiff::Timestamp::now();
    devcluster.inject(lost_answer(0));
    let settings = json!({});
    let action = barbless_domain::release::history::Action::Install;
    let new = crate::NewRevision { action, ..records::revision(&plan, &settings, "me", now) };
    let mut record = cluster.begin_release(&app(), new).await.expect("begun");
    devcluster.inject(lost_answer(0));
    let deployed = barbless_domain::release::ReleaseStatus::Deployed;
    cluster.finish_release(&mut record, deployed, "done", now).await.expect("ended");
    let stored = cluster.latest_release(&app()).await.expect("an answer").expect("a release");
    assert_eq!((stored.revision, stored.status), (1, deployed));
}

/// Applications: finalizers, annotations, status.
#[tokio::test]
async fn what_was_changed_of_an_application_is_told_though_the_answer_is_lost() {
    let (devcluster, cluster) = start(false).await;
    cluster.establish_crds().await.expect("established");
    cluster.create_application(&app(), "p", "1.0.0", &json!({})).await.expect("created");
    devcluster.inject(lost_answer(0));
    assert!(cluster.ensure_finalizer(&app()).await.expect("an answer"), "it had to be added");
    assert!(!cluster.ensure_finalizer(&app()).await.expect("an answer"), "it is there");
    devcluster.inject(lost_answer(0));
    assert!(cluster.remove_finalizer(&app()).await.expect("an answer"), "it was there");
    devcluster.inject(lost_answer(0));
    assert!(cluster.delete_application(&app()).await.expect("an answer"), "there was one");
    assert!(!cluster.delete_application(&app()).await.expect("an answer"), "there is none");
}
