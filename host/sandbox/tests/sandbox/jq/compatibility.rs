//! What programs mean, against recorded answers of gojq, the engine that hooks of Deckhouse are written for.
//!
//! `compatibility.json` was recorded once with gojq 0.12.17 (`gojq -c PROGRAM`, input on standard input, empty
//! environment): the outputs, and whether it ended with an error. Where this evaluator gives something else on purpose,
//! the row has `ours` and says why.

use serde::Deserialize;

use super::{apply, evaluators};
use crate::host::wait;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    program: String,
    input: String,
    /// Outputs of gojq before its error, if there is one.
    outputs: Vec<String>,
    #[serde(default)]
    fails: bool,
    #[serde(default)]
    ours: Option<Ours>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    /// Nothing if this evaluator fails.
    outputs: Option<Vec<String>>,
    why: String,
}

#[test]
fn programs_mean_what_they_mean_to_gojq() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("compatibility.json")).unwrap();
    let mut different = Vec::new();
    for row in &rows {
        let found = match wait(evaluators().jq(&row.program)) {
            Ok(filter) => apply(&filter, &row.input).ok(),
            Err(_) => None,
        };
        let expected = match &row.ours {
            Some(ours) => {
                assert!(!ours.why.is_empty(), "{row:?}");
                ours.outputs.clone()
            }
            // Outputs before an error are given up: a filter gives all or nothing.
            None => (!row.fails).then(|| row.outputs.clone()),
        };
        if found != expected {
            different.push(format!("{} on {}\n  expected {expected:?}\n  found    {found:?}", row.program, row.input));
        }
    }
    assert!(rows.len() > 300);
    assert!(different.is_empty(), "{} rows differ:\n{}", different.len(), different.join("\n"));
}
