//! What an operator asks of an application by annotations: metadata can be changed when the spec cannot, and a request
//! that is carried out once has no place in a spec.
//!
//! A value that cannot be read counts as not given and is told: it neither stops the application nor passes in silence.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Desired, Failure, RefusedRequest};
use crate::limits::FIELD_CONFLICTS_BYTES;
use crate::release::conflict;

#[cfg(test)]
mod tests;

/// `true`: delete hooks are skipped when the application goes, those of the chart too.
pub const SKIP_DELETE_HOOKS: &str = "packages.deckhouse.io/skip-delete-hooks";
/// Names of hooks, separated by commas: they do not run as long as they are named here.
pub const SKIP_HOOKS: &str = "packages.deckhouse.io/skip-hooks";
/// Any value; its change asks for a retry at once.
pub const RETRY: &str = "packages.deckhouse.io/retry";
/// Number of a revision: the release goes back to it once; 0 is the revision before the last.
pub const ROLLBACK_TO: &str = "packages.deckhouse.io/rollback-to";
/// `true`: objects that somebody else owns are taken over.
pub const TAKE_OVER: &str = "packages.deckhouse.io/take-over";
/// What is to be done about fields that other managers have.
pub const FIELD_CONFLICTS: &str = "packages.deckhouse.io/field-conflicts";

/// All requests of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// [`SKIP_DELETE_HOOKS`].
    pub skip_delete_hooks: bool,
    /// [`SKIP_HOOKS`], in order and each once.
    pub skip_hooks: Vec<String>,
    /// [`RETRY`].
    pub retry: String,
    /// [`ROLLBACK_TO`].
    pub rollback_to: Option<u32>,
    /// [`TAKE_OVER`].
    pub take_over: bool,
    /// [`FIELD_CONFLICTS`], not parsed.
    pub field_conflicts: String,
    /// What cannot be read.
    pub refused: Vec<RefusedRequest>,
}

impl Requests {
    /// Reads the annotations of an object.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let mut refused = Vec::new();
        let text = |name: &str| annotations.get(name).map(String::as_str);
        let mut yes = |name: &str| match text(name) {
            None | Some("false" | "") => false,
            Some("true") => true,
            Some(value) => {
                refused.push(refusal(name, value, "neither true nor false", "write \"true\", or take it off"));
                false
            }
        };
        let skip_delete_hooks = yes(SKIP_DELETE_HOOKS);
        let take_over = yes(TAKE_OVER);
        let rollback_to = text(ROLLBACK_TO).and_then(|value| {
            // A sign or a space is no number of Helm's.
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse().ok().filter(|_| digits);
            if number.is_none() {
                let hint = "write the number of a revision, or \"0\" for the one before the last";
                refused.push(refusal(ROLLBACK_TO, value, "no number of a revision", hint));
            }
            number
        });
        let field_conflicts = text(FIELD_CONFLICTS).filter(|value| {
            let fits = value.len() <= FIELD_CONFLICTS_BYTES;
            if !fits {
                let message = format!("it has {} bytes, and {FIELD_CONFLICTS_BYTES} are allowed", value.len());
                let failure = Failure::new("BadAnnotation", message).hint("decide about fewer fields");
                refused.push(RefusedRequest { place: FIELD_CONFLICTS.to_owned(), failure });
            }
            fits
        });
        let field_conflicts = field_conflicts.filter(|text| match conflict::read(text) {
            Ok(_) => true,
            Err(failure) => {
                refused.push(RefusedRequest { place: FIELD_CONFLICTS.to_owned(), failure });
                false
            }
        });
        let named = text(SKIP_HOOKS).unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        let skip_hooks: BTreeSet<String> = named.map(str::to_owned).collect();
        Self {
            skip_delete_hooks,
            skip_hooks: skip_hooks.into_iter().collect(),
            retry: text(RETRY).unwrap_or_default().to_owned(),
            rollback_to,
            take_over,
            field_conflicts: field_conflicts.unwrap_or_default().to_owned(),
            refused,
        }
    }

    /// A wish with these requests.
    #[must_use]
    pub fn onto(self, desired: Desired) -> Desired {
        let Self { skip_delete_hooks, skip_hooks, retry, rollback_to, take_over, field_conflicts, refused } = self;
        Desired { skip_delete_hooks, skip_hooks, retry, rollback_to, take_over, field_conflicts, refused, ..desired }
    }
}

fn refusal(place: &str, value: &str, what: &str, hint: &str) -> RefusedRequest {
    // The value is echoed to show what was read, and it may be a whole document.
    let mut shown: String = value.chars().take(40).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    let failure = Failure::new("BadAnnotation", format!("{shown:?} is {what}")).hint(hint);
    RefusedRequest { place: place.to_owned(), failure }
}
