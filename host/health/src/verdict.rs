//! The words of a verdict, and a verdict with its message.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How well an object does. The order is from best to worst, so the worst of several verdicts is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// It does what it is for.
    Healthy,
    /// It waits for somebody to resume it.
    Suspended,
    /// It is not healthy yet, but may become so without help.
    Progressing,
    /// It should be in the cluster and is not.
    Missing,
    /// It failed, or could not become healthy in time.
    Degraded,
    /// Its health could not be found out.
    Unknown,
}

impl Verdict {
    /// Every verdict, from best to worst.
    pub const ALL: [Self; 6] =
        [Self::Healthy, Self::Suspended, Self::Progressing, Self::Missing, Self::Degraded, Self::Unknown];

    /// The word that users see and that is written into a status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Suspended => "Suspended",
            Self::Progressing => "Progressing",
            Self::Missing => "Missing",
            Self::Degraded => "Degraded",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is not one of the six verdicts. The words are case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a verdict; it is one of Healthy, Suspended, Progressing, Missing, Degraded, Unknown")]
pub struct UnknownVerdict {
    /// The word as it was given.
    pub word: String,
}

impl FromStr for Verdict {
    type Err = UnknownVerdict;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
            .ok_or_else(|| UnknownVerdict { word: word.to_owned() })
    }
}

/// A verdict and what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The verdict.
    pub status: Verdict,
    /// What the verdict rests on, for a person. Often empty, above all when the verdict is Healthy.
    #[serde(default)]
    pub message: String,
}

impl Health {
    /// A verdict with a message, which may be empty.
    pub fn new(status: Verdict, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

#[cfg(test)]
mod tests;
