//! The optional parts of a component: judging settings, projecting objects, judging health.

use crate::bindings::{health_assessor, settings_checker};

pub use health_assessor::exports::barbless::hooks::assess_health::{Health, Status};
pub use settings_checker::exports::barbless::hooks::check_settings::Verdict;

impl Verdict {
    /// The settings can be used.
    pub fn allow() -> Self {
        Self::Allow(Vec::new())
    }

    /// The settings can be used, but the user should know something. Adds to the warnings that are there already; a
    /// rejection stays one.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        if let Self::Allow(warnings) = &mut self {
            warnings.push(warning.into());
        }
        self
    }

    /// The settings cannot be used, for this reason.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }
}

impl Health {
    /// A verdict with its reason.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// Which hook and binding an object is projected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection<'a> {
    /// Name of the hook.
    pub hook: &'a str,
    /// Name of its kubernetes binding.
    pub binding: &'a str,
}
