//! Secrets of records: found, created, changed and deleted.
//!
//! A revision under way belongs to one process. Each of its writes says so and is refused once another process took it
//! for dead: both would otherwise believe that they apply the release.

use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::operation::Propagation;
use barbless_domain::release::ReleaseStatus;
use barbless_domain::release::history::{Owner, Refusal, Revision};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::codec::{self, HEARTBEAT_ANNOTATION, OWNER_ANNOTATION, SECRET_TYPE};
use super::{Record, RecordError};
use crate::Cluster;
use crate::error::Error;
use crate::limits::RECORDS_READ;
use crate::request::{Target, annotation, label, metadata};

pub(super) const MANAGER: &str = "barbless";
/// The annotations in paths of a JSON patch.
const OWNER_PATH: &str = "/metadata/annotations/packages.deckhouse.io~1release-owner";
const HEARTBEAT_PATH: &str = "/metadata/annotations/packages.deckhouse.io~1release-heartbeat";

/// A stored revision.
pub(super) struct Stored {
    /// Its number.
    pub(super) revision: u32,
    /// Whether it is one of ours, and not of a release that Helm has under the same name.
    pub(super) ours: bool,
    /// Its status by the label.
    status: ReleaseStatus,
    /// What it says, if it can be read.
    pub(super) record: Option<Record>,
    /// What holds it, if that is not ours.
    pub(super) holder: Option<Value>,
}

impl Stored {
    /// What is in a Secret or ConfigMap, if that holds a record. What it says is taken in only on demand.
    fn of(application: &ApplicationId, holder: Value, read: bool) -> Option<Self> {
        let is_secret = holder.get("kind").and_then(Value::as_str) != Some("ConfigMap");
        if is_secret && holder.get("type").and_then(Value::as_str) != Some(SECRET_TYPE) {
            return None;
        }
        let name = metadata(&holder, "name").unwrap_or_default();
        let Some(revision) = revision_of(&holder) else {
            tracing::warn!(%application, name, "the name of a release record has no revision");
            return None;
        };
        let record = read
            .then(|| codec::decode(application, &holder))
            .transpose()
            .inspect_err(|why| tracing::warn!(%application, name, why, "a release record cannot be read"))
            .unwrap_or_default();
        let status = label(&holder, "status").and_then(|word| serde_json::from_value(word.into()).ok());
        let ours = label(&holder, INSTANCE_LABEL) == Some(application.name());
        let status = status.unwrap_or(ReleaseStatus::Unknown);
        Some(Self { revision, ours, status, record, holder: (!ours).then_some(holder) })
    }

    /// What the decisions about a history need to know.
    pub(super) fn known(&self) -> Revision {
        match &self.record {
            Some(record) => record.revision(),
            // Nobody can tell whether it is pending, so it does not lock.
            None if self.status.is_pending() => {
                Revision { number: self.revision, status: ReleaseStatus::Unknown, owner: None, begun: None }
            }
            None => Revision { number: self.revision, status: self.status, owner: None, begun: None },
        }
    }
}

/// The number in the name of a record. The name is what can be there only once.
fn revision_of(holder: &Value) -> Option<u32> {
    metadata(holder, "name")?.rsplit_once(".v")?.1.parse().ok()
}

/// What a write does with the owner of a record.
pub(super) enum Hold {
    /// It stays.
    Keep,
    /// This one has it from now on.
    Take(Owner),
    /// There is none any more.
    Release,
}

/// Selects our records: a release of the same name that Helm itself made is not ours to read or delete.
pub(super) fn ours(application: &ApplicationId) -> String {
    format!("{},{INSTANCE_LABEL}={}", anybodys(application), application.name())
}

/// Selects all records of this name.
pub(super) fn anybodys(application: &ApplicationId) -> String {
    format!("owner=helm,name={}", application.name())
}

pub(super) fn core_kind(kind: &str) -> Gvk {
    Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() }
}

pub(super) fn secret_ref(application: &ApplicationId, revision: u32) -> ObjectRef {
    ObjectRef {
        gvk: core_kind("Secret"),
        namespace: application.namespace().to_owned(),
        name: codec::secret_name(application, revision),
    }
}

/// The first characters of a text.
pub(super) fn bounded(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

impl Cluster {
    /// The records that a selector finds, oldest first.
    pub(super) async fn stored_releases(
        &self,
        application: &ApplicationId,
        labels: &str,
    ) -> Result<Vec<Stored>, Error> {
        let secrets = self.list(&core_kind("Secret"), Some(application.namespace()), labels).await?;
        self.decoded(application, secrets).await
    }

    /// The records that Secrets or ConfigMaps hold, oldest first. Of a very long history only the newest are read.
    ///
    /// Decoding is work that grows with what somebody wrote into the namespace, so it is not done among the requests of
    /// other applications.
    pub(super) async fn decoded(
        &self,
        application: &ApplicationId,
        mut holders: Vec<Value>,
    ) -> Result<Vec<Stored>, Error> {
        let id = application.clone();
        let decode = move || {
            holders.sort_by_key(|holder| std::cmp::Reverse(revision_of(holder)));
            let numbered = holders.into_iter().enumerate();
            let mut stored: Vec<Stored> =
                numbered.filter_map(|(index, holder)| Stored::of(&id, holder, index < RECORDS_READ)).collect();
            stored.reverse();
            stored
        };
        tokio::task::spawn_blocking(decode).await.map_err(|error| Error::Malformed {
            object: format!("the history of {application}"),
            why: error.to_string(),
        })
    }

    /// The numbers of our records, newest first.
    pub(super) async fn stored_revisions(&self, application: &ApplicationId) -> Result<Vec<u32>, Error> {
        let resource = self.resolve(&core_kind("Secret")).await?;
        let secrets = self.list_in(&resource, Some(application.namespace()), &ours(application), true).await?;
        let mut revisions: Vec<u32> = secrets.iter().filter_map(revision_of).collect();
        revisions.sort_unstable_by(|a, b| b.cmp(a));
        Ok(revisions)
    }

    /// One of our records; nothing if there is none or it cannot be read.
    pub(super) async fn stored_release(
        &self,
        application: &ApplicationId,
        revision: u32,
    ) -> Result<Option<Record>, Error> {
        let secret = self.get(&secret_ref(application, revision)).await?;
        let stored = self.decoded(application, secret.into_iter().collect()).await?;
        Ok(stored.into_iter().find_map(|it| it.record))
    }

    /// The names of the Secrets of all our records, oldest first, whether they can be read or not.
    pub(super) async fn stored_names(&self, application: &ApplicationId) -> Result<Vec<String>, Error> {
        let secrets = self.list(&core_kind("Secret"), Some(application.namespace()), &ours(application)).await?;
        let mut names: Vec<(Option<u32>, String)> = secrets
            .iter()
            .filter(|secret| secret.get("type").and_then(Value::as_str) == Some(SECRET_TYPE))
            .filter_map(|secret| Some((revision_of(secret), metadata(secret, "name")?.to_owned())))
            .collect();
        names.sort_unstable();
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    pub(super) async fn create_record(&self, record: &Record, payload: &str, now: Timestamp) -> Result<(), Error> {
        let target = secret_ref(&record.application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let secret = codec::secret(record, &target, payload, now);
        self.create_in(&Target { resource: &resource, object: &target }, MANAGER, &secret).await?;
        Ok(())
    }

    pub(super) async fn delete_secret(&self, target: &ObjectRef) -> Result<(), Error> {
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: target };
        self.delete_in(&at, Propagation::Background, None).await?;
        Ok(())
    }

    /// Writes what changed of a record. One of ours that is gone is created again.
    pub(super) async fn store(&self, record: &mut Record, hold: Hold, now: Timestamp) -> Result<(), RecordError> {
        let payload = record.packed()?;
        let target = secret_ref(&record.application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        let release = STANDARD.encode(&payload);
        let modified = now.as_second().to_string();
        let before = record.owner.clone();
        match hold {
            Hold::Keep => {}
            Hold::Release => record.owner = None,
            Hold::Take(owner) => record.owner = Some(owner),
        }
        let written = match &before {
            Some(owner) => {
                let mut operations = vec![
                    json!({"op": "test", "path": OWNER_PATH, "value": owner.name}),
                    json!({"op": "replace", "path": "/data/release", "value": release}),
                    json!({"op": "add", "path": "/metadata/labels/status", "value": record.status.as_str()}),
                    json!({"op": "add", "path": "/metadata/labels/modifiedAt", "value": modified}),
                ];
                match &record.owner {
                    Some(Owner { name, seen }) => operations.extend([
                        json!({"op": "add", "path": OWNER_PATH, "value": name}),
                        json!({"op": "add", "path": HEARTBEAT_PATH, "value": seen.as_second().to_string()}),
                    ]),
                    None => operations.extend([
                        json!({"op": "remove", "path": OWNER_PATH}),
                        // A heartbeat that somebody took off is not missed.
                        json!({"op": "add", "path": HEARTBEAT_PATH, "value": ""}),
                        json!({"op": "remove", "path": HEARTBEAT_PATH}),
                    ]),
                }
                self.json_patch_in(&at, MANAGER, &operations.into()).await
            }
            None => {
                let annotations = match &record.owner {
                    Some(Owner { name, seen }) => {
                        json!({OWNER_ANNOTATION: name, HEARTBEAT_ANNOTATION: seen.as_second().to_string()})
                    }
                    None => json!({OWNER_ANNOTATION: null, HEARTBEAT_ANNOTATION: null}),
                };
                let labels = json!({"status": record.status.as_str(), "modifiedAt": modified});
                let patch = json!({
                    "metadata": {"labels": labels, "annotations": annotations}, "data": {"release": release},
                });
                self.merge_in(&at, MANAGER, &patch).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            // Somebody deleted it while its process worked on it: what there is in the cluster must be on record.
            Err(error) if error.is_not_found() && before.is_some() => {
                Ok(self.create_record(record, &payload, now).await?)
            }
            // The owner is no longer the one that was, because of an attempt that was not answered.
            Err(error) if error.is_in_doubt() && self.is_stored(&at, &release, record.owner.as_ref()).await? => Ok(()),
            // An old revision that went meanwhile needs no new status.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.taken_over(record, before.as_ref(), error).await),
        }
    }

    /// Whether a record says this, and belongs to this owner.
    async fn is_stored(&self, at: &Target<'_>, release: &str, owner: Option<&Owner>) -> Result<bool, Error> {
        let secret = self.get_in(at).await?;
        Ok(secret.is_some_and(|secret| {
            let said = secret.pointer("/data/release").and_then(Value::as_str);
            said == Some(release) && annotation(&secret, OWNER_ANNOTATION) == owner.map(|owner| owner.name.as_str())
        }))
    }

    pub(super) async fn beat(&self, record: &Record, now: Timestamp) -> Result<(), RecordError> {
        let Some(owner) = &record.owner else { return Ok(()) };
        let target = secret_ref(&record.application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let operations = json!([
            {"op": "test", "path": OWNER_PATH, "value": owner.name},
            {"op": "add", "path": HEARTBEAT_PATH, "value": now.as_second().to_string()},
        ]);
        match self.json_patch_in(&Target { resource: &resource, object: &target }, MANAGER, &operations).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.taken_over(record, Some(owner), error).await),
        }
    }

    /// A pending revision of a dead process becomes failed, unless the process turns out to be alive.
    pub(super) async fn give_up(&self, last: &mut Record, facts: &Revision, now: Timestamp) -> Result<(), RecordError> {
        last.status = ReleaseStatus::Failed;
        "its process ended before it was done".clone_into(&mut last.description);
        let Some(owner) = &facts.owner else { return self.store(last, Hold::Keep, now).await };
        let target = secret_ref(&last.application, last.revision);
        let resource = self.resolve(&target.gvk).await?;
        let release = STANDARD.encode(last.packed()?);
        let at = Target { resource: &resource, object: &target };
        let operations = json!([
            {"op": "test", "path": OWNER_PATH, "value": owner.name},
            {"op": "test", "path": HEARTBEAT_PATH, "value": owner.seen.as_second().to_string()},
            {"op": "replace", "path": "/data/release", "value": release},
            {"op": "add", "path": "/metadata/labels/status", "value": last.status.as_str()},
            {"op": "add", "path": "/metadata/labels/modifiedAt", "value": now.as_second().to_string()},
            {"op": "remove", "path": OWNER_PATH},
            {"op": "remove", "path": HEARTBEAT_PATH},
        ]);
        match self.json_patch_in(&at, MANAGER, &operations).await {
            Ok(_) => {
                last.owner = None;
                Ok(())
            }
            Err(error) if error.is_in_doubt() && self.is_stored(&at, &release, None).await? => {
                last.owner = None;
                Ok(())
            }
            Err(error) if error.code() == Some(422) => Err(RecordError::Refused {
                application: last.application.clone(),
                refusal: Refusal::InProgress {
                    revision: last.revision,
                    status: facts.status,
                    by: Some(owner.name.clone()),
                },
            }),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells a write that failed because another process has the record from one that failed otherwise.
    async fn taken_over(&self, record: &Record, owner: Option<&Owner>, error: Error) -> RecordError {
        let is_test = error.code() == Some(422);
        if let (true, Some(owner)) = (is_test, owner)
            && let Ok(Some(secret)) = self.get(&secret_ref(&record.application, record.revision)).await
        {
            let by = annotation(&secret, OWNER_ANNOTATION);
            if by != Some(owner.name.as_str()) {
                return RecordError::TakenOver {
                    application: record.application.clone(),
                    revision: record.revision,
                    by: by.map(str::to_owned),
                };
            }
        }
        error.into()
    }

    /// The error of a revision that could not be created because there is one.
    pub(super) async fn lost_race(&self, record: &Record) -> Result<RecordError, Error> {
        let application = record.application.clone();
        let object = secret_ref(&application, record.revision);
        let secret = self.get(&object).await?;
        let Some(secret) = secret.filter(|secret| label(secret, "name") == Some(application.name())) else {
            return Ok(RecordError::Occupied { application, object: Box::new(object) });
        };
        let status = label(&secret, "status").and_then(|word| serde_json::from_value(word.into()).ok());
        Ok(RecordError::Refused {
            application,
            refusal: Refusal::InProgress {
                revision: record.revision,
                status: status.unwrap_or(ReleaseStatus::Unknown),
                by: annotation(&secret, OWNER_ANNOTATION).map(str::to_owned),
            },
        })
    }
}
