//! Watches.
//!
//! A watch holds a revision, not a queue: it reads the history of its resource from there whenever something changed. A
//! client that reads slowly delays only itself; when the history has moved on it gets 410.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use http::header;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Call, Shared, accept, accept::Format, page, request::Target, table};
use crate::{
    catalog::Resource,
    json,
    selector::Selector,
    status::{ApiError, Cause},
    store::{Change, Stored},
};

/// Changes read from the history at once.
const BATCH_MAX: usize = 256;
/// Bytes of one chunk; a chunk ends after the frame that reaches this.
const CHUNK_BYTES: usize = 64 * 1024;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a request for a version that does not exist yet waits for it.
const FUTURE_WAIT: Duration = Duration::from_secs(3);
/// Without `timeoutSeconds`: as a real server, between this and twice this.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

impl Call {
    pub(super) fn watch(&self, resource: &Arc<Resource>, target: &Target) -> Result<Response, ApiError> {
        if !resource.has_verb("watch") {
            return Err(ApiError::method_not_allowed());
        }
        let selector = self.selector(resource)?;
        let format = self.format()?;
        let store = &self.registry().store;
        let bookmarks = self.query.flag("allowWatchBookmarks");
        let initial = self.query.flag("sendInitialEvents");
        page::check(page::watch_causes(&self.query))?;
        if initial && !bookmarks {
            let why = "sendInitialEvents requires setting allowWatchBookmarks to true";
            return Err(page::refuse(vec![Cause::forbidden("allowWatchBookmarks", why)]));
        }
        let asked = self.query.get("resourceVersion");
        let version = if asked.is_empty() { 0 } else { page::parse_version(asked)? };
        let timeout = match self.query.get("timeoutSeconds").parse::<u64>() {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds.min(24 * 3600)),
            _ => DEFAULT_TIMEOUT
                .mul_f64(1.0 + f64::from(uuid::Uuid::new_v4().as_bytes().first().copied().unwrap_or(0)) / 256.0),
        };
        let receiver = store.subscribe(&resource.table);
        let now = Instant::now();
        let mut watcher = Watcher {
            shared: Arc::clone(&self.shared),
            stopping: self.stopping.clone(),
            resource: Arc::clone(resource),
            namespace: target.namespace.clone(),
            selector,
            format,
            include: self.query.get("includeObject").to_owned(),
            bookmarks,
            cursor: version,
            frames: VecDeque::new(),
            receiver,
            deadline: now + timeout,
            next_bookmark: now + BOOKMARK_EVERY,
            end_bookmark_sent: false,
            future_until: now + FUTURE_WAIT,
            over: false,
            table_header: true,
        };
        let declined = self.query.has("sendInitialEvents") && !initial;
        let from_state = version == 0 && !declined;
        if from_state || initial {
            let current = store.revision();
            if version > current {
                return Err(ApiError::version_too_large(version, current));
            }
            let (objects, revision) = store.list(&resource.table, target.namespace.as_deref());
            for stored in objects {
                let object = self.registry().view(resource, &stored);
                if watcher.selector.matches(&object.value) {
                    watcher.push("ADDED", &object);
                }
            }
            watcher.cursor = revision;
            if initial {
                watcher.push_bookmark(true);
            }
        } else if version == 0 {
            watcher.cursor = store.revision();
        }
        let stream = futures::stream::unfold(watcher, |mut watcher| async move {
            let chunk = watcher.next().await?;
            Some((Ok::<_, std::convert::Infallible>(chunk), watcher))
        });
        let content = if format == Format::Json { "application/json" } else { "application/json;stream=watch" };
        Ok(([(header::CONTENT_TYPE, content)], Body::from_stream(stream)).into_response())
    }
}

struct Watcher {
    shared: Arc<Shared>,
    stopping: CancellationToken,
    resource: Arc<Resource>,
    namespace: Option<String>,
    selector: Selector,
    format: Format,
    include: String,
    bookmarks: bool,
    /// Everything up to this revision has been put into frames.
    cursor: u64,
    frames: VecDeque<Bytes>,
    receiver: tokio::sync::watch::Receiver<u64>,
    deadline: Instant,
    next_bookmark: Instant,
    end_bookmark_sent: bool,
    future_until: Instant,
    over: bool,
    table_header: bool,
}

impl Watcher {
    /// The next chunk; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.frames.is_empty() {
                return Some(self.chunk());
            }
            if self.over {
                return None;
            }
            self.receiver.borrow_and_update();
            let current = self.shared.registry.store.revision();
            if self.cursor > current {
                if Instant::now() >= self.future_until {
                    self.fail(&ApiError::version_too_large(self.cursor, current));
                    continue;
                }
            } else {
                match self.shared.registry.store.changes(&self.resource.table, self.cursor, BATCH_MAX) {
                    Ok((changes, complete)) => {
                        for change in &changes {
                            self.push_change(change);
                        }
                        self.cursor = complete;
                    }
                    Err(expired) => {
                        let message = format!("too old resource version: {} ({})", self.cursor, expired.oldest);
                        self.fail(&ApiError::expired(message));
                        continue;
                    }
                }
                if !self.frames.is_empty() {
                    continue;
                }
            }
            let last_bookmark = self.deadline.checked_sub(Duration::from_secs(2)).unwrap_or(self.deadline);
            let mut wake = self.deadline.min(self.next_bookmark);
            if self.bookmarks && !self.end_bookmark_sent {
                wake = wake.min(last_bookmark);
            }
            if self.cursor > current {
                wake = wake.min(self.future_until);
            }
            tokio::select! {
                changed = self.receiver.changed() => self.over = changed.is_err(),
                () = self.stopping.cancelled() => self.over = true,
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        self.over = true;
                    }
                    if now >= self.next_bookmark || (now >= last_bookmark && !self.end_bookmark_sent) {
                        self.end_bookmark_sent |= now >= last_bookmark;
                        self.next_bookmark = now + BOOKMARK_EVERY;
                        if self.bookmarks && self.cursor <= current {
                            self.catch_up_for_bookmark();
                        }
                    }
                }
            }
        }
    }

    /// A bookmark promises that everything before it was sent, so what came meanwhile goes first.
    fn catch_up_for_bookmark(&mut self) {
        if let Ok((changes, complete)) =
            self.shared.registry.store.changes(&self.resource.table, self.cursor, BATCH_MAX)
        {
            for change in &changes {
                self.push_change(change);
            }
            self.cursor = complete;
            self.push_bookmark(false);
        }
    }

    fn chunk(&mut self) -> Bytes {
        if self.frames.len() == 1 {
            return self.frames.pop_front().unwrap_or_default();
        }
        let mut out = Vec::new();
        while let Some(frame) = self.frames.pop_front() {
            out.extend_from_slice(&frame);
            if out.len() >= CHUNK_BYTES {
                break;
            }
        }
        out.into()
    }

    fn push_change(&mut self, change: &Change) {
        if self.namespace.as_ref().is_some_and(|namespace| *namespace != change.key.0) {
            return;
        }
        if self.selector.single_name().is_some_and(|name| name != change.key.1) {
            return;
        }
        let registry = Arc::clone(&self.shared.registry);
        let new = registry.view(&self.resource, &change.new);
        if self.selector.is_empty() {
            let kind = match (change.deleted, &change.old) {
                (true, _) => "DELETED",
                (false, None) => "ADDED",
                (false, Some(_)) => "MODIFIED",
            };
            self.push(kind, &new);
            return;
        }
        let old = change.old.as_ref().map(|old| registry.view(&self.resource, old));
        let before = old.as_ref().is_some_and(|old| self.selector.matches(&old.value));
        let after = !change.deleted && self.selector.matches(&new.value);
        match (before, after) {
            (false, true) => self.push("ADDED", &new),
            (true, true) => self.push("MODIFIED", &new),
            (true, false) if change.deleted => self.push("DELETED", &new),
            (true, false) => {
                // The object left the selection: the client gets what it knew, with the version of the change.
                if let Some(old) = old {
                    let gone = Arc::new(Stored::new(old.value.clone(), change.revision));
                    self.push("DELETED", &gone);
                }
            }
            (false, false) => {}
        }
    }

    fn push(&mut self, kind: &str, object: &Arc<Stored>) {
        let frame = match self.format {
            Format::Json => {
                let bytes = object.bytes();
                let mut frame = Vec::with_capacity(bytes.len() + 40);
                frame.extend_from_slice(b"{\"type\":\"");
                frame.extend_from_slice(kind.as_bytes());
                frame.extend_from_slice(b"\",\"object\":");
                frame.extend_from_slice(&bytes);
                frame.extend_from_slice(b"}\n");
                frame.into()
            }
            Format::Metadata => line(kind, &accept::partial(&object.value)),
            Format::Table => {
                let metadata = json!({"resourceVersion": object.revision.to_string()});
                let rows = std::iter::once(&object.value);
                let mut rendered = table::render(&self.resource, rows, Some(&metadata), &self.include);
                if !self.table_header {
                    json::remove(&mut rendered, &["columnDefinitions"]);
                    json::set(&mut rendered, &["columnDefinitions"], Value::Null);
                }
                self.table_header = false;
                line(kind, &rendered)
            }
        };
        self.frames.push_back(frame);
    }

    fn push_bookmark(&mut self, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end {
            json::set(&mut metadata, &["annotations", "k8s.io/initial-events-end"], json!("true"));
        }
        let object = match self.format {
            Format::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Format::Table => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                                    "columnDefinitions": null, "rows": []}),
            Format::Json => {
                json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata})
            }
        };
        self.frames.push_back(line("BOOKMARK", &object));
    }

    fn fail(&mut self, error: &ApiError) {
        self.frames.push_back(line("ERROR", &error.to_value()));
        self.over = true;
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
