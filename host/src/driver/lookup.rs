//! What templates read of the cluster: the `lookup` function, bound by the grant of the package.
//!
//! Rendering is no `async` work: it runs on a thread of its own, on which a question to the API server may block.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use barbless_cluster::Cluster;
use barbless_domain::grant::{self, Grant, Request, Scope};
use barbless_domain::identity::{ApplicationId, Gvk, ObjectRef};
use barbless_template::Lookup;
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// The cluster as templates of one application see it.
pub(crate) struct ClusterLookup {
    cluster: Cluster,
    application: ApplicationId,
    grant: Grant,
    runtime: Handle,
    until: Instant,
}

impl ClusterLookup {
    /// For one rendering, which must end in time; to be made where a runtime is.
    pub(crate) fn new(cluster: Cluster, application: ApplicationId, grant: Grant, time: Duration) -> Self {
        Self { cluster, application, grant, runtime: Handle::current(), until: Instant::now() + time }
    }

    async fn read(&self, gvk: &Gvk, namespace: &str, name: &str) -> Result<Value, String> {
        let resource = match self.cluster.resolve(gvk).await {
            Ok(resource) => resource,
            // As Helm says it.
            Err(error) => {
                let Gvk { kind, .. } = gvk;
                return Err(format!(
                    "unable to get apiresource from unstructured: {}, Kind={kind}: {}",
                    gvk.api_version(),
                    error.chain()
                ));
            }
        };
        let namespace = if resource.scope == Scope::Cluster { "" } else { namespace };
        let wanted = (!name.is_empty()).then_some(name);
        let request = Request::Read { gvk, namespace, name: wanted, scope: resource.scope };
        grant::allows(&self.application, &self.grant, request)
            .into_result()
            .map_err(|denial| format!("{denial}; {}", denial.hint))?;
        let Some(name) = wanted else {
            let space = (!namespace.is_empty()).then_some(namespace);
            let items = self.cluster.list(gvk, space, "").await.map_err(|error| error.chain())?;
            return Ok(json!({"apiVersion": gvk.api_version(), "kind": format!("{}List", gvk.kind), "items": items}));
        };
        let target = ObjectRef { gvk: gvk.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        let found = self.cluster.get(&target).await.map_err(|error| error.chain())?;
        Ok(found.unwrap_or_else(|| json!(BTreeMap::<String, Value>::new())))
    }
}

impl Lookup for ClusterLookup {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Value, String> {
        let gvk = Gvk::parse(api_version, kind).map_err(|error| error.to_string())?;
        let left = self.until.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            match tokio::time::timeout(left, self.read(&gvk, namespace, name)).await {
                Ok(answer) => answer,
                Err(_) => Err("the API server did not answer while rendering".to_owned()),
            }
        })
    }
}
