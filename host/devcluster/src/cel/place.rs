//! Where in the text of an expression something stands, for messages. The parser does not keep it, so the text is split
//! into tokens here.

/// A token with its place: byte offset, and line and column counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    at: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Token<'_> {
    pub(super) fn is_operator(&self) -> bool {
        self.text.starts_with(['.', '+', '-', '*', '/', '%', '!', '&', '|', '?', '<', '>', '='])
    }

    fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// The tokens of an expression. What is no token of the language comes as one character.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut line, mut line_start, mut at) = (1, 0, 0);
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        if first == '\n' {
            line += 1;
            line_start = at + 1;
        }
        let length = length(rest, first);
        if let Some(text) = rest.get(..length).filter(|_| !first.is_whitespace() && !rest.starts_with("//")) {
            let before = source.get(line_start..at).unwrap_or_default();
            found.push(Token { text, at, line, column: before.chars().count() + 1 });
            let breaks = text.matches('\n').count();
            if breaks > 0 {
                line += breaks;
                line_start = at + text.rfind('\n').unwrap_or_default() + 1;
            }
        }
        at += length.max(1);
    }
    found
}

/// The expression with blanks in the place of signs that take each other back, such as in `!!a` and `- -1`. The parser takes
/// two for one, and looks at what follows twice: as deep as they nest, it would double its work each time.
pub(super) fn without_double_signs(source: &str) -> String {
    let mut bytes = source.as_bytes().to_vec();
    let mut run = Vec::<Token<'_>>::new();
    let mut before: Option<Token<'_>> = None;
    let ends_value = |token: &Token<'_>| {
        token.text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '"' | ')' | ']' | '}'))
            && token.text != "in"
    };
    let mut settle = |run: &mut Vec<Token<'_>>, before: Option<Token<'_>>| {
        // After a value the first minus takes away from it.
        let binary = usize::from(run.first().is_some_and(|t| t.text == "-") && before.as_ref().is_some_and(ends_value));
        for pair in run.get(binary..).unwrap_or_default().chunks_exact(2) {
            for token in pair {
                if let Some(byte) = bytes.get_mut(token.at) {
                    *byte = b' ';
                }
            }
        }
        run.clear();
    };
    for token in tokens(source) {
        let sign = matches!(token.text, "!" | "-");
        if !run.is_empty() && (!sign || run.first().is_some_and(|first| first.text != token.text)) {
            let last = run.last().copied();
            settle(&mut run, before);
            before = last;
        }
        if sign {
            run.push(token);
        } else {
            before = Some(token);
        }
    }
    settle(&mut run, before);
    // Signs are one byte each, so what is left is text.
    String::from_utf8(bytes).unwrap_or_else(|_| source.to_owned())
}

fn length(rest: &str, first: char) -> usize {
    let run = |good: fn(char) -> bool| rest.find(|c: char| !good(c)).unwrap_or(rest.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if first == '"' || first == '\'' {
        return string_length(rest, first);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        return run(|c| c.is_ascii_alphanumeric() || c == '_');
    }
    if first.is_ascii_digit() {
        return run(|c| c.is_ascii_alphanumeric());
    }
    let pairs = ["==", "!=", "<=", ">=", "&&", "||"];
    if pairs.iter().any(|pair| rest.starts_with(pair)) { 2 } else { first.len_utf8() }
}

fn string_length(rest: &str, quote: char) -> usize {
    let long = quote.to_string().repeat(3);
    let (start, end) = if rest.starts_with(&long) { (3, long) } else { (1, quote.to_string()) };
    let mut at = start;
    while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
        if left.starts_with(&end) {
            return at + end.len();
        }
        let mut characters = left.chars();
        at += match (characters.next(), characters.next()) {
            (Some('\\'), Some(escaped)) => 1 + escaped.len_utf8(),
            (Some(c), _) => c.len_utf8(),
            (None, _) => 1,
        };
    }
    rest.len()
}

/// What is looked for in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// A selected field: the place is its dot.
    Field(&'a str),
    /// A called function or method: the place is its bracket.
    Call(&'a str),
    /// A name that stands alone.
    Name(&'a str),
    /// An operator between or before values.
    Operator(&'a str),
}

/// The place of the nth such thing, or of the first, or of the beginning.
pub(super) fn find(source: &str, what: What<'_>, nth: usize) -> (usize, usize) {
    let tokens = tokens(source);
    let mut places = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let text = |offset: isize| index.checked_add_signed(offset).and_then(|i| tokens.get(i)).map(|token| token.text);
        let dotted = text(-1) == Some(".") || (text(-1) == Some("?") && text(-2) == Some("."));
        let place = match what {
            What::Field(name) => (token.text == name && dotted && text(1) != Some("(")).then(|| tokens.get(index - 1)),
            What::Call(name) => (token.text == name && text(1) == Some("(")).then(|| tokens.get(index + 1)),
            What::Name(name) => (token.is_name() && token.text == name && !dotted).then_some(Some(token)),
            What::Operator(name) => (token.text == name).then_some(Some(token)),
        };
        places.extend(place.flatten().map(|token| (token.line, token.column)));
    }
    places.get(nth).or_else(|| places.first()).copied().unwrap_or((1, 1))
}

/// An error with the line that it is about, and a mark below the place.
pub(super) fn error(source: &str, line: usize, column: usize, why: &str) -> String {
    let shown = source.lines().nth(line - 1).unwrap_or_default();
    let dots = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {why}\n | {shown}\n | {dots}^")
}
