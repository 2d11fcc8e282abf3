//! Whether the definition of a kind may be upgraded in place.

use std::collections::BTreeSet;

use serde_json::Value;

/// Why a definition of a kind is not upgraded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UnsafeDefinition {
    what: String,
}

impl UnsafeDefinition {
    /// What an operator can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "migrate the stored objects and upgrade the definition by hand; the release does not do that by itself"
    }
}

/// Whether `new` may take the place of the live definition `old`: group, names and scope stay, every version that
/// objects are stored in stays defined, and every version that is served now stays served.
///
/// # Errors
/// What would make objects unreachable.
pub fn check_definition(old: &Value, new: &Value) -> Result<(), UnsafeDefinition> {
    let text = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let refused = |what: String| Err(UnsafeDefinition { what });
    for field in ["/spec/group", "/spec/names/kind", "/spec/names/plural", "/spec/scope"] {
        let (was, is) = (text(old, field), text(new, field));
        if was != is {
            return refused(format!(
                "{} would change from {was:?} to {is:?}",
                field.trim_start_matches('/').replace('/', ".")
            ));
        }
    }
    let versions = |value: &Value, served: bool| -> BTreeSet<String> {
        let list = value.pointer("/spec/versions").and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter(|version| !served || version.get("served").and_then(Value::as_bool) == Some(true))
            .map(|version| text(version, "/name"))
            .collect()
    };
    let stored = old.pointer("/status/storedVersions").and_then(Value::as_array);
    let defined = versions(new, false);
    for version in stored.into_iter().flatten().filter_map(Value::as_str) {
        if !defined.contains(version) {
            return refused(format!("objects are stored as version {version}, which would no longer be defined"));
        }
    }
    let served = versions(new, true);
    match versions(old, true).into_iter().find(|version| !served.contains(version)) {
        Some(version) => refused(format!("version {version} would no longer be served, and others may use it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(versions: &[(&str, bool)], stored: &[&str]) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
        json!({
            "spec": {"group": "example.org", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
                "versions": versions},
            "status": {"storedVersions": stored},
        })
    }

    #[test]
    fn only_what_keeps_every_object_reachable_is_allowed() {
        let old = definition(&[("v1alpha1", false), ("v1", true)], &["v1alpha1", "v1"]);
        let cases = [
            (definition(&[("v1alpha1", false), ("v1", true), ("v2", true)], &[]), Ok(())),
            (
                definition(&[("v1", true)], &[]),
                Err("objects are stored as version v1alpha1, which would no longer be defined"),
            ),
            (
                definition(&[("v1alpha1", true), ("v1", false)], &[]),
                Err("version v1 would no longer be served, and others may use it"),
            ),
        ];
        for (new, expected) in cases {
            let got = check_definition(&old, &new).map_err(|refused| refused.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text));
        }
        let mut moved = definition(&[("v1alpha1", false), ("v1", true)], &[]);
        moved["spec"]["scope"] = json!("Cluster");
        let refused = check_definition(&old, &moved).expect_err("refused").to_string();
        assert_eq!(refused, r#"spec.scope would change from "Namespaced" to "Cluster""#);
    }
}
