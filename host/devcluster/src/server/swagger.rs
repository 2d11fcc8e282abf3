//! `/openapi/v2`, which Go clients ask for before they check the items of a `List` themselves.
//!
//! The document has no definitions. A client does not check kinds that it has no definition of, and the server checks
//! every object in any case, by the same schemas that `/openapi/v3` tells.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;

const TITLE: &str = "Kubernetes";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document in protobuf, if the client asks for that first, or as JSON.
pub(super) fn document(headers: &HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.split(',').next().is_some_and(|first| first.contains("proto-openapi.spec.v2")) {
        return (StatusCode::OK, [(header::CONTENT_TYPE, PROTOBUF)], encoded()).into_response();
    }
    let document = json!({
        "swagger": "2.0", "info": {"title": TITLE, "version": super::GIT_VERSION}, "paths": {}, "definitions": {},
    });
    super::json_response(StatusCode::OK, document.to_string().into())
}

/// Message `openapi.v2.Document`: 1 is `swagger`, 2 is `info` with 1 `title` and 2 `version`, 8 is `paths`.
fn encoded() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, super::GIT_VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}

/// A field of bytes. All of them are short: their length is one byte.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX).min(0x7f);
    [&[number << 3 | 2, length], bytes.get(..usize::from(length)).unwrap_or(bytes)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_what_a_go_client_decodes() {
        let mut expected = b"\x0a\x032.0\x12".to_vec();
        let version = super::super::GIT_VERSION;
        expected.push(u8::try_from(14 + version.len()).unwrap());
        expected.extend(b"\x0a\x0aKubernetes\x12");
        expected.push(u8::try_from(version.len()).unwrap());
        expected.extend(version.as_bytes());
        expected.extend(b"\x42\x00");
        assert_eq!(encoded(), expected);
    }
}
