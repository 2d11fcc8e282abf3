//! Applies single objects of a plan.

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::{Outcome, ReleaseObject, StepId, check_definition};
use serde_json::Value;

use super::{Ended, ReleaseError, Run};
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::{CONFLICT_PAUSE, CONFLICT_RETRIES, SERVED_WAIT};
use crate::request::{Target, metadata};

impl Run<'_> {
    /// Applies an object of the release.
    pub(super) async fn apply(&self, step: StepId, object: &ReleaseObject) -> Result<Ended, ReleaseError> {
        let before = self.live.get(&object.target);
        let (outcome, after) = self.apply_object(step, &object.target, &object.object, before).await?;
        Ok(Ended { object: Some(after), ..Ended::of(outcome) })
    }

    /// Creates a definition of `crds/`, or puts it in place of the one that is there if that is safe.
    pub(super) async fn define(&self, step: StepId, definition: &ReleaseObject) -> Result<Ended, ReleaseError> {
        let target = &definition.target;
        let before = self.live.get(target);
        if let Some(before) = before {
            check_definition(before, &definition.object)
                .map_err(|source| ReleaseError::UnsafeDefinition { target: Box::new(target.clone()), source })?;
        }
        let (outcome, after) = self.apply_object(step, target, &definition.object, before).await?;
        Ok(Ended { object: Some(after), ..Ended::of(outcome) })
    }

    /// Applies one object; `before` is what was there.
    pub(super) async fn apply_object(
        &self,
        step: StepId,
        target: &ObjectRef,
        object: &Value,
        before: Option<&Value>,
    ) -> Result<(Outcome, Value), ReleaseError> {
        let resource = self.served(target).await?;
        let at = Target { resource: &resource, object: target };
        let manager = &self.options.manager;
        let mut pause = CONFLICT_PAUSE;
        for _ in 0..CONFLICT_RETRIES {
            match self.cluster.apply_in(&at, None, manager, false, object).await {
                Ok(after) => {
                    let outcome = match before.map(|before| metadata(before, "resourceVersion")) {
                        None => Outcome::Created,
                        Some(version) if version == metadata(&after, "resourceVersion") => Outcome::Unchanged,
                        Some(_) => Outcome::Configured,
                    };
                    return Ok((outcome, after));
                }
                Err(error) if error.is_lost_race() => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) if is_immutable_job(target, &error) => {
                    let Some(before) = before else { return Err(error.into()) };
                    self.delete_and_wait(step, target, before).await?;
                    let after = self.cluster.apply_in(&at, None, manager, false, object).await?;
                    return Ok((Outcome::Recreated, after));
                }
                Err(error) => {
                    return Err(match error.field_conflict(target) {
                        Some(conflict) => ReleaseError::FieldConflict { conflicts: vec![conflict] },
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
