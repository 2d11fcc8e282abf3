//! The loop of one application: take an event, ask the domain what to do, do it, feed the answer back.
//!
//! Each application has a task of its own and a bounded channel. An effect runs in a task of its own too, so a panic in
//! one ends that effect and nothing else. Nothing here decides what happens next.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use barbless_domain::effect::{Cause, Effect};
use barbless_domain::event::{Answer, Desired, Event, Failure};
use barbless_domain::pipeline::{self, App};
use barbless_domain::queue::{Moments, Ticket, Time};
use barbless_domain::status::Status;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Registration;
use crate::notice::Notice;

mod bindings;
mod health;
mod hooks;
pub mod instance;
pub(crate) mod jq;
mod lookup;
mod package;
pub(crate) mod rehearsal;
mod release;
mod report;
mod requests;
mod seed;
pub mod shown;
pub(crate) mod trial;

pub(crate) use hooks::{hint_of, in_namespace};
pub use instance::{Instance, Services};
pub(crate) use package::{failure_of, with_hint};
pub(crate) use release::{View, render_package};
pub(crate) use seed::Seed;
use shown::Changes;
pub use shown::State;

/// Events that wait for an application. A sender beyond that waits, and so do the watches behind it.
const EVENTS: usize = 1024;
/// Longest sleep without looking at the clock: the clock of the machine may jump.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// A running application.
#[derive(Debug, Clone)]
pub struct Handle {
    events: mpsc::Sender<Event>,
    state: State,
    objects: Arc<AtomicUsize>,
    stop: CancellationToken,
    /// Cancelled when nobody writes its status any more.
    told: CancellationToken,
}

impl Handle {
    /// Ends the loop, its watches and its schedules; the application stays as it is, for another process to go on with.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the loop has ended and its last status is written, or cannot be. Call [`Self::stop`] before.
    pub async fn ended(&self) {
        self.told.cancelled().await;
    }

    /// Tells the application of something that happened. Waits while too much is waiting already; does nothing once the
    /// application is gone.
    pub async fn send(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// Its state now.
    #[must_use]
    pub fn state(&self) -> Arc<App> {
        self.state.copy()
    }

    /// How many objects the release had when it was applied last.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// Waits until its state satisfies this. Nothing if the application is gone before.
    pub async fn wait_for(&self, holds: impl FnMut(&App) -> bool) -> Option<Arc<App>> {
        self.state.wait_for(holds).await
    }
}

/// The moment of the machine's clock.
#[must_use]
pub fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The clock of a loop: moments for waiting, see [`Moments`].
struct LoopClock {
    moments: Moments,
    started: Instant,
}

impl LoopClock {
    fn start() -> Self {
        Self { moments: Moments::new(now(), Duration::ZERO), started: Instant::now() }
    }

    fn now(&mut self) -> Time {
        self.moments.at(now(), self.started.elapsed())
    }
}

/// Starts the loop of an application.
#[must_use]
pub fn start(services: Arc<Services>, instance: Instance) -> Handle {
    let (events, inbox) = mpsc::channel(EVENTS);
    let (shown, state) = State::new(App::new(instance.id.clone()));
    let (status, statuses) = watch::channel(None);
    let objects = Arc::new(AtomicUsize::new(0));
    let exported = services.metrics.begin(&instance.id.to_string(), shown.clone());
    let context = Arc::new(Context { services, instance, events: events.clone(), objects: Arc::clone(&objects) });
    let told = CancellationToken::new();
    let writer = told.clone().drop_guard();
    let writing = report::write_statuses(Arc::clone(&context), statuses);
    tokio::spawn(async move {
        writing.await;
        drop(writer);
    });
    let stop = CancellationToken::new();
    let driver = Driver {
        context,
        state,
        inbox,
        status,
        flying: BTreeMap::new(),
        stop: stop.clone(),
        clock: LoopClock::start(),
        _exported: exported,
    };
    tokio::spawn(driver.run());
    Handle { events, state: shown, objects, stop, told }
}

/// What performers of effects work with.
struct Context {
    services: Arc<Services>,
    instance: Instance,
    events: mpsc::Sender<Event>,
    objects: Arc<AtomicUsize>,
}

impl Context {
    fn notice(&self, notice: Notice) {
        self.services.notices.send(&self.instance.id.to_string(), notice);
    }
}

struct Driver {
    context: Arc<Context>,
    state: Changes,
    inbox: mpsc::Receiver<Event>,
    status: watch::Sender<Option<Status>>,
    flying: BTreeMap<Ticket, Stop>,
    stop: CancellationToken,
    clock: LoopClock,
    /// Its measurements, as long as the loop goes on.
    _exported: Registration,
}

/// Stops one effect, and says why.
#[derive(Debug, Clone, Default)]
struct Stop {
    token: CancellationToken,
    cause: Arc<OnceLock<Cause>>,
    /// What a hook that has ended asked for is no longer wanted either.
    operations: CancellationToken,
    operations_cause: Arc<OnceLock<Cause>>,
}

impl Stop {
    fn now(&self, cause: Option<Cause>) {
        if let Some(cause) = cause {
            // The first cause stands.
            let _ = self.cause.set(cause);
            if cause.stops_operations() {
                let _ = self.operations_cause.set(cause);
                self.operations.cancel();
            }
        }
        self.token.cancel();
    }

    /// Why what a hook asked for is no longer wanted.
    fn operations_why(&self) -> &'static str {
        self.operations_cause.get().map_or("HostStopping", |cause| cause.as_str())
    }

    /// Why it was stopped, as users see it.
    fn why(&self) -> &'static str {
        self.cause.get().map_or("HostStopping", |cause| cause.as_str())
    }
}

impl Driver {
    async fn run(mut self) {
        while !self.state.read(App::is_finished) {
            let now = self.clock.now();
            let pause = self
                .state
                .read(App::wake)
                .map_or(SLEEP_MAX, |at| Duration::from_millis(at.0.saturating_sub(now.0)).min(SLEEP_MAX));
            let event = tokio::select! {
                event = self.inbox.recv() => match event {
                    Some(event) => event,
                    None => break,
                },
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep(pause) => Event::Tick,
            };
            match &event {
                Event::Answered(ticket, _) => {
                    self.flying.remove(ticket);
                }
                Event::Observed(desired) => self.remember(desired).await,
                _ => {}
            }
            let now = self.clock.now();
            let effects = self.state.step(|app| pipeline::step(app, event, now));
            for effect in effects {
                self.perform(effect);
            }
        }
        for stop in self.flying.values() {
            stop.now(None);
        }
        self.context.instance.stop();
        if self.state.read(App::is_finished) {
            self.context.services.runs.retire(&self.context.instance.id.to_string());
        }
    }

    /// Keeps what performers of effects need to know of the object.
    async fn remember(&self, desired: &Desired) {
        self.context.instance.data().wanted = desired.settings.clone();
        // A deletion that an earlier process began: no status of this one may take its step back. Nothing was written
        // yet, so nobody else holds the lock.
        let is_first = self.state.read(|app| app.desired().is_none());
        if is_first && desired.deletion_step.is_some() {
            *self.context.instance.deletion_step.lock().await = desired.deletion_step;
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Cancel { ticket, cause } => {
                tracing::debug!(application = %self.context.instance.id, ticket = ticket.0, cause = cause.as_str(), "cancelling");
                if let Some(stop) = self.flying.get(&ticket) {
                    stop.now(Some(cause));
                }
            }
            Effect::WriteStatus(status) => {
                self.context.notice(Notice::Status(status.clone()));
                self.status.send_replace(Some(*status));
            }
            effect => {
                let Some(ticket) = effect.ticket() else { return };
                let stop = Stop::default();
                self.flying.insert(ticket, stop.clone());
                tokio::spawn(answer(Arc::clone(&self.context), effect, ticket, stop));
            }
        }
    }
}

/// Performs an effect and sends its answer, whatever happens.
async fn answer(context: Arc<Context>, effect: Effect, ticket: Ticket, stop: Stop) {
    let what = words(&effect);
    let shown = !matches!(effect, Effect::RunHook { .. } | Effect::PersistDeletion { .. } | Effect::CheckDrift { .. });
    if shown {
        context.notice(Notice::Began { what: what.clone() });
    }
    let starts_bindings = matches!(effect, Effect::StartBindings { .. });
    let begun = Instant::now();
    let work = tokio::spawn(act(Arc::clone(&context), effect, stop));
    let answer = work.await.unwrap_or_else(|error| {
        tracing::error!(application = %context.instance.id, %error, "an effect ended in a panic: this is a bug of the host");
        Answer::Failed(Failure::new("InternalError", format!("{what}: the host failed ({error})")))
    });
    match &answer {
        Answer::Failed(failure) | Answer::Refused(failure) => {
            context.notice(Notice::Failed { what, failure: failure.clone() });
        }
        Answer::Cancelled => context.notice(Notice::Ended { what, ms: elapsed_ms(begun), outcome: "cancelled".into() }),
        other if shown => {
            context.notice(Notice::Ended { what, ms: elapsed_ms(begun), outcome: outcome(other) });
        }
        _ => {}
    }
    // Taken before the answer: after it, other bindings may have taken the place of these.
    let gate = if starts_bindings && answer == Answer::Done { bindings::gate(&context).await } else { None };
    let _ = context.events.send(Event::Answered(ticket, answer)).await;
    if let Some(gate) = gate {
        gate.open();
    }
}

fn elapsed_ms(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Each effect is a future of its own on the heap: together they would be a very large one.
async fn act(context: Arc<Context>, effect: Effect, stop: Stop) -> Answer {
    fn boxed(future: impl Future<Output = Answer> + Send + 'static) -> BoxFuture<'static, Answer> {
        Box::pin(future)
    }
    fn done(result: Result<(), Failure>) -> Answer {
        result.map_or_else(Answer::Failed, |()| Answer::Done)
    }
    let work = match effect {
        Effect::Deploy { version, .. } => boxed(async move { done(package::deploy(&context, &version).await) }),
        Effect::Load { version, .. } => {
            boxed(async move { package::load(&context, &version).await.map_or_else(Answer::Failed, Answer::Loaded) })
        }
        Effect::Adopt { .. } => return done(package::adopt(&context)),
        Effect::CheckRequirements { .. } => return Answer::Requirements(package::unmet_requirements(&context)),
        Effect::Configure { settings, .. } => boxed(async move { done(package::configure(&context, settings).await) }),
        Effect::StartBindings { .. } => boxed(async move { bindings::start(&context, &stop.token).await }),
        Effect::StopBindings { .. } => boxed(async move {
            bindings::stop(&context).await;
            Answer::Done
        }),
        Effect::RunHook { hook, trigger, attempt, .. } => {
            boxed(async move { hooks::run(&context, &hook, trigger, attempt, &stop).await })
        }
        // Whether objects are taken over, and what is done about fields of others, is for the plan to use.
        Effect::Render { maintenance, take_over, .. } => boxed(async move {
            let rendered = release::render(&context, maintenance, take_over).await;
            rendered.map_or_else(Answer::Failed, Answer::Rendered)
        }),
        Effect::Apply { take_over, field_conflicts, .. } => boxed(async move {
            let decisions = release::Decisions { take_over, field_conflicts: &field_conflicts };
            release::apply(&context, decisions, &stop.token).await
        }),
        Effect::CheckDrift { .. } => {
            boxed(async move { release::missing(&context).await.map_or_else(Answer::Failed, Answer::Missing) })
        }
        Effect::PinRollback { .. } => {
            boxed(async move { requests::pin_rollback(&context).await.unwrap_or_else(Answer::Failed) })
        }
        Effect::Rollback { revision, field_conflicts, .. } => {
            boxed(async move { requests::roll_back(&context, revision, &field_conflicts, &stop.token).await })
        }
        Effect::SettleRollback { revision, .. } => {
            boxed(async move { done(requests::settle_rollback(&context, revision).await) })
        }
        Effect::Uninstall { skip_hooks, .. } => {
            boxed(async move { release::uninstall(&context, skip_hooks, &stop.token).await })
        }
        Effect::Purge { .. } => boxed(async move { done(release::purge(&context).await) }),
        Effect::Undeploy { .. } => boxed(async move { done(package::undeploy(&context).await) }),
        Effect::PersistDeletion { step, .. } => {
            boxed(async move { done(report::persist_deletion(&context, step).await) })
        }
        Effect::RemoveFinalizer { .. } => boxed(async move { done(report::remove_finalizer(&context).await) }),
        // The loop does these itself.
        Effect::Cancel { .. } | Effect::WriteStatus(_) => return Answer::Done,
    };
    work.await
}

/// An effect in words.
fn words(effect: &Effect) -> String {
    match effect {
        Effect::Deploy { version, .. } => format!("fetch package {version}"),
        Effect::Load { version, .. } => format!("load package {version}"),
        Effect::Adopt { .. } => "take the loaded package into use".to_owned(),
        Effect::CheckRequirements { .. } => "check requirements".to_owned(),
        Effect::Configure { .. } => "check settings".to_owned(),
        Effect::StartBindings { .. } => "start schedules and watches".to_owned(),
        Effect::StopBindings { .. } => "stop schedules and watches".to_owned(),
        Effect::RunHook { hook, trigger, .. } => format!("hook '{hook}' ({})", trigger.as_str()),
        Effect::Render { .. } => "render templates".to_owned(),
        Effect::Apply { .. } => "apply objects".to_owned(),
        Effect::CheckDrift { .. } => "look for missing objects".to_owned(),
        Effect::PinRollback { .. } => "look up the revision to go back to".to_owned(),
        Effect::Rollback { revision, .. } => format!("roll back to revision {revision}"),
        Effect::SettleRollback { .. } => "take the request for the rollback off".to_owned(),
        Effect::Uninstall { .. } => "remove objects".to_owned(),
        Effect::Purge { .. } => "delete orphans".to_owned(),
        Effect::Undeploy { .. } => "forget package".to_owned(),
        Effect::PersistDeletion { step, .. } => format!("write down deletion step {}", step.as_str()),
        Effect::RemoveFinalizer { .. } => "remove finalizer".to_owned(),
        Effect::Cancel { .. } => "cancel".to_owned(),
        Effect::WriteStatus(_) => "write status".to_owned(),
    }
}

fn outcome(answer: &Answer) -> String {
    match answer {
        Answer::Loaded(loaded) => format!("{} hooks", loaded.hooks.len()),
        Answer::Requirements(unmet) if unmet.is_empty() => "all met".to_owned(),
        Answer::Requirements(unmet) => unmet.join("; "),
        Answer::Rendered(rendered) => match &rendered.released {
            Some(last) if last.digest == rendered.digest && rendered.missing == 0 => "unchanged".to_owned(),
            Some(last) if last.holds_against(&rendered.digest) => "put aside by a rollback".to_owned(),
            Some(_) => "changed".to_owned(),
            None => "new".to_owned(),
        },
        Answer::Missing(count) => format!("{count} missing"),
        Answer::Revision(revision) => format!("revision {revision}"),
        _ => "done".to_owned(),
    }
}
