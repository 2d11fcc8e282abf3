//! Charts and values as they are read from the disk and from the command line.

use std::fs;

use clap::Parser as _;
use serde_json::json;

use super::*;
use crate::cli::{Cli, Command};

fn parse(arguments: &[&str]) -> Render {
    let all = ["barbless", "render"].iter().chain(arguments);
    match Cli::try_parse_from(all).unwrap().command {
        Command::Render(render) => render,
        other => panic!("{other:?}"),
    }
}

fn chart_at(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");

fn rendered(args: &Render) -> Result<String, Report> {
    chart(args).map(|rendered| rendered.helm_template(&template::Shown::default()).unwrap())
}

#[test]
fn values_are_merged_in_the_order_of_helm() {
    let folder = tempfile::tempdir().unwrap();
    chart_at(
        folder.path(),
        &[("a.yaml", "a: {x: 1, z: 2}\nb: 1\n"), ("b.yaml", "a: {x: null}\n---\nc: [1]\n"), ("t", "T\n")],
    );
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = format!("g={}", path("t"));
    let (a, b) = (path("a.yaml"), path("b.yaml"));
    let args = parse(&[
        "chart",
        "--set",
        "b=2,d=1.5",
        "-f",
        &a,
        "-f",
        &b,
        "--set-json",
        "b=3,e={\"z\": 1}",
        "--set-string",
        "f=1",
        "--set-file",
        &file,
        "--set-literal",
        "h={x},y",
    ]);
    let values = Value::Object(given::values(&args).unwrap());
    assert_eq!(
        values,
        json!({
            "a": {"x": null, "z": 2.0}, "b": 2, "c": [1.0], "d": "1.5", "e": {"z": 1.0}, "f": "1", "g": "T\n",
            "h": "{x},y",
        })
    );
    assert!(values["b"].is_i64() && values["a"]["z"].is_f64());
    let bad = given::values(&parse(&["chart", "--set", "a"])).unwrap_err();
    assert_eq!((bad.message.as_str(), bad.exit), ("failed parsing --set data: key \"a\" has no value", Exit::Usage));
    let bad = given::values(&parse(&["chart", "--set-file", "a=/no/such/file"])).unwrap_err();
    assert_eq!(bad.exit, Exit::NotFound);
}

#[test]
fn whole_numbers_of_set_are_int64_and_those_of_files_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let show = "kind: A\na: {{ printf \"%d %T\" .Values.n .Values.n | quote }}\nb: {{ printf \"%T\" .Values.m }}\n";
    chart_at(folder.path(), &[CHART, ("templates/a.yaml", show), ("values.yaml", "n: 1\nm: 2\n")]);
    let path = folder.path().display().to_string();
    let text = rendered(&parse(&[&path, "--set", "n=5"])).unwrap();
    assert_eq!(text, "---\n# Source: p/templates/a.yaml\nkind: A\na: \"5 int64\"\nb: float64\n");
}

#[test]
fn a_chart_is_read_with_hidden_files_and_without_ignored_ones() {
    let folder = tempfile::tempdir().unwrap();
    let show = "kind: A\nfiles: [{{ range $path, $_ := .Files }}{{ $path }}, {{ end }}]\n";
    chart_at(
        folder.path(),
        &[
            CHART,
            ("templates/a.yaml", show),
            (".hidden", "h"),
            ("hooks/x.txt", "x"),
            ("target/y", "y"),
            ("big/data", "d"),
            ("notes.bak", "n"),
            (".helmignore", "big/\n*.bak\n"),
        ],
    );
    std::os::unix::fs::symlink("hooks", folder.path().join("link")).unwrap();
    let path = folder.path().display().to_string();
    let text = rendered(&parse(&[&path])).unwrap();
    assert!(text.contains("files: [.helmignore, .hidden, hooks/x.txt, link/x.txt, target/y, ]"), "{text}");
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("out")).unwrap();
    assert_eq!(rendered(&parse(&[&path])).unwrap_err().code, "ChartLink");
}

#[test]
fn the_same_chart_gives_the_same_text_again_unless_randomness_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let show = "kind: A\na: {{ randAlphaNum 20 }}-{{ uuidv4 }}\nb: {{ now | date \"2006\" | quote }}\n";
    chart_at(folder.path(), &[CHART, ("templates/a.yaml", show)]);
    let path = folder.path().display().to_string();
    let once = rendered(&parse(&[&path])).unwrap();
    assert_eq!(once, rendered(&parse(&[&path])).unwrap());
    assert_ne!(once, rendered(&parse(&[&path, "--name", "other"])).unwrap());
    let random = rendered(&parse(&[&path, "--random"])).unwrap();
    assert_ne!(random, rendered(&parse(&[&path, "--random"])).unwrap());
    assert!(once.contains("b: \"1970\"") && !random.contains("b: \"1970\""), "{random}");
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    let wrong = ["render", "x", "--kube-version", "one.two"];
    assert!(Cli::try_parse_from(["barbless"].iter().chain(&wrong)).is_err_and(|error| error.exit_code() == 2));
    let args = parse(&["x", "--kube-version", "1.30", "--api-versions", "a/v1,b/v1", "-a", "c/v1"]);
    assert_eq!(args.kube_version.as_deref(), Some("v1.30.0"));
    assert_eq!(args.api_versions, ["a/v1", "b/v1", "c/v1"]);
    let folder = tempfile::tempdir().unwrap();
    chart_at(folder.path(), &[CHART]);
    let path = folder.path().display().to_string();
    assert_eq!(rendered(&parse(&[&path, "--name", "Not A Name"])).unwrap_err().exit, Exit::Usage);
    assert_eq!(kind(&folder.path().join("none")).err().unwrap().exit, Exit::NotFound);
}
