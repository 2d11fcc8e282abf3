//! Release records, in Helm's own format, so that `helm list`, `history`, `status` and `get` read them.
//!
//! A record is a Secret `sh.helm.release.v1.<name>.v<revision>` in the namespace of the application. Its payload is
//! base64 of gzip of JSON, under the base64 of the Secret itself. The files of the chart are not in it: they are what
//! breaks the limit of 1 MiB elsewhere, and the package has them. What follows from a history is decided in
//! [`barbless_domain::release::history`]; here it is read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::release::history::{self, Action, Owner, Refusal, Revision};
use barbless_domain::release::{
    HelmHook, HookEvent, InventoryItem, MAINTENANCE_LABEL, Plan, ReleaseObject, ReleaseStatus, Rendered, defined_by,
    sort_hooks,
};
use barbless_domain::values::Patches;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Cluster;
use crate::error::Error;
use crate::limits::RECORD_BYTES;
use crate::request::label;

mod codec;
mod fields;
mod manifest;
mod store;
mod takeover;

pub use fields::adopt_fields;
pub use takeover::{HelmMarks, HelmRelease, helm_marks};
pub(crate) use takeover::{HookIdentity, hook_identity};

/// How often [`Cluster::release_heartbeat`] is to be called.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// One revision of a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The application.
    pub application: ApplicationId,
    /// Number of the revision; the first is 1.
    pub revision: u32,
    /// Its status.
    pub status: ReleaseStatus,
    /// What happened last, for people.
    pub description: String,
    /// What the package says to its user, rendered.
    pub notes: String,
    /// Name and version of the package.
    pub package: (String, String),
    /// The settings that it was rendered with.
    pub settings: Value,
    /// Its objects, in the order in which they were applied.
    pub objects: Vec<ReleaseObject>,
    /// Its Helm hooks, each once.
    pub hooks: Vec<RecordedHook>,
    /// When the first revision was applied.
    pub first_deployed: Option<Timestamp>,
    /// When this one was.
    pub last_deployed: Option<Timestamp>,
    /// When its objects were removed.
    pub deleted: Option<Timestamp>,
    /// The process that works on it.
    pub owner: Option<Owner>,
    /// Digest of its plan, as [`Plan::digest`]. For a record of Helm, that of its manifests.
    pub digest: String,
    /// Digest of the plan that a rollback set aside: as long as the package renders it, there is nothing to upgrade.
    pub set_aside: Option<String>,
    /// Seed of random functions of its templates, in hexadecimal digits. It stays the same in all revisions, and is as
    /// secret as what templates make of it.
    pub seed: Option<String>,
    /// What hooks have set in the values that it was rendered with, or since then: the next process begins with it.
    pub patches: Patches,
    /// The revision that this one went back to.
    pub rollback_of: Option<u32>,
    /// What it drops but could not delete, because the cluster served the kind under no version when it was begun. Should
    /// the kind be served again, it goes.
    pub out_of_reach: Vec<ObjectRef>,
    /// Whether its objects are marked as left alone.
    pub maintenance: bool,
    /// Whether Helm wrote it.
    pub written_by_helm: bool,
    /// The JSON as it is stored.
    document: Map<String, Value>,
}

/// A Helm hook of a revision, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedHook {
    /// The hook.
    pub hook: HelmHook,
    /// Its last run, if there was one.
    pub last_run: Option<HookRun>,
    /// Its place among the stored hooks.
    at: usize,
}

/// A run of a Helm hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookRun {
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// How far it is.
    pub phase: HookPhase,
}

/// How far a Helm hook is, in Helm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPhase {
    /// Nobody knows.
    Unknown,
    /// It was begun.
    Running,
    /// It ended well.
    Succeeded,
    /// It did not.
    Failed,
}

impl HookPhase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Unknown, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|it| it.as_str() == word)
    }
}

impl Record {
    /// What it left in the cluster.
    #[must_use]
    pub fn inventory(&self) -> Vec<InventoryItem> {
        let item = |it: &ReleaseObject| {
            let item = InventoryItem::of_objects([&it.object]).pop()?;
            // The reference knows the namespace, which the manifest of a chart seldom does.
            Some(InventoryItem { target: it.target.clone(), ..item })
        };
        let out_of_reach = self.out_of_reach.iter().map(|target| InventoryItem {
            target: target.clone(),
            keep: false,
            transient: true,
            propagation: None,
            delete_dependencies: Vec::new(),
        });
        self.objects.iter().filter_map(item).chain(out_of_reach).collect()
    }

    /// What may be in the cluster after this history, oldest first: the objects of the last revision that ended well and
    /// of all that came after it, since one that failed may have written some of its own. What the newest says of an
    /// object counts, under whichever version of the API it was applied; those of one revision are in the order in which
    /// they were applied.
    #[must_use]
    pub fn inventory_of(history: &[Self]) -> Vec<InventoryItem> {
        let from = history.iter().rposition(|record| record.status == ReleaseStatus::Deployed).unwrap_or(0);
        let mut seen = BTreeSet::new();
        let newest_first = history.iter().skip(from).rev().flat_map(Self::inventory);
        let identity =
            |it: &ObjectRef| (it.gvk.group.clone(), it.gvk.kind.clone(), it.namespace.clone(), it.name.clone());
        newest_first.filter(|item| seen.insert(identity(&item.target))).collect()
    }

    /// Group and kind of the custom resources that it defines, for [`barbless_domain::release::plan_removal`].
    #[must_use]
    pub fn defined(&self) -> BTreeSet<(String, String)> {
        defined_by(self.objects.iter().map(|it| &it.object))
    }

    /// Its hooks by event, in order.
    #[must_use]
    pub fn hooks(&self) -> BTreeMap<HookEvent, Vec<HelmHook>> {
        let mut hooks: BTreeMap<HookEvent, Vec<HelmHook>> = BTreeMap::new();
        for RecordedHook { hook, .. } in &self.hooks {
            for event in &hook.events {
                hooks.entry(*event).or_default().push(hook.clone());
            }
        }
        hooks.values_mut().for_each(|list| sort_hooks(list));
        hooks
    }

    /// Its objects and hooks as if they had just been rendered: a plan of them is a rollback to this revision, without
    /// the package and its values. The mark of maintenance is taken off; the plan puts it on again where it has to be.
    #[must_use]
    pub fn rendered(&self) -> Vec<Rendered> {
        let objects = self.objects.iter().map(|it| (&it.object, &it.source));
        let hooks = self.hooks.iter().map(|it| (&it.hook.object, &it.hook.source));
        let rendered = objects.chain(hooks).map(|(object, source)| {
            let mut object = object.clone();
            if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                labels.remove(MAINTENANCE_LABEL);
            }
            Rendered { object, source: source.clone() }
        });
        rendered.collect()
    }

    /// What the decisions about a history need to know.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision { number: self.revision, status: self.status, owner: self.owner.clone(), begun: self.last_deployed }
    }

    /// Notes how a hook ended. It is written with the next write: of the next hook, or of the end.
    pub fn hook_ended(&mut self, hook: &ObjectRef, phase: HookPhase, now: Timestamp) {
        if let Some(found) = self.hook_mut(hook) {
            let started_at = found.last_run.and_then(|run| run.started_at);
            found.last_run = Some(HookRun { started_at, completed_at: Some(now), phase });
        }
    }

    fn hook_mut(&mut self, hook: &ObjectRef) -> Option<&mut RecordedHook> {
        self.hooks.iter_mut().find(|it| it.hook.target == *hook)
    }

    fn new(
        application: &ApplicationId,
        revision: u32,
        first_deployed: Option<Timestamp>,
        out_of_reach: Vec<ObjectRef>,
        new: &NewRevision<'_>,
    ) -> Self {
        let NewRevision {
            plan,
            action,
            package_version,
            settings,
            notes,
            owner,
            now,
            rollback_of,
            set_aside,
            seed,
            patches,
            ..
        } = *new;
        let hooks = plan.all_hooks().into_iter().cloned().enumerate();
        let mut record = Self {
            application: application.clone(),
            revision,
            status: action.pending(),
            description: match (action, rollback_of) {
                (Action::Install, _) => "being installed".to_owned(),
                (Action::Rollback, Some(revision)) => format!("going back to revision {revision}"),
                (Action::Upgrade | Action::Rollback, _) => "being applied".to_owned(),
            },
            notes: notes.to_owned(),
            package: (plan.package.clone(), package_version.to_owned()),
            settings: settings.clone(),
            objects: plan.objects().cloned().collect(),
            hooks: hooks.map(|(at, hook)| RecordedHook { hook, last_run: None, at }).collect(),
            first_deployed: first_deployed.or(Some(now)),
            last_deployed: Some(now),
            deleted: None,
            owner: Some(Owner { name: owner.to_owned(), seen: now }),
            digest: plan.digest.clone(),
            set_aside: set_aside.map(str::to_owned),
            seed: seed.map(str::to_owned),
            patches: patches.clone(),
            rollback_of,
            out_of_reach,
            maintenance: plan.objects().any(|it| label(&it.object, MAINTENANCE_LABEL).is_some()),
            written_by_helm: false,
            document: Map::new(),
        };
        record.document = codec::document(&record);
        record
    }

    /// Brings the JSON up to date and packs it.
    fn packed(&mut self) -> Result<String, RecordError> {
        let mut document = std::mem::take(&mut self.document);
        codec::update(&mut document, self);
        self.document = document;
        codec::pack(&self.document).map_err(|error| {
            RecordError::Request(Error::Malformed {
                object: format!("release {}", self.application),
                why: error.to_string(),
            })
        })
    }

    /// Packs it, and without what hooks set if it does not fit with that: no release fails for the sake of the process
    /// after this one. It may still be too large.
    fn fitting(&mut self) -> Result<String, RecordError> {
        let payload = self.packed()?;
        if payload.len() <= RECORD_BYTES || self.patches.is_empty() {
            return Ok(payload);
        }
        let application = &self.application;
        tracing::warn!(
            %application,
            bytes = payload.len(),
            "the release record has no room for what hooks set in the values: a restart forgets it"
        );
        self.patches = Patches::default();
        self.packed()
    }

    /// The largest parts, for people who have to make it smaller.
    fn largest(&self) -> String {
        let size = |value: &Value| value.to_string().len();
        let objects = self.objects.iter().map(|it| (size(&it.object), it.target.to_string()));
        let hooks = self.hooks.iter().map(|it| (size(&it.hook.object), it.hook.target.to_string()));
        let others = [(size(&self.settings), "the settings".to_owned()), (self.notes.len(), "the notes".to_owned())];
        let mut sizes: Vec<(usize, String)> = objects.chain(hooks).chain(others).collect();
        sizes.sort_by(|a, b| b.cmp(a));
        let shown: Vec<String> = sizes.iter().take(3).map(|(bytes, what)| format!("{what} ({bytes} bytes)")).collect();
        shown.join(", ")
    }
}

/// Why a revision cannot be begun or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A request failed.
    #[error("the release record could not be read or written")]
    Request(#[from] Error),
    /// The history forbids it.
    #[error("release {application}: {refusal}")]
    Refused {
        /// The application.
        application: ApplicationId,
        /// Why.
        refusal: Refusal,
    },
    /// Helm has a release of this name, and nobody said that it is to be taken over.
    #[error("release {application} belongs to Helm, which has revision {revision} of it")]
    BelongsToHelm {
        /// The application.
        application: ApplicationId,
        /// The last revision of Helm.
        revision: u32,
    },
    /// Another process took this one for dead and went on without it.
    #[error("revision {revision} of release {application} is no longer ours: {}", now_of(by.as_ref()))]
    TakenOver {
        /// The application.
        application: ApplicationId,
        /// The revision.
        revision: u32,
        /// Who has it now, if anybody.
        by: Option<String>,
    },
    /// There is a Secret or ConfigMap of this name that is no release record.
    #[error("{object} is in the way: it is no release record of {application}")]
    Occupied {
        /// The application.
        application: ApplicationId,
        /// What is there.
        object: Box<ObjectRef>,
    },
    /// The manifests do not fit into a Secret.
    #[error("the release record has {bytes} bytes, and {RECORD_BYTES} are possible; the largest parts are {largest}")]
    TooLarge {
        /// Size of the payload.
        bytes: usize,
        /// The largest objects with their sizes.
        largest: String,
    },
}

fn now_of(by: Option<&String>) -> String {
    by.map_or_else(|| "another process took it for dead".to_owned(), |by| format!("{by} has it"))
}

impl RecordError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Request(error) => error.reason(),
            Self::Refused { refusal, .. } => refusal.reason(),
            Self::BelongsToHelm { .. } => "ReleaseOfHelm",
            Self::TakenOver { .. } => "ReleaseTakenOver",
            Self::Occupied { .. } => "ReleaseNameOccupied",
            Self::TooLarge { .. } => "ReleaseTooLarge",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Request(_) => None,
            Self::Refused { refusal, .. } => Some(refusal.hint()),
            Self::BelongsToHelm { .. } => Some(
                "annotate the application with packages.deckhouse.io/take-over: \"true\", remove the release with \
                     Helm, or choose another name",
            ),
            Self::TakenOver { .. } => Some("nothing: the other process goes on"),
            Self::Occupied { .. } => Some("delete this object, or put its labels back"),
            Self::TooLarge { .. } => Some("split the package, or keep large data out of its templates"),
        }
    }

    /// The message with those of its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::error::chain(self)
    }
}

/// What a new revision is made of.
#[derive(Debug, Clone, Copy)]
pub struct NewRevision<'a> {
    /// What will be applied.
    pub plan: &'a Plan,
    /// What it does.
    pub action: Action,
    /// Version of the package.
    pub package_version: &'a str,
    /// The settings that it was rendered with.
    pub settings: &'a Value,
    /// What the package says to its user, rendered.
    pub notes: &'a str,
    /// The process that applies it; unique.
    pub owner: &'a str,
    /// The moment.
    pub now: Timestamp,
    /// The revision that it goes back to.
    pub rollback_of: Option<u32>,
    /// Digest of the plan that a rollback sets aside.
    pub set_aside: Option<&'a str>,
    /// Seed of random functions of its templates, see [`Record::seed`].
    pub seed: Option<&'a str>,
    /// What hooks have set in the values, see [`Record::patches`]. If the record does not fit with it, it goes without.
    pub patches: &'a Patches,
    /// Whether a release of the same name that Helm installed becomes ours.
    pub take_over: bool,
    /// Revisions that are kept, this one included; [`history::KEPT_REVISIONS`] unless somebody wants another number, 0
    /// for all.
    pub kept_revisions: usize,
}

impl Cluster {
    /// All revisions that are kept, oldest first. A record that cannot be read is left out with a warning: one bad
    /// Secret must not make an application undeletable.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn release_history(&self, application: &ApplicationId) -> Result<Vec<Record>, Error> {
        let stored = self.stored_releases(application, &store::ours(application)).await?;
        let mut records: Vec<Record> = stored.into_iter().filter_map(|it| it.record).collect();
        for record in &mut records {
            self.place(record).await?;
        }
        Ok(records)
    }

    /// The last revision. Reads only that one.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn latest_release(&self, application: &ApplicationId) -> Result<Option<Record>, Error> {
        // One that cannot be read is passed over, as in the history.
        for revision in self.stored_revisions(application).await? {
            if let Some(mut record) = self.stored_release(application, revision).await? {
                self.place(&mut record).await?;
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Begins a revision: writes it as pending. Everything that forbids it is found out before anything is written.
    ///
    /// The revisions beyond those that are kept go, but never the newest deployed one. A pending revision whose process
    /// is dead becomes failed.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn begin_release(
        &self,
        application: &ApplicationId,
        new: NewRevision<'_>,
    ) -> Result<Record, RecordError> {
        let mut stored = self.stored_releases(application, &store::anybodys(application)).await?;
        if stored.is_empty() {
            stored = self.stored_in_config_maps(application).await?;
        }
        if let Some(theirs) = stored.iter().rev().find(|it| !it.ours)
            && !new.take_over
        {
            return Err(RecordError::BelongsToHelm { application: application.clone(), revision: theirs.revision });
        }
        let known: Vec<Revision> = stored.iter().map(store::Stored::known).collect();
        history::may_begin(&known, new.action, new.owner, new.now)
            .map_err(|refusal| RecordError::Refused { application: application.clone(), refusal })?;
        let number = history::next_number(known.iter().map(|it| it.number));
        let first_deployed = stored.iter().rev().find_map(|it| it.record.as_ref()?.first_deployed);
        let out_of_reach = self.out_of_reach(&new.plan.prune).await?;
        let mut record = Record::new(application, number, first_deployed, out_of_reach, &new);
        let payload = record.fitting()?;
        if payload.len() > RECORD_BYTES {
            return Err(RecordError::TooLarge { bytes: payload.len(), largest: record.largest() });
        }

        for theirs in stored.iter().filter(|it| !it.ours) {
            self.adopt_record(application, theirs, &new.plan.package, new.now).await?;
        }
        if let (Some(last), Some(facts)) = (stored.last_mut(), known.last())
            && let Some(last) = last.record.as_mut()
            && (last.status.is_pending() || last.status == ReleaseStatus::Uninstalling)
        {
            // Either nobody works on it any more, or this is the way out of it.
            self.give_up(last, facts, new.now).await?;
        }
        for old in history::surplus(&known, new.kept_revisions) {
            self.delete_secret(&store::secret_ref(application, old)).await?;
        }
        // Creation is the lock: of two processes one gets an existing object.
        match self.create_record(&record, &payload, new.now).await {
            Err(error) if error.is_already_exists() => Err(self.lost_race(&record).await?),
            created => Ok(created.map(|()| record)?),
        }
    }

    /// Writes what hooks have set in the values into a record that nobody works on, if it says something else.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn keep_patches(
        &self,
        record: &mut Record,
        patches: &Patches,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        if record.patches == *patches || record.written_by_helm || record.owner.is_some() {
            return Ok(());
        }
        let before = std::mem::replace(&mut record.patches, patches.clone());
        record.fitting()?;
        if record.patches == before {
            return Ok(());
        }
        self.store(record, store::Hold::Keep, now).await
    }

    /// Those of the objects whose kind the cluster serves under no version.
    async fn out_of_reach(&self, dropped: &[ObjectRef]) -> Result<Vec<ObjectRef>, Error> {
        let mut kinds: BTreeMap<&Gvk, bool> = BTreeMap::new();
        for target in dropped {
            if !kinds.contains_key(&target.gvk) {
                let served = match self.resolve_any(&target.gvk).await {
                    Ok(_) => true,
                    Err(Error::KindNotServed { .. }) => false,
                    Err(error) => return Err(error),
                };
                kinds.insert(&target.gvk, served);
            }
        }
        Ok(dropped.iter().filter(|target| kinds.get(&target.gvk) == Some(&false)).cloned().collect())
    }

    /// A sign of life of the process that works on a revision; to be given every few seconds.
    ///
    /// # Errors
    /// [`RecordError::TakenOver`] if another process went on without it; the work has to end then.
    pub async fn release_heartbeat(&self, record: &Record, now: Timestamp) -> Result<(), RecordError> {
        self.beat(record, now).await
    }

    /// Notes that a hook begins, before it does; one write. A hook that is not in the record is not noted.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn hook_started(&self, record: &mut Record, hook: &ObjectRef, now: Timestamp) -> Result<(), RecordError> {
        let Some(found) = record.hook_mut(hook) else { return Ok(()) };
        found.last_run = Some(HookRun { started_at: Some(now), completed_at: None, phase: HookPhase::Running });
        if let Some(owner) = record.owner.as_mut() {
            owner.seen = now;
        }
        self.store(record, store::Hold::Keep, now).await
    }

    /// Ends a revision. Once it is deployed, all that were deployed before are superseded.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn finish_release(
        &self,
        record: &mut Record,
        status: ReleaseStatus,
        description: &str,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        record.status = status;
        store::bounded(description, crate::limits::EVENT_MESSAGE).clone_into(&mut record.description);
        // First the new one: a crash in between leaves two deployed revisions, of which the higher counts.
        self.store(record, store::Hold::Release, now).await?;
        if status == ReleaseStatus::Deployed {
            self.supersede(record, now).await?;
        }
        Ok(())
    }

    /// Notes that the objects of a release are about to be removed, after its hooks allowed it.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn mark_uninstalling(&self, record: &mut Record, owner: &str, now: Timestamp) -> Result<(), RecordError> {
        record.status = ReleaseStatus::Uninstalling;
        "being removed".clone_into(&mut record.description);
        record.deleted = Some(now);
        self.store(record, store::Hold::Take(Owner { name: owner.to_owned(), seen: now }), now).await
    }

    /// Notes that the objects of a release are gone, where its history is to be kept. Earlier revisions that counted as
    /// deployed are superseded.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn mark_uninstalled(
        &self,
        record: &mut Record,
        description: &str,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        record.deleted = record.deleted.or(Some(now));
        self.finish_release(record, ReleaseStatus::Uninstalled, description, now).await?;
        self.supersede(record, now).await
    }

    /// Marks what was deployed before a revision as superseded.
    async fn supersede(&self, record: &Record, now: Timestamp) -> Result<(), RecordError> {
        let labels = format!("{},status=deployed", store::ours(&record.application));
        for old in self.stored_releases(&record.application, &labels).await? {
            if old.revision < record.revision
                && let Some(mut old) = old.record
            {
                old.status = ReleaseStatus::Superseded;
                self.store(&mut old, store::Hold::Keep, now).await?;
            }
        }
        Ok(())
    }

    /// Deletes all revisions, the last one last: a crash in between leaves the one that says what is there.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn delete_releases(&self, application: &ApplicationId) -> Result<(), Error> {
        for name in self.stored_names(application).await? {
            let target = ObjectRef { name, ..store::secret_ref(application, 0) };
            self.delete_secret(&target).await?;
        }
        Ok(())
    }

    /// Gives objects of a record of Helm the namespace that Helm put them into: charts seldom name it.
    async fn place(&self, record: &mut Record) -> Result<(), Error> {
        if !record.written_by_helm {
            return Ok(());
        }
        let namespace = record.application.namespace().to_owned();
        let objects = record.objects.iter_mut().map(|it| &mut it.target);
        for target in objects.chain(record.hooks.iter_mut().map(|it| &mut it.hook.target)) {
            if !target.namespace.is_empty() {
                continue;
            }
            match self.resolve_any(&target.gvk).await {
                Ok(resource) if resource.scope == Scope::Namespaced => namespace.clone_into(&mut target.namespace),
                // What is not served has no objects that could be in the wrong place.
                Ok(_) | Err(Error::KindNotServed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
