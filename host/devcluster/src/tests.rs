//! The whole server through a kube client in the process.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tower::ServiceBuilder;

use crate::{Config, DevCluster};

mod admission;
mod client;
mod controller;
mod http;
mod journal;
mod kill;
mod kubectl;
mod rights;
mod rules;

pub(crate) async fn cluster() -> (DevCluster, Client) {
    let cluster = DevCluster::start(Config::default()).await.expect("starts");
    let client = client_of(&cluster);
    (cluster, client)
}

pub(crate) fn client_of(cluster: &DevCluster) -> Client {
    client_through(cluster.router())
}

pub(crate) fn client_through(router: axum::Router) -> Client {
    let service = ServiceBuilder::new()
        .map_request(|r: ::http::Request<kube::client::Body>| r.map(axum::body::Body::new))
        .service(router);
    Client::new(service, "default")
}
