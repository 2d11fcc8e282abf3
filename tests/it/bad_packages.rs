//! Packages that are wrong: what is wrong, where, why and what to do, with a code; and nothing is written.

use barbless::driver::instance::Grants;
use barbless_domain::grant::{Grant, Interface};
use barbless_domain::package::PackageSource;
use serde_json::{Value, json};

use crate::world::{World, component, nothing, package};

const SETTINGS: &str = "type: object\nproperties:\n  replicas:\n    type: integer\n    minimum: 1\n    default: 1\n";
const VALUES: &str = "x-extend:\n  schema: settings.yaml\ntype: object\n";

struct Case {
    name: &'static str,
    source: PackageSource,
    settings: Value,
    reason: &'static str,
    /// What the message must say.
    says: &'static [&'static str],
}

fn with_component(bytes: Vec<u8>) -> PackageSource {
    let mut source = package("bad");
    source.insert("hooks/h.wasm", bytes).unwrap();
    source
}

fn cases() -> Vec<Case> {
    let case = |name, source, reason, says| Case { name, source, settings: nothing(), reason, says };
    let minimal = component("examples/minimal/hooks/minimal-hooks.wasm");
    let schemas = package("bad").with("openapi/settings.yaml", SETTINGS).with("openapi/values.yaml", VALUES);
    let template = |text: &str| package("bad").with("templates/bad.yaml", text);
    vec![
        case("no manifest", PackageSource::new(), "ManifestMissing", &["package.yaml"]),
        case(
            "unknown key",
            package("bad").with("package.yaml", "apiVersion: v1\ntype: Application\nnmae: bad\nversion: 1.0.0\nstage: Experimental\ndescriptions: {en: x}\n"),
            "MissingKey",
            &["package.yaml:3", "nmae", "'name' is missing"],
        ),
        case(
            "another version",
            package("bad").with("package.yaml", "apiVersion: v1\ntype: Application\nname: bad\nversion: 9.0.0\nstage: Experimental\ndescriptions: {en: x}\n"),
            "VersionMismatch",
            &["9.0.0", "1.0.0"],
        ),
        case("schema of the wrong type", package("bad").with("openapi/settings.yaml", "type: [object\n"), "MalformedYaml", &["openapi/settings.yaml:1"]),
        case("not wasm", with_component(b"hello".to_vec()), "ComponentNotWasm", &["hooks/h.wasm"]),
        case("empty component", with_component(Vec::new()), "ComponentEmpty", &["hooks/h.wasm"]),
        case("core module", with_component(wat::parse_str("(module)").unwrap()), "ComponentIsCoreModule", &["hooks/h.wasm"]),
        case("truncated", with_component(minimal[..minimal.len() / 2].to_vec()), "ComponentTruncated", &["hooks/h.wasm"]),
        case("nothing that we ask for", with_component(wat::parse_str("(component)").unwrap()), "ComponentMissingExport", &["hooks/h.wasm"]),
        Case {
            name: "settings that violate the schema",
            source: schemas,
            settings: json!({"replicas": 0}),
            reason: "SchemaViolated",
            says: &["replicas"],
        },
        case("unclosed if", template("a: {{ if true }}\n"), "TemplateParseFailed", &["templates/bad.yaml:"]),
        case("unknown function", template("\n\na: {{ frobnicate 1 }}\n"), "TemplateParseFailed", &["templates/bad.yaml:3", "frobnicate"]),
        case("failing template", template("a: {{ required \"give a name\" .Values.name }}\n"), "TemplateRefused", &["give a name"]),
        case("no yaml", template("a: [\n"), "ManifestInvalid", &["templates/bad.yaml"]),
        case("no kind", template("a: b\n"), "BadManifest", &["templates/bad.yaml"]),
        case(
            "another namespace",
            template("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: kube-system}\n"),
            "ForeignNamespace",
            &["kube-system"],
        ),
        case(
            "cluster-scoped",
            template("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n"),
            "ClusterScopeNotGranted",
            &["ClusterRole"],
        ),
        case(
            "rights that the operator did not grant",
            template("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: x}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n"),
            "NotGranted",
            &["RoleBinding"],
        ),
        case("unknown kind", template("apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: x}\n"), "KindNotServed", &["Nothing"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_defect_is_told_with_place_reason_and_code_and_nothing_is_written() {
    let mut wrong = Vec::new();
    for case in cases() {
        let world = World::new().await;
        let app = world.install("bad", case.source, case.settings).await;
        let failure = app.failure().await;
        if failure.reason != case.reason || !case.says.iter().all(|word| failure.message.contains(word)) {
            wrong.push(format!(
                "{}: [{}] {} (wanted [{}] with {:?})",
                case.name, failure.reason, failure.message, case.reason, case.says
            ));
        }
        let names = app.names("v1", "ConfigMap").await;
        if names != ["kube-root-ca.crt"] {
            wrong.push(format!("{}: something was written: {names:?}", case.name));
        }
        app.delete().await;
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_not_granted_is_not_linked() {
    let world = World::new().await;
    let mut grant = Grant::with(Vec::new());
    grant.interfaces.remove(&Interface::Values);
    let source = with_component(component("examples/minimal/hooks/minimal-hooks.wasm"));
    let app = world.install_with("bad", source, nothing(), Grants::Fixed(grant)).await;
    let failure = app.failure().await;
    assert_eq!(failure.reason, "InterfaceNotGranted", "{failure:?}");
    assert!(failure.message.contains("values"), "{failure:?}");
    assert!(failure.hint.is_some_and(|hint| hint.contains("values")));
}
