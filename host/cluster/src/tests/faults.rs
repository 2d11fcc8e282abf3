//! What a healthy API server seldom does, played by a small service.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use barbless_domain::operation::{Action, Operation, OperationResult, Propagation};
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::{SetsK, app, gvk, reference};
use crate::{Cluster, WatchEvent, WatchSpec};

/// Answers each request by a function of method, path with query, and how often it was asked.
fn played(answer: impl Fn(&str, &str, usize) -> (u16, String) + Send + Sync + 'static) -> Cluster {
    let answer = Arc::new(answer);
    let asked: Arc<Mutex<std::collections::BTreeMap<String, usize>>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, asked) = (Arc::clone(&answer), Arc::clone(&asked));
        async move {
            let uri = request.uri().to_string();
            let key = format!("{} {}", request.method(), uri.split('?').next().unwrap_or_default());
            let watch = if uri.contains("watch=true") { " watch" } else { "" };
            let count = {
                let mut asked = asked.lock().expect("no panic holds it");
                let count = asked.entry(format!("{key}{watch}")).or_default();
                *count += 1;
                *count
            };
            let (status, body) = answer(request.method().as_str(), &uri, count);
            let response = Response::builder().status(StatusCode::from_u16(status).expect("a status"));
            Ok::<_, std::convert::Infallible>(response.body(axum::body::Body::from(body)).expect("a response"))
        }
    });
    Cluster::new(kube::Client::new(service, "default"))
}

fn discovery() -> (u16, String) {
    let resources = json!([{"name": "configmaps", "namespaced": true, "kind": "ConfigMap", "singularName": "configmap",
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]);
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": resources});
    (200, list.to_string())
}

fn status(code: u16, reason: &str, message: &str) -> (u16, String) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    (code, status.to_string())
}

fn list(version: &str, names: &[&str]) -> (u16, String) {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "namespace": "demo", "resourceVersion": "1"}}))
        .collect();
    let list =
        json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items});
    (200, list.to_string())
}

fn shown(event: &WatchEvent) -> String {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match event {
        WatchEvent::Synced(objects) => {
            format!("synced {}", objects.iter().map(|object| name(object)).collect::<Vec<_>>().join(" "))
        }
        WatchEvent::Applied(object) => format!("applied {}", name(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(object)),
        WatchEvent::Failed { reason, .. } => format!("failed {reason}"),
    }
}

#[tokio::test]
async fn lost_events_bring_the_whole_state_again() {
    let cluster = played(|_, uri, count| match (uri, count) {
        ("/api/v1", _) => discovery(),
        (uri, 1) if uri.contains("watch=true") => {
            let applied = json!({"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"name": "b", "namespace": "demo", "resourceVersion": "2"}}});
            let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}});
            (200, format!("{applied}\n{gone}\n"))
        }
        (uri, _) if uri.contains("watch=true") => (200, String::new()),
        (_, 1) => list("1", &["a"]),
        (_, _) => list("9", &["b", "c"]),
    });
    let events = cluster.watch(WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned())));
    let seen: Vec<String> = events.take(4).map(|event| shown(&event)).collect().await;
    // What is not in the second state is gone: "a".
    assert_eq!(seen, ["synced a", "applied b", "failed Expired", "synced b c"]);
}

/// A proxy cuts what is silent for a minute. That is no reason to look away for longer each time.
#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_breaks_off_every_minute_is_begun_again_at_once() {
    let begun = Arc::new(Mutex::new(0));
    let count = Arc::clone(&begun);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (uri, count) = (request.uri().to_string(), Arc::clone(&count));
        async move {
            let body = if uri == "/api/v1" {
                axum::body::Body::from(discovery().1)
            } else if uri.contains("watch=true") {
                *count.lock().expect("no panic holds it") += 1;
                let broken = async {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    Err::<&str, _>(std::io::Error::other("the connection was reset"))
                };
                axum::body::Body::from_stream(futures::stream::once(broken))
            } else {
                axum::body::Body::from(list("1", &["a"]).1)
            };
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    let mut events = Box::pin(cluster.watch(WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned()))));
    let minutes = 20;
    let _ =
        tokio::time::timeout(Duration::from_secs(60 * minutes), async { while events.next().await.is_some() {} }).await;
    let begun = *begun.lock().expect("no panic holds it");
    assert!(begun + 1 >= minutes, "{begun} watches in {minutes} minutes");
}

#[tokio::test]
async fn a_refused_list_is_no_empty_list() {
    let cluster = played(|_, uri, count| match (uri, count) {
        ("/api/v1", _) => discovery(),
        (uri, _) if uri.contains("watch=true") => (200, String::new()),
        (_, 1 | 2) => status(403, "Forbidden", "configmaps is forbidden"),
        (_, 3) => (500, "not even JSON".to_owned()),
        (_, _) => list("1", &[]),
    });
    let events = cluster.watch(WatchSpec::all(gvk("v1", "ConfigMap"), Some("demo".to_owned())));
    let seen: Vec<String> = events.take(4).map(|event| shown(&event)).collect().await;
    assert_eq!(seen[..2], ["failed Forbidden", "failed Forbidden"]);
    assert!(seen[2].starts_with("failed "), "{seen:?}");
    assert_eq!(seen[3], "synced ");
}

#[tokio::test]
async fn a_writer_that_always_wins_ends_the_retries() {
    let cluster = played(|method, uri, _| match (method, uri) {
        (_, "/api/v1") => discovery(),
        ("GET", _) => {
            let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {},
                "metadata": {"name": "c", "namespace": "demo", "uid": "u", "resourceVersion": "1"}});
            (200, live.to_string())
        }
        _ => status(409, "Conflict", "the object has been modified"),
    });
    let operation = |action| Operation {
        target: reference("v1", "ConfigMap", "", "c"),
        action,
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    for action in [
        Action::MergePatch { patch: json!({"data": {"a": "b"}}) },
        Action::JqPatch { program: "b".to_owned() },
        Action::Delete { propagation: Propagation::Background },
    ] {
        let result = cluster.perform(&app(), "m", &operation(action), &SetsK).await;
        let OperationResult::Failed { reason, message } = result else { panic!("done: {result:?}") };
        assert_eq!(reason, "Conflict");
        assert!(message.contains("another writer changed it 8 times"), "{message}");
    }
}

#[tokio::test]
async fn refusals_and_silence_have_reasons() {
    let cluster = played(|method, uri, _| match (method, uri) {
        (_, "/api/v1") => discovery(),
        ("GET", _) => status(404, "NotFound", "not found"),
        _ => status(403, "Forbidden", "exceeded quota"),
    });
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let operation = Operation {
        target: reference("v1", "ConfigMap", "", "c"),
        action: Action::Apply { object },
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    };
    let result = cluster.perform(&app(), "m", &operation, &SetsK).await;
    let expected = OperationResult::Failed {
        reason: "Forbidden".to_owned(),
        message: "cannot apply ConfigMap demo/c: exceeded quota (403 Forbidden)".to_owned(),
    };
    assert_eq!(result, expected);

    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<axum::body::Body>, _>(std::io::Error::other("connection refused"))
    });
    let cluster = Cluster::new(kube::Client::new(service, "default"));
    let result = tokio::time::timeout(Duration::from_secs(5), cluster.perform(&app(), "m", &operation, &SetsK)).await;
    let OperationResult::Failed { reason, message } = result.expect("in time") else { panic!("done") };
    assert_eq!(reason, "ApiUnreachable");
    assert!(message.contains("connection refused"), "{message}");
}

#[tokio::test]
async fn an_api_server_that_never_answers_ends_with_the_deadline() {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<axum::body::Body>, std::convert::Infallible>>()
    });
    let silent = Cluster::new(kube::Client::new(service, "default"));
    let (_devcluster, cluster) = super::start(false).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let plan = super::plan_for(&cluster, vec![object], &[]).await;
    let (options, _events) = super::options(Duration::from_millis(200));
    let error = silent.apply_release(&plan, &options).await.expect_err("a time-out");
    assert_eq!(error.reason(), "ApplyTimedOut");
    assert!(error.to_string().starts_with("the API server did not answer in time"), "{error}");
}

#[tokio::test]
async fn a_watch_that_is_refused_is_named_by_the_time_out() {
    // A Deployment that can be applied and not be watched.
    let cluster = played(|method, uri, _| {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "demo",
            "uid": "u", "resourceVersion": "1", "generation": 1}, "spec": {"replicas": 1}});
        match (method, uri.split('?').next().unwrap_or_default()) {
            (_, "/apis/apps/v1") => {
                let resources = json!([{"name": "deployments", "namespaced": true, "kind": "Deployment",
                    "singularName": "", "verbs": ["get", "list", "watch", "patch"]}]);
                let list = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": resources});
                (200, list.to_string())
            }
            ("GET", "/apis/apps/v1/namespaces/demo/deployments/d") => status(404, "NotFound", "not found"),
            ("PATCH", _) => (201, object.to_string()),
            _ => status(403, "Forbidden", "deployments is forbidden"),
        }
    });
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}});
    let plan = super::plan_for(&cluster, vec![deployment], &[]).await;
    let (options, _events) = super::options(Duration::from_millis(500));
    let error = cluster.apply_release(&plan, &options).await.expect_err("a time-out");
    assert!(
        error
            .to_string()
            .ends_with("Deployment.apps demo/d: it cannot be observed: deployments is forbidden (Forbidden)"),
        "{error}"
    );
}

/// One request each; paused time goes on by itself when everybody waits.
#[tokio::test(start_paused = true)]
async fn no_request_waits_for_ever() {
    let silent = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<axum::body::Body>, std::convert::Infallible>>()
    });
    let cluster = Cluster::new(kube::Client::new(silent, "default"));
    let begun = tokio::time::Instant::now();
    let errors = [
        cluster.get(&reference("v1", "ConfigMap", "demo", "c")).await.err(),
        cluster.version().await.err(),
        cluster.served_versions().await.err(),
    ];
    for error in errors {
        assert_eq!(error.map(|error| error.reason().to_owned()).as_deref(), Some("ApiTimedOut"));
    }
    assert_eq!(begun.elapsed(), crate::limits::REQUEST_WAIT * 3);

    // The same after the kind is known: reads, lists and writes.
    let forgetful = tower::service_fn(|request: Request<Body>| async move {
        if request.uri().path() == "/api/v1" {
            let (_, body) = discovery();
            return Ok::<_, std::convert::Infallible>(Response::new(axum::body::Body::from(body)));
        }
        std::future::pending().await
    });
    let cluster = Cluster::new(kube::Client::new(forgetful, "default"));
    let read = cluster.get(&reference("v1", "ConfigMap", "demo", "c")).await.expect_err("no answer");
    assert_eq!(read.to_string(), "cannot get ConfigMap demo/c: the API server did not answer within 60 s");
    let listed = cluster.list(&gvk("v1", "ConfigMap"), Some("demo"), "").await.expect_err("no answer");
    assert_eq!(listed.reason(), "ApiTimedOut");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let written = cluster.apply_object("m", "demo", &object).await.expect_err("no answer");
    assert_eq!(written.reason(), "ApiTimedOut");
}
