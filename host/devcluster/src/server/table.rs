//! Tables for people: the columns of `kubectl get`.

use serde_json::{Value, json};

use crate::{
    catalog::Resource,
    json::{at, int, list, text},
};

type Cell = fn(&Value) -> Value;

struct Column {
    name: &'static str,
    kind: &'static str,
    wide: bool,
    cell: Cell,
}

const fn column(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", wide: false, cell }
}

const fn number(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "integer", wide: false, cell }
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", wide: true, cell }
}

/// A Table object. `include` is the parameter `includeObject`: Metadata (default), None or Object.
pub(super) fn render<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Option<&Value>,
    include: &str,
) -> Value {
    let columns = columns(resource);
    let custom = resource.custom.as_ref().map(|custom| custom.columns.as_slice()).unwrap_or_default();
    let mut definitions = vec![json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace."})];
    for column in columns {
        definitions.push(json!({"name": column.name, "type": column.kind, "format": "",
            "priority": i32::from(column.wide), "description": column.name}));
    }
    for column in custom {
        definitions.push(json!({
            "name": text(column, &["name"]), "type": text(column, &["type"]), "format": text(column, &["format"]),
            "priority": int(column, &["priority"]).unwrap_or_default(), "description": text(column, &["description"]),
        }));
    }
    let own_age = columns.iter().any(|column| column.name == "Age") || !custom.is_empty();
    if !own_age {
        definitions.push(json!({"name": "Age", "type": "string", "format": "", "priority": 0, "description": "Age"}));
    }
    let rows = objects
        .map(|object| {
            let mut cells = vec![json!(text(object, &["metadata", "name"]))];
            cells.extend(columns.iter().map(|column| (column.cell)(object)));
            cells.extend(custom.iter().map(|column| custom_cell(column, object)));
            if !own_age {
                cells.push(age(object));
            }
            let shown = match include {
                "None" => Value::Null,
                "Object" => object.clone(),
                _ => super::accept::partial(object),
            };
            json!({"cells": cells, "object": shown})
        })
        .collect::<Vec<_>>();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata.cloned().unwrap_or_else(|| json!({})),
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn custom_cell(column: &Value, object: &Value) -> Value {
    let found = json_path(object, text(column, &["jsonPath"]));
    match (text(column, &["type"]), found) {
        ("date", Some(Value::String(time))) => json!(since(&time)),
        ("string", Some(value @ (Value::Object(_) | Value::Array(_)))) => json!(value.to_string()),
        ("string", Some(value)) if !value.is_string() => json!(value.to_string()),
        (_, Some(value)) => value,
        (_, None) => Value::Null,
    }
}

/// The simple JSON paths of printer columns: `.a.b[0].c`, `.a["x.y"]`, `.c[?(@.type=="Ready")].status`.
fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut here = object;
    let mut rest = path.trim_start_matches(['{', '$']).trim_end_matches('}');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let (inside, after) = tail.split_once(']')?;
            here = step(here, inside)?;
            rest = after;
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let mut end = tail.len();
            let mut escaped = false;
            for (index, character) in tail.char_indices() {
                match character {
                    '\\' => escaped = true,
                    '.' | '[' if !escaped => {
                        end = index;
                        break;
                    }
                    _ => escaped = false,
                }
            }
            let (name, after) = tail.split_at(end);
            here = here.get(name.replace('\\', ""))?;
            rest = after;
        }
    }
    Some(here.clone())
}

fn step<'a>(value: &'a Value, inside: &str) -> Option<&'a Value> {
    if let Some(filter) = inside.strip_prefix("?(@.").and_then(|f| f.strip_suffix(')')) {
        let (field, wanted) = filter.split_once("==")?;
        let wanted = wanted.trim().trim_matches(['"', '\'']);
        return value.as_array()?.iter().find(|item| item.get(field.trim()).and_then(Value::as_str) == Some(wanted));
    }
    match inside.parse::<usize>() {
        Ok(index) => value.get(index),
        Err(_) => value.get(inside.trim_matches(['"', '\''])),
    }
}

fn since(time: &str) -> String {
    let Ok(then) = time.parse::<jiff::Timestamp>() else { return "<invalid>".to_owned() };
    let seconds = jiff::Timestamp::now().duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => format!("{minutes}m{}", some(seconds % 60, "s")),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => format!("{hours}h{}", some(minutes % 60, "m")),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => format!("{days}d{}", some(hours % 24, "h")),
        () if days < 730 => format!("{days}d"),
        () => format!("{}y", days / 365),
    }
}

fn some(amount: i64, unit: &str) -> String {
    if amount == 0 { String::new() } else { format!("{amount}{unit}") }
}

fn age(object: &Value) -> Value {
    json!(since(text(object, &["metadata", "creationTimestamp"])))
}

fn none_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn count(object: &Value, path: &[&str]) -> i64 {
    int(object, path).unwrap_or_default()
}

fn data(object: &Value) -> Value {
    let size = |key: &str| object.get(key).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    json!(size("data") + size("binaryData"))
}

fn images(object: &Value) -> Value {
    let containers = list(object, &["spec", "template", "spec", "containers"]);
    json!(containers.iter().map(|c| text(c, &["image"])).collect::<Vec<_>>().join(","))
}

fn container_names(object: &Value) -> Value {
    let containers = list(object, &["spec", "template", "spec", "containers"]);
    json!(containers.iter().map(|c| text(c, &["name"])).collect::<Vec<_>>().join(","))
}

fn selector(object: &Value) -> Value {
    let selector = at(object, &["spec", "selector"]).cloned().unwrap_or_default();
    let shown = if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
        crate::selector::label_selector_text(&selector)
    } else {
        crate::selector::label_selector_text(&json!({"matchLabels": selector}))
    };
    none_if_empty(&shown)
}

fn pod_ready(object: &Value) -> Value {
    let all = list(object, &["spec", "containers"]).len();
    let ready =
        list(object, &["status", "containerStatuses"]).iter().filter(|c| c.get("ready") == Some(&Value::Bool(true)));
    json!(format!("{}/{all}", ready.count()))
}

fn pod_status(object: &Value) -> Value {
    if at(object, &["metadata", "deletionTimestamp"]).is_some() {
        return json!("Terminating");
    }
    for container in list(object, &["status", "containerStatuses"]) {
        for state in ["waiting", "terminated"] {
            let reason = text(container, &["state", state, "reason"]);
            if !reason.is_empty() {
                return json!(reason);
            }
        }
    }
    let reason = text(object, &["status", "reason"]);
    json!(if reason.is_empty() { text(object, &["status", "phase"]) } else { reason })
}

fn restarts(object: &Value) -> Value {
    json!(
        list(object, &["status", "containerStatuses"])
            .iter()
            .map(|c| count(c, &["restartCount"]))
            .sum::<i64>()
            .to_string()
    )
}

fn ready_of(object: &Value) -> Value {
    json!(format!("{}/{}", count(object, &["status", "readyReplicas"]), count(object, &["spec", "replicas"])))
}

fn external_address(object: &Value) -> Value {
    let ingress = list(object, &["status", "loadBalancer", "ingress"]);
    let addresses =
        ingress.iter().map(|i| if text(i, &["ip"]).is_empty() { text(i, &["hostname"]) } else { text(i, &["ip"]) });
    let addresses = addresses.collect::<Vec<_>>().join(",");
    match text(object, &["spec", "type"]) {
        "ExternalName" => json!(text(object, &["spec", "externalName"])),
        "LoadBalancer" if addresses.is_empty() => json!("<pending>"),
        _ => none_if_empty(&addresses),
    }
}

fn service_ports(object: &Value) -> Value {
    let ports = list(object, &["spec", "ports"]).iter().map(|port| {
        let node = int(port, &["nodePort"]).map(|n| format!(":{n}")).unwrap_or_default();
        format!("{}{node}/{}", count(port, &["port"]), text(port, &["protocol"]))
    });
    none_if_empty(&ports.collect::<Vec<_>>().join(","))
}

fn job_status(object: &Value) -> Value {
    let is = |kind: &str| {
        list(object, &["status", "conditions"])
            .iter()
            .any(|c| text(c, &["type"]) == kind && text(c, &["status"]) == "True")
    };
    json!(match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if at(object, &["metadata", "deletionTimestamp"]).is_some() => "Terminating",
        () if is("Suspended") => "Suspended",
        () => "Running",
    })
}

fn duration(object: &Value) -> Value {
    let time = |field: &str| text(object, &["status", field]).parse::<jiff::Timestamp>().ok();
    let Some(start) = time("startTime") else { return json!("") };
    let end = time("completionTime").unwrap_or_else(jiff::Timestamp::now);
    json!(format!("{}s", end.duration_since(start).as_secs()))
}

fn node_status(object: &Value) -> Value {
    let ready = list(object, &["status", "conditions"])
        .iter()
        .any(|c| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True");
    json!(if ready { "Ready" } else { "NotReady" })
}

fn address_type(object: &Value) -> Value {
    json!(text(object, &["addressType"]))
}

fn endpoints(object: &Value) -> Value {
    let mut out = Vec::new();
    for endpoint in list(object, &["endpoints"]) {
        out.extend(list(endpoint, &["addresses"]).iter().filter_map(Value::as_str));
    }
    for subset in list(object, &["subsets"]) {
        out.extend(list(subset, &["addresses"]).iter().map(|a| text(a, &["ip"])));
    }
    none_if_empty(&out.join(","))
}

fn hosts(object: &Value) -> Value {
    let hosts = list(object, &["spec", "rules"]).iter().map(|rule| text(rule, &["host"])).filter(|h| !h.is_empty());
    let hosts = hosts.collect::<Vec<_>>().join(",");
    json!(if hosts.is_empty() { "*".to_owned() } else { hosts })
}

fn last_seen(object: &Value) -> Value {
    let series = text(object, &["series", "lastObservedTime"]);
    let candidates = [
        series,
        text(object, &["lastTimestamp"]),
        text(object, &["eventTime"]),
        text(object, &["metadata", "creationTimestamp"]),
    ];
    json!(candidates.iter().find(|time| !time.is_empty()).map(|time| since(time)).unwrap_or_default())
}

fn involved(object: &Value) -> Value {
    let part = |field: &str| {
        let old = text(object, &["involvedObject", field]);
        if old.is_empty() { text(object, &["regarding", field]) } else { old }
    };
    json!(format!("{}/{}", part("kind").to_lowercase(), part("name")))
}

fn message(object: &Value) -> Value {
    let old = text(object, &["message"]);
    json!(if old.is_empty() { text(object, &["note"]) } else { old }.trim())
}

fn claim_capacity(object: &Value) -> Value {
    json!(text(object, &["status", "capacity", "storage"]))
}

fn access_modes(object: &Value) -> Value {
    let modes = list(object, &["spec", "accessModes"]).iter().filter_map(Value::as_str).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    json!(modes.collect::<Vec<_>>().join(","))
}

fn role_ref(object: &Value) -> Value {
    json!(format!("{}/{}", text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"])))
}

fn columns(resource: &Resource) -> &'static [Column] {
    if resource.custom.is_some() {
        return &[];
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            const COLUMNS: &[Column] = &[
                column("Ready", pod_ready),
                column("Status", pod_status),
                column("Restarts", restarts),
                column("Age", age),
                wide("IP", |o| none_if_empty(text(o, &["status", "podIP"]))),
                wide("Node", |o| none_if_empty(text(o, &["spec", "nodeName"]))),
                wide("Nominated Node", |o| none_if_empty(text(o, &["status", "nominatedNodeName"]))),
                wide("Readiness Gates", |_| json!("<none>")),
            ];
            COLUMNS
        }
        ("", "Namespace") => {
            const COLUMNS: &[Column] =
                &[column("Status", |o| json!(text(o, &["status", "phase"]))), column("Age", age)];
            COLUMNS
        }
        ("", "ConfigMap") => {
            const COLUMNS: &[Column] = &[number("Data", data), column("Age", age)];
            COLUMNS
        }
        ("", "Secret") => {
            const COLUMNS: &[Column] =
                &[column("Type", |o| json!(text(o, &["type"]))), number("Data", data), column("Age", age)];
            COLUMNS
        }
        ("", "ServiceAccount") => {
            const COLUMNS: &[Column] = &[number("Secrets", |o| json!(list(o, &["secrets"]).len())), column("Age", age)];
            COLUMNS
        }
        ("", "Service") => {
            const COLUMNS: &[Column] = &[
                column("Type", |o| json!(text(o, &["spec", "type"]))),
                column("Cluster-IP", |o| none_if_empty(text(o, &["spec", "clusterIP"]))),
                column("External-IP", external_address),
                column("Port(s)", service_ports),
                column("Age", age),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("", "Node") => {
            const COLUMNS: &[Column] = &[
                column("Status", node_status),
                column("Roles", |_| json!("<none>")),
                column("Age", age),
                column("Version", |o| json!(text(o, &["status", "nodeInfo", "kubeletVersion"]))),
            ];
            COLUMNS
        }
        ("", "Endpoints") => {
            const COLUMNS: &[Column] = &[column("Endpoints", endpoints), column("Age", age)];
            COLUMNS
        }
        ("" | "events.k8s.io", "Event") => {
            const COLUMNS: &[Column] = &[
                column("Last Seen", last_seen),
                column("Type", |o| json!(text(o, &["type"]))),
                column("Reason", |o| json!(text(o, &["reason"]))),
                column("Object", involved),
                column("Message", message),
                // Kept out of the way: the events table has no age of its own.
                wide("Age", age),
            ];
            COLUMNS
        }
        ("", "PersistentVolumeClaim") => {
            const COLUMNS: &[Column] = &[
                column("Status", |o| json!(text(o, &["status", "phase"]))),
                column("Volume", |o| json!(text(o, &["spec", "volumeName"]))),
                column("Capacity", claim_capacity),
                column("Access Modes", access_modes),
                column("StorageClass", |o| json!(text(o, &["spec", "storageClassName"]))),
                column("Age", age),
            ];
            COLUMNS
        }
        ("", "PersistentVolume") => {
            const COLUMNS: &[Column] = &[
                column("Capacity", |o| json!(text(o, &["spec", "capacity", "storage"]))),
                column("Access Modes", access_modes),
                column("Reclaim Policy", |o| json!(text(o, &["spec", "persistentVolumeReclaimPolicy"]))),
                column("Status", |o| json!(text(o, &["status", "phase"]))),
                column("Claim", |o| {
                    json!(format!(
                        "{}/{}",
                        text(o, &["spec", "claimRef", "namespace"]),
                        text(o, &["spec", "claimRef", "name"])
                    ))
                }),
                column("Age", age),
            ];
            COLUMNS
        }
        ("apps", "Deployment") => {
            const COLUMNS: &[Column] = &[
                column("Ready", ready_of),
                number("Up-to-date", |o| json!(count(o, &["status", "updatedReplicas"]))),
                number("Available", |o| json!(count(o, &["status", "availableReplicas"]))),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            const COLUMNS: &[Column] = &[
                number("Desired", |o| json!(count(o, &["spec", "replicas"]))),
                number("Current", |o| json!(count(o, &["status", "replicas"]))),
                number("Ready", |o| json!(count(o, &["status", "readyReplicas"]))),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
                wide("Selector", selector),
            ];
            COLUMNS
        }
        ("apps", "StatefulSet") => {
            const COLUMNS: &[Column] = &[
                column("Ready", ready_of),
                column("Age", age),
                wide("Containers", container_names),
                wide("Images", images),
            ];
            COLUMNS
        }
        ("apps", "DaemonSet") => {
            const COLUMNS: &[Column] = &[
                number("Desired", |o| json!(count(o, &["status", "desiredNumberScheduled"]))),
                number("Current", |o| json!(count(o, &["status", "currentNumberScheduled"]))),
                number("Ready", |o| json!(count(o, &["status", "numberReady"]))),
                number("Up-to-date", |o| json!(count(o, &["status", "updatedNumberScheduled"]))),
                number("Available", |o| json!(count(o, &["status", "numberAvailable"]))),
                column("Age", age),
            ];
            COLUMNS
        }
        ("batch", "Job") => {
            const COLUMNS: &[Column] = &[
                column("Status", job_status),
                column("Completions", |o| {
                    json!(format!(
                        "{}/{}",
                        count(o, &["status", "succeeded"]),
                        int(o, &["spec", "completions"]).unwrap_or(1)
                    ))
                }),
                column("Duration", duration),
                column("Age", age),
            ];
            COLUMNS
        }
        ("batch", "CronJob") => {
            const COLUMNS: &[Column] = &[
                column("Schedule", |o| json!(text(o, &["spec", "schedule"]))),
                column("Timezone", |o| none_if_empty(text(o, &["spec", "timeZone"]))),
                column("Suspend", |o| json!(at(o, &["spec", "suspend"]) == Some(&Value::Bool(true)))),
                number("Active", |o| json!(list(o, &["status", "active"]).len())),
                column("Last Schedule", |o| match text(o, &["status", "lastScheduleTime"]) {
                    "" => json!("<none>"),
                    time => json!(since(time)),
                }),
                column("Age", age),
            ];
            COLUMNS
        }
        ("networking.k8s.io", "Ingress") => {
            const COLUMNS: &[Column] = &[
                column("Class", |o| none_if_empty(text(o, &["spec", "ingressClassName"]))),
                column("Hosts", hosts),
                column("Address", |o| {
                    json!(
                        list(o, &["status", "loadBalancer", "ingress"])
                            .iter()
                            .map(|i| text(i, &["ip"]))
                            .collect::<Vec<_>>()
                            .join(",")
                    )
                }),
                column("Ports", |o| json!(if list(o, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" })),
                column("Age", age),
            ];
            COLUMNS
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            const COLUMNS: &[Column] = &[column("Role", role_ref), column("Age", age)];
            COLUMNS
        }
        ("coordination.k8s.io", "Lease") => {
            const COLUMNS: &[Column] =
                &[column("Holder", |o| json!(text(o, &["spec", "holderIdentity"]))), column("Age", age)];
            COLUMNS
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            const COLUMNS: &[Column] =
                &[column("AddressType", address_type), column("Endpoints", endpoints), column("Age", age)];
            COLUMNS
        }
        ("apiextensions.k8s.io", _) => {
            const COLUMNS: &[Column] = &[column("Created At", |o| json!(text(o, &["metadata", "creationTimestamp"])))];
            COLUMNS
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            const COLUMNS: &[Column] = &[
                number("Value", |o| json!(count(o, &["value"]))),
                column("Global-Default", |o| json!(at(o, &["globalDefault"]) == Some(&Value::Bool(true)))),
                column("Age", age),
            ];
            COLUMNS
        }
        ("storage.k8s.io", "StorageClass") => {
            const COLUMNS: &[Column] = &[
                column("Provisioner", |o| json!(text(o, &["provisioner"]))),
                column("ReclaimPolicy", |o| json!(text(o, &["reclaimPolicy"]))),
                column("VolumeBindingMode", |o| json!(text(o, &["volumeBindingMode"]))),
                column("Age", age),
            ];
            COLUMNS
        }
        _ => &[],
    }
}
