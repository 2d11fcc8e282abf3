//! Measurements, exported by the host with the labels `application` and `hook`.
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! fn measure(ctx: &mut Context) -> Result<()> {
//!     ctx.metrics().gauge_set("feeds", 3.0, &[("source", "configmap")]);
//!     Ok(())
//! }
//!
//! assert_eq!(TestContext::builder().run(measure).metrics()[0].value, 3.0);
//! ```

use crate::host;

/// Records measurements. Limits: 100 series a hook.
#[derive(Debug, Clone, Copy)]
pub struct Metrics {
    pub(crate) _private: (),
}

impl Metrics {
    /// Adds to a counter. A negative or non-finite value ends the run.
    pub fn counter_add(&self, name: &str, value: f64, labels: &[(&str, &str)]) {
        host::counter_add(name, value, &own(labels));
    }

    /// Sets a gauge.
    pub fn gauge_set(&self, name: &str, value: f64, labels: &[(&str, &str)]) {
        host::gauge_set(name, value, &own(labels));
    }

    /// Adds an observation to a histogram.
    pub fn histogram_observe(&self, name: &str, value: f64, labels: &[(&str, &str)]) {
        host::histogram_observe(name, value, &own(labels));
    }
}

fn own(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
