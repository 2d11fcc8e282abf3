//! What a server does for `kubectl apply --server-side` on objects that kubectl has applied in the older way: the fields
//! that the annotation of that way speaks of, and that are still as it says, are kubectl's to change, and the annotation is
//! kept up to date. It does so for the manager `kubectl` only.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    managed::{By, Conflicts, Managers},
    typed,
};
use crate::{json, schema::Type};

const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &[&str] = &["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"];

impl Managers {
    /// As [`Managers::apply`], with what kubectl may expect.
    pub(crate) fn apply_as_kubectl(
        &mut self,
        live: &Value,
        config: &Value,
        ty: Type<'_>,
        by: By<'_>,
        force: bool,
        reset: &[&[&str]],
    ) -> Result<Value, Conflicts> {
        if by.manager != KUBECTL {
            return self.apply(live, config, ty, by, force, reset);
        }
        let before = self.clone();
        let mut new = match self.apply(live, config, ty, by, force, reset) {
            Err(Conflicts(mut conflicts)) => {
                let known = still_as_applied(live, ty, by.api_version);
                let Some(known) = known else { return Err(Conflicts(conflicts)) };
                conflicts.retain(|conflict| !known.contains(&conflict.path));
                if !conflicts.is_empty() {
                    return Err(Conflicts(conflicts));
                }
                *self = before;
                self.apply(live, config, ty, by, true, reset)?
            }
            applied => applied?,
        };
        if !json::text(&new, LAST_APPLIED).is_empty() {
            json::set(&mut new, LAST_APPLIED, json!(written(config)));
        }
        Ok(new)
    }
}

/// The paths of the last configuration that are as it says; `None` when there is none for this version.
fn still_as_applied(live: &Value, ty: Type<'_>, api_version: &str) -> Option<BTreeSet<String>> {
    let last = serde_json::from_str::<Value>(json::text(live, LAST_APPLIED)).ok()?;
    if json::is_deeper(&last, json::DEPTH_MAX) || json::text(&last, &["apiVersion"]) != api_version {
        return None;
    }
    if !typed::check(&last, ty).is_empty() {
        return None;
    }
    let comparison = typed::compare(&last, live, ty);
    let set = typed::field_set(&last, ty);
    let set = set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed);
    Some(set.paths().into_iter().collect())
}

/// A configuration as the annotation has it: as Go writes JSON.
fn written(config: &Value) -> String {
    let mut config = config.clone();
    json::remove(&mut config, LAST_APPLIED);
    json::remove(&mut config, &["metadata", "managedFields"]);
    let mut text = config.to_string();
    for (from, to) in
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")]
    {
        if text.contains(from) {
            text = text.replace(from, to);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
