//! Randomness, all of it from the seed of the input: the same input renders the same text.

use rand_chacha::{ChaCha12Rng, rand_core::Rng as _};

use super::{Answer, Call, Entry, int, s};
use crate::{exec::Fault, value::Value};

const NUMERIC: std::ops::RangeInclusive<u8> = b'0'..=b'9';
const ALPHA: &[std::ops::RangeInclusive<u8>] = &[b'a'..=b'z', b'A'..=b'Z'];
const ALPHANUMERIC: &[std::ops::RangeInclusive<u8>] = &[b'a'..=b'z', b'A'..=b'Z', NUMERIC];
const ASCII: &[std::ops::RangeInclusive<u8>] = &[b' '..=b'~'];
const DIGITS: &[std::ops::RangeInclusive<u8>] = &[NUMERIC];

pub(super) const FUNCTIONS: &[Entry] = &[
    ("randAlphaNum", "i", |call, args| text(call, int(args, 0), ALPHANUMERIC)),
    ("randAlpha", "i", |call, args| text(call, int(args, 0), ALPHA)),
    ("randAscii", "i", |call, args| text(call, int(args, 0), ASCII)),
    ("randNumeric", "i", |call, args| text(call, int(args, 0), DIGITS)),
    ("randInt", "ii", |call, args| {
        let (low, high) = (int(args, 0), int(args, 1));
        let span = i128::from(high) - i128::from(low);
        match u64::try_from(span) {
            Ok(span) if span > 0 => {
                let offset = below(&mut call.run.rng, span);
                Ok(Value::Int(low.wrapping_add_unsigned(offset)))
            }
            _ => Err(Fault::message("invalid argument to Intn")),
        }
    }),
    ("randBytes", "i", |call, args| {
        use base64::Engine as _;
        let bytes = bytes(call, int(args, 0))?;
        call.text(base64::engine::general_purpose::STANDARD.encode(bytes))
    }),
    ("shuffle", "s", |call, args| {
        let mut chars: Vec<char> = s(args, 0).chars().collect();
        call.run.charge(chars.len() as u64 / 8)?;
        for i in (1..chars.len()).rev() {
            let j = below(&mut call.run.rng, i as u64 + 1);
            chars.swap(i, usize::try_from(j).unwrap_or(0));
        }
        call.text(chars.into_iter().collect::<String>())
    }),
    ("uuidv4", "", |call, _| {
        let mut b = [0_u8; 16];
        call.run.rng.fill_bytes(&mut b);
        b[6] = b[6] & 0x0f | 0x40;
        b[8] = b[8] & 0x3f | 0x80;
        let hex = super::crypto::hex(&b);
        call.text(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
    }),
];

/// A number below `bound`, each as likely: a draw that would favour the low ones is repeated.
fn below(rng: &mut ChaCha12Rng, bound: u64) -> u64 {
    let zone = u64::MAX - u64::MAX % bound;
    loop {
        let draw = rng.next_u64();
        if draw < zone {
            return draw % bound;
        }
    }
}

fn text(call: &mut Call<'_, '_>, count: i64, ranges: &[std::ops::RangeInclusive<u8>]) -> Answer {
    let count = usize::try_from(count).unwrap_or(0);
    call.run.string(count)?;
    call.run.charge(count as u64 / 16)?;
    let alphabet: Vec<u8> = ranges.iter().cloned().flatten().collect();
    let mut out = String::with_capacity(count);
    for _ in 0..count {
        let at = below(&mut call.run.rng, alphabet.len() as u64);
        out.push(char::from(alphabet[usize::try_from(at).unwrap_or(0)]));
    }
    Ok(Value::str(out))
}

pub(super) fn bytes(call: &mut Call<'_, '_>, count: i64) -> Result<Vec<u8>, Fault> {
    let count = usize::try_from(count).unwrap_or(0);
    call.run.string(count)?;
    let mut bytes = vec![0; count];
    call.run.rng.fill_bytes(&mut bytes);
    Ok(bytes)
}
