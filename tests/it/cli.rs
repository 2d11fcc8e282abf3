//! The program itself: streams, formats and exit codes.

use std::process::{Command, Output};

use serde_json::Value;

use crate::world::root;

/// Runs the program in the folder of the repository.
pub(crate) fn barbless(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_barbless"))
        .args(arguments)
        .current_dir(root())
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_minimal_package_lives_its_life_in_one_process() {
    let output = barbless(&["dev", "examples/minimal", "--once", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["ok"], true);
    assert_eq!(summary["leftovers"], serde_json::json!([]));
    assert!(summary["runs"].as_u64().unwrap() >= 1);
}

#[test]
fn the_demonstration_lives_its_life_in_one_process() {
    let output = barbless(&["dev", "examples/miniflux", "--once", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["ok"], true, "{summary}");
    assert_eq!(summary["changedSetting"], true);
    assert!(summary["runs"].as_u64().unwrap() >= 7, "{summary}");
    assert!(summary["objects"].as_u64().unwrap() >= 7, "{summary}");
}

#[test]
fn a_change_that_is_made_already_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("package");
    std::fs::create_dir_all(package.join("openapi")).unwrap();
    std::fs::create_dir_all(package.join("templates")).unwrap();
    let write = |path: &str, text: &str| std::fs::write(package.join(path), text).unwrap();
    let manifest = "apiVersion: v1\ntype: Application\nname: same\nversion: 1.0.0\nstage: Experimental\n\
                    descriptions:\n  en: Settings that are changed into what they are.\n";
    write("package.yaml", manifest);
    write("openapi/settings.yaml", "type: object\nproperties:\n  n: {type: integer, default: 1}\n");
    write("templates/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {n: \"{{ .Values.n }}\"}\n");
    write("dev.yaml", "settings: {n: 2}\nchange:\n  settings: {n: 2}\n");
    let data = dir.path().join("data");
    let arguments = [
        "dev",
        package.to_str().unwrap(),
        "--once",
        "-o",
        "json",
        "--timeout",
        "60s",
        "--data-dir",
        data.to_str().unwrap(),
    ];
    for time in 1..=2 {
        let output = barbless(&arguments);
        assert_eq!(output.status.code(), Some(0), "time {time}: {}", text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["ok"], true, "time {time}: {summary}");
    }
}

#[test]
fn runs_of_earlier_sessions_with_the_same_folder_are_not_counted() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let runs = |timeout: &str| {
        let arguments = ["dev", "examples/minimal", "--once", "-o", "json", "--timeout", timeout, "--data-dir", data];
        let output = barbless(&arguments);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        (summary["runs"].as_u64().unwrap(), output)
    };
    let (first, _) = runs("60s");
    let (second, _) = runs("60s");
    assert_eq!((first >= 1, second), (true, first));

    let (_, output) = runs("1ms");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("did not end within 1ms: "), "{said}");
    assert!(!said.contains("the status is not written"), "the end of the API is no news: {said}");
}

#[test]
fn render_prints_what_helm_template_prints() {
    let output = barbless(&["render", "examples/minimal"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let manifests = text(&output.stdout);
    assert!(manifests.starts_with("---\n# Source: minimal/templates/"), "{manifests}");
}

#[test]
fn inspect_tells_what_a_component_asks_for() {
    let output = barbless(&["inspect", "examples/minimal/hooks/minimal-hooks.wasm", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(facts["digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(facts["hooks"][0]["name"], "greet");
    assert!(facts["interfaces"].as_array().unwrap().iter().any(|name| name == "values"));
}

#[test]
fn crds_are_printed_as_yaml_documents() {
    let output = barbless(&["crds"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("applications.deckhouse.io"));
    let kept = std::fs::read_to_string(root().join("deploy/crds.yaml")).unwrap();
    assert_eq!(text(&output.stdout), kept, "write it again: barbless crds > deploy/crds.yaml");
}

#[test]
fn errors_have_a_code_a_place_and_a_hint_and_go_to_standard_error() {
    let cases: [(&[&str], i32, &str); 13] = [
        (&["dev", "/nowhere", "--once"], 5, "error[PackageNotFound]"),
        (&["inspect", "README.md"], 1, "error[ComponentNotWasm]"),
        (&["render", "tests"], 5, "error[NoPackage]"),
        (&["render", "examples/minimal", "--name", "Not_A_Name"], 2, "error[BadName]"),
        (&["render", "examples/minimal", "--namespace", "a.b"], 2, "error[BadName]"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
        (&["render", "nowhere"], 5, "nowhere: there is no such file or folder"),
        (&["render", "examples/minimal", "--log-level", "barbless=loud"], 2, "error[BadFlag]"),
        // No file of these is YAML.
        (&["render", "examples/minimal", "-f", "rust-toolchain.toml"], 2, "error[BadYaml]"),
        (&["plan", "examples/minimal", "--grants", "rust-toolchain.toml"], 2, "error[BadYaml]"),
        (&["render", "examples/minimal", "-f", "/nowhere.yaml"], 5, "/nowhere.yaml"),
        (&["render", "examples/minimal", "--set-file", "a=/nowhere.txt"], 5, "error[BadSet]"),
        (&["plan", "examples/minimal", "--kubeconfig", "/nowhere"], 5, "error[BadKubeconfig]"),
    ];
    for (arguments, code, says) in cases {
        let output = barbless(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_devcluster_says_where_it_is_serves_and_ends_when_it_is_told_to() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_barbless"))
        .args(["devcluster", "--port", "0", "--kubeconfig", kubeconfig.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap();
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains(url.trim()));

    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /version HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") && answer.contains("gitVersion"), "{answer}");

    let taken = barbless(&["devcluster", "--port", address.rsplit(':').next().unwrap()]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(text(&taken.stderr).contains("error[ListenFailed]"), "{}", text(&taken.stderr));

    let told = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn inspect_can_do_without_running_the_component() {
    let output = barbless(&["inspect", "examples/minimal/hooks/minimal-hooks.wasm", "--no-run", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["hooks"], serde_json::json!([]), "nothing was asked");
    assert_eq!(facts["declared"][0]["name"], "greet");
}
