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
            let last = written.as_ref().map(|(status, at)| (status, *at + TRACKING_INTERVAL));
            let Some(status) = newest(&mut statuses, last).await else { break };
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
                // The loop has ended, and the API may be gone with it: whoever goes on with the application writes its own.
                Err(error) if statuses.has_changed().is_err() => {
                    tracing::debug!(application = %context.instance.id, error = error.chain(), "the last status is not written");
                    return;
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

/// The newest status. One in which nothing but progress is new since the last that was written waits until the given
/// moment for a newer one; anything else is there at once.
async fn newest(
    statuses: &mut watch::Receiver<Option<Status>>,
    last: Option<(&Status, tokio::time::Instant)>,
) -> Option<Status> {
    loop {
        let status = statuses.borrow_and_update().clone()?;
        let Some((_, until)) = last.filter(|(last, _)| status.same_but_for_tracking(last)) else { return Some(status) };
        tokio::select! {
            changed = statuses.changed() => if changed.is_err() {
                // The loop of the application has ended; this is its last word.
                return Some(status);
            },
            () = tokio::time::sleep_until(until) => return Some(status),
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

#[cfg(test)]
mod tests {
    use barbless_domain::identity::ApplicationId;
    use barbless_domain::pipeline::App;
    use barbless_domain::release::tracking::Tracking;
    use tokio::time::Instant;

    use super::*;

    fn status(summary: &str, completed: u32) -> Status {
        let id = ApplicationId::new("demo", "web").unwrap();
        let mut status = App::new(id).status();
        summary.clone_into(&mut status.summary.message);
        status.tracking = Some(Arc::new(Tracking { completed, remaining: 9, operations: Vec::new() }));
        status
    }

    #[tokio::test]
    async fn progress_is_gathered_and_everything_else_is_told_at_once() {
        let wait = Duration::from_millis(300);
        let (tell, mut statuses) = watch::channel(Some(status("applying", 1)));
        let first = newest(&mut statuses, None).await.unwrap();
        assert_eq!(first, status("applying", 1), "the first is written at once");
        // Much progress is one write, of what was true last.
        let begun = Instant::now();
        let teller = tokio::spawn(async move {
            for completed in 2..=20 {
                tell.send_replace(Some(status("applying", completed)));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tell
        });
        let second = newest(&mut statuses, Some((&first, begun + wait))).await.unwrap();
        assert_eq!(second, status("applying", 20));
        assert!(begun.elapsed() >= wait);
        let tell = teller.await.unwrap();
        // Other news does not wait, and takes the progress along.
        let begun = Instant::now();
        let far = begun + Duration::from_secs(3600);
        tell.send_replace(Some(status("applying", 21)));
        let teller = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            tell.send_replace(Some(status("failed", 21)));
            tell
        });
        assert_eq!(newest(&mut statuses, Some((&second, far))).await, Some(status("failed", 21)));
        // The last word is not lost with its speaker.
        let tell = teller.await.unwrap();
        tell.send_replace(Some(status("failed", 22)));
        drop(tell);
        assert_eq!(newest(&mut statuses, Some((&status("failed", 21), far))).await, Some(status("failed", 22)));
    }
}
