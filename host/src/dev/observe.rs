//! What `Application`s say: to the loop, if it is the one that `dev` looks after, and to the users of the others.

use barbless_cluster::{ApplicationEvent, Cluster, MalformedApplication, SeenApplication};
use barbless_domain::event::{Event, Failure};
use barbless_domain::identity::ApplicationId;
use futures::StreamExt as _;

use crate::driver::Handle;

/// Tells the loop what the `Application` says, and the users of others that nobody looks after them.
pub(super) async fn observe(cluster: Cluster, id: ApplicationId, package: String, handle: Handle) {
    let events = cluster.watch_applications(None);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        for Unserved { namespace, name, generation, why } in unserved(&event, &id, &package) {
            let status = barbless_domain::status::refused(generation, &why);
            match cluster.write_refusal((&namespace, &name), &status, jiff::Timestamp::now()).await {
                Ok(false) => {}
                Ok(true) => tracing::warn!(namespace, name, why = why.message, "an Application is not served"),
                Err(error) => {
                    tracing::warn!(
                        namespace,
                        name,
                        error = error.chain(),
                        "an Application is not told that it is not served"
                    );
                }
            }
        }
        let seen = match event {
            ApplicationEvent::Applied(seen) => vec![*seen],
            ApplicationEvent::Synced { applications, .. } => applications,
            ApplicationEvent::Failed { reason, message } => {
                tracing::warn!(application = %id, reason, message, "watching applications");
                continue;
            }
            ApplicationEvent::Malformed(_) | ApplicationEvent::Deleted { .. } => continue,
        };
        for seen in seen.into_iter().filter(|seen| seen.id == id) {
            if !seen.desired.deleting
                && let Err(error) = cluster.ensure_finalizer(&id).await
            {
                tracing::warn!(application = %id, error = error.chain(), "the finalizer is not there yet");
            }
            handle.send(Event::Observed(seen.desired)).await;
        }
    }
}

/// An `Application` that this command does not look after.
#[derive(Debug, PartialEq)]
struct Unserved {
    namespace: String,
    name: String,
    generation: i64,
    why: Failure,
}

/// All of an event that are not the one that is served.
fn unserved(event: &ApplicationEvent, id: &ApplicationId, package: &str) -> Vec<Unserved> {
    let (seen, malformed): (Vec<&SeenApplication>, Vec<&MalformedApplication>) = match event {
        ApplicationEvent::Applied(seen) => (vec![&**seen], Vec::new()),
        ApplicationEvent::Malformed(bad) => (Vec::new(), vec![bad]),
        ApplicationEvent::Synced { applications, malformed } => {
            (applications.iter().collect(), malformed.iter().collect())
        }
        ApplicationEvent::Deleted { .. } | ApplicationEvent::Failed { .. } => (Vec::new(), Vec::new()),
    };
    let others = seen.into_iter().filter(|seen| seen.id != *id).map(|seen| Unserved {
        namespace: seen.id.namespace().to_owned(),
        name: seen.id.name().to_owned(),
        generation: seen.desired.generation,
        why: not_served(&seen.id, &seen.application.spec.package_name, id, package),
    });
    let broken = malformed.into_iter().map(|bad| Unserved {
        namespace: bad.namespace.clone(),
        name: bad.name.clone(),
        generation: bad.generation,
        why: bad.failure(),
    });
    others.chain(broken).collect()
}

fn not_served(other: &ApplicationId, wanted: &str, id: &ApplicationId, package: &str) -> Failure {
    let (namespace, name) = (other.namespace(), other.name());
    if wanted != package {
        return Failure::new("PackageUnknown", format!("barbless dev has package '{package}', and not '{wanted}'"))
            .hint(format!(
                "run barbless dev on the folder of that package, with --namespace {namespace} --name {name}"
            ));
    }
    Failure::new("NotServed", format!("barbless dev looks after one application, which is {id}"))
        .hint(format!("run it with --namespace {namespace} --name {name}"))
}

#[cfg(test)]
mod tests;
