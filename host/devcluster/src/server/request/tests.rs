//! Addresses as a table.

use super::*;

#[test]
fn paths_name_collections_objects_and_subresources() {
    let shown = |path: &str| match Path::parse(path) {
        Path::Target(t) => format!(
            "{}/{} {:?} {} {:?} {:?}",
            t.group,
            t.version,
            t.namespace.as_deref().unwrap_or("-"),
            t.plural,
            t.name.as_deref().unwrap_or("-"),
            t.subresource
        ),
        other => format!("{other:?}"),
    };
    for (path, expected) in [
        ("/api/v1/pods", "/v1 \"-\" pods \"-\" \"\""),
        ("/api/v1/namespaces", "/v1 \"-\" namespaces \"-\" \"\""),
        ("/api/v1/namespaces/x", "/v1 \"-\" namespaces \"x\" \"\""),
        ("/api/v1/namespaces/x/status", "/v1 \"-\" namespaces \"x\" \"status\""),
        ("/api/v1/namespaces/x/finalize", "/v1 \"-\" namespaces \"x\" \"finalize\""),
        ("/api/v1/namespaces/x/pods", "/v1 \"x\" pods \"-\" \"\""),
        ("/api/v1/namespaces/x/pods/p/log", "/v1 \"x\" pods \"p\" \"log\""),
        ("/apis/apps/v1/namespaces/x/deployments/d/scale", "apps/v1 \"x\" deployments \"d\" \"scale\""),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "rbac.authorization.k8s.io/v1 \"-\" clusterroles \"system:node\" \"\"",
        ),
        ("/apis/apps", "Group(\"apps\")"),
        ("/apis/apps/v1", "Resources(\"apps\", \"v1\")"),
        ("/healthz/ping", "Health"),
        ("/openapi/v3/apis/apps/v1", "OpenApi(\"apis/apps/v1\")"),
        ("/api/v1/namespaces/x/pods/p/a/b", "Unknown"),
        ("/metrics", "Unknown"),
        ("/", "Root"),
    ] {
        assert_eq!(shown(path), expected, "{path}");
    }
}

#[test]
fn queries_are_read_leniently() {
    let query = Query::parse("&watch=true&labelSelector=a%20in%20(b,c)&fieldSelector=x%3Dy+z&bad=%zz&flag");
    assert!(query.flag("watch") && !query.flag("flag") && query.has("flag"));
    assert_eq!(query.get("labelSelector"), "a in (b,c)");
    assert_eq!(query.get("fieldSelector"), "x=y z");
    assert_eq!(query.get("bad"), "%zz");
}
