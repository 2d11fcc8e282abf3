//! Which resources are served: the built-in table plus what the CustomResourceDefinitions add.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use parking_lot::RwLock;
use serde_json::Value;

use crate::{
    crd::CustomVersion,
    json,
    schema::{self, Schema, Type},
    status::About,
};

/// One served version of one resource.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    /// The identity of the storage: versions of one resource share it.
    pub(crate) table: Arc<str>,
    /// The `apiVersion` under which objects are stored.
    pub(crate) storage_api_version: String,
    /// What a custom resource has beyond a built-in one.
    pub(crate) custom: Option<Arc<CustomVersion>>,
    pub(crate) type_name: String,
    schema: Arc<Schema>,
}

#[derive(Debug, Clone)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Vec<String>,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    pub(crate) fn root(&self) -> Type<'_> {
        self.schema.named(&self.type_name).unwrap_or_else(|| self.schema.any())
    }

    pub(crate) fn about(&self) -> About<'_> {
        About { group: &self.group, plural: &self.plural, kind: &self.kind }
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Whether this is the built-in kind of that group.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.custom.is_none() && self.group == group && self.kind == kind
    }
}

pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Group and version of an `apiVersion`.
pub(crate) fn split_group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Resources by (group, version, plural).
pub(crate) type Table = BTreeMap<(String, String, String), Arc<Resource>>;

static BUILTIN: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    for raw in schema::resources() {
        let resource = builtin(raw);
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        table.insert(key, Arc::new(resource));
    }
    table
});

fn strings(raw: &Value, key: &str) -> Vec<String> {
    json::list(raw, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn builtin(raw: &Value) -> Resource {
    let text = |key: &str| json::text(raw, &[key]).to_owned();
    let (group, version, plural, kind) = (text("group"), text("version"), text("plural"), text("kind"));
    let subresources = json::list(raw, &["subresources"])
        .iter()
        .map(|sub| Subresource {
            name: json::text(sub, &["name"]).to_owned(),
            group: json::text(sub, &["group"]).to_owned(),
            version: json::text(sub, &["version"]).to_owned(),
            kind: json::text(sub, &["kind"]).to_owned(),
            verbs: strings(sub, "verbs"),
        })
        .filter(|sub| SUBRESOURCES.contains(&sub.name.as_str()))
        .collect();
    // Two kinds are served in two shapes from one storage.
    let (table, storage_api_version) = match (group.as_str(), plural.as_str()) {
        ("events.k8s.io", "events") => ("/events".to_owned(), "v1".to_owned()),
        ("autoscaling", _) => (format!("{group}/{plural}"), "autoscaling/v2".to_owned()),
        _ => (format!("{group}/{plural}"), group_version(&group, &version)),
    };
    Resource {
        list_kind: format!("{kind}List"),
        singular: text("singular"),
        namespaced: raw.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
        verbs: strings(raw, "verbs"),
        short: strings(raw, "short"),
        categories: strings(raw, "categories"),
        subresources,
        table: table.into(),
        storage_api_version,
        custom: None,
        type_name: text("type"),
        schema: Arc::clone(schema::builtin()),
        group,
        version,
        plural,
        kind,
    }
}

/// The subresources that this server answers; the others (exec, proxy…) are not offered in discovery.
const SUBRESOURCES: [&str; 7] = ["status", "scale", "finalize", "binding", "eviction", "log", "token"];

/// The resources served now. A change replaces the whole table, so that readers hold no lock.
#[derive(Debug)]
pub(crate) struct Catalog {
    table: RwLock<Arc<Table>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { table: RwLock::new(Arc::new(BUILTIN.clone())) }
    }
}

impl Catalog {
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.table().get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, version) = split_group_version(api_version);
        self.table().values().find(|r| r.group == group && r.version == version && r.kind == kind).cloned()
    }

    /// A served version of a kind: this one, or else another of the group. Objects may be stored in a version that is not
    /// served any more.
    pub(crate) fn any_version(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, _) = split_group_version(api_version);
        let other = || self.table().values().find(|r| r.group == group && r.kind == kind).cloned();
        self.by_kind(api_version, kind).or_else(other)
    }

    /// One resource per storage table: the one in which objects are stored, or another if that is not served.
    pub(crate) fn stored(&self) -> Vec<Arc<Resource>> {
        let table = self.table();
        let mut found = BTreeMap::<&str, &Arc<Resource>>::new();
        for resource in table.values().filter(|r| r.has_verb("list")) {
            let stores = resource.api_version() == resource.storage_api_version;
            let place = found.entry(&resource.table).or_insert(resource);
            if stores {
                *place = resource;
            }
        }
        found.into_values().cloned().collect()
    }

    /// Puts the versions of one CustomResourceDefinition in place of those that it had before.
    pub(crate) fn replace_custom(&self, group: &str, plural: &str, versions: Vec<(CustomVersion, Resource)>) {
        let mut place = self.table.write();
        let mut table = Table::clone(&place);
        table.retain(|(g, _, p), r| r.custom.is_none() || g != group || p != plural);
        for (custom, mut resource) in versions {
            resource.custom = Some(Arc::new(custom));
            let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
            table.entry(key).or_insert_with(|| Arc::new(resource));
        }
        *place = Arc::new(table);
    }

    /// Another definition or built-in that already uses one of these names in this group.
    pub(crate) fn name_taken(&self, group: &str, plural: &str, kind: &str) -> bool {
        self.table().values().any(|r| r.group == group && r.plural != plural && r.kind == kind)
    }
}

/// The parts of a custom resource, as its definition states them.
pub(crate) struct CustomParts {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) storage_version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    pub(crate) schema: Schema,
}

impl From<CustomParts> for Resource {
    fn from(parts: CustomParts) -> Self {
        let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        let sub = |name: &str, group: &str, version: &str, kind: &str| Subresource {
            name: name.to_owned(),
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
        };
        let mut subresources = Vec::new();
        if parts.status {
            subresources.push(sub("status", &parts.group, &parts.version, &parts.kind));
        }
        if parts.scale {
            subresources.push(sub("scale", "autoscaling", "v1", "Scale"));
        }
        Self {
            table: format!("{}/{}", parts.group, parts.plural).into(),
            storage_api_version: group_version(&parts.group, &parts.storage_version),
            verbs: verbs.map(str::to_owned).to_vec(),
            subresources,
            custom: None,
            type_name: schema::ROOT.to_owned(),
            schema: Arc::new(parts.schema),
            group: parts.group,
            version: parts.version,
            plural: parts.plural,
            singular: parts.singular,
            kind: parts.kind,
            list_kind: parts.list_kind,
            namespaced: parts.namespaced,
            short: parts.short,
            categories: parts.categories,
        }
    }
}
