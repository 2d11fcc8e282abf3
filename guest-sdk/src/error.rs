//! The error of a hook: what a user of the package sees when a run fails.

use std::fmt;
use std::time::Duration;

use crate::bindings::hooks::barbless::hooks::{snapshots, types, values};

/// What a hook and most calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a hook could not do its work. Users see it as it is.
///
/// There is deliberately no conversion from every error type: each error has a code that can be searched for, and a
/// blanket conversion would hide it.
///
/// ```
/// use std::time::Duration;
/// use barbless_sdk::prelude::*;
///
/// let error = Error::new("DatabaseNotReady", "Service miniflux-db has no address yet")
///     .hint("look at the events of the Service")
///     .retry_after(Duration::from_secs(5));
/// assert_eq!(error.code(), "DatabaseNotReady");
/// assert_eq!(error.to_string(), "Service miniflux-db has no address yet");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: String,
    message: String,
    hint: Option<String>,
    retry_after: Option<Duration>,
}

impl Error {
    /// An error with a stable code in CamelCase, and what went wrong, with names.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: None, retry_after: None }
    }

    /// Adds what a user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Asks for the next attempt after this time in place of the usual back-off. The host keeps it between one second
    /// and the cap of the queue.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Puts words before the message: what was being done.
    ///
    /// ```
    /// # use barbless_sdk::prelude::*;
    /// let error = Error::new("JsonInvalid", "expected a string").context("label `feeds` of ConfigMap news");
    /// assert_eq!(error.to_string(), "label `feeds` of ConfigMap news: expected a string");
    /// ```
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What a user can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// When the next attempt was asked for.
    pub fn retry_after_duration(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Code `JsonInvalid`: a document has another shape than the type that it was read into, or cannot be written as JSON.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::new("JsonInvalid", error.to_string())
    }
}

/// Codes `SnapshotUnknown` and `SnapshotNotSynchronised`.
impl From<snapshots::SnapshotError> for Error {
    fn from(error: snapshots::SnapshotError) -> Self {
        match error {
            snapshots::SnapshotError::NoSuchBinding => {
                Self::new("SnapshotUnknown", "the hook has no kubernetes binding of this name")
            }
            snapshots::SnapshotError::NotSynchronised(reason) => {
                Self::new("SnapshotNotSynchronised", format!("the binding is not synchronised: {reason}"))
            }
        }
    }
}

/// Codes `ValuesPathInvalid`, `ValuesJsonInvalid`, `ValuesTooLarge` and `ValuesReadOnly`.
impl From<values::ValuesError> for Error {
    fn from(error: values::ValuesError) -> Self {
        use values::ValuesError;
        match error {
            ValuesError::BadPointer(reason) => Self::new("ValuesPathInvalid", reason)
                .hint("a JSON pointer is empty or begins with `/`; `~` is written `~0` and `/` is written `~1`"),
            ValuesError::BadJson(reason) => Self::new("ValuesJsonInvalid", reason),
            ValuesError::BadPath(reason) => Self::new("ValuesPathInvalid", reason),
            ValuesError::TooLarge => Self::new("ValuesTooLarge", "the values would grow over their limit of 1 MiB"),
            ValuesError::ReadOnly(path) => {
                Self::new("ValuesReadOnly", format!("values at `{path}` belong to the settings of the user"))
                    .hint("keep what hooks compute under a key that settings.yaml does not declare, such as `internal`")
            }
        }
    }
}

impl From<Error> for types::HookError {
    fn from(error: Error) -> Self {
        Self {
            code: error.code,
            message: error.message,
            hint: error.hint,
            retry_after_ms: error.retry_after.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
