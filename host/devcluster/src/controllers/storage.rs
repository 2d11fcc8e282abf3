//! Claims get a volume; a volume goes with its claim.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, is_terminating,
    pods::PODS,
    work::{Item, Queue, Role},
};
use crate::{
    builtin::nanos,
    json::{at, copy, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::{Change, Stored},
};

const CLAIMS: &str = "/persistentvolumeclaims";
const VOLUMES: &str = "/persistentvolumes";
const CLASSES: &str = "storage.k8s.io/storageclasses";

/// Why a claim or a volume that is deleted is still there: something uses it.
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BINDER: &str = "persistentvolume-controller";

pub(super) fn enqueue(change: &Change, queue: &mut Queue) {
    if &*change.table == PODS {
        // Claims wait for the first Pod that uses them, and go after the last.
        for name in claims_of(&change.new.value) {
            let key = (change.key.0.clone(), name.to_owned());
            queue.push(Item { role: Role::Claim, table: CLAIMS.into(), key });
        }
    }
    if &*change.table == CLAIMS {
        queue.push(Item::of(Role::Claim, change));
    }
    if &*change.table == VOLUMES && !change.deleted {
        queue.push(Item::of(Role::Volume, change));
    }
}

/// The names of the claims that a Pod uses.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = list(pod, &["spec", "volumes"]).iter();
    volumes.map(|it| text(it, &["persistentVolumeClaim", "claimName"])).filter(|name| !name.is_empty())
}

/// Whether a Pod that has not ended uses a claim.
fn is_used(context: &Context, claim: &Value) -> bool {
    let part = |field: &str| text(claim, &["metadata", field]);
    context.registry.store.list(PODS, Some(part("namespace"))).0.iter().any(|pod| {
        let over = matches!(text(&pod.value, &["status", "phase"]), "Succeeded" | "Failed");
        !over && claims_of(&pod.value).any(|name| name == part("name"))
    })
}

/// Adds or takes away the finalizer that protects an object; false when it is as it should be.
fn protect(context: &Context, stored: &Stored, finalizer: &str, wanted: bool) -> Result<bool, ApiError> {
    let is = |object: &Value| list(object, &["metadata", "finalizers"]).iter().any(|it| it == finalizer);
    if is(&stored.value) == wanted {
        return Ok(false);
    }
    context.change(stored, "", &|object| {
        let mut finalizers = list(object, &["metadata", "finalizers"]).to_vec();
        finalizers.retain(|it| it != finalizer);
        if wanted {
            finalizers.push(json!(finalizer));
        }
        set(object, &["metadata", "finalizers"], Value::Array(finalizers));
        true
    })?;
    Ok(true)
}

/// Whether the class of a claim binds it when a Pod uses it, and not before.
fn waits_for_consumer(context: &Context, claim: &Value) -> bool {
    let class = context.registry.store.get(CLASSES, "", text(claim, &["spec", "storageClassName"]));
    class.is_some_and(|class| text(&class.value, &["volumeBindingMode"]) == "WaitForFirstConsumer")
}

/// A volume that nobody has is there to be had; a claim that asked for it by name may have waited for it.
pub(super) fn volume(context: &Context, item: &Item, queue: &mut Queue) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let volume = &stored.value;
    if is_terminating(volume) {
        // It goes when its claim has gone.
        let bound = text(volume, &["status", "phase"]) == "Bound";
        protect(context, &stored, VOLUME_PROTECTION, bound)?;
        return Ok(Next::Done);
    }
    if protect(context, &stored, VOLUME_PROTECTION, true)? {
        // The write brings the item back.
        return Ok(Next::Done);
    }
    if !matches!(text(volume, &["status", "phase"]), "" | "Pending") {
        return Ok(Next::Done);
    }
    if at(volume, &["spec", "claimRef"]).is_none() {
        context.set_status(&stored, &json!({"phase": "Available"}))?;
    }
    for claim in context.registry.store.list(CLAIMS, None).0 {
        let named = text(&claim.value, &["spec", "volumeName"]);
        // A claim that waits for its time may take this one, too.
        if named == item.key.1 || (named.is_empty() && text(&claim.value, &["status", "phase"]) != "Bound") {
            let part = |field: &str| text(&claim.value, &["metadata", field]).to_owned();
            queue.push(Item { role: Role::Claim, table: CLAIMS.into(), key: (part("namespace"), part("name")) });
        }
    }
    Ok(Next::Done)
}

pub(super) fn claim(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else {
        return release(context, item);
    };
    let claim = &stored.value;
    if is_terminating(claim) {
        if !is_used(context, claim) {
            protect(context, &stored, CLAIM_PROTECTION, false)?;
        }
        return Ok(Next::Done);
    }
    if protect(context, &stored, CLAIM_PROTECTION, true)? || text(claim, &["status", "phase"]) == "Bound" {
        // The write brings the item back.
        return Ok(Next::Done);
    }
    if text(claim, &["spec", "volumeName"]).is_empty() && waits_for_consumer(context, claim) && !is_used(context, claim)
    {
        let message = "waiting for first consumer to be created before binding";
        context.note(claim, BINDER, "WaitForFirstConsumer", message)?;
        return Ok(Next::Done);
    }
    match context.due(claim) {
        None => return Ok(Next::Done),
        Some(due) if Instant::now() < due => return Ok(Next::At(due)),
        Some(_) => {}
    }
    let named = text(claim, &["spec", "volumeName"]).to_owned();
    let found = if named.is_empty() { free_volume(context, claim) } else { None };
    let wanted = found.as_deref().unwrap_or(&named);
    let volume_name = if wanted.is_empty() { format!("pvc-{}", stored.uid()) } else { wanted.to_owned() };
    let capacity = at(claim, &["spec", "resources", "requests", "storage"]).cloned().unwrap_or_else(|| json!("1Gi"));
    let volume = match context.registry.store.get(VOLUMES, "", &volume_name) {
        Some(volume) => volume,
        None if wanted.is_empty() => {
            let volume = create_volume(context, &stored, &volume_name, &capacity)?;
            let message = format!("Successfully provisioned volume {volume_name}");
            context.note(claim, BINDER, "ProvisioningSucceeded", &message)?;
            volume
        }
        // A volume that was asked for by name and is not there may come.
        None => return Ok(Next::Done),
    };
    // Of a volume that was there a claim gets all.
    let capacity = at(&volume.value, &["spec", "capacity", "storage"]).cloned().unwrap_or(capacity);
    let volume = if text(&volume.value, &["spec", "claimRef", "uid"]).is_empty() {
        context.change(&volume, "", &|volume| {
            set(volume, &["spec", "claimRef"], reference_of(claim));
            true
        })?
    } else {
        volume
    };
    context.set_status(&volume, &json!({"phase": "Bound"}))?;
    if named.is_empty() {
        context.change(&stored, "", &|claim| {
            set(claim, &["spec", "volumeName"], json!(volume_name));
            set(claim, &["metadata", "annotations", "pv.kubernetes.io/bind-completed"], json!("yes"));
            true
        })?;
    }
    let mut status = json!({"phase": "Bound", "capacity": {"storage": capacity}});
    set(&mut status, &["accessModes"], at(claim, &["spec", "accessModes"]).cloned().unwrap_or_else(|| json!([])));
    context.set_status(&stored, &status)?;
    Ok(Next::Done)
}

/// What a volume says of its claim.
fn reference_of(claim: &Value) -> Value {
    let part = |field: &str| text(claim, &["metadata", field]);
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": part("uid"), "namespace": part("namespace"),
        "name": part("name")})
}

/// The smallest volume that is there, that nobody else has, and that is what a claim wants.
fn free_volume(context: &Context, claim: &Value) -> Option<String> {
    let modes = |object: &Value| list(object, &["spec", "accessModes"]).to_vec();
    let size = |value: Option<&Value>| value.and_then(Value::as_str).and_then(nanos);
    let asked = size(at(claim, &["spec", "resources", "requests", "storage"]));
    let volumes = context.registry.store.list(VOLUMES, None).0;
    let fits = |volume: &Value| {
        let reference = |field: &str| text(volume, &["spec", "claimRef", field]);
        let part = |field: &str| text(claim, &["metadata", field]);
        let free = at(volume, &["spec", "claimRef"]).is_none();
        let reserved = reference("uid").is_empty() && ["namespace", "name"].iter().all(|it| reference(it) == part(it));
        let class = text(volume, &["spec", "storageClassName"]) == text(claim, &["spec", "storageClassName"]);
        let known = modes(volume);
        (free || reserved)
            && class
            && !is_terminating(volume)
            && modes(claim).iter().all(|mode| known.contains(mode))
            && size(at(volume, &["spec", "capacity", "storage"])) >= asked
    };
    let fitting = volumes.iter().filter(|volume| fits(&volume.value));
    let smallest = fitting.min_by_key(|volume| size(at(&volume.value, &["spec", "capacity", "storage"])));
    smallest.map(|volume| text(&volume.value, &["metadata", "name"]).to_owned())
}

fn create_volume(
    context: &Context,
    claim: &Stored,
    name: &str,
    capacity: &Value,
) -> Result<std::sync::Arc<Stored>, ApiError> {
    let object = &claim.value;
    let mut volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "devcluster.barbless.dev/none"}},
        "spec": {
            "capacity": {"storage": capacity},
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": format!("/nonexistent/{name}"), "type": ""},
            "claimRef": reference_of(object),
        },
    });
    for field in ["accessModes", "storageClassName", "volumeMode"] {
        copy(object, &mut volume, &["spec", field]);
    }
    context.create("v1", "PersistentVolume", "", volume)
}

/// Deletes the volume that was made for a claim that is gone.
fn release(context: &Context, item: &Item) -> Result<Next, ApiError> {
    for volume in context.registry.store.list(VOLUMES, None).0 {
        let reference = |field: &str| text(&volume.value, &["spec", "claimRef", field]);
        let ours = reference("namespace") == item.key.0 && reference("name") == item.key.1;
        // A claim of the same name may have come since.
        let again = context.registry.store.by_uid(reference("uid")).is_some();
        if !ours || again {
            continue;
        }
        context.set_status(&volume, &json!({"phase": "Released"}))?;
        if is_terminating(&volume.value) || text(&volume.value, &["spec", "persistentVolumeReclaimPolicy"]) != "Delete"
        {
            continue;
        }
        context.delete(&volume, DeleteOptions::default())?;
    }
    Ok(Next::Done)
}
