//! The items of `kubernetes`.

use super::{Common, Parser, kinds};
use crate::declaration::shown;
use crate::hook::{
    FieldRequirement, KubernetesBinding, LabelOperator, LabelRequirement, LabelSelector, Projection, WatchEventType,
};
use crate::identity::Gvk;
use crate::package::document::join;
use crate::package::nearest;
use crate::package::reader::At;

const KNOWN: [&str; 17] = [
    "name",
    "kind",
    "apiVersion",
    "executeHookOnEvent",
    "watchEvent",
    "executeHookOnSynchronization",
    "waitForSynchronization",
    "keepFullObjectsInMemory",
    "jqFilter",
    "nameSelector",
    "labelSelector",
    "fieldSelector",
    "namespace",
    "includeSnapshotsFrom",
    "queue",
    "group",
    "allowFailure",
];

/// Fields that do nothing: the one is accepted there, the other not even that.
const DEAD: [&str; 2] = ["resynchronizationPeriod", "mode"];

const EVENTS: [(&str, WatchEventType); 3] =
    [("Added", WatchEventType::Added), ("Modified", WatchEventType::Modified), ("Deleted", WatchEventType::Deleted)];

const LABEL_OPERATORS: [(&str, LabelOperator); 4] = [
    ("In", LabelOperator::In),
    ("NotIn", LabelOperator::NotIn),
    ("Exists", LabelOperator::Exists),
    ("DoesNotExist", LabelOperator::DoesNotExist),
];

/// And whether the values must be equal.
const FIELD_OPERATORS: [(&str, bool); 5] =
    [("=", true), ("==", true), ("Equals", true), ("!=", false), ("NotEquals", false)];

impl<'a> Parser<'a> {
    pub(super) fn kubernetes(&mut self, node: &At<'a>, name: &str, snapshots: &[String]) -> Option<KubernetesBinding> {
        if !self.reader.object_besides(node, &KNOWN, &DEAD) {
            return None;
        }
        for key in DEAD.iter().filter(|key| node.value.get(key).is_some()) {
            let message = format!("'{key}' does nothing, in shell-operator neither");
            self.report("DeadField", &join(&node.pointer, key), message, Some("remove it"));
        }
        let Common { group, includes, has_queue } = self.common(node, "kubernetes binding", snapshots);
        let gvk = self.gvk(node);
        let name_selector = self.member(node, "nameSelector").map(|node| self.name_selector(&node)).unwrap_or_default();
        let label_selector = self.member(node, "labelSelector").map(|node| self.label_selector(&node));
        let field_selector = self
            .member(node, "fieldSelector")
            .map(|node| self.field_selector(&node, !name_selector.is_empty()))
            .unwrap_or_default();
        if let Some(namespace) = self.member(node, "namespace") {
            self.namespace(&namespace);
        }
        let keep_full = self.flag_member(node, "keepFullObjectsInMemory").unwrap_or(true);
        let filter = match self.text_member(node, "jqFilter") {
            Some((pointer, program)) => {
                let filter = Projection::Jq(program.to_owned());
                self.checker().filter(&pointer, &filter);
                self.filters.insert(name.to_owned(), self.reader.document.problem("", &pointer, ""));
                filter
            }
            None => Projection::Whole,
        };
        if filter == Projection::Whole && !keep_full {
            let message = "without a jqFilter nothing of the objects would be kept";
            let hint = Some("add a jqFilter, or remove keepFullObjectsInMemory");
            self.report("BadValue", &join(&node.pointer, "keepFullObjectsInMemory"), message, hint);
        }
        let watch = self.events(node, "watchEvent");
        let execute = self.events(node, "executeHookOnEvent");
        let execute_on_synchronization = self.flag_member(node, "executeHookOnSynchronization").unwrap_or(true);
        let wait_for_synchronization = self.flag_member(node, "waitForSynchronization").unwrap_or(true);
        if !wait_for_synchronization && !has_queue {
            let message = "without a queue this was ignored, and the binding was waited for";
            let hint = Some("remove it, or name a queue");
            self.report("BadValue", &join(&node.pointer, "waitForSynchronization"), message, hint);
        }
        let (api_version, kind) = gvk?;
        Some(KubernetesBinding {
            name: name.to_owned(),
            api_version,
            kind,
            name_selector,
            label_selector,
            field_selector,
            // Without a filter the projection is the object, and one of them is enough.
            keep_full_objects: keep_full && filter != Projection::Whole,
            filter,
            execute_on_events: execute.or(watch).unwrap_or_else(|| EVENTS.iter().map(|(_, event)| *event).collect()),
            execute_on_synchronization,
            wait_for_synchronization,
            group,
            include_snapshots_from: includes,
        })
    }

    /// API version and kind. There they are looked up by discovery; here they must be known before there is a cluster.
    fn gvk(&mut self, node: &At<'a>) -> Option<(String, String)> {
        let version = self.text_member(node, "apiVersion");
        // Both are looked at before anything is given up.
        let version = version.map(|(pointer, version)| {
            let good = Gvk::parse(version, "Kind").map_err(|error| {
                let message = format!("'{}' is no apiVersion: {}", shown(version), error.reason);
                self.report("BadKind", &pointer, message, Some("for example v1 or apps/v1"));
            });
            good.map(|_| version)
        });
        let kind = self.reader.required(node, "kind")?;
        let text = self.string(&kind)?;
        if let Err(error) = Gvk::parse("v1", text) {
            let message = format!("'{}' is no kind: {}", shown(text), error.reason);
            self.report("BadKind", &kind.pointer, message, Some("for example Deployment"));
            return None;
        }
        match version.transpose().ok()? {
            Some(version) => Some((version.to_owned(), kinds::in_version(version, text).to_owned())),
            None => {
                let known = kinds::preferred(text);
                if known.is_none() {
                    let message = format!("'{}' is no kind of Kubernetes itself, so its apiVersion must be said", text);
                    self.report("MissingKey", &kind.pointer, message, Some("add `apiVersion: <group>/<version>`"));
                }
                known.map(|(version, kind)| (version.to_owned(), kind.to_owned()))
            }
        }
    }

    /// The names in `matchNames`, of which no one restricts nothing.
    fn match_names(&mut self, node: &At<'a>) -> Option<(String, Vec<String>)> {
        if !self.reader.object(node, &["matchNames"]) {
            return None;
        }
        let names = self.reader.required(node, "matchNames")?;
        let list = self.list_of_strings(&names);
        Some((names.pointer, list))
    }

    fn name_selector(&mut self, node: &At<'a>) -> Vec<String> {
        let Some((pointer, names)) = self.match_names(node) else { return Vec::new() };
        self.checker().name_selector(&pointer, &names);
        names
    }

    /// Whether an object that must say something does.
    fn says_something(&mut self, node: &At<'a>, known: &[&str]) -> bool {
        if !self.reader.object(node, known) {
            return false;
        }
        let empty = node.value.as_object().is_some_and(serde_json::Map::is_empty);
        if empty {
            self.report("BadValue", &node.pointer, "must not be empty", Some("remove the key"));
        }
        !empty
    }

    fn label_selector(&mut self, node: &At<'a>) -> LabelSelector {
        let mut selector = LabelSelector::default();
        if !self.says_something(node, &["matchLabels", "matchExpressions"]) {
            return selector;
        }
        if let Some(labels) = self.member(node, "matchLabels") {
            match labels.value.as_object() {
                None => self.reader.bad_type(&labels, "an object"),
                Some(object) if self.checker().few(&labels.pointer, object.len()) => {
                    for (key, value) in object {
                        let at = At { pointer: join(&labels.pointer, key), value };
                        self.checker().label_key(&at.pointer, key);
                        let Some(text) = self.string(&at) else { continue };
                        self.checker().label_value(&at.pointer, text);
                        selector.match_labels.push((key.clone(), text.to_owned()));
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(expressions) = self.member(node, "matchExpressions") {
            let items = self.reader.items(&expressions);
            if self.checker().few(&expressions.pointer, items.len().saturating_add(selector.match_labels.len())) {
                selector.match_expressions = items.iter().filter_map(|item| self.label_requirement(item)).collect();
            }
        }
        selector
    }

    fn label_requirement(&mut self, node: &At<'a>) -> Option<LabelRequirement> {
        if !self.reader.object(node, &["key", "operator", "values"]) {
            return None;
        }
        let key = self.reader.required(node, "key").and_then(|key| self.string(&key));
        let operator = self.reader.required(node, "operator").and_then(|node| self.word(&node, &LABEL_OPERATORS));
        let before = self.reader.problems.len();
        let values = self.member(node, "values").map(|values| self.list_of_strings(&values)).unwrap_or_default();
        let good = self.reader.problems.len() == before;
        let requirement = LabelRequirement { key: key?.to_owned(), operator: operator?, values };
        if good {
            self.checker().label_requirement(&node.pointer, &requirement);
        }
        Some(requirement)
    }

    fn field_selector(&mut self, node: &At<'a>, names: bool) -> Vec<FieldRequirement> {
        if !self.reader.object(node, &["matchExpressions"]) {
            return Vec::new();
        }
        let Some(expressions) = self.reader.required(node, "matchExpressions") else { return Vec::new() };
        let items = self.reader.items(&expressions);
        if !self.checker().few(&expressions.pointer, items.len()) {
            return Vec::new();
        }
        items.iter().filter_map(|item| self.field_requirement(item, names)).collect()
    }

    fn field_requirement(&mut self, node: &At<'a>, names: bool) -> Option<FieldRequirement> {
        if !self.reader.object(node, &["field", "operator", "value"]) {
            return None;
        }
        let field = self.reader.required(node, "field").and_then(|field| self.string(&field));
        let operator = self.reader.required(node, "operator").and_then(|node| self.word(&node, &FIELD_OPERATORS));
        let value = self.reader.required(node, "value").and_then(|value| self.string(&value));
        let requirement = FieldRequirement { field: field?.to_owned(), equals: operator?, value: value?.to_owned() };
        self.checker().field_requirement(&node.pointer, &requirement, names);
        Some(requirement)
    }

    /// Hooks of an application see its namespace. Which one that is, is known when the application is; until then the
    /// names are remembered.
    fn namespace(&mut self, node: &At<'a>) {
        const HINT: &str = "remove it: objects of the application's own namespace are selected anyway";
        if !self.says_something(node, &["nameSelector", "labelSelector"]) {
            return;
        }
        if let Some(labels) = self.member(node, "labelSelector") {
            let message = "namespaces cannot be selected by labels: hooks of an application see its own namespace only";
            self.report("ForeignNamespace", &labels.pointer, message, Some(HINT));
        }
        let Some(names) = self.member(node, "nameSelector") else { return };
        let Some((pointer, mut names)) = self.match_names(&names) else { return };
        names.sort();
        names.dedup();
        match names.as_slice() {
            [] => {}
            [name] => {
                let name = shown(name);
                let message =
                    format!("selects the namespace '{name}': hooks of an application see its own namespace only");
                let problem = self.reader.document.problem("ForeignNamespace", &pointer, message).hint(HINT);
                self.namespaces.push((names.swap_remove(0), problem));
            }
            names => {
                let message =
                    format!("selects {} namespaces: hooks of an application see its own namespace only", names.len());
                self.report("ForeignNamespace", &pointer, message, Some(HINT));
            }
        }
    }

    fn events(&mut self, node: &At<'a>, key: &str) -> Option<Vec<WatchEventType>> {
        let member = self.member(node, key)?;
        let items = self.reader.items(&member);
        let events: Vec<WatchEventType> = items.iter().filter_map(|item| self.word(item, &EVENTS)).collect();
        self.checker().events(&member.pointer, &events);
        Some(events)
    }

    /// The meaning of a word.
    fn word<T: Copy>(&mut self, node: &At<'a>, words: &[(&str, T)]) -> Option<T> {
        let text = self.string(node)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("must be one of {}, not '{}'", known.join(", "), shown(text));
            let hint = nearest(text, &known).map(|nearest| format!("did you mean '{nearest}'?"));
            self.reader.report("BadValue", &node.pointer, message, hint);
        }
        found.map(|(_, meaning)| *meaning)
    }
}
