//! Charts rendered by Helm 4.2.3 and by us: values, dependencies, files, messages.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::tests::package;

const RECORDED: &str = include_str!("../../tests/data/chart_oracle.json");

#[derive(Debug, PartialEq)]
enum Answer {
    Texts(BTreeMap<String, String>),
    Error(String),
}

#[test]
fn charts_render_as_in_helm() {
    let rows: Vec<Json> = serde_json::from_str(RECORDED).unwrap();
    assert!(rows.len() > 50);
    for row in rows {
        let files: Vec<(String, String)> = serde_json::from_value(Json::Array(
            row["files"].as_object().unwrap().iter().map(|(k, v)| serde_json::json!([k, v])).collect(),
        ))
        .unwrap();
        let files: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = match row.get("ok") {
            Some(texts) => Answer::Texts(serde_json::from_value(texts.clone()).unwrap()),
            None => {
                let error = row["err"].as_str().unwrap();
                Answer::Error(error.split_once(": ").unwrap().1.to_string())
            }
        };
        let got = match package(&files).values(row["values"].clone()).texts() {
            Ok(files) => Answer::Texts(files.into_iter().map(|file| (file.path, file.text)).collect()),
            Err(error) => Answer::Error(error.helm().to_string()),
        };
        // Helm prefixes what goes wrong before templates are evaluated with what it was doing.
        let same = match (&got, &expected) {
            (Answer::Error(got), Answer::Error(expected)) => expected.ends_with(got.as_str()),
            _ => got == expected,
        };
        assert!(same, "{}: helm: {expected:?}\nours: {got:?}", row["name"]);
    }
}

const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");

#[test]
fn a_missing_dependency_is_an_error_unless_it_is_off() {
    let yaml = "apiVersion: v2\nname: p\nversion: 0.1.0\ndependencies:\n- {name: db, version: 1.x, condition: db.on}\n";
    let files = [("Chart.yaml", yaml), ("templates/a.txt", "a")];
    let error = package(&files).texts().unwrap_err();
    assert_eq!(error.to_string(), "Chart.yaml: found in Chart.yaml, but missing in charts/ directory: db");
    assert!(error.hint().is_some());
    assert!(package(&files).values(serde_json::json!({"db": {"on": false}})).texts().is_ok());
}

#[test]
fn broken_charts_say_which_file_and_line() {
    let error = package(&[("Chart.yaml", "name: p\n")]).texts().unwrap_err();
    assert_eq!(error.to_string(), "Chart.yaml: validation: chart.metadata.apiVersion is required");
    let error = package(&[CHART, ("values.yaml", "a: 1\nb: [\n"), ("templates/a.txt", "a")]).texts().unwrap_err();
    assert_eq!((error.template.as_str(), error.code()), ("values.yaml", "ChartInvalid"));
    assert!(error.line >= 2, "{error:?}");
    let library = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\ntype: library\n");
    assert!(package(&[library]).texts().unwrap_err().message.contains("not installable"));
    let picky = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\nkubeVersion: '>= 1.99'\n");
    assert!(package(&[picky]).texts().unwrap_err().message.contains("incompatible with Kubernetes v1.36.0"));
}

#[test]
fn a_version_that_is_none_is_refused_as_helm_does() {
    let render = |version: &str| {
        let yaml = format!("apiVersion: v2\nname: p\nversion: {}\n", serde_json::to_string(version).unwrap());
        package(&[("Chart.yaml", yaml.as_str()), ("templates/a.txt", "a")]).texts().map_err(|error| error.to_string())
    };
    let long = |bytes: usize| format!("1.2.3-{}", "a".repeat(bytes - 6));
    // What Helm 4.2.3 accepts, and what it does not.
    let good = ["1", "1.2", "v1", "v1.2.3", "1-a", "1.2-a", "01.2.3", "1.2.3--", "1.2.3-00a", "1.2.3-a+b-c.d"];
    for version in good.iter().map(|it| (*it).to_owned()).chain([long(256)]) {
        assert!(render(&version).is_ok(), "{version}");
    }
    let bad = [
        "x.y",
        "-",
        "1.2.3.4",
        "1.0.0 beta",
        "1.2.3-a_b",
        "1.2.3-01",
        " 1.2.3",
        "1.2.3 ",
        "1.2.3-",
        "1.2.3+",
        "1.2.3+a..b",
        "1.2.3-a..b",
        "1.2.3-é",
        "99999999999999999999.0.0",
        "1.2.x",
        "V1.2.3",
        "1..2",
        "1.2.3-a+b+c",
        "1_2",
    ];
    for version in bad.iter().map(|it| (*it).to_owned()).chain([long(257)]) {
        let message = format!("Chart.yaml: validation: chart.metadata.version \"{version}\" is invalid");
        assert_eq!(render(&version).unwrap_err(), message);
    }
}

pub(crate) fn tar_of(files: &[(&str, impl AsRef<[u8]>)]) -> Vec<u8> {
    use std::io::Write as _;
    let mut tar = Vec::new();
    for (path, text) in files {
        let text = text.as_ref();
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
        header[156] = b'0';
        header[257..262].copy_from_slice(b"ustar");
        tar.extend_from_slice(&header);
        tar.extend_from_slice(text);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&tar).unwrap();
    gz.finish().unwrap()
}

#[test]
fn packed_subcharts_are_read_and_damaged_ones_refused() {
    let packed = tar_of(&[
        ("s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 0.1.0\n"),
        ("s/templates/a.txt", "{{ .Values.k }}"),
        ("s/values.yaml", "k: packed"),
    ]);
    let mut case = package(&[CHART]);
    case.files.0.insert("charts/s-0.1.0.tgz".into(), packed.clone());
    let texts = case.texts().unwrap();
    assert_eq!((texts[0].path.as_str(), texts[0].text.as_str()), ("p/charts/s/templates/a.txt", "packed"));

    let mut case = package(&[CHART]);
    case.files.0.insert("charts/s-0.1.0.tgz".into(), packed[..packed.len() / 2].to_vec());
    let error = case.texts().unwrap_err();
    assert_eq!((error.code(), error.template.as_str()), ("ChartInvalid", "charts/s-0.1.0.tgz"));

    let mut case = package(&[CHART]);
    case.files.0.insert("charts/s-0.1.0.tgz".into(), tar_of(&[("s/../../etc/passwd", "x")]));
    assert!(case.texts().unwrap_err().message.contains("illegal path"));
}

const OUTPUTS: &str = include_str!("../../tests/data/output_oracle.json");

#[test]
fn the_output_is_split_and_sorted_as_by_helm_template() {
    let rows: Vec<Json> = serde_json::from_str(OUTPUTS).unwrap();
    for row in rows {
        let files = row["files"].as_object().unwrap();
        let files: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap())).collect();
        match (package(&files).render(), row.get("ok")) {
            (Ok(rendered), Some(expected)) => assert_eq!(rendered.helm_output(), expected.as_str().unwrap()),
            (Err(error), None) => assert_eq!(error.helm(), row["err"].as_str().unwrap()),
            (got, _) => panic!("{row}: {got:?}"),
        }
    }
}

#[test]
fn an_ignore_file_can_leave_out_the_whole_chart() {
    // As Helm has it: a negated pattern leaves out everything that it does not name.
    let error = package(&[CHART, (".helmignore", "!docs/keep.md\n"), ("templates/a.txt", "a")]).texts().unwrap_err();
    assert_eq!(error.message, "Chart.yaml file is missing");
}

#[test]
fn control_characters_are_not_yaml() {
    let manifest = ("templates/a.yaml", "kind: ConfigMap\ndata: {a: \"\u{1}\"}\n");
    let error = package(&[CHART, manifest]).render().unwrap_err();
    assert!(error.helm().ends_with("yaml: control characters are not allowed"), "{}", error.helm());
    assert_eq!(error.line, 2);
}
