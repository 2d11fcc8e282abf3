//! A reconciliation with nothing carried out.
//!
//! The same decisions and the same performers as in the loop: fetch, load, requirements, settings, snapshots, hooks,
//! templates, plan. Only what would change the cluster is different: what hooks ask for is checked and foreseen, and the
//! plan is given back. Hooks run for real; they are told that it is a dry run, and what they set goes into the values
//! that the next one sees.
//!
//! A first installation is rehearsed up to the moment at which it would apply: hooks after it would see nothing yet. In
//! an upgrade they run against the cluster as it is, and when they set values the plan is made once more, as the host
//! does; it is the one that is given back.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use barbless_cluster::{ForeseenOperation, WatchEvent};
use barbless_domain::effect::Effect;
use barbless_domain::event::{Answer, Desired, Event, Failure};
use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::identity::ObjectRef;
use barbless_domain::operation::{Action, Operation, OperationResult};
use barbless_domain::pipeline::{self, App};
use barbless_domain::release::ReleaseAction;
use barbless_domain::run::{LogLine, RunInput};
use barbless_domain::snapshot::SnapshotStore;
use futures::StreamExt as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::bindings::Trouble;
use super::instance::LoadedPackage;
pub(crate) use super::release::Planned;
use super::{Context, Instance, Services, bindings, hooks, jq, package, release};
use crate::plan::secrets::told::{Said, told};

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    /// Runs of hooks, in order.
    pub(crate) runs: Vec<RehearsedRun>,
    /// Hooks that run after the apply.
    pub(crate) after: Vec<String>,
    /// The plan is carried out: there is something to apply.
    pub(crate) applies: bool,
    /// The plan, if it came so far.
    pub(crate) planned: Option<Planned>,
    /// Why it did not.
    pub(crate) failure: Option<Failure>,
    /// The values at the end.
    pub(crate) values: Arc<Value>,
    /// The effective settings.
    pub(crate) settings: Arc<Value>,
}

/// One run of a hook.
#[derive(Debug)]
pub(crate) struct RehearsedRun {
    /// Hook.
    pub(crate) hook: String,
    /// Why it ran.
    pub(crate) trigger: Trigger,
    /// Why it failed.
    pub(crate) failure: Option<Failure>,
    /// What it logged.
    pub(crate) log: Vec<LogLine>,
    /// The values before it.
    pub(crate) before: Arc<Value>,
    /// The values after it.
    pub(crate) after: Arc<Value>,
    /// What it asked for, with what would come of it.
    pub(crate) operations: Vec<(Operation, Fate)>,
    /// Secrets that went into it and turn up in what came of it.
    pub(crate) told: Vec<String>,
}

/// What would come of an operation.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is carried out.
    Foreseen(Box<ForeseenOperation>),
    /// It is not allowed.
    Denied(Failure),
    /// An operation before it is about the same object, so what it would find is not there yet.
    AfterAnother,
}

/// Rehearses a reconciliation.
///
/// # Assumptions
/// The cluster of the services cannot be written to, see `barbless_cluster::harmless`.
pub(crate) async fn rehearse(services: Arc<Services>, instance: Instance, desired: Desired) -> Rehearsal {
    let now = instance.now();
    // Nobody watches anything here, so nothing is ever sent.
    let (events, _inbox) = mpsc::channel(1);
    let app = App::new(instance.id.clone());
    instance.data().wanted = desired.settings.clone();
    let context = Arc::new(Context { services, instance, events, objects: Arc::new(AtomicUsize::new(0)) });
    let mut rehearsal = Rehearsal::default();
    let mut changed = BTreeMap::new();
    let (mut app, effects) = pipeline::step(app, Event::Observed(desired), now);
    let mut waiting: VecDeque<Effect> = effects.into();
    while let Some(effect) = waiting.pop_front() {
        let Some(ticket) = effect.ticket() else { continue };
        let answer = match effect {
            Effect::Deploy { version, .. } => done(package::deploy(&context, &version).await),
            Effect::Load { version, .. } => {
                package::load(&context, &version).await.map_or_else(Answer::Failed, Answer::Loaded)
            }
            Effect::Adopt { .. } => done(package::adopt(&context)),
            Effect::CheckRequirements { .. } => match package::unmet_requirements(&context) {
                unmet if unmet.is_empty() => Answer::Requirements(unmet),
                unmet => {
                    let hint = "install what is asked for, or take another version of the package";
                    let failure = Failure::new("RequirementsNotMet", unmet.join("\n")).hint(hint);
                    rehearsal.failure = Some(failure);
                    break;
                }
            },
            Effect::Configure { settings, .. } => done(package::configure(&context, settings).await),
            Effect::StartBindings { .. } => done(snapshots(&context).await),
            Effect::RunHook { hook, trigger, attempt, .. } => {
                let after = trigger == Trigger::Lifecycle(Stage::AfterHelm);
                match Box::pin(run(&context, &hook, trigger, attempt, &mut changed)).await {
                    // It may miss what the apply would have made: it gets its chance then.
                    Ok(run) if after && run.failure.is_some() => {
                        rehearsal.after.push(hook);
                        Answer::HookRan { values_changed: false }
                    }
                    Ok(run) => {
                        let answer = match &run.failure {
                            // What is refused is told, and the rest is foreseen as if it had been granted.
                            None => Answer::HookRan { values_changed: run.before != run.after },
                            Some(failure) => Answer::Failed(failure.clone()),
                        };
                        rehearsal.runs.push(run);
                        answer
                    }
                    Err(failure) => Answer::Failed(failure),
                }
            }
            Effect::Render { maintenance, take_over, .. } => {
                match release::planned(&context, maintenance, take_over).await {
                    Ok(planned) => {
                        let facts = planned.facts();
                        let first = planned.plan.action == ReleaseAction::Install;
                        rehearsal.planned = Some(planned);
                        rehearsal.failure = None;
                        rehearsal.applies = first;
                        if first {
                            // What hooks would see after the apply is not there yet.
                            rehearsal.after = after_helm(&app);
                            break;
                        }
                        Answer::Rendered(facts)
                    }
                    Err(failure) => Answer::Failed(failure),
                }
            }
            Effect::Apply { .. } => {
                rehearsal.applies = true;
                Answer::Done
            }
            // Nothing of this comes before or after an apply.
            _ => Answer::Done,
        };
        if let Answer::Failed(failure) = &answer {
            rehearsal.failure.get_or_insert_with(|| failure.clone());
        }
        let (next, effects) = pipeline::step(app, Event::Answered(ticket, answer), now);
        app = next;
        waiting.extend(effects);
    }
    (rehearsal.values, rehearsal.settings) = context.instance.documents();
    rehearsal
}

/// The hooks that run after an apply, in order.
fn after_helm(app: &App) -> Vec<String> {
    let hooks = app.loaded().map(|loaded| loaded.hooks.as_slice()).unwrap_or_default();
    let mut hooks: Vec<(i32, String)> =
        hooks.iter().filter_map(|hook| Some((hook.order_at(Stage::AfterHelm)?, hook.name.clone()))).collect();
    hooks.sort_unstable();
    hooks.into_iter().map(|(_, name)| name).collect()
}

fn done(result: Result<(), Failure>) -> Answer {
    result.map_or_else(Answer::Failed, |()| Answer::Done)
}

/// Fills the snapshots of all bindings with what is there now.
async fn snapshots(context: &Arc<Context>) -> Result<(), Failure> {
    let package = context.instance.current()?;
    let mut stores: BTreeMap<String, BTreeMap<String, SnapshotStore>> = BTreeMap::new();
    for hook in package.hooks.iter().map(|hook| &hook.declaration) {
        for binding in hook.kubernetes() {
            let name = format!("{}/{}", hook.name, binding.name);
            let spec = bindings::watch_spec(context, &package, hook, binding).await?;
            let events = context.services.cluster.watch(spec);
            let first = tokio::time::timeout(barbless_domain::limits::SYNCHRONISATION_WAIT, first_list(events)).await;
            let objects = first
                .unwrap_or(Err(Trouble::Silence))
                .map_err(|trouble| bindings::not_synchronised(&name, &trouble))?;
            let mut projected = Vec::with_capacity(objects.len());
            for object in objects {
                let one = bindings::project(context, &package, &hook.name, binding, &object).await;
                projected
                    .push(one.map_err(|why| bindings::not_synchronised(&name, &Trouble::of_filter(&object, &why)))?);
            }
            let mut store = SnapshotStore::new(binding);
            store.replace(projected);
            stores.entry(hook.name.clone()).or_default().insert(binding.name.clone(), store);
        }
    }
    context.instance.data().snapshots = stores;
    Ok(())
}

/// The first complete list of a watch, or why there is none.
async fn first_list(events: impl futures::Stream<Item = WatchEvent>) -> Result<Vec<Arc<Value>>, Trouble> {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Synced(objects) => return Ok(objects),
            WatchEvent::Failed { reason, message } => return Err(Trouble::Watch(format!("{reason}: {message}"))),
            WatchEvent::Applied(_) | WatchEvent::Deleted(_) => {}
        }
    }
    Err(Trouble::Watch("the watch ended".to_owned()))
}

/// Runs a hook, keeps its values, and foresees its operations.
async fn run(
    context: &Arc<Context>,
    hook: &str,
    trigger: Trigger,
    attempt: u32,
    changed: &mut BTreeMap<ObjectRef, bool>,
) -> Result<RehearsedRun, Failure> {
    let package = context.instance.current()?;
    let component = package.components.get(hook).cloned();
    let component =
        component.ok_or_else(|| Failure::new("InternalError", format!("no component has a hook '{hook}'")))?;
    let (computed, snapshots) = context.instance.inputs_of(hook);
    let before = computed.values;
    // Not the seed of the run that follows, but the same in each plan: a plan that is made twice is the same twice.
    let seed = Sha256::digest(format!("plan of {}, hook {hook}, {}", context.instance.id, trigger.as_str()));
    let input = RunInput {
        hook: hook.to_owned(),
        trigger: trigger.clone(),
        attempt,
        dry_run: true,
        instance: context.instance.identity(&package.package),
        values: Arc::clone(&before),
        settings: computed.settings,
        snapshots,
        now_unix_ms: context.instance.now().0,
        seed: seed.into(),
    };
    let input = Arc::new(input);
    let outcome = component.prepared.run(&input).await;
    let mut said = Said::of(&outcome);
    let mut failure = hooks::failure_of(hook, &outcome.end);
    let mut operations = Vec::new();
    for operation in outcome.operations.iter().filter(|operation| failure.is_none() || operation.on_failure) {
        operations.push(fate(context, &package, operation, changed).await);
    }
    if failure.is_none() {
        let kept =
            hooks::check_values(context, hook, &outcome).and_then(|()| hooks::commit_values(context, hook, &outcome));
        failure = kept.err();
    }
    for (_, fate) in &operations {
        match fate {
            Fate::Denied(failure) => said.add(&failure.message),
            Fate::Foreseen(foreseen) => {
                if let OperationResult::Failed { message, .. } = &foreseen.result {
                    said.add(message);
                }
            }
            Fate::AfterAnother => {}
        }
    }
    let told = told(&input, package.declaration(hook), &said);
    let (after, _) = context.instance.documents();
    let run =
        RehearsedRun { hook: hook.to_owned(), trigger, failure, log: outcome.log, before, after, operations, told };
    Ok(run)
}

/// What would come of an operation.
async fn fate(
    context: &Arc<Context>,
    package: &LoadedPackage,
    operation: &Operation,
    changed: &mut BTreeMap<ObjectRef, bool>,
) -> (Operation, Fate) {
    let checked = match hooks::check(context, package, operation).await {
        Ok(checked) => checked,
        Err(failure) => return (operation.clone(), Fate::Denied(failure)),
    };
    match changed.get(&checked.target) {
        None => {}
        // It exists by then, whatever it looks like.
        Some(true) if matches!(checked.action, Action::CreateIfNotExists { .. }) => {
            let result = OperationResult::Unchanged;
            return (checked, Fate::Foreseen(Box::new(ForeseenOperation { result, before: None, after: None })));
        }
        Some(_) => return (checked, Fate::AfterAnother),
    }
    let manager = hooks::manager_of(&context.instance.id);
    let jq = jq::Patches::new(context);
    let foreseen = context.services.cluster.foresee_operation(&context.instance.id, &manager, &checked, &jq).await;
    if !matches!(foreseen.result, OperationResult::Failed { .. } | OperationResult::Skipped) {
        let exists = !matches!(checked.action, Action::Delete { .. });
        changed.insert(checked.target.clone(), exists);
    }
    (checked, Fate::Foreseen(Box::new(foreseen)))
}
