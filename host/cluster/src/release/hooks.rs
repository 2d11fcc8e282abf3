//! Applies the objects of Helm hooks.

use barbless_domain::grant::Scope;
use barbless_domain::identity::ObjectRef;
use barbless_domain::release::{DeletePolicy, HelmHook, ReleaseAction, StepId, belongs_to_host};

use super::deploy::Moment;
use super::ownership::foreign_owner;
use super::waiter::{Verdict, outcome};
use super::{Ended, Foreign, ReleaseError, Run};
use crate::error::Error;

impl Run<'_> {
    /// Applies the object of a hook, after what an earlier run left of it is gone.
    pub(super) async fn hook(&self, step: StepId, hook: &HelmHook) -> Result<Ended, ReleaseError> {
        let target = &hook.target;
        if let Some(why) = self.disbelieved(hook).await? {
            return Ok(Ended::left(why));
        }
        self.chronicle.write(|written| Moment::HookBegins(target.clone(), written)).await;
        // A hook that is not in the record does not run.
        if self.options.cancel.is_cancelled() {
            return Err(ReleaseError::Cancelled);
        }
        let mut before = self.cluster.get(target).await?;
        if let Some(live) = &before {
            if let Some(owner) = foreign_owner(self.application(), target, live, false) {
                let foreign = Foreign { target: target.clone(), owner };
                return Err(ReleaseError::NotOurs { objects: vec![foreign] });
            }
            // What has failed cannot be applied again to any effect.
            let has_failed = hook.runs_once()
                && hook.delete_policies.contains(&DeletePolicy::BeforeCreationIfImmutable)
                && matches!(outcome(live), Verdict::Failed(_));
            if hook.is_made_anew() || has_failed {
                self.delete_and_wait(step, target, live).await?;
                before = None;
            }
        }
        let anew = hook.runs_once() || hook.delete_policies.contains(&DeletePolicy::BeforeCreationIfImmutable);
        let (outcome, after) = self.apply_object(step, target, &hook.object, before.as_ref(), anew).await?;
        Ok(Ended { object: Some(after), ..Ended::of(outcome) })
    }

    /// Why a hook of a record is not one that a plan would have let through. A record is a Secret, and who may write
    /// Secrets in the namespace may not write everything that the host may: objects of other namespaces, of the cluster
    /// and of the host are left out. What was rendered has been looked at when the plan was made.
    async fn disbelieved(&self, hook: &HelmHook) -> Result<Option<&'static str>, ReleaseError> {
        if !matches!(self.plan.action, ReleaseAction::Uninstall | ReleaseAction::Test) {
            return Ok(None);
        }
        let target = &hook.target;
        let scope = match self.cluster.resolve(&target.gvk).await {
            Ok(resource) => resource.scope,
            Err(Error::KindNotServed { .. }) => Scope::Namespaced,
            Err(error) => return Err(error.into()),
        };
        let is_target = ObjectRef::of(&hook.object).is_ok_and(|named| named == *target);
        Ok(if scope == Scope::Cluster || target.namespace != self.application().namespace() {
            Some("the record names a hook outside the namespace of the application")
        } else if !is_target || belongs_to_host(target, &hook.object).is_some() {
            Some("the record names a hook that no package may have")
        } else {
            None
        })
    }
}
