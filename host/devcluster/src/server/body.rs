//! Request bodies: JSON or YAML, with the fields that occur twice.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{
    json::{DEPTH_MAX, is_deeper},
    status::ApiError,
};

/// A decoded body.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) value: Value,
    /// Paths of fields that occur more than once; the last one counts.
    pub(super) duplicates: Vec<String>,
}

/// Reads JSON; YAML when it is not JSON.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, ApiError> {
    let (parsed, mut duplicates) = parse(bytes, false);
    if !duplicates.is_empty() {
        // Rare, so that only then the paths are worth their cost.
        duplicates = parse(bytes, true).1;
    }
    let looks_like_json = bytes.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'['));
    match parsed {
        Ok(value) => Ok(Decoded { value, duplicates }),
        Err(error) if looks_like_json => {
            Err(ApiError::bad_request(format!("the object provided is unrecognized: {error}")))
        }
        Err(_) => {
            let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
            let value = serde_saphyr::from_str::<Value>(text)
                .map_err(|error| ApiError::bad_request(format!("error converting YAML to JSON: {error}")))?;
            let value = crate::json::whole_numbers(value);
            if is_deeper(&value, DEPTH_MAX) {
                return Err(ApiError::bad_request(format!("the body is nested deeper than {DEPTH_MAX} levels")));
            }
            Ok(Decoded { value, duplicates: Vec::new() })
        }
    }
}

/// The value and its duplicate fields; without `track` only their number is right.
fn parse(bytes: &[u8], track: bool) -> (Result<Value, serde_json::Error>, Vec<String>) {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = Seed { track, path: String::new(), duplicates: &mut duplicates }.deserialize(&mut reader);
    (parsed.and_then(|value| reader.end().map(|()| value)), duplicates)
}

struct Seed<'a> {
    track: bool,
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(crate::json::number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = if self.track { format!("{}[{}]", self.path, list.len()) } else { String::new() };
            match items.next_element_seed(Seed { track: self.track, path, duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = match (self.track, self.path.is_empty()) {
                (false, _) => String::new(),
                (true, true) => key.clone(),
                (true, false) => format!("{}.{key}", self.path),
            };
            let seed = Seed { track: self.track, path: path.clone(), duplicates: self.duplicates };
            let value = fields.next_value_seed(seed)?;
            if map.insert(key, value).is_some() {
                self.duplicates.push(path);
            }
        }
        Ok(Value::Object(map))
    }
}
