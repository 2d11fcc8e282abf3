//! Hooks and their bindings, as a component declares them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::run::SnapshotItem;

/// Queue of a hook that names none.
pub const DEFAULT_QUEUE: &str = "main";

/// A moment in the life of an application at which hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Once after the package was loaded.
    OnStartup,
    /// Before the templates are rendered.
    BeforeHelm,
    /// After the rendered objects were applied.
    AfterHelm,
    /// Before the release is removed.
    BeforeDeleteHelm,
    /// After the release was removed.
    AfterDeleteHelm,
}

impl Stage {
    /// The word that users know, for example `beforeHelm`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnStartup => "onStartup",
            Self::BeforeHelm => "beforeHelm",
            Self::AfterHelm => "afterHelm",
            Self::BeforeDeleteHelm => "beforeDeleteHelm",
            Self::AfterDeleteHelm => "afterDeleteHelm",
        }
    }
}

/// One hook of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookDeclaration {
    /// Unique in the package.
    pub name: String,
    /// Why it runs.
    pub bindings: Vec<Binding>,
    /// Queue of its schedule and kubernetes runs.
    pub queue: String,
    /// A failing schedule or kubernetes run is dropped in place of being repeated.
    #[serde(default)]
    pub allow_failure: bool,
    /// How often it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// At most `burst` runs at once, then one per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// Milliseconds between two runs.
    pub min_interval_ms: u64,
    /// Runs without a pause; at least 1.
    pub burst: u32,
}

/// Why a hook runs.
#[expect(clippy::large_enum_variant, reason = "a package has few bindings, and they are made once")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Binding {
    /// At a moment of the lifecycle, by order.
    Lifecycle {
        /// When.
        stage: Stage,
        /// Lower runs first; ties go by hook name.
        order: i32,
    },
    /// At times.
    Schedule(ScheduleBinding),
    /// When objects change.
    Kubernetes(KubernetesBinding),
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleBinding {
    /// Unique among the schedules of the hook.
    pub name: String,
    /// The expression.
    pub crontab: String,
}

/// A selection of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesBinding {
    /// Unique among the kubernetes bindings of the hook; the name of the snapshot.
    pub name: String,
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    /// Kind of the objects.
    pub kind: String,
    /// Names; empty selects all.
    #[serde(default)]
    pub name_selector: Vec<String>,
    /// Labels that must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Fields that must match.
    #[serde(default)]
    pub field_selector: Vec<FieldRequirement>,
    /// How an object is projected.
    pub filter: Projection,
    /// Changes that run the hook.
    pub execute_on_events: Vec<WatchEventType>,
    /// Run once when enabled.
    pub execute_on_synchronization: bool,
    /// Wait for that run before the package is applied.
    pub wait_for_synchronization: bool,
    /// Keep whole objects beside their projections.
    #[serde(default)]
    pub keep_full_objects: bool,
    /// Group of bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Other bindings whose snapshots go with this one.
    #[serde(default)]
    pub include_snapshots_from: Vec<String>,
}

/// Labels that must hold, all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Label and value.
    #[serde(default)]
    pub match_labels: Vec<(String, String)>,
    /// Further conditions.
    #[serde(default)]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LabelRequirement {
    /// Name of the label.
    pub key: String,
    /// What must hold.
    pub operator: LabelOperator,
    /// Values for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// What must hold of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LabelOperator {
    /// One of the values.
    In,
    /// Absent, or none of the values.
    NotIn,
    /// There.
    Exists,
    /// Absent.
    DoesNotExist,
}

/// One condition on a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FieldRequirement {
    /// Path, for example `status.phase`.
    pub field: String,
    /// `=` or `!=`.
    pub equals: bool,
    /// Value to compare with.
    pub value: String,
}

/// How an object is projected before it is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Projection {
    /// Not at all, apart from `metadata.managedFields`.
    Whole,
    /// An object from JSON pointer to value.
    Fields(Vec<String>),
    /// A jq program.
    Jq(String),
    /// The `filter` export of the component.
    Component,
}

/// A change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WatchEventType {
    /// It appeared.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// Why a run takes place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trigger {
    /// A moment of the lifecycle.
    Lifecycle(Stage),
    /// The schedule of this name is due.
    Schedule(String),
    /// The kubernetes bindings of these names were enabled.
    Synchronization(Vec<String>),
    /// Objects changed.
    Events(Vec<Change>),
}

impl Trigger {
    /// A short word for logs and tables.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Lifecycle(stage) => stage.as_str(),
            Self::Schedule(_) => "schedule",
            Self::Synchronization(_) => "synchronization",
            Self::Events(_) => "event",
        }
    }
}

/// One change that led to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Kubernetes binding.
    pub binding: String,
    /// What happened.
    pub event: WatchEventType,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What was last known of an object that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Arc<SnapshotItem>>,
}

impl HookDeclaration {
    /// Order of the hook at a stage, if it is bound to it.
    #[must_use]
    pub fn order_at(&self, at: Stage) -> Option<i32> {
        self.bindings.iter().find_map(|binding| match binding {
            Binding::Lifecycle { stage, order } if *stage == at => Some(*order),
            _ => None,
        })
    }

    /// Its kubernetes bindings.
    pub fn kubernetes(&self) -> impl Iterator<Item = &KubernetesBinding> {
        self.bindings.iter().filter_map(|binding| match binding {
            Binding::Kubernetes(kubernetes) => Some(kubernetes),
            _ => None,
        })
    }

    /// Its schedules.
    pub fn schedules(&self) -> impl Iterator<Item = &ScheduleBinding> {
        self.bindings.iter().filter_map(|binding| match binding {
            Binding::Schedule(schedule) => Some(schedule),
            _ => None,
        })
    }
}
