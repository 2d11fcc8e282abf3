//! The seed of random functions in templates.
//!
//! It is drawn once for each release and kept in its record, which is a Secret: whoever knew it could compute the passwords
//! that templates make up.

use std::fmt;

use barbless_domain::identity::ApplicationId;
use sha2::{Digest as _, Sha256};

/// A seed. It is not shown in debug output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) [u8; 32]);

impl Seed {
    /// One that nobody knows.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub(crate) fn fresh() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self(seed))
    }

    /// One that everybody can compute: for what is shown and never applied.
    pub(crate) fn of(id: &ApplicationId) -> Self {
        Self(Sha256::digest(id.to_string()).into())
    }

    /// Reads what [`Seed`] writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut seed = [0; 32];
        if digits.len() != 2 * seed.len() {
            return None;
        }
        for (byte, pair) in seed.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(seed))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_read_as_it_was_written_and_not_shown_by_accident() {
        let seed = Seed::fresh().expect("randomness");
        assert_eq!(Seed::parse(&seed.to_string()), Some(seed));
        assert_ne!(seed, Seed::fresh().expect("randomness"));
        assert_eq!(format!("{seed:?}"), "Seed(…)");
        let text = seed.to_string();
        for bad in ["", "00", &text[1..], &text.replace(|c: char| c.is_ascii_hexdigit(), "g")] {
            assert_eq!(Seed::parse(bad), None, "{bad}");
        }
    }
}
