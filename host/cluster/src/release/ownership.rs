//! Whose an object is.

use std::collections::{BTreeMap, BTreeSet};

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::{APPLICATION_ANNOTATION, Directives, Ownership, belongs_to_host, defined_by};
use futures::{FutureExt as _, StreamExt, TryStreamExt};
use serde_json::Value;

use super::{Foreign, ReleaseError, Run, Work};
use crate::error::Error;
use crate::limits::PARALLEL;
use crate::record::helm_marks;
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

/// Whose a live object is that belongs to nobody in particular, if somebody claims it: another application, or the host.
pub(crate) fn claimed_by(application: &ApplicationId, target: &ObjectRef, live: &Value) -> Option<String> {
    if !target.namespace.is_empty() && target.namespace != application.namespace() {
        return Some(format!("namespace {:?}", target.namespace));
    }
    if belongs_to_host(target, live).is_some() {
        return Some("the host".to_owned());
    }
    if let Some(other) = label(live, INSTANCE_LABEL).filter(|other| *other != application.name()) {
        return Some(format!("application {other:?}"));
    }
    let id = annotation(live, APPLICATION_ANNOTATION).filter(|id| *id != application.to_string())?;
    Some(format!("application {id:?}"))
}

impl Run<'_> {
    /// The live objects of the plan, its hooks and definitions included, by reference. With `take_over`, those in the
    /// namespace that Helm's release of the same name has are ours.
    ///
    /// # Errors
    /// [`ReleaseError::NotOurs`] with all objects that are somebody else's.
    pub(super) async fn owned_objects(&self, take_over: bool) -> Result<BTreeMap<ObjectRef, Value>, ReleaseError> {
        let plan = self.plan;
        let definitions = plan.definitions.iter().map(|it| &it.object);
        let defined = defined_by(plan.objects().map(|it| &it.object).chain(definitions));
        let hooks: Vec<_> = plan.all_hooks();
        let own = |ownership: Ownership| ownership == Ownership::Release;
        let objects = plan.objects().map(|it| (&it.target, own(Directives::of(&it.object).ownership)));
        let hooks = hooks.iter().map(|hook| (&hook.target, own(Directives::of(&hook.object).ownership)));
        let definitions = plan.definitions.iter().map(|it| (&it.target, false));
        let targets: Vec<(&ObjectRef, bool)> = objects.chain(hooks).chain(definitions).collect();
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let reads: Vec<Work<'_, Option<(ObjectRef, bool, Value)>>> = targets
            .into_iter()
            .map(|(target, own)| {
                let defined = &defined;
                async move {
                    match self.cluster.get(target).await {
                        Ok(live) => Ok(live.map(|live| (target.clone(), own, live))),
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
        let found: Vec<Option<(ObjectRef, bool, Value)>> =
            futures::stream::iter(reads).buffered(PARALLEL).try_collect().await?;

        let managed: BTreeSet<_> =
            plan.previous.iter().map(|it| (&it.gvk.group, &it.gvk.kind, &it.namespace, &it.name)).collect();
        let mut live = BTreeMap::new();
        let mut foreign = Vec::new();
        for (target, own, object) in found.into_iter().flatten() {
            // Helm's marks are taken for ours where the operator has asked for that.
            let of_helm = take_over && helm_marks(&object).is_some_and(|marks| marks.are_of(self.application()));
            let is_managed =
                of_helm || managed.contains(&(&target.gvk.group, &target.gvk.kind, &target.namespace, &target.name));
            let owner = match own {
                true => foreign_owner(self.application(), &target, &object, is_managed),
                false => claimed_by(self.application(), &target, &object),
            };
            match owner {
                Some(owner) => foreign.push(Foreign { target, owner }),
                None => {
                    live.insert(target, object);
                }
            }
        }
        if foreign.is_empty() { Ok(live) } else { Err(ReleaseError::NotOurs { objects: foreign }) }
    }
}
