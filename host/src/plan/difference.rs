//! Two versions of a document, line by line, as YAML.
//!
//! What the API server and its clients write about an object, and nobody asked for, is left out. A document that is too
//! large to be compared line by line is told as changed, with its sizes; what is too long to be read is cut, and the cut
//! is told.

use serde::Serialize;
use serde_json::{Map, Value};
use similar::TextDiff;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Lines of one difference; what is longer is nothing that a person reads.
const LINES_MAX: usize = 400;
/// Lines of one document that are compared: the time grows with the product of both.
const COMPARED_LINES_MAX: usize = 20_000;
/// Bytes of one document that are compared.
const COMPARED_BYTES_MAX: usize = 1024 * 1024;
/// Characters of one line.
const LINE_CHARACTERS_MAX: usize = 500;
/// Lines of all differences of one plan.
const ALL_LINES_MAX: usize = 50_000;

/// Metadata that only the API server writes.
const METADATA_OF_SERVER: [&str; 8] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
];
/// Annotations that controllers and clients write for themselves.
const ANNOTATIONS_OF_OTHERS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// A difference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Lines that begin with `+`, `-`, a space or `@@`.
    pub lines: Vec<String>,
    /// Lines that are left out at the end.
    #[serde(skip_serializing_if = "is_zero")]
    pub lines_cut: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Difference {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lines_cut == 0
    }
}

/// How many lines the differences of a plan may still have.
#[derive(Debug)]
pub(crate) struct Budget {
    lines: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { lines: ALL_LINES_MAX }
    }
}

/// An object without its status and without what only tells how it is stored.
#[must_use]
pub(crate) fn without_traces(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(map) = object.as_object_mut() else { return object };
    map.remove("status");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        for field in METADATA_OF_SERVER {
            metadata.remove(field);
        }
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            for name in ANNOTATIONS_OF_OTHERS {
                annotations.remove(name);
            }
        }
        // An object that never had any is the same as one whose last was taken away.
        for field in ["annotations", "labels"] {
            if metadata.get(field).and_then(Value::as_object).is_some_and(Map::is_empty) {
                metadata.remove(field);
            }
        }
    }
    object
}

/// The difference of two documents; one that is not there has no lines.
#[must_use]
pub(crate) fn of(before: Option<&Value>, after: Option<&Value>, budget: &mut Budget) -> Difference {
    if before == after {
        return Difference::default();
    }
    let text = |document: Option<&Value>| document.map(yaml).unwrap_or_default();
    let (old, new) = (text(before), text(after));
    let too_large = |text: &str| {
        text.len() > COMPARED_BYTES_MAX || text.lines().take(COMPARED_LINES_MAX + 1).count() > COMPARED_LINES_MAX
    };
    let lines: Vec<String> = if too_large(&old) || too_large(&new) {
        vec![format!("@@ too large to compare: {} bytes before, {} bytes after @@", old.len(), new.len())]
    } else if old.is_empty() {
        new.lines().map(|line| format!("+{line}")).collect()
    } else if new.is_empty() {
        old.lines().map(|line| format!("-{line}")).collect()
    } else {
        let difference = TextDiff::from_lines(&old, &new);
        let mut unified = difference.unified_diff();
        unified
            .context_radius(CONTEXT)
            .iter_hunks()
            .flat_map(|hunk| hunk.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    cut(lines, budget)
}

fn cut(mut lines: Vec<String>, budget: &mut Budget) -> Difference {
    let most = LINES_MAX.min(budget.lines);
    let lines_cut = lines.len().saturating_sub(most);
    lines.truncate(most);
    budget.lines -= lines.len();
    for line in &mut lines {
        if let Some((end, _)) = line.char_indices().nth(LINE_CHARACTERS_MAX) {
            let rest = line.len() - end;
            line.truncate(end);
            line.push_str(&format!("… ({rest} more bytes)"));
        }
    }
    Difference { lines, lines_cut }
}

/// A document as YAML. What cannot be written so is written as JSON, which is YAML too.
fn yaml(document: &Value) -> String {
    serde_saphyr::to_string(document).unwrap_or_else(|_| format!("{document:#}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(before: &Value, after: &Value) -> Vec<String> {
        of(Some(before), Some(after), &mut Budget::default()).lines
    }

    #[test]
    fn a_changed_field_is_shown_with_its_surroundings() {
        let before = json!({"a": 1, "b": {"c": "p", "d": 2}, "e": 3});
        let after = json!({"a": 1, "b": {"c": "q", "d": 2}, "e": 3});
        assert_eq!(
            lines(&before, &after),
            ["@@ -1,5 +1,5 @@", " a: 1", " b:", "-  c: p", "+  c: q", "   d: 2", " e: 3"]
        );
        assert!(of(Some(&before), Some(&before), &mut Budget::default()).is_empty());
    }

    #[test]
    fn what_comes_and_what_goes_is_shown_whole() {
        let document = json!({"a": 1});
        assert_eq!(of(None, Some(&document), &mut Budget::default()).lines, ["+a: 1"]);
        assert_eq!(of(Some(&document), None, &mut Budget::default()).lines, ["-a: 1"]);
    }

    #[test]
    fn traces_of_the_server_are_no_difference() {
        let stored = json!({
            "kind": "ConfigMap", "status": {"x": 1}, "data": {"a": "1"},
            "metadata": {
                "name": "a", "uid": "1", "resourceVersion": "7", "generation": 3, "creationTimestamp": "now",
                "managedFields": [{}], "labels": {},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
        });
        assert_eq!(
            without_traces(&stored),
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}})
        );
    }

    #[test]
    fn long_differences_are_cut_and_the_cut_is_told() {
        let many: Vec<Value> = (0..LINES_MAX + 10).map(Value::from).collect();
        let mut budget = Budget::default();
        let difference = of(None, Some(&Value::Array(many.clone())), &mut budget);
        assert_eq!((difference.lines.len(), difference.lines_cut), (LINES_MAX, 10));
        let mut budget = Budget { lines: 3 };
        let difference = of(None, Some(&Value::Array(many)), &mut budget);
        assert_eq!((difference.lines.len(), difference.lines_cut, budget.lines), (3, LINES_MAX + 7, 0));
        let long = of(None, Some(&json!({"a": "é".repeat(1000)})), &mut Budget::default());
        assert!(long.lines.iter().all(|line| line.chars().count() < LINE_CHARACTERS_MAX + 40), "{long:?}");
    }

    #[test]
    fn documents_that_are_too_large_are_not_compared() {
        let large = |last: i32| Value::Array((0..=COMPARED_LINES_MAX as i32).chain([last]).map(Value::from).collect());
        let difference = of(Some(&large(1)), Some(&large(2)), &mut Budget::default());
        assert_eq!(difference.lines.len(), 1);
        assert!(difference.lines[0].starts_with("@@ too large to compare"), "{difference:?}");
    }
}
