//! The v1 configuration of a hook of shell-operator, for authors who migrate.
//!
//! A package may hold such a configuration as it is in `hooks/bindings/<hook>.yaml`. It takes the place of what a
//! component declares for the hook of that name: bindings, queue, `allowFailure` and rate limit. The text is read strictly
//! and all of it, so that everything that is wrong is told at once, with its line and its path.
//!
//! What an application cannot have (other namespaces, webhooks) and what never did anything (`mode`,
//! `resynchronizationPeriod`) is refused with the reason rather than ignored: a hook that runs less often than its author
//! believes is worse than one that is not loaded.

mod kinds;
mod kubernetes;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Checker, ComponentDeclarations, Place, shown};
use crate::hook::{Binding, DEFAULT_QUEUE, HookDeclaration, RateLimit, ScheduleBinding, Stage};
use crate::limits::{BINDINGS_PER_HOOK, HOOKS_PER_PACKAGE};
use crate::package::document::{Document, join};
use crate::package::reader::{At, Reader};
use crate::package::{PackageSource, Problem, dotted, nearest};
use crate::schedule::go_duration;

/// Folder of the configurations in a package.
pub const FOLDER: &str = "hooks/bindings/";

/// Ending of their names.
const ENDING: &str = ".yaml";

/// Hooks that an error names.
const HOOKS_NAMED: usize = 20;

/// Sections that hosts of other things than applications have.
const NOT_OFFERED: [(&str, &str, &str); 5] = [
    (
        "kubernetesValidating",
        "validating webhooks are not offered by this host: hooks answer no requests of the API server",
        "remove it; a ValidatingAdmissionPolicy in templates/ checks objects, the export `check-settings` checks settings",
    ),
    (
        "kubernetesMutating",
        "mutating webhooks are not offered by this host: hooks answer no requests of the API server",
        "remove it; a MutatingAdmissionPolicy in templates/ changes objects",
    ),
    (
        "kubernetesCustomResourceConversion",
        "conversion webhooks are not offered by this host: hooks answer no requests of the API server",
        "remove it; serve one version, or convert in a Deployment of the package",
    ),
    ("beforeAll", "global hooks are not offered by this host: a package is on its own", "use beforeHelm"),
    ("afterAll", "global hooks are not offered by this host: a package is on its own", "use afterHelm"),
];

/// What a configuration says of its hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Path in the package.
    pub file: String,
    /// Why the hook runs: stages, then schedules, then kubernetes bindings, each in the order of the text.
    pub bindings: Vec<Binding>,
    /// Queue of its schedule and kubernetes runs.
    pub queue: String,
    /// A failing schedule or kubernetes run is dropped in place of being repeated.
    pub allow_failure: bool,
    /// How often it may run.
    pub rate_limit: Option<RateLimit>,
    /// Namespaces that its bindings name, each with the problem that it is in every other one.
    namespaces: Vec<(String, Problem)>,
    /// Where the filters of kubernetes bindings stand, by name of the binding, as problems of which nothing is said yet.
    filters: BTreeMap<String, Problem>,
}

impl Configuration {
    /// Parses a configuration, YAML or JSON.
    ///
    /// # Errors
    /// Malformed text or duplicate keys; otherwise all problems in the order of the text, up to a bound.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let document = Document::parse(file, text)?;
        let mut parser = Parser {
            reader: Reader { document: &document, problems: Vec::new() },
            namespaces: Vec::new(),
            filters: BTreeMap::new(),
            policies: Vec::new(),
        };
        let parsed = parser.configuration();
        let mut problems = parser.reader.problems;
        problems.sort_by_key(|problem| (problem.line, problem.column));
        match parsed {
            Some(parsed) if problems.is_empty() => Ok(parsed),
            _ => Err(problems),
        }
    }

    /// What is wrong with it for an application in a namespace: bindings that name another one.
    #[must_use]
    pub fn outside(&self, namespace: &str) -> Vec<Problem> {
        let outside = self.namespaces.iter().filter(|(name, _)| name != namespace);
        outside.map(|(_, problem)| problem.clone()).collect()
    }

    /// What an evaluator says of the filter of a kubernetes binding, with its place; nothing if it has no filter.
    #[must_use]
    pub fn filter_problem(&self, binding: &str, reason: &str, message: String) -> Option<Problem> {
        let place = self.filters.get(binding)?.clone();
        Some(Problem { reason: reason.to_owned(), message, ..place })
    }
}

/// The configurations of a package that can be read, by name of the hook, and what is wrong with the others.
#[must_use]
pub fn load(source: &PackageSource) -> (BTreeMap<String, Configuration>, Vec<Problem>) {
    let mut configurations = BTreeMap::new();
    let mut problems = Vec::new();
    let count = source.below(FOLDER).count();
    if count > HOOKS_PER_PACKAGE {
        let message = format!("{count} files are more than {HOOKS_PER_PACKAGE}");
        problems.push(Problem::new("TooManyHooks", FOLDER, "", message));
        return (configurations, problems);
    }
    for path in source.below(FOLDER) {
        let hook = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_suffix(ENDING));
        let Some(hook) = hook.filter(|hook| !hook.is_empty()) else {
            let hint = format!("this folder holds one file for a hook: {FOLDER}<hook>{ENDING}");
            problems.push(Problem::new("BadPath", path, "", format!("does not end in '{ENDING}'")).hint(hint));
            continue;
        };
        let Some(text) = source.text(path) else { continue };
        match text.map_err(|problem| vec![problem]).and_then(|text| Configuration::parse(path, text)) {
            Ok(configuration) => {
                configurations.insert(hook.to_owned(), configuration);
            }
            Err(more) => problems.extend(more),
        }
    }
    (configurations, problems)
}

/// Puts configurations in the place of what components declare for the hooks of their names. The declarations are to be
/// checked afterwards like any other.
///
/// # Errors
/// One problem for each configuration whose hook is not declared by any component.
pub fn replace(
    components: &mut [ComponentDeclarations],
    configurations: &BTreeMap<String, Configuration>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (hook, configuration) in configurations {
        let declared = components.iter_mut().flat_map(|component| &mut component.hooks);
        let mut found = false;
        for declaration in declared.filter(|declaration| declaration.name == *hook) {
            found = true;
            let HookDeclaration { name: _, bindings, queue, allow_failure, rate_limit } = declaration;
            bindings.clone_from(&configuration.bindings);
            queue.clone_from(&configuration.queue);
            *allow_failure = configuration.allow_failure;
            *rate_limit = configuration.rate_limit;
        }
        if !found {
            problems.push(unknown_hook(hook, configuration, components));
        }
    }
    problems
}

fn unknown_hook(hook: &str, configuration: &Configuration, components: &[ComponentDeclarations]) -> Problem {
    let declared = components.iter().flat_map(|component| &component.hooks);
    let mut names: Vec<&str> = declared.map(|declaration| declaration.name.as_str()).collect();
    names.sort_unstable();
    let hint = match nearest(hook, &names) {
        _ if names.is_empty() => "the package declares no hook at all".to_owned(),
        Some(nearest) => format!("did you mean '{}'? The name of the file is that of the hook", shown(nearest)),
        None => {
            let named: Vec<String> = names.iter().take(HOOKS_NAMED).map(|name| shown(name)).collect();
            let more = if names.len() > HOOKS_NAMED { ", …" } else { "" };
            format!("the hooks are: {}{more}", named.join(", "))
        }
    };
    let message = format!("no component of the package declares a hook '{}'", shown(hook));
    Problem::new("UnknownHook", &configuration.file, "", message).hint(hint)
}

struct Parser<'a> {
    reader: Reader<'a>,
    namespaces: Vec<(String, Problem)>,
    filters: BTreeMap<String, Problem>,
    policies: Vec<Policy>,
}

/// What a schedule or kubernetes binding says that our hooks have once. Pointers are those of the key, or of the binding
/// that lacks it.
struct Policy {
    binding: String,
    queue: (String, String),
    allow_failure: (String, bool),
}

impl<'a> Parser<'a> {
    fn report(&mut self, reason: &str, pointer: &str, message: impl Into<String>, hint: Option<&str>) {
        self.reader.report(reason, pointer, message, hint.map(str::to_owned));
    }

    /// The checks that declarations of components go through.
    fn checker(&mut self) -> Checker<'_> {
        Checker { place: Place::File(self.reader.document), exports_filter: false, problems: &mut self.reader.problems }
    }

    fn configuration(&mut self) -> Option<Configuration> {
        const KNOWN: [&str; 12] = [
            "configVersion",
            "settings",
            "onStartup",
            "beforeHelm",
            "afterHelm",
            "beforeDeleteHelm",
            "afterDeleteHelm",
            "schedule",
            "kubernetes",
            "kubernetesValidating",
            "kubernetesMutating",
            "kubernetesCustomResourceConversion",
        ];
        const LEGACY: &str = "onKubernetesEvent";
        let document = self.reader.document;
        let root = At { pointer: String::new(), value: &document.value };
        if root.value.is_null() {
            let hint = Some("it begins with `configVersion: v1`");
            self.report("MalformedYaml", "", "is empty", hint);
            return None;
        }
        if root.value.is_object() && !self.version(&root) {
            return None;
        }
        if !self.reader.object_besides(&root, &KNOWN, &[LEGACY, "beforeAll", "afterAll"]) {
            return None;
        }
        if root.value.get(LEGACY).is_some() {
            let message = "is a key of the v0 form, which is not read";
            self.report("UnknownKey", &join("", LEGACY), message, Some("use `kubernetes`"));
        }
        for (key, why, hint) in NOT_OFFERED {
            if root.value.get(key).is_some() {
                self.report("NotOffered", &join("", key), why, Some(hint));
            }
        }
        let rate_limit = self.member(&root, "settings").and_then(|node| self.settings(&node));
        let mut bindings = Vec::new();
        for stage in
            [Stage::OnStartup, Stage::BeforeHelm, Stage::AfterHelm, Stage::BeforeDeleteHelm, Stage::AfterDeleteHelm]
        {
            if let Some(order) = self.member(&root, stage.as_str()).and_then(|node| self.order(&node)) {
                bindings.push(Binding::Lifecycle { stage, order });
            }
        }
        let schedules = self.section(&root, "schedule");
        let kubernetes = self.section(&root, "kubernetes");
        let count = schedules.len().saturating_add(kubernetes.len()).saturating_add(bindings.len());
        if count > BINDINGS_PER_HOOK {
            let message = format!("{count} bindings are more than {BINDINGS_PER_HOOK}");
            self.report("TooManyBindings", "", message, Some("split the hook"));
            return None;
        }
        let snapshots = self.names(&kubernetes, "kubernetes");
        for (node, name) in schedules.iter().zip(self.names(&schedules, "schedule")) {
            bindings.extend(self.schedule(node, name, &snapshots).map(Binding::Schedule));
        }
        for (node, name) in kubernetes.iter().zip(&snapshots) {
            bindings.extend(self.kubernetes(node, name, &snapshots).map(Binding::Kubernetes));
        }
        if bindings.is_empty() && self.reader.problems.is_empty() {
            let hint = Some("bind it with onStartup, beforeHelm, afterHelm, schedule, kubernetes, …");
            self.report("NoBindings", "", "the hook would never run: there is no binding", hint);
        }
        let (queue, allow_failure) = self.policy();
        let (namespaces, filters) = (std::mem::take(&mut self.namespaces), std::mem::take(&mut self.filters));
        let file = document.file.clone();
        Some(Configuration { file, bindings, queue, allow_failure, rate_limit, namespaces, filters })
    }

    /// Whether it makes sense to read on.
    fn version(&mut self, root: &At<'a>) -> bool {
        let hint = Some("the form that is read is `configVersion: v1`");
        match root.value.get("configVersion") {
            Some(Value::String(version)) if version == "v1" => true,
            Some(Value::String(version)) => {
                let why = if version == "v0" { "the v0 form is not read" } else { "there is no such version" };
                self.report("BadVersion", "/configVersion", format!("'{}': {why}", shown(version)), hint);
                false
            }
            Some(Value::Null) => {
                self.report("MissingKey", "/configVersion", "the value is missing", hint);
                true
            }
            Some(value) => {
                self.reader.bad_type(&At { pointer: "/configVersion".to_owned(), value }, "text");
                true
            }
            None => {
                let message = "the key 'configVersion' is missing: that would be the v0 form, which is not read";
                self.report("MissingKey", "", message, hint);
                true
            }
        }
    }

    fn member(&self, node: &At<'a>, key: &str) -> Option<At<'a>> {
        self.reader.member(node, key)
    }

    /// Text that may be empty.
    fn string(&mut self, node: &At<'a>) -> Option<&'a str> {
        let value: &'a Value = node.value;
        if value.as_str().is_none() {
            self.reader.bad_type(node, "text");
        }
        value.as_str()
    }

    /// A member that is text; empty text counts as absent, as it does in Go.
    fn text_member(&mut self, node: &At<'a>, key: &str) -> Option<(String, &'a str)> {
        let member = self.member(node, key)?;
        let text = self.string(&member).filter(|text| !text.is_empty())?;
        Some((member.pointer, text))
    }

    fn flag_member(&mut self, node: &At<'a>, key: &str) -> Option<bool> {
        let member = self.member(node, key)?;
        self.reader.flag(&member)
    }

    fn list_of_strings(&mut self, node: &At<'a>) -> Vec<String> {
        self.reader.items(node).iter().filter_map(|item| self.string(item).map(str::to_owned)).collect()
    }

    fn whole(&mut self, node: &At<'a>) -> Option<i64> {
        // JSON knows one kind of number: `1.0` is whole.
        let float = node.value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
        #[expect(clippy::cast_possible_truncation, reason = "the float is whole and below 2^53")]
        let number = node.value.as_i64().or_else(|| float.map(|float| float as i64));
        if number.is_none() {
            self.reader.bad_type(node, "a whole number");
        }
        number
    }

    fn order(&mut self, node: &At<'a>) -> Option<i32> {
        let order = self.whole(node)?;
        let narrow = i32::try_from(order).ok();
        if narrow.is_none() {
            self.report("BadValue", &node.pointer, format!("{order} does not fit into 32 bits"), None);
        }
        narrow
    }

    fn settings(&mut self, node: &At<'a>) -> Option<RateLimit> {
        const PERIOD: &str = "executionMinPeriod";
        if !self.reader.object_besides(node, &["executionMinInterval", "executionBurst"], &[PERIOD]) {
            return None;
        }
        if node.value.get(PERIOD).is_some() {
            let message = format!("the key '{PERIOD}' is not known");
            self.report("UnknownKey", &join(&node.pointer, PERIOD), message, Some("the key is 'executionMinInterval'"));
        }
        let interval = self.reader.required(node, "executionMinInterval");
        let burst = self.member(node, "executionBurst");
        let interval = interval.and_then(|interval| {
            let text = self.string(&interval)?;
            let Some(duration) = go_duration(text) else {
                let message = format!("'{}' is no duration", shown(text));
                let hint = Some("for example 30s or 1m30s");
                self.report("BadRateLimit", &interval.pointer, message, hint);
                return None;
            };
            let ms = duration.as_nanos().div_ceil(1_000_000);
            Some((interval.pointer, u64::try_from(ms).unwrap_or(u64::MAX)))
        });
        let burst = match burst {
            None => Some((String::new(), 1)),
            Some(burst) => self.whole(&burst).and_then(|number| {
                // 0 is 1, as it is there.
                let number = u64::try_from(number).ok().map(|number| u32::try_from(number.max(1)).unwrap_or(u32::MAX));
                if number.is_none() {
                    self.report("BadRateLimit", &burst.pointer, "must not be negative", None);
                }
                Some((burst.pointer, number?))
            }),
        };
        let ((interval, min_interval_ms), (burst_pointer, burst)) = (interval?, burst?);
        let limit = RateLimit { min_interval_ms, burst };
        self.checker().rate_limit(&interval, &burst_pointer, limit);
        // Without an interval there is no limit.
        (min_interval_ms > 0).then_some(limit)
    }

    /// Items of a section, of which there must be one.
    fn section(&mut self, root: &At<'a>, key: &str) -> Vec<At<'a>> {
        let Some(node) = self.member(root, key) else { return Vec::new() };
        let items = self.reader.items(&node);
        if items.is_empty() && node.value.is_array() {
            self.report("BadValue", &node.pointer, "must not be empty", Some("remove the key"));
        }
        items
    }

    /// Names of the bindings of a section. shell-operator lets them be the same and then finds the first only.
    fn names(&mut self, nodes: &[At<'a>], default: &str) -> Vec<String> {
        let mut first: BTreeMap<&str, &At<'a>> = BTreeMap::new();
        let mut names = Vec::with_capacity(nodes.len());
        for node in nodes {
            // That it must be text is said when the binding is read.
            let value: &'a Value = node.value;
            let own = value.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = own.unwrap_or(default);
            if let Some(first) = first.get(name) {
                let pointer = own.map_or_else(|| node.pointer.clone(), |_| join(&node.pointer, "name"));
                let place = dotted(&first.pointer);
                let (message, hint) = match own {
                    Some(name) => (format!("the name '{}' is taken by {place}", shown(name)), "names are unique"),
                    None => (format!("has the same name as {place}: '{default}'"), "give it a `name` of its own"),
                };
                self.report("DuplicateBinding", &pointer, message, Some(hint));
            } else {
                first.insert(name, node);
            }
            names.push(name.to_owned());
        }
        names
    }

    fn schedule(&mut self, node: &At<'a>, name: String, snapshots: &[String]) -> Option<ScheduleBinding> {
        const KNOWN: [&str; 6] = ["name", "crontab", "allowFailure", "queue", "includeSnapshotsFrom", "group"];
        if !self.reader.object(node, &KNOWN) {
            return None;
        }
        self.common(node, "schedule", snapshots);
        let crontab = self.reader.required(node, "crontab")?;
        let text = self.string(&crontab)?;
        self.checker().crontab(&crontab.pointer, text)?;
        Some(ScheduleBinding { name, crontab: text.to_owned() })
    }

    /// What schedules and kubernetes bindings have in common. Includes of schedules are checked and need nothing else:
    /// a run of ours sees all snapshots of its hook.
    fn common(&mut self, node: &At<'a>, what: &str, snapshots: &[String]) -> Common {
        if let Some((pointer, name)) = self.text_member(node, "name") {
            self.checker().name(what, &pointer, name);
        }
        let queue = self.text_member(node, "queue");
        if let Some((pointer, queue)) = &queue {
            self.checker().queue(pointer, queue);
        }
        let group = self.text_member(node, "group").map(|(pointer, group)| {
            self.checker().name("group", &pointer, group);
            group.to_owned()
        });
        let mut includes = Vec::new();
        if let Some(member) = self.member(node, "includeSnapshotsFrom") {
            let before = self.reader.problems.len();
            includes = self.list_of_strings(&member);
            if includes.is_empty() && self.reader.problems.len() == before {
                self.report("BadValue", &member.pointer, "must not be empty", Some("remove the key"));
            }
            let snapshots: Vec<&str> = snapshots.iter().map(String::as_str).collect();
            self.checker().includes(&member.pointer, &includes, &snapshots);
        }
        let allow_failure = self.flag_member(node, "allowFailure");
        let pointer_of = |key: &str, there: bool| match there {
            true => join(&node.pointer, key),
            false => node.pointer.clone(),
        };
        let has_queue = queue.is_some();
        self.policies.push(Policy {
            binding: dotted(&node.pointer),
            queue: (pointer_of("queue", has_queue), queue.map_or(DEFAULT_QUEUE, |(_, queue)| queue).to_owned()),
            allow_failure: (pointer_of("allowFailure", allow_failure.is_some()), allow_failure.unwrap_or_default()),
        });
        Common { group, includes, has_queue }
    }

    /// The queue and the policy of all bindings.
    fn policy(&mut self) -> (String, bool) {
        let mut policies = std::mem::take(&mut self.policies).into_iter();
        let Some(first) = policies.next() else { return (DEFAULT_QUEUE.to_owned(), false) };
        for other in policies {
            if other.queue.1 != first.queue.1 {
                let (mine, own, place) = (shown(&other.queue.1), shown(&first.queue.1), &first.binding);
                let message = format!("its queue is '{mine}', that of {place} is '{own}': a hook has one queue");
                self.report("QueuesDiffer", &other.queue.0, message, Some("split the hook into one for each queue"));
            }
            if other.allow_failure.1 != first.allow_failure.1 {
                let (mine, own, place) = (other.allow_failure.1, first.allow_failure.1, &first.binding);
                let message = format!("allowFailure is {mine}, that of {place} is {own}: a hook has one policy");
                let hint = Some("split the hook into one that may fail and one that may not");
                self.report("FailurePoliciesDiffer", &other.allow_failure.0, message, hint);
            }
        }
        (first.queue.1, first.allow_failure.1)
    }
}

/// What [`Parser::common`] found.
struct Common {
    group: Option<String>,
    includes: Vec<String>,
    has_queue: bool,
}

#[cfg(test)]
mod tests;
