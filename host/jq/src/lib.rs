//! jq programs, evaluated by jaq inside of a component.
//!
//! Everything that reaches out of an evaluation is absent: no environment, clock, further inputs, messages, modules or
//! end of the process. What is left can only use time and memory, which the sandbox around it bounds.

mod functions;
mod json;
mod number;
mod program;
mod value;

use std::cell::RefCell;

use crate::program::Program;

wit_bindgen::generate!({ world: "jq", path: "wit" });

use exports::barbless::jq::evaluator::{Bounds, Failure, Guest, Refusal};

/// Bytes of the text of a failure: it goes into a status.
const MESSAGE_BYTES: usize = 2048;

thread_local! {
    static PROGRAM: RefCell<Option<Program>> = const { RefCell::new(None) };
}

struct Evaluator;

impl Guest for Evaluator {
    fn compile(program: String) -> Result<(), Refusal> {
        std::panic::set_hook(Box::new(|info| panicked(&info.to_string())));
        let compiled = Program::new(&program)?;
        PROGRAM.with(|slot| *slot.borrow_mut() = Some(compiled));
        Ok(())
    }

    fn apply(input: String, bounds: Bounds) -> Result<Vec<String>, Failure> {
        PROGRAM.with(|slot| match &*slot.borrow() {
            Some(program) => program.apply(&input, &bounds),
            None => Err(Failure::Raised("no program was given".to_owned())),
        })
    }
}

export!(Evaluator);

/// A text of bounded length.
fn short(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let mut end = bytes;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
