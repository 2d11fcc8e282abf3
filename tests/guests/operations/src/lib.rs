//! A component that does what a test writes down: the setting `operations` is a list of operations as JSON text, and the
//! hook asks for each of them. What jq makes of ConfigMaps and Pods goes into the values.

use barbless_sdk::prelude::*;

barbless_sdk::component!();

/// An operation as a test writes it down.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    verb: String,
    /// Of `create`, `create-if-not-exists`, `create-or-update` and `apply`.
    #[serde(default)]
    object: Value,
    /// Of the others.
    #[serde(default)]
    target: Target,
    /// A patch, or the program of one, or the propagation of a deletion.
    #[serde(default)]
    with: Value,
    #[serde(default)]
    subresource: Option<String>,
    #[serde(default)]
    ignore_missing: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// Asks for everything that the setting says. Its schedule never comes in a test (29 February).
#[hook(name = "perform", schedule = "0 0 29 2 *")]
fn perform(ctx: &mut Context) -> Result<()> {
    let text = ctx.settings().get_or("/operations", "[]".to_owned())?;
    let steps: Vec<Step> = barbless_sdk::serde_json::from_str(&text)?;
    steps.iter().try_for_each(|step| ask(ctx, step))
}

fn ask(ctx: &Context, step: &Step) -> Result<()> {
    let mut patches = ctx.patches();
    match step.subresource.as_deref() {
        None => {}
        Some("status") => patches = patches.subresource(Subresource::Status),
        Some("scale") => patches = patches.subresource(Subresource::Scale),
        Some(other) => return Err(Error::new("BadStep", format!("no subresource {other}"))),
    }
    if step.ignore_missing {
        patches = patches.ignore_missing_object();
    }
    let Target { api_version, kind, namespace, name } = &step.target;
    let target = ObjectRef::new(api_version, kind, name).namespace(namespace);
    let word = step.with.as_str().unwrap_or_default();
    match (step.verb.as_str(), word) {
        ("create", _) => patches.create(&step.object),
        ("create-if-not-exists", _) => patches.create_if_not_exists(&step.object),
        ("create-or-update", _) => patches.create_or_update(&step.object),
        ("apply", _) => patches.apply(&step.object),
        ("merge-patch", _) => patches.merge_patch(&target, &step.with),
        ("json-patch", _) => patches.json_patch(&target, &step.with),
        ("jq-patch", program) => {
            patches.jq_patch(&target, program);
            Ok(())
        }
        ("delete", propagation) => {
            let propagation = match propagation {
                "foreground" => Propagation::Foreground,
                "orphan" => Propagation::Orphan,
                _ => Propagation::Background,
            };
            patches.delete(&target, propagation);
            Ok(())
        }
        (other, _) => Err(Error::new("BadStep", format!("no operation {other}"))),
    }
}

/// What a filter makes of ConfigMaps: an answer if there is a question, and none at all for what nobody asked.
#[hook(name = "filtered", kubernetes(
    name = "answers", api_version = "v1", kind = "ConfigMap", labels("test" = "jq"),
    jq = r#"{name: .metadata.name, answer: (.data.question | tonumber + 1)}"#,
), kubernetes(
    name = "parts", api_version = "v1", kind = "ConfigMap", labels("test" = "jq"),
    jq = r#".data.parts // "" | split(",")[]"#,
), kubernetes(
    name = "names", api_version = "v1", kind = "ConfigMap", labels("test" = "jq"), jq = ".metadata.name",
))]
fn filtered(ctx: &mut Context) -> Result<()> {
    for binding in ["answers", "parts", "names"] {
        let seen: Vec<Value> = ctx.snapshots(binding)?;
        ctx.values().set(&format!("/internal/{binding}"), &seen)?;
    }
    Ok(())
}
