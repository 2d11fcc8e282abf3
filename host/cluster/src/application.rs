//! Application objects: seen, marked, shown.

use std::sync::Arc;

use barbless_domain::event::{Desired, Failure};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::pipeline::DeletionStep;
use barbless_domain::request::Requests;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Cluster;
use crate::crd::{
    Application, ApplicationSpec, ApplicationStatus, Condition, CurrentVersion, FINALIZER, GROUP, Maintenance, Summary,
    VERSION, crds,
};
use crate::error::Error;
use crate::event::seconds;
use crate::limits::{CONFLICT_PAUSE, CONFLICT_RETRIES, ESTABLISH_WAIT};
use crate::request::{Target, annotation, metadata};
use crate::watch::{WatchEvent, WatchSpec};

const MANAGER: &str = "barbless";
/// For what a user does through us, as another tool of theirs would.
const USER_MANAGER: &str = "barbless-cli";

/// An Application that was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenApplication {
    /// Which.
    pub id: ApplicationId,
    /// Its uid, for Events.
    pub uid: String,
    /// What it wants, as the pipeline reads it.
    pub desired: Desired,
    /// The whole object.
    pub application: Arc<Application>,
}

/// What happens to Applications.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplicationEvent {
    /// All of them, after the first list and after each relist.
    Synced {
        /// Those that can be read.
        applications: Vec<SeenApplication>,
        /// Those that cannot. They exist: do not take them for deleted.
        malformed: Vec<MalformedApplication>,
    },
    /// One appeared or changed.
    Applied(Box<SeenApplication>),
    /// One is gone.
    Deleted {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// One appeared or changed and cannot be read.
    Malformed(MalformedApplication),
    /// The watch is interrupted; it goes on by itself.
    Failed {
        /// Stable reason.
        reason: String,
        /// What happened.
        message: String,
    },
}

/// An Application that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedApplication {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its generation.
    pub generation: i64,
    /// Stable reason: `BadName`, or `BadApplication` for anything else.
    pub reason: &'static str,
    /// What is wrong.
    pub why: String,
}

impl MalformedApplication {
    /// What is wrong, and what can be done.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let hint = match self.reason {
            "BadName" => format!(
                "make it anew with another name: up to {} lower-case letters, digits and '-'",
                ApplicationId::NAME_MAX
            ),
            _ => "correct what the message says".to_owned(),
        };
        Failure::new(self.reason, &self.why).hint(hint)
    }
}

impl Cluster {
    /// Applies the definitions of the custom resources and waits until they are established.
    ///
    /// # Errors
    /// If the API server refuses, does not answer, or does not establish them within a minute.
    pub async fn establish_crds(&self) -> Result<(), Error> {
        let work = async {
            for definition in crds() {
                self.establish(&definition).await?;
            }
            Ok(())
        };
        let outcome = tokio::time::timeout(ESTABLISH_WAIT, Box::pin(work)).await;
        self.forget_kinds();
        outcome.unwrap_or_else(|_| {
            Err(Error::Malformed {
                object: "definitions of custom resources".to_owned(),
                why: format!("not established after {ESTABLISH_WAIT:?}"),
            })
        })
    }

    async fn establish(&self, definition: &Value) -> Result<(), Error> {
        let target = ObjectRef::of(definition)
            .map_err(|error| Error::Malformed { object: "definition".to_owned(), why: error.to_string() })?;
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        // By force: the definitions are the host's own, and an older host may have written them under another manager.
        self.apply_in(&at, None, MANAGER, true, definition).await?;
        let mut spec = WatchSpec::all(target.gvk.clone(), None);
        spec.names = vec![target.name.clone()];
        let mut events = Box::pin(self.watch(spec));
        while let Some(event) = events.next().await {
            let established = match &event {
                WatchEvent::Synced(objects) => objects.iter().any(|object| is_established(object)),
                WatchEvent::Applied(object) => is_established(object),
                WatchEvent::Deleted(_) | WatchEvent::Failed { .. } => false,
            };
            if established {
                break;
            }
        }
        Ok(())
    }
}

fn is_established(definition: &Value) -> bool {
    let text = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str) == Some("True");
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Established") && text(condition, "status")
    })
}

fn gvk() -> Gvk {
    Gvk { group: GROUP.to_owned(), version: VERSION.to_owned(), kind: "Application".to_owned() }
}

fn reference(id: &ApplicationId) -> ObjectRef {
    ObjectRef { gvk: gvk(), namespace: id.namespace().to_owned(), name: id.name().to_owned() }
}

fn parse(object: &Value) -> Result<SeenApplication, MalformedApplication> {
    let text = |field: &str| metadata(object, field).unwrap_or_default().to_owned();
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let bad = |reason, why: String| MalformedApplication {
        namespace: text("namespace"),
        name: text("name"),
        generation,
        reason,
        why,
    };
    let id = ApplicationId::new(&text("namespace"), &text("name"));
    let id = id.map_err(|error| bad("BadName", error.to_string()))?;
    let application: Application =
        serde_json::from_value(object.clone()).map_err(|error| bad("BadApplication", error.to_string()))?;
    Ok(SeenApplication { id, uid: text("uid"), desired: desired(&application), application: Arc::new(application) })
}

/// What an Application wants, as the pipeline reads it.
fn desired(application: &Application) -> Desired {
    let Application { metadata, spec, status } = application;
    let step = status.as_ref().and_then(|status| status.deletion_step.clone());
    let requests = metadata.annotations.as_ref().map(Requests::of).unwrap_or_default();
    requests.onto(Desired {
        generation: metadata.generation.unwrap_or_default(),
        version: spec.package_version.clone(),
        settings: spec.settings.clone().unwrap_or_else(|| json!({})),
        maintenance: spec.maintenance == Some(Maintenance::NoResourceReconciliation),
        deleting: metadata.deletion_timestamp.is_some(),
        // A word that this version does not know: the deletion begins anew, which is safe.
        deletion_step: step.and_then(|step| serde_json::from_value(step.into()).ok()),
        ..Desired::default()
    })
}

impl Cluster {
    /// Watches Applications: all of them, or those of one namespace. The stream has no end.
    pub fn watch_applications(
        &self,
        namespace: Option<String>,
    ) -> impl Stream<Item = ApplicationEvent> + Send + 'static + use<> {
        self.watch(WatchSpec::all(gvk(), namespace)).map(|event| match event {
            WatchEvent::Synced(objects) => {
                let (mut applications, mut malformed) = (Vec::new(), Vec::new());
                for object in objects {
                    match parse(&object) {
                        Ok(application) => applications.push(application),
                        Err(bad) => malformed.push(bad),
                    }
                }
                ApplicationEvent::Synced { applications, malformed }
            }
            WatchEvent::Applied(object) => match parse(&object) {
                Ok(application) => ApplicationEvent::Applied(Box::new(application)),
                Err(bad) => ApplicationEvent::Malformed(bad),
            },
            // A broken object can go too; its name is enough.
            WatchEvent::Deleted(object) => ApplicationEvent::Deleted {
                namespace: metadata(&object, "namespace").unwrap_or_default().to_owned(),
                name: metadata(&object, "name").unwrap_or_default().to_owned(),
            },
            WatchEvent::Failed { reason, message } => ApplicationEvent::Failed { reason, message },
        })
    }

    /// Reads an Application.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or the object cannot be read.
    pub async fn application(&self, id: &ApplicationId) -> Result<Option<SeenApplication>, Error> {
        match self.get(&reference(id)).await? {
            Some(object) => seen(id, &object).map(Some),
            None => Ok(None),
        }
    }

    /// Creates an Application, or makes the spec of an existing one this one. Settings that the new spec does not have
    /// go.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn put_application(&self, id: &ApplicationId, spec: &ApplicationSpec) -> Result<SeenApplication, Error> {
        let spec = serde_json::to_value(spec)
            .map_err(|error| Error::Malformed { object: format!("Application {id}"), why: error.to_string() })?;
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Application",
            "metadata": {"namespace": id.namespace(), "name": id.name()}, "spec": spec,
        });
        let target = reference(id);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        seen(id, &self.apply_in(&at, None, USER_MANAGER, true, &object).await?)
    }

    /// Creates an Application of a package, or changes an existing one into it.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn create_application(
        &self,
        id: &ApplicationId,
        package: &str,
        version: &str,
        settings: &Value,
    ) -> Result<SeenApplication, Error> {
        let spec = ApplicationSpec {
            package_name: package.to_owned(),
            package_version: version.to_owned(),
            settings: Some(settings.clone()),
            ..ApplicationSpec::default()
        };
        self.put_application(id, &spec).await
    }

    /// Merges a patch into the spec of an Application.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or there is none.
    pub async fn patch_application(&self, id: &ApplicationId, patch: &Value) -> Result<SeenApplication, Error> {
        let target = reference(id);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        seen(id, &self.merge_in(&at, USER_MANAGER, &json!({"spec": patch})).await?)
    }

    /// Merges a patch into the settings of an Application.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or there is none.
    pub async fn change_settings(&self, id: &ApplicationId, settings: &Value) -> Result<SeenApplication, Error> {
        self.patch_application(id, &json!({"settings": settings})).await
    }

    /// Asks an Application to go. It stays until its finalizers are removed. Says whether there was one.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn delete_application(&self, id: &ApplicationId) -> Result<bool, Error> {
        let target = reference(id);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        self.delete_in(&at, barbless_domain::operation::Propagation::Background, None).await
    }

    /// Sets or removes an annotation of an Application.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or there is no such Application.
    pub async fn annotate_application(&self, id: &ApplicationId, name: &str, value: Option<&str>) -> Result<(), Error> {
        let target = reference(id);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        let patch = json!({"metadata": {"annotations": {name: value}}});
        self.merge_in(&at, USER_MANAGER, &patch).await.map(drop)
    }

    /// Gives an annotation of an Application another value, or removes it, if its value is still this one. Says whether
    /// it was. An operator may have written another request meanwhile, which must not be lost.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or another writer wins each of several races.
    pub async fn replace_annotation(
        &self,
        id: &ApplicationId,
        name: &str,
        old: &str,
        new: Option<&str>,
    ) -> Result<bool, Error> {
        let changed =
            self.change(id, |live| (annotation(live, name) == Some(old)).then(|| json!({"annotations": {name: new}})));
        Ok(changed.await? == Some(true))
    }

    /// Makes sure that the [`FINALIZER`] is on an Application. Says whether it had to be added.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or there is no such Application.
    pub async fn ensure_finalizer(&self, id: &ApplicationId) -> Result<bool, Error> {
        self.change_finalizers(id, |finalizers| {
            let missing = !finalizers.iter().any(|it| it == FINALIZER);
            if missing {
                finalizers.push(FINALIZER.to_owned());
            }
            missing
        })
        .await
    }

    /// Removes the [`FINALIZER`]. Says whether it was there; an Application that is gone has none.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn remove_finalizer(&self, id: &ApplicationId) -> Result<bool, Error> {
        let removed = self.change_finalizers(id, |finalizers| {
            let before = finalizers.len();
            finalizers.retain(|it| it != FINALIZER);
            finalizers.len() != before
        });
        match removed.await {
            Err(error) if error.is_not_found() => Ok(false),
            outcome => outcome,
        }
    }

    async fn change_finalizers(
        &self,
        id: &ApplicationId,
        mut change: impl FnMut(&mut Vec<String>) -> bool + Send,
    ) -> Result<bool, Error> {
        let changed = self.change(id, |live| {
            let list = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            let mut finalizers: Vec<String> =
                list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
            change(&mut finalizers).then(|| json!({"finalizers": finalizers}))
        });
        changed.await?.ok_or_else(|| {
            Error::Api(Box::new(crate::error::ApiError {
                action: "get",
                object: reference(id).to_string(),
                code: 404,
                reason: "NotFound".to_owned(),
                message: "there is no such Application".to_owned(),
                causes: Vec::new(),
                in_doubt: false,
            }))
        })
    }

    /// Merges into the metadata of an Application what `change` makes of the live one, and only over the state that it was
    /// made of. Says whether it made anything; nothing if there is no such Application.
    async fn change(
        &self,
        id: &ApplicationId,
        mut change: impl FnMut(&Value) -> Option<Value> + Send,
    ) -> Result<Option<bool>, Error> {
        self.write_over(&reference(id), |live| {
            Ok(change(live).map(|mut changes| {
                if let Some(changes) = changes.as_object_mut() {
                    changes.insert("resourceVersion".to_owned(), metadata(live, "resourceVersion").into());
                }
                Write::Metadata(json!({"metadata": changes}))
            }))
        })
        .await
    }

    /// Writes what `make` makes of the live Application, again and again until nobody has changed it meanwhile. Says whether
    /// it made anything; nothing if there is no such Application.
    async fn write_over(
        &self,
        target: &ObjectRef,
        mut make: impl FnMut(&Value) -> Result<Option<Write>, Error> + Send,
    ) -> Result<Option<bool>, Error> {
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: target };
        let mut pause = CONFLICT_PAUSE;
        let mut action = "patch";
        let mut in_doubt = false;
        for _ in 0..CONFLICT_RETRIES {
            let Some(live) = self.get_in(&at).await? else { return Ok(None) };
            let written = match make(&live)? {
                // An attempt that was not answered may have done it.
                None => return Ok(Some(in_doubt)),
                Some(Write::Metadata(patch)) => self.merge_in(&at, MANAGER, &patch).await,
                Some(Write::Status(object)) => {
                    action = "apply";
                    // By force: the status is the host's alone.
                    self.apply_in(&at, Some("status"), MANAGER, true, &object).await
                }
            };
            match written {
                Ok(_) => return Ok(Some(true)),
                Err(error) if error.is_lost_race() => {
                    in_doubt |= error.is_in_doubt();
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended { action, object: target.to_string(), attempts: CONFLICT_RETRIES })
    }

    /// Shows a status, as a whole. Times of transition are those of the stored conditions where the status of a
    /// condition is the same, and `now` where it is not. Says whether something changed; an Application that is gone
    /// is nothing to show a status on.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn write_status(
        &self,
        id: &ApplicationId,
        mut status: ApplicationStatus,
        now: Timestamp,
    ) -> Result<bool, Error> {
        self.change_status(&reference(id), |before, is_deleted| {
            keep_transitions(&mut status.conditions, before, now);
            let mut status = status.clone();
            // Somebody else may have brought the deletion further.
            if is_deleted && step_of(before) > step_of(&status) {
                status.deletion_step.clone_from(&before.deletion_step);
            }
            (status != *before).then_some(status)
        })
        .await
        .map(|change| change == Some(true))
    }

    /// Shows that nobody looks after an Application, and why; its name may be none that an application can have. What an
    /// earlier host wrote about its objects stays. Says whether something changed.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn write_refusal(
        &self,
        (namespace, name): (&str, &str),
        status: &barbless_domain::status::Status,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let target = ObjectRef { gvk: gvk(), namespace: namespace.to_owned(), name: name.to_owned() };
        let refusal = ApplicationStatus::from(status);
        self.change_status(&target, |before, _| {
            let ApplicationStatus { observed_generation, mut conditions, summary, .. } = refusal.clone();
            keep_transitions(&mut conditions, before, now);
            let status = ApplicationStatus { observed_generation, conditions, summary, ..before.clone() };
            (status != *before).then_some(status)
        })
        .await
        .map(|change| change == Some(true))
    }

    /// Writes down how far the deletion of an Application has come, beside the status that it has. A step is never taken
    /// back: if somebody else has come further, that stands. Says whether there is an Application.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn persist_deletion_step(&self, id: &ApplicationId, step: DeletionStep) -> Result<bool, Error> {
        let target = reference(id);
        let written = self.change_status(&target, |before, _| {
            let status = ApplicationStatus { deletion_step: word(step), ..before.clone() };
            (step_of(before) < Some(step)).then_some(status)
        });
        Ok(written.await?.is_some())
    }

    /// Changes a status as it is: what `change` makes of it is written only over the state that it was made of. `change`
    /// is told whether the Application is being deleted. Says whether something was written; nothing if there is no
    /// Application.
    async fn change_status(
        &self,
        target: &ObjectRef,
        mut change: impl FnMut(&ApplicationStatus, bool) -> Option<ApplicationStatus> + Send,
    ) -> Result<Option<bool>, Error> {
        self.write_over(target, |live| {
            let before: ApplicationStatus =
                live.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()).unwrap_or_default();
            let Some(status) = change(&before, metadata(live, "deletionTimestamp").is_some()) else {
                return Ok(None);
            };
            let status = serde_json::to_value(status)
                .map_err(|error| Error::Malformed { object: format!("status of {target}"), why: error.to_string() })?;
            Ok(Some(Write::Status(json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Application",
                "metadata": {
                    "namespace": target.namespace, "name": target.name,
                    "resourceVersion": metadata(live, "resourceVersion"),
                },
                "status": status,
            }))))
        })
        .await
    }
}

/// A change of an Application that was made of its live state.
enum Write {
    /// A merge patch.
    Metadata(Value),
    /// The status, applied as a whole.
    Status(Value),
}

/// Gives conditions the times of those that were there, where their status is the same.
fn keep_transitions(conditions: &mut [Condition], before: &ApplicationStatus, now: Timestamp) {
    for condition in conditions {
        let mut known = before.conditions.iter();
        let same = known.find(|it| it.kind == condition.kind && it.status == condition.status);
        condition.last_transition_time = match same {
            Some(same) if !same.last_transition_time.is_empty() => same.last_transition_time.clone(),
            _ => seconds(now),
        };
    }
}

/// The step of a deletion that a status has.
fn step_of(status: &ApplicationStatus) -> Option<DeletionStep> {
    serde_json::from_value(status.deletion_step.clone()?.into()).ok()
}

/// The word of a step.
fn word(step: DeletionStep) -> Option<String> {
    serde_json::to_value(step).ok()?.as_str().map(str::to_owned)
}

/// An answer of the API server about an Application.
fn seen(id: &ApplicationId, object: &Value) -> Result<SeenApplication, Error> {
    parse(object).map_err(|bad| Error::Malformed { object: format!("Application {id}"), why: bad.why })
}

impl From<&barbless_domain::status::Status> for ApplicationStatus {
    fn from(status: &barbless_domain::status::Status) -> Self {
        Self {
            observed_generation: Some(status.observed_generation),
            conditions: status
                .conditions
                .iter()
                .map(|condition| Condition {
                    kind: condition.kind.clone(),
                    status: condition.status.clone(),
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                    last_transition_time: String::new(),
                    observed_generation: Some(status.observed_generation),
                })
                .collect(),
            current_version: status
                .current_version
                .as_ref()
                .map(|version| CurrentVersion { version: version.clone(), channel: String::new() }),
            summary: Some(Summary {
                state: status.summary.state.clone(),
                message: status.summary.message.clone(),
                tip: status.summary.tip.clone(),
            }),
            deletion_step: status.deletion_step.and_then(word),
            tracking: status.tracking.as_ref().and_then(|tracking| serde_json::to_value(tracking).ok()),
            ..Self::default()
        }
    }
}
