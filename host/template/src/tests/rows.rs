//! The rows of conformance, one test each: values and subcharts (V), templates (T). What is expected is what Helm 4.2.3
//! did with the same charts; T1 and T2 stand in `oracle.rs`, T3 in `corpus.rs`.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Value as Json, json};

use super::package;
use crate::{Error, Kind, Limit, Lookup};

const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");
const SHOW: (&str, &str) = ("templates/a.txt", "{{ toJson .Values }}");
const SUB: [(&str, &str); 2] =
    [("charts/s/Chart.yaml", "apiVersion: v2\nname: s\nversion: 0.1.0\n"), ("charts/s/templates/a.txt", SHOW.1)];

/// Renders the files with the user's values, and gives the texts by path.
fn texts(files: &[(&str, &str)], values: Json) -> BTreeMap<String, String> {
    let files = package(files).values(values).texts().unwrap();
    files.into_iter().map(|file| (file.path, file.text)).collect()
}

/// The values that templates of a chart without subcharts see.
fn seen(own: &str, user: Json) -> Json {
    let texts = texts(&[CHART, SHOW, ("values.yaml", own)], user);
    serde_json::from_str(&texts["p/templates/a.txt"]).unwrap()
}

/// The values that a chart and its subchart `s` see; none if the subchart is off.
fn seen_by_both(files: &[(&str, &str)], user: Json) -> (Json, Option<Json>) {
    let mut all = vec![SHOW, SUB[0], SUB[1]];
    all.extend_from_slice(files);
    if !files.iter().any(|(path, _)| *path == "Chart.yaml") {
        all.push(CHART);
    }
    let texts = texts(&all, user);
    let read = |path: &str| texts.get(path).map(|text| serde_json::from_str(text).unwrap());
    (read("p/templates/a.txt").unwrap(), read("p/charts/s/templates/a.txt"))
}

fn with_dependency(more: &str) -> String {
    format!("apiVersion: v2\nname: p\nversion: 0.1.0\ndependencies:\n- {{name: s, version: 0.1.0{more}}}\n")
}

#[test]
fn v01_a_null_of_the_user_deletes_a_default() {
    assert_eq!(seen("a: 1\nb: 2\n", json!({"a": null})), json!({"b": 2}));
}

#[test]
fn v02_a_null_of_the_user_deletes_a_nested_default() {
    assert_eq!(seen("a: {x: 1, z: 2}\n", json!({"a": {"x": null}})), json!({"a": {"z": 2}}));
}

#[test]
fn v03_a_null_for_an_unknown_key_stays() {
    let user = json!({"zz": null, "n": {"q": null}});
    assert_eq!(seen("a: 1\n", user), json!({"a": 1, "n": {"q": null}, "zz": null}));
}

#[test]
fn v04_a_null_of_the_chart_itself_is_dropped() {
    assert_eq!(seen("a: null\nb: {c: null, d: 1}\n", json!({})), json!({"b": {"d": 1}}));
}

#[test]
fn v05_lists_are_replaced() {
    assert_eq!(seen("l: [1, 2]\n", json!({"l": [3]})), json!({"l": [3]}));
}

#[test]
fn v06_a_map_over_a_scalar_and_a_scalar_over_a_map() {
    assert_eq!(seen("a: 5\n", json!({"a": {"x": 1}})), json!({"a": {"x": 1}}));
    assert_eq!(seen("a: {x: 1}\n", json!({"a": 5})), json!({"a": 5}));
}

#[test]
fn v07_the_parent_overrides_the_subchart() {
    let files = [("values.yaml", "s: {k: parent}\n"), ("charts/s/values.yaml", "k: sub\nm: 1\n")];
    let sub = json!({"global": {}, "k": "parent", "m": 1});
    assert_eq!(seen_by_both(&files, json!({})), (json!({"s": sub}), Some(sub)));
}

#[test]
fn v08_a_null_of_the_parent_keeps_the_subchart_default() {
    // Helm 3 removes the default.
    let files = [("values.yaml", "s: {k: null}\n"), ("charts/s/values.yaml", "k: sub\nm: 1\n")];
    let sub = json!({"global": {}, "k": "sub", "m": 1});
    assert_eq!(seen_by_both(&files, json!({})), (json!({"s": sub}), Some(sub)));
}

#[test]
fn v09_a_null_of_the_user_removes_the_subchart_default() {
    let files = [("values.yaml", "x: 1\n"), ("charts/s/values.yaml", "k: sub\nm: {a: 1, b: 2}\n")];
    let user = json!({"s": {"k": null, "m": {"a": null}}});
    let sub = json!({"global": {}, "m": {"b": 2}});
    assert_eq!(seen_by_both(&files, user), (json!({"s": sub, "x": 1}), Some(sub)));
}

#[test]
fn v10_globals_go_down_and_the_parent_wins() {
    let files = [("values.yaml", "global: {a: 1}\n"), ("charts/s/values.yaml", "global: {a: 9, b: 2}\n")];
    let both = seen_by_both(&files, json!({"global": {"c": 3}}));
    let sub = json!({"global": {"a": 1, "b": 2, "c": 3}});
    assert_eq!(both, (json!({"global": {"a": 1, "c": 3}, "s": sub}), Some(sub)));
}

#[test]
fn v11_values_of_a_subchart_that_are_no_map_are_an_error() {
    let error = package(&[CHART, SHOW, SUB[0], SUB[1]]).values(json!({"s": 5})).texts().unwrap_err();
    assert_eq!(error.helm(), "type mismatch on s: %!t(float64=5)");
    assert!(error.hint().is_some());
}

#[test]
fn v12_a_condition_turns_a_subchart_off() {
    let chart = with_dependency(", condition: s.enabled");
    let files = [("Chart.yaml", chart.as_str()), ("values.yaml", "s: {enabled: false}\n")];
    assert_eq!(seen_by_both(&files, json!({})), (json!({"s": {"enabled": false}}), None));
}

#[test]
fn v13_a_condition_beats_a_tag() {
    let chart = with_dependency(", condition: s.enabled, tags: [t]");
    let files = [("Chart.yaml", chart.as_str()), ("values.yaml", "tags: {t: false}\ns: {enabled: true}\n")];
    let sub = json!({"enabled": true, "global": {}});
    assert_eq!(seen_by_both(&files, json!({})), (json!({"s": sub, "tags": {"t": false}}), Some(sub)));
    // Without a condition the tag decides.
    let chart = with_dependency(", tags: [t]");
    let files = [("Chart.yaml", chart.as_str()), ("values.yaml", "tags: {t: false}\n")];
    assert_eq!(seen_by_both(&files, json!({})).1, None);
}

#[test]
fn v14_a_condition_that_is_a_text_is_ignored() {
    let chart = with_dependency(", condition: s.enabled");
    let files = [("Chart.yaml", chart.as_str()), ("values.yaml", "s: {enabled: \"false\"}\n")];
    let sub = json!({"enabled": "false", "global": {}});
    assert_eq!(seen_by_both(&files, json!({})), (json!({"s": sub}), Some(sub)));
}

#[test]
fn v15_the_same_chart_twice_under_an_alias() {
    let chart = with_dependency("") + "- {name: s, version: 0.1.0, alias: q}\n";
    let files = [
        ("Chart.yaml", chart.as_str()),
        ("values.yaml", "q: {z: 1}\n"),
        ("charts/s/values.yaml", "k: sub\n"),
        SHOW,
        SUB[0],
        SUB[1],
    ];
    let texts = texts(&files, json!({}));
    assert_eq!(texts["p/charts/q/templates/a.txt"], r#"{"global":{},"k":"sub","z":1}"#);
    assert_eq!(texts["p/charts/s/templates/a.txt"], r#"{"global":{},"k":"sub"}"#);
    assert_eq!(texts["p/templates/a.txt"], r#"{"q":{"global":{},"k":"sub","z":1},"s":{"global":{},"k":"sub"}}"#);
}

#[test]
fn v16_both_forms_of_import_values() {
    let chart = with_dependency(", import-values: [data, {child: k, parent: imp}]");
    let files = [
        ("Chart.yaml", chart.as_str()),
        ("values.yaml", "imp: {own: 1}\n"),
        ("charts/s/values.yaml", "exports: {data: {e: 1}}\nk: {own: 5, z: 2}\n"),
    ];
    let sub = json!({"exports": {"data": {"e": 1}}, "global": {}, "k": {"own": 5, "z": 2}});
    // What is imported has the lowest priority.
    assert_eq!(seen_by_both(&files, json!({})), (json!({"e": 1, "imp": {"own": 1, "z": 2}, "s": sub}), Some(sub)));
}

#[test]
fn v17_a_library_lends_definitions_and_renders_nothing() {
    let texts = texts(
        &[
            CHART,
            ("templates/a.txt", "{{ include \"lib\" . }}"),
            ("charts/l/Chart.yaml", "apiVersion: v2\nname: l\nversion: 0.1.0\ntype: library\n"),
            ("charts/l/templates/_lib.tpl", "{{ define \"lib\" }}L{{ end }}"),
            ("charts/l/templates/x.txt", "never"),
        ],
        json!({}),
    );
    assert_eq!(texts, [("p/templates/a.txt".to_owned(), "L".to_owned())].into());
}

#[test]
fn v18_of_a_name_defined_in_four_places_the_shallowest_and_first_file_wins() {
    let define = |text: &str| format!("{{{{ define \"x\" }}}}{text}{{{{ end }}}}");
    let (a, b, c, d) = (define("A"), define("B"), define("C"), define("D"));
    let files = [
        CHART,
        ("templates/_a.tpl", a.as_str()),
        ("templates/_b.tpl", b.as_str()),
        ("templates/deep/_c.tpl", c.as_str()),
        SUB[0],
        ("charts/s/templates/_d.tpl", d.as_str()),
        ("charts/s/templates/t.txt", "{{ include \"x\" . }}"),
        ("templates/a.txt", "{{ include \"x\" . }}"),
    ];
    let texts = texts(&files, json!({}));
    assert_eq!((&*texts["p/templates/a.txt"], &*texts["p/charts/s/templates/t.txt"]), ("A", "A"));
}

#[test]
fn v19_documents_of_one_values_file_merge() {
    let own = "a: 1\nm: {x: 1}\n---\na: 2\nm: {z: 2}\n";
    assert_eq!(seen(own, json!({})), json!({"a": 2, "m": {"x": 1, "z": 2}}));
}

#[test]
fn v20_files_are_what_is_neither_template_nor_chart() {
    let texts = texts(
        &[
            CHART,
            ("values.yaml", "a: 1\n"),
            ("values.schema.json", "{}"),
            ("README.md", "r"),
            (".hidden", "h"),
            ("conf/x", "z"),
            ("crds/c.yaml", "kind: X\n"),
            SUB[0],
            ("templates/a.txt", "{{ range $path, $_ := .Files }}{{ $path }} {{ end }}"),
            ("templates/b.txt", "{{ .Files.Get \"conf/x\" }}{{ .Files.Get \"templates/a.txt\" }}"),
        ],
        json!({}),
    );
    assert_eq!(texts["p/templates/a.txt"], ".hidden README.md conf/x crds/c.yaml ");
    assert_eq!(texts["p/templates/b.txt"], "z");
}

#[test]
fn v21_what_a_template_sets_is_seen_in_those_rendered_later() {
    let texts = texts(
        &[
            CHART,
            ("templates/a.txt", "{{ .Values.x }}"),
            ("templates/a0.txt", "{{ .Values.x }}"),
            ("templates/z1.txt", "{{ .Values.x }}{{ $_ := set .Values \"x\" 2 }}"),
        ],
        json!({}),
    );
    let texts: Vec<&str> = texts.values().map(String::as_str).collect();
    assert_eq!(texts, ["2", "2", ""]);
}

#[test]
fn v22_a_parent_sees_its_subcharts() {
    let texts = texts(
        &[
            CHART,
            ("templates/a.txt", "{{ .Subcharts.s.Values.k }} {{ .Subcharts.s.Chart.Name }}"),
            SUB[0],
            SUB[1],
            ("charts/s/values.yaml", "k: 1\n"),
        ],
        json!({}),
    );
    assert_eq!(texts["p/templates/a.txt"], "1 s");
    assert_eq!(texts["p/charts/s/templates/a.txt"], r#"{"global":{},"k":1}"#);
}

#[test]
fn v23_keys_that_yaml_reads_as_booleans_become_true_and_false() {
    assert_eq!(seen("y: 1\nn: 2\non: 3\n", json!({})), json!({"false": 2, "true": 3}));
}

fn parse_error(text: &str) -> Error {
    package(&[("templates/a.yaml", text)]).render().unwrap_err()
}

#[test]
fn t04_what_is_not_closed_or_not_open_is_an_error_with_its_line() {
    let unclosed = [
        "{{ if true }}\nA",
        "{{ range .x }}\nA",
        "{{ define \"x\" }}\nA",
        "{{ with .x }}\nA",
        "{{ block \"x\" . }}\nA",
    ];
    for text in unclosed {
        let error = parse_error(text);
        assert_eq!((error.kind, error.line), (Kind::Parse, 2), "{text}");
        assert_eq!(error.helm(), "parse error at (rel/templates/a.yaml:2): unexpected EOF", "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("{{ end }}")));
    }
    for stray in ["a: 1\n{{ end }}\nb: 2\n", "a: 1\n{{ else }}\nb: 2\n", "a: 1\n{{ else if .x }}\nb: 2\n"] {
        let error = parse_error(stray);
        assert_eq!((error.kind, error.line), (Kind::Parse, 2), "{stray}");
        assert!(error.message.starts_with("unexpected {{e"), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn t05_what_would_never_end_or_fill_the_memory_is_a_named_error() {
    let limit = |text: &str| package(&[("templates/a.txt", text)]).text().unwrap_err().kind;
    assert_eq!(limit("{{ range until 1000000000 }}x{{ end }}"), Kind::Limit(Limit::Collection));
    assert_eq!(limit("{{ range 1000000000 }}{{ end }}"), Kind::Limit(Limit::Steps));
    assert_eq!(limit("{{ repeat 1000000000 \"x\" }}"), Kind::Limit(Limit::StringSize));
    assert_eq!(limit("{{ tpl (repeat 10000000 \"{{ \") . }}"), Kind::Limit(Limit::StringSize));
    let case = package(&[("templates/a.txt", "{{ tpl .Values.t . }}")]);
    let recursion = case.values(json!({"t": "{{ tpl .Values.t . }}{{ tpl .Values.t . }}"})).text().unwrap_err();
    assert!(matches!(recursion.kind, Kind::Limit(_)), "{recursion}");
    let endless = "{{ define \"x\" }}{{ include \"x\" . }}{{ end }}{{ include \"x\" . }}";
    assert!(matches!(limit(endless), Kind::Limit(Limit::Depth) | Kind::Execution));
    // 64 MiB of text from one of 1 MiB.
    assert_eq!(limit("{{ $x := repeat 1000000 \"x\" }}{{ range 64 }}{{ $x }}{{ end }}"), Kind::Limit(Limit::Output));
}

/// A cluster that counts how often it is asked.
#[derive(Default)]
struct Cluster {
    asked: Rc<RefCell<Vec<String>>>,
}

impl Lookup for Cluster {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Json, String> {
        self.asked.borrow_mut().push(format!("{api_version} {kind} {namespace}/{name}"));
        let count = self.asked.borrow().len();
        match (kind, name) {
            ("Zed", _) => {
                Err(crate::unknown_kind(api_version, kind, "the server could not find the requested resource"))
            }
            ("Secret", _) => Err("secrets \"a\" is forbidden: the grant has no watch on Secret".into()),
            ("ConfigMap", "a") => Ok(json!({"metadata": {"name": "a"}, "data": {"asked": count}})),
            ("ConfigMap", "") => Ok(
                json!({"kind": "ConfigMapList", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}),
            ),
            ("ConfigMap", "odd") => Ok(json!([1])),
            ("ConfigMap", "big") => Ok(json!({"data": {"x": "x".repeat(2_000)}})),
            _ => Ok(Json::Null),
        }
    }
}

fn looked_up(text: &str) -> Result<String, Error> {
    package(&[CHART, ("templates/a.txt", text)]).lookup(Cluster::default()).text()
}

#[test]
fn t06_lookup_finds_one_or_lists_all_and_finds_nothing_without_an_error() {
    assert_eq!(looked_up("{{ (lookup \"v1\" \"ConfigMap\" \"ns\" \"a\").metadata.name }}").unwrap(), "a");
    let list = "{{ range (lookup \"v1\" \"ConfigMap\" \"ns\" \"\").items }}{{ .metadata.name }} {{ end }}";
    assert_eq!(looked_up(list).unwrap(), "a b ");
    let nothing = "{{ lookup \"v1\" \"Pod\" \"ns\" \"a\" | toJson }}{{ if lookup \"v1\" \"Pod\" \"\" \"\" }}x{{ end }}";
    assert_eq!(looked_up(nothing).unwrap(), "{}");
    assert!(
        looked_up("{{ lookup \"v1\" \"ConfigMap\" \"ns\" \"odd\" }}").unwrap_err().message.contains("not an object")
    );
}

#[test]
fn t06_o36_a_kind_that_is_unknown_or_forbidden_fails_the_render() {
    let error = looked_up("{{ lookup \"nope.io/v1\" \"Zed\" \"ns\" \"a\" }}").unwrap_err();
    assert_eq!(
        error.helm(),
        "template: p/templates/a.txt:1:3: executing \"p/templates/a.txt\" at <lookup \"nope.io/v1\" \"Zed\" \"ns\" \"a\">: \
         error calling lookup: unable to get apiresource from unstructured: nope.io/v1, Kind=Zed: the server could not \
         find the requested resource"
    );
    assert_eq!(error.kind, Kind::Execution);
    assert!(
        looked_up("{{ lookup \"v1\" \"Zed\" \"\" \"\" }}")
            .unwrap_err()
            .helm()
            .contains("unstructured: /v1, Kind=Zed: ")
    );
    let forbidden = looked_up("{{ lookup \"v1\" \"Secret\" \"ns\" \"a\" }}").unwrap_err();
    assert!(forbidden.helm().contains("error calling lookup: secrets \"a\" is forbidden"), "{}", forbidden.helm());
}

#[test]
fn t06_the_same_question_has_the_same_answer_within_a_render() {
    let cluster = Cluster::default();
    let asked = Rc::clone(&cluster.asked);
    let ask =
        "{{ $x := lookup \"v1\" \"ConfigMap\" \"ns\" \"a\" }}{{ $x.data.asked }}{{ $_ := set $x.data \"asked\" 99 }}";
    let files = [CHART, ("templates/a.txt", ask), ("templates/b.txt", ask)];
    let texts = package(&files).lookup(cluster).texts().unwrap();
    assert_eq!((texts[0].text.as_str(), texts[1].text.as_str()), ("1", "1"), "and changing it changes nothing");
    assert_eq!(*asked.borrow(), ["v1 ConfigMap ns/a"]);
}

#[test]
fn t06_lookups_are_bounded_in_number_and_size() {
    let many = "{{ range 10 }}{{ $_ := lookup \"v1\" \"Pod\" \"ns\" (toString .) }}{{ end }}";
    let case = |text: &str| package(&[CHART, ("templates/a.txt", text)]).lookup(Cluster::default());
    assert!(case(many).limits(|limits| limits.lookups = 10).text().is_ok());
    let error = case(many).limits(|limits| limits.lookups = 9).text().unwrap_err();
    assert_eq!((error.kind, error.code()), (Kind::Limit(Limit::Lookups), "TemplateLookupsExceeded"));
    let big = "{{ $_ := lookup \"v1\" \"ConfigMap\" \"ns\" \"big\" }}";
    assert!(case(big).text().is_ok());
    let error = case(big).limits(|limits| limits.lookup_bytes = 1_000).text().unwrap_err();
    assert_eq!(error.kind, Kind::Limit(Limit::LookupSize));
}

#[test]
fn t07_errors_have_the_shape_of_helm_and_a_hint() {
    let error = package(&[CHART, ("templates/a.yaml", "a: {{ .Values.nope.nope }}\n")]).render().unwrap_err();
    assert_eq!(
        error.helm(),
        "p/templates/a.yaml:1:13\n  executing \"p/templates/a.yaml\" at <.Values.nope.nope>:\n    nil pointer evaluating \
         interface {}.nope"
    );
    assert!(error.hint().is_some_and(|hint| hint.contains(".Values.nope.nope")));
    assert_eq!(error.template, "p/templates/a.yaml", "the chart is named");
    let error = package(&[CHART, ("templates/a.yaml", "a: 1\n{{ nosuch }}\n")]).render().unwrap_err();
    assert_eq!(error.helm(), "parse error at (p/templates/a.yaml:2): function \"nosuch\" not defined");
    assert!(error.hint().is_some_and(|hint| hint.contains("spelling")));
    let refused = "{{ required \"a port is needed\" .Values.port }}";
    let error = package(&[CHART, ("templates/a.yaml", refused)]).render().unwrap_err();
    assert_eq!(error.kind, Kind::Refused);
    assert_eq!(error.helm(), "execution error at (p/templates/a.yaml:1:3): a port is needed");
    // One block for each level of include.
    let nested = "{{ define \"x\" }}{{ fail (printf \"%d\" (len .Values.l)) }}{{ end }}{{ define \"y\" }}{{ include \"z\" . }}{{ end }}\
                  {{ define \"z\" }}{{ .Values.a.b.c }}{{ end }}{{ include \"y\" . }}";
    let error = package(&[CHART, ("templates/a.yaml", nested)]).render().unwrap_err();
    let levels: Vec<&str> = error.trace.iter().map(|frame| frame.template.as_str()).collect();
    assert_eq!(levels, ["p/templates/a.yaml", "y", "z"]);
}
