use Compatibility::{ArgoCd, Documented};
use serde_json::json;

use super::*;

fn claim(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "shop"},
        "status": {"phase": phase},
    })
}

fn annotated(mut object: Value, name: &str, value: &str) -> Value {
    object["metadata"]["annotations"] = json!({ name: value });
    object
}

fn judged(object: &Value, verdict: Verdict) -> Member<'_> {
    Member::Judged(object, Some(Health::new(verdict, "")))
}

#[test]
fn the_worst_verdict_wins_whatever_the_order() {
    let object = claim("a", "Bound");
    for worst in Verdict::ALL {
        for other in Verdict::ALL.into_iter().filter(|other| *other <= worst) {
            for pair in [[worst, other], [other, worst]] {
                let health = aggregate(pair.map(|verdict| judged(&object, verdict)));
                assert_eq!(health.status, worst, "{pair:?}");
            }
        }
    }
}

#[test]
fn nothing_and_objects_without_a_check_are_healthy() {
    assert_eq!(aggregate([] as [Member<'_>; 0]), Health::new(Verdict::Healthy, ""));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(aggregate([&config]), Health::new(Verdict::Healthy, ""));
    let lost = claim("a", "Lost");
    assert_eq!(aggregate([Member::Judged(&lost, None)]), Health::new(Verdict::Healthy, ""));
}

#[test]
fn the_message_names_three_causes_and_counts_the_rest() {
    let lost: Vec<_> = ["a", "b", "c", "d", "e"].into_iter().map(|name| claim(name, "Lost")).collect();
    let pending = claim("z", "Pending");
    let message = |number: usize| aggregate(std::iter::once(&pending).chain(lost.iter().take(number))).message;
    assert_eq!(message(0), "Caused by PersistentVolumeClaim:shop/z");
    assert_eq!(message(1), "Caused by PersistentVolumeClaim:shop/a");
    let three = "Caused by PersistentVolumeClaim:shop/a, PersistentVolumeClaim:shop/b, PersistentVolumeClaim:shop/c";
    assert_eq!(message(3), three);
    assert_eq!(message(5), format!("{three} and 2 more"));
    let paused =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"paused": true}});
    assert_eq!(aggregate([&paused]), Health::new(Verdict::Suspended, "Caused by apps/Deployment:web"));
}

#[test]
fn the_annotation_takes_an_object_out_only_if_it_says_true() {
    let lost = claim("a", "Lost");
    for (value, verdict) in [("true", Verdict::Healthy), ("True", Verdict::Degraded), ("false", Verdict::Degraded)] {
        let object = annotated(lost.clone(), IGNORE_HEALTHCHECK_ANNOTATION, value);
        for compatibility in [Documented, ArgoCd] {
            assert_eq!(aggregate_as([&object], compatibility).status, verdict, "{value}");
            assert_eq!(aggregate_as([judged(&object, Verdict::Degraded)], compatibility).status, verdict, "{value}");
        }
    }
}

#[test]
fn hooks_are_not_part_of_the_application() {
    let lost = claim("a", "Lost");
    for (name, value, verdict) in [
        ("argocd.argoproj.io/hook", "PostSync", Verdict::Healthy),
        ("helm.sh/hook", "pre-install", Verdict::Healthy),
        ("argocd.argoproj.io/hook", "Skip", Verdict::Degraded),
        ("helm.sh/hook", "crd-install", Verdict::Degraded),
    ] {
        assert_eq!(aggregate([&annotated(lost.clone(), name, value)]).status, verdict, "{name}: {value}");
    }
}

#[test]
fn an_absent_object_is_missing_by_the_manual() {
    let (here, gone, lost) = (claim("a", "Bound"), claim("b", ""), claim("c", "Lost"));
    let members = [Member::Live(&here), Member::Absent(&gone)];
    let missing = Health::new(Verdict::Missing, "Caused by PersistentVolumeClaim:shop/b");
    assert_eq!(aggregate(members.clone()), missing);
    assert_eq!(aggregate_as(members, ArgoCd), Health::new(Verdict::Healthy, ""));
    let members = [Member::Live(&lost), Member::Absent(&gone)];
    assert_eq!(aggregate(members).status, Verdict::Degraded, "the manual's own example");

    let all_gone = [Member::Absent(&gone), Member::Absent(&here)];
    assert_eq!(aggregate_as(all_gone.clone(), ArgoCd), Health::new(Verdict::Missing, ""));
    assert_eq!(aggregate(all_gone).status, Verdict::Missing);
    assert_eq!(aggregate_as([judged(&here, Verdict::Missing)], ArgoCd).status, Verdict::Missing, "by its own check");
}

#[test]
fn an_absent_object_is_taken_out_by_the_annotation_it_was_rendered_with() {
    let gone = annotated(claim("b", ""), IGNORE_HEALTHCHECK_ANNOTATION, "true");
    assert_eq!(aggregate([Member::Absent(&gone)]), Health::new(Verdict::Healthy, ""));
    assert_eq!(aggregate_as([Member::Absent(&gone)], ArgoCd), Health::new(Verdict::Missing, ""));
}

#[test]
fn an_application_within_does_not_blame_the_one_around_it_for_what_is_unknown() {
    let inner = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "inner"}});
    for (verdict, whole) in [
        (Verdict::Unknown, Verdict::Healthy),
        (Verdict::Missing, Verdict::Healthy),
        (Verdict::Degraded, Verdict::Degraded),
    ] {
        assert_eq!(aggregate([judged(&inner, verdict)]).status, whole, "{verdict}");
    }
}
