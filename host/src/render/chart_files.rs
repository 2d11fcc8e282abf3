//! The files of an ordinary chart: a folder without what `.helmignore` names, or a packed chart.
//!
//! Unlike a bundle, a chart may have hidden files, and folders of any name: its templates can read them. Links are
//! followed as long as they stay inside of the chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use barbless_template::{Files, IgnoreRules, Limits, unpack};

use crate::bundle::read_bounded;
use crate::report::Report;

/// Bytes of one file, as in Helm 4.
const FILE_BYTES: u64 = 5 * 1024 * 1024;
/// Bytes of a whole chart, as in Helm 4, and of a packed one.
const CHART_BYTES: u64 = 100 * 1024 * 1024;
/// Folders below each other.
const DEPTH: usize = 32;

/// Reads a chart.
pub(super) fn read(path: &Path) -> Result<Files, Report> {
    if path.is_dir() { folder(path) } else { archive(path) }
}

fn archive(path: &Path) -> Result<Files, Report> {
    let place = path.display().to_string();
    let bytes = read_bounded(path, CHART_BYTES).map_err(|report| report.at(place.clone()))?;
    unpack(&bytes, &Limits::default()).map(Files).map_err(|message| Report::new("ChartInvalid", message).at(place))
}

fn folder(root: &Path) -> Result<Files, Report> {
    let unreadable = |at: &Path| {
        let place = at.display().to_string();
        move |error: std::io::Error| Report::new("ChartUnreadable", error.to_string()).at(place)
    };
    let ignored = root.join(".helmignore");
    let rules = if ignored.is_file() {
        let text = read_bounded(&ignored, FILE_BYTES)?;
        IgnoreRules::parse(&String::from_utf8_lossy(&text))
            .map_err(|message| Report::new("ChartInvalid", message).at(ignored.display().to_string()))?
    } else {
        IgnoreRules::default()
    };
    let real_root = root.canonicalize().map_err(unreadable(root))?;
    let mut files = BTreeMap::new();
    let mut bytes_left = CHART_BYTES;
    let mut open: Vec<(PathBuf, String, usize)> = vec![(root.to_owned(), String::new(), 0)];
    while let Some((at, prefix, depth)) = open.pop() {
        for entry in fs::read_dir(&at).map_err(unreadable(&at))? {
            let path = entry.map_err(unreadable(&at))?.path();
            let place = path.display().to_string();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(Report::new("BadPath", "the name is not UTF-8").at(place));
            };
            let inner = format!("{prefix}{name}");
            // Without following a link that is ignored anyway.
            if rules.matches(&inner, path.is_dir()) {
                continue;
            }
            let real = path.canonicalize().map_err(unreadable(&path))?;
            if !real.starts_with(&real_root) {
                return Err(Report::new("ChartLink", "the link leads out of the chart")
                    .at(place)
                    .hint("replace the link by what it leads to, or name it in .helmignore"));
            }
            let facts = fs::metadata(&real).map_err(unreadable(&path))?;
            if facts.is_dir() {
                if depth >= DEPTH {
                    return Err(
                        Report::new("ChartTooDeep", format!("more than {DEPTH} folders below each other")).at(place)
                    );
                }
                open.push((path, format!("{inner}/"), depth + 1));
            } else if facts.is_file() {
                let bytes = read_bounded(&real, FILE_BYTES.min(bytes_left)).map_err(|report| report.at(place))?;
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                files.insert(inner, bytes);
            } else {
                return Err(Report::new("ChartOddFile", "neither a file nor a folder").at(place));
            }
        }
    }
    Ok(Files(files))
}
