//! A record as Helm stores it: JSON, gzip, base64, in a Secret or ConfigMap.
//!
//! The JSON is kept as it was read, and what changes is changed in it: a record of Helm loses nothing when we rewrite it.
//! What only we need is under the key `barbless`, which Helm ignores, and in annotations.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use barbless_domain::grant::{INSTANCE_LABEL, PACKAGE_LABEL};
use barbless_domain::identity::{ApplicationId, ObjectRef};
use barbless_domain::release::history::Owner;
use barbless_domain::release::{
    DeletePolicy, HelmHook, HookEvent, MAINTENANCE_LABEL, OBJECTS_MAX, ReleaseObject, ReleaseStatus, digest,
};
use barbless_domain::values::Patches;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{HookPhase, HookRun, Record, RecordedHook, manifest};
use crate::limits::RECORD_UNPACKED_BYTES;
use crate::request::{annotation, label, metadata};

/// Type of the Secrets.
pub(super) const SECRET_TYPE: &str = "helm.sh/release.v1";
/// Annotation with the process that works on a revision.
pub(super) const OWNER_ANNOTATION: &str = "packages.deckhouse.io/release-owner";
/// Annotation with the last sign of life of that process, in seconds since the epoch.
pub(super) const HEARTBEAT_ANNOTATION: &str = "packages.deckhouse.io/release-heartbeat";
/// Key of what is ours in the JSON.
const OURS: &str = "barbless";
/// Key of what hooks set in the values.
const PATCHES: &str = "valuesOfHooks";
const LOG_POLICY_ANNOTATION: &str = "helm.sh/hook-output-log-policy";

/// Name of the Secret or ConfigMap of a revision.
pub(super) fn secret_name(application: &ApplicationId, revision: u32) -> String {
    format!("sh.helm.release.v1.{}.v{revision}", application.name())
}

/// The JSON of a new record.
pub(super) fn document(record: &Record) -> Map<String, Value> {
    let mut text = String::new();
    for ReleaseObject { object, source, .. } in &record.objects {
        manifest::write(&mut text, source, object);
    }
    let (name, version) = &record.package;
    let settings = if record.settings.is_object() { record.settings.clone() } else { json!({}) };
    let release = json!({
        "name": record.application.name(),
        "namespace": record.application.namespace(),
        "version": record.revision,
        "info": {"status": record.status},
        "chart": {
            "metadata": {"name": name, "version": version, "apiVersion": "v2", "appVersion": version},
            "lock": null, "templates": [], "values": {}, "schema": null, "files": [],
        },
        "config": settings,
        "manifest": text,
        "hooks": record.hooks.iter().map(|it| hook_entry(&it.hook)).collect::<Vec<_>>(),
        "apply_method": "ssa",
        OURS: {"digest": record.digest, "maintenance": record.maintenance},
    });
    let mut document = match release {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if let Some(ours) = document.get_mut(OURS).and_then(Value::as_object_mut) {
        for (key, value) in [("setAside", &record.set_aside), ("seed", &record.seed)] {
            if let Some(value) = value {
                ours.insert(key.to_owned(), value.as_str().into());
            }
        }
        if !record.out_of_reach.is_empty() {
            let named = |it: &ObjectRef| {
                let metadata = json!({"namespace": it.namespace, "name": it.name});
                json!({"apiVersion": it.gvk.api_version(), "kind": it.gvk.kind, "metadata": metadata})
            };
            ours.insert("outOfReach".to_owned(), record.out_of_reach.iter().map(named).collect());
        }
    }
    if let Some(info) = document.get_mut("info").and_then(Value::as_object_mut) {
        set_time(info, "first_deployed", record.first_deployed);
        set_time(info, "last_deployed", record.last_deployed);
        info.insert("notes".to_owned(), record.notes.as_str().into());
        if let Some(revision) = record.rollback_of {
            info.insert("rollback_revision".to_owned(), revision.into());
        }
    }
    update(&mut document, record);
    document
}

/// Writes what may have changed since the record was made or read.
pub(super) fn update(document: &mut Map<String, Value>, record: &Record) {
    let info = document.entry("info").or_insert_with(|| json!({}));
    if let Some(info) = info.as_object_mut() {
        info.insert("status".to_owned(), record.status.as_str().into());
        info.insert("description".to_owned(), record.description.as_str().into());
        if record.deleted.is_some() {
            set_time(info, "deleted", record.deleted);
        }
    }
    if let Some(ours) = document.get_mut(OURS).and_then(Value::as_object_mut) {
        match serde_json::to_value(&record.patches) {
            Ok(patches) if !record.patches.is_empty() => ours.insert(PATCHES.to_owned(), patches),
            _ => ours.remove(PATCHES),
        };
    }
    for RecordedHook { last_run, at, .. } in &record.hooks {
        let entry = document.get_mut("hooks").and_then(|hooks| hooks.get_mut(*at)).and_then(Value::as_object_mut);
        if let (Some(entry), Some(run)) = (entry, last_run) {
            let mut written = Map::new();
            set_time(&mut written, "started_at", run.started_at);
            set_time(&mut written, "completed_at", run.completed_at);
            written.insert("phase".to_owned(), run.phase.as_str().into());
            entry.insert("last_run".to_owned(), written.into());
        }
    }
}

fn set_time(map: &mut Map<String, Value>, field: &str, time: Option<Timestamp>) {
    map.insert(field.to_owned(), time.map(|time| time.to_string()).unwrap_or_default().into());
}

fn hook_entry(hook: &HelmHook) -> Value {
    let words: Vec<String> = log_policies(&hook.object).into_iter().collect();
    json!({
        "name": hook.target.name,
        "kind": hook.target.gvk.kind,
        "path": hook.source,
        "manifest": manifest::document(&hook.source, &hook.object),
        "events": hook.events,
        "last_run": {"started_at": "", "completed_at": "", "phase": ""},
        "weight": hook.weight,
        "delete_policies": hook.delete_policies,
        "output_log_policies": words,
    })
}

/// When Helm prints the logs of a hook.
fn log_policies(object: &Value) -> BTreeSet<String> {
    annotation(object, LOG_POLICY_ANNOTATION)
        .into_iter()
        .flat_map(|words| words.split(','))
        .map(|word| word.trim().to_lowercase())
        .filter(|word| matches!(word.as_str(), "hook-succeeded" | "hook-failed"))
        .collect()
}

/// The Secret of a new record around its payload.
pub(super) fn secret(record: &Record, target: &ObjectRef, payload: &str, now: Timestamp) -> Value {
    let name = record.application.name();
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {
            "name": target.name, "namespace": target.namespace,
            "labels": {
                "name": name, "owner": "helm", "status": record.status.as_str(),
                "version": record.revision.to_string(), "createdAt": now.as_second().to_string(),
                INSTANCE_LABEL: name, PACKAGE_LABEL: record.package.0,
            },
        },
        "data": {"release": STANDARD.encode(payload)},
    });
    if let Some(Owner { name, seen }) = &record.owner {
        secret["metadata"]["annotations"] =
            json!({OWNER_ANNOTATION: name, HEARTBEAT_ANNOTATION: seen.as_second().to_string()});
    }
    secret
}

/// Gzip and base64 around the JSON: the value under `release`.
pub(super) fn pack(document: &Map<String, Value>) -> std::io::Result<String> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&serde_json::to_vec(document)?)?;
    Ok(STANDARD.encode(packer.finish()?))
}

/// The JSON in a Secret or a ConfigMap.
fn unpack(holder: &Value) -> Result<Map<String, Value>, String> {
    let data = holder.pointer("/data/release").and_then(Value::as_str).ok_or("it has no data.release")?;
    // A Secret puts its own base64 around that of Helm.
    let packed = match holder.get("kind").and_then(Value::as_str) {
        Some("ConfigMap") => data.as_bytes().to_vec(),
        _ => STANDARD.decode(data).map_err(|error| format!("data.release is no base64: {error}"))?,
    };
    let packed = STANDARD.decode(packed.trim_ascii()).map_err(|error| format!("the payload is no base64: {error}"))?;
    let mut unpacked = Vec::new();
    if packed.starts_with(&[0x1f, 0x8b]) {
        let mut unpacker = flate2::read::GzDecoder::new(packed.as_slice()).take(RECORD_UNPACKED_BYTES + 1);
        unpacker.read_to_end(&mut unpacked).map_err(|error| format!("the payload is no gzip: {error}"))?;
        if unpacked.len() as u64 > RECORD_UNPACKED_BYTES {
            return Err(format!("the payload unpacks to more than {RECORD_UNPACKED_BYTES} bytes"));
        }
    } else {
        unpacked = packed;
    }
    serde_json::from_slice(&unpacked).map_err(|error| format!("the payload is no release: {error}"))
}

/// The record in a Secret or ConfigMap.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn decode(application: &ApplicationId, holder: &Value) -> Result<Record, String> {
    let document = unpack(holder)?;
    let release = Fields(&document);
    let (name, namespace) = (release.text("/name"), release.text("/namespace"));
    if name != application.name() || namespace != application.namespace() {
        return Err(format!("it is of release {namespace}.{name}"));
    }
    let revision =
        release.number("/version").and_then(|number| u32::try_from(number).ok()).ok_or("it has no version")?;
    // Else a change of it would be written to another one.
    let (found, expected) = (metadata(holder, "name").unwrap_or_default(), secret_name(application, revision));
    if found != expected {
        return Err(format!("it is revision {revision}, and its name is not {expected:?}"));
    }
    let ours = document.contains_key(OURS);
    let mut left = manifest::Budget::default();
    let mut objects = Vec::new();
    for manifest::Document { source, object } in manifest::read(&release.text("/manifest"), ours, &mut left)? {
        // What has no name (`generateName`) Helm creates and forgets.
        let Ok(target) = ObjectRef::of(&object) else { continue };
        objects.push(ReleaseObject { target, object, source: source.unwrap_or_default() });
    }
    let mut hooks = Vec::new();
    for (at, entry) in release.list("/hooks").iter().enumerate().take(OBJECTS_MAX) {
        hooks.extend(read_hook(at, entry, ours, &mut left)?);
    }
    // Helm itself finds revisions by the label.
    let word = label(holder, "status").map_or_else(|| release.text("/info/status"), str::to_owned);
    // A word of a later Helm is no reason to lose the record.
    let status = serde_json::from_value(word.as_str().into()).unwrap_or(ReleaseStatus::Unknown);
    let owner = annotation(holder, OWNER_ANNOTATION).map(|owner| {
        let seen = annotation(holder, HEARTBEAT_ANNOTATION).and_then(|text| text.parse().ok());
        let seen = seen.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::UNIX_EPOCH);
        Owner { name: owner.to_owned(), seen }
    });
    let some = |text: String| (!text.is_empty()).then_some(text);
    let is_maintained = || objects.iter().any(|it| label(&it.object, MAINTENANCE_LABEL).is_some());
    let all = || objects.iter().map(|it| &it.object).chain(hooks.iter().map(|it: &RecordedHook| &it.hook.object));
    Ok(Record {
        application: application.clone(),
        revision,
        status,
        description: release.text("/info/description"),
        notes: release.text("/info/notes"),
        package: (release.text("/chart/metadata/name"), release.text("/chart/metadata/version")),
        settings: release.at("/config").filter(|it| !it.is_null()).cloned().unwrap_or_else(|| json!({})),
        first_deployed: release.time("/info/first_deployed"),
        last_deployed: release.time("/info/last_deployed"),
        deleted: release.time("/info/deleted"),
        owner,
        digest: some(release.text("/barbless/digest")).unwrap_or_else(|| digest(all())),
        set_aside: some(release.text("/barbless/setAside")),
        seed: some(release.text("/barbless/seed")),
        // What cannot be read is worth no more than what is not there: hooks will set it again.
        patches: document.get(OURS).and_then(|ours| Patches::deserialize(ours.get(PATCHES)?).ok()).unwrap_or_default(),
        rollback_of: release
            .number("/info/rollback_revision")
            .and_then(|it| u32::try_from(it).ok())
            .filter(|it| *it > 0),
        out_of_reach: release
            .list("/barbless/outOfReach")
            .iter()
            .take(OBJECTS_MAX)
            .filter_map(|it| ObjectRef::of(it).ok())
            .collect(),
        maintenance: release.at("/barbless/maintenance").and_then(Value::as_bool).unwrap_or_else(is_maintained),
        written_by_helm: !ours,
        objects,
        hooks,
        document,
    })
}

/// One hook; nothing if its manifest has no object with a name.
fn read_hook(
    at: usize,
    entry: &Value,
    ours: bool,
    left: &mut manifest::Budget,
) -> Result<Option<RecordedHook>, String> {
    let Some(map) = entry.as_object() else { return Ok(None) };
    let fields = Fields(map);
    let Some(document) = manifest::read(&fields.text("/manifest"), ours, left)?.into_iter().next() else {
        return Ok(None);
    };
    let Ok(target) = ObjectRef::of(&document.object) else { return Ok(None) };
    let words = |pointer: &str| fields.list(pointer).iter().filter_map(Value::as_str).map(str::to_owned);
    let policy = |word: String| serde_json::from_value::<DeletePolicy>(word.into()).ok();
    let mut delete_policies: BTreeSet<DeletePolicy> = words("/delete_policies").filter_map(policy).collect();
    if delete_policies.is_empty() {
        delete_policies.insert(DeletePolicy::BeforeHookCreation);
    }
    let phase = HookPhase::parse(&fields.text("/last_run/phase"));
    let last_run = phase.map(|phase| HookRun {
        started_at: fields.time("/last_run/started_at"),
        completed_at: fields.time("/last_run/completed_at"),
        phase,
    });
    let hook = HelmHook {
        target,
        source: document.source.unwrap_or_else(|| fields.text("/path")),
        object: document.object,
        events: words("/events").filter_map(|word| HookEvent::parse(&word)).collect(),
        weight: fields.number("/weight").and_then(|it| i32::try_from(it).ok()).unwrap_or(0),
        delete_policies,
    };
    Ok(Some(RecordedHook { hook, last_run, at }))
}

/// Fields of the JSON; absent, `null` and of another type are the same: nothing.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn at(&self, pointer: &str) -> Option<&'a Value> {
        let (first, rest) = pointer.strip_prefix('/')?.split_once('/').unwrap_or((pointer.get(1..)?, ""));
        let value = self.0.get(first)?;
        if rest.is_empty() { Some(value) } else { value.pointer(&format!("/{rest}")) }
    }

    fn text(&self, pointer: &str) -> String {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer)?.as_i64()
    }

    fn list(&self, pointer: &str) -> &'a [Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A time; Go's zero time is none.
    fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse::<Timestamp>().ok().filter(|time| *time > Timestamp::UNIX_EPOCH)
    }
}
