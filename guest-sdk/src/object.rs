//! Small help with Kubernetes objects as JSON.

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::{Error, Result};

/// The label that says which application an object belongs to. Objects that hooks make do not get it by themselves;
/// [`crate::Context::label`] sets it.
pub const INSTANCE_LABEL: &str = "packages.deckhouse.io/instance";

/// Sets a label of an object; missing `metadata` and `labels` are made.
///
/// # Errors
/// `ObjectInvalid` if the object, its metadata or its labels are no JSON object.
///
/// ```
/// use barbless_sdk::{object, prelude::*};
///
/// let mut secret = json!({"kind": "Secret"});
/// object::set_label(&mut secret, "app", "blog")?;
/// assert_eq!(secret["metadata"]["labels"]["app"], "blog");
/// # Ok::<(), Error>(())
/// ```
pub fn set_label(object: &mut Value, label: &str, value: &str) -> Result<()> {
    let labels = entry(entry(object, "metadata")?, "labels")?;
    let labels = as_map(labels, "metadata.labels")?;
    labels.insert(label.to_owned(), Value::String(value.to_owned()));
    Ok(())
}

/// Text as the `data` of a Secret has it.
///
/// ```
/// assert_eq!(barbless_sdk::object::base64_encode("geheim"), "Z2VoZWlt");
/// ```
pub fn base64_encode(text: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Text from the `data` of a Secret.
///
/// # Errors
/// `Base64Invalid` if it is no base64, or no UTF-8 inside. The error does not contain the text.
///
/// ```
/// assert_eq!(barbless_sdk::object::base64_decode("Z2VoZWlt").as_deref(), Ok("geheim"));
/// ```
pub fn base64_decode(encoded: &str) -> Result<String> {
    let invalid = |what: &str| Error::new("Base64Invalid", format!("the data of the Secret is no {what}"));
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|_| invalid("base64"))?;
    String::from_utf8(bytes).map_err(|_| invalid("UTF-8"))
}

fn entry<'a>(object: &'a mut Value, key: &str) -> Result<&'a mut Value> {
    Ok(as_map(object, key)?.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

fn as_map<'a>(value: &'a mut Value, what: &str) -> Result<&'a mut Map<String, Value>> {
    value.as_object_mut().ok_or_else(|| Error::new("ObjectInvalid", format!("`{what}` cannot be set: no JSON object")))
}
