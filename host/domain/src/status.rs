//! From what is known of an application to what users see: conditions and a summary.
//!
//! The conditions, their reasons and when they appear are those of Deckhouse's `Application`; two defects of the
//! original are not reproduced: a failing event hook is cleared as soon as that hook succeeds, and settings count as
//! applied only when objects were applied with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Failure, Loaded, Workloads};
use crate::hook::Stage;
use crate::limits::STATUS_MESSAGE_BYTES;
use crate::pipeline::{
    App, DeletionStep, DisableAt, EnableAt, NOT_SYNCHRONISED, RemoveAt, RollbackAt, RunAt, Task, again_and_again,
    not_synchronised,
};
use crate::release::tracking::Tracking;
use crate::request::{ROLLBACK_TO, SKIP_HOOKS};

#[cfg(test)]
mod tests;

/// Reasons of conditions that do not hold although nothing failed.
const WANTED: [&str; 3] = ["ApplyingManifests", "SettingsChanged", "RolledBack"];
const ROLLED_BACK: &str =
    "the objects are those of an earlier revision, as an operator asked, until the settings or the version change";

/// A fact with three values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    /// Not known yet.
    #[default]
    Unknown,
    /// It holds.
    True,
    /// It does not.
    False {
        /// Stable reason in PascalCase.
        reason: String,
        /// Why, for users.
        message: String,
        /// What they can do.
        hint: Option<String>,
    },
}

impl Condition {
    /// It does not hold, for this reason.
    #[must_use]
    pub fn no(reason: &str, message: &str) -> Self {
        Self::False { reason: reason.to_owned(), message: message.to_owned(), hint: None }
    }

    fn failed(reason: &str, failure: &Failure) -> Self {
        Self::False {
            reason: reason.to_owned(),
            message: format!("{}: {}", failure.reason, failure.message),
            hint: failure.hint.clone(),
        }
    }

    /// A failure; work in progress is none.
    fn failure(&self) -> Option<(&str, &str, Option<&str>)> {
        match self {
            Self::False { reason, message, hint } if !WANTED.contains(&reason.as_str()) => {
                Some((reason, message, hint.as_deref()))
            }
            _ => None,
        }
    }
}

/// A hook whose last run failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failing {
    pub(crate) failure: Failure,
    /// How often in a row.
    pub(crate) times: u32,
}

impl Default for Failing {
    fn default() -> Self {
        Self { failure: Failure::new("Unknown", ""), times: 0 }
    }
}

/// What is known of an application, beside its queues.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub(crate) generation: i64,
    /// Version that an update leads to.
    pub(crate) target: Option<String>,
    /// Version whose objects were applied last.
    pub(crate) version: Option<String>,
    pub(crate) filesystem: Condition,
    pub(crate) loaded: Condition,
    pub(crate) configured: Condition,
    pub(crate) hooks: Condition,
    pub(crate) manifests: Condition,
    pub(crate) workloads: Workloads,
    pub(crate) installed: bool,
    /// Another version was installed in place of an earlier one.
    pub(crate) updated: bool,
    pub(crate) suspended: bool,
    pub(crate) maintained: bool,
    pub(crate) failing_hooks: BTreeMap<String, Failing>,
    /// Bindings whose snapshots cannot be trusted, by hook and binding, with the reason.
    pub(crate) degraded: BTreeMap<(String, String), String>,
    pub(crate) deletion: Option<DeletionStep>,
    pub(crate) removed_without_package: Option<Failure>,
    pub(crate) dropped: Option<String>,
    /// Why the rollback that an operator asked for is not done.
    pub(crate) refused_rollback: Option<Failure>,
    /// A rollback holds; the version whose objects it brought back.
    pub(crate) held: Option<String>,
    /// How far the last apply, rollback or removal came.
    pub(crate) tracking: Option<Arc<Tracking>>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            generation: 0,
            target: None,
            version: None,
            filesystem: Condition::Unknown,
            loaded: Condition::Unknown,
            configured: Condition::Unknown,
            hooks: Condition::Unknown,
            manifests: Condition::Unknown,
            workloads: Workloads::Unknown,
            installed: false,
            updated: false,
            suspended: false,
            maintained: false,
            failing_hooks: BTreeMap::new(),
            degraded: BTreeMap::new(),
            deletion: None,
            removed_without_package: None,
            dropped: None,
            refused_rollback: None,
            held: None,
            tracking: None,
        }
    }
}

impl Facts {
    /// The objects of one version are in the cluster, and another version is wanted.
    fn updating(&self) -> bool {
        self.held.is_none() && self.version.is_some() && self.target.is_some() && self.target != self.version
    }

    pub(crate) fn adopted(&mut self, loaded: &Loaded) {
        // What an earlier process has installed is installed.
        if self.version.is_none() && loaded.installed.is_some() {
            self.version.clone_from(&loaded.installed);
            self.installed = true;
        }
        self.configured = Condition::Unknown;
        self.hooks = Condition::Unknown;
        self.manifests = Condition::Unknown;
    }

    /// What was wrong with settings that are not wanted any more is forgotten.
    pub(crate) fn settings_are_valid(&mut self) {
        if matches!(&self.configured, Condition::False { reason, .. } if reason == "SettingsInvalid") {
            self.configured = Condition::no("SettingsChanged", "the settings are not applied yet");
        }
    }

    pub(crate) fn enabled(&mut self) {
        if matches!(&self.hooks, Condition::False { reason, .. } if reason == "HookInitializationFailed") {
            self.hooks = Condition::Unknown;
        }
    }

    pub(crate) fn applying(&mut self) {
        self.manifests = Condition::no("ApplyingManifests", "the objects of the package are being applied");
    }

    pub(crate) fn ran(&mut self, version: String, maintenance: bool) {
        let version = self.held.clone().unwrap_or(version);
        self.updated |= self.version.as_ref().is_some_and(|old| *old != version);
        self.version = Some(version);
        self.hooks = Condition::True;
        self.manifests = Condition::True;
        // In maintenance the objects do not follow the settings.
        if self.held.is_some() {
            self.configured = Condition::no("RolledBack", ROLLED_BACK);
        } else if !maintenance {
            self.configured = Condition::True;
        }
        self.maintained = maintenance;
        self.suspended = false;
        self.installed = true;
    }

    pub(crate) fn suspended(&mut self) {
        self.suspended = true;
        self.manifests = Condition::Unknown;
        self.hooks = Condition::Unknown;
        self.workloads = Workloads::Unknown;
        self.held = None;
    }

    pub(crate) fn failed(&mut self, task: &Task, failure: &Failure) {
        match task {
            Task::Deploy { .. } => self.filesystem = Condition::failed("DownloadFailed", failure),
            Task::Load { .. } | Task::Switch(_) => {
                self.loaded = Condition::failed("LoadFromFilesystemFailed", failure);
            }
            Task::Configure => self.configured = Condition::failed("SettingsInvalid", failure),
            Task::Enable(_) => self.hooks = Condition::failed("HookInitializationFailed", failure),
            Task::Run { at: RunAt::Before(_) | RunAt::After(_), .. }
            | Task::Disable(DisableAt::Before(_) | DisableAt::After(_)) => {
                self.hooks = Condition::failed("HookFailed", failure);
            }
            Task::Run { .. } | Task::Rollback(_) => {
                self.manifests = Condition::failed("ManifestsApplyFailed", failure);
            }
            Task::Requirements | Task::Disable(_) | Task::CheckDrift | Task::Remove { .. } => {}
        }
    }
}

/// What users see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Generation of the object that this is about.
    pub observed_generation: i64,
    /// In words.
    pub summary: Summary,
    /// In detail.
    pub conditions: Vec<StatusCondition>,
    /// Version whose objects were applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// How far a deletion has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_step: Option<DeletionStep>,
    /// How far the last apply, rollback or removal came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking: Option<Arc<Tracking>>,
}

impl Status {
    /// Whether the other one says the same but for the progress of an apply. Such a status can wait a moment.
    #[must_use]
    pub fn same_but_for_tracking(&self, other: &Self) -> bool {
        let Self { observed_generation, summary, conditions, current_version, deletion_step, tracking: _ } = self;
        *observed_generation == other.observed_generation
            && *summary == other.summary
            && *conditions == other.conditions
            && *current_version == other.current_version
            && *deletion_step == other.deletion_step
    }
}

/// The state in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// One of Pending, Failed, Updating, Ready, Degraded, Suspended, Deleting.
    pub state: String,
    /// Why.
    pub message: String,
    /// What to do.
    pub tip: String,
}

/// One condition, without its time of transition: the writer knows that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCondition {
    /// Installed, Ready, …
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False, Unknown.
    pub status: String,
    /// Stable reason.
    pub reason: String,
    /// For users.
    pub message: String,
}

/// The status of an application that is not looked after, and why: its user waits for something that does not come.
#[must_use]
pub fn refused(generation: i64, why: &Failure) -> Status {
    let Failure { reason, message, hint, .. } = why;
    let condition = |kind: &str| StatusCondition {
        kind: kind.to_owned(),
        status: "False".to_owned(),
        reason: reason.clone(),
        message: message.clone(),
    };
    Status {
        observed_generation: generation,
        summary: Summary {
            state: "Failed".to_owned(),
            message: message.clone(),
            tip: hint.clone().unwrap_or_default(),
        },
        conditions: vec![condition("Ready")],
        current_version: None,
        deletion_step: None,
        tracking: None,
    }
}

/// What stands in the way: reason of the external condition, message, hint.
struct Blocker {
    reason: String,
    message: String,
    hint: Option<String>,
}

impl Blocker {
    fn new((reason, message, hint): (&str, &str, Option<&str>)) -> Self {
        Self { reason: reason.to_owned(), message: message.to_owned(), hint: hint.map(str::to_owned) }
    }
}

pub(crate) fn of(app: &App) -> Status {
    let facts = app.facts();
    let deleting = app.is_removing();
    let unmet = (!app.unmet().is_empty()).then(|| Blocker {
        reason: "RequirementsUnmet".to_owned(),
        message: app.unmet().join("; "),
        hint: Some("the application goes on by itself when the requirements are met".to_owned()),
    });
    // The one that failed most often is told; with equal numbers the first by name.
    let worst = facts.failing_hooks.iter().min_by_key(|(_, failing)| std::cmp::Reverse(failing.times));
    let event_hook = worst.map(|(hook, failing)| {
        let failure = again_and_again(failing.failure.clone(), hook, failing.times);
        let message = format!("hook '{hook}': {}: {}", failure.reason, failure.message);
        Blocker { reason: "HookFailed".to_owned(), message, hint: failure.hint }
    });
    let degraded = facts.degraded.iter().next().map(|((hook, binding), why)| Blocker {
        reason: NOT_SYNCHRONISED.to_owned(),
        message: not_synchronised(hook, binding, why),
        hint: Some("the hook does not run before its snapshot can be trusted again".to_owned()),
    });
    let mut blockers: Vec<Blocker> = unmet.into_iter().collect();
    let known = [&facts.filesystem, &facts.loaded, &facts.configured, &facts.hooks, &facts.manifests];
    blockers.extend(known.into_iter().filter_map(Condition::failure).map(Blocker::new));
    blockers.extend(degraded);
    blockers.extend(event_hook);
    blockers.extend(facts.dropped.as_ref().map(|what| Blocker {
        reason: "HookFailed".to_owned(),
        message: format!("a run of a hook was dropped: {what}"),
        hint: Some("let the package have fewer hooks in one queue".to_owned()),
    }));

    let mut conditions = conditions(app, &blockers);
    conditions.extend(requests(app));
    conditions.extend(skipped(app));
    let mut summary = summary(app, deleting, &blockers);
    let messages = conditions.iter_mut().map(|condition| &mut condition.message);
    messages.chain([&mut summary.message, &mut summary.tip]).for_each(shorten);
    Status {
        observed_generation: facts.generation,
        summary,
        conditions,
        current_version: facts.version.clone(),
        deletion_step: facts.deletion,
        tracking: facts.tracking.clone(),
    }
}

/// Cuts what is too long for a status, and says how much that was.
fn shorten(text: &mut String) {
    if text.len() > STATUS_MESSAGE_BYTES {
        let kept = text.floor_char_boundary(STATUS_MESSAGE_BYTES);
        let rest = text.len() - kept;
        text.truncate(kept);
        text.push_str(&format!("… ({rest} more bytes)"));
    }
}

/// Hooks that do not run because an operator wants it so.
fn skipped(app: &App) -> Option<StatusCondition> {
    let known = app.loaded()?.hooks.iter().map(|hook| hook.name.as_str());
    let skipped = &app.desired()?.skip_hooks;
    let names: Vec<&str> = known.filter(|name| skipped.iter().any(|it| it == name)).collect();
    (!names.is_empty()).then(|| StatusCondition {
        kind: "HooksSkipped".to_owned(),
        status: "True".to_owned(),
        reason: "SkippedByOperator".to_owned(),
        message: format!(
            "these hooks do not run as long as the annotation {SKIP_HOOKS} names them: {}",
            names.join(", ")
        ),
    })
}

/// Names of hooks that an operator skips and that the package does not have.
fn unknown_hooks(app: &App) -> Option<Failure> {
    let hooks = &app.loaded()?.hooks;
    let skipped = &app.desired()?.skip_hooks;
    let unknown: Vec<&str> =
        skipped.iter().filter(|name| !hooks.iter().any(|hook| hook.name == **name)).map(String::as_str).collect();
    (!unknown.is_empty()).then(|| {
        let mut names: Vec<&str> = hooks.iter().map(|hook| hook.name.as_str()).collect();
        names.sort_unstable();
        let message = format!("the package has no hook {}", unknown.join(", "));
        Failure::new("NoSuchHook", message).hint(format!("its hooks are: {}", names.join(", ")))
    })
}

/// Requests of an operator that come to nothing, if there are any: what an annotation asks for is never ignored in
/// silence.
fn requests(app: &App) -> Option<StatusCondition> {
    let desired = app.desired()?;
    let rollback = app.facts().refused_rollback.as_ref().map(|failure| (ROLLBACK_TO, failure));
    let unreadable = desired.refused.iter().map(|refused| (refused.place.as_str(), &refused.failure));
    let unknown = unknown_hooks(app);
    let unknown = unknown.as_ref().map(|failure| (SKIP_HOOKS, failure));
    let refused: Vec<(&str, &Failure)> = unreadable.chain(rollback).chain(unknown).collect();
    let (_, first) = refused.first()?;
    let lines = refused.iter().map(|(place, failure)| {
        let hint = failure.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("annotation {place}: {}{hint}", failure.message)
    });
    Some(StatusCondition {
        kind: "RequestsAccepted".to_owned(),
        status: "False".to_owned(),
        reason: first.reason.clone(),
        message: lines.collect::<Vec<_>>().join("; "),
    })
}

fn conditions(app: &App, blockers: &[Blocker]) -> Vec<StatusCondition> {
    let facts = app.facts();
    let mut list = Vec::new();
    let mut add = |kind: &str, blocker: Option<(&str, &str, &str)>| {
        list.push(match blocker {
            None => StatusCondition {
                kind: kind.to_owned(),
                status: "True".to_owned(),
                reason: kind.to_owned(),
                message: String::new(),
            },
            Some((status, reason, message)) => StatusCondition {
                kind: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: message.to_owned(),
            },
        });
    };
    let no = |blocker: &Blocker| -> (&'static str, String, String) {
        ("False", blocker.reason.clone(), blocker.message.clone())
    };
    if app.is_removing() {
        let kinds: &[&str] = if facts.installed {
            &["Installed", "Ready", "Scaled", "Managed", "ConfigurationApplied"]
        } else {
            &["Installed"]
        };
        let update = (facts.installed && facts.updated).then_some("UpdateInstalled");
        for kind in kinds.iter().copied().chain(update) {
            add(kind, Some(("False", "Deleting", "the application is being deleted")));
        }
        return list;
    }
    let requirements = blockers.iter().find(|blocker| blocker.reason == "RequirementsUnmet");
    let scaled = match &facts.workloads {
        Workloads::None | Workloads::Healthy => None,
        Workloads::Unknown => Some(("Unknown", "Unknown".to_owned(), "nothing was observed yet".to_owned())),
        Workloads::Progressing(why) => Some(("False", "Reconciling".to_owned(), why.clone())),
        Workloads::Degraded(why) => Some(("False", "Degraded".to_owned(), why.clone())),
    };
    let installed = if let Some(blocker) = requirements {
        Some(no(blocker))
    } else if facts.installed && !facts.suspended {
        None
    } else if let Some(blocker) = blockers.first() {
        Some(no(blocker))
    } else {
        Some(("False", "Pending".to_owned(), progress(app)))
    };
    let shown = |given: &Option<(&'static str, String, String)>| {
        given.as_ref().map(|(status, reason, message)| (*status, reason.clone(), message.clone()))
    };
    let mut push = |kind: &str, given: Option<(&'static str, String, String)>| {
        add(kind, given.as_ref().map(|(status, reason, message)| (*status, reason.as_str(), message.as_str())));
    };
    let is_installed = installed.is_none();
    push("Installed", shown(&installed));
    if !is_installed {
        return list;
    }
    let applying = match &facts.manifests {
        Condition::False { reason, message, .. } => Some(("False", reason.clone(), message.clone())),
        Condition::Unknown => Some(("Unknown", "ApplyingManifests".to_owned(), "not applied yet".to_owned())),
        Condition::True => None,
    };
    let settings = match &facts.configured {
        Condition::False { reason, message, .. } => Some(("False", reason.clone(), message.clone())),
        Condition::Unknown => Some(("Unknown", "ApplyingManifests".to_owned(), "not applied yet".to_owned())),
        Condition::True => None,
    };
    // The old version serves until the hooks or the objects of the new one fail; settings alone break nothing.
    let updating = facts.updating();
    let blocker = blockers.iter().find(|blocker| match blocker.reason.as_str() {
        "SettingsInvalid" => false,
        "DownloadFailed" | "LoadFromFilesystemFailed" => !updating,
        _ => true,
    });
    let scaled = match blocker {
        Some(blocker) if updating && blocker.reason == "ManifestsApplyFailed" => Some(no(blocker)),
        Some(blocker) if updating || blocker.reason == "DownloadFailed" => {
            Some(("Unknown", blocker.reason.clone(), blocker.message.clone()))
        }
        _ => scaled,
    };
    let blocking = blocker.map(no);
    if updating {
        push(
            "UpdateInstalled",
            blockers.first().map(no).or_else(|| {
                let applying = matches!(&facts.manifests, Condition::False { .. });
                let reason = if applying { "ApplyingManifests" } else { "Pending" };
                Some(("False", reason.to_owned(), progress(app)))
            }),
        );
    }
    if facts.updated && !updating {
        push("UpdateInstalled", None);
    }
    push("Scaled", scaled.clone());
    push("Ready", blocking.clone().or_else(|| scaled.clone()));
    let maintained = facts
        .maintained
        .then(|| ("False", "NoResourceReconciliation".to_owned(), "the application is in maintenance".to_owned()));
    push("Managed", blocking.or(maintained).or(applying.clone()).or(scaled));
    let unapplied = blockers.first().map(|blocker| {
        let (status, reason, message) = no(blocker);
        // Whether the settings suit a version that cannot be had is not known.
        (if blocker.reason == "DownloadFailed" { "Unknown" } else { status }, reason, message)
    });
    push("ConfigurationApplied", unapplied.or(settings).or(applying));
    list
}

fn summary(app: &App, deleting: bool, blockers: &[Blocker]) -> Summary {
    let facts = app.facts();
    let make = |state: &str, message: String, tip: Option<&str>| Summary {
        state: state.to_owned(),
        message,
        tip: tip.unwrap_or_default().to_owned(),
    };
    let failure = app.lifecycle().head().and_then(|head| head.failure.as_ref());
    if deleting {
        return match failure {
            Some(failure) => make(
                "Deleting",
                format!("{}: {}", failure.reason, failure.message),
                failure.hint.as_deref().or(Some(
                    "the step is repeated; to skip the delete hooks, annotate the Application with packages.deckhouse.io/skip-delete-hooks=true",
                )),
            ),
            None => make("Deleting", progress(app), None),
        };
    }
    if let Some(blocker) = blockers.iter().find(|blocker| blocker.reason == "RequirementsUnmet") {
        let state = if facts.installed || facts.suspended { "Suspended" } else { "Pending" };
        return make(state, blocker.message.clone(), blocker.hint.as_deref());
    }
    let updating = facts.updating();
    // What runs is judged before what was only written: invalid settings come last once it is installed.
    let first = if facts.installed && !updating {
        blockers.iter().find(|blocker| blocker.reason != "SettingsInvalid").or(blockers.first())
    } else {
        blockers.first()
    };
    if let Some(blocker) = first {
        let served = updating
            && matches!(blocker.reason.as_str(), "DownloadFailed" | "LoadFromFilesystemFailed" | "SettingsInvalid");
        let state = match (facts.installed, served) {
            (_, true) => "Updating",
            (true, false) if !updating => "Degraded",
            _ => "Failed",
        };
        return make(state, blocker.message.clone(), blocker.hint.as_deref());
    }
    if updating {
        return make("Updating", progress(app), None);
    }
    if !facts.installed || facts.suspended {
        return make("Pending", progress(app), None);
    }
    match &facts.workloads {
        _ if facts.manifests != Condition::True => make("Updating", progress(app), None),
        Workloads::Degraded(why) => make("Degraded", why.clone(), None),
        Workloads::Progressing(why) => make("Degraded", why.clone(), Some("a rollout is under way")),
        Workloads::Unknown | Workloads::None | Workloads::Healthy => match &facts.held {
            Some(version) => make(
                "Ready",
                format!("rolled back to the objects of version {version}"),
                Some("change spec.settings or spec.packageVersion to go on from here"),
            ),
            None => make("Ready", String::new(), None),
        },
    }
}

/// What is being done now, in words.
fn progress(app: &App) -> String {
    let Some(head) = app.lifecycle().head() else { return "waiting for work".to_owned() };
    let hook = |stage: Stage| format!("running {} hooks", stage.as_str());
    match &head.task {
        Task::Deploy { version } => format!("fetching version {version}"),
        Task::Load { version } => format!("loading version {version}"),
        Task::Switch(_) => "switching to the new version".to_owned(),
        Task::Requirements => "checking the requirements".to_owned(),
        Task::Configure => "checking the settings".to_owned(),
        Task::Enable(EnableAt::Bindings) => "waiting for the snapshots of the hooks".to_owned(),
        Task::Enable(EnableAt::Synchronization) => "waiting for the synchronization of the hooks".to_owned(),
        Task::Enable(EnableAt::Startup(_)) => hook(Stage::OnStartup),
        Task::Run { at: RunAt::Before(_), .. } => hook(Stage::BeforeHelm),
        Task::Run { at: RunAt::Render, .. } => "rendering the templates".to_owned(),
        Task::Run { at: RunAt::Apply, .. } => "applying the objects".to_owned(),
        Task::Run { at: RunAt::After(_), .. } => hook(Stage::AfterHelm),
        Task::Disable(DisableAt::Bindings) => "waiting for the snapshots of the hooks".to_owned(),
        Task::Disable(DisableAt::Before(_)) => hook(Stage::BeforeDeleteHelm),
        Task::Disable(DisableAt::Uninstall) => "removing the objects".to_owned(),
        Task::Disable(DisableAt::After(_)) => hook(Stage::AfterDeleteHelm),
        Task::Disable(DisableAt::Stop | DisableAt::Idle) => "stopping the hooks".to_owned(),
        Task::Run { at: RunAt::Restore(revision), .. } => format!("bringing back the objects of revision {revision}"),
        Task::Rollback(RollbackAt::Pin) => "looking up the revision to go back to".to_owned(),
        Task::Rollback(RollbackAt::Apply(revision)) => format!("rolling back to revision {revision}"),
        Task::Rollback(RollbackAt::Settle(_)) => "taking the request for the rollback off".to_owned(),
        Task::CheckDrift => "looking for missing objects".to_owned(),
        Task::Remove { step, at: RemoveAt::Persist | RemoveAt::Bindings | RemoveAt::Act(_) | RemoveAt::Idle } => {
            match step {
                DeletionStep::BeforeHooks => hook(Stage::BeforeDeleteHelm),
                DeletionStep::Uninstall => "removing the objects and waiting until they are gone".to_owned(),
                DeletionStep::AfterHooks => hook(Stage::AfterDeleteHelm),
                DeletionStep::StopHooks => "stopping the hooks".to_owned(),
                DeletionStep::Purge => "deleting orphan resources".to_owned(),
                DeletionStep::Undeploy => "forgetting the package".to_owned(),
                DeletionStep::Finalize => "removing the finalizer".to_owned(),
            }
        }
    }
}
