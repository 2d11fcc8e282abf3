//! Budgets: whatever a template does, its evaluation ends, and says why.

use proptest::prelude::*;
use serde_json::json;

use crate::{Limits, tests::package};

fn code(template: &str) -> &'static str {
    code_with(template, Limits { steps: 200_000, memory_bytes: 64 << 20, ..Limits::default() })
}

fn code_with(template: &str, limits: Limits) -> &'static str {
    let mut case = package(&[("templates/a.txt", template)]).values(json!({"l": [1, 2], "m": {"a": "b"}}));
    case.limits = limits;
    match case.text() {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}

#[test]
fn endless_recursion_ends_with_the_name_of_its_limit() {
    let include = r#"{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}"#;
    assert_eq!(code(include), "TemplateExecutionFailed", "Helm's own bound of a thousand includes comes first");
    let template = r#"{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#;
    assert_eq!(code(template), "TemplateDepthExceeded");
    let two = r#"{{ define "a" }}{{ include "b" . }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ include "b" . }}"#;
    assert_ne!(code(two), "ok");
    let tpl = r#"{{ define "t" }}{{ tpl "{{ include \"t\" . }}" . }}{{ end }}{{ include "t" . }}"#;
    assert_ne!(code(tpl), "ok");
    let tpl_self = r#"{{ $_ := set .Values "t" "{{ tpl .Values.t . }}" }}{{ tpl .Values.t . }}"#;
    assert_eq!(code(tpl_self), "TemplateDepthExceeded");
    let blocks = format!(
        r#"{{{{ define "a" }}}}{}{{{{ template "a" . }}}}{}{{{{ end }}}}{{{{ template "a" . }}}}"#,
        "{{ if true }}{{ with . }}{{ range $.Values.l }}{{ print (print (print $.Values.m.a)) }}".repeat(30),
        "{{ end }}{{ end }}{{ end }}".repeat(30)
    );
    assert_ne!(code_with(&blocks.replace(". }}{{ end", "$ }}{{ end"), Limits::default()), "ok");
}

#[test]
fn the_stack_of_the_caller_does_not_matter() {
    let deep = r#"{{ define "a" }}{{ with . }}{{ print (print (include "b" .)) }}{{ end }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ include "b" . }}"#;
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    let code = thread.spawn(move || code_with(deep, Limits { depth: u32::MAX, ..Limits::default() })).unwrap();
    assert_ne!(code.join().unwrap(), "ok");
}

#[test]
fn large_loops_and_values_end_with_the_name_of_their_limit() {
    assert_eq!(code("{{ range 1000000000 }}{{ end }}"), "TemplateStepsExceeded");
    assert_eq!(code("{{ range until 1000000000 }}{{ end }}"), "TemplateCollectionExceeded");
    assert_eq!(code("{{ untilStep 0 1000000000 1 }}"), "TemplateCollectionExceeded");
    assert_eq!(code("{{ seq 1 1000000000 }}"), "TemplateCollectionExceeded");
    assert_eq!(code(r#"{{ repeat 1000000000 "x" }}"#), "TemplateStringExceeded");
    assert_eq!(code(r#"{{ indent 1000000000 "x" }}"#), "TemplateStringExceeded");
    assert_eq!(code("{{ randAlpha 1000000000 }}"), "TemplateStringExceeded");
    assert_eq!(code(r#"{{ $x := "x" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}"#), "TemplateStringExceeded");
    assert_eq!(code(r#"{{ $x := repeat 1000000 "x" }}{{ range 1000 }}{{ $x }}{{ end }}"#), "TemplateMemoryExceeded");
    assert_eq!(code(r#"{{ replace "" (repeat 10000 "y") (repeat 10000 "x") }}"#), "TemplateStringExceeded");
    assert_eq!(code(r#"{{ printf (repeat 10000 "%100000[1]d") 1 }}"#), "TemplateStringExceeded");
    assert_eq!(code(&"{{ $x := 1 }}".repeat(1100)), "TemplateNestingExceeded");
    assert_eq!(code(r#"{{ trimAll (repeat 3000000 "ab") (repeat 3000000 "ab") }}"#), "ok");
    let brackets = code(r#"{{ printf (repeat 1000000 "%[") 1 }}"#);
    assert!(["ok", "TemplateStringExceeded"].contains(&brackets), "{brackets}");
    let equal = "{{ $x := list 1 }}{{ range 17 }}{{ $x = list $x $x }}{{ end }}{{ $y := deepCopy $x }}{{ $l := list }}";
    let equal = format!("{equal}{{{{ range 100 }}}}{{{{ $l = append $l $y }}}}{{{{ $_ := has $x $l }}}}{{{{ end }}}}");
    assert_eq!(code(&equal), "TemplateStepsExceeded");
    let small = Limits { output_bytes: 1000, ..Limits::default() };
    assert_eq!(code_with(r#"{{ repeat 2000 "x" }}"#, small), "TemplateOutputExceeded");
}

#[test]
fn shared_and_cyclic_values_end_with_an_error_and_do_not_overflow_the_stack() {
    let shared = "{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}";
    for end in
        ["{{ $x }}", "{{ toJson $x }}", "{{ toYaml $x }}", "{{ deepCopy $x }}", "{{ deepEqual $x (deepCopy $x) }}"]
    {
        assert_ne!(code(&format!("{shared}{end}")), "ok", "{end}");
    }
    let cyclic = r#"{{ $x := dict }}{{ $_ := set $x "x" $x }}"#;
    for end in [
        "{{ $x }}",
        "{{ toJson $x }}",
        "{{ toYaml $x }}",
        "{{ toToml $x }}",
        "{{ deepCopy $x }}",
        "{{ printf \"%s\" $x }}",
    ] {
        assert_ne!(code(&format!("{cyclic}{end}")), "ok", "{end}");
    }
    // Freed without recursion.
    assert_eq!(code_with("{{ $x := list }}{{ range 300000 }}{{ $x = list $x }}{{ end }}", Limits::default()), "ok");
}

#[test]
fn documents_that_grow_when_read_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x]\n");
    for i in 1..40 {
        bomb.push_str(&format!("a{i}: &a{i} [*a{p} , *a{p} ]\n", p = i - 1));
    }
    assert_eq!(code(&format!("{{{{ fromYaml `{bomb}` | len }}}}")), "TemplateDocumentExceeded");
    assert_eq!(code(r#"{{ fromYaml (repeat 100000 "[") | len }}"#), "TemplateDocumentExceeded");
    assert_eq!(code(r#"{{ fromJson (repeat 100000 "[") | len }}"#), "ok", "an answer with Error, as in Helm");
    assert_eq!(code(r#"{{ regexMatch "(a{1000}){1000}" "a" }}"#), "TemplateRegexExceeded");
    assert_eq!(code(r#"{{ regexMatch (repeat 100000 "(") "a" }}"#), "TemplateRegexExceeded");
}

#[test]
fn the_deadline_ends_a_render() {
    let asked = std::cell::Cell::new(0);
    let files = package(&[("templates/a.txt", "{{ range 100000000 }}{{ end }}")]).files;
    let late = || {
        asked.set(asked.get() + 1);
        asked.get() > 10
    };
    let input = crate::Input { deadline: &late, ..crate::Input::first(&files, "rel", "ns") };
    let error = crate::render_files(&input).unwrap_err();
    assert_eq!(error.code(), "TemplateDeadlineExceeded");
}

#[test]
fn a_failure_in_an_include_names_the_innermost_place_and_the_way_to_it() {
    let error = package(&[
        ("templates/_h.tpl", "{{ define \"inner\" }}\n  {{ .Values.a.b }}{{ end }}"),
        ("templates/a.yaml", "a: 1\nb: {{ include \"inner\" . }}\n"),
    ])
    .text()
    .unwrap_err();
    assert_eq!((error.template.as_str(), error.line, error.column), ("rel/templates/_h.tpl", 2, 13));
    assert_eq!(error.message, "nil pointer evaluating interface {}.b");
    assert_eq!(error.snippet.as_deref(), Some("  {{ .Values.a.b }}{{ end }}"));
    assert_eq!(error.trace.len(), 2);
    assert_eq!((error.trace[0].file.as_str(), error.trace[0].line), ("rel/templates/a.yaml", 2));
    assert!(error.hint().unwrap().contains("not set"));
    assert_eq!(
        error.to_string(),
        "rel/templates/_h.tpl:2:13: executing \"inner\" at <.Values.a.b>: nil pointer evaluating interface {}.b"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_program_ends(parts in prop::collection::vec(prop::sample::select(vec![
        "{{ range 1000000 }}", "{{ range .Values.l }}", "{{ range $i, $e := .Values.m }}", "{{ if . }}", "{{ end }}",
        "{{ else }}", "{{ with .Values.m }}", "{{ $x := . }}", "{{ $x = list $x $x }}", "{{ $x }}", "{{ . }}",
        "{{ include \"t\" . }}", "{{ tpl \"{{ include \\\"t\\\" . }}\" . }}", "{{ define \"t\" }}", "{{ toYaml . }}",
        "{{ $_ := set .Values \"l\" . }}", "{{ merge .Values .Values.m }}", "{{ repeat 999999 \"ab\" }}", "text",
        "{{ until 99999 }}", "{{ template \"t\" . }}", "{{ break }}", "{{ keys .Values }}", "{{ .Values.l | join \"x\" }}",
        "{{ mergeOverwrite .Values (dict \"l\" .Values) }}", "{{ deepCopy . }}", "{{ printf \"%v %d %s\" . 1 .Values }}",
    ]), 0..25)) {
        let limits = Limits { steps: 20_000, memory_bytes: 16 << 20, output_bytes: 1 << 20, ..Limits::default() };
        let _ = code_with(&parts.concat(), limits);
    }
}
