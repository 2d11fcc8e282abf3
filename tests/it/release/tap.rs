//! A client that writes down what it changes, and that can die in the middle of its work.
//!
//! The lines are those of the rows: `A Job/a-job` for what was applied or created, `D Job/a-job` for a deletion (with the
//! propagation unless it is `Background`), `R2 pending-upgrade` for a release record with its status after the write, and
//! `D R2` for one that was deleted. Only what the API server accepted is written down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Method, Request, Response, header};
use axum::response::IntoResponse as _;
use barbless_devcluster::AnswerLost;
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::target::Target;

/// Larger than any object.
const BYTES_MAX: usize = 64 << 20;

/// What a client did.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    state: Mutex<State>,
    died: Notify,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    /// Of those, the ones whose answer was lost, and that may come again.
    lost: Vec<String>,
    writes: usize,
    requests: BTreeMap<String, usize>,
    kinds: BTreeMap<String, String>,
    /// The write at which the client dies, from 0, and whether that write is still carried out.
    kill: Option<(usize, bool)>,
    dead: bool,
}

impl Tap {
    /// A client whose requests are written down.
    pub(crate) fn on(api: &Target) -> (kube::Client, Arc<Self>) {
        let tap = Arc::new(Self::default());
        let (router, own) = (api.router(), Arc::clone(&tap));
        // What does not pass the weather is not written down.
        let tapped = axum::Router::new().fallback(move |request: Request<Body>| {
            let (router, tap) = (router.clone(), Arc::clone(&own));
            async move { tap.pass(router, request).await }
        });
        (barbless::app::client_by(api.seen_by_the_program(tapped), api.namespace()), tap)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What was changed, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.state().lines.clone()
    }

    /// Attempts to change something, also those that were refused.
    pub(crate) fn writes(&self) -> usize {
        self.state().writes
    }

    /// How many requests there were, by verb and plural: `list configmaps`.
    pub(crate) fn requests(&self) -> BTreeMap<String, usize> {
        self.state().requests.clone()
    }

    /// Forgets what was done.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.lines.clear();
        state.lost.clear();
        state.requests.clear();
        state.writes = 0;
    }

    /// From the nth write on, counted from 0, nothing is answered; `performed` says whether that write is carried out.
    pub(crate) fn kill_at(&self, write: usize, performed: bool) {
        self.state().kill = Some((write, performed));
    }

    /// Waits until the client has died.
    pub(crate) async fn death(&self) {
        self.died.notified().await;
    }

    async fn pass(&self, router: axum::Router, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let place = Place::of(parts.uri.path());
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let verb = verb_of(&parts.method, &place, &query, content_type(&parts.headers));
        let writes = !matches!(verb, "get" | "list" | "watch") && !query.contains("dryRun=");
        let fate = {
            let mut state = self.state();
            *state.requests.entry(format!("{verb} {}", place.plural)).or_default() += 1;
            let mut fate = Fate::Answered;
            if writes {
                fate = match state.kill {
                    Some((at, performed)) if at == state.writes => {
                        state.dead = true;
                        if performed { Fate::Performed } else { Fate::Lost }
                    }
                    _ => fate,
                };
                state.writes += 1;
            }
            if state.dead && fate == Fate::Answered { Fate::Lost } else { fate }
        };
        if fate == Fate::Lost {
            self.died.notify_one();
            return std::future::pending().await;
        }
        if !writes {
            return router.oneshot(Request::from_parts(parts, body)).await.into_response();
        }
        let lost = parts.extensions.get::<AnswerLost>().is_some();
        let sent = to_bytes(body, BYTES_MAX).await.unwrap();
        let request = Request::from_parts(parts, Body::from(sent.clone()));
        let (head, body) = router.oneshot(request).await.into_response().into_parts();
        let answer = to_bytes(body, BYTES_MAX).await.unwrap();
        if head.status.is_success() {
            self.note(verb, &place, &query, &sent, &answer, lost);
        }
        if fate == Fate::Performed {
            self.died.notify_one();
            return std::future::pending().await;
        }
        Response::from_parts(head, Body::from(answer))
    }

    fn note(&self, verb: &str, place: &Place, query: &str, sent: &Bytes, answer: &Bytes, lost: bool) {
        let parse = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        let (sent, answer) = (parse(sent), parse(answer));
        let mut state = self.state();
        if let Some(kind) = sent["kind"].as_str().filter(|_| verb == "apply" || verb == "create") {
            state.kinds.insert(place.plural.clone(), kind.to_owned());
        }
        let kind = state.kinds.get(&place.plural).cloned().unwrap_or_else(|| place.plural.clone());
        let name = match place.name.as_str() {
            "" => answer["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        };
        if place.plural == "events" {
            return;
        }
        let record = name.strip_prefix("sh.helm.release.v1.").and_then(|name| name.rsplit_once(".v"));
        let line = match (record, verb) {
            (Some((_, revision)), "delete") => format!("D R{revision}"),
            // A sign of life is no news.
            (Some(_), "patch") if !sent.to_string().contains("release\"") && !sent.to_string().contains("/data/") => {
                return;
            }
            (Some((_, revision)), _) => {
                format!("R{revision} {}", answer["metadata"]["labels"]["status"].as_str().unwrap_or("?"))
            }
            (None, "apply" | "create") => {
                let force = if query.contains("force=true") { "(force)" } else { "" };
                format!("A{force} {kind}/{name}")
            }
            (None, "delete") => match sent["propagationPolicy"].as_str().unwrap_or("Background") {
                "Background" => format!("D {kind}/{name}"),
                other => format!("D({other}) {kind}/{name}"),
            },
            (None, other) => format!("{other} {kind}/{name}"),
        };
        // What nobody heard of is done again, and that is no news.
        if let Some(index) = state.lost.iter().position(|known| *known == line) {
            if !lost {
                state.lost.swap_remove(index);
            }
            return;
        }
        if lost {
            state.lost.push(line.clone());
        }
        state.lines.push(line);
    }
}

#[derive(PartialEq, Eq)]
enum Fate {
    Answered,
    Performed,
    Lost,
}

fn content_type(headers: &axum::http::HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn verb_of(method: &Method, place: &Place, query: &str, content: &str) -> &'static str {
    match *method {
        Method::GET if query.contains("watch=") => "watch",
        Method::GET if place.name.is_empty() && !place.plural.is_empty() => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if content.contains("apply-patch") => "apply",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// What a path names.
#[derive(Debug, Default)]
struct Place {
    plural: String,
    name: String,
}

impl Place {
    fn of(path: &str) -> Self {
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let prefix = match parts.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => return Self::default(),
        };
        parts.drain(..prefix.min(parts.len()));
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts.drain(..2);
        }
        let part = |index: usize| parts.get(index).map(|part| (*part).to_owned()).unwrap_or_default();
        Self { plural: part(0), name: part(1) }
    }
}
