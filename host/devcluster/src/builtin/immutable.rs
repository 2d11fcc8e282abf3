//! What an update may not change, in the words of the real server.
//!
//! Custom kinds are not here: theirs is in their schema.

use serde_json::{Value, json};

use super::quantity;
use crate::{
    json::{at, copy, int, list, remove, same, text},
    status::Cause,
};

/// Checks an update against the old object.
pub(super) fn immutable(group: &str, kind: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut check = Check { old, causes: Vec::new() };
    match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => check.fixed(new, &["spec", "selector"]),
        ("apps", "StatefulSet") => check.stateful_set(new),
        ("apps", "ControllerRevision") => check.fixed(new, &["data"]),
        ("batch", "Job") => check.job(new),
        ("", "Service") => check.service(new),
        ("", "ConfigMap" | "Secret") => {
            if kind == "Secret" {
                check.fixed(new, &["type"]);
            }
            check.frozen_data(new);
        }
        ("", "PersistentVolumeClaim") => check.claim(new),
        ("", "PersistentVolume") => check.volume(new),
        ("", "Pod") => check.pod(new),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            check.same_or(new, &["roleRef"], |value| Cause::invalid("roleRef", value, "cannot change roleRef"));
        }
        ("storage.k8s.io", "StorageClass") => {
            for field in ["parameters", "provisioner", "reclaimPolicy"] {
                let why = format!("updates to {field} are forbidden.");
                check.same_or(new, &[field], |_| Cause::forbidden(field, &why));
            }
            check.fixed(new, &["volumeBindingMode"]);
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            check.same_or(new, &["value"], |_| Cause::forbidden("value", "may not be changed in an update."));
            check.fixed(new, &["preemptionPolicy"]);
        }
        ("networking.k8s.io", "IngressClass") => check.fixed(new, &["spec", "controller"]),
        ("discovery.k8s.io", "EndpointSlice") => check.fixed(new, &["addressType"]),
        ("node.k8s.io", "RuntimeClass") => check.fixed(new, &["handler"]),
        ("apiextensions.k8s.io", _) => {
            check.fixed(new, &["spec", "group"]);
            check.fixed(new, &["spec", "names", "plural"]);
            if crate::crd::is_established(old) {
                check.fixed(new, &["spec", "scope"]);
                check.fixed(new, &["spec", "names", "kind"]);
            }
            check.causes.extend(crate::crd::stored_versions(new));
        }
        _ => {}
    }
    check.causes
}

fn equal(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => same(left, right),
        (None, None) => true,
        _ => false,
    }
}

struct Check<'a> {
    old: &'a Value,
    causes: Vec<Cause>,
}

impl Check<'_> {
    fn same_or(&mut self, new: &Value, path: &[&str], cause: impl FnOnce(&Value) -> Cause) {
        let after = at(new, path);
        if !equal(at(self.old, path), after) {
            self.causes.push(cause(after.unwrap_or(&Value::Null)));
        }
    }

    fn fixed(&mut self, new: &Value, path: &[&str]) {
        self.same_or(new, path, |value| Cause::invalid(path.join("."), value, "field is immutable"));
    }

    /// The specification may change in these fields only.
    fn only(&mut self, new: &Value, mutable: &[&[&str]], why: &str) {
        let rest = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            for path in mutable {
                remove(&mut spec, path);
            }
            spec
        };
        if !same(&rest(self.old), &rest(new)) {
            self.causes.push(Cause::forbidden("spec", why));
        }
    }

    fn stateful_set(&mut self, new: &Value) {
        let old = self.old;
        let claims = |object: &Value| {
            let list = list(object, &["spec", "volumeClaimTemplates"]).iter();
            list.map(|claim| (claim.get("metadata").cloned(), claim.get("spec").cloned())).collect::<Vec<_>>()
        };
        let mut comparable = new.clone();
        if claims(old) == claims(new) {
            // Their status and type are not what one changes.
            copy(old, &mut comparable, &["spec", "volumeClaimTemplates"]);
        }
        let mutable: &[&[&str]] = &[
            &["replicas"],
            &["ordinals"],
            &["template"],
            &["updateStrategy"],
            &["revisionHistoryLimit"],
            &["persistentVolumeClaimRetentionPolicy"],
            &["minReadySeconds"],
        ];
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        self.only(&comparable, mutable, why);
    }

    fn job(&mut self, new: &Value) {
        let number = |object: &Value, field: &str| at(object, &["spec", field]).cloned();
        let indexed = text(new, &["spec", "completionMode"]) == "Indexed";
        let elastic = indexed && number(new, "completions") == number(new, "parallelism");
        if !elastic {
            self.same_or(new, &["spec", "completions"], |value| {
                let why =
                    if indexed { "can only be modified in tandem with spec.parallelism" } else { "field is immutable" };
                Cause::invalid("spec.completions", value, why)
            });
        }
        self.fixed(new, &["spec", "selector"]);
        self.job_template(new);
        for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
            self.fixed(new, &["spec", field]);
        }
    }

    /// While a Job is suspended and none of its Pods runs, one may still say where they are to run and what they may use.
    fn job_template(&mut self, new: &Value) {
        let old = self.old;
        let suspended = at(old, &["spec", "suspend"]) == Some(&Value::Bool(true));
        let is_true =
            |condition: &Value| text(condition, &["type"]) == "Suspended" && text(condition, &["status"]) == "True";
        let rests =
            at(old, &["status", "startTime"]).is_none() || list(old, &["status", "conditions"]).iter().any(is_true);
        let open = suspended && rests && int(old, &["status", "active"]).unwrap_or_default() == 0;
        let mut comparable = new.clone();
        if open {
            let template = ["spec", "template"];
            for tail in [
                &["metadata", "labels"][..],
                &["metadata", "annotations"],
                &["spec", "affinity", "nodeAffinity"],
                &["spec", "nodeSelector"],
                &["spec", "tolerations"],
                &["spec", "schedulingGates"],
            ] {
                copy(old, &mut comparable, &[&template, tail].concat());
            }
            for group in ["containers", "initContainers"] {
                copy_resources(old, &mut comparable, &["spec", "template", "spec", group]);
            }
        }
        // Without its metadata when it is suspended, since only the specification is looked at then.
        let (path, field) = match suspended && open {
            true => (&["spec", "template", "spec"][..], "spec.template.spec"),
            false => (&["spec", "template"][..], "spec.template"),
        };
        let given = at(new, path).cloned().unwrap_or_default();
        self.same_or(&comparable, path, |_| Cause::invalid(field, &given, "field is immutable"));
    }

    fn service(&mut self, new: &Value) {
        let address = |object: &Value| text(object, &["spec", "clusterIP"]).to_owned();
        let external = |object: &Value| text(object, &["spec", "type"]) == "ExternalName";
        let old = self.old;
        if !address(old).is_empty() && address(old) != address(new) && !external(old) && !external(new) {
            let given = json!([address(new)]);
            self.causes.push(Cause::invalid("spec.clusterIPs[0]", &given, "may not change once set"));
        }
    }

    fn frozen_data(&mut self, new: &Value) {
        if self.old.get("immutable") != Some(&Value::Bool(true)) {
            return;
        }
        for field in ["immutable", "data", "binaryData"] {
            let why = "field is immutable when `immutable` is set";
            self.same_or(new, &[field], |_| Cause::forbidden(field, why));
        }
    }

    fn claim(&mut self, new: &Value) {
        let old = self.old;
        let bound = text(old, &["status", "phase"]) == "Bound";
        let mut mutable: Vec<&[&str]> = vec![&["volumeAttributesClassName"]];
        if bound {
            mutable.push(&["resources", "requests"]);
        }
        for field in ["volumeName", "storageClassName"] {
            // Both are filled in once, by controllers.
            if at(old, &["spec", field]).is_none() {
                mutable.push(if field == "volumeName" { &["volumeName"] } else { &["storageClassName"] });
            }
        }
        let before = self.causes.len();
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        self.only(new, &mutable, why);
        let size = |object: &Value, path: &[&str]| at(object, path).and_then(Value::as_str).and_then(quantity::nanos);
        let asked = size(new, &["spec", "resources", "requests", "storage"]);
        let asked_before = size(old, &["spec", "resources", "requests", "storage"]);
        // A volume may be larger than what was asked for; less than that may be asked for only if it is smaller yet.
        let has = size(old, &["status", "capacity", "storage"]).unwrap_or_default();
        if before == self.causes.len()
            && let (Some(asked), Some(asked_before)) = (asked, asked_before)
            && asked < asked_before
            && asked <= has
        {
            let why = "field can not be less than status.capacity";
            self.causes.push(Cause::forbidden("spec.resources.requests.storage", why));
        }
    }

    fn volume(&mut self, new: &Value) {
        let source = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            for field in [
                "capacity",
                "accessModes",
                "claimRef",
                "persistentVolumeReclaimPolicy",
                "storageClassName",
                "mountOptions",
                "volumeMode",
                "nodeAffinity",
                "volumeAttributesClassName",
            ] {
                remove(&mut spec, &[field]);
            }
            spec
        };
        if !same(&source(self.old), &source(new)) {
            let why = "spec.persistentvolumesource is immutable after creation";
            self.causes.push(Cause::forbidden("spec.persistentvolumesource", why));
        }
        self.fixed(new, &["spec", "volumeMode"]);
    }

    /// Of a Pod only images, deadlines, tolerations and scheduling gates may change.
    fn pod(&mut self, new: &Value) {
        let reduced = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            for field in
                ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates", "nodeName"]
            {
                remove(&mut spec, &[field]);
            }
            for field in ["containers", "initContainers"] {
                for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                    remove(container, &["image"]);
                    remove(container, &["imagePullPolicy"]);
                }
            }
            spec
        };
        let node = |object: &Value| text(object, &["spec", "nodeName"]).to_owned();
        let moved = !node(self.old).is_empty() && node(self.old) != node(new);
        if moved || !same(&reduced(self.old), &reduced(new)) {
            let why = "pod updates may not change fields other than `spec.containers[*].image`, \
                       `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions \
                       to existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                       previously negative)";
            self.causes.push(Cause::forbidden("spec", why));
        }
    }
}

/// Gives the containers of one object the resources that those of another have in the same place under the same name.
fn copy_resources(from: &Value, to: &mut Value, path: &[&str]) {
    let before = list(from, path);
    if list(to, path).len() != before.len() {
        return;
    }
    let place = path.iter().try_fold(to, |value, key| value.get_mut(key));
    let containers = place.and_then(Value::as_array_mut).into_iter().flatten();
    for (container, before) in containers.zip(before).filter(|(a, b)| a.get("name") == b.get("name")) {
        copy(before, container, &["resources"]);
    }
}
