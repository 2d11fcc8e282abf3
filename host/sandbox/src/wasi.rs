//! `wasi:*` with nothing behind it, for guests of languages that cannot be built without.
//!
//! No files, no sockets, no names, no environment, no arguments, an empty standard input. Standard output and error
//! become log lines. The wall clock stands at the moment of the run; the monotonic clock begins at zero and advances in
//! real time, so that a guest can wait, within the limits of its call. Random numbers come from the seed of the run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use barbless_domain::run::LogLevel;
use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use tokio::io::AsyncWrite;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};

use crate::state::{Access, Log, State};

/// Bytes of one answer of a random function.
const RANDOM_MAX: u64 = 4096;
/// Bytes that a guest may write to a stream at once.
const WRITE_MAX: usize = 64 * 1024;

/// What WASI needs for one call; made when the guest asks for it first.
pub(crate) struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
    streams: [Stream; 2],
}

impl Wasi {
    fn new(now_unix_ms: u64, seed: [u8; 32], log: &Log, limits: &GuestLimits) -> Self {
        // Streams of one generator that never meet: 0 belongs to the contract's own interface.
        let random = |stream| {
            let mut random = ChaCha20Rng::from_seed(seed);
            random.set_stream(stream);
            random
        };
        let streams = [Stream::new(LogLevel::Info, "stdout", log), Stream::new(LogLevel::Warn, "stderr", log)];
        let [stdout, stderr] = streams.clone();
        let mut hash = [0; 16];
        for (to, from) in hash.iter_mut().zip(seed) {
            *to = from;
        }
        let context = WasiCtx::builder()
            .stdout(stdout)
            .stderr(stderr)
            .wall_clock(Standing(Duration::from_millis(now_unix_ms)))
            .monotonic_clock(FromZero(Instant::now()))
            .secure_random(random(1))
            .insecure_random(random(2))
            .insecure_random_seed(u128::from_le_bytes(hash))
            .max_random_size(RANDOM_MAX)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        Self { context, table, streams }
    }

    /// Ends lines that were begun.
    pub(crate) fn flush(&self) {
        for stream in &self.streams {
            stream.end();
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (access, log, limits) = (&self.access, &self.log, &self.limits);
        let wasi = self.wasi.get_or_insert_with(|| {
            let (now, seed) = match access {
                Access::Run(input) => (input.now_unix_ms, input.seed),
                Access::Instance(_) | Access::Log => (0, [0; 32]),
            };
            Box::new(Wasi::new(now, seed, log, limits))
        });
        WasiCtxView { ctx: &mut wasi.context, table: &mut wasi.table }
    }
}

/// A clock that stands still.
struct Standing(Duration);

impl HostWallClock for Standing {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

/// A clock that began with the call.
struct FromZero(Instant);

impl HostMonotonicClock for FromZero {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A standard stream: every line becomes a log line.
#[derive(Clone)]
struct Stream {
    level: LogLevel,
    name: &'static str,
    log: Log,
    begun: Arc<Mutex<Vec<u8>>>,
}

impl Stream {
    fn new(level: LogLevel, name: &'static str, log: &Log) -> Self {
        Self { level, name, log: log.clone(), begun: Arc::default() }
    }

    fn put(&self, bytes: &[u8]) {
        let max = self.log.line_max();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ended) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            // One byte more than a line may have, so that the log notes the cut.
            let room = max.saturating_add(1).saturating_sub(begun.len());
            begun.extend_from_slice(text.get(..room).unwrap_or(text));
            if ended {
                self.line(&begun);
                begun.clear();
            }
        }
    }

    fn end(&self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if !begun.is_empty() {
            self.line(&begun);
            begun.clear();
        }
    }

    fn line(&self, bytes: &[u8]) {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        self.log.write(self.level, &text, &[("stream".to_owned(), self.name.to_owned())]);
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.put(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.put(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
