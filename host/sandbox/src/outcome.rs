//! From what the engine says to how a call ended. Decided by types, once, here.

use barbless_domain::limits::GuestLimits;
use barbless_domain::run::{Clock, HookError, Panic, RunEnd};
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

use crate::text::shown;

/// Frames of a back-trace that are kept.
const FRAMES_MAX: usize = 32;
/// Bytes of one frame.
const FRAME_BYTES: usize = 256;
/// Bytes of what the engine says about a trap.
const TRAP_BYTES: usize = 1024;
/// Bytes of the code, the message and the hint of a hook error.
const CODE_BYTES: usize = 128;
/// Users see it in a status; a status with all its conditions must fit into an object.
const MESSAGE_BYTES: usize = 4096;

/// Why the host ended a call. Host functions and limiters return it as error, and it comes out at the other end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// Processor time is used up.
    #[error("processor time is used up")]
    Cpu,
    /// Wall-clock time is used up.
    #[error("wall-clock time is used up")]
    Wall,
    /// Memory and tables together.
    #[error("memory is used up")]
    Memory,
    /// Elements of tables.
    #[error("table elements are used up")]
    Tables,
    /// Live handles.
    #[error("handles are used up")]
    Handles,
    /// Calls of the host.
    #[error("calls to the host are used up")]
    Calls,
    /// Not granted.
    #[error("denied: {0}")]
    Denied(String),
    /// Too much or malformed output.
    #[error("bad output: {0}")]
    BadOutput(String),
}

/// How a call that did not return ended.
pub(crate) fn failed(error: &wasmtime::Error, limits: &GuestLimits, panic: Option<Panic>) -> RunEnd {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return stopped(stop, limits);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return match trap {
            Trap::StackOverflow => RunEnd::OutOfMemory { what: "stack".to_owned(), limit: limits.stack_bytes },
            // Only the callback of the store interrupts, and it says why; this is for the case that it cannot.
            Trap::Interrupt => stopped(&Stop::Cpu, limits),
            trap => RunEnd::Trap {
                message: shown(&trap.to_string(), TRAP_BYTES),
                panic,
                backtrace: error.downcast_ref::<WasmBacktrace>().map(backtrace).unwrap_or_default(),
            },
        };
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return RunEnd::HostFault { what: "no free slot for an instance".to_owned() };
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        let message = format!("the guest called exit with status {}", exit.0);
        return RunEnd::Trap { message, panic, backtrace: Vec::new() };
    }
    let message = error.root_cause().to_string();
    if let Some(stop) = untyped(&message) {
        return stopped(&stop, limits);
    }
    // What is left is a guest that breaks the rules of the boundary: a bad pointer, text that is not UTF-8, an unknown
    // handle.
    RunEnd::Trap {
        message: shown(&message, TRAP_BYTES),
        panic,
        backtrace: error.downcast_ref::<WasmBacktrace>().map(backtrace).unwrap_or_default(),
    }
}

fn stopped(stop: &Stop, limits: &GuestLimits) -> RunEnd {
    match stop {
        Stop::Cpu => RunEnd::TimedOut { clock: Clock::Cpu, limit_ms: limits.cpu_ms },
        Stop::Wall => RunEnd::TimedOut { clock: Clock::Wall, limit_ms: limits.wall_ms },
        Stop::Memory => RunEnd::OutOfMemory { what: "memory".to_owned(), limit: limits.memory_bytes },
        Stop::Tables => RunEnd::OutOfMemory { what: "table".to_owned(), limit: limits.table_elements },
        Stop::Handles => RunEnd::OutOfMemory { what: "handles".to_owned(), limit: u64::from(limits.handles) },
        Stop::Calls => RunEnd::TooManyCalls { limit: limits.host_calls },
        Stop::Denied(what) => RunEnd::Denied { what: what.clone() },
        Stop::BadOutput(what) => RunEnd::BadOutput { what: what.clone() },
    }
}

/// Two limits of wasmtime 48 have no type of their own. A test for each fails when the words change.
fn untyped(message: &str) -> Option<Stop> {
    if message.contains("fuel allocated for hostcalls has been exhausted") {
        return Some(Stop::BadOutput("one call carried more bytes across the boundary than allowed".to_owned()));
    }
    message.contains("store handle limit exceeded").then_some(Stop::Handles)
}

fn backtrace(trace: &WasmBacktrace) -> Vec<String> {
    let mut frames: Vec<String> = trace
        .frames()
        .iter()
        .take(FRAMES_MAX)
        .map(|frame| {
            let name = frame.func_name().map_or_else(
                || format!("function {}", frame.func_index()),
                |name| {
                    // A mangled name can unfold to something much longer.
                    shown(&format!("{:#}", rustc_demangle::demangle(&shown(name, FRAME_BYTES))), FRAME_BYTES)
                },
            );
            match frame.module_offset() {
                Some(offset) => format!("{name} (+{offset:#x})"),
                None => name,
            }
        })
        .collect();
    if trace.frames().len() > FRAMES_MAX {
        frames.push(format!("… {} more", trace.frames().len() - FRAMES_MAX));
    }
    frames
}

/// The error that a hook returned, bounded and safe to show.
pub(crate) fn hook_error(error: crate::contract::exports::barbless::hooks::hooks::HookError) -> RunEnd {
    let code = shown(&error.code, CODE_BYTES);
    RunEnd::HookError(HookError {
        code: if code.is_empty() { "Unspecified".to_owned() } else { code },
        message: shown(&error.message, MESSAGE_BYTES),
        hint: error.hint.map(|hint| shown(&hint, MESSAGE_BYTES)),
        retry_after_ms: error.retry_after_ms,
    })
}
