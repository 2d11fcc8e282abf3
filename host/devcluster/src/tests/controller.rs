//! A controller of `kube::runtime`, as an author of operators writes one: owned objects, a finalizer, a status, a cache, and
//! one leader among several.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::StreamExt;
use k8s_openapi::{
    api::coordination::v1::Lease, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Resource,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        Controller,
        controller::{self, Action},
        finalizer::{Event, finalizer},
        reflector::ObjectRef,
        wait::{await_condition, conditions},
        watcher,
    },
};

use super::*;

const FINALIZER: &str = "example.com/leaves-a-note";
/// Much more than it takes, for a machine that is busy.
const WAIT_MAX: Duration = Duration::from_secs(30);

fn site_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Site"), "sites")
}

fn definition() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"title": {"type": "string"}, "pages": {"type": "integer", "default": 1}}},
        "status": {"type": "object", "properties": {
            "observedGeneration": {"type": "integer"}, "pages": {"type": "integer"}}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "sites.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "sites", "kind": "Site"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]},
    });
    serde_json::from_value(definition).expect("valid")
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the API refused")]
    Api(#[from] kube::Error),
    #[error("the finalizer failed")]
    Finalizer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

struct Operator {
    client: Client,
    runs: AtomicUsize,
}

async fn reconcile(site: Arc<DynamicObject>, operator: Arc<Operator>) -> Result<Action, Failure> {
    operator.runs.fetch_add(1, Ordering::SeqCst);
    let namespace = site.namespace().unwrap_or_default();
    let sites = Api::<DynamicObject>::namespaced_with(operator.client.clone(), &namespace, &site_resource());
    let run = |event| async {
        match event {
            Event::Apply(site) => apply(&operator.client, &site).await,
            Event::Cleanup(site) => leave_note(&operator.client, &site).await,
        }
    };
    finalizer(&sites, FINALIZER, site, run).await.map_err(|error| Failure::Finalizer(Box::new(error)))
}

async fn apply(client: &Client, site: &DynamicObject) -> Result<Action, Failure> {
    let (name, namespace) = (site.name_any(), site.namespace().unwrap_or_default());
    let owner = site.controller_owner_ref(&site_resource()).expect("it came from the server");
    let pages = site.data["spec"]["pages"].as_i64().unwrap_or_default();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]},
        "data": {"title": site.data["spec"]["title"], "pages": pages.to_string()}});
    let parameters = PatchParams::apply("site-operator").force();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    maps.patch(&name, &parameters, &Patch::Apply(map)).await?;
    let sites = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &site_resource());
    let status = json!({"apiVersion": "example.com/v1", "kind": "Site",
        "status": {"observedGeneration": site.metadata.generation, "pages": pages}});
    sites.patch_status(&name, &parameters, &Patch::Apply(status)).await?;
    Ok(Action::await_change())
}

async fn leave_note(client: &Client, site: &DynamicObject) -> Result<Action, Failure> {
    let namespace = site.namespace().unwrap_or_default();
    let note =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{}-was-here", site.name_any())}});
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let name = format!("{}-was-here", site.name_any());
    maps.patch(&name, &PatchParams::apply("site-operator"), &Patch::Apply(note)).await?;
    Ok(Action::await_change())
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, work).await.unwrap_or_else(|_| panic!("{what} does not happen"))
}

fn site(title: &str) -> DynamicObject {
    let mut site = DynamicObject::new("home", &site_resource());
    site.data = json!({"spec": {"title": title}});
    site
}

/// A condition on the data of the ConfigMap.
fn says(key: &'static str, value: &'static str) -> impl Fn(Option<&ConfigMap>) -> bool {
    move |map| map.and_then(|map| map.data.as_ref()).and_then(|data| data.get(key)).is_some_and(|it| it == value)
}

#[tokio::test]
async fn a_controller_of_kube_keeps_what_it_owns_and_cleans_up() {
    let (cluster, client) = cluster().await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let established = await_condition(definitions, "sites.example.com", conditions::is_crd_established());
    within("the definition", established).await.unwrap();

    let sites = Api::<DynamicObject>::default_namespaced_with(client.clone(), &site_resource());
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let operator = Arc::new(Operator { client: client.clone(), runs: AtomicUsize::new(0) });
    let controller = Controller::new_with(sites.clone(), watcher::Config::default(), site_resource())
        .owns(maps.clone(), watcher::Config::default());
    let store = controller.store();
    let policy = |_: Arc<DynamicObject>, _: &Failure, _: Arc<Operator>| Action::requeue(Duration::from_millis(10));
    let running = controller.run(reconcile, policy, Arc::clone(&operator));
    let running = tokio::spawn(running.for_each(|it| async move {
        // What is asked for after its end is not there; anything else is a fault of the server.
        assert!(matches!(it, Ok(_) | Err(controller::Error::ObjectNotFound(_))), "{it:?}");
    }));

    sites.create(&PostParams::default(), &site("one")).await.unwrap();
    within("the map", await_condition(maps.clone(), "home", says("title", "one"))).await.unwrap();
    let done = |generation: i64| {
        move |site: Option<&DynamicObject>| {
            site.is_some_and(|site| site.data["status"]["observedGeneration"] == json!(generation))
        }
    };
    let first = within("the status", await_condition(sites.clone(), "home", done(1))).await.unwrap().unwrap();
    assert_eq!((first.finalizers(), &first.data["status"]["pages"]), (&[FINALIZER.to_owned()][..], &json!(1)));

    // What is owned comes back, as it was.
    maps.delete("home", &DeleteParams::default()).await.unwrap();
    within("the map again", await_condition(maps.clone(), "home", says("title", "one"))).await.unwrap();
    let spoilt = Patch::Merge(json!({"data": {"title": "spoilt"}}));
    maps.patch("home", &PatchParams::default(), &spoilt).await.unwrap();
    within("the title again", await_condition(maps.clone(), "home", says("title", "one"))).await.unwrap();

    let more = Patch::Merge(json!({"spec": {"title": "two", "pages": 7}}));
    sites.patch("home", &PatchParams::default(), &more).await.unwrap();
    within("the pages", await_condition(maps.clone(), "home", says("pages", "7"))).await.unwrap();
    within("the second status", await_condition(sites.clone(), "home", done(2))).await.unwrap();

    // The cache follows, and a controller that has nothing to do does nothing.
    let at = ObjectRef::<DynamicObject>::new_with("home", site_resource()).within("default");
    let cached = async {
        while store.get(&at).is_none_or(|site| site.data["status"]["pages"] != json!(7)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the cache", cached).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (runs, writes) = (operator.runs.load(Ordering::SeqCst), cluster.writes().len());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((operator.runs.load(Ordering::SeqCst), cluster.writes().len()), (runs, writes));

    let uid = first.uid().unwrap();
    sites.delete("home", &DeleteParams::background()).await.unwrap();
    within("the end", await_condition(sites, "home", conditions::is_deleted(&uid))).await.unwrap();
    assert!(maps.get_opt("home-was-here").await.unwrap().is_some(), "the finalizer ran");
    let gone = |map: Option<&ConfigMap>| map.is_none();
    within("what it owned", await_condition(maps, "home", gone)).await.unwrap();
    assert!(store.get(&at).is_none());
    assert!(!running.is_finished(), "every reconciliation went well");
    running.abort();
}

/// Takes the Lease if it is free or has run out, by its version: of several that try at once one wins.
async fn take(leases: &Api<Lease>, me: &str, now: jiff::Timestamp) -> Result<bool, kube::Error> {
    let spec = |transitions: i64| {
        json!({"holderIdentity": me, "leaseDurationSeconds": 1, "leaseTransitions": transitions,
            "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}")})
    };
    let lost = |error: kube::Error| match error {
        kube::Error::Api(status) if status.code == 409 => Ok(false),
        other => Err(other),
    };
    let Some(held) = leases.get_opt("leader").await? else {
        let lease = serde_json::from_value(json!({"metadata": {"name": "leader"}, "spec": spec(0)})).expect("valid");
        return leases.create(&PostParams::default(), &lease).await.map_or_else(lost, |_| Ok(true));
    };
    let value = serde_json::to_value(&held).expect("it was JSON");
    let renewed = value["spec"]["renewTime"].as_str().and_then(|it| it.parse::<jiff::Timestamp>().ok());
    let ours = value["spec"]["holderIdentity"] == me;
    let over = renewed.is_none_or(|at| at + jiff::SignedDuration::from_secs(1) < now);
    if !ours && !over {
        return Ok(false);
    }
    let transitions = value["spec"]["leaseTransitions"].as_i64().unwrap_or_default() + i64::from(!ours);
    let mut lease = serde_json::from_value::<Lease>(json!({"metadata": {"name": "leader"}, "spec": spec(transitions)}))
        .expect("valid");
    lease.meta_mut().resource_version = held.resource_version();
    leases.replace("leader", &PostParams::default(), &lease).await.map_or_else(lost, |_| Ok(true))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_that_want_to_lead_one_does() {
    let (_cluster, client) = cluster().await;
    let leases = Api::<Lease>::default_namespaced(client);
    let now = jiff::Timestamp::now();
    let race = |now: jiff::Timestamp| {
        let leases = leases.clone();
        async move {
            let tries = (0..8).map(|n| {
                let leases = leases.clone();
                tokio::spawn(async move { (n, take(&leases, &format!("candidate-{n}"), now).await.unwrap()) })
            });
            let won = futures::future::join_all(tries).await;
            won.into_iter().map(Result::unwrap).filter(|(_, won)| *won).map(|(n, _)| n).collect::<Vec<_>>()
        }
    };
    let first = race(now).await;
    assert_eq!(first.len(), 1, "{first:?}");
    let leader = format!("candidate-{}", first[0]);
    assert!(take(&leases, &leader, now + jiff::SignedDuration::from_millis(500)).await.unwrap(), "it may renew");
    assert!(!take(&leases, "late", now + jiff::SignedDuration::from_secs(1)).await.unwrap(), "it is held");
    let second = race(now + jiff::SignedDuration::from_secs(5)).await;
    assert_eq!(second.len(), 1, "{second:?}");
    let held = leases.get("leader").await.unwrap().spec.unwrap();
    assert_eq!(held.holder_identity, Some(format!("candidate-{}", second[0])));
    assert_eq!(held.lease_transitions, Some(i32::from(second != first)));
}
