//! T3: our own charts, of which Helm made what `recorded.json` says, as digests. The differential test keeps it true and
//! shows differences; this one needs no Helm.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde_json::Value as Json;
use sha2::Digest as _;

use crate::{Files, Input, chart::tar_of};

fn read(folder: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            read(&entry.path(), &format!("{path}/"), into);
        } else {
            into.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

/// The files of a chart of the corpus, with the archives that are made from `packed/`.
fn chart(folder: &Path) -> Files {
    let mut files = BTreeMap::new();
    read(&folder.join("chart"), "", &mut files);
    if let Ok(packed) = fs::read_dir(folder.join("packed")) {
        for inner in packed.map(Result::unwrap) {
            let name = inner.file_name().to_str().unwrap().to_owned();
            let mut content = BTreeMap::new();
            read(&inner.path(), &format!("{name}/"), &mut content);
            let content: Vec<(&str, &[u8])> = content.iter().map(|(path, text)| (path.as_str(), &**text)).collect();
            files.insert(format!("charts/{name}-1.0.0.tgz"), tar_of(&content));
        }
    }
    Files(files)
}

fn digest(files: &Files, values: Json) -> String {
    let input = Input { values, now_unix_ms: 1_700_000_000_000, ..Input::first(files, "rel", "space") };
    let rendered = crate::render(&input);
    let Ok(rendered) = rendered else { return "error".into() };
    let mut text = String::new();
    for file in rendered.files.iter().filter(|file| !file.path.ends_with("NOTES.txt")) {
        write!(text, "file {}\n{}\n", file.path, file.text).unwrap();
    }
    let notes = rendered.notes.as_deref().unwrap_or_default();
    write!(text, "manifest\n{}\nnotes\n{notes}\n", rendered.helm_manifest()).unwrap();
    sha2::Sha256::digest(text).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[test]
fn t03_our_own_charts_become_what_helm_made_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/differential");
    let json = |name: &str| -> BTreeMap<String, String> {
        serde_json::from_slice(&fs::read(root.join(name)).unwrap()).unwrap()
    };
    let (recorded, explained) = (json("recorded.json"), json("explained.json"));
    let mut wrong = Vec::new();
    let mut folders: Vec<_> = fs::read_dir(root.join("charts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut rendered = 0;
    for folder in &folders {
        let files = chart(folder);
        let name = folder.file_name().unwrap().to_str().unwrap();
        let mut cases = vec![(format!("{name}/default"), Json::Object(serde_json::Map::new()))];
        let mut values = BTreeMap::new();
        if folder.join("values").is_dir() {
            read(&folder.join("values"), "", &mut values);
        }
        for (file, text) in values {
            let values = crate::yaml::read(std::str::from_utf8(&text).unwrap(), 1_000_000).unwrap();
            cases.push((format!("{name}/{}", file.trim_end_matches(".yaml")), values));
        }
        for (case, values) in cases {
            rendered += 1;
            if !explained.contains_key(&case) && recorded.get(&case) != Some(&digest(&files, values)) {
                wrong.push(case);
            }
        }
    }
    assert!(wrong.is_empty(), "run tests/differential/run to see the differences of {wrong:?}");
    assert!(folders.len() >= 40 && rendered == recorded.len(), "{rendered} renders of {} charts", folders.len());
}
