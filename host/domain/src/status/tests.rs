//! The status in every situation, reached through the step function and compared as a whole.

use serde_json::json;

use super::*;
use crate::effect::Effect;
use crate::event::{Answer, Desired, Event, Released, Rendered};
use crate::fixtures::{at, desired, hook, released};
use crate::hook::HookDeclaration;
use crate::identity::ApplicationId;
use crate::pipeline::step;
use crate::queue::{Ticket, Time};

fn hooks() -> Vec<HookDeclaration> {
    let stages = [Stage::OnStartup, Stage::BeforeHelm, Stage::AfterHelm, Stage::BeforeDeleteHelm];
    vec![hook("prepare", stages.iter().map(|stage| at(*stage, 0)).collect())]
}

/// An application, with effects that are answered in order, each well unless told otherwise.
struct Scene {
    app: App,
    now: Time,
    flying: Vec<(Ticket, Effect)>,
    released: Option<Released>,
    shown: Option<Status>,
}

impl Scene {
    fn new() -> Self {
        let id = ApplicationId::new("demo", "web").unwrap();
        Self { app: App::new(id), now: Time(1_000_000), flying: vec![], released: None, shown: None }
    }

    fn installing() -> Self {
        Self::new().then(Event::Observed(desired("1.0.0")))
    }

    /// Installed, with workloads that are up.
    fn ready() -> Self {
        Self::installing().rest().then(Event::Health(Workloads::Healthy))
    }

    fn then(mut self, event: Event) -> Self {
        let (app, effects) = step(self.app.clone(), event, self.now);
        self.app = app;
        for effect in effects {
            match effect {
                Effect::WriteStatus(status) => self.shown = Some(*status),
                Effect::Cancel { ticket, .. } => {
                    // What is stopped says so at once.
                    self.flying.retain(|(flying, _)| *flying != ticket);
                    self = self.then(Event::Answered(ticket, Answer::Cancelled));
                }
                other => {
                    let ticket = other.ticket().unwrap();
                    self.flying.push((ticket, other));
                }
            }
        }
        self
    }

    fn answer(mut self, answer: Option<Answer>) -> Self {
        let (ticket, effect) = self.flying.remove(0);
        let digest = || "d".to_owned();
        let well = match &effect {
            Effect::Load { version, .. } => Answer::Loaded(Loaded {
                version: version.clone(),
                hooks: hooks(),
                release: self.released.is_some(),
                installed: None,
            }),
            Effect::CheckRequirements { .. } => Answer::Requirements(vec![]),
            Effect::RunHook { .. } => Answer::HookRan { values_changed: false },
            Effect::Render { .. } => {
                Answer::Rendered(Rendered { digest: digest(), released: self.released.clone(), missing: 0 })
            }
            Effect::CheckDrift { .. } => Answer::Missing(0),
            _ => Answer::Done,
        };
        if answer.is_none() {
            match &effect {
                Effect::Apply { maintenance, .. } => {
                    self.released = Some(released(&digest(), *maintenance));
                }
                Effect::Uninstall { .. } => self.released = None,
                _ => {}
            }
        }
        self.then(Event::Answered(ticket, answer.unwrap_or(well)))
    }

    /// Answers well until such an effect is under way.
    fn until(mut self, wanted: fn(&Effect) -> bool) -> Self {
        for _ in 0..100 {
            let Some((_, effect)) = self.flying.first() else { break };
            if wanted(effect) {
                return self;
            }
            self = self.answer(None);
        }
        panic!("the effect never came; the queue is {:?}", self.app.lifecycle());
    }

    fn fails(self, reason: &str) -> Self {
        self.answer(Some(Answer::Failed(Failure::new(reason, "it broke").hint("mend it"))))
    }

    /// Answers well until nothing is under way.
    fn rest(mut self) -> Self {
        while !self.flying.is_empty() {
            self = self.answer(None);
        }
        self
    }

    /// Lets the head of the lifecycle queue try again.
    fn later(mut self) -> Self {
        self.now = self.app.wake().unwrap();
        self.then(Event::Tick)
    }

    /// The whole status, one line each: summary, facts, conditions.
    fn status(&self) -> Vec<String> {
        let status = of(&self.app);
        assert_eq!(self.shown.as_ref(), Some(&status), "the status that was written is the status that holds");
        let Summary { state, message, tip } = &status.summary;
        let mut lines = vec![format!("{state} | {message} | {tip}")];
        lines.push(format!(
            "generation {} version {} deletion {}",
            status.observed_generation,
            status.current_version.as_deref().unwrap_or("-"),
            status.deletion_step.map_or("-", DeletionStep::as_str),
        ));
        lines.extend(status.conditions.iter().map(|condition| {
            let StatusCondition { kind, status, reason, message } = condition;
            format!("{kind}={status} {reason} | {message}")
        }));
        lines
    }
}

fn is_apply(effect: &Effect) -> bool {
    matches!(effect, Effect::Apply { .. })
}
fn is_hook(effect: &Effect) -> bool {
    matches!(effect, Effect::RunHook { trigger, .. } if trigger.as_str() == "beforeHelm")
}
fn is_delete_hook(effect: &Effect) -> bool {
    matches!(effect, Effect::RunHook { trigger, .. } if trigger.as_str() == "beforeDeleteHelm")
}
fn is_startup(effect: &Effect) -> bool {
    matches!(effect, Effect::RunHook { trigger, .. } if trigger.as_str() == "onStartup")
}
fn is_load(effect: &Effect) -> bool {
    matches!(effect, Effect::Load { .. })
}
fn is_configure(effect: &Effect) -> bool {
    matches!(effect, Effect::Configure { .. })
}
fn is_render(effect: &Effect) -> bool {
    matches!(effect, Effect::Render { .. })
}
fn rendered() -> Answer {
    Answer::Rendered(Rendered { digest: "other".into(), released: None, missing: 0 })
}

fn settings_changed() -> Event {
    Event::Observed(Desired { settings: json!({"a": 1}), generation: 2, ..desired("1.0.0") })
}

fn updated() -> Event {
    Event::Observed(Desired { generation: 2, ..desired("2.0.0") })
}

fn deleted() -> Event {
    Event::Observed(Desired { deleting: true, generation: 2, ..desired("1.0.0") })
}

fn maintained() -> Event {
    Event::Observed(Desired { maintenance: true, generation: 2, ..desired("1.0.0") })
}

fn lost(what: &str) -> Event {
    Event::Requirements(vec![what.to_owned()])
}

fn schedule() -> Event {
    Event::ScheduleDue { hook: "prepare".into(), schedule: "s".into() }
}

fn is_requirements(effect: &Effect) -> bool {
    matches!(effect, Effect::CheckRequirements { .. })
}

fn table(cases: Vec<(&str, Scene, &[&str])>) {
    for (name, scene, expected) in cases {
        assert_eq!(scene.status(), expected, "{name}");
    }
}

#[test]
fn an_installation_shows_only_whether_it_is_installed() {
    table(vec![
        (
            "an install in progress",
            Scene::installing(),
            &[
                "Pending | fetching version 1.0.0 | ",
                "generation 1 version - deletion -",
                "Installed=False Pending | fetching version 1.0.0",
            ],
        ),
        (
            "an install that applies",
            Scene::installing().until(is_apply),
            &[
                "Pending | applying the objects | ",
                "generation 1 version - deletion -",
                "Installed=False Pending | applying the objects",
            ],
        ),
        (
            "a download that failed",
            Scene::installing().fails("RegistryUnreachable"),
            &[
                "Failed | RegistryUnreachable: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False DownloadFailed | RegistryUnreachable: it broke",
            ],
        ),
        (
            "a package that cannot be loaded",
            Scene::installing().until(is_load).fails("BadManifest"),
            &[
                "Failed | BadManifest: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False LoadFromFilesystemFailed | BadManifest: it broke",
            ],
        ),
        (
            "settings that are not valid",
            Scene::installing().until(is_configure).fails("SettingsInvalid"),
            &[
                "Failed | SettingsInvalid: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False SettingsInvalid | SettingsInvalid: it broke",
            ],
        ),
        (
            "a start hook that failed",
            Scene::installing().until(is_startup).fails("HookPanicked"),
            &[
                "Failed | HookPanicked: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False HookInitializationFailed | HookPanicked: it broke",
            ],
        ),
        (
            "a hook that failed",
            Scene::installing().until(is_hook).fails("HookPanicked"),
            &[
                "Failed | HookPanicked: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False HookFailed | HookPanicked: it broke",
            ],
        ),
        (
            "an apply that failed",
            Scene::installing().until(is_apply).fails("Conflict"),
            &[
                "Failed | Conflict: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False ManifestsApplyFailed | Conflict: it broke",
            ],
        ),
        (
            "a failed apply that is tried again",
            Scene::installing().until(is_apply).fails("Conflict").later(),
            &[
                "Failed | Conflict: it broke | mend it",
                "generation 1 version - deletion -",
                "Installed=False ManifestsApplyFailed | Conflict: it broke",
            ],
        ),
        (
            "unmet requirements before the first install",
            Scene::installing()
                .until(is_requirements)
                .answer(Some(Answer::Requirements(vec!["kubernetes is too old".into()]))),
            &[
                "Pending | kubernetes is too old | the application goes on by itself when the requirements are met",
                "generation 1 version - deletion -",
                "Installed=False RequirementsUnmet | kubernetes is too old",
            ],
        ),
    ]);
}

#[test]
fn an_installed_application_shows_what_is_wrong_with_it() {
    table(vec![
        (
            "installed, and no workload was observed yet",
            Scene::installing().rest(),
            &[
                "Ready |  | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=Unknown Unknown | nothing was observed yet",
                "Ready=Unknown Unknown | nothing was observed yet",
                "Managed=Unknown Unknown | nothing was observed yet",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "everything is well",
            Scene::ready(),
            &[
                "Ready |  | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "a package without workloads",
            Scene::installing().rest().then(Event::Health(Workloads::None)),
            &[
                "Ready |  | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "a rollout",
            Scene::ready().then(Event::Health(Workloads::Progressing("1 of 2".into()))),
            &[
                "Degraded | 1 of 2 | a rollout is under way",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=False Reconciling | 1 of 2",
                "Ready=False Reconciling | 1 of 2",
                "Managed=False Reconciling | 1 of 2",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "broken workloads",
            Scene::ready().then(Event::Health(Workloads::Degraded("crash loop".into()))),
            &[
                "Degraded | crash loop | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=False Degraded | crash loop",
                "Ready=False Degraded | crash loop",
                "Managed=False Degraded | crash loop",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "settings that are not applied yet",
            Scene::ready().then(settings_changed()),
            &[
                "Ready |  | ",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=False SettingsChanged | the settings are not applied yet",
            ],
        ),
        (
            "invalid settings of an installed application",
            Scene::ready().then(settings_changed()).until(is_configure).fails("SettingsInvalid"),
            &[
                "Degraded | SettingsInvalid: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=False SettingsInvalid | SettingsInvalid: it broke",
            ],
        ),
        (
            "a hook of an installed application that failed",
            Scene::ready().then(settings_changed()).until(is_hook).fails("HookPanicked"),
            &[
                "Degraded | HookPanicked: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=False HookFailed | HookPanicked: it broke",
                "Managed=False HookFailed | HookPanicked: it broke",
                "ConfigurationApplied=False HookFailed | HookPanicked: it broke",
            ],
        ),
        (
            "in maintenance",
            Scene::ready().then(maintained()).rest(),
            &[
                "Ready |  | ",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=False NoResourceReconciliation | the application is in maintenance",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "a failing schedule hook",
            Scene::ready().then(schedule()).fails("HookPanicked"),
            &[
                "Degraded | hook 'prepare': HookPanicked: it broke | mend it",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=False HookFailed | hook 'prepare': HookPanicked: it broke",
                "Managed=False HookFailed | hook 'prepare': HookPanicked: it broke",
                "ConfigurationApplied=False HookFailed | hook 'prepare': HookPanicked: it broke",
            ],
        ),
        (
            "a schedule hook that succeeded again",
            Scene::ready().then(schedule()).fails("HookPanicked").later().rest(),
            &[
                "Ready |  | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "invalid settings beside a failing event hook",
            Scene::ready()
                .then(schedule())
                .fails("HookPanicked")
                .then(settings_changed())
                .until(is_configure)
                .fails("SettingsInvalid"),
            &[
                "Degraded | hook 'prepare': HookPanicked: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "Scaled=True Scaled | ",
                "Ready=False HookFailed | hook 'prepare': HookPanicked: it broke",
                "Managed=False HookFailed | hook 'prepare': HookPanicked: it broke",
                "ConfigurationApplied=False SettingsInvalid | SettingsInvalid: it broke",
            ],
        ),
    ]);
}

#[test]
fn the_old_version_serves_until_the_new_one_fails() {
    table(vec![
        (
            "an update in progress",
            Scene::ready().then(updated()),
            &[
                "Updating | fetching version 2.0.0 | ",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False Pending | fetching version 2.0.0",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "an update that cannot be fetched",
            Scene::ready().then(updated()).fails("RegistryUnreachable"),
            &[
                "Updating | RegistryUnreachable: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False DownloadFailed | RegistryUnreachable: it broke",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=Unknown DownloadFailed | RegistryUnreachable: it broke",
            ],
        ),
        (
            "an update whose hook failed",
            Scene::ready().then(updated()).until(is_hook).fails("HookPanicked"),
            &[
                "Failed | HookPanicked: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False HookFailed | HookPanicked: it broke",
                "Scaled=Unknown HookFailed | HookPanicked: it broke",
                "Ready=False HookFailed | HookPanicked: it broke",
                "Managed=False HookFailed | HookPanicked: it broke",
                "ConfigurationApplied=False HookFailed | HookPanicked: it broke",
            ],
        ),
        (
            "an update that cannot be loaded",
            Scene::ready().then(updated()).until(is_load).fails("BadManifest"),
            &[
                "Updating | BadManifest: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False LoadFromFilesystemFailed | BadManifest: it broke",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=False LoadFromFilesystemFailed | BadManifest: it broke",
            ],
        ),
        (
            "an update that is done",
            Scene::ready().then(updated()).rest(),
            &[
                "Ready |  | ",
                "generation 2 version 2.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=True UpdateInstalled | ",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=True Managed | ",
                "ConfigurationApplied=True ConfigurationApplied | ",
            ],
        ),
        (
            "an update that refuses the settings",
            Scene::ready().then(updated()).until(is_configure).fails("SettingsInvalid"),
            &[
                "Updating | SettingsInvalid: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False SettingsInvalid | SettingsInvalid: it broke",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=Unknown ApplyingManifests | not applied yet",
                "ConfigurationApplied=False SettingsInvalid | SettingsInvalid: it broke",
            ],
        ),
        (
            "an update that cannot be applied",
            Scene::ready().then(updated()).until(is_render).answer(Some(rendered())).fails("Conflict"),
            &[
                "Failed | Conflict: it broke | mend it",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False ManifestsApplyFailed | Conflict: it broke",
                "Scaled=False ManifestsApplyFailed | Conflict: it broke",
                "Ready=False ManifestsApplyFailed | Conflict: it broke",
                "Managed=False ManifestsApplyFailed | Conflict: it broke",
                "ConfigurationApplied=False ManifestsApplyFailed | Conflict: it broke",
            ],
        ),
        (
            "an update that is being applied",
            Scene::ready().then(updated()).until(is_render).answer(Some(rendered())),
            &[
                "Updating | applying the objects | ",
                "generation 2 version 1.0.0 deletion -",
                "Installed=True Installed | ",
                "UpdateInstalled=False ApplyingManifests | applying the objects",
                "Scaled=True Scaled | ",
                "Ready=True Ready | ",
                "Managed=False ApplyingManifests | the objects of the package are being applied",
                "ConfigurationApplied=Unknown ApplyingManifests | not applied yet",
            ],
        ),
    ]);
}

#[test]
fn suspension_and_deletion_outrank_all_else() {
    table(vec![
        (
            "requirements lost: suspending",
            Scene::ready().then(lost("x is off")),
            &[
                "Suspended | x is off | the application goes on by itself when the requirements are met",
                "generation 1 version 1.0.0 deletion -",
                "Installed=False RequirementsUnmet | x is off",
            ],
        ),
        (
            "requirements lost: suspended",
            Scene::ready().then(lost("x is off")).rest(),
            &[
                "Suspended | x is off | the application goes on by itself when the requirements are met",
                "generation 1 version 1.0.0 deletion -",
                "Installed=False RequirementsUnmet | x is off",
            ],
        ),
        (
            "requirements met again",
            Scene::ready().then(lost("x is off")).rest().then(Event::Requirements(vec![])),
            &[
                "Pending | checking the settings | ",
                "generation 1 version 1.0.0 deletion -",
                "Installed=False Pending | checking the settings",
            ],
        ),
        (
            "a deletion that runs hooks",
            Scene::ready().then(deleted()).until(is_delete_hook),
            &[
                "Deleting | running beforeDeleteHelm hooks | ",
                "generation 2 version 1.0.0 deletion BeforeHooks",
                "Installed=False Deleting | the application is being deleted",
                "Ready=False Deleting | the application is being deleted",
                "Scaled=False Deleting | the application is being deleted",
                "Managed=False Deleting | the application is being deleted",
                "ConfigurationApplied=False Deleting | the application is being deleted",
            ],
        ),
        (
            "a deletion whose hook fails",
            Scene::ready().then(deleted()).until(is_delete_hook).fails("HookPanicked"),
            &[
                "Deleting | HookPanicked: it broke | mend it",
                "generation 2 version 1.0.0 deletion BeforeHooks",
                "Installed=False Deleting | the application is being deleted",
                "Ready=False Deleting | the application is being deleted",
                "Scaled=False Deleting | the application is being deleted",
                "Managed=False Deleting | the application is being deleted",
                "ConfigurationApplied=False Deleting | the application is being deleted",
            ],
        ),
        (
            "a deletion before anything was installed",
            Scene::installing().then(deleted()),
            &[
                "Deleting | fetching version 1.0.0 | ",
                "generation 2 version - deletion -",
                "Installed=False Deleting | the application is being deleted",
            ],
        ),
    ]);
}

#[test]
fn a_message_of_any_length_fits_into_a_status() {
    let said = "ä".repeat(STATUS_MESSAGE_BYTES);
    let scene = Scene::ready().then(lost(&said));
    let status = scene.shown.expect("the status has changed");
    let [installed] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    for text in [&status.summary.message, &installed.message] {
        let (kept, cut) = text.split_once('…').expect("it is cut");
        assert_eq!((kept.len(), cut), (STATUS_MESSAGE_BYTES, " (4096 more bytes)"));
        assert!(said.starts_with(kept));
    }
    let short = Scene::ready().then(lost("ä")).shown.expect("the status has changed");
    assert_eq!(short.summary.message, "ä");
}
