//! Text to tokens, with the rules of Go's `text/template/parse`: delimiters, trim markers, comments and literals.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Error,
    Eof,
    Text,
    LeftDelim,
    RightDelim,
    Space,
    Assign,
    Declare,
    Pipe,
    LeftParen,
    RightParen,
    Char,
    Bool,
    CharConstant,
    Dot,
    Field,
    Identifier,
    Nil,
    Number,
    RawString,
    Str,
    Variable,
    // Keywords.
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
}

/// A token. `text` is the source text, or the message of an error.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Byte offset in the template.
    pub(crate) pos: usize,
    /// Line, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Eof => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.text),
            Kind::Dot => f.write_str("<.>"),
            kind if kind as u8 >= Kind::Nil as u8 && keyword(&self.text).is_some() => write!(f, "<{}>", self.text),
            _ => {
                let mut chars = self.text.chars();
                let start: String = chars.by_ref().take(10).collect();
                let dots = if chars.next().is_some() { "..." } else { "" };
                write!(f, "{}{dots}", crate::gofmt::quote(&start))
            }
        }
    }
}

fn keyword(word: &str) -> Option<Kind> {
    Some(match word {
        "block" => Kind::Block,
        "break" => Kind::Break,
        "continue" => Kind::Continue,
        "define" => Kind::Define,
        "else" => Kind::Else,
        "end" => Kind::End,
        "if" => Kind::If,
        "range" => Kind::Range,
        "nil" => Kind::Nil,
        "template" => Kind::Template,
        "with" => Kind::With,
        _ => return None,
    })
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

struct Lexer<'a> {
    text: &'a str,
    pos: usize,
    /// Start of the token being read.
    start: usize,
    line: usize,
    /// Up to where lines were counted.
    counted: usize,
    parens: usize,
    tokens: Vec<Token>,
}

enum Stop {
    /// The token list ends: end of the text, or an error token was added.
    Done,
}

/// All tokens of a template. The last one is always `Eof` or `Error`.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, pos: 0, start: 0, line: 1, counted: 0, parens: 0, tokens: Vec::new() };
    while lexer.text_then_action().is_ok() {}
    lexer.tokens
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.pos..]
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.pos + ahead).copied()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn count_lines(&mut self, to: usize) {
        if to > self.counted {
            self.line += self.text.as_bytes()[self.counted..to].iter().filter(|b| **b == b'\n').count();
            self.counted = to;
        }
    }

    fn emit(&mut self, kind: Kind) {
        self.count_lines(self.start);
        let text = self.text[self.start..self.pos].to_string();
        self.tokens.push(Token { kind, pos: self.start, line: self.line, text });
        self.count_lines(self.pos);
        self.start = self.pos;
    }

    fn ignore(&mut self) {
        self.start = self.pos;
    }

    fn error(&mut self, message: String) -> Result<(), Stop> {
        self.count_lines(self.start);
        self.tokens.push(Token { kind: Kind::Error, pos: self.start, line: self.line, text: message });
        Err(Stop::Done)
    }

    /// Text up to the next action, and that action. `Err` ends the token list.
    fn text_then_action(&mut self) -> Result<(), Stop> {
        let Some(offset) = self.rest().find("{{") else {
            self.pos = self.text.len();
            if self.pos > self.start {
                self.emit(Kind::Text);
            }
            self.emit(Kind::Eof);
            return Err(Stop::Done);
        };
        let delim = self.pos + offset;
        let trims = self.text.as_bytes().get(delim + 2) == Some(&b'-')
            && self.text.as_bytes().get(delim + 3).is_some_and(|b| is_space(*b));
        let mut end = delim;
        if trims {
            while end > self.start && is_space(self.text.as_bytes()[end - 1]) {
                end -= 1;
            }
        }
        self.pos = end;
        if self.pos > self.start {
            self.emit(Kind::Text);
        }
        self.pos = delim;
        self.ignore();
        let after = if trims { 2 } else { 0 };
        if self.text[delim + 2 + after..].starts_with("/*") {
            return self.comment(delim + 2 + after);
        }
        self.pos = delim + 2;
        self.emit(Kind::LeftDelim);
        self.pos += after;
        self.ignore();
        self.parens = 0;
        loop {
            if self.inside_action()? {
                return Ok(());
            }
        }
    }

    fn comment(&mut self, start: usize) -> Result<(), Stop> {
        let Some(length) = self.text[start + 2..].find("*/") else {
            return self.error("unclosed comment".into());
        };
        self.pos = start + 2 + length + 2;
        let Some(trims) = self.at_right_delim() else {
            return self.error("comment ends before closing delimiter".into());
        };
        self.close_action(trims);
        Ok(())
    }

    /// Steps over the right delimiter and, if it trims, over the white space behind it.
    fn close_action(&mut self, trims: bool) {
        self.pos += if trims { 4 } else { 2 };
        if trims {
            while self.byte(0).is_some_and(is_space) {
                self.pos += 1;
            }
        }
        self.ignore();
    }

    /// `Some(trims)` if the right delimiter is here.
    fn at_right_delim(&self) -> Option<bool> {
        if self.byte(0).is_some_and(is_space)
            && self.byte(1) == Some(b'-')
            && self.text[self.pos + 2..].starts_with("}}")
        {
            return Some(true);
        }
        self.rest().starts_with("}}").then_some(false)
    }

    fn right_delim(&mut self, trims: bool) {
        if trims {
            self.pos += 2;
            self.ignore();
        }
        self.pos += 2;
        self.emit(Kind::RightDelim);
        if trims {
            while self.byte(0).is_some_and(is_space) {
                self.pos += 1;
            }
            self.ignore();
        }
    }

    /// One token of an action; `true` when the action ended.
    fn inside_action(&mut self) -> Result<bool, Stop> {
        if let Some(trims) = self.at_right_delim() {
            if self.parens > 0 {
                self.error("unclosed left paren".into())?;
            }
            self.right_delim(trims);
            return Ok(true);
        }
        let Some(c) = self.next() else {
            self.error("unclosed action".into())?;
            return Ok(true);
        };
        match c {
            ' ' | '\t' | '\r' | '\n' => {
                // A space that belongs to a trimming right delimiter is not part of this run.
                while self.byte(0).is_some_and(is_space) && self.at_right_delim().is_none() {
                    self.pos += 1;
                }
                self.emit(Kind::Space);
            }
            '=' => self.emit(Kind::Assign),
            ':' => {
                if self.next() != Some('=') {
                    self.error("expected :=".into())?;
                }
                self.emit(Kind::Declare);
            }
            '|' => self.emit(Kind::Pipe),
            '"' => self.quoted('"', Kind::Str, "unterminated quoted string")?,
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant")?,
            '`' => {
                let Some(length) = self.rest().find('`') else {
                    return self.error("unterminated raw quoted string".into()).map(|()| true);
                };
                self.pos += length + 1;
                self.emit(Kind::RawString);
            }
            '$' => self.field_or_variable(Kind::Variable, Kind::Variable)?,
            '.' if !self.byte(0).is_some_and(|b| b.is_ascii_digit()) => {
                self.field_or_variable(Kind::Field, Kind::Dot)?
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.pos = self.start;
                self.number()?;
            }
            '(' => {
                self.emit(Kind::LeftParen);
                self.parens += 1;
            }
            ')' => {
                if self.parens == 0 {
                    self.error("unexpected right paren".into())?;
                }
                self.emit(Kind::RightParen);
                self.parens -= 1;
            }
            c if is_alphanumeric(c) => self.identifier()?,
            c if c.is_ascii_graphic() => self.emit(Kind::Char),
            c => self.error(format!("unrecognized character in action: {}", unicode(c)))?,
        }
        Ok(false)
    }

    fn quoted(&mut self, quote: char, kind: Kind, unterminated: &str) -> Result<(), Stop> {
        loop {
            match self.next() {
                Some('\\') if !matches!(self.peek(), None | Some('\n')) => {
                    self.next();
                }
                None | Some('\n' | '\\') => return self.error(unterminated.into()),
                Some(c) if c == quote => break,
                Some(_) => {}
            }
        }
        self.emit(kind);
        Ok(())
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(_) => self.rest().starts_with("}}"),
        }
    }

    fn word(&mut self) -> Result<(), Stop> {
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        if !self.at_terminator() {
            let c = self.peek().unwrap_or_default();
            return self.error(format!("bad character {}", unicode(c)));
        }
        Ok(())
    }

    fn field_or_variable(&mut self, kind: Kind, alone: Kind) -> Result<(), Stop> {
        if self.at_terminator() {
            self.emit(alone);
            return Ok(());
        }
        self.word()?;
        self.emit(kind);
        Ok(())
    }

    fn identifier(&mut self) -> Result<(), Stop> {
        self.word()?;
        let word = &self.text[self.start..self.pos];
        let kind = match word {
            "true" | "false" => Kind::Bool,
            word => keyword(word).unwrap_or(Kind::Identifier),
        };
        self.emit(kind);
        Ok(())
    }

    fn accept(&mut self, valid: &str) -> bool {
        let yes = self.peek().is_some_and(|c| valid.contains(c));
        if yes {
            self.pos += 1;
        }
        yes
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    fn number(&mut self) -> Result<(), Stop> {
        self.accept("+-");
        let mut digits = "0123456789_";
        let mut decimal = true;
        let mut hex = false;
        if self.accept("0") {
            if self.accept("xX") {
                (digits, decimal, hex) = ("0123456789abcdefABCDEF_", false, true);
            } else if self.accept("oO") {
                (digits, decimal) = ("01234567_", false);
            } else if self.accept("bB") {
                (digits, decimal) = ("01_", false);
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if (decimal && self.accept("eE")) || (hex && self.accept("pP")) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            let text = crate::gofmt::quote(&self.text[self.start..self.pos]);
            return self.error(format!("bad number syntax: {text}"));
        }
        self.emit(Kind::Number);
        Ok(())
    }
}

fn unicode(c: char) -> String {
    format!("U+{:04X} '{c}'", c as u32)
}
