//! `barbless plan`: what would happen is told, and nothing happens.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use barbless::bundle;
use barbless::driver::instance::{Bundles, Grants};
use barbless::plan::{Change, Document, Wish, foresee};
use barbless::report::Exit;
use barbless_domain::event::Failure;
use barbless_domain::grant::Grant;
use barbless_domain::identity::ApplicationId;
use barbless_domain::package::{Package, PackageSource};
use barbless_domain::queue::Time;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::world::{World, nothing, package, root};

const NOW: Time = Time(1_790_000_000_000);
const SCHEMA: &str = "type: object\nproperties:\n  replicas:\n    type: integer\n    minimum: 1\n    default: 1\n";

/// One bundle, whatever the version.
struct One(PackageSource);

impl Bundles for One {
    fn fetch<'a>(&'a self, _version: &'a str) -> BoxFuture<'a, Result<PackageSource, Failure>> {
        let source = self.0.clone();
        Box::pin(async move { Ok(source) })
    }
}

pub(crate) fn wish(world: &World, name: &str, source: &PackageSource, settings: Value) -> Wish {
    let package = Package::load(source.clone()).unwrap();
    Wish {
        id: ApplicationId::new(world.namespace(), name).unwrap(),
        package: package.manifest.name.clone(),
        version: package.manifest.version.to_string(),
        bundles: Arc::new(One(source.clone())),
        grants: Grants::AsAsked,
        settings,
        maintenance: false,
        take_over: false,
        rules: Vec::new(),
        skip_helm_hooks: false,
        show_secrets: false,
        now: NOW,
        cluster: "the cluster of a test".to_owned(),
    }
}

/// Makes a plan, and proves that nothing was written for it.
async fn plan(world: &World, wish: &Wish) -> Document {
    world.quiet().await;
    world.api.clear_journal();
    let client = world.cluster.client().clone();
    let document = foresee(client, world.services.sandbox.clone(), wish).await.unwrap();
    assert_eq!(world.api.writes(), [], "a plan only reads and asks what would be");
    assert!(!world.api.journal().is_empty());
    document
}

fn configured() -> PackageSource {
    package("plain")
        .with("openapi/settings.yaml", SCHEMA)
        .with("openapi/values.yaml", "x-extend:\n  schema: settings.yaml\ntype: object\n")
}

fn changes(document: &Document) -> Vec<(String, Change)> {
    document.objects.iter().map(|object| (object.target.name.clone(), object.change)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_nothing_installs_everything_and_one_after_that_changes_nothing() {
    let world = World::new().await;
    let source = configured();
    let document = plan(&world, &wish(&world, "plain", &source, nothing())).await;
    assert_eq!(changes(&document), [("plain-config".to_owned(), Change::Create)]);
    assert_eq!((document.exit(), document.action.as_str()), (Exit::Difference, "install"));
    assert_eq!((document.revision.from, document.revision.to), (None, Some(1)));
    let lines = &document.objects[0].difference.lines;
    assert!(lines.contains(&"+  replicas: \"1\"".to_owned()), "{lines:?}");

    let app = world.install("plain", source.clone(), nothing()).await;
    app.ready().await;
    app.handle.stop();
    let document = plan(&world, &wish(&world, "plain", &source, nothing())).await;
    assert_eq!(changes(&document), [("plain-config".to_owned(), Change::Unchanged)]);
    assert_eq!((document.exit(), document.action.as_str()), (Exit::Ok, "none"));
    assert_eq!(document.summary.words(), "plan: 0 to create, 0 to change, 1 unchanged; 0 hooks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_setting_shows_just_what_it_changes() {
    let world = World::new().await;
    let source = configured();
    let app = world.install("plain", source.clone(), nothing()).await;
    app.ready().await;
    app.handle.stop();
    let document = plan(&world, &wish(&world, "plain", &source, json!({"replicas": 3}))).await;
    assert_eq!(document.exit(), Exit::Difference);
    assert_eq!((document.revision.from, document.revision.to), (Some(1), Some(2)));
    let changed = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| line.starts_with(['+', '-'])).cloned().collect()
    };
    assert_eq!(changed(&document.settings.lines), ["-replicas: 1", "+replicas: 3"]);
    assert_eq!(changed(&document.objects[0].difference.lines), ["-  replicas: \"1\"", "+  replicas: \"3\""]);
    let again = plan(&world, &wish(&world, "plain", &source, json!({"replicas": 3}))).await;
    assert_eq!(
        serde_json::to_string(&document).unwrap(),
        serde_json::to_string(&again).unwrap(),
        "same input, same plan"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_object_is_deleted_and_somebody_elses_field_is_a_conflict() {
    let world = World::new().await;
    let second = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: plain-second\n";
    let app = world.install("plain", configured().with("templates/second.yaml", second), nothing()).await;
    app.ready().await;
    app.handle.stop();
    let document = plan(&world, &wish(&world, "plain", &configured(), nothing())).await;
    let expected = [("plain-config".to_owned(), Change::Unchanged), ("plain-second".to_owned(), Change::Delete)];
    assert_eq!(changes(&document), expected);
    assert!(document.steps.iter().any(|step| step.words == "delete ConfigMap/plain-second"), "{:?}", document.steps);

    let kind = kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap");
    let maps: kube::Api<kube::core::DynamicObject> = kube::Api::namespaced_with(
        world.cluster.client().clone(),
        world.namespace(),
        &kube::core::ApiResource::from_gvk(&kind),
    );
    let patch = kube::api::Patch::Merge(json!({"data": {"replicas": "7"}}));
    let params = kube::api::PatchParams { field_manager: Some("a-user".to_owned()), ..Default::default() };
    maps.patch("plain-config", &params, &patch).await.unwrap();
    let document = plan(&world, &wish(&world, "plain", &configured(), json!({"replicas": 3}))).await;
    assert_eq!(document.objects[0].change, Change::Conflict);
    let field = &document.objects[0].fields[0];
    assert_eq!((field.field.as_str(), field.manager.as_str(), field.settlement), (".data.replicas", "a-user", "open"));
    assert_eq!((document.exit(), document.problems[0].reason.as_str()), (Exit::Failed, "FieldConflict"));

    let rules = json!([{"object": "ConfigMap/plain-config", "field": ".data", "do": "take"}]);
    let rules = barbless_domain::release::conflict::rules(&rules).unwrap();
    let document = plan(&world, &Wish { rules, ..wish(&world, "plain", &configured(), json!({"replicas": 3})) }).await;
    assert_eq!((document.objects[0].change, document.exit()), (Change::Change, Exit::Difference));
    assert_eq!(document.objects[0].fields[0].settlement, "taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_a_plan_and_a_running_release_needs_nothing() {
    let world = World::new().await;
    world.kubernetes("v1.37.0");
    let source = bundle::read(&root().join("examples/miniflux")).unwrap();
    let settings = json!({"adminName": "reader"});
    // The password that this plan makes is in the values, in a Secret of a hook and in one of the release.
    let shown = plan(&world, &Wish { show_secrets: true, ..wish(&world, "miniflux", &source, settings.clone()) }).await;
    let shown = serde_json::to_value(&shown).unwrap();
    let values = shown.pointer("/hooks").unwrap().to_string();
    let secret =
        |rest: &str| rest.trim_start_matches(['\\', '"']).split(['\\', '"']).next().unwrap_or_default().to_owned();
    let made: Vec<String> = values.split("database: ").skip(1).map(secret).collect();
    assert!(made.len() >= 2 && made.iter().all(|secret| secret.len() >= 20), "{made:?}");
    let hidden = plan(&world, &wish(&world, "miniflux", &source, settings.clone())).await;
    let text = serde_json::to_string(&hidden).unwrap();
    assert!(made.iter().all(|secret| !text.contains(secret.as_str())), "{text}");
    assert!(text.contains("(redacted)"), "{text}");
    assert!(hidden.hooks.iter().any(|hook| hook.hook == "credentials" && hook.operations.len() == 1));
    // What the first run of the hook asks for is there when the second asks for it again.
    let asked = hidden.hooks.iter().filter(|hook| hook.hook == "credentials").flat_map(|hook| &hook.operations);
    let asked: Vec<Change> = asked.map(|operation| operation.object.change).collect();
    assert_eq!(asked, [Change::Create, Change::Unchanged]);
    assert!(hidden.hooks_later.iter().any(|hook| hook.hook == "endpoint"));

    let app = world.install("miniflux", source.clone(), settings.clone()).await;
    world.cluster.patch_application(&app.id, &json!({"packageVersion": "0.1.0"})).await.unwrap();
    app.ready().await;
    app.handle.stop();
    let document = plan(&world, &wish(&world, "miniflux", &source, settings.clone())).await;
    assert_eq!((document.exit(), &document.problems), (Exit::Ok, &vec![]), "{:#}", json!(document));

    let changed = plan(&world, &wish(&world, "miniflux", &source, json!({"adminName": "writer"}))).await;
    assert_eq!(changed.exit(), Exit::Difference);
    let secret = app.object("v1", "Secret", "d8a-miniflux-env").await.unwrap();
    let text = serde_json::to_string(&changed).unwrap();
    for value in secret["data"].as_object().unwrap().values() {
        assert!(!text.contains(value.as_str().unwrap()), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_granted_is_told_and_the_rest_is_foreseen() {
    let world = World::new().await;
    let source = bundle::read(&root().join("examples/miniflux")).unwrap();
    let mut permissions = Package::load(source.clone()).unwrap().manifest.permissions.clone();
    permissions.retain(|permission| !permission.names.iter().flatten().any(|name| name == "d8a-*-credentials"));
    let grants = Grants::Fixed(Grant::with(permissions));
    let document = plan(&world, &Wish { grants, ..wish(&world, "miniflux", &source, nothing()) }).await;
    let hook = document.hooks.iter().find(|hook| hook.hook == "credentials").unwrap();
    let denied = hook.operations[0].denied.as_ref().unwrap();
    assert_eq!(denied.reason, "NotGranted");
    assert!(denied.hint.is_some());
    assert_eq!(document.exit(), Exit::Denied);
    assert!(document.summary.create > 5, "{:?}", document.summary);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_are_an_error_as_they_are_for_the_host() {
    let world = World::new().await;
    let client = world.cluster.client().clone();
    let wish = wish(&world, "plain", &configured(), json!({"replicas": 0}));
    let report = foresee(client, world.services.sandbox.clone(), &wish).await.unwrap_err();
    assert_eq!(report.exit, Exit::Failed);
    assert!(report.message.contains("replicas: the value is less than"), "{report}");
}

fn barbless(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_barbless"))
        .args(arguments)
        .current_dir(root())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_helm_is_told_before_anything_is_planned() {
    let world = World::new().await;
    world
        .cluster
        .apply_object("helm", world.namespace(), &crate::release::helm_secret(world.namespace(), 3, "deployed", &[]).0)
        .await
        .unwrap();
    let client = world.cluster.client().clone();
    let own = wish(&world, "r", &configured(), json!({}));
    let refused = foresee(client, world.services.sandbox.clone(), &own).await.unwrap_err();
    assert_eq!(refused.code, "ReleaseOfHelm");
    let taking = Wish { take_over: true, ..wish(&world, "r", &configured(), json!({})) };
    assert_eq!(plan(&world, &taking).await.problems.len(), 0);
}

#[test]
fn the_examples_have_plans() {
    for (package, creates) in [("examples/minimal", 1), ("examples/miniflux", 7)] {
        let arguments = ["plan", package, "-o", "json", "--now", "2026-01-31T12:00:00Z"];
        let output = barbless(&arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document["summary"]["create"].as_u64().unwrap() >= creates, "{document:#}");
        assert!(
            document["steps"].as_array().unwrap().iter().all(|step| step["id"].is_u64() && step["after"].is_array())
        );
        assert_eq!(output.stdout, barbless(&arguments).stdout, "same input, same bytes");
        let table = barbless(&["plan", package]);
        assert_eq!(table.status.code(), Some(3));
        let table = text(&table.stdout);
        assert!(table.trim_end().lines().last().unwrap().starts_with("plan: "), "{table}");
        assert!(!table.contains('\u{1b}'), "no colours but for a terminal");
    }
}

/// `barbless dev` with a kept cluster, up to the moment at which the package is installed.
fn develop(package: &str, data: &Path) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_barbless"))
        .args(["dev", package, "--data-dir", data.to_str().unwrap()])
        .current_dir(root())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("apply objects")), "it was never installed");
    // Whatever is said later must not end it for want of a reader.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_kept_cluster_is_planned_against_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let plan = |more: &[&str]| {
        let mut arguments = vec!["plan", "examples/minimal", "--data-dir", data];
        arguments.extend(more);
        barbless(&arguments)
    };
    let nothing = plan(&[]);
    assert_eq!(nothing.status.code(), Some(5), "{}", text(&nothing.stderr));

    let mut child = develop("examples/minimal", folder.path());
    let open = plan(&[]);
    assert_eq!(open.status.code(), Some(1));
    assert!(text(&open.stderr).contains("error[DataDirInUse]"), "{}", text(&open.stderr));
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(child.wait().unwrap().success());

    let before = files(folder.path());
    let same = plan(&[]);
    assert_eq!(same.status.code(), Some(0), "{}{}", text(&same.stdout), text(&same.stderr));
    let settings = folder.path().join("settings.yaml");
    std::fs::write(&settings, "name: Ada\n").unwrap();
    let changed = plan(&["-f", settings.to_str().unwrap()]);
    std::fs::remove_file(&settings).unwrap();
    assert_eq!(changed.status.code(), Some(3), "{}", text(&changed.stderr));
    let shown = text(&changed.stdout);
    assert!(shown.contains("+  greeting: Hello, Ada!") && shown.contains("-  greeting: Hello, world!"), "{shown}");
    assert_eq!(before, files(folder.path()), "the kept cluster is as it was");
}

#[test]
fn a_cluster_of_a_kubeconfig_is_planned_against() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let devcluster = runtime.block_on(barbless_devcluster::DevCluster::start(Default::default())).unwrap();
    let server = runtime.block_on(devcluster.serve("127.0.0.1:0".parse().unwrap())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let url = format!("http://{}", server.local_addr());
    std::fs::write(&kubeconfig, barbless_devcluster::DevCluster::kubeconfig(&url)).unwrap();
    devcluster.clear_journal();
    let output = barbless(&["plan", "examples/minimal", "--kubeconfig", kubeconfig.to_str().unwrap(), "-o", "yaml"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("devcluster"), "{}", text(&output.stdout));
    assert_eq!(devcluster.writes(), []);
    assert!(devcluster.journal().iter().any(|request| request.dry_run), "the API server was asked what would be");
}
