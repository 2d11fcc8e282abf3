//! Tokens to trees: the grammar of Go's `text/template`, with a bound on nesting.
//!
//! An unclosed or stray control word is an error, never a shorter template: a manifest that silently misses its second
//! half makes the next upgrade delete what was in it.

pub(crate) mod ast;
mod lexer;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, rc::Rc};

use ast::{Branch, Command, Expr, Node, Number, Pipe, Tree};
use lexer::{Kind, Token};

/// Why a text is not a template. `message` is Go's, without the `template: file:line: ` prefix.
#[derive(Debug)]
pub(crate) struct ParseError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
    /// The nesting bound was hit, which is a limit and not a mistake of grammar.
    pub(crate) too_deep: bool,
}

/// However large the limit is set: the stack of a render is sized for no more.
pub(crate) const NESTING_MAX: usize = 2_000;

/// Variables in scope at once. They are searched one by one; charts have a few dozen.
const VARS_MAX: usize = 1000;

type Parsed<T> = Result<T, ParseError>;

/// Parses a file. The first tree is the file itself; the others are its definitions.
///
/// `nesting` bounds blocks and parentheses inside each other; `is_function` says which names can be called.
pub(crate) fn parse(
    file: &Rc<str>,
    text: &Rc<str>,
    nesting: usize,
    is_function: &dyn Fn(&str) -> bool,
) -> Parsed<Vec<Rc<Tree>>> {
    let mut parser = Parser {
        file: file.clone(),
        text: text.clone(),
        tokens: lexer::lex(text),
        at: 0,
        vars: vec!["$".into()],
        range_depth: 0,
        action_line: 0,
        nesting: 0,
        nesting_max: nesting.min(NESTING_MAX),
        is_function,
        trees: Vec::new(),
        names: HashMap::new(),
    };
    let mut root = Vec::new();
    loop {
        match parser.peek().kind {
            Kind::Eof => break,
            Kind::LeftDelim => {
                let mark = parser.at;
                parser.next();
                if parser.next_non_space().kind == Kind::Define {
                    parser.definition()?;
                    continue;
                }
                parser.at = mark;
            }
            _ => {}
        }
        match parser.text_or_action()? {
            Item::Node(node) => root.push(node),
            Item::End => return Err(parser.error("unexpected {{end}}".into())),
            Item::Else => return Err(parser.error("unexpected {{else}}".into())),
        }
    }
    parser.add(file.clone(), root)?;
    let mut trees = parser.trees;
    if let Some(own) = trees.iter().position(|tree| tree.name == *file) {
        trees.swap(0, own);
    }
    Ok(trees)
}

enum Item {
    Node(Node),
    End,
    Else,
}

struct Parser<'a> {
    file: Rc<str>,
    text: Rc<str>,
    tokens: Vec<Token>,
    at: usize,
    vars: Vec<Rc<str>>,
    range_depth: usize,
    action_line: usize,
    nesting: usize,
    nesting_max: usize,
    is_function: &'a dyn Fn(&str) -> bool,
    trees: Vec<Rc<Tree>>,
    /// Where in `trees` a name is.
    names: HashMap<Rc<str>, usize>,
}

impl Parser<'_> {
    // The token list ends with Eof or Error, and no rule goes past either, but a cursor that stays put is cheap proof.
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn backup(&mut self) {
        self.at -= 1;
    }

    fn peek_non_space(&mut self) -> &Token {
        while self.peek().kind == Kind::Space {
            self.at += 1;
        }
        self.peek()
    }

    fn next_non_space(&mut self) -> Token {
        self.peek_non_space();
        self.next()
    }

    fn error(&self, message: String) -> ParseError {
        // The last token looked at, as in Go; the column is a service of ours.
        let token = &self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)];
        let (_, column) = ast::position(&self.text, token.pos);
        ParseError { line: token.line, column, message, too_deep: false }
    }

    fn unexpected(&self, token: &Token, context: &str) -> ParseError {
        if token.kind == Kind::Error {
            let mut extra = String::new();
            if self.action_line != 0 && self.action_line != token.line {
                extra = format!(" in action started at {}:{}", self.file, self.action_line);
                if token.text.ends_with(" action") {
                    extra = extra.trim_start_matches(" in action").to_string();
                }
            }
            let (_, column) = ast::position(&self.text, token.pos);
            return ParseError { line: token.line, column, message: format!("{}{extra}", token.text), too_deep: false };
        }
        self.error(format!("unexpected {token} in {context}"))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Parsed<()> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(()) } else { Err(self.unexpected(&token, context)) }
    }

    fn enter(&mut self) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > self.nesting_max {
            let mut error = self.error(format!("blocks or parentheses nested deeper than {}", self.nesting_max));
            error.too_deep = true;
            return Err(error);
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.nesting -= 1;
    }

    fn add(&mut self, name: Rc<str>, root: Vec<Node>) -> Parsed<()> {
        let tree = Tree { name, file: self.file.clone(), text: self.text.clone(), root };
        let place = self.names.get(&tree.name).copied();
        match place.and_then(|place| self.trees.get_mut(place)) {
            None => {
                self.names.insert(tree.name.clone(), self.trees.len());
                self.trees.push(Rc::new(tree));
            }
            Some(old) if old.is_empty() => *old = Rc::new(tree),
            Some(_) if tree.is_empty() => {}
            Some(_) => {
                let name = crate::gofmt::quote(&tree.name);
                return Err(self.error(format!("template: multiple definition of template {name}")));
            }
        }
        Ok(())
    }

    fn definition(&mut self) -> Parsed<()> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "define clause")?;
        self.expect(Kind::RightDelim, "define clause")?;
        self.body(name, "define clause")
    }

    /// The body of a `define` or `block`, up to its `end`; it sees none of the outer variables.
    fn body(&mut self, name: Rc<str>, context: &str) -> Parsed<()> {
        let vars = std::mem::replace(&mut self.vars, vec!["$".into()]);
        let range_depth = std::mem::take(&mut self.range_depth);
        let (list, end) = self.item_list()?;
        if !matches!(end, Item::End) {
            return Err(self.error(format!("unexpected {{{{else}}}} in {context}")));
        }
        self.vars = vars;
        self.range_depth = range_depth;
        self.add(name, list)
    }

    fn item_list(&mut self) -> Parsed<(Vec<Node>, Item)> {
        self.enter()?;
        let mut list = Vec::new();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => list.push(node),
                end => {
                    self.leave();
                    return Ok((list, end));
                }
            }
        }
        self.at += 1;
        Err(self.error("unexpected EOF".into()))
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text { pos: token.pos, text: token.text.into() })),
            Kind::LeftDelim => {
                self.action_line = token.line;
                let item = self.action();
                self.action_line = 0;
                item
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            Kind::Block => self.block()?,
            Kind::Break => {
                self.loop_word("break")?;
                Node::Break { pos: token.pos }
            }
            Kind::Continue => {
                self.loop_word("continue")?;
                Node::Continue { pos: token.pos }
            }
            Kind::Else => {
                // `else if` and `else with` are read by the control that they continue.
                if !matches!(self.peek_non_space().kind, Kind::If | Kind::With) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Else);
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::End);
            }
            Kind::If => Node::If(self.control("if")?),
            Kind::Range => Node::Range(self.control("range")?),
            Kind::With => Node::With(self.control("with")?),
            Kind::Template => {
                let token = self.next_non_space();
                let name = self.template_name(&token, "template clause")?;
                let pipe = if self.peek_non_space().kind == Kind::RightDelim {
                    self.next();
                    None
                } else {
                    Some(self.pipeline("template clause", Kind::RightDelim)?)
                };
                Node::Template { pos: token.pos, name, pipe }
            }
            _ => {
                self.backup();
                let pos = self.peek().pos;
                Node::Action { pos, pipe: self.pipeline("command", Kind::RightDelim)? }
            }
        };
        Ok(Item::Node(node))
    }

    fn block(&mut self) -> Parsed<Node> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "block clause")?;
        let pipe = self.pipeline("block clause", Kind::RightDelim)?;
        self.body(name.clone(), "block clause")?;
        Ok(Node::Template { pos: token.pos, name, pipe: Some(pipe) })
    }

    fn loop_word(&mut self, word: &str) -> Parsed<()> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(&token, &format!("{{{{{word}}}}}")));
        }
        if self.range_depth == 0 {
            return Err(self.error(format!("{{{{{word}}}}} outside {{{{range}}}}")));
        }
        Ok(())
    }

    fn template_name(&self, token: &Token, context: &str) -> Parsed<Rc<str>> {
        match token.kind {
            Kind::Str | Kind::RawString => self.unquote(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn unquote(&self, token: &Token) -> Parsed<Rc<str>> {
        match crate::gofmt::unquote(&token.text) {
            Some(text) => Ok(text.into()),
            None => Err(self.error("invalid syntax".into())),
        }
    }

    fn control(&mut self, context: &str) -> Parsed<Branch> {
        let vars = self.vars.len();
        let pos = self.peek_non_space().pos;
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        self.range_depth += usize::from(context == "range");
        let (list, next) = self.item_list()?;
        self.range_depth -= usize::from(context == "range");
        let otherwise = match next {
            Item::Else => Some(self.otherwise(context)?),
            _ => None,
        };
        self.vars.truncate(vars);
        Ok(Branch { pos, pipe, list, otherwise })
    }

    fn otherwise(&mut self, context: &str) -> Parsed<Vec<Node>> {
        let kind = self.peek().kind;
        if (context == "if" && kind == Kind::If) || (context == "with" && kind == Kind::With) {
            self.next();
            self.enter()?;
            let branch = self.control(context)?;
            self.leave();
            return Ok(vec![if context == "if" { Node::If(branch) } else { Node::With(branch) }]);
        }
        match self.item_list()? {
            (list, Item::End) => Ok(list),
            _ => Err(self.error("expected end; found {{else}}".into())),
        }
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Parsed<Pipe> {
        self.enter()?;
        let mut pipe = Pipe { pos: self.peek_non_space().pos, is_assign: false, decl: Vec::new(), cmds: Vec::new() };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                Kind::Bool
                | Kind::CharConstant
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawString
                | Kind::Str
                | Kind::Variable
                | Kind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    pipe.cmds.push(command);
                }
                _ => return Err(self.unexpected(&token, context)),
            }
        }
        if pipe.cmds.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (i, cmd) in pipe.cmds.iter().enumerate().skip(1) {
            if matches!(
                cmd.args.first(),
                Some(Expr::Bool { .. } | Expr::Dot { .. } | Expr::Nil { .. } | Expr::Number(_) | Expr::Str { .. })
            ) {
                return Err(self.error(format!("non executable command in pipeline stage {}", i + 1)));
            }
        }
        self.leave();
        Ok(pipe)
    }

    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Parsed<()> {
        while self.peek_non_space().kind == Kind::Variable {
            let mark = self.at;
            let name: Rc<str> = self.next().text.into();
            if self.vars.len() > VARS_MAX {
                let mut error = self.error(format!("more than {VARS_MAX} variables in one scope"));
                error.too_deep = true;
                return Err(error);
            }
            match self.peek_non_space() {
                next if matches!(next.kind, Kind::Assign | Kind::Declare) => {
                    pipe.is_assign = next.kind == Kind::Assign;
                    self.next();
                    pipe.decl.push(name.clone());
                    self.vars.push(name);
                    break;
                }
                next if next.kind == Kind::Char && next.text == "," => {
                    self.next();
                    pipe.decl.push(name.clone());
                    self.vars.push(name);
                    if context != "range" || pipe.decl.len() >= 2 {
                        return Err(self.error(format!("too many declarations in {context}")));
                    }
                    if !matches!(self.peek_non_space().kind, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                        return Err(self.error("range can only initialize variables".into()));
                    }
                }
                _ => {
                    self.at = mark;
                    break;
                }
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<Command> {
        let pos = self.peek_non_space().pos;
        let mut args = Vec::new();
        loop {
            self.peek_non_space();
            if let Some(operand) = self.operand()? {
                args.push(operand);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.backup();
                    break;
                }
                Kind::Pipe => break,
                _ => return Err(self.unexpected(&token, "operand")),
            }
        }
        if args.is_empty() {
            return Err(self.error("empty command".into()));
        }
        Ok(Command { pos, args })
    }

    fn operand(&mut self) -> Parsed<Option<Expr>> {
        let Some(mut node) = self.term()? else { return Ok(None) };
        if self.peek().kind != Kind::Field {
            return Ok(Some(node));
        }
        let pos = self.peek().pos;
        let mut field: Vec<Rc<str>> = Vec::new();
        while self.peek().kind == Kind::Field {
            field.push(self.next().text[1..].into());
        }
        node = match node {
            Expr::Field { mut ident, .. } => {
                ident.append(&mut field);
                Expr::Field { pos, ident }
            }
            Expr::Variable { mut ident, .. } => {
                ident.append(&mut field);
                Expr::Variable { pos, ident }
            }
            node @ (Expr::Bool { .. } | Expr::Str { .. } | Expr::Number(_) | Expr::Nil { .. } | Expr::Dot { .. }) => {
                return Err(self.error(format!("unexpected . after term {}", crate::gofmt::quote(&node.to_string()))));
            }
            node => Expr::Chain { pos, node: Box::new(node), field },
        };
        Ok(Some(node))
    }

    fn term(&mut self) -> Parsed<Option<Expr>> {
        let token = self.next_non_space();
        let pos = token.pos;
        Ok(Some(match token.kind {
            Kind::Identifier => {
                if !(self.is_function)(&token.text) {
                    let name = crate::gofmt::quote(&token.text);
                    return Err(self.error(format!("function {name} not defined")));
                }
                Expr::Function { pos, name: token.text.into() }
            }
            Kind::Dot => Expr::Dot { pos },
            Kind::Nil => Expr::Nil { pos },
            Kind::Variable => {
                if !self.vars.iter().any(|name| **name == *token.text) {
                    return Err(self.error(format!("undefined variable {}", crate::gofmt::quote(&token.text))));
                }
                Expr::Variable { pos, ident: vec![token.text.into()] }
            }
            Kind::Field => Expr::Field { pos, ident: vec![token.text[1..].into()] },
            Kind::Bool => Expr::Bool { pos, value: token.text == "true" },
            Kind::CharConstant | Kind::Number => match number(&token) {
                Ok(number) => Expr::Number(number),
                Err(message) => return Err(self.error(message)),
            },
            Kind::LeftParen => Expr::Pipe(self.pipeline("parenthesized pipeline", Kind::RightParen)?),
            Kind::Str | Kind::RawString => {
                let text = self.unquote(&token)?;
                Expr::Str { pos, quoted: token.text, text }
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        }))
    }
}

fn number(token: &Token) -> Result<Number, String> {
    let (pos, text) = (token.pos, token.text.clone());
    if token.kind == Kind::CharConstant {
        let c = crate::gofmt::unquote_char(&text).ok_or_else(|| format!("malformed character constant: {text}"))?;
        return Ok(Number { pos, text, int: Some(c.into()), float: c.into(), is_float: false });
    }
    if let Some(int) = crate::gofmt::parse_int(&text) {
        return Ok(Number { pos, text, int: Some(int), float: int as f64, is_float: false });
    }
    let looks_float = text.contains(['.', 'e', 'E', 'p', 'P']);
    if !looks_float && crate::gofmt::is_integer_syntax(&text) {
        return Err(format!("integer overflow: {}", crate::gofmt::quote(&text)));
    }
    let Some(float) = crate::gofmt::parse_float(&text) else {
        return Err(format!("illegal number syntax: {}", crate::gofmt::quote(&text)));
    };
    let int = (float.trunc() == float && float.abs() < 9.2e18).then_some(float as i64);
    Ok(Number { pos, text, int, float, is_float: true })
}
