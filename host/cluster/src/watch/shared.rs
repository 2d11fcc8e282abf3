//! One watch for all who ask for the same selection.
//!
//! A hub owns the watch and hands everything on. Whoever joins late makes it list anew, once for all who join meanwhile;
//! the others see a list in which nothing has changed. So nobody has to keep whole objects for those who may come.
//!
//! Whoever takes too long to take what is handed on is let go, so that they delay nobody else; their stream goes on
//! with a watch of its own, at their own speed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::{Observation, WatchSpec};
use crate::Cluster;
use crate::limits::{SHARED_WATCH_BACKLOG, SHARED_WATCH_GATHER, SHARED_WATCH_PATIENCE};

/// One who shares a watch.
#[derive(Debug, Clone)]
struct Member {
    events: mpsc::Sender<Observation>,
    /// How long the others have waited for it since it last kept up.
    debt: Duration,
}

/// The watches that are shared.
#[derive(Debug, Default)]
pub(crate) struct Hubs {
    hubs: Mutex<BTreeMap<WatchSpec, Hub>>,
}

impl Hubs {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<WatchSpec, Hub>> {
        // Nothing that can panic happens under the lock.
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
struct Hub {
    joins: mpsc::UnboundedSender<Member>,
    /// Told when a member leaves.
    leaves: Arc<Notify>,
}

/// Tells the hub that a member is gone.
struct Leave(Arc<Notify>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

enum Source {
    /// The channel is dropped before the hub is told.
    Shared {
        events: mpsc::Receiver<Observation>,
        _leave: Leave,
    },
    Alone(BoxStream<'static, Observation>),
}

impl Cluster {
    /// Watches a selection, together with all others who watch the same. The stream has no end.
    pub fn observe(&self, mut spec: WatchSpec) -> impl Stream<Item = Observation> + Send + 'static + use<> {
        // The order in which conditions are written means nothing.
        spec.names.sort_unstable();
        spec.fields.sort_unstable();
        if let Some(labels) = &mut spec.labels {
            labels.match_labels.sort_unstable();
            labels.match_expressions.sort_unstable();
        }
        let cluster = self.clone();
        let source = join(&cluster, &spec);
        futures::stream::unfold((cluster, spec, source), |(cluster, spec, mut source)| async move {
            loop {
                let next = match &mut source {
                    Source::Shared { events, .. } => events.recv().await,
                    Source::Alone(events) => events.next().await,
                };
                if let Some(seen) = next {
                    return Some((seen, (cluster, spec, source)));
                }
                // It was too slow for the others.
                source = Source::Alone(cluster.observe_alone(spec.clone()).boxed());
            }
        })
    }

    /// How many watches are shared at present.
    #[must_use]
    pub fn shared_watches(&self) -> usize {
        self.inner.hubs.locked().len()
    }
}

fn join(cluster: &Cluster, spec: &WatchSpec) -> Source {
    let (sender, events) = mpsc::channel(SHARED_WATCH_BACKLOG);
    let member = Member { events: sender, debt: Duration::ZERO };
    let mut hubs = cluster.inner.hubs.locked();
    let known = hubs.get(spec).filter(|hub| hub.joins.send(member.clone()).is_ok()).cloned();
    let hub = known.unwrap_or_else(|| {
        let (joins, joined) = mpsc::unbounded_channel();
        let hub = Hub { joins, leaves: Arc::new(Notify::new()) };
        // It cannot fail: the receiver is in scope.
        let _ = hub.joins.send(member);
        hubs.insert(spec.clone(), hub.clone());
        tokio::spawn(run(cluster.clone(), spec.clone(), joined, Arc::clone(&hub.leaves)));
        hub
    });
    Source::Shared { events, _leave: Leave(hub.leaves) }
}

/// Watches for as long as there is a member.
async fn run(cluster: Cluster, spec: WatchSpec, mut joins: mpsc::UnboundedReceiver<Member>, leaves: Arc<Notify>) {
    let mut members: Vec<Member> = Vec::new();
    // Those who have seen no beginning of a list yet.
    let mut late: Vec<Member> = Vec::new();
    loop {
        // Those who start together share the first list.
        tokio::time::sleep(SHARED_WATCH_GATHER).await;
        let mut events = cluster.observe_alone(spec.clone()).boxed();
        let mut listing = true;
        // Who is late waits for the list that is under way, and then for the next one.
        while listing || late.is_empty() {
            while let Ok(member) = joins.try_recv() {
                late.push(member);
            }
            members.retain(|member| !member.events.is_closed());
            late.retain(|member| !member.events.is_closed());
            if members.is_empty() && late.is_empty() && ended(&cluster, &spec, &mut joins, &mut late) {
                return;
            }
            let seen = tokio::select! {
                seen = events.next() => seen,
                joined = joins.recv() => match joined {
                    Some(member) => {
                        late.push(member);
                        continue;
                    }
                    None => return,
                },
                () = leaves.notified() => continue,
            };
            // It has no end.
            let Some(seen) = seen else { break };
            match &seen {
                Observation::ListBegins => {
                    listing = true;
                    members.append(&mut late);
                }
                Observation::ListEnds => listing = false,
                Observation::Failed { .. } => hand_on(&mut late, &seen).await,
                Observation::Listed(_) | Observation::Applied(_) | Observation::Deleted(_) => {}
            }
            hand_on(&mut members, &seen).await;
        }
    }
}

/// Whether the last member is gone and nobody has joined. Whoever comes later starts another hub.
fn ended(
    cluster: &Cluster,
    spec: &WatchSpec,
    joins: &mut mpsc::UnboundedReceiver<Member>,
    late: &mut Vec<Member>,
) -> bool {
    let mut hubs = cluster.inner.hubs.locked();
    match joins.try_recv() {
        Ok(member) => {
            late.push(member);
            false
        }
        Err(_) => {
            hubs.remove(spec);
            true
        }
    }
}

/// Gives it to all; lets those go who do not take it, or for whom the others have waited too long in all.
async fn hand_on(members: &mut Vec<Member>, seen: &Observation) {
    let give = |mut member: Member| async move {
        match member.events.try_send(seen.clone()) {
            Ok(()) => {
                if member.events.capacity() > SHARED_WATCH_BACKLOG / 2 {
                    member.debt = Duration::ZERO;
                }
                Some(member)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => None,
            Err(mpsc::error::TrySendError::Full(seen)) => {
                let began = Instant::now();
                let patience = SHARED_WATCH_PATIENCE.saturating_sub(member.debt);
                let taken = matches!(timeout(patience, member.events.send(seen)).await, Ok(Ok(())));
                member.debt += began.elapsed();
                taken.then_some(member)
            }
        }
    };
    let given = join_all(std::mem::take(members).into_iter().map(give)).await;
    members.extend(given.into_iter().flatten());
}
