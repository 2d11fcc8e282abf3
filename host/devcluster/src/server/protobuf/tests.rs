//! Bodies as Go would write them.

use super::*;

fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short");
    assert!(length < 128, "one byte of length");
    [&[number << 3 | 2, length], content].concat()
}

fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw)].concat()
}

#[test]
fn maps_bytes_pointers_and_zero_values_are_decoded() {
    let metadata =
        [bytes(1, b"s"), bytes(3, b""), bytes(8, b""), bytes(11, &[bytes(1, b"app"), bytes(2, b"web")].concat())]
            .concat();
    let secret = [
        bytes(1, &metadata),
        bytes(2, &[bytes(1, b"p"), bytes(2, b"hello")].concat()),
        bytes(3, b"Opaque"),
        number(5, 0),
    ]
    .concat();
    let decoded = decode(&envelope("v1", "Secret", &secret)).unwrap();
    assert_eq!(
        decoded,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"app": "web"}},
        "data": {"p": "aGVsbG8="}, "type": "Opaque", "immutable": false})
    );
}

#[test]
fn inlined_structs_and_numbers_or_text_are_decoded() {
    let volume = [bytes(1, b"v"), bytes(2, &bytes(6, &bytes(1, b"secret-name")))].concat();
    let probe = [
        bytes(1, &bytes(2, &[bytes(1, b"/"), bytes(2, &[number(1, 1), bytes(3, b"http")].concat())].concat())),
        number(2, 5),
    ]
    .concat();
    let container = [bytes(1, b"c"), bytes(2, b"i"), bytes(10, &probe)].concat();
    let pod = bytes(2, &[bytes(1, &volume), bytes(2, &container)].concat());
    let decoded = decode(&envelope("v1", "Pod", &pod)).unwrap();
    assert_eq!(
        decoded["spec"],
        json!({
            "volumes": [{"name": "v", "secret": {"secretName": "secret-name"}}],
            "containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 5}}],
        })
    );
}

#[test]
fn what_is_not_an_object_is_refused() {
    let good = envelope("v1", "ConfigMap", &bytes(1, &bytes(1, b"x")));
    assert!(decode(&good).is_ok());
    for length in 0..good.len() {
        // Cut anywhere it is an error or a smaller object, never a panic.
        let _ = decode(good.get(..length).unwrap());
    }
    for body in [&b""[..], b"{}", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", &envelope("v1", "Nothing", b"")]
    {
        assert_eq!(decode(body).unwrap_err().code, 400);
    }
}

#[test]
fn delete_options_are_decoded() {
    let options = [number(1, 0), bytes(2, &bytes(1, b"uid")), bytes(4, b"Orphan")].concat();
    let decoded = decode(&envelope("v1", "DeleteOptions", &options)).unwrap();
    assert_eq!(
        decoded,
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid"}, "propagationPolicy": "Orphan"})
    );
}
