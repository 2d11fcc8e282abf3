//! Lists page by page: each page is read at the revision of the first, as long as the history reaches back so far.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE};
use serde_json::{Value, json};

use super::{
    Call,
    request::{Query, Target},
};
use crate::{
    catalog::Resource,
    json::text,
    selector::Selector,
    status::{About, ApiError, Cause},
    store::Stored,
};

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - \
                       objects that were created, modified, or deleted between the time the first chunk was returned and \
                       now may show up in the list.";
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// One page of a list.
pub(super) struct Page {
    pub(super) objects: Vec<Arc<Stored>>,
    pub(super) revision: u64,
    pub(super) next: Option<String>,
    pub(super) remaining: Option<usize>,
}

/// A refusal of the parameters of a list.
pub(super) fn refuse(causes: Vec<Cause>) -> ApiError {
    ApiError::invalid(About { group: "meta.k8s.io", plural: "", kind: "ListOptions" }, "", causes)
}

pub(super) fn check(causes: Vec<Cause>) -> Result<(), ApiError> {
    if causes.is_empty() { Ok(()) } else { Err(refuse(causes)) }
}

pub(super) fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: \
             invalid syntax"
        ))
    })
}

const MATCH: &str = "resourceVersionMatch";

/// What is wrong with the parameters of a list.
fn list_causes(query: &Query) -> Vec<Cause> {
    let (asked, matching) = (query.get("resourceVersion"), query.get(MATCH));
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if asked.is_empty() {
            causes
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !query.get("continue").is_empty() {
            causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let allowed = ["Exact", "NotOlderThan", ""].map(|allowed| json!(allowed));
            causes.push(Cause::not_supported(MATCH, &json!(matching), &allowed));
        }
        if matching == "Exact" && asked == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if query.has("sendInitialEvents") {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

/// What is wrong with the parameters of a watch.
pub(super) fn watch_causes(query: &Query) -> Vec<Cause> {
    let (initial, matching) = (query.has("sendInitialEvents"), query.get(MATCH));
    let mut causes = Vec::new();
    if initial && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if !matching.is_empty() {
        if !initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(MATCH, &json!(matching), &[json!("NotOlderThan")]));
        }
        if !query.get("continue").is_empty() {
            causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    causes
}

impl Call {
    pub(super) fn page(
        &self,
        resource: &Arc<Resource>,
        target: &Target,
        selector: &Selector,
    ) -> Result<Page, ApiError> {
        check(list_causes(&self.query))?;
        let store = &self.registry().store;
        let namespace = target.namespace.as_deref();
        let (asked, matching) = (self.query.get("resourceVersion"), self.query.get(MATCH));
        let limit = match self.query.get("limit") {
            "" => 0,
            given => {
                let number = given.parse::<i64>().map_err(|_| {
                    ApiError::bad_request(format!("strconv.ParseInt: parsing {given:?}: invalid syntax"))
                })?;
                // None at all, and fewer than none, is no limit.
                usize::try_from(number).unwrap_or_default()
            }
        };
        let select = |objects: &[Arc<Stored>]| {
            let matches = |stored: &&Arc<Stored>| {
                selector.is_empty() || selector.matches(&self.registry().view(resource, stored).value)
            };
            objects.iter().filter(matches).cloned().collect::<Vec<_>>()
        };
        let names = Names { namespaced: resource.namespaced, namespace };
        let cut = |objects: Vec<Arc<Stored>>, revision: u64| cut(objects, limit, revision, selector.is_empty(), names);
        let token = self.query.get("continue");
        if !token.is_empty() {
            if !asked.is_empty() && asked != "0" {
                return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
            }
            let Token { revision, start } = names.read(token)?;
            let (objects, revision) = match revision {
                Some(revision) => {
                    let found = store.state_at(&resource.table, namespace, revision);
                    (found.ok_or_else(|| names.expired(&start))?, revision)
                }
                None => store.list(&resource.table, namespace),
            };
            let rest = objects.partition_point(|stored| key(stored) <= start);
            return Ok(cut(select(objects.get(rest..).unwrap_or_default()), revision));
        }
        if !asked.is_empty() {
            let version = parse_version(asked)?;
            let current = store.revision();
            if version > current {
                return Err(ApiError::version_too_large(version, current));
            }
            if matching == "Exact" && version != current {
                let found = store.state_at(&resource.table, namespace, version);
                let found = found.ok_or_else(|| {
                    ApiError::expired(format!("The resourceVersion for the provided list is too old: {version}"))
                })?;
                return Ok(cut(select(&found), version));
            }
        }
        if limit == 0 {
            let (objects, revision) = store.list(&resource.table, namespace);
            let objects = if selector.is_empty() { objects } else { select(&objects) };
            return Ok(Page { objects, revision, next: None, remaining: None });
        }
        let (objects, revision) = store.list_snapshot(&resource.table, namespace);
        Ok(cut(select(&objects), revision))
    }
}

type Key = (String, String);

fn key(stored: &Stored) -> Key {
    let part = |field: &str| text(&stored.value, &["metadata", field]).to_owned();
    (part("namespace"), part("name"))
}

fn cut(mut objects: Vec<Arc<Stored>>, limit: usize, revision: u64, count_is_exact: bool, names: Names<'_>) -> Page {
    if limit == 0 || objects.len() <= limit {
        return Page { objects, revision, next: None, remaining: None };
    }
    let remaining = objects.len() - limit;
    objects.truncate(limit);
    let next = objects.last().map(|last| names.write(Some(revision), &key(last)));
    Page { objects, revision, next, remaining: count_is_exact.then_some(remaining) }
}

/// What a token says: the revision of the list, or none when it may be inconsistent, and the last object that was shown.
struct Token {
    revision: Option<u64>,
    start: Key,
}

/// How a list names its objects in tokens.
#[derive(Clone, Copy)]
struct Names<'a> {
    namespaced: bool,
    namespace: Option<&'a str>,
}

impl Names<'_> {
    fn write(self, revision: Option<u64>, (namespace, name): &Key) -> String {
        let start = match (self.namespaced, self.namespace) {
            (true, None) => format!("/{namespace}/{name}\0"),
            _ => format!("/{name}\0"),
        };
        let revision = revision.map_or(json!(-1), |revision| json!(revision));
        BASE.encode(json!({"v": TOKEN_VERSION, "rv": revision, "start": start}).to_string())
    }

    fn read(self, token: &str) -> Result<Token, ApiError> {
        let refuse =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = BASE.decode(token).map_err(|error| match error {
            base64::DecodeError::InvalidByte(place, _) => refuse(&format!("illegal base64 data at input byte {place}")),
            _ => refuse(&format!("illegal base64 data at input byte {}", token.len())),
        })?;
        let value =
            serde_json::from_slice::<Value>(&bytes).map_err(|_| match bytes.first().copied().map(char::from) {
                None => refuse("unexpected end of JSON input"),
                // As Go quotes a character that cannot be seen.
                Some(found) if found.is_control() => {
                    refuse(&format!("invalid character '\\u{:04x}' looking for beginning of value", u32::from(found)))
                }
                Some(found) => refuse(&format!("invalid character '{found}' looking for beginning of value")),
            })?;
        if text(&value, &["v"]) != TOKEN_VERSION {
            return Err(refuse("server does not recognize this encoded version"));
        }
        let revision = match value.get("rv").and_then(Value::as_i64) {
            Some(-1) => None,
            Some(number @ 1..) => Some(number.unsigned_abs()),
            _ => return Err(refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        };
        let start = text(&value, &["start"]).trim_start_matches('/').trim_end_matches('\0');
        if start.is_empty() {
            return Err(refuse("encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = match (self.namespaced, self.namespace) {
            (true, None) => start.split_once('/').unwrap_or((start, "")),
            (true, Some(namespace)) => (namespace, start),
            (false, _) => ("", start),
        };
        Ok(Token { revision, start: (start.0.to_owned(), start.1.to_owned()) })
    }

    /// That the history does not reach back so far, with a token that goes on anyway.
    fn expired(self, start: &Key) -> ApiError {
        let mut error = ApiError::expired(TOO_OLD);
        error.details.go_on = Some(self.write(None, start));
        error
    }
}
