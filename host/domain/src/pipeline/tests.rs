//! The step function against a world that answers, fails, dawdles and interrupts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::{Failure, Released, Rendered};
use crate::fixtures::{at, desired, hook, objects, released};
use crate::hook::{Binding, Change, WatchEventType};
use crate::limits;
use crate::status::Status;

mod hooks;

fn id() -> ApplicationId {
    ApplicationId::new("demo", "web").unwrap()
}

fn hooks() -> Vec<HookDeclaration> {
    use Stage::{AfterDeleteHelm, AfterHelm, BeforeDeleteHelm, BeforeHelm, OnStartup};
    vec![
        hook("b", vec![at(BeforeHelm, 1)]),
        hook("a", vec![at(BeforeHelm, 1), at(AfterHelm, 0), Binding::Kubernetes(objects("objects"))]),
        hook("c", vec![at(BeforeHelm, 0), at(BeforeDeleteHelm, 0)]),
        hook("d", vec![at(OnStartup, 0), at(AfterDeleteHelm, 0)]),
    ]
}

/// A world in which every effect ends well, unless told otherwise.
struct World {
    app: App,
    now: Time,
    flying: BTreeMap<Ticket, Effect>,
    seen: BTreeSet<Ticket>,
    log: Vec<String>,
    released: Option<Released>,
    status: Option<Status>,
    digest: String,
    hooks: Vec<HookDeclaration>,
}

impl World {
    fn new() -> Self {
        Self {
            app: App::new(id()),
            now: Time(1_000_000),
            flying: BTreeMap::new(),
            seen: BTreeSet::new(),
            log: vec![],
            released: None,
            status: None,
            digest: "d1".into(),
            hooks: hooks(),
        }
    }

    fn send(&mut self, event: Event) {
        let (app, effects) = step(self.app.clone(), event, self.now);
        self.app = app;
        for effect in effects {
            match &effect {
                Effect::WriteStatus(status) => self.status = Some((**status).clone()),
                Effect::Cancel { ticket, cause } => {
                    assert!(self.flying.contains_key(ticket), "only what is under way can be cancelled");
                    self.log.push(format!("cancel {}", cause.as_str()));
                }
                other => {
                    let ticket = other.ticket().expect("all other effects have a ticket");
                    assert!(self.seen.insert(ticket), "a ticket is used once");
                    self.log.push(word(other));
                    self.flying.insert(ticket, effect);
                }
            }
        }
        if !self.app.is_finished() {
            let known = self.status.clone().unwrap_or_else(|| App::new(id()).status());
            assert_eq!(known, self.app.status(), "what users see is written at each change");
        }
        for queue in self.app.hook_queues().values() {
            assert!(queue.iter().skip(1).all(|entry| entry.running.is_none()), "only the head runs");
        }
        let lifecycle = self.app.lifecycle().iter().filter(|entry| entry.running.is_some()).count();
        let hooks = self.app.hook_queues().values().flat_map(Queue::iter).filter(|entry| entry.running.is_some());
        let waiting = lifecycle + hooks.count();
        assert_eq!(waiting, self.flying.len(), "each effect is waited for by one entry, and each entry has one effect");
    }

    fn answer_of(&mut self, effect: &Effect) -> Answer {
        match effect {
            Effect::Load { version, .. } => Answer::Loaded(Loaded {
                version: version.clone(),
                hooks: self.hooks.clone(),
                release: self.released.is_some(),
                installed: self.installed(),
            }),
            Effect::CheckRequirements { .. } => Answer::Requirements(vec![]),
            Effect::RunHook { .. } => Answer::HookRan { values_changed: false },
            Effect::Render { .. } => {
                Answer::Rendered(Rendered { digest: self.digest.clone(), released: self.released.clone(), missing: 0 })
            }
            Effect::Apply { maintenance, .. } => {
                self.released = Some(released(&self.digest, *maintenance));
                Answer::Done
            }
            Effect::CheckDrift { .. } => Answer::Missing(0),
            Effect::PinRollback { .. } => Answer::Revision(1),
            Effect::Rollback { revision, .. } => match self.released.take() {
                None => Answer::Refused(Failure::new("NoSuchRevision", "there is no release")),
                Some(last) => {
                    self.released = Some(Released {
                        revision: last.revision + 1,
                        version: "0.9.0".into(),
                        digest: format!("of {revision}"),
                        deployed: true,
                        maintenance: false,
                        set_aside: last.set_aside.or(Some(last.digest)),
                    });
                    Answer::Done
                }
            },
            Effect::Uninstall { .. } => {
                self.released = None;
                Answer::Done
            }
            _ => Answer::Done,
        }
    }

    /// Answers the oldest effect.
    fn answer(&mut self) -> bool {
        self.answer_but(None)
    }

    /// Answers the oldest effect other than this one.
    fn answer_but(&mut self, kept: Option<Ticket>) -> bool {
        let Some(ticket) = self.flying.keys().copied().find(|ticket| Some(*ticket) != kept) else { return false };
        let Some(effect) = self.flying.remove(&ticket) else { return false };
        let answer = self.answer_of(&effect);
        self.send(Event::Answered(ticket, answer));
        true
    }

    fn fail(&mut self, reason: &str) {
        let (ticket, _) = self.flying.pop_first().expect("something is under way");
        self.send(Event::Answered(ticket, Answer::Failed(Failure::new(reason, "it broke"))));
    }

    /// Until nothing is under way and nothing waits, other than the check for missing objects.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.answer() {
                continue;
            }
            match self.app.wake() {
                Some(at) if !self.app.is_idle() => {
                    self.now = self.now.max(at);
                    self.send(Event::Tick);
                }
                _ => return,
            }
        }
        panic!("the application does not come to rest: {:?}", self.app.lifecycle());
    }

    /// Version that an earlier process has deployed.
    fn installed(&self) -> Option<String> {
        self.released.as_ref().filter(|it| it.deployed).map(|it| it.version.clone())
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::RunHook { hook, trigger, .. } => format!("{} {hook}", trigger.as_str()),
        Effect::PersistDeletion { step, .. } => format!("persist {}", step.as_str()),
        other => {
            let text = format!("{other:?}");
            text.split([' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}

#[test]
fn an_application_is_installed_in_the_documented_order() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    assert_eq!(
        world.take_log(),
        [
            "Deploy",
            "Load",
            "Adopt",
            "CheckRequirements",
            "Configure",
            "StartBindings",
            "synchronization a",
            "onStartup d",
            "beforeHelm c",
            "beforeHelm a",
            "beforeHelm b",
            "Render",
            "Apply",
            "afterHelm a",
        ]
    );
    assert_eq!(world.status.unwrap().conditions[0].status, "True");
}

#[test]
fn a_deletion_runs_every_step_after_it_was_written_down() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    world.settle();
    assert_eq!(
        world.take_log(),
        [
            "persist BeforeHooks",
            "beforeDeleteHelm c",
            "persist Uninstall",
            "Uninstall",
            "persist AfterHooks",
            "afterDeleteHelm d",
            "persist StopHooks",
            "StopBindings",
            "persist Purge",
            "Purge",
            "persist Undeploy",
            "Undeploy",
            "persist Finalize",
            "RemoveFinalizer",
        ]
    );
    assert!(world.app.is_finished());
}

#[test]
fn a_new_process_goes_on_where_the_deletion_was() {
    let mut world = World::new();
    let step = Some(DeletionStep::AfterHooks);
    world.send(Event::Observed(Desired { deleting: true, deletion_step: step, ..desired("1.0.0") }));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..5], ["Deploy", "Load", "Adopt", "persist AfterHooks", "StartBindings"]);
    assert!(!log.iter().any(|word| word == "Uninstall" || word == "beforeDeleteHelm c"), "{log:?}");
    assert!(world.app.is_finished());
}

#[test]
fn a_package_that_cannot_be_had_does_not_keep_the_application() {
    let mut world = World::new();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    for _ in 1..limits::REMOVAL_LOAD_ATTEMPTS {
        world.fail("DownloadFailed");
        assert!(world.flying.is_empty(), "it waits for the registry to come back");
        world.now = world.app.wake().unwrap();
        world.send(Event::Tick);
    }
    world.fail("DownloadFailed");
    world.settle();
    let log = world.take_log();
    assert!(log.iter().any(|word| word == "Uninstall"), "{log:?}");
    assert!(!log.iter().any(|word| word == "Purge" || word.starts_with("beforeDelete")), "{log:?}");
    assert!(world.app.is_finished());
}

#[test]
fn a_bundle_that_is_wrong_is_not_tried_again_before_a_removal() {
    let mut world = World::new();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    assert!(world.answer(), "the bundle is fetched");
    world.fail("ManifestMissing");
    assert!(world.log.iter().any(|word| word.starts_with("persist")), "{:?}", world.log);
    world.settle();
    assert!(world.app.is_finished());
}

#[test]
fn changed_settings_cancel_a_running_apply_with_their_cause() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    while !world.log.iter().any(|word| word == "Apply") {
        world.answer();
    }
    world.take_log();
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    assert_eq!(world.take_log(), ["cancel SettingsChanged"]);
    let (ticket, _) = world.flying.pop_first().unwrap();
    world.send(Event::Answered(ticket, Answer::Cancelled));
    world.settle();
    assert_eq!(world.take_log().last().map(String::as_str), Some("afterHelm a"));
}

#[test]
fn the_new_version_is_loaded_before_the_old_hooks_stop() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world.digest = "d2".into();
    world.send(Event::Observed(desired("2.0.0")));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..5], ["Deploy", "Load", "StopBindings", "Adopt", "CheckRequirements"]);
    assert!(log.iter().all(|word| !word.contains("DeleteHelm")), "{log:?}");
}

#[test]
fn lost_requirements_suspend_and_met_ones_resume() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world.send(Event::Requirements(vec!["module 'x' is not enabled".into()]));
    world.settle();
    assert_eq!(world.take_log(), ["beforeDeleteHelm c", "Uninstall", "afterDeleteHelm d", "StopBindings"]);
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Suspended");
    world.send(Event::Requirements(vec![]));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..3], ["Configure", "StartBindings", "synchronization a"]);
    assert!(!log.iter().any(|word| word.starts_with("onStartup")), "once per load: {log:?}");
    assert_eq!(world.status.as_ref().unwrap().summary.message, "");
}

#[test]
fn an_unchanged_release_is_not_applied_again_and_a_missing_object_is() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    world.settle();
    assert!(!world.take_log().contains(&"Apply".to_owned()));
    world.now = world.app.wake().unwrap();
    world.send(Event::Tick);
    assert_eq!(world.take_log(), ["CheckDrift"]);
    let (ticket, _) = world.flying.pop_first().unwrap();
    world.send(Event::Answered(ticket, Answer::Missing(1)));
    assert_eq!(world.app.last_cause(), Cause::DriftDetected);
    world.settle();
}

#[test]
fn maintenance_applies_once_and_leaving_it_applies_again() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    let on = Desired { maintenance: true, ..desired("1.0.0") };
    world.send(Event::Observed(on.clone()));
    world.settle();
    assert_eq!(world.take_log().iter().filter(|word| *word == "Apply").count(), 1);
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..on }));
    world.settle();
    assert!(!world.take_log().contains(&"Apply".to_owned()));
    assert_eq!(world.app.wake(), None, "nothing is restored in maintenance");
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    world.settle();
    assert!(world.take_log().contains(&"Apply".to_owned()));
}

fn installed() -> World {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.take_log();
    world
}

fn condition(world: &World, kind: &str) -> Option<String> {
    let status = world.status.as_ref()?;
    let one = status.conditions.iter().find(|one| one.kind == kind)?;
    Some(format!("{} {}", one.status, one.reason))
}

#[test]
fn a_rollback_is_pinned_done_and_settled_and_holds_until_something_else_is_rendered() {
    let mut world = installed();
    let wanted = Desired { rollback_to: Some(0), ..desired("1.0.0") };
    world.send(Event::Observed(wanted.clone()));
    assert_eq!(world.take_log(), ["PinRollback"]);
    world.answer();
    // The request has its number now, and the application hears of it while the rollback is under way.
    let wanted = Desired { rollback_to: Some(1), ..wanted };
    world.send(Event::Observed(wanted.clone()));
    assert_eq!(world.take_log(), ["Rollback"]);
    assert_eq!(world.status.as_ref().unwrap().summary.message, "rolling back to revision 1");
    assert_eq!(condition(&world, "ConfigurationApplied"), Some("False ApplyingManifests".into()));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..2], ["SettleRollback", "Configure"]);
    assert!(log.contains(&"Render".to_owned()) && !log.contains(&"Apply".to_owned()), "it holds: {log:?}");
    // The same request is still on the object, then it is gone.
    world.send(Event::Observed(wanted));
    world.send(Event::Observed(desired("1.0.0")));
    assert_eq!(world.take_log(), Vec::<String>::new());
    assert_eq!(condition(&world, "ConfigurationApplied"), Some("False RolledBack".into()));
    assert_eq!(condition(&world, "Ready"), condition(&world, "Scaled"), "nothing has failed");
    assert_eq!(world.status.as_ref().unwrap().current_version.as_deref(), Some("0.9.0"));
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Ready");
    // Other settings that render the same change nothing; what renders something else ends it.
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    world.settle();
    assert!(!world.take_log().contains(&"Apply".to_owned()));
    world.digest = "d2".into();
    world.send(Event::Observed(Desired { settings: json!({"a": 2}), ..desired("1.0.0") }));
    world.settle();
    assert!(world.take_log().contains(&"Apply".to_owned()));
    assert_eq!(condition(&world, "ConfigurationApplied"), Some("True ConfigurationApplied".into()));
    assert_eq!(world.status.as_ref().unwrap().current_version.as_deref(), Some("1.0.0"));
    // The same request again is another request.
    world.send(Event::Observed(Desired { rollback_to: Some(1), settings: json!({"a": 2}), ..desired("1.0.0") }));
    assert_eq!(world.take_log(), ["Rollback"]);
    world.settle();
}

#[test]
fn what_is_missing_after_a_rollback_comes_back_as_it_was() {
    let mut world = installed();
    world.send(Event::Observed(Desired { rollback_to: Some(1), ..desired("1.0.0") }));
    world.settle();
    world.take_log();
    world.now = world.app.wake().unwrap();
    world.send(Event::Tick);
    let (ticket, _) = world.flying.pop_first().unwrap();
    world.send(Event::Answered(ticket, Answer::Missing(1)));
    while !world.log.iter().any(|word| word == "Render") {
        world.answer();
    }
    let (ticket, _) = world.flying.pop_first().unwrap();
    let rendered = Rendered { digest: world.digest.clone(), released: world.released.clone(), missing: 1 };
    world.send(Event::Answered(ticket, Answer::Rendered(rendered)));
    let restored = world.flying.values().any(|effect| matches!(effect, Effect::Rollback { revision: 2, .. }));
    assert!(restored, "the objects of the last revision: {:?}", world.flying);
    world.settle();
    let log = world.take_log();
    assert!(!log.contains(&"Apply".to_owned()) && !log.contains(&"SettleRollback".to_owned()), "{log:?}");
    assert!(world.released.unwrap().set_aside.is_some());
}

#[test]
fn a_rollback_puts_aside_what_is_under_way_and_is_put_aside_by_nothing() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    world.digest = "d2".into();
    world.send(Event::Observed(desired("2.0.0")));
    world.take_log();
    world.send(Event::Observed(Desired { rollback_to: Some(1), ..desired("2.0.0") }));
    assert_eq!(world.take_log(), ["cancel RollbackRequested"]);
    world.answer();
    assert_eq!(world.take_log(), ["Rollback"]);
    world.fail("ObjectNotReady");
    assert_eq!(world.app.wake(), Some(world.now.after(limits::RETRY_FIRST)), "it is repeated like an apply");
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Failed");
    // A change of settings comes after it, and lets it try again at once; values of hooks do not.
    world.send(Event::ScheduleDue { hook: "b".into(), schedule: "s".into() });
    let (ticket, _) = world.flying.pop_first().unwrap();
    world.send(Event::Answered(ticket, Answer::HookRan { values_changed: true }));
    assert_eq!(world.take_log(), ["schedule b"]);
    world.send(Event::Observed(Desired { rollback_to: Some(1), settings: json!({"a": 1}), ..desired("2.0.0") }));
    assert_eq!(world.take_log(), ["Rollback"]);
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..3], ["SettleRollback", "Deploy", "Load"], "the update begins anew");
}

#[test]
fn a_rollback_that_is_asked_for_with_other_changes_loses_none_of_them() {
    let mut world = installed();
    let settings = json!({"a": 1});
    world.send(Event::Observed(Desired { rollback_to: Some(1), settings: settings.clone(), ..desired("1.0.0") }));
    let mut configured = None;
    while let Some(effect) = world.flying.values().next().cloned() {
        if let Effect::Configure { settings, .. } = effect {
            configured = Some(settings);
        }
        world.answer();
    }
    assert_eq!(configured, Some(settings.clone()));
    world.take_log();
    world.digest = "d2".into();
    world.send(Event::Observed(Desired { rollback_to: Some(2), settings, ..desired("2.0.0") }));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..3], ["Rollback", "SettleRollback", "Deploy"]);
    assert_eq!(log.iter().filter(|word| *word == "Deploy").count(), 1);
}

#[test]
fn a_rollback_that_cannot_be_is_told_and_stops_nothing() {
    let shown = |world: &World| condition(world, "RequestsAccepted");
    let rollback = |revision| Desired { rollback_to: Some(revision), ..desired("1.0.0") };
    // The world knows of no such revision.
    let mut world = installed();
    world.send(Event::Observed(rollback(77)));
    let (ticket, _) = world.flying.pop_first().unwrap();
    let failure = Failure::new("NoSuchRevision", "there is no revision 77").hint("there are: 1");
    world.send(Event::Answered(ticket, Answer::Refused(failure)));
    assert_eq!(shown(&world), Some("False NoSuchRevision".into()));
    let status = world.status.clone().unwrap();
    let told = &status.conditions.iter().find(|one| one.kind == "RequestsAccepted").unwrap().message;
    assert_eq!(told, "annotation packages.deckhouse.io/rollback-to: there is no revision 77 (there are: 1)");
    world.settle();
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Ready");
    assert!(world.app.is_idle());
    world.send(Event::Observed(desired("1.0.0")));
    assert_eq!(shown(&world), None, "the request is gone");
    world.take_log();
    // In maintenance, and without its requirements, objects are not touched.
    world.send(Event::Observed(Desired { maintenance: true, ..rollback(1) }));
    assert_eq!(shown(&world), Some("False InMaintenance".into()));
    world.settle();
    assert!(!world.take_log().contains(&"Rollback".to_owned()));
    let mut world = installed();
    world.send(Event::Requirements(vec!["x".into()]));
    world.send(Event::Observed(rollback(1)));
    world.settle();
    assert_eq!(shown(&world), Some("False Suspended".into()));
    assert!(!world.take_log().contains(&"Rollback".to_owned()));
    // Lost requirements end one that is under way.
    let mut world = installed();
    world.send(Event::Observed(rollback(1)));
    world.send(Event::Requirements(vec!["x".into()]));
    world.settle();
    assert_eq!(shown(&world), Some("False Suspended".into()));
    assert!(world.released.is_none());
}

#[test]
fn a_rollback_that_is_withdrawn_ends_in_what_is_rendered() {
    let mut world = installed();
    world.send(Event::Observed(Desired { rollback_to: Some(1), ..desired("1.0.0") }));
    world.fail("ObjectNotReady");
    world.released.as_mut().unwrap().deployed = false;
    world.take_log();
    world.send(Event::Observed(desired("1.0.0")));
    world.settle();
    let log = world.take_log();
    assert!(log.contains(&"Apply".to_owned()) && !log.contains(&"Rollback".to_owned()), "{log:?}");
    assert_eq!(condition(&world, "ConfigurationApplied"), Some("True ConfigurationApplied".into()));
}

#[test]
fn a_new_process_does_a_rollback_first() {
    let mut world = World::new();
    world.released = Some(released("d1", false));
    world.send(Event::Observed(Desired { rollback_to: Some(1), ..desired("1.0.0") }));
    world.settle();
    let log = world.take_log();
    assert_eq!(log[..3], ["Rollback", "SettleRollback", "Deploy"]);
    assert!(!log.contains(&"Apply".to_owned()), "it holds: {log:?}");
    assert_eq!(world.status.as_ref().unwrap().current_version.as_deref(), Some("0.9.0"));
}

#[test]
fn requests_reach_the_effects_and_their_change_is_a_retry() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    while !world.log.iter().any(|word| word == "Apply") {
        world.answer();
    }
    world.fail("FieldConflict");
    world.take_log();
    let field_conflicts = "- {object: Deployment/web, field: .spec.replicas, do: yield}".to_owned();
    world.send(Event::Observed(Desired {
        take_over: true,
        field_conflicts: field_conflicts.clone(),
        ..desired("1.0.0")
    }));
    let mut seen = (false, false);
    while let Some(effect) = world.flying.values().next().cloned() {
        match effect {
            Effect::Render { take_over, .. } => seen.0 = take_over,
            Effect::Apply { take_over, field_conflicts: given, .. } => seen.1 = take_over && given == field_conflicts,
            _ => {}
        }
        world.answer();
    }
    assert_eq!(seen, (true, true));
}

#[test]
fn what_an_operator_wrote_wrongly_is_told() {
    let mut world = installed();
    let failure = Failure::new("BadAnnotation", "\"yes\" is neither true nor false").hint("write \"true\"");
    let refused = vec![crate::event::RefusedRequest { place: "packages.deckhouse.io/take-over".into(), failure }];
    world.send(Event::Observed(Desired { refused: refused.clone(), ..desired("1.0.0") }));
    assert_eq!(condition(&world, "RequestsAccepted"), Some("False BadAnnotation".into()));
    assert_eq!(world.status.as_ref().unwrap().summary.state, "Ready");
    world.send(Event::Observed(Desired { refused, deleting: true, ..desired("1.0.0") }));
    assert_eq!(condition(&world, "RequestsAccepted"), Some("False BadAnnotation".into()), "in a deletion too");
}

#[test]
fn settings_that_were_mended_are_no_longer_called_invalid() {
    let mut world = installed();
    world.send(Event::Observed(Desired { settings: json!({"bad": 1}), ..desired("1.0.0") }));
    world.fail("UnknownKey");
    assert_eq!(condition(&world, "ConfigurationApplied").as_deref(), Some("False SettingsInvalid"));
    world.digest = "d2".into();
    world.send(Event::Observed(Desired { settings: json!({"good": 1}), ..desired("1.0.0") }));
    while !world.log.iter().any(|word| word == "Apply") {
        assert!(world.answer());
    }
    world.fail("ImmutableField");
    assert_eq!(condition(&world, "ConfigurationApplied").as_deref(), Some("False ManifestsApplyFailed"));
}

fn progress(done: u32) -> Tracking {
    Tracking { completed: done, remaining: 3 - done, operations: vec![] }
}

#[test]
fn progress_is_shown_while_its_work_is_under_way_and_begins_anew_with_the_next() {
    let tracking = |world: &World| world.status.as_ref().unwrap().tracking.as_deref().map(|it| it.completed);
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    world.send(Event::Tracking(progress(1)));
    assert_eq!(tracking(&world), None, "nothing is applied yet");
    while !world.log.iter().any(|word| word == "Apply") {
        world.answer();
    }
    world.send(Event::Tracking(Tracking::default()));
    assert_eq!(tracking(&world), None, "an empty report is none");
    world.send(Event::Tracking(progress(1)));
    assert_eq!(tracking(&world), Some(1));
    world.send(Event::Tracking(progress(3)));
    world.settle();
    assert_eq!(tracking(&world), Some(3), "the last word stays");
    world.digest = "d2".into();
    world.take_log();
    world.send(Event::Observed(Desired { settings: json!({"a": 1}), ..desired("1.0.0") }));
    while !world.log.iter().any(|word| word == "Apply") {
        world.answer();
    }
    assert_eq!(tracking(&world), None);
    world.fail("ObjectNotReady");
    assert_eq!(condition(&world, "Managed"), Some("False ManifestsApplyFailed".into()));
    world.now = world.app.wake().unwrap();
    world.take_log();
    world.send(Event::Tick);
    while !world.log.iter().any(|word| word == "Apply") {
        world.answer();
    }
    world.send(Event::Tracking(progress(2)));
    assert_eq!(condition(&world, "Managed"), Some("False ApplyingManifests".into()));
    world.settle();
    // A removal shows its progress too.
    world.take_log();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    while !world.log.iter().any(|word| word == "Uninstall") {
        world.answer();
    }
    assert_eq!(tracking(&world), None);
    world.send(Event::Tracking(progress(2)));
    assert_eq!(tracking(&world), Some(2));
    world.settle();
}

#[test]
fn skipping_the_delete_hooks_skips_those_of_the_chart_too() {
    for skip in [false, true] {
        let mut world = installed();
        world.send(Event::Observed(Desired { deleting: true, skip_delete_hooks: skip, ..desired("1.0.0") }));
        let mut skipped = None;
        while let Some(effect) = world.flying.values().next().cloned() {
            if let Effect::Uninstall { skip_hooks, .. } = effect {
                skipped = Some(skip_hooks);
            }
            world.answer();
        }
        assert_eq!(skipped, Some(skip));
        assert_eq!(world.take_log().iter().any(|word| word.contains("DeleteHelm")), !skip);
    }
}

/// As in Deckhouse: what is loaded is asked, whether or not this process ever configured it. An earlier process may have
/// run its hooks, and what those made they alone know.
#[test]
fn delete_hooks_run_for_an_application_that_was_never_configured() {
    let mut world = World::new();
    world.send(Event::Observed(desired("1.0.0")));
    while !world.log.iter().any(|word| word == "Configure") {
        world.answer();
    }
    world.fail("SettingsInvalid");
    world.take_log();
    world.send(Event::Observed(Desired { deleting: true, ..desired("1.0.0") }));
    world.settle();
    let log = world.take_log();
    assert!(log.contains(&"beforeDeleteHelm c".to_owned()) && log.contains(&"afterDeleteHelm d".to_owned()), "{log:?}");
    assert!(world.app.is_finished());
}

/// As in Deckhouse: a removal follows no new wishes. Requests by annotation are what is heard.
#[test]
fn a_removal_is_deaf_to_settings_and_versions() {
    let mut world = installed();
    let going = Desired { deleting: true, ..desired("1.0.0") };
    world.send(Event::Observed(going.clone()));
    world.fail("HookFailed");
    world.take_log();
    for changed in [
        Desired { settings: json!({"a": 1}), generation: 2, ..going.clone() },
        Desired { version: "2.0.0".into(), generation: 3, ..going.clone() },
        Desired { maintenance: true, generation: 4, ..going.clone() },
        Desired { rollback_to: Some(1), ..going.clone() },
        Desired { deleting: false, ..going.clone() },
    ] {
        world.send(Event::Observed(changed));
        assert_eq!(world.take_log(), Vec::<String>::new());
    }
    world.send(Event::Observed(Desired { retry: "now".into(), ..going }));
    assert!(!world.flying.is_empty(), "a retry is heard");
    world.settle();
    assert!(world.app.is_finished());
}

/// What happens next in a random life.
#[derive(Debug, Clone, Copy)]
enum Move {
    Answer(usize),
    Fail(usize),
    Cancelled(usize),
    ValuesChanged(usize),
    Settings(u8),
    Version(u8),
    Maintenance(bool),
    Requirements(bool),
    Schedule,
    Change(u8),
    Drift,
    Retry(u8),
    Rollback(Option<u32>),
    Wait,
    Delete,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        10 => any::<usize>().prop_map(Move::Answer),
        2 => any::<usize>().prop_map(Move::Fail),
        1 => any::<usize>().prop_map(Move::Cancelled),
        1 => any::<usize>().prop_map(Move::ValuesChanged),
        1 => any::<u8>().prop_map(Move::Settings),
        1 => (0u8..3).prop_map(Move::Version),
        1 => any::<bool>().prop_map(Move::Maintenance),
        1 => any::<bool>().prop_map(Move::Requirements),
        1 => Just(Move::Schedule),
        1 => any::<u8>().prop_map(Move::Change),
        1 => Just(Move::Drift),
        1 => any::<u8>().prop_map(Move::Retry),
        1 => proptest::option::of(0u32..3).prop_map(Move::Rollback),
        2 => Just(Move::Wait),
        1 => Just(Move::Delete),
    ];
    proptest::collection::vec(one, 0..120)
}

fn play(world: &mut World, wanted: &mut Desired, play: Move) {
    let pick = |world: &World, index: usize| {
        let keys: Vec<Ticket> = world.flying.keys().copied().collect();
        (!keys.is_empty()).then(|| keys[index % keys.len()])
    };
    let finish = |world: &mut World, index: usize, answer: fn(&mut World, &Effect) -> Answer| {
        if let Some(ticket) = pick(world, index) {
            let effect = world.flying.remove(&ticket).unwrap();
            let answer = answer(world, &effect);
            world.send(Event::Answered(ticket, answer));
        }
    };
    match play {
        Move::Answer(index) => finish(world, index, World::answer_of),
        Move::Fail(index) => finish(world, index, |_, _| Answer::Failed(Failure::new("Broken", "it broke"))),
        Move::Cancelled(index) => finish(world, index, |_, _| Answer::Cancelled),
        Move::ValuesChanged(index) => finish(world, index, |world, effect| match effect {
            Effect::RunHook { .. } => Answer::HookRan { values_changed: true },
            other => world.answer_of(other),
        }),
        Move::Settings(value) => wanted.settings = json!({ "value": value }),
        Move::Version(value) => wanted.version = format!("{value}.0.0"),
        Move::Maintenance(on) => wanted.maintenance = on,
        Move::Requirements(met) => {
            let unmet = if met { vec![] } else { vec!["missing".to_owned()] };
            world.send(Event::Requirements(unmet));
        }
        Move::Schedule => world.send(Event::ScheduleDue { hook: "b".into(), schedule: "s".into() }),
        Move::Change(name) => world.send(Event::ObjectsChanged {
            hook: "a".into(),
            changes: vec![Change {
                binding: "objects".into(),
                event: WatchEventType::Added,
                namespace: "demo".into(),
                name: name.to_string(),
                last: None,
            }],
        }),
        Move::Drift => {
            if let Some(at) = world.app.wake() {
                world.now = world.now.max(at);
                world.send(Event::Tick);
            }
        }
        Move::Retry(value) => wanted.retry = value.to_string(),
        Move::Rollback(revision) => wanted.rollback_to = revision,
        Move::Wait => {
            world.now = world.now.after(std::time::Duration::from_secs(7));
            world.send(Event::Tick);
        }
        Move::Delete => wanted.deleting = true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens: no deadlock, no lost event, every effect answered, and a deletion ends when the ports succeed.
    #[test]
    fn every_life_comes_to_rest_and_every_deletion_ends(moves in moves()) {
        let mut world = World::new();
        let mut wanted = desired("1.0.0");
        let mut sent = None;
        for next in moves {
            let before = wanted.clone();
            if !world.app.is_finished() {
                if sent.is_none() || before != *sent.as_ref().unwrap() {
                    world.send(Event::Observed(wanted.clone()));
                    sent = Some(wanted.clone());
                }
                play(&mut world, &mut wanted, next);
            }
        }
        // From here on the world is kind.
        if !world.app.is_finished() {
            world.send(Event::Observed(wanted.clone()));
            world.send(Event::Requirements(vec![]));
            world.settle();
            if !wanted.deleting {
                prop_assert!(world.app.is_idle());
                prop_assert!(world.released.is_some(), "at rest, met and wanted, it is installed");
                let released = world.released.clone().unwrap();
                prop_assert!(released.deployed, "the last wish was carried out");
                // Objects that a rollback brought back are not touched by maintenance.
                prop_assert!(released.set_aside.is_some() || released.maintenance == wanted.maintenance);
                prop_assert_eq!(&world.app.loaded().unwrap().version, &wanted.version);
                wanted.deleting = true;
                world.send(Event::Observed(wanted));
                world.settle();
            }
        }
        prop_assert!(world.app.is_finished());
        prop_assert!(world.released.is_none(), "nothing stays");
        prop_assert!(world.flying.is_empty());
    }
}
