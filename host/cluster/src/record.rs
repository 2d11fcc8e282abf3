//! Release records, in Helm's own format, so that `helm list`, `history` and `get` read them.
//!
//! A record is a Secret `sh.helm.release.v1.<name>.v<revision>` in the namespace of the application. Its payload is
//! base64 of gzip of JSON, under the base64 of the Secret itself. The files of the chart are not in it: they are what
//! breaks the limit of 1 MiB elsewhere, and the package has them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::time::Duration;

use barbless_domain::grant::{INSTANCE_LABEL, PACKAGE_LABEL};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_domain::release::{
    DeletePolicy, HelmHook, HookEvent, InventoryItem, MAINTENANCE_LABEL, Plan, ReleaseObject, ReleaseStatus,
    defined_by, digest, sort_hooks,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Cluster;
use crate::error::Error;
use crate::limits::{HISTORY, PENDING_STALE, RECORD_BYTES, RECORD_UNPACKED_BYTES};
use crate::request::{Target, annotation, label, metadata};

const SECRET_TYPE: &str = "helm.sh/release.v1";
const MANAGER: &str = "barbless";
/// Annotation with the process that applies a pending revision.
const OWNER_ANNOTATION: &str = "packages.deckhouse.io/release-owner";
/// Annotation with the last sign of life of that process, in seconds since the epoch.
const HEARTBEAT_ANNOTATION: &str = "packages.deckhouse.io/release-heartbeat";

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
    /// Name and version of the package.
    pub package: (String, String),
    /// The settings that it was rendered with.
    pub settings: Value,
    /// Its objects, in the order in which they were applied.
    pub objects: Vec<ReleaseObject>,
    /// Its Helm hooks, each once.
    pub hooks: Vec<HelmHook>,
    /// When the first revision was applied.
    pub first_deployed: Timestamp,
    /// When this one was.
    pub last_deployed: Timestamp,
    /// The process that applies it, and its last sign of life, if it is pending.
    pub owner: Option<(String, Timestamp)>,
    /// Digest of its manifests, as [`Plan::digest`].
    pub digest: String,
    /// Whether its objects are marked as left alone.
    pub maintenance: bool,
}

impl Record {
    /// What it left in the cluster.
    #[must_use]
    pub fn inventory(&self) -> Vec<InventoryItem> {
        InventoryItem::of_objects(self.objects.iter().map(|it| &it.object))
    }

    /// Group and kind of the custom resources that it defines, for [`barbless_domain::release::removal`].
    #[must_use]
    pub fn defined(&self) -> BTreeSet<(String, String)> {
        defined_by(self.objects.iter().map(|it| &it.object))
    }

    /// Its hooks by event, in order.
    #[must_use]
    pub fn hooks(&self) -> BTreeMap<HookEvent, Vec<HelmHook>> {
        let mut hooks: BTreeMap<HookEvent, Vec<HelmHook>> = BTreeMap::new();
        for hook in &self.hooks {
            for event in &hook.events {
                hooks.entry(*event).or_default().push(hook.clone());
            }
        }
        hooks.values_mut().for_each(|list| sort_hooks(list));
        hooks
    }
}

/// Why a revision cannot be begun or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A request failed.
    #[error("the release record could not be read or written")]
    Request(#[from] Error),
    /// Another process is applying the release.
    #[error("revision {revision} of release {application} is being applied by {owner:?}")]
    InProgress {
        /// The application.
        application: ApplicationId,
        /// The pending revision.
        revision: u32,
        /// The process.
        owner: String,
    },
    /// The manifests do not fit into a Secret.
    #[error("the release record has {bytes} bytes, and {RECORD_BYTES} are possible; the largest objects are {largest}")]
    TooLarge {
        /// Size of the payload.
        bytes: usize,
        /// The largest objects with their sizes.
        largest: String,
    },
}

impl RecordError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Request(error) => error.reason(),
            Self::InProgress { .. } => "ReleaseInProgress",
            Self::TooLarge { .. } => "ReleaseTooLarge",
        }
    }

    /// The message with those of its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::error::chain(self)
    }
}

/// What a new revision is made of.
#[derive(Debug, Clone)]
pub struct NewRevision<'a> {
    /// What will be applied.
    pub plan: &'a Plan,
    /// Version of the package.
    pub package_version: &'a str,
    /// The settings that it was rendered with.
    pub settings: &'a Value,
    /// The process that applies it; unique.
    pub owner: &'a str,
    /// The moment.
    pub now: Timestamp,
}

impl Cluster {
    /// All revisions that are kept, oldest first. A record that cannot be read is left out with a warning: one bad
    /// Secret must not make an application undeletable.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn release_history(&self, application: &ApplicationId) -> Result<Vec<Record>, Error> {
        let labels = record_labels(application);
        let secrets = self.list(&secret_kind(), Some(application.namespace()), &labels).await?;
        let mut records: Vec<Record> = secrets.iter().filter_map(|secret| readable(application, secret)).collect();
        records.sort_by_key(|record| record.revision);
        Ok(records)
    }

    /// The last revision. Reads only that one.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn latest_release(&self, application: &ApplicationId) -> Result<Option<Record>, Error> {
        let resource = self.resolve(&secret_kind()).await?;
        let labels = record_labels(application);
        let secrets = self.list_in(&resource, Some(application.namespace()), &labels, true).await?;
        let mut revisions: Vec<u32> =
            secrets.iter().filter_map(|secret| label(secret, "version")?.parse().ok()).collect();
        revisions.sort_unstable();
        // One that cannot be read is passed over, as in the history.
        for revision in revisions.into_iter().rev() {
            let target = secret_ref(application, revision);
            let Some(secret) = self.get_in(&Target { resource: &resource, object: &target }).await? else { continue };
            if let Some(record) = readable(application, &secret) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Begins a revision: writes it as pending. The oldest revisions beyond ten go, but never the newest deployed one.
    ///
    /// A pending revision of another process is an error as long as that process gives signs of life; afterwards it
    /// counts as failed.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn begin_release(
        &self,
        application: &ApplicationId,
        new: NewRevision<'_>,
    ) -> Result<Record, RecordError> {
        let NewRevision { plan, package_version, settings, owner, now } = new;
        let mut history = self.release_history(application).await?;
        if let Some(last) = history.last_mut()
            && last.status.is_pending()
        {
            if let Some((other, seen)) = &last.owner
                && other != owner
                && now.duration_since(*seen).unsigned_abs() < PENDING_STALE
            {
                return Err(RecordError::InProgress {
                    application: application.clone(),
                    revision: last.revision,
                    owner: other.clone(),
                });
            }
            last.status = ReleaseStatus::Failed;
            "the process that applied it ended before it was done".clone_into(&mut last.description);
            last.owner = None;
            self.store(last, false).await?;
        }
        let last = history.last();
        let deployed = history.iter().any(|it| it.status == ReleaseStatus::Deployed);
        let record = Record {
            application: application.clone(),
            revision: last.map_or(1, |last| last.revision.saturating_add(1)),
            status: if deployed { ReleaseStatus::PendingUpgrade } else { ReleaseStatus::PendingInstall },
            description: "being applied".to_owned(),
            package: (plan.package.clone(), package_version.to_owned()),
            settings: settings.clone(),
            objects: plan.objects().cloned().collect(),
            hooks: plan.all_hooks().into_iter().cloned().collect(),
            first_deployed: last.map_or(now, |last| last.first_deployed),
            last_deployed: now,
            owner: Some((owner.to_owned(), now)),
            digest: plan.digest.clone(),
            maintenance: is_maintained(plan.objects()),
        };
        // The size is known before anything is deleted.
        let secret = encode(&record)?;
        let newest_deployed =
            history.iter().rev().find(|it| it.status == ReleaseStatus::Deployed).map(|it| it.revision);
        let surplus = (history.len() + 1).saturating_sub(HISTORY);
        for old in history.iter().filter(|old| Some(old.revision) != newest_deployed).take(surplus) {
            self.delete_record(application, old.revision).await?;
        }
        let target = secret_ref(application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        // Creation is the lock: of two processes one gets an existing object.
        self.create_in(&at, MANAGER, &secret).await?;
        Ok(record)
    }

    /// A sign of life of the process that applies a pending revision; to be given every few seconds.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn release_heartbeat(&self, record: &Record, now: Timestamp) -> Result<(), Error> {
        let target = secret_ref(&record.application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let patch = json!({"metadata": {"annotations": {HEARTBEAT_ANNOTATION: now.as_second().to_string()}}});
        self.merge_in(&Target { resource: &resource, object: &target }, MANAGER, &patch).await?;
        Ok(())
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
        record.last_deployed = now;
        bounded(description, crate::limits::EVENT_MESSAGE).clone_into(&mut record.description);
        record.owner = None;
        // First the new one: a crash in between leaves two deployed revisions, of which the higher counts.
        self.store(record, true).await?;
        if status == ReleaseStatus::Deployed {
            for mut old in self.release_history(&record.application).await? {
                if old.revision < record.revision && old.status == ReleaseStatus::Deployed {
                    old.status = ReleaseStatus::Superseded;
                    self.store(&old, false).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes all revisions: the release is gone.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn delete_releases(&self, application: &ApplicationId) -> Result<(), Error> {
        let labels = record_labels(application);
        for secret in self.list(&secret_kind(), Some(application.namespace()), &labels).await? {
            let Some(name) = metadata(&secret, "name") else { continue };
            if secret.get("type").and_then(Value::as_str) == Some(SECRET_TYPE) {
                let mut target = secret_ref(application, 0);
                name.clone_into(&mut target.name);
                self.delete_secret(&target).await?;
            }
        }
        Ok(())
    }

    async fn delete_record(&self, application: &ApplicationId, revision: u32) -> Result<(), Error> {
        self.delete_secret(&secret_ref(application, revision)).await
    }

    async fn delete_secret(&self, target: &ObjectRef) -> Result<(), Error> {
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: target };
        self.delete_in(&at, barbless_domain::operation::Propagation::Background, None).await?;
        Ok(())
    }

    /// Writes a revision over the stored one; creates it again if it is gone and `anew` says so.
    async fn store(&self, record: &Record, anew: bool) -> Result<(), RecordError> {
        let secret = encode(record)?;
        let target = secret_ref(&record.application, record.revision);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        match self.replace_in(&at, None, MANAGER, &secret).await {
            Err(error) if error.is_not_found() && anew => {
                self.create_in(&at, MANAGER, &secret).await?;
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            stored => Ok(stored.map(drop)?),
        }
    }
}

/// Selects our records: a release of the same name that Helm itself made is not ours to read or delete.
fn record_labels(application: &ApplicationId) -> String {
    format!("owner=helm,name={name},{INSTANCE_LABEL}={name}", name = application.name())
}

fn is_maintained<'a>(objects: impl IntoIterator<Item = &'a ReleaseObject>) -> bool {
    objects.into_iter().any(|it| label(&it.object, MAINTENANCE_LABEL).is_some())
}

fn secret_kind() -> Gvk {
    Gvk { group: String::new(), version: "v1".to_owned(), kind: "Secret".to_owned() }
}

fn secret_ref(application: &ApplicationId, revision: u32) -> ObjectRef {
    ObjectRef {
        gvk: secret_kind(),
        namespace: application.namespace().to_owned(),
        name: format!("sh.helm.release.v1.{}.v{revision}", application.name()),
    }
}

/// The first characters of a text.
fn bounded(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

/// The JSON of Helm, as far as its readers need it.
#[derive(Debug, Serialize, Deserialize)]
struct HelmRelease {
    name: String,
    namespace: String,
    version: u32,
    info: HelmInfo,
    chart: HelmChart,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    manifest: String,
    #[serde(default)]
    hooks: Vec<HelmHookRecord>,
    #[serde(default)]
    apply_method: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct HelmInfo {
    #[serde(default)]
    first_deployed: String,
    #[serde(default)]
    last_deployed: String,
    #[serde(default)]
    deleted: String,
    #[serde(default)]
    description: String,
    status: ReleaseStatus,
}

#[derive(Debug, Serialize, Deserialize)]
struct HelmChart {
    metadata: HelmChartMetadata,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelmChartMetadata {
    name: String,
    version: String,
    api_version: String,
    #[serde(default)]
    app_version: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct HelmHookRecord {
    name: String,
    kind: String,
    path: String,
    manifest: String,
    events: Vec<HookEvent>,
    weight: i32,
    #[serde(default)]
    delete_policies: Vec<DeletePolicy>,
}

/// JSON is YAML, and unlike YAML it comes back as what it was.
fn manifest(source: &str, object: &Value) -> String {
    format!("# Source: {}\n{object:#}\n", source.replace(['\n', '\r'], " "))
}

/// The documents of a manifest: what lies between lines of three dashes. Inside JSON there is no such line.
fn documents(manifest: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in manifest.lines() {
        match documents.last_mut() {
            Some(document) if line != "---" => {
                document.push_str(line);
                document.push('\n');
            }
            _ => documents.push(String::new()),
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

fn parse_manifest(text: &str) -> Result<(String, Value), String> {
    let (source, body) = match text.strip_prefix("# Source: ") {
        Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
        None => ("", text),
    };
    let object = serde_json::from_str(body).map_err(|error| format!("a manifest of {source:?} is no JSON: {error}"))?;
    Ok((source.to_owned(), object))
}

fn encode(record: &Record) -> Result<Value, RecordError> {
    let application = &record.application;
    let mut text = String::new();
    for ReleaseObject { object, source, .. } in &record.objects {
        text.push_str("---\n");
        text.push_str(&manifest(source, object));
    }
    let helm = HelmRelease {
        name: application.name().to_owned(),
        namespace: application.namespace().to_owned(),
        version: record.revision,
        info: HelmInfo {
            first_deployed: record.first_deployed.to_string(),
            last_deployed: record.last_deployed.to_string(),
            deleted: String::new(),
            description: record.description.clone(),
            status: record.status,
        },
        chart: HelmChart {
            metadata: HelmChartMetadata {
                name: record.package.0.clone(),
                version: record.package.1.clone(),
                api_version: "v2".to_owned(),
                app_version: record.package.1.clone(),
            },
        },
        config: record.settings.clone(),
        manifest: text,
        hooks: record
            .hooks
            .iter()
            .map(|hook| HelmHookRecord {
                name: hook.target.name.clone(),
                kind: hook.target.gvk.kind.clone(),
                path: hook.source.clone(),
                manifest: manifest(&hook.source, &hook.object),
                events: hook.events.iter().copied().collect(),
                weight: hook.weight,
                delete_policies: hook.delete_policies.iter().copied().collect(),
            })
            .collect(),
        apply_method: "ssa".to_owned(),
    };
    let packed = pack(&helm).map_err(|error| {
        RecordError::Request(Error::Malformed { object: format!("release {application}"), why: error.to_string() })
    })?;
    if packed.len() > RECORD_BYTES {
        return Err(RecordError::TooLarge { bytes: packed.len(), largest: largest(record) });
    }
    let mut annotations = serde_json::Map::new();
    if let Some((owner, seen)) = &record.owner {
        annotations.insert(OWNER_ANNOTATION.to_owned(), owner.as_str().into());
        annotations.insert(HEARTBEAT_ANNOTATION.to_owned(), seen.as_second().to_string().into());
    }
    let target = secret_ref(application, record.revision);
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {
            "name": target.name, "namespace": target.namespace, "annotations": annotations,
            "labels": {
                "name": application.name(), "owner": "helm", "status": record.status.as_str(),
                "version": record.revision.to_string(),
                "modifiedAt": record.last_deployed.as_second().to_string(),
                INSTANCE_LABEL: application.name(), PACKAGE_LABEL: record.package.0,
            },
        },
        "data": {"release": STANDARD.encode(packed)},
    }))
}

fn pack(helm: &HelmRelease) -> std::io::Result<String> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&serde_json::to_vec(helm)?)?;
    Ok(STANDARD.encode(packer.finish()?))
}

fn largest(record: &Record) -> String {
    let mut sizes: Vec<(usize, &ObjectRef)> =
        record.objects.iter().map(|it| (it.object.to_string().len(), &it.target)).collect();
    sizes.sort_by(|a, b| b.cmp(a));
    let shown: Vec<String> = sizes.iter().take(3).map(|(bytes, target)| format!("{target} ({bytes} bytes)")).collect();
    shown.join(", ")
}

/// The record in a Secret, if it is one that can be read.
fn readable(application: &ApplicationId, secret: &Value) -> Option<Record> {
    if secret.get("type").and_then(Value::as_str) != Some(SECRET_TYPE) {
        return None;
    }
    decode(application, secret)
        .inspect_err(|why| {
            tracing::warn!(%application, secret = metadata(secret, "name"), why, "a release record cannot be read");
        })
        .ok()
}

fn decode(application: &ApplicationId, secret: &Value) -> Result<Record, String> {
    let data = secret.pointer("/data/release").and_then(Value::as_str).ok_or("it has no data.release")?;
    let packed = STANDARD.decode(data).map_err(|error| format!("data.release is no base64: {error}"))?;
    let packed = STANDARD.decode(packed).map_err(|error| format!("the payload is no base64: {error}"))?;
    let mut unpacked = Vec::new();
    if packed.starts_with(&[0x1f, 0x8b]) {
        let mut unpacker = flate2::read::GzDecoder::new(packed.as_slice()).take(RECORD_UNPACKED_BYTES + 1);
        unpacker.read_to_end(&mut unpacked).map_err(|error| format!("the payload is no gzip: {error}"))?;
        if unpacked.len() as u64 > RECORD_UNPACKED_BYTES {
            return Err(format!("the payload unpacks to more than {RECORD_UNPACKED_BYTES} bytes"));
        }
    } else {
        unpacked = packed;
    }
    let helm: HelmRelease =
        serde_json::from_slice(&unpacked).map_err(|error| format!("the payload is no release: {error}"))?;
    if helm.name != application.name() || helm.namespace != application.namespace() {
        return Err(format!("it is of release {}.{}", helm.namespace, helm.name));
    }
    let mut objects = Vec::new();
    for text in documents(&helm.manifest) {
        let (source, object) = parse_manifest(&text)?;
        let target = ObjectRef::of(&object).map_err(|error| error.to_string())?;
        objects.push(ReleaseObject { target, object, source });
    }
    let mut hooks = Vec::new();
    for hook in helm.hooks {
        let (source, object) = parse_manifest(&hook.manifest)?;
        let target = ObjectRef::of(&object).map_err(|error| error.to_string())?;
        hooks.push(HelmHook {
            target,
            object,
            source,
            events: hook.events.into_iter().collect(),
            weight: hook.weight,
            delete_policies: hook.delete_policies.into_iter().collect(),
        });
    }
    let time = |text: &str| text.parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH);
    let owner = annotation(secret, OWNER_ANNOTATION).map(|owner| {
        let seen = annotation(secret, HEARTBEAT_ANNOTATION).and_then(|text| text.parse().ok());
        let seen = seen.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::UNIX_EPOCH);
        (owner.to_owned(), seen)
    });
    // Helm itself goes by the label.
    let status = label(secret, "status").and_then(|word| serde_json::from_value(word.into()).ok());
    Ok(Record {
        application: application.clone(),
        revision: helm.version,
        status: status.unwrap_or(helm.info.status),
        description: helm.info.description,
        package: (helm.chart.metadata.name, helm.chart.metadata.version),
        settings: helm.config,
        digest: digest(objects.iter().map(|it| &it.object).chain(hooks.iter().map(|it| &it.object))),
        maintenance: is_maintained(&objects),
        objects,
        hooks,
        first_deployed: time(&helm.info.first_deployed),
        last_deployed: time(&helm.info.last_deployed),
        owner,
    })
}

/// How often [`Cluster::release_heartbeat`] is to be called.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
