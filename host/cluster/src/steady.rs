//! A client that asks again.
//!
//! An API server that is busy, restarts or is behind a proxy refuses now and then what it will do a moment later. Whoever
//! says no and when to come again (429, 503) is asked again. So is whoever gave no answer at all, or one that says nothing of
//! what became of the request (500, 502, 504, a connection that broke): every request of this crate may be sent twice. A read
//! changes nothing; an apply or a merge says how things are to be; a replacement names the version that it replaces; a
//! deletion names the uid; a creation finds that the object exists. What the second answer then means only the caller can
//! tell, so [`Doubt`] tells the caller that there was an unanswered first.
//!
//! The client library has a policy of its own for 429, 503 and 504 in what it makes of a kubeconfig. It neither asks again
//! after a broken connection nor tells of it, so where a cluster is made of a kubeconfig it is turned off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response, header};
use kube::client::Body;
use tower::BoxError;
use tower::retry::backoff::{Backoff as _, ExponentialBackoffMaker, MakeBackoff as _};
use tower::util::rng::HasherRng;

use crate::limits::{ASKED_AGAIN, RETRY_AFTER_MAX, RETRY_PAUSE, RETRY_PAUSE_MAX};

/// Part of a request: set once an attempt of it may have been carried out without an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubt(Arc<AtomicBool>);

impl Doubt {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an answer means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// It is the answer.
    Answer,
    /// Nothing was done; one may ask again.
    Refused,
    /// Nobody knows what was done.
    Unknown,
}

impl Meaning {
    fn of(answer: &Response<Body>) -> Self {
        match answer.status().as_u16() {
            429 => Self::Refused,
            // The API server says when to come again. A proxy that lost it after it took the request does not.
            503 if answer.headers().contains_key(header::RETRY_AFTER) => Self::Refused,
            500 | 502 | 503 | 504 => Self::Unknown,
            _ => Self::Answer,
        }
    }
}

/// The same client. A watch passes: who watches goes on by themselves.
pub(crate) fn steady(client: &kube::Client) -> kube::Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| ask(inner.clone(), request));
    kube::Client::new(service, client.default_namespace())
}

/// Whether the answer has no end.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|term| term == "watch=true"))
}

async fn ask(client: kube::Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if is_watch(&request) {
        return Ok(client.send(request).await?);
    }
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await?;
    // It cannot fail: the bounds are in order, see their test.
    let mut backoff = ExponentialBackoffMaker::new(RETRY_PAUSE, RETRY_PAUSE_MAX, 0.5, HasherRng::new())?.make_backoff();
    let mut left = ASKED_AGAIN;
    loop {
        let answer = once(&client, Request::from_parts(parts.clone(), Body::from(body.to_vec()))).await;
        let meaning = answer.as_ref().map_or(Meaning::Unknown, Meaning::of);
        if meaning == Meaning::Unknown
            && let Some(doubt) = parts.extensions.get::<Doubt>()
        {
            doubt.0.store(true, Ordering::Relaxed);
        }
        if meaning == Meaning::Answer || left == 0 {
            return answer.map_err(Into::into);
        }
        left -= 1;
        let told = answer.as_ref().ok().and_then(retry_after);
        tracing::debug!(method = %parts.method, path = parts.uri.path(), ?meaning, "the API server is asked again");
        let pause = backoff.next_backoff();
        match told {
            Some(told) => tokio::time::sleep(told).await,
            None => pause.await,
        }
    }
}

/// One attempt, with all of the answer.
async fn once(client: &kube::Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let (parts, body) = client.send(request).await?.into_parts();
    Ok(Response::from_parts(parts, Body::from(body.collect_bytes().await?.to_vec())))
}

/// How long the API server wants to be left alone.
fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_the_pauses_are_in_order() {
        assert!(ExponentialBackoffMaker::new(RETRY_PAUSE, RETRY_PAUSE_MAX, 0.5, HasherRng::new()).is_ok());
    }

    #[test]
    fn an_api_server_may_ask_for_patience_within_bounds() {
        let asked = |value: &str| {
            let answer = Response::builder().header(header::RETRY_AFTER, value).body(Body::empty());
            retry_after(&answer.expect("an answer")).map(|pause| pause.as_secs())
        };
        let (date, endless) = ("Fri, 31 Dec 1999 23:59:59 GMT", "99999999999999999999");
        assert_eq!(["2", "3600", "", "-1", date, endless].map(asked), [Some(2), Some(15), None, None, None, None]);
    }
}
