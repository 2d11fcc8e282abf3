//! Checks of `metadata`: what it must be when an object is created, and what it may become.

use serde_json::{Value, json};

use super::names;
use crate::{
    catalog::Resource,
    json::{at, list, text},
    status::Cause,
};

/// All annotations of one object together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Groups of built-in kinds whose finalizers may be without a domain.
const GROUPS_OF_ANY_FINALIZER: [&str; 4] =
    ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io"];
/// Finalizers that need no domain.
const FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the metadata of a new object.
pub(crate) fn created(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let form = name_form(resource);
    let prefix = text(object, &["metadata", "generateName"]);
    if !prefix.is_empty() {
        // What is drawn follows, so that the last character may be a dash.
        let whole = match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => format!("{rest}a"),
            _ => prefix.to_owned(),
        };
        invalid("metadata.generateName", prefix, &form(&whole), &mut causes);
    }
    let name = text(object, &["metadata", "name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        invalid("metadata.name", name, &form(name), &mut causes);
    }
    common(object, &mut causes);
    finalizers(object, &mut causes);
    if resource.custom.is_none() {
        standard_finalizers(resource, object, &mut causes);
    }
    causes
}

/// What is wrong with the metadata of an object that is changed.
pub(crate) fn updated(resource: &Resource, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(new, &["metadata", "name"]);
    invalid("metadata.name", name, &names::path_segment(name), &mut causes);
    common(new, &mut causes);
    finalizers(new, &mut causes);
    new_finalizers(old, new, &mut causes);
    if resource.custom.is_some() {
        // A real server looks at custom objects again and again, and says so each time.
        common(new, &mut causes);
        new_finalizers(old, new, &mut causes);
        common(new, &mut causes);
    }
    if resource.custom.is_none() {
        standard_finalizers(resource, new, &mut causes);
    }
    causes
}

/// What a real server warns of instead of refusing it: finalizers of custom resources that could be anybody's.
pub(crate) fn warnings(resource: &Resource, old: Option<&Value>, new: &Value) -> Vec<String> {
    if resource.custom.is_none() {
        return Vec::new();
    }
    let before = old.map(|old| list(old, &["metadata", "finalizers"])).unwrap_or_default();
    let added = list(new, &["metadata", "finalizers"]).iter().filter(|it| !before.contains(it));
    let mut added = added.filter_map(Value::as_str).collect::<Vec<_>>();
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let at_name = |why: &str| format!("metadata.finalizers: {name:?}: {why}");
        warnings.extend(names::label_key(name).iter().map(|why| at_name(why)));
        if !name.contains('/') && !FINALIZERS.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            warnings.push(at_name(&format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            )));
        }
    }
    warnings
}

fn name_form(resource: &Resource) -> fn(&str) -> Vec<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        names::path_segment
    } else if resource.is("", "Namespace") || resource.is("", "Service") {
        names::dns_label
    } else {
        names::dns_name
    }
}

fn invalid(field: &str, value: &str, problems: &[String], causes: &mut Vec<Cause>) {
    causes.extend(problems.iter().map(|problem| Cause::invalid(field, &json!(value), problem)));
}

/// Labels, or what has their form.
pub(super) fn labels(labels: Option<&Value>, field: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        invalid(field, key, &names::label_key(key), causes);
        invalid(field, value, &names::label_value(value), causes);
    }
}

/// Annotations: keys as those of labels, whatever their case, and a bound on all of them.
pub(super) fn annotations(annotations: Option<&Value>, field: &str, causes: &mut Vec<Cause>) {
    let annotations = annotations.and_then(Value::as_object);
    for (key, _) in annotations.into_iter().flatten() {
        invalid(field, key, &names::label_key(&key.to_lowercase()), causes);
    }
    let bytes = annotations.into_iter().flatten().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum::<usize>();
    if bytes > ANNOTATIONS_BYTES_MAX {
        let message = format!("Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes");
        causes.push(Cause { reason: "FieldValueTooLong", message, field: field.to_owned() });
    }
}

fn common(object: &Value, causes: &mut Vec<Cause>) {
    labels(at(object, &["metadata", "labels"]), "metadata.labels", causes);
    annotations(at(object, &["metadata", "annotations"]), "metadata.annotations", causes);
    let owners = list(object, &["metadata", "ownerReferences"]);
    let mut controller = None;
    for (index, owner) in owners.iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[field]).is_empty() {
                causes.push(Cause::required(format!("metadata.ownerReferences[{index}].{field}"), "must not be empty"));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text(owner, &["kind"]), text(owner, &["name"]));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    causes.push(Cause::invalid("metadata.ownerReferences", &json!(owners), &why));
                }
            }
        }
    }
}

fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    let finalizers = list(object, &["metadata", "finalizers"]);
    for name in finalizers.iter().filter_map(Value::as_str) {
        invalid("metadata.finalizers", name, &names::label_key(name), causes);
    }
    if ["orphan", "foregroundDeletion"].iter().all(|name| finalizers.iter().any(|it| it == name)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &json!(finalizers), why));
    }
}

fn standard_finalizers(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    if GROUPS_OF_ANY_FINALIZER.contains(&resource.group.as_str()) {
        return;
    }
    for (index, name) in list(object, &["metadata", "finalizers"]).iter().filter_map(Value::as_str).enumerate() {
        if !name.contains('/') && !FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), &json!(name), why));
        }
    }
}

/// An object that goes gets no new reasons to stay.
fn new_finalizers(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if at(old, &["metadata", "deletionTimestamp"]).is_none() {
        return;
    }
    let before = list(old, &["metadata", "finalizers"]);
    let added = list(new, &["metadata", "finalizers"]).iter().filter(|it| !before.contains(it));
    let mut added = added.map(Value::to_string).collect::<Vec<_>>();
    added.sort();
    added.dedup();
    if !added.is_empty() {
        let names = added.join(", ");
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
        );
        causes.push(Cause::forbidden("metadata.finalizers", &why));
    }
}
