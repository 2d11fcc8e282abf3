//! What is not a template, and that no text at all makes the parser fall over.

use proptest::prelude::*;

use super::parse;

fn error(text: &str) -> (usize, String) {
    let error = parse(&"f".into(), &text.into(), 50, &crate::funcs::exists).err().expect("must not parse");
    (error.line, error.message)
}

#[test]
fn a_block_that_is_not_closed_is_an_error_with_its_line() {
    for open in ["if true", "range .x", "with .x", "define \"x\"", "block \"x\" ."] {
        assert_eq!(error(&format!("a\n{{{{ {open} }}}}\nb\n")), (4, "unexpected EOF".to_string()), "{open}");
    }
    assert_eq!(error("a\n{{ if true }}\n{{ else }}\n"), (4, "unexpected EOF".into()));
}

#[test]
fn a_stray_end_or_else_is_an_error_with_its_line() {
    assert_eq!(error("a\n{{ end }}\nb"), (2, "unexpected {{end}}".into()));
    assert_eq!(error("a\n\n{{ else }}\nb"), (3, "unexpected {{else}}".into()));
    assert_eq!(error("{{ if . }}{{ end }}\n{{ end }}"), (2, "unexpected {{end}}".into()));
    assert_eq!(error("{{ if . }}{{ else }}{{ else }}{{ end }}"), (1, "expected end; found {{else}}".into()));
    assert_eq!(error("{{ continue }}"), (1, "{{continue}} outside {{range}}".into()));
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize, open: &str, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
    let parse_deep = |text: String| parse(&"f".into(), &text.into(), 50, &crate::funcs::exists);
    for (open, close) in [("{{ if . }}", "{{ end }}"), ("{{ if . }}x{{ else }}", "{{ end }}")] {
        assert!(parse_deep(deep(20, open, close)).is_ok());
        assert!(parse_deep(deep(100_000, open, close)).is_err_and(|e| e.too_deep), "{open}");
    }
    let parens = |n| format!("{{{{ {} }}}}", deep(n, "(", ")"));
    assert!(parse_deep(parens(40)).is_ok());
    assert!(parse_deep(parens(100_000)).is_err_and(|e| e.too_deep));
    let chain = format!("{{{{ if . }}}}{}{{{{ end }}}}", "{{ else if . }}x".repeat(100_000));
    assert!(parse_deep(chain).is_err_and(|e| e.too_deep));
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in ".{0,300}") {
        let _ = parse(&"f".into(), &text.as_str().into(), 50, &crate::funcs::exists);
    }

    #[test]
    fn any_jumble_of_template_parts_parses_or_is_refused(parts in prop::collection::vec(prop::sample::select(vec![
        "{{", "}}", "{{-", "-}}", "{{- ", " -}}", "if", "else", "end", "range", "with", "define", "block", "template",
        "break", "continue", " ", "\n", ".", ".a", "$", "$x", ":=", "=", "|", "(", ")", ",", "\"a\"", "`b`", "'c'",
        "1", "0x", "-", "1.5e", "nil", "true", "print", "/*", "*/", "{{/* c */}}", "é", "\\", "\"", "'",
    ]), 0..60)) {
        let _ = parse(&"f".into(), &parts.concat().into(), 50, &crate::funcs::exists);
    }
}
