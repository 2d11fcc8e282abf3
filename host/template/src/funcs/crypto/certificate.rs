//! Certificates: `genCA`, `genSelfSignedCert`, `genSignedCert` and their relatives.
//!
//! Keys are ECDSA on P-256, not RSA as in sprig: they are made from the seed at once, where an RSA key takes seconds, and
//! whoever speaks TLS takes either (docs/decisions/0005). Signatures are deterministic, so the same input gives the same certificate.

mod der;

use std::rc::Rc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use p256::ecdsa::{Signature, SigningKey, signature::Signer as _};
use rand_chacha::rand_core::Rng as _;

use crate::{
    exec::Fault,
    funcs::{Answer, Call, Entry, any, date::utc_stamp, int, s},
    object::Object,
    value::Value,
};

/// Making a key and a signature, in steps: about a millisecond.
const CERTIFICATE_STEPS: u64 = 5_000;

pub(in crate::funcs) const FUNCTIONS: &[Entry] = &[
    ("genPrivateKey", "s", |call, args| match s(args, 0) {
        "ecdsa" => {
            let key = new_key(call)?;
            call.text(key_pem(&key))
        }
        kind @ ("rsa" | "dsa" | "ed25519" | "") => Err(Fault::message(format!(
            "private keys of type {} cannot be made here; use \"ecdsa\"",
            crate::gofmt::quote(kind)
        ))),
        kind => call.text(format!("Unknown type {kind}")),
    }),
    ("genCA", "si", |call, args| {
        let key = new_key(call)?;
        authority(call, args, &key)
    }),
    ("genCAWithKey", "sis", |call, args| {
        let key = read_key(s(args, 2))?;
        authority(call, args, &key)
    }),
    ("genSelfSignedCert", "slli", |call, args| {
        let key = new_key(call)?;
        self_signed(call, args, &key)
    }),
    ("genSelfSignedCertWithKey", "sllis", |call, args| {
        let key = read_key(s(args, 4))?;
        self_signed(call, args, &key)
    }),
    ("genSignedCert", "sllia", |call, args| {
        let key = new_key(call)?;
        signed(call, args, &key)
    }),
    ("genSignedCertWithKey", "sllias", |call, args| {
        let key = read_key(s(args, 5))?;
        signed(call, args, &key)
    }),
    ("buildCustomCert", "ss", |_, args| {
        let decode = |text: &str, what: &str| {
            let bytes = STANDARD.decode(text).map_err(|_| Fault::message(format!("unable to decode base64 {what}")))?;
            Ok::<_, Fault>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (cert, key) = (decode(s(args, 0), "certificate")?, decode(s(args, 1), "private key")?);
        der::from_pem(&cert, "CERTIFICATE").ok_or_else(|| Fault::message("unable to decode certificate"))?;
        if !key.contains("-----BEGIN") {
            return Err(Fault::message("unable to decode private key"));
        }
        Ok(Value::object(Object::Certificate { cert, key }))
    }),
];

fn new_key(call: &mut Call<'_, '_>) -> Result<SigningKey, Fault> {
    call.run.charge(CERTIFICATE_STEPS)?;
    // A number beyond the order of the curve is no key; the odds are one in 2^32.
    for _ in 0..16 {
        let mut secret = [0_u8; 32];
        call.run.rng.fill_bytes(&mut secret);
        if let Ok(key) = SigningKey::from_slice(&secret) {
            return Ok(key);
        }
    }
    Err(Fault::message("no private key came out of the seed"))
}

fn public_point(key: &SigningKey) -> Vec<u8> {
    key.verifying_key().to_sec1_point(false).as_bytes().to_vec()
}

fn key_pem(key: &SigningKey) -> String {
    let body = der::sequence(&[
        der::integer(&[1]),
        der::octets(&key.to_bytes()),
        der::explicit(0, &der::oid(der::P256)),
        der::explicit(1, &der::bits(0, &public_point(key))),
    ]);
    der::to_pem("EC PRIVATE KEY", &body)
}

fn read_key(pem: &str) -> Result<SigningKey, Fault> {
    let unsupported = || Fault::message("the private key is not an ECDSA key on P-256 in PEM");
    let secret = match der::from_pem(pem, "EC PRIVATE KEY") {
        Some(bytes) => der::sec1_secret(&bytes),
        None => der::from_pem(pem, "PRIVATE KEY").and_then(|bytes| der::pkcs8_secret(&bytes)),
    };
    SigningKey::from_slice(&secret.ok_or_else(unsupported)?).map_err(|_| unsupported())
}

struct Request<'a> {
    name: &'a str,
    ips: Vec<Vec<u8>>,
    dns: Vec<Rc<str>>,
    days: i64,
    is_ca: bool,
}

fn authority(call: &mut Call<'_, '_>, args: &[Value], key: &SigningKey) -> Answer {
    let request = Request { name: s(args, 0), ips: Vec::new(), dns: Vec::new(), days: int(args, 1), is_ca: true };
    let subject = der::name(request.name);
    issue(call, &request, key, &subject, key)
}

fn request<'a>(args: &'a [Value]) -> Result<Request<'a>, Fault> {
    let texts = |value: &Value, what: &str| match value {
        Value::List(list) => list
            .items
            .iter()
            .map(|item| match item {
                Value::Str(text) => Ok(text.clone()),
                other => Err(Fault::message(format!("error parsing {what}: {} is not a string", other.type_name()))),
            })
            .collect::<Result<Vec<_>, _>>(),
        _ => Ok(Vec::new()),
    };
    let ips = texts(any(args, 1), "ip")?
        .iter()
        .map(|ip| match ip.parse() {
            Ok(std::net::IpAddr::V4(ip)) => Ok(ip.octets().to_vec()),
            Ok(std::net::IpAddr::V6(ip)) => Ok(ip.octets().to_vec()),
            Err(_) => Err(Fault::message(format!("error parsing ip: {ip}"))),
        })
        .collect::<Result<_, _>>()?;
    let dns = texts(any(args, 2), "alternate dns name")?;
    Ok(Request { name: s(args, 0), ips, dns, days: int(args, 3), is_ca: false })
}

fn self_signed(call: &mut Call<'_, '_>, args: &[Value], key: &SigningKey) -> Answer {
    let request = request(args)?;
    let subject = der::name(request.name);
    issue(call, &request, key, &subject, key)
}

fn signed(call: &mut Call<'_, '_>, args: &[Value], key: &SigningKey) -> Answer {
    let request = request(args)?;
    let Value::Object(object) = any(args, 4) else { return Err(Fault::message("the signer is not a certificate")) };
    let Object::Certificate { cert, key: signer } = &**object else {
        return Err(Fault::message("the signer is not a certificate"));
    };
    let issuer = der::from_pem(cert, "CERTIFICATE").and_then(|bytes| der::subject(&bytes));
    let issuer = issuer.ok_or_else(|| Fault::message("error parsing the certificate of the signer"))?;
    let signer = read_key(signer)?;
    issue(call, &request, key, &issuer, &signer)
}

fn issue(
    call: &mut Call<'_, '_>,
    request: &Request<'_>,
    key: &SigningKey,
    issuer: &[u8],
    signer: &SigningKey,
) -> Answer {
    call.run.charge(CERTIFICATE_STEPS)?;
    let mut serial = [0_u8; 16];
    call.run.rng.fill_bytes(&mut serial);
    let start = call.run.now_unix_ms.div_euclid(1000);
    let end = start.saturating_add(request.days.clamp(-1_000_000, 1_000_000) * 86_400);
    let point = public_point(key);
    let key_id = |point: &[u8]| {
        use sha1::Digest as _;
        sha1::Sha1::digest(point).to_vec()
    };
    // digitalSignature and keyEncipherment; an authority also signs certificates.
    let usage = if request.is_ca { (2, [0xa4]) } else { (5, [0xa0]) };
    let mut extensions = vec![
        der::extension(der::KEY_USAGE, true, &der::bits(usage.0, &usage.1)),
        der::extension(
            der::EXTENDED_KEY_USAGE,
            false,
            &der::sequence(&[der::oid(der::SERVER_AUTH), der::oid(der::CLIENT_AUTH)]),
        ),
        der::extension(
            der::BASIC_CONSTRAINTS,
            true,
            &if request.is_ca { der::sequence(&[der::boolean(true)]) } else { der::sequence(&[]) },
        ),
    ];
    if request.is_ca {
        extensions.push(der::extension(der::SUBJECT_KEY_ID, false, &der::octets(&key_id(&point))));
    }
    let authority = der::sequence(&[der::implicit(0, &key_id(&public_point(signer)))]);
    extensions.push(der::extension(der::AUTHORITY_KEY_ID, false, &authority));
    if !request.ips.is_empty() || !request.dns.is_empty() {
        let mut names: Vec<Vec<u8>> = request.dns.iter().map(|dns| der::implicit(2, dns.as_bytes())).collect();
        names.extend(request.ips.iter().map(|ip| der::implicit(7, ip)));
        extensions.push(der::extension(der::SUBJECT_ALT_NAME, false, &der::sequence(&names)));
    }
    let algorithm = der::sequence(&[der::oid(der::ECDSA_SHA256)]);
    let body = der::sequence(&[
        der::explicit(0, &der::integer(&[2])),
        der::integer(&serial),
        algorithm.clone(),
        issuer.to_vec(),
        der::sequence(&[der::time(&utc_stamp(start)), der::time(&utc_stamp(end))]),
        der::name(request.name),
        der::sequence(&[der::sequence(&[der::oid(der::EC_PUBLIC_KEY), der::oid(der::P256)]), der::bits(0, &point)]),
        der::explicit(3, &der::sequence(&extensions)),
    ]);
    let signature: Signature = signer.sign(&body);
    let certificate = der::sequence(&[body, algorithm, der::bits(0, signature.to_der().as_bytes())]);
    let cert = der::to_pem("CERTIFICATE", &certificate);
    call.run.string(cert.len() * 2)?;
    Ok(Value::object(Object::Certificate { cert, key: key_pem(key) }))
}
