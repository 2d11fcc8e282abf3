//! The functions of Go, sprig 3.3 and Helm 4, by name, with the types of their parameters.
//!
//! A signature is a word of letters, one per parameter: `s` string, `i` int, `I` int64, `b` bool, `f` float64, `m`
//! map, `l` list, `t` time, `a` anything; `*` before the last letter makes it variadic. `env`, `expandenv` are not there,
//! and `getHostByName` resolves nothing, as in Helm without DNS.

mod compare;
mod crypto;
pub(crate) mod date;
mod dict;
pub(crate) mod encode;
mod helm;
mod list;
mod math;
mod path;
mod random;
mod regexp;
pub(crate) mod semver;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::HashMap, rc::Rc, sync::LazyLock};

use crate::{
    exec::{Fault, Run, Templates},
    limits::Limit,
    value::Value,
};

/// What a function may use besides its arguments.
pub(crate) struct Call<'c, 'r> {
    pub(crate) run: &'c mut Run<'r>,
    pub(crate) set: &'c Templates,
}

pub(crate) type Answer = Result<Value, Fault>;
pub(crate) type Body = fn(&mut Call<'_, '_>, &[Value]) -> Answer;

pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) sig: &'static str,
    pub(crate) call: Body,
}

type Entry = (&'static str, &'static str, Body);

static TABLE: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let parts: [&[Entry]; 12] = [
        compare::FUNCTIONS,
        crypto::FUNCTIONS,
        date::FUNCTIONS,
        dict::FUNCTIONS,
        encode::FUNCTIONS,
        helm::FUNCTIONS,
        list::FUNCTIONS,
        math::FUNCTIONS,
        path::FUNCTIONS,
        random::FUNCTIONS,
        regexp::FUNCTIONS,
        text::FUNCTIONS,
    ];
    let more = [semver::FUNCTIONS, crypto::certificate::FUNCTIONS];
    parts
        .into_iter()
        .chain(more)
        .flatten()
        .map(|(name, sig, call)| (*name, Function { name, sig, call: *call }))
        .collect()
});

pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLE.get(name)
}

/// `path.Clean`.
pub(crate) fn clean_path(path: &str) -> String {
    path::clean(path)
}

/// A file pattern, where `*` stops at `/`, as a compiled expression; `None` if it is malformed or too large.
pub(crate) fn glob_regex(pattern: &str) -> Option<regex::Regex> {
    regex::RegexBuilder::new(&regexp::glob(pattern)?).size_limit(1 << 20).build().ok()
}

/// Whether templates can call the name.
pub(crate) fn exists(name: &str) -> bool {
    TABLE.contains_key(name)
}

impl Call<'_, '_> {
    /// A string result, accounted for.
    pub(crate) fn text(&mut self, text: impl Into<Rc<str>>) -> Answer {
        let text = text.into();
        self.run.string(text.len())?;
        Ok(Value::Str(text))
    }

    /// A list result, accounted for.
    pub(crate) fn list(&mut self, items: Vec<Value>) -> Answer {
        self.run.items(items.len())?;
        Ok(Value::list(items))
    }

    pub(crate) fn strings(&mut self, items: Vec<String>) -> Answer {
        self.run.items(items.len())?;
        self.run.allocate(items.iter().map(String::len).sum())?;
        Ok(Value::strings(items))
    }

    /// Deep equality, accounted for.
    pub(crate) fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Fault> {
        let (answer, nodes) = crate::value::deep_equal(a, b).ok_or(Limit::Collection)?;
        self.run.charge(nodes as u64 / 8)?;
        Ok(answer)
    }

    /// `%v`, or an error for values that are too large to print.
    pub(crate) fn display(&mut self, value: &Value) -> Result<String, Fault> {
        let text = crate::gofmt::display(value).ok_or(Limit::StringSize)?;
        self.run.string(text.len())?;
        Ok(text)
    }

    /// sprig's `strval`.
    pub(crate) fn strval(&mut self, value: &Value) -> Result<String, Fault> {
        match value {
            Value::Str(text) => Ok(text.to_string()),
            Value::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            Value::Object(object) => Ok(object.display_inside()),
            other => self.display(other),
        }
    }
}

/// The text of a string argument. The signature has checked the type already.
pub(crate) fn s(args: &[Value], i: usize) -> &str {
    if let Some(Value::Str(text)) = args.get(i) { text } else { "" }
}

/// The number of an int argument.
pub(crate) fn int(args: &[Value], i: usize) -> i64 {
    if let Some(Value::Int(n) | Value::Int64(n)) = args.get(i) { *n } else { 0 }
}

/// Any argument; absent ones are nil.
pub(crate) fn any(args: &[Value], i: usize) -> &Value {
    args.get(i).unwrap_or(&Value::Nil)
}
