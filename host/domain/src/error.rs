//! How an error with sources is told: once, at the edge, as one text.
//!
//! Our own errors never contain their source. Those of libraries often do, so a source that was told already is left
//! out.

use std::error::Error;

/// The texts of an error and its sources, `outer: inner`; a source that the text already ends with, in parentheses or
/// quotes perhaps, is left out.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        let told = text.ends_with(&more) || text.trim_end_matches([')', ']', '"', '\'', '.']).ends_with(&more);
        if !told {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading the manifest")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("no such file")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("reading: {0}")]
    struct Repeating(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("reading (\"{0}\")")]
    struct Quoting(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("there is no such file in the bundle")]
    struct Similar(#[source] Inner);

    #[test]
    fn each_source_is_told_once() {
        assert_eq!(chain(&Outer(Inner)), "reading the manifest: no such file");
        assert_eq!(chain(&Repeating(Inner)), "reading: no such file");
        assert_eq!(chain(&Quoting(Inner)), "reading (\"no such file\")");
        assert_eq!(chain(&Similar(Inner)), "there is no such file in the bundle: no such file");
    }
}
