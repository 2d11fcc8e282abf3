//! What users are told of applications that nobody looks after.

use barbless_devcluster::DevCluster;
use serde_json::json;

use super::*;
use crate::app;

#[tokio::test]
async fn applications_that_are_not_served_are_told_why() {
    let devcluster = DevCluster::start(barbless_devcluster::Config::default()).await.unwrap();
    let client = app::client_of(&devcluster);
    let cluster = Cluster::new(client.clone());
    cluster.establish_crds().await.unwrap();
    // Such names are from before the definition had a rule for them.
    let no_rules =
        json!([{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations"}]);
    let request = axum::http::Request::patch(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.deckhouse.io?fieldManager=old",
    );
    let request = request.header("content-type", "application/json-patch+json").body(no_rules.to_string().into_bytes());
    client.request_text(request.unwrap()).await.unwrap();
    let id = |name: &str| ApplicationId::new("default", name).unwrap();
    for (name, package) in [("web", "shop"), ("second", "shop"), ("third", "other")] {
        cluster.create_application(&id(name), package, "1.0.0", &json!({})).await.unwrap();
    }
    let long = "a".repeat(70);
    for name in ["a.b", long.as_str()] {
        let object = json!({
            "apiVersion": "deckhouse.io/v1alpha1", "kind": "Application", "metadata": {"name": name},
            "spec": {"packageName": "shop", "packageVersion": "1.0.0"},
        });
        cluster.apply_object("a-user", "default", &object).await.unwrap();
    }
    let mut events = std::pin::pin!(cluster.watch_applications(None));
    let mut told = unserved(&events.next().await.unwrap(), &id("web"), "shop");
    told.sort_by(|a, b| a.name.cmp(&b.name));
    let said: Vec<_> = told.iter().map(|it| (it.name.as_str(), it.why.reason.as_str())).collect();
    let expected =
        [("a.b", "BadName"), (long.as_str(), "BadName"), ("second", "NotServed"), ("third", "PackageUnknown")];
    assert_eq!(said, expected);
    assert!(told[1].why.message.contains("longer than 24 characters"), "{told:?}");
    assert!(told.iter().all(|it| it.generation == 1 && it.why.hint.is_some()), "{told:?}");
}
