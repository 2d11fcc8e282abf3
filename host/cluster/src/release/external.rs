//! Waits for objects outside of the release.

use std::time::Duration;

use barbless_domain::grant::Scope;
use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::release::{External, Outcome, StepId};

use super::waiter::Goal;
use super::{Ended, ReleaseError, Run};
use crate::Cluster;
use crate::discovery::Resource;
use crate::error::Error;

/// Pause before a kind that is not served is looked for again.
const UNSERVED_PAUSE: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Waits until an object of somebody else is there and ready.
    pub(super) async fn await_external(&self, step: StepId, external: &External) -> Result<Ended, ReleaseError> {
        let resource = loop {
            match self.cluster.find_kind(external).await? {
                Some(resource) => break resource,
                None => tokio::time::sleep(UNSERVED_PAUSE).await,
            }
        };
        let target = ObjectRef {
            gvk: Gvk {
                group: resource.api.group.clone(),
                version: resource.api.version.clone(),
                kind: resource.api.kind.clone(),
            },
            namespace: match resource.scope {
                Scope::Cluster => String::new(),
                Scope::Namespaced => external.reference(self.application()).namespace,
            },
            name: external.name.clone(),
        };
        (self.options.may_see)(&target, resource.scope)
            .map_err(|why| ReleaseError::ObjectFailed { target: Box::new(target.clone()), why })?;
        self.wait(step, &target, Goal::Present).await?;
        Ok(Ended::of(Outcome::Done))
    }
}

impl Cluster {
    /// The kind that an author means, who may write a kind or a plural, with or without group and version. Of several
    /// groups the core comes first, then the others as the API server lists them.
    async fn find_kind(&self, external: &External) -> Result<Option<Resource>, Error> {
        let mut candidates: Vec<(String, String)> = Vec::new();
        match (&external.group, &external.version) {
            (Some(group), Some(version)) => candidates.push((group.clone(), version.clone())),
            (group, version) => {
                if group.is_none() && version.as_deref().is_none_or(|version| version == "v1") {
                    candidates.push((String::new(), "v1".to_owned()));
                }
                let groups = self.client().list_api_groups().await;
                let groups = groups.map_err(|error| Error::of("discover", "API groups", error))?;
                for found in groups.groups {
                    if group.as_ref().is_some_and(|group| *group != found.name) {
                        continue;
                    }
                    let preferred = found.preferred_version.map(|it| it.version);
                    let versions = found.versions.into_iter().map(|it| it.version);
                    let mut versions: Vec<String> = preferred.into_iter().chain(versions).collect();
                    versions.dedup();
                    versions.retain(|served| version.as_ref().is_none_or(|version| version == served));
                    candidates.extend(versions.into_iter().map(|version| (found.name.clone(), version)));
                }
            }
        }
        for (group, version) in candidates {
            let answer = match group.as_str() {
                "" => self.client().list_core_api_resources(&version).await,
                group => self.client().list_api_group_resources(&format!("{group}/{version}")).await,
            };
            let resources = match answer {
                Ok(list) => list.resources,
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                // The server of one group may be down, and the kind be in another.
                Err(kube::Error::Api(status)) if external.group.is_none() && status.code >= 500 => continue,
                Err(error) => return Err(Error::of("discover", format!("{group}/{version}"), error)),
            };
            let is = |name: &str| external.kind.eq_ignore_ascii_case(name);
            let fits = resources.into_iter().filter(|it| !it.name.contains('/'));
            let mut fits = fits.filter(|it| is(&it.kind) || is(&it.name) || is(&it.singular_name));
            if let Some(found) = fits.next() {
                let gvk = Gvk { group, version, kind: found.kind };
                match self.resolve(&gvk).await {
                    Err(Error::KindNotServed { .. }) => {}
                    resolved => return resolved.map(Some),
                }
            }
        }
        Ok(None)
    }
}
