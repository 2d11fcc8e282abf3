//! What a real server warns of in objects of built-in kinds: what is asked for and has no effect.

use serde_json::Value;

use crate::{
    catalog::Resource,
    json::{list, text},
};

/// The warnings about an object, in the order and the words of the server.
pub(crate) fn warnings(resource: &Resource, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if resource.custom.is_none() && resource.is("", "Service") {
        service(object, &mut warnings);
    }
    warnings
}

fn service(object: &Value, warnings: &mut Vec<String>) {
    let kind = text(object, &["spec", "type"]);
    let headless = kind == "ClusterIP" && text(object, &["spec", "clusterIP"]) == "None";
    let external = !list(object, &["spec", "externalIPs"]).is_empty();
    let mut warn = |said: &str| warnings.push(said.to_owned());
    if headless {
        if !text(object, &["spec", "loadBalancerIP"]).is_empty() {
            warn("spec.loadBalancerIP is ignored for headless services");
        }
        if external {
            warn("spec.externalIPs is ignored for headless services");
        }
        if text(object, &["spec", "sessionAffinity"]) != "None" {
            warn("spec.SessionAffinity is ignored for headless services");
        }
    }
    if external && !headless && kind != "ExternalName" {
        warn("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if external && kind == "ExternalName" {
        warn("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !text(object, &["spec", "externalName"]).is_empty() {
        warn("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
}
