//! The one-kilobyte job of the benchmark as a process: a hook as shell-operator runs it, with typed JSON, which is the
//! fastest way to read the context.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write as _};

use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct BindingContext {
    objects: Vec<Selected>,
}

#[derive(Deserialize)]
struct Selected {
    object: Object,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(default)]
    labels: Labels,
}

#[derive(Default, Deserialize)]
struct Labels {
    owner: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::fs::read(std::env::var("BINDING_CONTEXT_PATH")?)?;
    let contexts: Vec<BindingContext> = serde_json::from_slice(&text)?;
    let mut patches = BufWriter::new(File::create(std::env::var("KUBERNETES_PATCH_PATH")?)?);
    for Selected { object } in contexts.into_iter().flat_map(|context| context.objects) {
        if object.metadata.labels.owner.is_none() {
            let patch = json!({
                "operation": "MergePatch",
                "apiVersion": object.api_version,
                "kind": object.kind,
                "namespace": object.metadata.namespace,
                "name": object.metadata.name,
                "mergePatch": {"metadata": {"labels": {"owner": "unknown"}}},
            });
            writeln!(patches, "{patch}")?;
        }
    }
    patches.flush()?;
    Ok(())
}
