//! The kinds that are asked about, and random objects of them: mostly right, sometimes wrong as users are wrong.

use std::cell::RefCell;
use std::ops::Range;

use kube::Client;
use serde_json::{Map, Value, json};

/// What is drawn from the seed.
pub(crate) struct Draw(RefCell<fastrand::Rng>);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RefCell::new(fastrand::Rng::with_seed(seed)))
    }

    pub(crate) fn i32(&self, range: Range<i32>) -> i32 {
        self.0.borrow_mut().i32(range)
    }

    pub(crate) fn usize(&self, range: Range<usize>) -> usize {
        self.0.borrow_mut().usize(range)
    }

    pub(crate) fn bool(&self) -> bool {
        self.0.borrow_mut().bool()
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&self, percent: usize) -> bool {
        self.usize(0..100) < percent
    }
}

/// A kind that the episodes use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    /// Subresources that can be read and written.
    pub(crate) subresources: &'static [&'static str],
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind { api_version: "v1", kind: "ConfigMap", resource: "configmaps", subresources: &[] },
    Kind { api_version: "v1", kind: "Secret", resource: "secrets", subresources: &[] },
    Kind { api_version: "v1", kind: "Service", resource: "services", subresources: &["status"] },
    Kind { api_version: "apps/v1", kind: "Deployment", resource: "deployments", subresources: &["status", "scale"] },
    Kind { api_version: "batch/v1", kind: "Job", resource: "jobs", subresources: &["status"] },
    Kind {
        api_version: "differential.example.com/v1",
        kind: "Widget",
        resource: "widgets",
        subresources: &["status", "scale"],
    },
];

impl Kind {
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.resource)
    }
}

/// Where the objects of an episode are.
pub(crate) fn collections(namespace: &str) -> Vec<String> {
    KINDS.iter().map(|kind| kind.collection(namespace)).collect()
}

/// Makes the definition of the custom resource, and waits until it is served.
pub(crate) async fn define(client: &Client) -> Result<(), String> {
    let part = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 12}, "weight": {"type": "integer", "default": 1},
        "on": {"type": "boolean"}}});
    let spec = json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 10},
        "mode": {"type": "string", "enum": ["auto", "manual", "off"], "default": "auto"},
        "least": {"type": "integer"}, "most": {"type": "integer"}, "replicas": {"type": "integer", "default": 1},
        "ratio": {"type": "number"}, "note": {"type": "string", "pattern": "^[a-z ]*$", "nullable": true},
        "port": {"x-kubernetes-int-or-string": true},
        "tags": {"type": "array", "maxItems": 4, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": part},
        "steps": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "place": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "zone": {"type": "string"}, "rack": {"type": "string", "default": "r1"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "x-kubernetes-validations": [
            {"rule": "!has(self.least) || !has(self.most) || self.least <= self.most", "message": "least is more than most"},
            {"rule": "self.mode == oldSelf.mode || self.mode != 'off'", "message": "cannot be switched off"}]});
    let status = json!({"type": "object", "properties": {"state": {"type": "string"}, "replicas": {"type": "integer"},
        "selector": {"type": "string"}}});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.differential.example.com"},
        "spec": {"group": "differential.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}}});
    let request = |method: &str, path: &str, body: String| {
        let request =
            axum::http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        request.body(body.into_bytes()).unwrap()
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.request_text(request("POST", definitions, definition.to_string())).await.map_err(|it| it.to_string())?;
    for _ in 0..200 {
        let served = "/apis/differential.example.com/v1/namespaces/default/widgets";
        if client.request_text(request("GET", served, String::new())).await.is_ok() {
            // The server publishes the schema for applies and strict validation a moment later.
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    Err("it is never served".to_owned())
}

pub(crate) fn pick<T: Clone>(rng: &Draw, from: &[T]) -> T {
    from[rng.usize(0..from.len())].clone()
}

/// Some of the pairs, each with a chance.
fn some(rng: &Draw, percent: usize, pairs: Vec<(&str, Value)>) -> Map<String, Value> {
    let mut map = Map::new();
    for (key, value) in pairs {
        if rng.chance(percent) {
            map.insert(key.to_owned(), value);
        }
    }
    map
}

fn word(rng: &Draw) -> Value {
    json!(pick(rng, &["a", "b", "c", "d"]))
}

/// Labels, annotations, finalizers.
pub(crate) fn metadata(rng: &Draw) -> Map<String, Value> {
    let mut map = Map::new();
    if rng.chance(40) {
        let pairs = vec![("app", word(rng)), ("tier", word(rng)), ("example.com/x", word(rng))];
        map.insert("labels".to_owned(), some(rng, 50, pairs).into());
    }
    if rng.chance(25) {
        let pairs = vec![("example.com/note", word(rng)), ("text", json!("some Text: of any kind\n"))];
        map.insert("annotations".to_owned(), some(rng, 60, pairs).into());
    }
    if rng.chance(8) {
        map.insert(
            "finalizers".to_owned(),
            pick(rng, &[json!(["example.com/a"]), json!(["example.com/a", "example.com/b"])]),
        );
    }
    if rng.chance(3) {
        map.insert(
            "labels".to_owned(),
            pick(rng, &[json!({"-bad": "x"}), json!({"a": "not a value!"}), json!({"a/b/c": ""})]),
        );
    }
    if rng.chance(2) {
        map.insert("annotations".to_owned(), json!({"Bad Key": "x"}));
    }
    if rng.chance(2) {
        map.insert("finalizers".to_owned(), json!(["unqualified"]));
    }
    map
}

/// What an object has beside its metadata. `whole` is for requests that give all of it.
pub(crate) fn content(rng: &Draw, kind: &str, whole: bool) -> Map<String, Value> {
    let percent = if whole { 60 } else { 35 };
    let mut map = match kind {
        "ConfigMap" => {
            let data = vec![("k1", word(rng)), ("k2", word(rng)), ("k3", json!("1\n2"))];
            let data = some(rng, 55, data);
            let binary = json!({"bin": pick(rng, &["aGk=", "AAEC"])});
            let mut map = some(rng, percent + 20, vec![("data", data.into())]);
            map.extend(some(rng, 10, vec![("binaryData", binary)]));
            map.extend(some(rng, 4, vec![("immutable", json!(true))]));
            map.extend(some(rng, 2, vec![("binaryData", json!({"k1": "aGk="}))]));
            map.extend(some(rng, 2, vec![("data", json!({"not a key": "x"}))]));
            map
        }
        "Secret" => {
            let data = vec![("k1", json!("YQ==")), ("k2", json!("Yg==")), ("k3", json!("Yw=="))];
            let plain = vec![("k1", word(rng)), ("k4", word(rng))];
            let (data, plain) = (some(rng, 55, data), some(rng, 60, plain));
            let mut map = some(rng, percent + 20, vec![("data", data.into())]);
            map.extend(some(rng, 25, vec![("stringData", plain.into())]));
            map.extend(some(
                rng,
                5,
                vec![("type", json!(pick(rng, &["Opaque", "example.com/own", "kubernetes.io/tls"])))],
            ));
            map.extend(some(rng, 3, vec![("immutable", json!(true))]));
            map
        }
        "Service" => {
            let mut ports = Vec::new();
            for (name, port) in [("http", 80), ("https", 443), ("dns", 53)] {
                if rng.chance(45) {
                    let mut entry = some(rng, 30, vec![("targetPort", pick(rng, &[json!(8080), json!("web")]))]);
                    entry.extend(some(rng, 20, vec![("protocol", json!(pick(rng, &["TCP", "UDP"])))]));
                    entry.extend(some(rng, 10, vec![("appProtocol", json!("kubernetes.io/h2c"))]));
                    entry.extend(some(rng, 90, vec![("name", json!(name))]));
                    entry.insert("port".to_owned(), json!(port));
                    ports.push(Value::Object(entry));
                }
            }
            let mut spec = some(rng, percent, vec![("selector", json!({"app": word(rng)}))]);
            spec.extend(some(rng, 70, vec![("ports", ports.into())]));
            spec.extend(some(
                rng,
                12,
                vec![("type", json!(pick(rng, &["ClusterIP", "NodePort", "ExternalName", "LoadBalancer"])))],
            ));
            spec.extend(some(rng, 8, vec![("clusterIP", json!("None"))]));
            spec.extend(some(rng, 8, vec![("sessionAffinity", json!(pick(rng, &["None", "ClientIP"])))]));
            spec.extend(some(rng, 4, vec![("externalName", json!("example.com"))]));
            spec.extend(some(rng, 6, vec![("publishNotReadyAddresses", json!(true))]));
            some(rng, 92, vec![("spec", spec.into())])
        }
        "Deployment" => {
            let mut spec = some(rng, percent, vec![("replicas", json!(rng.i32(0..4)))]);
            spec.extend(some(
                rng,
                if whole { 95 } else { 40 },
                vec![("selector", json!({"matchLabels": {"app": "a"}}))],
            ));
            let template = template(rng, whole);
            spec.extend(some(rng, if whole { 97 } else { 60 }, vec![("template", template)]));
            spec.extend(some(
                rng,
                15,
                vec![(
                    "strategy",
                    pick(
                        rng,
                        &[
                            json!({"type": "Recreate"}),
                            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}}),
                            json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}),
                            json!({"type": "Recreate", "rollingUpdate": null}),
                        ],
                    ),
                )],
            ));
            spec.extend(some(rng, 10, vec![("minReadySeconds", json!(rng.i32(-1..9)))]));
            spec.extend(some(rng, 10, vec![("paused", json!(rng.bool()))]));
            spec.extend(some(rng, 8, vec![("revisionHistoryLimit", json!(2))]));
            some(rng, 96, vec![("spec", spec.into())])
        }
        "Job" => {
            let mut spec = some(rng, percent, vec![("suspend", json!(true))]);
            let mut template = template(rng, whole);
            if rng.chance(85) {
                template["spec"]["restartPolicy"] = json!(pick(rng, &["Never", "OnFailure"]));
            }
            spec.extend(some(rng, if whole { 97 } else { 50 }, vec![("template", template)]));
            spec.extend(some(
                rng,
                20,
                vec![("parallelism", json!(rng.i32(0..3))), ("completions", json!(rng.i32(1..4)))],
            ));
            spec.extend(some(
                rng,
                15,
                vec![("backoffLimit", json!(rng.i32(0..3))), ("ttlSecondsAfterFinished", json!(100))],
            ));
            spec.extend(some(rng, 6, vec![("completionMode", json!(pick(rng, &["Indexed", "NonIndexed"])))]));
            some(rng, 96, vec![("spec", spec.into())])
        }
        _ => {
            let mut spec = some(rng, if whole { 95 } else { 50 }, vec![("size", json!(rng.i32(0..11)))]);
            spec.extend(some(
                rng,
                20,
                vec![
                    ("mode", json!(pick(rng, &["auto", "manual", "off"]))),
                    ("least", json!(rng.i32(0..5))),
                    ("most", json!(rng.i32(2..7))),
                    ("replicas", json!(rng.i32(0..4))),
                    ("ratio", pick(rng, &[json!(0.5), json!(2), json!(1.25e3)])),
                    ("note", pick(rng, &[json!("some words"), json!(""), json!(null)])),
                    ("port", pick(rng, &[json!(80), json!("http")])),
                    ("steps", pick(rng, &[json!(["one"]), json!(["one", "two"]), json!([])])),
                    ("labels", json!({"x": word(rng)})),
                    ("place", pick(rng, &[json!({"zone": "z"}), json!({}), json!({"zone": "z", "rack": "r2"})])),
                    ("free", json!({"any": {"thing": [1, "two", null]}})),
                ],
            ));
            let tags = pick(rng, &[json!(["a"]), json!(["a", "b"]), json!(["c"]), json!(["b", "c", "d"])]);
            spec.extend(some(rng, 25, vec![("tags", tags)]));
            let mut parts = Vec::new();
            for name in ["left", "right", "top"] {
                if rng.chance(40) {
                    let mut part = some(rng, 40, vec![("weight", json!(rng.i32(0..5))), ("on", json!(rng.bool()))]);
                    part.insert("name".to_owned(), json!(name));
                    parts.push(Value::Object(part));
                }
            }
            spec.extend(some(rng, 30, vec![("parts", parts.into())]));
            spec.extend(some(
                rng,
                2,
                vec![
                    ("size", json!(11)),
                    ("size", json!(-1)),
                    ("size", json!("three")),
                    ("mode", json!("loud")),
                    ("note", json!("NO")),
                    ("tags", json!(["a", "a"])),
                    ("tags", json!(["a", "b", "c", "d", "e"])),
                    ("parts", json!([{"name": "left"}, {"name": "left"}])),
                    ("parts", json!([{"weight": 1}])),
                    ("parts", json!([{"name": "much too long a name"}])),
                    ("ratio", json!("x")),
                    ("port", json!(true)),
                ],
            ));
            let mut map = some(rng, 96, vec![("spec", spec.into())]);
            map.extend(some(rng, 5, vec![("status", json!({"state": "set by the main resource"}))]));
            map
        }
    };
    // What no schema knows.
    map.extend(some(rng, 4, vec![("surprise", json!(1))]));
    if rng.chance(4)
        && let Some(Value::Object(spec)) = map.get_mut("spec")
    {
        spec.insert("surprise".to_owned(), json!({"x": 1}));
    }
    map
}

fn template(rng: &Draw, whole: bool) -> Value {
    let mut containers = Vec::new();
    for name in ["main", "side"] {
        if rng.chance(if name == "main" { 92 } else { 30 }) {
            let mut container =
                some(rng, 95, vec![("image", json!(pick(rng, &["nginx", "nginx:1", "a/b@sha256:0000"])))]);
            container.insert("name".to_owned(), json!(name));
            let port = |rng: &Draw| {
                let mut port = some(rng, 50, vec![("name", json!("web"))]);
                port.extend(some(rng, 20, vec![("protocol", json!(pick(rng, &["TCP", "UDP"])))]));
                port.insert("containerPort".to_owned(), json!(pick(rng, &[80, 8080])));
                Value::Object(port)
            };
            container.extend(some(rng, 25, vec![("ports", json!([port(rng)]))]));
            let mut variables = vec![json!({"name": "A", "value": word(rng)})];
            if rng.bool() {
                variables.push(pick(
                    rng,
                    &[
                        json!({"name": "B"}),
                        json!({"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
                        json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
                    ],
                ));
            }
            container.extend(some(rng, 25, vec![("env", variables.into())]));
            container.extend(some(
                rng,
                20,
                vec![(
                    "resources",
                    pick(
                        rng,
                        &[
                            json!({"limits": {"cpu": "1", "memory": "64Mi"}}),
                            json!({"requests": {"cpu": "0.5", "memory": "1.5Gi"}, "limits": {"cpu": "1000m"}}),
                            json!({"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
                        ],
                    ),
                )],
            ));
            container.extend(some(rng, 10, vec![("args", json!(["a", "b"])), ("command", json!(["x"]))]));
            container.extend(some(rng, 8, vec![("imagePullPolicy", json!(pick(rng, &["Always", "Never"])))]));
            container.extend(some(rng, 8, vec![("readinessProbe", json!({"httpGet": {"path": "/", "port": "web"}}))]));
            container.extend(some(rng, 10, vec![("volumeMounts", json!([{"name": "v", "mountPath": "/v"}]))]));
            containers.push(Value::Object(container));
        }
    }
    let mut spec = some(rng, if whole { 98 } else { 80 }, vec![("containers", containers.into())]);
    spec.extend(some(
        rng,
        15,
        vec![(
            "volumes",
            pick(
                rng,
                &[
                    json!([{"name": "v", "emptyDir": {}}]),
                    json!([{"name": "v", "configMap": {"name": "c"}}]),
                    json!([{"name": "v", "secret": {"secretName": "s"}}, {"name": "w"}]),
                ],
            ),
        )],
    ));
    spec.extend(some(
        rng,
        6,
        vec![
            ("serviceAccountName", json!("other")),
            ("terminationGracePeriodSeconds", json!(5)),
            ("nodeSelector", json!({"disk": "ssd"})),
            ("hostNetwork", json!(true)),
            ("tolerations", json!([{"key": "k", "operator": "Exists"}])),
        ],
    ));
    let labels = pick(
        rng,
        &[
            json!({"app": "a"}),
            json!({"app": "a"}),
            json!({"app": "a"}),
            json!({"app": "a", "x": "y"}),
            json!({"app": "b"}),
        ],
    );
    let mut template = json!({"spec": spec});
    if rng.chance(if whole { 96 } else { 50 }) {
        template["metadata"] = json!({"labels": labels});
    }
    template
}

/// What a status may hold.
pub(crate) fn status(rng: &Draw, kind: &str) -> Value {
    match kind {
        "Service" => json!({"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}}),
        "Deployment" => json!(some(
            rng,
            60,
            vec![
                ("replicas", json!(rng.i32(0..3))),
                ("readyReplicas", json!(rng.i32(0..3))),
                ("observedGeneration", json!(1)),
                (
                    "conditions",
                    json!([{"type": "Available", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}])
                ),
            ]
        )),
        "Job" => {
            json!(some(rng, 60, vec![("active", json!(rng.i32(0..3))), ("failed", json!(1)), ("ready", json!(0))]))
        }
        _ => json!(some(
            rng,
            60,
            vec![
                ("state", word(rng)),
                ("replicas", json!(rng.i32(0..3))),
                ("selector", json!("a=b")),
                ("surprise", json!(1))
            ]
        )),
    }
}
