//! Makes the component of the jq evaluator of a core module, and writes down what it was built from.
//!
//! Called by `host/jq/build`: path of the module, version of the compiler, and `--check` to compare in place of writing.
#![allow(clippy::print_stdout, reason = "a tool of developers talks to them")]

#[path = "../tests/sandbox/jq/sources.rs"]
mod sources;

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use sources::{Artefact, FOLDER, digest, sources};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (module, compiler, is_check) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [module, compiler] => (module, compiler, false),
        [module, compiler, "--check"] => (module, compiler, true),
        _ => bail!("usage: jq-artefact MODULE COMPILER [--check]"),
    };
    let module = std::fs::read(module).with_context(|| format!("{module} cannot be read"))?;
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .context("the module cannot become a component")?;
    let here = std::env::current_dir()?;
    for path in [here.to_string_lossy(), std::env::var("HOME").unwrap_or_default().into()] {
        let is_in = path.len() > 1 && component.windows(path.len()).any(|window| window == path.as_bytes());
        ensure!(!is_in, "the component contains a path of this machine");
    }
    let built = Artefact {
        component: digest(&component),
        bytes: component.len(),
        sources: sources()?,
        compiler: compiler.to_owned(),
    };
    if is_check {
        let kept = Artefact::read()?;
        ensure!(built == kept, "what was built differs: {built:#?} is not {kept:#?}");
        println!("jq.wasm is what its sources give");
        return Ok(());
    }
    let folder = Path::new(FOLDER);
    std::fs::write(folder.join("jq.wasm"), &component)?;
    std::fs::write(folder.join("artefact.json"), serde_json::to_string_pretty(&built)? + "\n")?;
    println!("jq.wasm: {} bytes", component.len());
    Ok(())
}
