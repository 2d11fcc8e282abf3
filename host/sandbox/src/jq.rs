//! jq programs of packages, evaluated by a component of our own in the same sandbox as hooks.
//!
//! A program is as untrusted as a hook. jaq in this process would let it read the environment, end the process or use
//! all memory; in a component it has none of these within its reach, and time and memory are bounded as for hooks.
//! Making an instance and compiling a program takes a millisecond, so instances are kept warm: each belongs to one
//! filter for its whole life, and is dropped after anything but an orderly end.
//!
//! Filters that only pick fields, which most are, do not even need the component: see `fast`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use barbless_domain::limits::{
    GuestLimits, JQ_APPLIES_PER_INSTANCE, JQ_PROGRAM_BYTES, JQ_WARM_BYTES, JQ_WARM_INSTANCES, JqLimits,
};
use barbless_domain::run::{Clock, Panic, RunEnd};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Store, Trap};

use crate::component::Sandbox;
use crate::error::LoadError;
use crate::machine::{CallClock, Machine};
use crate::outcome;
use crate::state::{Access, State};
use crate::text::shown;

mod contract;
mod error;
mod fast;

pub use error::JqError;

use contract::exports::barbless::jq::evaluator::{Bounds, Failure, Refusal};
use contract::{Jq, JqPre};
use fast::Shape;

/// Bytes of a message to users.
const MESSAGE_BYTES: usize = 4096;
/// Bytes that one output counts for beside its text when results are carried out of the component.
const OUTPUT_OVERHEAD: u64 = 64;

impl Sandbox {
    /// Takes a jq program that is applied to many objects, with the default limits.
    ///
    /// The first call on a host compiles the evaluator; needs a tokio runtime with timers.
    ///
    /// *Malicious guests*: size, time and memory of reading the program are bounded.
    ///
    /// # Errors
    /// [`JqError::BadProgram`] with the place and a hint, or that it is too large; [`JqError::Unavailable`] if there is
    /// no evaluator.
    pub async fn jq(&self, program: &str) -> Result<JqFilter, JqError> {
        self.jq_with(program, JqLimits::default()).await
    }

    /// [`Sandbox::jq`] with limits. Memory is also bounded by what a guest of this sandbox may have.
    ///
    /// # Errors
    /// As [`Sandbox::jq`].
    pub async fn jq_with(&self, program: &str, limits: JqLimits) -> Result<JqFilter, JqError> {
        if program.len() > JQ_PROGRAM_BYTES {
            let limit = JQ_PROGRAM_BYTES as u64;
            return Err(JqError::TooLarge { what: "bytes of the program", limit });
        }
        let evaluator = self.evaluator().await.map_err(|error| JqError::Unavailable {
            what: shown(&format!("the evaluator cannot be loaded: {error}"), MESSAGE_BYTES),
        })?;
        let guest = Arc::new(GuestLimits {
            cpu_ms: limits.cpu_ms,
            wall_ms: limits.wall_ms,
            memory_bytes: limits.memory_bytes.min(self.limits().memory_bytes),
            call_bytes: limits
                .output_bytes
                .saturating_add(u64::from(limits.outputs).saturating_mul(OUTPUT_OVERHEAD))
                .saturating_add(64 * 1024),
            ..evaluator.limits.clone()
        });
        let filter = JqFilter(Arc::new(Filter {
            evaluator: Arc::clone(evaluator),
            id: evaluator.filters.fetch_add(1, Ordering::Relaxed),
            program: program.to_owned(),
            shape: Shape::of(program),
            limits,
            guest,
        }));
        // Whether it is a program at all only the evaluator knows.
        let started = Instant::now();
        let turn = evaluator.turn(started, &filter.0.limits)?;
        let warm = filter.0.fresh()?;
        drop(turn);
        filter.0.keep(warm);
        Ok(filter)
    }
}

/// A jq program that can be applied to objects, from any thread. Cheap to clone.
#[derive(Clone)]
pub struct JqFilter(Arc<Filter>);

impl JqFilter {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.0.program
    }

    /// Whether it only picks fields, so that it is evaluated without an instance of the evaluator.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.shape.is_some()
    }

    /// Applies it to a JSON text. Each output is JSON on one line with sorted keys; there may be none.
    ///
    /// The same text always gives the same outputs. Keeps this thread busy until the end, which is at most the CPU time
    /// of the limits away, and the wall-clock time if other filters keep all instances busy.
    ///
    /// *Malicious guests*: CPU and wall-clock time, memory, stack, and bytes and number of outputs are bounded; whatever
    /// goes wrong, the next call begins with an instance that knows nothing of this one.
    ///
    /// # Errors
    /// [`JqError`], each limit by its own variant.
    pub fn apply(&self, input: &[u8]) -> Result<Vec<Vec<u8>>, JqError> {
        if let Some(picked) = self.pick(input) {
            return picked;
        }
        let filter = &*self.0;
        if input.len() as u64 > filter.limits.input_bytes {
            return Err(JqError::TooLarge { what: "bytes of the input", limit: filter.limits.input_bytes });
        }
        let text = std::str::from_utf8(input).map_err(|error| JqError::BadInput { message: error.to_string() })?;
        filter.evaluate(text)
    }

    /// What [`JqFilter::apply`] gives, if the program only picks fields and the input lets it: in one pass, without
    /// waiting for anything. `None` means that [`JqFilter::apply`] has to be called, which is best done on a thread that
    /// may block.
    #[must_use]
    pub fn pick(&self, input: &[u8]) -> Option<Result<Vec<Vec<u8>>, JqError>> {
        let filter = &*self.0;
        let shape = filter.shape.as_ref()?;
        if input.len() as u64 > filter.limits.input_bytes {
            return None;
        }
        let output = shape.apply(std::str::from_utf8(input).ok()?)?;
        Some(filter.bounded(output).map(|output| vec![output]))
    }

    /// [`JqFilter::apply`], but always by the evaluator. For tests, which compare the two.
    ///
    /// # Errors
    /// As [`JqFilter::apply`].
    #[doc(hidden)]
    pub fn apply_in_evaluator(&self, input: &str) -> Result<Vec<Vec<u8>>, JqError> {
        self.0.evaluate(input)
    }
}

impl std::fmt::Debug for JqFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JqFilter").field("program", &self.0.program).field("plain", &self.is_plain()).finish()
    }
}

struct Filter {
    evaluator: Arc<Evaluator>,
    id: u64,
    program: String,
    shape: Option<Shape>,
    limits: JqLimits,
    /// The same limits, as stores know them.
    guest: Arc<GuestLimits>,
}

/// An instance that has compiled the program of its filter.
struct Warm {
    store: Store<State>,
    jq: Jq,
    applies: u32,
}

impl Filter {
    fn bounded(&self, output: Vec<u8>) -> Result<Vec<u8>, JqError> {
        if self.limits.outputs == 0 {
            return Err(JqError::TooLarge { what: "outputs", limit: 0 });
        }
        if output.len() as u64 > self.limits.output_bytes {
            return Err(JqError::TooLarge { what: "bytes of output", limit: self.limits.output_bytes });
        }
        Ok(output)
    }

    fn evaluate(&self, input: &str) -> Result<Vec<Vec<u8>>, JqError> {
        let _turn = self.evaluator.turn(Instant::now(), &self.limits)?;
        let mut warm = match self.evaluator.take(self.id) {
            Some(warm) => warm,
            None => self.fresh()?,
        };
        let bounds =
            Bounds { bytes: u32::try_from(self.limits.output_bytes).unwrap_or(u32::MAX), outputs: self.limits.outputs };
        let clock = Arc::new(CallClock::start(&self.guest));
        warm.store.data_mut().clock = Arc::clone(&clock);
        warm.store.set_epoch_deadline(1);
        let exports = warm.jq.barbless_jq_evaluator();
        let returned = self.evaluator.machine.drive_here(&clock, exports.call_apply(&mut warm.store, input, bounds));
        let answer = returned.map_err(|error| self.ended(&error, &mut warm))?;
        warm.applies += 1;
        self.keep(warm);
        match answer {
            Ok(outputs) => Ok(outputs.into_iter().map(String::into_bytes).collect()),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&self, failure: Failure) -> JqError {
        match failure {
            Failure::Raised(message) => JqError::Failed { message: shown(&message, MESSAGE_BYTES) },
            Failure::BadInput(message) => JqError::BadInput { message: shown(&message, MESSAGE_BYTES) },
            Failure::TooDeep(levels) => JqError::TooLarge { what: "levels of the input", limit: u64::from(levels) },
            Failure::TooManyBytes => JqError::TooLarge { what: "bytes of output", limit: self.limits.output_bytes },
            Failure::TooManyOutputs => JqError::TooLarge { what: "outputs", limit: u64::from(self.limits.outputs) },
        }
    }

    /// An instance with the program compiled.
    fn fresh(&self) -> Result<Warm, JqError> {
        let evaluator = &*self.evaluator;
        let mut store = evaluator.machine.store(State::new(Access::Log, Arc::clone(&self.guest)));
        let clock = Arc::clone(&store.data().clock);
        let made = evaluator.machine.drive_here(&clock, evaluator.pre.instantiate_async(&mut store));
        let jq = match made {
            Ok(jq) => jq,
            Err(error) => return Err(self.judge(&error, store.data_mut().panic.take())),
        };
        let mut warm = Warm { store, jq, applies: 0 };
        let exports = warm.jq.barbless_jq_evaluator();
        let compiled = evaluator.machine.drive_here(&clock, exports.call_compile(&mut warm.store, &self.program));
        match compiled {
            Ok(Ok(())) => Ok(warm),
            Ok(Err(refusal)) => Err(refused(&self.program, &refusal)),
            Err(error) => Err(match self.ended(&error, &mut warm) {
                JqError::OutOfMemory { what: "stack", .. } => {
                    JqError::bad_program(&self.program, 0, "it is nested too deeply".to_owned(), "")
                }
                error => error,
            }),
        }
    }

    /// Keeps an instance for the next object, unless it has had its time.
    fn keep(&self, warm: Warm) {
        let is_spent = warm.applies >= JQ_APPLIES_PER_INSTANCE || warm.store.data().memory.bytes() > JQ_WARM_BYTES;
        if !is_spent {
            self.evaluator.give(self.id, warm);
        }
    }

    fn ended(&self, error: &wasmtime::Error, warm: &mut Warm) -> JqError {
        let panic = warm.store.data_mut().panic.take();
        self.judge(error, panic)
    }

    fn judge(&self, error: &wasmtime::Error, panic: Option<Panic>) -> JqError {
        // The evaluator is safe Rust: beyond its memory it only gets when the stack, which comes first, is used up.
        if let Some(Trap::MemoryOutOfBounds) = error.downcast_ref::<Trap>() {
            return JqError::OutOfMemory { what: "stack", limit: self.guest.stack_bytes };
        }
        let message = panic.as_ref().map(|panic| panic.message.clone());
        match outcome::failed(error, &self.guest, panic) {
            RunEnd::TimedOut { clock, limit_ms } => JqError::TimedOut { clock, limit_ms },
            RunEnd::OutOfMemory { what, limit } => {
                JqError::OutOfMemory { what: if what == "stack" { "stack" } else { "memory" }, limit }
            }
            RunEnd::BadOutput { .. } => JqError::TooLarge { what: "bytes of output", limit: self.limits.output_bytes },
            RunEnd::HostFault { what } => JqError::Unavailable { what },
            // Asked for more than an address can say.
            RunEnd::Trap { .. } if message.as_ref().is_some_and(|message| message.contains("capacity overflow")) => {
                JqError::OutOfMemory { what: "memory", limit: self.guest.memory_bytes }
            }
            RunEnd::Trap { message: trap, .. } => JqError::Crashed { message: message.unwrap_or(trap) },
            end => JqError::Crashed { message: end.to_string() },
        }
    }
}

fn refused(program: &str, refusal: &Refusal) -> JqError {
    let offset = usize::try_from(refusal.offset).unwrap_or(usize::MAX);
    JqError::bad_program(program, offset, shown(&refusal.message, MESSAGE_BYTES), &refusal.missing)
}

impl Drop for Filter {
    fn drop(&mut self) {
        let gone = {
            let mut idle = self.evaluator.idle();
            let (gone, kept) =
                std::mem::take(&mut *idle).into_iter().partition::<VecDeque<_>, _>(|(id, _)| *id == self.id);
            *idle = kept;
            gone
        };
        // Outside of the lock: an instance takes a while to go.
        drop(gone);
    }
}

/// The compiled evaluator and its instances. One for all filters of a sandbox.
pub(crate) struct Evaluator {
    machine: Arc<Machine>,
    pre: JqPre<State>,
    limits: GuestLimits,
    /// Number of the next filter.
    filters: AtomicU64,
    /// Instances without work, with the number of their filter; the one that worked last comes last.
    idle: Mutex<VecDeque<(u64, Warm)>>,
    /// Evaluations that may begin. As many as processors would do; twice that lets one wait for its tick.
    turns: Mutex<usize>,
    turn_over: Condvar,
}

impl Evaluator {
    pub(crate) const COMPONENT: &'static [u8] = include_bytes!("../../jq/jq.wasm");

    pub(crate) fn new(
        machine: &Arc<Machine>,
        limits: &GuestLimits,
        compiled: &wasmtime::component::Component,
    ) -> Result<Self, LoadError> {
        let link = |error: wasmtime::Error| LoadError::Engine { source: error.into() };
        let mut linker = Linker::new(machine.wasmtime());
        Jq::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state).map_err(link)?;
        let pre = linker.instantiate_pre(compiled).and_then(JqPre::new).map_err(link)?;
        Ok(Self {
            machine: Arc::clone(machine),
            pre,
            limits: limits.clone(),
            filters: AtomicU64::new(0),
            idle: Mutex::default(),
            turns: Mutex::new(machine.in_flight().saturating_mul(2)),
            turn_over: Condvar::new(),
        })
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<(u64, Warm)>> {
        // Whole whatever happens while the lock is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, filter: u64) -> Option<Warm> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|(id, _)| *id == filter)?;
        idle.remove(at).map(|(_, warm)| warm)
    }

    fn give(&self, filter: u64, warm: Warm) {
        let surplus = {
            let mut idle = self.idle();
            idle.push_back((filter, warm));
            if idle.len() > JQ_WARM_INSTANCES { idle.pop_front() } else { None }
        };
        drop(surplus);
    }

    /// Waits until one more evaluation may begin.
    fn turn(&self, since: Instant, limits: &JqLimits) -> Result<Turn<'_>, JqError> {
        let wall = std::time::Duration::from_millis(limits.wall_ms);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        while *turns == 0 {
            let Some(left) = wall.checked_sub(since.elapsed()) else {
                return Err(JqError::TimedOut { clock: Clock::Wall, limit_ms: limits.wall_ms });
            };
            turns = self.turn_over.wait_timeout(turns, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *turns -= 1;
        Ok(Turn(self))
    }
}

/// The right to evaluate.
struct Turn<'a>(&'a Evaluator);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.turns.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.turn_over.notify_one();
    }
}
