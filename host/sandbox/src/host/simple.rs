//! `instance`, `log`, `metrics`, `clock`, `random`, `settings`.

use barbless_domain::run::{LogLevel, MetricKind, Panic};
use rand_core::Rng as _;
use wasmtime::Result;

use crate::contract::barbless::hooks::{clock, instance, log, metrics, random, settings, types};
use crate::outcome::Stop;
use crate::state::{Access, State};
use crate::text::shown;

/// Bytes of one call of `random.bytes`.
const RANDOM_MAX: u32 = 4096;
/// Bytes of a panic message.
const PANIC_BYTES: usize = 4096;
/// Bytes of the place of a panic.
const LOCATION_BYTES: usize = 512;

impl types::Host for State {}

impl instance::Host for State {
    fn current(&mut self) -> Result<instance::Identity> {
        self.count()?;
        let of = match &self.access {
            Access::Run(input) => &input.instance,
            Access::Instance(instance) => instance.as_ref(),
            Access::Log => return Err(Stop::Denied("'instance.current' cannot be called here".to_owned()).into()),
        };
        Ok(instance::Identity {
            name: of.name.clone(),
            namespace: of.namespace.clone(),
            package_name: of.package_name.clone(),
            package_version: of.package_version.clone(),
        })
    }
}

impl log::Host for State {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) -> Result<()> {
        self.count()?;
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log.write(level, &message, &fields);
        Ok(())
    }

    fn report_panic(&mut self, message: String, location: String) -> Result<()> {
        self.count()?;
        // The first panic is the cause; one in a destructor or in the hook of another is not.
        if self.panic.is_none() {
            self.panic =
                Some(Panic { message: shown(&message, PANIC_BYTES), location: shown(&location, LOCATION_BYTES) });
        }
        Ok(())
    }
}

impl State {
    fn measure(
        &mut self,
        function: &'static str,
        kind: MetricKind,
        name: String,
        value: f64,
        labels: metrics::Labels,
    ) -> Result<()> {
        self.run(function)?;
        let series_max = self.limits.metric_series;
        Ok(self.metrics.add(kind, name, value, labels, series_max)?)
    }
}

impl metrics::Host for State {
    fn counter_add(&mut self, name: String, value: f64, labels: metrics::Labels) -> Result<()> {
        self.measure("metrics.counter-add", MetricKind::Counter, name, value, labels)
    }

    fn gauge_set(&mut self, name: String, value: f64, labels: metrics::Labels) -> Result<()> {
        self.measure("metrics.gauge-set", MetricKind::Gauge, name, value, labels)
    }

    fn histogram_observe(&mut self, name: String, value: f64, labels: metrics::Labels) -> Result<()> {
        self.measure("metrics.histogram-observe", MetricKind::Histogram, name, value, labels)
    }
}

impl clock::Host for State {
    fn now_unix_ms(&mut self) -> Result<u64> {
        Ok(self.run("clock.now-unix-ms")?.now_unix_ms)
    }
}

impl random::Host for State {
    fn next_u64(&mut self) -> Result<u64> {
        self.run("random.next-u64")?;
        Ok(self.random().next_u64())
    }

    fn bytes(&mut self, len: u32) -> Result<Vec<u8>> {
        self.run("random.bytes")?;
        if len > RANDOM_MAX {
            return Err(Stop::Denied(format!("'random.bytes' of {len} bytes; at most {RANDOM_MAX} a call")).into());
        }
        let mut bytes = vec![0; usize::try_from(len)?];
        self.random().fill_bytes(&mut bytes);
        Ok(bytes)
    }
}

impl settings::Host for State {
    fn get(&mut self, pointer: String) -> Result<Option<String>> {
        let input = self.run("settings.get")?;
        Ok(input.settings.pointer(&pointer).map(serde_json::to_string).transpose()?)
    }
}
