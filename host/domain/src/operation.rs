//! What a hook asks the host to do to the cluster, as data.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::ObjectRef;
use crate::limits::TIMEOUT_NAMES;

/// Which part of an object an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subresource {
    /// `status`
    Status,
    /// `scale`
    Scale,
}

impl Subresource {
    /// The word in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
        }
    }
}

/// How dependants of a deleted object are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// Dependants first, then the object.
    Foreground,
    /// The object first, dependants later.
    Background,
    /// Dependants stay.
    Orphan,
}

/// The act.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "verb")]
pub enum Action {
    /// Create; an existing object is an error.
    Create {
        /// The object.
        object: Value,
    },
    /// Create unless it exists.
    CreateIfNotExists {
        /// The object.
        object: Value,
    },
    /// Create, or replace as a whole.
    CreateOrUpdate {
        /// The object.
        object: Value,
    },
    /// Server-side apply.
    Apply {
        /// The fields to own.
        object: Value,
    },
    /// JSON merge patch (RFC 7396).
    MergePatch {
        /// The patch.
        patch: Value,
    },
    /// JSON patch (RFC 6902).
    JsonPatch {
        /// The patch.
        patch: Value,
    },
    /// Replace by what a jq program makes of the object.
    JqPatch {
        /// The program.
        program: String,
    },
    /// Delete.
    Delete {
        /// What happens to dependants.
        propagation: Propagation,
    },
}

/// One collected operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The object. Its namespace is as the guest wrote it until [`crate::grant`] has fixed it.
    pub target: ObjectRef,
    /// What to do.
    #[serde(flatten)]
    pub action: Action,
    /// The whole object if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<Subresource>,
    /// A missing object is no error.
    #[serde(default)]
    pub ignore_missing_object: bool,
    /// Carried out even when the run failed.
    #[serde(default)]
    pub on_failure: bool,
}

impl Operation {
    /// The word of the act, as in the contract.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self.action {
            Action::Create { .. } => "create",
            Action::CreateIfNotExists { .. } => "create-if-not-exists",
            Action::CreateOrUpdate { .. } => "create-or-update",
            Action::Apply { .. } => "apply",
            Action::MergePatch { .. } => "merge-patch",
            Action::JsonPatch { .. } => "json-patch",
            Action::JqPatch { .. } => "jq-patch",
            Action::Delete { .. } => "delete",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.target)?;
        if let Some(subresource) = self.subresource {
            write!(f, "/{}", subresource.as_str())?;
        }
        Ok(())
    }
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "result")]
pub enum OperationResult {
    /// The API server has done it.
    Done,
    /// There was nothing to do: the object existed, was missing as allowed, or is already so.
    Unchanged,
    /// The API server refused it.
    Failed {
        /// Reason of the API server's `Status`, for example `Conflict`.
        reason: String,
        /// Its message.
        message: String,
    },
    /// Not tried, because one before it failed.
    Skipped,
}

/// Reason of an operation that was under way when it had to end: nobody knows whether the API server did it.
pub const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// What was done of a list of operations that was not carried out as a whole, in words, with as many names as anybody
/// reads.
#[derive(Debug, Clone, Copy)]
pub struct Half<'a>(pub &'a [(Operation, OperationResult)]);

impl Half<'_> {
    fn names(&self, is: impl Fn(&OperationResult) -> bool) -> (usize, String) {
        let names: Vec<String> =
            self.0.iter().filter(|(_, result)| is(result)).map(|(operation, _)| operation.to_string()).collect();
        let shown = names.len().min(TIMEOUT_NAMES);
        let mut text = names.get(..shown).unwrap_or_default().join(", ");
        if names.len() > shown {
            text.push_str(&format!(" and {} more", names.len() - shown));
        }
        (names.len(), text)
    }
}

impl fmt::Display for Half<'_> {
    /// `2 of 4 operations were performed: …; it is not known of: …; not performed: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |result: &OperationResult| matches!(result, OperationResult::Failed { reason, .. } if reason == OUTCOME_UNKNOWN);
        let (done, names) = self.names(|result| matches!(result, OperationResult::Done | OperationResult::Unchanged));
        write!(f, "{done} of {} operations were performed", self.0.len())?;
        if done > 0 {
            write!(f, ": {names}")?;
        }
        let (open, names) = self.names(unknown);
        if open > 0 {
            write!(f, "; it is not known of: {names}")?;
        }
        let not = |result: &OperationResult| match result {
            OperationResult::Skipped => true,
            OperationResult::Failed { .. } => !unknown(result),
            OperationResult::Done | OperationResult::Unchanged => false,
        };
        let (left, names) = self.names(not);
        if left > 0 {
            write!(f, "; not performed: {names}")?;
        }
        Ok(())
    }
}

impl fmt::Display for OperationResult {
    /// `done`, `failed: [Conflict] …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Unchanged => f.write_str("unchanged"),
            Self::Skipped => f.write_str("skipped"),
            Self::Failed { reason, message } => write!(f, "failed: [{reason}] {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Gvk;

    fn delete(name: &str) -> Operation {
        Operation {
            target: ObjectRef {
                gvk: Gvk::parse("v1", "ConfigMap").expect("a valid kind"),
                namespace: "demo".to_owned(),
                name: name.to_owned(),
            },
            action: Action::Delete { propagation: Propagation::Background },
            subresource: None,
            ignore_missing_object: false,
            on_failure: false,
        }
    }

    #[test]
    fn what_was_done_by_half_is_told_with_names() {
        let failed = |reason: &str| OperationResult::Failed { reason: reason.to_owned(), message: String::new() };
        let mut results = vec![
            (delete("a"), OperationResult::Done),
            (delete("b"), OperationResult::Unchanged),
            (delete("c"), failed(OUTCOME_UNKNOWN)),
        ];
        results.extend(["d", "e", "f", "g", "h", "i", "j"].map(|name| (delete(name), OperationResult::Skipped)));
        assert_eq!(
            Half(&results).to_string(),
            "2 of 10 operations were performed: delete ConfigMap demo/a, delete ConfigMap demo/b; it is not known of: \
             delete ConfigMap demo/c; not performed: delete ConfigMap demo/d, delete ConfigMap demo/e, delete ConfigMap \
             demo/f, delete ConfigMap demo/g, delete ConfigMap demo/h and 2 more"
        );
        let none = [(delete("a"), failed("Conflict"))];
        let words = "0 of 1 operations were performed; not performed: delete ConfigMap demo/a";
        assert_eq!(Half(&none).to_string(), words);
    }
}
