//! Server-side apply as tables: who owns what, what conflicts, what goes.

use serde_json::{Value, json};

use super::{
    Set,
    managed::{By, Conflicts, Managers, TypedErrors, conflict_status},
    typed,
};
use crate::schema::{self, Type};

/// An object under test with its managers.
struct Live {
    type_name: &'static str,
    object: Value,
    managers: Managers,
}

impl Live {
    fn of(type_name: &'static str) -> Self {
        Self { type_name, object: json!({}), managers: Managers::default() }
    }

    fn ty(&self) -> Type<'static> {
        schema::builtin().named(self.type_name).unwrap()
    }

    fn by(manager: &str) -> By<'_> {
        By { manager, api_version: "v1", subresource: "", now: "2026-01-01T00:00:00Z" }
    }

    fn apply(&mut self, manager: &str, config: &Value) {
        let new =
            self.managers.apply(&self.object, config, self.ty(), Self::by(manager), false, &[]).expect("no conflict");
        self.object = new;
    }

    fn force(&mut self, manager: &str, config: &Value) {
        self.object =
            self.managers.apply(&self.object, config, self.ty(), Self::by(manager), true, &[]).expect("forced");
    }

    fn refused(&self, manager: &str, config: &Value) -> Vec<String> {
        let mut managers = self.managers.clone();
        match managers.apply(&self.object, config, self.ty(), Self::by(manager), false, &[]) {
            Err(Conflicts(conflicts)) => conflicts.into_iter().map(|c| format!("{}: {}", c.manager, c.path)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn update(&mut self, manager: &str, new: Value) {
        self.managers.update(&self.object, &new, self.ty(), Self::by(manager), &[]);
        self.object = new;
    }

    fn owned(&self, manager: &str, operation: &str) -> Value {
        let all = self.managers.to_value();
        let entry = all.as_array().unwrap().iter().find(|e| e["manager"] == manager && e["operation"] == operation);
        entry.map_or(Value::Null, |e| e["fieldsV1"].clone())
    }
}

const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
const DEPLOYMENT: &str = "io.k8s.api.apps.v1.Deployment";

fn data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})
}

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn an_applier_owns_what_it_says_and_nothing_of_the_identity() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"a": "1"}}, "data": {"k": "v"}}));
    assert_eq!(live.owned("m", "Apply"), json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:a": {}}}}));
}

#[test]
fn a_dropped_field_goes_and_others_stay() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &data(json!({"a": "1", "b": "2"})));
    live.apply("n", &data(json!({"c": "3"})));
    live.apply("m", &data(json!({"a": "1"})));
    assert_eq!(live.object["data"], json!({"a": "1", "c": "3"}));
    live.apply("m", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}));
    assert_eq!(live.object["data"], json!({"c": "3"}));
    assert_eq!(live.owned("m", "Apply"), Value::Null);
}

#[test]
fn the_same_value_is_shared_and_survives_one_owner() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &data(json!({"a": "1"})));
    live.apply("n", &data(json!({"a": "1"})));
    assert_eq!(live.owned("n", "Apply"), live.owned("m", "Apply"));
    live.apply("m", &data(json!({})));
    assert_eq!(live.object["data"], json!({"a": "1"}));
    live.apply("n", &json!({}));
    assert!(live.object["data"].get("a").is_none());
}

#[test]
fn a_different_value_conflicts_and_force_takes_it() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &data(json!({"a": "1", "b": "2"})));
    assert_eq!(live.refused("n", &data(json!({"a": "9", "b": "2"}))), ["m: .data.a"]);
    live.force("n", &data(json!({"a": "9"})));
    assert_eq!(live.object["data"], json!({"a": "9", "b": "2"}));
    assert_eq!(live.owned("m", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(live.refused("m", &data(json!({"a": "1", "b": "2"}))), ["n: .data.a"]);
}

#[test]
fn conflicts_name_manager_field_and_time() {
    let mut live = Live::of(CONFIG_MAP);
    live.update("kubectl", data(json!({"a": "1"})));
    live.apply("m", &data(json!({"b": "1"})));
    let mut managers = live.managers.clone();
    let config = data(json!({"a": "2", "b": "2"}));
    let Err(Conflicts(conflicts)) = managers.apply(&live.object, &config, live.ty(), Live::by("n"), false, &[]) else {
        panic!("no conflict")
    };
    let status = conflict_status(&conflicts).to_value();
    assert_eq!(status["code"], 409);
    assert_eq!(
        status["message"],
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using v1:\n- .data.a\nconflicts with \"m\":\n- .data.b"
    );
    let causes = status["details"]["causes"].as_array().unwrap();
    assert!(causes.iter().all(|c| c["reason"] == "FieldManagerConflict"));
    assert_eq!(causes.iter().map(|c| c["field"].as_str().unwrap()).collect::<Vec<_>>(), [".data.a", ".data.b"]);
}

#[test]
fn an_update_takes_fields_from_an_applier_who_then_conflicts() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &data(json!({"a": "1", "b": "1"})));
    live.update("edit", data(json!({"a": "2", "b": "1"})));
    assert_eq!(live.owned("m", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(live.owned("edit", "Update"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(live.refused("m", &data(json!({"a": "1", "b": "1"}))), ["edit: .data.a"]);
}

#[test]
fn one_name_is_two_managers_by_operation() {
    let mut live = Live::of(CONFIG_MAP);
    live.update("m", data(json!({"a": "1"})));
    assert_eq!(live.refused("m", &data(json!({"a": "2"}))), ["m: .data.a"]);
}

#[test]
fn removed_fields_leave_every_owner() {
    let mut live = Live::of(CONFIG_MAP);
    live.apply("m", &data(json!({"a": "1", "b": "1"})));
    live.update("edit", data(json!({"b": "1"})));
    assert_eq!(live.owned("m", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(live.owned("edit", "Update"), Value::Null);
}

#[test]
fn list_items_are_owned_by_their_keys() {
    let mut live = Live::of(DEPLOYMENT);
    live.apply("m", &pod(json!({"containers": [{"name": "a", "image": "1", "ports": [{"containerPort": 80}]}]})));
    assert_eq!(
        live.owned("m", "Apply"),
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
            ".": {}, "f:name": {}, "f:image": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        }}}}}})
    );
    live.apply("n", &pod(json!({"containers": [{"name": "b", "image": "1"}]})));
    live.apply(
        "n",
        &pod(json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]})),
    );
    let containers = |live: &Live| live.object["spec"]["template"]["spec"]["containers"].clone();
    assert_eq!(containers(&live)[0]["image"], "1");
    assert_eq!(containers(&live)[0]["env"], json!([{"name": "X", "value": "1"}]));
    assert_eq!(
        live.refused("n", &pod(json!({"containers": [{"name": "a", "image": "2"}]}))),
        ["m: .spec.template.spec.containers[name=\"a\"].image"]
    );
    // m lets go of its container: what n set inside stays, with the key.
    live.apply("m", &json!({"spec": {"replicas": 1}}));
    assert_eq!(
        containers(&live),
        json!([{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}])
    );
    live.apply("n", &pod(json!({"containers": [{"name": "b", "image": "1"}]})));
    assert_eq!(containers(&live), json!([{"name": "b", "image": "1"}]));
}

#[test]
fn a_default_of_a_key_names_the_same_item() {
    let mut live = Live::of(DEPLOYMENT);
    live.apply("m", &pod(json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]})));
    live.apply("n", &pod(json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 80, "protocol": "UDP"}]}]})));
    let ports = &live.object["spec"]["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(
        ports,
        &json!([{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 80, "protocol": "UDP"}])
    );
}

#[test]
fn sets_merge_by_value_and_atomic_parts_are_owned_whole() {
    let mut live = Live::of(DEPLOYMENT);
    live.apply("m", &json!({"metadata": {"finalizers": ["a/1"]}, "spec": {"selector": {"matchLabels": {"x": "1"}}}}));
    assert_eq!(
        live.owned("m", "Apply"),
        json!({"f:metadata": {"f:finalizers": {"v:\"a/1\"": {}}}, "f:spec": {"f:selector": {}}})
    );
    live.apply("n", &json!({"metadata": {"finalizers": ["b/2"]}}));
    assert_eq!(live.object["metadata"]["finalizers"], json!(["a/1", "b/2"]));
    live.apply("m", &json!({"spec": {"selector": {"matchLabels": {"x": "1"}}}}));
    assert_eq!(live.object["metadata"]["finalizers"], json!(["b/2"]));
    assert_eq!(live.refused("n", &json!({"spec": {"selector": {"matchLabels": {"y": "1"}}}})), ["m: .spec.selector"]);
    live.apply("n", &pod(json!({"containers": [{"name": "a", "args": ["1", "2"]}]})));
    assert_eq!(
        live.refused("m", &pod(json!({"containers": [{"name": "a", "args": ["1"]}]}))),
        ["n: .spec.template.spec.containers[name=\"a\"].args"]
    );
}

#[test]
fn merged_lists_keep_the_order_of_the_configuration() {
    let ty = schema::builtin().named(DEPLOYMENT).unwrap();
    let names = |list: &[&str]| pod(json!({"containers": list.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}));
    for (live, config, expected) in [
        (&["a", "b"][..], &["b", "a"][..], &["b", "a"][..]),
        (&["a", "b", "c"], &["b"], &["a", "b", "c"]),
        (&["a", "b"], &["c"], &["a", "b", "c"]),
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        (&["a"], &["x", "a", "y"], &["x", "a", "y"]),
        (&[], &["a"], &["a"]),
    ] {
        assert_eq!(typed::merge(&names(live), &names(config), ty), names(expected), "{live:?} + {config:?}");
    }
}

#[test]
fn whole_structs_vanish_but_maps_of_others_stay() {
    let mut live = Live::of(DEPLOYMENT);
    live.apply(
        "m",
        &json!({"spec": {"strategy": {"type": "Recreate"}, "template": {"metadata": {"labels": {"a": "1"}}}}}),
    );
    live.apply("n", &json!({"spec": {"template": {"metadata": {"labels": {"b": "2"}}}}}));
    live.apply("m", &json!({"spec": {"replicas": 2}}));
    assert_eq!(live.object["spec"], json!({"replicas": 2, "template": {"metadata": {"labels": {"b": "2"}}}}));
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    let ty = schema::builtin().named(DEPLOYMENT).unwrap();
    for (config, message) in [
        (json!({"spec": {"foo": 1}}), ".spec.foo: field not declared in schema"),
        (
            pod(json!({"containers": [{"image": "x"}]})),
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key \
             fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            pod(json!({"containers": [{"name": "x"}, {"name": "x"}]})),
            ".spec.template.spec.containers: duplicate entries for key [name=\"x\"]",
        ),
        (json!({"spec": {"replicas": "3"}}), ".spec.replicas: expected numeric (int or float), got string"),
        (json!({"spec": {"paused": 1}}), ".spec.paused: expected boolean, got &{1}"),
        (
            json!({"spec": {"template": {"metadata": {"labels": {"a": true}}}}}),
            ".spec.template.metadata.labels.a: expected string, got &{true}",
        ),
        (json!({"spec": 3}), ".spec: expected map, got &{3}"),
        (json!({"spec": {"replicas": {}}}), ".spec.replicas: expected scalar, got &{map[]}"),
        (pod(json!({"containers": {}})), ".spec.template.spec.containers: expected list, got &{map[]}"),
    ] {
        assert_eq!(TypedErrors(typed::check(&config, ty)).to_string(), message);
    }
}

#[test]
fn untracked_objects_belong_to_nobody_in_particular() {
    let mut live = Live::of(CONFIG_MAP);
    live.object = data(json!({"a": "1", "b": "1"}));
    let before = live.object.clone();
    live.managers.before_first_apply(&json!({}), &before, live.ty(), "v1", "now", &[]);
    assert_eq!(live.refused("m", &data(json!({"a": "2"}))), ["before-first-apply: .data.a"]);
    live.apply("m", &data(json!({"a": "1"})));
    assert_eq!(live.object["data"], json!({"a": "1", "b": "1"}));
}

#[test]
fn old_update_managers_are_folded_into_one() {
    let mut live = Live::of(CONFIG_MAP);
    let mut map = serde_json::Map::new();
    for n in 0..15 {
        map.insert(format!("k{n:02}"), json!("v"));
        live.update(&format!("m{n:02}"), data(Value::Object(map.clone())));
    }
    let entries = live.managers.to_value();
    assert_eq!(entries.as_array().unwrap().len(), 10);
    assert!(entries.as_array().unwrap().iter().any(|e| e["manager"] == "ancient-changes"));
}

#[test]
fn fields_survive_a_round_trip_and_bad_ones_are_dropped() {
    let fields = json!({"f:a": {".": {}, "f:b": {}}, "k:{\"z\":1,\"a\":\"x\"}": {}, "v:1": {}, "i:3": {}, "?": {}, "k:nope": {}});
    let set = Set::from_fields(&fields).unwrap();
    assert_eq!(
        set.to_fields(),
        json!({"f:a": {".": {}, "f:b": {}}, "i:3": {}, "k:{\"a\":\"x\",\"z\":1}": {}, "v:1": {}})
    );
    assert_eq!(set.paths(), [".a", "[3]", "[a=\"x\",z=1]", "[=1]", ".a.b"]);
    assert!(Set::from_fields(&json!([])).is_none());
    assert!(Set::from_fields(&json!({"f:a": 1})).is_none());
}

#[test]
fn reset_fields_are_not_owned_and_do_not_conflict() {
    let mut live = Live::of(DEPLOYMENT);
    live.update("controller", json!({"status": {"replicas": 1}}));
    let config = json!({"spec": {"replicas": 1}, "status": {"replicas": 5}});
    live.managers.apply(&live.object.clone(), &config, live.ty(), Live::by("m"), false, &[&["f:status"]]).unwrap();
    assert_eq!(live.owned("m", "Apply"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn unknown_types_merge_as_maps_with_atomic_lists() {
    let schema = schema::custom(None);
    let ty = schema.named(schema::ROOT).unwrap();
    let merged =
        typed::merge(&json!({"spec": {"a": {"b": 1}, "l": [1]}}), &json!({"spec": {"a": {"c": 2}, "l": [2]}}), ty);
    assert_eq!(merged, json!({"spec": {"a": {"b": 1, "c": 2}, "l": [2]}}));
    assert_eq!(typed::field_set(&json!({"spec": {"l": [1]}}), ty).to_fields(), json!({"f:spec": {".": {}, "f:l": {}}}));
}

/// A small generator of numbers that is the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn deployment(&mut self) -> Value {
        let mut config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}});
        let text = |random: &mut Self| json!(random.below(2).to_string());
        for label in ["a", "b"] {
            if self.chance() {
                config["metadata"]["labels"][label] = text(self);
            }
        }
        let finalizers = ["f/1", "f/2", "f/3"].into_iter().filter(|_| self.chance()).collect::<Vec<_>>();
        if !finalizers.is_empty() {
            config["metadata"]["finalizers"] = json!(finalizers);
        }
        if self.chance() {
            config["spec"]["replicas"] = json!(self.below(2));
        }
        if self.chance() {
            config["spec"]["selector"]["matchLabels"]["s"] = text(self);
        }
        let mut containers = Vec::new();
        for name in ["c", "d"] {
            if !self.chance() {
                continue;
            }
            let mut container = json!({"name": name});
            if self.chance() {
                container["image"] = text(self);
            }
            if self.chance() {
                container["args"] = json!([text(self)]);
            }
            for port in 80..82 {
                if self.chance() {
                    let mut item = json!({"containerPort": port});
                    if self.chance() {
                        item["protocol"] = json!("TCP");
                    }
                    match container["ports"].as_array_mut() {
                        Some(ports) => ports.push(item),
                        None => container["ports"] = json!([item]),
                    }
                }
            }
            containers.push(container);
        }
        if !containers.is_empty() {
            config["spec"]["template"]["spec"]["containers"] = json!(containers);
        }
        config
    }
}

#[test]
fn random_applies_keep_what_is_owned_and_nothing_else() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut live = Live::of(DEPLOYMENT);
        let mut last = std::collections::BTreeMap::new();
        for step in 0..12 {
            let manager = ["one", "two", "three"][usize::try_from(random.below(3)).unwrap()];
            let config = random.deployment();
            let context = || format!("seed {seed} step {step} {manager} {config}");
            let before = (live.object.clone(), live.managers.clone());
            let tried = live.managers.clone().apply(&live.object, &config, live.ty(), Live::by(manager), false, &[]);
            let force = random.chance();
            match tried {
                Ok(_) => live.apply(manager, &config),
                Err(_) if force => live.force(manager, &config),
                Err(_) => {
                    assert_eq!((&live.object, &live.managers), (&before.0, &before.1), "a conflict changes nothing");
                    continue;
                }
            }
            last.insert(manager, config.clone());
            // All that the manager asked for is so: laying it over the object again changes nothing.
            assert_eq!(typed::merge(&live.object, &config, live.ty()), live.object, "{}", context());
            // The same apply again is no conflict and no change.
            let once = (live.object.clone(), live.managers.clone());
            live.apply(manager, &config);
            assert_eq!(live.object, once.0, "{}", context());
            assert!(live.managers.same_sets(&once.1), "{}", context());
            // Everything owned is there, and every leaf that is there is owned.
            let fields = typed::field_set(&live.object, live.ty());
            let mut owned = Set::default();
            for entry in live.managers.to_value().as_array().unwrap() {
                owned.extend(&Set::from_fields(&entry["fieldsV1"]).unwrap());
            }
            assert!(
                owned.difference(&fields).is_empty(),
                "dangling {:?}: {}",
                owned.difference(&fields).paths(),
                context()
            );
            let mut loose = fields.difference(&owned);
            for path in [&["f:apiVersion"][..], &["f:kind"], &["f:metadata", "f:name"]] {
                loose.cut(path);
            }
            assert!(loose.is_empty(), "unowned {:?}: {}", loose.paths(), context());
        }
        // When all let go, nothing is left.
        for manager in last.keys() {
            live.force(manager, &json!({"metadata": {"name": "x"}}));
        }
        let mut rest = typed::field_set(&live.object, live.ty());
        rest.cut(&["f:apiVersion"]);
        rest.cut(&["f:kind"]);
        rest.cut(&["f:metadata"]);
        assert!(rest.is_empty(), "seed {seed}: {:?}", rest.paths());
    }
}
