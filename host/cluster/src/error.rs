//! What can go wrong between us and the API server.

use std::fmt;

pub(crate) use barbless_domain::error::chain;
use barbless_domain::identity::{Gvk, ObjectRef};

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server does not know the kind.
    #[error("the cluster does not serve {gvk}")]
    KindNotServed {
        /// The kind.
        gvk: Gvk,
    },
    /// The API server refused a request.
    #[error("{0}")]
    Api(Box<ApiError>),
    /// The API server did not answer, or not in its language.
    #[error("cannot {action} {object}: the API server did not answer")]
    Unreachable {
        /// What was tried.
        action: &'static str,
        /// On what.
        object: String,
        /// What the client says.
        source: Box<kube::Error>,
    },
    /// The API server took a request and did not answer in time. It may have been carried out.
    #[error("cannot {action} {object}: the API server did not answer within {} s", waited.as_secs())]
    TimedOut {
        /// What was tried.
        action: &'static str,
        /// On what.
        object: String,
        /// How long was waited.
        waited: std::time::Duration,
    },
    /// A name that cannot be part of a request.
    #[error("cannot {action} {object}: {why}")]
    BadRequest {
        /// What was tried.
        action: &'static str,
        /// On what.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// An answer or a stored document that makes no sense.
    #[error("{object} is malformed: {why}")]
    Malformed {
        /// Which.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// Another writer won each of several races.
    #[error("cannot {action} {object}: another writer changed it {attempts} times meanwhile")]
    Contended {
        /// What was tried.
        action: &'static str,
        /// On what.
        object: String,
        /// How often.
        attempts: u32,
    },
}

/// A refusal of the API server, with what it says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub object: String,
    /// HTTP status.
    pub code: u16,
    /// Reason of the `Status`, for example `NotFound`.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Details: reason, field, message.
    pub causes: Vec<Cause>,
    /// An earlier attempt of the same request was not answered, and may have been carried out: what is refused here may be
    /// refused because it is done.
    pub in_doubt: bool,
}

/// One detail of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Reason, for example `FieldManagerConflict`.
    pub reason: String,
    /// Field, for example `.spec.replicas`.
    pub field: String,
    /// Message.
    pub message: String,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {} ({} {})", self.action, self.object, self.message, self.code, self.reason)
    }
}

/// Another field manager has a field that we want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// The object.
    pub object: ObjectRef,
    /// Who has what.
    pub fields: Vec<ConflictingField>,
}

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictingField {
    /// The manager.
    pub manager: String,
    /// The field, for example `.spec.replicas`.
    pub field: String,
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        for (index, ConflictingField { manager, field }) in self.fields.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}field {field} belongs to manager {manager:?}")?;
        }
        Ok(())
    }
}

impl Error {
    /// Stable reason in PascalCase; for a refusal that of the API server.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::KindNotServed { .. } => "KindNotServed",
            Self::Api(error) if error.reason.is_empty() => "ApiError",
            Self::Api(error) => &error.reason,
            Self::Unreachable { .. } => "ApiUnreachable",
            Self::TimedOut { .. } => "ApiTimedOut",
            Self::BadRequest { .. } => "BadRequest",
            Self::Malformed { .. } => "Malformed",
            Self::Contended { .. } => "Conflict",
        }
    }

    /// The message with those of its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// HTTP status, if the API server answered.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(error) => Some(error.code),
            _ => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether an earlier attempt of the same request may have been carried out.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Api(error) if error.in_doubt)
    }

    /// The same, after an attempt that was not answered.
    pub(crate) fn doubted(mut self, in_doubt: bool) -> Self {
        if let Self::Api(error) = &mut self {
            error.in_doubt = in_doubt;
        }
        self
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Api(error) if error.reason == "AlreadyExists")
    }

    /// A lost race: neither an existing object nor a field of another manager.
    pub(crate) fn is_lost_race(&self) -> bool {
        match self {
            Self::Api(error) => {
                error.code == 409
                    && error.reason != "AlreadyExists"
                    && !error.causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
            }
            _ => false,
        }
    }

    /// The fields of other managers, if that is what the API server refused.
    pub(crate) fn field_conflict(&self, object: &ObjectRef) -> Option<FieldConflict> {
        let Self::Api(error) = self else { return None };
        let fields: Vec<_> = error
            .causes
            .iter()
            .filter(|cause| cause.reason == "FieldManagerConflict")
            .map(|cause| ConflictingField { manager: conflicting_manager(&cause.message), field: cause.field.clone() })
            .collect();
        (!fields.is_empty()).then(|| FieldConflict { object: object.clone(), fields })
    }

    pub(crate) fn of(action: &'static str, object: impl fmt::Display, error: kube::Error) -> Self {
        let object = object.to_string();
        match error {
            kube::Error::Api(status) => Self::Api(Box::new(ApiError {
                action,
                object,
                code: status.code,
                reason: status.reason,
                message: status.message,
                causes: status
                    .details
                    .map(|details| details.causes)
                    .unwrap_or_default()
                    .into_iter()
                    .map(|cause| Cause { reason: cause.reason, field: cause.field, message: cause.message })
                    .collect(),
                in_doubt: false,
            })),
            other => Self::Unreachable { action, object, source: Box::new(other) },
        }
    }
}

/// The manager in `conflict with "kubectl" using apps/v1`. The API has no field for it.
fn conflicting_manager(message: &str) -> String {
    message.split('"').nth(1).unwrap_or(message).to_owned()
}
