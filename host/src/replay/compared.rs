//! What came of a run and of its replay, part by part.

use std::collections::BTreeMap;

use barbless_domain::operation::Operation;
use barbless_domain::run::{LogLine, Measurement, RunEnd, RunInput, RunOutcome, RunRecord, ValuesChange};
use serde::Serialize;
use serde_json::{Value, json};

use crate::plan::difference::{self, Budget, Difference};
use crate::plan::secrets::Secrets;
use crate::runs::shown;

/// All that a hook does.
#[derive(Debug, PartialEq)]
pub(super) struct Trace {
    pub(super) end: RunEnd,
    pub(super) operations: Vec<Operation>,
    pub(super) values: Vec<ValuesChange>,
    pub(super) metrics: Vec<Measurement>,
    pub(super) log: Vec<LogLine>,
}

impl Trace {
    pub(super) fn of_record(record: &RunRecord) -> Self {
        Self {
            end: record.end_of_hook().clone(),
            operations: record.operations.iter().map(|(operation, _)| operation.clone()).collect(),
            values: record.values.clone(),
            metrics: record.metrics.clone(),
            log: record.log.clone(),
        }
    }

    /// Of a replay, with what the host does to the operations of a run before it records them: those of a failed run
    /// are kept only if they are for that case, and one without a namespace gets that of the application.
    pub(super) fn of_outcome(outcome: &RunOutcome, record: &RunRecord) -> Self {
        let failed = !outcome.end.is_ok();
        let wanted = outcome.operations.iter().filter(|operation| !failed || operation.on_failure);
        let own = &record.input.instance.namespace;
        let operations = wanted
            .enumerate()
            .map(|(index, operation)| match record.operations.get(index) {
                // Refused operations are recorded as they were asked for.
                Some((recorded, _)) if recorded == operation => operation.clone(),
                _ if operation.target.namespace.is_empty() && has_namespaces(record, operation) => {
                    crate::driver::in_namespace(operation.clone(), own)
                }
                _ => operation.clone(),
            })
            .collect();
        Self {
            end: outcome.end.clone(),
            operations,
            values: outcome.values.clone(),
            metrics: outcome.metrics.clone(),
            log: outcome.log.clone(),
        }
    }
}

/// Whether the host put operations on this kind into the namespace of the application.
fn has_namespaces(record: &RunRecord, operation: &Operation) -> bool {
    record.operations.iter().any(|(recorded, _)| {
        recorded.target.gvk == operation.target.gvk && recorded.target.namespace == record.input.instance.namespace
    })
}

/// One part of what a hook does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    /// What.
    pub(super) part: &'static str,
    pub(super) identical: bool,
    /// How many of them the run had; for the result, 1.
    pub(super) recorded: usize,
    /// How many of them the replay had.
    pub(super) replayed: usize,
    /// What differs, each with a heading.
    pub(super) differences: Vec<Titled>,
}

#[derive(Debug, Serialize)]
pub(super) struct Titled {
    pub(super) title: String,
    #[serde(flatten)]
    pub(super) difference: Difference,
}

/// All parts.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) parts: Vec<Part>,
}

impl Comparison {
    /// Compares; `told` are secrets that turn up in one of them.
    pub(super) fn new(
        recorded: &Trace,
        replayed: &Trace,
        input: &RunInput,
        told: &[String],
        show_secrets: bool,
    ) -> Self {
        let secrets = shown::secrets(
            show_secrets,
            recorded.operations.iter().chain(&replayed.operations),
            recorded.values.iter().chain(&replayed.values),
            &[&input.values, &input.settings],
        )
        .with(told);
        let mut writer = Writer { secrets, budget: Budget::default() };
        let parts = vec![
            Part {
                part: "result",
                identical: recorded.end == replayed.end,
                recorded: 1,
                replayed: 1,
                differences: writer.ends(&recorded.end, &replayed.end),
            },
            Part {
                part: "operations",
                identical: recorded.operations == replayed.operations,
                recorded: recorded.operations.len(),
                replayed: replayed.operations.len(),
                differences: writer.operations(&recorded.operations, &replayed.operations),
            },
            Part {
                part: "values",
                identical: recorded.values == replayed.values,
                recorded: recorded.values.len(),
                replayed: replayed.values.len(),
                differences: writer.changes(&recorded.values, &replayed.values),
            },
            Part {
                part: "metrics",
                identical: recorded.metrics == replayed.metrics,
                recorded: recorded.metrics.len(),
                replayed: replayed.metrics.len(),
                differences: writer.metrics(&recorded.metrics, &replayed.metrics),
            },
            Part {
                part: "log",
                identical: recorded.log == replayed.log,
                recorded: recorded.log.len(),
                replayed: replayed.log.len(),
                differences: writer.log(&recorded.log, &replayed.log),
            },
        ];
        Self { parts }
    }

    pub(super) fn is_identical(&self) -> bool {
        self.parts.iter().all(|part| part.identical)
    }
}

struct Writer {
    secrets: Secrets,
    budget: Budget,
}

impl Writer {
    fn of(&mut self, title: impl Into<String>, before: Option<&Value>, after: Option<&Value>) -> Option<Titled> {
        let difference = difference::of(before, after, &mut self.budget);
        (!difference.is_empty()).then(|| Titled { title: title.into(), difference })
    }

    fn ends(&mut self, recorded: &RunEnd, replayed: &RunEnd) -> Vec<Titled> {
        if recorded == replayed {
            return Vec::new();
        }
        let document = |end: &RunEnd| {
            let mut document = shown::error(end).unwrap_or_else(|| json!({"code": "Succeeded"}));
            if let RunEnd::Trap { backtrace, .. } = end {
                document["backtrace"] = json!(backtrace);
            }
            document
        };
        let (before, after) = self.secrets.mask_documents(Some(&document(recorded)), Some(&document(replayed)));
        self.of("result", before.as_ref(), after.as_ref()).into_iter().collect()
    }

    fn operations(&mut self, recorded: &[Operation], replayed: &[Operation]) -> Vec<Titled> {
        let mut differences = Vec::new();
        let names = |operations: &[Operation]| json!(operations.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (before, after) = (names(recorded), names(replayed));
        if before != after {
            differences.extend(self.of("in order", Some(&before), Some(&after)));
        }
        for (name, before, after) in paired(recorded, replayed, ToString::to_string) {
            if before == after {
                continue;
            }
            let (before, after) = (before.map(shown::operation), after.map(shown::operation));
            let (before, after) = shown::masked_operations(&self.secrets, before.as_ref(), after.as_ref());
            differences.extend(self.of(name, before.as_ref(), after.as_ref()));
        }
        differences
    }

    fn changes(&mut self, recorded: &[ValuesChange], replayed: &[ValuesChange]) -> Vec<Titled> {
        if recorded == replayed {
            return Vec::new();
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (_, was, is) in paired(recorded, replayed, |change| change.pointer.clone()) {
            let (was, is) = shown::masked_changes(&self.secrets, was, is);
            before.extend(was);
            after.extend(is);
        }
        let listed = |changes: Vec<Value>| (!changes.is_empty()).then_some(Value::Array(changes));
        let (before, after) = (listed(before), listed(after));
        match self.of("changes of values", before.as_ref(), after.as_ref()) {
            Some(titled) => vec![titled],
            // The same changes in another order.
            None => {
                let order = |changes: &[ValuesChange]| json!(changes.iter().map(|it| &it.pointer).collect::<Vec<_>>());
                self.of("in order", Some(&order(recorded)), Some(&order(replayed))).into_iter().collect()
            }
        }
    }

    fn metrics(&mut self, recorded: &[Measurement], replayed: &[Measurement]) -> Vec<Titled> {
        let listed = |metrics: &[Measurement]| {
            (!metrics.is_empty())
                .then(|| metrics.iter().map(|one| shown::measurement(one, &self.secrets)).collect::<Value>())
        };
        let (before, after) = (listed(recorded), listed(replayed));
        self.of("metrics", before.as_ref(), after.as_ref()).into_iter().collect()
    }

    fn log(&mut self, recorded: &[LogLine], replayed: &[LogLine]) -> Vec<Titled> {
        let listed = |log: &[LogLine]| {
            (!log.is_empty())
                .then(|| log.iter().map(|line| json!(self.secrets.mask_text(&line.to_string()))).collect::<Value>())
        };
        let (before, after) = (listed(recorded), listed(replayed));
        self.of("log", before.as_ref(), after.as_ref()).into_iter().collect()
    }
}

/// Pairs what has the same name, the first with the first; what is left over comes at the end.
fn paired<'a, T>(
    recorded: &'a [T],
    replayed: &'a [T],
    name: impl Fn(&T) -> String,
) -> Vec<(String, Option<&'a T>, Option<&'a T>)> {
    let mut left: BTreeMap<String, Vec<&T>> = BTreeMap::new();
    for one in replayed.iter().rev() {
        left.entry(name(one)).or_default().push(one);
    }
    let mut pairs: Vec<(String, Option<&T>, Option<&T>)> = recorded
        .iter()
        .map(|one| {
            let own = name(one);
            let other = left.get_mut(&own).and_then(Vec::pop);
            (own, Some(one), other)
        })
        .collect();
    for one in replayed {
        let own = name(one);
        if left.get(&own).is_some_and(|rest| rest.iter().any(|rest| std::ptr::eq(*rest, one))) {
            pairs.push((own, None, Some(one)));
        }
    }
    pairs
}

#[cfg(test)]
mod tests;
