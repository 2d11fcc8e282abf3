//! The journal: what clients asked, in order, for tests that compare what a program did to the cluster.
//!
//! Only requests that come through the router are written down, not what the controllers do by themselves.

use std::{collections::VecDeque, fmt};

use http::{HeaderMap, Method, header};
use parking_lot::Mutex;

use super::request::{Path, Query, Target};
use crate::registry::Propagation;

/// Requests that are remembered. A development cluster runs for days; a test makes some thousands.
const REQUESTS_MAX: usize = 16_384;

/// The kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' own strategic merge.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// A request that the API has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Request {
    /// Its place among all requests since the start, from 1.
    pub number: u64,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; also `get` for what is no
    /// object, such as discovery. Empty when the method means nothing there.
    pub verb: &'static str,
    /// The path of the address, without its query.
    pub path: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version without the group.
    pub version: String,
    /// The plural of the resource; empty when the request is about no resource.
    pub resource: String,
    /// For example `status` or `scale`; empty for the object itself.
    pub subresource: String,
    /// Empty for what has no namespace, and for all namespaces.
    pub namespace: String,
    /// The object. For `create` the name that it was given, also when the server made it.
    pub name: String,
    /// The field manager of a write, as the server took it: from the query, or from the user agent.
    pub manager: String,
    /// What kind of patch it was.
    pub patch: Option<PatchKind>,
    /// An apply that takes fields from other managers.
    pub force: bool,
    /// The request only asked what would happen.
    pub dry_run: bool,
    /// What a deletion asked to happen with dependents.
    pub propagation: Option<Propagation>,
    /// The precondition on the uid: of a deletion, or in the object that was sent.
    pub uid: Option<String>,
    /// The precondition on the version: of a deletion, or in the object that was sent.
    pub resource_version: Option<String>,
    /// The name of the [`Gate`](crate::Gate) that it came through; empty for the others.
    pub gate: String,
    /// The HTTP status of the answer; `None` while there is none, and for ever when a fault took it away.
    pub status: Option<u16>,
    /// The answer was lost in the [`Weather`](crate::Weather): `status` is what the server said, and nobody heard it.
    pub lost: bool,
}

impl Request {
    /// Whether the request was meant to change something: not a read, not a dry run, not a question about rights.
    pub fn is_write(&self) -> bool {
        let question = self.group.starts_with("authorization.") || self.group.starts_with("authentication.");
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection") && !question && !self.dry_run
    }

    /// Whether it was answered with success.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// One line: `apply deployments.apps default/web by helm (force) -> 200`. The verb of a patch is its kind (`apply`, `json
/// patch`, `merge patch`, `strategic patch`). A fact that is not there is left out.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.patch {
            None => self.verb,
            Some(PatchKind::Json) => "json patch",
            Some(PatchKind::Merge) => "merge patch",
            Some(PatchKind::Strategic) => "strategic patch",
            Some(PatchKind::Apply) => "apply",
        };
        if self.resource.is_empty() {
            write!(f, "{verb} {}", self.path)?;
        } else {
            write!(f, "{verb} {}", self.resource)?;
            if !self.group.is_empty() {
                write!(f, ".{}", self.group)?;
            }
            if !self.subresource.is_empty() {
                write!(f, "/{}", self.subresource)?;
            }
            match (self.namespace.as_str(), self.name.as_str()) {
                ("", "") => {}
                ("", name) => write!(f, " {name}")?,
                (namespace, name) => write!(f, " {namespace}/{name}")?,
            }
        }
        if !self.manager.is_empty() {
            write!(f, " by {}", self.manager)?;
        }
        let propagation = match self.propagation {
            None => "",
            Some(Propagation::Foreground) => "foreground",
            Some(Propagation::Background) => "background",
            Some(Propagation::Orphan) => "orphan",
        };
        let force = if self.force { "force" } else { "" };
        let dry_run = if self.dry_run { "dry run" } else { "" };
        let words = [propagation, force, dry_run].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        if !words.is_empty() {
            write!(f, " ({})", words.join(", "))?;
        }
        match self.status {
            Some(status) if self.lost => write!(f, " -> {status}, lost"),
            Some(status) => write!(f, " -> {status}"),
            None => f.write_str(" -> no answer"),
        }
    }
}

/// The verb of a request; empty when the method means nothing there.
pub(super) fn verb(method: &Method, query: &Query, target: &Target) -> &'static str {
    let single = target.name.is_some();
    match (method, single) {
        (&Method::GET | &Method::HEAD, true) => "get",
        (&Method::GET | &Method::HEAD, false) if query.flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, false) => "list",
        (&Method::POST, false) => "create",
        (&Method::POST, true) if !target.subresource.is_empty() => "create",
        (&Method::PUT, true) => "update",
        (&Method::PATCH, true) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => "",
    }
}

/// The field manager that a server takes a write to be of.
pub(super) fn manager(headers: &HeaderMap, query: &Query) -> String {
    let given = query.get("fieldManager");
    if !given.is_empty() {
        return given.to_owned();
    }
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    if name.is_empty() { "unknown".to_owned() } else { name.chars().take(128).collect() }
}

/// What the address and the headers of a request say of it.
pub(super) fn entry(method: &Method, headers: &HeaderMap, query: &Query, path: &Path, address: &str) -> Request {
    let mut request = Request { verb: "get", path: address.to_owned(), ..Request::default() };
    if let Path::Target(target) = path {
        request.verb = verb(method, query, target);
        request.group.clone_from(&target.group);
        request.version.clone_from(&target.version);
        request.resource.clone_from(&target.plural);
        request.subresource.clone_from(&target.subresource);
        request.namespace = target.namespace.clone().unwrap_or_default();
        request.name = target.name.clone().unwrap_or_default();
        if matches!(request.verb, "create" | "update" | "patch") {
            request.manager = manager(headers, query);
        }
    }
    request
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    requests: VecDeque<Request>,
}

/// The newest requests.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<State>);

impl Journal {
    /// Writes a request down and returns its number.
    pub(super) fn open(&self, mut request: Request) -> u64 {
        let mut state = self.0.lock();
        state.seen += 1;
        request.number = state.seen;
        if state.requests.len() >= REQUESTS_MAX {
            state.requests.pop_front();
        }
        state.requests.push_back(request);
        state.seen
    }

    /// Adds to a request; one that was forgotten meanwhile stays forgotten.
    pub(super) fn note(&self, number: u64, add: impl FnOnce(&mut Request)) {
        let mut state = self.0.lock();
        let newest = state.seen;
        let from_the_end = usize::try_from(newest.saturating_sub(number)).unwrap_or(usize::MAX);
        let place = state.requests.len().checked_sub(from_the_end.saturating_add(1));
        if let Some(request) = place.and_then(|place| state.requests.get_mut(place))
            && request.number == number
        {
            add(request);
        }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().requests.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().requests.clear();
    }
}
