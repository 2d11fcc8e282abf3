//! The table.

use std::fmt;
use std::time::Duration;

use crate::memory::{Idle, Resident};
use crate::timing::Rounds;

/// Everything that was measured.
pub(crate) struct Report {
    pub(crate) small: Rounds,
    pub(crate) empty: Rounds,
    pub(crate) large: Rounds,
    pub(crate) native: Rounds,
    pub(crate) bash: Rounds,
    pub(crate) python: Rounds,
    small_bytes: usize,
    large_bytes: usize,
    idle: Option<Idle>,
}

impl Report {
    pub(crate) fn new(small_bytes: usize, large_bytes: usize, idle: Option<Idle>) -> Self {
        Self {
            small: Rounds::default(),
            empty: Rounds::default(),
            large: Rounds::default(),
            native: Rounds::default(),
            bash: Rounds::default(),
            python: Rounds::default(),
            small_bytes,
            large_bytes,
            idle,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Machine: {}\n", machine())?;
        writeln!(
            f,
            "| one run, on one core | min | p50 | p99 | p50, all rounds | CPU | runs/s | p50, ratio | CPU, ratio |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        let rows = [
            ("component, nothing to do".to_owned(), &self.empty, false),
            (format!("component, {} B of context, one operation", self.small_bytes), &self.small, true),
            ("the same as a native Rust program".to_owned(), &self.native, true),
            ("the same as bash with one jq".to_owned(), &self.bash, true),
            ("the same as python3".to_owned(), &self.python, true),
            (
                format!("component, name and label of each item of {:.1} MB", self.large_bytes as f64 / 1e6),
                &self.large,
                false,
            ),
        ];
        for (name, rounds, compared) in rows {
            self.row(f, &name, rounds, compared)?;
        }
        if let Some(idle) = &self.idle {
            write_idle(f, idle)?;
        }
        Ok(())
    }
}

impl Report {
    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, rounds: &Rounds, compared: bool) -> fmt::Result {
        let (Some(best), Some(cpu), Some(worst)) = (rounds.best(), rounds.cpu(), rounds.worst_p50()) else {
            return writeln!(f, "| {name} | not installed | | | | | | | |");
        };
        let ratio = |mine: Duration, small: Option<Duration>| match small {
            Some(small) if compared => format!("{:.0} ×", mine.as_secs_f64() / small.as_secs_f64()),
            _ => String::new(),
        };
        writeln!(
            f,
            "| {name} | {} | {} | {} | {} – {} | {} | {:.0} | {} | {} |",
            time(best.min),
            time(best.p50),
            time(best.p99),
            time(best.p50),
            time(worst),
            time(cpu),
            best.per_second,
            ratio(best.p50, self.small.best().map(|small| small.p50)),
            ratio(cpu, self.small.cpu()),
        )
    }
}

fn write_idle(f: &mut fmt::Formatter<'_>, idle: &Idle) -> fmt::Result {
    writeln!(f, "\n| memory of each of {} loaded packages | anonymous | pages of files |", idle.packages)?;
    writeln!(f, "|---|---|---|")?;
    let mut row = |name: &str, each: Resident| {
        writeln!(f, "| {name} | {:.1} KB | {:.1} KB |", each.anonymous as f64 / 1e3, each.file as f64 / 1e3)
    };
    row("loaded, described and linked; idle", idle.loaded_each())?;
    row("the same, second half alone", idle.second_half_each())?;
    row("after each has run once; idle", idle.ran_each())?;
    writeln!(f, "\nLoading one from the cache, describing and linking it: {:.2} ms.", idle.load_ms)
}

fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 100.0 {
        format!("{us:.1} µs")
    } else if us < 1000.0 {
        format!("{us:.0} µs")
    } else {
        format!("{:.2} ms", us / 1000.0)
    }
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let load = read("/proc/loadavg");
    format!(
        "{cores} × {}, Linux {}, load {}",
        model.map_or("unknown processor", |(_, name)| name.trim()),
        read("/proc/sys/kernel/osrelease").trim(),
        load.split_whitespace().next().unwrap_or("unknown"),
    )
}
