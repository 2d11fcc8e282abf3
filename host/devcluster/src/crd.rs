//! CustomResourceDefinitions: reading a definition into served versions, and checking definitions themselves.

pub(crate) mod rules;
pub(crate) mod structural;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    catalog::{CustomParts, Resource},
    json, schema,
    status::Cause,
};

/// What one served version of a custom kind has beyond a built-in kind.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// `openAPIV3Schema`, for pruning, defaulting, validation and the published description.
    pub(crate) schema: Option<Arc<Value>>,
    pub(crate) columns: Vec<Value>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) selectable_fields: Vec<String>,
    pub(crate) deprecation: Option<String>,
    /// What the schema says in CEL.
    pub(crate) rules: Option<rules::Rules>,
}

/// Where a custom kind keeps what the scale subresource shows; paths without the leading dot, split at dots.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

fn split_path(path: &str) -> Vec<String> {
    path.trim_start_matches('.').split('.').map(str::to_owned).collect()
}

/// Fills what a definition may leave out.
pub(crate) fn default(definition: &mut Value) {
    let kind = json::text(definition, &["spec", "names", "kind"]).to_owned();
    json::default(definition, &["spec", "names", "singular"], json!(kind.to_lowercase()));
    json::default(definition, &["spec", "names", "listKind"], json!(format!("{kind}List")));
    json::default(definition, &["spec", "conversion", "strategy"], json!("None"));
}

/// What is wrong with a definition.
pub(crate) fn validate(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |path: &[&str]| json::text(definition, path);
    let (group, plural) = (text(&["spec", "group"]), text(&["spec", "names", "plural"]));
    for (field, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(&["spec", "names", "kind"])),
        ("spec.scope", text(&["spec", "scope"])),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
    let name = text(&["metadata", "name"]);
    if !plural.is_empty() && name != format!("{plural}.{group}") {
        causes.push(Cause::invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    if plural.chars().any(char::is_uppercase) {
        causes.push(Cause::invalid("spec.names.plural", &json!(plural), "must be lower case"));
    }
    let versions = json::list(definition, &["spec", "versions"]);
    let stored = versions.iter().filter(|v| v.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(versions.len()), why));
    }
    let mut seen = std::collections::HashSet::new();
    let schema_of = |version: &'_ Value| json::at(version, &["schema", "openAPIV3Schema"]).cloned();
    // A schema that all versions have is named as the older API did.
    let common = versions.first().is_some_and(|first| versions.iter().all(|v| schema_of(v) == schema_of(first)));
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}]");
        let name = json::text(version, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
        }
        let field = if common { "spec.validation".to_owned() } else { format!("{field}.schema") };
        match schema_of(version) {
            // What all versions share is looked at once.
            Some(_) if common && index > 0 => {}
            Some(schema) => {
                let field = format!("{field}.openAPIV3Schema");
                let before = causes.len();
                structural::check_schema(&schema, &field, true, &mut causes);
                if causes.len() == before {
                    rules::check_types(&schema, &field, &mut causes);
                }
            }
            None => causes.push(Cause::required(format!("{field}.openAPIV3Schema"), "schemas are required")),
        }
    }
    if text(&["spec", "conversion", "strategy"]) == "Webhook" {
        let why = "this server converts with strategy None only";
        causes.push(Cause::forbidden("spec.conversion.strategy", why));
    }
    causes
}

/// What is wrong with the versions that a definition no longer has although objects may be stored in them.
pub(crate) fn stored_versions(definition: &Value) -> Vec<Cause> {
    let versions = json::list(definition, &["spec", "versions"]);
    let has = |name: &Value| versions.iter().any(|version| version.get("name") == Some(name));
    let stored = json::list(definition, &["status", "storedVersions"]).iter().enumerate();
    let missing = stored.filter(|(_, name)| !has(name));
    missing
        .map(|(index, name)| {
            let plain = name.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {plain} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {plain} and removes {plain} from \
                 status.storedVersions"
            );
            Cause::invalid(format!("status.storedVersions[{index}]"), name, &why)
        })
        .collect()
}

/// The status that an accepted definition gets: names accepted, established.
pub(crate) fn establish(definition: &mut Value, conflict: bool) {
    let names = json::at(definition, &["spec", "names"]).cloned().unwrap_or_default();
    let since = |kind: &str, definition: &Value, status: &str| {
        json::list(definition, &["status", "conditions"])
            .iter()
            .find(|c| json::text(c, &["type"]) == kind && json::text(c, &["status"]) == status)
            .map_or_else(json::now, |c| json::text(c, &["lastTransitionTime"]).to_owned())
    };
    let state = if conflict { "False" } else { "True" };
    // One that is served stays so.
    let slow = !conflict && is_slow(definition) && !is_established(definition);
    let established = if slow { "False" } else { state };
    let installing = match (conflict, slow) {
        (true, _) => "NotAccepted",
        (false, true) => "Installing",
        (false, false) => "InitialNamesAccepted",
    };
    let (reason, message) = if conflict {
        ("KindConflict", "another definition of this group already uses the kind")
    } else {
        ("NoConflicts", "no conflicts found")
    };
    let conditions = json!([
        {"type": "NamesAccepted", "status": state, "lastTransitionTime": since("NamesAccepted", definition, state),
         "reason": reason, "message": message},
        {"type": "Established", "status": established,
         "lastTransitionTime": since("Established", definition, established), "reason": installing,
         "message": if conflict { "not all names are accepted" } else { "the initial names have been accepted" }},
    ]);
    json::set(definition, &["status", "conditions"], conditions);
    json::set(definition, &["status", "acceptedNames"], names);
    let storage = json::list(definition, &["spec", "versions"])
        .iter()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .and_then(|v| v.get("name"))
        .cloned()
        .unwrap_or_default();
    let mut stored = json::list(definition, &["status", "storedVersions"]).to_vec();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    json::set(definition, &["status", "storedVersions"], Value::Array(stored));
}

/// Whether a definition says that it takes its time to be served: with annotations that workloads have too.
pub(crate) fn is_slow(definition: &Value) -> bool {
    let annotations = json::at(definition, &["metadata", "annotations"]).and_then(Value::as_object);
    annotations.is_some_and(|map| SLOW.iter().any(|name| map.contains_key(*name)))
}

const SLOW: [&str; 2] = ["devcluster.barbless.dev/after", "devcluster.barbless.dev/run"];

/// Establishes a definition whose names are accepted.
pub(crate) fn establish_now(definition: &mut Value) {
    let conditions = json::at(definition, &["status", "conditions"]).cloned().unwrap_or_default();
    let accepted = conditions
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| json::text(c, &["type"]) == "NamesAccepted" && json::text(c, &["status"]) == "True");
    if !accepted {
        return;
    }
    let mut conditions = conditions.as_array().cloned().unwrap_or_default();
    conditions.retain(|c| json::text(c, &["type"]) != "Established");
    conditions.push(json!({"type": "Established", "status": "True", "lastTransitionTime": json::now(),
        "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"}));
    json::set(definition, &["status", "conditions"], Value::Array(conditions));
}

/// Whether a definition is to be served.
pub(crate) fn is_established(definition: &Value) -> bool {
    json::list(definition, &["status", "conditions"])
        .iter()
        .any(|c| json::text(c, &["type"]) == "Established" && json::text(c, &["status"]) == "True")
}

/// The served versions of a definition.
pub(crate) fn versions(definition: &Value) -> Vec<(CustomVersion, Resource)> {
    let text = |path: &[&str]| json::text(definition, path).to_owned();
    let strings = |path: &[&str]| {
        json::list(definition, path).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = json::list(definition, &["spec", "versions"]);
    let storage_version = all
        .iter()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map(|v| json::text(v, &["name"]).to_owned())
        .unwrap_or_default();
    all.iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| {
            let open_api = json::at(version, &["schema", "openAPIV3Schema"]);
            let scale = json::at(version, &["subresources", "scale"]).map(|scale| ScalePaths {
                spec_replicas: split_path(json::text(scale, &["specReplicasPath"])),
                status_replicas: split_path(json::text(scale, &["statusReplicasPath"])),
                selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(split_path),
            });
            let deprecated = version.get("deprecated") == Some(&Value::Bool(true));
            let name = json::text(version, &["name"]).to_owned();
            let deprecation = deprecated.then(|| {
                let warning = json::text(version, &["deprecationWarning"]);
                if warning.is_empty() {
                    format!("{}/{name} {} is deprecated", text(&["spec", "group"]), text(&["spec", "names", "kind"]))
                } else {
                    warning.to_owned()
                }
            });
            let parts = CustomParts {
                group: text(&["spec", "group"]),
                version: name,
                storage_version: storage_version.clone(),
                plural: text(&["spec", "names", "plural"]),
                singular: text(&["spec", "names", "singular"]),
                kind: text(&["spec", "names", "kind"]),
                list_kind: text(&["spec", "names", "listKind"]),
                namespaced: text(&["spec", "scope"]) == "Namespaced",
                short: strings(&["spec", "names", "shortNames"]),
                categories: strings(&["spec", "names", "categories"]),
                status: json::at(version, &["subresources", "status"]).is_some(),
                scale: scale.is_some(),
                schema: schema::custom(open_api),
            };
            let custom = CustomVersion {
                schema: open_api.cloned().map(Arc::new),
                columns: json::list(version, &["additionalPrinterColumns"]).to_vec(),
                scale,
                selectable_fields: json::list(version, &["selectableFields"])
                    .iter()
                    .map(|field| json::text(field, &["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
                deprecation,
                rules: open_api.and_then(rules::Rules::of),
            };
            (custom, Resource::from(parts))
        })
        .collect()
}

#[cfg(test)]
mod tests;
