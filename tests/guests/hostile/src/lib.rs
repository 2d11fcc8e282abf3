//! Hooks that do what hooks should not do. The integration tests run them by name and look at what the host makes of it.
//!
//! All but `well-behaved` and `fails-on-before-helm` have a schedule that never comes in a test (29 February), so that a
//! package with this component can be installed and each hook be run on its own.

use std::time::Duration;

use barbless_sdk::prelude::*;

barbless_sdk::component!();

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"from": "hostile"}})
}

/// Does what it may, so that a test can tell refusals from a host that refuses everything.
#[hook(name = "well-behaved", schedule = "0 0 29 2 *")]
fn well_behaved(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("well-behaved"))?;
    ctx.values().set("/internal/wellBehaved", &true)
}

/// Panics with a message.
#[hook(name = "panics", schedule = "0 0 29 2 *")]
fn panics(ctx: &mut Context) -> Result<()> {
    // One operation before and one that would survive a failure, so that a test sees which is carried out.
    ctx.patches().apply(&config_map("before-the-panic"))?;
    ctx.patches().on_failure().apply(&config_map("despite-the-panic"))?;
    panic!("the hook of {} gives up", ctx.instance().name);
}

/// Indexes out of bounds: a panic that the author did not write.
#[hook(name = "panics-on-an-index", schedule = "0 0 29 2 *")]
fn panics_on_an_index(ctx: &mut Context) -> Result<()> {
    let attempts = [0_u32; 1];
    let beyond = ctx.attempt() as usize;
    ctx.values().set("/internal/attempts", &attempts[beyond])
}

/// Loops for ever.
#[hook(name = "loops", schedule = "0 0 29 2 *")]
fn loops(ctx: &mut Context) -> Result<()> {
    let mut turns = u64::from(ctx.attempt());
    while std::hint::black_box(turns) != 0 {
        turns = std::hint::black_box(turns) | 1;
    }
    Ok(())
}

/// Calls the host for ever.
#[hook(name = "loops-in-the-host", schedule = "0 0 29 2 *")]
fn loops_in_the_host(ctx: &mut Context) -> Result<()> {
    while ctx.random().next_u64() != 0 {}
    Ok(())
}

/// Eats memory and touches all of it.
#[hook(name = "eats-memory", schedule = "0 0 29 2 *")]
fn eats_memory(ctx: &mut Context) -> Result<()> {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![ctx.attempt() as u8; 1 << 20]);
        std::hint::black_box(&eaten);
    }
}

/// Calls itself for ever.
#[hook(name = "recurses", schedule = "0 0 29 2 *")]
fn recurses(ctx: &mut Context) -> Result<()> {
    #[expect(unconditional_recursion, reason = "that is what it is for")]
    fn deeper(depth: u64) -> u64 {
        // Hidden from the compiler, which would make a loop of it. Small, so that it is the stack of calls that ends and
        // not the one in the memory of the component.
        let below = deeper(std::hint::black_box(depth + 1));
        std::hint::black_box(below) + depth
    }
    ctx.values().set("/internal/depth", &deeper(u64::from(ctx.attempt())))
}

/// Asks for an object in a namespace that is not the one of the application. The operation before it is allowed, but
/// must not be carried out either.
#[hook(name = "asks-for-another-namespace", schedule = "0 0 29 2 *")]
fn asks_for_another_namespace(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("before-the-refusal"))?;
    let mut object = config_map("in-kube-system");
    object["metadata"]["namespace"] = json!("kube-system");
    ctx.patches().apply(&object)
}

/// Deletes an object in another namespace.
#[hook(name = "deletes-in-another-namespace", schedule = "0 0 29 2 *")]
fn deletes_in_another_namespace(ctx: &mut Context) -> Result<()> {
    let target = ObjectRef::new("v1", "ConfigMap", "kube-root-ca.crt").namespace("kube-system");
    ctx.patches().delete(&target, Propagation::Background);
    Ok(())
}

/// Asks for a kind that nobody granted.
#[hook(name = "asks-for-an-ungranted-kind", schedule = "0 0 29 2 *")]
fn asks_for_an_ungranted_kind(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("before-the-refusal"))?;
    ctx.patches().create(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "more-rights"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": ctx.instance().namespace}],
    }))
}

/// Puts the label of another application on its object.
#[hook(name = "claims-another-instance", schedule = "0 0 29 2 *")]
fn claims_another_instance(ctx: &mut Context) -> Result<()> {
    let mut object = config_map("stolen");
    barbless_sdk::object::set_label(&mut object, barbless_sdk::object::INSTANCE_LABEL, "somebody-else")?;
    ctx.patches().apply(&object)
}

/// Asks for something that is no Kubernetes object.
#[hook(name = "asks-for-nonsense", schedule = "0 0 29 2 *")]
fn asks_for_nonsense(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("before-the-refusal"))?;
    ctx.patches().apply(&json!(["no object"]))
}

/// Asks for more operations than are allowed.
#[hook(name = "asks-too-often", schedule = "0 0 29 2 *")]
fn asks_too_often(ctx: &mut Context) -> Result<()> {
    for number in 0..2_000 {
        ctx.patches().apply(&config_map(&format!("flood-{number}")))?;
    }
    Ok(())
}

/// Asks for an object that is larger than allowed.
#[hook(name = "asks-for-too-much", schedule = "0 0 29 2 *")]
fn asks_for_too_much(ctx: &mut Context) -> Result<()> {
    let mut object = config_map("huge");
    object["data"]["text"] = json!("x".repeat(2 << 20));
    ctx.patches().apply(&object)
}

/// Writes far more log lines than are kept.
#[hook(name = "floods-the-log", schedule = "0 0 29 2 *")]
fn floods_the_log(_ctx: &mut Context) -> Result<()> {
    let line = "spam ".repeat(200);
    for number in 0..10_000 {
        log::info!(number = number, "{line}");
    }
    Ok(())
}

/// Writes one line that is larger than allowed, with characters that would confuse a terminal.
#[hook(name = "writes-a-huge-line", schedule = "0 0 29 2 *")]
fn writes_a_huge_line(_ctx: &mut Context) -> Result<()> {
    log::warn!(escape = "\u{1b}[2J", "\u{1b}[31m{}", "x".repeat(1 << 20));
    Ok(())
}

/// Fails with a code, a hint and a pause, after an operation of each sort.
#[hook(name = "fails", schedule = "0 0 29 2 *")]
fn fails(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("before-the-failure"))?;
    ctx.patches().on_failure().apply(&config_map("despite-the-failure"))?;
    ctx.values().set("/internal/wellBehaved", &false)?;
    Err(failure())
}

/// The same as a part of the life of the package; turned on by the setting `failBeforeHelm`.
#[hook(name = "fails-on-before-helm", before_helm)]
fn fails_on_before_helm(ctx: &mut Context) -> Result<()> {
    if ctx.settings().get_or("/failBeforeHelm", false)? { Err(failure()) } else { Ok(()) }
}

fn failure() -> Error {
    Error::new("DatabaseNotReady", "database db-0 refuses connections")
        .hint("look at the log of the database")
        .retry_after(Duration::from_secs(2))
}

/// Sets a value that the schema does not allow, after an operation that is allowed.
#[hook(name = "sets-invalid-values", schedule = "0 0 29 2 *")]
fn sets_invalid_values(ctx: &mut Context) -> Result<()> {
    ctx.patches().apply(&config_map("before-invalid-values"))?;
    ctx.values().set("/internal/wellBehaved", "no boolean")
}

/// Sets a value that the schema does not know.
#[hook(name = "sets-unknown-values", schedule = "0 0 29 2 *")]
fn sets_unknown_values(ctx: &mut Context) -> Result<()> {
    ctx.values().set("/internal/unknown", &1)
}

/// Fills the values beyond their limit.
#[hook(name = "fills-the-values", schedule = "0 0 29 2 *")]
fn fills_the_values(ctx: &mut Context) -> Result<()> {
    ctx.values().set("/internal/text", &"x".repeat(2 << 20))
}

/// Takes from a counter, which ends the run.
#[hook(name = "lowers-a-counter", schedule = "0 0 29 2 *")]
fn lowers_a_counter(ctx: &mut Context) -> Result<()> {
    ctx.metrics().counter_add("work_total", -1.0, &[]);
    Ok(())
}

/// Makes more series than are allowed.
#[hook(name = "makes-many-series", schedule = "0 0 29 2 *")]
fn makes_many_series(ctx: &mut Context) -> Result<()> {
    for number in 0..1_000 {
        ctx.metrics().gauge_set("series", 1.0, &[("number", &number.to_string())]);
    }
    Ok(())
}

/// Opens a snapshot that the hook did not declare.
#[hook(name = "reads-an-unknown-snapshot", schedule = "0 0 29 2 *")]
fn reads_an_unknown_snapshot(ctx: &mut Context) -> Result<()> {
    let secrets = ctx.snapshot("secrets")?;
    ctx.values().set("/internal/secrets", &secrets.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the hook of test gives up")]
    fn the_panic_has_its_message() {
        let _ = TestContext::builder().run(panics);
    }

    #[test]
    fn only_what_survives_a_failure_is_carried_out() {
        let outcome = TestContext::builder().run(fails);
        assert_eq!(outcome.expect_error().code(), "DatabaseNotReady");
        let names: Vec<_> = outcome.carried_out().iter().map(|it| it.object()["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["despite-the-failure"]);
    }

    #[test]
    fn an_unknown_snapshot_is_an_error() {
        let outcome = TestContext::builder().run(reads_an_unknown_snapshot);
        assert_eq!(outcome.expect_error().code(), "SnapshotUnknown");
    }
}
