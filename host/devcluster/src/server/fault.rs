//! Faults that tests put into the API: requests that are refused, cut off or never answered.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Shared, request::Path};

/// What happens to a request that a [`Fault`] hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The answer never comes. The connection stays open until the client gives up or the cluster stops.
    Hang,
    /// The connection breaks before the answer is complete.
    Drop,
    /// The server refuses with this HTTP status and a `Status` object. 429 and 503 say that one may retry after a second.
    Refuse(u16),
}

/// The requests that a [`Fault`] looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Every request, discovery and watches too.
    #[default]
    All,
    /// Requests that mean to change something: not reads, not dry runs, not questions about rights.
    Writes,
}

/// Something that goes wrong with the API, for tests; see [`DevCluster::inject`](crate::DevCluster::inject).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which requests count, and may be hit.
    pub scope: Scope,
    /// How many of them pass before the first is hit, counted from when the fault was injected.
    pub passed: u64,
    /// How many are hit; `None` is all until the cluster is healed.
    pub times: Option<u64>,
    /// What happens to them.
    pub effect: Effect,
    /// Whether the first one that is hit is carried out all the same, so that only its answer is lost: what a process
    /// leaves behind that is killed between the write and the answer.
    pub performed: bool,
}

impl Fault {
    /// As if the client were killed: after this many requests of the scope none of them is answered. `performed` says
    /// whether the first that is not answered still does its work.
    pub fn killed_after(scope: Scope, passed: u64, performed: bool) -> Self {
        Self { scope, passed, times: None, effect: Effect::Hang, performed }
    }

    /// Every request of the scope from now on is refused, this many times.
    pub fn refuse(scope: Scope, status: u16, times: u64) -> Self {
        Self { scope, passed: 0, times: Some(times), effect: Effect::Refuse(status), performed: false }
    }
}

#[derive(Debug)]
struct Active {
    fault: Fault,
    seen: u64,
    hits: u64,
}

/// The way of one client to the API, as if it were a process of its own. What breaks here breaks for nobody else, and stays
/// broken: a client that was killed does not come back when another one starts. Cheap to clone.
#[derive(Clone)]
pub struct Gate {
    pub(crate) shared: Arc<Shared>,
    pub(crate) place: Arc<Place>,
}

/// What the requests of a gate carry.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) faults: Faults,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Gate {
    /// The API as a tower service, seen through this gate.
    pub fn router(&self) -> axum::Router {
        super::router(Arc::clone(&self.shared)).layer(axum::Extension(Arc::clone(&self.place)))
    }

    /// As [`DevCluster::inject`](crate::DevCluster::inject), for the requests of this gate.
    pub fn inject(&self, fault: Fault) {
        self.place.faults.inject(fault);
    }

    /// Ends the faults of this gate. Requests that already hang are not answered any more.
    pub fn heal(&self) {
        self.place.faults.heal();
    }
}

/// The faults that are in force.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Active>>);

/// What a fault decided for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) effect: Effect,
    pub(super) performed: bool,
}

impl Faults {
    pub(crate) fn inject(&self, fault: Fault) {
        self.0.lock().push(Active { fault, seen: 0, hits: 0 });
    }

    pub(crate) fn heal(&self) {
        self.0.lock().clear();
    }

    /// Counts the request for every fault; the oldest fault that hits it decides.
    pub(super) fn judge(&self, write: bool) -> Option<Hit> {
        let mut decided = None;
        let mut active = self.0.lock();
        for Active { fault, seen, hits } in active.iter_mut() {
            if fault.scope == Scope::Writes && !write {
                continue;
            }
            *seen += 1;
            let hit = *seen > fault.passed && fault.times.is_none_or(|times| *hits < times);
            if hit && decided.is_none() {
                decided = Some(Hit { effect: fault.effect, performed: fault.performed && *hits == 0 });
                *hits += 1;
            }
        }
        active.retain(|active| active.fault.times.is_none_or(|times| active.hits < times));
        decided
    }
}

/// Whether a request means to change something, as far as its address tells. (A deletion may say in its body that it is
/// a dry run; it counts as a write here.)
pub(super) fn means_to_write(method: &Method, path: &Path, dry_run: bool) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let question = |group: &str| group.starts_with("authorization.") || group.starts_with("authentication.");
    !reads && !dry_run && !matches!(path, Path::Target(target) if question(&target.group))
}

/// The answer of a server that is not well.
pub(super) fn refuse(status: u16) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match code.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let after = matches!(code.as_u16(), 429 | 503).then_some(1);
    refusal(code.as_u16(), reason, "a fault was injected into the development cluster", after)
}

/// What a server says when it refuses, as an object; with the seconds after which one may try again.
pub(super) fn status(code: u16, reason: &str, message: &str, after: Option<u32>) -> Value {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": message,
    });
    if let Some(seconds) = after {
        crate::json::set(&mut body, &["details"], json!({"retryAfterSeconds": seconds}));
    }
    body
}

/// A refusal as an answer.
pub(super) fn refusal(code: u16, reason: &str, message: &str, after: Option<u32>) -> Response {
    let body = status(code, reason, message, after).to_string();
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (code, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(seconds) = after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

/// An answer whose body breaks off.
pub(super) fn broken() -> Response {
    let error = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was dropped by a fault");
    let body = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(Arc::new(error))]));
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
