//! Applies single objects of a plan.

use barbless_domain::identity::ObjectRef;
use barbless_domain::release::conflict::{self, Settled};
use barbless_domain::release::{
    DeletePolicy, Directives, HookEvent, Outcome, Phase, ReleaseObject, ResourcePolicy, StepId, changes_nothing,
    check_definition,
};
use serde_json::{Value, json};

use super::{Ended, Progress, ReleaseError, Run};
use crate::discovery::Resource;
use crate::error::{Error, FieldConflict};
use crate::limits::{CONFLICT_PAUSE, CONFLICT_RETRIES, SERVED_WAIT, SIGHT};
use crate::request::{Target, metadata};

/// Manager of the replicas that an object got when it was created.
const INITIAL_MANAGER: &str = "barbless-initial";

impl Run<'_> {
    /// Applies an object of the release, as its annotations say.
    pub(super) async fn apply(&self, step: StepId, object: &ReleaseObject) -> Result<Ended, ReleaseError> {
        let ReleaseObject { target, object, .. } = object;
        let directives = Directives::of(object);
        let policies = &directives.resource_policies;
        let mut before = self.live.get(target);
        let mut anew = false;
        match before {
            None if policies.contains(&ResourcePolicy::SkipCreate) => {
                return Ok(Ended::left("its resource policy says that it is not created"));
            }
            Some(_) if policies.contains(&ResourcePolicy::SkipUpdate) => {
                return Ok(Ended::left("its resource policy says that it is not changed"));
            }
            // All objects of a kind would go with its definition.
            Some(live)
                if directives.delete_policies.contains(&DeletePolicy::BeforeHookCreation)
                    && !policies.contains(&ResourcePolicy::SkipRecreate)
                    && target.gvk.kind != "CustomResourceDefinition" =>
            {
                self.delete_and_wait(step, target, live).await?;
                (before, anew) = (None, true);
            }
            _ => {}
        }
        let asked = directives.delete_policies.contains(&DeletePolicy::BeforeCreationIfImmutable) || is_job(target);
        let may_be_made_anew = asked && !policies.contains(&ResourcePolicy::SkipRecreate);
        let applied = match directives.replicas_on_creation {
            Some(replicas) => self.apply_replicas(step, target, object, before, replicas, may_be_made_anew).await?,
            None => self.bring(step, target, object, before, may_be_made_anew).await?,
        };
        let outcome = if anew { Outcome::Recreated } else { applied.0 };
        Ok(Ended { object: Some(applied.1), ..Ended::of(outcome) })
    }

    /// Applies an object that gets its replicas once. Another manager holds them, so that a later apply, which does not
    /// name them, does not put them back.
    async fn apply_replicas(
        &self,
        step: StepId,
        target: &ObjectRef,
        object: &Value,
        before: Option<&Value>,
        replicas: u32,
        anew: bool,
    ) -> Result<(Outcome, Value), ReleaseError> {
        let mut object = object.clone();
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return self.bring(step, target, &object, before, anew).await;
        };
        if before.is_some() {
            spec.remove("replicas");
            return self.bring(step, target, &object, before, anew).await;
        }
        spec.insert("replicas".to_owned(), replicas.into());
        let (outcome, _) = self.apply_object(step, target, &object, None, anew).await?;
        let resource = self.served(target).await?;
        let at = Target { resource: &resource, object: target };
        let mut held = json!({
            "apiVersion": target.gvk.api_version(), "kind": target.gvk.kind,
            "metadata": {"name": target.name}, "spec": {"replicas": replicas},
        });
        if !target.namespace.is_empty() {
            held["metadata"]["namespace"] = target.namespace.as_str().into();
        }
        let after = self.cluster.apply_in(&at, None, INITIAL_MANAGER, false, &held).await?;
        Ok((outcome, after))
    }

    /// Creates a definition of `crds/`, or puts it in place of the one that is there if that is safe.
    pub(super) async fn define(&self, step: StepId, definition: &ReleaseObject) -> Result<Ended, ReleaseError> {
        let target = &definition.target;
        let before = self.live.get(target);
        if let Some(before) = before {
            check_definition(before, &definition.object)
                .map_err(|source| ReleaseError::UnsafeDefinition { target: Box::new(target.clone()), source })?;
        }
        let (outcome, after) = self.bring(step, target, &definition.object, before, false).await?;
        Ok(Ended { object: Some(after), ..Ended::of(outcome) })
    }

    /// Brings one object to what is wanted: applies it, unless that would change nothing.
    async fn bring(
        &self,
        step: StepId,
        target: &ObjectRef,
        object: &Value,
        before: Option<&Value>,
        anew: bool,
    ) -> Result<(Outcome, Value), ReleaseError> {
        if let Some(before) = before
            && let Some(live) = self.unchanged(target, object, before).await?
        {
            return Ok((Outcome::Unchanged, live));
        }
        self.apply_object(step, target, object, before, anew).await
    }

    /// The live object if an apply would change nothing about it. What was seen before a hook ran or a while ago is looked
    /// at again.
    async fn unchanged(
        &self,
        target: &ObjectRef,
        object: &Value,
        before: &Value,
    ) -> Result<Option<Value>, ReleaseError> {
        let manager = &self.options.manager;
        if !changes_nothing(object, before, manager) {
            return Ok(None);
        }
        let hooks = HookEvent::of(self.plan.action, Phase::Before).and_then(|event| self.plan.hooks.get(&event));
        if hooks.is_none_or(Vec::is_empty) && self.started.elapsed() < SIGHT {
            return Ok(Some(before.clone()));
        }
        let live = self.cluster.get(target).await?;
        Ok(live.filter(|live| changes_nothing(object, live, manager)))
    }

    /// Applies one object; `before` is what was there, and `anew` says that it may be deleted and made anew if it cannot
    /// be changed. Fields of other managers are taken or left as the rules say.
    pub(super) async fn apply_object(
        &self,
        step: StepId,
        target: &ObjectRef,
        object: &Value,
        before: Option<&Value>,
        anew: bool,
    ) -> Result<(Outcome, Value), ReleaseError> {
        let resource = self.served(target).await?;
        let at = Target { resource: &resource, object: target };
        let manager = &self.options.manager;
        let mut pause = CONFLICT_PAUSE;
        // What is applied: without what is left to others, and only over the state that the decision was made about.
        let mut wanted = object.clone();
        let mut force = false;
        for _ in 0..CONFLICT_RETRIES {
            let error = match self.cluster.apply_in(&at, None, manager, force, &wanted).await {
                Ok(after) => {
                    let outcome = match before.map(|before| metadata(before, "resourceVersion")) {
                        None => Outcome::Created,
                        Some(version) if version == metadata(&after, "resourceVersion") => Outcome::Unchanged,
                        Some(_) => Outcome::Configured,
                    };
                    return Ok((outcome, after));
                }
                Err(error) => error,
            };
            if error.is_lost_race() {
                tokio::time::sleep(pause).await;
                pause *= 2;
                // The state is another; what is taken of it is decided again.
                (wanted, force) = (object.clone(), false);
            } else if let Some(conflict) = error.field_conflict(target) {
                (wanted, force) = self.settle(&at, &conflict, &wanted).await?;
            } else if let (Some(before), true) = (before, is_immutable(&error)) {
                if !anew {
                    return Err(ReleaseError::Immutable { target: Box::new(target.clone()), source: error });
                }
                self.delete_and_wait(step, target, before).await?;
                let after = self.cluster.apply_in(&at, None, manager, false, object).await?;
                return Ok((Outcome::Recreated, after));
            } else {
                return Err(error.into());
            }
        }
        Err(Error::Contended { action: "apply", object: target.to_string(), attempts: CONFLICT_RETRIES }.into())
    }

    /// Settles a conflict: what to apply next, and whether by force. Fields are taken only of the state in which they
    /// were found in conflict: nothing else of somebody is taken with them.
    async fn settle(
        &self,
        at: &Target<'_>,
        conflict: &FieldConflict,
        wanted: &Value,
    ) -> Result<(Value, bool), ReleaseError> {
        let target = at.object;
        let fields: Vec<&str> = conflict.fields.iter().map(|it| it.field.as_str()).collect();
        match conflict::settle(target, wanted, &fields, &self.rules) {
            Settled::Open(open) => {
                let fields = open.into_iter().filter_map(|index| conflict.fields.get(index).cloned()).collect();
                let conflicts = vec![FieldConflict { object: target.clone(), fields }];
                Err(ReleaseError::FieldConflict { conflicts })
            }
            Settled::Retry { mut object, force } => {
                let seen = metadata(wanted, "resourceVersion").is_some();
                if force && !seen {
                    // First the same again, over a known state: its conflicts are those that are taken.
                    let version = self.cluster.get_in(at).await?;
                    let version = version.as_ref().and_then(|live| metadata(live, "resourceVersion"));
                    let mut again = wanted.clone();
                    if let (Some(version), Some(metadata)) =
                        (version, again.get_mut("metadata").and_then(Value::as_object_mut))
                    {
                        metadata.insert("resourceVersion".to_owned(), version.into());
                    }
                    return Ok((again, false));
                }
                if !force && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                }
                let fields = conflict.fields.clone();
                self.tell(Progress::Settled { target: target.clone(), fields, taken: force });
                Ok((object, force))
            }
        }
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

/// A Job is made anew without being asked: what it did is done, and its new form has to run.
pub(crate) fn is_job(target: &ObjectRef) -> bool {
    target.gvk.kind == "Job" && target.gvk.group == "batch"
}

/// Whether the API server refused to change fields that never change. It has no reason of its own for that.
pub(crate) fn is_immutable(error: &Error) -> bool {
    let Error::Api(refused) = error else { return false };
    let fixed = |text: &str| text.contains("immutable") || text.contains("updates to ");
    refused.code == 422
        && (refused.causes.iter().any(|cause| fixed(&cause.message))
            || refused.causes.is_empty() && fixed(&refused.message))
}
