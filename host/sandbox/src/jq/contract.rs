//! What host and evaluator say to each other: what the macro of the engine makes of `host/jq/wit`.
#![allow(unreachable_pub, reason = "the macro writes `pub` for items of a private module")]

use barbless_domain::run::Panic;

use crate::state::State;
use crate::text::shown;

/// Bytes of the words of a panic.
const PANIC_BYTES: usize = 1024;

wasmtime::component::bindgen!({
    path: "../jq/wit",
    world: "jq",
    exports: { default: async },
});

impl JqImports for State {
    fn panicked(&mut self, message: String) {
        self.panic = Some(Panic { message: shown(&message, PANIC_BYTES), location: String::new() });
    }
}
