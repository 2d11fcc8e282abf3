//! One run of one hook with an input that somebody made up, and what the host would make of it: for test cases.
//!
//! The package is loaded as for an application, and what the hook gives back passes the same checks; nothing is carried
//! out.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use barbless_domain::event::Failure;
use barbless_domain::grant::{self, Request, Scope};
use barbless_domain::hook::{HookDeclaration, KubernetesBinding};
use barbless_domain::identity::Gvk;
use barbless_domain::operation::Operation;
use barbless_domain::package::Problem;
use barbless_domain::run::{self, RunInput, RunOutcome, ValuesChange};
use barbless_domain::snapshot::Projected;
use barbless_domain::values::{Patches, Values};
use serde_json::Value;
use tokio::sync::mpsc;

use super::instance::LoadedPackage;
use super::{Context, Instance, Services, bindings, hooks, package};

/// A package that is loaded for one application.
pub(crate) struct Trial {
    context: Arc<Context>,
    package: Arc<LoadedPackage>,
}

/// What came of a run.
pub(crate) struct Tried {
    /// As the hook left it.
    pub(crate) outcome: RunOutcome,
    /// What would be carried out, or would have been if nothing had been refused; with their namespaces.
    pub(crate) operations: Vec<Operation>,
    /// Why the host would refuse what the hook gave back.
    pub(crate) refused: Option<Failure>,
    /// The values afterwards: as before, if the run failed.
    pub(crate) values: Arc<Value>,
}

impl Trial {
    /// Loads a package.
    ///
    /// # Errors
    /// Everything for which an application could not be installed: the package is bad, or asks for what is not granted.
    pub(crate) async fn load(services: Arc<Services>, instance: Instance, version: &str) -> Result<Self, Failure> {
        // Nothing is watched, so nothing is ever sent.
        let (events, _inbox) = mpsc::channel(1);
        let context = Arc::new(Context { services, instance, events, objects: Arc::new(AtomicUsize::new(0)) });
        package::deploy(&context, version).await?;
        package::load(&context, version).await?;
        package::adopt(&context)?;
        let package = context.instance.current()?;
        Ok(Self { context, package })
    }

    /// For whom hooks run.
    pub(crate) fn instance(&self) -> run::Instance {
        self.context.instance.identity(&self.package.package)
    }

    /// The hooks, by name.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &HookDeclaration> {
        self.package.hooks.iter().map(|hook| &hook.declaration)
    }

    /// What the snapshot of a binding keeps of an object.
    ///
    /// # Errors
    /// What the filter says.
    pub(crate) async fn project(
        &self,
        hook: &str,
        binding: &KubernetesBinding,
        object: &Value,
    ) -> Result<Projected, String> {
        bindings::project(&self.context, &self.package, hook, binding, object).await
    }

    /// Whether a kind lives in namespaces. What the cluster of the trial does not serve is taken for such a kind.
    pub(crate) async fn is_namespaced(&self, gvk: &Gvk) -> bool {
        let resolved = self.context.services.cluster.resolve(gvk).await;
        resolved.map_or(Scope::Namespaced, |resource| resource.scope) == Scope::Namespaced
    }

    /// The values for these settings, before any hook has run.
    ///
    /// # Errors
    /// What the schema says.
    pub(crate) fn values(&self, settings: Value) -> Result<Values, Vec<Problem>> {
        let bytes = self.context.services.sandbox.limits().values_bytes;
        Values::new(Arc::clone(&self.package.package), settings, Patches::default(), None, bytes)
    }

    /// Runs a hook, and judges what it gives back.
    ///
    /// # Errors
    /// If no component has the hook.
    pub(crate) async fn run(&self, input: &Arc<RunInput>, values: &Values) -> Result<Tried, Failure> {
        let hook = &input.hook;
        let component = self.package.components.get(hook);
        let component =
            component.ok_or_else(|| Failure::new("InternalError", format!("no component has a hook '{hook}'")))?;
        let outcome = component.prepared.run(input).await;
        let failed = !outcome.end.is_ok();
        let mut operations = Vec::new();
        let mut refused: Option<Failure> = None;
        for operation in outcome.operations.iter().filter(|operation| !failed || operation.on_failure) {
            match self.check(operation).await {
                Ok(checked) => operations.push(checked),
                Err(failure) => {
                    operations.push(operation.clone());
                    refused.get_or_insert(failure);
                }
            }
        }
        let mut after = Arc::clone(&values.computed().values);
        if !failed && refused.is_none() {
            match self.after(values, hook, &outcome.values) {
                Ok(changed) => after = changed,
                Err(failure) => refused = Some(failure),
            }
        }
        Ok(Tried { outcome, operations, refused, values: after })
    }

    fn after(&self, values: &Values, hook: &str, changes: &[ValuesChange]) -> Result<Arc<Value>, Failure> {
        let changed = values.apply_changes(hook, changes).map_err(|problems| package::failure_of(&problems))?;
        Ok(Arc::clone(&changed.computed().values))
    }

    /// Asks the grant. A kind that the cluster of the trial does not serve, such as one of a definition of somebody else,
    /// is judged as one that lives in namespaces.
    async fn check(&self, operation: &Operation) -> Result<Operation, Failure> {
        if self.context.services.cluster.resolve(&operation.target.gvk).await.is_ok() {
            return hooks::check(&self.context, &self.package, operation).await;
        }
        let id = &self.context.instance.id;
        grant::allows(id, &self.package.grant, Request::Operate { operation, scope: Scope::Namespaced })
            .into_result()
            .map_err(hooks::denied)?;
        Ok(hooks::in_namespace(operation.clone(), id.namespace()))
    }
}
