//! Whether every write was made once, as far as one can tell that of a client about which nothing else is known.

use std::collections::VecDeque;

use http::{Method, StatusCode};
use serde_json::Value;

use super::Asked;
use crate::json::text;

/// Writes that are remembered.
const DEEDS_MAX: usize = 65_536;

/// A write that was carried out.
#[derive(Debug, Clone)]
pub(super) struct Deed {
    number: u64,
    what: String,
    /// The object, by its address.
    object: String,
    digest: u64,
    created: bool,
    generated: bool,
    json_patch: bool,
    runs_once: bool,
    lost: bool,
    uid: String,
    /// What clients say of the object, as a number.
    content: u64,
}

impl Deed {
    pub(super) fn of(number: u64, asked: &Asked, status: StatusCode, answer: &Value, lost: bool) -> Self {
        let metadata = |field: &str| text(answer, &["metadata", field]).to_owned();
        let address = asked.what.split_once(' ').map_or("", |(_, address)| address);
        let object = match asked.what.starts_with(Method::POST.as_str()) {
            true => format!("{address}/{}", metadata("name")),
            false => address.to_owned(),
        };
        Self {
            number,
            what: asked.what.clone(),
            object,
            digest: asked.digest,
            created: status == StatusCode::CREATED,
            generated: asked.generated,
            json_patch: asked.json_patch,
            runs_once: asked.runs_once,
            lost,
            uid: metadata("uid"),
            content: content(answer),
        }
    }

    /// Why a later write is the same once more; nothing if it is not, or if it had no effect of its own.
    fn again(&self, later: &Self) -> Option<&'static str> {
        if later.digest != self.digest {
            return None;
        }
        if self.generated && later.created {
            return Some("made two objects");
        }
        let same_object = later.object == self.object && later.uid == self.uid;
        if self.runs_once && self.created && later.created && !same_object {
            return Some("made what runs once a second time");
        }
        // What says how it is to be may be said again; what says how to change it may not.
        (self.json_patch && same_object && later.content != self.content).then_some("changed the object twice")
    }
}

/// Not what the API server and controllers say of an object.
fn content(object: &Value) -> u64 {
    let mut object = object.clone();
    crate::json::remove(&mut object, &["status"]);
    for field in ["resourceVersion", "managedFields", "generation"] {
        crate::json::remove(&mut object, &["metadata", field]);
    }
    super::digest("", object.to_string().as_bytes())
}

/// The newest writes.
#[derive(Debug, Default)]
pub(super) struct Deeds(VecDeque<Deed>);

impl Deeds {
    pub(super) fn add(&mut self, deed: Deed) {
        if self.0.len() >= DEEDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(deed);
    }

    pub(super) fn made_twice(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (index, lost) in self.0.iter().enumerate().filter(|(_, deed)| deed.lost) {
            // The next write that is known to have come through ends the doubt: what comes after it is meant.
            for later in self.0.iter().skip(index + 1) {
                if let Some(why) = lost.again(later) {
                    found.push(format!(
                        "{} {}: its answer was lost, and {} {why}",
                        lost.number, lost.what, later.number
                    ));
                }
                if later.digest == lost.digest && !later.lost {
                    break;
                }
            }
        }
        found
    }
}
