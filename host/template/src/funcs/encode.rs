//! JSON, YAML, TOML and the base encodings.

mod toml;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Answer, Call, Entry, any, s};
use crate::{
    exec::Fault,
    json::{self, EncodeError, Style},
    limits::Limit,
    value::Value,
    yaml,
};

const COMPACT: Style = Style { escape_html: true, pretty: false };
const PRETTY: Style = Style { escape_html: true, pretty: true };
const RAW: Style = Style { escape_html: false, pretty: false };

pub(super) const FUNCTIONS: &[Entry] = &[
    ("toJson", "a", |call, args| or_empty(call, to_json, any(args, 0))),
    ("mustToJson", "a", |call, args| to_json(call, any(args, 0))),
    ("toPrettyJson", "a", |call, args| or_empty(call, |call, v| encoded(call, json::encode(v, PRETTY)), any(args, 0))),
    ("mustToPrettyJson", "a", |call, args| encoded(call, json::encode(any(args, 0), PRETTY))),
    ("toRawJson", "a", |call, args| encoded(call, json::encode(any(args, 0), RAW))),
    ("mustToRawJson", "a", |call, args| encoded(call, json::encode(any(args, 0), RAW))),
    ("fromJson", "s", |call, args| {
        Ok(match from_json(call, s(args, 0)) {
            Ok(value @ serde_json::Value::Object(_)) => Value::from_json(&value),
            Ok(serde_json::Value::Null) => Value::dict([]),
            Ok(other) => error_map(&cannot_unmarshal(&other, "map[string]interface {}")),
            Err(message) => error_map(&message),
        })
    }),
    ("mustFromJson", "s", |call, args| {
        from_json(call, s(args, 0)).map(|v| Value::from_json(&v)).map_err(Fault::Message)
    }),
    ("fromJsonArray", "s", |call, args| {
        Ok(match from_json(call, s(args, 0)) {
            Ok(value @ serde_json::Value::Array(_)) => Value::from_json(&value),
            Ok(serde_json::Value::Null) => Value::list(Vec::new()),
            Ok(other) => Value::list(vec![Value::str(cannot_unmarshal(&other, "[]interface {}"))]),
            Err(message) => Value::list(vec![Value::str(message)]),
        })
    }),
    ("toYaml", "a", |call, args| or_empty(call, yaml_text, any(args, 0))),
    ("mustToYaml", "a", |call, args| yaml_text(call, any(args, 0))),
    ("toYamlPretty", "a", |call, args| or_empty(call, |call, v| trimmed(call, yaml::pretty(v)), any(args, 0))),
    ("fromYaml", "s", |call, args| {
        Ok(match from_yaml(call, s(args, 0))? {
            Ok(value @ serde_json::Value::Object(_)) => Value::from_json(&value),
            Ok(serde_json::Value::Null) => Value::dict([]),
            Ok(other) => error_map(&format!(
                "error unmarshaling JSON: while decoding JSON: {}",
                cannot_unmarshal(&other, "map[string]interface {}")
            )),
            Err(message) => error_map(&message),
        })
    }),
    ("fromYamlArray", "s", |call, args| {
        Ok(match from_yaml(call, s(args, 0))? {
            Ok(value @ serde_json::Value::Array(_)) => Value::from_json(&value),
            Ok(serde_json::Value::Null) => Value::list(Vec::new()),
            Ok(other) => Value::list(vec![Value::str(format!(
                "error unmarshaling JSON: while decoding JSON: {}",
                cannot_unmarshal(&other, "[]interface {}")
            ))]),
            Err(message) => Value::list(vec![Value::str(message)]),
        })
    }),
    ("toToml", "a", |call, args| toml::to_toml(call, any(args, 0))),
    ("mustToToml", "a", |call, args| toml::to_toml(call, any(args, 0))),
    ("fromToml", "s", |call, args| toml::from_toml(call, s(args, 0))),
    ("b64enc", "s", |call, args| call.text(STANDARD.encode(s(args, 0)))),
    ("b64dec", "s", |call, args| {
        let compact: String = s(args, 0).chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        match STANDARD.decode(&compact) {
            Ok(bytes) => call.text(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => {
                let offset = match error {
                    base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    // A missing end is reported at the group of four that it belongs to.
                    _ => compact.len() / 4 * 4,
                };
                call.text(format!("illegal base64 data at input byte {offset}"))
            }
        }
    }),
    ("b32enc", "s", |call, args| call.text(base32_encode(s(args, 0).as_bytes()))),
    ("b32dec", "s", |call, args| match base32_decode(s(args, 0)) {
        Ok(bytes) => call.text(String::from_utf8_lossy(&bytes).into_owned()),
        Err(at) => call.text(format!("illegal base32 data at input byte {at}")),
    }),
];

fn encoded(call: &mut Call<'_, '_>, text: Result<String, EncodeError>) -> Answer {
    match text {
        Ok(text) => call.text(text),
        Err(EncodeError::Unsupported(message)) => Err(Fault::Message(message)),
        Err(EncodeError::TooLarge) => Err(Limit::StringSize.into()),
    }
}

/// The functions without `must` answer an unsupported value with an empty text. Limits stay errors.
fn or_empty(call: &mut Call<'_, '_>, encode: fn(&mut Call<'_, '_>, &Value) -> Answer, value: &Value) -> Answer {
    match encode(call, value) {
        Err(Fault::Message(_)) => Ok(Value::str("")),
        other => other,
    }
}

fn to_json(call: &mut Call<'_, '_>, value: &Value) -> Answer {
    encoded(call, json::encode(value, COMPACT))
}

fn trimmed(call: &mut Call<'_, '_>, text: Result<String, EncodeError>) -> Answer {
    encoded(call, text.map(|text| text.strip_suffix('\n').map(str::to_string).unwrap_or(text)))
}

/// `toYaml`.
pub(crate) fn yaml_text(call: &mut Call<'_, '_>, value: &Value) -> Answer {
    trimmed(call, yaml::write(value))
}

fn error_map(message: &str) -> Value {
    Value::dict([("Error", Value::str(message))])
}

fn cannot_unmarshal(value: &serde_json::Value, into: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {into}", json::kind(value))
}

fn from_json(call: &mut Call<'_, '_>, text: &str) -> Result<serde_json::Value, String> {
    call.run.allocate(text.len().saturating_mul(8)).map_err(|limit| limit.to_string())?;
    json::decode(text)
}

/// The outer error is a limit, the inner one an answer.
fn from_yaml(call: &mut Call<'_, '_>, text: &str) -> Result<Result<serde_json::Value, String>, Fault> {
    call.run.charge(text.len() as u64 / 64)?;
    call.run.allocate(text.len().saturating_mul(8))?;
    match yaml::read(text, call.run.limits.document_nodes) {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.too_large => Err(Limit::Document.into()),
        Err(error) => Ok(Err(format!("error converting YAML to JSON: {}", error.message))),
    }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let mut group = [0_u8; 5];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = group.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let used = (chunk.len() * 8).div_ceil(5);
        for i in 0..8 {
            if i < used {
                out.push(char::from(BASE32[(bits >> (35 - 5 * i)) as usize & 31]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

fn base32_decode(text: &str) -> Result<Vec<u8>, usize> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let body = compact.trim_end_matches('=');
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for (i, byte) in body.bytes().enumerate() {
        let digit = BASE32.iter().position(|b| *b == byte).ok_or(i)?;
        bits = bits << 5 | digit as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    if compact.len().is_multiple_of(8) { Ok(out) } else { Err(compact.len()) }
}
