//! Services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pods::{port, problems, protocol};
use crate::{
    builtin::{metadata::labels, names},
    json::{at, int, list, text},
    status::Cause,
};

/// A Service as a whole.
pub(super) fn service(object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(object, &["spec", "type"]);
    let headless = text(object, &["spec", "clusterIP"]) == "None";
    let ports = list(object, &["spec", "ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!("None"), &why));
        }
        "ExternalName" => {
            for (field, empty) in [("clusterIPs", true), ("ipFamilies", true), ("ipFamilyPolicy", false)] {
                let given = at(object, &["spec", field]);
                if given.is_some_and(|it| !empty || it.as_array().is_some_and(|list| !list.is_empty())) {
                    causes.push(Cause::forbidden(format!("spec.{field}"), "may not be set for ExternalName services"));
                }
            }
            let name = text(object, &["spec", "externalName"]);
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                causes.push(Cause::required("spec.externalName", ""));
            } else {
                problems("spec.externalName", &json!(name), &names::dns_name(name), causes);
            }
        }
        _ => {}
    }
    let mut seen = HashSet::new();
    for (index, entry) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        let name = text(entry, &["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                causes.push(Cause::required(format!("{field}.name"), ""));
            }
        } else {
            problems(&format!("{field}.name"), &json!(name), &names::dns_label(name), causes);
            if !seen.insert(name) {
                causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
            }
        }
        let number = int(entry, &["port"]).unwrap_or_default();
        problems(&format!("{field}.port"), &json!(number), &names::port_number(number), causes);
        protocol(entry, &field, causes);
        port(entry.get("targetPort"), &format!("{field}.targetPort"), causes);
        let application = text(entry, &["appProtocol"]);
        if !application.is_empty() {
            problems(&format!("{field}.appProtocol"), &json!(application), &names::label_key(application), causes);
        }
    }
    labels(at(object, &["spec", "selector"]), "spec.selector", causes);
    let mut choice = |field: &str, allowed: &[&str]| {
        let value = text(object, &["spec", field]);
        if !value.is_empty() && !allowed.contains(&value) {
            let allowed = allowed.iter().map(|it| json!(it)).collect::<Vec<_>>();
            causes.push(Cause::not_supported(format!("spec.{field}"), &json!(value), &allowed));
        }
    };
    choice("sessionAffinity", &["ClientIP", "None"]);
    choice("type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    addresses(object, kind, causes);
    node_ports(ports, kind, causes);
    let mut seen = HashSet::new();
    for (index, entry) in ports.iter().enumerate() {
        let (protocol, number) = (text(entry, &["protocol"]), int(entry, &["port"]).unwrap_or_default());
        if !seen.insert((protocol, number)) {
            // In the fields of the server's own type, and in their order.
            let message = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\
                 \"NodePort\":0}}",
                json!(protocol)
            );
            causes.push(Cause { reason: "FieldValueDuplicate", message, field: format!("spec.ports[{index}]") });
        }
    }
    if at(object, &["spec", "allocateLoadBalancerNodePorts"]).is_some() && kind != "LoadBalancer" {
        let why = "may only be used when `type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("spec.allocateLoadBalancerNodePorts", why));
    }
    let policy = text(object, &["spec", "externalTrafficPolicy"]);
    if !policy.is_empty() && !externally_reachable(object) {
        let why = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", &json!(policy), why));
    }
}

/// Whether something outside of the cluster can reach it.
pub(crate) fn externally_reachable(service: &Value) -> bool {
    match text(service, &["spec", "type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, &["spec", "externalIPs"]).is_empty(),
        _ => false,
    }
}

fn addresses(object: &Value, kind: &str, causes: &mut Vec<Cause>) {
    if kind == "ExternalName" {
        return;
    }
    let first = text(object, &["spec", "clusterIP"]);
    let all = list(object, &["spec", "clusterIPs"]);
    if !first.is_empty() && all.first().is_some_and(|it| it != first) {
        causes.push(Cause::invalid("spec.clusterIPs", &json!(all), "first value must match `clusterIP`"));
    }
    if first.is_empty() && !all.is_empty() {
        let why = "must be empty when `clusterIP` is not specified";
        causes.push(Cause::invalid("spec.clusterIPs", &json!(all), why));
    }
    for (index, address) in all.iter().filter_map(Value::as_str).enumerate() {
        if !(index == 0 && address == "None") && address.parse::<std::net::IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(format!("spec.clusterIPs[{index}]"), &json!(address), why));
        }
    }
}

fn node_ports(ports: &[Value], kind: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    let given = |port: &Value| int(port, &["nodePort"]).filter(|number| *number != 0);
    for (index, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && given(port).is_some() {
            let why = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("spec.ports[{index}].nodePort"), why));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        if let Some(number) = given(port)
            && !seen.insert((text(port, &["protocol"]), number))
        {
            causes.push(Cause::duplicate(format!("spec.ports[{index}].nodePort"), &json!(number)));
        }
    }
}

/// What the status of a Service may say.
pub(super) fn status(object: &Value, causes: &mut Vec<Cause>) {
    let ingress = list(object, &["status", "loadBalancer", "ingress"]);
    if text(object, &["spec", "type"]) != "LoadBalancer" && !ingress.is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        causes.push(Cause::forbidden("status.loadBalancer.ingress", why));
        return;
    }
    for (index, entry) in ingress.iter().enumerate() {
        if !text(entry, &["ip"]).is_empty() && text(entry, &["ipMode"]).is_empty() {
            let field = format!("status.loadBalancer.ingress[{index}].ipMode");
            causes.push(Cause::required(field, "must be specified when `ip` is set"));
        }
    }
}
