//! Charts and objects, as small as a test can have them. JSON is YAML, so objects are written as JSON.

use barbless_template::{Files, Input, Lookup, NoLookup, Release, Rendered, render};
use serde_json::{Value, json};

/// A chart in memory.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    files: Files,
    values: Value,
}

/// A chart `t` without templates.
pub(crate) fn chart() -> Chart {
    let empty = Chart { files: Files::default(), values: json!({}) };
    empty.file("Chart.yaml", "apiVersion: v2\nname: t\nversion: 0.1.0\n")
}

impl Chart {
    /// Adds a file.
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.0.insert(path.to_owned(), text.as_bytes().to_vec());
        self
    }

    /// Adds a template with these objects, one document each.
    pub(crate) fn put(self, path: &str, objects: impl IntoIterator<Item = Object>) -> Self {
        let documents: Vec<String> = objects.into_iter().map(|object| object.0.to_string()).collect();
        self.file(&format!("templates/{path}"), &documents.join("\n---\n"))
    }

    /// Adds a definition of a kind to `crds/`.
    pub(crate) fn define(self, object: &Object) -> Self {
        let name = object.0["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.file(&format!("crds/{name}.yaml"), &object.0.to_string())
    }

    /// Renders it as revision `revision` of release `r`.
    pub(crate) fn render(&self, namespace: &str, revision: u32, lookup: &dyn Lookup) -> Result<Rendered, String> {
        let first = Input::first(&self.files, "r", namespace);
        let input = Input {
            values: self.values.clone(),
            release: Release {
                revision: i64::from(revision),
                is_install: revision == 1,
                is_upgrade: revision != 1,
                ..first.release
            },
            seed: [7; 32],
            lookup,
            ..first
        };
        render(&input).map_err(|error| error.to_string())
    }

    /// What the notes of the chart say.
    pub(crate) fn notes(&self) -> Option<String> {
        self.render("default", 1, &NoLookup).ok()?.notes
    }
}

/// An object under construction.
#[derive(Clone, Debug)]
pub(crate) struct Object(pub(crate) Value);

impl Object {
    /// Sets an annotation.
    pub(crate) fn note(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][name] = json!(value);
        self
    }

    /// Sets a label.
    pub(crate) fn label(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][name] = json!(value);
        self
    }

    /// Makes it a hook.
    pub(crate) fn hook(self, events: &str) -> Self {
        self.note("helm.sh/hook", events)
    }

    /// Weight of a hook.
    pub(crate) fn weight(self, weight: &str) -> Self {
        self.note("helm.sh/hook-weight", weight)
    }

    /// Delete policy of a hook.
    pub(crate) fn policy(self, policy: &str) -> Self {
        self.note("helm.sh/hook-delete-policy", policy)
    }

    /// Resource policy.
    pub(crate) fn resource_policy(self, policy: &str) -> Self {
        self.note("helm.sh/resource-policy", policy)
    }

    /// How what it runs behaves: `fail`, `hang`, …
    pub(crate) fn run(self, behaviour: &str) -> Self {
        self.note("devcluster.barbless.dev/run", behaviour)
    }

    /// Sets a field by its pointer; what lies above it must be there.
    pub(crate) fn set(mut self, pointer: &str, value: Value) -> Self {
        let (above, field) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(above).unwrap_or_else(|| panic!("{above}"))[field] = value;
        self
    }
}

/// Any object without a body.
pub(crate) fn object(api_version: &str, kind: &str, name: &str) -> Object {
    Object(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
}

pub(crate) fn config_map(name: &str) -> Object {
    object("v1", "ConfigMap", name)
}

pub(crate) fn config_map_with(name: &str, data: Value) -> Object {
    object("v1", "ConfigMap", name).set("/data", data)
}

pub(crate) fn secret(name: &str) -> Object {
    object("v1", "Secret", name)
}

pub(crate) fn account(name: &str) -> Object {
    object("v1", "ServiceAccount", name)
}

pub(crate) fn service(name: &str) -> Object {
    object("v1", "Service", name).set("/spec", json!({"selector": {"app": name}, "ports": [{"port": 80}]}))
}

fn pod_spec(restart: &str) -> Value {
    json!({"restartPolicy": restart, "containers": [{"name": "main", "image": "i"}]})
}

pub(crate) fn job(name: &str) -> Object {
    let spec = json!({"backoffLimit": 0, "template": {"metadata": {}, "spec": pod_spec("Never")}});
    object("batch/v1", "Job", name).set("/spec", spec)
}

pub(crate) fn pod(name: &str) -> Object {
    object("v1", "Pod", name).set("/spec", pod_spec("Never"))
}

pub(crate) fn deployment(name: &str) -> Object {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod_spec("Always")});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
    object("apps/v1", "Deployment", name).set("/spec", spec)
}

/// The definition of a kind in `example.com/v1`.
pub(crate) fn definition(kind: &str, scope: &str) -> Object {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &format!("{plural}.example.com")).set(
        "/spec",
        json!({
            "group": "example.com", "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        }),
    )
}
