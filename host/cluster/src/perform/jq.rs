//! jq patches: the program of a hook makes another object of the live one.
//!
//! This crate knows no evaluator; whoever calls brings one, and it bounds time and memory. What came out is bounded here
//! like the result of any other patch, and goes through the same checks.

use futures::future::BoxFuture;
use serde_json::Value;

use super::patch::{Unfit, check_depth, check_size, unfit};

/// Evaluates jq programs of packages.
///
/// # Guarantees
/// An implementation bounds time, memory and the size of what it gives back, and lets a program see nothing but its
/// input: the programs are untrusted.
pub trait Jq: Send + Sync {
    /// All outputs of a program for one object.
    fn evaluate<'a>(&'a self, program: &'a str, object: &'a Value) -> BoxFuture<'a, Result<Vec<Value>, JqFailure>>;
}

/// Why a jq program gives no outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JqFailure {
    /// Stable reason in PascalCase.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
}

/// What the program makes of an object.
///
/// It does not see `metadata.managedFields`, which are the API server's. An object that comes out as it went in, but for
/// the spelling of numbers, is the same object.
pub(super) async fn patch(jq: &dyn Jq, program: &str, object: &Value) -> Result<Value, Unfit> {
    let mut input = object.clone();
    let fields = input.get_mut("metadata").and_then(Value::as_object_mut).and_then(|it| it.remove("managedFields"));
    let mut outputs = jq.evaluate(program, &input).await.map_err(|failure| unfit(failure.reason, failure.message))?;
    let count = outputs.len();
    let (Some(mut patched), None) = (outputs.pop(), outputs.pop()) else {
        return Err(unfit("BadPatch", format_args!("the jq program gives {count} outputs; a patch needs just one")));
    };
    if !patched.is_object() {
        return Err(unfit("BadPatch", "what the jq program gives is no object"));
    }
    check_depth(&patched)?;
    check_size(&patched)?;
    if same(&input, &patched) {
        return Ok(object.clone());
    }
    if let (Some(fields), Some(metadata)) = (fields, patched.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("managedFields".to_owned(), fields);
    }
    Ok(patched)
}

/// Whether two documents say the same; `1` and `1.0` do. `new` is not deep, so a recursion is safe.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len() && old.iter().all(|(key, old)| new.get(key).is_some_and(|new| same(old, new)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        }
        // Two integers are compared as they are: as floating point, large ones would seem equal.
        (Value::Number(old_number), Value::Number(new_number)) if old_number.is_f64() || new_number.is_f64() => {
            old_number.as_f64() == new_number.as_f64()
        }
        (old, new) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Gives what it was made with, whatever the program.
    struct Gives(Vec<Value>);

    impl Jq for Gives {
        fn evaluate<'a>(&'a self, _: &'a str, object: &'a Value) -> BoxFuture<'a, Result<Vec<Value>, JqFailure>> {
            assert_eq!(object.pointer("/metadata/managedFields"), None, "a program does not see them");
            Box::pin(async move { Ok(self.0.clone()) })
        }
    }

    async fn reason(outputs: Vec<Value>) -> &'static str {
        let object = json!({"metadata": {"name": "c", "managedFields": [{"manager": "m"}]}, "n": 1.0});
        match patch(&Gives(outputs), ".", &object).await {
            Ok(patched) if patched == object => "same",
            Ok(patched) => {
                assert_eq!(patched.pointer("/metadata/managedFields/0/manager"), Some(&json!("m")));
                "changed"
            }
            Err(unfit) => unfit.reason,
        }
    }

    #[tokio::test]
    async fn one_object_of_bounded_size_is_taken() {
        let deep = (0..200).fold(json!(1), |inner, _| json!({"a": inner}));
        let large = json!({"metadata": {}, "text": "x".repeat(4 << 20)});
        let cases = [
            (vec![json!({"metadata": {"name": "c"}, "n": 1})], "same"),
            (vec![json!({"metadata": {"name": "c"}, "n": 2})], "changed"),
            (vec![json!({"metadata": {"name": "c"}})], "changed"),
            (vec![], "BadPatch"),
            (vec![json!({}), json!({})], "BadPatch"),
            (vec![json!([1])], "BadPatch"),
            (vec![json!(null)], "BadPatch"),
            (vec![deep], "PatchTooLarge"),
            (vec![large], "PatchTooLarge"),
        ];
        for (index, (outputs, expected)) in cases.into_iter().enumerate() {
            assert_eq!(reason(outputs).await, expected, "case {index}");
        }
    }

    #[test]
    fn large_integers_that_differ_are_not_the_same() {
        assert!(!same(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
        assert!(same(&json!({"a": [1.0, 2]}), &json!({"a": [1, 2]})));
        assert!(!same(&json!({"a": 1}), &json!({"b": 1})));
    }
}
