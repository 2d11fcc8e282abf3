//! As much of DER and PEM as a certificate needs.

use base64::{Engine as _, engine::general_purpose::STANDARD};

pub(super) const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
pub(super) const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
pub(super) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
pub(super) const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
pub(super) const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
pub(super) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
pub(super) const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
pub(super) const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|b| *b == 0).collect();
        out.push(0x80 | bytes.len() as u8);
        out.extend(bytes);
    }
    out.extend_from_slice(content);
    out
}

pub(super) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &parts.concat())
}

pub(super) fn oid(encoded: &[u8]) -> Vec<u8> {
    element(0x06, encoded)
}

/// A number that is not negative, from its big-endian bytes.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let mut content: Vec<u8> = bytes.iter().copied().skip_while(|b| *b == 0).collect();
    if content.first().is_none_or(|first| first & 0x80 != 0) {
        content.insert(0, 0);
    }
    element(0x02, &content)
}

pub(super) fn boolean(value: bool) -> Vec<u8> {
    element(0x01, &[if value { 0xff } else { 0 }])
}

pub(super) fn octets(bytes: &[u8]) -> Vec<u8> {
    element(0x04, bytes)
}

pub(super) fn bits(unused: u8, bytes: &[u8]) -> Vec<u8> {
    let mut content = vec![unused];
    content.extend_from_slice(bytes);
    element(0x03, &content)
}

pub(super) fn explicit(tag: u8, content: &[u8]) -> Vec<u8> {
    element(0xa0 | tag, content)
}

pub(super) fn implicit(tag: u8, content: &[u8]) -> Vec<u8> {
    element(0x80 | tag, content)
}

pub(super) fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![oid(id)];
    if critical {
        parts.push(boolean(true));
    }
    parts.push(octets(value));
    sequence(&parts)
}

/// A name that consists of a common name.
pub(super) fn name(common: &str) -> Vec<u8> {
    if common.is_empty() {
        return sequence(&[]);
    }
    let attribute = sequence(&[oid(COMMON_NAME), element(0x0c, common.as_bytes())]);
    sequence(&[element(0x31, &attribute)])
}

/// A time out of `YYYYMMDDhhmmssZ`: two digits of the year until 2049, four from then on.
pub(super) fn time(stamp: &str) -> Vec<u8> {
    match stamp.get(..4).and_then(|year| year.parse::<u32>().ok()) {
        Some(1950..=2049) => element(0x17, &stamp.as_bytes()[2..]),
        _ => element(0x18, stamp.as_bytes()),
    }
}

pub(super) fn to_pem(label: &str, bytes: &[u8]) -> String {
    let body = STANDARD.encode(bytes);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        out.extend(line.iter().map(|b| char::from(*b)));
        out.push('\n');
    }
    out + &format!("-----END {label}-----\n")
}

pub(super) fn from_pem(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, after) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = after.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(body).ok()
}

/// Tag and content of an element, the whole of it, and what stands behind it.
type Element<'b> = (u8, &'b [u8], &'b [u8], &'b [u8]);

/// Splits off the first element.
fn first(bytes: &[u8]) -> Option<Element<'_>> {
    let (tag, after) = bytes.split_first()?;
    let (first, mut rest) = after.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let count = length & 0x7f;
        let digits = rest.get(..count).filter(|_| count <= 4)?;
        length = digits.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        rest = &rest[count..];
    }
    let content = rest.get(..length)?;
    let rest = &rest[length..];
    Some((*tag, content, &bytes[..bytes.len() - rest.len()], rest))
}

/// The subject of a certificate, encoded.
pub(super) fn subject(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate, ..) = first(certificate)?;
    let (_, body, ..) = first(certificate)?;
    let (tag, _, _, after) = first(body)?;
    let mut rest = if tag == 0xa0 { after } else { body };
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        rest = first(rest)?.3;
    }
    Some(first(rest)?.2.to_vec())
}

/// The secret of an `EC PRIVATE KEY`.
pub(super) fn sec1_secret(bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, content, ..) = first(bytes)?;
    let (_, _, _, rest) = first(content)?;
    let (tag, secret, ..) = first(rest)?;
    (tag == 0x04).then(|| secret.to_vec())
}

/// The secret of a `PRIVATE KEY` on P-256.
pub(super) fn pkcs8_secret(bytes: &[u8]) -> Option<Vec<u8>> {
    let (_, content, ..) = first(bytes)?;
    let (_, _, _, rest) = first(content)?;
    let (_, algorithm, _, rest) = first(rest)?;
    let (_, kind, _, parameters) = first(algorithm)?;
    let (_, curve, ..) = first(parameters)?;
    let (tag, inner, ..) = first(rest)?;
    (tag == 0x04 && kind == EC_PUBLIC_KEY && curve == P256).then(|| sec1_secret(inner)).flatten()
}
