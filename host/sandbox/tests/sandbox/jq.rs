//! jq programs: what hostile ones can do, that ordinary ones mean what they mean elsewhere, and that the component is
//! made of its sources.

mod attacks;
mod compatibility;
mod plain;
mod pool;
pub(crate) mod sources;

use std::sync::OnceLock;

use barbless_domain::limits::JqLimits;
use barbless_sandbox::{Compiler, Config, JqError, JqFilter, Sandbox};
use sources::{Artefact, FOLDER};

use crate::host::wait;

/// Compiling the evaluator takes a while: once for all of these tests.
fn config() -> Config {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let cache = CACHE.get_or_init(|| tempfile::tempdir().unwrap());
    Config { cache: Some(cache.path().to_owned()), ..Config::new(Compiler::InProcess) }
}

fn evaluators() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(Config { in_flight: 2, ..config() }).unwrap())
}

fn filter(program: &str) -> JqFilter {
    wait(evaluators().jq(program)).unwrap_or_else(|error| panic!("{program}: {error:?}"))
}

fn filter_with(program: &str, limits: JqLimits) -> JqFilter {
    wait(evaluators().jq_with(program, limits)).unwrap_or_else(|error| panic!("{program}: {error:?}"))
}

fn refusal(program: &str) -> JqError {
    match wait(evaluators().jq(program)) {
        Ok(_) => panic!("{program} is accepted"),
        Err(error) => error,
    }
}

fn apply(filter: &JqFilter, input: &str) -> Result<Vec<String>, JqError> {
    let outputs = filter.apply(input.as_bytes())?;
    Ok(outputs.into_iter().map(|output| String::from_utf8(output).unwrap()).collect())
}

/// The component of this commit is the one that its sources were built into. Whether they still build into it is what
/// `host/jq/build --check` answers, where there is a compiler for it.
#[test]
fn the_component_belongs_to_its_sources() {
    let kept = Artefact::read().unwrap();
    let component = std::fs::read(std::path::Path::new(FOLDER).join("jq.wasm")).unwrap();
    assert_eq!(sources::digest(&component), kept.component, "jq.wasm was changed by hand");
    assert_eq!(component.len(), kept.bytes);
    assert_eq!(sources::sources().unwrap(), kept.sources, "the sources changed: run host/jq/build");
}
