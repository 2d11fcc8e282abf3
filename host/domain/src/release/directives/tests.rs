use serde_json::json;

use super::*;

fn of(annotations: &Value) -> Result<Directives, Vec<BadAnnotation>> {
    Directives::read(&json!({"kind": "Deployment", "metadata": {"annotations": annotations}}))
}

fn good(annotations: &Value) -> Directives {
    of(annotations).unwrap_or_else(|bad| panic!("{annotations}: {bad:?}"))
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(good(&json!({"other": "x"})), Directives::default());
    assert_eq!(Directives::of(&json!("text")), Directives::default());
}

#[test]
fn every_annotation_of_nelm_is_read() {
    let it = good(&json!({
        "werf.io/weight": "-7",
        "werf.io/deploy-dependency-db": "state=ready,kind=StatefulSet,name=db",
        "werf.io/delete-dependency-app": "state=absent,kind=deployment,group=apps,version=v1",
        "dns.external-dependency.werf.io/resource": "deployments.v1.apps/dns",
        "dns.external-dependency.werf.io/name": "kube-system",
        "cfg.external-dependency.werf.io/resource": "configmap/settings",
        "werf.io/ownership": "anyone",
        "werf.io/deploy-on": "pre-install, upgrade,post-uninstall",
        "werf.io/delete-policy": "before-creation,succeeded, failed",
        "werf.io/resource-policy": "skip-create,skip-update,skip-recreate,keep",
        "werf.io/delete-propagation": "Orphan",
        "werf.io/track-termination-mode": "NonBlocking",
        "werf.io/fail-mode": "IgnoreAndContinueDeployProcess",
        "werf.io/failures-allowed-per-replica": "3",
        "werf.io/no-activity-timeout": "1m30s",
        "werf.io/replicas-on-creation": "5",
        "werf.io/sensitive": "true",
        "werf.io/sensitive-paths": "$.data.password, $.data.token",
        "packages.deckhouse.io/yield-fields": ".spec.replicas",
    }));
    assert_eq!(it.weight, Some(-7));
    let target = |kind: &str, name: &str| ObjectRef {
        gvk: crate::identity::Gvk::parse("apps/v1", kind).expect("a kind"),
        namespace: "demo".to_owned(),
        name: name.to_owned(),
    };
    assert!(it.dependencies[0].matches(&target("StatefulSet", "db")));
    assert!(!it.dependencies[0].matches(&target("StatefulSet", "other")));
    assert!(!it.dependencies[0].matches(&target("Deployment", "db")));
    assert!(it.delete_dependencies[0].matches(&target("Deployment", "anything")));
    let external: Vec<String> = it.external.iter().map(ToString::to_string).collect();
    assert_eq!(external, ["configmap settings", "deployments.v1.apps kube-system/dns"]);
    assert_eq!(it.ownership, Ownership::Anyone);
    assert!(it.is_kept());
    assert!(it.is_deployed(ReleaseAction::Install, Phase::Before));
    assert!(!it.is_deployed(ReleaseAction::Install, Phase::Main));
    assert!(it.is_deployed(ReleaseAction::Upgrade, Phase::Main));
    assert!(it.is_deployed(ReleaseAction::Uninstall, Phase::After));
    assert!(!it.is_deployed(ReleaseAction::Rollback, Phase::Main));
    assert_eq!(it.delete_policies.len(), 3);
    assert_eq!(it.resource_policies.len(), 4);
    assert_eq!(it.propagation, Some(Propagation::Orphan));
    assert!(it.non_blocking && it.tolerate_failure);
    assert_eq!(it.failures_per_replica, Some(3));
    assert_eq!(it.no_activity, Some(Duration::from_secs(90)));
    assert_eq!(it.replicas_on_creation, Some(5));
    assert_eq!(it.sensitive, Some(true));
    assert_eq!(it.sensitive_paths, ["$.data.password", "$.data.token"]);
    assert_eq!(it.yields, [".spec.replicas"]);
}

#[test]
fn what_cannot_be_read_is_said_by_name() {
    for (name, value) in [
        ("werf.io/weight", "heavy"),
        ("werf.io/deploy-dependency-a", "kind=Job"),
        ("werf.io/deploy-dependency-a", "state=ready"),
        ("werf.io/deploy-dependency-a", "state=absent,kind=Job"),
        ("werf.io/deploy-dependency-a", "state=ready,colour=red"),
        ("werf.io/deploy-dependency-a", "ready"),
        ("werf.io/delete-dependency-a", "state=ready,kind=Job"),
        ("a.external-dependency.werf.io/resource", "deployment"),
        ("a.external-dependency.werf.io/resource", "a/b/c"),
        ("a.external-dependency.werf.io/name", "kube-system"),
        ("werf.io/ownership", "everyone"),
        ("werf.io/deploy-on", "pre-test"),
        ("werf.io/deploy-on", "uninstall"),
        ("werf.io/delete-policy", "never"),
        ("werf.io/resource-policy", "stay"),
        ("helm.sh/resource-policy", "whatever"),
        ("helm.sh/resource-policy", "skip-update"),
        ("werf.io/delete-propagation", "sideways"),
        ("werf.io/track-termination-mode", "Never"),
        ("werf.io/fail-mode", "Never"),
        ("werf.io/failures-allowed-per-replica", "-1"),
        ("werf.io/no-activity-timeout", "0s"),
        ("werf.io/no-activity-timeout", "soon"),
        ("werf.io/replicas-on-creation", "10001"),
        ("werf.io/sensitive", "perhaps"),
    ] {
        let bad = of(&json!({name: value})).expect_err(name);
        assert_eq!(bad.len(), 1, "{name}: {bad:?}");
        assert_eq!(bad[0].name, name);
        assert!(!bad[0].why.is_empty() && !bad[0].hint.is_empty());
        assert_eq!(Directives::of(&json!({"metadata": {"annotations": {name: value}}})), Directives::default());
    }
}

#[test]
fn the_policy_to_keep_is_read_as_helm_reads_it_anywhere() {
    for (value, kept) in [("keep", true), ("  Keep ", true), ("KEEP", true), ("", false)] {
        assert_eq!(good(&json!({"helm.sh/resource-policy": value})).is_kept(), kept, "{value:?}");
    }
}

#[test]
fn some_objects_may_be_missing() {
    let job = json!({"kind": "Job", "spec": {"ttlSecondsAfterFinished": 0}});
    assert!(Directives::of(&job).may_be_absent(&job));
    let job = json!({"kind": "Job", "spec": {}});
    assert!(!Directives::of(&job).may_be_absent(&job));
    for annotations in
        [json!({"werf.io/resource-policy": "skip-create"}), json!({"werf.io/delete-policy": "succeeded"})]
    {
        let object = json!({"kind": "Secret", "metadata": {"annotations": annotations}});
        assert!(Directives::of(&object).may_be_absent(&object));
    }
}

#[test]
fn secrets_are_sensitive_unless_their_author_says_otherwise() {
    let secret = json!({"kind": "Secret"});
    assert!(Directives::of(&secret).is_sensitive(&secret));
    let open = json!({"kind": "Secret", "metadata": {"annotations": {"werf.io/sensitive": "false"}}});
    assert!(!Directives::of(&open).is_sensitive(&open));
    let map = json!({"kind": "ConfigMap"});
    assert!(!Directives::of(&map).is_sensitive(&map));
}
