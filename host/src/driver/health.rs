//! Health of what was applied: the objects of the release are watched, and the application is told when the worst of
//! them changes. Nothing is polled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barbless_cluster::{WatchEvent, WatchSpec};
use barbless_domain::event::{Event, Workloads};
use barbless_domain::grant::INSTANCE_LABEL;
use barbless_domain::hook::LabelSelector;
use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::release::Plan;
use barbless_health::{Member, Verdict, aggregate, assess};
use futures::StreamExt as _;
use futures::stream::select_all;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::Context;

/// Watches the objects of a release; ends when it is dropped.
pub(super) struct Monitor {
    digest: String,
    _task: AbortOnDropHandle<()>,
}

/// Watches what a plan applies, unless just that is watched already.
pub(super) fn watch(context: &Arc<Context>, plan: &Arc<Plan>) {
    let mut monitor = context.instance.monitor();
    if monitor.as_ref().is_some_and(|monitor| monitor.digest == plan.digest) {
        return;
    }
    let task = tokio::spawn(run(Arc::clone(context), Arc::clone(plan)));
    *monitor = Some(Monitor { digest: plan.digest.clone(), _task: AbortOnDropHandle::new(task) });
}

/// Stops watching.
pub(super) fn stop(context: &Context) {
    *context.instance.monitor() = None;
}

async fn run(context: Arc<Context>, plan: Arc<Plan>) {
    // Kinds without a check have no verdict and do not count.
    let expected: BTreeMap<ObjectRef, &Value> = plan
        .objects()
        .filter(|one| assess(&one.object).is_some())
        .map(|one| (one.target.clone(), &one.object))
        .collect();
    if expected.is_empty() {
        let _ = context.events.send(Event::Health(Workloads::None)).await;
        return;
    }
    let kinds: BTreeSet<Gvk> = expected.keys().map(|target| target.gvk.clone()).collect();
    let label = (INSTANCE_LABEL.to_owned(), context.instance.id.name().to_owned());
    let streams = kinds.into_iter().map(|gvk| {
        let spec = WatchSpec {
            gvk: gvk.clone(),
            namespace: Some(context.instance.id.namespace().to_owned()),
            names: Vec::new(),
            labels: Some(LabelSelector { match_labels: vec![label.clone()], match_expressions: Vec::new() }),
            fields: Vec::new(),
        };
        context.services.cluster.watch(spec).map(move |event| (gvk.clone(), event)).boxed()
    });
    let mut unsynced: BTreeSet<Gvk> = expected.keys().map(|target| target.gvk.clone()).collect();
    let mut live: BTreeMap<ObjectRef, Arc<Value>> = BTreeMap::new();
    let mut last = None;
    let mut events = select_all(streams);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            // The application is gone, or its loop has stopped.
            () = context.events.closed() => return,
        };
        let Some((gvk, event)) = next else { return };
        match event {
            WatchEvent::Synced(objects) => {
                unsynced.remove(&gvk);
                live.retain(|target, _| target.gvk != gvk);
                live.extend(objects.into_iter().filter_map(|object| Some((ObjectRef::of(&object).ok()?, object))));
            }
            WatchEvent::Applied(object) => {
                if let Ok(target) = ObjectRef::of(&object) {
                    live.insert(target, object);
                }
            }
            WatchEvent::Deleted(object) => {
                if let Ok(target) = ObjectRef::of(&object) {
                    live.remove(&target);
                }
            }
            WatchEvent::Failed { .. } => continue,
        }
        if !unsynced.is_empty() {
            continue;
        }
        let members = expected.iter().map(|(target, rendered)| match live.get(target) {
            Some(object) => Member::Live(object),
            None => Member::Absent(rendered),
        });
        let health = aggregate(members);
        let workloads = match health.status {
            Verdict::Healthy | Verdict::Suspended => Workloads::Healthy,
            Verdict::Progressing | Verdict::Missing => Workloads::Progressing(health.message),
            Verdict::Degraded | Verdict::Unknown => Workloads::Degraded(health.message),
        };
        if last.as_ref() != Some(&workloads) {
            last = Some(workloads.clone());
            if context.events.send(Event::Health(workloads)).await.is_err() {
                return;
            }
        }
    }
}
