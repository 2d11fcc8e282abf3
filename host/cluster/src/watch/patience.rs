//! A client for watches whose requests are not waited for without end.
//!
//! An API server, or something on the way to it, may accept a request and never answer. A list then has to be there as a
//! whole within a time; a watch has to begin within one, and ends by itself once the API server was to end it: the
//! watcher sees to that (five minutes, and some seconds more). Otherwise a snapshot would silently grow old.

use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;

use crate::limits::{REQUEST_WAIT, WATCH_ANSWER_WAIT};
use crate::steady::is_watch;

/// How long answers are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// For a page of a list, all of it.
    pub(crate) list: Duration,
    /// For a watch to begin.
    pub(crate) watch: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { list: REQUEST_WAIT, watch: WATCH_ANSWER_WAIT }
    }
}

/// The API server has not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server has not answered a {what} for {} s", .waited.as_secs())]
pub(crate) struct Unanswered {
    what: &'static str,
    waited: Duration,
}

impl Unanswered {
    /// Stable reason in PascalCase.
    pub(crate) const REASON: &'static str = "ApiTimedOut";

    /// What an error is about in the end, if it is this.
    pub(crate) fn behind<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        loop {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            error = error.source()?;
        }
    }
}

/// The same client, for lists and watches.
pub(crate) fn patient(client: &kube::Client, patience: Patience) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = inner.clone();
        async move {
            let is_watch = is_watch(&request);
            let (what, waited) = if is_watch { ("watch", patience.watch) } else { ("list", patience.list) };
            let answer = async {
                let response = client.send(request).await?;
                if is_watch {
                    return Ok(response);
                }
                // Whoever lists reads it as a whole in any case.
                let (parts, body) = response.into_parts();
                Ok::<_, kube::Error>(Response::from_parts(parts, Body::from(body.collect_bytes().await?)))
            };
            match tokio::time::timeout(waited, answer).await {
                Ok(answer) => answer.map_err(|error: kube::Error| Box::new(error) as tower::BoxError),
                Err(_elapsed) => Err(Box::new(Unanswered { what, waited }) as tower::BoxError),
            }
        }
    });
    kube::Client::new(service, client.default_namespace())
}
