//! Label and field selectors: the text forms of the API, parsed once and matched often.

use serde_json::Value;

use crate::{json, status::ApiError};

/// What a list or watch asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both texts. `allowed` says whether a field may be selected by, `refused` what is said of one that may not.
    pub(crate) fn parse(
        labels: &str,
        fields: &str,
        allowed: impl Fn(&str) -> bool,
        refused: impl Fn(&str) -> String,
    ) -> Result<Self, ApiError> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields, allowed, refused)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        if !self.labels.is_empty() {
            let labels = json::at(object, &["metadata", "labels"]);
            let get = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            if !self.labels.iter().all(|requirement| requirement.matches(get(&requirement.key))) {
                return false;
            }
        }
        self.fields.iter().all(|field| {
            let path = field.path.iter().map(String::as_str).collect::<Vec<_>>();
            let found = match json::at(object, &path) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => absent(&path),
                Some(other) => other.to_string(),
            };
            (found == field.value) == field.equal
        })
    }

    /// The one name that is selected, if the selector says so: a cheap path for single-object watches.
    pub(crate) fn single_name(&self) -> Option<&str> {
        let is_name = |f: &&FieldRequirement| f.equal && f.path == ["metadata", "name"];
        self.fields.iter().find(is_name).map(|f| f.value.as_str())
    }
}

/// Fields whose Go zero value is not the empty text.
fn absent(path: &[&str]) -> String {
    match path {
        ["spec", "unschedulable" | "hostNetwork"] => "false".to_owned(),
        ["status", "successful" | "replicas"] => "0".to_owned(),
        _ => String::new(),
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Greater(bound) => number().is_some_and(|n| n > *bound),
            Operator::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// Whether an object with these labels is selected by a `metav1.LabelSelector`. An empty selector matches all.
pub(crate) fn label_selector_matches(selector: &Value, object: &Value) -> bool {
    let labels = json::at(object, &["metadata", "labels"]);
    let get = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let exact = selector.get("matchLabels").and_then(Value::as_object);
    if !exact.into_iter().flatten().all(|(key, value)| get(key).is_some_and(|found| Some(found) == value.as_str())) {
        return false;
    }
    json::list(selector, &["matchExpressions"]).iter().all(|expression| {
        let found = get(json::text(expression, &["key"]));
        let values = json::list(expression, &["values"]);
        let listed = found.is_some_and(|found| values.iter().any(|value| value.as_str() == Some(found)));
        match json::text(expression, &["operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    })
}

/// The text form of a `metav1.LabelSelector`, as `Scale.status.selector` wants it.
pub(crate) fn label_selector_text(selector: &Value) -> String {
    let mut parts = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in json::list(selector, &["matchExpressions"]) {
        let key = json::text(expression, &["key"]);
        let values = json::list(expression, &["values"]).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        parts.push(match json::text(expression, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.join(",")
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let refuse =
        |part: &str, why: &str| ApiError::bad_request(format!("unable to parse requirement: {why} in {part:?}"));
    let mut requirements = Vec::new();
    for part in split(text).ok_or_else(|| refuse(text, "unbalanced parenthesis"))? {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(refuse(text, "empty requirement"));
        }
        let symbols = part.find(|c: char| !"=<>()".contains(c)).map_or(part, |end| part.get(..end).unwrap_or(part));
        if !symbols.is_empty() {
            let why = format!("found '{symbols}', expected: !, identifier, or 'end of string'");
            return Err(ApiError::bad_request(why));
        }
        let requirement = parse_requirement(part).ok_or_else(|| refuse(part, "invalid requirement"))?;
        if !is_label_key(&requirement.key) {
            return Err(refuse(part, "invalid label key"));
        }
        requirements.push(requirement);
    }
    Ok(requirements)
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    let make = |key: &str, operator: Operator| Some(Requirement { key: key.trim().to_owned(), operator });
    if let Some(key) = part.strip_prefix('!') {
        return make(key, Operator::DoesNotExist);
    }
    if let Some((head, tail)) = part.split_once('(') {
        let values = tail.trim_end().strip_suffix(')')?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>();
        if !values.iter().all(|value| is_label_value(value)) {
            return None;
        }
        let (key, word) = head.trim().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => make(key, Operator::In(values)),
            "notin" => make(key, Operator::NotIn(values)),
            _ => None,
        };
    }
    let single = |value: &str| is_label_value(value.trim()).then(|| vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, Operator::NotIn(single(value)?));
    }
    if let Some((key, value)) = part.split_once("==") {
        return make(key, Operator::In(single(value)?));
    }
    if let Some((key, value)) = part.split_once('=') {
        return make(key, Operator::In(single(value)?));
    }
    if let Some((key, value)) = part.split_once('>') {
        return make(key, Operator::Greater(value.trim().parse().ok()?));
    }
    if let Some((key, value)) = part.split_once('<') {
        return make(key, Operator::Less(value.trim().parse().ok()?));
    }
    make(part, Operator::Exists)
}

/// Splits at commas that are not inside parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text.get(start..index)?);
                start = index + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return None;
        }
    }
    parts.push(text.get(start..)?);
    (depth == 0).then_some(parts)
}

/// `[prefix/]name`, as the API validates label keys.
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => !prefix.is_empty() && prefix.len() <= 253 && is_label_name(name),
        None => is_label_name(key),
    }
}

fn is_label_name(name: &str) -> bool {
    !name.is_empty() && is_label_value(name)
}

/// At most 63 characters of `[A-Za-z0-9_.-]`, alphanumeric at both ends; may be empty.
pub(crate) fn is_label_value(value: &str) -> bool {
    let alphanumeric = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
}

fn parse_fields(
    text: &str,
    allowed: impl Fn(&str) -> bool,
    refused: impl Fn(&str) -> String,
) -> Result<Vec<FieldRequirement>, ApiError> {
    let mut requirements = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value, equal) = if let Some((key, value)) = part.split_once("!=") {
            (key, value, false)
        } else if let Some((key, value)) = part.split_once("==") {
            (key, value, true)
        } else if let Some((key, value)) = part.split_once('=') {
            (key, value, true)
        } else {
            let message = format!("invalid field selector: {part:?}; can't understand it");
            return Err(ApiError::bad_request(message));
        };
        if !allowed(key.trim()) {
            return Err(ApiError::bad_request(refused(key.trim())));
        }
        let path = key.trim().trim_start_matches('.').split('.').map(str::to_owned).collect();
        requirements.push(FieldRequirement { path, value: value.trim().to_owned(), equal });
    }
    Ok(requirements)
}

/// Fields by which objects of a built-in kind may be selected, beyond name and namespace.
pub(crate) fn selectable_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["type"],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("batch", "Job") => &["status.successful"],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &["status.replicas"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
