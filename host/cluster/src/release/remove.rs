//! Deletes single objects.

use barbless_domain::identity::ObjectRef;
use barbless_domain::operation::Propagation;
use barbless_domain::release::{Directives, Outcome, StepId, is_kept};
use serde_json::Value;

use super::ownership::foreign_owner;
use super::waiter::Goal;
use super::{Ended, Progress, ReleaseError, Run};
use crate::error::Error;
use crate::request::{Target, metadata};

impl Run<'_> {
    /// Deletes an object that an earlier apply left, if it is still ours and nothing keeps it.
    pub(super) async fn delete(&self, target: &ObjectRef, propagation: Propagation) -> Result<Ended, ReleaseError> {
        self.delete_if(target, propagation, |live| match foreign_owner(self.application(), target, live, true) {
            Some(owner) => Some(format!("it belongs to {owner}")),
            None if is_kept(live) => Some("its resource policy keeps it".to_owned()),
            None => None,
        })
        .await
    }

    /// Deletes an object that this operation applied: the one with this uid. Without one, what is there is looked at.
    pub(super) async fn delete_applied(
        &self,
        target: &ObjectRef,
        uid: Option<String>,
        propagation: Propagation,
    ) -> Result<Ended, ReleaseError> {
        let Some(uid) = uid else {
            return self
                .delete_if(target, propagation, |live| {
                    let owner = foreign_owner(self.application(), target, live, false)?;
                    Some(format!("it belongs to {owner}"))
                })
                .await;
        };
        let resource = self.cluster.resolve_any(&target.gvk).await?;
        let at = Target { resource: &resource, object: target };
        match self.cluster.delete_in(&at, propagation, Some(&uid)).await {
            Ok(true) => Ok(Ended { deleted: Some(uid), ..Ended::of(Outcome::Deleted) }),
            Ok(false) => Ok(Ended::of(Outcome::Done)),
            Err(error) if error.is_lost_race() => Ok(Ended::left("another object took its place")),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object unless `left` says why it is left.
    async fn delete_if(
        &self,
        target: &ObjectRef,
        propagation: Propagation,
        left: impl Fn(&Value) -> Option<String> + Send + Sync,
    ) -> Result<Ended, ReleaseError> {
        let mut resolved = self.cluster.resolve_any(&target.gvk).await;
        // A second look if another object takes its place in between, or the version of its API goes; a third is somebody
        // else's game.
        for _ in 0..3 {
            let resource = match resolved {
                Ok(resource) => resource,
                // With the definition of a custom resource all its objects are gone. Those of a kind that a new version of
                // Kubernetes has dropped are out of reach.
                Err(Error::KindNotServed { gvk }) => {
                    return Ok(Ended::left(format!("the cluster no longer serves {} {}", gvk.group, gvk.kind)));
                }
                Err(error) => return Err(error.into()),
            };
            let at = Target { resource: &resource, object: target };
            let Some(live) = self.cluster.get_in(&at).await? else {
                match self.cluster.resolve_anew(&target.gvk).await {
                    Ok(anew) if anew.api == resource.api => return Ok(Ended::of(Outcome::Done)),
                    // It was looked for under a version that is not served.
                    anew => resolved = anew,
                }
                continue;
            };
            if let Some(why) = left(&live) {
                return Ok(Ended::left(why));
            }
            let uid = metadata(&live, "uid").unwrap_or_default().to_owned();
            match self.cluster.delete_in(&at, propagation, Some(&uid)).await {
                Ok(true) => return Ok(Ended { deleted: Some(uid), ..Ended::of(Outcome::Deleted) }),
                Ok(false) => return Ok(Ended::of(Outcome::Done)),
                Err(error) if error.is_lost_race() => resolved = Ok(resource),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Ended::left("another object took its place"))
    }

    /// Deletes what is to be made anew, and waits until it is gone. It is known to be ours.
    pub(super) async fn delete_and_wait(
        &self,
        step: StepId,
        target: &ObjectRef,
        live: &Value,
    ) -> Result<(), ReleaseError> {
        let propagation = Directives::of(live).propagation.unwrap_or(Propagation::Background);
        let failed = |why: String| ReleaseError::ObjectFailed { target: Box::new(target.clone()), why };
        if is_kept(live) && Directives::of(live).ownership == barbless_domain::release::Ownership::Release {
            return Err(failed("it has to be made anew, and its resource policy keeps it".to_owned()));
        }
        let ended = self.delete_applied(target, metadata(live, "uid").map(str::to_owned), propagation).await?;
        match (ended.outcome, ended.deleted) {
            (Outcome::Left(why), _) => Err(failed(why)),
            (_, Some(uid)) => {
                self.tell(Progress::Deleting { target: target.clone() });
                self.wait(step, target, Goal::Gone { uid }).await?;
                self.tell(Progress::Gone { target: target.clone() });
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
