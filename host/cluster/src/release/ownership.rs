//! Whose an object is. For that, what is there is looked at before anything is written, with few requests:
//!
//! 1. Of a kind of which an earlier apply left two or more objects, all objects with the label of the application are
//!    listed, whole; of a page nothing else is kept, and there are few pages. An upgrade that finds everything in its place
//!    asks for nothing else.
//! 2. Of those that this did not show, if there are four or more of a kind, the metadata of all objects of the kind in the
//!    namespace is listed, one page of it: an installation learns so that nothing is there. Nothing that others keep in
//!    their Secrets is read. If there is more than a page, what is not on it stays in doubt.
//! 3. What is still in doubt, what lacks our label, and what is rare is read one by one.
//!
//! Where the host may not list, everything is read one by one.

use std::collections::{BTreeMap, BTreeSet};

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::release::{APPLICATION_ANNOTATION, Directives, Ownership, belongs_to_host, defined_by};
use futures::{FutureExt as _, StreamExt, TryStreamExt};
use serde_json::Value;

use super::{Foreign, ReleaseError, Run, Work};
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::{LIST_NAMES, LIST_OURS, OWN_PAGE_MORE, OWN_PAGES_MORE, PAGE, PARALLEL};
use crate::record::{helm_marks, hook_identity};
use crate::request::{Selection, Target, annotation, label, metadata};

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
    /// namespace that Helm's release of the same name has, or that its hooks left, are ours.
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
        let managed: BTreeSet<_> =
            plan.previous.iter().map(|it| (&it.gvk.group, &it.gvk.kind, &it.namespace, &it.name)).collect();
        let is_managed = |it: &ObjectRef| managed.contains(&(&it.gvk.group, &it.gvk.kind, &it.namespace, &it.name));
        let live = self.live_objects(targets.iter().map(|(target, _)| *target), &is_managed, &defined).await?;

        let hooks_of_helm = match take_over {
            true => self.cluster.hooks_of_helm(self.application()).await?,
            false => BTreeSet::new(),
        };
        let mut foreign: Vec<Foreign> = Vec::new();
        for (target, own) in targets {
            let Some(object) = live.get(target) else { continue };
            // Helm's marks are taken for ours where the operator has asked for that.
            let is_marked = || helm_marks(object).is_some_and(|marks| marks.are_of(self.application()));
            let of_helm = take_over && (hooks_of_helm.contains(&hook_identity(target)) || is_marked());
            let owner = match own {
                true => foreign_owner(self.application(), target, object, of_helm || is_managed(target)),
                false => claimed_by(self.application(), target, object),
            };
            if let Some(owner) = owner
                && !foreign.iter().any(|it| it.target == *target)
            {
                foreign.push(Foreign { target: target.clone(), owner });
            }
        }
        if foreign.is_empty() { Ok(live) } else { Err(ReleaseError::NotOurs { objects: foreign }) }
    }

    /// Those of the objects that are there; see the module for how they are looked for. `is_managed` says that an earlier
    /// apply left one; kinds that are `defined` by the release may be served later.
    async fn live_objects<'r>(
        &self,
        targets: impl Iterator<Item = &'r ObjectRef>,
        is_managed: &(dyn Fn(&ObjectRef) -> bool + Sync),
        defined: &BTreeSet<(String, String)>,
    ) -> Result<BTreeMap<ObjectRef, Value>, ReleaseError> {
        let mut kinds: BTreeMap<(&Gvk, &str), Vec<&ObjectRef>> = BTreeMap::new();
        for target in targets {
            kinds.entry((&target.gvk, &target.namespace)).or_default().push(target);
        }
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let looks: Vec<Work<'_, Seen>> = kinds
            .into_iter()
            .map(|((gvk, namespace), wanted)| {
                async move {
                    let resource = match self.cluster.resolve(gvk).await {
                        Ok(resource) => resource,
                        // Its definition comes with the release.
                        Err(Error::KindNotServed { .. })
                            if defined.contains(&(gvk.group.clone(), gvk.kind.clone())) =>
                        {
                            return Ok(Seen::default());
                        }
                        Err(error) => return Err(ReleaseError::from(error)),
                    };
                    let namespace = (!namespace.is_empty()).then_some(namespace);
                    let ours = wanted.iter().filter(|target| is_managed(target)).count();
                    Ok(self.listed(resource, namespace, &wanted, ours).await?)
                }
                .boxed()
            })
            .collect();
        let seen: Vec<Seen> = futures::stream::iter(looks).buffered(PARALLEL).try_collect().await?;
        let mut live = BTreeMap::new();
        let mut reads: Vec<Work<'_, Option<(ObjectRef, Value)>>> = Vec::new();
        for Seen { found, doubtful } in seen {
            live.extend(found);
            for (resource, target) in doubtful {
                reads.push(
                    async move {
                        let found = self.cluster.get_in(&Target { resource: &resource, object: &target }).await?;
                        Ok(found.map(|object| (target, object)))
                    }
                    .boxed(),
                );
            }
        }
        let read: Vec<_> = futures::stream::iter(reads).buffered(PARALLEL).try_collect().await?;
        live.extend(read.into_iter().flatten());
        Ok(live)
    }

    /// What lists show of objects of a kind, of which `ours` were left by an earlier apply.
    async fn listed(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        wanted: &[&ObjectRef],
        ours: usize,
    ) -> Result<Seen, Error> {
        let mut doubtful: BTreeMap<&str, &ObjectRef> = wanted.iter().map(|it| (it.name.as_str(), *it)).collect();
        let mut found = Vec::new();
        let mut may_list = resource.serves("list");
        if may_list && ours >= LIST_OURS {
            let labels = format!("{INSTANCE_LABEL}={}", self.application().name());
            let page = u32::try_from(ours.saturating_add(OWN_PAGE_MORE)).unwrap_or(PAGE).min(PAGE);
            let pages = ours / PAGE as usize + 1 + OWN_PAGES_MORE;
            let names: BTreeSet<&str> = doubtful.keys().copied().collect();
            let only = Some(&names);
            let selection =
                Selection { labels: &labels, metadata_only: false, managed_fields: true, only, page, pages };
            match self.cluster.list_some(&resource, namespace, &selection).await {
                Ok(listed) => {
                    for object in listed.objects {
                        if let Some(target) = metadata(&object, "name").and_then(|name| doubtful.remove(name)) {
                            found.push((target.clone(), object));
                        }
                    }
                }
                Err(error) if cannot_list(&error) => may_list = false,
                Err(error) => return Err(error),
            }
        }
        if may_list && doubtful.len() >= LIST_NAMES {
            let selection =
                Selection { labels: "", metadata_only: true, managed_fields: false, only: None, page: PAGE, pages: 1 };
            match self.cluster.list_some(&resource, namespace, &selection).await {
                Ok(listed) if listed.whole => {
                    let names: BTreeSet<&str> = listed.objects.iter().filter_map(|it| metadata(it, "name")).collect();
                    doubtful.retain(|name, _| names.contains(name));
                }
                Ok(_) => {}
                Err(error) if cannot_list(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let doubtful = doubtful.into_values().map(|target| (resource.clone(), target.clone())).collect();
        Ok(Seen { found, doubtful })
    }
}

/// What lists have shown of one kind.
#[derive(Default)]
struct Seen {
    found: Vec<(ObjectRef, Value)>,
    /// What has to be read.
    doubtful: Vec<(Resource, ObjectRef)>,
}

/// Whether single objects may be read all the same: lists are forbidden or not served, or one took so long that the API
/// server forgot where it was.
fn cannot_list(error: &Error) -> bool {
    matches!(error.code(), Some(403 | 404 | 405 | 410))
}
