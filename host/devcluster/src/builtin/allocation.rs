//! What a Service is given, keeps and loses when it is written: addresses, their families, ports of nodes.

use serde_json::{Value, json};

use super::validation::externally_reachable;
use crate::{
    json::{at, copy, int, list, remove, set, text},
    status::Cause,
};

fn external(service: &Value) -> bool {
    text(service, &["spec", "type"]) == "ExternalName"
}

/// Whether its ports are to be open on nodes.
pub(crate) fn wants_node_ports(service: &Value) -> bool {
    match text(service, &["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => at(service, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false)),
        _ => false,
    }
}

fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, &["spec", "type"]), "NodePort" | "LoadBalancer")
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

fn node_ports(service: &Value) -> Vec<i64> {
    list(service, &["spec", "ports"]).iter().filter_map(|port| int(port, &["nodePort"])).collect()
}

/// Fills what the server gave to the Service before and an update leaves out.
pub(crate) fn keep_allocated(old: &Value, new: &mut Value) {
    if !external(old) && !external(new) {
        if text(new, &["spec", "clusterIP"]).is_empty() {
            copy(old, new, &["spec", "clusterIP"]);
        }
        if list(new, &["spec", "clusterIPs"]).is_empty() {
            copy(old, new, &["spec", "clusterIPs"]);
        }
    }
    if has_node_ports(old) && has_node_ports(new) {
        let (before, after) = (node_ports(old), node_ports(new));
        let used = before.into_iter().filter(|number| after.contains(number)).collect::<Vec<_>>();
        for port in ports_mut(new).filter(|port| int(port, &["nodePort"]).is_none()) {
            // A port without a name is the only one.
            let same = list(old, &["spec", "ports"]).iter().rfind(|it| text(it, &["name"]) == text(port, &["name"]));
            if let Some(number) = same.and_then(|it| int(it, &["nodePort"])).filter(|it| !used.contains(it)) {
                set(port, &["nodePort"], json!(number));
            }
        }
    }
}

/// The list of addresses follows the one address of older clients.
pub(crate) fn agree_on_addresses(old: Option<&Value>, new: &mut Value) {
    let first = text(new, &["spec", "clusterIP"]).to_owned();
    let all = list(new, &["spec", "clusterIPs"]).to_vec();
    let Some(old) = old else {
        if !first.is_empty() && all.is_empty() {
            set(new, &["spec", "clusterIPs"], json!([first]));
        }
        return;
    };
    let (old_first, old_all) = (text(old, &["spec", "clusterIP"]), list(old, &["spec", "clusterIPs"]));
    if !old_all.is_empty() && all.is_empty() && old_first == first {
        copy(old, new, &["spec", "clusterIPs"]);
    }
    if old_first != first && all == old_all {
        if !old_first.is_empty() && first.is_empty() {
            remove(new, &["spec", "clusterIPs"]);
        } else {
            set(new, &["spec", "clusterIPs"], json!([first]));
        }
    }
}

/// Chooses the families of addresses; only IPv4 is served here.
pub(crate) fn families(old: Option<&Value>, new: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if external(new) {
        return causes;
    }
    let headless = text(new, &["spec", "clusterIP"]) == "None";
    let selects = at(new, &["spec", "selector"]).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if at(new, &["spec", "ipFamilyPolicy"]).is_none() {
        let kept = old.map(|old| text(old, &["spec", "ipFamilyPolicy"])).filter(|policy| !policy.is_empty());
        let policy = kept.unwrap_or(if headless && !selects { "RequireDualStack" } else { "SingleStack" });
        set(new, &["spec", "ipFamilyPolicy"], json!(policy));
    }
    let single = text(new, &["spec", "ipFamilyPolicy"]) == "SingleStack";
    let mut chosen = list(new, &["spec", "ipFamilies"]).to_vec();
    if single && chosen.len() > 1 && old.is_some_and(|old| list(old, &["spec", "ipFamilies"]) == chosen) {
        chosen.truncate(1);
    }
    let policy = json!(text(new, &["spec", "ipFamilyPolicy"]));
    if single && chosen.len() > 1 {
        let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
        return vec![Cause::invalid("spec.ipFamilyPolicy", &policy, why)];
    }
    if chosen.is_empty() {
        chosen.push(json!("IPv4"));
    }
    if headless && !selects {
        if chosen.len() < 2 && !single {
            let other = if chosen.first().is_some_and(|it| it == "IPv4") { "IPv6" } else { "IPv4" };
            chosen.push(json!(other));
        }
        set(new, &["spec", "ipFamilies"], Value::Array(chosen));
        return causes;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &policy, why));
    }
    for (index, family) in chosen.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        let field = format!("spec.ipFamilies[{index}]");
        causes.push(Cause::invalid(field, family, "not configured on this cluster"));
    }
    set(new, &["spec", "ipFamilies"], Value::Array(chosen));
    causes
}

/// Takes away what belongs to the type that the Service had, unless the update gives it another value.
pub(crate) fn drop_dependent(old: &Value, new: &mut Value) {
    let equal = |new: &Value, field: &str| at(old, &["spec", field]) == at(new, &["spec", field]);
    if !external(old) && external(new) {
        if equal(new, "clusterIP") && equal(new, "clusterIPs") {
            remove(new, &["spec", "clusterIP"]);
            remove(new, &["spec", "clusterIPs"]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if equal(new, field) {
                remove(new, &["spec", field]);
            }
        }
    }
    if has_node_ports(old) && !has_node_ports(new) {
        let before = node_ports(old);
        if node_ports(new).iter().all(|number| before.contains(number)) {
            ports_mut(new).for_each(|port| {
                remove(port, &["nodePort"]);
            });
        }
    }
    let balanced = |service: &Value| text(service, &["spec", "type"]) == "LoadBalancer";
    if balanced(old) && !balanced(new) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"] {
            if equal(new, field) {
                remove(new, &["spec", field]);
            }
        }
    }
    if externally_reachable(old) && !externally_reachable(new) && equal(new, "externalTrafficPolicy") {
        remove(new, &["spec", "externalTrafficPolicy"]);
    }
    if !balanced(new) {
        set(new, &["status", "loadBalancer"], json!({}));
    }
}
