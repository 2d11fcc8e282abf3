//! Bad weather: faults by chance, in front of a development cluster or of any other API server.
//!
//! A script ([`Fault`](crate::Fault)) says which request goes wrong. The weather draws it, from a seed and the number of the
//! request, so that a whole suite of tests can run in it. It lies in front of a router: what does not pass it never reaches
//! the server, and the journal of the server tells what was really done. A write that is carried out while its answer is
//! lost is marked in the journal ([`Request::lost`](crate::Request::lost)).
//!
//! What one request meets is bounded: after [`IN_A_ROW`] faults for the same thing the next one passes.

use std::{
    collections::{HashMap, VecDeque},
    hash::{Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, BodyDataStream, Bytes},
    extract::{Request as HttpRequest, State},
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use http::{Method, StatusCode, header, request::Parts};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

mod once;

use once::{Deed, Deeds};

use super::{
    BODY_BYTES_MAX,
    fault::{broken, refusal},
    request::{Path, Query},
};
use crate::json::text;

/// The faults that the same request meets in a row, at most: whoever tries once more than that comes through.
pub const IN_A_ROW: u32 = 3;
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_millis(40);
/// How long a watch lives that is ended early, at most.
const WATCH_LIFE_MAX: Duration = Duration::from_millis(1500);
/// How long a broken watch waits for something to break off in the middle of.
const BREAK_WAIT: Duration = Duration::from_secs(1);
/// Bytes of an answer that is taken as a whole.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Answers that are kept to be given again when they are stale.
const KEPT_ANSWERS: usize = 64;
/// Faults that are remembered.
const STRUCK_MAX: usize = 4096;
/// Requests whose rows are counted.
const ROWS_MAX: usize = 65_536;

/// How often each fault happens, in ten thousand of the requests that it can happen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Odds {
    /// The request arrives late, by 40 ms at most.
    pub delay: u32,
    /// 409, for a write that depends on a version.
    pub conflict: u32,
    /// 429 with `Retry-After`.
    pub throttled: u32,
    /// 500.
    pub internal: u32,
    /// 503, every second time with `Retry-After`.
    pub unavailable: u32,
    /// The connection is cut, and the request was not carried out.
    pub cut: u32,
    /// A write is carried out, and its answer is lost: the connection is cut, or a proxy says 504.
    pub lost: u32,
    /// A watch ends early, as if its time were over.
    pub watch_ended: u32,
    /// A watch breaks off, often in the middle of an event.
    pub watch_broken: u32,
    /// 410 for a watch from a version, or for the next page of a list.
    pub expired: u32,
    /// An older answer, for a read or list with `resourceVersion=0`. A server may do that there only, where it answers from
    /// its cache; any other read is of the newest state.
    pub stale: u32,
}

impl Default for Odds {
    /// A storm: about one request in twenty fails, and more watches than not end before their time.
    fn default() -> Self {
        Self {
            delay: 500,
            conflict: 200,
            throttled: 30,
            internal: 100,
            unavailable: 60,
            cut: 100,
            lost: 300,
            watch_ended: 2500,
            watch_broken: 2500,
            expired: 500,
            stale: 3000,
        }
    }
}

impl Odds {
    /// Nothing goes wrong: what a test of one kind of fault begins with.
    pub const CALM: Self = Self {
        delay: 0,
        conflict: 0,
        throttled: 0,
        internal: 0,
        unavailable: 0,
        cut: 0,
        lost: 0,
        watch_ended: 0,
        watch_broken: 0,
        expired: 0,
        stale: 0,
    };
}

/// What the weather did to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Blow {
    /// See [`Odds::conflict`].
    Conflict,
    /// See [`Odds::throttled`].
    Throttled,
    /// See [`Odds::internal`].
    Internal,
    /// See [`Odds::unavailable`].
    Unavailable,
    /// See [`Odds::cut`].
    Cut,
    /// See [`Odds::lost`].
    Lost,
    /// See [`Odds::watch_ended`].
    WatchEnded,
    /// See [`Odds::watch_broken`].
    WatchBroken,
    /// See [`Odds::expired`].
    Expired,
    /// See [`Odds::stale`].
    Stale,
}

/// A request that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struck {
    /// Its place among the requests that came into this weather, from 1.
    pub number: u64,
    /// Method and path, for example `PATCH /api/v1/namespaces/default/configmaps/a`.
    pub what: String,
    /// What happened to it.
    pub blow: Blow,
}

impl std::fmt::Display for Struck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {:?}", self.number, self.what, self.blow)
    }
}

/// Put into a request whose answer will be lost, for the journal of whoever carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLost;

/// Faults by chance. Cheap to clone; clones share the seed and the count of requests.
#[derive(Clone)]
pub struct Weather(Arc<Inner>);

struct Inner {
    seed: u64,
    odds: Odds,
    requests: AtomicU64,
    state: Mutex<Tracked>,
}

#[derive(Default)]
struct Tracked {
    /// Faults in a row, by request.
    rows: HashMap<String, u32>,
    /// The oldest answer of a read from a cache that was not given yet.
    answers: HashMap<String, Kept>,
    struck: VecDeque<Struck>,
    deeds: Deeds,
}

#[derive(Clone)]
struct Kept {
    content_type: Option<header::HeaderValue>,
    body: Bytes,
}

impl std::fmt::Debug for Weather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weather").field("seed", &self.0.seed).field("odds", &self.0.odds).finish_non_exhaustive()
    }
}

impl Weather {
    /// Weather that is the same for the same seed, as far as the requests come in the same order.
    pub fn new(seed: u64, odds: Odds) -> Self {
        let (requests, state) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Inner { seed, odds, requests, state }))
    }

    /// The API behind this router, seen through the weather.
    pub fn over(&self, router: Router) -> Router {
        Router::new().fallback(pass).with_state((self.clone(), router))
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// What was hit, oldest first; the newest 4096.
    pub fn struck(&self) -> Vec<Struck> {
        self.0.state.lock().struck.iter().cloned().collect()
    }

    /// Writes that were made more often than once because an answer was lost, one line each; none if all is well.
    ///
    /// That is what can be told of any client: the same write (same address, same body) came again after its answer was
    /// lost, and took effect again. An object with a made-up name was made twice; a JSON patch that is no repetition of itself
    /// went in twice; what runs once (a Job, a Pod) was made anew under its name though nobody knew how the first had ended.
    /// Other writes say how things are to be and may be made as often as one likes.
    pub fn made_twice(&self) -> Vec<String> {
        self.0.state.lock().deeds.made_twice()
    }

    fn strike(&self, number: u64, asked: &Asked, blow: Blow) {
        let mut state = self.0.state.lock();
        if state.struck.len() >= STRUCK_MAX {
            state.struck.pop_front();
        }
        state.struck.push_back(Struck { number, what: asked.what.clone(), blow });
    }

    /// What happens to a request. A row that is as long as it may be ends here.
    fn draw(&self, asked: &Asked, chance: u64) -> Option<Blow> {
        let odds = &self.0.odds;
        let possible = [
            (asked.versioned, odds.conflict, Blow::Conflict),
            (true, odds.throttled, Blow::Throttled),
            (true, odds.internal, Blow::Internal),
            (true, odds.unavailable, Blow::Unavailable),
            (true, odds.cut, Blow::Cut),
            (asked.writes, odds.lost, Blow::Lost),
            (asked.watches, odds.watch_ended, Blow::WatchEnded),
            (asked.watches, odds.watch_broken, Blow::WatchBroken),
            (asked.may_expire, odds.expired, Blow::Expired),
            (asked.cached, odds.stale, Blow::Stale),
        ];
        let mut left = u32::try_from(chance % 10_000).unwrap_or_default();
        let drawn = possible.into_iter().filter(|(possible, ..)| *possible).find_map(|(_, odds, blow)| {
            let hit = left < odds;
            left = left.saturating_sub(odds);
            hit.then_some(blow)
        });
        let mut state = self.0.state.lock();
        if state.rows.len() >= ROWS_MAX {
            state.rows.clear();
        }
        let row = state.rows.get(&asked.key).copied().unwrap_or_default();
        match drawn {
            Some(blow) if row < IN_A_ROW => {
                state.rows.insert(asked.key.clone(), row + 1);
                Some(blow)
            }
            _ => {
                state.rows.remove(&asked.key);
                None
            }
        }
    }
}

/// What the weather needs to know of a request.
#[derive(Debug, Default)]
struct Asked {
    what: String,
    /// What it is about: requests of one key are tries of the same.
    key: String,
    writes: bool,
    /// A write that depends on a version.
    versioned: bool,
    watches: bool,
    may_expire: bool,
    cached: bool,
    /// Of a write: what is sent where, as a number.
    digest: u64,
    /// The server makes the name.
    generated: bool,
    json_patch: bool,
    /// An object that does its work once.
    runs_once: bool,
}

impl Asked {
    fn of(parts: &Parts, body: &[u8]) -> Self {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = Path::parse(parts.uri.path());
        let what = format!("{} {}", parts.method, parts.uri.path());
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        let watches = reads && query.flag("watch");
        let version = query.get("resourceVersion");
        let sent: Value = if reads { Value::Null } else { serde_json::from_slice(body).unwrap_or_default() };
        let given = |path: &[&str]| !text(&sent, path).is_empty();
        let name = text(&sent, &["metadata", "name"]);
        let key = if parts.method == Method::POST { format!("{what}/{name}") } else { format!("{what} {watches}") };
        Self {
            key,
            writes: super::fault::means_to_write(&parts.method, &path, !query.get("dryRun").is_empty()),
            versioned: given(&["metadata", "resourceVersion"]) || given(&["preconditions", "resourceVersion"]),
            watches,
            may_expire: match watches {
                true => !matches!(version, "" | "0"),
                false => reads && !query.get("continue").is_empty(),
            },
            cached: reads && !watches && version == "0",
            digest: digest(&parts.uri.to_string(), body),
            generated: parts.method == Method::POST && name.is_empty() && given(&["metadata", "generateName"]),
            json_patch: parts.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "application/json-patch+json"),
            runs_once: matches!(&path, Path::Target(to) if matches!(to.plural.as_str(), "jobs" | "pods")),
            what,
        }
    }
}

fn digest(address: &str, body: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (address, body).hash(&mut hasher);
    hasher.finish()
}

/// A number that looks random and depends on the seed and the place only (splitmix64).
fn scatter(seed: u64, place: u64) -> u64 {
    let mut x = seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A part of a length of time.
fn share(whole: Duration, chance: u64) -> Duration {
    whole.mul_f64(f64::from(u32::try_from(chance & 0xFFFF).unwrap_or_default()) / 65_536.0)
}

async fn pass(State((weather, router)): State<(Weather, Router)>, request: HttpRequest) -> Response {
    let number = weather.0.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let seed = scatter(weather.0.seed, number);
    // Independent numbers for what happens, how exactly, whether there is a delay and how long it is.
    let [chance, manner, late, lateness] = [1, 2, 3, 4].map(|place| scatter(seed, place));
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX + 1).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let asked = Asked::of(&parts, &body);
    if late % 10_000 < u64::from(weather.0.odds.delay) {
        tokio::time::sleep(share(DELAY_MAX, lateness)).await;
    }
    let blow = weather.draw(&asked, chance);
    if let Some(blow) = blow
        && blow != Blow::Stale
    {
        weather.strike(number, &asked, blow);
    }
    let mut request = HttpRequest::from_parts(parts, Body::from(body));
    let Some(blow) = blow else { return weather.forward(number, &asked, router, request).await };
    match blow {
        Blow::Conflict => {
            let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                           latest version and try again";
            refusal(409, "Conflict", message, None)
        }
        Blow::Throttled => refusal(429, "TooManyRequests", "the server has received too many requests", Some(1)),
        Blow::Internal => refusal(500, "InternalError", "an error on the server has prevented the request", None),
        Blow::Unavailable => {
            let after = (manner % 2 == 0).then_some(1);
            refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request", after)
        }
        Blow::Cut => broken(),
        Blow::Lost => {
            request.extensions_mut().insert(AnswerLost);
            weather.carry_out(number, &asked, router, request, true).await;
            match manner % 4 {
                0 => refusal(504, "Timeout", "the server was unable to return a response in the time allotted", None),
                _ => broken(),
            }
        }
        Blow::WatchEnded => cut_short(ask(router, request).await, share(WATCH_LIFE_MAX, manner), false),
        Blow::WatchBroken => cut_short(ask(router, request).await, share(WATCH_LIFE_MAX, manner), true),
        Blow::Expired => {
            let message = "too old resource version";
            match asked.watches && manner % 2 == 0 {
                true => {
                    let status = super::fault::status(410, "Expired", message, None);
                    let event = format!("{}\n", json!({"type": "ERROR", "object": status}));
                    ([(header::CONTENT_TYPE, "application/json")], event).into_response()
                }
                false => refusal(410, "Expired", message, None),
            }
        }
        Blow::Stale => weather.stale(number, &asked, router, request).await,
    }
}

async fn ask(router: Router, request: HttpRequest) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl Weather {
    /// Has a write carried out and writes down what came of it.
    async fn carry_out(
        &self,
        number: u64,
        asked: &Asked,
        router: Router,
        request: HttpRequest,
        lost: bool,
    ) -> Response {
        let (parts, body) = ask(router, request).await.into_parts();
        // The server has ended its work when the answer is there as a whole.
        let Ok(body) = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await else { return broken() };
        if parts.status.is_success() {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            self.0.state.lock().deeds.add(Deed::of(number, asked, parts.status, &answer, lost));
        }
        Response::from_parts(parts, Body::from(body))
    }

    /// Passes a request on; the answer of one that is served from a cache is kept.
    async fn forward(&self, number: u64, asked: &Asked, router: Router, request: HttpRequest) -> Response {
        if asked.writes {
            return self.carry_out(number, asked, router, request, false).await;
        }
        if !asked.cached {
            return ask(router, request).await;
        }
        let address = request.uri().to_string();
        let response = ask(router, request).await;
        if !response.status().is_success() {
            return response;
        }
        let (parts, body) = response.into_parts();
        let Ok(body) = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await else { return broken() };
        let content_type = parts.headers.get(header::CONTENT_TYPE).cloned();
        let mut state = self.0.state.lock();
        if state.answers.len() < KEPT_ANSWERS {
            state.answers.entry(address).or_insert_with(|| Kept { content_type, body: body.clone() });
        }
        drop(state);
        Response::from_parts(parts, Body::from(body))
    }

    /// Gives an older answer, if there is one.
    async fn stale(&self, number: u64, asked: &Asked, router: Router, request: HttpRequest) -> Response {
        let kept = self.0.state.lock().answers.remove(&request.uri().to_string());
        let Some(Kept { content_type, body }) = kept else { return self.forward(number, asked, router, request).await };
        self.strike(number, asked, Blow::Stale);
        let mut response = Response::new(Body::from(body));
        if let Some(content_type) = content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        response
    }
}

/// How a watch that is cut short goes on.
enum Flow {
    On(BodyDataStream),
    Breaks,
    Over,
}

/// A watch that lives no longer than this. A broken one breaks off in the middle of the next event, if one comes.
fn cut_short(response: Response, life: Duration, breaks: bool) -> Response {
    if !response.status().is_success() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let deadline = Instant::now() + life;
    let reset = || std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was cut by the weather");
    let stream = futures::stream::unfold(Flow::On(body.into_data_stream()), move |flow| async move {
        let mut events = match flow {
            Flow::On(events) => events,
            Flow::Breaks => return Some((Err(reset()), Flow::Over)),
            Flow::Over => return None,
        };
        if Instant::now() < deadline
            && let Ok(next) = tokio::time::timeout_at(deadline, events.next()).await
        {
            return next.map(|chunk| (chunk.map_err(std::io::Error::other), Flow::On(events)));
        }
        if !breaks {
            return None;
        }
        match tokio::time::timeout_at(deadline + BREAK_WAIT, events.next()).await {
            Ok(Some(Ok(chunk))) => Some((Ok(chunk.slice(..chunk.len() / 2)), Flow::Breaks)),
            _ => Some((Err(reset()), Flow::Over)),
        }
    });
    Response::from_parts(parts, Body::from_stream(stream))
}

#[cfg(test)]
mod tests;
