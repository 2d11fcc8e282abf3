//! `encryptAES` and `decryptAES`: AES-256 in CBC mode, the key being the password cut or filled up to 32 bytes.

use aes::{
    Aes256,
    cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rand_chacha::rand_core::Rng as _;

use crate::{
    exec::Fault,
    funcs::{Answer, Call, s},
    value::Value,
};

const BLOCK: usize = 16;

fn cipher(password: &str) -> Aes256 {
    let mut key = [0_u8; 32];
    for (slot, byte) in key.iter_mut().zip(password.bytes()) {
        *slot = byte;
    }
    Aes256::new(&key.into())
}

pub(super) fn encrypt(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let text = s(args, 1);
    if text.is_empty() {
        return Ok(Value::str(""));
    }
    call.run.charge(text.len() as u64 / 16)?;
    call.run.string(text.len() * 2)?;
    let cipher = cipher(s(args, 0));
    let mut previous = [0_u8; BLOCK];
    call.run.rng.fill_bytes(&mut previous);
    let mut content = text.as_bytes().to_vec();
    let padding = BLOCK - content.len() % BLOCK;
    content.resize(content.len() + padding, padding as u8);
    let mut out = previous.to_vec();
    for chunk in content.as_chunks::<BLOCK>().0 {
        let mut block = *chunk;
        block.iter_mut().zip(previous).for_each(|(byte, mask)| *byte ^= mask);
        let mut array = block.into();
        cipher.encrypt_block(&mut array);
        previous = array.into();
        out.extend_from_slice(&previous);
    }
    call.text(STANDARD.encode(out))
}

pub(super) fn decrypt(call: &mut Call<'_, '_>, args: &[Value]) -> Answer {
    let text = s(args, 1);
    if text.is_empty() {
        return Ok(Value::str(""));
    }
    call.run.charge(text.len() as u64 / 16)?;
    call.run.string(text.len())?;
    let bytes = STANDARD.decode(text).map_err(|error| Fault::message(format!("illegal base64 data: {error}")))?;
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let Some((first, blocks)) = blocks.split_first().filter(|(_, more)| rest.is_empty() && !more.is_empty()) else {
        return Err(Fault::message("crypto/cipher: input not full blocks"));
    };
    let cipher = cipher(s(args, 0));
    let mut previous = *first;
    let mut out = Vec::with_capacity(bytes.len());
    for block in blocks {
        let mut array = (*block).into();
        cipher.decrypt_block(&mut array);
        let plain: [u8; BLOCK] = array.into();
        out.extend(plain.iter().zip(previous).map(|(byte, mask)| byte ^ mask));
        previous = *block;
    }
    let padding = usize::from(out.last().copied().unwrap_or(0));
    let Some(length) = out.len().checked_sub(padding) else {
        return Err(Fault::message("the text was not encrypted with this password"));
    };
    call.text(String::from_utf8_lossy(&out[..length]).into_owned())
}
