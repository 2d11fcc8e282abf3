//! A component that is linked for one grant, and the calls that it can be asked for.

use std::sync::Arc;

use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Instance, LogLine, RunEnd, RunInput, RunOutcome, Usage};
use serde_json::Value;
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Lower, Resource};

use crate::component::Component;
use crate::contract::{
    self, AssessResults, CheckResults, ProjectResults, RunParams, RunResults, WitHealthStatus, WitVerdict,
};
use crate::error::CallError;
use crate::lane::Lane;
use crate::machine::Machine;
use crate::outcome;
use crate::state::{Access, State};
use crate::text::shown;

/// Warnings of `check-settings` that are kept.
const WARNINGS_MAX: usize = 100;
/// Bytes of a message to users.
const MESSAGE_BYTES: usize = 4096;

/// A component that is linked for the grant of one application. Cheap to clone.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) linked: Arc<Linked>,
    limits: Arc<GuestLimits>,
}

/// What was linked.
pub(crate) struct Linked {
    pub(crate) machine: Arc<Machine>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) component: Component,
    pub(crate) pre: InstancePre<State>,
    pub(crate) exports: Exports,
}

/// Places of the functions of the component.
pub(crate) struct Exports {
    pub(crate) run: Option<ComponentExportIndex>,
    pub(crate) check: Option<ComponentExportIndex>,
    pub(crate) project: Option<ComponentExportIndex>,
    pub(crate) assess: Option<ComponentExportIndex>,
}

/// An answer, with what it left behind.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome<T> {
    /// The answer.
    pub answer: Result<T, CallError>,
    /// Log lines.
    pub log: Vec<LogLine>,
    /// What it cost.
    pub usage: Usage,
}

/// Answer of `check-settings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The settings can be used; with warnings for the user.
    Allow {
        /// The warnings, bounded and safe to show.
        warnings: Vec<String>,
    },
    /// They cannot.
    Reject {
        /// Why not, bounded and safe to show.
        reason: String,
    },
}

/// Status of an object, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssessedStatus {
    /// All is well.
    Healthy,
    /// Waits for something outside.
    Suspended,
    /// Not yet, but on the way.
    Progressing,
    /// Not there.
    Missing,
    /// Broken.
    Degraded,
    /// Cannot be told.
    Unknown,
}

/// Answer of `assess-health`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The verdict.
    pub status: AssessedStatus,
    /// Why, bounded and safe to show.
    pub message: String,
}

impl Prepared {
    pub(crate) fn new(linked: Linked, limits: Arc<GuestLimits>) -> Self {
        Self { linked: Arc::new(linked), limits }
    }

    /// The component.
    #[must_use]
    pub fn component(&self) -> &Component {
        &self.linked.component
    }

    /// The limits of its calls.
    #[must_use]
    pub fn limits(&self) -> &GuestLimits {
        &self.limits
    }

    /// The same with other limits. The engine's own bounds (memory, table elements, stack) can be lowered, not raised.
    #[must_use]
    pub fn with_limits(&self, limits: &GuestLimits) -> Self {
        let engine = &self.limits;
        let limits = GuestLimits {
            memory_bytes: limits.memory_bytes.min(engine.memory_bytes),
            table_elements: limits.table_elements.min(engine.table_elements),
            stack_bytes: engine.stack_bytes,
            ..limits.clone()
        };
        Self { linked: Arc::clone(&self.linked), limits: Arc::new(limits) }
    }

    /// Runs a hook in a store of its own. Never fails: how it ended is part of the outcome.
    ///
    /// Needs a tokio runtime with timers. Waits for a permit first; that wait counts neither as CPU nor as wall-clock
    /// time. All calls of one application together have at most half of the permits, and as many places among those
    /// who wait: however many it makes at once, another application waits for few of them. The permit belongs to this
    /// future: dropping it ends the guest before the permit is given back.
    ///
    /// *Malicious guests*: every limit of [`GuestLimits`] holds; guest code gives way to other tasks at every tick.
    pub async fn run(&self, input: &Arc<RunInput>) -> RunOutcome {
        let machine = &self.linked.machine;
        let Some(run) = self.linked.exports.run else {
            return fault("the component does not export 'hooks'");
        };
        let Some(_permit) = machine.permit_by(&self.linked.lane).await else {
            return fault("the sandbox is shutting down");
        };
        let state = State::new(Access::Run(Arc::clone(input)), Arc::clone(&self.limits));
        let clock = Arc::clone(&state.clock);
        let mut store = machine.store(state);
        let returned = machine
            .drive(&clock, async {
                let instance = self.linked.pre.instantiate_async(&mut store).await?;
                // Not by the generated bindings: they compare the types of all exports each time, `describe` included.
                let function = instance.get_typed_func::<RunParams<'_>, RunResults>(&mut store, run)?;
                let context = contract::context(input);
                // There is one collector; its number says nothing.
                let patches = Resource::new_borrow(0);
                let (result,) = function.call_async(&mut store, (&input.hook, &context, patches)).await?;
                Ok(result)
            })
            .await;
        let mut state = store.into_data();
        let usage = state.usage();
        let (operations, wrong) = std::mem::take(&mut state.patches).read();
        let end = match returned {
            Ok(Ok(())) => match wrong {
                None => RunEnd::Ok,
                Some(what) => RunEnd::BadOutput { what },
            },
            Ok(Err(error)) => outcome::hook_error(error),
            Err(error) => outcome::failed(&error, &self.limits, state.panic.take()),
        };
        RunOutcome {
            end,
            operations,
            values: state.values.take_changes(),
            log: state.take_log(),
            metrics: state.metrics.take(),
            usage,
        }
    }

    /// Asks `check-settings`. It sees `log` and `instance` alone.
    pub async fn check_settings(&self, instance: &Arc<Instance>, settings: &Value) -> CallOutcome<Verdict> {
        const EXPORT: &str = "check-settings";
        let text = settings.to_string();
        let access = Access::Instance(Arc::clone(instance));
        let outcome = self.call::<_, CheckResults>(EXPORT, self.linked.exports.check, access, (&text,)).await;
        outcome.and_then(|(verdict,)| {
            Ok(match verdict {
                WitVerdict::Allow(warnings) => Verdict::Allow {
                    warnings: warnings.iter().take(WARNINGS_MAX).map(|text| shown(text, MESSAGE_BYTES)).collect(),
                },
                WitVerdict::Reject(reason) => Verdict::Reject { reason: shown(&reason, MESSAGE_BYTES) },
            })
        })
    }

    /// Asks `filter` for the projection of an object. It sees `log` alone.
    pub async fn project(&self, hook: &str, binding: &str, object: &Value) -> CallOutcome<Value> {
        const EXPORT: &str = "filter";
        let text = object.to_string();
        let params = (hook, binding, text.as_str());
        let outcome = self.call::<_, ProjectResults>(EXPORT, self.linked.exports.project, Access::Log, params).await;
        outcome.and_then(|(projection,)| match projection {
            Ok(text) => serde_json::from_str(&text).map_err(|error| CallError::Ended {
                export: EXPORT,
                end: RunEnd::BadOutput { what: format!("the projection is no JSON: {error}") },
            }),
            Err(message) => Err(CallError::Refused { export: EXPORT, message: shown(&message, MESSAGE_BYTES) }),
        })
    }

    /// Asks `assess-health` for its opinion on an object, if it has one. It sees `log` alone.
    pub async fn assess_health(&self, object: &Value) -> CallOutcome<Option<Health>> {
        const EXPORT: &str = "assess-health";
        let text = object.to_string();
        let outcome = self.call::<_, AssessResults>(EXPORT, self.linked.exports.assess, Access::Log, (&text,)).await;
        outcome.and_then(|(health,)| {
            Ok(health.map(|health| Health {
                status: match health.status {
                    WitHealthStatus::Healthy => AssessedStatus::Healthy,
                    WitHealthStatus::Suspended => AssessedStatus::Suspended,
                    WitHealthStatus::Progressing => AssessedStatus::Progressing,
                    WitHealthStatus::Missing => AssessedStatus::Missing,
                    WitHealthStatus::Degraded => AssessedStatus::Degraded,
                    WitHealthStatus::Unknown => AssessedStatus::Unknown,
                },
                message: shown(&health.message, MESSAGE_BYTES),
            }))
        })
    }

    async fn call<P, R>(
        &self,
        export: &'static str,
        index: Option<ComponentExportIndex>,
        access: Access,
        params: P,
    ) -> CallOutcome<R>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let linked = &self.linked;
        let nothing = |error| CallOutcome { answer: Err(error), log: Vec::new(), usage: Usage::default() };
        let Some(index) = index else { return nothing(CallError::NotExported { export }) };
        let Some(_permit) = linked.machine.permit_by(&linked.lane).await else {
            let end = RunEnd::HostFault { what: "the sandbox is shutting down".to_owned() };
            return nothing(CallError::Ended { export, end });
        };
        let state = State::new(access, Arc::clone(&self.limits));
        let clock = Arc::clone(&state.clock);
        let mut store = linked.machine.store(state);
        let returned = linked
            .machine
            .drive(&clock, async {
                let instance = linked.pre.instantiate_async(&mut store).await?;
                let function = instance.get_typed_func::<P, R>(&mut store, index)?;
                function.call_async(&mut store, params).await
            })
            .await;
        let mut state = store.into_data();
        let panic = state.panic.take();
        CallOutcome {
            answer: returned
                .map_err(|error| CallError::Ended { export, end: outcome::failed(&error, &self.limits, panic) }),
            usage: state.usage(),
            log: state.take_log(),
        }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("component", &self.linked.component).finish_non_exhaustive()
    }
}

impl<T> CallOutcome<T> {
    fn and_then<U>(self, then: impl FnOnce(T) -> Result<U, CallError>) -> CallOutcome<U> {
        CallOutcome { answer: self.answer.and_then(then), log: self.log, usage: self.usage }
    }
}

fn fault(what: &str) -> RunOutcome {
    RunOutcome {
        end: RunEnd::HostFault { what: what.to_owned() },
        operations: Vec::new(),
        values: Vec::new(),
        log: Vec::new(),
        metrics: Vec::new(),
        usage: Usage::default(),
    }
}
