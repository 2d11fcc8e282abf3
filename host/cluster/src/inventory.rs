//! Which objects of a release are there, and which objects nobody removes.

use std::collections::{BTreeMap, BTreeSet};

use barbless_domain::event::Failure;
use barbless_domain::grant::{INSTANCE_LABEL, Scope};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::operation::Propagation;
use barbless_domain::release::InventoryItem;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt, TryStreamExt};

use crate::Cluster;
use crate::discovery::Resource;
use crate::error::Error;
use crate::limits::PARALLEL;
use crate::record::Record;
use crate::request::{Target, annotation, answered, metadata};

/// What became of the orphans of an application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// What was asked to go. It is not waited for.
    pub deleted: Vec<ObjectRef>,
    /// What happened, one line each; every line has the word "orphan".
    pub entries: Vec<PurgeLine>,
}

/// One line of a [`PurgeReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeLine {
    /// How much it matters.
    pub level: PurgeLevel,
    /// The text.
    pub text: String,
}

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeLevel {
    /// What happened.
    Info,
    /// Something was left.
    Warn,
    /// Something failed and is to be repeated.
    Error,
}

impl PurgeReport {
    /// The lines, for people.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(|entry| entry.text.clone())
    }

    /// Why the step has to be repeated, if it has to.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let errors: Vec<&str> = self
            .entries
            .iter()
            .filter(|entry| entry.level == PurgeLevel::Error)
            .map(|entry| entry.text.as_str())
            .collect();
        (!errors.is_empty()).then(|| Failure {
            reason: "OrphansNotPurged".to_owned(),
            message: errors.join("; "),
            hint: None,
            retry_after_ms: None,
        })
    }

    fn say(&mut self, level: PurgeLevel, application: &ApplicationId, text: String) {
        match level {
            PurgeLevel::Info => tracing::info!(%application, "{text}"),
            PurgeLevel::Warn => tracing::warn!(%application, "{text}"),
            PurgeLevel::Error => tracing::error!(%application, "{text}"),
        }
        self.entries.push(PurgeLine { level, text });
    }
}

impl Cluster {
    /// What may be in the cluster after a history, oldest first; see [`Record::inventory_of`]. What was applied under a
    /// version of the API that is no longer served is named under one that is: it is the same object. A kind that is not
    /// served under any version stays as it is.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn inventory_of(&self, history: &[Record]) -> Result<Vec<InventoryItem>, Error> {
        let mut inventory = Record::inventory_of(history);
        for item in &mut inventory {
            match self.resolve_any(&item.target.gvk).await {
                Ok(resource) => item.target.gvk.version = resource.api.version,
                Err(Error::KindNotServed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(inventory)
    }

    /// What the cluster serves of a kind: under this version, or else under another of its group, the preferred one first.
    ///
    /// # Errors
    /// [`Error::KindNotServed`] if there is none, or if the API server refuses or does not answer.
    pub(crate) async fn resolve_any(&self, gvk: &Gvk) -> Result<Resource, Error> {
        match self.resolve(gvk).await {
            // There are no others of the core.
            Err(Error::KindNotServed { .. }) if !gvk.group.is_empty() => {}
            resolved => return resolved,
        }
        let groups = answered("discover", "API groups", self.client().list_api_groups()).await?;
        for group in groups.groups.into_iter().filter(|group| group.name == gvk.group) {
            let preferred = group.preferred_version.map(|it| it.version);
            let versions = group.versions.into_iter().map(|it| it.version);
            for version in preferred.into_iter().chain(versions).filter(|version| *version != gvk.version) {
                match self.resolve(&Gvk { version, ..gvk.clone() }).await {
                    Err(Error::KindNotServed { .. }) => {}
                    resolved => return resolved,
                }
            }
        }
        Err(Error::KindNotServed { gvk: gvk.clone() })
    }

    /// The same, asked again if the last answer is not from a moment ago: a version that went meanwhile answers like an
    /// object that is not there.
    pub(crate) async fn resolve_anew(&self, gvk: &Gvk) -> Result<Resource, Error> {
        self.discovery().forget_older(&gvk.api_version());
        self.resolve_any(gvk).await
    }

    /// Which of these objects of an application are not there. One list of metadata per kind, under whichever version of
    /// the API is served; an object without the label of the application counts as missing, since the next apply has to
    /// put it back.
    ///
    /// # Errors
    /// If the API server refuses or does not answer. A kind that is not served has no objects.
    pub async fn missing(
        &self,
        application: &ApplicationId,
        references: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, Error> {
        let mut by_kind: BTreeMap<(&Gvk, &str), Vec<&ObjectRef>> = BTreeMap::new();
        for reference in references {
            by_kind.entry((&reference.gvk, &reference.namespace)).or_default().push(reference);
        }
        let labels = format!("{INSTANCE_LABEL}={}", application.name());
        // Collected before they are polled: the compiler cannot prove that a stream of borrowing closures is `Send`.
        let lists: Vec<BoxFuture<'_, Result<Vec<ObjectRef>, Error>>> = by_kind
            .into_iter()
            .map(|((gvk, namespace), wanted)| {
                let labels = &labels;
                async move {
                    let names = self.names_of(gvk, (!namespace.is_empty()).then_some(namespace), labels).await?;
                    Ok(wanted.into_iter().filter(|it| !names.contains(&it.name)).cloned().collect())
                }
                .boxed()
            })
            .collect();
        let missing: Vec<Vec<ObjectRef>> =
            futures::stream::iter(lists).buffer_unordered(PARALLEL).try_collect().await?;
        let missing: BTreeSet<ObjectRef> = missing.into_iter().flatten().collect();
        // In the order of the question.
        Ok(references.iter().filter(|reference| missing.contains(reference)).cloned().collect())
    }

    /// The names of the objects of a kind that have labels; none if it is not served.
    async fn names_of(&self, gvk: &Gvk, namespace: Option<&str>, labels: &str) -> Result<BTreeSet<String>, Error> {
        let mut resolved = self.resolve_any(gvk).await;
        // A list is only not found if the version that was served is so no longer.
        for is_last in [false, true] {
            let resource = match resolved {
                Ok(resource) => resource,
                Err(Error::KindNotServed { .. }) => break,
                Err(error) => return Err(error),
            };
            match self.list_in(&resource, namespace, labels, true).await {
                Err(error) if error.is_not_found() && !is_last => resolved = self.resolve_anew(gvk).await,
                listed => return Ok(listed?.iter().filter_map(|it| metadata(it, "name")).map(str::to_owned).collect()),
            }
        }
        Ok(BTreeSet::new())
    }

    /// Deletes what a deleted application may have left: objects of these kinds, given as `(kind, version)`, in its
    /// namespace and with its label. A version is `<group>/<version>`, or `<version>` for every group that serves the
    /// kind at that version.
    ///
    /// Deletion is in the background, for the object with that uid only, and not waited for. Left are objects that
    /// already go, objects that `helm.sh/resource-policy: keep` protects, cluster-scoped kinds and kinds that are not
    /// served. An API error does not stop the rest; the report has a [`PurgeReport::failure`] then.
    pub async fn purge_orphans(&self, application: &ApplicationId, kinds: &[(String, String)]) -> PurgeReport {
        let mut report = PurgeReport::default();
        // Kinds may be spelt twice, and both spellings may mean one.
        let mut seen = BTreeSet::new();
        for (kind, version) in kinds {
            let found = match self.orphan_kinds(kind, version).await {
                Ok(found) => found,
                Err(error) => {
                    let text =
                        format!("orphan resources of kind {kind} ({version}) were not looked for: {}", error.chain());
                    report.say(PurgeLevel::Error, application, text);
                    continue;
                }
            };
            if found.is_empty() {
                let text = format!("orphan kind {kind} ({version}) is skipped: the cluster does not serve it");
                report.say(PurgeLevel::Warn, application, text);
            }
            for resource in found {
                if seen.insert((resource.api.group.clone(), resource.api.plural.clone())) {
                    self.purge_kind(application, &resource, &mut report).await;
                }
            }
        }
        report
    }

    /// The served kinds that a declaration means.
    async fn orphan_kinds(&self, kind: &str, version: &str) -> Result<Vec<Resource>, Error> {
        let mut found = Vec::new();
        let mut candidates = Vec::new();
        if version.contains('/') {
            candidates.push(version.to_owned());
        } else {
            candidates.push(version.to_owned());
            let groups = answered("discover", "API groups", self.client().list_api_groups()).await?;
            for group in groups.groups {
                let served = group.versions.into_iter().filter(|served| served.version == version);
                candidates.extend(served.map(|served| served.group_version));
            }
        }
        for api_version in candidates {
            let Ok(gvk) = Gvk::parse(&api_version, kind) else { continue };
            match self.resolve(&gvk).await {
                Ok(resource) => found.push(resource),
                Err(Error::KindNotServed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn purge_kind(&self, application: &ApplicationId, resource: &Resource, report: &mut PurgeReport) {
        let kind = &resource.api.kind;
        if resource.scope == Scope::Cluster {
            let text = format!("orphan kind {kind} is skipped: it is cluster-scoped");
            return report.say(PurgeLevel::Warn, application, text);
        }
        if !resource.serves("list") || !resource.serves("delete") {
            let text = format!("orphan kind {kind} is skipped: it cannot be listed or deleted");
            return report.say(PurgeLevel::Warn, application, text);
        }
        let labels = format!("{INSTANCE_LABEL}={}", application.name());
        let objects = match self.list_in(resource, Some(application.namespace()), &labels, true).await {
            Ok(objects) => objects,
            Err(error) => {
                let text = format!("orphan resources of kind {kind} could not be listed: {}", error.chain());
                return report.say(PurgeLevel::Error, application, text);
            }
        };
        for object in objects {
            let Ok(target) = ObjectRef::of(&object) else { continue };
            if metadata(&object, "deletionTimestamp").is_some() {
                continue;
            }
            if is_protected(&object) {
                let text = format!("orphan {target} stays: its resource policy keeps it");
                report.say(PurgeLevel::Info, application, text);
                continue;
            }
            let at = Target { resource, object: &target };
            match self.delete_in(&at, Propagation::Background, metadata(&object, "uid")).await {
                Ok(true) => {
                    report.say(PurgeLevel::Info, application, format!("orphan {target} was deleted"));
                    report.deleted.push(target);
                }
                Ok(false) => {}
                // Another object took its place.
                Err(error) if error.is_lost_race() => {}
                Err(error) => {
                    let text = format!("orphan {target} could not be deleted: {}", error.chain());
                    report.say(PurgeLevel::Error, application, text);
                }
            }
        }
    }
}

/// Whether an orphan stays: nothing but Helm's own annotation protects it. What else keeps an object of a release does
/// not outlive the application.
fn is_protected(object: &serde_json::Value) -> bool {
    annotation(object, "helm.sh/resource-policy").is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}
