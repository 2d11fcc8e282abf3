//! Makes small guests: a body in the text format, the imports that it names, and the text that it uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Imports by the name that bodies call them by: interface, function, type in the core.
const IMPORTS: &[(&str, &str, &str, &str)] = &[
    ("log", "log", "write", "(param i32 i32 i32 i32 i32)"),
    ("report_panic", "log", "report-panic", "(param i32 i32 i32 i32)"),
    ("create", "patch-collector", "[method]patch-collector.create", "(param i32 i32 i32 i32 i32 i32 i32)"),
    ("apply", "patch-collector", "[method]patch-collector.apply", "(param i32 i32 i32 i32 i32 i32 i32)"),
    (
        "merge_patch",
        "patch-collector",
        "[method]patch-collector.merge-patch",
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)",
    ),
    (
        "json_patch",
        "patch-collector",
        "[method]patch-collector.json-patch",
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)",
    ),
    (
        "jq_patch",
        "patch-collector",
        "[method]patch-collector.jq-patch",
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)",
    ),
    (
        "delete",
        "patch-collector",
        "[method]patch-collector.delete",
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)",
    ),
    ("drop_patches", "patch-collector", "[resource-drop]patch-collector", "(param i32)"),
    ("open", "snapshots", "open", "(param i32 i32 i32)"),
    ("changed", "snapshots", "changed", "(result i32)"),
    ("snapshot_len", "snapshots", "[method]snapshot.len", "(param i32) (result i32)"),
    ("snapshot_at", "snapshots", "[method]snapshot.at", "(param i32 i32 i32)"),
    ("snapshot_json", "snapshots", "[method]snapshot.json", "(param i32 i32)"),
    ("item_name", "snapshots", "[method]item.name", "(param i32 i32)"),
    ("item_get", "snapshots", "[method]item.get", "(param i32 i32 i32 i32)"),
    ("item_object", "snapshots", "[method]item.object", "(param i32 i32)"),
    ("drop_item", "snapshots", "[resource-drop]item", "(param i32)"),
    ("drop_snapshot", "snapshots", "[resource-drop]snapshot", "(param i32)"),
    ("values_get", "values", "get", "(param i32 i32 i32)"),
    ("values_set", "values", "set", "(param i32 i32 i32 i32 i32)"),
    ("values_remove", "values", "remove", "(param i32 i32 i32)"),
    ("settings_get", "settings", "get", "(param i32 i32 i32)"),
    ("current", "instance", "current", "(param i32)"),
    ("counter", "metrics", "counter-add", "(param i32 i32 f64 i32 i32)"),
    ("gauge", "metrics", "gauge-set", "(param i32 i32 f64 i32 i32)"),
    ("histogram", "metrics", "histogram-observe", "(param i32 i32 f64 i32 i32)"),
    ("now", "clock", "now-unix-ms", "(result i64)"),
    ("next_u64", "random", "next-u64", "(result i64)"),
    ("get_stdout", "wasi:cli/stdout@0.2.3", "get-stdout", "(result i32)"),
    ("print", "wasi:io/streams@0.2.3", "[method]output-stream.blocking-write-and-flush", "(param i32 i32 i32 i32)"),
    ("wasi_exit", "wasi:cli/exit@0.2.3", "exit", "(param i32)"),
    ("environment", "wasi:cli/environment@0.2.3", "get-environment", "(param i32)"),
    ("arguments", "wasi:cli/environment@0.2.3", "get-arguments", "(param i32)"),
    ("directories", "wasi:filesystem/preopens@0.2.3", "get-directories", "(param i32)"),
    ("wall_now", "wasi:clocks/wall-clock@0.2.3", "now", "(param i32)"),
    ("after", "wasi:clocks/monotonic-clock@0.2.3", "subscribe-duration", "(param i64) (result i32)"),
    ("block", "wasi:io/poll@0.2.3", "[method]pollable.block", "(param i32)"),
    ("wasi_u64", "wasi:random/random@0.2.3", "get-random-u64", "(result i64)"),
    ("wasi_bytes", "wasi:random/random@0.2.3", "get-random-bytes", "(param i64 i32)"),
    ("random_bytes", "random", "bytes", "(param i32 i32)"),
];

/// The part of WASI 0.2 that guests of these tests use, and a world with it.
const WASI: &str = r#"
package test:guests;

world wasi-hook {
    include barbless:hooks/hook-component@0.1.0;
    import wasi:cli/stdout@0.2.3;
    import wasi:cli/exit@0.2.3;
    import wasi:cli/environment@0.2.3;
    import wasi:filesystem/preopens@0.2.3;
    import wasi:clocks/wall-clock@0.2.3;
    import wasi:clocks/monotonic-clock@0.2.3;
    import wasi:random/random@0.2.3;
}

package wasi:io@0.2.3 {
    interface error { resource error; }
    interface poll { resource pollable { block: func(); } }
    interface streams {
        use error.{error};
        variant stream-error { last-operation-failed(error), closed }
        resource output-stream {
            blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
        }
    }
}
package wasi:cli@0.2.3 {
    interface stdout {
        use wasi:io/streams@0.2.3.{output-stream};
        get-stdout: func() -> output-stream;
    }
    interface exit { exit: func(status: result); }
    interface environment {
        get-environment: func() -> list<tuple<string, string>>;
        get-arguments: func() -> list<string>;
    }
}
package wasi:filesystem@0.2.3 {
    interface types { resource descriptor; }
    interface preopens {
        use types.{descriptor};
        get-directories: func() -> list<tuple<descriptor, string>>;
    }
}
package wasi:clocks@0.2.3 {
    interface wall-clock {
        record datetime { seconds: u64, nanoseconds: u32 }
        now: func() -> datetime;
    }
    interface monotonic-clock {
        use wasi:io/poll@0.2.3.{pollable};
        subscribe-duration: func(when: u64) -> pollable;
    }
}
package wasi:random@0.2.3 {
    interface random {
        get-random-bytes: func(len: u64) -> list<u8>;
        get-random-u64: func() -> u64;
    }
}
"#;

/// Where the text of guests begins; below are the areas that bodies write results to.
const TEXT: usize = 1024;
/// Where the memory that bodies get from `cabi_realloc` begins.
const HEAP: usize = 32 * 1024;

/// A guest in the making.
#[derive(Clone)]
pub(crate) struct Guest {
    world: &'static str,
    pages: u32,
    body: String,
    extra: String,
    describe: String,
    texts: BTreeMap<String, String>,
}

impl Guest {
    /// A guest whose hook runs this body. `{name}` in it stands for address and length of a text, `$patches` for the
    /// collector. What the body leaves is ignored: the hook returns well.
    pub(crate) fn run(body: &str) -> Self {
        Self {
            world: "hook-component",
            pages: 1,
            // A borrowed handle must be given back before the call returns.
            body: format!("{body} local.get $patches call $drop_patches i32.const 16"),
            extra: String::new(),
            describe: "i32.const 0".to_owned(),
            texts: BTreeMap::new(),
        }
    }

    /// A guest of another world, with all of its exports in `extra`.
    pub(crate) fn of(world: &'static str, extra: &str) -> Self {
        Self { world, body: String::new(), extra: extra.to_owned(), ..Self::run("") }
    }

    /// The same with WASI in its world.
    pub(crate) fn wasi(self) -> Self {
        Self { world: "wasi-hook", ..self }
    }

    /// The body gives the address of the result itself.
    pub(crate) fn raw(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// Names a text.
    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        self.texts.insert(name.to_owned(), text.to_owned());
        self
    }

    /// Further definitions of the module.
    pub(crate) fn extra(mut self, extra: &str) -> Self {
        self.extra.push_str(extra);
        self
    }

    /// Body of `describe`, which gives the address of address and length of the list.
    pub(crate) fn describe(mut self, body: &str) -> Self {
        body.clone_into(&mut self.describe);
        self
    }

    /// Pages of memory at the start.
    pub(crate) fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    /// The module in the text format.
    pub(crate) fn wat(&self) -> String {
        let mut data = String::new();
        let mut at = TEXT;
        let (mut body, mut extra, mut describe) = (self.body.clone(), self.extra.clone(), self.describe.clone());
        for (name, text) in &self.texts {
            let place = format!("i32.const {at} i32.const {}", text.len());
            for code in [&mut body, &mut extra, &mut describe] {
                *code = code.replace(&format!("{{{name}}}"), &place);
                *code = code.replace(&format!("{{&{name}}}"), &format!("i32.const {at}"));
            }
            let bytes = text.bytes().fold(String::new(), |mut all, byte| {
                let _ = write!(all, "\\{byte:02x}");
                all
            });
            let _ = writeln!(data, "(data (i32.const {at}) \"{bytes}\")");
            at = (at + text.len()).next_multiple_of(8);
        }
        let heap = at.max(HEAP).next_multiple_of(16);
        let pages = self.pages.max(u32::try_from(heap / 65536).unwrap() + 1);
        let code = format!("{body} {extra} {describe}");
        let mut imports = String::new();
        for (name, interface, function, signature) in IMPORTS {
            if code
                .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
                .any(|word| word == format!("${name}"))
            {
                let module = match interface.contains(':') {
                    true => (*interface).to_owned(),
                    false => format!("barbless:hooks/{interface}@0.1.0"),
                };
                let _ = writeln!(imports, r#"(import "{module}" "{function}" (func ${name} {signature}))"#);
            }
        }
        let hooks = if matches!(self.world, "hook-component" | "wasi-hook") {
            format!(
                r#"(func (export "barbless:hooks/hooks@0.1.0#describe") (result i32) {describe})
                (func (export "barbless:hooks/hooks@0.1.0#run")
                    (param $hook i32) (param $hook_len i32) (param $trigger i32) (param $t1 i32) (param $t2 i32)
                    (param $attempt i32) (param $dry i32) (param $patches i32) (result i32)
                    (local $i i32) (local $n i32) (local $x i64)
                    {body})"#
            )
        } else {
            String::new()
        };
        format!(
            r#"(module
                {imports}
                (memory (export "memory") {pages})
                (global $heap (mut i32) (i32.const {heap}))
                (func $alloc (export "cabi_realloc") (param $old i32) (param $old_len i32) (param $align i32) (param $len i32)
                    (result i32) (local $at i32)
                    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
                    (global.set $heap (i32.add (local.get $at) (local.get $len)))
                    (block $enough
                        (loop $more
                            (br_if $enough (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                            (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))
                            unreachable))
                    local.get $at)
                {extra}
                {hooks}
                {data})"#
        )
    }

    /// The core module.
    pub(crate) fn module(&self) -> Vec<u8> {
        let wat = self.wat();
        wat::parse_str(&wat).unwrap_or_else(|error| panic!("{error}\n{wat}"))
    }

    /// The component.
    pub(crate) fn component(&self) -> Vec<u8> {
        let module = self.module();
        component(&module, self.world)
    }
}

/// Wraps a core module as a component of a world of the contract.
pub(crate) fn component(module: &[u8], world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(wit).expect("the contract parses");
    let package = match world {
        "wasi-hook" => resolve.push_str("wasi.wit", WASI).expect("the part of WASI parses"),
        _ => package,
    };
    let world = resolve.select_world(&[package], Some(world)).expect("the world is there");
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("the world embeds");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .unwrap_or_else(|error| panic!("the guest is no component of the world: {error:?}"))
}
