//! Whose an object is.

use std::collections::{BTreeMap, BTreeSet};

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::{APPLICATION_ANNOTATION, Plan, belongs_to_host, defined_by};
use futures::{FutureExt as _, StreamExt, TryStreamExt};
use serde_json::Value;

use super::{Foreign, ReleaseError, Run, Work};
use crate::error::Error;
use crate::limits::PARALLEL;
use crate::request::{annotation, label};

/// Whose a live object is, if it is not the application's. `managed` says that an earlier apply left it, by its record:
/// then a label that somebody took off is no reason. A record is a Secret that others in the namespace may have forged, so
/// its word counts inside of the namespace only, and never for objects of the host.
pub(crate) fn foreign_owner(
    application: &ApplicationId,
    target: &ObjectRef,
    live: &Value,
    managed: bool,
) -> Option<String> {
    if !target.namespace.is_empty() && target.namespace != application.namespace() {
        return Some(format!("namespace {:?}", target.namespace));
    }
    if belongs_to_host(target, live).is_some() {
        return Some("the host".to_owned());
    }
    let managed = managed && !target.namespace.is_empty();
    match label(live, INSTANCE_LABEL) {
        Some(other) if other != application.name() => return Some(format!("application {other:?}")),
        Some(_) => {}
        None if managed => {}
        None => return Some(format!("no label {INSTANCE_LABEL}")),
    }
    if target.namespace.is_empty() {
        // Two applications of one name in different namespaces have the same label.
        match annotation(live, APPLICATION_ANNOTATION) {
            Some(id) if id != application.to_string() => return Some(format!("application {id:?}")),
            Some(_) => {}
            None => return Some(format!("no annotation {APPLICATION_ANNOTATION}")),
        }
    }
    None
}

impl Run<'_> {
    /// The live objects of a plan, its hooks included, by reference.
    ///
    /// # Errors
    /// [`ReleaseError::NotOurs`] with all objects that are somebody else's.
    pub(super) async fn owned_objects(&self, plan: &Plan) -> Result<BTreeMap<ObjectRef, Value>, ReleaseError> {
        let objects: Vec<&Value> = plan.objects().map(|it| &it.object).collect();
        let defined = defined_by(objects);
        let hooks = plan.all_hooks();
        let targets = plan.objects().map(|it| &it.target).chain(hooks.iter().map(|hook| &hook.target));
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let reads: Vec<Work<'_, Option<(ObjectRef, Value)>>> = targets
            .map(|target| {
                let defined = &defined;
                async move {
                    match self.cluster.get(target).await {
                        Ok(live) => Ok(live.map(|live| (target.clone(), live))),
                        // Its definition comes with the release.
                        Err(Error::KindNotServed { gvk })
                            if defined.contains(&(gvk.group.clone(), gvk.kind.clone())) =>
                        {
                            Ok(None)
                        }
                        Err(error) => Err(ReleaseError::from(error)),
                    }
                }
                .boxed()
            })
            .collect();
        let found: Vec<Option<(ObjectRef, Value)>> =
            futures::stream::iter(reads).buffered(PARALLEL).try_collect().await?;

        let managed: BTreeSet<_> =
            plan.previous.iter().map(|it| (&it.gvk.group, &it.gvk.kind, &it.namespace, &it.name)).collect();
        let mut live = BTreeMap::new();
        let mut foreign = Vec::new();
        for (target, object) in found.into_iter().flatten() {
            let is_managed = managed.contains(&(&target.gvk.group, &target.gvk.kind, &target.namespace, &target.name));
            match foreign_owner(self.application, &target, &object, is_managed) {
                Some(owner) => foreign.push(Foreign { target, owner }),
                None => {
                    live.insert(target, object);
                }
            }
        }
        if foreign.is_empty() { Ok(live) } else { Err(ReleaseError::NotOurs { objects: foreign }) }
    }
}
