//! What an attribute says, after it was checked.

/// A hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) queue: String,
    pub(crate) allow_failure: bool,
    pub(crate) rate_limit: Option<RateLimit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateLimit {
    pub(crate) min_interval_ms: u64,
    pub(crate) burst: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    Lifecycle(Lifecycle, i32),
    Schedule { name: String, crontab: String },
    Kubernetes(Box<Kubernetes>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    OnStartup,
    BeforeHelm,
    AfterHelm,
    BeforeDeleteHelm,
    AfterDeleteHelm,
}

impl Lifecycle {
    /// The word in the attribute.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "on_startup" => Self::OnStartup,
            "before_helm" => Self::BeforeHelm,
            "after_helm" => Self::AfterHelm,
            "before_delete_helm" => Self::BeforeDeleteHelm,
            "after_delete_helm" => Self::AfterDeleteHelm,
            _ => return None,
        })
    }

    /// The variant of the generated type.
    pub(crate) fn variant(self) -> &'static str {
        match self {
            Self::OnStartup => "OnStartup",
            Self::BeforeHelm => "BeforeHelm",
            Self::AfterHelm => "AfterHelm",
            Self::BeforeDeleteHelm => "BeforeDeleteHelm",
            Self::AfterDeleteHelm => "AfterDeleteHelm",
        }
    }

    /// The word of the contract.
    pub(crate) fn wit(self) -> &'static str {
        match self {
            Self::OnStartup => "on-startup",
            Self::BeforeHelm => "before-helm",
            Self::AfterHelm => "after-helm",
            Self::BeforeDeleteHelm => "before-delete-helm",
            Self::AfterDeleteHelm => "after-delete-helm",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kubernetes {
    pub(crate) name: String,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) names: Vec<String>,
    pub(crate) labels: Option<Labels>,
    pub(crate) fields: Vec<FieldRequirement>,
    pub(crate) projection: Projection,
    pub(crate) events: Vec<Event>,
    pub(crate) synchronization: bool,
    pub(crate) wait: bool,
    pub(crate) keep_full_objects: bool,
    pub(crate) group: Option<String>,
    pub(crate) include_snapshots_from: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Labels {
    pub(crate) equal: Vec<(String, String)>,
    pub(crate) expressions: Vec<LabelRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelRequirement {
    pub(crate) key: String,
    pub(crate) operator: LabelOperator,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelOperator {
    pub(crate) fn variant(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }

    pub(crate) fn wit(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::NotIn => "not-in",
            Self::Exists => "exists",
            Self::DoesNotExist => "does-not-exist",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) equals: bool,
    pub(crate) value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Projection {
    Whole,
    Fields(Vec<String>),
    Jq(String),
    Component,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Added,
    Modified,
    Deleted,
}

impl Event {
    pub(crate) const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    pub(crate) fn variant(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Modified => "Modified",
            Self::Deleted => "Deleted",
        }
    }

    pub(crate) fn wit(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }
}
