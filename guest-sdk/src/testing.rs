//! Unit tests of hooks: `cargo test`, no cluster, no WebAssembly.
//!
//! A [`TestContext`] holds everything that a hook can see. [`TestContext::run`] runs the hook as the host would and
//! returns an [`Outcome`]: what it asked for, the values afterwards, log lines, metrics, and the error if there was one.
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! fn heartbeat(ctx: &mut Context) -> Result<()> {
//!     let beat = ctx.labelled(json!({
//!         "apiVersion": "v1",
//!         "kind": "ConfigMap",
//!         "metadata": {"name": ctx.object_name("heartbeat")},
//!         "data": {"time": ctx.now().to_string()},
//!     }))?;
//!     ctx.patches().apply(&beat)
//! }
//!
//! let outcome = TestContext::builder()
//!     .instance("production", "blog")
//!     .now(1_700_000_000_000)
//!     .run(heartbeat);
//! let [Operation::Apply { object, .. }] = outcome.operations() else { panic!("one apply") };
//! assert_eq!(object["metadata"]["name"], "d8a-blog-heartbeat");
//! assert_eq!(object["data"]["time"], "2023-11-14T22:13:20Z");
//! # use barbless_sdk::testing::Operation;
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::bindings::hooks::exports::barbless::hooks::hooks as wit;
use crate::context::{Change, Identity, Trigger, WatchEventType};
use crate::declaration::{Binding, Hook, KubernetesBinding, Projection};
use crate::patches::{ObjectRef, Propagation, Subresource};
use crate::{Context, Result, host, log};

mod document;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use state::{Contents, State};

/// What a hook sees in a test.
#[derive(Debug, Clone)]
pub struct TestContext {
    state: State,
    trigger: Trigger,
    attempt: u32,
    dry_run: bool,
    snapshots: Vec<(String, Given)>,
}

/// What a test said of a snapshot; it is projected once the hook is known.
#[derive(Debug, Clone)]
enum Given {
    Projections(Vec<Value>),
    Objects(Vec<Value>),
    NotSynchronised(String),
}

impl TestContext {
    /// Empty values and settings, the application `test` in namespace `default`, a before-helm run at a fixed moment.
    pub fn builder() -> Self {
        Self {
            state: State::default(),
            trigger: Trigger::BeforeHelm,
            attempt: 1,
            dry_run: false,
            snapshots: Vec::new(),
        }
    }

    /// The values document without the settings, which stand at its root as in the host.
    #[must_use]
    pub fn values(mut self, values: Value) -> Self {
        self.state.values = values;
        self
    }

    /// The effective settings. Paths below their top-level keys are read-only in the values.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.state.settings = settings;
        self
    }

    /// The snapshot of a binding: the projections of its objects. The names of the objects are taken from
    /// `metadata.name` or, for `fields(…)`, from the field `/metadata/name`.
    #[must_use]
    pub fn snapshot(mut self, binding: impl Into<String>, projections: Vec<Value>) -> Self {
        self.snapshots.push((binding.into(), Given::Projections(projections)));
        self
    }

    /// The snapshot of a binding: whole objects. [`TestContext::run_hook`] selects and projects them as the binding of
    /// the hook says.
    #[must_use]
    pub fn objects(mut self, binding: impl Into<String>, objects: Vec<Value>) -> Self {
        self.snapshots.push((binding.into(), Given::Objects(objects)));
        self
    }

    /// A binding that is not synchronised, for this reason.
    #[must_use]
    pub fn snapshot_not_synchronised(mut self, binding: impl Into<String>, reason: impl Into<String>) -> Self {
        self.snapshots.push((binding.into(), Given::NotSynchronised(reason.into())));
        self
    }

    /// The time of the run, in milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn now(mut self, unix_ms: u64) -> Self {
        self.state.now_unix_ms = unix_ms;
        self
    }

    /// The seed of the random numbers. The same seed gives the same numbers.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.state.random = seed;
        self
    }

    /// Namespace and name of the application.
    #[must_use]
    pub fn instance(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.state.instance.namespace = namespace.into();
        self.state.instance.name = name.into();
        self
    }

    /// Name and version of the package.
    #[must_use]
    pub fn package(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.state.instance.package_name = name.into();
        self.state.instance.package_version = version.into();
        self
    }

    /// Why the hook runs.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// A change of an object leads to the run. Several calls make one run with several changes.
    #[must_use]
    pub fn change(mut self, binding: impl Into<String>, event: WatchEventType, name: impl Into<String>) -> Self {
        let namespace = self.state.instance.namespace.clone();
        let change = Change { binding: binding.into(), event, namespace, name: name.into() };
        match &mut self.trigger {
            Trigger::Events(changes) => changes.push(change),
            other => *other = Trigger::Events(vec![change]),
        }
        self
    }

    /// Which attempt it is.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Nothing will be applied.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Runs a hook. Snapshots that were given as whole objects are handed on as they are.
    #[must_use = "whether the hook failed is only seen in its outcome"]
    pub fn run(self, hook: impl FnOnce(&mut Context) -> Result<()>) -> Outcome {
        self.run_with(&[], hook)
    }

    /// Runs a hook by its type, which has the name of the function. Beside what [`TestContext::run`] does, snapshots are
    /// checked against the declaration: objects are selected by name, label and namespace and projected by `fields`,
    /// bindings that the test does not mention are empty, and a binding that the hook does not have is an error.
    ///
    /// # Panics
    /// If the test gives a snapshot that the hook does not declare, or whole objects for a `jq` or `filter` projection,
    /// which this crate cannot evaluate: give projections then.
    ///
    /// ```
    /// use barbless_sdk::prelude::*;
    ///
    /// #[hook(kubernetes(
    ///     name = "feeds", api_version = "v1", kind = "ConfigMap", labels("feed" = "yes"), fields("/metadata/name"),
    /// ))]
    /// fn count(ctx: &mut Context) -> Result<()> {
    ///     ctx.values().set("/internal/feeds", &ctx.snapshot("feeds")?.len())
    /// }
    ///
    /// let map = |name: &str, feed: &str| json!({"metadata": {"name": name, "labels": {"feed": feed}}});
    /// let outcome = TestContext::builder().objects("feeds", vec![map("a", "yes"), map("b", "no")]).run_hook::<count>();
    /// assert_eq!(outcome.values()["internal"]["feeds"], 1);
    /// ```
    #[must_use = "whether the hook failed is only seen in its outcome"]
    pub fn run_hook<H: Hook>(self) -> Outcome {
        let bindings: Vec<KubernetesBinding> = H::declaration()
            .bindings
            .into_iter()
            .filter_map(|binding| match binding {
                Binding::Kubernetes(binding) => Some(binding),
                _ => None,
            })
            .collect();
        for (name, _) in &self.snapshots {
            assert!(
                bindings.iter().any(|binding| binding.name == *name),
                "the test gives a snapshot `{name}`, but hook `{}` has no such kubernetes binding",
                H::NAME,
            );
        }
        self.run_with(&bindings, H::run)
    }

    fn run_with(mut self, bindings: &[KubernetesBinding], hook: impl FnOnce(&mut Context) -> Result<()>) -> Outcome {
        for binding in bindings {
            self.state.snapshots.insert(binding.name.clone(), Contents::Items(Rc::default()));
        }
        for (name, given) in std::mem::take(&mut self.snapshots) {
            let binding = bindings.iter().find(|binding| binding.name == name);
            self.state.snapshots.insert(name, state::contents(given, binding));
        }
        if let Trigger::Events(changes) = &self.trigger {
            self.state.changes.clone_from(changes);
        }
        let state = Rc::new(RefCell::new(self.state));
        let run = wit::Context { trigger: self.trigger, attempt: self.attempt, dry_run: self.dry_run };
        let mut ctx = Context::new(run, host::Collector::new(Rc::clone(&state)));
        let result = {
            let _guard = host::enter(Rc::clone(&state));
            hook(&mut ctx)
        };
        let state = state.borrow();
        Outcome {
            values: state.effective_values(),
            operations: state.operations.clone(),
            logs: state.logs.clone(),
            metrics: state.metrics.clone(),
            result,
        }
    }
}

/// What a hook did.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    operations: Vec<Operation>,
    values: Value,
    logs: Vec<LogLine>,
    metrics: Vec<Measurement>,
    result: Result<()>,
}

impl Outcome {
    /// What it asked for, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What the host would carry out: everything after a success, and only what is marked `on_failure` after an error.
    pub fn carried_out(&self) -> Vec<&Operation> {
        self.operations.iter().filter(|operation| self.result.is_ok() || operation.options().on_failure).collect()
    }

    /// The values as the hook left them, with the settings at their root. The host keeps them only after a success.
    pub fn values(&self) -> &Value {
        &self.values
    }

    /// The log lines.
    pub fn logs(&self) -> &[LogLine] {
        &self.logs
    }

    /// The measurements.
    pub fn metrics(&self) -> &[Measurement] {
        &self.metrics
    }

    /// What it returned.
    pub fn result(&self) -> &Result<()> {
        &self.result
    }

    /// What it returned, for tests that expect a success and want its error shown otherwise.
    ///
    /// # Panics
    /// If the hook failed.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        if let Err(error) = &self.result {
            panic_with(&format!("the hook failed: {}: {error}", error.code()));
        }
        self
    }

    /// The error that it returned.
    ///
    /// # Panics
    /// If the hook succeeded.
    #[must_use]
    #[track_caller]
    pub fn expect_error(&self) -> &crate::Error {
        match &self.result {
            Err(error) => error,
            Ok(()) => panic_with("the hook succeeded"),
        }
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "an assertion of tests: a panic is its answer")]
fn panic_with(message: &str) -> ! {
    panic!("{message}")
}

/// One log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: log::Level,
    /// What it says.
    pub message: String,
    /// Its fields.
    pub fields: Vec<(String, String)>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// What was done with the value.
    pub kind: MeasurementKind,
    /// Name of the metric.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Labels of the series.
    pub labels: Vec<(String, String)>,
}

/// What a measurement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasurementKind {
    /// Adds to a counter.
    CounterAdd,
    /// Sets a gauge.
    GaugeSet,
    /// Adds to a histogram.
    HistogramObserve,
}

/// How an operation is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The whole object if absent.
    pub subresource: Option<Subresource>,
    /// An object that is not there is no error.
    pub ignore_missing_object: bool,
    /// Carried out even when the run fails.
    pub on_failure: bool,
}

/// What a hook asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the methods of `Patches` were given")]
pub enum Operation {
    /// [`crate::patches::Patches::create`]
    Create { object: Value, options: Options },
    /// [`crate::patches::Patches::create_if_not_exists`]
    CreateIfNotExists { object: Value, options: Options },
    /// [`crate::patches::Patches::create_or_update`]
    CreateOrUpdate { object: Value, options: Options },
    /// [`crate::patches::Patches::apply`]
    Apply { object: Value, options: Options },
    /// [`crate::patches::Patches::merge_patch`]
    MergePatch { target: ObjectRef, patch: Value, options: Options },
    /// [`crate::patches::Patches::json_patch`]
    JsonPatch { target: ObjectRef, patch: Value, options: Options },
    /// [`crate::patches::Patches::jq_patch`]
    JqPatch { target: ObjectRef, program: String, options: Options },
    /// [`crate::patches::Patches::delete`]
    Delete { target: ObjectRef, propagation: Propagation, options: Options },
}

impl Operation {
    /// The object of a creation or apply, `null` for the others.
    pub fn object(&self) -> &Value {
        match self {
            Self::Create { object, .. }
            | Self::CreateIfNotExists { object, .. }
            | Self::CreateOrUpdate { object, .. }
            | Self::Apply { object, .. } => object,
            Self::MergePatch { .. } | Self::JsonPatch { .. } | Self::JqPatch { .. } | Self::Delete { .. } => {
                &Value::Null
            }
        }
    }

    /// What it is about.
    pub fn target(&self) -> ObjectRef {
        match self {
            Self::Create { object, .. }
            | Self::CreateIfNotExists { object, .. }
            | Self::CreateOrUpdate { object, .. }
            | Self::Apply { object, .. } => {
                let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                ObjectRef::new(text("/apiVersion"), text("/kind"), text("/metadata/name"))
                    .namespace(text("/metadata/namespace"))
            }
            Self::MergePatch { target, .. }
            | Self::JsonPatch { target, .. }
            | Self::JqPatch { target, .. }
            | Self::Delete { target, .. } => target.clone(),
        }
    }

    /// How it is carried out.
    pub fn options(&self) -> Options {
        match self {
            Self::Create { options, .. }
            | Self::CreateIfNotExists { options, .. }
            | Self::CreateOrUpdate { options, .. }
            | Self::Apply { options, .. }
            | Self::MergePatch { options, .. }
            | Self::JsonPatch { options, .. }
            | Self::JqPatch { options, .. }
            | Self::Delete { options, .. } => *options,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            values: json!({}),
            settings: json!({}),
            instance: Identity {
                name: "test".to_owned(),
                namespace: "default".to_owned(),
                package_name: "test-package".to_owned(),
                package_version: "0.1.0".to_owned(),
            },
            snapshots: std::collections::BTreeMap::new(),
            changes: Vec::new(),
            // 2025-01-01T00:00:00Z
            now_unix_ms: 1_735_689_600_000,
            random: 1,
            operations: Vec::new(),
            logs: Vec::new(),
            metrics: Vec::new(),
        }
    }
}

/// Whether a projection can be evaluated here.
fn project(projection: &Projection, object: &Value) -> Option<Value> {
    match projection {
        Projection::Whole => Some(object.clone()),
        Projection::Fields(pointers) => {
            let field = |pointer: &String| (pointer.clone(), object.pointer(pointer).cloned().unwrap_or(Value::Null));
            Some(Value::Object(pointers.iter().map(field).collect()))
        }
        Projection::Jq(_) | Projection::Component => None,
    }
}
