//! The cells of tables: what is said of an object in a few characters.

use serde_json::{Value, json};

use super::{human, since};
use crate::json::{at, int, list, text};

/// Items of a list that are shown before it is cut short.
const SHOWN_MAX: usize = 3;
const UNSET: &str = "<unset>";

pub(super) fn age(object: &Value) -> Value {
    json!(since(text(object, &["metadata", "creationTimestamp"])))
}

pub(super) fn created(object: &Value) -> Value {
    json!(text(object, &["metadata", "creationTimestamp"]))
}

pub(super) fn none_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(super) fn unset_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { UNSET } else { text })
}

pub(super) fn count(object: &Value, path: &[&str]) -> i64 {
    int(object, path).unwrap_or_default()
}

pub(super) fn is_set(object: &Value, path: &[&str]) -> bool {
    at(object, path) == Some(&Value::Bool(true))
}

/// A truth as Go's printer of pointers writes it.
pub(super) fn truth(object: &Value, path: &[&str]) -> Value {
    match at(object, path) {
        Some(Value::Bool(value)) => json!(if *value { "True" } else { "False" }),
        _ => json!(UNSET),
    }
}

pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = list(object, &["status", "conditions"]);
    conditions.iter().any(|it| text(it, &["type"]) == kind && text(it, &["status"]) == "True")
}

fn join<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// The first few of a list, and how many more there are.
fn some_of(mut parts: Vec<String>) -> String {
    let more = parts.len().saturating_sub(SHOWN_MAX);
    parts.truncate(SHOWN_MAX);
    let shown = parts.join(",");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

pub(super) fn data(object: &Value) -> Value {
    let size = |key: &str| object.get(key).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    json!((size("data") + size("binaryData")).to_string())
}

/// What each container of a template says.
fn of_containers(template: Option<&Value>, field: &str) -> Value {
    let containers = template.map(|it| list(it, &["spec", "containers"])).unwrap_or_default();
    json!(join(containers.iter().map(|it| text(it, &[field]))))
}

pub(super) fn images(object: &Value) -> Value {
    of_containers(at(object, &["spec", "template"]), "image")
}

pub(super) fn container_names(object: &Value) -> Value {
    of_containers(at(object, &["spec", "template"]), "name")
}

pub(super) fn cron_images(object: &Value) -> Value {
    of_containers(at(object, &["spec", "jobTemplate", "spec", "template"]), "image")
}

pub(super) fn cron_containers(object: &Value) -> Value {
    of_containers(at(object, &["spec", "jobTemplate", "spec", "template"]), "name")
}

pub(super) fn template_images(object: &Value) -> Value {
    of_containers(object.get("template"), "image")
}

pub(super) fn template_containers(object: &Value) -> Value {
    of_containers(object.get("template"), "name")
}

fn labels(map: Option<&Value>) -> Value {
    none_if_empty(&crate::selector::label_selector_text(&json!({"matchLabels": map})))
}

pub(super) fn template_labels(object: &Value) -> Value {
    labels(at(object, &["template", "metadata", "labels"]))
}

pub(super) fn node_selector(object: &Value) -> Value {
    match at(object, &["spec", "template", "spec", "nodeSelector"]) {
        None => json!("<none>"),
        map => labels(map),
    }
}

fn selector_of(selector: Option<&Value>) -> Value {
    let Some(selector) = selector else { return json!("<none>") };
    if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
        return none_if_empty(&crate::selector::label_selector_text(selector));
    }
    labels(Some(selector))
}

pub(super) fn selector(object: &Value) -> Value {
    selector_of(at(object, &["spec", "selector"]))
}

pub(super) fn pod_selector(object: &Value) -> Value {
    selector_of(at(object, &["spec", "podSelector"]))
}

pub(super) fn ready_of(object: &Value) -> Value {
    json!(format!("{}/{}", count(object, &["status", "readyReplicas"]), count(object, &["spec", "replicas"])))
}

pub(super) fn external_address(object: &Value) -> Value {
    let ingress = list(object, &["status", "loadBalancer", "ingress"]);
    let addresses =
        ingress.iter().map(|i| if text(i, &["ip"]).is_empty() { text(i, &["hostname"]) } else { text(i, &["ip"]) });
    let external = list(object, &["spec", "externalIPs"]).iter().filter_map(Value::as_str);
    let balanced = text(object, &["spec", "type"]) == "LoadBalancer";
    let addresses = join(addresses.filter(|_| balanced).chain(external));
    match text(object, &["spec", "type"]) {
        "ExternalName" => json!(text(object, &["spec", "externalName"])),
        "LoadBalancer" if addresses.is_empty() => json!("<pending>"),
        _ => none_if_empty(&addresses),
    }
}

pub(super) fn service_ports(object: &Value) -> Value {
    let ports = list(object, &["spec", "ports"]).iter().map(|port| {
        let node = int(port, &["nodePort"]).map(|n| format!(":{n}")).unwrap_or_default();
        format!("{}{node}/{}", count(port, &["port"]), text(port, &["protocol"]))
    });
    none_if_empty(&ports.collect::<Vec<_>>().join(","))
}

pub(super) fn job_status(object: &Value) -> Value {
    json!(match () {
        () if is_true(object, "Complete") => "Complete",
        () if is_true(object, "Failed") => "Failed",
        () if at(object, &["metadata", "deletionTimestamp"]).is_some() => "Terminating",
        () if is_true(object, "Suspended") => "Suspended",
        () if is_true(object, "FailureTarget") => "FailureTarget",
        () if is_true(object, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    })
}

pub(super) fn completions(object: &Value) -> Value {
    let done = count(object, &["status", "succeeded"]);
    match (int(object, &["spec", "completions"]), int(object, &["spec", "parallelism"])) {
        (Some(wanted), _) => json!(format!("{done}/{wanted}")),
        (None, Some(parallel)) if parallel > 1 => json!(format!("{done}/1 of {parallel}")),
        _ => json!(format!("{done}/1")),
    }
}

pub(super) fn duration(object: &Value) -> Value {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let Some(start) = time(text(object, &["status", "startTime"])) else { return json!("") };
    let failed = list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == "Failed");
    let ended =
        failed.map_or_else(|| text(object, &["status", "completionTime"]), |it| text(it, &["lastTransitionTime"]));
    let end = time(ended).unwrap_or_else(jiff::Timestamp::now);
    json!(human(end.duration_since(start).as_secs()))
}

pub(super) fn last_schedule(object: &Value) -> Value {
    match text(object, &["status", "lastScheduleTime"]) {
        "" => json!("<none>"),
        time => json!(since(time)),
    }
}

pub(super) fn node_status(object: &Value) -> Value {
    let ready = list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == "Ready");
    let ready = match ready.map(|it| text(it, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if is_set(object, &["spec", "unschedulable"]) { ",SchedulingDisabled" } else { "" };
    json!(format!("{ready}{cordoned}"))
}

pub(super) fn node_roles(object: &Value) -> Value {
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let roles = labels.into_iter().flatten().filter_map(|(key, value)| {
        let role = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty());
        role.or_else(|| value.as_str().filter(|it| key == "kubernetes.io/role" && !it.is_empty()))
    });
    none_if_empty(&join(roles))
}

pub(super) fn node_address(object: &Value, kind: &str) -> Value {
    let addresses = list(object, &["status", "addresses"]);
    let found = addresses.iter().find(|it| text(it, &["type"]) == kind);
    none_if_empty(found.map(|it| text(it, &["address"])).unwrap_or_default())
}

pub(super) fn node_info(object: &Value, field: &str) -> Value {
    match text(object, &["status", "nodeInfo", field]) {
        "" => json!("<unknown>"),
        info => json!(info),
    }
}

pub(super) fn endpoints(object: &Value) -> Value {
    let mut out = Vec::new();
    for subset in list(object, &["subsets"]) {
        let addresses = list(subset, &["addresses"]).iter().map(|it| text(it, &["ip"])).collect::<Vec<_>>();
        let ports = list(subset, &["ports"]);
        if ports.is_empty() {
            out.extend(addresses.iter().map(|ip| (*ip).to_owned()));
        }
        for port in ports {
            out.extend(addresses.iter().map(|ip| format!("{ip}:{}", count(port, &["port"]))));
        }
    }
    none_if_empty(&some_of(out))
}

pub(super) fn slice_endpoints(object: &Value) -> Value {
    let endpoints = list(object, &["endpoints"]).iter();
    let addresses = endpoints.flat_map(|it| list(it, &["addresses"])).filter_map(Value::as_str);
    let addresses = addresses.map(str::to_owned).collect::<Vec<_>>();
    if addresses.is_empty() { json!(UNSET) } else { json!(some_of(addresses)) }
}

pub(super) fn slice_ports(object: &Value) -> Value {
    let ports = list(object, &["ports"]).iter().map(|it| match int(it, &["port"]) {
        Some(port) => port.to_string(),
        None => "*".to_owned(),
    });
    let ports = ports.collect::<Vec<_>>();
    if ports.is_empty() { json!(UNSET) } else { json!(some_of(ports)) }
}

pub(super) fn hosts(object: &Value) -> Value {
    let hosts = list(object, &["spec", "rules"]).iter().map(|rule| text(rule, &["host"])).filter(|h| !h.is_empty());
    let hosts = hosts.map(str::to_owned).collect::<Vec<_>>();
    json!(if hosts.is_empty() { "*".to_owned() } else { some_of(hosts) })
}

pub(super) fn ingress_address(object: &Value) -> Value {
    let ingress = list(object, &["status", "loadBalancer", "ingress"]).iter();
    json!(join(ingress.map(|it| if text(it, &["ip"]).is_empty() {
        text(it, &["hostname"])
    } else {
        text(it, &["ip"])
    })))
}

pub(super) fn last_seen(object: &Value) -> Value {
    let candidates = [
        text(object, &["series", "lastObservedTime"]),
        text(object, &["lastTimestamp"]),
        text(object, &["deprecatedLastTimestamp"]),
        text(object, &["eventTime"]),
        text(object, &["metadata", "creationTimestamp"]),
    ];
    json!(candidates.iter().find(|time| !time.is_empty()).map(|time| since(time)).unwrap_or_default())
}

pub(super) fn first_seen(object: &Value) -> Value {
    let candidates = ["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"].map(|field| text(object, &[field]));
    json!(candidates.iter().find(|time| !time.is_empty()).map(|time| since(time)).unwrap_or_default())
}

/// A field of what an Event is about, in either version of the kind.
fn about<'a>(object: &'a Value, field: &str) -> &'a str {
    let old = text(object, &["involvedObject", field]);
    if old.is_empty() { text(object, &["regarding", field]) } else { old }
}

pub(super) fn involved(object: &Value) -> Value {
    match about(object, "name") {
        "" => json!(about(object, "kind").to_lowercase()),
        name => json!(format!("{}/{name}", about(object, "kind").to_lowercase())),
    }
}

pub(super) fn subobject(object: &Value) -> Value {
    json!(about(object, "fieldPath"))
}

pub(super) fn event_source(object: &Value) -> Value {
    let part = |field: &str| ["source", "deprecatedSource"].map(|it| text(object, &[it, field]));
    let of = |field: &str| part(field).into_iter().find(|it| !it.is_empty()).unwrap_or_default();
    let shown = [of("component"), of("host")].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
    json!(if shown.is_empty() { text(object, &["reportingComponent"]).to_owned() } else { shown })
}

pub(super) fn event_count(object: &Value) -> Value {
    let counts = [int(object, &["series", "count"]), int(object, &["count"]), int(object, &["deprecatedCount"])];
    json!(counts.into_iter().flatten().find(|count| *count > 0).unwrap_or(1).to_string())
}

pub(super) fn message(object: &Value) -> Value {
    let old = text(object, &["message"]);
    json!(if old.is_empty() { text(object, &["note"]) } else { old }.trim())
}

pub(super) fn claim_status(object: &Value) -> Value {
    if at(object, &["metadata", "deletionTimestamp"]).is_some() {
        return json!("Terminating");
    }
    json!(text(object, &["status", "phase"]))
}

/// Of a claim what it has got, of a volume what it has.
pub(super) fn access_modes(modes: &[Value]) -> Value {
    let modes = modes.iter().filter_map(Value::as_str).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    json!(join(modes))
}

pub(super) fn claim_of(object: &Value) -> Value {
    let part = |field: &str| text(object, &["spec", "claimRef", field]);
    json!(if part("name").is_empty() { String::new() } else { format!("{}/{}", part("namespace"), part("name")) })
}

pub(super) fn role_ref(object: &Value) -> Value {
    json!(format!("{}/{}", text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"])))
}

pub(super) fn subjects(object: &Value, kind: &str) -> Value {
    let subjects = list(object, &["subjects"]).iter().filter(|it| text(it, &["kind"]) == kind);
    let names = subjects.map(|it| match text(it, &["namespace"]) {
        "" => text(it, &["name"]).to_owned(),
        namespace => format!("{namespace}/{}", text(it, &["name"])),
    });
    json!(names.collect::<Vec<_>>().join(", "))
}

pub(super) fn controller(object: &Value) -> Value {
    let owners = list(object, &["metadata", "ownerReferences"]);
    let Some(owner) = owners.iter().find(|it| is_set(it, &["controller"])) else { return json!("<none>") };
    let group = text(owner, &["apiVersion"]).split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    json!(format!("{}{group}/{}", text(owner, &["kind"]).to_lowercase(), text(owner, &["name"])))
}

/// A number of Pods or a share of them.
pub(super) fn amount(object: &Value, path: &[&str]) -> Value {
    match at(object, path) {
        Some(Value::Number(number)) => json!(number.to_string()),
        Some(Value::String(text)) => json!(text),
        _ => json!("N/A"),
    }
}

/// How near the metrics of a scaler are to what it aims at. Nothing is measured here unless the status says so.
pub(super) fn targets(object: &Value) -> Value {
    let metrics = list(object, &["spec", "metrics"]);
    let current = list(object, &["status", "currentMetrics"]);
    let shown = metrics.iter().enumerate().map(|(index, metric)| {
        let kind = text(metric, &["type"]);
        let source =
            format!("{}{}", kind.get(..1).unwrap_or_default().to_lowercase(), kind.get(1..).unwrap_or_default());
        let target = |field: &str| at(metric, &[&source, "target", field]);
        let now = |field: &str| current.get(index).and_then(|it| at(it, &[&source, "current", field]));
        let text_of = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => "<unknown>".to_owned(),
        };
        let name = match kind {
            "Resource" | "ContainerResource" => format!("{}: ", text(metric, &[&source, "name"])),
            _ => String::new(),
        };
        match (target("averageUtilization"), target("averageValue")) {
            (Some(wanted), _) => {
                let now = now("averageUtilization").map_or_else(|| "<unknown>".to_owned(), |it| format!("{it}%"));
                format!("{name}{now}/{wanted}%")
            }
            (None, Some(wanted)) => {
                let average = if matches!(kind, "Object" | "External") { " (avg)" } else { "" };
                format!("{name}{}/{}{average}", text_of(now("averageValue")), text_of(Some(wanted)))
            }
            (None, None) => format!("{name}{}/{}", text_of(now("value")), text_of(target("value"))),
        }
    });
    let mut shown = shown.collect::<Vec<_>>();
    let more = shown.len().saturating_sub(2);
    shown.truncate(2);
    let text = shown.join(", ");
    none_if_empty(&if more > 0 { format!("{text} + {more} more...") } else { text })
}

/// Resources of a quota: those that are limits, or the others.
pub(super) fn quota(object: &Value, limits: bool) -> Value {
    let used = |key: &str| match at(object, &["status", "used", key]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "0".to_owned(),
    };
    let hard = at(object, &["status", "hard"]).and_then(Value::as_object);
    let parts = hard.into_iter().flatten().filter(|(key, _)| key.starts_with("limits.") == limits);
    let parts = parts.map(|(key, hard)| {
        let hard = hard.as_str().map_or_else(|| hard.to_string(), str::to_owned);
        format!("{key}: {}/{hard}", used(key))
    });
    json!(parts.collect::<Vec<_>>().join(", "))
}

pub(super) fn length(object: &Value, path: &[&str]) -> Value {
    json!(list(object, path).len())
}

pub(super) fn param_kind(object: &Value) -> Value {
    match at(object, &["spec", "paramKind"]) {
        Some(kind) => json!(format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"]))),
        None => json!(UNSET),
    }
}

pub(super) fn param_ref(object: &Value) -> Value {
    let Some(reference) = at(object, &["spec", "paramRef"]) else { return json!(UNSET) };
    match (text(reference, &["namespace"]), text(reference, &["name"])) {
        (_, "") => selector_of(reference.get("selector")),
        ("", name) => json!(name),
        (namespace, name) => json!(format!("{namespace}/{name}")),
    }
}

pub(super) fn api_service(object: &Value) -> Value {
    match at(object, &["spec", "service"]).filter(|it| it.is_object()) {
        Some(service) => json!(format!("{}/{}", text(service, &["namespace"]), text(service, &["name"]))),
        None => json!("Local"),
    }
}

pub(super) fn available(object: &Value) -> Value {
    let condition = list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == "Available");
    match condition {
        Some(it) if text(it, &["status"]) == "True" => json!("True"),
        Some(it) => json!(format!("{} ({})", text(it, &["status"]), text(it, &["reason"]))),
        None => json!("Unknown"),
    }
}

pub(super) fn parameters(object: &Value) -> Value {
    let Some(it) = at(object, &["spec", "parameters"]) else { return json!("<none>") };
    let group = match text(it, &["apiGroup"]) {
        "" => String::new(),
        group => format!(".{group}"),
    };
    json!(format!("{}{group}/{}", text(it, &["kind"]), text(it, &["name"])))
}

pub(super) fn versions(object: &Value) -> Value {
    let served = list(object, &["spec", "versions"]).iter().filter(|it| is_set(it, &["served"]));
    let shown = served.map(|it| {
        let stored = if is_set(it, &["storage"]) { "(storage)" } else { "" };
        format!("{}{stored}", text(it, &["name"]))
    });
    let mut shown = shown.collect::<Vec<_>>();
    shown.sort_unstable();
    json!(shown.join(","))
}

/// Text items of a list, with commas.
pub(super) fn words(object: &Value, path: &[&str]) -> Value {
    json!(join(list(object, path).iter().filter_map(Value::as_str)))
}
