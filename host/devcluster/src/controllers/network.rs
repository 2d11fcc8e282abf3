//! Services with their endpoints, Ingresses, and the two kinds that only report: autoscalers and disruption budgets.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, condition, finish, is_terminating, is_true, make_condition,
    pods::PODS,
    reference_to,
    replicas::{count, generation},
    work::{Item, Queue, Role},
};
use crate::{
    json::{self, at, copy, int, list, set, text},
    registry::Options,
    selector::label_selector_matches,
    status::ApiError,
    store::{Change, Stored},
};

const SERVICES: &str = "/services";
const SCALERS: &str = "autoscaling/horizontalpodautoscalers";
/// Who tells of what a scaler does.
const SCALER: &str = "horizontal-pod-autoscaler";
const BUDGETS: &str = "policy/poddisruptionbudgets";

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    let role = match &*change.table {
        SERVICES => Some(Role::Service),
        "networking.k8s.io/ingresses" => Some(Role::Ingress),
        SCALERS => Some(Role::Scaler),
        BUDGETS => Some(Role::Budget),
        _ => None,
    };
    if let Some(role) = role.filter(|_| !change.deleted) {
        queue.push(Item::of(role, change));
        if role == Role::Service {
            queue.push(Item::of(Role::Endpoints, change));
        }
    }
    if &*change.table != PODS {
        // What a scaler scales has changed, or has come.
        for stored in context.registry.store.list(SCALERS, Some(&change.key.0)).0 {
            if text(&stored.value, &["spec", "scaleTargetRef", "name"]) == change.key.1 && &*change.table != SCALERS {
                let key = (change.key.0.clone(), text(&stored.value, &["metadata", "name"]).to_owned());
                queue.push(Item { role: Role::Scaler, table: SCALERS.into(), key });
            }
        }
        return;
    }
    for (table, role) in [(SERVICES, Role::Endpoints), (BUDGETS, Role::Budget)] {
        for stored in context.registry.store.list(table, Some(&change.key.0)).0 {
            let selector = selector_of(&stored.value);
            let selected =
                |pod: &Value| selector.as_ref().is_some_and(|selector| label_selector_matches(selector, pod));
            if selected(&change.new.value) || change.old.as_ref().is_some_and(|old| selected(&old.value)) {
                let key = (change.key.0.clone(), text(&stored.value, &["metadata", "name"]).to_owned());
                queue.push(Item { role, table: table.into(), key });
            }
        }
    }
}

/// The selector of a Service or a budget as a label selector; `None` when it selects nothing.
fn selector_of(object: &Value) -> Option<Value> {
    let selector = at(object, &["spec", "selector"])?;
    if text(object, &["kind"]) == "Service" {
        return selector.as_object().filter(|map| !map.is_empty()).map(|map| json!({"matchLabels": map}));
    }
    Some(selector.clone())
}

/// An address for a load balancer, from a range that is reserved for examples.
fn balancer_address(uid: &str) -> String {
    let last = uid.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    format!("198.51.100.{}", 1 + last % 254)
}

pub(super) fn service(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let balanced = text(&stored.value, &["spec", "type"]) == "LoadBalancer" && !is_terminating(&stored.value);
    let has = !list(&stored.value, &["status", "loadBalancer", "ingress"]).is_empty();
    if balanced && !has {
        match context.due(&stored.value) {
            None => return Ok(Next::Done),
            Some(due) if Instant::now() < due => return Ok(Next::At(due)),
            Some(_) => {}
        }
        let status = json!({"loadBalancer": {"ingress": [{"ip": balancer_address(stored.uid()), "ipMode": "VIP"}]}});
        context.set_status(&stored, &status)?;
    } else if !balanced && (has || at(&stored.value, &["status", "loadBalancer"]).is_none()) {
        context.set_status(&stored, &json!({"loadBalancer": {}}))?;
    }
    Ok(Next::Done)
}

pub(super) fn endpoints(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let service = &stored.value;
    let Some(selector) = selector_of(service).filter(|_| !is_terminating(service)) else { return Ok(Next::Done) };
    let namespace = &item.key.0;
    let mut pods = context.registry.store.list(PODS, Some(namespace)).0;
    pods.retain(|pod| {
        let over = matches!(text(&pod.value, &["status", "phase"]), "Succeeded" | "Failed");
        !over && !text(&pod.value, &["status", "podIP"]).is_empty() && label_selector_matches(&selector, &pod.value)
    });
    let ports = list(service, &["spec", "ports"]).iter().map(|port| endpoint_port(port, &pods)).collect::<Vec<_>>();
    let serving = |pod: &Stored| is_true(&pod.value, "Ready");
    let publish_all = at(service, &["spec", "publishNotReadyAddresses"]) == Some(&Value::Bool(true));
    let all = pods
        .iter()
        .map(|pod| {
            let terminating = is_terminating(&pod.value);
            json!({
                "addresses": [text(&pod.value, &["status", "podIP"])],
                "conditions": {"ready": publish_all || (serving(pod) && !terminating), "serving": serving(pod), "terminating": terminating},
                "nodeName": text(&pod.value, &["spec", "nodeName"]),
                "targetRef": target(&pod.value),
            })
        })
        .collect::<Vec<_>>();
    let name = text(service, &["metadata", "name"]);
    let suffix = stored.uid().chars().filter(char::is_ascii_alphanumeric).take(5).collect::<String>();
    let mut labels = json!({
        "kubernetes.io/service-name": name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    for (key, value) in at(service, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten() {
        json::default(&mut labels, &[key], value.clone());
    }
    let slice = json!({
        "metadata": {"name": format!("{name}-{suffix}"), "labels": labels, "ownerReferences": [reference_to(service)]},
        "addressType": "IPv4", "endpoints": all, "ports": ports,
    });
    put(context, "discovery.k8s.io/v1", "EndpointSlice", namespace, &slice, &["addressType", "endpoints", "ports"])?;
    let addresses = |ready: bool| {
        let of = pods.iter().filter(|pod| (serving(pod) && !is_terminating(&pod.value)) == ready);
        of.map(|pod| {
            json!({"ip": text(&pod.value, &["status", "podIP"]), "nodeName": text(&pod.value, &["spec", "nodeName"]),
            "targetRef": target(&pod.value)})
        })
        .collect::<Vec<_>>()
    };
    let mut subset = json!({"ports": ports});
    for (field, list) in [("addresses", addresses(true)), ("notReadyAddresses", addresses(false))] {
        if !list.is_empty() {
            set(&mut subset, &[field], json!(list));
        }
    }
    let subsets = if pods.is_empty() { json!([]) } else { json!([subset]) };
    let mut object = json!({"metadata": {"name": name}, "subsets": subsets});
    copy(service, &mut object, &["metadata", "labels"]);
    set(&mut object, &["metadata", "labels", "endpoints.kubernetes.io/managed-by"], json!("endpoint-controller"));
    // Endpoints have no owner in a real cluster either; here the reference spares a controller of its own.
    set(&mut object, &["metadata", "ownerReferences"], json!([reference_to(service)]));
    put(context, "v1", "Endpoints", namespace, &object, &["subsets"])?;
    Ok(Next::Done)
}

fn target(pod: &Value) -> Value {
    json!({"kind": "Pod", "name": text(pod, &["metadata", "name"]), "namespace": text(pod, &["metadata", "namespace"]),
           "uid": text(pod, &["metadata", "uid"])})
}

/// The number of a Service's port on the Pods; a name is looked up in their containers.
fn endpoint_port(port: &Value, pods: &[std::sync::Arc<Stored>]) -> Value {
    let wanted = port.get("targetPort").cloned().unwrap_or_default();
    let number = match &wanted {
        Value::String(name) => {
            let containers = pods.iter().flat_map(|pod| list(&pod.value, &["spec", "containers"]));
            containers
                .flat_map(|c| list(c, &["ports"]))
                .find(|p| text(p, &["name"]) == name)
                .and_then(|p| int(p, &["containerPort"]))
        }
        other => other.as_i64(),
    };
    let mut out = json!({"protocol": text(port, &["protocol"])});
    if let Some(number) = number.or_else(|| int(port, &["port"])) {
        set(&mut out, &["port"], json!(number));
    }
    copy(port, &mut out, &["name"]);
    out
}

/// Creates the object, or brings these fields of the one that is there up to date.
fn put(
    context: &Context,
    api_version: &str,
    kind: &str,
    namespace: &str,
    object: &Value,
    fields: &[&str],
) -> Result<(), ApiError> {
    let resource = context.resource(api_version, kind)?;
    let name = text(object, &["metadata", "name"]);
    let Some(stored) = context.registry.store.get(&resource.table, namespace, name) else {
        context.create(api_version, kind, namespace, object.clone())?;
        return Ok(());
    };
    context.change(&stored, "", &|live| {
        let before = live.clone();
        for field in fields {
            copy(object, live, &[field]);
        }
        !json::same(&before, live)
    })?;
    Ok(())
}

pub(super) fn ingress(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let has = !list(&stored.value, &["status", "loadBalancer", "ingress"]).is_empty();
    if !has && !is_terminating(&stored.value) {
        match context.due(&stored.value) {
            None => return Ok(Next::Done),
            Some(due) if Instant::now() < due => return Ok(Next::At(due)),
            Some(_) => {}
        }
        let status = json!({"loadBalancer": {"ingress": [{"ip": balancer_address(stored.uid())}]}});
        context.set_status(&stored, &status)?;
    }
    Ok(Next::Done)
}

/// Why a scaler wants another number than there is.
fn bound_of(object: &Value, replicas: i64) -> Option<(i64, &'static str, Condition)> {
    let least = int(object, &["spec", "minReplicas"]).unwrap_or(1);
    let most = int(object, &["spec", "maxReplicas"]).unwrap_or(i64::MAX);
    if replicas > most {
        let limited = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
        return Some((most, "Current number of replicas above Spec.MaxReplicas", limited));
    }
    let limited = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
    (replicas < least).then_some((least, "Current number of replicas below Spec.MinReplicas", limited))
}

/// Reason and message.
type Condition = (&'static str, &'static str);

/// Keeps the number of replicas between its bounds. There is no load here that would ask for another.
pub(super) fn scaler(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item).filter(|it| !is_terminating(&it.value)) else { return Ok(Next::Done) };
    let object = &stored.value;
    let reference = |field: &str| text(object, &["spec", "scaleTargetRef", field]);
    let target = context.resource(reference("apiVersion"), reference("kind"));
    let found = target.and_then(|resource| {
        let found = context.registry.get(&resource, &item.key.0, reference("name"))?;
        Ok((context.registry.scale(&resource, &found.value), resource))
    });
    let mut status = json!({"observedGeneration": generation(object), "currentMetrics": null});
    let (scale, resource) = match found {
        Ok(found) => found,
        Err(error) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {error}");
            if condition(object, "AbleToScale").is_none_or(|it| text(it, &["message"]) != message) {
                context.warn(object, SCALER, "FailedGetScale", &error.to_string())?;
            }
            let able = make_condition(object, "AbleToScale", false, "FailedGetScale", &message);
            set(&mut status, &["conditions"], json!([able]));
            for field in ["currentReplicas", "desiredReplicas"] {
                set(&mut status, &[field], json!(int(object, &["status", field]).unwrap_or_default()));
            }
            context.set_status(&stored, &status)?;
            return Ok(Next::Done);
        }
    };
    let replicas = int(&scale, &["spec", "replicas"]).unwrap_or_default();
    set(&mut status, &["currentReplicas"], json!(replicas));
    if let Some(last) = at(object, &["status", "lastScaleTime"]) {
        set(&mut status, &["lastScaleTime"], last.clone());
    }
    if replicas == 0 {
        let able = ("SucceededGetScale", "the HPA controller was able to get the target's current scale");
        let off = "scaling is disabled since the replica count of the target is zero";
        set(&mut status, &["desiredReplicas"], json!(0));
        let conditions = json!([
            make_condition(object, "AbleToScale", true, able.0, able.1),
            make_condition(object, "ScalingActive", false, "ScalingDisabled", off),
        ]);
        set(&mut status, &["conditions"], conditions);
        context.set_status(&stored, &status)?;
        return Ok(Next::Done);
    }
    let bound = bound_of(object, replicas);
    let wanted = bound.map_or(replicas, |(wanted, _, _)| wanted);
    let (mut able, mut limited) = (
        ("ReadyForNewScale", "recommended size matches current size".to_owned()),
        (false, ("DesiredWithinRange", "the desired count is within the acceptable range")),
    );
    if let Some((wanted, why, limit)) = bound {
        let resize = |scale: &mut Value| {
            set(scale, &["spec", "replicas"], json!(wanted));
            Ok(())
        };
        let options = Options::of(super::MANAGER);
        let outcome = context.registry.update_scale(&resource, &item.key.0, reference("name"), &resize, options)?;
        finish(outcome);
        context.note(object, SCALER, "SuccessfulRescale", &format!("New size: {wanted}; reason: {why}"))?;
        able = ("SucceededRescale", format!("the HPA controller was able to update the target scale to {wanted}"));
        limited = (true, limit);
        set(&mut status, &["lastScaleTime"], json!(json::now()));
    }
    set(&mut status, &["desiredReplicas"], json!(wanted));
    let (limit, (reason, message)) = limited;
    let conditions = json!([
        make_condition(object, "AbleToScale", true, able.0, &able.1),
        make_condition(object, "ScalingActive", true, "ValidMetricFound", "there is no load in a development cluster"),
        make_condition(object, "ScalingLimited", limit, reason, message),
    ]);
    set(&mut status, &["conditions"], conditions);
    context.set_status(&stored, &status)?;
    Ok(Next::Done)
}

pub(super) fn budget(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let object = &stored.value;
    let Some(selector) = selector_of(object).filter(|_| !is_terminating(object)) else { return Ok(Next::Done) };
    let pods = context.registry.store.list(PODS, Some(&item.key.0)).0;
    let selected = pods.iter().filter(|pod| label_selector_matches(&selector, &pod.value)).collect::<Vec<_>>();
    let expected = count(selected.len());
    // Pods that were evicted do not count, nor are they remembered once they are marked or gone.
    let evicted = at(object, &["status", "disruptedPods"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let name_of = |pod: &Stored| text(&pod.value, &["metadata", "name"]).to_owned();
    let going = |pod: &Stored| evicted.contains_key(&name_of(pod)) && !is_terminating(&pod.value);
    let remembered = selected.iter().filter(|pod| going(pod)).filter_map(|pod| {
        let name = name_of(pod);
        evicted.get(&name).cloned().map(|since| (name, since))
    });
    let remembered = remembered.collect::<serde_json::Map<_, _>>();
    let counts = |pod: &Stored| is_true(&pod.value, "Ready") && !is_terminating(&pod.value) && !going(pod);
    let healthy = count(selected.iter().filter(|pod| counts(pod)).count());
    let amount = |field: &str| match at(object, &["spec", field]) {
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<i64>().ok()?;
            // Rounded up, as the real controller does.
            Some((expected.saturating_mul(percent) + 99) / 100)
        }
        _ => None,
    };
    let desired = match (amount("minAvailable"), amount("maxUnavailable")) {
        (Some(least), _) => least,
        (None, Some(most)) => (expected - most).max(0),
        (None, None) => 0,
    };
    let allowed = (healthy - desired).max(0);
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    let mut disruption = make_condition(object, "DisruptionAllowed", allowed > 0, reason, "");
    // A condition of this form has a message, if an empty one.
    set(&mut disruption, &["message"], json!(""));
    let mut status = json!({
        "observedGeneration": generation(object), "expectedPods": expected, "currentHealthy": healthy,
        "desiredHealthy": desired, "disruptionsAllowed": allowed,
        "conditions": [disruption],
    });
    if !remembered.is_empty() {
        set(&mut status, &["disruptedPods"], Value::Object(remembered));
    }
    context.set_status(&stored, &status)?;
    Ok(Next::Done)
}
