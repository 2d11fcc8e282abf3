//! Namespaces (what a new one gets, how an old one goes) and the clean-up of custom resources.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Context, Next, ensure, is_terminating, make_condition,
    work::{Item, Queue, Role},
};
use crate::{
    crd,
    json::{at, list, set, text},
    registry::{CRD_TABLE, DeleteOptions, NAMESPACES, Registry},
    status::ApiError,
    store::{Change, Stored},
};

const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) fn enqueue(context: &Context, change: &Change, queue: &mut Queue) {
    match &*change.table {
        NAMESPACES if !change.deleted => queue.push(Item::of(Role::Namespace, change)),
        CRD_TABLE
            if !change.deleted && (is_terminating(&change.new.value) || !crd::is_established(&change.new.value)) =>
        {
            queue.push(Item::of(Role::Definition, change));
        }
        _ => {}
    }
    if !change.deleted {
        return;
    }
    let store = &context.registry.store;
    let namespace = &change.key.0;
    if !namespace.is_empty() && store.get(NAMESPACES, "", namespace).is_some_and(|n| is_terminating(&n.value)) {
        let key = (String::new(), namespace.clone());
        queue.push(Item { role: Role::Namespace, table: NAMESPACES.into(), key });
    }
    // The table of a custom resource is `group/plural`; its definition is called `plural.group`.
    if let Some((group, plural)) = change.table.split_once('/').filter(|(group, _)| group.contains('.')) {
        let name = format!("{plural}.{group}");
        if store.get(CRD_TABLE, "", &name).is_some_and(|d| is_terminating(&d.value)) {
            queue.push(Item { role: Role::Definition, table: CRD_TABLE.into(), key: (String::new(), name) });
        }
    }
}

/// What every namespace has.
pub(super) fn furnish(registry: &Registry, name: &str) -> Result<(), ApiError> {
    ensure(registry, "v1", "ServiceAccount", name, json!({"metadata": {"name": "default"}}))?;
    let bundle = json!({
        "metadata": {"name": "kube-root-ca.crt", "annotations": {
            "kubernetes.io/description": "The development cluster speaks plain HTTP: there is no certificate."}},
        "data": {"ca.crt": ""},
    });
    ensure(registry, "v1", "ConfigMap", name, bundle)
}

pub(super) fn namespace(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let name = item.key.1.as_str();
    if !is_terminating(&stored.value) {
        furnish(&context.registry, name)?;
        return Ok(Next::Done);
    }
    if list(&stored.value, &["spec", "finalizers"]).is_empty() {
        return Ok(Next::Done);
    }
    let mut remaining = Vec::new();
    for resource in context.registry.catalog.stored().iter().filter(|resource| resource.namespaced) {
        for object in context.registry.store.list(&resource.table, Some(name)).0 {
            if !is_terminating(&object.value) {
                context.delete(&object, DeleteOptions::default())?;
            }
        }
        let left = context.registry.store.list(&resource.table, Some(name)).0;
        if !left.is_empty() {
            let finalizers =
                left.iter().flat_map(|o| list(&o.value, &["metadata", "finalizers"]).to_vec()).collect::<Vec<_>>();
            let kind = if resource.group.is_empty() {
                resource.plural.clone()
            } else {
                format!("{}.{}", resource.plural, resource.group)
            };
            remaining.push((kind, left.len(), finalizers));
        }
    }
    if remaining.is_empty() {
        context.change(&stored, "finalize", &|namespace| {
            set(namespace, &["spec", "finalizers"], json!([]));
            true
        })?;
        return Ok(Next::Done);
    }
    // Every object that goes brings this item back.
    let text_of = |parts: Vec<String>| parts.join(", ");
    let content =
        text_of(remaining.iter().map(|(kind, count, _)| format!("{kind} has {count} resource instances")).collect());
    let mut finalizers =
        remaining.iter().flat_map(|(_, _, f)| f).filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    finalizers.sort();
    finalizers.dedup();
    let object = &stored.value;
    let content = format!("Some resources are remaining: {content}");
    let held = format!("Some content in the namespace has finalizers remaining: {}", text_of(finalizers.clone()));
    let conditions = json!([
        make_condition(
            object,
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization"
        ),
        make_condition(object, "NamespaceContentRemaining", true, "SomeResourcesRemain", &content),
        make_condition(
            object,
            "NamespaceFinalizersRemaining",
            !finalizers.is_empty(),
            if finalizers.is_empty() { "ContentHasNoFinalizers" } else { "SomeFinalizersRemain" },
            if finalizers.is_empty() { "All content-preserving finalizers finished" } else { &held }
        ),
    ]);
    let status = json!({"phase": "Terminating", "conditions": conditions});
    context.set_status(&stored, &status)?;
    Ok(Next::Done)
}

/// Serves a definition that was to be slow, when its time has come.
fn establish(context: &Context, stored: &Stored) -> Result<Next, ApiError> {
    if !crd::is_slow(&stored.value) {
        return Ok(Next::Done);
    }
    match context.due(&stored.value) {
        None => Ok(Next::Done),
        Some(due) if Instant::now() < due => Ok(Next::At(due)),
        Some(_) => {
            context.change(stored, "status", &|definition| {
                crd::establish_now(definition);
                true
            })?;
            Ok(Next::Done)
        }
    }
}

pub(super) fn definition(context: &Context, item: &Item) -> Result<Next, ApiError> {
    let Some(stored) = context.get(item) else { return Ok(Next::Done) };
    let definition = &stored.value;
    let has_finalizer = list(definition, &["metadata", "finalizers"]).iter().any(|f| f == CRD_FINALIZER);
    if at(definition, &["metadata", "deletionTimestamp"]).is_none() && !crd::is_established(definition) {
        return establish(context, &stored);
    }
    if at(definition, &["metadata", "deletionTimestamp"]).is_none() || !has_finalizer {
        return Ok(Next::Done);
    }
    let table = format!("{}/{}", text(definition, &["spec", "group"]), text(definition, &["spec", "names", "plural"]));
    for object in context.registry.store.list(&table, None).0 {
        if !is_terminating(&object.value) {
            context.delete(&object, DeleteOptions::default())?;
        }
    }
    if context.registry.store.list(&table, None).0.is_empty() {
        context.change(&stored, "", &|definition| {
            let finalizers = list(definition, &["metadata", "finalizers"]);
            let kept = finalizers.iter().filter(|f| *f != CRD_FINALIZER).cloned().collect::<Vec<_>>();
            set(definition, &["metadata", "finalizers"], json!(kept));
            true
        })?;
    }
    Ok(Next::Done)
}
