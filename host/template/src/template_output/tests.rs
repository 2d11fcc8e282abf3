//! What is printed of a chart with hooks, tests and definitions of resources.

use super::*;
use crate::tests::package;

const CHART: (&str, &str) = ("Chart.yaml", "apiVersion: v2\nname: p\nversion: 0.1.0\n");

fn rendered() -> Rendered {
    let hook = |name: &str, event: &str| {
        format!("kind: Pod\nmetadata: {{name: {name}, annotations: {{helm.sh/hook: \"{event}\"}}}}\n")
    };
    let (job, test) = (hook("job", "post-install"), hook("check", "Test , post-upgrade"));
    package(&[
        CHART,
        ("crds/b.yaml", "kind: CustomResourceDefinition\nmetadata: {name: b}\n"),
        ("charts/a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 0.1.0\n"),
        ("charts/a/crds/a.yaml", "kind: CustomResourceDefinition\nmetadata: {name: a}\n"),
        ("templates/web.yaml", "kind: Service\n---\nkind: ConfigMap\n"),
        ("templates/deep/{x}.yaml", "kind: Zebra\n\n"),
        ("templates/job.yaml", &job),
        ("templates/tests/check.yaml", &test),
    ])
    .render()
    .unwrap()
}

fn text(shown: &Shown<'_>) -> String {
    rendered().helm_template(shown).unwrap()
}

const RELEASE: &str = "---\n# Source: p/templates/web.yaml\nkind: ConfigMap\n\n---\n# Source: p/templates/web.yaml\nkind: Service\n\
                       ---\n# Source: p/templates/deep/{x}.yaml\nkind: Zebra\n";

#[test]
fn hooks_follow_the_release_and_can_be_left_out() {
    let all = text(&Shown::default());
    let hooks = all.strip_prefix(RELEASE).unwrap();
    let sources: Vec<&str> = hooks.lines().filter_map(|line| line.strip_prefix("# Source: ")).collect();
    assert_eq!(sources, ["p/templates/job.yaml", "p/templates/tests/check.yaml"]);
    assert_eq!(text(&Shown { hooks: false, ..Shown::default() }), RELEASE);
    let untested = text(&Shown { tests: false, ..Shown::default() });
    assert!(untested.contains("name: job") && !untested.contains("name: check"), "{untested}");
}

#[test]
fn definitions_come_first_those_of_the_parent_before_all() {
    let with = text(&Shown { crds: true, hooks: false, ..Shown::default() });
    assert_eq!(
        with.strip_suffix(RELEASE).unwrap(),
        "---\n# Source: p/crds/b.yaml\nkind: CustomResourceDefinition\nmetadata: {name: b}\n\n\
         ---\n# Source: p/charts/a/crds/a.yaml\nkind: CustomResourceDefinition\nmetadata: {name: a}\n\n"
    );
}

#[test]
fn single_templates_are_shown_in_the_order_asked_for() {
    let only = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        rendered().helm_template(&Shown { only: &names, ..Shown::default() })
    };
    let web =
        "---\n# Source: p/templates/web.yaml\nkind: ConfigMap\n---\n# Source: p/templates/web.yaml\nkind: Service\n";
    let zebra = "---\n# Source: p/templates/deep/{x}.yaml\nkind: Zebra\n";
    assert_eq!(only(&["templates/web.yaml"]).unwrap(), web);
    assert_eq!(only(&["templates/deep/{x}.yaml", "templates/w*.yaml"]).unwrap(), format!("{zebra}{web}"));
    assert_eq!(only(&["templates/*/check.yaml"]).unwrap().matches("# Source").count(), 1);
    assert_eq!(only(&["templates/none.yaml"]), Err("could not find template templates/none.yaml in chart".to_owned()));
    assert!(only(&["[x"]).is_err());
}
