//! Engine, ticker and deadline in one hand: a store can only be had here, and it always has a deadline, limits and a
//! ticker that moves its clock.
//!
//! Guests run on fibers. The ticker ends a guest's time slice every few milliseconds; the callback of the store then
//! decides between going on (after a yield, so that timers and other tasks get their turn) and stopping it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::{Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, UpdateDeadline};

use crate::config::Config;
use crate::error::SandboxError;
use crate::lane::Lane;
use crate::outcome::Stop;
use crate::state::State;

/// Core instances of one component; interpreters of scripting languages need up to 25.
const INSTANCES_MAX: u32 = 50;
/// Memories of one component: adapters bring one or two of their own.
const MEMORIES_MAX: u32 = 4;
/// Tables of one component.
const TABLES_MAX: u32 = 8;
/// Idle ticks after which the ticker goes to sleep: one second keeps busy hosts from waking it for every call.
const IDLE_TICKS: u32 = 100;

/// The settings of the engine that decide how code is compiled and checked. The compiling child uses the same.
///
/// Garbage collection, exceptions, typed function references, threads and asynchronous components are not even built
/// in: the features of the engine are chosen in the workspace manifest.
pub(crate) fn settings(limits: &GuestLimits) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .shared_memory(false)
        .wasm_memory64(false)
        .wasm_gc(false)
        .gc_support(false)
        .wasm_tail_call(false)
        .wasm_relaxed_simd(false)
        .wasm_wide_arithmetic(false)
        .wasm_custom_page_sizes(false)
        .cranelift_opt_level(wasmtime::OptLevel::Speed)
        .memory_init_cow(true)
        .generate_address_map(true)
        .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable)
        .max_wasm_stack(stack(limits))
        // The host's own frames are on the same stack as the guest's.
        .async_stack_size(stack(limits) + 1536 * 1024);
    config
}

fn stack(limits: &GuestLimits) -> usize {
    usize::try_from(limits.stack_bytes).unwrap_or(usize::MAX).clamp(64 * 1024, 64 * 1024 * 1024)
}

fn pool(config: &Config) -> PoolingAllocationConfig {
    let calls = u32::try_from(config.in_flight).unwrap_or(u32::MAX).clamp(1, 64);
    // Calls in flight, and slack for stores that are being dropped on another thread.
    let instances = calls * 4 + 64;
    let memory = usize::try_from(config.limits.memory_bytes).unwrap_or(usize::MAX).next_multiple_of(64 * 1024);
    let scan = PoolingAllocationConfig::is_pagemap_scan_available();
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(instances)
        .total_core_instances(instances * 8)
        .total_memories(instances * 3)
        .total_tables(instances * 4)
        .total_stacks(instances)
        .max_core_instances_per_component(INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .max_component_instance_size(1024 * 1024)
        .max_core_instance_size(1024 * 1024)
        .max_memory_size(memory)
        .table_elements(usize::try_from(config.limits.table_elements).unwrap_or(usize::MAX))
        .max_unused_warm_slots(100)
        .table_keep_resident(64 * 1024)
        .pagemap_scan(if scan { Enabled::Yes } else { Enabled::No })
        // Without the scan the kept part is cleared as a whole, which costs more than it saves beyond 64 KiB.
        .linear_memory_keep_resident(if scan { 1024 * 1024 } else { 64 * 1024 });
    pool
}

/// Engine, ticker and permits.
pub(crate) struct Machine {
    engine: Engine,
    permits: Semaphore,
    in_flight: usize,
    pulse: Arc<Pulse>,
    ticker: Option<JoinHandle<()>>,
}

/// The right of an application to run guest code once. What is had last is given back first, so that a call of another
/// application comes before the next of this one.
pub(crate) struct Permit<'a> {
    _permit: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
}

/// What the ticker and the calls share.
struct Pulse {
    in_flight: AtomicUsize,
    stop: AtomicBool,
}

impl Machine {
    pub(crate) fn new(config: &Config) -> Result<Self, SandboxError> {
        let engine = Self::engine(config)?;
        let pulse = Arc::new(Pulse { in_flight: AtomicUsize::new(0), stop: AtomicBool::new(false) });
        let tick = config.tick.max(Duration::from_millis(1));
        let ticker = std::thread::Builder::new()
            .name("sandbox-ticker".to_owned())
            .spawn({
                let (engine, pulse) = (engine.clone(), Arc::clone(&pulse));
                move || pulse.beat(&engine, tick)
            })
            .map_err(|source| SandboxError::Ticker { source })?;
        let in_flight = config.in_flight.max(1);
        Ok(Self { engine, permits: Semaphore::new(in_flight), in_flight, pulse, ticker: Some(ticker) })
    }

    fn engine(config: &Config) -> Result<Engine, SandboxError> {
        let build = |strategy| {
            let mut settings = settings(&config.limits);
            settings.allocation_strategy(strategy);
            Engine::new(&settings)
        };
        if config.pooling {
            match build(InstanceAllocationStrategy::Pooling(pool(config))) {
                Ok(engine) => return Ok(engine),
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "no pool of instances, calls will be slower: is the address space of the process limited?"
                ),
            }
        }
        build(InstanceAllocationStrategy::OnDemand).map_err(|source| SandboxError::Engine { source: source.into() })
    }

    pub(crate) fn wasmtime(&self) -> &Engine {
        &self.engine
    }

    /// Calls that may run guest code at the same time.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Waits until guest code may run. The permit must live as long as the store. Calls of an application ask by its
    /// lane, [`Machine::permit_by`].
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed; `None` would only mean that there is nothing to run on.
        self.permits.acquire().await.ok()
    }

    /// Waits until guest code of an application may run.
    pub(crate) async fn permit_by<'a>(&'a self, lane: &'a Lane) -> Option<Permit<'a>> {
        let place = lane.place().await?;
        let permit = self.permit().await?;
        Some(Permit { _permit: permit, _place: place })
    }

    /// A store for one call.
    pub(crate) fn store(&self, state: State) -> Store<State> {
        let limits = Arc::clone(&state.limits);
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.memory);
        store.set_hostcall_fuel(usize::try_from(limits.call_bytes).unwrap_or(usize::MAX));
        // Our own count of handles comes first and names them; this one also counts those that the guest makes.
        store.set_max_component_handles(usize::try_from(limits.handles).unwrap_or(usize::MAX).saturating_add(1));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            store.data().clock.check()?;
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Drives a call to its end or to the end of its time. Dropping the future ends the guest.
    ///
    /// # Errors
    /// What the call says, or [`Stop::Wall`].
    pub(crate) async fn drive<T>(
        &self,
        clock: &CallClock,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> wasmtime::Result<T> {
        let _beat = self.pulse.enter(self.ticker.as_ref());
        let mut call = std::pin::pin!(call);
        let metered = std::future::poll_fn(|context| {
            clock.on();
            let poll = call.as_mut().poll(context);
            clock.off();
            poll
        });
        match tokio::time::timeout_at(clock.deadline.into(), metered).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Stop::Wall.into()),
        }
    }
}

impl Machine {
    /// Drives a call to its end on this thread, which stays busy for as long. The clock of the store ends it in time.
    ///
    /// # Errors
    /// What the call says.
    pub(crate) fn drive_here<T>(
        &self,
        clock: &CallClock,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> wasmtime::Result<T> {
        let _beat = self.pulse.enter(self.ticker.as_ref());
        let mut call = std::pin::pin!(call);
        // Nothing in such a call waits for anything: it only gives way, at each tick, and goes on.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            clock.on();
            let poll = call.as_mut().poll(&mut context);
            clock.off();
            if let Poll::Ready(result) = poll {
                return result;
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.pulse.stop.store(true, Ordering::Release);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            // A ticker that panicked has nothing to tell.
            let _ = ticker.join();
        }
    }
}

impl Pulse {
    fn beat(&self, engine: &Engine, tick: Duration) {
        let mut idle = 0;
        while !self.stop.load(Ordering::Acquire) {
            if self.in_flight.load(Ordering::Acquire) > 0 {
                idle = 0;
            } else {
                idle += 1;
            }
            if idle > IDLE_TICKS {
                std::thread::park();
                idle = 0;
            } else {
                std::thread::sleep(tick);
                engine.increment_epoch();
            }
        }
    }

    fn enter(&self, ticker: Option<&JoinHandle<()>>) -> Beat<'_> {
        if self.in_flight.fetch_add(1, Ordering::AcqRel) == 0
            && let Some(ticker) = ticker
        {
            ticker.thread().unpark();
        }
        Beat(self)
    }
}

/// Keeps the ticker going.
struct Beat<'a>(&'a Pulse);

impl Drop for Beat<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The clocks of one call: processor time spent inside of it, and the moment at which it must be over.
#[derive(Debug)]
pub(crate) struct CallClock {
    started: Instant,
    deadline: Instant,
    cpu_ns_max: u64,
    /// Processor time of polls that are over.
    spent_ns: AtomicU64,
    /// Processor time of the thread at the beginning of the running poll.
    poll_ns: AtomicU64,
}

impl CallClock {
    pub(crate) fn start(limits: &GuestLimits) -> Self {
        let started = Instant::now();
        // Beyond a year there is no limit, and no sum that overflows.
        let wall = Duration::from_millis(limits.wall_ms.min(365 * 24 * 3_600_000));
        Self {
            started,
            deadline: started.checked_add(wall).unwrap_or(started),
            cpu_ns_max: limits.cpu_ms.saturating_mul(1_000_000),
            spent_ns: AtomicU64::new(0),
            poll_ns: AtomicU64::new(0),
        }
    }

    fn on(&self) {
        self.poll_ns.store(thread_ns(), Ordering::Relaxed);
    }

    fn off(&self) {
        let spent = thread_ns().saturating_sub(self.poll_ns.load(Ordering::Relaxed));
        self.spent_ns.fetch_add(spent, Ordering::Relaxed);
    }

    /// Called on the thread that polls the call.
    fn check(&self) -> Result<(), Stop> {
        let running = thread_ns().saturating_sub(self.poll_ns.load(Ordering::Relaxed));
        if self.spent_ns.load(Ordering::Relaxed).saturating_add(running) > self.cpu_ns_max {
            return Err(Stop::Cpu);
        }
        // The timer sees it too, but only when its thread is not busy.
        if Instant::now() > self.deadline { Err(Stop::Wall) } else { Ok(()) }
    }

    pub(crate) fn cpu_us(&self) -> u64 {
        self.spent_ns.load(Ordering::Relaxed) / 1000
    }

    pub(crate) fn wall_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Processor time of this thread in nanoseconds. Unlike a count of ticks it does not charge a guest for the time in
/// which the kernel ran something else.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
