//! What stands behind the imports while a test runs a hook.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::{Given, LogLine, Measurement, MeasurementKind, Operation, Options, document, project};
use crate::bindings::hooks::barbless::hooks::patch_collector as wit;
use crate::bindings::hooks::barbless::hooks::snapshots::SnapshotError;
use crate::bindings::hooks::barbless::hooks::values::ValuesError;
use crate::context::{Change, Identity};
use crate::declaration::{KubernetesBinding, LabelOperator, LabelSelector};
use crate::log::Level;
use crate::patches::ObjectRef;

/// As in the host.
const VALUES_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) values: Value,
    pub(crate) settings: Value,
    pub(crate) instance: Identity,
    pub(crate) snapshots: BTreeMap<String, Contents>,
    pub(crate) changes: Vec<Change>,
    pub(crate) now_unix_ms: u64,
    pub(crate) random: u64,
    pub(crate) operations: Vec<Operation>,
    pub(crate) logs: Vec<LogLine>,
    pub(crate) metrics: Vec<Measurement>,
}

#[derive(Debug, Clone)]
pub(crate) enum Contents {
    Items(Rc<Vec<Entry>>),
    NotSynchronised(String),
}

#[derive(Debug)]
pub(crate) struct Entry {
    namespace: String,
    name: String,
    projection: Value,
    object: Option<Value>,
}

impl State {
    pub(crate) fn effective_values(&self) -> Value {
        let mut values = self.values.clone();
        if let (Value::Object(values), Value::Object(settings)) = (&mut values, &self.settings) {
            for (key, value) in settings {
                values.insert(key.clone(), value.clone());
            }
        }
        values
    }

    pub(crate) fn values_get(&self, pointer: &str) -> Option<String> {
        self.effective_values().pointer(pointer).map(Value::to_string)
    }

    pub(crate) fn values_set(&mut self, pointer: &str, json: &str) -> Result<(), ValuesError> {
        let value = serde_json::from_str(json).map_err(|error| ValuesError::BadJson(error.to_string()))?;
        self.change(pointer, |values| document::set(values, pointer, value))
    }

    pub(crate) fn values_remove(&mut self, pointer: &str) -> Result<(), ValuesError> {
        self.change(pointer, |values| document::remove(values, pointer))
    }

    fn change(
        &mut self,
        pointer: &str,
        change: impl FnOnce(&mut Value) -> Result<(), ValuesError>,
    ) -> Result<(), ValuesError> {
        let first = document::segments(pointer)?.into_iter().next();
        if first.is_some_and(|first| self.settings.get(&first).is_some()) {
            return Err(ValuesError::ReadOnly(pointer.to_owned()));
        }
        // A failed change leaves the document as it was.
        let mut values = self.values.clone();
        change(&mut values)?;
        if values.to_string().len() > VALUES_BYTES_MAX {
            return Err(ValuesError::TooLarge);
        }
        self.values = values;
        Ok(())
    }

    pub(crate) fn settings_get(&self, pointer: &str) -> Option<String> {
        self.settings.pointer(pointer).map(Value::to_string)
    }

    pub(crate) fn snapshot_open(&self, binding: &str) -> Result<SnapshotHandle, SnapshotError> {
        match self.snapshots.get(binding) {
            None => Err(SnapshotError::NoSuchBinding),
            Some(Contents::NotSynchronised(reason)) => Err(SnapshotError::NotSynchronised(reason.clone())),
            Some(Contents::Items(entries)) => Ok(SnapshotHandle { entries: Rc::clone(entries) }),
        }
    }

    pub(crate) fn changed(&self) -> SnapshotHandle {
        let of = |change: &Change| {
            let known = match self.snapshots.get(&change.binding) {
                Some(Contents::Items(entries)) => entries
                    .iter()
                    .find(|entry| entry.name == change.name && entry.namespace == change.namespace)
                    .or_else(|| entries.iter().find(|entry| entry.name == change.name && entry.namespace.is_empty())),
                _ => None,
            };
            Entry {
                namespace: change.namespace.clone(),
                name: change.name.clone(),
                projection: known.map_or(Value::Null, |entry| entry.projection.clone()),
                object: known.and_then(|entry| entry.object.clone()),
            }
        };
        SnapshotHandle { entries: Rc::new(self.changes.iter().map(of).collect()) }
    }

    pub(crate) fn log(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        self.logs.push(LogLine { level, message: message.to_owned(), fields: fields.to_vec() });
    }

    pub(crate) fn counter_add(&mut self, name: &str, value: f64, labels: &[(String, String)]) {
        assert!(value.is_finite() && value >= 0.0, "a counter cannot be changed by {value}: the host ends such a run");
        self.measure(MeasurementKind::CounterAdd, name, value, labels);
    }

    pub(crate) fn gauge_set(&mut self, name: &str, value: f64, labels: &[(String, String)]) {
        self.measure(MeasurementKind::GaugeSet, name, value, labels);
    }

    pub(crate) fn histogram_observe(&mut self, name: &str, value: f64, labels: &[(String, String)]) {
        self.measure(MeasurementKind::HistogramObserve, name, value, labels);
    }

    fn measure(&mut self, kind: MeasurementKind, name: &str, value: f64, labels: &[(String, String)]) {
        self.metrics.push(Measurement { kind, name: name.to_owned(), value, labels: labels.to_vec() });
    }

    /// SplitMix64: enough for tests, and the same everywhere.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn random_bytes(&mut self, len: u32) -> Vec<u8> {
        (0..len).map(|_| self.next_u64().to_le_bytes()[0]).collect()
    }
}

/// What the snapshot of a binding holds, given what the test said.
#[expect(clippy::panic, reason = "a wrong test is told so at once")]
pub(super) fn contents(given: Given, binding: Option<&KubernetesBinding>) -> Contents {
    let mut entries = match given {
        Given::NotSynchronised(reason) => return Contents::NotSynchronised(reason),
        Given::Projections(projections) => {
            projections.into_iter().map(|value| entry_of(&value, value.clone(), None)).collect()
        }
        Given::Objects(objects) => {
            let selected = objects.into_iter().filter(|object| binding.is_none_or(|binding| selects(binding, object)));
            let project_one = |object: Value| {
                let Some(binding) = binding else { return entry_of(&object, object.clone(), Some(object.clone())) };
                let Some(projection) = project(&binding.filter, &object) else {
                    panic!("`{}` is projected by a program: give projections with `snapshot`", binding.name)
                };
                let full = binding.keep_full_objects.then(|| object.clone());
                entry_of(&object, projection, full)
            };
            selected.map(project_one).collect::<Vec<_>>()
        }
    };
    entries.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Contents::Items(Rc::new(entries))
}

fn entry_of(named: &Value, projection: Value, object: Option<Value>) -> Entry {
    let text = |field: &str| {
        let value = named.pointer(field).or_else(|| named.get(field)).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    Entry { namespace: text("/metadata/namespace"), name: text("/metadata/name"), projection, object }
}

fn selects(binding: &KubernetesBinding, object: &Value) -> bool {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let named = binding.name_selector.is_empty() || binding.name_selector.iter().any(|wanted| wanted == name);
    let labelled = binding.label_selector.as_ref().is_none_or(|selector| labels_match(selector, object));
    let fields = binding.field_selector.iter().all(|requirement| {
        let pointer = format!("/{}", requirement.field.replace('.', "/"));
        let value = object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
        (value == requirement.value) == requirement.equals
    });
    named && labelled && fields
}

fn labels_match(selector: &LabelSelector, object: &Value) -> bool {
    let label =
        |key: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = selector.match_labels.iter().all(|(key, value)| label(key) == Some(value));
    let expressions = selector.match_expressions.iter().all(|requirement| {
        let value = label(&requirement.key);
        let listed = value.is_some_and(|value| requirement.values.iter().any(|wanted| wanted == value));
        match requirement.operator {
            LabelOperator::In => listed,
            LabelOperator::NotIn => !listed,
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    });
    equal && expressions
}

/// See the `snapshot` resource of the contract.
pub(crate) struct SnapshotHandle {
    entries: Rc<Vec<Entry>>,
}

impl SnapshotHandle {
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn at(&self, index: u32) -> Option<ItemHandle> {
        let index = index as usize;
        (index < self.entries.len()).then(|| ItemHandle { entries: Rc::clone(&self.entries), index })
    }

    pub(crate) fn json(&self) -> String {
        let projections: Vec<&Value> = self.entries.iter().map(|entry| &entry.projection).collect();
        serde_json::to_string(&projections).expect("values are JSON, and their keys are strings")
    }
}

/// See the `item` resource of the contract.
pub(crate) struct ItemHandle {
    entries: Rc<Vec<Entry>>,
    index: usize,
}

impl ItemHandle {
    fn entry(&self) -> &Entry {
        self.entries.get(self.index).expect("`at` checked the index, and a snapshot never changes")
    }

    pub(crate) fn name(&self) -> String {
        self.entry().name.clone()
    }

    pub(crate) fn namespace(&self) -> String {
        self.entry().namespace.clone()
    }

    pub(crate) fn get(&self, pointer: &str) -> Option<String> {
        self.entry().projection.pointer(pointer).map(Value::to_string)
    }

    pub(crate) fn json(&self) -> String {
        self.entry().projection.to_string()
    }

    pub(crate) fn object(&self) -> Option<String> {
        self.entry().object.as_ref().map(Value::to_string)
    }
}

/// See the `patch-collector` resource of the contract.
pub(crate) struct Collector {
    state: Rc<RefCell<State>>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    pub(crate) fn new(state: Rc<RefCell<State>>) -> Self {
        Self { state }
    }

    fn push(&self, operation: Operation) {
        self.state.borrow_mut().operations.push(operation);
    }

    pub(crate) fn create(&self, object: &str, options: wit::Options) {
        self.push(Operation::Create { object: parse(object), options: options.into() });
    }

    pub(crate) fn create_if_not_exists(&self, object: &str, options: wit::Options) {
        self.push(Operation::CreateIfNotExists { object: parse(object), options: options.into() });
    }

    pub(crate) fn create_or_update(&self, object: &str, options: wit::Options) {
        self.push(Operation::CreateOrUpdate { object: parse(object), options: options.into() });
    }

    pub(crate) fn apply(&self, object: &str, options: wit::Options) {
        self.push(Operation::Apply { object: parse(object), options: options.into() });
    }

    pub(crate) fn merge_patch(&self, target: &wit::ObjectRef, patch: &str, options: wit::Options) {
        let target = ObjectRef { wit: target.clone() };
        self.push(Operation::MergePatch { target, patch: parse(patch), options: options.into() });
    }

    pub(crate) fn json_patch(&self, target: &wit::ObjectRef, patch: &str, options: wit::Options) {
        let target = ObjectRef { wit: target.clone() };
        self.push(Operation::JsonPatch { target, patch: parse(patch), options: options.into() });
    }

    pub(crate) fn jq_patch(&self, target: &wit::ObjectRef, program: &str, options: wit::Options) {
        let target = ObjectRef { wit: target.clone() };
        self.push(Operation::JqPatch { target, program: program.to_owned(), options: options.into() });
    }

    pub(crate) fn delete(&self, target: &wit::ObjectRef, propagation: wit::Propagation, options: wit::Options) {
        let target = ObjectRef { wit: target.clone() };
        self.push(Operation::Delete { target, propagation, options: options.into() });
    }
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).expect("`Patches` wrote it as JSON")
}

impl From<wit::Options> for Options {
    fn from(options: wit::Options) -> Self {
        let wit::Options { subresource, ignore_missing_object, on_failure } = options;
        Self { subresource, ignore_missing_object, on_failure }
    }
}
