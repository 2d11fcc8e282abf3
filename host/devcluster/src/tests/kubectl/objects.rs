//! Reading and changing objects in every way that kubectl has. What is expected was said by a real API server.

use super::*;

const SETTINGS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {a: "1", b: "2"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_shown_in_every_form() {
    let Some(kubectl) = Kubectl::start("forms").await else { return };
    kubectl.ok(&["apply", "-f", "-"], SETTINGS).await;
    for (form, expected) in [
        ("name", "configmap/settings\n"),
        ("jsonpath={.data.a}{.metadata.labels.app}", "1web"),
        ("go-template={{range $k, $v := .data}}{{$k}}={{$v}};{{end}}", "a=1;b=2;"),
        (
            "custom-columns=NAME:.metadata.name,A:.data.a,NONE:.data.none",
            "NAME       A     NONE\nsettings   1     <none>\n",
        ),
    ] {
        assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", form], "").await, expected);
    }
    let yaml = kubectl.ok(&["get", "cm", "settings", "-o", "yaml"], "").await;
    assert!(yaml.starts_with("apiVersion: v1\ndata:\n  a: \"1\"\n  b: \"2\"\nkind: ConfigMap\n"), "{yaml}");
    let wide = kubectl.ok(&["get", "cm", "settings", "-o", "wide", "--show-labels"], "").await;
    assert!(
        wide.starts_with("NAME       DATA   AGE   LABELS\nsettings   2      ") && wide.contains("app=web"),
        "{wide}"
    );
    let list =
        kubectl.ok(&["get", "cm", "-l", "app in (web,x),!y", "--field-selector=metadata.name!=z", "-o", "name"], "");
    assert_eq!(list.await, "configmap/settings\n");
    let nodes = kubectl.ok(&["get", "nodes", "-o", "wide", "--no-headers"], "").await;
    let nodes = nodes.split_whitespace().collect::<Vec<_>>();
    assert_eq!((nodes[0], nodes[1], nodes[2], nodes[5]), ("dev-node-0", "Ready", "<none>", "10.0.0.1"));
    assert!(kubectl.ok(&["get", "all,cm,secrets,sa", "-A"], "").await.contains("service/kubernetes"));
    let err = kubectl.refused(&["get", "pods", "nothing"], "").await;
    assert_eq!(err, "Error from server (NotFound): pods \"nothing\" not found\n");
    let err = kubectl.refused(&["get", "nothings"], "").await;
    assert_eq!(err, "error: the server doesn't have a resource type \"nothings\"\n");
    let err = kubectl.refused(&["get", "cm", "--field-selector=data.a=1"], "").await;
    assert!(err.contains("field label not supported: data.a") || err.contains("not a known field selector"), "{err}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_changed_in_every_way() {
    let Some(kubectl) = Kubectl::start("changes").await else { return };
    assert_eq!(kubectl.ok(&["create", "-f", "-"], SETTINGS).await, "configmap/settings created\n");
    let err = kubectl.refused(&["create", "-f", "-"], SETTINGS).await;
    assert_eq!(
        err,
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"settings\" already exists\n"
    );
    let cm = ["cm", "settings"];
    let change = async |verb: &[&str], expected: &str| {
        let out = kubectl.ok(&[&verb[..1], &cm[..], &verb[1..]].concat(), "").await;
        assert_eq!(out, format!("configmap/settings {expected}\n"), "{verb:?}");
    };
    change(&["label", "tier=front"], "labeled").await;
    change(&["label", "tier=front"], "not labeled").await;
    change(&["label", "tier=back", "--overwrite"], "labeled").await;
    change(&["label", "tier-"], "unlabeled").await;
    change(&["annotate", "note=1"], "annotated").await;
    change(&["patch", "-p", r#"{"data":{"c":"3"}}"#], "patched").await;
    change(&["patch", "--type=merge", "-p", r#"{"data":{"b":null}}"#], "patched").await;
    change(&["patch", "--type=json", "-p", r#"[{"op":"replace","path":"/data/a","value":"7"}]"#], "patched").await;
    change(&["patch", "--type=merge", "-p", r#"{"data":{"a":"7"}}"#], "patched (no change)").await;
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data}"], "").await, r#"{"a":"7","c":"3"}"#);
    let err = kubectl.refused(&["label", "cm", "settings", "app=other"], "").await;
    assert!(err.contains("'app' already has a value (web), and --overwrite is false"), "{err}");
    let bad = r#"[{"op":"test","path":"/data/a","value":"no"}]"#;
    let err = kubectl.refused(&["patch", "cm", "settings", "--type=json", "-p", bad], "").await;
    assert!(err.starts_with("The request is invalid: "), "{err}");
    assert_eq!(kubectl.ok(&["replace", "-f", "-"], SETTINGS).await, "configmap/settings replaced\n");
    let uid = kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.metadata.uid}"], "").await;
    let out = kubectl.ok(&["replace", "--force", "-f", "-"], SETTINGS).await;
    assert_eq!(out, "configmap \"settings\" deleted\nconfigmap/settings replaced\n");
    assert_ne!(uid, kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.metadata.uid}"], "").await);
    let out = kubectl.ok(&["describe", "cm", "settings"], "").await;
    assert!(out.contains("Labels:       app=web") && out.contains("a:\n----\n1"), "{out}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_changes_an_object_and_is_called_again_when_it_may_not() {
    let Some(kubectl) = Kubectl::start("edit").await else { return };
    kubectl.ok(&["create", "-f", "-"], SETTINGS).await;
    kubectl.ok(&["create", "service", "clusterip", "web", "--tcp=80"], "").await;
    // The first time it does what is wrong, the second time what is right.
    let script = kubectl.home.join("editor");
    let twice = "#!/bin/sh\nif [ -e \"$0.once\" ]; then sed -i 's/port: .*/port: 81/' \"$1\"; else touch \"$0.once\"; sed -i 's/port: \
                 .*/port: 123456/' \"$1\"; fi\n";
    let once = "#!/bin/sh\nsed -i 's/a: \"1\"/a: \"5\"/' \"$1\"\n";
    let edit = async |text: &str, what: &[&str]| {
        std::fs::write(&script, text).unwrap();
        let script = script.to_str().unwrap();
        // Through a shell, so that the file need not be executable.
        let editor = format!("KUBE_EDITOR=sh {script}");
        let args = [&["edit"], what].concat();
        kubectl.with(&[editor.as_str()], &args, "").await
    };
    let (code, out, err) = edit(once, &["cm", "settings"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "configmap/settings edited\n"), "{err}");
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data.a}"], "").await, "5");
    let (code, out, err) = edit(once, &["cm", "settings"]).await;
    assert_eq!((code, err.contains("Edit cancelled, no changes made.")), (Some(0), true), "{out}{err}");
    let (code, out, err) = edit(twice, &["svc", "web"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "service/web edited\n"), "{err}");
    assert_eq!(err, "error: services \"web\" is invalid\n");
    assert_eq!(kubectl.ok(&["get", "svc", "web", "-o", "jsonpath={.spec.ports[0].port}"], "").await, "81");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_shown_and_told_by_the_exit_code() {
    let Some(kubectl) = Kubectl::start("diff").await else { return };
    let (code, out, _) = kubectl.code(&["diff", "-f", "-"], SETTINGS).await;
    assert!(code == Some(1) && out.contains("+kind: ConfigMap"), "{out}");
    kubectl.ok(&["apply", "-f", "-"], SETTINGS).await;
    let (code, out, err) = kubectl.code(&["diff", "-f", "-"], SETTINGS).await;
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let changed = SETTINGS.replace("a: \"1\"", "a: \"9\"");
    for args in [&["diff", "-f", "-"][..], &["diff", "--server-side", "-f", "-"]] {
        let (code, out, err) = kubectl.code(args, &changed).await;
        assert!(code == Some(1) && out.contains("-  a: \"1\"\n+  a: \"9\"\n"), "{args:?} {code:?} {out}{err}");
    }
    // Nothing of it was written.
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data.a}"], "").await, "1");
    let (code, out, err) = kubectl.code(&["diff", "-f", "-"], &changed.replace("\ndata:", "\ndat:")).await;
    assert_eq!((code, err.as_str()), (Some(1), "Warning: unknown field \"dat\"\n"), "{out}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_in_one_way_can_be_applied_in_the_other() {
    let Some(kubectl) = Kubectl::start("server-side").await else { return };
    kubectl.ok(&["apply", "-f", "-"], SETTINGS).await;
    let apply = async |text: &str, more: &[&str]| {
        kubectl.run(&[&["apply", "--server-side", "-f", "-"], more].concat(), text).await
    };
    let (success, out, err) = apply(&SETTINGS.replace("a: \"1\", ", "").replace("\"2\"", "\"3\""), &[]).await;
    assert!(success, "{err}");
    assert_eq!(out, "configmap/settings serverside-applied\n");
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "-o", "jsonpath={.data}"], "").await, r#"{"b":"3"}"#);
    let managers = "jsonpath={.metadata.managedFields[*].manager}";
    let managers = kubectl.ok(&["get", "cm", "settings", "-o", managers, "--show-managed-fields"], "").await;
    assert!(!managers.contains("kubectl-client-side-apply"), "{managers}");
    let (success, _, err) = apply(&SETTINGS.replace("\"2\"", "\"4\""), &["--field-manager=other"]).await;
    assert!(!success && err.contains("conflict with \"kubectl\": .data.b"), "{err}");
    let (success, _, err) =
        apply(&SETTINGS.replace("\"2\"", "\"4\""), &["--field-manager=other", "--force-conflicts"]).await;
    assert!(success, "{err}");
    // And back: the annotation has followed.
    let out = kubectl.ok(&["apply", "-f", "-"], &SETTINGS.replace("\"2\"", "\"4\"")).await;
    assert_eq!(out, "configmap/settings configured\n");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_applied_is_pruned() {
    let Some(kubectl) = Kubectl::start("prune").await else { return };
    let two = format!("{SETTINGS}---{}", SETTINGS.replace("name: settings", "name: more"));
    let set = "--applyset=configmaps/set";
    let apply = ["apply", "--server-side", "--prune", set, "-n", "default", "-f", "-"];
    let (success, out, err) = kubectl.with(&["KUBECTL_APPLYSET=true"], &apply, &two).await;
    assert_eq!(success, Some(0), "{out}{err}");
    let (success, out, err) = kubectl.with(&["KUBECTL_APPLYSET=true"], &apply, SETTINGS).await;
    assert_eq!(success, Some(0), "{out}{err}");
    assert!(out.contains("configmap/more pruned"), "{out}");
    let left = kubectl.ok(&["get", "cm", "-l", "app=web", "-o", "name"], "").await;
    assert_eq!(left, "configmap/settings\n");
    let out = kubectl
        .ok(&["apply", "--prune", "-l", "app=web", "-f", "-"], &SETTINGS.replace("name: settings", "name: third"))
        .await;
    assert!(out.contains("configmap/third created"), "{out}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_waited_for_and_watched() {
    let Some(kubectl) = Kubectl::start("wait").await else { return };
    let later = async |args: &[&str], input: &str| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        kubectl.ok(args, input).await
    };
    let wait = ["wait", "--for=create", "cm/settings", "--timeout=20s"];
    let (waited, _) = tokio::join!(kubectl.ok(&wait, ""), later(&["create", "-f", "-"], SETTINGS));
    assert_eq!(waited, "configmap/settings condition met\n");
    let wait = ["wait", "--for=jsonpath={.data.a}=2", "cm/settings", "--timeout=20s"];
    let patch = ["patch", "cm", "settings", "-p", r#"{"data":{"a":"2"}}"#];
    let (waited, _) = tokio::join!(kubectl.ok(&wait, ""), later(&patch, ""));
    assert_eq!(waited, "configmap/settings condition met\n");
    let watch = ["get", "cm", "settings", "-w", "--output-watch-events", "--request-timeout=6s"];
    kubectl.cluster.clear_journal();
    let changes = async {
        while !kubectl.cluster.journal().iter().any(|it| it.verb == "watch" && it.resource == "configmaps") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kubectl.ok(&["label", "cm", "settings", "seen=yes"], "").await;
        kubectl.ok(&["delete", "cm", "settings"], "").await;
    };
    let (watched, ()) = tokio::join!(kubectl.code(&watch, ""), changes);
    let kinds = watched.1.lines().filter_map(|line| line.split_whitespace().next()).collect::<Vec<_>>();
    assert_eq!(kinds, ["EVENT", "ADDED", "MODIFIED", "DELETED"], "{watched:?}");
    kubectl.ok(&["create", "-f", "-"], SETTINGS).await;
    let wait = ["wait", "--for=delete", "cm/settings", "--timeout=20s"];
    let (waited, _) = tokio::join!(kubectl.ok(&wait, ""), later(&["delete", "cm", "settings"], ""));
    assert_eq!(waited, "configmap/settings condition met\n");
    let err = kubectl.refused(&["wait", "--for=condition=ready", "node/dev-node-1", "--timeout=1s"], "").await;
    assert!(err.contains("nodes \"dev-node-1\" not found"), "{err}");
    kubectl.ok(&["wait", "--for=condition=Ready", "node/dev-node-0", "--timeout=20s"], "").await;
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_explained() {
    let Some(kubectl) = Kubectl::start("explain").await else { return };
    kubectl.ok(&["apply", "-f", "-"], DEFINITION).await;
    kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s"], "").await;
    for (path, expected) in [
        ("deployment", &["GROUP:      apps", "KIND:       Deployment", "spec\t<DeploymentSpec>"][..]),
        ("pod.spec.containers.ports", &["FIELD: ports <[]ContainerPort>", "containerPort\t<integer> -required-"]),
        ("svc.spec.ports.targetPort", &["FIELD: targetPort <IntOrString>"]),
        ("widget.spec", &["GROUP:      example.com", "size\t<integer> -required-", "color\t<string>"]),
    ] {
        let out = kubectl.ok(&["explain", path], "").await;
        assert!(expected.iter().all(|it| out.contains(it)), "{path}: {out}");
    }
    let out = kubectl.ok(&["explain", "widget", "--recursive"], "").await;
    assert!(out.contains("  spec\t<Object>\n    color\t<string>\n    size\t<integer> -required-\n"), "{out}");
    let out = kubectl.ok(&["explain", "hpa", "--api-version=autoscaling/v2", "--recursive"], "").await;
    assert!(out.contains("averageUtilization\t<integer>"), "{out}");
    let err = kubectl.refused(&["explain", "pod.spec.nothing"], "").await;
    assert!(err.contains("field \"nothing\" does not exist"), "{err}");
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_the_server_are_answered() {
    let Some(kubectl) = Kubectl::start("server").await else { return };
    assert_eq!(kubectl.ok(&["auth", "can-i", "create", "pods", "--subresource=eviction"], "").await, "yes\n");
    assert!(kubectl.ok(&["auth", "can-i", "--list"], "").await.contains("*.*"));
    assert!(kubectl.ok(&["auth", "whoami", "-o", "name"], "").await.contains("selfsubjectreview"));
    assert!(
        kubectl.ok(&["cluster-info"], "").await.contains("Kubernetes control plane is running at http://127.0.0.1")
    );
    assert_eq!(kubectl.ok(&["get", "--raw", "/readyz"], "").await, "ok");
    assert!(kubectl.ok(&["api-versions"], "").await.contains("apps/v1\n"));
    let out = kubectl.ok(&["api-resources", "--namespaced=false", "--verbs=list", "-o", "name"], "").await;
    assert!(out.contains("nodes\n") && !out.contains("pods\n"), "{out}");
    let token = kubectl.ok(&["create", "token", "default", "--audience=a", "--duration=20m"], "").await;
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, claims).unwrap();
    let claims = serde_json::from_slice::<Value>(&claims).unwrap();
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("system:serviceaccount:default:default"), &json!(["a"])));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 1200);
    let err = kubectl.refused(&["create", "token", "nobody"], "").await;
    assert_eq!(err, "error: failed to create token: serviceaccounts \"nobody\" not found\n");
    for what in ["nodes", "pods"] {
        assert_eq!(kubectl.refused(&["top", what], "").await, "error: Metrics API not available\n");
    }
    kubectl.stop().await;
}
