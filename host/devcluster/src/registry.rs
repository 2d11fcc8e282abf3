//! The life of objects: create, update, delete, with everything that happens between a decoded request and the store.
//!
//! The HTTP layer and the controllers both go through [`Registry`], so a controller's write is checked, owned and
//! versioned like a client's.

mod admit;
mod convert;
mod delete;
mod evict;
mod gate;
mod rules;
mod scale;
mod write;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};

pub(crate) use delete::DeleteOptions;
pub use delete::Propagation;
pub(crate) use write::{Edit, Options, Outcome, Validation, random_suffix};

use crate::{
    builtin,
    catalog::{Catalog, Resource},
    crd, json,
    status::{ApiError, Cause},
    store::{DiskError, Store, Stored},
};

/// Everything that the server is made of, without transport.
pub(crate) struct Registry {
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    next_address: AtomicU32,
    next_port: AtomicU32,
}

impl Registry {
    pub(crate) fn open(data_dir: Option<&Path>) -> Result<Self, DiskError> {
        let registry = Self {
            store: Store::open(data_dir)?,
            catalog: Catalog::default(),
            next_address: AtomicU32::new(10),
            next_port: AtomicU32::new(0),
        };
        for definition in registry.store.list(CRD_TABLE, None).0 {
            registry.serve_definition(&definition.value, false);
        }
        Ok(registry)
    }

    /// An object in the version of this resource.
    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Stored>, ApiError> {
        let stored = self.store.get(&resource.table, namespace, name);
        let stored = stored.ok_or_else(|| ApiError::not_found(resource.about(), name))?;
        Ok(self.view(resource, &stored))
    }

    /// A stored object as the version of this resource shows it.
    pub(crate) fn view(&self, resource: &Resource, stored: &Arc<Stored>) -> Arc<Stored> {
        if resource.api_version() == json::text(&stored.value, &["apiVersion"]) {
            return Arc::clone(stored);
        }
        let mut value = stored.value.clone();
        convert::to(resource, &mut value);
        Arc::new(Stored::new(value, stored.revision))
    }

    /// Serves, or stops serving, what a definition says.
    fn serve_definition(&self, definition: &Value, deleted: bool) {
        let group = json::text(definition, &["spec", "group"]);
        let plural = json::text(definition, &["spec", "names", "plural"]);
        let versions = if deleted || !crd::is_established(definition) { Vec::new() } else { crd::versions(definition) };
        self.catalog.replace_custom(group, plural, versions);
    }

    /// An unused cluster address.
    fn allocate_address(&self) -> String {
        let services = self.store.list("/services", None).0;
        let used = |address: &str| services.iter().any(|s| json::text(&s.value, &["spec", "clusterIP"]) == address);
        loop {
            // 10.96.0.0/12 has a million addresses: a free one is found long before the counter comes round.
            let n = self.next_address.fetch_add(1, Ordering::Relaxed) % (1 << 20);
            let address = std::net::Ipv4Addr::from(0x0a60_0000 + n).to_string();
            if !used(&address) {
                return address;
            }
        }
    }

    /// A node port that no Service has; when all are taken, one that is taken (nothing listens on them anyway).
    fn allocate_node_port(&self) -> u32 {
        let services = self.store.list("/services", None).0;
        let ports = services.iter().flat_map(|s| json::list(&s.value, &["spec", "ports"]));
        let used = ports.filter_map(|port| json::int(port, &["nodePort"])).collect::<std::collections::HashSet<_>>();
        let mut candidates = (0..2768).map(|_| 30000 + self.next_port.fetch_add(1, Ordering::Relaxed) % 2768);
        candidates.find(|port| !used.contains(&i64::from(*port))).unwrap_or(30000)
    }

    /// What a Service gets when it is written; causes when it asks for what is not there. A dry run gets what nobody has,
    /// always the same.
    fn allocate_service(&self, old: Option<&Value>, service: &mut Value, dry_run: bool) -> Vec<Cause> {
        if let Some(old) = old {
            builtin::keep_allocated(old, service);
        }
        builtin::agree_on_addresses(old, service);
        let causes = builtin::families(old, service);
        if !causes.is_empty() {
            return causes;
        }
        let external = json::text(service, &["spec", "type"]) == "ExternalName";
        if !external && json::list(service, &["spec", "clusterIPs"]).is_empty() {
            let address = if dry_run { DRY_ADDRESS.to_owned() } else { self.allocate_address() };
            json::set(service, &["spec", "clusterIPs"], json!([address]));
            json::set(service, &["spec", "clusterIP"], json!(address));
        }
        if builtin::wants_node_ports(service) {
            let ports = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
            let without = ports.into_iter().flatten().filter(|port| json::int(port, &["nodePort"]).is_none());
            for (port, dry) in without.zip(DRY_PORT..) {
                let number = if dry_run { dry } else { self.allocate_node_port() };
                json::set(port, &["nodePort"], json!(number));
            }
        }
        causes
    }
}

/// What a dry run shows as the address of a Service: the first of the range, which no Service gets.
const DRY_ADDRESS: &str = "10.96.0.0";
/// The same for node ports.
const DRY_PORT: u32 = 30000;
pub(crate) const CRD_TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(crate) const NAMESPACES: &str = "/namespaces";

#[cfg(test)]
mod tests;
