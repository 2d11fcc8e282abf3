//! Carries a plan out: begins steps as they become free, waits for objects, and ends in good order.

use std::collections::BTreeMap;

use barbless_domain::identity::ObjectRef;
use barbless_domain::limits::{TIMEOUT_NAMES, TRACKING_INTERVAL};
use barbless_domain::release::conflict::own_rules;
use barbless_domain::release::tracking::Tracking;
use barbless_domain::release::{
    DeleteCause, Directives, Execution, HelmHook, HookEvent, Outcome, Plan, Readiness, ReleaseAction, Step, StepId,
    Work,
};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::time::Instant;

use super::deploy::{Chronicle, Moment};
use super::waiter::{Ask, Goal, Verdict, Waiter, Waiting, Wanted, finalizers};
use super::{Change, Ended, Progress, ReleaseError, ReleaseOptions, Remaining, Run};
use crate::Cluster;
use crate::error::Error;
use crate::limits::{CLEAN_UP, DRAIN, PARALLEL};
use crate::record::HookPhase;
use crate::request::metadata;

/// What an apply did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Every object of the release that was applied, in order, with what was done to it.
    pub objects: Vec<(ObjectRef, Change)>,
    /// What was deleted because the release dropped it.
    pub pruned: Vec<ObjectRef>,
    /// What was left alone, with the reason.
    pub left: Vec<(ObjectRef, String)>,
    /// What failed although the release went on, with the reason.
    pub tolerated: Vec<(ObjectRef, String)>,
}

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// What was deleted and is observed gone.
    pub deleted: Vec<ObjectRef>,
    /// What was left, with the reason.
    pub left: Vec<(ObjectRef, String)>,
}

impl Cluster {
    /// Carries out a plan that applies: install, upgrade or rollback, or the run of tests.
    ///
    /// # Guarantees
    /// Nothing is written if an object exists that is somebody else's. Fields of other managers are not taken.
    ///
    /// # Errors
    /// See [`ReleaseError`]. What was applied before the error stays.
    pub async fn apply_release(&self, plan: &Plan, options: &ReleaseOptions) -> Result<Applied, ReleaseError> {
        let prepared = Box::pin(self.prepare(plan, options, false)).await?;
        self.carry_out_prepared(plan, options, prepared, Chronicle::default()).await
    }

    /// Carries out the plan of a removal. Objects that are somebody else's, or that the resource policy keeps, are left.
    ///
    /// # Errors
    /// [`ReleaseError::Remaining`] if objects are still there when the time is up, with the finalizers that hold them;
    /// otherwise see [`ReleaseError`].
    pub async fn uninstall(&self, plan: &Plan, options: &ReleaseOptions) -> Result<Removed, ReleaseError> {
        let applied = self.apply_release(plan, options).await?;
        Ok(Removed { deleted: applied.pruned, left: applied.left })
    }

    /// Looks at what is there. Nothing is written. With `take_over`, objects of Helm's release of the same name are ours.
    pub(super) async fn prepare(
        &self,
        plan: &Plan,
        options: &ReleaseOptions,
        take_over: bool,
    ) -> Result<Prepared, ReleaseError> {
        let started = Instant::now();
        let mut prepared = Prepared { started, live: BTreeMap::new() };
        if plan.action != ReleaseAction::Uninstall {
            let (asks, _asked) = mpsc::channel(1);
            let run = Run::new(self, plan, options, prepared.clone(), asks, Chronicle::default());
            prepared.live = run.in_time(run.owned_objects(take_over)).await?;
        }
        Ok(prepared)
    }

    /// Carries out a plan over what was there.
    pub(super) async fn carry_out_prepared(
        &self,
        plan: &Plan,
        options: &ReleaseOptions,
        prepared: Prepared,
        chronicle: Chronicle,
    ) -> Result<Applied, ReleaseError> {
        // A step asks once at a time, and so many work at once.
        let (asks, asked) = mpsc::channel(PARALLEL);
        let run = Run::new(self, plan, options, prepared, asks, chronicle);
        let mut performance = Performance::new(&run, asked);
        Box::pin(performance.perform()).await?;
        Ok(summary(&performance.execution))
    }
}

/// What was there before anything was written.
#[derive(Clone)]
pub(super) struct Prepared {
    started: Instant,
    /// The objects of the plan, by reference.
    live: BTreeMap<ObjectRef, Value>,
}

impl<'a> Run<'a> {
    fn new(
        cluster: &'a Cluster,
        plan: &'a Plan,
        options: &'a ReleaseOptions,
        prepared: Prepared,
        asks: mpsc::Sender<Ask>,
        chronicle: Chronicle,
    ) -> Self {
        let mut rules = options.rules.clone();
        rules.extend(own_rules(&plan.objects));
        let Prepared { started, live } = prepared;
        let until = started + options.deadline;
        Self { cluster, plan, options, started, until, live, asks, rules, chronicle, removal: OnceCell::new() }
    }

    /// The first object is about to be removed.
    async fn removal_begins(&self) {
        self.removal.get_or_init(|| self.chronicle.write(Moment::RemovalBegins)).await;
    }
}

/// What an operation did.
fn summary(execution: &Execution<'_>) -> Applied {
    let plan = execution.plan();
    let mut applied = Applied::default();
    for target in &plan.kept {
        applied.left.push((target.clone(), "its resource policy keeps it".to_owned()));
    }
    let mut objects: BTreeMap<usize, Change> = BTreeMap::new();
    for (step, state) in execution.states() {
        let barbless_domain::release::StepState::Completed(outcome) = state else { continue };
        let Some(target) = plan.target_of(step) else { continue };
        match (&step.work, outcome) {
            (_, Outcome::Tolerated(why)) => applied.tolerated.push((target.clone(), why.clone())),
            (
                Work::Apply { .. } | Work::Hook { .. } | Work::Delete { .. } | Work::Define { .. },
                Outcome::Left(why),
            ) => {
                applied.left.push((target.clone(), why.clone()));
            }
            (Work::Apply { object }, outcome) => {
                if let Some(change) = change_of(outcome) {
                    objects.insert(*object, change);
                }
            }
            (Work::Delete { cause: DeleteCause::Dropped | DeleteCause::Removed, .. }, Outcome::Deleted) => {
                applied.pruned.push(target.clone());
            }
            _ => {}
        }
    }
    let named =
        objects.into_iter().filter_map(|(index, change)| Some((plan.objects.get(index)?.target.clone(), change)));
    applied.objects = named.collect();
    applied
}

fn change_of(outcome: &Outcome) -> Option<Change> {
    match outcome {
        Outcome::Created => Some(Change::Created),
        Outcome::Configured => Some(Change::Configured),
        Outcome::Unchanged => Some(Change::Unchanged),
        Outcome::Recreated => Some(Change::Recreated),
        Outcome::Deleted | Outcome::Done | Outcome::Left(_) | Outcome::Tolerated(_) => None,
    }
}

impl Run<'_> {
    /// Work before the first step, bounded as all of it is.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ReleaseError>>) -> Result<T, ReleaseError> {
        let work = Box::pin(work);
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => Err(ReleaseError::Cancelled),
            outcome = tokio::time::timeout_at(self.until, work) => {
                outcome.unwrap_or_else(|_| Err(self.timed_out(Vec::new())))
            }
        }
    }

    /// The error of a time that is up, naming the first few of those waited for.
    fn timed_out(&self, mut pending: Vec<(ObjectRef, String)>) -> ReleaseError {
        let more = pending.len().saturating_sub(TIMEOUT_NAMES);
        pending.truncate(TIMEOUT_NAMES);
        ReleaseError::TimedOut { after: self.started.elapsed(), pending, more }
    }
}

/// Why no more steps begin.
enum Stop {
    Failed,
    Cancelled,
    TimeUp,
}

/// A step, and how its work ends.
type StepWork<'r> = BoxFuture<'r, (StepId, Result<Ended, ReleaseError>)>;
/// What is waited for, and the object as it is.
type Look<'r> = BoxFuture<'r, (Waiting, Result<Option<Value>, Error>)>;
/// Told that what was asked for has come about, or why it will not.
type Answer = oneshot::Sender<Result<(), String>>;

/// A plan that is being carried out.
struct Performance<'r> {
    run: &'r Run<'r>,
    execution: Execution<'r>,
    waiter: Waiter<'r>,
    /// Steps that make requests.
    work: FuturesUnordered<StepWork<'r>>,
    /// Steps that wait for objects of others: they may take long, and take no place from the rest.
    awaits: FuturesUnordered<StepWork<'r>>,
    /// Looks at what is doubtful.
    looks: FuturesUnordered<Look<'r>>,
    asked: mpsc::Receiver<Ask>,
    /// Who waits in the middle of a step.
    answers: BTreeMap<u64, (StepId, Answer)>,
    asks: u64,
    /// What was applied, as it was then.
    applied: BTreeMap<ObjectRef, Value>,
    /// Uids of what was deleted.
    deleted: BTreeMap<ObjectRef, String>,
    errors: Vec<ReleaseError>,
    /// When it may be told again how far it is.
    tell_at: Option<Instant>,
}

impl<'r> Performance<'r> {
    fn new(run: &'r Run<'r>, asked: mpsc::Receiver<Ask>) -> Self {
        Self {
            run,
            execution: Execution::new(run.plan),
            waiter: Waiter::new(run),
            work: FuturesUnordered::new(),
            awaits: FuturesUnordered::new(),
            looks: FuturesUnordered::new(),
            asked,
            answers: BTreeMap::new(),
            asks: 0,
            applied: BTreeMap::new(),
            deleted: BTreeMap::new(),
            errors: Vec::new(),
            tell_at: None,
        }
    }

    async fn perform(&mut self) -> Result<(), ReleaseError> {
        let result = self.carry_out().await;
        self.tell_how_far();
        result
    }

    async fn carry_out(&mut self) -> Result<(), ReleaseError> {
        let run = self.run;
        let stop = loop {
            self.begin();
            if self.execution.is_complete() {
                return Ok(());
            }
            if !self.errors.is_empty() {
                break Stop::Failed;
            }
            if self.tell_at.is_none_or(|at| at <= Instant::now()) {
                self.tell_how_far();
            }
            let idle_at = self.waiter.idle_at();
            tokio::select! {
                biased;
                () = run.options.cancel.cancelled() => break Stop::Cancelled,
                () = tokio::time::sleep_until(run.until) => break Stop::TimeUp,
                Some((step, ended)) = self.work.next() => self.ended(step, ended),
                Some((step, ended)) = self.awaits.next() => self.ended(step, ended),
                Some((who, found)) = self.looks.next() => self.looked(who, found),
                Some(ask) = self.asked.recv() => self.ask(ask),
                (source, event) = self.waiter.next() => {
                    for (who, verdict) in self.waiter.take(&source, event) {
                        self.judge(who, verdict);
                    }
                }
                // What has changed since it was told is told.
                () = tokio::time::sleep_until(self.tell_at.unwrap_or(run.until)) => {}
                () = tokio::time::sleep_until(idle_at.unwrap_or(run.until)), if idle_at.is_some() => {
                    for (who, why) in self.waiter.idle(Instant::now()) {
                        self.judge(who, Verdict::Failed(why));
                    }
                }
            }
        };
        Err(self.stop(&stop).await)
    }

    /// Tells how far it is, to whoever wants to know.
    fn tell_how_far(&mut self) {
        let run = self.run;
        self.tell_at = Some(Instant::now() + TRACKING_INTERVAL);
        if run.options.tracking.is_closed() {
            return;
        }
        let is_absent = |target: &ObjectRef| run.plan.action.applies() && !run.live.contains_key(target);
        let now = Tracking::of_execution(&self.execution, is_absent);
        run.options.tracking.send_if_modified(|told| {
            let is_news = *told != now;
            *told = now;
            is_news
        });
    }

    /// Begins what may begin.
    fn begin(&mut self) {
        loop {
            let room = PARALLEL.saturating_sub(self.work.len());
            let steps = self.execution.start(room);
            if steps.is_empty() {
                return;
            }
            for step in steps {
                self.begin_step(step);
            }
        }
    }

    fn begin_step(&mut self, step: &'r Step) {
        let (run, id) = (self.run, step.id);
        match &step.work {
            Work::Stage { .. } => self.execution.complete(id, Outcome::Done),
            Work::Define { definition } => match run.plan.definitions.get(*definition) {
                Some(definition) => self.work.push(async move { (id, run.define(id, definition).await) }.boxed()),
                None => self.execution.complete(id, Outcome::Done),
            },
            Work::Apply { object } => match run.plan.objects.get(*object) {
                Some(object) => self.work.push(async move { (id, run.apply(id, object).await) }.boxed()),
                None => self.execution.complete(id, Outcome::Done),
            },
            Work::Hook { event, hook } => match run.plan.hook(*event, *hook) {
                Some(hook) => {
                    run.tell(Progress::HookStarted { target: hook.target.clone(), event: *event });
                    self.work.push(async move { (id, run.hook(id, hook).await) }.boxed());
                }
                None => self.execution.complete(id, Outcome::Done),
            },
            Work::Delete { target, propagation, cause } => {
                let uid = match cause {
                    DeleteCause::Succeeded => self.applied.get(target).and_then(|it| metadata(it, "uid")),
                    DeleteCause::Dropped | DeleteCause::Removed => None,
                };
                let uid = uid.map(str::to_owned);
                let work = async move {
                    let ended = match cause {
                        DeleteCause::Succeeded => run.delete_applied(target, uid, *propagation).await,
                        DeleteCause::Dropped => run.delete(target, *propagation).await,
                        DeleteCause::Removed => {
                            run.removal_begins().await;
                            run.delete(target, *propagation).await
                        }
                    };
                    (id, ended)
                };
                self.work.push(work.boxed());
            }
            Work::Await { external } => {
                self.awaits.push(async move { (id, run.await_external(id, external).await) }.boxed());
            }
            Work::Defined { .. } => match run.plan.target_of(step) {
                Some(target) => self.add(id, target, Goal::Established),
                None => self.execution.complete(id, Outcome::Done),
            },
            Work::Ready { object } => self.begin_ready(id, *object),
            Work::HookEnd { event, hook } => self.begin_hook_end(id, *event, *hook),
            Work::Gone { target } => match self.deleted.get(target).cloned() {
                Some(uid) => self.add(id, target, Goal::Gone { uid }),
                None => self.execution.complete(id, Outcome::Done),
            },
        }
    }

    fn begin_ready(&mut self, id: StepId, object: usize) {
        let Some(target) = self.run.plan.objects.get(object).map(|object| &object.target) else { return };
        let state = self.applied.get(target).map(|applied| (self.run.options.ready)(applied));
        match state {
            // It was left alone.
            None => self.execution.complete(id, Outcome::Done),
            Some(Readiness::Ready) => self.ready(id, target),
            Some(Readiness::Waiting(why)) => {
                self.run.tell(Progress::Waiting { target: target.clone(), why });
                self.add(id, target, Goal::Ready);
            }
            // The state may be of an earlier apply; the watch tells whether it stays.
            Some(Readiness::Failed(_)) => self.add(id, target, Goal::Ready),
        }
    }

    fn begin_hook_end(&mut self, id: StepId, event: HookEvent, hook: usize) {
        let Some(hook) = self.run.plan.hook(event, hook) else { return };
        let target = &hook.target;
        match self.applied.get(target).and_then(|applied| metadata(applied, "uid")).map(str::to_owned) {
            Some(uid) if hook.runs_once() => self.add(id, target, Goal::Ended { uid }),
            Some(_) => self.hook_ended(id, event, hook),
            // It was left alone.
            None => self.execution.complete(id, Outcome::Done),
        }
    }

    /// Lets a step wait for an object.
    fn add(&mut self, id: StepId, target: &ObjectRef, goal: Goal) {
        let seen = self.applied.get(target).filter(|_| !matches!(goal, Goal::Gone { .. })).cloned();
        let why = match (&goal, seen.as_ref()) {
            (Goal::Ready, Some(seen)) => match (self.run.options.ready)(seen) {
                Readiness::Ready => "it is ready".to_owned(),
                Readiness::Waiting(why) | Readiness::Failed(why) => why,
            },
            (Goal::Ready | Goal::Present, _) => "it is not ready".to_owned(),
            (Goal::Ended { .. }, _) => "it has not ended".to_owned(),
            (Goal::Gone { .. }, _) => "it is still there".to_owned(),
            (Goal::Established, _) => "it is not established".to_owned(),
        };
        let no_activity = match goal {
            Goal::Ready => seen.as_ref().and_then(|seen| Directives::of(seen).no_activity),
            _ => None,
        };
        self.execution.waiting(id, &why);
        let is_created = !self.run.live.contains_key(target);
        let wanted = Wanted { target: target.clone(), goal, seen, why, no_activity, is_created };
        if let Some(verdict) = self.waiter.add(Waiting::Step(id), wanted) {
            self.judge(Waiting::Step(id), verdict);
        }
    }

    fn ask(&mut self, Ask { step, target, goal, done }: Ask) {
        self.asks += 1;
        let who = Waiting::Asked(self.asks);
        self.answers.insert(self.asks, (step, done));
        let why = match goal {
            Goal::Gone { .. } => format!("{target} is still there"),
            _ => format!("{target} is not ready"),
        };
        self.execution.waiting(step, &why);
        let wanted = Wanted { target, goal, seen: None, why, no_activity: None, is_created: false };
        if let Some(verdict) = self.waiter.add(who, wanted) {
            self.judge(who, verdict);
        }
    }

    /// The work of a step ended.
    fn ended(&mut self, id: StepId, ended: Result<Ended, ReleaseError>) {
        let Some(step) = self.run.plan.steps.get(id.index()) else { return };
        let Ended { outcome, object, deleted } = match ended {
            Ok(ended) => ended,
            // It was given up in the middle.
            Err(ReleaseError::Cancelled) => return,
            Err(error) => return self.fail(id, error),
        };
        if let Some(target) = self.run.plan.target_of(step) {
            if let Some(object) = object {
                self.applied.insert(target.clone(), object);
            }
            if let Some(uid) = deleted {
                self.deleted.insert(target.clone(), uid);
            }
            let target = target.clone();
            match (&step.work, &outcome) {
                (_, Outcome::Left(why)) => self.run.tell(Progress::Left { target, why: why.clone() }),
                (Work::Apply { .. } | Work::Define { .. }, outcome) => {
                    if let Some(change) = change_of(outcome) {
                        self.run.tell(Progress::Applied { target, change });
                    }
                }
                (Work::Delete { .. }, Outcome::Deleted) => self.run.tell(Progress::Deleting { target }),
                _ => {}
            }
        }
        self.execution.complete(id, outcome);
    }

    /// What an observation means for one who waits.
    fn judge(&mut self, who: Waiting, verdict: Verdict) {
        let Some(target) = self.waiter.target(who).cloned() else { return };
        match (verdict, who) {
            (Verdict::Doubtful, _) => {
                let cluster = self.run.cluster;
                self.looks.push(async move { (who, cluster.get(&target).await) }.boxed());
            }
            (Verdict::Pending(why), _) => {
                self.waiter.pending(who, &why);
                let step = match who {
                    Waiting::Step(step) => Some(step),
                    Waiting::Asked(number) => self.answers.get(&number).map(|(step, _)| *step),
                };
                if step.is_some_and(|step| self.execution.waiting(step, &why)) {
                    self.run.tell(Progress::Waiting { target, why });
                }
            }
            (Verdict::Done, Waiting::Step(id)) => {
                self.waiter.remove(who);
                self.reached(id, &target);
            }
            (Verdict::Failed(why), Waiting::Step(id)) => {
                self.waiter.remove(who);
                self.failed(id, target, why);
            }
            (verdict, Waiting::Asked(number)) => {
                self.waiter.remove(who);
                if let Some((_, done)) = self.answers.remove(&number) {
                    let answer = match verdict {
                        Verdict::Failed(why) => Err(why),
                        _ => Ok(()),
                    };
                    let _ = done.send(answer);
                }
            }
        }
    }

    fn looked(&mut self, who: Waiting, found: Result<Option<Value>, Error>) {
        let found = match found {
            Ok(found) => found,
            // With its definition all objects of a kind are gone.
            Err(Error::KindNotServed { .. }) => None,
            Err(error) => {
                return self.judge(who, Verdict::Pending(format!("it cannot be observed: {}", error.chain())));
            }
        };
        if let Some(verdict) = self.waiter.confirmed(who, found.as_ref()) {
            self.judge(who, verdict);
        }
    }

    /// What a step waited for has come about.
    fn reached(&mut self, id: StepId, target: &ObjectRef) {
        match self.run.plan.steps.get(id.index()).map(|step| &step.work) {
            Some(Work::HookEnd { event, hook }) => {
                if let Some(hook) = self.run.plan.hook(*event, *hook) {
                    self.hook_ended(id, *event, hook);
                }
            }
            Some(Work::Gone { .. }) => {
                self.run.tell(Progress::Gone { target: target.clone() });
                self.execution.complete(id, Outcome::Done);
            }
            _ => self.ready(id, target),
        }
    }

    fn ready(&mut self, id: StepId, target: &ObjectRef) {
        if target.gvk.kind == "CustomResourceDefinition" {
            self.run.cluster.forget_kinds();
        }
        self.run.tell(Progress::Ready { target: target.clone() });
        self.execution.complete(id, Outcome::Done);
    }

    fn hook_ended(&mut self, id: StepId, event: HookEvent, hook: &HelmHook) {
        if hook.is_definition() {
            self.run.cluster.forget_kinds();
        }
        self.run.chronicle.hook_ended(&hook.target, HookPhase::Succeeded);
        self.run.tell(Progress::HookSucceeded { target: hook.target.clone(), event });
        self.execution.complete(id, Outcome::Done);
    }

    /// What a step waited for has failed. The containers of a hook are asked first what they said.
    fn failed(&mut self, id: StepId, target: ObjectRef, why: String) {
        let run = self.run;
        let hook = match run.plan.steps.get(id.index()).map(|step| &step.work) {
            Some(Work::HookEnd { event, hook }) => run.plan.hook(*event, *hook),
            _ => None,
        };
        let uid = self.applied.get(&target).and_then(|applied| metadata(applied, "uid")).map(str::to_owned);
        let (Some(hook), Some(uid)) = (hook, uid) else {
            return self.fail(id, ReleaseError::ObjectFailed { target: Box::new(target), why });
        };
        // The watch of the Pods may be behind that of the hook.
        let knows_trouble = self.waiter.knows_trouble(&target);
        let work = async move {
            let trouble = if knows_trouble { String::new() } else { run.trouble_of(&target, &uid).await };
            let said = run.output_of(&hook.object, &target, &uid).await;
            (id, Err(ReleaseError::ObjectFailed { target: Box::new(target), why: format!("{why}{trouble}{said}") }))
        };
        self.work.push(work.boxed());
    }

    fn fail(&mut self, id: StepId, error: ReleaseError) {
        let plan = self.run.plan;
        let step = plan.steps.get(id.index());
        let error = match (step.map(|step| &step.work), error) {
            (Some(Work::Hook { event, .. } | Work::HookEnd { event, .. }), error) => {
                let error = match error {
                    ReleaseError::ObjectFailed { target, why } => {
                        ReleaseError::HookFailed { target, event: *event, why }
                    }
                    other => other,
                };
                if let Some(target) = step.and_then(|step| plan.target_of(step)) {
                    self.run.chronicle.hook_ended(target, HookPhase::Failed);
                    let (target, event) = (target.clone(), *event);
                    self.run.tell(Progress::HookFailed { target, event, why: error.chain() });
                }
                error
            }
            (_, error) => error,
        };
        let why = error.chain();
        if self.execution.fail(id, &why) {
            self.errors.push(error);
        } else if let Some(target) = step.and_then(|step| plan.target_of(step)) {
            self.run.tell(Progress::Tolerated { target: target.clone(), why });
        }
    }

    /// Ends in good order: what is being written is written, nothing else begins, and policies of failures are heeded.
    async fn stop(&mut self, stop: &Stop) -> ReleaseError {
        let timed_out = match stop {
            Stop::TimeUp => Some(self.timed_out().await),
            Stop::Failed | Stop::Cancelled => None,
        };
        self.asked.close();
        self.answers.clear();
        let drained = tokio::time::timeout(DRAIN, async {
            while let Some((step, ended)) = self.work.next().await {
                self.ended(step, ended);
            }
        });
        if drained.await.is_err() {
            tracing::warn!(application = %self.run.application(), "requests are given up that had no answer");
        }
        if timed_out.is_some() {
            // Whoever has not ended in time has failed.
            let waiting: Vec<(StepId, String)> = self
                .execution
                .unfinished()
                .filter(|(step, _)| matches!(step.work, Work::HookEnd { .. } | Work::Ready { .. }))
                .map(|(step, why)| (step.id, why.to_owned()))
                .collect();
            for (step, why) in waiting {
                self.fail(
                    step,
                    ReleaseError::ObjectFailed {
                        target: match self
                            .run
                            .plan
                            .steps
                            .get(step.index())
                            .and_then(|step| self.run.plan.target_of(step))
                        {
                            Some(target) => Box::new(target.clone()),
                            None => continue,
                        },
                        why: format!("the time is up: {why}"),
                    },
                );
            }
        }
        self.execution.give_up();
        self.clean_up().await;
        match stop {
            Stop::TimeUp => timed_out.unwrap_or(ReleaseError::Cancelled),
            Stop::Cancelled => ReleaseError::Cancelled,
            Stop::Failed => self.first_error(),
        }
    }

    /// The first error; of conflicts all that were found.
    fn first_error(&mut self) -> ReleaseError {
        let mut errors = std::mem::take(&mut self.errors).into_iter();
        match errors.next() {
            Some(ReleaseError::FieldConflict { mut conflicts }) => {
                for error in errors {
                    if let ReleaseError::FieldConflict { conflicts: more } = error {
                        conflicts.extend(more);
                    }
                }
                conflicts.sort_by(|a, b| a.object.cmp(&b.object));
                ReleaseError::FieldConflict { conflicts }
            }
            Some(error) => error,
            None => ReleaseError::Cancelled,
        }
    }

    /// The error of a time that is up: what is waited for and why it is not done.
    async fn timed_out(&mut self) -> ReleaseError {
        let plan = self.run.plan;
        let mut pending: Vec<(ObjectRef, String)> = Vec::new();
        let mut only_going = true;
        for (step, why) in self.execution.unfinished() {
            let why = self.waiter.reason(Waiting::Step(step.id)).unwrap_or_else(|| why.to_owned());
            let target = match &step.work {
                Work::Await { external } => Some(external.reference(self.run.application())),
                _ => plan.target_of(step).cloned(),
            };
            only_going &= matches!(step.work, Work::Gone { .. });
            pending.extend(target.map(|target| (target, why)));
        }
        if pending.is_empty() || !only_going {
            return self.run.timed_out(pending);
        }
        let after = self.run.started.elapsed();
        let more = pending.len().saturating_sub(TIMEOUT_NAMES);
        let mut remaining = Vec::new();
        for (target, _) in pending.into_iter().take(TIMEOUT_NAMES) {
            let look = tokio::time::timeout(DRAIN, self.run.cluster.get(&target)).await;
            let live = look.ok().and_then(Result::ok).flatten();
            let finalizers = live.as_ref().map(finalizers).unwrap_or_default();
            remaining.push(Remaining { target, finalizers });
        }
        ReleaseError::Remaining { after, remaining, more }
    }

    /// Deletes what the policies of failed hooks and objects want deleted. A failure is only logged: the operation has
    /// failed already.
    async fn clean_up(&mut self) {
        let run = self.run;
        let deletions = async {
            for todo in self.execution.clean_up() {
                let target = &todo.target;
                let uid = self.applied.get(target).and_then(|it| metadata(it, "uid")).map(str::to_owned);
                match run.delete_applied(target, uid, todo.propagation).await {
                    Ok(Ended { outcome: Outcome::Deleted, .. }) => {
                        run.tell(Progress::Deleting { target: target.clone() })
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%target, error = error.chain(), "cannot delete what failed"),
                }
            }
        };
        if tokio::time::timeout(CLEAN_UP, deletions).await.is_err() {
            tracing::warn!(application = %run.application(), "not all that failed could be deleted in time");
        }
    }
}
