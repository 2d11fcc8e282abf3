//! A process that ends at any step of a life, and another that goes on there; and changes that come while it begins.

use std::sync::Arc;
use std::time::Duration;

use barbless::bundle;
use barbless::driver::instance::Grants;
use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::package::PackageSource;
use barbless_domain::pipeline::{App, DeletionStep};
use barbless_domain::run::RunRecord;
use serde_json::{Value, json};

use crate::world::{Running, World, root};

const STEPS: [DeletionStep; 7] = [
    DeletionStep::BeforeHooks,
    DeletionStep::Uninstall,
    DeletionStep::AfterHooks,
    DeletionStep::StopHooks,
    DeletionStep::Purge,
    DeletionStep::Undeploy,
    DeletionStep::Finalize,
];

fn miniflux() -> PackageSource {
    let source = bundle::read(&root().join("examples/miniflux")).unwrap();
    assert!(source.get("hooks/miniflux-hooks.wasm").is_some(), "tests/run builds the hooks first");
    source
}

async fn installed(world: &World, settings: Value) -> Running {
    world.kubernetes("1.37.0");
    let app = world.install("reader", miniflux(), settings).await;
    world.cluster.patch_application(&app.id, &json!({"packageVersion": "0.1.0"})).await.unwrap();
    app.ready().await;
    app
}

fn runs(app: &Running, stage: Stage) -> Vec<Arc<RunRecord>> {
    app.records().into_iter().filter(|record| record.trigger == Trigger::Lifecycle(stage)).collect()
}

/// The step that is written down in the object; nothing if there is no object any more.
async fn written(app: &Running) -> Option<Option<DeletionStep>> {
    let object = app.object("deckhouse.io/v1alpha1", "Application", app.id.name()).await?;
    let step = object.pointer("/status/deletionStep").cloned();
    Some(step.map(|step| serde_json::from_value(step).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_goes_on_in_another_process_at_the_step_that_was_written_down() {
    for step in STEPS {
        let world = World::new().await;
        let first = installed(&world, json!({"adminName": "ada"})).await;
        let reached = |app: &App| app.is_finished() || app.status().deletion_step >= Some(step);
        world.cluster.delete_application(&first.id).await.unwrap();
        first.wait("on its way", reached).await;
        first.handle.stop();
        let (id, shelf) = (first.id.clone(), first.shelf.clone());
        drop(first);

        let second = world.begin(&id, &shelf, Grants::AsAsked);
        let mut last = None;
        let mut gone = false;
        for _ in 0..12_000 {
            let Some(now) = written(&second).await else {
                gone = true;
                break;
            };
            assert!(now >= last, "stopped at {step:?}: {last:?} was written down, and then {now:?}");
            last = now;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(gone, "stopped at {step:?}: {:#?}", second.handle.state().status());

        // Each step is written down before it begins: one that was under way is repeated, one that was done is not.
        let before = runs(&second, Stage::BeforeDeleteHelm);
        let after = runs(&second, Stage::AfterDeleteHelm);
        let times = |runs: &[Arc<RunRecord>], own: DeletionStep| match (runs.len(), step > own) {
            (1, _) | (2, false) => true,
            (_, _) => false,
        };
        assert!(times(&before, DeletionStep::BeforeHooks), "stopped at {step:?}: {} runs before", before.len());
        assert!(times(&after, DeletionStep::AfterHooks), "stopped at {step:?}: {} runs after", after.len());
        for record in before.iter().chain(&after) {
            let input = world.services.runs.input(record).unwrap();
            assert_eq!(
                input.settings["adminName"],
                json!("ada"),
                "stopped at {step:?}: a hook has the settings of the user"
            );
        }
        let own = |name: &String| name != "kube-root-ca.crt" && name != "kubernetes";
        for kind in ["ConfigMap", "Secret", "Service"] {
            let mut left = second.names("v1", kind).await;
            left.retain(own);
            assert_eq!(left, Vec::<String>::new(), "stopped at {step:?}: {kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_change_is_lost_while_the_bindings_of_an_application_begin() {
    const FEEDS: usize = 60;
    let world = World::new().await;
    let writer = {
        let (cluster, namespace) = (world.cluster.clone(), world.namespace().to_owned());
        tokio::spawn(async move {
            for number in 0..FEEDS {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("user-{number}"), "labels": {"miniflux.example.com/feeds": "true"}},
                    "data": {"feed": format!("https://feeds.example.com/{number}.xml")},
                });
                cluster.apply_object("a-user", &namespace, &map).await.unwrap();
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        })
    };
    let app = installed(&world, json!({})).await;
    writer.await.unwrap();
    let mut missing = Vec::new();
    for _ in 0..1_200 {
        let mut text = String::new();
        for name in app.names("v1", "ConfigMap").await.iter().filter(|name| name.ends_with("-feeds")) {
            let object = app.object("v1", "ConfigMap", name).await;
            text.push_str(&object.map(|object| object["data"].to_string()).unwrap_or_default());
        }
        missing = (0..FEEDS).filter(|n| !text.contains(&format!("feeds.example.com/{n}.xml"))).collect();
        if missing.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(missing, Vec::<usize>::new(), "feeds that no object shows");
}

/// Objects of the namespace, release records included: names, and which object of that name and which state of it that
/// is. Without the heartbeat, which a schedule writes all the time. A record may be brought up to date: its state is left
/// out.
async fn objects(app: &Running) -> Vec<(String, Value, Value)> {
    let mut objects = Vec::new();
    for (api_version, kind) in [("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Service"), ("apps/v1", "Deployment")] {
        for name in app.names(api_version, kind).await.into_iter().filter(|name| !name.ends_with("-heartbeat")) {
            let object = app.object(api_version, kind, &name).await.unwrap();
            let of = |field: &str| object["metadata"][field].clone();
            let state = if name.starts_with("sh.helm.release.") { Value::Null } else { of("resourceVersion") };
            objects.push((format!("{kind} {name}"), of("uid"), state));
        }
    }
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_an_application_that_is_as_wanted_touches_none_of_its_objects() {
    let world = World::new().await;
    let first = installed(&world, json!({"adminName": "ada"})).await;
    world.quiet().await;
    let before = objects(&first).await;
    assert!(
        before.iter().any(|(name, ..)| name.ends_with("-endpoint")),
        "what an afterHelm hook found out makes an object: {before:#?}"
    );
    for restart in 1..=2 {
        let hooks = runs(&first, Stage::AfterHelm).len();
        first.handle.stop();
        world.quiet().await;
        let second = world.begin(&first.id, &first.shelf, Grants::AsAsked);
        // Runs are kept for both: the hook has run once more in this process.
        for _ in 0..1_200 {
            if runs(&second, Stage::AfterHelm).len() > hooks {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(runs(&second, Stage::AfterHelm).len() > hooks, "restart {restart}: the hook does not run");
        second.ready().await;
        world.quiet().await;
        assert_eq!(objects(&second).await, before, "restart {restart}");
        second.handle.stop();
    }
}
