//! Another API server, seen through the journal and the faults that the development cluster has: what a test says about
//! requests then holds for a real server, too.
//!
//! The relay reads what an address, a header or a body says of a request; it changes neither requests nor answers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request as HttpRequest, State},
    response::{IntoResponse, Response},
};
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::{
    BODY_BYTES_MAX,
    fault::{self, Effect, Fault, Faults},
    journal::{self, Journal, PatchKind, Request},
    request::{Path, Query},
    weather::AnswerLost,
};
use crate::{
    json::{list, text},
    registry::DeleteOptions,
};

/// What is read of an answer, to learn the name that a server made. A server bounds what it takes, but not what it sends.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

type Upstream = dyn Fn(HttpRequest) -> BoxFuture<'static, Response> + Send + Sync;

/// The way to another API server. Cheap to clone; clones share the journal and the faults.
#[derive(Clone)]
pub struct Relay(Arc<Inner>);

struct Inner {
    upstream: Box<Upstream>,
    journal: Journal,
    faults: Faults,
    requests: AtomicU64,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("requests", &self.request_count()).finish_non_exhaustive()
    }
}

impl Relay {
    /// A relay in front of a server that is asked with this function. A server that cannot be asked is an answer, too: of
    /// status 502, for example.
    pub fn new(upstream: impl Fn(HttpRequest) -> BoxFuture<'static, Response> + Send + Sync + 'static) -> Self {
        let (journal, faults) = (Journal::default(), Faults::default());
        Self(Arc::new(Inner { upstream: Box::new(upstream), journal, faults, requests: AtomicU64::new(0) }))
    }

    /// The API as a tower service, as [`DevCluster::router`](crate::DevCluster::router).
    pub fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// API requests since the start.
    pub fn request_count(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// What clients asked through this relay, oldest first: the newest 16 384 requests.
    pub fn journal(&self) -> Vec<Request> {
        self.0.journal.requests()
    }

    /// The requests of the journal that meant to change something, oldest first.
    pub fn writes(&self) -> Vec<Request> {
        self.journal().into_iter().filter(Request::is_write).collect()
    }

    /// Forgets the journal.
    pub fn clear_journal(&self) {
        self.0.journal.clear();
    }

    /// Makes something go wrong with the requests that come this way from now on, as
    /// [`DevCluster::inject`](crate::DevCluster::inject) does.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.inject(fault);
    }

    /// Ends all faults. Requests that already hang are not answered any more.
    pub fn heal(&self) {
        self.0.faults.heal();
    }

    /// Asks the server and writes down how it answered.
    async fn ask(&self, number: u64, request: HttpRequest, creates: bool) -> Response {
        let response = (self.0.upstream)(request).await;
        let status = response.status();
        self.0.journal.note(number, |request| request.status = Some(status.as_u16()));
        if !creates || !status.is_success() {
            return response;
        }
        // The server may have made the name.
        let (parts, body) = response.into_parts();
        let Ok(bytes) = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await else { return fault::broken() };
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let name = text(&answer, &["metadata", "name"]);
        if !name.is_empty() {
            self.0.journal.note(number, |request| name.clone_into(&mut request.name));
        }
        Response::from_parts(parts, Body::from(bytes))
    }
}

async fn handle(State(relay): State<Relay>, request: HttpRequest) -> Response {
    relay.0.requests.fetch_add(1, Ordering::Relaxed);
    let (parts, body) = request.into_parts();
    let path = Path::parse(parts.uri.path());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let dry_run = !query.get("dryRun").is_empty();
    let hit = relay.0.faults.judge(fault::means_to_write(&parts.method, &path, dry_run));
    let mut entry = journal::entry(&parts.method, &parts.headers, &query, &path, parts.uri.path());
    entry.dry_run = dry_run;
    entry.lost = parts.extensions.get::<AnswerLost>().is_some();
    let Ok(bytes) = axum::body::to_bytes(body, BODY_BYTES_MAX + 1).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    read_body(&mut entry, &parts.headers, &query, &bytes);
    let creates = entry.verb == "create" && entry.subresource.is_empty();
    let number = relay.0.journal.open(entry);
    let request = HttpRequest::from_parts(parts, Body::from(bytes));
    let Some(hit) = hit else { return relay.ask(number, request, creates).await };
    if hit.performed {
        relay.ask(number, request, creates).await;
        relay.0.journal.note(number, |request| request.status = None);
    }
    match hit.effect {
        Effect::Hang => std::future::pending().await,
        Effect::Drop => fault::broken(),
        Effect::Refuse(status) => {
            relay.0.journal.note(number, |request| request.status = Some(status));
            fault::refuse(status)
        }
    }
}

/// Adds what the body of a write says. A body that is not JSON says nothing here; the server will say what it thinks of it.
fn read_body(entry: &mut Request, headers: &HeaderMap, query: &Query, bytes: &Bytes) {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = || serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let given = |object: &Value, field: &str| {
        Some(text(object, &["metadata", field]).to_owned()).filter(|text| !text.is_empty())
    };
    match entry.verb {
        "create" if entry.name.is_empty() => text(&sent(), &["metadata", "name"]).clone_into(&mut entry.name),
        "update" | "patch" => {
            entry.force = query.flag("force");
            entry.patch = match media.split(';').next().unwrap_or_default().trim() {
                _ if entry.verb == "update" => None,
                "application/json-patch+json" => Some(PatchKind::Json),
                "application/merge-patch+json" => Some(PatchKind::Merge),
                "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
                "application/apply-patch+yaml" => Some(PatchKind::Apply),
                _ => None,
            };
            if entry.patch != Some(PatchKind::Json) {
                let object = sent();
                entry.uid = given(&object, "uid");
                entry.resource_version = given(&object, "resourceVersion");
            }
        }
        "delete" | "deletecollection" => {
            let object = sent();
            entry.dry_run |= !list(&object, &["dryRun"]).is_empty();
            if let Ok(mut options) = DeleteOptions::parse(&object) {
                options.set_propagation(query.get("propagationPolicy")).ok();
                entry.propagation = options.propagation;
                entry.uid = options.uid;
                entry.resource_version = options.resource_version;
            }
        }
        _ => {}
    }
}
