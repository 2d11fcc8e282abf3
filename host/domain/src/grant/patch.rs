//! Patch bodies, before any object is known: shape and size.

use serde_json::Value;

use super::{Decision, deny};
use crate::limits;
use crate::operation::{Action, Operation};

/// What stands in an object and is never a hook's to write.
const FIXED: [&str; 10] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/generateName",
    "/metadata/managedFields",
    "/metadata/selfLink",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
];

/// Is the body of a patch one that can be carried out with bounded work? Operations without a patch pass.
#[must_use]
pub fn check_patch(operation: &Operation) -> Decision {
    let problem = match &operation.action {
        Action::MergePatch { patch } => merge_problem(patch),
        Action::JsonPatch { patch } => json_problem(patch),
        Action::JqPatch { program } => jq_problem(program),
        Action::Create { .. }
        | Action::CreateIfNotExists { .. }
        | Action::CreateOrUpdate { .. }
        | Action::Apply { .. }
        | Action::Delete { .. } => None,
    };
    match problem {
        None => Decision::Allow,
        Some((why, hint)) => deny("BadPatch", operation, why, hint),
    }
}

type Problem = (String, &'static str);

fn merge_problem(patch: &Value) -> Option<Problem> {
    if !patch.is_object() {
        return Some(("a merge patch must be an object".to_owned(), "give the fields to change"));
    }
    // Directives of strategic merge patches mean nothing here and would end up as fields.
    let mut waiting = vec![patch];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(map) => {
                if let Some(key) = map.keys().find(|key| is_directive(key)) {
                    return Some((
                        format!("'{key}' is a directive of strategic merge patches"),
                        "use a JSON patch or an apply",
                    ));
                }
                waiting.extend(map.values().filter(|value| value.is_object() || value.is_array()));
            }
            Value::Array(list) => waiting.extend(list.iter().filter(|value| value.is_object() || value.is_array())),
            _ => {}
        }
    }
    None
}

fn is_directive(key: &str) -> bool {
    matches!(key, "$patch" | "$retainKeys")
        || key.starts_with("$setElementOrder/")
        || key.starts_with("$deleteFromPrimitiveList/")
}

fn json_problem(patch: &Value) -> Option<Problem> {
    let Some(steps) = patch.as_array() else {
        return Some(("a JSON patch must be an array".to_owned(), "see RFC 6902"));
    };
    if steps.len() > limits::JSON_PATCH_STEPS {
        let why = format!("the patch has {} steps; {} are allowed", steps.len(), limits::JSON_PATCH_STEPS);
        return Some((why, "use a merge patch or an apply"));
    }
    let mut copies = 0;
    for (index, step) in steps.iter().enumerate() {
        if let Some(why) = step_problem(step, &mut copies) {
            return Some((format!("step {index}: {why}"), "see RFC 6902"));
        }
    }
    (copies > limits::JSON_PATCH_COPIES).then(|| {
        let why = format!("the patch has {copies} copies and moves; {} are allowed", limits::JSON_PATCH_COPIES);
        (why, "write the values out, or use a merge patch")
    })
}

fn step_problem(step: &Value, copies: &mut usize) -> Option<String> {
    let Some(word) = step.get("op").and_then(Value::as_str) else { return Some("'op' is missing".to_owned()) };
    let (needs_value, needs_from) = match word {
        "add" | "replace" | "test" => (true, false),
        "remove" => (false, false),
        "move" | "copy" => (false, true),
        _ => return Some("'op' is none of add, remove, replace, move, copy, test".to_owned()),
    };
    let path = match pointer(step, "path") {
        Ok(path) => path,
        Err(why) => return Some(why),
    };
    if needs_value && step.get("value").is_none() {
        return Some("'value' is missing".to_owned());
    }
    if word != "test"
        && let Some(fixed) = fixed(path)
    {
        return Some(format!("'{fixed}' cannot be changed"));
    }
    if path.is_empty() && word == "remove" {
        return Some("an object is deleted, not removed by a patch".to_owned());
    }
    if needs_from {
        *copies += 1;
        let from = match pointer(step, "from") {
            Ok(from) => from,
            Err(why) => return Some(why),
        };
        if word == "move" {
            if let Some(fixed) = fixed(from) {
                return Some(format!("'{fixed}' cannot be changed"));
            }
            if path.strip_prefix(from).is_some_and(|below| below.starts_with('/')) {
                return Some("a value cannot be moved into itself".to_owned());
            }
        }
    }
    None
}

/// A JSON pointer (RFC 6901) of a step.
fn pointer<'a>(step: &'a Value, field: &str) -> Result<&'a str, String> {
    let Some(text) = step.get(field).and_then(Value::as_str) else {
        return Err(format!("'{field}' is missing or no text"));
    };
    if text.len() > limits::JSON_PATCH_PATH_BYTES {
        return Err(format!("'{field}' is longer than {} bytes", limits::JSON_PATCH_PATH_BYTES));
    }
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if (text.is_empty() || text.starts_with('/')) && escapes {
        Ok(text)
    } else {
        Err(format!("'{field}' is no JSON pointer"))
    }
}

/// The fixed part of an object at or above this path.
fn fixed(path: &str) -> Option<&'static str> {
    FIXED
        .into_iter()
        .find(|fixed| path.strip_prefix(fixed).is_some_and(|below| below.is_empty() || below.starts_with('/')))
}

fn jq_problem(program: &str) -> Option<Problem> {
    if program.trim().is_empty() {
        return Some(("the jq program is empty".to_owned(), "give a program"));
    }
    (program.len() > limits::JQ_PROGRAM_BYTES).then(|| {
        let why = format!("the jq program has {} bytes; {} are allowed", program.len(), limits::JQ_PROGRAM_BYTES);
        (why, "compute in the hook and send a merge patch")
    })
}
