//! From a bundle to a package in force: fetch, read, compile, link, describe; settings and values.

use std::collections::BTreeMap;
use std::sync::Arc;

use barbless_domain::declaration::{ComponentDeclarations, Hook, Hooks, v1};
use barbless_domain::event::{Failure, Loaded};
use barbless_domain::grant::{self, Request, Scope};
use barbless_domain::hook::KubernetesBinding;
use barbless_domain::identity::Gvk;
use barbless_domain::package::{Package, Problem};
use barbless_domain::release::ReleaseStatus;
use barbless_domain::values::{Computed, Patches, Unfit, Values};
use barbless_sandbox::{Verdict, World};
use serde_json::Value;

use super::Context;
use super::instance::{LinkedComponent, LoadedPackage};
use super::jq::Filters;
use super::release::cluster_failure;
use crate::notice::Notice;

/// Pause after the API server did not answer while a package was loaded, in milliseconds.
const RETRY_MS: u64 = 5_000;

/// Fetches the bundle of a version.
pub(super) async fn deploy(context: &Context, version: &str) -> Result<(), Failure> {
    let source = context.instance.bundles.fetch(version).await?;
    context.instance.data().fetched = Some(source);
    Ok(())
}

/// Problems of documents as one failure: all of them, one a line. A hint that all share is that of the failure;
/// otherwise each stands behind its own problem.
pub(crate) fn failure_of(problems: &[Problem]) -> Failure {
    let first = problems.first();
    let reason = first.map_or("InternalError", |problem| problem.reason.as_str());
    let common = first.and_then(|problem| problem.hint.clone());
    let shared = problems.iter().all(|problem| problem.hint == common);
    let lines: Vec<String> =
        problems.iter().map(|problem| if shared { problem.to_string() } else { with_hint(problem) }).collect();
    let hint = common.filter(|_| shared);
    Failure { reason: reason.to_owned(), message: lines.join("\n"), hint, retry_after_ms: None }
}

/// A problem, with its hint on a line below.
pub(crate) fn with_hint(problem: &Problem) -> String {
    match &problem.hint {
        Some(hint) => format!("{problem}\n  help: {hint}"),
        None => problem.to_string(),
    }
}

/// Reads the bundle that was fetched last; keeps it as the candidate.
pub(super) async fn load(context: &Arc<Context>, version: &str) -> Result<Loaded, Failure> {
    let source = context.instance.data().fetched.clone();
    let source = source.ok_or_else(|| Failure::new("InternalError", "no bundle was fetched"))?;
    let package = Package::load(source).map_err(|problems| failure_of(&problems))?;
    let found = package.manifest.version.to_string();
    if found != version {
        return Err(Failure::new("VersionMismatch", format!("package.yaml: version is {found}, not {version}"))
            .hint("the version of package.yaml and spec.packageVersion must be the same"));
    }
    let loaded = link(context, package).await?;
    // The package is good; that the API server does not answer passes.
    let history = context
        .services
        .cluster
        .release_history(&context.instance.id)
        .await
        .map_err(|error| Failure { retry_after_ms: Some(RETRY_MS), ..cluster_failure(error) })?;
    let deployed = history.iter().rev().find(|record| record.status == ReleaseStatus::Deployed);
    let facts = Loaded {
        version: found,
        hooks: loaded.hooks.iter().map(|hook| hook.declaration.clone()).collect(),
        release: !history.is_empty(),
        installed: deployed.map(|record| record.package.1.clone()),
    };
    let mut data = context.instance.data();
    data.recorded = history.into_iter().next_back().map(|last| last.patches).unwrap_or_default();
    data.candidate = Some(Arc::new(loaded));
    Ok(facts)
}

/// Compiles, links and describes the components of a package, and asks the grant for everything that they want.
async fn link(context: &Context, package: Package) -> Result<LoadedPackage, Failure> {
    let grant = context.instance.grants.of(&package);
    let mut declarations = Vec::new();
    let mut by_path = BTreeMap::new();
    let mut checkers = Vec::new();
    for path in &package.components {
        let Some(bytes) = package.component(path) else { continue };
        let at = |failure: Failure| Failure { message: format!("{path}: {}", failure.message), ..failure };
        let component = context
            .services
            .sandbox
            .load(bytes.to_vec())
            .await
            .map_err(|error| at(Failure::new(error.reason(), crate::report::chain(&error)).hint(error.hint())))?;
        let digest = component.digest().to_owned();
        let declared = component.hooks().to_vec();
        let checks_settings = component.has(World::CheckSettings);
        let prepared = context
            .services
            .sandbox
            .prepare(&component, &context.instance.id, &grant)
            .map_err(|error| at(Failure::new(error.reason(), crate::report::chain(&error)).hint(error.hint())))?;
        let linked = Arc::new(LinkedComponent { path: path.clone(), digest, prepared });
        declarations.push(ComponentDeclarations {
            component: path.clone(),
            hooks: declared,
            exports_filter: component.has(World::Filter),
        });
        by_path.insert(path.clone(), Arc::clone(&linked));
        if checks_settings {
            checkers.push(linked);
        }
    }
    let mut problems = v1::replace(&mut declarations, &package.bindings);
    let namespace = context.instance.id.namespace();
    problems.extend(package.bindings.values().flat_map(|configuration| configuration.outside(namespace)));
    if !problems.is_empty() {
        return Err(failure_of(&problems));
    }
    let hooks = Hooks::check(declarations).map_err(|problems| failure_of(&problems))?;
    let hooks: Vec<Hook> = hooks.iter().cloned().collect();
    let components: BTreeMap<String, Arc<LinkedComponent>> = hooks
        .iter()
        .filter_map(|hook| Some((hook.name().to_owned(), Arc::clone(by_path.get(&hook.component)?))))
        .collect();
    let filters = Filters::read(&context.services.sandbox, &context.instance.jq, &hooks, &package.bindings).await?;
    let loaded = LoadedPackage { package: Arc::new(package), grant, hooks, components, checkers, filters };
    for hook in &loaded.hooks {
        for binding in hook.declaration.kubernetes() {
            // Validated just now.
            let gvk = Gvk::parse(&binding.api_version, &binding.kind)
                .map_err(|error| Failure::new("BadBinding", error.to_string()))?;
            let scope =
                context.services.cluster.resolve(&gvk).await.map_or(Scope::Namespaced, |resource| resource.scope);
            allows_watch(context, &loaded, hook.name(), binding, &gvk, scope)?;
        }
    }
    Ok(loaded)
}

/// Asks the grant for a kubernetes binding.
pub(super) fn allows_watch(
    context: &Context,
    package: &LoadedPackage,
    hook: &str,
    binding: &KubernetesBinding,
    gvk: &Gvk,
    scope: Scope,
) -> Result<(), Failure> {
    let request = Request::Watch { gvk, names: &binding.name_selector, scope };
    grant::allows(&context.instance.id, &package.grant, request).into_result().map_err(|denial| {
        let message = format!("hook '{hook}', binding '{}': {}: {}", binding.name, denial.what, denial.why);
        Failure::new(&denial.reason, message).hint(denial.hint)
    })
}

/// The candidate takes the place of the package in force. What hooks have set stays, in this process or in one before it,
/// as far as the package still has these hooks and its schemas allow it.
pub(super) fn adopt(context: &Context) -> Result<(), Failure> {
    let mut data = context.instance.data();
    let Some(candidate) = data.candidate.take() else {
        return Err(Failure::new("InternalError", "no package was loaded"));
    };
    // A deletion that goes on in another process has no step that checks settings, and its hooks need them all the
    // same. Settings that the schema refuses are as good as none.
    let hooks = candidate.hooks.iter().map(|hook| hook.name().to_owned()).collect();
    context.services.metrics.keep_hooks(&context.instance.id.to_string(), &hooks);
    let recorded = std::mem::take(&mut data.recorded);
    let patches = match (data.unrestored.take(), &data.values) {
        // It is the first package of this process.
        _ if data.current.is_none() => recorded,
        (Some(waiting), _) => waiting,
        (None, values) => values.as_ref().map(|values| values.patches().clone()).unwrap_or_default(),
    };
    let patches = patches.only_of(&hooks);
    data.values = match restored(&candidate, data.wanted.clone(), &patches) {
        Ok((values, unfit)) => {
            tell(context, &unfit);
            Some(values)
        }
        Err(_) => {
            let values = restored(&candidate, Value::Null, &patches).ok().map(|(values, _)| values);
            data.unrestored = Some(patches);
            values
        }
    };
    data.applied = None;
    data.current = Some(candidate);
    data.planned = None;
    Ok(())
}

fn restored(package: &LoadedPackage, settings: Value, patches: &Patches) -> Result<(Values, Vec<Unfit>), Vec<Problem>> {
    let bytes = barbless_domain::limits::GuestLimits::default().values_bytes;
    Values::restored(Arc::clone(&package.package), settings, patches, bytes)
}

/// What a hook set before and does not fit any more is no reason to stop: the hook will set what does.
fn tell(context: &Context, unfit: &[Unfit]) {
    for Unfit { hook, problems } in unfit {
        let why: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let why = why.join("; ");
        tracing::warn!(application = %context.instance.id, hook, why, "what the hook set in the values is dropped");
        let text = format!("warning: what hook '{hook}' set in the values does not fit any more and is dropped: {why}");
        context.notice(Notice::Progress { text });
    }
}

fn values_of(
    package: &LoadedPackage,
    settings: Value,
    patches: Patches,
    applied: Option<&Computed>,
) -> Result<Values, Vec<Problem>> {
    let bytes = barbless_domain::limits::GuestLimits::default().values_bytes;
    Values::new(Arc::clone(&package.package), settings, patches, applied, bytes)
}

/// One line for each requirement of the package in force that is not met.
pub(super) fn unmet_requirements(context: &Context) -> Vec<String> {
    let Ok(package) = context.instance.current() else { return Vec::new() };
    let platform = context.services.platform.borrow().clone();
    package.package.manifest.requirements.unmet(&platform).iter().map(ToString::to_string).collect()
}

/// Checks the settings and computes the values.
pub(super) async fn configure(context: &Arc<Context>, settings: Value) -> Result<(), Failure> {
    let package = context.instance.current()?;
    // What hooks have set stays; rules that compare, compare with what was applied last.
    let compute = || {
        let data = context.instance.data();
        if let Some(waiting) = &data.unrestored {
            return restored(&package, settings.clone(), waiting);
        }
        let patches = data.values.as_ref().map(|values| values.patches().clone()).unwrap_or_default();
        values_of(&package, settings.clone(), patches, data.applied.as_ref()).map(|values| (values, Vec::new()))
    };
    let (values, _) = compute().map_err(|problems| failure_of(&problems))?;
    let instance = Arc::new(context.instance.identity(&package.package));
    for checker in &package.checkers {
        let outcome = checker.prepared.check_settings(&instance, &values.computed().settings).await;
        match outcome.answer {
            Ok(Verdict::Allow { warnings }) => {
                for warning in warnings {
                    context.notice(Notice::Progress { text: format!("warning: {warning}") });
                }
            }
            Ok(Verdict::Reject { reason }) => {
                return Err(Failure::new("SettingsRejected", format!("{}: {reason}", checker.path))
                    .hint("change spec.settings as the message says"));
            }
            Err(error) => {
                let message = format!("{}: checking the settings: {}", checker.path, crate::report::chain(&error));
                return Err(Failure::new(error.reason(), message).hint(error.hint()));
            }
        }
    }
    let _one_at_a_time = context.instance.committing.lock().await;
    // A hook may have set values while the checks ran; they stay.
    let (values, unfit) = compute().map_err(|problems| failure_of(&problems))?;
    tell(context, &unfit);
    let mut data = context.instance.data();
    data.values = Some(values);
    data.unrestored = None;
    Ok(())
}

/// Forgets everything that is kept for the application.
pub(super) async fn undeploy(context: &Context) -> Result<(), Failure> {
    super::bindings::stop(context).await;
    let mut data = context.instance.data();
    data.fetched = None;
    data.planned = None;
    data.candidate = None;
    data.current = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(message: &str, hint: Option<&str>) -> Problem {
        Problem {
            reason: "BadKey".into(),
            file: "a.yaml".into(),
            line: Some(1),
            column: Some(2),
            path: String::new(),
            message: message.into(),
            hint: hint.map(str::to_owned),
        }
    }

    #[test]
    fn each_problem_has_its_own_hint_and_a_common_one_is_told_once() {
        let told = |problems: &[Problem]| {
            let failure = failure_of(problems);
            (failure.message, failure.hint)
        };
        assert_eq!(told(&[problem("x", Some("h"))]), ("a.yaml:1:2: x".to_owned(), Some("h".to_owned())));
        let same = [problem("x", Some("h")), problem("y", Some("h"))];
        assert_eq!(told(&same), ("a.yaml:1:2: x\na.yaml:1:2: y".to_owned(), Some("h".to_owned())));
        let others = [problem("x", Some("h")), problem("y", None), problem("z", Some("i"))];
        assert_eq!(
            told(&others),
            ("a.yaml:1:2: x\n  help: h\na.yaml:1:2: y\na.yaml:1:2: z\n  help: i".to_owned(), None)
        );
    }
}
