//! What real Helm 4.2.3 did: the recorded mutation logs in `tests/data/helm`, in the notation of [`super::tap`].

use std::collections::BTreeMap;

const TRACES: [&str; 3] = [
    include_str!("../../data/helm/trace1.out"),
    include_str!("../../data/helm/trace2.out"),
    include_str!("../../data/helm/trace3.out"),
];

/// What Helm changed in an operation (`# install`) of a recorded scenario (`## kind order`); both by how they begin.
pub(crate) fn recorded(scenario: &str, operation: &str) -> Vec<String> {
    let mut lines = TRACES.iter().flat_map(|trace| trace.lines());
    lines
        .find(|line| line.strip_prefix("## ").is_some_and(|title| title.starts_with(scenario)))
        .unwrap_or_else(|| panic!("no scenario {scenario:?}"));
    let mut section = lines.take_while(|line| !line.starts_with("## "));
    section
        .find(|line| line.strip_prefix("  # ").is_some_and(|title| title.starts_with(operation)))
        .unwrap_or_else(|| panic!("no operation {operation:?} in {scenario:?}"));
    let operation = section.take_while(|line| !line.starts_with("  # "));
    normal(operation.filter_map(|line| notation(line.trim())))
}

fn notation(line: &str) -> Option<String> {
    let (verb, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once('/')?;
    let (name, status) = rest.split_once(" status=").unwrap_or((rest, ""));
    if kind == "ReleaseSecret" {
        let revision = name.rsplit_once(".v")?.1;
        return Some(if verb.starts_with("delete") {
            format!("D R{revision}")
        } else {
            format!("R{revision} {status}")
        });
    }
    match verb {
        _ if verb.starts_with("apply(") => Some(format!("A {kind}/{name}")),
        "delete[Background]" => Some(format!("D {kind}/{name}")),
        _ => None,
    }
}

/// Lines in a form in which they can be compared: a record is shown when its status changes, and what may happen in any
/// order (objects of one kind, which Helm applies in parallel on installation; the statuses of two revisions at the end,
/// which Helm writes old first and we new first, because a crash in between must leave a deployed one) is sorted.
pub(crate) fn normal(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut out = without_repeats(lines);
    let may_swap = |a: &String, b: &String| {
        let (Some((a, what)), Some((b, other))) = (a.split_once(' '), b.split_once(' ')) else { return false };
        let kind = |what: &str| what.split_once('/').map(|(kind, _)| kind.to_owned());
        let of_one_kind = a == b && kind(what).is_some() && kind(what) == kind(other);
        let of_two_records = a.starts_with('R') && b.starts_with('R') && a != b;
        of_one_kind || of_two_records
    };
    out.chunk_by_mut(may_swap).for_each(<[String]>::sort);
    out
}

/// Lines in which a record is shown when its status changes.
pub(crate) fn without_repeats(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut statuses: BTreeMap<String, String> = BTreeMap::new();
    let mut is_news = |line: &String| match line.split_once(' ') {
        Some((record, status)) if record.starts_with('R') => {
            statuses.insert(record.to_owned(), status.to_owned()).as_deref() != Some(status)
        }
        _ => true,
    };
    lines.into_iter().filter(|line| is_news(line)).collect()
}
