//! Names: validated once, at the edge.

use std::fmt;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?} is not valid: {reason}")]
pub struct BadName {
    /// What kind of name.
    pub kind: &'static str,
    /// The name.
    pub value: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Checks a DNS label (RFC 1123): lower-case letters, digits and `-`, at most 63 characters.
///
/// # Errors
/// [`BadName`] with the reason.
pub fn dns_label(kind: &'static str, value: &str) -> Result<(), BadName> {
    let bad = |reason| Err(BadName { kind, value: value.to_owned(), reason });
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if value.is_empty() {
        bad("it is empty")
    } else if value.len() > 63 {
        bad("it is longer than 63 characters")
    } else if !value.chars().all(inner) {
        bad("only lower-case letters, digits and '-' are allowed")
    } else if value.starts_with('-') || value.ends_with('-') {
        bad("it must begin and end with a letter or digit")
    } else {
        Ok(())
    }
}

/// An installed instance of a package: `<namespace>.<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ApplicationId {
    namespace: String,
    name: String,
}

impl ApplicationId {
    /// Longest name of an application, in characters: objects of packages are called `d8a-<name>-…`.
    pub const NAME_MAX: usize = 24;

    /// Makes an id of valid parts.
    ///
    /// # Errors
    /// [`BadName`] if the namespace or the name is no DNS label, or the name is longer than [`Self::NAME_MAX`].
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        dns_label("namespace", namespace)?;
        // First the length: it is the same limit for all that are too long.
        if name.len() > Self::NAME_MAX {
            return Err(BadName {
                kind: "application name",
                value: name.to_owned(),
                reason: "it is longer than 24 characters",
            });
        }
        dns_label("application name", name)?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Namespace of the application.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the application.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace, self.name)
    }
}

/// Group, version and kind of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// Parses `apps/v1` and a kind.
    ///
    /// # Errors
    /// [`BadName`] if one of them is empty or malformed.
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, BadName> {
        let bad = |field, value: &str, reason| Err(BadName { kind: field, value: value.to_owned(), reason });
        if kind.is_empty() {
            return bad("kind", kind, "it is empty");
        }
        if kind.len() > 63 || !kind.chars().all(|c| c.is_ascii_alphanumeric()) {
            return bad("kind", kind, "only up to 63 letters and digits are allowed");
        }
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) if !group.is_empty() => (group, version),
            Some(_) => return bad("apiVersion", api_version, "the group before '/' is empty"),
            None => ("", api_version),
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if version.is_empty() {
            return bad("apiVersion", api_version, "the version is empty");
        }
        if !version.chars().all(plain) || !group.chars().all(plain) || api_version.len() > 253 {
            return bad("apiVersion", api_version, "it must be <version> or <group>/<version>");
        }
        Ok(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
    }

    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

/// One object of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// What it is.
    #[serde(flatten)]
    pub gvk: Gvk,
    /// Its namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// Reads the reference of an object from its own fields.
    ///
    /// # Errors
    /// [`BadName`] if `apiVersion`, `kind` or `metadata.name` is missing or malformed.
    pub fn of(object: &serde_json::Value) -> Result<Self, BadName> {
        let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
        let gvk = Gvk::parse(text("/apiVersion"), text("/kind"))?;
        let name = text("/metadata/name");
        if name.is_empty() {
            return Err(BadName { kind: "metadata.name", value: String::new(), reason: "it is empty" });
        }
        Ok(Self { gvk, namespace: text("/metadata/namespace").to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for ObjectRef {
    /// `Deployment demo/web` or `ClusterRole admin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gvk.kind)?;
        if !self.gvk.group.is_empty() {
            write!(f, ".{}", self.gvk.group)?;
        }
        if self.namespace.is_empty() {
            write!(f, " {}", self.name)
        } else {
            write!(f, " {}/{}", self.namespace, self.name)
        }
    }
}
