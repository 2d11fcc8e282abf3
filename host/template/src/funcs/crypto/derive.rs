//! `derivePassword`: the Master Password algorithm, version 1.

use hmac::{Hmac, KeyInit as _, Mac as _};

use crate::{
    exec::Fault,
    funcs::{Answer, Call, int, s},
};

const SCOPE: &[u8] = b"com.lyndir.masterpassword";
/// The key derivation takes about a tenth of a second and 32 MiB.
const STEPS: u64 = 200_000;
const MEMORY: usize = 34 << 20;

pub(super) fn derive_password(call: &mut Call<'_, '_>, args: &[crate::value::Value]) -> Answer {
    let kind = s(args, 1);
    let Some(templates) = templates(kind) else {
        return call.text(format!("cannot find password template {kind}"));
    };
    let (password, user, site) = (s(args, 2), s(args, 3), s(args, 4));
    let Ok(counter) = u32::try_from(int(args, 0)) else {
        return Err(Fault::message("the counter must fit into 32 bits"));
    };
    call.run.charge(STEPS)?;
    call.run.allocate(MEMORY)?;
    let scoped = |text: &str| {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [SCOPE, &length.to_be_bytes(), text.as_bytes()].concat()
    };
    let params = scrypt::Params::new(15, 8, 2).map_err(|_| Fault::message("bad scrypt parameters"))?;
    let mut key = [0_u8; 64];
    scrypt::scrypt(password.as_bytes(), &scoped(user), &params, &mut key)
        .map_err(|_| Fault::message("failed to derive password"))?;
    let mut mac =
        Hmac::<sha2::Sha256>::new_from_slice(&key).map_err(|_| Fault::message("failed to derive password"))?;
    mac.update(&scoped(site));
    mac.update(&counter.to_be_bytes());
    let seed = mac.finalize().into_bytes();
    let template = templates[usize::from(seed[0]) % templates.len()];
    let text: String = template
        .bytes()
        .zip(seed.iter().skip(1))
        .map(|(class, byte)| {
            let letters = letters(class).as_bytes();
            char::from(letters[usize::from(*byte) % letters.len()])
        })
        .collect();
    call.text(text)
}

fn templates(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        "long" => &[
            "CvcvnoCvcvCvcv",
            "CvcvCvcvnoCvcv",
            "CvcvCvcvCvcvno",
            "CvccnoCvcvCvcv",
            "CvccCvcvnoCvcv",
            "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv",
            "CvcvCvccnoCvcv",
            "CvcvCvccCvcvno",
            "CvcvnoCvcvCvcc",
            "CvcvCvcvnoCvcc",
            "CvcvCvcvCvccno",
            "CvccnoCvccCvcv",
            "CvccCvccnoCvcv",
            "CvccCvccCvcvno",
            "CvcvnoCvccCvcc",
            "CvcvCvccnoCvcc",
            "CvcvCvccCvccno",
            "CvccnoCvcvCvcc",
            "CvccCvcvnoCvcc",
            "CvccCvcvCvccno",
        ],
        "medium" => &["CvcnoCvc", "CvcCvcno"],
        "short" => &["Cvcn"],
        "basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        "pin" => &["nnnn"],
        _ => return None,
    })
}

fn letters(class: u8) -> &'static str {
    match class {
        b'V' => "AEIOU",
        b'C' => "BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => "aeiou",
        b'c' => "bcdfghjklmnpqrstvwxyz",
        b'A' => "AEIOUBCDFGHJKLMNPQRSTVWXYZ",
        b'a' => "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => "0123456789",
        b'o' => "@&%?,=[]_:-+*$#!'^~;()/.",
        _ => "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}
