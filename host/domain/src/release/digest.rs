//! Digest of a set of manifests.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Digest of a set of manifests, `sha256:…`. The order does not matter, and neither does that of keys.
#[must_use]
pub fn digest<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let mut texts: Vec<String> = objects
        .into_iter()
        .map(|object| {
            let mut text = String::new();
            canonical(object, &mut text);
            text
        })
        .collect();
    texts.sort_unstable();
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.as_bytes());
        hasher.update(b"\n");
    }
    let mut digest = String::from("sha256:");
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// Writes JSON with sorted keys and no blanks.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}
