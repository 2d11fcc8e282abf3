//! Random numbers from a seed that the host chooses and records, so that a run can be repeated.
//!
//! ```
//! use barbless_sdk::prelude::*;
//!
//! fn generate(ctx: &mut Context) -> Result<()> {
//!     let password = ctx.random().password(32);
//!     ctx.values().set("/internal/password", &password)
//! }
//!
//! let outcome = TestContext::builder().run(generate);
//! assert_eq!(outcome.values()["internal"]["password"].as_str().map(str::len), Some(32));
//! ```

use crate::host;

/// What one call of the host gives at most.
const BYTES_PER_CALL_MAX: usize = 4096;

/// Letters and digits without those that are easily mistaken for others.
const PASSWORD_ALPHABET: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A generator of random numbers, fit for secrets: the seed comes from the generator of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct Random {
    pub(crate) _private: (),
}

impl Random {
    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        host::next_u64()
    }

    /// The next bytes.
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let want = (len - bytes.len()).min(BYTES_PER_CALL_MAX);
            bytes.extend(host::random_bytes(want as u32));
        }
        bytes
    }

    /// A password of letters and digits; each character carries 5.8 bits.
    pub fn password(&self, len: usize) -> String {
        // A multiple of the alphabet, so that no character is likelier than another.
        let fair = 256 - 256 % PASSWORD_ALPHABET.len();
        let mut password = String::with_capacity(len);
        while password.len() < len {
            for byte in self.bytes((len - password.len()).max(16)) {
                if usize::from(byte) < fair && password.len() < len {
                    password.push(char::from(PASSWORD_ALPHABET[usize::from(byte) % PASSWORD_ALPHABET.len()]));
                }
            }
        }
        password
    }
}
