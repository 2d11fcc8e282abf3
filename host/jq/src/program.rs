//! From text to a program that can be applied, and the places of what is wrong with the text.

use jaq_core::load::{Arena, File, Loader, parse, span};
use jaq_core::{Compiler, Ctx, Filter, Vars, compile, data, load};

use crate::exports::barbless::jq::evaluator::{Bounds, Failure, Refusal};
use crate::json::{self, Fault};
use crate::value::Value;
use crate::{MESSAGE_BYTES, functions, short};

/// What gojq has and jaq lacks or does otherwise, in jq itself.
const PRELUDE: &str = include_str!("prelude.jq");

/// Definitions of the standard library that may not exist in here, or that `functions` and the prelude replace.
const DROPPED: [&str; 16] = [
    "debug",
    "delpaths",
    "halt",
    "halt_error",
    "infinite",
    "isarray",
    "isboolean",
    "isinfinite",
    "isnan",
    "isnumber",
    "isobject",
    "isstring",
    "keys",
    "nan",
    "stderr",
    "type",
];

/// A program that is ready to be applied.
pub(crate) struct Program(Filter<data::JustLut<Value>>);

impl Program {
    pub(crate) fn new(code: &str) -> Result<Self, Refusal> {
        let arena = Arena::default();
        let standard = jaq_core::defs().chain(jaq_std::defs()).filter(|def| !DROPPED.contains(&def.name));
        let ours = load::parse(PRELUDE, |parser| parser.defs()).unwrap_or_default();
        let loader = Loader::new(standard.chain(ours));
        let modules = loader.load(&arena, File { code, path: () }).map_err(|errors| unreadable(code, errors))?;
        let import = |import: load::Import<'_, &str, ()>| Err((*import.path).to_owned());
        load::import(&modules, import).map_err(|errors| unreadable(code, errors))?;
        let filter = Compiler::default()
            .with_funs(functions::all())
            .compile(modules)
            .map_err(|errors| undefined(code, errors))?;
        Ok(Self(filter))
    }

    pub(crate) fn apply(&self, input: &str, bounds: &Bounds) -> Result<Vec<String>, Failure> {
        let input = json::read(input).map_err(|fault| match fault {
            Fault::Syntax { what, offset } => Failure::BadInput(format!("{what} at byte {offset}")),
            Fault::Depth(levels) => Failure::TooDeep(levels),
        })?;
        let context = Ctx::<data::JustLut<Value>>::new(&self.0.lut, Vars::new([]));
        let mut left = bounds.bytes as usize;
        let mut outputs = Vec::new();
        for output in self.0.id.run((context, input)) {
            let value = output.map_err(raised)?;
            if outputs.len() >= bounds.outputs as usize {
                return Err(Failure::TooManyOutputs);
            }
            let text = json::write(&value, left).ok_or(Failure::TooManyBytes)?;
            left -= text.len();
            outputs.push(text);
        }
        Ok(outputs)
    }
}

/// The text of an error, as `catch` would have it.
fn raised(exception: jaq_core::Exn<'_, Value>) -> Failure {
    let text = match exception.get_err() {
        Ok(error) => match error.into_val() {
            Value::String(text) => text.as_ref().clone(),
            value => value.to_string(),
        },
        // `halt` does not exist, and what else may come out is a `break` without its label.
        Err(_) => "break".to_owned(),
    };
    Failure::Raised(short(text, MESSAGE_BYTES))
}

fn unreadable(code: &str, errors: load::Errors<&str, ()>) -> Refusal {
    for (_, error) in errors {
        match error {
            load::Error::Io(faults) => {
                if let Some((path, _)) = faults.first() {
                    let message = "modules cannot be imported or included".to_owned();
                    return Refusal { message, offset: offset(code, path), missing: "import".to_owned() };
                }
            }
            load::Error::Lex(faults) => {
                if let Some((expected, rest)) = faults.first() {
                    return expected_but(code, expected.as_str(), rest);
                }
            }
            load::Error::Parse(faults) => {
                if let Some((expected, found)) = faults.first() {
                    return expected_but(code, parse::Expect::as_str(expected), found);
                }
            }
        }
    }
    Refusal { message: "it cannot be read".to_owned(), offset: 0, missing: String::new() }
}

fn expected_but(code: &str, expected: &str, found: &str) -> Refusal {
    let at = offset(code, found);
    let expected = short(expected.to_owned(), 64);
    let message = match found.split_whitespace().next() {
        Some(found) => format!("expected {expected}, found `{}`", short(found.to_owned(), 32)),
        None => format!("expected {expected}, found the end"),
    };
    Refusal { message, offset: at, missing: String::new() }
}

fn undefined(code: &str, errors: compile::Errors<&str, ()>) -> Refusal {
    let Some((name, kind)) = errors.into_iter().flat_map(|(_, errors)| errors).next() else {
        return Refusal { message: "it cannot be compiled".to_owned(), offset: 0, missing: String::new() };
    };
    let shown = short(name.to_owned(), 64);
    let missing = match &kind {
        compile::Undefined::Filter(arity) => format!("{shown}/{arity}"),
        _ => shown,
    };
    let message = format!("{} `{missing}` is not defined", kind.as_str());
    Refusal { message, offset: offset(code, name), missing }
}

/// Where a part begins. What is no part (a definition of ours) gives the beginning.
fn offset(code: &str, part: &str) -> u32 {
    let whole = code.as_bytes().as_ptr_range();
    if (whole.start..=whole.end).contains(&part.as_ptr()) {
        u32::try_from(span(code, part).start).unwrap_or(u32::MAX)
    } else {
        0
    }
}
