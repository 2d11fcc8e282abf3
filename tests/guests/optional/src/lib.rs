//! A component with everything that is optional: it judges settings, projects Pods and judges the health of an own kind.
//! Each has a case in which it misbehaves.

use barbless_sdk::prelude::*;

barbless_sdk::component!();

#[derive(Debug, Deserialize)]
struct Settings {
    #[serde(default)]
    replicas: u32,
}

/// Replicas must be odd; 1 is allowed with a warning, 13 is a panic.
#[check_settings]
fn check(settings: Settings) -> Verdict {
    match settings.replicas {
        13 => panic!("13 replicas"),
        1 => Verdict::allow().warn("one replica cannot survive the loss of a node"),
        odd if odd % 2 == 1 => Verdict::allow(),
        even => Verdict::reject(format!("{even} replicas cannot form a majority: use an odd number")),
    }
}

/// What is kept of a Pod.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    name: String,
    phase: String,
}

/// Keeps name and phase. A Pod called `broken` cannot be projected, and one called `panics` is a panic.
#[filter]
fn keep(selection: Selection<'_>, pod: Value) -> Result<Kept> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match name.as_str() {
        "broken" => Err(Error::new("PodBroken", format!("binding {} cannot read Pod {name}", selection.binding))),
        "panics" => panic!("the filter of {} gives up", selection.hook),
        _ => Ok(Kept { name, phase: pod["status"]["phase"].as_str().unwrap_or("Unknown").to_owned() }),
    }
}

/// Puts the Pods as the filter left them into the values.
#[hook(kubernetes(name = "pods", api_version = "v1", kind = "Pod", filter))]
fn pods(ctx: &mut Context) -> Result<()> {
    let pods: Vec<Kept> = ctx.snapshots("pods")?;
    ctx.values().set("/internal/pods", &pods)
}

/// Has an opinion on the kind `Database` only.
#[assess_health]
fn assess(object: Value) -> Option<Health> {
    if object["kind"] != "Database" {
        return None;
    }
    Some(match object["status"]["phase"].as_str() {
        Some("Ready") => Health::new(Status::Healthy, "accepts connections"),
        Some("Paused") => Health::new(Status::Suspended, "paused by its owner"),
        Some("Failed") => Health::new(Status::Degraded, "has failed"),
        Some("Panic") => panic!("health cannot be told"),
        _ => Health::new(Status::Progressing, "starting"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_judged() {
        assert_eq!(check(Settings { replicas: 3 }), Verdict::allow());
        assert!(matches!(check(Settings { replicas: 1 }), Verdict::Allow(warnings) if warnings.len() == 1));
        assert!(matches!(check(Settings { replicas: 2 }), Verdict::Reject(reason) if reason.contains("odd")));
    }

    #[test]
    fn pods_are_projected() {
        let selection = Selection { hook: "pods", binding: "pods" };
        let kept = keep(selection, json!({"metadata": {"name": "a"}, "status": {"phase": "Running", "ip": "::1"}}));
        assert_eq!(kept, Ok(Kept { name: "a".to_owned(), phase: "Running".to_owned() }));
        let broken = keep(selection, json!({"metadata": {"name": "broken"}}));
        assert_eq!(broken.expect_err("a broken Pod").code(), "PodBroken");
        let kept = json!({"name": "a", "phase": "Running"});
        let outcome = TestContext::builder().snapshot("pods", vec![kept.clone()]).run_hook::<pods>().expect_ok();
        assert_eq!(outcome.values()["internal"]["pods"], json!([kept]));
    }

    #[test]
    fn health_is_judged_for_one_kind() {
        assert_eq!(assess(json!({"kind": "Pod"})), None);
        let health = assess(json!({"kind": "Database", "status": {"phase": "Failed"}})).expect("an opinion");
        assert_eq!(health.status, Status::Degraded);
    }
}
