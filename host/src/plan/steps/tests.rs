use barbless_domain::grant::Scope;
use barbless_domain::identity::{ApplicationId, Gvk};
use barbless_domain::release::{InventoryItem, PlanInput, ReleaseAction, Rendered, plan};
use serde_json::{Value, json};

use super::*;

/// The plan of an upgrade to these objects from those of an earlier revision.
pub(crate) fn plan_of(objects: Vec<Value>, previous: &[Value]) -> Plan {
    let application = ApplicationId::new("demo", "web").expect("a valid id");
    let rendered = objects.into_iter().map(|object| Rendered { object, source: "templates/all.yaml".to_owned() });
    let previous = InventoryItem::of_objects(previous);
    let input = PlanInput {
        application: &application,
        package: "site",
        action: ReleaseAction::Upgrade,
        rendered: rendered.collect(),
        definitions: Vec::new(),
        previous: &previous,
        maintenance: false,
        skip_hooks: false,
    };
    plan(input, |_: &Gvk| Some(Scope::Namespaced), |_| false).expect("a plan")
}

pub(crate) fn object(api_version: &str, kind: &str, name: &str, annotations: Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": "demo"});
    metadata["annotations"] = annotations;
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

fn shown(plan: &Plan) -> Vec<String> {
    let lines = stages(plan).into_iter().map(|Stage { acts, after }| {
        let acts: Vec<String> = acts.into_iter().map(|(act, names)| format!("{act} {}", names.join(", "))).collect();
        format!("{} | {}", acts.join("; "), after.join(", "))
    });
    lines.collect()
}

#[test]
fn what_begins_together_is_one_stage() {
    let plan = plan_of(
        vec![
            object("batch/v1", "Job", "migrate", json!({"helm.sh/hook": "pre-upgrade"})),
            object("v1", "ConfigMap", "b", json!({})),
            object("v1", "ConfigMap", "a", json!({})),
            object("apps/v1", "Deployment", "web", json!({})),
        ],
        &[object("v1", "ConfigMap", "old", json!({}))],
    );
    assert_eq!(
        shown(&plan),
        [
            "pre-upgrade hook Job.batch/migrate | ",
            "apply ConfigMap/b, ConfigMap/a | hook Job.batch/migrate has ended",
            "apply Deployment.apps/web | ConfigMap applied",
            "delete ConfigMap/old | workloads ready",
        ]
    );
}

#[test]
fn steps_name_their_objects_and_what_they_wait_for() {
    let plan = plan_of(vec![object("v1", "ConfigMap", "a", json!({})), object("v1", "Service", "s", json!({}))], &[]);
    let steps = steps(&plan);
    for (index, step) in steps.iter().enumerate() {
        assert_eq!(step.id as usize, index);
        assert!(step.after.iter().all(|after| *after < step.id), "{step:?}");
    }
    let words: Vec<&str> = steps.iter().map(|step| step.words.as_str()).collect();
    assert!(words.contains(&"apply ConfigMap/a"), "{words:?}");
    assert!(words.contains(&"wait until Service/s is ready"), "{words:?}");
    let json = serde_json::to_value(&steps[0]).expect("JSON");
    assert_eq!((&json["do"], &json["target"]["name"]), (&json!("apply"), &json!("a")));
}
