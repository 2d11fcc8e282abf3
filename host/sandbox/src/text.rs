//! Text of guests, made safe to show: bounded, on one line, without anything that a terminal obeys.

use std::fmt::Write as _;

/// What stands at the end of a text that was cut.
pub(crate) const CUT: &str = "… [cut]";

/// Escapes control characters and whatever reorders text, and cuts the result at `max` bytes (the note of the cut comes
/// on top). Also says whether it was cut.
pub(crate) fn safe(text: &str, max: usize) -> (String, bool) {
    let mut out = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        let before = out.len();
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if hidden(c) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
        if out.len() > max {
            out.truncate(before);
            out.push_str(CUT);
            return (out, true);
        }
    }
    (out, false)
}

/// [`safe`] without the answer whether it was cut.
pub(crate) fn shown(text: &str, max: usize) -> String {
    safe(text, max).0
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and marks that change the direction of text.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_terminal_would_obey_is_escaped() {
        for (text, expected) in [
            ("plain ü", "plain ü"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\0", "\\u{0}"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(safe(text, 100), (expected.to_owned(), false));
        }
    }

    #[test]
    fn long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(safe("aüb", 3), ("aü… [cut]".to_owned(), true));
        assert_eq!(safe("aü", 2), ("a… [cut]".to_owned(), true));
        // An escape is never cut in two.
        assert_eq!(safe("a\u{1b}", 4), ("a… [cut]".to_owned(), true));
        assert_eq!(safe("abc", 3), ("abc".to_owned(), false));
    }
}
