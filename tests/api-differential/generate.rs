//! What is asked next.

use serde_json::{Map, Value, json};

use crate::objects::{Draw, KINDS, Kind, content, metadata, pick, status};
use crate::side::{Request, Side};

const MANAGERS: [&str; 3] = ["alpha", "beta", "gamma"];
const NAMES: [&str; 3] = ["one", "two", "three"];
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";

/// The requests of one namespace.
pub(crate) struct Episode {
    rng: Draw,
    pub(crate) namespace: String,
    /// Few kinds in one episode, so that requests meet the same objects.
    kinds: Vec<Kind>,
    begun: bool,
}

impl Episode {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        let rng = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let kinds = vec![pick(&rng, &KINDS), pick(&rng, &KINDS)];
        Self { rng, namespace: format!("differential-{seed}-{number}"), kinds, begun: false }
    }

    /// Where the objects of the episode are.
    pub(crate) fn collections(&self) -> Vec<String> {
        let mut all = self.kinds.iter().map(|kind| kind.collection(&self.namespace)).collect::<Vec<_>>();
        all.dedup();
        all
    }

    /// The next request; what is there already is asked of a side.
    pub(crate) fn next(&mut self, side: &Side) -> Request {
        if !self.begun {
            self.begun = true;
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
            return Request { method: "POST", path: "/api/v1/namespaces".to_owned(), kind: JSON, body };
        }
        let kind = pick(&self.rng, &self.kinds);
        let known = side.names(kind.resource);
        let drawn = side.has_drawn(kind.resource);
        let rng = &self.rng;
        let name = match known.is_empty() || rng.usize(0..100) < 25 {
            true => pick(rng, &NAMES).to_owned(),
            false => pick(rng, &known),
        };
        let collection = kind.collection(&self.namespace);
        let object = format!("{collection}/{name}");
        let key = format!("{}/{name}", kind.resource);
        let is_known = known.contains(&name);
        let roll = if is_known { rng.usize(0..100) } else { rng.usize(0..40) };
        match roll {
            0..=12 => self.create(kind, &name, &collection),
            13..=33 => self.apply(kind, &name, &object),
            34..=36 => Request::get(object),
            37..=39 => self.list(&collection, &key, drawn),
            40..=50 => self.put(kind, &name, &object, &key),
            51..=60 => self.merge(kind, &name, &object, &key),
            61..=67 => self.json_patch(kind, &object),
            68..=75 => self.strategic(kind, &name, &object),
            76..=85 => self.subresource(kind, &name, &object, &key),
            86..=93 => self.delete(&object, &key),
            94 => self.delete_collection(&collection),
            95..=96 => self.list(&collection, &key, drawn),
            97 => self.release(&object),
            _ => Request::get(object),
        }
    }

    /// Parameters that any write may have.
    fn parameters(&mut self, mut all: Vec<String>) -> String {
        if self.rng.chance(6) {
            all.push("dryRun=All".to_owned());
        }
        if self.rng.chance(12) {
            all.push(format!("fieldValidation={}", pick(&self.rng, &["Strict", "Warn", "Ignore"])));
        }
        if all.is_empty() { String::new() } else { format!("?{}", all.join("&")) }
    }

    fn manager(&mut self) -> Vec<String> {
        // Without one the server takes what the client calls itself, which two clients do differently.
        vec![format!("fieldManager={}", pick(&self.rng, &MANAGERS))]
    }

    fn object(&mut self, kind: Kind, name: &str, whole: bool) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("apiVersion".to_owned(), json!(kind.api_version));
        map.insert("kind".to_owned(), json!(kind.kind));
        let mut about = metadata(&self.rng);
        about.insert("name".to_owned(), json!(name));
        map.insert("metadata".to_owned(), about.into());
        map.extend(content(&self.rng, kind.kind, whole));
        map
    }

    fn create(&mut self, kind: Kind, name: &str, collection: &str) -> Request {
        let mut body = Value::Object(self.object(kind, name, true));
        let about = &mut body["metadata"];
        if self.rng.chance(10) {
            about["name"] = Value::Null;
            about["generateName"] = json!("made-");
        } else if self.rng.chance(3) {
            about["name"] = pick(&self.rng, &[json!("Not_a_name"), json!(""), json!(null), json!("a.b")]);
        }
        if self.rng.chance(2) {
            about["namespace"] = json!("another");
        }
        if self.rng.chance(2) {
            about["resourceVersion"] = json!("5");
        }
        if self.rng.chance(1) {
            body["kind"] = json!("Other");
        }
        let manager = self.manager();
        Request { method: "POST", path: format!("{collection}{}", self.parameters(manager)), kind: JSON, body }
    }

    fn put(&mut self, kind: Kind, name: &str, object: &str, key: &str) -> Request {
        let mut body = Value::Object(self.object(kind, name, true));
        match self.rng.usize(0..10) {
            0 => body["metadata"]["resourceVersion"] = json!(format!("$old:{key}")),
            1..=6 => body["metadata"]["resourceVersion"] = json!(format!("$rv:{key}")),
            _ => {}
        }
        if self.rng.chance(5) {
            body["metadata"]["uid"] = json!(format!("$uid:{key}"));
        } else if self.rng.chance(3) {
            body["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
        }
        if self.rng.chance(2) {
            body["metadata"]["name"] = json!("other");
        }
        let manager = self.manager();
        Request { method: "PUT", path: format!("{object}{}", self.parameters(manager)), kind: JSON, body }
    }

    fn apply(&mut self, kind: Kind, name: &str, object: &str) -> Request {
        let whole = self.rng.chance(60);
        let mut body = Value::Object(self.object(kind, name, whole));
        let mut parameters = self.manager();
        if self.rng.chance(35) {
            parameters.push("force=true".to_owned());
        }
        if self.rng.chance(1) {
            parameters.clear();
        }
        if self.rng.chance(1) {
            body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        }
        if self.rng.chance(1) {
            body["metadata"]["name"] = json!("other");
        }
        Request { method: "PATCH", path: format!("{object}{}", self.parameters(parameters)), kind: APPLY, body }
    }

    fn merge(&mut self, kind: Kind, name: &str, object: &str, key: &str) -> Request {
        let mut body = Value::Object(self.object(kind, name, false));
        if self.rng.chance(60) {
            body.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
            body["metadata"].as_object_mut().unwrap().remove("name");
        }
        if self.rng.chance(15) {
            body["metadata"]["resourceVersion"] = json!(format!("${}:{key}", pick(&self.rng, &["rv", "old"])));
        }
        self.nulls(&mut body);
        let manager = self.manager();
        let kind = "application/merge-patch+json";
        Request { method: "PATCH", path: format!("{object}{}", self.parameters(manager)), kind, body }
    }

    /// Some values become null, which removes them.
    fn nulls(&mut self, value: &mut Value) {
        if let Value::Object(map) = value {
            for (key, value) in map.iter_mut() {
                if self.rng.usize(0..100) < 6 && !matches!(key.as_str(), "metadata" | "spec" | "apiVersion" | "kind") {
                    *value = Value::Null;
                } else {
                    self.nulls(value);
                }
            }
        }
    }

    fn json_patch(&mut self, kind: Kind, object: &str) -> Request {
        let mut paths =
            vec!["/metadata/labels/app", "/metadata/labels", "/metadata/annotations", "/metadata/finalizers/-"];
        paths.extend(match kind.kind {
            "ConfigMap" | "Secret" => vec!["/data/k1", "/data", "/data/k2", "/immutable"],
            "Service" => vec!["/spec/ports/0", "/spec/ports/-", "/spec/selector/app", "/spec/type"],
            "Deployment" | "Job" => vec![
                "/spec/replicas",
                "/spec/template/spec/containers/0/image",
                "/spec/template/spec/containers/0/env/0",
                "/spec/template/spec/containers/1",
                "/spec/parallelism",
                "/spec/template/metadata/labels",
            ],
            _ => vec![
                "/spec/size",
                "/spec/parts/0",
                "/spec/parts/-",
                "/spec/tags/0",
                "/spec/mode",
                "/spec/place",
                "/status",
            ],
        });
        let rng = &self.rng;
        let operations = (0..rng.usize(1..3)).map(|_| {
            let path = pick(rng, &paths);
            let value = match path.rsplit('/').next() {
                Some("-") if path.contains("finalizers") => json!("example.com/c"),
                Some("labels" | "annotations" | "data") => json!({"app": "a"}),
                Some("ports" | "0" | "-" | "1") if path.contains("ports") => json!({"name": "more", "port": 99}),
                Some("env" | "0") if path.contains("env") => json!({"name": "Z", "value": "z"}),
                Some("1") => json!({"name": "third", "image": "nginx"}),
                Some("0" | "-") if path.contains("parts") => json!({"name": "top"}),
                Some("replicas" | "parallelism" | "size") => json!(rng.i32(0..12)),
                Some("immutable") => json!(true),
                Some("place" | "status") => json!({}),
                _ => pick(rng, &[json!("a"), json!("YQ=="), json!("manual")]),
            };
            match rng.usize(0..10) {
                0..=2 => json!({"op": "add", "path": path, "value": value}),
                3..=5 => json!({"op": "replace", "path": path, "value": value}),
                6..=7 => json!({"op": "remove", "path": path}),
                8 => json!({"op": "test", "path": path, "value": value}),
                _ => json!({"op": pick(rng, &["copy", "move"]), "from": path, "path": pick(rng, &paths)}),
            }
        });
        let body = operations.collect();
        let manager = self.manager();
        let kind = "application/json-patch+json";
        Request { method: "PATCH", path: format!("{object}{}", self.parameters(manager)), kind, body }
    }

    fn strategic(&mut self, kind: Kind, name: &str, object: &str) -> Request {
        let mut body = Value::Object(self.object(kind, name, false));
        self.nulls(&mut body);
        if kind.kind == "Deployment" && self.rng.chance(40) {
            let spec = &mut body["spec"]["template"]["spec"];
            *spec = pick(
                &self.rng,
                &[
                    json!({"containers": [{"name": "main", "$patch": "delete"}]}),
                    json!({"containers": [{"name": "side", "image": "new"}], "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}),
                    json!({"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]}),
                    json!({"$patch": "replace", "containers": [{"name": "only", "image": "x"}]}),
                    json!({"$retainKeys": ["containers"], "containers": [{"name": "main", "image": "x"}]}),
                ],
            );
        }
        if self.rng.chance(8) {
            body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!(["example.com/a"]);
            // With both, what is left depends on the order of a Go map.
            body["metadata"].as_object_mut().unwrap().remove("finalizers");
        }
        let manager = self.manager();
        let kind = "application/strategic-merge-patch+json";
        Request { method: "PATCH", path: format!("{object}{}", self.parameters(manager)), kind, body }
    }

    fn subresource(&mut self, kind: Kind, name: &str, object: &str, key: &str) -> Request {
        let Some(which) = kind.subresources.get(self.rng.usize(0..kind.subresources.len().max(1))) else {
            return Request::get(object.to_owned());
        };
        let path = format!("{object}/{which}");
        if self.rng.chance(25) {
            return Request::get(path);
        }
        let manager = self.manager();
        if *which == "scale" {
            let replicas = json!({"spec": {"replicas": self.rng.i32(-1..5)}});
            if self.rng.chance(60) {
                let kind = "application/merge-patch+json";
                return Request { method: "PATCH", path: path + &self.parameters(manager), kind, body: replicas };
            }
            let mut body = replicas;
            body["apiVersion"] = json!("autoscaling/v1");
            body["kind"] = json!("Scale");
            body["metadata"] = json!({"name": name, "namespace": self.namespace});
            if self.rng.chance(40) {
                body["metadata"]["resourceVersion"] = json!(format!("${}:{key}", pick(&self.rng, &["rv", "old"])));
            }
            return Request { method: "PUT", path: path + &self.parameters(manager), kind: JSON, body };
        }
        let status = status(&self.rng, kind.kind);
        match self.rng.usize(0..3) {
            0 => {
                let body =
                    json!({"status": status, "metadata": {"labels": {"app": "by-status"}}, "spec": {"surprise": 1}});
                let kind = "application/merge-patch+json";
                Request { method: "PATCH", path: path + &self.parameters(manager), kind, body }
            }
            1 => {
                let mut body = json!({"status": status});
                body["apiVersion"] = json!(kind.api_version);
                body["kind"] = json!(kind.kind);
                body["metadata"] = json!({"name": name});
                Request { method: "PATCH", path: path + &self.parameters(manager), kind: APPLY, body }
            }
            _ => {
                let mut body = Value::Object(self.object(kind, name, true));
                body["status"] = status;
                body["metadata"]["resourceVersion"] = json!(format!("$rv:{key}"));
                Request { method: "PUT", path: path + &self.parameters(manager), kind: JSON, body }
            }
        }
    }

    fn list(&mut self, collection: &str, key: &str, drawn: bool) -> Request {
        let query = match self.rng.usize(0..14) {
            0 => "labelSelector=app%3Da",
            1 => "labelSelector=app+in+%28a%2Cb%29%2C%21tier",
            2 => "labelSelector=tier+notin+%28a%29",
            3 => "labelSelector=app%21%3Da",
            4 => "labelSelector=%3D%3D",
            5 => "fieldSelector=metadata.name%3Done",
            6 => "fieldSelector=metadata.name%21%3Done",
            7 => "fieldSelector=spec.nothing%3D1",
            // Every namespace has a ConfigMap that our controllers make, and what has a drawn name may stand anywhere.
            8 if !collection.ends_with("configmaps") && !drawn => "limit=1",
            9 => "continue=nonsense",
            10 => "resourceVersion=0",
            11 => "resourceVersion=nonsense",
            12 => return Request::get(format!("{collection}?resourceVersion=$old:{key}&resourceVersionMatch=Exact")),
            _ => "",
        };
        Request::get(format!("{collection}?{query}"))
    }

    fn delete(&mut self, object: &str, key: &str) -> Request {
        let mut query = Vec::new();
        let mut body = Value::Null;
        match self.rng.usize(0..10) {
            0 => query.push("propagationPolicy=Background".to_owned()),
            1 => query.push("gracePeriodSeconds=0".to_owned()),
            2 => body = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            3 => {
                body = json!({"preconditions": {"uid": format!("$uid:{key}"), "resourceVersion": format!("$rv:{key}")}})
            }
            4 => body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
            5 => query.push("propagationPolicy=Sideways".to_owned()),
            _ => {}
        }
        // Where there is a body, the address is not asked.
        let dry = self.rng.chance(8) && body.is_null();
        if dry {
            query.push("dryRun=All".to_owned());
        }
        if object.contains("/jobs/") && !dry {
            // Without a word the Pods of a Job stay, and then something has to let go of it, which runs on one side only.
            query.retain(|it| !it.starts_with("propagationPolicy"));
            match body.is_null() {
                true => query.push("propagationPolicy=Background".to_owned()),
                false => body["propagationPolicy"] = json!("Background"),
            }
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        Request { method: "DELETE", path: format!("{object}{query}"), kind: JSON, body }
    }

    fn delete_collection(&mut self, collection: &str) -> Request {
        let query = pick(&self.rng, &["?labelSelector=app%3Da", "", "?fieldSelector=metadata.name%3Done"]);
        let mut path = format!("{collection}{query}");
        if collection.ends_with("/jobs") {
            path += if query.is_empty() { "?propagationPolicy=Background" } else { "&propagationPolicy=Background" };
        }
        Request { method: "DELETE", path, kind: JSON, body: Value::Null }
    }

    /// Takes what holds an object that is being deleted.
    fn release(&mut self, object: &str) -> Request {
        let body = json!({"metadata": {"finalizers": null}});
        let kind = "application/merge-patch+json";
        Request { method: "PATCH", path: format!("{object}?fieldManager=alpha"), kind, body }
    }
}
