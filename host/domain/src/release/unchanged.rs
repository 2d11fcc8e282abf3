//! Whether applying an object would change nothing, so that it need not be sent.
//!
//! An apply changes a value, or who wants it. So it is left out only if our entry in `metadata.managedFields` names
//! exactly the fields that would be sent, and each of them has exactly the value that would be sent. The entry was written
//! by the API server, which knows the schema; here no schema is known, and whatever would need one is a doubt: then the
//! object is sent, which does no harm. Doubts are defaults inside of what is sent as a whole, quantities and numbers that
//! are written in another way, empty maps, list items whose keys are not written out, and maps of custom resources that
//! may or may not be wanted as a whole. What admission would make of the object today is not foreseen.

use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// Fields, or what is below one, in the form of `fieldsV1`.
type Fields = Map<String, Value>;

/// Items of a list that are compared one by one.
const ITEMS_MAX: usize = 500;

/// Groups of the API server itself, whose schema is known as far as [`ATOMIC_MAPS`] says it.
const BUILT_IN: [&str; 18] = [
    "",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Maps of built-in kinds that have one manager as a whole. Of another map a set of fields without anything below says
/// that it was sent empty.
const ATOMIC_MAPS: [&str; 14] = [
    "claimRef",
    "configMapKeyRef",
    "dataSource",
    "fieldRef",
    "labelSelector",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "podSelector",
    "resourceFieldRef",
    "roleRef",
    "scaleTargetRef",
    "secretKeyRef",
    "selector",
];

/// Whether it is certain that the API server would change nothing if `manager` applied `wanted` over `live`, which was
/// read in the version of the API that `wanted` is in, with its `metadata.managedFields`.
#[must_use]
pub fn changes_nothing(wanted: &Value, live: &Value, manager: &str) -> bool {
    settled(wanted, live, manager).unwrap_or(false)
}

/// Nothing if there is anything to doubt.
fn settled(wanted: &Value, live: &Value, manager: &str) -> Option<bool> {
    let metadata = wanted.get("metadata")?.as_object()?;
    let live_metadata = live.get("metadata")?.as_object()?;
    let api_version = wanted.get("apiVersion")?.as_str()?;
    let is_same = api_version == live.get("apiVersion")?.as_str()?
        && wanted.get("kind")?.as_str()? == live.get("kind")?.as_str()?
        && metadata.get("name")?.as_str()? == live_metadata.get("name")?.as_str()?
        && metadata.get("namespace").is_none_or(|namespace| live_metadata.get("namespace") == Some(namespace))
        && !live_metadata.contains_key("deletionTimestamp");
    if !is_same {
        return None;
    }
    let entries = live_metadata.get("managedFields")?.as_array()?;
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_ours = |entry: &Value| {
        text(entry, "manager") == manager
            && text(entry, "operation") == "Apply"
            && text(entry, "subresource").is_empty()
    };
    let (ours, others): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(|entry| is_ours(entry));
    let [own] = ours.as_slice() else { return None };
    if text(own, "apiVersion") != api_version || text(own, "fieldsType") != "FieldsV1" {
        return None;
    }
    let fields = own.get("fieldsV1")?.as_object()?;
    let others: Vec<&Fields> = others.iter().filter_map(|entry| entry.get("fieldsV1")?.as_object()).collect();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let compared = Compared { built_in: BUILT_IN.contains(&group) };

    let mut named = 0;
    for (field, wanted) in wanted.as_object()? {
        let element = format!("f:{field}");
        match field.as_str() {
            "apiVersion" | "kind" => {}
            // Whether it is ours to write depends on the kind.
            "status" => return None,
            "metadata" => {
                let mut wanted = metadata.clone();
                wanted.remove("name");
                wanted.remove("namespace");
                // The others are the API server's, or have rules of their own.
                if wanted.keys().any(|field| field != "labels" && field != "annotations") {
                    return None;
                }
                if !wanted.is_empty() {
                    named += 1;
                    let fields = fields.get(&element)?.as_object()?;
                    let others = below(&others, &element);
                    if !compared.map(&wanted, live_metadata, fields, &others, false)? {
                        return None;
                    }
                }
            }
            _ => {
                named += 1;
                let (fields, others) = (fields.get(&element)?.as_object()?, below(&others, &element));
                if !compared.value(field, wanted, live.get(field)?, fields, &others)? {
                    return None;
                }
            }
        }
    }
    Some(fields.len() == named)
}

/// What the sets of fields have below an element.
fn below<'a>(sets: &[&'a Fields], element: &str) -> Vec<&'a Fields> {
    sets.iter().filter_map(|fields| fields.get(element)?.as_object()).collect()
}

/// What names an item of a list.
enum Element {
    /// The values of its keys.
    Keys(Fields),
    /// Its value.
    Value(Value),
}

struct Compared {
    /// The kind is the API server's own.
    built_in: bool,
}

impl Compared {
    /// Whether the fields are those of the value, and the live value has what the value says.
    fn value(&self, name: &str, wanted: &Value, live: &Value, fields: &Fields, others: &[&Fields]) -> Option<bool> {
        // Nobody wants a part of what is wanted as a whole.
        let is_whole = fields.is_empty() && others.iter().all(|fields| fields.is_empty());
        Some(match wanted {
            Value::Null => false,
            Value::Object(map) if map.is_empty() => fields.is_empty() && wanted == live,
            Value::Object(_) if fields.is_empty() => {
                self.built_in && ATOMIC_MAPS.contains(&name) && is_whole && wanted == live
            }
            Value::Object(map) => return self.map(map, live.as_object()?, fields, others, false),
            Value::Array(_) if fields.is_empty() => is_whole && wanted == live,
            Value::Array(items) => return self.items(items, live.as_array()?, fields, others),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => fields.is_empty() && wanted == live,
        })
    }

    /// The same of a map whose fields have managers of their own. Items of lists are wanted themselves, too.
    fn map(&self, wanted: &Fields, live: &Fields, fields: &Fields, others: &[&Fields], is_item: bool) -> Option<bool> {
        if fields.contains_key(".") != is_item || fields.len() != wanted.len() + usize::from(is_item) {
            return None;
        }
        for (field, wanted) in wanted {
            let element = format!("f:{field}");
            let fields = fields.get(&element)?.as_object()?;
            if !self.value(field, wanted, live.get(field)?, fields, &below(others, &element))? {
                return None;
            }
        }
        Some(true)
    }

    /// The same of a list whose items have managers of their own: all are ours, in our order.
    fn items(&self, wanted: &[Value], live: &[Value], fields: &Fields, others: &[&Fields]) -> Option<bool> {
        if wanted.len() != live.len() || wanted.len() != fields.len() || wanted.len() > ITEMS_MAX {
            return None;
        }
        let mut elements = Vec::new();
        for (text, fields) in fields {
            let (sort, rest) = text.split_once(':')?;
            let element = match (sort, serde_json::from_str(rest).ok()?) {
                ("k", Value::Object(keys)) if !keys.is_empty() => Element::Keys(keys),
                ("v", value) => Element::Value(value),
                _ => return None,
            };
            elements.push((element, text, fields.as_object()?));
        }
        for (wanted, live) in wanted.iter().zip(live) {
            let at = elements.iter().position(|(element, ..)| element.names(wanted, live))?;
            let (element, text, fields) = elements.swap_remove(at);
            let is_same = match element {
                Element::Keys(_) => {
                    self.map(wanted.as_object()?, live.as_object()?, fields, &below(others, text), true)?
                }
                Element::Value(_) => fields.is_empty(),
            };
            if !is_same {
                return None;
            }
        }
        Some(true)
    }
}

impl Element {
    /// Whether it names this item, as it is sent and as it is.
    fn names(&self, wanted: &Value, live: &Value) -> bool {
        match self {
            // The one key that has a default, and that is left out more often than not.
            Self::Keys(keys) => keys.iter().all(|(key, value)| {
                live.get(key) == Some(value)
                    && match wanted.get(key) {
                        Some(written) => written == value,
                        None => key == "protocol" && value == "TCP",
                    }
            }),
            Self::Value(value) => wanted == value && live == value,
        }
    }
}
