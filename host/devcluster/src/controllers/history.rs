//! ControllerRevisions: the templates that a StatefulSet or a DaemonSet has had, for `kubectl rollout history` and `undo`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Context, reference_to};
use crate::{
    json::{at, copy, int, remove, set, text},
    registry::DeleteOptions,
    status::ApiError,
    store::Stored,
};

const REVISIONS: &str = "apps/controllerrevisions";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Makes the revision of this name the newest of a workload: its template as it is now. `hash` is the label that tells it
/// from others. Revisions that are neither among the newest nor `in_use` go.
pub(super) fn record(
    context: &Context,
    owner: &Stored,
    name: &str,
    (label, hash): (&str, &str),
    in_use: &BTreeSet<&str>,
) -> Result<(), ApiError> {
    let object = &owner.value;
    let namespace = text(object, &["metadata", "namespace"]);
    let number = |revision: &Stored| int(&revision.value, &["revision"]).unwrap_or_default();
    let mut known = context.controlled(owner, REVISIONS);
    known.sort_by_key(|revision| number(revision));
    let newest = known.last().map(|revision| number(revision)).unwrap_or_default();
    match context.registry.store.get(REVISIONS, namespace, name) {
        Some(found) if known.iter().any(|revision| revision.uid() == found.uid()) => {
            if number(&found) < newest {
                // Back to a template that was there before.
                context.change(&found, "", &|revision| {
                    set(revision, &["revision"], json!(newest + 1));
                    true
                })?;
            }
        }
        // Left by a workload of the same name that went without it.
        Some(found) => {
            context.change(&found, "", &|revision| {
                set(revision, &["metadata", "ownerReferences"], json!([reference_to(object)]));
                set(revision, &["revision"], json!(newest + 1));
                true
            })?;
        }
        None => {
            let mut template = at(object, &["spec", "template"]).cloned().unwrap_or_else(|| json!({}));
            set(&mut template, &["$patch"], json!("replace"));
            let mut revision = json!({
                "metadata": {"name": name, "ownerReferences": [reference_to(object)],
                    "labels": at(object, &["spec", "template", "metadata", "labels"]).cloned().unwrap_or_else(|| json!({}))},
                "data": {"spec": {"template": template}},
                "revision": newest + 1,
            });
            set(&mut revision, &["metadata", "labels", label], json!(hash));
            copy(object, &mut revision, &["metadata", "annotations"]);
            remove(&mut revision, &["metadata", "annotations", LAST_APPLIED]);
            context.create("apps/v1", "ControllerRevision", namespace, revision)?;
        }
    }
    let kept = int(object, &["spec", "revisionHistoryLimit"]).and_then(|n| usize::try_from(n).ok()).unwrap_or(10);
    let old = known.iter().filter(|revision| {
        let its_name = text(&revision.value, &["metadata", "name"]);
        let its_hash = text(&revision.value, &["metadata", "labels", label]);
        its_name != name && !in_use.contains(its_name) && !in_use.contains(its_hash)
    });
    let old = old.collect::<Vec<_>>();
    let surplus = old.len().saturating_sub(kept);
    old.into_iter().take(surplus).try_for_each(|revision| context.delete(revision, DeleteOptions::default()))
}

/// The template that a revision keeps.
pub(super) fn template_of(context: &Context, namespace: &str, name: &str) -> Option<Value> {
    let stored = context.registry.store.get(REVISIONS, namespace, name)?;
    let mut template = at(&stored.value, &["data", "spec", "template"])?.clone();
    remove(&mut template, &["$patch"]);
    Some(template)
}

/// The values of a label of Pods, to see what is in use.
pub(super) fn labels_in_use<'a>(pods: impl Iterator<Item = &'a Value>, label: &str) -> BTreeSet<&'a str> {
    pods.map(|pod| text(pod, &["metadata", "labels", label])).filter(|value| !value.is_empty()).collect()
}
