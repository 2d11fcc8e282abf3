//! Applies a plan.

use std::collections::BTreeMap;

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::hook::LabelSelector;
use barbless_domain::identity::ObjectRef;
use barbless_domain::operation::Propagation;
use barbless_domain::release::{HelmHook, HookEvent, Plan, Readiness, ReleaseObject, is_kept};
use futures::{FutureExt as _, StreamExt};
use serde_json::Value;

use super::ownership::foreign_owner;
use super::wait::{Verdict, Wanted};
use super::{Applied, Change, Interrupted, Progress, ReleaseError, ReleaseOperation, ReleaseOptions, Run, Work};
use crate::Cluster;
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::{CONFLICT_PAUSE, CONFLICT_RETRIES, PARALLEL, SERVED_WAIT};
use crate::request::{Target, metadata};

impl Cluster {
    /// Applies a release: checks ownership of everything, runs the hooks before, applies wave by wave and waits for
    /// each, deletes what the release dropped, runs the hooks after.
    ///
    /// # Guarantees
    /// Nothing is written if an object exists that is somebody else's. Fields of other managers are not taken.
    ///
    /// # Errors
    /// See [`ReleaseError`]. What was applied before the error stays.
    pub async fn apply_release(
        &self,
        plan: &Plan,
        operation: ReleaseOperation,
        options: &ReleaseOptions,
    ) -> Result<Applied, ReleaseError> {
        let run = Run::new(self, &plan.application, options);
        Box::pin(run.apply(plan, operation)).await
    }
}

impl Run<'_> {
    async fn apply(&self, plan: &Plan, operation: ReleaseOperation) -> Result<Applied, ReleaseError> {
        let (before, after) = operation.events();
        let hooks = |event: HookEvent| -> &[HelmHook] { plan.hooks.get(&event).map_or(&[], Vec::as_slice) };
        let live = self.no_longer_than(self.owned_objects(plan)).await?;
        self.helm_hooks(before, hooks(before)).await?;

        let mut applied = Applied::default();
        let mut waiting = Vec::new();
        for wave in &plan.waves {
            for objects in wave.objects.chunk_by(|a, b| a.target.gvk.kind == b.target.gvk.kind) {
                self.check_cancelled()?;
                for (object, change, result) in self.no_longer_than(self.apply_all(objects, &live)).await? {
                    self.tell(Progress::Applied { target: object.target.clone(), change });
                    applied.objects.push((object.target.clone(), change));
                    waiting.extend(self.wanted(object, result)?);
                }
            }
            if wave.wait {
                self.wait_ready(std::mem::take(&mut waiting)).await?;
            }
            if wave.objects.iter().any(|it| it.target.gvk.kind == "CustomResourceDefinition") {
                self.cluster.forget_kinds();
            }
        }
        self.wait_ready(waiting).await?;

        for target in &plan.kept {
            applied.left.push((target.clone(), "its resource policy keeps it".to_owned()));
        }
        for target in &plan.prune {
            self.check_cancelled()?;
            match self.no_longer_than(self.prune(target)).await? {
                Pruned::Deleted => applied.pruned.push(target.clone()),
                Pruned::Absent => {}
                Pruned::Left(why) => applied.left.push((target.clone(), why)),
            }
        }
        self.helm_hooks(after, hooks(after)).await?;
        Ok(applied)
    }

    /// Requests are bounded by the deadline too.
    pub(super) async fn no_longer_than<T>(
        &self,
        work: impl Future<Output = Result<T, ReleaseError>>,
    ) -> Result<T, ReleaseError> {
        match Box::pin(self.bounded(work)).await {
            Ok(outcome) => outcome,
            Err(Interrupted::Cancelled) => Err(ReleaseError::Cancelled),
            Err(Interrupted::TimeUp) => Err(self.timed_out([])),
        }
    }

    /// Applies objects of one kind, several at once. All of them are tried; the first error in order is returned.
    async fn apply_all<'o>(
        &self,
        objects: &'o [ReleaseObject],
        live: &BTreeMap<ObjectRef, Value>,
    ) -> Result<Vec<(&'o ReleaseObject, Change, Value)>, ReleaseError> {
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let work: Vec<Work<'_, (&'o ReleaseObject, Change, Value)>> = objects
            .iter()
            .map(|object| {
                async move {
                    let before = live.get(&object.target);
                    let (change, after) = self.apply_object(&object.target, &object.object, before).await?;
                    Ok((object, change, after))
                }
                .boxed()
            })
            .collect();
        let results: Vec<_> = futures::stream::iter(work).buffered(PARALLEL).collect().await;
        results.into_iter().collect()
    }

    /// Applies one object.
    pub(super) async fn apply_object(
        &self,
        target: &ObjectRef,
        object: &Value,
        before: Option<&Value>,
    ) -> Result<(Change, Value), ReleaseError> {
        let resource = self.served(target).await?;
        let at = Target { resource: &resource, object: target };
        let manager = &self.options.manager;
        let mut pause = CONFLICT_PAUSE;
        for _ in 0..CONFLICT_RETRIES {
            match self.cluster.apply_in(&at, None, manager, false, object).await {
                Ok(after) => {
                    let change = match before.map(|before| metadata(before, "resourceVersion")) {
                        None => Change::Created,
                        Some(version) if version == metadata(&after, "resourceVersion") => Change::Unchanged,
                        Some(_) => Change::Configured,
                    };
                    return Ok((change, after));
                }
                Err(error) if error.is_lost_race() => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) if before.is_some() && is_immutable_job(target, &error) => {
                    Box::pin(self.delete_and_wait(target)).await?;
                    let after = self.cluster.apply_in(&at, None, manager, false, object).await?;
                    return Ok((Change::Recreated, after));
                }
                Err(error) => {
                    return Err(match error.field_conflict(target) {
                        Some(conflict) => ReleaseError::FieldConflict(Box::new(conflict)),
                        None => error.into(),
                    });
                }
            }
        }
        Err(Error::Contended { action: "apply", object: target.to_string(), attempts: CONFLICT_RETRIES }.into())
    }

    /// What the cluster serves for an object whose definition may have been established a moment ago.
    async fn served(&self, target: &ObjectRef) -> Result<Resource, ReleaseError> {
        let until = tokio::time::Instant::now() + SERVED_WAIT;
        loop {
            match self.cluster.resolve(&target.gvk).await {
                Err(Error::KindNotServed { .. }) if tokio::time::Instant::now() < until => {
                    // As long as a miss is believed; asking sooner would get the same answer.
                    tokio::time::sleep(crate::limits::DISCOVERY_MISS).await;
                }
                resolved => return Ok(resolved?),
            }
        }
    }

    /// What to wait for, if the object is not ready already.
    fn wanted(&self, object: &ReleaseObject, result: Value) -> Result<Option<Wanted>, ReleaseError> {
        let target = object.target.clone();
        match (self.options.ready)(&result) {
            Readiness::Ready => {
                self.tell(Progress::Ready { target });
                Ok(None)
            }
            Readiness::Waiting(why) => {
                self.tell(Progress::Waiting { target: target.clone(), why: why.clone() });
                Ok(Some(Wanted { target, seen: Some(result), why }))
            }
            // The state may be of an earlier apply; the watch tells whether it stays.
            Readiness::Failed(why) => Ok(Some(Wanted { target, seen: Some(result), why })),
        }
    }

    async fn wait_ready(&self, wanted: Vec<Wanted>) -> Result<(), ReleaseError> {
        let own = LabelSelector {
            match_labels: vec![(INSTANCE_LABEL.to_owned(), self.application.name().to_owned())],
            match_expressions: Vec::new(),
        };
        let assess = |_: &ObjectRef, object: Option<&Value>| match object.map(|object| (self.options.ready)(object)) {
            None => Verdict::Pending("it is gone, or its labels are".to_owned()),
            Some(Readiness::Ready) => Verdict::Done,
            Some(Readiness::Waiting(why)) => Verdict::Pending(why),
            Some(Readiness::Failed(why)) => Verdict::Failed(why),
        };
        self.wait_for(wanted, Some(&own), assess, |target| Progress::Ready { target: target.clone() }).await
    }

    /// Deletes an object that the release dropped, if it is still ours.
    async fn prune(&self, target: &ObjectRef) -> Result<Pruned, ReleaseError> {
        let resource = match self.cluster.resolve(&target.gvk).await {
            Ok(resource) => resource,
            // Its version is no longer served, or its kind is gone and its objects with it.
            Err(Error::KindNotServed { .. }) => return Ok(Pruned::Absent),
            Err(error) => return Err(error.into()),
        };
        let at = Target { resource: &resource, object: target };
        let Some(live) = self.cluster.get_in(&at).await? else { return Ok(Pruned::Absent) };
        let left = match foreign_owner(self.application, target, &live, true) {
            Some(owner) => Some(format!("it belongs to {owner}")),
            None if is_kept(&live) => Some("its resource policy keeps it".to_owned()),
            None => None,
        };
        if let Some(why) = left {
            self.tell(Progress::Left { target: target.clone(), why: why.clone() });
            return Ok(Pruned::Left(why));
        }
        match self.cluster.delete_in(&at, Propagation::Background, metadata(&live, "uid")).await {
            Ok(true) => {
                self.tell(Progress::Deleting { target: target.clone() });
                Ok(Pruned::Deleted)
            }
            Ok(false) => Ok(Pruned::Absent),
            // Another object took its place: not the one that the release dropped.
            Err(error) if error.is_lost_race() => Ok(Pruned::Left("another object took its place".to_owned())),
            Err(error) => Err(error.into()),
        }
    }
}

enum Pruned {
    Deleted,
    Absent,
    Left(String),
}

/// Whether the API server refused to change fields of a Job that never change. A Job is made anew then: what it did is
/// done, and its new form has to run.
fn is_immutable_job(target: &ObjectRef, error: &Error) -> bool {
    let fixed = ["spec.template", "spec.selector", "spec.completions", "spec.completionMode"];
    match error {
        Error::Api(refused) => {
            target.gvk.kind == "Job"
                && target.gvk.group == "batch"
                && refused.code == 422
                && refused.causes.iter().any(|cause| fixed.iter().any(|field| cause.field.starts_with(field)))
        }
        _ => false,
    }
}
