//! Runs the Helm hooks of one event, strictly one after another.

use barbless_domain::identity::ObjectRef;
use barbless_domain::operation::Propagation;
use barbless_domain::release::{DeletePolicy, HelmHook, HookEvent};
use serde_json::Value;

use super::wait::{Verdict, Wanted};
use super::{Progress, ReleaseError, Run, foreign_owner};
use crate::request::{Target, metadata};

impl Run<'_> {
    /// Runs the hooks of an event in the given order.
    ///
    /// After a failure, the failed hook and those that succeeded before it are deleted as their policies say, and the
    /// hooks after it do not run.
    pub(super) async fn helm_hooks(&self, event: HookEvent, hooks: &[HelmHook]) -> Result<(), ReleaseError> {
        let mut succeeded: Vec<&HelmHook> = Vec::new();
        for hook in hooks {
            self.check_cancelled()?;
            let target = &hook.target;
            self.tell(Progress::HookStarted { target: target.clone(), event });
            match Box::pin(self.helm_hook(hook)).await {
                Ok(()) => {
                    self.tell(Progress::HookSucceeded { target: target.clone(), event });
                    succeeded.push(hook);
                }
                Err(error) => {
                    let error = match error {
                        ReleaseError::ObjectFailed { target, why } => ReleaseError::HookFailed { target, event, why },
                        other => other,
                    };
                    self.tell(Progress::HookFailed { target: target.clone(), event, why: error.chain() });
                    if !matches!(error, ReleaseError::Cancelled) {
                        self.delete_by(&[hook], DeletePolicy::HookFailed).await;
                        self.delete_by(&succeeded, DeletePolicy::HookSucceeded).await;
                    }
                    return Err(error);
                }
            }
        }
        self.delete_by(&succeeded, DeletePolicy::HookSucceeded).await;
        Ok(())
    }

    async fn helm_hook(&self, hook: &HelmHook) -> Result<(), ReleaseError> {
        let target = &hook.target;
        let live = self.no_longer_than(async { Ok(self.cluster.get(target).await?) }).await?;
        if let Some(live) = &live
            && let Some(owner) = foreign_owner(self.application, target, live, false)
        {
            let foreign = super::Foreign { target: target.clone(), owner };
            return Err(ReleaseError::NotOurs { objects: vec![foreign] });
        }
        // A Job or Pod that an earlier run left is always made anew: its status is that of the earlier run.
        let stale = hook.delete_policies.contains(&DeletePolicy::BeforeHookCreation) || runs_once(target);
        let mut before = live;
        if before.is_some() && stale && !is_definition(target) {
            self.delete_and_wait(target).await?;
            before = None;
        }
        let (_, applied) = self.no_longer_than(self.apply_object(target, &hook.object, before.as_ref())).await?;
        if !runs_once(target) {
            return Ok(());
        }
        let uid = metadata(&applied, "uid").map(str::to_owned);
        let assess = move |_: &ObjectRef, object: Option<&Value>| match object {
            Some(object) if metadata(object, "uid") == uid.as_deref() => outcome(object),
            _ => Verdict::Failed("it was deleted before it ended".to_owned()),
        };
        let wanted = Wanted { target: target.clone(), seen: Some(applied), why: "it has not ended".to_owned() };
        self.wait_for(vec![wanted], None, assess, |target| Progress::Ready { target: target.clone() }).await
    }

    /// Deletes, last first, the objects of hooks that have a policy. A failure is only logged: the hook did its work.
    async fn delete_by(&self, hooks: &[&HelmHook], policy: DeletePolicy) {
        for hook in hooks.iter().rev().filter(|hook| hook.delete_policies.contains(&policy)) {
            let target = &hook.target;
            if is_definition(target) {
                continue;
            }
            let deleted = async {
                let resource = self.cluster.resolve(&target.gvk).await?;
                let at = Target { resource: &resource, object: target };
                self.cluster.delete_in(&at, Propagation::Background, None).await
            };
            match deleted.await {
                Ok(true) => self.tell(Progress::Deleting { target: target.clone() }),
                Ok(false) => {}
                Err(error) => tracing::warn!(%target, error = error.chain(), "cannot delete the object of a helm hook"),
            }
        }
    }
}

fn runs_once(target: &ObjectRef) -> bool {
    matches!((target.gvk.group.as_str(), target.gvk.kind.as_str()), ("batch", "Job") | ("", "Pod"))
}

/// Definitions of kinds are never deleted by a policy: all their objects would go too.
fn is_definition(target: &ObjectRef) -> bool {
    target.gvk.kind == "CustomResourceDefinition"
}

/// Whether a Job or Pod has ended.
fn outcome(object: &Value) -> Verdict {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = object.get("status").unwrap_or(&Value::Null);
    for condition in status.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        if text(condition, "status") == "True" {
            match text(condition, "type").as_str() {
                "Complete" => return Verdict::Done,
                "Failed" => {
                    return Verdict::Failed(format!("{}: {}", text(condition, "reason"), text(condition, "message")));
                }
                _ => {}
            }
        }
    }
    match text(status, "phase").as_str() {
        "Succeeded" => Verdict::Done,
        "Failed" => Verdict::Failed(format!("the Pod failed: {} {}", text(status, "reason"), text(status, "message"))),
        _ => Verdict::Pending("it has not ended".to_owned()),
    }
}
