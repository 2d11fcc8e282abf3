//! The choke point, as an attacker would try it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::identity::ObjectRef;
use crate::operation::{Propagation, Subresource};

fn app() -> ApplicationId {
    ApplicationId::new("demo", "web").unwrap()
}

fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::parse(api_version, kind).unwrap()
}

fn all_verbs() -> Vec<Verb> {
    vec![Verb::Watch, Verb::Create, Verb::Apply, Verb::Patch, Verb::Delete]
}

fn line(groups: &[&str], kinds: &[&str], cluster: bool) -> Permission {
    let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Permission { api_groups: own(groups), kinds: own(kinds), verbs: all_verbs(), names: None, cluster }
}

/// Everything, as far as `*` goes.
fn everything() -> Grant {
    Grant::with(vec![line(&["*"], &["*"], true)])
}

fn operation(gvk: Gvk, action: Action) -> Operation {
    Operation {
        target: ObjectRef { gvk, namespace: String::new(), name: "x".into() },
        action,
        subresource: None,
        ignore_missing_object: false,
        on_failure: false,
    }
}

fn config_map(action: Action) -> Operation {
    operation(gvk("v1", "ConfigMap"), action)
}

fn apply(object: Value) -> Operation {
    config_map(Action::Apply { object })
}

fn merge(patch: Value) -> Operation {
    config_map(Action::MergePatch { patch })
}

fn json_patch(patch: Value) -> Operation {
    config_map(Action::JsonPatch { patch })
}

fn reason(decision: Decision) -> String {
    match decision {
        Decision::Allow => "Allow".to_owned(),
        Decision::Deny(denial) => {
            assert!(!denial.why.is_empty() && !denial.hint.is_empty(), "a denial says why and what to do: {denial:?}");
            denial.reason
        }
    }
}

fn operate(grant: &Grant, operation: &Operation, scope: Scope) -> String {
    reason(allows(&app(), grant, Request::Operate { operation, scope }))
}

fn namespaced(operation: &Operation) -> String {
    operate(&everything(), operation, Scope::Namespaced)
}

fn table(cases: Vec<(&str, Operation, &str)>) {
    for (name, operation, expected) in cases {
        assert_eq!(namespaced(&operation), expected, "{name}");
    }
}

fn with_metadata(metadata: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    object["metadata"] = metadata;
    object
}

#[test]
fn an_object_is_the_target_of_its_operation() {
    table(vec![
        ("a plain object passes", apply(with_metadata(json!({"name": "x"}))), "Allow"),
        ("its own namespace passes", apply(with_metadata(json!({"name": "x", "namespace": "demo"}))), "Allow"),
        ("fields that are left out are filled in later", apply(json!({"data": {"a": "b"}})), "Allow"),
        ("another namespace is refused", apply(with_metadata(json!({"namespace": "kube-system"}))), "ForeignNamespace"),
        ("a namespace that is no text is refused", apply(with_metadata(json!({"namespace": 1}))), "ForeignNamespace"),
        ("another name is refused", apply(with_metadata(json!({"name": "y"}))), "BadOperation"),
        ("another kind is refused", apply(json!({"apiVersion": "v1", "kind": "Secret"})), "BadOperation"),
        ("another group is refused", apply(json!({"apiVersion": "apps/v1", "kind": "ConfigMap"})), "BadOperation"),
        ("a generated name is refused", apply(with_metadata(json!({"generateName": "x-"}))), "BadOperation"),
        ("metadata must be an object", apply(with_metadata(json!([]))), "BadOperation"),
        ("an object must be an object", apply(json!([1])), "BadOperation"),
        ("labels must be texts", apply(with_metadata(json!({"labels": {"a": 1}}))), "BadOperation"),
        ("labels must be an object", apply(with_metadata(json!({"labels": "a"}))), "BadOperation"),
    ]);
    for field in ["managedFields", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "selfLink"] {
        assert_eq!(namespaced(&apply(with_metadata(json!({field: "1"})))), "BadOperation", "{field} is forged");
        let snapshot = config_map(Action::CreateOrUpdate { object: with_metadata(json!({field: "1"})) });
        assert_eq!(namespaced(&snapshot), "Allow", "{field} of a snapshot that replaces its object");
    }
}

#[test]
fn the_target_itself_is_examined() {
    let target = |change: fn(&mut Operation)| {
        let mut operation = apply(json!({}));
        change(&mut operation);
        operation
    };
    table(vec![
        ("the own namespace passes", target(|o| o.target.namespace = "demo".into()), "Allow"),
        ("another namespace", target(|o| o.target.namespace = "other".into()), "ForeignNamespace"),
        ("a name that climbs", target(|o| o.target.name = "../x".into()), "BadOperation"),
        ("a name with a slash", target(|o| o.target.name = "a/b".into()), "BadOperation"),
        ("a name with an escape", target(|o| o.target.name = "%2e%2e".into()), "BadOperation"),
        ("a name of dots", target(|o| o.target.name = "..".into()), "BadOperation"),
        ("no name", target(|o| o.target.name.clear()), "BadOperation"),
        ("a name beyond the length", target(|o| o.target.name = "a".repeat(254)), "BadOperation"),
        ("a name in another script", target(|o| o.target.name = "wéb".into()), "BadOperation"),
        ("no version", target(|o| o.target.gvk.version.clear()), "BadOperation"),
        ("no kind", target(|o| o.target.gvk.kind.clear()), "BadOperation"),
        (
            "a group that hides in the version",
            target(|o| {
                o.target.gvk =
                    Gvk { group: String::new(), version: "coordination.k8s.io/v1".into(), kind: "Lease".into() }
            }),
            "BadOperation",
        ),
    ]);
}

#[test]
fn no_grant_reaches_the_kinds_of_the_host_and_ways_around_it() {
    let grant = Grant::with(vec![
        line(&["*"], &["*"], true),
        line(
            &["", "deckhouse.io", "coordination.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io"],
            &["Application", "Lease", "CustomResourceDefinition", "TokenRequest", "List", "Binding"],
            true,
        ),
    ]);
    for (api_version, kind) in [
        ("deckhouse.io/v1alpha1", "Application"),
        ("coordination.k8s.io/v1", "Lease"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("authentication.k8s.io/v1", "TokenReview"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("grants.barbless.dev/v1", "Grant"),
        ("v1", "List"),
        ("v1", "list"),
        ("v1", "Binding"),
        ("policy/v1", "Eviction"),
    ] {
        for scope in [Scope::Namespaced, Scope::Cluster] {
            let kind = gvk(api_version, kind);
            let apply = operation(kind.clone(), Action::Apply { object: json!({}) });
            assert_eq!(operate(&grant, &apply, scope), "HostObject", "{kind}");
            let watch = Request::Watch { gvk: &kind, names: &[], scope };
            assert_eq!(reason(allows(&app(), &grant, watch)), "HostObject", "watch of {kind}");
        }
    }
}

#[test]
fn a_star_covers_no_kind_that_gives_rights_to_others() {
    let kinds = [
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ("apiregistration.k8s.io/v1", "APIService"),
    ];
    for (api_version, kind) in kinds {
        let target = gvk(api_version, kind);
        let wanted = operation(target.clone(), Action::Apply { object: json!({}) });
        for (groups, kinds, expected) in [
            ("*", "*", "NotGranted"),
            ("*", kind, "NotGranted"),
            (target.group.as_str(), "*", "NotGranted"),
            (target.group.as_str(), kind, "Allow"),
        ] {
            let grant = Grant::with(vec![line(&[groups], &[kinds], true)]);
            let scope = if kind == "Role" { Scope::Namespaced } else { Scope::Cluster };
            assert_eq!(operate(&grant, &wanted, scope), expected, "{groups} {kinds} for {target}");
        }
    }
    let event = operation(gvk("events.k8s.io/v1", "Event"), Action::Create { object: json!({}) });
    assert_eq!(namespaced(&event), "Allow", "events are ordinary objects");
}

#[test]
fn cluster_scoped_kinds_need_a_grant_for_the_cluster_whatever_the_caller_believes() {
    let grant = Grant::with(vec![line(&["*"], &["*"], false)]);
    for (api_version, kind) in [("v1", "Node"), ("v1", "Namespace"), ("storage.k8s.io/v1", "StorageClass")] {
        let kind = gvk(api_version, kind);
        for scope in [Scope::Namespaced, Scope::Cluster] {
            let wanted = operation(kind.clone(), Action::MergePatch { patch: json!({}) });
            assert_eq!(operate(&grant, &wanted, scope), "NotGranted", "{kind}");
            assert_eq!(operate(&everything(), &wanted, scope), "Allow", "{kind}");
            let watch = Request::Watch { gvk: &kind, names: &[], scope };
            assert_eq!(reason(allows(&app(), &grant, watch)), "NotGranted", "watch of {kind}");
        }
    }
    let object = json!({"metadata": {"namespace": "demo"}});
    let node = operation(gvk("v1", "Node"), Action::Apply { object });
    assert_eq!(operate(&everything(), &node, Scope::Cluster), "BadOperation", "a namespace of what has none");
}

#[test]
fn a_watch_selects_by_names_that_are_names() {
    let kind = gvk("v1", "ConfigMap");
    let mut limited = line(&[""], &["ConfigMap"], false);
    limited.names = Some(vec!["web-*".into()]);
    let grant = Grant::with(vec![limited]);
    let watch = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        reason(allows(&app(), &grant, Request::Watch { gvk: &kind, names: &names, scope: Scope::Namespaced }))
    };
    assert_eq!(watch(&["web-a", "web-b"]), "Allow");
    assert_eq!(watch(&["web-a", "db"]), "NotGranted");
    assert_eq!(watch(&[]), "NotGranted", "all names are more than some");
    assert_eq!(watch(&[""]), "BadBinding", "an empty name would select all");
    assert_eq!(watch(&["web-a,metadata.namespace!=demo"]), "BadBinding", "a field selector is not smuggled in");
    assert_eq!(watch(&vec!["web-a"; limits::NAMES_PER_BINDING + 1]), "BadBinding");
}

#[test]
fn objects_of_others_are_never_touched() {
    let live = |labels: Value| with_metadata(json!({"name": "x", "labels": labels}));
    let cases = [
        ("an object without label is granted by name", live(json!({})), "Allow"),
        ("an object of the application", live(json!({INSTANCE_LABEL: "web"})), "Allow"),
        ("an object of another application", live(json!({INSTANCE_LABEL: "db"})), "ForeignObject"),
        ("a label that is no text", live(json!({INSTANCE_LABEL: ["web"]})), "ForeignObject"),
        ("a release record", live(json!({"owner": "helm"})), "HostObject"),
        ("an object of the host", live(json!({"app.kubernetes.io/name": "barbless"})), "HostObject"),
        ("managed by Helm is what many charts say", live(json!({"app.kubernetes.io/managed-by": "Helm"})), "Allow"),
    ];
    for (name, object, expected) in cases {
        for action in
            [Action::Delete { propagation: Propagation::Background }, Action::MergePatch { patch: json!({"data": {}}) }]
        {
            assert_eq!(reason(allows_object(&app(), &config_map(action), &object)), expected, "{name}");
        }
        assert_eq!(namespaced(&apply(object)), expected, "given: {name}");
    }
    let mut record = operation(gvk("v1", "Secret"), Action::Delete { propagation: Propagation::Background });
    record.target.name = "sh.helm.release.v1.web.v1".into();
    assert_eq!(reason(allows_object(&app(), &record, &json!({}))), "HostObject");
}

#[test]
fn what_the_api_server_wrote_into_a_live_object_is_no_reason_to_refuse() {
    let live = with_metadata(json!({
        "name": "x", "namespace": "demo", "uid": "u", "resourceVersion": "7", "generateName": "x-",
        "managedFields": [{"manager": "kubectl"}], "finalizers": ["foregroundDeletion"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1"}],
        "annotations": {"packages.deckhouse.io/managed-by": "deckhouse"},
    }));
    assert_eq!(reason(allows_object(&app(), &merge(json!({})), &live)), "Allow");
    assert_eq!(reason(check_result(&app(), &merge(json!({})), &live, &live)), "Allow");
}

#[test]
fn labels_and_annotations_of_the_host_are_the_hosts() {
    let label = |key: &str, value: &str| json!({"labels": {key: value}});
    let note = |key: &str| json!({"annotations": {key: "true"}});
    let cases = [
        ("the own instance", label(INSTANCE_LABEL, "web"), "Allow"),
        ("the package", label(PACKAGE_LABEL, "shop"), "Allow"),
        ("the own health", label("health.deckhouse.io/package", "demo.web"), "Allow"),
        ("an annotation of the author", note("example.com/seen"), "Allow"),
        ("protection from the purge", note("helm.sh/resource-policy"), "Allow"),
        ("a domain that only sounds alike", note("notpackages.deckhouse.io.example.com/x"), "Allow"),
        ("another instance", label(INSTANCE_LABEL, "db"), "ForeignObject"),
        ("the health of another", label("health.deckhouse.io/package", "demo.db"), "HostMetadata"),
        ("maintenance", label("maintenance.deckhouse.io/no-resource-reconciliation", ""), "HostMetadata"),
        ("the instance as annotation", note(INSTANCE_LABEL), "HostMetadata"),
        ("an annotation of the host", note("packages.deckhouse.io/skip-delete-hooks"), "HostMetadata"),
        ("adoption by Helm", note("meta.helm.sh/release-name"), "HostMetadata"),
        ("the host's own domain", note("apply.barbless.dev/owner"), "HostMetadata"),
        ("the account of a token", note("kubernetes.io/service-account.name"), "HostMetadata"),
    ];
    for (name, metadata, expected) in cases {
        let object = with_metadata(metadata);
        assert_eq!(namespaced(&apply(object.clone())), expected, "given: {name}");
        assert_eq!(namespaced(&merge(object.clone())), expected, "merge patch: {name}");
        let jq = config_map(Action::JqPatch { program: ".".into() });
        let before = with_metadata(json!({}));
        assert_eq!(reason(check_result(&app(), &jq, &before, &object)), expected, "result: {name}");
    }
}

#[test]
fn owners_are_well_formed_and_finalizers_have_a_domain() {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"});
    let changed = |change: fn(&mut Value)| {
        let mut owner = owner.clone();
        change(&mut owner);
        json!({"ownerReferences": [owner]})
    };
    let finalizer = |name: &str| json!({"finalizers": [name]});
    let cases = [
        ("an owner", changed(|_| ()), "Allow"),
        ("an owner that waits", changed(|o| o["blockOwnerDeletion"] = json!(true)), "Allow"),
        ("an owner without uid", changed(|o| o["uid"] = json!("")), "BadOwner"),
        ("an owner without kind", changed(|o| o["kind"] = json!(null)), "BadOwner"),
        ("an owner in a namespace", changed(|o| o["namespace"] = json!("other")), "BadOwner"),
        ("a flag that is none", changed(|o| o["controller"] = json!("yes")), "BadOwner"),
        ("an owner that is no object", json!({"ownerReferences": ["p"]}), "BadOwner"),
        ("owners that are no list", json!({"ownerReferences": {"a": 1}}), "BadOperation"),
        (
            "too many owners",
            json!({"ownerReferences": vec![owner.clone(); limits::OWNERS_PER_OBJECT + 1]}),
            "BadOperation",
        ),
        ("a finalizer of the author", finalizer("example.com/backup"), "Allow"),
        ("foreground deletion", finalizer("foregroundDeletion"), "BadFinalizer"),
        ("orphaning", finalizer("orphan"), "BadFinalizer"),
        ("a finalizer of the platform", finalizer("application.deckhouse.io/x"), "BadFinalizer"),
        ("a finalizer of the host", finalizer("barbless.dev/x"), "BadFinalizer"),
        ("a finalizer without name", finalizer("example.com/"), "BadFinalizer"),
        ("a finalizer that is no text", json!({"finalizers": [1]}), "BadFinalizer"),
    ];
    for (name, metadata, expected) in cases {
        let object = with_metadata(metadata);
        assert_eq!(namespaced(&apply(object.clone())), expected, "given: {name}");
        let before = with_metadata(json!({}));
        assert_eq!(reason(check_result(&app(), &merge(json!({})), &before, &object)), expected, "result: {name}");
        if expected != "BadOperation" {
            assert_eq!(
                reason(check_result(&app(), &merge(json!({})), &object, &object)),
                "Allow",
                "what was there before is not the hook's doing: {name}"
            );
        }
    }
}

#[test]
fn no_operation_makes_credentials() {
    for kind in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
        let token = json!({"apiVersion": "v1", "kind": "Secret", "type": kind});
        let create = operation(gvk("v1", "Secret"), Action::Create { object: token.clone() });
        assert_eq!(namespaced(&create), "Credentials");
        let patch = operation(gvk("v1", "Secret"), Action::MergePatch { patch: json!({}) });
        let before = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque"});
        assert_eq!(reason(check_result(&app(), &patch, &before, &token)), "Credentials");
    }
    let plain = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"});
    assert_eq!(namespaced(&operation(gvk("v1", "Secret"), Action::Create { object: plain })), "Allow");
}

#[test]
fn a_patch_leaves_an_object_what_it_was() {
    let before = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
        "metadata": {
            "name": "x", "namespace": "demo", "uid": "u", "resourceVersion": "7",
            "labels": {INSTANCE_LABEL: "web"}, "managedFields": [{"manager": "m"}],
            "finalizers": ["application.deckhouse.io/x", "example.com/y"],
        },
    });
    let change = |pointer: &str, value: Value| {
        let mut after = before.clone();
        *after.pointer_mut(pointer).unwrap() = value;
        after
    };
    let cases = [
        ("data changes", change("/data/a", json!("2")), "Allow"),
        ("an own finalizer goes", change("/metadata/finalizers", json!(["application.deckhouse.io/x"])), "Allow"),
        ("a finalizer of the host goes", change("/metadata/finalizers", json!([])), "BadFinalizer"),
        ("the name changes", change("/metadata/name", json!("y")), "BadOperation"),
        ("the name goes", change("/metadata/name", json!(null)), "BadPatch"),
        ("the namespace changes", change("/metadata/namespace", json!("other")), "ForeignNamespace"),
        ("the uid changes", change("/metadata/uid", json!("v")), "BadPatch"),
        ("the version changes", change("/metadata/resourceVersion", json!("1")), "BadPatch"),
        ("field owners are forged", change("/metadata/managedFields", json!([])), "BadPatch"),
        ("the kind changes", change("/kind", json!("Secret")), "BadOperation"),
        ("the kind goes", change("/kind", json!(null)), "BadPatch"),
        ("the metadata goes", change("/metadata", json!(null)), "BadPatch"),
        (
            "the object goes to another application",
            change("/metadata/labels", json!({INSTANCE_LABEL: "db"})),
            "ForeignObject",
        ),
        ("the object is given up", change("/metadata/labels", json!({})), "HostMetadata"),
        ("the object becomes a list", json!([]), "BadOperation"),
    ];
    for (name, after, expected) in cases {
        assert_eq!(reason(check_result(&app(), &merge(json!({})), &before, &after)), expected, "{name}");
    }
    let claimed = with_metadata(json!({"labels": {INSTANCE_LABEL: "web"}}));
    assert_eq!(reason(check_result(&app(), &merge(json!({})), &with_metadata(json!({})), &claimed)), "Allow");
    let foreign = with_metadata(json!({"labels": {INSTANCE_LABEL: "db"}}));
    assert_eq!(reason(check_result(&app(), &merge(json!({})), &foreign, &claimed)), "ForeignObject", "no capture");
}

#[test]
fn a_replacement_may_leave_out_what_the_api_server_writes() {
    let before = with_metadata(json!({"name": "x", "namespace": "demo", "uid": "u", "resourceVersion": "7"}));
    let object = with_metadata(json!({"name": "x"}));
    let replace = config_map(Action::CreateOrUpdate { object: object.clone() });
    assert_eq!(reason(check_result(&app(), &replace, &before, &object)), "Allow");
    let other = with_metadata(json!({"name": "x", "uid": "v"}));
    assert_eq!(reason(check_result(&app(), &replace, &before, &other)), "BadPatch", "but not to change it");
}

#[test]
fn patches_are_bounded_and_well_formed() {
    let step = |op: &str, path: &str| json!({"op": op, "path": path, "value": 1, "from": "/data/a"});
    let copies = |count: usize| Value::from(vec![step("copy", "/data/b"); count]);
    let steps = |count: usize| Value::from(vec![step("add", "/data/b"); count]);
    table(vec![
        ("a merge patch", merge(json!({"spec": null, "data": {"a": "b"}})), "Allow"),
        ("a merge patch that is a list", merge(json!([])), "BadPatch"),
        ("a merge patch that is nothing", merge(json!(null)), "BadPatch"),
        ("a strategic directive", merge(json!({"spec": {"list": [{"$patch": "replace"}]}})), "BadPatch"),
        ("a merge patch of another kind", merge(json!({"kind": "Secret"})), "BadOperation"),
        ("a merge patch of managed fields", merge(json!({"metadata": {"managedFields": null}})), "BadPatch"),
        ("a merge patch that removes the name", merge(json!({"metadata": {"name": null}})), "BadPatch"),
        (
            "a merge patch that takes the label off",
            merge(json!({"metadata": {"labels": {INSTANCE_LABEL: null}}})),
            "HostMetadata",
        ),
        ("a JSON patch", json_patch(json!([step("add", "/data/a~1b~0c/-"), step("test", "/kind")])), "Allow"),
        ("a JSON patch that is an object", json_patch(json!({"op": "add"})), "BadPatch"),
        ("an unknown word", json_patch(json!([step("merge", "/data")])), "BadPatch"),
        ("a step that is no object", json_patch(json!(["add"])), "BadPatch"),
        ("a path that is no text", json_patch(json!([{"op": "add", "path": 1, "value": 1}])), "BadPatch"),
        ("a path without slash", json_patch(json!([step("add", "data")])), "BadPatch"),
        ("a path with a bad escape", json_patch(json!([step("add", "/a~2")])), "BadPatch"),
        ("a path without end", json_patch(json!([step("add", &"/a".repeat(5000))])), "BadPatch"),
        ("an add without value", json_patch(json!([{"op": "add", "path": "/data"}])), "BadPatch"),
        ("a copy from nowhere", json_patch(json!([{"op": "copy", "path": "/data"}])), "BadPatch"),
        ("a move into itself", json_patch(json!([{"op": "move", "from": "/a", "path": "/a/b"}])), "BadPatch"),
        ("a move of the uid", json_patch(json!([{"op": "move", "from": "/metadata/uid", "path": "/a"}])), "BadPatch"),
        ("the kind", json_patch(json!([step("replace", "/kind")])), "BadPatch"),
        ("field owners", json_patch(json!([step("remove", "/metadata/managedFields/0")])), "BadPatch"),
        ("a name that only begins alike", json_patch(json!([step("add", "/kinder")])), "Allow"),
        ("removal of the whole", json_patch(json!([step("remove", "")])), "BadPatch"),
        ("as many copies as allowed", json_patch(copies(limits::JSON_PATCH_COPIES)), "Allow"),
        ("a copy bomb", json_patch(copies(limits::JSON_PATCH_COPIES + 1)), "BadPatch"),
        ("as many steps as allowed", json_patch(steps(limits::JSON_PATCH_STEPS)), "Allow"),
        ("too many steps", json_patch(steps(limits::JSON_PATCH_STEPS + 1)), "BadPatch"),
        ("a jq program", config_map(Action::JqPatch { program: ".data.a = 1".into() }), "Allow"),
        ("no jq program", config_map(Action::JqPatch { program: " ".into() }), "BadPatch"),
        (
            "a huge jq program",
            config_map(Action::JqPatch { program: ".".repeat(limits::JQ_PROGRAM_BYTES + 1) }),
            "BadPatch",
        ),
    ]);
}

#[test]
fn subresources_are_patched_or_applied_and_a_scale_is_one() {
    let deployment = |action: Action, subresource| Operation {
        subresource: Some(subresource),
        ..operation(gvk("apps/v1", "Deployment"), action)
    };
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}});
    let object = || scale.clone();
    table(vec![
        ("a scale", deployment(Action::Apply { object: object() }, Subresource::Scale), "Allow"),
        ("a scale as status", deployment(Action::Apply { object: object() }, Subresource::Status), "BadOperation"),
        ("creation", deployment(Action::Create { object: json!({}) }, Subresource::Status), "BadOperation"),
        (
            "deletion",
            deployment(Action::Delete { propagation: Propagation::Orphan }, Subresource::Status),
            "BadOperation",
        ),
    ]);
}

/// What a pattern means, in the most obvious way.
fn reference_glob(pattern: &[char], name: &[char]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|at| reference_glob(rest, &name[at..])),
        Some((first, rest)) => name.split_first().is_some_and(|(c, name)| c == first && reference_glob(rest, name)),
    }
}

fn actions() -> impl Strategy<Value = Action> {
    let object = prop_oneof![
        Just(json!({})),
        Just(json!({"metadata": {"name": "x", "labels": {INSTANCE_LABEL: "web"}}})),
        Just(json!(null)),
        Just(json!([{"op": "add", "path": "/a", "value": 1}])),
    ];
    (0u8..8, object).prop_map(|(which, object)| match which {
        0 => Action::Create { object },
        1 => Action::CreateIfNotExists { object },
        2 => Action::CreateOrUpdate { object },
        3 => Action::Apply { object },
        4 => Action::MergePatch { patch: object },
        5 => Action::JsonPatch { patch: object },
        6 => Action::JqPatch { program: object.to_string() },
        _ => Action::Delete { propagation: Propagation::Background },
    })
}

fn operations() -> impl Strategy<Value = Operation> {
    let subresource = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Subresource::Status)),
        1 => Just(Some(Subresource::Scale)),
    ];
    let names = ("[a-z.*]{0,12}", "[a-zA-Z0-9./]{0,6}", "[A-Za-z*]{0,12}", "(demo|other|)", "[a-z*./-]{0,10}");
    (names, actions(), subresource, any::<[bool; 2]>()).prop_map(
        |((group, version, kind, namespace, name), action, subresource, [ignore_missing_object, on_failure])| {
            Operation {
                target: ObjectRef { gvk: Gvk { group, version, kind }, namespace, name },
                action,
                subresource,
                ignore_missing_object,
                on_failure,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_pattern_means_what_it_says(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(matches_glob(&pattern, &name), reference_glob(&chars(&pattern), &chars(&name)));
    }

    #[test]
    fn a_grant_of_nothing_allows_nothing(operation in operations(), cluster: bool, names in proptest::collection::vec("[a-z*]{0,4}", 0..4)) {
        let scope = if cluster { Scope::Cluster } else { Scope::Namespaced };
        let lines = [
            vec![],
            vec![Permission { verbs: vec![], ..line(&["*"], &["*"], true) }],
            vec![Permission { names: Some(vec![]), ..line(&["*"], &["*"], true) }],
            vec![line(&[], &["*"], true), line(&["*"], &[], true)],
        ];
        for grant in lines.map(Grant::with).into_iter().chain([Grant::none()]) {
            let operate = allows(&app(), &grant, Request::Operate { operation: &operation, scope });
            prop_assert!(matches!(operate, Decision::Deny(_)));
            let watch = allows(&app(), &grant, Request::Watch { gvk: &operation.target.gvk, names: &names, scope });
            prop_assert!(matches!(watch, Decision::Deny(_)));
        }
        for interface in Interface::ALL {
            let link = allows(&app(), &Grant::none(), Request::Link(interface));
            prop_assert_eq!(link == Decision::Allow, interface == Interface::PatchCollector);
        }
    }

    /// Whatever is granted, a decision is one about the namespace of the application and never a panic.
    #[test]
    fn no_grant_reaches_another_namespace(operation in operations()) {
        let decision = allows(&app(), &everything(), Request::Operate { operation: &operation, scope: Scope::Namespaced });
        if decision == Decision::Allow {
            prop_assert!(operation.target.namespace.is_empty() || operation.target.namespace == "demo");
        }
    }
}

#[test]
fn templates_do_not_hand_on_the_rights_of_the_host() {
    let object = |api_version: &str, kind: &str, of: Value| -> Decision {
        let target = ObjectRef { gvk: gvk(api_version, kind), namespace: "demo".into(), name: "x".into() };
        allows_rendered(&Grant::with(vec![]), &target, &of)
    };
    let reason = |decision: Decision| match decision {
        Decision::Allow => "allowed".to_owned(),
        Decision::Deny(denial) => denial.reason,
    };
    assert_eq!(reason(object("apps/v1", "Deployment", json!({}))), "allowed");
    assert_eq!(reason(object("v1", "Secret", json!({"type": "Opaque"}))), "allowed");
    assert_eq!(reason(object("v1", "ServiceAccount", json!({}))), "allowed");
    assert_eq!(reason(object("rbac.authorization.k8s.io/v1", "RoleBinding", json!({}))), "NotGranted");
    assert_eq!(reason(object("coordination.k8s.io/v1", "Lease", json!({}))), "HostObject");
    assert_eq!(reason(object("v1", "Secret", json!({"type": "kubernetes.io/service-account-token"}))), "Credentials");
    let named = Permission {
        api_groups: vec!["rbac.authorization.k8s.io".into()],
        kinds: vec!["Role".into(), "RoleBinding".into()],
        verbs: vec![Verb::Apply],
        names: None,
        cluster: false,
    };
    let wild = Permission { api_groups: vec!["*".into()], kinds: vec!["*".into()], ..named.clone() };
    let binding = ObjectRef {
        gvk: gvk("rbac.authorization.k8s.io/v1", "RoleBinding"),
        namespace: "demo".into(),
        name: "x".into(),
    };
    assert_eq!(allows_rendered(&Grant::with(vec![named]), &binding, &json!({})), Decision::Allow);
    assert_eq!(reason(allows_rendered(&Grant::with(vec![wild]), &binding, &json!({}))), "NotGranted");
}

#[test]
fn templates_read_what_hooks_may_see() {
    let names = Permission { names: Some(vec!["own-*".to_owned()]), ..line(&[""], &["Secret"], false) };
    let grant = Grant::with(vec![names, line(&[""], &["ConfigMap"], false), line(&[""], &["Node"], true)]);
    let (secret, map, node) = (gvk("v1", "Secret"), gvk("v1", "ConfigMap"), gvk("v1", "Node"));
    let cases = [
        (&secret, "demo", Some("own-key"), Scope::Namespaced, "Allow"),
        (&secret, "demo", Some("other"), Scope::Namespaced, "NotGranted"),
        (&secret, "demo", None, Scope::Namespaced, "NotGranted"),
        (&map, "demo", None, Scope::Namespaced, "Allow"),
        (&map, "", None, Scope::Namespaced, "ForeignNamespace"),
        (&map, "kube-system", Some("x"), Scope::Namespaced, "ForeignNamespace"),
        (&node, "", Some("n1"), Scope::Cluster, "Allow"),
        (&gvk("v1", "Namespace"), "", Some("demo"), Scope::Cluster, "NotGranted"),
        (&gvk("deckhouse.io/v1alpha1", "Application"), "demo", Some("web"), Scope::Namespaced, "HostObject"),
    ];
    for (gvk, namespace, name, scope, expected) in cases {
        let request = Request::Read { gvk, namespace, name, scope };
        assert_eq!(reason(allows(&app(), &grant, request)), expected, "{gvk} {namespace} {name:?}");
    }
    let request = Request::Read { gvk: &secret, namespace: "demo", name: Some("other"), scope: Scope::Namespaced };
    let Decision::Deny(denial) = allows(&app(), &grant, request) else { panic!("denied") };
    assert_eq!(denial.what, r#"read of v1 Secret "other""#);
}
