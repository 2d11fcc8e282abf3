use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::grant::Verb;

const FULL: &str = include_str!("../../tests/data/shop/package.yaml");
const MINIMAL: &str = "type: Application\nname: shop\nversion: 1.2.3\nstage: Preview\ndescriptions: {en: A shop}\n";

fn refused(text: &str) -> Vec<String> {
    let problems = Manifest::parse("package.yaml", text).unwrap_err();
    problems.into_iter().map(|problem| format!("{}: {problem}", problem.reason)).collect()
}

/// The only problem of a manifest, with its hint.
fn only(text: &str) -> (String, String) {
    let mut problems = Manifest::parse("package.yaml", text).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems.remove(0);
    (format!("{}: {problem}", problem.reason), problem.hint.unwrap_or_default())
}

#[test]
fn every_key_is_read() {
    let manifest = Manifest::parse("package.yaml", FULL).unwrap();
    let shown = serde_json::to_value(&manifest).unwrap();
    let expected = json!({
        "type": "Application",
        "name": "shop",
        "version": "1.4.0-rc.1",
        "stage": "General Availability",
        "category": "Commerce",
        "descriptions": {"en": "A shop with a database", "ru": "Магазин с базой данных"},
        "requirements": {
            "kubernetes": ">= 1.29",
            "deckhouse": ">= 1.70, < 3",
            "modules": {
                "mandatory": [{"name": "ingress-nginx"}, {"name": "prometheus", "constraint": "^1.2"}],
                "conditional": [{"name": "istio", "constraint": ">= 2.0"}],
                "anyOf": [
                    {"name": "storage", "description": "Some storage", "modules": [
                        {"name": "sds-local-volume"}, {"name": "csi-ceph", "constraint": ">= 0.5"}
                    ]},
                    {"name": "certificates", "modules": [{"name": "csi-ceph"}, {"name": "cert-manager"}]}
                ],
                "noneOf": [{"name": "legacy", "modules": [{"name": "old-shop", "constraint": "< 2"}]}]
            }
        },
        "editions": {
            "_default": {"available": true, "enabledInBundles": ["Default"]},
            "se": {"available": false, "enabledInBundles": []}
        },
        "disable": {"confirmation": true, "messages": {"en": "All orders will be lost"}},
        "permissions": [
            {"apiGroups": [""], "kinds": ["ConfigMap", "Secret"],
             "verbs": ["watch", "create", "apply", "patch", "delete"], "names": ["shop-*"]},
            {"apiGroups": ["apps"], "kinds": ["Deployment"], "verbs": ["patch"]}
        ]
    });
    assert_eq!(shown, expected);
    assert_eq!(manifest.permissions[1].verbs, [Verb::Patch]);
}

#[test]
fn a_minimal_manifest_asks_for_nothing() {
    let manifest = Manifest::parse("package.yaml", MINIMAL).unwrap();
    assert_eq!(manifest.permissions, []);
    assert_eq!(manifest.requirements, Default::default());
    assert_eq!(manifest.package_type, PackageType::Application);
}

#[test]
fn the_older_shape_of_requirements_is_read() {
    let text = format!(
        "{MINIMAL}requirements:\n  kubernetes: '>= 1.25'\n  deckhouse: '>= 1.60'\n  modules:\n    prometheus: '>= 1.0'\n    \
         istio: '>= 2.0 !optional'\n    mandatory: '*'\n"
    );
    let requirements = Manifest::parse("package.yaml", &text).unwrap().requirements;
    let shown = serde_json::to_value(&requirements).unwrap();
    let expected = json!({
        "kubernetes": ">= 1.25", "deckhouse": ">= 1.60",
        "modules": {
            "mandatory": [{"name": "mandatory", "constraint": "*"}, {"name": "prometheus", "constraint": ">= 1.0"}],
            "conditional": [{"name": "istio", "constraint": ">= 2.0"}],
            "anyOf": [], "noneOf": []
        }
    });
    assert_eq!(shown, expected);
}

#[test]
fn all_problems_are_reported_at_once_with_their_places() {
    let text = "type: Aplication\nnmae: shop\nversion: 1.2\nstage: ''\ndescriptions: {de: Laden}\npermissions:\n  - \
                apiGroups: [apps/v1]\n    kinds: [deployments]\n    verbs: [get, wach, 7]\n    names: []\n  - kinds: []\n";
    assert_eq!(
        refused(text),
        [
            "BadValue: package.yaml:1:1: type: 'Aplication' is no type of package",
            "MissingKey: package.yaml:1:1: the key 'name' is missing",
            "UnknownKey: package.yaml:2:1: nmae: the key 'nmae' is not known",
            "BadType: package.yaml:3:1: version: must be text, not a number",
            "BadValue: package.yaml:4:1: stage: must not be empty",
            "UnknownKey: package.yaml:5:16: descriptions.de: the key 'de' is not known",
            "BadValue: package.yaml:7:17: permissions[0].apiGroups[0]: 'apps/v1' is no API group",
            "BadValue: package.yaml:8:13: permissions[0].kinds[0]: 'deployments' is no kind",
            "BadValue: package.yaml:9:13: permissions[0].verbs[0]: 'get' is no verb",
            "BadValue: package.yaml:9:18: permissions[0].verbs[1]: 'wach' is no verb",
            "BadType: package.yaml:9:24: permissions[0].verbs[2]: must be text, not a number",
            "BadValue: package.yaml:10:5: permissions[0].names: must not be empty",
            "MissingKey: package.yaml:11:5: permissions[1]: the key 'apiGroups' is missing",
            "BadValue: package.yaml:11:5: permissions[1].kinds: must not be empty",
            "MissingKey: package.yaml:11:5: permissions[1]: the key 'verbs' is missing",
        ]
    );
}

#[test]
fn hints_say_what_to_do() {
    let table = [
        (MINIMAL.replace("stage", "stagee") + "stage: x\n", "did you mean 'stage'?"),
        (MINIMAL.replace("1.2.3", "'1.2'"), "write all three numbers: 1.2.0"),
        (MINIMAL.replace("1.2.3", "latest"), "for example 1.2.3"),
        (MINIMAL.replace("1.2.3", "1.2"), "put it in quotes"),
        (MINIMAL.replace("shop\n", "Shop_1\n"), "for example 'web-shop'"),
        (MINIMAL.replace("{en: A shop}", "{}"), "give a text in at least one language: en, ru"),
        (MINIMAL.to_owned() + "weight: 5\n", "remove it: applications are not ordered"),
        (
            MINIMAL.to_owned() + "requirements: {kubernetes: {constraint: '>> 1'}}\n",
            "for example '>= 1.2', '~1.4' or '>= 1.2, < 2 || 3.x'",
        ),
        (
            MINIMAL.to_owned() + "permissions: [{apiGroups: [''], kinds: [Pod], verbs: [update]}]\n",
            "changing is 'patch' or 'apply'",
        ),
        (
            MINIMAL.to_owned() + "permissions: [{apiGroups: [''], kinds: [Pod], verbs: [delte]}]\n",
            "did you mean 'delete'?",
        ),
        (
            MINIMAL.to_owned() + "permissions: [{apiGroups: [apps/v1], kinds: [Pod], verbs: [watch]}]\n",
            "leave the version out: 'apps'",
        ),
    ];
    for (text, hint) in table {
        assert_eq!(only(&text).1, hint, "{text}");
    }
}

#[test]
fn modules_stand_in_one_bucket() {
    let table = [
        ("mandatory: [{name: a}, {name: a}]", "parse mandatory module requirement 'a': listed twice"),
        (
            "mandatory: [{name: a}]\n    conditional: [{name: a, constraint: '1'}]",
            "parse conditional module requirement 'a': also listed as mandatory",
        ),
        ("conditional: [{name: a}]", "parse conditional module requirement 'a': constraint is required"),
        ("anyOf: [{modules: [{name: a}]}]", "parse anyOf group [0]: name is required"),
        (
            "anyOf: [{name: g, modules: [{name: a}]}, {name: g, modules: [{name: b}]}]",
            "parse anyOf group 'g': duplicate group name",
        ),
        ("anyOf: [{name: g, modules: []}]", "parse anyOf group 'g': at least one member is required"),
        ("anyOf: [{name: g}]", "parse anyOf group 'g': at least one member is required"),
        ("anyOf: [{name: g, modules: [{constraint: '1'}]}]", "parse anyOf group 'g': member name is required"),
        ("anyOf: [{name: g, modules: [{name: a}, {name: a}]}]", "parse anyOf group 'g': duplicate member 'a'"),
        (
            "mandatory: [{name: a}]\n    anyOf: [{name: g, modules: [{name: a}]}]",
            "parse anyOf group 'g' member 'a': also listed as mandatory",
        ),
        (
            "anyOf: [{name: g, modules: [{name: a}]}]\n    noneOf: [{name: h, modules: [{name: a}]}]",
            "parse noneOf group 'h' member 'a': also listed in anyOf group 'g'",
        ),
        (
            "noneOf: [{name: h, modules: [{name: a, constraint: x.y}]}]",
            "parse noneOf group 'h' member 'a': constraint \"x.y\" is not valid: 'x.y' is no version",
        ),
        ("anyof: []", "the key 'anyof' is not known"),
    ];
    for (modules, message) in table {
        let shown = refused(&format!("{MINIMAL}requirements:\n  modules:\n    {modules}\n"));
        assert_eq!(shown.len(), 1, "{modules}: {shown:?}");
        assert!(shown[0].ends_with(message), "{shown:?}");
    }
}

#[test]
fn what_is_no_manifest_is_refused() {
    for (text, reason) in
        [("", "MalformedYaml"), ("[]", "BadType"), ("a: [", "MalformedYaml"), ("name: a\nname: b\n", "DuplicateKey")]
    {
        let problems = Manifest::parse("package.yaml", text).unwrap_err();
        assert_eq!(problems[0].reason, reason, "{text}");
    }
}

fn source() -> PackageSource {
    PackageSource::new().with("package.yaml", MINIMAL)
}

#[test]
fn a_package_is_loaded() {
    let digest = "sha256:".to_owned() + &"0a".repeat(32);
    let package = Package::load(
        source()
            .with("openapi/settings.yaml", "type: object\nproperties: {a: {type: integer, default: 1}}\n")
            .with("openapi/config-values.yaml", "this is not even read: [")
            .with("openapi/values.yaml", "x-extend: {schema: settings.yaml}\nproperties: {b: {type: integer}}\n")
            .with("values.yaml", "b: 2\n")
            .with("images_digests.json", &format!("{{\"web\": \"{digest}\"}}"))
            .with("hooks/b.wasm", "b")
            .with("hooks/a.wasm", "a")
            .with("hooks/src/target/c.wasm", "c")
            .with("hooks/readme.md", "x")
            .with("templates/a.yaml", "a: b")
            .with("docs/README.md", "x"),
    )
    .unwrap();
    assert_eq!(package.components, ["hooks/a.wasm", "hooks/b.wasm"]);
    assert_eq!(package.component("hooks/a.wasm"), Some(b"a".as_slice()));
    assert_eq!(package.component("docs/README.md"), None);
    assert_eq!(package.images, BTreeMap::from([("web".to_owned(), digest)]));
    assert_eq!(Value::Object(package.static_values.clone()), json!({"b": 2}));
    assert!(package.has_chart);
    assert_eq!(package.chart_files().map(|(path, _)| path).collect::<Vec<_>>(), ["templates/a.yaml", "values.yaml"]);
    let known: Vec<&String> = package.values_schema.as_ref().unwrap().properties().iter().collect();
    assert_eq!(known, ["a", "b"]);
    assert!(package.digest.starts_with("sha256:"));
    assert_ne!(package.digest, source().digest());
}

#[test]
fn the_older_name_of_the_settings_schema_is_read() {
    let package =
        Package::load(source().with("openapi/config-values.yaml", "properties: {a: {type: integer}}\n")).unwrap();
    assert!(package.settings_schema.unwrap().properties().contains("a"));
    assert!(package.values_schema.is_none());
    assert!(!package.has_chart);
}

#[test]
fn problems_of_all_files_are_reported() {
    let problems = Package::load(
        PackageSource::new()
            .with("openapi/settings.yaml", "type: objct\n")
            .with("openapi/values.yaml", "a: [\n")
            .with("values.yaml", "[]")
            .with("images_digests.json", "{\"web\": \"latest\"}"),
    )
    .unwrap_err();
    let shown: Vec<String> = problems.iter().map(|problem| format!("{}: {}", problem.reason, problem.file)).collect();
    assert_eq!(
        shown,
        [
            "ManifestMissing: package.yaml",
            "BadSchema: openapi/settings.yaml",
            "MalformedYaml: openapi/values.yaml",
            "BadType: values.yaml",
            "BadDigest: images_digests.json"
        ]
    );
    let module = PackageSource::new().with("package.yaml", &MINIMAL.replace("Application", "Module"));
    assert_eq!(Package::load(module).unwrap_err()[0].reason, "PackageTypeUnsupported");
    let mut binary = PackageSource::new();
    binary.insert("package.yaml", vec![b'a', 0xff]).unwrap();
    assert_eq!(
        Package::load(binary).unwrap_err()[0].to_string(),
        "package.yaml: is not UTF-8 text: the first bad byte is at 1"
    );
}

#[test]
fn paths_stay_in_the_package() {
    let mut source = PackageSource::new();
    for path in ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", "./a", "a\\b", "a\0b"] {
        assert_eq!(source.insert(path, Vec::new()).unwrap_err().reason, "BadPath", "{path:?}");
    }
    source.insert("a/b", Vec::new()).unwrap();
    assert_eq!(source.insert("a/b", Vec::new()).unwrap_err().reason, "DuplicateFile");
    for index in 1..FILES_MAX {
        source.insert(&index.to_string(), Vec::new()).unwrap();
    }
    assert_eq!(source.insert("one-more", Vec::new()).unwrap_err().reason, "TooManyFiles");
}

#[test]
fn paths_are_shown_as_people_write_them() {
    assert_eq!(dotted("/a/0/b/c.d/e~1f/"), "a[0].b[\"c.d\"][\"e/f\"][\"\"]");
    assert_eq!(dotted(""), "");
}

#[test]
fn near_words_are_found() {
    assert_eq!(nearest("replica", &["replicas", "image"]), Some("replicas"));
    assert_eq!(nearest("REPLICAS", &["replicas"]), Some("replicas"));
    assert_eq!(nearest("port", &["replicas", "image"]), None);
    assert_eq!(nearest(&"x".repeat(100_000), &["x"]), None);
}

proptest! {
    #[test]
    fn any_manifest_is_parsed_or_refused(text in "(type|name|version|requirements|modules|anyOf|permissions|verbs|[a-z:{}\\[\\] \n,'0-9-]){0,40}") {
        let _ = Manifest::parse("package.yaml", &text);
    }

    /// One value of the full manifest replaced by something else: no panic, and the place is in the file.
    #[test]
    fn a_damaged_manifest_is_refused_with_a_place(line in 0..FULL.lines().count(), with in "(\\[\\]|\\{\\}|7|null|x|true|'')") {
        let damaged: Vec<String> = FULL.lines().enumerate().map(|(index, text)| match text.split_once(": ") {
            Some((key, _)) if index == line => format!("{key}: {with}"),
            _ => text.to_owned(),
        }).collect();
        if let Err(problems) = Manifest::parse("package.yaml", &damaged.join("\n")) {
            prop_assert!(problems.iter().all(|problem| problem.line.is_some_and(|line| line <= damaged.len() as u64)), "{problems:?}");
        }
    }
}
