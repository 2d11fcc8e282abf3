//! What a hook is given.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::hooks::exports::barbless::hooks::hooks as wit;
use crate::clock::Timestamp;
use crate::metrics::Metrics;
use crate::patches::Patches;
use crate::random::Random;
use crate::snapshot::Snapshot;
use crate::values::{Settings, Values};
use crate::{Result, host, object};

pub use crate::bindings::hooks::barbless::hooks::instance::Identity;
pub use wit::{Change, Trigger, WatchEventType};

/// Everything that a hook sees of the world and everything that it can ask for.
///
/// There is no other way out of a hook: no files, no sockets, no environment.
#[derive(Debug)]
pub struct Context {
    run: wit::Context,
    collector: host::Collector,
    /// Asked for once, because it does not change.
    instance: std::cell::OnceCell<Identity>,
}

impl Context {
    pub(crate) fn new(run: wit::Context, collector: host::Collector) -> Self {
        Self { run, collector, instance: std::cell::OnceCell::new() }
    }

    /// Why the hook runs.
    pub fn trigger(&self) -> &Trigger {
        &self.run.trigger
    }

    /// 1 for the first attempt, 2 for the first repetition, …
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Nothing that the hook asks for will be applied. A hook has no reason to behave differently.
    pub fn is_dry_run(&self) -> bool {
        self.run.dry_run
    }

    /// The application that the hook runs for.
    pub fn instance(&self) -> &Identity {
        self.instance.get_or_init(host::instance)
    }

    /// The name that an object of this application should have: `d8a-<application>-<suffix>`.
    ///
    /// ```
    /// # use barbless_sdk::prelude::*;
    /// fn hook(ctx: &mut Context) -> Result<()> {
    ///     assert_eq!(ctx.object_name("heartbeat"), "d8a-blog-heartbeat");
    ///     Ok(())
    /// }
    /// assert!(TestContext::builder().instance("ns", "blog").run(hook).result().is_ok());
    /// ```
    pub fn object_name(&self, suffix: &str) -> String {
        format!("d8a-{}-{suffix}", self.instance().name)
    }

    /// The values document.
    pub fn values(&self) -> Values {
        Values { _private: () }
    }

    /// The settings of the user.
    pub fn settings(&self) -> Settings {
        Settings { _private: () }
    }

    /// The objects of a kubernetes binding, read only where they are looked at.
    ///
    /// # Errors
    /// `SnapshotUnknown` if the hook has no such binding, `SnapshotNotSynchronised` if it is not synchronised.
    pub fn snapshot(&self, binding: &str) -> Result<Snapshot> {
        Snapshot::open(binding)
    }

    /// The objects of a kubernetes binding, all of them, typed.
    ///
    /// # Errors
    /// As [`Context::snapshot`]; `JsonInvalid` if one has another shape than `T`.
    ///
    /// ```
    /// use barbless_sdk::prelude::*;
    ///
    /// #[derive(Deserialize)]
    /// struct Feed { #[serde(rename = "/metadata/name")] name: String }
    ///
    /// fn collect(ctx: &mut Context) -> Result<()> {
    ///     let names: Vec<String> = ctx.snapshots::<Feed>("feeds")?.into_iter().map(|feed| feed.name).collect();
    ///     ctx.values().set("/internal/feeds", &names)
    /// }
    ///
    /// let outcome = TestContext::builder().snapshot("feeds", vec![json!({"/metadata/name": "news"})]).run(collect);
    /// assert_eq!(outcome.values()["internal"]["feeds"], json!(["news"]));
    /// ```
    pub fn snapshots<T: DeserializeOwned>(&self, binding: &str) -> Result<Vec<T>> {
        self.snapshot(binding)?.to_vec()
    }

    /// The objects of the changes that led to this run, one for each of [`Trigger::Events`] and in the same order: as
    /// they are now or, where they are gone, as they were last. Empty for other triggers.
    ///
    /// A run may be told of fewer changes than there were, and an interruption of the watch hides some: decide by the
    /// snapshots, and use this to save work.
    ///
    /// ```
    /// use barbless_sdk::prelude::*;
    ///
    /// fn names(ctx: &mut Context) -> Result<()> {
    ///     let names: Vec<String> = ctx.changed().iter().map(|object| object.name()).collect();
    ///     ctx.values().set("/internal/changed", &names)
    /// }
    ///
    /// let pod = json!({"metadata": {"name": "web-0"}});
    /// let test = TestContext::builder().snapshot("pods", vec![pod]).change("pods", WatchEventType::Modified, "web-0");
    /// assert_eq!(test.run(names).values()["internal"]["changed"], json!(["web-0"]));
    /// ```
    pub fn changed(&self) -> Snapshot {
        Snapshot::of_changes(host::changed())
    }

    /// Where operations are collected.
    pub fn patches(&self) -> Patches<'_> {
        Patches::new(&self.collector)
    }

    /// Puts the label on an object that says that it belongs to this application, so that it is found when the
    /// application is purged.
    ///
    /// # Errors
    /// `ObjectInvalid` if the object, its metadata or its labels are no JSON object.
    pub fn label(&self, object: &mut Value) -> Result<()> {
        object::set_label(object, object::INSTANCE_LABEL, &self.instance().name)
    }

    /// As [`Context::label`], for an object that is being made.
    ///
    /// # Errors
    /// As [`Context::label`].
    pub fn labelled(&self, mut object: Value) -> Result<Value> {
        self.label(&mut object)?;
        Ok(object)
    }

    /// The time of the run.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(host::now_unix_ms())
    }

    /// Random numbers.
    pub fn random(&self) -> Random {
        Random { _private: () }
    }

    /// Measurements.
    pub fn metrics(&self) -> Metrics {
        Metrics { _private: () }
    }
}
