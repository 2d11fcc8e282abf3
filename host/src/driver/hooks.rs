//! One run of a hook: input, sandbox, validation, operations, values, record.
//!
//! The order after a hook has returned is fixed: validate *all* of it, apply operations in order, commit values, then
//! metrics. Any validation error means that nothing is applied. A run that fails applies only what it had marked
//! `on_failure`, and that passes the same checks.

use std::sync::Arc;

use barbless_domain::event::{Answer, Failure};
use barbless_domain::grant::{self, Request, Scope};
use barbless_domain::hook::Trigger;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::limits::{SETTLING, SETTLING_GRACE};
use barbless_domain::operation::{Action, Half, OUTCOME_UNKNOWN, Operation, OperationResult};
use barbless_domain::run::{InputOutline, RunEnd, RunInput, RunOutcome, RunRecord, Usage};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::instance::{LinkedComponent, LoadedPackage};
use super::{Context, Stop, jq};
use crate::notice::Notice;
use crate::plan::secrets::told::{Said, told};
use crate::runs::{Inputs, shown};

#[cfg(test)]
mod tests;

/// Runs a hook and carries out what it asked for.
pub(super) async fn run(context: &Arc<Context>, hook: &str, trigger: Trigger, attempt: u32, stop: &Stop) -> Answer {
    let package = match context.instance.current() {
        Ok(package) => package,
        Err(failure) => return Answer::Failed(failure),
    };
    let Some(component) = package.components.get(hook).cloned() else {
        return Answer::Failed(Failure::new("InternalError", format!("no component has a hook '{hook}'")));
    };
    let (input, outline) = input(context, &package, hook, trigger, attempt);
    let kept = (&*package, &*component);
    let input = Arc::new(input);
    let begun = Instant::now();
    let outcome = tokio::select! {
        outcome = component.prepared.run(&input) => outcome,
        // The store goes with the future; nothing of the run is kept but that it was.
        () = stop.token.cancelled() => {
            let wall_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            let outcome = RunOutcome {
                end: RunEnd::Cancelled { why: stop.why().to_owned() },
                operations: Vec::new(),
                values: Vec::new(),
                log: Vec::new(),
                metrics: Vec::new(),
                usage: Usage { wall_us, ..Usage::default() },
            };
            let end = outcome.end.clone();
            let record = record(context, kept, &input, outline, end, outcome, Results::new());
            context.notice(Notice::Ran(record));
            return Answer::Cancelled;
        }
    };
    // From here on the run is finished rather than stopped: operations are never left half-way by a newer wish.
    let (results, verdict) = settle(context, &package, hook, &outcome, stop).await;
    let end = match &verdict {
        Err(Refusal::Output(what)) => RunEnd::BadOutput { what: what.message.clone() },
        Err(Refusal::Denied(what)) => RunEnd::Denied { what: what.message.clone() },
        Err(Refusal::Operation(what)) => RunEnd::OperationRefused { what: what.message.clone() },
        Err(Refusal::Late(what)) => RunEnd::Unsettled { what: what.message.clone() },
        Err(Refusal::Stopped(what)) => RunEnd::Unsettled { what: what.clone() },
        _ => outcome.end.clone(),
    };
    let record = record(context, kept, &input, outline, end, outcome, results);
    let secrets = shown::secrets_of(&record, false);
    context.notice(Notice::Ran(record));
    match verdict {
        Ok(values_changed) => Answer::HookRan { values_changed },
        Err(Refusal::Stopped(_)) => Answer::Cancelled,
        Err(
            Refusal::Run(failure)
            | Refusal::Output(failure)
            | Refusal::Denied(failure)
            | Refusal::Operation(failure)
            | Refusal::Late(failure),
            // From here on it is shown: in the status, in events, in messages.
        ) => Answer::Failed(Failure {
            message: secrets.mask_text(&failure.message),
            hint: failure.hint.map(|hint| secrets.mask_text(&hint)),
            ..failure
        }),
    }
}

/// Everything that goes into a run, and the outline of it.
fn input(
    context: &Context,
    package: &LoadedPackage,
    hook: &str,
    trigger: Trigger,
    attempt: u32,
) -> (RunInput, InputOutline) {
    let (computed, snapshots) = context.instance.inputs_of(hook);
    let mut seed = [0u8; 32];
    // The system's generator has no failure that a program could do anything about; a seed of zeros would be worse
    // than a panic, which ends this run only.
    getrandom::fill(&mut seed).expect("the system's random number generator answers");
    let input = RunInput {
        hook: hook.to_owned(),
        trigger,
        attempt,
        dry_run: false,
        instance: context.instance.identity(&package.package),
        values: computed.values,
        settings: computed.settings,
        snapshots,
        now_unix_ms: context.instance.now().0,
        seed,
    };
    let outline = InputOutline::of(&input, computed.digest, computed.settings_digest);
    (input, outline)
}

/// Why a run comes to nothing.
enum Refusal {
    /// The hook itself failed.
    Run(Failure),
    /// What it gave back is not valid.
    Output(Failure),
    /// It asked for something that is not granted.
    Denied(Failure),
    /// The API server refused an operation.
    Operation(Failure),
    /// It took too long to carry out what it asked for.
    Late(Failure),
    /// Nobody wants any more what it asked for; why, and how far it came.
    Stopped(String),
}

impl Refusal {
    /// Of a run whose operations were not all carried out.
    fn unsettled(hook: &str, why: &Interruption, results: &[(Operation, OperationResult)]) -> Self {
        match why {
            Interruption::Late => {
                let message = format!(
                    "hook '{hook}': what it asked for was not carried out within {} s: {}",
                    SETTLING.as_secs(),
                    Half(results)
                );
                let hint = "does the API server answer? a hook that asks for fewer operations at once needs less time";
                Self::Late(Failure::new("HookNotSettled", message).hint(hint))
            }
            Interruption::Stopped(cause) => Self::Stopped(format!("{cause}: {}", Half(results))),
        }
    }
}

type Results = Vec<(Operation, OperationResult)>;

/// Validates and carries out; the results of all operations, and whether values changed.
async fn settle(
    context: &Arc<Context>,
    package: &LoadedPackage,
    hook: &str,
    outcome: &RunOutcome,
    stop: &Stop,
) -> (Results, Result<bool, Refusal>) {
    let failed = failure_of(hook, &outcome.end);
    let wanted: Vec<Operation> =
        outcome.operations.iter().filter(|operation| failed.is_none() || operation.on_failure).cloned().collect();
    let skipped = |operations: &[Operation]| -> Results {
        operations.iter().map(|operation| (operation.clone(), OperationResult::Skipped)).collect()
    };
    let mut checked = Vec::with_capacity(wanted.len());
    // Kinds are looked up in the cluster, which may not answer.
    let until = Until::from_now(stop);
    for (index, operation) in wanted.iter().enumerate() {
        let answer = tokio::select! {
            answer = check(context, package, operation) => answer,
            why = until.reached() => {
                let results = skipped(&wanted);
                let refusal = Refusal::unsettled(hook, &why, &results);
                return (results, Err(refusal));
            }
        };
        match answer {
            Ok(operation) => checked.push(operation),
            Err(failure) => {
                let failure = Failure {
                    message: format!("hook '{hook}': operation {}: {}", index + 1, failure.message),
                    ..failure
                };
                // A run that failed already keeps its own error; the refusal is in the log.
                if let Some(failed) = failed {
                    tracing::warn!(application = %context.instance.id, hook, reason = failure.reason, failure.message, "an operation of a failed run is refused");
                    return (skipped(&wanted), Err(Refusal::Run(failed)));
                }
                return (skipped(&wanted), Err(Refusal::Denied(failure)));
            }
        }
    }
    let _one_at_a_time = if failed.is_none() && !outcome.values.is_empty() {
        // Others hold it for as long as their own operations take, which is bounded.
        let held = tokio::select! {
            held = context.instance.committing.lock() => held,
            () = stop.operations.cancelled() => {
                let results = skipped(&wanted);
                let refusal = Refusal::unsettled(hook, &Interruption::Stopped(stop.operations_why()), &results);
                return (results, Err(refusal));
            }
        };
        if let Err(failure) = check_values(context, hook, outcome) {
            return (skipped(&wanted), Err(Refusal::Output(failure)));
        }
        Some(held)
    } else {
        None
    };
    let manager = manager_of(&context.instance.id);
    let jq = jq::Patches::new(context);
    let hands = Hands { context, manager, jq };
    let (results, interruption) = carry_out(checked, &Until::from_now(stop), &hands).await;
    if let Some(why) = interruption {
        let refusal = Refusal::unsettled(hook, &why, &results);
        return (results, Err(refusal));
    }
    if let Some(failed) = failed {
        return (results, Err(Refusal::Run(failed)));
    }
    let refused = results.iter().find_map(|(operation, result)| match result {
        OperationResult::Failed { reason, message } => {
            Some(Failure::new(reason, format!("hook '{hook}': {operation}: {message}")))
        }
        _ => None,
    });
    if let Some(refused) = refused {
        return (results, Err(Refusal::Operation(refused)));
    }
    match commit_values(context, hook, outcome) {
        Ok(changed) => (results, Ok(changed)),
        Err(failure) => (results, Err(Refusal::Output(failure))),
    }
}

/// Asks the grant, and puts the namespace of the application where the guest left it out.
pub(super) async fn check(
    context: &Context,
    package: &LoadedPackage,
    operation: &Operation,
) -> Result<Operation, Failure> {
    let scope = match context.services.cluster.resolve(&operation.target.gvk).await {
        Ok(resource) => resource.scope,
        // A kind that the cluster does not serve is refused by its name, after the grant had its say.
        Err(error) => {
            let request = Request::Operate { operation, scope: Scope::Namespaced };
            grant::allows(&context.instance.id, &package.grant, request).into_result().map_err(denied)?;
            return Err(Failure::new(error.reason(), format!("{operation}: {}", error.chain())));
        }
    };
    grant::allows(&context.instance.id, &package.grant, Request::Operate { operation, scope })
        .into_result()
        .map_err(denied)?;
    Ok(match scope {
        Scope::Namespaced => in_namespace(operation.clone(), context.instance.id.namespace()),
        Scope::Cluster => operation.clone(),
    })
}

pub(super) fn denied(denial: grant::Denial) -> Failure {
    Failure::new(&denial.reason, format!("{}: {}", denial.what, denial.why)).hint(denial.hint)
}

/// An operation on an object of this namespace.
pub(crate) fn in_namespace(mut operation: Operation, namespace: &str) -> Operation {
    operation.target = ObjectRef { namespace: namespace.to_owned(), ..operation.target };
    match &mut operation.action {
        Action::Create { object }
        | Action::CreateIfNotExists { object }
        | Action::CreateOrUpdate { object }
        | Action::Apply { object } => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
            }
        }
        Action::MergePatch { .. } | Action::JsonPatch { .. } | Action::JqPatch { .. } | Action::Delete { .. } => {}
    }
    operation
}

pub(super) fn check_values(context: &Context, hook: &str, outcome: &RunOutcome) -> Result<(), Failure> {
    if outcome.values.is_empty() {
        return Ok(());
    }
    let data = context.instance.data();
    let Some(values) = &data.values else { return Err(without_values(hook)) };
    values.apply_changes(hook, &outcome.values).map(|_| ()).map_err(|problems| super::package::failure_of(&problems))
}

/// Only hooks of a deletion run before any settings were found valid.
fn without_values(hook: &str) -> Failure {
    Failure::new(
        "ValuesUnavailable",
        format!("hook '{hook}' sets values, and there are none: neither spec.settings nor the defaults satisfy the schema"),
    )
    .hint("let the hook set no values, or skip the delete hooks with the annotation packages.deckhouse.io/skip-delete-hooks")
}

/// Field manager of what the hooks of an application ask for.
pub(super) fn manager_of(application: &ApplicationId) -> String {
    format!("barbless-hooks-{}", application.name())
}

/// Why the settling of a run ends before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// Its time is up.
    Late,
    /// The application is removed or suspended.
    Stopped(&'static str),
}

/// How long settling may go on.
struct Until<'a> {
    deadline: Instant,
    stop: &'a Stop,
}

impl<'a> Until<'a> {
    fn from_now(stop: &'a Stop) -> Self {
        Self { deadline: Instant::now() + SETTLING, stop }
    }

    /// Waits for the end.
    async fn reached(&self) -> Interruption {
        tokio::select! {
            biased;
            () = self.stop.operations.cancelled() => Interruption::Stopped(self.stop.operations_why()),
            () = tokio::time::sleep_until(self.deadline) => Interruption::Late,
        }
    }

    /// Whether it is there already.
    fn is_reached(&self) -> Option<Interruption> {
        if self.stop.operations.is_cancelled() {
            return Some(Interruption::Stopped(self.stop.operations_why()));
        }
        (Instant::now() >= self.deadline).then_some(Interruption::Late)
    }
}

/// Carries out one operation.
trait Perform: Sync {
    fn perform<'a>(&'a self, operation: &'a Operation) -> BoxFuture<'a, OperationResult>;
}

/// The hands of an application in its cluster.
struct Hands<'a> {
    context: &'a Context,
    manager: String,
    jq: jq::Patches<'a>,
}

impl Perform for Hands<'_> {
    fn perform<'a>(&'a self, operation: &'a Operation) -> BoxFuture<'a, OperationResult> {
        let Context { services, instance, .. } = self.context;
        Box::pin(services.cluster.perform(&instance.id, &self.manager, operation, &self.jq))
    }
}

/// Carries operations out in order, until one fails or it has to end. The one that is under way then has a moment to end,
/// so that what became of it is known. Gives the results of all, and why it ended if something is left undone by that.
async fn carry_out(
    operations: Vec<Operation>,
    until: &Until<'_>,
    hands: &impl Perform,
) -> (Results, Option<Interruption>) {
    let mut results = Vec::with_capacity(operations.len());
    let mut interruption = None;
    let mut failed = false;
    for operation in operations {
        if !failed && interruption.is_none() {
            interruption = until.is_reached();
        }
        if failed || interruption.is_some() {
            results.push((operation, OperationResult::Skipped));
            continue;
        }
        let result = {
            let mut work = hands.perform(&operation);
            tokio::select! {
                biased;
                result = &mut work => result,
                why = until.reached() => match tokio::time::timeout(SETTLING_GRACE, &mut work).await {
                    Ok(result) => result,
                    Err(_elapsed) => {
                        interruption = Some(why);
                        let message = "the API server did not answer before this had to end".to_owned();
                        OperationResult::Failed { reason: OUTCOME_UNKNOWN.to_owned(), message }
                    }
                },
            }
        };
        failed = matches!(result, OperationResult::Failed { .. });
        results.push((operation, result));
    }
    (results, interruption)
}

/// Keeps the values that a run set. They were checked before the operations, and nobody else commits meanwhile; a new
/// package may have been taken into use, so the whole document is validated again.
pub(super) fn commit_values(context: &Context, hook: &str, outcome: &RunOutcome) -> Result<bool, Failure> {
    if outcome.values.is_empty() {
        return Ok(false);
    }
    let mut data = context.instance.data();
    let Some(values) = &data.values else { return Err(without_values(hook)) };
    let changed =
        values.apply_changes(hook, &outcome.values).map_err(|problems| super::package::failure_of(&problems))?;
    let differs = changed.computed().digest != values.computed().digest;
    data.values = Some(changed);
    Ok(differs)
}

/// The failure that the end of a run stands for.
pub(super) fn failure_of(hook: &str, end: &RunEnd) -> Option<Failure> {
    if end.is_ok() {
        return None;
    }
    let retry_after_ms = match end {
        RunEnd::HookError(error) => error.retry_after_ms,
        _ => None,
    };
    let reason = match end {
        RunEnd::HookError(error) => error.code.as_str(),
        other => other.reason(),
    };
    let message = format!("hook '{hook}': {end}");
    Some(Failure { reason: reason.to_owned(), message, hint: hint_of(end), retry_after_ms })
}

/// What to do about the end of a run.
pub(crate) fn hint_of(end: &RunEnd) -> Option<String> {
    let hint = match end {
        RunEnd::HookError(error) => return error.hint.clone(),
        // The engine tells no more than that. In safe Rust nothing else gets beyond the memory: the stack comes first in
        // it, and grows towards its beginning. What ends the stack of calls has a reason of its own.
        RunEnd::Trap { message, panic: None, .. } if message.contains("out of bounds memory access") => {
            "probably the stack in the memory of the component is used up: by recursion that does not end, or by large values \
             on the stack; the log lines before the trap are in the run record"
        }
        RunEnd::Trap { .. } => "the log lines before the trap are in the run record",
        RunEnd::TimedOut { .. } | RunEnd::OutOfMemory { .. } => "let the hook do less at once, or raise its limit",
        RunEnd::TooManyCalls { .. } => {
            "let the hook do less at once; whole snapshots and documents take one call where single objects and values \
             take many"
        }
        RunEnd::Ok
        | RunEnd::Denied { .. }
        | RunEnd::BadOutput { .. }
        | RunEnd::OperationRefused { .. }
        | RunEnd::Unsettled { .. }
        | RunEnd::Cancelled { .. }
        | RunEnd::HostFault { .. } => return None,
    };
    Some(hint.to_owned())
}

/// Keeps the record of a run, and what a replay of it needs.
fn record(
    context: &Context,
    (package, component): (&LoadedPackage, &LinkedComponent),
    input: &Arc<RunInput>,
    outline: InputOutline,
    end: RunEnd,
    outcome: RunOutcome,
    operations: Results,
) -> Arc<RunRecord> {
    let mut said = Said::of(&outcome);
    if end != outcome.end {
        said.end(&end);
    }
    for (_, result) in &operations {
        if let OperationResult::Failed { message, .. } = result {
            said.add(message);
        }
    }
    let told = told(input, package.declaration(&input.hook), &said);
    let record = RunRecord {
        id: 0,
        application: context.instance.id.to_string(),
        hook: input.hook.clone(),
        trigger: input.trigger.clone(),
        attempt: input.attempt,
        component: component.digest.clone(),
        input_digest: outline.digest(&input.hook, &input.trigger, input.attempt, input.now_unix_ms),
        input: outline,
        started_unix_ms: input.now_unix_ms,
        returned: (end != outcome.end).then_some(outcome.end),
        end,
        log: outcome.log,
        operations,
        values: outcome.values,
        metrics: outcome.metrics,
        told,
        usage: outcome.usage,
    };
    let inputs =
        Inputs { input: Arc::clone(input), package: Arc::clone(&package.package), component: component.path.clone() };
    context.services.metrics.ran(&record);
    let (record, kept) = context.services.runs.add(record, Some(inputs));
    if let Err(error) = kept {
        tracing::warn!(application = %context.instance.id, error = crate::report::chain(&error), "a run record is lost");
    }
    record
}
