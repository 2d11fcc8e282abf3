//! The API as a whole: what it serves, its version, and everything that is in it.

use std::collections::BTreeSet;

use barbless_domain::grant::Scope;
use barbless_domain::identity::{Gvk, ObjectRef};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::Cluster;
use crate::discovery::kinds_of;
use crate::error::Error;
use crate::limits::PARALLEL;
use crate::request::{Target, answered};

impl Cluster {
    /// Version of the API server, for example `v1.37.0`.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn version(&self) -> Result<String, Error> {
        Ok(answered("get", "version", self.client().apiserver_version()).await?.git_version)
    }

    /// What the cluster serves: `v1`, `apps/v1`, and with kinds `v1/Pod`, `apps/v1/Deployment`. Sorted.
    ///
    /// # Errors
    /// If the API server refuses or does not answer. A group whose own server is down is left out.
    pub async fn served_versions(&self) -> Result<Vec<String>, Error> {
        let mut versions = BTreeSet::new();
        for (api_version, kinds) in self.served_kinds().await? {
            versions.extend(kinds.iter().map(|kind| format!("{api_version}/{}", kind.0)));
            versions.insert(api_version);
        }
        Ok(versions.into_iter().collect())
    }

    /// Group versions with their kinds; of a kind, whether it can be listed.
    async fn served_kinds(&self) -> Result<Vec<(String, Vec<(String, bool)>)>, Error> {
        let core = answered("discover", "API versions", self.client().list_core_api_versions()).await?;
        let groups = answered("discover", "API groups", self.client().list_api_groups()).await?;
        let of_groups = groups.groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version);
        let api_versions: Vec<String> = core.versions.into_iter().chain(of_groups).collect();
        let served = futures::stream::iter(api_versions)
            .map(|api_version| async move {
                match kinds_of(self.client(), &api_version).await {
                    Ok(list) => {
                        let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
                        let kinds = whole.map(|it| (it.kind, it.verbs.iter().any(|verb| verb == "list"))).collect();
                        Some((api_version, kinds))
                    }
                    Err(error) => {
                        tracing::warn!(api_version, error = error.chain(), "a group version cannot be discovered");
                        None
                    }
                }
            })
            .buffered(PARALLEL)
            .filter_map(|served| async move { served })
            .collect()
            .await;
        Ok(served)
    }

    /// Every object of the cluster, each once. For small clusters: everything is listed.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn list_everything(&self) -> Result<Vec<ObjectRef>, Error> {
        let mut kinds = Vec::new();
        let mut known = BTreeSet::new();
        for (api_version, served) in self.served_kinds().await? {
            for (kind, listed) in served {
                let Ok(gvk) = Gvk::parse(&api_version, &kind) else { continue };
                // Other versions of a group show the same objects, and Events are in two groups.
                let same = if kind == "Event" { "Event".to_owned() } else { format!("{}/{kind}", gvk.group) };
                if listed && known.insert(same) {
                    kinds.push(gvk);
                }
            }
        }
        let found: Vec<Vec<ObjectRef>> = futures::stream::iter(kinds)
            .map(|gvk| async move {
                let resource = match self.resolve(&gvk).await {
                    Ok(resource) => resource,
                    // It went meanwhile.
                    Err(Error::KindNotServed { .. }) => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                };
                let objects = self.list_in(&resource, None, "", true).await?;
                Ok(objects.iter().filter_map(|object| ObjectRef::of(object).ok()).collect())
            })
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Creates a namespace unless it exists.
    ///
    /// # Errors
    /// If the API server refuses or does not answer.
    pub async fn ensure_namespace(&self, name: &str) -> Result<(), Error> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let target = ObjectRef {
            gvk: Gvk { group: String::new(), version: "v1".to_owned(), kind: "Namespace".to_owned() },
            namespace: String::new(),
            name: name.to_owned(),
        };
        let resource = self.resolve(&target.gvk).await?;
        match self.create_in(&Target { resource: &resource, object: &target }, "barbless", &object).await {
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    }

    /// Applies an object of a user, by force; in `namespace` if it names none and has one.
    ///
    /// # Errors
    /// If it has no apiVersion, kind or name, its kind is not served, or the API server refuses or does not answer.
    pub async fn apply_object(&self, manager: &str, namespace: &str, object: &Value) -> Result<Value, Error> {
        let mut target = ObjectRef::of(object)
            .map_err(|error| Error::Malformed { object: "object".to_owned(), why: error.to_string() })?;
        let resource = self.resolve(&target.gvk).await?;
        let mut object = object.clone();
        if resource.scope == Scope::Namespaced && target.namespace.is_empty() {
            namespace.clone_into(&mut target.namespace);
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
        }
        self.apply_in(&Target { resource: &resource, object: &target }, None, manager, true, &object).await
    }
}
