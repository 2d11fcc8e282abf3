//! What can be told of a component without compiling or running it: whether it is one, how large it is, what it wants
//! and what it has. Everything that is wrong with its outside is found here, before it costs anything.

use std::collections::BTreeSet;

use barbless_domain::grant::Interface;
use barbless_domain::limits::GuestLimits;
use semver::Version;
use wasmparser::{Chunk, Encoding, Parser, Payload, Validator, WasmFeatures};

use crate::component::World;
use crate::contract;
use crate::error::LoadError;
use crate::text::shown;

/// Modules and components inside of a component; interpreters have about fifty.
const NESTED_MAX: u64 = 500;
/// Imports and exports of a component; the contract and WASI have fewer than fifty.
const NAMES_MAX: u64 = 500;
/// Bytes of a page of linear memory.
const PAGE: u64 = 64 * 1024;
/// Packages of WASI 0.2 that are linked, with nothing behind them.
const WASI_PACKAGES: [&str; 6] = ["cli", "clocks", "filesystem", "io", "random", "sockets"];

/// What a scan finds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    pub(crate) interfaces: BTreeSet<Interface>,
    pub(crate) worlds: BTreeSet<World>,
}

/// Looks at the outside of a component and counts its inside.
pub(crate) fn scan(wasm: &[u8], limits: &GuestLimits) -> Result<Scan, LoadError> {
    if wasm.is_empty() {
        return Err(LoadError::Empty);
    }
    bounded("bytes", wasm.len() as u64, limits.component_bytes)?;
    let magic = wasm.get(..4).unwrap_or(wasm);
    if !b"\0asm".starts_with(magic) {
        let begins = wasm.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        return Err(LoadError::NotWasm { begins });
    }
    let mut walk = Walk::default();
    walk.all(wasm, limits)?;
    classify(walk.imports, walk.exports)
}

/// Custom section in which the SDK repeats the declarations of hooks, one JSON object a line.
const DECLARED_SECTION: &str = "barbless-hooks";
/// Bytes of these sections that are read.
const DECLARED_BYTES: usize = 1024 * 1024;

/// What a component says of itself, found without running any of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// `sha256:…` of its bytes.
    pub digest: String,
    /// Names of its imports.
    pub imports: Vec<String>,
    /// Names of its exports.
    pub exports: Vec<String>,
    /// Interfaces that must be granted to it.
    pub interfaces: BTreeSet<Interface>,
    /// What it can be asked for.
    pub worlds: BTreeSet<World>,
    /// Its hooks, as the SDK wrote them down when it was built; empty if it was built without the SDK. Nothing holds
    /// the component to them: what counts is what it declares when it is loaded.
    pub declared: Vec<serde_json::Value>,
}

/// Looks at a component without compiling or running it.
///
/// # Errors
/// [`LoadError`] for everything that is wrong with its outside.
pub fn facts(wasm: &[u8], limits: &GuestLimits) -> Result<Facts, LoadError> {
    let Scan { imports, exports, interfaces, worlds } = scan(wasm, limits)?;
    let mut declared = Vec::new();
    let mut bytes = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CustomSection(section) = payload.map_err(|error| malformed(&error))? else { continue };
        if section.name() != DECLARED_SECTION {
            continue;
        }
        bytes += section.data().len();
        if bytes > DECLARED_BYTES {
            break;
        }
        let lines = section.data().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        declared.extend(lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok()));
    }
    Ok(Facts { digest: crate::compile::digest_of(wasm), imports, exports, interfaces, worlds, declared })
}

fn bounded(what: &'static str, actual: u64, limit: u64) -> Result<(), LoadError> {
    if actual > limit { Err(LoadError::TooLarge { what, actual, limit }) } else { Ok(()) }
}

#[derive(Default)]
struct Walk {
    imports: Vec<String>,
    exports: Vec<String>,
    functions: u64,
    memory: u64,
    tables: u64,
    nested: u64,
}

impl Walk {
    fn all(&mut self, wasm: &[u8], limits: &GuestLimits) -> Result<(), LoadError> {
        let mut rest = wasm;
        let mut parser = Parser::new(0);
        let mut outer = Vec::new();
        loop {
            let offset = (wasm.len() - rest.len()) as u64;
            // Not told that this is the end, the parser says by a type of its own that something is missing.
            let eof = outer.is_empty() && rest.is_empty();
            let (consumed, payload) = match parser.parse(rest, eof).map_err(|error| malformed(&error))? {
                Chunk::NeedMoreData(_) => return Err(LoadError::Truncated { offset }),
                Chunk::Parsed { consumed, payload } => (consumed, payload),
            };
            rest = rest.get(consumed..).unwrap_or_default();
            match payload {
                Payload::Version { encoding: Encoding::Module, .. } if outer.is_empty() => {
                    return Err(LoadError::CoreModule);
                }
                Payload::ModuleSection { parser: inner, .. } | Payload::ComponentSection { parser: inner, .. } => {
                    self.nested += 1;
                    bounded("nested modules and components", self.nested, NESTED_MAX)?;
                    outer.push(std::mem::replace(&mut parser, inner));
                }
                Payload::End(_) => match outer.pop() {
                    Some(parent) => parser = parent,
                    None => return Ok(()),
                },
                payload => self.section(payload, outer.is_empty(), limits)?,
            }
        }
    }

    fn section(&mut self, payload: Payload<'_>, top: bool, limits: &GuestLimits) -> Result<(), LoadError> {
        match payload {
            Payload::FunctionSection(section) => {
                self.functions = self.functions.saturating_add(u64::from(section.count()));
                bounded("functions", self.functions, u64::from(limits.component_functions))?;
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    let memory = memory.map_err(|error| malformed(&error))?;
                    self.memory = self.memory.saturating_add(memory.initial.saturating_mul(PAGE));
                }
                bounded("bytes of initial memory", self.memory, limits.memory_bytes)?;
            }
            Payload::TableSection(section) => {
                for table in section {
                    let table = table.map_err(|error| malformed(&error))?;
                    self.tables = self.tables.saturating_add(table.ty.initial);
                }
                bounded("initial table elements", self.tables, limits.table_elements)?;
            }
            Payload::ComponentImportSection(section) if top => {
                for import in section {
                    let import = import.map_err(|error| malformed(&error))?;
                    self.imports.push(import.name.name.to_owned());
                    bounded("imports", self.imports.len() as u64, NAMES_MAX)?;
                }
            }
            Payload::ComponentExportSection(section) if top => {
                for export in section {
                    let export = export.map_err(|error| malformed(&error))?;
                    self.exports.push(export.name.name.to_owned());
                    bounded("exports", self.exports.len() as u64, NAMES_MAX)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn malformed(error: &wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Malformed { offset: error.offset() as u64, what: shown(error.message(), 512) }
}

/// Checks the whole component against the features that are switched on.
pub(crate) fn validate(wasm: &[u8]) -> Result<(), LoadError> {
    // The engine has no garbage collector, so that references to host objects do not exist either.
    let features = WasmFeatures::WASM2
        .difference(WasmFeatures::GC_TYPES)
        .union(WasmFeatures::COMPONENT_MODEL)
        .union(WasmFeatures::EXTENDED_CONST)
        .union(WasmFeatures::MULTI_MEMORY);
    Validator::new_with_features(features).validate_all(wasm).map(|_types| ()).map_err(|error| malformed(&error))
}

/// Names that a user reads, in text that is safe to show.
fn classify(imports: Vec<String>, exports: Vec<String>) -> Result<Scan, LoadError> {
    let mut scan = Scan::default();
    for import in imports {
        if let Some(interface) = import_interface(&import)? {
            scan.interfaces.insert(interface);
        }
        scan.imports.push(import);
    }
    let mut newer = None;
    for export in &exports {
        match contract_name(export) {
            Some((name, Spoken::Ours)) => {
                scan.worlds.extend(World::ALL.into_iter().find(|world| world.as_str() == name));
            }
            Some((_, Spoken::Newer)) => newer = Some(export),
            Some((_, Spoken::Other)) | None => {}
        }
    }
    if scan.worlds.is_empty() {
        return Err(match newer {
            Some(name) => newer_contract(name),
            None => LoadError::NoWorld { exports: exports.iter().take(10).map(|name| shown(name, 128)).collect() },
        });
    }
    scan.exports = exports;
    Ok(scan)
}

/// The interface that an import needs granted; none for one that has only types.
fn import_interface(import: &str) -> Result<Option<Interface>, LoadError> {
    let unknown = || Err(LoadError::UnknownImport { import: shown(import, 256) });
    match contract_name(import) {
        Some(("types", Spoken::Ours)) => return Ok(None),
        Some((name, Spoken::Ours)) => {
            return match Interface::parse(name).filter(|&interface| interface != Interface::Wasi) {
                Some(interface) => Ok(Some(interface)),
                None => unknown(),
            };
        }
        Some((_, Spoken::Newer)) => return Err(newer_contract(import)),
        Some((_, Spoken::Other)) => return unknown(),
        None => {}
    }
    let Some((package, _, version)) = parts(import) else { return unknown() };
    let ours = package.strip_prefix("wasi:").is_some_and(|package| WASI_PACKAGES.contains(&package))
        && (version.major, version.minor) == (0, 2);
    if ours { Ok(Some(Interface::Wasi)) } else { unknown() }
}

fn newer_contract(name: &str) -> LoadError {
    let (major, minor, patch) = contract::VERSION;
    LoadError::NewerContract { name: shown(name, 256), host: format!("{major}.{minor}.{patch}") }
}

/// Version of the contract in a name, seen from this host.
enum Spoken {
    /// This one, or compatible with it.
    Ours,
    /// One that this host does not know yet.
    Newer,
    /// One that it no longer knows.
    Other,
}

/// Interface and version of a name of the contract's package.
fn contract_name(name: &str) -> Option<(&str, Spoken)> {
    let (package, interface, version) = parts(name)?;
    if package != contract::PACKAGE {
        return None;
    }
    let (major, minor, patch) = contract::VERSION;
    let spoken = if (version.major, version.minor) == (major, minor) && version.pre.is_empty() {
        // A later patch of the same minor may use what this host does not have, under names that it knows.
        let known = interface == "types"
            || Interface::parse(interface).is_some()
            || World::ALL.into_iter().any(|world| world.as_str() == interface);
        if known || version.patch <= patch { Spoken::Ours } else { Spoken::Newer }
    } else if (version.major, version.minor) > (major, minor) {
        Spoken::Newer
    } else {
        Spoken::Other
    };
    Some((interface, spoken))
}

/// Splits `package:name/interface@version`.
fn parts(name: &str) -> Option<(&str, &str, Version)> {
    let (path, version) = name.split_once('@')?;
    let (package, interface) = path.split_once('/')?;
    Some((package, interface, Version::parse(version).ok()?))
}
