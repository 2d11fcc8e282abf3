//! Digests, passwords and certificates. What needs randomness takes it from the seed of the input.

mod aes_cbc;
pub(super) mod certificate;
mod derive;

use rand_chacha::rand_core::Rng as _;
use sha1::Digest as _;

use super::{Answer, Call, Entry, s};
use crate::{exec::Fault, value::Value};

/// The cost of hashing a password with bcrypt's default of 2^10 rounds, in steps: some tens of milliseconds.
const BCRYPT_STEPS: u64 = 50_000;
const BCRYPT_COST: u32 = 10;

pub(super) const FUNCTIONS: &[Entry] = &[
    ("sha1sum", "s", |call, args| digest(call, args, |bytes| hex(&sha1::Sha1::digest(bytes)))),
    ("sha256sum", "s", |call, args| digest(call, args, |bytes| hex(&sha2::Sha256::digest(bytes)))),
    ("sha512sum", "s", |call, args| digest(call, args, |bytes| hex(&sha2::Sha512::digest(bytes)))),
    ("adler32sum", "s", |call, args| digest(call, args, |bytes| adler32(bytes).to_string())),
    ("bcrypt", "s", |call, args| {
        let hash = bcrypt(call, s(args, 0))?;
        call.text(hash)
    }),
    ("htpasswd", "ss", |call, args| {
        if s(args, 0).contains(':') {
            return call.text(format!("invalid username: {}", s(args, 0)));
        }
        let hash = bcrypt(call, s(args, 1))?;
        call.text(format!("{}:{hash}", s(args, 0)))
    }),
    ("derivePassword", "issss", derive::derive_password),
    ("encryptAES", "ss", aes_cbc::encrypt),
    ("decryptAES", "ss", aes_cbc::decrypt),
];

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn digest(call: &mut Call<'_, '_>, args: &[Value], digest: fn(&[u8]) -> String) -> Answer {
    let text = s(args, 0);
    call.run.charge(text.len() as u64 / 64)?;
    call.text(digest(text.as_bytes()))
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

fn bcrypt(call: &mut Call<'_, '_>, password: &str) -> Result<String, Fault> {
    call.run.charge(BCRYPT_STEPS)?;
    let mut salt = [0_u8; 16];
    call.run.rng.fill_bytes(&mut salt);
    if password.len() > 72 {
        return Ok("failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".into());
    }
    match bcrypt::hash_with_salt(password, BCRYPT_COST, salt) {
        Ok(parts) => Ok(parts.format_for_version(bcrypt::Version::TwoA)),
        Err(error) => Ok(format!("failed to encrypt string with bcrypt: {error}")),
    }
}
