//! From a core module to a component in its place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use wit_component::{ComponentEncoder, DecodedWasm};

use super::BuildError;

/// What the host loads at most, and therefore what is worth building.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// The interfaces of the contract begin with it.
const CONTRACT: &str = "barbless:hooks/";

/// Makes a component of a module that carries its world in a section, as `wit-bindgen` puts it there, and checks that it
/// is valid and has something to offer.
pub(super) fn encode(name: &str, module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let failed = |detail: String| BuildError::Encode { name: name.to_owned(), detail };
    // A module that was built for WASI components is one already.
    let component = if module.get(4..8) == Some(&[0x0d, 0, 1, 0]) {
        module.to_vec()
    } else {
        ComponentEncoder::default()
            .module(module)
            .and_then(|encoder| encoder.validate(true).encode())
            .map_err(|error| failed(format!("{error:#}")))?
    };
    match wit_component::decode(&component).map_err(|error| failed(format!("{error:#}")))? {
        DecodedWasm::Component(resolve, world) => {
            let exports = resolve.worlds.get(world).map(|world| &world.exports);
            let has_any = exports
                .is_some_and(|exports| exports.keys().any(|key| resolve.name_world_key(key).starts_with(CONTRACT)));
            if has_any { Ok(component) } else { Err(BuildError::NoHooks { name: name.to_owned() }) }
        }
        DecodedWasm::WitPackage(..) => Err(BuildError::NoHooks { name: name.to_owned() }),
    }
}

/// Puts a component in place in one step, with the time at which its build began.
pub(super) fn put(out: &Path, component: &[u8], begun_at: SystemTime) -> Result<(), BuildError> {
    let write = |source| BuildError::Write { path: out.to_owned(), source };
    let temporary = temporary_name(out);
    let written = fs::write(&temporary, component)
        .and_then(|()| fs::File::options().write(true).open(&temporary)?.set_modified(begun_at))
        .and_then(|()| fs::rename(&temporary, out));
    if written.is_err() {
        // Best effort: the error that matters is the one of writing.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(write)
}

/// In the same folder, since a rename cannot cross file systems; with the process, so that two builds do not meet.
fn temporary_name(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.wasm.tmp", std::process::id()));
    out.with_file_name(name)
}
