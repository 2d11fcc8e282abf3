//! The shape of the workspace, held by tests: which crate may know which, and what no source file contains.
//!
//! Everything is read from `cargo metadata` and from the source text; nothing is built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One member of the workspace.
struct Member {
    name: String,
    manifest: PathBuf,
    /// Name, and whether it is a dependency of tests only.
    dependencies: Vec<(String, bool)>,
}

impl Member {
    fn folder(&self) -> &Path {
        self.manifest.parent().expect("a manifest is in a folder")
    }
}

fn members() -> Vec<Member> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members: Vec<Member> = list(&metadata["packages"])
        .iter()
        .map(|package| Member {
            name: text(&package["name"]),
            manifest: PathBuf::from(text(&package["manifest_path"])),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| (text(&dependency["name"]), dependency["kind"] == "dev"))
                .collect(),
        })
        .collect();
    assert!(members.len() >= 9, "the workspace has its members: {:?}", members.len());
    members
}

/// All Rust files of a member, without those of members inside it.
fn sources(members: &[Member], member: &Member) -> Vec<PathBuf> {
    let others: BTreeSet<&Path> =
        members.iter().map(Member::folder).filter(|other| *other != member.folder()).collect();
    let mut files = Vec::new();
    let mut folders = vec![member.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a source folder can be read") {
            let path = entry.expect("a source folder can be read").path();
            if path.is_dir() {
                if !path.ends_with("target") && !others.contains(path.as_path()) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Whether a file is there for tests only.
fn is_test(member: &Member, file: &Path) -> bool {
    let inside = file.strip_prefix(member.folder()).unwrap_or(file);
    inside.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "benches" | "tests.rs")))
}

/// Source text by line without comments, the inside of literals and blocks under `#[cfg(test)]`, so that words are code.
fn code(text: &str) -> Vec<(usize, String)> {
    let blank = without_literals(text);
    let mut lines = Vec::new();
    // Depth of braces at which the block of tests began, while in one; `Waiting` between attribute and block.
    let mut depth = 0_usize;
    let mut waiting = false;
    let mut skipping: Option<usize> = None;
    for (index, line) in blank.lines().enumerate() {
        if skipping.is_none() && line.trim_start().starts_with("#[cfg(test)]") {
            waiting = true;
        }
        let hidden = waiting || skipping.is_some();
        for c in line.chars() {
            match c {
                '{' => {
                    if waiting {
                        waiting = false;
                        skipping = Some(depth);
                    }
                    depth += 1;
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if skipping == Some(depth) {
                        skipping = None;
                    }
                }
                ';' if waiting => waiting = false,
                _ => {}
            }
        }
        if !hidden {
            lines.push((index + 1, line.to_owned()));
        }
    }
    lines
}

/// The text with comments, strings and characters blanked out; lines stay lines.
fn without_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    while i < chars.len() {
        let start = i;
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut open = 1;
            i += 2;
            while i < chars.len() && open > 0 {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (open, i) = (open + 1, i + 2),
                    ('*', '/') => (open, i) = (open - 1, i + 2),
                    _ => i += 1,
                }
            }
        } else if c == 'r' && matches!(at(i + 1), '"' | '#') && (i == 0 || !word(at(i - 1)) || at(i - 1) == 'b') {
            let mut hashes = 0;
            while at(i + 1 + hashes) == '#' {
                hashes += 1;
            }
            if at(i + 1 + hashes) != '"' {
                // A raw identifier.
                out.push(c);
                i += 1;
                continue;
            }
            i += hashes + 2;
            while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|n| at(i + n) == '#')) {
                i += 1;
            }
            i += 1 + hashes;
        } else if c == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else {
            out.push(c);
            i += 1;
            continue;
        }
        let end = i.min(chars.len());
        out.extend(chars.get(start..end).unwrap_or_default().iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    }
    out
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).expect("a source file can be read")
}

/// Fails with all findings at once.
fn none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

#[test]
fn crates_know_only_those_that_the_design_allows() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("barbless-domain", [].as_slice()),
        ("barbless-sandbox", &["barbless-domain"]),
        ("barbless-cluster", &["barbless-domain"]),
        ("barbless-template", &[]),
        ("barbless-health", &[]),
        ("barbless-devcluster", &[]),
        ("barbless-sdk", &["barbless-sdk-macros"]),
        ("barbless-sdk-macros", &[]),
    ]);
    let members = members();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for member in &members {
        if member.name == "barbless" {
            continue;
        }
        let Some(allowed) = allowed.get(member.name.as_str()) else {
            findings.push(format!("{} is in no rule: add it to the design first", member.name));
            continue;
        };
        for (dependency, dev) in &member.dependencies {
            let ours = names.contains(dependency.as_str());
            // Tests may use the cluster in the process in place of a real one.
            let in_tests = *dev && dependency == "barbless-devcluster";
            if ours && !in_tests && !allowed.contains(&dependency.as_str()) {
                findings.push(format!("{} -> {dependency}", member.name));
            }
        }
    }
    none(&findings, "edges that the design does not allow");
}

#[test]
fn heavy_dependencies_stay_in_their_crates() {
    let rules: [(&str, &[&str]); 6] = [
        ("wasmtime", &["barbless-sandbox"]),
        ("kube", &["barbless-cluster", "barbless"]),
        ("k8s-openapi", &["barbless-cluster", "barbless"]),
        ("axum", &["barbless", "barbless-devcluster"]),
        ("clap", &["barbless"]),
        ("anyhow", &["barbless"]),
    ];
    // kube-cel evaluates expressions of schemas and knows no cluster.
    let is = |dependency: &str, name: &str| {
        dependency == name || (dependency.starts_with(&format!("{name}-")) && dependency != "kube-cel")
    };
    let mut findings = Vec::new();
    for member in members() {
        for (dependency, dev) in &member.dependencies {
            let rule = rules.iter().find(|(name, _)| is(dependency, name));
            // Tests of the cluster crates speak to the API as users do.
            if let Some((_, homes)) = rule
                && !dev
                && !homes.contains(&member.name.as_str())
            {
                findings.push(format!("{} -> {dependency}", member.name));
            }
            if *dev && is(dependency, "wasmtime") && member.name != "barbless-sandbox" {
                findings.push(format!("{} -> {dependency} (tests)", member.name));
            }
        }
    }
    none(&findings, "dependencies outside the crates that isolate them");
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    let mut findings = Vec::new();
    for member in members() {
        let manifest = read(&member.manifest);
        let section = manifest.split("\n[").find_map(|section| section.strip_prefix("lints]"));
        let inherits = section.is_some_and(|section| {
            section.lines().any(|line| line.split_whitespace().collect::<String>().starts_with("workspace=true"))
        });
        if !inherits {
            findings.push(member.name);
        }
    }
    none(&findings, "members without `[lints] workspace = true`");
}

#[test]
fn the_domain_has_no_clock_environment_files_or_async() {
    let members = members();
    let domain = members.iter().find(|member| member.name == "barbless-domain").expect("there is a domain");
    let mut findings = Vec::new();
    for file in sources(&members, domain) {
        if is_test(domain, &file) {
            continue;
        }
        for (number, line) in code(&read(&file)) {
            let dense: String = line.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in [
                "async fn",
                "async move",
                "async {",
                "Instant::now",
                "SystemTime",
                "Timestamp::now",
                "Zoned::now",
                "std::env",
                "std::fs",
                "std::net",
                "std::process",
                "std::thread",
                "Mutex",
                "RwLock",
                "tokio",
            ] {
                if dense.contains(word) {
                    findings.push(format!("{}:{number}: {word}", file.display()));
                }
            }
        }
    }
    none(&findings, "the domain decides from its arguments alone");
}

#[test]
fn no_module_file_is_called_mod_rs() {
    let members = members();
    let mut findings = Vec::new();
    for member in &members {
        let found = sources(&members, member).into_iter().filter(|file| file.ends_with("mod.rs"));
        findings.extend(found.map(|file| file.display().to_string()));
    }
    none(&findings, "files called mod.rs");
}

#[test]
fn every_exception_from_a_lint_has_a_reason() {
    let members = members();
    let mut findings = Vec::new();
    for member in &members {
        for file in sources(&members, member) {
            let text = read(&file);
            let blank = without_literals(&text);
            for (at, _) in blank.match_indices("allow(") {
                let before = blank.get(..at).unwrap_or_default().trim_end();
                let attribute = before.ends_with("#[")
                    || before.ends_with("#![")
                    || before
                        .rsplit("#[")
                        .next()
                        .is_some_and(|rest| rest.starts_with("cfg_attr(") && !rest.contains(']'));
                let body = blank.get(at..).and_then(|rest| rest.split(')').next()).unwrap_or_default();
                if attribute && !body.contains("reason") {
                    let line = before.lines().count();
                    findings.push(format!("{}:{line}", file.display()));
                }
            }
        }
    }
    none(&findings, "`allow` without a reason");
}

#[test]
fn nothing_outside_tests_gives_up() {
    let members = members();
    let mut findings = Vec::new();
    for member in &members {
        for file in sources(&members, member) {
            if is_test(member, &file) {
                continue;
            }
            for (number, line) in code(&read(&file)) {
                let dense: String = line.split_whitespace().collect();
                for word in [".unwrap()", "todo!", "unimplemented!", "dbg!"] {
                    if dense.contains(word) {
                        findings.push(format!("{}:{number}: {word}", file.display()));
                    }
                }
            }
        }
    }
    none(&findings, "code that gives up");
}

/// Templates and releases may not know each other, so Helm's two orders stand in both.
#[test]
fn templates_and_releases_order_kinds_alike() {
    use barbless_domain::release;
    use barbless_template as template;
    let mut findings = Vec::new();
    let mut compare = |order: &str, kinds: &[&str], rank: fn(&str) -> usize| {
        // A kind that no list has shows the length of the other list.
        for (place, kind) in kinds.iter().copied().chain(["NoSuchKind"]).enumerate() {
            if rank(kind) != place {
                findings.push(format!("{order}: {kind} is at {place} in templates and at {} in releases", rank(kind)));
            }
        }
    };
    compare("installation", template::install_order(), release::install_rank);
    compare("removal", template::uninstall_order(), release::remove_rank);
    none(&findings, "kinds in two orders");
}

#[test]
fn the_scan_sees_code_and_only_code() {
    let text = concat!(
        "fn a() { let s = \"x.unwrap() {\"; b.unwrap(); } // todo!()\n",
        "const C: char = '\"'; /* dbg!( { */ const D: &str = r#\"todo!\"#;\n",
        "#[cfg(test)]\nmod tests {\n fn t() { x.unwrap() }\n}\n",
        "#[cfg(test)]\nmod other;\n",
        "fn e<'a>(x: &'a str) { dbg!(x) }\n",
    );
    let found = code(text);
    let text_of = |number: usize| found.iter().find(|(at, _)| *at == number).map(|(_, line)| line.as_str());
    assert_eq!(text_of(1).map(|line| line.matches(".unwrap()").count()), Some(1));
    assert!(found.iter().all(|(_, line)| !line.contains("todo!")), "{found:?}");
    assert_eq!(text_of(5), None, "a block of tests is skipped");
    assert!(text_of(9).is_some_and(|line| line.contains("dbg!")), "{found:?}");
}
