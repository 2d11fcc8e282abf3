//! What is wrong with a component is found while it is loaded, and each fault has its own name.

use std::collections::BTreeSet;

use barbless_domain::grant::{Grant, Interface};
use barbless_domain::hook::{Binding, Stage};
use barbless_sandbox::{LoadError, PrepareError, World};

use crate::guest::{Guest, component};
use crate::host::{application, load, sandbox};

fn text(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).unwrap_or_else(|error| panic!("{error}"))
}

/// A component with all exports of the contract but this import in addition.
fn importing(name: &str) -> Vec<u8> {
    text(&format!(r#"(component (import "{name}" (instance)))"#))
}

#[test]
fn what_is_wrong_with_a_component_has_a_name() {
    let good = Guest::run("").component();
    let mut cut = good.clone();
    cut.truncate(good.len() / 2);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    for byte in &mut flipped[middle..middle + 8] {
        *byte ^= 0xff;
    }
    let nested = format!("(component {})", "(component)".repeat(1000));
    let functions = format!("(component (core module {}))", "(func)".repeat(1001));
    let no_function = r#"(component (instance $i) (export "barbless:hooks/filter@0.1.0" (instance $i)))"#;
    let wrong_hooks = r#"(component
        (core module $m (func (export "f") (result i32) i32.const 0)) (core instance $c (instantiate $m))
        (func $f (result u32) (canon lift (core func $c "f")))
        (instance $i (export "describe" (func $f)) (export "run" (func $f)))
        (export "barbless:hooks/hooks@0.1.0" (instance $i)))"#;
    let wrong_filter = r#"(component
        (core module $m (func (export "f") (result i32) i32.const 0)) (core instance $c (instantiate $m))
        (func $f (result u32) (canon lift (core func $c "f")))
        (instance $i (export "project" (func $f)))
        (export "barbless:hooks/filter@0.1.0" (instance $i)))"#;
    let wrong_import = r#"(component
        (import "barbless:hooks/clock@0.1.0" (instance (export "now-unix-ms" (func (result string)))))
        (core module $m (func (export "f") (result i32) i32.const 0)) (core instance $c (instantiate $m))
        (func $f (result u32) (canon lift (core func $c "f")))
        (instance $i (export "project" (func $f)))
        (export "barbless:hooks/filter@0.1.0" (instance $i)))"#;
    for (what, wasm, reason) in [
        ("hooks of other types", text(wrong_hooks), "ComponentWrongContract"),
        ("a filter of other types", text(wrong_filter), "ComponentWrongContract"),
        ("an import of other types", text(wrong_import), "ComponentWrongContract"),
        ("nothing", Vec::new(), "ComponentEmpty"),
        ("one byte of the magic", b"\0".to_vec(), "ComponentTruncated"),
        ("the magic", b"\0asm".to_vec(), "ComponentTruncated"),
        ("text", b"#!/bin/sh\necho".to_vec(), "ComponentNotWasm"),
        ("a core module", text("(module)"), "ComponentIsCoreModule"),
        ("half of a component", cut, "ComponentTruncated"),
        ("a damaged component", flipped, "ComponentMalformed"),
        ("more bytes than allowed", [good.clone(), vec![0; 1 << 20]].concat(), "ComponentTooLarge"),
        ("nested components", text(&nested), "ComponentTooLarge"),
        ("functions", text(&functions), "ComponentTooLarge"),
        ("4 GiB of memory", text("(component (core module (memory 65536)))"), "ComponentTooLarge"),
        (
            "many memories",
            text(&format!("(component (core module {}))", "(memory 1)".repeat(100))),
            "ComponentTooLarge",
        ),
        ("a giant table", text("(component (core module (table 1000000000 funcref)))"), "ComponentTooLarge"),
        ("no export", text("(component)"), "ComponentMissingExport"),
        (
            "another world",
            text(r#"(component (instance $i) (export "a:b/c@1.0.0" (instance $i)))"#),
            "ComponentMissingExport",
        ),
        ("an interface without its function", text(no_function), "ComponentWrongContract"),
        ("an unknown package", importing("acme:files/disk@1.0.0"), "ComponentUnknownImport"),
        ("an unknown interface", importing("barbless:hooks/cluster@0.1.0"), "ComponentUnknownImport"),
        ("an old contract", importing("barbless:hooks/log@0.0.9"), "ComponentUnknownImport"),
        ("a function at the top", text(r#"(component (import "f" (func)))"#), "ComponentUnknownImport"),
        ("the http of WASI", importing("wasi:http/types@0.2.3"), "ComponentUnknownImport"),
        ("WASI 0.3", importing("wasi:io/poll@0.3.0"), "ComponentUnknownImport"),
        ("a newer minor", importing("barbless:hooks/log@0.2.0"), "ComponentNewerContract"),
        ("a newer major", importing("barbless:hooks/log@1.0.0"), "ComponentNewerContract"),
        ("a newer patch with something new", importing("barbless:hooks/cluster@0.1.7"), "ComponentNewerContract"),
    ] {
        let error = load(wasm).expect_err(what);
        assert_eq!(error.reason(), reason, "{what}: {error} ({error:?})");
        assert!(!error.hint().is_empty());
        assert!(!error.to_string().ends_with('.'), "{error}");
    }
}

#[test]
fn damage_of_any_kind_is_an_error_or_another_component_but_never_a_panic() {
    let good = Guest::run("call $now drop").component();
    for end in (0..good.len()).step_by(97) {
        let error = load(good[..end].to_vec()).expect_err("the end is missing");
        assert!(!error.reason().is_empty());
    }
    // A fixed sequence of places and bits: a failure can be repeated.
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..60 {
        let mut bad = good.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = usize::try_from(state >> 8).expect("it fits") % bad.len();
            bad[at] ^= 1 << (state & 7);
        }
        if let Err(error) = load(bad) {
            assert!(!error.hint().is_empty());
        }
    }
}

#[test]
fn features_that_are_switched_off_are_malformed() {
    for module in [
        "(memory i64 1)",
        "(memory 1 1 shared)",
        "(tag $t) (func throw $t)",
        "(type $s (struct (field i32)))",
        "(func $f return_call $f)",
        "(func (param externref))",
        "(func (param v128) (drop (i8x16.relaxed_swizzle (local.get 0) (local.get 0))))",
    ] {
        let wat = format!(
            r#"(component (core module {module}) (instance $i) (export "barbless:hooks/filter@0.1.0" (instance $i)))"#
        );
        let error = load(text(&wat)).expect_err(module);
        assert_eq!(error.reason(), "ComponentMalformed", "{module}: {error:?}");
    }
}

#[test]
fn a_component_is_described() {
    // One hook named `check`, bound to `before-helm` with order 10; the rest is zero.
    let describe = "(i32.store (i32.const 128) {&name}) (i32.store (i32.const 132) (i32.const 5))
        (i32.store (i32.const 136) (i32.const 256)) (i32.store (i32.const 140) (i32.const 1))
        (i32.store8 (i32.const 256) (i32.const 1)) (i32.store (i32.const 260) (i32.const 10))
        i32.const 1 {name} i32.const 0 i32.const 0 call $log
        (i32.store (i32.const 64) (i32.const 128)) (i32.store (i32.const 68) (i32.const 1)) i32.const 64";
    let wasm = Guest::run("").describe(describe).text("name", "check").component();
    let component = load(wasm.clone()).expect("it loads");
    assert_eq!(component.hooks().len(), 1);
    assert_eq!(component.hooks()[0].name, "check");
    assert_eq!(component.hooks()[0].queue, "main");
    assert_eq!(component.hooks()[0].bindings, [Binding::Lifecycle { stage: Stage::BeforeHelm, order: 10 }]);
    assert_eq!(component.describe_log()[0].message, "check");
    assert_eq!(component.size(), wasm.len() as u64);
    assert!(component.digest().starts_with("sha256:") && component.digest().len() == 71);
    assert!(component.has(World::Hooks) && !component.has(World::Filter));
    assert!(component.imports().contains(&"barbless:hooks/log@0.1.0".to_owned()));
    assert_eq!(component.interfaces(), &BTreeSet::from([Interface::Log, Interface::PatchCollector]));
    assert_eq!(component.exports(), ["barbless:hooks/hooks@0.1.0"]);

    let twice = describe.replace("(i32.const 68) (i32.const 1)", "(i32.const 68) (i32.const 1000000)");
    let flood = Guest::run("").describe(&twice).text("name", "check");
    assert_eq!(load(flood.component()).expect_err("too many").reason(), "ComponentDescribeFailed");
    let bad = Guest::run("").describe(describe).text("name", "a b c");
    assert_eq!(load(bad.component()).expect_err("a bad name").reason(), "ComponentBadDeclaration");
}

#[test]
fn describe_sees_nothing_but_the_log() {
    for call in [
        "call $now drop",
        "call $next_u64 drop",
        "{text} i32.const 64 call $values_get",
        "{text} i32.const 64 call $settings_get",
        "{text} i32.const 64 call $open",
        "i32.const 64 call $current",
        "{text} f64.const 1 i32.const 0 i32.const 0 call $counter",
    ] {
        let guest = Guest::run("").describe(&format!("{call} i32.const 0")).text("text", "a");
        let error = load(guest.component()).expect_err(call);
        let LoadError::Describe { end, .. } = &error else { panic!("{call}: {error:?}") };
        assert_eq!(end.reason(), "HookDenied", "{call}");
    }
}

#[test]
fn an_import_that_is_not_granted_is_named_with_its_grant() {
    let component = load(Guest::run("call $now drop").component()).expect("it loads");
    let error = sandbox().prepare(&component, &application(), &Grant::none()).expect_err("nothing is granted");
    assert_eq!(error.reason(), "InterfaceNotGranted");
    let PrepareError::NotGranted { import, denial } = &error else { panic!("{error:?}") };
    assert_eq!(import, "barbless:hooks/clock@0.1.0");
    assert_eq!(denial.reason, "InterfaceNotGranted");
    assert!(error.hint().contains("'clock'"), "{}", error.hint());
    let clock =
        Grant { interfaces: BTreeSet::from([Interface::PatchCollector, Interface::Clock]), permissions: Vec::new() };
    assert!(sandbox().prepare(&component, &application(), &clock).is_ok());
}

/// The property that no host function is without a policy: every import of the contract's worlds is an interface that
/// a grant can name, and the other way round.
#[test]
fn every_interface_of_the_contract_has_a_policy() {
    let mut resolve = wit_parser::Resolve::default();
    let wit = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(wit).expect("the contract parses");
    let mut functions = 0;
    let mut imported = BTreeSet::new();
    for (_, world) in resolve.packages[package].worlds.iter() {
        for item in resolve.worlds[*world].imports.values() {
            let wit_parser::WorldItem::Interface { id, .. } = item else {
                panic!("an import of a world is no interface: grants cannot name it");
            };
            let interface = &resolve.interfaces[*id];
            let name = interface.name.clone().expect("interfaces of a package have names");
            if interface.functions.is_empty() && name == "types" {
                continue;
            }
            functions += interface.functions.len();
            let policy = Interface::parse(&name);
            assert!(policy.is_some(), "interface '{name}' has no entry in domain::grant::Interface");
            imported.insert(policy.expect("just checked"));
        }
    }
    assert!(functions >= 27, "{functions}");
    let all: BTreeSet<Interface> =
        Interface::ALL.into_iter().filter(|&interface| interface != Interface::Wasi).collect();
    assert_eq!(imported, all, "an entry of domain::grant::Interface is no interface of the contract");
}

#[test]
fn a_later_patch_of_the_contract_is_the_same_contract() {
    let later = |version: &str| {
        text(&format!(
            r#"(component
            (import "barbless:hooks/clock@{version}" (instance $c (export "now-unix-ms" (func (result u64)))))
            (core module $m (memory (export "m") 1)
                (func (export "r") (param i32 i32 i32 i32) (result i32) i32.const 64)
                (func (export "f") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 16))
            (core instance $i (instantiate $m))
            (func $f (param "hook" string) (param "binding" string) (param "object" string)
                (result (result string (error string)))
                (canon lift (core func $i "f") (memory (core memory $i "m")) (realloc (core func $i "r"))))
            (instance $e (export "project" (func $f)))
            (export "barbless:hooks/filter@{version}" (instance $e)))"#
        ))
    };
    for version in ["0.1.0", "0.1.7"] {
        let component = load(later(version)).unwrap_or_else(|error| panic!("{version}: {error:?}"));
        assert!(component.has(World::Filter));
        let grant = Grant::with(Vec::new());
        assert!(sandbox().prepare(&component, &application(), &grant).is_ok(), "{version}");
    }
}

#[test]
fn names_in_errors_cannot_move_the_cursor() {
    let module = wat::parse_str("(module)").expect("it parses");
    assert!(load(module).is_err());
    let error = load(component_with_name("a\u{1b}[2J")).expect_err("the name is not valid");
    assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
}

/// A component that imports something of this name, however wrong it is.
fn component_with_name(name: &str) -> Vec<u8> {
    let mut wasm = importing("aaaaa");
    let at = wasm.windows(5).position(|window| window == b"aaaaa").expect("the name is in there");
    wasm.splice(at..at + 5, name.bytes());
    wasm
}

#[test]
fn the_core_module_of_a_guest_is_a_core_module() {
    let guest = Guest::run("");
    assert_eq!(load(guest.module()).expect_err("it is a core module").reason(), "ComponentIsCoreModule");
    assert!(load(component(&guest.module(), "hook-component")).is_ok());
}
