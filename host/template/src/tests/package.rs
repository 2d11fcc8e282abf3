//! Packages as a whole: roots, files, manifests and their order, errors in what was rendered.

use serde_json::json;

use super::package;
use crate::{Kind, install_rank, sort_for_install, sort_for_uninstall, uninstall_rank};

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "name" . }}
spec:
  replicas: {{ .Values.replicas | default 1 }}
"#;
const HELPERS: &str = r#"{{- define "name" -}}d8a-{{ .Application.Instance.Name }}-web{{- end -}}"#;

fn shop() -> super::Case {
    package(&[
        ("package.yaml", "name: shop"),
        ("templates/_helpers/names.tpl", "{{ define \"unused\" }}x{{ end }}\n"),
        ("templates/_helpers.tpl", HELPERS),
        ("templates/web.yaml", DEPLOYMENT),
        (
            "templates/config.yaml",
            "# only a comment\n---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  d: {{ .Platform.domain }}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n",
        ),
        ("templates/NOTES.txt", "Hello {{ .Release.Name }}"),
        ("crds/a.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"),
        ("hooks/a.wasm", "\0asm"),
    ])
    .values(json!({"replicas": 3}))
    .root("Application", json!({"Instance": {"Name": "one"}, "Package": {"Name": "shop"}}))
    .root("Platform", json!({"domain": "example.org"}))
}

#[test]
fn a_package_needs_no_chart_and_gets_its_roots() {
    let rendered = shop().render().unwrap();
    let found: Vec<_> = rendered.manifests.iter().map(|m| (m.source.as_str(), m.line, m.kind())).collect();
    assert_eq!(
        found,
        [
            ("shop/templates/config.yaml", 10, "Secret"),
            ("shop/templates/config.yaml", 4, "ConfigMap"),
            ("shop/templates/web.yaml", 2, "Deployment"),
        ]
    );
    assert_eq!(rendered.manifests[2].object["metadata"]["name"], "d8a-one-web");
    assert_eq!(rendered.manifests[2].object["spec"]["replicas"], 3);
    assert_eq!(rendered.manifests[1].object["data"]["d"], "example.org");
    assert_eq!(rendered.notes.as_deref(), Some("Hello rel"));
    assert_eq!(rendered.crds.len(), 1);
    assert!(!rendered.files.iter().any(|file| file.path.ends_with("_helpers.tpl")), "partials are not output");
}

#[test]
fn the_output_is_that_of_helm_template() {
    assert_eq!(
        shop().render().unwrap().helm_output(),
        "---\n# Source: shop/templates/config.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n\n\
         ---\n# Source: shop/templates/config.yaml\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  d: example.org\n\
         ---\n# Source: shop/templates/web.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d8a-one-web\nspec:\n  replicas: 3\n\n\
         ---\n# Source: shop/templates/config.yaml\n# only a comment\n"
    );
}

#[test]
fn text_that_is_not_yaml_names_the_template_the_line_and_the_reason() {
    let error = package(&[("templates/a.yaml", "a: 1\n---\nkind: X\nb: {{ \"x: y: z\" }}\n")]).render().unwrap_err();
    assert_eq!((error.kind, error.template.as_str(), error.line), (Kind::Manifest, "rel/templates/a.yaml", 4));
    assert_eq!(error.code(), "ManifestInvalid");
    assert!(error.message.contains("mapping values are not allowed"), "{error}");
    assert_eq!(error.snippet.as_deref(), Some("b: x: y: z"));
    let error = package(&[("templates/a.yaml", "- a\n")]).render().unwrap_err();
    assert!(error.message.contains("must be a map"), "{error}");
}

#[test]
fn a_block_scalar_at_the_end_of_a_document_keeps_its_line_break() {
    let text = "kind: A\nx: |\n  a\n---\nkind: B\nx: |\n  b\n";
    for text in [text, text.trim_end()] {
        let rendered = package(&[("templates/a.yaml", text)]).render().unwrap();
        let found: Vec<_> = rendered.manifests.iter().map(|m| m.object["x"].as_str().unwrap()).collect();
        assert_eq!(found, ["a\n", "b\n"]);
    }
}

#[test]
fn hooks_come_last_and_unknown_events_are_left_out() {
    let hook = |name: &str, event: &str| {
        format!("kind: Job\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/hook: {event}\n---\n")
    };
    let text = hook("a", "pre-install")
        + &hook("b", "nonsense")
        + "kind: Zebra\n---\nkind: List\nitems: [{kind: A}, {kind: B}]";
    let rendered = package(&[("templates/a.yaml", &text)]).render().unwrap();
    let kinds: Vec<_> = rendered.manifests.iter().map(|m| (m.kind(), m.is_hook())).collect();
    assert_eq!(kinds, [("A", false), ("B", false), ("Zebra", false), ("Job", true)]);
}

#[test]
fn kinds_are_ordered_for_installation_and_removal() {
    let mut objects: Vec<_> =
        ["Widget", "Alpha", "Deployment", "Service", "Namespace", "CustomResourceDefinition", "ConfigMap"]
            .map(|kind| json!({ "kind": kind }))
            .into();
    let kinds = |objects: &[serde_json::Value]| -> Vec<String> {
        objects.iter().map(|o| o["kind"].as_str().unwrap().to_string()).collect()
    };
    sort_for_install(&mut objects);
    assert_eq!(
        kinds(&objects),
        ["Namespace", "ConfigMap", "CustomResourceDefinition", "Service", "Deployment", "Alpha", "Widget"]
    );
    sort_for_uninstall(&mut objects);
    assert_eq!(
        kinds(&objects),
        ["Alpha", "Widget", "Service", "Deployment", "CustomResourceDefinition", "ConfigMap", "Namespace"]
    );
    assert!(install_rank("Namespace") < install_rank("Pod") && install_rank("Pod") < install_rank("Widget"));
    assert!(uninstall_rank("Pod") < uninstall_rank("Namespace"));
}

#[test]
fn the_same_input_gives_the_same_text_even_with_randomness() {
    let text = || {
        package(&[(
            "templates/a.txt",
            "{{ randAlphaNum 20 }} {{ uuidv4 }} {{ now | unixEpoch }} {{ htpasswd \"a\" \"b\" }}",
        )])
        .text()
        .unwrap()
    };
    assert_eq!(text(), text());
    assert!(text().contains(" 1700000000 "));
}

#[test]
fn a_map_that_is_changed_is_changed_everywhere() {
    let texts = package(&[
        ("templates/b.txt", "{{ $_ := set .Values \"x\" 1 }}"),
        ("templates/a.txt", "{{ .Values.x }}{{ .Values.missing }}<no value>"),
    ])
    .texts()
    .unwrap();
    assert_eq!(texts[0].text, "1");
}
