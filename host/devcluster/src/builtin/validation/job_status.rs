//! What the status of a Job may say, and how it may go on. Most rules look only at what an update changes, so that an old
//! status that breaks one does not stop another change.

use serde_json::{Value, json};

use super::pods::not_negative;
use crate::{
    json::{at, int, list, text},
    status::Cause,
};

const CONDITIONS: &str = "status.conditions";

/// One state of a Job.
struct State<'a>(&'a Value);

impl State<'_> {
    fn is(&self, condition: &str) -> bool {
        let holds = |it: &Value| text(it, &["type"]) == condition && text(it, &["status"]) == "True";
        list(self.0, &["status", "conditions"]).iter().any(holds)
    }

    fn was_resumed(&self) -> bool {
        let ended = |it: &Value| text(it, &["type"]) == "Suspended" && text(it, &["status"]) == "False";
        list(self.0, &["status", "conditions"]).iter().any(ended)
    }

    fn finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(&self, field: &str) -> i64 {
        int(self.0, &["status", field]).unwrap_or_default()
    }

    fn get(&self, field: &str) -> Option<&Value> {
        at(self.0, &["status", field])
    }

    fn uncounted(&self) -> usize {
        let all = |what: &str| list(self.0, &["status", "uncountedTerminatedPods", what]).len();
        all("succeeded") + all("failed")
    }

    fn indexed(&self) -> bool {
        text(self.0, &["spec", "completionMode"]) == "Indexed"
    }
}

fn conditions(why: &str) -> Cause {
    Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {why}"), field: CONDITIONS.to_owned() }
}

fn invalid(field: &str, value: Option<&Value>, why: &str) -> Cause {
    Cause::invalid(format!("status.{field}"), value.unwrap_or(&Value::Null), why)
}

/// Adds what is wrong with a new status, in the order of the real server.
pub(super) fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(new, &["status", field], causes);
    }
    let (old, new) = (State(old), State(new));
    ends(&old, &new, causes);
    pods(&old, &new, causes);
    steps(&old, &new, causes);
}

/// How a Job ends: conditions and times.
fn ends(old: &State<'_>, new: &State<'_>, causes: &mut Vec<Cause>) {
    let changed = |condition: &str| old.is(condition) != new.is(condition);
    let differs = |field: &str| old.get(field) != new.get(field);
    let (complete, failed) = (new.is("Complete"), new.is("Failed"));
    if (changed("Complete") || changed("Failed")) && complete && failed {
        causes.push(conditions("cannot set Complete=True and Failed=true conditions"));
    }
    if (changed("Complete") || changed("FailureTarget")) && complete && new.is("FailureTarget") {
        causes.push(conditions("cannot set Complete=True and FailureTarget=true conditions"));
    }
    let completion = new.get("completionTime");
    if changed("Complete") || differs("completionTime") {
        if completion.is_some() && !complete {
            let why = "cannot set completionTime when there is no Complete=True condition";
            causes.push(invalid("completionTime", completion, why));
        }
        if completion.is_none() && complete {
            causes.push(Cause::required("status.completionTime", "completionTime is required for Complete jobs"));
        }
    }
    let time = |field: &str| new.get(field).and_then(Value::as_str).and_then(|it| it.parse::<jiff::Timestamp>().ok());
    if (differs("startTime") || differs("completionTime"))
        && let (Some(start), Some(end)) = (time("startTime"), time("completionTime"))
        && end < start
    {
        causes.push(invalid("completionTime", completion, "must be equal to or after `startTime`"));
    }
    if (changed("Failed") || differs("failedIndexes")) && failed && !new.is("FailureTarget") {
        causes.push(conditions("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (changed("Complete") || changed("SuccessCriteriaMet")) && complete && !new.is("SuccessCriteriaMet") {
        causes.push(conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"));
    }
}

/// What is said of Pods.
fn pods(old: &State<'_>, new: &State<'_>, causes: &mut Vec<Cause>) {
    let finished = new.finished();
    let ended = old.finished() != finished;
    let differs = |field: &str| old.get(field) != new.get(field);
    let active = new.count("active");
    if (ended || old.count("active") != active) && active > 0 && finished {
        causes.push(invalid("active", new.get("active"), "active>0 is invalid for finished job"));
    }
    let idle = at(new.0, &["spec", "suspend"]) == Some(&Value::Bool(true))
        && at(new.0, &["spec", "completions"]) == Some(&json!(0));
    if (ended || differs("startTime")) && !idle && new.get("startTime").is_none() && finished {
        causes.push(Cause::required("status.startTime", "startTime is required for finished job"));
    }
    if (ended || differs("uncountedTerminatedPods")) && finished && new.uncounted() > 0 {
        let why = "must be empty for finished job";
        causes.push(invalid("uncountedTerminatedPods", new.get("uncountedTerminatedPods"), why));
    }
    let completed = new.get("completedIndexes");
    if differs("completedIndexes") && completed.is_some_and(|it| it != "") && !new.indexed() {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        causes.push(invalid("completedIndexes", completed, why));
    }
    let failed = new.get("failedIndexes");
    if differs("failedIndexes") && failed.is_some() && at(new.0, &["spec", "backoffLimitPerIndex"]).is_none() {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        causes.push(invalid("failedIndexes", failed, why));
    }
    if (ended || differs("terminating")) && finished && new.count("terminating") > 0 {
        causes.push(invalid("terminating", new.get("terminating"), "terminating>0 is invalid for finished job"));
    }
    if (differs("ready") || old.count("active") != active) && new.count("ready") > active {
        causes.push(invalid("ready", new.get("ready"), "cannot set more ready pods than active"));
    }
    let met = new.is("SuccessCriteriaMet");
    for other in ["Failed", "FailureTarget"] {
        if met && new.is(other) {
            causes.push(conditions(&format!("cannot set SuccessCriteriaMet=True and {other}=true conditions")));
        }
    }
    if at(new.0, &["spec", "successPolicy"]).is_some() && !met && new.is("Complete") {
        causes.push(conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"));
    }
}

/// What an update may not take back.
fn steps(old: &State<'_>, new: &State<'_>, causes: &mut Vec<Cause>) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if old.is(condition) && !new.is(condition) {
            causes.push(conditions(&format!("cannot disable the terminal {condition}=True condition")));
        }
    }
    let elastic = new.indexed() && at(new.0, &["spec", "completions"]) == at(new.0, &["spec", "parallelism"]);
    for (counter, guarded) in [("failed", true), ("succeeded", !elastic)] {
        if guarded && new.count(counter) < old.count(counter) {
            let why = format!("cannot decrease the {counter} counter");
            causes.push(invalid(counter, Some(&json!(new.count(counter))), &why));
        }
    }
    let both = |field: &str| new.get(field).is_some() && old.get(field).is_some() && new.get(field) != old.get(field);
    if both("completionTime") {
        causes.push(invalid("completionTime", new.get("completionTime"), "field is immutable"));
    }
    let suspended = at(new.0, &["spec", "suspend"]) == Some(&Value::Bool(true));
    let resumed = old.is("Suspended") && new.was_resumed();
    if old.get("startTime").is_some() && old.get("startTime") != new.get("startTime") && !suspended && !resumed {
        let why = "field is immutable for unsuspended job once set";
        causes.push(invalid("startTime", new.get("startTime"), why));
    }
    if old.is("SuccessCriteriaMet") && !new.is("SuccessCriteriaMet") {
        causes.push(conditions("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if old.is("Complete") && !old.is("SuccessCriteriaMet") && new.is("SuccessCriteriaMet") {
        causes.push(conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"));
    }
}
