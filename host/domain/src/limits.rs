//! Every bound of the system, with its unit and its reason.
//!
//! A bound that a setting can move is a field of a struct with a `Default`; one that nobody has a reason to move is a
//! constant.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one run of a guest may use. Each field is a setting; the defaults are those of the design (section 9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GuestLimits {
    /// CPU time of the guest in milliseconds. Ten seconds is far beyond what a hook of a few thousand objects needs and
    /// short enough that two looping packages do not starve a two-core host for long.
    pub cpu_ms: u64,
    /// Wall-clock time of the whole call in milliseconds, host calls and waiting for a CPU included.
    pub wall_ms: u64,
    /// Bytes of all linear memories and tables of a run together. 64 MiB holds a snapshot of several thousand Pods.
    pub memory_bytes: u64,
    /// Elements of all tables of a run together.
    pub table_elements: u64,
    /// Bytes of wasm stack. 512 KiB is wasmtime's own default and enough for recursive JSON of depth 128.
    pub stack_bytes: u64,
    /// Bytes that one call across the boundary may carry in either direction.
    pub call_bytes: u64,
    /// Calls from guest to host in one run; a storm of cheap calls is bounded by CPU time, this bounds costly ones.
    pub host_calls: u64,
    /// Resource handles alive at once. 1 000 would be too few for a loop over a snapshot that keeps its items.
    pub handles: u32,
    /// Bytes of log text of one run.
    pub log_bytes: u64,
    /// Bytes of one log line.
    pub log_line_bytes: u64,
    /// Operations of one run.
    pub operations: u32,
    /// Bytes of one operation: an object cannot be larger than about 1.5 MiB in etcd.
    pub operation_bytes: u64,
    /// Bytes of all operations of one run.
    pub operations_bytes: u64,
    /// Bytes of the values document after a run.
    pub values_bytes: u64,
    /// Distinct metric series of one run.
    pub metric_series: u32,
    /// Bytes of one component. A Python hook is 18.5 MB.
    pub component_bytes: u64,
    /// Functions of one component. Python has 13 600 in 13 modules; compile time and memory grow with the number.
    pub component_functions: u32,
    /// Wall-clock time of one compilation in milliseconds. A Python hook takes up to 14 s on a quiet machine.
    pub compile_wall_ms: u64,
    /// CPU time of one compilation in seconds (all threads together).
    pub compile_cpu_s: u64,
    /// Address space of the compiling process in bytes.
    pub compile_memory_bytes: u64,
}

impl Default for GuestLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            cpu_ms: 10_000,
            wall_ms: 30_000,
            memory_bytes: 64 * MIB,
            table_elements: 20_000,
            stack_bytes: 512 * 1024,
            call_bytes: 16 * MIB,
            host_calls: 1_000_000,
            handles: 10_000,
            log_bytes: MIB,
            log_line_bytes: 64 * 1024,
            operations: 1_000,
            operation_bytes: MIB,
            operations_bytes: 8 * MIB,
            values_bytes: MIB,
            metric_series: 100,
            component_bytes: 32 * MIB,
            component_functions: 30_000,
            compile_wall_ms: 120_000,
            compile_cpu_s: 120,
            compile_memory_bytes: 2048 * MIB,
        }
    }
}

/// What the evaluation of a jq program on one object may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct JqLimits {
    /// CPU time in milliseconds. A filter of an ordinary object takes a tenth of one; a second is for objects that are
    /// as large as they may be.
    pub cpu_ms: u64,
    /// Wall-clock time in milliseconds, waiting for a turn included.
    pub wall_ms: u64,
    /// Bytes of memory. An object takes about ten times its size as a value, and a program makes copies.
    pub memory_bytes: u64,
    /// Bytes of the JSON text of the object. etcd takes 1.5 MiB.
    pub input_bytes: u64,
    /// Bytes of all outputs together. A filter makes an object smaller.
    pub output_bytes: u64,
    /// Outputs of one evaluation.
    pub outputs: u32,
}

impl Default for JqLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            cpu_ms: 1_000,
            wall_ms: 5_000,
            memory_bytes: 64 * MIB,
            input_bytes: 4 * MIB,
            output_bytes: 4 * MIB,
            outputs: 10_000,
        }
    }
}

/// Evaluations after which an instance of the evaluator is replaced, so that what it may have gathered goes with it.
/// Making one takes as long as some ten evaluations.
pub const JQ_APPLIES_PER_INSTANCE: u32 = 10_000;
/// Instances of the evaluator that wait for their next object, of all filters together. Each keeps about a megabyte, and
/// a place in the pool of instances, which has 64 beyond the runs in flight.
pub const JQ_WARM_INSTANCES: usize = 32;
/// Memory of an instance beyond which it is not kept: memory only grows, and one large object must not be paid for ever.
pub const JQ_WARM_BYTES: u64 = 8 * 1024 * 1024;

/// First delay after a failure, in every queue.
pub const RETRY_FIRST: Duration = Duration::from_secs(15);
/// Longest delay in the lifecycle queue of an application.
pub const RETRY_CAP_LIFECYCLE: Duration = Duration::from_secs(2 * 60 * 60);
/// Longest delay in hook queues.
pub const RETRY_CAP_HOOK: Duration = Duration::from_secs(60);
/// Failures in a row after which a hook counts as broken: it is still repeated at the longest delay, it is reported as
/// such, and it no longer holds up the other hooks of its queue. Ten failures are about eight minutes.
pub const BREAKER_FAILURES: u32 = 10;
/// How long changes of objects are collected before the hook runs. Bursts come within milliseconds (a controller that
/// makes ten Pods); longer would be felt, and what comes later is collected while the run is under way.
pub const EVENT_DEBOUNCE: Duration = Duration::from_millis(10);
/// How long it may take to carry out what one run asked for, and before that, to ask the grant for all of it. A thousand
/// operations at an API server that takes a tenth of a second for each are a hundred seconds.
pub const SETTLING: Duration = Duration::from_secs(5 * 60);
/// How long the operation that is under way when that time is up, or when the run is stopped, may take to end, so that
/// its outcome is known. One takes milliseconds; an API server that does not answer is not waited for.
pub const SETTLING_GRACE: Duration = Duration::from_secs(5);
/// How long all first lists of the bindings of a package together may take before the step fails with the names of the
/// bindings that lack one.
pub const SYNCHRONISATION_WAIT: Duration = Duration::from_secs(60);
/// First pause before a watch whose filter failed lists everything again; it doubles.
pub const FILTER_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest such pause: a filter that fails on an object fails on it again, until one of the two is changed.
pub const FILTER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a watch may be interrupted before the application is told that the snapshot has no news: an API server that
/// restarts is back by then.
pub const WATCH_INTERRUPTED: Duration = Duration::from_secs(30);
/// How long an interrupted watch has to be quiet to count as going on: longer than the longest pause between two attempts
/// (30 s and as much again at random) with the time that the API server has to begin to answer one.
pub const WATCH_QUIET: Duration = Duration::from_secs(150);
/// How far the clock of the machine has to go back for schedules to begin anew at the new time. Less is a clock that is
/// put right, and no time of a schedule is to come twice for that; a schedule is late by no more than this.
pub const CLOCK_SET_BACK: Duration = Duration::from_secs(60);
/// How long one apply of a release may wait for readiness.
pub const APPLY_DEADLINE: Duration = Duration::from_secs(30 * 60);
/// How long one removal of a release waits before it fails and is repeated.
pub const UNINSTALL_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// How many resources a time-out names.
pub const TIMEOUT_NAMES: usize = 5;
/// Applies that one reconciliation may make because hooks after the apply changed values: the first, and one more.
pub const APPLIES_PER_RUN: u32 = 2;
/// Reconciliations that event hooks may cause one after the other without an outside change, before they are paced by
/// back-off: a hook that changes values each time it runs must not keep the host busy for ever.
pub const VALUES_LOOP: u32 = 10;
/// Attempts to get the package of an application that is being deleted, before it is removed without its delete hooks
/// and orphans. With the usual back-off that is a quarter of an hour, in which a registry may come back.
pub const REMOVAL_LOAD_ATTEMPTS: u32 = 6;
/// How long hooks have to leave the values alone before [`VALUES_LOOP`] is counted anew: who changes them now and then is
/// no loop.
pub const VALUES_QUIET: Duration = Duration::from_secs(10 * 60);
/// Tasks in one queue. There is at most one for each schedule, and for events and synchronization of each hook, so
/// [`HOOKS_PER_PACKAGE`] and [`BINDINGS_PER_PACKAGE`] are bounds of it, with room to spare.
pub const QUEUE_TASKS: usize = 4096;
/// Hooks in one package.
pub const HOOKS_PER_PACKAGE: usize = 1000;
/// Bindings of all hooks of one package together.
pub const BINDINGS_PER_PACKAGE: usize = 1000;
/// Bytes of what was last known of deleted objects that wait for one run. The rest is told by name.
pub const LAST_KNOWN_BYTES: usize = 8 * 1024 * 1024;
/// Bindings of one hook.
pub const BINDINGS_PER_HOOK: usize = 100;
/// Series of measurements that one hook has, over all of its runs: as many as one run may have.
pub const METRIC_SERIES_PER_HOOK: usize = 100;
/// Series of measurements that the hooks of one application have together. More than a thousand for one application
/// nobody looks at, and each is kept by whoever scrapes them.
pub const METRIC_SERIES_PER_APPLICATION: usize = 1000;
/// Run records kept for one application.
pub const RUN_RECORDS: usize = 500;
/// Changes that one run is told of by name; the snapshot has the rest.
pub const CHANGES_PER_RUN: usize = 1000;
/// Smallest interval at which the objects of a release are checked for existence; the largest is a minute more.
pub const RESTORATION_MIN: Duration = Duration::from_secs(4 * 60);
/// Bytes of the input of one run that are kept for a replay, as JSON text: what a run with this many bytes of snapshots
/// can make use of is far less, since its memory holds them once more. What is larger is kept as digest and size.
pub const RECORD_INPUT_BYTES: usize = 32 * 1024 * 1024;
/// Bytes, compressed, of all inputs and components that are kept for replays, each document once. Beyond that the inputs
/// of the oldest runs go; their records stay.
pub const RECORD_DOCUMENTS_BYTES: u64 = 256 * 1024 * 1024;
/// Names that one kubernetes binding may select; each is compared with each pattern of the grant.
pub const NAMES_PER_BINDING: usize = 1000;
/// Steps of one JSON patch. Larger changes are better said as a merge patch or an apply.
pub const JSON_PATCH_STEPS: usize = 1000;
/// `copy` and `move` steps of one JSON patch: copies of copies double a document with every step.
pub const JSON_PATCH_COPIES: usize = 20;
/// Bytes of one path of a JSON patch.
pub const JSON_PATCH_PATH_BYTES: usize = 4096;
/// Different jq programs in the bindings of one package. Reading a hostile one takes up to the CPU time of an evaluation.
pub const JQ_FILTERS_PER_PACKAGE: usize = 256;
/// Bytes of one jq program: a patch of an object, or the filter of a binding.
pub const JQ_PROGRAM_BYTES: usize = 64 * 1024;
/// Owner references, and finalizers, that an object may have after a hook changed them. Real objects have one or two.
pub const OWNERS_PER_OBJECT: usize = 64;
/// Operations of a release that `status.tracking` names. More than that nobody reads, and one report of an apply is
/// written every second.
pub const TRACKED_OPERATIONS: usize = 500;
/// Bytes of `status.tracking` as JSON text. An `Application` has settings and a status beside it and must stay below
/// 256 KiB, which is what an annotation of `kubectl apply` may hold and far below what etcd takes.
pub const TRACKING_BYTES: usize = 64 * 1024;
/// Bytes of one message or tip of a status. What a package says, a `fail` of a template for instance, may be longer:
/// the failure itself, as `dev` prints it, has all of it.
pub const STATUS_MESSAGE_BYTES: usize = 4 * 1024;
/// Shortest time between two writes of a status in which nothing but the progress of an apply is new.
pub const TRACKING_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of an annotation with decisions about field conflicts; what is longer is refused.
pub const FIELD_CONFLICTS_BYTES: usize = 64 * 1024;
