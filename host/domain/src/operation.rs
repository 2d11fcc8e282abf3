//! What a hook asks the host to do to the cluster, as data.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::ObjectRef;

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
