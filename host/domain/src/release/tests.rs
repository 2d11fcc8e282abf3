use serde_json::json;

use super::*;

mod steps;

fn app() -> ApplicationId {
    ApplicationId::new("demo", "web").expect("a valid id")
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn annotated(mut object: Value, annotations: Value) -> Value {
    object["metadata"]["annotations"] = annotations;
    object
}

fn scope_of(gvk: &Gvk) -> Option<Scope> {
    match gvk.kind.as_str() {
        "ClusterRole"
        | "ClusterRoleBinding"
        | "CustomResourceDefinition"
        | "Namespace"
        | "PriorityClass"
        | "PersistentVolume"
        | "StorageClass"
        | "APIService"
        | "ValidatingWebhookConfiguration"
        | "MutatingWebhookConfiguration"
        | "IngressClass" => Some(Scope::Cluster),
        "Mystery" => None,
        _ => Some(Scope::Namespaced),
    }
}

fn input<'a>(application: &'a ApplicationId, objects: Vec<Value>, previous: &'a [InventoryItem]) -> PlanInput<'a> {
    let rendered = objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| Rendered { object, source: format!("templates/{index}.yaml") })
        .collect();
    PlanInput {
        application,
        package: "site",
        action: ReleaseAction::Install,
        rendered,
        definitions: Vec::new(),
        previous,
        maintenance: false,
        skip_hooks: false,
    }
}

fn plan_of(objects: Vec<Value>, previous: &[InventoryItem]) -> Result<Plan, Refused> {
    plan_for(ReleaseAction::Install, objects, previous)
}

fn plan_for(action: ReleaseAction, objects: Vec<Value>, previous: &[InventoryItem]) -> Result<Plan, Refused> {
    let application = app();
    let input = PlanInput { action, ..input(&application, objects, previous) };
    plan(input, scope_of, |target| target.gvk.kind != "ClusterRole")
}

/// The steps of a plan in the order in which they would run if each took as long as any other: what may go together is in
/// one line.
fn shown(plan: &Plan) -> Vec<String> {
    let mut execution = Execution::new(plan);
    let mut lines = Vec::new();
    loop {
        let begun = execution.start(usize::MAX);
        if begun.is_empty() {
            break;
        }
        let mut line: Vec<String> = Vec::new();
        for step in begun {
            let name = plan.target_of(step).map_or("?", |target| target.name.as_str());
            let word = match &step.work {
                Work::Stage { .. } => continue,
                Work::Define { .. } => format!("define {name}"),
                Work::Defined { .. } => format!("define {name}?"),
                Work::Apply { .. } => name.to_owned(),
                Work::Ready { .. } => format!("{name}?"),
                Work::Await { external } => format!("await {external}"),
                Work::Hook { .. } => format!("hook {name}"),
                Work::HookEnd { .. } => format!("hook {name}?"),
                Work::Delete { .. } => format!("-{name}"),
                Work::Gone { .. } => format!("-{name}?"),
            };
            line.push(word);
            execution.complete(step.id, Outcome::Done);
        }
        if !line.is_empty() {
            lines.push(line.join(" "));
        }
    }
    assert!(execution.is_complete(), "{lines:?}");
    lines
}

fn item(api_version: &str, kind: &str, name: &str, keep: bool) -> InventoryItem {
    let target = ObjectRef {
        gvk: Gvk::parse(api_version, kind).expect("a valid kind"),
        namespace: "demo".to_owned(),
        name: name.to_owned(),
    };
    InventoryItem { target, keep, transient: false, propagation: None, delete_dependencies: Vec::new() }
}

fn names(objects: &[ReleaseObject]) -> Vec<String> {
    objects.iter().map(|it| format!("{}/{}", it.target.gvk.kind, it.target.name)).collect()
}

#[test]
fn kinds_come_in_install_order_and_definitions_before_their_resources() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Mystery", "plural": "widgets"}},
    });
    let plan = plan_of(
        vec![
            object("example.org/v1", "Mystery", "one"),
            object("other.org/v1", "Alpha", "two"),
            object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hook"),
            object("networking.k8s.io/v1", "Ingress", "in"),
            object("apps/v1", "Deployment", "b"),
            object("apps/v1", "Deployment", "a"),
            object("apps/v1", "StatefulSet", "db"),
            object("v1", "Service", "svc"),
            definition,
            object("v1", "ConfigMap", "config"),
            object("v1", "ServiceAccount", "account"),
        ],
        &[],
    )
    .expect("a plan");
    assert_eq!(
        shown(&plan),
        [
            "account",
            "account? config",
            "config? widgets.example.org",
            "widgets.example.org?",
            "svc",
            // Inside a kind, the order of rendering remains; a foreign custom resource goes with the workloads.
            "svc? b a",
            "b? a? db",
            "db? in",
            "in? two",
            "two?",
            "hook",
            "hook?",
            "one",
            "one?",
        ]
    );
}

#[test]
fn labels_are_put_on_metadata_only() {
    let mut deployment = object("apps/v1", "Deployment", "web");
    deployment["spec"] = json!({"template": {"metadata": {"labels": {"app": "web"}}}, "paused": null});
    deployment["metadata"]["creationTimestamp"] = Value::Null;
    deployment["metadata"]["labels"] = json!({"packages.deckhouse.io/instance": "someone-else", "mine": "1"});
    let plan = plan_of(vec![deployment], &[]).expect("a plan");
    let object = &plan.objects().next().expect("one object").object;
    assert_eq!(
        object["metadata"],
        json!({
            "name": "web", "namespace": "demo",
            "labels": {
                "heritage": "deckhouse", "mine": "1",
                "packages.deckhouse.io/instance": "web", "packages.deckhouse.io/package": "site",
            },
        })
    );
    assert_eq!(object["spec"], json!({"template": {"metadata": {"labels": {"app": "web"}}}}));
}

#[test]
fn maintenance_puts_its_label_and_changes_the_digest() {
    let application = app();
    let digest_of = |maintenance| {
        let input = PlanInput { maintenance, ..input(&application, vec![object("v1", "ConfigMap", "a")], &[]) };
        let plan = plan(input, scope_of, |_| true).expect("a plan");
        let labels = plan.objects().next().expect("one object").object["metadata"]["labels"].clone();
        assert_eq!(labels.get(MAINTENANCE_LABEL), maintenance.then(|| json!("")).as_ref());
        plan.digest
    };
    assert_ne!(digest_of(false), digest_of(true));
}

#[test]
fn everything_that_is_wrong_is_reported_at_once() {
    let mut foreign = object("v1", "ConfigMap", "foreign");
    foreign["metadata"]["namespace"] = json!("kube-system");
    let mut bad_labels = object("v1", "ConfigMap", "labels");
    bad_labels["metadata"]["labels"] = json!({"replicas": 3});
    let refused = plan_of(
        vec![
            object("v1", "ConfigMap", "twice"),
            object("v1", "ConfigMap", "twice"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "x"}}),
            json!("text"),
            foreign,
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "admin"),
            object("v1", "ConfigMap", "../../nodes/x"),
            object("example.org/v1", "Mystery", "x"),
            bad_labels,
            annotated(object("v1", "ConfigMap", "policy"), json!({"helm.sh/resource-policy": "whatever"})),
        ],
        &[],
    )
    .expect_err("refused");
    let got: Vec<(&str, &str)> =
        refused.problems.iter().map(|problem| (problem.source_file.as_str(), problem.reason.as_str())).collect();
    assert_eq!(
        got,
        [
            ("templates/1.yaml", "DuplicateObject"),
            ("templates/2.yaml", "BadManifest"),
            ("templates/3.yaml", "BadManifest"),
            ("templates/4.yaml", "BadManifest"),
            ("templates/5.yaml", "ForeignNamespace"),
            ("templates/6.yaml", "ClusterScopeNotGranted"),
            ("templates/7.yaml", "BadManifest"),
            ("templates/8.yaml", "KindNotServed"),
            ("templates/9.yaml", "BadManifest"),
            ("templates/10.yaml", "BadManifest"),
        ]
    );
    assert!(refused.to_string().contains("ConfigMap kube-system/foreign: an application may only have objects"));
}

#[test]
fn names_that_the_api_server_refuses_are_told_with_the_template() {
    let refused = |api_version: &str, kind: &str, name: &str| {
        plan_of(vec![object(api_version, kind, name)], &[]).err().map(|refused| refused.problems[0].clone())
    };
    for name in ["Bad Name", "UPPER", "a_b", "-a", "a-", "a..b", "a.-b", ".", "a/b", "é"] {
        let problem = refused("v1", "ConfigMap", name).unwrap_or_else(|| panic!("{name} is accepted"));
        assert_eq!(
            (problem.reason.as_str(), problem.source_file.as_str()),
            ("BadManifest", "templates/0.yaml"),
            "{name}"
        );
    }
    let why = refused("v1", "ConfigMap", "Bad Name").map(|problem| problem.to_string());
    let expected =
        "templates/0.yaml: ConfigMap Bad Name: only lower-case letters, digits, '-' and '.' are allowed in the name";
    assert_eq!(why.as_deref(), Some(expected));
    for name in ["a", "a.b-c.d", "0", "a--b"] {
        assert_eq!(refused("v1", "ConfigMap", name), None, "{name}");
    }
    // Roles may be called as one likes.
    assert_eq!(refused("rbac.authorization.k8s.io/v1", "Role", "system:Read All"), None);
}

#[test]
fn a_package_cannot_bring_what_the_host_believes() {
    let mut owned = object("v1", "ConfigMap", "c");
    owned["metadata"]["labels"] = json!({"owner": "helm"});
    let mut typed = object("v1", "Secret", "s");
    typed["type"] = json!("helm.sh/release.v1");
    let objects = vec![
        object("v1", "Secret", "sh.helm.release.v1.web.v99"),
        owned,
        typed,
        object("deckhouse.io/v1alpha1", "Application", "other"),
    ];
    let refused = plan_of(objects, &[]).expect_err("refused");
    assert_eq!(refused.problems.len(), 4);
    assert!(refused.problems.iter().all(|problem| problem.reason == "HostObject"), "{refused}");
}

#[test]
fn versions_of_one_kind_are_duplicates_of_each_other() {
    let refused = plan_of(
        vec![
            object("autoscaling/v1", "HorizontalPodAutoscaler", "a"),
            object("autoscaling/v2", "HorizontalPodAutoscaler", "a"),
        ],
        &[],
    )
    .expect_err("refused");
    assert_eq!(refused.reason(), "DuplicateObject");
}

#[test]
fn lists_are_expanded() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [object("v1", "Secret", "a"), object("v1", "ConfigMap", "b")]});
    let empty = json!({"apiVersion": "v1", "kind": "List", "items": null});
    let named =
        json!({"apiVersion": "example.org/v1", "kind": "AccessList", "metadata": {"name": "n"}, "items": ["x"]});
    let plan = plan_of(vec![list, empty, named], &[]).expect("a plan");
    let objects: Vec<_> = plan.objects().cloned().collect();
    assert_eq!(names(&objects), ["Secret/a", "ConfigMap/b", "AccessList/n"]);
    assert_eq!(objects[2].object["items"], json!(["x"]));
    let refused = plan_of(vec![json!({"apiVersion": "v1", "kind": "List", "items": {}})], &[]).expect_err("refused");
    assert_eq!(refused.reason(), "BadManifest");
}

#[test]
fn cluster_scoped_objects_lose_their_namespace_and_name_their_application() {
    let mut role = object("scheduling.k8s.io/v1", "PriorityClass", "high");
    role["metadata"]["namespace"] = json!("demo");
    let plan = plan_of(vec![role], &[]).expect("a plan");
    let object = plan.objects().next().expect("one object");
    assert_eq!(object.target.namespace, "");
    assert_eq!(object.object["metadata"].get("namespace"), None);
    assert_eq!(object.object["metadata"]["annotations"], json!({"packages.deckhouse.io/application": "demo.web"}));
}

#[test]
fn hooks_are_split_off_and_ordered_by_weight_kind_and_name() {
    let hook = |kind: &str, api: &str, name: &str, weight: &str| {
        annotated(
            object(api, kind, name),
            json!({"helm.sh/hook": "pre-install, pre-upgrade", "helm.sh/hook-weight": weight}),
        )
    };
    let plan = plan_of(
        vec![
            hook("Job", "batch/v1", "a-job", "0"),
            hook("ConfigMap", "v1", "m-cm", "not a number"),
            hook("ServiceAccount", "v1", "z-sa", "0"),
            hook("Job", "batch/v1", "first", "-5"),
            hook("ConfigMap", "v1", "b-cm", "0"),
            annotated(object("v1", "ConfigMap", "odd"), json!({"helm.sh/hook": "crd-install"})),
            object("v1", "ConfigMap", "plain"),
        ],
        &[],
    )
    .expect("a plan");
    let order = |event| -> Vec<&str> { plan.hooks[&event].iter().map(|hook| hook.target.name.as_str()).collect() };
    assert_eq!(order(HookEvent::PreInstall), ["first", "z-sa", "b-cm", "m-cm", "a-job"]);
    assert_eq!(order(HookEvent::PreUpgrade), order(HookEvent::PreInstall));
    assert_eq!(plan.all_hooks().len(), 5);
    let objects: Vec<_> = plan.objects().cloned().collect();
    assert_eq!(names(&objects), ["ConfigMap/plain"]);
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
}

#[test]
fn given_delete_policies_replace_the_default() {
    let cases = [
        (json!({"helm.sh/hook": "test"}), vec![DeletePolicy::BeforeHookCreation]),
        (
            json!({"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "hook-succeeded"}),
            vec![DeletePolicy::HookSucceeded],
        ),
        (
            json!({"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "hook-failed, Before-Hook-Creation"}),
            vec![DeletePolicy::BeforeHookCreation, DeletePolicy::HookFailed],
        ),
        (
            json!({"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "never"}),
            vec![DeletePolicy::BeforeHookCreation],
        ),
    ];
    for (annotations, expected) in cases {
        let plan = plan_of(vec![annotated(object("batch/v1", "Job", "j"), annotations.clone())], &[]).expect("a plan");
        let policies: Vec<_> = plan.hooks[&HookEvent::Test][0].delete_policies.iter().copied().collect();
        assert_eq!(policies, expected, "{annotations}");
    }
}

#[test]
fn what_the_release_drops_is_pruned_in_order_unless_kept() {
    let previous = [
        item("v1", "ConfigMap", "stays", false),
        item("v1", "ConfigMap", "goes", false),
        item("apps/v1", "Deployment", "goes", false),
        item("v1", "Secret", "kept", true),
        // The same object under an older version.
        item("apps/v1beta1", "StatefulSet", "db", false),
        item("batch/v1", "Job", "became-hook", false),
    ];
    let plan = plan_of(
        vec![
            object("v1", "ConfigMap", "stays"),
            object("apps/v1", "StatefulSet", "db"),
            annotated(object("batch/v1", "Job", "became-hook"), json!({"helm.sh/hook": "post-install"})),
        ],
        &previous,
    )
    .expect("a plan");
    let shown: Vec<String> = plan.prune.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["Deployment.apps demo/goes", "ConfigMap demo/goes"]);
    assert_eq!(plan.kept, [previous[3].target.clone()]);
}

#[test]
fn the_digest_is_that_of_a_set() {
    let a = object("v1", "ConfigMap", "a");
    let b = object("v1", "ConfigMap", "b");
    assert_eq!(digest([&a, &b]), digest([&b, &a]));
    assert_ne!(digest([&a]), digest([&a, &b]));
    assert_ne!(digest([&a]), digest([&b]));
    assert!(digest([]).starts_with("sha256:") && digest([]).len() == 71);
}

#[test]
fn an_upgrade_is_needed_for_a_reason() {
    let missing = [item("v1", "ConfigMap", "gone", false).target];
    type Case<'a> = (Option<(ReleaseStatus, &'a str)>, &'a [ObjectRef], Option<UpgradeReason>);
    let cases: Vec<Case<'_>> = vec![
        (None, &[], Some(UpgradeReason::NoRelease)),
        (Some((ReleaseStatus::Failed, "d")), &[], Some(UpgradeReason::NotDeployed(ReleaseStatus::Failed))),
        (
            Some((ReleaseStatus::PendingUpgrade, "d")),
            &[],
            Some(UpgradeReason::NotDeployed(ReleaseStatus::PendingUpgrade)),
        ),
        (Some((ReleaseStatus::Deployed, "other")), &missing, Some(UpgradeReason::ManifestsChanged)),
        (Some((ReleaseStatus::Deployed, "d")), &missing, Some(UpgradeReason::ObjectsMissing(missing.to_vec()))),
        (Some((ReleaseStatus::Deployed, "d")), &[], None),
    ];
    for (last, missing, expected) in cases {
        assert_eq!(upgrade_needed(last, "d", missing), expected);
    }
    let shown = UpgradeReason::ObjectsMissing(vec![missing[0].clone(); 7]).to_string();
    assert!(shown.ends_with("and 2 more"), "{shown}");
}

#[test]
fn removal_takes_custom_resources_before_their_operator_and_their_definition() {
    let inventory = [
        item("v1", "Secret", "s", false),
        item("v1", "ServiceAccount", "sa", false),
        item("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.org", false),
        item("apps/v1", "Deployment", "operator", false),
        item("v1", "Service", "svc", false),
        item("example.org/v1", "Widget", "w", false),
        item("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hook", false),
        item("v1", "PersistentVolumeClaim", "data", true),
    ];
    let custom = BTreeSet::from([("example.org".to_owned(), "Widget".to_owned())]);
    let input = RemovalInput {
        application: &app(),
        package: "site",
        inventory: &inventory,
        defined: &custom,
        hooks: &BTreeMap::new(),
        skip_hooks: false,
    };
    let removal = plan_removal(&input);
    assert_eq!(
        shown(&removal),
        [
            "-hook",
            "-hook?",
            "-w",
            "-w?",
            "-svc",
            "-svc? -operator",
            "-operator?",
            "-widgets.example.org",
            "-widgets.example.org?",
            "-s",
            "-s? -sa",
            "-sa?",
        ]
    );
    assert_eq!(removal.kept.len(), 1);
}

#[test]
fn status_words_are_those_of_helm() {
    for (status, word) in [
        (ReleaseStatus::PendingInstall, "pending-install"),
        (ReleaseStatus::Deployed, "deployed"),
        (ReleaseStatus::Uninstalling, "uninstalling"),
    ] {
        assert_eq!(status.as_str(), word);
        assert_eq!(serde_json::to_value(status).expect("serialisable"), json!(word));
    }
}
