//! kubectl against a served cluster.

use std::{io::Write, process::Stdio};

use super::*;
use crate::Server;

mod objects;
mod workloads;

struct Kubectl {
    server: Server,
    home: std::path::PathBuf,
    cluster: DevCluster,
}

impl Kubectl {
    /// `None`, after saying so, when there is no kubectl.
    async fn start(test: &str) -> Option<Self> {
        if std::process::Command::new("kubectl").arg("version").arg("--client").output().is_err() {
            eprintln!("skipped: kubectl not found");
            return None;
        }
        let cluster = DevCluster::start(Config::default()).await.unwrap();
        let server = cluster.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let home = std::env::temp_dir().join(format!("devcluster-{test}-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("config"), DevCluster::kubeconfig(&format!("http://{}", server.local_addr())))
            .unwrap();
        Some(Self { server, home, cluster })
    }

    async fn run(&self, args: &[&str], input: &str) -> (bool, String, String) {
        let (code, out, err) = self.code(args, input).await;
        (code == Some(0), out, err)
    }

    /// The exit code, and what it says.
    async fn code(&self, args: &[&str], input: &str) -> (Option<i32>, String, String) {
        self.with(&[], args, input).await
    }

    /// As [`Self::code`], with more variables in the environment (`KEY=value`).
    async fn with(&self, environment: &[&str], args: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut command = std::process::Command::new("kubectl");
        command.args(args).env("KUBECONFIG", self.home.join("config")).env("HOME", &self.home);
        command.envs(environment.iter().filter_map(|it| it.split_once('=')));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        let output = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let output = output.await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    async fn ok(&self, args: &[&str], input: &str) -> String {
        let (success, out, err) = self.run(args, input).await;
        assert!(success, "kubectl {args:?}: {out}{err}");
        out
    }

    /// What it says when it fails.
    async fn refused(&self, args: &[&str], input: &str) -> String {
        let (success, out, err) = self.run(args, input).await;
        assert!(!success, "kubectl {args:?} was not refused: {out}{err}");
        err
    }

    async fn stop(self) {
        self.server.shutdown().await;
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

const MANIFEST: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {a: "1", b: "2"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1
        ports: [{containerPort: 80}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_gets_describes_and_deletes() {
    let Some(kubectl) = Kubectl::start("apply").await else { return };
    let out = kubectl.ok(&["apply", "-f", "-"], MANIFEST).await;
    assert!(out.contains("configmap/settings created") && out.contains("deployment.apps/web created"), "{out}");
    let out = kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=20s"], "").await;
    assert!(out.contains("successfully rolled out"), "{out}");
    let out =
        kubectl.ok(&["apply", "-f", "-"], &MANIFEST.replace("a: \"1\", ", "").replace("nginx:1", "nginx:2")).await;
    assert!(out.contains("configmap/settings configured") && out.contains("deployment.apps/web configured"), "{out}");
    let out = kubectl.ok(&["get", "configmap", "settings", "-o", "jsonpath={.data}"], "").await;
    assert_eq!(out, "{\"b\":\"2\"}");
    kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=20s"], "").await;
    let out = kubectl.ok(&["get", "deploy,pods,svc"], "").await;
    assert!(
        out.contains("UP-TO-DATE") && out.contains("2/2") && out.contains("Running") && out.contains("CLUSTER-IP"),
        "{out}"
    );
    let out = kubectl.ok(&["describe", "deployment", "web"], "").await;
    assert!(out.contains("2 desired | 2 updated | 2 total | 2 available") && out.contains("nginx:2"), "{out}");
    let out =
        kubectl.ok(&["apply", "-f", "-"], &MANIFEST.replace("a: \"1\", ", "").replace("nginx:1", "nginx:2")).await;
    assert!(out.contains("configmap/settings unchanged") && out.contains("deployment.apps/web unchanged"), "{out}");
    kubectl.ok(&["scale", "deployment/web", "--replicas=1"], "").await;
    let out = kubectl.ok(&["label", "configmap", "settings", "x=y"], "").await;
    assert!(out.contains("labeled"), "{out}");
    let out = kubectl.ok(&["delete", "-f", "-", "--timeout=20s"], MANIFEST).await;
    assert!(out.contains("deployment.apps \"web\" deleted"), "{out}");
    kubectl.ok(&["wait", "--for=delete", "pods", "-l", "app=web", "--timeout=20s"], "").await;
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_in_its_binary_form() {
    let Some(kubectl) = Kubectl::start("create").await else { return };
    kubectl.ok(&["create", "namespace", "demo"], "").await;
    kubectl
        .ok(&["create", "deployment", "web", "--image=nginx:1", "--replicas=2", "--port=80", "-n", "demo"], "")
        .await;
    kubectl.ok(&["rollout", "status", "deployment/web", "-n", "demo", "--timeout=20s"], "").await;
    kubectl.ok(&["expose", "deployment", "web", "-n", "demo"], "").await;
    kubectl.ok(&["create", "secret", "generic", "s", "--from-literal=a=b", "-n", "demo"], "").await;
    let out = kubectl.ok(&["get", "secret", "s", "-n", "demo", "-o", "jsonpath={.data.a}"], "").await;
    assert_eq!(out, "Yg==");
    kubectl.ok(&["create", "job", "j", "--image=x", "-n", "demo"], "").await;
    kubectl.ok(&["wait", "--for=condition=complete", "job/j", "-n", "demo", "--timeout=20s"], "").await;
    kubectl.ok(&["create", "ingress", "i", "--rule=a.b/=web:80", "-n", "demo"], "").await;
    kubectl.ok(&["create", "clusterrole", "r", "--verb=get", "--resource=pods"], "").await;
    kubectl.ok(&["delete", "namespace", "demo", "--timeout=20s"], "").await;
    kubectl.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reports_unknown_fields_and_conflicts() {
    let Some(kubectl) = Kubectl::start("errors").await else { return };
    let (success, _, err) = kubectl.run(&["apply", "-f", "-"], &MANIFEST.replace("replicas: 2", "replica: 2")).await;
    assert!(!success && err.contains("unknown field \"spec.replica\""), "{err}");
    let one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: \"1\"}\n";
    kubectl.ok(&["apply", "--server-side", "--field-manager=one", "-f", "-"], one).await;
    let (success, _, err) = kubectl
        .run(&["apply", "--server-side", "--field-manager=two", "-f", "-"], &one.replace("\"1\"", "\"2\""))
        .await;
    assert!(!success && err.contains("conflict with \"one\": .data.k"), "{err}");
    let out = kubectl
        .ok(
            &["apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-"],
            &one.replace("\"1\"", "\"2\""),
        )
        .await;
    assert!(out.contains("serverside-applied"), "{out}");
    let out = kubectl.ok(&["apply", "--dry-run=server", "-f", "-"], MANIFEST).await;
    assert!(out.contains("created (server dry run)"), "{out}");
    let out = kubectl.ok(&["get", "deployments"], "").await;
    assert!(out.is_empty(), "{out}");
    let out = kubectl.ok(&["version"], "").await;
    assert!(out.contains("Server Version: v1.37.0"), "{out}");
    let out = kubectl.ok(&["auth", "can-i", "delete", "pods"], "").await;
    assert_eq!(out.trim(), "yes");
    let out = kubectl.ok(&["api-resources"], "").await;
    assert!(out.contains("deployments") && out.contains("customresourcedefinitions"), "{out}");
    let out = kubectl.ok(&["explain", "deployment.spec.replicas"], "").await;
    assert!(out.contains("integer"), "{out}");
    kubectl.stop().await;
}

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, maximum: 10}
              color: {type: string, default: red}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_with_custom_kinds() {
    let Some(kubectl) = Kubectl::start("custom").await else { return };
    kubectl.ok(&["apply", "-f", "-"], DEFINITION).await;
    kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s"], "").await;
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    kubectl.ok(&["apply", "-f", "-"], widget).await;
    let out = kubectl.ok(&["get", "wd"], "").await;
    assert!(out.contains("SIZE") && out.contains("w      3"), "{out}");
    let out = kubectl.ok(&["get", "widget", "w", "-o", "jsonpath={.spec.color}"], "").await;
    assert_eq!(out, "red");
    let (success, _, err) = kubectl.run(&["apply", "-f", "-"], &widget.replace("size: 3", "size: 11")).await;
    assert!(!success && err.contains("should be less than or equal to 10"), "{err}");
    let (success, _, err) = kubectl.run(&["apply", "-f", "-"], &widget.replace("size: 3", "size: 3, extra: 1")).await;
    assert!(!success && err.contains("unknown field \"spec.extra\""), "{err}");
    let out = kubectl.ok(&["apply", "-f", "-"], &widget.replace("size: 3", "size: 4")).await;
    assert!(out.contains("configured"), "{out}");
    assert_eq!(kubectl.ok(&["scale", "wd/w", "--replicas=5"], "").await, "widget.example.com/w scaled\n");
    let err = kubectl.refused(&["scale", "wd/w", "--replicas=50"], "").await;
    assert!(err.contains("should be less than or equal to 10"), "{err}");
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl.ok(&["patch", "wd", "w", "--subresource=status", "--type=merge", "-p", ready], "").await;
    let out = kubectl.ok(&["wait", "--for=condition=Ready", "wd/w", "--timeout=10s"], "").await;
    assert_eq!(out, "widget.example.com/w condition met\n");
    let out = kubectl.ok(&["get", "wd", "-o", "wide", "--no-headers"], "").await;
    assert_eq!(out.split_whitespace().take(4).collect::<Vec<_>>(), ["w", "5", "red", "True"]);
    let err = kubectl.refused(&["patch", "wd", "w", "-p", "{}"], "").await;
    assert!(
        err.contains("application/strategic-merge-patch+json is not supported by example.com/v1, Kind=Widget"),
        "{err}"
    );
    let out = kubectl.ok(&["get", "crd", "widgets.example.com", "--no-headers"], "").await;
    assert_eq!(
        out.split_whitespace().take(3).collect::<Vec<_>>(),
        ["widgets.example.com", "Namespaced", "v1(storage)"]
    );
    kubectl.ok(&["delete", "crd", "widgets.example.com", "--timeout=20s"], "").await;
    let (success, _, err) = kubectl.run(&["get", "widgets"], "").await;
    // kubectl may still remember the kind; the server does not.
    assert!(
        !success
            && (err.contains("doesn't have a resource type") || err.contains("could not find the requested resource")),
        "{err}"
    );
    kubectl.stop().await;
}
