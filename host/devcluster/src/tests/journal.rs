//! What the journal tells of requests, and what faults do to them.

use crate::{Effect, Fault, PatchKind, Propagation, Scope};

use super::*;

fn map(name: &str, data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

fn lines(cluster: &DevCluster) -> Vec<String> {
    cluster.writes().iter().map(ToString::to_string).collect()
}

/// Requests of every kind; gives the first object that was made, and what one that was deleted was.
async fn ask_everything(client: Client) -> (ConfigMap, ConfigMap) {
    let api = Api::<ConfigMap>::default_namespaced(client);
    let mut generated = map("", json!({}));
    generated.metadata.name = None;
    generated.metadata.generate_name = Some("made-".to_owned());
    let by_one = PostParams { field_manager: Some("one".to_owned()), ..PostParams::default() };
    let made = api.create(&by_one, &generated).await.unwrap();
    let mut named = api.create(&PostParams::default(), &map("a", json!({}))).await.unwrap();
    api.get("a").await.unwrap();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}});
    api.patch("a", &PatchParams::apply("helm").force(), &Patch::Apply(&config)).await.unwrap();
    api.patch("a", &PatchParams::apply("helm").dry_run(), &Patch::Apply(&config)).await.unwrap();
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"x": "2"}}))).await.unwrap();
    named.data = Some([("late".to_owned(), "1".to_owned())].into());
    api.replace("a", &PostParams::default(), &named).await.unwrap_err();
    api.delete(
        "a",
        &DeleteParams::foreground()
            .preconditions(kube::api::Preconditions { uid: named.metadata.uid.clone(), resource_version: None }),
    )
    .await
    .unwrap();
    api.delete("a", &DeleteParams::default()).await.ok();
    (made, named)
}

#[tokio::test]
async fn the_journal_tells_writes_in_order_with_what_they_asked() {
    let (cluster, client) = cluster().await;
    let (made, named) = ask_everything(client.clone()).await;
    let (made, stale) = (made.name_any(), named.metadata.resource_version.clone());
    let api = Api::<ConfigMap>::default_namespaced(client);
    let wanted = [
        format!("create configmaps default/{made} by one -> 201"),
        "create configmaps default/a by unknown -> 201".to_owned(),
        "apply configmaps default/a by helm (force) -> 200".to_owned(),
        "merge patch configmaps default/a by unknown -> 200".to_owned(),
        "update configmaps default/a by unknown -> 409".to_owned(),
        "delete configmaps default/a (foreground) -> 200".to_owned(),
    ];
    assert_eq!(lines(&cluster).iter().take(6).collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    let journal = cluster.journal();
    assert!(journal.windows(2).all(|pair| pair[0].number + 1 == pair[1].number));
    let read = journal.iter().find(|r| r.verb == "get").unwrap();
    assert_eq!((read.name.as_str(), read.is_write(), read.succeeded()), ("a", false, true));
    let dry = journal.iter().find(|r| r.dry_run).unwrap();
    assert_eq!((dry.patch, dry.is_write(), dry.status), (Some(PatchKind::Apply), false, Some(200)));
    let update = journal.iter().find(|r| r.verb == "update").unwrap();
    assert_eq!(update.resource_version, stale);
    let delete = journal.iter().find(|r| r.verb == "delete").unwrap();
    assert_eq!((delete.propagation, &delete.uid), (Some(Propagation::Foreground), &named.metadata.uid));
    cluster.clear_journal();
    assert!(cluster.journal().is_empty());
    api.get("a").await.ok();
    assert_eq!(cluster.journal().len(), 1);
    assert!(cluster.journal()[0].number > delete.number);
}

/// A relay in front of the cluster.
fn relay(cluster: &DevCluster) -> crate::Relay {
    let router = cluster.router();
    crate::Relay::new(move |request| {
        let router = router.clone();
        Box::pin(
            async move { tower::ServiceExt::oneshot(router, request).await.unwrap_or_else(|never| match never {}) },
        )
    })
}

#[tokio::test]
async fn a_relay_tells_what_the_cluster_behind_it_tells() {
    let (cluster, _client) = cluster().await;
    let relay = relay(&cluster);
    let client = client_through(relay.router());
    ask_everything(client.clone()).await;
    let list = ListParams::default();
    Api::<ConfigMap>::all(client.clone()).list(&list).await.unwrap();
    Api::<ConfigMap>::default_namespaced(client).delete_collection(&DeleteParams::orphan(), &list).await.unwrap();
    assert_eq!(relay.journal(), cluster.journal());
    assert_eq!(relay.request_count(), cluster.request_count());
}

#[tokio::test]
async fn the_faults_of_a_relay_are_its_own() {
    let (cluster, _client) = cluster().await;
    let (relay, other) = (relay(&cluster), relay(&cluster));
    let api = |relay: &crate::Relay| Api::<ConfigMap>::default_namespaced(client_through(relay.router()));
    relay.inject(Fault { performed: true, ..Fault::refuse(Scope::Writes, 503, 1) });
    let refused = api(&relay).create(&PostParams::default(), &map("a", json!({}))).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 503));
    assert!(api(&other).get_opt("a").await.unwrap().is_some(), "the answer was lost, not the write");
    relay.inject(Fault::killed_after(Scope::All, 0, false));
    let asking = tokio::time::timeout(Duration::from_millis(50), api(&relay).get_opt("a")).await;
    assert!(asking.is_err(), "a killed client gets no answer");
    api(&other).get_opt("a").await.unwrap();
    relay.heal();
    api(&relay).get_opt("a").await.unwrap();
    let lines = relay.journal().iter().map(ToString::to_string).collect::<Vec<_>>();
    let wanted = [
        "create configmaps default/a by unknown -> 503",
        "get configmaps default/a -> no answer",
        "get configmaps default/a -> 200",
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn a_killed_client_gets_no_answer_and_the_next_one_does() {
    for performed in [false, true] {
        let (cluster, client) = cluster().await;
        let api = Api::<ConfigMap>::default_namespaced(client);
        cluster.inject(Fault::killed_after(Scope::Writes, 2, performed));
        let work = async {
            for name in ["a", "b", "c", "d"] {
                api.get_opt(name).await.unwrap();
                api.create(&PostParams::default(), &map(name, json!({}))).await.unwrap();
            }
        };
        assert!(tokio::time::timeout(Duration::from_millis(100), work).await.is_err(), "the third write hangs");
        cluster.heal();
        let found = |name: &'static str| {
            let api = api.clone();
            async move { api.get_opt(name).await.unwrap().is_some() }
        };
        assert!(found("a").await && found("b").await);
        assert_eq!(found("c").await, performed);
        assert!(!found("d").await);
        let lost = cluster.writes().pop().unwrap();
        assert!(lost.to_string().ends_with("-> no answer"), "{lost}");
        api.create(&PostParams::default(), &map("e", json!({}))).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_killed_at_its_gate_stays_dead_while_others_work() {
    let (cluster, client) = cluster().await;
    let (first, second) = (cluster.gate("first"), cluster.gate("second"));
    let api = |router: axum::Router| Api::<ConfigMap>::default_namespaced(client_through(router));
    first.inject(Fault::killed_after(Scope::All, 1, false));
    let old = api(first.router());
    let task = tokio::spawn(async move {
        for name in ["a", "b"] {
            old.create(&PostParams::default(), &map(name, json!({}))).await.unwrap();
        }
    });
    let new = api(second.router());
    new.create(&PostParams::default(), &map("c", json!({}))).await.unwrap();
    cluster.heal();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!task.is_finished(), "the old process hangs for good");
    let names = Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    let mut names = names.items.iter().map(ResourceExt::name_any).filter(|n| n.len() == 1).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["a", "c"]);
    let mut gates = cluster.writes().into_iter().map(|r| (r.name, r.gate, r.status)).collect::<Vec<_>>();
    gates.sort();
    let row = |name: &str, gate: &str, status| (name.to_owned(), gate.to_owned(), status);
    // The name of a creation is read from its body, which a request that is not looked at keeps for itself.
    let wanted = [row("", "first", None), row("a", "first", Some(201)), row("c", "second", Some(201))];
    assert_eq!(gates, wanted);
    task.abort();
}

#[tokio::test]
async fn a_fault_drops_or_refuses_as_often_as_it_says() {
    let (cluster, client) = cluster().await;
    let api = Api::<ConfigMap>::default_namespaced(client);
    let drop = Fault { scope: Scope::All, passed: 1, times: Some(1), effect: Effect::Drop, performed: true };
    cluster.inject(drop);
    api.get_opt("a").await.unwrap();
    let error = api.create(&PostParams::default(), &map("a", json!({}))).await.unwrap_err();
    assert!(!matches!(error, kube::Error::Api(_)), "no answer was read: {error}");
    assert!(api.get_opt("a").await.unwrap().is_some(), "the write was carried out");
    cluster.inject(Fault::refuse(Scope::Writes, 500, 2));
    for code in [Some(500), Some(500), None] {
        let answer = api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "v"}}))).await;
        let refused = match answer {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(refused, code);
    }
}

#[tokio::test]
async fn a_dropped_connection_over_http_ends_the_answer_early() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (cluster, _client) = cluster().await;
    let server = cluster.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    cluster.inject(Fault { scope: Scope::All, passed: 0, times: Some(1), effect: Effect::Drop, performed: false });
    let mut socket = tokio::net::TcpStream::connect(server.local_addr()).await.unwrap();
    socket.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), socket.read_to_end(&mut answer)).await.unwrap().ok();
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("\r\n0\r\n"), "the last chunk must not come: {answer}");
    server.shutdown().await;
}
