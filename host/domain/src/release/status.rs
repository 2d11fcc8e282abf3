//! How far a revision is, and whether rendered manifests have to be applied.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::ObjectRef;

/// Status of a revision, in Helm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseStatus {
    /// Nobody knows.
    Unknown,
    /// It is what the cluster has.
    Deployed,
    /// It was removed, its history stays.
    Uninstalled,
    /// A later revision was deployed.
    Superseded,
    /// Its apply failed.
    Failed,
    /// It is being removed.
    Uninstalling,
    /// It is being applied for the first time.
    PendingInstall,
    /// It is being applied.
    PendingUpgrade,
    /// An earlier revision is being applied again.
    PendingRollback,
}

impl ReleaseStatus {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Whether an apply of the revision has begun and not ended.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

/// Why a release has to be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradeReason {
    /// There is none yet.
    NoRelease,
    /// The last apply did not end well.
    NotDeployed(ReleaseStatus),
    /// The rendered manifests are others.
    ManifestsChanged,
    /// Objects of it are gone from the cluster.
    ObjectsMissing(Vec<ObjectRef>),
}

impl fmt::Display for UpgradeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRelease => f.write_str("there is no release yet"),
            Self::NotDeployed(status) => write!(f, "the last revision is {}", status.as_str()),
            Self::ManifestsChanged => f.write_str("the rendered manifests changed"),
            Self::ObjectsMissing(missing) => {
                f.write_str("missing: ")?;
                for (index, target) in missing.iter().take(crate::limits::TIMEOUT_NAMES).enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{target}")?;
                }
                match missing.len().saturating_sub(crate::limits::TIMEOUT_NAMES) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

/// Whether rendered manifests have to be applied: `last` is the status and the manifest digest of the last revision,
/// `digest` that of the plan, `missing` what an existence check found gone.
#[must_use]
pub fn upgrade_needed(
    last: Option<(ReleaseStatus, &str)>,
    digest: &str,
    missing: &[ObjectRef],
) -> Option<UpgradeReason> {
    match last {
        None => Some(UpgradeReason::NoRelease),
        Some((status, _)) if status != ReleaseStatus::Deployed => Some(UpgradeReason::NotDeployed(status)),
        Some((_, deployed)) if deployed != digest => Some(UpgradeReason::ManifestsChanged),
        Some(_) if !missing.is_empty() => Some(UpgradeReason::ObjectsMissing(missing.to_vec())),
        Some(_) => None,
    }
}
