//! Reading fields of an object that nobody has checked.
//!
//! Absent and `null` are the same, as they are for a Kubernetes client. A field of another type than the API documents
//! is [`Malformed`], which every caller turns into a verdict: nothing is guessed from it. Only the fields that a check
//! reads are looked at; this is not a validation of the object.

use serde_json::{Map, Value};

/// `"true"` on an object takes it out of [`aggregate`](crate::aggregate).
pub const IGNORE_HEALTHCHECK_ANNOTATION: &str = "argocd.argoproj.io/ignore-healthcheck";
/// Marks an object as a hook of a synchronisation, which is not part of the application.
pub const HOOK_ANNOTATION: &str = "argocd.argoproj.io/hook";

const HELM_HOOK_ANNOTATION: &str = "helm.sh/hook";

/// A field has another type than the API documents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {found}, expected {expected}")]
pub(crate) struct Malformed {
    path: String,
    expected: &'static str,
    found: &'static str,
}

/// What a check reads may be malformed.
pub(crate) type Reading<T> = Result<T, Malformed>;

/// An object, or an object within an object, whose fields are named by dotted paths (`status.readyReplicas`).
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    value: &'a Value,
    /// The path of the list that this is an item of, for complaints; none for the whole object.
    list: Option<&'static str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(object: &'a Value) -> Self {
        Self { value: object, list: None }
    }

    /// A whole number. A float without a fraction counts, as it does for a Kubernetes client.
    pub(crate) fn integer(&self, path: &str) -> Reading<Option<i64>> {
        let Some(value) = self.find(path)? else { return Ok(None) };
        match whole(value) {
            Some(number) => Ok(Some(number)),
            None => Err(self.malformed(path, "a whole number", value)),
        }
    }

    /// A whole number, 0 if absent: what a Kubernetes client sees for a number that is not a pointer.
    pub(crate) fn count(&self, path: &str) -> Reading<i64> {
        Ok(self.integer(path)?.unwrap_or(0))
    }

    /// A text, empty if absent.
    pub(crate) fn text(&self, path: &str) -> Reading<&'a str> {
        match self.find(path)? {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.malformed(path, "a text", other)),
        }
    }

    /// A truth value, false if absent.
    pub(crate) fn flag(&self, path: &str) -> Reading<bool> {
        match self.find(path)? {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.malformed(path, "true or false", other)),
        }
    }

    /// Whether there is an object at this path, be it empty.
    pub(crate) fn has_object(&self, path: &str) -> Reading<bool> {
        match self.find(path)? {
            None => Ok(false),
            Some(Value::Object(_)) => Ok(true),
            Some(other) => Err(self.malformed(path, "an object", other)),
        }
    }

    /// Whether the list at this path has entries.
    pub(crate) fn has_entries(&self, path: &str) -> Reading<bool> {
        match self.find(path)? {
            None => Ok(false),
            Some(Value::Array(items)) => Ok(!items.is_empty()),
            Some(other) => Err(self.malformed(path, "a list", other)),
        }
    }

    /// The objects of a list, none if absent.
    pub(crate) fn items(&self, path: &'static str) -> Reading<Vec<Self>> {
        let items = match self.find(path)? {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.malformed(path, "a list", other)),
        };
        // A typed client reads `null` in a list as the empty value of its type.
        const EMPTY: &Value = &Value::Null;
        items
            .iter()
            .map(|item| match item {
                Value::Object(_) => Ok(Self { value: item, list: Some(path) }),
                Value::Null => Ok(Self { value: EMPTY, list: Some(path) }),
                other => Err(self.malformed(path, "a list of objects", other)),
            })
            .collect()
    }

    /// The conditions at `path`, in the order of the list.
    pub(crate) fn conditions(&self, path: &'static str) -> Reading<Vec<Condition<'a>>> {
        self.items(path)?
            .into_iter()
            .map(|item| {
                Ok(Condition {
                    kind: item.text("type")?,
                    status: item.text("status")?,
                    reason: item.text("reason")?,
                    message: item.text("message")?,
                })
            })
            .collect()
    }

    /// The value at the path; an error if the path leads through something that has no fields.
    fn find(&self, path: &str) -> Reading<Option<&'a Value>> {
        let mut value = self.value;
        let mut seen = 0;
        for name in path.split('.') {
            let fields = match value {
                Value::Null => return Ok(None),
                Value::Object(fields) => fields,
                other => {
                    let way = path.get(..seen).unwrap_or_default().trim_end_matches('.');
                    return Err(self.malformed(way, "an object", other));
                }
            };
            match fields.get(name) {
                None => return Ok(None),
                Some(field) => value = field,
            }
            seen += name.len() + 1;
        }
        Ok(Some(value).filter(|value| !value.is_null()))
    }

    fn malformed(&self, path: &str, expected: &'static str, found: &Value) -> Malformed {
        let path = match (self.list, path) {
            (None, "") => "the object".to_owned(),
            (None, path) => path.to_owned(),
            (Some(list), "") => format!("{list}[]"),
            (Some(list), path) => format!("{list}[].{path}"),
        };
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        Malformed { path, expected, found }
    }
}

/// One entry of a list of conditions. What is absent is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl Condition<'_> {
    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The first condition of a type.
pub(crate) fn first<'c, 'a>(conditions: &'c [Condition<'a>], kind: &str) -> Option<&'c Condition<'a>> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// What an object says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    /// Empty for the core group.
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

impl<'a> Kind<'a> {
    /// None if the object does not say what it is.
    pub(crate) fn of(object: &'a Value) -> Option<Self> {
        let kind = object.get("kind")?.as_str().filter(|kind| !kind.is_empty())?;
        let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Some(Self { group, version, kind })
    }
}

/// The annotation of that name, if it is a text.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    metadata(object)?.get("annotations")?.get(name)?.as_str()
}

/// A text of the metadata, empty if it is absent or not a text.
pub(crate) fn metadata_text<'a>(object: &'a Value, name: &str) -> &'a str {
    metadata(object).and_then(|metadata| metadata.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Whether somebody has asked for the deletion of this object and it still has finalizers or a grace period.
pub(crate) fn is_being_deleted(object: &Value) -> bool {
    !metadata_text(object, "deletionTimestamp").is_empty()
}

/// Whether the object has that finalizer.
pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    metadata(object)
        .and_then(|metadata| metadata.get("finalizers"))
        .and_then(Value::as_array)
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == name))
}

/// Whether Argo CD runs this object as a hook: by its own annotation, or, without that one, by Helm's. An object that is
/// only told to be skipped is not a hook, and Helm 2's `crd-install` is an ordinary object.
pub(crate) fn is_hook(object: &Value) -> bool {
    if let Some(value) = annotation(object, HOOK_ANNOTATION) {
        let known = |word: &&str| ["PreSync", "Sync", "PostSync", "Skip", "SyncFail"].contains(word);
        let mut words = value.split(',').map(str::trim).filter(known).peekable();
        return words.peek().is_none() || words.any(|word| word != "Skip");
    }
    annotation(object, HELM_HOOK_ANNOTATION).is_some_and(|value| value != "crd-install")
}

fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

fn whole(value: &Value) -> Option<i64> {
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        // Both bounds are exact as floats, and every whole float between them fits.
        let fits = float.fract() == 0.0 && (-9_007_199_254_740_992.0..=9_007_199_254_740_992.0).contains(&float);
        fits.then_some(float as i64)
    })
}

#[cfg(test)]
mod tests;
