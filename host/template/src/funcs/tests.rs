//! Functions that the recorded tables do not reach.

use serde_json::json;

use crate::tests::package;

fn eval(expression: &str) -> String {
    package(&[("templates/a.txt", &format!("{{{{ {expression} }}}}")), ("conf/a.txt", "A"), ("conf/sub/b.txt", "B")])
        .values(json!({"n": 3}))
        .text()
        .unwrap_or_else(|error| format!("ERR {error}"))
}

#[test]
fn dates_follow_go_layouts() {
    for (expression, expected) in [
        (r#"date "2006-01-02T15:04:05Z07:00" now"#, "2023-11-14T22:13:20Z"),
        (r#"dateInZone "Mon Jan _2 15:04:05 MST 2006" now "Europe/Berlin""#, "Tue Nov 14 23:13:20 CET 2023"),
        (r#"now | dateModify "-1h30m" | date "15:04 PM 3:4:5""#, "20:43 PM 8:43:20"),
        (r#"(toDate "2006-01-02 15:04:05 -0700" "2024-02-29 12:00:00 +0200").Unix"#, "1709200800"),
        (r#"(toDate "2006-01-02" "2023-02-29").Year"#, "1"),
        (r#"now.Year"#, "2023"),
        (r#"(now.AddDate 0 1 20).Format "2006-01-02""#, "2024-01-03"),
        (r#"duration "3661""#, "1h1m1s"),
        (r#"durationRound "400h10m5s""#, "16d"),
        (r#"date "2006-01-02" "not a date""#, "2023-11-14"),
    ] {
        let expression = expression.replace("now.", "(now).");
        assert_eq!(eval(&expression), expected, "{expression}");
    }
}

#[test]
fn answers_of_helm_that_the_differential_test_found() {
    for (expression, expected) in [
        ("int64 1e20", "-9223372036854775808"),
        (
            r#"printf "%x|%X|%.3x|%.0x|%x" 1.5 0.1 0.1 1.99 0.0"#,
            "0x1.8p+00|0X1.999999999999AP-04|0x1.99ap-04|0x1p+01|0x0p+00",
        ),
        (r#"printf "%05d|%-6d|%+v" "x" "y" 1.5"#, "%!d(string=0000x)|%!d(string=y     )|1.5"),
        (r#"merge (dict "a" 1) (dict "c" nil "e" "") | toJson"#, r#"{"a":1,"e":""}"#),
        (r#"merge (dict "c" 0) (dict "c" nil) | toJson"#, r#"{"c":0}"#),
        (r#"mergeOverwrite (dict) (dict "c" nil) | toJson"#, r#"{"c":null}"#),
        ("rest (list) | toJson", "null"),
        ("initial (list) | toJson", "null"),
        ("concat (list) (list) | toJson", "null"),
        (r#"regexFindAll "z" "a" -1 | toJson"#, "null"),
        (r#"index (split "a" "b") "x" | toJson"#, r#""""#),
        (r#"dict "a" "<<" | toYaml"#, "a: <<"),
        (r#"camelcase "fooBarBAZ-9x.y""#, "FooBarBAZ9x.y"),
        (r#"snakecase "<a>___b""#, "<_a_>___b"),
        (r#"kebabcase "p?q=1""#, "p?q-=1"),
        (r#"upper "ñß""#, "Ñß"),
        (r#"initials "héllo wörld ☺""#, "hwâ"),
        (r#"abbrev 8 "héllo wörld""#, "héll..."),
        (r#"wrap 5 "ＡＢＣ ñ ß İ""#, "ＡＢＣ\nñ ß\nİ"),
        (r#"(semver "v1.2.3-rc.1").IncPatch"#, "1.2.3"),
        (r#"(semver "1.2.3").IncMinor"#, "1.3.0"),
        (
            r#"fromJson "{a" | toJson"#,
            r#"{"Error":"invalid character 'a' looking for beginning of object key string"}"#,
        ),
    ] {
        assert_eq!(eval(expression), expected, "{expression}");
    }
    for (expression, message) in [
        (r#"substr 3 1 "abc""#, "runtime error: slice bounds out of range [3:1]"),
        ("index (list 1) 1", "reflect: slice index out of range"),
        ("index (list 1) 2", "index out of range: 2"),
        ("first (slice (list) 0)", "runtime error: invalid memory address or nil pointer dereference"),
        (r#"dig "a" "b" "c" (split "a" "b")"#, "interface {} is map[string]string, not map[string]interface {}"),
        (r#"regexFind "a(?=b)" "a""#, "invalid or unsupported Perl syntax: `(?=`"),
        ("$nope = 1", "undefined variable: $nope"),
    ] {
        let answer = eval(expression);
        assert!(answer.starts_with("ERR") && answer.contains(message), "{expression}: {answer}");
    }
}

#[test]
fn versions_follow_masterminds() {
    for (constraint, version, expected) in [
        ("^1.2", "1.9.0", true),
        ("^0.2", "0.3.0", false),
        ("~1.2.3", "1.2.9", true),
        ("1.2.x", "1.3.0", false),
        ("*", "1.2.3", true),
        (">1.2", "1.2.9", false),
        ("<=1.2", "1.2.9", true),
        ("1.2 - 1.4", "1.3.5", true),
        (">=1.2,<2", "2.0.0", false),
        ("!=1.2.3", "1.2.3", false),
        (">=1.20", "v1.36.0-gke.1", false),
        (">=1.20-0", "v1.36.0-gke.1", true),
    ] {
        assert_eq!(
            eval(&format!("semverCompare \"{constraint}\" \"{version}\"")),
            expected.to_string(),
            "{constraint} {version}"
        );
    }
}

#[test]
fn patterns_are_those_of_re2() {
    for (expression, expected) in [
        (r#"regexMatch `^\d+$` "١٢""#, "false"),
        (r#"regexReplaceAll `(?P<a>\w+)-(\w+)` "x-y" "${a}_$2$$""#, "x_y$"),
        (r#"regexMatch `^[[:alpha:]_[]+$` "ab[_""#, "true"),
        (r#"regexMatch `a{,2}` "a{,2}""#, "true"),
        (r#"regexMatch `^\Qa.b\E$` "axb""#, "false"),
        (r#"regexSplit "," "a,b,c" 2"#, "[a b,c]"),
        (r#"regexFindAll "a" "aaa" 2"#, "[a a]"),
    ] {
        assert_eq!(eval(expression), expected, "{expression}");
    }
}

#[test]
fn files_are_found_by_pattern() {
    assert_eq!(eval(r#"range $path, $_ := .Files.Glob "conf/*" }}{{ $path }} {{ end"#), "conf/a.txt ");
    assert_eq!(eval(r#"range $path, $_ := .Files.Glob "conf/**" }}{{ $path }} {{ end"#), "conf/a.txt conf/sub/b.txt ");
    assert_eq!(eval(r#"(.Files.Glob "conf/{a,b}.txt").AsSecrets"#), "a.txt: QQ==");
    assert_eq!(eval(r#".Files.Get "templates/a.txt""#), "");
}

#[test]
fn the_environment_is_out_of_reach() {
    for name in ["env \"HOME\"", "expandenv \"$HOME\""] {
        assert!(eval(name).contains("not defined"), "{name}");
    }
    assert_eq!(eval(r#"getHostByName "localhost""#), "");
}

#[test]
fn certificates_are_signed_by_whom_they_say_and_the_same_each_time() {
    let text = || {
        eval(concat!(
            r#"$ca := genCA "root" 365 }}{{ $c := genSignedCert "web" (list "10.0.0.1") (list "web.ns.svc") 30 $ca }}"#,
            r#"{{ $d := buildCustomCert (b64enc $ca.Cert) (b64enc $ca.Key) }}"#,
            r#"{{ (genSignedCert "x" nil nil 1 $d).Cert | len | gt 10 }}{{ $ca.Cert }}{{ $c.Cert }}{{ $c.Key"#
        ))
    };
    let made = text();
    assert!(made.starts_with("false-----BEGIN CERTIFICATE-----\n"), "{made}");
    assert_eq!(made.matches("-----BEGIN CERTIFICATE-----").count(), 2);
    assert!(made.trim_end().ends_with("-----END EC PRIVATE KEY-----"));
    assert_eq!(made, text());
    assert!(eval(r#"genSignedCert "x" nil nil 1 "no""#).contains("the signer is not a certificate"));
    assert!(eval(r#"genPrivateKey "rsa""#).starts_with("ERR"));
}

#[test]
fn what_is_encrypted_can_be_decrypted() {
    assert_eq!(
        eval(r#"encryptAES "secret" "plain text of some length" | decryptAES "secret""#),
        "plain text of some length"
    );
    assert_eq!(eval(r#"decryptAES "secretkey" "30tEfhuJSVRhpG97XCuWgz2okj7L8vQ1s6V9zVUPeDQ=""#), "plaintext");
    assert!(eval(r#"decryptAES "secret" "AAAA""#).contains("not full blocks"));
}

#[test]
fn words_are_split_as_in_sprig() {
    for (expression, expected) in [
        (r#"camelcase "HTTPServer""#, "Httpserver"),
        (r#"camelcase "FOO_BAR""#, "FooBar"),
        (r#"camelcase "foo--bar""#, "Foo-Bar"),
        (r#"snakecase "http2xx""#, "http_2xx"),
        (r#"snakecase "FooBar2Baz""#, "foo_bar2_baz"),
        (r#"wrapWith 3 "/" "hello world""#, "hel/lo/wor/ld"),
        (r#"wrap 3 "hello world""#, "hello\nworld"),
        (r#"title "it's a_b""#, "It'S A_b"),
    ] {
        assert_eq!(eval(expression), expected, "{expression}");
    }
}

#[test]
fn toml_is_read_and_written() {
    assert_eq!(
        eval(r#"toToml (fromToml "a = 1\n[b]\nc = [\"x\"]\n[[d]]\ne = true")"#),
        "a = 1\n\n[b]\n  c = [\"x\"]\n\n[[d]]\n  e = true\n"
    );
    assert!(eval(r#"fromToml "a ==" | toJson"#).starts_with("{\"Error\":"));
}
