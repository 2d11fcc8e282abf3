//! The hooks that the benchmark of the sandbox runs, written as anybody would write them.

use barbless_sdk::prelude::*;

barbless_sdk::component!();

/// Does nothing: what is left is what a run costs.
#[hook(name = "empty", on_startup)]
fn empty(_ctx: &mut Context) -> Result<()> {
    Ok(())
}

/// Gives each Pod the label `owner` that has none. The processes that it is compared with do the same.
#[hook(name = "one-kilobyte", kubernetes(name = "pods", api_version = "v1", kind = "Pod"))]
fn one_kilobyte(ctx: &mut Context) -> Result<()> {
    for pod in ctx.snapshot("pods")?.iter() {
        if pod.get::<String>("/metadata/labels/owner")?.is_none() {
            let target = ObjectRef::new("v1", "Pod", pod.name()).namespace(pod.namespace());
            ctx.patches().merge_patch(&target, &json!({"metadata": {"labels": {"owner": "unknown"}}}))?;
        }
    }
    Ok(())
}

/// Reads the name and one label of each of many Pods, and keeps how many Pods and bytes it saw.
#[hook(name = "five-megabytes", kubernetes(name = "pods", api_version = "v1", kind = "Pod"))]
fn five_megabytes(ctx: &mut Context) -> Result<()> {
    let (mut pods, mut bytes) = (0_u32, 0);
    for pod in ctx.snapshot("pods")?.iter() {
        let app = pod.get::<String>("/metadata/labels/app")?.unwrap_or_default();
        pods += 1;
        bytes += pod.name().len() + app.len();
    }
    ctx.values().set("/seen", &json!({"pods": pods, "bytes": bytes}))
}
