//! Which kinds the API server serves, under which plural and in which scope.
//!
//! Asked group version by group version, when it is needed: a hook that names one kind does not make us read the whole
//! API. A miss is asked again, but not more often than once in [`DISCOVERY_MISS`], so that a hook that names kinds that
//! do not exist cannot load the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use barbless_domain::grant::Scope;
use barbless_domain::identity::Gvk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::core::ApiResource;

use crate::error::Error;
use crate::limits::{DISCOVERY_ENTRIES, DISCOVERY_HIT, DISCOVERY_MISS};
use crate::request::answered;

/// A kind that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Group, version, kind and plural.
    pub api: ApiResource,
    /// Where its objects live.
    pub scope: Scope,
    /// What can be done with them, for example `list`.
    pub verbs: Vec<String>,
    /// Its subresources, for example `status`.
    pub subresources: Vec<String>,
}

impl Resource {
    /// Whether the API server can do this with the kind.
    #[must_use]
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.iter().any(|served| served == verb)
    }

    /// Path of the collection.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let ApiResource { group, version, plural, .. } = &self.api;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) if self.scope == Scope::Namespaced => format!("{root}/namespaces/{namespace}/{plural}"),
            _ => format!("{root}/{plural}"),
        }
    }
}

#[derive(Clone)]
struct Entry {
    asked: Instant,
    kinds: Arc<BTreeMap<String, Resource>>,
}

/// How long one who wants to know a kind waits for somebody else who asks about the same group version.
const TURN: std::time::Duration = std::time::Duration::from_secs(2);

/// The cache.
#[derive(Default)]
pub(crate) struct Discovery {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// One question at a time for each group version: many watches of one unserved kind ask once, and nobody waits for
    /// an answer about another group.
    asking: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Discovery {
    /// Looks a kind up.
    pub(crate) async fn resolve(&self, client: &kube::Client, gvk: &Gvk) -> Result<Resource, Error> {
        let api_version = gvk.api_version();
        let missing = || Error::KindNotServed { gvk: gvk.clone() };
        if let Some(known) = self.known(&api_version, &gvk.kind) {
            return known.ok_or_else(missing);
        }
        let turn = self.turn(&api_version);
        // Whoever asks may get no answer for long. Nobody waits longer for others than for an answer of their own.
        let _asking = tokio::time::timeout(TURN, turn.lock()).await;
        if let Some(known) = self.known(&api_version, &gvk.kind) {
            return known.ok_or_else(missing);
        }
        let kinds = match kinds_of(client, &api_version).await {
            Ok(list) => by_kind(gvk, list.resources),
            // The group version is not served at all; remembered like a kind that is missing in it.
            Err(error) if error.is_not_found() => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let found = kinds.get(&gvk.kind).cloned();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= DISCOVERY_ENTRIES {
            entries.clear();
        }
        entries.insert(api_version, Entry { asked: Instant::now(), kinds: Arc::new(kinds) });
        found.ok_or_else(missing)
    }

    /// The lock of a group version.
    fn turn(&self, api_version: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.len() >= DISCOVERY_ENTRIES {
            // Those that are held live on with their holders.
            asking.clear();
        }
        Arc::clone(asking.entry(api_version.to_owned()).or_default())
    }

    /// What the cache says: nothing, that the kind is not served, or what it is.
    fn known(&self, api_version: &str, kind: &str) -> Option<Option<Resource>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(api_version)?;
        let found = entry.kinds.get(kind).cloned();
        let believed = if found.is_some() { DISCOVERY_HIT } else { DISCOVERY_MISS };
        (entry.asked.elapsed() < believed).then_some(found)
    }

    /// Forgets one group version, unless it was asked for a moment ago.
    pub(crate) fn forget_older(&self, api_version: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(api_version).is_some_and(|entry| entry.asked.elapsed() >= DISCOVERY_MISS) {
            entries.remove(api_version);
        }
    }

    /// Forgets one group version.
    pub(crate) fn forget_version(&self, api_version: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(api_version);
    }

    /// Forgets everything: definitions of kinds were just applied.
    pub(crate) fn forget(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What the API server says of a group version.
pub(crate) async fn kinds_of(client: &kube::Client, api_version: &str) -> Result<APIResourceList, Error> {
    if api_version.contains('/') {
        answered("discover", api_version, client.list_api_group_resources(api_version)).await
    } else {
        answered("discover", api_version, client.list_core_api_resources(api_version)).await
    }
}

fn by_kind(gvk: &Gvk, resources: Vec<APIResource>) -> BTreeMap<String, Resource> {
    let mut kinds: BTreeMap<String, Resource> = BTreeMap::new();
    let mut subresources: Vec<(String, String)> = Vec::new();
    for resource in resources {
        if let Some((plural, subresource)) = resource.name.split_once('/') {
            subresources.push((plural.to_owned(), subresource.to_owned()));
            continue;
        }
        let api = ApiResource {
            group: gvk.group.clone(),
            version: gvk.version.clone(),
            api_version: gvk.api_version(),
            kind: resource.kind.clone(),
            plural: resource.name,
        };
        let scope = if resource.namespaced { Scope::Namespaced } else { Scope::Cluster };
        let served = Resource { api, scope, verbs: resource.verbs, subresources: Vec::new() };
        kinds.entry(resource.kind).or_insert(served);
    }
    for (plural, subresource) in subresources {
        if let Some(resource) = kinds.values_mut().find(|resource| resource.api.plural == plural) {
            resource.subresources.push(subresource);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_about_one_group_holds_up_no_other() {
        let discovery = Discovery::default();
        let slow = discovery.turn("slow.example.com/v1");
        let _held = slow.lock().await;
        assert!(discovery.turn("apps/v1").try_lock().is_ok(), "another group is free");
        assert!(discovery.turn("slow.example.com/v1").try_lock().is_err(), "the same group is asked once");
    }
}
