//! What can be tested without a compiler for wasm, and, where there is one, a build of real crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::*;

#[test]
fn the_names_of_a_manifest_are_found_whatever_else_stands_in_it() {
    let names = |text| manifest::names(text).map(|names| (names.package, names.library));
    let pair = |package: &str, library: &str| Some((package.to_owned(), library.to_owned()));
    assert_eq!(names("[package]\nname = \"my-hooks\" # comment"), pair("my-hooks", "my_hooks"));
    assert_eq!(names("[lib]\nname='x'\n[package]\nversion = \"1\"\n  name=\"y\""), pair("y", "x"));
    assert_eq!(names("[dependencies]\nname = \"other\"\n[package]\nname = \"z\""), pair("z", "z"));
    assert_eq!(names("[[bin]]\nname = \"tool\""), None);
    assert_eq!(names("[package]\nname = \"../../etc/passwd\""), None);
    assert_eq!(names("[package]\nname = \"\""), None);
    assert_eq!(names(""), None);
}

#[test]
fn the_folders_of_path_dependencies_are_found() {
    let text = "[dependencies]\na = { path = \"../a\", version = \"1\" }\n# b = { path = \"../b\" }\n\
                c = \"1\"\n[dependencies.d]\npath = '../d'\n";
    assert_eq!(manifest::paths(text), ["../a", "../d"]);
}

#[test]
fn a_dependency_file_gives_the_sources_of_the_module() {
    let note = "/t/libx.rlib: /a.rs\n/t/x.wasm: /w/my\\ app/lib.rs /w/b.rs\n";
    assert_eq!(sources::dependencies(note), Some(vec![PathBuf::from("/w/my app/lib.rs"), PathBuf::from("/w/b.rs")]));
    assert_eq!(sources::dependencies("/t/libx.rlib: /a.rs"), None);
    assert_eq!(sources::dependencies(""), None);
}

fn set_age(path: &Path, age_s: u64) {
    let modified = SystemTime::now() - Duration::from_secs(age_s);
    fs::File::options().write(true).open(path).and_then(|file| file.set_modified(modified)).expect("a time");
}

#[test]
fn a_component_is_up_to_date_until_a_source_is_as_new() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path();
    let write_text = |path: &str, text: &str, age_s: u64| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("not the root")).expect("a folder");
        fs::write(&path, text).expect("a file");
        set_age(&path, age_s);
    };
    let write = |path: &str, age_s: u64| write_text(path, "x", age_s);
    let names = manifest::names("[package]\nname = \"x\"").expect("names");
    let check = || sources::is_up_to_date(&dir.join("x.wasm"), dir, &dir.join("target"), &names);
    write("Cargo.toml", 100);
    write("src/deep/lib.rs", 100);
    assert!(!check(), "there is no component");
    write("x.wasm", 50);
    assert!(check());
    write("src/deep/lib.rs", 10);
    assert!(!check(), "a source is newer");
    write("x.wasm", 5);
    assert!(check());
    write_text("Cargo.toml", "[dependencies]\ny = { path = \"sdk\" }\n", 100);
    write("sdk/src/lib.rs", 10);
    assert!(check());
    write("sdk/src/lib.rs", 2);
    assert!(!check(), "a path dependency is newer");
    write("sdk/src/lib.rs", 10);
    write("Cargo.lock", 1);
    assert!(!check(), "the lock file is newer");
    write("x.wasm", 0);

    // With a note of the compiler, what it names counts, and what is gone is a change.
    let dependency = dir.join("dependency.rs");
    fs::create_dir_all(dir.join("target/wasm32-unknown-unknown/release")).expect("a folder");
    let note = format!("/t/x.wasm: {}\n", dependency.display());
    fs::write(dir.join("target/wasm32-unknown-unknown/release/x.d"), note).expect("a file");
    assert!(!check(), "the dependency is gone");
    write("dependency.rs", 10);
    assert!(check());
}

#[test]
fn the_module_is_found_among_the_messages_of_cargo() {
    let manifest = Path::new("/x/Cargo.toml");
    let message = |reason: &str, path: &str, file: &str| {
        serde_json::json!({"reason": reason, "manifest_path": path, "filenames": ["/t/libx.rlib", file]}).to_string()
    };
    let find = |message: String| cargo::module_in(message.as_bytes(), manifest);
    let artifact = "compiler-artifact";
    assert_eq!(find(message(artifact, "/x/Cargo.toml", "/t/x.wasm")), Some(PathBuf::from("/t/x.wasm")));
    assert_eq!(find(message(artifact, "/y/Cargo.toml", "/t/y.wasm")), None);
    assert_eq!(find(message("build-script-executed", "/x/Cargo.toml", "/t/x.wasm")), None);
    assert_eq!(find(message(artifact, "/x/Cargo.toml", "/t/x.so")), None);
    assert_eq!(find("no JSON".to_owned()), None);
}

#[test]
fn of_a_long_output_the_beginning_and_the_end_are_kept() {
    let mut excerpt = cargo::Excerpt::default();
    excerpt.add(b"first error\n");
    for _ in 0..10_000 {
        excerpt.add(b"noise noise noise\n");
    }
    excerpt.add(b"aborting");
    let text = excerpt.into_text();
    assert!(text.starts_with("first error\n") && text.ends_with("aborting"));
    assert!(text.contains("bytes left out"));
    assert!(text.len() < 20 << 10);

    let mut short = cargo::Excerpt::default();
    short.add(b"short");
    assert_eq!(short.into_text(), "short");
}

#[test]
fn a_module_without_a_world_is_no_component() {
    let empty = b"\0asm\x01\0\0\0";
    assert!(matches!(component::encode("x", empty), Err(BuildError::NoHooks { .. })));
    let error = component::encode("x", b"no wasm").expect_err("no wasm");
    assert_eq!(error.reason(), "ComponentEncodingFailed");
    assert!(error.detail().is_some_and(|detail| !detail.is_empty()));
}

#[test]
fn a_component_is_put_in_place_whole_and_nothing_is_left_behind() {
    let root = tempfile::tempdir().expect("a folder");
    let out = root.path().join("x.wasm");
    let begun_at = SystemTime::now() - Duration::from_secs(60);
    component::put(&out, b"one", begun_at).expect("written");
    component::put(&out, b"two", begun_at).expect("written again");
    assert_eq!(fs::read(&out).expect("read"), b"two");
    assert!(fs::metadata(&out).and_then(|it| it.modified()).expect("a time") <= begun_at + Duration::from_millis(1));
    assert_eq!(fs::read_dir(root.path()).expect("read").count(), 1);
    let missing = root.path().join("missing/x.wasm");
    assert_eq!(component::put(&missing, b"x", begun_at).expect_err("no folder").reason(), "BuildOutputUnwritable");
}

#[test]
fn without_any_toolchain_the_error_says_what_was_tried_and_what_to_install() {
    let error = BuildError::NoToolchain {
        tried: vec![Tried { toolchain: "rustc on the search path".to_owned(), problem: "no rustc".to_owned() }],
    };
    assert_eq!(error.detail().as_deref(), Some("rustc on the search path: no rustc"));
    let hint = error.hint().expect("a hint");
    assert!(hint.contains("rustup target add") && hint.contains("apt-get install"));
}

#[test]
fn a_folder_without_crates_has_nothing_to_build() {
    let root = tempfile::tempdir().expect("a folder");
    assert!(!has_sources(root.path()));
    assert_eq!(build_package(root.path(), &Options::default()).expect("nothing to do"), []);
    fs::create_dir_all(root.path().join("hooks/empty")).expect("a folder");
    assert_eq!(build_package(root.path(), &Options::default()).expect("nothing to do"), []);
    let missing = root.path().join("missing");
    assert_eq!(build_package(&missing, &Options::default()).expect_err("no folder").reason(), "BuildInputUnreadable");
}

/// A package with one crate, and a toolchain whose cargo is a shell script.
struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    fn new(cargo: &str) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let fixture = Self { root };
        let libraries = fixture.path("libraries");
        fixture.write("package/hooks/x/Cargo.toml", "[package]\nname = \"x-hooks\"\n");
        fixture.write("package/hooks/x/src/lib.rs", "");
        fixture.write("libraries/libcore-0.rlib", "");
        fixture.script("bin/rustc", &format!("echo {}", libraries.display()));
        fixture.script("bin/cargo", cargo);
        fixture
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn write(&self, relative: &str, text: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("not the root")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn script(&self, relative: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(relative, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(relative), fs::Permissions::from_mode(0o755)).expect("an executable");
    }

    fn build(&self, change: impl FnOnce(&mut Options)) -> Result<Vec<Built>, BuildError> {
        let mut options = Options { search_path: Some(self.path("bin").into()), ..Options::default() };
        change(&mut options);
        build_package(&self.path("package"), &options)
    }
}

/// A module for the world `health-assessor`, as a compiler would make it.
fn module() -> Vec<u8> {
    let mut module = wat::parse_str(
        r#"(module
            (memory (export "memory") 1)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 8)
            (func (export "barbless:hooks/assess-health@0.1.0#assess") (param i32 i32) (result i32) i32.const 64))"#,
    )
    .expect("a module");
    let mut resolve = wit_parser::Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let (package, _) = resolve.push_dir(&wit).expect("the contract");
    let world = resolve.select_world(&[package], Some("health-assessor")).expect("the world");
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8)
        .expect("metadata");
    module
}

/// A cargo that puts the module at its place and says so.
const GOOD_CARGO: &str = r#"
cp "$(dirname "$0")/module.wasm" "$(dirname "$0")/made.wasm"
echo "$@" > "$(dirname "$0")/arguments"
echo '{"reason":"compiler-artifact","manifest_path":"'$PWD'/Cargo.toml","filenames":["'$(dirname "$0")'/made.wasm"]}'"#;

#[test]
fn a_crate_becomes_a_component_once() {
    let fixture = Fixture::new(GOOD_CARGO);
    fixture.write("bin/module.wasm", module());
    for source in ["package/hooks/x/Cargo.toml", "package/hooks/x/src/lib.rs"] {
        set_age(&fixture.path(source), 10);
    }
    assert!(has_sources(&fixture.path("package")));
    let [built] = &fixture.build(|_| {}).expect("built")[..] else { panic!("one component") };
    let component = fs::read(fixture.path("package/hooks/x-hooks.wasm")).expect("the component");
    assert_eq!((built.name.as_str(), built.bytes, built.skipped), ("x-hooks", component.len() as u64, false));
    assert_eq!(component.get(4..8), Some(&[0x0d, 0, 1, 0][..]), "a component and not a module");
    assert_eq!(built.digest.len(), "sha256:".len() + 64);
    let arguments = fs::read_to_string(fixture.path("bin/arguments")).expect("arguments");
    assert!(arguments.contains("--target wasm32-unknown-unknown") && !arguments.contains("build-std"), "{arguments}");

    // Up to date, so not even a toolchain is needed.
    let again = fixture.build(|options| options.search_path = Some("".into())).expect("up to date");
    assert!(again[0].skipped);
    assert_eq!(again[0].digest, built.digest);
    assert!(!fixture.build(|options| options.force = true).expect("built")[0].skipped);
    // The clock of a file system is coarse: what is written in the same tick may look older.
    set_age(&fixture.path("package/hooks/x-hooks.wasm"), 1);
    fixture.write("package/hooks/x/src/lib.rs", "// changed");
    assert!(!fixture.build(|_| {}).expect("built")[0].skipped);
}

#[test]
fn a_crate_that_does_not_compile_shows_what_the_compiler_said() {
    let fixture = Fixture::new("echo 'error: expected one of' >&2; exit 101");
    match fixture.build(|_| {}).expect_err("it does not compile") {
        BuildError::Compile { name, output, status } => {
            assert_eq!((name.as_str(), output.trim(), status.code()), ("x-hooks", "error: expected one of", Some(101)));
        }
        other => panic!("{other}"),
    }
    assert!(!fixture.path("package/hooks/x-hooks.wasm").exists());
}

#[test]
fn a_compiler_that_hangs_is_stopped() {
    let fixture = Fixture::new("exec sleep 60");
    let begun = Instant::now();
    let error = fixture.build(|options| options.timeout = Some(Duration::from_millis(200))).expect_err("it hangs");
    assert_eq!(error.reason(), "HookBuildTimedOut");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_crate_without_a_module_says_what_is_missing() {
    let fixture = Fixture::new("exit 0");
    let error = fixture.build(|_| {}).expect_err("no module");
    assert_eq!(error.reason(), "HookModuleMissing");
    assert!(error.hint().is_some_and(|hint| hint.contains("cdylib")));
}

#[test]
fn a_toolchain_without_the_target_is_not_taken() {
    let fixture = Fixture::new("exit 0");
    fs::remove_file(fixture.path("libraries/libcore-0.rlib")).expect("removed");
    // What the system has besides decides whether another toolchain is found.
    match toolchain::find(&fixture.path("package"), fixture.path("bin").as_os_str()) {
        Ok(Toolchain::FromSource { cargo, .. }) => assert_eq!(cargo, Path::new("/usr/bin/cargo")),
        Ok(other) => panic!("{other:?}"),
        Err(error) => assert!(error.detail().is_some_and(|tried| tried.contains("no standard library")), "{error}"),
    }
}
