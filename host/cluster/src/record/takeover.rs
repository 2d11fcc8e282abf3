//! Releases that Helm installed, 3 or 4: found, and made ours on request.
//!
//! Their records get our labels, so that history and rollback reach them, and keep everything that Helm wrote. Records in
//! ConfigMaps become Secrets, the form that Helm itself prefers. Helm's marks on objects tell whose they are; the fields
//! that it owns are taken over by [`super::adopt_fields`]. Objects of hooks have no marks: they are Helm's if its records
//! name them as hooks, and nobody else claims them. They get our label, so that the next run of the hook finds them ours,
//! whenever that is.

use std::collections::BTreeSet;

use barbless_domain::grant::{INSTANCE_LABEL, PACKAGE_LABEL};
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::{Directives, InventoryItem, Ownership, Plan};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::codec::{self, SECRET_TYPE};
use super::store::{self, MANAGER, Stored, core_kind};
use super::{Record, RecordError};
use crate::Cluster;
use crate::error::Error;
use crate::limits::CONFLICT_RETRIES;
use crate::release::foreign_owner;
use crate::request::{Target, annotation, label, metadata};

const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A release that Helm installed.
#[derive(Debug, Clone, PartialEq)]
pub struct HelmRelease {
    /// Its revisions that can be read, oldest first; at least one.
    pub records: Vec<Record>,
}

impl HelmRelease {
    /// What it may have left in the cluster: the objects of the deployed revision and of all after it.
    #[must_use]
    pub fn inventory(&self) -> Vec<InventoryItem> {
        Record::inventory_of(&self.records)
    }
}

/// Group, kind, namespace and name of the object of a hook: what it is whatever its version.
pub(crate) type HookIdentity = (String, String, String, String);

/// What identifies the object of a hook.
pub(crate) fn hook_identity(target: &ObjectRef) -> HookIdentity {
    let ObjectRef { gvk, namespace, name } = target;
    (gvk.group.clone(), gvk.kind.clone(), namespace.clone(), name.clone())
}

/// The marks that Helm puts on the objects of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmMarks {
    /// Name of the release.
    pub release: String,
    /// Its namespace.
    pub namespace: String,
}

impl HelmMarks {
    /// Whether they are those of the release of this application.
    #[must_use]
    pub fn are_of(&self, application: &ApplicationId) -> bool {
        self.release == application.name() && self.namespace == application.namespace()
    }
}

/// The marks of Helm on a live object, if it has all three.
#[must_use]
pub fn helm_marks(object: &Value) -> Option<HelmMarks> {
    (label(object, MANAGED_BY) == Some("Helm")).then_some(())?;
    Some(HelmMarks {
        release: annotation(object, RELEASE_NAME)?.to_owned(),
        namespace: annotation(object, RELEASE_NAMESPACE)?.to_owned(),
    })
}

impl Cluster {
    /// The release that Helm has under the name of an application, if it has one that is not ours already.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn helm_release(&self, application: &ApplicationId) -> Result<Option<HelmRelease>, Error> {
        let mut stored = self.stored_releases(application, &store::anybodys(application)).await?;
        if stored.is_empty() {
            stored = self.stored_in_config_maps(application).await?;
        }
        let mut records: Vec<Record> = stored.into_iter().filter(|it| !it.ours).filter_map(|it| it.record).collect();
        for record in &mut records {
            self.place(record).await?;
        }
        Ok((!records.is_empty()).then_some(HelmRelease { records }))
    }

    /// The objects of hooks that the records of Helm name, those included that have become ours.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub(crate) async fn hooks_of_helm(&self, application: &ApplicationId) -> Result<BTreeSet<HookIdentity>, Error> {
        let mut stored = self.stored_releases(application, &store::anybodys(application)).await?;
        if stored.is_empty() {
            stored = self.stored_in_config_maps(application).await?;
        }
        let mut hooks = BTreeSet::new();
        for mut record in stored.into_iter().filter_map(|it| it.record).filter(|record| record.written_by_helm) {
            self.place(&mut record).await?;
            hooks.extend(record.hooks.iter().map(|it| hook_identity(&it.hook.target)));
        }
        Ok(hooks)
    }

    /// Makes what is left of the hooks of Helm ours, as far as a plan has the same hooks: their fields, and by our label
    /// themselves. What somebody claims is left alone.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or other writers win each of several races.
    pub(crate) async fn adopt_hooks(&self, plan: &Plan, manager: &str) -> Result<(), Error> {
        let hooks = plan.all_hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let of_helm = self.hooks_of_helm(&plan.application).await?;
        for hook in hooks {
            let is_release = Directives::of(&hook.object).ownership == Ownership::Release;
            if is_release && of_helm.contains(&hook_identity(&hook.target)) {
                self.adopt_hook(&plan.application, &hook.target, manager).await?;
            }
        }
        Ok(())
    }

    async fn adopt_hook(&self, application: &ApplicationId, target: &ObjectRef, manager: &str) -> Result<(), Error> {
        let resource = match self.resolve(&target.gvk).await {
            Err(Error::KindNotServed { .. }) => return Ok(()),
            resolved => resolved?,
        };
        let at = Target { resource: &resource, object: target };
        for _ in 0..CONFLICT_RETRIES {
            let Some(live) = self.get_in(&at).await? else { return Ok(()) };
            if foreign_owner(application, target, &live, true).is_some() {
                return Ok(());
            }
            let Some(live) = self.adopt_fields(target, &["helm"], manager).await? else { return Ok(()) };
            if label(&live, INSTANCE_LABEL).is_some() {
                return Ok(());
            }
            let ours = json!({"metadata": {
                "resourceVersion": metadata(&live, "resourceVersion"), "labels": {INSTANCE_LABEL: application.name()},
            }});
            match self.merge_in(&at, manager, &ours).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended { action: "patch", object: target.to_string(), attempts: CONFLICT_RETRIES })
    }

    /// The records that Helm keeps in ConfigMaps when told so, oldest first.
    pub(super) async fn stored_in_config_maps(&self, application: &ApplicationId) -> Result<Vec<Stored>, Error> {
        let labels = store::anybodys(application);
        let maps = self.list(&core_kind("ConfigMap"), Some(application.namespace()), &labels).await?;
        let maps = maps.into_iter().filter(|map| map.pointer("/data/release").is_some()).collect();
        self.decoded(application, maps).await
    }

    /// Makes a record of Helm one of ours.
    pub(super) async fn adopt_record(
        &self,
        application: &ApplicationId,
        stored: &Stored,
        package: &str,
        now: Timestamp,
    ) -> Result<(), RecordError> {
        let Some(holder) = &stored.holder else { return Ok(()) };
        let target = store::secret_ref(application, stored.revision);
        let resource = self.resolve(&target.gvk).await?;
        let at = Target { resource: &resource, object: &target };
        let ours = json!({INSTANCE_LABEL: application.name(), PACKAGE_LABEL: package});
        if holder.get("kind").and_then(Value::as_str) != Some("ConfigMap") {
            self.merge_in(&at, MANAGER, &json!({"metadata": {"labels": ours}})).await?;
            return Ok(());
        }
        let mut labels = holder.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        if let (Some(labels), Value::Object(ours)) = (labels.as_object_mut(), ours) {
            labels.extend(ours);
            labels.insert("modifiedAt".to_owned(), now.as_second().to_string().into());
        }
        let payload = holder.pointer("/data/release").and_then(Value::as_str).unwrap_or_default();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
            "metadata": {"name": codec::secret_name(application, stored.revision), "namespace": target.namespace, "labels": labels},
            "data": {"release": STANDARD.encode(payload)},
        });
        match self.create_in(&at, MANAGER, &secret).await {
            // A take-over that was cut off got this far.
            Err(error) if error.is_already_exists() => {}
            created => drop(created?),
        }
        let map = ObjectRef { gvk: core_kind("ConfigMap"), ..target };
        let resource = self.resolve(&map.gvk).await?;
        let at = Target { resource: &resource, object: &map };
        let uid = metadata(holder, "uid");
        self.delete_in(&at, barbless_domain::operation::Propagation::Background, uid).await?;
        Ok(())
    }
}
