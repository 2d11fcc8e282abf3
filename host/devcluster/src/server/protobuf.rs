//! Request bodies in protobuf, which `kubectl create` and Go clients prefer for built-in kinds.
//!
//! A body is decoded to the same JSON document that the client would have sent otherwise. The field numbers come from the
//! API description. Answers are always JSON, which those clients accept too.

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::{json::text, schema, status::ApiError};

const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting that is read; the deepest built-in type that is not recursive has some 15 levels.
const DEPTH_MAX: usize = 64;
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// One field of a message as it is on the wire.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message; `None` at the first malformed one.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, field))
    }

    fn fields(bytes: &'a [u8]) -> Option<Vec<(u64, Field<'a>)>> {
        let mut reader = Self(bytes);
        let mut out = Vec::new();
        while !reader.0.is_empty() {
            out.push(reader.field()?);
        }
        Some(out)
    }
}

/// Decodes a body. The kind that it names must be a built-in one.
pub(super) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let refuse = |why: &str| ApiError::bad_request(format!("the body is not a protobuf object of a known kind: {why}"));
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| refuse("no magic number"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, field) in Reader::fields(envelope).ok_or_else(|| refuse("malformed envelope"))? {
        match (number, field) {
            (1, Field::Bytes(meta)) => {
                for (number, field) in Reader::fields(meta).ok_or_else(|| refuse("malformed type"))? {
                    match (number, field) {
                        (1, Field::Bytes(bytes)) => api_version = String::from_utf8_lossy(bytes).into_owned(),
                        (2, Field::Bytes(bytes)) => kind = String::from_utf8_lossy(bytes).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = type_of(&api_version, &kind).ok_or_else(|| refuse(&format!("{api_version}, Kind={kind}")))?;
    let mut object = message(raw, &name, &name, 0).ok_or_else(|| refuse("malformed message"))?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn type_of(api_version: &str, kind: &str) -> Option<String> {
    if kind == "DeleteOptions" {
        return Some(format!("{META}DeleteOptions"));
    }
    let (group, version) = crate::catalog::split_group_version(api_version);
    let is_it = |raw: &Value| {
        let gvk = crate::json::list(raw, &["x-kubernetes-group-version-kind"]);
        gvk.iter().any(|g| (text(g, &["group"]), text(g, &["version"]), text(g, &["kind"])) == (group, version, kind))
    };
    schema::types().iter().find(|(_, raw)| is_it(raw)).map(|(name, _)| name.clone())
}

/// A message of a type. `numbers` names the struct whose field numbers are used: an inlined struct has its own, but its
/// fields are those of the type around it.
fn message(bytes: &[u8], numbers: &str, type_name: &str, depth: usize) -> Option<Map<String, Value>> {
    if depth > DEPTH_MAX {
        return None;
    }
    let numbers = schema::wire().get(numbers)?;
    let properties = schema::types().get(type_name)?.get("properties")?;
    let mut out = Map::new();
    for (number, field) in Reader::fields(bytes)? {
        let Some(name) = numbers.get(number.to_string()).and_then(Value::as_str) else { continue };
        if let (Some(inlined), Field::Bytes(bytes)) = (name.strip_prefix('='), &field) {
            out.extend(message(bytes, inlined, type_name, depth + 1)?);
            continue;
        }
        let pointer = name.ends_with('*');
        let name = name.trim_end_matches('*');
        let Some(raw) = properties.get(name) else { continue };
        add(&mut out, name, raw, &field, pointer, depth)?;
    }
    Some(out)
}

fn add(
    out: &mut Map<String, Value>,
    name: &str,
    raw: &Value,
    field: &Field<'_>,
    pointer: bool,
    depth: usize,
) -> Option<()> {
    match (text(raw, &["type"]), field) {
        ("array", field) => {
            let item = value(raw.get("items")?, field, depth)?;
            if let Some(list) = out.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                list.push(item);
            }
        }
        ("object", Field::Bytes(bytes)) if raw.get("additionalProperties").is_some_and(Value::is_object) => {
            let of = raw.get("additionalProperties")?;
            let (mut key, mut found) = (String::new(), None);
            for (number, field) in Reader::fields(bytes)? {
                match (number, &field) {
                    (1, Field::Bytes(bytes)) => key = String::from_utf8_lossy(bytes).into_owned(),
                    (2, field) => found = Some(value(of, field, depth)?),
                    _ => {}
                }
            }
            let found = found.unwrap_or_else(|| json!(""));
            if let Some(map) = out.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                map.insert(key, found);
            }
        }
        _ => {
            let found = value(raw, field, depth)?;
            // Go writes every field that is not a pointer; the JSON of the same object leaves zero values out.
            let zero = found.is_null() || found == "" || found == 0 || found == false;
            if !zero || (pointer && !found.is_null()) {
                out.insert(name.to_owned(), found);
            }
        }
    }
    Some(())
}

fn value(raw: &Value, field: &Field<'_>, depth: usize) -> Option<Value> {
    if let Some(target) = raw.get("$ref").and_then(Value::as_str) {
        let Field::Bytes(bytes) = field else { return None };
        let name = target.rsplit('/').next()?;
        return named(name, bytes, depth);
    }
    match (text(raw, &["type"]), field) {
        ("string", Field::Bytes(bytes)) if text(raw, &["format"]) == "byte" => {
            Some(json!(base64::engine::general_purpose::STANDARD.encode(bytes)))
        }
        ("string", Field::Bytes(bytes)) => Some(json!(std::str::from_utf8(bytes).ok()?)),
        ("integer", Field::Number(number)) => Some(json!(number.cast_signed())),
        ("boolean", Field::Number(number)) => Some(json!(*number != 0)),
        ("number", Field::Bytes(bytes)) => Some(json!(f64::from_le_bytes((*bytes).try_into().ok()?))),
        // Anything else has no form on the wire that JSON could show.
        (_, Field::Bytes(_)) => Some(Value::Null),
        _ => None,
    }
}

/// A message of a named type; some types have a JSON form of their own.
fn named(name: &str, bytes: &[u8], depth: usize) -> Option<Value> {
    let number = |wanted: u64| -> Option<Option<i64>> {
        let fields = Reader::fields(bytes)?;
        Some(fields.into_iter().find_map(|(n, field)| match field {
            Field::Number(value) if n == wanted => Some(value.cast_signed()),
            _ => None,
        }))
    };
    let part = |wanted: u64| -> Option<Option<&[u8]>> {
        let fields = Reader::fields(bytes)?;
        Some(fields.into_iter().find_map(|(n, field)| match field {
            Field::Bytes(value) if n == wanted => Some(value),
            _ => None,
        }))
    };
    match name.rsplit('.').next()? {
        kind @ ("Time" | "MicroTime") => {
            let (seconds, nanos) = (number(1)?, number(2)?.unwrap_or_default());
            let Some(seconds) = seconds else { return Some(Value::Null) };
            let time = jiff::Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()?;
            let form = if kind == "Time" { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            Some(json!(time.strftime(form).to_string()))
        }
        "Quantity" => Some(json!(std::str::from_utf8(part(1)?.unwrap_or_default()).ok()?)),
        "IntOrString" if number(1)?.unwrap_or_default() == 0 => Some(json!(number(2)?.unwrap_or_default())),
        "IntOrString" => Some(json!(std::str::from_utf8(part(3)?.unwrap_or_default()).ok()?)),
        "RawExtension" | "FieldsV1" | "JSON" => serde_json::from_slice(part(1)?.unwrap_or_default()).ok(),
        _ => message(bytes, name, name, depth + 1).map(Value::Object),
    }
}

#[cfg(test)]
mod tests;
