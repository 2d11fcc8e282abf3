use proptest::prelude::*;

use super::*;

fn version(text: &str) -> Version {
    parse_version(text).unwrap()
}

/// Rows of the documentation and tests of Masterminds/semver v3.
#[test]
fn constraints_match_as_in_go() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("= 2.0", &["2.0.0", "2.0.5"], &["1.2.3", "2.1.0"]),
        ("=2.0.0", &["2.0.0", "2.0.0+build"], &["2.0.1", "2.0.0-rc.1"]),
        ("1.2.3", &["1.2.3"], &["1.2.4"]),
        ("4.1", &["4.1.0", "4.1.9"], &["4.2.0", "4.0.9"]),
        ("2", &["2.0.0", "2.9.9"], &["3.0.0", "1.9.9"]),
        ("!=4.1", &["4.2.0", "5.1.0"], &["4.1.0", "4.1.3"]),
        ("!=4.x", &["5.0.0", "3.9.9"], &["4.0.0", "4.9.9"]),
        ("!=4.1.0", &["4.1.1"], &["4.1.0"]),
        (">1.1", &["4.1.0", "1.2.0"], &["1.1.0", "1.1.9"]),
        (">11", &["12.1.0"], &["11.1.0"]),
        (">11.1.0", &["11.1.1"], &["11.1.0"]),
        ("<1.1", &["0.1.0", "1.0.9"], &["1.1.0", "1.1.1"]),
        ("<=1.1", &["1.1.0", "1.1.9", "0.1.0"], &["1.2.0"]),
        ("<=11", &["11.2.3"], &["12.0.0"]),
        (">=1.1", &["4.1.0", "1.1.0"], &["0.0.9"]),
        ("=>1.70", &["1.70.0"], &["1.69.9"]),
        ("~1.2.3", &["1.2.3", "1.2.9"], &["1.3.0", "1.2.2"]),
        ("~1", &["1.0.0", "1.9.9"], &["2.0.0"]),
        ("~>2.3", &["2.3.0", "2.3.8"], &["2.4.0"]),
        ("~1.x", &["1.5.0"], &["2.0.0"]),
        ("^1.2.3", &["1.2.3", "1.9.9"], &["2.0.0", "1.2.2"]),
        ("^1.2", &["1.2.0", "1.8.9"], &["1.1.9", "2.0.0"]),
        ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]),
        ("^0.2", &["0.2.0", "0.2.9"], &["0.3.0"]),
        ("^0.0.3", &["0.0.3"], &["0.0.4", "0.1.0"]),
        ("^0.0", &["0.0.9"], &["0.1.0"]),
        ("^0", &["0.9.9"], &["1.0.0"]),
        ("*", &["0.0.0", "9.9.9"], &["1.0.0-rc.1"]),
        ("x", &["1.0.0"], &[]),
        ("1.2.x", &["1.2.0", "1.2.9"], &["1.3.0"]),
        (">= 1.2.x", &["1.2.0", "2.0.0"], &["1.1.9"]),
        ("1.2 - 1.4.5", &["1.2.0", "1.4.5"], &["1.4.6", "1.1.9"]),
        ("1 - 2", &["1.0.0", "2.9.9"], &["3.0.0"]),
        (">=1.2, <2", &["1.2.0", "1.9.9"], &["2.0.0", "1.1.9"]),
        (">= 1.2 < 2.0 || >= 4.2.3", &["1.5.0", "4.2.3", "5.0.0"], &["2.0.0", "4.2.2"]),
        (">=1.2<2", &["1.9.0"], &["2.0.0"]),
        (">= v1.27", &["v1.27.0", "1.30.1+k3s1"], &["v1.26.15", "v1.30.0-eks-1"]),
        (">= 1.27-0", &["1.27.0", "1.30.0-eks-1", "1.27.0-alpha"], &["1.26.9"]),
        (">=1.2-0, <2", &["1.5.0-rc.1"], &["2.0.0"]),
    ];
    for (text, good, bad) in table {
        let constraint = Constraint::parse(text).unwrap();
        for candidate in *good {
            assert!(constraint.matches(&version(candidate)), "{text} must match {candidate}");
        }
        for candidate in *bad {
            assert!(!constraint.matches(&version(candidate)), "{text} must not match {candidate}");
        }
    }
}

#[test]
fn malformed_constraints_are_refused() {
    for text in [
        "",
        " ",
        ">=",
        "|| 1",
        "1 ||",
        ">> 1",
        "1.2.3.4",
        "a",
        ">= 1.a",
        ", 1",
        "1,",
        "1,,2",
        "1 -",
        "> = 1",
        "1.2.3-",
        "99999999999999999999",
        "1..2",
        "!1",
    ] {
        let error = Constraint::parse(text).unwrap_err();
        assert!(!error.why.is_empty(), "{text}");
    }
    assert!(Constraint::parse(&"1".repeat(300)).is_err());
    assert!(parse_version("*").is_err());
}

fn modules(entries: &[(&str, &str)]) -> Platform {
    Platform {
        kubernetes_version: Some(version("1.30.2")),
        deckhouse_version: Some(version("1.70.3")),
        modules: entries.iter().map(|(name, text)| ((*name).to_owned(), version(text))).collect(),
    }
}

fn module(name: &str, constraint: &str) -> ModuleRequirement {
    let constraint = (!constraint.is_empty()).then(|| Constraint::parse(constraint).unwrap());
    ModuleRequirement { name: name.to_owned(), constraint }
}

fn requirements() -> Requirements {
    let group = |name: &str, modules| vec![ModuleGroup { name: name.to_owned(), description: None, modules }];
    Requirements {
        kubernetes: Some(Constraint::parse(">= 1.29").unwrap()),
        deckhouse: Some(Constraint::parse(">= 1.70").unwrap()),
        modules: ModuleRequirements {
            mandatory: vec![module("prometheus", ">= 1.0"), module("ingress", "")],
            conditional: vec![module("istio", ">= 2.0")],
            any_of: group("storage", vec![module("ceph", ">= 2"), module("local", "")]),
            none_of: group("legacy", vec![module("old", "< 2"), module("older", "")]),
        },
    }
}

#[test]
fn a_platform_that_has_everything_is_fine() {
    let platform = modules(&[("prometheus", "1.0.0-rc.1"), ("ingress", "0.1.0"), ("local", "0.0.1"), ("old", "2.0.0")]);
    assert_eq!(requirements().unmet(&platform), [], "pre-releases of modules do not count");
}

#[test]
fn every_unmet_requirement_is_reported() {
    let mut platform = modules(&[("prometheus", "0.9.0"), ("istio", "1.9.0"), ("ceph", "1.0.0"), ("old", "1.0.0")]);
    platform.kubernetes_version = Some(version("1.29.0-rc.1"));
    platform.deckhouse_version = None;
    let shown: Vec<String> =
        requirements().unmet(&platform).iter().map(|unmet| format!("{} | {unmet}", unmet.reason)).collect();
    assert_eq!(
        shown,
        [
            "KubernetesVersionUnmet | Kubernetes: required >= 1.29, found 1.29.0-rc.1 (a pre-release matches only a \
             constraint that mentions one, for example >= 1.2.3-0)",
            "PlatformVersionUnmet | Deckhouse: required >= 1.70, found no Deckhouse platform",
            "ModuleVersionUnmet | module prometheus: required >= 1.0, found 0.9.0",
            "ModuleNotEnabled | module ingress: required enabled, found not enabled",
            "ModuleVersionUnmet | module istio (only if enabled): required >= 2.0, found 1.9.0",
            "AnyOfUnmet | anyOf group storage: required one of ceph >= 2, local, found ceph 1.0.0, local not enabled",
            "NoneOfPresent | noneOf group legacy: required none of old < 2, older, found old 1.0.0",
        ]
    );
}

#[test]
fn the_development_platform_is_newer_than_all() {
    assert_eq!(Platform::parse_platform_version("dev").unwrap(), version("2.0.0"));
    assert_eq!(Platform::parse_platform_version("v1.70.1").unwrap(), version("1.70.1"));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[0-9x*.,|<>=!~^ v+a-]{0,30}") {
        if let Ok(constraint) = Constraint::parse(&text) {
            let _ = constraint.matches(&Version::new(1, 2, 3));
            prop_assert_eq!(Constraint::parse(constraint.as_str()), Ok(constraint));
        }
    }
}
