//! Rendered text to objects: documents, their order, and what `helm template` would print.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value as Json;

use crate::{
    error::{Error, Kind},
    yaml,
};

/// One object out of rendered text.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The template, with the chart's name in front.
    pub source: String,
    /// Where the document begins in the rendered text of its template, from 1.
    pub line: usize,
    /// The object; always a map.
    pub object: Json,
    /// The text of the document, trimmed.
    pub text: String,
}

impl Manifest {
    /// The kind, or an empty text.
    pub fn kind(&self) -> &str {
        self.object.get("kind").and_then(Json::as_str).unwrap_or_default()
    }

    fn hook_annotation(&self) -> Option<&str> {
        self.object.pointer("/metadata/annotations")?.get("helm.sh/hook")?.as_str()
    }

    /// Whether it is a Helm hook and so no part of the release itself.
    pub fn is_hook(&self) -> bool {
        self.hook_annotation().is_some()
    }
}

/// Helm's order of kinds on installation; kinds that are not listed come last.
const INSTALL_ORDER: &[&str] = &[
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Helm's order of kinds on removal. It is not the reverse of the other: services go before the workloads.
const UNINSTALL_ORDER: &[&str] = &[
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];

fn rank(order: &[&str], kind: &str) -> usize {
    order.iter().position(|k| *k == kind).unwrap_or(order.len())
}

/// The place of a kind in the order of installation; all unknown kinds share the last place.
pub fn install_rank(kind: &str) -> usize {
    rank(INSTALL_ORDER, kind)
}

/// The place of a kind in Helm's order of removal; all unknown kinds share the last place.
pub fn uninstall_rank(kind: &str) -> usize {
    rank(UNINSTALL_ORDER, kind)
}

/// The kinds that Helm's order of installation knows, first to last.
pub fn install_order() -> &'static [&'static str] {
    INSTALL_ORDER
}

/// The kinds that Helm's order of removal knows, first to last.
pub fn uninstall_order() -> &'static [&'static str] {
    UNINSTALL_ORDER
}

fn kind_of(object: &Json) -> &str {
    object.get("kind").and_then(Json::as_str).unwrap_or_default()
}

/// Sorts objects as Helm installs them: by kind, unknown kinds last and by name of kind; stable inside a kind.
pub fn sort_for_install(objects: &mut [Json]) {
    objects.sort_by(|a, b| by_kind(INSTALL_ORDER, kind_of(a), kind_of(b)));
}

/// Sorts objects for removal: custom resources first, while their definitions and the controllers that finalise them
/// still exist (Helm puts them last), then Helm's order.
pub fn sort_for_uninstall(objects: &mut [Json]) {
    objects.sort_by(|a, b| {
        let (a, b) = (kind_of(a), kind_of(b));
        let known = |kind| rank(UNINSTALL_ORDER, kind) < UNINSTALL_ORDER.len();
        known(a).cmp(&known(b)).then_with(|| by_kind(UNINSTALL_ORDER, a, b))
    });
}

fn by_kind(order: &[&str], a: &str, b: &str) -> std::cmp::Ordering {
    let (ra, rb) = (rank(order, a), rank(order, b));
    if ra == order.len() && rb == order.len() {
        return a.cmp(b);
    }
    ra.cmp(&rb)
}

/// A document with its place.
pub(crate) struct Document<'t> {
    pub(crate) line: usize,
    pub(crate) text: &'t str,
}

/// Helm's separator: it takes the white space around it, so that of two in a row the second belongs to the document.
static SEPARATOR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:\A|[\t\n\x0c\r ]*\n)---[\t\n\x0c\r ]*").ok());

/// Splits rendered text into documents as Helm does; documents without text are left out.
pub(crate) fn documents(text: &str) -> Vec<Document<'_>> {
    let body = text.trim_start();
    let skipped = text.len() - body.len();
    let mut found = Vec::new();
    let (mut line, mut counted) = (1, 0);
    let mut push = |from: usize, to: usize| {
        let piece = &body[from..to];
        if !piece.trim().is_empty() {
            let start = skipped + from;
            line += text.as_bytes()[counted..start].iter().filter(|b| **b == b'\n').count();
            counted = start;
            found.push(Document { line, text: piece });
        }
    };
    let mut start = 0;
    for separator in SEPARATOR.iter().flat_map(|separator| separator.find_iter(body)) {
        push(start, separator.start());
        start = separator.end();
    }
    push(start, body.len());
    found
}

/// The objects of one rendered file, in the order of the text. `None` stands for a document that holds only comments.
pub(crate) fn parse(source: &str, text: &str, nodes: usize) -> Result<Vec<(String, Option<Manifest>)>, Error> {
    let mut parsed = Vec::new();
    for Document { line: start, text: piece } in documents(text) {
        // The second of two separators in a row stays in Helm's output, but is no part of the object's text.
        let body = piece.strip_prefix("---").unwrap_or(piece).trim();
        let skipped = piece.find(body).unwrap_or(0);
        let body_line = start + piece[..skipped].matches('\n').count();
        let fail = |line: usize, column: usize, message: String| {
            let line = start + line.max(1) - 1;
            let snippet = text.lines().nth(line - 1).map(str::to_string);
            let mut error = Error::chart(source, message);
            error.detail.helm = format!("YAML parse error on {source}: {}", error.message);
            Error { kind: Kind::Manifest, line, column, snippet, ..error }
        };
        // Separated documents have lost the line break that ends them, and with it that of a last block scalar.
        let object = yaml::read(&format!("{piece}\n"), nodes).map_err(|error| {
            if error.too_large {
                return Error::limit(source, crate::limits::Limit::Document);
            }
            let reason = error.message.strip_prefix("yaml: ").unwrap_or(&error.message);
            let reason = match reason.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
                Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => rest,
                _ => reason,
            };
            let mut failed = fail(error.line, error.column + 1, format!("the rendered text is not YAML: {reason}"));
            failed.detail.helm =
                format!("YAML parse error on {source}: error converting YAML to JSON: {}", error.message);
            failed.with_hint("the line is one of the rendered text, not of the template")
        })?;
        let manifest = match object {
            Json::Null => None,
            object @ Json::Object(_) => {
                Some(Manifest { source: source.to_string(), line: body_line, object, text: body.to_string() })
            }
            other => {
                let kind = crate::json::kind(&other);
                let mut failed = fail(1, 1, format!("a manifest must be a map, but this document is of type {kind}"));
                failed.detail.helm = format!(
                    "YAML parse error on {source}: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal \
                     {kind} into Go value of type util.SimpleHead"
                );
                return Err(failed);
            }
        };
        parsed.push((piece.to_string(), manifest));
    }
    Ok(parsed)
}

/// Parsed documents of all files, in Helm's order: `release` is what an installation applies, hooks are apart.
pub(crate) struct Sorted {
    pub(crate) manifests: Vec<Manifest>,
    /// The text that `helm template` prints.
    pub(crate) output: String,
    /// Where hooks begin in `output`.
    pub(crate) hooks_at: usize,
    /// Where the text of each hook ends in `output`, and whether it is a test.
    pub(crate) hooks: Vec<(usize, bool)>,
    /// Objects that are left out, and why.
    pub(crate) left_out: Vec<String>,
}

struct Entry {
    source: String,
    text: String,
    manifest: Option<Manifest>,
}

impl Entry {
    fn kind(&self) -> &str {
        self.manifest.as_ref().map_or("", Manifest::kind)
    }
}

/// Parses the files, given in the order of their paths, and sorts what they hold.
pub(crate) fn collect<'f>(files: impl Iterator<Item = (&'f str, &'f str)>, nodes: usize) -> Result<Sorted, Error> {
    let (mut release, mut hooks): (Vec<Entry>, Vec<Entry>) = (Vec::new(), Vec::new());
    let mut left_out = Vec::new();
    for (source, text) in files {
        for (text, manifest) in parse(source, text, nodes)? {
            let annotation = manifest.as_ref().and_then(Manifest::hook_annotation);
            let is_hook = annotation.is_some();
            // Helm ignores an object that names no event it knows.
            if let Some(events) = annotation.filter(|events| !events.split(',').any(is_event)) {
                let kind = manifest.as_ref().map_or("", Manifest::kind);
                left_out
                    .push(format!("{source}: a {kind} is left out, because helm.sh/hook {events:?} names no event"));
                continue;
            }
            let entry = Entry { source: source.to_string(), text, manifest };
            if is_hook { hooks.push(entry) } else { release.push(entry) }
        }
    }
    let order = |a: &Entry, b: &Entry| by_kind(INSTALL_ORDER, a.kind(), b.kind());
    release.sort_by(order);
    hooks.sort_by(order);
    let print = |entry: &Entry| format!("---\n# Source: {}\n{}\n", entry.source, entry.text);
    let mut output: String = release.iter().map(print).collect();
    let hooks_at = output.len();
    let mut ends = Vec::new();
    for hook in &hooks {
        output.push_str(&print(hook));
        let events = hook.manifest.as_ref().and_then(Manifest::hook_annotation).unwrap_or_default();
        ends.push((output.len(), events.split(',').any(is_test)));
    }
    let mut manifests = Vec::new();
    for manifest in release.into_iter().chain(hooks).filter_map(|entry| entry.manifest) {
        flatten(manifest, &mut manifests);
    }
    Ok(Sorted { manifests, output, hooks_at, hooks: ends, left_out })
}

fn is_event(word: &str) -> bool {
    matches!(
        word.trim().to_lowercase().as_str(),
        "pre-install"
            | "post-install"
            | "pre-upgrade"
            | "post-upgrade"
            | "pre-rollback"
            | "post-rollback"
            | "pre-delete"
            | "post-delete"
            | "test"
            | "test-success"
    )
}

fn is_test(word: &str) -> bool {
    matches!(word.trim().to_lowercase().as_str(), "test" | "test-success")
}

/// A `List` is its items.
fn flatten(manifest: Manifest, into: &mut Vec<Manifest>) {
    match (manifest.kind(), manifest.object.get("items")) {
        ("List", Some(Json::Array(items))) => {
            for item in items.iter().filter(|item| item.is_object()) {
                into.push(Manifest { object: item.clone(), ..manifest.clone() });
            }
        }
        _ => into.push(manifest),
    }
}
