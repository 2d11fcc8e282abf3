//! Writing to the `Application`: its status, how far a deletion has come, its finalizer.

use std::sync::Arc;
use std::time::Duration;

use barbless_domain::event::Failure;
use barbless_domain::limits::TRACKING_INTERVAL;
use barbless_domain::pipeline::DeletionStep;
use barbless_domain::status::Status;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::Context;
use super::release::cluster_failure;

/// First and longest pause after a status could not be written.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Writes the newest status, again and again until the API server has it. Ends with the application.
pub(super) async fn write_statuses(context: Arc<Context>, mut statuses: watch::Receiver<Option<Status>>) {
    let mut pause = PAUSE.0;
    let mut written: Option<(Status, tokio::time::Instant)> = None;
    loop {
        if statuses.changed().await.is_err() {
            return;
        }
        loop {
            let Some(mut status) = statuses.borrow_and_update().clone() else { break };
            // Progress is shown as it is after a moment; anything else is shown at once.
            if let Some((last, at)) = &written {
                let until = *at + TRACKING_INTERVAL;
                while status.same_but_for_tracking(last) {
                    tokio::select! {
                        changed = statuses.changed() => match (changed, statuses.borrow_and_update().clone()) {
                            (Ok(()), Some(newer)) => status = newer,
                            // The loop of the application has ended; this is its last word.
                            _ => break,
                        },
                        () = tokio::time::sleep_until(until) => break,
                    }
                }
            }
            // A step that was written down is never taken back by an older status.
            let step = context.instance.deletion_step.lock().await;
            let mut shown = shown(&context, &status);
            if let Some(step) = *step {
                shown.deletion_step = Some(step.as_str().to_owned());
            }
            match context.services.cluster.write_status(&context.instance.id, shown, Timestamp::now()).await {
                Ok(_) => {
                    pause = PAUSE.0;
                    written = Some((status, tokio::time::Instant::now()));
                    break;
                }
                Err(error) => {
                    drop(step);
                    tracing::warn!(application = %context.instance.id, error = error.chain(), "the status is not written yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }
}

fn shown(context: &Context, status: &Status) -> barbless_cluster::ApplicationStatus {
    let mut shown = barbless_cluster::ApplicationStatus::from(status);
    // What was last applied is the settings that were in force when the objects were. A process that found everything
    // applied already has those that it checked.
    if status.current_version.is_some() {
        let applied = context.instance.data().applied.as_ref().map(|applied| Arc::clone(&applied.settings));
        let settings = applied.unwrap_or_else(|| context.instance.documents().1);
        shown.last_applied_configuration = Some(Value::clone(&settings));
    }
    shown
}

/// Writes down the step that is about to begin.
pub(super) async fn persist_deletion(context: &Context, step: DeletionStep) -> Result<(), Failure> {
    let mut written = context.instance.deletion_step.lock().await;
    // An application that is gone already needs no note.
    context.services.cluster.persist_deletion_step(&context.instance.id, step).await.map_err(cluster_failure)?;
    *written = Some(step);
    Ok(())
}

/// Lets the `Application` go.
pub(super) async fn remove_finalizer(context: &Context) -> Result<(), Failure> {
    context.services.cluster.remove_finalizer(&context.instance.id).await.map(|_| ()).map_err(cluster_failure)
}
