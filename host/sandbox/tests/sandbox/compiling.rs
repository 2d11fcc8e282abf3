//! The child process that compiles, and the folder of what it made.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use barbless_domain::limits::GuestLimits;
use barbless_sandbox::{Compiler, Config, LoadError, Sandbox};

use crate::guest::Guest;
use crate::host::{config, limits, wait};

fn child() -> Compiler {
    Compiler::Child { program: PathBuf::from(env!("CARGO_BIN_EXE_sandbox-compiler")), args: Vec::new() }
}

fn program(program: &str, args: &[&str]) -> Compiler {
    Compiler::Child { program: PathBuf::from(program), args: args.iter().map(OsString::from).collect() }
}

fn sandbox(compiler: Compiler, limits: GuestLimits, cache: Option<&Path>) -> Sandbox {
    // Without a pool: many small sandboxes, each for one question.
    let config = Config { limits, pooling: false, cache: cache.map(Path::to_owned), ..config(compiler) };
    Sandbox::new(config).expect("the sandbox can be made")
}

/// A component whose only function keeps the compiler busy: a chain of blocks whose values all meet.
fn bomb(blocks: usize) -> Vec<u8> {
    let mut body = String::new();
    for number in 0..blocks {
        let _ = write!(
            body,
            "(if (local.get {0}) (then (local.set {1} (i32.add (local.get {0}) (local.get {1})))))",
            number % 500,
            (number * 7 + 1) % 500
        );
    }
    let locals = "(local i32)".repeat(500);
    Guest::run("").extra(&format!("(func (export \"bomb\") {locals} (loop $l {body} (br $l)))")).component()
}

#[test]
fn a_child_compiles_what_the_host_can_load() {
    let sandbox = sandbox(child(), limits(), None);
    assert!(wait(sandbox.load(Guest::run("").component())).is_ok());
}

#[test]
fn a_compile_bomb_is_killed_within_its_limits() {
    let wasm = bomb(20_000);
    let big = GuestLimits { component_bytes: 8 << 20, ..limits() };
    let started = Instant::now();
    let wall = sandbox(child(), GuestLimits { compile_wall_ms: 300, ..big.clone() }, None);
    let error = wait(wall.load(wasm.clone())).expect_err("it takes too long");
    assert!(matches!(error, LoadError::CompileTime { clock: "wall-clock", .. }), "{error:?}");
    let cpu = sandbox(child(), GuestLimits { compile_cpu_s: 1, ..big.clone() }, None);
    let error = wait(cpu.load(wasm)).expect_err("it takes too much");
    assert!(matches!(error, LoadError::CompileTime { clock: "CPU", limit_s: 1 }), "{error:?}");
    // Without limits it takes minutes; a second of CPU time takes a while where others want the processor too.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    // Each function is tiny, and costs the compiler some kilobytes.
    let many = Guest::run("").extra(&"(func (param i32) (result i32) local.get 0)".repeat(20_000)).component();
    let big = GuestLimits { component_functions: 30_000, compile_memory_bytes: 64 << 20, ..big };
    let error = wait(sandbox(child(), big, None).load(many)).expect_err("it needs more");
    assert!(matches!(error, LoadError::CompilerDied { .. }), "{error:?}");
}

#[test]
fn a_compiler_that_is_broken_is_no_fault_of_the_component() {
    for compiler in
        [program("/nonexistent/compiler", &[]), program("/bin/false", &[]), program("/bin/sh", &["-c", "exit 7"])]
    {
        let error = wait(sandbox(compiler.clone(), limits(), None).load(Guest::run("").component()));
        assert_eq!(error.expect_err("it does not work").reason(), "CompilerUnavailable", "{compiler:?}");
    }
    let silent = program("/bin/true", &[]);
    let error = wait(sandbox(silent, limits(), None).load(Guest::run("").component())).expect_err("nothing was made");
    assert_eq!(error.reason(), "ComponentNotLoaded", "{error:?}");
    let dying = program("/bin/sh", &["-c", "kill -ABRT $$"]);
    let error = wait(sandbox(dying, limits(), None).load(Guest::run("").component())).expect_err("it dies");
    assert!(matches!(error, LoadError::CompilerDied { signal: 6, .. }), "{error:?}");
    let endless = GuestLimits { compile_wall_ms: 5_000, ..limits() };
    let loud = program("/bin/sh", &["-c", "exec cat /dev/zero"]);
    let started = Instant::now();
    assert!(wait(sandbox(loud, endless, None).load(Guest::run("").component())).is_err());
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The one entry of a cache folder.
fn entry(folder: &Path) -> PathBuf {
    let entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
        .collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.into_iter().next().expect("there is one")
}

#[test]
fn the_cache_spares_the_compiler_but_trusts_only_its_own_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("compiled");
    let wasm = Guest::run("").component();
    let none = program("/nonexistent/compiler", &[]);
    let load = |compiler: &Compiler| wait(sandbox(compiler.clone(), limits(), Some(&cache)).load(wasm.clone()));
    assert!(load(&none).is_err());
    assert!(load(&Compiler::InProcess).is_ok());
    assert!(load(&none).is_ok(), "the second time it is in the cache");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&cache), 0o700);
    assert_eq!(mode(&cache.join("key")), 0o600);
    let path = entry(&cache);
    assert_eq!(mode(&path), 0o600);

    // Every kind of damage is found; nothing but a new compilation helps.
    let good = std::fs::read(&path).expect("it can be read");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let mut other_end = good.clone();
    *other_end.last_mut().expect("it is not empty") ^= 1;
    let unsigned = good[..good.len() - 32].to_vec();
    for bad in [Vec::new(), vec![0; 31], vec![0; 100], flipped, other_end, unsigned, good[..100].to_vec()] {
        replace(&path, &bad);
        assert!(load(&none).is_err(), "{} bytes were trusted", bad.len());
    }
    assert!(load(&Compiler::InProcess).is_ok());
    assert!(load(&none).is_ok());

    // An entry under the name of another component.
    let other = Guest::run("call $now drop").component();
    let digest = sha256(&other);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let foreign = cache.join(format!("{digest}{}", &name[64..]));
    std::fs::copy(&path, &foreign).expect("it can be copied");
    assert!(wait(sandbox(none.clone(), limits(), Some(&cache)).load(other)).is_err());
    std::fs::remove_file(&foreign).expect("it can be removed");

    // Another key: the folder of another host.
    replace(&cache.join("key"), &[9; 32]);
    assert!(load(&none).is_err());
}

/// Replaces a file as another process would: the old content may be mapped.
fn replace(path: &Path, content: &[u8]) {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, content).expect("it can be written");
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600)).expect("it can be closed");
    std::fs::rename(&temporary, path).expect("it can be renamed");
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn a_folder_that_others_can_read_is_closed_and_an_open_key_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("it can be opened");
    let _first = sandbox(Compiler::InProcess, limits(), Some(folder.path()));
    assert_eq!(std::fs::metadata(folder.path()).expect("it is there").permissions().mode() & 0o777, 0o700);
    let key = folder.path().join("key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("it can be opened");
    let config = Config { pooling: false, cache: Some(folder.path().to_owned()), ..config(Compiler::InProcess) };
    let error = Sandbox::new(config).map(|_| ()).expect_err("the key is open");
    assert_eq!(error.reason(), "SandboxCache");
}

#[test]
fn several_sandboxes_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let sandbox = sandbox(Compiler::InProcess, limits(), Some(folder.path()));
                    wait(sandbox.load(Guest::run("").component())).map(|_| ())
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().expect("it does not panic").is_ok());
        }
    });
    entry(folder.path());
    let sandbox = sandbox(program("/nonexistent/compiler", &[]), limits(), Some(folder.path()));
    assert!(wait(sandbox.load(Guest::run("").component())).is_ok());
}
