//! Claims get a volume; a volume goes with its claim.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, is_terminating,
    work::{Item, Queue, Role},
};
use crate::{
    json::{at, copy, list, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::{Change, Stored},
};

const CLAIMS: &str = "/persistentvolumeclaims";
const VOLUMES: &str = "/persistentvolumes";

pub(super) fn enqueue(change: &Change, queue: &mut Queue) {
    if &*change.table == CLAIMS {
        queue.push(Item::of(Role::Claim, change));
    }
    if &*change.table == VOLUMES && !change.deleted {
        queue.push(Item::of(Role::Volume, change));
    }
}

/// A volume that nobody has is there to be had; a claim that asked for it by name may have waited for it.
pub(super) fn volume(context: &Context, item: &Item, queue: &mut Queue) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let volume = &stored.value;
    if is_terminating(volume) || !matches!(text(volume, &["status", "phase"]), "" | "Pending") {
        return Ok(Next::Done);
    }
    if at(volume, &["spec", "claimRef"]).is_none() {
        context.set_status(&stored, &json!({"phase": "Available"}))?;
    }
    for claim in context.registry.store.list(CLAIMS, None).0 {
        if text(&claim.value, &["spec", "volumeName"]) == item.key.1 {
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
    if is_terminating(claim) || text(claim, &["status", "phase"]) == "Bound" {
        return Ok(Next::Done);
    }
    match context.due(claim) {
        None => return Ok(Next::Done),
        Some(due) if Instant::now() < due => return Ok(Next::At(due)),
        Some(_) => {}
    }
    let wanted = text(claim, &["spec", "volumeName"]);
    let volume_name = if wanted.is_empty() { format!("pvc-{}", stored.uid()) } else { wanted.to_owned() };
    let capacity = at(claim, &["spec", "resources", "requests", "storage"]).cloned().unwrap_or_else(|| json!("1Gi"));
    let volume = match context.registry.store.get(VOLUMES, "", &volume_name) {
        Some(volume) => volume,
        None if wanted.is_empty() => {
            let volume = create_volume(context, &stored, &volume_name, &capacity)?;
            let message = format!("Successfully provisioned volume {volume_name}");
            context.note(claim, "persistentvolume-controller", "ProvisioningSucceeded", &message)?;
            volume
        }
        // A volume that was asked for by name and is not there may come.
        None => return Ok(Next::Done),
    };
    context.set_status(&volume, &json!({"phase": "Bound"}))?;
    if wanted.is_empty() {
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
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim.uid(),
                "namespace": text(object, &["metadata", "namespace"]), "name": text(object, &["metadata", "name"])},
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
        if !ours || is_terminating(&volume.value) || !list(&volume.value, &["metadata", "finalizers"]).is_empty() {
            continue;
        }
        if text(&volume.value, &["spec", "persistentVolumeReclaimPolicy"]) == "Delete" {
            context.delete(&volume, DeleteOptions::default())?;
        } else {
            context.set_status(&volume, &json!({"phase": "Released"}))?;
        }
    }
    Ok(Next::Done)
}
