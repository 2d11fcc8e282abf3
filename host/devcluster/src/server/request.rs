//! Addresses: which part of the API a path and a query mean.

use std::collections::HashMap;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Health,
    Version,
    Root,
    Core,
    Groups,
    Group(String),
    Resources(String, String),
    Swagger,
    OpenApiIndex,
    OpenApi(String),
    Target(Target),
    Unknown,
}

/// A collection (no name), an object, or a subresource of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: String,
}

impl Path {
    pub(crate) fn parse(path: &str) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect::<Vec<_>>();
        let parts = parts.iter().map(String::as_str).collect::<Vec<_>>();
        match parts.as_slice() {
            [] => Self::Root,
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["version"] => Self::Version,
            ["openapi", "v2"] => Self::Swagger,
            ["openapi", "v3"] => Self::OpenApiIndex,
            ["openapi", "v3", rest @ ..] => Self::OpenApi(rest.join("/")),
            ["api"] => Self::Core,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", version] => Self::Resources(String::new(), (*version).to_owned()),
            ["apis", group, version] => Self::Resources((*group).to_owned(), (*version).to_owned()),
            ["api", version, rest @ ..] => target("", version, rest),
            ["apis", group, version, rest @ ..] => target(group, version, rest),
            _ => Self::Unknown,
        }
    }
}

fn target(group: &str, version: &str, rest: &[&str]) -> Path {
    let make = |namespace: Option<&str>, plural: &str, name: Option<&str>, subresource: &str| {
        Path::Target(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.map(str::to_owned),
            plural: plural.to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.to_owned(),
        })
    };
    match rest {
        ["namespaces", name, sub @ ("status" | "finalize")] => make(None, "namespaces", Some(name), sub),
        ["namespaces", namespace, plural] => make(Some(namespace), plural, None, ""),
        ["namespaces", namespace, plural, name] => make(Some(namespace), plural, Some(name), ""),
        ["namespaces", namespace, plural, name, sub] => make(Some(namespace), plural, Some(name), sub),
        [plural] => make(None, plural, None, ""),
        [plural, name] => make(None, plural, Some(name), ""),
        [plural, name, sub] => make(None, plural, Some(name), sub),
        _ => Path::Unknown,
    }
}

/// The parameters of a request. Empty pairs are ignored (kube sends `?&watch=true`).
#[derive(Debug, Default)]
pub(crate) struct Query(HashMap<String, String>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decode(k, true), decode(v, true)))
                .collect(),
        )
    }

    /// The value of a parameter; empty when it is absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1" | "True" | "TRUE" | "t")
    }
}

/// Percent-decoding; what is not valid stays as it is.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = || text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, hex()) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 2;
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests;
