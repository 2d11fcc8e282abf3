//! Removes a release and waits until it is observed gone.

use std::collections::BTreeMap;

use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::limits::TIMEOUT_NAMES;
use barbless_domain::operation::Propagation;
use barbless_domain::release::{HelmHook, HookEvent, Removal, belongs_to_host, is_kept};
use serde_json::Value;

use super::wait::{Verdict, Wanted};
use super::{Progress, ReleaseError, ReleaseOptions, Remaining, Run, foreign_owner};
use crate::Cluster;
use crate::error::Error;
use crate::request::{Target, metadata};

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// What was deleted and is observed gone.
    pub deleted: Vec<ObjectRef>,
    /// What was left, with the reason.
    pub left: Vec<(ObjectRef, String)>,
}

impl Cluster {
    /// Removes a release step by step; the objects of a step are observed gone before the next begins. Objects that
    /// are somebody else's, or that the resource policy keeps, are left.
    ///
    /// # Errors
    /// [`ReleaseError::Remaining`] if objects are still there when the time is up, with the finalizers that hold them;
    /// otherwise see [`ReleaseError`].
    pub async fn uninstall(
        &self,
        application: &ApplicationId,
        removal: &Removal,
        hooks: &BTreeMap<HookEvent, Vec<HelmHook>>,
        options: &ReleaseOptions,
    ) -> Result<Removed, ReleaseError> {
        let run = Run::new(self, application, options);
        Box::pin(run.remove(removal, hooks)).await
    }
}

impl Run<'_> {
    async fn remove(
        &self,
        removal: &Removal,
        hooks: &BTreeMap<HookEvent, Vec<HelmHook>>,
    ) -> Result<Removed, ReleaseError> {
        let mut removed = Removed::default();
        let before = self.believable(hooks.get(&HookEvent::PreDelete), &mut removed).await?;
        let after = self.believable(hooks.get(&HookEvent::PostDelete), &mut removed).await?;
        self.helm_hooks(HookEvent::PreDelete, &before).await?;
        for target in &removal.kept {
            removed.left.push((target.clone(), "its resource policy keeps it".to_owned()));
        }
        for step in &removal.steps {
            let mut going = Vec::new();
            for target in step {
                self.check_cancelled()?;
                match self.no_longer_than(self.ask_to_go(target)).await? {
                    Asked::Absent => {}
                    Asked::Left(why) => {
                        self.tell(Progress::Left { target: target.clone(), why: why.clone() });
                        removed.left.push((target.clone(), why));
                    }
                    Asked::Going(uid) => {
                        self.tell(Progress::Deleting { target: target.clone() });
                        going.push((target.clone(), uid));
                    }
                }
            }
            self.wait_gone(&going).await?;
            removed.deleted.extend(going.into_iter().map(|(target, _)| target));
        }
        self.helm_hooks(HookEvent::PostDelete, &after).await?;
        Ok(removed)
    }

    /// The hooks of a record that a plan would have let through. A record is a Secret, and who may write Secrets in the
    /// namespace may not write everything that the host may: objects of other namespaces, of the cluster and of the host
    /// are left out.
    async fn believable(
        &self,
        hooks: Option<&Vec<HelmHook>>,
        removed: &mut Removed,
    ) -> Result<Vec<HelmHook>, ReleaseError> {
        let mut believed = Vec::new();
        for hook in hooks.into_iter().flatten() {
            let target = &hook.target;
            let scope = match self.cluster.resolve(&target.gvk).await {
                Ok(resource) => resource.scope,
                Err(Error::KindNotServed { .. }) => Scope::Namespaced,
                Err(error) => return Err(error.into()),
            };
            let is_target = ObjectRef::of(&hook.object).is_ok_and(|named| named == *target);
            let why = if scope == Scope::Cluster || target.namespace != self.application.namespace() {
                "the record names a hook outside the namespace of the application"
            } else if !is_target || belongs_to_host(target, &hook.object).is_some() {
                "the record names a hook that no package may have"
            } else {
                believed.push(hook.clone());
                continue;
            };
            self.tell(Progress::Left { target: target.clone(), why: why.to_owned() });
            removed.left.push((target.clone(), why.to_owned()));
        }
        Ok(believed)
    }

    async fn ask_to_go(&self, target: &ObjectRef) -> Result<Asked, ReleaseError> {
        let resource = match self.cluster.resolve(&target.gvk).await {
            Ok(resource) => resource,
            Err(Error::KindNotServed { .. }) => return Ok(Asked::Absent),
            Err(error) => return Err(error.into()),
        };
        let at = Target { resource: &resource, object: target };
        // A second look if another object takes its place in between; a third is somebody else's game.
        for _ in 0..2 {
            let Some(live) = self.cluster.get_in(&at).await? else { return Ok(Asked::Absent) };
            if let Some(owner) = foreign_owner(self.application, target, &live, true) {
                return Ok(Asked::Left(format!("it belongs to {owner}")));
            }
            if is_kept(&live) {
                return Ok(Asked::Left("its resource policy keeps it".to_owned()));
            }
            let uid = metadata(&live, "uid").unwrap_or_default().to_owned();
            match self.cluster.delete_in(&at, Propagation::Background, Some(&uid)).await {
                Ok(true) => return Ok(Asked::Going(uid)),
                Ok(false) => return Ok(Asked::Absent),
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Asked::Left("another object took its place".to_owned()))
    }

    /// Deletes an object and waits until it is gone.
    pub(super) async fn delete_and_wait(&self, target: &ObjectRef) -> Result<(), ReleaseError> {
        match self.no_longer_than(self.ask_to_go(target)).await? {
            Asked::Going(uid) => {
                self.tell(Progress::Deleting { target: target.clone() });
                self.wait_gone(&[(target.clone(), uid)]).await
            }
            Asked::Absent => Ok(()),
            Asked::Left(why) => Err(ReleaseError::ObjectFailed { target: Box::new(target.clone()), why }),
        }
    }

    async fn wait_gone(&self, going: &[(ObjectRef, String)]) -> Result<(), ReleaseError> {
        let uids: BTreeMap<&ObjectRef, &str> = going.iter().map(|(target, uid)| (target, uid.as_str())).collect();
        let assess = |target: &ObjectRef, object: Option<&Value>| match object {
            // An object of the same name that came later is not ours to wait for.
            Some(object) if metadata(object, "uid") == uids.get(target).copied() => {
                Verdict::Pending(match finalizers(object) {
                    held if held.is_empty() => "it is still there".to_owned(),
                    held => format!("it is held by finalizers {}", held.join(", ")),
                })
            }
            _ => Verdict::Done,
        };
        let wanted = going
            .iter()
            .map(|(target, _)| Wanted { target: target.clone(), seen: None, why: "it is still there".to_owned() })
            .collect();
        let outcome = self.wait_for(wanted, None, assess, |target| Progress::Gone { target: target.clone() }).await;
        match outcome {
            Err(ReleaseError::TimedOut { after, pending, more }) => {
                let mut remaining = Vec::new();
                for (target, _) in pending.into_iter().take(TIMEOUT_NAMES) {
                    let live = self.cluster.get(&target).await.ok().flatten();
                    let finalizers = live.as_ref().map(finalizers).unwrap_or_default();
                    remaining.push(Remaining { target, finalizers });
                }
                Err(ReleaseError::Remaining { after, remaining, more })
            }
            other => other,
        }
    }
}

enum Asked {
    Absent,
    Left(String),
    /// With its uid.
    Going(String),
}

fn finalizers(object: &Value) -> Vec<String> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
