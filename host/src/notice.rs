//! What happens, for people: a bounded stream that the command line, tests and later the inspect API read. Nobody waits
//! for a slow reader: it loses the oldest and is told so.

use std::sync::Arc;

use barbless_domain::event::Failure;
use barbless_domain::run::RunRecord;
use barbless_domain::status::Status;
use serde::Serialize;
use tokio::sync::broadcast;

/// Notices that a reader may be behind.
const CAPACITY: usize = 4096;

/// One thing that happened to an application.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase", tag = "notice")]
pub enum Notice {
    /// Work began.
    Began {
        /// What, in words.
        what: String,
    },
    /// Work ended well.
    Ended {
        /// What, in words.
        what: String,
        /// How long it took, in milliseconds.
        ms: u64,
        /// What came of it, in words.
        outcome: String,
    },
    /// Work failed; it is repeated.
    Failed {
        /// What, in words.
        what: String,
        /// Why.
        failure: Failure,
    },
    /// A hook ran.
    Ran(Arc<RunRecord>),
    /// Something moved during an apply or a removal.
    Progress {
        /// In words.
        text: String,
    },
    /// The status is another one.
    Status(Box<Status>),
}

/// Sends notices.
#[derive(Debug, Clone)]
pub struct Notices(broadcast::Sender<(String, Notice)>);

impl Default for Notices {
    fn default() -> Self {
        Self(broadcast::channel(CAPACITY).0)
    }
}

impl Notices {
    /// Tells all readers, if there are any.
    pub fn send(&self, application: &str, notice: Notice) {
        // Nobody listening is no error.
        let _ = self.0.send((application.to_owned(), notice));
    }

    /// A new reader: gets what happens from now on, with the application.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<(String, Notice)> {
        self.0.subscribe()
    }
}
