//! Samples and what is said of them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};

/// One round of one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) min: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) per_second: f64,
    /// Processor time of one run, child processes and the ticker included.
    pub(crate) cpu: Duration,
}

/// Collects the samples of a round.
pub(crate) struct Stopwatch {
    walls: Vec<Duration>,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start(runs: usize) -> Result<Self> {
        Ok(Self { walls: Vec::with_capacity(runs), cpu: processor_time()? })
    }

    pub(crate) fn add(&mut self, wall: Duration) {
        self.walls.push(wall);
    }

    pub(crate) fn stop(mut self) -> Result<Round> {
        let cpu = processor_time()?.saturating_sub(self.cpu);
        let runs = self.walls.len();
        let wall: Duration = self.walls.iter().sum();
        self.walls.sort_unstable();
        let at = |hundredths: usize| {
            let index = (runs * hundredths).div_ceil(100).saturating_sub(1);
            self.walls.get(index).copied().context("a round without a run")
        };
        Ok(Round {
            min: at(0)?,
            p50: at(50)?,
            p99: at(99)?,
            per_second: runs as f64 / wall.as_secs_f64(),
            cpu: cpu.div_f64(runs as f64),
        })
    }
}

/// The rounds of one job.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<Round>);

impl Rounds {
    pub(crate) fn push(&mut self, round: Round) {
        self.0.push(round);
    }

    /// The round that was disturbed least.
    pub(crate) fn best(&self) -> Option<Round> {
        self.0.iter().copied().min_by_key(|round| round.p50)
    }

    /// Least processor time of a run.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.0.iter().map(|round| round.cpu).min()
    }

    /// The largest p50: how much the rounds differ.
    pub(crate) fn worst_p50(&self) -> Option<Duration> {
        self.0.iter().map(|round| round.p50).max()
    }
}

/// Processor time of this process and of its children that are over.
fn processor_time() -> Result<Duration> {
    /// `_SC_CLK_TCK` of every Linux that Rust runs on.
    const TICKS_PER_SECOND: u64 = 100;
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(u64::try_from(own.tv_sec)?, u32::try_from(own.tv_nsec)?);
    let stat = std::fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    // The name of the program is in parentheses and may contain anything; the 3rd field follows it.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has another form")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|field| field.parse::<u64>())
        .sum::<Result<u64, _>>()
        .context("/proc/self/stat has another form")?;
    Ok(own + Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}
