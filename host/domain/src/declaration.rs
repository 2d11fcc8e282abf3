//! What the components of a package declare, checked as a whole.
//!
//! A declaration is the output of a guest: nothing of it is believed before it was checked here, all of it at once.
//! [`Hooks`] is the checked form; it also says in which order hooks run and what they need to be allowed. A package may
//! say itself why a hook runs, in a configuration of shell-operator ([`v1`]): then the same is checked with its lines.

pub mod v1;

use std::collections::{BTreeMap, BTreeSet};

use crate::grant::{Permission, Verb};
use crate::hook::{
    Binding, FieldRequirement, HookDeclaration, KubernetesBinding, LabelOperator, LabelRequirement, LabelSelector,
    Projection, RateLimit, ScheduleBinding, Stage, WatchEventType,
};
use crate::identity::Gvk;
use crate::limits::{BINDINGS_PER_HOOK, BINDINGS_PER_PACKAGE, HOOKS_PER_PACKAGE, JQ_PROGRAM_BYTES};
use crate::package::Problem;
use crate::package::document::{Document, segments};
use crate::package::reader::PROBLEMS_MAX;
use crate::schedule::Schedule;

/// Characters of names of hooks, bindings, queues and groups, as of names in Kubernetes.
const NAME_CHARACTERS: usize = 253;
/// Names, labels, fields or pointers of one binding. Each name is a watch of its own.
const SELECTORS_MAX: usize = 100;
/// Characters of a pointer or of a value in a selector.
const TEXT_CHARACTERS: usize = 1024;
/// Longest pause of a rate limit in milliseconds: a day.
const INTERVAL_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Most runs without a pause that a rate limit may ask for.
const BURST_MAX: u32 = 10_000;

/// What one component declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentDeclarations {
    /// Path of the component in the package, for example `hooks/main.wasm`.
    pub component: String,
    /// Its hooks.
    pub hooks: Vec<HookDeclaration>,
    /// Whether it exports `filter`.
    pub exports_filter: bool,
}

/// A hook whose declaration has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Path of its component.
    pub component: String,
    /// What it declares.
    pub declaration: HookDeclaration,
    /// Its schedules, parsed, with the names of their bindings.
    pub schedules: Vec<(String, Schedule)>,
}

impl Hook {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    /// Kubernetes bindings whose snapshots go with a run because of a binding: what it includes, then its group.
    /// Without either, all of the hook.
    #[must_use]
    pub fn snapshots_of(&self, binding: &str) -> Vec<&KubernetesBinding> {
        let Some(own) = self.declaration.kubernetes().find(|candidate| candidate.name == binding) else {
            return Vec::new();
        };
        if own.include_snapshots_from.is_empty() && own.group.is_none() {
            return self.declaration.kubernetes().collect();
        }
        let included = |candidate: &&KubernetesBinding| {
            candidate.name == binding
                || own.include_snapshots_from.contains(&candidate.name)
                || (own.group.is_some() && candidate.group == own.group)
        };
        self.declaration.kubernetes().filter(included).collect()
    }
}

/// All hooks of a package, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    hooks: BTreeMap<String, Hook>,
}

impl Hooks {
    /// Checks the declarations of all components of a package.
    ///
    /// # Errors
    /// All problems, up to a bound. `file` is the component, `path` begins with the name of the hook and the index of
    /// the binding: `password.bindings[0].crontab`.
    pub fn check(components: Vec<ComponentDeclarations>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut hooks: BTreeMap<String, Hook> = BTreeMap::new();
        let count: usize = components.iter().map(|component| component.hooks.len()).sum();
        if count > HOOKS_PER_PACKAGE {
            let message = format!("{count} hooks are more than {HOOKS_PER_PACKAGE}");
            return Err(vec![Problem::new("TooManyHooks", "hooks", "", message)]);
        }
        let hooks_of = components.iter().flat_map(|component| &component.hooks);
        let bindings: usize = hooks_of.map(|hook| hook.bindings.len()).sum();
        if bindings > BINDINGS_PER_PACKAGE {
            let message = format!("{bindings} bindings are more than {BINDINGS_PER_PACKAGE}");
            return Err(vec![Problem::new("TooManyBindings", "hooks", "", message)]);
        }
        for ComponentDeclarations { component, hooks: declared, exports_filter } in components {
            if declared.is_empty() {
                let problem = Problem::new("NoHooks", &component, "", "declares no hook");
                problems.push(problem.hint("remove the component, or give it a hook"));
            }
            for declaration in declared {
                if problems.len() >= PROBLEMS_MAX {
                    break;
                }
                let schedules = {
                    let mut checker = Checker {
                        place: Place::Component { component: &component, hook: shown(&declaration.name) },
                        exports_filter,
                        problems: &mut problems,
                    };
                    if let Some(other) = hooks.get(&declaration.name) {
                        let place = match other.component == component {
                            true => "this component".to_owned(),
                            false => other.component.clone(),
                        };
                        let name = shown(&declaration.name);
                        let message = format!("the name '{name}' is taken by another hook of {place}");
                        checker.report("DuplicateHook", "", message, Some("names are unique in the package"));
                    }
                    checker.hook(&declaration)
                };
                hooks.entry(declaration.name.clone()).or_insert(Hook {
                    component: component.clone(),
                    declaration,
                    schedules,
                });
            }
        }
        problems.truncate(PROBLEMS_MAX);
        if problems.is_empty() { Ok(Self { hooks }) } else { Err(problems) }
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.values()
    }

    /// The hook of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Hook> {
        self.hooks.get(name)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Names of all.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.hooks.keys().cloned().collect()
    }

    /// Hooks that run at a stage, in their order: order, then name, then index of the binding.
    #[must_use]
    pub fn hooks_at(&self, stage: Stage) -> Vec<&Hook> {
        let mut at: Vec<(i32, &str, usize, &Hook)> = Vec::new();
        for hook in self.hooks.values() {
            for (index, binding) in hook.declaration.bindings.iter().enumerate() {
                match binding {
                    Binding::Lifecycle { stage: own, order } if *own == stage => {
                        at.push((*order, hook.name(), index, hook));
                    }
                    _ => {}
                }
            }
        }
        at.sort_by_key(|(order, name, index, _)| (*order, *name, *index));
        at.into_iter().map(|(_, _, _, hook)| hook).collect()
    }

    /// Queues of schedules and events.
    #[must_use]
    pub fn queues(&self) -> BTreeSet<&str> {
        let queued = self.hooks.values().filter(|hook| {
            let lifecycle = |binding: &Binding| matches!(binding, Binding::Lifecycle { .. });
            !hook.declaration.bindings.iter().all(lifecycle)
        });
        queued.map(|hook| hook.declaration.queue.as_str()).collect()
    }

    /// What the kubernetes bindings need to be allowed. Operations are known only when a hook has run.
    #[must_use]
    pub fn permissions_needed(&self) -> Vec<Permission> {
        let mut needed: BTreeMap<(String, Option<Vec<String>>), BTreeSet<String>> = BTreeMap::new();
        for binding in self.hooks.values().flat_map(|hook| hook.declaration.kubernetes()) {
            let Ok(gvk) = Gvk::parse(&binding.api_version, &binding.kind) else { continue };
            let mut names = binding.name_selector.clone();
            names.sort();
            needed.entry((gvk.group, (!names.is_empty()).then_some(names))).or_default().insert(gvk.kind);
        }
        let permission = |((group, names), kinds): ((String, Option<Vec<String>>), BTreeSet<String>)| Permission {
            api_groups: vec![group],
            kinds: kinds.into_iter().collect(),
            verbs: vec![Verb::Watch],
            names,
            cluster: false,
        };
        needed.into_iter().map(permission).collect()
    }
}

/// A name as it can be shown: a guest's text is neither trusted nor short.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

/// What a declaration was read from.
enum Place<'a> {
    /// A component: paths begin with the name of the hook.
    Component { component: &'a str, hook: String },
    /// A file: paths are JSON pointers into it.
    File(&'a Document),
}

struct Checker<'a> {
    place: Place<'a>,
    exports_filter: bool,
    problems: &'a mut Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, reason: &str, path: &str, message: impl Into<String>, hint: Option<&str>) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let mut problem = match &self.place {
            Place::File(document) => document.problem(reason, path, message),
            Place::Component { component, hook } => {
                let mut problem = Problem::new(reason, component, "", message);
                problem.path.clone_from(hook);
                if !path.is_empty() {
                    problem.path.push('.');
                    problem.path.push_str(path);
                }
                problem
            }
        };
        problem.hint = hint.map(str::to_owned);
        self.problems.push(problem);
    }

    /// Path of an item of a list. A guest's lists are short and its items are named in the message.
    fn item(&self, path: &str, index: usize) -> String {
        match self.place {
            Place::Component { .. } => path.to_owned(),
            Place::File(_) => format!("{path}/{index}"),
        }
    }

    /// Letters, digits, `-`, `_`, `.` and `/`.
    fn name(&mut self, what: &str, path: &str, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let why = if name.is_empty() {
            "is empty"
        } else if name.len() > NAME_CHARACTERS {
            "is longer than 253 characters"
        } else if !name.chars().all(plain) {
            "may hold letters, digits, '-', '_', '.' and '/' only"
        } else {
            return;
        };
        self.report("BadName", path, format!("the name '{}' of the {what} {why}", shown(name)), None);
    }

    fn hook(&mut self, declaration: &HookDeclaration) -> Vec<(String, Schedule)> {
        let HookDeclaration { name, bindings, queue, allow_failure: _, rate_limit } = declaration;
        self.name("hook", "name", name);
        self.queue("queue", queue);
        if let Some(limit) = rate_limit {
            self.rate_limit("rateLimit.minIntervalMs", "rateLimit.burst", *limit);
        }
        if bindings.is_empty() {
            let hint = Some("bind it to a stage, a schedule or objects");
            self.report("NoBindings", "bindings", "it would never run: it has no binding", hint);
        }
        if bindings.len() > BINDINGS_PER_HOOK {
            let message = format!("{} bindings are more than {BINDINGS_PER_HOOK}", bindings.len());
            self.report("TooManyBindings", "bindings", message, None);
            return Vec::new();
        }
        let snapshots: Vec<&str> = declaration.kubernetes().map(|binding| binding.name.as_str()).collect();
        let mut seen = BTreeSet::new();
        let mut schedules = Vec::new();
        for (index, binding) in bindings.iter().enumerate() {
            let path = format!("bindings[{index}]");
            let key = match binding {
                Binding::Lifecycle { stage, .. } => ("stage", stage.as_str()),
                Binding::Schedule(schedule) => ("schedule", schedule.name.as_str()),
                Binding::Kubernetes(kubernetes) => ("kubernetes binding", kubernetes.name.as_str()),
            };
            if !seen.insert(key) {
                let message = format!("the {} '{}' is there twice", key.0, shown(key.1));
                self.report("DuplicateBinding", &path, message, None);
            }
            match binding {
                Binding::Lifecycle { stage: _, order: _ } => {}
                Binding::Schedule(ScheduleBinding { name, crontab }) => {
                    self.name("schedule", &format!("{path}.name"), name);
                    if let Some(schedule) = self.crontab(&format!("{path}.crontab"), crontab) {
                        schedules.push((name.clone(), schedule));
                    }
                }
                Binding::Kubernetes(kubernetes) => self.kubernetes(&path, kubernetes, &snapshots),
            }
        }
        schedules
    }

    fn queue(&mut self, path: &str, queue: &str) {
        self.name("queue", path, queue);
        if queue.ends_with("/sync") {
            let hint = Some("every queue has one such for its first runs");
            self.report("BadName", path, "the name of a queue cannot end with '/sync'", hint);
        }
    }

    fn crontab(&mut self, path: &str, crontab: &str) -> Option<Schedule> {
        match Schedule::parse(crontab) {
            Ok(schedule) => Some(schedule),
            Err(error) => {
                self.report("BadSchedule", path, error.to_string(), error.hint.as_deref());
                None
            }
        }
    }

    fn rate_limit(&mut self, interval_path: &str, burst_path: &str, limit: RateLimit) {
        let RateLimit { min_interval_ms, burst } = limit;
        if burst == 0 || burst > BURST_MAX {
            let message = format!("the burst must be between 1 and {BURST_MAX}, not {burst}");
            self.report("BadRateLimit", burst_path, message, None);
        }
        if min_interval_ms > INTERVAL_MS_MAX {
            let message = format!("{min_interval_ms} ms between two runs are more than a day");
            self.report("BadRateLimit", interval_path, message, Some("use a schedule"));
        }
    }

    fn kubernetes(&mut self, path: &str, binding: &KubernetesBinding, snapshots: &[&str]) {
        let KubernetesBinding {
            name,
            api_version,
            kind,
            name_selector,
            label_selector,
            field_selector,
            filter,
            execute_on_events,
            execute_on_synchronization: _,
            wait_for_synchronization: _,
            keep_full_objects: _,
            group,
            include_snapshots_from,
        } = binding;
        self.name("kubernetes binding", &format!("{path}.name"), name);
        if let Err(error) = Gvk::parse(api_version, kind) {
            let field = if error.kind == "kind" { "kind" } else { "apiVersion" };
            let message = format!("'{}' is no {field}: {}", shown(&error.value), error.reason);
            self.report("BadKind", &format!("{path}.{field}"), message, Some("for example apps/v1 and Deployment"));
        }
        self.name_selector(&format!("{path}.nameSelector"), name_selector);
        if let Some(selector) = label_selector {
            self.label_selector(&format!("{path}.labelSelector"), selector);
        }
        self.field_selector(&format!("{path}.fieldSelector"), field_selector, !name_selector.is_empty());
        self.filter(&format!("{path}.filter"), filter);
        self.events(&format!("{path}.executeOnEvents"), execute_on_events);
        if let Some(group) = group {
            self.name("group", &format!("{path}.group"), group);
        }
        self.includes(&format!("{path}.includeSnapshotsFrom"), include_snapshots_from, snapshots);
    }

    fn events(&mut self, path: &str, events: &[WatchEventType]) {
        let mut seen = Vec::new();
        for (index, event) in events.iter().enumerate() {
            if seen.contains(event) {
                self.report("BadEvents", &self.item(path, index), format!("{event:?} is there twice"), None);
                break;
            }
            seen.push(*event);
        }
    }

    fn includes(&mut self, path: &str, names: &[String], snapshots: &[&str]) {
        if names.len() > BINDINGS_PER_HOOK {
            return self.report("UnknownBinding", path, "names more bindings than a hook can have", None);
        }
        let mut included = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            let path = &self.item(path, index);
            if !snapshots.contains(&name.as_str()) {
                let message = format!("the hook has no kubernetes binding '{}'", shown(name));
                let hint = crate::package::nearest(name, snapshots).map(|nearest| format!("did you mean '{nearest}'?"));
                self.report("UnknownBinding", path, message, hint.as_deref());
            } else if !included.insert(name) {
                self.report("DuplicateBinding", path, format!("'{name}' is there twice"), None);
            }
        }
    }

    /// Whether a list is short enough.
    fn few(&mut self, path: &str, length: usize) -> bool {
        if length > SELECTORS_MAX {
            self.report("TooManySelectors", path, format!("{length} entries are more than {SELECTORS_MAX}"), None);
        }
        length <= SELECTORS_MAX
    }

    fn name_selector(&mut self, path: &str, names: &[String]) {
        if !self.few(path, names.len()) {
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            let path = &self.item(path, index);
            // Names of roles may hold colons and capitals, others may not: the API server knows which.
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
            if name.is_empty() || name.len() > NAME_CHARACTERS || !name.chars().all(plain) {
                let hint = name.contains('*').then_some("names are compared as they are; use a label selector");
                self.report("BadNameSelector", path, format!("'{}' is no name of an object", shown(name)), hint);
            } else if !seen.insert(name) {
                self.report("BadNameSelector", path, format!("'{name}' is there twice"), None);
            }
        }
    }

    fn label_selector(&mut self, path: &str, selector: &LabelSelector) {
        let LabelSelector { match_labels, match_expressions } = selector;
        if !self.few(path, match_labels.len().saturating_add(match_expressions.len())) {
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, (key, value)) in match_labels.iter().enumerate() {
            let path = format!("{path}.matchLabels[{index}]");
            self.label_key(&path, key);
            self.label_value(&path, value);
            if !seen.insert(key) {
                self.report("BadLabelSelector", &path, format!("the label '{}' is there twice", shown(key)), None);
            }
        }
        for (index, requirement) in match_expressions.iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            self.label_requirement(&path, requirement);
        }
    }

    fn label_requirement(&mut self, path: &str, requirement: &LabelRequirement) {
        let LabelRequirement { key, operator, values } = requirement;
        self.label_key(path, key);
        match operator {
            LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
                self.report("BadLabelSelector", path, format!("{operator:?} needs at least one value"), None);
            }
            LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
                let message = format!("{operator:?} takes no values");
                self.report("BadLabelSelector", path, message, Some("use In or NotIn"));
            }
            _ if self.few(path, values.len()) => {
                for value in values {
                    self.label_value(path, value);
                }
            }
            _ => {}
        }
    }

    fn label_key(&mut self, path: &str, key: &str) {
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, key),
        };
        let subdomain = |prefix: &str| {
            prefix.len() <= NAME_CHARACTERS
                && prefix.split('.').all(|label| crate::identity::dns_label("label prefix", label).is_ok())
        };
        if !qualified(name) || name.is_empty() || !prefix.is_none_or(subdomain) {
            let hint = Some("for example app.kubernetes.io/name");
            self.report("BadLabelSelector", path, format!("'{}' is no name of a label", shown(key)), hint);
        }
    }

    fn label_value(&mut self, path: &str, value: &str) {
        if !qualified(value) {
            let hint = Some("up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends");
            self.report("BadLabelSelector", path, format!("'{}' is no value of a label", shown(value)), hint);
        }
    }

    fn field_selector(&mut self, path: &str, fields: &[FieldRequirement], names: bool) {
        if !self.few(path, fields.len()) {
            return;
        }
        for (index, requirement) in fields.iter().enumerate() {
            self.field_requirement(&format!("{path}[{index}]"), requirement, names);
        }
    }

    fn field_requirement(&mut self, path: &str, requirement: &FieldRequirement, names: bool) {
        let FieldRequirement { field, equals, value } = requirement;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']');
        if field.is_empty() || field.len() > NAME_CHARACTERS || !field.chars().all(plain) {
            let hint = Some("for example status.phase");
            self.report("BadFieldSelector", path, format!("'{}' is no path of a field", shown(field)), hint);
        }
        if value.len() > TEXT_CHARACTERS || value.chars().any(char::is_control) {
            self.report("BadFieldSelector", path, "the value is too long or has control characters", None);
        }
        if field == "metadata.namespace" {
            let hint = Some("objects of the application's own namespace are selected anyway");
            self.report("BadFieldSelector", path, "the namespace cannot be selected", hint);
        }
        if names && field == "metadata.name" && *equals {
            let message = "metadata.name and a name selector exclude each other";
            self.report("BadFieldSelector", path, message, Some("use the name selector"));
        }
    }

    fn filter(&mut self, path: &str, filter: &Projection) {
        match filter {
            Projection::Whole => {}
            Projection::Fields(pointers) => {
                if pointers.is_empty() {
                    let hint = Some("name fields, or keep the whole object");
                    self.report("BadPointer", path, "an empty list keeps nothing", hint);
                }
                if !self.few(path, pointers.len()) {
                    return;
                }
                let mut seen = BTreeSet::new();
                for pointer in pointers {
                    let good = !pointer.is_empty() && pointer.len() <= TEXT_CHARACTERS && segments(pointer).is_some();
                    if !good {
                        let hint = Some("for example /metadata/labels or /data/a~1b for the key a/b");
                        self.report("BadPointer", path, format!("'{}' is no JSON pointer", shown(pointer)), hint);
                    } else if !seen.insert(pointer) {
                        self.report("BadPointer", path, format!("'{}' is there twice", shown(pointer)), None);
                    }
                }
            }
            // Whether it is a program only an evaluator can say, and it does when the package is loaded.
            Projection::Jq(program) => {
                if program.trim().is_empty() {
                    self.report("JqBadProgram", path, "the jq program is empty", Some("`.` keeps the whole object"));
                } else if program.len() > JQ_PROGRAM_BYTES {
                    let message = format!("the jq program has {} bytes; {JQ_PROGRAM_BYTES} are allowed", program.len());
                    self.report("JqTooLarge", path, message, Some("export a filter from the component"));
                }
            }
            Projection::Component if self.exports_filter => {}
            Projection::Component => {
                let hint = Some("export the interface 'filter', or name the fields");
                self.report("FilterMissing", path, "the component exports no filter", hint);
            }
        }
    }
}

/// The part of a label's name behind the prefix, or a label's value; empty is fine.
fn qualified(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests;
